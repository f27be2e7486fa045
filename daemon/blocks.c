/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/blocks.h"
#include "base/mem.h"

#define ALIGN 64

struct ngd_block *ngd_blocks_take(struct ngd_blocks *blocks, uint64_t bytes)
{
    struct ngd_block *block;

    for (int i = 0; i < NGD_BLOCKS_KEPT; i++) {
        block = atomic_exchange(&blocks->kept[i], NULL);
        if (block && block->bytes >= bytes)
            return block;
        ngd_free(block); /* a larger one comes in its place */
    }
    block = ngd_aligned_alloc(ALIGN, ALIGN + (bytes + ALIGN - 1) / ALIGN * ALIGN);
    if (block)
        *block = (struct ngd_block){bytes, (uint8_t *)block + ALIGN};
    return block;
}

void ngd_blocks_give(struct ngd_blocks *blocks, struct ngd_block *block)
{
    for (int i = 0; i < NGD_BLOCKS_KEPT && block->bytes <= NGD_BLOCKS_MAX; i++) {
        struct ngd_block *none = NULL;

        if (atomic_compare_exchange_strong(&blocks->kept[i], &none, block))
            return;
    }
    ngd_free(block);
}

void ngd_blocks_fini(struct ngd_blocks *blocks)
{
    for (int i = 0; i < NGD_BLOCKS_KEPT; i++)
        ngd_free(atomic_exchange(&blocks->kept[i], NULL));
}
