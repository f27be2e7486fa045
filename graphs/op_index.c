/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of concatenation, slicing and gathering. */
#include "graphs/op_int.h"
#include <string.h>

/* ---- cat, split, slice, select ---- */

static ngd_status_t add_cat_operand(struct ngd_graph *graph, struct ngd_node *node, uint32_t i, uint32_t axis,
                                    ngd_dim_t *sum, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *t = ngd_node_in(graph, node, i);
    char tx[NGD_OP_TEXT], tt[NGD_OP_TEXT];
    ngd_status_t status;
    bool same = t->rank == x->rank;

    if (t->dtype != x->dtype)
        return ngd_op_dtype_is(graph, node, i, "operand", x->dtype, diag);
    for (uint32_t k = 0; k < x->rank && same; k++)
        same = k == axis || t->dims[k] == x->dims[k];
    if (!same)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "operand %u, %%%s, is %s and the first is %s: they must be equal except for dimension %u",
                           i + 1, ngd_op_in_name(graph, node, i), ngd_op_type_text(graph, t, tt),
                           ngd_op_type_text(graph, x, tx), axis);
    status = ngd_expr_make(graph->exprs, NGD_EXPR_ADD, *sum, t->dims[axis], sum);
    return status ? ngd_op_expr_fail(graph, node, diag, status, "the sum of dimension dim") : NGD_OK;
}

ngd_status_t ngd_shape_cat(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK], sum = 0;
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    for (uint32_t i = 0; i < node->n_in && !status; i++)
        status = add_cat_operand(graph, node, i, axis, &sum, diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    dims[axis] = sum;
    return ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

bool ngd_rows_cat(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    uint32_t axis = ngd_op_known_axis(node, "dim", ngd_node_in(graph, node, 0)->rank);

    for (uint32_t i = 0; i < node->n_in; i++) {
        if (axis == 0 && ngd_op_in_carries(graph, node, i, symbol)) {
            *why_p = "it joins along dimension 0, so padding would end up between rows";
            return false;
        }
    }
    return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
}

/* All operands must have the first one's type. */
ngd_status_t ngd_shape_stack(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK + 1];
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank + 1u, &axis, diag);

    for (uint32_t i = 1; i < node->n_in && !status; i++) {
        status = ngd_op_dtype_is(graph, node, i, "operand", x->dtype, diag);
        if (!status)
            status = ngd_op_shape_is(graph, node, i, "operand", x->rank, x->dims, "of the first one's shape", diag);
    }
    if (status)
        return status;
    memcpy(dims, x->dims, axis * sizeof(dims[0]));
    dims[axis] = node->n_in;
    memcpy(&dims[axis + 1], &x->dims[axis], (x->rank - axis) * sizeof(dims[0]));
    return ngd_op_result(graph, node, 0, x->dtype, x->rank + 1u, dims, diag);
}

bool ngd_rows_stack(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return ngd_op_rows_axis(graph, node, symbol, ngd_op_known_axis(node, "dim", ngd_node_in(graph, node, 0)->rank + 1u),
                            why_p);
}

ngd_status_t ngd_shape_repeat(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const struct ngd_attr_value *repeats = ngd_op_attr(node, "repeats");
    const uint32_t added = repeats->n - x->rank;
    ngd_dim_t dims[NGD_MAX_RANK];
    char text[NGD_OP_TEXT];

    if (repeats->n < x->rank || repeats->n > NGD_MAX_RANK)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
            "attribute repeats has %u numbers, but %%%s has %u dimensions: it must have at least as many, and at "
            "most %u",
            repeats->n, ngd_op_in_name(graph, node, 0), x->rank, NGD_MAX_RANK);
    for (uint32_t i = 0; i < repeats->n; i++) {
        const ngd_dim_t dim = i < added ? 1 : x->dims[i - added];
        ngd_status_t status;

        if (!ngd_expr_always_le(graph->exprs, 0, repeats->list[i]))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE,
                               "attribute repeats has %s, which may be negative",
                               ngd_op_dim_text(graph, repeats->list[i], text));
        status = ngd_expr_make(graph->exprs, NGD_EXPR_MUL, repeats->list[i], dim, &dims[i]);
        if (status)
            return ngd_op_expr_fail(graph, node, diag, status, "a repeated dimension");
    }
    return ngd_op_result(graph, node, 0, x->dtype, repeats->n, dims, diag);
}

bool ngd_rows_repeat(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    const struct ngd_attr_value *repeats = ngd_op_attr(node, "repeats");

    if (!ngd_op_in_carries(graph, node, 0, symbol))
        return true; /* the rows are made of an operand without rows, so they are independent */
    if (repeats->n == ngd_node_in(graph, node, 0)->rank && repeats->list[0] == 1)
        return ngd_op_attrs_free(graph, node, symbol, NULL, why_p);
    *why_p = "it repeats dimension 0, so padding would end up between rows";
    return false;
}

