/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Ascend backend on the simulator: which calls it makes, that streams suffice, and that any call of CANN may fail
 * once at any place without a crash, a wrong result or a leak.
 */
#include "tests/ascend/step.h"

START_TEST(replay_is_one_execution_one_update_for_each_host_parameter_node_and_one_wait)
{
    struct ngd_diag diag = {0};
    struct step *s = malloc(sizeof(*s));
    struct bench b;
    struct ready r;
    char *log;

    must(open_device(&b, 0, &diag), &diag);
    step_init(s, 2, 20);
    must(ready_open(&r, &b, GRAPH, &s->n, &diag), &diag);
    must(write_weight(&r), &diag);
    simulator_set("log", "1");
    must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
    log = SIMULATOR(ngd_aclsim_log)();
    ck_assert_int_eq(times_in(log, "aclmdlRICaptureBegin"), 1);
    ck_assert_int_eq(times_in(log, "aclmdlRICaptureEnd"), 1);
    ck_assert_int_eq(times_in(log, "aclmdlRICaptureTaskGrpBegin"), 1);
    /* What is forbidden in a capture is not called in it. */
    *strstr(log, "aclmdlRICaptureEnd") = '\0';
    ck_assert_ptr_null(strstr(strstr(log, "aclmdlRICaptureBegin"), "aclrtMemcpy\n"));
    ck_assert_ptr_null(strstr(strstr(log, "aclmdlRICaptureBegin"), "Synchronize"));
    ck_assert_ptr_null(strstr(strstr(log, "aclmdlRICaptureBegin"), "aclrtMalloc"));
    free(log);
    for (int i = 0; i < 3; i++) {
        const char *execute, *update, *record, *wait;

        s->keys = 20 + i; /* same shapes, other host parameters */
        SIMULATOR(ngd_aclsim_log_clear)();
        must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
        log = SIMULATOR(ngd_aclsim_log)();
        ck_assert_int_eq(times_in(log, "aclmdlRICaptureBegin"), 0);
        ck_assert_int_eq(times_in(log, "aclmdlRIExecuteAsync"), 1);
        ck_assert_int_eq(times_in(log, "aclmdlRICaptureTaskUpdateBegin"), 1);
        ck_assert_int_eq(times_in(log, "aclnnMatmul"), 0);
        ck_assert_int_eq(times_in(log, "aclrtSynchronizeStreamWithTimeout"), 1);
        execute = strstr(log, "aclmdlRIExecuteAsync");
        update = strstr(log, "aclmdlRICaptureTaskUpdateEnd");
        record = strstr(log, "aclrtRecordEvent");
        wait = strstr(log, "aclrtSynchronizeStreamWithTimeout");
        ck_assert(execute < update && update < record && record < wait);
        free(log);
    }
    ready_close(&r);
    close_device(&b);
    free(s);
    nothing_is_left("after a replay");
}
END_TEST

#define KEYS 200

START_TEST(two_hundred_captured_sizes_on_64_streams_are_all_served)
{
    static struct ready r[KEYS];
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    struct bench b;

    simulator_set("streams", "64");
    must(open_device(&b, 0, &diag), &diag);
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < KEYS; i++) {
            float x[KEYS + 1], y[KEYS + 1];
            int64_t n = i + 1;
            struct ngd_span in = {x, (uint64_t)n * 4};
            struct ngd_out out = {y, (uint64_t)n * 4};
            struct ngd_launch launch = {.symbols = &n, .inputs = &in, .outputs = &out};

            if (round == 0)
                must(ready_open(
                         &r[i], &b,
                         "npugraph 1\ngraph \"g\" {\n sym N 1..200\n input %x : f32[N]\n %y = aten.add.Tensor(%x, %x)\n"
                         " return \"y\" = %y\n}\n",
                         &n, &diag),
                     &diag);
            for (int64_t k = 0; k < n; k++)
                x[k] = (float)(k + round);
            must(ngd_stream_run(b.stream, r[i].inst, &launch), &launch.diag);
            for (int64_t k = 0; k < n; k++)
                ck_assert_float_eq(y[k], 2 * (float)(k + round));
            ck_assert_int_le(simulator_count("streams"), 64);
        }
    }
    ck_assert_int_gt(simulator_count("models"), 40); /* as many as there is room for stay captured */
    ngd_strbuf_init(&text);
    ngd_device_describe(b.dev, &text);
    ck_assert_msg(strstr(ngd_strbuf_str(&text), "eager 0") != NULL, "%s", ngd_strbuf_str(&text));
    ngd_strbuf_fini(&text);
    for (int i = 0; i < KEYS; i++)
        ready_close(&r[i]);
    close_device(&b);
    nothing_is_left("after 200 sizes");
}
END_TEST

