/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot with quantised weights for one instruction set; see k_gemm_quant.h. k_gemm_impl.h includes this file.
 *
 * Sums of a segment are integers, so they are the same on each instruction set. Both x86 tables take vectors of 256
 * bits: at one row memory is the limit anyway.
 */
#include "devices/host/kernels/k_gemm_quant.h"

#define QW    NGD_QUANT_LANES /* i16 in a vector */
#define QSTEP (2 * QW)        /* weights that are widened at once, to two vectors */

/*
 * quant_load_i4 gives the low nibbles of 16 bytes, which are the even weights, plus 8: that is one shift less. So a
 * segment's sum begins with what that adds, from the sum of x's even elements.
 */
#if NGD_SIMD >= 8
typedef __m256i quant_w; /* QW i16 */
typedef __m256i quant_i; /* sums, i32 */
typedef __m256 quant_f;

SIMD_INLINE void quant_load_i8(const int8_t *p, quant_w *a, quant_w *b)
{
    *a = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
    *b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(p + QW)));
}
SIMD_INLINE void quant_load_i4(const int8_t *p, quant_w *a, quant_w *b)
{
    const quant_w v = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));

    *a = _mm256_and_si256(_mm256_xor_si256(v, _mm256_set1_epi16(8)), _mm256_set1_epi16(15));
    *b = _mm256_srai_epi16(v, 4);
}
SIMD_INLINE void quant_load_f4(const int8_t *p, quant_w *a, quant_w *b)
{
    const __m128i v = _mm_loadu_si128((const void *)p), numbers = _mm_loadu_si128((const void *)ngd_quant_f4),
                  nibble = _mm_set1_epi8(15);

    *a = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(numbers, _mm_and_si128(v, nibble)));
    *b = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(numbers, _mm_and_si128(_mm_srli_epi16(v, 4), nibble)));
}
SIMD_INLINE quant_w quant_load_half(const int8_t *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
}
SIMD_INLINE quant_w quant_load_x(const int16_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}
SIMD_INLINE quant_i quant_begin_i8(const int32_t *evens)
{
    (void)evens;
    return _mm256_setzero_si256();
}
SIMD_INLINE quant_i quant_begin_i4(const int32_t *evens)
{
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_set1_epi32(*evens)); /* 8 lanes */
}
SIMD_INLINE quant_i quant_add_products(quant_i sum, quant_w w, quant_w x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
}
SIMD_INLINE quant_f quant_zero(void)
{
    return _mm256_setzero_ps();
}
/* acc + sum * x_scale * w_scale */
SIMD_INLINE quant_f quant_add_segment(quant_f acc, quant_i sum, float x_scale, float w_scale)
{
    const quant_f v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(x_scale));

    return _mm256_fmadd_ps(v, _mm256_set1_ps(w_scale), acc);
}
SIMD_INLINE float quant_total(quant_f v)
{
    const __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)),
                 q = _mm_add_ps(h, _mm_movehl_ps(h, h));

    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
#else
typedef struct {
    int16_t v[QW];
} quant_w;
typedef int32_t quant_i;
typedef float quant_f;

