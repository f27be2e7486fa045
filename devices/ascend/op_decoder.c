/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of the fused operators of decoders. */
#include "devices/ascend/issue.h"
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

    if (c->acl->aclnnRotaryPositionEmbedding)
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

    k = ngd_ascend_cast(c, &k, kc.dtype);
    v = ngd_ascend_cast(c, &v, vc.dtype);
    if (c->acl->aclnnScatterPaKvCache) {
        char cache_mode[] = "Norm", scatter_mode[] = "None";

        ASCEND_RUN(c, ScatterPaKvCache, T(k), T(kc), T(slots), T(v), T(vc), NULL, NULL, NULL, cache_mode, scatter_mode,
                   NULL, NULL);
        return;
    }
    scatter_by_rows(c, &k, &kc, &slots);
    scatter_by_rows(c, &v, &vc, &slots);
}

/* ---- attention ----------------------------------------------------------------------------------- */

#define MASK_SIDE 2048 /* of the compressed causal mask of sparse mode 3 */

/*
 * The lists for all sequences that the graph is planned for. Those beyond the launch's are made of its last one: each
 * has a row of the padding, which has the last sequence's input, so that it reads valid blocks.
 */
static void pad_lengths(const struct ascend_issue *c, int64_t n, int64_t rows, int64_t keys, int64_t *queries,
                        int64_t *contexts)
{
    const struct ngd_host_value *q = c->hosts ? &c->hosts[c->call->host[4]] : NULL;
    const struct ngd_host_value *k = c->hosts ? &c->hosts[c->call->host[5]] : NULL;

    for (int64_t i = 0; i < n; i++) {
        if (!q) { /* the most that a launch may bring, for the workspace */
            queries[i] = rows * (i + 1) / n;
            contexts[i] = keys;
        } else if (i < (int64_t)q->n) {
            queries[i] = q->values[i];
            contexts[i] = k->values[i];
        } else {
            int64_t last = i ? queries[i - 1] : 0;

            queries[i] = last < rows ? last + 1 : rows;
            contexts[i] = i ? contexts[i - 1] : 1;
        }
    }
}

void ngd_ascend_build_attention(struct ascend_issue *c)
{
    struct ascend_view q = ngd_ascend_in(c, 0), k = ngd_ascend_in(c, 1), v = ngd_ascend_in(c, 2),
                       table = ngd_ascend_in(c, 3);
    struct ascend_view y = ngd_ascend_out(c, 0), out = y, kv[2];
    struct ascend_view mask = {.dtype = NGD_BOOL,
                               .rank = 2,
                               .dims = {MASK_SIDE, MASK_SIDE},
                               .strides = {MASK_SIDE, 1},
                               .storage = (int64_t)MASK_SIDE * MASK_SIDE,
                               .base = c->dev->mask};
    int64_t n = table.dims[0], block = ngd_call_int(c->call, "block_size"), heads = ngd_call_int(c->call, "num_heads");
    int64_t kv_heads = ngd_call_int(c->call, "num_key_value_heads");
    double scale = ngd_call_float(c->call, "scale");
    int64_t *lengths;
    char layout[] = "TND";

    if (k.dtype == NGD_F32 || k.dtype != v.dtype) {
        ngd_ascend_refuse(c, "the KV cache is %s, it must be f16 or bf16 (kv_dtype when a model is loaded)",
                          ngd_dtype_name(k.dtype));
        return;
    }
    if (block % 16 || strcmp(ngd_call_str(c->call, "input_layout"), "TND") != 0) {
        ngd_ascend_refuse(c, "block_size must be a multiple of 16 and input_layout TND");
        return;
    }
    lengths = NGD_NEW_N(int64_t, (size_t)(2 * n + 1));
    if (!lengths) {
        c->status =
            ngd_diag_set(c->diag, NGD_ERR_NO_MEMORY, "no host memory for the lengths of %u sequences", (unsigned)n);
        return;
    }
    pad_lengths(c, n, q.dims[0], table.dims[1] * block, lengths, lengths + n);
    if (q.dtype != k.dtype)
        out = ngd_ascend_temp(c, k.dtype, y.rank, y.dims);
    q = ngd_ascend_cast(c, &q, k.dtype);
    kv[0] = ngd_ascend_reshape(&k, 3, (const int64_t[]){k.dims[0], k.dims[1], k.dims[2] * k.dims[3]});
    kv[1] = ngd_ascend_reshape(&v, 3, (const int64_t[]){v.dims[0], v.dims[1], v.dims[2] * v.dims[3]});
    ngd_ascend_task_group_begin(c);
    ASCEND_RUN(c, FusedInferAttentionScoreV3, T(q), ngd_ascend_list(c, &kv[0], 1), ngd_ascend_list(c, &kv[1], 1), NULL,
               T(mask), ngd_ascend_ints(c, lengths, (uint64_t)n), ngd_ascend_ints(c, lengths + n, (uint64_t)n), NULL,
               NULL, NULL, NULL, NULL, NULL, NULL, T(table), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
               NULL, NULL, heads, scale, INT64_C(2147483647), INT64_C(2147483647), layout, kv_heads, 3, 0, block, 0,
               false, 0, 0, T(out), NULL);
    ngd_ascend_task_group_end(c);
    ngd_free(lengths);
    if (out.dtype != y.dtype)
        ngd_ascend_store(c, &out, &y);
}
