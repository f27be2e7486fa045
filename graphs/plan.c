/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and frees plans, and reads their calls' attributes.
 * plan_build.c, plan_views.c and plan_memory.c build them. */
#include "graphs/plan.h"
#include "base/mem.h"
#include "graphs/pass.h"
#include "graphs/plan_int.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define ARENA_BLOCK (64u << 10)

struct holder {
    struct ngd_plan plan;
    struct ngd_arena arena;
};

static ngd_status_t check_key(const struct ngd_graph *graph, const struct ngd_key *key, struct ngd_diag *diag)
{
    if (!graph->sealed)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "graph %s is not sealed", graph->name);
    if (key->n_symbols != graph->n_symbols || !ngd_digest_equal(&key->graph, &graph->digest))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the key belongs to another graph than %s", graph->name);
    for (uint32_t i = 0; i < graph->n_symbols; i++) {
        const struct ngd_symbol *s = &graph->symbols[i];
        int64_t max = s->policy == NGD_SYMBOL_BUCKETS && s->n_buckets ? s->buckets[s->n_buckets - 1] : s->max;

        if (key->symbols[i] < s->min || key->symbols[i] > (max > s->max ? max : s->max))
            return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED, "symbol %s = %" PRId64 " is outside %" PRId64 "..%" PRId64,
                                s->name, key->symbols[i], s->min, max);
    }
    return NGD_OK;
}

ngd_status_t ngd_plan_create(struct ngd_graph *graph, const struct ngd_key *key,
                             const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                             struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    return ngd_plan_create_reported(graph, key, options, target, NULL, NULL, plan_p, diag);
}

/* Creates a plan with its source and key, but without a graph. */
static ngd_status_t holder_new(struct ngd_graph *source, const struct ngd_key *key, struct holder **h_p,
                               struct ngd_diag *diag)
{
    struct holder *h;
    ngd_status_t status = check_key(source, key, diag);

    if (status)
        return status;
    h = NGD_NEW(struct holder);
    if (!h)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the plan of graph %s", source->name);
    ngd_arena_init(&h->arena, ARENA_BLOCK);
    h->plan.arena = &h->arena;
    h->plan.refs = 1;
    h->plan.source = ngd_graph_ref(source);
    h->plan.key = *key;
    memcpy(h->plan.symbols, key->symbols, sizeof(h->plan.symbols));
    *h_p = h;
    return NGD_OK;
}

/* Ends the creation of a plan: returns it, or frees it on failure. Takes h. */
static ngd_status_t conclude_plan(struct holder *h, ngd_status_t status, struct ngd_plan **plan_p)
{
    if (status)
        ngd_plan_unref(&h->plan);
    else
        *plan_p = &h->plan;
    return status;
}

ngd_status_t ngd_plan_create_reported(struct ngd_graph *graph, const struct ngd_key *key,
                                      const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                                      struct ngd_pattern_set *patterns, struct ngd_pass_report *report,
                                      struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct holder *h;
    ngd_status_t status = holder_new(graph, key, &h, diag);

    if (status)
        return status;
    if (options)
        status = ngd_passes_run(graph, key->symbols, options, target, patterns, report, &h->plan.graph, diag);
    else
        h->plan.graph = ngd_graph_ref(graph);
    if (!status)
        status = ngd_plan_build(&h->plan, options, target, NULL, diag);
    return conclude_plan(h, status, plan_p);
}

ngd_status_t ngd_plan_create_plain(struct ngd_graph *graph, const struct ngd_key *key,
                                   const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                                   struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct holder *h;
    ngd_status_t status = holder_new(graph, key, &h, diag);

    if (status)
        return status;
    h->plan.graph = ngd_graph_ref(graph);
    h->plan.matmul_precision = (uint8_t)options->matmul_precision;
    status = ngd_plan_build(&h->plan, NULL, target, NULL, diag);
    return conclude_plan(h, status, plan_p);
}

ngd_status_t ngd_plan_restore(struct ngd_graph *source, struct ngd_graph *graph, const struct ngd_key *key,
                              const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                              const struct ngd_plan_layout *layout, struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct holder *h;
    ngd_status_t status = holder_new(source, key, &h, diag);

    if (status)
        return status;
    h->plan.graph = ngd_graph_ref(graph);
    status = ngd_plan_build(&h->plan, options, target, layout, diag);
    return conclude_plan(h, status, plan_p);
}

struct ngd_plan *ngd_plan_ref(struct ngd_plan *plan)
{
    __atomic_fetch_add(&plan->refs, 1, __ATOMIC_RELAXED);
    return plan;
}

struct ngd_plan *ngd_plan_unref(struct ngd_plan *plan)
{
    if (plan && __atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        ngd_graph_unref(plan->graph);
        ngd_graph_unref(plan->source);
        ngd_free(plan->tensors);
        ngd_free(plan->calls);
        ngd_arena_fini(plan->arena);
        ngd_free(plan); /* plan is the first member of its holder */
    }
    return NULL;
}

uint64_t ngd_plan_host_bytes(const struct ngd_plan *plan)
{
    return sizeof(struct holder) + ngd_arena_bytes(plan->arena) + plan->n_tensors * sizeof(plan->tensors[0]) +
           plan->n_calls * sizeof(plan->calls[0]) +
           (plan->graph != plan->source ? ngd_graph_host_bytes(plan->graph) : 0);
}

/* ---- attributes of a call ---- */

static const struct ngd_attr_value *call_attr(const struct ngd_plan_call *call, const char *name)
{
    int i = ngd_op_attr_index(call->op, name, strlen(name));

    assert(i >= 0);
    return &call->attrs[i];
}

int64_t ngd_call_int(const struct ngd_plan_call *call, const char *name)
{
    return call_attr(call, name)->i;
}

double ngd_call_float(const struct ngd_plan_call *call, const char *name)
{
    return call_attr(call, name)->f;
}

struct ngd_scalar ngd_call_scalar(const struct ngd_plan_call *call, const char *name)
{
    return ngd_attr_scalar(call_attr(call, name));
}

const struct ngd_attr_value *ngd_call_ints(const struct ngd_plan_call *call, const char *name)
{
    return call_attr(call, name);
}

const char *ngd_call_str(const struct ngd_plan_call *call, const char *name)
{
    return call_attr(call, name)->s;
}
