/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how long replays wait for one another, on virtual time: clients of a device with given run times. */
#include "base/clock.h"
#include "scheduler/lineup/linger.h"
#include "tests/unit/unit.h"

#define CLIENTS_MAX 16

/*
 * Clients that ask again some time after each answer (rest), and a device that merges all waiting requests, as the
 * worker and the inline path do.
 */
struct world {
    struct ngd_linger linger;
    ngd_nsec_t now, cost;
    uint32_t n;
    ngd_nsec_t rest[CLIENTS_MAX], asks_at[CLIENTS_MAX]; /* NGD_NSEC_NEVER: it waits or runs */
    bool waits[CLIENTS_MAX], runs[CLIENTS_MAX];
    ngd_nsec_t free_at, asked_at[CLIENTS_MAX];
    /* What happened. */
    uint32_t replays, answers, in_last;
    ngd_nsec_t lingered, longest; /* in all; from asking to beginning with a free device */
};

static void world_open(struct world *w, uint32_t n, ngd_nsec_t cost, ngd_nsec_t limit)
{
    *w = (struct world){.now = NGD_SEC, .cost = cost, .n = n};
    ngd_linger_init(&w->linger, limit);
    for (uint32_t i = 0; i < n; i++) {
        w->rest[i] = 20 * NGD_USEC + i * NGD_USEC;
        w->asks_at[i] = w->now + i;
    }
}

static uint32_t count(const bool *flags, uint32_t n)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < n; i++)
        k += flags[i];
    return k;
}

static void arrive(struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->asks_at[i] > w->now)
            continue;
        w->waits[i] = true;
        w->asked_at[i] = w->asks_at[i];
        w->asks_at[i] = NGD_NSEC_NEVER;
        ngd_linger_arrived(&w->linger, w->now, count(w->waits, w->n) + count(w->runs, w->n));
    }
}

static void end(struct world *w)
{
    for (uint32_t i = 0; i < w->n && w->now >= w->free_at; i++) {
        if (w->runs[i])
            w->asks_at[i] = w->now + w->rest[i];
        w->runs[i] = false;
    }
}

static void begin(struct world *w)
{
    w->lingered += ngd_linger_began(&w->linger, w->now);
    w->in_last = count(w->waits, w->n);
    w->replays++;
    w->answers += w->in_last;
    for (uint32_t i = 0; i < w->n; i++) {
        w->runs[i] = w->waits[i];
        w->waits[i] = false;
        if (w->runs[i] && w->asked_at[i] > w->free_at && w->now - w->asked_at[i] > w->longest)
            w->longest = w->now - w->asked_at[i];
    }
    w->free_at = w->now + w->cost;
}

/* Returns the time of the next event. */
static ngd_nsec_t next(const struct world *w, ngd_nsec_t until)
{
    ngd_nsec_t t = w->free_at > w->now ? w->free_at : until;

    for (uint32_t i = 0; i < w->n; i++)
        if (w->asks_at[i] < t)
            t = w->asks_at[i];
    return t;
}

static void run(struct world *w, uint32_t replays)
{
    for (uint32_t target = w->replays + replays; w->replays < target;) {
        ngd_nsec_t until = NGD_NSEC_NEVER;
        uint32_t waiting;

        end(w);
        arrive(w);
        waiting = count(w->waits, w->n);
        if (waiting && w->now >= w->free_at) {
            until = ngd_linger_until(&w->linger, w->now, waiting, w->cost, NGD_NSEC_NEVER);
            if (until <= w->now) {
                begin(w);
                continue;
            }
        }
        w->now = next(w, until);
    }
}

START_TEST(who_is_alone_never_waits)
{
    struct world w;

    for (ngd_nsec_t rest = 0; rest < 10 * NGD_MSEC; rest = rest * 3 + NGD_USEC) {
        world_open(&w, 1, NGD_MSEC, 2 * NGD_MSEC);
        w.rest[0] = rest;
        run(&w, 100);
        ck_assert_int_eq(w.lingered, 0);
        ck_assert_int_eq(w.longest, 0);
    }
}
END_TEST

