/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_HOST_H
#define NGD_DEVICES_HOST_HOST_H

/*
 * The `host` backend's own parts: the CPU as a device.
 *
 * host.c has the tables of backend.h, stream.c queues and runs, event.c completes, exec.c turns plans into lists of
 * kernel calls, team.c shares a call between CPUs, kernels.c knows which kernel serves which operator.
 */
#include "base/lock.h"
#include "devices/backend.h"
#include "devices/host/kernel.h"
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
struct host_stream;
struct host_event;

/* exec.c */
ngd_status_t ngd_host_instantiate(void *dev, const struct ngd_plan *plan, void **exec_p, uint64_t *bytes_p,
                                  struct ngd_diag *diag);
void ngd_host_destroy(void *dev, void *exec);
ngd_status_t ngd_host_bind(void *dev, void *exec, void *pool_mem, void *const *bound_mem, uint32_t n, void **inst_p,
                           struct ngd_diag *diag);
void ngd_host_unbind(void *dev, void *inst);
/* Runs a launch on the calling thread and on the team's helpers; fills status, diag and device_time. */
ngd_status_t ngd_host_replay(struct host_inst *inst, struct ngd_team *team, struct ngd_launch *launch);
/* The same, operator by operator. */
ngd_status_t ngd_host_run_eager(struct host_inst *inst, struct ngd_team *team, struct ngd_launch *launch);

/* stream.c */
ngd_status_t ngd_host_stream_create(void *dev, const char *name, void **stream_p, struct ngd_diag *diag);
void ngd_host_stream_destroy(void *dev, void *stream);
ngd_status_t ngd_host_stream_launch(void *stream, void *inst, struct ngd_launch *launch);
ngd_status_t ngd_host_stream_run(void *stream, void *inst, struct ngd_launch *launch);
ngd_status_t ngd_host_stream_callback(void *stream, void (*fn)(void *arg), void *arg);
ngd_status_t ngd_host_stream_sync(void *stream);
ngd_status_t ngd_host_stream_status(void *stream);
void ngd_host_stream_reset(void *stream);
void ngd_host_stream_poison(void *stream, ngd_status_t status);
ngd_status_t ngd_host_event_record(void *event, void *stream);
ngd_status_t ngd_host_event_wait(void *stream, void *event);

/* event.c */
ngd_status_t ngd_host_event_create(void *dev, void **event_p);
void ngd_host_event_destroy(void *dev, void *event);
bool ngd_host_event_query(const void *event);
ngd_status_t ngd_host_event_sync(void *event);
/* A record takes a ticket when it is queued and completes it when the stream gets there. NO_MEMORY: it took none. */
ngd_status_t ngd_host_event_take(struct host_event *event, uint64_t *ticket_p);
void ngd_host_event_complete(struct host_event *event, uint64_t ticket);
uint64_t ngd_host_event_last(const struct host_event *event); /* the newest ticket; 0 = never recorded */
bool ngd_host_event_done(const struct host_event *event, uint64_t ticket);
void ngd_host_event_await(struct host_event *event, uint64_t ticket);

#endif
