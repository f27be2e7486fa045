/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gangs: a replay that is one launch on each device of a group.
 *
 * A gang has a program of its own on the group's first device, which no lookup by digest finds. The cache, counters and
 * captures of that program are the gang's. Its executables are the leader's (the rank on that device). Each has the
 * executables of the other ranks with it (`ranks`), made for the same sizes, and is freed with them. So captures,
 * evictions and replays need not know about gangs.
 */
#include "scheduler/program/group_int.h"
#include "base/mem.h"
#include "graphs/buckets.h"
#include "graphs/pattern.h"
#include <inttypes.h>
#include <string.h>

/* ---- made of what ------------------------------------------------------------------------------------- */

void ngd_gang_free(struct ngd_gang *gang)
{
    if (!gang)
        return;
    for (uint32_t r = 0; r < gang->n; r++)
        if (r != gang->leader)
            ngd_program_unref(gang->programs[r]);
    ngd_free(gang->unwanted);
    ngd_free(gang);
}

/* Sorts the bindings by rank, and checks that there is one for each rank, all of one group. */
static ngd_status_t sort_bindings(struct ngd_binding *const *bindings, uint32_t n, struct ngd_binding **by_rank,
                                  struct ngd_diag *diag)
{
    struct ngd_group *group = n ? bindings[0]->prog->group : NULL;

    for (uint32_t i = 0; i < n; i++) {
        const struct ngd_program *prog = bindings[i]->prog;
        int rank;

        if (!prog->group || prog->gang || prog->group != group)
            return ngd_diag_set(
                diag, NGD_ERR_INVALID_ARGUMENT,
                "graph \"%.100s\", number %u of the list, was not registered for a rank of the first graph's group",
                prog->graph->name, i);
        rank = ngd_group_rank_of(group, prog->queue);
        if (by_rank[rank])
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "rank %d of group \"%.64s\" (device %s) has two graphs; there is one for each rank",
                                (int)ngd_group_first(group) + rank, ngd_group_name(group), prog->queue->dev_name);
        by_rank[rank] = bindings[i];
    }
    for (uint32_t r = 0; group && r < group->n; r++)
        if (!by_rank[r])
            return ngd_diag_set(
                diag, NGD_ERR_INVALID_ARGUMENT,
                "rank %u of group \"%.64s\" (device %s) has no graph in the list; there is one for each "
                "rank",
                ngd_group_first(group) + r, ngd_group_name(group), group->queues[r]->dev_name);
    return group ? NGD_OK : ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the list of the ranks' graphs is empty");
}

static void count_lists(struct ngd_gang *gang, const struct ngd_program *const *programs)
{
    for (uint32_t r = 0; r < gang->n; r++) {
        const struct ngd_graph *g = programs[r]->graph;

        gang->input_at[r + 1] = gang->input_at[r] + g->n_inputs;
        gang->host_at[r + 1] = gang->host_at[r] + g->n_hosts;
        gang->output_at[r + 1] = gang->output_at[r] + g->n_outputs;
    }
}

static struct ngd_gang *gang_new(const struct ngd_group *group, struct ngd_program *const *programs, bool replicated)
{
    struct ngd_gang *gang = NGD_NEW(struct ngd_gang);

    if (!gang)
        return NULL;
    gang->replicated = replicated;
    gang->leader = ngd_group_leader(group);
    gang->n = group->n;
    count_lists(gang, (const struct ngd_program *const *)programs);
    for (uint32_t r = 0; r < gang->n; r++)
        if (r != gang->leader)
            gang->programs[r] = ngd_program_ref(programs[r]);
    gang->unwanted = NGD_NEW_N(struct ngd_out, programs[0]->graph->n_outputs + 1u);
    if (!gang->unwanted) {
        ngd_gang_free(gang);
        return NULL;
    }
    return gang;
}

static struct ngd_binding **ref_ranks(struct ngd_binding *const *by_rank, uint32_t n)
{
    struct ngd_binding **ranks = NGD_NEW_N(struct ngd_binding *, n);

    for (uint32_t r = 0; ranks && r < n; r++)
        ranks[r] = ngd_binding_ref(by_rank[r]);
    return ranks;
}

static ngd_status_t make_gang(const struct ngd_group *group, struct ngd_binding *const *by_rank,
                              struct ngd_program *const *programs, bool replicated, struct ngd_binding **gang_p,
                              struct ngd_diag *diag)
{
    struct ngd_gang *gang = gang_new(group, programs, replicated);
    struct ngd_binding *binding = NULL;
    struct ngd_program *prog;
    ngd_status_t status;

