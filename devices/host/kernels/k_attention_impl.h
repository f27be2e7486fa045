/* SPDX-License-Identifier: Apache-2.0 */
/* Attention for one instruction set; see k_attention.h, and simd.h for how this file is included. */
#include "devices/host/kernels/k_attention.h"
#include "devices/host/kernels/simd_math.h"
#include "devices/host/kernels/unroll.h"

#define KEYS_AHEAD 2048 /* bytes of keys to prefetch ahead: far enough for memory, near enough for the L1 cache */
#define AHEAD      4    /* values */

#if NGD_SIMD < 16
/* Does simd_hsum for nq vectors at once, with the same order of additions. */
#if NGD_SIMD == 8
SIMD_INLINE __m128 attn_fold128(simd_f v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
#endif
SIMD_INLINE void attn_sums(const simd_f *v, const int nq, float *out, int64_t step)
{
#if NGD_SIMD == 8
    if (nq == 4) {
        __m128 a = attn_fold128(v[0]), b = attn_fold128(v[1]), c = attn_fold128(v[2]), d = attn_fold128(v[3]), r;
        float t[4];

        _MM_TRANSPOSE4_PS(a, b, c, d);
        r = _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d));
        _mm_storeu_ps(t, r);
        NGD_UNROLL for (int i = 0; i < 4; i++) out[i * step] = t[i];
        return;
    }
#endif
    NGD_UNROLL for (int i = 0; i < nq; i++) out[i * step] = simd_hsum(v[i]);
}
#endif

SIMD_INLINE void attn_prefetch(const char *p, int64_t bytes)
{
    for (int64_t l = 0; l < bytes; l += 64)
        __builtin_prefetch(p + l, 0, 3);
}

#if NGD_SIMD == 16
/*
 * Computes the scores of nq queries (1, 2 or 4, a constant after inlining). It handles 16 / nq keys at once, so that 16
 * vectors of sums are folded together. It may overwrite scores behind the last key.
 */
