/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_UTF8_H
#define NGD_BASE_UTF8_H

/* Steps through a UTF-8 text, because JSON, Prometheus and gRPC refuse text that is not valid. Pure functions. */
#include <stddef.h>

/*
 * Returns the length (1..4) of the valid sequence at s, which has n readable bytes; 0 if it is not valid. Not valid are
 * overlong forms, surrogates, values above U+10FFFF, and sequences that the end cuts.
 */
static inline size_t ngd_utf8_step(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lo = 0x80, hi = 0xbf;
    size_t len;

    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        len = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        len = 3;
        if (p[0] == 0xe0)
            lo = 0xa0;
        else if (p[0] == 0xed)
            hi = 0x9f;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        len = 4;
        if (p[0] == 0xf0)
            lo = 0x90;
        else if (p[0] == 0xf4)
            hi = 0x8f;
    } else {
        return 0;
    }
    if (n < len || p[1] < lo || p[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

/* Returns the largest length <= n at which s can be cut without splitting a sequence. */
static inline size_t ngd_utf8_cut(const char *s, size_t n)
{
    size_t at = n;

    while (at > 0 && n - at < 4 && ((unsigned char)s[at] & 0xc0) == 0x80)
        at--;
    return ((unsigned char)s[at] & 0xc0) == 0x80 ? n : at;
}

#endif