    if (!gang)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the graphs of group \"%.64s\"",
                            ngd_group_name(group));
    status = ngd_program_open_gang(programs[gang->leader], gang, &prog, diag);
    if (status)
        return status;
    status = ngd_binding_create(prog, by_rank[gang->leader]->buffers, &binding, diag);
    ngd_program_unref(prog);
    if (status)
        return status;
    binding->ranks = ref_ranks(by_rank, group->n);
    if (!binding->ranks) {
        ngd_binding_unref(binding);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the graphs of group \"%.64s\"",
                            ngd_group_name(group));
    }
    *gang_p = binding;
    return NGD_OK;
}

ngd_status_t ngd_gang_create(struct ngd_binding *const *bindings, uint32_t n, bool replicated,
                             struct ngd_binding **gang_p, struct ngd_diag *diag)
{
    struct ngd_binding *by_rank[NGD_GROUP_MAX_RANKS] = {NULL};
    struct ngd_program *programs[NGD_GROUP_MAX_RANKS];
    const struct ngd_group *group;
    ngd_status_t status = sort_bindings(bindings, n, by_rank, diag);

    if (status)
        return status;
    group = bindings[0]->prog->group;
    for (uint32_t r = 0; r < group->n; r++)
        programs[r] = by_rank[r]->prog;
    status = ngd_gang_check(group, programs, replicated, diag);
    return status ? status : make_gang(group, by_rank, programs, replicated, gang_p, diag);
}

/* ---- asking ------------------------------------------------------------------------------------------- */

struct ngd_group *ngd_binding_group(const struct ngd_binding *binding)
{
    return binding->prog->group;
}

uint32_t ngd_binding_ranks(const struct ngd_binding *binding)
{
    return binding->ranks ? binding->prog->gang->n : 1;
}

const struct ngd_binding *ngd_binding_rank(const struct ngd_binding *binding, uint32_t rank)
{
    return binding->ranks ? binding->ranks[rank] : binding;
}

bool ngd_binding_is_replicated(const struct ngd_binding *binding)
{
    return !binding->ranks || binding->prog->gang->replicated;
}

uint32_t ngd_binding_n_outputs(const struct ngd_binding *binding)
{
    return binding->prog->n_outputs;
}

const struct ngd_graph *ngd_binding_output(const struct ngd_binding *binding, uint32_t *i)
{
    const struct ngd_gang *gang = binding->prog->gang;
    uint32_t r = 0;

    if (!gang)
        return binding->prog->graph;
    while (!gang->replicated && *i >= gang->output_at[r + 1])
        r++;
    *i -= gang->output_at[r];
    return binding->ranks[r]->prog->graph;
}

/* ---- executables -------------------------------------------------------------------------------------- */

/*
 * Makes a key of the rank's program with the leader's sizes. The rank's own buckets may have changed since the ranks
 * were joined.
 */
static ngd_status_t rank_key(const struct ngd_program *prog, const struct ngd_key *of, struct ngd_key *key,
                             struct ngd_diag *diag)
{
    struct ngd_bucket_set *sets = NGD_NEW_N(struct ngd_bucket_set, of->n_symbols + 1);
    ngd_status_t status = sets ? NGD_OK : NGD_ERR_NO_MEMORY;
    int64_t values[NGD_GRAPH_MAX_SYMBOLS];

    for (uint32_t i = 0; i < of->n_symbols && !status; i++) {
        const struct ngd_symbol *s = &prog->graph->symbols[i];

        sets[i].n = s->policy == NGD_SYMBOL_BUCKETS;
        sets[i].sizes[0] = of->symbols[i];
        values[i] = of->symbols[i] < s->max ? of->symbols[i] : s->max; /* the last bucket may lie above */
    }
    if (!status)
        status = ngd_key_make_sizes(prog->graph, &prog->key_digest, sets, values, of->n_symbols, key, diag);
    ngd_free(sets);
    return status;
}

static ngd_status_t make_rank(struct ngd_program *prog, const struct ngd_key *of, bool eager,
                              struct ngd_executable **x_p, struct ngd_diag *diag)
{
    struct ngd_key key;
    ngd_status_t status = rank_key(prog, of, &key, diag);

