/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TRACE_TRACE_H
#define NGD_DAEMON_TRACE_TRACE_H

/*
 * Tracing: which calls are traced, and where their records go. A ring takes the records; a thread sends them as spans
 * to a collector by OTLP over HTTP (export.h). The options are trace-endpoint, trace-sample and trace-limit.
 *
 * A call with a trace context is traced if its client sampled it. Of the others, the part trace-sample is traced, by
 * the last 56 bits of their trace ids. Each identity may have trace-limit spans a second, so that no client can
 * have everything recorded.
 *
 * Threads: any, except where said. Off, it costs one relaxed load for each call. A call that is not traced takes no
 * lock; the end of a traced one takes one, to copy its record. Bounds: NGD_TRACE_RING records wait; more are dropped
 * and counted.
 */
#include "base/lock.h"
#include "daemon/trace/post.h"
#include "daemon/trace/record.h"
#include <stdatomic.h>

#define NGD_TRACE_RING 2048

struct ngd_trace_params {
    const char *endpoint; /* "": off */
    double sample;        /* 0 to 1 */
    int64_t limit;        /* spans a second of one identity */
};

struct ngd_tracer {
    _Atomic bool on;
    _Atomic uint64_t threshold; /* a call without a context is traced if the number in its trace id is below it */
    _Atomic int64_t interval;   /* ns for each span of an identity */
    char instance[33];          /* a random id of this process */
    pthread_t thread;
    bool started;
    _Atomic int64_t until; /* when the present attempt to send must end, in ngd_clock_real() */
    struct ngd_mutex lock;
    struct ngd_cond wake, left;
    struct ngd_trace_endpoint endpoint NGD_GUARDED_BY(lock);
    struct ngd_trace_record *ring NGD_GUARDED_BY(lock); /* NULL until it is on for the first time */
    uint32_t first NGD_GUARDED_BY(lock), n NGD_GUARDED_BY(lock);
    bool stop NGD_GUARDED_BY(lock), gone NGD_GUARDED_BY(lock), left_behind NGD_GUARDED_BY(lock);
};

/* Reads the option trace-sample: a number from 0 to 1. */
bool ngd_trace_sample_parse(const char *text, double *sample_p);

/* It is off until ngd_tracer_set. */
ngd_status_t ngd_tracer_create(struct ngd_tracer **tracer_p, struct ngd_diag *diag);
/* Changes the options, which are valid. One thread at a time. Off, what waits is sent to where it was to go. NO_MEMORY,
 * RESOURCE_EXHAUSTED: it is off. */
ngd_status_t ngd_tracer_set(struct ngd_tracer *tracer, const struct ngd_trace_params *params);
/* Sends what waits, for at most NGD_TRACE_FLUSH. A thread that does not return is left behind. NULL is fine. */
void ngd_tracer_destroy(struct ngd_tracer *tracer);

static inline bool ngd_tracer_on(const struct ngd_tracer *tracer)
{
    return atomic_load_explicit(&tracer->on, memory_order_relaxed);
}

/*
 * Decides whether to trace a call or message that has the parent, or none (NULL). True: fills the beginning of a
 * record, with ids.
 */
struct ngd_trace_ids {
    uint8_t trace[NGD_TRACE_ID], span[NGD_SPAN_ID];
};
bool ngd_trace_decide(struct ngd_tracer *tracer, const struct ngd_trace_context *parent, struct ngd_trace_ids *ids_p);
/* Begins a record, whose memory has any contents. */
void ngd_trace_begin(struct ngd_trace_record *record, const struct ngd_trace_ids *ids,
                     const struct ngd_trace_context *parent, ngd_nsec_t begin);
/* Copies the record into the ring. False: it is dropped, since its identity has too many or the ring is full.
 * record->end is set. rate: the identity's, zero at first. */
bool ngd_trace_end(struct ngd_tracer *tracer, _Atomic int64_t *rate, const struct ngd_trace_record *record);

/* ---- for the exporter ---- */

void ngd_trace_make_span_id(uint8_t id[NGD_SPAN_ID]);

#endif
