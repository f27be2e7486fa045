/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One RPC from arrival to status.
 *
 *   posted -> open -> [message with the handler -> answered]* -> finished -> status out -> released
 *
 * The batches of a call:
 *   close   RECV_CLOSE, alone, from the start: it is how a cancellation is seen while work is going on
 *   recv    streams: the first is {SEND_INITIAL_METADATA, RECV_MESSAGE}; LOCKSTEP's answers are {SEND_MESSAGE,
 * RECV_MESSAGE}, one event per step send    SERVER_STREAM and DUPLEX: one message; the next waits in a queue status
 * {[SEND_INITIAL_METADATA], [SEND_MESSAGE], SEND_STATUS}, once After a cancellation gRPC still takes batches and
 * completes them without success; nothing here depends on it.
 */
#include "base/log.h"
#include "base/metrics.h"
#include "base/tsan.h"
#include "daemon/answers.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/rpc_int.h"
#include "daemon/session.h"
#include "daemon/wire_check.h"
#include "proto/google_rpc.pb-c.h"
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ARENA_BLOCK     2048
#define KEEP_ARENA      (64u << 10) /* messages above this give their memory back at once */
#define SMALL_SLICE     (16u << 10) /* up to here gRPC's allocator may abort when there is no memory */
#define UNSENT_MAX      16
#define LOG_LINES       200 /* failed requests per second that get a line of their own */
#define REASON_KEY      "npugraph-reason"
#define DETAILS_KEY     "grpc-status-details-bin"
#define ERROR_DOMAIN    "npugraph.v1"
#define ERROR_INFO_TYPE "type.googleapis.com/google.rpc.ErrorInfo"

/* ---- life ---------------------------------------------------------------------------------------------- */

static void on_close(struct rpc_call *call, bool ok);
static void on_recv(struct rpc_call *call, bool ok);
static void on_send(struct rpc_call *call, bool ok);
static void on_status(struct rpc_call *call, bool ok);

void rpc_call_init(struct rpc_call *call, struct ngd_rpc_server *server)
{
    memset(call, 0, sizeof(*call));
    call->server = server;
    call->pub.daemon = rpc_server_daemon(server);
    ngd_mutex_init(&call->lock, NGD_RANK_STREAM_CALL);
    ngd_arena_init(&call->pub.arena, ARENA_BLOCK);
    ngd_arena_init(&call->pub.life, ARENA_BLOCK);
    ngd_list_init(&call->open_link);
    ngd_list_init(&call->pub.session_link);
    ngd_list_init(&call->pub.answer_link);
    grpc_metadata_array_init(&call->metadata);
    grpc_call_details_init(&call->details);
    call->on_close = (struct rpc_tag){on_close, call};
    call->on_recv = (struct rpc_tag){on_recv, call};
    call->on_send = (struct rpc_tag){on_send, call};
    call->on_status = (struct rpc_tag){on_status, call};
}

void rpc_call_fini(struct rpc_call *call)
{
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    ngd_arena_fini(&call->pub.arena);
    ngd_arena_fini(&call->pub.life);
    ngd_mutex_fini(&call->lock);
}

static void ref(struct rpc_call *call)
{
    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
}

static void drop_message(struct rpc_call *call)
{
    if (call->message) {
        grpc_byte_buffer_destroy(call->message);
        call->message = NULL;
    }
    ngd_free(call->flat);
    call->flat = NULL;
    if (call->message_bytes > KEEP_ARENA)
        ngd_arena_fini(&call->pub.arena);
    else
        ngd_arena_reset(&call->pub.arena);
    call->message_bytes = 0;
}

static void drop_reserved(struct rpc_call *call)
{
    if (call->has_reserved)
        grpc_slice_unref(call->reserved);
    call->has_reserved = false;
}

