/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The relations of a graph: guards that compare expressions over its symbols.
 *
 * They are kept in structural order, each once, so that their order in a text and repetitions do not change the digest.
 * A relation that the symbols' ranges decide is decided here and not at each replay. The ranges are those of requested
 * sizes. They are in a separate expression table, because the graph's own table has ranges up to the last bucket, at
 * which replays may run.
 */
#include "graphs/graph_int.h"
#include <inttypes.h>
#include <string.h>

/* Prints "T in 2..64, B in 1..4". */
static void print_ranges(const struct ngd_graph *graph, uint32_t symbols, struct ngd_strbuf *sb)
{
    for (uint32_t i = 0; i < graph->n_symbols; i++)
        if (symbols >> i & 1)
            ngd_strbuf_printf(sb, "%s%s in %" PRId64 "..%" PRId64, sb->len ? ", " : "", graph->symbols[i].name,
                              graph->symbols[i].min, graph->symbols[i].max);
}

static uint32_t symbols_of(const struct ngd_graph *graph, const struct ngd_relation *r)
{
    return ngd_expr_symbols(graph->exprs, r->left) | ngd_expr_symbols(graph->exprs, r->right);
}

static ngd_status_t refuse_relation(const struct ngd_graph *graph, const struct ngd_relation *r, ngd_status_t status,
                                    const char *what, struct ngd_diag *diag)
{
    struct ngd_strbuf guard, ranges;

    ngd_strbuf_init(&guard);
    ngd_strbuf_init(&ranges);
    ngd_relation_print(graph->exprs, r, &guard);
    print_ranges(graph, symbols_of(graph, r), &ranges);
    ngd_diag_set(diag, status, "guard %.300s%s%.300s %s", ngd_strbuf_str(&guard), ranges.len ? ", with " : "",
                 ngd_strbuf_str(&ranges), what);
    ngd_strbuf_fini(&guard);
    ngd_strbuf_fini(&ranges);
    return status;
}

static ngd_status_t declare_symbols(const struct ngd_graph *graph, struct ngd_expr_table *table, ngd_dim_t *dims)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < graph->n_symbols && !status; i++)
        status =
            ngd_expr_declare(table, graph->symbols[i].name, graph->symbols[i].min, graph->symbols[i].max, &dims[i]);
    return status;
}

/* Decides the relation by the ranges. Fails if its sides cannot be computed. */
static ngd_status_t decide_relation(const struct ngd_graph *graph, const struct ngd_relation *r,
                                    ngd_relation_truth_t *truth_p)
{
    struct ngd_expr_table *table = NULL;
    ngd_dim_t dims[NGD_GRAPH_MAX_SYMBOLS];
    struct ngd_relation asked = *r;
    ngd_status_t status = ngd_expr_table_create(&table);

    if (!status)
        status = declare_symbols(graph, table, dims);
    if (!status)
        status = ngd_expr_translate(graph->exprs, r->left, table, dims, &asked.left);
    if (!status)
        status = ngd_expr_translate(graph->exprs, r->right, table, dims, &asked.right);
    *truth_p = status ? NGD_RELATION_SOMETIMES : ngd_relation_decide(table, &asked);
    ngd_expr_table_destroy(table);
    return status == NGD_ERR_NO_MEMORY ? status : NGD_OK;
}

static uint32_t relation_cost(const struct ngd_graph *graph, const struct ngd_relation *r)
{
    return ngd_expr_cost(graph->exprs, r->left) + ngd_expr_cost(graph->exprs, r->right);
}

static ngd_status_t check_relation_limits(const struct ngd_graph *graph, const struct ngd_relation *r,
                                          struct ngd_diag *diag)
{
    uint32_t cost = relation_cost(graph, r);

    if (graph->n_relations == NGD_GRAPH_MAX_RELATIONS)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the graph has more than %d guards",
                            NGD_GRAPH_MAX_RELATIONS);
    for (uint32_t i = 0; i < graph->n_relations; i++)
        cost += relation_cost(graph, &graph->relations[i]);
    if (cost > NGD_GRAPH_MAX_CHECKS)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE,
                            "the guards have more than %d operands together: each replay checks them all",
                            NGD_GRAPH_MAX_CHECKS);
    return NGD_OK;
}

/* Inserts a relation at its place in the order, unless the graph has it already. */
static ngd_status_t insert_relation(struct ngd_graph *graph, const struct ngd_relation *r, struct ngd_diag *diag)
{
    uint32_t at = 0;
    int c = -1;
    ngd_status_t status;

    while (at < graph->n_relations && (c = ngd_relation_compare(graph->exprs, &graph->relations[at], r)) < 0)
        at++;
    if (at < graph->n_relations && c == 0)
        return NGD_OK;
    status = check_relation_limits(graph, r, diag);
    if (status)
        return status;
    memmove(&graph->relations[at + 1], &graph->relations[at], (graph->n_relations - at) * sizeof(graph->relations[0]));
    graph->relations[at] = *r;
    graph->n_relations++;
    return NGD_OK;
}

ngd_status_t ngd_graph_add_relation(struct ngd_graph *graph, ngd_dim_t left, ngd_relation_op_t op, ngd_dim_t right,
                                    struct ngd_diag *diag)
{
    struct ngd_relation r = {.left = left, .right = right, .op = op};
    ngd_relation_truth_t truth;
    int64_t min, max;
    ngd_status_t status;

    if (graph->sealed || op >= NGD_RELATION_MAX || ngd_expr_bounds(graph->exprs, left, &min, &max) ||
        ngd_expr_bounds(graph->exprs, right, &min, &max))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "a guard compares two dimensions of a graph that is not sealed");
    ngd_relation_canonicalise(graph->exprs, &r);
    status = decide_relation(graph, &r, &truth);
    if (status)
        return ngd_diag_set(diag, status, "out of host memory while building the graph");
    if (truth == NGD_RELATION_NEVER)
        return refuse_relation(graph, &r, NGD_ERR_GRAPH_SYMBOL, "never holds, so that no replay could run: correct it",
                               diag);
    return truth == NGD_RELATION_ALWAYS ? NGD_OK : insert_relation(graph, &r, diag);
}
