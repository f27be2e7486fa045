/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may ask of streams: to be made, waited for, aborted, and what they are. */
#include "devices/ascend/sim/sim_abi.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

ngd_acl_error_t aclrtCreateStreamWithConfig(void **stream_p, uint32_t priority, uint32_t flags)
{
    struct sim_context *ctx;
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtCreateStreamWithConfig");
    if (!stream_p || flags & ~0x3fu || priority > 7)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "stream flags 0x%x, priority %u", flags, priority);
    ctx = sim_lock_context(&code);
    if (ctx)
        code = sim_stream_create(ctx, &s);
    if (code == 0) {
        s->flags = flags;
        s->priority = priority;
    }
    pthread_mutex_unlock(&sim.lock);
    if (code == 0)
        *stream_p = s;
    return code;
}

ngd_acl_error_t aclrtCreateStream(void **stream_p)
{
    SIM_CALL("aclrtCreateStream");
    return aclrtCreateStreamWithConfig(stream_p, 0, 0);
}

static bool idle(const struct sim_stream *s)
{
    return !s->head && !s->running;
}

/* Waits with the lock held; false: the time is over. milliseconds < 0: no limit. */
static bool wait_idle(struct sim_stream *s, int32_t milliseconds)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    if (milliseconds > 0) {
        until.tv_sec += milliseconds / 1000;
        until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
    }
    while (sim_handle_is(s, SIM_STREAM) && !idle(s) && !s->aborted) {
        if (milliseconds < 0)
            pthread_cond_wait(&sim.changed, &sim.lock);
        else if (pthread_cond_timedwait(&sim.changed, &sim.lock, &until) == ETIMEDOUT)
            return idle(s);
    }
    return true;
}

void sim_settle(struct sim_stream *s)
{
    if (!sim.config.lenient || s->capture || s->updating)
        return;
    while (!wait_idle(s, 1000) && (s->kernel || s->copy)) /* else it waits for something that the program does later */
        continue;
}

static int report_error(struct sim_stream *s)
{
    int code = s->error ? s->error : s->ctx->error;

    if (!code)
        return 0;
    ngd_aclsim_fail(code, "the same; its context is spoiled", "stream %d: %s", s->id,
                    s->error ? s->error_text : "an earlier task of its context failed");
    s->error = 0;
    return code;
}

static int synchronize_stream(void *stream, int32_t milliseconds)
{
    struct sim_stream *s = NULL;
    int code;

    if (milliseconds == 0 || milliseconds < -1)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "a time limit of %d ms", milliseconds);
    code = sim_lock_stream(stream, &s);
    if (code == 0)
        code = sim_capture_sync(s, "a stream");
    if (code == 0 && !wait_idle(s, milliseconds))
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_SYNC_TIMEOUT, "the same; the tasks stay where they are",
                               "stream %d is not idle after %d ms", s->id, milliseconds);
    else if (code == 0 && !sim_handle_is(s, SIM_STREAM))
        code = NGD_ACL_RT_STREAM_ABORT;
    else if (code == 0 && s->aborted)
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_ABORT, "the same", "stream %d is being aborted", s->id);
    else if (code == 0)
        code = report_error(s);
    return sim_unlock(code);
}

ngd_acl_error_t aclrtSynchronizeStreamWithTimeout(void *stream, int32_t milliseconds)
{
    SIM_CALL("aclrtSynchronizeStreamWithTimeout");
    return synchronize_stream(stream, milliseconds);
}

ngd_acl_error_t aclrtSynchronizeStream(void *stream)
{
    SIM_CALL("aclrtSynchronizeStream");
    return synchronize_stream(stream, -1);
}

static int synchronize_device(int32_t milliseconds)
{
    struct sim_context *ctx;
    int code;

    if (milliseconds == 0 || milliseconds < -1)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "a time limit of %d ms", milliseconds);
    ctx = sim_lock_context(&code);
    if (ctx && sim_context_captures(ctx))
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_CAPTURED, "the same", "a stream of the context is captured");
    for (struct sim_stream *s = ctx && !code ? ctx->streams : NULL; s; s = s->next) {
        if (!wait_idle(s, milliseconds)) {
            code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_SYNC_TIMEOUT, "the same", "not idle after %d ms", milliseconds);
            break;
        }
        code = report_error(s);
        if (code)
            break;
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclrtSynchronizeDevice(void)
{
    SIM_CALL("aclrtSynchronizeDevice");
    return synchronize_device(-1);
}

ngd_acl_error_t aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds)
{
    SIM_CALL("aclrtSynchronizeDeviceWithTimeout");
    return synchronize_device(milliseconds);
}

ngd_acl_error_t aclrtStreamQuery(void *stream, int *status_p)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtStreamQuery");
    code = sim_lock_stream(stream, &s);
    if (code == 0)
        code = sim_capture_sync(s, "the state of a stream");
    if (code == 0)
        *status_p = idle(s) ? NGD_ACL_STREAM_COMPLETE : NGD_ACL_STREAM_PENDING;
    return sim_unlock(code);
}

