/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text -> graph: a recursive-descent parser over the builder (docs/graph-text.md has the grammar).
 *
 * The text comes from clients: it may be huge, binary, or made to hurt. The lexer never reads past the end
 * and takes the text as bytes; recursion is only in expressions and bounded; every limit of the builder holds
 * while parsing, so a text is refused before it has cost much more memory than its own size. One token is
 * looked ahead. Errors are set once, where they are found, and everything returns at once.
 */
#include "graphs/graph_lex.h"
#include <string.h>

struct parser {
    struct ngd_graph_lexer lex;
    struct ngd_graph *graph;
    uint32_t expr_depth;
    struct ngd_node_scope scope; /* around the statement to come */
    uint32_t scope_depth;
    bool rewritten;
};

/* ---- expressions ---- */

static ngd_status_t parse_expr(struct parser *p, ngd_dim_t *dim_p);

static ngd_status_t make(struct parser *p, const struct ngd_graph_token *where, ngd_expr_op_t op, ngd_dim_t a,
                         ngd_dim_t b, ngd_dim_t *dim_p)
{
    ngd_status_t status = ngd_expr_make(p->graph->exprs, op, a, b, dim_p);

    switch (status) {
    case NGD_OK:
        return NGD_OK;
    case NGD_ERR_OVERFLOW:
        return ngd_graph_lex_fail_at(&p->lex, where, status,
                                     "the expression overflows 64 bits within the symbols' ranges");
    case NGD_ERR_GRAPH_SYMBOL:
        return ngd_graph_lex_fail_at(
            &p->lex, where, status,
            "the divisor can be 0 or negative: raise the minimum of its symbols, or take max(divisor, 1)");
    case NGD_ERR_GRAPH_TOO_LARGE:
        return ngd_graph_lex_fail_at(&p->lex, where, status,
                                     "the expression is too large, or the graph has too many of them");
    default:
        return ngd_graph_lex_fail_at(&p->lex, where, status, ngd_status_text(status));
    }
}

static ngd_status_t parse_call(struct parser *p, ngd_expr_op_t op, ngd_dim_t *dim_p)
{
    struct ngd_graph_token where = p->lex.tok;
    ngd_dim_t a, b;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, '(');
    if (!status)
        status = parse_expr(p, &a);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ',');
    if (!status)
        status = parse_expr(p, &b);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ')');
    return status ? status : make(p, &where, op, a, b, dim_p);
}

static ngd_status_t parse_word(struct parser *p, ngd_dim_t *dim_p)
{
    static const struct {
        const char *name;
        ngd_expr_op_t op;
    } functions[] = {
        {"floordiv", NGD_EXPR_FLOORDIV}, {"mod", NGD_EXPR_MOD}, {"min", NGD_EXPR_MIN}, {"max", NGD_EXPR_MAX}};

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (ngd_graph_lex_at_word(&p->lex, functions[i].name))
            return parse_call(p, functions[i].op, dim_p);
    for (uint32_t i = 0; i < p->graph->n_symbols; i++) {
        if (ngd_graph_lex_at_word(&p->lex, p->graph->symbols[i].name)) {
            *dim_p = p->graph->symbols[i].dim;
            return ngd_graph_lex_advance(&p->lex);
        }
    }
    return ngd_diag_set(
        p->lex.diag, NGD_ERR_GRAPH_SYMBOL,
        "line %u, column %u: symbol %.*s is not declared: add `sym %.*s min..max` before it is used", p->lex.tok.line,
        p->lex.tok.column, p->lex.tok.text.n > NGD_GRAPH_LEX_SHOWN ? NGD_GRAPH_LEX_SHOWN : (int)p->lex.tok.text.n,
        p->lex.tok.text.p, p->lex.tok.text.n > NGD_GRAPH_LEX_SHOWN ? NGD_GRAPH_LEX_SHOWN : (int)p->lex.tok.text.n,
        p->lex.tok.text.p);
}

