/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validates and seals a whole graph.
 *
 * The builder has checked each node when it was added. Here are the checks that need all nodes: the structure is
 * consistent (a pass may have edited it), symbols are used, nodes write only states and aliases of them, and the
 * padding of bucketed symbols is invisible.
 *
 * Padding. A bucketed symbol may size dimension 0 only, as symbol*constant. Then the actual rows of every tensor
 * are a prefix of the padded ones. By induction over the nodes, it is enough that each operator's row rule holds:
 * actual rows of results depend only on actual rows of operands.
 */
#include "graphs/graph_int.h"
#include <string.h>

/* ---- structure ---- */

static ngd_status_t check_value(const struct ngd_graph *graph, uint32_t i, struct ngd_diag *diag)
{
    const struct ngd_value *v = &graph->values[i];
    ngd_status_t status;

    if (v->cls == NGD_VALUE_NODE && (v->node >= graph->n_nodes || v->result >= graph->nodes[v->node].n_out ||
                                     graph->nodes[v->node].out[v->result] != i))
        return ngd_diag_set(diag, NGD_ERR_GRAPH_REDEFINED, "value %%%s is not the result of exactly one node", v->name);
    status = ngd_type_check(graph, &v->type, diag);
    if (status)
        ngd_diag_prefix(diag, "value %%%s: ", v->name);
    return status;
}

static ngd_status_t validate_node(const struct ngd_graph *graph, uint32_t index, struct ngd_diag *diag)
{
    const struct ngd_node *node = &graph->nodes[index];

    for (uint32_t i = 0; i < node->n_out; i++) {
        if (node->out[i] >= graph->n_values || graph->values[node->out[i]].node != index ||
            graph->values[node->out[i]].result != i || graph->values[node->out[i]].cls != NGD_VALUE_NODE)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_REDEFINED, "its result %u belongs to another node",
                               i + 1);
    }
    for (uint32_t i = 0; i < node->n_in; i++) {
        uint32_t value = node->in[i];

        if (value == NGD_VALUE_NONE)
            continue;
        if (value >= graph->n_values)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_UNDEFINED, "operand %u is not defined", i + 1);
        if (graph->values[value].cls == NGD_VALUE_NODE && graph->values[value].node >= index)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_UNDEFINED,
                               "operand %u, %%%s, is computed by this node or a later one: a graph has no cycle", i + 1,
                               graph->values[value].name);
    }
    return NGD_OK;
}

static ngd_status_t check_structure(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < graph->n_values && !status; i++)
        status = check_value(graph, i, diag);
    for (uint32_t i = 0; i < graph->n_nodes && !status; i++)
        status = validate_node(graph, i, diag);
    for (uint32_t i = 0; i < graph->n_outputs && !status; i++)
        if (graph->outputs[i].value >= graph->n_values)
            status =
                ngd_diag_set(diag, NGD_ERR_GRAPH_UNDEFINED, "output \"%.64s\" names no value", graph->outputs[i].name);
    return status;
}

static ngd_status_t check_effect(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    if (graph->n_outputs)
        return NGD_OK;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].op->mutates || (graph->nodes[i].op->flags & NGD_OPF_COLLECTIVE))
            return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_INVALID_ARGUMENT,
        "the graph has no output and writes no state, so a replay would do nothing: add a return statement");
}

/* ---- symbols ---- */

static uint32_t node_symbols(const struct ngd_graph *graph, const struct ngd_node *node)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < node->op->n_attrs; i++) {
        const struct ngd_attr_value *a = &node->attrs[i];

        if (node->op->attrs[i].type == NGD_ATTR_INT)
            used |= ngd_expr_symbols(graph->exprs, a->i);
        for (uint32_t k = 0; node->op->attrs[i].type == NGD_ATTR_INTS && k < a->n; k++)
            used |= ngd_expr_symbols(graph->exprs, a->list[k]);
    }
    return used;
}

static ngd_status_t validate_symbols(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < graph->n_values; i++)
        for (uint32_t k = 0; k < graph->values[i].type.rank; k++)
            used |= ngd_expr_symbols(graph->exprs, graph->values[i].type.dims[k]);
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        used |= node_symbols(graph, &graph->nodes[i]);
    for (uint32_t i = 0; i < graph->n_relations; i++)
        used |= ngd_expr_symbols(graph->exprs, graph->relations[i].left) |
                ngd_expr_symbols(graph->exprs, graph->relations[i].right);
    for (uint32_t i = 0; i < graph->n_symbols; i++)
        if (!(used >> i & 1))
            return ngd_diag_set(
                diag, NGD_ERR_GRAPH_SYMBOL,
                "symbol %s is declared, but no type, no attribute and no guard that can fail uses it: remove "
                "it",
                graph->symbols[i].name);
    return NGD_OK;
}

/* ---- mutation ---- */

