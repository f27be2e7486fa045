/* SPDX-License-Identifier: Apache-2.0 */
/* One request to a graph, and ModelInfer. The replay itself is that of Graphs.Replay: same scheduler, same checks. */
#include "daemon/handlers/oip_infer.h"

#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/oip_stream.h"
#include "daemon/handlers/replay_trace.h"
#include "daemon/identity.h"
#include "daemon/session.h"
#include "daemon/shm_regions.h"
#include "graphs/key.h"
#include "scheduler/run/usage.h"
#include <string.h>
#include <time.h>

/* ---- counts ------------------------------------------------------------------------------------------------------ */

static int64_t wall_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void add_infer_time(_Atomic int64_t *sum, ngd_nsec_t time)
{
    atomic_fetch_add_explicit(sum, time > 0 ? time : 0, memory_order_relaxed);
}

static void count_request(struct ngd_oip_infer *x, ngd_status_t status)
{
    struct ngd_infer_stats *s = &x->model.graph.object->name.stats;
    const ngd_nsec_t *part = x->request.split.part;
    const ngd_nsec_t took = ngd_now() - x->arrived;

    if (status != NGD_OK) {
        atomic_fetch_add_explicit(&s->fail, 1, memory_order_relaxed);
        add_infer_time(&s->fail_time, took);
        return;
    }
    atomic_fetch_add_explicit(&s->success, 1, memory_order_relaxed);
    atomic_store_explicit(&s->last, wall_clock_ms(), memory_order_relaxed);
    add_infer_time(&s->success_time, took);
    add_infer_time(&s->queue_time, part[NGD_SPLIT_QUEUE]);
    add_infer_time(&s->input_time, part[NGD_SPLIT_COPY_IN]);
    add_infer_time(&s->replay_time, part[NGD_SPLIT_REPLAY]);
    add_infer_time(&s->output_time, part[NGD_SPLIT_COPY_OUT]);
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

/* Writes the results that go into shared memory. */
static ngd_status_t write_targets(const struct ngd_oip_infer *x, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < x->n_targets && status == NGD_OK; i++) {
        const struct ngd_oip_target *t = &x->targets[i];

        status = ngd_shm_region_write(t->region, t->offset, t->out->data, t->out->bytes, diag);
    }
    return status;
}

/* Before the answer: the targets are in the arena, which is emptied with it. */
static void release_targets(struct ngd_oip_infer *x)
{
    while (x->n_targets > 0)
        ngd_shm_region_unref(x->targets[--x->n_targets].region);
}

/* ---- its sequence ------------------------------------------------------------------------------------------------ */

ngd_status_t ngd_oip_infer_sequence(const struct ngd_oip_infer *x, struct ngd_oip_sequence_name *name_p,
                                    struct ngd_diag *diag)
{
    if (!x->call->identity->proven && !x->call->session)
        return ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED,
                            "over plaintext TCP nothing proves whose a sequence is: send the metadata npugraph-session "
                            "and npugraph-session-token-bin of a session, or a bearer token");
    *name_p = (struct ngd_oip_sequence_name){.identity = x->call->identity,
                                             .session = x->call->session,
                                             .model = x->q.m->model_name,
                                             .id = x->q.params.sequence};
    return NGD_OK;
}

/* Takes the graph that the sequence began with in place of the one that the name means now. */
static ngd_status_t keep_graph(struct ngd_oip_infer *x, struct ngd_diag *diag)
{
    const uint64_t generation = x->sequence->generation;
    struct ngd_graph_names_scope scope;
    struct ngd_graph_found found = {.object = NULL};

    if (ngd_binding_generation(x->model.graph.binding) == generation)
        return NGD_OK;
    if (*x->q.m->model_version)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the sequence was begun with another version of the model");
    if (!ngd_oip_scope(x->call, &scope) ||
        !ngd_graph_names_find(x->call->daemon->graph_names, &scope, x->q.m->model_name, generation, &found)) {
        ngd_oip_sequence_end(x->sequence);
        return ngd_diag_set(diag, NGD_ERR_MODEL_NOT_FOUND,
                            "the graph that the sequence began with is bound anew or gone; begin the sequence again");
    }
    ngd_graph_found_end(&x->model.graph);
    x->model.graph = found;
    return NGD_OK;
}

