/* SPDX-License-Identifier: Apache-2.0 */
/* The `ascend` backend: devices, their memory, and the tables of backend.h. */
#include "devices/ascend/group.h"
#include "base/log.h"
#include "devices/ascend/issue.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_TOTAL   1984 /* of an A2 or A3, in all processes together */
#define SLOTS_MAX       64
#define MASK_SIDE       2048
#define LEAST_FREE      ((size_t)16 << 20) /* of a device that is opened: below it nothing can be served */
#define LIMIT_MS        60000              /* of one replay; a device's own limit of one operator is 18 minutes */
/* Part of the cache key: raise it when results or a plan's layout change. */
#define BACKEND_VERSION 2

/* ---- lifecycle ----------------------------------------------------------------------------------- */

/* Whether CANN is there is said by open(), with the reason. */
static int probe(void)
{
    return 1;
}

ngd_status_t ngd_ascend_enter(const struct ascend_device *dev, void *context, struct ngd_diag *diag)
{
    ngd_acl_error_t code = dev->acl->aclrtSetCurrentContext(context);
    char what[96];

    if (code == 0)
        return NGD_OK;
    snprintf(what, sizeof(what), "device %s: aclrtSetCurrentContext", dev->name);
    return ngd_acl_fail(dev->acl, code, what, diag);
}

bool ngd_ascend_enter_to_release(const struct ascend_device *dev, void *context)
{
    return ngd_ascend_enter(dev, context, NULL) == NGD_OK || ngd_ascend_enter(dev, context, NULL) == NGD_OK;
}

static ngd_status_t fail(const struct ascend_device *dev, ngd_acl_error_t code, const char *name, struct ngd_diag *diag)
{
    char what[160];

    snprintf(what, sizeof(what), "device %s: %s", dev->name, name);
    return ngd_acl_fail(dev->acl, code, what, diag);
}

static ngd_status_t check_index(const struct ascend_device *dev, struct ngd_diag *diag)
{
    uint32_t count = 0;
    ngd_acl_error_t code = dev->acl->aclrtGetDeviceCount(&count);

    if (code)
        return fail(dev, code, "aclrtGetDeviceCount", diag);
    if ((uint32_t)dev->index >= count)
        return ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "there is no device %s: CANN sees %u, which npu-smi info lists",
                            dev->name, (unsigned)count);
    return NGD_OK;
}

static void describe_device(struct ascend_device *dev)
{
    const char *soc = dev->acl->aclrtGetSocName();
    int64_t cube = 0, vector = 0;

    /* Plans have the workspace of what is called: it may be larger with weights in NZ. */
    snprintf(dev->arch, sizeof(dev->arch), "ascend-%d-%.40s-%d.%d.%d%s", BACKEND_VERSION, soc ? soc : "unknown",
             (int)dev->acl->version[0], (int)dev->acl->version[1], (int)dev->acl->version[2], dev->nz.on ? "-nz" : "");
    snprintf(dev->description, sizeof(dev->description), "%.60s, CANN runtime %d.%d.%d", soc ? soc : "unknown chip",
             (int)dev->acl->version[0], (int)dev->acl->version[1], (int)dev->acl->version[2]);
    if (dev->acl->aclrtGetDeviceInfo &&
        dev->acl->aclrtGetDeviceInfo((uint32_t)dev->index, NGD_ACL_ATTR_CUBE_CORES, &cube) == 0 &&
        dev->acl->aclrtGetDeviceInfo((uint32_t)dev->index, NGD_ACL_ATTR_VECTOR_CORES, &vector) == 0) {
        size_t n = strlen(dev->description);

        dev->cores[NGD_ACL_CORES_CUBE] = (uint32_t)cube;
        dev->cores[NGD_ACL_CORES_VECTOR] = (uint32_t)vector;
        snprintf(dev->description + n, sizeof(dev->description) - n, ", %" PRId64 " cube and %" PRId64 " vector cores",
                 cube, vector);
    }
}

