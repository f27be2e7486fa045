/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sandbox.h"

#include "base/path.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What an errno says about the file, in rising order of how much it says. */
enum finding { FOUND_OUTSIDE, FOUND_MISSING, FOUND_UNREADABLE };

static enum finding finding_of(int e)
{
    if (e == EXDEV || e == ELOOP)
        return FOUND_OUTSIDE;
    return e == ENOENT || e == ENOTDIR ? FOUND_MISSING : FOUND_UNREADABLE;
}

/* True for errors of the machine, which say nothing about the file. EAGAIN: other processes kept renaming files. */
static bool is_trouble(int e)
{
    return e == EMFILE || e == ENFILE || e == ENOMEM || e == EINTR || e == EIO || e == EAGAIN;
}

static ngd_status_t not_opened(int e, const char *path, struct ngd_diag *diag)
{
    if (finding_of(e) == FOUND_OUTSIDE)
        return ngd_diag_set(diag, NGD_ERR_PATH_NOT_ALLOWED,
                            "%.400s: not in one of the directories of the option models-dir (a link that leads out of "
                            "them is not followed)",
                            path);
    if (finding_of(e) == FOUND_MISSING)
        return ngd_diag_set(diag, NGD_ERR_FILE_NOT_FOUND, "%.400s: the file does not exist", path);
    if (e == ENXIO) /* ENXIO: a socket */
        return ngd_diag_set(diag, NGD_ERR_FILE_UNSUPPORTED, "%.400s: is not a regular file", path);
    return ngd_diag_set(diag, e == EAGAIN ? NGD_ERR_UNAVAILABLE : ngd_status_from_errno(e),
                        "%.400s cannot be opened%s: %s", path, is_trouble(e) ? " now" : "", strerror(e));
}

/* Opens the path below one directory. Returns 0 or errno. A directory that does not exist has no file in it. */
static int open_in_dir(const char *dir, const char *path, int *fd_p)
{
    char real[PATH_MAX];
    const char *below;
    int d, e;

    if (!realpath(dir, real))
        return finding_of(errno) == FOUND_MISSING ? EXDEV : errno;
    below = ngd_path_below(dir, path);
    if (!below)
        below = ngd_path_below(real, path);
    if (!below || below[0] == '\0')
        return EXDEV;
    d = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (d < 0)
        return finding_of(errno) == FOUND_MISSING ? EXDEV : errno;
    *fd_p = ngd_open_below(d, below);
    e = *fd_p < 0 ? errno : 0;
    close(d);
    return e;
}

ngd_status_t ngd_sandbox_open(const struct ngd_config_list *dirs, const char *path, int *fd_p, struct ngd_diag *diag)
{
    const char *dir;

    return ngd_sandbox_find(dirs, path, fd_p, &dir, diag);
}

ngd_status_t ngd_sandbox_find(const struct ngd_config_list *dirs, const char *path, int *fd_p, const char **dir_p,
                              struct ngd_diag *diag)
{
    ngd_status_t status;
    int why = EXDEV;
    struct stat sb;

    for (size_t i = 0; i < dirs->n && why != 0 && !is_trouble(why); i++) {
        const int e = open_in_dir(dirs->items[i], path, fd_p);

        *dir_p = dirs->items[i];
        if (e == 0 || is_trouble(e) || finding_of(e) > finding_of(why))
            why = e;
    }
    if (why != 0)
        return not_opened(why, path, diag);
    status = NGD_OK;
    if (fstat(*fd_p, &sb) != 0)
        status = ngd_diag_set(diag, NGD_ERR_IO, "%.400s: stat failed: %s", path, strerror(errno));
    else if (!S_ISREG(sb.st_mode))
        status = ngd_diag_set(diag, NGD_ERR_FILE_UNSUPPORTED, "%.400s: is not a regular file", path);
    if (status != NGD_OK)
        close(*fd_p);
    return status;
}
