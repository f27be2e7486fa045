/* SPDX-License-Identifier: Apache-2.0 */
/* Parses nodes of graph text: results, operator, operands, attributes; and makes the diagnoses of wrong ones. */
#include "graphs/graph_parse_int.h"
#include <string.h>

/* Returns the line where a later statement defines the name, or 0. This tells wrong order from a misspelt name. */
static uint32_t find_later_definition(const struct ngd_graph_parser *p, struct ngd_slice name)
{
    struct ngd_graph_parser ahead = *p;
    int depth = 1; /* depth of brackets: the name is among the operands */

    ahead.lex.diag = NULL;
    while (ahead.lex.tok.kind != NGD_GRAPH_TOK_END) {
        struct ngd_graph_token t = ahead.lex.tok;
        bool same = t.kind == NGD_GRAPH_TOK_VALUE && t.text.n == name.n && memcmp(t.text.p, name.p, name.n) == 0;

        if (t.kind == NGD_GRAPH_TOK_PUNCT && strchr("([{", t.ch))
            depth++;
        if (t.kind == NGD_GRAPH_TOK_PUNCT && strchr(")]}", t.ch))
            depth--;
        if (t.kind == NGD_GRAPH_TOK_WORD && ngd_graph_lex_is(t.text, "return"))
            break;
        if (ngd_graph_lex_advance(&ahead.lex))
            break;
        if (same && depth == 0 &&
            (ngd_graph_lex_at_punct(&ahead.lex, ',') || ngd_graph_lex_at_punct(&ahead.lex, '=') ||
             ngd_graph_lex_at_punct(&ahead.lex, ':')))
            return t.line;
    }
    return 0;
}

static ngd_status_t undefined_value(struct ngd_graph_parser *p, const struct ngd_graph_node_text *node,
                                    const struct ngd_graph_token *t)
{
    struct ngd_slice first =
        node && node->spec.n_names && node->names[0].p ? node->names[0] : (struct ngd_slice){"", 0};
    uint32_t later;
    int n = t->text.n > NGD_GRAPH_LEX_SHOWN ? NGD_GRAPH_LEX_SHOWN : (int)t->text.n;

    if (!p->lex.diag)
        return NGD_ERR_GRAPH_UNDEFINED;
    if (node && first.n == t->text.n && memcmp(first.p, t->text.p, first.n) == 0)
        return ngd_diag_set(
            p->lex.diag, NGD_ERR_GRAPH_UNDEFINED,
            "line %u, column %u: %%%.*s is used to compute itself: a graph has no cycle; carry state over replays "
            "in a `state` input",
            t->line, t->column, n, t->text.p);
    later = node ? find_later_definition(p, t->text) : 0;
    if (later)
        return ngd_diag_set(
            p->lex.diag, NGD_ERR_GRAPH_UNDEFINED,
            "line %u, column %u: %%%.*s is used before line %u defines it: a graph is in order of execution and "
            "has no cycle; move the definition up",
            t->line, t->column, n, t->text.p, later);
    return ngd_diag_set(p->lex.diag, NGD_ERR_GRAPH_UNDEFINED,
                        "line %u, column %u: %%%.*s is not defined anywhere above", t->line, t->column, n, t->text.p);
}

ngd_status_t ngd_graph_parse_value(struct ngd_graph_parser *p, const struct ngd_graph_node_text *node,
                                   uint32_t *value_p)
{
    struct ngd_graph_token t = p->lex.tok;

    if (t.kind != NGD_GRAPH_TOK_VALUE)
        return ngd_graph_lex_expected(&p->lex, "a value, %name");
    *value_p = ngd_graph_find_value(p->graph, t.text);
    if (*value_p == NGD_VALUE_NONE)
        return undefined_value(p, node, &t);
    return ngd_graph_lex_advance(&p->lex);
}

