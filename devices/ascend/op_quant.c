/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builders of the operators of quantised models. Those with a norm in front are made of the norm and the quantisation,
 * as an operator of its own each, so that they take whatever the two take and give the same bits as the two.
 */
#include "devices/ascend/issue.h"

#define T(v)   ngd_ascend_tensor(c, &(v))
#define OPT(v) ((v).rank || (v).storage ? ngd_ascend_tensor(c, &(v)) : NULL)

/* An operand that need not be given: a view without anything in it when it is not. */
static struct ascend_view optional(struct ascend_issue *c, uint32_t i)
{
    return ngd_ascend_has(c, i) ? ngd_ascend_in(c, i) : (struct ascend_view){0};
}

static void last_is(struct ascend_issue *c, int64_t axis, uint32_t rank)
{
    if (axis != -1 && axis != (int64_t)rank - 1)
        ngd_ascend_refuse(c, "scales go along the last dimension only");
}

/* The same of operands that no fused operator takes, in f32; NaN becomes 0 when it is cast. */
static void quantize_by_parts(struct ascend_issue *c, const struct ascend_view *x, const struct ascend_view *scale,
                              const struct ascend_view *zero, bool divide, const struct ascend_view *y)
{
    const double lo = y->dtype == NGD_U8 ? 0 : y->dtype == NGD_I8 ? -128 : -2147483648.0;
    const double hi = y->dtype == NGD_U8 ? 255 : y->dtype == NGD_I8 ? 127 : 2147483520.0; /* the last f32 of an i32 */
    struct ascend_view v = ngd_ascend_cast(c, x, NGD_F32), s = ngd_ascend_cast(c, scale, NGD_F32), z;
    struct ascend_view t = ngd_ascend_temp(c, NGD_F32, x->rank, x->dims),
                       r = ngd_ascend_temp(c, NGD_F32, x->rank, x->dims);

    if (divide)
        ASCEND_RUN(c, Div, T(v), T(s), T(t));
    else
        ASCEND_RUN(c, Mul, T(v), T(s), T(t));
    if (zero->rank || zero->storage) {
        z = ngd_ascend_cast(c, zero, NGD_F32);
        ASCEND_RUN(c, InplaceAdd, T(t), T(z), ngd_ascend_scalar(c, 1, NGD_F32));
    }
    ASCEND_RUN(c, Round, T(t), T(r));
    ASCEND_RUN(c, Clamp, T(r), ngd_ascend_scalar(c, lo, NGD_F32), ngd_ascend_scalar(c, hi, NGD_F32), T(t));
    ngd_ascend_store(c, &t, y);
}

/* round(x/scale + zero), or with a product. */
static void quantize_view(struct ascend_issue *c, const struct ascend_view *x, const struct ascend_view *scale,
                          const struct ascend_view *zero, bool divide, const struct ascend_view *y)
{
    const int dtype = ngd_ascend_dtype(y->dtype);
    const bool has_zero = zero->rank || zero->storage;
    const struct ascend_view *const views[] = {x, scale, has_zero ? zero : NULL, y};
    char text[ASCEND_RULE_ROOM];

    if (ngd_ascend_refuses(c->dev, divide ? "Quantize" : "AscendQuantV3", views, 4, text) ||
        (!divide && (y->dtype != NGD_I8 || !c->acl->aclnnAscendQuantV3)))
        quantize_by_parts(c, x, scale, zero, divide, y);
    else if (divide)
        ASCEND_RUN(c, Quantize, ngd_ascend_tensor(c, x), ngd_ascend_tensor(c, scale), OPT(*zero), dtype,
                   (int32_t)x->rank - 1, ngd_ascend_tensor(c, y));
    else
        ASCEND_RUN(c, AscendQuantV3, ngd_ascend_tensor(c, x), ngd_ascend_tensor(c, scale), OPT(*zero), false, "round",
                   dtype, -1, ngd_ascend_tensor(c, y));
}

void ngd_ascend_build_quantize(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), scale = ngd_ascend_in(c, 1), zero = optional(c, 2),
                       y = ngd_ascend_out(c, 0);

    if (ngd_ascend_count(&scale) > 1)
        last_is(c, ngd_call_int(c->call, "axis"), x.rank);
    quantize_view(c, &x, &scale, &zero, ngd_call_int(c->call, "div_mode") != 0, &y);
}

/* What f32 is rounded to where CANN takes halves: bf16 has the range of f32. */
static ngd_dtype_t half_of(const struct ascend_issue *c, const char *function, uint32_t operand)
{
    return ngd_ascend_takes(c, function, operand, NGD_BF16) ? NGD_BF16 : NGD_F16;
}

