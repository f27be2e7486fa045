/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_QUANT_H
#define NGD_DEVICES_HOST_KERNELS_K_QUANT_H

/* Quantises a line: n elements as f32, in place. */
#include "devices/host/kernels/by_isa.h"

struct ngd_quant_line {
    const float *scale, *zero; /* zero may be NULL: 0 */
    int64_t scale_step;        /* 0: one scale for all */
    int64_t zero_step;         /* 0: one zero for all */
    bool divide;
    float lo, hi;
};

struct ngd_quant_table {
    /* Does v *= smooth unless smooth is NULL. Returns the largest |v|. */
    float (*smooth)(float *v, const float *smooth, int64_t n);
    /* v = round(v / scale + zero), or round(v * scale + zero), clamped to lo..hi. NaN becomes 0. Halves round to even.
     */
    void (*quantize)(const struct ngd_quant_line *q, float *v, int64_t n);
};
NGD_ISA_TABLES(struct ngd_quant_table, ngd_quant);

#endif
