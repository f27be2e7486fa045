/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs: a graph with its options on one device, and the cache of its executables.
 *
 * A reference that could be the last one is given up under the table's lock, where programs are found: a program whose
 * count is zero is in no table any more.
 */
#include "base/log.h"
#include "base/mem.h"
#include "graphs/pass.h"
#include "scheduler/compile.h"
#include "scheduler/debug.h"
#include "scheduler/eager_plans.h"
#include "scheduler/group_int.h"
#include "scheduler/hot.h"
#include "scheduler/merge_prog.h"
#include "scheduler/program_int.h"
#include "scheduler/stored.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- executables -------------------------------------------------------------------------------------- */

/*
 * Each slot's pool grows when the executable first runs there; what they lack is asked for before the capture, when
 * the refusal can still name the shortage.
 */
static ngd_status_t check_room(const struct ngd_program *prog, struct ngd_poolset *pools, const struct ngd_plan *plan,
                               struct ngd_diag *diag)
{
    uint64_t lack = 0;

    for (uint32_t i = 0; i < prog->queue->n_slots; i++) {
        uint64_t held = ngd_pool_bytes(ngd_poolset_pool(pools, &prog->queue->slots[i]));

        if (plan->pool_bytes > held)
            lack += plan->pool_bytes - held;
    }
    return lack ? ngd_device_check_room(prog->queue->dev, lack, "the pool of this graph", diag) : NGD_OK;
}

bool ngd_program_has_own_pools(const struct ngd_program *prog)
{
    return prog->pools || !prog->options.reuse_graph_pool_in_same_fx;
}

/* The set that the options ask for: a shared one, or one for this executable alone. */
static ngd_status_t choose_pools(struct ngd_program *prog, struct ngd_poolset **pools_p, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (prog->pools || prog->options.reuse_graph_pool_in_same_fx)
        *pools_p = ngd_poolset_ref(prog->pools);
    else
        status = ngd_poolset_create(prog->queue, prog->graph->name, ngd_program_owner_of(prog).payers.device, pools_p);
    return status ? ngd_diag_set(diag, status, "no host memory for the pools of graph \"%.100s\"", prog->graph->name)
                  : NGD_OK;
}

/* One that an eager run of this key left, or a new one, which the next eager run finds. */
static ngd_status_t plan_for_eager(struct ngd_program *prog, const struct ngd_key *key, struct ngd_plan **plan_p,
                                   bool *stored_p, struct ngd_diag *diag)
{
    struct ngd_plan *plan = prog->options.force_recapture ? NULL : ngd_eager_plans_find(prog, key);
    ngd_status_t status;

    if (plan) {
        *plan_p = plan;
        return NGD_OK;
    }
    status = ngd_stored_plan(prog, key, prog->options.force_recapture, NULL, plan_p, stored_p, diag);
    if (status == NGD_OK && !prog->options.force_recapture)
        ngd_eager_plans_keep(prog, *plan_p);
    return status;
}

struct twin {
    const struct ngd_program *prog;
    const struct ngd_key *key;
    uint64_t before;           /* numbers from here on have been asked */
    struct ngd_program *found; /* a reference */
    struct ngd_exec *exec;     /* a reference */
};

static void find_twin_locked(struct ngd_sched *sched, struct twin *t) NGD_REQUIRES(sched->programs_lock)
{
    t->found = NULL;
    ngd_list_for_each (l, &sched->programs) {
        struct ngd_program *p = ngd_container_of(l, struct ngd_program, link);

        if (p->number >= t->before || p->owner == t->prog->owner || p->queue != t->prog->queue || p->group || p->gang ||
            !ngd_digest_equal(&p->graph->digest, &t->prog->graph->digest) ||
            !ngd_digest_equal(&p->digest, &t->prog->digest) || (t->found && p->number < t->found->number))
            continue;
        t->found = p;
    }
    if (t->found)
        ngd_program_ref(t->found);
}

/* Under the cache's lock. It counts nowhere that somebody asked. */
static void take_twin(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    struct ngd_executable *x = art;
    struct twin *t = ctx;

    (void)uses;
    if (!t->exec && ngd_key_equal(key, t->key) && !atomic_load(&x->poisoned))
        t->exec = ngd_exec_ref(x->exec);
}

/*
 * What another owner has captured of the same text with the same options: a reference, or NULL. What the two know and
 * do of it is their own: counters, evictions and buckets.
 */
static struct ngd_exec *find_captured(const struct ngd_program *prog, const struct ngd_key *key)
{
    struct twin t = {.prog = prog, .key = key, .before = UINT64_MAX};

    if (!prog->owner || prog->group || prog->options.force_recapture || prog->options.static_kernel_compile)
        return NULL;
    do {
        ngd_mutex_lock(&prog->sched->programs_lock);
        find_twin_locked(prog->sched, &t);
        ngd_mutex_unlock(&prog->sched->programs_lock);
        if (!t.found)
            break;
        t.before = t.found->number;
        ngd_gcache_for_each(t.found->cache, take_twin, &t);
        ngd_program_unref(t.found);
    } while (!t.exec);
    return t.exec;
}

