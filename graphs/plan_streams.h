/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_STREAMS_H
#define NGD_GRAPHS_PLAN_STREAMS_H

/*
 * Places the waits between calls of a plan on different streams. Every schedule that keeps the waits gives the results
 * of running the calls one after the other. Waits come from:
 *
 *   - events of the graph: the next call of the waiting stream waits for the last call of the recording stream
 *     above the record;
 *   - data: a call waits for the calls that wrote what it reads, and for those that read or wrote what it writes.
 *
 * Waits that follow from other waits are left out. The waits give the plan's clocks (plan.h), which say which calls
 * have always ended when another one begins.
 */
#include "graphs/plan.h"

struct ngd_plan_syncs; /* collects the graph's events while calls are being made */

ngd_status_t ngd_plan_syncs_create(const struct ngd_graph *graph, struct ngd_plan_syncs **syncs_p);
void ngd_plan_syncs_destroy(struct ngd_plan_syncs *syncs); /* NULL is fine */
/* Add an event or a call, in the order of nodes and calls. */
ngd_status_t ngd_plan_syncs_node(struct ngd_plan_syncs *syncs, const struct ngd_node *event);
ngd_status_t ngd_plan_syncs_call(struct ngd_plan_syncs *syncs, uint32_t call, uint16_t stream);

/* Sets the waits of all calls, n_streams and clocks. Tensors' offsets are still relative to their roots. */
ngd_status_t ngd_plan_place_waits(struct ngd_plan *plan, const struct ngd_plan_syncs *syncs);

#endif
