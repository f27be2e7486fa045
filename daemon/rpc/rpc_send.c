/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a call that go out: they are packed, queued if several may be under way, and followed by the end. */
#include "base/fault.h"
#include "base/tsan.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/rpc/call_trace.h"
#include "daemon/rpc/rpc_int.h"
#include <assert.h>
#include <string.h>

#define SMALL_SLICE (16u << 10) /* up to this size gRPC's allocator is used, which may abort without memory */

/* Header in front of the bytes of a large message. */
struct out_head {
    struct ngd_charge charge;
};
static_assert(sizeof(struct out_head) % 16 == 0, "what follows is aligned for anything");

/* Frees a large message. Runs on the thread of gRPC that has sent the bytes. */
static void free_slice(void *p)
{
    struct out_head *head = p;

    NGD_TSAN_TAKE(head + 1);
    ngd_charge_end(&head->charge);
    ngd_free(head);
}

static ngd_status_t make_slice(struct rpc_call *call, size_t n, grpc_slice *slice_p, struct ngd_diag *diag)
{
    uint64_t limit = call->pub.daemon->options.max_message;
    struct out_head *head;
    struct ngd_charge charge = {0};
    ngd_status_t status = NGD_OK;

    if (n > limit)
        return ngd_diag_set(
            diag, NGD_ERR_MESSAGE_TOO_LARGE,
            "the answer would have %zu bytes, max-message is %llu; request fewer outputs, or read a buffer", n,
            (unsigned long long)limit);
    if (n <= SMALL_SLICE) {
        *slice_p = grpc_slice_malloc(n);
        return NGD_OK;
    }
    if (n > RPC_CHARGE_FROM)
        status = ngd_charge_begin(&charge, ngd_identity_payer(call->pub.identity, NGD_QUOTA_HOST_BYTES), n, diag);
    if (status != NGD_OK)
        return status;
    head = ngd_malloc(sizeof(*head) + n);
    if (!head) {
        ngd_charge_end(&charge);
        return rpc_no_memory(diag);
    }
    head->charge = ngd_charge_move(&charge);
    *slice_p = grpc_slice_new_with_user_data(head + 1, n, free_slice, head);
    return NGD_OK;
}

static ngd_status_t pack_slice(struct rpc_call *call, const ProtobufCMessage *msg, grpc_slice *slice_p,
                               struct ngd_diag *diag)
{
    ngd_status_t status = make_slice(call, protobuf_c_message_get_packed_size(msg), slice_p, diag);

    if (status == NGD_OK)
        protobuf_c_message_pack(msg, GRPC_SLICE_START_PTR(*slice_p));
    return status;
}

static grpc_byte_buffer *buffer_of(grpc_slice slice)
{
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);

    NGD_TSAN_GIVE(GRPC_SLICE_START_PTR(slice));
    grpc_slice_unref(slice);
    return buffer;
}

static ngd_status_t pack_reply(struct rpc_call *call, const ProtobufCMessage *msg, grpc_byte_buffer **buffer_p,
                               struct ngd_diag *diag)
{
    grpc_slice slice;
    ngd_status_t status = pack_slice(call, msg, &slice, diag);

    if (status == NGD_OK)
        *buffer_p = buffer_of(slice);
    return status;
}

uint8_t *ngd_call_reserve(struct ngd_call *pub, size_t max, ngd_status_t *status_p, struct ngd_diag *diag)
{
    struct rpc_call *call = rpc_call_of(pub);

    if (pub->transport)
        return pub->transport->reserve(pub, max, status_p, diag);
    rpc_call_drop_reserved(call);
    *status_p = make_slice(call, max, &call->reserved, diag);
    if (*status_p != NGD_OK)
        return NULL;
    call->has_reserved = true;
    return GRPC_SLICE_START_PTR(call->reserved);
}

/* Turns the reserved slice into a message. */
static grpc_byte_buffer *take_reserved(struct rpc_call *call)
{
    grpc_byte_buffer *buffer;

    NGD_TSAN_GIVE(GRPC_SLICE_START_PTR(call->reserved));
    buffer = grpc_raw_byte_buffer_create(&call->reserved, 1);
    rpc_call_drop_reserved(call);
    return buffer;
}