ngd_status_t ngd_program_say_stopped(const struct ngd_program *prog, ngd_status_t status, struct ngd_diag *diag)
{
    if (status == NGD_ERR_CANCELLED)
        ngd_diag_set(diag, status, "the capture of graph \"%.100s\" was cancelled while it was made",
                     prog->graph->name);
    if (status == NGD_ERR_CAPTURE_STOPPED)
        ngd_diag_set(diag, status,
                     "the capture of graph \"%.100s\" took more than %" PRId64
                     " ms, which is max-capture-time, and was stopped; split the graph, or have the limit raised",
                     prog->graph->name, prog->sched->params.max_capture_time / NGD_MSEC);
    return status;
}

/*
 * eager: for eager runs, outside the cache. debug: NULL, or what this capture's dump is written with; then its passes
 * run, so that there is something to see.
 */
static ngd_status_t make_executable(struct ngd_program *prog, const struct ngd_key *key, bool eager,
                                    struct ngd_debug *debug, struct ngd_executable **x_p, struct ngd_diag *diag)
{
    ngd_nsec_t begin = ngd_now();
    struct ngd_executable *x = NGD_NEW(struct ngd_executable);
    struct ngd_plan *plan = NULL;
    ngd_status_t status;

    if (!x)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    if (!eager && !debug)
        x->exec = find_captured(prog, key);
    if (x->exec) {
        plan = ngd_plan_ref((struct ngd_plan *)(uintptr_t)ngd_exec_plan(x->exec));
        status = NGD_OK;
    } else if (eager)
        status = plan_for_eager(prog, key, &plan, &x->stored, diag);
    else
        status = ngd_stored_plan(prog, key, debug || prog->options.force_recapture, debug ? &debug->report : NULL,
                                 &plan, &x->stored, diag);
    if (status == NGD_OK && debug)
        ngd_debug_plan(debug, plan);
    if (status == NGD_OK)
        status = choose_pools(prog, &x->pools, diag);
    if (status == NGD_OK)
        status = check_room(prog, x->pools, plan, diag);
    if (status == NGD_OK && !x->exec)
        status = ngd_exec_create_in(prog->queue->dev, plan, prog->group ? &prog->group->comm : NULL,
                                    prog->group != NULL, &x->exec, diag);
    if (status == NGD_OK)
        status = ngd_charge_begin(&x->charge, ngd_program_owner_of(prog).payers.host,
                                  sizeof(*x) + ngd_exec_bytes(x->exec) + ngd_plan_host_bytes(plan), diag);
    if (status == NGD_OK)
        x->rows_limit = ngd_merge_rows_limit(prog, plan);
    ngd_plan_unref(plan);
    x->prog = prog;
    if (status == NGD_OK && prog->gang)
        status = ngd_gang_make_ranks(x, key, eager, diag);
    if (status) {
        ngd_executable_destroy(x);
        return ngd_program_say_stopped(prog, status, diag);
    }
    x->key_hash = key->hash;
    atomic_init(&x->fresh, true);
    x->capture_time = ngd_now() - begin;
    *x_p = x;
    return NGD_OK;
}

void ngd_executable_destroy(struct ngd_executable *x)
{
    struct ngd_charge charge;

    if (!x)
        return;
    charge = ngd_charge_move(&x->charge);
    if (x->ranks)
        ngd_gang_drop_ranks(x);
    ngd_exec_unref(x->exec);
    ngd_poolset_unref(x->pools);
    ngd_free(x);
    ngd_charge_end(&charge);
}

/* The others of its group would be waited for. */
static ngd_status_t check_alone(const struct ngd_program *prog, struct ngd_diag *diag)
{
    if (!prog->group || prog->gang)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_GROUP_UNBOUND,
                        "graph \"%.100s\" is of rank %d of group \"%.64s\", and does not run alone: join the graphs of "
                        "all ranks (Graphs.JoinRanks), and use what is made of them",
                        prog->graph->name, ngd_group_rank_of(prog->group, prog->queue), ngd_group_name(prog->group));
}

ngd_status_t ngd_program_make_rank(struct ngd_program *prog, const struct ngd_key *key, bool eager,
                                   struct ngd_executable **x_p, struct ngd_diag *diag)
{
    return make_executable(prog, key, eager, NULL, x_p, diag);
}

/* From now on bindings keep instances of it. */
static void set_cached(struct ngd_executable *x)
{
    x->cached = true;
    for (uint32_t r = 0; x->ranks && r < x->prog->gang->n; r++)
        if (x->ranks[r])
            x->ranks[r]->cached = true;
}

static void remember_gone(struct ngd_program *prog, uint64_t hash, int reason)
{
    ngd_mutex_lock(&prog->lock);
    prog->gone[prog->n_gone % NGD_PROGRAM_GONE_MAX].hash = hash;
    prog->gone[prog->n_gone % NGD_PROGRAM_GONE_MAX].reason = reason;
    prog->n_gone++;
    ngd_mutex_unlock(&prog->lock);
}

