/* SPDX-License-Identifier: Apache-2.0 */
#include "client/hf/source.h"
#include "client/lib/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((off_t)256 << 20) /* ten times that of the largest vocabularies */

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

/* Fills the error as jansson does, which keeps the code in the last byte. */
static json_t *refuse_json(json_error_t *e, enum json_error_code code, const char *fmt, ...)
{
    va_list args;

    memset(e, 0, sizeof(*e));
    va_start(args, fmt);
    vsnprintf(e->text, sizeof(e->text) - 1, fmt, args);
    va_end(args);
    e->text[sizeof(e->text) - 1] = (char)code;
    return NULL;
}

json_t *npugraph__load_json(const char *path, size_t flags, json_error_t *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    json_t *root = NULL;
    struct stat sb;

    if (fd < 0)
        return refuse_json(e, json_error_cannot_open_file, "unable to open %s: %s", path, strerror(errno));
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode))
        refuse_json(e, json_error_invalid_format, "is not a regular file");
    else if (sb.st_size > FILE_BYTES_MAX)
        refuse_json(e, json_error_invalid_format, "has %lld bytes; the limit is %lld", (long long)sb.st_size,
                    (long long)FILE_BYTES_MAX);
    else
        root = json_loadfd(fd, flags, e);
    close(fd);
    return root;
}