SIMD_INLINE void quant_load_i8(const int8_t *p, quant_w *a, quant_w *b)
{
    for (int i = 0; i < QW; i++) {
        a->v[i] = p[i];
        b->v[i] = p[QW + i];
    }
}
SIMD_INLINE void quant_load_i4(const int8_t *p, quant_w *a, quant_w *b)
{
    for (int i = 0; i < QW; i++) {
        a->v[i] = (int16_t)((p[i] ^ 8) & 15);
        b->v[i] = (int16_t)(p[i] >> 4);
    }
}
SIMD_INLINE void quant_load_f4(const int8_t *p, quant_w *a, quant_w *b)
{
    for (int i = 0; i < QW; i++) {
        a->v[i] = ngd_quant_f4[p[i] & 15];
        b->v[i] = ngd_quant_f4[(uint8_t)p[i] >> 4];
    }
}
SIMD_INLINE quant_w quant_load_half(const int8_t *p)
{
    quant_w w;

    for (int i = 0; i < QW; i++)
        w.v[i] = p[i];
    return w;
}
SIMD_INLINE quant_w quant_load_x(const int16_t *p)
{
    quant_w x;

    memcpy(&x, p, sizeof(x));
    return x;
}
SIMD_INLINE quant_i quant_begin_i8(const int32_t *evens)
{
    (void)evens;
    return 0;
}
SIMD_INLINE quant_i quant_begin_i4(const int32_t *evens)
{
    return -8 * *evens;
}
SIMD_INLINE quant_i quant_add_products(quant_i sum, quant_w w, quant_w x)
{
    for (int i = 0; i < QW; i++)
        sum += w.v[i] * x.v[i];
    return sum;
}
SIMD_INLINE quant_f quant_zero(void)
{
    return 0;
}
SIMD_INLINE quant_f quant_add_segment(quant_f acc, quant_i sum, float x_scale, float w_scale)
{
    return acc + (float)sum * x_scale * w_scale;
}
SIMD_INLINE float quant_total(quant_f v)
{
    return v;
}
#endif

#define QUANT_BYTES_i8(n) (n)
#define QUANT_BYTES_i4(n) ((n) / 2)
#define QUANT_BYTES_f4(n) ((n) / 2)
#define quant_begin_f4    quant_begin_i8

#if NGD_SIMD >= 8
#define QUANT_KEEP(v) NGD_KEEP(v)
#else
#define QUANT_KEEP(v) ((void)(v))
#endif

/* As quant_segment_i8, for a segment of one vector. */
SIMD_INLINE void quant_half_segment(const int16_t *x, const int8_t *w, int64_t ldw, const int mb, const int nr,
                                    quant_i *sums)
{
    quant_w a[4];

    NGD_UNROLL for (int r = 0; r < nr; r++) a[r] = quant_load_half(w + r * ldw);
    NGD_UNROLL for (int m = 0; m < mb; m++)
    {
        const quant_w xv = quant_load_x(x + m * QW);

        NGD_UNROLL for (int r = 0; r < nr; r++) sums[m * nr + r] = quant_add_products(sums[m * nr + r], a[r], xv);
    }
}

/*
 * Computes mb x nr sums of laid-out rows of x, whose scales are [segments][mb], with rows of w, ldw bytes apart, whose
 * scales are those of columns of the area. Requests a line from `next` on for each that it reads; NULL: none. mb and nr
 * are constants.
 */
