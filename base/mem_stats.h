/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_MEM_STATS_H
#define NGD_BASE_MEM_STATS_H

#include <stdint.h>

/* Returns the bytes of host memory in use, without those of base/pages.h. The allocator counts them; 0: it cannot. */
uint64_t ngd_mem_heap_bytes(void);

#endif
