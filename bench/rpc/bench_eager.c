/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay compared with eager: the decode graph of 28 small layers with one row, through the same daemon, with the same
 * buffers and the same call. Eager looks up, prepares and launches every operator each time. Times are the device's.
 */
#include "base/strbuf.h"
#include "bench/rpc/bench_rpc.h"
#include "client/hf/checkpoint.h"
#include "tests/models/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT 64
#define BLOCK   16

struct bed {
    struct npugraph_client *client;
    struct npugraph__checkpoint *ck;
    struct npugraph__shape shape;
    struct npugraph_binding *bindings;
    size_t n_bindings;
    struct npugraph_replay_stream *stream;
    uint64_t graph;
};

static void must(int rc, const struct npugraph_error *err)
{
    if (rc != 0)
        bench_fail("%s", err->message);
}

static void add_binding(struct bed *b, const char *name, uint64_t bytes, const void *data)
{
    struct npugraph_error err = {0};
    uint64_t id = 0;

    must(npugraph_buffer_alloc(b->client, NULL, bytes, name, &id, &err), &err);
    if (data != NULL)
        must(npugraph_buffer_write(b->client, id, 0, data, bytes, &err), &err);
    b->bindings[b->n_bindings++] = (struct npugraph_binding){name, id};
}

static void bind_weights(struct bed *b, const char *dir)
{
    struct tensors file;
    char path[4096];
    size_t n;

    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    tensors_open(&file, path);
    for (size_t i = 0; i < b->ck->weights.n; i++) {
        const void *data = tensors_get(&file, b->ck->weights.items[i].name, 2, &n);

        snprintf(b->ck->weights.items[i].dtype, sizeof(b->ck->weights.items[i].dtype), "bf16");
        add_binding(b, b->ck->weights.items[i].name, 2 * n, data);
    }
    tensors_close(&file);
}

static void bind_states(struct bed *b)
{
    const struct npugraph__rope *r = &b->ck->ropes[0];
    const struct npugraph__cache *caches = b->ck->caches;
    size_t n = (size_t)CONTEXT * (size_t)r->dim;
    float *rope = calloc(2 * n, sizeof(*rope));

    npugraph__rope_table(r, CONTEXT, rope, rope + n);
    add_binding(b, "rope.cos", n * sizeof(float), rope);
    add_binding(b, "rope.sin", n * sizeof(float), rope + n);
    free(rope);
    for (size_t i = 0; i < 2 * b->ck->n_caches; i++)
        add_binding(b, caches[i / 2].label[i % 2],
                    (uint64_t)CONTEXT * (uint64_t)(caches[i / 2].heads * caches[i / 2].dim[i % 2]) * 2, NULL);
}

static void open_graph(struct bed *b, const char *dir)
{
    struct npugraph_error err = {0};
    struct ngd_strbuf sb;

    must(npugraph__checkpoint_read(dir, &(struct npugraph__purpose){.ranks = 1}, &b->ck, &err), &err);
    b->shape = (struct npugraph__shape){.max_context = CONTEXT,
                                        .block_size = BLOCK,
                                        .num_blocks = CONTEXT / BLOCK,
                                        .table_blocks = CONTEXT / BLOCK,
                                        .max_batch = 1,
                                        .prefill_chunk = 1,
                                        .kv_dtype = "bf16"};
    b->bindings = calloc(b->ck->weights.n + 2 + 2 * b->ck->n_caches, sizeof(*b->bindings));
    bind_weights(b, dir);
    bind_states(b);
    ngd_strbuf_init(&sb);
    must(npugraph__checkpoint_graph(b->ck, &b->shape, "bench.decode", false, &sb, &err), &err);
    must(npugraph_graph_register(b->client, NULL, ngd_strbuf_str(&sb), b->bindings, b->n_bindings, NULL, 0, &b->graph,
                                 &err),
         &err);
    must(npugraph_replay_stream_open(b->client, &b->stream, &err), &err);
    ngd_strbuf_fini(&sb);
}

