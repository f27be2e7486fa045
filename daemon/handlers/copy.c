/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory.Copy, between a buffer and a shared buffer. A large copy is done by two job threads, which take its pieces one
 * after the other: on most machines one thread cannot move as much as the memory can. What is small is copied at once.
 */
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "daemon/session.h"
#include "daemon/shared.h"
#include "proto/npugraph.pb-c.h"
#include <inttypes.h>

#define PIECE_BYTES  ((uint64_t)4 << 20)
#define AT_ONCE      ((uint64_t)1 << 20) /* a message of Memory.Write has as much */
#define BOUNCE_BYTES (256u << 10)
#define WORKERS      2

struct copy;

struct copy_worker {
    struct ngd_job job;
    struct copy *copy;
};

struct copy {
    struct ngd_call *call;
    struct ngd_shared_object *shared; /* a reference */
    struct ngd_buffer_object *buffer; /* a reference */
    bool to_buffer;
    uint64_t shared_at, buffer_at, bytes;
    _Atomic uint64_t next; /* the first byte that no worker has taken */
    _Atomic uint32_t left; /* workers that are not done */
    _Atomic int status;    /* the first error; the worker that sets it writes diag */
    struct ngd_diag diag;
    struct copy_worker workers[WORKERS];
};

/* ---- the bytes ------------------------------------------------------------------------------------------- */

/* Copies a range through `bounce`, for a device whose memory the CPU cannot address. */
static ngd_status_t bounce_piece(const struct copy *c, uint64_t at, uint64_t n, void *bounce, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint64_t end = at + n; at < end && status == NGD_OK; at += n) {
        n = end - at < BOUNCE_BYTES ? end - at : BOUNCE_BYTES;
        status = c->to_buffer ? ngd_shared_read(c->shared, c->shared_at + at, bounce, n, diag)
                              : ngd_buffer_read(c->buffer->buffer, c->buffer_at + at, bounce, n, diag);
        if (status == NGD_OK)
            status = c->to_buffer ? ngd_buffer_write(c->buffer->buffer, c->buffer_at + at, bounce, n, diag)
                                  : ngd_shared_write(c->shared, c->shared_at + at, bounce, n, diag);
    }
    return status;
}

static ngd_status_t copy_piece(const struct copy *c, uint64_t at, uint64_t n, struct ngd_diag *diag)
{
    uint8_t *direct = ngd_buffer_host_ptr(c->buffer->buffer);
    ngd_status_t status;
    void *bounce;

    if (direct && c->to_buffer)
        return ngd_shared_read(c->shared, c->shared_at + at, direct + c->buffer_at + at, n, diag);
    if (direct)
        return ngd_shared_write(c->shared, c->shared_at + at, direct + c->buffer_at + at, n, diag);
    bounce = ngd_malloc(BOUNCE_BYTES);
    if (!bounce)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a copy");
    status = bounce_piece(c, at, n, bounce, diag);
    ngd_free(bounce);
    return status;
}

static ngd_status_t check_copy_time(const struct copy *c)
{
    if (atomic_load(&c->call->cancelled))
        return NGD_ERR_CANCELLED;
    return ngd_now() > c->call->deadline ? NGD_ERR_DEADLINE_EXCEEDED : NGD_OK;
}

/* Copies pieces until there are no more, or one fails. */
static void copy_pieces(struct copy *c)
{
    while (atomic_load(&c->status) == NGD_OK) {
        const uint64_t at = atomic_fetch_add(&c->next, PIECE_BYTES);
        struct ngd_diag diag = {0};
        ngd_status_t status = check_copy_time(c);
        int ok = NGD_OK;

        if (at >= c->bytes)
            return;
        if (status == NGD_OK)
            status = copy_piece(c, at, c->bytes - at < PIECE_BYTES ? c->bytes - at : PIECE_BYTES, &diag);
        if (status != NGD_OK && atomic_compare_exchange_strong(&c->status, &ok, (int)status))
            c->diag = diag;
    }
}

