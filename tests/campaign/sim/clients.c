/* SPDX-License-Identifier: Apache-2.0 */
/* Clients, their requests, and what each answer must be. */
#include "base/mem.h"
#include "tests/campaign/sim/world.h"
#include <inttypes.h>
#include <string.h>

#define SECOND_OF(t) ((double)(t) / 1e9)
#define SLACK        (5 * NGD_SEC) /* by which an answer may be later than a deadline: stalls, and a launch's looks */

static void settle_client(struct sim_client *c);

/* ---- the agenda --------------------------------------------------------------------------------------- */

static bool sooner(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    const struct sim_event *x = ngd_container_of(a, struct sim_event, node),
                           *y = ngd_container_of(b, struct sim_event, node);

    return x->at != y->at ? x->at < y->at : x->serial < y->serial;
}

void sim_schedule_locked(struct sim_event *event, ngd_nsec_t at)
{
    event->at = at;
    event->serial = world.serial++;
    ngd_heap_push(&world.agenda, &event->node);
    if (ngd_heap_first(&world.agenda) == &event->node)
        ngd_cond_signal(&world.changed);
}

/* One of the threads that act for clients. */
static void *post_main(void *arg)
{
    (void)arg;
    ngd_mutex_lock(&world.lock);
    while (!world.closed) {
        struct ngd_heap_node *first = ngd_heap_first(&world.agenda);
        struct sim_event *event = first ? ngd_container_of(first, struct sim_event, node) : NULL;

        if (!event || event->at > sim_time()) {
            (void)ngd_cond_wait_until(&world.changed, &world.lock, event ? event->at : NGD_NSEC_NEVER);
            continue;
        }
        ngd_heap_remove(&world.agenda, &event->node);
        ngd_mutex_unlock(&world.lock);
        event->fn(event);
        ngd_mutex_lock(&world.lock);
        ngd_cond_signal(&world.changed);
    }
    ngd_mutex_unlock(&world.lock);
    return NULL;
}

/* ---- how long anybody may wait ------------------------------------------------------------------------ */

ngd_nsec_t sim_patience(const struct sim_identity *identity)
{
    const double each = (double)(sim_device_longest(SIM_ROWS) + NGD_SEC); /* with the reset after a fault */
    const double all = each * (world.n_clients * SIM_PIPELINE + SIM_PIPELINE);
    const uint32_t percent = identity->params.device_percent ? identity->params.device_percent : 100;
    const double part = (double)identity->params.weight / (world.weights + identity->params.weight) * percent / 100;
    const double time = 600e9 + 2 * all / part; /* of the device's time it gets its weight's part, if its cap allows */

    return time < 1e17 ? (ngd_nsec_t)time : NGD_NSEC_NEVER;
}

void sim_check_patience(void)
{
    ngd_mutex_lock(&world.lock);
    ngd_list_for_each (l, &world.calls) {
        const struct sim_call *call = ngd_container_of(l, struct sim_call, link);
        const ngd_nsec_t waited = sim_time() - call->req.submitted;

        sim_check(!call->took || waited <= sim_patience(call->client->identity),
                  "a request in state %d has waited for %.0f s", atomic_load(&call->req.state), SECOND_OF(waited));
    }
    ngd_mutex_unlock(&world.lock);
}

/* ---- answers ------------------------------------------------------------------------------------------ */

static void check_doubled(const struct sim_call *call)
{
    for (int64_t i = 0; i < call->n; i++)
        sim_check(call->y[i] == 2 * call->x.f[i], "row %" PRId64 " of %" PRId64 " is %g, not %g", i, call->n,
                  (double)call->y[i], (double)(2 * call->x.f[i]));
}

static void check_picked(const struct sim_call *call)
{
    for (int64_t i = 0; i < 2 * call->n; i++) {
        const float want = (float)(call->x.i[i / 2] * 2 + i % 2);

        sim_check(call->y[i] == want, "row %" PRId64 " of %" PRId64 " is %g, not %g", i / 2, call->n,
                  (double)call->y[i], (double)want);
    }
}