/* number | symbol | function(a, b) | (expr) */
static ngd_status_t parse_primary(struct parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status;

    if (p->lex.tok.kind == NGD_GRAPH_TOK_INT)
        return ngd_graph_lex_take_int(&p->lex, "a number", dim_p);
    if (p->lex.tok.kind == NGD_GRAPH_TOK_WORD)
        return parse_word(p, dim_p);
    if (!ngd_graph_lex_at_punct(&p->lex, '('))
        return ngd_graph_lex_expected(&p->lex, "a number, a symbol or '('");
    status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = parse_expr(p, dim_p);
    return status ? status : ngd_graph_lex_take_punct(&p->lex, ')');
}

/* {-} primary; a loop, so that a text of nothing but minus signs costs no stack */
static ngd_status_t parse_factor(struct parser *p, ngd_dim_t *dim_p)
{
    struct ngd_graph_token where = p->lex.tok;
    bool negative = false;
    ngd_status_t status = NGD_OK;

    while (!status && ngd_graph_lex_at_punct(&p->lex, '-')) {
        negative = !negative;
        status = ngd_graph_lex_advance(&p->lex);
    }
    if (!status)
        status = parse_primary(p, dim_p);
    return status || !negative ? status : make(p, &where, NGD_EXPR_SUB, 0, *dim_p, dim_p);
}

static ngd_status_t parse_product(struct parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status = parse_factor(p, dim_p);

    while (!status && ngd_graph_lex_at_punct(&p->lex, '*')) {
        struct ngd_graph_token where = p->lex.tok;
        ngd_dim_t b;

        status = ngd_graph_lex_advance(&p->lex);
        if (!status)
            status = parse_factor(p, &b);
        if (!status)
            status = make(p, &where, NGD_EXPR_MUL, *dim_p, b, dim_p);
    }
    return status;
}

static ngd_status_t parse_expr(struct parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status;

    if (p->expr_depth >= NGD_EXPR_MAX_DEPTH)
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                     "an expression is nested too deeply (32 levels at most)");
    p->expr_depth++;
    status = parse_product(p, dim_p);
    while (!status && (ngd_graph_lex_at_punct(&p->lex, '+') || ngd_graph_lex_at_punct(&p->lex, '-'))) {
        struct ngd_graph_token where = p->lex.tok;
        ngd_dim_t b;

        status = ngd_graph_lex_advance(&p->lex);
        if (!status)
            status = parse_product(p, &b);
        if (!status)
            status = make(p, &where, where.ch == '+' ? NGD_EXPR_ADD : NGD_EXPR_SUB, *dim_p, b, dim_p);
    }
    p->expr_depth--;
    return status;
}

/* ---- types ---- */

static ngd_status_t take_dtype(struct parser *p, ngd_dtype_t *dtype_p)
{
    if (p->lex.tok.kind != NGD_GRAPH_TOK_WORD || !ngd_dtype_parse(p->lex.tok.text.p, p->lex.tok.text.n, dtype_p))
        return ngd_graph_lex_expected(&p->lex, "a dtype (f32, f16, bf16, i8, u8, i32, i64, bool)");
    return ngd_graph_lex_advance(&p->lex);
}

/* f32[B, 64] */
static ngd_status_t parse_type(struct parser *p, struct ngd_type *type_p)
{
    struct ngd_type type = {0};
    ngd_status_t status = take_dtype(p, &type.dtype);

    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, '[');
    while (!status && !ngd_graph_lex_at_punct(&p->lex, ']')) {
        if (type.rank == NGD_MAX_RANK)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_RANK, "a tensor has at most 8 dimensions");
        if (type.rank)
            status = ngd_graph_lex_take_punct(&p->lex, ',');
        if (!status)
            status = parse_expr(p, &type.dims[type.rank]);
        type.rank++;
    }
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ']');
    if (!status)
        *type_p = type;
    return status;
}

/* ---- declarations ---- */

static ngd_status_t prefix_line(struct parser *p, uint32_t line, ngd_status_t status)
{
    if (status)
        ngd_diag_prefix(p->lex.diag, "line %u: ", line);
    return status;
}

/* A terminated copy in the graph's memory. */
static ngd_status_t copy_text(struct parser *p, struct ngd_slice s, char **copy_p)
{
    char *copy = ngd_arena_alloc(&p->graph->priv->arena, s.n + 1);

    if (!copy)
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_NO_MEMORY, "out of host memory");
    memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    *copy_p = copy;
    return NGD_OK;
}

