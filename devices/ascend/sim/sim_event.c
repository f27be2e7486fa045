/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. A record takes a ticket when it is queued and completes it when the stream gets there; a wait is for the
 * newest ticket. An external event has a level instead: it is up from a record to a reset, and a wait for one that
 * nobody records never ends.
 */
#include "devices/ascend/sim/sim_abi.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int create_event(void **event_p, uint32_t flags, bool hardware)
{
    struct sim_context *ctx;
    struct sim_event *e = NULL;
    int code;

    ctx = sim_lock_context(&code);
    if (ctx && hardware && sim.device[ctx->device].events >= sim.config.events)
        code = ngd_aclsim_fail(NGD_ACL_RT_NO_EVENT_RESOURCE, "the same", "all %u events of the device are taken",
                               sim.config.events);
    if (code == 0) {
        e = calloc(1, sizeof(*e));
        if (!e)
            abort();
        e->device = ctx->device;
        e->flags = flags;
        e->hardware = hardware;
        e->record_flag = e->wait_flag = -1;
        e->refs = 1;
        sim.device[e->device].events += hardware;
        sim_handle_add(e, SIM_EVENT);
        ngd_aclsim_live(SIM_LIVE_EVENTS, 1);
        *event_p = e;
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclrtCreateEvent(void **event_p)
{
    SIM_CALL("aclrtCreateEvent");
    return create_event(event_p, NGD_ACL_EVENT_SYNC | NGD_ACL_EVENT_TIME_LINE, true);
}

static int check_flags(uint32_t flags)
{
    if (flags == 0 || (flags & NGD_ACL_EVENT_EXTERNAL && flags != NGD_ACL_EVENT_EXTERNAL) || flags & ~0x7fu)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "event flags 0x%x", flags);
    return 0;
}

ngd_acl_error_t aclrtCreateEventWithFlag(void **event_p, uint32_t flags)
{
    int code;

    SIM_CALL("aclrtCreateEventWithFlag");
    code = check_flags(flags);
    return code ? code : create_event(event_p, flags, true);
}

ngd_acl_error_t aclrtCreateEventExWithFlag(void **event_p, uint32_t flags)
{
    int code;

    SIM_CALL("aclrtCreateEventExWithFlag");
    code = check_flags(flags);
    return code ? code : create_event(event_p, flags, false);
}

void sim_event_put(struct sim_event *e)
{
    if (--e->refs)
        return;
    if (e->capture)
        sim_model_put(e->capture);
    free(e);
}

static int event_of(void *handle, struct sim_event **event_p)
{
    if (!sim_handle_is(handle, SIM_EVENT))
        return ngd_aclsim_fail(NGD_ACL_RT_INVALID_HANDLE, "crashes or the same", "%p is no living event", handle);
    *event_p = handle;
    return 0;
}

ngd_acl_error_t aclrtDestroyEvent(void *event)
{
    struct sim_event *e = NULL;
    int code;

    SIM_RELEASE("aclrtDestroyEvent");
    pthread_mutex_lock(&sim.lock);
    code = event_of(event, &e);
    if (code == 0) {
        sim_handle_remove(e);
        sim.device[e->device].events -= e->hardware;
        ngd_aclsim_live(SIM_LIVE_EVENTS, -1);
        sim_event_put(e);
    }
    pthread_mutex_unlock(&sim.lock);
    return code ? code : SIM_RELEASED;
}

/* Is it an event of a capture that goes on? */
static bool event_captured(const struct sim_event *e)
{
    return e->capture && e->capture->capturing;
}

static int enter_event_call(void *event, void *stream, struct sim_event **event_p, struct sim_stream **stream_p)
{
    int code = sim_stream_of(stream, stream_p);

    return code ? code : event_of(event, event_p);
}

static int submit_event_task(struct sim_stream *s, struct sim_event *e, sim_task_kind_t kind, uint32_t seconds)
{
    struct sim_task *t = sim_task_new(kind);

    t->event = e;
    t->seconds = seconds;
    e->refs++;
    if (kind == SIM_TASK_RECORD && !s->capture)
        e->taken++;
    t->ticket = e->taken;
    return sim_submit(s, t);
}

/* The first record of an event says how all are made, and the first wait. */
static int keep_flag(int *first, uint32_t flag, const char *what)
{
    if (*first >= 0 && *first != (int)flag)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "the event had a %s with flag %d before", what,
                               *first);
    *first = (int)flag;
    return 0;
}

