/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/shm_regions.h"

#include "base/charge.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/mem.h"
#include "daemon/client_pages.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define RW_OF_ALL (S_IROTH | S_IWOTH)
#define PIECE     ((uint64_t)1 << 30) /* of one system call */

struct ngd_shm_region {
    struct ngd_list link; /* under the table's lock */
    struct ngd_jobs *reaper;
    uint64_t owner; /* the identity's key */
    _Atomic uint32_t refs;
    int fd;
    struct ngd_client_pages pages;
    struct ngd_charge one, shared, host; /* of a region, of its bytes, and of this record */
    struct ngd_shm_params params;        /* points into the record */
    struct ngd_job job;
};

struct ngd_shm_regions {
    struct ngd_jobs *reaper;
    struct ngd_mutex lock;
    struct ngd_list all NGD_GUARDED_BY(lock);
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void free_region(struct ngd_shm_region *r)
{
    ngd_client_pages_unmap(&r->pages);
    if (r->fd >= 0)
        close(r->fd);
    ngd_charge_end(&r->one);
    ngd_charge_end(&r->shared);
    ngd_charge_end(&r->host);
    ngd_free(r);
}

static void run_free_region(struct ngd_job *job)
{
    free_region(ngd_container_of(job, struct ngd_shm_region, job));
}

/* If the client has unlinked the object, closing it frees its memory, which takes longer than a serving thread may
 * spend. */
void ngd_shm_region_unref(struct ngd_shm_region *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    r->job.fn = run_free_region;
    if (ngd_jobs_has_thread())
        free_region(r);
    else
        ngd_jobs_add_for(r->reaper, &r->job, r->owner);
}

ngd_status_t ngd_shm_regions_create(struct ngd_jobs *reaper, struct ngd_shm_regions **regions_p)
{
    struct ngd_shm_regions *regions = NGD_NEW(struct ngd_shm_regions);

    if (!regions)
        return NGD_ERR_NO_MEMORY;
    regions->reaper = reaper;
    ngd_mutex_init(&regions->lock, NGD_RANK_SHM_REGIONS);
    ngd_mutex_lock(&regions->lock);
    ngd_list_init(&regions->all);
    ngd_mutex_unlock(&regions->lock);
    *regions_p = regions;
    return NGD_OK;
}

/* Takes the first region that fits out of the table; NULL: there is none. */
static struct ngd_shm_region *take_region(struct ngd_shm_regions *regions, uint64_t owner, const char *name)
{
    struct ngd_shm_region *found = NULL;

    ngd_mutex_lock(&regions->lock);
    ngd_list_for_each (pos, &regions->all) {
        struct ngd_shm_region *r = ngd_container_of(pos, struct ngd_shm_region, link);

        if ((!owner || r->owner == owner) && (!*name || strcmp(r->params.name, name) == 0)) {
            found = r;
            break;
        }
    }
    if (found)
        ngd_list_remove(&found->link);
    ngd_mutex_unlock(&regions->lock);
    return found;
}

void ngd_shm_regions_destroy(struct ngd_shm_regions *regions)
{
    struct ngd_shm_region *r;

    if (!regions)
        return;
    while ((r = take_region(regions, 0, "")))
        ngd_shm_region_unref(r);
    ngd_mutex_fini(&regions->lock);
    ngd_free(regions);
}

/* ---- registration ------------------------------------------------------------------------------------------------ */

static ngd_status_t check_shm_names(const struct ngd_shm_params *p, struct ngd_diag *diag)
{
    const size_t n = strlen(p->name), n_key = strlen(p->key);
    const char *key = p->key + (p->key[0] == '/');

    if (n < 1 || n > NGD_SHM_NAME_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the region's name has %zu bytes; 1 to %d are allowed", n,
                            NGD_SHM_NAME_MAX);
    if (n_key > NGD_SHM_NAME_MAX || !*key || strchr(key, '/') || strcmp(key, ".") == 0 || strcmp(key, "..") == 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the key \"%.255s\" is not the name of a shared memory object, such as \"/input\"", p->key);
    return NGD_OK;
}

/* Opens the object. A name that leads to something else than a file of tmpfs is refused by check_shm_object. */
static ngd_status_t open_object(const char *key, int *fd_p, struct ngd_diag *diag)
{
    const int fd = shm_open(key, O_RDWR | O_NONBLOCK, 0);

    if (fd >= 0) {
        *fd_p = fd;
        return NGD_OK;
    }
    if (errno == ENOENT)
        return ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "there is no shared memory object \"%.255s\"", key);
    if (errno == EACCES || errno == EPERM || errno == ELOOP)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "the daemon may not read and write the shared memory object \"%.255s\": give the daemon's "
                            "user or group the permission",
                            key);
    return ngd_diag_set(diag, NGD_ERR_IO, "the shared memory object \"%.255s\" cannot be opened: %s", key,
                        strerror(errno));
}

