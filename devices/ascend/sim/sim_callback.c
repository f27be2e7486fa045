/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of the program that are called from here: host functions and callbacks of streams, and what is told of
 * streams that come and go and of kernels that fail.
 *
 * A host function runs on the stream's own thread. A callback runs on the thread which the program subscribed for the
 * stream, when that calls aclrtProcessReport; a stream has one of the two ways, never both (107011).
 */
#include "devices/ascend/sim/sim_abi.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_LISTENERS 16

struct report {
    struct report *next;
    uint64_t thread;
    void (*call)(void *arg);
    void *arg;
    bool *done; /* of a stream that waits; NULL: none does */
};

static struct report *reports, **reports_tail = &reports;

/* ---- host functions ------------------------------------------------------------------------------ */

void sim_call_host(struct sim_stream *s, struct sim_task *task)
{
    (void)s;
    pthread_mutex_unlock(&sim.lock);
    task->call(task->arg);
    pthread_mutex_lock(&sim.lock);
}

static int submit_callback(struct sim_stream *s, sim_task_kind_t kind, void (*call)(void *), void *arg, bool block)
{
    struct sim_task *t = sim_task_new(kind);

    t->call = call;
    t->arg = arg;
    t->block = block;
    return sim_submit(s, t);
}

SIM_OPTIONAL(aclrtLaunchHostFunc);
static ngd_acl_error_t aclrtLaunchHostFunc_impl(void *stream, void (*call)(void *), void *arg)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtLaunchHostFunc");
    if (!call)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "no function");
    code = sim_lock_stream(stream, &s);
    if (code == 0 && s->reports_to)
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_SUBSCRIBE, "the same",
                               "the program subscribed a thread for stream %d: it takes callbacks, not host functions",
                               s->id);
    if (code == 0) {
        s->owns_reports = true;
        code = submit_callback(s, SIM_TASK_HOST, call, arg, true);
    }
    return sim_unlock(code);
}

/* ---- callbacks ----------------------------------------------------------------------------------- */

static int subscribe(uint64_t thread, void *stream, bool on)
{
    struct sim_stream *s = NULL;
    int code;

    code = sim_lock_stream(stream, &s);
    if (code == 0 && s->owns_reports)
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_SUBSCRIBE, "the same", "stream %d takes host functions", s->id);
    else if (code == 0 && on && s->reports_to)
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_SUBSCRIBE, "the same", "stream %d has a thread already", s->id);
    else if (code == 0 && !on && s->reports_to != thread)
        code = ngd_aclsim_fail(NGD_ACL_RT_THREAD_SUBSCRIBE, "the same", "the thread is not that of stream %d", s->id);
    if (code == 0)
        s->reports_to = on ? thread : 0;
    return sim_unlock(code);
}

ngd_acl_error_t aclrtSubscribeReport(uint64_t thread, void *stream)
{
    SIM_CALL("aclrtSubscribeReport");
    return subscribe(thread, stream, true);
}

ngd_acl_error_t aclrtUnSubscribeReport(uint64_t thread, void *stream)
{
    SIM_CALL("aclrtUnSubscribeReport");
    return subscribe(thread, stream, false);
}

ngd_acl_error_t aclrtLaunchCallback(void (*call)(void *), void *arg, int block, void *stream)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtLaunchCallback");
    if (!call || block < 0 || block > 1)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "no function, or kind %d of blocking", block);
    code = sim_lock_stream(stream, &s);
    if (code == 0 && s->capture)
        code = ngd_aclsim_fail(NGD_ACL_RT_FEATURE_NOT_SUPPORT, "the same", "a callback in a capture");
    else if (code == 0 && !s->reports_to)
        code =
            ngd_aclsim_fail(NGD_ACL_RT_STREAM_NO_CB_REG, "the same", "no thread was subscribed for stream %d", s->id);
    if (code == 0)
        code = submit_callback(s, SIM_TASK_CALLBACK, call, arg, block);
    return sim_unlock(code);
}

/* Takes the report out again; false: its thread has it already. */
static bool drop_report(const bool *done)
{
    for (struct report **at = &reports; *at; at = &(*at)->next) {
        struct report *r = *at;

        if (r->done != done)
            continue;
        *at = r->next;
        if (reports_tail == &r->next)
            reports_tail = at;
        free(r);
        return true;
    }
    return false;
}

void sim_call_back(struct sim_stream *s, struct sim_task *task)
{
    struct report *r = calloc(1, sizeof(*r));
    bool done = false;

    if (!r)
        abort();
    *r = (struct report){
        .thread = s->reports_to, .call = task->call, .arg = task->arg, .done = task->block ? &done : NULL};
    *reports_tail = r;
    reports_tail = &r->next;
    pthread_cond_broadcast(&sim.changed);
    if (!task->block)
        return;
    while (!done && !s->stop && !s->aborted)
        pthread_cond_wait(&sim.changed, &sim.lock);
    if (done || drop_report(&done))
        return;
    while (!done) /* the function runs: what it reports to is on this thread's stack */
        pthread_cond_wait(&sim.changed, &sim.lock);
}

static struct report *take_report(uint64_t thread)
{
    for (struct report **at = &reports; *at; at = &(*at)->next) {
        struct report *r = *at;

        if (r->thread != thread)
            continue;
        *at = r->next;
        if (reports_tail == &r->next)
            reports_tail = at;
        return r;
    }
    return NULL;
}

