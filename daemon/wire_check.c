/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/wire_check.h"
#include "base/utf8.h"
#include "daemon/wire.h"

/* No message of ours nests deeper than four; what is recursive in the schema must end somewhere. */
#define MAX_DEPTH 16

static ngd_status_t check_string(const ProtobufCMessageDescriptor *desc, const ProtobufCFieldDescriptor *fd,
                                 const struct ngd_wire_field *field, struct ngd_diag *diag)
{
    const char *s = (const char *)field->data;

    for (size_t at = 0; at < field->n;) {
        size_t step = s[at] == '\0' ? 0 : ngd_utf8_step(s + at, field->n - at);

        if (step == 0)
            return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE,
                                "%s.%s is not UTF-8 text without zero bytes (at byte %zu)", desc->short_name, fd->name,
                                at);
        at += step;
    }
    return NGD_OK;
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

static ngd_status_t check_message(const ProtobufCMessageDescriptor *desc, const void *data, size_t n, uint32_t *left,
                                  unsigned depth, struct ngd_diag *diag)
{
    struct ngd_wire_reader r;
    struct ngd_wire_field field;

    if (depth > MAX_DEPTH)
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "%s is nested more than %d deep", desc->short_name,
                            MAX_DEPTH);
    ngd_wire_reader_init(&r, data, n);
    while (ngd_wire_next(&r, &field)) {
        const ProtobufCFieldDescriptor *fd = protobuf_c_message_descriptor_get_field(desc, field.number);
        ngd_status_t status = NGD_OK;

        if ((*left)-- == 0)
            return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE, "the message has more than %u fields and elements",
                                NGD_WIRE_MAX_FIELDS);
        if (!fd)
            continue; /* of a newer client */
        if (!type_fits(fd, field.type))
            return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE,
                                "%s.%s has wire type %u, which its type does not allow", desc->short_name, fd->name,
                                field.type);
        if (fd->type == PROTOBUF_C_TYPE_STRING)
            status = check_string(desc, fd, &field, diag);
        else if (fd->type == PROTOBUF_C_TYPE_MESSAGE)
            status = check_message(fd->descriptor, field.data, field.n, left, depth + 1, diag);
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
