/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_SIMD_AVX512_IMPL_H
#define NGD_DEVICES_HOST_KERNELS_SIMD_AVX512_IMPL_H

/* simd.h for 16 lanes: AVX-512 F, BW, VL, DQ. */
#include "devices/host/kernels/unroll.h"
#include <immintrin.h>

typedef __m512 simd_f;
typedef __m512i simd_i;
typedef __mmask16 simd_m;

#define SIMD_TAIL(n) ((__mmask16)((1u << (n)) - 1u))

SIMD_INLINE simd_f simd_set1(float v)
{
    return _mm512_set1_ps(v);
}
SIMD_INLINE simd_f simd_zero(void)
{
    return _mm512_setzero_ps();
}
SIMD_INLINE simd_f simd_from_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
/* Rounds to nearest even by the carry of an integer addition. A NaN keeps its top bits and becomes quiet. */
SIMD_INLINE __m256i simd_to_bf16(simd_f v)
{
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
SIMD_INLINE simd_f simd_load_f32(const ngd_el_f32 *p)
{
    return _mm512_loadu_ps(p);
}
SIMD_INLINE simd_f simd_load_f16(const ngd_el_f16 *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
SIMD_INLINE simd_f simd_load_bf16(const ngd_el_bf16 *p)
{
    return simd_from_bf16(_mm256_loadu_si256((const void *)p));
}
SIMD_INLINE void simd_store_f32(ngd_el_f32 *p, simd_f v)
{
    _mm512_storeu_ps(p, v);
}
SIMD_INLINE void simd_store_f16(ngd_el_f16 *p, simd_f v)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD_INLINE void simd_store_bf16(ngd_el_bf16 *p, simd_f v)
{
    _mm256_storeu_si256((void *)p, simd_to_bf16(v));
}
SIMD_INLINE simd_f simd_load_n_f32(const ngd_el_f32 *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(SIMD_TAIL(n), p);
}
SIMD_INLINE simd_f simd_load_n_f16(const ngd_el_f16 *p, int64_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(SIMD_TAIL(n), p));
}
SIMD_INLINE simd_f simd_load_n_bf16(const ngd_el_bf16 *p, int64_t n)
{
    return simd_from_bf16(_mm256_maskz_loadu_epi16(SIMD_TAIL(n), p));
}
SIMD_INLINE void simd_store_n_f32(ngd_el_f32 *p, simd_f v, int64_t n)
{
    _mm512_mask_storeu_ps(p, SIMD_TAIL(n), v);
}
SIMD_INLINE void simd_store_n_f16(ngd_el_f16 *p, simd_f v, int64_t n)
{
    _mm256_mask_storeu_epi16(p, SIMD_TAIL(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD_INLINE void simd_store_n_bf16(ngd_el_bf16 *p, simd_f v, int64_t n)
{
    _mm256_mask_storeu_epi16(p, SIMD_TAIL(n), simd_to_bf16(v));
}
/* Numbers of a KV cache: simd.h. */
SIMD_INLINE simd_f simd_from_i8(__m128i b)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
}
/* The bits of an f8, moved into an f16, are the number times 2^-8. NaN is taken for 480. */
SIMD_INLINE simd_f simd_from_f8(__m128i b)
{
    const __m256i bits = _mm256_slli_epi16(_mm256_cvtepi8_epi16(b), 7);

    return _mm512_cvtph_ps(_mm256_and_si256(bits, _mm256_set1_epi16((short)0xbf80)));
}
SIMD_INLINE bool simd_f8_nan_in(const ngd_el_f8 *p, int64_t n)
{
    const __m512i mag = _mm512_set1_epi8(0x7f);
    __mmask64 seen = 0;

    for (int64_t i = 0; i < n; i += 64) {
        const __mmask64 here = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;

        seen |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(_mm512_maskz_loadu_epi8(here, p + i), mag), mag);
    }
    return seen != 0;
}
SIMD_INLINE __m128i simd_to_i8(simd_f v)
{
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v));
}
/* As ngd_f32_to_f8, for numbers within -448..448. */
SIMD_INLINE __m128i simd_to_f8(simd_f v)
{
    const __m512i u = _mm512_castps_si512(v), mag = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(mag, 20), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(mag, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff)));
    const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(up, 20), _mm512_set1_epi32(120 << 3));
    const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(mag), _mm512_set1_ps(0x1p14f));
    const __mmask16 is_tiny = _mm512_cmplt_epi32_mask(mag, _mm512_set1_epi32(0x3c800000));
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(u, 24), _mm512_set1_epi32(0x80));
    const __m512i r = _mm512_mask_and_epi32(normal, is_tiny, _mm512_castps_si512(sum), _mm512_set1_epi32(0xf));

    return _mm512_cvtepi32_epi8(_mm512_or_si512(r, sign));
}
SIMD_INLINE simd_f simd_load_i8(const ngd_el_i8 *p)
{
    return simd_from_i8(_mm_loadu_si128((const void *)p));
}
SIMD_INLINE simd_f simd_load_f8(const ngd_el_f8 *p)
{
    return simd_from_f8(_mm_loadu_si128((const void *)p));
}
SIMD_INLINE simd_f simd_load_n_i8(const ngd_el_i8 *p, int64_t n)
{
    return simd_from_i8(_mm_maskz_loadu_epi8(SIMD_TAIL(n), p));
}
SIMD_INLINE simd_f simd_load_n_f8(const ngd_el_f8 *p, int64_t n)
{
    return simd_from_f8(_mm_maskz_loadu_epi8(SIMD_TAIL(n), p));
}
SIMD_INLINE void simd_store_i8(ngd_el_i8 *p, simd_f v)
{
    _mm_storeu_si128((void *)p, simd_to_i8(v));
}
SIMD_INLINE void simd_store_f8(ngd_el_f8 *p, simd_f v)
{
    _mm_storeu_si128((void *)p, simd_to_f8(v));
}
SIMD_INLINE void simd_store_n_i8(ngd_el_i8 *p, simd_f v, int64_t n)
{
    _mm_mask_storeu_epi8(p, SIMD_TAIL(n), simd_to_i8(v));
}
SIMD_INLINE void simd_store_n_f8(ngd_el_f8 *p, simd_f v, int64_t n)
{
    _mm_mask_storeu_epi8(p, SIMD_TAIL(n), simd_to_f8(v));
}

