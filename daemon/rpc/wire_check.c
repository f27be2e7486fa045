/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/wire_check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "daemon/wire.h"
#include "proto/handover.pb-c.h"
#include "proto/inference.pb-c.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include <inttypes.h>
#include <string.h>

/* Our messages nest at most four deep, but a recursive type of the schema must end somewhere. */
#define MAX_DEPTH          16
/* Most fields of one message's descriptor; no request has half as many. */
#define MAX_MESSAGE_FIELDS 64
#define VARINT_BYTES       10

static const struct {
    const ProtobufCMessageDescriptor *desc;
    uint32_t number, most;
} bounds[] = {
#define NGD_WIRE_BOUND(ID, message, number, most) {&message##__descriptor, number, most},
#include "daemon/rpc/wire_bounds.def"
#undef NGD_WIRE_BOUND
};

uint32_t ngd_wire_most(const ProtobufCMessageDescriptor *desc, uint32_t number)
{
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (bounds[i].desc == desc && bounds[i].number == number)
            return bounds[i].most;
    return 0;
}

uint32_t ngd_wire_count(const struct ngd_wire_field *field, bool is_packed, uint32_t most)
{
    uint32_t n = 0;

    if (field->type != NGD_WIRE_BYTES || !is_packed)
        return 1;
    if (field->n / VARINT_BYTES > most)
        return most + 1; /* even in the longest encoding */
    for (size_t i = 0; i < field->n; i++)
        n += !(field->data[i] & 0x80);
    return n;
}

/* Counts the elements of one repeated field against its bound. left[]: for each field of this message, how many
 * elements it may still have, plus 1; 0: the field has not occurred yet. */
static ngd_status_t count_repeated(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *fd,
                                   const struct ngd_wire_field *field, uint32_t left[MAX_MESSAGE_FIELDS],
                                   struct ngd_diag *diag)
{
    size_t at = (size_t)(fd - desc->fields);
    bool is_packed =
        fd->type != PROTOBUF_C_TYPE_STRING && fd->type != PROTOBUF_C_TYPE_BYTES && fd->type != PROTOBUF_C_TYPE_MESSAGE;
    uint32_t most = ngd_wire_most(desc, field->number), n = ngd_wire_count(field, is_packed, most);

    if (at < MAX_MESSAGE_FIELDS && left[at] == 0)
        left[at] = most + 1;
    if (at >= MAX_MESSAGE_FIELDS || n >= left[at])
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%s.%s has more than %u elements, which is the limit",
                            desc->short_name, fd->name, most);
    left[at] -= n;
    return NGD_OK;
}

/* True if eight bytes are all ASCII and none is zero. This speeds up texts of graphs, which have millions of
 * characters. */
static bool is_plain_ascii(const char *s)
{
    uint64_t v;

    memcpy(&v, s, sizeof(v));
    return ((v | (v - UINT64_C(0x0101010101010101))) & UINT64_C(0x8080808080808080)) == 0;
}

static ngd_status_t check_string(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *fd,
                                 const struct ngd_wire_field *field, struct ngd_diag *diag)
{
    const char *s = (const char *)field->data;

    for (size_t at = 0; at < field->n;) {
        size_t step;

        if (field->n - at >= sizeof(uint64_t) && is_plain_ascii(s + at)) {
            at += sizeof(uint64_t);
            continue;
        }
        step = s[at] == '\0' ? 0 : ngd_utf8_step(s + at, field->n - at);
        if (step == 0)
            return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE,
                                "%s.%s is not UTF-8 text without zero bytes (at byte %zu)", desc->short_name, fd->name,
                                at);
        at += step;
    }
    return NGD_OK;
}

static bool enum_has(const ProtobufCEnumDescriptor *desc, uint64_t value)
{
    const int64_t v = (int64_t)value; /* negative values are sent as 64 bits */

    return v >= INT32_MIN && v <= INT32_MAX && protobuf_c_enum_descriptor_get_value(desc, (int)v) != NULL;
}

static ngd_status_t refuse_enum(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *fd,
                                uint64_t value, struct ngd_diag *diag)
{
    const ProtobufCEnumDescriptor *values = fd->descriptor;
    struct ngd_strbuf sb;
    ngd_status_t status;

    ngd_strbuf_init(&sb);
    for (unsigned i = 0; i < values->n_values; i++)
        ngd_strbuf_printf(&sb, "%s%d (%s)", i ? ", " : "", values->values[i].value,
                          ngd_word_of(values, values->values[i].value).text);
    status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%s.%s is %" PRId64 "; allowed: %s", desc->short_name,
                          fd->name, (int64_t)value, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return status;
}

static ngd_status_t check_enum(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *fd,
                               const struct ngd_wire_field *field, struct ngd_diag *diag)
{
    struct ngd_wire_reader r;
    uint64_t value = field->value;
    bool has = true;

    if (field->type == NGD_WIRE_VARINT)
        return enum_has(fd->descriptor, value) ? NGD_OK : refuse_enum(desc, fd, value, diag);
    ngd_wire_reader_init(&r, field->data, field->n); /* packed; check_packed finds an element that is cut off */
    while (has && ngd_wire_varint(&r, &value))
        has = enum_has(fd->descriptor, value);
    return has ? NGD_OK : refuse_enum(desc, fd, value, diag);
}

