/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Ascend backend on the simulator: which calls it makes, that streams suffice, and that any call of CANN may fail
 * once at any place without a crash, a wrong result or a leak.
 */
#include "tests/ascend/simulated.h"
#include "devices/checkup.h"
#include "devices/comm.h"
#include "devices/device_int.h"
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* Attention over a paged cache, so that there are host parameters; a product with workspace; a cast. */
#define BODY(symbol)                                                                                             \
    "npugraph 1\ngraph \"step\" {\n " symbol "\n param %w : bf16[32,32]\n state %k : bf16[4,16,1,16]\n"          \
    " state %v : bf16[4,16,1,16]\n input %x : f32[N,32]\n input %slots : i32[N]\n input %bt : i32[1,4]\n"        \
    " host %ql : i64[1]\n host %kl : i64[1]\n %y = aten.linear(%x, %w)\n %q = aten.view(%y) {size=[N, 2, 16]}\n" \
    " %h = aten.slice.Tensor(%x) {dim=1, start=0, end=16}\n %n = aten.view(%h) {size=[N, 1, 16]}\n"              \
    " npu.scatter_pa_kv_cache(%n, %n, %slots, %k, %v)\n"                                                         \
    " %a = npu.fused_infer_attention_score(%q, %k, %v, %bt, %ql, %kl) {num_heads=2, num_key_value_heads=1, "     \
    "scale=0.25, block_size=16}\n return \"a\" = %a\n}\n"
#define GRAPH  BODY("sym N 1..64")
#define PADDED BODY("sym N 1..64 buckets 4, 16, 64")

#define LIMIT_MS "2000"

static void params_of(struct ngd_device_params *params, uint32_t index)
{
    simulated_params(params, index, LIMIT_MS);
}

static ngd_status_t open_device(struct bench *b, uint32_t index, struct ngd_diag *diag)
{
    return simulated_open(b, index, LIMIT_MS, diag);
}

/* ---- a launch of GRAPH --------------------------------------------------------------------------- */

struct step {
    float x[64 * 32], y[64 * 32];
    int32_t slots[64], table[4];
    int64_t n, queries, keys;
    struct ngd_span in[3];
    struct ngd_host_value hosts[2];
    struct ngd_out out[1];
    struct ngd_launch launch;
};

static void step_init(struct step *s, int64_t n, int64_t keys)
{
    memset(s, 0, sizeof(*s));
    s->n = s->queries = n;
    s->keys = keys;
    for (int64_t i = 0; i < n * 32; i++)
        s->x[i] = sinf((float)i);
    for (int64_t i = 0; i < n; i++)
        s->slots[i] = (int32_t)(keys - n + i);
    for (int i = 0; i < 4; i++)
        s->table[i] = i;
    s->in[0] = (struct ngd_span){s->x, (uint64_t)n * 128};
    s->in[1] = (struct ngd_span){s->slots, (uint64_t)n * 4};
    s->in[2] = (struct ngd_span){s->table, sizeof(s->table)};
    s->hosts[0] = (struct ngd_host_value){&s->queries, 1};
    s->hosts[1] = (struct ngd_host_value){&s->keys, 1};
    s->out[0] = (struct ngd_out){s->y, sizeof(s->y)};
    s->launch = (struct ngd_launch){.symbols = &s->n, .inputs = s->in, .hosts = s->hosts, .outputs = s->out};
}

static ngd_status_t write_weight(struct ready *r)
{
    uint16_t w[32 * 32];

    for (int i = 0; i < 32 * 32; i++)
        w[i] = ngd_f32_to_bf16(cosf((float)i) / 8);
    return ngd_buffer_write(r->bound[0], 0, w, sizeof(w), NULL);
}

/* ---- tests --------------------------------------------------------------------------------------------------------
 */

