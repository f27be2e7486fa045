/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories and single files of the store. All files are opened relative to descriptors of directories that were
 * checked once, without following links. So nobody without write access to them can redirect an access.
 */
#include "base/fault.h"
#include "base/mem.h"
#include "graphs/store_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- directories --------------------------------------------------------------------------------------- */

static ngd_status_t refuse_store(struct ngd_store *store, struct ngd_diag *diag, ngd_status_t status, const char *what,
                                 const char *why)
{
    return ngd_diag_set(diag, status, "the store %s%s%s cannot be used: %s", store->dir, *what ? "/" : "", what, why);
}

static ngd_status_t check_owner(struct ngd_store *store, int fd, const char *what, struct ngd_diag *diag)
{
    char why[128];
    struct stat st;

    if (fstat(fd, &st) != 0)
        return refuse_store(store, diag, ngd_status_from_errno(errno), what, strerror(errno));
    if (st.st_uid != store->owner) {
        snprintf(why, sizeof(why), "it belongs to user %lu, and this daemon runs as user %lu", (unsigned long)st.st_uid,
                 (unsigned long)store->owner);
        return refuse_store(store, diag, NGD_ERR_PERMISSION_DENIED, what, why);
    }
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return refuse_store(store, diag, NGD_ERR_PERMISSION_DENIED, what,
                            "its group or others may write to it; allow its owner only (chmod go-w)");
    return NGD_OK;
}

/* Opens a directory and checks it. at AT_FDCWD: it is the store's own directory. */
static ngd_status_t open_store_dir(struct ngd_store *store, int at, const char *path, const char *what, int *fd_p,
                                   struct ngd_diag *diag)
{
    int fd;

    if (mkdirat(at, path, 0700) != 0 && errno != EEXIST)
        return refuse_store(store, diag, ngd_status_from_errno(errno), what, strerror(errno));
    fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return refuse_store(store, diag, NGD_ERR_PATH_NOT_ALLOWED, what,
                            "it is a link or no directory; give the directory");
    if (fd < 0)
        return refuse_store(store, diag, ngd_status_from_errno(errno), what, strerror(errno));
    *fd_p = fd;
    return check_owner(store, fd, what, diag);
}

/* Writes a file at startup, so that a directory that cannot be written is found before the first capture. */
static ngd_status_t check_writable(struct ngd_store *store, struct ngd_diag *diag)
{
    struct ngd_diag why = {0};
    ngd_status_t status =
        ngd_store_file_write(store, store->root, "version", NGD_STORE_FORMAT "\n", sizeof(NGD_STORE_FORMAT), &why);

    return status ? refuse_store(store, diag, status, "", why.text) : NGD_OK;
}

static ngd_status_t check_version(struct ngd_store *store, struct ngd_diag *diag)
{
    uint8_t *data = NULL;
    size_t n = 0;
    ngd_store_reason_t reason = ngd_store_file_read(store, store->root, "version", false, &data, &n);
    bool other = reason == NGD_STORE_FOUND &&
                 (n != sizeof(NGD_STORE_FORMAT) || memcmp(data, NGD_STORE_FORMAT "\n", sizeof(NGD_STORE_FORMAT)) != 0);

    ngd_free(data);
    if (other || (reason != NGD_STORE_FOUND && reason != NGD_STORE_ABSENT))
        return refuse_store(store, diag, NGD_ERR_FILE_UNSUPPORTED, "version",
                            "it does not say \"" NGD_STORE_FORMAT
                            "\"; give a directory of its own, or remove this one");
    return NGD_OK;
}

