/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/load_origin.h"
#include "base/file_id.h"
#include "base/le.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "proto/handover.pb-c.h"

/* Fills what was done with the tensor. The order of columns goes to `order`, which the caller frees. */
static void put_slice(const struct ngd_load_slice *s, struct ngd_strbuf *order, Npugraph__Handover__V1__Origin *o)
{
    o->sliced = true;
    o->dim = s->dim;
    o->begin = s->begin;
    o->end = s->end;
    o->change = (uint32_t)ngd_change_value(s->change);
    o->shape = (int64_t *)(uintptr_t)s->whole;
    o->n_shape = s->rank;
    for (size_t i = 0; s->order && i < s->n_order; i++)
        ngd_le_put(order, (uint32_t)s->order[i], 4);
    o->order = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)ngd_strbuf_str(order), .len = order->len};
}

static bool digest_origin(Npugraph__Handover__V1__Origin o, const struct ngd_file_id *file, struct ngd_digest *digest_p)
{
    struct {
        uint64_t size;
        int64_t mtime;
    } same = {file->size, file->mtime};
    uint8_t *packed;

    o.path = (char *)(uintptr_t)protobuf_c_empty_string;
    o.file = (ProtobufCBinaryData){.data = (uint8_t *)&same, .len = sizeof(same)};
    packed = ngd_malloc(npugraph__handover__v1__origin__get_packed_size(&o) + 1);
    if (!packed)
        return false;
    ngd_digest_of(packed, npugraph__handover__v1__origin__pack(&o, packed), digest_p);
    ngd_free(packed);
    return true;
}

void ngd_load_origin_note(const struct ngd_load *load, const struct ngd_file_id *file, const struct ngd_loaded *t,
                          struct ngd_buffer *buffer)
{
    Npugraph__Handover__V1__Origin o = NPUGRAPH__HANDOVER__V1__ORIGIN__INIT;
    struct ngd_load_origin *origin = NULL;
    struct ngd_digest contents;
    struct ngd_strbuf order;

    ngd_strbuf_init(&order);
    o.path = (char *)(uintptr_t)load->path;
    o.tensor = t->tensor->name;
    o.file = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)file, .len = sizeof(*file)};
    if (t->slice)
        put_slice(t->slice, &order, &o);
    if (!order.failed && digest_origin(o, file, &contents))
        origin = ngd_malloc(sizeof(*origin) + npugraph__handover__v1__origin__get_packed_size(&o));
    if (origin) {
        origin->contents = contents;
        origin->n = npugraph__handover__v1__origin__pack(&o, origin->packed);
        ngd_buffer_set_origin(buffer, origin);
    }
    ngd_strbuf_fini(&order);
}
