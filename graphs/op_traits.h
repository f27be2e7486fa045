/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_OP_TRAITS_H
#define NGD_GRAPHS_OP_TRAITS_H

/*
 * Traits: what the planner, the passes and the devices must know of an operator beyond its row in ops.def. Each row is
 * in op_traits.c; elementwise operators need none. Code asks for a trait instead of comparing operators' ids. The few
 * places that compare ids are about one operator, and a comment there says why (tests/meta/def_files.py counts them).
 */
#include "graphs/graph.h"
#include "graphs/plan.h"
#include "graphs/rewrite.h"
#include "graphs/uniform.h"

/* A view of src. The operator's rule sets the strides of dst, whose dims are known, and moves its offset. */
struct ngd_view {
    const struct ngd_plan_tensor *src;
    const struct ngd_plan_call *call;
    uint32_t result;
    struct ngd_plan_tensor *dst;
};
/* Returns false if no strides make this view, so that a copy is needed. */
typedef bool ngd_view_fn(struct ngd_view *view);

/* One call of a plan. */
struct ngd_cost {
    const struct ngd_plan *plan;
    const struct ngd_plan_call *call;
};
typedef double ngd_flops_fn(const struct ngd_cost *cost);

/* Returns true if the node does nothing. Its result is known to have the type of operand 0. */
typedef bool ngd_noop_fn(const struct ngd_graph *g, const struct ngd_node *n);
#define NGD_NO_OPERAND UINT32_MAX
/* Returns the number of the operand that equals the node's result, or NGD_NO_OPERAND. */
typedef uint32_t ngd_same_fn(const struct ngd_rewrite *rw, const struct ngd_node *n);
/* Gives the value of all elements of the results, if the elements of each operand have one value. False: not known. */
typedef bool ngd_fold_fn(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                         struct ngd_uniform *u_p);
/* Gives the value of all elements of the result, if the elements of some operands have one value. False: not known. */
typedef bool ngd_cover_fn(const struct ngd_rewrite *rw, const struct ngd_node *n, struct ngd_uniform *u_p);

/* Sets order[i] to the dimension of operand 0 that becomes the result's dimension i. On entry it is 0, 1, 2, ... */
typedef void ngd_order_fn(const struct ngd_node *n, uint32_t rank, int64_t order[NGD_MAX_RANK]);
/* Writes the node in simplify_views' canonical form: all nodes that mean the same get the same form. */
struct ngd_pass_context;
typedef ngd_status_t ngd_spell_fn(struct ngd_pass_context *ctx, struct ngd_node *n);

/* Arithmetic of operand 0 with operand 1 or the attribute `other`, element by element. */
typedef enum ngd_arithmetic {
    NGD_ARITHMETIC_NONE,
    NGD_ARITHMETIC_SUM,        /* operand 0 + alpha * other */
    NGD_ARITHMETIC_DIFFERENCE, /* operand 0 - alpha * other */
    NGD_ARITHMETIC_PRODUCT,
    NGD_ARITHMETIC_QUOTIENT,
} ngd_arithmetic_t;

/*
 * When an operator allows replays to be merged (graph_batch.c): row i of the results must depend only on row i of the
 * operands that have rows, and on the other operands in the same way for each i.
 */
typedef enum ngd_batches {
    NGD_BATCHES_NEVER, /* unless the operator is elementwise */
    NGD_BATCHES_ALWAYS,
    NGD_BATCHES_ALL_HAVE_ROWS, /* if all operands have rows: in an operand without, the row's number is an index */
    NGD_BATCHES_MAKES_ROWS,    /* even if no operand has rows: all rows of its result are the same */
} ngd_batches_t;

/* Which operand of an operator has indices, and what they index. */
typedef enum ngd_indexes {
    NGD_INDEXES_NONE,
    NGD_INDEXES_FIRST,        /* operand 1: dimension 0 of operand 0 */
    NGD_INDEXES_FIRST_SIGNED, /* as FIRST, and negative indices count from the end */
    NGD_INDEXES_DIM,          /* operand 1: dimension `dim` of operand 0 */
    NGD_INDEXES_SLOTS,        /* operand 2: rows of the KV blocks in operand 3 */
    NGD_INDEXES_EXPERTS,      /* operand 1: attribute expert_num */
    NGD_INDEXES_BLOCKS,       /* operand 3: blocks of the KV cache in operand 1 */
} ngd_indexes_t;

/* Part in a mixture of experts. */
typedef enum ngd_mixture {
    NGD_MIXTURE_NONE,
    NGD_MIXTURE_ROUTES,     /* results: rows of operand 0 by expert, where each went, rows of each expert */
    NGD_MIXTURE_MULTIPLIES, /* operand 1: rows of each expert */
    NGD_MIXTURE_SUMS,       /* operand 2: where each row went */
} ngd_mixture_t;

struct ngd_op_traits {
    ngd_view_fn *view;   /* views only: plan_views.c */
    ngd_flops_fn *flops; /* NULL: one operation for each element of the results. plan_cost.c */
    ngd_noop_fn *noop;   /* NULL: it always does something. pass_remove_noops.c */
    ngd_same_fn *same;   /* instead of noop, if the result may equal another operand than the first */
    ngd_fold_fn *fold;   /* NULL: folded as a view or elementwise, if it is one of these. pass_fold_constants.c */
    ngd_cover_fn *cover; /* NULL: no result is known from some operands alone */
    ngd_same_fn *pick;   /* the operand that becomes the result if the condition has one value everywhere; NULL: none */
    ngd_order_fn *order; /* views with operand 0's dimensions in another order: pass_simplify_views.c */
    ngd_spell_fn *spell; /* NULL: it has only one form */
    ngd_batches_t batches;
    ngd_indexes_t indexes;
    ngd_arithmetic_t arithmetic;
    ngd_mixture_t mixture;
    uint8_t chosen;       /* 1 + the result that has indices of operand 0's dimension `dim` (or last one); 0: none */
    uint8_t row_operand;  /* 1 + the operand from whose row i row i of the result is computed; 0: none. Not needed for
                             elementwise operators */
    uint8_t first_weight; /* operands from this one on may have a dtype that is only stored; 0: none. op_shape.c */
    bool index_writes;    /* it writes at its indices, so equal indices overwrite each other */
    bool gathers;         /* it reads as many bytes of operand 0 as it writes */
    bool reshapes;        /* a view with all elements of operand 0 in the same row-major order */
    bool repeats;         /* a view that shows elements of operand 0 more than once */
    bool adds_dimension;  /* its axes count the dimensions of the result, which has one more than operand 0 */
    bool counts;          /* it makes start, start + step, ... up to end */
    bool concatenates;    /* its operands lie one behind the other in the result */
    bool copies_into;     /* it writes operand 1 over operand 0 */
};
extern const struct ngd_op_traits ngd_op_traits[NGD_OP_MAX];

/* ---- the functions in the rows ---- */

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
/* Returns true if the operator adds to operand 0 or subtracts from it. */
static inline bool ngd_op_adds(const struct ngd_op *op)
{
    const ngd_arithmetic_t a = ngd_op_traits[op->id].arithmetic;

    return a == NGD_ARITHMETIC_SUM || a == NGD_ARITHMETIC_DIFFERENCE;
}

#endif
