/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products for one instruction set; see k_gemm.h, and simd.h for how this file is included. */
#include "devices/host/kernels/k_gemm.h"
#include "devices/host/kernels/simd.h"
#include "devices/host/kernels/unroll.h"
#include <string.h>

#ifdef NGD_STATIC
#define NGD_GEMM_FN SIMD_INLINE
#else
#define NGD_GEMM_FN static
#endif

#define LINE         64
#define STREAM_AHEAD 4096 /* bytes that dot_stream prefetches ahead */
#define GROUP        16   /* columns that are computed before the next ones */

/*
 * Columns of a tile of mb rows. 16 sums and their operands fit the 32 registers of AVX-512 and of aarch64. AVX2 and SSE
 * have 16: there a tile of many rows takes two columns, since spilled sums cost more than reading x twice as often.
 */
#if NGD_SIMD == 16 || defined(__aarch64__)
#define TILE_COLS(mb) 4
#else
#define TILE_COLS(mb) ((mb) <= 2 ? 4 : 2)
#endif

/* ---- dot: sums along K in lanes ------------------------------------------------------------------------ */

/*
 * A step along K has two vectors. For bf16 these are the even and the odd elements of the step: each takes one
 * operation after a load of pairs, while widening in order takes two. Rows of x are laid out to match.
 */
#define STEP     (2 * SIMD_W)
#define STEPS(k) (((k) + STEP - 1) / STEP)

SIMD_INLINE void gemm_two_f32(const ngd_el_f32 *p, simd_f *a, simd_f *b)
{
    *a = simd_load_f32(p);
    *b = simd_load_f32(p + SIMD_W);
}
SIMD_INLINE void gemm_two_f16(const ngd_el_f16 *p, simd_f *a, simd_f *b)
{
    *a = simd_load_f16(p);
    *b = simd_load_f16(p + SIMD_W);
}
SIMD_INLINE void gemm_two_bf16(const ngd_el_bf16 *p, simd_f *a, simd_f *b)
{
#if NGD_SIMD == 16
    const __m512i v = _mm512_loadu_si512(p);

    *a = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    *b = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
#elif NGD_SIMD == 8
    const __m256i v = _mm256_loadu_si256((const void *)p);

    *a = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    *b = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
#else
    *a = simd_load_bf16(p);
    *b = simd_load_bf16(p + 1);
#endif
}
/* Turns two vectors in order into even and odd elements. */
SIMD_INLINE void gemm_part_pairs(simd_f *a, simd_f *b)
{
#if NGD_SIMD == 16
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const simd_f e = _mm512_permutex2var_ps(*a, even, *b);

    *b = _mm512_permutex2var_ps(*a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), *b);
    *a = e;
#elif NGD_SIMD == 8
    const __m256 e = _mm256_shuffle_ps(*a, *b, 0x88), o = _mm256_shuffle_ps(*a, *b, 0xdd);

    *a = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xd8));
    *b = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xd8));
#else
    (void)a;
    (void)b;
#endif
}

/* Loads the last, incomplete step of a row of w from a copy with zeros behind it. */
#define TWO_CUT(W)                                                                             \
    SIMD_INLINE void gemm_two_cut_##W(const ngd_el_##W *p, int64_t left, simd_f *a, simd_f *b) \
    {                                                                                          \
        ngd_el_##W t[STEP] = {0};                                                              \
                                                                                               \
        for (int64_t i = 0; i < left; i++)                                                     \
            t[i] = p[i];                                                                       \
        gemm_two_##W(t, a, b);                                                                 \
    }
TWO_CUT(f32)
TWO_CUT(f16)
TWO_CUT(bf16)

/*
 * Lays mb rows of x out side by side, vector by vector: [steps][2][mb][W], widened, zero behind k. Rows of x are often
 * a power of two apart, and would compete for the same few sets of the L1 cache.
 */
