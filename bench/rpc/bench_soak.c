/* SPDX-License-Identifier: Apache-2.0 */
/* How the daemon's memory develops over a million replays. */
#include "bench/rpc/crowd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TENTHS  10
#define CLIENTS 2

static void run_replays(struct member *m)
{
    member_replay(m, "soak", crowd_chain_text("soak", 1 + m->number), 0);
}

static const struct crowd_role roles[] = {{"replays", run_replays}, {NULL, NULL}};

static double rss_of(pid_t pid)
{
    unsigned long size, resident;
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    f = fopen(path, "r");
    if (f == NULL || fscanf(f, "%lu %lu", &size, &resident) != 2)
        bench_fail("%s: cannot be read", path);
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static uint64_t done_by_all(const struct crowd *c)
{
    uint64_t n = 0;

    for (int i = 0; i < CLIENTS; i++)
        n += atomic_load(&c->board->seats[i].done);
    return n;
}

int main(int argc, char **argv)
{
    int64_t replays = 1000000;
    bool quick = false;
    const struct bench_option options[] = {{"replays", &replays, NULL, NULL}, {"quick", NULL, NULL, &quick}};
    double rss[TENTHS + 1], most = 0;
    ngd_nsec_t begin;
    struct live live;
    struct crowd c;
    char *dir;

    crowd_member_main(argc, argv, roles);
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (quick)
        replays = 100000;
    dir = bench_dir_make();
    live_start(&live, dir, NULL);
    crowd_open(&c, live.address);
    for (int i = 0; i < CLIENTS; i++)
        crowd_start(&c, i, "replays", 0, 0);
    crowd_wait_ready(&c, CLIENTS);
    begin = ngd_now();
    rss[0] = rss_of(live.pid);
    atomic_store(&c.board->working, CLIENTS);
    for (int i = 1; i <= TENTHS; i++) {
        while (done_by_all(&c) < (uint64_t)(replays / TENTHS * i))
            crowd_pause(5 * NGD_MSEC);
        rss[i] = rss_of(live.pid);
    }
    printf("%" PRId64 " replays in %.1f s, resident memory in MiB at each tenth:", replays,
           (double)(ngd_now() - begin) / (double)NGD_SEC);
    for (int i = 0; i <= TENTHS; i++) {
        printf(" %.2f", rss[i]);
        most = i > 1 && rss[i] - rss[1] > most ? rss[i] - rss[1] : most;
    }
    printf("\n  growth after the first tenth: %.2f MiB at most; wanted <= 1\n", most);
    for (int i = 0; i < CLIENTS; i++)
        if (atomic_load(&c.board->seats[i].wrong))
            bench_fail("client %d got wrong results", i);
    crowd_close(&c);
    bench_dir_remove(dir);
    return live_stop(&live) != 0;
}
