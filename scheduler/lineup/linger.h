/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_LINGER_H
#define NGD_SCHEDULER_LINEUP_LINGER_H

/*
 * How long a replay that others could join waits for them, when its device is free and nothing else wants it.
 *
 * Nobody waits who was alone lately. Where several have been under way at once, as many are expected again: clients
 * that got their answers together ask again together, and who comes first would run alone and let the others wait for
 * it. So the first one waits until they are there, but for no longer than a part of what a replay takes, which is what
 * a joint one saves, nor than `limit`; and not where arrivals are too far apart for one to come in that time. Waits
 * that nobody joined are not repeated at once: after the n-th in a row, 2^n replays begin without one, up to 64.
 *
 * Threads: under the queue's lock. Time is given to it, so tests need not wait.
 */
#include "base/clock.h"
#include <stdbool.h>
#include <stdint.h>

#define NGD_LINGER_LIMIT_DEFAULT (2 * NGD_MSEC)
#define NGD_LINGER_MIN           (20 * NGD_USEC) /* a shorter wait costs more, to sleep and wake, than it gains */

struct ngd_linger {
    ngd_nsec_t limit;           /* 0: never wait */
    ngd_nsec_t last, gap;       /* the last arrival; a moving average of the time between two */
    uint32_t peak, peak_before; /* the most that were under way at once since the last replay began, and before */
    ngd_nsec_t since;           /* when who waits now could have begun; 0: nobody waits */
    uint32_t joined;            /* arrivals since then */
    uint32_t vain;              /* waits in a row that nobody joined; counted no further than they matter */
    uint32_t skip;              /* replays that begin without a wait, for that */
};

void ngd_linger_init(struct ngd_linger *l, ngd_nsec_t limit);
/* A request has come; under_way: that wait or run, with it. */
void ngd_linger_arrived(struct ngd_linger *l, ngd_nsec_t now, uint32_t under_way);
/*
 * Until when those that wait, which could begin now, are to wait for more; now or earlier: they begin. cost: of one
 * replay, 0 = not known. latest: when they must begin for their deadlines.
 */
ngd_nsec_t ngd_linger_until(struct ngd_linger *l, ngd_nsec_t now, uint32_t waiting, ngd_nsec_t cost, ngd_nsec_t latest);
/* Would one that comes now, to an idle device, wait? */
bool ngd_linger_wants(const struct ngd_linger *l, uint32_t waiting, ngd_nsec_t cost);
/* Nobody waits any more. */
void ngd_linger_left(struct ngd_linger *l);
/* A replay begins. How long it has waited for more. */
ngd_nsec_t ngd_linger_began(struct ngd_linger *l, ngd_nsec_t now);

#endif
