/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot with weights in f8_e4m3fn for one instruction set; see k_gemm_quant.h. k_gemm_impl.h includes this file.
 *
 * Both x86 tables take vectors of 256 bits, and other CPUs plain C that the compiler turns into vectors. On x86 an f8
 * is widened through f16, whose exponent is 8 larger: so numbers come out as 1/256 of theirs, subnormals too, and the
 * sum of a group is multiplied with 256. A NaN comes out as a number. So the largest and the smallest bytes of a tile's
 * weights are kept, which tell whether there was one.
 */
#define F8_LANES 8 /* f32 in a vector */
#define F8_CHUNK 16

#if NGD_SIMD >= 8
#define F8_FACTOR 256.0f
typedef __m256 f8_v;
typedef struct {
    __m256i most, most_unsigned; /* 0x7f if a byte was, 0xff if a byte was */
} f8_seen;

SIMD_INLINE f8_v f8_each(float v)
{
    return _mm256_set1_ps(v);
}
SIMD_INLINE f8_v f8_load_x(const float *p)
{
    return _mm256_loadu_ps(p);
}
SIMD_INLINE void f8_load(const uint8_t *p, f8_v *a, f8_v *b)
{
    const __m256i v = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)),
                  h = _mm256_and_si256(_mm256_slli_epi16(v, 7), _mm256_set1_epi16((short)0xbfff));

    *a = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    *b = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}
SIMD_INLINE void f8_begin(f8_seen *seen)
{
    seen->most = _mm256_set1_epi8(-128);
    seen->most_unsigned = _mm256_setzero_si256();
}
SIMD_INLINE void f8_look(f8_seen *seen, const uint8_t *p)
{
    const __m256i v = _mm256_loadu_si256((const void *)p);

    seen->most = _mm256_max_epi8(seen->most, v);
    seen->most_unsigned = _mm256_max_epu8(seen->most_unsigned, v);
}
SIMD_INLINE bool f8_has_nan(const f8_seen *seen)
{
    const __m256i positive = _mm256_cmpeq_epi8(seen->most, _mm256_set1_epi8(0x7f)),
                  negative = _mm256_cmpeq_epi8(seen->most_unsigned, _mm256_set1_epi8(-1));

    return _mm256_movemask_epi8(_mm256_or_si256(positive, negative)) != 0;
}
SIMD_INLINE f8_v f8_mul(f8_v a, f8_v b)
{
    return _mm256_mul_ps(a, b);
}
SIMD_INLINE f8_v f8_fma(f8_v a, f8_v x, f8_v acc)
{
    return _mm256_fmadd_ps(a, x, acc);
}
SIMD_INLINE float f8_total(f8_v v)
{
    return quant_total(v);
}
SIMD_INLINE void f8_store(float *p, f8_v v)
{
    _mm256_storeu_ps(p, v);
}
#else
#define F8_FACTOR 1.0f
typedef struct {
    float v[F8_LANES];
} f8_v;
typedef bool f8_seen; /* numbers come out right, NaN too */

SIMD_INLINE f8_v f8_each(float v)
{
    return (f8_v){{v, v, v, v, v, v, v, v}};
}
SIMD_INLINE f8_v f8_load_x(const float *p)
{
    f8_v x;

    memcpy(&x, p, sizeof(x));
    return x;
}
SIMD_INLINE void f8_load(const uint8_t *p, f8_v *a, f8_v *b)
{
    for (int i = 0; i < F8_LANES; i++) {
        a->v[i] = ngd_f8_to_f32(p[i]);
        b->v[i] = ngd_f8_to_f32(p[F8_LANES + i]);
    }
}
SIMD_INLINE void f8_begin(f8_seen *seen)
{
    *seen = false;
}
SIMD_INLINE void f8_look(f8_seen *seen, const uint8_t *p)
{
    (void)seen;
    (void)p;
}
SIMD_INLINE bool f8_has_nan(const f8_seen *seen)
{
    return *seen;
}
SIMD_INLINE f8_v f8_mul(f8_v a, f8_v b)
{
    for (int i = 0; i < F8_LANES; i++)
        a.v[i] *= b.v[i];
    return a;
}
SIMD_INLINE f8_v f8_fma(f8_v a, f8_v x, f8_v acc)
{
    for (int i = 0; i < F8_LANES; i++)
        acc.v[i] += a.v[i] * x.v[i];
    return acc;
}
SIMD_INLINE float f8_total(f8_v v)
{
    return ((v.v[0] + v.v[4]) + (v.v[2] + v.v[6])) + ((v.v[1] + v.v[5]) + (v.v[3] + v.v[7]));
}
SIMD_INLINE void f8_store(float *p, f8_v v)
{
    memcpy(p, &v, sizeof(v));
}
#endif

