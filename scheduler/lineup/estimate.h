/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_ESTIMATE_H
#define NGD_SCHEDULER_LINEUP_ESTIMATE_H

/*
 * What a run of an executable is expected to take, and how far off that is: moving averages over about eight runs, in
 * nanoseconds. One run cannot spoil them: a virtual machine that was halted during it, or a clock that jumped, make it
 * as long as they like. Pure, so that it is tested without a clock.
 */
#include "base/clock.h"
#include <stdint.h>

#define NGD_ESTIMATE_KNOWN 3 /* runs; the first ones meet cold caches and say little */
#define NGD_ESTIMATE_SURE  2 /* deviations: what is promised allows for so many */

/* A run counts for at most eight times what was expected. What has really become slower is known after some runs. */
static inline ngd_nsec_t ngd_estimate_clip(ngd_nsec_t t, ngd_nsec_t expected)
{
    const ngd_nsec_t most = expected < NGD_NSEC_NEVER / 16 ? 8 * expected + 10 * NGD_USEC : NGD_NSEC_NEVER;

    return t < most ? t : most;
}

/* The shortest of the first runs, then the average. runs: before this one. */
static inline void ngd_estimate_learn(uint32_t runs, ngd_nsec_t t, ngd_nsec_t *expected, ngd_nsec_t *doubt)
{
    const ngd_nsec_t old = *expected;
    ngd_nsec_t off;

    if (runs < NGD_ESTIMATE_KNOWN) {
        *expected = runs == 0 || t < old ? t : old;
        return;
    }
    t = ngd_estimate_clip(t, old);
    *expected = old + (t - old) / 8;
    off = t > old ? t - old : old - t;
    *doubt += (off - *doubt) / 8;
}

/*
 * After a refusal for its own length alone. What is not run teaches nothing, so a wrong estimate would be believed for
 * ever: it gives way, until a run shows what is true.
 */
static inline void ngd_estimate_give_way(ngd_nsec_t *expected, ngd_nsec_t *doubt)
{
    *expected /= 2;
    *doubt /= 2;
}

#endif