static void check_sum(const struct sim_call *call)
{
    struct sim_client *c = call->client;

    for (int i = 0; i < 4 && !c->spoiled; i++) {
        c->sum[i] += call->x.f[i];
        sim_check(call->y[i] == c->sum[i], "the state is %g, not %g, after request %" PRIu64, (double)call->y[i],
                  (double)c->sum[i], call->number);
    }
}

static void check_result(const struct sim_call *call)
{
    switch (call->client->graph->kind) {
    case SIM_PICK:
        sim_check(!call->bad, "an index out of range is answered with ok");
        check_picked(call);
        break;
    case SIM_SUM:
        check_sum(call);
        break;
    default:
        check_doubled(call);
    }
}

static bool has_faults(void)
{
    return sim_device.fault || sim_device.lost;
}

/* Whether a request may be answered so. */
static bool is_allowed(const struct sim_call *call, ngd_status_t status)
{
    switch (status) {
    case NGD_OK:
        return true;
    case NGD_ERR_CANCELLED:
        return call->cancelled || world.stopping;
    case NGD_ERR_DEADLINE_EXCEEDED:
        return call->req.deadline != NGD_NSEC_NEVER;
    case NGD_ERR_REPLAY_STOPPED:
        return world.params.max_replay_time > 0 && call->req.started > 0;
    case NGD_ERR_INDEX_RANGE:
        return call->bad;
    case NGD_ERR_EVENT_FAILED:
        return call->waits;
    case NGD_ERR_CAPTURE_LIMIT:
        return call->client->graph->program->options.capture_limit_policy == NGD_GCACHE_REJECT;
    case NGD_ERR_DEVICE_FAULT:
    case NGD_ERR_DEVICE_LOST:
    case NGD_ERR_STREAM_ERROR:
        return has_faults();
    default:
        return false;
    }
}

static void count(const struct sim_call *call, ngd_status_t status)
{
    struct sim_counts *n = &world.counts;
    const ngd_nsec_t waited = sim_time() - call->req.submitted;

    n->answers++;
    n->longest_wait = waited > n->longest_wait ? waited : n->longest_wait;
    n->ok += status == NGD_OK;
    n->together += status == NGD_OK && call->req.together > 1;
    n->eager += status == NGD_OK && call->req.launch.eager;
    n->cancelled += status == NGD_ERR_CANCELLED;
    n->late += status == NGD_ERR_DEADLINE_EXCEEDED;
    n->stopped += status == NGD_ERR_REPLAY_STOPPED;
    n->bad_data += status == NGD_ERR_INDEX_RANGE;
    n->faults += status && ngd_status_scope(status) == NGD_SCOPE_DEVICE;
}

static void check_order(struct sim_call *call, ngd_status_t status)
{
    uint64_t *answered = &call->client->answered[call->stream];

    if (!call->req.order || status == NGD_ERR_CANCELLED || status == NGD_ERR_DEADLINE_EXCEEDED)
        return;
    sim_check(call->number > *answered, "request %" PRIu64 " of a stream is answered after request %" PRIu64,
              call->number, *answered);
    *answered = call->number;
}

static void check_answer(struct sim_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    const ngd_nsec_t now = sim_time();

    sim_check(!call->done, "a request is answered twice, the second time with %s", ngd_status_name(status));
    sim_check(is_allowed(call, status), "a request%s%s%s is answered with %s: %s", call->cancelled ? ", cancelled" : "",
              call->bad ? ", bad" : "", call->req.deadline != NGD_NSEC_NEVER ? ", with a deadline" : "",
              ngd_status_name(status), diag ? diag->text : "");
    sim_check(status != NGD_ERR_DEADLINE_EXCEEDED || now >= call->req.deadline,
              "a request is answered with %s before its deadline", ngd_status_name(status));
    sim_check(call->req.deadline == NGD_NSEC_NEVER || now <= call->req.deadline + SLACK + sim_device_longest(SIM_ROWS),
              "a request%s with a deadline is answered with %s %.3f s later", call->req.eager ? ", eager," : "",
              ngd_status_name(status), SECOND_OF(now - call->req.deadline));
    sim_check(!call->req.started || call->req.started >= call->req.submitted, "a request began before it came");
    check_order(call, status);
    if (status == NGD_OK)
        check_result(call);
    else if (call->req.started)
        call->client->spoiled = true; /* a state may be partly written */
}

