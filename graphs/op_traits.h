/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_OP_TRAITS_H
#define NGD_GRAPHS_OP_TRAITS_H

/*
 * What the planner, the passes and the devices ask of an operator beyond its row in ops.def: a row of op_traits.c.
 * Most operators need none. Nobody else compares operators by their ids to find such things out.
 */
#include "graphs/graph.h"
#include "graphs/plan.h"
#include "graphs/rewrite.h"
#include "graphs/uniform.h"

/* A view of src: its rule sets the strides of dst, whose dims are known, and moves its offset. */
struct ngd_view {
    const struct ngd_plan_tensor *src;
    const struct ngd_plan_call *call;
    uint32_t result;
    struct ngd_plan_tensor *dst;
};
/* False: no strides make this view; a copy is needed. */
typedef bool ngd_view_fn(struct ngd_view *view);

/* One call of a plan. */
struct ngd_cost {
    const struct ngd_plan *plan;
    const struct ngd_plan_call *call;
};
typedef double ngd_flops_fn(const struct ngd_cost *cost);

/* The operator changes nothing here. The result has the type of operand 0. */
typedef bool ngd_noop_fn(const struct ngd_graph *g, const struct ngd_node *n);
/* The value of each element of the results, when each operand has one value everywhere. False: it is not known. */
typedef bool ngd_fold_fn(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                         struct ngd_uniform *u_p);

/* What the indices of an operator count, and which operand has them. */
typedef enum ngd_indexes {
    NGD_INDEXES_NONE,
    NGD_INDEXES_FIRST,        /* operand 1: dimension 0 of operand 0 */
    NGD_INDEXES_FIRST_SIGNED, /* the same, and negative ones count from the end */
    NGD_INDEXES_DIM,          /* operand 1: dimension `dim` of operand 0 */
    NGD_INDEXES_SLOTS,        /* operand 2: rows of the KV blocks that operand 3 is */
    NGD_INDEXES_BLOCKS,       /* operand 3: blocks of the KV cache that operand 1 is */
} ngd_indexes_t;

struct ngd_op_traits {
    ngd_view_fn *view;   /* of a view: plan_views.c */
    ngd_flops_fn *flops; /* NULL: one for each element of the results. plan_cost.c */
    ngd_noop_fn *noop;   /* NULL: never. pass_remove_noops.c */
    ngd_fold_fn *fold;   /* NULL: as a view or by elements, if it is one of those. pass_fold_constants.c */
    ngd_indexes_t indexes;
    uint8_t row_operand; /* 1 more than the operand whose rows, taken each by itself, make the result's rows; 0: none.
                            Operators by elements need not say so */
    bool index_writes;   /* its indices say where it writes, and two equal ones overwrite each other */
    bool gathers;        /* reads as many bytes of operand 0 as it writes */
    bool reshapes;       /* a view with all elements of operand 0 in the same row-major order */
    bool reorders;       /* a view with operand 0's dimensions in another order */
    bool concatenates;   /* its operands lie one behind the other in the result */
    bool copies_into;    /* writes operand 1 over operand 0 */
};
extern const struct ngd_op_traits ngd_op_traits[NGD_OP_MAX];

/* ---- the functions of its rows ---- */

ngd_view_fn ngd_view_expand, ngd_view_permute, ngd_view_same, ngd_view_select, ngd_view_shape, ngd_view_slice,
    ngd_view_split, ngd_view_split_by, ngd_view_squeeze, ngd_view_squeeze_dims, ngd_view_t, ngd_view_transpose,
    ngd_view_unbind, ngd_view_unsqueeze;
ngd_flops_fn ngd_flops_addmm, ngd_flops_attention, ngd_flops_bmm, ngd_flops_mm, ngd_flops_sdpa, ngd_flops_two;
ngd_noop_fn ngd_noop_adds_nothing, ngd_noop_always, ngd_noop_clamps_nothing, ngd_noop_has_no_matrix,
    ngd_noop_has_one_part, ngd_noop_is_by_one, ngd_noop_is_power_one, ngd_noop_permutes_nothing, ngd_noop_swaps_nothing;
ngd_fold_fn ngd_fold_cat, ngd_fold_extreme, ngd_fold_masked_fill, ngd_fold_pad, ngd_fold_sum, ngd_fold_triangle,
    ngd_fold_truth, ngd_fold_where;

static inline bool ngd_op_reshapes(const struct ngd_op *op)
{
    return ngd_op_traits[op->id].reshapes;
}

#endif
