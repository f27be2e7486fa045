/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_GROUP_INT_H
#define NGD_SCHEDULER_PROGRAM_GROUP_INT_H

/* Shared by group.c, gang.c, gang_check.c and the code that makes and runs executables. */
#include "devices/comm.h"
#include "scheduler/program/group.h"
#include "scheduler/program/program_int.h"

/* A rank's part of the replay under way. */
struct ngd_rank_run {
    struct ngd_slot *slot;
    struct ngd_instance *inst;
    struct ngd_launch launch;
    bool launched;
};

struct ngd_group {
    struct ngd_sched *sched;
    struct ngd_comm *comm;
    _Atomic uint32_t refs;
    uint32_t n;
    uint32_t order[NGD_GROUP_MAX_RANKS]; /* ranks by the numbers of their devices: the order of taking slots */
    struct ngd_queue *queues[NGD_GROUP_MAX_RANKS]; /* by rank */
    _Atomic uint64_t replays, resets;
    struct ngd_mutex lock; /* rank GROUP */
    struct ngd_cond idle;
    bool busy NGD_GUARDED_BY(lock);
    bool unmended NGD_GUARDED_BY(lock); /* broken, and could not be reset yet */
    struct ngd_diag closed NGD_GUARDED_BY(lock);
    struct ngd_rank_run runs[]; /* by rank; for the thread that entered */
};

/*
 * Waits until the group is free. OK: the group is the caller's until it leaves. An error: the group is closed, or BUSY
 * and to be tried again, and not taken. The caller holds a slot of the group's first device and no other slot.
 */
ngd_status_t ngd_group_enter(struct ngd_group *group, struct ngd_diag *diag);
/* Gives the group back. Resets it first if a rank has failed. */
void ngd_group_leave(struct ngd_group *group);
static inline uint32_t ngd_group_leader(const struct ngd_group *group)
{
    return group->order[0];
}
/* Returns the place among the ranks that are here, -1 if the queue's device is not in the group. */
int ngd_group_rank_of(const struct ngd_group *group, const struct ngd_queue *queue);

/* A gang's part of its program. The `_at` arrays say where each rank's inputs, host parameters and results begin. */
struct ngd_gang {
    bool replicated;
    uint32_t n, leader;
    struct ngd_program *programs[NGD_GROUP_MAX_RANKS]; /* by rank: references; the leader's is the gang's own program */
    uint32_t input_at[NGD_GROUP_MAX_RANKS + 1], host_at[NGD_GROUP_MAX_RANKS + 1], output_at[NGD_GROUP_MAX_RANKS + 1];
    struct ngd_out *unwanted; /* outputs of ranks whose results nobody asks for */
};
void ngd_gang_free(struct ngd_gang *gang); /* NULL is fine */

/* Checks what the ranks' graphs must have in common. programs: by rank. */
ngd_status_t ngd_gang_check(const struct ngd_group *group, struct ngd_program *const *programs, bool replicated,
                            struct ngd_diag *diag);
/* Checks that all collectives of the graph are of the group. */
ngd_status_t ngd_group_check_graph(const struct ngd_group *group, const struct ngd_graph *graph, struct ngd_diag *diag);

/* Makes the executables of the other ranks for x, which is the leader's. On an error x has none. */
ngd_status_t ngd_gang_make_ranks(struct ngd_executable *x, const struct ngd_key *key, bool eager,
                                 struct ngd_diag *diag);
void ngd_gang_drop_ranks(struct ngd_executable *x);

/*
 * executable returns what a rank of x's gang runs. cut fills `launch` with the rank's part of the launch `of`: inputs,
 * host parameters and results.
 */
struct ngd_executable *ngd_gang_executable(struct ngd_executable *x, uint32_t rank);
void ngd_gang_cut(const struct ngd_gang *gang, uint32_t rank, const struct ngd_launch *of, struct ngd_launch *launch);

#endif
