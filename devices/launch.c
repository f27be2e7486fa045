/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executables, instances, streams and events: checks arguments and keeps references above a backend.
 *
 * An instance remembers the generation of the pool memory that its addresses are bound to. A launch compares one atomic
 * with it. Only if the pool has moved, since an instance with a larger need was created, does the launch rebind its
 * instance; other instances are not touched. Only the stream's user launches, and nothing else runs in that pool then.
 */
#include "base/mem.h"
#include "devices/comm.h"
#include "devices/device_int.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- executables ------------------------------------------------------------------------------------- */

ngd_status_t ngd_exec_create(struct ngd_device *dev, struct ngd_plan *plan, struct ngd_exec **exec_p,
                             struct ngd_diag *diag)
{
    return ngd_exec_create_in(dev, plan, NULL, 0, exec_p, diag);
}

ngd_status_t ngd_exec_create_in(struct ngd_device *dev, struct ngd_plan *plan, struct ngd_comm *const *comms,
                                uint32_t n_comms, struct ngd_exec **exec_p, struct ngd_diag *diag)
{
    struct ngd_exec *exec = NGD_NEW(struct ngd_exec);
    struct ngd_backend_group groups[NGD_GRAPH_MAX_GROUPS];
    ngd_status_t status;

    if (!exec)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    status = ngd_comm_match(dev, plan, comms, n_comms, exec->comms, groups, &exec->n_comms, diag);
    if (status == NGD_OK)
        status =
            dev->backend->code.instantiate(dev->handle, plan, groups, exec->n_comms, &exec->handle, &exec->bytes, diag);
    if (status) {
        ngd_free(exec);
        return status;
    }
    exec->bytes += sizeof(*exec);
    exec->dev = dev;
    exec->plan = ngd_plan_ref(plan);
    for (uint32_t i = 0; i < exec->n_comms; i++)
        ngd_comm_ref(exec->comms[i]);
    atomic_init(&exec->refs, 1);
    *exec_p = exec;
    return NGD_OK;
}

struct ngd_exec *ngd_exec_ref(struct ngd_exec *exec)
{
    atomic_fetch_add_explicit(&exec->refs, 1, memory_order_relaxed);
    return exec;
}

