/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/oip_stream.h"

#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "daemon/rpc/call_trace.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/session.h"
#include "daemon/tokens.h"
#include <string.h>

#define SESSION_NAME "open inference protocol"

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static struct ngd_oip_stream *make_oip_stream(struct ngd_call *call, bool once)
{
    struct ngd_oip_stream *s = ngd_arena_calloc(&call->life, 1, sizeof(*s));

    if (!s)
        return NULL;
    s->call = call;
    s->once = once;
    s->errors_end_it = once || ngd_call_metadata_is(call, "triton_grpc_error", "true");
    ngd_mutex_init(&s->lock, NGD_RANK_OBJECTS);
    ngd_mutex_lock(&s->lock);
    ngd_list_init(&s->items);
    ngd_mutex_unlock(&s->lock);
    return s;
}

static ngd_status_t open_oip_stream(struct ngd_call *call, struct ngd_oip_stream **s_p)
{
    if (!call->state)
        call->state = make_oip_stream(call, false);
    *s_p = call->state;
    return *s_p ? NGD_OK : NGD_ERR_NO_MEMORY;
}

void ngd_oip_stream_fini(struct ngd_oip_stream *s)
{
    ngd_mutex_fini(&s->lock);
}

/* A session ends its stream when its objects are free. A single request is answered before that. */
static struct ngd_client_stream *stream_of_session(struct ngd_oip_stream *s)
{
    return s->once ? NULL : &s->call->stream;
}

/* Leaves the stream's own session. True: the session finishes the call. */
static bool leave_own_session(struct ngd_oip_stream *s, bool broken)
{
    struct ngd_session *session;
    bool finished_later = false;

    ngd_mutex_lock(&s->lock);
    session = s->session;
    s->session = NULL;
    ngd_mutex_unlock(&s->lock);
    if (session)
        finished_later = ngd_session_left(session, stream_of_session(s), broken);
    ngd_session_unref(session);
    return finished_later;
}

