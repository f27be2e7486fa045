/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device: the handle of its backend, and the budget of its memory.
 *
 * The budget is kept here and not in the backends, so that every backend refuses with the same words and before it
 * allocates. Each buffer and pool is a named holder in a list; `used` is the sum over the list. Memory is reserved
 * under the lock, then the backend is called without it. If the backend fails, the reservation is released.
 */
#include "devices/device_int.h"
#include "base/log.h"
#include "base/mem.h"
#include "devices/telemetry.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LARGEST 3

void ngd_device_params_init(struct ngd_device_params *params)
{
    memset(params, 0, sizeof(*params));
    params->backend = "host";
    params->isa = "auto";
}

static ngd_status_t target_select(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    struct ngd_device *dev = ctx;

    return dev->backend->code.select(dev->handle, plan, call, strided_p, workspace_p, diag);
}

static ngd_status_t unknown_backend(const char *name, struct ngd_diag *diag)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (const char *const *p = ngd_device_backends(); *p; p++)
        ngd_strbuf_printf(&sb, "%s%s", sb.len ? ", " : "", *p);
    ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "device backend \"%s\" is unknown; compiled in: %s", name ? name : "",
                 ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return NGD_ERR_NOT_FOUND;
}

static ngd_status_t count_more(void *ctx, uint64_t bytes, uint64_t spare, struct ngd_diag *diag);

static void count_less(void *ctx, uint64_t bytes)
{
    struct ngd_device *dev = ctx;

    ngd_device_release(dev, &dev->layouts, bytes);
}

static void let_backend_count(struct ngd_device *dev)
{
    const struct ngd_backend_counter counter = {
        .ctx = dev, .budget = dev->info.memory_bytes, .take = count_more, .give = count_less};

    dev->layouts.label = "weights in another layout";
    dev->layouts.kind = NGD_BUFFER_WEIGHTS;
    ngd_list_init(&dev->layouts.link);
    if (dev->backend->lifecycle.count)
        dev->backend->lifecycle.count(dev->handle, &counter);
}

ngd_status_t ngd_device_open(const struct ngd_device_params *params, struct ngd_device **dev_p, struct ngd_diag *diag)
{
    const struct ngd_backend *backend = params->backend ? ngd_backend_find(params->backend) : NULL;
    struct ngd_device *dev;
    ngd_status_t status;

    if (!backend)
        return unknown_backend(params->backend, diag);
    if (backend->lifecycle.probe() <= 0)
        return ngd_diag_set(diag, NGD_ERR_UNAVAILABLE, "device backend \"%s\" is not usable on this machine",
                            params->backend);
    dev = NGD_NEW(struct ngd_device);
    if (!dev)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no memory for device \"%s\"", params->backend);
    status = backend->lifecycle.open(params, &dev->handle, &dev->info, diag);
    if (status) {
        ngd_free(dev);
        return status;
    }
    dev->backend = backend;
    dev->index = params->index;
    if (params->memory_bytes)
        dev->info.memory_bytes = params->memory_bytes;
    dev->target = (struct ngd_plan_target){.ctx = dev,
                                           .arch = dev->info.arch,
                                           .select = target_select,
                                           .inplace = backend->code.inplace,
                                           .strided_results = backend->code.strided_results,
                                           .aicores = dev->info.aicores,
                                           .vectorcores = dev->info.vectorcores};
    ngd_mutex_init(&dev->lock, NGD_RANK_DEVICE);
    ngd_list_init(&dev->holders);
    ngd_list_init(&dev->leaving);
    ngd_cond_init(&dev->leave);
    ngd_cond_init(&dev->gone);
    atomic_init(&dev->next_generation, 1);
    let_backend_count(dev);
    ngd_debug("devices", "device %s is open arch=%s memory=%" PRIu64 " threads=%u", dev->info.name, dev->info.arch,
              dev->info.memory_bytes, dev->info.threads);
    *dev_p = dev;
    return NGD_OK;
}

ngd_status_t ngd_device_probe(const struct ngd_device_params *params, const char *path, struct ngd_diag *diag)
{
    const struct ngd_backend *backend = ngd_backend_find(params->backend);

    if (!backend)
        return ngd_diag_set(diag, NGD_ERR_NOT_FOUND, "there is no backend \"%.40s\"", params->backend);
    if (!backend->lifecycle.ask)
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                            "there is nothing to probe of a device of \"%s\"; probes are for ascend", backend->name);
    return backend->lifecycle.ask(params, path, diag);
}

void ngd_device_close(struct ngd_device *dev)
{
    if (!dev)
        return;
    ngd_telemetry_stop(dev);
    ngd_device_stop_freeing(dev);
    ngd_mutex_lock(&dev->lock);
    assert(ngd_list_empty(&dev->holders));
    assert(dev->streams == 0);
    ngd_mutex_unlock(&dev->lock);
    dev->backend->lifecycle.close(dev->handle);
    ngd_cond_fini(&dev->leave);
    ngd_cond_fini(&dev->gone);
    ngd_mutex_fini(&dev->lock);
    ngd_free(dev);
}

const struct ngd_device_info *ngd_device_info(const struct ngd_device *dev)
{
    return &dev->info;
}

void ngd_device_describe(struct ngd_device *dev, struct ngd_strbuf *sb)
{
    if (dev->backend->lifecycle.describe)
        dev->backend->lifecycle.describe(dev->handle, sb);
}

const struct ngd_plan_target *ngd_device_target(struct ngd_device *dev)
{
    return &dev->target;
}

