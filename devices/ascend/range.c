/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of pools, which grows where it is: a range of addresses as long as the device's memory is reserved once, and
 * physical memory is mapped behind its first bytes, piece by piece. Captured graphs have addresses inside; those stay.
 *
 * Pieces have the granularity that CANN says, 2 MiB as a rule. Where CANN or the driver has no such memory, or no range
 * is left, pools use memory that moves (backend.h).
 */
#include "devices/ascend/ascend.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LARGEST_PAGE ((size_t)64 << 20) /* pools of large steps would waste more than their graphs' captures cost */

struct piece {
    void *handle;
    uint64_t bytes;
};

struct ascend_range {
    struct ngd_list link; /* in dev->ranges */
    char *base;
    uint64_t mapped;
    struct piece *pieces; /* in the order of their addresses */
    uint32_t n, room;
};

static ngd_status_t fail_range(const struct ascend_device *dev, ngd_acl_error_t code, const char *name, uint64_t bytes,
                               struct ngd_diag *diag)
{
    char what[160];

    snprintf(what, sizeof(what), "device %s: %s of %" PRIu64 " bytes", dev->name, name, bytes);
    return ngd_acl_fail(dev->acl, code, what, diag);
}

static struct ngd_acl_physical property_of(const struct ascend_device *dev)
{
    return (struct ngd_acl_physical){
        .attribute = NGD_ACL_MEM_HBM_HUGE, .location = (uint32_t)dev->index, .location_type = NGD_ACL_LOCATION_DEVICE};
}

uint64_t ngd_ascend_page(const struct ascend_device *dev)
{
    const struct ngd_acl *acl = dev->acl;
    struct ngd_acl_physical property = property_of(dev);
    size_t page = 0;

    if (!acl->aclrtMemGetAllocationGranularity || !acl->aclrtReserveMemAddress || !acl->aclrtReleaseMemAddress ||
        !acl->aclrtMallocPhysical || !acl->aclrtFreePhysical || !acl->aclrtMapMem || !acl->aclrtUnmapMem)
        return 0;
    if (acl->aclrtMemGetAllocationGranularity(&property, NGD_ACL_GRANULARITY_LEAST, &page))
        return 0;
    return page % 64 == 0 && page <= LARGEST_PAGE ? page : 0;
}

/* ---- pieces -------------------------------------------------------------------------------------- */

static bool has_room(struct ascend_range *r)
{
    uint32_t room = r->room ? r->room * 2 : 8;
    struct piece *p;

    if (r->n < r->room)
        return true;
    p = ngd_realloc(r->pieces, room * sizeof(*p));
    if (!p)
        return false;
    r->pieces = p;
    r->room = room;
    return true;
}

/* describe() looks on. */
static void count_range(struct ascend_device *dev, struct ascend_range *r, int pieces, uint64_t mapped)
{
    ngd_mutex_lock(&dev->lock);
    r->n += (uint32_t)pieces;
    r->mapped = mapped;
    ngd_mutex_unlock(&dev->lock);
}

static void warn(const struct ascend_device *dev, ngd_acl_error_t code, const char *what)
{
    if (code)
        ngd_warning("devices", "device %s: %s of a pool failed (CANN answers %d), ignoring", dev->name, what,
                    (int)code);
}

static void drop_last(struct ascend_device *dev, struct ascend_range *r)
{
    const struct piece *p = &r->pieces[r->n - 1];

    count_range(dev, r, -1, r->mapped - p->bytes);
    warn(dev, dev->acl->aclrtUnmapMem(r->base + r->mapped), "unmapping memory");
    warn(dev, dev->acl->aclrtFreePhysical(p->handle), "giving back memory");
}

/* Maps so many bytes more, and zeroes them. */
static ngd_status_t extend(struct ascend_device *dev, struct ascend_range *r, uint64_t bytes, struct ngd_diag *diag)
{
    const struct ngd_acl_physical property = property_of(dev);
    void *handle = NULL;
    ngd_acl_error_t code;

    if (!has_room(r))
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the memory of a pool");
    code = dev->acl->aclrtMallocPhysical(&handle, bytes, &property, 0);
    if (code)
        return fail_range(dev, code, "physical memory", bytes, diag);
    code = dev->acl->aclrtMapMem(r->base + r->mapped, bytes, 0, handle, 0);
    if (code) {
        ngd_status_t status = fail_range(dev, code, "a mapping", bytes, diag);

        warn(dev, dev->acl->aclrtFreePhysical(handle), "giving back memory");
        return status;
    }
    r->pieces[r->n] = (struct piece){handle, bytes};
    count_range(dev, r, 1, r->mapped + bytes);
    code = dev->acl->aclrtMemset(r->base + r->mapped - bytes, bytes, 0, bytes);
    if (code) {
        ngd_status_t status = fail_range(dev, code, "clearing device memory", bytes, diag);

        drop_last(dev, r);
        return status;
    }
    return NGD_OK;
}

