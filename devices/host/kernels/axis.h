/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_AXIS_H
#define NGD_DEVICES_HOST_KERNELS_AXIS_H

/*
 * A contiguous tensor seen along one of its dimensions, the axis: outer x n x inner elements. Kernels along an axis
 * (softmax, cumsum, topk, argmax, gather, ...) share this view. A line is the n elements with one outer and one inner
 * index; lines are independent. Rows (dimension 0) are outer indices, unless the axis is dimension 0. Validation allows
 * no bucketed symbol on that dimension then.
 */
#include "devices/host/kernels/nd.h"

struct ngd_axis {
    uint32_t dim;
    int64_t outer, n, inner;
    int64_t outer_per_row; /* outer indices for each index of dimension 0 */
};

/* dim may be negative; a tensor of rank 0 has one element on its axis. */
static inline struct ngd_axis ngd_axis_of(const struct ngd_plan_tensor *t, int64_t dim)
{
    struct ngd_axis a = {.outer = 1, .n = 1, .inner = 1, .outer_per_row = 1};

    a.dim = (uint32_t)(dim < 0 ? dim + t->rank : dim);
    for (uint32_t d = 0; d < t->rank; d++) {
        if (d < a.dim)
            a.outer *= t->dims[d];
        else if (d == a.dim)
            a.n = t->dims[d];
        else
            a.inner *= t->dims[d];
    }
    if (a.dim > 0 && t->dims[0])
        a.outer_per_row = a.outer / t->dims[0];
    return a;
}

#endif
