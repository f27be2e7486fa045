/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a side of a pattern, source or replacement: its nodes, and what it returns. */
#include "base/mem.h"
#include "graphs/pattern_int.h"
#include <string.h>

static ngd_status_t parse_pattern_results(struct ngd_pattern_parser *p, struct ngd_pattern_node *n)
{
    ngd_status_t status = NGD_OK;

    while (!status && (p->lex.tok.kind == NGD_PATTERN_TOK_VALUE || ngd_pattern_lex_at_word(&p->lex, "_"))) {
        struct ngd_pattern_value *v;

        if (n->n_out == NGD_PATTERN_MAX_OUT)
            return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a node of a pattern has at most 8 results");
        if (ngd_pattern_lex_at_word(&p->lex, "_")) {
            n->out[n->n_out++] = NGD_PATTERN_NONE;
            status = ngd_pattern_lex_advance(&p->lex);
        } else {
            status = ngd_pattern_new_value(p, &v);
            if (!status)
                status = ngd_pattern_lex_take_name(&p->lex, NGD_PATTERN_TOK_VALUE, "a value", v->name);
            if (status)
                return status;
            v->node = p->side->n_nodes;
            v->result = n->n_out;
            n->out[n->n_out++] = p->pattern->n_values++;
        }
        if (!status && !ngd_pattern_lex_at_punct(&p->lex, ","))
            break;
        if (!status)
            status = ngd_pattern_lex_advance(&p->lex);
    }
    return status || n->n_out == 0 ? status : ngd_pattern_lex_take(&p->lex, "=");
}

static ngd_status_t parse_op(struct ngd_pattern_parser *p, struct ngd_pattern_node *n)
{
    const char *near;

    if (p->lex.tok.kind != NGD_PATTERN_TOK_WORD)
        return ngd_pattern_lex_expected(&p->lex, "an operator (aten.mm, ...)");
    n->op = ngd_op_find(p->lex.tok.p, p->lex.tok.n);
    if (n->op && (n->op->flags & NGD_OPF_EVENT))
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_INVALID_ARGUMENT,
                                          "%.*s cannot be in a pattern: a match contains no events", p->lex.tok.p,
                                          p->lex.tok.n);
    if (n->op && (n->op->flags & NGD_OPF_COLLECTIVE))
        return ngd_pattern_lex_fail_about(
            &p->lex, NGD_ERR_INVALID_ARGUMENT,
            "%.*s cannot be in a pattern: other devices take part in it, and rely on the graph's order", p->lex.tok.p,
            p->lex.tok.n);
    if (!n->op) {
        near = ngd_op_suggest(p->lex.tok.p, p->lex.tok.n);
        return near ? ngd_diag_set(p->lex.diag, NGD_ERR_GRAPH_UNKNOWN_OP,
                                   "line %u: there is no operator %.*s; is it %s?", p->lex.tok.line,
                                   p->lex.tok.n > 60 ? 60 : (int)p->lex.tok.n, p->lex.tok.p, near)
                    : ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_UNKNOWN_OP, "there is no operator %.*s",
                                                 p->lex.tok.p, p->lex.tok.n);
    }
    return ngd_pattern_lex_advance(&p->lex);
}

static ngd_status_t parse_pattern_operands(struct ngd_pattern_parser *p, struct ngd_pattern_node *n)
{
    ngd_status_t status = ngd_pattern_lex_take(&p->lex, "(");

    while (!status && !ngd_pattern_lex_at_punct(&p->lex, ")")) {
        uint32_t value = NGD_PATTERN_NONE;

        if (n->n_in == NGD_PATTERN_MAX_IN)
            return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE,
                                        "a node of a pattern has at most 24 operands");
        if (n->n_in)
            status = ngd_pattern_lex_take(&p->lex, ",");
        if (status)
            return status;
        if (!ngd_pattern_lex_at_word(&p->lex, "none")) {
            if (p->lex.tok.kind != NGD_PATTERN_TOK_VALUE)
                return ngd_pattern_lex_expected(&p->lex, "a value or none");
            value = ngd_pattern_find_value(p, &p->lex.tok);
            if (value == NGD_PATTERN_NONE ||
                (!p->pattern->values[value].is_input && p->pattern->values[value].node >= p->side->n_nodes))
                return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_UNDEFINED,
                                                  "%%%.*s is not defined before it is used: a pattern has no cycle",
                                                  p->lex.tok.p, p->lex.tok.n);
            p->pattern->values[value].n_uses++;
        }
        n->in[n->n_in++] = value;
        status = ngd_pattern_lex_advance(&p->lex);
    }
    while (n->n_in > n->op->min_in && n->in[n->n_in - 1] == NGD_PATTERN_NONE)
        n->n_in--;
    return status ? status : ngd_pattern_lex_take(&p->lex, ")");
}

