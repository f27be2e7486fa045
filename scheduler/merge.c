/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which requests run together, under the queue's lock. How they do is in merge_run.c.
 *
 * An executable for the bucket that the waiting rows would fill may not be there yet. Nobody waits for it: it is
 * captured in the background, if the program may hold one more, and until then as many run together as fit in what is
 * there, which is at least the own executable of who was taken.
 */
#include "scheduler/merge.h"
#include "base/mem.h"
#include <string.h>

#define ASK_AGAIN (100 * NGD_MSEC) /* after a capture that did not come to be */
#define LOOK_MAX  256              /* of those that wait are looked at for mates */

static struct ngd_request *request_of(struct ngd_sched_item *item)
{
    return ngd_container_of(item, struct ngd_request, item);
}

static int64_t rows_of(const struct ngd_merge *m, const struct ngd_request *req)
{
    return req->launch.symbols[m->symbol];
}

/* ---- life --------------------------------------------------------------------------------------------- */

/* Not with options that look at each replay by itself, or make an executable for each; nor on several devices. */
static bool may_merge(const struct ngd_program *prog)
{
    const struct ngd_graph_options *o = &prog->options;

    return !prog->group && prog->sched->params.merge && o->merge_replays && !o->force_eager && !o->force_recapture &&
           !o->dump_tensor_data && ngd_graph_batch_symbol(prog->graph) < prog->graph->n_symbols;
}

struct ngd_merge *ngd_merge_create(struct ngd_program *prog)
{
    struct ngd_merge *m = may_merge(prog) ? NGD_NEW(struct ngd_merge) : NULL;

    if (!m)
        return NULL;
    atomic_init(&m->refs, 1);
    m->prog = prog;
    m->symbol = ngd_graph_batch_symbol(prog->graph);
    m->reach = INT64_MAX;
    for (int i = 0; i < NGD_PRIORITIES; i++)
        ngd_list_init(&m->waiting[i]);
    ngd_linger_init(&m->linger, prog->sched->params.merge_wait);
    return m;
}

