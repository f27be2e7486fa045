/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch symbols: graphs whose replays may be put into one, behind one another along dimension 0, and taken apart again.
 *
 * A bucketed symbol promises that rows behind the actual ones change nothing (graph_validate.c). A batch symbol
 * promises more: a replay's rows may lie anywhere among others', so a row of a result may depend neither on other rows
 * nor on its own number, and everything that a replay brings or takes away has rows. By induction over the nodes it is
 * enough that each operator keeps to that. A list says which do (by their shape rules, which operators of a kind
 * share): what is not in it, a new operator for one, is refused.
 */
#include "graphs/graph_int.h"
#include "graphs/op_int.h"

ngd_status_t ngd_graph_set_batch(struct ngd_graph *graph, uint32_t symbol, struct ngd_diag *diag)
{
    uint32_t other = ngd_graph_batch_symbol(graph);

    if (graph->sealed || symbol >= graph->n_symbols)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_SYMBOL, "there is no symbol number %u to make the batch", symbol);
    if (graph->symbols[symbol].policy != NGD_SYMBOL_BUCKETS)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_SYMBOL, "symbol %s is the batch, but has no buckets to fill",
                            graph->symbols[symbol].name);
    if (other < graph->n_symbols)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_SYMBOL, "symbols %s and %s are both the batch: a graph has one",
                            graph->symbols[other].name, graph->symbols[symbol].name);
    graph->symbols[symbol].batch = true;
    return NGD_OK;
}

uint32_t ngd_graph_batch_symbol(const struct ngd_graph *graph)
{
    uint32_t i = 0;

    while (i < graph->n_symbols && !graph->symbols[i].batch)
        i++;
    return i;
}

/* ---- operators ---------------------------------------------------------------------------------------- */

/* Row i of results depends on row i of the operands that have rows, and on all of the others alike, if ... */
enum condition {
    ALWAYS,
    ALL_HAVE_ROWS, /* ... all operands have: in one without, the row's number would decide what is read of it */
    MAKES_ROWS,    /* always, and without an operand that has rows too: all that it makes are the same */
};

static const struct {
    ngd_shape_fn *shape;
    enum condition condition;
} apart[] = {
    /* products */
    {ngd_shape_mm, ALWAYS},
    {ngd_shape_bmm, ALL_HAVE_ROWS},
    {ngd_shape_addmm, ALWAYS},
    {ngd_shape_linear, ALWAYS},
    {ngd_shape_embedding, ALWAYS},
    {ngd_shape_transpose_bmm, ALWAYS},
    {ngd_shape_multi_linear, ALWAYS},
    {ngd_shape_rms_norm_linear, ALWAYS},
    {ngd_shape_linear_add, ALWAYS},
    {ngd_shape_linear_swiglu, ALWAYS},
    {ngd_shape_rms_norm_linear_swiglu, ALWAYS},
    /* norms, along dimensions that are not the rows */
    {ngd_shape_layer_norm, ALWAYS},
    {ngd_shape_rms_norm, ALWAYS},
    {ngd_shape_add_rms_norm, ALWAYS},
    {ngd_shape_add_rms_norm_cast, ALWAYS},
    {ngd_shape_add_rms_norm_quant, ALWAYS},
    {ngd_shape_add_rms_norm_dynamic_quant, ALWAYS},
    {ngd_shape_quantize, ALWAYS},
    {ngd_shape_dynamic_quant, ALWAYS},
    {ngd_shape_swiglu_quant, ALWAYS},
    {ngd_shape_swiglu, ALWAYS},
    {ngd_shape_softmax, ALWAYS},
    {ngd_shape_softmax_int, ALWAYS},
    {ngd_shape_rotary, ALL_HAVE_ROWS},
    {ngd_shape_sample, ALL_HAVE_ROWS},
    {ngd_shape_sdpa, ALWAYS},
    /* reductions, likewise */
    {ngd_shape_reduce_sum, ALWAYS},
    {ngd_shape_reduce_mean, ALWAYS},
    {ngd_shape_var, ALWAYS},
    {ngd_shape_reduce_extreme, ALWAYS},
    {ngd_shape_reduce_truth, ALWAYS},
    {ngd_shape_reduce_one, ALWAYS},
    {ngd_shape_argmax, ALWAYS},
    {ngd_shape_topk, ALWAYS},
    {ngd_shape_cumsum, ALWAYS},
    /* parts of rows */
    {ngd_shape_cat, ALL_HAVE_ROWS},
    {ngd_shape_stack, ALL_HAVE_ROWS},
    {ngd_shape_repeat, ALWAYS},
    {ngd_shape_split, ALWAYS},
    {ngd_shape_split_by, ALWAYS},
    {ngd_shape_unbind, ALWAYS},
    {ngd_shape_slice, ALWAYS},
    {ngd_shape_select, ALWAYS},
    {ngd_shape_gather, ALL_HAVE_ROWS},
    {ngd_shape_index_select, ALWAYS},
    {ngd_shape_index, ALWAYS},
    {ngd_shape_scatter, ALL_HAVE_ROWS},
    {ngd_shape_scatter_value, ALL_HAVE_ROWS},
    {ngd_shape_slice_scatter, ALL_HAVE_ROWS},
    {ngd_shape_select_scatter, ALL_HAVE_ROWS},
    {ngd_shape_pad, ALWAYS},
    /* views; what they make out of something without rows is the same in each */
    {ngd_shape_view, ALWAYS},
    {ngd_shape_permute, ALWAYS},
    {ngd_shape_transpose, ALWAYS},
    {ngd_shape_transpose2, ALWAYS},
    {ngd_shape_expand, MAKES_ROWS},
    {ngd_shape_unsqueeze, ALWAYS},
    {ngd_shape_squeeze, ALWAYS},
    {ngd_shape_squeeze_dims, ALWAYS},
    {ngd_shape_alias, ALWAYS},
    {ngd_shape_full, MAKES_ROWS},
};

