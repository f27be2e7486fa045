/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ngd_digest_of(const void *data, size_t n, struct ngd_digest *digest_p)
{
    unsigned int len = 0;

    /* If libcrypto has no SHA-256, the process stops: a digest names executables, and a wrong one could run
     * another client's graph. */
    if (EVP_Digest(n ? data : "", n, digest_p->b, &len, EVP_sha256(), NULL) != 1 || len != NGD_DIGEST_BYTES) {
        fputs("digest: libcrypto cannot compute SHA-256\n", stderr);
        abort();
    }
}

bool ngd_digest_equal(const struct ngd_digest *a, const struct ngd_digest *b)
{
    return memcmp(a->b, b->b, NGD_DIGEST_BYTES) == 0;
}

void ngd_digest_hex(const struct ngd_digest *d, char hex[NGD_DIGEST_HEX])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < NGD_DIGEST_BYTES; i++) {
        hex[2 * i] = digits[d->b[i] >> 4];
        hex[2 * i + 1] = digits[d->b[i] & 15];
    }
    hex[2 * NGD_DIGEST_BYTES] = '\0';
}

void ngd_digest_base64(const struct ngd_digest *d, char base64[NGD_DIGEST_BASE64])
{
    EVP_EncodeBlock((unsigned char *)base64, d->b, NGD_DIGEST_BYTES);
}

/* Folds the 128-bit product of a and b to 64 bits, as wyhash does: every input bit reaches every output bit. */
static uint64_t mix_digest(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    u128 p = (u128)a * b;

    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/* Odd constants with bits spread evenly, from the fractional digits of pi and e. */
#define K0 UINT64_C(0x243f6a8885a308d3)
#define K1 UINT64_C(0xb7e151628aed2a6b)

uint64_t ngd_hash64(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = seed ^ mix_digest((uint64_t)n ^ K0, K1), w;

    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = mix_digest(h ^ w ^ K0, K1);
    }
    w = 0;
    if (n)
        memcpy(&w, p, n);
    return mix_digest(h ^ w ^ K1, K0);
}
