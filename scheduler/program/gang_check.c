/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the graphs of a gang's ranks must have in common, as far as graphs show it:
 *   - the same list of symbols, since a replay has one set of values;
 *   - the same collectives in the same order, since ranks meet in the order in which they call them.
 *
 * What depends on the group's size is checked at capture, and what depends on values at each replay.
 */
#include "scheduler/program/group_int.h"
#include <inttypes.h>
#include <string.h>

/* ---- collectives -------------------------------------------------------------------------------------- */

static const struct ngd_attr_value *collective_attr(const struct ngd_node *node, const char *name)
{
    int i = ngd_op_attr_index(node->op, name, strlen(name));

    return i >= 0 ? &node->attrs[i] : NULL;
}

/* Returns the first collective at or after node *at, and moves *at behind it; NULL: none. */
static const struct ngd_node *next_collective(const struct ngd_graph *g, uint32_t *at)
{
    while (*at < g->n_nodes) {
        const struct ngd_node *node = &g->nodes[(*at)++];

        if (node->op->flags & NGD_OPF_COLLECTIVE)
            return node;
    }
    return NULL;
}

ngd_status_t ngd_group_check_graph(const struct ngd_group *group, const struct ngd_graph *g, struct ngd_diag *diag)
{
    const struct ngd_node *node;
    uint32_t at = 0;

    while ((node = next_collective(g, &at))) {
        const char *name = collective_attr(node, "group_name")->s;

        if (strcmp(name, ngd_group_name(group)) != 0)
            return ngd_diag_set(diag, NGD_ERR_GROUP_UNBOUND,
                                "line %u (%s): the operator names group \"%.64s\", but the graph is registered for "
                                "group \"%.64s\"",
                                node->line, node->op->name, name, ngd_group_name(group));
    }
    return NGD_OK;
}

/* Returns true if the collective splits its operand between ranks; dimension 0 may then differ from rank to rank. */
static bool is_split(const struct ngd_node *node)
{
    return collective_attr(node, "input_split_sizes") != NULL;
}

static void describe_collective_node(const struct ngd_graph *g, const struct ngd_node *node, struct ngd_strbuf *sb)
{
    const struct ngd_attr_value *reduce, *src;

    ngd_strbuf_init(sb);
    if (!node) {
        ngd_strbuf_append(sb, "nothing more");
        return;
    }
    reduce = collective_attr(node, "reduce_op");
    src = collective_attr(node, "src");
    ngd_strbuf_printf(sb, "%s of ", node->op->name);
    if (is_split(node))
        ngd_strbuf_append(sb, ngd_dtype_name(g->values[node->in[0]].type.dtype));
    else
        ngd_type_print(g, &g->values[node->in[0]].type, sb);
    if (reduce)
        ngd_strbuf_printf(sb, ", %s", reduce->s);
    if (src)
        ngd_strbuf_printf(sb, ", from rank %" PRId64, src->i);
}

/*
 * Compares the n-th collectives of two ranks as text: symbols have the same names, and expressions are printed in their
 * canonical form.
 */
static ngd_status_t check_nth(const struct ngd_program *zero, const struct ngd_program *other, uint32_t rank,
                              uint32_t n, const struct ngd_node *a, const struct ngd_node *b, struct ngd_diag *diag)
{
    struct ngd_strbuf of_zero, of_other;
    ngd_status_t status = NGD_OK;

    describe_collective_node(zero->graph, a, &of_zero);
    describe_collective_node(other->graph, b, &of_other);
    if (of_zero.failed || of_other.failed)
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory to compare the ranks' collectives");
    else if (strcmp(ngd_strbuf_str(&of_zero), ngd_strbuf_str(&of_other)) != 0)
        status = ngd_diag_set(diag, NGD_ERR_COLLECTIVE_MISMATCH,
                              "collective %u: rank 0 does %.150s (line %u), rank %u does %.150s (line %u): all ranks "
                              "must call the same collectives in the same order",
                              n, ngd_strbuf_str(&of_zero), a ? a->line : 0, rank, ngd_strbuf_str(&of_other),
                              b ? b->line : 0);
    ngd_strbuf_fini(&of_zero);
    ngd_strbuf_fini(&of_other);
    return status;
}

static ngd_status_t check_collectives(const struct ngd_program *zero, const struct ngd_program *other, uint32_t rank,
                                      struct ngd_diag *diag)
{
    uint32_t at = 0, other_at = 0;

    for (uint32_t n = 1;; n++) {
        const struct ngd_node *a = next_collective(zero->graph, &at), *b = next_collective(other->graph, &other_at);
        ngd_status_t status;

        if (!a && !b)
            return NGD_OK;
        status = check_nth(zero, other, rank, n, a, b, diag);
        if (status)
            return status;
    }
}

/* ---- symbols ------------------------------------------------------------------------------------------ */

static bool same_declaration(const struct ngd_symbol *a, const struct ngd_symbol *b)
{
    return strcmp(a->name, b->name) == 0 && a->min == b->min && a->max == b->max && a->policy == b->policy &&
           a->n_buckets == b->n_buckets && memcmp(a->buckets, b->buckets, a->n_buckets * sizeof(a->buckets[0])) == 0;
}

static ngd_status_t check_rank_symbols(const struct ngd_graph *zero, const struct ngd_graph *other, uint32_t rank,
                                       struct ngd_diag *diag)
{
    uint32_t i = 0;

