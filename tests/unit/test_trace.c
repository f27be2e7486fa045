/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, endpoints, the sampling's decision and the bounds of a record; tests/rpc/test_trace.py has the rest. */
#include "daemon/trace/trace.h"
#include "tests/unit/unit.h"
#include <string.h>

#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static bool parses(const char *text, struct ngd_trace_context *context)
{
    return ngd_trace_context_parse(text, strlen(text), context);
}

START_TEST(context_is_read_if_it_is_well_formed)
{
    static const char *const bad[] = {
        "",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.x",
        "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    };
    struct ngd_trace_context context;
    uint8_t packed[NGD_TRACE_PARENT_BYTES];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!parses(bad[i], &context), "%s", bad[i]);
    ck_assert(parses("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02-more", &context) && !context.sampled);
    ck_assert(parses(PARENT, &context) && context.sampled);
    ck_assert_int_eq(context.trace[0], 0x4b);
    ck_assert_int_eq(context.span[7], 0xb7);
    memcpy(packed, context.trace, NGD_TRACE_ID);
    memcpy(packed + NGD_TRACE_ID, context.span, NGD_SPAN_ID);
    packed[24] = 0xff;
    ck_assert(ngd_trace_context_unpack(packed, sizeof(packed), &context) && context.sampled);
    ck_assert(!ngd_trace_context_unpack(packed, sizeof(packed) - 1, &context));
    memset(packed, 0, NGD_TRACE_ID);
    ck_assert(!ngd_trace_context_unpack(packed, sizeof(packed), &context));
}
END_TEST

START_TEST(state_is_bounded)
{
    struct ngd_trace_context context = {.state = ""};
    char most[NGD_TRACE_STATE_MAX];

    memset(most, 'a', sizeof(most));
    ck_assert(ngd_trace_context_add_state(&context, "a=1", 3) && ngd_trace_context_add_state(&context, "b=2", 3));
    ck_assert_str_eq(context.state, "a=1,b=2");
    ck_assert(!ngd_trace_context_add_state(&context, most, sizeof(most)));
    ck_assert_str_eq(context.state, "");
    ck_assert(ngd_trace_context_add_state(&context, most, sizeof(most)));
    ck_assert(!ngd_trace_context_add_state(&context, "", 0)); /* the comma */
    ck_assert(!ngd_trace_context_add_state(&context, "a\n", 2) &&
              !ngd_trace_context_add_state(&context, "\xc3\xa4", 2));
}
END_TEST

START_TEST(endpoint_has_host_port_and_path)
{
    static const char *const bad[] = {"",           "x",          "http:",           "http://",        "https://a",
                                      "http://a:0", "http://a:x", "http://a:70000",  "http://[::1",    "http://[::1]x",
                                      "http://a b", "unix:x",     "http://u@h/path", "http://a\r\nb/", "http://:1/"};
    struct ngd_trace_endpoint e;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!ngd_trace_endpoint_parse(bad[i], &e), "%s", bad[i]);
    ck_assert(ngd_trace_endpoint_parse("http://otel", &e));
    ck_assert_str_eq(e.host, "otel");
    ck_assert_str_eq(e.port, "4318");
    ck_assert_str_eq(e.path, "/v1/traces");
    ck_assert(ngd_trace_endpoint_parse("http://[::1]:80/otlp?x=1", &e));
    ck_assert_str_eq(e.host, "::1");
    ck_assert_str_eq(e.port, "80");
    ck_assert_str_eq(e.path, "/otlp?x=1");
    ck_assert_str_eq(e.authority, "[::1]:80");
    ck_assert(ngd_trace_endpoint_parse("unix:/run/o", &e) && e.local);
    ck_assert_str_eq(e.host, "/run/o");
}
END_TEST

/* A tracer that decides, and sends nothing. */
static uint32_t count_traced(double sample, uint32_t n)
{
    struct ngd_tracer tracer = {.threshold = (uint64_t)(sample * (double)(UINT64_C(1) << 56))};
    struct ngd_trace_ids ids;
    uint32_t traced = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t low = 0;

        if (!ngd_trace_decide(&tracer, NULL, &ids))
            continue;
        for (int k = 9; k < 16; k++)
            low = low << 8 | ids.trace[k];
        ck_assert_uint_lt(low, tracer.threshold); /* others who see the id decide the same */
        traced++;
    }
    return traced;
}

START_TEST(decision_follows_the_id_and_the_parent)
{
    struct ngd_tracer tracer = {.threshold = 0};
    struct ngd_trace_context parent;
    struct ngd_trace_ids ids;
    double sample;

    ck_assert_uint_eq(count_traced(0, 1000), 0);
    ck_assert_uint_eq(count_traced(1, 1000), 1000);
    ck_assert_uint_gt(count_traced(0.25, 10000), 2000);
    ck_assert_uint_lt(count_traced(0.25, 10000), 3000);
    ck_assert(parses(PARENT, &parent) && ngd_trace_decide(&tracer, &parent, &ids));
    ck_assert_mem_eq(ids.trace, parent.trace, NGD_TRACE_ID);
    ck_assert_mem_ne(ids.span, parent.span, NGD_SPAN_ID);
    parent.sampled = false;
    tracer.threshold = UINT64_C(1) << 56;
    ck_assert(!ngd_trace_decide(&tracer, &parent, &ids));
    ck_assert(ngd_trace_sample_parse("0.5", &sample) && sample == 0.5 && ngd_trace_sample_parse("1", &sample));
    ck_assert(!ngd_trace_sample_parse("", &sample) && !ngd_trace_sample_parse("1.1", &sample));
    ck_assert(!ngd_trace_sample_parse("nan", &sample) && !ngd_trace_sample_parse("1e-2", &sample));
}
END_TEST

START_TEST(parts_stay_inside_and_are_bounded)
{
    const struct ngd_trace_ids ids = {{1}, {1}};
    struct ngd_trace_record r;
    int outer;

    ngd_trace_begin(&r, &ids, NULL, 100);
    outer = ngd_trace_record_part(&r, NGD_TRACE_QUEUE, NGD_TRACE_TOP, 50, 200);
    ck_assert_int_eq(outer, 0);
    ck_assert_int_eq(r.parts[0].begin, 100);
    ck_assert_int_eq(ngd_trace_record_part(&r, NGD_TRACE_CAPTURE, outer, 150, 300), 1);
    ck_assert_int_eq(r.parts[1].end, 200);
    ck_assert_int_eq(ngd_trace_record_part(&r, NGD_TRACE_PLAN, outer, 250, 300), -1);
    ck_assert_int_eq(ngd_trace_record_part(&r, NGD_TRACE_PLAN, NGD_TRACE_TOP, 150, 150), -1);
    for (int i = 0; i < 100; i++) {
        ngd_trace_record_part(&r, NGD_TRACE_REPLAY, NGD_TRACE_TOP, 300, 400);
        ngd_trace_record_number(&r, "n", i);
    }
    ck_assert_uint_eq(r.n_parts, NGD_TRACE_RECORD_PARTS);
    ck_assert_uint_eq(r.n_numbers, NGD_TRACE_RECORD_NUMBERS);
    ngd_trace_record_name(&r, "npugraph.graph", "a\xc3\xa4\xff rest");
    ck_assert_str_eq(r.name, "a\xc3\xa4");
}
END_TEST

UNIT_MAIN("daemon/trace", context_is_read_if_it_is_well_formed, state_is_bounded, endpoint_has_host_port_and_path,
          decision_follows_the_id_and_the_parent, parts_stay_inside_and_are_bounded)
