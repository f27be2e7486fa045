/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/lineup/linger.h"

#define AVERAGE_OF  8
#define WORTH(cost) ((cost) / 2) /* longest wait that is worth saving a replay of this cost */
#define FAR(cost)   (2 * (cost)) /* arrivals farther apart on average are not awaited */
#define SKIP_MAX    64           /* a power of two */

void ngd_linger_init(struct ngd_linger *l, ngd_nsec_t limit)
{
    *l = (struct ngd_linger){.limit = limit};
}

void ngd_linger_arrived(struct ngd_linger *l, ngd_nsec_t now, uint32_t under_way)
{
    if (l->last)
        l->gap = l->gap ? l->gap + (now - l->last - l->gap) / AVERAGE_OF : now - l->last;
    l->last = now;
    if (under_way > l->peak)
        l->peak = under_way;
    if (l->since)
        l->joined++;
}

/*
 * Returns the requests to expect: the most at once during the last two replays. So one that misses a turn is expected
 * again.
 */
static uint32_t expected(const struct ngd_linger *l)
{
    return l->peak > l->peak_before ? l->peak : l->peak_before;
}

static ngd_nsec_t longest_wait(const struct ngd_linger *l, ngd_nsec_t cost)
{
    const ngd_nsec_t worth = WORTH(cost);

    return worth < l->limit ? worth : l->limit;
}

bool ngd_linger_wants(const struct ngd_linger *l, uint32_t waiting, ngd_nsec_t cost)
{
    return !l->skip && waiting < expected(l) && longest_wait(l, cost) >= NGD_LINGER_MIN && l->gap <= FAR(cost);
}

ngd_nsec_t ngd_linger_until(struct ngd_linger *l, ngd_nsec_t now, uint32_t waiting, ngd_nsec_t cost, ngd_nsec_t latest)
{
    ngd_nsec_t until;

    if (!ngd_linger_wants(l, waiting, cost))
        return now;
    if (!l->since) {
        l->since = now;
        l->joined = 0;
    }
    until = l->since + longest_wait(l, cost);
    return until < latest ? until : latest;
}

void ngd_linger_left(struct ngd_linger *l)
{
    l->since = 0;
    l->joined = 0;
}

ngd_nsec_t ngd_linger_began(struct ngd_linger *l, ngd_nsec_t now)
{
    const ngd_nsec_t waited = l->since ? now - l->since : 0;

    if (l->since && l->joined) {
        l->vain = 0;
    } else if (l->since && waited > 0) {
        if (1u << l->vain < SKIP_MAX)
            l->vain++;
        l->skip = 1u << l->vain;
    } else if (l->skip) {
        l->skip--;
    }
    l->peak_before = l->peak;
    l->peak = 0;
    l->since = 0;
    l->joined = 0;
    return waited;
}
