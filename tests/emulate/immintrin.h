/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The intrinsics of AVX-512 that kernels use, as C for a CPU with AVX2: kernels that were compiled with this header can
 * be tested where no CPU has AVX-512 (configure --enable-emulation). It is found in front of the compiler's header.
 * Definitions: Intel's Intrinsics Guide. Each name of the compiler is a macro here, because its own function exists and
 * refuses to be inlined. Elements whose bit in a mask is 0 are neither read nor written.
 */
#include_next <immintrin.h>
#ifndef NGD_TESTS_EMULATE_IMMINTRIN_H
#define NGD_TESTS_EMULATE_IMMINTRIN_H
#include "tests/emulate/tiles.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors of 64 bytes are never passed between objects */

/* A vector as its elements. */
union ngd_e512 {
    __m512 ps;
    __m512i si;
    __m256i half[2];
    float f[16];
    int32_t i[16];
    uint32_t u[16];
    uint64_t q[8];
    int16_t s[32];
    int8_t b[64];
    uint8_t c[64];
};
union ngd_e256 {
    __m256i si;
    __m256 ps;
    float f[8];
    uint16_t s[16];
    int8_t b[32];
};
union ngd_e128 {
    __m128i si;
    __m128 ps;
    uint8_t c[16];
    float f[4];
};

#define NGD_LANES static inline __attribute__((always_inline, unused))
#define NGD_EACH  for (int i = 0; i < 16; i++)

/* A function of floats a, b, c or of integers, element by element. */
#define NGD_EMULATE_PS(name, args, expr)     \
    NGD_LANES __m512 ngd_emulate_##name args \
    {                                        \
        union ngd_e512 x = {.ps = a}, r;     \
        NGD_EACH r.f[i] = (expr);            \
        return r.ps;                         \
    }
#define NGD_OF(v) (((union ngd_e512){.ps = (v)}).f[i])

/* ---- making, moving, loading ---- */

#define _mm512_castsi512_ps(v)    ((union ngd_e512){.si = (v)}.ps)
#define _mm512_castps_si512(v)    ((union ngd_e512){.ps = (v)}.si)
#define _mm512_castps512_ps256(v) ((__m256)(union ngd_e512){.ps = (v)}.half[0])
#define _mm512_castps512_ps128(v) _mm256_castps256_ps128(_mm512_castps512_ps256(v))
#define _mm512_castsi256_si512(v) ((union ngd_e512){.half = {(v)}}.si)
#define _mm512_setzero_ps()       ((__m512){0})
#define _mm512_setzero_si512()    ((__m512i){0})

NGD_LANES __m512 ngd_emulate_set1_ps(float v)
{
    union ngd_e512 r;

    NGD_EACH r.f[i] = v;
    return r.ps;
}
#define _mm512_set1_ps ngd_emulate_set1_ps

NGD_LANES __m512i ngd_emulate_set1_epi32(int32_t v)
{
    union ngd_e512 r;

    NGD_EACH r.i[i] = v;
    return r.si;
}
#define _mm512_set1_epi32 ngd_emulate_set1_epi32

NGD_LANES __m512i ngd_emulate_set1_epi8(int8_t v)
{
    union ngd_e512 r;

    memset(&r, (uint8_t)v, sizeof(r));
    return r.si;
}
#define _mm512_set1_epi8 ngd_emulate_set1_epi8

#define _mm512_set_epi16(...) ngd_emulate_set_epi16((const int16_t[32]){__VA_ARGS__})
NGD_LANES __m512i ngd_emulate_set_epi16(const int16_t *v)
{
    union ngd_e512 r;

    for (int i = 0; i < 32; i++)
        r.s[i] = v[31 - i];
    return r.si;
}

#undef _mm512_setr_epi32
#define _mm512_setr_epi32(...) ((union ngd_e512){.i = {__VA_ARGS__}}.si)

NGD_LANES __m512i ngd_emulate_loadu_si512(const void *p)
{
    union ngd_e512 r;

    memcpy(&r, p, sizeof(r));
    return r.si;
}
#define _mm512_loadu_si512 ngd_emulate_loadu_si512
#define _mm512_load_si512  ngd_emulate_loadu_si512
#define _mm512_loadu_ps(p) _mm512_castsi512_ps(ngd_emulate_loadu_si512(p))
#define _mm512_load_ps     _mm512_loadu_ps

