/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_OP_INT_H
#define NGD_GRAPHS_OP_INT_H

/*
 * Shared by the shape rules (op_<family>.c): declarations of all rules, made from ops.def, and helpers
 * that check operands and set result types.
 *
 * A rule reads operands with ngd_node_in and attributes with ngd_op_int and its siblings, and calls
 * ngd_op_result for each result. It refuses through ngd_op_fail, which puts the node's name, operator and
 * line in front. So the rule's own text says only what is wrong and what would be right.
 */
#include "graphs/antiquant.h"
#include "graphs/graph.h"

#define NGD_OPF_REFUSED (NGD_OPF_RANDOM | NGD_OPF_SYNC | NGD_OPF_DATA_SHAPE)

typedef ngd_status_t ngd_shape_fn(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag);
typedef bool ngd_rows_fn(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                         const char **why_p);

/* Declares ngd_shape_<x> for every row, and ngd_rows_<x> for every row of kind SHAPE. */
#define NGD_ROWS_DECL_SHAPE(shape) ngd_rows_fn ngd_rows_##shape;
#define NGD_ROWS_DECL_LEADING(shape)
#define NGD_ROWS_DECL_NONE(shape)
#define NGD_OP(ID, name, min_in, max_in, n_out, shape, rows, flags, mutates, host, attrs, doc) \
    ngd_shape_fn ngd_shape_##shape;                                                            \
    NGD_ROWS_DECL_##rows(shape)
#include "graphs/ops.def"
#undef NGD_OP

ngd_rows_fn ngd_rows_leading; /* all operands and results with the symbol have it in dimension 0 */
ngd_rows_fn ngd_rows_none;    /* no operand has the symbol */

const char *ngd_attr_type_name(ngd_attr_type_t type);

/* Print a type or dimension into buf for a diagnosis, cut to fit. Return buf. */
#define NGD_OP_TEXT 120
const char *ngd_op_type_text(const struct ngd_graph *graph, const struct ngd_type *type, char buf[NGD_OP_TEXT]);
const char *ngd_op_dim_text(const struct ngd_graph *graph, ngd_dim_t dim, char buf[NGD_OP_TEXT]);
const char *ngd_op_in_name(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i); /* without the % */

