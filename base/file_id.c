/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_id.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

/* Steps of timestamps: a kernel's tick with some reserve, and the 1 or 2 s of some file systems. */
#define FINE_STEP   (20 * NGD_MSEC)
#define COARSE_STEP NGD_FILE_SETTLE_MAX

ngd_status_t ngd_file_identify(int fd, struct ngd_file_id *id, struct ngd_diag *diag)
{
    struct stat sb;

    if (fstat(fd, &sb) != 0)
        return ngd_diag_set(diag, NGD_ERR_IO, "the file's attributes cannot be read: %s", strerror(errno));
    memset(id, 0, sizeof(*id));
    id->dev = sb.st_dev;
    id->ino = sb.st_ino;
    id->size = (uint64_t)sb.st_size;
    id->mtime = (int64_t)sb.st_mtim.tv_sec * NGD_SEC + sb.st_mtim.tv_nsec;
    id->ctime = (int64_t)sb.st_ctim.tv_sec * NGD_SEC + sb.st_ctim.tv_nsec;
    return NGD_OK;
}

bool ngd_file_id_equal(const struct ngd_file_id *a, const struct ngd_file_id *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

ngd_nsec_t ngd_file_settles_in(const struct ngd_file_id *id, ngd_nsec_t now)
{
    /* A file system rounds its times if they have no microseconds. */
    const ngd_nsec_t step = id->ctime % NGD_MSEC == 0 ? COARSE_STEP : FINE_STEP;

    if (id->ctime > now)
        return id->ctime - now + step;
    return now - id->ctime >= step ? 0 : step - (now - id->ctime);
}

ngd_nsec_t ngd_file_clock(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME_COARSE, &ts); /* the clock of the times of change */
    return (ngd_nsec_t)ts.tv_sec * NGD_SEC + ts.tv_nsec;
}

bool ngd_file_is_written(int fd)
{
    struct statfs fs;

    /* NFS fails with EAGAIN whenever its server has not delegated the file. */
    if (fstatfs(fd, &fs) != 0 || fs.f_type == NFS_SUPER_MAGIC)
        return false;
    if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
        return errno == EAGAIN;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
}
