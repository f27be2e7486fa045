/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays of a graph with a batch symbol, one row each, by several client processes. N processes are compared with the
 * same N with merging off, and one process with one process, which merging must not make slower.
 *
 * Two daemons that differ only in this option are asked in turn; the ratios are between neighbouring turns. The graph
 * is the MLP of a layer: three matrices of a checkpoint, loaded once for all processes. With one row it is bound by
 * memory. --against OPTION gives the first daemon another option than --merge=no: --merge-wait=0 shows what waiting
 * for one another is worth.
 */
#include "bench/rpc/crowd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN    1024
#define FFN       3072
#define LAYERS    2
#define PROCESSES 8
#define DIR_ENV   "NGD_BENCH_MERGE_DIR"

/* ---- clients ---- */

static const char *const parts[] = {"gate", "up", "down"};

static char *graph_text(void)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    fprintf(f, "npugraph 1\ngraph \"mlp\" {\n  sym B 1..%d batch buckets 1, %d\n  input %%x0 : bf16[B,%d]\n", PROCESSES,
            PROCESSES, HIDDEN);
    for (int l = 0; l < LAYERS; l++)
        for (int p = 0; p < 3; p++)
            fprintf(f, "  param %%%s%d : bf16[%d,%d] = \"model.layers.%d.mlp.%s_proj.weight\"\n", parts[p], l,
                    p == 2 ? HIDDEN : FFN, p == 2 ? FFN : HIDDEN, l, parts[p]);
    for (int l = 0; l < LAYERS; l++)
        fprintf(
            f,
            "  %%g%d = aten.linear(%%x%d, %%gate%d)\n  %%s%d = aten.silu(%%g%d)\n  %%u%d = aten.linear(%%x%d, %%up%d)\n"
            "  %%m%d = aten.mul.Tensor(%%s%d, %%u%d)\n  %%x%d = aten.linear(%%m%d, %%down%d)\n",
            l, l, l, l, l, l, l, l, l, l, l, l + 1, l, l);
    fprintf(f, "  return \"y\" = %%x%d\n}\n", LAYERS);
    fclose(f);
    return text;
}

static uint64_t register_mlp(struct npugraph_client *client)
{
    struct npugraph_binding bindings[3 * LAYERS];
    char names[3 * LAYERS][64], path[4096], *text = graph_text();
    const char *wanted[3 * LAYERS];
    struct npugraph_tensors *tensors = NULL;
    const struct npugraph_load load = {.path = path, .names = wanted, .n_names = 3 * LAYERS};
    struct npugraph_error err = {0};
    uint64_t graph;

    for (int i = 0; i < 3 * LAYERS; i++) {
        snprintf(names[i], sizeof(names[i]), "model.layers.%d.mlp.%s_proj.weight", i / 3, parts[i % 3]);
        wanted[i] = names[i];
    }
    snprintf(path, sizeof(path), "%s/model.safetensors", getenv(DIR_ENV));
    if (npugraph_load_safetensors(client, &load, NULL, NULL, &tensors, &err) != 0)
        bench_fail("load: %s", err.message);
    for (size_t i = 0; i < tensors->n && i < 3 * LAYERS; i++)
        bindings[i] = (struct npugraph_binding){tensors->items[i].name, tensors->items[i].buffer};
    if (npugraph_graph_register(client, NULL, text, bindings, 3 * LAYERS, NULL, 0, &graph, &err) != 0)
        bench_fail("register: %s", err.message);
    for (int64_t rows = 1; rows <= PROCESSES; rows += PROCESSES - 1)
        if (npugraph_graph_capture(client, graph, &rows, 1, false, NULL, &err) != 0)
            bench_fail("capture: %s", err.message);
    npugraph_tensors_free(tensors);
    free(text);
    return graph;
}

/* Each client has its own row, which must give the same bits each time, whatever other rows run with it. */
static void run_row_client(struct member *m)
{
    struct npugraph_client *client = member_connect(m, "rows");
    static uint16_t x[HIDDEN], first[HIDDEN];
    const struct npugraph_input input = {x, sizeof(x)};
    const int64_t rows = 1;
    struct npugraph_replay replay = {.graph = register_mlp(client),
                                     .symbols = &rows,
                                     .n_symbols = 1,
                                     .inputs = &input,
                                     .n_inputs = 1,
                                     .timing = true};
    struct npugraph_replay_stream *stream = NULL;
    struct npugraph_result *result = NULL;
    struct npugraph_error err = {0};

    for (int i = 0; i < HIDDEN; i++)
        x[i] = (uint16_t)(0x3c00 + ((i * 37 + m->number * 101) & 0x2ff)); /* some bf16 below 2 */
    if (npugraph_replay_stream_open(client, &stream, &err) != 0)
        bench_fail("%s", err.message);
    if (npugraph_replay_stream_run(stream, &replay, &result, &err) != 0)
        bench_fail("replay: %s", err.message);
    memcpy(first, result->outputs[0].data, sizeof(first));
    member_ready(m);
    while (member_may_work(m)) {
        const ngd_nsec_t begin = ngd_now();

        if (npugraph_replay_stream_run(stream, &replay, &result, &err) != 0)
            bench_fail("replay: %s", err.message);
        member_sample(m, ngd_now() - begin);
        atomic_fetch_add(&m->seat->done, 1);
        atomic_fetch_add(&m->seat->rows, result->timing.requests);
        atomic_fetch_add(&m->seat->wrong, memcmp(first, result->outputs[0].data, sizeof(first)) != 0);
    }
    npugraph_result_free(result);
    npugraph_replay_stream_close(stream);
    npugraph_disconnect(client);
}

