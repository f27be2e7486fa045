/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/replay_trace.h"

#include "devices/device.h"

void ngd_capture_trace(struct ngd_trace_record *record, int in, ngd_nsec_t begin, ngd_nsec_t end, ngd_nsec_t passes,
                       ngd_nsec_t plan)
{
    const int capture = ngd_trace_record_part(record, NGD_TRACE_CAPTURE, in, begin, end);

    if (capture < 0)
        return;
    ngd_trace_record_part(record, NGD_TRACE_PASSES, capture, begin, begin + passes);
    ngd_trace_record_part(record, NGD_TRACE_PLAN, capture, begin + passes, begin + passes + plan);
    if (passes || plan)
        ngd_trace_record_part(record, NGD_TRACE_INSTANTIATE, capture, begin + passes + plan, end);
}

/* A request may have come when the capture had begun: its span is the part for which the request waited. */
static void trace_wait(struct ngd_trace_record *record, const struct ngd_request *req,
                       const struct ngd_request_times *times)
{
    const ngd_nsec_t end = req->started ? req->started : ngd_now();
    const int queue = ngd_trace_record_part(record, NGD_TRACE_QUEUE, NGD_TRACE_TOP, req->submitted, end);

    if (queue < 0 || !times->resumed)
        return;
    if (times->capture_began >= times->parked)
        ngd_capture_trace(record, queue, times->capture_began, times->capture_began + times->capture_time,
                          times->passes_time, times->plan_time);
    else if (times->capture_began)
        ngd_capture_trace(record, queue, times->parked, times->capture_began + times->capture_time, 0, 0);
}

/* The parts of the device time end one behind the other at the end of the replay. */
static void trace_run(struct ngd_trace_record *record, const struct ngd_request *req, ngd_nsec_t ended)
{
    const ngd_nsec_t in = req->split.part[NGD_SPLIT_COPY_IN], out = req->split.part[NGD_SPLIT_COPY_OUT];
    const ngd_nsec_t whole = req->launch.device_time;
    ngd_nsec_t begin = ended - whole;

    if (begin < req->started)
        begin = req->started;
    ngd_trace_record_part(record, NGD_TRACE_COPY_IN, NGD_TRACE_TOP, begin, begin + in);
    ngd_trace_record_part(record, NGD_TRACE_REPLAY, NGD_TRACE_TOP, begin + in, ended - out);
    ngd_trace_record_part(record, NGD_TRACE_COPY_OUT, NGD_TRACE_TOP, ended - out, ended);
}

void ngd_replay_trace(struct ngd_trace_record *record, const struct ngd_request *req,
                      const struct ngd_request_times *times)
{
    const struct ngd_program *prog = ngd_binding_program(req->binding);

    ngd_trace_record_name(record, "npugraph.graph", ngd_program_graph(prog)->name);
    ngd_trace_copy_text(record->device, sizeof(record->device), ngd_device_info(ngd_program_device(prog))->name);
    ngd_trace_record_number(record, "npugraph.priority", req->priority);
    if (req->launch.tag)
        ngd_trace_record_number(record, "npugraph.tag", (int64_t)req->launch.tag);
    if (req->submitted)
        trace_wait(record, req, times);
    if (!times->ended)
        return;
    trace_run(record, req, times->ended);
    record->key = times->key;
    ngd_trace_record_number(record, "npugraph.slot", times->slot);
    ngd_trace_record_number(record, "npugraph.requests", req->together);
    ngd_trace_record_number(record, "npugraph.padding_ns", req->split.part[NGD_SPLIT_PADDING]);
}