static void call_unpin_locked(struct sim_call *call)
{
    if (--call->pins)
        return;
    call->client->pins--;
    memset(call, 0xa5, sizeof(*call));
    ngd_free(call);
}

static void forget_locked(struct sim_call *call)
{
    ngd_list_remove(&call->link);
    world.n_calls--;
    call->done = true;
    call->client->outstanding--;
}

static void done(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct sim_call *call = req->user;
    struct sim_client *c = call->client;

    check_answer(call, status, diag);
    ngd_mutex_lock(&world.lock);
    count(call, status);
    forget_locked(call);
    call_unpin_locked(call);
    settle_client(c);
    ngd_mutex_unlock(&world.lock);
}

/* ---- requests ----------------------------------------------------------------------------------------- */

static void cancel(struct sim_event *event)
{
    struct sim_call *call = ngd_container_of(event, struct sim_call, cancel);
    struct sim_client *c = call->client;
    bool was_done, withdrawn;

    ngd_mutex_lock(&world.lock);
    was_done = call->done;
    call->cancelled = true;
    ngd_mutex_unlock(&world.lock);
    withdrawn = call->took && ngd_sched_cancel(world.sched, &call->req);
    sim_check(!withdrawn || (call->done && !was_done), "a request was withdrawn, and not answered before that");
    ngd_mutex_lock(&world.lock);
    call_unpin_locked(call);
    settle_client(c);
    ngd_mutex_unlock(&world.lock);
}

static void fill(struct sim_call *call)
{
    struct sim_client *c = call->client;
    const enum sim_graph_kind kind = c->graph->kind;

    call->n = kind == SIM_SUM ? 4 : sim_between(1, SIM_ROWS);
    for (int64_t i = 0; i < call->n; i++) {
        if (kind == SIM_PICK)
            call->x.i[i] = (int32_t)sim_below(4);
        else
            call->x.f[i] = (float)sim_below(1000);
    }
    if (kind == SIM_PICK && sim_chance(c->bad, 100)) {
        call->bad = true;
        call->x.i[sim_below((uint64_t)call->n)] = 4;
    }
    for (int i = 0; i < 2 * SIM_ROWS; i++)
        call->y[i] = -1;
    call->in = (struct ngd_span){&call->x, (uint64_t)call->n * 4};
    call->out = (struct ngd_out){call->y, (uint64_t)call->n * (kind == SIM_PICK ? 8 : 4)};
}

static void fill_request(struct sim_call *call)
{
    struct sim_client *c = call->client;
    struct ngd_request *req = &call->req;

    ngd_request_init(req);
    req->binding = c->binding;
    req->share = c->identity->share;
    req->priority = c->priority;
    req->launch.symbols = &call->n;
    req->launch.inputs = &call->in;
    req->launch.outputs = &call->out;
    req->launch.eager = sim_chance(1, 50);
    req->n_symbols = c->graph->kind == SIM_SUM ? 0 : 1;
    req->n_inputs = req->n_outputs = 1;
    req->done = done;
    req->user = call;
    if (c->deadline)
        req->deadline = sim_time() + sim_between(c->deadline / 16 + 1, c->deadline);
    call->stream = (uint32_t)sim_below(c->n_orders + (c->graph->kind != SIM_SUM && sim_chance(1, 4)));
    if (call->stream == c->n_orders)
        call->stream = SIM_STREAMS;
    else
        req->order = c->orders[call->stream];
    call->number = ++c->submitted[call->stream];
    if (!c->events)
        return;
    req->events = c->events;
    if (c->recorded && sim_chance(1, 3)) {
        req->wait_event = (struct ngd_session_event_name){"e", 1};
        call->waits = true;
    }
    if (sim_chance(1, 3))
        req->record_event = (struct ngd_session_event_name){"e", 1};
}

