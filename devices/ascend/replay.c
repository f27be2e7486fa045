/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capturing and replaying.
 *
 * A launch fills the instance's pinned staging memory, checks indices there, and then
 *
 *   replay  executes the captured graph (copies of inputs, operators, copies for the CPU's part), and updates the task
 *           groups whose arguments are host parameters: always, because the graph waits for each update's event;
 *   eager   gives the same copies and operators to the stream one by one;
 *
 * copies wanted outputs to the staging memory, waits with a time limit, checks indices that the device has computed,
 * runs the CPU's part, and copies results out.
 * It returns when nothing of it runs any more, so what the launch borrowed is free then; and if the device does not
 * finish, the stream is broken and its context is destroyed before anything else happens with it.
 *
 * Rows beyond the launch's are padding: they get the last row's input, whose indices are valid, and slot -1, which
 * writes nothing.
 */
#include "base/clock.h"
#include "base/log.h"
#include "devices/ascend/attention_rows.h"
#include "devices/ascend/group.h"
#include "devices/ascend/issue.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SLICE_MS         100 /* how late a rank sees that another one failed */
#define MIN_FREE_STREAMS 2   /* a capture takes at least its hidden stream; one more may be needed for many tasks */

/* ---- inputs -------------------------------------------------------------------------------------- */

static void pad_rows(const struct ngd_plan_io *io, char *at, uint64_t actual, bool is_slot)
{
    if (is_slot) /* -1 in each integer that has a sign; slots of others are refused */
        memset(at + actual, 0xff, io->bytes - actual);
    else if (actual == 0)
        memset(at, 0, io->bytes);
    else
        for (uint64_t n = actual; n < io->bytes; n += io->row_bytes)
            memcpy(at + n, at + actual - io->row_bytes, io->row_bytes);
}

static void fill_inputs(const struct ascend_inst *inst, const struct ngd_launch *launch)
{
    const struct ascend_exec *exec = inst->exec;

    for (uint32_t i = 0; i < exec->plan->graph->n_inputs; i++) {
        const struct ngd_plan_io *io = &exec->plan->inputs[i];
        uint64_t actual = ngd_ascend_io_bytes(io, launch->symbols);
        char *at = inst->staging + exec->in_at[i];

        if (io->tensor == NGD_PLAN_NONE)
            continue;
        if (actual)
            memcpy(at, launch->inputs[i].data, actual);
        if (actual < io->bytes && io->row_bytes)
            pad_rows(io, at, actual, exec->is_slot[i]);
    }
}

/* ---- the body: copies and operators, captured or not --------------------------------------------------------------
 */

static ngd_status_t copy_to_device(struct ascend_issue *c)
{
    const struct ascend_exec *exec = c->inst->exec;

    for (uint32_t i = 0; i < c->plan->graph->n_inputs; i++) {
        const struct ngd_plan_io *io = &c->plan->inputs[i];
        struct ascend_place to;
        ngd_acl_error_t code;

        if (io->tensor == NGD_PLAN_NONE || io->bytes == 0)
            continue;
        to = ngd_ascend_place(c->inst, io->tensor);
        code = c->acl->aclrtMemcpyAsync(to.base + to.before, io->bytes, c->inst->staging + exec->in_at[i], io->bytes,
                                        NGD_ACL_COPY_H2D, c->stream);
        if (code)
            return ngd_ascend_stream_fail(c->s, code, "a copy of an input", c->diag);
    }
    return NGD_OK;
}

/* From the begin of the tensor's storage, which is aligned as copies want it. `at` is for the tensor's first byte. */
static ngd_status_t copy_to_host(struct ascend_stream *s, const struct ascend_inst *inst, uint32_t tensor,
                                 uint64_t bytes, uint64_t at, void *on, struct ngd_diag *diag)
{
    struct ascend_place from = ngd_ascend_place(inst, tensor);
    uint64_t n = from.before + bytes;
    ngd_acl_error_t code;

    if (bytes == 0)
        return NGD_OK;
    code = s->dev->acl->aclrtMemcpyAsync(inst->staging + at - from.before, n, from.base, n, NGD_ACL_COPY_D2H, on);
    return code ? ngd_ascend_stream_fail(s, code, "a copy of a result", diag) : NGD_OK;
}

/* Before the call: its operand's memory may be somebody else's after it. */
static ngd_status_t copy_for_check(struct ascend_issue *c, const struct ascend_check *check)
{
    uint64_t before = ngd_ascend_place(c->inst, check->tensor).before;

    return copy_to_host(c->s, c->inst, check->tensor, check->bytes, check->at + before, c->stream, c->diag);
}

static ngd_status_t copy_for_tail(struct ascend_issue *c, const struct ascend_tail *tail)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < tail->call->n_in && status == NGD_OK; i++)
        if (tail->at[i] != UINT64_MAX)
            status = copy_to_host(c->s, c->inst, tail->call->in[i], c->plan->tensors[tail->call->in[i]].bytes,
                                  tail->at[i], c->stream, c->diag);
    return status;
}

