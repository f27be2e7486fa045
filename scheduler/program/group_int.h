/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_GROUP_INT_H
#define NGD_SCHEDULER_PROGRAM_GROUP_INT_H

/* What group.c, gang.c, gang_check.c and those who make and run executables share. */
#include "devices/comm.h"
#include "scheduler/program/group.h"
#include "scheduler/program/program_int.h"

/* A rank's part in the replay under way. */
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
    uint32_t order[NGD_GROUP_MAX_RANKS];           /* ranks, by their devices' numbers: as slots are taken */
    struct ngd_queue *queues[NGD_GROUP_MAX_RANKS]; /* by rank */
    _Atomic uint64_t replays, resets;
    struct ngd_mutex lock; /* rank GROUP */
    struct ngd_cond idle;
    bool busy NGD_GUARDED_BY(lock);
    struct ngd_diag closed NGD_GUARDED_BY(lock);
    struct ngd_rank_run runs[]; /* by rank; of whoever made it busy */
};

/* OK: the group is the caller's, who has a slot of its first device and no other, until it leaves. */
ngd_status_t ngd_group_enter(struct ngd_group *group, struct ngd_diag *diag);
/* Resets what a failed rank has broken. */
void ngd_group_leave(struct ngd_group *group);
static inline uint32_t ngd_group_leader(const struct ngd_group *group)
{
    return group->order[0];
}
/* -1: none. */
int ngd_group_rank_of(const struct ngd_group *group, const struct ngd_queue *queue);

/* The part of a gang that its program has. Where each rank's inputs, host parameters and results begin among all. */
struct ngd_gang {
    bool replicated;
    uint32_t n, leader;
    struct ngd_program *programs[NGD_GROUP_MAX_RANKS]; /* by rank; references, but for the leader: the gang's own */
    uint32_t input_at[NGD_GROUP_MAX_RANKS + 1], host_at[NGD_GROUP_MAX_RANKS + 1], output_at[NGD_GROUP_MAX_RANKS + 1];
    struct ngd_out *unwanted; /* results of ranks that nobody asks for */
};
void ngd_gang_free(struct ngd_gang *gang); /* NULL is fine */

/* What the ranks' graphs must have in common; programs: by rank. */
ngd_status_t ngd_gang_check(const struct ngd_group *group, struct ngd_program *const *programs, bool replicated,
                            struct ngd_diag *diag);
/* All collectives of the graph are of the group. */
ngd_status_t ngd_group_check_graph(const struct ngd_group *group, const struct ngd_graph *graph, struct ngd_diag *diag);

/* The executables of the gang's other ranks, for x, which is the leader's. On an error x has none. */
ngd_status_t ngd_gang_make_ranks(struct ngd_executable *x, const struct ngd_key *key, bool eager,
                                 struct ngd_diag *diag);
void ngd_gang_drop_ranks(struct ngd_executable *x);

/* The executable that a rank of x's gang runs, and its part of a launch: inputs, host parameters and results. */
struct ngd_executable *ngd_gang_executable(struct ngd_executable *x, uint32_t rank);
void ngd_gang_cut(const struct ngd_gang *gang, uint32_t rank, const struct ngd_launch *of, struct ngd_launch *launch);

#endif
