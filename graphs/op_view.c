/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shape rules of views.
 *
 * Rows: a view of [s*m, rest] as [s*n, other rest] keeps rows whole. Both shapes have the same number of
 * elements. The actual elements are a prefix of the padded ones in row-major order, and the same prefix in both
 * shapes. The check of types has shown that the symbol is only in dimension 0, as symbol*constant.
 */
#include "graphs/op_int.h"
#include <string.h>

static ngd_status_t multiply_dims(struct ngd_graph *graph, const ngd_dim_t *dims, uint32_t rank, uint32_t except,
                                  ngd_dim_t *product_p)
{
    ngd_dim_t product = 1;

    for (uint32_t i = 0; i < rank; i++) {
        ngd_status_t status =
            i == except ? NGD_OK : ngd_expr_make(graph->exprs, NGD_EXPR_MUL, product, dims[i], &product);

        if (status)
            return status;
    }
    *product_p = product;
    return NGD_OK;
}

/* Copies the list of sizes to dims. *inferred_p: the position of a -1, or NGD_MAX_RANK. */
static ngd_status_t read_view_sizes(struct ngd_graph *graph, struct ngd_node *node, const char *name, ngd_dim_t *dims,
                                    uint32_t *inferred_p, struct ngd_diag *diag)
{
    const struct ngd_attr_value *sizes = ngd_op_attr(node, name);

    *inferred_p = NGD_MAX_RANK;
    if (sizes->n > NGD_MAX_RANK)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_RANK,
                           "attribute %s has %u elements, but a tensor has at most %d dimensions", name, sizes->n,
                           NGD_MAX_RANK);
    for (uint32_t i = 0; i < sizes->n; i++) {
        dims[i] = sizes->list[i];
        if (dims[i] != -1)
            continue;
        if (*inferred_p != NGD_MAX_RANK)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %s has more than one -1", name);
        *inferred_p = i;
    }
    return NGD_OK;
}

static ngd_status_t infer_size(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t total, ngd_dim_t others,
                               ngd_dim_t *dim_p, struct ngd_diag *diag)
{
    char tt[NGD_OP_TEXT], to[NGD_OP_TEXT];
    bool exact = false;
    ngd_status_t status = others == 0 ? NGD_OK : ngd_expr_divide(graph->exprs, total, others, &exact, dim_p);

    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "the inferred size");
    if (!exact)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_SHAPE,
            "the -1 cannot be inferred: %%%s has %s elements, and the other sizes multiply to %s, which does not "
            "divide that for all symbol values",
            ngd_op_in_name(graph, node, 0), ngd_op_dim_text(graph, total, tt), ngd_op_dim_text(graph, others, to));
    return NGD_OK;
}

static const char *size_attr(const struct ngd_node *node)
{
    return node->op->attrs[0].name; /* "size" for view, "shape" for reshape */
}

bool ngd_op_infers_size(const struct ngd_op *op)
{
    return op->shape == ngd_shape_view;
}

ngd_status_t ngd_shape_view(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    uint32_t rank = ngd_op_attr(node, size_attr(node))->n, inferred;
    ngd_dim_t dims[NGD_MAX_RANK], total, product;
    char tx[NGD_OP_TEXT], tt[NGD_OP_TEXT], tp[NGD_OP_TEXT];
    ngd_status_t status = read_view_sizes(graph, node, size_attr(node), dims, &inferred, diag);

    if (status)
        return status;
    status = multiply_dims(graph, x->dims, x->rank, NGD_MAX_RANK, &total);
    if (!status)
        status = multiply_dims(graph, dims, rank, inferred, &product);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "the number of elements");
    if (inferred < rank) {
        status = infer_size(graph, node, total, product, &dims[inferred], diag);
        if (status)
            return status;
    } else if (product != total) {
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "%%%s is %s and has %s elements, but the sizes multiply to %s: they must be equal",
                           ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, x, tx),
                           ngd_op_dim_text(graph, total, tt), ngd_op_dim_text(graph, product, tp));
    }
    return ngd_op_result(graph, node, 0, x->dtype, rank, dims, diag);
}

bool ngd_rows_view(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_attrs_free(graph, node, symbol, size_attr(node), why_p);
}

ngd_status_t ngd_shape_permute(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const struct ngd_attr_value *order = ngd_op_attr(node, "dims");
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t seen = 0;

    if (order->n != x->rank)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute dims has %u elements, but %%%s has rank %u", order->n,
                           ngd_op_in_name(graph, node, 0), x->rank);
    for (uint32_t i = 0; i < order->n; i++) {
        uint32_t axis;
        ngd_status_t status = ngd_op_axis_value(graph, node, "dims", order->list[i], x->rank, &axis, diag);

        if (status)
            return status;
        if (seen >> axis & 1)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute dims names dimension %u twice",
                               axis);
        seen |= 1u << axis;
        dims[i] = x->dims[axis];
    }
    return ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