static void finish_oip_stream(struct ngd_oip_stream *s)
{
    if (!leave_own_session(s, false))
        ngd_call_finish(s->call);
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

static void free_oip_item(struct ngd_oip_item *item)
{
    struct ngd_call *call = item->stream->call;
    struct ngd_charge charge = ngd_charge_move(&item->charge);

    if (item->is_generation)
        ngd_oip_generation_end(item);
    ngd_oip_infer_end(&item->infer);
    if (item->response)
        ngd_blocks_give(&call->daemon->blocks, item->response);
    ngd_arena_fini(&item->arena);
    ngd_free(item);
    ngd_charge_end(&charge);
    ngd_call_unref(call);
}

void ngd_oip_item_ref(struct ngd_oip_item *item)
{
    atomic_fetch_add_explicit(&item->refs, 1, memory_order_relaxed);
}

void ngd_oip_item_unref(struct ngd_oip_item *item)
{
    if (atomic_fetch_sub_explicit(&item->refs, 1, memory_order_acq_rel) == 1)
        free_oip_item(item);
}

/* Ends a request that is answered: it leaves its stream, which may be gone afterwards. */
static void end_item(struct ngd_oip_item *item)
{
    struct ngd_oip_stream *s = item->stream;
    struct ngd_call *call = ngd_call_ref(s->call);
    bool last;

    ngd_mutex_lock(&s->lock);
    ngd_list_remove(&item->link);
    s->n_items--;
    last = s->n_items == 0 && s->closed;
    ngd_mutex_unlock(&s->lock);
    ngd_rpc_server_count_busy(call->daemon->rpc, -1);
    if (item->is_generation)
        ngd_timeouts_remove(&call->daemon->timeouts, &item->generation.timeout);
    ngd_oip_item_unref(item);
    if (last)
        finish_oip_stream(s);
    else if (s->once)
        leave_own_session(s, false);
    ngd_call_unref(call);
}

/* Ends the record of a request of a stream. That of a single request is the call's. */
static void end_item_trace(struct ngd_oip_item *item, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_trace_record *record = item->stream->once ? NULL : item->infer.trace;

    item->infer.trace = NULL;
    if (record)
        ngd_call_trace_end(item->infer.call, record, ngd_now(), status,
                           diag && diag->text[0] ? diag->text : ngd_status_text(status));
}

void ngd_oip_item_done(struct ngd_oip_item *item)
{
    end_item_trace(item, NGD_OK, NULL);
    end_item(item);
}

/* Sends an error in the protocol's form. The response has the id, so that the client knows which request failed. */
static void send_oip_error(struct ngd_oip_stream *s, const Inference__ModelInferRequest *q, ngd_status_t status,
                           const struct ngd_diag *diag)
{
    Inference__ModelStreamInferResponse m = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    Inference__ModelInferResponse r = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    ngd_status_t sent;

    if (s->errors_end_it) {
        ngd_call_fail(s->call, status, diag);
        return;
    }
    m.error_message = (char *)(uintptr_t)(diag && diag->text[0] ? diag->text : ngd_status_text(status));
    if (q) {
        r.model_name = q->model_name;
        r.id = q->id;
        m.infer_response = &r;
    }
    sent = ngd_call_send(s->call, &m.base);
    if (sent != NGD_OK && sent != NGD_ERR_CANCELLED)
        ngd_call_end(s->call, sent, "an answer could not be sent");
}

void ngd_oip_item_fail(struct ngd_oip_item *item, ngd_status_t status, const struct ngd_diag *diag)
{
    if (item->is_generation)
        ngd_oip_generation_rest(item, true);
    end_item_trace(item, status, diag);
    send_oip_error(item->stream, item->infer.q.m, status, diag);
    end_item(item);
}

static struct ngd_oip_item *oip_item_of(struct ngd_oip_infer *x)
{
    return ngd_container_of(x, struct ngd_oip_item, infer);
}

static uint8_t *reserve_response(struct ngd_oip_infer *x, size_t bytes, ngd_status_t *status_p, struct ngd_diag *diag)
{
    struct ngd_oip_item *item = oip_item_of(x);
    const uint64_t limit = x->call->daemon->options.max_message;

    *status_p = NGD_OK;
    if (bytes > limit)
        *status_p = ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE,
                                 "the response would have %zu bytes, max-message is %llu; request fewer outputs", bytes,
                                 (unsigned long long)limit);
    if (*status_p == NGD_OK)
        *status_p = ngd_charge_grow(&item->charge, bytes, diag);
    if (*status_p != NGD_OK)
        return NULL;
    item->response = ngd_blocks_take(&x->call->daemon->blocks, bytes);
    if (!item->response)
        *status_p = NGD_ERR_NO_MEMORY;
    return item->response ? item->response->data : NULL;
}

static void answer_item(struct ngd_oip_infer *x, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_oip_item *item = oip_item_of(x);

    if (status == NGD_OK) {
        status = ngd_call_send_encoded(x->call, x->response, x->n_response);
        if (status == NGD_ERR_CANCELLED)
            status = NGD_OK; /* nobody misses it */
        diag = NULL;
    }
    if (status == NGD_OK)
        ngd_oip_item_done(item);
    else
        ngd_oip_item_fail(item, status, diag);
}