#define QUANT_TILE(W)                                                                                                 \
    SIMD_INLINE void quant_segment_##W(const int16_t *x, const int8_t *w, int64_t ldw, const char *next,              \
                                       const int segment, const int mb, const int nr, quant_i *sums)                  \
    {                                                                                                                 \
        const int bytes = QUANT_BYTES_##W(QSTEP);                                                                     \
        quant_w a[4], b[4];                                                                                           \
                                                                                                                      \
        if (segment < QSTEP) {                                                                                        \
            if (next)                                                                                                 \
                __builtin_prefetch(next, 0, 3);                                                                       \
            quant_half_segment(x, w, ldw, mb, nr, sums);                                                              \
            return;                                                                                                   \
        }                                                                                                             \
        for (int i = 0; i < segment; i += QSTEP, x += 2 * mb * QW, w += bytes) {                                      \
            if (next) {                                                                                               \
                NGD_UNROLL for (int l = 0; l < nr * bytes; l += LINE) __builtin_prefetch(next + l, 0, 3);             \
                next += nr * bytes;                                                                                   \
            }                                                                                                         \
            NGD_UNROLL for (int r = 0; r < nr; r++) quant_load_##W(w + r * ldw, &a[r], &b[r]);                        \
            NGD_UNROLL for (int m = 0; m < mb; m++)                                                                   \
            {                                                                                                         \
                const quant_w xv = quant_load_x(x + m * QW);                                                          \
                NGD_UNROLL for (int r = 0; r < nr; r++) sums[m * nr + r] =                                            \
                    quant_add_products(sums[m * nr + r], a[r], xv);                                                   \
            }                                                                                                         \
            NGD_UNROLL for (int j = 0; j < mb * nr; j++) QUANT_KEEP(sums[j]);                                         \
            NGD_UNROLL for (int m = 0; m < mb; m++)                                                                   \
            {                                                                                                         \
                const quant_w xv = quant_load_x(x + (mb + m) * QW);                                                   \
                NGD_UNROLL for (int r = 0; r < nr; r++) sums[m * nr + r] =                                            \
                    quant_add_products(sums[m * nr + r], b[r], xv);                                                   \
            }                                                                                                         \
            NGD_UNROLL for (int j = 0; j < mb * nr; j++) QUANT_KEEP(sums[j]);                                         \
        }                                                                                                             \
    }                                                                                                                 \
    SIMD_INLINE void quant_tile_##W(const struct ngd_gemm *g, const int16_t *x, const float *x_scales,                \
                                    const int32_t *evens, const int8_t *w, const float *scales, const char *next,     \
                                    const int mb, const int nr, float *out)                                           \
    {                                                                                                                 \
        const int64_t segments = ngd_quant_segments(g), segment = g->quant.segment, bytes = QUANT_BYTES_##W(segment), \
                      column = ngd_quant_column(g), each = column > 1;                                                \
        int8_t cut[4][QUANT_BYTES_##W(NGD_QUANT_SEGMENT)];                                                            \
        int64_t ldw = g->ldw;                                                                                         \
        quant_f acc[8];                                                                                               \
                                                                                                                      \
        NGD_UNROLL for (int j = 0; j < mb * nr; j++) acc[j] = quant_zero();                                           \
        for (int64_t s = 0; s < segments; s++, x += mb * segment, w += bytes) {                                       \
            quant_i sums[8];                                                                                          \
                                                                                                                      \
            if ((s + 1) * segment > g->k) { /* no rows of zeros are behind the last row */                            \
                memset(cut, 0, sizeof(cut));                                                                          \
                for (int r = 0; r < nr; r++)                                                                          \
                    memcpy(cut[r], w + r * ldw, (size_t)QUANT_BYTES_##W(g->k - s * segment));                         \
                w = cut[0];                                                                                           \
                ldw = sizeof(cut[0]);                                                                                 \
            }                                                                                                         \
            NGD_UNROLL for (int j = 0; j < mb * nr; j++) sums[j] = quant_begin_##W(evens + s * mb + j / nr);          \
            quant_segment_##W(x, w, ldw, next, (int)segment, mb, nr, sums);                                           \
            if (next)                                                                                                 \
                next += bytes * nr;                                                                                   \
            NGD_UNROLL for (int j = 0; j < mb * nr; j++) acc[j] =                                                     \
                quant_add_segment(acc[j], sums[j], x_scales[s * mb + j / nr], scales[j % nr * column + s * each]);    \
        }                                                                                                             \
        NGD_UNROLL for (int j = 0; j < mb * nr; j++) out[j] = quant_total(acc[j]);                                    \
    }

/* Returns the sum over segments of x's sum and what is added for each of its elements. */
SIMD_INLINE float quant_offset_sum(const struct ngd_gemm *g, const float *x_sums, const float *offsets)
{
    const int64_t segments = ngd_quant_segments(g), column = ngd_quant_column(g);
    simd_f sum = simd_zero();

    for (int64_t s = 0; s < segments; s += SIMD_W) {
        const simd_f x = simd_load_any(x_sums, NGD_F32, s, segments - s);

        sum = column == 1 ? simd_add(sum, x) : simd_fma(x, simd_load_any(offsets, NGD_F32, s, segments - s), sum);
    }
    return column == 1 ? simd_hsum(sum) * offsets[0] : simd_hsum(sum);
}

/* Adds what the offsets contribute to mb laid-out rows. Of two that are one row of f32, the first has all. */
SIMD_INLINE void quant_add_offsets(const struct ngd_gemm *g, const struct ngd_quant_area *a, int64_t row, const int mb,
                                   int64_t cols, float (*out)[NGD_QUANT_COLUMNS])
{
    const int64_t segments = ngd_quant_segments(g), column = ngd_quant_column(g);

    for (int m = 0; m < mb; m += (int)ngd_quant_terms(g))
        for (int64_t c = 0; c < cols; c++)
            out[m][c] += quant_offset_sum(g, a->x_sums + (row + m) * segments, a->offsets + c * column);
}

/* Stores mb laid-out rows. Rows of f32 are laid out as two, the second of which has what the first one's i16 could not
 * hold. */
SIMD_INLINE void quant_put(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t row, int64_t n,
                           int64_t cols, const int mb, float (*out)[NGD_QUANT_COLUMNS])
{
    if (ngd_quant_terms(g) == 1) {
        for (int m = 0; m < mb; m++)
            ngd_gemm_put(g, d, row + m, n, out[m], cols);
        return;
    }
    for (int m = 0; m + 1 < mb; m += 2) {
        for (int64_t c = 0; c < cols; c++)
            out[m][c] += out[m + 1][c];
        ngd_gemm_put(g, d, (row + m) / 2, n, out[m], cols);
    }
}

/* Computes mb laid-out rows for columns [n0, n1), which are columns 0 and up of the area, nr at a time. */
#define QUANT_ROWS(W)                                                                                                  \
    SIMD_INLINE void quant_columns_##W(const struct ngd_gemm *g, const int8_t *w, const struct ngd_quant_area *a,      \
                                       const char *next, int64_t row, const int mb, int64_t col, const int nr,         \
                                       float(*out)[NGD_QUANT_COLUMNS])                                                 \
    {                                                                                                                  \
        const int64_t at = row * ngd_quant_segments(g), own = col * ngd_quant_column(g);                               \
        float t[8];                                                                                                    \
                                                                                                                       \
        quant_tile_##W(g, a->x + at * g->quant.segment, a->x_scales + at, a->x_evens + at, w, a->scales + own, next,   \
                       mb, nr, t);                                                                                     \
        NGD_UNROLL for (int j = 0; j < mb * nr; j++) out[j / nr][col + j % nr] = t[j];                                 \
    }                                                                                                                  \
    SIMD_INLINE void quant_rows_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d,                           \
                                    const struct ngd_quant_area *a, int64_t row, const int mb, const int nr,           \
                                    int64_t n0, int64_t n1, int64_t ahead)                                             \
    {                                                                                                                  \
        const int8_t *w = (const int8_t *)d->w + n0 * g->ldw;                                                          \
        float out[8][NGD_QUANT_COLUMNS];                                                                               \
        int64_t col = 0;                                                                                               \
                                                                                                                       \
        for (; col + nr <= n1 - n0; col += nr, w += nr * g->ldw)                                                       \
            quant_columns_##W(g, w, a, ahead ? (const char *)w + ahead : NULL, row, mb, col, nr, out);                 \
        for (; col < n1 - n0; col++, w += g->ldw)                                                                      \
            quant_columns_##W(g, w, a, NULL, row, mb, col, 1, out);                                                    \
        if (ngd_quant_adds(g))                                                                                         \
            quant_add_offsets(g, a, row, mb, n1 - n0, out);                                                            \
        quant_put(g, d, row, n0, n1 - n0, mb, out);                                                                    \
    }                                                                                                                  \
    static void quant_dot_##W(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const struct ngd_quant_area *a, \
                              int64_t rows, int64_t n0, int64_t n1)                                                    \
    {                                                                                                                  \
        const int64_t ahead = rows <= 2 ? STREAM_AHEAD : GROUP * g->ldw;                                               \
        int64_t row = 0;                                                                                               \
                                                                                                                       \
        for (; row + 8 <= rows; row += 8)                                                                              \
            quant_rows_##W(g, d, a, row, 8, 1, n0, n1, row ? 0 : ahead);                                               \
        if (row + 4 <= rows) {                                                                                         \
            quant_rows_##W(g, d, a, row, 4, 2, n0, n1, row ? 0 : ahead);                                               \
            row += 4;                                                                                                  \
        }                                                                                                              \
        if (row + 2 <= rows) {                                                                                         \
            quant_rows_##W(g, d, a, row, 2, 4, n0, n1, row ? 0 : ahead);                                               \
            row += 2;                                                                                                  \
        }                                                                                                              \
        if (row < rows)                                                                                                \
            quant_rows_##W(g, d, a, row, 1, 4, n0, n1, row ? 0 : ahead);                                               \
    }

