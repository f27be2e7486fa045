/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of operators that make tensors from nothing, of the copy into a state, and of refused operators. */
#include "graphs/op_int.h"
#include <math.h>
#include <string.h>

static bool maker_has_attr(const struct ngd_node *node, const char *attr)
{
    return ngd_op_attr_index(node->op, attr, strlen(attr)) >= 0;
}

/* Gives the attribute dtype; none stands for the operand's dtype, if there is an operand. */
static ngd_status_t maker_dtype(const struct ngd_graph *graph, const struct ngd_node *node, ngd_dtype_t *dtype_p,
                                struct ngd_diag *diag)
{
    int64_t dtype = ngd_op_attr(node, "dtype")->i;

    if (dtype < 0 && node->n_in)
        dtype = ngd_node_in(graph, node, 0)->dtype;
    if (dtype < 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute dtype is none, but must name a dtype");
    *dtype_p = (ngd_dtype_t)dtype;
    return NGD_OK;
}

ngd_status_t ngd_shape_arange(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_dtype_t dtype = NGD_F32;
    ngd_dim_t n;
    int64_t step = 1;
    ngd_status_t status = maker_dtype(graph, node, &dtype, diag);

    if (!status && dtype == NGD_BOOL)
        status =
            ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE, "attribute dtype is bool, but a range needs numbers");
    if (!status && maker_has_attr(node, "step"))
        status = ngd_op_const(graph, node, "step", 1, INT32_MAX, &step, diag);
    if (status)
        return status;
    status = ngd_op_range_length(graph, maker_has_attr(node, "start") ? ngd_op_int(node, "start") : 0,
                                 ngd_op_int(node, "end"), step, &n);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "the number of elements");
    return ngd_op_result(graph, node, 0, dtype, 1, &n, diag);
}

/* Element i is start + i*step and does not depend on the padded length. */
bool ngd_rows_arange(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_attrs_free(graph, node, symbol, "end", why_p);
}

static bool fill_fits(ngd_dtype_t dtype, double v)
{
    static const struct {
        double min, max;
    } range[NGD_DTYPE_MAX] = {
        [NGD_I8] = {-128, 127},
        [NGD_U8] = {0, 255},
        [NGD_I32] = {-0x1p31, 0x1p31 - 1},
        [NGD_I64] = {-0x1p63, 0x1p63 - 1024}, /* the largest double below 2^63 */
        [NGD_BOOL] = {0, 1},
    };

    return ngd_dtype_is_float(dtype) || (v == floor(v) && v >= range[dtype].min && v <= range[dtype].max);
}

ngd_status_t ngd_op_fills(const struct ngd_graph *graph, const struct ngd_node *node, const char *name,
                          ngd_dtype_t dtype, struct ngd_diag *diag)
{
    double v = ngd_op_float(node, name);

    if (dtype == NGD_I64 && ngd_op_attr(node, name)->i)
        return NGD_OK; /* f alone would not tell: it may be 2^63 */
    if (fill_fits(dtype, v))
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %s, %g, cannot be held by %s", name, v,
                       ngd_dtype_name(dtype));
}

struct ngd_scalar ngd_op_fill_value(const struct ngd_op *op, const struct ngd_attr_value *attrs)
{
    int at = ngd_op_attr_index(op, "fill_value", strlen("fill_value"));

    if (at < 0)
        at = ngd_op_attr_index(op, "s", 1);
    if (at >= 0)
        return ngd_attr_scalar(&attrs[at]);
    return ngd_scalar_of_int(op->id == NGD_OP_ATEN_ONES || op->id == NGD_OP_ATEN_ONES_LIKE ||
                             op->id == NGD_OP_ATEN_NEW_ONES);
}

bool ngd_op_fills_all(const struct ngd_op *op)
{
    return op->shape == ngd_shape_full;
}

/* Rule of all operators that fill a tensor with one value. The shape is the attribute `size`, or the operand's, or that
 * of a scalar. */
ngd_status_t ngd_shape_full(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_attr_value *size = maker_has_attr(node, "size") ? ngd_op_attr(node, "size") : NULL;
    const struct ngd_type *like = node->n_in ? ngd_node_in(graph, node, 0) : NULL;
    const char *attr = maker_has_attr(node, "fill_value") ? "fill_value" : maker_has_attr(node, "s") ? "s" : NULL;
    ngd_dtype_t dtype = NGD_F32;
    ngd_status_t status = maker_dtype(graph, node, &dtype, diag);

    if (!status && attr)
        status = ngd_op_fills(graph, node, attr, dtype, diag);
    if (status)
        return status;
    if (size)
        return ngd_op_result(graph, node, 0, dtype, size->n, size->list, diag);
    return ngd_op_result(graph, node, 0, dtype, like ? like->rank : 0, like ? like->dims : NULL, diag);
}

bool ngd_rows_full(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_attrs_free(graph, node, symbol, "size", why_p);
}

ngd_status_t ngd_shape_copy_into(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *into = ngd_node_in(graph, node, 0);

    return ngd_op_shape_is(graph, node, 1, "operand", into->rank, into->dims, "of the written tensor's shape", diag);
}

ngd_status_t ngd_shape_event(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    if (ngd_op_attr(node, "tag")->s[0] == '\0')
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute tag is empty: an event needs a name");
    return NGD_OK;
}

ngd_status_t ngd_shape_refused(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    (void)graph;
    return ngd_op_refuse(node->op, NULL, node->line, diag);
}