static ngd_status_t parse_buckets(struct parser *p, uint32_t symbol)
{
    int64_t buckets[NGD_MAX_BUCKETS];
    uint32_t n = 0, line = p->lex.tok.line;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    do {
        if (n == NGD_MAX_BUCKETS)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_SYMBOL, "a symbol has at most 64 buckets");
        if (!status && n && ngd_graph_lex_at_punct(&p->lex, ','))
            status = ngd_graph_lex_advance(&p->lex);
        if (!status)
            status = ngd_graph_lex_take_int(&p->lex, "a bucket, a number", &buckets[n++]);
    } while (!status && (p->lex.tok.kind == NGD_GRAPH_TOK_INT || ngd_graph_lex_at_punct(&p->lex, ',')));
    return status ? status : prefix_line(p, line, ngd_graph_set_buckets(p->graph, symbol, buckets, n, p->lex.diag));
}

/* batch buckets b, b, ... */
static ngd_status_t parse_batch(struct parser *p, uint32_t symbol)
{
    uint32_t line = p->lex.tok.line;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status && !ngd_graph_lex_at_word(&p->lex, "buckets"))
        status = ngd_graph_lex_expected(&p->lex, "'buckets': a batch symbol has some");
    if (!status)
        status = parse_buckets(p, symbol);
    return status ? status : prefix_line(p, line, ngd_graph_set_batch(p->graph, symbol, p->lex.diag));
}

/* sym NAME min..max [exact | [batch] buckets b, b, ...] */
static ngd_status_t parse_symbol(struct parser *p)
{
    uint32_t line = p->lex.tok.line;
    char *name;
    int64_t min, max;
    ngd_dim_t dim;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_WORD)
        status = ngd_graph_lex_expected(&p->lex, "the symbol's name");
    if (!status && p->lex.tok.text.n > NGD_GRAPH_MAX_NAME)
        status = ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE, "a name is too long");
    if (!status)
        status = copy_text(p, p->lex.tok.text, &name);
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = ngd_graph_lex_take_int(&p->lex, "the symbol's range, min..max", &min);
    if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_DOTDOT)
        status = ngd_graph_lex_expected(&p->lex, "'..'");
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = ngd_graph_lex_take_int(&p->lex, "the symbol's maximum", &max);
    if (!status)
        status = prefix_line(p, line, ngd_graph_add_symbol(p->graph, name, min, max, &dim, p->lex.diag));
    if (status)
        return status;
    if (ngd_graph_lex_at_word(&p->lex, "exact"))
        return ngd_graph_lex_advance(&p->lex);
    if (ngd_graph_lex_at_word(&p->lex, "batch"))
        return parse_batch(p, p->graph->n_symbols - 1);
    return ngd_graph_lex_at_word(&p->lex, "buckets") ? parse_buckets(p, p->graph->n_symbols - 1) : NGD_OK;
}

/* guard EXPR RELATION EXPR */
static ngd_status_t parse_guard(struct parser *p)
{
    uint32_t line = p->lex.tok.line;
    ngd_relation_op_t op = NGD_RELATION_EQ;
    ngd_dim_t left, right;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status)
        status = parse_expr(p, &left);
    if (!status &&
        (p->lex.tok.kind != NGD_GRAPH_TOK_RELATION || !ngd_relation_parse(p->lex.tok.text.p, p->lex.tok.text.n, &op)))
        status = ngd_graph_lex_expected(&p->lex, "a relation (== != < <= > >=)");
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = parse_expr(p, &right);
    if (!status && p->lex.tok.kind == NGD_GRAPH_TOK_RELATION)
        status = ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_PARSE,
                                       "a guard compares two expressions: write a second guard for the third one");
    return status ? status : prefix_line(p, line, ngd_graph_add_relation(p->graph, left, op, right, p->lex.diag));
}