ngd_status_t ngd_shape_split(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    const struct ngd_attr_value *sizes = ngd_op_attr(node, "split_sizes");
    ngd_dim_t dims[NGD_MAX_RANK], sum = 0;
    char ts[NGD_OP_TEXT], td[NGD_OP_TEXT];
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    if (!status && sizes->n == 0)
        status = ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_ATTRIBUTE, "attribute split_sizes is empty");
    for (uint32_t i = 0; i < sizes->n && !status; i++) {
        status = ngd_expr_make(graph->exprs, NGD_EXPR_ADD, sum, sizes->list[i], &sum);
        if (status)
            return ngd_op_expr_fail(graph, node, diag, status, "the sum of split_sizes");
    }
    if (status)
        return status;
    if (sum != x->dims[axis])
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "split_sizes sum up to %s, but dimension %u of %%%s is %s: they must be equal",
                           ngd_op_dim_text(graph, sum, ts), axis, ngd_op_in_name(graph, node, 0),
                           ngd_op_dim_text(graph, x->dims[axis], td));
    memcpy(dims, x->dims, sizeof(dims));
    for (uint32_t i = 0; i < sizes->n && !status; i++) {
        dims[axis] = sizes->list[i];
        status = ngd_op_result(graph, node, i, x->dtype, x->rank, dims, diag);
    }
    return status;
}

static bool index_rows_dim(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                           const char **why_p)
{
    return ngd_op_rows_axis(graph, node, symbol, ngd_op_known_axis(node, "dim", ngd_node_in(graph, node, 0)->rank),
                            why_p);
}

bool ngd_rows_split(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return index_rows_dim(graph, node, symbol, why_p);
}

/* Checks that the dimension has as many parts of `size` as the node has results, for all symbol values. Gives the size
 * of the last part. */
static ngd_status_t check_parts(struct ngd_graph *graph, struct ngd_node *node, uint32_t axis, ngd_dim_t size,
                                ngd_dim_t *last_p, struct ngd_diag *diag)
{
    ngd_dim_t dim = ngd_node_in(graph, node, 0)->dims[axis], before, last;
    char td[NGD_OP_TEXT], ts[NGD_OP_TEXT];
    ngd_status_t status = ngd_expr_make(graph->exprs, NGD_EXPR_MUL, size, (int64_t)node->n_out - 1, &before);

    if (!status)
        status = ngd_expr_make(graph->exprs, NGD_EXPR_SUB, dim, before, &last);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "the size of the last part");
    if (node->n_out == 0 || !ngd_expr_always_le(graph->exprs, 1, last) || !ngd_expr_always_le(graph->exprs, last, size))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "it has %u results, but dimension %u of %%%s, %s, does not have that many parts of %s for "
                           "all symbol values",
                           node->n_out, axis, ngd_op_in_name(graph, node, 0), ngd_op_dim_text(graph, dim, td),
                           ngd_op_dim_text(graph, size, ts));
    *last_p = last;
    return NGD_OK;
}

ngd_status_t ngd_shape_split_by(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK], last;
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    if (!status)
        status = check_parts(graph, node, axis, ngd_op_int(node, "split_size"), &last, diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    for (uint32_t i = 0; i < node->n_out && !status; i++) {
        dims[axis] = i + 1 < node->n_out ? ngd_op_int(node, "split_size") : last;
        status = ngd_op_result(graph, node, i, x->dtype, x->rank, dims, diag);
    }
    return status;
}

bool ngd_rows_split_by(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return index_rows_dim(graph, node, symbol, why_p);
}

ngd_status_t ngd_shape_unbind(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK], last;
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    if (!status)
        status = check_parts(graph, node, axis, 1, &last, diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    memmove(&dims[axis], &dims[axis + 1], (x->rank - axis - 1u) * sizeof(dims[0]));
    for (uint32_t i = 0; i < node->n_out && !status; i++)
        status = ngd_op_result(graph, node, i, x->dtype, x->rank - 1u, dims, diag);
    return status;
}

bool ngd_rows_unbind(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return index_rows_dim(graph, node, symbol, why_p);
}

/* Turns a bound of a Python slice into a position within 0..size: a negative one counts from the end; then it is
 * clamped. */
