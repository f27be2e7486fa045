/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_BUCKETS_H
#define NGD_GRAPHS_BUCKETS_H

/*
 * Which buckets to have: for a number of captures, the set that pads the sizes seen the least.
 *
 * Exact, by dynamic programming over the sizes in order: the last bucket of an optimal set is the largest size, and
 * below each bucket lies an optimal set for the smaller ones. O(captures * n log n) by divide and conquer, since the
 * best place of the bucket before moves up with the sizes covered (the cost of padding a run satisfies the quadrangle
 * inequality). Pure functions.
 */
#include "base/status.h"
#include "graphs/graph.h"
#include "graphs/sizes.h"

struct ngd_bucket_set {
    uint32_t n;
    int64_t sizes[NGD_MAX_BUCKETS]; /* ascending */
};

/* Units by which the requests of `list` were padded; those above the last bucket are not covered and do not count. */
uint64_t ngd_buckets_padding(const struct ngd_bucket_set *set, const struct ngd_size_count *list, uint32_t n);
/* Units that the requests asked for. */
uint64_t ngd_buckets_asked(const struct ngd_size_count *list, uint32_t n);

/*
 * At most `captures` buckets (1..NGD_MAX_BUCKETS - 1) for the sizes seen, and one at max if they end below: it takes
 * no capture until somebody asks for it. list is ascending. NGD_ERR_INVALID_ARGUMENT: captures is out of range, or a
 * size is above max.
 */
ngd_status_t ngd_buckets_propose(const struct ngd_size_count *list, uint32_t n, uint32_t captures, int64_t max,
                                 struct ngd_bucket_set *set_p, struct ngd_diag *diag);

/* The present set of a symbol: its buckets, or each size seen for an exact one (cut at NGD_MAX_BUCKETS). */
void ngd_buckets_of_symbol(const struct ngd_symbol *sym, struct ngd_bucket_set *set_p);
/* Ascending, within the symbol's range, covering its maximum. */
ngd_status_t ngd_buckets_check(const struct ngd_symbol *sym, const struct ngd_bucket_set *set, struct ngd_diag *diag);

#endif
