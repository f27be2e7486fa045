/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/client_pages.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_CALL ((uint64_t)1 << 30) /* bytes of one system call */

void ngd_client_pages_map(struct ngd_client_pages *p, int fd, uint64_t offset, uint64_t bytes)
{
    const uint64_t skip = offset % (uint64_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, bytes + skip, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - skip));

    *p = (struct ngd_client_pages){.error = errno};
    if (map == MAP_FAILED)
        return;
    *p = (struct ngd_client_pages){.map = map, .mapped = bytes + skip, .skip = skip};
    madvise(map, p->mapped, MADV_DONTDUMP); /* it is not the daemon's */
}

void ngd_client_pages_unmap(struct ngd_client_pages *p)
{
    if (p->map)
        munmap(p->map, p->mapped);
    *p = (struct ngd_client_pages){.error = EBADF};
}

int ngd_client_pages_write(const struct ngd_client_pages *p, uint64_t offset, const void *from, uint64_t n)
{
    if (!p->map)
        return p->error;
    for (uint64_t done = 0; done < n;) {
        const size_t piece = n - done < MAX_CALL ? n - done : MAX_CALL;
        const struct iovec local = {(uint8_t *)(uintptr_t)from + done, piece};
        const struct iovec remote = {p->map + p->skip + offset + done, piece};
        const ssize_t got = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);

        if (got <= 0 && !(got < 0 && errno == EINTR))
            return got == 0 || errno == EFAULT ? ENOMEM : errno;
        done += got > 0 ? (uint64_t)got : 0;
    }
    return 0;
}