/* Adds the products of NGD_F8_STEP weights of nr rows of w with mb rows of x. mb and nr are constants. */
SIMD_INLINE void f8_step(const float *x, const uint8_t *w, int64_t ldw, f8_seen *seen, const int mb, const int nr,
                         f8_v *acc)
{
    f8_v a[4], b[4];

    NGD_UNROLL for (int r = 0; r < nr; r++) f8_look(seen, w + r * ldw);
    NGD_UNROLL for (int h = 0; h < NGD_F8_STEP; h += F8_CHUNK, x += mb * F8_CHUNK)
    {
        NGD_UNROLL for (int r = 0; r < nr; r++) f8_load(w + r * ldw + h, &a[r], &b[r]);
        NGD_UNROLL for (int m = 0; m < mb; m++)
        {
            const f8_v xv = f8_load_x(x + m * F8_CHUNK);

            NGD_UNROLL for (int r = 0; r < nr; r++) acc[m * nr + r] = f8_fma(a[r], xv, acc[m * nr + r]);
        }
        NGD_UNROLL for (int m = 0; m < mb; m++)
        {
            const f8_v xv = f8_load_x(x + m * F8_CHUNK + F8_LANES);

            NGD_UNROLL for (int r = 0; r < nr; r++) acc[m * nr + r] = f8_fma(b[r], xv, acc[m * nr + r]);
        }
    }
}

/* Makes the sums of rows of w that have a NaN NaN. */
static __attribute__((noinline)) void f8_put_nans(const uint8_t *w, int64_t ldw, int64_t k, int mb, int nr, float *out)
{
    for (int r = 0; r < nr; r++) {
        int64_t i = 0;

        while (i < k && (w[r * ldw + i] & 0x7f) != 0x7f)
            i++;
        for (int m = 0; i < k && m < mb; m++)
            out[m * nr + r] = NAN;
    }
}

/* As quant_tile: computes mb x nr sums. scales: [nr][groups], or [nr] if a column has one. */
SIMD_INLINE void f8_tile(const struct ngd_gemm *g, const float *x, const uint8_t *w, const float *scales,
                         const char *next, const int mb, const int nr, float *out)
{
    const int64_t column = ngd_quant_column(g), group = column > 1 ? g->quant.group : g->k;
    f8_v total[8];
    f8_seen seen;

    f8_begin(&seen);
    NGD_UNROLL for (int j = 0; j < mb * nr; j++) total[j] = f8_each(0);
    for (int64_t s = 0, k = 0; s < column; s++) {
        const int64_t end = group < g->k - k ? k + group : g->k;
        f8_v acc[8];

        NGD_UNROLL for (int j = 0; j < mb * nr; j++) acc[j] = f8_each(0);
        for (; k + NGD_F8_STEP <= end; k += NGD_F8_STEP, x += mb * NGD_F8_STEP) {
            if (next) {
                NGD_UNROLL for (int l = 0; l < nr * NGD_F8_STEP; l += LINE) __builtin_prefetch(next + l, 0, 3);
                next += nr * NGD_F8_STEP;
            }
            f8_step(x, w + k, g->ldw, &seen, mb, nr, acc);
        }
        if (k < end) { /* the end of a row, behind which there may be no memory */
            uint8_t cut[4][NGD_F8_STEP] = {{0}};

            for (int r = 0; r < nr; r++)
                memcpy(cut[r], w + r * g->ldw + k, (size_t)(end - k));
            f8_step(x, cut[0], NGD_F8_STEP, &seen, mb, nr, acc);
            k = end;
        }
        NGD_UNROLL for (int j = 0; j < mb * nr; j++) total[j] =
            f8_fma(f8_mul(acc[j], f8_each(F8_FACTOR)), f8_each(scales[j % nr * column + s]), total[j]);
    }
    NGD_UNROLL for (int j = 0; j < mb * nr; j++) out[j] = f8_total(total[j]);
    if (f8_has_nan(&seen))
        f8_put_nans(w, g->ldw, g->k, mb, nr, out);
}

