/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_REPLAY_TRACE_H
#define NGD_DAEMON_HANDLERS_REPLAY_TRACE_H

/* Fills the record of a traced call with what the scheduler says of its request. */
#include "daemon/trace/record.h"
#include "scheduler/run/sched.h"

/* Adds the spans of a request that is done, or was refused (submitted is 0). */
void ngd_replay_trace(struct ngd_trace_record *record, const struct ngd_request *req,
                      const struct ngd_request_times *times);
/* Adds the span of a capture that ended at `end`, inside the part `in`. */
void ngd_capture_trace(struct ngd_trace_record *record, int in, ngd_nsec_t begin, ngd_nsec_t end, ngd_nsec_t passes,
                       ngd_nsec_t plan);

#endif
