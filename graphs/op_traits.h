/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_OP_TRAITS_H
#define NGD_GRAPHS_OP_TRAITS_H

/*
 * What the planner, the passes and the devices ask of an operator beyond its row in ops.def: a row of op_traits.c.
 * Elementwise operators need none. Nobody else compares operators by their ids to find such things out; the few places
 * that do compare are about one operator, and a comment there says why (tests/meta/def_files.py counts them).
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
#define NGD_NO_OPERAND UINT32_MAX
/* The number of the operand that is the result here, or NGD_NO_OPERAND. */
typedef uint32_t ngd_same_fn(const struct ngd_rewrite *rw, const struct ngd_node *n);
/* The value of each element of the results, when each operand has one value everywhere. False: it is not known. */
typedef bool ngd_fold_fn(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                         struct ngd_uniform *u_p);
/* The value of each element of the result, when some operands have one value everywhere. False: it is not known. */
typedef bool ngd_cover_fn(const struct ngd_rewrite *rw, const struct ngd_node *n, struct ngd_uniform *u_p);

/* order[i]: the dimension of operand 0 that is the result's dimension i; it comes as 0, 1, 2, ... */
typedef void ngd_order_fn(const struct ngd_node *n, uint32_t rank, int64_t order[NGD_MAX_RANK]);
/* Writes the node in the one form that simplify_views has for all nodes that mean the same. */
struct ngd_pass_context;
typedef ngd_status_t ngd_spell_fn(struct ngd_pass_context *ctx, struct ngd_node *n);

/* Sums and products of operand 0 and, element by element, operand 1 or the attribute `other`. */
typedef enum ngd_arithmetic {
    NGD_ARITHMETIC_NONE,
    NGD_ARITHMETIC_SUM,        /* operand 0 + alpha * the second */
    NGD_ARITHMETIC_DIFFERENCE, /* operand 0 - alpha * the second */
    NGD_ARITHMETIC_PRODUCT,
    NGD_ARITHMETIC_QUOTIENT,
} ngd_arithmetic_t;

/*
 * When replays may run together (graph_batch.c): when row i of the results depends on row i of the operands that have
 * rows, and on all of the other operands alike.
 */
typedef enum ngd_batches {
    NGD_BATCHES_NEVER, /* unless the operator is elementwise */
    NGD_BATCHES_ALWAYS,
    NGD_BATCHES_ALL_HAVE_ROWS, /* if all operands have rows: in one without, the row's number decides what is read */
    NGD_BATCHES_MAKES_ROWS,    /* without an operand that has rows, too: all rows that it makes are the same */
} ngd_batches_t;

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
    ngd_same_fn *same;   /* in the place of noop: its result may be another operand than the first */
    ngd_fold_fn *fold;   /* NULL: as a view or by elements, if it is one of those. pass_fold_constants.c */
    ngd_cover_fn *cover; /* NULL: never */
    ngd_same_fn *pick;   /* the operand that a condition, the same everywhere, takes for the result; NULL: none */
    ngd_order_fn *order; /* of a view with operand 0's dimensions in another order: pass_simplify_views.c */
    ngd_spell_fn *spell; /* NULL: it has one form only */
    ngd_batches_t batches;
    ngd_indexes_t indexes;
    ngd_arithmetic_t arithmetic;
    uint8_t row_operand; /* 1 more than the operand whose rows, taken each by itself, make the result's rows; 0: none.
                            Operators by elements need not say so */
    bool index_writes;   /* its indices say where it writes, and two equal ones overwrite each other */
    bool gathers;        /* reads as many bytes of operand 0 as it writes */
    bool reshapes;       /* a view with all elements of operand 0 in the same row-major order */
    bool repeats;        /* a view that shows elements of operand 0 more than once */
    bool adds_dimension; /* its axes count the dimensions of the result, which has one more than operand 0 */
    bool counts;         /* makes start, start + step, ... up to end */
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
ngd_same_fn ngd_same_beside_neutral, ngd_same_equal_choice, ngd_same_only_part, ngd_same_whole_slice;
ngd_fold_fn ngd_fold_cat, ngd_fold_extreme, ngd_fold_masked_fill, ngd_fold_mean, ngd_fold_pad, ngd_fold_sum,
    ngd_fold_triangle, ngd_fold_truth, ngd_fold_where;
ngd_cover_fn ngd_cover_masked_fill;
ngd_same_fn ngd_pick_masked_fill, ngd_pick_where;
ngd_order_fn ngd_order_permute, ngd_order_t, ngd_order_transpose;
ngd_spell_fn ngd_spell_slice, ngd_spell_split, ngd_spell_view;

static inline bool ngd_op_reshapes(const struct ngd_op *op)
{
    return ngd_op_traits[op->id].reshapes;
}
/* It adds to operand 0, or subtracts from it. */
static inline bool ngd_op_adds(const struct ngd_op *op)
{
    const ngd_arithmetic_t a = ngd_op_traits[op->id].arithmetic;

    return a == NGD_ARITHMETIC_SUM || a == NGD_ARITHMETIC_DIFFERENCE;
}

#endif