/* What one use of the object left behind; the object itself goes back to the pool. No other thread has it now. */
static void scrub(struct rpc_call *call) NGD_NO_THREAD_SAFETY
{
    bool large = call->message_bytes > KEEP_ARENA;

    drop_message(call);
    drop_reserved(call);
    while (call->out_head) {
        struct rpc_out *out = call->out_head;

        call->out_head = out->next;
        grpc_byte_buffer_destroy(out->buffer);
        ngd_free(out);
    }
    call->out_tail = NULL;
    call->n_out = 0;
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    if (call->payload)
        grpc_byte_buffer_destroy(call->payload);
    call->received = call->payload = NULL;
    ngd_free(call->end_text);
    call->end_text = NULL;
    call->initial_sent = call->busy = call->sending = call->send_failed = false;
    call->finished = call->finishing = call->counted_busy = false;
    call->owed = call->told = call->paused = false;
    call->end_status = NGD_OK;
    call->end_asked = false;
    if (large)
        ngd_arena_fini(&call->pub.life);
    else
        ngd_arena_reset(&call->pub.life);
    call->pub.state = NULL;
    call->pub.request_id[0] = '\0';
    call->pub.leads = false;
    atomic_store(&call->pub.waits, false);
    call->pub.session = ngd_session_unref(call->pub.session);
    call->pub.identity = ngd_identity_unref(call->pub.identity);
}

static void unref(struct rpc_call *call)
{
    if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (call->pub.method && call->pub.method->ops->release)
        call->pub.method->ops->release(&call->pub);
    scrub(call);
    if (call->core) {
        grpc_call_unref(call->core);
        call->core = NULL;
    }
    rpc_server_release(call);
}

struct ngd_call *ngd_call_ref(struct ngd_call *pub)
{
    ref(rpc_call_of(pub));
    return pub;
}

void ngd_call_unref(struct ngd_call *pub)
{
    if (pub)
        unref(rpc_call_of(pub));
}