/* LOCKSTEP: sends the answer and asks for the next message. If an end is pending, sends the answer with the status. */
static void send_answer(struct rpc_call *call, grpc_byte_buffer *buffer)
{
    grpc_op ops[2] = {0};
    bool end, drop;

    ngd_call_trace_answered(&call->pub);
    rpc_call_drop_message(call);
    ngd_mutex_lock(&call->lock);
    rpc_call_uncount_busy(call);
    drop = call->state.end == RPC_END_ENDED;
    end = call->state.end == RPC_END_ENDING && rpc_call_claim_end(call);
    if (!drop && !end) {
        call->sent_buffer = buffer;
        ops[0].op = GRPC_OP_SEND_MESSAGE;
        ops[0].data.send_message.send_message = buffer;
        ops[1].op = GRPC_OP_RECV_MESSAGE;
        ops[1].data.recv_message.recv_message = &call->received;
        rpc_state_answered(&call->state); /* before the next message can arrive; the reference is released below */
        rpc_call_start(call, ops, 2, &call->on_recv);
    }
    ngd_mutex_unlock(&call->lock);
    if (end)
        rpc_call_send_end_status(call, buffer);
    else if (drop)
        grpc_byte_buffer_destroy(buffer);
    if (end || drop)
        rpc_call_handler_done(call);
    else
        rpc_call_unref(call);
}

/* Tells the wrapper the call's answer before the client gets it. The wrapper may share it while it holds the call. */
static void tell_success(struct rpc_call *call, grpc_slice slice)
{
    if (!call->pub.wrap)
        return;
    call->answer = grpc_slice_ref(slice);
    call->has_answer = true;
    call->pub.wrap->succeeded(&call->pub, GRPC_SLICE_START_PTR(call->answer), GRPC_SLICE_LENGTH(call->answer));
}

/* Packs the message that the call succeeds with, and tells the wrapper. False: the call has failed. */
static bool pack_answer(struct rpc_call *call, const ProtobufCMessage *msg, grpc_slice *slice_p)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = pack_slice(call, msg, slice_p, &diag);

    if (status != NGD_OK) {
        ngd_call_fail(&call->pub, status, &diag);
        return false;
    }
    tell_success(call, *slice_p);
    return true;
}

void ngd_call_reply(struct ngd_call *pub, const ProtobufCMessage *msg)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_slice slice;

    if (!pack_answer(call, msg, &slice))
        return;
    rpc_call_end(call, NGD_OK, "", buffer_of(slice));
    rpc_call_handler_done(call);
}

void ngd_call_reply_reserved(struct ngd_call *pub, size_t n)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_byte_buffer *buffer;

    if (pub->transport) {
        pub->transport->reply_reserved(pub, n);
        return;
    }
    GRPC_SLICE_SET_LENGTH(call->reserved, n);
    tell_success(call, call->reserved);
    buffer = take_reserved(call);
    if (pub->method->kind == NGD_RPC_LOCKSTEP) {
        send_answer(call, buffer);
        return;
    }
    rpc_call_end(call, NGD_OK, "", buffer);
    rpc_call_handler_done(call);
}

void ngd_call_reply_encoded(struct ngd_call *pub, const uint8_t *data, size_t n)
{
    struct ngd_diag diag = {0};
    ngd_status_t status;
    uint8_t *p = ngd_call_reserve(pub, n, &status, &diag);

    if (!p) {
        ngd_call_fail(pub, status, &diag);
        return;
    }
    memcpy(p, data, n);
    ngd_call_reply_reserved(pub, n);
}

void ngd_call_answer(struct ngd_call *pub, const ProtobufCMessage *msg)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_byte_buffer *buffer;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (pub->transport) {
        pub->transport->answer(pub, msg);
        return;
    }
    status = pack_reply(call, msg, &buffer, &diag);
    if (status == NGD_OK)
        send_answer(call, buffer);
    else
        ngd_call_fail(pub, status, &diag);
}

