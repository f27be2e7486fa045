/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding and SwiGLU for one instruction set; see simd.h for how this file is included. */
#include "devices/host/kernels/k_rotary.h"
#include "devices/host/kernels/simd_math.h"

/*
 * y = x * cos + rotate_half(x) * sin, rotate_half(x1, x2) = (-x2, x1). Both halves are computed together, so that y may
 * be x. Each product is rounded, since a pass replaces the separate operators of a model by npu.rotary_mul, and those
 * round.
 */
#define ROTARY(T)                                                                                                      \
    SIMD_INLINE void rotate_##T(const ngd_el_##T *x, const void *cos, ngd_dtype_t ct, const void *sin, ngd_dtype_t st, \
                                ngd_el_##T *y, int64_t half)                                                           \
    {                                                                                                                  \
        for (int64_t i = 0; i < half; i += SIMD_W) {                                                                   \
            const int64_t left = half - i;                                                                             \
            const simd_f x1 = simd_load_up_to_##T(x + i, left), x2 = simd_load_up_to_##T(x + half + i, left);          \
            const simd_f y1 = simd_add(simd_mul(x1, simd_load_any(cos, ct, i, left)),                                  \
                                       simd_mul(simd_neg(x2), simd_load_any(sin, st, i, left)));                       \
            const simd_f y2 = simd_add(simd_mul(x2, simd_load_any(cos, ct, half + i, left)),                           \
                                       simd_mul(x1, simd_load_any(sin, st, half + i, left)));                          \
            simd_store_up_to_##T(y + i, y1, left);                                                                     \
            simd_store_up_to_##T(y + half + i, y2, left);                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static void rotary_##T(const void *x, const void *cos, ngd_dtype_t ct, const void *sin, ngd_dtype_t st, void *y,   \
                           int64_t half)                                                                               \
    {                                                                                                                  \
        if (ct == NGD_F32 && st == NGD_F32) /* the usual tables, with their loads resolved */                          \
            rotate_##T(x, cos, NGD_F32, sin, NGD_F32, y, half);                                                        \
        else                                                                                                           \
            rotate_##T(x, cos, ct, sin, st, y, half);                                                                  \
    }
#define SWIGLU(T)                                                                                                 \
    static void swiglu_##T(const void *ap, const void *bp, void *yp, int64_t n)                                   \
    {                                                                                                             \
        const ngd_el_##T *a = ap, *b = bp;                                                                        \
        ngd_el_##T *y = yp;                                                                                       \
        for (int64_t i = 0; i < n; i += SIMD_W)                                                                   \
            simd_store_up_to_##T(                                                                                 \
                y + i, simd_mul(simd_silu(simd_load_up_to_##T(a + i, n - i)), simd_load_up_to_##T(b + i, n - i)), \
                n - i);                                                                                           \
    }
/* Rounds silu(a) to its type through a buffer, as a separate operator would. */
#define GATE(T)                                                                                                \
    static void swiglu_gate_##T(const void *ap, const void *bp, void *yp, int64_t n)                           \
    {                                                                                                          \
        const ngd_el_##T *a = ap, *b = bp;                                                                     \
        ngd_el_##T *y = yp, t[SIMD_W];                                                                         \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                                              \
            simd_store_##T(t, simd_silu(simd_load_up_to_##T(a + i, n - i)));                                   \
            simd_store_up_to_##T(y + i, simd_mul(simd_load_##T(t), simd_load_up_to_##T(b + i, n - i)), n - i); \
        }                                                                                                      \
    }
SIMD_INLINE simd_f clipped(const float *g, const float *u, const struct ngd_clip *clip)
{
    const simd_f limit = simd_set1(clip->limit), a = simd_min_nan(simd_load_up_to_f32(g, SIMD_W), limit),
                 b = simd_max_nan(simd_min_nan(simd_load_up_to_f32(u, SIMD_W), limit), simd_neg(limit));

    return simd_mul(simd_mul(a, simd_sigmoid(simd_mul(simd_set1(clip->alpha), a))), simd_add(b, simd_set1(clip->bias)));
}
#define CLIPPED(T)                                                                                               \
    static void clipped_##T(const void *gp, const void *up, int64_t step, const struct ngd_clip *clip, void *yp, \
                            int64_t n)                                                                           \
    {                                                                                                            \
        const ngd_el_##T *g = gp, *u = up;                                                                       \
        ngd_el_##T *y = yp;                                                                                      \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                                                \
            float a[SIMD_W] = {0}, b[SIMD_W] = {0};                                                              \
            for (int64_t j = 0; j < SIMD_W && i + j < n; j++) {                                                  \
                a[j] = ngd_get_##T(g[(i + j) * step]);                                                           \
                b[j] = ngd_get_##T(u[(i + j) * step]);                                                           \
            }                                                                                                    \
            simd_store_up_to_##T(y + i, clipped(a, b, clip), n - i);                                             \
        }                                                                                                        \
    }
ROTARY(f32)
ROTARY(f16)
ROTARY(bf16)
SWIGLU(f32)
SWIGLU(f16)
SWIGLU(bf16)
GATE(f16)
GATE(bf16)
CLIPPED(f32)
CLIPPED(f16)
CLIPPED(bf16)

SIMD_TABLE const struct ngd_gate_table SIMD_NAME(ngd_gate) = {
    .rotary = {rotary_f32, rotary_f16, rotary_bf16},
    .swiglu = {swiglu_f32, swiglu_f16, swiglu_bf16},
    .gate = {swiglu_f32, swiglu_gate_f16, swiglu_gate_bf16},
    .clipped = {clipped_f32, clipped_f16, clipped_bf16},
};
