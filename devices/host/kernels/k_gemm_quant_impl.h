/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot with quantised weights for one instruction set; see k_gemm.h. k_gemm_impl.h includes this file, whose steps, lane
 * sums and stores it shares. Rows of x are laid out as for other weights: in order for i8; for int4 in even and odd
 * elements, since the low and the high nibbles of a vector of bytes are that.
 */

/* Load a step: 2 * SIMD_W weights, as i8 in order, or as int4 in even and odd elements. */
#if NGD_SIMD == 16
SIMD_INLINE void gemm_two_i8(const int8_t *p, simd_f *a, simd_f *b)
{
    *a = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
    *b = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(p + 16))));
}
SIMD_INLINE void gemm_two_i4(const int8_t *p, simd_f *a, simd_f *b)
{
    const __m512i v = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));

    *a = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v, 28), 28));
    *b = _mm512_cvtepi32_ps(_mm512_srai_epi32(v, 4));
}
#elif NGD_SIMD == 8
SIMD_INLINE void gemm_two_i8(const int8_t *p, simd_f *a, simd_f *b)
{
    *a = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
    *b = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + 8))));
}
SIMD_INLINE void gemm_two_i4(const int8_t *p, simd_f *a, simd_f *b)
{
    const __m256i v = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));

    *a = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v, 28), 28));
    *b = _mm256_cvtepi32_ps(_mm256_srai_epi32(v, 4));
}
#else
SIMD_INLINE void gemm_two_i8(const int8_t *p, simd_f *a, simd_f *b)
{
    *a = p[0];
    *b = p[1];
}
SIMD_INLINE void gemm_two_i4(const int8_t *p, simd_f *a, simd_f *b)
{
    *a = (float)((int8_t)((uint8_t)*p << 4) >> 4);
    *b = (float)(*p >> 4);
}
#endif

#define BYTES_i8(n) (n)
#define BYTES_i4(n) ((n) / 2)

/*
 * Computes mb x nr sums of interleaved rows of x with rows of w, ldw bytes apart. A group's sum runs in lanes along K,
 * and is multiplied with the group's scale before it is added to the element's. scales, offsets: of these nr columns,
 * one for each group; offsets is used if `shifted`. Prefetches as gemm_dot_tile does. mb, nr, shifted are constants.
 */
