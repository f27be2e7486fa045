/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: the life of one replay, from submission to done().
 *
 *   submit: checks, lookup --> first of its order? --no--> waits in the order --> place
 *                              | yes
 *                              +--> short, idle slot has its instance, nothing queued? --> runs here
 *                              +--> place: waits for an event? --> until that has come
 *                                        executable there? --yes--> run queue --> worker
 *                                                            --no---> capture (request_park.c) --> run queue --> worker
 *
 * A request in flight is one call counted in sched->in_flight, and one in queue->waiting until it runs. The replay path
 * allocates nothing, and takes the locks of its order and of its queue only.
 */
#include "base/fault.h"
#include "base/log.h"
#include "scheduler/lineup/estimate.h"
#include "scheduler/program/group_int.h"
#include "scheduler/replay/merge_run.h"
#include <inttypes.h>
#include <string.h>

void ngd_request_init(struct ngd_request *req)
{
    memset(req, 0, sizeof(*req));
    req->deadline = NGD_NSEC_NEVER;
    req->priority = NGD_PRIORITY_NORMAL;
    ngd_sched_item_init(&req->item, &ngd_request_item_ops);
    ngd_list_init(&req->order_link);
    ngd_list_init(&req->event_link);
    ngd_list_init(&req->ready_link);
    ngd_list_init(&req->park_link);
}

static void set_state(struct ngd_request *req, ngd_request_state_t state)
{
    atomic_store_explicit(&req->state, state, memory_order_relaxed);
}

/* ---- answers ------------------------------------------------------------------------------------------ */

static void release_executable(struct ngd_request *req)
{
    if (req->entry)
        ngd_gcache_put(req->entry);
    if (req->joint)
        ngd_gcache_put(req->joint);
    ngd_executable_destroy(req->eager);
    req->entry = NULL;
    req->joint = NULL;
    req->eager = NULL;
}

static void stop_waiting(struct ngd_request *req)
{
    struct ngd_account *account = req->item.account;

    ngd_expiry_forget(&req->queue->sched->expiry, req);
    atomic_fetch_sub_explicit(&req->queue->waiting, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&account->share->waiting, 1, memory_order_relaxed);
    ngd_metric_dec(NGD_M_QUEUE_DEPTH);
}

/* Adds a request that never ran to the timeline, if load or its client was the reason: such requests are load too. */
static void note_unrun(const struct ngd_request *req, ngd_status_t status, bool refused)
{
    if (!ngd_timeline_on(&req->queue->sched->timeline))
        return;
    if (status == NGD_ERR_RESOURCE_EXHAUSTED || (status == NGD_ERR_DEADLINE_EXCEEDED && refused))
        ngd_request_note_unrun(req, "refused");
    else if (status == NGD_ERR_DEADLINE_EXCEEDED)
        ngd_request_note_unrun(req, "expired");
    else if (status == NGD_ERR_CANCELLED)
        ngd_request_note_unrun(req, "cancelled");
}

/* Answers a request, which then is the submitter's again. Requests that waited for its event are added to `ready`. */
static void answer_request(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag,
                           struct ngd_list *ready)
{
    ngd_merge_ended(&req->item);
    release_executable(req);
    ngd_session_event_leave(req, status, ready);
    if (atomic_load_explicit(&req->state, memory_order_relaxed) != NGD_REQUEST_RUNNING) {
        stop_waiting(req);
        note_unrun(req, status, false);
        if (status == NGD_ERR_DEADLINE_EXCEEDED)
            ngd_metric_observe(NGD_M_EXPIRY_SECONDS, ngd_now() - req->deadline);
        if (status == NGD_ERR_CANCELLED)
            ngd_metric_inc(NGD_M_REQUESTS_CANCELLED);
        else if (status)
            ngd_program_refused(req->binding->prog, status, diag, req->launch.tag);
    }
    set_state(req, NGD_REQUEST_DONE);
    req->done(req, status, diag);
}