#define SCORES(T)                                                                                                   \
    /* Adds the products of nq queries with d numbers of the keys [j, j + 16 / nq) to their sums. */                \
    SIMD_INLINE void attn_dots_##T(const char *const *rows, int64_t d, const float *q, int64_t dp, const int nq,    \
                                   int64_t j, int64_t end, simd_f acc[16])                                          \
    {                                                                                                               \
        const int keys = 16 / nq;                                                                                   \
        const ngd_el_##T *k[16];                                                                                    \
        simd_f qv[4];                                                                                               \
                                                                                                                    \
        NGD_UNROLL for (int i = 0; i < keys; i++) k[i] = (const void *)rows[j + i < end ? j + i : end - 1];         \
        for (int64_t c = 0; c < d; c += SIMD_W) {                                                                   \
            NGD_UNROLL for (int m = 0; m < nq; m++) qv[m] = simd_load_f32(q + m * dp + c);                          \
            NGD_UNROLL for (int i = 0; i < keys; i++)                                                               \
            {                                                                                                       \
                const simd_f kv = simd_load_up_to_##T(k[i] + c, d - c);                                             \
                NGD_UNROLL for (int m = 0; m < nq; m++) acc[m * keys + i] = simd_fma(qv[m], kv, acc[m * keys + i]); \
            }                                                                                                       \
        }                                                                                                           \
    }                                                                                                               \
    SIMD_INLINE void attn_scores_##T(const struct ngd_attn_scratch *s, int64_t d, int64_t dp, int64_t first,        \
                                     const int nq, int64_t begin, int64_t end)                                      \
    {                                                                                                               \
        const int keys = 16 / nq;                                                                                   \
        const float *q = s->q + first * dp;                                                                         \
        float *out = s->scores + first * NGD_ATTN_CHUNK;                                                            \
                                                                                                                    \
        for (int64_t j = begin; j < end; j += keys) {                                                               \
            simd_f acc[16];                                                                                         \
                                                                                                                    \
            for (int64_t i = j + keys; first == 0 && i < end && i < j + 2 * keys; i++)                              \
                attn_prefetch(s->k[i], d *(int64_t)sizeof(ngd_el_##T));                                             \
            NGD_UNROLL for (int i = 0; i < 16; i++) acc[i] = simd_zero();                                           \
            attn_dots_##T(s->k, d, q, dp, nq, j, end, acc);                                                         \
            if (s->rope_d)                                                                                          \
                attn_dots_##T(s->rope, s->rope_d, q + s->rope_at, dp, nq, j, end, acc);                             \
            attn_put_scores(simd_hsum_each(acc), nq, end - j, NGD_ATTN_CHUNK - j, out + j);                         \
        }                                                                                                           \
    }
/* v has the scores of 16 / nq keys, query by query. room: of a query's row from `out` on; a window may leave less. */
SIMD_INLINE void attn_put_scores(simd_f v, const int nq, int64_t n, int64_t room, float *out)
{
    const int keys = 16 / nq;

    if (nq > 1 && room < keys) {
        float lanes[16];

        simd_store_f32(lanes, v);
        for (int m = 0; m < nq; m++)
            for (int64_t i = 0; i < room; i++)
                out[m * NGD_ATTN_CHUNK + i] = lanes[m * keys + i];
    } else if (nq == 4) {
        _mm_storeu_ps(out, _mm512_castps512_ps128(v));
        _mm_storeu_ps(out + NGD_ATTN_CHUNK, _mm512_extractf32x4_ps(v, 1));
        _mm_storeu_ps(out + 2 * NGD_ATTN_CHUNK, _mm512_extractf32x4_ps(v, 2));
        _mm_storeu_ps(out + 3 * NGD_ATTN_CHUNK, _mm512_extractf32x4_ps(v, 3));
    } else if (nq == 2) {
        _mm256_storeu_ps(out, _mm512_castps512_ps256(v));
        _mm256_storeu_ps(out + NGD_ATTN_CHUNK, simd_fold_hi(v));
    } else if (room >= SIMD_W) {
        simd_store_f32(out, v);
    } else {
        simd_store_n_f32(out, v, n);
    }
}
#else
/*
 * Computes the scores of nq queries (a constant after inlining) with keys [begin, end). It handles several keys at
 * once, so that products do not wait for sums, and a query's numbers are loaded once for them.
 */
#define SCORES(T)                                                                                                \
    /* Adds the products of nq queries with d numbers of nk keys to their sums. */                               \
    SIMD_INLINE void attn_dots_##T(const char *const *rows, const int nk, int64_t d, const float *q, int64_t dp, \
                                   const int nq, simd_f *acc)                                                    \
    {                                                                                                            \
        const ngd_el_##T *row[4];                                                                                \
        int64_t i = 0;                                                                                           \
                                                                                                                 \
        NGD_UNROLL for (int k = 0; k < nk; k++) row[k] = (const void *)rows[k];                                  \
        for (; i + SIMD_W <= d; i += SIMD_W) {                                                                   \
            simd_f kv[4];                                                                                        \
                                                                                                                 \
            NGD_UNROLL for (int k = 0; k < nk; k++) kv[k] = simd_load_##T(row[k] + i);                           \
            attn_products(q + i, dp, nq, kv, nk, acc);                                                           \
        }                                                                                                        \
        if (i < d) {                                                                                             \
            simd_f kv[4];                                                                                        \
                                                                                                                 \
            NGD_UNROLL for (int k = 0; k < nk; k++) kv[k] = simd_load_up_to_##T(row[k] + i, d - i);              \
            attn_products(q + i, dp, nq, kv, nk, acc);                                                           \
        }                                                                                                        \
    }                                                                                                            \
    SIMD_INLINE void attn_some_scores_##T(const struct ngd_attn_scratch *s, const int nk, int64_t d, int64_t dp, \
                                          int64_t first, const int nq, int64_t j)                                \
    {                                                                                                            \
        const float *q = s->q + first * dp;                                                                      \
        float *out = s->scores + first * NGD_ATTN_CHUNK + j;                                                     \
        simd_f acc[8];                                                                                           \
                                                                                                                 \
        NGD_UNROLL for (int i = 0; i < nk * nq; i++) acc[i] = simd_zero();                                       \
        attn_dots_##T(s->k + j, nk, d, q, dp, nq, acc);                                                          \
        if (s->rope_d)                                                                                           \
            attn_dots_##T(s->rope + j, nk, s->rope_d, q + s->rope_at, dp, nq, acc);                              \
        if (nk == 4)                                                                                             \
            NGD_UNROLL for (int m = 0; m < nq; m++) attn_sums(acc + m * 4, 4, out + m * NGD_ATTN_CHUNK, 1);      \
        else                                                                                                     \
            NGD_UNROLL for (int k = 0; k < nk; k++) attn_sums(acc + k * nq, nq, out + k, NGD_ATTN_CHUNK);        \
    }                                                                                                            \
    SIMD_INLINE void attn_scores_##T(const struct ngd_attn_scratch *s, int64_t d, int64_t dp, int64_t first,     \
                                     const int nq, int64_t begin, int64_t end)                                   \
    {                                                                                                            \
        const int nk = nq == 4 ? 2 : 4;                                                                          \
        const int64_t bytes = d * (int64_t)sizeof(ngd_el_##T);                                                   \
        int64_t j = begin;                                                                                       \
                                                                                                                 \
        for (; j + nk <= end; j += nk) {                                                                         \
            if (first == 0)                                                                                      \
                attn_prefetch_rows(s, bytes, j, nk, end);                                                        \
            attn_some_scores_##T(s, nk, d, dp, first, nq, j);                                                    \
        }                                                                                                        \
        for (; j < end; j++)                                                                                     \
            attn_some_scores_##T(s, 1, d, dp, first, nq, j);                                                     \
    }
/* Adds the products of a vector of nq queries with one of nk keys to their sums, which are [nk][nq], or [nq][nk] if nk
 * is 4: four sums that are folded together lie side by side. */
SIMD_INLINE void attn_products(const float *q, int64_t dp, const int nq, const simd_f *kv, const int nk, simd_f *acc)
{
    NGD_UNROLL for (int m = 0; m < nq; m++)
    {
        const simd_f qv = simd_load_f32(q + m * dp);

        NGD_UNROLL for (int k = 0; k < nk; k++)
        {
            simd_f *sum = &acc[nk == 4 ? m * 4 + k : k * nq + m];

            *sum = simd_fma(qv, kv[k], *sum);
        }
    }
}

/* Fetches keys ahead of [j, j + nk), and the values of these, which are needed when the chunk's scores are there. */
SIMD_INLINE void attn_prefetch_rows(const struct ngd_attn_scratch *s, int64_t bytes, int64_t j, const int nk,
                                    int64_t end)
{
    const int64_t ahead = bytes < KEYS_AHEAD / 64 ? 64 : bytes > KEYS_AHEAD / 4 ? 4 : KEYS_AHEAD / bytes;

    for (int64_t i = j + ahead; i < j + ahead + nk && i < end; i++)
        attn_prefetch(s->k[i], bytes);
    for (int64_t i = j; i < j + nk && s->v[i] != s->k[i]; i++)
        attn_prefetch(s->v[i], bytes);
}
#endif

/* Adds the sum over keys of p * v to o, for nq queries and nv vectors of columns from `col` on. */
#define VALUES(T)                                                                                             \
    SIMD_INLINE void attn_values_##T(const struct ngd_attn_scratch *s, int64_t d, int64_t dp, int64_t first,  \
                                     const int nq, int64_t begin, int64_t end, int64_t col, const int nv)     \
    {                                                                                                         \
        float *o = s->o + first * dp + col;                                                                   \
        const float *p = s->scores + first * NGD_ATTN_CHUNK;                                                  \
        simd_f acc[4][4], vv[4];                                                                              \
                                                                                                              \
        NGD_UNROLL for (int m = 0; m < nq; m++) NGD_UNROLL for (int c = 0; c < nv; c++) acc[m][c] =           \
            simd_load_f32(o + m * dp + c * SIMD_W);                                                           \
        for (int64_t j = begin; j < end; j++) {                                                               \
            const ngd_el_##T *v = (const ngd_el_##T *)(const void *)s->v[j] + col;                            \
            __asm__("" : "+r"(v)); /* a row has one address, not one for each vector */                       \
            if (NGD_SIMD == 16 && first == 0 && col == 0 && j + AHEAD < end)                                  \
                attn_prefetch(s->v[j + AHEAD], d *(int64_t)sizeof(*v));                                       \
            NGD_UNROLL for (int c = 0; c < nv; c++) vv[c] =                                                   \
                nv > 1 ? simd_load_##T(v + c * SIMD_W) : simd_load_up_to_##T(v, d - col);                     \
            NGD_UNROLL for (int m = 0; m < nq; m++)                                                           \
            {                                                                                                 \
                const simd_f pv = simd_set1(p[m * NGD_ATTN_CHUNK + j]);                                       \
                NGD_UNROLL for (int c = 0; c < nv; c++) acc[m][c] = simd_fma(pv, vv[c], acc[m][c]);           \
            }                                                                                                 \
        }                                                                                                     \
        NGD_UNROLL for (int m = 0; m < nq; m++) NGD_UNROLL for (int c = 0; c < nv; c++)                       \
            simd_store_f32(o + m * dp + c * SIMD_W, acc[m][c]);                                               \
    }                                                                                                         \
    SIMD_INLINE void attn_columns_##T(const struct ngd_attn_scratch *s, int64_t d, int64_t dp, int64_t first, \
                                      const int nq, int64_t begin, int64_t end)                               \
    {                                                                                                         \
        int64_t col = 0;                                                                                      \
                                                                                                              \
        if (begin >= end)                                                                                     \
            return;                                                                                           \
        for (; col + 4 * SIMD_W <= d; col += 4 * SIMD_W)                                                      \
            attn_values_##T(s, d, dp, first, nq, begin, end, col, 4);                                         \
        for (; col < d; col += SIMD_W)                                                                        \
            attn_values_##T(s, d, dp, first, nq, begin, end, col, 1);                                         \
    }