static ngd_status_t parse_ints(struct ngd_pattern_parser *p, struct ngd_attr_value *a)
{
    ngd_dim_t list[NGD_PATTERN_MAX_IN];
    int64_t *copy;
    ngd_status_t status = ngd_pattern_lex_take(&p->lex, "[");

    while (!status && !ngd_pattern_lex_at_punct(&p->lex, "]")) {
        if (a->n == NGD_PATTERN_MAX_IN)
            return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE,
                                        "a list in a pattern has at most 24 elements");
        if (a->n)
            status = ngd_pattern_lex_take(&p->lex, ",");
        if (!status)
            status = ngd_pattern_parse_expr(p, &list[a->n++]);
    }
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "]");
    copy = status ? NULL : ngd_arena_calloc(p->pattern->arena, a->n + 1u, sizeof(*copy));
    if (!copy)
        return status ? status : ngd_pattern_lex_fail(&p->lex, NGD_ERR_NO_MEMORY, "out of host memory");
    memcpy(copy, list, a->n * sizeof(*copy));
    a->list = copy;
    return NGD_OK;
}

static ngd_status_t parse_float_value(struct ngd_pattern_parser *p, struct ngd_pattern_attr *a)
{
    ngd_status_t status;

    a->variable = p->lex.tok.kind == NGD_PATTERN_TOK_WORD ? ngd_pattern_find_float(p, &p->lex.tok) : -1;
    if (a->variable >= 0) {
        a->kind = NGD_PATTERN_ATTR_FLOAT;
        return ngd_pattern_lex_advance(&p->lex);
    }
    if (p->lex.tok.kind == NGD_PATTERN_TOK_WORD)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_SYMBOL,
                                          "%.*s is no float variable: add a line `float`", p->lex.tok.p, p->lex.tok.n);
    status = ngd_pattern_lex_take_float(&p->lex, &a->value.f);
    if (!status && ngd_pattern_lex_at_punct(&p->lex, "~")) {
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = ngd_pattern_lex_take_float(&p->lex, &a->tolerance);
    }
    return status;
}

static ngd_status_t parse_pattern_attr_value(struct ngd_pattern_parser *p, ngd_attr_type_t type,
                                             struct ngd_pattern_attr *a)
{
    char *s;
    int i;

    switch (type) {
    case NGD_ATTR_INT:
        return ngd_pattern_parse_expr(p, &a->value.i);
    case NGD_ATTR_INTS:
        return parse_ints(p, &a->value);
    case NGD_ATTR_FLOAT:
        return parse_float_value(p, a);
    case NGD_ATTR_BOOL:
        if (!ngd_pattern_lex_at_word(&p->lex, "true") && !ngd_pattern_lex_at_word(&p->lex, "false"))
            return ngd_pattern_lex_expected(&p->lex, "true or false");
        a->value.i = ngd_pattern_lex_at_word(&p->lex, "true");
        return ngd_pattern_lex_advance(&p->lex);
    case NGD_ATTR_STR:
        if (p->lex.tok.kind != NGD_PATTERN_TOK_STRING)
            return ngd_pattern_lex_expected(&p->lex, "a string");
        s = ngd_arena_calloc(p->pattern->arena, p->lex.tok.n + 1, 1);
        if (!s)
            return ngd_pattern_lex_fail(&p->lex, NGD_ERR_NO_MEMORY, "out of host memory");
        memcpy(s, p->lex.tok.p, p->lex.tok.n);
        a->value.s = s;
        return ngd_pattern_lex_advance(&p->lex);
    case NGD_ATTR_DTYPE:
        i = ngd_pattern_find_dtype_variable(p, &p->lex.tok);
        if (i >= 0) {
            a->kind = NGD_PATTERN_ATTR_DTYPE;
            a->variable = i;
            return ngd_pattern_lex_advance(&p->lex);
        }
        a->value.i = ngd_pattern_lex_at_word(&p->lex, "none") ? -1 : ngd_pattern_find_dtype(&p->lex.tok);
        return a->value.i >= 0 || ngd_pattern_lex_at_word(&p->lex, "none")
                   ? ngd_pattern_lex_advance(&p->lex)
                   : ngd_pattern_lex_expected(&p->lex, "a dtype");
    }
    return NGD_ERR_INTERNAL;
}

static ngd_status_t parse_pattern_attr(struct ngd_pattern_parser *p, struct ngd_pattern_node *n)
{
    int i = p->lex.tok.kind == NGD_PATTERN_TOK_WORD ? ngd_op_attr_index(n->op, p->lex.tok.p, p->lex.tok.n) : -1;
    struct ngd_pattern_attr *a = i < 0 ? NULL : &n->attrs[i];
    ngd_status_t status;

    if (!a)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_ATTRIBUTE, "the operator has no attribute %.*s",
                                          p->lex.tok.p, p->lex.tok.n);
    if (a->kind != NGD_PATTERN_ATTR_DEFAULT)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_ATTRIBUTE, "an attribute is given twice");
    status = ngd_pattern_lex_advance(&p->lex);
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "=");
    if (status)
        return status;
    if (ngd_pattern_lex_at_punct(&p->lex, "*") && p->side == &p->pattern->source) {
        a->kind = NGD_PATTERN_ATTR_ANY;
        return ngd_pattern_lex_advance(&p->lex);
    }
    a->kind = NGD_PATTERN_ATTR_GIVEN;
    return parse_pattern_attr_value(p, n->op->attrs[i].type, a);
}

