/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove_noops: removes operators whose result equals an operand: clone, a cast to the same dtype, views that keep
 * shape and order, padding by nothing, pow 1, products with 1 and quotients by 1, sums that change no number, a clamp
 * without bounds, a choice between equals, a cat of one operand or of one with empty ones, a split into one part, a
 * slice_scatter of all, and copies of a state onto itself.
 *
 * Correct because the result has the operand's type and the same elements, bit for bit; only a signalling NaN may
 * become quiet by arithmetic. x - 0 and x + -0 change no number. x + 0 makes 0 of -0, so it stays for floats. Without
 * the operator, a result that is read after a write to the operand's state would see the write. So operators on a state
 * that is written later stay. So do those that bring a product's weight into another layout (pass_layout.c). The
 * planner ensures that no output shares storage with an input or another output, and copies where it must.
 */
#include "graphs/graph_int.h"
#include "graphs/op_traits.h"
#include "graphs/pass.h"
#include "graphs/uniform.h"
#include <math.h>
#include <string.h>

static bool keeps_order(const struct ngd_node *n)
{
    const struct ngd_attr_value *dims = ngd_op_attr(n, "dims");

    for (uint32_t i = 0; i < dims->n; i++)
        if (dims->list[i] != i && dims->list[i] + dims->n != i)
            return false;
    return true;
}

bool ngd_noop_swaps_nothing(const struct ngd_graph *g, const struct ngd_node *n)
{
    uint32_t rank = ngd_node_in(g, n, 0)->rank;

    return rank == 0 || ngd_op_known_axis(n, "dim0", rank) == ngd_op_known_axis(n, "dim1", rank);
}

bool ngd_noop_permutes_nothing(const struct ngd_graph *g, const struct ngd_node *n)
{
    (void)g;
    return keeps_order(n);
}

bool ngd_noop_has_no_matrix(const struct ngd_graph *g, const struct ngd_node *n)
{
    return ngd_node_in(g, n, 0)->rank < 2;
}

bool ngd_noop_is_power_one(const struct ngd_graph *g, const struct ngd_node *n)
{
    (void)g;
    return ngd_op_float(n, "exponent") == 1.0;
}

bool ngd_noop_clamps_nothing(const struct ngd_graph *g, const struct ngd_node *n)
{
    double least = ngd_op_float(n, "min"), most = ngd_op_float(n, "max");

    (void)g;
    return isinf(least) && least < 0 && isinf(most) && most > 0;
}

bool ngd_noop_is_by_one(const struct ngd_graph *g, const struct ngd_node *n)
{
    (void)g;
    return ngd_op_float(n, "other") == 1.0;
}

/* Returns true if x + zero is x: zero is -0, or the dtype is no float. */
static bool is_neutral_zero(ngd_dtype_t dtype, double zero)
{
    return zero == 0 && (signbit(zero) || !ngd_dtype_is_float(dtype));
}

bool ngd_noop_adds_nothing(const struct ngd_graph *g, const struct ngd_node *n)
{
    double v = ngd_op_float(n, "other") * ngd_op_float(n, "alpha");

    return is_neutral_zero(ngd_node_in(g, n, 0)->dtype,
                           ngd_op_traits[n->op->id].arithmetic == NGD_ARITHMETIC_DIFFERENCE ? -v : v);
}

bool ngd_noop_has_one_part(const struct ngd_graph *g, const struct ngd_node *n)
{
    (void)g;
    return n->n_in == 1 && n->n_out == 1;
}

/* For operators that do nothing whenever the result has the operand's type. */
bool ngd_noop_always(const struct ngd_graph *g, const struct ngd_node *n)
{
    (void)g;
    (void)n;
    return true;
}

/* Returns the operand of a cat if all others are empty. */
uint32_t ngd_same_only_part(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    const struct ngd_graph *g = rw->g;
    uint32_t axis = ngd_op_known_axis(n, "dim", ngd_node_in(g, n, 0)->rank), found = NGD_NO_OPERAND;

    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->n_in > 1 && ngd_node_in(g, n, i)->dims[axis] == 0)
            continue;
        if (found != NGD_NO_OPERAND)
            return NGD_NO_OPERAND;
        found = i;
    }
    return found;
}

