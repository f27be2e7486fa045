/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to share a call of the host device between threads. The parts of a call wait for a fixed time in all,
 * divided evenly. Single calls are timed. Each line gives:
 *
 *      median, p99      nanoseconds of a call beyond its work divided by the threads
 *      slow             calls of a thousand that take more than 3 times the median
 *      their            microseconds of a slow call, the mean
 *      came             threads that ran a part of a call, the mean
 *      same CPU         calls of a thousand with two threads that ran parts on one CPU, and the same of slow calls
 *
 *      bench_team [THREADS...]
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/clock.h"
#include "bench/bench_device.h"
#include "devices/host/kernels/kernel.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 256
#define ROUNDS      31
#define CALLS       500 /* of a round */
#define SLOW        3.0 /* medians */

struct work {
    uint32_t ns; /* of a call */
    struct ngd_host_call calls[CALLS];
};

/* By thread and call: 1 + the CPU on which it ran its last part of the call; 0: it ran none. Only the thread writes its
 * row, and the rows are read between rounds, so that the record costs no cache misses. */
static uint16_t ran[MAX_THREADS][CALLS];

struct tally {
    double took[ROUNDS * CALLS];
    uint16_t came[ROUNDS * CALLS];
    bool same_cpu[ROUNDS * CALLS];
};

/* Each part takes its share of the call's time. */
static void wait_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct work *work = call->params;
    const ngd_nsec_t length = work->ns / parts;

    (void)run;
    (void)part;
    if (length)
        for (const ngd_nsec_t end = ngd_now() + length; ngd_now() < end;)
            ;
    ran[ngd_host_thread][call - work->calls] = (uint16_t)(sched_getcpu() + 1);
}

static bool cpu_came_before(uint32_t thread, int call)
{
    for (uint32_t t = 0; t < thread; t++)
        if (ran[t][call] == ran[thread][call])
            return true;
    return false;
}

/* Looks at who ran the calls of a round, of which at most `threads` threads have a row. */
static void look_at_round(struct tally *all, int round, uint32_t threads)
{
    for (int c = 0; c < CALLS; c++) {
        const int i = round * CALLS + c;

        for (uint32_t t = 0; t < threads; t++) {
            if (!ran[t][c])
                continue;
            all->came[i]++;
            all->same_cpu[i] |= cpu_came_before(t, c);
        }
    }
}

static void time_round(struct ngd_team *team, struct work *work, uint32_t parts, double *took)
{
    struct ngd_host_run run = {0};

    ngd_team_begin(team);
    ngd_team_share(team, &work->calls[0], &run, parts); /* the helpers wake up */
    memset(ran, 0, sizeof(ran));
    for (int c = 0; c < CALLS; c++) {
        const ngd_nsec_t start = ngd_now();

        ngd_team_share(team, &work->calls[c], &run, parts);
        took[c] = (double)(ngd_now() - start);
    }
    ngd_team_end(team);
}

static void print_tally(const struct tally *all, double ideal)
{
    static double sorted[ROUNDS * CALLS];
    const int n = ROUNDS * CALLS;
    double median, slow_ns = 0, came = 0;
    int slow = 0, same = 0, slow_same = 0;

    memcpy(sorted, all->took, sizeof(sorted));
    median = bench_median(sorted, n);
    for (int i = 0; i < n; i++) {
        const bool is_slow = all->took[i] > SLOW * median;

        slow += is_slow;
        slow_ns += is_slow ? all->took[i] : 0;
        came += all->came[i];
        same += all->same_cpu[i];
        slow_same += is_slow && all->same_cpu[i];
    }
    printf(" %8.0f %8.0f %7.1f %9.1f %6.1f %6.0f %6.0f\n", median - ideal, sorted[n / 100 * 99] - ideal,
           1000.0 * slow / n, slow ? slow_ns / slow / 1000 : 0, came / n, 1000.0 * same / n,
           slow ? 1000.0 * slow_same / slow : 0);
}

static void measure(struct ngd_team *team, uint32_t ns, uint32_t parts)
{
    static struct work work;
    static struct tally all;

    work.ns = ns;
    for (int c = 0; c < CALLS; c++)
        work.calls[c] = (struct ngd_host_call){.fn = wait_part, .params = &work};
    memset(&all, 0, sizeof(all));
    for (int i = 0; i < ROUNDS; i++) {
        time_round(team, &work, parts, all.took + (size_t)i * CALLS);
        look_at_round(&all, i, ngd_team_threads(team));
    }
    printf("%7u %6u %5u", ngd_team_threads(team), parts, ns / 1000);
    print_tally(&all, (double)ns / ngd_team_threads(team));
}

int main(int argc, char **argv)
{
    static const uint32_t works[] = {0, 20000, 200000};

    printf("threads  parts    us   median      p99    slow     their   came  same CPU, slow\n");
    for (int a = 1; a < argc || a == 1; a++) {
        const uint32_t threads = a < argc ? (uint32_t)strtoul(argv[a], NULL, 10) : 2;
        struct ngd_team *team;

        if (threads < 1 || threads > MAX_THREADS || ngd_team_create(threads, "bench", &team))
            bench_fail("no team of %u threads", threads);
        for (uint32_t parts = threads; parts <= threads * 4; parts *= 4)
            for (size_t w = 0; w < sizeof(works) / sizeof(*works); w++)
                measure(team, works[w], parts);
        ngd_team_destroy(team);
    }
    return 0;
}