static ngd_status_t parse_pattern_attrs(struct ngd_pattern_parser *p, struct ngd_pattern_node *n)
{
    ngd_status_t status;
    bool first = true;

    if (!ngd_pattern_lex_at_punct(&p->lex, "{"))
        return NGD_OK;
    status = ngd_pattern_lex_advance(&p->lex);
    while (!status && !ngd_pattern_lex_at_punct(&p->lex, "}")) {
        if (!first)
            status = ngd_pattern_lex_take(&p->lex, ",");
        if (!status)
            status = parse_pattern_attr(p, n);
        first = false;
    }
    return status ? status : ngd_pattern_lex_take(&p->lex, "}");
}

static ngd_status_t check_pattern_counts(struct ngd_pattern_parser *p, const struct ngd_pattern_node *n)
{
    uint32_t max = n->op->max_in == NGD_OP_VARIADIC ? NGD_PATTERN_MAX_IN : n->op->max_in;

    if (n->n_in < n->op->min_in || n->n_in > max)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_ARITY, "%.*s has a different number of operands",
                                          n->op->name, strlen(n->op->name));
    if (n->op->n_out != NGD_OP_VARIADIC && n->n_out != n->op->n_out)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_ARITY,
                                          "%.*s has a different number of results (_ stands for an unused one)",
                                          n->op->name, strlen(n->op->name));
    for (uint32_t i = 0; i < n->op->n_attrs; i++)
        if (n->op->attrs[i].required && n->attrs[i].kind == NGD_PATTERN_ATTR_DEFAULT)
            return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %.*s is required",
                                              n->op->attrs[i].name, strlen(n->op->attrs[i].name));
    return NGD_OK;
}

static ngd_status_t parse_node(struct ngd_pattern_parser *p)
{
    struct ngd_pattern_node *n = &p->side->nodes[p->side->n_nodes];
    ngd_status_t status;

    if (p->side->n_nodes == NGD_PATTERN_MAX_NODES)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "each side of a pattern has at most 32 nodes");
    status = parse_pattern_results(p, n);
    if (!status)
        status = parse_op(p, n);
    if (!status)
        status = parse_pattern_operands(p, n);
    if (!status)
        status = parse_pattern_attrs(p, n);
    if (!status)
        status = check_pattern_counts(p, n);
    p->side->n_nodes++;
    return status;
}

static ngd_status_t parse_pattern_return(struct ngd_pattern_parser *p)
{
    struct ngd_pattern_side *s = p->side;
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    while (!status && p->lex.tok.kind == NGD_PATTERN_TOK_VALUE) {
        uint32_t value = ngd_pattern_find_value(p, &p->lex.tok);

        if (value == NGD_PATTERN_NONE)
            return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_UNDEFINED, "%%%.*s is returned, but not defined",
                                              p->lex.tok.p, p->lex.tok.n);
        if (p->pattern->values[value].is_input)
            return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_MUTATION,
                                              "%%%.*s is an input: returning it would make an alias", p->lex.tok.p,
                                              p->lex.tok.n);
        if (p->pattern->values[value].returned)
            return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_REDEFINED, "%%%.*s is returned twice",
                                              p->lex.tok.p, p->lex.tok.n);
        if (s->n_returns == NGD_PATTERN_MAX_OUT)
            return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a pattern returns at most 8 values");
        p->pattern->values[value].returned = true;
        s->returns[s->n_returns++] = value;
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status && !ngd_pattern_lex_at_punct(&p->lex, ","))
            break;
        if (!status)
            status = ngd_pattern_lex_advance(&p->lex);
    }
    return status;
}

ngd_status_t ngd_pattern_parse_side(struct ngd_pattern_parser *p, struct ngd_pattern_side *side)
{
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (side->n_nodes)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_REDEFINED, "source and replacement are given once each");
    p->side = side;
    p->first_result = p->pattern->n_values;
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "{");
    while (!status && !ngd_pattern_lex_at_punct(&p->lex, "}"))
        status = ngd_pattern_lex_at_word(&p->lex, "return") ? parse_pattern_return(p) : parse_node(p);
    if (!status && side->n_nodes == 0)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_PARSE, "source and replacement need a node each");
    return status ? status : ngd_pattern_lex_take(&p->lex, "}");
}
