/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over logits for one instruction set; see k_sample.h, and simd.h for how this file is included. */
#include "devices/host/kernels/k_sample.h"
#include "devices/host/kernels/simd_math.h"
#include "devices/host/kernels/typed.h"

#define PASSES(T)                                                                                        \
    static float sample_max_##T(const void *xp, int64_t n, bool *nan_p)                                  \
    {                                                                                                    \
        const ngd_el_##T *x = xp;                                                                        \
        simd_f a = simd_set1(-INFINITY), b = a, v, w;                                                    \
        simd_m nan = simd_isnan(a);                                                                      \
        float top;                                                                                       \
        int64_t i = 0;                                                                                   \
                                                                                                         \
        for (; i + 2 * SIMD_W <= n; i += 2 * SIMD_W) {                                                   \
            v = simd_load_##T(x + i);                                                                    \
            w = simd_load_##T(x + i + SIMD_W);                                                           \
            nan = simd_m_or(nan, simd_m_or(simd_isnan(v), simd_isnan(w)));                               \
            a = simd_max(v, a);                                                                          \
            b = simd_max(w, b);                                                                          \
        }                                                                                                \
        top = simd_hmax(simd_max(a, b));                                                                 \
        *nan_p = simd_m_any(nan);                                                                        \
        for (; i < n; i++) {                                                                             \
            const float s = ngd_get_##T(x[i]);                                                           \
                                                                                                         \
            *nan_p |= s != s;                                                                            \
            top = s > top ? s : top;                                                                     \
        }                                                                                                \
        return top;                                                                                      \
    }                                                                                                    \
    static float sample_exp_sum_##T(const void *xp, int64_t n, float max, float scale, float *p)         \
    {                                                                                                    \
        const simd_f m = simd_set1(max), f = simd_set1(scale);                                           \
        const ngd_el_##T *x = xp;                                                                        \
        simd_f sum = simd_zero();                                                                        \
        float rest[SIMD_W], total;                                                                       \
        int64_t i = 0;                                                                                   \
                                                                                                         \
        for (; i + SIMD_W <= n; i += SIMD_W) {                                                           \
            const simd_f e = simd_exp(simd_mul(simd_sub(simd_load_##T(x + i), m), f));                   \
                                                                                                         \
            sum = simd_add(sum, e);                                                                      \
            if (p)                                                                                       \
                simd_store_f32(p + i, e);                                                                \
        }                                                                                                \
        total = simd_hsum(sum);                                                                          \
        if (i < n) {                                                                                     \
            simd_store_f32(rest, simd_exp(simd_mul(simd_sub(simd_load_up_to_##T(x + i, n - i), m), f))); \
            for (int64_t j = 0; i + j < n; j++) {                                                        \
                total += rest[j];                                                                        \
                if (p)                                                                                   \
                    p[i + j] = rest[j];                                                                  \
            }                                                                                            \
        }                                                                                                \
        return total;                                                                                    \
    }

PASSES(f32)
PASSES(f16)
PASSES(bf16)

const struct ngd_sample_table SIMD_NAME(ngd_sample_table) = {
    .max = {sample_max_f32, sample_max_f16, sample_max_bf16},
    .exp_sum = {sample_exp_sum_f32, sample_exp_sum_f16, sample_exp_sum_bf16},
};
