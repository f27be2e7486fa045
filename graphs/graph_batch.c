/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch symbols: graphs whose replays may be merged into one replay. Their rows are concatenated along dimension 0, and
 * the rows of the results are divided again.
 *
 * A bucketed symbol guarantees that rows behind the actual ones change nothing (graph_validate.c). A batch symbol
 * guarantees more: a replay's rows may lie anywhere among those of others. So a row of a result may depend neither on
 * other rows nor on its own number, and all inputs and outputs must have rows. By induction over the nodes, it is
 * enough to check each operator. Elementwise operators are allowed. For the others, `batches` of op_traits.h decides;
 * an operator without it, for example a new one, is refused.
 */
#include "graphs/graph_int.h"
#include "graphs/op_int.h"
#include "graphs/op_traits.h"

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

/* Returns the number of operands that have rows; *without_p: of those that have none. */
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

static bool batches_hold(ngd_batches_t batches, uint32_t with, uint32_t without)
{
    return batches == NGD_BATCHES_MAKES_ROWS || (with > 0 && (batches == NGD_BATCHES_ALWAYS || without == 0));
}

static bool keeps_apart(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p)
{
    const ngd_batches_t batches = ngd_op_traits[node->op->id].batches;
    uint32_t without, with = count_rows(graph, node, symbol, &without);

    if (node->op->flags & NGD_OPF_ELEMENTWISE)
        return true;
    *why_p = batches
                 ? "an operand has no rows of the batch, and the row's number decides which of its elements are read"
                 : "a row of its result depends on the row's number, or on other rows";
    return batches && batches_hold(batches, with, without);
}

static bool touches_symbol(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol)
{
    for (uint32_t i = 0; i < node->n_in; i++)
        if (ngd_op_in_carries(graph, node, i, symbol))
            return true;
    for (uint32_t i = 0; i < node->n_out; i++)
        if (ngd_op_carries(graph, node->out[i], symbol))
            return true;
    return false;
}

static ngd_status_t check_batch_node(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol,
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
        return ngd_op_fail(
            graph, node, diag, NGD_ERR_GRAPH_NOT_ROWWISE,
            "symbol %s is the batch, and the group's other devices would have to merge the same replays: "
            "declare the symbol without `batch`",
            name);
    if (!touches_symbol(graph, node, symbol))
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

/* ---- inputs and outputs ------------------------------------------------------------------------------- */

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
        status = check_batch_node(graph, &graph->nodes[i], symbol, diag);
    return status;
}
