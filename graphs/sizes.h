/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_SIZES_H
#define NGD_GRAPHS_SIZES_H

/*
 * How often each size of a symbol was asked for: what a learned set of buckets is made of.
 *
 * Why counts by size and no sketch: a server sees tens of batch sizes, not millions, and the best set of buckets needs
 * them exactly.
 * Threads: note() from any thread, without a lock; read() sees each count as it is at some moment of the call.
 * Bounds: NGD_SIZES_MAX distinct sizes; what comes after them is counted at the next larger size that is known, or,
 * when there is none, in `beyond`, so that a proposal still covers it.
 */
#include <stdatomic.h>
#include <stdint.h>

#define NGD_SIZES_MAX   384
#define NGD_SIZES_SLOTS 512 /* a power of two, so that a probe ends at a free slot */

struct ngd_sizes {
    struct {
        _Atomic int64_t size; /* plus one; 0 = free */
        _Atomic uint64_t count;
    } slots[NGD_SIZES_SLOTS];
    _Atomic uint32_t n;
    _Atomic uint64_t beyond;
};

struct ngd_size_count {
    int64_t size;
    uint64_t count;
};

/* Zeroed memory is a valid, empty struct ngd_sizes. size >= 0. */
void ngd_sizes_note(struct ngd_sizes *sizes, int64_t size);
/* By size, ascending; list has room for NGD_SIZES_MAX. Returns how many. */
uint32_t ngd_sizes_read(const struct ngd_sizes *sizes, struct ngd_size_count *list);
void ngd_sizes_clear(struct ngd_sizes *sizes); /* counts only: sizes keep their places */

#endif