NGD_LANES void ngd_emulate_storeu_si512(void *p, __m512i v)
{
    memcpy(p, &v, sizeof(v));
}
#define _mm512_store_si512     ngd_emulate_storeu_si512
#define _mm512_storeu_ps(p, v) ngd_emulate_storeu_si512(p, _mm512_castps_si512(v))
#define _mm512_store_ps        _mm512_storeu_ps

/* Copies the `size`-byte elements of a mask, of n; the others of a load are 0. */
NGD_LANES void ngd_emulate_masked(uint64_t mask, int n, size_t size, const void *from, void *to)
{
    for (int i = 0; i < n; i++)
        if (mask >> i & 1)
            memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)i * size, size);
}

NGD_LANES __m512i ngd_emulate_maskz_load(uint64_t mask, int n, size_t size, const void *p)
{
    union ngd_e512 r = {.si = {0}};

    ngd_emulate_masked(mask, n, size, p, &r);
    return r.si;
}
#define _mm512_maskz_loadu_ps(m, p)    _mm512_castsi512_ps(ngd_emulate_maskz_load((uint16_t)(m), 16, 4, p))
#define _mm512_maskz_loadu_epi8(m, p)  ngd_emulate_maskz_load(m, 64, 1, p)
#define _mm256_maskz_loadu_epi16(m, p) ((union ngd_e512){.si = ngd_emulate_maskz_load((uint16_t)(m), 16, 2, p)}.half[0])
#define _mm_maskz_loadu_epi8(m, p) \
    _mm256_castsi256_si128(((union ngd_e512){.si = ngd_emulate_maskz_load((uint16_t)(m), 16, 1, p)}.half[0]))
#define _mm512_mask_storeu_epi32(p, m, v) ngd_emulate_store_epi32(p, m, v)
#define _mm256_mask_storeu_epi16(p, m, v) ngd_emulate_store_epi16(p, m, v)
#define _mm_mask_storeu_epi8(p, m, v)     ngd_emulate_store_epi8(p, m, v)
#define _mm512_mask_storeu_ps(p, m, v)    ngd_emulate_store_epi32(p, m, _mm512_castps_si512(v))

NGD_LANES void ngd_emulate_store_epi32(void *p, __mmask16 m, __m512i v)
{
    ngd_emulate_masked(m, 16, 4, &v, p);
}
NGD_LANES void ngd_emulate_store_epi16(void *p, __mmask16 m, __m256i v)
{
    ngd_emulate_masked(m, 16, 2, &v, p);
}
NGD_LANES void ngd_emulate_store_epi8(void *p, __mmask16 m, __m128i v)
{
    ngd_emulate_masked(m, 16, 1, &v, p);
}

NGD_LANES __m128i ngd_emulate_maskz_set1_epi8(__mmask16 m, int8_t v)
{
    union ngd_e128 r;

    NGD_EACH r.c[i] = m >> i & 1 ? (uint8_t)v : 0;
    return r.si;
}
#define _mm_maskz_set1_epi8 ngd_emulate_maskz_set1_epi8

/* Elements of b where the mask has a bit, else of a. */
NGD_LANES __m512i ngd_emulate_blend(__mmask16 m, __m512i a, __m512i b)
{
    union ngd_e512 x = {.si = a}, y = {.si = b};

    NGD_EACH x.u[i] = m >> i & 1 ? y.u[i] : x.u[i];
    return x.si;
}
#define NGD_BLEND_PS(m, a, b)             _mm512_castsi512_ps(ngd_emulate_blend(m, _mm512_castps_si512(a), _mm512_castps_si512(b)))
#define _mm512_mask_mov_epi32(a, m, b)    ngd_emulate_blend(m, a, b)
#define _mm512_mask_mov_ps(a, m, b)       NGD_BLEND_PS(m, a, b)
#define _mm512_mask_blend_ps(m, a, b)     NGD_BLEND_PS(m, a, b)
#define _mm512_maskz_mov_ps(m, b)         NGD_BLEND_PS(m, _mm512_setzero_ps(), b)
#define _mm512_mask_or_epi32(s, m, a, b)  ngd_emulate_blend(m, s, _mm512_or_si512(a, b))
#define _mm512_mask_and_epi32(s, m, a, b) ngd_emulate_blend(m, s, _mm512_and_si512(a, b))
#define _mm512_maskz_sub_ps(m, a, b)      NGD_BLEND_PS(m, _mm512_setzero_ps(), _mm512_sub_ps(a, b))

