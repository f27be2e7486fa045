/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove_dead: removes nodes whose results no node or output uses.
 *
 * Correct because such a node has no effect. Operators that write a state stay even if their results are unused, and so
 * do events.
 */
#include "graphs/pass.h"

/* Visits nodes from the last to the first, so that a node is removed before the nodes whose results only it reads. */
ngd_status_t ngd_pass_remove_dead(struct ngd_pass_context *ctx)
{
    struct ngd_rewrite *rw = ctx->rw;
    uint32_t prev;

    for (uint32_t n = rw->last; n != NGD_NODE_NONE; n = prev) {
        prev = rw->nodes[n].prev;
        if (!ngd_rewrite_is_dead(rw, n))
            continue;
        ngd_rewrite_remove(rw, n);
        ctx->changed++;
    }
    return NGD_OK;
}
