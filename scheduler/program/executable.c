/* SPDX-License-Identifier: Apache-2.0 */
/* Executables: how a program makes, finds, poisons and drops those of its cache, and those for eager runs. */
#include "base/log.h"
#include "base/mem.h"
#include "graphs/pass.h"
#include "scheduler/lineup/estimate.h"
#include "scheduler/program/capture_dump.h"
#include "scheduler/program/compile.h"
#include "scheduler/program/eager_plans.h"
#include "scheduler/program/group_int.h"
#include "scheduler/program/hot.h"
#include "scheduler/program/merge_prog.h"
#include "scheduler/program/program_int.h"
#include "scheduler/program/stored.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- executables -------------------------------------------------------------------------------------- */

/*
 * Checks that the device has room for what the slots' pools lack. The pools grow only when the executable first runs in
 * a slot. The check comes before the capture, when a refusal can still name the shortage.
 */
static ngd_status_t check_pool_room(const struct ngd_program *prog, struct ngd_poolset *pools,
                                    const struct ngd_plan *plan, struct ngd_diag *diag)
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

/* Gets the set of pools that the options ask for: a shared one, or one for this executable alone. */
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

/* Gets the plan that an earlier eager run of this key kept, or makes one and keeps it for the next. */
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
    uint64_t before;           /* programs with this number and above have been searched */
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

/* Takes the executable of the key. Runs under the cache's lock, and does not count as a use. */
static void take_twin(void *ctx, const struct ngd_key *key, void *art, uint64_t uses)
{
    struct ngd_executable *x = art;
    struct twin *t = ctx;

    (void)uses;
    if (!t->exec && ngd_key_equal(key, t->key) && !atomic_load(&x->poisoned))
        t->exec = ngd_exec_ref(x->exec);
}

/*
 * Finds an executable that another owner has captured of the same text with the same options: a reference, or NULL.
 * Counters, evictions and buckets stay each owner's own.
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
        ngd_diag_set(diag, status, "the capture of graph \"%.100s\" was cancelled while it ran", prog->graph->name);
    if (status == NGD_ERR_CAPTURE_STOPPED)
        ngd_diag_set(diag, status,
                     "the capture of graph \"%.100s\" took more than %" PRId64
                     " ms (max-capture-time) and was stopped; split the graph, or have the limit raised",
                     prog->graph->name, NGD_SCHED_PARAM(prog->sched, max_capture_time) / NGD_MSEC);
    return status;
}

static void note_plan_times(struct ngd_executable *x, const struct ngd_pass_report *report, ngd_nsec_t whole)
{
    for (int i = 0; i < NGD_PASS_MAX; i++)
        x->passes_time += report->of[i].nanoseconds;
    x->plan_time = whole > x->passes_time ? whole - x->passes_time : 0;
}

/*
 * Makes an executable. eager: for eager runs, outside the cache. debug: NULL, or the dump of this capture; then the
 * passes run even if the store has the plan, so that there is something to dump.
 */
static ngd_status_t make_executable(struct ngd_program *prog, const struct ngd_key *key, bool eager,
                                    struct ngd_capture_dump *debug, struct ngd_executable **x_p, struct ngd_diag *diag)
{
    ngd_nsec_t begin = ngd_now();
    struct ngd_executable *x = NGD_NEW(struct ngd_executable);
    struct ngd_pass_report report = {0};
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
        status = ngd_stored_plan(prog, key, debug || prog->options.force_recapture, debug ? &debug->report : &report,
                                 &plan, &x->stored, diag);
    note_plan_times(x, debug ? &debug->report : &report, ngd_now() - begin);
    if (status == NGD_OK && debug)
        ngd_capture_dump_plan(debug, plan);
    if (status == NGD_OK)
        status = choose_pools(prog, &x->pools, diag);
    if (status == NGD_OK)
        status = check_pool_room(prog, x->pools, plan, diag);
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

/* Refuses a rank's graph alone: it would wait for the other ranks of its group. */
static ngd_status_t check_alone(const struct ngd_program *prog, struct ngd_diag *diag)
{
    if (!prog->group || prog->gang)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_GROUP_UNBOUND,
                        "graph \"%.100s\" belongs to rank %d of group \"%.64s\" and does not run alone: join the "
                        "graphs of all ranks (Graphs.JoinRanks), and use the joint graph",
                        prog->graph->name, ngd_group_rank_of(prog->group, prog->queue), ngd_group_name(prog->group));
}

ngd_status_t ngd_program_make_rank(struct ngd_program *prog, const struct ngd_key *key, bool eager,
                                   struct ngd_executable **x_p, struct ngd_diag *diag)
{
    return make_executable(prog, key, eager, NULL, x_p, diag);
}

/* Marks it as cached: from now on bindings keep its instances. */
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

/* Returns why there is no executable for this key: the last thing that happened to it. */
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
    if (ngd_exec_note(x->exec))
        ngd_program_note(prog, NGD_EVENT_COMPOSED, key, 0, "%s", ngd_exec_note(x->exec));
}

static ngd_status_t cache_compile(void *ctx, const struct ngd_key *key, void **art_p, uint64_t *bytes_p,
                                  struct ngd_diag *diag)
{
    struct ngd_program *prog = ctx;
    struct ngd_executable *x;
    struct ngd_capture_dump debug;
    bool dumped = ngd_capture_dump_begin(&debug, prog, key);
    ngd_status_t status = check_alone(prog, diag);

    if (status == NGD_OK)
        status = make_executable(prog, key, false, dumped ? &debug : NULL, &x, diag);
    if (dumped)
        ngd_capture_dump_end(&debug, status, diag);
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
    /* Without references the program and its cache are being freed, which is not an eviction. */
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

const struct ngd_gcache_ops ngd_executable_cache_ops = {
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
        /* Marks it as poisoned, so that the release does not count it as an eviction. */
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

ngd_nsec_t ngd_executable_expected(const struct ngd_executable *x)
{
    if (atomic_load_explicit(&x->runs, memory_order_relaxed) < NGD_ESTIMATE_KNOWN)
        return NGD_NSEC_NEVER;
    return atomic_load_explicit(&x->expected, memory_order_relaxed);
}
