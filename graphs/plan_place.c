/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places results in the storage of other values (options remove_cat_ops and input_inplace_pass):
 *
 *   - the operands of an aten.cat are computed into its result, and nothing is concatenated;
 *   - the operand of an aten.copy_ is computed into the state, and nothing is copied back.
 *
 * An operand of a cat is made in the result if it is an operator's result (no view, no input, no output of the graph),
 * is not an operand twice, and is contiguous in the result at an aligned place, which it is if all dimensions before
 * the axis are 1. Other nodes may read it there, because only the operands write the result's storage. If an operand is
 * strided in the result, it must be the only result of an elementwise operator, the target must be able to write it so,
 * and only the cat may read it, because other readers may need it contiguous. If this holds for all operands, there is
 * no call for the cat. Otherwise the remaining operands are copied to their places in the cat's place, if that costs
 * no more than copying all operands in one call.
 *
 * The call of a copy_ is left out under these conditions. Its operand is the only result of an elementwise operator or
 * of an update (NGD_OPF_UPDATE: scatter, index_put, ...), with the state's dtype and all its elements. No node touches
 * the state between the two nodes. No node reads the operand after the state was written again. On targets that work in
 * place, an elementwise operator may read the state itself, element by element, and an update may have it as operand 0.
 * Operand 0 of an update may be made in the state too, by the same rules, if no later node reads it. No other operand
 * may be in the state's storage. A reshaping view counts as the state or result that it is a view of, whose elements it
 * has in the same order. So view, update, view back and copy_ update the state in place.
 *
 * Storage decides, not names: a value that was placed in a state counts as the state.
 */
#include "base/mem.h"
#include "graphs/graph_int.h"
#include "graphs/op_int.h"
#include "graphs/plan_int.h"
#include "graphs/op_traits.h"
#include <string.h>

struct placer {
    const struct ngd_graph *g;
    const int64_t *symbols;
    const bool *needed; /* indexed by node */
    uint8_t *fates;     /* indexed by node */
    struct ngd_place *places;
    uint32_t *last_use;            /* indexed by root: the last node that uses it or a view of it */
    bool inplace, strided_results; /* as in struct ngd_plan_target */
};

static uint32_t graph_root(const struct ngd_graph *g, uint32_t value)
{
    while (g->values[value].cls == NGD_VALUE_NODE && (g->nodes[g->values[value].node].op->flags & NGD_OPF_VIEW))
        value = g->nodes[g->values[value].node].in[0];
    return value;
}

/* Returns the value that this one is a reshaping view of. States and results are contiguous, so the storage is the
 * same.
 */
static uint32_t shaped_from(const struct ngd_graph *g, uint32_t value)
{
    while (g->values[value].cls == NGD_VALUE_NODE && ngd_op_reshapes(g->nodes[g->values[value].node].op))
        value = g->nodes[g->values[value].node].in[0];
    return value;
}

static bool is_output(const struct ngd_graph *g, uint32_t value)
{
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (graph_root(g, g->outputs[i].value) == value)
            return true;
    return false;
}

/* Returns the value whose storage a value is in, as far as that has been decided. */
static uint32_t storage_of(const struct placer *p, uint32_t value)
{
    uint32_t root = graph_root(p->g, value);

    while (p->places[root].into != NGD_VALUE_NONE)
        root = graph_root(p->g, p->places[root].into);
    return root;
}

static bool node_touches(const struct placer *p, const struct ngd_node *n, uint32_t storage)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] != NGD_VALUE_NONE && storage_of(p, n->in[i]) == storage)
            return true;
    return false;
}

static bool node_writes(const struct placer *p, const struct ngd_node *n, uint32_t storage)
{
    for (uint32_t i = 0; i < n->n_in && i < 32; i++)
        if ((n->op->mutates >> i & 1) && n->in[i] != NGD_VALUE_NONE && storage_of(p, n->in[i]) == storage)
            return true;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (p->places[n->out[i]].into != NGD_VALUE_NONE && storage_of(p, n->out[i]) == storage)
            return true;
    return false;
}

