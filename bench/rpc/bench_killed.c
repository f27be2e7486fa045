/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients are killed at random moments while others go on. The daemon's counters must come back to where they were, and
 * the results of the other clients must stay right and their latency the same.
 *
 * Starting and killing processes takes CPU time of its own, so the latency is compared with rounds in which the same
 * processes are started and killed but use another daemon.
 */
#include "bench/rpc/crowd.h"
#include "client/hf/npugraph_hf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEADY     2 /* clients that go on, in the first seats */
#define VICTIMS    8 /* that are alive at the same time */
#define LIFE_MAX   (500 * NGD_MSEC)
#define EVERY      (5 * NGD_MSEC)
#define BUFFER     (1u << 20)
#define PROMPT     40
#define CHAIN      64
#define BACK_AFTER (10 * NGD_SEC) /* what is not freed by then counts as leaked */

/* ---- clients ---- */

static void run_steady(struct member *m)
{
    member_replay(m, "steady", crowd_products_text("steady", 4, 256), EVERY);
}

/* Holds one object of each kind and uses them until it is killed. */
static void run_victim(struct member *m)
{
    struct npugraph_client *client = member_connect(m, "victim");
    struct npugraph_sequence *seq = NULL;
    struct npugraph_error err = {0};
    static uint8_t bytes[BUFFER];
    int32_t prompt[PROMPT];
    char *text = crowd_chain_text("victim", CHAIN);
    struct replayer r;
    uint64_t buffer;

    for (int k = 0; k < PROMPT; k++)
        prompt[k] = (int32_t)((m->arg * 31 + k * 17 + 3) % 500);
    replayer_open(&r, client, text);
    if (npugraph_buffer_alloc(client, NULL, BUFFER, "victim", &buffer, &err) != 0 ||
        npugraph_sequence_open(client, "tiny", prompt, PROMPT, NULL, &seq, NULL, &err) != 0)
        bench_fail("victim: %s", err.message);
    member_ready(m);
    for (;;) {
        const struct npugraph_step_params ask = {.forced = 7};
        struct npugraph_step s;
        bool wrong = false;

        replayer_run(&r, &wrong);
        if (npugraph_sequence_step(seq, &ask, &s, &err) != 0 ||
            npugraph_buffer_write(client, buffer, 0, bytes, BUFFER, &err) != 0)
            bench_fail("victim: %s", err.message);
        atomic_fetch_add(&m->seat->done, 1);
        atomic_fetch_add(&m->seat->wrong, wrong);
    }
}

static const struct crowd_role roles[] = {{"steady", run_steady}, {"victim", run_victim}, {NULL, NULL}};

/* ---- counters ---- */

static const char *const counters[] = {
    "sessions.open",           "sequences.open", "kv.blocks_used",     "devices.0.general_bytes", "devices.0.kv_bytes",
    "devices.0.weights_bytes", "queue_depth",    "requests.in_flight", "sequences.waiting"};
#define COUNTERS (sizeof(counters) / sizeof(counters[0]))

static void read_counters(struct npugraph_client *client, double *values)
{
    for (size_t i = 0; i < COUNTERS; i++)
        values[i] = crowd_stat(client, counters[i]);
}

/* Returns how long it takes until all counters are back to `before`. Fails if that does not happen. */
static ngd_nsec_t wait_for_counters(struct npugraph_client *client, const double *before)
{
    const ngd_nsec_t begin = ngd_now();
    double now[COUNTERS];

    for (;;) {
        read_counters(client, now);
        if (memcmp(now, before, sizeof(now)) == 0)
            return ngd_now() - begin;
        if (ngd_now() - begin > BACK_AFTER)
            break;
        crowd_pause(5 * NGD_MSEC);
    }
    for (size_t i = 0; i < COUNTERS; i++)
        if (now[i] != before[i])
            fprintf(stderr, "%s was %.0f and is %.0f\n", counters[i], before[i], now[i]);
    bench_fail("counters do not return to their start");
}

/* ---- rounds ---- */

struct result {
    struct samples latency[2]; /* of the steady clients: with victims on the other daemon, and on their own */
    uint64_t killed, worked, wrong;
    struct samples back;
};

