/* SPDX-License-Identifier: Apache-2.0 */
/* One request to a graph, and ModelInfer. The replay itself is that of Graphs.Replay: same scheduler, same checks. */
#include "daemon/handlers/oip_infer.h"

#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
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

static void oip_replayed(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_oip_infer *x = req->user;
    struct ngd_diag why;

    why.status = NGD_OK; /* clearing its text would cost time */
    why.text[0] = '\0';
    if (status == NGD_OK)
        ngd_usage_add(ngd_session_usage(x->model.graph.session), req->charged);
    if (status == NGD_OK && x->n_targets) {
        status = write_targets(x, &why);
        diag = &why;
    }
    release_targets(x);
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
    ngd_status_t status;

    ngd_request_init(&x->request);
    status = ngd_oip_request_params(&x->q, false, diag);
    if (status == NGD_OK)
        status = ngd_oip_read_inputs(x, diag);
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

    leave_failed_device(x);
    status = prepare_infer(x, diag);
    if (status == NGD_OK) {
        x->request.binding = x->model.graph.binding;
        x->request.order = order_of_states(x);
        x->request.share = ngd_session_share(x->model.graph.session);
        x->request.priority = ngd_oip_priority(x->q.params.priority);
        x->request.deadline = ngd_oip_deadline(&x->q.params, x->arrived, x->call->deadline);
        x->request.done = oip_replayed;
        x->request.user = x;
        status = ngd_sched_submit(x->call->daemon->sched, &x->request, diag);
    }
    if (status != NGD_OK) {
        release_targets(x);
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

static ngd_status_t start_infer(struct ngd_call *call, const struct ngd_raw_message *raw, struct ngd_diag *diag)
{
    struct ngd_oip_infer *x = ngd_arena_calloc(&call->life, 1, sizeof(*x));
    ngd_status_t status;

    if (!x)
        return NGD_ERR_NO_MEMORY;
    x->call = call;
    x->arena = &call->arena;
    x->arrived = call->arrived;
    x->reserve = reserve_answer;
    x->done = answer_infer;
    ngd_request_init(&x->request); /* so that it may be cancelled before it is submitted */
    call->state = x;
    status = ngd_oip_request_read(x->arena, raw->data, raw->n, &x->q, diag);
    if (status == NGD_OK)
        status = ngd_oip_find(call, x->q.m->model_name, x->q.m->model_version, &x->model, diag);
    if (status == NGD_OK && x->model.model)
        status = ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                              "\"%.100s\" is a language model, which answers in several responses: use "
                              "ModelStreamInfer",
                              x->q.m->model_name);
    return status == NGD_OK ? ngd_oip_infer_start(x, diag) : status;
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
    struct ngd_oip_infer *x = call->state;

    if (x && x->model.graph.object)
        ngd_oip_infer_cancel(x);
}

static void release_infer(struct ngd_call *call)
{
    struct ngd_oip_infer *x = call->state;

    call->state = NULL;
    if (x)
        ngd_oip_infer_end(x);
}

const struct ngd_rpc_ops ngd_rpc_oip_model_infer = {
    .once = true, .request = model_infer, .cancelled = cancel_infer, .release = release_infer};
