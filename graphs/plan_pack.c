/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format. All numbers are little endian:
 *
 *     0  "npgplan2"
 *     8  u32 bytes of the graph (graphs/graph_pack.h); 0: the plan is of the source graph itself
 *    12  u32 tensors, 16 u32 calls, 20 u32 blocks of the plan that was stored
 *    24  u64 bytes of the pool, 32 u64 lower bound of them
 *    40  the graph, then a u64 for each block: its offset in the pool
 *
 * The numbers of tensors and calls show early that the planner has made another plan than the one of this layout.
 */
#include "graphs/plan_pack.h"
#include "base/le.h"
#include "base/mem.h"
#include "graphs/graph_pack.h"
#include "graphs/plan_int.h"
#include <inttypes.h>
#include <string.h>

#define HEAD_BYTES 40

static const char magic[8] = "npgplan2";

struct pack {
    const uint8_t *graph, *offsets;
    uint32_t n_graph, n_tensors, n_calls, n_blocks;
    uint64_t pool_bytes, live_peak_bytes;
};

/* ---- pack ---- */

void ngd_plan_pack(const struct ngd_plan *plan, const struct ngd_graph *source, struct ngd_strbuf *out)
{
    struct ngd_strbuf graph;

    ngd_strbuf_init(&graph);
    if (plan->graph != source && !ngd_digest_equal(&plan->graph->digest, &source->digest))
        ngd_graph_pack(plan->graph, &graph);
    ngd_strbuf_append_n(out, magic, sizeof(magic));
    ngd_le_put(out, graph.len, 4);
    ngd_le_put(out, plan->n_tensors, 4);
    ngd_le_put(out, plan->n_calls, 4);
    ngd_le_put(out, plan->layout.n_blocks, 4);
    ngd_le_put(out, plan->pool_bytes, 8);
    ngd_le_put(out, plan->live_peak_bytes, 8);
    ngd_strbuf_append_n(out, ngd_strbuf_str(&graph), graph.len);
    for (uint32_t i = 0; i < plan->layout.n_blocks; i++)
        ngd_le_put(out, plan->layout.offsets[i], 8);
    out->failed = out->failed || graph.failed;
    ngd_strbuf_fini(&graph);
}

/* ---- unpack ---- */

static ngd_status_t read_plan_head(const uint8_t *p, size_t n, struct pack *pack, struct ngd_diag *diag)
{
    uint64_t want;

    if (n < HEAD_BYTES)
        return ngd_diag_set(diag, NGD_ERR_FILE_TRUNCATED, "a stored plan has %d bytes at least; there are %zu",
                            HEAD_BYTES, n);
    if (memcmp(p, magic, sizeof(magic)) != 0)
        return ngd_diag_set(diag, NGD_ERR_FILE_UNSUPPORTED, "the bytes are not a stored plan of this version");
    *pack = (struct pack){
        .n_graph = (uint32_t)ngd_le_get(p + 8, 4),
        .n_tensors = (uint32_t)ngd_le_get(p + 12, 4),
        .n_calls = (uint32_t)ngd_le_get(p + 16, 4),
        .n_blocks = (uint32_t)ngd_le_get(p + 20, 4),
        .pool_bytes = ngd_le_get(p + 24, 8),
        .live_peak_bytes = ngd_le_get(p + 32, 8),
    };
    want = HEAD_BYTES + (uint64_t)pack->n_graph + 8 * (uint64_t)pack->n_blocks;
    if (n != want)
        return ngd_diag_set(diag, n < want ? NGD_ERR_FILE_TRUNCATED : NGD_ERR_FILE_CORRUPT,
                            "the stored plan says that it has %" PRIu64 " bytes; there are %zu", want, n);
    if (pack->live_peak_bytes > pack->pool_bytes)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                            "the stored plan's pool is smaller than the blocks that are live at the same time");
    pack->graph = p + HEAD_BYTES;
    pack->offsets = pack->graph + pack->n_graph;
    return NGD_OK;
}

ngd_status_t ngd_plan_unpack_graph(const void *data, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    struct pack pack;
    ngd_status_t status = read_plan_head(data, n, &pack, diag);

    if (!status && pack.n_graph)
        return ngd_graph_unpack(pack.graph, pack.n_graph, graph_p, diag);
    if (!status)
        *graph_p = NULL;
    return status;
}

/* ---- the interface ---- */

struct pair {
    const struct ngd_graph *a, *b; /* b: the graph that passes made of a; its exact symbols have become numbers */
    const int64_t *symbols;        /* the key's values */
};

/* Returns true if two dimensions are the same number at the key, and have the same rows in every replay. */
static bool equal_dim(const struct pair *p, ngd_dim_t a, ngd_dim_t b)
{
    int64_t va, vb, mult_a = 0, mult_b = 0;
    uint32_t sym_a = 0, sym_b = 0;

    if (ngd_expr_eval(p->a->exprs, a, p->symbols, &va) || ngd_expr_eval(p->b->exprs, b, p->symbols, &vb) || va != vb)
        return false;
    if (!ngd_expr_is_multiple(p->a->exprs, a, &sym_a, &mult_a) || p->a->symbols[sym_a].policy == NGD_SYMBOL_EXACT)
        return true;
    return ngd_expr_is_multiple(p->b->exprs, b, &sym_b, &mult_b) && sym_a == sym_b && mult_a == mult_b;
}