/* Loads scores; lanes from the n-th on become -infinity. A whole vector may be read. */
SIMD_INLINE simd_f attn_seen_scores(const float *p, int64_t n)
{
    return n >= SIMD_W ? simd_load_f32(p) : simd_fill(simd_load_f32(p), n, -INFINITY);
}

/* Adds the bias to a query's scores. Rows of both have the same length. */
SIMD_INLINE void attn_add_bias(const struct ngd_attn_scratch *s, int64_t query, int64_t n)
{
    const float *b = s->bias + query * NGD_ATTN_CHUNK;
    float *p = s->scores + query * NGD_ATTN_CHUNK;

    for (int64_t j = 0; j < n; j += SIMD_W)
        simd_store_f32(p + j, simd_add(simd_load_f32(p + j), simd_load_f32(b + j)));
}

/* p[j] *= by[j]. Whole vectors are read and written. */
SIMD_INLINE void attn_scale_scores(float *p, const float *by, int64_t n)
{
    for (int64_t j = 0; j < n; j += SIMD_W)
        simd_store_f32(p + j, simd_mul(simd_load_f32(p + j), simd_load_f32(by + j)));
}

SIMD_INLINE void attn_cap_scores(float *p, float cap, int64_t n)
{
    const simd_f c = simd_set1(cap), r = simd_set1(1 / cap);

    for (int64_t j = 0; j < n; j += SIMD_W)
        simd_store_f32(p + j, simd_mul(c, simd_tanh(simd_mul(r, simd_load_f32(p + j)))));
}

