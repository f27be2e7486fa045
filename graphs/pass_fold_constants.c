/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold_constants: replaces nodes whose results are known.
 *
 *   - aten.full replaces other operators that fill a tensor with one value (aten.zeros, aten.ones_like, ...), so that
 *     they need no operand;
 *   - aten.full replaces views, casts, elementwise operators, concatenations, paddings, triangles and reductions of
 *     such tensors;
 *   - an operand replaces aten.where.self or aten.masked_fill.Scalar if it is taken everywhere;
 *   - one aten.arange replaces sums, multiples and casts of another.
 *
 * Correct because every element of the result has the same value. It is computed here as the device would compute it
 * (uniform.h), and only if no device could get another result: a sum only if all partial sums are exact. A range is
 * folded only if it is constant and does not wrap. An operand in a state does not replace a result that is read after
 * a later write to that state.
 */
#include "graphs/graph_int.h"
#include "graphs/op_int.h"
#include "graphs/pass.h"
#include "graphs/uniform.h"
#include "graphs/op_traits.h"
#include <math.h>
#include <string.h>

/* ---- uniform tensors ---- */

/* Returns how many elements a reduction reduces to one; 0: not known. */
static int64_t reduced(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    const struct ngd_type *x = ngd_rewrite_type(rw, n->in[0]);
    const uint32_t axes = ngd_op_reduced_axes(n->op, n->attrs, x->rank);
    int64_t count = 1;

    for (uint32_t i = 0; i < x->rank; i++)
        if (axes >> i & 1)
            if (!ngd_dim_is_const(x->dims[i]) || __builtin_mul_overflow(count, x->dims[i], &count))
                return 0;
    return count;
}

/* Returns true if each partial sum of n times v, in any order, is exact in f32. */
static bool sum_is_exact(double v, int64_t n)
{
    int exponent;
    double digits = frexp(v, &exponent) * 0x1p24; /* a whole number if v is a float */

    if (v == 0 || !isfinite(v) || n > (int64_t)1 << 24)
        return v == 0;
    while (fmod(digits, 2) == 0)
        digits /= 2;
    return fabs(digits) * (double)n <= 0x1p24 && isfinite((float)(v * (double)n));
}

static bool fold_total(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *x, bool mean,
                       struct ngd_uniform *u_p)
{
    const ngd_dtype_t from = ngd_rewrite_type(rw, n->in[0])->dtype, to = ngd_rewrite_type(rw, n->out[0])->dtype;
    int64_t count = reduced(rw, n);
    double sum = ngd_uniform_number(from, x) * (double)count + 0.0; /* a sum begins with 0, so that of -0 is 0 */

    if (count == 0 || ngd_dtype_is_float(from) != ngd_dtype_is_float(to))
        return false;
    if (ngd_dtype_is_float(from) ? !sum_is_exact(x->f, count) : fabs(sum) >= 0x1p53) /* f64 rounds larger integers */
        return false;
    return ngd_uniform_round(to, mean ? (double)(float)(sum / (double)count) : sum, u_p);
}

bool ngd_fold_sum(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *x,
                  struct ngd_uniform *u_p)
{
    return fold_total(rw, n, x, false, u_p);
}

bool ngd_fold_mean(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *x,
                   struct ngd_uniform *u_p)
{
    return fold_total(rw, n, x, true, u_p);
}

bool ngd_fold_extreme(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *x,
                      struct ngd_uniform *u_p)
{
    *u_p = *x;
    return reduced(rw, n) > 0;
}

bool ngd_fold_truth(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *x,
                    struct ngd_uniform *u_p)
{
    *u_p = (struct ngd_uniform){.i = ngd_uniform_number(ngd_rewrite_type(rw, n->in[0])->dtype, x) != 0};
    return reduced(rw, n) > 0;
}

/* The rest of a triangle is 0, so only a tensor of zeros stays uniform. */
bool ngd_fold_triangle(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *x,
                       struct ngd_uniform *u_p)
{
    static const struct ngd_uniform zero;

