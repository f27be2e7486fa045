/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: a queue of tasks and one thread each.
 *
 * A task that fails leaves its code with the stream, until a synchronisation reports it, and the tasks after it run:
 * that is how a device starts. Once a stream of a context is told to stop on failure, the code stays with the context:
 * kernels and copies that come later do not run, while events go on, and new ones are refused. A wait for an event that
 * is never recorded hangs, until the stream is aborted or destroyed by force.
 */
#include "devices/ascend/sim/sim_abi.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* aclrtStreamState: what listeners are told. */
#define STATE_CREATED 1
#define STATE_ENDS    2

/* ---- tasks --------------------------------------------------------------------------------------- */

struct sim_task *sim_task_new(sim_task_kind_t kind)
{
    struct sim_task *task = calloc(1, sizeof(*task));

    if (!task)
        abort();
    task->kind = kind;
    return task;
}

void ngd_aclsim_kernel_unref(struct sim_kernel *kernel)
{
    if (kernel && atomic_fetch_sub(&kernel->refs, 1) == 1)
        kernel->release(kernel);
}

void sim_task_free(struct sim_task *task)
{
    ngd_aclsim_kernel_unref(task->kernel);
    if (task->event)
        sim_event_put(task->event);
    if (task->model)
        sim_model_put(task->model);
    if (task->notify)
        sim_notify_put(task->notify);
    free(task->tickets);
    for (uint32_t i = 0; i < task->n_updates; i++)
        ngd_aclsim_kernel_unref(task->updates[i]);
    free(task->updates);
    free(task);
}

void sim_set_error(struct sim_stream *s, int code, const char *text)
{
    if (!s->error) {
        s->error = code;
        snprintf(s->error_text, sizeof(s->error_text), "%s", text);
    }
    if (s->ctx && (s->ctx->stop || code == NGD_ACL_RT_LOST_HEARTBEAT) && !s->ctx->error)
        s->ctx->error = code;
}

/* What the device was told to do to the next kernel. */
static int check_stream_device(struct sim_stream *s)
{
    struct sim_device *d = &sim.device[s->ctx->device];
    int code = 0;

    pthread_mutex_lock(&sim.lock);
    if (d->hang) { /* the kernel that meets it, and no other */
        d->hang = false;
        while (!s->aborted && !s->stop)
            pthread_cond_wait(&sim.changed, &sim.lock);
    }
    if (d->fault) {
        d->fault = false;
        code = NGD_ACL_RT_AICORE_EXCEPTION;
    } else if (d->lost) {
        code = NGD_ACL_RT_LOST_HEARTBEAT;
    } else if (s->aborted || s->stop) {
        code = NGD_ACL_RT_STREAM_ABORT;
    }
    return sim_unlock(code);
}

/* Of the kernel that runs on this thread. */
static _Thread_local int raised;
static _Thread_local char raised_text[160];
static _Thread_local const struct sim_stream *running_on;

void ngd_aclsim_raise_code(int code, const char *fmt, ...)
{
    va_list ap;

    raised = code;
    va_start(ap, fmt);
    vsnprintf(raised_text, sizeof(raised_text), fmt, ap);
    va_end(ap);
}

void ngd_aclsim_raise(void)
{
    ngd_aclsim_raise_code(NGD_ACL_RT_AICORE_EXCEPTION, "met an index outside its tensor");
}

bool ngd_aclsim_stopped(void)
{
    bool stopped;

    pthread_mutex_lock(&sim.lock);
    stopped = running_on && (running_on->aborted || running_on->stop);
    pthread_mutex_unlock(&sim.lock);
    return stopped;
}

int sim_run_kernel(struct sim_stream *s, struct sim_kernel *kernel, bool in_model)
{
    int code = check_stream_device(s);
    char text[200];

    snprintf(text, sizeof(text), "kernel %s ended with %d", kernel->name, code);
    for (uint32_t i = 0; i < kernel->n_spans && code == 0; i++) {
        if (kernel->spans[i].bytes &&
            ngd_aclsim_space(kernel->spans[i].addr, kernel->spans[i].bytes) != SIM_SPACE_DEVICE) {
            code = NGD_ACL_RT_AICORE_EXCEPTION;
            snprintf(text, sizeof(text), "kernel %s: operand %u, %llu bytes at %p, is not device memory (any more)",
                     kernel->name, i, (unsigned long long)kernel->spans[i].bytes, kernel->spans[i].addr);
        }
    }
    raised = 0;
    running_on = s;
    if (code == 0 && !sim.config.empty_kernels)
        kernel->run(kernel);
    running_on = NULL;
    if (raised) {
        code = raised;
        snprintf(text, sizeof(text), "kernel %s %s", kernel->name, raised_text);
    }
    if (code) {
        pthread_mutex_lock(&sim.lock);
        sim_set_error(s, in_model && code == NGD_ACL_RT_AICORE_EXCEPTION ? NGD_ACL_RT_MODEL_EXECUTE : code, text);
        pthread_mutex_unlock(&sim.lock);
    }
    return code;
}

