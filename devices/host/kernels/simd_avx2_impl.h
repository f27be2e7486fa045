/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_SIMD_AVX2_IMPL_H
#define NGD_DEVICES_HOST_KERNELS_SIMD_AVX2_IMPL_H

/* simd.h for 8 lanes: AVX2, FMA, F16C. */
#include <immintrin.h>

typedef __m256 simd_f;
typedef __m256i simd_i;
typedef __m256 simd_m; /* all bits of a lane, or none */

SIMD_INLINE simd_f simd_set1(float v)
{
    return _mm256_set1_ps(v);
}
SIMD_INLINE simd_f simd_zero(void)
{
    return _mm256_setzero_ps();
}
SIMD_INLINE __m256i simd_tail(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SIMD_INLINE simd_f simd_from_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
/* Rounds to nearest even by the carry of an integer addition. A NaN keeps its top bits and becomes quiet. */
SIMD_INLINE __m128i simd_to_bf16(simd_f v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);

    r = _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(nan));
    r = _mm256_srli_epi32(r, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
/* 16-bit tails go through a copy: AVX2 has masked moves for 32-bit lanes only. */
SIMD_INLINE __m128i simd_load_n_16(const uint16_t *p, int64_t n)
{
    uint16_t t[8] = {0};

    for (int64_t i = 0; i < n; i++)
        t[i] = p[i];
    return _mm_loadu_si128((const void *)t);
}
SIMD_INLINE void simd_store_n_16(uint16_t *p, __m128i v, int64_t n)
{
    uint16_t t[8];

    _mm_storeu_si128((void *)t, v);
    for (int64_t i = 0; i < n; i++)
        p[i] = t[i];
}
#define SIMD_RNE (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
SIMD_INLINE simd_f simd_load_f32(const ngd_el_f32 *p)
{
    return _mm256_loadu_ps(p);
}
SIMD_INLINE simd_f simd_load_f16(const ngd_el_f16 *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}
SIMD_INLINE simd_f simd_load_bf16(const ngd_el_bf16 *p)
{
    return simd_from_bf16(_mm_loadu_si128((const void *)p));
}
SIMD_INLINE void simd_store_f32(ngd_el_f32 *p, simd_f v)
{
    _mm256_storeu_ps(p, v);
}
SIMD_INLINE void simd_store_f16(ngd_el_f16 *p, simd_f v)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v, SIMD_RNE));
}
SIMD_INLINE void simd_store_bf16(ngd_el_bf16 *p, simd_f v)
{
    _mm_storeu_si128((void *)p, simd_to_bf16(v));
}
SIMD_INLINE simd_f simd_load_n_f32(const ngd_el_f32 *p, int64_t n)
{
    return _mm256_maskload_ps(p, simd_tail(n));
}
SIMD_INLINE simd_f simd_load_n_f16(const ngd_el_f16 *p, int64_t n)
{
    return _mm256_cvtph_ps(simd_load_n_16(p, n));
}
SIMD_INLINE simd_f simd_load_n_bf16(const ngd_el_bf16 *p, int64_t n)
{
    return simd_from_bf16(simd_load_n_16(p, n));
}
SIMD_INLINE void simd_store_n_f32(ngd_el_f32 *p, simd_f v, int64_t n)
{
    _mm256_maskstore_ps(p, simd_tail(n), v);
}
SIMD_INLINE void simd_store_n_f16(ngd_el_f16 *p, simd_f v, int64_t n)
{
    simd_store_n_16(p, _mm256_cvtps_ph(v, SIMD_RNE), n);
}
SIMD_INLINE void simd_store_n_bf16(ngd_el_bf16 *p, simd_f v, int64_t n)
{
    simd_store_n_16(p, simd_to_bf16(v), n);
}
/* Numbers of a KV cache: simd.h. Tails go through a copy, as those of 16 bits. */
SIMD_INLINE simd_f simd_from_i8(__m128i b)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b));
}
/* The bits of an f8, moved into an f16, are the number times 2^-8. NaN is taken for 480. */
SIMD_INLINE simd_f simd_from_f8(__m128i b)
{
    const __m128i bits = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(b), 7), _mm_set1_epi16((short)0xbf80));

    return _mm256_cvtph_ps(bits);
}
SIMD_INLINE __m128i simd_to_i8(simd_f v)
{
    const __m256i i = _mm256_cvtps_epi32(v);
    const __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));

    return _mm_packs_epi16(h, h);
}
/* As ngd_f32_to_f8, for numbers within -448..448. */
SIMD_INLINE __m128i simd_to_f8(simd_f v)
{
    const __m256i u = _mm256_castps_si256(v), mag = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(mag, 20), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(mag, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff)));
    const __m256i normal = _mm256_sub_epi32(_mm256_srli_epi32(up, 20), _mm256_set1_epi32(120 << 3));
    const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(mag), _mm256_set1_ps(0x1p14f));
    const __m256i tiny = _mm256_and_si256(_mm256_castps_si256(sum), _mm256_set1_epi32(0xf));
    const __m256i is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), mag);
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(u, 24), _mm256_set1_epi32(0x80));
    const __m256i r = _mm256_or_si256(_mm256_blendv_epi8(normal, tiny, is_tiny), sign);
    const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));

    return _mm_packus_epi16(h, h);
}
SIMD_INLINE bool simd_f8_nan_in(const ngd_el_f8 *p, int64_t n)
{
    const __m256i sign = _mm256_set1_epi8((char)0x80), nan = _mm256_set1_epi8(-1);
    __m256i seen = _mm256_setzero_si256();
    bool rest = false;
    int64_t i = 0;

    for (; i + 32 <= n; i += 32)
        seen = _mm256_or_si256(
            seen, _mm256_cmpeq_epi8(_mm256_or_si256(_mm256_loadu_si256((const void *)(p + i)), sign), nan));
    for (; i < n; i++)
        rest |= (p[i] & 0x7f) == 0x7f;
    return rest || !_mm256_testz_si256(seen, seen);
}
SIMD_INLINE __m128i simd_load_n_8(const void *p, int64_t n)
{
    uint8_t t[8] = {0};

    for (int64_t i = 0; i < n; i++)
        t[i] = ((const uint8_t *)p)[i];
    return _mm_loadl_epi64((const void *)t);
}
SIMD_INLINE void simd_store_n_8(void *p, __m128i v, int64_t n)
{
    uint8_t t[8];

    _mm_storel_epi64((void *)t, v);
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)p)[i] = t[i];
}
SIMD_INLINE simd_f simd_load_i8(const ngd_el_i8 *p)
{
    return simd_from_i8(_mm_loadl_epi64((const void *)p));
}
SIMD_INLINE simd_f simd_load_f8(const ngd_el_f8 *p)
{
    return simd_from_f8(_mm_loadl_epi64((const void *)p));
}
SIMD_INLINE simd_f simd_load_n_i8(const ngd_el_i8 *p, int64_t n)
{
    return simd_from_i8(simd_load_n_8(p, n));
}
SIMD_INLINE simd_f simd_load_n_f8(const ngd_el_f8 *p, int64_t n)
{
    return simd_from_f8(simd_load_n_8(p, n));
}
SIMD_INLINE void simd_store_i8(ngd_el_i8 *p, simd_f v)
{
    _mm_storel_epi64((void *)p, simd_to_i8(v));
}
SIMD_INLINE void simd_store_f8(ngd_el_f8 *p, simd_f v)
{
    _mm_storel_epi64((void *)p, simd_to_f8(v));
}
SIMD_INLINE void simd_store_n_i8(ngd_el_i8 *p, simd_f v, int64_t n)
{
    simd_store_n_8(p, simd_to_i8(v), n);
}
SIMD_INLINE void simd_store_n_f8(ngd_el_f8 *p, simd_f v, int64_t n)
{
    simd_store_n_8(p, simd_to_f8(v), n);
}

