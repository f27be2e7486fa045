/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_POLICY_H
#define NGD_SCHEDULER_POLICY_H

/*
 * Scheduling policies: in which order the items of a device's run queue are taken. One file and one row of
 * policies.def each. An item is a replay request, or a model with sequences that wait for a step.
 *
 * Threads: all calls on one state are made under the queue's lock (rank QUEUE): a policy takes no lock of its own,
 * calls nothing back, and does not allocate in push, pop and remove. Time is given to it, so that tests need not wait.
 * Memory: items are borrowed while they are queued.
 */
#include "base/clock.h"
#include "base/list.h"
#include "base/status.h"

struct ngd_sched_item;
struct ngd_slot;

struct ngd_sched_item_ops {
    /* Required. Takes the item; the calling thread owns the slot until it returns. No lock is held. */
    void (*run)(struct ngd_sched_item *item, struct ngd_slot *slot);
    /* Required. Takes the item: the scheduler stops, answer CANCELLED. No lock is held. */
    void (*abort)(struct ngd_sched_item *item);
};

struct ngd_sched_item {
    struct ngd_list link; /* the policy's while queued */
    const struct ngd_sched_item_ops *ops;
    ngd_nsec_t arrival;
    ngd_nsec_t deadline; /* NGD_NSEC_NEVER */
    bool queued;         /* under the queue's lock */
};
void ngd_sched_item_init(struct ngd_sched_item *item, const struct ngd_sched_item_ops *ops);

struct ngd_sched_policy {
    const char *name;
    /* Required. One state per device queue. */
    ngd_status_t (*create)(void **state_p);
    void (*destroy)(void *state); /* required; nothing is queued any more */
    void (*push)(void *state, struct ngd_sched_item *item, ngd_nsec_t now);
    struct ngd_sched_item *(*pop)(void *state, ngd_nsec_t now); /* NULL: nothing is queued */
    void (*remove)(void *state, struct ngd_sched_item *item);   /* of a queued item */
};

/* NULL = none of that name. */
const struct ngd_sched_policy *ngd_sched_policy_find(const char *name);
/* All policies, NULL terminated, in the order of policies.def. */
const struct ngd_sched_policy *const *ngd_sched_policies(void);

#endif
