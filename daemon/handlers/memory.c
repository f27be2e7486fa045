/* SPDX-License-Identifier: Apache-2.0 */
/* Memory.Allocate, Write, Read, Free, ListBuffers. Loads are in load.c. */
#include "base/lock.h"
#include "base/tsan.h"
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "daemon/rpc/call_job.h"
#include "daemon/session.h"
#include "daemon/wire.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES   ((uint64_t)1 << 46)
#define MAX_LABEL   128
#define CHUNK_BYTES (1u << 20)
#define OTHERS      "others" /* sum of what belongs to other identities and to the daemon */
#define AHEAD       4        /* chunks of a download that may wait to be sent */

/* ---- allocate, free ------------------------------------------------------------------------------ */

static ngd_status_t allocate_checked(struct ngd_call *call, const Npugraph__V1__AllocateRequest *q, uint64_t *id_p,
                                     struct ngd_diag *diag)
{
    struct ngd_payer *payer = ngd_identity_payer(call->identity, NGD_QUOTA_BYTES);
    struct ngd_charge charge = {0};
    struct ngd_buffer_object *o;
    struct ngd_buffer *buffer;
    struct ngd_device *dev;
    ngd_status_t status;

    if (q->bytes == 0 || q->bytes > MAX_BYTES)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "bytes must be 1 to 2^46, not %" PRIu64, q->bytes);
    if (strlen(q->label) > MAX_LABEL)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the label has %zu bytes; at most %d are allowed",
                            strlen(q->label), MAX_LABEL);
    status = ngd_sched_find_device(call->daemon->sched, q->device, &dev, diag);
    if (status == NGD_OK)
        status = ngd_charge_begin(&charge, payer, q->bytes, diag);
    if (status == NGD_OK)
        status =
            ngd_buffer_create(dev, q->bytes, NGD_BUFFER_GENERAL, q->label[0] ? q->label : "unnamed", &buffer, diag);
    if (status != NGD_OK) {
        ngd_charge_end(&charge);
        return status;
    }
    ngd_buffer_set_charge(buffer, &charge);
    o = ngd_buffer_object_create(buffer);
    if (!o)
        return NGD_ERR_NO_MEMORY;
    status = ngd_session_add(call->session, &o->base, id_p, diag);
    if (status != NGD_OK)
        ngd_object_unref(&o->base);
    return status;
}

static ngd_status_t run_allocate(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    Npugraph__V1__AllocateResponse reply = NPUGRAPH__V1__ALLOCATE_RESPONSE__INIT;
    ngd_status_t status;

    status = allocate_checked(call, msg, &reply.buffer, diag);
    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    return status;
}

static bool is_freeing(struct ngd_call *call)
{
    for (uint32_t i = 0; i < ngd_sched_n_devices(call->daemon->sched); i++)
        if (ngd_device_is_freeing(ngd_sched_device(call->daemon->sched, i)))
            return true;
    return false;
}

static void settle_devices(struct ngd_call *call)
{
    for (uint32_t i = 0; i < ngd_sched_n_devices(call->daemon->sched); i++)
        ngd_device_settle(ngd_sched_device(call->daemon->sched, i));
}

/* Allocates after memory that is being freed is free: the device, or the quota, may need it. */
static ngd_status_t run_settled_allocate(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    settle_devices(call);
    return run_allocate(call, msg, diag);
}