/* Makes a request with a copy of its message, and adds it to the stream. */
static ngd_status_t make_item(struct ngd_oip_stream *s, const struct ngd_raw_message *raw, struct ngd_oip_item **item_p,
                              uint8_t **copy_p, struct ngd_diag *diag)
{
    struct ngd_charge charge = {0};
    struct ngd_oip_item *item;
    ngd_status_t status = ngd_charge_begin(&charge, ngd_identity_payer(s->call->identity, NGD_QUOTA_HOST_BYTES),
                                           sizeof(*item) + raw->n, diag);

    if (status != NGD_OK)
        return status;
    item = NGD_NEW(struct ngd_oip_item);
    if (item) {
        ngd_arena_init(&item->arena, 4096);
        *copy_p = ngd_arena_alloc(&item->arena, raw->n + 1);
    }
    if (!item || !*copy_p) {
        ngd_free(item);
        ngd_charge_end(&charge);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a request");
    }
    if (raw->n)
        memcpy(*copy_p, raw->data, raw->n);
    item->stream = s;
    item->refs = 1;
    item->charge = ngd_charge_move(&charge);
    item->infer = (struct ngd_oip_infer){.call = ngd_call_ref(s->call),
                                         .arena = &item->arena,
                                         .streamed = true,
                                         .arrived = s->call->arrived,
                                         .reserve = reserve_response,
                                         .done = answer_item};
    item->infer.trace = s->once ? s->call->trace : ngd_call_trace_request(s->call, &item->arena);
    ngd_request_init(&item->infer.request); /* so that it may be cancelled before it is submitted */
    ngd_rpc_server_count_busy(s->call->daemon->rpc, 1);
    ngd_mutex_lock(&s->lock);
    ngd_list_push_back(&s->items, &item->link);
    s->n_items++;
    ngd_mutex_unlock(&s->lock);
    *item_p = item;
    return NGD_OK;
}

ngd_status_t ngd_oip_stream_session(struct ngd_oip_stream *s, struct ngd_session **session_p, struct ngd_diag *diag)
{
    const struct ngd_session_wish wish = {.client_name = SESSION_NAME};
    const struct ngd_session_client client = {.stream = stream_of_session(s),
                                              .identity = s->call->identity,
                                              .bearer = s->call->bearer,
                                              .peer = s->call->peer};
    struct ngd_session *session = s->call->session;
    ngd_status_t status = NGD_OK;

    if (!session) {
        ngd_mutex_lock(&s->lock);
        session = s->session;
        ngd_mutex_unlock(&s->lock);
    }
    if (!session) {
        status = ngd_session_open(s->call->daemon->sessions, &client, &wish, &session, diag);
        if (status != NGD_OK)
            return status;
        ngd_mutex_lock(&s->lock);
        s->session = session;
        ngd_mutex_unlock(&s->lock);
    }
    *session_p = session;
    return NGD_OK;
}

static ngd_status_t start_item(struct ngd_oip_item *item, const uint8_t *data, size_t n, struct ngd_diag *diag)
{
    struct ngd_oip_infer *x = &item->infer;
    ngd_status_t status = ngd_oip_request_read(x->arena, data, n, &x->q, diag);

    if (status == NGD_OK)
        status = ngd_charge_grow(&item->charge, ngd_arena_bytes(x->arena), diag);
    if (status == NGD_OK && !item->stream->once)
        status = ngd_oip_find(x->call, x->q.m->model_name, x->q.m->model_version, &x->model, diag);
    if (status != NGD_OK)
        return status;
    return x->model.graph.object ? ngd_oip_infer_start(x, diag) : ngd_oip_generate(item, diag);
}

ngd_status_t ngd_oip_generate_once(struct ngd_call *call, const struct ngd_raw_message *raw,
                                   struct ngd_oip_model *model, struct ngd_oip_stream **stream_p, struct ngd_diag *diag)
{
    struct ngd_oip_stream *s = make_oip_stream(call, true);
    struct ngd_oip_item *item;
    uint8_t *copy = NULL;
    ngd_status_t status = s ? make_item(s, raw, &item, &copy, diag) : NGD_ERR_NO_MEMORY;

    *stream_p = s;
    if (status != NGD_OK)
        return status;
    item->infer.model = *model;
    *model = (struct ngd_oip_model){.model = NULL};
    status = start_item(item, copy, raw->n, diag);
    if (status != NGD_OK)
        ngd_oip_item_fail(item, status, diag);
    return NGD_OK; /* it is, or will be, answered */
}

