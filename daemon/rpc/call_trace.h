/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_CALL_TRACE_H
#define NGD_DAEMON_RPC_CALL_TRACE_H

/*
 * The trace of a call. A call of its own is one span, from its arrival to its answer. Of a LOCKSTEP stream each message
 * is one, whose parent is what the message says, or else what the stream's metadata say.
 *
 * Threads: the call's owner. A handler whose call others may end (SERVER_STREAM, DUPLEX) takes the record from the call
 * before it adds to it, and ends it.
 */
#include "daemon/daemon.h"
#include "daemon/rpc/rpc_call.h"
#include "daemon/trace/trace.h"

/* Decides whether a call is traced, and begins its record. parent may be NULL. */
void ngd_call_trace_begin(struct ngd_call *call, const struct ngd_trace_context *parent);
/* The same for a message of a LOCKSTEP stream; data: its field trace_parent, n = 0 if it has none. */
void ngd_call_trace_message_begin(struct ngd_call *call, const uint8_t *data, size_t n);
static inline void ngd_call_trace_message(struct ngd_call *call, const uint8_t *data, size_t n)
{
    if (ngd_tracer_on(call->daemon->tracer))
        ngd_call_trace_message_begin(call, data, n);
}

/*
 * Begins the record, in the arena, of one of the requests that a DUPLEX stream has under way: a span inside the
 * stream's, if that is traced, or else a trace of its own. The handler ends it. NULL: it is not traced.
 */
struct ngd_trace_record *ngd_call_trace_request(struct ngd_call *call, struct ngd_arena *arena);

/* Notes that the message is answered with an error. Does nothing for calls that are not traced. */
void ngd_call_trace_fail(struct ngd_call *call, ngd_status_t status, const char *text);
/* Takes the record from the call; NULL: there is none. */
static inline struct ngd_trace_record *ngd_call_trace_take(struct ngd_call *call)
{
    return atomic_load_explicit(&call->trace, memory_order_relaxed) ? atomic_exchange(&call->trace, NULL) : NULL;
}
/* Ends a record that was taken from the call. now: as the call's time was counted, so that its exemplar is in the same
 * bucket. text: why the call failed. */
void ngd_call_trace_end(struct ngd_call *call, struct ngd_trace_record *record, ngd_nsec_t now, ngd_status_t status,
                        const char *text);
/* Ends the record of a message that is answered, also with an error. */
static inline void ngd_call_trace_answered(struct ngd_call *call)
{
    struct ngd_trace_record *record = ngd_call_trace_take(call);

    if (record)
        ngd_call_trace_end(call, record, ngd_now(), record->status, record->text);
}

#endif
