/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_SIMD_SCALAR_IMPL_H
#define NGD_DEVICES_HOST_KERNELS_SIMD_SCALAR_IMPL_H

/* simd.h for one lane: plain C. fma is two roundings here, since a library call per element would dominate. */

typedef float simd_f;
typedef int32_t simd_i;
typedef bool simd_m;

SIMD_INLINE simd_f simd_set1(float v)
{
    return v;
}
SIMD_INLINE simd_f simd_zero(void)
{
    return 0.0f;
}
SIMD_INLINE simd_f simd_cvt_f(simd_i a)
{
    return (float)a;
}
SIMD_INLINE simd_f simd_load_f32(const ngd_el_f32 *p)
{
    return *p;
}
SIMD_INLINE simd_f simd_load_f16(const ngd_el_f16 *p)
{
    return ngd_f16_to_f32(*p);
}
SIMD_INLINE simd_f simd_load_bf16(const ngd_el_bf16 *p)
{
    return ngd_bf16_to_f32(*p);
}
SIMD_INLINE void simd_store_f32(ngd_el_f32 *p, simd_f v)
{
    *p = v;
}
SIMD_INLINE void simd_store_f16(ngd_el_f16 *p, simd_f v)
{
    *p = ngd_f32_to_f16(v);
}
SIMD_INLINE void simd_store_bf16(ngd_el_bf16 *p, simd_f v)
{
    *p = ngd_f32_to_bf16(v);
}
/* One lane has no tail. These functions exist so that templates compile; they are never called. */
SIMD_INLINE simd_f simd_load_n_f32(const ngd_el_f32 *p, int64_t n)
{
    return n > 0 ? *p : 0.0f;
}
SIMD_INLINE simd_f simd_load_n_f16(const ngd_el_f16 *p, int64_t n)
{
    return n > 0 ? ngd_f16_to_f32(*p) : 0.0f;
}
SIMD_INLINE simd_f simd_load_n_bf16(const ngd_el_bf16 *p, int64_t n)
{
    return n > 0 ? ngd_bf16_to_f32(*p) : 0.0f;
}
SIMD_INLINE void simd_store_n_f32(ngd_el_f32 *p, simd_f v, int64_t n)
{
    if (n > 0)
        *p = v;
}
SIMD_INLINE void simd_store_n_f16(ngd_el_f16 *p, simd_f v, int64_t n)
{
    if (n > 0)
        *p = ngd_f32_to_f16(v);
}
SIMD_INLINE void simd_store_n_bf16(ngd_el_bf16 *p, simd_f v, int64_t n)
{
    if (n > 0)
        *p = ngd_f32_to_bf16(v);
}
/* Numbers of a KV cache: simd.h. */
SIMD_INLINE simd_f simd_load_i8(const ngd_el_i8 *p)
{
    return (float)*p;
}
SIMD_INLINE simd_f simd_load_f8(const ngd_el_f8 *p)
{
    return 0x1p-8f * ngd_f8_to_f32(*p);
}
SIMD_INLINE bool simd_f8_nan_in(const ngd_el_f8 *p, int64_t n)
{
    bool seen = false;

    for (int64_t i = 0; i < n; i++)
        seen |= (p[i] & 0x7f) == 0x7f;
    return seen;
}
SIMD_INLINE void simd_store_i8(ngd_el_i8 *p, simd_f v)
{
    *p = (int8_t)rintf(v);
}
SIMD_INLINE void simd_store_f8(ngd_el_f8 *p, simd_f v)
{
    *p = ngd_f32_to_f8(v);
}
SIMD_INLINE simd_f simd_load_n_i8(const ngd_el_i8 *p, int64_t n)
{
    return n > 0 ? (float)*p : 0.0f;
}
SIMD_INLINE simd_f simd_load_n_f8(const ngd_el_f8 *p, int64_t n)
{
    return n > 0 ? simd_load_f8(p) : 0.0f;
}
SIMD_INLINE void simd_store_n_i8(ngd_el_i8 *p, simd_f v, int64_t n)
{
    if (n > 0)
        simd_store_i8(p, v);
}
SIMD_INLINE void simd_store_n_f8(ngd_el_f8 *p, simd_f v, int64_t n)
{
    if (n > 0)
        simd_store_f8(p, v);
}

