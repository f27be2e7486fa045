/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_COMPARE_H
#define NGD_GRAPHS_COMPARE_H

/*
 * Are two tensors the same: bit for bit, or as far as rounding lets one say?
 *
 * But for ngd_compare_bits, floats may differ by a share of the reference's largest magnitude (NGD_COMPARE_*): passes
 * may fuse operators, and sums in another order round otherwise, so that small elements of a tensor with large ones
 * carry its error. Integers and bools must be equal; NaN equals NaN, and an infinity itself. Pure functions.
 */
#include "base/dtype.h"
#include "base/strbuf.h"
#include "graphs/graph.h"
#include <stdint.h>

#define NGD_COMPARE_F32     1e-4
#define NGD_COMPARE_F16     4e-3
#define NGD_COMPARE_BF16    3e-2
/*
 * So many times as far may results be apart that were rounded otherwise in all layers, as errors add up: decoders of 28
 * and 48 layers in bf16 were 0.03 to 0.07 of the largest logit apart, and no nearer to what they mean on either side.
 */
#define NGD_COMPARE_ROUNDED 8

struct ngd_difference {
    uint64_t n;     /* elements that differ */
    uint64_t index; /* the first of them */
    double got, want;
};

/* True: the same bits; of a NaN, that it is one. */
bool ngd_compare_bits(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n, struct ngd_difference *diff_p);
/* True: the same. */
bool ngd_compare(ngd_dtype_t dtype, const void *got, const void *want, uint64_t n, struct ngd_difference *diff_p);
/*
 * The same for a graph that may round less often than it says (option allow_excess_precision). `narrow` is the dtype
 * whose roundings may be missing: what is f32 in the end was computed from it. This only finds what is another thing
 * altogether; integers are not compared, since a rounding can make any other index that of the largest. Whoever wants
 * to know more compares with a run that rounds alike.
 */
bool ngd_compare_rounded(ngd_dtype_t dtype, ngd_dtype_t narrow, const void *got, const void *want, uint64_t n,
                         struct ngd_difference *diff_p);
/* The float dtype with the coarsest roundings among what the graph computes. */
ngd_dtype_t ngd_compare_narrowest(const struct ngd_graph *graph);
/* "3 of 64 elements differ; element 17 is 3.5, not 1.25". */
void ngd_difference_print(const struct ngd_difference *diff, uint64_t n, struct ngd_strbuf *sb);

#endif
