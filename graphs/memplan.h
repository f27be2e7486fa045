/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_MEMPLAN_H
#define NGD_GRAPHS_MEMPLAN_H

/*
 * The memory planner: offsets for blocks from their lifetimes, by best fit in several orders, of which the best
 * answer is kept. Two blocks may overlap in memory only if they do not in time.
 * Aim: peak within 5 % of the lower bound (the largest sum of live bytes). Deterministic.
 * Bounds: about a second for any number of blocks up to 65536, a millisecond or two for a decoder's.
 * NGD_ERR_OVERFLOW when all blocks together exceed 2^62 bytes.
 *
 * Steps are an order in which everything may run. With several streams other orders are possible as well: two blocks
 * that do not meet in steps may then meet in time, unless the last use of one happens before the first of the other in
 * each of those orders. Who plans such blocks says which do, in a struct ngd_memplan_order.
 */
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ngd_memplan_block {
    uint64_t bytes;       /* rounded up to align by the planner; 0 is fine */
    uint32_t first, last; /* inclusive steps during which it is live */
    uint64_t offset;      /* out */
};

struct ngd_memplan_order {
    const uint32_t *until; /* by block: the last step that may run before its last use; at least `last` */
    /* Block a's uses all happen before block b's. Asked only where until[a] does not already say so. */
    bool (*before)(const void *ctx, uint32_t a, uint32_t b);
    const void *ctx;
};

/* order NULL: one stream. The lower bound is that of the steps' order, so one that no order can beat. */
ngd_status_t ngd_memplan_streams(struct ngd_memplan_block *blocks, uint32_t n, uint64_t align,
                                 const struct ngd_memplan_order *order, uint64_t *peak_p, uint64_t *lower_bound_p);
ngd_status_t ngd_memplan(struct ngd_memplan_block *blocks, uint32_t n, uint64_t align, uint64_t *peak_p,
                         uint64_t *lower_bound_p);

/*
 * Whether the blocks' offsets, which may come from a file, are good: aligned, within `peak` bytes, and disjoint while
 * they live. NGD_ERR_FILE_CORRUPT when not. Time: the steps, and for each block the number of those that live with it.
 */
ngd_status_t ngd_memplan_check(const struct ngd_memplan_block *blocks, uint32_t n, uint64_t align, uint64_t peak);
/* The same where streams run at the same time: blocks share bytes only if one happens before the other. */
ngd_status_t ngd_memplan_check_streams(const struct ngd_memplan_block *blocks, uint32_t n, uint64_t align,
                                       const struct ngd_memplan_order *order, uint64_t peak);

#endif