static bool is_recorded(const struct sim_task *t)
{
    return t->event->flags & NGD_ACL_EVENT_EXTERNAL ? t->event->level : t->event->done >= t->ticket;
}

static void used_memory(struct sim_stream *s)
{
    s->kernel = NULL;
    s->copy = NULL;
    sim_memory_unbury(s);
}

static void execute_task(struct sim_stream *s, struct sim_task *t)
{
    bool spoiled = s->ctx->error != 0;
    int code = 0, failed = 0;

    switch (t->kind) {
    case SIM_TASK_KERNEL:
    case SIM_TASK_COPY:
    case SIM_TASK_SET:
        s->kernel = t->kernel;
        s->copy = t->kernel ? NULL : t;
        pthread_mutex_unlock(&sim.lock);
        if (spoiled)
            code = 0;
        else if (t->kind == SIM_TASK_KERNEL)
            failed = sim_run_kernel(s, t->kernel, false);
        else if (t->kind == SIM_TASK_COPY)
            code = sim_copy_now(t->dst, t->src, t->bytes, t->copy_kind);
        else
            code = sim_set_now(t->dst, t->value, t->bytes);
        pthread_mutex_lock(&sim.lock);
        used_memory(s);
        if (code)
            sim_set_error(s, code, "an asynchronous copy met memory that is not of its kind (any more)");
        if (failed)
            sim_tell_exception(s, t->id, t->thread, failed);
        break;
    case SIM_TASK_RECORD:
        if (t->event->done < t->ticket)
            t->event->done = t->ticket;
        t->event->level = true;
        t->event->when_ns = sim_now_ns();
        break;
    case SIM_TASK_WAIT:
        if (!sim_await(s, t->seconds, is_recorded, t))
            sim_set_error(s, NGD_ACL_RT_TASK_TIMEOUT, "an event was not recorded in time");
        break;
    case SIM_TASK_RESET:
        t->event->level = false;
        break;
    case SIM_TASK_MODEL:
        sim_model_run(s, t->model, t->tickets);
        break;
    case SIM_TASK_UPDATE:
        sim_update_apply(t);
        break;
    case SIM_TASK_HOST:
        sim_call_host(s, t);
        break;
    case SIM_TASK_CALLBACK:
        if (!spoiled)
            sim_call_back(s, t);
        break;
    case SIM_TASK_NOTIFY:
        t->notify->up = true;
        break;
    case SIM_TASK_NOTIFY_WAIT:
        sim_notify_wait(s, t);
        break;
    case SIM_TASK_VALUE_WRITE:
        sim_value_write(s, t);
        break;
    case SIM_TASK_VALUE_WAIT:
        sim_value_wait(s, t);
        break;
    }
}

/* One kernel of a model. A failure ends the model's kernels, whatever the mode of the stream. */
static int run_in_model(struct sim_stream *s, struct sim_task *t)
{
    struct sim_kernel *k = t->kernel; /* an update may replace it from now on */
    int code;

    atomic_fetch_add(&k->refs, 1);
    s->kernel = k;
    pthread_mutex_unlock(&sim.lock);
    code = sim_run_kernel(s, k, true);
    pthread_mutex_lock(&sim.lock);
    used_memory(s);
    ngd_aclsim_kernel_unref(k);
    if (code)
        sim_tell_exception(s, t->id, t->thread, code);
    return code;
}

static void run_task(struct sim_stream *s, struct sim_task *t, const uint64_t *ticket, int *failed)
{
    if (t->kind == SIM_TASK_KERNEL) {
        if (!*failed && !s->ctx->error)
            *failed = run_in_model(s, t);
    } else if (t->external) {
        struct sim_task now = *t; /* each replay has tickets of its own */

        now.ticket = *ticket;
        execute_task(s, &now);
    } else if (t->kind != SIM_TASK_WAIT || t->event->flags & NGD_ACL_EVENT_EXTERNAL) {
        execute_task(s, t); /* a wait inside the model is kept by the order in which its tasks are run */
    }
    pthread_cond_broadcast(&sim.changed);
}

