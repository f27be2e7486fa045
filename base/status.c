/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes. The properties of a code are expanded from its row in status.def, so that none is missing.
 * A value that is in no row (a bug, or a newer peer) is treated as ERR_INTERNAL everywhere.
 */
#include "base/status.h"
#include "base/utf8.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Returns the reason on the wire, which has no ERR_: "ERR_QUOTA" -> "QUOTA". */
static const char *reason_of(const char *name)
{
    return strncmp(name, "ERR_", 4) == 0 ? name + 4 : name;
}

const char *ngd_status_name(ngd_status_t status)
{
    switch (status) {
#define NGD_STATUS(name, value, scope, grpc, text) \
    case NGD_##name:                               \
        return reason_of(#name);
#include "base/status.def"
#undef NGD_STATUS
    }
    return "INTERNAL";
}

const char *ngd_status_text(ngd_status_t status)
{
    switch (status) {
#define NGD_STATUS(name, value, scope, grpc, text) \
    case NGD_##name:                               \
        return text;
#include "base/status.def"
#undef NGD_STATUS
    }
    return ngd_status_text(NGD_ERR_INTERNAL);
}

ngd_scope_t ngd_status_scope(ngd_status_t status)
{
    switch (status) {
#define NGD_STATUS(name, value, scope, grpc, text) \
    case NGD_##name:                               \
        return NGD_SCOPE_##scope;
#include "base/status.def"
#undef NGD_STATUS
    }
    return NGD_SCOPE_REQUEST;
}

int ngd_status_grpc(ngd_status_t status)
{
    switch (status) {
#define NGD_STATUS(name, value, scope, grpc, text) \
    case NGD_##name:                               \
        return grpc;
#include "base/status.def"
#undef NGD_STATUS
    }
    return ngd_status_grpc(NGD_ERR_INTERNAL);
}

ngd_status_t ngd_status_from_errno(int err)
{
    switch (err) {
    case 0:
        return NGD_OK;
    case ENOMEM:
        return NGD_ERR_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
        return NGD_ERR_DISK_FULL;
    case ENOENT:
    case ENOTDIR:
        return NGD_ERR_FILE_NOT_FOUND;
    case EXDEV: /* openat2(RESOLVE_BENEATH): the path leads out of its directory */
    case ELOOP: /* O_NOFOLLOW, RESOLVE_NO_SYMLINKS */
        return NGD_ERR_PATH_NOT_ALLOWED;
    case EACCES:
    case EPERM:
        return NGD_ERR_PERMISSION_DENIED;
    case EEXIST:
        return NGD_ERR_ALREADY_EXISTS;
    case EINVAL:
    case ENAMETOOLONG:
    case EISDIR:
        return NGD_ERR_INVALID_ARGUMENT;
    case ERANGE:
        return NGD_ERR_OUT_OF_RANGE;
    case EOVERFLOW:
        return NGD_ERR_OVERFLOW;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return NGD_ERR_RESOURCE_EXHAUSTED;
    case EBUSY:
    case EADDRINUSE:
        return NGD_ERR_BUSY;
    case ECANCELED:
        return NGD_ERR_CANCELLED;
    case ETIMEDOUT:
        return NGD_ERR_DEADLINE_EXCEEDED;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
        return NGD_ERR_UNAVAILABLE;
    case ENOSYS:
    case EOPNOTSUPP:
        return NGD_ERR_UNIMPLEMENTED;
    default:
        return NGD_ERR_IO;
    }
}

/*
 * Copies text into the diagnosis. text is in another buffer, because callers may pass the old diag->text
 * as an argument. Text that does not fit is cut between characters, because gRPC sends it as UTF-8, and
 * ends in "...".
 */
static void diag_store(struct ngd_diag *diag, const char *text, size_t want)
{
    static const char cut_mark[] = "...";

    if (want < NGD_DIAG_MAX) {
        memcpy(diag->text, text, want + 1);
        return;
    }
    want = ngd_utf8_cut(text, NGD_DIAG_MAX - sizeof(cut_mark));
    memcpy(diag->text, text, want);
    memcpy(diag->text + want, cut_mark, sizeof(cut_mark));
}

ngd_status_t ngd_diag_set(struct ngd_diag *diag, ngd_status_t status, const char *fmt, ...)
{
    char text[NGD_DIAG_MAX];
    va_list ap;
    int n;

    if (!diag)
        return status;
    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0) {
        text[0] = '\0';
        n = 0;
    }
    diag->status = status;
    diag_store(diag, text, (size_t)n);
    return status;
}

void ngd_diag_prefix(struct ngd_diag *diag, const char *fmt, ...)
{
    char text[2 * NGD_DIAG_MAX];
    va_list ap;
    int n;

    if (!diag || diag->status == NGD_OK)
        return;
    va_start(ap, fmt);
    n = vsnprintf(text, NGD_DIAG_MAX, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if (n >= NGD_DIAG_MAX)
        n = NGD_DIAG_MAX - 1;
    memcpy(text + n, diag->text, strlen(diag->text) + 1);
    diag_store(diag, text, strlen(text));
}
