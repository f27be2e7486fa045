/* SPDX-License-Identifier: Apache-2.0 */
#include "client/hf/source.h"
#include "client/lib/error.h"

#include <stdarg.h>
#include <stdio.h>

static int refuse_with(const struct npugraph__source *from, const char *reason, const char *fmt, va_list args)
{
    char text[400];

    vsnprintf(text, sizeof(text), fmt, args);
    return npugraph__error(from->err, 3, reason, "%.500s: %s", from->path, text);
}

int npugraph__unsupported(const struct npugraph__source *from, const char *fmt, ...)
{
    va_list args;
    int rc;

    va_start(args, fmt);
    rc = refuse_with(from, "FILE_UNSUPPORTED", fmt, args);
    va_end(args);
    return rc;
}

int npugraph__corrupt(const struct npugraph__source *from, const char *fmt, ...)
{
    va_list args;
    int rc;

    va_start(args, fmt);
    rc = refuse_with(from, "FILE_CORRUPT", fmt, args);
    va_end(args);
    return rc;
}

int npugraph__no_memory(struct npugraph_error *err)
{
    return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
}
