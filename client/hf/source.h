/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_SOURCE_H
#define NPUGRAPH_SOURCE_H

/* What reads a file refuses it by these, so that the file's path begins each error. */
#include "client/lib/npugraph.h"

#include <jansson.h>

struct npugraph__source {
    const char *path;
    struct npugraph_error *err;
};

/* Each fills the error with "path: message" and returns a status code, never 0. */
int npugraph__unsupported(const struct npugraph__source *from, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int npugraph__corrupt(const struct npugraph__source *from, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int npugraph__no_memory(struct npugraph_error *err);

/* As json_load_file, of regular files of at most 256 MiB: whoever reads a pipe may wait for ever. */
json_t *npugraph__load_json(const char *path, size_t flags, json_error_t *e);

#endif