/* Starts a batch with a reference of its own. gRPC refuses only what is our mistake; the call is given up then. */
static bool start(struct rpc_call *call, const grpc_op *ops, size_t n, struct rpc_tag *tag)
{
    grpc_call_error error;

    ref(call);
    NGD_TSAN_GIVE(call);
    error = grpc_call_start_batch(call->core, ops, n, tag, NULL);
    if (error == GRPC_CALL_OK)
        return true;
    ngd_error("rpc", "gRPC refused a batch: %s", grpc_call_error_to_string(error));
    grpc_call_cancel(call->core, NULL);
    unref(call);
    return false;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static bool may_log(struct rpc_log_limit *limit)
{
    int64_t second = ngd_now() / NGD_SEC;

    if (atomic_exchange_explicit(&limit->second, second, memory_order_relaxed) != second)
        atomic_store_explicit(&limit->lines, 0, memory_order_relaxed);
    return atomic_fetch_add_explicit(&limit->lines, 1, memory_order_relaxed) < LOG_LINES;
}

static void log_failure(struct rpc_call *call, ngd_status_t status, const char *text)
{
    /* A client that gives up is not worth a line each; the others are, up to what a log can take. */
    ngd_log_level_t level = status == NGD_ERR_CANCELLED ? NGD_LOG_DEBUG : NGD_LOG_INFO;
    const char *path = call->pub.method ? call->pub.method->path : "unknown method";
    char identity[NGD_LOG_VALUE_MAX], peer[NGD_LOG_VALUE_MAX];

    if (level > ngd_log_get_level() || !may_log(rpc_server_log_limit(call->server)))
        return;
    ngd_log_write(level, "rpc", "%s failed: status=%d reason=%s session=%llu identity=%s peer=%s: %s", path,
                  ngd_status_grpc(status), ngd_status_name(status),
                  (unsigned long long)(call->pub.session ? ngd_session_id(call->pub.session) : 0),
                  ngd_log_value(call->pub.identity ? call->pub.identity->name : NULL, identity),
                  ngd_log_value(call->pub.peer, peer), text);
}

static void account(struct rpc_call *call, ngd_status_t status, const char *text)
{
    const struct ngd_method *method = call->pub.method;

    ngd_metric_row_add(rpc_server_method_row(call->server, call->method_index), 1);
    if (method && method->kind == NGD_RPC_UNARY)
        ngd_metric_observe(NGD_M_RPC_SECONDS, ngd_now() - call->pub.arrived);
    if (status != NGD_OK) {
        ngd_metric_row_add(ngd_metric_row(NGD_M_RPC_ERRORS, ngd_status_name(status)), 1);
        log_failure(call, status, text);
    }
}

/* google.rpc.Status with an ErrorInfo, as grpc-status-details-bin carries it. */
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

static void uncount_busy(struct rpc_call *call) NGD_REQUIRES(call->lock)
{
    if (call->counted_busy)
        rpc_server_count_busy(call->server, -1);
    call->counted_busy = false;
}

/* Whoever claims the end sends the status, without the lock; later callers are told no. */
static bool claim_end(struct rpc_call *call) NGD_REQUIRES(call->lock)
{
    if (call->finished)
        return false;
    call->finished = true;
    uncount_busy(call);
    return true;
}

/* The status batch, with a last message or none (taken). Only for who claimed the end. */
static void send_status(struct rpc_call *call, ngd_status_t status, const char *text,
                        grpc_byte_buffer *last) NGD_NO_THREAD_SAFETY
{
    grpc_op ops[3] = {0}, *op = ops;

    account(call, status, text);
    if (!call->initial_sent)
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
    start(call, ops, (size_t)(op - ops), &call->on_status);
}

/* The status that ngd_call_end left, after the queue or the answer. */
static void send_end_status(struct rpc_call *call, grpc_byte_buffer *last) NGD_NO_THREAD_SAFETY
{
    ngd_status_t status = call->end_status;

    send_status(call, status, call->end_text ? call->end_text : ngd_status_text(status), last);
}

static void end_call(struct rpc_call *call, ngd_status_t status, const char *text, grpc_byte_buffer *last)
{
    bool mine;

    ngd_mutex_lock(&call->lock);
    mine = claim_end(call);
    ngd_mutex_unlock(&call->lock);
    if (mine)
        send_status(call, status, text, last);
    else if (last)
        grpc_byte_buffer_destroy(last);
}

static void fail_call(struct rpc_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    const char *text = diag && diag->status != NGD_OK && diag->text[0] ? diag->text : ngd_status_text(status);

    if (status == NGD_OK)
        status = NGD_ERR_INTERNAL; /* a failure must not look like an empty success */
    end_call(call, status, text, NULL);
}

/* The handler's reference, where it has one, goes with its answer. */
static void give_to_handler(struct rpc_call *call)
{
    ref(call);
    ngd_mutex_lock(&call->lock);
    call->owed = true;
    ngd_mutex_unlock(&call->lock);
}

static void handler_done(struct rpc_call *call)
{
    bool owed;

    ngd_mutex_lock(&call->lock);
    owed = call->owed;
    call->owed = false;
    ngd_mutex_unlock(&call->lock);
    if (owed)
        unref(call);
}

/* Those who repeated this call meanwhile get the same end. */
static void lead_succeeded(struct rpc_call *call, const uint8_t *data, size_t n)
{
    if (call->pub.leads)
        ngd_answers_succeeded(ngd_session_answers(call->pub.session), &call->pub, data, n);
}

static void lead_failed(struct rpc_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    if (call->pub.leads)
        ngd_answers_failed(ngd_session_answers(call->pub.session), &call->pub, status, diag);
}

void ngd_call_fail(struct ngd_call *pub, ngd_status_t status, const struct ngd_diag *diag)
{
    struct rpc_call *call = rpc_call_of(pub);

    lead_failed(call, status, diag);
    fail_call(call, status, diag);
    handler_done(call);
}

/* Nobody waits for the answer any more: a handler that still owes it should hurry. */
static void tell_handler(struct rpc_call *call)
{
    const struct ngd_method *method = call->pub.method;
    bool tell;

    ngd_mutex_lock(&call->lock);
    tell = call->owed;
    if (method && method->kind == NGD_RPC_CLIENT_STREAM)
        tell = !call->finished;
    /* A DUPLEX stream has nobody who answers last: its handler hears of every end, also of one that others made. */
    if (method && method->kind == NGD_RPC_DUPLEX)
        tell = true;
    tell = tell && !call->told;
    call->told |= tell;
    ngd_mutex_unlock(&call->lock);
    if (!tell)
        return;
    atomic_store(&call->pub.cancelled, true);
    if (method->ops->cancelled && !atomic_load(&call->pub.waits))
        method->ops->cancelled(&call->pub);
}

static void on_status(struct rpc_call *call, bool ok)
{
    (void)ok;
    if (call->last_buffer)
        grpc_byte_buffer_destroy(call->last_buffer);
    call->last_buffer = NULL;
    if (call->n_trailing) {
        grpc_slice_unref(call->status_details);
        grpc_slice_unref(call->trailing[1].value);
    }
    call->n_trailing = 0;
    if (call->pub.method && call->pub.method->kind != NGD_RPC_UNARY) {
        rpc_server_closed_stream(call);
        if (call->pub.session)
            ngd_session_detach(call->pub.session, &call->pub);
        tell_handler(call);
    }
    unref(call);
}

static void on_close(struct rpc_call *call, bool ok)
{
    (void)ok; /* always; the flag is the information */
    if (call->close_flag) {
        atomic_store(&call->pub.cancelled, true);
        tell_handler(call);
    }
    unref(call);
}

/* ---- messages in --------------------------------------------------------------------------------------- */

static void *arena_alloc(void *data, size_t n)
{
    return ngd_arena_alloc(data, n);
}

static void arena_free(void *data, void *p)
{
    (void)data;
    (void)p;
}

static ngd_status_t no_memory(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a message");
}

/* Lists the pieces of the message, in the arena. */
static ngd_status_t list_pieces(struct rpc_call *call, struct ngd_raw_message *raw, struct ngd_diag *diag)
{
    size_t cap = call->message->data.raw.slice_buffer.count;
    struct ngd_piece *pieces = ngd_arena_alloc(&call->pub.arena, (cap + 1) * sizeof(*pieces));
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;

    if (!pieces)
        return no_memory(diag);
    if (call->message->data.raw.compression != GRPC_COMPRESS_NONE ||
        !grpc_byte_buffer_reader_init(&reader, call->message))
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED, "the message is compressed; send it as it is");
    while (raw->n_pieces < cap && grpc_byte_buffer_reader_peek(&reader, &slice)) {
        pieces[raw->n_pieces].data = GRPC_SLICE_START_PTR(*slice);
        pieces[raw->n_pieces++].n = GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    raw->pieces = pieces;
    return NGD_OK;
}

static ngd_status_t flatten(struct rpc_call *call, struct ngd_raw_message *raw, struct ngd_diag *diag)
{
    uint8_t *p;

    if (raw->n_pieces <= 1) {
        raw->data = raw->n_pieces ? raw->pieces[0].data : (const uint8_t *)"";
        return NGD_OK;
    }
    if (raw->n > KEEP_ARENA)
        p = call->flat = ngd_malloc(raw->n);
    else
        p = ngd_arena_alloc(&call->pub.arena, raw->n);
    if (!p)
        return no_memory(diag);
    raw->data = p;
    for (size_t i = 0; i < raw->n_pieces; i++) {
        memcpy(p, raw->pieces[i].data, raw->pieces[i].n);
        p += raw->pieces[i].n;
    }
    return NGD_OK;
}

static ngd_status_t unpack(struct rpc_call *call, const struct ngd_raw_message *raw, const void **msg_p,
                           struct ngd_diag *diag)
{
    ProtobufCAllocator allocator = {arena_alloc, arena_free, &call->pub.arena};
    const ProtobufCMessageDescriptor *desc = call->pub.method->request;
    ngd_status_t status = ngd_wire_check(desc, raw->data, raw->n, NGD_WIRE_MAX_FIELDS, diag);

    if (status != NGD_OK)
        return status;
    *msg_p = protobuf_c_message_unpack(desc, &allocator, raw->n, raw->data);
    if (!*msg_p)
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "%s cannot be unpacked", desc->short_name);
    return NGD_OK;
}