/* (param | state | input | host) %NAME : TYPE [= "label"] */
static ngd_status_t parse_input(struct parser *p, ngd_value_class_t cls)
{
    uint32_t line = p->lex.tok.line, value;
    bool labelled = false;
    struct ngd_type type;
    char *name;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_VALUE)
        status = ngd_graph_lex_expected(&p->lex, "the input's name, %name");
    if (!status)
        status = copy_text(p, p->lex.tok.text, &name);
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ':');
    if (!status)
        status = parse_type(p, &type);
    if (!status && ngd_graph_lex_at_punct(&p->lex, '=')) {
        labelled = true;
        status = ngd_graph_lex_advance(&p->lex);
        if (!status)
            status = ngd_graph_lex_take_string(&p->lex, "the label, a string", NGD_GRAPH_MAX_STRING);
    }
    if (status)
        return status;
    status = ngd_graph_add_input(p->graph, cls, name, labelled ? ngd_strbuf_str(&p->lex.string) : NULL, &type, &value,
                                 p->lex.diag);
    return prefix_line(p, line, status);
}

/* ---- nodes ---- */

struct node_text {
    struct ngd_node_spec spec;
    struct ngd_slice names[NGD_GRAPH_MAX_OPERANDS];
    uint32_t in[NGD_GRAPH_MAX_OPERANDS];
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS];
    bool set[NGD_OP_MAX_ATTRS];
};

/* Where a statement after this node defines the name, or 0: it tells wrong order from a misspelt name. */
static uint32_t find_later_definition(const struct parser *p, struct ngd_slice name)
{
    struct parser ahead = *p;
    int depth = 1; /* of brackets: the name was met among the operands */

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

static ngd_status_t undefined_value(struct parser *p, const struct node_text *node, const struct ngd_graph_token *t)
{
    struct ngd_slice first = node && node->spec.n_names ? node->names[0] : (struct ngd_slice){"", 0};
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

/* %name -> value, taking the token. */
static ngd_status_t take_value(struct parser *p, const struct node_text *node, uint32_t *value_p)
{
    struct ngd_graph_token t = p->lex.tok;

    if (t.kind != NGD_GRAPH_TOK_VALUE)
        return ngd_graph_lex_expected(&p->lex, "a value, %name");
    *value_p = ngd_graph_find_value(p->graph, t.text);
    if (*value_p == NGD_VALUE_NONE)
        return undefined_value(p, node, &t);
    return ngd_graph_lex_advance(&p->lex);
}

static ngd_status_t parse_operands(struct parser *p, struct node_text *node)
{
    ngd_status_t status = ngd_graph_lex_take_punct(&p->lex, '(');

    while (!status && !ngd_graph_lex_at_punct(&p->lex, ')')) {
        if (node->spec.n_in == NGD_GRAPH_MAX_OPERANDS)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                         "a node has more than 256 operands");
        if (node->spec.n_in)
            status = ngd_graph_lex_take_punct(&p->lex, ',');
        if (status)
            return status;
        if (ngd_graph_lex_at_word(&p->lex, "none")) {
            node->in[node->spec.n_in++] = NGD_VALUE_NONE;
            status = ngd_graph_lex_advance(&p->lex);
        } else {
            status = take_value(p, node, &node->in[node->spec.n_in++]);
        }
    }
    return status ? status : ngd_graph_lex_take_punct(&p->lex, ')');
}

static ngd_status_t parse_list(struct parser *p, struct ngd_attr_value *a)
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
            status = parse_expr(p, &list[a->n]);
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

static ngd_status_t parse_attr_value(struct parser *p, ngd_attr_type_t type, struct ngd_attr_value *a)
{
    struct ngd_scalar scalar = {0};
    ngd_dtype_t dtype;
    ngd_status_t status;
    char *s;

    switch (type) {
    case NGD_ATTR_INT:
        return parse_expr(p, &a->i);
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
            status = copy_text(p, (struct ngd_slice){ngd_strbuf_str(&p->lex.string), p->lex.string.len}, &s);
        if (!status)
            a->s = s;
        return status;
    case NGD_ATTR_DTYPE:
        a->i = -1;
        if (ngd_graph_lex_at_word(&p->lex, "none"))
            return ngd_graph_lex_advance(&p->lex);
        status = take_dtype(p, &dtype);
        if (!status)
            a->i = dtype;
        return status;
    }
    return NGD_ERR_INTERNAL;
}

static ngd_status_t unknown_attr(struct parser *p, const struct ngd_op *op)
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

/* A value of the wrong type is an error of the attribute, not of the syntax. */
static ngd_status_t attr_type_error(struct parser *p, const struct ngd_op *op, int i, ngd_status_t status)
{
    if (status != NGD_ERR_GRAPH_PARSE)
        return status;
    ngd_diag_prefix(p->lex.diag, "attribute %s of %s is of type %s: ", op->attrs[i].name, op->name,
                    ngd_attr_type_name(op->attrs[i].type));
    if (p->lex.diag)
        p->lex.diag->status = NGD_ERR_GRAPH_ATTRIBUTE;
    return NGD_ERR_GRAPH_ATTRIBUTE;
}

static ngd_status_t parse_attr(struct parser *p, struct node_text *node)
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
    return status ? status : attr_type_error(p, op, i, parse_attr_value(p, op->attrs[i].type, &node->attrs[i]));
}