static ngd_status_t open_context(struct ascend_device *dev, uint64_t *memory_p, struct ngd_diag *diag)
{
    const struct ngd_acl *acl = dev->acl;
    size_t free_bytes = 0, total = 0;
    ngd_acl_error_t code = acl->aclrtCreateContext(&dev->context, dev->index);

    if (code) {
        dev->context = NULL;
        return fail(dev, code, "a context", diag);
    }
    ngd_ascend_count_streams(dev, 1);
    code = acl->aclrtGetMemInfo(NGD_ACL_MEM_HBM, &free_bytes, &total);
    if (code)
        return fail(dev, code, "aclrtGetMemInfo", diag);
    if (free_bytes < LEAST_FREE)
        return ngd_diag_set(diag, NGD_ERR_NO_DEVICE_MEMORY,
                            "device %s: others use all but %zu MiB of its %zu MiB; npu-smi info shows who", dev->name,
                            free_bytes >> 20, total >> 20);
    if (free_bytes < total / 2)
        ngd_warning("devices",
                    "device %s: others use %zu of its %zu MiB (npu-smi info shows who); what is left is served",
                    dev->name, (total - free_bytes) >> 20, total >> 20);
    dev->memory_total = total;
    dev->page = ngd_ascend_page(dev);
    *memory_p = free_bytes / 10 * 9; /* graphs, operators and CANN itself take memory of their own */
    return NGD_OK;
}

static void ascend_close(void *dev_v)
{
    struct ascend_device *dev = dev_v;

    if (dev->mask && ngd_ascend_enter_to_release(dev, dev->context))
        dev->acl->aclrtFree(dev->mask);
    if (dev->limits.stream && ngd_ascend_enter_to_release(dev, dev->context))
        dev->acl->aclrtDestroyStreamForce(dev->limits.stream);
    if (dev->context)
        dev->acl->aclrtDestroyContext(dev->context);
    ngd_acl_unload(dev->acl);
    ngd_ascend_nz_fini(dev);
    ngd_mutex_fini(&dev->lock);
    ngd_mutex_fini(&dev->capture_lock);
    ngd_free(dev);
}

static int limit_ms(void)
{
    const char *text = getenv("NGD_ASCEND_LIMIT_MS");
    long v = text ? strtol(text, NULL, 10) : 0;

    return v > 0 && v < INT32_MAX ? (int)v : LIMIT_MS;
}

static ngd_status_t ascend_open(const struct ngd_device_params *params, void **dev_p, struct ngd_device_info *info_p,
                                struct ngd_diag *diag)
{
    struct ascend_device *dev = NGD_NEW(struct ascend_device);
    uint64_t memory = 0;
    ngd_status_t status;

    if (!dev)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a device");
    status = ngd_acl_load(params->ascend_libs, params->ascend_lib_names, &dev->acl, diag);
    if (status) {
        ngd_free(dev);
        return status;
    }
    dev->index = (int32_t)params->index;
    dev->limit_ms = limit_ms();
    dev->streams_total = STREAMS_TOTAL;
    snprintf(dev->name, sizeof(dev->name), "ascend:%u", (unsigned)params->index);
    ngd_mutex_init(&dev->capture_lock, NGD_RANK_CAPTURE);
    ngd_mutex_init(&dev->lock, NGD_RANK_STREAM);
    ngd_list_init(&dev->captured);
    ngd_list_init(&dev->ranges);
    ngd_ascend_nz_init(dev, params->nz_weights);
    status = check_index(dev, diag);
    if (status == NGD_OK)
        status = open_context(dev, &memory, diag);
    if (status) {
        if (status != NGD_ERR_NO_DEVICE_MEMORY)
            ngd_ascend_explain_nodes(dev, diag);
        ascend_close(dev);
        return status;
    }
    describe_device(dev);
    *info_p = (struct ngd_device_info){
        .name = dev->name,
        .backend = "ascend",
        .arch = dev->arch,
        .description = dev->description,
        .memory_bytes = memory,
        .pool_page = dev->page,
        .threads = 1,
        .aicores = dev->cores[NGD_ACL_CORES_CUBE],
        .vectorcores = dev->cores[NGD_ACL_CORES_VECTOR],
        .streams_max = SLOTS_MAX,
        .host_memory = false,
    };
    *dev_p = dev;
    return NGD_OK;
}

static void describe(void *dev_v, struct ngd_strbuf *sb)
{
    struct ascend_device *dev = dev_v;
    uint32_t n = 0;

    ngd_acl_describe(dev->acl, sb);
    ngd_strbuf_append(sb, "operators:\n");
    for (uint32_t i = 0; i < NGD_OP_MAX; i++) {
        const struct ascend_op *op = ngd_ascend_op_of((ngd_op_id_t)i);

        if (op)
            ngd_strbuf_printf(sb, "  %-36s %s\n", ngd_op_by_id((ngd_op_id_t)i)->name, op->name);
    }
    ngd_mutex_lock(&dev->lock);
    ngd_list_for_each (pos, &dev->captured)
        n++;
    ngd_strbuf_printf(sb, "streams taken by this process: %u, events: %u, graphs captured: %u\n",
                      (unsigned)dev->streams_used, (unsigned)dev->events_used, (unsigned)n);
    ngd_mutex_unlock(&dev->lock);
    ngd_ascend_describe_ranges(dev, sb);
    ngd_ascend_nz_describe(dev, sb);
    ngd_strbuf_printf(sb,
                      "replays %" PRIu64 ", eager %" PRIu64 ", captures %" PRIu64
                      ", graphs given up for streams %" PRIu64 ", updates of host parameters %" PRIu64 "\n",
                      atomic_load(&dev->replays), atomic_load(&dev->eager), atomic_load(&dev->captures),
                      atomic_load(&dev->given_up), atomic_load(&dev->updates));
}

