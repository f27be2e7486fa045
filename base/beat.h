/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_BEAT_H
#define NGD_BASE_BEAT_H

/*
 * Asks a thread whether its loop still runs. The asking thread wakes the other one, which answers once in each turn of
 * its loop. Threads: one thread asks; any thread may answer, and may test whether a question is open.
 */
#include <stdatomic.h>
#include <stdbool.h>

struct ngd_beat {
    _Atomic bool asked; /* true until the question is answered */
};

/* Asks. Returns true if the thread must be woken, false if the previous question is still open. */
static inline bool ngd_beat_ask(struct ngd_beat *beat)
{
    return !atomic_exchange_explicit(&beat->asked, true, memory_order_acq_rel);
}

static inline void ngd_beat_answer(struct ngd_beat *beat)
{
    if (atomic_load_explicit(&beat->asked, memory_order_relaxed))
        atomic_store_explicit(&beat->asked, false, memory_order_release);
}

static inline bool ngd_beat_is_open(const struct ngd_beat *beat)
{
    return atomic_load_explicit(&beat->asked, memory_order_acquire);
}

#endif