/* [{name=value, ...}] */
static ngd_status_t parse_attrs(struct parser *p, struct node_text *node)
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
            status = parse_attr(p, node);
        first = false;
    }
    return status ? status : ngd_graph_lex_take_punct(&p->lex, '}');
}

static bool contains(struct ngd_slice s, const char *part)
{
    return memmem(s.p, s.n, part, strlen(part)) != NULL;
}

static ngd_status_t unknown_op(struct parser *p, struct ngd_slice name)
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

static ngd_status_t take_op(struct parser *p, struct node_text *node)
{
    char name[NGD_GRAPH_MAX_NAME + 1] = "";
    const struct ngd_op *op;

    if (p->lex.tok.kind != NGD_GRAPH_TOK_WORD)
        return ngd_graph_lex_expected(&p->lex, "an operator (aten.mm, ...)");
    op = ngd_op_find(p->lex.tok.text.p, p->lex.tok.text.n);
    if (!op)
        return unknown_op(p, p->lex.tok.text);
    if (op->flags & NGD_OPF_REFUSED) {
        if (node->spec.n_names && node->names[0].n < sizeof(name))
            memcpy(name, node->names[0].p, node->names[0].n);
        return ngd_op_refuse(op, name[0] ? name : NULL, p->lex.tok.line, p->lex.diag);
    }
    node->spec.op = op;
    node->spec.line = p->lex.tok.line;
    return ngd_graph_lex_advance(&p->lex);
}

static ngd_status_t check_annotation(struct parser *p, const struct ngd_graph_token *where, uint32_t value,
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

/* [: TYPE, TYPE ...], one per result. */
static ngd_status_t parse_annotations(struct parser *p, uint32_t node)
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
            status = parse_type(p, &type);
        if (!status)
            status = check_annotation(p, &where, p->graph->nodes[node].out[i], &type);
    }
    if (!status && ngd_graph_lex_at_punct(&p->lex, ':'))
        status = ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_PARSE,
                                       "this operator has no result that could have a type");
    return status;
}

/* [%a, %b =] */
static ngd_status_t parse_results(struct parser *p, struct node_text *node)
{
    ngd_status_t status = NGD_OK;

    if (p->lex.tok.kind != NGD_GRAPH_TOK_VALUE)
        return NGD_OK;
    do {
        if (node->spec.n_names == NGD_GRAPH_MAX_OPERANDS)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                         "a node has more than 256 results");
        if (node->spec.n_names)
            status = ngd_graph_lex_advance(&p->lex); /* the comma */
        if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_VALUE)
            status = ngd_graph_lex_expected(&p->lex, "a result's name, %name");
        if (status)
            return status;
        node->names[node->spec.n_names++] = p->lex.tok.text;
        status = ngd_graph_lex_advance(&p->lex);
    } while (!status && ngd_graph_lex_at_punct(&p->lex, ','));
    return status ? status : ngd_graph_lex_take_punct(&p->lex, '=');
}

static ngd_status_t parse_node(struct parser *p, struct node_text *node)
{
    uint32_t index;
    ngd_status_t status;

    if (p->graph->n_nodes >= ngd_graph_max_nodes(p->graph))
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                     "the graph has more than 65536 nodes");
    memset(&node->spec, 0, sizeof(node->spec));
    memset(node->attrs, 0, sizeof(node->attrs));
    memset(node->set, 0, sizeof(node->set));
    status = parse_results(p, node);
    if (!status)
        status = take_op(p, node);
    if (!status)
        status = parse_operands(p, node);
    if (!status)
        status = parse_attrs(p, node);
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

