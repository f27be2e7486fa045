/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: a communicator with the run queues of its devices. One replay of a group runs at a time. */
#include "scheduler/program/group_int.h"
#include "base/log.h"
#include "base/mem.h"
#include <stdio.h>

/* ---- made of what ------------------------------------------------------------------------------------- */

/* Finds the queues of the devices, and checks that all devices are in service. */
static ngd_status_t find_queues(struct ngd_sched *sched, const struct ngd_group_params *p, struct ngd_queue **queues,
                                struct ngd_diag *diag)
{
    for (uint32_t i = 0; i < p->n; i++) {
        queues[i] = ngd_sched_queue_of(sched, p->devices[i]);
        if (!queues[i])
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "device %s is not open (npugraphctl devices lists those that are)",
                                ngd_device_info(p->devices[i])->name);
        if (!atomic_load_explicit(&queues[i]->healthy, memory_order_relaxed))
            return ngd_diag_set(diag, NGD_ERR_DEVICE_LOST,
                                "device %s has failed and does not serve, so it cannot be rank %u of group \"%.64s\"; "
                                "take another one, or have it reset",
                                queues[i]->dev_name, i, p->name);
    }
    return NGD_OK;
}

static ngd_status_t check_group_params(const struct ngd_group_params *p, struct ngd_diag *diag)
{
    if (p->span && p->n == 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "group \"%.64s\" has no device of this daemon", p->name);
    if (p->n >= (p->span ? 1u : 2u) && p->n <= NGD_GROUP_MAX_RANKS)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "group \"%.64s\" has %u devices; a group has 2 to %d", p->name,
                        p->n, NGD_GROUP_MAX_RANKS);
}

static void sort_ranks(struct ngd_group *group)
{
    for (uint32_t i = 0; i < group->n; i++) {
        uint32_t at = i;

        for (; at > 0 && group->queues[group->order[at - 1]]->index > group->queues[i]->index; at--)
            group->order[at] = group->order[at - 1];
        group->order[at] = i;
    }
}

static struct ngd_group *new_group(struct ngd_sched *sched, const struct ngd_group_params *p,
                                   struct ngd_queue *const *queues)
{
    struct ngd_group *group = ngd_calloc(1, sizeof(*group) + p->n * sizeof(group->runs[0]));

    if (!group)
        return NULL;
    group->sched = sched;
    group->n = p->n;
    for (uint32_t i = 0; i < p->n; i++)
        group->queues[i] = queues[i];
    sort_ranks(group);
    atomic_init(&group->refs, 1);
    ngd_mutex_init(&group->lock, NGD_RANK_GROUP);
    ngd_cond_init(&group->idle);
    return group;
}

static void group_free(struct ngd_group *group)
{
    ngd_comm_destroy(group->comm);
    ngd_cond_fini(&group->idle);
    ngd_mutex_fini(&group->lock);
    ngd_free(group);
}

ngd_status_t ngd_group_create(struct ngd_sched *sched, const struct ngd_group_params *params,
                              struct ngd_group **group_p, struct ngd_diag *diag)
{
    struct ngd_queue *queues[NGD_GROUP_MAX_RANKS];
    struct ngd_comm_params comm;
    struct ngd_group *group;
    ngd_status_t status = check_group_params(params, diag);

    if (status == NGD_OK)
        status = find_queues(sched, params, queues, diag);
    if (status)
        return status;
    group = new_group(sched, params, queues);
    if (!group)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for group \"%.64s\"", params->name);
    ngd_comm_params_init(&comm);
    comm.name = params->name;
    comm.devices = params->devices;
    comm.n = params->n;
    comm.span = params->span;
    if (params->time_limit)
        comm.time_limit = params->time_limit;
    status = ngd_comm_create(&comm, &group->comm, diag);
    if (status) {
        group_free(group);
        return status;
    }
    *group_p = group;
    return NGD_OK;
}

struct ngd_group *ngd_group_ref(struct ngd_group *group)
{
    atomic_fetch_add_explicit(&group->refs, 1, memory_order_relaxed);
    return group;
}

struct ngd_group *ngd_group_unref(struct ngd_group *group)
{
    if (group && atomic_fetch_sub_explicit(&group->refs, 1, memory_order_acq_rel) == 1)
        group_free(group);
    return NULL;
}

/* ---- asking ------------------------------------------------------------------------------------------- */

const char *ngd_group_name(const struct ngd_group *group)
{
    return ngd_comm_name(group->comm);
}

uint32_t ngd_group_size(const struct ngd_group *group)
{
    return group->n;
}

