/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_DEVICE_RUN_H
#define NGD_TESTS_OPS_DEVICE_RUN_H

/* Runs a graph text on a device, the whole way: parse, key, plan, executable, instance, stream. */
#include "base/mem.h"
#include "base/strbuf.h"
#include "devices/device.h"
#include "devices/host/cpu.h"
#include "tests/ops/each_isa.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN __attribute__((unused)) static

/* Writes the text around a body. The results %y, %z, %s and %i are outputs if the body makes them. */
RUN void run_text(struct ngd_strbuf *sb, const char *symbol, const char *body)
{
    static const char *const results[] = {"%y", "%z", "%s", "%i"};
    const char *node = strrchr(body, '\n') ? strrchr(body, '\n') + 1 : body, *end = strchr(node, '=');
    bool first = true;

    ngd_strbuf_printf(sb, "npugraph 1\ngraph \"g\" {\n%s%s\nreturn", symbol, body);
    for (size_t i = 0; i < 4; i++) {
        const char *at = strstr(node, results[i]);

        if (!at || at > end)
            continue;
        ngd_strbuf_printf(sb, "%s \"%c\" = %s", first ? "" : ",", results[i][1], results[i]);
        first = false;
    }
    ngd_strbuf_append(sb, "\n}\n");
}

/* A device with a stream and a pool. */
struct bench {
    struct ngd_device *dev;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
    const struct ngd_graph_options *options; /* of plans; NULL: none, no passes */
    char name[32];                           /* "avx512 x2" */
};

RUN void run_check(ngd_status_t status, const struct ngd_diag *diag, const char *what)
{
    if (status == NGD_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, ngd_status_name(status), diag->text);
    abort();
}

RUN void bench_open(struct bench *b, ngd_isa_t isa, uint32_t threads)
{
    struct ngd_device_params params;
    struct ngd_diag diag = {0};

    memset(b, 0, sizeof(*b));
    ngd_device_params_init(&params);
    params.backend = "host";
    params.memory_bytes = (uint64_t)1 << 30;
    params.threads = threads;
    params.isa = ngd_isa_name(isa);
    run_check(ngd_device_open(&params, &b->dev, &diag), &diag, "device");
    run_check(ngd_stream_create(b->dev, "test", &b->stream, &diag), &diag, "stream");
    run_check(ngd_pool_create(b->dev, "test", &b->pool), &diag, "pool");
    snprintf(b->name, sizeof(b->name), "%s x%u", ngd_isa_name(isa), threads);
}

RUN void bench_close(struct bench *b)
{
    ngd_stream_destroy(b->stream);
    ngd_pool_destroy(b->pool);
    ngd_device_close(b->dev);
}

/* A device for each instruction set, with two threads. */
RUN void benches_open(struct bench benches[NGD_ISA_MAX])
{
    EACH_ISA (isa)
        bench_open(&benches[isa], (ngd_isa_t)isa, 2);
}

RUN void benches_close(struct bench benches[NGD_ISA_MAX])
{
    EACH_ISA (isa)
        bench_close(&benches[isa]);
}

/* Sets the option matmul_precision of the plans of all benches; no passes run. */
RUN void benches_precision(struct bench benches[NGD_ISA_MAX], int precision)
{
    static struct ngd_graph_options options;

    ngd_graph_options_no_passes(&options);
    options.matmul_precision = precision;
    EACH_ISA (isa)
        benches[isa].options = &options;
}

/* What a product may lose with each precision, as a part of the sum of |x| * |w|. */
static const double precision_error[] = {0, 0x1p-13, 1.01 * 0x1p-7};

/* A graph that is ready to be replayed. */
struct ready {
    struct ngd_graph *graph;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
    struct ngd_buffer *bound[160]; /* params, then states */
    uint32_t n_bound;
};

RUN void ready_close(struct ready *r)
{
    ngd_instance_destroy(r->inst);
    ngd_exec_unref(r->exec);
    for (uint32_t i = 0; i < r->n_bound; i++)
        ngd_buffer_unref(r->bound[i]);
    ngd_plan_unref(r->plan);
    ngd_graph_unref(r->graph);
    memset(r, 0, sizeof(*r));
}

/* Plans the graph as it is (options NULL), or as the passes of these options make it. */
RUN ngd_status_t ready_plan_with(struct ready *r, struct bench *b, const struct ngd_graph_options *options,
                                 const char *text, const int64_t *symbols, struct ngd_diag *diag)
{
    struct ngd_digest digest = {{0}};
    struct ngd_key key;
    ngd_status_t status = ngd_graph_parse(text, strlen(text), &r->graph, diag);

    if (!status)
        status = ngd_key_make(r->graph, &digest, symbols, r->graph->n_symbols, &key, diag);
    if (!status)
        status = ngd_plan_create(r->graph, &key, options, ngd_device_target(b->dev), &r->plan, diag);
    return status;
}

RUN ngd_status_t ready_plan(struct ready *r, struct bench *b, const char *text, const int64_t *symbols,
                            struct ngd_diag *diag)
{
    return ready_plan_with(r, b, b->options, text, symbols, diag);
}

/* Makes all that a replay of the plan needs; bound buffers are zero. On failure everything is closed. */
RUN ngd_status_t ready_bind(struct ready *r, struct bench *b, struct ngd_comm *const *comms, uint32_t n_comms,
                            struct ngd_diag *diag)
{
    ngd_status_t status = ngd_exec_create_in(b->dev, r->plan, comms, n_comms, &r->exec, diag);

    for (uint32_t i = 0; !status && i < r->graph->n_params + r->graph->n_states; i++) {
        uint64_t bytes = r->plan->bound[i].bytes;

        status = ngd_buffer_create(b->dev, bytes ? bytes : 1, NGD_BUFFER_GENERAL, "bound", &r->bound[i], diag);
        r->n_bound += !status;
    }
    if (!status)
        status = ngd_instance_create(r->exec, r->bound, r->n_bound, b->pool, &r->inst, diag);
    if (status)
        ready_close(r);
    return status;
}

/* Does the same, beginning with the text. */
RUN ngd_status_t ready_open_in(struct ready *r, struct bench *b, struct ngd_comm *const *comms, uint32_t n_comms,
                               const char *text, const int64_t *symbols, struct ngd_diag *diag)
{
    ngd_status_t status;

    memset(r, 0, sizeof(*r));
    status = ready_plan(r, b, text, symbols, diag);
    if (status) {
        ready_close(r);
        return status;
    }
    return ready_bind(r, b, comms, n_comms, diag);
}

RUN ngd_status_t ready_open(struct ready *r, struct bench *b, const char *text, const int64_t *symbols,
                            struct ngd_diag *diag)
{
    return ready_open_in(r, b, NULL, 0, text, symbols, diag);
}

#endif