/* How a view, given by its shape rule, uses the storage of operand 0. An operator that is not listed may copy. */
enum view_kind { VIEW_NONE, VIEW_RESHAPE, VIEW_UNIT, VIEW_ORDER, VIEW_CUT, VIEW_REPEAT };
static const struct {
    ngd_shape_fn *shape;
    enum view_kind kind;
} view_kinds[] = {
    {ngd_shape_view, VIEW_RESHAPE},  {ngd_shape_unsqueeze, VIEW_UNIT},    {ngd_shape_squeeze, VIEW_UNIT},
    {ngd_shape_permute, VIEW_ORDER}, {ngd_shape_transpose, VIEW_ORDER},   {ngd_shape_transpose2, VIEW_ORDER},
    {ngd_shape_slice, VIEW_CUT},     {ngd_shape_select, VIEW_CUT},        {ngd_shape_split, VIEW_CUT},
    {ngd_shape_expand, VIEW_REPEAT}, {ngd_shape_squeeze_dims, VIEW_UNIT}, {ngd_shape_alias, VIEW_UNIT},
    {ngd_shape_split_by, VIEW_CUT},  {ngd_shape_unbind, VIEW_CUT},
};

static enum view_kind view_kind_of(const struct ngd_op *op)
{
    for (size_t i = 0; i < sizeof(view_kinds) / sizeof(view_kinds[0]); i++)
        if (view_kinds[i].shape == op->shape)
            return view_kinds[i].kind;
    return VIEW_NONE;
}

/* Properties of a value's storage: it is the storage of a state, and it is row-major. */
struct alias {
    bool of_state;
    bool contiguous;
};

/* Returns true if a cut along axis leaves a row-major tensor contiguous: all dimensions before it have one index. */
static bool cut_is_contiguous(const struct ngd_type *type, uint32_t axis)
{
    for (uint32_t i = 0; i < axis; i++)
        if (type->dims[i] != 1)
            return false;
    return true;
}

/* Returns the storage of a view's results, given that of its operand 0. */
static struct alias alias_of_view(const struct ngd_graph *graph, const struct ngd_node *node, struct alias x)
{
    const struct ngd_type *from = ngd_node_in(graph, node, 0), *to = &graph->values[node->out[0]].type;
    struct alias broken = {false, false}, scattered = {x.of_state, false};

    switch (view_kind_of(node->op)) {
    case VIEW_RESHAPE: /* may have to copy a tensor that is not contiguous */
        return x.contiguous ? x : broken;
    case VIEW_UNIT:
        return x;
    case VIEW_ORDER:
        return ngd_type_equal(from, to) && from->rank < 2 ? x : scattered;
    case VIEW_CUT: {
        bool whole = ngd_type_equal(from, to);

        return whole || (x.contiguous && ngd_op_attr(node, "step")->i <= 1 &&
                         cut_is_contiguous(from, ngd_op_known_axis(node, "dim", from->rank)))
                   ? x
                   : scattered;
    }
    case VIEW_REPEAT: /* many elements share one storage */
        return ngd_type_equal(from, to) ? x : broken;
    case VIEW_NONE:
        break;
    }
    return broken;
}

static ngd_status_t check_written(const struct ngd_graph *graph, const struct ngd_node *node,
                                  const struct alias *aliases, struct ngd_diag *diag)
{
    for (uint32_t i = 0; i < node->n_in && i < 32; i++) {
        const struct ngd_value *v;

        if (!(node->op->mutates >> i & 1) || !ngd_node_has(node, i) || aliases[node->in[i]].of_state)
            continue;
        v = &graph->values[node->in[i]];
        if (v->cls != NGD_VALUE_NODE)
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_MUTATION,
                               "it writes to operand %u, %%%s, which is declared `%s`: declare it `state`", i + 1,
                               v->name, ngd_value_class_name(v->cls));
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_MUTATION,
            "it writes to operand %u, %%%s, which is not a state nor certainly an alias of one (%s may copy): write "
            "to the state itself, or to a slice, select or contiguous view of it",
            i + 1, v->name, graph->nodes[v->node].op->name);
    }
    return NGD_OK;
}

static ngd_status_t check_mutation(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    struct alias *aliases = NGD_NEW_N(struct alias, graph->n_values + 1u);
    ngd_status_t status = NGD_OK;

    if (!aliases)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory while validating the graph");
    for (uint32_t i = 0; i < graph->n_states; i++)
        aliases[graph->states[i]] = (struct alias){true, true};
    for (uint32_t i = 0; i < graph->n_nodes && !status; i++) {
        const struct ngd_node *node = &graph->nodes[i];

        if ((node->op->flags & NGD_OPF_VIEW) && node->n_out) {
            struct alias alias = alias_of_view(graph, node, aliases[node->in[0]]);

            for (uint32_t k = 0; k < node->n_out; k++)
                aliases[node->out[k]] = alias;
        }
        if (node->op->mutates)
            status = check_written(graph, node, aliases, diag);
    }
    ngd_free(aliases);
    return status;
}

/* ---- rows ---- */

