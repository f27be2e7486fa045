/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_TEAM_H
#define NGD_DEVICES_HOST_TEAM_H

/*
 * The team of threads of one stream: the thread that runs the launch (the leader) and threads - 1 helpers.
 *
 * Why: a call is worth splitting only if it takes longer than the hand-over to helpers. A parallel loop of a general
 * library costs a futex or a barrier per call. Here a hand-over is one store, and the leader does not wait for helpers
 * that have not claimed a part.
 * Threads: begin, share and end are called by one thread at a time. Helpers start at the first begin.
 * Failure: if a helper cannot be started, the others do its parts.
 */
#include "devices/host/kernels/kernel.h"

struct ngd_team;

ngd_status_t ngd_team_create(uint32_t threads, const char *name, struct ngd_team **team_p);
void ngd_team_destroy(struct ngd_team *team); /* NULL is fine */
uint32_t ngd_team_threads(const struct ngd_team *team);

/* Begins a run: helpers wake up and spin for work until ngd_team_end. */
void ngd_team_begin(struct ngd_team *team);
void ngd_team_end(struct ngd_team *team);
/* Calls call->fn for parts 0..parts-1, some of them on helpers; returns when all are done. */
void ngd_team_share(struct ngd_team *team, const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t parts);

/*
 * Divides the team into lanes of threads[i] threads, together at most as many as the team has, and calls fn for all
 * lanes at the same time. The caller is the first thread of lane 0. fn gets a team of the lane's threads for
 * ngd_team_share, NULL if the lane is one thread. Returns when all lanes have ended. Returns false, and has called
 * nothing, if helpers are missing.
 */
#define NGD_LANES_MAX 16
typedef void ngd_lane_fn(void *arg, uint32_t lane, struct ngd_team *team);
bool ngd_team_run_lanes(struct ngd_team *team, const uint32_t *threads, uint32_t n_lanes, ngd_lane_fn *fn, void *arg);

/* Claims a lane whose first helper has not come. fn of lane 0 calls it for each other lane, at its end at the latest:
 * otherwise the lane's other helpers would wait for the first. If it returns true, no helper will run the lane, and the
 * caller does its work. */
bool ngd_team_claim_lane(struct ngd_team *team, uint32_t lane);

#endif
