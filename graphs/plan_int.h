/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_INT_H
#define NGD_GRAPHS_PLAN_INT_H

/*
 * Internals of a plan, shared by its parts: creation, build, views, memory, estimates.
 *
 * A plan's tensors and calls are two arrays that grow while it is built; everything else is in the arena. A tensor's
 * offset is relative to its root until ngd_plan_assign_memory has placed the roots.
 */
#include "graphs/plan.h"

#define NGD_PLAN_ALIGN 64

/*
 * Makes a plan of `graph`, which passes made of `source` at this key earlier, with the memory layout of that time. The
 * layout is not trusted. NGD_ERR_FILE_CORRUPT: it does not fit the plan in number of blocks, alignment or size, or
 * blocks that are live at the same time overlap.
 */
ngd_status_t ngd_plan_restore(struct ngd_graph *source, struct ngd_graph *graph, const struct ngd_key *key,
                              const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                              const struct ngd_plan_layout *layout, struct ngd_plan **plan_p, struct ngd_diag *diag);

/* Fills a plan that has its graph, key, symbols and an empty arena. On failure the plan is only fit to be destroyed. */
ngd_status_t ngd_plan_build(struct ngd_plan *plan, const struct ngd_graph_options *options,
                            const struct ngd_plan_target *target, const struct ngd_plan_layout *layout,
                            struct ngd_diag *diag);

/* Where a result is stored: in the storage of another value, or in its own. */
struct ngd_place {
    uint32_t into;   /* the other value; NGD_VALUE_NONE: its own storage */
    uint64_t offset; /* bytes */
    bool strided;    /* it has the strides of the other value; otherwise it is contiguous */
};
/* How a node is planned, given where its operands are stored. */
typedef enum ngd_node_fate {
    NGD_NODE_CALLED,
    NGD_NODE_SKIPPED, /* no call: its result is in place already */
    NGD_NODE_FILLED,  /* a cat: only the operands that are not in place are copied */
} ngd_node_fate_t;
/* Chooses places (indexed by value) and fates (indexed by node). options NULL: every result has its own storage, every
 * node is called. */
ngd_status_t ngd_plan_choose_places(const struct ngd_plan *plan, const struct ngd_graph_options *options,
                                    const struct ngd_plan_target *target, const bool *needed, struct ngd_place *places,
                                    uint8_t *fates);

/*
 * Sets strides and offset of one result of a view operator. dst has the result's dtype and dims, and src's root; the
 * call has concrete attributes. Returns false if strides cannot express the view; a contiguous src always has such
 * strides.
 */
bool ngd_plan_view(const struct ngd_plan_tensor *src, const struct ngd_plan_call *call, uint32_t result,
                   struct ngd_plan_tensor *dst);
bool ngd_plan_view_known(const struct ngd_op *op); /* the operator has such a rule */

/* Sets row-major strides. */
void ngd_plan_set_contiguous(struct ngd_plan_tensor *t);
/* Sets bytes, the extent after offset, and gives dimensions of 1 the strides of a contiguous tensor. */
ngd_status_t ngd_plan_set_extent(struct ngd_plan_tensor *t);

/*
 * Finds lifetimes, reuses storage and assigns offsets: sets root, offset, workspace_offset, pool_bytes,
 * live_peak_bytes and layout. keep_inputs: the storage of user inputs is not reused. layout: see ngd_plan_restore.
 */
ngd_status_t ngd_plan_assign_memory(struct ngd_plan *plan, bool inplace, bool keep_inputs,
                                    const struct ngd_plan_layout *layout);

/* Estimates a call's floating-point operations, and the bytes that it reads and writes. */
void ngd_plan_call_work(const struct ngd_plan *plan, const struct ngd_plan_call *call, double *flops_p,
                        double *bytes_p);
/* Sets flops and weight_bytes. */
ngd_status_t ngd_plan_estimate(struct ngd_plan *plan);

#endif
