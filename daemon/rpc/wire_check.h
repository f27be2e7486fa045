/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_WIRE_CHECK_H
#define NGD_DAEMON_RPC_WIRE_CHECK_H

/*
 * Structural check of a message before protobuf-c unpacks it.
 *
 * Why: protobuf-c accepts strings that are not UTF-8 or contain zero bytes, keeps unknown fields, and allocates for
 * each two-byte element, so a small message could grow a hundredfold. It also takes any number for an enum, and the
 * lower 32 bits of a larger one.
 *
 * So a message is counted first, and unpacking is bounded by the size limit and these counts. A message is refused:
 * - MESSAGE_TOO_LARGE if it has more than max_fields fields and elements in all;
 * - INVALID_ARGUMENT if a repeated field has more elements than wire_bounds.def allows, or an enum field has a value
 * that the enum does not have;
 * - MALFORMED_MESSAGE if it is not a message of this type, or a string is not UTF-8 without zero bytes.
 */
#include "base/status.h"
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

struct ngd_arena;
struct ngd_wire_field;

#define NGD_WIRE_MAX_FIELDS (1u << 18)

/* The rows of wire_bounds.def, for messages that are read by hand. */
enum {
#define NGD_WIRE_BOUND(ID, message, number, most) NGD_WIRE_MOST_##ID = most,
#include "daemon/rpc/wire_bounds.def"
#undef NGD_WIRE_BOUND
};

ngd_status_t ngd_wire_check(const ProtobufCMessageDescriptor *desc, const void *data, size_t n, uint32_t max_fields,
                            struct ngd_diag *diag);

/* Checks a message of at most NGD_WIRE_MAX_FIELDS and unpacks it into the arena, which owns *msg_p. Fails also with
 * NO_MEMORY. */
ngd_status_t ngd_wire_unpack(const ProtobufCMessageDescriptor *desc, const void *data, size_t n,
                             struct ngd_arena *arena, const void **msg_p, struct ngd_diag *diag);

/* For messages that are read by hand: refuses (INVALID_ARGUMENT) a value that the enum of the field does not have. */
ngd_status_t ngd_wire_check_enum(const ProtobufCMessageDescriptor *desc, const char *field, uint64_t value,
                                 struct ngd_diag *diag);

/* For messages that are read by hand: the most elements of a repeated field (0: none), and the number of elements that
 * a field on the wire has, packed or alone. Counting stops beyond `most`. */
uint32_t ngd_wire_most(const ProtobufCMessageDescriptor *desc, uint32_t number);
uint32_t ngd_wire_count(const struct ngd_wire_field *field, bool is_packed, uint32_t most);

#endif