#define INTERLEAVE(X)                                                                                                 \
    static void gemm_interleave_block_##X(const ngd_el_##X *x, int64_t ldx, int64_t k, int64_t mb, bool pairs,        \
                                          float *dst)                                                                 \
    {                                                                                                                 \
        simd_f a, b;                                                                                                  \
                                                                                                                      \
        for (int64_t i = 0; i < k; i += STEP, dst += 2 * mb * SIMD_W) {                                               \
            for (int64_t m = 0; m < mb; m++) {                                                                        \
                if (i + STEP <= k)                                                                                    \
                    gemm_two_in_order_##X(x + m * ldx + i, &a, &b);                                                   \
                else                                                                                                  \
                    gemm_cut_in_order_##X(x + m * ldx + i, k - i, &a, &b);                                            \
                if (pairs)                                                                                            \
                    gemm_part_pairs(&a, &b);                                                                          \
                simd_store_f32(dst + m * SIMD_W, a);                                                                  \
                simd_store_f32(dst + (mb + m) * SIMD_W, b);                                                           \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static void gemm_interleave_##X(const void *x, int64_t ldx, int64_t rows, int64_t k, bool pairs, float *dst)      \
    {                                                                                                                 \
        for (int64_t m = 0, mb; m < rows; m += mb) {                                                                  \
            mb = BLOCK_ROWS(rows - m);                                                                                \
            gemm_interleave_block_##X((const ngd_el_##X *)x + m * ldx, ldx, k, mb, pairs, dst + m * STEPS(k) * STEP); \
        }                                                                                                             \
    }
/* Rows that are computed together, of those that are left. */
#define BLOCK_ROWS(left) ((left) >= 4 ? 4 : (left))

#define IN_ORDER(X)                                                                                 \
    SIMD_INLINE void gemm_two_in_order_##X(const ngd_el_##X *p, simd_f *a, simd_f *b)               \
    {                                                                                               \
        *a = simd_load_##X(p);                                                                      \
        *b = simd_load_##X(p + SIMD_W);                                                             \
    }                                                                                               \
    SIMD_INLINE void gemm_cut_in_order_##X(const ngd_el_##X *p, int64_t left, simd_f *a, simd_f *b) \
    {                                                                                               \
        *a = simd_load_up_to_##X(p, left);                                                          \
        *b = left > SIMD_W ? simd_load_up_to_##X(p + SIMD_W, left - SIMD_W) : simd_zero();          \
    }
IN_ORDER(f32)
IN_ORDER(f16)
IN_ORDER(bf16)
INTERLEAVE(f32)
INTERLEAVE(f16)
INTERLEAVE(bf16)

/*
 * Sums up the lanes of each of n vectors, n <= 16, in the order of simd_hsum: halves onto halves. Two vectors that are
 * folded together take as many instructions as one. n is a constant after inlining.
 */
#if NGD_SIMD == 16
SIMD_INLINE void gemm_sum_lanes(simd_f v[16], const int n, float *out)
{
    float t[16];

    if (n < 4) {
        NGD_UNROLL for (int i = 0; i < n; i++) out[i] = simd_hsum(v[i]);
        return;
    }
    NGD_UNROLL for (int i = n; i < 16; i++) v[i] = simd_zero();
    _mm512_storeu_ps(n == 16 ? out : t, simd_hsum_each(v));
    if (n < 16)
        memcpy(out, t, (size_t)n * sizeof(float));
}
#else
SIMD_INLINE void gemm_sum_lanes(simd_f v[16], const int n, float *out)
{
    NGD_UNROLL for (int i = 0; i < n; i++) out[i] = simd_hsum(v[i]);
}
#endif

/*
 * Computes mb x nr sums (both constants after inlining) of interleaved rows of x with rows of w. Meanwhile it
 * prefetches later weights in the order of memory, since it reads nr rows side by side. `share` is the number of bytes
 * that this pass prefetches, from `next` on, for each step of the nr rows (a constant too, 0 for none).
 */
#define DOT_TILE(W)                                                                                                   \
    SIMD_INLINE void gemm_dot_tile_##W(const float *x, const ngd_el_##W *w, int64_t ldw, int64_t k, const char *next, \
                                       const int64_t share, const int mb, const int nr, float *out)                   \
    {                                                                                                                 \
        simd_f acc[16], a[4], b[4];                                                                                   \
        int64_t i = 0;                                                                                                \
                                                                                                                      \
        NGD_UNROLL for (int j = 0; j < mb * nr; j++) acc[j] = simd_zero();                                            \
        for (; i < k; i += STEP, x += 2 * mb * SIMD_W) {                                                              \
            NGD_UNROLL for (int64_t l = 0; l < share; l += LINE) __builtin_prefetch(next + l, 0, 3);                  \
            next += STEP * (int64_t)sizeof(*w) * nr;                                                                  \
            if (i + STEP <= k) {                                                                                      \
                NGD_UNROLL for (int r = 0; r < nr; r++) gemm_two_##W(w + r * ldw + i, &a[r], &b[r]);                  \
            } else {                                                                                                  \
                NGD_UNROLL for (int r = 0; r < nr; r++) gemm_two_cut_##W(w + r * ldw + i, k - i, &a[r], &b[r]);       \
            }                                                                                                         \
            NGD_UNROLL for (int m = 0; m < mb; m++)                                                                   \
            {                                                                                                         \
                const simd_f xv = simd_load_f32(x + m * SIMD_W);                                                      \
                NGD_UNROLL for (int r = 0; r < nr; r++) acc[m * nr + r] = simd_fma(a[r], xv, acc[m * nr + r]);        \
            }                                                                                                         \
            NGD_UNROLL for (int m = 0; m < mb; m++)                                                                   \
            {                                                                                                         \
                const simd_f xv = simd_load_f32(x + (mb + m) * SIMD_W);                                               \
                NGD_UNROLL for (int r = 0; r < nr; r++) acc[m * nr + r] = simd_fma(b[r], xv, acc[m * nr + r]);        \
            }                                                                                                         \
        }                                                                                                             \
        gemm_sum_lanes(acc, mb *nr, out);                                                                             \
    }

SIMD_INLINE void gemm_put_tile(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m, int64_t n,
                               const int mb, const int nr, const float *out)
{
    if (g->plain_y && !d->residual) {
        float *y = (float *)(void *)d->y + (m - d->row0) * g->ldy + n - d->col0;

        NGD_UNROLL for (int i = 0; i < mb; i++) NGD_UNROLL for (int r = 0; r < nr; r++) y[i * g->ldy + r] =
            out[i * nr + r];
        return;
    }
    for (int i = 0; i < mb; i++)
        ngd_gemm_put(g, d, m + i, n, out + i * nr, nr);
}

/*
 * Computes a group of columns for mb rows of x. The group's rows of w stay in the caches until all rows of x are done.
 * If there is a single pass, it prefetches all of the next weights; otherwise the first passes prefetch a half or a
 * quarter each. A pass that requested more than memory delivers in its time would stall, and the next pass would leave
 * memory idle.
 */
#define DOT_GROUP(W)                                                                                                   \
    SIMD_INLINE void gemm_dot_pass_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x,        \
                                       int64_t m, const int mb, int64_t n0, int64_t n1, int64_t ahead, int64_t offset, \
                                       const int64_t share)                                                            \
    {                                                                                                                  \
        const int64_t row = g->ldw * (int64_t)sizeof(ngd_el_##W);                                                      \
        const ngd_el_##W *w = (const void *)d->w;                                                                      \
        const int cols = TILE_COLS(mb);                                                                                \
        int64_t n = n0;                                                                                                \
        float out[16];                                                                                                 \
                                                                                                                       \
        for (; n + cols <= n1; n += cols) {                                                                            \
            gemm_dot_tile_##W(x, w + n * g->ldw, g->ldw, g->k, d->w + (n + ahead) * row + offset, share, mb, cols,     \
                              out);                                                                                    \
            gemm_put_tile(g, d, m, n, mb, cols, out);                                                                  \
        }                                                                                                              \
        for (; n < n1; n++) {                                                                                          \
            gemm_dot_tile_##W(x, w + n * g->ldw, g->ldw, g->k, d->w, 0, mb, 1, out);                                   \
            gemm_put_tile(g, d, m, n, mb, 1, out);                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    SIMD_INLINE void gemm_dot_block_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x,       \
                                        int64_t m, const int mb, int64_t rows, int64_t n0, int64_t n1)                 \
    {                                                                                                                  \
        const int64_t step = TILE_COLS(mb) * STEP * (int64_t)sizeof(ngd_el_##W), pass = m / 4;                         \
                                                                                                                       \
        if (rows <= 4)                                                                                                 \
            gemm_dot_pass_##W(g, d, x, m, mb, n0, n1, 4, 0, step);                                                     \
        else if (rows <= 12 && pass < 2)                                                                               \
            gemm_dot_pass_##W(g, d, x, m, mb, n0, n1, GROUP, pass *step / 2, step / 2);                                \
        else if (rows > 12 && pass < 4)                                                                                \
            gemm_dot_pass_##W(g, d, x, m, mb, n0, n1, GROUP, pass *step / 4, step / 4);                                \
        else                                                                                                           \
            gemm_dot_pass_##W(g, d, x, m, mb, n0, n1, GROUP, 0, 0);                                                    \
    }

/*
 * Multiplies one row of x with weights that come from memory. Reading one row of w at a time is closest to a plain read
 * of memory. With AVX2 a single sum is too slow for that, since each addition waits for the one before: two rows of w
 * are read side by side.
 */
#define STREAM_COLS (NGD_SIMD == 16 ? 1 : 2)
#define DOT_STREAM(W)                                                                                                \
    static void gemm_dot_stream_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x,         \
                                    int64_t n0, int64_t n1)                                                          \
    {                                                                                                                \
        const int64_t step = STEP * (int64_t)sizeof(ngd_el_##W);                                                     \
        const int64_t ahead = (STREAM_COLS - 1) * g->ldw * (int64_t)sizeof(ngd_el_##W) + STREAM_AHEAD;               \
        const ngd_el_##W *w = (const ngd_el_##W *)(const void *)d->w + n0 * g->ldw;                                  \
        int64_t n = n0;                                                                                              \
        float out[STREAM_COLS];                                                                                      \
                                                                                                                     \
        for (; n + STREAM_COLS <= n1; n += STREAM_COLS, w += STREAM_COLS * g->ldw) {                                 \
            gemm_dot_tile_##W(x, w, g->ldw, g->k, (const char *)w + ahead, STREAM_COLS * step, 1, STREAM_COLS, out); \
            gemm_put_tile(g, d, 0, n, 1, STREAM_COLS, out);                                                          \
        }                                                                                                            \
        for (; n < n1; n++, w += g->ldw) {                                                                           \
            gemm_dot_tile_##W(x, w, g->ldw, g->k, (const char *)w + STREAM_AHEAD, step, 1, 1, out);                  \
            gemm_put_tile(g, d, 0, n, 1, 1, out);                                                                    \
        }                                                                                                            \
    }

#define DOT(W)                                                                                             \
    DOT_TILE(W)                                                                                            \
    DOT_GROUP(W)                                                                                           \
    DOT_STREAM(W)                                                                                          \
    NGD_GEMM_FN void gemm_dot_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x, \
                                  int64_t rows, int64_t n0, int64_t n1)                                    \
    {                                                                                                      \
        const int64_t row = STEPS(g->k) * STEP;                                                            \
                                                                                                           \
        if (rows == 1 && g->stream) {                                                                      \
            gemm_dot_stream_##W(g, d, x, n0, n1);                                                          \
            return;                                                                                        \
        }                                                                                                  \
        for (int64_t n = n0; n < n1; n += GROUP) {                                                         \
            const int64_t end = n + GROUP < n1 ? n + GROUP : n1;                                           \
            int64_t m = 0;                                                                                 \
                                                                                                           \
            for (; m + 4 <= rows; m += 4)                                                                  \
                gemm_dot_block_##W(g, d, x + m * row, m, 4, rows, n, end);                                 \
            if (rows - m == 3)                                                                             \
                gemm_dot_block_##W(g, d, x + m * row, m, 3, rows, n, end);                                 \
            else if (rows - m == 2)                                                                        \
                gemm_dot_block_##W(g, d, x + m * row, m, 2, rows, n, end);                                 \
            else if (rows - m == 1)                                                                        \
                gemm_dot_block_##W(g, d, x + m * row, m, 1, rows, n, end);                                 \
        }                                                                                                  \
    }

#ifndef NGD_STATIC /* generated code only has the weights of checkpoints */
DOT(f32)
DOT(f16)
#endif
DOT(bf16)

/* ---- axpy: lanes are columns ---------------------------------------------------------------------------- */

/* Multiplies mb rows of x (f32) with nv vectors of columns; the last vector may be incomplete. c is [mb][nv * SIMD_W],
 * in rows of ldc. */
#define AXPY_TILE(W)                                                                                               \
    SIMD_INLINE void gemm_axpy_tile_##W(const float *x, int64_t ldx, const ngd_el_##W *w, int64_t ldw, int64_t k,  \
                                        int64_t cols, const int mb, const int nv, float *c, int64_t ldc, bool add) \
    {                                                                                                              \
        simd_f acc[4][4], wv[4];                                                                                   \
                                                                                                                   \
        NGD_UNROLL for (int m = 0; m < mb; m++) NGD_UNROLL for (int v = 0; v < nv; v++) acc[m][v] =                \
            add ? simd_load_f32(c + m * ldc + v * SIMD_W) : simd_zero();                                           \
        for (int64_t i = 0; i < k; i++) {                                                                          \
            NGD_UNROLL for (int v = 0; v < nv; v++) wv[v] =                                                        \
                nv > 1 ? simd_load_##W(w + i * ldw + v * SIMD_W) : simd_load_up_to_##W(w + i * ldw, cols);         \
            NGD_UNROLL for (int m = 0; m < mb; m++)                                                                \
            {                                                                                                      \
                const simd_f xv = simd_set1(x[m * ldx + i]);                                                       \
                NGD_UNROLL for (int v = 0; v < nv; v++) acc[m][v] = simd_fma(wv[v], xv, acc[m][v]);                \
            }                                                                                                      \
        }                                                                                                          \
        NGD_UNROLL for (int m = 0; m < mb; m++) NGD_UNROLL for (int v = 0; v < nv; v++)                            \
            simd_store_f32(c + m * ldc + v * SIMD_W, acc[m][v]);                                                   \
    }

AXPY_TILE(f32)
AXPY_TILE(f16)
AXPY_TILE(bf16)

#define WIDEN(T)                                                                                                 \
    static void gemm_widen_##T(const void *xp, int64_t ldx, int64_t rows, int64_t cols, float *dst, int64_t ldd) \
    {                                                                                                            \
        for (int64_t r = 0; r < rows; r++) {                                                                     \
            const ngd_el_##T *x = (const ngd_el_##T *)xp + r * ldx;                                              \
            for (int64_t i = 0; i < cols; i += SIMD_W)                                                           \
                simd_store_up_to_f32(dst + r * ldd + i, simd_load_up_to_##T(x + i, cols - i), cols - i);         \
        }                                                                                                        \
    }
WIDEN(f32)
WIDEN(f16)
WIDEN(bf16)

#ifndef NGD_STATIC
#define NARROW(T)                                                                                  \
    static void gemm_narrow_##T(const float *v, int64_t n, void *dst)                              \
    {                                                                                              \
        for (int64_t i = 0; i < n; i += SIMD_W)                                                    \
            simd_store_up_to_##T((ngd_el_##T *)dst + i, simd_load_up_to_f32(v + i, n - i), n - i); \
    }
NARROW(f32)
NARROW(f16)
NARROW(bf16)
#endif

/* Choose a function by x's dtype. In generated code the dtype is a constant, and naming the functions lets the compiler
 * inline them. */
#ifdef NGD_STATIC
#define NGD_GEMM_WIDEN(g) ((g)->xt == NGD_F32 ? gemm_widen_f32 : (g)->xt == NGD_F16 ? gemm_widen_f16 : gemm_widen_bf16)
#define NGD_GEMM_INTERLEAVE(g) \
    ((g)->xt == NGD_F32 ? gemm_interleave_f32 : (g)->xt == NGD_F16 ? gemm_interleave_f16 : gemm_interleave_bf16)
#define NGD_GEMM_DOT_OF(g)  gemm_dot_bf16
#define NGD_GEMM_AXPY_OF(g) gemm_axpy_bf16
#else
#define NGD_GEMM_WIDEN(g) (g)->table->widen[(g)->xt]
#endif

/* Returns rows of x as f32: the rows themselves, or widened in the workspace. */
static const float *gemm_rows_f32(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m, int64_t mb,
                                  int64_t *ldx_p)
{
    const size_t bytes = g->xt == NGD_F32 ? 4 : 2;
    const char *x = d->x + m * g->ldx * (int64_t)bytes;

    *ldx_p = g->ldx;
    if (g->xt == NGD_F32)
        return (const float *)(const void *)x;
    NGD_GEMM_WIDEN(g)(x, g->ldx, mb, g->k, (float *)(void *)d->workspace, g->k);
    *ldx_p = g->k;
    return (const float *)(void *)d->workspace;
}

#define AXPY(W)                                                                                                  \
    SIMD_INLINE void gemm_axpy_cols_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m,      \
                                        const int mb, int64_t n0, int64_t n1)                                    \
    {                                                                                                            \
        const ngd_el_##W *w = (const void *)d->w;                                                                \
        float c[4 * 4 * SIMD_W];                                                                                 \
        int64_t ldx, n = n0;                                                                                     \
        const float *x = gemm_rows_f32(g, d, m, mb, &ldx);                                                       \
                                                                                                                 \
        for (; n + 4 * SIMD_W <= n1; n += 4 * SIMD_W) {                                                          \
            gemm_axpy_tile_##W(x, ldx, w + n, g->ldw, g->k, 4 * SIMD_W, mb, 4, c, 4 * SIMD_W, false);            \
            for (int i = 0; i < mb; i++)                                                                         \
                ngd_gemm_put(g, d, m + i, n, c + i * 4 * SIMD_W, 4 * SIMD_W);                                    \
        }                                                                                                        \
        for (; n < n1; n += SIMD_W) {                                                                            \
            const int64_t cols = n1 - n < SIMD_W ? n1 - n : SIMD_W;                                              \
            gemm_axpy_tile_##W(x, ldx, w + n, g->ldw, g->k, cols, mb, 1, c, SIMD_W, false);                      \
            for (int i = 0; i < mb; i++)                                                                         \
                ngd_gemm_put(g, d, m + i, n, c + i * SIMD_W, cols);                                              \
        }                                                                                                        \
    }                                                                                                            \
    static void gemm_axpy_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t n0, \
                              int64_t n1)                                                                        \
    {                                                                                                            \
        int64_t m = 0;                                                                                           \
                                                                                                                 \
        for (; m + 4 <= rows; m += 4)                                                                            \
            gemm_axpy_cols_##W(g, d, m, 4, n0, n1);                                                              \
        for (; m < rows; m++)                                                                                    \
            gemm_axpy_cols_##W(g, d, m, 1, n0, n1);                                                              \
    }

#ifndef NGD_STATIC
AXPY(f32)
AXPY(f16)
#endif
AXPY(bf16)

#ifndef NGD_STATIC
#include "devices/host/kernels/k_gemm_quant_impl.h"
#include "devices/host/kernels/k_gemm_f8_impl.h"

/* ---- wide: tiles ---------------------------------------------------------------------------------------- */

#define PACK_KN(T)                                                                                      \
    static void gemm_pack_kn_##T(const void *wp, int64_t ldw, int64_t cols, int64_t depth, float *tile) \
    {                                                                                                   \
        for (int64_t i = 0; i < depth; i++) {                                                           \
            const ngd_el_##T *w = (const ngd_el_##T *)wp + i * ldw;                                     \
            int64_t c = 0;                                                                              \
            for (; c < cols; c += SIMD_W)                                                               \
                simd_store_f32(tile + i * NGD_GEMM_NT + c, simd_load_up_to_##T(w + c, cols - c));       \
            for (; c < NGD_GEMM_NT; c += SIMD_W)                                                        \
                simd_store_f32(tile + i * NGD_GEMM_NT + c, simd_zero());                                \
        }                                                                                               \
    }

/* Transposes SIMD_W rows of SIMD_W lanes. */
#if NGD_SIMD == 16
SIMD_INLINE void gemm_transpose(simd_f *v)
{
    simd_f t[16];

    NGD_UNROLL for (int i = 0; i < 8; i++)
    {
        t[2 * i] = _mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
    NGD_UNROLL for (int i = 0; i < 4; i++)
    {
        v[4 * i] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        v[4 * i + 1] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        v[4 * i + 2] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        v[4 * i + 3] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    NGD_UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_f32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0xdd);
    }
    NGD_UNROLL for (int i = 0; i < 8; i++)
    {
        v[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}
#elif NGD_SIMD == 8
SIMD_INLINE void gemm_transpose(simd_f *v)
{
    simd_f t[8];

    NGD_UNROLL for (int i = 0; i < 4; i++)
    {
        t[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
    NGD_UNROLL for (int i = 0; i < 2; i++)
    {
        v[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        v[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        v[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        v[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    NGD_UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
    }
    NGD_UNROLL for (int i = 0; i < 8; i++) v[i] = t[i];
}
#else
SIMD_INLINE void gemm_transpose(simd_f *v)
{
    (void)v;
}
#endif

/* Packs SIMD_W columns at a time. Missing columns and depth become zero. */
#define PACK_NK(T)                                                                                                 \
    static void gemm_pack_nk_##T(const void *wp, int64_t ldw, int64_t cols, int64_t depth, float *tile)            \
    {                                                                                                              \
        const ngd_el_##T *w = wp;                                                                                  \
        simd_f v[SIMD_W];                                                                                          \
                                                                                                                   \
        for (int64_t c = 0; c < NGD_GEMM_NT; c += SIMD_W) {                                                        \
            for (int64_t i = 0; i < depth; i += SIMD_W) {                                                          \
                if (c + SIMD_W <= cols && i + SIMD_W <= depth) {                                                   \
                    NGD_UNROLL for (int r = 0; r < SIMD_W; r++) v[r] = simd_load_##T(w + (c + r) * ldw + i);       \
                } else {                                                                                           \
                    for (int r = 0; r < SIMD_W; r++)                                                               \
                        v[r] = c + r < cols ? simd_load_up_to_##T(w + (c + r) * ldw + i, depth - i) : simd_zero(); \
                }                                                                                                  \
                gemm_transpose(v);                                                                                 \
                NGD_UNROLL for (int r = 0; r < SIMD_W; r++) if (i + r < depth)                                     \
                    simd_store_f32(tile + (i + r) * NGD_GEMM_NT + c, v[r]);                                        \
            }                                                                                                      \
        }                                                                                                          \
    }

PACK_KN(f32)
PACK_KN(f16)
PACK_KN(bf16)
PACK_NK(f32)
PACK_NK(f16)
PACK_NK(bf16)

/* ---- wide: few rows ------------------------------------------------------------------------------------- */

/* acc[m] += x[m][i] * v */
SIMD_INLINE void gemm_chain_add(simd_f *acc, const float *x, int64_t ldx, const int mb, int64_t i, simd_f v)
{
    NGD_UNROLL for (int m = 0; m < mb; m++) acc[m] = simd_fma(v, simd_set1(x[m * ldx + i]), acc[m]);
}

/* The next CHAIN_DEPTH_<dtype> elements along K of SIMD_W rows of w. */
#define CHAIN_STEP(T)                                                                                                 \
    SIMD_INLINE void gemm_chain_step_##T(const ngd_el_##T *w, int64_t ldw, const float *x, int64_t ldx, const int mb, \
                                         simd_f *acc)                                                                 \
    {                                                                                                                 \
        simd_f v[SIMD_W];                                                                                             \
                                                                                                                      \
        NGD_UNROLL for (int r = 0; r < SIMD_W; r++) v[r] = simd_load_##T(w + r * ldw);                                \
        gemm_transpose(v);                                                                                            \
        NGD_UNROLL for (int i = 0; i < SIMD_W; i++) gemm_chain_add(acc, x, ldx, mb, i, v[i]);                         \
    }
CHAIN_STEP(f16)
#if NGD_SIMD == 8
/* Eight rows of eight words: v[i] gets word i of each. Halves of a vector are loaded each from its own row, which saves
 * a third of the shuffles. */
SIMD_INLINE void gemm_load_words(const char *w, int64_t row_bytes, simd_f *v)
{
    NGD_UNROLL for (int h = 0; h < 8; h += 4)
    {
        simd_f r[4], t[4];

        NGD_UNROLL for (int i = 0; i < 4; i++) r[i] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const void *)(w + i * row_bytes + h * 4))),
                                 _mm_loadu_ps((const void *)(w + (i + 4) * row_bytes + h * 4)), 1);
        NGD_UNROLL for (int i = 0; i < 2; i++)
        {
            t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        v[h] = _mm256_shuffle_ps(t[0], t[2], 0x44);
        v[h + 1] = _mm256_shuffle_ps(t[0], t[2], 0xee);
        v[h + 2] = _mm256_shuffle_ps(t[1], t[3], 0x44);
        v[h + 3] = _mm256_shuffle_ps(t[1], t[3], 0xee);
    }
}

SIMD_INLINE void gemm_chain_step_f32(const float *w, int64_t ldw, const float *x, int64_t ldx, const int mb,
                                     simd_f *acc)
{
    simd_f v[8];

    gemm_load_words((const char *)w, ldw * 4, v);
    NGD_UNROLL for (int i = 0; i < 8; i++) gemm_chain_add(acc, x, ldx, mb, i, v[i]);
}

/* A word has two of bf16: each becomes f32 without a shuffle. */
SIMD_INLINE void gemm_chain_step_bf16(const uint16_t *w, int64_t ldw, const float *x, int64_t ldx, const int mb,
                                      simd_f *acc)
{
    const simd_f high = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000));
    simd_f v[8];

    gemm_load_words((const char *)w, ldw * 2, v);
    NGD_UNROLL for (int i = 0; i < 8; i++)
    {
        gemm_chain_add(acc, x, ldx, mb, 2 * i, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v[i]), 16)));
        gemm_chain_add(acc, x, ldx, mb, 2 * i + 1, _mm256_and_ps(v[i], high));
    }
}
enum { CHAIN_DEPTH_f32 = 8, CHAIN_DEPTH_f16 = 8, CHAIN_DEPTH_bf16 = 16 };
#else
CHAIN_STEP(f32)
CHAIN_STEP(bf16)
enum { CHAIN_DEPTH_f32 = SIMD_W, CHAIN_DEPTH_f16 = SIMD_W, CHAIN_DEPTH_bf16 = SIMD_W };
#endif
/* Asks for bytes of memory that are needed soon. */
SIMD_INLINE void gemm_fetch(const char *p, int64_t bytes)
{
    NGD_UNROLL for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

enum { CHAIN_GROUPS_f32 = 1, CHAIN_GROUPS_f16 = 2, CHAIN_GROUPS_bf16 = 2 };

/*
 * One chain of sums along K for each of mb rows of x and of cols rows of w, as gemm_mul has them. groups: SIMD_W
 * columns each, which take turns, because each step of a chain waits for the one before it. For f32, memory is slower
 * than one group, and more rows of 4 KiB share lines of the L1 cache. The last group may be a part.
 */
#define CHAIN(T)                                                                                                      \
    SIMD_INLINE void gemm_chain_rows_##T(const float *x, int64_t ldx, const int mb, const int groups,                 \
                                         const ngd_el_##T *w, int64_t ldw, int64_t cols, int64_t depth, float *c,     \
                                         bool add)                                                                    \
    {                                                                                                                 \
        simd_f acc[2][4], v[SIMD_W];                                                                                  \
        const char *next = (const char *)(w + groups * SIMD_W * ldw);                                                 \
        int64_t k = 0;                                                                                                \
                                                                                                                      \
        NGD_UNROLL for (int g = 0; g < groups; g++) NGD_UNROLL for (int m = 0; m < mb; m++) acc[g][m] =               \
            add ? simd_load_f32(c + m * NGD_GEMM_NT + g * SIMD_W) : simd_zero();                                      \
        for (; cols == groups * SIMD_W && k + CHAIN_DEPTH_##T <= depth; k += CHAIN_DEPTH_##T) {                       \
            gemm_fetch(next, groups *SIMD_W *CHAIN_DEPTH_##T *(int64_t)sizeof(*w));                                   \
            next += groups * SIMD_W * CHAIN_DEPTH_##T * (int64_t)sizeof(*w);                                          \
            NGD_UNROLL for (int g = 0; g < groups; g++)                                                               \
                gemm_chain_step_##T(w + g * SIMD_W * ldw + k, ldw, x + k, ldx, mb, acc[g]);                           \
        }                                                                                                             \
        for (; k < depth; k += SIMD_W) {                                                                              \
            for (int g = 0; g < groups; g++) {                                                                        \
                for (int r = 0; r < SIMD_W; r++)                                                                      \
                    v[r] = g * SIMD_W + r < cols ? simd_load_up_to_##T(w + (g * SIMD_W + r) * ldw + k, depth - k)     \
                                                 : simd_zero();                                                       \
                gemm_transpose(v);                                                                                    \
                for (int i = 0; i < SIMD_W && k + i < depth; i++)                                                     \
                    gemm_chain_add(acc[g], x + k, ldx, mb, i, v[i]);                                                  \
            }                                                                                                         \
        }                                                                                                             \
        NGD_UNROLL for (int g = 0; g < groups; g++) NGD_UNROLL for (int m = 0; m < mb; m++)                           \
            simd_store_f32(c + m * NGD_GEMM_NT + g * SIMD_W, acc[g][m]);                                              \
    }                                                                                                                 \
    static void gemm_chain_##T(const void *wp, int64_t ldw, int64_t cols, int64_t depth, const float *x, int64_t ldx, \
                               int64_t rows, float *c, bool add)                                                      \
    {                                                                                                                 \
        for (int64_t n = 0; n < cols; n += CHAIN_GROUPS_##T * SIMD_W) {                                               \
            const ngd_el_##T *w = (const ngd_el_##T *)wp + n * ldw;                                                   \
            const int64_t some = cols - n < CHAIN_GROUPS_##T * SIMD_W ? cols - n : CHAIN_GROUPS_##T * SIMD_W;         \
            int64_t m = 0;                                                                                            \
                                                                                                                      \
            for (; m + 4 <= rows; m += 4)                                                                             \
                gemm_chain_rows_##T(x + m * ldx, ldx, 4, CHAIN_GROUPS_##T, w, ldw, some, depth,                       \
                                    c + m * NGD_GEMM_NT + n, add);                                                    \
            for (; m + 2 <= rows; m += 2)                                                                             \
                gemm_chain_rows_##T(x + m * ldx, ldx, 2, CHAIN_GROUPS_##T, w, ldw, some, depth,                       \
                                    c + m * NGD_GEMM_NT + n, add);                                                    \
            for (; m < rows; m++)                                                                                     \
                gemm_chain_rows_##T(x + m * ldx, ldx, 1, CHAIN_GROUPS_##T, w, ldw, some, depth,                       \
                                    c + m * NGD_GEMM_NT + n, add);                                                    \
        }                                                                                                             \
    }
