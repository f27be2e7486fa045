/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_MEMPLAN_H
#define NGD_GRAPHS_MEMPLAN_H

/*
 * The memory planner: assigns offsets to blocks from their lifetimes. It places them by best fit in several orders and
 * keeps the best result. Two blocks overlap in memory only if they do not overlap in time.
 * Aim: a peak within 5 % of the lower bound (the largest sum of live bytes). Deterministic.
 * Bounds: about a second for any number of blocks up to 65536, one or two milliseconds for a decoder's.
 * NGD_ERR_OVERFLOW: all blocks together exceed 2^62 bytes.
 *
 * Steps are one order in which the calls may run. With several streams, other orders are possible too. Then two blocks
 * with disjoint steps may be live at the same time, unless all uses of one happen before all uses of the other in each
 * of these orders. The caller says for which blocks this is so, in a struct ngd_memplan_order.
 */
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ngd_memplan_block {
    uint64_t bytes;       /* the planner rounds it up to align; may be 0 */
    uint32_t first, last; /* inclusive steps during which it is live */
    uint64_t offset;      /* out */
};

struct ngd_memplan_order {
    const uint32_t *until; /* by block: the last step that may run before its last use; at least `last` */
    /* Returns true if all uses of block a happen before those of block b.
     * Called only where until[a] does not decide. */
    bool (*before)(const void *ctx, uint32_t a, uint32_t b);
    const void *ctx;
};

/* Plans blocks of several streams; order NULL: one stream. The lower bound is that of the steps alone, so no plan can
 * be below it. */
ngd_status_t ngd_memplan_streams(struct ngd_memplan_block *blocks, uint32_t n, uint64_t align,
                                 const struct ngd_memplan_order *order, uint64_t *peak_p, uint64_t *lower_bound_p);
ngd_status_t ngd_memplan(struct ngd_memplan_block *blocks, uint32_t n, uint64_t align, uint64_t *peak_p,
                         uint64_t *lower_bound_p);

/*
 * Checks the blocks' offsets, which may come from a file: they must be aligned, within `peak` bytes, and disjoint while
 * live; otherwise NGD_ERR_FILE_CORRUPT. Takes time for the steps and, for each block, for the blocks live with it.
 */
ngd_status_t ngd_memplan_check(const struct ngd_memplan_block *blocks, uint32_t n, uint64_t align, uint64_t peak);
/* Checks the same for several streams: blocks may share bytes only if one happens before the other. */
ngd_status_t ngd_memplan_check_streams(const struct ngd_memplan_block *blocks, uint32_t n, uint64_t align,
                                       const struct ngd_memplan_order *order, uint64_t peak);

#endif
