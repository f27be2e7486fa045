/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/diag/verify_form.h"
#include "base/mem.h"
#include "scheduler/run/sched_int.h"
#include <string.h>

#define COPY_CHUNK (1u << 20)

/* ---- results ------------------------------------------------------------------------------------------ */

void ngd_verify_results_fini(struct ngd_verify_results *results)
{
    for (uint32_t i = 0; i < results->n && results->list; i++) {
        ngd_free(results->list[i].name);
        ngd_free(results->list[i].data);
    }
    ngd_free(results->list);
    memset(results, 0, sizeof(*results));
}

uint64_t ngd_verify_result_elements(const struct ngd_verify_result *r)
{
    return r->bytes / ngd_dtype_bytes(r->dtype);
}

static bool init_result(const struct ngd_plan *plan, uint32_t i, const int64_t *symbols, struct ngd_verify_result *r)
{
    const struct ngd_plan_io *io = &plan->outputs[i];
    const struct ngd_plan_tensor *t = &plan->tensors[io->tensor];

    r->name = ngd_strdup(plan->graph->outputs[i].name);
    r->dtype = t->dtype;
    r->rank = t->rank;
    memcpy(r->dims, t->dims, sizeof(r->dims));
    if (io->row_sym != NGD_NO_ROW_SYM)
        r->dims[0] = symbols[io->row_sym] * io->row_mult;
    r->bytes = ngd_plan_output_bytes(plan, i, symbols);
    r->data = ngd_calloc(1, r->bytes ? r->bytes : 1);
    return r->name && r->data;
}

static ngd_status_t init_results(const struct ngd_plan *plan, const int64_t *symbols,
                                 struct ngd_verify_results *results, struct ngd_out **outs_p)
{
    uint32_t n = plan->graph->n_outputs;

    *outs_p = NGD_NEW_N(struct ngd_out, n);
    results->list = NGD_NEW_N(struct ngd_verify_result, n);
    if (!*outs_p || !results->list)
        return NGD_ERR_NO_MEMORY;
    for (; results->n < n; results->n++) {
        struct ngd_verify_result *r = &results->list[results->n];

        if (!init_result(plan, results->n, symbols, r)) {
            results->n++;
            return NGD_ERR_NO_MEMORY;
        }
        (*outs_p)[results->n] = (struct ngd_out){r->data, r->bytes};
    }
    return NGD_OK;
}

/* ---- running ------------------------------------------------------------------------------------------ */

static ngd_status_t launch(const struct ngd_verify_form *form, struct ngd_instance *inst, struct ngd_out *outs,
                           ngd_nsec_t *time_p, struct ngd_diag *diag)
{
    struct ngd_launch run = {.symbols = form->launch->symbols,
                             .inputs = form->launch->inputs,
                             .hosts = form->launch->hosts,
                             .outputs = outs,
                             .eager = form->eager,
                             .times = form->times};
    const struct ngd_graph *g = ngd_exec_plan(ngd_instance_exec(inst))->graph;
    ngd_status_t status =
        ngd_launch_check(ngd_exec_plan(ngd_instance_exec(inst)), &run, g->n_inputs, g->n_hosts, g->n_outputs, diag);

    if (status)
        return status;
    status = ngd_stream_run(form->slot->stream, inst, &run);
    if (status && diag)
        *diag = run.diag;
    if (ngd_stream_status(form->slot->stream) != NGD_OK)
        ngd_stream_reset(form->slot->stream); /* so that the next request does not meet this error */
    if (time_p)
        *time_p = run.device_time;
    return status;
}

ngd_status_t ngd_verify_form_run_exec(const struct ngd_verify_form *form, struct ngd_exec *exec,
                                      struct ngd_verify_results *results_p, ngd_nsec_t *time_p, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = ngd_exec_plan(exec);
    struct ngd_verify_results results = {0};
    struct ngd_instance *inst = NULL;
    struct ngd_pool *pool = NULL;
    struct ngd_out *outs = NULL;
    ngd_status_t status = ngd_pool_create(form->slot->queue->dev, "verify", &pool);

    if (status == NGD_OK)
        status = init_results(plan, form->launch->symbols, &results, &outs);
    if (status)
        ngd_diag_set(diag, status, "no host memory for the results of graph \"%.100s\"", plan->graph->name);
    if (status == NGD_OK)
        status =
            ngd_instance_create(exec, form->buffers, plan->graph->n_params + plan->graph->n_states, pool, &inst, diag);
    if (status == NGD_OK)
        status = launch(form, inst, outs, time_p, diag);
    ngd_instance_destroy(inst);
    ngd_pool_destroy(pool);
    ngd_free(outs);
    if (status)
        ngd_verify_results_fini(&results);
    *results_p = results;
    return status;
}

