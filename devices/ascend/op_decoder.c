/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of the fused operators of decoders; that of attention is in op_attention.c. */
#include "devices/ascend/issue.h"
#include <math.h>
#include <string.h>

#define T(v) ngd_ascend_tensor(c, &(v))

void ngd_ascend_build_swiglu(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);
    int64_t dim = ngd_call_int(c->call, "dim");

    if (dim != -1 && dim != (int64_t)x.rank - 1)
        ngd_ascend_refuse(c, "only the last dimension is split");
    ASCEND_RUN(c, SwiGlu, T(x), -1, T(y));
}

/* Half of the columns: the even or the odd ones, or the first or the second half. */
static struct ascend_view glu_part(const struct ascend_view *x, int which, bool interleaved)
{
    const uint32_t last = x->rank - 1;
    struct ascend_view v = *x;

    if (!interleaved)
        return ngd_ascend_half(x, which);
    v.dims[last] /= 2;
    v.offset += which * v.strides[last];
    v.strides[last] *= 2;
    return v;
}

/* The same without the fused operator: in f32, rounded once. */
static void clip_by_parts(struct ascend_issue *c, const struct ascend_view *x, double alpha, double limit, double bias,
                          bool interleaved, const struct ascend_view *y)
{
    const struct ascend_view g = glu_part(x, 0, interleaved), u = glu_part(x, 1, interleaved);
    struct ascend_view gate, up, t, s;

    gate = ngd_ascend_temp(c, NGD_F32, g.rank, g.dims);
    up = ngd_ascend_temp(c, NGD_F32, g.rank, g.dims);
    t = ngd_ascend_temp(c, NGD_F32, g.rank, g.dims);
    s = ngd_ascend_temp(c, NGD_F32, g.rank, g.dims);
    ngd_ascend_store(c, &g, &t);
    ASCEND_RUN(c, Clamp, T(t), ngd_ascend_scalar(c, -HUGE_VAL, NGD_F32), ngd_ascend_scalar(c, limit, NGD_F32), T(gate));
    ngd_ascend_store(c, &u, &t);
    ASCEND_RUN(c, Clamp, T(t), ngd_ascend_scalar(c, -limit, NGD_F32), ngd_ascend_scalar(c, limit, NGD_F32), T(up));
    ASCEND_RUN(c, Muls, T(gate), ngd_ascend_scalar(c, alpha, NGD_F32), T(t));
    ASCEND_RUN(c, Sigmoid, T(t), T(s));
    ASCEND_RUN(c, Mul, T(gate), T(s), T(t));
    ASCEND_RUN(c, Adds, T(up), ngd_ascend_scalar(c, bias, NGD_F32), ngd_ascend_scalar(c, 1, NGD_F32), T(s));
    ASCEND_RUN(c, Mul, T(t), T(s), T(gate));
    ngd_ascend_store(c, &gate, y);
}

void ngd_ascend_build_clipped_swiglu(struct ascend_issue *c)
{
    const struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);
    const double alpha = ngd_call_float(c->call, "alpha"), limit = ngd_call_float(c->call, "limit"),
                 bias = ngd_call_float(c->call, "bias");
    const bool interleaved = ngd_call_int(c->call, "interleaved") != 0;
    char text[ASCEND_RULE_ROOM];

    if (c->acl->aclnnClippedSwiglu &&
        !ngd_ascend_refuses(c->dev, "ClippedSwiglu", (const struct ascend_view *const[]){&x, NULL, &y}, 3, text))
        ASCEND_RUN(c, ClippedSwiglu, T(x), NULL, -1, alpha, limit, bias, interleaved, T(y));
    else
        clip_by_parts(c, &x, alpha, limit, bias, interleaved, &y);
}

/* ---- rotation ------------------------------------------------------------------------------------ */

/* x*cos + rotate_half(x)*sin without the fused operator: the halves one after the other. */
static void rotate_by_parts(struct ascend_issue *c, const struct ascend_view *x, const struct ascend_view *cos,
                            const struct ascend_view *sin, const struct ascend_view *y)
{
    int64_t dims[3] = {x->dims[0], x->dims[1], x->dims[2] / 2};
    struct ascend_view t = ngd_ascend_temp(c, x->dtype, 3, dims);

    ASCEND_RUN(c, Mul, ngd_ascend_tensor(c, x), ngd_ascend_tensor(c, cos), ngd_ascend_tensor(c, y));
    for (int h = 0; h < 2; h++) {
        struct ascend_view other = ngd_ascend_half(x, !h), s = ngd_ascend_half(sin, h), to = ngd_ascend_half(y, h);

        ASCEND_RUN(c, Mul, T(other), T(s), T(t));
        ASCEND_RUN(c, InplaceAdd, T(to), T(t), ngd_ascend_scalar(c, h ? 1 : -1, NGD_F32));
    }
}