START_TEST(capture_error_is_answered_in_our_words_and_the_next_launch_works)
{
    static const struct {
        const char *call;
        int code;
    } errors[] = {
        {"aclmdlRICaptureEnd", 107025},
        {"aclmdlRICaptureBegin", 107027},
        {"aclnnMatmul", 107028},
        {"aclmdlRICaptureEnd", 107029},
        {"aclnnMatmul", 107030},
        {"aclnnMatmul", 107031},
        {"aclmdlRICaptureEnd", 107033},
        {"aclmdlRICaptureTaskGrpBegin", 107033},
        {"aclmdlRICaptureTaskGrpEnd", 107034},
        {"aclmdlRICaptureEnd", 107036},
        {"aclmdlRICaptureEnd", 107038},
        {"aclmdlRICaptureEnd", 507903},
        {"aclrtStreamWaitEvent", 107024},
        {"aclmdlRICaptureEnd", 107026},
        {"aclrtStreamWaitEvent", 107032},
        {"aclrtMemcpyAsync", 107041},
    };
    struct step *s = malloc(sizeof(*s));
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct ready r;
        char code[16];

        step_init(s, 2, 20);
        must(ready_open(&r, &b, GRAPH, &s->n, &diag), &diag);
        must(write_weight(&r), &diag);
        SIMULATOR(ngd_aclsim_fail_call)(errors[i].call, 0, errors[i].code);
        ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &s->launch), NGD_ERR_CAPTURE_FAILED);
        snprintf(code, sizeof(code), "%d", errors[i].code);
        ck_assert_msg(strstr(s->launch.diag.text, code) && strstr(s->launch.diag.text, "ascend:0"), "%s",
                      s->launch.diag.text);
        ck_assert_int_eq(ngd_stream_status(b.stream), NGD_OK);
        must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
        ready_close(&r);
    }
    close_device(&b);
    free(s);
    nothing_is_left("after capture errors");
}
END_TEST

/* Codes 561xxx of a first phase: a refused shape, a kernel that is not there, and a broken installation. */
START_TEST(inner_error_of_an_operator_is_told_apart_with_the_text_of_cann)
{
    static const struct {
        int code;
        ngd_status_t status;
        const char *advice;
    } errors[] = {
        {561001, NGD_ERR_OP_UNSUPPORTED, "shapes"},       {561002, NGD_ERR_OP_UNSUPPORTED, "shapes"},
        {561003, NGD_ERR_OP_UNSUPPORTED, "no kernel"},    {561000, NGD_ERR_INTERNAL, "561000"},
        {561107, NGD_ERR_UNAVAILABLE, "ASCEND_OPP_PATH"}, {561108, NGD_ERR_UNAVAILABLE, "installation"},
        {561112, NGD_ERR_UNAVAILABLE, "kernels package"}, {561199, NGD_ERR_INTERNAL, "an unknown code"},
    };
    struct ngd_diag diag = {0};
    int64_t n = 2;
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct ready r = {0};
        char code[32];

        diag = (struct ngd_diag){0};
        SIMULATOR(ngd_aclsim_fail_call)("aclnnMatmulGetWorkspaceSize", 0, errors[i].code);
        ck_assert_int_eq(ready_open(&r, &b, GRAPH, &n, &diag), errors[i].status);
        snprintf(code, sizeof(code), "CANN answers %d ", errors[i].code);
        ck_assert_msg(strstr(diag.text, code) && strstr(diag.text, "was injected") &&
                          strstr(diag.text, errors[i].advice) && !strchr(diag.text, '\n'),
                      "%s", diag.text);
        ready_close(&r);
    }
    close_device(&b);
    nothing_is_left("after inner errors");
}
END_TEST

