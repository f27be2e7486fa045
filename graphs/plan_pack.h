/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_PACK_H
#define NGD_GRAPHS_PLAN_PACK_H

/*
 * Packs a plan into bytes and unpacks it.
 *
 * The bytes have what was expensive to find: the graph that the passes made (graphs/graph_pack.h), and the memory
 * layout. The planner derives the rest of the plan from these two again, so a loaded plan has passed every check of a
 * new one. The graph is built and validated, and the target approves each call. The only addresses in the bytes are
 * block offsets, which are checked to be aligned, inside the pool, and disjoint while the blocks are live.
 * docs/decisions/0011-a-stored-plan-is-a-graph-and-a-layout.md
 *
 * Threads: any; pure except for the target's select.
 */
#include "graphs/plan.h"

/* Appends the plan's bytes to out. source: the graph that the key names. out->failed: there was no memory. */
void ngd_plan_pack(const struct ngd_plan *plan, const struct ngd_graph *source, struct ngd_strbuf *out);

/*
 * Unpacks a plan for this source and key. Any bytes are safe. NGD_ERR_FILE_TRUNCATED, NGD_ERR_FILE_UNSUPPORTED (another
 * version or operator table) and NGD_ERR_FILE_CORRUPT: the bytes are bad; other errors are those of ngd_graph_unpack
 * and ngd_plan_create.
 */
ngd_status_t ngd_plan_unpack(struct ngd_graph *source, const struct ngd_key *key,
                             const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                             const void *data, size_t n, struct ngd_plan **plan_p, struct ngd_diag *diag);

/* Gives the graph in a packed plan, as a reference; NULL: the plan's graph is the source itself. */
ngd_status_t ngd_plan_unpack_graph(const void *data, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag);

#endif
