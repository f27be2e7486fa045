/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_MERGE_PROG_H
#define NGD_SCHEDULER_PROGRAM_MERGE_PROG_H

/*
 * Joint replays: waiting requests for one graph with a batch symbol (graphs/graph_batch.c) and with the same buffers,
 * from any clients, run as one replay when a slot becomes free. merge.h decides which requests; this file decides which
 * executable they run.
 *
 * Their rows are concatenated in the slot's area, replayed like one request, and separated again. Each request keeps
 * its place in its order, its deadline and cancellation until it is taken, its answer, and its part of the device time,
 * which is by rows.
 *
 * Each row has the bits of a replay alone: a bucket is not used if the device would compute it in another way
 * (wide_rows) than the bucket of a member alone.
 *
 * A lone request runs without these copies, from its message to its answer.
 *
 * Threads: under the queue's lock of the graph's device, where noted. Memory: reference counted; each binding has a
 * reference, and so have requests, through their bindings.
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
    ngd_nsec_t asked; /* when a capture was last wanted */
    struct {
        int64_t planned; /* bucket; 0: the entry is free */
        uint64_t kind;   /* hash of the other symbols */
        ngd_nsec_t cost, doubt;
    } known[NGD_MERGE_KNOWN_MAX]; /* device times of replays in captured buckets, ns */
    uint32_t next_known;          /* the entry to replace next */
    /* The capture of a larger bucket, one at a time. */
    _Atomic bool wanted;    /* a capture is wanted; the worker has not asked for it yet */
    _Atomic bool capturing; /* until the capture has ended; `key` is the capture thread's meanwhile */
    struct ngd_key key;
    struct ngd_capture_job job;
};

/* Creates a merge for a new binding. NULL: the program's replays run alone, or there is no memory. */
struct ngd_merge_prog *ngd_merge_prog_create(struct ngd_program *prog);
struct ngd_merge_prog *ngd_merge_prog_ref(struct ngd_merge_prog *m); /* NULL is fine */
/* Call before the binding releases its program. */
struct ngd_merge_prog *ngd_merge_prog_unref(struct ngd_merge_prog *m); /* returns NULL; NULL is fine */

/* Lets a request whose executable is known join others. Call before it is queued, and before its end is predicted. */
void ngd_merge_prog_enrol(struct ngd_merge_prog *m, struct ngd_request *req);

/* ---- by the slot's owner ---- */

/* Starts the capture that is wanted, if there is one. */
void ngd_merge_prog_ask(struct ngd_merge_prog *m);
/* Notes the changed expected time of replays of x, for requests like this one. Takes the queue's lock. */
void ngd_merge_prog_learn(struct ngd_merge_prog *m, const struct ngd_request *like, const struct ngd_executable *x);
/* Returns the most rows that an executable of the same graph may be planned for so that each row keeps its bits. */
int64_t ngd_merge_rows_limit(const struct ngd_program *prog, const struct ngd_plan *plan);

#endif
