/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_BEAT_H
#define NGD_BASE_BEAT_H

/*
 * Asks a thread whether it still goes round its loop. Whoever asks wakes the thread; the thread answers each time that
 * it has come round. Threads: one asks; any may answer and look.
 */
#include <stdatomic.h>
#include <stdbool.h>

struct ngd_beat {
    _Atomic bool asked; /* and not answered */
};

/* True: the thread must be woken. False: the question before is still open. */
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