/* What may be wrong with the stream rather than with the request. */
static ngd_status_t check_oip_stream(struct ngd_oip_stream *s, struct ngd_diag *diag)
{
    uint32_t n;

    if (ngd_daemon_state(s->call->daemon) != NGD_DAEMON_SERVING)
        return ngd_diag_set(diag, NGD_ERR_DRAINING, "the daemon is draining; use another one");
    ngd_mutex_lock(&s->lock);
    n = s->n_items;
    ngd_mutex_unlock(&s->lock);
    if (n >= NGD_OIP_STREAM_REQUESTS)
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "the stream has %u requests under way, which is the limit; wait for answers", n);
    return s->call->bearer ? ngd_token_check(s->call->bearer, diag) : NGD_OK;
}

static void stream_infer(struct ngd_call *call, const void *msg)
{
    const struct ngd_raw_message *raw = msg;
    struct ngd_oip_stream *s = NULL;
    struct ngd_oip_item *item = NULL;
    struct ngd_diag diag;
    uint8_t *copy = NULL;
    ngd_status_t status = open_oip_stream(call, &s);

    diag.status = NGD_OK; /* clearing its text would cost time */
    diag.text[0] = '\0';
    if (status != NGD_OK) {
        ngd_call_fail(call, status, NULL);
        return;
    }
    status = check_oip_stream(s, &diag);
    if (status == NGD_OK)
        status = make_item(s, raw, &item, &copy, &diag);
    if (status == NGD_OK)
        status = start_item(item, copy, raw->n, &diag); /* if that succeeds, the item may be gone */
    if (status == NGD_OK)
        return;
    if (item)
        ngd_oip_item_fail(item, status, &diag);
    else
        send_oip_error(s, NULL, status, &diag);
}

/* ---- all requests ------------------------------------------------------------------------------------------------ */

/* Calls fn for each request under way, with a reference and without the lock. */
static void each_oip_item(struct ngd_oip_stream *s, void (*fn)(struct ngd_oip_item *item))
{
    struct ngd_oip_item *some[NGD_OIP_STREAM_REQUESTS];
    uint32_t n = 0;

    ngd_mutex_lock(&s->lock);
    ngd_list_for_each (pos, &s->items) {
        some[n] = ngd_container_of(pos, struct ngd_oip_item, link);
        ngd_oip_item_ref(some[n++]);
    }
    ngd_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < n; i++) {
        fn(some[i]);
        ngd_oip_item_unref(some[i]);
    }
}

static void cancel_item(struct ngd_oip_item *item)
{
    if (item->is_generation)
        ngd_oip_generation_cancel(item);
    else
        ngd_oip_infer_cancel(&item->infer);
}

void ngd_oip_stream_stop(struct ngd_oip_stream *s)
{
    atomic_store(&s->over, true);
    each_oip_item(s, cancel_item);
    leave_own_session(s, true);
}

static void cancel_oip_stream(struct ngd_call *call)
{
    if (call->state)
        ngd_oip_stream_stop(call->state);
}

static void half_close_oip_stream(struct ngd_call *call, bool broken)
{
    struct ngd_oip_stream *s = call->state;
    bool finish = true;

    if (broken) {
        cancel_oip_stream(call);
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
        return;
    }
    if (s) {
        ngd_mutex_lock(&s->lock);
        s->closed = true;
        finish = s->n_items == 0;
        ngd_mutex_unlock(&s->lock);
    }
    if (finish && s)
        finish_oip_stream(s);
    else if (finish)
        ngd_call_finish(call);
}

static void flush_item(struct ngd_oip_item *item)
{
    if (item->is_generation)
        ngd_oip_generation_flush(item);
}

static void flush_oip_stream(struct ngd_call *call)
{
    struct ngd_oip_stream *s = call->state;

    if (s)
        each_oip_item(s, flush_item);
}

static void release_oip_stream(struct ngd_call *call)
{
    struct ngd_oip_stream *s = call->state;

    call->state = NULL;
    if (s)
        ngd_oip_stream_fini(s);
}

const struct ngd_rpc_ops ngd_rpc_oip_stream_infer = {.request = stream_infer,
                                                     .half_closed = half_close_oip_stream,
                                                     .cancelled = cancel_oip_stream,
                                                     .sent = flush_oip_stream,
                                                     .release = release_oip_stream};