    *u_p = *x;
    return ngd_uniform_equal(ngd_rewrite_type(rw, n->in[0])->dtype, x, &zero);
}

bool ngd_fold_pad(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *x,
                  struct ngd_uniform *u_p)
{
    const ngd_dtype_t dtype = ngd_rewrite_type(rw, n->in[0])->dtype;

    return ngd_uniform_round(dtype, ngd_op_float(n, "value"), u_p) && ngd_uniform_equal(dtype, x, u_p);
}

/* in: a value for each operand of the node. */
bool ngd_fold_cat(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                  struct ngd_uniform *u_p)
{
    for (uint32_t i = 1; i < n->n_in; i++)
        if (!ngd_uniform_equal(ngd_rewrite_type(rw, n->in[0])->dtype, &in[0], &in[i]))
            return false;
    *u_p = in[0];
    return true;
}

/* Folds aten.where of three uniform operands. If only the condition is uniform, see ngd_pick_where. */
bool ngd_fold_where(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                    struct ngd_uniform *u_p)
{
    (void)rw;
    (void)n;
    *u_p = in[in[0].i ? 1 : 2];
    return true;
}

bool ngd_fold_masked_fill(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                          struct ngd_uniform *u_p)
{
    *u_p = in[0];
    return !in[1].i || ngd_uniform_round(ngd_rewrite_type(rw, n->in[0])->dtype, ngd_op_float(n, "value"), u_p);
}

#define MAX_OPERANDS 16

/* Gives the value of all elements of the node's results. Returns false if it is not known. */
static bool fold(const struct ngd_rewrite *rw, const struct ngd_node *n, struct ngd_uniform *u_p)
{
    struct ngd_uniform in[MAX_OPERANDS];

    if (n->n_in == 0 || n->n_in > MAX_OPERANDS || n->n_out == 0 || n->op->mutates)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == NGD_VALUE_NONE || !ngd_uniform_of(rw, n->in[i], &in[i]))
            return false;
    *u_p = in[0];
    if (n->op->flags & NGD_OPF_VIEW) /* a view that repeats one element is cheaper than a full tensor */
        return !ngd_op_traits[n->op->id].repeats;
    if (ngd_op_traits[n->op->id].fold)
        return ngd_op_traits[n->op->id].fold(rw, n, in, u_p);
    return (n->op->flags & NGD_OPF_ELEMENTWISE) && ngd_uniform_compute(rw, n, in, u_p);
}

/* Replaces a value by aten.full (size, fill_value, dtype). */
static ngd_status_t put_full(struct ngd_pass_context *ctx, uint32_t node, uint32_t old, struct ngd_scalar v)
{
    const struct ngd_op *full = ngd_op_by_id(NGD_OP_ATEN_FULL);
    struct ngd_type type = *ngd_rewrite_type(ctx->rw, old);
    struct ngd_attr_value attrs[] = {{.list = type.dims, .n = type.rank}, {.f = v.f, .i = v.i}, {.i = type.dtype}};
    uint32_t made;
    ngd_status_t status = ngd_rewrite_add(ctx->rw, node, full, NULL, 0, attrs, &made, ctx->diag);

    if (!status)
        ngd_rewrite_replace(ctx->rw, old, ngd_rewrite_node(ctx->rw, made)->out[0]);
    return status;
}

static ngd_status_t put_constant(struct ngd_pass_context *ctx, uint32_t node, struct ngd_scalar v)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < ngd_rewrite_node(ctx->rw, node)->n_out && !status; i++)
        status = put_full(ctx, node, ngd_rewrite_node(ctx->rw, node)->out[i], v);
    if (status)
        return status;
    ngd_rewrite_remove(ctx->rw, node);
    ctx->changed++;
    return NGD_OK;
}

/* ---- uniform conditions ---- */

uint32_t ngd_pick_where(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    struct ngd_uniform condition;

    return !ngd_uniform_of(rw, n->in[0], &condition) ? NGD_NO_OPERAND : condition.i ? 1 : 2;
}

