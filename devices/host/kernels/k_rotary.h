/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_ROTARY_H
#define NGD_DEVICES_HOST_KERNELS_K_ROTARY_H

/* Row functions of npu.rotary_mul, npu.swiglu and the operators that are fused with them, by x's type. */
#include "devices/host/kernels/by_isa.h"

/* Rotates one head of 2 * half elements. cos and sin have as many elements, in f32 or x's type. y may be x. */
typedef void (*ngd_rotary_fn)(const void *x, const void *cos, ngd_dtype_t cos_type, const void *sin,
                              ngd_dtype_t sin_type, void *y, int64_t half);
/* y = silu(a) * b for n elements. The `gate` form rounds silu(a) to their type before it multiplies. */
typedef void (*ngd_swiglu_fn)(const void *a, const void *b, void *y, int64_t n);

/* Gates n pairs, each `step` elements behind the one before: y = g'*sigmoid(alpha*g')*(u' + bias), g' and u' clipped.
 */
struct ngd_clip {
    float alpha, limit, bias;
};
typedef void (*ngd_clipped_fn)(const void *g, const void *u, int64_t step, const struct ngd_clip *clip, void *y,
                               int64_t n);

struct ngd_gate_table {
    ngd_rotary_fn rotary[3];
    ngd_swiglu_fn swiglu[3];
    ngd_swiglu_fn gate[3];
    ngd_clipped_fn clipped[3];
};
NGD_ISA_TABLES(struct ngd_gate_table, ngd_gate);

#endif
