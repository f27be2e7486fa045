/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the team: each part of a call runs once, whichever threads are there to run it. */
#include "devices/host/team.h"
#include "base/log.h"
#include "tests/unit/unit.h"
#include <sched.h>
#include <string.h>
#include <time.h>

#define MAX_PARTS   240
#define MAX_THREADS 8

struct work {
    _Atomic uint32_t runs[MAX_PARTS];
    _Atomic uint32_t total;
    _Atomic uint32_t inside[MAX_THREADS]; /* parts that run as this thread now */
    _Atomic uint32_t helped;
    uint32_t parts, threads, value;
    uint32_t out[MAX_PARTS];
    bool wrong;
};

/* Runs a part, and checks everything that a kernel relies on. */
static void part_fn(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    struct work *w = (struct work *)(uintptr_t)call->params;

    (void)run;
    if (parts != w->parts || part >= parts || ngd_host_thread >= w->threads ||
        atomic_fetch_add(&w->inside[ngd_host_thread], 1) != 0)
        w->wrong = true;
    atomic_fetch_add(&w->runs[part], 1);
    w->out[part] = w->value + part; /* written by the leader before, read by it afterwards */
    if (ngd_host_thread)
        atomic_fetch_add(&w->helped, 1);
    atomic_fetch_add(&w->total, 1);
    atomic_fetch_sub(&w->inside[ngd_host_thread], 1);
}

static void share_once(struct ngd_team *team, struct work *w, uint32_t parts, uint32_t value)
{
    const struct ngd_host_call call = {.fn = part_fn, .params = w};
    struct ngd_host_run run = {0};

    w->parts = parts;
    w->value = value;
    atomic_store(&w->total, 0);
    for (uint32_t i = 0; i < parts; i++)
        atomic_store(&w->runs[i], 0);
    ngd_team_share(team, &call, &run, parts);
    ck_assert_uint_eq(atomic_load(&w->total), parts);
    for (uint32_t i = 0; i < parts; i++) {
        ck_assert_uint_eq(atomic_load(&w->runs[i]), 1);
        ck_assert_uint_eq(w->out[i], value + i);
    }
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

    for (uint32_t threads = 1; threads <= MAX_THREADS; threads++) {
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

UNIT_MAIN("devices/host/team", every_part_runs_once_for_any_number_of_threads_and_parts,
          late_helpers_never_run_a_part_of_another_job, leader_alone_does_all_when_no_helper_has_started,
          helpers_that_sleep_are_not_needed_and_wake_for_the_next_run, leader_waits_for_a_part_that_takes_long,
          teams_come_and_go_with_and_without_work)