/* ---- arithmetic ---- */

#define _mm512_add_ps(a, b) ((__m512)(a) + (__m512)(b))
#define _mm512_sub_ps(a, b) ((__m512)(a) - (__m512)(b))
#define _mm512_mul_ps(a, b) ((__m512)(a) * (__m512)(b))
#define _mm512_div_ps(a, b) ((__m512)(a) / (__m512)(b))
NGD_EMULATE_PS(sqrt, (__m512 a), sqrtf(x.f[i]))
NGD_EMULATE_PS(fma, (__m512 a, __m512 b, __m512 c), fmaf(x.f[i], NGD_OF(b), NGD_OF(c)))
NGD_EMULATE_PS(fnma, (__m512 a, __m512 b, __m512 c), fmaf(-x.f[i], NGD_OF(b), NGD_OF(c)))
/* As SSE: the second operand if one is a NaN, or if both are 0. */
NGD_EMULATE_PS(min, (__m512 a, __m512 b), x.f[i] < NGD_OF(b) ? x.f[i] : NGD_OF(b))
NGD_EMULATE_PS(max, (__m512 a, __m512 b), x.f[i] > NGD_OF(b) ? x.f[i] : NGD_OF(b))
/* a * 2^floor(b), rounded once: f32 times a power of two is exact in f64 while it is in range. */
NGD_LANES float ngd_emulate_scale(float a, float b)
{
    const float n = floorf(b);

    if (isnan(a) || isnan(b))
        return a + b;
    return n > 600 ? a * INFINITY : n < -600 ? (float)copysign(0, a) : (float)ldexp(a, (int)n);
}
NGD_EMULATE_PS(scalef, (__m512 a, __m512 b), ngd_emulate_scale(x.f[i], NGD_OF(b)))
NGD_EMULATE_PS(round_even, (__m512 a), nearbyintf(x.f[i]))
NGD_EMULATE_PS(round_down, (__m512 a), floorf(x.f[i]))
NGD_EMULATE_PS(round_up, (__m512 a), ceilf(x.f[i]))
NGD_EMULATE_PS(round_zero, (__m512 a), truncf(x.f[i]))
#define _mm512_sqrt_ps   ngd_emulate_sqrt
#define _mm512_fmadd_ps  ngd_emulate_fma
#define _mm512_fnmadd_ps ngd_emulate_fnma
#define _mm512_min_ps    ngd_emulate_min
#define _mm512_max_ps    ngd_emulate_max
#define _mm512_scalef_ps ngd_emulate_scalef
#define _mm512_roundscale_ps(v, how)                                    \
    (((how)&3) == _MM_FROUND_TO_NEAREST_INT ? ngd_emulate_round_even(v) \
     : ((how)&3) == _MM_FROUND_TO_NEG_INF   ? ngd_emulate_round_down(v) \
     : ((how)&3) == _MM_FROUND_TO_POS_INF   ? ngd_emulate_round_up(v)   \
                                            : ngd_emulate_round_zero(v))

#define _mm512_and_si512(a, b)    ((__m512i)(a) & (__m512i)(b))
#define _mm512_or_si512(a, b)     ((__m512i)(a) | (__m512i)(b))
#define _mm512_xor_si512(a, b)    ((__m512i)(a) ^ (__m512i)(b))
#define _mm512_andnot_si512(a, b) (~(__m512i)(a) & (__m512i)(b))
#define NGD_BITS_PS(op, a, b)     _mm512_castsi512_ps(op(_mm512_castps_si512(a), _mm512_castps_si512(b)))
#define _mm512_and_ps(a, b)       NGD_BITS_PS(_mm512_and_si512, a, b)
#define _mm512_or_ps(a, b)        NGD_BITS_PS(_mm512_or_si512, a, b)
#define _mm512_xor_ps(a, b)       NGD_BITS_PS(_mm512_xor_si512, a, b)
#define _mm512_andnot_ps(a, b)    NGD_BITS_PS(_mm512_andnot_si512, a, b)

/* A function of integers, element by element. */
#define NGD_EMULATE_SI(name, args, expr)      \
    NGD_LANES __m512i ngd_emulate_##name args \
    {                                         \
        union ngd_e512 x = {.si = a}, r;      \
        NGD_EACH r.u[i] = (expr);             \
        return r.si;                          \
    }