/* ---- memory -------------------------------------------------------------------------------------- */

/* CANN's blocks are 64-byte aligned and have room behind them that operators may read. */
static ngd_status_t ascend_alloc(void *dev_v, uint64_t bytes, void **mem_p, struct ngd_diag *diag)
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
        return fail(dev, code, what, diag);
    code = dev->acl->aclrtMemset(mem, bytes, 0, bytes);
    if (code) {
        status = fail(dev, code, what, diag);
        dev->acl->aclrtFree(mem);
        return status;
    }
    *mem_p = mem;
    return NGD_OK;
}

static void ascend_free(void *dev_v, void *mem, uint64_t bytes)
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
        status = fail(dev, code, "a copy", &diag);
    if (status)
        ngd_error("devices", "%s", diag.text);
    return status;
}

/* After an error too, something may have been written. */
static ngd_status_t ascend_write(void *dev, void *mem, uint64_t offset, const void *src, uint64_t n)
{
    ngd_status_t status = copy(dev, (char *)mem + offset, src, n, NGD_ACL_COPY_H2D);

    ngd_ascend_nz_written(dev, (char *)mem + offset, n);
    return status;
}

static ngd_status_t ascend_read(void *dev, void *mem, uint64_t offset, void *dst, uint64_t n)
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
        status = ascend_alloc(dev, (uint64_t)MASK_SIDE * MASK_SIDE, &mem, diag);
        if (status == NGD_OK) {
            status = fill_mask(dev, mem);
            if (status) {
                ngd_diag_set(diag, status, "device %s: the mask of attention cannot be made", dev->name);
                ascend_free(dev, mem, (uint64_t)MASK_SIDE * MASK_SIDE);
            } else {
                dev->mask = mem;
            }
        }
    }
    ngd_mutex_unlock(&dev->capture_lock);
    return status;
}

/* ---- code ---------------------------------------------------------------------------------------- */

static ngd_status_t ascend_select(void *dev_v, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct ascend_op *op = ngd_ascend_op_of(call->op->id);
    struct ascend_device *dev = dev_v;
    struct ngd_diag why = {0};
    uint64_t nz = 0;
    ngd_status_t status;

    *strided_p = 0;
    *workspace_p = 0;
    if (ngd_ascend_is_tail(call))
        return ngd_ascend_select_tail(plan, call, diag);
    if (op && op->strided)
        *strided_p = UINT32_MAX;
    status = ngd_ascend_measure(dev, plan, call, workspace_p, diag);
    /* Whether CANN takes the weight in NZ is asked again for the executable; here it is about the workspace. */
    if (status == NGD_OK && dev->nz.on && ngd_ascend_nz_fits(plan, call) &&
        ngd_ascend_measure_nz(dev, plan, call, &nz, &why) == NGD_OK && nz > *workspace_p)
        *workspace_p = nz;
    return status;
}

extern const struct ngd_backend ngd_backend_ascend;
const struct ngd_backend ngd_backend_ascend = {
    .api = NGD_BACKEND_API,
    .name = "ascend",
    .lifecycle = {.probe = probe,
                  .open = ascend_open,
                  .count = ngd_ascend_nz_count,
                  .close = ascend_close,
                  .describe = describe,
                  .examine = ngd_ascend_examine},
    .memory = {.alloc = ascend_alloc,
               .free = ascend_free,
               .write = ascend_write,
               .read = ascend_read,
               .grow = ngd_ascend_grow},
    .code =
        {
            .select = ascend_select,
            .instantiate = ngd_ascend_instantiate,
            .destroy = ngd_ascend_destroy,
            .bind = ngd_ascend_bind,
            .unbind = ngd_ascend_unbind,
        },
    .stream = NGD_SERIAL_STREAM(ngd_ascend_stream_create),
    .comm =
        {
            .create = ngd_ascend_comm_create,
            .destroy = ngd_ascend_comm_destroy,
            .abort = ngd_ascend_comm_abort,
            .status = ngd_ascend_comm_status,
            .reset = ngd_ascend_comm_reset,
        },
};
