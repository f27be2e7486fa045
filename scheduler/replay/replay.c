/* SPDX-License-Identifier: Apache-2.0 */
/* Runs executables on slots, and keeps account of it: metrics, expected times, poisoned executables. */
#include "base/log.h"
#include "scheduler/lineup/estimate.h"
#include "scheduler/replay/replay.h"
#include <inttypes.h>
#include <stdio.h>

/* Updates the expected time. If slots race a sample is lost, which does not matter. */
static void learn_run_time(struct ngd_executable *x, ngd_nsec_t t)
{
    uint32_t runs = atomic_fetch_add_explicit(&x->runs, 1, memory_order_relaxed);
    ngd_nsec_t expected = atomic_load_explicit(&x->expected, memory_order_relaxed);
    ngd_nsec_t doubt = atomic_load_explicit(&x->doubt, memory_order_relaxed);

    ngd_estimate_learn(runs, t, &expected, &doubt);
    atomic_store_explicit(&x->expected, expected, memory_order_relaxed);
    atomic_store_explicit(&x->doubt, doubt, memory_order_relaxed);
}

/* Raises the expected time after a stopped run: a whole run takes longer than that. */
static void learn_stopped(struct ngd_executable *x, ngd_nsec_t t)
{
    ngd_nsec_t expected = atomic_load_explicit(&x->expected, memory_order_relaxed);

    t = ngd_estimate_clip(t, expected);
    if (t > expected)
        atomic_store_explicit(&x->expected, t, memory_order_relaxed);
}

static void account_rows(struct ngd_program *prog, struct ngd_executable *x, const struct ngd_launch *launch)
{
    const struct ngd_plan *plan = ngd_exec_plan(x->exec);
    int64_t rows;

    if (prog->row_symbol >= prog->graph->n_symbols)
        return;
    rows = launch->symbols[prog->row_symbol];
    ngd_metric_add(NGD_M_ROWS, (uint64_t)rows);
    ngd_metric_add(NGD_M_PADDED_ROWS, (uint64_t)(plan->symbols[prog->row_symbol] - rows));
    if (rows == plan->symbols[prog->row_symbol] ||
        atomic_fetch_add_explicit(&x->padded_runs, 1, memory_order_relaxed) > 0)
        return;
    /* Only an executable's first padded run is noted; the executable and the metrics count the others. */
    ngd_program_note(prog, NGD_EVENT_PADDED, &plan->key, launch->tag, "%s = %" PRId64 " ran in the bucket of %" PRId64,
                     prog->graph->symbols[prog->row_symbol].name, rows, plan->symbols[prog->row_symbol]);
}

static const ngd_event_reason_t eager_events[NGD_EAGER_MAX] = {
    [NGD_EAGER_REQUESTED] = NGD_EVENT_EAGER_REQUESTED,
    [NGD_EAGER_LIMIT] = NGD_EVENT_EAGER_LIMIT,
    [NGD_EAGER_FORCED] = NGD_EVENT_EAGER_FORCED,
    [NGD_EAGER_QUARANTINED] = NGD_EVENT_EAGER_QUARANTINED,
};

void ngd_slot_note_busy(struct ngd_slot *slot, ngd_nsec_t t)
{
    atomic_fetch_add_explicit(&slot->queue->busy, t, memory_order_relaxed);
    slot->busy_unreported += t;
    ngd_metric_row_add(slot->queue->busy_seconds, (uint64_t)(slot->busy_unreported / NGD_USEC));
    slot->busy_unreported %= NGD_USEC;
}

/* Counts a complete replay; t: its whole device time. */
static void account_replay(struct ngd_executable *x, const struct ngd_launch *launch, ngd_nsec_t t, bool quarantined)
{
    struct ngd_program *prog = x->prog;

    account_rows(prog, x, launch);
    if (launch->eager || quarantined) {
        int why = quarantined                 ? NGD_EAGER_QUARANTINED
                  : prog->options.force_eager ? NGD_EAGER_FORCED
                  : x->cached                 ? NGD_EAGER_REQUESTED
                                              : NGD_EAGER_LIMIT;

        ngd_program_note(prog, eager_events[why], &ngd_exec_plan(x->exec)->key, launch->tag, "%s",
                         ngd_event_infos[eager_events[why]].help);

        atomic_fetch_add_explicit(&prog->eager_runs, 1, memory_order_relaxed);
        ngd_metric_row_add(prog->sched->eager_rows[why], 1);
        return;
    }
    learn_run_time(x, t);
    atomic_fetch_add_explicit(&prog->replays, 1, memory_order_relaxed);
    ngd_metric_row_add(prog->replays_row, 1);
    ngd_metric_observe(NGD_M_REPLAY_SECONDS, t);
}

