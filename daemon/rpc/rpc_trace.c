/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/rpc_trace.h"

#include "daemon/rpc/call_trace.h"

/* Reads metadata traceparent. False: there is none, there are several, or it is not well formed. */
static bool read_parent(const struct rpc_call *call, struct ngd_trace_context *context)
{
    const grpc_slice *found = NULL;

    for (size_t i = 0; i < call->metadata.count; i++) {
        if (grpc_slice_str_cmp(call->metadata.metadata[i].key, "traceparent") != 0)
            continue;
        if (found)
            return false;
        found = &call->metadata.metadata[i].value;
    }
    return found &&
           ngd_trace_context_parse((const char *)GRPC_SLICE_START_PTR(*found), GRPC_SLICE_LENGTH(*found), context);
}

static void read_state(const struct rpc_call *call, struct ngd_trace_context *context)
{
    for (size_t i = 0; i < call->metadata.count; i++) {
        const grpc_slice *value = &call->metadata.metadata[i].value;

        if (grpc_slice_str_cmp(call->metadata.metadata[i].key, "tracestate") == 0 &&
            !ngd_trace_context_add_state(context, (const char *)GRPC_SLICE_START_PTR(*value),
                                         GRPC_SLICE_LENGTH(*value)))
            return;
    }
}

void rpc_trace_open(struct rpc_call *call)
{
    struct ngd_call *pub = &call->pub;
    struct ngd_trace_context context, *kept;

    if (!pub->method || !pub->identity)
        return;
    if (read_parent(call, &context)) {
        if (context.sampled)
            read_state(call, &context);
        kept = ngd_arena_alloc(&pub->life, sizeof(*kept));
        if (!kept)
            return;
        *kept = context;
        pub->trace_parent = kept;
    }
    if (pub->method->kind != NGD_RPC_LOCKSTEP && (pub->trace_parent || pub->method->class == NGD_RPC_WORK))
        ngd_call_trace_begin(pub, pub->trace_parent);
}
