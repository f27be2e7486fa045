/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_NORM_H
#define NGD_DEVICES_HOST_KERNELS_K_NORM_H

/*
 * Row functions of the normalisations. One call handles one row of n elements. Sums are f32 in SIMD_W * 4 partial sums
 * that are folded in a fixed order, so a row's result depends only on the row.
 */
#include "devices/host/kernels/by_isa.h"

/* y = x * rstd * gamma. If x2 is not NULL, x + x2 replaces x and is stored in `sum` too. */
typedef void (*ngd_rms_fn)(const void *x, const void *x2, const void *gamma, void *y, float *rstd, void *sum, int64_t n,
                           float eps);

struct ngd_layer_norm {
    const void *weight, *bias; /* NULL when absent */
    ngd_dtype_t weight_type, bias_type;
    int64_t n;
    float eps;
};
/* moments gets mean and 1/sqrt(variance + eps) of the row. */
typedef void (*ngd_layer_norm_fn)(const struct ngd_layer_norm *l, const void *x, void *y, float moments[2]);

struct ngd_norm_table {
    ngd_rms_fn rms[3][3];   /* [x][gamma]; gamma has x's type, or is narrower if x is f32 */
    ngd_rms_fn gemma[3][3]; /* multiply by 1 + gamma instead */
    ngd_rms_fn add_rms[3][3];
    ngd_layer_norm_fn layer[3];
};
NGD_ISA_TABLES(struct ngd_norm_table, ngd_norm);

#endif
