/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: buffers, uploads, downloads, checkpoint files. */
#include "client/lib/chunk.h"
#include "client/lib/client_int.h"
#include "client/lib/shared.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES  (1u << 20) /* the protocol's limit per message */
#define COPIER_LEAST (8u << 20) /* bytes of a download that are worth a thread */

static bool is_device(const Npugraph__V1__DeviceInfo *d, size_t number, const char *name)
{
    char digits[24];

    snprintf(digits, sizeof(digits), "%zu", number);
    return strcmp(d->name, name) == 0 || strcmp(digits, name) == 0;
}

/* Returns the number of the device; n_devices if there is none. The default one is the daemon's: the first healthy one,
 * or the first if none is. */
static size_t find_device_info(const Npugraph__V1__DevicesResponse *r, const char *name)
{
    const bool any = name == NULL || *name == '\0';
    size_t i = 0;

    while (i < r->n_devices && !(any ? r->devices[i]->state == NPUGRAPH__V1__DEVICE_STATE__DEVICE_STATE_HEALTHY
                                     : is_device(r->devices[i], i, name)))
        i++;
    return any && i == r->n_devices ? 0 : i;
}

int npugraph_device_find(struct npugraph_client *client, const char *device, struct npugraph_device *device_p,
                         struct npugraph_error *err)
{
    Npugraph__V1__DevicesRequest req = NPUGRAPH__V1__DEVICES_REQUEST__INIT;
    const Npugraph__V1__DevicesResponse *r;
    ProtobufCMessage *reply = NULL;
    int rc = npugraph__unary_again(client, "/npugraph.v1.Admin/Devices", &req.base,
                                   &npugraph__v1__devices_response__descriptor, &reply, err);
    size_t i;

    if (rc != 0)
        return rc;
    r = (const Npugraph__V1__DevicesResponse *)reply;
    i = find_device_info(r, device);
    if (i < r->n_devices) {
        const Npugraph__V1__DeviceInfo *d = r->devices[i];

        *device_p = (struct npugraph_device){.memory_bytes = d->memory_bytes,
                                             .used_bytes = d->used_bytes,
                                             .kv_block = d->kv_block,
                                             .padding_block = d->padding_block};
        snprintf(device_p->name, sizeof(device_p->name), "%s", d->name);
        snprintf(device_p->backend, sizeof(device_p->backend), "%s", d->backend);
        snprintf(device_p->no_decoder, sizeof(device_p->no_decoder), "%s", d->no_decoder);
    } else {
        rc = npugraph__error(err, 5, "NOT_FOUND", "there is no device \"%s\"", device != NULL ? device : "");
    }
    npugraph__free_message(reply);
    return rc;
}

int npugraph_file_read(struct npugraph_client *client, const char *path, uint64_t offset, void *data, size_t room,
                       struct npugraph_file_piece *piece, struct npugraph_error *err)
{
    Npugraph__V1__ReadFileRequest req = NPUGRAPH__V1__READ_FILE_REQUEST__INIT;
    const Npugraph__V1__ReadFileResponse *r;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.path = (char *)path;
    req.offset = offset;
    rc = npugraph__unary_again(client, "/npugraph.v1.Memory/ReadFile", &req.base,
                               &npugraph__v1__read_file_response__descriptor, &reply, err);
    if (rc != 0)
        return rc;
    r = (const Npugraph__V1__ReadFileResponse *)reply;
    *piece = (struct npugraph_file_piece){r->data.len < room ? r->data.len : room, r->bytes, r->version, ""};
    if (piece->n != 0)
        memcpy(data, r->data.data, piece->n);
    if (snprintf(piece->path, sizeof(piece->path), "%s", r->path) >= (int)sizeof(piece->path))
        rc = npugraph__error(err, 3, "FILE_UNSUPPORTED", "%.500s: its path has more than 4095 bytes", path);
    npugraph__free_message(reply);
    return rc;
}