static void dynamic(struct ascend_issue *c, const struct ascend_view *x, const struct ascend_view *smooth,
                    const struct ascend_view *y, const struct ascend_view *scale)
{
    const ngd_dtype_t dtype = x->dtype == NGD_F32 ? half_of(c, "DynamicQuant", 0) : x->dtype;
    const struct ascend_view v = ngd_ascend_cast(c, x, dtype),
                             s = smooth->rank ? ngd_ascend_cast(c, smooth, dtype) : *smooth;
    const struct ascend_view *const views[] = {&v, s.rank ? &s : NULL, y, scale};
    char text[ASCEND_RULE_ROOM];

    if (ngd_ascend_refuses(c->dev, "DynamicQuant", views, 4, text))
        ngd_ascend_refuse(c, "%s", text);
    ASCEND_RUN(c, DynamicQuant, T(v), OPT(s), ngd_ascend_tensor(c, y), ngd_ascend_tensor(c, scale));
}

void ngd_ascend_build_dynamic_quant(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), smooth = optional(c, 1), y = ngd_ascend_out(c, 0),
                       scale = ngd_ascend_out(c, 1);

    dynamic(c, &x, &smooth, &y, &scale);
}

void ngd_ascend_build_swiglu_quant(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), smooth = optional(c, 1), offsets = optional(c, 2),
                       y = ngd_ascend_out(c, 0), scale = ngd_ascend_out(c, 1);
    bool own = ngd_call_int(c->call, "quant_mode") == 1, left = ngd_call_int(c->call, "activate_left") != 0;
    const struct ascend_view *const views[] = {&x, smooth.rank ? &smooth : NULL, &y, &scale};
    char text[ASCEND_RULE_ROOM];

    if (ngd_ascend_refuses(c->dev, "SwiGluQuant", views, 4, text))
        ngd_ascend_refuse(c, "%s", text);
    if (!own && (!smooth.rank || !offsets.rank))
        ngd_ascend_refuse(c, "a static quantisation needs scales and offsets");
    if ((smooth.rank && smooth.dtype != NGD_F32) || (offsets.rank && offsets.dtype != NGD_F32))
        ngd_ascend_refuse(c, "scales and offsets are f32");
    if (own)
        offsets = (struct ascend_view){0};
    ASCEND_RUN(c, SwiGluQuant, T(x), OPT(smooth), OPT(offsets), NULL, left, own ? "dynamic" : "static", T(y), T(scale));
}

/* ---- behind a norm ------------------------------------------------------------------------------- */

/* rms_norm(x1 + x2) in the dtype of x1, and with a beta, which is added in f32, in that. x1 + x2 is a result. */
static struct ascend_view norm(struct ascend_issue *c, uint32_t beta_at, const struct ascend_view *sum)
{
    struct ascend_view a = ngd_ascend_in(c, 0), b = ngd_ascend_in(c, 1), g = ngd_ascend_in(c, 2);
    struct ascend_view y = ngd_ascend_temp(c, a.dtype, a.rank, a.dims), beta = optional(c, beta_at), r;
    int64_t rows[NGD_MAX_RANK];

    for (uint32_t i = 0; i < a.rank; i++)
        rows[i] = i + 1 == a.rank ? 1 : a.dims[i];
    r = ngd_ascend_temp(c, NGD_F32, a.rank, rows);
    g = ngd_ascend_cast(c, &g, a.dtype);
    ASCEND_RUN(c, AddRmsNorm, T(a), T(b), T(g), ngd_call_float(c->call, "epsilon"), T(y), T(r),
               ngd_ascend_tensor(c, sum));
    if (beta.rank) {
        y = ngd_ascend_cast(c, &y, NGD_F32); /* the sum is rounded once, when it becomes an integer */
        beta = ngd_ascend_cast(c, &beta, NGD_F32);
        ASCEND_RUN(c, InplaceAdd, T(y), T(beta), ngd_ascend_scalar(c, 1, NGD_F32));
    }
    return y;
}

void ngd_ascend_build_add_rms_norm_quant(struct ascend_issue *c)
{
    struct ascend_view sum = ngd_ascend_out(c, 2), y = norm(c, 5, &sum), out[2] = {ngd_ascend_out(c, 0), {0}};
    struct ascend_view scale[2] = {ngd_ascend_in(c, 3), optional(c, 6)}, zero[2] = {optional(c, 4), optional(c, 7)};
    bool divide = ngd_call_int(c->call, "div_mode") != 0;

    last_is(c, ngd_call_int(c->call, "axis"), y.rank);
    out[1] = ngd_ascend_out(c, 1);
    for (int i = 0; i < 2; i++)
        if (scale[i].rank)
            quantize_view(c, &y, &scale[i], &zero[i], divide, &out[i]);
}

