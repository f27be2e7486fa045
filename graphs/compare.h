/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_COMPARE_H
#define NGD_GRAPHS_COMPARE_H

/*
 * Are two tensors the same, as far as rounding lets one say?
 *
 * Floats may differ by a share of the reference's largest magnitude (NGD_COMPARE_*): passes may fuse operators, and
 * sums in another order round otherwise, so that small elements of a tensor with large ones carry its error. Integers
 * and bools must be equal; NaN equals NaN, and an infinity itself. Pure functions.
 */
#include "base/dtype.h"
#include "base/strbuf.h"
#include <stdint.h>

#define NGD_COMPARE_F32  1e-4
#define NGD_COMPARE_F16  4e-3
#define NGD_COMPARE_BF16 3e-2

struct ngd_difference {
    uint64_t n;     /* elements that differ */
    uint64_t index; /* the first of them */
    double got, want;
};

/* True: the same. */
bool ngd_compare(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n, struct ngd_difference *diff_p);
/* "3 of 64 elements differ; element 17 is 3.5, not 1.25". */
void ngd_difference_print(const struct ngd_difference *diff, uint64_t n, struct ngd_strbuf *sb);

#endif