static ngd_status_t prepare(struct rpc_call *call, struct ngd_raw_message *raw, const void **msg_p,
                            struct ngd_diag *diag)
{
    const struct ngd_method *method = call->pub.method;
    ngd_status_t status;

    raw->n = call->message_bytes = grpc_byte_buffer_length(call->message);
    if (method->limit && raw->n > method->limit)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE, "the request has %zu bytes; %s.%s takes at most %u",
                            raw->n, method->service, method->name, method->limit);
    status = list_pieces(call, raw, diag);
    *msg_p = raw;
    if (status == NGD_OK && method->kind != NGD_RPC_CLIENT_STREAM)
        status = flatten(call, raw, diag);
    if (status == NGD_OK && !ngd_method_is_raw(method))
        status = unpack(call, raw, msg_p, diag);
    return status;
}

/* Is it the first with its request id, which the handler has to serve? */
static bool is_first(struct rpc_call *call, const struct ngd_raw_message *raw, const void *msg)
{
    struct ngd_call *pub = &call->pub;
    struct ngd_raw_message *kept;

    if (!pub->method->ops->once || !pub->session || pub->request_id[0] == '\0')
        return true;
    if (ngd_method_is_raw(pub->method)) { /* it may have to wait, and the caller's is on the stack */
        kept = ngd_arena_alloc(&pub->life, sizeof(*kept));
        if (!kept) {
            ngd_call_fail(pub, NGD_ERR_NO_MEMORY, NULL);
            return false;
        }
        *kept = *raw;
        msg = kept;
    }
    return ngd_answers_begin(ngd_session_answers(pub->session), pub, msg, raw->data, raw->n);
}