static bool equal_type(const struct pair *p, const struct ngd_type *a, const struct ngd_type *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (!equal_dim(p, a->dims[i], b->dims[i]))
            return false;
    return true;
}

static bool equal_symbol(const struct ngd_symbol *a, const struct ngd_symbol *b)
{
    return strcmp(a->name, b->name) == 0 && a->min == b->min && a->max == b->max && a->policy == b->policy &&
           a->batch == b->batch && a->n_buckets == b->n_buckets &&
           memcmp(a->buckets, b->buckets, a->n_buckets * sizeof(a->buckets[0])) == 0;
}

static bool same_values(const struct pair *p, const uint32_t *va, const uint32_t *vb, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(p->a->values[va[i]].label, p->b->values[vb[i]].label) != 0 ||
            !equal_type(p, &p->a->values[va[i]].type, &p->b->values[vb[i]].type))
            return false;
    return true;
}

/* Returns true if both graphs have the same inputs and outputs. Callers check and lay out requests by the source. */
static bool same_interface(const struct pair *p)
{
    const struct ngd_graph *a = p->a, *b = p->b;

    if (a->n_symbols != b->n_symbols || a->n_params != b->n_params || a->n_states != b->n_states ||
        a->n_inputs != b->n_inputs || a->n_hosts != b->n_hosts || a->n_outputs != b->n_outputs)
        return false;
    for (uint32_t i = 0; i < a->n_symbols; i++)
        if (!equal_symbol(&a->symbols[i], &b->symbols[i]))
            return false;
    for (uint32_t i = 0; i < a->n_outputs; i++)
        if (strcmp(a->outputs[i].name, b->outputs[i].name) != 0 ||
            !equal_type(p, &a->values[a->outputs[i].value].type, &b->values[b->outputs[i].value].type))
            return false;
    return same_values(p, a->params, b->params, a->n_params) && same_values(p, a->states, b->states, a->n_states) &&
           same_values(p, a->inputs, b->inputs, a->n_inputs) && same_values(p, a->hosts, b->hosts, a->n_hosts);
}

static ngd_status_t stored_graph(struct ngd_graph *source, const struct ngd_key *key, const struct pack *pack,
                                 struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    struct ngd_graph *graph = NULL;
    struct pair pair;
    ngd_status_t status;

    if (pack->n_graph == 0) {
        *graph_p = ngd_graph_ref(source);
        return NGD_OK;
    }
    status = ngd_graph_unpack(pack->graph, pack->n_graph, &graph, diag);
    if (status)
        return status;
    pair = (struct pair){.a = source, .b = graph, .symbols = key->symbols};
    if (!same_interface(&pair)) {
        ngd_graph_unref(graph);
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                            "the stored plan of graph %s has other inputs or outputs than the graph", source->name);
    }
    *graph_p = graph;
    return NGD_OK;
}

/* ---- the plan ---- */

static ngd_status_t replan(struct ngd_graph *source, const struct ngd_key *key, const struct ngd_graph_options *options,
                           const struct ngd_plan_target *target, const struct pack *pack, uint64_t *offsets,
                           struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct ngd_plan_layout layout = {.n_blocks = pack->n_blocks,
                                     .offsets = offsets,
                                     .pool_bytes = pack->pool_bytes,
                                     .live_peak_bytes = pack->live_peak_bytes};
    struct ngd_graph *graph = NULL;
    struct ngd_plan *plan = NULL;
    ngd_status_t status;

    for (uint32_t i = 0; i < pack->n_blocks; i++)
        offsets[i] = ngd_le_get(pack->offsets + 8 * (size_t)i, 8);
    status = stored_graph(source, key, pack, &graph, diag);
    if (status == NGD_OK)
        status = ngd_plan_restore(source, graph, key, options, target, &layout, &plan, diag);
    ngd_graph_unref(graph);
    if (status)
        return status;
    if (plan->n_tensors != pack->n_tensors || plan->n_calls != pack->n_calls) {
        ngd_plan_unref(plan);
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "the stored layout belongs to another plan of graph %s",
                            source->name);
    }
    *plan_p = plan;
    return NGD_OK;
}

ngd_status_t ngd_plan_unpack(struct ngd_graph *source, const struct ngd_key *key,
                             const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                             const void *data, size_t n, struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct pack pack;
    uint64_t *offsets;
    ngd_status_t status = read_plan_head(data, n, &pack, diag);

    if (status)
        return status;
    offsets = NGD_NEW_N(uint64_t, pack.n_blocks);
    if (!offsets)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the plan of graph %s", source->name);
    status = replan(source, key, options, target, &pack, offsets, plan_p, diag);
    ngd_free(offsets);
    return status;
}