QUANT_TILE(i8)
QUANT_TILE(i4)
QUANT_TILE(f4)
QUANT_ROWS(i8)
QUANT_ROWS(i4)
QUANT_ROWS(f4)

/* ---- wide ---- */

SIMD_INLINE float quant_widened(int q, float offset, float scale)
{
    return ((float)q + offset) * scale;
}

#if NGD_SIMD >= 8
SIMD_INLINE __m256 quant_widened_words(__m256i q, float offset, float scale)
{
    return _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(q), _mm256_set1_ps(offset)), _mm256_set1_ps(scale));
}

/* Returns how many it widened. */
SIMD_INLINE int64_t quant_widen_vectors_i8(const int8_t *q, int64_t n, float offset, float scale, float *dst)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            dst + i, quant_widened_words(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(q + i))), offset, scale));
    return i;
}

SIMD_INLINE int64_t quant_widen_vectors_i4(const int8_t *q, int64_t n, float offset, float scale, float *dst)
{
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
        const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(q + i / 2)));
        const __m256 even = quant_widened_words(_mm256_srai_epi32(_mm256_slli_epi32(w, 28), 28), offset, scale),
                     odd = quant_widened_words(_mm256_srai_epi32(_mm256_slli_epi32(w, 24), 28), offset, scale),
                     low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);

        _mm256_storeu_ps(dst + i, _mm256_permute2f128_ps(low, high, 0x20));
        _mm256_storeu_ps(dst + i + 8, _mm256_permute2f128_ps(low, high, 0x31));
    }
    return i;
}