/* Starts and kills clients of c for the time t. */
static void kill_many(struct crowd *c, struct result *res, bool own, ngd_nsec_t t)
{
    const ngd_nsec_t end = ngd_now() + t;
    ngd_nsec_t dies[VICTIMS];

    for (int i = 0; i < VICTIMS; i++)
        dies[i] = 0;
    while (ngd_now() < end) {
        for (int i = 0; i < VICTIMS; i++) {
            const int seat = STEADY + i;

            if (ngd_now() < dies[i])
                continue;
            if (own && c->pids[seat] != 0) {
                res->killed++;
                res->worked += atomic_load(&c->board->seats[seat].done) > 0;
                res->wrong += atomic_load(&c->board->seats[seat].wrong);
            }
            crowd_kill(c, seat);
            crowd_start(c, seat, "victim", 0, rand() % 1000);
            dies[i] = ngd_now() + rand() % LIFE_MAX;
        }
        crowd_pause(2 * NGD_MSEC);
    }
    for (int i = 0; i < VICTIMS; i++)
        crowd_kill(c, STEADY + i);
}

static void run_round(struct crowd *crowds, struct npugraph_client *client, struct result *res, ngd_nsec_t t)
{
    double before[COUNTERS];

    read_counters(client, before);
    for (int own = 0; own < 2; own++) {
        crowd_work(&crowds[1], STEADY, 100 * NGD_MSEC, 0);
        kill_many(&crowds[own], res, own != 0, t);
        for (int i = 0; i < STEADY; i++)
            crowd_samples(&crowds[1], i, &res->latency[own]);
    }
    samples_add(&res->back, (double)wait_for_counters(client, before));
}

static void load_tiny(const struct live *live, const char *dir)
{
    struct npugraph_client *client = live_connect(live, "bench_killed");
    struct npugraph_model_params params;
    struct npugraph_error err = {0};

    npugraph_model_params_init(&params);
    params.name = "tiny";
    params.max_context = 4096;
    params.kv_policy = NPUGRAPH_KV_POLICY_PREEMPT;
    if (npugraph_model_load(client, dir, &params, NULL, NULL, &err) != 0)
        bench_fail("load: %s", err.message);
    npugraph_disconnect(client);
}

static void report(struct result *res, const struct crowd *c)
{
    uint64_t wrong = res->wrong;
    double other, own;

    for (int i = 0; i < STEADY; i++)
        wrong += atomic_load(&c->board->seats[i].wrong);
    printf("%" PRIu64 " clients killed, %" PRIu64 " of them after their first step; %" PRIu64
           " wrong results; all counters came back each time\n",
           res->killed, res->worked, wrong);
    samples_print(&res->latency[0], "others, victims of another daemon", "ms", 1e-6);
    samples_print(&res->latency[1], "others, victims of their own daemon", "ms", 1e-6);
    samples_print(&res->back, "counters are back after", "ms", 1e-6);
    other = samples_quantile(&res->latency[0], 0.99);
    own = samples_quantile(&res->latency[1], 0.99);
    printf("  p99 %.2f and %.2f ms; ratio %.2f; wanted <= 1.2\n", other * 1e-6, own * 1e-6, own / other);
    if (wrong)
        bench_fail("results were wrong");
}

int main(int argc, char **argv)
{
    struct bench_shape s = BENCH_SHAPE_TINY;
    int64_t clients = 1000, ms = 4000;
    bool quick = false;
    const struct bench_option options[] = {
        {"clients", &clients, NULL, NULL}, {"ms", &ms, NULL, NULL}, {"quick", NULL, NULL, &quick}};
    struct result res = {{{0}, {0}}, 0, 0, 0, {0}};
    struct npugraph_client *client;
    struct crowd crowds[2]; /* on the other daemon, and on the one that is measured */
    struct live live[2];
    char *dir;

    crowd_member_main(argc, argv, roles);
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        clients = 50, ms = 1000;
    dir = bench_dir_make();
    bench_checkpoint_write(dir, &s);
    for (int i = 0; i < 2; i++) {
        live_start(&live[i], dir, NULL);
        load_tiny(&live[i], dir);
        crowd_open(&crowds[i], live[i].address);
    }
    for (int i = 0; i < STEADY; i++)
        crowd_start(&crowds[1], i, "steady", 0, 0);
    crowd_wait_ready(&crowds[1], STEADY);
    client = live_connect(&live[1], "bench_killed");
    srand(1);
    while (res.killed < (uint64_t)clients)
        run_round(crowds, client, &res, ms * NGD_MSEC);
    report(&res, &crowds[1]);
    npugraph_disconnect(client);
    for (int i = 0; i < 2; i++) {
        crowd_close(&crowds[i]);
        samples_free(&res.latency[i]);
    }
    samples_free(&res.back);
    bench_dir_remove(dir);
    return (live_stop(&live[0]) != 0) | (live_stop(&live[1]) != 0);
}
