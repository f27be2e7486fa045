/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_RUN_PLAN_H
#define NGD_TESTS_OPS_RUN_PLAN_H

/*
 * Runs any plan on random data. The data of inputs and bound buffers depend on their position, so that plans of graphs
 * with the same inputs and states get the same data. The result is all that a replay changes.
 */
#include "tests/ops/reference.h"
#include "tests/unit/unit.h"

struct made {
    ngd_status_t status;
    char *data; /* outputs, then states */
    uint64_t bytes;
};

REFERENCE void fill_bytes(char *p, ngd_dtype_t t, uint64_t bytes, uint32_t seed)
{
    struct random r = {seed};

    for (uint64_t i = 0; i < bytes / ngd_dtype_bytes(t); i++) {
        const float f = (float)(3 * random_value(&r));
        const int64_t v = random_below(&r, 5);
        const uint16_t h = t == NGD_F16 ? ngd_f32_to_f16(f) : ngd_f32_to_bf16(f);

        if (t == NGD_F32)
            memcpy(p + i * 4, &f, 4);
        else if (ngd_dtype_is_float(t))
            memcpy(p + i * 2, &h, 2);
        else
            memcpy(p + i * ngd_dtype_bytes(t), &v,
                   ngd_dtype_bytes(t)); /* small numbers, so that they are valid indices */
    }
}

struct any {
    struct ngd_span in[64];
    struct ngd_host_value hosts[64];
    struct ngd_out out[64];
    struct ngd_buffer *bound[64];
    int64_t values[64];
};

REFERENCE uint64_t io_size(const struct ngd_plan_io *io, const int64_t *symbols)
{
    return io->row_sym == NGD_NO_ROW_SYM ? io->bytes : io->row_bytes * (uint64_t)(symbols[io->row_sym] * io->row_mult);
}

REFERENCE void any_open(struct any *a, struct bench *b, const struct ngd_plan *plan, const int64_t *symbols,
                        struct made *m)
{
    const struct ngd_graph *g = plan->graph;
    struct ngd_diag diag = {0};
    uint64_t at = 0;

    memset(a, 0, sizeof(*a));
    for (uint32_t i = 0; i < g->n_params + g->n_states; i++) {
        const struct ngd_value *v = &g->values[i < g->n_params ? g->params[i] : g->states[i - g->n_params]];
        char *data = calloc(plan->bound[i].bytes + 1, 1);

        run_check(ngd_buffer_create(b->dev, plan->bound[i].bytes, NGD_BUFFER_GENERAL, "bound", &a->bound[i], &diag),
                  &diag, "bound");
        fill_bytes(data, v->type.dtype, plan->bound[i].bytes, 100 + i);
        run_check(ngd_buffer_write(a->bound[i], 0, data, plan->bound[i].bytes, &diag), &diag, "bound");
        free(data);
        m->bytes += i < g->n_params ? 0 : plan->bound[i].bytes;
    }
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        uint64_t bytes = io_size(&plan->inputs[i], symbols);
        char *data = calloc(bytes + 1, 1);

        fill_bytes(data, g->values[g->inputs[i]].type.dtype, bytes, 200 + i);
        a->in[i] = (struct ngd_span){data, bytes};
    }
    for (uint32_t i = 0; i < g->n_outputs; i++)
        m->bytes += ngd_plan_output_bytes(plan, i, symbols);
    m->data = calloc(m->bytes + 1, 1);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        uint64_t bytes = ngd_plan_output_bytes(plan, i, symbols);

        a->out[i] = (struct ngd_out){m->data + at, bytes};
        at += bytes;
    }
}

REFERENCE void any_close(struct any *a, const struct ngd_plan *plan, struct made *m)
{
    const struct ngd_graph *g = plan->graph;
    uint64_t at = m->bytes;

    for (uint32_t i = g->n_params + g->n_states; i-- > 0;) {
        if (i >= g->n_params) {
            at -= plan->bound[i].bytes;
            run_check(ngd_buffer_read(a->bound[i], 0, m->data + at, plan->bound[i].bytes, NULL), &(struct ngd_diag){0},
                      "state");
        }
        ngd_buffer_unref(a->bound[i]);
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        free((void *)(uintptr_t)a->in[i].data);
}

/*
 * Puts the calls into a random order that streams and waits allow, as if some streams were very slow. The plan then has
 * one stream. Memory stays where it is.
 */
REFERENCE void shuffle_plan(struct ngd_plan *plan, uint32_t seed)
{
    uint32_t n = plan->n_calls, *next = calloc(n + 1, sizeof(*next)), n_done = 0;
    struct ngd_plan_call *calls = calloc(n + 1, sizeof(*calls));
    bool *done = calloc(n + 1, 1);
    struct random r = {seed};

    while (n_done < n) {
        uint32_t n_ready = 0;

        for (uint32_t c = 0; c < n; c++) {
            bool ready = !done[c];

            for (uint32_t i = 0; i < c && ready; i++) /* the calls above it on its stream */
                ready = done[i] || plan->calls[i].scope.stream != plan->calls[c].scope.stream;
            for (uint32_t i = 0; i < plan->calls[c].n_waits && ready; i++)
                ready = done[plan->calls[c].waits[i]];
            if (ready)
                next[n_ready++] = c;
        }
        ck_assert_uint_gt(n_ready, 0);
        /* Mostly takes the last stream that can go on, so that the others fall far behind. */
        next[0] = next[random_below(&r, 4) ? n_ready - 1 : random_below(&r, n_ready)];
        done[next[0]] = true;
        calls[n_done++] = plan->calls[next[0]];
    }
    for (uint32_t c = 0; c < n; c++) {
        plan->calls[c] = calls[c];
        plan->calls[c].n_waits = 0;
        plan->calls[c].scope = (struct ngd_node_scope){0};
    }
    plan->n_streams = 1;
    plan->clocks = NULL;
    free(next);
    free(calls);
    free(done);
}

/* Runs one replay of the plan on a device. hosts: values of its host parameters, or NULL if it has none. The caller
 * frees data. */
REFERENCE struct made run_plan(struct bench *b, struct ngd_plan *plan, const int64_t *symbols,
                               const struct ngd_host_value *hosts, bool eager)
{
    static struct any a;
    const struct ngd_graph *g = plan->graph;
    struct ngd_launch launch = {
        .symbols = symbols, .inputs = a.in, .hosts = hosts ? hosts : a.hosts, .outputs = a.out, .eager = eager};
    struct made m = {0};
    struct ngd_exec *exec = NULL;
    struct ngd_instance *inst = NULL;
    struct ngd_diag diag = {0};

    any_open(&a, b, plan, symbols, &m);
    run_check(ngd_exec_create(b->dev, plan, &exec, &diag), &diag, "exec");
    run_check(ngd_instance_create(exec, a.bound, g->n_params + g->n_states, b->pool, &inst, &diag), &diag, "instance");
    run_check(ngd_launch_check(plan, &launch, g->n_inputs, g->n_hosts, g->n_outputs, &diag), &diag, "check");
    m.status = ngd_stream_run(b->stream, inst, &launch);
    ngd_instance_destroy(inst);
    ngd_exec_unref(exec);
    any_close(&a, plan, &m);
    return m;
}

#endif