/*
 * Moves on the request that has become the first of its order. Answers requests that cannot go on, without recursion.
 */
static void advance_order(struct ngd_request *req, struct ngd_list *ready)
{
    while (req) {
        struct ngd_sched *sched = req->queue->sched;
        struct ngd_order *order = req->order;
        struct ngd_diag diag = {0};
        ngd_status_t status = ngd_request_place(req, &diag);

        if (status == NGD_OK)
            return;
        answer_request(req, status, &diag, ready);
        req = order ? ngd_order_leave(order) : NULL;
        ngd_sched_leave(sched);
    }
}

/* Moves on the requests that events have released, and those that are released when these fail. */
static void settle_events(struct ngd_list *ready)
{
    struct ngd_list *l;

    while ((l = ngd_list_pop_front(ready)))
        advance_order(ngd_container_of(l, struct ngd_request, ready_link), ready);
}

void ngd_request_finish(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_sched *sched = req->queue->sched;
    struct ngd_order *order = req->order;
    struct ngd_list ready;

    ngd_list_init(&ready);
    answer_request(req, status, diag, &ready);
    if (order)
        advance_order(ngd_order_leave(order), &ready);
    settle_events(&ready);
    ngd_sched_leave(sched);
}

/* ---- running ------------------------------------------------------------------------------------------ */

static void note_request_split(struct ngd_request *req, const struct ngd_executable *x)
{
    req->split = (struct ngd_split){0};
    req->split.part[NGD_SPLIT_QUEUE] = req->started > req->submitted ? req->started - req->submitted : 0;
    ngd_split_add(&req->split, x, &req->launch);
    ngd_share_note_split(req->item.account->share, &req->split);
}

bool ngd_request_begin(struct ngd_request *req, struct ngd_slot *slot, ngd_nsec_t now)
{
    if (now >= req->deadline) {
        ngd_diag_set(&req->launch.diag, NGD_ERR_DEADLINE_EXCEEDED,
                     "the deadline passed %" PRId64 " us ago, before the replay began",
                     (now - req->deadline) / NGD_USEC);
        ngd_share_charge(slot->queue, req->item.account, 0, req->item.cost);
        ngd_request_finish(req, NGD_ERR_DEADLINE_EXCEEDED, &req->launch.diag);
        return false;
    }
    set_state(req, NGD_REQUEST_RUNNING);
    req->started = now;
    stop_waiting(req);
    ngd_metric_observe(NGD_M_QUEUE_SECONDS, now - req->submitted);
    return true;
}

void ngd_request_run_begun(struct ngd_request *req, struct ngd_slot *slot, ngd_nsec_t now)
{
    struct ngd_executable *x = req->entry ? ngd_entry_executable(req->entry) : req->eager;
    ngd_status_t status;

    if (!x->cached)
        req->launch.eager = true;
    slot->asker = req;
    req->launch.stop = &req->cancelled;
    ngd_launch_bound(slot, &req->launch, now, req->deadline);
    status = ngd_replay_run(slot, req->binding, x, &req->launch);
    slot->asker = NULL;
    ngd_request_note_end(req, slot, x);
    ngd_share_charge(slot->queue, req->item.account, req->launch.device_time, req->item.cost);
    ngd_program_charge_ranks(req->binding->prog, req->item.account->share, req->launch.device_time);
    req->charged = req->launch.device_time;
    req->together = 1;
    if (status == NGD_OK)
        note_request_split(req, x);
    ngd_request_finish(req, status, &req->launch.diag);
}

static void request_run(struct ngd_sched_item *item, struct ngd_slot *slot)
{
    struct ngd_request *req = ngd_container_of(item, struct ngd_request, item);
    ngd_nsec_t now;

    if (item->merge)
        ngd_merge_prog_ask(req->binding->merge);
    if (!ngd_list_empty(&item->mates))
        ngd_merge_run(req, slot);
    else if (ngd_request_begin(req, slot, now = ngd_now()))
        ngd_request_run_begun(req, slot, now);
}

