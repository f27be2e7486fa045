/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the team: each part of a call runs once, whichever threads are there to run it. */
#include "devices/host/team.h"
#include "base/log.h"
#include "devices/host/copies.h"
#include "devices/host/host.h"
#include "tests/unit/unit.h"
#include <sched.h>
#include <string.h>
#include <time.h>

#define MAX_PARTS   240
#define MAX_THREADS 32

struct work {
    _Atomic uint32_t runs[MAX_PARTS];
    _Atomic uint32_t total;
    _Atomic uint32_t inside[MAX_THREADS]; /* parts that run as this thread now */
    _Atomic uint32_t helped;
    uint32_t parts, threads, value;
    uint32_t out[MAX_PARTS];
    _Atomic bool open; /* between the call of share and its return */
    bool uneven;       /* some parts take long, or give the CPU away */
    _Atomic bool wrong;
};

/* Makes parts of different lengths, of which some give the CPU to another thread. */
static void dawdle(uint32_t seed)
{
    for (volatile uint32_t i = 0; i < seed % 7 * 100; i++)
        ;
    if (seed % 5 == 0)
        sched_yield();
}

/* Runs a part, and checks everything that a kernel relies on. */
static void part_fn(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    struct work *w = (struct work *)(uintptr_t)call->params;

    (void)run;
    if (!atomic_load(&w->open) || parts != w->parts || part >= parts || ngd_host_thread >= w->threads ||
        atomic_fetch_add(&w->inside[ngd_host_thread], 1) != 0)
        w->wrong = true;
    atomic_fetch_add(&w->runs[part], 1);
    if (w->uneven)
        dawdle(part * 31 + w->value);
    w->out[part] = w->value + part; /* written by the leader before, read by it afterwards */
    if (ngd_host_thread)
        atomic_fetch_add(&w->helped, 1);
    atomic_fetch_add(&w->total, 1);
    atomic_fetch_sub(&w->inside[ngd_host_thread], 1);
}

/* Shares a call, and sets w->wrong unless each part ran once. Asserts nothing, since a lane may run it on a helper. */
static void share_in_lane(struct ngd_team *team, struct work *w, uint32_t parts, uint32_t value)
{
    const struct ngd_host_call call = {.fn = part_fn, .params = w};
    struct ngd_host_run run = {0};

    w->parts = parts;
    w->value = value;
    atomic_store(&w->total, 0);
    for (uint32_t i = 0; i < parts; i++)
        atomic_store(&w->runs[i], 0);
    atomic_store(&w->open, true);
    ngd_team_share(team, &call, &run, parts);
    atomic_store(&w->open, false);
    if (atomic_load(&w->total) != parts)
        w->wrong = true;
    for (uint32_t i = 0; i < parts; i++)
        if (atomic_load(&w->runs[i]) != 1 || w->out[i] != value + i)
            w->wrong = true;
}

static void share_once(struct ngd_team *team, struct work *w, uint32_t parts, uint32_t value)
{
    share_in_lane(team, w, parts, value);
    ck_assert(!w->wrong);
}

static struct ngd_team *team_of(uint32_t threads, struct work *w)
{
    struct ngd_team *team = NULL;

    memset(w, 0, sizeof(*w));
    w->threads = threads;
    ck_assert_int_eq(ngd_team_create(threads, "test", &team), NGD_OK);
    ck_assert_uint_eq(ngd_team_threads(team), threads);
    return team;
}

START_TEST(every_part_runs_once_for_any_number_of_threads_and_parts)
{
    static const uint32_t parts[] = {1, 2, 3, 7, 8, 64, MAX_PARTS};

    for (uint32_t threads = 1; threads <= 8; threads++) {
        static struct work w;
        struct ngd_team *team = team_of(threads, &w);

        for (uint32_t round = 0; round < 30; round++) {
            ngd_team_begin(team);
            for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
                share_once(team, &w, parts[i], round * 1000 + parts[i]);
            ngd_team_end(team);
        }
        ngd_team_destroy(team);
    }
}
END_TEST

/* Runs many small jobs one after the other. A helper that comes late may not touch the next job. */
START_TEST(late_helpers_never_run_a_part_of_another_job)
{
    static struct work w;
    struct ngd_team *team = team_of(4, &w);

    ngd_team_begin(team);
    for (uint32_t i = 0; i < 20000; i++)
        share_once(team, &w, 1 + i % 5, i);
    ngd_team_end(team);
    ngd_team_destroy(team);
}
END_TEST

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* Ranges of no part, one and several, of more threads than there are CPUs: parts are done by their owners and by
 * thieves, and owners come late. */