/* ---- the call -------------------------------------------------------------------------------------------- */

static void answer_copy(struct copy *c)
{
    Npugraph__V1__CopyResponse reply = NPUGRAPH__V1__COPY_RESPONSE__INIT;
    const ngd_status_t status = (ngd_status_t)atomic_load(&c->status);

    reply.bytes = c->bytes;
    if (status == NGD_OK)
        ngd_call_reply(c->call, &reply.base);
    else
        ngd_call_fail(c->call, status, c->diag.text[0] ? &c->diag : NULL);
}

static void run_worker(struct ngd_job *job)
{
    struct copy *c = ngd_container_of(job, struct copy_worker, job)->copy;

    copy_pieces(c);
    if (atomic_fetch_sub(&c->left, 1) == 1)
        answer_copy(c);
}

static ngd_status_t find_both(struct copy *c, const Npugraph__V1__CopyRequest *q, struct ngd_diag *diag)
{
    struct ngd_session *s = c->call->session;
    struct ngd_object *o;
    ngd_status_t status;

    c->to_buffer = ngd_session_get(s, q->from, NGD_OBJECT_SHARED, &o, NULL) == NGD_OK;
    if (!c->to_buffer) {
        status = ngd_session_get(s, q->to, NGD_OBJECT_SHARED, &o, diag);
        if (status != NGD_OK)
            return ngd_diag_set(diag, status, "neither %" PRIu64 " nor %" PRIu64 " is a shared buffer of this session",
                                q->from, q->to);
    }
    c->shared = ngd_container_of(o, struct ngd_shared_object, base);
    c->shared_at = c->to_buffer ? q->from_offset : q->to_offset;
    c->buffer_at = c->to_buffer ? q->to_offset : q->from_offset;
    c->bytes = q->bytes;
    status = ngd_session_get(s, c->to_buffer ? q->to : q->from, NGD_OBJECT_BUFFER, &o, diag);
    if (status == NGD_OK)
        c->buffer = ngd_container_of(o, struct ngd_buffer_object, base);
    return status;
}

static ngd_status_t check_copy(const struct copy *c, struct ngd_diag *diag)
{
    const uint64_t size = ngd_buffer_bytes(c->buffer->buffer);

    if (c->buffer_at > size || c->bytes > size - c->buffer_at)
        return ngd_diag_set(diag, NGD_ERR_BUFFER_RANGE,
                            "%" PRIu64 " bytes at offset %" PRIu64 " are outside the buffer's %" PRIu64, c->bytes,
                            c->buffer_at, size);
    if (c->to_buffer && c->buffer->read_only)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "tensors of files are shared and read-only; copy to a buffer of Memory.Allocate");
    return ngd_shared_check_range(c->shared, c->shared_at, c->bytes, diag);
}

static void copy_request(struct ngd_call *call, const void *msg)
{
    struct copy *c = ngd_arena_calloc(&call->life, 1, sizeof(*c));
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (c) {
        c->call = call;
        call->state = c;
        status = find_both(c, msg, &diag);
    }
    if (status == NGD_OK)
        status = check_copy(c, &diag);
    if (status != NGD_OK) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    if (c->bytes <= AT_ONCE) {
        copy_pieces(c);
        answer_copy(c);
        return;
    }
    atomic_store(&c->left, WORKERS);
    for (int i = 0; i < WORKERS; i++)
        c->workers[i] = (struct copy_worker){.job.fn = run_worker, .copy = c};
    for (int i = 0; i < WORKERS; i++) /* the call lives until the last of them has answered it */
        ngd_jobs_add_for(call->daemon->copies, &c->workers[i].job, call->identity->key);
}

static void copy_release(struct ngd_call *call)
{
    struct copy *c = call->state;

    call->state = NULL;
    if (!c)
        return;
    ngd_object_unref(c->shared ? &c->shared->base : NULL);
    ngd_object_unref(c->buffer ? &c->buffer->base : NULL);
}

const struct ngd_rpc_ops ngd_rpc_memory_copy = {.request = copy_request, .release = copy_release};
