/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator of CANN's C interface: that it is as strict as a device. Every capture error that users report is
 * provoked here by the calls that lead to it on a device.
 */
#include "devices/ascend/acl.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static const struct ngd_acl *acl;
static void *context, *stream;

static void open_simulator(void)
{
    struct ngd_diag diag = {0};

    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
    ck_assert_int_eq(acl->aclrtCreateContext(&context, 0), 0);
    ck_assert_int_eq(acl->aclrtCreateStream(&stream), 0);
}

/* Nothing may be left behind. */
static void close_simulator(void)
{
    static const char *const kinds[] = {"streams", "events",   "bytes",     "pinned", "contexts",
                                        "models",  "operands", "executors", "ranges"};

    ck_assert_int_eq(acl->aclrtDestroyContext(context), 0);
    ngd_acl_unload(acl);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(simulator_count(kinds[i]) == 0, "%lld %s are left", (long long)simulator_count(kinds[i]),
                      kinds[i]);
}

/* The error text of the last failure has the code and says what a device would have done. */
static void text_has(const char *words)
{
    const char *text = acl->aclGetRecentErrMsg();

    ck_assert_ptr_nonnull(text);
    ck_assert_msg(strstr(text, words) != NULL, "\"%s\" is not in \"%s\"", words, text);
    ck_assert_msg(strstr(text, "a real device") != NULL, "%s", text);
    ck_assert_ptr_null(acl->aclGetRecentErrMsg()); /* it is given once */
}

static void begin(void)
{
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
}

static void end_is(ngd_acl_error_t code)
{
    void *model = &model;

    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), code);
    if (code)
        ck_assert_ptr_null(model);
    else
        ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
}

static void *new_event(uint32_t flags)
{
    void *event;

    ck_assert_int_eq(acl->aclrtCreateEventExWithFlag(&event, flags), 0);
    return event;
}

/* ---- work for streams ---------------------------------------------------------------------------------------------
 */

/* y = 2x of 8 floats in device memory. */
static ngd_acl_error_t twice(const void *x, void *y, void *on)
{
    const int64_t n = 8, step = 1;
    float two = 2;
    struct aclTensor *a =
        acl->aclCreateTensor(&n, 1, NGD_ACL_FLOAT, &step, 0, NGD_ACL_FORMAT_ND, &n, 1, (void *)(uintptr_t)x);
    struct aclTensor *b = acl->aclCreateTensor(&n, 1, NGD_ACL_FLOAT, &step, 0, NGD_ACL_FORMAT_ND, &n, 1, y);
    struct aclScalar *s = acl->aclCreateScalar(&two, NGD_ACL_FLOAT);
    struct aclOpExecutor *executor = NULL;
    uint64_t workspace = 1;
    ngd_acl_error_t code = acl->aclnnMulsGetWorkspaceSize(a, s, b, &workspace, &executor);

    if (!code)
        code = acl->aclnnMuls(NULL, workspace, executor, on);
    acl->aclDestroyTensor(a);
    acl->aclDestroyTensor(b);
    acl->aclDestroyScalar(s);
    return code;
}

static void *device_floats(float first)
{
    float values[8];
    void *mem;

    for (int i = 0; i < 8; i++)
        values[i] = first + (float)i;
    ck_assert_int_eq(acl->aclrtMalloc(&mem, sizeof(values), NGD_ACL_MALLOC_HUGE_FIRST), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(mem, sizeof(values), values, sizeof(values), NGD_ACL_COPY_H2D), 0);
    return mem;
}

static float first_of(const void *mem)
{
    float v;

    ck_assert_int_eq(acl->aclrtMemcpy(&v, sizeof(v), mem, sizeof(v), NGD_ACL_COPY_D2H), 0);
    return v;
}

/* ---- tests ----------------------------------------------------------------------------------------------------------
 */

