/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/guard.h"
#include "base/fault.h"
#include <inttypes.h>

/* ---- relations ---------------------------------------------------------------------------------------- */

/* Prints "mod(T, 8) is 3", but nothing for a constant. If the side is a single symbol, returns its bit, otherwise 0. */
static uint32_t say_side(const struct ngd_graph *graph, ngd_dim_t side, int64_t value, struct ngd_strbuf *sb)
{
    uint32_t symbol = 0;
    int64_t mult = 0;

    if (ngd_dim_is_const(side))
        return 0;
    if (sb->len)
        ngd_strbuf_append(sb, " and ");
    ngd_expr_print(graph->exprs, side, sb);
    ngd_strbuf_printf(sb, " is %" PRId64, value);
    return ngd_expr_is_multiple(graph->exprs, side, &symbol, &mult) && mult == 1 ? 1u << symbol : 0;
}

/* Makes the diagnosis. It lists the values of the symbols that are not themselves a side of the relation. */
static ngd_status_t relation_fails(const struct ngd_graph *graph, const struct ngd_relation *r, const int64_t *symbols,
                                   int64_t left, int64_t right, struct ngd_diag *diag)
{
    uint32_t uses = ngd_expr_symbols(graph->exprs, r->left) | ngd_expr_symbols(graph->exprs, r->right);
    const char *before = " with ";
    struct ngd_strbuf guard, why;

    ngd_strbuf_init(&guard);
    ngd_strbuf_init(&why);
    ngd_relation_print(graph->exprs, r, &guard);
    uses &= ~say_side(graph, r->left, left, &why);
    uses &= ~say_side(graph, r->right, right, &why);
    for (uint32_t i = 0; i < graph->n_symbols; i++) {
        if (!(uses >> i & 1))
            continue;
        ngd_strbuf_printf(&why, "%s%s = %" PRId64, before, graph->symbols[i].name, symbols[i]);
        before = ", ";
    }
    ngd_diag_set(diag, NGD_ERR_GUARD_FAILED, "guard %.300s does not hold: %.600s", ngd_strbuf_str(&guard),
                 ngd_strbuf_str(&why));
    ngd_strbuf_fini(&guard);
    ngd_strbuf_fini(&why);
    return NGD_ERR_GUARD_FAILED;
}

ngd_status_t ngd_guard_check_relations(const struct ngd_graph *graph, const int64_t *symbols, struct ngd_diag *diag)
{
    if (NGD_FAULT(RELATIONS_OFF))
        return NGD_OK;
    for (uint32_t i = 0; i < graph->n_relations; i++) {
        const struct ngd_relation *r = &graph->relations[i];
        int64_t left, right;
        ngd_status_t status = ngd_expr_eval(graph->exprs, r->left, symbols, &left);

        if (!status)
            status = ngd_expr_eval(graph->exprs, r->right, symbols, &right);
        if (status) /* cannot happen for values in range: the expressions were bounded for them */
            return ngd_diag_set(diag, status, "a guard of graph \"%.100s\" cannot be computed: %s", graph->name,
                                ngd_status_text(status));
        if (!ngd_relation_holds(r->op, left, right))
            return relation_fails(graph, r, symbols, left, right, diag);
    }
    return NGD_OK;
}

/* ---- types -------------------------------------------------------------------------------------------- */

static ngd_status_t dim_differs(const struct ngd_graph *graph, const struct ngd_value *v, uint32_t d, int64_t got,
                                int64_t want, struct ngd_diag *diag)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_expr_print(graph->exprs, v->type.dims[d], &sb);
    ngd_diag_set(diag, NGD_ERR_GUARD_FAILED,
                 "input \"%.200s\": dimension %" PRIu32 " is %" PRId64 " (guard == %s, which is %" PRId64 ")", v->label,
                 d, got, ngd_strbuf_str(&sb), want);
    ngd_strbuf_fini(&sb);
    return NGD_ERR_GUARD_FAILED;
}

static ngd_status_t check_value_type(const struct ngd_graph *graph, const struct ngd_value *v, const int64_t *symbols,
                                     const struct ngd_input_type *type, struct ngd_diag *diag)
{
    if (type->dtype != v->type.dtype)
        return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED, "input \"%.200s\": dtype is %s (guard == %s)", v->label,
                            ngd_dtype_name(type->dtype), ngd_dtype_name(v->type.dtype));
    if (type->rank != v->type.rank)
        return ngd_diag_set(diag, NGD_ERR_GUARD_FAILED, "input \"%.200s\": rank is %u (guard == %u)", v->label,
                            (unsigned)type->rank, (unsigned)v->type.rank);
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t want;
        ngd_status_t status = ngd_expr_eval(graph->exprs, v->type.dims[d], symbols, &want);

        if (status)
            return ngd_diag_set(diag, status, "input \"%.200s\": dimension %" PRIu32 " cannot be computed", v->label,
                                d);
        if (type->dims[d] != want)
            return dim_differs(graph, v, d, type->dims[d], want, diag);
    }
    return NGD_OK;
}

ngd_status_t ngd_guard_check_types(const struct ngd_graph *graph, const int64_t *symbols,
                                   const struct ngd_input_type *types, uint32_t n_types, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (n_types != graph->n_inputs)
        return ngd_diag_set(diag, NGD_ERR_INPUT_COUNT,
                            "types of %" PRIu32 " inputs were given, graph \"%.100s\" has %" PRIu32, n_types,
                            graph->name, graph->n_inputs);
    for (uint32_t i = 0; i < n_types && status == NGD_OK; i++)
        status = check_value_type(graph, &graph->values[graph->inputs[i]], symbols, &types[i], diag);
    return status;
}