int npugraph_buffer_alloc(struct npugraph_client *client, const char *device, uint64_t bytes, const char *label,
                          uint64_t *buffer_p, struct npugraph_error *err)
{
    Npugraph__V1__AllocateRequest req = NPUGRAPH__V1__ALLOCATE_REQUEST__INIT;
    ProtobufCMessage *reply;
    int rc;

    req.bytes = bytes;
    req.label = (char *)(label != NULL ? label : "");
    req.device = (char *)(device != NULL ? device : "");
    npugraph__client_hold(client, false);
    rc = npugraph__unary_again(client, "/npugraph.v1.Memory/Allocate", &req.base,
                               &npugraph__v1__allocate_response__descriptor, &reply, err);
    if (rc != 0)
        return rc;
    *buffer_p = ((Npugraph__V1__AllocateResponse *)reply)->buffer;
    npugraph__free_message(reply);
    return 0;
}

static int send_chunks(struct npugraph__stream *st, uint64_t buffer, uint64_t offset, const void *data, uint64_t bytes,
                       struct npugraph_error *err)
{
    Npugraph__V1__WriteRequest req = NPUGRAPH__V1__WRITE_REQUEST__INIT;
    int rc = 0;

    req.buffer = buffer;
    for (uint64_t done = 0; rc == 0 && (done < bytes || done == 0); done += req.data.len) {
        req.offset = offset + done;
        req.data.data = (uint8_t *)data + done;
        req.data.len = bytes - done < CHUNK_BYTES ? (size_t)(bytes - done) : CHUNK_BYTES;
        rc = npugraph__stream_send(st, &req.base, err);
        if (bytes == 0)
            break;
    }
    return rc;
}

/* Lets the daemon copy between a buffer and a shared buffer. */
static int copy_shared(struct npugraph_client *client, uint64_t to, uint64_t to_offset, uint64_t from,
                       uint64_t from_offset, uint64_t bytes, struct npugraph_error *err)
{
    Npugraph__V1__CopyRequest req = NPUGRAPH__V1__COPY_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    req.to = to;
    req.to_offset = to_offset;
    req.from = from;
    req.from_offset = from_offset;
    req.bytes = bytes;
    rc = npugraph__unary(client, "/npugraph.v1.Memory/Copy", &req.base, &npugraph__v1__copy_response__descriptor,
                         &reply, err);
    npugraph__free_message(reply);
    return rc;
}

static int write_by_stream(struct npugraph__link *link, uint64_t buffer, uint64_t offset, const void *data,
                           uint64_t bytes, struct npugraph_error *err)
{
    struct npugraph__stream *st;
    ProtobufCMessage *reply = NULL;
    int rc = npugraph__channel_call(link->channel, "/npugraph.v1.Memory/Write", &st, err);

    if (rc != 0)
        return rc;
    rc = send_chunks(st, buffer, offset, data, bytes, err);
    if (rc == 0)
        rc = npugraph__stream_half_close(st, err);
    if (rc == 0)
        rc = npugraph__stream_recv(st, &npugraph__v1__write_response__descriptor, &reply, err);
    if (rc == 0 && (reply == NULL || ((Npugraph__V1__WriteResponse *)reply)->bytes != bytes))
        rc = npugraph__error(err, 15, "", "the daemon took fewer than %" PRIu64 " bytes", bytes);
    npugraph__free_message(reply);
    npugraph__stream_close(st);
    return rc;
}

int npugraph_buffer_write(struct npugraph_client *client, uint64_t buffer, uint64_t offset, const void *data,
                          uint64_t bytes, struct npugraph_error *err)
{
    struct npugraph__follow f = {.link = npugraph__client_home(client)};
    struct npugraph__link *link = f.link;
    struct npugraph__shared_at at;
    int rc;

    if (npugraph__shared_find(npugraph__client_shared(client), data, bytes, &at))
        return copy_shared(client, buffer, offset, at.buffer, at.offset, bytes, err);
    do {
        rc = write_by_stream(link, buffer, offset, data, bytes, &f.why);
    } while (rc != 0 && (link = npugraph__client_follow_home(client, link, &f, true)) != NULL);
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc;
}