static void set_health(struct ngd_queue *queue, bool healthy)
{
    if (atomic_exchange(&queue->healthy, healthy) == healthy)
        return;
    ngd_metric_row_set(queue->healthy_gauge, healthy);
    if (healthy)
        ngd_notice("scheduler", "device %s serves again", queue->dev_name);
    else
        ngd_error("scheduler", "device %s has a fault that a reset of its stream does not clear", queue->dev_name);
}

/* A fault is sticky: without a reset every later launch of the stream would fail too. */
void ngd_slot_recover(struct ngd_slot *slot, struct ngd_executable *x, ngd_status_t status)
{
    static struct ngd_log_limit limit;
    char name[NGD_LOG_VALUE_MAX];

    ngd_log_limited(&limit, NGD_LOG_WARNING, "scheduler",
                    "device %s, stream slot %u: reset after a fault, executable dropped graph=%s reason=%s",
                    slot->queue->dev_name, (unsigned)slot->index, ngd_log_value(x->prog->graph->name, name),
                    ngd_status_name(status));
    ngd_program_poison(x->prog, x);
    ngd_stream_reset(slot->stream);
    set_health(slot->queue, ngd_stream_status(slot->stream) == NGD_OK);
}

/* Explains a lost device. The stream's own text is about an earlier error, which does not help a client. */
static ngd_status_t say_lost(const struct ngd_slot *slot, const struct ngd_executable *x, struct ngd_launch *launch)
{
    return ngd_diag_set(
        &launch->diag, NGD_ERR_DEVICE_LOST,
        "device %s has failed and did not recover; the data of graph \"%.100s\" on it is lost: load it on "
        "another device (npugraphctl devices lists them), or have this device reset",
        slot->queue->dev_name, x->prog->graph->name);
}

void ngd_launch_bound(const struct ngd_slot *slot, struct ngd_launch *launch, ngd_nsec_t now, ngd_nsec_t deadline)
{
    const ngd_nsec_t most = NGD_SCHED_PARAM(slot->queue->sched, max_replay_time);

    launch->deadline_bound = deadline != NGD_NSEC_NEVER && (!most || deadline - now <= most);
    launch->stop_at = launch->deadline_bound ? deadline : most ? now + most : 0;
}

static bool has_states(const struct ngd_graph *g)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].cls == NGD_VALUE_STATE)
            return true;
    return false;
}

/* Explains why a launch was stopped, and what it leaves behind. */
static ngd_status_t say_stopped(const struct ngd_slot *slot, struct ngd_executable *x, struct ngd_launch *launch,
                                ngd_status_t status)
{
    const struct ngd_graph *g = x->prog->graph;
    const char *left = has_states(g) ? "; its states may be partly written" : "";
    char where[200];

    if (x->cached && !launch->eager)
        learn_stopped(x, launch->device_time);
    snprintf(where, sizeof(where), "%.190s", launch->diag.text);
    if (status == NGD_ERR_REPLAY_STOPPED && launch->deadline_bound)
        status = NGD_ERR_DEADLINE_EXCEEDED;
    ngd_metric_row_add(ngd_metric_row(NGD_M_REPLAYS_STOPPED, ngd_status_name(status)), 1);
    if (status == NGD_ERR_REPLAY_STOPPED)
        return ngd_diag_set(&launch->diag, status,
                            "the replay of graph \"%.100s\" ran for more than %" PRId64
                            " ms, which is max-replay-time, and was %s%s; split it, or have the limit raised",
                            g->name, NGD_SCHED_PARAM(slot->queue->sched, max_replay_time) / NGD_MSEC, where, left);
    return ngd_diag_set(&launch->diag, status, "%s while the replay of graph \"%.100s\" ran; it was %s%s",
                        status == NGD_ERR_CANCELLED ? "the request was cancelled" : "the deadline passed", g->name,
                        where, left);
}