static ngd_status_t parse_node_operands(struct ngd_graph_parser *p, struct ngd_graph_node_text *node)
{
    ngd_status_t status = ngd_graph_lex_take_punct(&p->lex, '(');

    while (!status && !ngd_graph_lex_at_punct(&p->lex, ')')) {
        if (node->spec.n_in == NGD_GRAPH_MAX_OPERANDS)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                         "a node has more than 1040 operands");
        if (node->spec.n_in)
            status = ngd_graph_lex_take_punct(&p->lex, ',');
        if (status)
            return status;
        if (ngd_graph_lex_at_word(&p->lex, "none")) {
            node->in[node->spec.n_in++] = NGD_VALUE_NONE;
            status = ngd_graph_lex_advance(&p->lex);
        } else {
            status = ngd_graph_parse_value(p, node, &node->in[node->spec.n_in++]);
        }
    }
    return status ? status : ngd_graph_lex_take_punct(&p->lex, ')');
}

static ngd_status_t parse_list(struct ngd_graph_parser *p, struct ngd_attr_value *a)
{
    ngd_dim_t list[NGD_GRAPH_MAX_LIST];
    void *copy;
    ngd_status_t status = ngd_graph_lex_take_punct(&p->lex, '[');

    while (!status && !ngd_graph_lex_at_punct(&p->lex, ']')) {
        if (a->n == NGD_GRAPH_MAX_LIST)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                         "a list has more than 256 elements");
        if (a->n)
            status = ngd_graph_lex_take_punct(&p->lex, ',');
        if (!status)
            status = ngd_graph_parse_expr(p, &list[a->n]);
        a->n++;
    }
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ']');
    if (status)
        return status;
    copy = ngd_arena_alloc(&p->graph->priv->arena, a->n * sizeof(list[0]) + 1);
    if (!copy)
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_NO_MEMORY, "out of host memory");
    if (a->n)
        memcpy(copy, list, a->n * sizeof(list[0]));
    a->list = copy;
    return NGD_OK;
}

static ngd_status_t parse_node_attr_value(struct ngd_graph_parser *p, ngd_attr_type_t type, struct ngd_attr_value *a)
{
    struct ngd_scalar scalar = {0};
    ngd_dtype_t dtype;
    ngd_status_t status;
    char *s;

    switch (type) {
    case NGD_ATTR_INT:
        return ngd_graph_parse_expr(p, &a->i);
    case NGD_ATTR_INTS:
        return parse_list(p, a);
    case NGD_ATTR_FLOAT:
        status = ngd_graph_lex_take_scalar(&p->lex, &scalar);
        *a = (struct ngd_attr_value){.f = scalar.f, .i = scalar.i};
        return status;
    case NGD_ATTR_BOOL:
        a->i = ngd_graph_lex_at_word(&p->lex, "true");
        return a->i || ngd_graph_lex_at_word(&p->lex, "false") ? ngd_graph_lex_advance(&p->lex)
                                                               : ngd_graph_lex_expected(&p->lex, "true or false");
    case NGD_ATTR_STR:
        status = ngd_graph_lex_take_string(&p->lex, "a string", NGD_GRAPH_MAX_STRING);
        if (!status)
            status = ngd_graph_parse_copy(p, (struct ngd_slice){ngd_strbuf_str(&p->lex.string), p->lex.string.len}, &s);
        if (!status)
            a->s = s;
        return status;
    case NGD_ATTR_DTYPE:
        a->i = -1;
        if (ngd_graph_lex_at_word(&p->lex, "none"))
            return ngd_graph_lex_advance(&p->lex);
        status = ngd_graph_parse_dtype(p, &dtype);
        if (!status)
            a->i = dtype;
        return status;
    }
    return NGD_ERR_INTERNAL;
}

static ngd_status_t unknown_attr(struct ngd_graph_parser *p, const struct ngd_op *op)
{
    struct ngd_strbuf names;
    int n = p->lex.tok.text.n > NGD_GRAPH_LEX_SHOWN ? NGD_GRAPH_LEX_SHOWN : (int)p->lex.tok.text.n;
    ngd_status_t status;

    ngd_strbuf_init(&names);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        ngd_strbuf_printf(&names, "%s%s", i ? ", " : "", op->attrs[i].name);
    status = ngd_diag_set(p->lex.diag, NGD_ERR_GRAPH_ATTRIBUTE,
                          "line %u, column %u: %s has no attribute %.*s; it has %s", p->lex.tok.line, p->lex.tok.column,
                          op->name, n, p->lex.tok.text.p, names.len ? ngd_strbuf_str(&names) : "none");
    ngd_strbuf_fini(&names);
    return status;
}