/* Why there is no executable for this key: the newest thing that happened to it. */
static int miss_reason(struct ngd_program *prog, uint64_t hash)
{
    int reason = NGD_MISS_FIRST;
    uint32_t n;

    ngd_mutex_lock(&prog->lock);
    n = prog->n_gone < NGD_PROGRAM_GONE_MAX ? prog->n_gone : NGD_PROGRAM_GONE_MAX;
    for (uint32_t i = 1; i <= n; i++) {
        if (prog->gone[(prog->n_gone - i) % NGD_PROGRAM_GONE_MAX].hash == hash) {
            reason = prog->gone[(prog->n_gone - i) % NGD_PROGRAM_GONE_MAX].reason;
            break;
        }
    }
    ngd_mutex_unlock(&prog->lock);
    return reason;
}

static void note_capture(struct ngd_program *prog, const struct ngd_key *key, const struct ngd_executable *x)
{
    static const ngd_event_reason_t reasons[NGD_MISS_MAX] = {
        [NGD_MISS_FIRST] = NGD_EVENT_CAPTURED,
        [NGD_MISS_EVICTED] = NGD_EVENT_RECAPTURED_EVICTED,
        [NGD_MISS_POISONED] = NGD_EVENT_RECAPTURED_POISONED,
        [NGD_MISS_FAILED] = NGD_EVENT_RECAPTURED_FAILED,
        [NGD_MISS_FORCED] = NGD_EVENT_RECAPTURED_FORCED,
    };
    const struct ngd_plan *plan = ngd_exec_plan(x->exec);

    ngd_program_note(prog, reasons[miss_reason(prog, key->hash)], key, 0,
                     "%" PRIu32 " kernels, pool of %" PRIu64 " bytes, in %.3f ms", plan->n_calls, plan->pool_bytes,
                     (double)x->capture_time / NGD_MSEC);
}

static ngd_status_t cache_compile(void *ctx, const struct ngd_key *key, void **art_p, uint64_t *bytes_p,
                                  struct ngd_diag *diag)
{
    struct ngd_program *prog = ctx;
    struct ngd_executable *x;
    struct ngd_debug debug;
    bool dumped = ngd_debug_begin(&debug, prog, key);
    ngd_status_t status = check_alone(prog, diag);

    if (status == NGD_OK)
        status = make_executable(prog, key, false, dumped ? &debug : NULL, &x, diag);
    if (dumped)
        ngd_debug_end(&debug, status, diag);
    if (status) {
        remember_gone(prog, key->hash, NGD_MISS_FAILED);
        ngd_program_note(prog, NGD_EVENT_CAPTURE_FAILED, key, 0, "%s", diag ? diag->text : ngd_status_text(status));
        ngd_metric_row_add(ngd_metric_row(NGD_M_CAPTURE_FAILURES, ngd_status_name(status)), 1);
        return status;
    }
    set_cached(x);
    note_capture(prog, key, x);
    atomic_fetch_add_explicit(&prog->captures, 1, memory_order_relaxed);
    ngd_metric_row_add(prog->captures_row, 1);
    ngd_metric_observe(NGD_M_CAPTURE_SECONDS, x->capture_time);
    ngd_metric_inc(NGD_M_CACHE_ENTRIES);
    ngd_compile_later(x, &prog->options);
    *art_p = x;
    *bytes_p = ngd_exec_bytes(x->exec) + sizeof(*x);
    return NGD_OK;
}

static void cache_release(void *ctx, void *art)
{
    struct ngd_program *prog = ctx;
    struct ngd_executable *x = art;

    ngd_program_drop_instances(prog, x);
    /* Without references the program goes, and its cache with it: that is not an eviction. */
    if (atomic_load(&prog->refs) > 0 && atomic_load(&x->unreachable)) {
        ngd_program_note(prog, NGD_EVENT_EVICTED_BUCKETS, &ngd_exec_plan(x->exec)->key, 0,
                         "no request has this key with the buckets that were applied");
        ngd_metric_row_add(ngd_metric_row(NGD_M_CACHE_EVICTIONS, "buckets"), 1);
    } else if (atomic_load(&prog->refs) > 0 && !atomic_load(&x->poisoned)) {
        remember_gone(prog, x->key_hash, NGD_MISS_EVICTED);
        ngd_program_note(prog, NGD_EVENT_EVICTED_LIMIT, &ngd_exec_plan(x->exec)->key, 0,
                         "%" PRIu32 " replays, last capture took %.3f ms; capture_limit is %" PRId64,
                         atomic_load(&x->runs), (double)x->capture_time / NGD_MSEC, prog->options.capture_limit);
        ngd_metric_row_add(ngd_metric_row(NGD_M_CACHE_EVICTIONS, "capture_limit"), 1);
    }
    ngd_metric_dec(NGD_M_CACHE_ENTRIES);
    ngd_hot_note(prog->sched->hot, x);
    ngd_executable_destroy(x);
}

static const struct ngd_gcache_ops cache_ops = {
    .compile = cache_compile,
    .release = cache_release,
};

struct ngd_gcache_entry *ngd_program_lookup(struct ngd_program *prog, const struct ngd_key *key, int *reason_p)
{
    struct ngd_gcache_entry *entry = ngd_gcache_lookup(prog->cache, key);

