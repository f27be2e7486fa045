/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reference that may be the last one is dropped under the queue's poolsets_lock, under which named sets are found. So
 * a set without references is in no list.
 */
#include "scheduler/program/poolset.h"
#include "base/mem.h"
#include "scheduler/run/sched_int.h"
#include <stdio.h>
#include <string.h>

struct ngd_poolset {
    struct ngd_list link; /* in queue->poolsets; under poolsets_lock */
    struct ngd_queue *queue;
    char name[72];           /* "" = not shared */
    struct ngd_payer *payer; /* owner of the name; kept alive by the pools' charges */
    uint32_t refs;           /* under the queue's poolsets_lock */
    struct ngd_pool *pools[];
};

static void set_free(struct ngd_poolset *set)
{
    for (uint32_t i = 0; i < set->queue->n_slots; i++)
        ngd_pool_destroy(set->pools[i]);
    ngd_free(set);
}

static struct ngd_poolset *set_new(struct ngd_queue *queue, const char *label, struct ngd_payer *payer)
{
    struct ngd_poolset *set = ngd_calloc(1, sizeof(*set) + queue->n_slots * sizeof(struct ngd_pool *));
    ngd_status_t status = NGD_OK;

    if (!set)
        return NULL;
    set->queue = queue;
    set->refs = 1;
    set->payer = payer;
    for (uint32_t i = 0; i < queue->n_slots && status == NGD_OK; i++) {
        char name[160];

        snprintf(name, sizeof(name), "%.64s/%u %.64s", queue->dev_name, (unsigned)i, label);
        status = ngd_pool_create(queue->dev, name, &set->pools[i]);
        if (status == NGD_OK)
            ngd_pool_set_payer(set->pools[i], payer);
    }
    if (status) {
        set_free(set);
        return NULL;
    }
    return set;
}

ngd_status_t ngd_poolset_create(struct ngd_queue *queue, const char *label, struct ngd_payer *payer,
                                struct ngd_poolset **set_p)
{
    struct ngd_poolset *set = set_new(queue, label, payer);

    if (!set)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_lock(&queue->poolsets_lock);
    ngd_list_push_back(&queue->poolsets, &set->link);
    ngd_mutex_unlock(&queue->poolsets_lock);
    *set_p = set;
    return NGD_OK;
}

static struct ngd_poolset *find_set_locked(struct ngd_queue *queue, const char *name, const struct ngd_payer *payer)
    NGD_REQUIRES(queue->poolsets_lock)
{
    ngd_list_for_each (l, &queue->poolsets) {
        struct ngd_poolset *set = ngd_container_of(l, struct ngd_poolset, link);

        if (set->payer == payer && strcmp(set->name, name) == 0)
            return set;
    }
    return NULL;
}

ngd_status_t ngd_poolset_open(struct ngd_queue *queue, const char *name, struct ngd_payer *payer,
                              struct ngd_poolset **set_p)
{
    /* The set is made before the lock is taken, and freed if one of that name exists. */
    struct ngd_poolset *fresh = set_new(queue, name, payer), *found;

    if (!fresh)
        return NGD_ERR_NO_MEMORY;
    snprintf(fresh->name, sizeof(fresh->name), "%s", name);
    ngd_mutex_lock(&queue->poolsets_lock);
    found = find_set_locked(queue, name, payer);
    if (found)
        found->refs++;
    else
        ngd_list_push_back(&queue->poolsets, &fresh->link);
    ngd_mutex_unlock(&queue->poolsets_lock);
    if (found)
        set_free(fresh);
    *set_p = found ? found : fresh;
    return NGD_OK;
}

struct ngd_poolset *ngd_poolset_ref(struct ngd_poolset *set)
{
    if (!set)
        return NULL;
    ngd_mutex_lock(&set->queue->poolsets_lock);
    set->refs++;
    ngd_mutex_unlock(&set->queue->poolsets_lock);
    return set;
}

struct ngd_poolset *ngd_poolset_unref(struct ngd_poolset *set)
{
    bool last;

    if (!set)
        return NULL;
    ngd_mutex_lock(&set->queue->poolsets_lock);
    last = --set->refs == 0;
    if (last)
        ngd_list_remove(&set->link);
    ngd_mutex_unlock(&set->queue->poolsets_lock);
    if (last)
        set_free(set);
    return NULL;
}

struct ngd_pool *ngd_poolset_pool(struct ngd_poolset *set, const struct ngd_slot *slot)
{
    return set ? set->pools[slot->index] : slot->pool;
}

uint64_t ngd_poolset_bytes_of(struct ngd_queue *queue)
{
    uint64_t bytes = 0;

    ngd_mutex_lock(&queue->poolsets_lock);
    ngd_list_for_each (l, &queue->poolsets)
        for (uint32_t i = 0; i < queue->n_slots; i++)
            bytes += ngd_pool_bytes(ngd_container_of(l, struct ngd_poolset, link)->pools[i]);
    ngd_mutex_unlock(&queue->poolsets_lock);
    return bytes;
}
