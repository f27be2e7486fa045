/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MERGE_H
#define NGD_SCHEDULER_MERGE_H

/*
 * Replays that run together: requests for one graph with a batch symbol (graphs/graph_batch.c) and with the same
 * buffers, from whichever clients, that wait when a slot becomes free.
 *
 * The policy decides who is taken, as ever; those that may join the one that was taken, its mates, are taken out of the
 * queue with it, as many as fit in the largest bucket that is captured. Their rows are put behind one another in the
 * slot's area, replayed as if they were one request, and taken apart again. Each request keeps what is its own: its
 * place in its order, its deadline and cancellation until it is taken, its answer, and its part of the device time,
 * which goes by rows. Mates are of the priority of who was taken, or more urgent, so that nobody waits for the less
 * urgent; who has a deadline takes only mates that have one.
 *
 * Bits are those of a replay alone: a bucket for which the device would compute in another way (wide_rows) than for a
 * member's own is not used.
 *
 * A lone request finds nobody to join, and runs as it always did, straight from its message and into its answer.
 *
 * Threads: what says so under the queue's lock of the graph's device. Memory: counted; each binding has a reference,
 * and so have requests, through theirs.
 */
#include "scheduler/linger.h"
#include "scheduler/program_int.h"

struct ngd_merge {
    _Atomic uint32_t refs;
    struct ngd_program *prog; /* borrowed from the bindings */
    uint32_t symbol;
    _Atomic uint32_t running; /* requests that a slot has, not answered yet */
    /* Under the queue's lock: */
    struct ngd_list waiting[NGD_PRIORITIES];
    uint32_t n_waiting;
    int64_t rows; /* of those */
    struct ngd_linger linger;
    int64_t reach; /* rows that could run together when more were there last; INT64_MAX: as many as the graph takes */
    ngd_nsec_t asked; /* when a bucket was last found missing */
    /* The capture of a larger bucket, one at a time. */
    _Atomic bool wanted;    /* by who took requests; the worker has yet to ask for it */
    _Atomic bool capturing; /* until the capture thread is through with it; key is its own meanwhile */
    struct ngd_key key;
    struct ngd_capture_job job;
};

/* Where a slot puts the rows together; made when it first has some, and grown when an executable needs more. */
struct ngd_merge_area;
void ngd_merge_area_destroy(struct ngd_merge_area *area);

/* Of a new binding: NULL when the program's replays run alone, or there is no memory. */
struct ngd_merge *ngd_merge_create(struct ngd_program *prog);
struct ngd_merge *ngd_merge_ref(struct ngd_merge *m); /* NULL is fine */
/* Before the binding gives its program back. */
struct ngd_merge *ngd_merge_unref(struct ngd_merge *m); /* returns NULL; NULL is fine */

/* ---- by the queue, under its lock; of items that have a merge ---- */

void ngd_merge_enter(struct ngd_sched_item *item, ngd_nsec_t now);
void ngd_merge_leave(struct ngd_sched_item *item);
/* Shall the worker wait for more before it takes anything? *until_p: how long at most. */
bool ngd_merge_waits(struct ngd_queue *queue, ngd_nsec_t now, ngd_nsec_t *until_p) NGD_REQUIRES(queue->lock);
/* The same of a request that finds its device idle. */
bool ngd_merge_wants_company(const struct ngd_sched_item *item);
/* The item was taken (and left) to run: its mates are taken too. The expected time of the replay; 0: not known. */
ngd_nsec_t ngd_merge_take(struct ngd_queue *queue, struct ngd_sched_item *item, ngd_nsec_t now)
    NGD_REQUIRES(queue->lock);
/* It runs on the thread that brought it. */
void ngd_merge_take_inline(struct ngd_sched_item *item);

/* ---- by the slot's owner ---- */

/* Asks for the capture that was found missing, if one was. */
void ngd_merge_ask(struct ngd_merge *m);
/* Runs a request with its mates; all of them are answered. */
void ngd_merge_run(struct ngd_request *lead, struct ngd_slot *slot);
/* Before an answer. */
static inline void ngd_merge_ended(struct ngd_sched_item *item)
{
    if (!item->merge_running)
        return;
    item->merge_running = false;
    atomic_fetch_sub_explicit(&item->merge->running, 1, memory_order_relaxed);
}

/* The most rows that an executable of the same graph may be planned for so that each row keeps its bits. */
int64_t ngd_merge_rows_limit(const struct ngd_program *prog, const struct ngd_plan *plan);

#endif
