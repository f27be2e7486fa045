/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How one client affects the latency of another: uploads of gigabytes, captures of large graphs one after the other, a
 * graph that fails at each replay, sessions that come and go.
 *
 * Whatever a client does takes CPU time, in its own process too. So the latency is measured twice: beside a client that
 * uses the same daemon, and beside one that does the same to another daemon on the same machine.
 */
#include "bench/rpc/crowd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVERY  (5 * NGD_MSEC)
#define CHUNK  (1u << 20)
#define CHUNKS 64 /* of the buffer, which is written over and over */

/* ---- clients ---- */

static void run_steady(struct member *m)
{
    member_replay(m, "steady", crowd_products_text("steady", 4, 256), EVERY);
}

static void run_upload(struct member *m)
{
    struct npugraph_client *client = member_connect(m, "upload");
    static uint8_t bytes[CHUNK];
    struct npugraph_error err = {0};
    uint64_t buffer;

    if (npugraph_buffer_alloc(client, NULL, (uint64_t)CHUNKS * CHUNK, "upload", &buffer, &err) != 0)
        bench_fail("upload: %s", err.message);
    member_ready(m);
    for (uint64_t i = 0; member_may_work(m); i++) {
        if (npugraph_buffer_write(client, buffer, i % CHUNKS * CHUNK, bytes, CHUNK, &err) != 0)
            bench_fail("upload: %s", err.message);
        atomic_fetch_add(&m->seat->done, 1);
    }
    npugraph_disconnect(client);
}

/*
 * Makes the text of a graph that is not cached yet, since each has another constant. m->arg is its number of operators.
 */
static char *large_graph(const struct member *m, uint64_t i)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    fprintf(f,
            "npugraph 1\ngraph \"large\" {\n  input %%x : f32[16]\n  %%v0 = aten.add.Scalar(%%x) {other=%d.%06llu}\n",
            m->number, (unsigned long long)i);
    for (int n = 1; n < m->arg; n++)
        fprintf(f, "  %%v%d = aten.cumsum(%%v%d) {dim=0}\n", n, n - 1);
    fprintf(f, "  return \"y\" = %%v%d\n}\n", (int)m->arg - 1);
    fclose(f);
    return text;
}

static void run_captures(struct member *m)
{
    struct npugraph_client *client = member_connect(m, "captures");
    struct npugraph_error err = {0};
    uint64_t graph;

    member_ready(m);
    for (uint64_t i = 0; member_may_work(m); i++) {
        char *text = large_graph(m, i);

        if (npugraph_graph_register(client, NULL, text, NULL, 0, NULL, 0, &graph, &err) != 0 ||
            npugraph_graph_capture(client, graph, NULL, 0, false, NULL, &err) != 0 ||
            npugraph_graph_release(client, graph, &err) != 0)
            bench_fail("captures: %s", err.message);
        free(text);
        atomic_fetch_add(&m->seat->done, 1);
    }
    npugraph_disconnect(client);
}

/* Replays a graph with an index that is out of range, which only the device can see. */
static void run_failures(struct member *m)
{
    static const char text[] = "npugraph 1\ngraph \"fails\" {\n  input %x : f32[64,64]\n  input %i : i64[4]\n"
                               "  %y = aten.index_select(%x, %i) {dim=0}\n  return %y\n}\n";
    struct npugraph_client *client = member_connect(m, "failures");
    static const float x[64 * 64];
    static const int64_t outside[4] = {0, 1, 2, 64};
    const struct npugraph_input inputs[] = {{x, sizeof(x)}, {outside, sizeof(outside)}};
    struct npugraph_replay replay = {.inputs = inputs, .n_inputs = 2};
    struct npugraph_result *result = NULL;
    struct npugraph_error err = {0};

    if (npugraph_graph_register(client, NULL, text, NULL, 0, NULL, 0, &replay.graph, &err) != 0)
        bench_fail("failures: %s", err.message);
    member_ready(m);
    while (member_may_work(m)) {
        if (npugraph_replay(client, &replay, &result, &err) == 0)
            bench_fail("a replay with an index outside of its tensor did not fail");
        atomic_fetch_add(&m->seat->done, 1);
    }
    npugraph_result_free(result);
    npugraph_disconnect(client);
}