/* Runs n steps of one row at position 20, which is in the second block. */
static void run_replays(struct bed *b, int64_t n, bool eager, struct samples *device, struct samples *wall)
{
    static const int32_t token = 7, position = 20, slot = 20, table[CONTEXT / BLOCK] = {0, 1, 2, 3}, top_k = 0;
    static const float temperature = 0, top_p = 1;
    static const int64_t seed = 0, offset = 0, rows = 1, query = 1, context = 21;
    const struct npugraph_input inputs[] = {{&token, 4},       {&position, 4}, {&slot, 4},  {table, sizeof(table)},
                                            {&temperature, 4}, {&top_k, 4},    {&top_p, 4}, {&seed, 8},
                                            {&offset, 8}};
    const struct npugraph_host_value hosts[] = {{&query, 1}, {&context, 1}};
    static const uint32_t wanted = 0;
    struct npugraph_replay replay = {.graph = b->graph,
                                     .symbols = &rows,
                                     .n_symbols = 1,
                                     .inputs = inputs,
                                     .n_inputs = sizeof(inputs) / sizeof(inputs[0]),
                                     .hosts = hosts,
                                     .n_hosts = 2,
                                     .outputs = &wanted,
                                     .n_outputs = 1,
                                     .eager = eager};
    struct npugraph_result *result = NULL;
    struct npugraph_error err = {0};

    for (int64_t i = 0; i < n; i++) {
        ngd_nsec_t begin = ngd_now();

        must(npugraph_replay_stream_run(b->stream, &replay, &result, &err), &err);
        samples_add(device, (double)result->device_ns);
        samples_add(wall, (double)(ngd_now() - begin));
    }
    npugraph_result_free(result);
}

static void measure_both(struct bed *b, int64_t rounds, int64_t each)
{
    struct samples device[2] = {{0}, {0}}, wall[2] = {{0}, {0}};

    for (int64_t i = 0; i <= rounds; i++) {
        for (int eager = 0; eager < 2; eager++)
            run_replays(b, each, eager, &device[eager], &wall[eager]);
        if (i == 0) /* this one captured and warmed up */
            for (int k = 0; k < 2; k++)
                device[k].n = wall[k].n = 0;
    }
    samples_print(&device[0], "replay, device", "us", 1e-3);
    samples_print(&device[1], "eager, device", "us", 1e-3);
    samples_print(&wall[0], "replay, at the client", "us", 1e-3);
    samples_print(&wall[1], "eager, at the client", "us", 1e-3);
    printf("ratio: eager / replay at the median  %.2f (device), %.2f (at the client)\n",
           samples_quantile(&device[1], 0.5) / samples_quantile(&device[0], 0.5),
           samples_quantile(&wall[1], 0.5) / samples_quantile(&wall[0], 0.5));
}

int main(int argc, char **argv)
{
    struct bench_shape shape = BENCH_SHAPE_TINY;
    int64_t rounds = 20, each = 200, threads = 2;
    bool quick = false;
    const struct bench_option options[] = {{"rounds", &rounds, NULL, NULL},
                                           {"each", &each, NULL, NULL},
                                           {"threads", &threads, NULL, NULL},
                                           {"quick", NULL, NULL, &quick}};
    char n_threads[24], *dir;
    const char *extra[] = {"--threads", n_threads, NULL};
    struct bed b = {0};
    struct live live;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        rounds = 4, each = 100;
    dir = bench_dir_make();
    bench_checkpoint_write(dir, &shape);
    snprintf(n_threads, sizeof(n_threads), "%d", (int)threads);
    live_start(&live, dir, extra);
    b.client = live_connect(&live, "bench_eager");
    open_graph(&b, dir);
    measure_both(&b, rounds, each);
    npugraph_replay_stream_close(b.stream);
    npugraph_disconnect(b.client);
    npugraph__checkpoint_free(b.ck); /* the bindings have its names */
    free(b.bindings);
    bench_dir_remove(dir);
    return live_stop(&live) != 0;
}