uint32_t ngd_group_first(const struct ngd_group *group)
{
    return ngd_comm_first(group->comm);
}

uint32_t ngd_group_ranks(const struct ngd_group *group)
{
    return ngd_comm_size(group->comm);
}

struct ngd_device *ngd_group_device(const struct ngd_group *group, uint32_t i)
{
    return group->queues[i]->dev;
}

int ngd_group_rank_of(const struct ngd_group *group, const struct ngd_queue *queue)
{
    const int rank = ngd_comm_rank(group->comm, queue->dev);

    return rank < 0 ? -1 : rank - (int)ngd_comm_first(group->comm);
}

void ngd_group_stats(struct ngd_group *group, struct ngd_group_stats *stats_p)
{
    stats_p->replays = atomic_load_explicit(&group->replays, memory_order_relaxed);
    stats_p->resets = atomic_load_explicit(&group->resets, memory_order_relaxed);
    ngd_mutex_lock(&group->lock);
    stats_p->closed = group->closed;
    ngd_mutex_unlock(&group->lock);
}

/* ---- whose turn it is --------------------------------------------------------------------------------- */

static void close_locked(struct ngd_group *group, ngd_status_t status, const char *why) NGD_REQUIRES(group->lock)
{
    ngd_diag_set(&group->closed, status,
                 "group \"%.64s\" is closed: %.400s; what its graphs have on its devices stays until they are "
                 "released, and a new group has to be made",
                 ngd_group_name(group), why);
}

/* Closes the group if one of its devices has failed: what its ranks computed together cannot be had without it. */
static void look_at_devices_locked(struct ngd_group *group) NGD_REQUIRES(group->lock)
{
    char why[200];

    for (uint32_t i = 0; i < group->n && !group->closed.status; i++) {
        if (atomic_load_explicit(&group->queues[i]->healthy, memory_order_relaxed))
            continue;
        snprintf(why, sizeof(why), "device %.64s, its rank %u, has failed and does not recover",
                 group->queues[i]->dev_name, ngd_group_first(group) + i);
        close_locked(group, NGD_ERR_DEVICE_LOST, why);
    }
}

static ngd_status_t mend_group(struct ngd_group *group, struct ngd_diag *why)
{
    static struct ngd_log_limit limit;

    if (ngd_comm_status(group->comm, why) == NGD_OK)
        return NGD_OK;
    ngd_log_limited(&limit, NGD_LOG_WARNING, "scheduler", "reset of a group after a failure: %s", why->text);
    atomic_fetch_add_explicit(&group->resets, 1, memory_order_relaxed);
    return ngd_comm_reset(group->comm, why);
}

/*
 * Returns true unless the group is closed. A closed group is not reset: the reset would wait for the device that does
 * not answer.
 */
static bool group_is_open(struct ngd_group *group)
{
    bool open;

    ngd_mutex_lock(&group->lock);
    look_at_devices_locked(group);
    open = !group->closed.status;
    ngd_mutex_unlock(&group->lock);
    return open;
}

/* A device of the group that is busy with another one's communicator is not its fault: the next replay tries again. */
static ngd_status_t mend_or_close(struct ngd_group *group, struct ngd_diag *why)
{
    ngd_status_t status = group_is_open(group) ? mend_group(group, why) : NGD_OK;

    ngd_mutex_lock(&group->lock);
    group->unmended = status == NGD_ERR_BUSY;
    if (status && !group->unmended && !group->closed.status)
        close_locked(group, status, why->text);
    ngd_mutex_unlock(&group->lock);
    return status;
}

static void let_next_in(struct ngd_group *group)
{
    ngd_mutex_lock(&group->lock);
    group->busy = false;
    ngd_cond_signal(&group->idle);
    ngd_mutex_unlock(&group->lock);
}

ngd_status_t ngd_group_enter(struct ngd_group *group, struct ngd_diag *diag)
{
    ngd_status_t status;
    bool unmended;

    ngd_mutex_lock(&group->lock);
    while (group->busy)
        ngd_cond_wait(&group->idle, &group->lock);
    look_at_devices_locked(group);
    status = group->closed.status;
    if (status)
        *diag = group->closed;
    group->busy = !status;
    unmended = group->unmended;
    ngd_mutex_unlock(&group->lock);
    if (status || !unmended)
        return status;
    status = mend_or_close(group, diag);
    if (status)
        let_next_in(group);
    return status;
}

void ngd_group_leave(struct ngd_group *group)
{
    struct ngd_diag why = {0};

    (void)mend_or_close(group, &why);
    let_next_in(group);
}
