/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu.quant_matmul for one instruction set; see k_quant_matmul.h, and simd.h for how this file is included. NGD_VNNI is
 * AVX-512 with products of bytes.
 */
#include "devices/host/kernels/k_quant_matmul.h"
#include "devices/host/kernels/simd.h"
#include "devices/host/kernels/unroll.h"
#include <string.h>
#if defined(__aarch64__) && NGD_SIMD == 1
#include <arm_neon.h>
#define QMM_NEON
#endif

/*
 * qmm_v holds QMM_STEP elements of a row, qmm_i partial sums. qmm_add must not saturate:
 * - Bytes are widened to i16, whose products of pairs fit i32.
 * - AVX2 multiplies |w| with x that has w's sign. A pair of such products fits i16 unless an x is -128: then, if `low`,
 *   it widens too.
 * - VNNI multiplies u8 with i8. Weights have 128 added, and qmm_excess is taken off the sums.
 */
#if defined(NGD_VNNI)
#define QMM_STEP 64
typedef __m512i qmm_v, qmm_i;

SIMD_INLINE qmm_v qmm_weights(const int8_t *p)
{
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8((char)0x80));
}
SIMD_INLINE qmm_v qmm_row(const int8_t *p)
{
    return _mm512_loadu_si512(p);
}
SIMD_INLINE qmm_i qmm_add(qmm_i sum, qmm_v w, qmm_v x, const bool low)
{
    (void)low;
    return _mm512_dpbusd_epi32(sum, w, x);
}
#elif NGD_SIMD == 16
#define QMM_STEP 32
typedef __m512i qmm_v, qmm_i;

SIMD_INLINE qmm_v qmm_row(const int8_t *p)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p));
}
SIMD_INLINE qmm_i qmm_add(qmm_i sum, qmm_v w, qmm_v x, const bool low)
{
    (void)low;
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, x));
}
#elif NGD_SIMD == 8
#define QMM_STEP 32
typedef __m256i qmm_v, qmm_i;

SIMD_INLINE qmm_v qmm_row(const int8_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}
SIMD_INLINE qmm_i qmm_widened(__m128i w, __m128i x)
{
    return _mm256_madd_epi16(_mm256_cvtepi8_epi16(w), _mm256_cvtepi8_epi16(x));
}
SIMD_INLINE qmm_i qmm_add(qmm_i sum, qmm_v w, qmm_v x, const bool low)
{
    if (low)
        return _mm256_add_epi32(
            sum, _mm256_add_epi32(qmm_widened(_mm256_castsi256_si128(w), _mm256_castsi256_si128(x)),
                                  qmm_widened(_mm256_extracti128_si256(w, 1), _mm256_extracti128_si256(x, 1))));
    sum = _mm256_add_epi32(
        sum, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), _mm256_set1_epi16(1)));
    NGD_KEEP(sum);
    return sum;
}
#elif defined(QMM_NEON)
#define QMM_STEP 16
typedef int8x16_t qmm_v;
typedef int32x4_t qmm_i;

SIMD_INLINE qmm_v qmm_row(const int8_t *p)
{
    return vld1q_s8(p);
}
SIMD_INLINE qmm_i qmm_add(qmm_i sum, qmm_v w, qmm_v x, const bool low)
{
    (void)low;
    return vpadalq_s16(vpadalq_s16(sum, vmull_s8(vget_low_s8(w), vget_low_s8(x))), vmull_high_s8(w, x));
}
#else
#define QMM_STEP 16
typedef struct {
    int8_t v[QMM_STEP];
} qmm_v;
typedef uint32_t qmm_i;

SIMD_INLINE qmm_v qmm_row(const int8_t *p)
{
    qmm_v v;

    memcpy(&v, p, sizeof(v));
    return v;
}
SIMD_INLINE qmm_i qmm_add(qmm_i sum, qmm_v w, qmm_v x, const bool low)
{
    (void)low;
    for (int i = 0; i < QMM_STEP; i++)
        sum += (uint32_t)(w.v[i] * x.v[i]);
    return sum;
}
#endif

#if !defined(NGD_VNNI)
#define qmm_weights qmm_row
#endif

#if NGD_SIMD == 16
#define QMM_ZERO      _mm512_setzero_si512()
#define QMM_TOTAL(v)  _mm512_reduce_add_epi32(v)
#define QMM_COLS_OF_4 4 /* columns of a tile of 4 rows: sums and operands fit the registers */
#elif NGD_SIMD == 8
#define QMM_ZERO      _mm256_setzero_si256()
#define QMM_TOTAL(v)  qmm_total(v)
#define QMM_COLS_OF_4 2
SIMD_INLINE int32_t qmm_total(qmm_i v)
{
    const __m128i h = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)),
                  q = _mm_add_epi32(h, _mm_unpackhi_epi64(h, h));

    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 1)));
}
#elif defined(QMM_NEON)
#define QMM_ZERO      vdupq_n_s32(0)
#define QMM_TOTAL(v)  vaddvq_s32(v)
#define QMM_COLS_OF_4 4
#else
#define QMM_ZERO      0
#define QMM_TOTAL(v)  ((int32_t)(v))
#define QMM_COLS_OF_4 2
#endif