START_TEST(no_stream_for_a_capture_runs_the_graph_operator_by_operator)
{
    static const int codes[] = {NGD_ACL_RT_NO_STREAM_RESOURCE, NGD_ACL_RT_RESOURCE_ALLOC_FAIL};
    struct step *s = malloc(sizeof(*s));
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;

    must(open_device(&b, 0, &diag), &diag);
    for (int i = 0; i < 2; i++) {
        step_init(s, 2, 20);
        must(ready_open(&r, &b, GRAPH, &s->n, &diag), &diag);
        must(write_weight(&r), &diag);
        SIMULATOR(ngd_aclsim_fail_call)("aclmdlRICaptureBegin", 0, codes[i]);
        must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
        ck_assert_int_eq(simulator_count("models"), 0);
        must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
        ck_assert_int_eq(simulator_count("models"), 1);
        ready_close(&r);
    }
    close_device(&b);
    free(s);
    nothing_is_left("after eager runs");
}
END_TEST

/* Everything from open to close; results that are given are right. */
static ngd_status_t whole_life(const float *want, float *first)
{
    struct step *s = malloc(sizeof(*s));
    struct ngd_diag diag = {0};
    struct ready r = {0};
    struct bench b;
    ngd_status_t status = open_device(&b, 0, &diag);

    step_init(s, 3, 20);
    if (!status)
        status = ready_open(&r, &b, GRAPH, &s->n, &diag);
    if (!status)
        status = write_weight(&r);
    for (int i = 0; i < 4 && !status; i++) {
        s->launch.eager = i == 3;
        status = ngd_stream_run(b.stream, r.inst, &s->launch);
        if (status && ngd_stream_status(b.stream))
            ngd_stream_reset(b.stream);
        if (!status && want)
            for (int64_t k = 0; k < s->n * 32; k++)
                ck_assert_msg(s->y[k] == want[k], "launch %d: element %d is %g, not %g", i, (int)k, (double)s->y[k],
                              (double)want[k]);
        if (!status && first)
            memcpy(first, s->y, sizeof(s->y));
    }
    if (r.graph)
        ready_close(&r);
    if (b.dev)
        close_device(&b);
    free(s);
    return status;
}

static float right[64 * 32];

static ngd_status_t right_life(void)
{
    return whole_life(right, NULL);
}

/* Which is when its graph is captured, and as long as that is not given up. */
START_TEST(instance_is_ready_when_its_launch_captures_nothing)
{
    struct step *s = malloc(sizeof(*s));
    struct ngd_diag diag = {0};
    struct ngd_stream *other;
    struct bench b;
    struct ready r;

    must(open_device(&b, 0, &diag), &diag);
    must(ngd_stream_create(b.dev, "other", &other, &diag), &diag);
    step_init(s, 2, 20);
    must(ready_open(&r, &b, GRAPH, &s->n, &diag), &diag);
    must(write_weight(&r), &diag);
    ck_assert(!ngd_instance_ready(r.inst, b.stream));
    must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
    ck_assert(ngd_instance_ready(r.inst, b.stream));
    ck_assert(!ngd_instance_ready(r.inst, other));
    must(ngd_stream_run(other, r.inst, &s->launch), &s->launch.diag);
    ck_assert(ngd_instance_ready(r.inst, other) && !ngd_instance_ready(r.inst, b.stream));
    ready_close(&r);
    ngd_stream_destroy(other);
    close_device(&b);
    free(s);
    nothing_is_left("after instances that were ready");
}
END_TEST

START_TEST(any_call_of_cann_may_fail_once_without_a_crash_a_wrong_result_or_a_leak)
{
    ck_assert_int_eq(whole_life(NULL, right), NGD_OK);
    each_call_of_a_device_fails_once(right_life);
}
END_TEST

START_TEST(cann_8_1_gives_the_results_of_newer_versions)
{
    static float want[64 * 32];

    ck_assert_int_eq(whole_life(NULL, want), NGD_OK);
    simulator_set("api", "8.1");
    ck_assert_int_eq(whole_life(want, NULL), NGD_OK);
    nothing_is_left("with 8.1");
}
END_TEST

UNIT_MAIN("ascend/backend", replay_is_one_execution_one_update_for_each_host_parameter_node_and_one_wait,
          two_hundred_captured_sizes_on_64_streams_are_all_served,
          capture_error_is_answered_in_our_words_and_the_next_launch_works,
          inner_error_of_an_operator_is_told_apart_with_the_text_of_cann,
          no_stream_for_a_capture_runs_the_graph_operator_by_operator,
          instance_is_ready_when_its_launch_captures_nothing,
          any_call_of_cann_may_fail_once_without_a_crash_a_wrong_result_or_a_leak,
          cann_8_1_gives_the_results_of_newer_versions)
