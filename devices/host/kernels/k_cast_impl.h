/* SPDX-License-Identifier: Apache-2.0 */
/* Casts between floats for one instruction set; see simd.h for how this file is included. */
#include "devices/host/kernels/k_cast.h"
#include "devices/host/kernels/simd.h"

#define CAST(S, D)                                                                              \
    static void cast_##S##_##D(char *const *p, const int64_t *step, int64_t n, const void *arg) \
    {                                                                                           \
        const ngd_el_##S *s = (const void *)p[0];                                               \
        ngd_el_##D *d = (void *)p[1];                                                           \
        int64_t i = 0;                                                                          \
        (void)step;                                                                             \
        (void)arg;                                                                              \
        for (; i + SIMD_W <= n; i += SIMD_W)                                                    \
            simd_store_##D(d + i, simd_load_##S(s + i));                                        \
        if (i < n)                                                                              \
            simd_store_n_##D(d + i, simd_load_n_##S(s + i, n - i), n - i);                      \
    }
CAST(f32, f16)
CAST(f32, bf16)
CAST(f16, f32)
CAST(f16, bf16)
CAST(bf16, f32)
CAST(bf16, f16)

SIMD_TABLE const struct ngd_cast_table SIMD_NAME(ngd_cast) = {{
    [NGD_F32] = {[NGD_F16] = cast_f32_f16, [NGD_BF16] = cast_f32_bf16},
    [NGD_F16] = {[NGD_F32] = cast_f16_f32, [NGD_BF16] = cast_f16_bf16},
    [NGD_BF16] = {[NGD_F32] = cast_bf16_f32, [NGD_F16] = cast_bf16_f16},
}};
