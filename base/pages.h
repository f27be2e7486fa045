/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_PAGES_H
#define NGD_BASE_PAGES_H

/*
 * Memory for data that is kept for long and read through from end to end: a device's buffers and pools, when the device
 * is the CPU. Where jemalloc is there small pieces lie side by side in huge pages: weights of some kilobytes are then
 * had with few page faults, and their addresses found in few entries of the CPU's tables.
 *
 * What is freed goes back to the system at once. Threads: any. Memory: zeroed, aligned to 64 bytes; NULL without
 * memory.
 */
#include <stddef.h>
#include <stdint.h>

void *ngd_pages_alloc(uint64_t bytes);
void ngd_pages_free(void *p, uint64_t bytes); /* as many as were asked for */
/* Of what is allocated now, those bytes that jemalloc counts as its own. */
uint64_t ngd_pages_in_heap(void);

#endif
