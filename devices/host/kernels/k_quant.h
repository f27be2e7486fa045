/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_QUANT_H
#define NGD_DEVICES_HOST_KERNELS_K_QUANT_H

/* Lines of quantisation: n elements as f32, in place. */
#include "devices/host/kernels/by_isa.h"

struct ngd_quant_line {
    const float *scale, *zero; /* zero NULL: 0 */
    int64_t scale_step;        /* 0: one for all */
    int64_t zero_step;
    bool divide;
    float lo, hi;
};

struct ngd_quant_table {
    /* v *= smooth, where it is not NULL; the largest |v|. */
    float (*smooth)(float *v, const float *smooth, int64_t n);
    /* v = round(v / scale + zero), or v * scale, within lo..hi; NaN becomes 0. Halves go to even. */
    void (*quantize)(const struct ngd_quant_line *q, float *v, int64_t n);
};
NGD_ISA_TABLES(struct ngd_quant_table, ngd_quant);

#endif