/* In a capture: a record that others see, or a wait for what others record. */
static int submit_external(struct sim_stream *s, struct sim_event *e, sim_task_kind_t kind)
{
    struct sim_task *t;

    if (e->hardware || e->flags != NGD_ACL_EVENT_SYNC)
        return ngd_aclsim_fail(NGD_ACL_RT_FEATURE_NOT_SUPPORT, "the same",
                               "only an event made with Ex and ACL_EVENT_SYNC is seen outside of a graph");
    if (!s->capture)
        return ngd_aclsim_fail(NGD_ACL_RT_STREAM_NOT_CAPTURED, "the same", "stream %d is not captured", s->id);
    for (t = s->capture->head; t; t = t->next)
        if (t->external && t->event == e)
            return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same",
                                   "the graph has a record or a wait of this event for others already");
    t = sim_task_new(kind);
    t->event = e;
    t->external = true;
    e->refs++;
    return sim_submit(s, t);
}

static void mark_captured(struct sim_event *e, struct sim_stream *s)
{
    if (e->capture)
        sim_model_put(e->capture);
    e->capture = s->capture;
    e->capture_stream = s;
    if (s->capture)
        s->capture->refs++;
}

static int record_event(void *event, void *stream, uint32_t flag)
{
    struct sim_event *e = NULL;
    struct sim_stream *s = NULL;
    int code;

    pthread_mutex_lock(&sim.lock);
    code = enter_event_call(event, stream, &e, &s);
    if (code == 0)
        code = keep_flag(&e->record_flag, flag, "record");
    if (code == 0 && flag == NGD_ACL_EVENT_SEEN_OUTSIDE) {
        code = submit_external(s, e, SIM_TASK_RECORD);
        return sim_unlock(code);
    }
    if (code == 0 && event_captured(e) && e->capture != s->capture)
        code = ngd_aclsim_fail(NGD_ACL_RT_EVENT_CAPTURED, "the same", "the event belongs to a capture that goes on");
    if (code == 0)
        code = submit_event_task(s, e, SIM_TASK_RECORD, 0);
    if (code == 0 && !(e->flags & NGD_ACL_EVENT_EXTERNAL)) {
        mark_captured(e, s);
        if (s->capture)
            s->tail_record = e;
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclrtRecordEvent(void *event, void *stream)
{
    SIM_CALL("aclrtRecordEvent");
    return record_event(event, stream, 0);
}

SIM_OPTIONAL(aclrtRecordEventWithFlag);
static ngd_acl_error_t aclrtRecordEventWithFlag_impl(void *event, void *stream, uint32_t flag)
{
    SIM_CALL("aclrtRecordEventWithFlag");
    if (flag > NGD_ACL_EVENT_SEEN_OUTSIDE)
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "flag %u of a record", flag);
    return record_event(event, stream, flag);
}

ngd_acl_error_t aclrtResetEvent(void *event, void *stream)
{
    struct sim_event *e = NULL;
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclrtResetEvent");
    pthread_mutex_lock(&sim.lock);
    code = enter_event_call(event, stream, &e, &s);
    if (code == 0 && !e->hardware)
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "an event that was made with Ex has no reset");
    if (code == 0)
        code = submit_event_task(s, e, SIM_TASK_RESET, 0);
    return sim_unlock(code);
}

