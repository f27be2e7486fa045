/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures, models (graphs), task groups and their updates.
 *
 *   stream:  NONE --begin--> ACTIVE --end--> NONE, and a model
 *                              |  an illegal call
 *                              v
 *                           INVALIDATED --end--> NONE, and 507903
 *
 * Tasks of a capture are kept in one list, in the order in which they were recorded: that order obeys all events inside
 * the capture, so a replay walks it on the thread of the stream that replays. Streams that a capture takes are hidden
 * ones, counted against the device's; another one for every `cascade` tasks.
 */
#include "devices/ascend/sim/sim_abi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Thread_local int thread_mode = NGD_ACL_CAPTURE_GLOBAL;

/* ---- models -------------------------------------------------------------------------------------- */

void sim_model_put(struct sim_model *m)
{
    if (--m->refs)
        return;
    while (m->head) {
        struct sim_task *t = m->head;

        m->head = t->next;
        sim_task_free(t);
    }
    while (m->groups) {
        struct sim_group *g = m->groups;

        m->groups = g->next;
        if (g->user) { /* an update that was begun and not ended */
            g->user->group = NULL;
            g->user->updating = false;
        }
        sim_handle_remove(g);
        free(g->tasks);
        free(g);
    }
    if (m->bound) {
        sim.device[m->device].streams -= m->hidden;
        ngd_aclsim_live(SIM_LIVE_STREAMS, -(int64_t)m->hidden);
    }
    ngd_aclsim_live(SIM_LIVE_MODELS, -1);
    free(m);
}

static struct sim_model *capture_model_new(struct sim_stream *s, int mode)
{
    struct sim_model *m = calloc(1, sizeof(*m));

    if (!m)
        abort();
    m->device = s->ctx->device;
    m->ctx = s->ctx;
    m->tail = &m->head;
    m->capturing = true;
    m->mode = mode;
    m->thread = pthread_self();
    m->origin = s;
    m->hidden = m->n_streams = 1;
    m->bound = !sim.config.lazy_bind;
    m->refs = 2; /* the context's list, and the stream */
    m->next = s->ctx->models;
    s->ctx->models = m;
    sim_handle_add(m, SIM_MODEL);
    ngd_aclsim_live(SIM_LIVE_MODELS, 1);
    return m;
}

static void unlink_model(struct sim_model *m)
{
    struct sim_model **at = m->ctx ? &m->ctx->models : NULL;

    sim_handle_remove(m);
    while (at && *at && *at != m)
        at = &(*at)->next;
    if (at && *at) {
        *at = m->next;
        m->ctx = NULL;
        sim_model_put(m);
    }
}

/* ---- capture ------------------------------------------------------------------------------------- */

bool sim_context_captures(const struct sim_context *ctx)
{
    for (const struct sim_model *m = ctx->models; m; m = m->next)
        if (m->capturing)
            return true;
    return false;
}

int sim_capture_forbids(struct sim_context *ctx, bool async_call)
{
    for (const struct sim_model *m = ctx->models; m; m = m->next) {
        bool mine = pthread_equal(m->thread, pthread_self());

        if (!m->capturing || m->mode == NGD_ACL_CAPTURE_RELAXED || thread_mode == NGD_ACL_CAPTURE_RELAXED)
            continue;
        if (m->mode == NGD_ACL_CAPTURE_GLOBAL || mine)
            return ngd_aclsim_fail(async_call ? NGD_ACL_RT_CAPTURE_BLOCK_ASYNC : NGD_ACL_RT_CAPTURE_MODE, "the same",
                                   "a synchronous call while a stream of this context is captured in mode %d", m->mode);
    }
    return 0;
}

int sim_capture_sync(struct sim_stream *s, const char *what)
{
    if (!s->capture)
        return 0;
    s->capture->invalid = true;
    return ngd_aclsim_fail(NGD_ACL_RT_STREAM_CAPTURED, "the same; the capture is spoiled",
                           "the host waits for, or asks, %s that is captured", what);
}

