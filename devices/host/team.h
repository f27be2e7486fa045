/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_TEAM_H
#define NGD_DEVICES_HOST_TEAM_H

/*
 * The worker team of one stream: the thread that runs the launch (the leader) and threads-1 helpers.
 *
 * Why: a call is worth splitting only when it takes longer than handing it over. A parallel loop of a
 * general library costs a futex or a barrier per call; here a hand-over is one store, and a helper that is
 * not there when the leader is done is not waited for.
 * Threads: begin, share and end from one thread at a time. Helpers start at the first begin.
 * Failure: helpers that cannot be started are missing; the leader then does their parts.
 */
#include "devices/host/kernels/kernel.h"

struct ngd_team;

ngd_status_t ngd_team_create(uint32_t threads, const char *name, struct ngd_team **team_p);
void ngd_team_destroy(struct ngd_team *team); /* NULL is fine */
uint32_t ngd_team_threads(const struct ngd_team *team);

/* A run begins: helpers wake and spin for work until ngd_team_end. */
void ngd_team_begin(struct ngd_team *team);
void ngd_team_end(struct ngd_team *team);
/* Calls call->fn for parts 0..parts-1, some of them on helpers; returns when all are done. */
void ngd_team_share(struct ngd_team *team, const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t parts);

/*
 * Divides the team in lanes of threads[i] threads each, together at most as many as the team has, and calls fn for all
 * lanes at the same time; the caller's thread is the first of lane 0. A lane's team is for ngd_team_share within fn;
 * NULL when the lane is one thread. Returns when all have ended; false, and nothing was called, when helpers are
 * missing.
 */
#define NGD_LANES_MAX 16
typedef void ngd_lane_fn(void *arg, uint32_t lane, struct ngd_team *team);
bool ngd_team_run_lanes(struct ngd_team *team, const uint32_t *threads, uint32_t n_lanes, ngd_lane_fn *fn, void *arg);

/* Within fn of lane 0: nobody has begun this lane, and nobody will; its work is the caller's. */
bool ngd_team_claim_lane(struct ngd_team *team, uint32_t lane);

#endif