/* Makes a syntax error within an attribute's value an error of the attribute's type. */
static ngd_status_t attr_type_error(struct ngd_graph_parser *p, const struct ngd_op *op, int i, ngd_status_t status)
{
    if (status != NGD_ERR_GRAPH_PARSE)
        return status;
    ngd_diag_prefix(p->lex.diag, "attribute %s of %s is of type %s: ", op->attrs[i].name, op->name,
                    ngd_attr_type_name(op->attrs[i].type));
    if (p->lex.diag)
        p->lex.diag->status = NGD_ERR_GRAPH_ATTRIBUTE;
    return NGD_ERR_GRAPH_ATTRIBUTE;
}

static ngd_status_t parse_node_attr(struct ngd_graph_parser *p, struct ngd_graph_node_text *node)
{
    const struct ngd_op *op = node->spec.op;
    ngd_status_t status;
    int i;

    if (p->lex.tok.kind != NGD_GRAPH_TOK_WORD)
        return ngd_graph_lex_expected(&p->lex, "an attribute, name=value");
    i = ngd_op_attr_index(op, p->lex.tok.text.p, p->lex.tok.text.n);
    if (i < 0)
        return unknown_attr(p, op);
    if (node->set[i])
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_ATTRIBUTE, "the attribute is given twice");
    node->set[i] = true;
    status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, '=');
    return status ? status : attr_type_error(p, op, i, parse_node_attr_value(p, op->attrs[i].type, &node->attrs[i]));
}

/* Parses: [{name=value, ...}] */
static ngd_status_t parse_node_attrs(struct ngd_graph_parser *p, struct ngd_graph_node_text *node)
{
    bool first = true;
    ngd_status_t status;

    if (!ngd_graph_lex_at_punct(&p->lex, '{'))
        return NGD_OK;
    status = ngd_graph_lex_advance(&p->lex);
    while (!status && !ngd_graph_lex_at_punct(&p->lex, '}')) {
        if (!first)
            status = ngd_graph_lex_take_punct(&p->lex, ',');
        if (!status)
            status = parse_node_attr(p, node);
        first = false;
    }
    return status ? status : ngd_graph_lex_take_punct(&p->lex, '}');
}

static bool contains(struct ngd_slice s, const char *part)
{
    return memmem(s.p, s.n, part, strlen(part)) != NULL;
}

static ngd_status_t unknown_op(struct ngd_graph_parser *p, struct ngd_slice name)
{
    const char *near;
    int n = name.n > 64 ? 64 : (int)name.n;

    if (contains(name, "_backward"))
        return ngd_diag_set(
            p->lex.diag, NGD_ERR_GRAPH_UNKNOWN_OP,
            "line %u, column %u: %.*s belongs to a backward graph, and only forward graphs are captured: export "
            "the model under torch.no_grad() or torch.inference_mode()",
            p->lex.tok.line, p->lex.tok.column, n, name.p);
    near = ngd_op_suggest(name.p, name.n);
    if (near)
        return ngd_diag_set(p->lex.diag, NGD_ERR_GRAPH_UNKNOWN_OP,
                            "line %u, column %u: there is no operator %.*s; is it %s?", p->lex.tok.line,
                            p->lex.tok.column, n, name.p, near);
    return ngd_diag_set(p->lex.diag, NGD_ERR_GRAPH_UNKNOWN_OP,
                        "line %u, column %u: there is no operator %.*s; docs/operators.md lists those that are known",
                        p->lex.tok.line, p->lex.tok.column, n, name.p);
}

static ngd_status_t take_op(struct ngd_graph_parser *p, struct ngd_graph_node_text *node)
{
    char name[NGD_GRAPH_MAX_NAME + 1] = "";
    const struct ngd_op *op;

    if (p->lex.tok.kind != NGD_GRAPH_TOK_WORD)
        return ngd_graph_lex_expected(&p->lex, "an operator (aten.mm, ...)");
    op = ngd_op_find(p->lex.tok.text.p, p->lex.tok.text.n);
    if (!op)
        return unknown_op(p, p->lex.tok.text);
    if (op->flags & NGD_OPF_REFUSED) {
        if (node->spec.n_names && node->names[0].p && node->names[0].n < sizeof(name))
            memcpy(name, node->names[0].p, node->names[0].n);
        return ngd_op_refuse(op, name[0] ? name : NULL, p->lex.tok.line, p->lex.diag);
    }
    node->spec.op = op;
    node->spec.line = p->lex.tok.line;
    return ngd_graph_lex_advance(&p->lex);
}