/* Hands call->message to the handler, or fails the call. */
static void deliver(struct rpc_call *call)
{
    struct ngd_raw_message raw = {0};
    const void *msg = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = prepare(call, &raw, &msg, &diag);

    if (status != NGD_OK) {
        fail_call(call, status, &diag);
        return;
    }
    if (call->pub.method->kind != NGD_RPC_CLIENT_STREAM && call->pub.method->kind != NGD_RPC_DUPLEX)
        give_to_handler(call);
    if (is_first(call, &raw, msg))
        call->pub.method->ops->request(&call->pub, msg);
}

static void start_recv(struct rpc_call *call)
{
    grpc_op op = {0};

    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &call->received;
    start(call, &op, 1, &call->on_recv);
}

/* NULL instead of a message: half-closed, or broken. */
static void no_more(struct rpc_call *call, bool ok)
{
    bool broken = !ok || atomic_load(&call->pub.cancelled) || grpc_call_failed_before_recv_message(call->core);
    bool over;

    ngd_mutex_lock(&call->lock);
    over = call->finished || call->finishing;
    ngd_mutex_unlock(&call->lock);
    if (over)
        return;
    if (call->pub.method->kind != NGD_RPC_LOCKSTEP)
        call->pub.method->ops->half_closed(&call->pub, broken);
    else if (broken)
        fail_call(call, NGD_ERR_CANCELLED, NULL);
    else
        end_call(call, NGD_OK, "", NULL);
}

/* Is the stream still open for this message? Marks it busy. */
static bool take_message(struct rpc_call *call, ngd_status_t *refuse_p)
{
    const struct ngd_method *method = call->pub.method;
    bool open;

    *refuse_p = NGD_OK;
    ngd_mutex_lock(&call->lock);
    open = !call->finished;
    call->busy = open;
    if (open && method->kind == NGD_RPC_LOCKSTEP) {
        if (!method->while_draining && ngd_daemon_state(call->pub.daemon) != NGD_DAEMON_SERVING) {
            *refuse_p = NGD_ERR_DRAINING;
        } else if (method->class == NGD_RPC_WORK) {
            call->counted_busy = true;
            rpc_server_count_busy(call->server, 1);
        }
    }
    ngd_mutex_unlock(&call->lock);
    return open;
}

/* CLIENT_STREAM and DUPLEX read on when the handler returns; LOCKSTEP when it answers. */
static void read_on(struct rpc_call *call)
{
    bool read, end;

    drop_message(call);
    ngd_mutex_lock(&call->lock);
    call->busy = false;
    end = call->finishing && !call->sending && !call->out_head && claim_end(call);
    call->paused = call->n_out >= UNSENT_MAX; /* a client that sends and does not read */
    read = !call->finished && !call->paused;
    ngd_mutex_unlock(&call->lock);
    if (end)
        send_end_status(call, NULL);
    if (read)
        start_recv(call);
}