/* ---- streams of a capture ------------------------------------------------------------------------ */

static void *stream_of(const struct ascend_issue *c, uint32_t stream)
{
    return stream && c->marks ? c->s->sides[stream - 1] : c->s->stream;
}

static ngd_status_t mark(const struct ascend_issue *c, uint32_t number, void *stream)
{
    ngd_acl_error_t code = c->acl->aclrtRecordEvent(c->marks[number], stream);

    return code ? ngd_ascend_stream_fail(c->s, code, "an event between streams", c->diag) : NGD_OK;
}

static ngd_status_t wait_for_mark(const struct ascend_issue *c, uint32_t number, void *stream)
{
    ngd_acl_error_t code = c->acl->aclrtStreamWaitEvent(stream, c->marks[number]);

    return code ? ngd_ascend_stream_fail(c->s, code, "the wait of a stream for another one", c->diag) : NGD_OK;
}

/* The side streams join the capture. Event 0 is the fork's, event n that of the join of stream n. */
static ngd_status_t fork_streams(const struct ascend_issue *c)
{
    const struct ascend_exec *exec = c->inst->exec;
    ngd_status_t status = c->marks ? mark(c, 0, c->s->stream) : NGD_OK;

    for (uint32_t i = 1; c->marks && i < c->plan->n_streams && status == NGD_OK; i++)
        if (exec->forked[i])
            status = wait_for_mark(c, 0, stream_of(c, i));
    return status;
}

static ngd_status_t join_streams(const struct ascend_issue *c)
{
    const struct ascend_exec *exec = c->inst->exec;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 1; c->marks && i < c->plan->n_streams && status == NGD_OK; i++) {
        if (!exec->forked[i])
            continue;
        status = mark(c, i, stream_of(c, i));
        if (status == NGD_OK)
            status = wait_for_mark(c, i, c->s->stream);
    }
    return status;
}

static ngd_status_t wait_before(const struct ascend_issue *c, const struct ngd_plan_call *call)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; c->marks && i < call->n_waits && status == NGD_OK; i++)
        status = wait_for_mark(c, c->inst->exec->mark_of[call->waits[i]], c->stream);
    return status;
}

static ngd_status_t issue_one(struct ascend_issue *c, uint32_t i)
{
    const struct ngd_plan_call *call = &c->plan->calls[i];
    const struct ascend_exec *exec = c->inst->exec;
    const struct ascend_tail *tail = exec->tail_of[i];
    ngd_status_t status;

    c->stream = stream_of(c, call->scope.stream);
    status = wait_before(c, call);
    if (status == NGD_OK && exec->computed_of[i])
        status = copy_for_check(c, exec->computed_of[i]);
    if (status == NGD_OK)
        status = tail ? copy_for_tail(c, tail) : ngd_ascend_issue_call(c, call);
    if (status == NGD_OK && c->marks && exec->mark_of[i] != NGD_PLAN_NONE)
        status = mark(c, exec->mark_of[i], c->stream);
    return status;
}