static ngd_status_t fail_replay(struct ngd_slot *slot, struct ngd_executable *x, struct ngd_launch *launch,
                                ngd_status_t status)
{
    if (status == NGD_ERR_STREAM_ERROR && !atomic_load_explicit(&slot->queue->healthy, memory_order_relaxed))
        status = say_lost(slot, x, launch);
    if (status == NGD_ERR_CANCELLED || status == NGD_ERR_REPLAY_STOPPED)
        status = say_stopped(slot, x, launch, status);
    if (!launch->diag.text[0])
        ngd_diag_set(&launch->diag, status, "graph \"%.100s\": %s", x->prog->graph->name, ngd_status_text(status));
    launch->status = status;
    ngd_program_note(x->prog, NGD_EVENT_REPLAY_FAILED, &ngd_exec_plan(x->exec)->key, launch->tag, "%s",
                     launch->diag.text);
    ngd_metric_row_add(ngd_metric_row(NGD_M_REPLAY_FAILURES, ngd_status_name(status)), 1);
    if (ngd_stream_status(slot->stream) != NGD_OK)
        ngd_slot_recover(slot, x, status);
    return status;
}

void ngd_slot_say_running(struct ngd_slot *slot, const struct ngd_executable *x)
{
    const uint8_t *digest = x->prog->graph->digest.b;
    uint64_t head = 0;

    for (int i = 0; i < 8; i++)
        head = head << 8 | digest[i];
    atomic_store_explicit(&slot->running_since, ngd_now(), memory_order_relaxed);
    atomic_store_explicit(&slot->running, head, memory_order_relaxed);
}

ngd_status_t ngd_executable_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                struct ngd_launch *launch, bool *quarantined_p)
{
    struct ngd_instance *inst = NULL;
    ngd_status_t status;

    (void)quarantined_p;
    status = ngd_binding_instance(binding, slot, x, &inst, &launch->diag);
    if (status == NGD_OK) {
        ngd_slot_say_running(slot, x);
        status = ngd_stream_run(slot->stream, inst, launch);
        ngd_slot_say_idle(slot);
    }
    if (!x->cached)
        ngd_instance_destroy(inst);
    return status;
}

static ngd_status_t run_chosen(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                               struct ngd_launch *launch, bool *quarantined_p)
{
    ngd_run_fn *fn = atomic_load_explicit(&x->prog->run, memory_order_acquire);

    *quarantined_p = false;
    return fn(slot, binding, x, launch, quarantined_p);
}

static void fill_asker(struct ngd_timeline_event *e, const struct ngd_request *req)
{
    const struct ngd_account *account = req->item.account;

    e->submitted = req->submitted;
    e->started = req->started;
    e->deadline = req->deadline;
    e->priority = req->priority;
    e->weight = account->weight;
    snprintf(e->identity, sizeof(e->identity), "%s", account->share->name);
}

void ngd_request_note_unrun(const struct ngd_request *req, const char *outcome)
{
    struct ngd_timeline_event e = {
        .outcome = outcome, .ended = ngd_now(), .expected = req->item.cost, .tag = req->launch.tag};

    e.device = req->queue->index;
    snprintf(e.graph, sizeof(e.graph), "%s", req->binding->prog->graph->name);
    fill_asker(&e, req);
    ngd_timeline_note(&req->queue->sched->timeline, &e);
}

/* Adds a run to the timeline. req: the request; NULL = a model's batch. */
static void note_timeline(struct ngd_slot *slot, const struct ngd_executable *x, const struct ngd_launch *launch,
                          const struct ngd_request *req, ngd_nsec_t part, uint32_t together)
{
    const ngd_nsec_t expected = ngd_executable_expected(x);
    struct ngd_timeline_event e = {.ended = ngd_now(),
                                   .device_time = launch->device_time,
                                   .part = part,
                                   .together = together,
                                   .copy_in = launch->copy_in_time,
                                   .copy_out = launch->copy_out_time,
                                   .deadline = NGD_NSEC_NEVER,
                                   .tag = req ? req->launch.tag : launch->tag,
                                   .device = slot->queue->index,
                                   .slot = slot->index,
                                   .priority = NGD_PRIORITY_NORMAL};

    snprintf(e.graph, sizeof(e.graph), "%s", x->prog->graph->name);
    if (req) {
        e.expected = expected == NGD_NSEC_NEVER ? 0 : expected;
        fill_asker(&e, req);
    }
    ngd_timeline_note(&slot->queue->sched->timeline, &e);
}