/* ---- the whole ---- */

/* return ["name" =] %value, ... */
static ngd_status_t parse_return(struct parser *p)
{
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);
    bool more = true;

    while (!status && more) {
        uint32_t value, line = p->lex.tok.line;
        bool named = p->lex.tok.kind == NGD_GRAPH_TOK_STRING;

        if (named) {
            status = ngd_graph_lex_take_string(&p->lex, "the output's name", NGD_GRAPH_MAX_STRING);
            if (!status)
                status = ngd_graph_lex_take_punct(&p->lex, '=');
        }
        if (!status)
            status = take_value(p, NULL, &value);
        if (status)
            return status;
        status = prefix_line(
            p, line, ngd_graph_add_output(p->graph, named ? ngd_strbuf_str(&p->lex.string) : NULL, value, p->lex.diag));
        more = ngd_graph_lex_at_punct(&p->lex, ',');
        if (!status && more)
            status = ngd_graph_lex_advance(&p->lex);
    }
    if (!status && !ngd_graph_lex_at_punct(&p->lex, '}'))
        status = ngd_graph_lex_expected(&p->lex, "'}', as return is the last statement");
    return status;
}

static ngd_status_t parse_statement(struct parser *p, struct node_text *node);

/* "name": the stream of the scope that begins */
static ngd_status_t take_stream(struct parser *p)
{
    uint32_t line = p->lex.tok.line;
    ngd_status_t status = ngd_graph_lex_take_string(&p->lex, "the stream's name, a string", NGD_GRAPH_MAX_NAME);

    if (status)
        return status;
    return prefix_line(p, line,
                       ngd_graph_add_stream(p->graph, ngd_strbuf_str(&p->lex.string), &p->scope.stream, p->lex.diag));
}

static ngd_status_t take_cores(struct parser *p, const char *what, int64_t lo, uint16_t *n_p)
{
    struct ngd_graph_token where = p->lex.tok;
    int64_t n;
    ngd_status_t status = ngd_graph_lex_take_int(&p->lex, what, &n);

    if (!status && (n < lo || n > NGD_GRAPH_MAX_CORES))
        status = ngd_graph_lex_fail_at(
            &p->lex, &where, NGD_ERR_GRAPH_ATTRIBUTE,
            "limit_core_num takes 1 to 1024 AI cores and 0 to 1024 vector cores (0: the device has none)");
    if (!status)
        *n_p = (uint16_t)n;
    return status;
}

/* ai cores, vector cores */
static ngd_status_t take_limits(struct parser *p)
{
    ngd_status_t status = take_cores(p, "a number of AI cores", 1, &p->scope.aicore);

    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ',');
    return status ? status : take_cores(p, "a number of vector cores", 0, &p->scope.vectorcore);
}

/* (stream "name" | limit_core_num N, N) { statements }; the innermost of each kind holds */
static ngd_status_t parse_scope(struct parser *p, struct node_text *node)
{
    bool stream = ngd_graph_lex_at_word(&p->lex, "stream");
    struct ngd_node_scope outer = p->scope;
    ngd_status_t status;

    if (p->scope_depth >= NGD_GRAPH_MAX_SCOPES)
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                     "scopes are nested too deeply (16 levels at most)");
    p->scope_depth++;
    status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = stream ? take_stream(p) : take_limits(p);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, '{');
    while (!status && !ngd_graph_lex_at_punct(&p->lex, '}'))
        status = parse_statement(p, node);
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    p->scope_depth--;
    p->scope = outer;
    return status;
}