START_TEST(clients_that_ask_at_once_come_to_run_as_one)
{
    for (uint32_t n = 2; n <= CLIENTS_MAX; n++) {
        struct world w;
        uint32_t before;

        world_open(&w, n, NGD_MSEC, 2 * NGD_MSEC);
        run(&w, 20);
        before = w.answers;
        run(&w, 100);
        ck_assert_uint_eq(w.answers - before, 100 * n);
        /* They wait until the last of them has come, and no longer. */
        ck_assert_int_le(w.longest, 40 * NGD_USEC);
    }
}
END_TEST

START_TEST(one_that_has_gone_is_not_waited_for_again_and_again)
{
    struct world w;
    ngd_nsec_t lingered;

    world_open(&w, 4, NGD_MSEC, 2 * NGD_MSEC);
    run(&w, 20);
    while (!w.waits[3] && w.asks_at[3] == NGD_NSEC_NEVER)
        w.rest[3] = 1000 * NGD_SEC, run(&w, 1); /* its next request is far away */
    lingered = w.lingered;
    run(&w, 100);
    /* A slot waits for it once or twice, for half a replay; then only for the others, which take some microseconds. */
    ck_assert_int_le(w.lingered - lingered, 2 * w.cost + 100 * 10 * NGD_USEC);
    ck_assert_uint_eq(w.in_last, 3);
}
END_TEST

START_TEST(a_wait_is_bounded_by_the_limit_by_half_a_replay_and_by_deadlines)
{
    static const struct {
        ngd_nsec_t cost, limit, want;
    } cases[] = {
        {2 * NGD_MSEC, 10 * NGD_MSEC, NGD_MSEC},
        {20 * NGD_MSEC, 2 * NGD_MSEC, 2 * NGD_MSEC},
        {2 * NGD_MSEC, 0, 0},
        {30 * NGD_USEC, 10 * NGD_MSEC, 0}, /* half of it is not worth going to sleep */
        {0, 10 * NGD_MSEC, 0},             /* not known */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const ngd_nsec_t now = NGD_SEC, latest = now + 100 * NGD_USEC;
        struct ngd_linger l;

        ngd_linger_init(&l, cases[i].limit);
        for (uint32_t k = 1; k <= 4; k++)
            ngd_linger_arrived(&l, now, k);
        (void)ngd_linger_began(&l, now);
        ngd_linger_arrived(&l, now, 1);
        ck_assert_int_eq(ngd_linger_until(&l, now, 1, cases[i].cost, NGD_NSEC_NEVER), now + cases[i].want);
        /* It does not grow with each look. */
        ck_assert_int_eq(ngd_linger_until(&l, now + 10, 1, cases[i].cost, NGD_NSEC_NEVER),
                         now + (cases[i].want ? cases[i].want : 10));
        if (cases[i].want)
            ck_assert_int_eq(ngd_linger_until(&l, now, 1, cases[i].cost, latest), latest);
        ck_assert_int_le(ngd_linger_until(&l, now, 4, cases[i].cost, NGD_NSEC_NEVER), now);
    }
}
END_TEST

START_TEST(rare_arrivals_are_not_waited_for)
{
    struct ngd_linger l;
    ngd_nsec_t now = NGD_SEC;

    /* Two met by chance; after that one comes every ten replays' time. */
    ngd_linger_init(&l, 10 * NGD_MSEC);
    for (int i = 0; i < 40; i++) {
        now += 10 * NGD_MSEC;
        ngd_linger_arrived(&l, now, i % 2 + 1);
        ck_assert_int_le(ngd_linger_until(&l, now, 1, NGD_MSEC, NGD_NSEC_NEVER), now);
        (void)ngd_linger_began(&l, now);
    }
}
END_TEST