START_TEST(captured_work_runs_only_when_it_is_replayed)
{
    void *x, *y, *model;

    open_simulator();
    x = device_floats(3);
    y = device_floats(0);
    begin();
    ck_assert_int_eq(twice(x, y, stream), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_float_eq(first_of(y), 0);
    for (int i = 0; i < 3; i++) {
        float v = (float)i;

        ck_assert_int_eq(acl->aclrtMemcpy(x, 4, &v, 4, NGD_ACL_COPY_H2D), 0);
        ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
        ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
        ck_assert_float_eq(first_of(y), 2 * v);
    }
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    ck_assert_int_eq(acl->aclrtFree(y), 0);
    close_simulator();
}
END_TEST

START_TEST(default_stream_in_a_capture_is_107031)
{
    void *x, *y;

    open_simulator();
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(NULL, NGD_ACL_CAPTURE_THREAD_LOCAL), NGD_ACL_RT_CAPTURE_IMPLICIT);
    text_has("107031");
    x = device_floats(1);
    y = device_floats(1);
    begin();
    ck_assert_int_eq(twice(x, y, NULL), NGD_ACL_RT_CAPTURE_IMPLICIT);
    end_is(0);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    ck_assert_int_eq(acl->aclrtFree(y), 0);
    close_simulator();
}
END_TEST

START_TEST(waiting_for_a_captured_stream_is_107027_and_spoils_the_capture)
{
    int status;

    open_simulator();
    begin();
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), NGD_ACL_RT_STREAM_CAPTURED);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), NGD_ACL_RT_STREAM_CAPTURED);
    text_has("107027");
    end_is(NGD_ACL_RT_CAPTURE_INVALIDATED);
    begin();
    ck_assert_int_eq(acl->aclrtStreamQuery(stream, &status), NGD_ACL_RT_STREAM_CAPTURED);
    end_is(NGD_ACL_RT_CAPTURE_INVALIDATED);
    end_is(NGD_ACL_RT_STREAM_NOT_CAPTURED);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    close_simulator();
}
END_TEST

START_TEST(event_of_a_capture_on_the_host_is_107028)
{
    void *event;
    int status;

    open_simulator();
    event = new_event(NGD_ACL_EVENT_SYNC);
    begin();
    ck_assert_int_eq(acl->aclrtRecordEvent(event, stream), 0);
    ck_assert_int_eq(acl->aclrtQueryEventStatus(event, &status), NGD_ACL_RT_EVENT_CAPTURED);
    text_has("107028");
    end_is(NGD_ACL_RT_CAPTURE_INVALIDATED);
    ck_assert_int_eq(acl->aclrtDestroyEvent(event), 0);
    close_simulator();
}
END_TEST

START_TEST(synchronous_copy_is_107030_in_the_modes_that_forbid_it)
{
    char host[32] = {0};
    void *mem;
    int mode;

    open_simulator();
    mem = device_floats(0);
    begin();
    ck_assert_int_eq(acl->aclrtMemcpy(mem, 32, host, 32, NGD_ACL_COPY_H2D), NGD_ACL_RT_CAPTURE_MODE);
    text_has("107030");
    ck_assert_int_eq(acl->aclrtMemset(mem, 32, 0, 32), NGD_ACL_RT_CAPTURE_MODE);
    mode = NGD_ACL_CAPTURE_RELAXED;
    ck_assert_int_eq(acl->aclmdlRICaptureThreadExchangeMode(&mode), 0);
    ck_assert_int_eq(mode, NGD_ACL_CAPTURE_GLOBAL);
    ck_assert_int_eq(acl->aclrtMemcpy(mem, 32, host, 32, NGD_ACL_COPY_H2D), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureThreadExchangeMode(&mode), 0);
    end_is(0);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_RELAXED), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(mem, 32, host, 32, NGD_ACL_COPY_H2D), 0);
    end_is(0);
    ck_assert_int_eq(acl->aclrtFree(mem), 0);
    close_simulator();
}
END_TEST

struct other {
    void *mem;
    ngd_acl_error_t copied, ended;
    void *end_of;
};

static void *other_thread(void *arg)
{
    struct other *o = arg;
    char host[32] = {0};
    void *model;

    acl->aclrtSetCurrentContext(context);
    o->copied = acl->aclrtMemcpy(o->mem, 32, host, 32, NGD_ACL_COPY_H2D);
    o->ended = o->end_of ? acl->aclmdlRICaptureEnd(o->end_of, &model) : 0;
    return NULL;
}

static void in_other_thread(struct other *o)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, o), 0);
    pthread_join(thread, NULL);
}