/* Turns scores into weights, and scales the sums of earlier chunks to the new maximum. If all keys are hidden, the
 * maximum stays -infinity and the weights are 0; NaN scores stay NaN. */
static void attn_weigh(const struct ngd_attn_scratch *s, int64_t dp, int64_t query, int64_t n)
{
    float *p = s->scores + query * NGD_ATTN_CHUNK, *o = s->o + query * dp;
    const float before = s->max[query];
    simd_f top = simd_set1(before), total = simd_zero(), fade;
    float max, shift;

    if (s->key_scale)
        attn_scale_scores(p, s->key_scale, n);
    if (s->cap > 0)
        attn_cap_scores(p, s->cap, n);
    if (s->bias)
        attn_add_bias(s, query, n);
    for (int64_t j = 0; s->from && j < s->from[query]; j++)
        p[j] = -INFINITY;
    for (int64_t j = 0; j < n; j += SIMD_W)
        top = simd_max(top, attn_seen_scores(p + j, n - j));
    max = simd_hmax(top);
    s->max[query] = max;
    shift = max == -INFINITY ? 0 : max;
    for (int64_t j = 0; j < n; j += SIMD_W) {
        const simd_f e = simd_exp(simd_sub(attn_seen_scores(p + j, n - j), simd_set1(shift)));

        simd_store_f32(p + j, s->value_scale ? simd_mul(e, simd_load_f32(s->value_scale + j)) : e);
        total = simd_add(total, e);
    }
    if (before == -INFINITY) { /* nothing was summed before */
        s->sum[query] = simd_hsum(total);
        return;
    }
    fade = simd_exp(simd_sub(simd_set1(before), simd_set1(max)));
    s->sum[query] = s->sum[query] * simd_hmax(fade) + simd_hsum(total);
    for (int64_t i = 0; i < dp; i += SIMD_W)
        simd_store_f32(o + i, simd_mul(simd_load_f32(o + i), fade));
}