/* In the order of the capture, which all events allow. */
static void run_model_in_order(struct sim_stream *s, struct sim_model *m, const uint64_t *tickets)
{
    int failed = 0;

    for (struct sim_task *t = m->head; t && !s->stop && !s->aborted; t = t->next) {
        run_task(s, t, tickets, &failed);
        tickets += t->external;
    }
}

#define LANES 64

/* The first task of each of the capture's streams from there on; NULL: it has ended. */
static struct sim_task *next_of(struct sim_task *t, uint32_t lane)
{
    while (t && t->lane != lane)
        t = t->next;
    return t;
}

/* In another order that the events allow: what a program forgot to wait for is seen in its results. */
static void run_shuffled(struct sim_stream *s, struct sim_model *m)
{
    struct sim_task *at[LANES];
    bool *done = calloc(m->n_tasks + 1, sizeof(*done));
    uint32_t random = sim.config.shuffle, left = m->n_streams;
    int failed = 0;

    if (!done)
        abort();
    for (uint32_t i = 0; i < m->n_streams; i++) {
        at[i] = next_of(m->head, i);
        left -= at[i] == NULL;
    }
    while (left && !s->stop && !s->aborted) {
        struct sim_task *t;

        random = random * 1664525u + 1013904223u;
        t = at[(random >> 16) % m->n_streams];
        if (!t || (t->after && !done[t->after->number]))
            continue;
        run_task(s, t, NULL, &failed);
        done[t->number] = true;
        at[t->lane] = next_of(t->next, t->lane);
        left -= at[t->lane] == NULL;
    }
    free(done);
}

/* The tasks of a model, on the thread of the stream that replays it; with the lock held. */
void sim_model_run(struct sim_stream *s, struct sim_model *m, const uint64_t *tickets)
{
    if (sim.config.shuffle && !tickets && m->n_streams > 1 && m->n_streams <= LANES)
        run_shuffled(s, m);
    else
        run_model_in_order(s, m, tickets);
    m->running--;
}

void sim_stream_drop_tasks(struct sim_stream *s)
{
    while (s->head) {
        struct sim_task *t = s->head;

        s->head = t->next;
        if (t->kind == SIM_TASK_MODEL)
            t->model->running--;
        sim_task_free(t);
    }
    s->tail = &s->head;
}

static void *sim_stream_main(void *arg)
{
    struct sim_stream *s = arg;

    pthread_mutex_lock(&sim.lock);
    for (;;) {
        struct sim_task *t;

        while (!s->stop && !s->head)
            pthread_cond_wait(&s->work, &sim.lock);
        if (s->stop)
            break;
        t = s->head;
        s->head = t->next;
        if (!s->head)
            s->tail = &s->head;
        s->running = true;
        execute_task(s, t);
        s->running = false;
        sim_task_free(t);
        pthread_cond_broadcast(&sim.changed);
    }
    sim_stream_drop_tasks(s);
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------------- */

bool sim_take_streams(int device, uint32_t n)
{
    struct sim_device *d = &sim.device[device];

    if (d->streams + n > sim.config.streams)
        return false;
    d->streams += n;
    ngd_aclsim_live(SIM_LIVE_STREAMS, n);
    return true;
}

int sim_no_stream(const char *what)
{
    return ngd_aclsim_fail(sim.config.old_driver ? NGD_ACL_RT_RESOURCE_ALLOC_FAIL : NGD_ACL_RT_NO_STREAM_RESOURCE,
                           "the same; the text speaks of memory or disk with an older driver",
                           "no stream is left for %s: all %u of the device are taken", what, sim.config.streams);
}

int sim_stream_create(struct sim_context *ctx, struct sim_stream **stream_p)
{
    struct sim_stream *s = NULL;

    if (!sim_take_streams(ctx->device, 1))
        return sim_no_stream("a stream");
    s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    s->ctx = ctx;
    s->id = sim.next_stream_id++;
    s->tail = &s->head;
    pthread_cond_init(&s->work, NULL);
    s->next = ctx->streams;
    ctx->streams = s;
    if (pthread_create(&s->thread, NULL, sim_stream_main, s))
        abort();
    sim_handle_add(s, SIM_STREAM);
    *stream_p = s;
    sim_tell_stream(s, STATE_CREATED);
    return 0;
}

/* Whatever it does: tasks are dropped, waits end. */
void sim_stream_destroy_locked(struct sim_stream *s)
{
    struct sim_stream **at = &s->ctx->streams;

    sim_tell_stream(s, STATE_ENDS);
    sim_handle_remove(s);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&sim.lock);
    if (s->capture)
        sim_capture_drop(s);
    for (uint32_t i = 0; i < s->n_updates; i++)
        ngd_aclsim_kernel_unref(s->updates[i]);
    free(s->updates);
    if (s->updating && s->group)
        s->group->user = NULL;
    sim.device[s->ctx->device].streams--;
    ngd_aclsim_live(SIM_LIVE_STREAMS, -1);
    pthread_cond_destroy(&s->work);
    free(s);
}

