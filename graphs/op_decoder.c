/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shape rules of the fused operators of a decoder layer (`ngd.`): linears behind a norm, with several weights, with a
 * residual or a gate after them, and the operators between the projections and attention. Each has the types of the
 * operators that it combines.
 */
#include "graphs/op_int.h"
#include <string.h>

/* Checks that operand i is a weight [N,K] for x[...,K], and gives N. */
static ngd_status_t check_weight(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, const char *role,
                                 ngd_dim_t *n_p, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *w = ngd_node_in(graph, node, i);
    ngd_status_t status = ngd_op_same_or_narrower(graph, node, i, role, diag);
    char text[NGD_OP_TEXT], dim[NGD_OP_TEXT];

    if (status)
        return status;
    if (w->rank != 2 || w->dims[1] != x->dims[x->rank - 1])
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "%s %%%s is %s, but %%%s has %s columns: it must be [N,%s]", role,
                           ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, w, text),
                           ngd_op_in_name(graph, node, 0), ngd_op_dim_text(graph, x->dims[x->rank - 1], dim), dim);
    *n_p = w->dims[0];
    return NGD_OK;
}

/* Checks that operand i, if given, is a vector of n elements. */
static ngd_status_t check_vector(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, const char *role,
                                 ngd_dim_t n, const char *form, struct ngd_diag *diag)
{
    ngd_status_t status;

    if (!ngd_node_has(node, i))
        return NGD_OK;
    status = ngd_op_same_or_narrower(graph, node, i, role, diag);
    return status ? status : ngd_op_shape_is(graph, node, i, role, 1, &n, form, diag);
}

/* Checks that x is [...,K] of floats, and that operand `gamma` (0: none) is [K]. */
static ngd_status_t check_x(struct ngd_graph *graph, struct ngd_node *node, uint32_t gamma, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status && x->rank == 0)
        status = ngd_op_rank_is(graph, node, 0, "x", 1, "[...,K]", diag);
    if (!status && gamma)
        status = check_vector(graph, node, gamma, "gamma", x->dims[x->rank - 1], "[K]", diag);
    return status;
}

/* Sets the type of result i to that of x with n columns. */
static ngd_status_t set_columns(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_dim_t n,
                                struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];

    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = n;
    return ngd_op_result(graph, node, i, x->dtype, x->rank, dims, diag);
}

#define MAX_LINEARS 8

/* Checks the weights from operand `first` on, one for each element of `sizes`, and the same
 * number of biases or none. */
static ngd_status_t linears(struct ngd_graph *graph, struct ngd_node *node, uint32_t first, struct ngd_diag *diag)
{
    const struct ngd_attr_value *sizes = ngd_op_attr(node, "sizes");
    ngd_status_t status;
    char text[NGD_OP_TEXT];

    if (sizes->n == 0 || sizes->n > MAX_LINEARS)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute sizes has %u elements, but must have 1 to %d", sizes->n, MAX_LINEARS);
    if (node->n_in != first + sizes->n && node->n_in != first + 2 * sizes->n)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY,
                           "it has %u operands, but with %u sizes it takes %u, or with biases %u", node->n_in, sizes->n,
                           first + sizes->n, first + 2 * sizes->n);
    for (uint32_t i = 0; i < sizes->n; i++) {
        ngd_dim_t n = 0;

        status = check_weight(graph, node, first + i, "weight", &n, diag);
        if (!status && n != sizes->list[i])
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                               "weight %%%s is %s, which differs from element %u of sizes",
                               ngd_op_in_name(graph, node, first + i),
                               ngd_op_type_text(graph, ngd_node_in(graph, node, first + i), text), i);
        if (!status)
            status = check_vector(graph, node, first + sizes->n + i, "bias", n, "[N]", diag);
        if (!status)
            status = set_columns(graph, node, i, n, diag);
        if (status)
            return status;
    }
    return NGD_OK;
}

ngd_status_t ngd_shape_multi_linear(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = check_x(graph, node, 0, diag);

    return status ? status : linears(graph, node, 1, diag);
}

ngd_status_t ngd_shape_rms_norm_linear(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = check_x(graph, node, 1, diag);

    return status ? status : linears(graph, node, 2, diag);
}

ngd_status_t ngd_shape_linear_add(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK], n = 0;
    ngd_status_t status = check_x(graph, node, 0, diag);

    if (!status)
        status = check_weight(graph, node, 1, "weight", &n, diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 2, "residual", x->dtype, diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = n;
    status = ngd_op_shape_is(graph, node, 2, "residual", x->rank, dims, "of the result's shape", diag);
    if (!status)
        status = check_vector(graph, node, 3, "bias", n, "[N]", diag);
    return status ? status : set_columns(graph, node, 0, n, diag);
}