struct ngd_exec *ngd_exec_unref(struct ngd_exec *exec)
{
    if (!exec || atomic_fetch_sub_explicit(&exec->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    exec->dev->backend->code.destroy(exec->dev->handle, exec->handle);
    for (uint32_t i = 0; i < exec->n_comms; i++)
        ngd_comm_unref(exec->comms[i]);
    ngd_plan_unref(exec->plan);
    ngd_free(exec);
    return NULL;
}

const struct ngd_plan *ngd_exec_plan(const struct ngd_exec *exec)
{
    return exec->plan;
}

const char *ngd_exec_note(const struct ngd_exec *exec)
{
    return exec->dev->backend->code.note ? exec->dev->backend->code.note(exec->handle) : NULL;
}

uint64_t ngd_exec_bytes(const struct ngd_exec *exec)
{
    return exec->bytes;
}

/* ---- static kernels ---------------------------------------------------------------------------------- */

static const struct {
    const char *name, *text;
} static_results[NGD_STATIC_RESULT_MAX] = {
#define NGD_STATIC_RESULT(ID, name, text) [NGD_STATIC_##ID] = {name, text},
#include "devices/static_results.def"
#undef NGD_STATIC_RESULT
};

const char *ngd_static_result_name(ngd_static_result_t result)
{
    return static_results[result].name;
}

const char *ngd_static_result_text(ngd_static_result_t result)
{
    return static_results[result].text;
}

ngd_status_t ngd_exec_static_source(struct ngd_exec *exec, struct ngd_strbuf *source, struct ngd_diag *diag)
{
    const struct ngd_backend_code *code = &exec->dev->backend->code;

    return code->static_source ? code->static_source(exec->dev->handle, exec->handle, source, diag) : NGD_OK;
}

void ngd_exec_static_toolchain(struct ngd_exec *exec, const char *compiler, struct ngd_strbuf *lines)
{
    exec->dev->backend->code.static_toolchain(exec->dev->handle, compiler, lines);
}

ngd_static_result_t ngd_exec_static_compile(struct ngd_exec *exec, const struct ngd_static_work *work,
                                            struct ngd_strbuf *object, struct ngd_diag *diag)
{
    return exec->dev->backend->code.static_compile(exec->dev->handle, work, object, diag);
}

ngd_status_t ngd_exec_static_adopt(struct ngd_exec *exec, const void *object, size_t n, struct ngd_diag *diag)
{
    return exec->dev->backend->code.static_adopt(exec->dev->handle, exec->handle, object, n, diag);
}

bool ngd_exec_static_begin(struct ngd_exec *exec)
{
    int none = NGD_STATIC_NOT_ASKED;

    return atomic_compare_exchange_strong(&exec->static_result, &none, (int)NGD_STATIC_PENDING);
}

void ngd_exec_static_set(struct ngd_exec *exec, ngd_static_result_t result)
{
    atomic_store(&exec->static_result, (int)result);
}

ngd_static_result_t ngd_exec_static_get(const struct ngd_exec *exec)
{
    return (ngd_static_result_t)atomic_load(&exec->static_result);
}

bool ngd_exec_wanted(const struct ngd_exec *exec)
{
    return atomic_load(&exec->refs) > 1;
}

/* ---- instances --------------------------------------------------------------------------------------- */

static const struct ngd_value *bound_graph_value(const struct ngd_graph *g, uint32_t i)
{
    return &g->values[i < g->n_params ? g->params[i] : g->states[i - g->n_params]];
}

static ngd_status_t check_bound_buffers(const struct ngd_exec *exec, struct ngd_buffer *const *buffers, uint32_t n,
                                        struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    uint32_t want = plan->graph->n_params + plan->graph->n_states;

    if (n != want)
        return ngd_diag_set(diag, n < want ? NGD_ERR_BINDING_MISSING : NGD_ERR_BINDING_MISMATCH,
                            "graph \"%.100s\" binds %u buffers (its parameters, then its states), not %u",
                            plan->graph->name, want, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct ngd_value *v = bound_graph_value(plan->graph, i);

        if (!buffers[i])
            return ngd_diag_set(diag, NGD_ERR_BINDING_MISSING, "\"%.200s\" of graph \"%.100s\" has no buffer", v->label,
                                plan->graph->name);
        if (buffers[i]->dev != exec->dev)
            return ngd_diag_set(diag, NGD_ERR_BINDING_MISMATCH,
                                "buffer \"%.200s\" for \"%.200s\" is on another device than %s", buffers[i]->label,
                                v->label, exec->dev->info.name);
        if (buffers[i]->bytes < plan->bound[i].bytes)
            return ngd_diag_set(diag, NGD_ERR_BINDING_MISMATCH,
                                "buffer \"%.200s\" has %" PRIu64 " bytes, \"%.200s\" needs %" PRIu64, buffers[i]->label,
                                buffers[i]->bytes, v->label, plan->bound[i].bytes);
    }
    return NGD_OK;
}

static ngd_status_t bind_instance(struct ngd_instance *inst, struct ngd_diag *diag)
{
    struct ngd_exec *exec = inst->exec;
    ngd_status_t status = ngd_pool_ensure(inst->pool, exec->plan->pool_bytes, diag);
    uint64_t generation;

    if (status)
        return status;
    generation = atomic_load(&inst->pool->generation);
    status = exec->dev->backend->code.bind(exec->dev->handle, exec->handle, inst->pool->mem, inst->mems, inst->n,
                                           &inst->handle, diag);
    if (status == NGD_OK)
        inst->pool_generation = generation;
    return status;
}

static struct ngd_instance *new_instance(struct ngd_exec *exec, struct ngd_buffer *const *buffers, uint32_t n,
                                         struct ngd_pool *pool)
{
    struct ngd_instance *inst = NGD_NEW(struct ngd_instance);

    if (!inst)
        return NULL;
    inst->buffers = NGD_NEW_N(struct ngd_buffer *, n);
    inst->mems = NGD_NEW_N(void *, n);
    if (!inst->buffers || !inst->mems) {
        ngd_free(inst->buffers);
        ngd_free(inst->mems);
        ngd_free(inst);
        return NULL;
    }
    inst->exec = ngd_exec_ref(exec);
    inst->pool = pool;
    inst->n = n;
    for (uint32_t i = 0; i < n; i++) {
        inst->buffers[i] = ngd_buffer_ref(buffers[i]);
        inst->mems[i] = buffers[i]->mem;
    }
    return inst;
}

ngd_status_t ngd_instance_create(struct ngd_exec *exec, struct ngd_buffer *const *buffers, uint32_t n,
                                 struct ngd_pool *pool, struct ngd_instance **inst_p, struct ngd_diag *diag)
{
    struct ngd_instance *inst;
    ngd_status_t status = check_bound_buffers(exec, buffers, n, diag);

    if (status)
        return status;
    inst = new_instance(exec, buffers, n, pool);
    if (!inst)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an instance of graph \"%.200s\"",
                            exec->plan->graph->name);
    status = bind_instance(inst, diag);
    if (status) {
        ngd_instance_destroy(inst);
        return status;
    }
    *inst_p = inst;
    return NGD_OK;
}

/* A bound instance has a list like its executable's, with addresses, so it is charged the executable's bytes. */
ngd_status_t ngd_instance_charge(struct ngd_instance *inst, struct ngd_payer *payer, struct ngd_diag *diag)
{
    const uint64_t n = sizeof(*inst) + inst->n * (sizeof(inst->buffers[0]) + sizeof(inst->mems[0])) + inst->exec->bytes;

    return ngd_charge_begin(&inst->charge, payer, n, diag);
}

void ngd_instance_destroy(struct ngd_instance *inst)
{
    struct ngd_charge charge;

    if (!inst)
        return;
    charge = ngd_charge_move(&inst->charge);
    if (inst->handle)
        inst->exec->dev->backend->code.unbind(inst->exec->dev->handle, inst->handle);
    for (uint32_t i = 0; i < inst->n; i++)
        ngd_buffer_unref(inst->buffers[i]);
    ngd_exec_unref(inst->exec);
    ngd_free(inst->buffers);
    ngd_free(inst->mems);
    ngd_free(inst);
    ngd_charge_end(&charge);
}

struct ngd_exec *ngd_instance_exec(const struct ngd_instance *inst)
{
    return inst->exec;
}

static bool is_bound(const struct ngd_instance *inst)
{
    return inst->pool_generation == atomic_load_explicit(&inst->pool->generation, memory_order_acquire);
}

bool ngd_instance_ready(const struct ngd_instance *inst, struct ngd_stream *stream)
{
    const struct ngd_backend_stream *s = &stream->dev->backend->stream;

    return is_bound(inst) && (!s->ready || s->ready(stream->handle, inst->handle));
}

/* ---- launches: checks -------------------------------------------------------------------------------- */

static uint64_t plan_io_bytes(const struct ngd_plan_io *io, const int64_t *symbols)
{
    if (io->row_sym == NGD_NO_ROW_SYM)
        return io->bytes;
    return io->row_bytes * (uint64_t)(symbols[io->row_sym] * io->row_mult);
}

uint64_t ngd_plan_output_bytes(const struct ngd_plan *plan, uint32_t i, const int64_t *symbols)
{
    return plan_io_bytes(&plan->outputs[i], symbols);
}

static ngd_status_t check_launch_symbols(const struct ngd_plan *plan, const int64_t *symbols, struct ngd_diag *diag)
{
    const struct ngd_graph *g = plan->graph;

    if (g->n_symbols && !symbols)
        return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED, "the symbols of graph \"%.200s\" have no values", g->name);
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        const struct ngd_symbol *s = &g->symbols[i];

