/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of quantisation, alone and fused with a normalisation or SwiGLU. */
#include "graphs/op_int.h"
#include <string.h>

/* Checks operand i, if given: f32, x's dtype or (`integer`: zero points) i32; n elements, or one if `one` allows it. */
static ngd_status_t check_scales(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, const char *role,
                                 ngd_dim_t n, bool one, bool integer, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *s;

    if (!ngd_node_has(node, i))
        return NGD_OK;
    s = ngd_node_in(graph, node, i);
    if (s->dtype != NGD_F32 && s->dtype != x->dtype && !(integer && s->dtype == NGD_I32))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE, "%s %%%s is %s, but must be f32%s or x's dtype, %s",
                           role, ngd_op_in_name(graph, node, i), ngd_dtype_name(s->dtype), integer ? ", i32" : "",
                           ngd_dtype_name(x->dtype));
    if (one && s->rank == 1 && s->dims[0] == 1)
        return NGD_OK;
    return ngd_op_shape_is(graph, node, i, role, 1, &n, one ? "[D] or [1]" : "[D]", diag);
}

static ngd_dim_t last(const struct ngd_type *t)
{
    return t->dims[t->rank - 1];
}

/* Sets result i: one f32 for each row of x. */
static ngd_status_t set_scale(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);

    return ngd_op_result(graph, node, i, NGD_F32, x->rank - 1u, x->dims, diag);
}

/* Sets an unwanted result to an empty tensor. */
static ngd_status_t set_nothing(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_dtype_t dtype,
                                struct ngd_diag *diag)
{
    return ngd_op_result(graph, node, i, dtype, 1, (ngd_dim_t[]){0}, diag);
}

static ngd_status_t check_quant_rows(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status && ngd_node_in(graph, node, 0)->rank == 0)
        status = ngd_op_rank_is(graph, node, 0, "x", 1, "[...,D]", diag);
    return status;
}

ngd_status_t ngd_shape_quantize(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const ngd_dtype_t dtype = (ngd_dtype_t)ngd_op_int(node, "dtype");
    uint32_t axis = 0;
    ngd_status_t status = check_quant_rows(graph, node, diag);

    if (!status)
        status = ngd_op_axis(graph, node, "axis", x->rank, &axis, diag);
    if (!status && dtype != NGD_I8 && dtype != NGD_U8 && dtype != NGD_I32)
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute dtype must be i8, u8 or i32");
    if (!status)
        status = check_scales(graph, node, 1, "scales", x->dims[axis], true, false, diag);
    if (!status)
        status = check_scales(graph, node, 2, "zero_points", x->dims[axis], true, true, diag);
    return status ? status : ngd_op_result(graph, node, 0, dtype, x->rank, x->dims, diag);
}

/* If x has rows of the symbol, the axis may not be 0, because the scales would then be rows too. */
bool ngd_rows_quantize(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_rows_axis(graph, node, symbol, ngd_op_known_axis(node, "axis", ngd_node_in(graph, node, 0)->rank),
                            why_p);
}

ngd_status_t ngd_shape_dynamic_quant(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_status_t status = check_quant_rows(graph, node, diag);

    if (!status)
        status = check_scales(graph, node, 1, "smooth_scales", last(x), false, false, diag);
    if (!status)
        status = ngd_op_result(graph, node, 0, NGD_I8, x->rank, x->dims, diag);
    return status ? status : set_scale(graph, node, 1, diag);
}

static bool last_axis(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_rows_axis(graph, node, symbol, ngd_node_in(graph, node, 0)->rank - 1u, why_p);
}

