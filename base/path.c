/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

#include "base/fault.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
#define TRIES      1000 /* microseconds each; one in seven failed beside two processes that only renamed files */

const char *ngd_path_below(const char *dir, const char *path)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (path[0] != '/')
        return path;
    if (strncmp(path, dir, n) != 0 || (path[n] != '/' && path[n] != '\0' && n > 1))
        return NULL;
    path += n;
    return path + strspn(path, "/");
}

bool ngd_path_has_parent(const char *path)
{
    for (const char *p = path; *p;) {
        const size_t n = strcspn(p, "/");

        if (n == 2 && p[0] == '.' && p[1] == '.')
            return true;
        p += n;
        p += strspn(p, "/");
    }
    return false;
}

/* Opens one component of a path; refuses a link. */
static int open_component(int dir, const char *name, int flags)
{
    const int fd = openat(dir, name, flags | O_NOFOLLOW);
    struct stat sb;

    /* With O_DIRECTORY the kernel reports a link as "no directory"; the caller needs ELOOP for it. */
    if (fd < 0 && errno == ENOTDIR)
        errno = fstatat(dir, name, &sb, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(sb.st_mode) ? ELOOP : ENOTDIR;
    return fd;
}

/* Closes fd unless it is `keep`; preserves errno. */
static void close_other(int fd, int keep)
{
    const int e = errno;

    if (fd != keep)
        close(fd);
    errno = e;
}

/* Opens a path component by component, each from the descriptor of the previous one. */
static int walk_below(int dir, const char *path)
{
    int at = dir;

    if (path[0] == '/' || ngd_path_has_parent(path)) {
        errno = EXDEV;
        return -1;
    }
    for (;;) {
        const size_t n = strcspn(path, "/");
        const char *rest = path + n + strspn(path + n, "/");
        char name[NAME_MAX + 1];
        int next;

        if (n > NAME_MAX) {
            errno = ENAMETOOLONG;
            close_other(at, dir);
            return -1;
        }
        memcpy(name, path, n);
        name[n] = '\0';
        next = open_component(at, name, path[n] ? O_PATH | O_DIRECTORY | O_CLOEXEC : READ_FLAGS);
        close_other(at, dir);
        if (next < 0 || !path[n])
            return next;
        at = next;
        path = *rest ? rest : "."; /* "dir/" names the directory */
    }
}

/* Asks the kernel once. */
static int try_below(int dir, const char *path)
{
    struct open_how how = {.flags = READ_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};

    if (NGD_FAULT(NO_OPENAT2)) {
        errno = ENOSYS;
        return -1;
    }
    if (NGD_FAULT(OPENAT2_AGAIN)) {
        errno = EAGAIN;
        return -1;
    }
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

int ngd_open_below(int dir, const char *path)
{
    int fd, tries = 0;

    /* EAGAIN: a file was renamed, anywhere on the machine, while the kernel followed a "..". */
    do
        fd = try_below(dir, path);
    while (fd < 0 && errno == EAGAIN && ++tries < TRIES);
    /* ENOSYS: Linux before 5.6. EPERM: a filter of system calls. */
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return fd;
    return walk_below(dir, path);
}