struct ngd_merge *ngd_merge_ref(struct ngd_merge *m)
{
    if (m)
        atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

struct ngd_merge *ngd_merge_unref(struct ngd_merge *m)
{
    struct ngd_queue *queue;

    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    queue = m->prog->queue;
    ngd_mutex_lock(&queue->lock);
    if (queue->merging == m)
        queue->merging = NULL;
    ngd_mutex_unlock(&queue->lock);
    ngd_free(m);
    return NULL;
}

int64_t ngd_merge_rows_limit(const struct ngd_program *prog, const struct ngd_plan *plan)
{
    const uint32_t symbol = ngd_graph_batch_symbol(prog->graph);
    const int64_t wide = ngd_device_info(prog->queue->dev)->wide_rows;
    int64_t limit = INT64_MAX;

    for (uint32_t i = 0; wide && i < plan->n_tensors; i++) {
        const struct ngd_plan_tensor *t = &plan->tensors[i];
        int64_t rows = t->row_mult;

        if (t->row_sym != symbol)
            continue;
        for (uint32_t k = 1; k + 1 < t->rank; k++)
            rows *= t->dims[k];
        /* What is wide already stays so in larger buckets. */
        if (rows > 0 && rows * plan->symbols[symbol] < wide && (wide - 1) / rows < limit)
            limit = (wide - 1) / rows;
    }
    return limit;
}

/* ---- who waits ---------------------------------------------------------------------------------------- */

void ngd_merge_enter(struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct ngd_merge *m = item->merge;

    ngd_list_push_back(&m->waiting[item->priority], &item->merge_link);
    m->n_waiting++;
    m->rows += rows_of(m, request_of(item));
    ngd_linger_arrived(&m->linger, now, m->n_waiting + atomic_load_explicit(&m->running, memory_order_relaxed));
}

void ngd_merge_leave(struct ngd_sched_item *item)
{
    struct ngd_merge *m = item->merge;

    ngd_list_remove(&item->merge_link);
    m->rows -= rows_of(m, request_of(item));
    if (--m->n_waiting == 0)
        ngd_linger_left(&m->linger);
}

/* The first to be taken, nearly. */
static const struct ngd_sched_item *first_of(const struct ngd_merge *m)
{
    for (int i = 0; i < NGD_PRIORITIES; i++)
        if (!ngd_list_empty(&m->waiting[i]))
            return ngd_container_of(m->waiting[i].next, struct ngd_sched_item, merge_link);
    return NULL;
}

/* By when they must begin: a replay for several takes longer than one alone, but not twice as long. */
static ngd_nsec_t latest_of(const struct ngd_merge *m)
{
    ngd_nsec_t latest = NGD_NSEC_NEVER;

    for (int i = 0; i < NGD_PRIORITIES; i++) {
        ngd_list_for_each (l, &m->waiting[i]) {
            const struct ngd_sched_item *item = ngd_container_of(l, struct ngd_sched_item, merge_link);
            const ngd_nsec_t need = 2 * (item->cost + item->doubt);

            if (item->deadline != NGD_NSEC_NEVER && item->deadline - need < latest)
                latest = item->deadline - need;
        }
    }
    return latest;
}

/* The rows that there may be in all. */
static int64_t clip(const struct ngd_merge *m, int64_t rows)
{
    const int64_t max = m->prog->graph->symbols[m->symbol].max;

    return rows < max ? rows : max;
}

/* Others do not wait for this: only when nothing else is queued. Nor does what fills the largest bucket there is. */
bool ngd_merge_waits(struct ngd_queue *queue, ngd_nsec_t now, ngd_nsec_t *until_p)
{
    struct ngd_merge *m = queue->merging;
    const struct ngd_sched_item *first = m ? first_of(m) : NULL;

    if (!first || m->n_waiting != queue->depth || m->rows >= clip(m, m->reach) ||
        !ngd_linger_wants(&m->linger, m->n_waiting, first->cost))
        return false;
    *until_p = ngd_linger_until(&m->linger, now, m->n_waiting, first->cost, latest_of(m));
    return *until_p > now;
}

bool ngd_merge_wants_company(const struct ngd_sched_item *item)
{
    return item->deadline - 2 * (item->cost + item->doubt) > item->arrival + NGD_LINGER_MIN &&
           ngd_linger_wants(&item->merge->linger, 1, item->cost);
}

/* ---- who runs ----------------------------------------------------------------------------------------- */

static void want_capture(struct ngd_merge *m, const struct ngd_key *key, ngd_nsec_t now)
{
    if (atomic_load_explicit(&m->capturing, memory_order_acquire) || (m->asked && now - m->asked < ASK_AGAIN))
        return;
    m->asked = now;
    m->key = *key;
    atomic_store_explicit(&m->capturing, true, memory_order_relaxed);
    atomic_store_explicit(&m->wanted, true, memory_order_release);
}

/* The largest bucket below; 0: there is none. */
static int64_t bucket_below(const struct ngd_merge *m, int64_t bucket)
{
    struct ngd_bucket_set set;
    int64_t below = 0;

    ngd_program_buckets(m->prog, m->symbol, &set);
    for (uint32_t i = 0; i < set.n && set.sizes[i] < bucket; i++)
        below = set.sizes[i];
    return below;
}

/* Whether there is more to wait for next time. */
static void note_reach(struct ngd_merge *m, int64_t planned, bool all)
{
    if (!all)
        m->reach = planned;
    else if (planned > m->reach)
        m->reach = INT64_MAX;
}

/* An executable for up to `rows` rows: the largest that is there, pinned for lead when it is not its own. */
static const struct ngd_executable *choose(struct ngd_merge *m, struct ngd_request *lead, int64_t rows, ngd_nsec_t now)
{
    const struct ngd_executable *own = ngd_entry_executable(lead->entry);
    const int64_t own_rows = ngd_exec_plan(own->exec)->symbols[m->symbol];
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];
    bool all = true;
    struct ngd_key key;

    memcpy(symbols, lead->launch.symbols, lead->n_symbols * sizeof(symbols[0]));
    while (rows > own_rows) {
        symbols[m->symbol] = rows;
        if (ngd_program_key(m->prog, symbols, lead->n_symbols, &key, NULL))
            break;
        if (key.symbols[m->symbol] <= own->rows_limit) {
            lead->joint = ngd_program_lookup(m->prog, &key, NULL);
            if (lead->joint) {
                note_reach(m, key.symbols[m->symbol], all);
                return ngd_entry_executable(lead->joint);
            }
            want_capture(m, &key, now);
        }
        all = false;
        rows = bucket_below(m, key.symbols[m->symbol]);
    }
    note_reach(m, own_rows, all);
    return own;
}

static bool may_join(const struct ngd_merge *m, const struct ngd_request *lead, const struct ngd_request *req,
                     int64_t planned, ngd_nsec_t now)
{
    for (uint32_t i = 0; i < lead->n_symbols; i++)
        if (i != m->symbol && lead->launch.symbols[i] != req->launch.symbols[i])
            return false;
    return ngd_entry_executable(req->entry)->rows_limit >= planned && req->deadline > now &&
           (lead->deadline == NGD_NSEC_NEVER || req->deadline != NGD_NSEC_NEVER);
}

