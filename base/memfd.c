/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memfd.h"
#include <inttypes.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

ngd_status_t ngd_memfd_check(int fd, uint64_t bytes, int seals, struct ngd_diag *diag)
{
    const int has = fcntl(fd, F_GET_SEALS); /* only a memfd has any */
    struct statfs fs;
    struct stat st;

    if (has < 0 || fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0 || !S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the descriptor is no memfd of normal pages; make one with memfd_create and "
                            "MFD_ALLOW_SEALING");
    if ((has & NGD_MEMFD_SIZED) != NGD_MEMFD_SIZED)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the memfd's size can still change: add the seals F_SEAL_SHRINK, F_SEAL_GROW and "
                            "F_SEAL_SEAL first");
    if ((has & seals) != seals)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the memfd can still be written: add the seal F_SEAL_WRITE first");
    if (bytes == 0 || bytes > NGD_MEMFD_MAX || (uint64_t)st.st_size != bytes)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the memfd has %lld bytes, and the request says %" PRIu64 "; both must be the same, 1 to "
                            "2^46",
                            (long long)st.st_size, bytes);
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the memfd is not open for reading");
    return NGD_OK;
}
