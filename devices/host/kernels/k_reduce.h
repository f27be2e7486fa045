/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_REDUCE_H
#define NGD_DEVICES_HOST_KERNELS_K_REDUCE_H

/*
 * Vectorised reductions of floats: of contiguous runs, and of columns side by side. Everything else (integers, other
 * steps, products) is plain C in k_reduce.c. The order of operations is fixed: a result depends only on its elements.
 */
#include "devices/host/kernels/by_isa.h"

/* The state of a reduction: f for floats (sums and products keep f64 between runs), i for integers. */
struct ngd_acc {
    double f;
    int64_t i;
};

/* Reduces n elements, `step` bytes apart, into acc. */
typedef void (*ngd_reduce_fn)(struct ngd_acc *acc, const char *p, int64_t step, int64_t n);
/* Reduces one element of each of n neighbouring columns into acc[0..n-1]. */
typedef void (*ngd_reduce_cols_fn)(float *acc, const char *p, int64_t n);
/* Returns the index of the first largest or smallest of n > 0 contiguous elements. NaN wins. */
typedef int64_t (*ngd_arg_fn)(const char *p, int64_t n);
/* Returns the first index >= i whose element is beyond the limit or NaN, n if there is none. The table says whether
 * above or below is beyond. */
typedef int64_t (*ngd_beyond_fn)(const char *p, int64_t i, int64_t n, float limit);

typedef enum ngd_reduction { NGD_REDUCE_SUM, NGD_REDUCE_MAX, NGD_REDUCE_MIN, NGD_REDUCE_VECTOR } ngd_reduction_t;

struct ngd_reduce_table {
    ngd_reduce_fn run[NGD_REDUCE_VECTOR][3];
    ngd_reduce_cols_fn cols[NGD_REDUCE_VECTOR][3];
    ngd_arg_fn argmax[3], argmin[3];
    ngd_beyond_fn above[3], below[3];
};
NGD_ISA_TABLES(struct ngd_reduce_table, ngd_reduce);

#endif
