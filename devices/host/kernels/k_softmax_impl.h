/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax lines for one instruction set; see simd.h for how this file is included.
 *
 * The largest element is subtracted first. As in PyTorch, a line becomes NaN if it has a NaN or +inf, or only -inf. The
 * exponential is computed twice instead of stored, since a half-width result could not hold it.
 */
#include "devices/host/kernels/k_softmax.h"
#include "devices/host/kernels/simd_math.h"

#define LINE(X, Y)                                                                                       \
    static void softmax_line_##X##_##Y(const void *xp, void *yp, int64_t n, bool log)                    \
    {                                                                                                    \
        const ngd_el_##X *x = xp;                                                                        \
        ngd_el_##Y *y = yp;                                                                              \
        simd_f top = simd_set1(-INFINITY), s0 = simd_zero(), s1 = s0, max, scale;                        \
        int64_t i = 0;                                                                                   \
        for (; i + SIMD_W <= n; i += SIMD_W)                                                             \
            top = simd_max(simd_load_##X(x + i), top);                                                   \
        if (i < n)                                                                                       \
            top = simd_max(simd_fill(simd_load_n_##X(x + i, n - i), n - i, -INFINITY), top);             \
        max = simd_set1(simd_hmax(top));                                                                 \
        for (i = 0; i + 2 * SIMD_W <= n; i += 2 * SIMD_W) {                                              \
            s0 = simd_add(s0, simd_exp(simd_sub(simd_load_##X(x + i), max)));                            \
            s1 = simd_add(s1, simd_exp(simd_sub(simd_load_##X(x + i + SIMD_W), max)));                   \
        }                                                                                                \
        for (; i < n; i += SIMD_W) {                                                                     \
            const simd_f e = simd_exp(simd_sub(simd_load_up_to_##X(x + i, n - i), max));                 \
            s0 = simd_add(s0, n - i >= SIMD_W ? e : simd_keep(e, n - i));                                \
        }                                                                                                \
        scale = simd_set1(simd_hsum(simd_add(s0, s1)));                                                  \
        scale = log ? simd_log(scale) : simd_div(simd_set1(1.0f), scale);                                \
        for (i = 0; i < n; i += SIMD_W) {                                                                \
            const simd_f v = simd_sub(simd_load_up_to_##X(x + i, n - i), max);                           \
            simd_store_up_to_##Y(y + i, log ? simd_sub(v, scale) : simd_mul(simd_exp(v), scale), n - i); \
        }                                                                                                \
    }

/* A vector holds SIMD_W lines; every lane sums its own line in order. */
#define LINES(X, Y)                                                                                                 \
    static void softmax_lines_##X##_##Y(const void *xp, void *yp, int64_t n, int64_t inner, bool log)               \
    {                                                                                                               \
        for (int64_t c = 0; c < inner; c += SIMD_W) {                                                               \
            const ngd_el_##X *x = (const ngd_el_##X *)xp + c;                                                       \
            ngd_el_##Y *y = (ngd_el_##Y *)yp + c;                                                                   \
            const int64_t left = inner - c;                                                                         \
            simd_f max = simd_set1(-INFINITY), s[4] = {simd_zero(), simd_zero(), simd_zero(), simd_zero()}, scale;  \
            for (int64_t j = 0; j < n; j++)                                                                         \
                max = simd_max(simd_load_up_to_##X(x + j * inner, left), max);                                      \
            for (int64_t j = 0; j < n; j++)                                                                         \
                s[j & 3] = simd_add(s[j & 3], simd_exp(simd_sub(simd_load_up_to_##X(x + j * inner, left), max)));   \
            scale = simd_add(simd_add(s[0], s[1]), simd_add(s[2], s[3]));                                           \
            scale = log ? simd_log(scale) : simd_div(simd_set1(1.0f), scale);                                       \
            for (int64_t j = 0; j < n; j++) {                                                                       \
                const simd_f v = simd_sub(simd_load_up_to_##X(x + j * inner, left), max);                           \
                simd_store_up_to_##Y(y + j * inner, log ? simd_sub(v, scale) : simd_mul(simd_exp(v), scale), left); \
            }                                                                                                       \
        }                                                                                                           \
    }
#define BOTH(X, Y) LINE(X, Y) LINES(X, Y)
BOTH(f32, f32)
BOTH(f16, f16)
BOTH(f16, f32)
BOTH(bf16, bf16)
BOTH(bf16, f32)

#define ROWS(name)                                                                 \
    {                                                                              \
        [NGD_F32] = {[NGD_F32] = name##_f32_f32},                                  \
        [NGD_F16] = {[NGD_F16] = name##_f16_f16, [NGD_F32] = name##_f16_f32},      \
        [NGD_BF16] = {[NGD_BF16] = name##_bf16_bf16, [NGD_F32] = name##_bf16_f32}, \
    }
const struct ngd_softmax_table SIMD_NAME(ngd_softmax) = {.line = ROWS(softmax_line), .lines = ROWS(softmax_lines)};