/* Makes or finds the sequence of the request. */
static ngd_status_t find_infer_sequence(struct ngd_oip_infer *x, struct ngd_diag *diag)
{
    struct ngd_oip_sequences *all = x->call->daemon->oip_sequences;
    struct ngd_oip_sequence_name name;
    ngd_status_t status;

    if (!x->q.params.sequence[0])
        return NGD_OK;
    status = ngd_oip_infer_sequence(x, &name, diag);
    if (status == NGD_OK && x->q.params.sequence_start)
        return ngd_oip_sequence_of_graph(all, &name, &x->model.graph, &x->sequence, diag);
    if (status == NGD_OK)
        status = ngd_oip_sequence_find(all, &name, &x->sequence, diag);
    return status == NGD_OK ? keep_graph(x, diag) : status;
}

/* Lets the sequence go after its request. ends: no other request may have it. */
static void leave_infer_sequence(struct ngd_oip_infer *x, bool ends)
{
    if (!x->sequence)
        return;
    if (ends)
        ngd_oip_sequence_end(x->sequence);
    ngd_oip_sequence_rest(x->sequence);
    ngd_oip_sequence_unref(x->sequence);
    x->sequence = NULL;
}

/* The request was accepted, and has been answered by the device. If it failed, the sequence ends, and so do the
 * requests that were accepted behind it, whose results would lack its effect. */
static ngd_status_t settle_infer_sequence(struct ngd_oip_infer *x, ngd_status_t status, struct ngd_diag *diag)
{
    if (status == NGD_OK && x->sequence && x->sequence->failed)
        status = ngd_diag_set(diag, NGD_ERR_CANCELLED,
                              "an earlier request of the sequence failed, which ended it; begin it again");
    if (status != NGD_OK && x->sequence)
        x->sequence->failed = true;
    leave_infer_sequence(x, status != NGD_OK || x->q.params.sequence_end);
    return status;
}

/* ---- its course -------------------------------------------------------------------------------------------------- */

static void oip_replayed(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_oip_infer *x = req->user;
    struct ngd_diag why;

    why.status = NGD_OK; /* clearing its text would cost time */
    why.text[0] = '\0';
    if (x->trace)
        ngd_replay_trace(x->trace, req, &x->times);
    if (status == NGD_OK)
        ngd_usage_add(ngd_session_usage(x->model.graph.session), req->charged);
    if (status == NGD_OK) {
        status = write_targets(x, &why);
        diag = &why;
    }
    release_targets(x);
    if (settle_infer_sequence(x, status, &why) != status) {
        status = why.status;
        diag = &why;
    }
    count_request(x, status);
    x->done(x, ngd_oip_status(status), diag);
}

/* A binding whose device has failed moves to another one, as for replays. */
static void leave_failed_device(struct ngd_oip_infer *x)
{
    struct ngd_binding *moved =
        ngd_binding_is_stranded(x->model.graph.binding) ? ngd_binding_move(x->model.graph.binding) : NULL;

    if (!moved)
        return;
    ngd_binding_unref(x->model.graph.binding);
    x->model.graph.binding = ngd_binding_ref(moved);
    ngd_graph_object_rebind(x->model.graph.object, moved);
}

/* Does what must be done before the scheduler gets the request, which checks guards, types and sizes. */
static ngd_status_t prepare_infer(struct ngd_oip_infer *x, struct ngd_diag *diag)
{
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(x->model.graph.binding));
    ngd_status_t status = ngd_oip_read_inputs(x, diag);

    if (status == NGD_OK)
        status = ngd_key_check_ranges(g, x->request.launch.symbols, x->request.n_symbols, diag);
    if (status == NGD_OK)
        status = ngd_oip_lay_out(x, diag);
    if (status != NGD_OK)
        ngd_program_refused(ngd_binding_program(x->model.graph.binding), status, diag, 0);
    return status;
}

/* Requests that may write states run one after another: two of them in different slots would write at the same time.
 * They are a part of the session's stream 0, so that its replays there do not meet them either. */
static struct ngd_order *order_of_states(const struct ngd_oip_infer *x)
{
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(x->model.graph.binding));

    return g->n_states ? ngd_session_order(x->model.graph.session, 0) : NULL;
}

