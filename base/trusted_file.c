/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trusted_file.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ngd_status_t check_trusted(const char *path, const struct stat *st, ngd_trusted_kind_t kind, size_t max_bytes,
                                  struct ngd_diag *diag)
{
    static const struct {
        mode_t forbidden;
        const char *problem;
    } rules[] = {
        [NGD_TRUSTED_SECRET] = {S_IWGRP | S_IRWXO, "read or write it; chmod 0640 or 0600"},
        [NGD_TRUSTED_PUBLIC] = {S_IWGRP | S_IWOTH, "write it; chmod 0644 or 0640"},
    };

    if (!S_ISREG(st->st_mode))
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: not a regular file", path);
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: belongs to user %lu; it must belong to root or to user %lu",
                            path, (unsigned long)st->st_uid, (unsigned long)geteuid());
    if (st->st_mode & rules[kind].forbidden)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: has mode %04o, so that others may %s", path,
                            (unsigned)(st->st_mode & 07777), rules[kind].problem);
    if (st->st_size > (off_t)max_bytes)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: has %lld bytes; at most %zu are read", path,
                            (long long)st->st_size, max_bytes);
    return NGD_OK;
}

static ngd_status_t cannot_read_trusted(const char *path, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: %s", path, strerror(errno));
}

static bool same_stat(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static ngd_status_t read_trusted(int fd, const char *path, size_t n, char **text_p, struct ngd_diag *diag)
{
    char *text = ngd_malloc(n + 1);
    size_t have = 0;

    if (!text)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for %.300s", path);
    while (have < n) {
        ssize_t got = read(fd, text + have, n - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            ngd_free(text);
            return cannot_read_trusted(path, diag);
        }
        if (got == 0)
            break;
        have += (size_t)got;
    }
    text[have] = '\0';
    *text_p = text;
    return have == n ? NGD_OK : NGD_ERR_FILE_TRUNCATED;
}

ngd_status_t ngd_trusted_file_read(const char *path, ngd_trusted_kind_t kind, size_t max_bytes, char **text_p,
                                   size_t *n_p, struct ngd_diag *diag)
{
    struct stat before, after;
    ngd_status_t status;
    /* Not blocked by a FIFO: a reload reads the file on the loop. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    *text_p = NULL;
    if (fd < 0)
        return cannot_read_trusted(path, diag);
    status =
        fstat(fd, &before) < 0 ? cannot_read_trusted(path, diag) : check_trusted(path, &before, kind, max_bytes, diag);
    if (status == NGD_OK)
        status = read_trusted(fd, path, (size_t)before.st_size, text_p, diag);
    if (*text_p && (status != NGD_OK || fstat(fd, &after) < 0 || !same_stat(&before, &after))) {
        ngd_free(*text_p);
        *text_p = NULL;
        status = ngd_diag_set(diag, NGD_ERR_CONFIG,
                              "%.300s: was written while it was read; replace it by a rename, and try again", path);
    }
    if (status == NGD_OK)
        *n_p = (size_t)before.st_size;
    close(fd);
    return status;
}
