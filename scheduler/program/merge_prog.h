/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_MERGE_PROG_H
#define NGD_SCHEDULER_PROGRAM_MERGE_PROG_H

/*
 * Replays that run together: requests for one graph with a batch symbol (graphs/graph_batch.c) and with the same
 * buffers, from whichever clients, that wait when a slot becomes free. Which of them do is decided in merge.h; here is
 * what they run as, and how.
 *
 * Their rows are put behind one another in the slot's area, replayed as if they were one request, and taken apart
 * again. Each request keeps what is its own: its place in its order, its deadline and cancellation until it is taken,
 * its answer, and its part of the device time, which goes by rows.
 *
 * Bits are those of a replay alone: a bucket for which the device would compute in another way (wide_rows) than for a
 * member's own is not used.
 *
 * A lone request finds nobody to join, and runs as it always did, straight from its message and into its answer.
 *
 * Threads: what says so under the queue's lock of the graph's device. Memory: counted; each binding has a reference,
 * and so have requests, through theirs.
 */
#include "scheduler/lineup/merge.h"
#include "scheduler/program/program_int.h"

#define NGD_MERGE_KNOWN_MAX 32

struct ngd_merge_prog {
    struct ngd_merge merge; /* under the queue's lock */
    _Atomic uint32_t refs;
    struct ngd_program *prog; /* borrowed from the bindings */
    uint32_t symbol;
    /* Under the queue's lock: */
    ngd_nsec_t asked; /* when a bucket was last found missing */
    struct {
        int64_t planned; /* 0: no row */
        uint64_t kind;   /* of the other symbols */
        ngd_nsec_t cost, doubt;
    } known[NGD_MERGE_KNOWN_MAX]; /* what replays in captured buckets take */
    uint32_t next_known;          /* the row that is used again, when a new one is needed */
    /* The capture of a larger bucket, one at a time. */
    _Atomic bool wanted;    /* by who took requests; the worker has yet to ask for it */
    _Atomic bool capturing; /* until the capture thread is through with it; key is its own meanwhile */
    struct ngd_key key;
    struct ngd_capture_job job;
};

/* Of a new binding: NULL when the program's replays run alone, or there is no memory. */
struct ngd_merge_prog *ngd_merge_prog_create(struct ngd_program *prog);
struct ngd_merge_prog *ngd_merge_prog_ref(struct ngd_merge_prog *m); /* NULL is fine */
/* Before the binding gives its program back. */
struct ngd_merge_prog *ngd_merge_prog_unref(struct ngd_merge_prog *m); /* returns NULL; NULL is fine */

/* Of a request whose executable is known and that may run with others: before it is queued, or foretold. */
void ngd_merge_prog_enrol(struct ngd_merge_prog *m, struct ngd_request *req);

/* ---- by the slot's owner ---- */

/* Asks for the capture that was found missing, if one was. */
void ngd_merge_prog_ask(struct ngd_merge_prog *m);
/* What a replay with x takes, for requests like this one, has changed. Takes the queue's lock. */
void ngd_merge_prog_learn(struct ngd_merge_prog *m, const struct ngd_request *like, const struct ngd_executable *x);
/* The most rows that an executable of the same graph may be planned for so that each row keeps its bits. */
int64_t ngd_merge_rows_limit(const struct ngd_program *prog, const struct ngd_plan *plan);

#endif
