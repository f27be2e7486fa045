/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_WIRE_H
#define NGD_DAEMON_RPC_WIRE_H

/*
 * Reads and writes the protobuf wire format by hand, where generated code would copy or cannot point into a message:
 * replays, uploads, descriptors. All that is read is checked against its bounds. Pure functions.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { NGD_WIRE_VARINT = 0, NGD_WIRE_FIXED64 = 1, NGD_WIRE_BYTES = 2, NGD_WIRE_FIXED32 = 5 };

struct ngd_wire_reader {
    const uint8_t *p, *end;
    bool bad; /* the bytes are not a message; reading has stopped */
};
struct ngd_wire_field {
    uint32_t number;
    uint32_t type;
    uint64_t value;      /* VARINT, FIXED64, FIXED32 */
    const uint8_t *data; /* BYTES */
    size_t n;
};

static inline void ngd_wire_reader_init(struct ngd_wire_reader *r, const void *data, size_t n)
{
    r->p = data;
    r->end = r->p + n;
    r->bad = false;
}
/* Reads the next field. False at the end, or if r->bad. Groups are refused: proto3 has none. */
bool ngd_wire_next(struct ngd_wire_reader *r, struct ngd_wire_field *field_p);
/* Reads one varint of a packed field. False at the end, or if r->bad. */
bool ngd_wire_varint(struct ngd_wire_reader *r, uint64_t *value_p);

static inline size_t ngd_wire_varint_size(uint64_t v)
{
    size_t n = 1;

    while (v >= 0x80) {
        v >>= 7;
        n++;
    }
    return n;
}
static inline uint8_t *ngd_wire_put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}
/* Only for field numbers below 16, which all messages written by hand have. */
static inline uint8_t *ngd_wire_put_tag(uint8_t *p, uint32_t number, uint32_t type)
{
    *p++ = (uint8_t)(number << 3 | type);
    return p;
}
/* Writes nothing for 0, as proto3 does. */
static inline uint8_t *ngd_wire_put_u64(uint8_t *p, uint32_t number, uint64_t v)
{
    return v ? ngd_wire_put_varint(ngd_wire_put_tag(p, number, NGD_WIRE_VARINT), v) : p;
}
static inline uint8_t *ngd_wire_put_i32(uint8_t *p, uint32_t number, int32_t v)
{
    return ngd_wire_put_u64(p, number, (uint64_t)(int64_t)v);
}
/* Writes tag and length; the caller fills in the bytes after them. */
static inline uint8_t *ngd_wire_put_bytes_head(uint8_t *p, uint32_t number, uint64_t n)
{
    return ngd_wire_put_varint(ngd_wire_put_tag(p, number, NGD_WIRE_BYTES), n);
}
static inline uint8_t *ngd_wire_put_bytes(uint8_t *p, uint32_t number, const void *data, size_t n)
{
    p = ngd_wire_put_bytes_head(p, number, n);
    memcpy(p, data, n);
    return p + n;
}
#define NGD_WIRE_U64_MAX 11 /* tag and value */

#endif
