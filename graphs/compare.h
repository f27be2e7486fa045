/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_COMPARE_H
#define NGD_GRAPHS_COMPARE_H

/*
 * Compares two tensors, bit for bit or within rounding errors.
 *
 * Except in ngd_compare_bits, floats may differ by a fraction of the reference's largest magnitude (NGD_COMPARE_*).
 * Why: passes may fuse operators, and sums in another order round differently, so that small elements of a tensor carry
 * the error of large ones. Integers and bools must be equal; NaN equals NaN, and an infinity equals itself. Pure
 * functions.
 */
#include "base/dtype.h"
#include "base/strbuf.h"
#include "graphs/graph.h"
#include <stdint.h>

#define NGD_COMPARE_F32     1e-4
#define NGD_COMPARE_F16     4e-3
#define NGD_COMPARE_BF16    3e-2
/*
 * Factor on these fractions for results that were rounded differently in all layers, because such errors add up. The
 * logits of decoders of 28 and 48 layers in bf16 differed by 0.03 to 0.07 of the largest logit, and neither side was
 * closer to the exact results.
 */
#define NGD_COMPARE_ROUNDED 8

struct ngd_difference {
    uint64_t n;     /* elements that differ */
    uint64_t index; /* the first of them */
    double got, want;
};

/* Returns true if all elements have the same bits. Any NaN equals any other. */
bool ngd_compare_bits(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n, struct ngd_difference *diff_p);
/* Returns true if all elements are equal within the fraction for the dtype. */
bool ngd_compare(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n, struct ngd_difference *diff_p);
/*
 * Compares results of a graph that may round less often than its text says (option allow_excess_precision). `narrow` is
 * the dtype whose roundings may be missing; an f32 result was computed from values of that dtype. Finds only grossly
 * different results. Integers are not compared, because a rounding can move the index of a largest element anywhere.
 * For a stricter check, compare with a run that rounds in the same way.
 */
bool ngd_compare_rounded(ngd_dtype_t dtype, ngd_dtype_t narrow, const void *got, const void *want, uint64_t n,
                         struct ngd_difference *diff_p);
/* Returns the float dtype with the coarsest rounding among the graph's values. */
ngd_dtype_t ngd_compare_narrowest(const struct ngd_graph *graph);
/* Prints "3 of 64 elements differ; element 17 is 3.5, not 1.25". */
void ngd_difference_print(const struct ngd_difference *diff, uint64_t n, struct ngd_strbuf *sb);

#endif
