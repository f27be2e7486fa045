/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of mixtures of experts: experts of a row, rows by expert, products with weights of experts, their sum. */
#include "graphs/graph_int.h"
#include "graphs/op_int.h"

#define EXPERTS_MAX 65536

static ngd_status_t times(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *p,
                          struct ngd_diag *diag)
{
    const ngd_status_t status = ngd_expr_make(graph->exprs, NGD_EXPR_MUL, a, b, p);

    return status ? ngd_op_expr_fail(graph, node, diag, status, "the number of expanded rows") : NGD_OK;
}

ngd_status_t ngd_shape_moe_gating(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    int64_t k;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status && x->rank != 3)
        status = ngd_op_rank_is(graph, node, 0, "x", 2, "[T,E] or [B,T,E]", diag);
    if (!status)
        status = ngd_op_const(graph, node, "k", 1, EXPERTS_MAX, &k, diag);
    if (status)
        return status;
    if (!ngd_expr_always_le(graph->exprs, k, x->dims[x->rank - 1]))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "attribute k is %lld, but the last dimension of x %%%s may be smaller", (long long)k,
                           ngd_op_in_name(graph, node, 0));
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = k;
    status = ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
    return status ? status : ngd_op_result(graph, node, 1, NGD_I32, x->rank, dims, diag);
}

bool ngd_rows_moe_gating(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                         const char **why_p)
{
    return ngd_op_rows_axis(graph, node, symbol, ngd_node_in(graph, node, 0)->rank - 1, why_p);
}

ngd_status_t ngd_shape_moe_init_routing(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *experts = ngd_node_in(graph, node, 1);
    ngd_dim_t pairs[2] = {0, 0};
    int64_t n;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "x", 2, "[T,H]", diag);
    if (!status)
        status = ngd_op_takes(graph, node, 1, "expert_idx", NGD_TAKES_INDEX, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "expert_idx", 2, "[T,K]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "expert_idx", 2, (const ngd_dim_t[]){x->dims[0], experts->dims[1]},
                                 "[T,K]", diag);
    if (!status)
        status = ngd_op_const(graph, node, "expert_num", 1, EXPERTS_MAX, &n, diag);
    if (!status && (!ngd_dim_is_const(experts->dims[1]) || experts->dims[1] < 1))
        status =
            ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                        "dimension 1 of expert_idx %%%s must be a constant, 1 or more", ngd_op_in_name(graph, node, 1));
    if (!status)
        status = times(graph, node, x->dims[0], experts->dims[1], &pairs[0], diag);
    pairs[1] = x->dims[1];
    if (!status)
        status = ngd_op_result(graph, node, 0, x->dtype, 2, pairs, diag);
    if (!status)
        status = ngd_op_result(graph, node, 1, NGD_I32, 1, pairs, diag);
    return status ? status : ngd_op_result(graph, node, 2, NGD_I64, 1, (const ngd_dim_t[]){n}, diag);
}

/* Padding has no expert: the counts are of the actual rows, which fill the first of the expanded ones. */
bool ngd_rows_moe_init_routing(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                               const char **why_p)
{
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

static ngd_status_t check_expert_weight(struct ngd_graph *graph, struct ngd_node *node, uint32_t i,
                                        struct ngd_diag *diag)
{
    const struct ngd_type *first = ngd_node_in(graph, node, 2);
    ngd_status_t status = ngd_op_dtype_is(graph, node, i, "weight", first->dtype, diag);

    return status ? status
                  : ngd_op_shape_is(graph, node, i, "weight", 2, first->dims, "of the first weight's shape", diag);
}

ngd_status_t ngd_shape_grouped_matmul(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *w = ngd_node_in(graph, node, 2);
    const bool transposed = ngd_op_bool(node, "transpose_weight");
    char tx[NGD_OP_TEXT], tw[NGD_OP_TEXT];
    int64_t type;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "x", 2, "[M,K]", diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 2, "weight", 2, transposed ? "[N,K]" : "[K,N]", diag);
    if (!status)
        status = ngd_op_same_or_narrower(graph, node, 2, "weight", diag);
    for (uint32_t i = 3; i < node->n_in && !status; i++)
        status = check_expert_weight(graph, node, i, diag);
    if (!status)
        status = ngd_op_const(graph, node, "group_list_type", 0, 1, &type, diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 1, "group_list", NGD_I64, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "group_list", 1, (const ngd_dim_t[]){node->n_in - 2},
                                 "of one number for each weight", diag);
    if (status)
        return status;
    if (w->dims[transposed ? 1 : 0] != x->dims[1])
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "x %%%s is %s and weight %%%s is %s: it must be %s with K, x's dimension 1",
                           ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, x, tx),
                           ngd_op_in_name(graph, node, 2), ngd_op_type_text(graph, w, tw),
                           transposed ? "[N,K]" : "[K,N]");
    return ngd_op_result(graph, node, 0, x->dtype, 2, (const ngd_dim_t[]){x->dims[0], w->dims[transposed ? 0 : 1]},
                         diag);
}

bool ngd_rows_grouped_matmul(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                             const char **why_p)
{
    for (uint32_t i = 1; i < node->n_in; i++) {
        if (ngd_op_in_carries(graph, node, i, symbol)) {
            *why_p = "groups and weights may not have rows of it";
            return false;
        }
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

ngd_status_t ngd_shape_moe_finalize_routing(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *rows = ngd_node_in(graph, node, 0), *scales = ngd_node_in(graph, node, 1);
    ngd_dim_t pairs;
    int64_t mode;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "expanded_permuted_rows", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, "expanded_permuted_rows", 2, "[T*K,H]", diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "scales", 2, "[T,K]", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 1, "scales", NGD_F32, diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 2, "expanded_src_to_dst_row", NGD_I32, diag);
    if (!status)
        status = ngd_op_const(graph, node, "drop_pad_mode", 2, 2, &mode, diag);
    if (!status)
        status = times(graph, node, scales->dims[0], scales->dims[1], &pairs, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 2, "expanded_src_to_dst_row", 1, &pairs, "[T*K]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 0, "expanded_permuted_rows", 2, (const ngd_dim_t[]){pairs, rows->dims[1]},
                                 "[T*K,H]", diag);
    return status ? status
                  : ngd_op_result(graph, node, 0, rows->dtype, 2, (const ngd_dim_t[]){scales->dims[0], rows->dims[1]},
                                  diag);
}

bool ngd_rows_moe_finalize_routing(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                   const char **why_p)
{
    if (ngd_op_in_carries(graph, node, 0, symbol) && !ngd_op_in_carries(graph, node, 1, symbol)) {
        *why_p = "its rows are not dimension 0 of scales";
        return false;
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}
