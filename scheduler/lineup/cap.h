/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_CAP_H
#define NGD_SCHEDULER_LINEUP_CAP_H

/*
 * Caps: accounts that may have only so much of a device's time. A run queue's items pass here before its policy sees
 * them; those that their account's cap does not allow now are held back, though the device be idle meanwhile.
 *
 *   cap       an account earns `rate` of device time per 100 of time, and can save up what it earns in NGD_CAP_BURST.
 *             What its items are expected to take is spent when they are taken, and put right when they have run. It is
 *             open while it has something left; so over any time t it gets at most rate * (t + NGD_CAP_BURST), and what
 *             its last item before it closed took too much, which it earns before it opens again
 *   held      items of a closed account. When the account opens, one at a time goes to the policy, so that a long queue
 *             is not moved there and back: the most urgent class with age (ngd_class_next; a step is what the account
 *             needs to earn NGD_PRIORITY_AGE_STEP), in it the earliest deadline, then the oldest. An item without a
 *             deadline counts as one that is due NGD_CAP_PATIENCE after it came, so that none waits for ever
 *
 * Threads: all calls are made under the run queue's lock, as those of the policy; ngd_cap_open_at may be called by
 * anyone. Time is given. Memory: items and accounts are borrowed while items are queued. Nothing is allocated.
 */
#include "scheduler/lineup/policy.h"

#define NGD_CAP_BURST    (100 * NGD_MSEC)
#define NGD_CAP_PATIENCE (10 * NGD_SEC)

struct ngd_caps {
    const struct ngd_sched_policy *policy;
    void *state;
    struct ngd_heap closed; /* accounts whose first item waits for them to open, the first one to do so first */
    uint32_t n_held;        /* items */
    bool stopping;          /* nothing is held any more */
    uint64_t serial;
    /* Told in pieces for how long something of the account was held; NULL: nobody is. */
    void (*note_held)(struct ngd_account *account, ngd_nsec_t time);
};
void ngd_caps_init(struct ngd_caps *caps, const struct ngd_sched_policy *policy, void *state);

/* As the policy's functions of these names. */
void ngd_caps_push(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now);
struct ngd_sched_item *ngd_caps_pop(struct ngd_caps *caps, ngd_nsec_t now); /* NULL: nothing, or nothing now */
void ngd_caps_remove(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now);
void ngd_caps_charge(struct ngd_caps *caps, struct ngd_account *account, ngd_nsec_t more, ngd_nsec_t now);
/* As ngd_sched_late: what the cap allows only later is late. */
ngd_nsec_t ngd_caps_late(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now, const ngd_nsec_t *left,
                         uint32_t n);
/* Would the item be held, were it to run now without having been queued? */
bool ngd_caps_hold(const struct ngd_caps *caps, const struct ngd_sched_item *item, ngd_nsec_t now);
/* When the next held item can be taken; NGD_NSEC_NEVER: none is held. */
ngd_nsec_t ngd_caps_next(const struct ngd_caps *caps);
/* From now on the account has this rate; 0: no cap. */
void ngd_caps_set(struct ngd_caps *caps, struct ngd_account *account, uint32_t rate, ngd_nsec_t now);

/* When the account may have more; what is not later than now means now. */
static inline ngd_nsec_t ngd_cap_open_at(const struct ngd_account *account)
{
    return atomic_load_explicit(&account->cap.open_at, memory_order_relaxed);
}

#endif
