/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoist_views: rewrites view(op(x)) to op(view(x)), for operators that compute each row independently and views that
 * only change the leading dimensions, not the rows. Some models carry [batch, tokens, K] through a layer, and view it
 * as [batch * tokens, K] before each product. After this pass norms, sums and products are next to each other, where
 * patterns find them.
 *
 * Correct because such an operator makes the same elements from the same rows, in the same order. A node is rewritten
 * only if all readers of the result read this view of it, in the node's scope. Nodes that use a state are left alone,
 * and so are operands that are not contiguous (permuted, expanded, sliced), because viewing them may take a copy.
 */
#include "graphs/graph_int.h"
#include "graphs/op_int.h"
#include "graphs/op_traits.h"
#include "graphs/pass.h"
#include <string.h>

#define MAX_OPERANDS 8

/* Returns true if operand i has the result's rows. Other operands are the same for all rows. */
static bool has_rows(const struct ngd_graph *g, const struct ngd_node *n, uint32_t i)
{
    const uint8_t row_operand = ngd_op_traits[n->op->id].row_operand;

    return row_operand ? i + 1 == row_operand : ngd_node_in(g, n, i)->rank > 1;
}

/* Returns the rank of a row: 1, or 0 if the operator's rows are indices. */
static uint32_t row_rank(const struct ngd_node *n)
{
    return ngd_op_traits[n->op->id].indexes ? 0 : 1;
}

static bool by_rows(const struct ngd_node *n)
{
    return ngd_op_traits[n->op->id].row_operand ||
           ((n->op->flags & NGD_OPF_ELEMENTWISE) && n->n_in && n->n_in <= MAX_OPERANDS);
}

/* Returns the type in which all readers view the result; NULL: there is no such type. */
static const struct ngd_type *viewed_as(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    const struct ngd_type *result = ngd_rewrite_type(rw, n->out[0]), *as = NULL;

    if (rw->values[n->out[0]].n_outputs)
        return NULL;
    for (uint32_t i = 1; i < n->n_out; i++)
        if (ngd_rewrite_n_uses(rw, n->out[i]))
            return NULL;
    for (uint32_t u = rw->values[n->out[0]].first_use; u != NGD_NODE_NONE; u = rw->uses[u].next) {
        const struct ngd_node *user = ngd_rewrite_node(rw, rw->uses[u].node);

        if (!ngd_op_reshapes(user->op) || !ngd_node_scope_equal(&user->scope, &n->scope))
            return NULL;
        if (as && !ngd_type_equal(as, ngd_rewrite_type(rw, user->out[0])))
            return NULL;
        as = ngd_rewrite_type(rw, user->out[0]);
    }
    if (!as || as->rank < 2 || result->rank < 2 || ngd_type_equal(as, result) ||
        as->dims[as->rank - 1] != result->dims[result->rank - 1])
        return NULL;
    return as;
}

/* Returns true if an operand has the result's rows, and viewing it with other leading dimensions copies nothing. */
static bool may_view(const struct ngd_rewrite *rw, const struct ngd_node *n, uint32_t i)
{
    const struct ngd_type *x = ngd_rewrite_type(rw, n->in[i]), *y = ngd_rewrite_type(rw, n->out[0]);
    const uint32_t maker = ngd_rewrite_maker(rw, n->in[i]), lead = y->rank - 1u;
    const struct ngd_op *made = maker == NGD_NODE_NONE ? NULL : ngd_rewrite_node(rw, maker)->op;

    if (made && (made->flags & NGD_OPF_VIEW) && !ngd_op_reshapes(made))
        return false;
    return x->rank == lead + row_rank(n) && memcmp(x->dims, y->dims, lead * sizeof(x->dims[0])) == 0;
}

static bool may_hoist(const struct ngd_rewrite *rw, uint32_t node)
{
    const struct ngd_node *n = ngd_rewrite_node(rw, node);
    bool any = false;

    if (n->n_in > MAX_OPERANDS || !by_rows(n) || !viewed_as(rw, n) || ngd_rewrite_touches_state(rw, node))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->in[i] == NGD_VALUE_NONE || !has_rows(rw->g, n, i))
            continue;
        if (!may_view(rw, n, i))
            return false;
        any = true;
    }
    return any;
}