static void start_send(struct rpc_call *call, grpc_byte_buffer *buffer) NGD_REQUIRES(call->lock)
{
    grpc_op ops[2] = {0}, *op = ops;

    if (rpc_state_begin(&call->state))
        (op++)->op = GRPC_OP_SEND_INITIAL_METADATA;
    op->op = GRPC_OP_SEND_MESSAGE;
    (op++)->data.send_message.send_message = buffer;
    call->sent_buffer = buffer;
    rpc_state_send(&call->state);
    if (rpc_call_start(call, ops, (size_t)(op - ops), &call->on_send))
        return;
    grpc_byte_buffer_destroy(buffer);
    call->sent_buffer = NULL;
    rpc_state_send_failed(&call->state);
}

/* Takes buffer. */
static ngd_status_t enqueue_message(struct rpc_call *call, grpc_byte_buffer *buffer) NGD_REQUIRES(call->lock)
{
    bool lost = NGD_FAULT(SEND_LOST);
    struct rpc_out *out;

    if (call->state.out != RPC_OUT_SENDING && !lost) {
        start_send(call, buffer);
        return call->state.out == RPC_OUT_BROKEN ? NGD_ERR_CANCELLED : NGD_OK;
    }
    out = lost ? NULL : NGD_NEW(struct rpc_out);
    if (!out) {
        grpc_byte_buffer_destroy(buffer);
        return NGD_ERR_NO_MEMORY;
    }
    out->buffer = buffer;
    if (call->out_tail)
        call->out_tail->next = out;
    else
        call->out_head = out;
    call->out_tail = out;
    call->state.queued++;
    return NGD_OK;
}

/* Notes that a message is lost: the end of the stream must report it. */
static ngd_status_t lose(struct rpc_call *call, ngd_status_t status)
{
    ngd_mutex_lock(&call->lock);
    call->lost = status;
    ngd_mutex_unlock(&call->lock);
    return status;
}

/* Takes buffer. */
static ngd_status_t send_buffer(struct rpc_call *call, grpc_byte_buffer *buffer)
{
    ngd_status_t status;

    ngd_mutex_lock(&call->lock);
    if (rpc_state_takes_messages(&call->state)) {
        status = enqueue_message(call, buffer);
    } else {
        status = NGD_ERR_CANCELLED;
        grpc_byte_buffer_destroy(buffer);
    }
    ngd_mutex_unlock(&call->lock);
    return status == NGD_OK || status == NGD_ERR_CANCELLED ? status : lose(call, status);
}

ngd_status_t ngd_call_send(struct ngd_call *pub, const ProtobufCMessage *msg)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_byte_buffer *buffer;
    ngd_status_t status = pack_reply(call, msg, &buffer, NULL);

    return status == NGD_OK ? send_buffer(call, buffer) : lose(call, status);
}

ngd_status_t ngd_call_send_reserved(struct ngd_call *pub, size_t n)
{
    struct rpc_call *call = rpc_call_of(pub);

    GRPC_SLICE_SET_LENGTH(call->reserved, n);
    return send_buffer(call, take_reserved(call));
}

ngd_status_t ngd_call_send_borrowed(struct ngd_call *pub, const uint8_t *head, size_t n_head, const void *data,
                                    size_t n, void (*release)(void *user), void *user)
{
    grpc_slice slices[2];
    grpc_byte_buffer *buffer;

    NGD_TSAN_GIVE(user);
    slices[0] = grpc_slice_from_copied_buffer((const char *)head, n_head);
    slices[1] = grpc_slice_new_with_user_data((void *)(uintptr_t)data, n, release, user);
    buffer = grpc_raw_byte_buffer_create(slices, 2);
    grpc_slice_unref(slices[0]);
    grpc_slice_unref(slices[1]);
    return send_buffer(rpc_call_of(pub), buffer);
}

ngd_status_t ngd_call_send_encoded(struct ngd_call *pub, const uint8_t *data, size_t n)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_byte_buffer *buffer;
    grpc_slice slice;
    ngd_status_t status = make_slice(call, n, &slice, NULL);

    if (status != NGD_OK)
        return lose(call, status);
    memcpy(GRPC_SLICE_START_PTR(slice), data, n);
    NGD_TSAN_GIVE(GRPC_SLICE_START_PTR(slice));
    buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return send_buffer(call, buffer);
}

