/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove_dead: removes nodes whose results nobody reads.
 *
 * Correct because such a node has no effect: an operator that writes a state stays whatever its results are, and so
 * does an event.
 */
#include "graphs/pass.h"

static bool is_dead(const struct ngd_rewrite *rw, uint32_t node)
{
    const struct ngd_node *n = ngd_rewrite_node(rw, node);

    if (n->op->mutates || (n->op->flags & (NGD_OPF_EVENT | NGD_OPF_COLLECTIVE)))
        return false;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (ngd_rewrite_n_uses(rw, n->out[i]))
            return false;
    return true;
}

/* From the last to the first: a node goes before those that only it reads are looked at. */
ngd_status_t ngd_pass_remove_dead(struct ngd_pass_context *ctx)
{
    struct ngd_rewrite *rw = ctx->rw;
    uint32_t prev;

    for (uint32_t n = rw->last; n != NGD_NODE_NONE; n = prev) {
        prev = rw->nodes[n].prev;
        if (!is_dead(rw, n))
            continue;
        ngd_rewrite_remove(rw, n);
        ctx->changed++;
    }
    return NGD_OK;
}
