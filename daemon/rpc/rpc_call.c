/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One RPC from arrival to status: its life, its beginning and its end. rpc_recv.c has the messages that arrive,
 * rpc_send.c those that go out.
 *
 *   posted -> open -> [message with the handler -> answered]* -> finished -> status out -> released
 *
 * The batches of a call:
 *
 *   - close: RECV_CLOSE, alone, from the start; it reports a cancellation while work is going on;
 *   - recv: streams; the first is {SEND_INITIAL_METADATA, RECV_MESSAGE}; LOCKSTEP answers with {SEND_MESSAGE,
 *     RECV_MESSAGE}, one event per step;
 *   - send: SERVER_STREAM and DUPLEX; one message, the next waits in a queue;
 *   - status: {[SEND_INITIAL_METADATA], [SEND_MESSAGE], SEND_STATUS}, once.
 *
 * After a cancellation gRPC still takes batches and completes them without success; nothing here depends on it.
 */
#include "base/log.h"
#include "base/metrics.h"
#include "base/tsan.h"
#include "daemon/audit.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/rpc/call_trace.h"
#include "daemon/rpc/rpc_int.h"
#include "daemon/rpc/rpc_trace.h"
#include "daemon/rpc/rpc_who.h"
#include "daemon/session_move.h"
#include "proto/google_rpc.pb-c.h"
#include <stdio.h>
#include <string.h>

#define ARENA_BLOCK     2048
#define REASON_KEY      "npugraph-reason"
#define DETAILS_KEY     "grpc-status-details-bin"
#define ERROR_DOMAIN    "npugraph.v1"
#define ERROR_INFO_TYPE "type.googleapis.com/google.rpc.ErrorInfo"

/* ---- life ---------------------------------------------------------------------------------------------- */

static void on_close(struct rpc_call *call, bool ok);
static void on_status(struct rpc_call *call, bool ok);
static const struct ngd_client_stream_ops stream_ops;

static void init(struct rpc_call *call, struct rpc_calls *calls)
{
    memset(call, 0, sizeof(*call));
    call->calls = calls;
    call->pub.daemon = calls->daemon;
    ngd_mutex_init(&call->lock, NGD_RANK_STREAM_CALL);
    ngd_arena_init(&call->pub.arena, ARENA_BLOCK);
    ngd_arena_init(&call->pub.life, ARENA_BLOCK);
    ngd_list_init(&call->member.open_link);
    call->pub.stream.ops = &stream_ops;
    ngd_list_init(&call->pub.stream.link);
    grpc_metadata_array_init(&call->metadata);
    grpc_call_details_init(&call->details);
    call->on_close = (struct rpc_tag){on_close, call};
    call->on_recv = (struct rpc_tag){rpc_on_recv, call};
    call->on_send = (struct rpc_tag){rpc_on_send, call};
    call->on_status = (struct rpc_tag){on_status, call};
}

static void destroy_call(struct rpc_call *call)
{
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    ngd_arena_fini(&call->pub.arena);
    ngd_arena_fini(&call->pub.life);
    ngd_mutex_fini(&call->lock);
    ngd_free(call);
}

static struct rpc_call *of_member(struct rpc_member *member)
{
    return member ? ngd_container_of(member, struct rpc_call, member) : NULL;
}

struct rpc_call *rpc_call_take(struct rpc_calls *calls)
{
    struct rpc_call *call = of_member(rpc_calls_take(calls));

    if (!call) {
        call = NGD_NEW(struct rpc_call);
        if (!call)
            return NULL;
        init(call, calls);
    }
    atomic_store(&call->member.refs, 1);
    atomic_fetch_add_explicit(&calls->live, 1, memory_order_relaxed);
    return call;
}

void rpc_call_release(struct rpc_call *call)
{
    struct rpc_calls *calls = call->calls;

    if (call->admitted)
        rpc_calls_leave(calls);
    call->admitted = false;
    call->pub.method = NULL;
    if (!rpc_calls_keep(calls, &call->member))
        destroy_call(call);
    atomic_fetch_sub_explicit(&calls->live, 1, memory_order_release); /* last: the stop of the server waits for it */
}

