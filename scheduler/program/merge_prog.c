/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the executable of a joint replay, under the queue's lock. merge_run.c runs it.
 *
 * There may be no executable yet for the bucket that the waiting rows would fill. Nobody waits for it: it is captured
 * in the background, if the program may hold one more executable. Until then as many requests run together as fit in an
 * existing one, which is at least the lead's own.
 */
#include "scheduler/program/merge_prog.h"
#include "base/mem.h"
#include <string.h>

#define ASK_AGAIN (100 * NGD_MSEC) /* after a capture that gave no executable */

static struct ngd_merge_prog *prog_of(struct ngd_merge *m)
{
    return ngd_container_of(m, struct ngd_merge_prog, merge);
}

static struct ngd_request *request_of(struct ngd_sched_item *item)
{
    return ngd_container_of(item, struct ngd_request, item);
}

static const struct ngd_request *request_of_const(const struct ngd_sched_item *item)
{
    return ngd_container_of(item, struct ngd_request, item);
}

static int64_t planned_of(const struct ngd_merge_prog *m, const struct ngd_executable *x)
{
    return ngd_exec_plan(x->exec)->symbols[m->symbol];
}

/* ---- what is known of buckets --------------------------------------------------------------------------- */

/*
 * Hashes the other symbols: equal for requests that differ only in their rows. Two kinds may collide, since the hash
 * only finds estimates.
 */
static uint64_t kind_of(const struct ngd_merge_prog *m, const struct ngd_request *req)
{
    uint64_t kind = 0;

    for (uint32_t i = 0; i < req->n_symbols; i++)
        if (i != m->symbol)
            kind = (kind ^ (uint64_t)req->launch.symbols[i]) * 0x9e3779b97f4a7c15u;
    return kind;
}

/* Returns -1 if nothing is known of the bucket. */
static int find_known(const struct ngd_merge_prog *m, uint64_t kind, int64_t planned)
{
    for (int i = 0; i < NGD_MERGE_KNOWN_MAX; i++)
        if (m->known[i].planned == planned && m->known[i].kind == kind)
            return i;
    return -1;
}

static void note_bucket(struct ngd_merge_prog *m, uint64_t kind, const struct ngd_executable *x)
{
    const ngd_nsec_t cost = ngd_executable_expected(x);
    const int64_t planned = planned_of(m, x);
    int i = find_known(m, kind, planned);

    if (cost == NGD_NSEC_NEVER)
        return;
    if (i < 0) {
        i = (int)m->next_known;
        m->next_known = (m->next_known + 1) % NGD_MERGE_KNOWN_MAX;
    }
    m->known[i].planned = planned;
    m->known[i].kind = kind;
    m->known[i].cost = cost;
    m->known[i].doubt = atomic_load_explicit(&x->doubt, memory_order_relaxed);
}

static void forget_bucket(struct ngd_merge_prog *m, uint64_t kind, int64_t planned)
{
    const int i = find_known(m, kind, planned);

    if (i >= 0)
        m->known[i].planned = 0;
}

void ngd_merge_prog_learn(struct ngd_merge_prog *m, const struct ngd_request *like, const struct ngd_executable *x)
{
    ngd_mutex_lock(&m->prog->queue->lock);
    note_bucket(m, kind_of(m, like), x);
    ngd_mutex_unlock(&m->prog->queue->lock);
}

void ngd_merge_prog_enrol(struct ngd_merge_prog *m, struct ngd_request *req)
{
    req->item.merge = &m->merge;
    req->item.rows = req->launch.symbols[m->symbol];
}

/* ---- what they run as --------------------------------------------------------------------------------- */

/* Returns the bucket that holds so many rows. */
static int64_t bucket_of(const struct ngd_bucket_set *set, int64_t rows)
{
    for (uint32_t i = 0; i < set->n; i++)
        if (set->sizes[i] >= rows)
            return set->sizes[i];
    return rows;
}

/* Returns the next smaller bucket; 0: there is none. */
static int64_t bucket_below(const struct ngd_bucket_set *set, int64_t bucket)
{
    int64_t below = 0;

    for (uint32_t i = 0; i < set->n && set->sizes[i] < bucket; i++)
        below = set->sizes[i];
    return below;
}

