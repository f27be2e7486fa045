/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_ESTIMATE_H
#define NGD_SCHEDULER_LINEUP_ESTIMATE_H

/*
 * Estimates of an executable's run time and of the error of that estimate: moving averages over about eight runs, in
 * ns. One outlier cannot spoil them, however long: a virtual machine may halt during a run, or the clock may jump.
 */
#include "base/clock.h"
#include <stdint.h>

#define NGD_ESTIMATE_KNOWN 3 /* runs before an estimate counts; the first ones meet cold caches */
#define NGD_ESTIMATE_SURE  2 /* deviations of margin in what is promised */

/* Limits one run to eight times the estimate. If runs have really become slower, the estimate follows in a few runs. */
static inline ngd_nsec_t ngd_estimate_clip(ngd_nsec_t t, ngd_nsec_t expected)
{
    const ngd_nsec_t most = expected < NGD_NSEC_NEVER / 16 ? 8 * expected + 10 * NGD_USEC : NGD_NSEC_NEVER;

    return t < most ? t : most;
}

/* Updates the estimate: the shortest of the first runs, then a moving average. runs: number of runs before this one. */
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
 * Halves the estimate after a request was refused only because of its own expected length. What is refused does not
 * run, so a wrong estimate would never be corrected.
 */
static inline void ngd_estimate_give_way(ngd_nsec_t *expected, ngd_nsec_t *doubt)
{
    *expected /= 2;
    *doubt /= 2;
}

#endif