static ngd_status_t issue_body(struct ascend_issue *c)
{
    ngd_status_t status = copy_to_device(c);

    if (status == NGD_OK)
        status = fork_streams(c);
    for (uint32_t i = 0; i < c->plan->n_calls && status == NGD_OK; i++)
        status = issue_one(c, i);
    return status == NGD_OK ? join_streams(c) : status;
}

static struct ascend_issue issue_on(struct ascend_stream *s, const struct ascend_inst *inst, struct ngd_launch *launch)
{
    return (struct ascend_issue){.mode = ASCEND_ISSUE,
                                 .dev = s->dev,
                                 .acl = s->dev->acl,
                                 .plan = inst->exec->plan,
                                 .inst = inst,
                                 .s = s,
                                 .stream = s->stream,
                                 .hosts = launch->hosts,
                                 .diag = &launch->diag};
}

/* ---- capture --------------------------------------------------------------------------------------------------------
 */

/* Events for the streams of a capture: of this graph only, as long as it lives. */
static ngd_status_t make_marks(struct ascend_stream *s, uint32_t n, struct ascend_captured *captured,
                               struct ngd_diag *diag)
{
    captured->marks = NGD_NEW_N(void *, n);
    if (!captured->marks)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a capture");
    for (; captured->n_marks < n; captured->n_marks++) {
        ngd_acl_error_t code =
            s->dev->acl->aclrtCreateEventExWithFlag(&captured->marks[captured->n_marks], NGD_ACL_EVENT_SYNC);

        if (code)
            return ngd_ascend_stream_fail(s, code, "an event between streams", diag);
        ngd_ascend_count_events(s->dev, 1);
    }
    return NGD_OK;
}

/* A call ends a capture in any case: half of one would stay with the stream. */
static ngd_status_t record_graph(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch,
                                 struct ascend_captured *captured)
{
    struct ascend_issue c = issue_on(s, inst, launch);
    ngd_acl_error_t code = c.acl->aclmdlRICaptureBegin(s->stream, NGD_ACL_CAPTURE_THREAD_LOCAL);
    ngd_status_t status;
    void *model = NULL;

    if (code)
        return ngd_ascend_stream_fail(s, code, "aclmdlRICaptureBegin", &launch->diag);
    c.capturing = true;
    c.task_groups = captured->task_groups;
    c.marks = captured->marks;
    status = issue_body(&c);
    code = c.acl->aclmdlRICaptureEnd(s->stream, &model);
    if (code && status == NGD_OK)
        status = ngd_ascend_stream_fail(s, code, "aclmdlRICaptureEnd", &launch->diag);
    if (status && !code && model)
        c.acl->aclmdlRIDestroy(model);
    if (status == NGD_OK)
        captured->model = model;
    return status;
}

/* With side streams (marks), or all calls on the stream's own. */
static ngd_status_t capture_once(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch,
                                 bool sides, struct ascend_captured *captured)
{
    const struct ascend_exec *exec = inst->exec;
    ngd_status_t status = ngd_ascend_enter(s->dev, s->context, &launch->diag);
    uint32_t before, after;

    if (status == NGD_OK)
        status = ngd_ascend_stream_task_groups(s, exec->n_task_groups, &launch->diag);
    if (status == NGD_OK && sides)
        status = ngd_ascend_stream_sides(s, exec->plan->n_streams - 1, &launch->diag);
    if (status == NGD_OK && sides)
        status = make_marks(s, exec->n_marks, captured, &launch->diag);
    before = ngd_ascend_streams_free(s->dev);
    if (status == NGD_OK)
        status = record_graph(s, inst, launch, captured);
    after = ngd_ascend_streams_free(s->dev);
    captured->cost = before > after ? before - after : 1;
    if (status) {
        ngd_ascend_drop_marks(s->dev, captured->marks, captured->n_marks);
        captured->marks = NULL;
        captured->n_marks = 0;
    }
    return status;
}