START_TEST(waits_that_nobody_joined_become_rare)
{
    struct ngd_linger l;
    ngd_nsec_t now = NGD_SEC, lingered = 0;
    uint32_t waits = 0;

    /* Two are under way at once each time, but the second never comes while the first one waits. */
    ngd_linger_init(&l, 10 * NGD_MSEC);
    ngd_linger_arrived(&l, now, 1);
    ngd_linger_arrived(&l, now, 2);
    for (int i = 0; i < 200; i++) {
        ngd_nsec_t until = ngd_linger_until(&l, now, 1, NGD_MSEC, NGD_NSEC_NEVER);

        waits += until > now;
        lingered += until - now;
        now = until;
        (void)ngd_linger_began(&l, now);
        now += NGD_MSEC / 2;
        ngd_linger_arrived(&l, now, 2);
        now += NGD_MSEC / 2;
    }
    ck_assert_uint_ge(waits, 3);
    ck_assert_uint_le(waits, 10);
    ck_assert_int_le(lingered, 10 * NGD_MSEC / 2);
    /* When such a request does come, slots wait again as before. */
    for (uint32_t i = 0; i < 65; i++)
        (void)ngd_linger_began(&l, now), ngd_linger_arrived(&l, now, 2);
    ck_assert_int_gt(ngd_linger_until(&l, now, 1, NGD_MSEC, NGD_NSEC_NEVER), now);
    ngd_linger_arrived(&l, now, 2);
    (void)ngd_linger_began(&l, now);
    ngd_linger_arrived(&l, now, 2);
    ck_assert_int_gt(ngd_linger_until(&l, now, 1, NGD_MSEC, NGD_NSEC_NEVER), now);
    /* One more that nobody joins costs two waits again, and not as many as the last one did. */
    now += NGD_MSEC / 2;
    for (int i = 0; i < 2; i++) {
        (void)ngd_linger_began(&l, now);
        ngd_linger_arrived(&l, now, 2);
        ck_assert_int_le(ngd_linger_until(&l, now, 1, NGD_MSEC, NGD_NSEC_NEVER), now);
    }
    (void)ngd_linger_began(&l, now);
    ngd_linger_arrived(&l, now, 2);
    ck_assert_int_gt(ngd_linger_until(&l, now, 1, NGD_MSEC, NGD_NSEC_NEVER), now);
}
END_TEST

START_TEST(however_many_waits_nobody_joined_they_stay_rare)
{
    struct ngd_linger l;
    ngd_nsec_t now = NGD_SEC;
    uint32_t since = 0, waits = 0;

    ngd_linger_init(&l, 10 * NGD_MSEC);
    ngd_linger_arrived(&l, now, 2);
    for (int i = 0; i < 10000; i++, since++) {
        if (ngd_linger_until(&l, now, 1, NGD_MSEC, NGD_NSEC_NEVER) > now) {
            if (++waits > 7)
                ck_assert_uint_gt(since, 64);
            since = 0;
            now += NGD_MSEC / 2;
        }
        (void)ngd_linger_began(&l, now);
        now += NGD_MSEC / 2;
        ngd_linger_arrived(&l, now, 2);
    }
    ck_assert_uint_gt(waits, 100);
}
END_TEST

START_TEST(when_nobody_waits_any_more_the_wait_is_over)
{
    struct ngd_linger l;
    const ngd_nsec_t now = NGD_SEC;

    ngd_linger_init(&l, 10 * NGD_MSEC);
    ngd_linger_arrived(&l, now, 3);
    ck_assert_int_eq(ngd_linger_until(&l, now, 1, NGD_MSEC, NGD_NSEC_NEVER), now + NGD_MSEC / 2);
    ngd_linger_left(&l);
    ngd_linger_arrived(&l, now + NGD_MSEC, 1);
    /* Its own wait begins anew. */
    ck_assert_int_eq(ngd_linger_until(&l, now + NGD_MSEC, 1, NGD_MSEC, NGD_NSEC_NEVER), now + NGD_MSEC * 3 / 2);
}
END_TEST

UNIT_MAIN("scheduler/linger", who_is_alone_never_waits, clients_that_ask_at_once_come_to_run_as_one,
          one_that_has_gone_is_not_waited_for_again_and_again,
          a_wait_is_bounded_by_the_limit_by_half_a_replay_and_by_deadlines, rare_arrivals_are_not_waited_for,
          waits_that_nobody_joined_become_rare, however_many_waits_nobody_joined_they_stay_rare,
          when_nobody_waits_any_more_the_wait_is_over)
