/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_WIRE_CHECK_H
#define NGD_DAEMON_WIRE_CHECK_H

/*
 * Structural check of a message before protobuf-c unpacks it.
 *
 * Why: protobuf-c takes strings that are not UTF-8 or hold zero bytes, keeps unknown fields, and allocates for each
 * two-byte element; a small message could grow a hundredfold. Here a message is counted first and refused when it
 * has more than max_fields fields in all, so that unpacking is bounded by the size limit and this count.
 */
#include "base/status.h"
#include <protobuf-c/protobuf-c.h>

#define NGD_WIRE_MAX_FIELDS (1u << 18)

ngd_status_t ngd_wire_check(const ProtobufCMessageDescriptor *desc, const void *data, size_t n, uint32_t max_fields,
                            struct ngd_diag *diag);

#endif