ngd_status_t ngd_wire_check_enum(const ProtobufCMessageDescriptor *desc, const char *field, uint64_t value,
                                 struct ngd_diag *diag)
{
    const ProtobufCFieldDescriptor *fd = protobuf_c_message_descriptor_get_field_by_name(desc, field);

    return enum_has(fd->descriptor, value) ? NGD_OK : refuse_enum(desc, fd, value, diag);
}

static bool type_fits(const ProtobufCFieldDescriptor *fd, uint32_t type)
{
    uint32_t want;

    switch (fd->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return type == NGD_WIRE_BYTES;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        want = NGD_WIRE_FIXED32;
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        want = NGD_WIRE_FIXED64;
        break;
    default:
        want = NGD_WIRE_VARINT;
        break;
    }
    return type == want || (fd->label == PROTOBUF_C_LABEL_REPEATED && type == NGD_WIRE_BYTES); /* packed */
}

/* Takes n from `left`. False: less is left. */
static bool take_elements(uint32_t *left, size_t n)
{
    if (n > *left)
        return false;
    *left -= (uint32_t)n;
    return true;
}

static ngd_status_t too_many_elements(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE, "the message has more than %u fields and elements",
                        NGD_WIRE_MAX_FIELDS);
}

/* Counts the elements of a packed field. -1: the last one is cut off. */
static int64_t count_packed(const ProtobufCFieldDescriptor *fd, const struct ngd_wire_field *field)
{
    size_t size = type_fits(fd, NGD_WIRE_FIXED32) ? 4 : type_fits(fd, NGD_WIRE_FIXED64) ? 8 : 0;
    struct ngd_wire_reader r;
    uint64_t value;
    int64_t n = 0;

    if (size)
        return field->n % size ? -1 : (int64_t)(field->n / size);
    ngd_wire_reader_init(&r, field->data, field->n);
    while (ngd_wire_varint(&r, &value))
        n++;
    return r.bad ? -1 : n;
}

static ngd_status_t check_packed(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *fd,
                                 const struct ngd_wire_field *field, uint32_t *left, struct ngd_diag *diag)
{
    int64_t n = count_packed(fd, field);

    if (n < 0)
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "%s.%s ends within an element", desc->short_name,
                            fd->name);
    return take_elements(left, (size_t)n) ? NGD_OK : too_many_elements(diag);
}

static ngd_status_t check_message(const ProtobufCMessageDescriptor *desc, const void *data, size_t n, uint32_t *left,
                                  unsigned depth, struct ngd_diag *diag)
{
    struct ngd_wire_reader r;
    struct ngd_wire_field field;
    uint32_t repeated[MAX_MESSAGE_FIELDS] = {0};

    if (depth > MAX_DEPTH)
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "%s is nested more than %d deep", desc->short_name,
                            MAX_DEPTH);
    ngd_wire_reader_init(&r, data, n);
    while (ngd_wire_next(&r, &field)) {
        const ProtobufCFieldDescriptor *fd = protobuf_c_message_descriptor_get_field(desc, field.number);
        ngd_status_t status = NGD_OK;

        if (!take_elements(left, 1))
            return too_many_elements(diag);
        if (!fd)
            continue; /* a field of a newer client */
        if (!type_fits(fd, field.type))
            return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE,
                                "%s.%s has wire type %u, which its type does not allow", desc->short_name, fd->name,
                                field.type);
        if (fd->label == PROTOBUF_C_LABEL_REPEATED)
            status = count_repeated(desc, fd, &field, repeated, diag);
        if (status == NGD_OK && fd->type == PROTOBUF_C_TYPE_ENUM)
            status = check_enum(desc, fd, &field, diag);
        if (status == NGD_OK && fd->type == PROTOBUF_C_TYPE_STRING)
            status = check_string(desc, fd, &field, diag);
        else if (status == NGD_OK && fd->type == PROTOBUF_C_TYPE_MESSAGE)
            status = check_message(fd->descriptor, field.data, field.n, left, depth + 1, diag);
        else if (status == NGD_OK && fd->type != PROTOBUF_C_TYPE_BYTES && field.type == NGD_WIRE_BYTES)
            status = check_packed(desc, fd, &field, left, diag);
        if (status != NGD_OK)
            return status;
    }
    if (r.bad)
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "%s is not a valid protobuf message", desc->short_name);
    return NGD_OK;
}

ngd_status_t ngd_wire_check(const ProtobufCMessageDescriptor *desc, const void *data, size_t n, uint32_t max_fields,
                            struct ngd_diag *diag)
{
    uint32_t left = max_fields;

    return check_message(desc, data, n, &left, 0, diag);
}

/* ---- unpacking ------------------------------------------------------------------------------------------- */

static void *unpack_alloc(void *arena, size_t n)
{
    return ngd_arena_alloc(arena, n);
}

static void unpack_free(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

ngd_status_t ngd_wire_unpack(const ProtobufCMessageDescriptor *desc, const void *data, size_t n,
                             struct ngd_arena *arena, const void **msg_p, struct ngd_diag *diag)
{
    ProtobufCAllocator allocator = {unpack_alloc, unpack_free, arena};
    ngd_status_t status = ngd_wire_check(desc, data, n, NGD_WIRE_MAX_FIELDS, diag);
    const void *msg;

    if (status != NGD_OK)
        return status;
    msg = protobuf_c_message_unpack(desc, &allocator, n, data);
    if (!msg) /* a message that passed the check unpacks unless memory runs out (tests/fuzz/fuzz_request.c) */
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a message");
    *msg_p = msg;
    return NGD_OK;
}
