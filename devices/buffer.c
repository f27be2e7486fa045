/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: device memory with a label, a kind and a generation, reference counted.
 *
 * A buffer is a holder in the device's budget from its creation until its memory is free. An empty buffer is allowed
 * (a weight with a dimension of 0); it counts as the smallest unit, so that it is listed like any other.
 * A view is no holder. It keeps a reference on the buffer whose memory it shows.
 */
#include "base/fault.h"
#include "base/mem.h"
#include "devices/device_int.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

static ngd_status_t new_buffer(struct ngd_device *dev, ngd_buffer_kind_t kind, const char *label,
                               struct ngd_buffer **buf_p)
{
    size_t n = strlen(label) + 1;
    struct ngd_buffer *buf = ngd_calloc(1, sizeof(*buf) + n);

    if (!buf)
        return NGD_ERR_NO_MEMORY;
    memcpy(buf->label, label, n);
    buf->dev = dev;
    buf->holder.label = buf->label;
    buf->holder.kind = kind;
    ngd_list_init(&buf->holder.link);
    atomic_init(&buf->refs, 1);
    *buf_p = buf;
    return NGD_OK;
}

ngd_status_t ngd_buffer_view(struct ngd_buffer *of, struct ngd_buffer **buf_p, struct ngd_diag *diag)
{
    struct ngd_buffer *base = of->base ? of->base : of, *buf;
    ngd_status_t status = new_buffer(base->dev, base->holder.kind, base->label, &buf);

    if (status)
        return ngd_diag_set(diag, status, "no host memory for the record of buffer \"%.200s\"", base->label);
    buf->base = ngd_buffer_ref(base);
    buf->mem = base->mem;
    buf->bytes = base->bytes;
    buf->generation = base->generation;
    *buf_p = buf;
    return NGD_OK;
}

bool ngd_buffer_same(const struct ngd_buffer *a, const struct ngd_buffer *b)
{
    if (!a || !b)
        return a == b;
    return (a->base ? a->base : a) == (b->base ? b->base : b);
}

void ngd_buffer_set_charge(struct ngd_buffer *buf, struct ngd_charge *charge)
{
    assert(!buf->charge.payer);
    buf->charge = ngd_charge_move(charge);
}

struct ngd_payer *ngd_buffer_payer(const struct ngd_buffer *buf)
{
    return buf->charge.payer;
}

void ngd_buffer_set_origin(struct ngd_buffer *buf, void *origin)
{
    assert(!buf->base && !buf->origin);
    buf->origin = origin;
}

const void *ngd_buffer_origin(const struct ngd_buffer *buf)
{
    return buf->base ? buf->base->origin : buf->origin;
}

ngd_status_t ngd_buffer_create(struct ngd_device *dev, uint64_t bytes, ngd_buffer_kind_t kind, const char *label,
                               struct ngd_buffer **buf_p, struct ngd_diag *diag)
{
    uint64_t rounded = ngd_device_rounded(bytes ? bytes : 1);
    struct ngd_buffer *buf;
    ngd_status_t status = new_buffer(dev, kind, label ? label : "", &buf);

    if (status)
        return ngd_diag_set(diag, status, "no host memory for the record of buffer \"%.200s\"", label ? label : "");
    buf->generation = buf->holder.generation = atomic_fetch_add(&dev->next_generation, 1);
    status = ngd_device_reserve(dev, &buf->holder, rounded, diag);
    if (status)
        goto free_buf;
    status = dev->backend->memory.alloc(dev->handle, rounded, &buf->mem, diag);
    if (status && ngd_device_is_freeing(dev)) { /* the budget had room, but the system did not have it yet */
        ngd_device_settle(dev);
        status = dev->backend->memory.alloc(dev->handle, rounded, &buf->mem, diag);
    }
    if (status) {
        ngd_diag_prefix(diag, "buffer \"%.200s\": ", buf->label);
        goto release;
    }
    buf->bytes = bytes;
    *buf_p = buf;
    return NGD_OK;

release:
    ngd_device_release(dev, &buf->holder, rounded);
free_buf:
    ngd_free(buf);
    return status;
}