/* A stream of a capture waits: the event must be of the same capture. */
static int join_capture(struct sim_stream *s, struct sim_event *e)
{
    struct sim_model *m = e->capture;

    if (!event_captured(e)) {
        s->capture->invalid = true;
        return ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_DEPENDENCY, "the same; the capture is spoiled",
                               "a captured stream waits for an event that was not recorded in the capture");
    }
    if (s->capture && s->capture != m) {
        s->capture->invalid = true;
        return ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_CONFLICT, "the same", "one event joins two captures");
    }
    if (!s->capture) {
        if (s->is_default)
            return ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_IMPLICIT, "the same", "the default stream would join a capture");
        if (!sim.config.lazy_bind && !sim_take_streams(s->ctx->device, 1)) {
            m->invalid = true;
            return sim_no_stream("the side stream of a capture");
        }
        m->hidden++;
        s->lane = m->n_streams++;
        m->refs++;
        s->capture = m;
        s->origin = false;
        s->tail_record = NULL;
    }
    if (e->capture_stream != s && e->capture_stream->tail_record == e)
        e->capture_stream->joined = s;
    return 0;
}

static int wait_event(void *stream, void *event, uint32_t seconds, uint32_t flag)
{
    struct sim_event *e = NULL;
    struct sim_stream *s = NULL;
    int code;

    pthread_mutex_lock(&sim.lock);
    code = enter_event_call(event, stream, &e, &s);
    if (code == 0)
        code = keep_flag(&e->wait_flag, flag, "wait");
    if (code == 0 && flag == NGD_ACL_EVENT_SEEN_OUTSIDE) {
        code = submit_external(s, e, SIM_TASK_WAIT);
        return sim_unlock(code);
    }
    if (code == 0 && !(e->flags & (NGD_ACL_EVENT_SYNC | NGD_ACL_EVENT_EXTERNAL)))
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "the event was made without ACL_EVENT_SYNC");
    if (code == 0 && !(e->flags & NGD_ACL_EVENT_EXTERNAL) && (s->capture || event_captured(e)))
        code = join_capture(s, e);
    if (code == 0)
        code = submit_event_task(s, e, SIM_TASK_WAIT, seconds);
    return sim_unlock(code);
}

ngd_acl_error_t aclrtStreamWaitEvent(void *stream, void *event)
{
    SIM_CALL("aclrtStreamWaitEvent");
    return wait_event(stream, event, 0, 0);
}

SIM_OPTIONAL(aclrtStreamWaitEventWithFlag);
static ngd_acl_error_t aclrtStreamWaitEventWithFlag_impl(void *stream, void *event, uint32_t seconds, uint32_t flag)
{
    SIM_CALL("aclrtStreamWaitEventWithFlag");
    if (flag > NGD_ACL_EVENT_SEEN_OUTSIDE || (flag == NGD_ACL_EVENT_SEEN_OUTSIDE && seconds))
        return ngd_aclsim_fail(NGD_ACL_INVALID_PARAM, "the same", "flag %u of a wait, with a limit of %u s", flag,
                               seconds);
    return wait_event(stream, event, seconds, flag);
}

static int check_host_use(const struct sim_event *e)
{
    if (e->flags == NGD_ACL_EVENT_EXTERNAL)
        return ngd_aclsim_fail(NGD_ACL_RT_FEATURE_NOT_SUPPORT, "the same", "the host asks for an external event");
    if (event_captured(e)) {
        e->capture->invalid = true;
        return ngd_aclsim_fail(NGD_ACL_RT_EVENT_CAPTURED, "the same; the capture is spoiled",
                               "the host asks for an event that was recorded in a capture");
    }
    return 0;
}

/* One with a hardware id is pending until its first record; one without is complete. */
static bool event_is_complete(const struct sim_event *e)
{
    return e->done >= e->taken && (!e->hardware || e->level);
}

