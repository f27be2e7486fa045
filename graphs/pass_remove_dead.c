/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove_dead: removes nodes whose results nobody reads.
 *
 * Correct because such a node has no effect: an operator that writes a state stays whatever its results are, and so
 * does an event.
 */
#include "graphs/pass.h"

/* From the last to the first: a node goes before those that only it reads are looked at. */
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
