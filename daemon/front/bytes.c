/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/bytes.h"

#include "base/mem.h"
#include <string.h>

/* Makes room for n more bytes: moves the present ones to the beginning of the block, or enlarges the block. */
static bool make_bytes_room(struct front_bytes *b, size_t n)
{
    uint8_t *block = b->block;

    if (b->at && (size_t)(b->at - block) + b->n + n <= b->cap)
        return true;
    if (b->n > 0)
        memmove(block, b->at, b->n);
    b->at = block;
    if (b->n + n <= b->cap)
        return true;
    block = ngd_realloc(b->block, b->n + n);
    if (!block)
        return false;
    b->cap = b->n + n;
    b->at = b->block = block;
    return true;
}

bool front_bytes_keep(struct front_bytes *b, const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return true;
    if (!make_bytes_room(b, n))
        return false;
    memcpy(b->at + b->n, bytes, n);
    b->n += n;
    return true;
}

void front_bytes_drop(struct front_bytes *b, size_t n)
{
    b->at += n;
    b->n -= n;
    if (b->n == 0)
        front_bytes_fini(b);
}

void front_bytes_fini(struct front_bytes *b)
{
    ngd_free(b->block);
    *b = (struct front_bytes){0};
}