/*
 * Returns the last node that uses a value's storage, so that a search for readers need not go to the end of the graph.
 * The value must have its own storage, which no other value shares: a result that was not placed.
 */
static uint32_t last_use_of(const struct placer *p, uint32_t value)
{
    return p->last_use[graph_root(p->g, value)];
}

static void find_last_uses(struct placer *p)
{
    for (uint32_t i = 0; i < p->g->n_nodes; i++)
        for (uint32_t k = 0; k < p->g->nodes[i].n_in; k++)
            if (p->g->nodes[i].in[k] != NGD_VALUE_NONE)
                p->last_use[graph_root(p->g, p->g->nodes[i].in[k])] = i;
}

/* Gives the bytes of a value. Returns false if it has none, or they cannot be computed. */
static bool bytes_of(const struct placer *p, uint32_t value, uint64_t *bytes_p)
{
    const struct ngd_type *type = &p->g->values[value].type;
    uint64_t bytes = ngd_dtype_bytes(type->dtype);

    for (uint32_t i = 0; i < type->rank; i++) {
        int64_t dim;

        if (ngd_expr_eval(p->g->exprs, type->dims[i], p->symbols, &dim) || dim <= 0 ||
            __builtin_mul_overflow(bytes, (uint64_t)dim, &bytes))
            return false;
    }
    *bytes_p = bytes;
    return true;
}

/* ---- cats ---- */

static bool may_be_part(const struct placer *p, const struct ngd_node *cat, uint32_t k)
{
    const struct ngd_graph *g = p->g;
    uint32_t value = cat->in[k];
    const struct ngd_value *v = &g->values[value];

    if (v->cls != NGD_VALUE_NODE || (g->nodes[v->node].op->flags & NGD_OPF_VIEW) ||
        p->fates[v->node] != NGD_NODE_CALLED || p->places[value].into != NGD_VALUE_NONE || is_output(g, value))
        return false;
    for (uint32_t i = 0; i < k; i++)
        if (cat->in[i] == value)
            return false;
    return true;
}

/* *sequential_p: the parts of a cat lie one after the other in the result. *inner_p: bytes of one index of the axis.
 * Returns false if dimensions cannot be computed. */
static bool lie_apart(const struct placer *p, const struct ngd_node *cat, bool *sequential_p, uint64_t *inner_p)
{
    const struct ngd_type *type = &p->g->values[cat->out[0]].type;
    uint32_t axis = ngd_op_known_axis(cat, "dim", type->rank);
    int64_t dim;

    *sequential_p = true;
    *inner_p = ngd_dtype_bytes(type->dtype);
    for (uint32_t i = 0; i < type->rank; i++) {
        if (i == axis)
            continue;
        if (ngd_expr_eval(p->g->exprs, type->dims[i], p->symbols, &dim) || dim <= 0)
            return false;
        if (i < axis)
            *sequential_p = *sequential_p && dim == 1;
        else if (__builtin_mul_overflow(*inner_p, (uint64_t)dim, inner_p))
            return false;
    }
    return true;
}

/* Returns true if the part's maker can write it with strides, and only the cat reads it. */
static bool may_be_strided(const struct placer *p, uint32_t node, uint32_t value)
{
    const struct ngd_node *maker = &p->g->nodes[p->g->values[value].node];

    if (!p->strided_results || !(maker->op->flags & NGD_OPF_ELEMENTWISE) || maker->op->mutates || maker->n_out != 1)
        return false;
    for (uint32_t i = p->g->values[value].node; i <= last_use_of(p, value); i++)
        if (i != node && p->needed[i] && node_touches(p, &p->g->nodes[i], value))
            return false;
    return true;
}

/* Each operand that is not made in place needs a call of its own, instead of one for all.
 * It must save so many bytes. */
#define CALL_BYTES (64u << 10)

