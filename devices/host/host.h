/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_HOST_H
#define NGD_DEVICES_HOST_HOST_H

/*
 * What the files of the `host` backend share: the CPU as a device.
 *
 * host.c has the table of backend.h, stream.c runs launches, exec.c turns plans into lists of kernel calls, team.c
 * shares a call between CPUs, kernels.c maps operators to kernels.
 */
#include "base/lock.h"
#include "devices/backend.h"
#include "devices/host/kernels/kernel.h"
#include "devices/host/lanes.h"
#include "devices/host/team.h"

struct host_device {
    char name[32];
    char arch[64];
    char description[192];
    ngd_isa_t isa;
    uint32_t threads;
};

struct host_exec;
struct host_inst;

/* exec.c */
ngd_status_t ngd_host_instantiate(void *dev, const struct ngd_plan *plan, const struct ngd_backend_group *groups,
                                  uint32_t n_groups, void **exec_p, uint64_t *bytes_p, struct ngd_diag *diag);
void ngd_host_destroy(void *dev, void *exec);
ngd_status_t ngd_host_bind(void *dev, void *exec, void *pool_mem, void *const *bound_mem, uint32_t n, void **inst_p,
                           struct ngd_diag *diag);
void ngd_host_unbind(void *dev, void *inst);
/* Runs a launch on the calling thread and on the team's helpers; fills status, diag and device_time. */
ngd_status_t ngd_host_launch(struct host_inst *inst, struct ngd_team *team, struct ngd_launch *launch);
/* Breaks the groups of a launch that will not run, so that other ranks do not wait for it. */
void ngd_host_not_run(struct host_inst *inst, const char *why);

/* Returns the number of parts into which a team of this many threads splits a call of this cost. */
uint16_t ngd_host_parts(const struct ngd_host_cost *cost, uint32_t threads);
/* Runs call i of the launch. */
void ngd_host_step(const struct ngd_host_call *call, struct ngd_host_run *run, struct ngd_team *team,
                   const struct ngd_launch *launch, uint32_t i);

/* exec.c, for static kernels: returns the plan->n_calls calls, without addresses, in the order of the plan. */
const struct ngd_host_call *ngd_host_calls(const struct host_exec *exec, const struct ngd_plan **plan_p,
                                           const struct host_device **dev_p);
/* Makes later replays run fns, one for each call, instead of the calls' own functions. Takes `fast`, which holds fns.
 * Returns false if the executable has an object already; `fast` is still the caller's then. Any thread. */
struct ngd_static_loaded;
bool ngd_host_swap(struct host_exec *exec, struct ngd_static_loaded *fast, const ngd_host_fn *fns);

/* static_emit.c, compiler.c, static_load.c: the static_* functions of struct ngd_backend_code. */
ngd_status_t ngd_host_static_source(void *dev, void *exec, struct ngd_strbuf *source, struct ngd_diag *diag);
void ngd_host_static_toolchain(void *dev, const char *compiler, struct ngd_strbuf *lines);
ngd_static_result_t ngd_host_static_compile(void *dev, const struct ngd_static_work *work, struct ngd_strbuf *object,
                                            struct ngd_diag *diag);
ngd_status_t ngd_host_static_adopt(void *dev, void *exec, const void *object, size_t n, struct ngd_diag *diag);

/* stream.c; the rest of a stream is devices/serial.h */
ngd_status_t ngd_host_stream_create(void *dev, const char *name, void **stream_p, struct ngd_diag *diag);

/* host_telemetry.c: as struct ngd_backend_telemetry. */
struct ngd_telemetry;
void *ngd_host_telemetry_open(void *dev);
void ngd_host_telemetry_sample(void *source, struct ngd_telemetry *t);
void ngd_host_telemetry_close(void *source);

#endif