#define NGD_WORD_OF(v) (((union ngd_e512){.si = (v)}).u[i])
NGD_EMULATE_SI(add_epi32, (__m512i a, __m512i b), x.u[i] + NGD_WORD_OF(b))
NGD_EMULATE_SI(max_epu32, (__m512i a, __m512i b), x.u[i] > NGD_WORD_OF(b) ? x.u[i] : NGD_WORD_OF(b))
NGD_EMULATE_SI(sub_epi32, (__m512i a, __m512i b), x.u[i] - NGD_WORD_OF(b))
NGD_EMULATE_SI(slli_epi32, (__m512i a, unsigned n), n > 31 ? 0 : x.u[i] << n)
NGD_EMULATE_SI(srli_epi32, (__m512i a, unsigned n), n > 31 ? 0 : x.u[i] >> n)
NGD_EMULATE_SI(srai_epi32, (__m512i a, unsigned n), (uint32_t)(x.i[i] >> (n > 31 ? 31 : n)))
#define _mm512_add_epi32  ngd_emulate_add_epi32
#define _mm512_sub_epi32  ngd_emulate_sub_epi32
#define _mm512_slli_epi32 ngd_emulate_slli_epi32
#define _mm512_srli_epi32 ngd_emulate_srli_epi32
#define _mm512_srai_epi32 ngd_emulate_srai_epi32

NGD_LANES __m512i ngd_emulate_madd_epi16(__m512i a, __m512i b)
{
    union ngd_e512 x = {.si = a}, y = {.si = b}, r;

    NGD_EACH r.u[i] = (uint32_t)(x.s[2 * i] * y.s[2 * i]) + (uint32_t)(x.s[2 * i + 1] * y.s[2 * i + 1]);
    return r.si;
}
#define _mm512_madd_epi16 ngd_emulate_madd_epi16

/* sum + products of four bytes without a sign and four with one. */
NGD_LANES __m512i ngd_emulate_dpbusd_epi32(__m512i sum, __m512i a, __m512i b)
{
    union ngd_e512 r = {.si = sum}, x = {.si = a}, y = {.si = b};

    for (int i = 0; i < 64; i++)
        r.u[i / 4] += (uint32_t)(x.c[i] * y.b[i]);
    return r.si;
}
#define _mm512_dpbusd_epi32 ngd_emulate_dpbusd_epi32

NGD_LANES uint32_t ngd_emulate_reduce_max_epu32(__m512i a)
{
    union ngd_e512 x = {.si = a};
    uint32_t r = 0;

    NGD_EACH r = x.u[i] > r ? x.u[i] : r;
    return r;
}
#define _mm512_max_epu32        ngd_emulate_max_epu32
#define _mm512_reduce_max_epu32 ngd_emulate_reduce_max_epu32

/* In each 16 bytes of their own: byte b[i] of a, or 0 where b[i] is negative. */
NGD_LANES __m512i ngd_emulate_shuffle_epi8(__m512i a, __m512i b)
{
    union ngd_e512 x = {.si = a}, y = {.si = b}, r;

    for (int i = 0; i < 64; i++)
        r.b[i] = y.b[i] < 0 ? 0 : x.b[(i & ~15) + (y.b[i] & 15)];
    return r.si;
}
#define _mm512_shuffle_epi8 ngd_emulate_shuffle_epi8

/* Replaces the 16 bytes of index n, or all of them. */
NGD_LANES __m512i ngd_emulate_inserti32x4(__m512i a, __m128i b, int n)
{
    union ngd_e512 r = {.si = a};

    memcpy(r.b + 16 * n, &b, 16);
    return r.si;
}
NGD_LANES __m512i ngd_emulate_broadcast_i32x4(__m128i a)
{
    union ngd_e512 r;

    for (int n = 0; n < 4; n++)
        memcpy(r.b + 16 * n, &a, 16);
    return r.si;
}
#define _mm512_inserti32x4     ngd_emulate_inserti32x4
#define _mm512_broadcast_i32x4 ngd_emulate_broadcast_i32x4
#define _mm512_castsi128_si512 ngd_emulate_broadcast_i32x4

/* ---- conversions ---- */