/* Checks gate and up, which begin at operand `first`, and their biases. */
static ngd_status_t gate_up(struct ngd_graph *graph, struct ngd_node *node, uint32_t first, struct ngd_diag *diag)
{
    ngd_dim_t n = 0, up = 0;
    char tg[NGD_OP_TEXT], tu[NGD_OP_TEXT];
    ngd_status_t status = check_weight(graph, node, first, "gate", &n, diag);

    if (!status)
        status = check_weight(graph, node, first + 1, "up", &up, diag);
    if (!status && n != up)
        status = ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_SHAPE,
            "gate %%%s is %s and up %%%s is %s: they must have the same number of rows",
            ngd_op_in_name(graph, node, first), ngd_op_type_text(graph, ngd_node_in(graph, node, first), tg),
            ngd_op_in_name(graph, node, first + 1), ngd_op_type_text(graph, ngd_node_in(graph, node, first + 1), tu));
    if (!status)
        status = check_vector(graph, node, first + 2, "bias of gate", n, "[N]", diag);
    if (!status)
        status = check_vector(graph, node, first + 3, "bias of up", n, "[N]", diag);
    return status ? status : set_columns(graph, node, 0, n, diag);
}

ngd_status_t ngd_shape_linear_swiglu(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = check_x(graph, node, 0, diag);

    return status ? status : gate_up(graph, node, 1, diag);
}

ngd_status_t ngd_shape_rms_norm_linear_swiglu(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = check_x(graph, node, 1, diag);

    return status ? status : gate_up(graph, node, 2, diag);
}

/* Only x may have rows of the symbol, and operand `also`, the residual of linear_add, which has as many rows. */
static bool rows_of_x(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, uint32_t also,
                      const char **why_p)
{
    for (uint32_t i = 1; i < node->n_in; i++) {
        if (i != also && ngd_node_has(node, i) && ngd_op_in_carries(graph, node, i, symbol)) {
            *why_p = "a weight has rows of it";
            return false;
        }
    }
    if (ngd_op_in_carries(graph, node, 0, symbol) && ngd_node_in(graph, node, 0)->rank < 2) {
        *why_p = "x has no rows, and the symbol sizes its columns";
        return false;
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

bool ngd_rows_multi_linear(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                           const char **why_p)
{
    return rows_of_x(graph, node, symbol, 0, why_p);
}
bool ngd_rows_rms_norm_linear(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                              const char **why_p)
{
    return rows_of_x(graph, node, symbol, 0, why_p);
}
bool ngd_rows_linear_add(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                         const char **why_p)
{
    return rows_of_x(graph, node, symbol, 2, why_p);
}
bool ngd_rows_linear_swiglu(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                            const char **why_p)
{
    return rows_of_x(graph, node, symbol, 0, why_p);
}
bool ngd_rows_rms_norm_linear_swiglu(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                     const char **why_p)
{
    return rows_of_x(graph, node, symbol, 0, why_p);
}

/* ---- between the projections and attention ------------------------------------------------------------ */

/* Checks that k, v and slots have q's number of tokens, and that the caches have k's heads. */
static ngd_status_t check_kv(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *q = ngd_node_in(graph, node, 0), *k = ngd_node_in(graph, node, 1);
    ngd_dim_t key[3] = {q->dims[0], 0, q->dims[2]};
    ngd_status_t status = ngd_op_rank_is(graph, node, 1, "k", 3, "[T,KH,D]", diag);

    if (status)
        return status;
    key[1] = k->dims[1];
    status = ngd_op_dtype_is(graph, node, 1, "k", q->dtype, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "k", 3, key, "[T,KH,D]", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 2, "v", q->dtype, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 2, "v", 3, key, "[T,KH,D]", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 5, "slot_mapping", NGD_I32, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 5, "slot_mapping", 1, q->dims, "[T]", diag);
    return status ? status : ngd_op_check_caches(graph, node, 6, k->dims[1], k->dims[2], 10, diag);
}

ngd_status_t ngd_shape_qk_norm_rope_scatter(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *q = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_op_check_rotary(graph, node, "q", 3, diag);

    if (!status)
        status = check_kv(graph, node, diag);
    if (!status && ngd_node_has(node, 8) != ngd_node_has(node, 9))
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "q_gamma and k_gamma: give both or none");
    if (!status)
        status = check_vector(graph, node, 8, "q_gamma", q->dims[2], "[D]", diag);
    if (!status)
        status = check_vector(graph, node, 9, "k_gamma", q->dims[2], "[D]", diag);
    return status ? status : ngd_op_result(graph, node, 0, q->dtype, 3, q->dims, diag);
}

bool ngd_rows_qk_norm_rope_scatter(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                   const char **why_p)
{
    for (uint32_t i = 6; i < node->n_in; i++) {
        if (ngd_node_has(node, i) && ngd_op_in_carries(graph, node, i, symbol)) {
            *why_p = "neither a cache nor a gamma may have rows of it";
            return false;
        }
    }
    return ngd_rows_leading(graph, node, symbol, why_p);
}