static int cascade(struct sim_stream *s, struct sim_model *m)
{
    if (++m->n_tasks % sim.config.cascade)
        return 0;
    if (m->bound && !sim_take_streams(s->ctx->device, 1)) {
        m->invalid = true;
        return sim_no_stream("more tasks of a capture");
    }
    m->hidden++;
    return 0;
}

static int enter_group(struct sim_stream *s, struct sim_model *m, struct sim_task *task)
{
    struct sim_group *g = s->group;

    if (!g) {
        for (g = m->groups; g && !g->open; g = g->next)
            ;
        if (!g)
            return 0;
        g->broken = true;
        return ngd_aclsim_fail(NGD_ACL_RT_TASK_GROUP_INTR, "the same",
                               "another stream of the capture launches while a task group is open");
    }
    if (task->kernel->collective) {
        g->broken = true;
        return ngd_aclsim_fail(NGD_ACL_RT_TASK_NOT_SUPPORT, "the same", "a task group takes no collectives");
    }
    if (g->n == g->room) {
        g->room = g->room ? g->room * 2 : 4;
        g->tasks = realloc(g->tasks, g->room * sizeof(*g->tasks));
        if (!g->tasks)
            abort();
    }
    g->tasks[g->n++] = task;
    task->group = g;
    return 0;
}

int sim_capture_task(struct sim_stream *s, struct sim_task *task)
{
    struct sim_model *m = s->capture;
    int code = 0;

    if (m->invalid)
        code =
            ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_INVALIDATED, "the same", "the capture was spoiled by an earlier call");
    else if (task->kind == SIM_TASK_MODEL)
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_CAPTURED, "the same", "a graph is replayed on a captured stream");
    else if (task->kind == SIM_TASK_KERNEL)
        code = enter_group(s, m, task);
    else if (s->group)
        code = ngd_aclsim_fail(NGD_ACL_RT_TASK_NOT_SUPPORT, "the same", "a task group takes operators only");
    if (code == 0)
        code = cascade(s, m);
    if (code) {
        sim_task_free(task);
        return code;
    }
    s->tail_record = NULL;
    s->joined = NULL;
    task->lane = s->lane;
    task->number = m->n_tasks;
    if (task->kind == SIM_TASK_WAIT && !task->external && !(task->event->flags & NGD_ACL_EVENT_EXTERNAL))
        task->after = task->event->recorded;
    if (task->kind == SIM_TASK_RECORD && !task->external)
        task->event->recorded = task;
    *m->tail = task;
    m->tail = &task->next;
    return 0;
}

/* Every stream of the capture leaves it. */
static void leave_context(struct sim_context *ctx, struct sim_model *m)
{
    m->capturing = false;
    m->origin = NULL;
    /* An event names its capture only while that goes on. */
    for (struct sim_task *t = m->head; t; t = t->next) {
        if (t->event && t->event->capture == m) {
            t->event->capture = NULL;
            t->event->recorded = NULL;
            sim_model_put(m);
        }
    }
    for (struct sim_stream *s = ctx->streams; s; s = s->next) {
        if (s->capture != m)
            continue;
        s->capture = NULL;
        s->origin = false;
        s->tail_record = NULL;
        s->joined = NULL;
        s->group = NULL;
        sim_model_put(m);
    }
}

/* A captured stream is destroyed by force. */
void sim_capture_drop(struct sim_stream *s)
{
    struct sim_model *m = s->capture;

    s->capture = NULL;
    m->invalid = true;
    if (s->origin) {
        m->refs++;
        leave_context(s->ctx, m);
        unlink_model(m);
        sim_model_put(m);
    }
    sim_model_put(m);
}

/* ---- streams that libraries fork into a capture --------------------------------------------------- */

static int take_owner_once(struct sim_stream *s, const void *owner, uint32_t n)
{
    struct sim_model *m = s->capture;

    for (uint32_t i = 0; i < m->n_owners; i++)
        if (m->owners[i] == owner)
            return 0;
    if (m->n_owners == sizeof(m->owners) / sizeof(m->owners[0]) || (m->bound && !sim_take_streams(s->ctx->device, n))) {
        m->invalid = true;
        return sim_no_stream("the collectives of a capture");
    }
    m->owners[m->n_owners++] = owner;
    m->hidden += n;
    return 0;
}