/* The log between two marks has the word as often as wanted. */
static int times_in(const char *log, const char *name)
{
    size_t n = strlen(name);
    int found = 0;

    for (const char *p = log; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        found += strncmp(p, name, n) == 0 && p[n] == '\n';
    return found;
}

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

START_TEST(any_call_of_cann_may_fail_once_without_a_crash_a_wrong_result_or_a_leak)
{
    ck_assert_int_eq(whole_life(NULL, right), NGD_OK);
    each_call_of_a_device_fails_once(right_life);
}
END_TEST

/* ---- devices that do not open -------------------------------------------------------------------- */

static void refused_with(ngd_status_t status, const char *a, const char *b)
{
    struct ngd_device_params params;
    struct ngd_device *dev = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t got;

    params_of(&params, 0);
    got = ngd_device_open(&params, &dev, &diag);
    ck_assert_msg(got == status, "%s: %s", ngd_status_name(got), diag.text);
    ck_assert_msg(strstr(diag.text, a) && strstr(diag.text, b), "\"%s\" and \"%s\" are not in \"%s\"", a, b, diag.text);
    nothing_is_left(a);
}

static void touch(const char *dir, const char *name, int mode)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fchmod(fd, (mode_t)mode), 0);
    close(fd);
}

static void clear(const char *dir)
{
    static const char *const names[] = {"davinci0", "davinci_manager", "devmm_svm", "hisi_hdc"};
    char path[300];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

START_TEST(device_that_does_not_open_names_the_node_that_is_missing_or_closed)
{
    char dir[] = "/tmp/ngd_nodes_XXXXXX";

    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("NGD_ASCEND_DEV_ROOT", dir, 1);
    simulator_set("devices", "0");
    refused_with(NGD_ERR_NOT_FOUND, "CANN sees 0", "davinci0 is not there");
    touch(dir, "davinci0", 0600);
    refused_with(NGD_ERR_NOT_FOUND, "davinci_manager is not there", "HDK");
    if (geteuid() != 0) { /* root may do anything */
        touch(dir, "davinci_manager", 0);
        refused_with(NGD_ERR_NOT_FOUND, "davinci_manager cannot be read", "HwHiAiUser");
    }
    touch(dir, "davinci_manager", 0600);
    touch(dir, "devmm_svm", 0600);
    touch(dir, "hisi_hdc", 0600);
    refused_with(NGD_ERR_NOT_FOUND, "CANN sees 0", "npu-smi info");
    simulator_set("devices", "1");
    SIMULATOR(ngd_aclsim_fail_call)("aclrtCreateContext", 0, 207006);
    refused_with(NGD_ERR_PERMISSION_DENIED, "207006", "HwHiAiUser");
    unsetenv("NGD_ASCEND_DEV_ROOT");
    clear(dir);
}
END_TEST

static const struct ngd_checkup_step *find_step(const struct ngd_checkup *report, const char *name)
{
    for (uint32_t i = 0; i < report->n_steps; i++)
        if (strcmp(report->steps[i].name, name) == 0)
            return &report->steps[i];
    ck_abort_msg("no step \"%s\"", name);
}

/* A driver may take an open and a close of a node that is in use for more than a look at it. */
START_TEST(nodes_are_tried_except_those_that_the_process_has_open)
{
    void (*examine)(uint32_t, bool, struct ngd_checkup *) = ngd_backend_find("ascend")->lifecycle.examine;
    struct ngd_checkup *report = ngd_calloc(1, sizeof(*report));
    char dir[] = "/tmp/ngd_nodes_XXXXXX", path[64];
    int fd;

    ck_assert_ptr_nonnull(report);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("NGD_ASCEND_DEV_ROOT", dir, 1);
    touch(dir, "davinci0", 0600);
    touch(dir, "davinci_manager", 0600);
    snprintf(path, sizeof(path), "%s/davinci_manager", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    examine(0, false, report);
    ck_assert_str_eq(find_step(report, "node davinci0")->verdict, "passed");
    ck_assert_ptr_nonnull(strstr(find_step(report, "node davinci0")->text, "can open it"));
    ck_assert_str_eq(find_step(report, "node davinci_manager")->verdict, "passed");
    ck_assert_ptr_nonnull(strstr(find_step(report, "node davinci_manager")->text, "has it open"));
    ck_assert_str_eq(find_step(report, "node devmm_svm")->verdict, "failed");
    close(fd);
    memset(report, 0, sizeof(*report));
    examine(0, true, report);
    ck_assert_ptr_nonnull(strstr(find_step(report, "node davinci_manager")->text, "can open it"));
    ck_assert_str_eq(find_step(report, "node devmm_svm")->verdict, "missing");
    ngd_free(report);
    unsetenv("NGD_ASCEND_DEV_ROOT");
    clear(dir);
}
END_TEST

START_TEST(device_that_others_use_is_refused_when_nothing_is_left_and_names_how_to_see_who)
{
    struct ngd_diag diag = {0};
    struct bench b;

    simulator_set("hbm", "1G");
    simulator_set("taken", "1020M");
    refused_with(NGD_ERR_NO_DEVICE_MEMORY, "others use all but 4 MiB of its 1024 MiB", "npu-smi info");
    SIMULATOR(ngd_aclsim_fail_call)("aclrtCreateContext", 0, 507033); /* of another container */
    refused_with(NGD_ERR_DEVICE_LOST, "507033", "another container or process may hold the device");
    simulator_set("taken", "0");
    simulator_set("hbm", "4G");
    must(open_device(&b, 0, &diag), &diag);
    close_device(&b);
}
END_TEST

/* A library whose function is a shell that answers something of its own. */
START_TEST(codes_that_nobody_knows_are_answered_with_their_number_and_the_call)
{
    static const struct {
        const char *call;
        int code;
        const char *words;
    } cases[] = {
        {"aclrtCreateContext", 4242, "answers 4242 (an unknown code)"},
        {"aclrtGetMemInfo", -1, "answers -1 (an unknown code)"},
        {"aclrtGetDeviceCount", 578123, "an unknown code of the device"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        SIMULATOR(ngd_aclsim_fail_call)(cases[i].call, 0, cases[i].code);
        refused_with(cases[i].code > 500000 ? NGD_ERR_DEVICE_FAULT : NGD_ERR_INTERNAL, cases[i].words, "ascend:0");
    }
}
END_TEST

/* ---- streams inside a graph ---------------------------------------------------------------------- */

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

/* ---- groups -------------------------------------------------------------------------------------- */

#define SUM_GRAPH                                                                             \
    "npugraph 1\ngraph \"sum\" {\n input %x : f32[4]\n %a = _c10d_functional.all_reduce(%x) " \
    "{reduce_op=\"sum\", group_name=\"tp\"}\n %y = aten.neg(%a)\n return \"y\" = %y\n}\n"

struct pair {
    struct bench b[2];
    struct ready r[2];
    struct ngd_comm *comm;
    float x[2][4], y[2][4];
    struct ngd_span in[2];
    struct ngd_out out[2];
    struct ngd_launch launch[2];
};

static ngd_status_t open_pair(struct pair *p, struct ngd_diag *diag)
{
    struct ngd_device *devices[2];
    struct ngd_comm_params params;
    ngd_status_t status = NGD_OK;

    memset(p, 0, sizeof(*p));
    for (uint32_t r = 0; r < 2 && !status; r++) {
        status = open_device(&p->b[r], r, diag);
        devices[r] = p->b[r].dev;
    }
    ngd_comm_params_init(&params);
    params.name = "tp";
    params.devices = devices;
    params.n = 2;
    if (!status)
        status = ngd_comm_create(&params, &p->comm, diag);
    for (uint32_t r = 0; r < 2 && !status; r++)
        status = ready_open_in(&p->r[r], &p->b[r], &p->comm, 1, SUM_GRAPH, NULL, diag);
    return status;
}

static void close_pair(struct pair *p)
{
    for (int r = 0; r < 2; r++)
        if (p->r[r].graph)
            ready_close(&p->r[r]);
    ngd_comm_destroy(p->comm);
    for (int r = 0; r < 2; r++)
        if (p->b[r].dev)
            close_device(&p->b[r]);
}

/* Both ranks; the first error. */
static ngd_status_t launch_pair(struct pair *p, int turn)
{
    ngd_status_t status = NGD_OK;

    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 4; i++)
            p->x[r][i] = (float)(turn + i + 10 * r);
        p->in[r] = (struct ngd_span){p->x[r], sizeof(p->x[r])};
        p->out[r] = (struct ngd_out){p->y[r], sizeof(p->y[r])};
        p->launch[r] = (struct ngd_launch){.inputs = &p->in[r], .outputs = &p->out[r], .eager = turn == 2};
        p->launch[r].status = NGD_ERR_INTERNAL; /* until it has run, or is refused */
        (void)ngd_stream_launch(p->b[r].stream, p->r[r].inst, &p->launch[r]);
    }
    for (int r = 0; r < 2; r++) {
        ngd_stream_sync(p->b[r].stream);
        if (!status)
            status = p->launch[r].status;
        for (int i = 0; i < 4 && !p->launch[r].status; i++)
            ck_assert_float_eq(p->y[r][i], (float)-(2 * (turn + i) + 10));
    }
    return status;
}

/* Also after an error and a reset. */
static ngd_status_t life_of_a_pair(void)
{
    struct ngd_diag diag = {0};
    struct pair p;
    ngd_status_t status = open_pair(&p, &diag), first = status;

    for (int turn = 0; turn < 3 && !status; turn++) {
        status = launch_pair(&p, turn);
        if (!status)
            continue;
        first = status;
        for (int r = 0; r < 2; r++)
            ngd_stream_reset(p.b[r].stream);
        status = ngd_comm_reset(p.comm, &diag);
    }
    close_pair(&p);
    return first;
}

START_TEST(any_call_of_cann_may_fail_once_in_a_group_and_no_rank_waits_for_ever)
{
    static const int codes[] = {107000, 207001, 15, 507015};
    int64_t before = simulator_count("calls"), n;
    struct sweep sweep;

    simulator_set("devices", "2");
    ck_assert_int_eq(life_of_a_pair(), NGD_OK);
    simulator_set("hccl_connect_ms", "100"); /* for a rank that fails before its first collective */
    nothing_is_left("without a fault");
    n = simulator_count("calls") - before;
    ck_assert_int_gt(n, 80);
    sweep = each_call_fails_once(life_of_a_pair, n, codes, "calls of a group that fail once");
    ck_assert_int_gt(sweep.failed, sweep.tried / 20);
    simulator_set("devices", "1");
}
END_TEST

START_TEST(losing_one_of_two_devices_is_reported_and_the_other_serves_on)
{
    struct step *s = malloc(sizeof(*s));
    struct ngd_diag diag = {0};
    struct bench b[2];
    struct ready r[2];

    simulator_set("devices", "2");
    for (uint32_t i = 0; i < 2; i++) {
        must(open_device(&b[i], i, &diag), &diag);
        step_init(s, 2, 20);
        must(ready_open(&r[i], &b[i], GRAPH, &s->n, &diag), &diag);
        must(write_weight(&r[i]), &diag);
        must(ngd_stream_run(b[i].stream, r[i].inst, &s->launch), &s->launch.diag);
    }
    SIMULATOR(ngd_aclsim_break)(1, "lost");
    for (int i = 0; i < 3; i++) {
        ngd_status_t status = ngd_stream_run(b[1].stream, r[1].inst, &s->launch);

        ck_assert_int_eq(status, i == 0 ? NGD_ERR_DEVICE_LOST : NGD_ERR_STREAM_ERROR);
        must(ngd_stream_run(b[0].stream, r[0].inst, &s->launch), &s->launch.diag);
    }
    ngd_stream_reset(b[1].stream);
    ck_assert_int_ne(ngd_stream_status(b[1].stream), NGD_OK); /* a reset does not bring it back */
    SIMULATOR(ngd_aclsim_break)(1, "ok");
    ngd_stream_reset(b[1].stream);
    ck_assert_int_eq(ngd_stream_status(b[1].stream), NGD_OK);
    must(ngd_stream_run(b[1].stream, r[1].inst, &s->launch), &s->launch.diag);
    for (uint32_t i = 0; i < 2; i++) {
        ready_close(&r[i]);
        close_device(&b[i]);
    }
    free(s);
    nothing_is_left("after a loss");
}
END_TEST

START_TEST(indices_outside_their_tensor_never_reach_the_device)
{
    const int64_t violations = simulator_count("violations"); /* those of other tests in the same process */
    struct step *s = malloc(sizeof(*s));
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;

    must(open_device(&b, 0, &diag), &diag);
    step_init(s, 2, 20);
    must(ready_open(&r, &b, GRAPH, &s->n, &diag), &diag);
    must(write_weight(&r), &diag);
    s->slots[1] = 64;
    ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &s->launch), NGD_ERR_INDEX_RANGE);
    s->slots[1] = -1; /* writes nothing */
    must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
    s->table[1] = 4;
    ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &s->launch), NGD_ERR_INDEX_RANGE);
    s->table[1] = 1;
    s->table[3] = -7; /* beyond the context: not read */
    must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
    s->keys = 65;
    ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &s->launch), NGD_ERR_INDEX_RANGE);
    ck_assert_int_eq(simulator_count("violations"), violations);
    ready_close(&r);
    close_device(&b);
    free(s);
}
END_TEST