/* All of one dtype; cos and sin have a row of D for each row of x. */
static void rotate(struct ascend_issue *c, const struct ascend_view *x, const struct ascend_view *cos,
                   const struct ascend_view *sin, const struct ascend_view *y)
{
    int64_t t = x->dims[0], h = x->dims[1], d = x->dims[2];
    struct ascend_view c3 = ngd_ascend_reshape(cos, 3, (const int64_t[]){t, 1, d});
    struct ascend_view s3 = ngd_ascend_reshape(sin, 3, (const int64_t[]){t, 1, d});
    struct ascend_view x4 = ngd_ascend_reshape(x, 4, (const int64_t[]){1, t, h, d});
    struct ascend_view y4 = ngd_ascend_reshape(y, 4, (const int64_t[]){1, t, h, d});
    struct ascend_view c4 = ngd_ascend_reshape(cos, 4, (const int64_t[]){1, t, 1, d});
    struct ascend_view s4 = ngd_ascend_reshape(sin, 4, (const int64_t[]){1, t, 1, d});
    char text[ASCEND_RULE_ROOM];

    if (c->acl->aclnnRotaryPositionEmbedding &&
        !ngd_ascend_refuses(c->dev, "RotaryPositionEmbedding", (const struct ascend_view *const[]){&x4, &c4, &s4, &y4},
                            4, text))
        ASCEND_RUN(c, RotaryPositionEmbedding, T(x4), T(c4), T(s4), 0, T(y4));
    else
        rotate_by_parts(c, x, &c3, &s3, y);
}

void ngd_ascend_build_rotary(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), cos = ngd_ascend_in(c, 1), sin = ngd_ascend_in(c, 2),
                       y = ngd_ascend_out(c, 0);

    if (strcmp(ngd_call_str(c->call, "rotary_mode"), "half") != 0) {
        ngd_ascend_refuse(c, "only rotary_mode half");
        return;
    }
    if (x.dtype != cos.dtype && x.dtype != NGD_F32) { /* a table of f32 is not rounded to half precision */
        struct ascend_view out = y;

        x = ngd_ascend_cast(c, &x, NGD_F32);
        y = ngd_ascend_temp(c, NGD_F32, y.rank, y.dims);
        rotate(c, &x, &cos, &sin, &y);
        ngd_ascend_store(c, &y, &out);
        return;
    }
    cos = ngd_ascend_cast(c, &cos, x.dtype);
    sin = ngd_ascend_cast(c, &sin, x.dtype);
    rotate(c, &x, &cos, &sin, &y);
}

/* ---- the cache ----------------------------------------------------------------------------------- */

/* The row map of the slots, on the device: ngd_ascend_map_rows fills it on the host before each launch. */
static struct ascend_view row_map(struct ascend_issue *c, int64_t rows)
{
    struct ascend_view map = ngd_ascend_temp(c, NGD_I32, 1, &rows);
    uint64_t bytes = (uint64_t)rows * sizeof(int32_t), at = UINT64_MAX;
    ngd_acl_error_t code;

    if (c->status || c->mode != ASCEND_ISSUE)
        return map;
    for (uint32_t i = 0; i < c->inst->exec->n_checks; i++)
        if (c->inst->exec->checks[i].call == c->call && c->inst->exec->checks[i].kind == ASCEND_CHECK_SLOT)
            at = c->inst->exec->rowmap_at[c->inst->exec->checks[i].input];
    code = c->acl->aclrtMemcpyAsync(map.base, bytes, c->inst->staging + at, bytes, NGD_ACL_COPY_H2D, c->stream);
    if (code)
        c->status = ngd_acl_fail(c->acl, code, "a copy of the rows of slots", c->diag);
    return map;
}

/* Rows that shall write nothing write what another row writes, to the same place. */
static void scatter_by_rows(struct ascend_issue *c, const struct ascend_view *x, const struct ascend_view *cache,
                            const struct ascend_view *slots)
{
    int64_t rows = cache->dims[0] * cache->dims[1], row = cache->dims[2] * cache->dims[3], t = x->dims[0];
    struct ascend_view map = row_map(c, t), index = ngd_ascend_reshape(slots, 2, (const int64_t[]){t, 1});
    struct ascend_view from = ngd_ascend_reshape(x, 2, (const int64_t[]){t, row});
    struct ascend_view to = ngd_ascend_reshape(cache, 2, (const int64_t[]){rows, row});
    struct ascend_view picked = ngd_ascend_temp(c, x->dtype, 2, from.dims);

    ASCEND_RUN(c, IndexSelect, T(from), 0, T(map), T(picked));
    ASCEND_RUN(c, ScatterNdUpdate, T(to), T(index), T(picked));
}

void ngd_ascend_build_scatter_kv(struct ascend_issue *c)
{
    struct ascend_view k = ngd_ascend_in(c, 0), v = ngd_ascend_in(c, 1), slots = ngd_ascend_in(c, 2);
    struct ascend_view kc = ngd_ascend_in(c, 3), vc = ngd_ascend_in(c, 4);

    if (kc.dtype != NGD_F16 && kc.dtype != NGD_BF16 && kc.dtype != NGD_F32) {
        ngd_ascend_refuse(c, "KV caches in %s are not served on NPUs yet: give kv_dtype auto, f16 or bf16",
                          ngd_dtype_name(kc.dtype));
        return;
    }
    if (ngd_ascend_count(&k) == 0)
        return;
    k = ngd_ascend_cast(c, &k, kc.dtype);
    v = ngd_ascend_cast(c, &v, vc.dtype);
    if (!ngd_ascend_scatters_by_rows(c->dev, c->plan, c->call)) {
        char cache_mode[] = "Norm", scatter_mode[] = "None";
        static const int64_t strides[] = {1, 1}, offsets[] = {0, 0}; /* of rows that lie one after the other */

        ASCEND_RUN(c, ScatterPaKvCache, T(k), T(kc), T(slots), T(v), T(vc), NULL, NULL, NULL, cache_mode, scatter_mode,
                   ngd_ascend_ints(c, strides, 2), ngd_ascend_ints(c, offsets, 2));
        return;
    }
    scatter_by_rows(c, &k, &kc, &slots);
    scatter_by_rows(c, &v, &vc, &slots);
}