START_TEST(thread_local_mode_forbids_to_its_thread_only_and_global_to_all)
{
    struct other o = {0};

    open_simulator();
    o.mem = device_floats(0);
    begin();
    in_other_thread(&o);
    ck_assert_int_eq(o.copied, 0);
    end_is(0);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_GLOBAL), 0);
    in_other_thread(&o);
    ck_assert_int_eq(o.copied, NGD_ACL_RT_CAPTURE_MODE);
    end_is(0);
    /* Another thread may not end it, and it is gone then. */
    begin();
    o.end_of = stream;
    in_other_thread(&o);
    ck_assert_int_eq(o.ended, NGD_ACL_RT_CAPTURE_WRONG_THREAD);
    end_is(NGD_ACL_RT_STREAM_NOT_CAPTURED);
    ck_assert_int_eq(acl->aclrtFree(o.mem), 0);
    close_simulator();
}
END_TEST

START_TEST(side_stream_that_is_not_joined_is_107025_and_one_that_is_works)
{
    void *side, *fork_event, *join_event, *x, *y, *z, *model, *spare;

    open_simulator();
    ck_assert_int_eq(acl->aclrtCreateStream(&side), 0);
    fork_event = new_event(NGD_ACL_EVENT_SYNC);
    join_event = new_event(NGD_ACL_EVENT_SYNC);
    x = device_floats(5);
    y = device_floats(0);
    z = device_floats(0);
    for (int joined = 0; joined < 3; joined++) {
        begin();
        ck_assert_int_eq(acl->aclrtRecordEvent(fork_event, stream), 0);
        ck_assert_int_eq(acl->aclrtStreamWaitEvent(side, fork_event), 0);
        ck_assert_int_eq(twice(x, y, side), 0);
        ck_assert_int_eq(acl->aclmdlRICaptureEnd(side, &spare), NGD_ACL_RT_CAPTURE_UNMATCHED);
        if (joined) {
            ck_assert_int_eq(acl->aclrtRecordEvent(join_event, side), 0);
            ck_assert_int_eq(acl->aclrtStreamWaitEvent(stream, join_event), 0);
        }
        if (joined == 1)
            ck_assert_int_eq(twice(x, y, side), 0); /* after the join */
        if (joined < 2) {
            end_is(NGD_ACL_RT_STREAM_UNJOINED);
            continue;
        }
        ck_assert_int_eq(twice(y, z, stream), 0);
        ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
        ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
        ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
        ck_assert_float_eq(first_of(z), 20);
        ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    }
    ck_assert_int_eq(acl->aclrtDestroyEvent(fork_event), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(join_event), 0);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    ck_assert_int_eq(acl->aclrtFree(y), 0);
    ck_assert_int_eq(acl->aclrtFree(z), 0);
    close_simulator();
}
END_TEST

START_TEST(events_from_outside_and_of_other_captures_are_107024_and_107032)
{
    void *event, *second, *model;

    open_simulator();
    event = new_event(NGD_ACL_EVENT_SYNC);
    begin();
    ck_assert_int_eq(acl->aclrtStreamWaitEvent(stream, event), NGD_ACL_RT_CAPTURE_DEPENDENCY);
    text_has("107024");
    end_is(NGD_ACL_RT_CAPTURE_INVALIDATED);
    ck_assert_int_eq(acl->aclrtCreateStream(&second), 0);
    begin();
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(second, NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(acl->aclrtRecordEvent(event, second), 0);
    ck_assert_int_eq(acl->aclrtStreamWaitEvent(stream, event), NGD_ACL_RT_CAPTURE_CONFLICT);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(second, &model), 0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    end_is(NGD_ACL_RT_CAPTURE_INVALIDATED);
    ck_assert_int_eq(acl->aclrtDestroyEvent(event), 0);
    close_simulator();
}
END_TEST

START_TEST(graph_in_its_own_capture_is_107026_and_on_a_captured_stream_107027)
{
    void *model, *second, *other;
    int status;

    open_simulator();
    ck_assert_int_eq(acl->aclrtCreateStream(&second), 0);
    begin();
    ck_assert_int_eq(acl->aclmdlRICaptureGetInfo(stream, &status, &model), 0);
    ck_assert_int_eq(status, NGD_ACL_CAPTURE_ACTIVE);
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, second), NGD_ACL_RT_MODEL_CAPTURED);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), NGD_ACL_RT_MODEL_CAPTURED);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &other), 0);
    ck_assert_ptr_eq(other, model);
    begin();
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), NGD_ACL_RT_STREAM_CAPTURED);
    end_is(0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0); /* unknown: success, as on a device */
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, second), NGD_ACL_RT_INVALID_HANDLE);
    close_simulator();
}
END_TEST