uint64_t ngd_device_used_bytes(const struct ngd_device *dev)
{
    struct ngd_device *d = (struct ngd_device *)(uintptr_t)dev; /* the lock is not part of its value */
    uint64_t used;

    ngd_mutex_lock(&d->lock);
    used = d->used;
    ngd_mutex_unlock(&d->lock);
    return used;
}

void ngd_device_for_each_buffer(struct ngd_device *dev,
                                void (*fn)(void *ctx, const char *label, ngd_buffer_kind_t kind, uint64_t bytes,
                                           uint64_t generation),
                                void *ctx)
{
    ngd_mutex_lock(&dev->lock);
    ngd_list_for_each (pos, &dev->holders) {
        const struct ngd_holder *h = ngd_container_of(pos, struct ngd_holder, link);

        fn(ctx, h->label, h->kind, h->bytes, h->generation);
    }
    ngd_mutex_unlock(&dev->lock);
}

/* ---- the budget ------------------------------------------------------------------------------------- */

uint64_t ngd_device_rounded(uint64_t bytes)
{
    uint64_t sum;

    if (__builtin_add_overflow(bytes, (uint64_t)63, &sum))
        return UINT64_MAX;
    return sum & ~(uint64_t)63;
}

static const char *human(uint64_t bytes, char buf[static 32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t u = 0;

    while (v >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
        v /= 1024;
        u++;
    }
    snprintf(buf, 32, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return buf;
}

/* Finds the largest holders, largest first; of equal ones the older comes first. Returns their number. */
static uint32_t find_largest(struct ngd_device *dev, const struct ngd_holder *top[LARGEST]) NGD_REQUIRES(dev->lock)
{
    uint32_t n = 0;

    ngd_list_for_each (pos, &dev->holders) {
        const struct ngd_holder *h = ngd_container_of(pos, struct ngd_holder, link);
        uint32_t i = n;

        while (i > 0 && top[i - 1]->bytes < h->bytes)
            i--;
        if (i >= LARGEST)
            continue;
        if (n < LARGEST)
            n++;
        memmove(&top[i + 1], &top[i], (n - 1 - i) * sizeof(top[0]));
        top[i] = h;
    }
    return n;
}

static ngd_status_t no_room(struct ngd_device *dev, uint64_t bytes, const char *what, struct ngd_diag *diag)
    NGD_REQUIRES(dev->lock)
{
    static const char *const kinds[] = {"buffer", "weights", "KV state", "pool"};
    const struct ngd_holder *top[LARGEST];
    char a[32], b[32], c[32], text[512] = "";
    uint32_t n = find_largest(dev, top);
    size_t at = 0;

    for (uint32_t i = 0; i < n && at < sizeof(text); i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s (%s)",
                               i ? ", " : "; largest holders: ", kinds[top[i]->kind], human(top[i]->bytes, a));
    return ngd_diag_set(
        diag, NGD_ERR_NO_DEVICE_MEMORY,
        "\"%.200s\" needs %s (%" PRIu64 " bytes) on device %s, whose budget is %s, of which %s are used%s", what,
        human(bytes, a), bytes, dev->info.name, human(dev->info.memory_bytes, b), human(dev->used, c), text);
}

bool ngd_device_has_room(const struct ngd_device *dev, uint64_t bytes)
{
    return bytes <= dev->info.memory_bytes && dev->used <= dev->info.memory_bytes - bytes;
}

ngd_status_t ngd_device_check_room(struct ngd_device *dev, uint64_t bytes, const char *what, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    ngd_mutex_lock(&dev->lock);
    if (!ngd_device_wait_for_room(dev, bytes))
        status = no_room(dev, bytes, what, diag);
    ngd_mutex_unlock(&dev->lock);
    return status;
}

static void take_room(struct ngd_device *dev, struct ngd_holder *holder, uint64_t bytes) NGD_REQUIRES(dev->lock)
{
    if (ngd_list_empty(&holder->link))
        ngd_list_push_back(&dev->holders, &holder->link);
    holder->bytes += bytes;
    dev->used += bytes;
}

ngd_status_t ngd_device_reserve(struct ngd_device *dev, struct ngd_holder *holder, uint64_t bytes,
                                struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    ngd_mutex_lock(&dev->lock);
    if (ngd_device_wait_for_room(dev, bytes))
        take_room(dev, holder, bytes);
    else
        status = no_room(dev, bytes, holder->label, diag);
    ngd_mutex_unlock(&dev->lock);
    return status;
}

/* Does not wait: the backend may hold a lock that freeing takes. */
static ngd_status_t count_more(void *ctx, uint64_t bytes, uint64_t spare, struct ngd_diag *diag)
{
    struct ngd_device *dev = ctx;
    uint64_t all = bytes > UINT64_MAX - spare ? UINT64_MAX : bytes + spare;
    ngd_status_t status = NGD_OK;

    ngd_mutex_lock(&dev->lock);
    if (ngd_device_has_room(dev, all))
        take_room(dev, &dev->layouts, bytes);
    else
        status = no_room(dev, all, dev->layouts.label, diag);
    ngd_mutex_unlock(&dev->lock);
    return status;
}

void ngd_device_release(struct ngd_device *dev, struct ngd_holder *holder, uint64_t bytes)
{
    ngd_mutex_lock(&dev->lock);
    assert(holder->bytes >= bytes && dev->used >= bytes);
    holder->bytes -= bytes;
    dev->used -= bytes;
    if (holder->bytes == 0)
        ngd_list_remove(&holder->link);
    ngd_mutex_unlock(&dev->lock);
}
