/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TRACE_CONTEXT_H
#define NGD_DAEMON_TRACE_CONTEXT_H

/*
 * W3C trace context: which trace a call belongs to, as its client says (metadata traceparent and tracestate, or the
 * field trace_parent of a message). What is not well formed is ignored, as the recommendation asks: a trace must not
 * make a call fail.
 *
 * Pure: no allocation. Threads: any.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NGD_TRACE_ID           16
#define NGD_SPAN_ID            8
#define NGD_TRACE_PARENT_TEXT  55                               /* characters of version 00 */
#define NGD_TRACE_PARENT_BYTES (NGD_TRACE_ID + NGD_SPAN_ID + 1) /* trace id, span id, flags */
#define NGD_TRACE_STATE_MAX    512                              /* bytes of a tracestate; longer ones are left out */

struct ngd_trace_context {
    uint8_t trace[NGD_TRACE_ID], span[NGD_SPAN_ID]; /* neither is all zero */
    bool sampled;
    char state[NGD_TRACE_STATE_MAX + 1]; /* "" if there is none */
};

/* Reads a traceparent, "00-<32 hex>-<16 hex>-<2 hex>", or one of a later version. The state is "". False: it is not
 * well formed; *context_p is not complete then. */
bool ngd_trace_context_parse(const char *text, size_t n, struct ngd_trace_context *context_p);
/* Reads the same from the field trace_parent of a message. */
bool ngd_trace_context_unpack(const uint8_t *data, size_t n, struct ngd_trace_context *context_p);
/* Adds a value of metadata tracestate; several make one list. False: it is too long or has other characters than
 * printable ones. The state is "" then. */
bool ngd_trace_context_add_state(struct ngd_trace_context *context, const char *text, size_t n);

#endif
