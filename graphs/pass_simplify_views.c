/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simplify_views: makes one view of a chain of views, and removes views that cancel out.
 *
 *   - Equal views get the same form: aten.reshape and aten._unsafe_view become aten.view with all sizes written out (no
 *     -1); the bounds of a slice of a constant dimension are written out (0 to its size); aten.split.Tensor becomes
 *     aten.split_with_sizes.
 *   - A reshaping view (view, unsqueeze, squeeze) of a reshaping view becomes one view of the first one's operand.
 *   - A reordering view (permute, transpose, t) of a reordering view becomes one permute.
 *   - A view whose result has its operand's shape and order is replaced by the operand.
 *
 * Correct because a reshaping view keeps the elements in row-major order, and reordering views compose. A view of a
 * state may have to copy, at its place, if strides cannot express it. Therefore views of a state that any node writes
 * are left alone.
 */
#include "graphs/graph_int.h"
#include "graphs/op_int.h"
#include "graphs/pass.h"
#include "graphs/op_traits.h"
#include <string.h>

static bool reorders(const struct ngd_node *n)
{
    return ngd_op_traits[n->op->id].order != NULL;
}

static ngd_status_t views_no_memory(struct ngd_pass_context *ctx)
{
    return ngd_diag_set(ctx->diag, NGD_ERR_NO_MEMORY, "out of host memory");
}

/* Turns a node into another operator with one attribute, a list. */
static ngd_status_t become_view(struct ngd_pass_context *ctx, struct ngd_node *n, ngd_op_id_t op, const int64_t *list,
                                uint32_t n_list)
{
    struct ngd_arena *arena = &ctx->rw->g->priv->arena;
    struct ngd_attr_value *attrs = ngd_arena_calloc(arena, 1, sizeof(*attrs));
    int64_t *copy = ngd_arena_calloc(arena, n_list + 1u, sizeof(*copy));

    if (!attrs || !copy)
        return views_no_memory(ctx);
    if (n_list)
        memcpy(copy, list, n_list * sizeof(*copy));
    attrs[0] = (struct ngd_attr_value){.list = copy, .n = n_list};
    n->op = ngd_op_by_id(op);
    n->attrs = attrs;
    ctx->changed++;
    return NGD_OK;
}

/* Writes the node as aten.view with the result's dimensions as its size. */
ngd_status_t ngd_spell_view(struct ngd_pass_context *ctx, struct ngd_node *n)
{
    const struct ngd_type *type = ngd_rewrite_type(ctx->rw, n->out[0]);

    /* aten.view is the form that this pass gives to all reshaping views. */
    if (n->op->id == NGD_OP_ATEN_VIEW && n->attrs[0].n == type->rank &&
        memcmp(n->attrs[0].list, type->dims, type->rank * sizeof(type->dims[0])) == 0)
        return NGD_OK;
    return become_view(ctx, n, NGD_OP_ATEN_VIEW, type->dims, type->rank);
}

/* Writes the bounds of a slice out: from 0 to the size. */
ngd_status_t ngd_spell_slice(struct ngd_pass_context *ctx, struct ngd_node *n)
{
    struct ngd_graph *g = ctx->rw->g;
    const struct ngd_type *x = ngd_node_in(g, n, 0);
    const ngd_dim_t size = x->dims[ngd_op_known_axis(n, "dim", x->rank)];
    const int at_start = ngd_op_attr_index(n->op, "start", 5), at_end = ngd_op_attr_index(n->op, "end", 3);
    struct ngd_attr_value *attrs;
    ngd_dim_t start, end;
    ngd_status_t status;

    if (!ngd_dim_is_const(size) || !ngd_dim_is_const(n->attrs[at_start].i) || !ngd_dim_is_const(n->attrs[at_end].i))
        return NGD_OK;
    status = ngd_op_slice_bounds(g, n, size, &start, &end, ctx->diag);
    if (status || (start == n->attrs[at_start].i && end == n->attrs[at_end].i))
        return status;
    attrs = ngd_arena_calloc(&g->priv->arena, n->op->n_attrs, sizeof(*attrs));
    if (!attrs)
        return views_no_memory(ctx);
    memcpy(attrs, n->attrs, n->op->n_attrs * sizeof(*attrs));
    attrs[at_start].i = start;
    attrs[at_end].i = end;
    n->attrs = attrs;
    ctx->changed++;
    return NGD_OK;
}

/* Writes a split as aten.split_with_sizes. */
ngd_status_t ngd_spell_split(struct ngd_pass_context *ctx, struct ngd_node *n)
{
    const struct ngd_op *split = ngd_op_by_id(NGD_OP_ATEN_SPLIT_WITH_SIZES);
    struct ngd_arena *arena = &ctx->rw->g->priv->arena;
    struct ngd_attr_value *attrs = ngd_arena_calloc(arena, split->n_attrs, sizeof(*attrs));
    int64_t *sizes = ngd_arena_calloc(arena, n->n_out, sizeof(*sizes)), dim = ngd_op_int(n, "dim");
    uint32_t axis = ngd_op_known_axis(n, "dim", ngd_node_in(ctx->rw->g, n, 0)->rank);

    if (!attrs || !sizes)
        return views_no_memory(ctx);
    for (uint32_t i = 0; i < n->n_out; i++)
        sizes[i] = ngd_rewrite_type(ctx->rw, n->out[i])->dims[axis];
    attrs[ngd_op_attr_index(split, "split_sizes", strlen("split_sizes"))] =
        (struct ngd_attr_value){.list = sizes, .n = n->n_out};
    attrs[ngd_op_attr_index(split, "dim", strlen("dim"))].i = dim;
    n->op = split;
    n->attrs = attrs;
    ctx->changed++;
    return NGD_OK;
}