/* A prompt of 5 rows in a graph of 16: the 11 others write nothing, with and without an operator that skips them. */
START_TEST(scattered_indices_are_read_before_the_device_does)
{
    static const char *const ops[] = {"aten.scatter.src(%x, %i, %v) {dim=0}", "aten.scatter_add(%x, %i, %v) {dim=0}",
                                      "aten.scatter.value(%x, %i) {dim=0, value=7}"};
    static const float want[3][6] = {{1, 20, 30, 4, 10, 40}, {1, 22, 33, 4, 15, 46}, {1, 7, 7, 4, 7, 7}};
    const float x[6] = {1, 2, 3, 4, 5, 6}, v[4] = {10, 20, 30, 40};
    int64_t index[4] = {2, 0, 1, 2};
    const struct ngd_span in[3] = {{x, sizeof(x)}, {index, sizeof(index)}, {v, sizeof(v)}};
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (int k = 0; k < 3; k++) {
        float y[6];
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.inputs = in, .outputs = &out};
        struct ready r;
        char text[400];

        snprintf(text, sizeof(text),
                 "npugraph 1\ngraph \"s\" {\n input %%x : f32[3,2]\n input %%i : i64[2,2]\n input %%v : f32[2,2]\n"
                 " %%y = %s\n return \"y\" = %%y\n}\n",
                 ops[k]);
        must(ready_open(&r, &b, text, NULL, &diag), &diag);
        index[3] = 2;
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        for (int i = 0; i < 6; i++)
            ck_assert_float_eq(y[i], want[k][i]);
        index[3] = 3;
        ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &launch), NGD_ERR_INDEX_RANGE);
        ck_assert_int_eq(ngd_stream_status(b.stream), NGD_OK);
        ready_close(&r);
    }
    close_device(&b);
    nothing_is_left("after scatters");
}
END_TEST

