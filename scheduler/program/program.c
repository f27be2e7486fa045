/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs: a graph with its options on one device, and the cache of its executables. A reference that may be the last
 * one is dropped under the table's lock, under which programs are found. So a program without references is in no
 * table.
 */
#include "base/log.h"
#include "base/mem.h"
#include "graphs/pass.h"
#include "scheduler/program/capture_dump.h"
#include "scheduler/program/eager_plans.h"
#include "scheduler/program/group_int.h"
#include "scheduler/program/merge_prog.h"
#include "scheduler/program/program_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- options ------------------------------------------------------------------------------------------ */

/* Makes the digest of planner, device, patterns and options. key_only: only those options that plans depend on. */
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

/* Sets fields that the lock guards later; no other thread knows the program yet. */
static void init_guarded_fields(struct ngd_program *prog, const struct ngd_payers *payers) NGD_NO_THREAD_SAFETY
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
    params.ops = &ngd_executable_cache_ops;
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
    init_guarded_fields(prog, payers);
    ngd_list_init(&prog->quarantined);
    ngd_list_init(&prog->link);
    *prog_p = prog;
    return NGD_OK;
}

/* Charges a program that no other thread knows yet. */
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

/* Frees a program that is in no table and has no references. */
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

/* Returns "" for the scheduler. */
static const char *owner_name(const struct ngd_program *prog)
{
    const struct ngd_share *share = atomic_load(&prog->share);

    return share ? share->name : "";
}

/*
 * Gets the metric rows. They are shown and hidden under the table's lock, so that the last program of a name does not
 * hide those of a new one.
 */
static void show_rows_locked(struct ngd_program *prog)
{
    prog->captures_row = ngd_metric_row_of(NGD_M_CAPTURES, prog->graph->name, owner_name(prog));
    prog->replays_row = ngd_metric_row_of(NGD_M_REPLAYS, prog->graph->name, owner_name(prog));
}

/* Returns true if another program has the same metric rows. */
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

static void insert_program_locked(struct ngd_sched *sched, struct ngd_program *prog) NGD_REQUIRES(sched->programs_lock)
{
    show_rows_locked(prog);
    ngd_list_push_back(&sched->programs, &prog->link);
}

static void remove_program_locked(struct ngd_sched *sched, struct ngd_program *prog) NGD_REQUIRES(sched->programs_lock)
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

/*
 * Gives a program that was made ahead to its first owner. Earlier captures stay charged to the daemon; the program and
 * later ones are the owner's.
 */
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
 * Finds the owner's program like this one. A program of the scheduler, made for hot keys that were captured ahead,
 * becomes the property of the first owner who registers the graph under its name. The name is not part of the digest
 * and is not told to other owners, who share the executables only. The scheduler itself (owner 0) takes any owner's
 * program.
 */
static struct ngd_program *find_program_locked(struct ngd_sched *sched, struct ngd_program *like)
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

/* Checks that the patterns that the options name exist. */
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

static ngd_status_t check_program_group(const struct ngd_group *group, const struct ngd_queue *queue,
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
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "device %s is not open (npugraphctl devices lists those that are)",
                            ngd_device_info(dev)->name);
    status = ngd_graph_options_check(options, diag);
    if (status == NGD_OK)
        status = check_custom(options, patterns, diag);
    if (status == NGD_OK)
        status = ngd_dump_check(sched, options, diag);
    if (status == NGD_OK)
        status = check_program_group(group, queue, graph, diag);
    if (status)
        return status;
    /* The program is made before the lock is taken, and freed if one like it exists. */
    owner = owner ? owner : &nobody;
    status = program_new(sched, queue, graph, options, patterns, &owner->payers, &fresh);
    if (status)
        return ngd_diag_set(diag, status, "no host memory for graph \"%.100s\"", graph->name);
    fresh->group = group ? ngd_group_ref(group) : NULL;
    atomic_init(&fresh->run, sched->choose_run(fresh));
    set_share(fresh, owner->share);
    status = charge_program(fresh, diag);
    if (status) {
        program_free(fresh);
        return status;
    }
    ngd_mutex_lock(&sched->programs_lock);
    prog = find_program_locked(sched, fresh);
    if (prog)
        ngd_program_ref(prog);
    else
        insert_program_locked(sched, fresh);
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
    atomic_init(&prog->run, sched->choose_run(prog));
    set_share(prog, owner.share);
    gang->programs[gang->leader] = prog;
    if (!gang->replicated) {
        prog->n_inputs = gang->input_at[gang->n];
        prog->n_hosts = gang->host_at[gang->n];
        prog->n_outputs = gang->output_at[gang->n];
    }
    ngd_mutex_lock(&sched->programs_lock);
    insert_program_locked(sched, prog);
    ngd_mutex_unlock(&sched->programs_lock);
    *prog_p = prog;
    return NGD_OK;
}

struct ngd_program *ngd_program_ref(struct ngd_program *prog)
{
    atomic_fetch_add_explicit(&prog->refs, 1, memory_order_relaxed);
    return prog;
}

/* Drops the last reference, unless another thread found the program meanwhile. */
static void unref_last(struct ngd_program *prog)
{
    struct ngd_sched *sched = prog->sched;
    bool last;

    ngd_mutex_lock(&sched->programs_lock);
    last = atomic_fetch_sub_explicit(&prog->refs, 1, memory_order_acq_rel) == 1;
    if (last)
        remove_program_locked(sched, prog);
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
