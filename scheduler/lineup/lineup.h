/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_LINEUP_H
#define NGD_SCHEDULER_LINEUP_LINEUP_H

/*
 * The lineup of one device: its waiting items, and which of them runs next. Items pass the caps (cap.h), then the
 * policy (policy.h); merging (merge.h) chooses which of them run together.
 *
 * A lineup knows no clock, thread or device. The run queue has one under its lock (queue.c, worker.c); the simulator
 * (bench/sim) has one for each simulated device. Only init allocates.
 */
#include "scheduler/lineup/cap.h"

struct ngd_lineup {
    const struct ngd_sched_policy *policy;
    void *state; /* the policy's */
    struct ngd_caps caps;
    uint32_t depth;            /* items */
    struct ngd_merge *merging; /* of the newest item that has one; NULL when it is gone */
    ngd_nsec_t lingers_until;  /* a slot waits for mates until then, and clears it; 0: none waits */
};
ngd_status_t ngd_lineup_init(struct ngd_lineup *lineup, const struct ngd_sched_policy *policy);
void ngd_lineup_fini(struct ngd_lineup *lineup); /* no item may be queued */

void ngd_lineup_push(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now);
void ngd_lineup_remove(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now);
/*
 * Returns the item that a free slot takes now, with those that run with it in its list `mates`, and in *until_p when it
 * is expected to end. Returns NULL if there is none before *until_p (NGD_NSEC_NEVER: until something changes): nothing
 * is queued, caps hold all items, or it is worth waiting for mates.
 */
struct ngd_sched_item *ngd_lineup_take(struct ngd_lineup *lineup, ngd_nsec_t now, ngd_nsec_t *until_p);
/*
 * Returns by how many ns the item, if it were pushed now, would miss its deadline or make others miss theirs; 0 or
 * less: it fits. left, n: as in ngd_sched_predict. The item is unchanged when this returns.
 */
ngd_nsec_t ngd_lineup_late(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now,
                           const ngd_nsec_t *left, uint32_t n);
/* Returns true if the slot that waits for mates may go on waiting; false if it must look again at once. */
bool ngd_lineup_goes_on_lingering(struct ngd_lineup *lineup, ngd_nsec_t now);

#endif
