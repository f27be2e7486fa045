/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a replay costs on top of its transport. A graph of one node is replayed over Graphs.ReplayStream, and compared
 * with a C-core server in a process of its own that only sends back what it receives. Both exchange the same payload on
 * one stream over a Unix socket, with one batch of {SEND_MESSAGE, RECV_MESSAGE} for each exchange on both sides.
 */
#include "bench/rpc/bare.h"
#include "bench/rpc/bench_rpc.h"
#include "proto/npugraph.pb-c.h"
#include "tests/models/live.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ELEMENTS 16

/* ---- the replay ---- */

static const char graph_text[] = "npugraph 1\ngraph \"bench.neg\" {\n  input %x : f32[16]\n  %y = aten.neg(%x)\n"
                                 "  return \"y\" = %y\n}\n";

struct replayer {
    struct npugraph_replay_stream *stream;
    struct npugraph_replay replay;
    struct npugraph_input input;
    struct npugraph_result *result;
    float x[ELEMENTS];
};

static void replay_open(struct replayer *r, struct npugraph_client *client)
{
    struct npugraph_error err = {0};

    for (int i = 0; i < ELEMENTS; i++)
        r->x[i] = (float)i + 1;
    r->input = (struct npugraph_input){r->x, sizeof(r->x)};
    r->replay.inputs = &r->input;
    r->replay.n_inputs = 1;
    if (npugraph_graph_register(client, NULL, graph_text, NULL, 0, NULL, 0, &r->replay.graph, &err) != 0 ||
        npugraph_graph_capture(client, r->replay.graph, NULL, 0, false, NULL, &err) != 0 ||
        npugraph_replay_stream_open(client, &r->stream, &err) != 0)
        bench_fail("%s", err.message);
}

static void replay_once(struct replayer *r)
{
    struct npugraph_error err = {0};

    if (npugraph_replay_stream_run(r->stream, &r->replay, &r->result, &err) != 0)
        bench_fail("replay: %s", err.message);
    if (r->result->n != 1 || ((const float *)r->result->outputs[0].data)[3] != -4.0f)
        bench_fail("the replay's result is wrong");
}

/* A payload as long as the replay's request on the wire. The echo carries the same number of bytes in both directions.
 */
struct payload {
    uint8_t *data;
    size_t n;
};

static void make_payload(struct payload *p, const struct replayer *r)
{
    Npugraph__V1__ReplayRequest req = NPUGRAPH__V1__REPLAY_REQUEST__INIT;
    ProtobufCBinaryData input = {sizeof(r->x), (uint8_t *)(uintptr_t)r->x};

    req.graph = r->replay.graph;
    req.n_inputs = 1;
    req.inputs = &input;
    p->n = npugraph__v1__replay_request__get_packed_size(&req);
    p->data = malloc(p->n);
    npugraph__v1__replay_request__pack(&req, p->data);
}

/* ---- both in turn ---- */

/*
 * The time of an exchange depends more on what the kernel's scheduler does with the two sides than on the sides
 * themselves. On one CPU, a side may or may not preempt the other when its socket becomes writable again, and it keeps
 * doing whichever happened first. On two CPUs each side has to be woken up. So each placement is compared on its own,
 * over many starts of both servers, with short turns of echo and replay back to back.
 */
#define TURN 20

enum { ANYWHERE = -1 };

/* Pins all current threads of a process to the CPU, or lets them run anywhere. */
static void pin_process(pid_t pid, int cpu, const cpu_set_t *all)
{
    char path[64];
    struct dirent *task;
    cpu_set_t set = *all;
    DIR *tasks;

    if (cpu != ANYWHERE) {
        CPU_ZERO(&set);
        CPU_SET((unsigned)cpu, &set);
    }
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    tasks = opendir(path);
    if (tasks == NULL)
        bench_fail("%s: cannot be read", path);
    while ((task = readdir(tasks)) != NULL)
        if (task->d_name[0] != '.')
            (void)sched_setaffinity(atoi(task->d_name), sizeof(set),
                                    &set); /* fails for a thread that has ended meanwhile */
    closedir(tasks);
}

static int nth_cpu(const cpu_set_t *all, int n)
{
    if (n == ANYWHERE)
        return ANYWHERE;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((unsigned)cpu, all) && n-- == 0)
            return cpu;
    bench_fail("there are too few CPUs to place a client beside its server");
}

struct sides {
    struct bare_client *echo;
    struct payload payload;
    struct replayer replayer;
};