    if (!entry && reason_p)
        *reason_p = miss_reason(prog, key->hash);
    return entry;
}

ngd_status_t ngd_program_capture(struct ngd_program *prog, const struct ngd_key *key, struct ngd_gcache_entry **entry_p,
                                 bool *captured_p, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_gcache_get(prog->cache, key, entry_p, diag);
    bool captured;

    if (status)
        return status;
    captured = atomic_exchange(&ngd_entry_executable(*entry_p)->fresh, false);
    if (captured_p)
        *captured_p = captured;
    return NGD_OK;
}

ngd_status_t ngd_program_recapture(struct ngd_program *prog, const struct ngd_key *key,
                                   struct ngd_gcache_entry **entry_p, bool *captured_p, struct ngd_diag *diag)
{
    struct ngd_gcache_entry *old = ngd_gcache_lookup(prog->cache, key);

    if (old) {
        /* No eviction: the release must not take it for one, as with a poisoned executable. */
        if (!atomic_exchange(&ngd_entry_executable(old)->poisoned, true)) {
            remember_gone(prog, key->hash, NGD_MISS_FORCED);
            ngd_gcache_drop(prog->cache, key);
        }
        ngd_gcache_put(old);
    }
    return ngd_program_capture(prog, key, entry_p, captured_p, diag);
}

ngd_status_t ngd_program_make_eager(struct ngd_program *prog, const struct ngd_key *key, struct ngd_executable **x_p,
                                    struct ngd_diag *diag)
{
    ngd_status_t status = check_alone(prog, diag);

    return status ? status : make_executable(prog, key, true, NULL, x_p, diag);
}

void ngd_program_poison(struct ngd_program *prog, struct ngd_executable *x)
{
    if (!x->cached || atomic_exchange(&x->poisoned, true))
        return;
    remember_gone(prog, x->key_hash, NGD_MISS_POISONED);
    ngd_program_note(prog, NGD_EVENT_EVICTED_POISONED, &ngd_exec_plan(x->exec)->key, 0, "after a device fault");
    ngd_metric_row_add(ngd_metric_row(NGD_M_CACHE_EVICTIONS, "poisoned"), 1);
    ngd_gcache_drop(prog->cache, &ngd_exec_plan(x->exec)->key);
}

/* ---- options ------------------------------------------------------------------------------------------ */

/* Of the planner, the device and the options: all of them, or those that plans depend on. */
static void digest_of(const struct ngd_graph_options *options, const struct ngd_pattern_set *patterns,
                      const struct ngd_device_info *info, bool key_only, struct ngd_digest *digest_p)
{
    struct ngd_digest of_options, of_passes;
    char hex[NGD_DIGEST_HEX], hex_passes[NGD_DIGEST_HEX], hex_patterns[NGD_DIGEST_HEX] = "none", text[1300];
    int n;

    ngd_graph_options_digest(options, key_only, &of_options);
    ngd_digest_hex(&of_options, hex);
    ngd_passes_digest(&of_passes);
    ngd_digest_hex(&of_passes, hex_passes);
    if (patterns)
        ngd_digest_hex(&patterns->digest, hex_patterns);
    n = snprintf(text, sizeof(text), "planner %d\narch %.800s\noptions %s\npasses %s\npatterns %s\n",
                 NGD_PLANNER_VERSION, info->arch, hex, hex_passes, hex_patterns);
    ngd_digest_of(text, n > 0 ? (size_t)n : 0, digest_p);
}

/* ---- programs ----------------------------------------------------------------------------------------- */

static uint32_t find_row_symbol(const struct ngd_graph *graph)
{
    uint32_t i = 0;

    while (i < graph->n_symbols && graph->symbols[i].policy != NGD_SYMBOL_BUCKETS)
        i++;
    return i;
}

/* Nobody else knows it yet. */
static void init_payers(struct ngd_program *prog, const struct ngd_payers *payers) NGD_NO_THREAD_SAFETY
{
    ngd_list_init(&prog->bindings);
    prog->payers = *payers;
    ngd_payers_ref(payers);
}