/* Checks whose the object is before it says anything about it. */
static ngd_status_t check_shm_object(int fd, uid_t uid, const struct ngd_shm_params *p, struct ngd_diag *diag)
{
    struct statfs fs;
    struct stat st;

    if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
        return ngd_diag_set(diag, NGD_ERR_IO, "the shared memory object \"%.255s\" cannot be examined: %s", p->key,
                            strerror(errno));
    if (uid != 0 && st.st_uid != uid && (st.st_mode & RW_OF_ALL) != RW_OF_ALL)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "the shared memory object \"%.255s\" belongs to another user, and not everybody may read "
                            "and write it",
                            p->key);
    if (!S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "\"%.255s\" is not a shared memory object", p->key);
    if (p->bytes == 0 || p->offset > (uint64_t)st.st_size || p->bytes > (uint64_t)st.st_size - p->offset)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the region has %" PRIu64 " bytes at offset %" PRIu64
                            "; it must have 1 or more, within the object's %lld bytes",
                            p->bytes, p->offset, (long long)st.st_size);
    return NGD_OK;
}

static ngd_status_t charge_region(struct ngd_shm_region *r, struct ngd_identity *identity, uint64_t record,
                                  struct ngd_diag *diag)
{
    ngd_status_t status = ngd_charge_begin(&r->one, ngd_identity_payer(identity, NGD_QUOTA_SHARED_BUFFERS), 1, diag);

    if (status == NGD_OK)
        status =
            ngd_charge_begin(&r->shared, ngd_identity_payer(identity, NGD_QUOTA_SHARED_BYTES), r->params.bytes, diag);
    if (status == NGD_OK)
        status = ngd_charge_begin(&r->host, ngd_identity_payer(identity, NGD_QUOTA_HOST_BYTES), record, diag);
    return status;
}

static struct ngd_shm_region *find_region_locked(struct ngd_shm_regions *regions, uint64_t owner, const char *name)
    NGD_REQUIRES(regions->lock)
{
    ngd_list_for_each (pos, &regions->all) {
        struct ngd_shm_region *r = ngd_container_of(pos, struct ngd_shm_region, link);

        if (r->owner == owner && strcmp(r->params.name, name) == 0)
            return r;
    }
    return NULL;
}

/* Adds a region, and takes the caller's reference if its name is free. */
static ngd_status_t add_region(struct ngd_shm_regions *regions, struct ngd_shm_region *r, struct ngd_diag *diag)
{
    bool taken;

    ngd_mutex_lock(&regions->lock);
    taken = find_region_locked(regions, r->owner, r->params.name) != NULL;
    if (!taken)
        ngd_list_push_back(&regions->all, &r->link);
    ngd_mutex_unlock(&regions->lock);
    return taken ? ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS,
                                "a region \"%.255s\" is registered; unregister it, or choose another name",
                                r->params.name)
                 : NGD_OK;
}

static struct ngd_shm_region *make_region(struct ngd_shm_regions *regions, const struct ngd_identity *identity,
                                          const struct ngd_shm_params *p, uint64_t *record_p)
{
    const size_t n = strlen(p->name) + 1, n_key = strlen(p->key) + 1;
    struct ngd_shm_region *r = ngd_calloc(1, sizeof(*r) + n + n_key);
    char *text = (char *)(r + 1);

    if (!r)
        return NULL;
    memcpy(text, p->name, n);
    memcpy(text + n, p->key, n_key);
    *r = (struct ngd_shm_region){.reaper = regions->reaper,
                                 .owner = identity->key,
                                 .refs = 1,
                                 .fd = -1,
                                 .params = {.name = text, .key = text + n, .offset = p->offset, .bytes = p->bytes}};
    ngd_list_init(&r->link);
    *record_p = sizeof(*r) + n + n_key;
    return r;
}