    return status ? status : ngd_program_make_rank(prog, &key, eager, x_p, diag);
}

ngd_status_t ngd_gang_make_ranks(struct ngd_executable *x, const struct ngd_key *key, bool eager, struct ngd_diag *diag)
{
    const struct ngd_gang *gang = x->prog->gang;
    ngd_status_t status = NGD_OK;

    x->ranks = NGD_NEW_N(struct ngd_executable *, gang->n);
    if (!x->ranks)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the executables of all ranks");
    for (uint32_t r = 0; r < gang->n && !status; r++) {
        if (r == gang->leader)
            continue;
        status = make_rank(gang->programs[r], key, eager, &x->ranks[r], diag);
        if (status)
            ngd_diag_prefix(diag, "rank %u, device %s: ", r, gang->programs[r]->queue->dev_name);
    }
    if (status)
        ngd_gang_drop_ranks(x);
    return status;
}

void ngd_gang_drop_ranks(struct ngd_executable *x)
{
    const struct ngd_gang *gang = x->prog->gang;

    for (uint32_t r = 0; x->ranks && r < gang->n; r++) {
        if (!x->ranks[r])
            continue;
        ngd_program_drop_instances(gang->programs[r], x->ranks[r]);
        ngd_executable_destroy(x->ranks[r]);
    }
    ngd_free(x->ranks);
    x->ranks = NULL;
}

/* ---- checks of a launch ------------------------------------------------------------------------------- */

struct ngd_executable *ngd_gang_executable(struct ngd_executable *x, uint32_t rank)
{
    return rank == x->prog->gang->leader ? x : x->ranks[rank];
}

/* Fills `launch` with a rank's part of the launch `of`. */
void ngd_gang_cut(const struct ngd_gang *gang, uint32_t rank, const struct ngd_launch *of, struct ngd_launch *launch)
{
    launch->symbols = of->symbols;
    launch->eager = of->eager;
    launch->tag = of->tag;
    launch->stop = of->stop;
    launch->stop_at = of->stop_at;
    launch->inputs = of->inputs;
    launch->hosts = of->hosts;
    launch->outputs = gang->replicated && rank > 0 ? gang->unwanted : of->outputs;
    if (gang->replicated)
        return;
    if (gang->input_at[rank])
        launch->inputs += gang->input_at[rank];
    if (gang->host_at[rank])
        launch->hosts += gang->host_at[rank];
    if (gang->output_at[rank])
        launch->outputs += gang->output_at[rank];
}

/*
 * Checks the launch against the plan. request.c has checked that its lists have the program's lengths. A plan may come
 * from a file.
 */
static ngd_status_t check_plan(const struct ngd_executable *x, const struct ngd_launch *launch, struct ngd_diag *diag)
{
    const struct ngd_graph *g = x->prog->graph;

    return ngd_launch_check(ngd_exec_plan(x->exec), launch, g->n_inputs, g->n_hosts, g->n_outputs, diag);
}

ngd_status_t ngd_executable_check(struct ngd_executable *x, const struct ngd_launch *launch, struct ngd_diag *diag)
{
    const struct ngd_gang *gang = x->prog->gang;
    ngd_status_t status = NGD_OK;

    if (!x->ranks)
        return check_plan(x, launch, diag);
    for (uint32_t r = 0; r < gang->n && !status; r++) {
        struct ngd_launch part = {0};

        ngd_gang_cut(gang, r, launch, &part);
        status = check_plan(ngd_gang_executable(x, r), &part, diag);
        if (status)
            ngd_diag_prefix(diag, "rank %u: ", r);
    }
    return status;
}

ngd_status_t ngd_program_check_types(const struct ngd_program *prog, const int64_t *symbols,
                                     const struct ngd_input_type *types, uint32_t n_types, struct ngd_diag *diag)
{
    const struct ngd_gang *gang = prog->gang;
    ngd_status_t status = NGD_OK;

    if (!gang || gang->replicated || n_types != prog->n_inputs)
        return ngd_guard_check_types(prog->graph, symbols, types, n_types, diag);
    for (uint32_t r = 0; r < gang->n && !status; r++) {
        const struct ngd_graph *g = r == gang->leader ? prog->graph : gang->programs[r]->graph;

        status = ngd_guard_check_types(g, symbols, types + gang->input_at[r], g->n_inputs, diag);
        if (status)
            ngd_diag_prefix(diag, "rank %u: ", r);
    }
    return status;
}
