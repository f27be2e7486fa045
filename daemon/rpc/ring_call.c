/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a ring's lanes. They enter the handlers where the messages of gRPC's streams do (rpc_recv.c), and their
 * answers leave here. An answer is made in the daemon's memory and copied when it is complete, so that nothing is read
 * back from where the client can write.
 */
#include "base/metrics.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/rpc/call_trace.h"
#include "daemon/rpc/ring_int.h"
#include "daemon/rpc/rpc_method.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/session_move.h"
#include "proto/npugraph.pb-c.h"
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARENA_BLOCK 2048
#define KEEP_BYTES  (128u << 10) /* as a stream of gRPC does */

static const struct ngd_call_transport lane_transport;

static struct ring_lane *lane_of(struct ngd_call *call)
{
    return ngd_container_of(call, struct ring_lane, pub);
}

void ring_lanes_init(struct ngd_ring *ring)
{
    for (uint32_t i = 0; i < NGD_RING_LANES; i++) {
        struct ring_lane *lane = &ring->lanes[i];

        lane->ring = ring;
        lane->index = i;
        lane->pub.transport = &lane_transport;
        lane->pub.daemon = ring->rings->daemon;
        lane->pub.session = ring->session;
        lane->pub.identity = ring->identity;
        lane->pub.deadline = NGD_NSEC_NEVER;
        snprintf(lane->pub.peer, sizeof(lane->pub.peer), "ring");
        ngd_arena_init(&lane->pub.arena, ARENA_BLOCK);
        ngd_arena_init(&lane->pub.life, ARENA_BLOCK);
        ngd_list_init(&lane->pub.stream.link);
    }
}

/* Ends what the lane's handler keeps between messages. */
static void forget_state(struct ring_lane *lane)
{
    if (lane->pub.method && lane->pub.method->ops->release)
        lane->pub.method->ops->release(&lane->pub);
    lane->pub.state = NULL;
    lane->pub.method = NULL;
    lane->pub.trace = NULL;
    lane->pub.trace_room = NULL;
    ngd_arena_trim(&lane->pub.life, ARENA_BLOCK);
}

void ring_lanes_fini(struct ngd_ring *ring)
{
    for (uint32_t i = 0; i < NGD_RING_LANES; i++) {
        forget_state(&ring->lanes[i]);
        ngd_arena_fini(&ring->lanes[i].pub.arena);
        ngd_arena_fini(&ring->lanes[i].pub.life);
    }
}

/* ---- answers --------------------------------------------------------------------------------------------- */