        if (s->policy == NGD_SYMBOL_EXACT && symbols[i] != plan->symbols[i])
            return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED,
                                "symbol %s is %" PRId64 ", this executable is for %s == %" PRId64, s->name, symbols[i],
                                s->name, plan->symbols[i]);
        if (symbols[i] < s->min || symbols[i] > plan->symbols[i])
            return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED,
                                "symbol %s is %" PRId64 ", this executable is for %" PRId64 " <= %s <= %" PRId64,
                                s->name, symbols[i], s->min, s->name, plan->symbols[i]);
    }
    return NGD_OK;
}

static ngd_status_t check_inputs(const struct ngd_plan *plan, const struct ngd_launch *launch, struct ngd_diag *diag)
{
    const struct ngd_graph *g = plan->graph;

    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct ngd_span *in = &launch->inputs[i];
        uint64_t want = plan_io_bytes(&plan->inputs[i], launch->symbols);

        if (in->bytes != want || (!in->data && want))
            return ngd_diag_set(diag, NGD_ERR_INPUT_SIZE,
                                "input \"%.200s\" of graph \"%.100s\" has %" PRIu64 " bytes, its shape needs %" PRIu64,
                                g->values[g->inputs[i]].label, g->name, in->data ? in->bytes : 0, want);
    }
    return NGD_OK;
}