/* Operands that have rows; *without_p: that have none. */
static uint32_t count_rows(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                           uint32_t *without_p)
{
    uint32_t n = 0;

    *without_p = 0;
    for (uint32_t i = 0; i < node->n_in; i++) {
        n += ngd_op_in_carries(graph, node, i, symbol);
        *without_p += ngd_node_has(node, i) && !ngd_op_in_carries(graph, node, i, symbol);
    }
    return n;
}

static bool holds(enum condition condition, uint32_t with, uint32_t without)
{
    return condition == MAKES_ROWS || (with > 0 && (condition == ALWAYS || without == 0));
}

static bool keeps_apart(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    uint32_t without, with = count_rows(graph, node, symbol, &without);

    if (node->op->flags & NGD_OPF_ELEMENTWISE)
        return true;
    for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++) {
        if (apart[i].shape != node->op->shape)
            continue;
        *why_p = "an operand has no rows of the batch, and what is read of it depends on the row's number";
        return holds(apart[i].condition, with, without);
    }
    *why_p = "what it computes for a row depends on the row's number, or on other rows";
    return false;
}

static bool touches(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol)
{
    for (uint32_t i = 0; i < node->n_in; i++)
        if (ngd_op_in_carries(graph, node, i, symbol))
            return true;
    for (uint32_t i = 0; i < node->n_out; i++)
        if (ngd_op_carries(graph, node->out[i], symbol))
            return true;
    return false;
}

static ngd_status_t check_node(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
                               struct ngd_diag *diag)
{
    const char *name = graph->symbols[symbol].name, *why;

    if (node->op->mutates)
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_NOT_ROWWISE,
            "symbol %s is the batch, and it writes a state, which replays that run together would share: "
            "declare the symbol without `batch`",
            name);
    if (node->op->flags & NGD_OPF_COLLECTIVE)
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_NOT_ROWWISE,
                           "symbol %s is the batch, and the group's other devices would have to put the same replays "
                           "together: declare the symbol without `batch`",
                           name);
    if (!touches(graph, node, symbol))
        return NGD_OK;
    if (!keeps_apart(graph, node, symbol, &why))
        return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_NOT_ROWWISE,
                           "symbol %s is the batch, and replays that run together would see one another: %s; declare "
                           "the symbol without `batch`",
                           name, why);
    for (uint32_t i = 0; i < node->n_out; i++)
        if (graph->values[node->out[i]].n_uses && !ngd_op_carries(graph, node->out[i], symbol))
            return ngd_op_fail(graph, node, diag, NGD_ERR_GRAPH_NOT_ROWWISE,
                               "symbol %s is the batch, and its result %%%s has no rows of it, but depends on all of "
                               "them: declare the symbol without `batch`",
                               name, graph->values[node->out[i]].name);
    return NGD_OK;
}

/* ---- what a replay brings and takes away -------------------------------------------------------------- */

static ngd_status_t check_has_rows(const struct ngd_graph *graph, uint32_t value, const char *kind, const char *name,
                                   uint32_t symbol, struct ngd_diag *diag)
{
    char text[NGD_OP_TEXT];

    if (ngd_op_carries(graph, value, symbol))
        return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_GRAPH_NOT_ROWWISE,
        "%s \"%.200s\" is %s, and symbol %s is the batch: replays that run together have one %s in all, "
        "so its dimension 0 must be the symbol times a constant; give it rows, or declare the symbol "
        "without `batch`",
        kind, name, ngd_op_type_text(graph, &graph->values[value].type, text), graph->symbols[symbol].name, kind);
}

static ngd_status_t check_ends(const struct ngd_graph *graph, uint32_t symbol, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (graph->n_hosts)
        return ngd_diag_set(
            diag, NGD_ERR_GRAPH_NOT_ROWWISE,
            "host parameter \"%.200s\" holds for a whole replay, and symbol %s is the batch: make it an "
            "input with rows, or declare the symbol without `batch`",
            graph->values[graph->hosts[0]].label, graph->symbols[symbol].name);
    for (uint32_t i = 0; i < graph->n_inputs && !status; i++)
        status = check_has_rows(graph, graph->inputs[i], "input", graph->values[graph->inputs[i]].label, symbol, diag);
    for (uint32_t i = 0; i < graph->n_outputs && !status; i++)
        status = check_has_rows(graph, graph->outputs[i].value, "output", graph->outputs[i].name, symbol, diag);
    return status;
}

ngd_status_t ngd_graph_check_batch(const struct ngd_graph *graph, struct ngd_diag *diag)
{
    uint32_t symbol = ngd_graph_batch_symbol(graph);
    ngd_status_t status;

    if (symbol == graph->n_symbols)
        return NGD_OK;
    status = check_ends(graph, symbol, diag);
    for (uint32_t i = 0; i < graph->n_nodes && !status; i++)
        status = check_node(graph, &graph->nodes[i], symbol, diag);
    return status;
}