SIMD_INLINE int64_t quant_widen_vectors_f4(const int8_t *q, int64_t n, float offset, float scale, float *dst)
{
    const __m128i numbers = _mm_loadu_si128((const void *)ngd_quant_f4), nibble = _mm_set1_epi8(15);
    int64_t i = 0;

    for (; i + 16 <= n; i += 16) {
        const __m128i v = _mm_loadl_epi64((const void *)(q + i / 2)), low = _mm_and_si128(v, nibble),
                      high = _mm_and_si128(_mm_srli_epi16(v, 4), nibble),
                      each = _mm_shuffle_epi8(numbers, _mm_unpacklo_epi8(low, high));

        _mm256_storeu_ps(dst + i, quant_widened_words(_mm256_cvtepi8_epi32(each), offset, scale));
        _mm256_storeu_ps(dst + i + 8,
                         quant_widened_words(_mm256_cvtepi8_epi32(_mm_srli_si128(each, 8)), offset, scale));
    }
    return i;
}
#else
SIMD_INLINE int64_t quant_widen_vectors_i8(const int8_t *q, int64_t n, float offset, float scale, float *dst)
{
    (void)q, (void)n, (void)offset, (void)scale, (void)dst;
    return 0;
}

SIMD_INLINE int64_t quant_widen_vectors_i4(const int8_t *q, int64_t n, float offset, float scale, float *dst)
{
    (void)q, (void)n, (void)offset, (void)scale, (void)dst;
    return 0;
}

