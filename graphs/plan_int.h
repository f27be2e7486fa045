/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_INT_H
#define NGD_GRAPHS_PLAN_INT_H

/*
 * Inside of a plan: what its parts share (life, build, views, memory, estimates).
 *
 * A plan's tensors and calls are arrays of their own, which grow while it is built; everything else is in the arena. A
 * tensor's offset is relative to its root until ngd_plan_assign_memory has placed the roots.
 */
#include "graphs/plan.h"

#define NGD_PLAN_ALIGN 64

/*
 * A plan of `graph`, which passes made of `source` at this key earlier, with the memory layout that was decided then. A
 * layout that does not fit the plan, in number of blocks, alignment, size, or because blocks that live at the same
 * time would overlap, is NGD_ERR_FILE_CORRUPT: where it comes from is not trusted.
 */
ngd_status_t ngd_plan_restore(struct ngd_graph *source, struct ngd_graph *graph, const struct ngd_key *key,
                              const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                              const struct ngd_plan_layout *layout, struct ngd_plan **plan_p, struct ngd_diag *diag);

/* Fills a plan that has its graph, key, symbols and an empty arena. On failure the plan is only fit to be destroyed. */
ngd_status_t ngd_plan_build(struct ngd_plan *plan, const struct ngd_graph_options *options,
                            const struct ngd_plan_target *target, const struct ngd_plan_layout *layout,
                            struct ngd_diag *diag);

/* Where a result goes: into the storage of another value, or of its own. */
struct ngd_place {
    uint32_t into;   /* a value; NGD_VALUE_NONE: its own */
    uint64_t offset; /* bytes */
    bool strided;    /* with the strides of what it goes into, instead of in one piece */
};
/* What becomes of a node, because of where its operands went. */
typedef enum ngd_node_fate {
    NGD_NODE_CALLED,
    NGD_NODE_SKIPPED, /* all is there already */
    NGD_NODE_FILLED,  /* of a cat: what is not there already is copied */
} ngd_node_fate_t;
/* places by value, fates by node. options NULL: every result in storage of its own, every node called. */
ngd_status_t ngd_plan_choose_places(const struct ngd_plan *plan, const struct ngd_graph_options *options,
                                    const struct ngd_plan_target *target, const bool *needed, struct ngd_place *places,
                                    uint8_t *fates);

/*
 * Strides and offset of result `result` of a view operator. dst has its dtype, dims and src's root; the call has
 * concrete attributes. False when strides cannot express it, which never happens for a contiguous src.
 */
bool ngd_plan_view(const struct ngd_plan_tensor *src, const struct ngd_plan_call *call, uint32_t result,
                   struct ngd_plan_tensor *dst);
bool ngd_plan_view_known(const struct ngd_op *op); /* the operator has a rule here */

/* Row-major strides. */
void ngd_plan_set_contiguous(struct ngd_plan_tensor *t);
/* Sets bytes, the extent from offset on, and gives dimensions of 1 the strides of a contiguous tensor. */
ngd_status_t ngd_plan_set_extent(struct ngd_plan_tensor *t);

/*
 * Lifetimes, storage reuse, offsets: sets root, offset, workspace_offset, pool_bytes, live_peak_bytes, layout.
 * keep_inputs: user inputs keep their storage to the end.
 */
ngd_status_t ngd_plan_assign_memory(struct ngd_plan *plan, bool inplace, bool keep_inputs,
                                    const struct ngd_plan_layout *layout);

/* Estimates for one call: floating-point operations, and bytes read and written. */
void ngd_plan_call_work(const struct ngd_plan *plan, const struct ngd_plan_call *call, double *flops_p,
                        double *bytes_p);
/* Sets flops and weight_bytes. */
ngd_status_t ngd_plan_estimate(struct ngd_plan *plan);

#endif