static ngd_status_t not_rowwise(const struct ngd_graph *graph, const struct ngd_value *v, const struct ngd_symbol *s,
                                const char *why, struct ngd_diag *diag)
{
    char text[NGD_OP_TEXT];

    if (v->cls == NGD_VALUE_NODE)
        return ngd_op_fail(graph, &graph->nodes[v->node], diag, NGD_ERR_GRAPH_NOT_ROWWISE,
                           "%%%s is %s, and symbol %s has buckets: %s; declare the symbol exact", v->name,
                           ngd_op_type_text(graph, &v->type, text), s->name, why);
    return ngd_diag_set(diag, NGD_ERR_GRAPH_NOT_ROWWISE,
                        "%s %%%s is %s, and symbol %s has buckets: %s; declare the symbol exact",
                        ngd_value_class_name(v->cls), v->name, ngd_op_type_text(graph, &v->type, text), s->name, why);
}

static ngd_status_t check_row_type(const struct ngd_graph *graph, uint32_t value, uint32_t symbol,
                                   struct ngd_diag *diag)
{
    const struct ngd_value *v = &graph->values[value];
    const struct ngd_symbol *s = &graph->symbols[symbol];
    uint32_t of;
    int64_t mult;

    for (uint32_t i = 0; i < v->type.rank; i++) {
        if (ngd_dim_is_const(v->type.dims[i]) || !ngd_expr_uses(graph->exprs, v->type.dims[i], symbol))
            continue;
        if (v->cls == NGD_VALUE_PARAM || v->cls == NGD_VALUE_STATE)
            return not_rowwise(graph, v, s, "a bound buffer cannot be padded", diag);
        if (i > 0)
            return not_rowwise(graph, v, s,
                               "such a symbol may size dimension 0 only, or padding would lie between the data", diag);
        if (!ngd_expr_is_multiple(graph->exprs, v->type.dims[0], &of, &mult) || of != symbol)
            return not_rowwise(graph, v, s, "dimension 0 must be the symbol times a constant", diag);
    }
    return NGD_OK;
}

static ngd_status_t validate_rows(const struct ngd_graph *graph, uint32_t symbol, struct ngd_diag *diag)
{
    const struct ngd_symbol *s = &graph->symbols[symbol];
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ngd_node *node = &graph->nodes[i];
        const char *why = "it mixes rows";

        /* A node's results are checked before their readers, so that a wrong type names the node that makes it. */
        for (uint32_t k = 0; k < node->n_in && !status; k++)
            if (node->in[k] != NGD_VALUE_NONE && graph->values[node->in[k]].cls != NGD_VALUE_NODE)
                status = check_row_type(graph, node->in[k], symbol, diag);
        if (!status && !node->op->rows_ok(graph, node, symbol, &why))
            status = ngd_op_fail(
                graph, node, diag, NGD_ERR_GRAPH_NOT_ROWWISE,
                "symbol %s has buckets, and its padding would be visible here: %s; declare the symbol exact", s->name,
                why);
        for (uint32_t k = 0; k < node->n_out && !status; k++)
            status = check_row_type(graph, node->out[k], symbol, diag);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < graph->n_values && !status; i++) /* inputs that no node uses */
        status = check_row_type(graph, i, symbol, diag);
    return status;
}

/* ---- the whole graph ---- */

static ngd_status_t validate(const struct ngd_graph *graph, bool rewritten, struct ngd_diag *diag)
{
    ngd_status_t status = check_structure(graph, diag);

    if (!status)
        status = check_effect(graph, diag);
    if (!status && !rewritten)
        status = validate_symbols(graph, diag);
    if (!status)
        status = ngd_graph_check_events(graph, diag);
    if (!status)
        status = ngd_graph_check_collectives(graph, diag);
    if (!status)
        status = check_mutation(graph, diag);
    for (uint32_t i = 0; i < graph->n_symbols && !status; i++)
        if (graph->symbols[i].policy == NGD_SYMBOL_BUCKETS)
            status = validate_rows(graph, i, diag);
    /* A graph that passes made needs no check: it computes the same as the original.
     * Its operators may lack the trait. */
    if (!status && !rewritten)
        status = ngd_graph_check_batch(graph, diag);
    return status;
}

ngd_status_t ngd_graph_validate(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    return validate(graph, false, diag);
}

static ngd_status_t seal(struct ngd_graph *graph, bool rewritten, struct ngd_diag *diag)
{
    ngd_status_t status;

    if (graph->sealed)
        return NGD_OK;
    status = validate(graph, rewritten, diag);
    if (status)
        return status;
    status = ngd_graph_compute_digest(graph, &graph->digest);
    if (status)
        return ngd_diag_set(diag, status, "out of host memory while computing the graph's digest");
    graph->sealed = true;
    return NGD_OK;
}

ngd_status_t ngd_graph_seal(struct ngd_graph *graph, struct ngd_diag *diag)
{
    return seal(graph, false, diag);
}

ngd_status_t ngd_graph_seal_rewritten(struct ngd_graph *graph, struct ngd_diag *diag)
{
    return seal(graph, true, diag);
}

ngd_status_t ngd_graph_seal_claimed(struct ngd_graph *graph, const struct ngd_digest *digest, struct ngd_diag *diag)
{
    ngd_status_t status = graph->sealed ? NGD_OK : validate(graph, true, diag);

    if (status)
        return status;
    graph->digest = *digest;
    graph->sealed = true;
    return NGD_OK;
}
