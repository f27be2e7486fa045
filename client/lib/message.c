/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/message.h"
#include "client/lib/error.h"
#include "client/lib/trace.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpc/status.h>

int npugraph__pack(const ProtobufCMessage *message, struct grpc_byte_buffer **buffer_p, struct npugraph_error *err)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    grpc_slice slice;

    if (n > NPUGRAPH__MAX_MESSAGE)
        return npugraph__error(err, GRPC_STATUS_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE",
                               "a message of %zu bytes is larger than %d; write large tensors to a buffer", n,
                               NPUGRAPH__MAX_MESSAGE);
    slice = grpc_slice_malloc(n);
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    *buffer_p = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return 0;
}

int npugraph__unpack(struct grpc_byte_buffer *buffer, const ProtobufCMessageDescriptor *type,
                     ProtobufCMessage **message_p, struct npugraph_error *err)
{
    grpc_byte_buffer_reader reader;
    grpc_slice all;

    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return npugraph__error(err, GRPC_STATUS_INTERNAL, "MALFORMED_MESSAGE",
                               "the daemon's answer could not be decompressed");
    all = grpc_byte_buffer_reader_readall(&reader);
    *message_p = protobuf_c_message_unpack(type, NULL, GRPC_SLICE_LENGTH(all), GRPC_SLICE_START_PTR(all));
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    if (*message_p == NULL)
        return npugraph__error(err, GRPC_STATUS_INTERNAL, "MALFORMED_MESSAGE", "the daemon's answer is not a valid %s",
                               type->name);
    return 0;
}

size_t npugraph__put_trace(struct grpc_metadata *md)
{
    const struct npugraph__trace *trace = npugraph__trace();
    size_t n = 0;

    if (trace == NULL)
        return 0;
    md[n].key = grpc_slice_from_static_string("traceparent");
    md[n++].value = grpc_slice_from_copied_string(trace->parent);
    if (trace->state[0] != '\0') {
        md[n].key = grpc_slice_from_static_string("tracestate");
        md[n++].value = grpc_slice_from_copied_string(trace->state);
    }
    return n;
}

void npugraph__drop_metadata(const struct grpc_metadata *md, size_t n)
{
    for (size_t i = 0; i < n; i++)
        grpc_slice_unref(md[i].value);
}
