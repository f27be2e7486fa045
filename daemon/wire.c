/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/wire.h"

static bool fail_reader(struct ngd_wire_reader *r)
{
    r->bad = true;
    return false;
}

bool ngd_wire_varint(struct ngd_wire_reader *r, uint64_t *value_p)
{
    uint64_t v = 0;

    if (r->bad || r->p == r->end)
        return false;
    if (*r->p < 0x80) {
        *value_p = *r->p++;
        return true;
    }
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;

        if (r->p == r->end)
            return fail_reader(r);
        byte = *r->p++;
        if (shift == 63 && byte > 1)
            return fail_reader(r); /* more than 64 bits */
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value_p = v;
            return true;
        }
    }
    return fail_reader(r);
}

/* Reads a tag or a length, which has at most five bytes, as in all parsers of protobuf. */
static bool short_varint(struct ngd_wire_reader *r, uint64_t *value_p)
{
    const uint8_t *begin = r->p;

    return ngd_wire_varint(r, value_p) && r->p - begin <= 5;
}

static bool fixed(struct ngd_wire_reader *r, size_t n, uint64_t *value_p)
{
    uint64_t v = 0;

    if ((size_t)(r->end - r->p) < n)
        return fail_reader(r);
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)r->p[i] << (8 * i);
    r->p += n;
    *value_p = v;
    return true;
}

bool ngd_wire_next(struct ngd_wire_reader *r, struct ngd_wire_field *field_p)
{
    uint64_t tag, n;

    if (r->bad || r->p == r->end)
        return false;
    if (!short_varint(r, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return fail_reader(r);
    field_p->number = (uint32_t)tag >> 3;
    field_p->type = (uint32_t)tag & 7;
    field_p->data = NULL;
    field_p->n = 0;
    field_p->value = 0;
    switch (field_p->type) {
    case NGD_WIRE_VARINT:
        return ngd_wire_varint(r, &field_p->value) || fail_reader(r);
    case NGD_WIRE_FIXED64:
        return fixed(r, 8, &field_p->value);
    case NGD_WIRE_FIXED32:
        return fixed(r, 4, &field_p->value);
    case NGD_WIRE_BYTES:
        if (!short_varint(r, &n) || n > (uint64_t)(r->end - r->p))
            return fail_reader(r);
        field_p->data = r->p;
        field_p->n = (size_t)n;
        r->p += n;
        return true;
    default:
        return fail_reader(r);
    }
}
