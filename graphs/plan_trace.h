/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_TRACE_H
#define NGD_GRAPHS_PLAN_TRACE_H

#include "base/clock.h"
#include "base/strbuf.h"
#include "graphs/plan.h"

/*
 * Prints the plan's calls as a Chrome trace (JSON), one span for each call.
 * times: begin and end of each call, in pairs; NULL: the plan has not run, and each call is shown as one microsecond.
 */
void ngd_plan_print_trace(const struct ngd_plan *plan, const char *device, const ngd_nsec_t *times,
                          struct ngd_strbuf *sb);

#endif
