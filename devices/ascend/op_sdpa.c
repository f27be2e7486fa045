/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builder of dense attention. CANN's fused attention takes no f32, no mask that is added to scores in another dtype
 * than theirs, and says nothing of rows that see no key. So products, softmax and masks are operators of their own, in
 * f32.
 *
 * Heads of queries that share one of keys lie one after the other: their rows are rows of one matrix, and nothing is
 * repeated.
 */
#include "devices/ascend/issue.h"
#include <math.h>
#include <string.h>

#define T(v) ngd_ascend_tensor(c, &(v))

/* A tensor [..., M, N] as so many matrices. */
static struct ascend_view matrices(const struct ascend_view *v, int64_t n, int64_t rows)
{
    return ngd_ascend_reshape(v, 3, (const int64_t[]){n, rows, v->dims[v->rank - 1]});
}

static struct ascend_view mask_constant(struct ascend_issue *c, double v)
{
    struct ascend_view t = ngd_ascend_temp(c, NGD_F32, 1, (const int64_t[]){1});

    ASCEND_RUN(c, InplaceFillScalar, T(t), ngd_ascend_scalar(c, v, NGD_F32));
    return t;
}

/* Row i sees keys 0..i. */
static struct ascend_view causal_mask(struct ascend_issue *c, int64_t rows, int64_t keys)
{
    struct ascend_view ones = ngd_ascend_temp(c, NGD_BOOL, 2, (const int64_t[]){rows, keys}),
                       mask = ngd_ascend_temp(c, NGD_BOOL, 2, ones.dims);

    ASCEND_RUN(c, InplaceFillScalar, T(ones), ngd_ascend_scalar(c, 1, NGD_BOOL));
    ASCEND_RUN(c, Tril, T(ones), 0, T(mask));
    return mask;
}

/* Adds the mask to scores, into *sums; the result says which keys are seen. */
static struct ascend_view add_mask(struct ascend_issue *c, const struct ascend_view *scores,
                                   const struct ascend_view *mask, const struct ascend_view *sums)
{
    struct ascend_view bias = ngd_ascend_cast(c, mask, NGD_F32),
                       seen = ngd_ascend_temp(c, NGD_BOOL, mask->rank, mask->dims);

    ASCEND_RUN(c, Add, ngd_ascend_tensor(c, scores), T(bias), ngd_ascend_scalar(c, 1, NGD_F32),
               ngd_ascend_tensor(c, sums));
    ASCEND_RUN(c, NeScalar, T(bias), ngd_ascend_scalar(c, -INFINITY, NGD_F32), T(seen));
    return seen;
}

/* Scores a become weights; b is as large, and one of the two is the result. Without a key a row has weights 0. */
static struct ascend_view weights(struct ascend_issue *c, const struct ascend_view *a, const struct ascend_view *b)
{
    const bool causal = ngd_call_int(c->call, "is_causal") != 0, masked = ngd_ascend_has(c, 3);
    struct ascend_view s = *a, t = *b, seen = {0}, none;

    if (masked)
        seen = ngd_ascend_in(c, 3);
    else if (causal)
        seen = causal_mask(c, s.dims[s.rank - 2], s.dims[s.rank - 1]);
    if (masked && seen.dtype != NGD_BOOL) {
        seen = add_mask(c, &s, &seen, &t);
    } else if (masked || causal) {
        none = mask_constant(c, -INFINITY);
        ASCEND_RUN(c, SWhere, T(seen), T(s), T(none), T(t));
    } else {
        ASCEND_RUN(c, Softmax, T(s), -1, T(t));
        return t;
    }
    ASCEND_RUN(c, Softmax, T(t), -1, T(s));
    none = mask_constant(c, 0);
    ASCEND_RUN(c, SWhere, T(seen), T(s), T(none), T(t));
    return t;
}

void ngd_ascend_build_sdpa(struct ascend_issue *c)
{
    struct ascend_view q = ngd_ascend_in(c, 0), k = ngd_ascend_in(c, 1), v = ngd_ascend_in(c, 2),
                       y = ngd_ascend_out(c, 0), scaled, a, b, z;
    const int64_t keys = k.dims[k.rank - 2], d = q.dims[q.rank - 1], n = keys ? ngd_ascend_count(&k) / keys / d : 0;
    const double scale = ngd_call_float(c->call, "scale");
    int64_t dims[NGD_MAX_RANK], rows;

    if (n == 0) {
        ASCEND_RUN(c, InplaceFillScalar, T(y), ngd_ascend_scalar(c, 0, y.dtype));
        return;
    }
    rows = ngd_ascend_count(&q) / d / n;
    q = ngd_ascend_cast(c, &q, NGD_F32);
    k = ngd_ascend_cast(c, &k, NGD_F32);
    v = ngd_ascend_cast(c, &v, NGD_F32);
    scaled = ngd_ascend_temp(c, NGD_F32, q.rank, q.dims);
    ASCEND_RUN(c, Muls, T(q), ngd_ascend_scalar(c, isinf(scale) ? 1 / sqrt((double)d) : scale, NGD_F32), T(scaled));
    memcpy(dims, q.dims, sizeof(dims));
    dims[q.rank - 1] = keys;
    a = ngd_ascend_temp(c, NGD_F32, q.rank, dims);
    b = ngd_ascend_temp(c, NGD_F32, q.rank, dims);
    scaled = matrices(&scaled, n, rows);
    k = matrices(&k, n, keys);
    k = ngd_ascend_transpose(&k);
    v = matrices(&v, n, keys);
    z = matrices(&a, n, rows);
    ASCEND_RUN(c, BatchMatMul, T(scaled), T(k), T(z), NGD_ACL_CUBE_KEEP_DTYPE);
    z = weights(c, &a, &b);
    z = matrices(&z, n, rows);
    a = y.dtype == NGD_F32 ? y : ngd_ascend_temp(c, NGD_F32, y.rank, y.dims);
    b = matrices(&a, n, rows);
    ASCEND_RUN(c, BatchMatMul, T(z), T(v), T(b), NGD_ACL_CUBE_KEEP_DTYPE);
    if (y.dtype != NGD_F32)
        ngd_ascend_store(c, &a, &y);
}