static void place_cat(struct placer *p, uint32_t node)
{
    const struct ngd_node *cat = &p->g->nodes[node];
    uint32_t axis = ngd_op_known_axis(cat, "dim", p->g->values[cat->out[0]].type.rank), others = 0;
    struct ngd_place places[NGD_GRAPH_MAX_OPERANDS];
    uint64_t at = 0, saved = 0, inner, bytes;
    bool sequential;

    if (cat->n_in < 2 || !lie_apart(p, cat, &sequential, &inner))
        return;
    for (uint32_t k = 0; k < cat->n_in; k++) {
        int64_t n;

        if (!bytes_of(p, cat->in[k], &bytes) ||
            ngd_expr_eval(p->g->exprs, p->g->values[cat->in[k]].type.dims[axis], p->symbols, &n))
            return;
        places[k] = (struct ngd_place){cat->out[0], at, !sequential || at % NGD_PLAN_ALIGN};
        at += inner * (uint64_t)n;
        if (places[k].strided && !p->strided_results) /* no kernel can write it there */
            return;
        if (may_be_part(p, cat, k) && (!places[k].strided || may_be_strided(p, node, cat->in[k]))) {
            saved += bytes;
        } else {
            places[k].into = NGD_VALUE_NONE;
            others++;
        }
    }
    if (others == cat->n_in || (others > 1 && saved < (others - 1) * (uint64_t)CALL_BYTES))
        return;
    for (uint32_t k = 0; k < cat->n_in; k++)
        if (places[k].into != NGD_VALUE_NONE)
            p->places[cat->in[k]] = places[k];
    p->fates[node] = others ? NGD_NODE_FILLED : NGD_NODE_SKIPPED;
}

/* ---- copies back ---- */

static uint32_t maker_of(const struct placer *p, uint32_t value)
{
    return p->g->values[value].cls == NGD_VALUE_NODE ? p->g->values[value].node : NGD_PLAN_NONE;
}

/* Returns true if the value has as many elements as the state, of the same dtype, so that it may take its storage. */
static bool has_elements_of(const struct placer *p, uint32_t value, uint32_t state)
{
    const struct ngd_value *v = &p->g->values[value], *s = &p->g->values[state];
    uint64_t bytes, want;

    return ngd_type_equal(&s->type, &v->type) ||
           (s->type.dtype == v->type.dtype && bytes_of(p, value, &bytes) && bytes_of(p, state, &want) && bytes == want);
}

/*
 * Returns true if the operator can compute its result in the state's storage: it does not read that storage, or the
 * target works in place and it reads the storage as the operand that it updates, or element by element.
 */
static bool may_write_state(const struct placer *p, const struct ngd_node *n, uint32_t state)
{
    bool updates = n->op->flags & NGD_OPF_UPDATE;

    if (!(n->op->flags & (NGD_OPF_ELEMENTWISE | NGD_OPF_UPDATE)) || (n->op->flags & NGD_OPF_VIEW) || n->op->mutates ||
        n->n_out != 1)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t from;

        if (n->in[i] == NGD_VALUE_NONE || storage_of(p, n->in[i]) != state)
            continue;
        from = shaped_from(p->g, n->in[i]);
        if (!p->inplace || (updates && i > 0) || (from != state && p->places[from].into != state) ||
            !ngd_type_equal(&p->g->values[n->in[i]].type, &p->g->values[n->out[0]].type))
            return false;
    }
    return true;
}

static bool may_be_in(const struct placer *p, uint32_t value, uint32_t state)
{
    uint32_t maker = maker_of(p, value);

    return maker != NGD_PLAN_NONE && p->places[value].into == NGD_VALUE_NONE && !is_output(p->g, value) &&
           has_elements_of(p, value, state) && may_write_state(p, &p->g->nodes[maker], state);
}

/* Returns true if the node reads or writes the storage. A reshaping view of a contiguous value does neither; readers of
 * the view do. */
static bool node_uses(const struct placer *p, const struct ngd_node *n, uint32_t storage)
{
    if (!node_touches(p, n, storage))
        return false;
    return !ngd_op_reshapes(n->op) || shaped_from(p->g, n->in[0]) != graph_root(p->g, n->in[0]);
}