/* Makes room before, and when the device says that there was none. */
static ngd_status_t capture_with_room(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch,
                                      struct ascend_captured *captured)
{
    struct ascend_device *dev = s->dev;
    bool sides = inst->exec->mark_of != NULL;
    ngd_status_t status;

    while (ngd_ascend_streams_free(dev) < MIN_FREE_STREAMS && ngd_ascend_give_up_one(dev))
        ;
    do {
        status = capture_once(s, inst, launch, sides, captured);
    } while (status == NGD_ERR_NO_STREAMS && ngd_ascend_give_up_one(dev));
    if (status == NGD_ERR_NO_STREAMS && sides) { /* they are for speed only */
        launch->diag = (struct ngd_diag){0};
        status = capture_once(s, inst, launch, false, captured);
    }
    if (status == NGD_OK) {
        ngd_ascend_set_graph(inst, s, captured);
        atomic_fetch_add(&dev->captures, 1);
    }
    return status;
}

static ngd_status_t capture_launch(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch)
{
    struct ascend_captured captured = {.task_groups = NGD_NEW_N(void *, inst->exec->n_task_groups + 1)};
    ngd_nsec_t start = ngd_now();
    ngd_status_t status;

    if (!captured.task_groups)
        return launch->status = ngd_diag_set(&launch->diag, NGD_ERR_NO_MEMORY, "no host memory for a capture");
    ngd_ascend_drop_graph(inst); /* of another stream */
    ngd_mutex_lock(&s->dev->capture_lock);
    status = capture_with_room(s, inst, launch, &captured);
    ngd_mutex_unlock(&s->dev->capture_lock);
    /* What was given up was of other contexts. */
    if (status == NGD_OK)
        status = ngd_ascend_enter(s->dev, s->context, &launch->diag);
    else
        ngd_free(captured.task_groups);
    ngd_debug("devices",
              "device %s, stream %s: captured %u operators on %u streams, %u task groups in %" PRId64 " us status=%s",
              s->dev->name, s->name, inst->exec->plan->n_calls, captured.n_marks ? inst->exec->plan->n_streams : 1,
              inst->exec->n_task_groups, (int64_t)((ngd_now() - start) / NGD_USEC), ngd_status_name(status));
    return status;
}

/* ---- replay -------------------------------------------------------------------------------------- */

/* When updates fail, the graph's waits must still end: the events are recorded without them. */
static void release_waits(struct ascend_stream *s, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++)
        if (s->dev->acl->aclrtRecordEvent(s->events[i], s->update))
            s->broken = true;
}

static ngd_status_t update_task_groups(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch)
{
    struct ascend_issue c = issue_on(s, inst, launch);
    uint32_t recorded = 0;

    c.mode = ASCEND_UPDATE;
    c.stream = s->update;
    c.task_groups = inst->graph.task_groups;
    for (uint32_t i = 0; i < c.plan->n_calls && c.status == NGD_OK; i++) {
        ngd_acl_error_t code;

        if (!ngd_ascend_has_task_group(inst->exec, i) || ngd_ascend_issue_call(&c, &c.plan->calls[i]))
            continue;
        code = c.acl->aclrtRecordEvent(s->events[recorded], s->update);
        if (code)
            c.status = ngd_ascend_stream_fail(s, code, "the event of an update", &launch->diag);
        else
            recorded++;
    }
    if (c.status)
        release_waits(s, recorded, inst->exec->n_task_groups);
    atomic_fetch_add_explicit(&s->dev->updates, recorded, memory_order_relaxed);
    return c.status;
}

static ngd_status_t queue_output_copies(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch)
{
    const struct ascend_exec *exec = inst->exec;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < exec->plan->graph->n_outputs && status == NGD_OK; i++)
        if (launch->outputs[i].data && !exec->out_on_host[i])
            status = copy_to_host(s, inst, exec->plan->outputs[i].tensor,
                                  ngd_ascend_io_bytes(&exec->plan->outputs[i], launch->symbols), exec->out_at[i],
                                  s->stream, &launch->diag);
    return status;
}

