/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_LANES_H
#define NGD_DEVICES_HOST_LANES_H

/*
 * Runs the streams of a plan on the CPU. The team of a launch is divided into lanes. Each lane has some of the plan's
 * streams and some of the team's threads, and the lanes run at the same time.
 *
 * Why not always: kernels that are worth splitting already use the whole team, so lanes pay only where small kernels
 * can run beside others. The capture estimates from the kernels' costs whether they do. If not, calls run one after the
 * other in the order of the plan, which is always correct, and a replay does nothing for lanes.
 * Cores: a call with a limit of cores gets no more threads than that, in a lane or not.
 * Waiting: a lane spins for another one, then sleeps. No lane can wait for ever: each runs its calls in the order of
 * the plan, in which a call waits for earlier ones only. After an error, calls are skipped, but still signal.
 * The launching thread runs a lane that it has to wait for if no helper has begun that lane.
 */
#include "devices/host/kernels/kernel.h"
#include "devices/host/team.h"

struct ngd_host_lanes;    /* belongs to an executable; in its arena */
struct ngd_host_progress; /* belongs to an instance: how far its streams have come */

/* The cost of a call, as its kernel's prepare() estimated it. */
struct ngd_host_cost {
    double ns;
    bool serial, few_parts; /* as in ngd_host_prepare */
};

/* Returns how many of `threads` threads the call may use under its limit of cores. */
uint32_t ngd_host_cores(const struct ngd_plan_call *call, uint32_t threads);

/* Lays the lanes of a plan out. *lanes_p is NULL if the plan has one stream, or if its streams are faster one after the
 * other. */
ngd_status_t ngd_host_lanes_create(const struct ngd_plan *plan, const struct ngd_host_cost *costs, uint32_t threads,
                                   struct ngd_arena *arena, struct ngd_host_lanes **lanes_p);
/* Returns the threads of the lane that runs this call. */
uint32_t ngd_host_lanes_threads(const struct ngd_host_lanes *lanes, const struct ngd_plan_call *call);

struct ngd_host_progress *ngd_host_progress_create(const struct ngd_host_lanes *lanes); /* NULL: no memory */
void ngd_host_progress_destroy(struct ngd_host_progress *progress);                     /* NULL is fine */

/* Runs all calls. Returns false, and has run nothing, if the team lacks threads. */
struct ngd_launch;
bool ngd_host_lanes_run(const struct ngd_host_lanes *lanes, struct ngd_host_progress *progress, struct ngd_team *team,
                        const struct ngd_host_call *calls, struct ngd_host_run *run, struct ngd_launch *launch);

#endif
