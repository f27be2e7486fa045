/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How device time is divided between identities: a light client beside a flooding one of the same weight, and three
 * backlogged clients with weights 1:2:4. On a Unix socket an identity is a user, so this program needs root: its
 * clients run as users, which need not exist.
 */
#include "bench/rpc/crowd.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define USER    61001 /* the user id of the first client */
#define THREADS 16    /* of a flooding client, each with a replay in flight */
#define EVERY   (20 * NGD_MSEC)
#define SIZE    384 /* of the matrix products; the chain takes some milliseconds */
#define CHAIN   12

/* ---- clients ---- */

static void *flood(void *arg)
{
    struct member *m = arg;
    struct npugraph_client *client = member_connect(m, "flood");
    char *text = crowd_products_text("products", CHAIN, SIZE);
    struct replayer r;

    replayer_open(&r, client, text);
    free(text);
    atomic_fetch_add(&m->seat->ready, 1);
    while (member_may_work(m)) {
        bool wrong = false;

        replayer_run(&r, &wrong);
        atomic_fetch_add(&m->seat->done, 1);
        atomic_fetch_add(&m->seat->wrong, wrong);
    }
    replayer_close(&r);
    npugraph_disconnect(client);
    return NULL;
}

/* m->arg is the number of replays at a time. */
static void run_flood(struct member *m)
{
    pthread_t threads[THREADS];

    for (int64_t i = 0; i < m->arg; i++)
        if (pthread_create(&threads[i], NULL, flood, m) != 0)
            bench_fail("a thread cannot be started");
    for (int64_t i = 0; i < m->arg; i++)
        pthread_join(threads[i], NULL);
}

static void run_light(struct member *m)
{
    member_replay(m, "light", crowd_products_text("products", CHAIN, SIZE), EVERY);
}

static const struct crowd_role roles[] = {{"flood", run_flood}, {"light", run_light}, {NULL, NULL}};

/* ---- the light client ---- */

static void run_light_beside_flood(const struct live *live, int64_t rounds, ngd_nsec_t count)
{
    struct samples alone = {0}, beside = {0};
    double a, b;
    struct crowd c;

    crowd_open(&c, live->address);
    crowd_start(&c, 0, "light", USER, 0);
    crowd_start(&c, 1, "flood", USER + 1, THREADS);
    crowd_wait_ready(&c, 2);
    for (int64_t i = 0; i < rounds; i++) {
        crowd_work(&c, 1, 200 * NGD_MSEC, count);
        crowd_samples(&c, 0, &alone);
        crowd_work(&c, 2, 200 * NGD_MSEC, count);
        crowd_samples(&c, 0, &beside);
    }
    if (atomic_load(&c.board->seats[0].wrong) || atomic_load(&c.board->seats[1].wrong))
        bench_fail("a client got wrong results");
    crowd_close(&c);
    printf("a light client, a replay each %d ms, and one of the same weight with %d replays waiting at all times\n",
           (int)(EVERY / NGD_MSEC), THREADS);
    samples_print(&alone, "  alone", "ms", 1e-6);
    samples_print(&beside, "  beside the flood", "ms", 1e-6);
    a = samples_quantile(&alone, 0.99);
    b = samples_quantile(&beside, 0.99);
    printf("  p99 %.2f ms alone, %.2f ms beside it; ratio %.2f; wanted <= 2\n", a * 1e-6, b * 1e-6, b / a);
    fflush(stdout);
    samples_free(&alone);
    samples_free(&beside);
}

/* ---- weights ---- */

static double device_seconds(struct npugraph_client *client, unsigned user)
{
    json_t *root = live_stats(client), *share;
    char name[32];
    double seconds = -1;
    size_t i;

    snprintf(name, sizeof(name), "uid:%u", user);
    json_array_foreach(json_object_get(root, "shares"), i,
                       share) if (strcmp(json_string_value(json_object_get(share, "identity")), name) == 0) seconds =
        json_number_value(json_object_get(share, "device_s"));
    json_decref(root);
    if (seconds < 0)
        bench_fail("the daemon does not know %s", name);
    return seconds;
}

static void run_weights(const struct live *live, ngd_nsec_t count)
{
    static const int weights[] = {1, 2, 4};
    struct npugraph_client *client = live_connect(live, "bench_fair");
    double used[3], all = 0, worst = 0;
    struct crowd c;

    crowd_open(&c, live->address);
    for (int i = 0; i < 3; i++)
        crowd_start(&c, i, "flood", USER + 2 + (unsigned)i, 4);
    crowd_wait_ready(&c, 3);
    crowd_work(&c, 3, NGD_SEC, 0);
    for (int i = 0; i < 3; i++)
        used[i] = device_seconds(client, USER + 2 + (unsigned)i);
    crowd_pause(count);
    for (int i = 0; i < 3; i++) {
        used[i] = device_seconds(client, USER + 2 + (unsigned)i) - used[i];
        all += used[i];
    }
    crowd_close(&c);
    npugraph_disconnect(client);
    printf("three backlogged identities of weights 1:2:4, %.0f s\n", (double)count / (double)NGD_SEC);
    for (int i = 0; i < 3; i++) {
        double off = used[i] / all * 7 / weights[i] - 1;

        printf("  weight %d: %.3f s of device time, %.2f %%, off by %+.2f %%\n", weights[i], used[i],
               100 * used[i] / all, 100 * off);
        worst = off < 0 ? (-off > worst ? -off : worst) : off > worst ? off : worst;
    }
    printf("  worst %.2f %%; wanted <= 3 %%\n", 100 * worst);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int64_t rounds = 5, ms = 4000, seconds = 30;
    const char *only = "all";
    bool quick = false;
    const struct bench_option options[] = {{"rounds", &rounds, NULL, NULL},
                                           {"ms", &ms, NULL, NULL},
                                           {"seconds", &seconds, NULL, NULL},
                                           {"only", NULL, &only, NULL},
                                           {"quick", NULL, NULL, &quick}};
    char weights[3][32], *dir;
    const char *extra[] = {"--socket-mode", "666",      "--weight", weights[0], "--weight",
                           weights[1],      "--weight", weights[2], NULL};
    struct live live;

    crowd_member_main(argc, argv, roles);
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (geteuid() != 0) {
        fprintf(stderr, "bench_fair needs root, since its clients run as several users\n");
        return 77;
    }
    if (quick)
        rounds = 2, ms = 2000, seconds = 5;
    for (int i = 0; i < 3; i++)
        snprintf(weights[i], sizeof(weights[i]), "uid:%d=%d", USER + 2 + i, 100 << i);
    dir = bench_dir_make();
    live_start(&live, dir, extra);
    if (chmod(live.dir, 0711) != 0)
        bench_fail("%s: its permissions cannot be changed", live.dir);
    if (strcmp(only, "weights") != 0)
        run_light_beside_flood(&live, rounds, ms * NGD_MSEC);
    if (strcmp(only, "flood") != 0)
        run_weights(&live, seconds * NGD_SEC);
    bench_dir_remove(dir);
    return live_stop(&live) != 0;
}
