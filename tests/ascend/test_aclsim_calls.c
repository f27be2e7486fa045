/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's functions that programs of others call and the backend does not. What each does on a device was read
 * in the runtime's documents, sources and examples; acl_samples.py runs those examples.
 */
#include "devices/ascend/acl.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define REDUCE_SUM 10
#define REDUCE_MAX 11
#define VALUE_EQ   1

static const struct ngd_acl *acl;
static void *context, *stream, *other;

#define FILE_ASCENDCL "libascendcl.so"
#define FILE_HCCL     "libhccl.so"

static struct {
#define NGD_ACL(name, result, args, library, since, instead) result(*name) args;
#include "devices/ascend/sim/sim_symbols.def"
#undef NGD_ACL
} more;

static void open_simulator(void)
{
    struct ngd_diag diag = {0};

    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
#define NGD_ACL(name, result, args, library, since, instead) \
    more.name = (__typeof__(more.name))simulator_symbol_in(FILE_##library, #name);
#include "devices/ascend/sim/sim_symbols.def"
#undef NGD_ACL
    ck_assert_int_eq(acl->aclrtCreateContext(&context, 0), 0);
    ck_assert_int_eq(acl->aclrtCreateStream(&stream), 0);
    ck_assert_int_eq(acl->aclrtCreateStream(&other), 0);
}

static void close_simulator(void)
{
    static const char *const kinds[] = {"streams", "events", "bytes", "pinned", "contexts", "models"};

    ck_assert_int_eq(acl->aclrtDestroyContext(context), 0);
    ngd_acl_unload(acl);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(simulator_count(kinds[i]) == 0, "%lld %s are left", (long long)simulator_count(kinds[i]),
                      kinds[i]);
}

static void *word_of(uint64_t v)
{
    void *mem;

    ck_assert_int_eq(acl->aclrtMalloc(&mem, sizeof(v), NGD_ACL_MALLOC_HUGE_FIRST), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(mem, sizeof(v), &v, sizeof(v), NGD_ACL_COPY_H2D), 0);
    return mem;
}

static uint64_t value_of(const void *mem)
{
    uint64_t v;

    ck_assert_int_eq(acl->aclrtMemcpy(&v, sizeof(v), mem, sizeof(v), NGD_ACL_COPY_D2H), 0);
    return v;
}

/* A kernel: *x += *y. */
static ngd_acl_error_t add_to(void *x, const void *y, void *on)
{
    return more.aclrtReduceAsync(x, y, sizeof(int64_t), REDUCE_SUM, NGD_ACL_INT64, on, NULL);
}

static bool is_idle(void *s)
{
    int status;

    ck_assert_int_eq(acl->aclrtStreamQuery(s, &status), 0);
    return status == NGD_ACL_STREAM_COMPLETE;
}

static void free_words(void *a, void *b)
{
    ck_assert_int_eq(acl->aclrtFree(a), 0);
    ck_assert_int_eq(acl->aclrtFree(b), 0);
}

/* ---- notifies and words -------------------------------------------------------------------------- */

START_TEST(notify_lets_one_wait_pass_however_often_it_was_recorded)
{
    void *notify, *x, *one;
    uint32_t id;

    open_simulator();
    x = word_of(0);
    one = word_of(1);
    ck_assert_int_eq(more.aclrtCreateNotify(&notify, 2), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(more.aclrtCreateNotify(&notify, 0), 0);
    ck_assert_int_eq(more.aclrtGetNotifyId(notify, &id), 0);
    ck_assert_int_eq(more.aclrtRecordNotify(notify, stream), 0);
    ck_assert_int_eq(more.aclrtRecordNotify(notify, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_int_eq(more.aclrtWaitAndResetNotify(notify, other, 0), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(other), 0);
    ck_assert_int_eq(more.aclrtWaitAndResetNotify(notify, other, 0), 0);
    ck_assert_int_eq(add_to(x, one, other), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(other, 20), NGD_ACL_RT_STREAM_SYNC_TIMEOUT);
    ck_assert_uint_eq(value_of(x), 0);
    ck_assert_int_eq(more.aclrtRecordNotify(notify, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(other), 0);
    ck_assert_uint_eq(value_of(x), 1);
    ck_assert_int_eq(more.aclrtDestroyNotify(notify), 0);
    ck_assert_int_eq(more.aclrtDestroyNotify(notify), NGD_ACL_RT_INVALID_HANDLE);
    free_words(x, one);
    close_simulator();
}
END_TEST

START_TEST(stream_waits_for_a_word_until_it_has_the_value)
{
    void *x;

    open_simulator();
    x = word_of(0);
    ck_assert_int_eq(more.aclrtValueWait((char *)x + 4, 1, VALUE_EQ, stream), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(more.aclrtValueWait(&x, 1, VALUE_EQ, stream), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(more.aclrtValueWait(x, 100, VALUE_EQ, stream), 0);
    ck_assert_int_eq(more.aclrtValueWrite(x, 7, 0, other), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(other), 0);
    ck_assert(!is_idle(stream));
    ck_assert_int_eq(more.aclrtValueWrite(x, 100, 0, other), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_int_eq(acl->aclrtFree(x), 0);
    close_simulator();
}
END_TEST

/* ---- events -------------------------------------------------------------------------------------- */

START_TEST(event_is_pending_before_its_first_record_unless_it_was_made_with_ex)
{
    void *plain, *ex, *external;
    uint64_t when;
    int status;

    open_simulator();
    ck_assert_int_eq(acl->aclrtCreateEvent(&plain), 0);
    ck_assert_int_eq(acl->aclrtCreateEventExWithFlag(&ex, NGD_ACL_EVENT_SYNC), 0);
    ck_assert_int_eq(acl->aclrtCreateEventWithFlag(&external, NGD_ACL_EVENT_EXTERNAL), 0);
    ck_assert_int_eq(acl->aclrtQueryEventStatus(plain, &status), 0);
    ck_assert_int_eq(status, NGD_ACL_EVENT_PENDING);
    ck_assert_int_eq(more.aclrtEventGetTimestamp(plain, &when), NGD_ACL_RT_EVENT_TIMESTAMP_INVALID);
    ck_assert_int_eq(acl->aclrtQueryEventStatus(ex, &status), 0);
    ck_assert_int_eq(status, NGD_ACL_EVENT_COMPLETE);
    ck_assert_int_eq(acl->aclrtQueryEventStatus(external, &status), NGD_ACL_RT_FEATURE_NOT_SUPPORT);
    ck_assert_int_eq(acl->aclrtRecordEvent(plain, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeEvent(plain), 0);
    ck_assert_int_eq(acl->aclrtQueryEventStatus(plain, &status), 0);
    ck_assert_int_eq(status, NGD_ACL_EVENT_COMPLETE);
    ck_assert_int_eq(more.aclrtEventGetTimestamp(plain, &when), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(plain), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(ex), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(external), 0);
    close_simulator();
}
END_TEST

START_TEST(event_of_one_graph_is_waited_for_by_another_when_both_say_so)
{
    void *event, *x, *y, *one, *first, *second;

    open_simulator();
    x = word_of(0);
    y = word_of(0);
    one = word_of(1);
    ck_assert_int_eq(acl->aclrtCreateEventExWithFlag(&event, NGD_ACL_EVENT_SYNC), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(add_to(x, one, stream), 0);
    ck_assert_int_eq(more.aclrtRecordEventWithFlag(event, stream, 1), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &first), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(other, NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(more.aclrtStreamWaitEventWithFlag(other, event, 0, 1), 0);
    ck_assert_int_eq(add_to(y, x, other), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(other, &second), 0);
    for (uint64_t i = 1, sum = 0; i <= 20; i++) { /* in each round the second sees what the first of this round wrote */
        sum += i;
        ck_assert_int_eq(acl->aclmdlRIExecuteAsync(first, stream), 0);
        ck_assert_int_eq(acl->aclmdlRIExecuteAsync(second, other), 0);
        ck_assert_int_eq(acl->aclrtSynchronizeStream(other), 0);
        ck_assert_uint_eq(value_of(y), sum);
    }
    ck_assert_int_eq(acl->aclmdlRIDestroy(first), 0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(second), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(event), 0);
    ck_assert_int_eq(acl->aclrtFree(y), 0);
    free_words(x, one);
    close_simulator();
}
END_TEST

START_TEST(event_for_others_must_be_of_the_right_kind_in_a_capture_once_and_always)
{
    void *event, *plain, *model;

    open_simulator();
    ck_assert_int_eq(acl->aclrtCreateEventExWithFlag(&event, NGD_ACL_EVENT_SYNC), 0);
    ck_assert_int_eq(acl->aclrtCreateEvent(&plain), 0);
    ck_assert_int_eq(more.aclrtRecordEventWithFlag(event, stream, 2), NGD_ACL_INVALID_PARAM);
    ck_assert_int_eq(more.aclrtStreamWaitEventWithFlag(stream, event, 5, 1), NGD_ACL_INVALID_PARAM);
    ck_assert_int_eq(more.aclrtRecordEventWithFlag(event, stream, 1), NGD_ACL_RT_STREAM_NOT_CAPTURED);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(more.aclrtRecordEventWithFlag(plain, stream, 1), NGD_ACL_RT_FEATURE_NOT_SUPPORT);
    ck_assert_int_eq(more.aclrtRecordEventWithFlag(event, stream, 1), 0);
    ck_assert_int_eq(more.aclrtRecordEventWithFlag(event, stream, 1), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(more.aclrtStreamWaitEventWithFlag(stream, event, 0, 1), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(acl->aclrtRecordEvent(event, stream), NGD_ACL_RT_PARAM_INVALID); /* its first record was with 1 */
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(event), 0);
    ck_assert_int_eq(acl->aclrtDestroyEvent(plain), 0);
    close_simulator();
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------ */

static uint32_t told_code, told_device;

static void on_exception(void *info)
{
    told_code = more.aclrtGetErrorCodeFromExceptionInfo(info);
    told_device = more.aclrtGetDeviceIdFromExceptionInfo(info) + 1;
}

START_TEST(failed_kernel_ends_its_stream_only_when_that_was_told_to_stop)
{
    void *x, *one;

    open_simulator();
    x = word_of(0);
    one = word_of(1);
    ck_assert_int_eq(more.aclrtSetExceptionInfoCallback(on_exception), 0);
    SIMULATOR(ngd_aclsim_break)(0, "fault");
    ck_assert_int_eq(add_to(x, one, stream), 0);
    ck_assert_int_eq(add_to(x, one, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), NGD_ACL_RT_AICORE_EXCEPTION);
    ck_assert_uint_eq(told_code, NGD_ACL_RT_AICORE_EXCEPTION);
    ck_assert_uint_eq(told_device, 1);
    ck_assert_uint_eq(value_of(x), 1); /* the second ran */
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);

    ck_assert_int_eq(acl->aclrtSetStreamFailureMode(stream, 2), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(acl->aclrtSetStreamFailureMode(stream, NGD_ACL_STOP_ON_FAILURE), 0);
    SIMULATOR(ngd_aclsim_break)(0, "fault");
    ck_assert_int_eq(add_to(x, one, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), NGD_ACL_RT_AICORE_EXCEPTION);
    ck_assert_int_eq(add_to(x, one, other), NGD_ACL_RT_AICORE_EXCEPTION); /* all of the context */
    ck_assert_uint_eq(value_of(x), 1);
    ck_assert_int_eq(acl->aclrtPeekAtLastError(0), NGD_ACL_RT_AICORE_EXCEPTION);
    ck_assert_int_eq(acl->aclrtGetLastError(0), NGD_ACL_RT_AICORE_EXCEPTION);
    ck_assert_int_eq(acl->aclrtGetLastError(0), 0);
    ck_assert_int_eq(more.aclrtSetExceptionInfoCallback(NULL), 0);
    free_words(x, one);
    close_simulator();
}
END_TEST

START_TEST(memory_that_is_freed_under_a_kernel_lives_until_that_ends)
{
    void *x, *one;

    open_simulator();
    x = word_of(0);
    one = word_of(1);
    SIMULATOR(ngd_aclsim_break)(0, "hang");
    ck_assert_int_eq(add_to(x, one, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(stream, 20), NGD_ACL_RT_STREAM_SYNC_TIMEOUT);
    free_words(x, one);
    ck_assert_int_eq(acl->aclrtStreamAbort(stream), 0);
    close_simulator();
}
END_TEST

/* ---- functions of the program -------------------------------------------------------------------- */

static void append(void *arg)
{
    char *text = arg;

    text[strlen(text)] = 'h';
}

START_TEST(host_function_runs_between_the_tasks_around_it_also_when_it_is_captured)
{
    static char text[8];
    void *model;

    memset(text, 0, sizeof(text));
    open_simulator();
    ck_assert_int_eq(more.aclrtLaunchHostFunc(stream, NULL, text), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(more.aclrtLaunchHostFunc(stream, append, text), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_str_eq(text, "h");
    ck_assert_int_eq(more.aclrtSubscribeReport(1, stream), NGD_ACL_RT_STREAM_SUBSCRIBE);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(more.aclrtLaunchHostFunc(stream, append, text), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
    ck_assert_str_eq(text, "h");
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_str_eq(text, "hhh");
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    close_simulator();
}
END_TEST

static void await_word(void *arg)
{
    _Atomic bool *go = arg;

    while (!atomic_load(go))
        usleep(1000);
}

START_TEST(wait_with_a_limit_ends_though_the_stream_works_on)
{
    static _Atomic bool go;

    atomic_store(&go, false);
    open_simulator();
    ck_assert_int_eq(more.aclrtLaunchHostFunc(stream, await_word, &go), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(stream, 20), NGD_ACL_RT_STREAM_SYNC_TIMEOUT);
    atomic_store(&go, true);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    close_simulator();
}
END_TEST

static pthread_t called_on;

static void note_thread(void *arg)
{
    (void)arg;
    called_on = pthread_self();
}

static void *serve_one(void *arg)
{
    (void)arg;
    while (more.aclrtProcessReport(50) == NGD_ACL_RT_WAIT_TIMEOUT)
        ;
    return NULL;
}

START_TEST(callback_runs_on_the_thread_that_was_subscribed_for_its_stream)
{
    pthread_t thread;

    open_simulator();
    ck_assert_int_eq(more.aclrtLaunchCallback(note_thread, NULL, 1, stream), NGD_ACL_RT_STREAM_NO_CB_REG);
    ck_assert_int_eq(more.aclrtProcessReport(0), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve_one, NULL), 0);
    ck_assert_int_eq(more.aclrtSubscribeReport((uint64_t)thread, stream), 0);
    ck_assert_int_eq(more.aclrtSubscribeReport((uint64_t)thread, stream), NGD_ACL_RT_STREAM_SUBSCRIBE);
    ck_assert_int_eq(more.aclrtLaunchHostFunc(stream, note_thread, NULL), NGD_ACL_RT_STREAM_SUBSCRIBE);
    ck_assert_int_eq(more.aclrtLaunchCallback(note_thread, NULL, 1, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert(pthread_equal(called_on, thread));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(more.aclrtUnSubscribeReport(1, stream), NGD_ACL_RT_THREAD_SUBSCRIBE);
    ck_assert_int_eq(more.aclrtUnSubscribeReport((uint64_t)thread, stream), 0);
    close_simulator();
}
END_TEST

static int came, went;

static void on_stream(void *which, int state, void *arg)
{
    (void)which;
    ck_assert_ptr_eq(arg, &came);
    came += state == 1;
    went += state == 2;
}

START_TEST(listener_is_told_of_streams_that_come_and_go)
{
    void *one;

    came = went = 0;
    open_simulator();
    ck_assert_int_eq(more.aclrtRegStreamStateCallback("t", on_stream, &came), 0);
    ck_assert_int_eq(more.aclrtRegStreamStateCallback("t", on_stream, &came), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(acl->aclrtCreateStream(&one), 0);
    ck_assert_int_eq(acl->aclrtDestroyStream(one), 0);
    ck_assert_int_eq(more.aclrtRegStreamStateCallback("t", NULL, NULL), 0);
    ck_assert_int_eq(came, 1);
    ck_assert_int_eq(went, 1);
    close_simulator();
}
END_TEST

/* ---- the rest ------------------------------------------------------------------------------------ */

START_TEST(reduction_combines_by_kind_and_dtype)
{
    float a[2] = {1, 5}, b[2] = {3, 2};
    void *x, *y;

    open_simulator();
    x = word_of(0);
    y = word_of(0);
    ck_assert_int_eq(acl->aclrtMemcpy(x, sizeof(a), a, sizeof(a), NGD_ACL_COPY_H2D), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(y, sizeof(b), b, sizeof(b), NGD_ACL_COPY_H2D), 0);
    ck_assert_int_eq(more.aclrtReduceAsync(x, y, 8, 13, NGD_ACL_FLOAT, stream, NULL), NGD_ACL_INVALID_PARAM);
    ck_assert_int_eq(more.aclrtReduceAsync((char *)x + 2, y, 4, REDUCE_MAX, NGD_ACL_FLOAT, stream, NULL),
                     NGD_ACL_RT_ADDR_UNALIGNED);
    ck_assert_int_eq(more.aclrtReduceAsync(x, y, 8, REDUCE_MAX, NGD_ACL_FLOAT, stream, NULL), 0);
    ck_assert_int_eq(more.aclrtReduceAsync(x, y, 4, REDUCE_SUM, NGD_ACL_FLOAT, stream, NULL), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(a, sizeof(a), x, sizeof(a), NGD_ACL_COPY_D2H), 0);
    ck_assert_float_eq(a[0], 6);
    ck_assert_float_eq(a[1], 5);
    free_words(x, y);
    close_simulator();
}
END_TEST

START_TEST(limit_of_cores_holds_for_the_device_until_it_is_reset)
{
    uint32_t n;

    open_simulator();
    ck_assert_int_eq(more.aclrtGetResInCurrentThread(0, &n), 0);
    ck_assert_uint_eq(n, 24);
    ck_assert_int_eq(more.aclrtSetDeviceResLimit(0, 1, 49), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(more.aclrtSetDeviceResLimit(0, 1, 8), 0);
    ck_assert_int_eq(more.aclrtGetResInCurrentThread(1, &n), 0);
    ck_assert_uint_eq(n, 8);
    ck_assert_int_eq(more.aclrtResetDeviceResLimit(0), 0);
    ck_assert_int_eq(more.aclrtGetDeviceResLimit(0, 1, &n), 0);
    ck_assert_uint_eq(n, 48);
    ck_assert_int_eq(more.aclrtGetDeviceResLimit(9, 1, &n), NGD_ACL_RT_INVALID_DEVICEID);
    close_simulator();
}
END_TEST

START_TEST(memory_of_another_device_is_reached_only_when_that_was_enabled)
{
    void *here, *there, *context_1;

    simulator_set("devices", "2");
    open_simulator();
    here = word_of(7);
    ck_assert_int_eq(acl->aclrtCreateContext(&context_1, 1), 0);
    there = word_of(0);
    ck_assert_int_eq(acl->aclrtMemcpy(there, 8, here, 8, NGD_ACL_COPY_D2D), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(more.aclrtDeviceEnablePeerAccess(1, 0), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(more.aclrtDeviceEnablePeerAccess(0, 0), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(there, 8, here, 8, NGD_ACL_COPY_D2D), 0);
    ck_assert_uint_eq(value_of(there), 7);
    ck_assert_int_eq(more.aclrtDeviceDisablePeerAccess(0), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(there, 8, here, 8, NGD_ACL_COPY_D2D), NGD_ACL_RT_PARAM_INVALID);
    ck_assert_int_eq(acl->aclrtFree(there), 0);
    ck_assert_int_eq(acl->aclrtDestroyContext(context_1), 0);
    ck_assert_int_eq(acl->aclrtSetCurrentContext(context), 0);
    ck_assert_int_eq(acl->aclrtFree(here), 0);
    close_simulator();
    simulator_set("devices", "1");
}
END_TEST

START_TEST(graph_is_printed_with_the_tasks_that_it_has)
{
    char path[] = "/tmp/ngd-aclsim-XXXXXX", text[512] = "";
    int fd = mkstemp(path);
    void *x, *one, *model;
    FILE *f;

    ck_assert_int_ge(fd, 0);
    close(fd);
    open_simulator();
    x = word_of(0);
    one = word_of(1);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(add_to(x, one, stream), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
    ck_assert_int_eq(more.aclmdlRIDebugJsonPrint(model, "/nonexistent/graph", 0), NGD_ACL_RT_FILE_OPEN);
    ck_assert_int_eq(more.aclmdlRIDebugJsonPrint(model, path, 0), 0);
    f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, f), 0);
    fclose(f);
    unlink(path);
    ck_assert_msg(strstr(text, "\"kernel\", \"name\": \"reduce\"") != NULL, "%s", text);
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    free_words(x, one);
    close_simulator();
}
END_TEST

UNIT_MAIN("ascend/simulator of more calls", notify_lets_one_wait_pass_however_often_it_was_recorded,
          stream_waits_for_a_word_until_it_has_the_value,
          event_is_pending_before_its_first_record_unless_it_was_made_with_ex,
          event_of_one_graph_is_waited_for_by_another_when_both_say_so,
          event_for_others_must_be_of_the_right_kind_in_a_capture_once_and_always,
          failed_kernel_ends_its_stream_only_when_that_was_told_to_stop,
          memory_that_is_freed_under_a_kernel_lives_until_that_ends,
          host_function_runs_between_the_tasks_around_it_also_when_it_is_captured,
          wait_with_a_limit_ends_though_the_stream_works_on,
          callback_runs_on_the_thread_that_was_subscribed_for_its_stream, listener_is_told_of_streams_that_come_and_go,
          reduction_combines_by_kind_and_dtype, limit_of_cores_holds_for_the_device_until_it_is_reset,
          memory_of_another_device_is_reached_only_when_that_was_enabled, graph_is_printed_with_the_tasks_that_it_has)