/* ---- ranges -------------------------------------------------------------------------------------- */

static struct ascend_range *find_range(struct ascend_device *dev, const void *base, bool take)
{
    struct ascend_range *found = NULL;

    ngd_mutex_lock(&dev->lock);
    ngd_list_for_each (pos, &dev->ranges) {
        struct ascend_range *r = ngd_container_of(pos, struct ascend_range, link);

        if (r->base == base)
            found = r;
    }
    if (found && take)
        ngd_list_remove(&found->link);
    ngd_mutex_unlock(&dev->lock);
    return found;
}

static void destroy_range(struct ascend_device *dev, struct ascend_range *r)
{
    if (ngd_ascend_enter_to_release(dev, dev->context)) {
        while (r->n)
            drop_last(dev, r);
        warn(dev, dev->acl->aclrtReleaseMemAddress(r->base), "giving back addresses");
    }
    ngd_free(r->pieces);
    ngd_free(r);
}

static ngd_status_t create_range(struct ascend_device *dev, struct ascend_range **r_p, struct ngd_diag *diag)
{
    uint64_t bytes = (dev->memory_total + dev->page - 1) / dev->page * dev->page;
    struct ascend_range *r = NGD_NEW(struct ascend_range);
    void *base = NULL;
    ngd_acl_error_t code;

    if (!r)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the memory of a pool");
    code = dev->acl->aclrtReserveMemAddress(&base, bytes, 0, NULL, 0);
    if (code) {
        ngd_free(r);
        fail_range(dev, code, "addresses", bytes, diag);
        return NGD_ERR_UNAVAILABLE;
    }
    r->base = base;
    *r_p = r;
    return NGD_OK;
}

static ngd_status_t make_range(struct ascend_device *dev, void **mem_p, uint64_t bytes, struct ngd_diag *diag)
{
    struct ascend_range *r = NULL;
    ngd_status_t status = create_range(dev, &r, diag);

    if (status)
        return status;
    status = extend(dev, r, bytes, diag);
    if (status) {
        destroy_range(dev, r);
        return status == NGD_ERR_UNIMPLEMENTED ? NGD_ERR_UNAVAILABLE : status; /* an older driver */
    }
    ngd_mutex_lock(&dev->lock);
    ngd_list_push_back(&dev->ranges, &r->link);
    ngd_mutex_unlock(&dev->lock);
    *mem_p = r->base;
    return NGD_OK;
}

ngd_status_t ngd_ascend_grow(void *dev_v, void **mem_p, uint64_t held, uint64_t bytes, struct ngd_diag *diag)
{
    struct ascend_device *dev = dev_v;
    struct ngd_diag why = {0};
    ngd_status_t status = ngd_ascend_enter(dev, dev->context, diag);

    if (status)
        return status;
    if (held)
        return extend(dev, find_range(dev, *mem_p, false), bytes - held, diag);
    status = make_range(dev, mem_p, bytes, &why);
    if (status == NGD_ERR_UNAVAILABLE)
        ngd_info("devices", "%s; this pool will move when it grows", why.text);
    else if (status && diag)
        *diag = why;
    return status;
}

bool ngd_ascend_free_range(struct ascend_device *dev, const void *mem)
{
    struct ascend_range *r = find_range(dev, mem, true);

    if (r)
        destroy_range(dev, r);
    return r != NULL;
}

void ngd_ascend_describe_ranges(struct ascend_device *dev, struct ngd_strbuf *sb)
{
    uint32_t n = 0, pieces = 0;
    uint64_t mapped = 0;

    if (!dev->page) {
        ngd_strbuf_append(sb, "pools move when they grow, and their graphs are captured again\n");
        return;
    }
    ngd_mutex_lock(&dev->lock);
    ngd_list_for_each (pos, &dev->ranges) {
        const struct ascend_range *r = ngd_container_of(pos, struct ascend_range, link);

        n++;
        pieces += r->n;
        mapped += r->mapped;
    }
    ngd_mutex_unlock(&dev->lock);
    ngd_strbuf_printf(sb,
                      "pools of %" PRIu64 " KiB and more grow where they are: %u do, %" PRIu64 " KiB in %u pieces\n",
                      dev->page >> 10, (unsigned)n, mapped >> 10, (unsigned)pieces);
}