void ngd_ascend_build_add_rms_norm_dynamic_quant(struct ascend_issue *c)
{
    struct ascend_view sum = ngd_ascend_out(c, 2), y = norm(c, 5, &sum), out, scale, smooth;

    for (uint32_t i = 0; i < 2; i++) {
        out = ngd_ascend_out(c, i);
        scale = ngd_ascend_out(c, 3 + i);
        smooth = optional(c, 3 + i);
        if (ngd_ascend_count(&out))
            dynamic(c, &y, &smooth, &out, &scale);
    }
}

void ngd_ascend_build_add_rms_norm_cast(struct ascend_issue *c)
{
    struct ascend_view a = ngd_ascend_in(c, 0), b = ngd_ascend_in(c, 1), g = ngd_ascend_in(c, 2);
    struct ascend_view wide = ngd_ascend_out(c, 0), y = ngd_ascend_out(c, 1), r = ngd_ascend_out(c, 2),
                       x = ngd_ascend_out(c, 3);

    g = ngd_ascend_cast(c, &g, a.dtype);
    ASCEND_RUN(c, AddRmsNorm, T(a), T(b), T(g), ngd_call_float(c->call, "epsilon"), T(y), T(r), T(x));
    ngd_ascend_store(c, &y, &wide);
}

/* ---- products with quantised weights ------------------------------------------------------------- */

#define INT4_OF_I32 8

/* The rows of v lie in memory one behind the other, without gaps: v is the transpose of what is contiguous. */
static bool is_transposed(const struct ascend_view *v)
{
    return (v->dims[0] == 1 || v->strides[0] == 1) && (v->dims[1] == 1 || v->strides[1] == v->dims[0]);
}

/* The transpose of contiguous elements: v itself, or a copy. */
static struct ascend_view turned_copy(struct ascend_issue *c, const struct ascend_view *v)
{
    struct ascend_view t = ngd_ascend_transpose(v);

    t = ngd_ascend_contiguous(c, &t);
    return ngd_ascend_transpose(&t);
}

/* i32 numbers, which hold eight int4 each along dimension 0 of a transpose, or along dimension 1. */
static struct ascend_view int4_of(const struct ascend_view *words, int dim)
{
    struct ascend_view w = *words;

    w.int4 = true;
    w.dims[dim] *= INT4_OF_I32;
    w.strides[dim] = 1;
    w.strides[1 - dim] = w.dims[dim];
    w.offset *= INT4_OF_I32;
    w.storage *= INT4_OF_I32;
    return w;
}

/* The weight [k,n], contiguous or the transpose of what is: CANN takes no other, and int4 only where they lie. */
static struct ascend_view quantised_weight(struct ascend_issue *c, int64_t k, bool *transposed_p)
{
    struct ascend_view w = ngd_ascend_in(c, 1);
    const bool along_k = w.dtype == NGD_I32 && w.dims[0] * INT4_OF_I32 == k;

    *transposed_p = along_k || (w.dtype != NGD_I32 && is_transposed(&w));
    w = *transposed_p ? turned_copy(c, &w) : ngd_ascend_contiguous(c, &w);
    return w.dtype == NGD_I32 ? int4_of(&w, along_k ? 0 : 1) : w;
}

/* The scale, or the offset, in the dtype; CANN reads two dimensions in the order in which the weight lies. */
static struct ascend_view antiquant_view(struct ascend_issue *c, uint32_t i, ngd_dtype_t dtype, bool is_turned)
{
    struct ascend_view v = optional(c, i), t;

    if (v.rank < 2 || !is_turned) {
        v = ngd_ascend_cast(c, &v, v.rank ? dtype : v.dtype);
        return v.rank ? ngd_ascend_contiguous(c, &v) : v;
    }
    t = ngd_ascend_transpose(&v);
    t = ngd_ascend_cast(c, &t, dtype);
    t = ngd_ascend_contiguous(c, &t);
    return ngd_ascend_transpose(&t);
}

/* x and scales have one dtype of half precision. f16 has the more digits, where neither says which. */
static ngd_dtype_t dtype_of_product(const struct ascend_view *x, const struct ascend_view *scale)
{
    if (x->dtype != NGD_F32)
        return x->dtype;
    return scale->dtype != NGD_F32 ? scale->dtype : NGD_F16;
}