START_TEST(no_stream_left_is_207008_or_207005_with_an_old_driver)
{
    void *model[4], *late;
    uint32_t left;

    simulator_set("streams", "5");
    open_simulator(); /* a context's stream and one more */
    for (int i = 0; i < 3; i++) {
        begin();
        ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model[i]), 0);
    }
    ck_assert_int_eq(acl->aclrtGetStreamAvailableNum(&left), 0);
    ck_assert_uint_eq(left, 0);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), NGD_ACL_RT_NO_STREAM_RESOURCE);
    text_has("207008");
    simulator_set("old_driver", "1");
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), NGD_ACL_RT_RESOURCE_ALLOC_FAIL);
    ck_assert_int_eq(acl->aclrtCreateStream(&late), NGD_ACL_RT_RESOURCE_ALLOC_FAIL);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model[0]), 0);
    begin();
    end_is(0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model[1]), 0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model[2]), 0);
    /* With lazy binding the first replay takes the stream. */
    simulator_set("old_driver", "0");
    simulator_set("lazy_bind", "1");
    for (int i = 0; i < 4; i++) {
        begin();
        ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model[i]), 0);
        ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model[i], stream), i < 3 ? 0 : NGD_ACL_RT_NO_STREAM_RESOURCE);
    }
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(acl->aclmdlRIDestroy(model[i]), 0);
    close_simulator();
}
END_TEST

/* Those of aclrtCreateEvent are the chip's; those that graphs wait for are not counted among them. */
START_TEST(no_event_left_is_207007_until_one_is_destroyed)
{
    void *event[3], *late;

    simulator_set("events", "3");
    open_simulator();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(acl->aclrtCreateEvent(&event[i]), 0);
    ck_assert_int_eq(acl->aclrtCreateEvent(&late), NGD_ACL_RT_NO_EVENT_RESOURCE);
    text_has("207007");
    late = new_event(NGD_ACL_EVENT_SYNC);
    ck_assert_int_eq(acl->aclrtDestroyEvent(late), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(event[0]), 0);
    ck_assert_int_eq(acl->aclrtCreateEvent(&event[0]), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(acl->aclrtDestroyEvent(event[i]), 0);
    close_simulator();
}
END_TEST

START_TEST(task_groups_are_107033_when_they_are_open_twice_unclosed_or_updated_twice)
{
    void *x, *y, *group, *model, *update;

    open_simulator();
    x = device_floats(1);
    y = device_floats(0);
    ck_assert_int_eq(acl->aclrtCreateStream(&update), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpBegin(stream), NGD_ACL_RT_STREAM_NOT_CAPTURED);
    begin();
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpEnd(stream, &group), NGD_ACL_RT_TASK_GROUP_STATUS);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpBegin(stream), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpBegin(stream), NGD_ACL_RT_TASK_GROUP_STATUS);
    end_is(NGD_ACL_RT_TASK_GROUP_STATUS);
    begin();
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpBegin(stream), 0);
    ck_assert_int_eq(twice(x, y, stream), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpEnd(stream, &group), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
    /* Another number of operators. */
    ck_assert_int_eq(acl->aclmdlRICaptureTaskUpdateBegin(update, group), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskUpdateBegin(stream, group), NGD_ACL_RT_TASK_GROUP_STATUS);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskUpdateEnd(update), NGD_ACL_RT_INTERNAL_ERROR);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskUpdateEnd(update), NGD_ACL_RT_TASK_GROUP_STATUS);
    begin();
    ck_assert_int_eq(acl->aclmdlRICaptureTaskUpdateBegin(stream, group), NGD_ACL_RT_STREAM_CAPTURED);
    end_is(0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    ck_assert_int_eq(acl->aclrtFree(y), 0);
    close_simulator();
}
END_TEST