static void on_recv(struct rpc_call *call, bool ok)
{
    ngd_status_t refuse;

    if (call->sent_buffer && call->pub.method->kind == NGD_RPC_LOCKSTEP) {
        grpc_byte_buffer_destroy(call->sent_buffer);
        call->sent_buffer = NULL;
    }
    call->message = call->received;
    call->received = NULL;
    if (!call->message) {
        no_more(call, ok);
    } else if (take_message(call, &refuse)) {
        call->pub.arrived = ngd_now();
        if (refuse != NGD_OK)
            fail_call(call, refuse, NULL);
        else
            deliver(call);
        if (call->pub.method->kind != NGD_RPC_LOCKSTEP)
            read_on(call);
    }
    unref(call);
}

/* ---- messages out -------------------------------------------------------------------------------------- */

/* On whichever thread of gRPC's has sent the bytes. */
static void free_slice(void *p)
{
    NGD_TSAN_TAKE(p);
    ngd_free(p);
}

static ngd_status_t make_slice(struct rpc_call *call, size_t n, grpc_slice *slice_p, struct ngd_diag *diag)
{
    uint64_t limit = call->pub.daemon->options.max_message;
    void *p;

    if (n > limit)
        return ngd_diag_set(
            diag, NGD_ERR_MESSAGE_TOO_LARGE,
            "the answer would have %zu bytes, max-message is %llu; ask for fewer outputs or read a buffer", n,
            (unsigned long long)limit);
    if (n <= SMALL_SLICE) {
        *slice_p = grpc_slice_malloc(n);
        return NGD_OK;
    }
    p = ngd_malloc(n);
    if (!p)
        return no_memory(diag);
    *slice_p = grpc_slice_new_with_user_data(p, n, free_slice, p);
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

static ngd_status_t pack(struct rpc_call *call, const ProtobufCMessage *msg, grpc_byte_buffer **buffer_p,
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

    drop_reserved(call);
    *status_p = make_slice(call, max, &call->reserved, diag);
    if (*status_p != NGD_OK)
        return NULL;
    call->has_reserved = true;
    return GRPC_SLICE_START_PTR(call->reserved);
}

/* The first n bytes of what was reserved, as a message. */
static grpc_byte_buffer *take_reserved(struct rpc_call *call, size_t n)
{
    grpc_byte_buffer *buffer;

    GRPC_SLICE_SET_LENGTH(call->reserved, n);
    NGD_TSAN_GIVE(GRPC_SLICE_START_PTR(call->reserved));
    buffer = grpc_raw_byte_buffer_create(&call->reserved, 1);
    drop_reserved(call);
    return buffer;
}

/* LOCKSTEP: sends the answer and asks for the next message, or ends with the answer when that is wanted. */
static void answer(struct rpc_call *call, grpc_byte_buffer *buffer)
{
    grpc_op ops[2] = {0};
    bool end = false, drop = false;

    drop_message(call);
    ngd_mutex_lock(&call->lock);
    uncount_busy(call);
    call->busy = false;
    if (call->finished) {
        drop = true;
    } else if (call->finishing) {
        end = claim_end(call);
    } else {
        call->sent_buffer = buffer;
        ops[0].op = GRPC_OP_SEND_MESSAGE;
        ops[0].data.send_message.send_message = buffer;
        ops[1].op = GRPC_OP_RECV_MESSAGE;
        ops[1].data.recv_message.recv_message = &call->received;
        call->owed = false; /* before the next message can set it; the reference goes below */
        start(call, ops, 2, &call->on_recv);
    }
    ngd_mutex_unlock(&call->lock);
    if (end)
        send_end_status(call, buffer);
    else if (drop)
        grpc_byte_buffer_destroy(buffer);
    if (end || drop)
        handler_done(call);
    else
        unref(call);
}

/* The message that a call succeeds with, told to those that repeat it; false: the call has failed. */
static bool pack_answer(struct rpc_call *call, const ProtobufCMessage *msg, grpc_slice *slice_p)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = pack_slice(call, msg, slice_p, &diag);

    if (status != NGD_OK) {
        ngd_call_fail(&call->pub, status, &diag);
        return false;
    }
    lead_succeeded(call, GRPC_SLICE_START_PTR(*slice_p), GRPC_SLICE_LENGTH(*slice_p));
    return true;
}

void ngd_call_reply(struct ngd_call *pub, const ProtobufCMessage *msg)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_slice slice;

    if (!pack_answer(call, msg, &slice))
        return;
    end_call(call, NGD_OK, "", buffer_of(slice));
    handler_done(call);
}