int ngd_aclsim_capture_takes(void *stream, const void *owner, uint32_t n)
{
    struct sim_stream *s = NULL;
    int code;

    code = sim_lock_stream(stream, &s);
    if (code == 0 && s->capture && !s->capture->invalid)
        code = take_owner_once(s, owner, n);
    return sim_unlock(code);
}

int ngd_aclsim_capture_spoil(void *stream, const char *what)
{
    struct sim_stream *s = NULL;
    int code;

    code = sim_lock_stream(stream, &s);
    if (code == 0 && s->capture) {
        s->capture->invalid = true;
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_CAPTURED, "the same; the capture is spoiled", "%s", what);
    }
    return sim_unlock(code);
}

/* ---- begin and end -------------------------------------------------------------------------------- */

ngd_acl_error_t aclmdlRICaptureBegin(void *stream, int mode)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclmdlRICaptureBegin");
    if (!stream)
        return ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_IMPLICIT, "the same", "the default stream cannot be captured");
    if (mode < NGD_ACL_CAPTURE_GLOBAL || mode > NGD_ACL_CAPTURE_RELAXED)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "capture mode %d", mode);
    code = sim_lock_stream(stream, &s);
    if (code == 0 && s->is_default)
        code = ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_IMPLICIT, "the same", "the default stream cannot be captured");
    else if (code == 0 && s->capture)
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_CAPTURED, "the same", "stream %d is captured already", s->id);
    else if (code == 0 && !sim.config.lazy_bind && !sim_take_streams(s->ctx->device, 1))
        code = sim_no_stream("a capture");
    if (code == 0) {
        s->capture = capture_model_new(s, mode);
        s->lane = 0;
        s->origin = true;
        s->tail_record = NULL;
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclmdlRICaptureGetInfo(void *stream, int *status_p, void **model_p)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclmdlRICaptureGetInfo");
    code = sim_lock_stream(stream, &s);
    if (code == 0) {
        *status_p = !s->capture           ? NGD_ACL_CAPTURE_NONE
                    : s->capture->invalid ? NGD_ACL_CAPTURE_INVALID
                                          : NGD_ACL_CAPTURE_ACTIVE;
        /* What a device leaves here without a capture is garbage; nobody may use it. */
        *model_p = s->capture ? (void *)s->capture : (void *)(uintptr_t)0xdead;
    }
    return sim_unlock(code);
}

/* Does this side stream's last task reach the origin? */
static bool is_joined(const struct sim_stream *s)
{
    for (int hops = 0; s && hops < 64; hops++) {
        if (s->origin)
            return true;
        s = s->tail_record ? s->joined : NULL;
    }
    return false;
}

static int judge_capture_end(struct sim_stream *s, struct sim_model *m)
{
    if (m->invalid)
        return ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_INVALIDATED, "the same",
                               "the capture was spoiled by an earlier call");
    for (const struct sim_group *g = m->groups; g; g = g->next)
        if (g->open)
            return ngd_aclsim_fail(NGD_ACL_RT_TASK_GROUP_STATUS, "the same", "a task group is still open");
    for (const struct sim_stream *side = s->ctx->streams; side; side = side->next)
        if (side->capture == m && !is_joined(side))
            return ngd_aclsim_fail(NGD_ACL_RT_STREAM_UNJOINED, "the same", "stream %d was not joined to the origin",
                                   side->id);
    return 0;
}

ngd_acl_error_t aclmdlRICaptureEnd(void *stream, void **model_p)
{
    struct sim_stream *s = NULL;
    struct sim_model *m;
    int code;

    SIM_RELEASE("aclmdlRICaptureEnd");
    code = sim_lock_stream(stream, &s);
    if (code == 0 && !s->capture)
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_NOT_CAPTURED, "the same", "stream %d is not captured", s->id);
    else if (code == 0 && !s->origin)
        code =
            ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_UNMATCHED, "the same", "the capture did not begin on stream %d", s->id);
    if (code) {
        *model_p = NULL;
        return sim_unlock(code);
    }
    m = s->capture;
    if (m->mode != NGD_ACL_CAPTURE_RELAXED && !pthread_equal(m->thread, pthread_self()))
        code = ngd_aclsim_fail(NGD_ACL_RT_CAPTURE_WRONG_THREAD, "the same; the graph is gone",
                               "a capture is ended by the thread that began it");
    else
        code = judge_capture_end(s, m);
    if (code == 0)
        code = SIM_RELEASED;
    m->refs++;
    leave_context(s->ctx, m);
    if (code)
        unlink_model(m);
    *model_p = code ? NULL : m;
    sim_model_put(m);
    return sim_unlock(code);
}