static ngd_status_t program_new(struct ngd_sched *sched, struct ngd_queue *queue, struct ngd_graph *graph,
                                const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                                const struct ngd_payers *payers, struct ngd_program **prog_p)
{
    struct ngd_program *prog = NGD_NEW(struct ngd_program);
    struct ngd_gcache_params params;
    ngd_status_t status;

    if (!prog)
        return NGD_ERR_NO_MEMORY;
    ngd_gcache_params_init(&params);
    params.ops = &cache_ops;
    params.ctx = prog;
    params.limit = options->capture_limit < UINT32_MAX ? (uint32_t)options->capture_limit : UINT32_MAX;
    params.policy = (ngd_gcache_policy_t)options->capture_limit_policy;
    prog->sizes = NGD_NEW_N(struct ngd_sizes, graph->n_symbols);
    status = prog->sizes ? ngd_gcache_create(&params, &prog->cache) : NGD_ERR_NO_MEMORY;
    if (status) {
        ngd_free(prog->sizes);
        ngd_free(prog);
        return status;
    }
    if (options->use_graph_pool[0])
        status = ngd_poolset_open(queue, options->use_graph_pool, payers->device, &prog->pools);
    if (status) {
        ngd_gcache_destroy(prog->cache);
        ngd_free(prog->sizes);
        ngd_free(prog);
        return status;
    }
    prog->sched = sched;
    prog->queue = queue;
    prog->graph = ngd_graph_ref(graph);
    prog->n_inputs = graph->n_inputs;
    prog->n_hosts = graph->n_hosts;
    prog->n_outputs = graph->n_outputs;
    prog->number = atomic_fetch_add(&sched->next_program, 1) + 1;
    prog->options = *options;
    prog->patterns = patterns ? ngd_pattern_set_ref(patterns) : ngd_pattern_set_builtin();
    digest_of(options, prog->patterns, ngd_device_info(queue->dev), false, &prog->digest);
    digest_of(options, prog->patterns, ngd_device_info(queue->dev), true, &prog->key_digest);
    prog->row_symbol = find_row_symbol(graph);
    atomic_init(&prog->refs, 1);
    ngd_mutex_init(&prog->lock, NGD_RANK_PROGRAM);
    init_payers(prog, payers);
    ngd_list_init(&prog->quarantined);
    ngd_list_init(&prog->link);
    *prog_p = prog;
    return NGD_OK;
}

/* Of a program that nobody else knows yet. */
static ngd_status_t charge_program(struct ngd_program *prog, struct ngd_diag *diag) NGD_NO_THREAD_SAFETY
{
    const uint64_t n =
        sizeof(*prog) + ngd_graph_host_bytes(prog->graph) + prog->graph->n_symbols * sizeof(prog->sizes[0]);

    return ngd_charge_begin(&prog->charge, prog->payers.host, n, diag);
}

struct ngd_owner ngd_program_owner_of(struct ngd_program *prog)
{
    struct ngd_owner owner = {.share = atomic_load(&prog->share)};

    ngd_mutex_lock(&prog->lock);
    owner.payers = prog->payers;
    ngd_mutex_unlock(&prog->lock);
    return owner;
}

/* Of a program that is in no table and that nobody references. */
static void program_free(struct ngd_program *prog) NGD_NO_THREAD_SAFETY
{
    struct ngd_charge charge = ngd_charge_move(&prog->charge);
    struct ngd_payers payers = prog->payers;

    ngd_gcache_destroy(prog->cache);
    ngd_gang_free(prog->gang);
    ngd_group_unref(prog->group);
    ngd_program_free_quarantine(prog);
    ngd_eager_plans_free(prog);
    ngd_poolset_unref(prog->pools);
    ngd_share_unref(atomic_load(&prog->share));
    ngd_program_free_buckets(prog);
    ngd_free(prog->sizes);
    ngd_graph_unref(prog->graph);
    ngd_pattern_set_unref(prog->patterns);
    ngd_mutex_fini(&prog->lock);
    ngd_free(prog);
    ngd_charge_end(&charge);
    ngd_payers_unref(&payers);
}

/* "": the scheduler. */
static const char *owner_name(const struct ngd_program *prog)
{
    const struct ngd_share *share = atomic_load(&prog->share);

    return share ? share->name : "";
}

/* Rows are taken and hidden under the table's lock, so that a name's last program does not hide them from a new one. */
static void show_rows_locked(struct ngd_program *prog)
{
    prog->captures_row = ngd_metric_row_of(NGD_M_CAPTURES, prog->graph->name, owner_name(prog));
    prog->replays_row = ngd_metric_row_of(NGD_M_REPLAYS, prog->graph->name, owner_name(prog));
}

/* Another program has the rows of this one. */
static bool rows_in_use_locked(struct ngd_sched *sched, const struct ngd_program *prog)
    NGD_REQUIRES(sched->programs_lock)
{
    ngd_list_for_each (l, &sched->programs) {
        const struct ngd_program *other = ngd_container_of(l, struct ngd_program, link);

        if (other != prog && strcmp(other->graph->name, prog->graph->name) == 0 &&
            strcmp(owner_name(other), owner_name(prog)) == 0)
            return true;
    }
    return false;
}

static void hide_rows_locked(struct ngd_sched *sched, struct ngd_program *prog) NGD_REQUIRES(sched->programs_lock)
{
    if (rows_in_use_locked(sched, prog))
        return;
    ngd_metric_row_hide(prog->captures_row);
    ngd_metric_row_hide(prog->replays_row);
}

static void insert_locked(struct ngd_sched *sched, struct ngd_program *prog) NGD_REQUIRES(sched->programs_lock)
{
    show_rows_locked(prog);
    ngd_list_push_back(&sched->programs, &prog->link);
}

static void remove_locked(struct ngd_sched *sched, struct ngd_program *prog) NGD_REQUIRES(sched->programs_lock)
{
    ngd_list_remove(&prog->link);
    hide_rows_locked(sched, prog);
}