struct ngd_buffer *ngd_buffer_ref(struct ngd_buffer *buf)
{
    atomic_fetch_add_explicit(&buf->refs, 1, memory_order_relaxed);
    return buf;
}

bool ngd_buffer_is_last(const struct ngd_buffer *buf)
{
    return atomic_load_explicit(&buf->refs, memory_order_acquire) == 1;
}

/* Frees the memory before it leaves the budget: budget and quota must never promise room that is not there yet. */
static void free_memory(struct ngd_buffer *buf)
{
    const uint64_t rounded = ngd_device_rounded(buf->bytes ? buf->bytes : 1);

    while (buf->bytes >= NGD_FREE_LATER && NGD_FAULT(FREE_SLOW))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    buf->dev->backend->memory.free(buf->dev->handle, buf->mem, rounded);
    ngd_device_release(buf->dev, &buf->holder, rounded);
}

void ngd_buffer_free(struct ngd_buffer *buf)
{
    struct ngd_charge charge;

    if (buf->base)
        ngd_buffer_unref(buf->base);
    else
        free_memory(buf);
    charge = ngd_charge_move(&buf->charge);
    ngd_free(buf->origin);
    ngd_free(buf);
    ngd_charge_end(&charge);
}

struct ngd_buffer *ngd_buffer_unref(struct ngd_buffer *buf)
{
    if (!buf || atomic_fetch_sub_explicit(&buf->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    if (buf->base || buf->bytes < NGD_FREE_LATER || !ngd_device_free_later(buf->dev, buf))
        ngd_buffer_free(buf);
    return NULL;
}

uint64_t ngd_buffer_bytes(const struct ngd_buffer *buf)
{
    return buf->bytes;
}

uint64_t ngd_buffer_generation(const struct ngd_buffer *buf)
{
    return buf->generation;
}

const char *ngd_buffer_label(const struct ngd_buffer *buf)
{
    return buf->label;
}

ngd_buffer_kind_t ngd_buffer_kind(const struct ngd_buffer *buf)
{
    return buf->holder.kind;
}

struct ngd_device *ngd_buffer_device(const struct ngd_buffer *buf)
{
    return buf->dev;
}

void *ngd_buffer_host_ptr(struct ngd_buffer *buf)
{
    const struct ngd_backend_memory *memory = &buf->dev->backend->memory;

    return memory->host_ptr ? memory->host_ptr(buf->dev->handle, buf->mem) : NULL;
}

static ngd_status_t check_buffer_range(const struct ngd_buffer *buf, uint64_t offset, uint64_t n, struct ngd_diag *diag)
{
    if (offset <= buf->bytes && n <= buf->bytes - offset)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_BUFFER_RANGE,
                        "%" PRIu64 " bytes at offset %" PRIu64 " lie outside buffer \"%.200s\" of %" PRIu64 " bytes", n,
                        offset, buf->label, buf->bytes);
}

ngd_status_t ngd_buffer_write(struct ngd_buffer *buf, uint64_t offset, const void *src, uint64_t n,
                              struct ngd_diag *diag)
{
    ngd_status_t status = check_buffer_range(buf, offset, n, diag);

    if (status || n == 0)
        return status;
    return buf->dev->backend->memory.write(buf->dev->handle, buf->mem, offset, src, n);
}

ngd_status_t ngd_buffer_read(struct ngd_buffer *buf, uint64_t offset, void *dst, uint64_t n, struct ngd_diag *diag)
{
    ngd_status_t status = check_buffer_range(buf, offset, n, diag);

    if (status || n == 0)
        return status;
    return buf->dev->backend->memory.read(buf->dev->handle, buf->mem, offset, dst, n);
}