ngd_acl_error_t aclrtProcessReport(int32_t milliseconds)
{
    uint64_t me = (uint64_t)pthread_self();
    struct report *r;
    struct timespec until;
    int code = 0;

    SIM_CALL("aclrtProcessReport");
    if (milliseconds == 0 || milliseconds < -1)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "a time limit of %d ms", milliseconds);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&sim.lock);
    while (!(r = take_report(me)) && code == 0) {
        if (milliseconds < 0)
            pthread_cond_wait(&sim.changed, &sim.lock);
        else if (pthread_cond_timedwait(&sim.changed, &sim.lock, &until) == ETIMEDOUT)
            code = NGD_ACL_RT_WAIT_TIMEOUT; /* no mistake: the program asks again */
    }
    if (r) {
        code = 0;
        pthread_mutex_unlock(&sim.lock);
        r->call(r->arg);
        pthread_mutex_lock(&sim.lock);
        if (r->done)
            *r->done = true;
        pthread_cond_broadcast(&sim.changed);
        free(r);
    }
    return sim_unlock(code);
}

/* ---- streams that come and go -------------------------------------------------------------------- */

static struct listener {
    char name[64];
    void (*call)(void *stream, int state, void *arg);
    void *arg;
} listeners[MAX_LISTENERS];

SIM_OPTIONAL(aclrtRegStreamStateCallback);
static ngd_acl_error_t aclrtRegStreamStateCallback_impl(const char *name, void (*call)(void *, int, void *), void *arg)
{
    struct listener *slot = NULL;
    int code = 0;

    SIM_CALL("aclrtRegStreamStateCallback");
    if (!name || !*name || strlen(name) >= sizeof(slot->name))
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "the name of a callback");
    pthread_mutex_lock(&sim.lock);
    for (size_t i = 0; i < MAX_LISTENERS; i++) {
        if (strcmp(listeners[i].name, name) == 0) {
            slot = &listeners[i];
            break;
        }
        if (!slot && !listeners[i].name[0])
            slot = &listeners[i];
    }
    if (!slot || (call && slot->call) || (!call && !slot->call)) {
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "callback \"%s\" is %s", name,
                               call ? "there already, or there are too many" : "not there");
    } else {
        memset(slot, 0, sizeof(*slot));
        if (call) {
            memcpy(slot->name, name, strlen(name));
            slot->call = call;
            slot->arg = arg;
        }
    }
    return sim_unlock(code);
}

/* With the lock held, which is given away for the calls. */
void sim_tell_stream(struct sim_stream *s, int state)
{
    for (size_t i = 0; i < MAX_LISTENERS; i++) {
        struct listener now = listeners[i];

        if (!now.call)
            continue;
        pthread_mutex_unlock(&sim.lock);
        now.call(s, state, now.arg);
        pthread_mutex_lock(&sim.lock);
    }
}

/* ---- kernels that fail --------------------------------------------------------------------------- */

struct exception {
    uint32_t task, stream, thread, device, code;
};

static void (*exception_call)(void *info);

ngd_acl_error_t aclrtSetExceptionInfoCallback(void (*call)(void *info))
{
    SIM_CALL("aclrtSetExceptionInfoCallback");
    pthread_mutex_lock(&sim.lock);
    exception_call = call;
    pthread_mutex_unlock(&sim.lock);
    return 0;
}

void sim_tell_exception(const struct sim_stream *s, uint32_t task, uint64_t thread, int code)
{
    struct exception e = {task, (uint32_t)s->id, (uint32_t)thread, (uint32_t)s->ctx->device, (uint32_t)code};
    void (*call)(void *info) = exception_call;

    if (!call)
        return;
    pthread_mutex_unlock(&sim.lock);
    call(&e);
    pthread_mutex_lock(&sim.lock);
}

#define FIELD(name, field)                                         \
    uint32_t name(const void *info)                                \
    {                                                              \
        return info ? ((const struct exception *)info)->field : 0; \
    }
FIELD(aclrtGetTaskIdFromExceptionInfo, task)
FIELD(aclrtGetStreamIdFromExceptionInfo, stream)
FIELD(aclrtGetThreadIdFromExceptionInfo, thread)
FIELD(aclrtGetDeviceIdFromExceptionInfo, device)
FIELD(aclrtGetErrorCodeFromExceptionInfo, code)

/* Kernels are C functions here: they have no arguments on the device, and no handle. */
SIM_OPTIONAL(aclrtGetArgsFromExceptionInfo);
static ngd_acl_error_t aclrtGetArgsFromExceptionInfo_impl(const void *info, void **args_p, uint32_t *bytes_p)
{
    SIM_CALL("aclrtGetArgsFromExceptionInfo");
    if (!info || !args_p || !bytes_p)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "no exception, or nowhere to put its arguments");
    return ngd_aclsim_fail(NGD_ACL_RT_FEATURE_NOT_SUPPORT, "gives them", "the simulator keeps no arguments");
}

SIM_OPTIONAL(aclrtGetFuncHandleFromExceptionInfo);
static ngd_acl_error_t aclrtGetFuncHandleFromExceptionInfo_impl(const void *info, void **function_p)
{
    SIM_CALL("aclrtGetFuncHandleFromExceptionInfo");
    if (!info || !function_p)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "no exception, or nowhere to put its function");
    return ngd_aclsim_fail(NGD_ACL_RT_FEATURE_NOT_SUPPORT, "gives it", "the simulator keeps no handles of kernels");
}