SIMD_INLINE int64_t quant_widen_vectors_f4(const int8_t *q, int64_t n, float offset, float scale, float *dst)
{
    (void)q, (void)n, (void)offset, (void)scale, (void)dst;
    return 0;
}
#endif

static void quant_widen_i8(const void *row, int64_t n, float offset, float scale, float *dst)
{
    const int8_t *q = row;

    for (int64_t i = quant_widen_vectors_i8(q, n, offset, scale, dst); i < n; i++)
        dst[i] = quant_widened(q[i], offset, scale);
}

static void quant_widen_i4(const void *row, int64_t n, float offset, float scale, float *dst)
{
    const int8_t *q = row;

    for (int64_t i = quant_widen_vectors_i4(q, n, offset, scale, dst); i < n; i += 2) {
        dst[i] = quant_widened((int8_t)((uint8_t)q[i / 2] << 4) >> 4, offset, scale);
        dst[i + 1] = quant_widened(q[i / 2] >> 4, offset, scale);
    }
}

static void quant_widen_f4(const void *row, int64_t n, float offset, float scale, float *dst)
{
    const int8_t *q = row;

    for (int64_t i = quant_widen_vectors_f4(q, n, offset, scale, dst); i < n; i += 2) {
        dst[i] = quant_widened(ngd_quant_f4[q[i / 2] & 15], offset, scale);
        dst[i + 1] = quant_widened(ngd_quant_f4[(uint8_t)q[i / 2] >> 4], offset, scale);
    }
}

static void quant_widen_e8m0(const uint8_t *s, int64_t n, float *dst)
{
    int64_t i = 0;

#if NGD_SIMD >= 8
    for (; i + 8 <= n; i += 8) {
        const __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(s + i))),
                      zero = _mm256_cmpeq_epi32(v, _mm256_setzero_si256()),
                      nan = _mm256_cmpeq_epi32(v, _mm256_set1_epi32(255)),
                      more = _mm256_and_si256(_mm256_or_si256(zero, nan), _mm256_set1_epi32(0x400000)),
                      bits = _mm256_or_si256(_mm256_slli_epi32(v, 23), more);

        _mm256_storeu_ps(dst + i, _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0.5F)));
    }
#endif
    for (; i < n; i++)
        dst[i] = ngd_quant_half_of_e8m0(s[i]);
}

static void quant_scale_blocks(const int8_t *q, int64_t n, const float *scales, int64_t each, float *dst)
{
    for (int64_t i = 0, end; i < n; i = end, scales++) {
        int64_t j = i;

        end = n - i < each ? n : i + each;
#if NGD_SIMD >= 8
        for (; j + 8 <= end; j += 8) {
            const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(q + j))));

            _mm256_storeu_ps(dst + j, _mm256_mul_ps(v, _mm256_set1_ps(*scales)));
        }
#endif
        for (; j < end; j++)
            dst[j] = (float)q[j] * *scales;
    }
}

static void quant_add_up(float *offsets, float zero, const float *scales, const float *minima, int64_t n)
{
    int64_t i = 0;

#if NGD_SIMD >= 8
    for (; i + 8 <= n; i += 8) {
        const __m256 v = _mm256_mul_ps(_mm256_add_ps(_mm256_loadu_ps(offsets + i), _mm256_set1_ps(zero)),
                                       _mm256_loadu_ps(scales + i));

        _mm256_storeu_ps(offsets + i, minima ? _mm256_add_ps(v, _mm256_loadu_ps(minima + i)) : v);
    }
#endif
    for (; i < n; i++)
        offsets[i] = (offsets[i] + zero) * scales[i] + (minima ? minima[i] : 0);
}
