/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs.Replay and ReplayStream: the path that is measured in microseconds.
 *
 * A request is read in place: inputs point into the message. First the answer's message is reserved at its full size
 * and its outputs' fields are laid out in it; the launch then writes results straight into them. The request, its
 * arrays and the message are in the call's arena. The scheduler may run the request on this thread; done() answers on
 * the thread that ran it.
 */
#include "daemon/daemon.h"
#include "daemon/handlers/graph_info.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/priority.h"
#include "daemon/handlers/replay_read.h"
#include "daemon/handlers/replay_shared.h"
#include "daemon/handlers/replay_trace.h"
#include "daemon/rpc/call_trace.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/session.h"
#include "daemon/wire.h"
#include "proto/word.h"
#include "scheduler/run/usage.h"

#include <inttypes.h>
#include <string.h>

enum { R_OUTPUTS = 1, R_TAG = 2, R_QUEUE = 3, R_DEVICE = 4, R_ERROR = 5, R_SHARED = 6, R_TIMING = 15 };
/* Field numbers, in the order of splits.def. */
enum { T_QUEUE = 1, T_COPY_IN = 2, T_REPLAY = 3, T_COPY_OUT = 4, T_PADDING = 5, T_REQUESTS = 6, T_CHARGED = 7 };
enum { E_CODE = 1, E_REASON = 2, E_MESSAGE = 3 };

#define TIMING_FIELDS (NGD_SPLIT_PARTS + 2)
#define TAIL_BYTES    ((5 + TIMING_FIELDS) * NGD_WIRE_U64_MAX)

/* State that a stream keeps between messages. */
struct replayer {
    struct ngd_graph_object *object; /* a reference */
    struct ngd_binding *binding;     /* of this message; a reference */
    uint64_t id;
    struct ngd_call *call;
    struct ngd_request request;
    uint64_t tag;
    bool timing;
    uint8_t *reply; /* reserved */
    uint8_t *tail;  /* the part after the outputs */
    struct ngd_replay_shared shared;
    struct ngd_request_times times; /* of a traced request */
};

/* ---- the answer's layout ------------------------------------------------------------------------- */

static ngd_status_t choose_outputs(uint32_t n, struct ngd_replay_message *m, struct ngd_call *call,
                                   struct ngd_diag *diag)
{
    if (m->n_outputs == 0) {
        m->outputs = ngd_arena_alloc(&call->arena, (n + 1u) * sizeof(*m->outputs));
        if (!m->outputs)
            return NGD_ERR_NO_MEMORY;
        for (; m->n_outputs < n; m->n_outputs++)
            m->outputs[m->n_outputs] = m->n_outputs;
    }
    for (uint32_t i = 0; i < m->n_outputs; i++) {
        if (m->outputs[i] >= n)
            return ngd_diag_set(diag, NGD_ERR_OUTPUT_UNKNOWN,
                                "output %u was requested, but the graph has only %u outputs", m->outputs[i], n);
    }
    return NGD_OK;
}

/* Reserves the answer's message and points the launch's outputs into it. The number and ranges of the symbols have been
 * checked. */
static ngd_status_t lay_out_answer(struct replayer *r, struct ngd_replay_message *m, struct ngd_diag *diag)
{
    const uint32_t n = ngd_binding_n_outputs(r->binding);
    struct ngd_out *outs = ngd_arena_calloc(&r->call->arena, n + 1u, sizeof(*outs));
    uint64_t total = TAIL_BYTES + (m->n_shared_outputs + 1u) * (uint64_t)NGD_WIRE_U64_MAX, bytes;
    uint32_t listed = 0;
    ngd_status_t status;
    uint8_t *p;

    if (!outs)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < m->n_outputs; i++) {
        uint32_t at = m->outputs[i];
        const struct ngd_graph *g = ngd_binding_output(r->binding, &at);

        if (ngd_value_bytes(g, g->outputs[at].value, m->symbols, &bytes) != NGD_OK ||
            __builtin_add_overflow(total, NGD_WIRE_U64_MAX, &total) ||
            (!ngd_replay_shared_target(&r->shared, m->outputs[i]) && __builtin_add_overflow(total, bytes, &total)))
            return ngd_diag_set(diag, NGD_ERR_OVERFLOW, "the size of output \"%.100s\" overflows", g->outputs[at].name);
        outs[m->outputs[i]].bytes = bytes;
    }
    status = ngd_replay_shared_read(&r->shared, r->call, m, outs, diag);
    if (status != NGD_OK)
        return status;
    p = ngd_call_reserve(r->call, total, &status, diag);
    if (!p)
        return status;
    r->reply = p;
    for (uint32_t i = 0; i < m->n_outputs; i++) {
        struct ngd_shared_target *target = ngd_replay_shared_target(&r->shared, m->outputs[i]);
        struct ngd_out *out = &outs[m->outputs[i]];

        if (target ? target->listed : out->data != NULL)
            return ngd_diag_set(diag, NGD_ERR_OUTPUT_UNKNOWN, "output %u was requested twice", m->outputs[i]);
        p = ngd_wire_put_bytes_head(p, R_OUTPUTS, target ? 0 : out->bytes);
        if (target) {
            target->listed = true;
            listed++;
            continue;
        }
        out->data = p;
        p += out->bytes;
    }
    if (listed < r->shared.n_targets)
        return ngd_diag_set(diag, NGD_ERR_OUTPUT_UNKNOWN, "shared_outputs names an output that is not in outputs");
    r->tail = p;
    r->request.launch.outputs = outs;
    r->request.n_outputs = n;
    return NGD_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