#define PUT(symbol, body)                                                                                      \
    "npugraph 1\ngraph \"p\" {\n " symbol "\n input %x : f32[3,2]\n input %i : i64[B]\n input %v : f32[B,2]\n" \
    " %y = aten.index_put(%x, %i, %v)" body "\n return \"y\" = %y\n}\n"

START_TEST(index_put_writes_the_rows_that_there_are_and_no_padding)
{
    static const float want[2][6] = {{1, 2, 30, 40, 10, 20}, {1, 2, 33, 44, 15, 26}};
    const float x[6] = {1, 2, 3, 4, 5, 6}, v[4] = {10, 20, 30, 40};
    int64_t index[2] = {2, 1}, rows = 2;
    const struct ngd_span in[3] = {{x, sizeof(x)}, {index, sizeof(index)}, {v, sizeof(v)}};
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (int k = 0; k < 2; k++) { /* the first one with two rows of padding */
        float y[6];
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.symbols = &rows, .inputs = in, .outputs = &out};
        struct ready r;

        must(ready_open(&r, &b, k ? PUT("sym B 1..8", " {accumulate=true}") : PUT("sym B 1..8 buckets 4, 8", ""), &rows,
                        &diag),
             &diag);
        index[1] = k ? -2 : 1; /* the same */
        for (int eager = 0; eager < 2; eager++) {
            launch.eager = eager;
            must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
            for (int i = 0; i < 6; i++)
                ck_assert_float_eq(y[i], want[k][i]);
        }
        for (int wrong = -4; wrong < 4; wrong += 7) {
            index[1] = wrong;
            ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &launch), NGD_ERR_INDEX_RANGE);
            ck_assert_int_eq(ngd_stream_status(b.stream), NGD_OK);
        }
        ready_close(&r);
    }
    close_device(&b);
    nothing_is_left("after index_put");
}
END_TEST

