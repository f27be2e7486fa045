/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SHM_REGIONS_H
#define NGD_DAEMON_SHM_REGIONS_H

/*
 * Regions of POSIX shared memory that clients of a Unix socket registered under a name of theirs (docs/oip.md).
 *
 * A region belongs to an identity, and others neither see nor remove it. An object is opened only if its owner is the
 * client's user, or if everybody may read and write it: the daemon does not open for a client what the client could not
 * open. The daemon reads the file and writes its pages (client_pages.h), so a client that makes it shorter gets an
 * error, and the daemon no SIGBUS.
 *
 * Threads: any. Memory: reference counted; a region that is removed lives until its last reader is done. Bounds:
 * max-shared-buffers-per-identity and max-shared-bytes-per-identity, which are charged for each region.
 */
#include "base/status.h"
#include <stdint.h>
#include <sys/types.h>

struct ngd_identity;
struct ngd_jobs;
struct ngd_shm_region;
struct ngd_shm_regions;

#define NGD_SHM_NAME_MAX 255

struct ngd_shm_params {
    const char *name; /* 1 to 255 bytes */
    const char *key;  /* of shm_open */
    uint64_t offset, bytes;
};

/* reaper: closes objects, which may free much memory. Borrowed. */
ngd_status_t ngd_shm_regions_create(struct ngd_jobs *reaper, struct ngd_shm_regions **regions_p);
void ngd_shm_regions_destroy(struct ngd_shm_regions *regions); /* NULL is fine */
/*
 * Registers a region for the identity, whose user is uid. ALREADY_EXISTS; INVALID_ARGUMENT for a name, a key or a range
 * that is not valid, NOT_FOUND, PERMISSION_DENIED and IO for the object; QUOTA.
 */
ngd_status_t ngd_shm_region_register(struct ngd_shm_regions *regions, struct ngd_identity *identity, uid_t uid,
                                     const struct ngd_shm_params *params, struct ngd_diag *diag);
/* Removes one region of the identity, or all of them (name ""). NOT_FOUND. */
ngd_status_t ngd_shm_regions_remove(struct ngd_shm_regions *regions, const struct ngd_identity *identity,
                                    const char *name, struct ngd_diag *diag);
/* Gets a region of the identity; *region_p is a reference. NOT_FOUND. */
ngd_status_t ngd_shm_region_get(struct ngd_shm_regions *regions, const struct ngd_identity *identity, const char *name,
                                struct ngd_shm_region **region_p, struct ngd_diag *diag);
void ngd_shm_region_unref(struct ngd_shm_region *region); /* NULL is fine */
const struct ngd_shm_params *ngd_shm_region_params(const struct ngd_shm_region *region);
/* Calls fn under the table's lock for each region of the identity. */
void ngd_shm_regions_for_each(struct ngd_shm_regions *regions, const struct ngd_identity *identity,
                              void (*fn)(void *ctx, struct ngd_shm_region *region), void *ctx);
/* INVALID_ARGUMENT: the range is not within the region. */
ngd_status_t ngd_shm_region_check(const struct ngd_shm_region *region, uint64_t offset, uint64_t n,
                                  struct ngd_diag *diag);
/* Read and write n bytes at an offset within the region. INVALID_ARGUMENT: they are outside it. IO: the object has
 * become shorter, or the system refuses. */
ngd_status_t ngd_shm_region_read(const struct ngd_shm_region *region, uint64_t offset, void *to, uint64_t n,
                                 struct ngd_diag *diag);
ngd_status_t ngd_shm_region_write(const struct ngd_shm_region *region, uint64_t offset, const void *from, uint64_t n,
                                  struct ngd_diag *diag);

#endif
