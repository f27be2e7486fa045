/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_SIMD_H
#define NGD_DEVICES_HOST_KERNELS_SIMD_H

/*
 * One vocabulary for three instruction sets, so that a kernel family is written once.
 *
 * A family's template (k_x_impl.h) is included by isa_scalar.c, isa_avx2.c and isa_avx512.c, which define NGD_SIMD as
 * 1, 8 or 16: the number of f32 lanes. They include one template after the other, so names of macros and functions
 * differ between families. Width 1 is plain C and the twin that the tests compare the others with; it is
 * also the path of machines without AVX. NGD_SIMD decides, not the compiler's own macros, so that a build with
 * -march=native still has a plain twin.
 *
 * simd_f holds f32 lanes, simd_i as many i32 lanes, simd_m one truth per lane. f16 and bf16 are widened on load and
 * rounded to nearest even on store; i8 too. f8_e4m3fn loads as the number times SIMD_F8, and NaN as any number:
 * simd_f8_nan_in() finds it. *_n variants touch only the first n lanes' memory, 0 < n < SIMD_W; the other
 * lanes load as zero. Minimum and maximum keep x86's rule: the second operand when either is NaN.
 */
#include "devices/host/kernels/typed.h"
#include <math.h>

#ifndef NGD_SIMD
#define NGD_SIMD 1
#endif

#define SIMD_W            NGD_SIMD
#define SIMD_F8           0x1p-8f
#define SIMD_SUM_BLOCK    4096 /* elements of a row that are added up in f32 before the sum goes on in f64 */
#define SIMD_PASTE_(a, b) a##_##b
#define SIMD_PASTE(a, b)  SIMD_PASTE_(a, b)
#if defined(NGD_STATIC_FAMILY) /* generated files, several of which have the same tables */
#define SIMD_NAME(x) SIMD_PASTE(x, NGD_STATIC_FAMILY)
#elif NGD_SIMD == 1
#define SIMD_NAME(x) SIMD_PASTE(x, scalar)
#elif NGD_SIMD == 8
#define SIMD_NAME(x) SIMD_PASTE(x, avx2)
#else
#define SIMD_NAME(x) SIMD_PASTE(x, avx512)
#endif
/* Goes before a family's table. In generated code the table is static, so that the compiler drops what is not used. */
#if defined(NGD_STATIC_FAMILY)
#define SIMD_TABLE static
#else
#define SIMD_TABLE
#endif
#define SIMD_INLINE static inline __attribute__((always_inline, unused))

#if NGD_SIMD == 1
#include "devices/host/kernels/simd_scalar_impl.h"
#elif NGD_SIMD == 8
#include "devices/host/kernels/simd_avx2_impl.h"
#else
#include "devices/host/kernels/simd_avx512_impl.h"
#endif

/* Load and store a vector at p, where `left` elements of the array remain. Lanes beyond them load as zero. */
#define SIMD_LOAD_UP_TO(T)                                                       \
    SIMD_INLINE simd_f simd_load_up_to_##T(const ngd_el_##T *p, int64_t left)    \
    {                                                                            \
        return left >= SIMD_W ? simd_load_##T(p) : simd_load_n_##T(p, left);     \
    }                                                                            \
    SIMD_INLINE void simd_store_up_to_##T(ngd_el_##T *p, simd_f v, int64_t left) \
    {                                                                            \
        if (left >= SIMD_W)                                                      \
            simd_store_##T(p, v);                                                \
        else                                                                     \
            simd_store_n_##T(p, v, left);                                        \
    }
SIMD_LOAD_UP_TO(f32)
SIMD_LOAD_UP_TO(f16)
SIMD_LOAD_UP_TO(bf16)
SIMD_LOAD_UP_TO(i8)
SIMD_LOAD_UP_TO(f8)
#undef SIMD_LOAD_UP_TO

/* Loads operands whose float type differs from the one that the template is compiled for. */
SIMD_INLINE simd_f simd_load_any(const void *p, ngd_dtype_t t, int64_t i, int64_t left)
{
    if (t == NGD_F32)
        return simd_load_up_to_f32((const ngd_el_f32 *)p + i, left);
    return t == NGD_F16 ? simd_load_up_to_f16((const ngd_el_f16 *)p + i, left)
                        : simd_load_up_to_bf16((const ngd_el_bf16 *)p + i, left);
}

#endif
