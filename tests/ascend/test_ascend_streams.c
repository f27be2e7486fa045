/* SPDX-License-Identifier: Apache-2.0 */
/* Streams inside a graph: forked and joined in its capture, within their limits of cores. */
#include "tests/ascend/step.h"

#define FORKED                                                                                                \
    "npugraph 1\ngraph \"fork\" {\n input %x : f32[4,16]\n %a = aten.neg(%x)\n stream \"side\" {\n"           \
    " limit_core_num 4, 9 {\n %b = aten.exp(%a)\n }\n %c = aten.neg(%b)\n }\n %d = aten.sub.Tensor(%a, %c)\n" \
    " return \"d\" = %d\n}\n"

struct fork_run {
    float x[64], y[64];
    struct ngd_span in;
    struct ngd_out out;
    struct ngd_launch launch;
};

static void run_fork(struct bench *b, struct ready *r, struct fork_run *f)
{
    for (int i = 0; i < 64; i++)
        f->x[i] = (float)(i % 7) / 8;
    f->in = (struct ngd_span){f->x, sizeof(f->x)};
    f->out = (struct ngd_out){f->y, sizeof(f->y)};
    f->launch = (struct ngd_launch){.inputs = &f->in, .outputs = &f->out};
    must(ngd_stream_run(b->stream, r->inst, &f->launch), &f->launch.diag);
    for (int i = 0; i < 64; i++)
        ck_assert_float_eq_tol(f->y[i], expf(-f->x[i]) - f->x[i], 1e-5f);
}

START_TEST(side_stream_is_forked_and_joined_in_the_capture_within_its_limit_of_cores)
{
    struct ngd_diag diag = {0};
    struct fork_run f;
    struct bench b;
    struct ready r;
    int64_t limited = simulator_count("limited");
    char *log;

    must(open_device(&b, 0, &diag), &diag);
    must(ready_open(&r, &b, FORKED, NULL, &diag), &diag);
    ck_assert_int_eq(simulator_count("limited") - limited, 1); /* while planning */
    simulator_set("log", "1");
    SIMULATOR(ngd_aclsim_log_clear)();
    run_fork(&b, &r, &f);
    log = SIMULATOR(ngd_aclsim_log)();
    ck_assert_int_eq(simulator_count("limited") - limited, 2); /* and in the capture */
    ck_assert_int_eq(times_in(log, "aclrtSetStreamResLimit"), 2);
    ck_assert_int_eq(times_in(log, "aclrtUseStreamResInCurrentThread"), 1);
    ck_assert_int_eq(times_in(log, "aclrtUnuseStreamResInCurrentThread"), 1);
    /* The fork, what the side waits for, what the main stream waits for, the join: each a record and a wait. */
    ck_assert_int_eq(times_in(log, "aclrtRecordEvent"), 4);
    ck_assert_int_eq(times_in(log, "aclrtStreamWaitEvent"), 4);
    free(log);
    SIMULATOR(ngd_aclsim_log_clear)();
    run_fork(&b, &r, &f);
    log = SIMULATOR(ngd_aclsim_log)();
    ck_assert_int_eq(times_in(log, "aclrtRecordEvent"), 0); /* a replay is one execution */
    free(log);
    simulator_set("log", "0");
    ready_close(&r);
    close_device(&b);
    nothing_is_left("after side streams");
}
END_TEST

START_TEST(graph_whose_side_streams_find_no_room_runs_on_one_stream)
{
    struct ngd_diag diag = {0};
    struct fork_run f;
    struct bench b;
    struct ready r;
    int64_t events;
    char all[32];

    must(open_device(&b, 0, &diag), &diag);
    must(ready_open(&r, &b, FORKED, NULL, &diag), &diag);
    snprintf(all, sizeof(all), "%lld", (long long)simulator_count("streams") + 2);
    simulator_set("streams", all); /* the limits' stream and one for a capture, and none at its side */
    events = simulator_count("events");
    run_fork(&b, &r, &f);
    run_fork(&b, &r, &f);
    ck_assert_int_eq(simulator_count("events"), events);
    simulator_set("streams", "1984");
    ready_close(&r);
    close_device(&b);
    nothing_is_left("without side streams");
}
END_TEST

START_TEST(cann_8_1_keeps_no_limits_of_cores_and_gives_the_same)
{
    struct ngd_diag diag = {0};
    struct fork_run f;
    struct bench b;
    struct ready r;
    int64_t limited = simulator_count("limited");

    simulator_set("api", "8.1");
    must(open_device(&b, 0, &diag), &diag);
    must(ready_open(&r, &b, FORKED, NULL, &diag), &diag);
    run_fork(&b, &r, &f);
    ck_assert_int_eq(simulator_count("limited"), limited);
    ready_close(&r);
    close_device(&b);
    simulator_set("api", "9.1");
    nothing_is_left("8.1");
}
END_TEST

UNIT_MAIN("ascend/streams", side_stream_is_forked_and_joined_in_the_capture_within_its_limit_of_cores,
          graph_whose_side_streams_find_no_room_runs_on_one_stream,
          cann_8_1_keeps_no_limits_of_cores_and_gives_the_same)
