/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_BYTES_H
#define NGD_DAEMON_FRONT_BYTES_H

/*
 * Bytes of a connection that wait to be sent. They leave in small pieces, and the remaining ones are not moved each
 * time.
 *
 * Threads: one at a time. Memory: one block, which is freed with the last byte; a zeroed struct is empty.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front_bytes {
    uint8_t *at; /* the first byte */
    size_t n;
    uint8_t *block;
    size_t cap; /* size of the block */
};

/* Appends a copy of n bytes. False: out of memory, and nothing has changed. */
bool front_bytes_keep(struct front_bytes *b, const uint8_t *bytes, size_t n);
/* Removes the first n bytes. */
void front_bytes_drop(struct front_bytes *b, size_t n);
void front_bytes_fini(struct front_bytes *b);

#endif
