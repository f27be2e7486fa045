/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_TIMING_H
#define NGD_DAEMON_HANDLERS_TIMING_H

/* Fills a message with the parts of a request's time. */
#include "proto/npugraph.pb-c.h"
#include "scheduler/run/share.h"

static inline void ngd_timing_fill(Npugraph__V1__Timing *t, const struct ngd_split *split)
{
    npugraph__v1__timing__init(t);
    t->queue_ns = (uint64_t)split->part[NGD_SPLIT_QUEUE];
    t->copy_in_ns = (uint64_t)split->part[NGD_SPLIT_COPY_IN];
    t->replay_ns = (uint64_t)split->part[NGD_SPLIT_REPLAY];
    t->copy_out_ns = (uint64_t)split->part[NGD_SPLIT_COPY_OUT];
    t->padding_ns = (uint64_t)split->part[NGD_SPLIT_PADDING];
}

#endif