/* Returns one of two operands if the other is uniform and neutral, so that it changes nothing. */
uint32_t ngd_same_beside_neutral(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    const ngd_dtype_t dtype = ngd_rewrite_type(rw, n->in[0])->dtype;
    const bool minus = ngd_op_traits[n->op->id].arithmetic == NGD_ARITHMETIC_DIFFERENCE;

    for (uint32_t i = n->op->flags & NGD_OPF_COMMUTES ? 0 : 1; i < 2; i++) {
        struct ngd_uniform u;
        double v;

        if (!ngd_type_equal(ngd_rewrite_type(rw, n->in[1 - i]), ngd_rewrite_type(rw, n->out[0])) ||
            !ngd_uniform_of(rw, n->in[i], &u))
            continue;
        v = ngd_uniform_number(dtype, &u);
        if (ngd_op_adds(n->op) ? ngd_op_float(n, "alpha") == 1 && is_neutral_zero(dtype, minus ? -v : v) : v == 1)
            return 1 - i;
    }
    return NGD_NO_OPERAND;
}

/* The slice is the whole tensor if it has the result's shape. */
uint32_t ngd_same_whole_slice(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    return ngd_type_equal(ngd_node_in(rw->g, n, 1), &rw->g->values[n->out[0]].type) ? 1 : NGD_NO_OPERAND;
}

uint32_t ngd_same_equal_choice(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    return n->in[1] == n->in[2] ? ngd_same_whole_slice(rw, n) : NGD_NO_OPERAND;
}

/* Returns the operand that equals the result, or NGD_NO_OPERAND. */
static uint32_t same_operand(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    const struct ngd_op_traits *traits = &ngd_op_traits[n->op->id];
    const struct ngd_graph *g = rw->g;
    const struct ngd_type *result;

    if (n->n_in == 0 || n->n_out == 0 || n->in[0] == NGD_VALUE_NONE)
        return NGD_NO_OPERAND;
    result = &g->values[n->out[0]].type;
    if (traits->same)
        return traits->same(rw, n);
    if (!ngd_type_equal(ngd_node_in(g, n, 0), result))
        return NGD_NO_OPERAND;
    return traits->noop && traits->noop(g, n) ? 0 : NGD_NO_OPERAND;
}

static bool copies_onto_itself(const struct ngd_node *n)
{
    return ngd_op_traits[n->op->id].copies_into && n->in[0] == n->in[1];
}

static void remove_node(struct ngd_pass_context *ctx, uint32_t node)
{
    ngd_rewrite_remove(ctx->rw, node);
    ctx->changed++;
}

/* Removes copies of a state onto itself first: they count as writes, and so keep other operators on their state. */
ngd_status_t ngd_pass_remove_noops(struct ngd_pass_context *ctx)
{
    struct ngd_rewrite *rw = ctx->rw;
    uint32_t next;

    for (uint32_t i = rw->first; i != NGD_NODE_NONE; i = next) {
        next = rw->nodes[i].next;
        if (copies_onto_itself(ngd_rewrite_node(rw, i)))
            remove_node(ctx, i);
    }
    for (uint32_t i = rw->first; i != NGD_NODE_NONE; i = next) {
        const struct ngd_node *n = ngd_rewrite_node(rw, i);
        uint32_t same = same_operand(rw, n);

        next = rw->nodes[i].next;
        if (same == NGD_NO_OPERAND || ngd_rewrite_written_between(rw, n->in[same], i, NGD_NODE_NONE))
            continue;
        if (!(n->op->flags & NGD_OPF_VIEW) && ngd_pass_layout_counts(rw, n->out[0], n->in[same]))
            continue;
        ngd_rewrite_replace(rw, n->out[0], n->in[same]);
        remove_node(ctx, i);
    }
    return NGD_OK;
}
