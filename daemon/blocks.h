/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_BLOCKS_H
#define NGD_DAEMON_BLOCKS_H

/*
 * Keeps a few large blocks of memory for their next use. The heap gives large blocks back to the system at once, and a
 * fresh block costs a page fault for each page, several times what it takes to fill it.
 *
 * Threads: any, without a lock. Memory: NGD_BLOCKS_KEPT blocks of at most NGD_BLOCKS_MAX bytes. A block has what its
 * last user left there.
 */
#include <stdatomic.h>
#include <stdint.h>

#define NGD_BLOCKS_KEPT 2
#define NGD_BLOCKS_MAX  ((uint64_t)32 << 20)

struct ngd_block {
    uint64_t bytes; /* room at data */
    uint8_t *data;  /* aligned to 64 bytes */
};

/* Zeroed: none is kept. */
struct ngd_blocks {
    _Atomic(struct ngd_block *) kept[NGD_BLOCKS_KEPT];
};

/* Returns a block of at least so many bytes; NULL: out of memory. */
struct ngd_block *ngd_blocks_take(struct ngd_blocks *blocks, uint64_t bytes);
void ngd_blocks_give(struct ngd_blocks *blocks, struct ngd_block *block);
void ngd_blocks_fini(struct ngd_blocks *blocks); /* nobody has one */

#endif
