/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of operators that replace or add to some elements of operand 0, and of padding. */
#include "graphs/op_int.h"
#include <string.h>

static ngd_status_t as_x(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);

    return ngd_op_result(graph, node, 0, x->dtype, x->rank, x->dims, diag);
}

static bool scatter_rows_dim(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                             const char **why_p)
{
    for (uint32_t i = 1; i < node->n_in; i++) {
        if (ngd_op_in_carries(graph, node, i, symbol) && !ngd_op_in_carries(graph, node, 0, symbol)) {
            *why_p = "rows of it are written into a tensor that has none";
            return false;
        }
    }
    return ngd_op_rows_axis(graph, node, symbol, ngd_op_known_axis(node, "dim", ngd_node_in(graph, node, 0)->rank),
                            why_p);
}

ngd_status_t ngd_shape_scatter(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_op_dtype_is(graph, node, 2, "src", ngd_node_in(graph, node, 0)->dtype, diag);

    if (!status)
        status = ngd_op_check_index(graph, node, diag);
    if (!status)
        status = ngd_op_within(graph, node, 1, "index", 2, "src", NGD_MAX_RANK, diag);
    return status ? status : as_x(graph, node, diag);
}

bool ngd_rows_scatter(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return scatter_rows_dim(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_scatter_value(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_op_check_index(graph, node, diag);

    if (!status)
        status = ngd_op_fills(graph, node, "value", ngd_node_in(graph, node, 0)->dtype, diag);
    return status ? status : as_x(graph, node, diag);
}

bool ngd_rows_scatter_value(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                            const char **why_p)
{
    return scatter_rows_dim(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_index_put(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_dim_t dims[2 * NGD_MAX_RANK];
    uint32_t rank;
    ngd_status_t status = ngd_op_rows_dims(graph, node, &rank, dims, diag);

    if (!status)
        status = ngd_op_dtype_is(graph, node, 2, "values", ngd_node_in(graph, node, 0)->dtype, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 2, "values", rank, dims, "[dimensions of indices, rest of x]", diag);
    return status ? status : as_x(graph, node, diag);
}

/* Each row of indices and values is written on its own, and padded rows are not written. This is how a cache is
 * written.
 */
bool ngd_rows_index_put(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    if (ngd_op_in_carries(graph, node, 0, symbol)) {
        *why_p = "x has rows of it, any of which may be written";
        return false;
    }
    if (ngd_op_in_carries(graph, node, 1, symbol) != ngd_op_in_carries(graph, node, 2, symbol)) {
        *why_p = "indices and values must both have rows of it";
        return false;
    }
    return true;
}

ngd_status_t ngd_shape_index_copy(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_picked_dims(graph, node, dims, diag);

    if (!status)
        status = ngd_op_dtype_is(graph, node, 2, "source", x->dtype, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 2, "source", x->rank, dims,
                                 "of x's shape, along dim as long as the index", diag);
    return status ? status : as_x(graph, node, diag);
}

/* Along dimension 0 this is like index_put. Along another one, each row of x takes elements of the same row of the
 * source, with one index for all rows. */
bool ngd_rows_index_copy(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                         const char **why_p)
{
    if (ngd_op_known_axis(node, "dim", ngd_node_in(graph, node, 0)->rank) == 0)
        return ngd_rows_index_put(graph, node, symbol, why_p);
    return scatter_rows_dim(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_slice_scatter(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_dtype_is(graph, node, 1, "src", x->dtype, diag);

    if (!status)
        status = ngd_op_slice_dims(graph, node, dims, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "src", x->rank, dims, "of the slice's shape", diag);
    return status ? status : as_x(graph, node, diag);
}

bool ngd_rows_slice_scatter(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                            const char **why_p)
{
    return scatter_rows_dim(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_select_scatter(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_dtype_is(graph, node, 1, "src", x->dtype, diag);

    if (!status)
        status = ngd_op_select_dims(graph, node, dims, diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "src", x->rank - 1u, dims, "of x's shape without dim", diag);
    return status ? status : as_x(graph, node, diag);
}

bool ngd_rows_select_scatter(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                             const char **why_p)
{
    return scatter_rows_dim(graph, node, symbol, why_p);
}

/* ---- padding ---- */

static ngd_status_t add_pad(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t pad, ngd_dim_t *dim,
                            struct ngd_diag *diag)
{
    char text[NGD_OP_TEXT];
    ngd_status_t status;

    if (!ngd_dim_is_const(pad) || pad < 0)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
            "attribute pad has %s, but must have constants >= 0: use aten.slice.Tensor to cut off elements",
            ngd_op_dim_text(graph, pad, text));
    status = ngd_expr_make(graph->exprs, NGD_EXPR_ADD, *dim, pad, dim);
    return status ? ngd_op_expr_fail(graph, node, diag, status, "a padded dimension") : NGD_OK;
}

ngd_status_t ngd_shape_pad(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const struct ngd_attr_value *pad = ngd_op_attr(node, "pad");
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_fills(graph, node, "value", x->dtype, diag);

    if (!status && (pad->n % 2 || pad->n > 2u * x->rank))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute pad has %u numbers, but %%%s of rank %u takes two for each dimension, up to %u",
                           pad->n, ngd_op_in_name(graph, node, 0), x->rank, 2u * x->rank);
    memcpy(dims, x->dims, sizeof(dims));
    for (uint32_t i = 0; i < pad->n && !status; i++)
        status = add_pad(graph, node, pad->list[i], &dims[x->rank - 1 - i / 2], diag);
    return status ? status : ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

bool ngd_rows_pad(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *y = &graph->values[node->out[0]].type;

    if (ngd_op_in_carries(graph, node, 0, symbol) && x->dims[0] != y->dims[0]) {
        *why_p = "it pads dimension 0";
        return false;
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}