/* Ends a unary call with the error. On a stream the error is an answer, and the stream goes on, unless there is no
 * memory for the answer. */
static void answer_replay_error(struct replayer *r, ngd_status_t status, const struct ngd_diag *diag)
{
    const char *reason = ngd_status_name(status), *text = diag && diag->text[0] ? diag->text : ngd_status_text(status);
    size_t n_reason = strlen(reason), n_text = strlen(text), inner;
    uint8_t *begin, *p;
    ngd_status_t reserved;

    ngd_replay_shared_end(&r->shared);
    ngd_call_trace_fail(r->call, status, text);
    if (r->call->method->kind == NGD_RPC_UNARY) {
        ngd_call_fail(r->call, status, diag);
        return;
    }
    inner = NGD_WIRE_U64_MAX + n_reason + n_text + 2 * NGD_WIRE_U64_MAX;
    begin = p = ngd_call_reserve(r->call, inner + 3 * NGD_WIRE_U64_MAX, &reserved, NULL);
    if (!p) {
        ngd_call_fail(r->call, status, diag);
        return;
    }
    inner = 1 + ngd_wire_varint_size((uint64_t)ngd_status_grpc(status)) + 1 + ngd_wire_varint_size(n_reason) +
            n_reason + 1 + ngd_wire_varint_size(n_text) + n_text;
    p = ngd_wire_put_u64(p, R_TAG, r->tag);
    p = ngd_wire_put_bytes_head(p, R_ERROR, inner);
    p = ngd_wire_put_i32(p, E_CODE, ngd_status_grpc(status));
    p = ngd_wire_put_bytes(p, E_REASON, reason, n_reason);
    p = ngd_wire_put_bytes(p, E_MESSAGE, text, n_text);
    ngd_call_reply_reserved(r->call, (size_t)(p - begin));
}

static uint8_t *put_timing(uint8_t *p, const struct ngd_request *req)
{
    static const uint32_t fields[NGD_SPLIT_PARTS] = {[NGD_SPLIT_QUEUE] = T_QUEUE,
                                                     [NGD_SPLIT_COPY_IN] = T_COPY_IN,
                                                     [NGD_SPLIT_REPLAY] = T_REPLAY,
                                                     [NGD_SPLIT_COPY_OUT] = T_COPY_OUT,
                                                     [NGD_SPLIT_PADDING] = T_PADDING};
    uint8_t inner[TIMING_FIELDS * NGD_WIRE_U64_MAX], *end = inner;

    for (int i = 0; i < NGD_SPLIT_PARTS; i++)
        end = ngd_wire_put_u64(end, fields[i], (uint64_t)req->split.part[i]);
    end = ngd_wire_put_u64(end, T_REQUESTS, req->together);
    end = ngd_wire_put_u64(end, T_CHARGED, (uint64_t)req->charged);
    return ngd_wire_put_bytes(p, R_TIMING, inner, (size_t)(end - inner));
}