void ngd_order_permute(const struct ngd_node *n, uint32_t rank, int64_t order[NGD_MAX_RANK])
{
    const struct ngd_attr_value *dims = ngd_op_attr(n, "dims");

    for (uint32_t i = 0; i < rank; i++)
        order[i] = dims->list[i] < 0 ? dims->list[i] + rank : dims->list[i];
}

void ngd_order_transpose(const struct ngd_node *n, uint32_t rank, int64_t order[NGD_MAX_RANK])
{
    if (rank) {
        const uint32_t a = ngd_op_known_axis(n, "dim0", rank), b = ngd_op_known_axis(n, "dim1", rank);

        order[a] = b;
        order[b] = a;
    }
}

void ngd_order_t(const struct ngd_node *n, uint32_t rank, int64_t order[NGD_MAX_RANK])
{
    (void)n;
    if (rank == 2) {
        order[0] = 1;
        order[1] = 0;
    }
}

static void order_of(const struct ngd_graph *g, const struct ngd_node *n, int64_t order[NGD_MAX_RANK])
{
    const uint32_t rank = ngd_node_in(g, n, 0)->rank;

    for (uint32_t i = 0; i < rank; i++)
        order[i] = i;
    ngd_op_traits[n->op->id].order(n, rank, order);
}

static ngd_status_t join_reorders(struct ngd_pass_context *ctx, uint32_t node, const struct ngd_node *inner)
{
    struct ngd_node *n = ngd_rewrite_node(ctx->rw, node);
    uint32_t rank = ngd_node_in(ctx->rw->g, n, 0)->rank;
    int64_t first[NGD_MAX_RANK], second[NGD_MAX_RANK], both[NGD_MAX_RANK];

    order_of(ctx->rw->g, inner, first);
    order_of(ctx->rw->g, n, second);
    for (uint32_t i = 0; i < rank; i++)
        both[i] = first[second[i]];
    ngd_rewrite_set_operand(ctx->rw, node, 0, inner->in[0]);
    return become_view(ctx, n, NGD_OP_ATEN_PERMUTE, both, rank);
}

/* Returns true if the result has its operand's shape and order, so that the view does nothing. */
static bool cancels(const struct ngd_rewrite *rw, const struct ngd_node *n)
{
    int64_t order[NGD_MAX_RANK];

    if (!ngd_type_equal(ngd_node_in(rw->g, n, 0), ngd_rewrite_type(rw, n->out[0])))
        return false;
    if (ngd_op_reshapes(n->op))
        return true;
    order_of(rw->g, n, order);
    for (uint32_t i = 0; i < ngd_node_in(rw->g, n, 0)->rank; i++)
        if (order[i] != i)
            return false;
    return true;
}

static ngd_status_t join_views(struct ngd_pass_context *ctx, uint32_t node)
{
    struct ngd_node *n = ngd_rewrite_node(ctx->rw, node);
    uint32_t maker = ngd_rewrite_maker(ctx->rw, n->in[0]);
    const struct ngd_node *inner = maker == NGD_NODE_NONE ? NULL : ngd_rewrite_node(ctx->rw, maker);

    if (inner && ngd_op_reshapes(n->op) && ngd_op_reshapes(inner->op)) {
        const struct ngd_type *type = ngd_rewrite_type(ctx->rw, n->out[0]);

        if (ngd_pass_layout_counts(ctx->rw, n->out[0],
                                   inner->in[0])) /* the inner view may have to copy, which decides bits */
            return NGD_OK;
        ngd_rewrite_set_operand(ctx->rw, node, 0, inner->in[0]);
        return become_view(ctx, n, NGD_OP_ATEN_VIEW, type->dims, type->rank);
    }
    if (inner && reorders(n) && reorders(inner))
        return join_reorders(ctx, node, inner);
    return NGD_OK;
}

static ngd_status_t simplify_view(struct ngd_pass_context *ctx, uint32_t node)
{
    struct ngd_rewrite *rw = ctx->rw;
    struct ngd_node *n = ngd_rewrite_node(rw, node);
    ngd_status_t status;

    if (ngd_rewrite_written_between(rw, n->in[0], NGD_NODE_NONE, NGD_NODE_NONE))
        return NGD_OK;
    status = join_views(ctx, node);
    if (status || !cancels(rw, n))
        return status;
    ngd_rewrite_replace(rw, n->out[0], n->in[0]);
    ngd_rewrite_remove(rw, node);
    ctx->changed++;
    return NGD_OK;
}

ngd_status_t ngd_pass_simplify_views(struct ngd_pass_context *ctx)
{
    ngd_status_t status = NGD_OK;
    uint32_t next;

    for (uint32_t n = ctx->rw->first; n != NGD_NODE_NONE && !status; n = next) {
        const struct ngd_node *node = ngd_rewrite_node(ctx->rw, n);

        next = ctx->rw->nodes[n].next;
        if (ngd_op_traits[node->op->id].spell)
            status = ngd_op_traits[node->op->id].spell(ctx, ngd_rewrite_node(ctx->rw, n));
        if (!status && (ngd_op_reshapes(node->op) || reorders(node)))
            status = simplify_view(ctx, n);
    }
    return status;
}
