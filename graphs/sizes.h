/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_SIZES_H
#define NGD_GRAPHS_SIZES_H

/*
 * Counts how often each size of a symbol was requested. Buckets are learned from these counts.
 *
 * Why exact counts and no sketch: a server sees tens of batch sizes, not millions, and the best set of buckets needs
 * exact counts.
 * Threads: note() from any thread, without a lock; read() sees each count as it is at some moment of the call.
 * Bounds: NGD_SIZES_MAX distinct sizes. Any other size is counted at the next larger known size, or in `beyond` if
 * there is none, so that a proposal still covers it.
 */
#include <stdatomic.h>
#include <stdint.h>

#define NGD_SIZES_MAX   384
#define NGD_SIZES_SLOTS 512 /* a power of two above NGD_SIZES_MAX, so that a probe always finds a free slot */

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

/* Counts a request. size >= 0. Zeroed memory is a valid, empty struct ngd_sizes. */
void ngd_sizes_note(struct ngd_sizes *sizes, int64_t size);
/* Lists the counts by ascending size. list has room for NGD_SIZES_MAX. Returns the number of entries. */
uint32_t ngd_sizes_read(const struct ngd_sizes *sizes, struct ngd_size_count *list);
void ngd_sizes_clear(struct ngd_sizes *sizes); /* clears the counts; sizes keep their slots */

#endif