static void allocate_buffer(struct ngd_call *call, const void *msg)
{
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (is_freeing(call)) {
        ngd_call_job_add(call->daemon->reaper, call, msg, run_settled_allocate, 0);
        return;
    }
    status = run_allocate(call, msg, &diag);
    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_memory_allocate = {.once = true, .request = allocate_buffer};

static ngd_status_t run_freed(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    Npugraph__V1__FreeResponse reply = NPUGRAPH__V1__FREE_RESPONSE__INIT;

    (void)msg;
    (void)diag;
    settle_devices(call);
    ngd_call_reply(call, &reply.base);
    return NGD_OK;
}

/* Drops a buffer, or a shared buffer. *closing_p: its memory may be freed on the reaper's thread. */
static ngd_status_t drop_buffer(struct ngd_session *s, uint64_t id, bool *closing_p, struct ngd_diag *diag)
{
    if (ngd_session_remove(s, id, NGD_OBJECT_SHARED, NULL) != NGD_OK)
        return ngd_session_remove(s, id, NGD_OBJECT_BUFFER, diag);
    *closing_p = true;
    return NGD_OK;
}

/* Frees all buffers that exist; the first error is the answer. Freeing large memory takes long, so a thread that may
 * wait answers when it is over. */
static void free_buffers(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__FreeRequest *q = msg;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_OK;
    bool closing = false;

    for (size_t i = 0; i < q->n_buffers; i++) {
        ngd_status_t s = drop_buffer(call->session, q->buffers[i], &closing, status == NGD_OK ? &diag : NULL);

        status = status == NGD_OK ? s : status;
    }
    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
    else if (closing || is_freeing(call))
        ngd_call_job_add(call->daemon->reaper, call, NULL, run_freed, NGD_CALL_JOB_BEGUN);
    else
        run_freed(call, NULL, &diag);
}

const struct ngd_rpc_ops ngd_rpc_memory_free = {.once = true, .request = free_buffers};

/* ---- write --------------------------------------------------------------------------------------- */

struct upload {
    struct ngd_buffer_object *object; /* a reference */
    uint64_t id, bytes;
};

/* A reader over the pieces of a message. WriteRequest's fields are read by hand so that data is copied once. */
struct cursor {
    const struct ngd_piece *piece, *end;
    size_t at;
};

static size_t take_piece(struct cursor *c, const uint8_t **p, size_t want)
{
    size_t n;

    while (c->piece != c->end && c->at == c->piece->n) {
        c->piece++;
        c->at = 0;
    }
    if (c->piece == c->end)
        return 0;
    n = c->piece->n - c->at < want ? c->piece->n - c->at : want;
    *p = c->piece->data + c->at;
    c->at += n;
    return n;
}

static bool read_varint(struct cursor *c, uint64_t *value_p, bool *end_p)
{
    uint64_t v = 0;

    *end_p = false;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t *p;

        if (take_piece(c, &p, 1) == 0) {
            *end_p = shift == 0;
            return false;
        }
        v |= (uint64_t)(*p & 0x7f) << shift;
        if (!(*p & 0x80)) {
            *value_p = v;
            return true;
        }
    }
    return false;
}

static ngd_status_t malformed(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "the message is not a valid WriteRequest");
}

static ngd_status_t write_bytes(struct ngd_buffer *buffer, uint64_t offset, struct cursor *c, uint64_t n,
                                struct ngd_diag *diag)
{
    uint64_t size = ngd_buffer_bytes(buffer);

    if (n > CHUNK_BYTES)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE,
                            "the chunk has %" PRIu64 " bytes; a message may have at most 1 MiB", n);
    if (offset > size || n > size - offset)
        return ngd_diag_set(diag, NGD_ERR_BUFFER_RANGE,
                            "bytes %" PRIu64 " to %" PRIu64 " are outside the buffer's %" PRIu64, offset, offset + n,
                            size);
    while (n) {
        const uint8_t *p;
        size_t k = take_piece(c, &p, n);
        ngd_status_t status;

        if (k == 0)
            return malformed(diag);
        status = ngd_buffer_write(buffer, offset, p, k, diag);
        if (status != NGD_OK)
            return status;
        offset += k;
        n -= k;
    }
    return NGD_OK;
}

static ngd_status_t switch_buffer(struct ngd_call *call, struct upload *u, uint64_t id, struct ngd_diag *diag)
{
    struct ngd_object *o;
    ngd_status_t status;

    if (id == 0 || (u->object && id == u->id))
        return u->object ? NGD_OK
                         : ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                        "the first message of an upload must name its buffer");
    if (u->object)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "one upload writes one buffer; open another call for another buffer");
    status = ngd_session_get(call->session, id, NGD_OBJECT_BUFFER, &o, diag);
    if (status != NGD_OK)
        return status;
    u->object = ngd_container_of(o, struct ngd_buffer_object, base);
    u->id = id;
    if (u->object->read_only)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "tensors of files are shared and read-only; write to a buffer of Memory.Allocate");
    return NGD_OK;
}

