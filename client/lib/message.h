/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_MESSAGE_H
#define NPUGRAPH_CLIENT_MESSAGE_H

/* Between protobuf-c's messages and gRPC's bytes. */
#include "client/lib/npugraph.h"
#include <google/protobuf-c/protobuf-c.h>

#define NPUGRAPH__MAX_MESSAGE (64 << 20) /* in both directions */

struct grpc_byte_buffer;
struct grpc_metadata;

/* The caller destroys the buffer. */
int npugraph__pack(const ProtobufCMessage *message, struct grpc_byte_buffer **buffer_p, struct npugraph_error *err);
/* The caller frees the message with npugraph__free_message. */
int npugraph__unpack(struct grpc_byte_buffer *buffer, const ProtobufCMessageDescriptor *type,
                     ProtobufCMessage **message_p, struct npugraph_error *err);

/* Adds the metadata of the thread's trace context. Returns their number, at most 2. */
size_t npugraph__put_trace(struct grpc_metadata *md);
/* Drops the values of metadata, once the batch that has them has started. */
void npugraph__drop_metadata(const struct grpc_metadata *md, size_t n);

#endif