START_TEST(update_reaches_the_replay_that_waits_for_it_and_a_missing_record_hangs)
{
    void *x, *other, *y, *group, *model, *update, *event;

    open_simulator();
    x = device_floats(1);
    other = device_floats(100);
    y = device_floats(0);
    ck_assert_int_eq(acl->aclrtCreateStream(&update), 0);
    ck_assert_int_eq(acl->aclrtCreateEventWithFlag(&event, NGD_ACL_EVENT_EXTERNAL), 0);
    begin();
    ck_assert_int_eq(acl->aclrtStreamWaitEvent(stream, event), 0);
    ck_assert_int_eq(acl->aclrtResetEvent(event, stream), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpBegin(stream), 0);
    ck_assert_int_eq(twice(x, y, stream), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpEnd(stream, &group), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
        ck_assert_int_eq(acl->aclmdlRICaptureTaskUpdateBegin(update, group), 0);
        ck_assert_int_eq(twice(i ? other : x, y, update), 0);
        ck_assert_int_eq(acl->aclmdlRICaptureTaskUpdateEnd(update), 0);
        ck_assert_int_eq(acl->aclrtRecordEvent(event, update), 0);
        ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(stream, 10000), 0);
        ck_assert_float_eq(first_of(y), i ? 200 : 2);
    }
    /* Nobody records: the stream stays where it is until it is aborted. */
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(stream, 0), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(stream, 50), NGD_ACL_RT_STREAM_SYNC_TIMEOUT);
    simulator_set("destroy_wait_ms", "20");
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), NGD_ACL_RT_MODEL_RUNNING);
    ck_assert_int_eq(acl->aclrtStreamAbort(stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(stream, 1000), 0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(event), 0);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    ck_assert_int_eq(acl->aclrtFree(other), 0);
    ck_assert_int_eq(acl->aclrtFree(y), 0);
    close_simulator();
}
END_TEST

START_TEST(freed_operand_is_found_at_replay_and_spoils_a_context_that_stops_on_failure)
{
    void *x, *y, *model;

    open_simulator();
    x = device_floats(1);
    y = device_floats(0);
    ck_assert_int_eq(acl->aclrtSetStreamFailureMode(stream, NGD_ACL_STOP_ON_FAILURE), 0);
    begin();
    ck_assert_int_eq(twice(x, y, stream), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), NGD_ACL_RT_MODEL_EXECUTE);
    text_has("is not device memory");
    ck_assert_int_ne(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_int_eq(acl->aclrtFree(y), 0);
    ck_assert_int_eq(acl->aclrtFree(y), NGD_ACL_RT_PARAM_INVALID);
    close_simulator();
}
END_TEST