/* Finds the keys that nq queries from `first` on all see. If there are none, *lo_p is behind every key. */
SIMD_INLINE void attn_common(const struct ngd_attn_scratch *s, int64_t first, const int nq, const int64_t *count,
                             int64_t *lo_p, int64_t *hi_p)
{
    int64_t lo = s->from ? s->from[first] : 0, hi = count[first];

    for (int m = 1; m < nq; m++) {
        hi = count[first + m] < hi ? count[first + m] : hi;
        if (s->from && s->from[first + m] > lo)
            lo = s->from[first + m];
    }
    *lo_p = lo < hi ? lo : NGD_ATTN_CHUNK;
    *hi_p = lo < hi ? hi : NGD_ATTN_CHUNK;
}

/*
 * Handles nq queries from `first` on: the keys that all of them see together, those before and behind them one query at
 * a time. Queries of later rows see later keys, so these are few.
 */
#define GROUP(T)                                                                                                     \
    SIMD_INLINE void attn_group_##T(const struct ngd_attn_scratch *s, int64_t d, int64_t dv, int64_t dp,             \
                                    int64_t first, const int nq, const int64_t *count)                               \
    {                                                                                                                \
        int64_t lo, hi;                                                                                              \
                                                                                                                     \
        attn_common(s, first, nq, count, &lo, &hi);                                                                  \
        for (int m = 0; m < nq; m++) {                                                                               \
            const int64_t from = s->from ? s->from[first + m] : 0, to = count[first + m];                            \
                                                                                                                     \
            attn_scores_##T(s, d, dp, first + m, 1, from, lo < to ? lo : to);                                        \
        }                                                                                                            \
        attn_scores_##T(s, d, dp, first, nq, lo, hi);                                                                \
        for (int m = 0; m < nq; m++) {                                                                               \
            const int64_t from = s->from ? s->from[first + m] : 0, to = count[first + m];                            \
                                                                                                                     \
            attn_scores_##T(s, d, dp, first + m, 1, hi, to);                                                         \
            if (to > from)                                                                                           \
                attn_weigh(s, dp, first + m, to);                                                                    \
            attn_columns_##T(s, dv, dp, first + m, 1, from, lo < to ? lo : to);                                      \
        }                                                                                                            \
        attn_columns_##T(s, dv, dp, first, nq, lo, hi);                                                              \
        for (int m = 0; m < nq; m++)                                                                                 \
            attn_columns_##T(s, dv, dp, first + m, 1, hi, count[first + m]);                                         \
    }                                                                                                                \
    static void attn_chunk_##T(const struct ngd_attn_scratch *s, int64_t d, int64_t dv, int64_t dp, int64_t queries, \
                               const int64_t *count)                                                                 \
    {                                                                                                                \
        int64_t i = 0;                                                                                               \
                                                                                                                     \
        for (; i + 4 <= queries; i += 4)                                                                             \
            attn_group_##T(s, d, dv, dp, i, 4, count);                                                               \
        for (; i + 2 <= queries; i += 2)                                                                             \
            attn_group_##T(s, d, dv, dp, i, 2, count);                                                               \
        for (; i < queries; i++)                                                                                     \
            attn_group_##T(s, d, dv, dp, i, 1, count);                                                               \
    }

