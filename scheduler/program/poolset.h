/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_POOLSET_H
#define NGD_SCHEDULER_PROGRAM_POOLSET_H

/*
 * Pool sets: one pool for each stream slot of a device.
 *
 * Executables of one set never run at the same time in one slot, so they share its pools, and N graphs on S slots need
 * S times the largest. By default a device has one set, the slots' own (NULL stands for it). A graph may name a
 * separate set (use_graph_pool), which all graphs with that name share. With reuse_graph_pool_in_same_fx off, each
 * executable has its own set.
 *
 * Threads: any. Memory: reference counted; a named set and its device memory go with the last program that names it.
 */
#include "devices/device.h"

struct ngd_queue;
struct ngd_poolset;
struct ngd_slot;

/* Creates a set that is not shared. label names it among the holders of device memory. */
ngd_status_t ngd_poolset_create(struct ngd_queue *queue, const char *label, struct ngd_payer *payer,
                                struct ngd_poolset **set_p);
/* Finds or makes the payer's set of that name. */
ngd_status_t ngd_poolset_open(struct ngd_queue *queue, const char *name, struct ngd_payer *payer,
                              struct ngd_poolset **set_p);
struct ngd_poolset *ngd_poolset_ref(struct ngd_poolset *set);
struct ngd_poolset *ngd_poolset_unref(struct ngd_poolset *set); /* returns NULL; NULL is fine */
/* Returns the set's pool for a slot; set NULL: the slot's own. */
struct ngd_pool *ngd_poolset_pool(struct ngd_poolset *set, const struct ngd_slot *slot);
/* Returns the bytes that the sets of a device hold, without the slots' own pools. */
uint64_t ngd_poolset_bytes_of(struct ngd_queue *queue);

#endif
