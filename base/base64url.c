/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64url.h"

static int sextet_of(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '-'             ? 62
           : c == '_'             ? 63
                                  : -1;
}

bool ngd_base64url_decode(const char *text, size_t n, uint8_t *to, size_t *bytes_p)
{
    uint32_t bits = 0;
    unsigned have = 0; /* bits that are not written yet: the lowest of `bits` */
    size_t bytes = 0;

    if (n % 4 == 1)
        return false;
    for (size_t i = 0; i < n; i++) {
        const int sextet = sextet_of(text[i]);

        if (sextet < 0)
            return false;
        bits = (bits << 6 | (uint32_t)sextet) & 0xffff;
        have += 6;
        if (have >= 8) {
            have -= 8;
            to[bytes++] = (uint8_t)(bits >> have);
        }
    }
    if (bits & ((1u << have) - 1))
        return false;
    *bytes_p = bytes;
    return true;
}
