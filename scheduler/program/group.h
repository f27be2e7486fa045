/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_GROUP_H
#define NGD_SCHEDULER_PROGRAM_GROUP_H

/*
 * Groups: devices whose graphs run collectives together. Gangs: one graph for each rank of a group, replayed as one.
 *
 * A program that was opened for a group (ngd_program_open_in) is one rank's, and runs as a part of a gang only. A gang
 * is made of the ranks' bindings and is a binding itself: it is captured, queued, cancelled and answered like any
 * other, once for all ranks. It waits in the run queue of that device of the group which comes first, and when its turn
 * has come takes a slot of each of the others, in the order of devices: two gangs never wait for each other. Of one
 * group one gang runs at a time. Its device time counts on every device.
 *
 * A rank that fails ends the others' wait (devices/comm.h); the replay is answered with the reason, and the group is
 * reset before its next replay. A group with a device that does not recover is closed: from then on its replays are
 * answered with DEVICE_LOST, and a new group of other devices has to be made.
 *
 * Threads: any. Memory: reference counted; programs hold references on their group.
 */
#include "scheduler/program/program.h"

struct ngd_group;
struct ngd_share;

struct ngd_group_params {
    const char *name;                  /* the group_name of graphs' collectives */
    struct ngd_device *const *devices; /* of the scheduler, by rank, of one backend, each once; two at least */
    uint32_t n;
};

/* DEVICE_LOST: one of them does not serve. */
ngd_status_t ngd_group_create(struct ngd_sched *sched, const struct ngd_group_params *params,
                              struct ngd_group **group_p, struct ngd_diag *diag);
struct ngd_group *ngd_group_ref(struct ngd_group *group);
struct ngd_group *ngd_group_unref(struct ngd_group *group); /* returns NULL; NULL is fine */
const char *ngd_group_name(const struct ngd_group *group);
uint32_t ngd_group_size(const struct ngd_group *group);
struct ngd_device *ngd_group_device(const struct ngd_group *group, uint32_t rank);

struct ngd_group_stats {
    uint64_t replays, resets; /* of gangs; after a rank's failure */
    struct ngd_diag closed;   /* why; status NGD_OK: it is not */
};
void ngd_group_stats(struct ngd_group *group, struct ngd_group_stats *stats_p);

/* As ngd_program_open, for the rank whose device dev is; its collectives are all of this group (GROUP_UNBOUND). Takes a
 * reference. NULL: of no group. owner NULL: the scheduler. */
ngd_status_t ngd_program_open_in(struct ngd_sched *sched, struct ngd_device *dev, struct ngd_graph *graph,
                                 const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                                 struct ngd_group *group, const struct ngd_owner *owner, struct ngd_program **prog_p,
                                 bool *shared_p, struct ngd_diag *diag);

/*
 * bindings: one for each rank, in any order; references are taken, and later changes of them change nothing here. What
 * can be seen now is checked: symbols are the same on all ranks, and their collectives (COLLECTIVE_MISMATCH names
 * both).
 *
 * Its inputs, host parameters and results are those of rank 0, then those of rank 1, and so on. replicated: all ranks
 * take the same ones, given once, and the results are rank 0's.
 */
ngd_status_t ngd_gang_create(struct ngd_binding *const *bindings, uint32_t n, bool replicated,
                             struct ngd_binding **gang_p, struct ngd_diag *diag);
struct ngd_group *ngd_binding_group(const struct ngd_binding *binding); /* borrowed; NULL: of no group */
/* How many ranks replay it: 1 of all but gangs. And the binding of each; what belongs to a rank is found there. */
uint32_t ngd_binding_ranks(const struct ngd_binding *binding);
const struct ngd_binding *ngd_binding_rank(const struct ngd_binding *binding, uint32_t rank);
bool ngd_binding_is_replicated(const struct ngd_binding *binding); /* one launch serves for all of its ranks */

/* What a replay answers: how many results, and of which graph result *i is; *i becomes the number there. */
uint32_t ngd_binding_n_outputs(const struct ngd_binding *binding);
const struct ngd_graph *ngd_binding_output(const struct ngd_binding *binding, uint32_t *i);

#endif
