/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dumpdir.h"
#include "base/mem.h"
#include "base/path.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_ROOM 240

/* ---- paths by their text ---- */

void ngd_dumps_init(struct ngd_dumps *dumps, const char *const *allowed, size_t n_allowed, uint64_t budget)
{
    memset(dumps, 0, sizeof(*dumps));
    ngd_mutex_init(&dumps->lock, NGD_RANK_DUMPS);
    ngd_dumps_set(dumps, allowed, n_allowed, budget);
}

void ngd_dumps_set(struct ngd_dumps *dumps, const char *const *allowed, size_t n_allowed, uint64_t budget)
{
    ngd_mutex_lock(&dumps->lock);
    dumps->allowed = allowed;
    dumps->n_allowed = n_allowed;
    atomic_store(&dumps->budget, budget);
    ngd_mutex_unlock(&dumps->lock);
}

/* Copies the allowed directory for the path to dir. *rest_p is what follows it in the path; NULL: it is not allowed. */
static void choose_allowed(const struct ngd_dumps *dumps, const char *path, char dir[PATH_MAX], const char **rest_p)
    NGD_REQUIRES(dumps->lock)
{
    size_t i = 0;

    *rest_p = NULL;
    for (; path[0] == '/' && i < dumps->n_allowed && !*rest_p; i++)
        *rest_p = ngd_path_below(dumps->allowed[i], path);
    if (path[0] != '/') {
        *rest_p = path;
        i = 1;
    }
    if (*rest_p && snprintf(dir, PATH_MAX, "%s", dumps->allowed[i - 1]) >= PATH_MAX)
        *rest_p = NULL;
}

/* Finds the allowed directory for the path. Its name is copied, because the list may change. */
static ngd_status_t find_allowed(struct ngd_dumps *dumps, const char *path, char dir[PATH_MAX], const char **rest_p,
                                 struct ngd_diag *diag)
{
    size_t n;

    if (ngd_path_has_parent(path))
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "directory \"%.300s\" has a component \"..\", which is not allowed", path);
    *rest_p = NULL;
    ngd_mutex_lock(&dumps->lock);
    n = dumps->n_allowed;
    if (n > 0)
        choose_allowed(dumps, path, dir, rest_p);
    ngd_mutex_unlock(&dumps->lock);
    if (*rest_p)
        return NGD_OK;
    if (n == 0)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "no directory is allowed for dumps; the daemon's option dump-dir names some");
    return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                        "directory \"%.300s\" is not below one that the daemon's option dump-dir allows", path);
}

/* ---- who pays ---- */

struct ngd_dump_writer {
    struct ngd_payer *payer; /* a reference */
    _Atomic uint64_t written;
    struct ngd_dump_writer *next;
};

/* Two threads may make a writer each for the same payer; then both writers count. */
static struct ngd_dump_writer *find_writer(struct ngd_dumps *dumps, struct ngd_payer *payer)
{
    struct ngd_dump_writer *first = atomic_load(&dumps->writers), *w;

    for (w = first; w; w = w->next)
        if (w->payer == payer)
            return w;
    w = NGD_NEW(struct ngd_dump_writer);
    if (!w)
        return NULL;
    payer->ops->ref(payer);
    w->payer = payer;
    do
        w->next = first;
    while (!atomic_compare_exchange_weak(&dumps->writers, &first, w));
    return w;
}

/* Finds the payer's writer or makes it. *w_p is NULL if nobody pays. */
static ngd_status_t writer_of(struct ngd_dumps *dumps, struct ngd_payer *payer, struct ngd_dump_writer **w_p,
                              struct ngd_diag *diag)
{
    *w_p = payer ? find_writer(dumps, payer) : NULL;
    if (payer && !*w_p)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory to count the bytes of dumps");
    return NGD_OK;
}

void ngd_dumps_fini(struct ngd_dumps *dumps)
{
    struct ngd_dump_writer *w = atomic_exchange(&dumps->writers, NULL), *next;

    for (; w; w = next) {
        next = w->next;
        w->payer->ops->give(w->payer, atomic_load(&w->written));
        w->payer->ops->unref(w->payer);
        ngd_free(w);
    }
}

static ngd_status_t take_part(struct ngd_dump_writer *w, uint64_t n, struct ngd_diag *diag)
{
    if (w->payer->ops->take(w->payer, n, NULL) != NGD_OK)
        return ngd_diag_set(
            diag, NGD_ERR_RESOURCE_EXHAUSTED,
            "this identity's dumps have taken %llu bytes since the daemon started, and the daemon's option "
            "max-dump-bytes-per-identity allows no more",
            (unsigned long long)atomic_load(&w->written));
    atomic_fetch_add(&w->written, n);
    return NGD_OK;
}

static void give_back_bytes(struct ngd_dumps *dumps, struct ngd_dump_writer *w, uint64_t n)
{
    atomic_fetch_sub(&dumps->written, n);
    if (!w)
        return;
    atomic_fetch_sub(&w->written, n);
    w->payer->ops->give(w->payer, n);
}

static ngd_status_t take_budget(struct ngd_dumps *dumps, struct ngd_dump_writer *w, uint64_t n, struct ngd_diag *diag)
{
    uint64_t before = atomic_fetch_add(&dumps->written, n), budget = atomic_load(&dumps->budget);
    ngd_status_t status;

    if (budget && before + n > budget) {
        give_back_bytes(dumps, NULL, n);
        return ngd_diag_set(
            diag, NGD_ERR_RESOURCE_EXHAUSTED,
            "dumps have taken %llu bytes since the daemon started, and its option dump-limit allows %llu",
            (unsigned long long)before, (unsigned long long)budget);
    }
    status = w ? take_part(w, n, diag) : NGD_OK;
    if (status)
        give_back_bytes(dumps, NULL, n);
    return status;
}

