/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_STREAMS_H
#define NGD_GRAPHS_PLAN_STREAMS_H

/*
 * What calls of a plan on different streams wait for, so that every schedule that keeps the waits gives the results of
 * the calls run one after the other:
 *
 *   - the events of the graph: a wait comes before the next call of its stream, and is for the last call above the
 * record;
 *   - data: a call waits for those that wrote what it reads, and for those that read or wrote what it writes.
 *
 * Waits that follow from others are left out. From them come the plan's clocks (plan.h): which calls have ended, at the
 * latest, when another one begins.
 */
#include "graphs/plan.h"

struct ngd_plan_syncs; /* the graph's events, while calls are being made */

ngd_status_t ngd_plan_syncs_create(const struct ngd_graph *graph, struct ngd_plan_syncs **syncs_p);
void ngd_plan_syncs_destroy(struct ngd_plan_syncs *syncs); /* NULL is fine */
/* In the order of nodes and calls. */
ngd_status_t ngd_plan_syncs_node(struct ngd_plan_syncs *syncs, const struct ngd_node *event);
ngd_status_t ngd_plan_syncs_call(struct ngd_plan_syncs *syncs, uint32_t call, uint16_t stream);

/* Sets waits of all calls, n_streams and clocks. Offsets of tensors are still relative to their roots. */
ngd_status_t ngd_plan_place_waits(struct ngd_plan *plan, const struct ngd_plan_syncs *syncs);

#endif
