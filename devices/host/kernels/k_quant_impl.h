/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisation for one instruction set; see simd.h for how this file is included. */
#include "devices/host/kernels/k_quant.h"
#include "devices/host/kernels/simd.h"

static float quant_smooth(float *v, const float *by, int64_t n)
{
    simd_f most = simd_zero();

    for (int64_t i = 0; i < n; i += SIMD_W) {
        simd_f x = simd_load_up_to_f32(v + i, n - i);

        if (by) {
            x = simd_mul(x, simd_load_up_to_f32(by + i, n - i));
            simd_store_up_to_f32(v + i, x, n - i);
        }
        most = simd_max(simd_abs(x), most); /* if x is NaN, the result is `most` */
    }
    return simd_hmax(most);
}

static void quant_line(const struct ngd_quant_line *q, float *v, int64_t n)
{
    const simd_f lo = simd_set1(q->lo), hi = simd_set1(q->hi);

    for (int64_t i = 0; i < n; i += SIMD_W) {
        const simd_f s = q->scale_step ? simd_load_up_to_f32(q->scale + i, n - i) : simd_set1(*q->scale);
        simd_f x = simd_load_up_to_f32(v + i, n - i);

        x = q->divide ? simd_div(x, s) : simd_mul(x, s);
        if (q->zero)
            x = simd_add(x, q->zero_step ? simd_load_up_to_f32(q->zero + i, n - i) : simd_set1(*q->zero));
        x = simd_select(simd_isnan(x), simd_zero(), x);
        simd_store_up_to_f32(v + i, simd_max(simd_min(simd_round(x), hi), lo), n - i);
    }
}

const struct ngd_quant_table SIMD_NAME(ngd_quant) = {.smooth = quant_smooth, .quantize = quant_line};
