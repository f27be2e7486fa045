/* SPDX-License-Identifier: Apache-2.0 */
#include "base/read_at.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

ngd_status_t ngd_read_at(int fd, void *to, uint64_t n, uint64_t offset, struct ngd_diag *diag)
{
    for (uint64_t done = 0; done < n;) {
        const ssize_t k = pread(fd, (char *)to + done, n - done, (off_t)(offset + done));

        if (k == 0)
            return ngd_diag_set(diag, NGD_ERR_FILE_TRUNCATED, "the file became shorter while it was read");
        if (k < 0 && errno != EINTR)
            return ngd_diag_set(diag, ngd_status_from_errno(errno), "reading failed: %s", strerror(errno));
        done += k > 0 ? (uint64_t)k : 0;
    }
    return NGD_OK;
}