CHAIN(f32)
CHAIN(f16)
CHAIN(bf16)

static void gemm_mul(const float *tile, const float *x, int64_t ldx, int64_t rows, int64_t depth, float *c, bool add)
{
    for (int64_t n = 0; n < NGD_GEMM_NT; n += 4 * SIMD_W) {
        int64_t m = 0;

        for (; m + 4 <= rows; m += 4)
            gemm_axpy_tile_f32(x + m * ldx, ldx, tile + n, NGD_GEMM_NT, depth, 4 * SIMD_W, 4, 4,
                               c + m * NGD_GEMM_NT + n, NGD_GEMM_NT, add);
        for (; m < rows; m++)
            gemm_axpy_tile_f32(x + m * ldx, ldx, tile + n, NGD_GEMM_NT, depth, 4 * SIMD_W, 1, 4,
                               c + m * NGD_GEMM_NT + n, NGD_GEMM_NT, add);
    }
}

SIMD_TABLE const struct ngd_gemm_table SIMD_NAME(ngd_gemm_table) = {
    .interleave = {gemm_interleave_f32, gemm_interleave_f16, gemm_interleave_bf16},
    .dot = {gemm_dot_f32, gemm_dot_f16, gemm_dot_bf16},
    .quant_dot = {quant_dot_i8, quant_dot_i4, f8_dot, quant_dot_f4},
    .quant_widen = {quant_widen_i8, quant_widen_i4, f8_widen, quant_widen_f4},
    .scale_blocks = quant_scale_blocks,
    .add_up = quant_add_up,
    .widen_e8m0 = quant_widen_e8m0,
    .axpy = {gemm_axpy_f32, gemm_axpy_f16, gemm_axpy_bf16},
    .widen = {gemm_widen_f32, gemm_widen_f16, gemm_widen_bf16},
    .narrow = {gemm_narrow_f32, gemm_narrow_f16, gemm_narrow_bf16},
    .pack_nk = {gemm_pack_nk_f32, gemm_pack_nk_f16, gemm_pack_nk_bf16},
    .pack_kn = {gemm_pack_kn_f32, gemm_pack_kn_f16, gemm_pack_kn_bf16},
    .mul = gemm_mul,
    .chain = {gemm_chain_f32, gemm_chain_f16, gemm_chain_bf16},
};
#endif