/* Finds the fields of the message. Data may precede buffer and offset, so this pass finds it, and a second one copies
 * it. */
static ngd_status_t scan(struct cursor *c, uint64_t *buffer_p, uint64_t *offset_p, struct cursor *data_p,
                         uint64_t *n_data_p, struct ngd_diag *diag)
{
    bool end;
    uint64_t tag, v;

    while (read_varint(c, &tag, &end)) {
        if (!read_varint(c, &v, &end))
            return malformed(diag);
        if (tag == (1 << 3 | NGD_WIRE_VARINT)) {
            *buffer_p = v;
        } else if (tag == (2 << 3 | NGD_WIRE_VARINT)) {
            *offset_p = v;
        } else if ((tag & 7) == NGD_WIRE_BYTES) {
            if (tag >> 3 == 3) {
                *data_p = *c;
                *n_data_p = v;
            }
            while (v) {
                const uint8_t *p;
                size_t k = take_piece(c, &p, v);

                if (k == 0)
                    return malformed(diag);
                v -= k;
            }
        } else if ((tag & 7) != NGD_WIRE_VARINT) {
            return malformed(diag);
        }
    }
    return end ? NGD_OK : malformed(diag);
}

static void write_request(struct ngd_call *call, const void *msg)
{
    const struct ngd_raw_message *raw = msg;
    struct cursor c = {raw->pieces, raw->pieces + raw->n_pieces, 0}, data = c;
    uint64_t id = 0, offset = 0, n = 0;
    struct upload *u = call->state;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (!u) {
        u = ngd_arena_calloc(&call->life, 1, sizeof(*u));
        call->state = u;
        if (!u) {
            ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
            return;
        }
    }
    status = scan(&c, &id, &offset, &data, &n, &diag);
    if (status == NGD_OK)
        status = switch_buffer(call, u, id, &diag);
    if (status == NGD_OK)
        status = write_bytes(u->object->buffer, offset, &data, n, &diag);
    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
    else
        u->bytes += n;
}

static void write_done(struct ngd_call *call, bool broken)
{
    Npugraph__V1__WriteResponse reply = NPUGRAPH__V1__WRITE_RESPONSE__INIT;
    struct upload *u = call->state;

    if (broken) {
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
        return;
    }
    reply.bytes = u ? u->bytes : 0;
    ngd_call_reply(call, &reply.base);
}

static void write_release(struct ngd_call *call)
{
    struct upload *u = call->state;

    call->state = NULL;
    if (u)
        ngd_object_unref(u->object ? &u->object->base : NULL);
}

const struct ngd_rpc_ops ngd_rpc_memory_write = {
    .request = write_request, .half_closed = write_done, .release = write_release};

/* ---- read ---------------------------------------------------------------------------------------- */

struct download {
    struct ngd_buffer_object *object; /* a reference */
    uint64_t at, end;
    bool over;
};

static void release_chunk(void *user)
{
    NGD_TSAN_TAKE(user);
    ngd_object_unref(user);
}

/* Sends one chunk as ReadResponse{offset = 1, data = 2}: from where it lies, which keeps the buffer alive until then.
 */
static ngd_status_t send_in_place(struct ngd_call *call, const struct download *d, const uint8_t *from, uint64_t n)
{
    uint8_t head[3 * NGD_WIRE_U64_MAX], *p = ngd_wire_put_u64(head, 1, d->at);

    p = ngd_wire_put_bytes_head(p, 2, n);
    return ngd_call_send_borrowed(call, head, (size_t)(p - head), from, n, release_chunk,
                                  ngd_object_ref(&d->object->base));
}