START_TEST(writes_whose_padding_would_show_are_refused_by_name)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {PUT("sym B 1..8 buckets 4, 8", " {accumulate=true}"), "would be added"},
        {PUT("sym B 0..8 buckets 4, 8", ""), "symbol B, which may be 0"},
        {"npugraph 1\ngraph \"p\" {\n sym B 0..8 buckets 4, 8\n input %x : f32[3,2]\n input %i : i64[B]\n"
         " input %v : f32[B,2]\n %y = aten.index_copy(%x, %i, %v) {dim=0}\n return \"y\" = %y\n}\n",
         "symbol B, which may be 0"},
    };
    struct bench b;
    int64_t rows = 2;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_diag diag = {0};
        struct ready r;

        must(open_device(&b, 0, &diag), &diag);
        ck_assert_msg(ready_open(&r, &b, cases[i].text, &rows, &diag) == NGD_ERR_OP_UNSUPPORTED, "%s", diag.text);
        ck_assert_msg(strstr(diag.text, cases[i].words) != NULL, "%s", diag.text);
        close_device(&b);
    }
}
END_TEST

#define COMPUTED(body)                                                                                              \
    "npugraph 1\ngraph \"c\" {\n sym B 1..8 buckets 4, 8\n state %k : f32[4,16,1,16]\n state %s : f32[4,2]\n"       \
    " input %x : f32[4,2]\n input %a : i32[B]\n input %t : f32[B,1,16]\n input %v : f32[B,2]\n input %o : i32[1]\n" \
    " %i = aten.add.Tensor(%a, %o)\n" body "}\n"