static ngd_status_t check_launch_hosts(const struct ngd_plan *plan, const struct ngd_launch *launch,
                                       struct ngd_diag *diag)
{
    const struct ngd_graph *g = plan->graph;

    for (uint32_t i = 0; i < g->n_hosts; i++) {
        const struct ngd_value *v = &g->values[g->hosts[i]];
        const struct ngd_host_value *h = &launch->hosts[i];
        int64_t want = 1;

        if (v->type.rank && ngd_expr_eval(g->exprs, v->type.dims[0], launch->symbols, &want))
            return ngd_diag_set(diag, NGD_ERR_OVERFLOW, "the length of host parameter \"%.200s\" overflows", v->label);
        if (h->n != (uint64_t)want || (!h->values && want))
            return ngd_diag_set(diag, NGD_ERR_HOST_PARAM,
                                "host parameter \"%.200s\" of graph \"%.100s\" has %u values, it needs %" PRId64,
                                v->label, g->name, h->values ? h->n : 0, want);
    }
    return NGD_OK;
}

static ngd_status_t check_launch_outputs(const struct ngd_plan *plan, const struct ngd_launch *launch,
                                         struct ngd_diag *diag)
{
    const struct ngd_graph *g = plan->graph;

    for (uint32_t i = 0; i < g->n_outputs; i++) {
        uint64_t want = ngd_plan_output_bytes(plan, i, launch->symbols);

        if (launch->outputs[i].data && launch->outputs[i].bytes < want)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "the room for output \"%.200s\" of graph \"%.100s\" is %" PRIu64
                                " bytes, it has %" PRIu64,
                                g->outputs[i].name, g->name, launch->outputs[i].bytes, want);
    }
    return NGD_OK;
}

ngd_status_t ngd_launch_check(const struct ngd_plan *plan, const struct ngd_launch *launch, uint32_t n_inputs,
                              uint32_t n_hosts, uint32_t n_outputs, struct ngd_diag *diag)
{
    const struct ngd_graph *g = plan->graph;
    ngd_status_t status;

    if (n_inputs != g->n_inputs)
        return ngd_diag_set(diag, NGD_ERR_INPUT_COUNT, "graph \"%.200s\" takes %u inputs, not %u", g->name, g->n_inputs,
                            n_inputs);
    if (n_hosts != g->n_hosts)
        return ngd_diag_set(diag, NGD_ERR_HOST_PARAM, "graph \"%.200s\" takes %u host parameters, not %u", g->name,
                            g->n_hosts, n_hosts);
    if (n_outputs != g->n_outputs)
        return ngd_diag_set(diag, NGD_ERR_OUTPUT_UNKNOWN, "graph \"%.200s\" has %u outputs, not %u", g->name,
                            g->n_outputs, n_outputs);
    status = check_launch_symbols(plan, launch->symbols, diag);
    if (status == NGD_OK)
        status = check_inputs(plan, launch, diag);
    if (status == NGD_OK)
        status = check_launch_hosts(plan, launch, diag);
    if (status == NGD_OK)
        status = check_launch_outputs(plan, launch, diag);
    return status;
}

/* ---- streams ----------------------------------------------------------------------------------------- */

static ngd_status_t count_stream(struct ngd_device *dev, struct ngd_diag *diag)
{
    bool full;

    ngd_mutex_lock(&dev->lock);
    full = dev->streams >= dev->info.streams_max;
    if (!full)
        dev->streams++;
    ngd_mutex_unlock(&dev->lock);
    return full ? ngd_diag_set(diag, NGD_ERR_NO_STREAMS, "device %s has %u streams and all are in use", dev->info.name,
                               dev->info.streams_max)
                : NGD_OK;
}

static void give_back_stream(struct ngd_device *dev)
{
    ngd_mutex_lock(&dev->lock);
    dev->streams--;
    ngd_mutex_unlock(&dev->lock);
}

ngd_status_t ngd_stream_create(struct ngd_device *dev, const char *name, struct ngd_stream **stream_p,
                               struct ngd_diag *diag)
{
    struct ngd_stream *stream;
    ngd_status_t status = count_stream(dev, diag);