uint32_t ngd_pick_masked_fill(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    struct ngd_uniform mask;

    return ngd_uniform_of(rw, n->in[1], &mask) && !mask.i ? 0 : NGD_NO_OPERAND;
}

/* Returns the operand that is the whole result because the condition is uniform. */
static uint32_t picked(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    ngd_same_fn *const pick = ngd_op_traits[n->op->id].pick;
    const uint32_t i = pick ? pick(rw, n) : NGD_NO_OPERAND;

    return i != NGD_NO_OPERAND && ngd_type_equal(ngd_rewrite_type(rw, n->in[i]), ngd_rewrite_type(rw, n->out[0]))
               ? i
               : NGD_NO_OPERAND;
}

/* Gives the value with which a mask that is true everywhere fills the result. */
bool ngd_cover_masked_fill(const struct ngd_rewrite *rw, const struct ngd_node *n, struct ngd_uniform *u_p)
{
    return ngd_uniform_of(rw, n->in[1], u_p) && u_p->i &&
           ngd_uniform_round(ngd_rewrite_type(rw, n->out[0])->dtype, ngd_op_float(n, "value"), u_p);
}

static void put_operand(struct ngd_pass_context *ctx, uint32_t node, uint32_t value)
{
    ngd_rewrite_replace(ctx->rw, ngd_rewrite_node(ctx->rw, node)->out[0], value);
    ngd_rewrite_remove(ctx->rw, node);
    ctx->changed++;
}

/* ---- ranges ---- */

struct range {
    int64_t start, step, n;
};

#define LARGEST_INDEX ((int64_t)1 << 31)

static int64_t int_attr_or(const struct ngd_node *n, const char *attr, int64_t otherwise)
{
    return ngd_op_attr_index(n->op, attr, strlen(attr)) < 0 ? otherwise : ngd_op_int(n, attr);
}

/* Returns true if the dtype has all numbers of the range. */
static bool dtype_covers(ngd_dtype_t dtype, const struct range *r)
{
    struct ngd_uniform first, last;

    return r->n > 0 && r->step > 0 && r->n <= LARGEST_INDEX && r->step <= LARGEST_INDEX && r->start >= -LARGEST_INDEX &&
           r->start <= LARGEST_INDEX && (r->n - 1) * r->step < LARGEST_INDEX &&
           ngd_uniform_cast(NGD_I64, &(struct ngd_uniform){.i = r->start}, dtype, &first) &&
           ngd_uniform_cast(NGD_I64, &(struct ngd_uniform){.i = r->start + (r->n - 1) * r->step}, dtype, &last);
}

static bool value_range(const struct ngd_rewrite *rw, uint32_t value, struct range *r_p)
{
    uint32_t maker = ngd_rewrite_maker(rw, value);
    const struct ngd_node *n = maker == NGD_NODE_NONE ? NULL : ngd_rewrite_node(rw, maker);
    const struct ngd_type *type = ngd_rewrite_type(rw, value);
    struct range r;

    if (!n || !ngd_op_traits[n->op->id].counts || !ngd_dtype_is_int(type->dtype) || !ngd_dim_is_const(type->dims[0]))
        return false;
    r = (struct range){.start = int_attr_or(n, "start", 0), .step = int_attr_or(n, "step", 1), .n = type->dims[0]};
    *r_p = r;
    return ngd_dim_is_const(r.start) && dtype_covers(type->dtype, &r);
}