#define QUANT_TILE(W)                                                                                                  \
    SIMD_INLINE void gemm_quant_tile_##W(const struct ngd_gemm *g, const float *x, const int8_t *w,                    \
                                         const float *scales, const float *offsets, const bool shifted,                \
                                         const char *next, const int mb, const int nr, float *out)                     \
    {                                                                                                                  \
        const int64_t k = g->k, group = g->quant.group, groups = ngd_gemm_groups(g);                                   \
        simd_f acc[16], part[16], a[4], b[4];                                                                          \
                                                                                                                       \
        NGD_UNROLL for (int j = 0; j < mb * nr; j++) acc[j] = simd_zero();                                             \
        for (int64_t i = 0, o = 0; o < groups; o++) {                                                                  \
            const int64_t end = (o + 1) * group < k ? (o + 1) * group : k;                                             \
                                                                                                                       \
            NGD_UNROLL for (int j = 0; j < mb * nr; j++) part[j] = simd_zero();                                        \
            for (; i < end; i += STEP, x += 2 * mb * SIMD_W) {                                                         \
                __builtin_prefetch(next, 0, 3);                                                                        \
                next += BYTES_##W(STEP) * nr;                                                                          \
                if (i + STEP <= k) {                                                                                   \
                    NGD_UNROLL for (int r = 0; r < nr; r++) gemm_two_##W(w + r * g->ldw + BYTES_##W(i), &a[r], &b[r]); \
                } else {                                                                                               \
                    NGD_UNROLL for (int r = 0; r < nr; r++)                                                            \
                    {                                                                                                  \
                        int8_t cut[STEP] = {0};                                                                        \
                                                                                                                       \
                        memcpy(cut, w + r * g->ldw + BYTES_##W(i), (size_t)BYTES_##W(k - i));                          \
                        gemm_two_##W(cut, &a[r], &b[r]);                                                               \
                    }                                                                                                  \
                }                                                                                                      \
                NGD_UNROLL for (int r = 0; r < nr && shifted; r++)                                                     \
                {                                                                                                      \
                    const simd_f shift = simd_set1(offsets[r * groups + o]);                                           \
                                                                                                                       \
                    a[r] = simd_add(a[r], shift);                                                                      \
                    b[r] = simd_add(b[r], shift);                                                                      \
                }                                                                                                      \
                NGD_UNROLL for (int m = 0; m < mb; m++)                                                                \
                {                                                                                                      \
                    const simd_f xv = simd_load_f32(x + m * SIMD_W);                                                   \
                    NGD_UNROLL for (int r = 0; r < nr; r++) part[m * nr + r] = simd_fma(a[r], xv, part[m * nr + r]);   \
                }                                                                                                      \
                NGD_UNROLL for (int m = 0; m < mb; m++)                                                                \
                {                                                                                                      \
                    const simd_f xv = simd_load_f32(x + (mb + m) * SIMD_W);                                            \
                    NGD_UNROLL for (int r = 0; r < nr; r++) part[m * nr + r] = simd_fma(b[r], xv, part[m * nr + r]);   \
                }                                                                                                      \
            }                                                                                                          \
            NGD_UNROLL for (int r = 0; r < nr; r++)                                                                    \
            {                                                                                                          \
                const simd_f s = simd_set1(scales[r * groups + o]);                                                    \
                NGD_UNROLL for (int m = 0; m < mb; m++) acc[m * nr + r] =                                              \
                    simd_fma(part[m * nr + r], s, acc[m * nr + r]);                                                    \
            }                                                                                                          \
        }                                                                                                              \
        gemm_sum_lanes(acc, mb *nr, out);                                                                              \
    }

/* Computes mb rows of x. `next` of a tile is the weight of the columns that are computed next. */
#define QUANT_ROWS(W)                                                                                                  \
    SIMD_INLINE void gemm_quant_rows_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x,      \
                                         const float *scales, const bool shifted, int64_t m, const int mb, int64_t n0, \
                                         int64_t n1, int64_t ahead)                                                    \
    {                                                                                                                  \
        const int64_t groups = ngd_gemm_groups(g);                                                                     \
        const float *offsets = scales + (n1 - n0) * groups;                                                            \
        const int cols = TILE_COLS(mb);                                                                                \
        const int8_t *w = (const int8_t *)d->w + n0 * g->ldw;                                                          \
        float out[16];                                                                                                 \
        int64_t n = n0;                                                                                                \
                                                                                                                       \
        for (; n + cols <= n1; n += cols, w += cols * g->ldw, scales += cols * groups, offsets += cols * groups) {     \
            gemm_quant_tile_##W(g, x, w, scales, offsets, shifted, (const char *)w + ahead, mb, cols, out);            \
            gemm_put_tile(g, d, m, n, mb, cols, out);                                                                  \
        }                                                                                                              \
        for (; n < n1; n++, w += g->ldw, scales += groups, offsets += groups) {                                        \
            gemm_quant_tile_##W(g, x, w, scales, offsets, shifted, (const char *)w + ahead, mb, 1, out);               \
            gemm_put_tile(g, d, m, n, mb, 1, out);                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    SIMD_INLINE void gemm_quant_any_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x,       \
                                        const float *scales, const bool shifted, int64_t rows, int64_t n0, int64_t n1) \
    {                                                                                                                  \
        const int64_t row = STEPS(g->k) * STEP, ahead = GROUP * g->ldw;                                                \
        int64_t m = 0;                                                                                                 \
                                                                                                                       \
        for (; m + 4 <= rows; m += 4)                                                                                  \
            gemm_quant_rows_##W(g, d, x + m * row, scales, shifted, m, 4, n0, n1, ahead);                              \
        if (rows - m == 3)                                                                                             \
            gemm_quant_rows_##W(g, d, x + m * row, scales, shifted, m, 3, n0, n1, ahead);                              \
        else if (rows - m == 2)                                                                                        \
            gemm_quant_rows_##W(g, d, x + m * row, scales, shifted, m, 2, n0, n1, ahead);                              \
        else if (rows - m == 1)                                                                                        \
            gemm_quant_rows_##W(g, d, x + m * row, scales, shifted, m, 1, n0, n1, rows == 1 ? STREAM_AHEAD : ahead);   \
    }                                                                                                                  \
    static void gemm_dot_quant_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x,            \
                                   const float *scales, int64_t rows, int64_t n0, int64_t n1)                          \
    {                                                                                                                  \
        if (d->offset)                                                                                                 \
            gemm_quant_any_##W(g, d, x, scales, true, rows, n0, n1);                                                   \
        else                                                                                                           \
            gemm_quant_any_##W(g, d, x, scales, false, rows, n0, n1);                                                  \
    }

QUANT_TILE(i8)
QUANT_TILE(i4)
QUANT_ROWS(i8)
QUANT_ROWS(i4)
