/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_LINGER_H
#define NGD_SCHEDULER_LINEUP_LINGER_H

/*
 * Lingering: how long a replay waits for others that could join it, while its device is free and nothing else is
 * queued.
 *
 * Clients that get their answers together ask again together. If the first of them ran at once, it would run alone, and
 * the others would wait for it. So the first one waits until as many are there as were under way at once lately, but:
 *
 *   - no longer than half of a replay's time, which is what a joint replay saves, and no longer than `limit`;
 *   - not if it was alone lately, or if arrivals are so far apart that none would come in that time;
 *   - not just after waits that no request joined: after the n-th in a row, the next 2^n replays (up to 64) do not
 *     wait.
 *
 * Threads: call under the queue's lock. The caller passes the time.
 */
#include "base/clock.h"
#include <stdbool.h>
#include <stdint.h>

#define NGD_LINGER_LIMIT_DEFAULT (2 * NGD_MSEC)
#define NGD_LINGER_MIN           (20 * NGD_USEC) /* a shorter wait gains less than sleeping and waking cost */

struct ngd_linger {
    ngd_nsec_t limit;           /* 0: never wait */
    ngd_nsec_t last, gap;       /* the last arrival; a moving average of the time between two */
    uint32_t peak, peak_before; /* the most that were under way at once since the last replay began, and before */
    ngd_nsec_t since;           /* since when the waiting replays could have begun; 0: none waits */
    uint32_t joined;            /* arrivals since then */
    uint32_t vain;              /* waits in a row that no request joined, up to log2 of the largest skip */
    uint32_t skip;              /* next replays that do not wait, because of `vain` */
};

void ngd_linger_init(struct ngd_linger *l, ngd_nsec_t limit);
/* Notes an arrival; under_way: requests that wait or run, this one included. */
void ngd_linger_arrived(struct ngd_linger *l, ngd_nsec_t now, uint32_t under_way);
/*
 * Returns the time until which the waiting replays, which could begin now, wait for more; now or earlier: they begin.
 * cost: of one replay, ns; 0 = unknown. latest: when they must begin to meet their deadlines.
 */
ngd_nsec_t ngd_linger_until(struct ngd_linger *l, ngd_nsec_t now, uint32_t waiting, ngd_nsec_t cost, ngd_nsec_t latest);
/* Returns true if a replay that arrives now at an idle device would wait. */
bool ngd_linger_wants(const struct ngd_linger *l, uint32_t waiting, ngd_nsec_t cost);
/* No replay waits any more. */
void ngd_linger_left(struct ngd_linger *l);
/* Notes that a replay begins. Returns how long it has waited for others, ns. */
ngd_nsec_t ngd_linger_began(struct ngd_linger *l, ngd_nsec_t now);

#endif
