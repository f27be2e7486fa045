/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_GROUP_H
#define NGD_SCHEDULER_PROGRAM_GROUP_H

/*
 * Groups: devices whose graphs run collectives together. Gangs: one graph for each rank of a group, replayed as one.
 *
 * A program that was opened for a group (ngd_program_open_in) belongs to one rank, and runs only as part of a gang. A
 * gang is made of the ranks' bindings and is a binding itself: it is captured, queued, cancelled and answered like any
 * other, once for all ranks. It waits in the run queue of the group's first device. In its turn it takes a slot of each
 * other device, in the order of devices, so that two gangs never wait for each other. One gang of a group runs at a
 * time. Its device time counts on every device.
 *
 * If a rank fails, the others stop waiting (devices/comm.h), the replay is answered with the reason, and the group is
 * reset before its next replay. If a device of the group does not recover, the group is closed: its replays are
 * answered with DEVICE_LOST, and a new group of other devices has to be made.
 *
 * A group may have ranks in other daemons (devices/comm.h). A gang has those of this daemon, and is replayed while the
 * other daemons replay theirs: their clients give all of them the same requests in the same order. In what follows a
 * rank is a number among those of this daemon; what a replay answers names it as the whole group does.
 *
 * Threads: any. Memory: reference counted; programs hold references on their group.
 */
#include "scheduler/program/program.h"

struct ngd_comm_span;
struct ngd_group;
struct ngd_share;

struct ngd_group_params {
    const char *name;                  /* the group_name of graphs' collectives */
    struct ngd_device *const *devices; /* the scheduler's, by rank, of one backend, each once; at least two */
    uint32_t n;
    const struct ngd_comm_span *span; /* some ranks are in other daemons; NULL: none */
    ngd_nsec_t time_limit;            /* how long a rank waits for the others; 0: NGD_COMM_TIME_LIMIT */
};

/* Creates a group. With a span, one device is enough, and the call waits for the other daemons. DEVICE_LOST: one of the
 * devices is out of service. */
ngd_status_t ngd_group_create(struct ngd_sched *sched, const struct ngd_group_params *params,
                              struct ngd_group **group_p, struct ngd_diag *diag);
struct ngd_group *ngd_group_ref(struct ngd_group *group);
struct ngd_group *ngd_group_unref(struct ngd_group *group); /* returns NULL; NULL is fine */
const char *ngd_group_name(const struct ngd_group *group);
uint32_t ngd_group_size(const struct ngd_group *group);                         /* ranks that are here */
uint32_t ngd_group_first(const struct ngd_group *group);                        /* the first of them */
uint32_t ngd_group_ranks(const struct ngd_group *group);                        /* of all daemons */
struct ngd_device *ngd_group_device(const struct ngd_group *group, uint32_t i); /* of rank first + i */

struct ngd_group_stats {
    uint64_t replays, resets; /* replays of gangs; resets after a rank's failure */
    struct ngd_diag closed;   /* why it is closed; status NGD_OK: it is open */
};
void ngd_group_stats(struct ngd_group *group, struct ngd_group_stats *stats_p);

/*
 * Does what ngd_program_open does, for the rank of the group that dev is. All collectives of the graph must be of this
 * group (GROUP_UNBOUND). Takes a reference on the group; NULL: none. owner NULL: the scheduler.
 */
ngd_status_t ngd_program_open_in(struct ngd_sched *sched, struct ngd_device *dev, struct ngd_graph *graph,
                                 const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                                 struct ngd_group *group, const struct ngd_owner *owner, struct ngd_program **prog_p,
                                 bool *shared_p, struct ngd_diag *diag);

/*
 * Joins the bindings of all ranks, given in any order, to a gang. Takes references; later changes of the bindings have
 * no effect on the gang. Checks what graphs show: the ranks' symbols are the same, and their collectives
 * (COLLECTIVE_MISMATCH names both).
 *
 * The gang's inputs, host parameters and results are those of rank 0, then those of rank 1, and so on. replicated: all
 * ranks take the same ones, given once, and the results are rank 0's.
 */
ngd_status_t ngd_gang_create(struct ngd_binding *const *bindings, uint32_t n, bool replicated,
                             struct ngd_binding **gang_p, struct ngd_diag *diag);
struct ngd_group *ngd_binding_group(const struct ngd_binding *binding); /* borrowed; NULL: none */
/* Returns how many ranks replay it: 1 unless it is a gang. ngd_binding_rank returns the binding of a rank. */
uint32_t ngd_binding_ranks(const struct ngd_binding *binding);
const struct ngd_binding *ngd_binding_rank(const struct ngd_binding *binding, uint32_t rank);
bool ngd_binding_is_replicated(const struct ngd_binding *binding); /* all ranks take the same launch */

/*
 * Returns how many results a replay has. ngd_binding_output returns the graph that has result *i, and sets *i to its
 * number in that graph.
 */
uint32_t ngd_binding_n_outputs(const struct ngd_binding *binding);
const struct ngd_graph *ngd_binding_output(const struct ngd_binding *binding, uint32_t *i);

#endif
