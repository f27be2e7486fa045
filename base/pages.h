/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_PAGES_H
#define NGD_BASE_PAGES_H

/*
 * Allocates memory for data that is kept for long and read from end to end: the buffers and pools of a device that is
 * the CPU. With jemalloc, small pieces lie side by side in huge pages. Weights of some kilobytes then take few page
 * faults and few entries of the CPU's TLB.
 *
 * Freed memory goes back to the system at once. Threads: any. Memory: zeroed and aligned to 64 bytes; NULL if there is
 * none.
 */
#include <stddef.h>
#include <stdint.h>

void *ngd_pages_alloc(uint64_t bytes);
void ngd_pages_free(void *p, uint64_t bytes); /* bytes: as given to ngd_pages_alloc */
/* Returns how many of the bytes allocated now are included in jemalloc's own figures. */
uint64_t ngd_pages_in_heap(void);

#endif