static void wake_client(struct ngd_ring_lane_words *words)
{
    if (atomic_load(&words->waits))
        syscall(SYS_futex, &words->answered, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Gives the client the answer, and gives up the request's reference. The lane may take another request at once. */
static void finish_lane(struct ring_lane *lane, uint32_t kind, const uint8_t *data, size_t n)
{
    struct ngd_ring *ring = lane->ring;
    struct ngd_ring_lane_words *words = &ring->words->lanes[lane->index];
    const uint32_t number = lane->number;

    if (kind == NGD_RING_ELSEWHERE)
        (void)ngd_call_trace_take(&lane->pub); /* nothing ran: the call over gRPC has the trace */
    else
        ngd_call_trace_answered(&lane->pub);
    if (n)
        memcpy(ring->words->answers[lane->index], data, n);
    words->kind = kind;
    words->n_answer = (uint32_t)n;
    lane->reserved = NULL;
    ngd_arena_trim(&lane->pub.arena, KEEP_BYTES);
    ngd_rpc_server_count_busy(lane->pub.daemon->rpc, -1);
    if (lane->entered)
        ngd_session_leave(lane->pub.session);
    lane->entered = false;
    atomic_store_explicit(&lane->busy, false, memory_order_release);
    atomic_store(&words->answered, number);
    wake_client(words);
    ring_unref(ring);
}

static void lane_ref(struct ngd_call *call)
{
    ring_ref(lane_of(call)->ring);
}

static void lane_unref(struct ngd_call *call)
{
    ring_unref(lane_of(call)->ring);
}

static uint8_t *lane_reserve(struct ngd_call *call, size_t max, ngd_status_t *status_p, struct ngd_diag *diag)
{
    struct ring_lane *lane = lane_of(call);

    lane->reserved = NULL;
    if (max > NGD_RING_MESSAGE) {
        call->elsewhere = true;
        *status_p = ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE, "the answer does not fit into the ring");
        return NULL;
    }
    lane->reserved = ngd_arena_alloc(&call->arena, max);
    *status_p = lane->reserved ? NGD_OK : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for an answer");
    return lane->reserved;
}

static void lane_reply(struct ngd_call *call, size_t n)
{
    struct ring_lane *lane = lane_of(call);

    if (call->elsewhere)
        finish_lane(lane, NGD_RING_ELSEWHERE, NULL, 0);
    else
        finish_lane(lane, NGD_RING_ANSWER, lane->reserved, n);
}

static void lane_fail(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ring_lane *lane = lane_of(call);
    Npugraph__V1__ReplayError error = NPUGRAPH__V1__REPLAY_ERROR__INIT;
    const char *text = diag && diag->status != NGD_OK && diag->text[0] ? diag->text : ngd_status_text(status);
    uint8_t data[sizeof(diag->text) + 256];

    if (call->elsewhere) {
        finish_lane(lane, NGD_RING_ELSEWHERE, NULL, 0);
        return;
    }
    status = status == NGD_OK ? NGD_ERR_INTERNAL : status; /* as rpc_call_fail */
    ngd_call_trace_fail(call, status, text);
    ngd_metric_row_add(ngd_metric_row(NGD_M_RPC_ERRORS, ngd_status_name(status)), 1);
    error.code = ngd_status_grpc(status);
    error.reason = (char *)(uintptr_t)ngd_status_name(status);
    error.message = (char *)(uintptr_t)text;
    finish_lane(lane, NGD_RING_FAILED, data, npugraph__v1__replay_error__pack(&error, data));
}

/* The answer of a step. A client asks for what may be large over gRPC. */
static void lane_answer(struct ngd_call *call, const ProtobufCMessage *msg)
{
    const size_t n = protobuf_c_message_get_packed_size(msg);
    struct ngd_diag diag = {0};
    ngd_status_t status;
    uint8_t *p = lane_reserve(call, n, &status, &diag);

    call->elsewhere = false; /* what the request asked for is done: it must not be repeated */
    if (!p) {
        lane_fail(call, status, &diag);
        return;
    }
    protobuf_c_message_pack(msg, p);
    lane_reply(call, n);
}

static const struct ngd_call_transport lane_transport = {.ref = lane_ref,
                                                         .unref = lane_unref,
                                                         .reserve = lane_reserve,
                                                         .reply_reserved = lane_reply,
                                                         .answer = lane_answer,
                                                         .fail = lane_fail};

/* ---- requests -------------------------------------------------------------------------------------------- */

/* Checks and unpacks the copied message, as rpc_recv.c does. */
static ngd_status_t prepare_message(struct ring_lane *lane, struct ngd_raw_message *raw, const void **msg_p,
                                    struct ngd_diag *diag)
{
    const struct ngd_method *method = lane->pub.method;

    if (ngd_daemon_state(lane->pub.daemon) != NGD_DAEMON_SERVING)
        return ngd_diag_set(diag, NGD_ERR_DRAINING, "the daemon is draining; use another one");
    lane->entered = ngd_session_enter(lane->pub.session);
    if (!lane->entered)
        return NGD_ERR_SESSION_MOVED;
    *msg_p = raw;
    if (ngd_method_is_raw(method))
        return NGD_OK;
    return ngd_wire_unpack(method->request, raw->data, raw->n, &lane->pub.arena, msg_p, diag);
}

static void deliver(struct ring_lane *lane, const uint8_t *data, size_t n)
{
    const struct ngd_piece piece = {data, n};
    struct ngd_raw_message raw = {data, n, &piece, 1};
    const struct ngd_rpc_ops *ops = lane->pub.method->ops;
    struct ngd_diag diag;
    const void *msg;
    ngd_status_t status;

    diag.status = NGD_OK; /* only the status: the text is a kilobyte */
    diag.text[0] = '\0';
    status = prepare_message(lane, &raw, &msg, &diag);
    if (status == NGD_OK)
        ops->request(&lane->pub, msg);
    else if (status == NGD_ERR_INVALID_ARGUMENT && ops->refused)
        ops->refused(&lane->pub, status, &diag);
    else
        ngd_call_fail(&lane->pub, status, &diag);
}

bool ring_lane_take(struct ring_lane *lane)
{
    struct ngd_ring *ring = lane->ring;
    const volatile struct ngd_ring_lane_words *words = &ring->words->lanes[lane->index];
    const uint32_t number = words->number, method = words->method, n = words->n_request; /* each is read once */
    uint8_t *copy;

    if (atomic_load_explicit(&lane->busy, memory_order_acquire) || method >= NGD_RING_METHODS || n > NGD_RING_MESSAGE)
        return false;
    if (lane->pub.method != ring->rings->methods[method]) {
        forget_state(lane);
        lane->pub.method = ring->rings->methods[method];
    }
    lane->number = number;
    lane->told = lane->pub.elsewhere = false;
    atomic_store(&lane->pub.cancelled, false);
    atomic_store_explicit(&lane->busy, true, memory_order_relaxed);
    ring_ref(ring);
    ngd_rpc_server_count_busy(lane->pub.daemon->rpc, 1);
    lane->pub.arrived = ngd_now();
    copy = ngd_arena_alloc(&lane->pub.arena, n + 1u);
    if (!copy) {
        ngd_call_fail(&lane->pub, NGD_ERR_NO_MEMORY, NULL);
        return true;
    }
    memcpy(copy, ring->words->requests[lane->index], n);
    deliver(lane, copy, n);
    return true;
}

void ring_lane_cancel(struct ring_lane *lane)
{
    if (!atomic_load_explicit(&lane->busy, memory_order_acquire)) {
        forget_state(lane);
        return;
    }
    if (lane->told)
        return;
    lane->told = true;
    atomic_store(&lane->pub.cancelled, true);
    if (lane->pub.method->ops->cancelled)
        lane->pub.method->ops->cancelled(&lane->pub);
}