static ngd_status_t clamp_bound(struct ngd_graph *graph, struct ngd_node *node, const char *name, ngd_dim_t size,
                                ngd_dim_t *bound_p, struct ngd_diag *diag)
{
    ngd_dim_t v = ngd_op_int(node, name);
    char text[NGD_OP_TEXT];
    ngd_status_t status = NGD_OK;

    if (ngd_expr_always_le(graph->exprs, v, -1))
        status = ngd_expr_make(graph->exprs, NGD_EXPR_ADD, v, size, &v);
    else if (!ngd_expr_always_le(graph->exprs, 0, v))
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_SHAPE,
            "attribute %s, %s, has no known sign, but the sign decides from which end it counts: use a bound whose "
            "sign is known",
            name, ngd_op_dim_text(graph, v, text));
    if (!status)
        status = ngd_expr_make(graph->exprs, NGD_EXPR_MAX, v, 0, &v);
    if (!status)
        status = ngd_expr_make(graph->exprs, NGD_EXPR_MIN, v, size, &v);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, name);
    *bound_p = v;
    return NGD_OK;
}

ngd_status_t ngd_op_slice_bounds(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t size, ngd_dim_t *start_p,
                                 ngd_dim_t *end_p, struct ngd_diag *diag)
{
    ngd_status_t status = clamp_bound(graph, node, "start", size, start_p, diag);

    return status ? status : clamp_bound(graph, node, "end", size, end_p, diag);
}

ngd_status_t ngd_op_range_length(struct ngd_graph *graph, ngd_dim_t start, ngd_dim_t end, int64_t step,
                                 ngd_dim_t *length_p)
{
    ngd_dim_t n;
    ngd_status_t status = ngd_expr_make(graph->exprs, NGD_EXPR_SUB, end, start, &n);

    if (!status)
        status = ngd_expr_make(graph->exprs, NGD_EXPR_MAX, n, 0, &n);
    if (!status)
        status = ngd_expr_make(graph->exprs, NGD_EXPR_ADD, n, step - 1, &n);
    if (!status)
        status = ngd_expr_make(graph->exprs, NGD_EXPR_FLOORDIV, n, step, &n);
    if (!status)
        *length_p = n;
    return status;
}

ngd_status_t ngd_op_slice_dims(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t dims[NGD_MAX_RANK],
                               struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t start, end;
    int64_t step;
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    if (!status)
        status = ngd_op_const(graph, node, "step", 1, INT32_MAX, &step, diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(x->dims));
    status = ngd_op_slice_bounds(graph, node, dims[axis], &start, &end, diag);
    if (status)
        return status;
    status = ngd_op_range_length(graph, start, end, step, &dims[axis]);
    return status ? ngd_op_expr_fail(graph, node, diag, status, "the slice's length") : NGD_OK;
}

ngd_status_t ngd_shape_slice(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_slice_dims(graph, node, dims, diag);

    return status ? status : ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

/* A slice that keeps all rows is allowed. */
bool ngd_rows_slice(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *y = &graph->values[node->out[0]].type;

    if (ngd_op_known_axis(node, "dim", x->rank) == 0 && x->dims[0] == y->dims[0] && ngd_op_int(node, "start") == 0)
        return true;
    return index_rows_dim(graph, node, symbol, why_p);
}

ngd_status_t ngd_op_select_dims(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t dims[NGD_MAX_RANK],
                                struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t index = ngd_op_int(node, "index"), last, past;
    char ti[NGD_OP_TEXT], td[NGD_OP_TEXT];
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    if (status)
        return status;
    status = ngd_expr_make(graph->exprs, NGD_EXPR_SUB, x->dims[axis], 1, &last);
    if (!status)
        status = ngd_expr_make(graph->exprs, NGD_EXPR_ADD, index, x->dims[axis], &past);
    if (status)
        return ngd_op_expr_fail(graph, node, diag, status, "attribute index");
    if (!(ngd_expr_always_le(graph->exprs, 0, index) && ngd_expr_always_le(graph->exprs, index, last)) &&
        !(ngd_expr_always_le(graph->exprs, index, -1) && ngd_expr_always_le(graph->exprs, 0, past)))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_SHAPE,
                           "attribute index, %s, is not within dimension %u of %%%s, %s, for all symbol values",
                           ngd_op_dim_text(graph, index, ti), axis, ngd_op_in_name(graph, node, 0),
                           ngd_op_dim_text(graph, x->dims[axis], td));
    memcpy(dims, x->dims, sizeof(x->dims));
    memmove(&dims[axis], &dims[axis + 1], (x->rank - axis - 1u) * sizeof(dims[0]));
    return NGD_OK;
}

ngd_status_t ngd_shape_select(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_select_dims(graph, node, dims, diag);

    return status ? status : ngd_op_result(graph, node, 0, x->dtype, x->rank - 1u, dims, diag);
}

bool ngd_rows_select(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    return index_rows_dim(graph, node, symbol, why_p);
}

/* ---- by index tensors ---- */

