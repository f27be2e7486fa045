/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation: worlds (world.h) on virtual time, each a seed and a process of its own.
 *
 *     sim [--seconds N] [--seed S] [--worlds N] [--jobs N]    as many as there is time for, from seed S on
 *     sim --one S                                             one again, and what it was
 *
 * Now and then a world is run twice: its schedule must be the same. Ends with "N passed, N failed".
 * scripts/campaign sim calls it. What it simulates, and what not: fibers.h.
 */
#include "tests/campaign/sim/world.h"
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 64
#define TWICE    32  /* one of so many worlds is run twice */
#define LIMIT    200 /* seconds of CPU time of a world: there is a loop that switches nothing */

struct result {
    uint64_t hash, switches, n_clients;
    int64_t time;
    struct sim_counts counts;
    struct sim_device_counts device;
};

static struct totals {
    uint64_t passed, failed, twice;
    double client_hours;
    struct result sum;
} totals;

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- one world ---------------------------------------------------------------------------------------- */

static void draw_schedule(uint64_t seed, struct sim_schedule *s)
{
    static const uint32_t preempt[] = {0, 2, 16, 128, 512}, stall[] = {0, 0, 4, 64};
    static const ngd_nsec_t tick[] = {0, 100, 2000, 10000};

    *s = (struct sim_schedule){
        .preempt = preempt[seed % 5],
        .stall = stall[seed / 5 % 4],
        .stall_most = seed / 20 % 2 ? 20 * NGD_MSEC : NGD_MSEC,
        .tick = tick[seed / 40 % 4],
        .by_rank = seed / 160 % 3 == 0,
    };
}

/* Where it was; sim_fail is not for signals, but nothing comes after it. */
static void on_alarm(int number)
{
    (void)number;
    sim_fail("%d seconds of CPU time, %" PRIu64 " requests, %" PRIu64 " switches", LIMIT, world.counts.requests,
             sim_switches());
}

static void run_world(uint64_t seed, struct result *r)
{
    const struct itimerval limit = {.it_value.tv_sec = LIMIT};
    struct sim_schedule schedule;

    signal(SIGPROF, on_alarm);
    setitimer(ITIMER_PROF, &limit, NULL); /* a busy machine, or a process that was stopped, is no failure */
    draw_schedule(seed, &schedule);
    sim_run(seed, &schedule, sim_world_run, NULL);
    r->hash = sim_hash();
    r->switches = sim_switches();
    r->n_clients = world.n_clients + sim_talks_count();
    r->time = world.ends;
    r->counts = world.counts;
    r->device = sim_device_counts;
}

static void print_result(const struct result *r)
{
    const struct sim_counts *n = &r->counts;

    printf("%" PRIu64 " clients, %.2f hours, %" PRIu64 " sessions, %" PRIu64 " requests: %" PRIu64 " ok (%" PRIu64
           " together), %" PRIu64 " refused (%" PRIu64 " draining), %" PRIu64 " cancelled, %" PRIu64 " late, %" PRIu64
           " stopped, %" PRIu64 " failed with the device, %" PRIu64 " by their data; %" PRIu64
           " steps of sequences; longest wait %.1f s\n",
           r->n_clients, (double)r->time / 3600e9, n->sessions, n->requests, n->ok, n->together, n->refused, n->drained,
           n->cancelled, n->late, n->stopped, n->faults, n->bad_data, n->steps, (double)n->longest_wait / 1e9);
    printf("%" PRIu64 " launches, %" PRIu64 " faults, %" PRIu64 " losses, %" PRIu64 " stopped; %" PRIu64
           " switches; hash %016" PRIx64 "\n",
           r->device.launches, r->device.faults, r->device.losses, r->device.stopped, r->switches, r->hash);
}

static int run_one(uint64_t seed)
{
    struct result r;

    run_world(seed, &r);
    print_result(&r);
    return 0;
}

/* ---- many --------------------------------------------------------------------------------------------- */

struct job {
    pid_t pid; /* 0: none */
    uint64_t seed;
    int out, said;
    bool again;
    uint64_t hash; /* with again: of the first time */
};

static void start(struct job *job, uint64_t seed, bool again)
{
    int out[2], said[2];

    fflush(stdout);
    if (pipe(out) || pipe(said)) {
        perror("pipe");
        exit(2);
    }
    job->pid = fork();
    if (job->pid == 0) {
        static struct result r;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(said[1], STDOUT_FILENO);
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO); /* faults of devices are logged */
        run_world(seed, &r);
        fflush(stdout);
        _exit(write(out[1], &r, sizeof(r)) == sizeof(r) ? 0 : 4);
    }
    close(out[1]);
    close(said[1]);
    job->seed = seed;
    job->again = again;
    job->out = out[0];
    job->said = said[0];
}