ngd_status_t ngd_store_dir_open(struct ngd_store *store, struct ngd_diag *diag)
{
    static const struct {
        const char *name;
        size_t at;
    } parts[] = {
        {"entries", offsetof(struct ngd_store, entries)},
        {"notes", offsetof(struct ngd_store, notes)},
        {"aside", offsetof(struct ngd_store, aside)},
        {"tmp", offsetof(struct ngd_store, tmp)},
    };
    ngd_status_t status = open_store_dir(store, AT_FDCWD, store->dir, "", &store->root, diag);

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && status == NGD_OK; i++)
        status = open_store_dir(store, store->root, parts[i].name, parts[i].name, (int *)((char *)store + parts[i].at),
                                diag);
    if (status == NGD_OK) {
        store->lock_file =
            openat(store->root, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0600);
        if (store->lock_file < 0)
            status = refuse_store(store, diag, ngd_status_from_errno(errno), "lock", strerror(errno));
    }
    if (status == NGD_OK)
        status = check_version(store, diag);
    return status == NGD_OK ? check_writable(store, diag) : status;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void ngd_store_dir_close(struct ngd_store *store)
{
    close_fd(&store->lock_file);
    close_fd(&store->tmp);
    close_fd(&store->aside);
    close_fd(&store->notes);
    close_fd(&store->entries);
    close_fd(&store->root);
}

ngd_status_t ngd_store_dir_each(int dir, void (*fn)(void *ctx, int dir, const char *name), void *ctx)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* a descriptor with its own position */
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        ngd_status_t status = ngd_status_from_errno(errno);

        if (fd >= 0)
            close(fd);
        return status;
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            fn(ctx, dir, e->d_name);
    closedir(d);
    return NGD_OK;
}

void ngd_store_lock(struct ngd_store *store)
{
    ngd_mutex_lock(&store->lock);
    /* If the file cannot be locked, we continue; at worst an entry is evicted too early. */
    while (flock(store->lock_file, LOCK_EX) != 0 && errno == EINTR)
        ;
}

