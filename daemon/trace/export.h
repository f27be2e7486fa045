/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TRACE_EXPORT_H
#define NGD_DAEMON_TRACE_EXPORT_H

/*
 * The tracer's thread: takes records from the ring, and sends them to the collector in batches: when a batch is full,
 * or a second after its first record. A batch that cannot be sent is tried again, after 1, 2 and 4 seconds or as long
 * as the collector asks for, then dropped and counted. Meanwhile records wait in the ring, or are dropped there.
 */
#include "base/clock.h"
#include <stdbool.h>

struct ngd_tracer;

#define NGD_TRACE_BATCH 256           /* records */
#define NGD_TRACE_FLUSH (2 * NGD_SEC) /* the longest time that a stop waits for the thread */

void *ngd_trace_export(void *tracer); /* the thread */
/* Lets the thread send what waits and end. False: it does not return, and frees the tracer when it does. */
bool ngd_trace_export_stop(struct ngd_tracer *tracer);
void ngd_tracer_free(struct ngd_tracer *tracer);

#endif