NGD_LANES __m512 ngd_emulate_cvtph_ps(__m256i v)
{
    union ngd_e512 r;

    r.half[0] = (__m256i)_mm256_cvtph_ps(_mm256_castsi256_si128(v));
    r.half[1] = (__m256i)_mm256_cvtph_ps(_mm256_extracti128_si256(v, 1));
    return r.ps;
}
#define _mm512_cvtph_ps ngd_emulate_cvtph_ps

NGD_LANES __m256i ngd_emulate_cvtps_ph(__m512 v)
{
    union ngd_e512 x = {.ps = v};

    return _mm256_set_m128i(_mm256_cvtps_ph((__m256)x.half[1], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph((__m256)x.half[0], _MM_FROUND_TO_NEAREST_INT));
}
#define _mm512_cvtps_ph(v, how) ngd_emulate_cvtps_ph(v)

NGD_LANES __m512i ngd_emulate_cvtepu16_epi32(__m256i v)
{
    union ngd_e256 x = {.si = v};
    union ngd_e512 r;

    NGD_EACH r.u[i] = x.s[i];
    return r.si;
}
#define _mm512_cvtepu16_epi32 ngd_emulate_cvtepu16_epi32

NGD_LANES __m256i ngd_emulate_cvtepi32_epi16(__m512i v)
{
    union ngd_e512 x = {.si = v};
    union ngd_e256 r;

    NGD_EACH r.s[i] = (uint16_t)x.u[i];
    return r.si;
}
#define _mm512_cvtepi32_epi16 ngd_emulate_cvtepi32_epi16

NGD_LANES __m512i ngd_emulate_cvtepi8_epi16(__m256i v)
{
    union ngd_e256 x = {.si = v};
    union ngd_e512 r;

    for (int i = 0; i < 32; i++)
        r.s[i] = x.b[i];
    return r.si;
}
#define _mm512_cvtepi8_epi16 ngd_emulate_cvtepi8_epi16

NGD_LANES __m512i ngd_emulate_cvtepi8_epi32(__m128i v)
{
    union ngd_e128 x = {.si = v};
    union ngd_e512 r;

    NGD_EACH r.i[i] = (int8_t)x.c[i];
    return r.si;
}
#define _mm512_cvtepi8_epi32 ngd_emulate_cvtepi8_epi32

NGD_LANES __m128i ngd_emulate_cvtepi32_epi8(__m512i v)
{
    union ngd_e512 x = {.si = v};
    union ngd_e128 r;

    NGD_EACH r.c[i] = (uint8_t)x.u[i];
    return r.si;
}
#define _mm512_cvtepi32_epi8 ngd_emulate_cvtepi32_epi8

NGD_LANES __m512 ngd_emulate_cvtepi32_ps(__m512i v)
{
    union ngd_e512 x = {.si = v};

    NGD_EACH x.f[i] = (float)x.i[i];
    return x.ps;
}
#define _mm512_cvtepi32_ps ngd_emulate_cvtepi32_ps

/* Rounds to nearest even; what does not fit becomes INT32_MIN. */
NGD_LANES __m512i ngd_emulate_cvtps_epi32(__m512 v)
{
    union ngd_e512 x = {.ps = v};

    NGD_EACH x.i[i] = x.f[i] >= -0x1p31F && x.f[i] < 0x1p31F ? (int32_t)nearbyintf(x.f[i]) : INT32_MIN;
    return x.si;
}
#define _mm512_cvtps_epi32 ngd_emulate_cvtps_epi32

/* Rounds to bf16, to nearest even; numbers below 2^-126 become 0. The elements of b come first. */
NGD_LANES uint16_t ngd_emulate_bf16_of(uint32_t u)
{
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (u & 0x7f800000) == 0 ? (uint16_t)(u >> 16 & 0x8000) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
NGD_LANES __m512i ngd_emulate_cvtne2ps_pbh(__m512 a, __m512 b)
{
    union ngd_e512 x[2] = {{.ps = b}, {.ps = a}}, r;

    for (int i = 0; i < 32; i++)
        r.s[i] = (int16_t)ngd_emulate_bf16_of(x[i / 16].u[i % 16]);
    return r.si;
}
#define _mm512_cvtne2ps_pbh ngd_emulate_cvtne2ps_pbh

/* ---- comparing ---- */

NGD_LANES __mmask16 ngd_emulate_cmp_ps(__m512 a, __m512 b, int how)
{
    union ngd_e512 x = {.ps = a}, y = {.ps = b};
    __mmask16 m = 0;

    NGD_EACH
    {
        const float p = x.f[i], q = y.f[i];
        const int hit = how == _CMP_UNORD_Q  ? isnan(p) || isnan(q)
                        : how == _CMP_LT_OQ  ? p < q
                        : how == _CMP_LE_OQ  ? p <= q
                        : how == _CMP_EQ_OQ  ? p == q
                        : how == _CMP_NEQ_UQ ? !(p == q)
                                             : (__builtin_trap(), 0);

        m = (__mmask16)(m | hit << i);
    }
    return m;
}
#define _mm512_cmp_ps_mask ngd_emulate_cmp_ps

NGD_LANES __mmask16 ngd_emulate_test_epi32(__m512i a, __m512i b)
{
    union ngd_e512 x = {.si = a & b};
    __mmask16 m = 0;

    NGD_EACH m = (__mmask16)(m | (x.u[i] != 0) << i);
    return m;
}
#define _mm512_test_epi32_mask        ngd_emulate_test_epi32
#define _mm512_cmpeq_epi32_mask(a, b) ((__mmask16)~ngd_emulate_test_epi32((a) ^ (b), (a) ^ (b)))

NGD_LANES __mmask16 ngd_emulate_cmplt_epi32(__m512i a, __m512i b)
{
    union ngd_e512 x = {.si = a}, y = {.si = b};
    __mmask16 m = 0;

    NGD_EACH m = (__mmask16)(m | (x.i[i] < y.i[i]) << i);
    return m;
}
#define _mm512_cmplt_epi32_mask ngd_emulate_cmplt_epi32

NGD_LANES __mmask64 ngd_emulate_cmpeq_epi8(__m512i a, __m512i b)
{
    union ngd_e512 x = {.si = a}, y = {.si = b};
    __mmask64 m = 0;

    for (int i = 0; i < 64; i++)
        m |= (__mmask64)(x.c[i] == y.c[i]) << i;
    return m;
}
#define _mm512_cmpeq_epi8_mask ngd_emulate_cmpeq_epi8

/* Classes: 0x01 quiet NaN, 0x08 infinity, 0x10 -infinity, 0x80 signalling NaN. */
NGD_LANES __mmask16 ngd_emulate_fpclass_ps(__m512 v, int classes)
{
    union ngd_e512 x = {.ps = v};
    __mmask16 m = 0;

    NGD_EACH
    {
        const uint32_t size = x.u[i] & 0x7fffffff;
        const int class = size > 0x7fffffff - 0x400000 ? 0x01
                          : size > 0x7f800000          ? 0x80
                          : size < 0x7f800000          ? 0
                          : x.u[i] >> 31               ? 0x10
                                                       : 0x08;

        m = (__mmask16)(m | ((class & classes) != 0) << i);
    }
    return m;
}
#define _mm512_fpclass_ps_mask ngd_emulate_fpclass_ps

/* ---- reducing ---- */

NGD_LANES int32_t ngd_emulate_reduce_add_epi32(__m512i v)
{
    union ngd_e512 x = {.si = v};
    uint32_t sum = 0;

    NGD_EACH sum += x.u[i];
    return (int32_t)sum;
}
#define _mm512_reduce_add_epi32 ngd_emulate_reduce_add_epi32

/* In halves, as the compiler's own functions do. */
NGD_LANES float ngd_emulate_reduce_ps(__m512 v, int largest)
{
    union ngd_e512 x = {.ps = v};

    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            if (largest ? !(x.f[i] > x.f[i + n]) : !(x.f[i] < x.f[i + n]))
                x.f[i] = x.f[i + n];
    return x.f[0];
}
#define _mm512_reduce_min_ps(v) ngd_emulate_reduce_ps(v, 0)
#define _mm512_reduce_max_ps(v) ngd_emulate_reduce_ps(v, 1)

/* ---- permuting ---- */

/* Takes element idx[i] of 32: of a, then of b. */
NGD_LANES __m512i ngd_emulate_pick(__m512i a, __m512i b, const uint8_t idx[16])
{
    union ngd_e512 x[2] = {{.si = a}, {.si = b}}, r;

    NGD_EACH r.u[i] = x[idx[i] >> 4].u[idx[i] & 15];
    return r.si;
}

NGD_LANES __m512i ngd_emulate_unpack(__m512i a, __m512i b, int words, int high)
{
    uint8_t idx[16];

    NGD_EACH
    {
        const int lane = i & ~3, at = i & 3;

        idx[i] =
            (uint8_t)(words == 1 ? lane + high * 2 + at / 2 + (at & 1) * 16 : lane + high * 2 + (at & 1) + at / 2 * 16);
    }
    return ngd_emulate_pick(a, b, idx);
}
#define _mm512_unpacklo_epi32(a, b) ngd_emulate_unpack(a, b, 1, 0)
#define _mm512_unpackhi_epi32(a, b) ngd_emulate_unpack(a, b, 1, 1)
#define _mm512_unpacklo_epi64(a, b) ngd_emulate_unpack(a, b, 2, 0)
#define _mm512_unpackhi_epi64(a, b) ngd_emulate_unpack(a, b, 2, 1)
#define NGD_UNPACK_PS(a, b, high) \
    _mm512_castsi512_ps(ngd_emulate_unpack(_mm512_castps_si512(a), _mm512_castps_si512(b), 1, high))
#define _mm512_unpacklo_ps(a, b) NGD_UNPACK_PS(a, b, 0)
#define _mm512_unpackhi_ps(a, b) NGD_UNPACK_PS(a, b, 1)

/* lanes: whole lanes of four words are chosen, else words within a lane. Two of a, then two of b. */
NGD_LANES __m512i ngd_emulate_shuffle(__m512i a, __m512i b, int how, int lanes)
{
    uint8_t idx[16];

    NGD_EACH
    {
        const int at = lanes ? i / 4 : i & 3, pick = how >> 2 * at & 3;

        idx[i] = (uint8_t)((lanes ? pick * 4 + (i & 3) : (i & ~3) + pick) + (at > 1 ? 16 : 0));
    }
    return ngd_emulate_pick(a, b, idx);
}
#define NGD_SHUFFLE_PS(a, b, how, lanes) \
    _mm512_castsi512_ps(ngd_emulate_shuffle(_mm512_castps_si512(a), _mm512_castps_si512(b), how, lanes))
#define _mm512_shuffle_i32x4(a, b, how) ngd_emulate_shuffle(a, b, how, 1)
#define _mm512_shuffle_f32x4(a, b, how) NGD_SHUFFLE_PS(a, b, how, 1)
#define _mm512_shuffle_ps(a, b, how)    NGD_SHUFFLE_PS(a, b, how, 0)

NGD_LANES __m512 ngd_emulate_permute(__m512 a, __m512i idx, __m512 b)
{
    union ngd_e512 x[2] = {{.ps = a}, {.ps = b}}, k = {.si = idx}, r;

    NGD_EACH r.u[i] = x[k.u[i] >> 4 & 1].u[k.u[i] & 15];
    return r.ps;
}
#define _mm512_permutex2var_ps(a, idx, b) ngd_emulate_permute(a, idx, b)
#define _mm512_permutexvar_ps(idx, a)     ngd_emulate_permute(a, idx, a)
#define _mm512_permutexvar_epi32(idx, a)  ((__m512i)ngd_emulate_permute((__m512)(a), idx, (__m512)(a)))

#define _mm512_permutex2var_epi16(a, idx, b) ngd_emulate_permute_words(a, idx, b)
NGD_LANES __m512i ngd_emulate_permute_words(__m512i a, __m512i idx, __m512i b)
{
    union ngd_e512 x[2] = {{.si = a}, {.si = b}}, k = {.si = idx}, r;

    for (int i = 0; i < 32; i++)
        r.s[i] = x[k.s[i] >> 5 & 1].s[k.s[i] & 31];
    return r.si;
}

#define _mm512_extractf32x4_ps(v, n) \
    ((__m128)_mm256_extracti128_si256((union ngd_e512){.ps = (v)}.half[(n) / 2], (n)&1))
#define _mm512_extractf32x8_ps(v, n)   ((__m256)(union ngd_e512){.ps = (v)}.half[n])
#define _mm512_inserti64x4(v, half, n) ngd_emulate_insert(v, half, n)
NGD_LANES __m512i ngd_emulate_insert(__m512i v, __m256i half, int n)
{
    union ngd_e512 x = {.si = v};

    x.half[n] = half;
    return x.si;
}

#endif
