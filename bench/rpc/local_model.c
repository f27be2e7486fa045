/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/rpc/local_model.h"
#include "base/log.h"
#include "bench/rpc/bench_rpc.h"
#include "tests/models/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_ok(ngd_status_t status, const char *what, const struct ngd_diag *diag)
{
    if (status != NGD_OK)
        bench_fail("%s: %s %s", what, ngd_status_name(status), diag->text);
}

static void open_scheduler(struct local_model *m, uint32_t threads)
{
    struct ngd_device_params dp;
    struct ngd_sched_params sp;
    struct ngd_diag diag = {0};

    ngd_log_set_level(NGD_LOG_ERROR);
    ngd_device_params_init(&dp);
    dp.backend = "host";
    dp.threads = threads;
    expect_ok(ngd_device_open(&dp, &m->dev, &diag), "device", &diag);
    ngd_sched_params_init(&sp);
    sp.devices = &m->dev;
    sp.n_devices = 1;
    expect_ok(ngd_sched_create(&sp, &m->sched, &diag), "scheduler", &diag);
    expect_ok(ngd_sched_start(m->sched), "scheduler", &diag);
}

/* Makes the same choices for these parameters as client/lib/model.c. */
static void choose_shape(struct local_model *m, const char *dir, const struct npugraph_model_params *p)
{
    struct npugraph_error err = {0};

    if (npugraph__checkpoint_read(dir, &(struct npugraph__purpose){.ranks = 1}, &m->ck, &err) != 0)
        bench_fail("%s", err.message);
    for (size_t i = 0; i < m->ck->weights.n; i++)
        snprintf(m->ck->weights.items[i].dtype, sizeof(m->ck->weights.items[i].dtype), "bf16");
    m->shape.max_context = p->max_context;
    m->shape.block_size = p->block_size != 0 ? p->block_size : 16;
    m->shape.table_blocks = (p->max_context + m->shape.block_size - 1) / m->shape.block_size;
    m->shape.max_batch = p->max_batch;
    m->shape.prefill_chunk = p->prefill_chunk;
    m->shape.num_blocks = m->shape.table_blocks * p->max_batch;
    m->shape.kv_dtype = "bf16";
}

static struct ngd_buffer *make_buffer(struct local_model *m, const char *label, uint64_t bytes, const void *data)
{
    struct ngd_diag diag = {0};
    struct ngd_buffer *buf = NULL;

    expect_ok(ngd_buffer_create(m->dev, bytes, NGD_BUFFER_GENERAL, label, &buf, &diag), label, &diag);
    if (data != NULL)
        expect_ok(ngd_buffer_write(buf, 0, data, bytes, &diag), label, &diag);
    return buf;
}

struct named {
    const char *name;
    struct ngd_buffer *buf;
};

/* Makes the buffers for weights, rotary tables and KV states, named by the labels of the graphs. */
static struct named *make_buffers(struct local_model *m, const char *dir, size_t *n_p)
{
    const struct npugraph__rope *r = &m->ck->ropes[0];
    size_t n = 0, tables = (size_t)m->shape.max_context * (size_t)r->dim, elements;
    struct named *all = calloc(m->ck->weights.n + 2 + 2 * m->ck->n_caches, sizeof(*all));
    float *rope = calloc(2 * tables, sizeof(*rope));
    struct tensors file;
    char path[4096];

    if (all == NULL || rope == NULL)
        bench_fail("no memory");
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    tensors_open(&file, path);
    for (size_t i = 0; i < m->ck->weights.n; i++) {
        const void *data = tensors_get(&file, m->ck->weights.items[i].name, 2, &elements);

        all[n++] = (struct named){m->ck->weights.items[i].name,
                                  make_buffer(m, m->ck->weights.items[i].name, 2 * elements, data)};
    }
    tensors_close(&file);
    npugraph__rope_table(r, m->shape.max_context, rope, rope + tables);
    for (size_t i = 0; i < 2; i++)
        all[n++] = (struct named){r->label[i], make_buffer(m, r->label[i], tables * sizeof(float), rope + i * tables)};
    for (size_t i = 0; i < 2 * m->ck->n_caches; i++) {
        const struct npugraph__cache *c = &m->ck->caches[i / 2];
        uint64_t kv = (uint64_t)m->shape.num_blocks * m->shape.block_size * (uint64_t)(c->heads * c->dim[i % 2]) * 2;

        all[n++] = (struct named){c->label[i % 2], make_buffer(m, c->label[i % 2], kv, NULL)};
    }
    free(rope);
    *n_p = n;
    return all;
}