/* A mate leaves the queue. It was not chosen by the policy, so it is charged for all of its part afterwards. */
static void take_mate(struct ngd_queue *queue, struct ngd_request *lead, struct ngd_sched_item *mate, ngd_nsec_t now)
    NGD_REQUIRES(queue->lock)
{
    ngd_caps_remove(&queue->caps, mate, now);
    mate->queued = false;
    queue->depth--;
    ngd_merge_leave(mate);
    mate->cost = 0;
    mate->merge_running = true;
    ngd_list_push_back(&lead->item.mates, &mate->merge_link);
}

static uint32_t take_mates(struct ngd_queue *queue, struct ngd_merge *m, struct ngd_request *lead, int64_t room,
                           int64_t planned, ngd_nsec_t now) NGD_REQUIRES(queue->lock)
{
    uint32_t taken = 0, looked = 0;

    for (int c = 0; c <= (int)lead->priority; c++) {
        struct ngd_list *l = m->waiting[c].next, *next;

        for (; l != &m->waiting[c] && room > 0 && looked < LOOK_MAX; l = next, looked++) {
            struct ngd_sched_item *mate = ngd_container_of(l, struct ngd_sched_item, merge_link);
            const struct ngd_request *req = request_of(mate);

            next = l->next;
            if (rows_of(m, req) > room || ngd_caps_hold(&queue->caps, mate, now) ||
                !may_join(m, lead, req, planned, now))
                continue;
            room -= rows_of(m, req);
            take_mate(queue, lead, mate, now);
            taken++;
        }
    }
    return taken;
}

ngd_nsec_t ngd_merge_take(struct ngd_queue *queue, struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct ngd_request *lead = request_of(item);
    struct ngd_merge *m = item->merge;
    const int64_t rows = rows_of(m, lead);
    const ngd_nsec_t waited = ngd_linger_began(&m->linger, now);
    const struct ngd_executable *x;
    ngd_nsec_t expected;
    uint32_t mates = 0;

    if (waited > 0)
        ngd_metric_observe(NGD_M_MERGE_WAIT_SECONDS, waited);
    if (m->n_waiting) {
        x = choose(m, lead, clip(m, rows + m->rows), now);
        expected = ngd_executable_expected(x);
        if (lead->deadline == NGD_NSEC_NEVER || expected == NGD_NSEC_NEVER || now + expected <= lead->deadline) {
            const int64_t planned = ngd_exec_plan(x->exec)->symbols[m->symbol];

            mates = take_mates(queue, m, lead, clip(m, planned) - rows, planned, now);
        }
    }
    item->merge_running = true;
    atomic_fetch_add_explicit(&m->running, 1 + mates, memory_order_relaxed);
    return mates && expected != NGD_NSEC_NEVER ? expected : item->cost;
}

void ngd_merge_take_inline(struct ngd_sched_item *item)
{
    struct ngd_merge *m = item->merge;
    uint32_t running = atomic_fetch_add_explicit(&m->running, 1, memory_order_relaxed);

    item->merge_running = true;
    ngd_linger_arrived(&m->linger, item->arrival, running + 1);
    (void)ngd_linger_began(&m->linger, item->arrival);
}

/* ---- captures of larger buckets ----------------------------------------------------------------------- */

static void capture_end(struct ngd_merge *m)
{
    struct ngd_program *prog = m->prog;

    atomic_store_explicit(&m->capturing, false, memory_order_release);
    ngd_merge_unref(m);
    ngd_program_unref(prog);
}

/* Not at the price of an executable that somebody has captured for its own requests. */
static void capture_run(struct ngd_capture_job *job)
{
    struct ngd_merge *m = ngd_container_of(job, struct ngd_merge, job);
    struct ngd_gcache_entry *entry;
    struct ngd_gcache_stats stats;

    ngd_gcache_stats(m->prog->cache, &stats);
    if (stats.entries < m->prog->options.capture_limit &&
        ngd_program_capture(m->prog, &m->key, &entry, NULL, NULL) == NGD_OK) {
        ngd_gcache_put(entry);
        ngd_mutex_lock(&m->prog->queue->lock);
        m->reach = INT64_MAX; /* found out anew */
        ngd_mutex_unlock(&m->prog->queue->lock);
    }
    capture_end(m);
}

static void capture_abort(struct ngd_capture_job *job)
{
    capture_end(ngd_container_of(job, struct ngd_merge, job));
}

void ngd_merge_ask(struct ngd_merge *m)
{
    if (!atomic_load_explicit(&m->wanted, memory_order_relaxed) || !atomic_exchange(&m->wanted, false))
        return;
    m->job.run = capture_run;
    m->job.abort = capture_abort;
    ngd_program_ref(m->prog);
    ngd_merge_ref(m);
    if (!ngd_captures_push(&m->prog->sched->captures, &m->job))
        capture_end(m);
}