static int read_by_stream(struct npugraph__link *link, uint64_t buffer, uint64_t offset, void *data, uint64_t bytes,
                          struct npugraph_error *err)
{
    Npugraph__V1__ReadRequest req = NPUGRAPH__V1__READ_REQUEST__INIT;
    struct npugraph__stream *st;
    struct npugraph__copier copier = {0};
    struct npugraph__download d = {.offset = offset, .bytes = bytes, .to = data, .copier = &copier};
    bool more = true;
    int rc;

    req.buffer = buffer;
    req.offset = offset;
    req.bytes = bytes;
    rc = npugraph__channel_ask(link->channel, "/npugraph.v1.Memory/Read", &req.base, &st, err);
    if (rc != 0)
        return rc;
    if (bytes >= COPIER_LEAST)
        npugraph__copier_start(&copier);
    while (rc == 0 && more)
        rc = npugraph__chunk_receive(st, &d, &more, err);
    npugraph__stream_close(st);
    if (!npugraph__copier_stop(&copier) && rc == 0)
        rc = npugraph__error(err, 13, "MALFORMED_MESSAGE", "the daemon's answer could not be decompressed");
    if (rc == 0 && d.got != bytes)
        rc = npugraph__error(err, 15, "", "the daemon sent %" PRIu64 " of %" PRIu64 " bytes", d.got, bytes);
    return rc;
}

int npugraph_buffer_read(struct npugraph_client *client, uint64_t buffer, uint64_t offset, void *data, uint64_t bytes,
                         struct npugraph_error *err)
{
    struct npugraph__follow f = {.link = npugraph__client_home(client)};
    struct npugraph__link *link = f.link;
    struct npugraph__shared_at at;
    int rc;

    if (bytes == 0)
        return 0;
    if (npugraph__shared_find(npugraph__client_shared(client), data, bytes, &at))
        return copy_shared(client, at.buffer, at.offset, buffer, offset, bytes, err);
    do {
        rc = read_by_stream(link, buffer, offset, data, bytes, &f.why);
    } while (rc != 0 && (link = npugraph__client_follow_home(client, link, &f, true)) != NULL);
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc;
}

int npugraph_buffer_free(struct npugraph_client *client, const uint64_t *buffers, size_t n, struct npugraph_error *err)
{
    Npugraph__V1__FreeRequest req = NPUGRAPH__V1__FREE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    for (size_t i = 0; i < n; i++)
        npugraph__shared_forget(npugraph__client_shared(client), buffers[i]);
    req.n_buffers = n;
    req.buffers = (uint64_t *)buffers;
    rc = npugraph__unary_again(client, "/npugraph.v1.Memory/Free", &req.base, &npugraph__v1__free_response__descriptor,
                               &reply, err);
    npugraph__free_message(reply);
    return rc;
}

/* ---- checkpoint files ----------------------------------------------------------------------------------- */

/* The public result comes first, then the message that holds its strings. */
struct tensors_box {
    struct npugraph_tensors pub;
    ProtobufCMessage *message;
};

static int box_tensors(ProtobufCMessage *m, struct npugraph_tensors **tensors_p, struct npugraph_error *err)
{
    const Npugraph__V1__LoadDone *done = ((Npugraph__V1__LoadProgress *)m)->done;
    struct tensors_box *box = calloc(1, sizeof(*box));

    if (box != NULL)
        box->pub.items = calloc(done->n_tensors + 1, sizeof(*box->pub.items));
    if (box == NULL || box->pub.items == NULL) {
        free(box);
        npugraph__free_message(m);
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    }
    box->message = m;
    box->pub.n = done->n_tensors;
    box->pub.shared = done->shared;
    for (size_t i = 0; i < done->n_tensors; i++) {
        const Npugraph__V1__LoadedTensor *t = done->tensors[i];

        box->pub.items[i] =
            (struct npugraph_tensor){t->name, t->buffer, t->dtype, t->shape, (uint32_t)t->n_shape, t->bytes};
    }
    *tensors_p = &box->pub;
    return 0;
}

void npugraph_tensors_free(struct npugraph_tensors *tensors)
{
    struct tensors_box *box = (struct tensors_box *)tensors;

    if (tensors == NULL)
        return;
    npugraph__free_message(box->message);
    free(box->pub.items);
    free(box);
}