static struct sim_call *call_new(struct sim_client *c)
{
    struct sim_call *call = NGD_NEW(struct sim_call);

    sim_check(call != NULL, "no memory");
    call->client = c;
    call->pins = 2; /* until it is answered, and the submitter's */
    call->cancel.fn = cancel;
    fill(call);
    fill_request(call);
    ngd_mutex_lock(&world.lock);
    c->outstanding++;
    c->pins++;
    world.n_calls++;
    world.counts.requests++;
    ngd_list_push_back(&world.calls, &call->link);
    if (sim_chance(c->cancels, 100)) {
        call->pins++;
        sim_schedule_locked(&call->cancel, sim_time() + sim_between(NGD_USEC, 20 * sim_device.service));
    }
    ngd_mutex_unlock(&world.lock);
    return call;
}

static void check_refusal(const struct sim_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    const bool limits = status == NGD_ERR_RESOURCE_EXHAUSTED, late = status == NGD_ERR_DEADLINE_EXCEEDED,
               ends = status == NGD_ERR_DRAINING || status == NGD_ERR_CANCELLED;

    sim_check(!call->done, "a request that was refused has been answered");
    sim_check(limits || (late && call->req.deadline != NGD_NSEC_NEVER) ||
                  (ends && (world.draining || call->cancelled)) || is_allowed(call, status),
              "a request is refused with %s: %s", ngd_status_name(status), diag->text);
}

static void submit(struct sim_client *c)
{
    struct sim_call *call = call_new(c);
    const bool records = call->req.record_event.n > 0;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    call->took = true; /* a cancellation may come from now on */
    call->req.submitted = sim_time();
    status = ngd_sched_submit(world.sched, &call->req, &diag);
    ngd_mutex_lock(&world.lock);
    if (status) {
        check_refusal(call, status, &diag);
        world.counts.refused++;
        world.counts.drained += status == NGD_ERR_DRAINING;
        call->took = false;
        forget_locked(call);
        call_unpin_locked(call);
    } else if (records) {
        c->recorded = true;
    }
    call_unpin_locked(call);
    ngd_mutex_unlock(&world.lock);
}

/* ---- clients ------------------------------------------------------------------------------------------ */

static void client_close(struct sim_client *c)
{
    for (uint32_t i = 0; i < c->n_orders; i++)
        ngd_order_destroy(c->orders[i]);
    ngd_session_events_destroy(c->events);
    ngd_binding_unref(c->binding);
    if (c->state)
        ngd_buffer_unref(c->state);
    c->n_orders = 0;
    c->events = NULL;
    c->binding = NULL;
    c->state = NULL;
}

static void bind(struct sim_client *c)
{
    struct ngd_buffer *buffers[1] = {c->graph->table};
    struct ngd_diag diag = {0};

    if (c->graph->kind == SIM_SUM) {
        sim_check(
            !ngd_buffer_create(ngd_program_device(c->graph->program), 16, NGD_BUFFER_GENERAL, "s", &c->state, &diag),
            "%s", diag.text);
        buffers[0] = c->state;
    }
    sim_check(!ngd_binding_create(c->graph->program, buffers, &c->binding, &diag), "%s", diag.text);
}

