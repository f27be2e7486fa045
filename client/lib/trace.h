/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_TRACE_H
#define NPUGRAPH_CLIENT_TRACE_H

/* The trace context of the calling thread, which its calls carry (npugraph_trace_context). */
#include "client/lib/npugraph.h"
#include <protobuf-c/protobuf-c.h>

#define NPUGRAPH__TRACE_PARENT 55
#define NPUGRAPH__TRACE_STATE  512
#define NPUGRAPH__TRACE_PACKED 25

struct npugraph__trace {
    char parent[NPUGRAPH__TRACE_PARENT + 1], state[NPUGRAPH__TRACE_STATE + 1]; /* state: "" if there is none */
    uint8_t packed[NPUGRAPH__TRACE_PACKED];                                    /* as the field trace_parent has it */
};

/* NULL: there is none. Valid until the thread's next npugraph_trace_context. */
const struct npugraph__trace *npugraph__trace(void);
/* Returns the field trace_parent of a message of a stream, whose metadata went with its first one. */
static inline ProtobufCBinaryData npugraph__trace_field(void)
{
    const struct npugraph__trace *trace = npugraph__trace();

    return trace != NULL ? (ProtobufCBinaryData){sizeof(trace->packed), (uint8_t *)(uintptr_t)trace->packed}
                         : (ProtobufCBinaryData){0};
}

#endif
