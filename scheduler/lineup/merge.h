/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_LINEUP_MERGE_H
#define NGD_SCHEDULER_LINEUP_MERGE_H

/*
 * Which of the items that wait for a device run together: those of one merge, along with the one of them that the
 * policy has chosen.
 *
 * The policy decides who is taken, as ever; those that may join the one that was taken, its mates, are taken out of the
 * lineup with it, as many as fit in the largest bucket that there is and that ends in time for it. Mates are of the
 * priority of who was taken, or more urgent, so that nobody waits for the less urgent; who has a deadline takes only
 * mates that have one, the earliest first.
 *
 * What a bucket costs, and which there are, the merge's owner knows: a program (merge_prog.h), or a simulation.
 *
 * Threads: what the lineup's are called under. Time is given. Nothing is allocated.
 */
#include "scheduler/lineup/linger.h"
#include "scheduler/lineup/lineup.h"

/* A replay for several items. */
struct ngd_joint {
    int64_t planned;        /* rows that it has room for */
    ngd_nsec_t cost, doubt; /* as an item's; cost NGD_NSEC_NEVER: not known */
};

struct ngd_merge_ops {
    /* All required. Could mate's rows stand beside lead's in a replay that is planned for so many? */
    bool (*joins)(const struct ngd_sched_item *lead, const struct ngd_sched_item *mate, int64_t planned);
    /* What lead would run as with others, `rows` rows in all: the bucket for these, or the largest below whose cost is
     * known, or its own. */
    void (*foresee)(struct ngd_merge *m, const struct ngd_sched_item *lead, int64_t rows, struct ngd_joint *joint_p);
    /* The same when it is taken: what there is, whether its cost is known or not. */
    void (*choose)(struct ngd_merge *m, struct ngd_sched_item *lead, int64_t rows, ngd_nsec_t now,
                   struct ngd_joint *joint_p);
    int64_t (*below)(struct ngd_merge *m, int64_t planned); /* the next smaller bucket; 0: there is none */
};

struct ngd_merge {
    const struct ngd_merge_ops *ops;
    int64_t max_rows;         /* of one replay */
    _Atomic uint32_t running; /* items that a slot has, not answered yet */
    /* Items that wait: with a deadline, the earliest first; without, the oldest. */
    struct ngd_list timed[NGD_PRIORITIES], untimed[NGD_PRIORITIES];
    uint32_t n_waiting;
    int64_t rows; /* of those */
    struct ngd_linger linger;
    int64_t reach; /* rows that could run together when more were there last; INT64_MAX: as many as the graph takes */
};
void ngd_merge_init(struct ngd_merge *m, const struct ngd_merge_ops *ops, int64_t max_rows, ngd_nsec_t longest_wait);

/* ---- by the lineup, of items that have a merge ---- */

void ngd_merge_enter(struct ngd_sched_item *item, ngd_nsec_t now);
void ngd_merge_leave(struct ngd_sched_item *item);
/* Shall a slot wait for more before it takes anything? *until_p: how long at most. */
bool ngd_merge_waits(struct ngd_lineup *lineup, ngd_nsec_t now, ngd_nsec_t *until_p);
/* The same of an item that finds its device idle. */
bool ngd_merge_wants_company(const struct ngd_sched_item *item);
/* The item was taken (and left) to run: its mates are taken too. The expected time of the replay; 0: not known. */
ngd_nsec_t ngd_merge_take(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now);
/* It runs on the thread that brought it. */
void ngd_merge_take_inline(struct ngd_sched_item *item);

/* Before an answer. */
static inline void ngd_merge_ended(struct ngd_sched_item *item)
{
    if (!item->merge_running)
        return;
    item->merge_running = false;
    atomic_fetch_sub_explicit(&item->merge->running, 1, memory_order_relaxed);
}

/* ---- by a policy that foretells, on its own class of items with a deadline ---- */

/* What lead would take along, began it at `start`: those that are not laid out in this look yet. Sets cost and doubt of
 * the replay, which are its own if it would run alone. */
void ngd_merge_foresee(struct ngd_sched_item *lead, ngd_nsec_t start, uint64_t look, struct ngd_joint *joint_p);
/* They are laid out with it, and end as foretold; start and joint: of ngd_merge_foresee. */
void ngd_merge_lay_out(struct ngd_sched_item *lead, ngd_nsec_t start, const struct ngd_joint *joint, uint64_t look,
                       ngd_nsec_t foretold);
/* An item that is not queued stands among those that wait, for a look at what would be. */
void ngd_merge_suppose(struct ngd_sched_item *item);
void ngd_merge_unsuppose(struct ngd_sched_item *item);

#endif