/* The same for memory that the CPU cannot address: read directly into the message. */
static ngd_status_t send_copied(struct ngd_call *call, const struct download *d, uint64_t n, struct ngd_diag *diag)
{
    ngd_status_t status;
    uint8_t *begin = ngd_call_reserve(call, n + 3 * NGD_WIRE_U64_MAX, &status, diag), *p = begin;

    if (!p)
        return status;
    p = ngd_wire_put_u64(p, 1, d->at);
    p = ngd_wire_put_bytes_head(p, 2, n);
    status = ngd_buffer_read(d->object->buffer, d->at, p, n, diag);
    if (status != NGD_OK)
        return status;
    return ngd_call_send_reserved(call, (size_t)(p + n - begin));
}

static ngd_status_t send_buffer_chunk(struct ngd_call *call, struct download *d, struct ngd_diag *diag)
{
    const uint64_t n = d->end - d->at < CHUNK_BYTES ? d->end - d->at : CHUNK_BYTES;
    const uint8_t *direct = ngd_buffer_host_ptr(d->object->buffer);
    const ngd_status_t status = direct ? send_in_place(call, d, direct + d->at, n) : send_copied(call, d, n, diag);

    d->at += status == NGD_OK ? n : 0;
    return status;
}

static void pump(struct ngd_call *call)
{
    struct download *d = call->state;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_OK;

    if (!d || d->over)
        return;
    while (status == NGD_OK && d->at < d->end && ngd_call_unsent(call) < AHEAD)
        status = send_buffer_chunk(call, d, &diag);
    if (status == NGD_OK && d->at < d->end)
        return;
    d->over = true;
    if (status == NGD_OK)
        ngd_call_finish(call);
    else
        ngd_call_fail(call, status, &diag);
}

static void read_request(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ReadRequest *q = msg;
    struct download *d = ngd_arena_calloc(&call->life, 1, sizeof(*d));
    struct ngd_object *o;
    struct ngd_diag diag = {0};
    uint64_t size;
    ngd_status_t status =
        d ? ngd_session_get(call->session, q->buffer, NGD_OBJECT_BUFFER, &o, &diag) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK) {
        d->object = ngd_container_of(o, struct ngd_buffer_object, base);
        call->state = d;
        size = ngd_buffer_bytes(d->object->buffer);
        if (q->offset > size || q->bytes > size - q->offset)
            status = ngd_diag_set(&diag, NGD_ERR_BUFFER_RANGE,
                                  "bytes %" PRIu64 " to %" PRIu64 " are outside the buffer's %" PRIu64, q->offset,
                                  q->offset + q->bytes, size);
        d->at = q->offset;
        d->end = q->bytes ? q->offset + q->bytes : size;
    }
    if (status == NGD_OK) {
        pump(call);
        return;
    }
    if (d)
        d->over = true;
    ngd_call_fail(call, status, &diag);
}

static void cancel_download(struct ngd_call *call)
{
    struct download *d = call->state;

    if (d && !d->over) { /* pump and this function run on the receiving thread */
        d->over = true;
        ngd_call_fail(call, NGD_ERR_CANCELLED, NULL);
    }
}

static void release_download(struct ngd_call *call)
{
    struct download *d = call->state;

    call->state = NULL;
    if (d)
        ngd_object_unref(d->object ? &d->object->base : NULL);
}

const struct ngd_rpc_ops ngd_rpc_memory_read = {
    .request = read_request, .sent = pump, .cancelled = cancel_download, .release = release_download};

/* ---- list ---------------------------------------------------------------------------------------- */

/* A buffer of the caller's session. It finds the id of a buffer of the device. */
struct own {
    const struct ngd_device *dev;
    uint64_t generation, id, bytes;
};

struct listing {
    Npugraph__V1__ListBuffersResponse reply;
    struct ngd_arena *arena;
    const struct ngd_device *dev;
    size_t room;
    bool all;                             /* also labels and sizes of others' buffers */
    uint64_t others[NGD_BUFFER_POOL + 1]; /* bytes of others on the device, by kind */
    bool counting;
    struct own *own;
    size_t n_own, own_room;
};

