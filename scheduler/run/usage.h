/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_USAGE_H
#define NGD_SCHEDULER_RUN_USAGE_H

/*
 * Device time used by one session. It is only counted; decisions use the accounts of shares. If several requests divide
 * a replay, each is charged its part (ngd_usage_part).
 *
 * Threads: any. Memory: reference counted, since a sequence may outlive its session for the length of a replay.
 */
#include "base/clock.h"
#include "base/mem.h"
#include <stdatomic.h>

struct ngd_usage {
    _Atomic uint32_t refs;
    _Atomic int64_t time;  /* device time, ns */
    _Atomic uint64_t runs; /* number of replays, chunks of prompts, and steps */
};

/* NULL: out of memory. */
static inline struct ngd_usage *ngd_usage_create(void)
{
    struct ngd_usage *usage = NGD_NEW(struct ngd_usage);

    if (usage)
        usage->refs = 1;
    return usage;
}

static inline struct ngd_usage *ngd_usage_ref(struct ngd_usage *usage)
{
    if (usage)
        atomic_fetch_add_explicit(&usage->refs, 1, memory_order_relaxed);
    return usage;
}

static inline struct ngd_usage *ngd_usage_unref(struct ngd_usage *usage) /* returns NULL; NULL is fine */
{
    if (usage && atomic_fetch_sub_explicit(&usage->refs, 1, memory_order_acq_rel) == 1)
        ngd_free(usage);
    return NULL;
}

/*
 * The part of `time` that `n` of `all` rows take, after `from` rows. The parts of all rows sum to `time`: rounded one
 * by one, they would lose a little with each replay. 0 <= from <= from + n <= all, 0 < all < 2^31.
 */
static inline ngd_nsec_t ngd_usage_part(ngd_nsec_t time, int64_t from, int64_t n, int64_t all)
{
    const ngd_nsec_t each = time / all, rest = time % all;

    return each * n + rest * (from + n) / all - rest * from / all;
}

static inline void ngd_usage_add(struct ngd_usage *usage, ngd_nsec_t time) /* NULL is fine */
{
    if (!usage)
        return;
    atomic_fetch_add_explicit(&usage->time, time, memory_order_relaxed);
    atomic_fetch_add_explicit(&usage->runs, 1, memory_order_relaxed);
}

#endif