void rpc_call_empty_pool(struct rpc_calls *calls)
{
    struct rpc_call *call;

    while ((call = of_member(rpc_calls_take(calls))))
        destroy_call(call);
}

static void ref(struct rpc_call *call)
{
    atomic_fetch_add_explicit(&call->member.refs, 1, memory_order_relaxed);
}

void rpc_call_drop_message(struct rpc_call *call)
{
    if (call->message) {
        grpc_byte_buffer_destroy(call->message);
        call->message = NULL;
    }
    ngd_free(call->flat);
    call->flat = NULL;
    ngd_charge_end(&call->charge);
    ngd_arena_trim(&call->pub.arena, RPC_KEEP_STREAM);
}

void rpc_call_drop_reserved(struct rpc_call *call)
{
    if (call->has_reserved)
        grpc_slice_unref(call->reserved);
    call->has_reserved = false;
}

static void drop_answer(struct rpc_call *call)
{
    if (call->has_answer) {
        NGD_TSAN_GIVE(GRPC_SLICE_START_PTR(call->answer));
        grpc_slice_unref(call->answer);
    }
    call->has_answer = false;
}

/* Removes what one use of the object left behind; the object itself goes back to the pool. No other thread has it
 * now. */
static void scrub(struct rpc_call *call) NGD_NO_THREAD_SAFETY
{
    rpc_call_drop_message(call);
    rpc_call_drop_reserved(call);
    drop_answer(call);
    while (call->out_head) {
        struct rpc_out *out = call->out_head;

        call->out_head = out->next;
        grpc_byte_buffer_destroy(out->buffer);
        ngd_free(out);
    }
    call->out_tail = NULL;
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    if (call->payload)
        grpc_byte_buffer_destroy(call->payload);
    call->received = call->payload = NULL;
    ngd_free(call->end_text);
    call->end_text = NULL;
    call->state = (struct rpc_state){0};
    call->counted_busy = call->entered = false;
    call->end_status = call->lost = NGD_OK;
    call->member.end_asked = false;
    ngd_arena_trim(&call->pub.arena, ARENA_BLOCK); /* hundreds of these objects are in the pool */
    ngd_arena_trim(&call->pub.life, ARENA_BLOCK);
    call->pub.stream.resumable = false;
    call->pub.state = NULL;
    call->pub.request_id[0] = '\0';
    call->pub.wrap = NULL;
    call->pub.trace_parent = NULL;
    call->pub.trace = NULL;
    call->pub.trace_room = NULL;
    call->pub.object = NULL;
    call->pub.session = ngd_session_unref(call->pub.session);
    rpc_who_forget(call);
}

void rpc_call_unref(struct rpc_call *call)
{
    if (atomic_fetch_sub_explicit(&call->member.refs, 1, memory_order_acq_rel) != 1)
        return;
    if (call->pub.method && call->pub.method->ops->release)
        call->pub.method->ops->release(&call->pub);
    scrub(call);
    if (call->core) {
        grpc_call_unref(call->core);
        call->core = NULL;
    }
    rpc_call_release(call);
}

struct ngd_call *ngd_call_ref(struct ngd_call *pub)
{
    if (pub->transport)
        pub->transport->ref(pub);
    else
        ref(rpc_call_of(pub));
    return pub;
}

void ngd_call_unref(struct ngd_call *pub)
{
    if (pub && pub->transport)
        pub->transport->unref(pub);
    else if (pub)
        rpc_call_unref(rpc_call_of(pub));
}

