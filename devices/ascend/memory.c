/* SPDX-License-Identifier: Apache-2.0 */
/* A device's memory but for pools (range.c): blocks, copies, and the mask that attention takes. */
#include "base/log.h"
#include "devices/ascend/ascend.h"
#include <inttypes.h>
#include <stdio.h>

#define MASK_SIDE 2048

/* CANN's blocks are 64-byte aligned and have room behind them that operators may read. */
ngd_status_t ngd_ascend_alloc(void *dev_v, uint64_t bytes, void **mem_p, struct ngd_diag *diag)
{
    struct ascend_device *dev = dev_v;
    ngd_status_t status = ngd_ascend_enter(dev, dev->context, diag);
    void *mem = NULL;
    char what[80];
    ngd_acl_error_t code;

    if (status)
        return status;
    snprintf(what, sizeof(what), "%" PRIu64 " bytes of device memory", bytes);
    code = dev->acl->aclrtMalloc(&mem, bytes, NGD_ACL_MALLOC_HUGE_FIRST);
    if (code)
        return ngd_ascend_fail(dev, code, what, diag);
    code = dev->acl->aclrtMemset(mem, bytes, 0, bytes);
    if (code) {
        status = ngd_ascend_fail(dev, code, what, diag);
        dev->acl->aclrtFree(mem);
        return status;
    }
    *mem_p = mem;
    return NGD_OK;
}

void ngd_ascend_free(void *dev_v, void *mem, uint64_t bytes)
{
    struct ascend_device *dev = dev_v;
    ngd_acl_error_t code = -1;

    if (ngd_ascend_free_range(dev, mem))
        return;
    if (ngd_ascend_enter_to_release(dev, dev->context))
        code = dev->acl->aclrtFree(mem);
    if (code)
        ngd_warning("devices", "device %s: %" PRIu64 " bytes could not be freed (CANN answers %d), ignoring", dev->name,
                    bytes, (int)code);
}

static ngd_status_t copy(struct ascend_device *dev, void *dst, const void *src, uint64_t n, int kind)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_ascend_enter(dev, dev->context, &diag);
    ngd_acl_error_t code = status ? 0 : dev->acl->aclrtMemcpy(dst, n, src, n, kind);

    if (code)
        status = ngd_ascend_fail(dev, code, "a copy", &diag);
    if (status)
        ngd_error("devices", "%s", diag.text);
    return status;
}

/* After an error too, something may have been written. */
ngd_status_t ngd_ascend_write(void *dev, void *mem, uint64_t offset, const void *src, uint64_t n)
{
    ngd_status_t status = copy(dev, (char *)mem + offset, src, n, NGD_ACL_COPY_H2D);

    ngd_ascend_nz_written(dev, (char *)mem + offset, n);
    return status;
}

ngd_status_t ngd_ascend_read(void *dev, void *mem, uint64_t offset, void *dst, uint64_t n)
{
    return copy(dev, dst, (const char *)mem + offset, n, NGD_ACL_COPY_D2H);
}

/* Row i lets column j through when j <= i: 1 hides. */
static ngd_status_t fill_mask(struct ascend_device *dev, void *mem)
{
    const size_t bytes = (size_t)MASK_SIDE * MASK_SIDE;
    char *mask = ngd_malloc(bytes);
    ngd_status_t status;

    if (!mask)
        return NGD_ERR_NO_MEMORY;
    for (int i = 0; i < MASK_SIDE; i++)
        for (int j = 0; j < MASK_SIDE; j++)
            mask[i * MASK_SIDE + j] = j > i;
    status = copy(dev, mem, mask, bytes, NGD_ACL_COPY_H2D);
    ngd_free(mask);
    return status;
}

ngd_status_t ngd_ascend_mask(struct ascend_device *dev, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;
    void *mem = NULL;

    ngd_mutex_lock(&dev->capture_lock);
    if (!dev->mask) {
        status = ngd_ascend_alloc(dev, (uint64_t)MASK_SIDE * MASK_SIDE, &mem, diag);
        if (status == NGD_OK) {
            status = fill_mask(dev, mem);
            if (status) {
                ngd_diag_set(diag, status, "device %s: the mask of attention cannot be made", dev->name);
                ngd_ascend_free(dev, mem, (uint64_t)MASK_SIDE * MASK_SIDE);
            } else {
                dev->mask = mem;
            }
        }
    }
    ngd_mutex_unlock(&dev->capture_lock);
    return status;
}
