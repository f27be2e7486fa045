/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_POLICY_H
#define NGD_SCHEDULER_LINEUP_POLICY_H

/*
 * Scheduling policies: the order in which items leave a device's run queue. Each has a file and a row of policies.def.
 * An item is a replay request, or a model whose sequences wait for a step.
 *
 * Threads: the caller holds the queue's lock (rank QUEUE). A policy takes no lock, makes no callback, and allocates
 * only in create. The caller passes the time, so tests need not wait. Memory: items are borrowed while they are queued.
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

/* A waiting class counts as one step more urgent after this time. */
#define NGD_PRIORITY_AGE_STEP (100 * NGD_MSEC)

/*
 * Returns the class to serve next: the most urgent one that waits. A class that has waited for `step` since it was last
 * served counts as one more urgent, after two steps as two. So no class waits forever, and a long queue of a less
 * urgent class overtakes nothing: the class ages, not its items. Of two that count the same, the one that was served
 * longer ago goes first. waiting: bit c is set if class c has items. Returns -1 if none has.
 */
int ngd_class_next(const ngd_nsec_t served[NGD_PRIORITIES], unsigned waiting, ngd_nsec_t step, ngd_nsec_t now);

#define NGD_SLOTS_MAX      64 /* stream slots of a device */
#define NGD_WEIGHT_MAX     1000
#define NGD_WEIGHT_DEFAULT 100

/* What one identity has queued and has used on one device. Its owner keeps it while items refer to it. */
struct ngd_account {
    struct ngd_share *share; /* its owner; NULL in tests of policies */
    _Atomic uint32_t weight; /* 1..NGD_WEIGHT_MAX: its share of the device's time, relative to others' */
    _Atomic int64_t used;    /* device time, nanoseconds */
    struct {
        uint32_t rate;     /* device time that it may have per 100 of time; 0: no bound */
        int64_t allowance; /* device time that it may have, at the time `at` */
        ngd_nsec_t at;
        _Atomic int64_t open_at;              /* when it may have more */
        ngd_nsec_t queued;                    /* expected device time of all its items */
        struct ngd_heap held[NGD_PRIORITIES]; /* items that wait for the account to open */
        ngd_nsec_t served[NGD_PRIORITIES];    /* when the class was last served, or began to wait */
        uint32_t n_held;
        struct ngd_heap_node node;       /* in the caps' heap */
        struct ngd_sched_item *released; /* the one that was passed to the policy */
        ngd_nsec_t since;                /* since when held time has not been noted; 0: nothing is held */
    } cap;                               /* cap.c */
    /* The policy's: */
    int64_t vtime;     /* virtual time: device time over weight; the account with the least is next */
    int64_t corrected; /* sum of the corrections (`charge`) of vtime */
    struct {
        struct ngd_heap items;
        struct ngd_heap_node node; /* in the policy's heap of accounts, while there are items */
        struct ngd_list link;      /* in its list of the same accounts */
        ngd_nsec_t cost;           /* expected device time of the items */
    } classes[NGD_PRIORITIES];
};
void ngd_account_init(struct ngd_account *account, uint32_t weight);

struct ngd_sched_item_ops {
    /* Required. Runs the item and takes it over; the calling thread owns the slot until this returns. No lock is held.
     */
    void (*run)(struct ngd_sched_item *item, struct ngd_slot *slot);
    /* Required. Takes the item over when the scheduler stops: answer CANCELLED. No lock is held. */
    void (*abort)(struct ngd_sched_item *item);
};

struct ngd_sched_item {
    struct ngd_list link; /* the policy's while queued */
    const struct ngd_sched_item_ops *ops;
    ngd_nsec_t arrival;
    ngd_nsec_t deadline; /* NGD_NSEC_NEVER */
    bool queued;         /* under the queue's lock */
    bool uncapped;       /* its account's cap does not hold it: a model that other accounts wait for too */
    bool held;           /* cap.c */
    struct ngd_account *account;
    ngd_priority_t priority;
    ngd_nsec_t cost;           /* expected device time, ns; 0 = unknown */
    ngd_nsec_t doubt;          /* its mean error, ns */
    struct ngd_heap_node node; /* the policy's while queued, as link */
    uint64_t serial;           /* the policy's: order of arrival */
    uint64_t pass;             /* the policy's: number of the last what-if pass that placed it */
    ngd_nsec_t predicted_end;  /* its end as predicted by that pass */
    int64_t turn;              /* the policy's: its `turn` when it was pushed, less account->corrected of that time */
    /* Replays that may run together (merge.h); under the queue's lock. */
    struct ngd_merge *merge;    /* NULL: it runs alone */
    int64_t rows;               /* its rows */
    struct ngd_list merge_link; /* in the merge's list of waiting items, or in the lead's list of mates */
    struct ngd_list mates;      /* of a lead: the items that run with it */
    bool merge_running;         /* counted in merge->running */
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
    /* Optional: corrects an account by the device time that it used beyond the costs of its popped items, ns; may be <
     * 0. */
    void (*charge)(void *state, struct ngd_account *account, ngd_nsec_t more);
    /*
     * Optional: returns the virtual time at which an item of this account and class would be taken if it were pushed
     * now. Of two items of one class the one with the lesser turn is taken first. A policy without it is first come,
     * first served.
     */
    int64_t (*turn)(const void *state, const struct ngd_account *account, ngd_priority_t priority);
    /* With `turn`: returns true if a queued item would be taken earlier if it were pushed now in this account's name.
     */
    bool (*overtakes)(const void *state, const struct ngd_account *account, const struct ngd_sched_item *item);
    /* Required. Returns the device time, ns, of the queued items that would be taken before this one if it were pushed
     * now. */
    ngd_nsec_t (*ahead)(void *state, const struct ngd_sched_item *item);
    /*
     * Optional: returns by how many ns an item with a deadline and a known cost, if it were pushed now, would miss its
     * deadline or make another item miss its own; 0 or less: it fits. Without this operation, `ahead` decides. left, n:
     * as in ngd_sched_predict. The item is unchanged when this returns.
     */
    ngd_nsec_t (*late)(void *state, struct ngd_sched_item *item, ngd_nsec_t now, const ngd_nsec_t *left, uint32_t n);
};

/* Returns by how many ns the policy predicts the item to be late; 0 or less: in time. */
ngd_nsec_t ngd_sched_late(const struct ngd_sched_policy *policy, void *state, struct ngd_sched_item *item,
                          ngd_nsec_t now, const ngd_nsec_t *left, uint32_t n);

/*
 * Predicts the time, ns from now, until an item of this cost has run behind `ahead` ns of queued work, on one of n
 * slots. Slot i is busy for left[i] ns more.
 */
ngd_nsec_t ngd_sched_predict(ngd_nsec_t ahead, const ngd_nsec_t *left, uint32_t n, ngd_nsec_t cost);

/* Returns NULL if there is none of that name. */
const struct ngd_sched_policy *ngd_sched_policy_find(const char *name);
/* All policies, NULL terminated, in the order of policies.def. */
const struct ngd_sched_policy *const *ngd_sched_policies(void);

#endif
