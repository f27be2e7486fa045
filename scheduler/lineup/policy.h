/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_POLICY_H
#define NGD_SCHEDULER_LINEUP_POLICY_H

/*
 * Scheduling policies: in which order the items of a device's run queue are taken. One file and one row of
 * policies.def each. An item is a replay request, or a model with sequences that wait for a step.
 *
 * Threads: all calls on one state are made under the queue's lock (rank QUEUE): a policy takes no lock of its own,
 * calls nothing back, and does not allocate but in create. Time is given to it, so that tests need not wait.
 * Memory: items are borrowed while they are queued.
 */
#include "base/clock.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdint.h>

struct ngd_sched_item;
struct ngd_merge;
struct ngd_share;
struct ngd_slot;

/* Smaller is more urgent. */
typedef enum ngd_priority { NGD_PRIORITY_HIGH, NGD_PRIORITY_NORMAL, NGD_PRIORITY_LOW, NGD_PRIORITIES } ngd_priority_t;

/* A class that waits counts as one more urgent after so long. */
#define NGD_PRIORITY_AGE_STEP (100 * NGD_MSEC)

/*
 * Returns the class to serve next: the most urgent one that waits. A class that has waited for `step` since it was last
 * served counts as one more urgent, after two steps as two. So no class waits for ever, and a long queue of a less
 * urgent class overtakes nothing: the class ages, not its items. Of two that count the same, the one that was served
 * longer ago goes first. waiting: bit c is set if class c has items. Returns -1 if none has.
 */
int ngd_class_next(const ngd_nsec_t served[NGD_PRIORITIES], unsigned waiting, ngd_nsec_t step, ngd_nsec_t now);

#define NGD_SLOTS_MAX      64 /* stream slots of a device */
#define NGD_WEIGHT_MAX     1000
#define NGD_WEIGHT_DEFAULT 100

/* What one identity waits for, and has had, on one device. Its owner keeps it while items name it. */
struct ngd_account {
    struct ngd_share *share; /* its owner; NULL in tests of policies */
    _Atomic uint32_t weight; /* 1..NGD_WEIGHT_MAX: its part of the device's time, beside others' weights */
    _Atomic int64_t used;    /* device time, nanoseconds */
    struct {
        uint32_t rate;     /* device time that it may have per 100 of time; 0: no bound */
        int64_t allowance; /* device time that it may have, at the time `at` */
        ngd_nsec_t at;
        _Atomic int64_t open_at;              /* when it may have more */
        ngd_nsec_t queued;                    /* expected device time of all its items */
        struct ngd_heap held[NGD_PRIORITIES]; /* items that wait for it to open */
        ngd_nsec_t served[NGD_PRIORITIES];    /* when the class was last served, or began to wait */
        uint32_t n_held;
        struct ngd_heap_node node;     /* in the caps' heap */
        struct ngd_sched_item *let_go; /* the one of them that the policy has */
        ngd_nsec_t since;              /* something has been held, or since it was last noted; 0: nothing is */
    } cap;                             /* cap.c */
    /* The policy's. */
    int64_t vtime; /* device time over weight; who has least is next */
    struct {
        struct ngd_heap items;
        struct ngd_heap_node node; /* in the policy's heap of accounts, while there are items */
        struct ngd_list link;      /* and in its list of them */
        ngd_nsec_t cost;           /* expected device time of the items */
    } classes[NGD_PRIORITIES];
};
void ngd_account_init(struct ngd_account *account, uint32_t weight);

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
    bool uncapped;       /* taken though its account's cap is reached: a model, that others wait for too */
    bool held;           /* cap.c */
    struct ngd_account *account;
    ngd_priority_t priority;
    ngd_nsec_t cost;           /* expected device time; 0 = unknown */
    ngd_nsec_t doubt;          /* by how much it is wrong, on average */
    struct ngd_heap_node node; /* the policy's while queued, as link */
    uint64_t serial;           /* the policy's: order of arrival */
    uint64_t laid;             /* the policy's: the last look at what would be that has laid it out */
    ngd_nsec_t foretold;       /* when it would end, by that */
    int64_t turn;              /* the policy's: virtual time at which it will be taken, as known when it was pushed */
    /* Of replays that may run with others of their kind (merge.h); under the queue's lock. */
    struct ngd_merge *merge;    /* NULL: it runs alone */
    int64_t rows;               /* that it brings */
    struct ngd_list merge_link; /* among those that wait, or among the mates of the one that was taken */
    struct ngd_list mates;      /* of the one that was taken: those that run with it */
    bool merge_running;         /* it is counted as running there */
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
    /*
     * Optional: an account has had so much more device time than the costs of its popped items said; may be negative.
     */
    void (*charge)(void *state, struct ngd_account *account, ngd_nsec_t more);
    /*
     * Optional: the virtual time at which an item of this account and class would be taken, were it pushed now. Of two
     * items of one class the one with the lesser turn is taken first. Without it: in the order in which they come.
     */
    int64_t (*turn)(const void *state, const struct ngd_account *account, ngd_priority_t priority);
    /* Required. Device time of what is queued and would be taken before an item like this one, were it pushed now. */
    ngd_nsec_t (*ahead)(void *state, const struct ngd_sched_item *item);
    /*
     * Optional: by how much an item with a deadline and a known cost, were it pushed now, would miss that or make
     * another one miss; 0 or less: it fits. Without it `ahead` decides. left, n: as in ngd_sched_foretell. The item is
     * as it was when this returns.
     */
    ngd_nsec_t (*late)(void *state, struct ngd_sched_item *item, ngd_nsec_t now, const ngd_nsec_t *left, uint32_t n);
};

/* By how much the item would be late, as the policy foretells it; 0 or less: in time. */
ngd_nsec_t ngd_sched_late(const struct ngd_sched_policy *policy, void *state, struct ngd_sched_item *item,
                          ngd_nsec_t now, const ngd_nsec_t *left, uint32_t n);

/*
 * How long from now until an item of that cost, behind `ahead` of queued work, has run on one of n slots, of which slot
 * i is busy for left[i] more.
 */
ngd_nsec_t ngd_sched_foretell(ngd_nsec_t ahead, const ngd_nsec_t *left, uint32_t n, ngd_nsec_t cost);

/* NULL = none of that name. */
const struct ngd_sched_policy *ngd_sched_policy_find(const char *name);
/* All policies, NULL terminated, in the order of policies.def. */
const struct ngd_sched_policy *const *ngd_sched_policies(void);

#endif