/* gRPC refuses a batch only for a mistake of ours; the call is abandoned then. */
bool rpc_call_start(struct rpc_call *call, const grpc_op *ops, size_t n, struct rpc_tag *tag)
{
    static struct ngd_log_limit limit;
    grpc_call_error error;

    ref(call);
    NGD_TSAN_GIVE(tag);
    error = grpc_call_start_batch(call->core, ops, n, tag, NULL);
    if (error == GRPC_CALL_OK)
        return true;
    ngd_log_limited(&limit, NGD_LOG_ERROR, "rpc", "gRPC refused a batch: %s", grpc_call_error_to_string(error));
    grpc_call_cancel(call->core, NULL);
    rpc_call_unref(call);
    return false;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static void log_failure(struct rpc_call *call, ngd_status_t status, const char *text)
{
    static struct ngd_log_limit limit = {.most = NGD_LOG_LIMIT_CALL};
    /* Calls that clients cancelled are logged only for debugging; other failures up to the rate limit. */
    ngd_log_level_t level = status == NGD_ERR_CANCELLED ? NGD_LOG_DEBUG : NGD_LOG_INFO;
    const char *path = call->pub.method ? call->pub.method->path : "unknown method";
    char identity[NGD_LOG_VALUE_MAX], peer[NGD_LOG_VALUE_MAX];

    if (level > ngd_log_get_level())
        return;
    ngd_log_limited(&limit, level, "rpc", "%s failed: status=%d reason=%s session=%llu identity=%s peer=%s: %s", path,
                    ngd_status_grpc(status), ngd_status_name(status),
                    (unsigned long long)(call->pub.session ? ngd_session_id(call->pub.session) : 0),
                    ngd_log_value(call->pub.identity ? call->pub.identity->name : NULL, identity),
                    ngd_log_value(call->pub.peer, peer), text);
}

/* The opening of a session is written when it is opened; its end only if that is an error. */
static void audit_call(struct rpc_call *call, ngd_status_t status, const char *text)
{
    const struct ngd_method *method = call->pub.method;
    const bool ended = method && method->kind == NGD_RPC_DUPLEX && (status == NGD_OK || status == NGD_ERR_CANCELLED);
    const struct ngd_audit_event event = {
        .identity = call->pub.identity ? call->pub.identity->name : NULL,
        .peer = call->pub.peer,
        .method = method ? method->path + 1 : NULL,
        .object = call->pub.object,
        .text = text,
        .status = status,
        .session = call->pub.session ? ngd_session_id(call->pub.session) : 0,
    };

    if (ngd_audit_is_refusal(status) || (method && method->audit && !ended))
        ngd_audit_write(call->pub.daemon->audit, &event);
}

static void account_call(struct rpc_call *call, ngd_status_t status, const char *text)
{
    const struct ngd_method *method = call->pub.method;
    const ngd_nsec_t now = ngd_now();
    struct ngd_trace_record *trace;

    if (call->pub.daemon->audit)
        audit_call(call, status, text);
    ngd_metric_row_add(call->calls->rows[call->method_index], 1);
    if (method && method->kind == NGD_RPC_UNARY)
        ngd_metric_observe(NGD_M_RPC_SECONDS, now - call->pub.arrived);
    trace = ngd_call_trace_take(&call->pub);
    if (trace)
        ngd_call_trace_end(&call->pub, trace, now, status, text);
    if (status != NGD_OK) {
        ngd_metric_row_add(ngd_metric_row(NGD_M_RPC_ERRORS, ngd_status_name(status)), 1);
        log_failure(call, status, text);
    }
}

/* Packs a google.rpc.Status with an ErrorInfo, the value of grpc-status-details-bin. */
static grpc_slice make_details(ngd_status_t status, const char *text)
{
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__DetailAny any = GOOGLE__RPC__DETAIL_ANY__INIT, *list[1] = {&any};
    Google__Rpc__Status message = GOOGLE__RPC__STATUS__INIT;
    uint8_t packed[256];
    grpc_slice slice;

    info.reason = (char *)(uintptr_t)ngd_status_name(status);
    info.domain = (char *)(uintptr_t)ERROR_DOMAIN;
    any.type_url = (char *)(uintptr_t)ERROR_INFO_TYPE;
    any.value.data = packed;
    any.value.len = google__rpc__error_info__get_packed_size(&info) <= sizeof(packed)
                        ? google__rpc__error_info__pack(&info, packed)
                        : 0;
    message.code = ngd_status_grpc(status);
    message.message = (char *)(uintptr_t)text;
    message.n_details = 1;
    message.details = list;
    slice = grpc_slice_malloc(google__rpc__status__get_packed_size(&message));
    google__rpc__status__pack(&message, GRPC_SLICE_START_PTR(slice));
    return slice;
}

static void put_trailing(struct rpc_call *call, ngd_status_t status, const char *text)
{
    call->status_details = grpc_slice_from_copied_string(text);
    memset(call->trailing, 0, sizeof(call->trailing));
    call->trailing[0].key = grpc_slice_from_static_string(REASON_KEY);
    call->trailing[0].value = grpc_slice_from_static_string(ngd_status_name(status));
    call->trailing[1].key = grpc_slice_from_static_string(DETAILS_KEY);
    call->trailing[1].value = make_details(status, text);
    call->n_trailing = 2;
}

bool rpc_call_count_busy(struct rpc_call *call) NGD_REQUIRES(call->lock)
{
    if (call->pub.session && !ngd_session_enter(call->pub.session))
        return false;
    call->entered = call->pub.session != NULL;
    call->counted_busy = call->pub.method->class == NGD_RPC_WORK;
    if (call->counted_busy)
        rpc_calls_count_busy(call->calls, 1);
    return true;
}

void rpc_call_uncount_busy(struct rpc_call *call) NGD_REQUIRES(call->lock)
{
    if (call->counted_busy)
        rpc_calls_count_busy(call->calls, -1);
    if (call->entered)
        ngd_session_leave(call->pub.session);
    call->counted_busy = call->entered = false;
}

/* Takes a claim of the end, if it is the caller's. */
static bool take_claim(struct rpc_call *call, bool mine) NGD_REQUIRES(call->lock)
{
    if (!mine)
        return false;
    call->begins_with_end = rpc_state_begin(&call->state);
    rpc_call_uncount_busy(call);
    return true;
}

bool rpc_call_claim_end(struct rpc_call *call) NGD_REQUIRES(call->lock)
{
    return take_claim(call, rpc_state_claim(&call->state));
}

static bool rpc_call_claim_failure(struct rpc_call *call) NGD_REQUIRES(call->lock)
{
    return take_claim(call, rpc_state_claim_failure(&call->state));
}

void rpc_call_send_status(struct rpc_call *call, ngd_status_t status, const char *text,
                          grpc_byte_buffer *last) NGD_NO_THREAD_SAFETY
{
    grpc_op ops[3] = {0}, *op = ops;

    account_call(call, status, text);
    if (call->begins_with_end)
        (op++)->op = GRPC_OP_SEND_INITIAL_METADATA;
    if (last) {
        op->op = GRPC_OP_SEND_MESSAGE;
        (op++)->data.send_message.send_message = last;
    }
    call->last_buffer = last;
    op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    op->data.send_status_from_server.status = (grpc_status_code)ngd_status_grpc(status);
    call->n_trailing = 0;
    if (status != NGD_OK) {
        put_trailing(call, status, text);
        op->data.send_status_from_server.status_details = &call->status_details;
        op->data.send_status_from_server.trailing_metadata = call->trailing;
        op->data.send_status_from_server.trailing_metadata_count = call->n_trailing;
    }
    op++;
    rpc_call_start(call, ops, (size_t)(op - ops), &call->on_status);
}

void rpc_call_send_end_status(struct rpc_call *call, grpc_byte_buffer *last) NGD_NO_THREAD_SAFETY
{
    ngd_status_t status = call->end_status;

    rpc_call_send_status(call, status, call->end_text ? call->end_text : ngd_status_text(status), last);
}

void rpc_call_end(struct rpc_call *call, ngd_status_t status, const char *text, grpc_byte_buffer *last)
{
    bool mine;

    ngd_mutex_lock(&call->lock);
    mine = rpc_call_claim_end(call);
    ngd_mutex_unlock(&call->lock);
    if (mine)
        rpc_call_send_status(call, status, text, last);
    else if (last)
        grpc_byte_buffer_destroy(last);
}

void rpc_call_fail(struct rpc_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    const char *text = diag && diag->status != NGD_OK && diag->text[0] ? diag->text : ngd_status_text(status);
    bool mine;

    if (status == NGD_OK)
        status = NGD_ERR_INTERNAL; /* a failure must not look like an empty success */
    ngd_mutex_lock(&call->lock);
    mine = rpc_call_claim_failure(call);
    ngd_mutex_unlock(&call->lock);
    if (mine)
        rpc_call_send_status(call, status, text, NULL);
}

/* Takes the handler's reference, which its answer gives up. */
void rpc_call_give_to_handler(struct rpc_call *call)
{
    ref(call);
    ngd_mutex_lock(&call->lock);
    rpc_state_owe(&call->state);
    ngd_mutex_unlock(&call->lock);
}

void rpc_call_handler_done(struct rpc_call *call)
{
    bool owed;

    ngd_mutex_lock(&call->lock);
    owed = rpc_state_answered(&call->state);
    ngd_mutex_unlock(&call->lock);
    if (owed)
        rpc_call_unref(call);
}

void ngd_call_fail(struct ngd_call *pub, ngd_status_t status, const struct ngd_diag *diag)
{
    struct rpc_call *call = rpc_call_of(pub);

    if (pub->transport) {
        pub->transport->fail(pub, status, diag);
        return;
    }
    if (pub->wrap)
        pub->wrap->failed(pub, status, diag);
    rpc_call_fail(call, status, diag);
    rpc_call_handler_done(call);
}

/* Tells the wrapper that the call was cancelled, if the handler does not have the call. True: it was told. If the
 * handler gets the call after all, ngd_call_served tells it. */
static bool tell_wrap(struct rpc_call *call)
{
    struct ngd_call_wrap *wrap = call->pub.wrap;
    int unserved = NGD_CALL_UNSERVED;

    if (!wrap || !atomic_compare_exchange_strong(&wrap->served, &unserved, NGD_CALL_UNTOLD))
        return false;
    wrap->cancelled(&call->pub);
    return true;
}

void ngd_call_served(struct ngd_call *pub)
{
    struct rpc_call *call = rpc_call_of(pub);
    bool owed;

    if (atomic_exchange(&pub->wrap->served, NGD_CALL_SERVED) != NGD_CALL_UNTOLD)
        return;
    ngd_mutex_lock(&call->lock);
    owed = rpc_state_is_busy(&call->state);
    ngd_mutex_unlock(&call->lock);
    if (owed && pub->method->ops->cancelled)
        pub->method->ops->cancelled(pub);
}

/* Tells a handler that still owes an answer that nobody waits for it any more. */
static void tell_handler(struct rpc_call *call)
{
    const struct ngd_method *method = call->pub.method;
    bool tell;

    ngd_mutex_lock(&call->lock);
    tell = rpc_state_tell(&call->state, method ? method->kind : NGD_RPC_UNARY);
    ngd_mutex_unlock(&call->lock);
    if (!tell)
        return;
    atomic_store(&call->pub.cancelled, true);
    if (!tell_wrap(call) && method->ops->cancelled)
        method->ops->cancelled(&call->pub);
}

/* Releases the memory of the status batch. gRPC's part of the thread that started the end may have read it until just
 * before the event, which ThreadSanitizer does not see. */
static void drop_end(struct rpc_call *call)
{
    NGD_TSAN_UNSEEN_BEGIN();
    if (call->last_buffer)
        grpc_byte_buffer_destroy(call->last_buffer);
    call->last_buffer = NULL;
    if (call->n_trailing) {
        grpc_slice_unref(call->status_details);
        grpc_slice_unref(call->trailing[1].value);
    }
    call->n_trailing = 0;
    NGD_TSAN_UNSEEN_END();
}

static void on_status(struct rpc_call *call, bool ok)
{
    (void)ok;
    drop_end(call);
    if (call->pub.method && call->pub.method->kind != NGD_RPC_UNARY) {
        rpc_calls_closed(call->calls, &call->member);
        if (call->pub.session)
            ngd_session_detach(call->pub.session, &call->pub.stream);
        tell_handler(call);
    }
    rpc_call_unref(call);
}

static void on_close(struct rpc_call *call, bool ok)
{
    (void)ok; /* always true; close_flag has the result */
    if (call->close_flag) {
        atomic_store(&call->pub.cancelled, true);
        rpc_who_withdrew(call);
        tell_handler(call);
    }
    rpc_call_unref(call);
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

static void start_close(struct rpc_call *call)
{
    grpc_op op = {0};

    op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op.data.recv_close_on_server.cancelled = &call->close_flag;
    rpc_call_start(call, &op, 1, &call->on_close);
}

static void start_stream(struct rpc_call *call)
{
    grpc_op ops[2] = {0};

    ngd_mutex_lock(&call->lock);
    if (call->state.end != RPC_END_ENDED) {
        ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
        ops[1].op = GRPC_OP_RECV_MESSAGE;
        ops[1].data.recv_message.recv_message = &call->received;
        rpc_state_begin(&call->state);
        rpc_call_start(call, ops, 2, &call->on_recv);
    }
    ngd_mutex_unlock(&call->lock);
}

/* False: it is refused, as its session moves. Messages of a LOCKSTEP call are counted one by one. */
static bool count_work(struct rpc_call *call)
{
    bool ok;

    if (call->pub.method->class == NGD_RPC_CONTROL || call->pub.method->kind == NGD_RPC_LOCKSTEP)
        return true;
    ngd_mutex_lock(&call->lock);
    ok = rpc_call_count_busy(call);
    ngd_mutex_unlock(&call->lock);
    return ok;
}

static void open_admitted(struct rpc_call *call)
{
    ngd_rpc_kind_t kind = call->pub.method->kind;

    if (!count_work(call)) {
        rpc_call_fail(call, NGD_ERR_SESSION_MOVED, NULL);
        return;
    }
    if (kind != NGD_RPC_UNARY) {
        rpc_calls_opened(call->calls, &call->member);
        call->pub.stream.resumable = call->pub.method->ops->resumable;
        if (call->pub.session)
            ngd_session_attach(call->pub.session, &call->pub.stream);
    }
    if (kind != NGD_RPC_UNARY && kind != NGD_RPC_SERVER_STREAM) {
        start_stream(call);
        return;
    }
    call->message = call->payload;
    call->payload = NULL;
    if (call->message)
        rpc_deliver(call);
    else
        rpc_call_fail(call, NGD_ERR_MALFORMED_MESSAGE, NULL);
}

void rpc_call_open(struct rpc_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    if (ngd_tracer_on(call->pub.daemon->tracer))
        rpc_trace_open(call);
    call->close_flag = 0;
    atomic_store(&call->pub.cancelled, false);
    start_close(call);
    if (status == NGD_OK)
        open_admitted(call);
    else
        rpc_call_fail(call, status, diag);
    rpc_call_unref(call); /* the posted request's */
}

/* ---- as a session's stream ----------------------------------------------------------------------------- */

static struct ngd_call *of_stream(struct ngd_client_stream *stream)
{
    return ngd_container_of(stream, struct ngd_call, stream);
}

static void stream_ref(struct ngd_client_stream *stream)
{
    ngd_call_ref(of_stream(stream));
}

static void stream_unref(struct ngd_client_stream *stream)
{
    ngd_call_unref(of_stream(stream));
}

static ngd_status_t stream_send(struct ngd_client_stream *stream, const ProtobufCMessage *msg)
{
    return ngd_call_send(of_stream(stream), msg);
}

static void stream_finish(struct ngd_client_stream *stream)
{
    ngd_call_finish(of_stream(stream));
}

static void stream_end(struct ngd_client_stream *stream, ngd_status_t status, const char *text)
{
    ngd_call_end(of_stream(stream), status, text);
}

static const struct ngd_client_stream_ops stream_ops = {
    .ref = stream_ref, .unref = stream_unref, .send = stream_send, .finish = stream_finish, .end = stream_end};