static void request_abort(struct ngd_sched_item *item)
{
    struct ngd_request *req = ngd_container_of(item, struct ngd_request, item);
    struct ngd_diag diag;

    ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the scheduler stopped before this replay began");
    ngd_request_finish(req, NGD_ERR_CANCELLED, &diag);
}

const struct ngd_sched_item_ops ngd_request_item_ops = {
    .run = request_run,
    .abort = request_abort,
};

/* Lets the request join others. An eager run is for one request alone. */
static void enrol(struct ngd_request *req)
{
    req->item.merge = NULL;
    if (req->binding->merge && req->entry && !req->launch.eager)
        ngd_merge_prog_enrol(req->binding->merge, req);
}

/* ---- placing ------------------------------------------------------------------------------------------ */

static ngd_status_t say_cancelled(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_CANCELLED, "the request was cancelled before it ran");
}

/* Looks the executable up again, since another request may have captured it meanwhile, or waits for its capture. */
static ngd_status_t place_uncaptured(struct ngd_request *req, bool *parked_p, struct ngd_diag *diag)
{
    struct ngd_program *prog = req->binding->prog;
    struct ngd_key key;
    ngd_status_t status = ngd_program_key(prog, req->launch.symbols, req->n_symbols, &key, diag);

    if (status)
        return status;
    if (!prog->options.force_eager && !prog->options.force_recapture)
        req->entry = ngd_program_lookup(prog, &key, NULL);
    *parked_p = !req->entry;
    if (req->entry)
        return ngd_executable_check(ngd_entry_executable(req->entry), &req->launch, diag);
    return ngd_request_park(req, &key, diag);
}

ngd_status_t ngd_request_place(struct ngd_request *req, struct ngd_diag *diag)
{
    bool parked = false;
    ngd_status_t status = NGD_OK;

    if (atomic_load(&req->cancelled))
        return say_cancelled(diag);
    if (req->waits)
        status = ngd_session_event_await(req, &parked, diag);
    if (status || parked)
        return status == NGD_ERR_CANCELLED ? say_cancelled(diag) : status;
    if (!req->entry && !req->eager)
        status = place_uncaptured(req, &parked, diag);
    if (status || parked)
        return status == NGD_ERR_CANCELLED ? say_cancelled(diag) : status;
    set_state(req, NGD_REQUEST_QUEUED);
    enrol(req);
    status = ngd_queue_push(req->queue, &req->item, &req->cancelled);
    if (status == NGD_ERR_CANCELLED)
        return say_cancelled(diag);
    if (status)
        return ngd_diag_set(diag, NGD_ERR_CANCELLED, "the scheduler stopped before this replay began");
    return NGD_OK;
}

/* ---- submission --------------------------------------------------------------------------------------- */

static ngd_status_t check_request_counts(const struct ngd_request *req, struct ngd_diag *diag)
{
    const struct ngd_program *prog = req->binding->prog;
    const struct ngd_graph *g = prog->graph;

    if (req->n_inputs != prog->n_inputs)
        return ngd_diag_set(diag, NGD_ERR_INPUT_COUNT, "graph \"%.200s\" takes %" PRIu32 " inputs, not %" PRIu32,
                            g->name, prog->n_inputs, req->n_inputs);
    if (req->n_hosts != prog->n_hosts)
        return ngd_diag_set(diag, NGD_ERR_HOST_PARAM,
                            "graph \"%.200s\" takes %" PRIu32 " host parameters, not %" PRIu32, g->name, prog->n_hosts,
                            req->n_hosts);
    if (req->n_outputs != prog->n_outputs)
        return ngd_diag_set(diag, NGD_ERR_OUTPUT_UNKNOWN, "graph \"%.200s\" has %" PRIu32 " outputs, not %" PRIu32,
                            g->name, prog->n_outputs, req->n_outputs);
    if ((req->n_inputs && !req->launch.inputs) || (req->n_hosts && !req->launch.hosts) ||
        (req->n_outputs && !req->launch.outputs) || (req->n_symbols && !req->launch.symbols))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "a list of the request is missing");
    return NGD_OK;
}