static ngd_status_t execute_graph(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch)
{
    ngd_acl_error_t code = s->dev->acl->aclmdlRIExecuteAsync(inst->graph.model, s->stream);
    ngd_status_t status;

    /* With newer drivers a graph takes its streams when it first runs. */
    while (code && ngd_acl_error_find(code)->status == NGD_ERR_NO_STREAMS && ngd_ascend_give_up_one(s->dev)) {
        status = ngd_ascend_enter(s->dev, s->context, &launch->diag);
        if (status)
            return status;
        code = s->dev->acl->aclmdlRIExecuteAsync(inst->graph.model, s->stream);
    }
    if (code)
        return ngd_ascend_stream_fail(s, code, "aclmdlRIExecuteAsync", &launch->diag);
    return inst->exec->n_task_groups ? update_task_groups(s, inst, launch) : NGD_OK;
}

/* Once in a launch: before its first collective reaches the device. */
static ngd_status_t meet_groups(const struct ascend_inst *inst, struct ngd_launch *launch, bool *met_p)
{
    ngd_status_t status = NGD_OK;

    if (inst->exec->n_comms && !*met_p) {
        status = ngd_ascend_groups_meet(inst->exec, launch, &launch->diag);
        *met_p = status == NGD_OK;
    }
    return status;
}

/* The graph is of this stream, and of the communicators that there are now. */
static bool get_graph(struct ascend_stream *s, struct ascend_inst *inst)
{
    if (!ngd_ascend_get_graph(inst, s))
        return false;
    if (!inst->exec->n_comms || inst->stamp == ngd_ascend_group_stamp(inst->exec))
        return true;
    ngd_ascend_put_graph(inst);
    return false;
}

/* Captures before it meets: that takes a while, and the others' devices would wait. */
static ngd_status_t replay_launch(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch,
                                  bool *met_p)
{
    ngd_status_t status = NGD_OK;

    if (!get_graph(s, inst)) {
        inst->stamp = ngd_ascend_group_stamp(inst->exec);
        status = capture_launch(s, inst, launch);
    }
    if (status == NGD_OK)
        status = meet_groups(inst, launch, met_p);
    if (status == NGD_OK)
        status = execute_graph(s, inst, launch);
    return status;
}

static ngd_status_t run_launch_eagerly(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch,
                                       bool *met_p)
{
    struct ascend_issue c = issue_on(s, inst, launch);
    ngd_status_t status = meet_groups(inst, launch, met_p);

    if (status)
        return status;
    atomic_fetch_add_explicit(&s->dev->eager, 1, memory_order_relaxed);
    return issue_body(&c);
}

/* ---- the whole of a launch ----------------------------------------------------------------------- */

/*
 * While a collective waits for other ranks, it is asked now and then whether they still come. The limit is of the time
 * that was waited, not of the clock's: where the process was stopped for longer, all ranks were.
 */
static ngd_acl_error_t synchronize_launch(struct ascend_stream *s, const struct ascend_inst *inst)
{
    const struct ngd_acl *acl = s->dev->acl;
    const int slice = inst->exec->n_comms && SLICE_MS < s->dev->limit_ms ? SLICE_MS : s->dev->limit_ms;
    ngd_acl_error_t code;
    int64_t waited = 0;

    do {
        code = acl->aclrtSynchronizeStreamWithTimeout(s->stream, slice);
        waited += slice;
    } while (code == NGD_ACL_RT_STREAM_SYNC_TIMEOUT && waited < s->dev->limit_ms &&
             ngd_ascend_groups_broken(inst->exec, NULL) == NGD_OK);
    return code;
}

/* Nothing of the launch runs when this returns, or the stream is broken. */
static ngd_status_t await_launch(struct ascend_stream *s, const struct ascend_inst *inst, ngd_status_t status,
                                 struct ngd_launch *launch)
{
    ngd_acl_error_t code = synchronize_launch(s, inst);
    struct ngd_diag diag = {0};
    ngd_status_t waited;

