/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shape rules of elementwise operators. Their row rules check only attributes. Broadcasting aligns last dimensions,
 * so an operand with a bucketed symbol in its dimension 0 gives it to dimension 0 of the result. If the result has
 * more dimensions, it gets the symbol in a later one, which the check of types refuses.
 */
#include "graphs/op_int.h"
#include <math.h>
#include <string.h>

static ngd_status_t same_type_as(struct ngd_graph *graph, struct ngd_node *node, ngd_dtype_t dtype,
                                 struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);

    return ngd_op_result(graph, node, 0, dtype, x->rank, x->dims, diag);
}

static ngd_status_t infer_unary(struct ngd_graph *graph, struct ngd_node *node, unsigned takes, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", takes, diag);

    return status ? status : same_type_as(graph, node, ngd_node_in(graph, node, 0)->dtype, diag);
}

ngd_status_t ngd_shape_unary(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return infer_unary(graph, node, NGD_TAKES_FLOAT, diag);
}

ngd_status_t ngd_shape_unary_num(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return infer_unary(graph, node, NGD_TAKES_FLOAT | NGD_TAKES_INT, diag);
}

ngd_status_t ngd_shape_unary_bits(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return infer_unary(graph, node, NGD_TAKES_INT | NGD_TAKES_BOOL, diag);
}

ngd_status_t ngd_shape_unary_any(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return infer_unary(graph, node, NGD_TAKES_ALL, diag);
}

ngd_status_t ngd_shape_to_bool(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return same_type_as(graph, node, NGD_BOOL, diag);
}

ngd_status_t ngd_shape_cast(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    int64_t dtype = ngd_op_attr(node, "dtype")->i;

    if (dtype < 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute dtype is none, but must name a dtype");
    return same_type_as(graph, node, (ngd_dtype_t)dtype, diag);
}

/* Checks that a float attribute is a whole number if the operand has integers:
 * kernels compute in the operand's dtype. */
static ngd_status_t check_whole(struct ngd_graph *graph, struct ngd_node *node, const char *name, bool inf_ok,
                                struct ngd_diag *diag)
{
    double v = ngd_op_float(node, name);

    if (ngd_dtype_is_float(ngd_node_in(graph, node, 0)->dtype) || (inf_ok && isinf(v)) || ngd_op_attr(node, name)->i ||
        (v == floor(v) && v >= -0x1p63 && v < 0x1p63))
        return NGD_OK;
    return ngd_op_fail(
        graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
        "attribute %s is %g, but %%%s has integers, so it must be a whole number of 64 bits: cast the operand "
        "to a float dtype first",
        name, v, ngd_op_in_name(graph, node, 0));
}

ngd_status_t ngd_shape_scalar(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = infer_unary(graph, node, NGD_TAKES_FLOAT | NGD_TAKES_INT, diag);

    if (!status)
        status = check_whole(graph, node, "other", false, diag);
    if (!status)
        status = check_whole(graph, node, "alpha", false, diag);
    return status;
}

/* Checks that integers are not divided by 0, for which PyTorch raises an error. */
ngd_status_t ngd_shape_divisor(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_shape_scalar(graph, node, diag);

    if (!status && ngd_op_float(node, "other") == 0 && !ngd_dtype_is_float(ngd_node_in(graph, node, 0)->dtype))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute other is 0, but the integers of %%%s cannot be divided by 0",
                           ngd_op_in_name(graph, node, 0));
    return status;
}

static ngd_status_t check_round_mode(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const char *mode = ngd_op_str(node, "rounding_mode");

    if (strcmp(mode, "floor") == 0 || strcmp(mode, "trunc") == 0)
        return NGD_OK;
    return ngd_op_fail(
        graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
        "attribute rounding_mode is \"%.32s\", but must be \"floor\" or \"trunc\": use aten.div.Tensor or "
        "aten.div.Scalar for a quotient that is not rounded",
        mode);
}

ngd_status_t ngd_shape_div_mode(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = check_round_mode(graph, node, diag);

    return status ? status : ngd_shape_binary(graph, node, diag);
}

ngd_status_t ngd_shape_div_scalar_mode(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = check_round_mode(graph, node, diag);

    return status ? status : ngd_shape_divisor(graph, node, diag);
}

ngd_status_t ngd_shape_clamp(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = infer_unary(graph, node, NGD_TAKES_FLOAT | NGD_TAKES_INT, diag);

    if (!status)
        status = check_whole(graph, node, "min", true, diag);
    if (!status)
        status = check_whole(graph, node, "max", true, diag);
    return status;
}

ngd_status_t ngd_shape_gelu(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const char *how = ngd_op_str(node, "approximate");

    if (strcmp(how, "none") != 0 && strcmp(how, "tanh") != 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute approximate is \"%.32s\", but must be \"none\" or \"tanh\"", how);
    return infer_unary(graph, node, NGD_TAKES_FLOAT, diag);
}

