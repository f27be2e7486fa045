/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/guard.h"
#include <inttypes.h>

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

static ngd_status_t check_type(const struct ngd_graph *graph, const struct ngd_value *v, const int64_t *symbols,
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
        status = check_type(graph, &graph->values[graph->inputs[i]], symbols, &types[i], diag);
    return status;
}