/* `host` ends at a wrong index; a device goes on, and what comes of it must not be seen anywhere. */
START_TEST(computed_indices_whose_mistakes_would_stay_are_refused_by_name)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {COMPUTED(" %y = aten.embedding(%x, %i)\n aten.copy_(%s, %x)\n return \"y\" = %y\n"), "stay in a state"},
        {COMPUTED(" npu.scatter_pa_kv_cache(%t, %t, %i, %k, %k)\n return \"x\" = %x\n"), "slots and block tables"},
        {COMPUTED(" %y = aten.index_put(%x, %i, %v)\n return \"y\" = %y\n"), "rows of padding have computed indices"},
        {COMPUTED(" %y = aten.index_copy(%x, %i, %v) {dim=0}\n return \"y\" = %y\n"),
         "rows of padding have computed indices"},
        /* The state is written before the index is used, on both devices. */
        {COMPUTED(" aten.copy_(%s, %x)\n %y = aten.embedding(%x, %i)\n return \"y\" = %y\n"), NULL},
    };
    struct bench b;
    int64_t rows = 4;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_diag diag = {0};
        struct ready r;
        ngd_status_t status;

        must(open_device(&b, 0, &diag), &diag);
        status = ready_open(&r, &b, cases[i].text, &rows, &diag);
        ck_assert_msg(status == (cases[i].words ? NGD_ERR_OP_UNSUPPORTED : NGD_OK), "%zu: %s", i, diag.text);
        if (cases[i].words)
            ck_assert_msg(strstr(diag.text, cases[i].words) && strstr(diag.text, "node "), "%s", diag.text);
        else
            ready_close(&r);
        close_device(&b);
    }
}
END_TEST