/* Sets the diagnosis to "node %y (aten.linear, line 12): " and the text. */
ngd_status_t ngd_op_fail(const struct ngd_graph *graph, const struct ngd_node *node, struct ngd_diag *diag,
                         ngd_status_t status, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Sets the diagnosis of a failed expression: OVERFLOW, GRAPH_TOO_LARGE or NO_MEMORY. what: names the expression. */
ngd_status_t ngd_op_expr_fail(const struct ngd_graph *graph, const struct ngd_node *node, struct ngd_diag *diag,
                              ngd_status_t status, const char *what);

/* Sets the type of result i. GRAPH_RANK: too many dimensions; GRAPH_SHAPE: a dimension may be negative; OVERFLOW. */
ngd_status_t ngd_op_result(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_dtype_t dtype, uint32_t rank,
                           const ngd_dim_t *dims, struct ngd_diag *diag);

/* Return an attribute by name. The rule passes names of its own operator only, so it exists. */
const struct ngd_attr_value *ngd_op_attr(const struct ngd_node *node, const char *name);
static inline bool ngd_op_bool(const struct ngd_node *node, const char *name)
{
    return ngd_op_attr(node, name)->i != 0;
}
static inline double ngd_op_float(const struct ngd_node *node, const char *name)
{
    return ngd_op_attr(node, name)->f;
}
static inline const char *ngd_op_str(const struct ngd_node *node, const char *name)
{
    return ngd_op_attr(node, name)->s;
}
static inline ngd_dim_t ngd_op_int(const struct ngd_node *node, const char *name)
{
    return ngd_op_attr(node, name)->i;
}
/* Gives an attribute that must be a constant within lo..hi. */
ngd_status_t ngd_op_const(const struct ngd_graph *graph, const struct ngd_node *node, const char *name, int64_t lo,
                          int64_t hi, int64_t *value_p, struct ngd_diag *diag);
/* Gives an axis of a tensor of that rank. It must be constant; a negative one counts from the end. */
ngd_status_t ngd_op_axis(const struct ngd_graph *graph, const struct ngd_node *node, const char *name, uint32_t rank,
                         uint32_t *axis_p, struct ngd_diag *diag);
ngd_status_t ngd_op_axis_value(const struct ngd_graph *graph, const struct ngd_node *node, const char *name,
                               ngd_dim_t value, uint32_t rank, uint32_t *axis_p, struct ngd_diag *diag);
/* Returns an axis that the shape rule has already accepted. */
uint32_t ngd_op_known_axis(const struct ngd_node *node, const char *name, uint32_t rank);

/* Checks that the dtype has the value of a float attribute that fills a tensor; otherwise GRAPH_ATTRIBUTE. */
ngd_status_t ngd_op_fills(const struct ngd_graph *graph, const struct ngd_node *node, const char *name,
                          ngd_dtype_t dtype, struct ngd_diag *diag);

/* Checks of operands. `role` is the operand's name in the schema ("weight"). */
enum { NGD_TAKES_FLOAT = 1, NGD_TAKES_INT = 2, NGD_TAKES_BOOL = 4, NGD_TAKES_ALL = 7, NGD_TAKES_INDEX = 8 };
ngd_status_t ngd_op_takes(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, const char *role,
                          unsigned takes, struct ngd_diag *diag);
ngd_status_t ngd_op_dtype_is(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, const char *role,
                             ngd_dtype_t dtype, struct ngd_diag *diag);
/* Checks that operands have a dtype that is only stored (ngd_dtype_is_stored) where the operator is a view or has
 * weights. Before the shape rule. */
ngd_status_t ngd_op_check_stored(const struct ngd_graph *graph, const struct ngd_node *node, struct ngd_diag *diag);
/* Checks that operand i has operand 0's dtype, or is a narrower float while operand 0 is f32. */
ngd_status_t ngd_op_same_or_narrower(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i,
                                     const char *role, struct ngd_diag *diag);
ngd_status_t ngd_op_rank_is(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, const char *role,
                            uint32_t rank, const char *form, struct ngd_diag *diag);
/* Checks that operand i's shape is exactly dims. form: the shape in letters ("[T,KH,D]"). */
ngd_status_t ngd_op_shape_is(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, const char *role,
                             uint32_t rank, const ngd_dim_t *dims, const char *form, struct ngd_diag *diag);
/* Broadcasts a and b: their dimensions must be equal, or one of them the constant 1. */
ngd_status_t ngd_op_broadcast(const struct ngd_graph *graph, const struct ngd_node *node, const struct ngd_type *a,
                              const struct ngd_type *b, uint32_t *rank_p, ngd_dim_t dims[NGD_MAX_RANK],
                              struct ngd_diag *diag);

/* Give the dimensions of the slice (dim, start, end, step) or of the single index (dim, index) of operand 0. */
ngd_status_t ngd_op_slice_dims(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t dims[NGD_MAX_RANK],
                               struct ngd_diag *diag);
ngd_status_t ngd_op_select_dims(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t dims[NGD_MAX_RANK],
                                struct ngd_diag *diag);
/* Gives the dimensions of operand 0 with one element along dim for each index of operand 1, [N]. */
ngd_status_t ngd_op_picked_dims(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t dims[NGD_MAX_RANK],
                                struct ngd_diag *diag);
/* Gives the dimensions of operand 0's rows, one row for each index of operand 1. */
ngd_status_t ngd_op_rows_dims(struct ngd_graph *graph, struct ngd_node *node, uint32_t *rank_p,
                              ngd_dim_t dims[2 * NGD_MAX_RANK], struct ngd_diag *diag);
/* Checks that operand 1 has indices, and that its shape lies within operand 0's in all dimensions but dim. */
ngd_status_t ngd_op_check_index(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag);
/* Gives the begin and end of a slice of a dimension of that size, both within 0..size. */
ngd_status_t ngd_op_slice_bounds(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t size, ngd_dim_t *start_p,
                                 ngd_dim_t *end_p, struct ngd_diag *diag);
/* Gives the length of a slice or range: max(0, ceil((end - start)/step)), with step > 0. */
ngd_status_t ngd_op_range_length(struct ngd_graph *graph, ngd_dim_t start, ngd_dim_t end, int64_t step,
                                 ngd_dim_t *length_p);
/* Checks that operand a's shape lies within operand b's in every dimension but `except` (NGD_MAX_RANK: in all). */
ngd_status_t ngd_op_within(struct ngd_graph *graph, struct ngd_node *node, uint32_t a, const char *role_a, uint32_t b,
                           const char *role_b, uint32_t except, struct ngd_diag *diag);

/* Checks that key_cache and value_cache (operands i, i+1) are [NB,BS,KH,D] of the same dtype: a float, or i8 or
 * f8_e4m3fn with scales (operands `scales`, scales+1). */
ngd_status_t ngd_op_check_caches(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_dim_t kv_heads,
                                 ngd_dim_t d, uint32_t scales, struct ngd_diag *diag);
/* Checks that operand 0 is float [T,H,D] with an even, constant D, and that operands i and i+1 are its cos and sin. */
ngd_status_t ngd_op_check_rotary(struct ngd_graph *graph, struct ngd_node *node, const char *role, uint32_t i,
                                 struct ngd_diag *diag);
/* Checks x1, x2 and gamma (operands 0 to 2) of an add_rms_norm. */
ngd_status_t ngd_op_check_add_norm(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag);

/* How a quantised weight of `weight` is turned into values; `has`: bits NGD_ANTIQUANT_BIT of what is given. */
struct ngd_antiquant_form {
    ngd_dtype_t weight;
    uint32_t has;
    int64_t group, columns, block; /* attributes: rows of K and columns of N of a group; rows of K of a block */
};
/* Takes the attributes, and checks them and which operands there are. */
ngd_status_t ngd_op_antiquant_form(struct ngd_graph *graph, struct ngd_node *node, struct ngd_antiquant_form *f,
                                   struct ngd_diag *diag);
/* Checks the dtype of operand i. */
ngd_status_t ngd_op_antiquant_dtype(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, ngd_antiquant_t what,
                                    const struct ngd_antiquant_form *f, struct ngd_diag *diag);
/* Gives the groups of K, and those of N, that an operand has elements for. */
ngd_status_t ngd_op_antiquant_groups(struct ngd_graph *graph, ngd_antiquant_t what, const struct ngd_antiquant_form *f,
                                     ngd_dim_t k, ngd_dim_t n, ngd_dim_t *k_p, ngd_dim_t *n_p);

/* Helpers of row rules. */
bool ngd_op_carries(const struct ngd_graph *graph, uint32_t value, uint32_t symbol); /* its type uses the symbol */
bool ngd_op_in_carries(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t i, uint32_t symbol);
bool ngd_op_attrs_free(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char *except,
                       const char **why_p); /* no attribute but `except` uses the symbol */
bool ngd_op_rows_axis(
    const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, uint32_t axis,
    const char **why_p); /* no attribute uses the symbol, and the axis is not 0 if operand 0 has the symbol */

/* Refuses a random, synchronising or data-dependent operator, and says what to use instead. */
ngd_status_t ngd_op_refuse(const struct ngd_op *op, const char *name, uint32_t line, struct ngd_diag *diag);

/* Returns true if the operator fills its result with one value, which its attributes give (ngd_op_fill_value). */
bool ngd_op_fills_all(const struct ngd_op *op);

/* Returns true if the operator's first attribute is a shape in which one size may be -1, to be inferred. */
bool ngd_op_infers_size(const struct ngd_op *op);

#endif
