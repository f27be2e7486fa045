/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of quantisation, alone and fused with a normalisation or SwiGLU, and of products with quantised weights.
 */
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

/* ---- products with quantised weights ---- */

#define INT4_OF_I32     8
/* The host's vectors divide groups. CANN asks for 32; groups of 16 i8 are Q6_K's, of GGUF files. */
#define GROUP_STEP_I8   16
#define GROUP_STEP_WIDE 32
#define GROUP_F4        32 /* of MXFP4 */
#define ZERO_MAX        255

/* Gives the weight's K and N. An i32 has eight weights along K or along N: the side that has K elements says which. A
 * u8 has two along K. */
static ngd_status_t weight_sizes(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t *n_p, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *w = ngd_node_in(graph, node, 1);
    const ngd_dim_t k = last(x);
    char text[NGD_OP_TEXT], dim[NGD_OP_TEXT];
    const bool packed = w->dtype == NGD_I32, pairs = w->dtype == NGD_U8;
    bool exact = false;
    ngd_dim_t words = 0;
    ngd_status_t status = NGD_OK;

    if (packed || pairs)
        status = ngd_expr_divide(graph->exprs, k, packed ? INT4_OF_I32 : 2, &exact, &words);
    if (!status && exact && w->dims[0] == words) {
        *n_p = w->dims[1];
        return NGD_OK;
    }
    if (!status && (pairs || w->dims[0] != k))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "weight %%%s is %s, but %%%s has %s columns: it must be %s", ngd_op_in_name(graph, node, 1),
                           ngd_op_type_text(graph, w, text), ngd_op_in_name(graph, node, 0),
                           ngd_op_dim_text(graph, k, dim),
                           packed  ? "[K/8,N] or [K,N/8]"
                           : pairs ? "[K/2,N]"
                                   : "[K,N]");
    *n_p = w->dims[1];
    if (!status && packed)
        status = ngd_expr_make(graph->exprs, NGD_EXPR_MUL, w->dims[1], INT4_OF_I32, n_p);
    return status ? ngd_op_expr_fail(graph, node, diag, status, "the weight's size") : NGD_OK;
}

static bool is_of_blocks(ngd_antiquant_t what)
{
    return what == NGD_ANTIQUANT_BLOCK_SCALE || what == NGD_ANTIQUANT_BLOCK_MINIMUM;
}

ngd_status_t ngd_op_antiquant_dtype(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_antiquant_t what,
                                    const struct ngd_antiquant_form *f, struct ngd_diag *diag)
{
    const char *role = ngd_antiquant_names[what].name;
    const bool scaled = (what == NGD_ANTIQUANT_SCALE || what == NGD_ANTIQUANT_MINIMUM) &&
                        f->has & NGD_ANTIQUANT_BIT(what == NGD_ANTIQUANT_SCALE ? NGD_ANTIQUANT_BLOCK_SCALE
                                                                               : NGD_ANTIQUANT_BLOCK_MINIMUM);

    if (f->weight == NGD_U8 || scaled)
        return ngd_op_dtype_is(graph, node, i, role, f->weight == NGD_U8 ? NGD_U8 : NGD_I8, diag);
    return ngd_op_same_or_narrower(graph, node, i, role, diag);
}

ngd_status_t ngd_op_antiquant_groups(struct ngd_graph *graph, ngd_antiquant_t what, const struct ngd_antiquant_form *f,
                                     ngd_dim_t k, ngd_dim_t n, ngd_dim_t *k_p, ngd_dim_t *n_p)
{
    const int64_t size = is_of_blocks(what) ? f->block : f->group;
    ngd_status_t status = NGD_OK;

    *k_p = 1;
    if (size)
        status = ngd_op_range_length(graph, 0, k, size, k_p);
    return status ? status : ngd_op_range_length(graph, 0, n, f->columns, n_p);
}

