/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_ERROR_H
#define NPUGRAPH_CLIENT_ERROR_H

#include "client/lib/npugraph.h"

/*
 * Fills *err (NULL is fine) and returns code, a gRPC status code. reason: stable, machine-readable; "" if there is
 * none. Both shared libraries have a copy of this function, so it has a file of its own.
 */
int npugraph__error(struct npugraph_error *err, int code, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