/* Writes the results that belong into shared buffers, and their sizes into the answer. */
static uint8_t *put_shared(uint8_t *p, struct replayer *r, ngd_status_t *status_p, struct ngd_diag *diag)
{
    size_t n = 0;

    *status_p = ngd_replay_shared_write(&r->shared, diag);
    for (uint32_t i = 0; i < r->shared.n_targets; i++)
        n += ngd_wire_varint_size(r->shared.targets[i].out->bytes);
    if (*status_p == NGD_OK && n) {
        p = ngd_wire_put_bytes_head(p, R_SHARED, n);
        for (uint32_t i = 0; i < r->shared.n_targets; i++)
            p = ngd_wire_put_varint(p, r->shared.targets[i].out->bytes);
    }
    ngd_replay_shared_end(&r->shared);
    return p;
}

static void answer_replay(struct replayer *r, const struct ngd_request *req)
{
    struct ngd_diag diag;
    ngd_status_t status = NGD_OK;
    uint8_t *p = r->tail;

    diag.status = NGD_OK; /* as in request_replay */
    diag.text[0] = '\0';
    if (r->shared.block)
        p = put_shared(p, r, &status, &diag);
    if (status != NGD_OK) {
        answer_replay_error(r, status, &diag);
        return;
    }
    p = ngd_wire_put_u64(p, R_TAG, r->tag);
    p = ngd_wire_put_u64(p, R_QUEUE, (uint64_t)(req->started > req->submitted ? req->started - req->submitted : 0));
    p = ngd_wire_put_u64(p, R_DEVICE, (uint64_t)req->launch.device_time);
    if (r->timing)
        p = put_timing(p, req);
    ngd_usage_add(ngd_session_usage(r->call->session), req->charged * ngd_binding_ranks(req->binding));
    ngd_call_reply_reserved(r->call, (size_t)(p - r->reply));
}

static void replayed(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct replayer *r = req->user;

    if (r->call->trace)
        ngd_replay_trace(r->call->trace, req, &r->times);
    if (status == NGD_OK)
        answer_replay(r, req);
    else
        answer_replay_error(r, status, diag);
}

/* Finds the graph of the message. A message that names none uses the graph of the message before; it is looked up
 * again, so that a released graph is found out. */
static ngd_status_t switch_graph(struct replayer *r, uint64_t id, struct ngd_diag *diag)
{
    struct ngd_object *o;
    ngd_status_t status;

    if (id == 0 && !r->object)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the request names no graph");
    status = ngd_session_get(r->call->session, id ? id : r->id, NGD_OBJECT_GRAPH, &o, diag);
    if (status != NGD_OK)
        return status;
    ngd_object_unref(r->object ? &r->object->base : NULL);
    r->object = ngd_container_of(o, struct ngd_graph_object, base);
    r->id = id ? id : r->id;
    return NGD_OK;
}

static ngd_status_t read_replay_priority(const struct ngd_replay_message *m, ngd_priority_t *priority_p,
                                         struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (m->priority) /* rarely */
        status = ngd_wire_check_enum(&npugraph__v1__replay_request__descriptor, "priority", m->priority, diag);
    if (status == NGD_OK)
        *priority_p = ngd_priority_of((Npugraph__V1__Priority)m->priority, NGD_PRIORITY_NORMAL);
    return status;
}

/* Moves the graph to another device if its device has failed and nothing is lost with it. */
static void move(struct replayer *r)
{
    struct ngd_binding *moved = ngd_binding_move(r->binding);

    if (!moved)
        return;
    ngd_binding_unref(r->binding);
    r->binding = ngd_binding_ref(moved);
    ngd_graph_object_rebind(r->object, moved);
}

/* Sets the request's order. A ReplayStream needs none: its next message is read when this one is answered. */
static ngd_status_t choose_stream(struct replayer *r, const struct ngd_replay_message *m, struct ngd_diag *diag)
{
    bool unary = r->call->method->kind == NGD_RPC_UNARY;

    if (m->stream >= NGD_SESSION_STREAMS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "stream is %" PRIu64 "; a session has the logical streams 0 to %d", m->stream,
                            NGD_SESSION_STREAMS - 1);
    if (!unary && m->stream)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "stream is %" PRIu64 "; a ReplayStream is a logical stream by itself: leave it out",
                            m->stream);
    r->request.order = unary ? ngd_session_order(r->call->session, (uint32_t)m->stream) : NULL;
    r->request.events = ngd_session_events(r->call->session);
    r->request.wait_event = m->wait_event;
    r->request.record_event = m->record_event;
    return NGD_OK;
}

/* Asks the scheduler for the request's times. */
static void trace_request(struct replayer *r, uint64_t stream)
{
    r->times = (struct ngd_request_times){0};
    r->request.times = &r->times;
    ngd_trace_record_number(r->call->trace, "npugraph.graph_id", (int64_t)r->id);
    ngd_trace_record_number(r->call->trace, "npugraph.stream", (int64_t)stream);
}

