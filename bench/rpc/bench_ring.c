/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a ring saves: a replay of one node over the ring and over a stream of gRPC, by one thread that waits for each
 * answer, in short turns, so that other load on the machine affects both; with client and daemon where the kernel puts
 * them, on a CPU each, and on one CPU. Then replays per second with 16 lanes in flight, written by hand into the ring.
 */
#include "base/relax.h"
#include "base/ring.h"
#include "bench/rpc/bench_rpc.h"
#include "client/lib/client_int.h"
#include "client/lib/local.h"
#include "proto/npugraph.pb-c.h"
#include "tests/models/live.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ELEMENTS 16
#define TURN     50

static const char graph_text[] = "npugraph 1\ngraph \"bench.neg\" {\n  input %x : f32[16]\n  %y = aten.neg(%x)\n"
                                 "  return \"y\" = %y\n}\n";

static void check_rc(int rc, const struct npugraph_error *err)
{
    if (rc != 0)
        bench_fail("%s", err->message);
}

/* ---- one at a time --------------------------------------------------------------------------------------- */

struct way {
    const char *name;
    struct npugraph_client *client;
    struct npugraph_replay_stream *stream;
    struct npugraph_replay replay;
    struct npugraph_result *result;
    struct samples times;
};

static float values[ELEMENTS] = {1, 2, 3};
static const struct npugraph_input input = {values, sizeof(values)};

static void open_way(struct way *w, const struct live *live, const char *name, bool ring)
{
    struct npugraph_connect_params params;
    struct npugraph_error err = {0};

    npugraph_connect_params_init(&params);
    params.address = live->address;
    params.no_local_transport = !ring;
    *w = (struct way){.name = name, .replay = {.inputs = &input, .n_inputs = 1}};
    check_rc(npugraph_connect(&params, &w->client, &err), &err);
    check_rc(npugraph_graph_register(w->client, NULL, graph_text, NULL, 0, NULL, 0, &w->replay.graph, &err), &err);
    check_rc(npugraph_replay_stream_open(w->client, &w->stream, &err), &err);
    if (npugraph_has_ring(w->client) != ring)
        bench_fail("the daemon offers no ring");
}

static void close_way(struct way *w)
{
    npugraph_result_free(w->result);
    npugraph_replay_stream_close(w->stream);
    npugraph_disconnect(w->client);
}

static void take_turn(struct way *w)
{
    struct npugraph_error err = {0};

    for (int i = 0; i < TURN; i++) {
        const ngd_nsec_t begin = ngd_now();

        check_rc(npugraph_replay_stream_run(w->stream, &w->replay, &w->result, &err), &err);
        if (i >= TURN / 5)
            samples_add(&w->times, (double)(ngd_now() - begin));
    }
}

/* Binds this thread and the daemon's threads to a CPU each, or to all. */
static void place(const struct live *live, int own, int daemon)
{
    char path[64];
    cpu_set_t set;
    struct dirent *entry;
    DIR *tasks;

    for (int who = 0; who < 2; who++) {
        const int cpu = who == 0 ? own : daemon;

        CPU_ZERO(&set);
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (cpu < 0 || i == cpu)
                CPU_SET(i, &set);
        if (who == 0) {
            sched_setaffinity(0, sizeof(set), &set);
            continue;
        }
        snprintf(path, sizeof(path), "/proc/%d/task", (int)live->pid);
        tasks = opendir(path);
        while (tasks != NULL && (entry = readdir(tasks)) != NULL)
            if (entry->d_name[0] != '.')
                sched_setaffinity(atoi(entry->d_name), sizeof(set), &set);
        closedir(tasks);
    }
}

static void compare(const struct live *live, int64_t rounds)
{
    static const struct {
        const char *name;
        int own, daemon;
    } places[] = {{"where the kernel puts them", -1, -1}, {"on a CPU each", 0, 1}, {"on one CPU", 0, 0}};
    struct way ways[2];

    for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
        open_way(&ways[0], live, "replay over a stream of gRPC", false);
        open_way(&ways[1], live, "replay over the ring", true);
        place(live, places[p].own, places[p].daemon);
        take_turn(&ways[0]);
        take_turn(&ways[1]);
        for (int w = 0; w < 2; w++)
            ways[w].times.n = 0;
        for (int64_t i = 0; i < rounds; i++)
            for (int w = 0; w < 2; w++)
                take_turn(&ways[w]);
        place(live, -1, -1);
        printf("%s\n", places[p].name);
        for (int w = 0; w < 2; w++)
            samples_print(&ways[w].times, ways[w].name, "us", 1e-3);
        printf("  ratio of medians %.1f\n",
               samples_quantile(&ways[0].times, 0.5) / samples_quantile(&ways[1].times, 0.5));
        for (int w = 0; w < 2; w++) {
            samples_free(&ways[w].times);
            close_way(&ways[w]);
        }
    }
}

