/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/lockfile.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct held_lock {
    int fd;
    char *path;
    bool adopted; /* from the daemon that is replaced; nobody has asked for it yet */
};

struct ngd_locks {
    struct held_lock *items;
    size_t n;
};

ngd_status_t ngd_locks_create(struct ngd_locks **locks_p)
{
    struct ngd_locks *locks = NGD_NEW(struct ngd_locks);

    if (!locks)
        return NGD_ERR_NO_MEMORY;
    *locks_p = locks;
    return NGD_OK;
}

void ngd_locks_destroy(struct ngd_locks *locks)
{
    if (!locks)
        return;
    while (locks->n > 0)
        ngd_locks_release(locks, locks->items[0].path);
    ngd_free(locks->items);
    ngd_free(locks);
}

void ngd_locks_release(struct ngd_locks *locks, const char *path)
{
    for (size_t i = 0; i < locks->n; i++) {
        if (strcmp(locks->items[i].path, path) != 0)
            continue;
        close(locks->items[i].fd);
        ngd_free(locks->items[i].path);
        locks->items[i] = locks->items[--locks->n];
        return;
    }
}

static ngd_status_t held_by_other(int fd, const char *path, struct ngd_diag *diag)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;

    if (pid > 0)
        return ngd_diag_set(diag, NGD_ERR_BUSY,
                            "another npugraphd (pid %ld) holds %s; stop it first, or use another socket", pid, path);
    return ngd_diag_set(diag, NGD_ERR_BUSY, "another npugraphd holds %s; stop it first, or use another socket", path);
}

/* Writes the pid for people, and for the message to another daemon. A full disk is no reason not to start. */
static void write_pid(int fd, const char *path)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        ngd_warning("daemon", "the process id cannot be written to %s: %s; the lock still holds", path,
                    strerror(errno));
}

static ngd_status_t add_lock(struct ngd_locks *locks, const char *path, int fd, bool adopted)
{
    struct held_lock *items = ngd_reallocarray(locks->items, locks->n + 1, sizeof(*items));
    char *name = items ? ngd_strdup(path) : NULL;

    locks->items = items ? items : locks->items;
    if (!name) {
        close(fd);
        return NGD_ERR_NO_MEMORY;
    }
    items[locks->n++] = (struct held_lock){fd, name, adopted};
    return NGD_OK;
}

ngd_status_t ngd_locks_adopt(struct ngd_locks *locks, const char *path, int fd)
{
    return add_lock(locks, path, fd, true);
}

/* True if the lock was adopted for this path. It is asked for once. */
static bool take_adopted(struct ngd_locks *locks, const char *path)
{
    for (size_t i = 0; i < locks->n; i++) {
        const bool adopted = locks->items[i].adopted && strcmp(locks->items[i].path, path) == 0;

        locks->items[i].adopted &= !adopted;
        if (adopted)
            return true;
    }
    return false;
}

void ngd_locks_sign(struct ngd_locks *locks)
{
    for (size_t i = 0; i < locks->n; i++)
        write_pid(locks->items[i].fd, locks->items[i].path);
}

void ngd_locks_for_each(struct ngd_locks *locks, void (*fn)(void *ctx, const char *path, int fd), void *ctx)
{
    for (size_t i = 0; i < locks->n; i++)
        fn(ctx, locks->items[i].path, locks->items[i].fd);
}

ngd_status_t ngd_locks_take(struct ngd_locks *locks, const char *path, struct ngd_diag *diag)
{
    ngd_status_t status;
    int fd;

    if (take_adopted(locks, path))
        return NGD_OK;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (fd < 0)
        return ngd_diag_set(diag, ngd_status_from_errno(errno), "lock file %s cannot be opened: %s", path,
                            strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        status = errno == EWOULDBLOCK
                     ? held_by_other(fd, path, diag)
                     : ngd_diag_set(diag, NGD_ERR_IO, "%s cannot be locked: %s", path, strerror(errno));
        close(fd);
        return status;
    }
    write_pid(fd, path);
    return add_lock(locks, path, fd, false);
}