static bool used_between(const struct placer *p, uint32_t storage, uint32_t after, uint32_t before)
{
    for (uint32_t i = after + 1; i < before; i++)
        if (node_uses(p, &p->g->nodes[i], storage) || node_writes(p, &p->g->nodes[i], storage))
            return true;
    return false;
}

/* Returns true if a node after `node` reads the value when the state has been written again. */
static bool read_too_late(const struct placer *p, uint32_t value, uint32_t state, uint32_t node)
{
    uint32_t last = last_use_of(p, value);
    bool written = false;

    for (uint32_t i = node + 1; i <= last; i++) {
        if (written && node_uses(p, &p->g->nodes[i], value))
            return true;
        written = written || node_writes(p, &p->g->nodes[i], state);
    }
    return false;
}

/* Places operand 0 of an update, the node `first`, in the state too, if that is possible.
 * Returns the operand's maker. */
static uint32_t place_updated(struct placer *p, uint32_t state, uint32_t first)
{
    const struct ngd_node *n = &p->g->nodes[first];
    uint32_t value;

    if (!(n->op->flags & NGD_OPF_UPDATE) || !p->inplace || n->in[0] == NGD_VALUE_NONE)
        return NGD_PLAN_NONE;
    value = shaped_from(p->g, n->in[0]);
    if (!may_be_in(p, value, state) || used_between(p, state, maker_of(p, value), first) ||
        used_between(p, value, first, last_use_of(p, value) + 1))
        return NGD_PLAN_NONE;
    for (uint32_t i = 1; i < n->n_in; i++)
        if (n->in[i] != NGD_VALUE_NONE && storage_of(p, n->in[i]) == value)
            return NGD_PLAN_NONE;
    p->places[value] = (struct ngd_place){state, 0, false};
    return maker_of(p, value);
}

static void place_copy(struct placer *p, uint32_t node)
{
    const struct ngd_graph *g = p->g;
    uint32_t state = shaped_from(g, g->nodes[node].in[0]), value = shaped_from(g, g->nodes[node].in[1]);

    if (g->values[state].cls != NGD_VALUE_STATE || !may_be_in(p, value, state) ||
        used_between(p, state, maker_of(p, value), node) || read_too_late(p, value, state, node))
        return;
    p->places[value] = (struct ngd_place){state, 0, false};
    p->fates[node] = NGD_NODE_SKIPPED;
    for (uint32_t first = maker_of(p, value); first != NGD_PLAN_NONE;)
        first = place_updated(p, state, first);
}

ngd_status_t ngd_plan_choose_places(const struct ngd_plan *plan, const struct ngd_graph_options *options,
                                    const struct ngd_plan_target *target, const bool *needed, struct ngd_place *places,
                                    uint8_t *fates)
{
    struct placer p = {.g = plan->graph,
                       .symbols = plan->symbols,
                       .needed = needed,
                       .fates = fates,
                       .places = places,
                       .last_use = ngd_calloc(plan->graph->n_values, sizeof(uint32_t)),
                       .inplace = target->inplace,
                       .strided_results = target->strided_results};

    if (!p.last_use)
        return NGD_ERR_NO_MEMORY;
    find_last_uses(&p);
    for (uint32_t i = 0; i < p.g->n_values; i++)
        places[i] = (struct ngd_place){NGD_VALUE_NONE, 0, false};
    memset(fates, NGD_NODE_CALLED, p.g->n_nodes * sizeof(*fates));
    for (uint32_t i = 0; options && i < p.g->n_nodes; i++) {
        if (!needed[i])
            continue;
        if (options->remove_cat_ops && ngd_op_traits[p.g->nodes[i].op->id].concatenates)
            place_cat(&p, i);
        else if (options->input_inplace_pass && ngd_op_traits[p.g->nodes[i].op->id].copies_into)
            place_copy(&p, i);
    }
    ngd_free(p.last_use);
    return NGD_OK;
}
