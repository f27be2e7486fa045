/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_PACK_H
#define NGD_GRAPHS_PLAN_PACK_H

/*
 * A plan as bytes, and back.
 *
 * What is stored is what was expensive to find: the graph as the passes left it (graphs/graph_pack.h), and the memory
 * layout. Everything else of a plan is derived again from the two by the planner itself, so a loaded plan has passed
 * every check of a fresh one: the graph is built and validated, the target approves each call, no address comes from
 * the bytes but block offsets, and those are shown to be aligned, inside the pool, and disjoint while they live.
 * docs/decisions/0011-a-stored-plan-is-a-graph-and-a-layout.md
 *
 * Threads: any; pure but for the target's select.
 */
#include "graphs/plan.h"

/* source: the graph that the key names. Appends to out; out->failed when there was no memory. */
void ngd_plan_pack(const struct ngd_plan *plan, const struct ngd_graph *source, struct ngd_strbuf *out);

/*
 * source and key: what the plan is wanted for. Any bytes are safe. NGD_ERR_FILE_TRUNCATED, NGD_ERR_FILE_UNSUPPORTED
 * (another version, another operator table) and NGD_ERR_FILE_CORRUPT say what is wrong with them; other errors are
 * those of ngd_graph_unpack and ngd_plan_create.
 */
ngd_status_t ngd_plan_unpack(struct ngd_graph *source, const struct ngd_key *key,
                             const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                             const void *data, size_t n, struct ngd_plan **plan_p, struct ngd_diag *diag);

/* The graph in a packed plan: a reference; NULL when it is the source itself. */
ngd_status_t ngd_plan_unpack_graph(const void *data, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag);

#endif
