/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/sizes.h"
#include <stdbool.h>
#include <stdlib.h>

static uint32_t home_of_size(int64_t size)
{
    return (uint32_t)(((uint64_t)size * UINT64_C(0x9e3779b97f4a7c15)) >> 55) % NGD_SIZES_SLOTS;
}

/* Reserves one of the NGD_SIZES_MAX places for a new size. There are more slots than places, so a free slot remains. */
static bool take_place(struct ngd_sizes *sizes)
{
    uint32_t n = atomic_load_explicit(&sizes->n, memory_order_relaxed);

    do {
        if (n >= NGD_SIZES_MAX)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&sizes->n, &n, n + 1, memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* Returns the slot of a size, and adds it if it is new; -1: it is new, and there is no place. */
static int find_size(struct ngd_sizes *sizes, int64_t size)
{
    for (uint32_t i = home_of_size(size);; i = (i + 1) % NGD_SIZES_SLOTS) {
        int64_t seen = atomic_load_explicit(&sizes->slots[i].size, memory_order_relaxed);

        if (seen == 0) {
            if (!take_place(sizes))
                return -1;
            if (atomic_compare_exchange_strong(&sizes->slots[i].size, &seen, size + 1))
                return (int)i;
            atomic_fetch_sub(&sizes->n, 1); /* another thread took this slot, perhaps for the same size */
        }
        if (seen == size + 1)
            return (int)i;
    }
}

/* Returns the slot of the smallest known size above `size`. Rarely needed. */
static int find_larger(struct ngd_sizes *sizes, int64_t size)
{
    int64_t best = 0;
    int at = -1;

    for (uint32_t i = 0; i < NGD_SIZES_SLOTS; i++) {
        int64_t seen = atomic_load_explicit(&sizes->slots[i].size, memory_order_relaxed);

        if (seen > size + 1 && (at < 0 || seen < best)) {
            best = seen;
            at = (int)i;
        }
    }
    return at;
}

void ngd_sizes_note(struct ngd_sizes *sizes, int64_t size)
{
    int i = find_size(sizes, size);

    if (i < 0)
        i = find_larger(sizes, size);
    if (i < 0)
        atomic_fetch_add_explicit(&sizes->beyond, 1, memory_order_relaxed);
    else
        atomic_fetch_add_explicit(&sizes->slots[i].count, 1, memory_order_relaxed);
}

static int cmp_size(const void *pa, const void *pb)
{
    const struct ngd_size_count *a = pa, *b = pb;

    return a->size < b->size ? -1 : a->size > b->size;
}

uint32_t ngd_sizes_read(const struct ngd_sizes *sizes, struct ngd_size_count *list)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < NGD_SIZES_SLOTS && n < NGD_SIZES_MAX; i++) {
        int64_t seen = atomic_load_explicit(&sizes->slots[i].size, memory_order_relaxed);
        uint64_t count = atomic_load_explicit(&sizes->slots[i].count, memory_order_relaxed);

        if (seen && count)
            list[n++] = (struct ngd_size_count){seen - 1, count};
    }
    qsort(list, n, sizeof(*list), cmp_size);
    return n;
}

void ngd_sizes_clear(struct ngd_sizes *sizes)
{
    for (uint32_t i = 0; i < NGD_SIZES_SLOTS; i++)
        atomic_store_explicit(&sizes->slots[i].count, 0, memory_order_relaxed);
    atomic_store_explicit(&sizes->beyond, 0, memory_order_relaxed);
}
