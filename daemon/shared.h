/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SHARED_H
#define NGD_DAEMON_SHARED_H

/*
 * Shared buffers: memory of a client on the same machine, which it gave the daemon as a memfd.
 *
 * The daemon never looks at this memory where it lies. It reads the descriptor with pread and writes with
 * process_vm_writev (client_pages.h), to and from memory of its own. So it does not matter what the client does with
 * the memory meanwhile: holes, truncation and a shortage of memory are errors of a system call and never SIGBUS, what
 * was read does not change after it was checked, and no lock of the file that a client may hold is waited for.
 *
 * Threads: any. Memory: counted references, like all objects. Bounds: the quotas shared_buffers and shared_bytes.
 */
#include "daemon/client_pages.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/object.h"

struct ngd_shared_object {
    struct ngd_object base;
    int fd;
    struct ngd_client_pages pages;
    uint64_t bytes;
    struct ngd_charge charge; /* of the bytes; the base's is for the object */
    struct ngd_jobs *reaper;  /* closes a large one, which may be the end of its memory */
    struct ngd_job job;
    uint64_t owner; /* key of the identity, for the job's turn */
};

/*
 * Makes an object of a descriptor, which it takes, also if it fails. INVALID_ARGUMENT: it is no memfd of exactly so
 * many bytes whose size and seals cannot change any more. QUOTA: the identity has too many bytes.
 */
ngd_status_t ngd_shared_adopt(int fd, uint64_t bytes, struct ngd_identity *identity, struct ngd_jobs *reaper,
                              struct ngd_shared_object **object_p, struct ngd_diag *diag);
/* BUFFER_RANGE: the range is not within the buffer. */
ngd_status_t ngd_shared_check_range(const struct ngd_shared_object *o, uint64_t offset, uint64_t n,
                                    struct ngd_diag *diag);
/* Reads or writes a range that was checked. IO: the descriptor cannot be read or written, or there is no memory for a
 * hole. */
ngd_status_t ngd_shared_read(const struct ngd_shared_object *o, uint64_t offset, void *to, uint64_t n,
                             struct ngd_diag *diag);
ngd_status_t ngd_shared_write(const struct ngd_shared_object *o, uint64_t offset, const void *from, uint64_t n,
                              struct ngd_diag *diag);
/*
 * Writes data to a range that was checked, or reads it from there. A thread of `helper` does a part of what is large,
 * if it is free: one thread cannot move as much as the memory can. diag must not be NULL.
 */
ngd_status_t ngd_shared_move(const struct ngd_shared_object *o, bool write, uint64_t offset, void *data, uint64_t n,
                             struct ngd_jobs *helper, struct ngd_diag *diag);

#endif