void ngd_ascend_build_weight_quant_matmul(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), scale = ngd_ascend_in(c, 2), y = ngd_ascend_out(c, 0), offset, bias, z;
    const ngd_dtype_t dtype = dtype_of_product(&x, &scale);
    const int64_t k = x.dims[x.rank - 1], n = y.dims[y.rank - 1], m = n ? ngd_ascend_count(&y) / n : 0;
    const int64_t size = ngd_call_int(c->call, "antiquant_group_size"), group = size < k ? size : 0;
    bool is_turned = false;
    struct ascend_view w = ngd_ascend_in(c, 1);

    if (w.dtype == NGD_F8_E4M3FN || w.dtype == NGD_U8 || ngd_call_int(c->call, "antiquant_group_columns") > 1) {
        ngd_ascend_refuse(c, "aclnnWeightQuantBatchMatmulV2 takes weights in i8 and int4, with groups of one column");
        return;
    }
    if (optional(c, 7).rank || optional(c, 8).rank || ngd_call_int(c->call, "antiquant_zero")) {
        ngd_ascend_refuse(c, "aclnnWeightQuantBatchMatmulV2 takes no block scales, minima or antiquant_zero");
        return;
    }
    w = quantised_weight(c, k, &is_turned);
    x = ngd_ascend_contiguous(c, &x);
    x = ngd_ascend_reshape(&x, 2, (const int64_t[]){m, k});
    x = ngd_ascend_cast(c, &x, dtype);
    scale = antiquant_view(c, 2, dtype, is_turned);
    offset = antiquant_view(c, 3, dtype, is_turned);
    bias = antiquant_view(c, 6, dtype == NGD_F16 ? NGD_F16 : NGD_F32, false);
    y = ngd_ascend_reshape(&y, 2, (const int64_t[]){m, n});
    z = y.dtype == dtype ? y : ngd_ascend_temp(c, dtype, 2, y.dims);
    ngd_ascend_check_rules(c, &(struct ascend_rule_call){.function = "WeightQuantBatchMatmulV2",
                                                         .views = {&x, &w, &scale, offset.rank ? &offset : NULL, NULL,
                                                                   NULL, bias.rank ? &bias : NULL, &z},
                                                         .attributes = {group}});
    ASCEND_RUN(c, WeightQuantBatchMatmulV2, T(x), T(w), T(scale), OPT(offset), NULL, NULL, OPT(bias), (int)group, T(z));
    if (z.dtype != y.dtype)
        ngd_ascend_store(c, &z, &y);
}

/* ---- products of quantised rows and weights ------------------------------------------------------ */

static struct ascend_view plain_row(struct ascend_issue *c, uint32_t i)
{
    struct ascend_view v = optional(c, i);

    return v.rank ? ngd_ascend_contiguous(c, &v) : v;
}

/* The dtype that the result is computed in. f32 is computed in a half. */
static ngd_dtype_t dtype_of_i8_product(const struct ascend_issue *c, const struct ascend_view *y)
{
    return y->dtype == NGD_F32 ? half_of(c, "QuantMatmulV4", 6) : y->dtype;
}

/* Widens what has another half than the result. */
static struct ascend_view beside_result(struct ascend_issue *c, const struct ascend_view *v, ngd_dtype_t dtype)
{
    const bool other = ngd_dtype_is_float(v->dtype) && ngd_dtype_is_float(dtype) && v->dtype != dtype;

    return v->rank && other ? ngd_ascend_cast(c, v, NGD_F32) : *v;
}

void ngd_ascend_build_quant_matmul(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), w = ngd_ascend_in(c, 1), scale = plain_row(c, 2),
                       row_scale = plain_row(c, 4), bias = plain_row(c, 5), y = ngd_ascend_out(c, 0), z;
    const ngd_dtype_t dtype = dtype_of_i8_product(c, &y);
    const int64_t k = w.dims[0], n = w.dims[1], m = n ? ngd_ascend_count(&y) / n : 0;

    x = ngd_ascend_contiguous(c, &x);
    x = ngd_ascend_reshape(&x, 2, (const int64_t[]){m, k});
    w = is_transposed(&w) ? turned_copy(c, &w) : ngd_ascend_contiguous(c, &w);
    scale = beside_result(c, &scale, dtype);
    bias = beside_result(c, &bias, dtype);
    y = ngd_ascend_reshape(&y, 2, (const int64_t[]){m, n});
    z = y.dtype == dtype ? y : ngd_ascend_temp(c, dtype, 2, y.dims);
    ngd_ascend_check_rules(
        c, &(struct ascend_rule_call){
               .function = "QuantMatmulV4",
               .views = {&x, &w, &scale, NULL, row_scale.rank ? &row_scale : NULL, bias.rank ? &bias : NULL, &z}});
    ASCEND_RUN(c, QuantMatmulV4, T(x), T(w), T(scale), NULL, OPT(row_scale), OPT(bias), false, false, T(z));
    if (z.dtype != y.dtype)
        ngd_ascend_store(c, &z, &y);
}
