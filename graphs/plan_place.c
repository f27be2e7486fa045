/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where results go when it is not storage of their own (options remove_cat_ops and input_inplace_pass):
 *
 *   - the operands of an aten.cat are computed into its result, and nothing is concatenated;
 *   - the operand of an aten.copy_ is computed into the state, and nothing is copied back.
 *
 * An operand of a cat is made in the result when it is the result of an operator (no view, no input, no output of the
 * graph), comes there for the first time, and is contiguous in the result, at an aligned place: all dimensions before
 * the axis are 1. It stays readable: nobody writes the result's storage but the operands. Elsewhere an operand has
 * strides: then it must be the only result of an elementwise operator, the target must write those, and nobody but the
 * cat may read it, who might want it in one piece. The cat goes when that holds for all operands. Those for which it
 * does not hold are copied to their places where the cat stood, if that is not dearer than to copy all in one call.
 *
 * A copy goes when its operand is the only result of an elementwise operator, or of an update (NGD_OPF_UPDATE: scatter,
 * index_put, ...), and has the state's dtype and all its elements; when nobody touches the state between the two nodes;
 * and when nobody reads the operand after the state was written again. An elementwise operator may read the state
 * itself, element by element, and an update may have it as what it updates, on targets that work in place; what an
 * update updates may itself be made in the state, by the same rules, if nobody else reads it behind. Other operands of
 * the state's storage forbid it. A reshaping view, whose elements are those of a state or a result in the same order,
 * counts as that itself: view, update, view back and copy_ update the state where it is.
 *
 * Storage counts, not names: a value that was placed in a state is the state.
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
    const bool *needed; /* by node */
    uint8_t *fates;     /* by node */
    struct ngd_place *places;
    uint32_t *last_use;            /* by root: the last node with an operand of it or of its views */
    bool inplace, strided_results; /* of the target */
};

static uint32_t graph_root(const struct ngd_graph *g, uint32_t value)
{
    while (g->values[value].cls == NGD_VALUE_NODE && (g->nodes[g->values[value].node].op->flags & NGD_OPF_VIEW))
        value = g->nodes[g->values[value].node].in[0];
    return value;
}

/* What a value is another shape of. States and results are in one piece, so that it has the same storage. */
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

/* The value whose storage a value is in, as far as that has been decided. */
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
 * Of a value whose storage is its own and nobody's else, as that of results is that were not placed: a search for its
 * readers need not go on to the end of the graph for each of its values.
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

/* Bytes of a value; false when it has none, or they cannot be computed. */
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

/* The parts lie one after the other; *inner_p: bytes of one index of the axis. False: dimensions cannot be computed. */
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

/* The part's maker can write it with strides, and the cat is all that reads it. */
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

/* Each operand that is not a part is a call more, where one call was for all: it must save so many bytes. */
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
        if (places[k].strided && !p->strided_results) /* nobody can write it there */
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

/* A value that has the state's elements in the state's order, or may have: as many of the same dtype. */
static bool has_elements_of(const struct placer *p, uint32_t value, uint32_t state)
{
    const struct ngd_value *v = &p->g->values[value], *s = &p->g->values[state];
    uint64_t bytes, want;

    return ngd_type_equal(&s->type, &v->type) ||
           (s->type.dtype == v->type.dtype && bytes_of(p, value, &bytes) && bytes_of(p, state, &want) && bytes == want);
}

/*
 * The operator can compute its result in the state's storage: it reads that nowhere, or, in place, as what it updates
 * or element by element.
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

/* Reads or writes it; a reshaping view of something that is in one piece does neither, but those who read the view. */
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

/* Somebody reads the value behind the node when the state has been written again. */
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

/* What an update in the state updates: in the state too, if it is free. `first` is the node of the update. */
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