static bool is_alike(const struct ngd_program *a, const struct ngd_program *b)
{
    return a->queue == b->queue && a->group == b->group && !a->gang &&
           ngd_digest_equal(&a->graph->digest, &b->graph->digest) && ngd_digest_equal(&a->digest, &b->digest);
}

static void set_share(struct ngd_program *prog, struct ngd_share *share)
{
    prog->owner = share ? atomic_load(&share->key) : 0;
    atomic_store(&prog->share, share ? ngd_share_ref(share) : NULL);
}

/* What was captured until now stays the daemon's; the program and what comes is the owner's. */
static void give_to(struct ngd_program *ahead, struct ngd_program *like) NGD_NO_THREAD_SAFETY
{
    set_share(ahead, atomic_load(&like->share));
    ngd_mutex_lock(&ahead->lock);
    ahead->payers = like->payers;
    ahead->charge = ngd_charge_move(&like->charge);
    ngd_mutex_unlock(&ahead->lock);
    like->payers = (struct ngd_payers){0};
}

/*
 * The owner's program like that one. The scheduler's own, of hot keys that were captured ahead, becomes the first
 * owner's who registers it under its name: the name, which is no part of the digest, is not told to others, who share
 * the executables only. What the scheduler asks for (owner 0) may be anybody's.
 */
static struct ngd_program *find_locked(struct ngd_sched *sched, struct ngd_program *like)
    NGD_REQUIRES(sched->programs_lock)
{
    struct ngd_program *ahead = NULL;

    ngd_list_for_each (l, &sched->programs) {
        struct ngd_program *prog = ngd_container_of(l, struct ngd_program, link);

        if (!is_alike(prog, like))
            continue;
        if (prog->owner == like->owner || like->owner == 0)
            return prog;
        if (prog->owner == 0 && atomic_load(&prog->refs) == 1 && !ngd_program_has_own_pools(prog) &&
            strcmp(prog->graph->name, like->graph->name) == 0)
            ahead = prog;
    }
    if (ahead) {
        hide_rows_locked(sched, ahead);
        give_to(ahead, like);
        show_rows_locked(ahead);
    }
    return ahead;
}

bool ngd_program_keeps_bits(const struct ngd_program *prog)
{
    struct ngd_pattern_set *builtin = ngd_pattern_set_builtin();
    const bool own = !prog->patterns || (builtin && ngd_digest_equal(&prog->patterns->digest, &builtin->digest));

    ngd_pattern_set_unref(builtin);
    return own && ngd_device_info(prog->queue->dev)->same_bits;
}

/* The patterns that the options name are there. */
static ngd_status_t check_custom(const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                                 struct ngd_diag *diag)
{
    struct ngd_pattern_set *set = patterns ? ngd_pattern_set_ref(patterns) : ngd_pattern_set_builtin();
    ngd_status_t status = ngd_pattern_set_check(set, options->post_grad_custom_pre_pass, diag);

    if (!status)
        status = ngd_pattern_set_check(set, options->post_grad_custom_post_pass, diag);
    ngd_pattern_set_unref(set);
    return status;
}

ngd_status_t ngd_program_open(struct ngd_sched *sched, struct ngd_device *dev, struct ngd_graph *graph,
                              const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                              struct ngd_program **prog_p, bool *shared_p, struct ngd_diag *diag)
{
    return ngd_program_open_in(sched, dev, graph, options, patterns, NULL, NULL, prog_p, shared_p, diag);
}

static ngd_status_t check_group(const struct ngd_group *group, const struct ngd_queue *queue,
                                const struct ngd_graph *graph, struct ngd_diag *diag)
{
    if (group && ngd_group_rank_of(group, queue) < 0)
        return ngd_diag_set(diag, NGD_ERR_GROUP_UNBOUND,
                            "device %s is not in group \"%.64s\": register the graph of a rank on the rank's device",
                            queue->dev_name, ngd_group_name(group));
    return group ? ngd_group_check_graph(group, graph, diag) : NGD_OK;
}

ngd_status_t ngd_program_open_in(struct ngd_sched *sched, struct ngd_device *dev, struct ngd_graph *graph,
                                 const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                                 struct ngd_group *group, const struct ngd_owner *owner, struct ngd_program **prog_p,
                                 bool *shared_p, struct ngd_diag *diag)
{
    static const struct ngd_owner nobody;
    struct ngd_queue *queue = ngd_sched_queue_of(sched, dev);
    struct ngd_program *fresh = NULL, *prog;
    ngd_status_t status;

    if (!queue)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "device %s is not one of the scheduler's",
                            ngd_device_info(dev)->name);
    status = ngd_graph_options_check(options, diag);
    if (status == NGD_OK)
        status = check_custom(options, patterns, diag);
    if (status == NGD_OK)
        status = ngd_dump_check(sched, options, diag);
    if (status == NGD_OK)
        status = check_group(group, queue, graph, diag);
    if (status)
        return status;
    /* Made before the lock is taken, and thrown away when there is one already. */
    owner = owner ? owner : &nobody;
    status = program_new(sched, queue, graph, options, patterns, &owner->payers, &fresh);
    if (status)
        return ngd_diag_set(diag, status, "no host memory for graph \"%.100s\"", graph->name);
    fresh->group = group ? ngd_group_ref(group) : NULL;
    set_share(fresh, owner->share);
    status = charge_program(fresh, diag);
    if (status) {
        program_free(fresh);
        return status;
    }
    ngd_mutex_lock(&sched->programs_lock);
    prog = find_locked(sched, fresh);
    if (prog)
        ngd_program_ref(prog);
    else
        insert_locked(sched, fresh);
    ngd_mutex_unlock(&sched->programs_lock);
    if (shared_p)
        *shared_p = prog != NULL;
    if (prog)
        program_free(fresh);
    *prog_p = prog ? prog : fresh;
    return NGD_OK;
}