    while (i < zero->n_symbols && i < other->n_symbols && same_declaration(&zero->symbols[i], &other->symbols[i]))
        i++;
    if (i == zero->n_symbols && i == other->n_symbols)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "symbol %u of the graph of rank %u is declared differently in the graph of rank 0: a symbol "
                        "has one value for all ranks, so all graphs must declare the same symbols, ranges and buckets",
                        i, rank);
}

/* Returns true if the texts are the same. Frees both. */
static bool same_texts(struct ngd_strbuf *a, struct ngd_strbuf *b)
{
    const bool same = !a->failed && !b->failed && strcmp(ngd_strbuf_str(a), ngd_strbuf_str(b)) == 0;

    ngd_strbuf_fini(a);
    ngd_strbuf_fini(b);
    return same;
}

static bool same_guard(const struct ngd_graph *a, const struct ngd_graph *b, uint32_t i)
{
    struct ngd_strbuf of_a, of_b;

    ngd_strbuf_init(&of_a);
    ngd_strbuf_init(&of_b);
    ngd_relation_print(a->exprs, &a->relations[i], &of_a);
    ngd_relation_print(b->exprs, &b->relations[i], &of_b);
    return same_texts(&of_a, &of_b);
}

/*
 * Checks that the guards are the same. The graphs have the same symbols, so equal guards are printed alike and in one
 * order.
 */
static ngd_status_t check_guards(const struct ngd_graph *zero, const struct ngd_graph *other, uint32_t rank,
                                 struct ngd_diag *diag)
{
    uint32_t i = 0;

    while (i < zero->n_relations && i < other->n_relations && same_guard(zero, other, i))
        i++;
    if (i == zero->n_relations && i == other->n_relations)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "the guards of the graph of rank %u differ from those of rank 0: a replay is checked once for "
                        "all ranks, so all graphs must state the same guards",
                        rank);
}

/* ---- inputs and results of replicated gangs ------------------------------------------------------------- */

static ngd_status_t check_list(const struct ngd_program *zero, const struct ngd_program *other, const uint32_t *a,
                               const uint32_t *b, uint32_t n_a, uint32_t n_b, uint32_t rank, const char *what,
                               struct ngd_diag *diag)
{
    bool same = n_a == n_b;

    for (uint32_t i = 0; i < n_a && same; i++) {
        const struct ngd_value *x = &zero->graph->values[a[i]], *y = &other->graph->values[b[i]];
        struct ngd_strbuf of_x, of_y;

        ngd_strbuf_init(&of_x);
        ngd_strbuf_init(&of_y);
        ngd_type_print(zero->graph, &x->type, &of_x);
        ngd_type_print(other->graph, &y->type, &of_y);
        same = same_texts(&of_x, &of_y) && strcmp(x->label ? x->label : "", y->label ? y->label : "") == 0;
    }
    return same
               ? NGD_OK
               : ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                              "the graph of rank %u has other %s than that of rank 0; with `replicated` all ranks take "
                              "the same ones, of the same names and types and in the same order",
                              rank, what);
}

static ngd_status_t check_rank_outputs(const struct ngd_program *zero, const struct ngd_program *other, uint32_t rank,
                                       struct ngd_diag *diag)
{
    const struct ngd_graph *a = zero->graph, *b = other->graph;
    uint32_t i = 0;

    while (i < a->n_outputs && i < b->n_outputs && strcmp(a->outputs[i].name, b->outputs[i].name) == 0)
        i++;
    if (i == a->n_outputs && i == b->n_outputs)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "the graph of rank %u has other results than that of rank 0; with `replicated` all ranks have "
                        "the same ones, of which rank 0's are answered",
                        rank);
}

static ngd_status_t check_replicated(const struct ngd_program *zero, const struct ngd_program *other, uint32_t rank,
                                     struct ngd_diag *diag)
{
    const struct ngd_graph *a = zero->graph, *b = other->graph;
    ngd_status_t status = check_list(zero, other, a->inputs, b->inputs, a->n_inputs, b->n_inputs, rank, "inputs", diag);

    if (!status)
        status = check_list(zero, other, a->hosts, b->hosts, a->n_hosts, b->n_hosts, rank, "host parameters", diag);
    return status ? status : check_rank_outputs(zero, other, rank, diag);
}

/* ---- options ------------------------------------------------------------------------------------------ */

static ngd_status_t check_options(const struct ngd_program *prog, uint32_t rank, struct ngd_diag *diag)
{
    const struct ngd_graph_options *o = &prog->options;
    const char *name = o->verify_every_n ? "verify_every_n" : o->dump_tensor_data ? "dump_tensor_data" : NULL;

    if (!name)
        return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_INVALID_ARGUMENT,
        "the graph of rank %u has the option %s, which is only for graphs of one device: register the graph without it",
        rank, name);
}

ngd_status_t ngd_gang_check(const struct ngd_group *group, struct ngd_program *const *programs, bool replicated,
                            struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t r = 0; r < group->n && !status; r++) {
        status = check_options(programs[r], r, diag);
        if (!status && r > 0)
            status = check_rank_symbols(programs[0]->graph, programs[r]->graph, r, diag);
        if (!status && r > 0)
            status = check_guards(programs[0]->graph, programs[r]->graph, r, diag);
        if (!status && r > 0)
            status = check_collectives(programs[0], programs[r], r, diag);
        if (!status && r > 0 && replicated)
            status = check_replicated(programs[0], programs[r], r, diag);
    }
    return status;
}
