/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_LE_H
#define NGD_BASE_LE_H

/* Write and read little-endian numbers of up to 8 bytes in files, on a machine of any byte order and alignment. */
#include "base/strbuf.h"
#include <stdint.h>

static inline void ngd_le_put(struct ngd_strbuf *out, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        ngd_strbuf_putc(out, (char)(v >> (8 * i)));
}

static inline uint64_t ngd_le_get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

#endif