START_TEST(random_calls_run_each_part_once_though_threads_outnumber_cpus)
{
    uint32_t seed = 1;

    for (uint32_t t = 0; t < 12; t++) {
        static struct work w;
        const uint32_t threads = 2 + draw(&seed) % (MAX_THREADS - 1);
        struct ngd_team *team = team_of(threads, &w);

        w.uneven = true;
        for (uint32_t i = 0; i < 200; i++) {
            if (i % 25 == 0)
                ngd_team_begin(team);
            share_once(team, &w, 1 + draw(&seed) % (i % 2 ? MAX_PARTS : 2 * threads), i);
            if (i % 25 == 24)
                ngd_team_end(team);
        }
        ngd_team_destroy(team);
    }
}
END_TEST

START_TEST(leader_alone_does_all_when_no_helper_has_started)
{
    static struct work w;
    struct ngd_team *team = team_of(4, &w);

    share_once(team, &w, 40, 7); /* before the first begin */
    ck_assert_uint_eq(atomic_load(&w.helped), 0);
    ngd_team_destroy(team);
}
END_TEST

START_TEST(helpers_that_sleep_are_not_needed_and_wake_for_the_next_run)
{
    static struct work w;
    struct ngd_team *team = team_of(3, &w);

    for (int round = 0; round < 20; round++) {
        ngd_team_begin(team);
        share_once(team, &w, 12, (uint32_t)round);
        ngd_team_end(team);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* long enough for them to go to sleep */
        share_once(team, &w, 12, (uint32_t)round);               /* outside of a run */
    }
    ngd_team_destroy(team);
}
END_TEST

static _Atomic uint32_t arrived;