ngd_acl_error_t aclmdlRICaptureThreadExchangeMode(int *mode_p)
{
    int old = thread_mode;

    SIM_CALL("aclmdlRICaptureThreadExchangeMode");
    if (*mode_p < NGD_ACL_CAPTURE_GLOBAL || *mode_p > NGD_ACL_CAPTURE_RELAXED)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "capture mode %d", *mode_p);
    thread_mode = *mode_p;
    *mode_p = old;
    return 0;
}

/* ---- replay -------------------------------------------------------------------------------------- */

static int model_of(void *handle, struct sim_context *ctx, struct sim_model **model_p)
{
    struct sim_model *m = handle;

    if (!sim_handle_is(m, SIM_MODEL))
        return ngd_aclsim_fail(NGD_ACL_RT_INVALID_HANDLE, "crashes or the same", "%p is no living graph", handle);
    if (m->ctx != ctx)
        return ngd_aclsim_fail(NGD_ACL_RT_MODEL_CONTEXT, "the same", "the graph is of another context");
    if (m->capturing)
        return ngd_aclsim_fail(NGD_ACL_RT_MODEL_CAPTURED, "the same", "the graph is being captured");
    *model_p = m;
    return 0;
}

static int bind_model_streams(struct sim_model *m)
{
    if (m->bound)
        return 0;
    if (!sim_take_streams(m->device, m->hidden))
        return sim_no_stream("the first replay of a graph");
    m->bound = true;
    return 0;
}

/* What the graph records for others is pending from its launch on; what it waits for of others is what is pending then.
 */
static uint64_t *take_tickets(struct sim_model *m)
{
    uint64_t *tickets;
    uint32_t n = 0;

    for (const struct sim_task *t = m->head; t; t = t->next)
        n += t->external;
    tickets = n ? calloc(n, sizeof(*tickets)) : NULL;
    if (n && !tickets)
        abort();
    n = 0;
    for (const struct sim_task *t = m->head; t; t = t->next)
        if (t->external)
            tickets[n++] = t->kind == SIM_TASK_RECORD ? ++t->event->taken : t->event->taken;
    return tickets;
}

static void give_tickets_back(struct sim_model *m)
{
    for (const struct sim_task *t = m->head; t; t = t->next)
        if (t->external && t->kind == SIM_TASK_RECORD)
            t->event->taken--;
}

