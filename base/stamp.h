/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_STAMP_H
#define NGD_BASE_STAMP_H

/* Times of day as people and files write them (RFC 3339): 2026-11-28T10:28:00.5+01:00. Any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NGD_STAMP_ROOM 32 /* of a printed time, with its NUL */

/* Reads a time, from 1970 to 9999, in milliseconds since 1970; what is finer is cut off. False: it has another form, or
 * there is no such day or time. A time needs a zone: Z or an offset. */
bool ngd_stamp_parse(const char *text, size_t n, int64_t *ms_p);
/* Prints a time in UTC with milliseconds. */
void ngd_stamp_print(int64_t ms, char to[NGD_STAMP_ROOM]);

#endif
