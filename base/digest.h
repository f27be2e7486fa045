/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_DIGEST_H
#define NGD_BASE_DIGEST_H

/* SHA-256 (libcrypto), and a fast 64-bit hash for tables. Any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NGD_DIGEST_BYTES  32
#define NGD_DIGEST_HEX    65 /* with the terminator */
#define NGD_DIGEST_BASE64 45

struct ngd_digest {
    uint8_t b[NGD_DIGEST_BYTES];
};

void ngd_digest_of(const void *data, size_t n, struct ngd_digest *digest_p);
bool ngd_digest_equal(const struct ngd_digest *a, const struct ngd_digest *b);
void ngd_digest_hex(const struct ngd_digest *d, char hex[NGD_DIGEST_HEX]);
void ngd_digest_base64(const struct ngd_digest *d, char base64[NGD_DIGEST_BASE64]);
uint64_t ngd_hash64(const void *data, size_t n, uint64_t seed);

#endif
