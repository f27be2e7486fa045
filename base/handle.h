/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_HANDLE_H
#define NGD_BASE_HANDLE_H

/*
 * Table of ids that clients hold: id = generation << 32 | slot + 1, so that a stale id is told from
 * an unknown one and 0 is never an id. Generations start at a random value per table.
 * Threads: the caller synchronises. Memory: borrows the objects.
 */
#include "base/status.h"
#include <stdint.h>

struct ngd_handle_table;

ngd_status_t ngd_handle_table_create(uint32_t max, struct ngd_handle_table **table_p);
void ngd_handle_table_destroy(struct ngd_handle_table *table);
ngd_status_t ngd_handle_add(struct ngd_handle_table *table, void *obj, uint64_t *id_p); /* RESOURCE_EXHAUSTED at max */
/* STALE_ID: the slot was reused or emptied. UNKNOWN_ID: the id was never given out. */
ngd_status_t ngd_handle_get(const struct ngd_handle_table *table, uint64_t id, void **obj_p);
ngd_status_t ngd_handle_remove(struct ngd_handle_table *table, uint64_t id);
uint32_t ngd_handle_count(const struct ngd_handle_table *table);
/*
 * For a table whose ids were given out by another process. begin_at, before the first id, takes what `origin` says of
 * that table: its first generation and how many slots it has used. put enters an object under its id. Slots of the
 * other table that stay empty are never used, so that none of its ids names another object here. INVALID_ARGUMENT: no
 * table gives out such an id, or the slot is taken.
 */
struct ngd_handle_origin {
    uint32_t generation, slots;
};
struct ngd_handle_origin ngd_handle_origin(const struct ngd_handle_table *table);
ngd_status_t ngd_handle_begin_at(struct ngd_handle_table *table, struct ngd_handle_origin origin);
ngd_status_t ngd_handle_put(struct ngd_handle_table *table, void *obj, uint64_t id);
/* Iterates over the ids. Start with *cursor = 0; returns false at the end. */
bool ngd_handle_next(const struct ngd_handle_table *table, uint32_t *cursor, uint64_t *id_p, void **obj_p);

#endif
