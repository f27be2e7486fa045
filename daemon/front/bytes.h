/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_BYTES_H
#define NGD_DAEMON_FRONT_BYTES_H

/*
 * Bytes of a connection that wait. They leave in small pieces, so what is left stays where it is.
 *
 * Threads: one at a time. Memory: one block, which goes with the last byte; zeroed bytes are empty.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front_bytes {
    uint8_t *at; /* the first byte */
    size_t n;
    uint8_t *block;
    size_t cap; /* bytes of the block */
};

/* Copies n bytes behind the others. False: out of memory, and nothing has changed. */
bool front_bytes_keep(struct front_bytes *b, const uint8_t *bytes, size_t n);
/* Takes the first n away. */
void front_bytes_drop(struct front_bytes *b, size_t n);
void front_bytes_fini(struct front_bytes *b);

#endif
