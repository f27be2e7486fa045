/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_BASE64URL_H
#define NGD_BASE_BASE64URL_H

/* Base64 with "-" and "_" and without padding (RFC 4648, section 5), as JSON Web Tokens and Keys use it. Any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NGD_BASE64URL_ROOM(n) ((n) / 4 * 3 + 2) /* bytes that n characters may decode to */

/* Decodes n characters into `to`, which has room for NGD_BASE64URL_ROOM(n) bytes. False: the text has another
 * character, a length that no bytes have, or bits set behind the last byte. One text has one meaning. */
bool ngd_base64url_decode(const char *text, size_t n, uint8_t *to, size_t *bytes_p);

#endif
