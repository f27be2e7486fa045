/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses sizes at which a graph's relations hold.
 *
 * The search halves boxes of sizes at the first symbol with more than one size, and takes the upper half first. The
 * bounds of both sides over a box show whether a relation holds in all of it, in none of it, or in a part. So the first
 * box in which all relations hold has the largest sizes at its upper end: the largest for the first symbol, then for
 * the next.
 */
#include "graphs/guard.h"
#include <inttypes.h>
#include <string.h>

/* Limit of visits of expressions, which take about a tenth of a second. */
#define EFFORT_MAX (1u << 21)

struct search {
    const struct ngd_graph *graph;
    struct ngd_range box[NGD_GRAPH_MAX_SYMBOLS];
    uint32_t effort;
};

static ngd_relation_truth_t truth_in_box(bool always, bool never)
{
    return always ? NGD_RELATION_ALWAYS : never ? NGD_RELATION_NEVER : NGD_RELATION_SOMETIMES;
}

static ngd_relation_truth_t decide_ranges(ngd_relation_op_t op, struct ngd_range a, struct ngd_range b)
{
    bool apart = a.max < b.min || b.max < a.min, one = a.min == a.max && b.min == b.max && a.min == b.min;

    switch (op) {
    case NGD_RELATION_EQ:
        return truth_in_box(one, apart);
    case NGD_RELATION_NE:
        return truth_in_box(apart, one);
    case NGD_RELATION_LT:
        return truth_in_box(a.max < b.min, a.min >= b.max);
    case NGD_RELATION_LE:
        return truth_in_box(a.max <= b.min, a.min > b.max);
    case NGD_RELATION_GT:
        return truth_in_box(a.min > b.max, a.max <= b.min);
    case NGD_RELATION_GE:
        return truth_in_box(a.min >= b.max, a.max < b.min);
    case NGD_RELATION_MAX:
        break;
    }
    return NGD_RELATION_SOMETIMES;
}

/* Decides all relations together in the box; one that never holds decides them. */
static ngd_relation_truth_t decide_box(struct search *s)
{
    const struct ngd_expr_table *exprs = s->graph->exprs;
    ngd_relation_truth_t all = NGD_RELATION_ALWAYS;

    for (uint32_t i = 0; i < s->graph->n_relations; i++) {
        const struct ngd_relation *r = &s->graph->relations[i];

        s->effort += 1 + ngd_expr_cost(exprs, r->left) + ngd_expr_cost(exprs, r->right);
        switch (decide_ranges(r->op, ngd_expr_range(exprs, r->left, s->box), ngd_expr_range(exprs, r->right, s->box))) {
        case NGD_RELATION_NEVER:
            return NGD_RELATION_NEVER;
        case NGD_RELATION_SOMETIMES:
            all = NGD_RELATION_SOMETIMES;
            break;
        case NGD_RELATION_ALWAYS:
            break;
        }
    }
    return all;
}

/* Returns true if it finds sizes; they are then the upper end of the box. Recurses as often as ranges can be halved. */
static bool search_box(struct search *s)
{
    ngd_relation_truth_t all = s->effort < EFFORT_MAX ? decide_box(s) : NGD_RELATION_NEVER;
    uint32_t i = 0;
    int64_t min, max;

    if (all != NGD_RELATION_SOMETIMES)
        return all == NGD_RELATION_ALWAYS;
    while (i < s->graph->n_symbols && s->box[i].min == s->box[i].max)
        i++;
    if (i == s->graph->n_symbols)
        return false; /* values are outside their ranges, so that a side cannot be computed */
    min = s->box[i].min;
    max = s->box[i].max;
    s->box[i].min = min + (max - min) / 2 + 1;
    if (search_box(s))
        return true;
    s->box[i] = (struct ngd_range){min, min + (max - min) / 2};
    if (search_box(s))
        return true;
    s->box[i] = (struct ngd_range){min, max};
    return false;
}

static ngd_status_t none_found(const struct search *s, const int64_t *given, struct ngd_diag *diag)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (uint32_t i = 0; i < s->graph->n_symbols; i++)
        if (given[i] != NGD_SIZE_ANY)
            ngd_strbuf_printf(&sb, "%s%s = %" PRId64, sb.len ? ", " : " with ", s->graph->symbols[i].name, given[i]);
    if (s->effort < EFFORT_MAX)
        ngd_diag_set(diag, NGD_ERR_GUARD_FAILED,
                     "there are no sizes within the ranges of graph \"%.100s\" at which all of its guards hold%.300s",
                     s->graph->name, ngd_strbuf_str(&sb));
    else
        ngd_diag_set(diag, NGD_ERR_GUARD_FAILED,
                     "no sizes at which all guards of graph \"%.100s\" hold%.300s were found in a short search: give "
                     "the sizes of its symbols",
                     s->graph->name, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return NGD_ERR_GUARD_FAILED;
}

/* Returns false if a size is outside its range. Then there is no search, because ngd_key_make refuses the sizes. */
static bool in_ranges(const struct ngd_graph *graph, const int64_t *given)
{
    for (uint32_t i = 0; i < graph->n_symbols; i++)
        if (given[i] != NGD_SIZE_ANY && (given[i] < graph->symbols[i].min || given[i] > graph->symbols[i].max))
            return false;
    return true;
}

ngd_status_t ngd_guard_choose_sizes(const struct ngd_graph *graph, const int64_t *given, int64_t *sizes_p,
                                    struct ngd_diag *diag)
{
    struct search s = {.graph = graph};
    uint32_t used = 0;

    for (uint32_t i = 0; i < graph->n_relations; i++)
        used |= ngd_expr_symbols(graph->exprs, graph->relations[i].left) |
                ngd_expr_symbols(graph->exprs, graph->relations[i].right);
    for (uint32_t i = 0; i < graph->n_symbols; i++) {
        const struct ngd_symbol *sym = &graph->symbols[i];

        s.box[i] = given[i] != NGD_SIZE_ANY ? (struct ngd_range){given[i], given[i]}
                   : used >> i & 1          ? (struct ngd_range){sym->min, sym->max}
                                            : (struct ngd_range){sym->max, sym->max};
    }
    if (in_ranges(graph, given) && !search_box(&s))
        return none_found(&s, given, diag);
    for (uint32_t i = 0; i < graph->n_symbols; i++)
        sizes_p[i] = s.box[i].max;
    return NGD_OK;
}
