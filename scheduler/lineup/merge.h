/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_MERGE_H
#define NGD_SCHEDULER_LINEUP_MERGE_H

/*
 * Merging: chooses which waiting items run together as one replay.
 *
 * A merge is the set of waiting items that could share a replay. The policy chooses one item, the lead. The merge then
 * takes more of its items out of the lineup, the mates: as many as fit in the largest bucket that exists and that ends
 * before the lead's deadline. A mate has the lead's priority or a more urgent one, so an item never waits for a less
 * urgent one. A lead with a deadline takes only mates that have one, the earliest first.
 *
 * The owner of the merge knows the buckets and what they cost: a program (merge_prog.h), or a simulation.
 *
 * Threads: call under the lock of the lineup. The caller passes the time. No call allocates.
 */
#include "scheduler/lineup/linger.h"
#include "scheduler/lineup/lineup.h"

/* A joint replay. */
struct ngd_joint {
    int64_t planned;        /* rows of its bucket */
    ngd_nsec_t cost, doubt; /* as an item's; cost NGD_NSEC_NEVER: not known */
};

struct ngd_merge_ops {
    /* All are required. Returns true if mate can share a replay of `planned` rows with lead. */
    bool (*joins)(const struct ngd_sched_item *lead, const struct ngd_sched_item *mate, int64_t planned);
    /*
     * Predicts the joint replay of lead with others, of `rows` rows in all: the bucket for these rows, else the largest
     * smaller bucket whose cost is known, else lead's own.
     */
    void (*predict)(struct ngd_merge *m, const struct ngd_sched_item *lead, int64_t rows, struct ngd_joint *joint_p);
    /* Chooses the joint replay when lead is taken, whether its cost is known or not. */
    void (*choose)(struct ngd_merge *m, struct ngd_sched_item *lead, int64_t rows, ngd_nsec_t now,
                   struct ngd_joint *joint_p);
    int64_t (*below)(struct ngd_merge *m, int64_t planned); /* returns the next smaller bucket; 0: none */
};

struct ngd_merge {
    const struct ngd_merge_ops *ops;
    int64_t max_rows;         /* of one replay */
    _Atomic uint32_t running; /* items that run and are not answered yet */
    /* Waiting items: those with a deadline, the earliest first; the others, the oldest first. */
    struct ngd_list timed[NGD_PRIORITIES], untimed[NGD_PRIORITIES];
    uint32_t n_waiting;
    int64_t rows; /* of the waiting items */
    struct ngd_linger linger;
    int64_t reach; /* rows of the largest bucket that could be used lately; INT64_MAX: max_rows */
};
void ngd_merge_init(struct ngd_merge *m, const struct ngd_merge_ops *ops, int64_t max_rows, ngd_nsec_t longest_wait);

/* ---- by the lineup, of items that have a merge ---- */

void ngd_merge_enter(struct ngd_sched_item *item, ngd_nsec_t now);
void ngd_merge_leave(struct ngd_sched_item *item);
/* Returns true if a slot should wait for more items before it takes one, until *until_p at most. */
bool ngd_merge_waits(struct ngd_lineup *lineup, ngd_nsec_t now, ngd_nsec_t *until_p);
/* Returns true if an item that finds its device idle should wait for others. */
bool ngd_merge_wants_company(const struct ngd_sched_item *item);
/* Takes the mates of an item that has just been taken. Returns the expected time of the replay in ns; 0: unknown. */
ngd_nsec_t ngd_merge_take(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now);
/* Notes that the item runs inline, on the thread that submitted it. */
void ngd_merge_take_inline(struct ngd_sched_item *item);

/* Call before the item is answered. */
static inline void ngd_merge_ended(struct ngd_sched_item *item)
{
    if (!item->merge_running)
        return;
    item->merge_running = false;
    atomic_fetch_sub_explicit(&item->merge->running, 1, memory_order_relaxed);
}

/* ---- what-if passes: a policy predicts when its items with a deadline will end ---- */

/*
 * Predicts the replay that lead would run in if it began at `start`, with mates that this pass has not placed yet. Sets
 * cost and doubt of the replay: lead's own if it would run alone.
 */
void ngd_merge_predict(struct ngd_sched_item *lead, ngd_nsec_t start, uint64_t pass, struct ngd_joint *joint_p);
/* Places the mates of that replay: they end at predicted_end. start, joint: those of ngd_merge_predict. */
void ngd_merge_place(struct ngd_sched_item *lead, ngd_nsec_t start, const struct ngd_joint *joint, uint64_t pass,
                     ngd_nsec_t predicted_end);
/* Temporarily inserts an unqueued item for what-if scheduling; remove_tentative takes it out again. */
void ngd_merge_insert_tentative(struct ngd_sched_item *item);
void ngd_merge_remove_tentative(struct ngd_sched_item *item);

#endif
