/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ascend backend itself adds to a replay. It is the time of a replay on the simulator with empty kernels,
 * minus the time spent inside CANN's functions (which includes the wait for the device), and minus what the reading of
 * that time costs outside of them.
 *
 *      bench/bench_ascend [replays]
 */
#include "devices/ascend/sim/sim.h"
#include "devices/device.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_ok(ngd_status_t status, const struct ngd_diag *diag, const char *what)
{
    if (status == NGD_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, ngd_status_name(status), diag->text);
    exit(EXIT_FAILURE);
}

static void *control(const char *dir, const char *name)
{
    char path[1100];
    void *handle, *symbol;

    snprintf(path, sizeof(path), "%s/libascendcl.so", dir);
    handle = dlopen(path, RTLD_LAZY);
    symbol = handle ? dlsym(handle, name) : NULL;
    if (!symbol) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    return symbol;
}

/* A chain of attention nodes, each with two host parameters. */
static void write_graph(struct ngd_strbuf *sb, int nodes)
{
    ngd_strbuf_append(sb, "npugraph 1\ngraph \"nodes\" {\n state %k : bf16[4,16,1,16]\n state %v : bf16[4,16,1,16]\n"
                          " input %a0 : bf16[1,2,16]\n input %bt : i32[1,4]\n host %ql : i64[1]\n host %kl : i64[1]\n");
    for (int i = 0; i < nodes; i++)
        ngd_strbuf_printf(sb,
                          " %%a%d = npu.fused_infer_attention_score(%%a%d, %%k, %%v, %%bt, %%ql, %%kl) {num_heads=2, "
                          "num_key_value_heads=1, scale=0.25, block_size=16}\n",
                          i + 1, i);
    ngd_strbuf_printf(sb, " %%y = aten.add.Tensor(%%a0, %%a%d)\n return \"y\" = %%y\n}\n", nodes);
}

struct bed {
    struct ngd_device *dev;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
    int64_t (*count)(const char *what);
    double call_us; /* what is measured of a call of a function that does nothing */
};

/* Time of a call that is not counted as time inside: parts of two readings of the clock. The least of many rounds,
 * since other programs run too. */
static double time_empty_call(const struct bed *bed, const char *dir)
{
    int (*get)(int32_t * device) = (int (*)(int32_t *))control(dir, "aclrtGetDevice");
    const int n = 1000;
    double least = 1e9;

    for (int round = 0; round < 500; round++) {
        const int64_t spent = bed->count("api_ns");
        const ngd_nsec_t start = ngd_now();
        int32_t device;
        double us;

        for (int i = 0; i < n; i++)
            get(&device);
        us = (double)(ngd_now() - start - (bed->count("api_ns") - spent)) / 1000 / n;
        least = us < least ? us : least;
    }
    return least;
}

static double measure_own_time(struct bed *bed, int nodes, int replays)
{
    uint16_t x[32] = {0}, y[32];
    int32_t table[4] = {0, 1, 2, 3};
    int64_t one = 1, keys = 20, spent, calls;
    struct ngd_span in[] = {{x, sizeof(x)}, {table, sizeof(table)}};
    struct ngd_host_value hosts[] = {{&one, 1}, {&keys, 1}};
    struct ngd_out out = {y, sizeof(y)};
    struct ngd_launch launch = {.inputs = in, .hosts = hosts, .outputs = &out};
    struct ngd_buffer *bound[2];
    struct ngd_digest options = {{0}};
    struct ngd_diag diag = {0};
    struct ngd_graph *graph;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
    struct ngd_strbuf sb;
    struct ngd_key key;
    ngd_nsec_t start;
    double own;

    ngd_strbuf_init(&sb);
    write_graph(&sb, nodes);
    expect_ok(ngd_graph_parse(ngd_strbuf_str(&sb), sb.len, &graph, &diag), &diag, "graph");
    expect_ok(ngd_key_make(graph, &options, NULL, 0, &key, &diag), &diag, "key");
    expect_ok(ngd_plan_create(graph, &key, NULL, ngd_device_target(bed->dev), &plan, &diag), &diag, "plan");
    expect_ok(ngd_exec_create(bed->dev, plan, &exec, &diag), &diag, "executable");
    for (int i = 0; i < 2; i++)
        expect_ok(ngd_buffer_create(bed->dev, plan->bound[i].bytes, NGD_BUFFER_KV, "kv", &bound[i], &diag), &diag,
                  "buffer");
    expect_ok(ngd_instance_create(exec, bound, 2, bed->pool, &inst, &diag), &diag, "instance");
    for (int i = 0; i < 10; i++)
        expect_ok(ngd_stream_run(bed->stream, inst, &launch), &launch.diag, "replay");
    spent = bed->count("api_ns");
    calls = bed->count("calls");
    start = ngd_now();
    for (int i = 0; i < replays; i++)
        expect_ok(ngd_stream_run(bed->stream, inst, &launch), &launch.diag, "replay");
    own = (double)(ngd_now() - start - (bed->count("api_ns") - spent)) / 1000 / replays;
    own -= bed->call_us * (double)(bed->count("calls") - calls) / replays;
    ngd_instance_destroy(inst);
    ngd_exec_unref(exec);
    for (int i = 0; i < 2; i++)
        ngd_buffer_unref(bound[i]);
    ngd_plan_unref(plan);
    ngd_graph_unref(graph);
    ngd_strbuf_fini(&sb);
    return own;
}

int main(int argc, char **argv)
{
    const char *top = getenv("top_builddir");
    int replays = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 2000;
    struct ngd_device_params params;
    struct ngd_diag diag = {0};
    struct bed bed = {0};
    char dir[1000];
    double none, many;

    snprintf(dir, sizeof(dir), "%s/devices/ascend/sim/.libs", top ? top : ".");
    bed.count = (int64_t(*)(const char *))control(dir, "ngd_aclsim_count");
    ((bool (*)(const char *, const char *))control(dir, "ngd_aclsim_set"))("empty_kernels", "1");
    ngd_device_params_init(&params);
    params.backend = "ascend";
    params.ascend_libs = dir;
    expect_ok(ngd_device_open(&params, &bed.dev, &diag), &diag, "device");
    expect_ok(ngd_stream_create(bed.dev, "bench", &bed.stream, &diag), &diag, "stream");
    expect_ok(ngd_pool_create(bed.dev, "bench", &bed.pool), &diag, "pool");
    bed.call_us = time_empty_call(&bed, dir);
    none = measure_own_time(&bed, 0, replays);
    many = measure_own_time(&bed, 32, replays);
    printf("the backend's own time: %.2f us a replay, and %.2f us for each node with host parameters, without %.0f ns "
           "for each call that is measured\n",
           none, (many - none) / 32, bed.call_us * 1000);
    ngd_stream_destroy(bed.stream);
    ngd_pool_destroy(bed.pool);
    ngd_device_close(bed.dev);
    return 0;
}