static double turn_of(struct sides *s, bool replays, struct samples *all)
{
    struct samples one = {0};
    double median;

    for (int k = 0; k < TURN; k++) {
        ngd_nsec_t begin = ngd_now(), took;

        if (replays)
            replay_once(&s->replayer);
        else
            bare_exchange(s->echo, s->payload.data, s->payload.n);
        took = ngd_now() - begin;
        samples_add(&one, (double)took);
        samples_add(all, (double)took);
    }
    median = samples_quantile(&one, 0.5);
    samples_free(&one);
    return median;
}

struct placement {
    const char *name;
    int client, server; /* the n-th of the allowed CPUs, or ANYWHERE */
    struct samples all[2], ratios;
};

static void measure_placement(struct placement *p, struct sides *s, int64_t each)
{
    double median[2];

    for (int64_t i = 0; i < each / TURN; i++) {
        for (int k = 0; k < 2; k++)
            median[(i ^ k) & 1] = turn_of(s, ((i ^ k) & 1) != 0, &p->all[(i ^ k) & 1]);
        samples_add(&p->ratios, median[1] / median[0]);
    }
}

static void print_placement(struct placement *p)
{
    printf("%s\n", p->name);
    samples_print(&p->all[0], "  C-core stream echo, same bytes", "us", 1e-3);
    samples_print(&p->all[1], "  replay of one node over the stream", "us", 1e-3);
    printf("  ratio of medians %.2f\n", samples_quantile(&p->all[1], 0.5) / samples_quantile(&p->all[0], 0.5));
    samples_print(&p->ratios, "  ratio within a turn; wanted <= 1.5", "", 1);
    samples_free(&p->all[0]);
    samples_free(&p->all[1]);
    samples_free(&p->ratios);
}

/* Starts both servers anew and measures each placement once. */
static void round_of(struct placement *placements, size_t n, const char *dir, int64_t each)
{
    struct npugraph_client *client;
    struct sides sides = {0};
    struct samples warm = {0};
    struct bare_server bare;
    struct live live;
    char path[100];
    cpu_set_t all;

    snprintf(path, sizeof(path), "%s/sock", dir);
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        bench_fail("sched_getaffinity fails");
    bare_start(&bare, BARE_ECHO, path);
    live_start(&live, dir, NULL);
    client = live_connect(&live, "bench_echo");
    replay_open(&sides.replayer, client);
    sides.echo = bare_open(bare.address);
    make_payload(&sides.payload, &sides.replayer);
    for (size_t i = 0; i < n; i++) {
        pin_process(getpid(), nth_cpu(&all, placements[i].client), &all);
        pin_process(bare.pid, nth_cpu(&all, placements[i].server), &all);
        pin_process(live.pid, nth_cpu(&all, placements[i].server), &all);
        for (int k = 0; k < 2; k++)
            turn_of(&sides, k != 0, &warm);
        measure_placement(&placements[i], &sides, each);
    }
    pin_process(getpid(), ANYWHERE, &all);
    samples_free(&warm);
    npugraph_result_free(sides.replayer.result);
    npugraph_replay_stream_close(sides.replayer.stream);
    npugraph_disconnect(client);
    bare_close(sides.echo);
    free(sides.payload.data);
    if (live_stop(&live) != 0)
        bench_fail("the daemon did not stop cleanly");
    bare_stop(&bare);
}

int main(int argc, char **argv)
{
    int64_t rounds = 16, each = 1000;
    const char *serves = NULL;
    bool quick = false;
    const struct bench_option options[] = {{"serve", NULL, &serves, NULL},
                                           {"rounds", &rounds, NULL, NULL},
                                           {"each", &each, NULL, NULL},
                                           {"quick", NULL, NULL, &quick}};
    struct placement placements[] = {{"both on one CPU", 0, 0, {{0}, {0}}, {0}},
                                     {"client and servers on a CPU each", 0, 1, {{0}, {0}}, {0}},
                                     {"where the kernel puts them", ANYWHERE, ANYWHERE, {{0}, {0}}, {0}}};
    const size_t n = sizeof(placements) / sizeof(placements[0]);
    char *dir;

    setenv("NPUGRAPH_LOCAL_TRANSPORT", "off", 1); /* it measures gRPC */
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (serves != NULL)
        bare_serve(serves);
    if (quick)
        rounds = 4, each = 400;
    dir = bench_dir_make();
    for (int64_t i = 0; i < rounds; i++)
        round_of(placements, n, dir, each);
    for (size_t i = 0; i < n; i++)
        print_placement(&placements[i]);
    bench_dir_remove(dir);
    return 0;
}
