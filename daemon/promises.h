/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_PROMISES_H
#define NGD_DAEMON_PROMISES_H

/*
 * Counts changes of what the daemon has promised to keep beyond sessions: kept models, registered patterns. A handover
 * to another daemon seals the promises as it has described them. From then on they are the other daemon's, and a change
 * here would be lost: it is refused.
 *
 * A change is counted under the lock of the table that it changes, before the table changes. So a list that was made
 * after the count was read has all changes of that count.
 * Threads: any.
 */
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ngd_promises {
    _Atomic uint64_t n; /* twice the number of changes, plus 1 while they are sealed */
};

/* Counts a change. DRAINING: they are sealed, and nothing may change. */
static inline ngd_status_t ngd_promises_change(struct ngd_promises *p, struct ngd_diag *diag)
{
    uint64_t n = atomic_load(&p->n);

    do {
        if (n & 1)
            return ngd_diag_set(diag, NGD_ERR_DRAINING,
                                "another daemon is taking over what this one keeps; connect again and repeat the call");
    } while (!atomic_compare_exchange_weak(&p->n, &n, n + 2));
    return NGD_OK;
}

static inline uint64_t ngd_promises_count(struct ngd_promises *p)
{
    return atomic_load(&p->n) & ~(uint64_t)1;
}

/* Seals them if nothing has changed since that count. */
static inline bool ngd_promises_seal(struct ngd_promises *p, uint64_t count)
{
    return atomic_compare_exchange_strong(&p->n, &count, count | 1);
}

static inline void ngd_promises_unseal(struct ngd_promises *p)
{
    atomic_fetch_and(&p->n, ~(uint64_t)1);
}

#endif