static int follow_load(struct npugraph__stream *st, npugraph_progress_fn progress, void *user,
                       ProtobufCMessage **done_p, struct npugraph_error *err)
{
    for (;;) {
        ProtobufCMessage *m = NULL;
        const Npugraph__V1__LoadProgress *p;
        int rc = npugraph__stream_recv(st, &npugraph__v1__load_progress__descriptor, &m, err);

        if (rc != 0)
            return rc;
        if (m == NULL)
            return npugraph__error(err, 15, "", "the daemon ended the load without a result");
        p = (const Npugraph__V1__LoadProgress *)m;
        if (progress != NULL)
            progress(user, p->bytes_done, p->bytes_total);
        if (p->done != NULL) {
            *done_p = m;
            return 0;
        }
        npugraph__free_message(m);
    }
}

static int slice_messages(const struct npugraph_load *load, Npugraph__V1__TensorSlice ***list_p,
                          struct npugraph_error *err)
{
    Npugraph__V1__TensorSlice **list = calloc(load->n_slices + 1, sizeof(*list) + sizeof(Npugraph__V1__TensorSlice));
    Npugraph__V1__TensorSlice *items = (Npugraph__V1__TensorSlice *)(void *)(list + load->n_slices + 1);

    if (list == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    for (size_t i = 0; i < load->n_slices; i++) {
        const struct npugraph_slice *s = &load->slices[i];
        int change = s->change != NULL ? ngd_word_value(&npugraph__v1__tensor_change__descriptor, s->change) : 0;

        if (s->change != NULL && change == 0) {
            free(list);
            return npugraph__error(err, 3, "INVALID_ARGUMENT", "tensor %.200s: there is no change %.40s", s->name,
                                   s->change);
        }
        npugraph__v1__tensor_slice__init(&items[i]);
        items[i].name = (char *)s->name;
        items[i].dim = s->dim;
        items[i].begin = s->begin;
        items[i].end = s->end;
        items[i].shape = (int64_t *)s->shape;
        items[i].n_shape = s->rank;
        items[i].change = (Npugraph__V1__TensorChange)change;
        items[i].order.data = (uint8_t *)s->order; /* the host is little endian, as the protocol */
        items[i].order.len = s->order != NULL ? s->n_order * sizeof(*s->order) : 0;
        list[i] = &items[i];
    }
    *list_p = list;
    return 0;
}

static int load_by_stream(struct npugraph__link *link, const Npugraph__V1__LoadSafetensorsRequest *req,
                          npugraph_progress_fn progress, void *user, ProtobufCMessage **done_p,
                          struct npugraph_error *err)
{
    struct npugraph__stream *st;
    int rc = npugraph__channel_ask(link->channel, "/npugraph.v1.Memory/LoadSafetensors", &req->base, &st, err);

    if (rc != 0)
        return rc;
    rc = follow_load(st, progress, user, done_p, err);
    npugraph__stream_close(st);
    return rc;
}

int npugraph_load_safetensors(struct npugraph_client *client, const struct npugraph_load *load,
                              npugraph_progress_fn progress, void *user, struct npugraph_tensors **tensors_p,
                              struct npugraph_error *err)
{
    Npugraph__V1__LoadSafetensorsRequest req = NPUGRAPH__V1__LOAD_SAFETENSORS_REQUEST__INIT;
    struct npugraph__follow f = {0};
    struct npugraph__link *link;
    ProtobufCMessage *done = NULL;
    int rc;

    req.path = (char *)load->path;
    req.device = (char *)(load->device != NULL ? load->device : "");
    req.tensors = (char **)load->names;
    req.n_tensors = load->n_names;
    req.n_slices = load->n_slices;
    rc = slice_messages(load, &req.slices, err);
    if (rc != 0)
        return rc;
    npugraph__client_hold(client, false);
    f.link = link = npugraph__client_home(client);
    do {
        rc = load_by_stream(link, &req, progress, user, &done, &f.why);
    } while (rc != 0 && (link = npugraph__client_follow_home(client, link, &f, false)) != NULL);
    if (rc != 0 && err != NULL)
        *err = f.why;
    free(req.slices);
    return rc != 0 ? rc : box_tensors(done, tensors_p, err);
}