ngd_status_t ngd_shm_region_register(struct ngd_shm_regions *regions, struct ngd_identity *identity, uid_t uid,
                                     const struct ngd_shm_params *params, struct ngd_diag *diag)
{
    struct ngd_shm_region *r;
    uint64_t record = 0;
    ngd_status_t status = check_shm_names(params, diag);

    if (status != NGD_OK)
        return status;
    r = make_region(regions, identity, params, &record);
    if (!r)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a region");
    status = open_object(params->key, &r->fd, diag);
    if (status == NGD_OK)
        status = check_shm_object(r->fd, uid, params, diag);
    if (status == NGD_OK)
        status = charge_region(r, identity, record, diag);
    if (status == NGD_OK)
        ngd_client_pages_map(&r->pages, r->fd, params->offset, params->bytes);
    if (status == NGD_OK)
        status = add_region(regions, r, diag);
    if (status != NGD_OK)
        ngd_shm_region_unref(r);
    return status;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static ngd_status_t no_region(const char *name, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_NOT_FOUND,
                        "there is no shared memory region \"%.255s\"; register it with SystemSharedMemoryRegister",
                        name);
}

ngd_status_t ngd_shm_regions_remove(struct ngd_shm_regions *regions, const struct ngd_identity *identity,
                                    const char *name, struct ngd_diag *diag)
{
    struct ngd_shm_region *r = take_region(regions, identity->key, name);

    if (!r && *name)
        return no_region(name, diag);
    for (; r; r = *name ? NULL : take_region(regions, identity->key, ""))
        ngd_shm_region_unref(r);
    return NGD_OK;
}

ngd_status_t ngd_shm_region_get(struct ngd_shm_regions *regions, const struct ngd_identity *identity, const char *name,
                                struct ngd_shm_region **region_p, struct ngd_diag *diag)
{
    struct ngd_shm_region *r;

    ngd_mutex_lock(&regions->lock);
    r = find_region_locked(regions, identity->key, name);
    if (r)
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    ngd_mutex_unlock(&regions->lock);
    if (!r)
        return no_region(name, diag);
    *region_p = r;
    return NGD_OK;
}

const struct ngd_shm_params *ngd_shm_region_params(const struct ngd_shm_region *r)
{
    return &r->params;
}

void ngd_shm_regions_for_each(struct ngd_shm_regions *regions, const struct ngd_identity *identity,
                              void (*fn)(void *ctx, struct ngd_shm_region *region), void *ctx)
{
    ngd_mutex_lock(&regions->lock);
    ngd_list_for_each (pos, &regions->all) {
        struct ngd_shm_region *r = ngd_container_of(pos, struct ngd_shm_region, link);

        if (r->owner == identity->key)
            fn(ctx, r);
    }
    ngd_mutex_unlock(&regions->lock);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

ngd_status_t ngd_shm_region_check(const struct ngd_shm_region *r, uint64_t offset, uint64_t n, struct ngd_diag *diag)
{
    if (offset <= r->params.bytes && n <= r->params.bytes - offset)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "%" PRIu64 " bytes at offset %" PRIu64 " are outside the region \"%.255s\", which has %" PRIu64,
                        n, offset, r->params.name, r->params.bytes);
}

static ngd_status_t region_failed(const struct ngd_shm_region *r, const char *what, ssize_t got, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_IO, "the region \"%.255s\" cannot be %s: %s", r->params.name, what,
                        got < 0 ? strerror(errno) : "its object has become shorter");
}

ngd_status_t ngd_shm_region_read(const struct ngd_shm_region *r, uint64_t offset, void *to, uint64_t n,
                                 struct ngd_diag *diag)
{
    ngd_status_t status = ngd_shm_region_check(r, offset, n, diag);

    for (uint64_t done = 0; done < n && status == NGD_OK;) {
        const ssize_t got = pread(r->fd, (uint8_t *)to + done, n - done < PIECE ? n - done : PIECE,
                                  (off_t)(r->params.offset + offset + done));

        if (got <= 0 && !(got < 0 && errno == EINTR))
            status = region_failed(r, "read", got, diag);
        done += got > 0 ? (uint64_t)got : 0;
    }
    return status;
}

/* The bytes of the last page that lie behind the end would be lost without an error. */
static bool is_long_enough(const struct ngd_shm_region *r, uint64_t offset, uint64_t n)
{
    struct stat st;

    return fstat(r->fd, &st) == 0 && r->params.offset + offset + n <= (uint64_t)st.st_size;
}

ngd_status_t ngd_shm_region_write(const struct ngd_shm_region *r, uint64_t offset, const void *from, uint64_t n,
                                  struct ngd_diag *diag)
{
    ngd_status_t status = ngd_shm_region_check(r, offset, n, diag);
    int error;

    if (status != NGD_OK)
        return status;
    error = ngd_client_pages_write(&r->pages, offset, from, n);
    if (!is_long_enough(r, offset, n))
        return region_failed(r, "written", 0, diag);
    errno = error;
    return error ? region_failed(r, "written", -1, diag) : NGD_OK;
}