void ngd_call_reply_reserved(struct ngd_call *pub, size_t n)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_byte_buffer *buffer;

    lead_succeeded(call, GRPC_SLICE_START_PTR(call->reserved), n);
    buffer = take_reserved(call, n);
    if (pub->method->kind == NGD_RPC_LOCKSTEP) {
        answer(call, buffer);
        return;
    }
    end_call(call, NGD_OK, "", buffer);
    handler_done(call);
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
    ngd_status_t status = pack(call, msg, &buffer, &diag);

    if (status == NGD_OK)
        answer(call, buffer);
    else
        ngd_call_fail(pub, status, &diag);
}

static void start_send(struct rpc_call *call, grpc_byte_buffer *buffer) NGD_REQUIRES(call->lock)
{
    grpc_op ops[2] = {0}, *op = ops;

    if (!call->initial_sent)
        (op++)->op = GRPC_OP_SEND_INITIAL_METADATA;
    call->initial_sent = true;
    op->op = GRPC_OP_SEND_MESSAGE;
    (op++)->data.send_message.send_message = buffer;
    call->sending = start(call, ops, (size_t)(op - ops), &call->on_send);
    call->sent_buffer = buffer;
    if (!call->sending) {
        grpc_byte_buffer_destroy(buffer);
        call->sent_buffer = NULL;
        call->send_failed = true;
    }
}

/* Takes buffer. */
static ngd_status_t enqueue(struct rpc_call *call, grpc_byte_buffer *buffer) NGD_REQUIRES(call->lock)
{
    struct rpc_out *out;

    if (!call->sending) {
        start_send(call, buffer);
        return NGD_OK;
    }
    out = NGD_NEW(struct rpc_out);
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
    call->n_out++;
    return NGD_OK;
}

static ngd_status_t send_buffer(struct rpc_call *call, grpc_byte_buffer *buffer)
{
    ngd_status_t status;

    ngd_mutex_lock(&call->lock);
    if (call->finished || call->finishing || call->send_failed) {
        status = NGD_ERR_CANCELLED;
        grpc_byte_buffer_destroy(buffer);
    } else {
        status = enqueue(call, buffer);
    }
    ngd_mutex_unlock(&call->lock);
    return status;
}

ngd_status_t ngd_call_send(struct ngd_call *pub, const ProtobufCMessage *msg)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_byte_buffer *buffer;
    ngd_status_t status = pack(call, msg, &buffer, NULL);

    return status == NGD_OK ? send_buffer(call, buffer) : status;
}

ngd_status_t ngd_call_send_reserved(struct ngd_call *pub, size_t n)
{
    struct rpc_call *call = rpc_call_of(pub);

    return send_buffer(call, take_reserved(call, n));
}

ngd_status_t ngd_call_send_encoded(struct ngd_call *pub, const uint8_t *data, size_t n)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_byte_buffer *buffer;
    grpc_slice slice;
    ngd_status_t status = make_slice(call, n, &slice, NULL);

    if (status != NGD_OK)
        return status;
    memcpy(GRPC_SLICE_START_PTR(slice), data, n);
    buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return send_buffer(call, buffer);
}

/* The next of the queue; false when there is none. */
static bool send_next(struct rpc_call *call, bool ok) NGD_REQUIRES(call->lock)
{
    struct rpc_out *out = call->out_head;

    call->send_failed |= !ok;
    if (!out || call->finished)
        return false;
    call->out_head = out->next;
    if (!call->out_head)
        call->out_tail = NULL;
    call->n_out--;
    if (call->send_failed)
        grpc_byte_buffer_destroy(out->buffer);
    else
        start_send(call, out->buffer);
    ngd_free(out);
    return true;
}

static void on_send(struct rpc_call *call, bool ok)
{
    bool idle, end, read;

    ngd_mutex_lock(&call->lock);
    grpc_byte_buffer_destroy(call->sent_buffer);
    call->sent_buffer = NULL;
    call->sending = false;
    while (!call->sending && send_next(call, ok))
        ;
    end = !call->sending && call->finishing && claim_end(call);
    idle = !call->sending && !call->finished;
    read = call->paused && !call->finished && call->n_out < UNSENT_MAX / 2;
    if (read)
        call->paused = false;
    ngd_mutex_unlock(&call->lock);
    if (end)
        send_end_status(call, NULL);
    if (read)
        start_recv(call);
    if (idle && call->pub.method->ops->sent)
        call->pub.method->ops->sent(&call->pub);
    unref(call);
}