ngd_status_t ngd_shape_triangle(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    int64_t diagonal;
    ngd_status_t status = ngd_op_const(graph, node, "diagonal", -INT32_MAX, INT32_MAX, &diagonal, diag);

    if (status)
        return status;
    if (x->rank < 2)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "operand %%%s has rank %u, but must have at least 2",
                           ngd_op_in_name(graph, node, 0), x->rank);
    return infer_unary(graph, node, NGD_TAKES_ALL, diag);
}

/* Checks that operands first and first+1 have the same dtype. */
static ngd_status_t check_operand_pair(struct ngd_graph *graph, struct ngd_node *node, uint32_t first,
                                       struct ngd_diag *diag)
{
    ngd_dtype_t a = ngd_node_in(graph, node, first)->dtype, b = ngd_node_in(graph, node, first + 1)->dtype;

    if (a == b)
        return NGD_OK;
    return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                       "%%%s is %s and %%%s is %s, but both must have one dtype: cast one with aten._to_copy",
                       ngd_op_in_name(graph, node, first), ngd_dtype_name(a), ngd_op_in_name(graph, node, first + 1),
                       ngd_dtype_name(b));
}

static ngd_status_t infer_binary(struct ngd_graph *graph, struct ngd_node *node, unsigned takes, bool to_bool,
                                 struct ngd_diag *diag)
{
    const struct ngd_type *a = ngd_node_in(graph, node, 0), *b = ngd_node_in(graph, node, 1);
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t rank;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", takes, diag);

    if (!status)
        status = check_operand_pair(graph, node, 0, diag);
    if (!status)
        status = ngd_op_broadcast(graph, node, a, b, &rank, dims, diag);
    return status ? status : ngd_op_result(graph, node, 0, to_bool ? NGD_BOOL : a->dtype, rank, dims, diag);
}

ngd_status_t ngd_shape_binary(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = infer_binary(graph, node, NGD_TAKES_FLOAT | NGD_TAKES_INT, false, diag);

    return status ? status : check_whole(graph, node, "alpha", false, diag);
}

ngd_status_t ngd_shape_binary_float(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return infer_binary(graph, node, NGD_TAKES_FLOAT, false, diag);
}

ngd_status_t ngd_shape_binary_bits(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return infer_binary(graph, node, NGD_TAKES_INT | NGD_TAKES_BOOL, false, diag);
}

ngd_status_t ngd_shape_compare(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return infer_binary(graph, node, NGD_TAKES_ALL, true, diag);
}

ngd_status_t ngd_shape_where(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *a = ngd_node_in(graph, node, 1), *b = ngd_node_in(graph, node, 2);
    struct ngd_type both = {.dtype = a->dtype};
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t rank;
    ngd_status_t status = ngd_op_dtype_is(graph, node, 0, "condition", NGD_BOOL, diag);

    if (!status)
        status = check_operand_pair(graph, node, 1, diag);
    if (!status)
        status = ngd_op_broadcast(graph, node, a, b, &rank, both.dims, diag);
    if (status)
        return status;
    both.rank = (uint8_t)rank;
    status = ngd_op_broadcast(graph, node, ngd_node_in(graph, node, 0), &both, &rank, dims, diag);
    return status ? status : ngd_op_result(graph, node, 0, a->dtype, rank, dims, diag);
}

ngd_status_t ngd_shape_masked_fill(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t rank;
    ngd_status_t status = ngd_op_dtype_is(graph, node, 1, "mask", NGD_BOOL, diag);

    if (!status)
        status = ngd_op_fills(graph, node, "value", x->dtype, diag);
    if (!status)
        status = ngd_op_broadcast(graph, node, x, ngd_node_in(graph, node, 1), &rank, dims, diag);
    return status ? status : ngd_op_result(graph, node, 0, x->dtype, rank, dims, diag);
}

/* ---- rows ---- */

static bool attrs_free(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

#define ROWS(name)                                                                                    \
    bool ngd_rows_##name(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, \
                         const char **why_p)                                                          \
    {                                                                                                 \
        return attrs_free(graph, node, symbol, why_p);                                                \
    }
ROWS(unary)
ROWS(unary_num)
ROWS(unary_bits)
ROWS(unary_any)
ROWS(to_bool)
ROWS(cast)
ROWS(scalar)
ROWS(divisor)
ROWS(div_mode)
ROWS(div_scalar_mode)
ROWS(clamp)
ROWS(gelu)
ROWS(binary)
ROWS(binary_float)
ROWS(binary_bits)
ROWS(compare)
ROWS(where)
ROWS(masked_fill)