ngd_acl_error_t aclmdlRIExecuteAsync(void *model, void *stream)
{
    struct sim_stream *s = NULL;
    struct sim_model *m = NULL;
    struct sim_task *t;
    int code;

    SIM_CALL("aclmdlRIExecuteAsync");
    code = sim_lock_stream(stream, &s);
    if (code == 0)
        code = model_of(model, s->ctx, &m);
    if (code == 0 && m)
        code = bind_model_streams(m);
    if (code == 0 && m && sim.device[m->device].lose_after >= 0 && sim.device[m->device].lose_after-- == 0)
        sim.device[m->device].lost = true;
    if (code == 0 && m) {
        t = sim_task_new(SIM_TASK_MODEL);
        t->model = m;
        t->tickets = take_tickets(m);
        m->refs++;
        code = sim_submit(s, t);
        if (code)
            give_tickets_back(m);
        sim_settle(s);
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclmdlRIDestroy(void *model)
{
    struct sim_context *ctx;
    struct sim_model *m = model;
    uint64_t until = sim_now_ns() + (uint64_t)sim.config.destroy_wait_ms * 1000000u;
    int code;

    SIM_RELEASE("aclmdlRIDestroy");
    ctx = sim_lock_context(&code);
    if (ctx && sim_handle_is(m, SIM_MODEL) && m->ctx == ctx) { /* of another context: success, as on a device */
        if (m->capturing)
            code = ngd_aclsim_fail(NGD_ACL_RT_MODEL_CAPTURED, "the same", "the graph is being captured");
        while (code == 0 && m->running) {
            struct timespec ms = {0, 1000000};

            if (sim_now_ns() > until)
                code = ngd_aclsim_fail(NGD_ACL_RT_MODEL_RUNNING, "the same, after 10 s", "the graph is running");
            pthread_mutex_unlock(&sim.lock);
            nanosleep(&ms, NULL);
            pthread_mutex_lock(&sim.lock);
        }
        if (code == 0)
            unlink_model(m);
    }
    pthread_mutex_unlock(&sim.lock);
    return code ? code : SIM_RELEASED;
}

/* For people: one object for each task, in the order in which a replay runs them. */
static void print_tasks(FILE *f, const struct sim_model *m)
{
    static const char *const kinds[] = {
        [SIM_TASK_KERNEL] = "kernel",
        [SIM_TASK_COPY] = "copy",
        [SIM_TASK_SET] = "set",
        [SIM_TASK_RECORD] = "record",
        [SIM_TASK_WAIT] = "wait",
        [SIM_TASK_RESET] = "reset",
        [SIM_TASK_HOST] = "host function",
        [SIM_TASK_NOTIFY] = "notify",
        [SIM_TASK_NOTIFY_WAIT] = "notify wait",
        [SIM_TASK_VALUE_WRITE] = "value write",
        [SIM_TASK_VALUE_WAIT] = "value wait",
    };

    fprintf(f, "{\"streams\": %u, \"tasks\": [", m->hidden);
    for (const struct sim_task *t = m->head; t; t = t->next)
        fprintf(f, "%s\n  {\"id\": %u, \"kind\": \"%s\", \"name\": \"%s\"}", t == m->head ? "" : ",", t->id,
                kinds[t->kind], t->kernel ? t->kernel->name : "");
    fprintf(f, "\n]}\n");
}

SIM_OPTIONAL(aclmdlRIDebugJsonPrint);
static ngd_acl_error_t aclmdlRIDebugJsonPrint_impl(void *model, const char *path, uint32_t flags)
{
    struct sim_context *ctx;
    struct sim_model *m = NULL;
    FILE *f = NULL;
    int code;

    SIM_CALL("aclmdlRIDebugJsonPrint");
    if (!path || flags > 1)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "no path, or flags 0x%x", flags);
    ctx = sim_lock_context(&code);
    if (ctx)
        code = model_of(model, ctx, &m);
    if (code == 0)
        f = fopen(path, "w");
    if (code == 0 && !f)
        code = ngd_aclsim_fail(NGD_ACL_RT_FILE_OPEN, "the same", "%.200s cannot be written", path);
    if (f) {
        print_tasks(f, m);
        fclose(f);
    }
    return sim_unlock(code);
}

/* ---- task groups --------------------------------------------------------------------------------- */

ngd_acl_error_t aclmdlRICaptureTaskGrpBegin(void *stream)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclmdlRICaptureTaskGrpBegin");
    code = sim_lock_stream(stream, &s);
    if (code == 0 && !s->capture) {
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_NOT_CAPTURED, "the same", "stream %d is not captured", s->id);
    } else if (code == 0 && s->group) {
        code = ngd_aclsim_fail(NGD_ACL_RT_TASK_GROUP_STATUS, "the same", "a task group is open already");
    } else if (code == 0) {
        struct sim_group *g = calloc(1, sizeof(*g));

        if (!g)
            abort();
        g->model = s->capture;
        g->open = true;
        g->next = g->model->groups;
        g->model->groups = g;
        s->group = g;
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclmdlRICaptureTaskGrpEnd(void *stream, void **group_p)
{
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclmdlRICaptureTaskGrpEnd");
    code = sim_lock_stream(stream, &s);
    if (code == 0 && (!s->capture || !s->group)) {
        code = ngd_aclsim_fail(s->capture ? NGD_ACL_RT_TASK_GROUP_STATUS : NGD_ACL_RT_STREAM_NOT_CAPTURED, "the same",
                               "no task group is open on stream %d", s->id);
    } else if (code == 0) {
        struct sim_group *g = s->group;

        s->group = NULL;
        g->open = false;
        if (g->broken || g->n == 0)
            code = ngd_aclsim_fail(g->broken ? NGD_ACL_RT_TASK_GROUP_INTR : NGD_ACL_RT_TASK_GROUP_STATUS, "the same",
                                   g->broken ? "the task group was broken" : "the task group is empty");
        else
            sim_handle_add(g, SIM_GROUP);
        *group_p = code ? NULL : g;
    }
    return sim_unlock(code);
}

ngd_acl_error_t aclmdlRICaptureTaskUpdateBegin(void *stream, void *group)
{
    struct sim_group *g = group;
    struct sim_stream *s = NULL;
    int code;

    SIM_CALL("aclmdlRICaptureTaskUpdateBegin");
    code = sim_lock_stream(stream, &s);
    if (code == 0 && s->capture)
        code = ngd_aclsim_fail(NGD_ACL_RT_STREAM_CAPTURED, "the same", "an update is made on a captured stream");
    else if (code == 0 && !sim_handle_is(g, SIM_GROUP))
        code = ngd_aclsim_fail(NGD_ACL_RT_INVALID_HANDLE, "crashes or the same", "%p is no living task group", group);
    else if (code == 0 && (g->user || s->updating))
        code = ngd_aclsim_fail(NGD_ACL_RT_TASK_GROUP_STATUS, "the same", "an update of the group is under way");
    if (code == 0) {
        g->user = s;
        s->group = g;
        s->updating = true;
        s->n_updates = 0;
    }
    return sim_unlock(code);
}

int sim_update_add(struct sim_stream *s, struct sim_kernel *kernel)
{
    if (s->n_updates == s->room_updates) {
        s->room_updates = s->room_updates ? s->room_updates * 2 : 4;
        s->updates = realloc(s->updates, s->room_updates * sizeof(*s->updates));
        if (!s->updates)
            abort();
    }
    s->updates[s->n_updates++] = kernel;
    return 0;
}

static bool update_fits(const struct sim_stream *s, const struct sim_group *g)
{
    if (s->n_updates != g->n)
        return false;
    for (uint32_t i = 0; i < g->n; i++)
        if (strcmp(s->updates[i]->name, g->tasks[i]->kernel->name) != 0)
            return false;
    return true;
}

ngd_acl_error_t aclmdlRICaptureTaskUpdateEnd(void *stream)
{
    struct sim_stream *s = NULL;
    struct sim_group *g;
    int code;

    SIM_CALL("aclmdlRICaptureTaskUpdateEnd");
    code = sim_lock_stream(stream, &s);
    if (code == 0 && !s->updating)
        code = ngd_aclsim_fail(NGD_ACL_RT_TASK_GROUP_STATUS, "the same", "no update is under way on stream %d", s->id);
    if (code == 0) {
        g = s->group;
        s->group = NULL;
        s->updating = false;
        g->user = NULL;
        if (update_fits(s, g)) {
            struct sim_task *t = sim_task_new(SIM_TASK_UPDATE);

            t->group = g;
            t->updates = s->updates;
            t->n_updates = s->n_updates;
            t->model = g->model;
            t->model->refs++;
            s->updates = NULL;
            s->n_updates = s->room_updates = 0;
            code = sim_submit(s, t);
        } else {
            code = ngd_aclsim_fail(NGD_ACL_RT_INTERNAL_ERROR, "the same",
                                   "the update has %u operators, the group %u, or they are others", s->n_updates, g->n);
            while (s->n_updates)
                ngd_aclsim_kernel_unref(s->updates[--s->n_updates]);
        }
    }
    return sim_unlock(code);
}

/* On the update's stream, with the lock held: from here on replays see the new arguments. */
void sim_update_apply(struct sim_task *task)
{
    for (uint32_t i = 0; i < task->n_updates; i++) {
        struct sim_kernel *old = task->group->tasks[i]->kernel;

        task->group->tasks[i]->kernel = task->updates[i];
        task->updates[i] = old;
    }
}