/*
 * Checks the guards that the submitter stated: input types and generation. Call after the symbols' ranges were checked,
 * as types are computed from symbols.
 */
static ngd_status_t check_said(const struct ngd_request *req, struct ngd_diag *diag)
{
    const struct ngd_binding *binding = req->binding;

    if (NGD_FAULT(GUARDS_OFF))
        return NGD_OK;
    if (req->generation && req->generation != binding->generation)
        return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED,
                            "graph \"%.100s\" is bound in generation %" PRIu64 " (guard == %" PRIu64
                            "): a param or state got another buffer meanwhile",
                            binding->prog->graph->name, binding->generation, req->generation);
    if (!req->types)
        return NGD_OK;
    return ngd_program_check_types(binding->prog, req->launch.symbols, req->types, req->n_types, diag);
}

/*
 * Checks guards and looks up the executable. Sizes can be checked only against a plan, so a miss leaves them for later.
 */
static ngd_status_t look_up_executable(struct ngd_request *req, struct ngd_diag *diag)
{
    struct ngd_program *prog = req->binding->prog;
    struct ngd_key key;
    int reason = NGD_MISS_FIRST;
    ngd_status_t status = ngd_program_key(prog, req->launch.symbols, req->n_symbols, &key, diag);

    if (status == NGD_OK && (req->types || req->generation))
        status = check_said(req, diag);
    if (status) {
        if (status == NGD_ERR_GUARD_FAILED)
            ngd_metric_inc(NGD_M_GUARD_FAILURES);
        return status;
    }
    ngd_program_note_sizes(prog, req->launch.symbols);
    if (prog->options.force_eager)
        return NGD_OK;
    if (prog->options.force_recapture)
        reason = NGD_MISS_FORCED;
    else
        req->entry = ngd_program_lookup(prog, &key, &reason);
    if (!req->entry) {
        ngd_program_note(prog, ngd_miss_events[reason], &key, req->launch.tag, "%s",
                         ngd_event_infos[ngd_miss_events[reason]].help);
        ngd_metric_row_add(prog->sched->miss_rows[reason], 1);
        return NGD_OK;
    }
    ngd_metric_inc(NGD_M_CACHE_HITS);
    return ngd_executable_check(ngd_entry_executable(req->entry), &req->launch, diag);
}

/* Lowers the estimate if the request was refused for its own length alone. */
static void doubt_estimate(const struct ngd_request *req)
{
    struct ngd_executable *x = ngd_entry_executable(req->entry);
    ngd_nsec_t expected = req->item.cost, doubt = req->item.doubt;

    if (expected + NGD_ESTIMATE_SURE * doubt <= req->deadline - req->submitted)
        return;
    ngd_estimate_give_way(&expected, &doubt);
    atomic_store_explicit(&x->expected, expected, memory_order_relaxed);
    atomic_store_explicit(&x->doubt, doubt, memory_order_relaxed);
}

/* Refuses a request that cannot end in time now, and not when its deadline has passed. */
static ngd_status_t check_deadline(struct ngd_request *req, struct ngd_diag *diag)
{
    ngd_nsec_t late;

    if (req->deadline == NGD_NSEC_NEVER || !req->item.cost)
        return NGD_OK;
    late = ngd_queue_late(req->queue, &req->item);
    if (late <= 0)
        return NGD_OK;
    doubt_estimate(req);
    return ngd_diag_set(diag, NGD_ERR_DEADLINE_EXCEEDED,
                        "the replay would end %" PRId64 " us after its deadline, or make others miss theirs, given "
                        "what waits for device %s; give it more time, or try again later",
                        late / NGD_USEC + 1, req->queue->dev_name);
}

