/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_JSON_TEXT_H
#define NGD_DAEMON_JSON_TEXT_H

/*
 * JSON that comes from outside: headers of files, keys, tokens. The parser allocates from the daemon's heap.
 * Threads: any. Memory: the caller frees what it gets with json_decref.
 */
#include "base/status.h"
#include <stddef.h>

struct json_t;

/* Counts values and depth before anything is allocated for them: a value of two bytes takes 40 once parsed. The values
 * are at least as many as the parser would make, but the outermost; depth is that of objects and arrays. */
void ngd_json_measure(const char *text, size_t n, size_t *values_p, size_t *depth_p);

/*
 * Parses an object, in which no name comes twice. NO_MEMORY, or INVALID_ARGUMENT with the parser's words, which may
 * repeat a piece of the text.
 */
ngd_status_t ngd_json_object(const char *text, size_t n, struct json_t **root_p, struct ngd_diag *diag);

#endif
