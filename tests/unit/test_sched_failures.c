/* SPDX-License-Identifier: Apache-2.0 */
/* Tests bad requests, bad parameters and failures of the device:
 * each is answered with its reason and harms no other. */
#include "tests/unit/sched_util.h"
#include <stdatomic.h>

/* Capture threads run at low priority. If they held a program after an answer, clients would find it held for long. */
START_TEST(when_a_request_that_waited_for_a_capture_is_answered_only_its_binding_holds_the_program)
{
    struct bed bed;
    struct ngd_binding *b;
    struct gate gate;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    gate_init(&gate);
    call_init(&c, b, 3);
    c.in.bytes = 8; /* seen when there is a plan, so the capture thread answers */
    c.gate = &gate;
    call_submit(&bed, &c);
    gate_await(&gate, 1);
    ck_assert_uint_eq(atomic_load(&b->prog->refs), 1);
    gate_open(&gate);
    call_wait(&c);
    ck_assert_int_eq(c.status, NGD_ERR_INPUT_SIZE);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(bad_requests_are_refused_with_a_reason)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c;
    ngd_status_t status;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    for (int warm = 0; warm < 2; warm++) {
        /* Sizes can only be checked against a plan: at submission if there is one, otherwise after the capture. */
        call_init(&c, b, 3);
        c.in.bytes = 8;
        status = ngd_sched_submit(bed.sched, &c.req, &c.diag);
        if (status == NGD_OK) {
            call_wait(&c);
            status = c.status;
        }
        ck_assert_int_eq(status, NGD_ERR_INPUT_SIZE);
        call_init(&c, b, 3);
        c.req.n_inputs = 2;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_INPUT_COUNT);
        call_init(&c, b, 3);
        c.req.n_hosts = 1;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_HOST_PARAM);
        call_init(&c, b, 3);
        c.req.n_outputs = 0;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_OUTPUT_UNKNOWN);
        call_init(&c, b, 65);
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_GUARD_FAILED);
        call_init(&c, b, 3);
        c.req.n_symbols = 0;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_INVALID_ARGUMENT);
        call_init(&c, b, 3);
        c.req.launch.inputs = NULL;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_INVALID_ARGUMENT);
        bed_warm(&bed, b, 3, 1);
    }
    ck_assert_int_eq(bed_counted(&bed, NGD_M_GUARD_FAILURES), 2);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_QUEUE_DEPTH), 0);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(index_out_of_range_fails_its_request_and_nothing_else)
{
    uint64_t before = row_count(NGD_M_REPLAY_FAILURES, "INDEX_RANGE");
    static const float w[8] = {0, 1, 10, 11, 20, 21, 30, 31};
    struct bed bed;
    struct ngd_program *prog;
    struct ngd_binding *b;
    struct ngd_buffer *buf;
    struct ngd_program_stats stats;
    int32_t index[3] = {2, 0, 3};
    struct call c;

    bed_open(&bed, 1, 0);
    prog = bed_program(&bed, PICK_TEXT, NULL);
    buf = bed_buffer(&bed, w, sizeof(w), "w");
    b = bed_bind(prog, &buf);
    ngd_buffer_unref(buf);
    for (int i = 0; i < 3; i++) {
        call_init(&c, b, 6);
        c.in = (struct ngd_span){index, sizeof(index)};
        c.req.n_symbols = 0;
        index[0] = i == 1 ? 4 : 2;
        call_run(&bed, &c);
        ck_assert_int_eq(c.status, i == 1 ? NGD_ERR_INDEX_RANGE : NGD_OK);
        if (i != 1)
            ck_assert(c.y[0] == 20 && c.y[1] == 21 && c.y[2] == 0 && c.y[4] == 30);
    }
    ngd_program_stats(prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.replays, 2);
    ck_assert_uint_eq(row_count(NGD_M_REPLAY_FAILURES, "INDEX_RANGE") - before, 1);
    ngd_binding_unref(b);
    ngd_program_unref(prog);
    bed_close(&bed);
}
END_TEST

START_TEST(poisoned_stream_is_reset_and_the_graph_captured_again)
{
    uint64_t before = row_count(NGD_M_CACHE_MISSES, "poisoned");
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_program_stats stats;
    struct ngd_sched_device_stats device;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 3, 2);
    bed_settle(&bed);
    ngd_stream_poison(bed_slot(&bed, 0)->stream, NGD_ERR_DEVICE_FAULT);
    call_init(&c, b, 3);
    call_run(&bed, &c);
    ck_assert_int_eq(ngd_status_scope(c.status), NGD_SCOPE_DEVICE);
    ck_assert(c.text[0]);
    bed_warm(&bed, b, 3, 2);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 2);
    ck_assert_uint_eq(stats.replays, 4);
    ck_assert_uint_eq(row_count(NGD_M_CACHE_MISSES, "poisoned") - before, 1);
    ngd_sched_device_stats(bed.sched, 0, &device);
    ck_assert(device.healthy);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(scheduler_is_not_made_from_nonsense)
{
    struct ngd_sched_params params;
    struct ngd_sched *sched;
    struct ngd_device *dev;
    struct ngd_diag diag;
    struct bed bed;

    bed_params(&bed, &params);
    params.policy = "magic";
    ck_assert_int_eq(ngd_sched_create(&params, &sched, &diag), NGD_ERR_NOT_FOUND);
    ck_assert(strstr(diag.text, "there is: fair, fifo"));
    params.policy = "fifo";
    params.slots = 0;
    ck_assert_int_eq(ngd_sched_create(&params, &sched, &diag), NGD_ERR_INVALID_ARGUMENT);
    params.slots = 1;
    bed_start(&bed, &params);
    ck_assert_int_eq(ngd_sched_find_device(bed.sched, "", &dev, &diag), NGD_OK);
    ck_assert_ptr_eq(dev, bed.dev);
    ck_assert_int_eq(ngd_sched_find_device(bed.sched, "host:0", &dev, &diag), NGD_OK);
    ck_assert_int_eq(ngd_sched_find_device(bed.sched, "host:7", &dev, &diag), NGD_ERR_NOT_FOUND);
    ck_assert(strstr(diag.text, "there is: host:0"));
    bed_close(&bed);
}
END_TEST

START_TEST(submit_before_start_is_refused)
{
    struct ngd_sched_params params;
    struct ngd_diag diag = {0};
    struct bed bed;
    struct ngd_binding *b;
    struct call c;

    bed_params(&bed, &params);
    ck_assert_int_eq(ngd_sched_create(&params, &bed.sched, &diag), NGD_OK);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_init(&c, b, 2);
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_UNAVAILABLE);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/sched_failures",
          when_a_request_that_waited_for_a_capture_is_answered_only_its_binding_holds_the_program,
          bad_requests_are_refused_with_a_reason, index_out_of_range_fails_its_request_and_nothing_else,
          poisoned_stream_is_reset_and_the_graph_captured_again, scheduler_is_not_made_from_nonsense,
          submit_before_start_is_refused)