static int64_t merge_prog_below(struct ngd_merge *merge, int64_t planned)
{
    const struct ngd_merge_prog *m = prog_of(merge);
    struct ngd_bucket_set set;

    ngd_program_buckets(m->prog, m->symbol, &set);
    return bucket_below(&set, planned);
}

static void merge_prog_predict(struct ngd_merge *merge, const struct ngd_sched_item *item, int64_t rows,
                               struct ngd_joint *joint_p)
{
    const struct ngd_merge_prog *m = prog_of(merge);
    const struct ngd_request *lead = request_of_const(item);
    const struct ngd_executable *own = ngd_entry_executable(lead->entry);
    const int64_t own_rows = planned_of(m, own);
    const uint64_t kind = kind_of(m, lead);
    struct ngd_bucket_set set;

    ngd_program_buckets(m->prog, m->symbol, &set);
    for (int64_t planned = bucket_of(&set, rows); planned > own_rows; planned = bucket_below(&set, planned)) {
        const int i = planned <= own->rows_limit ? find_known(m, kind, planned) : -1;

        if (i < 0)
            continue;
        *joint_p = (struct ngd_joint){.planned = planned, .cost = m->known[i].cost, .doubt = m->known[i].doubt};
        return;
    }
    *joint_p =
        (struct ngd_joint){.planned = own_rows, .cost = item->cost ? item->cost : NGD_NSEC_NEVER, .doubt = item->doubt};
}

static void want_capture(struct ngd_merge_prog *m, const struct ngd_key *key, ngd_nsec_t now)
{
    if (atomic_load_explicit(&m->capturing, memory_order_acquire) || (m->asked && now - m->asked < ASK_AGAIN))
        return;
    m->asked = now;
    m->key = *key;
    atomic_store_explicit(&m->capturing, true, memory_order_relaxed);
    atomic_store_explicit(&m->wanted, true, memory_order_release);
}

/* Notes the largest usable bucket, up to which waiting is worth while. all: no larger bucket was missing. */
static void note_reach(struct ngd_merge *m, int64_t planned, bool all)
{
    if (!all)
        m->reach = planned;
    else if (planned > m->reach)
        m->reach = INT64_MAX;
}

/* Finds the largest existing executable for up to `rows` rows. Pins it for lead if it is not lead's own. */
static const struct ngd_executable *find_executable(struct ngd_merge_prog *m, struct ngd_request *lead, int64_t rows,
                                                    ngd_nsec_t now)
{
    const struct ngd_executable *own = ngd_entry_executable(lead->entry);
    const int64_t own_rows = planned_of(m, own);
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];
    bool all = true;
    struct ngd_key key;

    memcpy(symbols, lead->launch.symbols, lead->n_symbols * sizeof(symbols[0]));
    while (rows > own_rows) {
        int64_t planned;

        symbols[m->symbol] = rows;
        if (ngd_program_key_sizes(m->prog, symbols, lead->n_symbols, &key, NULL))
            break;
        planned = key.symbols[m->symbol];
        if (planned <= own->rows_limit) {
            lead->joint = ngd_program_lookup(m->prog, &key, NULL);
            if (lead->joint) {
                note_reach(&m->merge, planned, all);
                note_bucket(m, kind_of(m, lead), ngd_entry_executable(lead->joint));
                return ngd_entry_executable(lead->joint);
            }
            forget_bucket(m, kind_of(m, lead), planned);
            want_capture(m, &key, now);
        }
        all = false;
        rows = merge_prog_below(&m->merge, planned);
    }
    note_reach(&m->merge, own_rows, all);
    return own;
}

static void merge_prog_choose(struct ngd_merge *merge, struct ngd_sched_item *item, int64_t rows, ngd_nsec_t now,
                              struct ngd_joint *joint_p)
{
    struct ngd_merge_prog *m = prog_of(merge);
    const struct ngd_executable *x = find_executable(m, request_of(item), rows, now);

    *joint_p = (struct ngd_joint){.planned = planned_of(m, x),
                                  .cost = ngd_executable_expected(x),
                                  .doubt = atomic_load_explicit(&x->doubt, memory_order_relaxed)};
}

