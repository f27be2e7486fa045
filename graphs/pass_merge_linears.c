/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge_linears: makes one ngd.multi_linear of the aten.linears that share an operand (query, key and value
 * projections).
 *
 * Correct because ngd.multi_linear computes each result as aten.linear does. The new operator takes the place of the
 * first linear, so weights and biases must be defined there, and no state that one of them reads may be written in
 * between. At most 8 linears are merged. They must have weights of the same dtype, all with a bias or all without, and
 * be in one segment of one stream.
 */
#include "graphs/graph_int.h"
#include "graphs/pass.h"

#define MAX_MERGED 8

struct group {
    uint32_t n, nodes[MAX_MERGED];
};

static bool is_linear(const struct ngd_rewrite *rw, uint32_t node, uint32_t x)
{
    const struct ngd_node *n = ngd_rewrite_node(rw, node);

    /* This pass is about the one operator aten.linear. */
    return n->op->id == NGD_OP_ATEN_LINEAR && (x == NGD_VALUE_NONE || n->in[0] == x) && n->in[1] != n->in[0] &&
           ngd_dim_is_const(ngd_rewrite_type(rw, n->in[1])->dims[0]);
}

static bool linears_alike(const struct ngd_rewrite *rw, const struct ngd_node *a, const struct ngd_node *b)
{
    if (a->n_in != b->n_in || ngd_rewrite_type(rw, a->in[1])->dtype != ngd_rewrite_type(rw, b->in[1])->dtype)
        return false;
    return a->n_in < 3 || ngd_rewrite_type(rw, a->in[2])->dtype == ngd_rewrite_type(rw, b->in[2])->dtype;
}

/* Returns true if the operands of a later node are defined at the place of the first, and have
 * the same values there. */
static bool may_move_up(const struct ngd_rewrite *rw, uint32_t node, uint32_t first)
{
    const struct ngd_node *n = ngd_rewrite_node(rw, node);

    for (uint32_t i = 1; i < n->n_in; i++) {
        uint32_t maker = ngd_rewrite_maker(rw, n->in[i]);

        if ((maker != NGD_NODE_NONE && !ngd_rewrite_before(rw, maker, first)) ||
            ngd_rewrite_written_between(rw, n->in[i], first, node))
            return false;
    }
    return !ngd_rewrite_written_between(rw, n->in[0], first, node);
}

/* Finds the linears that can be merged with the first one, in their order. */
static void find_linears(const struct ngd_rewrite *rw, uint32_t first, struct group *g)
{
    uint32_t x = ngd_rewrite_node(rw, first)->in[0];

    g->n = 0;
    g->nodes[g->n++] = first;
    for (uint32_t u = rw->values[x].first_use; u != NGD_NODE_NONE; u = rw->uses[u].next) {
        uint32_t node = rw->uses[u].node, at;

        if (rw->uses[u].operand != 0 || g->n == MAX_MERGED || !is_linear(rw, node, x) ||
            !ngd_rewrite_same_segment(rw, first, node) || !ngd_rewrite_before(rw, first, node) ||
            !linears_alike(rw, ngd_rewrite_node(rw, first), ngd_rewrite_node(rw, node)) ||
            !may_move_up(rw, node, first))
            continue;
        for (at = g->n++; ngd_rewrite_before(rw, node, g->nodes[at - 1]); at--)
            g->nodes[at] = g->nodes[at - 1];
        g->nodes[at] = node;
    }
}

static ngd_status_t merge_linears(struct ngd_pass_context *ctx, const struct group *g)
{
    struct ngd_rewrite *rw = ctx->rw;
    const struct ngd_op *op = ngd_op_by_id(NGD_OP_NGD_MULTI_LINEAR);
    bool biased = ngd_rewrite_node(rw, g->nodes[0])->n_in == 3;
    uint32_t in[1 + 2 * MAX_MERGED], n_in = 1 + g->n * (biased ? 2 : 1), made;
    int64_t sizes[MAX_MERGED];
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS] = {{.list = sizes, .n = g->n}};
    ngd_status_t status;

    in[0] = ngd_rewrite_node(rw, g->nodes[0])->in[0];
    for (uint32_t i = 0; i < g->n; i++) {
        const struct ngd_node *n = ngd_rewrite_node(rw, g->nodes[i]);

        in[1 + i] = n->in[1];
        if (biased)
            in[1 + g->n + i] = n->in[2];
        sizes[i] = ngd_rewrite_type(rw, n->in[1])->dims[0];
    }
    status = ngd_rewrite_add(rw, g->nodes[0], op, in, n_in, attrs, &made, NULL);
    if (status) /* if the operator does not accept a type, nothing is merged */
        return status == NGD_ERR_NO_MEMORY ? ngd_diag_set(ctx->diag, status, "out of host memory") : NGD_OK;
    if (!ngd_pass_supported(ctx, made)) {
        ngd_rewrite_remove(rw, made);
        return NGD_OK;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        ngd_rewrite_replace(rw, ngd_rewrite_node(rw, g->nodes[i])->out[0], ngd_rewrite_node(rw, made)->out[i]);
        ngd_rewrite_remove(rw, g->nodes[i]);
    }
    ctx->changed++;
    return NGD_OK;
}

ngd_status_t ngd_pass_merge_linears(struct ngd_pass_context *ctx)
{
    struct ngd_rewrite *rw = ctx->rw;
    ngd_status_t status = NGD_OK;
    struct group g;

    for (uint32_t n = rw->first, next; n != NGD_NODE_NONE && !status; n = next) {
        uint32_t before = rw->nodes[n].prev;

        next = rw->nodes[n].next;
        if (!is_linear(rw, n, NGD_VALUE_NONE))
            continue;
        find_linears(rw, n, &g);
        if (g.n < 2)
            continue;
        status = merge_linears(ctx, &g);
        if (rw->nodes[n].dead) /* nodes behind it may be dead too, so continue from the node before it */
            next = before == NGD_NODE_NONE ? rw->first : rw->nodes[before].next;
    }
    return status;
}