    if (status)
        return status;
    stream = NGD_NEW(struct ngd_stream);
    if (stream) {
        stream->dev = dev;
        status = dev->backend->stream.create(dev->handle, name, &stream->handle, diag);
    } else {
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a stream");
    }
    if (status) {
        ngd_free(stream);
        give_back_stream(dev);
        return status;
    }
    *stream_p = stream;
    return NGD_OK;
}

void ngd_stream_destroy(struct ngd_stream *stream)
{
    if (!stream)
        return;
    stream->dev->backend->stream.destroy(stream->dev->handle, stream->handle);
    give_back_stream(stream->dev);
    ngd_free(stream);
}

/* Clears the launch's results, and rebinds the instance if the pool has moved. */
static ngd_status_t prepare_launch(struct ngd_instance *inst, struct ngd_launch *launch)
{
    launch->status = NGD_OK;
    launch->diag.status = NGD_OK;
    launch->diag.text[0] = '\0';
    launch->device_time = 0;
    if (is_bound(inst))
        return NGD_OK;
    launch->status = bind_instance(inst, &launch->diag);
    for (uint32_t i = 0; launch->status && i < inst->exec->n_comms; i++) /* other ranks wait for this one */
        ngd_comm_abort(inst->exec->comms[i], NGD_ERR_GROUP_BROKEN, "the launch of a rank has no memory");
    return launch->status;
}

ngd_status_t ngd_stream_launch(struct ngd_stream *stream, struct ngd_instance *inst, struct ngd_launch *launch)
{
    ngd_status_t status = prepare_launch(inst, launch);

    return status ? status : stream->dev->backend->stream.launch(stream->handle, inst->handle, launch);
}

ngd_status_t ngd_stream_run(struct ngd_stream *stream, struct ngd_instance *inst, struct ngd_launch *launch)
{
    const struct ngd_backend_stream *s = &stream->dev->backend->stream;
    ngd_status_t status = prepare_launch(inst, launch);

    if (status)
        return status;
    if (s->run)
        return s->run(stream->handle, inst->handle, launch);
    status = s->launch(stream->handle, inst->handle, launch);
    if (status == NGD_OK)
        status = s->sync(stream->handle);
    return launch->status ? launch->status : status;
}

ngd_status_t ngd_stream_callback(struct ngd_stream *stream, void (*fn)(void *arg), void *arg)
{
    return stream->dev->backend->stream.callback(stream->handle, fn, arg);
}

ngd_status_t ngd_stream_sync(struct ngd_stream *stream)
{
    return stream->dev->backend->stream.sync(stream->handle);
}

ngd_status_t ngd_stream_status(struct ngd_stream *stream)
{
    return stream->dev->backend->stream.status(stream->handle);
}

void ngd_stream_reset(struct ngd_stream *stream)
{
    stream->dev->backend->stream.reset(stream->handle);
}

void ngd_stream_poison(struct ngd_stream *stream, ngd_status_t status)
{
    stream->dev->backend->stream.poison(stream->handle, status);
}

/* ---- events ------------------------------------------------------------------------------------------ */

ngd_status_t ngd_event_create(struct ngd_device *dev, struct ngd_event **event_p)
{
    struct ngd_event *event = NGD_NEW(struct ngd_event);
    ngd_status_t status;

    if (!event)
        return NGD_ERR_NO_MEMORY;
    event->dev = dev;
    status = dev->backend->stream.event_create(dev->handle, &event->handle);
    if (status) {
        ngd_free(event);
        return status;
    }
    *event_p = event;
    return NGD_OK;
}

void ngd_event_destroy(struct ngd_event *event)
{
    if (!event)
        return;
    event->dev->backend->stream.event_destroy(event->dev->handle, event->handle);
    ngd_free(event);
}

ngd_status_t ngd_event_record(struct ngd_event *event, struct ngd_stream *stream)
{
    return event->dev->backend->stream.event_record(event->handle, stream->handle);
}

ngd_status_t ngd_stream_wait_event(struct ngd_stream *stream, struct ngd_event *event)
{
    return stream->dev->backend->stream.event_wait(stream->handle, event->handle);
}

bool ngd_event_query(const struct ngd_event *event)
{
    return event->dev->backend->stream.event_query(event->handle);
}

ngd_status_t ngd_event_sync(struct ngd_event *event)
{
    return event->dev->backend->stream.event_sync(event->handle);
}