static bool merge_prog_joins(const struct ngd_sched_item *item, const struct ngd_sched_item *mate, int64_t planned)
{
    const struct ngd_request *lead = request_of_const(item), *req = request_of_const(mate);
    const uint32_t symbol = prog_of(item->merge)->symbol;

    for (uint32_t i = 0; i < lead->n_symbols; i++)
        if (i != symbol && lead->launch.symbols[i] != req->launch.symbols[i])
            return false;
    return ngd_entry_executable(req->entry)->rows_limit >= planned;
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
        /* A tensor that is wide already stays wide in larger buckets. */
        if (rows > 0 && rows * plan->symbols[symbol] < wide && (wide - 1) / rows < limit)
            limit = (wide - 1) / rows;
    }
    return limit;
}

/* ---- life --------------------------------------------------------------------------------------------- */

/* Returns false for options that treat each replay by itself or make an executable for each, and for groups. */
static bool may_merge(const struct ngd_program *prog)
{
    const struct ngd_graph_options *o = &prog->options;

    return !prog->group && NGD_SCHED_PARAM(prog->sched, merge) && o->merge_replays && !o->force_eager &&
           !o->force_recapture && !o->dump_tensor_data && ngd_graph_batch_symbol(prog->graph) < prog->graph->n_symbols;
}

static const struct ngd_merge_ops merge_ops = {
    .joins = merge_prog_joins,
    .predict = merge_prog_predict,
    .choose = merge_prog_choose,
    .below = merge_prog_below,
};

struct ngd_merge_prog *ngd_merge_prog_create(struct ngd_program *prog)
{
    struct ngd_merge_prog *m = may_merge(prog) ? NGD_NEW(struct ngd_merge_prog) : NULL;

    if (!m)
        return NULL;
    atomic_init(&m->refs, 1);
    m->prog = prog;
    m->symbol = ngd_graph_batch_symbol(prog->graph);
    ngd_merge_init(&m->merge, &merge_ops, prog->graph->symbols[m->symbol].max,
                   NGD_SCHED_PARAM(prog->sched, merge_wait));
    return m;
}

struct ngd_merge_prog *ngd_merge_prog_ref(struct ngd_merge_prog *m)
{
    if (m)
        atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

struct ngd_merge_prog *ngd_merge_prog_unref(struct ngd_merge_prog *m)
{
    struct ngd_queue *queue;

    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    queue = m->prog->queue;
    ngd_mutex_lock(&queue->lock);
    if (queue->lineup.merging == &m->merge)
        queue->lineup.merging = NULL;
    ngd_mutex_unlock(&queue->lock);
    ngd_free(m);
    return NULL;
}

/* ---- captures of larger buckets ----------------------------------------------------------------------- */

static void capture_end(struct ngd_merge_prog *m)
{
    struct ngd_program *prog = m->prog;

    atomic_store_explicit(&m->capturing, false, memory_order_release);
    ngd_merge_prog_unref(m);
    ngd_program_unref(prog);
}

/* Captures the larger bucket, unless an executable that serves other requests would have to be evicted for it. */
static void capture_run(struct ngd_capture_job *job)
{
    struct ngd_merge_prog *m = ngd_container_of(job, struct ngd_merge_prog, job);
    struct ngd_gcache_entry *entry;
    struct ngd_gcache_stats stats;

    ngd_gcache_stats(m->prog->cache, &stats);
    if (stats.entries < m->prog->options.capture_limit &&
        ngd_program_capture(m->prog, &m->key, &entry, NULL, NULL) == NGD_OK) {
        ngd_gcache_put(entry);
        ngd_mutex_lock(&m->prog->queue->lock);
        m->merge.reach = INT64_MAX; /* to be found out again */
        ngd_mutex_unlock(&m->prog->queue->lock);
    }
    capture_end(m);
}

static void capture_abort(struct ngd_capture_job *job)
{
    capture_end(ngd_container_of(job, struct ngd_merge_prog, job));
}

void ngd_merge_prog_ask(struct ngd_merge_prog *m)
{
    if (!atomic_load_explicit(&m->wanted, memory_order_relaxed) || !atomic_exchange(&m->wanted, false))
        return;
    m->job.run = capture_run;
    m->job.abort = capture_abort;
    ngd_program_ref(m->prog);
    ngd_merge_prog_ref(m);
    if (!ngd_captures_push(&m->prog->sched->captures, &m->job, ngd_program_share(m->prog)))
        capture_end(m);
}