static void run_sessions(struct member *m)
{
    struct npugraph_error err = {0};
    uint64_t buffer;

    member_ready(m);
    while (member_may_work(m)) {
        struct npugraph_client *client = member_connect(m, "passing");

        if (npugraph_buffer_alloc(client, NULL, CHUNK, "passing", &buffer, &err) != 0)
            bench_fail("sessions: %s", err.message);
        npugraph_disconnect(client); /* the daemon frees what the session has */
        atomic_fetch_add(&m->seat->done, 1);
    }
}

static const struct crowd_role roles[] = {{"steady", run_steady},     {"upload", run_upload},
                                          {"captures", run_captures}, {"failures", run_failures},
                                          {"sessions", run_sessions}, {NULL, NULL}};

static const struct {
    const char *name, *role, *title, *unit;
    int64_t arg;
} neighbours[] = {
    {"upload", "upload", "uploads", "MiB", 0},
    {"captures", "captures", "captures of graphs of 4,000 operators", "captures", 4000},
    {"large", "captures", "captures of graphs of 65,000 operators", "captures", 65000},
    {"failures", "failures", "a graph that fails", "replays", 0},
    {"sessions", "sessions", "sessions that come and go", "sessions", 0},
};

/* ---- rounds ---- */

enum { OTHER, OWN, DAEMONS };

/*
 * Both crowds have the neighbour. The crowd of the own daemon also has, in its first seat, the client whose latency is
 * measured.
 */
static void run_neighbour(const struct live *live, size_t which, int64_t rounds, ngd_nsec_t count)
{
    struct samples latency[DAEMONS] = {{0}, {0}};
    struct crowd crowds[DAEMONS];
    uint64_t done = 0;
    double p99[DAEMONS];

    for (int i = 0; i < DAEMONS; i++)
        crowd_open(&crowds[i], live[i].address);
    crowd_start(&crowds[OTHER], 0, neighbours[which].role, 0, neighbours[which].arg);
    crowd_start(&crowds[OWN], 0, "steady", 0, 0);
    crowd_start(&crowds[OWN], 1, neighbours[which].role, 0, neighbours[which].arg);
    crowd_wait_ready(&crowds[OTHER], 1);
    crowd_wait_ready(&crowds[OWN], 2);
    for (int64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < DAEMONS; i++) {
            crowd_work(&crowds[OTHER], i == OTHER ? 1 : 0, 0, 0);
            crowd_work(&crowds[OWN], i == OWN ? 2 : 1, 200 * NGD_MSEC, count);
            crowd_samples(&crowds[OWN], 0, &latency[i]);
            if (i == OWN)
                done += atomic_load(&crowds[OWN].board->seats[1].done);
        }
    }
    printf("%s: %.4g %s a second\n", neighbours[which].title,
           (double)done / (double)rounds / ((double)count / (double)NGD_SEC), neighbours[which].unit);
    samples_print(&latency[OTHER], "  beside it, done to another daemon", "ms", 1e-6);
    samples_print(&latency[OWN], "  beside it, done to the same one", "ms", 1e-6);
    if (atomic_load(&crowds[OWN].board->seats[0].wrong))
        bench_fail("results were wrong");
    for (int i = 0; i < DAEMONS; i++) {
        crowd_close(&crowds[i]);
        p99[i] = samples_quantile(&latency[i], 0.99);
        samples_free(&latency[i]);
    }
    printf("  p99 %.2f and %.2f ms; ratio %.2f; wanted <= 2\n", p99[OTHER] * 1e-6, p99[OWN] * 1e-6,
           p99[OWN] / p99[OTHER]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int64_t rounds = 5, ms = 2000;
    const char *only = NULL;
    bool quick = false;
    const struct bench_option options[] = {{"rounds", &rounds, NULL, NULL},
                                           {"ms", &ms, NULL, NULL},
                                           {"only", NULL, &only, NULL},
                                           {"quick", NULL, NULL, &quick}};
    struct live live[DAEMONS];
    char *dir;

    crowd_member_main(argc, argv, roles);
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        rounds = 2, ms = 1000;
    dir = bench_dir_make();
    for (int i = 0; i < DAEMONS; i++)
        live_start(&live[i], dir, NULL);
    for (size_t i = 0; i < sizeof(neighbours) / sizeof(neighbours[0]); i++)
        if (!only || strcmp(only, neighbours[i].name) == 0)
            run_neighbour(live, i, rounds, ms * NGD_MSEC);
    bench_dir_remove(dir);
    return (live_stop(&live[OTHER]) != 0) | (live_stop(&live[OWN]) != 0);
}
