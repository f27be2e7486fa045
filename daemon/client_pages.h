/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CLIENT_PAGES_H
#define NGD_DAEMON_CLIENT_PAGES_H

/*
 * The memory of a client's file (a memfd, or an object of shm_open), for writing.
 *
 * write(2) waits for the lock of the file, and a client can hold that for as long as it wants: by a write of its own
 * from memory that comes from a FUSE file system or from userfaultfd. So the file is mapped, and written by
 * process_vm_writev, which takes no such lock. A page that cannot be had, because the file became shorter or there is
 * no memory for a hole, is an error of that call and no SIGBUS. Nothing else touches the mapping.
 *
 * Threads: any, after the mapping was made. Memory: no page is the daemon's.
 */
#include <stddef.h>
#include <stdint.h>

struct ngd_client_pages {
    uint8_t *map;  /* NULL: the file cannot be written, because of `error` */
    size_t mapped; /* bytes of the mapping */
    size_t skip;   /* bytes of the mapping in front of the range */
    int error;
};

/* Maps a range of the file. If that fails, each write says why. */
void ngd_client_pages_map(struct ngd_client_pages *pages, int fd, uint64_t offset, uint64_t bytes);
void ngd_client_pages_unmap(struct ngd_client_pages *pages); /* may be zeroed */
/* Writes n bytes to an offset within the range. Returns 0, or an errno: ENOMEM if a page cannot be had. */
int ngd_client_pages_write(const struct ngd_client_pages *pages, uint64_t offset, const void *from, uint64_t n);

#endif
