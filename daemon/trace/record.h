/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TRACE_RECORD_H
#define NGD_DAEMON_TRACE_RECORD_H

/*
 * What is known of a traced call, or of a message of a stream: one span, and the spans inside it. Records are made in
 * the call's memory, and copied into the tracer's ring when the call is answered; the exporter makes spans of them.
 *
 * Threads: one at a time. Bounds: the arrays; what does not fit is left out.
 */
#include "base/clock.h"
#include "base/status.h"
#include "daemon/trace/context.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum ngd_trace_part {
#define NGD_TRACE_PART(ID, name, help) NGD_TRACE_##ID,
#include "daemon/trace/parts.def"
#undef NGD_TRACE_PART
    NGD_TRACE_PARTS
} ngd_trace_part_t;

#define NGD_TRACE_RECORD_PARTS   10
#define NGD_TRACE_RECORD_NUMBERS 10
#define NGD_TRACE_TOP            (-1) /* inside the call's own span */

struct ngd_trace_record {
    uint8_t trace[NGD_TRACE_ID], span[NGD_SPAN_ID], parent[NGD_SPAN_ID];
    bool has_parent;
    bool message;            /* of a stream */
    ngd_nsec_t begin, asked; /* asked: when the handler gave the request to the scheduler; 0: it did not */
    ngd_nsec_t end;
    const char *path; /* "/service/method", a literal */
    ngd_status_t status;
    uint64_t session; /* 0: none */
    uint32_t n_parts, n_numbers;
    struct {
        int16_t what, in; /* ngd_trace_part_t; index of the part that it is inside, or NGD_TRACE_TOP */
        ngd_nsec_t begin, end;
    } parts[NGD_TRACE_RECORD_PARTS];
    struct {
        const char *key; /* a literal */
        int64_t value;
    } numbers[NGD_TRACE_RECORD_NUMBERS];
    const char *name_key;          /* a literal: "npugraph.graph" or "npugraph.model"; NULL: none */
    char name[96], device[32];     /* of the graph or model; "" if there is none */
    uint64_t key;                  /* hash of the executable's key; 0: none */
    char identity[160], text[160]; /* text: why it failed */
    char state[NGD_TRACE_STATE_MAX + 1];
};

/* Adds a part, cut to the times of what it is inside; the record's own part ends now. Returns its index; -1: there is
 * no room, or it took no time. */
int ngd_trace_record_part(struct ngd_trace_record *record, ngd_trace_part_t what, int in, ngd_nsec_t begin,
                          ngd_nsec_t end);
/* Notes that the request is given to the scheduler. NULL does nothing. */
static inline void ngd_trace_record_asked(struct ngd_trace_record *record)
{
    if (record)
        record->asked = ngd_now();
}
void ngd_trace_record_number(struct ngd_trace_record *record, const char *key, int64_t value);
/* key: a literal, "npugraph.graph" or "npugraph.model". */
void ngd_trace_record_name(struct ngd_trace_record *record, const char *key, const char *name);
const char *ngd_trace_part_name(ngd_trace_part_t what);
/* Copies text, cut between two characters. */
void ngd_trace_copy_text(char *to, size_t room, const char *text);

#endif
