/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_LANES_H
#define NGD_DEVICES_HOST_LANES_H

/*
 * Streams of a plan on the CPU: the team of a launch is divided in lanes, each with some of the plan's streams and some
 * of the team's threads, and the lanes run at the same time.
 *
 * Why not always: kernels that are worth dividing already use the whole team, so lanes pay where small kernels lie
 * beside others. Whether they do is estimated at capture from the kernels' costs; if not, calls run one after the other
 * in the order of the plan, which every plan allows, and nothing of this is on the way of a replay.
 * Cores: a call within a limit of cores is given to no more threads than that, in a lane or not.
 * Waiting: a lane spins for another one, then sleeps. No lane can wait for ever: each runs its calls in the order of
 * the plan, in which a call waits for earlier ones only, and after an error calls are passed over, not left out.
 * A lane that no helper has come for is run by who waits for it.
 */
#include "devices/host/kernels/kernel.h"
#include "devices/host/team.h"

struct ngd_host_lanes;    /* of an executable; in its arena */
struct ngd_host_progress; /* of an instance: how far streams have come */

/* What a kernel's prepare() has said of a call. */
struct ngd_host_cost {
    double ns;
    bool serial, few_parts; /* as in ngd_host_prepare */
};

/* Threads that the call may use out of so many: its limit of cores. */
uint32_t ngd_host_cores(const struct ngd_plan_call *call, uint32_t threads);

/* *lanes_p NULL: the plan has one stream, or its streams do better one after the other. */
ngd_status_t ngd_host_lanes_create(const struct ngd_plan *plan, const struct ngd_host_cost *costs, uint32_t threads,
                                   struct ngd_arena *arena, struct ngd_host_lanes **lanes_p);
/* Threads of the lane that runs this call. */
uint32_t ngd_host_lanes_threads(const struct ngd_host_lanes *lanes, const struct ngd_plan_call *call);

struct ngd_host_progress *ngd_host_progress_create(const struct ngd_host_lanes *lanes); /* NULL: no memory */
void ngd_host_progress_destroy(struct ngd_host_progress *progress);                     /* NULL is fine */

/* Runs all calls; false, and nothing has run, when the team lacks threads. */
struct ngd_launch;
bool ngd_host_lanes_run(const struct ngd_host_lanes *lanes, struct ngd_host_progress *progress, struct ngd_team *team,
                        const struct ngd_host_call *calls, struct ngd_host_run *run, struct ngd_launch *launch);

#endif