/* ---- directories ---- */

static ngd_status_t refuse_path(int err, const char *path, struct ngd_diag *diag)
{
    if (err == ELOOP || err == ENOTDIR)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "a component of directory \"%.300s\" is a link, or is not a directory", path);
    return ngd_diag_set(diag, ngd_status_from_errno(err), "directory \"%.300s\": %s", path, strerror(err));
}

/* The writer for whom directories are made, and the status if making one failed for another reason than errno. */
struct making {
    struct ngd_dumps *dumps;
    struct ngd_dump_writer *writer;
    struct ngd_diag *diag;
    ngd_status_t status;
};

/* Makes nothing if the budget is used up, because an empty directory takes a block of the disk too. */
static bool make_directory(struct making *m, int fd, const char *name)
{
    int err;

    m->status = take_budget(m->dumps, m->writer, NGD_DUMP_BLOCK, m->diag);
    if (m->status)
        return false;
    err = mkdirat(fd, name, 0700) == 0 ? 0 : errno;
    if (err)
        give_back_bytes(m->dumps, m->writer, NGD_DUMP_BLOCK);
    errno = err;
    return err == 0 || err == EEXIST;
}

static int open_directory(int fd, const char *name)
{
    return openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Opens the component at *rest_p below fd, and closes fd. making: NULL: a missing component is not made. */
static int enter_dir(int fd, struct making *making, const char **rest_p)
{
    size_t n = strcspn(*rest_p, "/");
    char name[NAME_ROOM];
    int next, err;

    if (n >= sizeof(name)) {
        close(fd);
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(name, *rest_p, n);
    name[n] = '\0';
    *rest_p += n;
    next = open_directory(fd, name);
    if (next < 0 && errno == ENOENT && making && make_directory(making, fd, name))
        next = open_directory(fd, name);
    err = errno;
    close(fd);
    errno = err;
    return next;
}

ngd_status_t ngd_dumps_open(struct ngd_dumps *dumps, struct ngd_payer *payer, const char *path, int *fd_p,
                            struct ngd_diag *diag)
{
    struct making making = {.dumps = dumps, .diag = diag};
    char dir[PATH_MAX];
    const char *rest;
    ngd_status_t status = find_allowed(dumps, path, dir, &rest, diag);
    int fd;

    if (!status)
        status = writer_of(dumps, payer, &making.writer, diag);
    if (status)
        return status;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (rest += strspn(rest, "/"); fd >= 0 && *rest; rest += strspn(rest, "/"))
        fd = enter_dir(fd, &making, &rest);
    if (fd < 0)
        return making.status ? making.status : refuse_path(errno, path, diag);
    *fd_p = fd;
    return NGD_OK;
}

/* Returns 0, or the errno with which nothing can be made in the directory. */
static int write_error(int fd)
{
    return faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

/* Walks the path as far as directories exist. The last existing one must be writable. */
ngd_status_t ngd_dumps_check(struct ngd_dumps *dumps, const char *path, struct ngd_diag *diag)
{
    char dir[PATH_MAX];
    const char *rest;
    ngd_status_t status = find_allowed(dumps, path, dir, &rest, diag);
    int fd, err;

    if (status)
        return status;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return refuse_path(errno, dir, diag);
    err = write_error(fd);
    for (rest += strspn(rest, "/"); fd >= 0 && *rest; rest += strspn(rest, "/")) {
        fd = enter_dir(fd, NULL, &rest);
        if (fd >= 0)
            err = write_error(fd);
        else if (errno != ENOENT)
            err = errno;
    }
    if (fd >= 0)
        close(fd);
    return err ? refuse_path(err, path, diag) : NGD_OK;
}

/* ---- names and bytes ---- */

static void clean_name(const char *name, char *to)
{
    size_t n = 0;

    for (; name[n] && n < NAME_ROOM - 1; n++) {
        char c = name[n];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                    c == '-' || (c == '.' && n > 0);

        to[n] = fine ? c : '_';
    }
    to[n] = '\0';
}

static int write_dump(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t done = write(fd, data, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

/* ---- files ---- */

/* Returns the disk space of a file of n bytes: whole blocks, its inode and its name. */
static uint64_t file_cost(size_t n)
{
    return NGD_DUMP_FILE + ((uint64_t)n + NGD_DUMP_BLOCK - 1) / NGD_DUMP_BLOCK * NGD_DUMP_BLOCK;
}

ngd_status_t ngd_dumps_write(struct ngd_dumps *dumps, struct ngd_payer *payer, int dir, const char *name,
                             const void *data, size_t n, struct ngd_diag *diag)
{
    struct ngd_dump_writer *w;
    char clean[NAME_ROOM];
    ngd_status_t status = writer_of(dumps, payer, &w, diag);
    int fd, err;

    if (!status)
        status = take_budget(dumps, w, file_cost(n), diag);
    if (status)
        return status;
    clean_name(name, clean);
    fd = openat(dir, clean, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    err = fd < 0 ? errno : write_dump(fd, data, n);
    if (fd >= 0 && close(fd) != 0 && !err)
        err = errno;
    if (err && fd >= 0)
        (void)unlinkat(dir, clean, 0); /* a partial file would mislead its reader */
    if (err) {
        give_back_bytes(dumps, w, file_cost(n)); /* no file exists that would count */
        return ngd_diag_set(diag, ngd_status_from_errno(err), "file \"%.200s\" cannot be written: %s", clean,
                            strerror(err));
    }
    return NGD_OK;
}