/* One copy more, before the operator, and two operators that keep the device from a fault. */
START_TEST(computed_indices_come_back_with_the_outputs_and_cost_others_nothing)
{
    static const char computed[] =
        "npugraph 1\ngraph \"c\" {\n param %w : f32[4,2]\n input %a : i64[2]\n input %b : i64[2]\n"
        " %i = aten.add.Tensor(%a, %b)\n %y = aten.embedding(%w, %i)\n return \"y\" = %y\n}\n",
                      given[] = "npugraph 1\ngraph \"g\" {\n param %w : f32[4,2]\n input %i : i64[2]\n"
                                " %y = aten.index.Tensor(%w, %i)\n return \"y\" = %y\n}\n";
    const int64_t a[2] = {1, 2}, wrong[2] = {1, 9}, zero[2] = {0, 0};
    const int64_t violations = simulator_count("violations");
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;
    float y[4];
    struct ngd_out out = {y, sizeof(y)};
    char *log;

    simulator_set("log", "1");
    must(open_device(&b, 0, &diag), &diag);
    for (int k = 0; k < 2; k++) {
        struct ngd_span in[2] = {{a, sizeof(a)}, {zero, sizeof(zero)}};
        struct ngd_launch launch = {.inputs = in, .outputs = &out};

        must(ready_open(&r, &b, k ? given : computed, NULL, &diag), &diag);
        SIMULATOR(ngd_aclsim_log_clear)();
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        log = SIMULATOR(ngd_aclsim_log)();
        ck_assert_int_eq(times_in(log, "aclnnRemainderTensorTensor"), k ? 0 : 1);
        ck_assert_int_eq(times_in(log, "aclrtMemcpyAsync"), k ? 2 : 4); /* inputs, output; and the indices */
        free(log);
        in[0].data = wrong;
        ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &launch), NGD_ERR_INDEX_RANGE);
        ck_assert_msg(strstr(launch.diag.text, "index 9 is outside") != NULL, "%s", launch.diag.text);
        ready_close(&r);
    }
    ck_assert_int_eq(simulator_count("violations"), violations);
    close_device(&b);
    nothing_is_left("after computed indices");
}
END_TEST

START_TEST(rows_of_padding_write_nothing_to_the_cache)
{
    static const char *const apis[] = {"9.1", "8.1"};
    struct step *s = malloc(sizeof(*s));
    uint16_t cache[2][4 * 16 * 16];
    float y[2][5 * 32];
    struct ngd_diag diag = {0};

    for (int api = 0; api < 2; api++) {
        int64_t bucket = 16;
        struct bench b;
        struct ready r;

        simulator_set("api", apis[api]);
        must(open_device(&b, 0, &diag), &diag);
        must(ready_open(&r, &b, PADDED, &bucket, &diag), &diag);
        must(write_weight(&r), &diag);
        memset(cache[api], 0x11, sizeof(cache[api]));
        must(ngd_buffer_write(r.bound[1], 0, cache[api], sizeof(cache[api]), &diag), &diag);
        step_init(s, 5, 20);
        s->slots[2] = -1;
        for (int i = 0; i < 2; i++) {
            s->launch.eager = i;
            must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
        }
        memcpy(y[api], s->y, sizeof(y[api]));
        must(ngd_buffer_read(r.bound[1], 0, cache[api], sizeof(cache[api]), &diag), &diag);
        for (int slot = 0; slot < 64; slot++) {
            bool written = slot >= 15 && slot < 20 && slot != 17;

            ck_assert_msg((cache[api][slot * 16] != 0x1111) == written, "slot %d of %s", slot, apis[api]);
        }
        ready_close(&r);
        close_device(&b);
        nothing_is_left(apis[api]);
    }
    ck_assert_mem_eq(cache[0], cache[1], sizeof(cache[0]));
    ck_assert_mem_eq(y[0], y[1], sizeof(y[0]));
    free(s);
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
          no_stream_for_a_capture_runs_the_graph_operator_by_operator,
          any_call_of_cann_may_fail_once_without_a_crash_a_wrong_result_or_a_leak,
          device_that_does_not_open_names_the_node_that_is_missing_or_closed,
          nodes_are_tried_except_those_that_the_process_has_open,
          device_that_others_use_is_refused_when_nothing_is_left_and_names_how_to_see_who,
          codes_that_nobody_knows_are_answered_with_their_number_and_the_call,
          side_stream_is_forked_and_joined_in_the_capture_within_its_limit_of_cores,
          graph_whose_side_streams_find_no_room_runs_on_one_stream,
          cann_8_1_keeps_no_limits_of_cores_and_gives_the_same,
          any_call_of_cann_may_fail_once_in_a_group_and_no_rank_waits_for_ever,
          losing_one_of_two_devices_is_reported_and_the_other_serves_on,
          indices_outside_their_tensor_never_reach_the_device, scattered_indices_are_read_before_the_device_does,
          index_put_writes_the_rows_that_there_are_and_no_padding, writes_whose_padding_would_show_are_refused_by_name,
          computed_indices_whose_mistakes_would_stay_are_refused_by_name,
          computed_indices_come_back_with_the_outputs_and_cost_others_nothing,
          rows_of_padding_write_nothing_to_the_cache, cann_8_1_gives_the_results_of_newer_versions)
