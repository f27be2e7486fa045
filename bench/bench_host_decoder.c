/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What capturing and optimising a graph gains where launches dominate: a decode step of 28 layers of hidden size 64
 * with one row, on the host device itself. The step comes in two forms that compute the same bits: with the operators
 * that NPUs have for norms and rotations (npu.), and with those written out, as PyTorch traces models that do not call
 * them. Each form is run eagerly without passes, replayed as given, replayed after the passes, and replayed after the
 * passes with static kernels. All of these take turns within one run.
 *
 *      bench_host_decoder [--layers N] [--threads T] [--rounds R] [--each N] [--compiler PATH]
 */
#include "base/mem.h"
#include "base/strbuf.h"
#include "bench/bench_device.h"
#include "bench/step_graph.h"
#include "devices/device.h"
#include "graphs/pass.h"
#include <inttypes.h>

enum { VOCAB = BENCH_STEP_VOCAB, BLOCKS = BENCH_STEP_BLOCKS };

struct step {
    struct ngd_graph *graph;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
    struct ngd_buffer **bound;
};

static void expect_ok(ngd_status_t status, const struct ngd_diag *diag)
{
    if (status)
        bench_fail("%s: %s", ngd_status_name(status), diag->text);
}

/* ---- running ---- */

static void open_step(struct step *s, struct ngd_device *dev, struct ngd_pool *pool, int layers, bench_form_t form,
                      bool optimised)
{
    struct ngd_pattern_set *patterns = ngd_pattern_set_builtin();
    struct ngd_graph_options on;
    struct ngd_digest options = {{0}};
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ngd_key key;
    uint32_t n;

    ngd_strbuf_init(&sb);
    bench_step_graph(&sb, layers, form);
    ngd_graph_options_init(&on);
    expect_ok(ngd_graph_parse(sb.data, sb.len, &s->graph, &diag), &diag);
    expect_ok(ngd_key_make(s->graph, &options, NULL, 0, &key, &diag), &diag);
    expect_ok(ngd_plan_create_reported(s->graph, &key, optimised ? &on : NULL, ngd_device_target(dev), patterns, NULL,
                                       &s->plan, &diag),
              &diag);
    expect_ok(ngd_exec_create(dev, s->plan, &s->exec, &diag), &diag);
    n = s->graph->n_params + s->graph->n_states;
    s->bound = calloc(n, sizeof(*s->bound));
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bytes = s->plan->bound[i].bytes;
        uint16_t *some = malloc(bytes);

        /*
         * Small numbers that differ from row to row. Both graphs get the same ones, since they name their weights in
         * the same order.
         */
        for (uint64_t k = 0; k < bytes / 2; k++)
            some[k] = (uint16_t)(0x3d00 + (k * 2654435761u >> 20) % 256 + ((k * 40503u >> 7) & 1) * 0x8000);
        expect_ok(ngd_buffer_create(dev, bytes, NGD_BUFFER_GENERAL, "bound", &s->bound[i], &diag), &diag);
        expect_ok(ngd_buffer_write(s->bound[i], 0, some, bytes, &diag), &diag);
        free(some);
    }
    expect_ok(ngd_instance_create(s->exec, s->bound, n, pool, &s->inst, &diag), &diag);
    ngd_strbuf_fini(&sb);
    ngd_pattern_set_unref(patterns);
}

static double time_steps(struct step *s, struct ngd_stream *stream, bool eager, int64_t each, float *logits)
{
    static const int32_t token = 7, position = 20, slot = 20, table[BLOCKS] = {0, 1, 2, 3};
    static const int64_t ql = 1, kl = 21;
    const struct ngd_span in[] = {{&token, 4}, {&position, 4}, {&slot, 4}, {table, sizeof(table)}};
    const struct ngd_host_value hosts[] = {{&ql, 1}, {&kl, 1}};
    int64_t best;
    const struct ngd_out out[] = {{&best, 8}, {logits, VOCAB * sizeof(float)}};
    double sum = 0;

    for (int64_t i = 0; i < each; i++) {
        struct ngd_launch launch = {.inputs = in, .hosts = hosts, .outputs = out, .eager = eager};

        expect_ok(ngd_stream_run(stream, s->inst, &launch), &launch.diag);
        sum += (double)launch.device_time;
    }
    return sum / (double)each / 1000;
}

