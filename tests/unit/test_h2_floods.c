/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the frame checker in front of gRPC: floods of allowed frames are delayed, and refused calls count as resets. */
#include "tests/unit/h2_util.h"

static void flood_resets(struct bytes *b, uint32_t i)
{
    put_frame(b, HEADERS, END_HEADERS, 2 * i + 1, "\x83", 1);
    put_frame(b, RST, 0, 2 * i + 1, zeros, 4);
}
static void flood_strays(struct bytes *b, uint32_t i)
{
    put_frame(b, RST, 0, 2 * i + 1, zeros, 4);
}
static void flood_bare(struct bytes *b, uint32_t i)
{
    put_frame(b, HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, "\x83", 1);
}
static void flood_pings(struct bytes *b, uint32_t i)
{
    (void)i;
    put_frame(b, PING, 0, 0, zeros, 8);
}
static void flood_settings(struct bytes *b, uint32_t i)
{
    (void)i;
    put_frame(b, SETTINGS, 0, 0, NULL, 0);
}
static void flood_acks(struct bytes *b, uint32_t i)
{
    (void)i;
    put_frame(b, SETTINGS, ACK, 0, NULL, 0);
}
static void flood_priorities(struct bytes *b, uint32_t i)
{
    put_frame(b, PRIORITY, 0, 2 * i + 1, zeros, 5);
}
static void flood_windows(struct bytes *b, uint32_t i)
{
    (void)i;
    put_frame(b, WINDOW, 0, 0, "\0\0\0\1", 4);
}
static void flood_empty(struct bytes *b, uint32_t i)
{
    if (i == 0)
        put_frame(b, HEADERS, END_HEADERS, 1, "\x83", 1);
    put_frame(b, DATA, i % 2 ? PADDED : 0, 1, "\2\0\0", i % 2 ? 3 : 0);
}
static void flood_unknown(struct bytes *b, uint32_t i)
{
    (void)i;
    put_frame(b, 0x77, 0, 0, NULL, 0);
}

static const struct {
    void (*fill)(struct bytes *b, uint32_t i);
    uint32_t burst, rate;
} floods[] = {
    {flood_resets, 2000, 1000},    {flood_strays, 50000, 20000}, {flood_bare, 2000, 1000},
    {flood_pings, 2000, 1000},     {flood_settings, 500, 100},   {flood_acks, 500, 100},
    {flood_priorities, 1000, 100}, {flood_windows, 2000, 1000},  {flood_empty, 1000, 100},
    {flood_unknown, 1000, 100},
};

START_TEST(floods_of_what_is_allowed_wait_and_then_go_on)
{
    struct peer p;

    init(&p);
    for (size_t f = 0; f < sizeof(floods) / sizeof(floods[0]); f++) {
        struct bytes b = make(put_begin);
        struct ngd_h2_result r = say_all(&p, &b);
        uint32_t i = 0, first, due;
        ngd_nsec_t began;

        for (; r.verdict == NGD_H2_GO_ON && i < 100000; i++) {
            b.n = p.server.n = 0;
            floods[f].fill(&b, i);
            r = say_all(&p, &b);
            answer(&p, 2 * i + 1);
        }
        ck_assert_int_eq(r.verdict, NGD_H2_PAUSE);
        ck_assert_uint_ge(i, floods[f].burst - 1);
        ck_assert_uint_le(i, floods[f].burst + 2);
        ck_assert_int_gt(r.until, p.now);
        ck_assert_int_le(r.until, p.now + NGD_H2_PAUSE_TIME + 2 * NGD_SEC / floods[f].rate);
        /* After the burst, frames pass at the given rate, many at a time if the rate is high. */
        began = p.now;
        first = i;
        for (uint32_t k = 0; k < 50; k++) {
            p.now = r.until;
            do {
                b.n = p.server.n = 0;
                floods[f].fill(&b, i);
                r = say_all(&p, &b);
                answer(&p, 2 * i + 1);
                ck_assert_uint_eq(p.server.n, b.n); /* nothing is lost */
                i++;
            } while (r.verdict == NGD_H2_GO_ON);
            ck_assert_int_eq(r.verdict, NGD_H2_PAUSE);
        }
        due = (uint32_t)((p.now - began) * floods[f].rate / NGD_SEC);
        ck_assert_int_ge(p.now - began, 50 * NGD_H2_PAUSE_TIME);
        ck_assert_uint_ge(i - first + 2, due);
        ck_assert_uint_le(i - first, due + 2);
        end(&p);
        begin(&p);
        ngd_free(b.at);
    }
    fini(&p);
}
END_TEST

