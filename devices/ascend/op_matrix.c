/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builders of matrix products.
 *
 * The cube unit multiplies operands of one dtype. Where an f32 operand meets a weight of half precision, the operand is
 * cast to the weight's dtype and the result back: reading the weight is what costs, and widening it would read and
 * write it several times. The results have the weight's precision; on `host` such products are exact in f32.
 */
#include "devices/ascend/issue.h"

#define T(v) ngd_ascend_tensor(c, &(v))

/* The narrower of two dtypes; f16 and bf16 do not meet. */
static ngd_dtype_t common(struct ascend_issue *c, ngd_dtype_t a, ngd_dtype_t b)
{
    if (a != b && a != NGD_F32 && b != NGD_F32)
        ngd_ascend_refuse(c, "operands of %s and %s", ngd_dtype_name(a), ngd_dtype_name(b));
    return a == NGD_F32 ? b : a;
}

/* y = a x b, of rank 2 or 3; y may be wider than the product. */
static void run_product(struct ascend_issue *c, const struct ascend_view *a, const struct ascend_view *b,
                        const struct ascend_view *y)
{
    ngd_dtype_t dtype = common(c, a->dtype, b->dtype);
    struct ascend_view x = ngd_ascend_cast(c, a, dtype), w = ngd_ascend_cast(c, b, dtype), z = *y;

    if (z.dtype != dtype)
        z = ngd_ascend_temp(c, dtype, y->rank, y->dims);
    if (y->rank == 3)
        ASCEND_RUN(c, BatchMatMul, T(x), T(w), T(z), NGD_ACL_CUBE_KEEP_DTYPE);
    else if (w.nz)
        ASCEND_RUN(c, MatmulWeightNz, T(x), T(w), T(z), NGD_ACL_CUBE_KEEP_DTYPE);
    else
        ASCEND_RUN(c, Matmul, T(x), T(w), T(z), NGD_ACL_CUBE_KEEP_DTYPE);
    if (z.dtype != y->dtype)
        ngd_ascend_store(c, &z, y);
}

/* y = beta * bias + alpha * (a x b); bias is broadcast. */
static void product_with_bias(struct ascend_issue *c, const struct ascend_view *bias, const struct ascend_view *a,
                              const struct ascend_view *b, const struct ascend_view *y, double alpha, double beta)
{
    ngd_dtype_t dtype = common(c, a->dtype, b->dtype);
    struct ascend_view x = ngd_ascend_cast(c, a, dtype), w = ngd_ascend_cast(c, b, dtype), z = *y, v;

    if (y->dtype == dtype && beta != 0) { /* sums and bias are f32 inside */
        v = ngd_ascend_cast(c, bias, dtype);
        if (w.nz)
            ASCEND_RUN(c, AddmmWeightNz, T(v), T(x), T(w), ngd_ascend_scalar(c, beta, NGD_F32),
                       ngd_ascend_scalar(c, alpha, NGD_F32), T(z), NGD_ACL_CUBE_KEEP_DTYPE);
        else
            ASCEND_RUN(c, Addmm, T(v), T(x), T(w), ngd_ascend_scalar(c, beta, NGD_F32),
                       ngd_ascend_scalar(c, alpha, NGD_F32), T(z), NGD_ACL_CUBE_KEEP_DTYPE);
        return;
    }
    if (alpha != 1)
        z = ngd_ascend_temp(c, y->dtype, y->rank, y->dims);
    run_product(c, &x, &w, &z);
    if (alpha != 1)
        ASCEND_RUN(c, Muls, T(z), ngd_ascend_scalar(c, alpha, NGD_F32), ngd_ascend_tensor(c, y));
    if (beta != 0) { /* not even a NaN of the bias counts when beta is 0 */
        v = ngd_ascend_cast(c, bias, y->dtype);
        ASCEND_RUN(c, InplaceAdd, ngd_ascend_tensor(c, y), T(v), ngd_ascend_scalar(c, beta, NGD_F32));
    }
}

void ngd_ascend_build_mm(struct ascend_issue *c)
{
    struct ascend_view a = ngd_ascend_in(c, 0), b = ngd_ascend_weight(c, 1), y = ngd_ascend_out(c, 0);

    run_product(c, &a, &b, &y);
}

/* The view whose dimension i is dimension order[i] of v. No order: `otherwise`. */
static struct ascend_view permute_view(struct ascend_issue *c, const struct ascend_view *v, const char *order,
                                       const int64_t otherwise[3])
{
    const struct ngd_attr_value *a = ngd_call_ints(c->call, order);
    struct ascend_view r = *v;

    for (uint32_t i = 0; i < 3; i++) {
        const int64_t from = a->n ? a->list[i] : otherwise[i];

        r.dims[i] = v->dims[from];
        r.strides[i] = v->strides[from];
    }
    return r;
}

/* The product of permuted operands, with batches in front. perm_y, which says where they go, is its own inverse: the
 * last dimension stays. */
void ngd_ascend_build_transpose_bmm(struct ascend_issue *c)
{
    static const int64_t as_is[] = {0, 1, 2}, swapped[] = {1, 0, 2};
    const struct ascend_view x = ngd_ascend_in(c, 0), w = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0);
    struct ascend_view a = permute_view(c, &x, "perm_x1", as_is), b = permute_view(c, &w, "perm_x2", as_is),
                       z = permute_view(c, &y, "perm_y", swapped), product;

    product = ngd_ascend_temp(c, y.dtype, 3, z.dims);
    run_product(c, &a, &b, &product);
    ngd_ascend_store(c, &product, &z);
}

void ngd_ascend_build_addmm(struct ascend_issue *c)
{
    struct ascend_view bias = ngd_ascend_in(c, 0), a = ngd_ascend_in(c, 1), b = ngd_ascend_weight(c, 2),
                       y = ngd_ascend_out(c, 0);

    product_with_bias(c, &bias, &a, &b, &y, ngd_call_float(c->call, "alpha"), ngd_call_float(c->call, "beta"));
}

void ngd_ascend_build_linear(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), w = ngd_ascend_weight(c, 1), y = ngd_ascend_out(c, 0), bias;
    int64_t k = w.dims[1], n = w.dims[0], m = n ? ngd_ascend_count(&y) / n : 0;
    struct ascend_view a = ngd_ascend_reshape(&x, 2, (const int64_t[]){m, k});
    struct ascend_view z = ngd_ascend_reshape(&y, 2, (const int64_t[]){m, n});

    /* weight[N,K], seen as [K,N] */
    w.dims[0] = k;
    w.dims[1] = n;
    w.strides[0] = 1;
    w.strides[1] = k;
    if (ngd_ascend_has(c, 2)) {
        bias = ngd_ascend_in(c, 2);
        product_with_bias(c, &bias, &a, &w, &z, 1, 1);
    } else {
        run_product(c, &a, &w, &z);
    }
}