START_TEST(executor_serves_once_unless_it_is_made_repeatable)
{
    const int64_t n = 8;
    struct aclTensor *a, *b;
    struct aclOpExecutor *executor;
    uint64_t workspace;
    void *x;

    open_simulator();
    x = device_floats(1);
    a = acl->aclCreateTensor(&n, 1, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &n, 1, x);
    b = acl->aclCreateTensor(&n, 1, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &n, 1, x);
    ck_assert_int_eq(acl->aclnnNegGetWorkspaceSize(a, b, &workspace, &executor), 0);
    ck_assert_int_eq(acl->aclnnNeg(NULL, 0, executor, stream), 0);
    ck_assert_int_eq(acl->aclnnNeg(NULL, 0, executor, stream), NGD_ACL_NN_RUNTIME_ERROR);
    text_has("used up");
    ck_assert_int_eq(acl->aclnnNegGetWorkspaceSize(a, b, &workspace, &executor), 0);
    ck_assert_int_eq(acl->aclSetAclOpExecutorRepeatable(executor), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(acl->aclnnNeg(NULL, 0, executor, stream), 0);
    ck_assert_int_eq(acl->aclDestroyAclOpExecutor(executor), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_float_eq(first_of(x), 1); /* four times negated */
    ck_assert_int_eq(acl->aclDestroyTensor(a), 0);
    ck_assert_int_eq(acl->aclDestroyTensor(b), 0);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    close_simulator();
}
END_TEST

/* Each execution uses the workspace that it was given, and no earlier one's. */
START_TEST(repeatable_executor_forgets_the_workspaces_of_earlier_executions)
{
    const int64_t dims[] = {2, 4}, turned[] = {4, 2}, out[] = {2, 2}, n = 8;
    struct aclTensor *a, *b, *y;
    struct aclOpExecutor *executor;
    uint64_t bytes = 0;
    void *x, *z;

    open_simulator();
    x = device_floats(1);
    z = device_floats(0);
    a = acl->aclCreateTensor(dims, 2, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &n, 1, x);
    b = acl->aclCreateTensor(turned, 2, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &n, 1, x);
    y = acl->aclCreateTensor(out, 2, NGD_ACL_FLOAT, NULL, 0, NGD_ACL_FORMAT_ND, &n, 1, z);
    ck_assert_int_eq(acl->aclnnMatmulGetWorkspaceSize(a, b, y, NGD_ACL_CUBE_KEEP_DTYPE, &bytes, &executor), 0);
    ck_assert_uint_gt(bytes, 0);
    ck_assert_int_eq(acl->aclSetAclOpExecutorRepeatable(executor), 0);
    for (int i = 0; i < 40; i++) {
        void *workspace;

        ck_assert_int_eq(acl->aclrtMalloc(&workspace, bytes, 0), 0);
        ck_assert_int_eq(acl->aclnnMatmul(workspace, bytes, executor, stream), 0);
        ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
        ck_assert_int_eq(acl->aclrtFree(workspace), 0);
    }
    ck_assert_float_eq(first_of(z), 1 * 1 + 2 * 3 + 3 * 5 + 4 * 7);
    ck_assert_int_eq(acl->aclDestroyAclOpExecutor(executor), 0);
    acl->aclDestroyTensor(a);
    acl->aclDestroyTensor(b);
    acl->aclDestroyTensor(y);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    ck_assert_int_eq(acl->aclrtFree(z), 0);
    close_simulator();
}
END_TEST

START_TEST(copies_need_pinned_memory_in_a_capture_and_alignment_always)
{
    static char pageable[64] __attribute__((aligned(64)));
    void *mem, *pinned, *other;

    open_simulator();
    mem = device_floats(0);
    ck_assert_int_eq(acl->aclrtMallocHost(&pinned, 64), 0);
    ck_assert_int_eq(acl->aclrtMemcpyAsync(mem, 32, pageable, 32, NGD_ACL_COPY_H2D, stream), 0);
    begin();
    ck_assert_int_eq(acl->aclrtMemcpyAsync(mem, 32, pageable, 32, NGD_ACL_COPY_H2D, stream), NGD_ACL_RT_PARAM_INVALID);
    text_has("pageable");
    ck_assert_int_eq(acl->aclrtMemcpyAsync(mem, 32, pinned, 32, NGD_ACL_COPY_H2D, stream), 0);
    ck_assert_int_eq(acl->aclrtMemcpyAsync(mem, 28, (char *)pinned + 4, 28, NGD_ACL_COPY_H2D, stream),
                     NGD_ACL_RT_ADDR_UNALIGNED);
    ck_assert_int_eq(acl->aclrtMemcpyAsync(pinned, 64, pageable, 32, NGD_ACL_COPY_H2H, stream),
                     NGD_ACL_RT_FEATURE_NOT_SUPPORT);
    end_is(0);
    ck_assert_int_eq(acl->aclrtCreateStream(&other), 0); /* pageable memory on a stream that is not captured */
    begin();
    ck_assert_int_eq(acl->aclrtMemcpyAsync(mem, 32, pageable, 32, NGD_ACL_COPY_H2D, other),
                     NGD_ACL_RT_CAPTURE_BLOCK_ASYNC);
    text_has("107041");
    ck_assert_int_eq(acl->aclrtMemcpyAsync(mem, 32, pinned, 32, NGD_ACL_COPY_H2D, other), 0);
    end_is(0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(other), 0);
    ck_assert_int_eq(acl->aclrtDestroyStream(other), 0);
    ck_assert_int_eq(acl->aclrtFreeHost(pinned), 0);
    ck_assert_int_eq(acl->aclrtFree(mem), 0);
    close_simulator();
}
END_TEST

START_TEST(memory_ends_where_the_device_ends)
{
    void *a, *b;
    size_t left, total;

    simulator_set("hbm", "1M");
    open_simulator();
    ck_assert_int_eq(acl->aclrtMalloc(&a, 0, 0), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(acl->aclrtMalloc(&a, 1000000, 0), 0);
    ck_assert_int_eq(acl->aclrtMalloc(&b, 1000000, 0), NGD_ACL_RT_MEMORY_ALLOCATION);
    text_has("207001");
    ck_assert_int_eq(acl->aclrtGetMemInfo(NGD_ACL_MEM_HBM, &left, &total), 0);
    ck_assert_uint_eq(total, 1 << 20);
    ck_assert_uint_lt(left, 1 << 16);
    ck_assert_int_eq(acl->aclrtFree(a), 0);
    close_simulator();
}
END_TEST

START_TEST(symbols_that_came_after_8_1_can_be_hidden)
{
    simulator_set("api", "8.1");
    open_simulator();
    ck_assert_ptr_null((void *)acl->aclrtGetStreamAvailableNum);
    ck_assert_ptr_null((void *)acl->aclrtGetDeviceInfo);
    ck_assert_ptr_null((void *)acl->aclnnScatterPaKvCache);
    ck_assert_ptr_null((void *)acl->aclnnScatterPaKvCacheGetWorkspaceSize);
    ck_assert_ptr_nonnull((void *)acl->aclnnScatterNdUpdate);
    close_simulator();
}
END_TEST

START_TEST(library_that_is_missing_is_named_with_what_to_do)
{
    struct ngd_diag diag = {0};

    ck_assert_int_eq(ngd_acl_load("/nonexistent", NULL, &acl, &diag), NGD_ERR_UNAVAILABLE);
    ck_assert_msg(strstr(diag.text, "/nonexistent") && strstr(diag.text, "ascend-libs"), "%s", diag.text);
}
END_TEST

START_TEST(libraries_have_the_names_that_are_given)
{
    char names[1300];
    struct ngd_strbuf sb;
    struct ngd_diag diag = {0};

    snprintf(names, sizeof(names), "libopapi.so=%s/libopapi.so, libacl_rt.so=/nonexistent/rt.so", simulator_dir());
    ck_assert_msg(ngd_acl_load("/nonexistent", names, &acl, &diag) == NGD_ERR_UNAVAILABLE, "%s", diag.text);
    ck_assert_msg(ngd_acl_load(simulator_dir(), names, &acl, &diag) == NGD_OK, "%s", diag.text);
    ck_assert_int_eq(ngd_acl_load(simulator_dir(), NULL, &acl, &diag), NGD_ERR_INVALID_ARGUMENT);
    ngd_strbuf_init(&sb);
    ngd_acl_describe(acl, &sb);
    ck_assert_msg(strstr(ngd_strbuf_str(&sb), "loaded, named /") && strstr(ngd_strbuf_str(&sb), "/nonexistent/rt.so"),
                  "%s", ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    ngd_acl_unload(acl);
}
END_TEST

START_TEST(names_of_no_library_are_refused_with_those_there_are)
{
    static const char *const bad[] = {"libopapi.so", "libopapi.so=", "=libopapi.so", "libfoo.so=x", "libopapi.so=a b"};
    char names[2100];
    struct ngd_diag diag = {0};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(ngd_acl_load(simulator_dir(), bad[i], &acl, &diag), NGD_ERR_CONFIG);
        ck_assert_msg(strstr(diag.text, "ascend-lib-names") && strstr(diag.text, "libopapi.so, "), "%s", diag.text);
    }
    memset(names, 'x', sizeof(names));
    names[sizeof(names) - 1] = '\0';
    ck_assert_int_eq(ngd_acl_load(simulator_dir(), names, &acl, &diag), NGD_ERR_CONFIG);
    memcpy(names, "libopapi.so=", 12);
    names[1200] = '\0';
    ck_assert_int_eq(ngd_acl_load(simulator_dir(), names, &acl, &diag), NGD_ERR_CONFIG);
}
END_TEST

UNIT_MAIN("ascend/simulator", libraries_have_the_names_that_are_given,
          names_of_no_library_are_refused_with_those_there_are, captured_work_runs_only_when_it_is_replayed,
          default_stream_in_a_capture_is_107031, waiting_for_a_captured_stream_is_107027_and_spoils_the_capture,
          event_of_a_capture_on_the_host_is_107028, synchronous_copy_is_107030_in_the_modes_that_forbid_it,
          thread_local_mode_forbids_to_its_thread_only_and_global_to_all,
          side_stream_that_is_not_joined_is_107025_and_one_that_is_works,
          events_from_outside_and_of_other_captures_are_107024_and_107032,
          graph_in_its_own_capture_is_107026_and_on_a_captured_stream_107027,
          no_stream_left_is_207008_or_207005_with_an_old_driver, no_event_left_is_207007_until_one_is_destroyed,
          task_groups_are_107033_when_they_are_open_twice_unclosed_or_updated_twice,
          update_reaches_the_replay_that_waits_for_it_and_a_missing_record_hangs,
          freed_operand_is_found_at_replay_and_spoils_a_context_that_stops_on_failure,
          executor_serves_once_unless_it_is_made_repeatable,
          repeatable_executor_forgets_the_workspaces_of_earlier_executions,
          copies_need_pinned_memory_in_a_capture_and_alignment_always, memory_ends_where_the_device_ends,
          symbols_that_came_after_8_1_can_be_hidden, library_that_is_missing_is_named_with_what_to_do)