static void client_open(struct sim_client *c)
{
    c->graph = &world.graphs[sim_below(world.n_graphs)];
    c->n_orders = c->graph->kind == SIM_SUM ? 1 : 1 + (uint32_t)sim_below(SIM_STREAMS);
    for (uint32_t i = 0; i < c->n_orders; i++)
        sim_check(!ngd_order_create(&c->orders[i]), "no memory");
    if (sim_chance(1, 4))
        sim_check(!ngd_session_events_create(&c->events), "no memory");
    bind(c);
    memset(c->submitted, 0, sizeof(c->submitted));
    memset(c->answered, 0, sizeof(c->answered));
    memset(c->sum, 0, sizeof(c->sum));
    c->spoiled = c->recorded = false;
    c->pipeline = 1 + (uint32_t)sim_below(SIM_PIPELINE);
    c->deadline = sim_chance(1, 3) ? sim_between(sim_device.service, 200 * sim_device.service) : 0;
    c->cancels = sim_chance(1, 3) ? (uint32_t)sim_between(1, 60) : 0;
    c->bad = sim_chance(1, 3) ? (uint32_t)sim_between(1, 50) : 0;
    c->priority = (ngd_priority_t)sim_below(NGD_PRIORITIES);
    c->rounds = (uint32_t)sim_between(1, 200);
    world.counts.sessions++;
}

/* A round is over when all is answered and nobody looks at its requests any more. */
static void settle_client(struct sim_client *c)
{
    if (c->outstanding || c->pins || c->acting)
        return;
    c->acting = true;
    if (c->rounds == 0 || world.ending)
        client_close(c);
    if (world.ending)
        c->over = true;
    else
        sim_schedule_locked(&c->act, sim_time() + sim_between(c->think / 8 + 1, 2 * c->think));
    if (world.ending)
        ngd_cond_broadcast(&world.idle);
}

static void act(struct sim_event *event)
{
    struct sim_client *c = ngd_container_of(event, struct sim_client, act);

    if (!c->binding && !world.ending)
        client_open(c);
    for (uint64_t n = 1 + sim_below(c->pipeline); n > 0 && c->binding && !world.ending; n--)
        submit(c);
    ngd_mutex_lock(&world.lock);
    c->rounds -= c->rounds > 0;
    c->acting = false;
    settle_client(c);
    ngd_mutex_unlock(&world.lock);
}

void sim_clients_open(void)
{
    const ngd_nsec_t think = sim_between(2 * NGD_SEC, 1200 * NGD_SEC);

    ngd_mutex_init(&world.lock, NGD_RANK_NONE);
    ngd_cond_init(&world.changed);
    ngd_cond_init(&world.idle);
    ngd_heap_init(&world.agenda, sooner);
    ngd_list_init(&world.calls);
    for (uint32_t i = 0; i < world.n_clients; i++) {
        struct sim_client *c = &world.clients[i];

        c->act.fn = act;
        c->acting = true;
        c->identity = &world.identities[sim_below(world.n_identities)];
        c->think = sim_between(think / 4, think);
        ngd_mutex_lock(&world.lock);
        sim_schedule_locked(&c->act, sim_time() + (ngd_nsec_t)sim_below((uint64_t)c->think));
        ngd_mutex_unlock(&world.lock);
    }
    world.n_posts = 1 + (uint32_t)sim_below(3);
    for (uint32_t i = 0; i < world.n_posts; i++)
        world.posts[i] = sim_start("cq", post_main, NULL);
}

static bool all_over(void)
{
    for (uint32_t i = 0; i < world.n_clients; i++)
        if (!world.clients[i].over)
            return false;
    return sim_talks_over();
}

void sim_clients_await(void)
{
    ngd_mutex_lock(&world.lock);
    while (!all_over()) {
        (void)ngd_cond_wait_until(&world.idle, &world.lock, sim_time() + 600 * NGD_SEC);
        ngd_mutex_unlock(&world.lock);
        sim_check_patience();
        ngd_mutex_lock(&world.lock);
    }
    ngd_mutex_unlock(&world.lock);
}

void sim_clients_close(void)
{
    ngd_mutex_lock(&world.lock);
    world.closed = true;
    ngd_cond_broadcast(&world.changed);
    ngd_mutex_unlock(&world.lock);
    for (uint32_t i = 0; i < world.n_posts; i++)
        sim_join(world.posts[i]);
    ngd_cond_fini(&world.idle);
    ngd_cond_fini(&world.changed);
    ngd_mutex_fini(&world.lock);
}