ngd_status_t ngd_shape_transpose(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t a, b;
    ngd_status_t status = ngd_op_axis(graph, node, "dim0", x->rank, &a, diag);

    if (!status)
        status = ngd_op_axis(graph, node, "dim1", x->rank, &b, diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    dims[a] = x->dims[b];
    dims[b] = x->dims[a];
    return ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

ngd_status_t ngd_shape_transpose2(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    char text[NGD_OP_TEXT];

    if (x->rank > 2)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "%%%s is %s, but must have rank 2 or less: use aten.transpose.int",
                           ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, x, text));
    if (x->rank < 2)
        return ngd_op_result(graph, node, 0, x->dtype, x->rank, x->dims, diag);
    return ngd_op_result(graph, node, 0, x->dtype, 2, (ngd_dim_t[]){x->dims[1], x->dims[0]}, diag);
}

ngd_status_t ngd_shape_expand(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const struct ngd_attr_value *size = ngd_op_attr(node, "size");
    ngd_dim_t dims[NGD_MAX_RANK];
    char tx[NGD_OP_TEXT], td[NGD_OP_TEXT];
    uint32_t added = size->n - x->rank;

    if (size->n > NGD_MAX_RANK)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_RANK,
                           "attribute size has %u elements, but a tensor has at most %d dimensions", size->n,
                           NGD_MAX_RANK);
    if (size->n < x->rank)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "attribute size has %u elements, but %%%s has rank %u", size->n,
                           ngd_op_in_name(graph, node, 0), x->rank);
    for (uint32_t i = 0; i < size->n; i++) {
        ngd_dim_t from = i < added ? 1 : x->dims[i - added];

        dims[i] = size->list[i] == -1 && i >= added ? from : size->list[i];
        if (dims[i] != from && from != 1)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                               "%%%s is %s: only a dimension of size 1 can be expanded, size %u is %s (-1 keeps it)",
                               ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, x, tx), i,
                               ngd_op_dim_text(graph, dims[i], td));
    }
    return ngd_op_result(graph, node, 0, x->dtype, size->n, dims, diag);
}

bool ngd_rows_expand(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_attrs_free(graph, node, symbol, "size", why_p);
}

ngd_status_t ngd_shape_unsqueeze(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK + 1];
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank + 1u, &axis, diag);

    if (status)
        return status;
    memcpy(dims, x->dims, axis * sizeof(dims[0]));
    dims[axis] = 1;
    memcpy(&dims[axis + 1], &x->dims[axis], (x->rank - axis) * sizeof(dims[0]));
    return ngd_op_result(graph, node, 0, x->dtype, x->rank + 1u, dims, diag);
}

/* Checks that the dimension is certainly 1 or certainly not. */
static ngd_status_t check_squeeze(struct ngd_graph *graph, struct ngd_node *node, uint32_t axis, struct ngd_diag *diag)
{
    ngd_dim_t dim = ngd_node_in(graph, node, 0)->dims[axis];
    char text[NGD_OP_TEXT];
    int64_t lo, hi;
    ngd_status_t status = ngd_expr_bounds(graph->exprs, dim, &lo, &hi);

    if (status || dim == 1 || lo > 1 || hi < 1)
        return status;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                       "dimension %u of %%%s, %s, may be 1 or not, and the result's rank depends on that", axis,
                       ngd_op_in_name(graph, node, 0), ngd_op_dim_text(graph, dim, text));
}

ngd_status_t ngd_shape_squeeze(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    if (!status)
        status = check_squeeze(graph, node, axis, diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    if (dims[axis] != 1)
        return ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
    memmove(&dims[axis], &dims[axis + 1], (x->rank - axis - 1u) * sizeof(dims[0]));
    return ngd_op_result(graph, node, 0, x->dtype, x->rank - 1u, dims, diag);
}

ngd_status_t ngd_shape_squeeze_dims(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const struct ngd_attr_value *which = ngd_op_attr(node, "dim");
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t named = 0, rank = 0;

    for (uint32_t i = 0; i < which->n; i++) {
        uint32_t axis;
        ngd_status_t status = ngd_op_axis_value(graph, node, "dim", which->list[i], x->rank, &axis, diag);

        if (!status && named >> axis & 1)
            status =
                ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute dim names dimension %u twice", axis);
        if (!status)
            status = check_squeeze(graph, node, axis, diag);
        if (status)
            return status;
        named |= 1u << axis;
    }
    for (uint32_t i = 0; i < x->rank; i++)
        if (!(named >> i & 1) || x->dims[i] != 1)
            dims[rank++] = x->dims[i];
    return ngd_op_result(graph, node, 0, x->dtype, rank, dims, diag);
}

ngd_status_t ngd_shape_alias(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);

    return ngd_op_result(graph, node, 0, x->dtype, x->rank, x->dims, diag);
}

#define ROWS(name)                                                                                    \
    bool ngd_rows_##name(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, \
                         const char **why_p)                                                          \
    {                                                                                                 \
        return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);                                   \
    }
ROWS(permute)
ROWS(transpose)
ROWS(transpose2)
ROWS(unsqueeze)
ROWS(squeeze)
ROWS(squeeze_dims)
ROWS(alias)
