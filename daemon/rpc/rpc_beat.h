/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_BEAT_H
#define NGD_DAEMON_RPC_RPC_BEAT_H

/*
 * Asks the gRPC server for the watchdog (watchdog.h): posts an event to each completion queue, and makes a call of
 * grpc.health.v1.Health/Check over its own connection, a socket pair that gRPC serves like a client's.
 *
 * Threads: the loop, and the main thread before and after it; rpc_beat_event on the queue's thread.
 */
#include "base/beat.h"
#include "daemon/rpc/rpc_int.h"

/* One question. Its tag has no call; run_cq recognises it by that. */
struct rpc_beat {
    struct rpc_tag tag;
    bool is_call; /* the daemon's call to itself */
    struct ngd_beat beat;
    grpc_call *core;
};

/* The daemon's call to itself. The loop owns its memory while `done` is set, gRPC otherwise. */
struct rpc_self_call {
    struct rpc_beat beat;
    grpc_channel *channel; /* NULL: not connected */
    grpc_byte_buffer *request, *reply;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    _Atomic bool done;
};

struct rpc_beats {
    struct ngd_daemon *daemon;
    void (*adopt)(void *ctx, int fd);
    void *ctx;
    grpc_completion_queue *first; /* gets the call's completion */
    grpc_channel *nowhere;        /* gRPC makes calls only on a channel; the calls of events are never started */
    struct rpc_self_call self;
    size_t n;
    struct rpc_beat *threads; /* n */
};

struct rpc_beats_params {
    struct ngd_daemon *daemon;
    void (*adopt)(void *ctx, int fd); /* gives a connected descriptor to the server, which takes it */
    void *ctx;
    grpc_completion_queue *const *cqs;
    size_t n; /* at least one */
};
/* Starts the beats. stop and fini must follow, also if this fails. */
ngd_status_t rpc_beats_start(struct rpc_beats *beats, const struct rpc_beats_params *params);
/* Connects the call to itself. The server has started. */
void rpc_beats_connect(struct rpc_beats *beats);
void rpc_beats_ask(struct rpc_beats *beats);
void rpc_beat_event(struct rpc_tag *tag, bool ok);
/* Cancels what is under way, before the server stops. Its events still come. */
void rpc_beats_stop(struct rpc_beats *beats);
void rpc_beats_fini(struct rpc_beats *beats); /* the queues' threads have ended */

#endif
