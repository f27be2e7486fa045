/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_KV_QUANT_H
#define NGD_DEVICES_HOST_KERNELS_K_KV_QUANT_H

/*
 * Quantises a head of a row for a KV cache in i8 or f8_e4m3fn: one scale, and d numbers. The scale is the largest |x|
 * divided by the largest number, 127 or 448, in f32, and a number is x divided by the scale, rounded to nearest even.
 * So the bits are the same on every instruction set, and depend on nothing but the head itself.
 */
#include "devices/host/kernels/by_isa.h"

struct ngd_kv_quant_table {
    /* Returns the largest |x| of n elements, or NaN if one of them is NaN or infinite. By x's dtype. */
    float (*most[3])(const void *x, int64_t n);
    /* y = x / scale. By x's dtype; scale is neither 0 nor NaN. */
    void (*i8[3])(const void *x, int64_t n, float scale, int8_t *y);
    void (*f8[3])(const void *x, int64_t n, float scale, uint8_t *y);
};
NGD_ISA_TABLES(struct ngd_kv_quant_table, ngd_kv_quant);

/* Writes n numbers to y, and their scale. from: x's dtype; to: NGD_I8 or NGD_F8_E4M3FN. */
static inline void ngd_kv_quant_head(const struct ngd_kv_quant_table *table, const void *x, ngd_dtype_t from, int64_t n,
                                     ngd_dtype_t to, void *y, float *scale_p)
{
    const float scale = table->most[from](x, n) / (to == NGD_I8 ? 127.0f : 448.0f);

    *scale_p = scale;
    if (!(scale > 0)) /* of zeros, of an underflow, or NaN */
        memset(y, 0, (size_t)n);
    else if (to == NGD_I8)
        table->i8[from](x, n, scale, y);
    else
        table->f8[from](x, n, scale, y);
}

#endif