ngd_status_t ngd_oip_infer_start(struct ngd_oip_infer *x, struct ngd_diag *diag)
{
    ngd_status_t status;

    ngd_request_init(&x->request);
    status = ngd_oip_request_params(&x->q, false, diag);
    if (status == NGD_OK)
        status = find_infer_sequence(x, diag);
    if (!x->sequence)
        leave_failed_device(x);
    if (status == NGD_OK)
        status = prepare_infer(x, diag);
    if (status == NGD_OK) {
        if (x->q.params.sequence_start && !x->q.params.sequence_end)
            ngd_oip_sequence_keep(x->sequence);
        x->request.binding = x->sequence ? x->sequence->binding : x->model.graph.binding;
        x->request.order = x->sequence ? x->sequence->order : order_of_states(x);
        x->request.share = ngd_session_share(x->model.graph.session);
        x->request.priority = ngd_oip_priority(x->q.params.priority);
        x->request.deadline = ngd_oip_deadline(&x->q.params, x->arrived, x->call->deadline);
        x->request.done = oip_replayed;
        x->request.user = x;
        x->request.times = x->trace ? &x->times : NULL;
        ngd_trace_record_asked(x->trace);
        status = ngd_sched_submit(x->call->daemon->sched, &x->request, diag);
    }
    if (status != NGD_OK) {
        release_targets(x);
        leave_infer_sequence(x, x->q.params.sequence_start != 0); /* one that goes on is as it was */
        count_request(x, status);
    }
    return ngd_oip_status(status);
}

void ngd_oip_infer_cancel(struct ngd_oip_infer *x)
{
    ngd_sched_cancel(x->call->daemon->sched, &x->request);
}

void ngd_oip_infer_end(struct ngd_oip_infer *x)
{
    if (x->block)
        ngd_blocks_give(&x->call->daemon->blocks, x->block);
    if (x->out_block)
        ngd_blocks_give(&x->call->daemon->blocks, x->out_block);
    x->block = x->out_block = NULL;
    ngd_charge_end(&x->charge);
    ngd_charge_end(&x->out_charge);
    ngd_oip_model_end(&x->model);
}

/* ---- ModelInfer -------------------------------------------------------------------------------------------------- */

static uint8_t *reserve_answer(struct ngd_oip_infer *x, size_t bytes, ngd_status_t *status_p, struct ngd_diag *diag)
{
    return ngd_call_reserve(x->call, bytes, status_p, diag);
}

static void answer_infer(struct ngd_oip_infer *x, ngd_status_t status, const struct ngd_diag *diag)
{
    if (status == NGD_OK)
        ngd_call_reply_reserved(x->call, x->n_response);
    else
        ngd_call_fail(x->call, status, diag);
}

/* A call's state. A language model's request is a stream of its own kind. */
struct infer_call {
    struct ngd_oip_infer infer;
    struct ngd_oip_stream *stream; /* NULL: it is a request to a graph */
};

static ngd_status_t start_infer(struct ngd_call *call, const struct ngd_raw_message *raw, struct ngd_diag *diag)
{
    struct infer_call *state = ngd_arena_calloc(&call->life, 1, sizeof(*state));
    struct ngd_oip_infer *x = &state->infer;
    ngd_status_t status;

    if (!state)
        return NGD_ERR_NO_MEMORY;
    x->call = call;
    x->arena = &call->arena;
    x->arrived = call->arrived;
    x->reserve = reserve_answer;
    x->done = answer_infer;
    x->trace = call->trace;
    ngd_request_init(&x->request); /* so that it may be cancelled before it is submitted */
    call->state = state;
    status = ngd_oip_request_read(x->arena, raw->data, raw->n, &x->q, diag);
    if (status == NGD_OK)
        status = ngd_oip_find(call, x->q.m->model_name, x->q.m->model_version, &x->model, diag);
    if (status != NGD_OK)
        return status;
    if (x->model.graph.object)
        return ngd_oip_infer_start(x, diag);
    return ngd_oip_generate_once(call, raw, &x->model, &state->stream, diag);
}

static void model_infer(struct ngd_call *call, const void *msg)
{
    struct ngd_diag diag;
    ngd_status_t status;

    diag.status = NGD_OK; /* clearing its text would cost time */
    diag.text[0] = '\0';
    status = start_infer(call, msg, &diag);
    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
}

static void cancel_infer(struct ngd_call *call)
{
    struct infer_call *state = call->state;

    if (state && state->stream)
        ngd_oip_stream_stop(state->stream);
    else if (state && state->infer.model.graph.object)
        ngd_oip_infer_cancel(&state->infer);
}

static void release_infer(struct ngd_call *call)
{
    struct infer_call *state = call->state;

    call->state = NULL;
    if (!state)
        return;
    if (state->stream)
        ngd_oip_stream_fini(state->stream);
    ngd_oip_infer_end(&state->infer);
}

const struct ngd_rpc_ops ngd_rpc_oip_model_infer = {
    .once = true, .request = model_infer, .cancelled = cancel_infer, .release = release_infer};
