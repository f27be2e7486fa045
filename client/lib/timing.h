/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_TIMING_H
#define NPUGRAPH_CLIENT_TIMING_H

#include "client/lib/npugraph.h"
#include "proto/npugraph.pb-c.h"

/* Converts the message. NULL, the timing was not asked for, gives zeros. */
static inline struct npugraph_timing npugraph__timing(const Npugraph__V1__Timing *t)
{
    return t == NULL ? (struct npugraph_timing){0}
                     : (struct npugraph_timing){t->queue_ns,   t->copy_in_ns, t->replay_ns, t->copy_out_ns,
                                                t->padding_ns, t->requests,   t->charged_ns};
}

#endif