static ngd_status_t submit_replay(struct replayer *r, const struct ngd_raw_message *raw, struct ngd_diag *diag)
{
    const struct ngd_graph *g;
    struct ngd_replay_message m;
    ngd_status_t status = ngd_replay_read(&r->call->arena, raw->data, raw->n, &m, diag);

    r->tag = m.tag;
    r->timing = m.timing;
    r->request.times = NULL;
    if (r->call->method->kind == NGD_RPC_LOCKSTEP)
        ngd_call_trace_message(r->call, m.trace_parent.data, m.trace_parent.bytes);
    if (status == NGD_OK)
        status = switch_graph(r, m.graph, diag);
    if (status != NGD_OK)
        return status;
    ngd_binding_unref(r->binding);
    r->binding = ngd_graph_object_binding(r->object);
    if (ngd_binding_is_stranded(r->binding))
        move(r);
    g = ngd_program_graph(ngd_binding_program(r->binding));
    /* Checks ranges first: sizes are computed from symbols, which must be in range. The scheduler makes the key and
     * checks all guards. */
    status = ngd_key_check_ranges(g, m.symbols, m.n_symbols, diag);
    if (status == NGD_OK)
        status = choose_outputs(ngd_binding_n_outputs(r->binding), &m, r->call, diag);
    ngd_request_init(&r->request);
    if (status == NGD_OK)
        status = read_replay_priority(&m, &r->request.priority, diag);
    if (status == NGD_OK)
        status = choose_stream(r, &m, diag);
    if (status == NGD_OK)
        status = ngd_replay_shared_find(&r->shared, r->call, &m, ngd_binding_n_outputs(r->binding), diag);
    if (status == NGD_OK)
        status = lay_out_answer(r, &m, diag);
    if (status != NGD_OK) {
        if (!r->call->elsewhere)
            ngd_program_refused(ngd_binding_program(r->binding), status, diag, m.tag);
        return status;
    }
    r->request.binding = r->binding;
    r->request.share = ngd_session_share(r->call->session);
    r->request.launch.symbols = m.symbols;
    r->request.launch.inputs = m.inputs;
    r->request.launch.hosts = m.hosts;
    r->request.launch.eager = m.eager;
    r->request.launch.tag = m.tag;
    r->request.types = m.types;
    r->request.n_types = m.n_types;
    r->request.generation = m.generation;
    r->request.n_symbols = m.n_symbols;
    r->request.n_inputs = m.n_inputs;
    r->request.n_hosts = m.n_hosts;
    r->request.deadline = r->call->deadline;
    r->request.done = replayed;
    r->request.user = r;
    if (r->call->trace)
        trace_request(r, m.stream);
    return ngd_sched_submit(r->call->daemon->sched, &r->request, diag);
}

static void request_replay(struct ngd_call *call, const void *msg)
{
    struct replayer *r = call->state;
    struct ngd_diag diag;
    ngd_status_t status;

    if (!r) {
        r = ngd_arena_calloc(&call->life, 1, sizeof(*r));
        if (!r) {
            ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
            return;
        }
        r->call = call;
        call->state = r;
    }
    diag.status = NGD_OK; /* sets only the status: clearing the text, a kilobyte, would cost time on each replay */
    diag.text[0] = '\0';
    status = submit_replay(r, msg, &diag);
    if (status != NGD_OK && r->request.times)
        ngd_replay_trace(call->trace, &r->request, &r->times);
    if (status != NGD_OK)
        answer_replay_error(r, status, &diag);
}

static void cancel_replay(struct ngd_call *call)
{
    struct replayer *r = call->state;

    if (r && r->object)
        ngd_sched_cancel(call->daemon->sched, &r->request);
}

static void release_replayer(struct ngd_call *call)
{
    struct replayer *r = call->state;

    call->state = NULL;
    if (r)
        ngd_replay_shared_end(&r->shared);
    if (r)
        ngd_binding_unref(r->binding);
    if (r)
        ngd_object_unref(r->object ? &r->object->base : NULL);
}

const struct ngd_rpc_ops ngd_rpc_graphs_replay = {
    .once = true, .request = request_replay, .cancelled = cancel_replay, .release = release_replayer};
const struct ngd_rpc_ops ngd_rpc_graphs_replay_stream = {
    .request = request_replay, .cancelled = cancel_replay, .release = release_replayer};
