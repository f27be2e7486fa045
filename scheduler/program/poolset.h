/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_POOLSET_H
#define NGD_SCHEDULER_PROGRAM_POOLSET_H

/*
 * Pool sets: one pool for each stream slot of a device.
 *
 * Executables of one set never run at the same time in one slot, so they share its pools, and N graphs on S slots need
 * S times the largest. By default a device has one set, the slots' own (NULL stands for it). A graph that must keep
 * apart from the others names a set (use_graph_pool), which all graphs with that name share; with
 * reuse_graph_pool_in_same_fx off each executable has a set to itself. Threads: any. Memory: reference counted; a named
 * set goes with the last program that names it, its device memory too.
 */
#include "devices/device.h"

struct ngd_queue;
struct ngd_poolset;
struct ngd_slot;

/* A set of its own; label says whose, for the holders of the device's memory. */
ngd_status_t ngd_poolset_create(struct ngd_queue *queue, const char *label, struct ngd_payer *payer,
                                struct ngd_poolset **set_p);
/* Finds or makes the set of that name. */
ngd_status_t ngd_poolset_open(struct ngd_queue *queue, const char *name, struct ngd_payer *payer,
                              struct ngd_poolset **set_p);
struct ngd_poolset *ngd_poolset_ref(struct ngd_poolset *set);
struct ngd_poolset *ngd_poolset_unref(struct ngd_poolset *set); /* returns NULL; NULL is fine */
/* The pool in a slot; of the slot's own set for NULL. */
struct ngd_pool *ngd_poolset_pool(struct ngd_poolset *set, const struct ngd_slot *slot);
/* Bytes that the sets of a device hold, the slots' own not counted. */
uint64_t ngd_poolset_bytes_of(struct ngd_queue *queue);

#endif
