/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_RUN_USAGE_H
#define NGD_SCHEDULER_RUN_USAGE_H

/*
 * Device time used by one session. It is only counted; decisions use the accounts of shares. If several requests divide
 * a replay, each is charged its part.
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

static inline void ngd_usage_add(struct ngd_usage *usage, ngd_nsec_t time) /* NULL is fine */
{
    if (!usage)
        return;
    atomic_fetch_add_explicit(&usage->time, time, memory_order_relaxed);
    atomic_fetch_add_explicit(&usage->runs, 1, memory_order_relaxed);
}

#endif