    if (code == 0)
        return status;
    waited = ngd_ascend_stream_fail(s, code, "the device's work", &diag);
    /* Whatever it was: what runs, or still waits, on the stream is not known any more. */
    s->broken = true;
    if (code == NGD_ACL_RT_STREAM_SYNC_TIMEOUT && status == NGD_OK && ngd_ascend_groups_span(inst->exec) &&
        ngd_ascend_groups_broken(inst->exec, NULL) == NGD_OK)
        return ngd_diag_set(&launch->diag, NGD_ERR_COLLECTIVE_TIMEOUT,
                            "the launch did not end within %d ms: a rank in another daemon may be gone",
                            s->dev->limit_ms);
    if (ngd_status_scope(waited) != NGD_SCOPE_DEVICE)
        waited = NGD_ERR_DEVICE_FAULT;
    if (status == NGD_OK || ngd_status_scope(status) != NGD_SCOPE_DEVICE) {
        launch->diag = diag;
        launch->diag.status = waited;
        return waited;
    }
    return status; /* the first error is the cause */
}

/* After a time limit: the tasks hold addresses of the pool and of the staging memory, which may go away now. */
static void stop_what_runs(struct ascend_stream *s)
{
    if (!ngd_ascend_enter_to_release(s->dev, s->context))
        return;
    s->dev->acl->aclrtStreamAbort(s->stream);
    if (s->update)
        s->dev->acl->aclrtStreamAbort(s->update);
}

/*
 * The launch has met the others, and did not end well. Who failed breaks the group; who was stopped because another one
 * had says so, since its device is not to blame. The group's reset makes what it ran on anew.
 */
static ngd_status_t end_in_groups(const struct ascend_inst *inst, ngd_status_t status, bool failed_first,
                                  struct ngd_launch *launch)
{
    struct ngd_diag diag = {0};
    ngd_status_t broken;

    ngd_ascend_groups_spoil(inst->exec);
    if (failed_first)
        return status;
    broken = ngd_ascend_groups_broken(inst->exec, &diag);
    if (!broken) {
        ngd_ascend_groups_fail(inst->exec, "failed", launch->diag.text);
        return status;
    }
    if (status == NGD_ERR_DEVICE_LOST)
        return status;
    launch->diag = diag;
    return broken;
}

static ngd_status_t run_replay_or_eager(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch)
{
    bool eager = launch->eager || ngd_ascend_leaves_rows(inst, launch), met = false, failed;
    ngd_status_t status = eager ? run_launch_eagerly(s, inst, launch, &met) : replay_launch(s, inst, launch, &met);

    if (status == NGD_ERR_NO_STREAMS && !eager) {
        static struct ngd_log_limit limit;

        ngd_log_limited(&limit, NGD_LOG_WARNING, "devices",
                        "device %s, stream %s: no stream is left for a capture, running operator by operator",
                        s->dev->name, s->name);
        ngd_ascend_drop_graph(inst);
        status = ngd_ascend_enter(s->dev, s->context, &launch->diag);
        if (status == NGD_OK)
            status = run_launch_eagerly(s, inst, launch, &met);
    }
    if (status == NGD_OK)
        status = queue_output_copies(s, inst, launch);
    failed = met && status;
    if (failed) /* the others wait for what this rank has not queued */
        ngd_ascend_groups_fail(inst->exec, "failed", launch->diag.text);
    status = await_launch(s, inst, status, launch);
    if (s->broken)
        stop_what_runs(s);
    ngd_ascend_put_graph(inst);
    return met && status ? end_in_groups(inst, status, failed, launch) : status;
}

static void copy_launch_out(const struct ascend_inst *inst, const struct ngd_launch *launch)
{
    const struct ascend_exec *exec = inst->exec;

    for (uint32_t i = 0; i < exec->plan->graph->n_outputs; i++) {
        uint64_t n = ngd_ascend_io_bytes(&exec->plan->outputs[i], launch->symbols);

        if (launch->outputs[i].data && n)
            memcpy(launch->outputs[i].data, inst->staging + exec->out_at[i], n);
    }
}

