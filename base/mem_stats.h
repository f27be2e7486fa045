/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_MEM_STATS_H
#define NGD_BASE_MEM_STATS_H

#include <stdint.h>

/* Host bytes in use (the allocator's own figure; 0 when it cannot tell), without those of base/pages.h. */
uint64_t ngd_mem_heap_bytes(void);

#endif