/* Checks that an operand has one element, one for each column, or one for each group of rows and columns. */
static ngd_status_t check_antiquant(struct ngd_graph *graph, struct ngd_node *node, ngd_antiquant_t what,
                                    const struct ngd_antiquant_form *f, ngd_dim_t n, struct ngd_diag *diag)
{
    const uint32_t i = ngd_antiquant_names[what].operand;
    const char *role = ngd_antiquant_names[what].name;
    const struct ngd_type *s = ngd_node_in(graph, node, i);
    ngd_dim_t dims[2];
    ngd_status_t status = ngd_op_antiquant_dtype(graph, node, i, what, f, diag);

    if (status)
        return status;
    if (f->group == 0 && s->rank == 1 && s->dims[0] == 1)
        return NGD_OK;
    if (f->group == 0 && s->rank == 1)
        return ngd_op_shape_is(graph, node, i, role, 1, &n, "[1], [N] or [1,N]", diag);
    status = ngd_op_antiquant_groups(graph, what, f, last(ngd_node_in(graph, node, 0)), n, &dims[0], &dims[1]);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "the number of groups");
    return ngd_op_shape_is(graph, node, i, role, 2, dims,
                           is_of_blocks(what) ? "[ceil(K/antiquant_block_size),N]"
                           : f->columns > 1   ? "[ceil(K/antiquant_group_size),ceil(N/antiquant_group_columns)]"
                           : f->group         ? "[ceil(K/antiquant_group_size),N]"
                                              : "[1,N]",
                           diag);
}

static ngd_status_t check_quant_operands(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *w = ngd_node_in(graph, node, 1);
    ngd_status_t status = check_quant_rows(graph, node, diag);

    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "weight", 2, "[K,N]", diag);
    if (!status && w->dtype != NGD_I8 && w->dtype != NGD_I32 && w->dtype != NGD_U8 && w->dtype != NGD_F8_E4M3FN)
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE,
                             "weight %%%s is %s, but must be i8, i32, u8 or f8_e4m3fn", ngd_op_in_name(graph, node, 1),
                             ngd_dtype_name(w->dtype));
    if (!status && (ngd_node_has(node, 4) || ngd_node_has(node, 5)))
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY,
                             "quant_scale and quant_offset must be none: use npu.quantize on the result");
    return status;
}

/* Checks the bias: [N] or [1,N], f32 or x's dtype. */
static ngd_status_t check_quant_bias(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t n, struct ngd_diag *diag)
{
    const ngd_dim_t dims[2] = {1, n};
    const struct ngd_type *bias;
    bool row;

    if (!ngd_node_has(node, 6))
        return NGD_OK;
    bias = ngd_node_in(graph, node, 6);
    row = bias->rank == 2;
    if (bias->dtype != NGD_F32) {
        ngd_status_t status = ngd_op_same_or_narrower(graph, node, 6, "bias", diag);

        if (status)
            return status;
    }
    return ngd_op_shape_is(graph, node, 6, "bias", row ? 2 : 1, row ? dims : &n, "[N] or [1,N]", diag);
}

/* Checks which operands there are. */
static ngd_status_t check_antiquant_set(struct ngd_graph *graph, struct ngd_node *node,
                                        const struct ngd_antiquant_form *f, int64_t zero, struct ngd_diag *diag)
{
    static const struct {
        ngd_antiquant_t what, needs;
    } needs[] = {{NGD_ANTIQUANT_OFFSET, NGD_ANTIQUANT_SCALE},
                 {NGD_ANTIQUANT_MINIMUM, NGD_ANTIQUANT_SCALE},
                 {NGD_ANTIQUANT_BLOCK_SCALE, NGD_ANTIQUANT_SCALE},
                 {NGD_ANTIQUANT_BLOCK_MINIMUM, NGD_ANTIQUANT_MINIMUM}};
    const uint32_t blocks =
        NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_BLOCK_SCALE) | NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_BLOCK_MINIMUM);

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
        if (f->has & NGD_ANTIQUANT_BIT(needs[i].what) && !(f->has & NGD_ANTIQUANT_BIT(needs[i].needs)))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "%s needs %s",
                               ngd_antiquant_names[needs[i].what].name, ngd_antiquant_names[needs[i].needs].name);
    if ((f->weight == NGD_F8_E4M3FN || f->weight == NGD_U8) &&
        (zero || f->has & ~NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_SCALE)))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "a weight of %s has an antiquant_scale alone",
                           ngd_dtype_name(f->weight));
    if (!(f->has & blocks) != !f->block)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
            "antiquant_block_size is for antiquant_block_scale and antiquant_block_minimum, which need it");
    return NGD_OK;
}