bool ngd_rows_dynamic_quant(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                            const char **why_p)
{
    return last_axis(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_add_rms_norm_quant(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    uint32_t axis = 0;
    ngd_status_t status = ngd_op_check_add_norm(graph, node, diag);

    if (!status)
        status = ngd_op_axis(graph, node, "axis", x->rank, &axis, diag);
    if (!status && axis + 1 != x->rank)
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute axis must be the last dimension");
    for (uint32_t i = 3; i < 8 && !status; i++) {
        static const char *const roles[] = {"scales1", "zero_points1", "beta", "scales2", "zero_points2"};

        status = check_scales(graph, node, i, roles[i - 3], last(x), i != 5, i == 4 || i == 7, diag);
    }
    if (!status && ngd_node_has(node, 7) && !ngd_node_has(node, 6))
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "zero_points2 needs scales2");
    if (!status)
        status = ngd_op_result(graph, node, 0, NGD_I8, x->rank, x->dims, diag);
    if (!status)
        status = ngd_node_has(node, 6) ? ngd_op_result(graph, node, 1, NGD_I8, x->rank, x->dims, diag)
                                       : set_nothing(graph, node, 1, NGD_I8, diag);
    return status ? status : ngd_op_result(graph, node, 2, x->dtype, x->rank, x->dims, diag);
}

bool ngd_rows_add_rms_norm_quant(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                 const char **why_p)
{
    return last_axis(graph, node, symbol, why_p);
}

/* Checks output_mask. *second_p: the second pair of results is wanted. */
static ngd_status_t check_quant_mask(struct ngd_graph *graph, struct ngd_node *node, bool *second_p,
                                     struct ngd_diag *diag)
{
    const struct ngd_attr_value *mask = ngd_op_attr(node, "output_mask");

    *second_p = ngd_node_has(node, 4);
    if (mask->n == 0)
        return NGD_OK;
    if (mask->n != 2 || mask->list[0] != 1 || (mask->list[1] != 0 && mask->list[1] != 1))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute output_mask must be empty, [1,0] or [1,1]");
    *second_p = mask->list[1] == 1;
    return NGD_OK;
}

ngd_status_t ngd_shape_add_rms_norm_dynamic_quant(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    static const char *const roles[] = {"smooth_scale1", "smooth_scale2", "beta"};
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    bool second = false;
    ngd_status_t status = ngd_op_check_add_norm(graph, node, diag);

    if (!status)
        status = check_quant_mask(graph, node, &second, diag);
    for (uint32_t i = 3; i < 6 && !status; i++)
        status = check_scales(graph, node, i, roles[i - 3], last(x), false, false, diag);
    if (!status)
        status = ngd_op_result(graph, node, 0, NGD_I8, x->rank, x->dims, diag);
    if (!status)
        status = second ? ngd_op_result(graph, node, 1, NGD_I8, x->rank, x->dims, diag)
                        : set_nothing(graph, node, 1, NGD_I8, diag);
    if (!status)
        status = ngd_op_result(graph, node, 2, x->dtype, x->rank, x->dims, diag);
    if (!status)
        status = set_scale(graph, node, 3, diag);
    if (!status)
        status = second ? set_scale(graph, node, 4, diag) : set_nothing(graph, node, 4, NGD_F32, diag);
    return status;
}

bool ngd_rows_add_rms_norm_dynamic_quant(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                         const char **why_p)
{
    return last_axis(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_swiglu_quant(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK], half = 0;
    int64_t mode;
    bool exact = false;
    char text[NGD_OP_TEXT];
    ngd_status_t status = check_quant_rows(graph, node, diag);

    if (!status)
        status = ngd_op_const(graph, node, "quant_mode", 0, 1, &mode, diag);
    if (status)
        return status;
    status = ngd_expr_divide(graph->exprs, last(x), 2, &exact, &half);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "half of the last dimension");
    if (!exact)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "the last dimension of %%%s, %s, does not divide by 2", ngd_op_in_name(graph, node, 0),
                           ngd_op_dim_text(graph, last(x), text));
    status = check_scales(graph, node, 1, "smooth_scales", half, false, false, diag);
    if (!status)
        status = check_scales(graph, node, 2, "offsets", half, false, false, diag);
    if (!status && mode == 1 && ngd_node_has(node, 2))
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "offsets are allowed only with quant_mode 0");
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = half;
    if (!status)
        status = ngd_op_result(graph, node, 0, NGD_I8, x->rank, dims, diag);
    return status ? status : set_scale(graph, node, 1, diag);
}

bool ngd_rows_swiglu_quant(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                           const char **why_p)
{
    return last_axis(graph, node, symbol, why_p);
}