static int destroy_stream(void *stream, bool force)
{
    struct sim_stream *s = stream;
    int code = 0;

    pthread_mutex_lock(&sim.lock);
    if (!sim_handle_is(s, SIM_STREAM)) {
        code = ngd_aclsim_fail(NGD_ACL_RT_INVALID_HANDLE, "crashes or the same", "%p is no living stream", stream);
    } else if (s->capture && !force) {
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_CAPTURED, "the same", "stream %d is captured", s->id);
    } else {
        if (!force)
            wait_idle(s, -1);
        sim_stream_destroy_locked(s);
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclrtDestroyStream(void *stream)
{
    int code;

    SIM_RELEASE("aclrtDestroyStream");
    code = destroy_stream(stream, false);
    return code ? code : SIM_RELEASED;
}

ngd_acl_error_t aclrtDestroyStreamForce(void *stream)
{
    int code;

    SIM_RELEASE("aclrtDestroyStreamForce");
    code = destroy_stream(stream, true);
    return code ? code : SIM_RELEASED;
}

ngd_acl_error_t aclrtStreamAbort(void *stream)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtStreamAbort");
    code = sim_lock_stream(stream, &s);
    if (code == 0) {
        sim_stream_drop_tasks(s);
        s->aborted = true;
        pthread_cond_broadcast(&sim.changed);
        while (s->running)
            pthread_cond_wait(&sim.changed, &sim.lock);
        s->aborted = false;
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclrtSetStreamFailureMode(void *stream, uint64_t mode)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtSetStreamFailureMode");
    code = sim_lock_stream(stream, &s);
    if (code == 0 && mode > NGD_ACL_STOP_ON_FAILURE)
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "failure mode %llu", (unsigned long long)mode);
    if (code == 0 && mode == NGD_ACL_STOP_ON_FAILURE)
        s->ctx->stop = true;
    return sim_unlock(code);
}

/* A word of a stream. */
static int read_stream_field(void *stream, size_t field, void *word_p)
{
    struct sim_stream *s = NULL;
    int code = sim_lock_stream(stream, &s);

    if (code == 0)
        memcpy(word_p, (const char *)s + field, sizeof(uint32_t));
    return sim_unlock(code);
}

ngd_acl_error_t aclrtStreamGetId(void *stream, int32_t *id_p)
{
    SIM_CALL("aclrtStreamGetId");
    return read_stream_field(stream, offsetof(struct sim_stream, id), id_p);
}

SIM_OPTIONAL(aclrtGetStreamAvailableNum);
static ngd_acl_error_t aclrtGetStreamAvailableNum_impl(uint32_t *count_p)
{
    struct sim_context *ctx;
    int code;

    SIM_CALL("aclrtGetStreamAvailableNum");
    ctx = sim_lock_context(&code);
    if (ctx)
        *count_p = sim.config.streams - sim.device[ctx->device].streams;
    return sim_unlock(code);
}

/* ---- what programs of others ask for ------------------------------------------------------------- */

SIM_OPTIONAL(aclrtStreamGetFlags);
static ngd_acl_error_t aclrtStreamGetFlags_impl(void *stream, uint32_t *flags_p)
{
    SIM_CALL("aclrtStreamGetFlags");
    return read_stream_field(stream, offsetof(struct sim_stream, flags), flags_p);
}

SIM_OPTIONAL(aclrtStreamGetPriority);
static ngd_acl_error_t aclrtStreamGetPriority_impl(void *stream, uint32_t *priority_p)
{
    SIM_CALL("aclrtStreamGetPriority");
    return read_stream_field(stream, offsetof(struct sim_stream, priority), priority_p);
}

SIM_OPTIONAL(aclrtCtxGetCurrentDefaultStream);
static ngd_acl_error_t aclrtCtxGetCurrentDefaultStream_impl(void **stream_p)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtCtxGetCurrentDefaultStream");
    code = sim_lock_stream(NULL, &s);
    if (code == 0)
        *stream_p = s;
    return sim_unlock(code);
}

/* The task that runs is ended, those behind it stay. A kernel here is a C function, which runs to its end. */
SIM_OPTIONAL(aclrtStreamStop);
static ngd_acl_error_t aclrtStreamStop_impl(void *stream)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtStreamStop");
    if (!stream)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "the default stream cannot be stopped");
    code = sim_lock_stream(stream, &s);
    if (code == 0 && s->running) {
        s->aborted = true;
        pthread_cond_broadcast(&sim.changed);
        while (s->running)
            pthread_cond_wait(&sim.changed, &sim.lock);
        s->aborted = false;
    }
    return sim_unlock(code);
}

struct stream_config {
    void *work;
    size_t bytes, flags;
    uint32_t priority;
};

void *aclrtCreateStreamConfigHandle(void)
{
    return calloc(1, sizeof(struct stream_config));
}

ngd_acl_error_t aclrtDestroyStreamConfigHandle(void *config)
{
    SIM_RELEASE("aclrtDestroyStreamConfigHandle");
    if (!config)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "no configuration");
    free(config);
    return SIM_RELEASED;
}

ngd_acl_error_t aclrtSetStreamConfigOpt(void *config, int attribute, const void *value, size_t bytes)
{
    static const size_t sizes[] = {sizeof(void *), sizeof(size_t), sizeof(uint32_t), sizeof(uint32_t)};
    struct stream_config *c = config;
    uint32_t word;

    SIM_CALL("aclrtSetStreamConfigOpt");
    if (!c || !value || attribute < 0 || attribute > 3 || bytes != sizes[attribute])
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "attribute %d of a stream in %zu bytes", attribute,
                               bytes);
    if (attribute == 0) {
        memcpy(&c->work, value, bytes);
    } else if (attribute == 1) {
        memcpy(&c->bytes, value, bytes);
    } else {
        memcpy(&word, value, sizeof(word));
        if (attribute == 2)
            c->flags = word;
        else
            c->priority = word;
    }
    return 0;
}

ngd_acl_error_t aclrtCreateStreamV2(void **stream_p, const void *config)
{
    const struct stream_config *c = config;

    SIM_CALL("aclrtCreateStreamV2");
    if (!stream_p || !c || c->work)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same, except for memory of one's own",
                               "no configuration, or one with memory of its own");
    return aclrtCreateStreamWithConfig(stream_p, c->priority, (uint32_t)c->flags);
}