static bool has_current_weights(const struct ascend_stream *s, const struct ascend_inst *inst)
{
    return !inst->exec->n_weights || inst->nz_epoch == atomic_load_explicit(&s->dev->nz.epoch, memory_order_acquire);
}

/* Where a launch on this stream runs. */
static struct ascend_stream *place_of(struct ascend_stream *s, const struct ascend_inst *inst)
{
    return inst->exec->n_comms ? ngd_ascend_group_stream(inst->exec) : s;
}

/* To take the graph and to put it back makes it the last one to be given up. */
bool ngd_ascend_ready(void *stream, void *inst_v)
{
    struct ascend_inst *inst = inst_v;
    struct ascend_stream *s = place_of(stream, inst);

    if (!has_current_weights(s, inst) || !get_graph(s, inst))
        return false;
    ngd_ascend_put_graph(inst);
    return true;
}

/* From the inputs to the end of the device's work and the CPU's. */
static ngd_status_t compute_launch(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch)
{
    ngd_nsec_t start = ngd_now();
    ngd_status_t status;

    if (!has_current_weights(s, inst))
        ngd_ascend_nz_refresh(inst);
    fill_inputs(inst, launch);
    launch->copy_in_time = ngd_now() - start;
    status = ngd_ascend_check_inputs(inst, launch);
    if (status == NGD_OK)
        status = ngd_ascend_map_rows(inst, launch);
    if (status == NGD_OK)
        ngd_ascend_spread_rows(inst, launch);
    if (status == NGD_OK)
        status = ngd_ascend_enter(s->dev, s->context, &launch->diag);
    if (status == NGD_OK)
        status = run_replay_or_eager(s, inst, launch);
    if (status == NGD_OK)
        status = ngd_ascend_check_computed(inst, launch);
    if (status == NGD_OK)
        status = ngd_ascend_run_tails(inst, launch);
    return status;
}

static ngd_status_t compute_in_groups(struct ascend_stream *s, struct ascend_inst *inst, struct ngd_launch *launch)
{
    uint32_t begun = 0;
    ngd_status_t status = ngd_ascend_groups_begin(inst->exec, &begun, &launch->diag);

    if (status == NGD_OK)
        status = compute_launch(s, inst, launch);
    if (status)
        ngd_ascend_groups_excuse(inst->exec, begun, launch);
    ngd_ascend_groups_end(inst->exec, begun, launch);
    return status;
}

ngd_status_t ngd_ascend_launch(void *stream, void *inst_v, struct ngd_launch *launch)
{
    struct ascend_inst *inst = inst_v;
    struct ascend_stream *own = stream, *s = place_of(own, inst);
    ngd_nsec_t start = ngd_now(), computed;
    ngd_status_t status;

    if (!own->context || own->broken) {
        ngd_diag_set(&launch->diag, NGD_ERR_STREAM_ERROR, "stream %s has no context; reset it", own->name);
        ngd_ascend_groups_fail(inst->exec, "does not run", launch->diag.text);
        return launch->status = NGD_ERR_STREAM_ERROR;
    }
    status = inst->exec->n_comms ? compute_in_groups(s, inst, launch) : compute_launch(s, inst, launch);
    if (status == NGD_OK) {
        computed = ngd_now();
        copy_launch_out(inst, launch);
        launch->copy_out_time = ngd_now() - computed;
        atomic_fetch_add_explicit(&s->dev->replays, 1, memory_order_relaxed);
    }
    if (own->broken && ngd_status_scope(status) != NGD_SCOPE_DEVICE) {
        if (!launch->diag.text[0])
            ngd_diag_set(&launch->diag, NGD_ERR_DEVICE_FAULT, "stream %s is broken", own->name);
        status = launch->diag.status = NGD_ERR_DEVICE_FAULT; /* the text has the cause */
    }
    if (s->broken && ngd_status_scope(status) == NGD_SCOPE_DEVICE)
        own->broken = true; /* its reset finds out whether the device still makes contexts */
    launch->device_time = ngd_now() - start;
    return launch->status = status;
}