SIMD_INLINE simd_f simd_add(simd_f a, simd_f b)
{
    return a + b;
}
SIMD_INLINE simd_f simd_sub(simd_f a, simd_f b)
{
    return a - b;
}
SIMD_INLINE simd_f simd_mul(simd_f a, simd_f b)
{
    return a * b;
}
SIMD_INLINE simd_f simd_div(simd_f a, simd_f b)
{
    return a / b;
}
SIMD_INLINE simd_f simd_fma(simd_f a, simd_f b, simd_f c)
{
    return a * b + c;
}
SIMD_INLINE simd_f simd_min(simd_f a, simd_f b)
{
    return a < b ? a : b;
}
SIMD_INLINE simd_f simd_max(simd_f a, simd_f b)
{
    return a > b ? a : b;
}
SIMD_INLINE simd_f simd_sqrt(simd_f a)
{
    return sqrtf(a);
}
SIMD_INLINE simd_f simd_abs(simd_f a)
{
    return fabsf(a);
}
SIMD_INLINE simd_f simd_neg(simd_f a)
{
    return -a;
}
SIMD_INLINE simd_f simd_copysign(simd_f mag, simd_f sign)
{
    return copysignf(mag, sign);
}
SIMD_INLINE simd_f simd_round(simd_f a)
{
    return rintf(a);
} /* the daemon never leaves round-to-nearest-even */
SIMD_INLINE simd_f simd_floor(simd_f a)
{
    return floorf(a);
}
SIMD_INLINE simd_f simd_ceil(simd_f a)
{
    return ceilf(a);
}

SIMD_INLINE simd_m simd_lt(simd_f a, simd_f b)
{
    return a < b;
}
SIMD_INLINE simd_m simd_le(simd_f a, simd_f b)
{
    return a <= b;
}
SIMD_INLINE simd_m simd_eq(simd_f a, simd_f b)
{
    return a == b;
}
SIMD_INLINE simd_m simd_ne(simd_f a, simd_f b)
{
    return a != b;
}
SIMD_INLINE simd_m simd_isnan(simd_f a)
{
    return a != a;
}
SIMD_INLINE simd_m simd_m_and(simd_m a, simd_m b)
{
    return a && b;
}
SIMD_INLINE simd_m simd_m_or(simd_m a, simd_m b)
{
    return a || b;
}
SIMD_INLINE simd_m simd_m_xor(simd_m a, simd_m b)
{
    return a != b;
}
SIMD_INLINE bool simd_m_any(simd_m m)
{
    return m;
}
SIMD_INLINE bool simd_m_all(simd_m m)
{
    return m;
}
SIMD_INLINE int simd_m_first(simd_m m)
{
    return m ? 0 : 1;
}
SIMD_INLINE simd_f simd_select(simd_m m, simd_f yes, simd_f no)
{
    return m ? yes : no;
}
/* Keeps the first n lanes; the others become zero. */
SIMD_INLINE simd_f simd_keep(simd_f v, int64_t n)
{
    return n > 0 ? v : 0.0f;
}
/* Keeps the first n lanes; the others become `rest`. */
SIMD_INLINE simd_f simd_fill(simd_f v, int64_t n, float rest)
{
    return n > 0 ? v : rest;
}
SIMD_INLINE void simd_store_mask(uint8_t *p, simd_m m, int64_t n)
{
    if (n > 0)
        *p = m;
}

SIMD_INLINE float simd_hsum(simd_f v)
{
    return v;
}
SIMD_INLINE float simd_hmax(simd_f v)
{
    return v;
}
SIMD_INLINE float simd_hmin(simd_f v)
{
    return v;
}
SIMD_INLINE float simd_hmul(simd_f v)
{
    return v;
}

#endif
