/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handle table: an array of slots that grows to `max`, with a queue of free ones.
 *
 * A slot's generation is the one of its present id, or of its next id while it is free; removing an id
 * raises it. All slots start at the table's first generation. So a slot has given out generation g
 * exactly if (g - first) < (slot's - first), or they are equal and the slot is in use. The slot that has
 * been free longest is reused first, which keeps generations low and stale ids recognisable for long. A
 * slot whose 2^32 generations are used up is not reused.
 */
#include "base/handle.h"
#include "base/mem.h"
#include <sys/random.h>
#include <time.h>

#define NO_SLOT UINT32_MAX

struct slot {
    void *obj; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

struct ngd_handle_table {
    struct slot *slots;
    uint32_t n;     /* slots that were used at least once */
    uint32_t cap;   /* slots allocated */
    uint32_t max;   /* most ids at a time */
    uint32_t count; /* ids at present */
    uint32_t first_generation;
    uint32_t free_head, free_tail;
};

ngd_status_t ngd_handle_table_create(uint32_t max, struct ngd_handle_table **table_p)
{
    struct ngd_handle_table *table = NGD_NEW(struct ngd_handle_table);

    if (!table)
        return NGD_ERR_NO_MEMORY;
    table->max = max < NO_SLOT - 1 ? max : NO_SLOT - 1;
    table->free_head = table->free_tail = NO_SLOT;
    /* The start is random so that ids of an earlier daemon are stale or unknown here and name no other
     * object. It need not be secret, so the clock is good enough early in boot. */
    if (getrandom(&table->first_generation, sizeof(table->first_generation), GRND_NONBLOCK) !=
        (ssize_t)sizeof(table->first_generation)) {
        struct timespec ts;

        clock_gettime(CLOCK_REALTIME, &ts);
        table->first_generation = (uint32_t)ts.tv_sec * 2654435761u ^ (uint32_t)ts.tv_nsec;
    }
    *table_p = table;
    return NGD_OK;
}

void ngd_handle_table_destroy(struct ngd_handle_table *table)
{
    if (!table)
        return;
    ngd_free(table->slots);
    ngd_free(table);
}

static ngd_status_t grow_handles(struct ngd_handle_table *table)
{
    uint64_t cap = table->cap ? (uint64_t)table->cap * 2 : 16;
    struct slot *slots;

    if (cap > NO_SLOT - 1)
        cap = NO_SLOT - 1;
    if (cap <= table->cap)
        return NGD_ERR_RESOURCE_EXHAUSTED;
    slots = ngd_reallocarray(table->slots, cap, sizeof(*slots));
    if (!slots)
        return NGD_ERR_NO_MEMORY;
    table->slots = slots;
    table->cap = (uint32_t)cap;
    return NGD_OK;
}

ngd_status_t ngd_handle_add(struct ngd_handle_table *table, void *obj, uint64_t *id_p)
{
    ngd_status_t status;
    uint32_t at;

    if (!obj)
        return NGD_ERR_INVALID_ARGUMENT;
    if (table->count >= table->max)
        return NGD_ERR_RESOURCE_EXHAUSTED;
    if (table->free_head != NO_SLOT) {
        at = table->free_head;
        table->free_head = table->slots[at].next_free;
        if (table->free_head == NO_SLOT)
            table->free_tail = NO_SLOT;
    } else {
        if (table->n == table->cap) {
            status = grow_handles(table);
            if (status != NGD_OK)
                return status;
        }
        at = table->n++;
        table->slots[at].generation = table->first_generation;
    }
    table->slots[at].obj = obj;
    table->slots[at].next_free = NO_SLOT;
    table->count++;
    *id_p = (uint64_t)table->slots[at].generation << 32 | (at + 1);
    return NGD_OK;
}

static ngd_status_t find_handle(const struct ngd_handle_table *table, uint64_t id, uint32_t *at_p)
{
    uint32_t low = (uint32_t)id, generation = (uint32_t)(id >> 32);
    const struct slot *slot;

    if (low == 0 || low > table->n)
        return NGD_ERR_UNKNOWN_ID;
    slot = &table->slots[low - 1];
    if (slot->obj && slot->generation == generation) {
        *at_p = low - 1;
        return NGD_OK;
    }
    if (generation - table->first_generation < slot->generation - table->first_generation)
        return NGD_ERR_STALE_ID;
    return NGD_ERR_UNKNOWN_ID;
}

/* ---- ids of another process ---- */

struct ngd_handle_origin ngd_handle_origin(const struct ngd_handle_table *table)
{
    return (struct ngd_handle_origin){.generation = table->first_generation, .slots = table->n};
}

ngd_status_t ngd_handle_begin_at(struct ngd_handle_table *table, struct ngd_handle_origin origin)
{
    ngd_status_t status = origin.slots <= table->max && table->n == 0 ? NGD_OK : NGD_ERR_INVALID_ARGUMENT;

    while (status == NGD_OK && table->cap < origin.slots)
        status = grow_handles(table);
    if (status != NGD_OK)
        return status;
    table->first_generation = origin.generation;
    for (; table->n < origin.slots; table->n++) /* used up */
        table->slots[table->n] = (struct slot){.generation = origin.generation - 1, .next_free = NO_SLOT};
    return NGD_OK;
}

ngd_status_t ngd_handle_put(struct ngd_handle_table *table, void *obj, uint64_t id)
{
    const uint32_t at = (uint32_t)id - 1, generation = (uint32_t)(id >> 32);

    if (at >= table->n || table->slots[at].obj || generation == table->first_generation - 1 || !obj)
        return NGD_ERR_INVALID_ARGUMENT;
    table->slots[at].obj = obj;
    table->slots[at].generation = generation;
    table->count++;
    return NGD_OK;
}

ngd_status_t ngd_handle_get(const struct ngd_handle_table *table, uint64_t id, void **obj_p)
{
    uint32_t at;
    ngd_status_t status = find_handle(table, id, &at);

    if (status == NGD_OK)
        *obj_p = table->slots[at].obj;
    return status;
}

ngd_status_t ngd_handle_remove(struct ngd_handle_table *table, uint64_t id)
{
    uint32_t at;
    ngd_status_t status = find_handle(table, id, &at);
    struct slot *slot;

    if (status != NGD_OK)
        return status;
    slot = &table->slots[at];
    slot->obj = NULL;
    slot->generation++;
    table->count--;
    if (slot->generation - table->first_generation == UINT32_MAX)
        return NGD_OK; /* the slot's generations are used up */
    if (table->free_tail == NO_SLOT)
        table->free_head = at;
    else
        table->slots[table->free_tail].next_free = at;
    table->free_tail = at;
    return NGD_OK;
}

uint32_t ngd_handle_count(const struct ngd_handle_table *table)
{
    return table->count;
}

bool ngd_handle_next(const struct ngd_handle_table *table, uint32_t *cursor, uint64_t *id_p, void **obj_p)
{
    for (uint32_t at = *cursor; at < table->n; at++) {
        if (table->slots[at].obj) {
            *id_p = (uint64_t)table->slots[at].generation << 32 | (at + 1);
            *obj_p = table->slots[at].obj;
            *cursor = at + 1;
            return true;
        }
    }
    *cursor = table->n;
    return false;
}
