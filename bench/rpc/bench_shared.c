/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shared buffers save: an input of 16 MiB in a message and in a shared buffer, and an upload and a download of
 * 1 GiB over gRPC and by Memory.Copy, beside memcpy in this process: between memory of its own, and out of the shared
 * buffer. All take turns, so that other load on the machine affects all of them.
 */
#include "bench/rpc/bench_rpc.h"
#include "tests/models/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_BYTES ((size_t)16 << 20)

static const char graph_text[] = "npugraph 1\ngraph \"bench.first\" {\n  input %x : f32[4194304]\n"
                                 "  %y = aten.slice.Tensor(%x) {end=16}\n  return \"y\" = %y\n}\n";

static void check_rc(int rc, const struct npugraph_error *err)
{
    if (rc != 0)
        bench_fail("%s", err->message);
}

/* ---- an input ---- */

struct inputs {
    struct npugraph_client *client;
    struct npugraph_replay_stream *stream;
    struct npugraph_shared shared;
    void *own;
    uint64_t graph;
    struct npugraph_result *result;
};

static double time_input(struct inputs *in, const void *data)
{
    const struct npugraph_input input = {data, INPUT_BYTES};
    const struct npugraph_replay replay = {.graph = in->graph, .inputs = &input, .n_inputs = 1};
    struct npugraph_error err = {0};
    const ngd_nsec_t begin = ngd_now();

    check_rc(npugraph_replay_stream_run(in->stream, &replay, &in->result, &err), &err);
    return (double)(ngd_now() - begin);
}

static void bench_inputs(const struct live *live, int64_t rounds)
{
    struct inputs in = {.client = live_connect(live, "bench_shared"), .own = malloc(INPUT_BYTES)};
    struct samples grpc = {0}, shared = {0};
    struct npugraph_error err = {0};

    if (in.own == NULL)
        bench_fail("no memory");
    check_rc(npugraph_shared_alloc(in.client, INPUT_BYTES, &in.shared, &err), &err);
    memset(in.own, 1, INPUT_BYTES);
    memset(in.shared.data, 1, INPUT_BYTES);
    check_rc(npugraph_graph_register(in.client, NULL, graph_text, NULL, 0, NULL, 0, &in.graph, &err), &err);
    check_rc(npugraph_replay_stream_open(in.client, &in.stream, &err), &err);
    for (int64_t i = 0; i < rounds + 2; i++) {
        double a = time_input(&in, in.own), b = time_input(&in, in.shared.data);

        if (i >= 2) {
            samples_add(&grpc, a);
            samples_add(&shared, b);
        }
    }
    samples_print(&grpc, "replay, 16 MiB input in the message", "ms", 1e-6);
    samples_print(&shared, "replay, 16 MiB input in a shared buffer", "ms", 1e-6);
    printf("%-44s %17.2f x\n", "ratio", samples_quantile(&grpc, 0.5) / samples_quantile(&shared, 0.5));
    npugraph_result_free(in.result);
    npugraph_replay_stream_close(in.stream);
    check_rc(npugraph_shared_free(in.client, &in.shared, &err), &err);
    npugraph_disconnect(in.client);
    samples_free(&grpc);
    samples_free(&shared);
    free(in.own);
}

/* ---- uploads and downloads ---- */

enum { UP_GRPC, UP_SHARED, DOWN_GRPC, DOWN_SHARED, COPY_OWN, COPY_SHARED, WAYS };
static const char *const ways[WAYS] = {
    [UP_GRPC] = "upload over gRPC",     [UP_SHARED] = "upload from a shared buffer",
    [DOWN_GRPC] = "download over gRPC", [DOWN_SHARED] = "download into a shared buffer",
    [COPY_OWN] = "memcpy, own memory",  [COPY_SHARED] = "memcpy out of the shared buffer",
};

struct transfers {
    struct npugraph_client *client;
    struct npugraph_shared shared;
    char *own, *other;
    uint64_t buffer, bytes;
};

static double time_transfer(struct transfers *t, int way)
{
    struct npugraph_error err = {0};
    const ngd_nsec_t begin = ngd_now();

    if (way == UP_GRPC || way == UP_SHARED)
        check_rc(
            npugraph_buffer_write(t->client, t->buffer, 0, way == UP_GRPC ? t->own : t->shared.data, t->bytes, &err),
            &err);
    else if (way == DOWN_GRPC || way == DOWN_SHARED)
        check_rc(
            npugraph_buffer_read(t->client, t->buffer, 0, way == DOWN_GRPC ? t->own : t->shared.data, t->bytes, &err),
            &err);
    else
        memcpy(t->other, way == COPY_OWN ? t->own : t->shared.data, t->bytes);
    return (double)(ngd_now() - begin);
}

static void bench_transfers(const struct live *live, int64_t rounds, uint64_t bytes)
{
    struct transfers t = {
        .client = live_connect(live, "bench_shared"), .own = malloc(bytes), .other = malloc(bytes), .bytes = bytes};
    struct samples all[WAYS] = {{0}};
    struct npugraph_error err = {0};
    double own;

    if (t.own == NULL || t.other == NULL)
        bench_fail("no memory");
    memset(t.own, 1, bytes);
    memset(t.other, 2, bytes);
    check_rc(npugraph_shared_alloc(t.client, bytes, &t.shared, &err), &err);
    memset(t.shared.data, 3, bytes);
    check_rc(npugraph_buffer_alloc(t.client, NULL, bytes, "bench", &t.buffer, &err), &err);
    for (int64_t i = 0; i < rounds + 1; i++) {
        for (int way = 0; way < WAYS; way++) {
            double time = time_transfer(&t, way);

            if (i > 0)
                samples_add(&all[way], time);
        }
    }
    own = samples_quantile(&all[COPY_OWN], 0.5);
    for (int way = 0; way < WAYS; way++)
        samples_print(&all[way], ways[way], "ms", 1e-6);
    for (int way = 0; way < WAYS; way++)
        printf("%-44s %8.2f GB/s, %.2f of memcpy, %.2f of memcpy out of the shared buffer\n", ways[way],
               (double)bytes / samples_quantile(&all[way], 0.5), own / samples_quantile(&all[way], 0.5),
               samples_quantile(&all[COPY_SHARED], 0.5) / samples_quantile(&all[way], 0.5));
    check_rc(npugraph_shared_free(t.client, &t.shared, &err), &err);
    npugraph_disconnect(t.client);
    for (int way = 0; way < WAYS; way++)
        samples_free(&all[way]);
    free(t.own);
    free(t.other);
}

int main(int argc, char **argv)
{
    static const char *const extra[] = {"--max-message=32M", "--device-memory=4G", "--max-shared-bytes-per-identity=4G",
                                        NULL};
    int64_t rounds = 20, mib = 1024;
    bool quick = false;
    const struct bench_option options[] = {
        {"rounds", &rounds, NULL, NULL}, {"mib", &mib, NULL, NULL}, {"quick", NULL, NULL, &quick}};
    struct live live;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick) {
        rounds = 2;
        mib = 64;
    }
    live_start(&live, source_dir(), extra);
    bench_inputs(&live, rounds);
    bench_transfers(&live, rounds > 10 ? 10 : rounds, (uint64_t)mib << 20);
    if (live_stop(&live) != 0)
        bench_fail("the daemon did not stop cleanly");
    return 0;
}