/* A thousand connections of an identity may not each do at once what one connection may. */
START_TEST(connections_of_an_identity_share_what_they_may_do)
{
    enum { PEERS = 20, EACH = 1900 }; /* pings of one connection: 2000 at once; of an identity: 8 times as many */
    ngd_nsec_t shared[NGD_H2_BUCKETS] = {0};
    struct bytes b = make(put_begin);
    struct peer p[PEERS + 1];
    uint32_t said = 0;

    for (int i = 0; i <= PEERS; i++) {
        ngd_h2_verdict_t verdict;

        init(&p[i]);
        p[i].shared = i < PEERS ? shared : NULL;
        b.n = 0;
        put_begin(&b);
        verdict = say_all(&p[i], &b).verdict;
        b.n = 0;
        flood_pings(&b, 0);
        for (int k = 0; k < EACH && verdict == NGD_H2_GO_ON; k++) {
            p[i].server.n = 0;
            verdict = say_all(&p[i], &b).verdict;
            said += i < PEERS;
        }
        ck_assert_int_eq(verdict, i == PEERS || (i + 1) * EACH <= 16000 ? NGD_H2_GO_ON : NGD_H2_PAUSE);
    }
    ck_assert_uint_ge(said, 16000);
    ck_assert_uint_le(said, 16000 + PEERS);
    for (int i = 0; i <= PEERS; i++)
        fini(&p[i]);
    ngd_free(b.at);
}
END_TEST

START_TEST(windows_are_updated_as_often_as_data_comes)
{
    struct bytes b = make(put_begin), s = make(NULL);
    struct peer p;

    init(&p);
    say_all(&p, &b);
    b.n = 0;
    put_frame(&b, WINDOW, 0, 0, "\0\0\0\1", 4);
    put_frame(&b, WINDOW, 0, 0, "\0\0\0\1", 4);
    put_frame(&s, DATA, 0, 1, "x", 1);
    for (int i = 0; i < 10000; i++) {
        ngd_h2_guard_output(p.guard, s.at, s.n, p.now);
        ck_assert_int_eq(say_all(&p, &b).verdict, NGD_H2_GO_ON);
        p.server.n = p.client.n = 0;
    }
    fini(&p);
    ngd_free(b.at);
    ngd_free(s.at);
}
END_TEST

/* A call whose message is longer than max_message, and one whose bytes are more than max_held. */
static void flood_large(struct bytes *b, uint32_t i)
{
    put_frame(b, HEADERS, END_HEADERS, 2 * i + 1, "\x83", 1);
    put_frame(b, DATA, 0, 2 * i + 1, "\0\xff\xff\xff\xff", 5);
}
static void flood_unfinished(struct bytes *b, uint32_t i)
{
    put_call(b, 2 * i + 1, 200, 150, 0);
}

/* gRPC still has the call when its charge has gone back, so refusals must not be free. */
START_TEST(calls_that_are_refused_count_as_resets)
{
    static void (*const fills[])(struct bytes * b, uint32_t i) = {flood_large, flood_unfinished};
    struct peer p;

    init(&p);
    for (size_t f = 0; f < sizeof(fills) / sizeof(fills[0]); f++) {
        struct bytes b = make(put_begin);
        struct ngd_h2_result r = say_all(&p, &b);
        uint32_t i = 0;

        p.max_held = 100;
        for (; r.verdict == NGD_H2_GO_ON && i < 10000; i++) {
            b.n = p.server.n = p.client.n = 0;
            fills[f](&b, i);
            r = say_all(&p, &b);
        }
        ck_assert_int_eq(r.verdict, NGD_H2_PAUSE);
        ck_assert_uint_eq(i, 2001);
        ck_assert_uint_eq(p.refusals, i);
        ck_assert_int_gt(r.until, p.now);
        end(&p);
        begin(&p);
        ngd_free(b.at);
    }
    fini(&p);
}
END_TEST

/* All late calls end at once; then the client must wait before it may cancel another one. */
START_TEST(calls_that_do_not_go_on_count_as_resets)
{
    enum { CALLS = 90, TIMES = 23 };
    struct bytes b = make(put_begin);
    struct peer p;

    init(&p);
    say_all(&p, &b);
    for (uint32_t i = 0; i < CALLS * TIMES; i += CALLS) {
        b.n = p.server.n = p.client.n = 0;
        for (uint32_t k = i; k < i + CALLS; k++)
            put_call(&b, 2 * k + 1, 300, 10, 0);
        ck_assert_int_eq(say_all(&p, &b).verdict, NGD_H2_GO_ON);
        ck_assert_int_eq(ngd_h2_guard_tick(p.guard, p.now + NGD_H2_MESSAGE_TIME).verdict, NGD_H2_GO_ON);
        ck_assert_uint_eq(p.refusals, i + CALLS);
    }
    p.now += NGD_H2_MESSAGE_TIME;
    b.n = 0;
    flood_resets(&b, CALLS * TIMES);
    ck_assert_int_eq(say_all(&p, &b).verdict, NGD_H2_PAUSE);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

UNIT_MAIN("daemon/front/h2_floods", floods_of_what_is_allowed_wait_and_then_go_on,
          connections_of_an_identity_share_what_they_may_do, windows_are_updated_as_often_as_data_comes,
          calls_that_are_refused_count_as_resets, calls_that_do_not_go_on_count_as_resets)
