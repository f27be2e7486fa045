/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/sequence_trace.h"

static void trace_model(struct ngd_trace_record *record, struct ngd_seq *seq)
{
    struct ngd_model_stats model;

    ngd_model_stats(ngd_seq_model(seq), &model);
    ngd_trace_record_name(record, "npugraph.model", model.name);
}

void ngd_sequence_trace(struct ngd_trace_record *record, ngd_trace_part_t what, struct ngd_seq *seq,
                        const struct ngd_step_result *result)
{
    const ngd_nsec_t now = ngd_now();

    trace_model(record, seq);
    if (result->status != NGD_OK || !result->device)
        return;
    ngd_trace_record_part(record, NGD_TRACE_QUEUE, NGD_TRACE_TOP, record->asked, record->asked + result->queue);
    ngd_trace_record_part(record, what, NGD_TRACE_TOP, record->asked + result->queue, now);
    ngd_trace_record_number(record, "npugraph.device_ns", result->device);
    ngd_trace_record_number(record, "npugraph.sequences", result->batch);
    ngd_trace_record_number(record, "npugraph.position", result->position);
    if (what == NGD_TRACE_PREFILL)
        ngd_trace_record_number(record, "npugraph.shared_tokens", result->shared);
    else
        ngd_trace_record_number(record, "npugraph.accepted", result->accepted);
}

void ngd_generation_trace(struct ngd_trace_record *record, struct ngd_seq *seq, ngd_nsec_t first, ngd_nsec_t last,
                          uint32_t tokens, const struct ngd_split *split)
{
    trace_model(record, seq);
    ngd_trace_record_number(record, "npugraph.tokens", tokens);
    ngd_trace_record_number(record, "npugraph.queue_ns", split->part[NGD_SPLIT_QUEUE]);
    ngd_trace_record_number(record, "npugraph.replay_ns", split->part[NGD_SPLIT_REPLAY]);
    if (!first)
        return;
    ngd_trace_record_part(record, NGD_TRACE_FIRST_TOKEN, NGD_TRACE_TOP, record->asked, first);
    ngd_trace_record_part(record, NGD_TRACE_DECODE, NGD_TRACE_TOP, first, last);
}