static struct ngd_buffer *find_buffer(const struct named *all, size_t n, const char *label)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, label) == 0)
            return all[i].buf;
    bench_fail("the graph needs %s", label);
}

static struct ngd_binding *make_binding(struct local_model *m, bool prefill, const struct named *all, size_t n)
{
    struct ngd_graph_options options;
    struct ngd_program *prog = NULL;
    struct ngd_binding *binding = NULL;
    struct npugraph_error err = {0};
    struct ngd_buffer **buffers;
    struct ngd_graph *graph = NULL;
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    uint32_t k = 0;

    ngd_strbuf_init(&sb);
    if (npugraph__checkpoint_graph(m->ck, &m->shape, prefill ? "bench.prefill" : "bench.decode", prefill, &sb, &err) !=
        0)
        bench_fail("%s", err.message);
    expect_ok(ngd_graph_parse(sb.data, sb.len, &graph, &diag), "graph", &diag);
    ngd_strbuf_fini(&sb);
    ngd_graph_options_init(&options);
    expect_ok(ngd_program_open(m->sched, m->dev, graph, &options, NULL, &prog, NULL, &diag), "program", &diag);
    buffers = calloc(graph->n_params + graph->n_states + 1u, sizeof(*buffers));
    for (uint32_t i = 0; i < graph->n_params; i++)
        buffers[k++] = find_buffer(all, n, graph->values[graph->params[i]].label);
    for (uint32_t i = 0; i < graph->n_states; i++)
        buffers[k++] = find_buffer(all, n, graph->values[graph->states[i]].label);
    expect_ok(ngd_binding_create(prog, buffers, &binding, &diag), "binding", &diag);
    free(buffers);
    ngd_program_unref(prog);
    ngd_graph_unref(graph);
    return binding;
}

static void make_model(struct local_model *m, struct ngd_model_params *mp)
{
    const char **states = calloc(2 * m->ck->n_caches, sizeof(*states));
    struct ngd_diag diag = {0};

    for (size_t i = 0; i < 2 * m->ck->n_caches; i++)
        states[i] = m->ck->caches[i / 2].label[i % 2];
    mp->name = "bench";
    mp->description = "";
    mp->contract = (struct ngd_decode_contract){
        .tokens = "tokens",
        .positions = "positions",
        .slot_mapping = "slots",
        .block_table = "block_table",
        .query_lens = "query_lens",
        .context_lens = "context_lens",
        .logits_rows = "logits_rows",
        .temperature = "temperature",
        .top_k = "top_k",
        .top_p = "top_p",
        .seed = "seed",
        .offset = "offset",
        .token_output = "token",
        .logits_output = "logits",
        .kv_states = states,
        .n_kv_states = (uint32_t)(2 * m->ck->n_caches),
    };
    mp->block_size = m->shape.block_size;
    mp->num_blocks = m->shape.num_blocks;
    mp->max_context = m->shape.max_context;
    mp->vocab = (uint32_t)m->ck->vocab;
    mp->max_sequences = 64;
    expect_ok(ngd_model_create(m->sched, mp, &m->model, &diag), "model", &diag);
    free(states);
}

void local_model_open(struct local_model *m, const char *dir, const struct npugraph_model_params *params,
                      uint32_t threads)
{
    struct ngd_model_params mp = {0};
    struct named *all;
    size_t n;

    memset(m, 0, sizeof(*m));
    open_scheduler(m, threads);
    choose_shape(m, dir, params);
    all = make_buffers(m, dir, &n);
    mp.prefill = make_binding(m, true, all, n);
    mp.decode = make_binding(m, false, all, n);
    make_model(m, &mp);
    /* The model holds the bindings, and the bindings hold the buffers. */
    ngd_binding_unref(mp.prefill);
    ngd_binding_unref(mp.decode);
    for (size_t i = 0; i < n; i++)
        ngd_buffer_unref(all[i].buf);
    free(all);
}

void local_model_close(struct local_model *m)
{
    ngd_model_unref(m->model);
    ngd_sched_stop(m->sched);
    ngd_sched_destroy(m->sched);
    ngd_device_close(m->dev);
    npugraph__checkpoint_free(m->ck);
}