ngd_status_t ngd_program_open_gang(struct ngd_program *leader, struct ngd_gang *gang, struct ngd_program **prog_p,
                                   struct ngd_diag *diag)
{
    struct ngd_sched *sched = leader->sched;
    const struct ngd_owner owner = ngd_program_owner_of(leader);
    struct ngd_program *prog;
    ngd_status_t status =
        program_new(sched, leader->queue, leader->graph, &leader->options, leader->patterns, &owner.payers, &prog);

    if (status)
        ngd_diag_set(diag, status, "no host memory for the graphs of group \"%.64s\"", ngd_group_name(leader->group));
    else if ((status = charge_program(prog, diag)) != NGD_OK)
        program_free(prog);
    if (status) {
        ngd_gang_free(gang);
        return status;
    }
    prog->group = ngd_group_ref(leader->group);
    prog->gang = gang;
    set_share(prog, owner.share);
    gang->programs[gang->leader] = prog;
    if (!gang->replicated) {
        prog->n_inputs = gang->input_at[gang->n];
        prog->n_hosts = gang->host_at[gang->n];
        prog->n_outputs = gang->output_at[gang->n];
    }
    ngd_mutex_lock(&sched->programs_lock);
    insert_locked(sched, prog);
    ngd_mutex_unlock(&sched->programs_lock);
    *prog_p = prog;
    return NGD_OK;
}

struct ngd_program *ngd_program_ref(struct ngd_program *prog)
{
    atomic_fetch_add_explicit(&prog->refs, 1, memory_order_relaxed);
    return prog;
}

/* Gives up the last reference, unless somebody found the program meanwhile. */
static void unref_last(struct ngd_program *prog)
{
    struct ngd_sched *sched = prog->sched;
    bool last;

    ngd_mutex_lock(&sched->programs_lock);
    last = atomic_fetch_sub_explicit(&prog->refs, 1, memory_order_acq_rel) == 1;
    if (last)
        remove_locked(sched, prog);
    ngd_mutex_unlock(&sched->programs_lock);
    if (last)
        program_free(prog);
}

struct ngd_program *ngd_program_unref(struct ngd_program *prog)
{
    uint32_t refs;