/* Compiles static kernels for s. Returns the seconds that it took. */
static double compile_step(struct step *s, const char *compiler)
{
    const ngd_nsec_t start = ngd_now();
    struct ngd_strbuf source, object;
    struct ngd_static_work work = {.compiler = compiler, .dir = "/tmp", .timeout = 600 * NGD_SEC};
    struct ngd_diag diag = {0};

    ngd_strbuf_init(&source);
    ngd_strbuf_init(&object);
    expect_ok(ngd_exec_static_source(s->exec, &source, &diag), &diag);
    work.source = ngd_strbuf_str(&source);
    if (ngd_exec_static_compile(s->exec, &work, &object, &diag) != NGD_STATIC_COMPILED)
        bench_fail("%s", diag.text);
    expect_ok(ngd_exec_static_adopt(s->exec, object.data, object.len, &diag), &diag);
    ngd_strbuf_fini(&source);
    ngd_strbuf_fini(&object);
    return (double)(ngd_now() - start) / NGD_SEC;
}

/* The variants that are measured, one after the other in each round. */
static const struct way {
    const char *name;
    bench_form_t form;
    bool optimised, eager, compiled;
} ways[] = {
    {"npu operators, eager", BENCH_OPERATORS, false, true, false},
    {"npu operators, replayed as given", BENCH_OPERATORS, false, false, false},
    {"npu operators, optimised", BENCH_OPERATORS, true, false, false},
    {"npu operators, optimised, static kernels", BENCH_OPERATORS, true, false, true},
    {"written out, eager", BENCH_WRITTEN_OUT, false, true, false},
    {"written out, replayed as given", BENCH_WRITTEN_OUT, false, false, false},
    {"written out, optimised", BENCH_WRITTEN_OUT, true, false, false},
    {"written out, optimised, static kernels", BENCH_WRITTEN_OUT, true, false, true},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), EACH_FORM = WAYS / 2, MAX_ROUNDS = 64 };

static void report(double us[WAYS][MAX_ROUNDS], struct step steps[WAYS], int rounds, int layers, double seconds)
{
    for (int i = 0; i < WAYS; i++)
        printf("%-42s %5u kernels, %4.1f a layer %8.1f us\n", ways[i].name, steps[i].plan->n_calls,
               (double)steps[i].plan->n_calls / layers, bench_median(us[i], rounds));
    for (int i = 0; i < WAYS; i += EACH_FORM)
        printf("%s / optimised: %.2f, with static kernels %.2f\n", ways[i].name,
               bench_median(us[i], rounds) / bench_median(us[i + 2], rounds),
               bench_median(us[i], rounds) / bench_median(us[i + 3], rounds));
    printf("static kernels compiled in %.1f s\n", seconds);
}

int main(int argc, char **argv)
{
    static float logits[2][VOCAB];
    static double us[WAYS][MAX_ROUNDS];
    struct ngd_device_params params;
    struct ngd_device *dev;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
    struct ngd_diag diag = {0};
    struct step steps[WAYS];
    const char *compiler = "/usr/bin/cc";
    double seconds = 0;
    int layers = 28, rounds = 21, each = 200;

    ngd_device_params_init(&params);
    params.backend = "host";
    for (int i = 1; i + 1 < argc; i += 2) {
        const int v = atoi(argv[i + 1]);

        if (strcmp(argv[i], "--layers") == 0 && v > 0)
            layers = v;
        else if (strcmp(argv[i], "--threads") == 0 && v > 0)
            params.threads = (uint32_t)v;
        else if (strcmp(argv[i], "--rounds") == 0 && v > 0)
            rounds = v < MAX_ROUNDS ? v : MAX_ROUNDS;
        else if (strcmp(argv[i], "--each") == 0 && v > 0)
            each = v;
        else if (strcmp(argv[i], "--compiler") == 0)
            compiler = argv[i + 1];
        else
            bench_fail("unknown argument %s", argv[i]);
    }
    expect_ok(ngd_device_open(&params, &dev, &diag), &diag);
    expect_ok(ngd_stream_create(dev, "bench", &stream, &diag), &diag);
    expect_ok(ngd_pool_create(dev, "bench", &pool), &diag);
    for (int i = 0; i < WAYS; i++) {
        open_step(&steps[i], dev, pool, layers, ways[i].form, ways[i].optimised);
        if (ways[i].compiled)
            seconds = compile_step(&steps[i], compiler);
    }
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < WAYS; i++) {
            us[i][r] = time_steps(&steps[i], stream, ways[i].eager, each, logits[i > 0]);
            if (memcmp(logits[0], logits[i > 0], sizeof(logits[0])) != 0)
                bench_fail("%s: the logits differ from those of %s", ways[i].name, ways[0].name);
        }
    }
    report(us, steps, rounds, layers, seconds);
    return 0;
}