/* Adds the products of a step. */
SIMD_INLINE void qmm_step(const int8_t *x, int64_t ldx, const int8_t *w, int64_t ldw, const int mb, const int nr,
                          const bool low, qmm_i *sums)
{
    qmm_v wv[4];

    NGD_UNROLL for (int c = 0; c < nr; c++) wv[c] = qmm_weights(w + c * ldw);
    NGD_UNROLL for (int r = 0; r < mb; r++)
    {
        const qmm_v xv = qmm_row(x + r * ldx);

        NGD_UNROLL for (int c = 0; c < nr; c++) sums[r * nr + c] = qmm_add(sums[r * nr + c], wv[c], xv, low);
    }
}

/* As qmm_step, for the last `left` elements: nothing behind a row is read. */
SIMD_INLINE void qmm_last_step(const int8_t *x, int64_t ldx, const int8_t *w, int64_t ldw, int64_t left, const int mb,
                               const int nr, const bool low, qmm_i *sums)
{
    int8_t rows[4][QMM_STEP] = {0}, weights[4][QMM_STEP] = {0};

    for (int r = 0; r < mb; r++)
        memcpy(rows[r], x + r * ldx, (size_t)left);
    for (int c = 0; c < nr; c++)
        memcpy(weights[c], w + c * ldw, (size_t)left);
    qmm_step(rows[0], QMM_STEP, weights[0], QMM_STEP, mb, nr, low, sums);
}

/* Computes mb x nr sums. excess: 128 * the sum of each row of x, which VNNI adds to each product with it. */
SIMD_INLINE void qmm_tile(const int8_t *x, int64_t ldx, const int8_t *w, int64_t ldw, int64_t k, const uint32_t *excess,
                          const char *next, const bool low, const int mb, const int nr, int32_t (*out)[NGD_QMM_COLS])
{
    qmm_i sums[16];
    int64_t i = 0;

    NGD_UNROLL for (int j = 0; j < mb * nr; j++) sums[j] = QMM_ZERO;
    for (; i + QMM_STEP <= k; i += QMM_STEP) {
        if (next) {
            NGD_UNROLL for (int l = 0; l < nr * QMM_STEP; l += 64) __builtin_prefetch(next + l, 0, 3);
            next += nr * QMM_STEP;
        }
        qmm_step(x + i, ldx, w + i, ldw, mb, nr, low, sums);
    }
    if (i < k)
        qmm_last_step(x + i, ldx, w + i, ldw, k - i, mb, nr, low, sums);
    NGD_UNROLL for (int j = 0; j < mb * nr; j++) out[j / nr][j % nr] =
        (int32_t)((uint32_t)QMM_TOTAL(sums[j]) - excess[j / nr]);
}

/* Computes nr columns for all rows, blocks of 4, 2 and 1 of them. */
SIMD_INLINE void qmm_columns(const int8_t *x, int64_t ldx, int64_t rows, const int8_t *w, int64_t ldw, int64_t k,
                             const uint32_t *excess, const char *next, const bool low, const int nr,
                             int32_t (*out)[NGD_QMM_COLS])
{
    int64_t r = 0;

    for (; r + 4 <= rows; r += 4, next = NULL)
        qmm_tile(x + r * ldx, ldx, w, ldw, k, excess + r, next, low, 4, nr, out + r);
    if (r + 2 <= rows) {
        qmm_tile(x + r * ldx, ldx, w, ldw, k, excess + r, next, low, 2, nr, out + r);
        r += 2, next = NULL;
    }
    if (r < rows)
        qmm_tile(x + r * ldx, ldx, w, ldw, k, excess + r, next, low, 1, nr, out + r);
}

static void qmm_excess(const int8_t *x, int64_t ldx, int64_t rows, int64_t k, uint32_t *excess)
{
    memset(excess, 0, NGD_QMM_ROWS * sizeof(*excess));
#if defined(NGD_VNNI)
    for (int64_t r = 0; r < rows; r++) {
        const __m512i all = _mm512_set1_epi8((char)128);
        __m512i sum = _mm512_setzero_si512();

        for (int64_t i = 0; i < k; i += QMM_STEP) {
            const __mmask64 some = k - i < QMM_STEP ? ((__mmask64)1 << (k - i)) - 1 : ~(__mmask64)0;

            sum = _mm512_dpbusd_epi32(sum, all, _mm512_maskz_loadu_epi8(some, x + r * ldx + i));
        }
        excess[r] = (uint32_t)_mm512_reduce_add_epi32(sum);
    }
#else
    (void)x, (void)ldx, (void)rows, (void)k;
#endif
}

