/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_LINEUP_H
#define NGD_SCHEDULER_LINEUP_LINEUP_H

/*
 * What waits for one device, and what of it is next: a policy's items behind the caps, and which of them run together.
 *
 * Knows no clock, thread or device: the run queue (queue.c, worker.c) has one under its lock, the simulator (bench/sim)
 * one for each device of its own. Nothing is allocated but in init.
 */
#include "scheduler/lineup/cap.h"

struct ngd_lineup {
    const struct ngd_sched_policy *policy;
    void *state; /* the policy's */
    struct ngd_caps caps;
    uint32_t depth;            /* items */
    struct ngd_merge *merging; /* of the newest item that has one, while somebody refers to it */
    ngd_nsec_t lingers_until;  /* a slot waits for more of those so long; 0: none does. Who waits no longer clears it */
};
ngd_status_t ngd_lineup_init(struct ngd_lineup *lineup, const struct ngd_sched_policy *policy);
void ngd_lineup_fini(struct ngd_lineup *lineup); /* nothing is queued any more */

void ngd_lineup_push(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now);
void ngd_lineup_remove(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now);
/*
 * The item that a free slot takes now, with those that run with it in its list of mates; *until_p is when it is
 * expected to end. NULL: none, or none before *until_p (NGD_NSEC_NEVER: until something changes), since a cap holds
 * what there is, or since it is worth waiting for what could run with it.
 */
struct ngd_sched_item *ngd_lineup_take(struct ngd_lineup *lineup, ngd_nsec_t now, ngd_nsec_t *until_p);
/*
 * By how much the item, were it pushed now, is expected to miss its deadline or make others miss theirs; 0 or less: it
 * fits. left, n: as in ngd_sched_foretell. The item is as it was when this returns.
 */
ngd_nsec_t ngd_lineup_late(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now,
                           const ngd_nsec_t *left, uint32_t n);
/* A slot that lingers is left to it, unless it has to go earlier now than it is going to. */
bool ngd_lineup_goes_on_lingering(struct ngd_lineup *lineup, ngd_nsec_t now);

#endif