ngd_status_t ngd_op_within(struct ngd_graph *graph, struct ngd_node *node, uint32_t a, const char *role_a, uint32_t b,
                           const char *role_b, uint32_t except, struct ngd_diag *diag)
{
    const struct ngd_type *s = ngd_node_in(graph, node, a), *t = ngd_node_in(graph, node, b);
    char ts[NGD_OP_TEXT], tt[NGD_OP_TEXT];
    bool within = s->rank == t->rank;

    for (uint32_t k = 0; k < s->rank && within; k++)
        within = k == except || ngd_expr_always_le(graph->exprs, s->dims[k], t->dims[k]);
    if (within)
        return NGD_OK;
    return ngd_op_fail(
        graph, node, diag, NGD_ERR_GRAPH_SHAPE,
        "%s %%%s is %s and %s %%%s is %s: they must have the same rank, and the first must lie within the second "
        "in every dimension%s",
        role_a, ngd_op_in_name(graph, node, a), ngd_op_type_text(graph, s, ts), role_b, ngd_op_in_name(graph, node, b),
        ngd_op_type_text(graph, t, tt), except < NGD_MAX_RANK ? " but dim" : "");
}

ngd_status_t ngd_op_check_index(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", ngd_node_in(graph, node, 0)->rank, &axis, diag);

    if (!status)
        status = ngd_op_takes(graph, node, 1, "index", NGD_TAKES_INDEX, diag);
    return status ? status : ngd_op_within(graph, node, 1, "index", 0, "x", axis, diag);
}

ngd_status_t ngd_shape_gather(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *index = ngd_node_in(graph, node, 1);
    ngd_status_t status = ngd_op_check_index(graph, node, diag);

    return status ? status : ngd_op_result(graph, node, 0, x->dtype, index->rank, index->dims, diag);
}

/* Row i of the index reads only row i of x, so only padding of the index reads padding of x. */
bool ngd_rows_gather(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    if (ngd_op_in_carries(graph, node, 0, symbol) && !ngd_op_in_carries(graph, node, 1, symbol)) {
        *why_p = "x has rows of it, but the index has not";
        return false;
    }
    return index_rows_dim(graph, node, symbol, why_p);
}

ngd_status_t ngd_op_picked_dims(struct ngd_graph *graph, struct ngd_node *node, ngd_dim_t dims[NGD_MAX_RANK],
                                struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    uint32_t axis;
    ngd_status_t status = ngd_op_axis(graph, node, "dim", x->rank, &axis, diag);

    if (!status)
        status = ngd_op_takes(graph, node, 1, "index", NGD_TAKES_INDEX, diag);
    if (!status)
        status = ngd_op_rank_is(graph, node, 1, "index", 1, "[N]", diag);
    if (status)
        return status;
    memcpy(dims, x->dims, sizeof(x->dims));
    dims[axis] = ngd_node_in(graph, node, 1)->dims[0];
    return NGD_OK;
}

ngd_status_t ngd_shape_index_select(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0);
    ngd_dim_t dims[NGD_MAX_RANK];
    ngd_status_t status = ngd_op_picked_dims(graph, node, dims, diag);

    return status ? status : ngd_op_result(graph, node, 0, x->dtype, x->rank, dims, diag);
}

bool ngd_rows_index_select(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                           const char **why_p)
{
    return index_rows_dim(graph, node, symbol, why_p);
}

ngd_status_t ngd_op_rows_dims(struct ngd_graph *graph, struct ngd_node *node, uint32_t *rank_p,
                              ngd_dim_t dims[2 * NGD_MAX_RANK], struct ngd_diag *diag)
{
    const struct ngd_type *x = ngd_node_in(graph, node, 0), *index = ngd_node_in(graph, node, 1);
    ngd_status_t status = ngd_op_takes(graph, node, 1, "indices", NGD_TAKES_INDEX, diag);

    if (status)
        return status;
    if (x->rank == 0)
        return ngd_op_rank_is(graph, node, 0, "x", 1, "of rank 1 or more", diag);
    memcpy(dims, index->dims, index->rank * sizeof(dims[0]));
    memcpy(dims + index->rank, x->dims + 1, (x->rank - 1u) * sizeof(dims[0]));
    *rank_p = index->rank + x->rank - 1u;
    return NGD_OK;
}

ngd_status_t ngd_shape_index(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag)
{
    ngd_dim_t dims[2 * NGD_MAX_RANK];
    uint32_t rank;
    ngd_status_t status = ngd_op_rows_dims(graph, node, &rank, dims, diag);

    return status ? status : ngd_op_result(graph, node, 0, ngd_node_in(graph, node, 0)->dtype, rank, dims, diag);
}

/*
 * The table may have padded rows. By the operator's definition the table ends at its actual rows (an index beyond them
 * is INDEX_RANGE), so no index reads padding. This is how a prompt's last row is picked.
 */
bool ngd_rows_index(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    if (!ngd_op_in_carries(graph, node, 1, symbol))
        return true;
    return ngd_rows_embedding(graph, node, symbol, why_p);
}
