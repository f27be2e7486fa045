/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_CAP_H
#define NGD_SCHEDULER_LINEUP_CAP_H

/*
 * Caps limit the device time of accounts. Items pass the caps before the policy sees them. An item whose account has
 * used up its allowance is held, even while the device is idle.
 *
 * Cap: a token bucket. An account earns `rate` of device time per 100 of time, and saves up at most what it earns in
 * NGD_CAP_BURST. The expected cost of an item is spent when it is taken, and corrected when it has run. An account is
 * open while its allowance is positive. So in any time t it gets at most rate * (t + NGD_CAP_BURST), plus what its last
 * item before it closed took too much; it earns that before it opens again.
 *
 * Held items: items of a closed account. When the account opens, it passes them to the policy one at a time, so that a
 * long queue is not moved there and back. The most urgent class goes first, with ageing (ngd_class_next; a step is what
 * the account needs to earn NGD_PRIORITY_AGE_STEP). Within a class the earliest deadline goes first, then the oldest
 * item. An item without a deadline counts as due NGD_CAP_PATIENCE after its arrival, so that none waits forever.
 *
 * Threads: call under the run queue's lock, as the policy; ngd_cap_open_at from any thread. The caller passes the time.
 * Memory: items and accounts are borrowed while items are queued. No call allocates.
 */
#include "scheduler/lineup/policy.h"

#define NGD_CAP_BURST    (100 * NGD_MSEC)
#define NGD_CAP_PATIENCE (10 * NGD_SEC)

struct ngd_caps {
    const struct ngd_sched_policy *policy;
    void *state;
    struct ngd_heap closed; /* accounts that hold items, by the time at which they open */
    uint32_t n_held;        /* items */
    bool stopping;          /* hold no items from now on */
    uint64_t serial;
    /* Optional. Called with each further stretch of time, ns, in which the account had held items. */
    void (*note_held)(struct ngd_account *account, ngd_nsec_t time);
};
void ngd_caps_init(struct ngd_caps *caps, const struct ngd_sched_policy *policy, void *state);

/* These do what the policy's functions of the same names do. */
void ngd_caps_push(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now);
struct ngd_sched_item *ngd_caps_pop(struct ngd_caps *caps, ngd_nsec_t now); /* NULL: nothing may run now */
void ngd_caps_remove(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now);
/* Spends `more` ns of the cap, and leaves the virtual time as it is. charge corrects both. */
void ngd_caps_spend(struct ngd_caps *caps, struct ngd_account *account, ngd_nsec_t more, ngd_nsec_t now);
void ngd_caps_charge(struct ngd_caps *caps, struct ngd_account *account, ngd_nsec_t more, ngd_nsec_t now);
/* As ngd_sched_late; an item that the cap allows only later counts as late. */
ngd_nsec_t ngd_caps_late(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now, const ngd_nsec_t *left,
                         uint32_t n);
/* Returns true if the item would be held if it ran now without having been queued. */
bool ngd_caps_hold(const struct ngd_caps *caps, const struct ngd_sched_item *item, ngd_nsec_t now);
/* Returns when the next held item may be taken; NGD_NSEC_NEVER: none is held. */
ngd_nsec_t ngd_caps_next(const struct ngd_caps *caps);
/* Sets the account's rate; 0: no cap. */
void ngd_caps_set(struct ngd_caps *caps, struct ngd_account *account, uint32_t rate, ngd_nsec_t now);

/* Returns when the account opens; a time that is not later than now means that it is open. */
static inline ngd_nsec_t ngd_cap_open_at(const struct ngd_account *account)
{
    return atomic_load_explicit(&account->cap.open_at, memory_order_relaxed);
}

#endif