int sim_stream_of(void *handle, struct sim_stream **stream_p)
{
    struct sim_context *ctx;
    int code;

    ctx = sim_current(&code);
    if (!ctx)
        return code;
    if (!handle) {
        if (sim_context_captures(ctx))
            return ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_IMPLICIT, "the same",
                                   "the default stream is used while a stream of its context is captured");
        if (!ctx->default_stream) {
            code = sim_stream_create(ctx, &ctx->default_stream);
            if (code)
                return code;
            ctx->default_stream->is_default = true;
        }
        *stream_p = ctx->default_stream;
        return 0;
    }
    if (!sim_handle_is(handle, SIM_STREAM))
        return ngd_aclsim_fail(NGD_ACL_RT_INVALID_HANDLE, "crashes or the same", "%p is no living stream", handle);
    *stream_p = handle;
    if ((*stream_p)->ctx != ctx)
        return ngd_aclsim_fail(NGD_ACL_RT_STREAM_CONTEXT, "the same", "stream %d is of another context",
                               (*stream_p)->id);
    return 0;
}

int sim_lock_stream(void *handle, struct sim_stream **stream_p)
{
    pthread_mutex_lock(&sim.lock);
    return sim_stream_of(handle, stream_p);
}

struct sim_context *sim_lock_context(int *code_p)
{
    pthread_mutex_lock(&sim.lock);
    return sim_current(code_p);
}

int sim_unlock(int code)
{
    pthread_mutex_unlock(&sim.lock);
    return code;
}

/* After a failure, where a stream was told to stop on one, nothing that does work is taken any more. */
static int refuse_after_failure(const struct sim_stream *s, const struct sim_task *task)
{
    bool works = task->kind == SIM_TASK_KERNEL || task->kind == SIM_TASK_COPY || task->kind == SIM_TASK_SET ||
                 task->kind == SIM_TASK_MODEL;

    if (!works || !s->ctx->stop || !s->ctx->error)
        return 0;
    return ngd_aclsim_fail(s->ctx->error, "the same", "a task of the context failed, and it stops on failure");
}

int sim_submit(struct sim_stream *s, struct sim_task *task)
{
    int code = sim_device_state(s->ctx->device);

    task->id = sim_next_task_id();
    task->thread = (uint64_t)pthread_self();
    if (code == 0)
        code = refuse_after_failure(s, task);
    if (code == 0 && s->capture)
        return sim_capture_task(s, task);
    if (code == 0 && s->updating && task->kind == SIM_TASK_KERNEL) {
        code = sim_update_add(s, task->kernel);
        task->kernel = NULL;
        sim_task_free(task);
        return code;
    }
    if (code) {
        sim_task_free(task);
        return code;
    }
    if (task->kind == SIM_TASK_MODEL)
        task->model->running++;
    *s->tail = task;
    s->tail = &task->next;
    pthread_cond_signal(&s->work);
    return 0;
}

int ngd_aclsim_stream_at(void *stream, int *device_p, bool *captured_p)
{
    struct sim_stream *s = NULL;
    int code;

    code = sim_lock_stream(stream, &s);
    if (code == 0) {
        *device_p = s->ctx->device;
        *captured_p = s->capture != NULL;
    }
    return sim_unlock(code);
}

int ngd_aclsim_launch(struct sim_kernel *kernel, void *stream)
{
    struct sim_stream *s = NULL;
    struct sim_task *task;
    int code;

    code = sim_lock_stream(stream, &s);
    if (code == 0) {
        task = sim_task_new(SIM_TASK_KERNEL);
        task->kernel = kernel;
        code = sim_submit(s, task);
        sim_settle(s);
    } else {
        ngd_aclsim_kernel_unref(kernel);
    }
    return sim_unlock(code);
}
