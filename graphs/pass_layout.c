/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds copies that passes must keep because they decide the bits of a result. A product sums in one order if its
 * weight lies in rows of K, and in another if it lies in rows of N; each order is fast for its layout. So a copy that
 * makes a weight contiguous, directly or before a transposition, changes the bits of the product and is no no-op. The
 * order of sums in other operators depends only on shapes.
 */
#include "graphs/op_int.h"
#include "graphs/pass.h"
#include "graphs/op_traits.h"

/* Returns true if the value is a view that may not be contiguous. */
static bool has_strides(const struct ngd_rewrite *rw, uint32_t value)
{
    uint32_t maker;

    for (; (maker = ngd_rewrite_maker(rw, value)) != NGD_NODE_NONE; value = ngd_rewrite_node(rw, maker)->in[0]) {
        const struct ngd_op *op = ngd_rewrite_node(rw, maker)->op;

        if (!ngd_op_reshapes(op))
            return op->flags & NGD_OPF_VIEW;
    }
    return false;
}

/* Returns true if a product uses the value, or a view of it, as another operand than the first. */
static bool is_weight(const struct ngd_rewrite *rw, uint32_t value, uint32_t depth)
{
    for (uint32_t u = rw->values[value].first_use; u != NGD_NODE_NONE; u = rw->uses[u].next) {
        const struct ngd_node *n = ngd_rewrite_node(rw, rw->uses[u].node);

        if ((n->op->flags & NGD_OPF_LAYOUT) && rw->uses[u].operand > 0)
            return true;
        for (uint32_t i = 0; (n->op->flags & NGD_OPF_VIEW) && i < n->n_out; i++)
            if (depth == 0 || is_weight(rw, n->out[i], depth - 1)) /* a long chain counts as a weight */
                return true;
    }
    return false;
}

bool ngd_pass_layout_counts(const struct ngd_rewrite *rw, uint32_t value, uint32_t instead)
{
    return has_strides(rw, instead) && is_weight(rw, value, 8);
}