/* The first part that a helper gets waits until the leader has done all others, and then a while longer. */
static void slow_fn(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    struct work *w = (struct work *)(uintptr_t)call->params;

    (void)run;
    (void)part;
    if (ngd_host_thread && atomic_fetch_add(&arrived, 1) == 0) {
        while (atomic_load(&w->total) + 1 < parts)
            sched_yield();
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    atomic_fetch_add(&w->total, 1);
}

START_TEST(leader_waits_for_a_part_that_takes_long)
{
    static struct work w;
    struct ngd_team *team = team_of(2, &w);
    const struct ngd_host_call call = {.fn = slow_fn, .params = &w};
    struct ngd_host_run run = {0};

    for (int round = 0; round < 30; round++) {
        atomic_store(&arrived, 0);
        atomic_store(&w.total, 0);
        ngd_team_begin(team);
        ngd_team_share(team, &call, &run, 50);
        ck_assert_uint_eq(atomic_load(&w.total), 50);
        ngd_team_end(team);
    }
    ngd_team_destroy(team);
}
END_TEST

/* The leader's part waits until all other parts are done. */
static void last_fn(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    struct work *w = (struct work *)(uintptr_t)call->params;

    (void)run;
    (void)part;
    while (ngd_host_thread == 0 && atomic_load(&w->total) + 1 < parts)
        sched_yield();
    atomic_fetch_add(&w->total, 1);
}

START_TEST(helpers_do_what_is_left_of_the_range_of_a_thread_that_takes_long)
{
    static struct work w;
    const struct ngd_host_call call = {.fn = last_fn, .params = &w};
    struct ngd_host_run run = {0};

    for (uint32_t threads = 2; threads <= 5; threads++) {
        struct ngd_team *team = team_of(threads, &w);

        ngd_team_begin(team);
        for (uint32_t parts = 1; parts <= 40; parts++) {
            atomic_store(&w.total, 0);
            ngd_team_share(team, &call, &run, parts);
            ck_assert_uint_eq(atomic_load(&w.total), parts);
        }
        ngd_team_end(team);
        ngd_team_destroy(team);
    }
}
END_TEST

struct lanes_work {
    struct ngd_team *team;
    struct work works[2];
    uint32_t round;
};

/* Lane 0 claims lane 1 at its end, if that has not begun: otherwise helpers of lane 1 would wait for its first. */
static void lane_fn(void *arg, uint32_t lane, struct ngd_team *part)
{
    struct lanes_work *l = arg;

    for (uint32_t i = 0; part && i < 3; i++)
        share_in_lane(part, &l->works[lane], 1 + (l->round * 7 + i * 5) % 24, l->round + i);
    if (lane == 0)
        (void)ngd_team_claim_lane(l->team, 1);
}

/* The lanes' teams have other sizes in each run, and their late helpers have seen offers of another size. */
START_TEST(lanes_of_other_sizes_in_each_run_share_calls)
{
    static struct work w;
    static struct lanes_work l;
    struct ngd_team *team = team_of(8, &w);

    memset(&l, 0, sizeof(l));
    l.team = team;
    for (l.round = 0; l.round < 600; l.round++) {
        const uint32_t threads[2] = {1 + l.round % 5, 1 + l.round / 5 % 3};

        for (uint32_t i = 0; i < 2; i++) {
            l.works[i].threads = threads[i];
            l.works[i].uneven = l.round % 2;
        }
        ck_assert(ngd_team_run_lanes(team, threads, 2, lane_fn, &l));
        ck_assert(!l.works[0].wrong && !l.works[1].wrong);
        if (l.round % 10 == 0) {
            ngd_team_begin(team);
            share_once(team, &w, 1 + l.round % 50, l.round);
            ngd_team_end(team);
        }
    }
    ngd_team_destroy(team);
}
END_TEST

START_TEST(teams_come_and_go_with_and_without_work)
{
    static struct work w;

    ngd_team_destroy(NULL);
    for (uint32_t i = 0; i < 60; i++) {
        struct ngd_team *team = team_of(1 + i % 5, &w);

        if (i % 2) {
            ngd_team_begin(team);
            if (i % 3)
                share_once(team, &w, 1 + i % 9, i);
            if (i % 4 != 1)
                ngd_team_end(team); /* or destroyed in the middle of a run */
        }
        ngd_team_destroy(team);
    }
}
END_TEST

/* A call has a part for each thread, or as many turns of all threads; at most what workspaces have room for. */
START_TEST(parts_are_turns_of_all_threads)
{
    for (uint32_t threads = 1; threads <= 256; threads++) {
        const uint32_t max = ngd_host_max_parts(threads);

        for (double ns = 1; ns < 1e10; ns *= 1.3) {
            const struct ngd_host_cost cost = {.ns = ns}, serial = {.ns = ns, .serial = true};
            const uint32_t parts = ngd_host_parts(&cost, threads);

            ck_assert_msg(parts >= 1 && parts <= max && (parts == 1 || parts == max || parts % threads == 0),
                          "%u parts of %g ns for %u threads", parts, ns, threads);
            ck_assert_uint_eq(ngd_host_parts(&serial, threads), 1);
        }
    }
}
END_TEST

/* Copies of sizes around the bound from which the team has parts, and beside cache lines. */
START_TEST(copies_are_whole_whatever_their_size_and_the_team)
{
    static const uint64_t sizes[] = {0, 1, 1000, 1 << 20, (1 << 20) - 1, (1 << 20) + 1, (3 << 20) + 4097};
    enum { ROOM = 4 << 20, GUARD = 0x5a };
    uint8_t *from = malloc(ROOM), *to = malloc(ROOM);

    ck_assert(from && to);
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(i * 7 + i / 4096);
    for (uint32_t threads = 0; threads <= 3; threads++) {
        struct ngd_team *team = NULL;

        ck_assert_int_eq(threads ? ngd_team_create(threads, "t", &team) : NGD_OK, NGD_OK);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            const uint64_t n = sizes[i], at = i % 2 ? 3 : 64;

            memset(to, GUARD, ROOM);
            ngd_host_copy(team, to + at, from + 1, n);
            ck_assert_mem_eq(to + at, from + 1, n);
            ck_assert_uint_eq(to[at - 1], GUARD);
            ck_assert_uint_eq(to[at + n], GUARD);
        }
        ngd_team_destroy(team);
    }
    free(from);
    free(to);
}
END_TEST

UNIT_MAIN("devices/host/team", copies_are_whole_whatever_their_size_and_the_team,
          every_part_runs_once_for_any_number_of_threads_and_parts, late_helpers_never_run_a_part_of_another_job,
          random_calls_run_each_part_once_though_threads_outnumber_cpus,
          leader_alone_does_all_when_no_helper_has_started, helpers_that_sleep_are_not_needed_and_wake_for_the_next_run,
          leader_waits_for_a_part_that_takes_long, helpers_do_what_is_left_of_the_range_of_a_thread_that_takes_long,
          lanes_of_other_sizes_in_each_run_share_calls, teams_come_and_go_with_and_without_work,
          parts_are_turns_of_all_threads)