static void add(const struct result *r)
{
    uint64_t *to = (uint64_t *)(void *)&totals.sum.counts;
    const uint64_t *from = (const uint64_t *)(const void *)&r->counts;

    for (size_t i = 0; i < offsetof(struct sim_counts, longest_wait) / sizeof(*to); i++)
        to[i] += from[i];
    totals.sum.n_clients += r->n_clients;
    totals.sum.switches += r->switches;
    totals.sum.time += r->time;
    totals.sum.hash = totals.sum.hash * 31 + r->hash;
    if (r->counts.longest_wait > totals.sum.counts.longest_wait)
        totals.sum.counts.longest_wait = r->counts.longest_wait;
    totals.sum.device.launches += r->device.launches;
    totals.sum.device.faults += r->device.faults;
    totals.sum.device.losses += r->device.losses;
    totals.sum.device.stopped += r->device.stopped;
    totals.client_hours += (double)r->n_clients * ((double)r->time / 3600e9);
}

static void show_failure(const struct job *job, int status)
{
    static char text[16384];
    ssize_t n = read(job->said, text, sizeof(text) - 1);

    totals.failed++;
    printf("--one %" PRIu64 " failed", job->seed);
    if (WIFSIGNALED(status))
        printf(", by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    printf("\n%.*s\n", (int)(n > 0 ? n : 0), text);
    fflush(stdout);
}

/* True: the same world is to be run again. */
static bool finish(struct job *job, int status)
{
    struct result r;
    const bool whole = read(job->out, &r, sizeof(r)) == sizeof(r);
    bool again = false;

    if (status || !whole) {
        show_failure(job, status);
    } else if (job->again) {
        totals.twice++;
        if (r.hash != job->hash)
            printf("--one %" PRIu64 ": its schedule is another one the second time\n", job->seed);
        totals.failed += r.hash != job->hash;
    } else {
        totals.passed++;
        add(&r);
        again = job->seed % TWICE == 0;
        job->hash = r.hash;
    }
    close(job->out);
    close(job->said);
    job->pid = 0;
    return again;
}

static void await(struct job *jobs, uint32_t n)
{
    int status;
    const pid_t pid = wait(&status);

    for (uint32_t i = 0; i < n; i++)
        if (jobs[i].pid == pid && pid > 0 && finish(&jobs[i], status))
            start(&jobs[i], jobs[i].seed, true);
}

static bool any(const struct job *jobs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (jobs[i].pid)
            return true;
    return false;
}

static void run_many(uint64_t seed, double time, uint64_t worlds, uint32_t n)
{
    static struct job jobs[JOBS_MAX];
    const double end = seconds() + time;
    uint64_t started = 0;

    while (started < worlds && seconds() < end) {
        uint32_t i = 0;

        while (i < n && jobs[i].pid)
            i++;
        if (i == n)
            await(jobs, n);
        else
            start(&jobs[i], seed + started++, false);
    }
    while (any(jobs, n))
        await(jobs, n);
}

static uint64_t number_after(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 0);
    return otherwise;
}

int main(int argc, char **argv)
{
    const uint64_t one = number_after(argc, argv, "--one", UINT64_MAX), seed = number_after(argc, argv, "--seed", 1);
    const uint64_t jobs = number_after(argc, argv, "--jobs", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    const double begin = seconds();

#if defined(__SANITIZE_THREAD__)
    printf("skip - simulation: ThreadSanitizer does not know its fibers\n");
    return 77;
#endif
    if (one != UINT64_MAX)
        return run_one(one);
    run_many(seed, (double)number_after(argc, argv, "--seconds", 60), number_after(argc, argv, "--worlds", UINT64_MAX),
             jobs > JOBS_MAX ? JOBS_MAX : (uint32_t)jobs);
    print_result(&totals.sum);
    printf("%" PRIu64 " worlds from seed %" PRIu64 " in %.0f s, %.0f client-hours; %" PRIu64 " run twice\n",
           totals.passed, seed, seconds() - begin, totals.client_hours, totals.twice);
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", totals.passed, totals.failed);
    return totals.failed ? 1 : 0;
}
