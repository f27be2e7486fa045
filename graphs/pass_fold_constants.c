/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold_constants: an aten.full in the place of a view of one, and of sums, differences, products and casts of such.
 *
 * Correct because every element of the result has the same value, which is computed here as the device would: f32 by
 * one rounded operation of f32, other dtypes only where operands and result are integers so small that all of them are
 * exact.
 */
#include "graphs/graph_int.h"
#include "graphs/pass.h"
#include <math.h>

#define EXACT_SMALL 256     /* integers that each dtype but bool has */
#define EXACT_INT   1048576 /* and f32, i32 and i64 */

/* The value of each element, if the node that makes this value says it. */
static bool constant_of(const struct ngd_rewrite *rw, uint32_t value, double *v_p)
{
    uint32_t maker = ngd_rewrite_maker(rw, value);

    if (maker == NGD_NODE_NONE || ngd_rewrite_node(rw, maker)->op->id != NGD_OP_ATEN_FULL)
        return false;
    *v_p = ngd_op_float(ngd_rewrite_node(rw, maker), "fill_value");
    if (!ngd_dtype_is_float(ngd_rewrite_type(rw, value)->dtype))
        *v_p += 0.0; /* integers have no -0 */
    return true;
}

static bool exact_in(ngd_dtype_t dtype, double v)
{
    double limit = dtype == NGD_F32 || dtype == NGD_I32 || dtype == NGD_I64 ? EXACT_INT
                   : dtype == NGD_F16 || dtype == NGD_BF16                  ? EXACT_SMALL
                                                                            : 0;

    return fabs(v) <= limit && v == trunc(v);
}

static bool unscaled(const struct ngd_node *n)
{
    return ngd_op_attr_index(n->op, "alpha", 5) < 0 || ngd_op_float(n, "alpha") == 1.0;
}

static bool combine(ngd_op_id_t op, ngd_dtype_t dtype, double a, double b, double *v_p)
{
    bool is_f32 = dtype == NGD_F32 && a == (double)(float)a && b == (double)(float)b;
    double v;

    switch (op) {
    case NGD_OP_ATEN_ADD_TENSOR:
    case NGD_OP_ATEN_ADD_SCALAR:
        v = is_f32 ? (double)((float)a + (float)b) : a + b;
        break;
    case NGD_OP_ATEN_SUB_TENSOR:
    case NGD_OP_ATEN_SUB_SCALAR:
        v = is_f32 ? (double)((float)a - (float)b) : a - b;
        break;
    case NGD_OP_ATEN_MUL_TENSOR:
    case NGD_OP_ATEN_MUL_SCALAR:
        v = is_f32 ? (double)((float)a * (float)b) : a * b;
        break;
    default:
        return false;
    }
    *v_p = v;
    return isfinite(v) && (is_f32 || (exact_in(dtype, a) && exact_in(dtype, b) && exact_in(dtype, v)));
}

/* The value of each element of the node's result. */
static bool fold(const struct ngd_rewrite *rw, const struct ngd_node *n, double *v_p)
{
    ngd_dtype_t dtype;
    double a, b;

    if (n->n_out != 1 || n->n_in == 0 || n->op->mutates || n->in[0] == NGD_VALUE_NONE || !constant_of(rw, n->in[0], &a))
        return false;
    dtype = ngd_rewrite_type(rw, n->in[0])->dtype;
    *v_p = a;
    if (n->op->flags & NGD_OPF_VIEW)
        return true;
    if (n->op->id == NGD_OP_ATEN_TO_COPY)
        return exact_in(dtype, a) && exact_in(ngd_rewrite_type(rw, n->out[0])->dtype, a);
    if (!unscaled(n))
        return false;
    if (n->n_in == 2)
        return constant_of(rw, n->in[1], &b) && combine(n->op->id, dtype, a, b, v_p);
    return ngd_op_attr_index(n->op, "other", 5) >= 0 && combine(n->op->id, dtype, a, ngd_op_float(n, "other"), v_p);
}

/* aten.full: size, fill_value, dtype. */
static ngd_status_t put_constant(struct ngd_pass_context *ctx, uint32_t node, double v)
{
    const struct ngd_op *full = ngd_op_by_id(NGD_OP_ATEN_FULL);
    uint32_t old = ngd_rewrite_node(ctx->rw, node)->out[0], made;
    struct ngd_type type = *ngd_rewrite_type(ctx->rw, old);
    struct ngd_attr_value attrs[] = {{.list = type.dims, .n = type.rank}, {.f = v}, {.i = type.dtype}};
    ngd_status_t status = ngd_rewrite_add(ctx->rw, node, full, NULL, 0, attrs, &made, ctx->diag);

    if (status)
        return status;
    ngd_rewrite_replace(ctx->rw, old, ngd_rewrite_node(ctx->rw, made)->out[0]);
    ngd_rewrite_remove(ctx->rw, node);
    ctx->changed++;
    return NGD_OK;
}

ngd_status_t ngd_pass_fold_constants(struct ngd_pass_context *ctx)
{
    ngd_status_t status = NGD_OK;
    uint32_t next;
    double v;

    for (uint32_t n = ctx->rw->first; n != NGD_NODE_NONE && !status; n = next) {
        next = ctx->rw->nodes[n].next;
        if (fold(ctx->rw, ngd_rewrite_node(ctx->rw, n), &v))
            status = put_constant(ctx, n, v);
    }
    return status;
}