/* Sends the next queued message, or drops it if it would not arrive. False: there is none to send. */
static bool send_next(struct rpc_call *call) NGD_REQUIRES(call->lock)
{
    struct rpc_out *out = call->out_head;

    if (!out || call->state.end == RPC_END_ENDED)
        return false;
    call->out_head = out->next;
    if (!call->out_head)
        call->out_tail = NULL;
    call->state.queued--;
    if (call->state.out == RPC_OUT_BROKEN)
        grpc_byte_buffer_destroy(out->buffer);
    else
        start_send(call, out->buffer);
    ngd_free(out);
    return true;
}

void rpc_on_send(struct rpc_call *call, bool ok)
{
    bool idle, end, read;

    ngd_mutex_lock(&call->lock);
    grpc_byte_buffer_destroy(call->sent_buffer);
    call->sent_buffer = NULL;
    rpc_state_sent(&call->state, ok);
    while (call->state.out != RPC_OUT_SENDING && send_next(call))
        ;
    idle = call->state.out != RPC_OUT_SENDING;
    end = idle && call->state.end == RPC_END_ENDING && rpc_call_claim_end(call);
    idle = idle && call->state.end != RPC_END_ENDED;
    read = rpc_state_resume(&call->state);
    ngd_mutex_unlock(&call->lock);
    if (end)
        rpc_call_send_end_status(call, NULL);
    if (read)
        rpc_start_recv(call);
    if (idle && call->pub.method->ops->sent)
        call->pub.method->ops->sent(&call->pub);
    rpc_call_unref(call);
}

uint32_t ngd_call_unsent(struct ngd_call *pub)
{
    struct rpc_call *call = rpc_call_of(pub);
    uint32_t n;

    ngd_mutex_lock(&call->lock);
    n = rpc_state_unsent(&call->state);
    ngd_mutex_unlock(&call->lock);
    return n;
}

/* Ends the call now, or, if `wait`, after the messages under way. */
static void end_when(struct rpc_call *call, bool wait, ngd_status_t status, const char *text) NGD_RELEASE(call->lock)
{
    bool mine = false;

    if (wait && rpc_state_end_later(&call->state)) {
        call->end_status = status;
        call->end_text = status == NGD_OK ? NULL : ngd_strdup(text); /* NULL: the status's own text is used */
    } else if (call->state.end == RPC_END_OPEN) {
        mine = rpc_call_claim_end(call);
    }
    ngd_mutex_unlock(&call->lock);
    if (mine)
        rpc_call_send_status(call, status, text, NULL);
}

void ngd_call_finish(struct ngd_call *pub)
{
    struct rpc_call *call = rpc_call_of(pub);

    ngd_mutex_lock(&call->lock);
    end_when(call, rpc_state_unsent(&call->state) > 0, call->lost, call->lost ? ngd_status_text(call->lost) : "");
    rpc_call_handler_done(call);
}

void ngd_call_finish_with(struct ngd_call *pub, const ProtobufCMessage *msg)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_slice slice;

    if (!pack_answer(call, msg, &slice))
        return;
    /* If the client is gone, nobody misses the message; if the message is lost, the end reports it. */
    send_buffer(call, buffer_of(slice));
    ngd_call_finish(pub);
}

void ngd_call_reply_as(struct ngd_call *pub, struct ngd_call *first)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_byte_buffer *buffer = buffer_of(grpc_slice_ref(rpc_call_of(first)->answer));

    if (pub->method->kind == NGD_RPC_UNARY) {
        rpc_call_end(call, NGD_OK, "", buffer);
        rpc_call_handler_done(call);
    } else { /* as in ngd_call_finish_with */
        send_buffer(call, buffer);
        ngd_call_finish(pub);
    }
}

void ngd_call_end(struct ngd_call *pub, ngd_status_t status, const char *text)
{
    struct rpc_call *call = rpc_call_of(pub);

    if (pub->method->kind == NGD_RPC_UNARY)
        return;
    ngd_mutex_lock(&call->lock);
    end_when(call,
             pub->method->kind == NGD_RPC_LOCKSTEP ? rpc_state_is_busy(&call->state)
                                                   : rpc_state_unsent(&call->state) > 0,
             status, text);
}
