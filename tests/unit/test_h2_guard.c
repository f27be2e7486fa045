/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the frame checker in front of gRPC, with bytes in portions of all sizes and time that the test sets. */
#include "tests/unit/h2_util.h"

START_TEST(what_an_honest_client_says_passes_unchanged_in_any_portions)
{
    struct bytes b = make(put_honest);
    struct peer p;

    init(&p);
    for (size_t i = 0; i <= b.n; i++) {
        for (size_t k = i; k <= b.n; k++) {
            say(&p, b.at, i);
            say(&p, b.at + i, k - i);
            ck_assert_int_eq(say(&p, b.at + k, b.n - k).verdict, NGD_H2_GO_ON);
            ck_assert_uint_eq(p.server.n, b.n);
            ck_assert_mem_eq(p.server.at, b.at, b.n);
            ck_assert_uint_eq(p.client.n, 0);
            ck_assert_int_eq(p.streams, 2);
            ck_assert_int_eq(p.held, 0);
            end(&p);
            begin(&p);
        }
    }
    for (size_t i = 0; i < b.n; i++)
        ck_assert_int_eq(say(&p, b.at + i, 1).verdict, NGD_H2_GO_ON);
    ck_assert_mem_eq(p.server.at, b.at, b.n);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

static void bad_preface(struct bytes *b)
{
    put(b, "GET / HTTP/1.1\r\n\r\n", 18);
}
static void bad_first(struct bytes *b)
{
    put(b, NGD_H2_PREFACE, NGD_H2_PREFACE_LEN);
    put_frame(b, PING, 0, 0, zeros, 8);
}
static void bad_first_ack(struct bytes *b)
{
    put(b, NGD_H2_PREFACE, NGD_H2_PREFACE_LEN);
    put_frame(b, SETTINGS, ACK, 0, NULL, 0);
}
static void bad_ping(struct bytes *b)
{
    put_begin(b);
    put_frame(b, PING, 0, 0, zeros, 7);
}
static void bad_settings(struct bytes *b)
{
    put_begin(b);
    put_frame(b, SETTINGS, 0, 0, zeros, 7);
}
static void bad_large(struct bytes *b)
{
    put_begin(b);
    put_frame(b, 0x42, 0, 0, zeros, NGD_H2_CONTROL_MAX + 1);
}
static void bad_headers(struct bytes *b)
{
    put_begin(b);
    put_frame(b, HEADERS, END_HEADERS, 1, zeros, NGD_H2_BLOCK_MAX);
}
static void bad_block(struct bytes *b)
{
    put_begin(b);
    put_frame(b, HEADERS, 0, 1, zeros, 12000);
    put_frame(b, CONTINUATION, 0, 1, zeros, 12000);
    put_frame(b, CONTINUATION, END_HEADERS, 1, zeros, 12000);
}
static void bad_parts(struct bytes *b)
{
    put_begin(b);
    put_frame(b, HEADERS, 0, 1, "\x83", 1);
    for (int i = 0; i < NGD_H2_BLOCK_PARTS; i++)
        put_frame(b, CONTINUATION, 0, 1, NULL, 0);
}
static void bad_inside(struct bytes *b)
{
    put_begin(b);
    put_frame(b, HEADERS, 0, 1, "\x83", 1);
    put_frame(b, PING, 0, 0, zeros, 8);
}
static void bad_other_block(struct bytes *b)
{
    put_begin(b);
    put_frame(b, HEADERS, 0, 1, "\x83", 1);
    put_frame(b, CONTINUATION, END_HEADERS, 3, "\x83", 1);
}
static void bad_alone(struct bytes *b)
{
    put_begin(b);
    put_frame(b, CONTINUATION, END_HEADERS, 1, "\x83", 1);
}
static void bad_even(struct bytes *b)
{
    put_begin(b);
    put_frame(b, HEADERS, END_HEADERS, 2, "\x83", 1);
}
static void bad_idle_data(struct bytes *b)
{
    put_begin(b);
    put_frame(b, DATA, 0, 1, "x", 1);
}
static void bad_even_reset(struct bytes *b)
{
    put_begin(b);
    put_frame(b, RST, 0, 2, zeros, 4);
}
static void bad_idle_window(struct bytes *b)
{
    put_begin(b);
    put_frame(b, WINDOW, 0, 1, "\0\0\1\0", 4);
}
static void bad_padding(struct bytes *b)
{
    put_begin(b);
    put_frame(b, HEADERS, END_HEADERS, 1, "\x83", 1);
    put_frame(b, DATA, PADDED, 1, "\x05zz", 3);
}
static void bad_push(struct bytes *b)
{
    put_begin(b);
    put_frame(b, PUSH, END_HEADERS, 1, zeros, 4);
}
static void bad_ping_number(struct bytes *b)
{
    put_begin(b);
    put_frame(b, PING, 0, 1, zeros, 8);
}
static void bad_many(struct bytes *b)
{
    put_begin(b);
    for (uint32_t i = 0; i <= 100; i++)
        put_frame(b, HEADERS, END_HEADERS, 2 * i + 1, "\x83", 1);
}

static const struct {
    void (*fill)(struct bytes *b);
    ngd_h2_reason_t reason;
} violations[] = {
    {bad_preface, NGD_H2_WHY_PREFACE},          {bad_first, NGD_H2_WHY_FIRST_FRAME},
    {bad_first_ack, NGD_H2_WHY_FIRST_FRAME},    {bad_ping, NGD_H2_WHY_FRAME_SIZE},
    {bad_settings, NGD_H2_WHY_FRAME_SIZE},      {bad_large, NGD_H2_WHY_FRAME_SIZE},
    {bad_headers, NGD_H2_WHY_HEADER_BLOCK},     {bad_block, NGD_H2_WHY_HEADER_BLOCK},
    {bad_parts, NGD_H2_WHY_CONTINUATION},       {bad_inside, NGD_H2_WHY_CONTINUATION},
    {bad_other_block, NGD_H2_WHY_CONTINUATION}, {bad_alone, NGD_H2_WHY_CONTINUATION},
    {bad_even, NGD_H2_WHY_STREAM_ID},           {bad_idle_data, NGD_H2_WHY_STREAM_ID},
    {bad_even_reset, NGD_H2_WHY_STREAM_ID},     {bad_idle_window, NGD_H2_WHY_STREAM_ID},
    {bad_padding, NGD_H2_WHY_FRAME_SIZE},       {bad_push, NGD_H2_WHY_FRAME},
    {bad_ping_number, NGD_H2_WHY_FRAME},        {bad_many, NGD_H2_WHY_STREAMS},
};

START_TEST(what_no_honest_client_says_ends_the_connection_in_any_portions)
{
    struct peer p;

    init(&p);
    for (size_t v = 0; v < sizeof(violations) / sizeof(violations[0]); v++) {
        struct bytes b = make(violations[v].fill);
        size_t step = b.n > 2000 ? 97 : 1;

        for (size_t i = 0; i <= b.n; i += step) {
            struct ngd_h2_result r = say(&p, b.at, i);

            if (r.verdict == NGD_H2_GO_ON)
                r = say(&p, b.at + i, b.n - i);
            ck_assert_msg(r.verdict == NGD_H2_CLOSE, "violation %zu passed, cut at %zu", v, i);
            ck_assert_str_eq(ngd_h2_reason_name(r.reason), ngd_h2_reason_name(violations[v].reason));
            end(&p);
            begin(&p);
        }
        ngd_free(b.at);
    }
    fini(&p);
}
END_TEST

START_TEST(a_header_block_that_is_not_whole_is_not_seen_by_the_server)
{
    struct bytes b = make(put_begin);
    struct peer p;
    size_t seen;

    init(&p);
    say_all(&p, &b);
    seen = p.server.n;
    b.n = 0;
    put_frame(&b, HEADERS, 0, 1, zeros, 8000);
    put_frame(&b, CONTINUATION, 0, 1, zeros, 8000);
    ck_assert_int_eq(say_all(&p, &b).verdict, NGD_H2_GO_ON);
    ck_assert_uint_eq(p.server.n, seen);
    put_frame(&b, CONTINUATION, END_HEADERS, 1, zeros, 10);
    say(&p, b.at + b.n - 19, 19);
    ck_assert_uint_eq(p.server.n, seen + b.n);
    ck_assert_mem_eq(p.server.at + seen, b.at, b.n);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

/* Checks the last bytes that gRPC and the client received. */
static bool ends_with_reset(const struct bytes *b, uint32_t id, uint8_t code)
{
    uint8_t want[13] = {0, 0, 4, RST, 0, 0, 0, 0, (uint8_t)id, 0, 0, 0, code};

    return b->n >= sizeof(want) && memcmp(b->at + b->n - sizeof(want), want, sizeof(want)) == 0;
}

static bool says(const struct bytes *b, const char *text)
{
    return memmem(b->at, b->n, text, strlen(text)) != NULL;
}

START_TEST(a_message_that_is_too_large_ends_its_call_alone)
{
    struct bytes b = make(put_begin);
    struct peer p;

    init(&p);
    put_call(&b, 1, 100, 10, 0);
    put_call(&b, 3, 40001, 1000, 0);
    ck_assert_int_eq(say_all(&p, &b).verdict, NGD_H2_GO_ON);
    ck_assert_uint_eq(p.refusals, 1);
    ck_assert(ends_with_reset(&p.server, 3, 8));
    ck_assert(ends_with_reset(&p.client, 3, 0));
    ck_assert(says(&p.client, "max-message"));
    ck_assert(says(&p.client, "grpc-status\1"
                              "8"));
    ck_assert_int_eq(p.streams, 1);
    /* The first call goes on; gRPC skips what still comes for the other one. */
    b.n = p.server.n = p.client.n = 0;
    put_frame(&b, DATA, 0, 3, zeros, 500);
    put_frame(&b, DATA, END_STREAM, 1, zeros, 90);
    say_all(&p, &b);
    ck_assert_mem_eq(p.server.at, b.at, b.n);
    ck_assert_uint_eq(p.client.n, 0);
    ck_assert_int_eq(p.held, 0);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

START_TEST(unfinished_messages_are_charged_and_bounded)
{
    struct bytes b = make(put_begin);
    struct peer p;

    init(&p);
    p.max_held = 35000;
    put_call(&b, 1, 20000, 15000, 0);
    put_call(&b, 3, 20000, 15000, 0);
    say_all(&p, &b);
    ck_assert_uint_eq(p.refusals, 0);
    ck_assert_int_eq(p.held, 2 * (15000 + NGD_H2_FRAME_COST));
    b.n = 0;
    put_call(&b, 5, 20000, 15000, 0);
    put_call(&b, 7, 15000, 15000, 0); /* a whole message is not charged */
    say_all(&p, &b);
    ck_assert_uint_eq(p.refusals, 1);
    ck_assert(says(&p.client, "max-unfinished-bytes-per-identity"));
    b.n = 0;
    put_frame(&b, DATA, 0, 1, zeros, 5000);
    put_frame(&b, RST, 0, 3, zeros, 4);
    say_all(&p, &b);
    ck_assert_int_eq(p.held, 0);
    /* Many small frames cost more than their bytes. */
    b.n = 0;
    put_frame(&b, HEADERS, END_HEADERS, 9, "\x83", 1);
    put_frame(&b, DATA, 0, 9, "\0\0\0\x40\0", 5);
    for (int i = 0; i < 600; i++)
        put_frame(&b, DATA, 0, 9, "x", 1);
    say_all(&p, &b);
    ck_assert_uint_eq(p.refusals, 2);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

START_TEST(a_client_may_open_a_hundred_calls_until_it_has_acknowledged_settings)
{
    struct bytes b = make(put_begin), settings = {.at = (uint8_t[64]){0}};
    struct ngd_h2_result r;
    struct peer p;

    init(&p);
    end(&p);
    begin_with(&p, 10);
    put_frame(&settings, SETTINGS, 0, 0, NULL, 0);
    ngd_h2_guard_output(p.guard, settings.at, settings.n, p.now);
    for (uint32_t i = 0; i < 50; i++)
        put_frame(&b, HEADERS, END_HEADERS, 2 * i + 1, "\x83", 1);
    ck_assert_int_eq(say_all(&p, &b).verdict, NGD_H2_GO_ON);
    b.n = 0;
    put_frame(&b, SETTINGS, ACK, 0, NULL, 0);
    put_frame(&b, HEADERS, END_HEADERS, 101, "\x83", 1);
    r = say_all(&p, &b);
    ck_assert_int_eq(r.verdict, NGD_H2_CLOSE);
    ck_assert_int_eq(r.reason, NGD_H2_WHY_STREAMS);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

START_TEST(a_call_too_many_is_refused_by_a_status)
{
    struct bytes b = make(put_begin);
    struct peer p;

    init(&p);
    p.max_streams = 2;
    for (uint32_t i = 0; i < 3; i++)
        put_call(&b, 2 * i + 1, 0, 0, 0);
    ck_assert_int_eq(say_all(&p, &b).verdict, NGD_H2_GO_ON);
    ck_assert_uint_eq(p.refusals, 1);
    ck_assert_int_eq(p.streams, 2);
    ck_assert(says(&p.client, "too many calls"));
    answer(&p, 1);
    b.n = 0;
    put_call(&b, 7, 0, 0, 0);
    say_all(&p, &b);
    ck_assert_uint_eq(p.refusals, 1);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

static ngd_h2_verdict_t look_after(struct peer *p, ngd_nsec_t later)
{
    p->now += later;
    return ngd_h2_guard_tick(p->guard, p->now).verdict;
}

START_TEST(a_message_that_does_not_go_on_ends_its_call_unless_the_server_holds_it_up)
{
    struct bytes b = make(put_begin);
    struct peer p;

    init(&p);
    put_call(&b, 1, 30000, 100, 0);
    put_call(&b, 3, 70, 70, 0);
    say_all(&p, &b);
    ck_assert(ngd_h2_guard_timed(p.guard));
    ck_assert_int_eq(look_after(&p, 29 * NGD_SEC), NGD_H2_GO_ON);
    ck_assert_uint_eq(p.refusals, 0);
    ck_assert_int_eq(look_after(&p, NGD_SEC), NGD_H2_GO_ON);
    ck_assert_uint_eq(p.refusals, 1);
    ck_assert(says(&p.client, "grpc-status\2"
                              "10"));
    ck_assert(!ngd_h2_guard_timed(p.guard));
    /* Without a window the client may not go on. */
    b.n = 0;
    put_frame(&b, SETTINGS, 0, 0, "\0\4\0\0\0\x69", 6);
    ngd_h2_guard_output(p.guard, b.at, b.n, p.now);
    b.n = 0;
    put_frame(&b, SETTINGS, ACK, 0, NULL, 0);
    put_call(&b, 5, 30000, 100, 0);
    say_all(&p, &b);
    ck_assert_int_eq(look_after(&p, 100 * NGD_SEC), NGD_H2_GO_ON);
    ck_assert_uint_eq(p.refusals, 1);
    b.n = 0;
    put_frame(&b, WINDOW, 0, 5, "\0\0\1\0", 4);
    ngd_h2_guard_output(p.guard, b.at, b.n, p.now);
    look_after(&p, 29 * NGD_SEC);
    ck_assert_uint_eq(p.refusals, 1);
    look_after(&p, NGD_SEC);
    ck_assert_uint_eq(p.refusals, 2);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

START_TEST(what_is_late_ends_the_connection)
{
    struct bytes b = make(put_begin);
    struct ngd_h2_result r;
    struct peer p;

    init(&p);
    say_all(&p, &b);
    ck_assert(!ngd_h2_guard_timed(p.guard));
    put_frame(&b, PING, 0, 0, zeros, 8);
    say(&p, b.at + b.n - 17, 12);
    ck_assert_int_eq(look_after(&p, 9 * NGD_SEC), NGD_H2_GO_ON);
    ngd_h2_guard_resume(p.guard, p.now); /* its frames were not read meanwhile */
    ck_assert_int_eq(look_after(&p, 9 * NGD_SEC), NGD_H2_GO_ON);
    r = ngd_h2_guard_tick(p.guard, p.now + NGD_SEC);
    ck_assert_int_eq(r.verdict, NGD_H2_CLOSE);
    ck_assert_int_eq(r.reason, NGD_H2_WHY_SLOW_FRAME);
    end(&p);

    begin(&p);
    b.n = 0;
    put_begin(&b);
    say_all(&p, &b);
    b.n = 0;
    put_frame(&b, SETTINGS, 0, 0, NULL, 0);
    ngd_h2_guard_output(p.guard, b.at, b.n, p.now);
    ck_assert_int_eq(look_after(&p, 19 * NGD_SEC), NGD_H2_GO_ON);
    r = ngd_h2_guard_tick(p.guard, p.now + NGD_SEC);
    ck_assert_int_eq(r.reason, NGD_H2_WHY_SETTINGS_ACK);
    ck_assert_int_eq(r.verdict, NGD_H2_CLOSE);
    fini(&p);
    ngd_free(b.at);
}
END_TEST

START_TEST(words_of_the_front_go_between_two_frames_of_the_server)
{
    struct bytes b = make(put_begin), s = make(NULL);
    struct peer p;

    init(&p);
    put_call(&b, 1, 50000, 10, 0);
    put_frame(&s, HEADERS, 0, 9, "\x88", 1); /* a block in two, then data */
    put_frame(&s, CONTINUATION, END_HEADERS, 9, "\x88\x88", 2);
    put_frame(&s, DATA, 0, 9, zeros, 20);
    for (size_t cut = 0; cut <= s.n; cut++) {
        size_t block = 9 + 1 + 9 + 2, at = cut == 0 ? 0 : cut <= block ? block : s.n;
        size_t words;

        ngd_h2_guard_output(p.guard, s.at, cut, p.now);
        say_all(&p, &b);
        ngd_h2_guard_output(p.guard, s.at + cut, s.n - cut, p.now);
        words = p.client.n - s.n;
        ck_assert_uint_gt(words, 50);
        ck_assert_mem_eq(p.client.at, s.at, at);
        ck_assert_uint_eq(p.client.at[at + 3], HEADERS);
        ck_assert_uint_eq(p.client.at[at + 8], 1);
        ck_assert_mem_eq(p.client.at + at + words, s.at + at, s.n - at);
        end(&p);
        begin(&p);
    }
    fini(&p);
    ngd_free(b.at);
    ngd_free(s.at);
}
END_TEST

START_TEST(a_payload_that_the_owner_sends_itself_is_passed_over)
{
    struct bytes b = make(put_begin), s = make(NULL);
    size_t words;
    struct peer p;

    init(&p);
    put_call(&b, 1, 50000, 10, 0); /* is refused */
    put_frame(&s, DATA, 0, 9, zeros, 20000);
    put_frame(&s, PING, 0, 0, zeros, 8);
    ck_assert_uint_eq(ngd_h2_guard_payload(p.guard), 0);
    ngd_h2_guard_output(p.guard, s.at, 5, p.now);
    ck_assert_uint_eq(ngd_h2_guard_payload(p.guard), 0); /* half a head */
    ngd_h2_guard_output(p.guard, s.at + 5, 4 + 100, p.now);
    ck_assert_uint_eq(ngd_h2_guard_payload(p.guard), 19900);
    say_all(&p, &b);
    ngd_h2_guard_moved(p.guard, 19000);
    ck_assert_uint_eq(ngd_h2_guard_payload(p.guard), 900);
    ck_assert_uint_eq(p.client.n, 9 + 100); /* no word inside the frame */
    words = ngd_h2_guard_late(p.guard);
    ck_assert_uint_gt(words, 50);
    ngd_h2_guard_moved(p.guard, 900);
    ck_assert_uint_eq(ngd_h2_guard_payload(p.guard), 0);
    ck_assert_uint_eq(p.client.n, 9 + 100 + words);
    ck_assert_uint_eq(ngd_h2_guard_late(p.guard), 0);
    ngd_h2_guard_output(p.guard, s.at + 9 + 20000, 9, p.now);
    ck_assert_uint_eq(ngd_h2_guard_payload(p.guard), 0); /* only of DATA */
    ngd_h2_guard_output(p.guard, s.at + 9 + 20000 + 9, 8, p.now);
    ck_assert_mem_eq(p.client.at + 9 + 100 + words, s.at + 9 + 20000, 17);
    fini(&p);
    ngd_free(b.at);
    ngd_free(s.at);
}
END_TEST

START_TEST(a_call_whose_last_payload_the_owner_sends_is_over)
{
    struct bytes b = make(put_begin), s = make(NULL);
    struct peer p;

    init(&p);
    put_call(&b, 1, 10, 10, END_STREAM);
    say_all(&p, &b);
    ck_assert_uint_eq(ngd_h2_guard_streams(p.guard), 1);
    put_frame(&s, DATA, END_STREAM, 1, zeros, 20);
    ngd_h2_guard_output(p.guard, s.at, 9, p.now);
    ngd_h2_guard_moved(p.guard, 20);
    ck_assert_uint_eq(ngd_h2_guard_streams(p.guard), 0);
    fini(&p);
    ngd_free(b.at);
    ngd_free(s.at);
}
END_TEST

START_TEST(a_goodbye_says_why)
{
    struct bytes b = make(bad_even);
    struct peer p;

    init(&p);
    ck_assert_int_eq(say_all(&p, &b).verdict, NGD_H2_CLOSE);
    ngd_h2_guard_goodbye(p.guard, true, ngd_h2_reason_text(NGD_H2_WHY_STREAM_ID));
    ck_assert_uint_eq(p.client.at[3], GOAWAY);
    ck_assert(says(&p.client, ngd_h2_reason_text(NGD_H2_WHY_STREAM_ID)));
    fini(&p);
    ngd_free(b.at);
}
END_TEST

START_TEST(memory_that_runs_out_ends_the_connection_and_leaves_nothing)
{
    struct bytes b = make(put_honest);
    struct peer p;

    init(&p);
    for (int64_t k = 0; k < 6; k++) {
        struct ngd_h2_result r = {0};

        ngd_mem_fail_after(k);
        for (size_t i = 0; i < b.n && r.verdict == NGD_H2_GO_ON; i++)
            r = ngd_h2_guard_input(p.guard, b.at + i, 1, p.now);
        ngd_mem_fail_after(-1);
        if (r.verdict == NGD_H2_CLOSE)
            ck_assert_int_eq(r.reason, NGD_H2_WHY_MEMORY);
        end(&p);
        begin(&p);
    }
    fini(&p);
    ngd_free(b.at);
}
END_TEST

UNIT_MAIN("daemon/front/h2_guard", what_an_honest_client_says_passes_unchanged_in_any_portions,
          what_no_honest_client_says_ends_the_connection_in_any_portions,
          a_header_block_that_is_not_whole_is_not_seen_by_the_server, a_message_that_is_too_large_ends_its_call_alone,
          unfinished_messages_are_charged_and_bounded,
          a_client_may_open_a_hundred_calls_until_it_has_acknowledged_settings, a_call_too_many_is_refused_by_a_status,
          a_message_that_does_not_go_on_ends_its_call_unless_the_server_holds_it_up, what_is_late_ends_the_connection,
          words_of_the_front_go_between_two_frames_of_the_server, a_payload_that_the_owner_sends_itself_is_passed_over,
          a_call_whose_last_payload_the_owner_sends_is_over, a_goodbye_says_why,
          memory_that_runs_out_ends_the_connection_and_leaves_nothing)
