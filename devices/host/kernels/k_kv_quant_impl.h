/* SPDX-License-Identifier: Apache-2.0 */
/* Quantises heads of a KV cache for one instruction set; see k_kv_quant.h, and simd.h for how this file is included. */
#include "devices/host/kernels/k_kv_quant.h"
#include "devices/host/kernels/simd.h"

/* x / scale, within what the numbers can be: a scale that is subnormal has few bits. */
SIMD_INLINE simd_f kv_quant_divide(simd_f x, simd_f scale, float largest)
{
    return simd_max(simd_min(simd_div(x, scale), simd_set1(largest)), simd_set1(-largest));
}

#define KV_QUANT_NUMBERS(T, N, largest)                                                                             \
    static void kv_quant_##T##_##N(const void *x, int64_t n, float scale, ngd_el_##N *y)                            \
    {                                                                                                               \
        const simd_f by = simd_set1(scale);                                                                         \
                                                                                                                    \
        for (int64_t i = 0; i < n; i += SIMD_W)                                                                     \
            simd_store_up_to_##N(                                                                                   \
                y + i, kv_quant_divide(simd_load_up_to_##T((const ngd_el_##T *)x + i, n - i), by, largest), n - i); \
    }

#define KV_QUANT(T)                                                                    \
    static float kv_quant_most_##T(const void *x, int64_t n)                           \
    {                                                                                  \
        simd_f most = simd_zero(), bad = simd_zero();                                  \
                                                                                       \
        for (int64_t i = 0; i < n; i += SIMD_W) {                                      \
            const simd_f v = simd_load_up_to_##T((const ngd_el_##T *)x + i, n - i);    \
                                                                                       \
            most = simd_max(simd_abs(v), most);                                        \
            bad = simd_add(bad, simd_sub(v, v)); /* 0, or NaN of what is not finite */ \
        }                                                                              \
        return simd_hmax(most) + simd_hsum(bad);                                       \
    }                                                                                  \
    KV_QUANT_NUMBERS(T, i8, 127.0f)                                                    \
    KV_QUANT_NUMBERS(T, f8, 448.0f)
KV_QUANT(f32)
KV_QUANT(f16)
KV_QUANT(bf16)

SIMD_TABLE const struct ngd_kv_quant_table SIMD_NAME(ngd_kv_quant) = {
    .most = {kv_quant_most_f32, kv_quant_most_f16, kv_quant_most_bf16},
    .i8 = {kv_quant_f32_i8, kv_quant_f16_i8, kv_quant_bf16_i8},
    .f8 = {kv_quant_f32_f8, kv_quant_f16_f8, kv_quant_bf16_f8},
};