SIMD_INLINE simd_f simd_add(simd_f a, simd_f b)
{
    return _mm256_add_ps(a, b);
}
SIMD_INLINE simd_f simd_sub(simd_f a, simd_f b)
{
    return _mm256_sub_ps(a, b);
}
SIMD_INLINE simd_f simd_mul(simd_f a, simd_f b)
{
    return _mm256_mul_ps(a, b);
}
SIMD_INLINE simd_f simd_div(simd_f a, simd_f b)
{
    return _mm256_div_ps(a, b);
}
SIMD_INLINE simd_f simd_fma(simd_f a, simd_f b, simd_f c)
{
    return _mm256_fmadd_ps(a, b, c);
}
SIMD_INLINE simd_f simd_fnma(simd_f a, simd_f b, simd_f c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
SIMD_INLINE simd_f simd_min(simd_f a, simd_f b)
{
    return _mm256_min_ps(a, b);
}
SIMD_INLINE simd_f simd_max(simd_f a, simd_f b)
{
    return _mm256_max_ps(a, b);
}
SIMD_INLINE simd_f simd_sqrt(simd_f a)
{
    return _mm256_sqrt_ps(a);
}
SIMD_INLINE simd_f simd_abs(simd_f a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
SIMD_INLINE simd_f simd_neg(simd_f a)
{
    return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a);
}
SIMD_INLINE simd_f simd_copysign(simd_f mag, simd_f sign)
{
    const simd_f bit = _mm256_set1_ps(-0.0f);

    return _mm256_or_ps(_mm256_andnot_ps(bit, mag), _mm256_and_ps(bit, sign));
}
SIMD_INLINE simd_f simd_round(simd_f a)
{
    return _mm256_round_ps(a, SIMD_RNE);
}
SIMD_INLINE simd_f simd_floor(simd_f a)
{
    return _mm256_floor_ps(a);
}
SIMD_INLINE simd_f simd_ceil(simd_f a)
{
    return _mm256_ceil_ps(a);
}

SIMD_INLINE simd_m simd_lt(simd_f a, simd_f b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
SIMD_INLINE simd_m simd_le(simd_f a, simd_f b)
{
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
SIMD_INLINE simd_m simd_eq(simd_f a, simd_f b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
SIMD_INLINE simd_m simd_ne(simd_f a, simd_f b)
{
    return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ);
}
SIMD_INLINE simd_m simd_isnan(simd_f a)
{
    return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}
SIMD_INLINE simd_m simd_m_and(simd_m a, simd_m b)
{
    return _mm256_and_ps(a, b);
}
SIMD_INLINE simd_m simd_m_or(simd_m a, simd_m b)
{
    return _mm256_or_ps(a, b);
}
SIMD_INLINE simd_m simd_m_xor(simd_m a, simd_m b)
{
    return _mm256_xor_ps(a, b);
}
SIMD_INLINE bool simd_m_any(simd_m m)
{
    return _mm256_movemask_ps(m) != 0;
}
SIMD_INLINE bool simd_m_all(simd_m m)
{
    return _mm256_movemask_ps(m) == 0xff;
}
SIMD_INLINE int simd_m_first(simd_m m)
{
    return __builtin_ctz((unsigned)_mm256_movemask_ps(m));
}
SIMD_INLINE simd_f simd_select(simd_m m, simd_f yes, simd_f no)
{
    return _mm256_blendv_ps(no, yes, m);
}
/* Keeps the first n lanes; the others become zero. */
SIMD_INLINE simd_f simd_keep(simd_f v, int64_t n)
{
    return _mm256_and_ps(v, _mm256_castsi256_ps(simd_tail(n)));
}
/* Keeps the first n lanes; the others become `rest`. */
SIMD_INLINE simd_f simd_fill(simd_f v, int64_t n, float rest)
{
    return _mm256_blendv_ps(_mm256_set1_ps(rest), v, _mm256_castsi256_ps(simd_tail(n)));
}
SIMD_INLINE void simd_store_mask(uint8_t *p, simd_m m, int64_t n)
{
    __m256i v = _mm256_srli_epi32(_mm256_castps_si256(m), 31);
    __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    uint64_t bytes = (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(h, h));

    if (n >= SIMD_W)
        memcpy(p, &bytes, 8);
    else
        for (int64_t i = 0; i < n; i++)
            p[i] = (uint8_t)(bytes >> (8 * i));
}

SIMD_INLINE simd_i simd_f_bits(simd_f a)
{
    return _mm256_castps_si256(a);
}
SIMD_INLINE simd_f simd_bits_f(simd_i a)
{
    return _mm256_castsi256_ps(a);
}
SIMD_INLINE simd_i simd_i_set1(int32_t v)
{
    return _mm256_set1_epi32(v);
}
SIMD_INLINE simd_i simd_i_add(simd_i a, simd_i b)
{
    return _mm256_add_epi32(a, b);
}
SIMD_INLINE simd_i simd_i_sub(simd_i a, simd_i b)
{
    return _mm256_sub_epi32(a, b);
}
SIMD_INLINE simd_i simd_i_and(simd_i a, simd_i b)
{
    return _mm256_and_si256(a, b);
}
SIMD_INLINE simd_i simd_i_xor(simd_i a, simd_i b)
{
    return _mm256_xor_si256(a, b);
}
#define simd_i_shl(a, k) _mm256_slli_epi32((a), (k))
#define simd_i_sar(a, k) _mm256_srai_epi32((a), (k))
SIMD_INLINE simd_i simd_cvt_i(simd_f a)
{
    return _mm256_cvtps_epi32(a);
}
SIMD_INLINE simd_f simd_cvt_f(simd_i a)
{
    return _mm256_cvtepi32_ps(a);
}
SIMD_INLINE simd_m simd_i_nonzero(simd_i a)
{
    __m256i zero = _mm256_cmpeq_epi32(a, _mm256_setzero_si256());

    return _mm256_castsi256_ps(_mm256_xor_si256(zero, _mm256_set1_epi32(-1)));
}
/* p * 2^n with n a whole number in f32 lanes, |n| <= 252: in two steps, so that neither power leaves f32's range and
 * a subnormal result is rounded once, by the last product. */
SIMD_INLINE simd_f simd_scale2(simd_f p, simd_f n)
{
    __m256i k = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(k, 1), rest = _mm256_sub_epi32(k, half);
    __m256i bias = _mm256_set1_epi32(127);
    simd_f a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    simd_f b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));

    return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}

/* Fold halves onto halves, in a fixed order. */
#define SIMD_FOLD(op, v, result)                                                               \
    do {                                                                                       \
        __m128 fold = _mm_##op##_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps((v), 1)); \
        fold = _mm_##op##_ps(fold, _mm_movehl_ps(fold, fold));                                 \
        (result) = _mm_cvtss_f32(_mm_##op##_ss(fold, _mm_movehdup_ps(fold)));                  \
    } while (0)
SIMD_INLINE float simd_hsum(simd_f v)
{
    float r;

    SIMD_FOLD(add, v, r);
    return r;
}
SIMD_INLINE float simd_hmul(simd_f v)
{
    float r;

    SIMD_FOLD(mul, v, r);
    return r;
}
SIMD_INLINE float simd_hmax(simd_f v)
{
    float r;

    SIMD_FOLD(max, v, r);
    return r;
}
SIMD_INLINE float simd_hmin(simd_f v)
{
    float r;

    SIMD_FOLD(min, v, r);
    return r;
}

#endif
