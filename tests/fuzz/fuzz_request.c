/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: the structural check before protobuf-c unpacks a message. The first byte chooses the method. A message that
 * passes unpacks, and what was unpacked packs and unpacks again.
 */
#include "daemon/handlers/methods.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/wire.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

#define DEPTH 3 /* of messages in messages */
#define ROOM  (1 << 14)

/* A message with each field once, as bytes on the wire. */
static size_t fill(const ProtobufCMessageDescriptor *desc, uint8_t *to, size_t room, int depth)
{
    uint8_t inner[ROOM / 4], *p = to;

    for (unsigned i = 0; i < desc->n_fields && (size_t)(p - to) + sizeof(inner) + 32 < room; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];
        size_t n = 0;

        switch (f->type) {
        case PROTOBUF_C_TYPE_STRING:
        case PROTOBUF_C_TYPE_BYTES:
            p = ngd_wire_put_varint(p, (uint64_t)f->id << 3 | NGD_WIRE_BYTES);
            *p++ = 1;
            *p++ = 'a';
            break;
        case PROTOBUF_C_TYPE_MESSAGE:
            n = depth ? fill(f->descriptor, inner, sizeof(inner), depth - 1) : 0;
            p = ngd_wire_put_varint(p, (uint64_t)f->id << 3 | NGD_WIRE_BYTES);
            p = ngd_wire_put_varint(p, n);
            memcpy(p, inner, n);
            p += n;
            break;
        case PROTOBUF_C_TYPE_FLOAT:
        case PROTOBUF_C_TYPE_FIXED32:
            p = ngd_wire_put_varint(p, (uint64_t)f->id << 3 | NGD_WIRE_FIXED32);
            memset(p, 0, 4);
            p += 4;
            break;
        case PROTOBUF_C_TYPE_DOUBLE:
        case PROTOBUF_C_TYPE_FIXED64:
            p = ngd_wire_put_varint(p, (uint64_t)f->id << 3 | NGD_WIRE_FIXED64);
            memset(p, 0, 8);
            p += 8;
            break;
        default:
            p = ngd_wire_put_varint(p, (uint64_t)f->id << 3 | NGD_WIRE_VARINT);
            *p++ = 1;
        }
    }
    return (size_t)(p - to);
}

bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    static uint8_t buffer[ROOM];

    if (i >= ngd_n_methods)
        return false;
    ngd_strbuf_putc(out, (char)i);
    if (!ngd_method_is_raw(&ngd_methods[i]))
        ngd_strbuf_append_n(out, buffer, fill(ngd_methods[i].request, buffer, sizeof(buffer), DEPTH));
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct ngd_method *method;
    struct ngd_diag diag = {0};
    ProtobufCMessage *message;

    if (n == 0)
        return 0;
    method = &ngd_methods[data[0] % ngd_n_methods];
    if (ngd_method_is_raw(method))
        return 0;
    if (ngd_wire_check(method->request, data + 1, n - 1, NGD_WIRE_MAX_FIELDS, &diag) != NGD_OK) {
        fuzz_demand(diag.text[0] != '\0', "a message is refused without a diagnosis");
        return 0;
    }
    message = protobuf_c_message_unpack(method->request, NULL, n - 1, data + 1);
    fuzz_demand(message != NULL, "a message that passed does not unpack");
    fuzz_demand(protobuf_c_message_check(message), "a message that passed is incomplete");
    protobuf_c_message_free_unpacked(message, NULL);
    return 0;
}
