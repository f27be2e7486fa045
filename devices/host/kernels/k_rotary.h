/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_ROTARY_H
#define NGD_DEVICES_HOST_KERNELS_K_ROTARY_H

/* Row functions of npu.rotary_mul, npu.swiglu and of what is fused with them, by x's type. */
#include "devices/host/kernels/by_isa.h"

/* One head of 2 * half elements; cos and sin of f32 or x's type, as many elements. y may be x. */
typedef void (*ngd_rotary_fn)(const void *x, const void *cos, ngd_dtype_t cos_type, const void *sin,
                              ngd_dtype_t sin_type, void *y, int64_t half);
/* y = silu(a) * b, n elements; as gate, with silu rounded to their type in between. */
typedef void (*ngd_swiglu_fn)(const void *a, const void *b, void *y, int64_t n);

struct ngd_gate_table {
    ngd_rotary_fn rotary[3];
    ngd_swiglu_fn swiglu[3];
    ngd_swiglu_fn gate[3];
};
NGD_ISA_TABLES(struct ngd_gate_table, ngd_gate);

#endif