SIMD_INLINE simd_f simd_add(simd_f a, simd_f b)
{
    return _mm512_add_ps(a, b);
}
SIMD_INLINE simd_f simd_sub(simd_f a, simd_f b)
{
    return _mm512_sub_ps(a, b);
}
SIMD_INLINE simd_f simd_mul(simd_f a, simd_f b)
{
    return _mm512_mul_ps(a, b);
}
SIMD_INLINE simd_f simd_div(simd_f a, simd_f b)
{
    return _mm512_div_ps(a, b);
}
SIMD_INLINE simd_f simd_fma(simd_f a, simd_f b, simd_f c)
{
    return _mm512_fmadd_ps(a, b, c);
}
SIMD_INLINE simd_f simd_fnma(simd_f a, simd_f b, simd_f c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
SIMD_INLINE simd_f simd_min(simd_f a, simd_f b)
{
    return _mm512_min_ps(a, b);
}
SIMD_INLINE simd_f simd_max(simd_f a, simd_f b)
{
    return _mm512_max_ps(a, b);
}
SIMD_INLINE simd_f simd_sqrt(simd_f a)
{
    return _mm512_sqrt_ps(a);
}
SIMD_INLINE simd_f simd_abs(simd_f a)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a);
}
SIMD_INLINE simd_f simd_neg(simd_f a)
{
    return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a);
}
SIMD_INLINE simd_f simd_copysign(simd_f mag, simd_f sign)
{
    const simd_f bit = _mm512_set1_ps(-0.0f);

    return _mm512_or_ps(_mm512_andnot_ps(bit, mag), _mm512_and_ps(bit, sign));
}
SIMD_INLINE simd_f simd_round(simd_f a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SIMD_INLINE simd_f simd_floor(simd_f a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
SIMD_INLINE simd_f simd_ceil(simd_f a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

SIMD_INLINE simd_m simd_lt(simd_f a, simd_f b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
SIMD_INLINE simd_m simd_le(simd_f a, simd_f b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
SIMD_INLINE simd_m simd_eq(simd_f a, simd_f b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
SIMD_INLINE simd_m simd_ne(simd_f a, simd_f b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ);
}
SIMD_INLINE simd_m simd_isnan(simd_f a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
SIMD_INLINE simd_m simd_m_and(simd_m a, simd_m b)
{
    return (simd_m)(a & b);
}
SIMD_INLINE simd_m simd_m_or(simd_m a, simd_m b)
{
    return (simd_m)(a | b);
}
SIMD_INLINE simd_m simd_m_xor(simd_m a, simd_m b)
{
    return (simd_m)(a ^ b);
}
SIMD_INLINE bool simd_m_any(simd_m m)
{
    return m != 0;
}
SIMD_INLINE bool simd_m_all(simd_m m)
{
    return m == 0xffff;
}
SIMD_INLINE int simd_m_first(simd_m m)
{
    return __builtin_ctz(m);
}
SIMD_INLINE simd_f simd_select(simd_m m, simd_f yes, simd_f no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
/* Keeps the first n lanes; the others become zero. */
SIMD_INLINE simd_f simd_keep(simd_f v, int64_t n)
{
    return _mm512_maskz_mov_ps(SIMD_TAIL(n), v);
}
/* Keeps the first n lanes; the others become `rest`. */
SIMD_INLINE simd_f simd_fill(simd_f v, int64_t n, float rest)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(rest), SIMD_TAIL(n), v);
}
SIMD_INLINE void simd_store_mask(uint8_t *p, simd_m m, int64_t n)
{
    __m128i v = _mm_maskz_set1_epi8(m, 1);

    if (n >= SIMD_W)
        _mm_storeu_si128((void *)p, v);
    else
        _mm_mask_storeu_epi8(p, SIMD_TAIL(n), v);
}

SIMD_INLINE simd_i simd_f_bits(simd_f a)
{
    return _mm512_castps_si512(a);
}
SIMD_INLINE simd_f simd_bits_f(simd_i a)
{
    return _mm512_castsi512_ps(a);
}
SIMD_INLINE simd_i simd_i_set1(int32_t v)
{
    return _mm512_set1_epi32(v);
}
SIMD_INLINE simd_i simd_i_add(simd_i a, simd_i b)
{
    return _mm512_add_epi32(a, b);
}
SIMD_INLINE simd_i simd_i_sub(simd_i a, simd_i b)
{
    return _mm512_sub_epi32(a, b);
}
SIMD_INLINE simd_i simd_i_and(simd_i a, simd_i b)
{
    return _mm512_and_si512(a, b);
}
SIMD_INLINE simd_i simd_i_xor(simd_i a, simd_i b)
{
    return _mm512_xor_si512(a, b);
}
#define simd_i_shl(a, k) _mm512_slli_epi32((a), (k))
#define simd_i_sar(a, k) _mm512_srai_epi32((a), (k))
SIMD_INLINE simd_i simd_cvt_i(simd_f a)
{
    return _mm512_cvtps_epi32(a);
}
SIMD_INLINE simd_f simd_cvt_f(simd_i a)
{
    return _mm512_cvtepi32_ps(a);
}
SIMD_INLINE simd_m simd_i_nonzero(simd_i a)
{
    return _mm512_test_epi32_mask(a, a);
}
/* p * 2^n with n a whole number in f32 lanes, right down to the subnormals. */
SIMD_INLINE simd_f simd_scale2(simd_f p, simd_f n)
{
    return _mm512_scalef_ps(p, n);
}

/* Fold halves onto halves, in a fixed order. */
SIMD_INLINE __m256 simd_fold_hi(simd_f v)
{
    return _mm512_extractf32x8_ps(v, 1);
}
SIMD_INLINE float simd_hsum(simd_f v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), simd_fold_hi(v));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
/* Returns simd_hsum(v[i]) in lane i. Two vectors that are folded together take as many instructions as one. Overwrites
 * v. */
SIMD_INLINE simd_f simd_hsum_each(simd_f v[16])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    NGD_UNROLL for (int i = 0; i < 8; i++) v[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                                                                _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xee));
    NGD_UNROLL for (int i = 0; i < 4; i++) v[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x88),
                                                                _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xdd));
    NGD_UNROLL for (int i = 0; i < 2; i++) v[i] =
        _mm512_add_ps(_mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0x44), _mm512_shuffle_ps(v[2 * i], v[2 * i + 1], 0xee));
    v[0] = _mm512_add_ps(_mm512_shuffle_ps(v[0], v[1], 0x88), _mm512_shuffle_ps(v[0], v[1], 0xdd));
    return _mm512_permutexvar_ps(order, v[0]);
}
SIMD_INLINE float simd_hmul(simd_f v)
{
    __m256 a = _mm256_mul_ps(_mm512_castps512_ps256(v), simd_fold_hi(v));
    __m128 b = _mm_mul_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_mul_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_mul_ss(b, _mm_movehdup_ps(b)));
}
SIMD_INLINE float simd_hmax(simd_f v)
{
    return _mm512_reduce_max_ps(v);
}
SIMD_INLINE float simd_hmin(simd_f v)
{
    return _mm512_reduce_min_ps(v);
}

#endif
