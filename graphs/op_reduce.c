/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of reductions, argmax, topk and cumsum. */
#include "graphs/op_int.h"
#include <math.h>
#include <string.h>

uint32_t ngd_op_reduced_axes(const struct ngd_op *op, const struct ngd_attr_value *attrs, uint32_t rank)
{
    const int at = ngd_op_attr_index(op, "dim", 3);
    const bool one = at >= 0 && op->attrs[at].type == NGD_ATTR_INT;
    const int64_t *dims = at < 0 ? NULL : one ? &attrs[at].i : attrs[at].list;
    uint32_t axes = 0, n = at < 0 ? 0 : one ? 1 : attrs[at].n;

    for (uint32_t i = 0; i < n; i++)
        axes |= 1u << (dims[i] < 0 ? dims[i] + rank : dims[i]);
    return n ? axes : (1u << rank) - 1;
}

/* Gives a bit for each reduced axis. An empty list, or no attribute `dim`, means all axes. */
static ngd_status_t reduced_axes(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t *axes_p,
                                 struct ngd_diag *diag)
{
    const int at = ngd_op_attr_index(node->op, "dim", 3);
    const struct ngd_attr_value *dim = at < 0 ? NULL : &node->attrs[at];
    uint32_t rank = ngd_node_in(graph, node, 0)->rank, axes = 0;

    if (dim && node->op->attrs[at].type == NGD_ATTR_INT) {
        ngd_status_t status = ngd_op_axis(graph, node, "dim", rank, &axes, diag);

        *axes_p = status ? 0 : 1u << axes;
        return status;
    }
    for (uint32_t i = 0; dim && i < dim->n; i++) {
        uint32_t axis;
        ngd_status_t status = ngd_op_axis_value(graph, node, "dim", dim->list[i], rank, &axis, diag);

        if (status)
            return status;
        if (axes >> axis & 1)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute dim names dimension %u twice",
                               axis);
        axes |= 1u << axis;
    }
    *axes_p = dim && dim->n ? axes : (1u << rank) - 1;
    return NGD_OK;
}

static ngd_status_t reduce_result_i(struct ngd_graph *graph, struct ngd_node *node, uint32_t result, uint32_t axes,
                                    ngd_dtype_t dtype, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    bool keep = ngd_op_attr_index(node->op, "keepdim", 7) >= 0 && ngd_op_bool(node, "keepdim");
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t rank = 0;

    for (uint32_t i = 0; i < x->rank; i++) {
        if (!(axes >> i & 1))
            dims[rank++] = x->dims[i];
        else if (keep)
            dims[rank++] = 1;
    }
    return ngd_op_result(graph, node, result, dtype, rank, dims, diag);
}

static ngd_status_t reduce_result(struct ngd_graph *graph, struct ngd_node *node, uint32_t axes, ngd_dtype_t dtype,
                                  struct ngd_diag *diag)
{
    return reduce_result_i(graph, node, 0, axes, dtype, diag);
}

/* Checks that no reduced dimension may be 0, because a maximum of no elements has no value. */
static ngd_status_t check_not_empty(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t axes,
                                    struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    char text[NGD_OP_TEXT];

    for (uint32_t i = 0; i < x->rank; i++)
        if ((axes >> i & 1) && !ngd_expr_always_le(graph->exprs, 1, x->dims[i]))
            return ngd_op_fail(
                graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                "dimension %u of %%%s, %s, may be 0, but no elements have no extreme: raise the minimum of its symbols",
                i, ngd_op_in_name(graph, node, 0), ngd_op_dim_text(graph, x->dims[i], text));
    return NGD_OK;
}

/* Gives the attribute dtype, or the default of sums: floats stay, integers and bool become i64. */
static ngd_status_t sum_dtype(const struct ngd_graph *graph, const struct ngd_node *node, ngd_dtype_t *dtype_p,
                              struct ngd_diag *diag)
{
    ngd_dtype_t x = ngd_node_in(graph, node, 0)->dtype;
    int64_t given = ngd_op_attr_index(node->op, "dtype", 5) < 0 ? -1 : ngd_op_attr(node, "dtype")->i;

    *dtype_p = given >= 0 ? (ngd_dtype_t)given : ngd_dtype_is_float(x) ? x : NGD_I64;
    if (*dtype_p == NGD_BOOL || (ngd_dtype_is_float(x) && !ngd_dtype_is_float(*dtype_p)))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute dtype is %s, which cannot hold a sum of %s", ngd_dtype_name(*dtype_p),
                           ngd_dtype_name(x));
    return NGD_OK;
}

ngd_status_t ngd_shape_reduce_sum(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_dtype_t dtype;
    uint32_t axes;
    ngd_status_t status = reduced_axes(graph, node, &axes, diag);

    if (!status)
        status = sum_dtype(graph, node, &dtype, diag);
    return status ? status : reduce_result(graph, node, axes, dtype, diag);
}

ngd_status_t ngd_shape_reduce_mean(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", NGD_TAKES_FLOAT, diag);

    return status ? status : ngd_shape_reduce_sum(graph, node, diag);
}

