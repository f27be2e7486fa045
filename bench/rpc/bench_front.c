/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guard in front of gRPC adds to a replay. A graph of one node is replayed over Graphs.ReplayStream, over a
 * Unix socket without and with the guard, and over loopback TCP, where the guard is always on; with the guard also with
 * guard-poll (--poll TIME). --other NPUGRAPHD names
 * a daemon without a front, for TCP without the guard. The variants take short turns, so that other load on the machine
 * affects all of them.
 */
#include "bench/rpc/bench_rpc.h"
#include "tests/models/live.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ELEMENTS 16
#define TURN     20
#define KINDS    6

static const char graph_text[] = "npugraph 1\ngraph \"bench.neg\" {\n  input %x : f32[16]\n  %y = aten.neg(%x)\n"
                                 "  return \"y\" = %y\n}\n";

struct replayer {
    const char *name;
    struct live live;
    struct npugraph_client *client;
    struct npugraph_replay_stream *stream;
    struct npugraph_replay replay;
    struct npugraph_input input;
    struct npugraph_result *result;
    float x[ELEMENTS];
    struct samples all;
};

static void open_replayer(struct replayer *r, const char *dir, bool tcp, const char *guard, const char *poll,
                          const char *daemon)
{
    char listen[64], option[64], polled[64];
    const char *extra[8] = {NULL};
    struct npugraph_error err = {0};
    int n = 0;

    if (daemon)
        setenv("NPUGRAPHD", daemon, 1);
    if (tcp) {
        snprintf(listen, sizeof(listen), "tcp:127.0.0.1:%d", bench_free_port());
        extra[n++] = "--listen";
        extra[n++] = listen;
        extra[n++] = "--allow-plaintext=yes";
    }
    if (guard) {
        snprintf(option, sizeof(option), "--guard-unix=%s", guard);
        extra[n++] = option;
    }
    if (poll) {
        snprintf(polled, sizeof(polled), "--guard-poll=%s", poll);
        extra[n++] = polled;
    }
    live_start(&r->live, dir, extra);
    unsetenv("NPUGRAPHD");
    if (tcp)
        snprintf(r->live.address, sizeof(r->live.address), "%s", listen + strlen("tcp:"));
    r->client = live_connect(&r->live, "bench_front");
    for (int i = 0; i < ELEMENTS; i++)
        r->x[i] = (float)i + 1;
    r->input = (struct npugraph_input){r->x, sizeof(r->x)};
    r->replay.inputs = &r->input;
    r->replay.n_inputs = 1;
    if (npugraph_graph_register(r->client, NULL, graph_text, NULL, 0, NULL, 0, &r->replay.graph, &err) != 0 ||
        npugraph_graph_capture(r->client, r->replay.graph, NULL, 0, false, NULL, &err) != 0 ||
        npugraph_replay_stream_open(r->client, &r->stream, &err) != 0)
        bench_fail("%s", err.message);
}

static void close_replayer(struct replayer *r)
{
    npugraph_result_free(r->result);
    r->result = NULL;
    npugraph_replay_stream_close(r->stream);
    npugraph_disconnect(r->client);
    if (live_stop(&r->live) != 0)
        bench_fail("the daemon did not stop cleanly");
}

static void turn(struct replayer *r, bool counts)
{
    struct npugraph_error err = {0};

    for (int i = 0; i < TURN; i++) {
        ngd_nsec_t begin = ngd_now();

        if (npugraph_replay_stream_run(r->stream, &r->replay, &r->result, &err) != 0)
            bench_fail("replay: %s", err.message);
        if (counts)
            samples_add(&r->all, (double)(ngd_now() - begin));
    }
}

int main(int argc, char **argv)
{
    int64_t rounds = 8, each = 2000;
    const char *other = NULL, *poll = "50us";
    bool quick = false;
    const struct bench_option options[] = {{"other", NULL, &other, NULL},
                                           {"poll", NULL, &poll, NULL},
                                           {"rounds", &rounds, NULL, NULL},
                                           {"each", &each, NULL, NULL},
                                           {"quick", NULL, NULL, &quick}};
    struct replayer all[KINDS] = {{.name = "Unix socket"},
                                  {.name = "Unix socket, guarded"},
                                  {.name = "loopback TCP, guarded"},
                                  {.name = "Unix socket, guarded, polled"},
                                  {.name = "loopback TCP, guarded, polled"},
                                  {.name = "loopback TCP, a daemon without a front"}};
    char *dir;

    setenv("NPUGRAPH_LOCAL_TRANSPORT", "off", 1); /* it measures gRPC */
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        rounds = 2, each = 400;
    dir = bench_dir_make();
    for (int64_t k = 0; k < rounds; k++) {
        int n = other ? KINDS : KINDS - 1;

        open_replayer(&all[0], dir, false, "none", NULL, NULL);
        open_replayer(&all[1], dir, false, "all", NULL, NULL);
        open_replayer(&all[2], dir, true, NULL, NULL, NULL);
        open_replayer(&all[3], dir, false, "all", poll, NULL);
        open_replayer(&all[4], dir, true, NULL, poll, NULL);
        if (other)
            open_replayer(&all[5], dir, true, NULL, NULL, other);
        for (int64_t i = 0; i < each / TURN; i++)
            for (int j = 0; j < n; j++)
                turn(&all[j], i > 2);
        for (int j = 0; j < n; j++)
            close_replayer(&all[j]);
    }
    for (int j = 0; j < KINDS; j++) {
        if (all[j].all.n > 0)
            samples_print(&all[j].all, all[j].name, "us", 1e-3);
        samples_free(&all[j].all);
    }
    bench_dir_remove(dir);
    return 0;
}
