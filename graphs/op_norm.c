/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of operators that compute within a row: normalisations, softmax, rotary embedding and SwiGLU. */
#include "graphs/op_int.h"
#include <math.h>
#include <string.h>

/* Checks a layer_norm, and sets its first result. */
static ngd_status_t layer_norm_result(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    static const char *const roles[] = {"x", "weight", "bias"};
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const struct ngd_attr_value *shape = ngd_op_attr(node, "normalized_shape");
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);
    char text[NGD_OP_TEXT];

    if (status)
        return status;
    if (shape->n == 0 || shape->n > x->rank ||
        memcmp(shape->list, &x->dims[x->rank - shape->n], shape->n * sizeof(shape->list[0])) != 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "normalized_shape must equal the last dimensions of %%%s, %s",
                           ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, x, text));
    for (uint32_t i = 1; i < 3; i++) {
        if (!ngd_node_has(node, i))
            continue;
        status = ngd_op_same_or_narrower(graph, node, i, roles[i], diag);
        if (!status)
            status = ngd_op_shape_is(graph, node, i, roles[i], shape->n, shape->list, "of normalized_shape", diag);
        if (status)
            return status;
    }
    return ngd_op_result(graph, node, 0, x->dtype, x->rank, x->dims, diag);
}

ngd_status_t ngd_shape_layer_norm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return layer_norm_result(graph, node, diag);
}

/* Mean and rstd are f32 for any dtype of x, as in PyTorch's meta kernel. */
ngd_status_t ngd_shape_native_layer_norm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const uint32_t n = ngd_op_attr(node, "normalized_shape")->n;
    ngd_status_t status = layer_norm_result(graph, node, diag);
    ngd_dim_t dims[NGD_MAX_RANK];

    memcpy(dims, x->dims, sizeof(dims));
    for (uint32_t i = 0; i < n && !status; i++)
        dims[x->rank - 1 - i] = 1;
    for (uint32_t i = 1; i < 3 && !status; i++)
        status = ngd_op_result(graph, node, i, NGD_F32, x->rank, dims, diag);
    return status;
}

bool ngd_rows_layer_norm(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                         const char **why_p)
{
    uint32_t rank = ngd_node_in(graph, node, 0)->rank;

    return ngd_op_rows_axis(graph, node, symbol, rank - ngd_op_attr(node, "normalized_shape")->n, why_p);
}

bool ngd_rows_native_layer_norm(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                const char **why_p)
{
    return ngd_rows_layer_norm(graph, node, symbol, why_p);
}

static ngd_status_t check_gamma(struct ngd_graph *graph, struct ngd_node *node, uint32_t gamma, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (status)
        return status;
    if (x->rank == 0)
        return ngd_op_rank_is(graph, node, 0, "x", 1, "[...,D]", diag);
    status = ngd_op_same_or_narrower(graph, node, gamma, "gamma", diag);
    return status ? status : ngd_op_shape_is(graph, node, gamma, "gamma", 1, &x->dims[x->rank - 1], "[D]", diag);
}

/* Sets the results: x normalised over its last dimension with gamma, and rstd with a last dimension of 1. */
static ngd_status_t rms_results(struct ngd_graph *graph, struct ngd_node *node, uint32_t gamma, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = check_gamma(graph, node, gamma, diag);

    if (status)
        return status; /* rank 0, for example, has no last dimension */
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = 1;
    status = ngd_op_result(graph, node, 0, x->dtype, x->rank, x->dims, diag);
    return status ? status : ngd_op_result(graph, node, 1, NGD_F32, x->rank, dims, diag);
}

ngd_status_t ngd_shape_rms_norm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    return rms_results(graph, node, 1, diag);
}

ngd_status_t ngd_op_check_add_norm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_op_dtype_is(graph, node, 1, "x2", x->dtype, diag);

    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "x2", x->rank, x->dims, "of x1's shape", diag);
    return status ? status : check_gamma(graph, node, 2, diag);
}

ngd_status_t ngd_shape_add_rms_norm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_op_check_add_norm(graph, node, diag);

    if (!status)
        status = rms_results(graph, node, 2, diag);
    return status ? status : ngd_op_result(graph, node, 2, x->dtype, x->rank, x->dims, diag);
}

ngd_status_t ngd_shape_add_rms_norm_cast(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_check_add_norm(graph, node, diag);

    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = 1;
    status = ngd_op_result(graph, node, 0, NGD_F32, x->rank, x->dims, diag);
    if (!status)
        status = ngd_op_result(graph, node, 1, x->dtype, x->rank, x->dims, diag);
    if (!status)
        status = ngd_op_result(graph, node, 2, NGD_F32, x->rank, dims, diag);
    return status ? status : ngd_op_result(graph, node, 3, x->dtype, x->rank, x->dims, diag);
}

bool ngd_rows_rms_norm(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_rows_axis(graph, node, symbol, ngd_node_in(graph, node, 0)->rank - 1u, why_p);
}

bool ngd_rows_add_rms_norm(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                           const char **why_p)
{
    return ngd_rows_rms_norm(graph, node, symbol, why_p);
}

bool ngd_rows_add_rms_norm_cast(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                const char **why_p)
{
    return ngd_rows_rms_norm(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_softmax(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    bool widen = ngd_op_bool(node, "half_to_float");
    uint32_t axis;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);
    if (status)
        return status;
    if (widen && x->dtype == NGD_F32)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute half_to_float is true, but %%%s is f32 already: it is for f16 and bf16",
                           ngd_op_in_name(graph, node, 0));
    return ngd_op_result(graph, node, 0, widen ? NGD_F32 : x->dtype, x->rank, x->dims, diag);
}