void ngd_slot_account(struct ngd_slot *slot, const struct ngd_executable *x, const struct ngd_launch *launch)
{
    ngd_slot_note_busy(slot, launch->device_time);
    if (ngd_timeline_on(&slot->queue->sched->timeline))
        note_timeline(slot, x, launch, slot->asker, launch->device_time, 1);
}

/* Keeps account of a launch that has succeeded. */
static void note_run(struct ngd_slot *slot, struct ngd_executable *x, const struct ngd_launch *launch, bool quarantined)
{
    if (!atomic_load_explicit(&slot->queue->healthy, memory_order_relaxed))
        set_health(slot->queue, true);
    ngd_slot_note_busy(slot, launch->device_time);
    account_replay(x, launch, launch->device_time, quarantined);
}

ngd_status_t ngd_replay_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                            struct ngd_launch *launch)
{
    bool quarantined;
    ngd_status_t status;

    launch->device_time = launch->copy_in_time = launch->copy_out_time = 0;
    launch->diag.text[0] = '\0';
    status = run_chosen(slot, binding, x, launch, &quarantined);
    if (status)
        return fail_replay(slot, x, launch, status);
    note_run(slot, x, launch, quarantined);
    if (ngd_timeline_on(&slot->queue->sched->timeline))
        note_timeline(slot, x, launch, slot->asker, launch->device_time, 1);
    return NGD_OK;
}

ngd_status_t ngd_replay_run_joint(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                  struct ngd_launch *launch)
{
    bool quarantined;
    ngd_status_t status = run_chosen(slot, binding, x, launch, &quarantined);

    if (status == NGD_OK)
        note_run(slot, x, launch, quarantined);
    else if (ngd_status_scope(status) == NGD_SCOPE_DEVICE || ngd_stream_status(slot->stream) != NGD_OK)
        status = fail_replay(slot, x, launch, status);
    return status;
}

void ngd_replay_note_joint(struct ngd_slot *slot, const struct ngd_executable *x, const struct ngd_launch *launch,
                           const struct ngd_request *req, uint32_t together)
{
    if (ngd_timeline_on(&slot->queue->sched->timeline))
        note_timeline(slot, x, launch, req, req->charged, together);
}

void ngd_split_add(struct ngd_split *split, const struct ngd_executable *x, const struct ngd_launch *launch)
{
    const struct ngd_program *prog = x->prog;
    const ngd_nsec_t replay = launch->device_time - launch->copy_in_time - launch->copy_out_time;

    split->part[NGD_SPLIT_COPY_IN] += launch->copy_in_time;
    split->part[NGD_SPLIT_REPLAY] += replay;
    split->part[NGD_SPLIT_COPY_OUT] += launch->copy_out_time;
    if (prog->row_symbol < prog->graph->n_symbols) {
        const int64_t rows = launch->symbols[prog->row_symbol],
                      bucket = ngd_exec_plan(x->exec)->symbols[prog->row_symbol];

        if (rows < bucket)
            split->part[NGD_SPLIT_PADDING] += (ngd_nsec_t)((double)replay * (double)(bucket - rows) / (double)bucket);
    }
}

bool ngd_program_is_plain(const struct ngd_program *prog)
{
    return !prog->options.force_eager && atomic_load_explicit(&prog->run, memory_order_relaxed) == ngd_executable_run;
}

bool ngd_executable_may_pause(const struct ngd_executable *x)
{
    return ngd_device_info(x->prog->queue->dev)->pauses && ngd_program_is_plain(x->prog);
}

ngd_status_t ngd_replay_slice(struct ngd_slot *slot, struct ngd_instance *inst, struct ngd_executable *x,
                              struct ngd_launch *launch, ngd_nsec_t *time)
{
    ngd_status_t status;

    launch->copy_in_time = launch->copy_out_time = 0;
    ngd_slot_say_running(slot, x);
    status = ngd_stream_run(slot->stream, inst, launch);
    ngd_slot_say_idle(slot);
    if (status)
        return fail_replay(slot, x, launch, status);
    if (!atomic_load_explicit(&slot->queue->healthy, memory_order_relaxed))
        set_health(slot->queue, true);
    ngd_slot_note_busy(slot, launch->device_time);
    *time += launch->device_time;
    if (!launch->paused)
        account_replay(x, launch, *time, false);
    if (ngd_timeline_on(&slot->queue->sched->timeline))
        note_timeline(slot, x, launch, slot->asker, launch->device_time, 1); /* the timeline has each slice */
    return NGD_OK;
}
