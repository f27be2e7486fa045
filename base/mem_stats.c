/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the linked allocator (jemalloc, or glibc's) how much of the heap is in use. */
#include "base/mem_stats.h"
#include "base/pages.h"
#include <malloc.h>
#include <stddef.h>

extern int mallctl(const char *name, void *old, size_t *old_len, void *new, size_t new_len) __attribute__((weak));

uint64_t ngd_mem_heap_bytes(void)
{
    if (mallctl) {
        uint64_t epoch = 1;
        size_t bytes = 0, len = sizeof(bytes);

        /* Writing the epoch makes jemalloc take a new snapshot of its statistics. */
        if (mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch)) == 0 &&
            mallctl("stats.allocated", &bytes, &len, NULL, 0) == 0)
            return bytes - ngd_pages_in_heap();
        return 0;
    }
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}