    if (!prog)
        return NULL;
    refs = atomic_load_explicit(&prog->refs, memory_order_relaxed);
    while (refs > 1)
        if (atomic_compare_exchange_weak_explicit(&prog->refs, &refs, refs - 1, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return NULL;
    unref_last(prog);
    return NULL;
}

struct ngd_graph *ngd_program_graph(const struct ngd_program *prog)
{
    return prog->graph;
}

struct ngd_device *ngd_program_device(const struct ngd_program *prog)
{
    return prog->queue->dev;
}

const struct ngd_graph_options *ngd_program_options(const struct ngd_program *prog)
{
    return &prog->options;
}

/* ---- introspection ------------------------------------------------------------------------------------ */

static void largest_need(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    uint64_t *need = ctx, bytes = ngd_exec_plan(((const struct ngd_executable *)art)->exec)->pool_bytes;

    (void)key;
    (void)uses;
    if (bytes > *need)
        *need = bytes;
}

void ngd_program_stats(struct ngd_program *prog, struct ngd_program_stats *stats_p)
{
    struct ngd_program_stats stats = {
        .references = atomic_load_explicit(&prog->refs, memory_order_relaxed),
        .captures = atomic_load_explicit(&prog->captures, memory_order_relaxed),
        .replays = atomic_load_explicit(&prog->replays, memory_order_relaxed),
        .eager_runs = atomic_load_explicit(&prog->eager_runs, memory_order_relaxed),
        .merged_replays = atomic_load_explicit(&prog->merged_replays, memory_order_relaxed),
        .merged_requests = atomic_load_explicit(&prog->merged_requests, memory_order_relaxed),
    };

    ngd_gcache_stats(prog->cache, &stats.cache);
    ngd_gcache_for_each(prog->cache, largest_need, &stats.pool_bytes);
    *stats_p = stats;
}

void ngd_program_for_each(struct ngd_sched *sched, void (*fn)(void *ctx, struct ngd_program *prog), void *ctx)
{
    ngd_mutex_lock(&sched->programs_lock);
    ngd_list_for_each (l, &sched->programs)
        fn(ctx, ngd_container_of(l, struct ngd_program, link));
    ngd_mutex_unlock(&sched->programs_lock);
}

struct key_list {
    uint32_t n, max;
    struct ngd_key_info *infos;
    struct ngd_key *keys;
};

static void add_key(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    const struct ngd_executable *x = art;
    const struct ngd_plan *plan = ngd_exec_plan(x->exec);
    struct key_list *l = ctx;

    if (l->n == l->max)
        return;
    l->keys[l->n] = *key;
    l->infos[l->n++] = (struct ngd_key_info){
        .hash = key->hash,
        .uses = uses,
        .runs = atomic_load_explicit(&x->runs, memory_order_relaxed),
        .padded_runs = atomic_load_explicit(&x->padded_runs, memory_order_relaxed),
        .expected = atomic_load_explicit(&x->expected, memory_order_relaxed),
        .capture_time = x->capture_time,
        .pool_bytes = plan->pool_bytes,
        .kernels = plan->n_calls,
        .static_kernels = ngd_static_result_name(ngd_exec_static_get(x->exec)),
    };
}

void ngd_program_for_each_key(struct ngd_program *prog, void (*fn)(void *ctx, const struct ngd_key_info *info),
                              void *ctx)
{
    struct ngd_gcache_stats stats;
    struct key_list l = {0};

    ngd_gcache_stats(prog->cache, &stats);
    l.max = stats.entries;
    l.infos = NGD_NEW_N(struct ngd_key_info, l.max);
    l.keys = NGD_NEW_N(struct ngd_key, l.max);
    if (l.infos && l.keys)
        ngd_gcache_for_each(prog->cache, add_key, &l);
    for (uint32_t i = 0; i < l.n; i++) {
        struct ngd_strbuf sb;

        ngd_strbuf_init(&sb);
        ngd_key_print_symbols(prog->graph, &l.keys[i], &sb);
        l.infos[i].symbols = ngd_strbuf_str(&sb);
        fn(ctx, &l.infos[i]);
        ngd_strbuf_fini(&sb);
    }
    ngd_free(l.infos);
    ngd_free(l.keys);
}

/* Executables are collected under the cache's lock and printed without it. */
struct collected {
    uint32_t n, max;
    struct ngd_exec **execs;
};

static void collect(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    struct collected *c = ctx;

    (void)key;
    (void)uses;
    if (c->n < c->max)
        c->execs[c->n++] = ngd_exec_ref(((const struct ngd_executable *)art)->exec);
}

static void collect_executables(struct ngd_program *prog, struct collected *c)
{
    struct ngd_gcache_stats stats;

    ngd_gcache_stats(prog->cache, &stats);
    *c = (struct collected){.max = stats.entries};
    c->execs = NGD_NEW_N(struct ngd_exec *, stats.entries);
    if (c->execs)
        ngd_gcache_for_each(prog->cache, collect, c);
}

static void collected_fini(struct collected *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        ngd_exec_unref(c->execs[i]);
    ngd_free(c->execs);
}

static bool key_begins(const struct ngd_plan *plan, const char *digits)
{
    char hash[17];

    snprintf(hash, sizeof(hash), "%016" PRIx64, plan->key.hash);
    return strncmp(hash, digits, strlen(digits)) == 0;
}

uint32_t ngd_program_for_each_plan(struct ngd_program *prog, const char *key,
                                   void (*fn)(void *ctx, const struct ngd_plan *plan), void *ctx)
{
    struct collected c;
    uint32_t n = 0;

    collect_executables(prog, &c);
    for (uint32_t i = 0; i < c.n; i++) {
        const struct ngd_plan *plan = ngd_exec_plan(c.execs[i]);

        if (!key_begins(plan, key))
            continue;
        fn(ctx, plan);
        n++;
    }
    collected_fini(&c);
    return n;
}

uint32_t ngd_program_print_plans(struct ngd_program *prog, const char *key, struct ngd_strbuf *sb)
{
    struct collected c;
    uint32_t n = 0;

    collect_executables(prog, &c);
    for (uint32_t i = 0; i < c.n; i++) {
        const struct ngd_plan *plan = ngd_exec_plan(c.execs[i]);

        if (!key_begins(plan, key))
            continue;
        ngd_strbuf_append(sb, n++ ? "\n# key: " : "# key: ");
        ngd_key_print(prog->graph, &plan->key, sb);
        ngd_strbuf_printf(sb, "\n# static kernels: %s\n", ngd_static_result_name(ngd_exec_static_get(c.execs[i])));
        ngd_plan_print(plan, sb);
    }
    collected_fini(&c);
    return n;
}

void ngd_program_print_keys(struct ngd_program *prog, void (*fn)(void *ctx, const char *key), void *ctx)
{
    struct collected c;

    collect_executables(prog, &c);
    for (uint32_t i = 0; i < c.n; i++) {
        struct ngd_strbuf sb;

        ngd_strbuf_init(&sb);
        ngd_key_print(prog->graph, &ngd_exec_plan(c.execs[i])->key, &sb);
        fn(ctx, ngd_strbuf_str(&sb));
        ngd_strbuf_fini(&sb);
    }
    collected_fini(&c);
}
