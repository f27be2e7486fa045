/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge_equals: computes equal nodes once. Two nodes are equal if they have the same operator, operands and attributes,
 * and run on the same stream within the same core limits.
 *
 * Correct because these determine an operator's results: no operator is random, and nodes that write a state are left
 * alone. Nodes that read a state are equal only if no node between them writes that state.
 */
#include "base/digest.h"
#include "base/mem.h"
#include "graphs/graph_int.h"
#include "graphs/pass.h"
#include <string.h>

static uint64_t hash_attr(const struct ngd_attr_value *a, ngd_attr_type_t type, uint64_t h)
{
    switch (type) {
    case NGD_ATTR_FLOAT:
        return ngd_hash64(&a->f, sizeof(a->f), h + (uint64_t)a->i);
    case NGD_ATTR_STR:
        return ngd_hash64(a->s, strlen(a->s), h);
    case NGD_ATTR_INTS:
        return ngd_hash64(a->list, a->n * sizeof(a->list[0]), h + a->n);
    default:
        return ngd_hash64(&a->i, sizeof(a->i), h);
    }
}

/* Compares attributes, floats by their bits: -0 and 0 are different. */
static bool equal_attr(const struct ngd_attr_value *a, const struct ngd_attr_value *b, ngd_attr_type_t type)
{
    switch (type) {
    case NGD_ATTR_FLOAT:
        return a->i == b->i && memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case NGD_ATTR_STR:
        return strcmp(a->s, b->s) == 0;
    case NGD_ATTR_INTS:
        return a->n == b->n && (a->n == 0 || memcmp(a->list, b->list, a->n * sizeof(a->list[0])) == 0);
    default:
        return a->i == b->i;
    }
}

static uint64_t hash_node(const struct ngd_node *n)
{
    uint64_t h = ngd_hash64(n->in, n->n_in * sizeof(n->in[0]), n->op->id);

    for (uint32_t i = 0; i < n->op->n_attrs; i++)
        h = hash_attr(&n->attrs[i], n->op->attrs[i].type, h);
    return h;
}

static bool same_node(const struct ngd_node *a, const struct ngd_node *b)
{
    if (a->op != b->op || !ngd_node_scope_equal(&a->scope, &b->scope) || a->n_in != b->n_in || a->n_out != b->n_out ||
        (a->n_in && memcmp(a->in, b->in, a->n_in * sizeof(a->in[0])) != 0))
        return false;
    for (uint32_t i = 0; i < a->op->n_attrs; i++)
        if (!equal_attr(&a->attrs[i], &b->attrs[i], a->op->attrs[i].type))
            return false;
    return true;
}

static bool sees_the_same(const struct ngd_rewrite *rw, uint32_t earlier, uint32_t later)
{
    const struct ngd_node *n = ngd_rewrite_node(rw, later);

    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] != NGD_VALUE_NONE && ngd_rewrite_written_between(rw, n->in[i], earlier, later))
            return false;
    return true;
}

struct table {
    uint32_t *slots; /* node + 1 */
    uint32_t mask;
};

/* Returns the place of an equal node, or an empty one. If the equal node is stale, because its state was written since,
 * the later node replaces it. */
static uint32_t *table_place(const struct table *t, const struct ngd_rewrite *rw, uint32_t node)
{
    uint32_t at = (uint32_t)hash_node(ngd_rewrite_node(rw, node)) & t->mask;

    while (t->slots[at] && !same_node(ngd_rewrite_node(rw, t->slots[at] - 1), ngd_rewrite_node(rw, node)))
        at = (at + 1) & t->mask;
    return &t->slots[at];
}

static void merge_equal_node(struct ngd_pass_context *ctx, const struct table *t, uint32_t node)
{
    struct ngd_rewrite *rw = ctx->rw;
    const struct ngd_node *n = ngd_rewrite_node(rw, node), *before;
    uint32_t *place;

    if (n->op->mutates || n->n_out == 0 || (n->op->flags & NGD_OPF_COLLECTIVE))
        return;
    place = table_place(t, rw, node);
    if (!*place || !sees_the_same(rw, *place - 1, node)) {
        *place = node + 1;
        return;
    }
    before = ngd_rewrite_node(rw, *place - 1);
    for (uint32_t i = 0; i < n->n_out; i++)
        ngd_rewrite_replace(rw, n->out[i], before->out[i]);
    ngd_rewrite_remove(rw, node);
    ctx->changed++;
}

ngd_status_t ngd_pass_merge_equals(struct ngd_pass_context *ctx)
{
    struct table t = {.mask = 15};
    uint32_t next;

    while (t.mask < 2 * ctx->rw->n_live)
        t.mask = t.mask * 2 + 1;
    t.slots = NGD_NEW_N(uint32_t, t.mask + 1u);
    if (!t.slots)
        return ngd_diag_set(ctx->diag, NGD_ERR_NO_MEMORY, "out of host memory");
    for (uint32_t n = ctx->rw->first; n != NGD_NODE_NONE; n = next) {
        next = ctx->rw->nodes[n].next;
        merge_equal_node(ctx, &t, n);
    }
    ngd_free(t.slots);
    return NGD_OK;
}