/* Checks the sizes of groups and blocks. */
static ngd_status_t check_antiquant_sizes(struct ngd_graph *graph, struct ngd_node *node,
                                          const struct ngd_antiquant_form *f, struct ngd_diag *diag)
{
    const int64_t step = f->weight == NGD_I8 ? GROUP_STEP_I8 : GROUP_STEP_WIDE;

    if (f->columns > 1 && (f->group == 0 || f->block || f->weight == NGD_U8))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute antiquant_group_columns must be 1 %s",
                           f->weight == NGD_U8 ? "for a weight of u8"
                           : f->block          ? "with antiquant_block_size"
                                               : "without antiquant_group_size");
    if (f->weight == NGD_U8 && f->group != GROUP_F4)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute antiquant_group_size must be %d for a weight of u8", GROUP_F4);
    if (f->group % step != 0)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute antiquant_group_size must be 0 or a multiple of %d", (int)step);
    if (f->block && (f->group == 0 || f->block % f->group != 0))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute antiquant_block_size must be a multiple of antiquant_group_size");
    return NGD_OK;
}

ngd_status_t ngd_op_antiquant_form(struct ngd_graph *graph, struct ngd_node *node, struct ngd_antiquant_form *f,
                                   struct ngd_diag *diag)
{
    int64_t zero = 0;
    ngd_status_t status = ngd_op_const(graph, node, "antiquant_group_size", 0, INT32_MAX, &f->group, diag);

    if (!status)
        status = ngd_op_const(graph, node, "antiquant_group_columns", 1, INT32_MAX, &f->columns, diag);
    if (!status)
        status = ngd_op_const(graph, node, "antiquant_block_size", 0, INT32_MAX, &f->block, diag);
    if (!status)
        status = ngd_op_const(graph, node, "antiquant_zero", -ZERO_MAX, ZERO_MAX, &zero, diag);
    if (!status)
        status = check_antiquant_set(graph, node, f, zero, diag);
    return status ? status : check_antiquant_sizes(graph, node, f, diag);
}