ngd_acl_error_t aclrtQueryEventStatus(void *event, int *status_p)
{
    struct sim_event *e = NULL;
    int code;

    SIM_CALL("aclrtQueryEventStatus");
    pthread_mutex_lock(&sim.lock);
    code = event_of(event, &e);
    if (code == 0)
        code = check_host_use(e);
    if (code == 0)
        *status_p = event_is_complete(e) ? NGD_ACL_EVENT_COMPLETE : NGD_ACL_EVENT_PENDING;
    return sim_unlock(code);
}

static int synchronize_event(void *event, int32_t milliseconds)
{
    struct sim_event *e = NULL;
    struct timespec until;
    int code;

    if (milliseconds == 0 || milliseconds < -1)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "a time limit of %d ms", milliseconds);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&sim.lock);
    code = event_of(event, &e);
    if (code == 0)
        code = check_host_use(e);
    while (code == 0 && e->done < e->taken) {
        if (milliseconds < 0)
            pthread_cond_wait(&sim.changed, &sim.lock);
        else if (pthread_cond_timedwait(&sim.changed, &sim.lock, &until) == ETIMEDOUT)
            code = ngd_aclsim_fail(NGD_ACL_RT_EVENT_SYNC_TIMEOUT, "the same", "not complete after %d ms", milliseconds);
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclrtSynchronizeEvent(void *event)
{
    SIM_CALL("aclrtSynchronizeEvent");
    return synchronize_event(event, -1);
}

ngd_acl_error_t aclrtSynchronizeEventWithTimeout(void *event, int32_t milliseconds)
{
    SIM_CALL("aclrtSynchronizeEventWithTimeout");
    return synchronize_event(event, milliseconds);
}

ngd_acl_error_t aclrtEventElapsedTime(float *milliseconds_p, void *start, void *end)
{
    struct sim_event *a = NULL, *b = NULL;
    int code;

    SIM_CALL("aclrtEventElapsedTime");
    pthread_mutex_lock(&sim.lock);
    code = event_of(start, &a);
    if (code == 0)
        code = event_of(end, &b);
    if (code == 0 && !(a->flags & b->flags & NGD_ACL_EVENT_TIME_LINE))
        code =
            ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "the events were made without ACL_EVENT_TIME_LINE");
    if (code == 0 && (!a->when_ns || !b->when_ns))
        code = ngd_aclsim_fail(NGD_ACL_RT_EVENT_TIMESTAMP_INVALID, "the same", "an event was not recorded yet");
    if (code == 0)
        *milliseconds_p = (float)(((double)b->when_ns - (double)a->when_ns) / 1e6);
    return sim_unlock(code);
}

ngd_acl_error_t aclrtEventGetTimestamp(void *event, uint64_t *microseconds_p)
{
    struct sim_event *e = NULL;
    int code;

    SIM_CALL("aclrtEventGetTimestamp");
    pthread_mutex_lock(&sim.lock);
    code = event_of(event, &e);
    if (code == 0)
        code = check_host_use(e);
    if (code == 0 && !(e->flags & NGD_ACL_EVENT_TIME_LINE))
        code = ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "the event was made without ACL_EVENT_TIME_LINE");
    if (code == 0 && !e->when_ns)
        code = ngd_aclsim_fail(NGD_ACL_RT_EVENT_TIMESTAMP_INVALID, "the same", "the event was not recorded yet");
    if (code == 0)
        *microseconds_p = e->when_ns / 1000;
    return sim_unlock(code);
}

SIM_OPTIONAL(aclrtGetEventAvailNum);
static ngd_acl_error_t aclrtGetEventAvailNum_impl(uint32_t *count_p)
{
    struct sim_context *ctx;
    int code;

    SIM_CALL("aclrtGetEventAvailNum");
    ctx = sim_lock_context(&code);
    if (ctx)
        *count_p = sim.config.events - sim.device[ctx->device].events;
    return sim_unlock(code);
}