static ngd_status_t parse_declaration(struct parser *p, bool *taken_p)
{
    static const ngd_value_class_t classes[] = {NGD_VALUE_PARAM, NGD_VALUE_STATE, NGD_VALUE_INPUT, NGD_VALUE_HOST};
    bool symbol = ngd_graph_lex_at_word(&p->lex, "sym"), guard = ngd_graph_lex_at_word(&p->lex, "guard"),
         last = ngd_graph_lex_at_word(&p->lex, "return");
    size_t i = 0;

    while (i < sizeof(classes) / sizeof(classes[0]) &&
           !ngd_graph_lex_at_word(&p->lex, ngd_value_class_name(classes[i])))
        i++;
    *taken_p = symbol || guard || last || i < sizeof(classes) / sizeof(classes[0]);
    if (*taken_p && p->scope_depth)
        return ngd_graph_lex_fail_at(
            &p->lex, &p->lex.tok, NGD_ERR_GRAPH_PARSE,
            "declarations and return stand outside of streams and core limits: close the scope with '}' first");
    if (symbol)
        return parse_symbol(p);
    if (guard)
        return parse_guard(p);
    if (last)
        return parse_return(p);
    return *taken_p ? parse_input(p, classes[i]) : NGD_OK;
}

static ngd_status_t parse_statement(struct parser *p, struct node_text *node)
{
    bool taken;
    ngd_status_t status = parse_declaration(p, &taken);

    if (status || taken)
        return status;
    if (ngd_graph_lex_at_word(&p->lex, "stream") || ngd_graph_lex_at_word(&p->lex, "limit_core_num"))
        return parse_scope(p, node);
    if (p->lex.tok.kind != NGD_GRAPH_TOK_VALUE && p->lex.tok.kind != NGD_GRAPH_TOK_WORD)
        return ngd_graph_lex_expected(&p->lex, "a declaration, a node, return or '}'");
    return parse_node(p, node);
}

static ngd_status_t parse_header(struct parser *p)
{
    int64_t version;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status)
        status = ngd_graph_lex_take_word(&p->lex, "npugraph");
    if (!status && p->lex.tok.kind == NGD_GRAPH_TOK_INT && !ngd_graph_lex_is(p->lex.tok.text, "1"))
        status = ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_PARSE,
                                       "this version of the text form is not known: only 1 is");
    if (!status)
        status = ngd_graph_lex_take_int(&p->lex, "the version, 1", &version);
    if (!status)
        status = ngd_graph_lex_take_word(&p->lex, "graph");
    if (!status)
        status = ngd_graph_lex_take_string(&p->lex, "the graph's name, a string", NGD_GRAPH_MAX_NAME);
    if (!status) {
        status = ngd_graph_create(ngd_strbuf_str(&p->lex.string), &p->graph);
        if (status)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, status, ngd_status_text(status));
        p->graph->priv->rewritten = p->rewritten;
    }
    return status ? status : ngd_graph_lex_take_punct(&p->lex, '{');
}

static ngd_status_t parse_graph(struct parser *p)
{
    struct node_text *node = NGD_NEW(struct node_text);
    ngd_status_t status;

    if (!node)
        return ngd_diag_set(p->lex.diag, NGD_ERR_NO_MEMORY, "out of host memory");
    status = parse_header(p);
    while (!status && !ngd_graph_lex_at_punct(&p->lex, '}'))
        status = parse_statement(p, node);
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_END)
        status = ngd_graph_lex_expected(&p->lex, "nothing behind the graph's '}'");
    ngd_free(node);
    return status;
}

static ngd_status_t parse(const char *text, size_t n, bool rewritten, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    struct parser p = {.rewritten = rewritten};
    ngd_status_t status;

    if (n > NGD_GRAPH_MAX_TEXT)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the text has %zu bytes, but at most %u are read", n,
                            NGD_GRAPH_MAX_TEXT);
    ngd_graph_lex_init(&p.lex, text, n, diag);
    status = parse_graph(&p);
    if (!status)
        status = rewritten ? ngd_graph_seal_rewritten(p.graph, diag) : ngd_graph_seal(p.graph, diag);
    ngd_graph_lex_fini(&p.lex);
    if (status) {
        ngd_graph_unref(p.graph);
        return status;
    }
    *graph_p = p.graph;
    return NGD_OK;
}

ngd_status_t ngd_graph_parse(const char *text, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    return parse(text, n, false, graph_p, diag);
}

ngd_status_t ngd_graph_parse_rewritten(const char *text, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    return parse(text, n, true, graph_p, diag);
}