ngd_status_t ngd_shape_weight_quant_matmul(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    struct ngd_antiquant_form f = {.weight = ngd_node_in(graph, node, 1)->dtype};
    ngd_dim_t n = 0, dims[NGD_MAX_RANK];
    ngd_status_t status = check_quant_operands(graph, node, diag);

    for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
        f.has |= ngd_node_has(node, ngd_antiquant_names[i].operand) ? NGD_ANTIQUANT_BIT(i) : 0;
    if (!status)
        status = ngd_op_antiquant_form(graph, node, &f, diag);
    if (!status)
        status = weight_sizes(graph, node, &n, diag);
    for (uint32_t i = 0; i < NGD_ANTIQUANTS && !status; i++)
        if (f.has & NGD_ANTIQUANT_BIT(i))
            status = check_antiquant(graph, node, (ngd_antiquant_t)i, &f, n, diag);
    if (!status)
        status = check_quant_bias(graph, node, n, diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = n;
    return ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

bool ngd_rows_weight_quant_matmul(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                                  const char **why_p)
{
    for (uint32_t i = 1; i < node->n_in; i++) {
        if (ngd_op_in_carries(graph, node, i, symbol)) {
            *why_p = "the weight or its scales have rows of it";
            return false;
        }
    }
    return ngd_rows_leading(graph, node, symbol, why_p);
}

/* ---- products of quantised rows and weights ---- */

static ngd_status_t check_quantised(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_status_t status = ngd_op_dtype_is(graph, node, 0, "x1", NGD_I8, diag);

    if (!status && x->rank < 2)
        status = ngd_op_rank_is(graph, node, 0, "x1", 2, "[...,K]", diag);
    if (!status)
        status = ngd_op_dtype_is(graph, node, 1, "x2", NGD_I8, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "x2", 2, "[K,N]", diag);
    if (!status)
        status = ngd_op_shape_is(graph, node, 1, "x2", 2, (ngd_dim_t[]){last(x), ngd_node_in(graph, node, 1)->dims[1]},
                                 "[K,N]", diag);
    if (!status && ngd_node_has(node, 3))
        status =
            ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY, "offset must be none: use npu.quantize on the result");
    return status;
}

/* Checks scale and pertoken_scale. */
static ngd_status_t check_product_scales(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t n,
                                         struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *s = ngd_node_in(graph, node, 2);
    ngd_status_t status = NGD_OK;

    if (s->dtype != NGD_F32 && s->dtype != NGD_BF16)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE, "scale %%%s is %s, but must be f32 or bf16",
                           ngd_op_in_name(graph, node, 2), ngd_dtype_name(s->dtype));
    if (s->rank != 1 || s->dims[0] != 1)
        status = ngd_op_shape_is(graph, node, 2, "scale", 1, &n, "[1] or [N]", diag);
    if (status || !ngd_node_has(node, 4))
        return status;
    if (x->rank != 2)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_RANK,
                           "with a pertoken_scale, x1 must be [M,K]: view it and the result");
    status = ngd_op_dtype_is(graph, node, 4, "pertoken_scale", NGD_F32, diag);
    return status ? status : ngd_op_shape_is(graph, node, 4, "pertoken_scale", 1, x->dims, "[M]", diag);
}

static ngd_status_t check_product_result(struct ngd_graph *graph, struct ngd_node *node, ngd_dtype_t dtype, ngd_dim_t n,
                                         struct ngd_diag *diag)
{
    const ngd_dtype_t bias = ngd_node_has(node, 5) ? ngd_node_in(graph, node, 5)->dtype : NGD_I32;

    if (dtype != NGD_I32 && !ngd_dtype_is_float(dtype))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                           "attribute output_dtype must be f32, f16, bf16 or i32");
    if (bias != NGD_I32 && !ngd_dtype_is_float(bias))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_DTYPE, "bias %%%s is %s, but must be i32 or a float dtype",
                           ngd_op_in_name(graph, node, 5), ngd_dtype_name(bias));
    if (dtype == NGD_I32 && (bias != NGD_I32 || ngd_node_has(node, 4)))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ARITY,
                           "with output_dtype i32 there is no pertoken_scale, and a bias must be i32");
    return ngd_node_has(node, 5) ? ngd_op_shape_is(graph, node, 5, "bias", 1, &n, "[N]", diag) : NGD_OK;
}

ngd_status_t ngd_shape_quant_matmul(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const ngd_dtype_t dtype = (ngd_dtype_t)ngd_op_int(node, "output_dtype");
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = check_quantised(graph, node, diag);

    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = ngd_node_in(graph, node, 1)->dims[1];
    status = check_product_scales(graph, node, dims[x->rank - 1], diag);
    if (!status)
        status = check_product_result(graph, node, dtype, dims[x->rank - 1], diag);
    return status ? status : ngd_op_result(graph, node, 0, dtype, x->rank, dims, diag);
}

bool ngd_rows_quant_matmul(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                           const char **why_p)
{
    for (uint32_t i = 1; i < node->n_in; i++) {
        if (i != 4 && ngd_op_in_carries(graph, node, i, symbol)) {
            *why_p = "the weight, its scales or the bias have rows of it";
            return false;
        }
    }
    return ngd_rows_leading(graph, node, symbol, why_p);
}