static ngd_status_t check_annotation(struct ngd_graph_parser *p, const struct ngd_graph_token *where, uint32_t value,
                                     const struct ngd_type *given)
{
    const struct ngd_value *v = &p->graph->values[value];
    char tg[NGD_OP_TEXT], ti[NGD_OP_TEXT];

    if (ngd_type_equal(&v->type, given))
        return NGD_OK;
    return ngd_diag_set(
        p->lex.diag, NGD_ERR_GRAPH_TYPE_MISMATCH,
        "line %u, column %u: %%%s is annotated as %s, but %s makes it %s: correct the annotation or leave it out",
        where->line, where->column, v->name, ngd_op_type_text(p->graph, given, tg), p->graph->nodes[v->node].op->name,
        ngd_op_type_text(p->graph, &v->type, ti));
}

/* Parses: [: TYPE, TYPE ...], one for each result. */
static ngd_status_t parse_annotations(struct ngd_graph_parser *p, uint32_t node)
{
    ngd_status_t status = NGD_OK;

    if (!ngd_graph_lex_at_punct(&p->lex, ':'))
        return NGD_OK;
    for (uint32_t i = 0; i < p->graph->nodes[node].n_out && !status; i++) {
        struct ngd_graph_token where;
        struct ngd_type type;

        status = ngd_graph_lex_take_punct(&p->lex, i ? ',' : ':');
        where = p->lex.tok;
        if (!status)
            status = ngd_graph_parse_type(p, &type);
        if (!status)
            status = check_annotation(p, &where, p->graph->nodes[node].out[i], &type);
    }
    if (!status && ngd_graph_lex_at_punct(&p->lex, ':'))
        status = ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_PARSE,
                                       "this operator has no result that could have a type");
    return status;
}

/* True at a result: %name, or _ for one that nothing uses, whose name is made up. */
static bool at_result(const struct ngd_graph_parser *p)
{
    return p->lex.tok.kind == NGD_GRAPH_TOK_VALUE || ngd_graph_lex_at_word(&p->lex, "_");
}

/* Parses: [%a, _ =] */
static ngd_status_t parse_node_results(struct ngd_graph_parser *p, struct ngd_graph_node_text *node)
{
    ngd_status_t status = NGD_OK;

    if (!at_result(p))
        return NGD_OK;
    do {
        if (node->spec.n_names == NGD_GRAPH_MAX_OPERANDS)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                         "a node has more than 1040 results");
        if (node->spec.n_names)
            status = ngd_graph_lex_advance(&p->lex); /* the comma */
        if (!status && !at_result(p))
            status = ngd_graph_lex_expected(&p->lex, "a result's name, %name, or _");
        if (status)
            return status;
        node->names[node->spec.n_names++] =
            p->lex.tok.kind == NGD_GRAPH_TOK_VALUE ? p->lex.tok.text : (struct ngd_slice){NULL, 0};
        status = ngd_graph_lex_advance(&p->lex);
    } while (!status && ngd_graph_lex_at_punct(&p->lex, ','));
    return status ? status : ngd_graph_lex_take_punct(&p->lex, '=');
}

ngd_status_t ngd_graph_parse_node(struct ngd_graph_parser *p, struct ngd_graph_node_text *node)
{
    uint32_t index;
    ngd_status_t status;

    if (p->graph->n_nodes >= ngd_graph_max_nodes(p->graph))
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                     "the graph has more than 65536 nodes");
    memset(&node->spec, 0, sizeof(node->spec));
    memset(node->attrs, 0, sizeof(node->attrs));
    memset(node->set, 0, sizeof(node->set));
    status = parse_node_results(p, node);
    if (!status)
        status = take_op(p, node);
    if (!status)
        status = parse_node_operands(p, node);
    if (!status)
        status = parse_node_attrs(p, node);
    if (status)
        return status;
    node->spec.in = node->in;
    node->spec.attrs = node->attrs;
    node->spec.set = node->set;
    node->spec.names = node->names;
    node->spec.scope = p->scope;
    status = ngd_graph_append(p->graph, &node->spec, &index, p->lex.diag);
    return status ? status : parse_annotations(p, index);
}
