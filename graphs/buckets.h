/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_BUCKETS_H
#define NGD_GRAPHS_BUCKETS_H

/*
 * Chooses buckets: for a given number of captures, the set that pads the requested sizes the least.
 *
 * The result is optimal. Dynamic programming goes over the sizes in ascending order: the last bucket of an optimal set
 * is the largest size, and the buckets below any bucket are an optimal set for the smaller sizes. Divide and conquer
 * makes it O(captures * n log n): the best previous bucket moves up as more sizes are covered, because the cost of
 * padding a run of sizes satisfies the quadrangle inequality. Pure functions.
 */
#include "base/status.h"
#include "graphs/graph.h"
#include "graphs/sizes.h"

struct ngd_bucket_set {
    uint32_t n;
    int64_t sizes[NGD_MAX_BUCKETS]; /* ascending */
};

/* Returns the units of padding that the requests of `list` get. Requests above the last bucket do not count. */
uint64_t ngd_buckets_padding(const struct ngd_bucket_set *set, const struct ngd_size_count *list, uint32_t n);
/* Returns the units that the requests of `list` asked for. */
uint64_t ngd_buckets_asked(const struct ngd_size_count *list, uint32_t n);

/*
 * Proposes at most `captures` buckets (1..NGD_MAX_BUCKETS - 1) for the requested sizes. If they end below max, adds one
 * at max, which is not captured before a request needs it. list is ascending. NGD_ERR_INVALID_ARGUMENT: captures is out
 * of range, or a size is above max.
 */
ngd_status_t ngd_buckets_propose(const struct ngd_size_count *list, uint32_t n, uint32_t captures, int64_t max,
                                 struct ngd_bucket_set *set_p, struct ngd_diag *diag);

/* Fills in the buckets that a symbol declares; none for an exact symbol. */
void ngd_buckets_of_symbol(const struct ngd_symbol *sym, struct ngd_bucket_set *set_p);
/* Checks that the buckets ascend, are within the symbol's range, and cover its maximum. */
ngd_status_t ngd_buckets_check(const struct ngd_symbol *sym, const struct ngd_bucket_set *set, struct ngd_diag *diag);

#endif