/* The replacement of a node: its operator, and views of its operands. */
struct instead {
    uint32_t n_views, views[MAX_OPERANDS];
    uint32_t node; /* NGD_NODE_NONE: none was made */
};

/* Adds in front of the node: views of its operands with the rows of `as`, and its operator on these. */
static ngd_status_t build(struct ngd_pass_context *ctx, uint32_t node, struct ngd_type as, struct instead *made)
{
    struct ngd_rewrite *rw = ctx->rw;
    const struct ngd_node n = *ngd_rewrite_node(rw, node); /* a copy, because adding nodes moves the array */
    uint32_t in[MAX_OPERANDS];
    ngd_status_t status = NGD_OK;

    *made = (struct instead){.node = NGD_NODE_NONE};
    for (uint32_t i = 0; i < n.n_in && !status; i++) {
        struct ngd_attr_value size = {.list = as.dims, .n = as.rank - 1u + row_rank(&n)};
        uint32_t view;

        in[i] = n.in[i];
        if (in[i] == NGD_VALUE_NONE || !has_rows(rw->g, &n, i))
            continue;
        if (row_rank(&n))
            as.dims[as.rank - 1] = ngd_rewrite_type(rw, in[i])->dims[ngd_rewrite_type(rw, in[i])->rank - 1];
        status = ngd_rewrite_add(rw, node, ngd_op_by_id(NGD_OP_ATEN_VIEW), &in[i], 1, &size, &view, ctx->diag);
        if (status)
            break;
        made->views[made->n_views++] = view;
        in[i] = ngd_rewrite_node(rw, view)->out[0];
    }
    return status ? status : ngd_rewrite_add(rw, node, n.op, in, n.n_in, n.attrs, &made->node, ctx->diag);
}

static void unmake(struct ngd_rewrite *rw, const struct instead *made)
{
    ngd_rewrite_remove(rw, made->node);
    for (uint32_t i = 0; i < made->n_views; i++)
        ngd_rewrite_remove(rw, made->views[i]);
}

/* Makes the readers of the result's views read the replacement. It takes the name of a view of the original graph, or
 * else that of the result. */
static void replace_views(struct ngd_rewrite *rw, uint32_t node, uint32_t made)
{
    const uint32_t result = ngd_rewrite_node(rw, node)->out[0], instead = ngd_rewrite_node(rw, made)->out[0];

    while (rw->values[result].first_use != NGD_NODE_NONE) {
        const uint32_t view = rw->uses[rw->values[result].first_use].node;
        const uint32_t viewed = ngd_rewrite_node(rw, view)->out[0];

        if (viewed >= rw->n_source && rw->values[viewed].named_as == NGD_VALUE_NONE)
            rw->values[viewed].named_as =
                rw->values[result].named_as == NGD_VALUE_NONE ? result : rw->values[result].named_as;
        ngd_rewrite_replace(rw, viewed, instead);
        ngd_rewrite_remove(rw, view);
    }
    ngd_rewrite_remove(rw, node);
}

/* Rewrites a node if possible. *next_p: the node to visit next;
 * the new one, if any, whose readers may be views again. */
static ngd_status_t hoist_at(struct ngd_pass_context *ctx, uint32_t node, uint32_t *next_p)
{
    struct ngd_rewrite *rw = ctx->rw;
    struct instead made;
    ngd_status_t status;

    *next_p = rw->nodes[node].prev;
    if (!may_hoist(rw, node))
        return NGD_OK;
    ngd_rewrite_scope_as(rw, node);
    status = build(ctx, node, *viewed_as(rw, ngd_rewrite_node(rw, node)), &made);
    ngd_rewrite_scope_as(rw, NGD_NODE_NONE);
    if (status)
        return status;
    if (!ngd_pass_supported(ctx, made.node)) {
        unmake(rw, &made);
        return NGD_OK;
    }
    replace_views(rw, node, made.node);
    ctx->changed++;
    *next_p = made.node;
    return NGD_OK;
}

/* Visits nodes from the last to the first, so that a node's readers have been rewritten before it. */
ngd_status_t ngd_pass_hoist_views(struct ngd_pass_context *ctx)
{
    ngd_status_t status = NGD_OK;
    uint32_t next;

    for (uint32_t n = ctx->rw->last; n != NGD_NODE_NONE && !status; n = next)
        status = hoist_at(ctx, n, &next);
    return status;
}