ngd_status_t ngd_verify_form_run(const struct ngd_verify_form *form, struct ngd_verify_results *results_p,
                                 ngd_nsec_t *time_p, struct ngd_diag *diag)
{
    struct ngd_device *dev = form->slot->queue->dev;
    struct ngd_key key = *form->key;
    struct ngd_plan *plan = NULL;
    struct ngd_exec *exec = NULL;
    ngd_status_t status;

    memset(results_p, 0, sizeof(*results_p));
    key.graph = form->graph->digest;
    status = form->passes
                 ? ngd_plan_create_reported(form->graph, &key, form->options, ngd_device_target(dev), form->patterns,
                                            NULL, &plan, diag)
                 : ngd_plan_create_plain(form->graph, &key, form->options, ngd_device_target(dev), &plan, diag);
    if (status == NGD_OK)
        status = ngd_exec_create(dev, plan, &exec, diag);
    if (status == NGD_OK)
        status = ngd_verify_form_run_exec(form, exec, results_p, time_p, diag);
    ngd_exec_unref(exec);
    ngd_plan_unref(plan);
    return status;
}

/* ---- buffers ------------------------------------------------------------------------------------------ */

ngd_status_t ngd_buffer_copy_all(struct ngd_buffer *to, struct ngd_buffer *from, struct ngd_diag *diag)
{
    uint64_t bytes = ngd_buffer_bytes(from);
    void *chunk = ngd_malloc(bytes < COPY_CHUNK ? bytes + 1 : COPY_CHUNK);
    ngd_status_t status = chunk ? NGD_OK : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a copy");

    for (uint64_t at = 0; at < bytes && status == NGD_OK; at += COPY_CHUNK) {
        uint64_t n = bytes - at < COPY_CHUNK ? bytes - at : COPY_CHUNK;

        status = ngd_buffer_read(from, at, chunk, n, diag);
        if (status == NGD_OK)
            status = ngd_buffer_write(to, at, chunk, n, diag);
    }
    ngd_free(chunk);
    return status;
}

ngd_status_t ngd_buffer_duplicate(struct ngd_buffer *from, struct ngd_buffer **to_p, struct ngd_diag *diag)
{
    struct ngd_charge charge;
    struct ngd_buffer *to;
    ngd_status_t status = ngd_charge_begin(&charge, ngd_buffer_payer(from), ngd_buffer_bytes(from), diag);

    if (status)
        return status;
    status = ngd_buffer_create(ngd_buffer_device(from), ngd_buffer_bytes(from), NGD_BUFFER_GENERAL,
                               "copy of a state for a run beside replays", &to, diag);
    if (status) {
        ngd_charge_end(&charge);
        return status;
    }
    ngd_buffer_set_charge(to, &charge);
    status = ngd_buffer_copy_all(to, from, diag);
    if (status)
        ngd_buffer_unref(to);
    else
        *to_p = to;
    return status;
}

void ngd_buffers_free(struct ngd_buffer **list, uint32_t n)
{
    for (uint32_t i = 0; list && i < n; i++)
        ngd_buffer_unref(list[i]);
    ngd_free(list);
}

ngd_status_t ngd_buffers_with_own_states(const struct ngd_graph *graph, struct ngd_buffer *const *buffers,
                                         struct ngd_buffer ***list_p, struct ngd_diag *diag)
{
    uint32_t n = graph->n_params + graph->n_states;
    struct ngd_buffer **list = NGD_NEW_N(struct ngd_buffer *, n + 1);
    ngd_status_t status = NGD_OK;

    if (!list)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a run beside replays");
    for (uint32_t i = 0; i < n && status == NGD_OK; i++) {
        if (i < graph->n_params)
            list[i] = ngd_buffer_ref(buffers[i]);
        else
            status = ngd_buffer_duplicate(buffers[i], &list[i], diag);
    }
    if (status)
        ngd_buffers_free(list, n);
    else
        *list_p = list;
    return status;
}

/* ---- taps --------------------------------------------------------------------------------------------- */

ngd_status_t ngd_graph_tap(const struct ngd_graph *graph, struct ngd_graph **tapped_p, struct ngd_diag *diag)
{
    struct ngd_strbuf sb;
    ngd_status_t status;

    ngd_strbuf_init(&sb);
    ngd_graph_print_tapped(graph, &sb);
    if (sb.failed)
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a copy of graph \"%.100s\"", graph->name);
    else
        status = ngd_graph_parse_rewritten(sb.data, sb.len, tapped_p, diag);
    ngd_strbuf_fini(&sb);
    return status;
}
