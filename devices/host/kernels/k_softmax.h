/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_SOFTMAX_H
#define NGD_DEVICES_HOST_KERNELS_K_SOFTMAX_H

/* Line functions of softmax and log-softmax: [x's type][result's type]. The result's type is x's or f32. */
#include "devices/host/kernels/by_isa.h"

/* Handles one contiguous line of n elements. */
typedef void (*ngd_softmax_fn)(const void *x, void *y, int64_t n, bool log);
/* Handles `inner` lines side by side: element j of line c is at j * inner + c. */
typedef void (*ngd_softmax_lines_fn)(const void *x, void *y, int64_t n, int64_t inner, bool log);

struct ngd_softmax_table {
    ngd_softmax_fn line[3][3];
    ngd_softmax_lines_fn lines[3][3];
};
NGD_ISA_TABLES(struct ngd_softmax_table, ngd_softmax);

#endif