/* Sets the expected time of the request; 0: not known yet. */
static void set_cost(struct ngd_request *req)
{
    const struct ngd_executable *x = req->entry ? ngd_entry_executable(req->entry) : NULL;
    ngd_nsec_t t = x ? ngd_executable_expected(x) : NGD_NSEC_NEVER;

    req->item.cost = t == NGD_NSEC_NEVER ? 0 : t;
    req->item.doubt = req->item.cost ? atomic_load_explicit(&x->doubt, memory_order_relaxed) : 0;
}

static ngd_status_t check_submission(struct ngd_request *req, struct ngd_diag *diag)
{
    ngd_status_t status = check_request_counts(req, diag);

    if (status == NGD_OK)
        status = ngd_binding_check(req->binding, diag);
    if (status == NGD_OK && req->submitted >= req->deadline)
        status = ngd_diag_set(diag, NGD_ERR_DEADLINE_EXCEEDED, "the deadline had passed when the request arrived");
    if (status == NGD_OK)
        status = look_up_executable(req, diag);
    set_cost(req);
    enrol(req);
    if (status == NGD_OK)
        status = check_deadline(req, diag);
    return status;
}

/* Counts the request as waiting, against the limits of the device's queue and of its share. */
static ngd_status_t start_waiting(struct ngd_request *req, struct ngd_diag *diag)
{
    struct ngd_queue *queue = req->queue;
    struct ngd_share *share = req->item.account->share;
    uint32_t limit = NGD_SCHED_PARAM(queue->sched, queue_limit);
    uint32_t own = atomic_load_explicit(&share->queue_limit, memory_order_relaxed);

    if (atomic_fetch_add_explicit(&share->waiting, 1, memory_order_relaxed) >= own && own > 0) {
        atomic_fetch_sub_explicit(&share->waiting, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&share->queue_refused, 1, memory_order_relaxed);
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "%" PRIu32 " requests of %.100s wait, which is its limit; try again later", own,
                            share->name);
    }

    if (atomic_fetch_add_explicit(&queue->waiting, 1, memory_order_relaxed) >= limit) {
        atomic_fetch_sub_explicit(&queue->waiting, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&share->waiting, 1, memory_order_relaxed);
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "%" PRIu32 " requests wait for device %s, which is the limit; try again later", limit,
                            queue->dev_name);
    }
    ngd_metric_inc(NGD_M_QUEUE_DEPTH);
    return NGD_OK;
}

static bool may_run_inline(const struct ngd_request *req)
{
    ngd_nsec_t limit = NGD_SCHED_PARAM(req->queue->sched, inline_limit);

    return limit > 0 && req->entry && !req->waits && !req->launch.eager && ngd_program_is_plain(req->binding->prog) &&
           ngd_executable_expected(ngd_entry_executable(req->entry)) <= limit;
}

/*
 * Claims an idle slot in which the replay has nothing to make, bind or capture first; NULL: there is none. Making,
 * binding and capturing take long, and the device may make others wait for them, so they are left to a worker.
 */
static struct ngd_slot *claim_ready(struct ngd_request *req)
{
    const struct ngd_executable *x = ngd_entry_executable(req->entry);
    const uint64_t slots = ngd_binding_slots(req->binding, x);
    struct ngd_slot *slot = slots ? ngd_queue_claim(req->queue, &req->item, slots) : NULL;

    if (!slot || ngd_binding_ready(req->binding, slot, x))
        return slot;
    ngd_merge_ended(&req->item);
    ngd_queue_release(req->queue, slot);
    return NULL;
}

static bool run_inline(struct ngd_request *req)
{
    struct ngd_queue *queue = req->queue;
    struct ngd_slot *slot;

    slot = may_run_inline(req) ? claim_ready(req) : NULL;
    if (!slot)
        return false;
    req->inline_run = true;
    req->item.cost = 0; /* the cost is charged when an item is taken from a queue, and this one is not */
    ngd_metric_inc(NGD_M_INLINE_RUNS);
    request_run(&req->item, slot);
    /* Nothing may use the queue after this, since ngd_queue_stop waits for it. */
    ngd_queue_release(queue, slot);
    return true;
}