static void take_own(void *ctx, uint64_t id, struct ngd_object *object)
{
    struct listing *l = ctx;
    struct ngd_buffer *buffer;

    if (object->kind != NGD_OBJECT_BUFFER || l->n_own == l->own_room)
        return;
    buffer = ngd_container_of(object, struct ngd_buffer_object, base)->buffer;
    l->own[l->n_own++] =
        (struct own){ngd_buffer_device(buffer), ngd_buffer_generation(buffer), id, ngd_buffer_bytes(buffer)};
}

static int by_generation(const void *a, const void *b)
{
    const struct own *x = a, *y = b;

    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return x->generation < y->generation ? -1 : x->generation > y->generation;
}

static bool list_own(struct ngd_call *call, struct listing *l)
{
    struct ngd_session_info info;

    if (!call->session)
        return true;
    ngd_session_info(call->session, &info);
    l->own_room = info.objects[NGD_OBJECT_BUFFER];
    l->own = ngd_arena_calloc(&call->life, l->own_room + 1, sizeof(*l->own));
    if (!l->own)
        return false;
    ngd_session_for_each(call->session, take_own, l);
    qsort(l->own, l->n_own, sizeof(*l->own), by_generation);
    return true;
}

static void list_buffer(void *ctx, const char *label, ngd_buffer_kind_t kind, uint64_t bytes, uint64_t generation)
{
    static const Npugraph__V1__BufferKind kinds[] = {[NGD_BUFFER_GENERAL] = NGD_PB(BUFFER_KIND, GENERAL),
                                                     [NGD_BUFFER_WEIGHTS] = NGD_PB(BUFFER_KIND, WEIGHTS),
                                                     [NGD_BUFFER_KV] = NGD_PB(BUFFER_KIND, KV),
                                                     [NGD_BUFFER_POOL] = NGD_PB(BUFFER_KIND, POOL)};
    struct listing *l = ctx;
    struct own key = {.dev = l->dev, .generation = generation};
    const struct own *own;
    Npugraph__V1__BufferInfo *info;

    if (l->counting) {
        l->room++;
        return;
    }
    if (l->reply.n_buffers == l->room || !(info = ngd_arena_calloc(l->arena, 1, sizeof(*info))))
        return;
    own = l->n_own ? bsearch(&key, l->own, l->n_own, sizeof(key), by_generation) : NULL;
    if (!own && !l->all && strcmp(label, OTHERS) != 0) {
        l->others[kind] += bytes;
        return;
    }
    npugraph__v1__buffer_info__init(info);
    info->buffer = own ? own->id : 0;
    info->label = ngd_arena_strdup(l->arena, label);
    info->kind = kinds[kind];
    info->bytes = own ? own->bytes : bytes;
    info->device = (char *)(uintptr_t)ngd_device_info(l->dev)->name;
    if (info->label)
        l->reply.buffers[l->reply.n_buffers++] = info;
}

static void list_devices(struct ngd_daemon *d, struct listing *l)
{
    for (uint32_t i = 0; i < ngd_sched_n_devices(d->sched); i++) {
        struct ngd_device *dev = ngd_sched_device(d->sched, i);

        l->dev = dev;
        memset(l->others, 0, sizeof(l->others));
        ngd_device_for_each_buffer(dev, list_buffer, l);
        for (int kind = 0; kind <= NGD_BUFFER_POOL; kind++)
            if (l->counting || l->others[kind])
                list_buffer(l, OTHERS, (ngd_buffer_kind_t)kind, l->others[kind], 0);
    }
}

static void list_buffers(struct ngd_call *call, const void *msg)
{
    struct listing l = {.reply = NPUGRAPH__V1__LIST_BUFFERS_RESPONSE__INIT,
                        .arena = &call->life,
                        .all = call->identity->admin,
                        .counting = true};

    (void)msg;
    list_devices(call->daemon, &l);
    l.counting = false;
    l.reply.buffers = ngd_arena_calloc(&call->life, l.room + 1, sizeof(*l.reply.buffers));
    if (!l.reply.buffers || !list_own(call, &l)) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    list_devices(call->daemon, &l);
    ngd_call_reply(call, &l.reply.base);
}

const struct ngd_rpc_ops ngd_rpc_memory_list = {.request = list_buffers};
