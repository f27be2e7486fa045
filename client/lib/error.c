/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the error that a failed call returns. */
#include "client/lib/error.h"

#include <stdarg.h>
#include <stdio.h>

int npugraph__error(struct npugraph_error *err, int code, const char *reason, const char *fmt, ...)
{
    va_list ap;

    if (err == NULL)
        return code;
    err->code = code;
    snprintf(err->reason, sizeof(err->reason), "%s", reason);
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof(err->message), fmt, ap);
    va_end(ap);
    return code;
}