void ngd_store_unlock(struct ngd_store *store)
{
    (void)flock(store->lock_file, LOCK_UN);
    ngd_mutex_unlock(&store->lock);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static ngd_store_reason_t read_store_file(int fd, uint8_t **data_p, size_t *n_p)
{
    struct stat st;
    uint8_t *data;
    size_t at = 0, size;

    if (fstat(fd, &st) != 0)
        return NGD_STORE_IO;
    if (!S_ISREG(st.st_mode))
        return NGD_STORE_NOT_A_FILE;
    if (st.st_uid != geteuid())
        return NGD_STORE_FOREIGN;
    if (st.st_size > NGD_STORE_ENTRY_MAX)
        return NGD_STORE_FORMAT_OTHER;
    size = (size_t)st.st_size;
    data = ngd_malloc(size ? size : 1);
    if (!data)
        return NGD_STORE_NO_MEMORY;
    while (at < size) {
        ssize_t n = pread(fd, data + at, size - at, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            ngd_free(data);
            return n < 0 ? NGD_STORE_IO : NGD_STORE_TRUNCATED;
        }
        at += (size_t)n;
    }
    *data_p = data;
    *n_p = size;
    return NGD_STORE_FOUND;
}

ngd_store_reason_t ngd_store_file_read(struct ngd_store *store, int dir, const char *name, bool mark, uint8_t **data_p,
                                       size_t *n_p)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    ngd_store_reason_t reason;

    (void)store;
    if (fd < 0)
        return errno == ENOENT                    ? NGD_STORE_ABSENT
               : errno == ELOOP || errno == ENXIO ? NGD_STORE_NOT_A_FILE
                                                  : NGD_STORE_IO;
    reason = read_store_file(fd, data_p, n_p);
    if (reason == NGD_STORE_FOUND && mark)
        (void)futimens(fd, NULL);
    close(fd);
    return reason;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/*
 * Creates a file in tmp/ and locks it. A file there without a lock has lost its writer. A sweeper may find the new file
 * before it is locked and remove its name; then another name is tried.
 */
static int open_tmp(struct ngd_store *store, char *name, size_t room)
{
    for (int tries = 0; tries < 100; tries++) {
        struct stat st;
        int fd;

        snprintf(name, room, "%ld-%" PRIu64, (long)getpid(), atomic_fetch_add(&store->next_tmp, 1));
        fd = openat(store->tmp, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        close(fd);
        errno = EAGAIN;
    }
    return -1;
}

static int write_store_file(int fd, const uint8_t *data, size_t n)
{
    if (NGD_FAULT(STORE_WRITE)) {
        errno = ENOSPC;
        return -1;
    }
    while (n > 0) {
        ssize_t done = write(fd, data, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

static int sync_file(int fd)
{
    if (NGD_FAULT(STORE_SYNC)) {
        errno = EIO;
        return -1;
    }
    return fsync(fd);
}

ngd_status_t ngd_store_file_write(struct ngd_store *store, int dir, const char *name, const void *data, size_t n,
                                  struct ngd_diag *diag)
{
    char tmp[64];
    int fd = open_tmp(store, tmp, sizeof(tmp)), err = errno;

    if (fd < 0)
        return ngd_diag_set(diag, ngd_status_from_errno(err), "a file in %s/tmp cannot be made: %s", store->dir,
                            strerror(err));
    if (write_store_file(fd, data, n) == 0 && sync_file(fd) == 0 && renameat(store->tmp, tmp, dir, name) == 0 &&
        fsync(dir) == 0) {
        close(fd);
        return NGD_OK;
    }
    err = errno;
    (void)unlinkat(store->tmp, tmp, 0);
    close(fd);
    return ngd_diag_set(diag, ngd_status_from_errno(err), "%s cannot be written in %s: %s", name, store->dir,
                        strerror(err));
}

static void sweep_one(void *ctx, int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

    (void)ctx;
    if (fd < 0) {
        if (errno == ELOOP)
            (void)unlinkat(dir, name, 0);
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)unlinkat(dir, name, 0);
    close(fd);
}

void ngd_store_dir_sweep(struct ngd_store *store)
{
    (void)ngd_store_dir_each(store->tmp, sweep_one, NULL);
}

/* ---- setting aside ------------------------------------------------------------------------------------- */

struct oldest {
    uint32_t n;
    char name[256];
    struct timespec time;
};

static void look_oldest(void *ctx, int dir, const char *name)
{
    struct oldest *o = ctx;
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (o->n++ == 0 || st.st_ctim.tv_sec < o->time.tv_sec ||
        (st.st_ctim.tv_sec == o->time.tv_sec && st.st_ctim.tv_nsec < o->time.tv_nsec)) {
        snprintf(o->name, sizeof(o->name), "%s", name);
        o->time = st.st_ctim;
    }
}

static void trim_aside(struct ngd_store *store)
{
    for (int tries = 0; tries < 8; tries++) {
        struct oldest o = {.n = 0};

        if (ngd_store_dir_each(store->aside, look_oldest, &o) != NGD_OK || o.n <= NGD_STORE_ASIDE_MAX)
            return;
        if (unlinkat(store->aside, o.name, 0) != 0 && unlinkat(store->aside, o.name, AT_REMOVEDIR) != 0)
            return;
    }
}

void ngd_store_file_aside(struct ngd_store *store, int dir, const char *name, ngd_store_reason_t reason)
{
    char to[NGD_STORE_NAME_MAX + 32];

    snprintf(to, sizeof(to), "%.*s.%s", NGD_STORE_NAME_MAX, name, ngd_store_reason_name(reason));
    /* A file that cannot be moved is removed, so that it is not found again. A directory with files in it stays; it is
     * never read as an entry. */
    if (renameat(dir, name, store->aside, to) != 0 && errno != ENOENT && unlinkat(dir, name, 0) != 0)
        (void)unlinkat(dir, name, AT_REMOVEDIR);
    atomic_fetch_add(&store->set_aside, 1);
    ngd_metric_row_add(ngd_metric_row(NGD_M_STORE_SET_ASIDE, ngd_store_reason_name(reason)), 1);
    trim_aside(store);
}