static ngd_status_t go(struct ngd_request *req, struct ngd_diag *diag)
{
    struct ngd_order *order = req->order;
    struct ngd_queue *queue = req->queue;
    ngd_status_t status = start_waiting(req, diag);

    if (status)
        return status;
    set_state(req, NGD_REQUEST_MOVING);
    if (order && !ngd_order_enter(order, req))
        return NGD_OK;
    if (run_inline(req))
        return NGD_OK;
    ngd_expiry_watch(&queue->sched->expiry, req);
    status = ngd_request_place(req, diag);
    if (status) {
        struct ngd_list ready;

        ngd_list_init(&ready);
        stop_waiting(req);
        if (order)
            advance_order(ngd_order_leave(order), &ready);
        settle_events(&ready);
    }
    return status;
}

static ngd_status_t reject(ngd_status_t status, struct ngd_request *req, const struct ngd_diag *diag)
{
    struct ngd_list ready;

    ngd_list_init(&ready);
    ngd_session_event_leave(req, status, &ready);
    settle_events(&ready);
    ngd_program_refused(req->binding->prog, status, diag, req->launch.tag);
    release_executable(req);
    set_state(req, NGD_REQUEST_IDLE);
    ngd_metric_row_add(ngd_metric_row(NGD_M_REQUESTS_REJECTED, ngd_status_name(status)), 1);
    return status;
}

ngd_status_t ngd_sched_submit(struct ngd_sched *sched, struct ngd_request *req, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_sched_enter(sched, diag);

    if (status)
        return reject(status, req, diag);
    req->queue = req->binding->prog->queue;
    req->submitted = req->item.arrival = ngd_now();
    req->item.deadline = req->deadline;
    req->item.priority = req->priority;
    req->item.account = &(req->share ? req->share : sched->own_share)->accounts[req->queue->index];
    req->started = 0;
    req->inline_run = false;
    req->watched = false;
    status = check_submission(req, diag);
    if (status == NGD_OK && (req->wait_event.n || req->record_event.n))
        status = ngd_session_event_enter(req, diag);
    if (status == NGD_OK)
        status = go(req, diag);
    if (status == NGD_OK)
        return NGD_OK;
    note_unrun(req, status, true);
    (void)reject(status, req, diag);
    ngd_sched_leave(sched);
    return status;
}

/* ---- withdrawal --------------------------------------------------------------------------------------- */

static bool withdraw(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_queue *queue = req->queue;
    struct ngd_sched *sched;

    if (!queue)
        return false;
    sched = queue->sched;
    if (req->order && ngd_order_remove(req->order, req)) {
        /* It did not hold the order. The holder will move the next one on. */
        struct ngd_list ready;

        ngd_list_init(&ready);
        answer_request(req, status, diag, &ready);
        settle_events(&ready);
        ngd_sched_leave(sched);
        return true;
    }
    if (!ngd_session_event_unpark(req) && !ngd_request_unpark(req) && !ngd_queue_remove(queue, &req->item))
        return false;
    ngd_request_finish(req, status, diag);
    return true;
}

bool ngd_sched_cancel(struct ngd_sched *sched, struct ngd_request *req)
{
    struct ngd_diag diag;

    (void)sched;
    atomic_store(&req->cancelled, true);
    say_cancelled(&diag);
    return withdraw(req, NGD_ERR_CANCELLED, &diag);
}

bool ngd_request_expire(struct ngd_request *req)
{
    struct ngd_diag diag;

    if (ngd_now() < req->deadline)
        return false;
    ngd_diag_set(&diag, NGD_ERR_DEADLINE_EXCEEDED, "the deadline passed while the request waited");
    return withdraw(req, NGD_ERR_DEADLINE_EXCEEDED, &diag);
}