/* Returns true if AVX2 must widen the elements of rows, because one is -128. */
static bool qmm_is_low(const int8_t *x, int64_t ldx, int64_t rows, int64_t k)
{
#if NGD_SIMD == 8
    for (int64_t r = 0; r < rows; r++) {
        const int8_t *row = x + r * ldx;
        __m256i least = _mm256_setzero_si256();
        int64_t i = 0;

        for (; i + QMM_STEP <= k; i += QMM_STEP)
            least = _mm256_min_epi8(least, qmm_row(row + i));
        if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(least, _mm256_set1_epi8(-128))) != 0)
            return true;
        for (; i < k; i++)
            if (row[i] == -128)
                return true;
    }
#else
    (void)x, (void)ldx, (void)rows, (void)k;
#endif
    return false;
}

/* Computes columns [c, cols) as long as there are nr of them. Returns the first one that is left. */
SIMD_INLINE int64_t qmm_run(const int8_t *x, int64_t ldx, int64_t rows, const int8_t *w, int64_t ldw, int64_t k,
                            int64_t c, int64_t cols, const uint32_t *excess, bool stream, const bool low, const int nr,
                            int32_t (*sums)[NGD_QMM_COLS])
{
    for (; c + nr <= cols; c += nr)
        qmm_columns(x, ldx, rows, w + c * ldw, ldw, k, excess, stream ? (const char *)w + (c + nr) * ldw : NULL, low,
                    nr, (int32_t(*)[NGD_QMM_COLS])(sums[0] + c));
    return c;
}

static void qmm_sums(const int8_t *x, int64_t ldx, int64_t rows, const int8_t *w, int64_t ldw, int64_t k, int64_t cols,
                     bool stream, int32_t (*sums)[NGD_QMM_COLS])
{
    uint32_t excess[NGD_QMM_ROWS];
    int64_t c = 0;

    qmm_excess(x, ldx, rows, k, excess);
    if (qmm_is_low(x, ldx, rows, k))
        c = qmm_run(x, ldx, rows, w, ldw, k, c, cols, excess, stream, true, 2, sums);
    else if (rows < 4)
        c = qmm_run(x, ldx, rows, w, ldw, k, c, cols, excess, stream, false, 4, sums);
    else
        c = qmm_run(x, ldx, rows, w, ldw, k, c, cols, excess, stream, false, QMM_COLS_OF_4, sums);
    qmm_run(x, ldx, rows, w, ldw, k, c, cols, excess, false, true, 1, sums);
}

#define QMM_FINISH(T)                                                                                           \
    static void qmm_finish_##T(const struct ngd_qmm_columns *c, const int32_t *sums, float row_scale, void *yp) \
    {                                                                                                           \
        const simd_f by = simd_set1(row_scale);                                                                 \
        ngd_el_##T *y = yp;                                                                                     \
                                                                                                                \
        for (int64_t i = 0; i < c->n; i += SIMD_W) {                                                            \
            simd_i s;                                                                                           \
            simd_f v;                                                                                           \
                                                                                                                \
            memcpy(&s, sums + i, sizeof(s)); /* there is room for whole vectors */                              \
            v = simd_mul(simd_mul(simd_cvt_f(s), simd_load_f32(c->scale + i)), by);                             \
            if (c->biased)                                                                                      \
                v = simd_add(v, simd_load_f32(c->bias + i));                                                    \
            simd_store_up_to_##T(y + i, v, c->n - i);                                                           \
        }                                                                                                       \
    }
QMM_FINISH(f32)
QMM_FINISH(f16)
QMM_FINISH(bf16)

static void qmm_finish(const struct ngd_qmm_columns *c, const int32_t *sums, float row_scale, void *y)
{
    if (c->dtype == NGD_F32)
        qmm_finish_f32(c, sums, row_scale, y);
    else if (c->dtype == NGD_F16)
        qmm_finish_f16(c, sums, row_scale, y);
    else
        qmm_finish_bf16(c, sums, row_scale, y);
}

#if defined(NGD_VNNI)
const struct ngd_qmm_table ngd_qmm_vnni = {.sums = qmm_sums, .finish = qmm_finish};
#else
const struct ngd_qmm_table SIMD_NAME(ngd_qmm) = {.sums = qmm_sums, .finish = qmm_finish};
#endif