/* As in PyTorch, the cast comes first. PyTorch also casts to narrower types; that is refused, because sums of rounded
 * weights differ. */
ngd_status_t ngd_shape_softmax_int(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const int64_t dtype = ngd_op_attr(node, "dtype")->i;
    uint32_t axis;
    ngd_status_t status = ngd_op_takes(graph, node, 0, "operand", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);
    if (status)
        return status;
    if (dtype >= 0 && dtype != (int64_t)x->dtype && dtype != NGD_F32)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute dtype is %s, but must be f32 or %s, as %%%s is: cast it with aten._to_copy",
                           ngd_dtype_name((ngd_dtype_t)dtype), ngd_dtype_name(x->dtype),
                           ngd_op_in_name(graph, node, 0));
    return ngd_op_result(graph, node, 0, dtype >= 0 ? (ngd_dtype_t)dtype : x->dtype, x->rank, x->dims, diag);
}

bool ngd_rows_softmax_int(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                          const char **why_p)
{
    return ngd_rows_softmax(graph, node, symbol, why_p);
}

bool ngd_rows_softmax(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    uint32_t axis = ngd_op_known_axis(node, "dim", ngd_node_in(graph, node, 0)->rank);

    return ngd_op_rows_axis(graph, node, symbol, axis, why_p);
}

/* Checks that cos or sin is [T,1,D] or [T,D] for x[T,H,D]. */
static ngd_status_t check_norm_table(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, const char *role,
                                     struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *r = ngd_node_in(graph, node, i);
    ngd_dim_t three[] = {x->dims[0], 1, x->dims[2]}, two[] = {x->dims[0], x->dims[2]};

    if (r->dtype != NGD_F32 && r->dtype != x->dtype)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE, "%s %%%s is %s, but must be f32 or x's dtype, %s",
                           role, ngd_op_in_name(graph, node, i), ngd_dtype_name(r->dtype), ngd_dtype_name(x->dtype));
    return r->rank == 2 ? ngd_op_shape_is(graph, node, i, role, 2, two, "[T,D] or [T,1,D]", diag)
                        : ngd_op_shape_is(graph, node, i, role, 3, three, "[T,1,D] or [T,D]", diag);
}

ngd_status_t ngd_op_check_rotary(struct ngd_graph *graph, struct ngd_node *node, const char *role, uint32_t i,
                                 struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    char text[NGD_OP_TEXT];
    ngd_status_t status = ngd_op_takes(graph, node, 0, role, NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 0, role, 3, "[T,H,D]", diag);
    if (!status)
        status = check_norm_table(graph, node, i, i == 1 ? "r1" : "cos", diag);
    if (!status)
        status = check_norm_table(graph, node, i + 1, i == 1 ? "r2" : "sin", diag);
    if (status)
        return status;
    if (!ngd_dim_is_const(x->dims[2]) || x->dims[2] % 2)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "%s %%%s is %s, but its last dimension must be an even constant", role,
                           ngd_op_in_name(graph, node, 0), ngd_op_type_text(graph, x, text));
    return NGD_OK;
}

ngd_status_t ngd_shape_rotary(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const char *mode = ngd_op_str(node, "rotary_mode");
    ngd_status_t status = ngd_op_check_rotary(graph, node, "x", 1, diag);

    if (status)
        return status;
    if (strcmp(mode, "half") != 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute rotary_mode is \"%.32s\", but must be \"half\"", mode);
    return ngd_op_result(graph, node, 0, x->dtype, 3, x->dims, diag);
}

ngd_status_t ngd_shape_swiglu(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK], half;
    uint32_t axis;
    bool exact;
    char text[NGD_OP_TEXT];
    ngd_status_t status = ngd_op_takes(graph, node, 0, "x", NGD_TAKES_FLOAT, diag);

    if (!status)
        status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);
    if (status)
        return status;
    status = ngd_expr_divide(graph->exprs, x->dims[axis], 2, &exact, &half);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "half of dimension dim");
    if (!exact)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE, "dimension %u of %%%s, %s, does not divide by 2",
                           axis, ngd_op_in_name(graph, node, 0), ngd_op_dim_text(graph, x->dims[axis], text));
    memcpy(dims, x->dims, sizeof(dims));
    dims[axis] = half;
    return ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

ngd_status_t ngd_shape_clipped_swiglu(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    static const char *const finite[] = {"alpha", "limit", "bias"};
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_shape_swiglu(graph, node, diag);

    if (!status && ngd_op_known_axis(node, "dim", x->rank) + 1 != x->rank)
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute dim must be the last dimension");
    for (size_t i = 0; i < 3 && !status; i++)
        if (!isfinite(ngd_op_float(node, finite[i])))
            status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %s must be a finite number",
                                 finite[i]);
    if (!status && ngd_op_float(node, "limit") <= 0)
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute limit must be positive");
    return status;
}

bool ngd_rows_clipped_swiglu(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                             const char **why_p)
{
    return ngd_rows_softmax(graph, node, symbol, why_p);
}

bool ngd_rows_swiglu(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_rows_softmax(graph, node, symbol, why_p);
}
