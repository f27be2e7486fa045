/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_SEQUENCE_TRACE_H
#define NGD_DAEMON_HANDLERS_SEQUENCE_TRACE_H

/* Fills the record of a traced call with what the scheduler says of an operation of a sequence. */
#include "daemon/trace/record.h"
#include "scheduler/model/model.h"

/* Adds the wait and the work of an open (PREFILL) or a step (DECODE) that has ended. */
void ngd_sequence_trace(struct ngd_trace_record *record, ngd_trace_part_t what, struct ngd_seq *seq,
                        const struct ngd_step_result *result);
/* Adds those of a generation: its tokens came from `first` to `last`; first is 0 if there were none. */
void ngd_generation_trace(struct ngd_trace_record *record, struct ngd_seq *seq, ngd_nsec_t first, ngd_nsec_t last,
                          uint32_t tokens, const struct ngd_split *split);

#endif
