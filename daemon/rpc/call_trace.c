/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/call_trace.h"

#include "base/exemplar.h"
#include "daemon/identity.h"
#include "daemon/rpc/rpc_method.h"
#include "daemon/session.h"
#include <string.h>

/* Returns memory for a record. A stream has it once, for all its messages. */
static struct ngd_trace_record *record_room(struct ngd_call *call)
{
    if (!call->trace_room)
        call->trace_room = ngd_arena_alloc(&call->life, sizeof(*call->trace_room));
    return call->trace_room;
}

void ngd_call_trace_begin(struct ngd_call *call, const struct ngd_trace_context *parent)
{
    struct ngd_trace_record *record;
    struct ngd_trace_ids ids;

    call->trace = NULL;
    if (!ngd_trace_decide(call->daemon->tracer, parent, &ids))
        return;
    record = record_room(call);
    if (!record)
        return;
    ngd_trace_begin(record, &ids, parent, call->arrived);
    record->path = call->method->path;
    call->trace = record;
}

void ngd_call_trace_message_begin(struct ngd_call *call, const uint8_t *data, size_t n)
{
    struct ngd_trace_context context;

    if (n && ngd_trace_context_unpack(data, n, &context))
        ngd_call_trace_begin(call, &context);
    else
        ngd_call_trace_begin(call, call->trace_parent);
    if (call->trace)
        call->trace->message = true;
}

/* The ids of a record do not change, and its memory is the call's, so another thread may end it meanwhile. */
static const struct ngd_trace_context *context_of_call(struct ngd_call *call, struct ngd_trace_context *own)
{
    const struct ngd_trace_record *record = atomic_load_explicit(&call->trace, memory_order_acquire);

    if (!record)
        return call->trace_parent;
    memcpy(own->trace, record->trace, NGD_TRACE_ID);
    memcpy(own->span, record->span, NGD_SPAN_ID);
    own->sampled = true;
    memcpy(own->state, record->state, sizeof(own->state));
    return own;
}

struct ngd_trace_record *ngd_call_trace_request(struct ngd_call *call, struct ngd_arena *arena)
{
    const struct ngd_trace_context *parent;
    struct ngd_trace_record *record;
    struct ngd_trace_context own;
    struct ngd_trace_ids ids;

    if (!ngd_tracer_on(call->daemon->tracer))
        return NULL;
    parent = context_of_call(call, &own);
    if (!ngd_trace_decide(call->daemon->tracer, parent, &ids))
        return NULL;
    record = ngd_arena_alloc(arena, sizeof(*record));
    if (!record)
        return NULL;
    ngd_trace_begin(record, &ids, parent, call->arrived);
    record->path = call->method->path;
    record->message = true;
    return record;
}

void ngd_call_trace_fail(struct ngd_call *call, ngd_status_t status, const char *text)
{
    struct ngd_trace_record *record = call->trace;

    if (!record)
        return;
    record->status = status;
    ngd_trace_copy_text(record->text, sizeof(record->text), text);
}

/* Links the histograms that counted this call to its trace. */
static void note_exemplars(const struct ngd_call *call, const struct ngd_trace_record *record)
{
    ngd_nsec_t device = 0;

    if (call->method->kind == NGD_RPC_UNARY)
        ngd_metric_exemplar(NGD_M_RPC_SECONDS, record->end - record->begin, record->trace);
    if (!record->key) /* nothing was replayed */
        return;
    for (uint32_t i = 0; i < record->n_parts; i++) {
        const ngd_nsec_t time = record->parts[i].end - record->parts[i].begin;

        if (record->parts[i].what == NGD_TRACE_QUEUE)
            ngd_metric_exemplar(NGD_M_QUEUE_SECONDS, time, record->trace);
        else if (record->parts[i].in == NGD_TRACE_TOP)
            device += time;
    }
    ngd_metric_exemplar(NGD_M_REPLAY_SECONDS, device, record->trace);
}

void ngd_call_trace_end(struct ngd_call *call, struct ngd_trace_record *record, ngd_nsec_t now, ngd_status_t status,
                        const char *text)
{
    record->end = now;
    record->status = status;
    if (status != NGD_OK && text != record->text)
        ngd_trace_copy_text(record->text, sizeof(record->text), text);
    record->session = call->session ? ngd_session_id(call->session) : 0;
    ngd_trace_copy_text(record->identity, sizeof(record->identity), call->identity->name);
    if (ngd_trace_end(call->daemon->tracer, &call->identity->trace_rate, record))
        note_exemplars(call, record);
}