/* Gives the range that an operator makes of another range. */
static bool fold_range(const struct ngd_rewrite *rw, const struct ngd_node *n, struct range *r_p)
{
    const ngd_arithmetic_t arithmetic = ngd_op_traits[n->op->id].arithmetic;
    const bool cast = n->op->flags & NGD_OPF_IDENTITY, scaled = arithmetic == NGD_ARITHMETIC_PRODUCT;
    const bool moved = ngd_op_adds(n->op);
    double v = 0;

    if (n->n_in != 1 || !(cast || scaled || moved) || !value_range(rw, n->in[0], r_p))
        return false;
    if (!cast)
        v = ngd_op_float(n, "other") * (moved ? ngd_op_float(n, "alpha") : 1);
    if (v != trunc(v) || fabs(v) > (double)LARGEST_INDEX || (scaled && v < 1))
        return false;
    if (scaled && (__builtin_mul_overflow(r_p->start, (int64_t)v, &r_p->start) ||
                   __builtin_mul_overflow(r_p->step, (int64_t)v, &r_p->step)))
        return false;
    if (moved)
        r_p->start += arithmetic == NGD_ARITHMETIC_DIFFERENCE ? -(int64_t)v : (int64_t)v;
    return ngd_rewrite_type(rw, n->out[0])->dtype != NGD_BOOL && r_p->step <= INT32_MAX &&
           dtype_covers(ngd_rewrite_type(rw, n->out[0])->dtype, r_p);
}

/* Replaces a node by aten.arange.start_step (start, end, step, dtype). */
static ngd_status_t put_range(struct ngd_pass_context *ctx, uint32_t node, const struct range *r)
{
    uint32_t old = ngd_rewrite_node(ctx->rw, node)->out[0], made;
    struct ngd_attr_value attrs[] = {{.i = r->start},
                                     {.i = r->start + (r->n - 1) * r->step + 1},
                                     {.i = r->step},
                                     {.i = ngd_rewrite_type(ctx->rw, old)->dtype}};
    ngd_status_t status =
        ngd_rewrite_add(ctx->rw, node, ngd_op_by_id(NGD_OP_ATEN_ARANGE), NULL, 0, attrs, &made, ctx->diag);

    if (!status)
        put_operand(ctx, node, ngd_rewrite_node(ctx->rw, made)->out[0]);
    return status;
}

/* Returns true if an attribute is an integer that f64 does not have.
 * Folding computes in f64, so it skips such nodes. */
static bool has_wide(const struct ngd_node *n)
{
    for (uint32_t i = 0; i < n->op->n_attrs; i++)
        if (n->op->attrs[i].type == NGD_ATTR_FLOAT && n->attrs[i].i)
            return true;
    return false;
}

static ngd_status_t fold_node(struct ngd_pass_context *ctx, uint32_t node)
{
    const struct ngd_node *n = ngd_rewrite_node(ctx->rw, node);
    ngd_dtype_t dtype = n->n_out ? ngd_rewrite_type(ctx->rw, n->out[0])->dtype : NGD_F32;
    ngd_cover_fn *const cover = ngd_op_traits[n->op->id].cover;
    struct ngd_uniform u;
    struct range range;
    uint32_t pick;

    /* aten.full is the operator with which this pass replaces the others. */
    if (ngd_op_fills_all(n->op) && n->op->id != NGD_OP_ATEN_FULL)
        return put_constant(ctx, node, ngd_op_fill_value(n->op, n->attrs));
    if (has_wide(n))
        return NGD_OK;
    if (fold(ctx->rw, n, &u) || (cover && cover(ctx->rw, n, &u)))
        return put_constant(ctx, node, (struct ngd_scalar){.f = ngd_uniform_number(dtype, &u)});
    if (fold_range(ctx->rw, n, &range))
        return put_range(ctx, node, &range);
    pick = picked(ctx->rw, n);
    if (pick != NGD_NO_OPERAND && !ngd_rewrite_written_between(ctx->rw, n->in[pick], node, NGD_NODE_NONE))
        put_operand(ctx, node, n->in[pick]);
    return NGD_OK;
}

ngd_status_t ngd_pass_fold_constants(struct ngd_pass_context *ctx)
{
    ngd_status_t status = NGD_OK;
    uint32_t next;

    for (uint32_t n = ctx->rw->first; n != NGD_NODE_NONE && !status; n = next) {
        next = ctx->rw->nodes[n].next;
        status = fold_node(ctx, n);
    }
    return status;
}