static const struct crowd_role roles[] = {{"rows", run_row_client}, {NULL, NULL}};

/* ---- rounds ---- */

enum { OFF, ON, DAEMONS };

struct turn {
    struct samples rate, latency, together;
};

static void run_turn(struct crowd *c, uint32_t n, ngd_nsec_t count, struct turn *t)
{
    uint64_t done = 0, rows = 0;

    crowd_work(c, n, 200 * NGD_MSEC, count);
    for (uint32_t i = 0; i < n; i++) {
        done += atomic_load(&c->board->seats[i].done);
        rows += atomic_load(&c->board->seats[i].rows);
        if (atomic_load(&c->board->seats[i].wrong))
            bench_fail("a row has other bits than before");
        crowd_samples(c, (int)i, &t->latency);
    }
    samples_add(&t->rate, (double)done / ((double)count / (double)NGD_SEC));
    samples_add(&t->together, done ? (double)rows / (double)done : 0);
}

static void run_point(struct crowd *crowds, const char *const names[DAEMONS], uint32_t n, int64_t rounds,
                      ngd_nsec_t count)
{
    struct turn turns[DAEMONS] = {{{0}, {0}, {0}}, {{0}, {0}, {0}}};
    struct samples ratio = {0};

    for (int64_t r = 0; r < rounds; r++) {
        for (int k = 0; k < DAEMONS; k++) {
            int i = r % 2 ? !k : k; /* neither daemon is always the first */

            crowd_work(&crowds[!i], 0, 0, 0);
            run_turn(&crowds[i], n, count, &turns[i]);
        }
        samples_add(&ratio, turns[ON].rate.v[r] / turns[OFF].rate.v[r]);
    }
    printf("%u process%s, one row each\n", n, n > 1 ? "es" : "");
    for (int i = 0; i < DAEMONS; i++)
        printf("  %-16s %8.1f rows/s (%.1f..%.1f), %.1f requests a replay; p50 %.3f ms, p99 %.3f ms\n", names[i],
               samples_quantile(&turns[i].rate, 0.5), samples_quantile(&turns[i].rate, 0.1),
               samples_quantile(&turns[i].rate, 0.9), samples_quantile(&turns[i].together, 0.5),
               samples_quantile(&turns[i].latency, 0.5) * 1e-6, samples_quantile(&turns[i].latency, 0.99) * 1e-6);
    printf("  ratio of the rates, the second / the first: %.2f (%.2f..%.2f)\n", samples_quantile(&ratio, 0.5),
           samples_quantile(&ratio, 0.1), samples_quantile(&ratio, 0.9));
    fflush(stdout);
    for (int i = 0; i < DAEMONS; i++) {
        samples_free(&turns[i].rate);
        samples_free(&turns[i].latency);
        samples_free(&turns[i].together);
    }
    samples_free(&ratio);
}

int main(int argc, char **argv)
{
    const char *merge[DAEMONS][2] = {{"--merge=no", NULL}, {"--merge=yes", NULL}};
    static const uint32_t points[] = {1, 2, PROCESSES};
    struct bench_shape shape = {.layers = LAYERS,
                                .hidden = HIDDEN,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .ffn = FFN,
                                .vocab = 256,
                                .tied = true};
    int64_t rounds = 5, ms = 1000, only = 0;
    bool quick = false;
    const struct bench_option options[] = {{"rounds", &rounds, NULL, NULL},
                                           {"ms", &ms, NULL, NULL},
                                           {"processes", &only, NULL, NULL},
                                           {"against", NULL, &merge[OFF][0], NULL},
                                           {"quick", NULL, NULL, &quick}};
    struct crowd crowds[DAEMONS];
    struct live live[DAEMONS];
    char *dir;

    crowd_member_main(argc, argv, roles);
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        rounds = 2, ms = 500;
    dir = bench_dir_make();
    bench_checkpoint_write(dir, &shape);
    setenv(DIR_ENV, dir, 1); /* for the clients */
    for (int i = 0; i < DAEMONS; i++) {
        live_start(&live[i], dir, merge[i]);
        crowd_open(&crowds[i], live[i].address);
        for (int k = 0; k < PROCESSES; k++)
            crowd_start(&crowds[i], k, "rows", 0, 0);
        crowd_wait_ready(&crowds[i], PROCESSES);
    }
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
        if (only == 0 || only == points[i])
            run_point(crowds, (const char *const[]){merge[OFF][0], merge[ON][0]}, points[i], rounds, ms * NGD_MSEC);
    for (int i = 0; i < DAEMONS; i++)
        crowd_close(&crowds[i]);
    bench_dir_remove(dir);
    return (live_stop(&live[OFF]) != 0) | (live_stop(&live[ON]) != 0);
}
