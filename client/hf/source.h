/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_SOURCE_H
#define NPUGRAPH_SOURCE_H

/* What reads a file refuses it by these, so that the file's path begins each error. */
#include "client/lib/npugraph.h"

struct npugraph__source {
    const char *path;
    struct npugraph_error *err;
};

/* Each fills the error with "path: message" and returns a status code, never 0. */
int npugraph__unsupported(const struct npugraph__source *from, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int npugraph__corrupt(const struct npugraph__source *from, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int npugraph__no_memory(struct npugraph_error *err);

#endif