uint32_t ngd_call_unsent(struct ngd_call *pub)
{
    struct rpc_call *call = rpc_call_of(pub);
    uint32_t n;

    ngd_mutex_lock(&call->lock);
    n = call->n_out + call->sending;
    ngd_mutex_unlock(&call->lock);
    return n;
}

/* Ends now, or when `wait` is over. */
static void end_when(struct rpc_call *call, bool wait, ngd_status_t status, const char *text) NGD_RELEASE(call->lock)
{
    bool mine = false;

    if (!call->finishing && wait) {
        call->finishing = true;
        call->end_status = status;
        call->end_text = status == NGD_OK ? NULL : ngd_strdup(text); /* NULL: the status's own sentence */
    } else if (!call->finishing) {
        mine = claim_end(call);
    }
    ngd_mutex_unlock(&call->lock);
    if (mine)
        send_status(call, status, text, NULL);
}

void ngd_call_finish(struct ngd_call *pub)
{
    struct rpc_call *call = rpc_call_of(pub);

    ngd_mutex_lock(&call->lock);
    end_when(call, call->sending || call->out_head, NGD_OK, "");
    handler_done(call);
}

void ngd_call_finish_with(struct ngd_call *pub, const ProtobufCMessage *msg)
{
    struct rpc_call *call = rpc_call_of(pub);
    grpc_slice slice;

    if (!pack_answer(call, msg, &slice))
        return;
    send_buffer(call, buffer_of(slice)); /* when the client is gone, nobody misses it */
    ngd_call_finish(pub);
}

void ngd_call_end(struct ngd_call *pub, ngd_status_t status, const char *text)
{
    struct rpc_call *call = rpc_call_of(pub);

    if (pub->method->kind == NGD_RPC_UNARY)
        return;
    ngd_mutex_lock(&call->lock);
    end_when(call, pub->method->kind == NGD_RPC_LOCKSTEP ? call->busy : call->sending || call->out_head, status, text);
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

static void start_close(struct rpc_call *call)
{
    grpc_op op = {0};

    op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op.data.recv_close_on_server.cancelled = &call->close_flag;
    start(call, &op, 1, &call->on_close);
}

static void start_stream(struct rpc_call *call)
{
    grpc_op ops[2] = {0};

    ngd_mutex_lock(&call->lock);
    if (!call->finished) {
        ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
        ops[1].op = GRPC_OP_RECV_MESSAGE;
        ops[1].data.recv_message.recv_message = &call->received;
        call->initial_sent = true;
        start(call, ops, 2, &call->on_recv);
    }
    ngd_mutex_unlock(&call->lock);
}

static void count_work(struct rpc_call *call)
{
    if (call->pub.method->class != NGD_RPC_WORK || call->pub.method->kind == NGD_RPC_LOCKSTEP)
        return;
    ngd_mutex_lock(&call->lock);
    call->counted_busy = true;
    ngd_mutex_unlock(&call->lock);
    rpc_server_count_busy(call->server, 1);
}

static void open_admitted(struct rpc_call *call)
{
    ngd_rpc_kind_t kind = call->pub.method->kind;

    count_work(call);
    if (kind != NGD_RPC_UNARY) {
        rpc_server_opened_stream(call);
        if (call->pub.session)
            ngd_session_attach(call->pub.session, &call->pub);
    }
    if (kind != NGD_RPC_UNARY && kind != NGD_RPC_SERVER_STREAM) {
        start_stream(call);
        return;
    }
    call->message = call->payload;
    call->payload = NULL;
    if (call->message)
        deliver(call);
    else
        fail_call(call, NGD_ERR_MALFORMED_MESSAGE, NULL);
}

void rpc_call_open(struct rpc_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    call->close_flag = 0;
    atomic_store(&call->pub.cancelled, false);
    start_close(call);
    if (status == NGD_OK)
        open_admitted(call);
    else
        fail_call(call, status, diag);
    unref(call); /* the posted request's */
}