/* ---- sixteen in flight ----------------------------------------------------------------------------------- */

/* Fills each lane's request, once: only its number changes. */
static void fill_lanes(struct ngd_ring_words *words, uint64_t graph)
{
    Npugraph__V1__ReplayRequest req = NPUGRAPH__V1__REPLAY_REQUEST__INIT;
    ProtobufCBinaryData data = {sizeof(values), (uint8_t *)values};

    req.graph = graph;
    req.inputs = &data;
    req.n_inputs = 1;
    for (uint32_t i = 0; i < NGD_RING_LANES; i++) {
        words->lanes[i].n_request = (uint32_t)npugraph__v1__replay_request__pack(&req, words->requests[i]);
        words->lanes[i].method = NGD_RING_REPLAY;
        words->lanes[i].cpu = UINT32_MAX;
    }
}

static void submit_lanes(struct ngd_ring_words *words, int event, uint32_t bits)
{
    const uint64_t one = 1;

    for (uint32_t i = 0; i < NGD_RING_LANES; i++)
        if (bits >> i & 1)
            words->lanes[i].number++;
    atomic_fetch_or(&words->pending, bits);
    if (atomic_load(&words->sleeping) && write(event, &one, sizeof(one)) < 0)
        bench_fail("the daemon cannot be woken");
}

static uint32_t answered_lanes(struct ngd_ring_words *words)
{
    uint32_t bits = 0;

    for (uint32_t i = 0; i < NGD_RING_LANES; i++)
        if (atomic_load_explicit(&words->lanes[i].answered, memory_order_acquire) == words->lanes[i].number)
            bits |= words->lanes[i].kind == NGD_RING_ANSWER ? 1u << i : 0;
    return bits;
}

static void flood(const struct live *live, int64_t rounds)
{
    Npugraph__V1__LocalRequest req = NPUGRAPH__V1__LOCAL_REQUEST__INIT;
    Npugraph__V1__OpenRing open = NPUGRAPH__V1__OPEN_RING__INIT;
    struct npugraph_client *client = live_connect(live, "bench_ring");
    Npugraph__V1__LocalResponse *answer;
    struct npugraph_error err = {0};
    struct ngd_ring_words *words;
    struct samples rates = {0};
    uint64_t graph;
    int socket, fds[NPUGRAPH__LOCAL_FDS];

    req.ring = &open;
    check_rc(npugraph_graph_register(client, NULL, graph_text, NULL, 0, NULL, 0, &graph, &err), &err);
    check_rc(npugraph__local_ask(npugraph__client_session(client), 0, &req, -1, &socket, fds, &answer, &err), &err);
    npugraph__v1__local_response__free_unpacked(answer, NULL);
    words = mmap(NULL, sizeof(*words), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    if (words == MAP_FAILED)
        bench_fail("the ring cannot be mapped");
    fill_lanes(words, graph);
    place(live, 0, 1);
    submit_lanes(words, fds[1], (1u << NGD_RING_LANES) - 1);
    for (int64_t i = 0; i < rounds; i++) {
        const ngd_nsec_t begin = ngd_now();
        uint64_t n = 0;
        uint32_t turn = 0;

        while (ngd_now() - begin < 100 * NGD_MSEC) {
            const uint32_t bits = answered_lanes(words);

            n += (uint64_t)__builtin_popcount(bits);
            if (bits != 0)
                submit_lanes(words, fds[1], bits);
            else
                ngd_relax(++turn);
        }
        samples_add(&rates, (double)n / ((double)(ngd_now() - begin) * 1e-9));
    }
    place(live, -1, -1);
    samples_print(&rates, "16 in flight, on a CPU each", "/s", 1);
    munmap(words, sizeof(*words));
    for (int i = 0; i < NPUGRAPH__LOCAL_FDS; i++)
        close(fds[i]);
    close(socket);
    npugraph_disconnect(client);
    samples_free(&rates);
}

int main(int argc, char **argv)
{
    int64_t rounds = 100;
    bool quick = false;
    const struct bench_option options[] = {{"rounds", &rounds, NULL, NULL}, {"quick", NULL, NULL, &quick}};
    struct live live;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        rounds = 4;
    live_start(&live, source_dir(), NULL);
    compare(&live, rounds);
    flood(&live, rounds > 30 ? 30 : rounds);
    if (live_stop(&live) != 0)
        bench_fail("the daemon did not stop cleanly");
    return 0;
}