#define LOAD_STORE(T)                                                                                                 \
    static void attn_load_##T(const void *x, int64_t d, int64_t dp, float scale, float *q)                            \
    {                                                                                                                 \
        const simd_f f = simd_set1(scale);                                                                            \
                                                                                                                      \
        for (int64_t i = 0; i < dp; i += SIMD_W)                                                                      \
            simd_store_f32(q + i,                                                                                     \
                           i < d ? simd_mul(simd_load_up_to_##T((const ngd_el_##T *)x + i, d - i), f) : simd_zero()); \
    }                                                                                                                 \
    static void attn_store_##T(const float *o, float sum, int64_t d, void *y)                                         \
    {                                                                                                                 \
        const simd_f f = simd_set1(1.0f / sum);                                                                       \
                                                                                                                      \
        for (int64_t i = 0; i < d; i += SIMD_W)                                                                       \
            simd_store_up_to_##T((ngd_el_##T *)y + i, simd_mul(simd_load_f32(o + i), f), d - i);                      \
    }

#define CHUNK(T) \
    SCORES(T)    \
    VALUES(T)    \
    GROUP(T)
#define ALL(T) \
    CHUNK(T)   \
    LOAD_STORE(T)
ALL(f32)
ALL(f16)
ALL(bf16)
CHUNK(i8)
CHUNK(f8)

/*
 * Puts NaN where numbers of f8 that are NaN lead to it: a key's to all of the queries that see it, a value's to its
 * column. Caches that the daemon's graphs write have none, so this looks once at each row, apart from the products.
 */
static void attn_find_nan(const struct ngd_attn_scratch *s, int64_t d, int64_t dv, int64_t dp, int64_t queries,
                          const int64_t *count, int64_t j)
{
    const ngd_el_f8 *k = (const void *)s->k[j], *v = (const void *)s->v[j];
    const bool key = simd_f8_nan_in(k, d);

    if (!key && !simd_f8_nan_in(v, dv))
        return;
    for (int64_t i = 0; i < queries; i++) {
        if (j >= count[i] || (s->from && j < s->from[i]))
            continue;
        if (key)
            s->sum[i] = NAN;
        for (int64_t e = 0; e < dv; e++)
            if ((v[e] & 0x7f) == 0x7f)
                s->o[i * dp + e] = NAN;
    }
}

static void attn_chunk_f8_nan(const struct ngd_attn_scratch *s, int64_t d, int64_t dv, int64_t dp, int64_t queries,
                              const int64_t *count)
{
    int64_t begin = NGD_ATTN_CHUNK, end = 0;

    for (int64_t i = 0; i < queries; i++) {
        const int64_t from = s->from ? s->from[i] : 0;

        if (count[i] <= from)
            continue;
        begin = from < begin ? from : begin;
        end = count[i] > end ? count[i] : end;
    }
    attn_chunk_f8(s, d, dv, dp, queries, count);
    for (int64_t j = begin; j < end; j++)
        attn_find_nan(s, d, dv, dp, queries, count, j);
}

SIMD_TABLE const struct ngd_attn_table SIMD_NAME(ngd_attn_table) = {
    .chunk = {[NGD_F32] = attn_chunk_f32,
              [NGD_F16] = attn_chunk_f16,
              [NGD_BF16] = attn_chunk_bf16,
              [NGD_I8] = attn_chunk_i8,
              [NGD_F8_E4M3FN] = attn_chunk_f8_nan},
    .load = {attn_load_f32, attn_load_f16, attn_load_bf16},
    .store = {attn_store_f32, attn_store_f16, attn_store_bf16},
};