/* As quant_rows. */
SIMD_INLINE void f8_rows(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const struct ngd_quant_area *a,
                         int64_t row, const int mb, const int nr, int64_t n0, int64_t n1, int64_t ahead)
{
    const int64_t x_row = (g->k + NGD_F8_STEP - 1) / NGD_F8_STEP * NGD_F8_STEP, column = ngd_quant_column(g);
    const uint8_t *w = (const uint8_t *)d->w + n0 * g->ldw;
    const float *x = a->x_f8 + row * x_row;
    float out[8][NGD_QUANT_COLUMNS], t[8];
    int64_t col = 0;

    for (; col + nr <= n1 - n0; col += nr, w += nr * g->ldw) {
        f8_tile(g, x, w, a->scales + col * column, ahead ? (const char *)w + ahead : NULL, mb, nr, t);
        NGD_UNROLL for (int j = 0; j < mb * nr; j++) out[j / nr][col + j % nr] = t[j];
    }
    for (; col < n1 - n0; col++, w += g->ldw) {
        f8_tile(g, x, w, a->scales + col * column, NULL, mb, 1, t);
        NGD_UNROLL for (int m = 0; m < mb; m++) out[m][col] = t[m];
    }
    for (int m = 0; m < mb; m++)
        ngd_gemm_put(g, d, row + m, n0, out[m], n1 - n0);
}

static void f8_dot(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const struct ngd_quant_area *a,
                   int64_t rows, int64_t n0, int64_t n1)
{
    const int64_t ahead = rows == 1 ? STREAM_AHEAD : GROUP * g->ldw;
    int64_t row = 0;

    for (; row + 8 <= rows; row += 8)
        f8_rows(g, d, a, row, 8, 1, n0, n1, row ? 0 : ahead);
    if (row + 4 <= rows) {
        f8_rows(g, d, a, row, 4, 2, n0, n1, row ? 0 : ahead);
        row += 4;
    }
    if (row + 2 <= rows) {
        f8_rows(g, d, a, row, 2, 4, n0, n1, row ? 0 : ahead);
        row += 2;
    }
    if (row < rows)
        f8_rows(g, d, a, row, 1, 4, n0, n1, row ? 0 : ahead);
}

static void f8_widen(const void *q, int64_t n, float offset, float scale, float *dst)
{
    const uint8_t *w = q;
    int64_t i = 0;

    (void)offset;
    for (; i + NGD_F8_STEP <= n; i += NGD_F8_STEP) {
        f8_seen seen;
        f8_v a, b;

        f8_begin(&seen);
        f8_look(&seen, w + i);
        if (f8_has_nan(&seen))
            break;
        for (int h = 0; h < NGD_F8_STEP; h += F8_CHUNK) {
            f8_load(w + i + h, &a, &b);
            f8_store(dst + i + h, f8_mul(f8_mul(a, f8_each(F8_FACTOR)), f8_each(scale)));
            f8_store(dst + i + h + F8_LANES, f8_mul(f8_mul(b, f8_each(F8_FACTOR)), f8_each(scale)));
        }
    }
    for (; i < n; i++) /* what is left, or all from a NaN on */
        dst[i] = ngd_f8_to_f32(w[i]) * scale;
}