/* Rule of the variance, with or without the mean as a second result. */
ngd_status_t ngd_shape_var(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const double correction = ngd_op_float(node, "correction");
    uint32_t axes;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = reduced_axes(graph, node, &axes, diag);
    if (!status && !isfinite(correction))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute correction is %g, but must be a number", correction);
    for (uint32_t i = 0; i < node->n_out && !status; i++)
        status = reduce_result_i(graph, node, i, axes, ngd_node_in(graph, node, 0)->dtype, diag);
    return status;
}

ngd_status_t ngd_shape_reduce_extreme(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    uint32_t axes;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", NGD_TAKES_FLOAT | NGD_TAKES_INT, diag);

    if (!status)
        status = reduced_axes(graph, node, &axes, diag);
    if (!status)
        status = check_not_empty(graph, node, axes, diag);
    return status ? status : reduce_result(graph, node, axes, ngd_node_in(graph, node, 0)->dtype, diag);
}

/* For u8 the result is u8, as in PyTorch, where u8 stood for truth values before there was bool. */
ngd_status_t ngd_shape_reduce_truth(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const ngd_dtype_t dtype = ngd_node_in(graph, node, 0)->dtype == NGD_U8 ? NGD_U8 : NGD_BOOL;
    const int at = ngd_op_attr_index(node->op, "dim", 3);
    uint32_t axes;
    ngd_status_t status = reduced_axes(graph, node, &axes, diag);

    if (!status && at >= 0 && node->op->attrs[at].type == NGD_ATTR_INTS && node->attrs[at].n == 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute dim is empty, which here means no dimension in PyTorch: use the operator without "
                           ".dims to reduce all dimensions");
    return status ? status : reduce_result(graph, node, axes, dtype, diag);
}

static bool rows_list(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    struct ngd_diag *no_diag = NULL;
    uint32_t axes = 1;

    (void)reduced_axes(graph, node, &axes, no_diag);
    return ngd_op_rows_axis(graph, node, symbol, axes & 1 ? 0 : 1, why_p);
}

bool ngd_rows_reduce_sum(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                         const char **why_p)
{
    return rows_list(graph, node, symbol, why_p);
}

bool ngd_rows_reduce_mean(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                          const char **why_p)
{
    return rows_list(graph, node, symbol, why_p);
}

bool ngd_rows_var(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return rows_list(graph, node, symbol, why_p);
}

bool ngd_rows_reduce_extreme(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                             const char **why_p)
{
    return rows_list(graph, node, symbol, why_p);
}

bool ngd_rows_reduce_truth(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                           const char **why_p)
{
    return rows_list(graph, node, symbol, why_p);
}

/* ---- along one axis ---- */

static bool rows_axis(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_rows_axis(graph, node, symbol, ngd_op_known_axis(node, "dim", ngd_node_in(graph, node, 0)->rank),
                            why_p);
}

ngd_status_t ngd_shape_reduce_one(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    return status ? status
                  : reduce_result(graph, node, 1u << axis, ngd_dtype_is_float(x->dtype) ? x->dtype : NGD_I64, diag);
}

bool ngd_rows_reduce_one(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                         const char **why_p)
{
    return rows_axis(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_argmax(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    uint32_t axis;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", NGD_TAKES_FLOAT | NGD_TAKES_INT, diag);

    if (!status)
        status = ngd_op_axis(graph, node, "dim", ngd_node_in(graph, node, 0)->rank, &axis, diag);
    if (!status)
        status = check_not_empty(graph, node, 1u << axis, diag);
    return status ? status : reduce_result(graph, node, 1u << axis, NGD_I64, diag);
}

bool ngd_rows_argmax(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return rows_axis(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_topk(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK], k = ngd_op_int(node, "k");
    char tk[NGD_OP_TEXT], td[NGD_OP_TEXT];
    uint32_t axis;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", NGD_TAKES_FLOAT | NGD_TAKES_INT, diag);

    if (!status)
        status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);
    if (status)
        return status;
    if (!ngd_expr_always_le(graph->exprs, 0, k) || !ngd_expr_always_le(graph->exprs, k, x->dims[axis]))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "attribute k is %s, but dimension %u of %%%s is %s: k must be at least 0 and at most that "
                           "for all symbol values",
                           ngd_op_dim_text(graph, k, tk), axis, ngd_op_in_name(graph, node, 0),
                           ngd_op_dim_text(graph, x->dims[axis], td));
    memcpy(dims, x->dims, sizeof(dims));
    dims[axis] = k;
    status = ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
    return status ? status : ngd_op_result(graph, node, 1, NGD_I64, x->rank, dims, diag);
}

bool ngd_rows_topk(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return rows_axis(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_cumsum(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    return status ? status
                  : ngd_op_result(graph, node, 0, ngd_dtype_is_float(x->dtype) ? x->dtype : NGD_I64, x->rank, x->dims,
                                  diag);
}

bool ngd_rows_cumsum(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return rows_axis(graph, node, symbol, why_p);
}
