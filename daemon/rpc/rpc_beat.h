/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_BEAT_H
#define NGD_DAEMON_RPC_RPC_BEAT_H

/*
 * The watchdog's questions to the gRPC server (watchdog.h): an event for each completion queue, and a call of
 * grpc.health.v1.Health/Check over a connection of its own, a socket pair that is in gRPC like a client's.
 *
 * Threads: the loop, and the main thread before and after it; rpc_beat_event on the queue's thread.
 */
#include "base/beat.h"
#include "daemon/rpc/rpc_int.h"

/* Its tag has no call; that is how run_cq knows it. */
struct rpc_beat {
    struct rpc_tag tag;
    bool is_call; /* the call to itself */
    struct ngd_beat beat;
    grpc_call *core;
};

/* The call to itself. Its memory is the loop's while `done`, and gRPC's otherwise. */
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
    grpc_completion_queue *first; /* takes the call's completion */
    grpc_channel *nowhere;        /* calls need one; the events' are never started */
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
/* Must be stopped and finished also if this fails. */
ngd_status_t rpc_beats_start(struct rpc_beats *beats, const struct rpc_beats_params *params);
/* The server has started. */
void rpc_beats_connect(struct rpc_beats *beats);
void rpc_beats_ask(struct rpc_beats *beats);
void rpc_beat_event(struct rpc_tag *tag, bool ok);
/* Gives up what is under way, before the server stops; its events still come. */
void rpc_beats_stop(struct rpc_beats *beats);
void rpc_beats_fini(struct rpc_beats *beats); /* the queues' threads have ended */

#endif
