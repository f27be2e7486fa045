/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text -> patterns: a recursive-descent parser (docs/patterns.md has the grammar).
 *
 * The text comes from clients. The lexer never reads past the end, every table of a pattern has a fixed size that is
 * checked, and recursion is only in expressions and bounded.
 */
#include "base/mem.h"
#include "graphs/graph_int.h"
#include "graphs/pattern_lex.h"
#include <string.h>

#define EXPR_DEPTH 16

struct parser {
    struct ngd_pattern_lexer lex;
    struct ngd_pattern *pattern;
    struct ngd_pattern_side *side; /* being parsed */
    uint32_t first_result;         /* values from here on are the side's results */
    uint32_t depth;
    bool samples; /* patterns are tried on sample types */
};

/* ---- variables ---- */

static bool named(const struct ngd_pattern_token *t, const char *name)
{
    return strlen(name) == t->n && memcmp(name, t->p, t->n) == 0;
}

static int find_dim(const struct parser *p, const struct ngd_pattern_token *t)
{
    for (uint32_t i = 0; i < p->pattern->n_dims; i++)
        if (named(t, p->pattern->dims[i].name))
            return (int)i;
    return -1;
}

static int find_float(const struct parser *p, const struct ngd_pattern_token *t)
{
    for (uint32_t i = 0; i < p->pattern->n_floats; i++)
        if (named(t, p->pattern->floats[i]))
            return (int)i;
    return -1;
}

static int find_dtype_variable(const struct parser *p, const struct ngd_pattern_token *t)
{
    for (uint32_t i = 0; i < p->pattern->n_dtypes; i++)
        if (named(t, p->pattern->dtypes[i].name))
            return (int)i;
    return -1;
}

static int find_dtype(const struct ngd_pattern_token *t)
{
    for (int i = 0; i < NGD_DTYPE_MAX; i++)
        if (named(t, ngd_dtype_name((ngd_dtype_t)i)))
            return i;
    return -1;
}

static ngd_status_t check_new(struct parser *p)
{
    if (find_dim(p, &p->lex.tok) >= 0 || find_float(p, &p->lex.tok) >= 0 || find_dtype_variable(p, &p->lex.tok) >= 0)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_REDEFINED, "%.*s is declared twice", p->lex.tok.p,
                                          p->lex.tok.n);
    if (p->lex.tok.kind == NGD_PATTERN_TOK_WORD &&
        (find_dtype(&p->lex.tok) >= 0 || !ngd_symbol_name_ok((struct ngd_slice){p->lex.tok.p, p->lex.tok.n})))
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_SYMBOL,
                                          "%.*s cannot name a variable: it is a word of the language", p->lex.tok.p,
                                          p->lex.tok.n);
    return NGD_OK;
}

/* ---- expressions: + - *, floordiv(a, b), mod(a, b), numbers and dimensions ---- */

static ngd_status_t parse_sum(struct parser *p, ngd_dim_t *dim_p);

static ngd_status_t make(struct parser *p, ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b, ngd_dim_t *dim_p)
{
    ngd_status_t status = ngd_expr_make(p->pattern->exprs, op, a, b, dim_p);

    if (status == NGD_ERR_OVERFLOW)
        return ngd_pattern_lex_fail(
            &p->lex, status,
            "an expression may overflow 64 bits: bound its dimensions (dim D 1..4096), or split the product");
    if (status == NGD_ERR_GRAPH_SYMBOL)
        return ngd_pattern_lex_fail(&p->lex, status, "a divisor may be 0: declare its dimension from 1 on (dim D 1..)");
    return status ? ngd_pattern_lex_fail(&p->lex, status, ngd_status_text(status)) : NGD_OK;
}

static ngd_status_t parse_call(struct parser *p, ngd_expr_op_t op, ngd_dim_t *dim_p)
{
    ngd_dim_t a, b;
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "(");
    if (!status)
        status = parse_sum(p, &a);
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, ",");
    if (!status)
        status = parse_sum(p, &b);
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, ")");
    return status ? status : make(p, op, a, b, dim_p);
}

static ngd_status_t parse_atom(struct parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status;
    int i;

    if (p->lex.tok.kind == NGD_PATTERN_TOK_INT)
        return ngd_pattern_lex_take_int(&p->lex, dim_p);
    if (ngd_pattern_lex_at_word(&p->lex, "floordiv"))
        return parse_call(p, NGD_EXPR_FLOORDIV, dim_p);
    if (ngd_pattern_lex_at_word(&p->lex, "mod"))
        return parse_call(p, NGD_EXPR_MOD, dim_p);
    if (ngd_pattern_lex_at_punct(&p->lex, "(")) {
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = parse_sum(p, dim_p);
        return status ? status : ngd_pattern_lex_take(&p->lex, ")");
    }
    if (p->lex.tok.kind != NGD_PATTERN_TOK_WORD)
        return ngd_pattern_lex_expected(&p->lex, "a number or a dimension");
    i = find_dim(p, &p->lex.tok);
    if (i < 0)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_SYMBOL, "%.*s is not declared: add a line `dim`",
                                          p->lex.tok.p, p->lex.tok.n);
    *dim_p = p->pattern->dims[i].dim;
    return ngd_pattern_lex_advance(&p->lex);
}

static ngd_status_t parse_product(struct parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status = parse_atom(p, dim_p);

    while (!status && ngd_pattern_lex_at_punct(&p->lex, "*")) {
        ngd_dim_t right;

        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = parse_atom(p, &right);
        if (!status)
            status = make(p, NGD_EXPR_MUL, *dim_p, right, dim_p);
    }
    return status;
}

static ngd_status_t parse_sum(struct parser *p, ngd_dim_t *dim_p)
{
    bool negative = ngd_pattern_lex_at_punct(&p->lex, "-");
    ngd_status_t status = negative ? ngd_pattern_lex_advance(&p->lex) : NGD_OK;

    if (++p->depth > EXPR_DEPTH)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "an expression is nested too deeply");
    if (!status)
        status = parse_product(p, dim_p);
    if (!status && negative)
        status = make(p, NGD_EXPR_SUB, 0, *dim_p, dim_p);
    while (!status && (ngd_pattern_lex_at_punct(&p->lex, "+") || ngd_pattern_lex_at_punct(&p->lex, "-"))) {
        ngd_expr_op_t op = ngd_pattern_lex_at_punct(&p->lex, "+") ? NGD_EXPR_ADD : NGD_EXPR_SUB;
        ngd_dim_t right;

        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = parse_product(p, &right);
        if (!status)
            status = make(p, op, *dim_p, right, dim_p);
    }
    p->depth--;
    return status;
}

/* ---- declarations ---- */

/* NAME [MIN..[MAX]] [multiple N] */
static ngd_status_t parse_dim(struct parser *p)
{
    struct ngd_pattern_dim *d = &p->pattern->dims[p->pattern->n_dims];
    ngd_status_t status = check_new(p);

    if (p->pattern->n_dims == NGD_PATTERN_MAX_DIMS)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a pattern has at most 16 dimensions");
    *d = (struct ngd_pattern_dim){.min = 0, .max = NGD_PATTERN_DIM_MAX, .multiple = 1};
    if (!status)
        status = ngd_pattern_lex_take_name(&p->lex, NGD_PATTERN_TOK_WORD, "a dimension's name", d->name);
    if (!status && p->lex.tok.kind == NGD_PATTERN_TOK_INT) {
        status = ngd_pattern_lex_take_int(&p->lex, &d->min);
        if (!status)
            status = ngd_pattern_lex_take(&p->lex, "..");
        if (!status && p->lex.tok.kind == NGD_PATTERN_TOK_INT)
            status = ngd_pattern_lex_take_int(&p->lex, &d->max);
    }
    if (!status && ngd_pattern_lex_at_word(&p->lex, "multiple")) {
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = ngd_pattern_lex_take_int(&p->lex, &d->multiple);
    }
    if (status)
        return status;
    if (d->max > INT32_MAX || d->min > d->max || d->multiple < 1 || d->multiple > NGD_PATTERN_DIM_MAX)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_SYMBOL,
                                    "a dimension needs min <= max < 2^31 and a multiple from 1 to 2^20");
    status = ngd_expr_declare(p->pattern->exprs, d->name, d->min, d->max, &d->dim);
    if (status)
        return ngd_pattern_lex_fail(&p->lex, status, ngd_status_text(status));
    p->pattern->n_dims++;
    return NGD_OK;
}

/* = DTYPE | DTYPE ... */
static ngd_status_t parse_dtype_list(struct parser *p, uint32_t *dtypes_p)
{
    ngd_status_t status = ngd_pattern_lex_take(&p->lex, "=");
    uint32_t dtypes = 0;

    while (!status) {
        int dtype = find_dtype(&p->lex.tok);

        if (p->lex.tok.kind != NGD_PATTERN_TOK_WORD || dtype < 0)
            return ngd_pattern_lex_expected(&p->lex, "a dtype (f32, bf16, ...)");
        dtypes |= 1u << dtype;
        status = ngd_pattern_lex_advance(&p->lex);
        if (status || !ngd_pattern_lex_at_punct(&p->lex, "|"))
            break;
        status = ngd_pattern_lex_advance(&p->lex);
    }
    *dtypes_p = dtypes;
    return status;
}

/* NAME = DTYPE | DTYPE ... */
static ngd_status_t parse_dtype(struct parser *p)
{
    struct ngd_pattern_dtype *d = &p->pattern->dtypes[p->pattern->n_dtypes];
    ngd_status_t status = check_new(p);

    if (p->pattern->n_dtypes == NGD_PATTERN_MAX_DTYPES)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a pattern has at most 6 dtype variables");
    d->excess = 0;
    if (!status)
        status = ngd_pattern_lex_take_name(&p->lex, NGD_PATTERN_TOK_WORD, "a dtype variable's name", d->name);
    if (!status)
        status = parse_dtype_list(p, &d->allowed);
    if (!status)
        p->pattern->n_dtypes++;
    return status;
}

/* NAME = DTYPE | DTYPE ..., of a dtype variable that is declared: which of its dtypes are meant. */
static ngd_status_t parse_excess(struct parser *p)
{
    const struct ngd_pattern_token name = p->lex.tok;
    const int variable = name.kind == NGD_PATTERN_TOK_WORD ? find_dtype_variable(p, &name) : -1;
    struct ngd_pattern_dtype *d = &p->pattern->dtypes[variable < 0 ? 0 : variable];
    uint32_t dtypes;
    ngd_status_t status;

    if (variable < 0)
        return ngd_pattern_lex_expected(&p->lex, "a dtype variable that is declared above");
    if (d->excess)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_REDEFINED,
                                          "%.*s has its dtypes of excess precision already", name.p, name.n);
    status = ngd_pattern_lex_advance(&p->lex);
    if (!status)
        status = parse_dtype_list(p, &dtypes);
    if (!status && (dtypes & ~d->allowed))
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_SYMBOL,
                                          "%.*s is never of a dtype that is given here for excess precision", name.p,
                                          name.n);
    if (!status)
        d->excess = dtypes;
    return status;
}

static ngd_status_t parse_float(struct parser *p)
{
    ngd_status_t status = check_new(p);

    if (p->pattern->n_floats == NGD_PATTERN_MAX_FLOATS)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a pattern has at most 6 float variables");
    if (!status)
        status = ngd_pattern_lex_take_name(&p->lex, NGD_PATTERN_TOK_WORD, "a float variable's name",
                                           p->pattern->floats[p->pattern->n_floats]);
    if (!status)
        p->pattern->n_floats++;
    return status;
}

/* A list of what one line declares. */
static ngd_status_t parse_several(struct parser *p, ngd_status_t (*parse)(struct parser *p))
{
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (!status)
        status = parse(p);
    while (!status && ngd_pattern_lex_at_punct(&p->lex, ",")) {
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = parse(p);
    }
    return status;
}

/* DTYPE [ [*,] EXPR, ... ] */
static ngd_status_t parse_type(struct parser *p, struct ngd_pattern_value *v)
{
    int variable = find_dtype_variable(p, &p->lex.tok), dtype = find_dtype(&p->lex.tok);
    ngd_status_t status;
    bool first = true;

    if (p->lex.tok.kind != NGD_PATTERN_TOK_WORD || (variable < 0 && dtype < 0))
        return ngd_pattern_lex_expected(&p->lex, "a dtype or a dtype variable");
    v->dtype = variable >= 0 ? variable : -1 - dtype;
    v->typed = true;
    status = ngd_pattern_lex_advance(&p->lex);
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "[");
    while (!status && !ngd_pattern_lex_at_punct(&p->lex, "]")) {
        if (!first)
            status = ngd_pattern_lex_take(&p->lex, ",");
        if (!status && first && ngd_pattern_lex_at_punct(&p->lex, "*")) {
            v->prefix = true;
            status = ngd_pattern_lex_advance(&p->lex);
        } else if (!status) {
            if (v->rank == NGD_MAX_RANK)
                return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_RANK, "a tensor has at most 8 dimensions");
            status = parse_sum(p, &v->dims[v->rank++]);
        }
        first = false;
    }
    return status ? status : ngd_pattern_lex_take(&p->lex, "]");
}

static uint32_t find_value(const struct parser *p, const struct ngd_pattern_token *t)
{
    const struct ngd_pattern *pattern = p->pattern;

    for (uint32_t i = 0; i < pattern->n_values; i++)
        if ((pattern->values[i].is_input || i >= p->first_result) && named(t, pattern->values[i].name))
            return i;
    return NGD_PATTERN_NONE;
}

static ngd_status_t new_value(struct parser *p, struct ngd_pattern_value **v_p)
{
    if (p->pattern->n_values == NGD_PATTERN_MAX_VALUES)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a pattern has at most 96 values");
    if (find_value(p, &p->lex.tok) != NGD_PATTERN_NONE)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_REDEFINED, "%%%.*s is defined twice", p->lex.tok.p,
                                          p->lex.tok.n);
    *v_p = &p->pattern->values[p->pattern->n_values];
    **v_p = (struct ngd_pattern_value){0};
    return NGD_OK;
}

/* input|param|state|host %name : TYPE */
static ngd_status_t parse_input(struct parser *p, uint32_t classes)
{
    struct ngd_pattern_value *v;
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    p->first_result = p->pattern->n_values;
    if (!status && p->lex.tok.kind != NGD_PATTERN_TOK_VALUE)
        status = ngd_pattern_lex_expected(&p->lex, "a value, %name");
    if (!status)
        status = new_value(p, &v);
    if (!status)
        status = ngd_pattern_lex_take_name(&p->lex, NGD_PATTERN_TOK_VALUE, "a value", v->name);
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, ":");
    if (status)
        return status;
    v->is_input = true;
    v->classes = classes;
    status = parse_type(p, v);
    if (!status)
        p->pattern->n_values++;
    return status;
}

/* ---- nodes ---- */

static ngd_status_t parse_results(struct parser *p, struct ngd_pattern_node *n)
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
            status = new_value(p, &v);
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

static ngd_status_t parse_op(struct parser *p, struct ngd_pattern_node *n)
{
    const char *near;

    if (p->lex.tok.kind != NGD_PATTERN_TOK_WORD)
        return ngd_pattern_lex_expected(&p->lex, "an operator (aten.mm, ...)");
    n->op = ngd_op_find(p->lex.tok.p, p->lex.tok.n);
    if (n->op && (n->op->flags & NGD_OPF_EVENT))
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_INVALID_ARGUMENT,
                                          "%.*s is not of a pattern: what matches is between events", p->lex.tok.p,
                                          p->lex.tok.n);
    if (n->op && (n->op->flags & NGD_OPF_COLLECTIVE))
        return ngd_pattern_lex_fail_about(
            &p->lex, NGD_ERR_INVALID_ARGUMENT,
            "%.*s is not of a pattern: other devices take part in it, and rely on the graph's order", p->lex.tok.p,
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

static ngd_status_t parse_operands(struct parser *p, struct ngd_pattern_node *n)
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
            value = find_value(p, &p->lex.tok);
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

static ngd_status_t parse_ints(struct parser *p, struct ngd_attr_value *a)
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
            status = parse_sum(p, &list[a->n++]);
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

static ngd_status_t parse_float_value(struct parser *p, struct ngd_pattern_attr *a)
{
    ngd_status_t status;

    a->variable = p->lex.tok.kind == NGD_PATTERN_TOK_WORD ? find_float(p, &p->lex.tok) : -1;
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

static ngd_status_t parse_attr_value(struct parser *p, ngd_attr_type_t type, struct ngd_pattern_attr *a)
{
    char *s;
    int i;

    switch (type) {
    case NGD_ATTR_INT:
        return parse_sum(p, &a->value.i);
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
        i = find_dtype_variable(p, &p->lex.tok);
        if (i >= 0) {
            a->kind = NGD_PATTERN_ATTR_DTYPE;
            a->variable = i;
            return ngd_pattern_lex_advance(&p->lex);
        }
        a->value.i = ngd_pattern_lex_at_word(&p->lex, "none") ? -1 : find_dtype(&p->lex.tok);
        return a->value.i >= 0 || ngd_pattern_lex_at_word(&p->lex, "none")
                   ? ngd_pattern_lex_advance(&p->lex)
                   : ngd_pattern_lex_expected(&p->lex, "a dtype");
    }
    return NGD_ERR_INTERNAL;
}

static ngd_status_t parse_attr(struct parser *p, struct ngd_pattern_node *n)
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
    return parse_attr_value(p, n->op->attrs[i].type, a);
}

static ngd_status_t parse_attrs(struct parser *p, struct ngd_pattern_node *n)
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
            status = parse_attr(p, n);
        first = false;
    }
    return status ? status : ngd_pattern_lex_take(&p->lex, "}");
}

static ngd_status_t check_counts(struct parser *p, const struct ngd_pattern_node *n)
{
    uint32_t max = n->op->max_in == NGD_OP_VARIADIC ? NGD_PATTERN_MAX_IN : n->op->max_in;

    if (n->n_in < n->op->min_in || n->n_in > max)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_ARITY, "%.*s has another number of operands",
                                          n->op->name, strlen(n->op->name));
    if (n->op->n_out != NGD_OP_VARIADIC && n->n_out != n->op->n_out)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_ARITY,
                                          "%.*s has another number of results (_ stands for one that nobody uses)",
                                          n->op->name, strlen(n->op->name));
    for (uint32_t i = 0; i < n->op->n_attrs; i++)
        if (n->op->attrs[i].required && n->attrs[i].kind == NGD_PATTERN_ATTR_DEFAULT)
            return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_ATTRIBUTE, "attribute %.*s is required",
                                              n->op->attrs[i].name, strlen(n->op->attrs[i].name));
    return NGD_OK;
}

static ngd_status_t parse_node(struct parser *p)
{
    struct ngd_pattern_node *n = &p->side->nodes[p->side->n_nodes];
    ngd_status_t status;

    if (p->side->n_nodes == NGD_PATTERN_MAX_NODES)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "each side of a pattern has at most 32 nodes");
    status = parse_results(p, n);
    if (!status)
        status = parse_op(p, n);
    if (!status)
        status = parse_operands(p, n);
    if (!status)
        status = parse_attrs(p, n);
    if (!status)
        status = check_counts(p, n);
    p->side->n_nodes++;
    return status;
}

static ngd_status_t parse_return(struct parser *p)
{
    struct ngd_pattern_side *s = p->side;
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    while (!status && p->lex.tok.kind == NGD_PATTERN_TOK_VALUE) {
        uint32_t value = find_value(p, &p->lex.tok);

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

static ngd_status_t parse_side(struct parser *p, struct ngd_pattern_side *side)
{
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (side->n_nodes)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_REDEFINED, "source and replacement are given once each");
    p->side = side;
    p->first_result = p->pattern->n_values;
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "{");
    while (!status && !ngd_pattern_lex_at_punct(&p->lex, "}"))
        status = ngd_pattern_lex_at_word(&p->lex, "return") ? parse_return(p) : parse_node(p);
    if (!status && side->n_nodes == 0)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_PARSE, "source and replacement need a node each");
    return status ? status : ngd_pattern_lex_take(&p->lex, "}");
}

/* ---- where ---- */

static ngd_status_t parse_compare(struct parser *p, ngd_pattern_compare_t *c_p)
{
    static const char *const names[] = {[NGD_PATTERN_EQ] = "==", [NGD_PATTERN_NE] = "!=", [NGD_PATTERN_LT] = "<",
                                        [NGD_PATTERN_LE] = "<=", [NGD_PATTERN_GT] = ">",  [NGD_PATTERN_GE] = ">="};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (ngd_pattern_lex_at_punct(&p->lex, names[i])) {
            *c_p = (ngd_pattern_compare_t)i;
            return ngd_pattern_lex_advance(&p->lex);
        }
    }
    return ngd_pattern_lex_expected(&p->lex, "==, !=, <, <=, > or >=");
}

static ngd_status_t parse_where(struct parser *p)
{
    struct ngd_pattern_where *w = &p->pattern->wheres[p->pattern->n_wheres];
    ngd_status_t status = NGD_OK;

    if (p->pattern->n_wheres == NGD_PATTERN_MAX_WHERES)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a pattern has at most 16 constraints");
    *w = (struct ngd_pattern_where){.variable =
                                        p->lex.tok.kind == NGD_PATTERN_TOK_WORD ? find_float(p, &p->lex.tok) : -1};
    if (w->variable >= 0)
        status = ngd_pattern_lex_advance(&p->lex);
    else
        status = parse_sum(p, &w->a);
    if (!status)
        status = parse_compare(p, &w->compare);
    if (!status)
        status = w->variable >= 0 ? ngd_pattern_lex_take_float(&p->lex, &w->value) : parse_sum(p, &w->b);
    if (!status && w->variable >= 0 && ngd_pattern_lex_at_punct(&p->lex, "~")) {
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = ngd_pattern_lex_take_float(&p->lex, &w->tolerance);
    }
    p->pattern->n_wheres++;
    return status;
}

/* ---- the whole ---- */

static ngd_status_t parse_version(struct parser *p)
{
    int64_t v = 0;
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (!status)
        status = ngd_pattern_lex_take_int(&p->lex, &v);
    if (!status && (v < 1 || v > UINT32_MAX))
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_OUT_OF_RANGE, "a version is from 1 on");
    p->pattern->version = (uint32_t)v;
    return status;
}

static ngd_status_t parse_doc(struct parser *p)
{
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (status || p->lex.tok.kind != NGD_PATTERN_TOK_STRING)
        return status ? status : ngd_pattern_lex_expected(&p->lex, "a sentence in quotes");
    p->pattern->doc = ngd_arena_calloc(p->pattern->arena, p->lex.tok.n + 1, 1);
    if (!p->pattern->doc)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_NO_MEMORY, "out of host memory");
    memcpy(p->pattern->doc, p->lex.tok.p, p->lex.tok.n);
    return ngd_pattern_lex_advance(&p->lex);
}

static const char *const phases[] = {[NGD_PATTERN_EARLY] = "early",
                                     [NGD_PATTERN_LATE] = "late",
                                     [NGD_PATTERN_CUSTOM] = "custom",
                                     [NGD_PATTERN_FIRST] = "first"};

const char *ngd_pattern_phase_name(ngd_pattern_phase_t phase)
{
    return phases[phase];
}

static ngd_status_t parse_phase(struct parser *p)
{
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    for (size_t i = 0; !status && i < sizeof(phases) / sizeof(phases[0]); i++) {
        if (ngd_pattern_lex_at_word(&p->lex, phases[i])) {
            p->pattern->phase = (ngd_pattern_phase_t)i;
            return ngd_pattern_lex_advance(&p->lex);
        }
    }
    return status ? status : ngd_pattern_lex_expected(&p->lex, "first, early, late or custom");
}

static ngd_status_t parse_statement(struct parser *p)
{
    const uint32_t tensor =
        1u << NGD_VALUE_PARAM | 1u << NGD_VALUE_STATE | 1u << NGD_VALUE_INPUT | 1u << NGD_VALUE_NODE;

    if (ngd_pattern_lex_at_word(&p->lex, "version"))
        return parse_version(p);
    if (ngd_pattern_lex_at_word(&p->lex, "phase"))
        return parse_phase(p);
    if (ngd_pattern_lex_at_word(&p->lex, "doc"))
        return parse_doc(p);
    if (ngd_pattern_lex_at_word(&p->lex, "dim"))
        return parse_several(p, parse_dim);
    if (ngd_pattern_lex_at_word(&p->lex, "dtype"))
        return parse_several(p, parse_dtype);
    if (ngd_pattern_lex_at_word(&p->lex, "excess_precision"))
        return parse_several(p, parse_excess);
    if (ngd_pattern_lex_at_word(&p->lex, "float"))
        return parse_several(p, parse_float);
    if (ngd_pattern_lex_at_word(&p->lex, "where"))
        return parse_several(p, parse_where);
    if (ngd_pattern_lex_at_word(&p->lex, "source"))
        return parse_side(p, &p->pattern->source);
    if (ngd_pattern_lex_at_word(&p->lex, "replacement"))
        return parse_side(p, &p->pattern->replacement);
    if ((ngd_pattern_lex_at_word(&p->lex, "input") || ngd_pattern_lex_at_word(&p->lex, "param") ||
         ngd_pattern_lex_at_word(&p->lex, "state") || ngd_pattern_lex_at_word(&p->lex, "host")) &&
        p->pattern->source.n_nodes + p->pattern->replacement.n_nodes > 0)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_PARSE, "inputs are declared before source and replacement");
    if (ngd_pattern_lex_at_word(&p->lex, "input"))
        return parse_input(p, tensor);
    if (ngd_pattern_lex_at_word(&p->lex, "param"))
        return parse_input(p, 1u << NGD_VALUE_PARAM);
    if (ngd_pattern_lex_at_word(&p->lex, "state"))
        return parse_input(p, 1u << NGD_VALUE_STATE);
    if (ngd_pattern_lex_at_word(&p->lex, "host"))
        return parse_input(p, 1u << NGD_VALUE_HOST);
    return ngd_pattern_lex_expected(
        &p->lex, "version, phase, doc, dim, dtype, excess_precision, float, input, param, state, host, where, source, "
                 "replacement or '}'");
}

struct holder {
    struct ngd_pattern pattern;
    struct ngd_arena arena;
};

static struct ngd_pattern *pattern_new(void)
{
    struct holder *h = NGD_NEW(struct holder);

    if (!h)
        return NULL;
    ngd_arena_init(&h->arena, 4096);
    h->pattern.arena = &h->arena;
    h->pattern.refs = 1;
    if (ngd_expr_table_create(&h->pattern.exprs) == NGD_OK)
        return &h->pattern;
    ngd_free(h);
    return NULL;
}

struct ngd_pattern *ngd_pattern_ref(struct ngd_pattern *p)
{
    __atomic_fetch_add(&p->refs, 1, __ATOMIC_RELAXED);
    return p;
}

struct ngd_pattern *ngd_pattern_unref(struct ngd_pattern *p)
{
    if (p && __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        ngd_expr_table_destroy(p->exprs);
        ngd_arena_fini(p->arena);
        ngd_free(p);
    }
    return NULL;
}

static ngd_status_t keep_text(struct parser *p, const char *start)
{
    size_t n = (size_t)(p->lex.tok.p - start);

    while (n > 0 && start[n - 1] != '}') /* up to its own brace: the token to come is the next pattern's */
        n--;
    p->pattern->text = ngd_arena_calloc(p->pattern->arena, n + 1, 1);
    if (!p->pattern->text)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_NO_MEMORY, "out of host memory");
    memcpy(p->pattern->text, start, n);
    ngd_digest_of(start, n, &p->pattern->digest);
    return NGD_OK;
}

static ngd_status_t parse_pattern(struct parser *p)
{
    const char *start = p->lex.tok.p;
    ngd_status_t status = ngd_pattern_lex_take(&p->lex, "pattern");

    if (!status)
        status = ngd_pattern_lex_take_name(&p->lex, NGD_PATTERN_TOK_STRING, "the pattern's name in quotes",
                                           p->pattern->name);
    for (const char *c = p->pattern->name; !status && *c; c++)
        if (!ngd_pattern_lex_is_name(*c) && *c != '-')
            status = ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_PARSE,
                                          "a pattern's name is made of letters, digits, '_', '-' and '.'");
    p->pattern->version = 1;
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "{");
    while (!status && !ngd_pattern_lex_at_punct(&p->lex, "}"))
        status = parse_statement(p);
    if (!status)
        status = ngd_pattern_lex_advance(&p->lex);
    if (!status && (p->pattern->source.n_nodes == 0 || p->pattern->replacement.n_nodes == 0))
        status = ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_PARSE, "it needs a source and a replacement");
    if (!status)
        status = keep_text(p, start);
    return status ? status : ngd_pattern_check(p->pattern, p->samples, p->lex.diag);
}

static bool name_taken(struct ngd_pattern *const *patterns, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(patterns[i]->name, name) == 0)
            return true;
    return false;
}

static ngd_status_t parse_all(const char *text, size_t n, bool samples, struct ngd_pattern **patterns, uint32_t max,
                              uint32_t *n_p, struct ngd_diag *diag)
{
    struct parser p = {.lex = {.at = text, .end = text + n, .line = 1, .pattern = "", .diag = diag},
                       .samples = samples};
    ngd_status_t status = NGD_OK;
    uint32_t count = 0;

    ngd_op_table_init();
    if (n > NGD_PATTERN_MAX_TEXT)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "a text of patterns has at most %u bytes",
                            NGD_PATTERN_MAX_TEXT);
    status = ngd_pattern_lex_advance(&p.lex);
    if (!status && p.lex.tok.kind == NGD_PATTERN_TOK_END)
        status = ngd_pattern_lex_expected(&p.lex, "pattern");
    while (!status && p.lex.tok.kind != NGD_PATTERN_TOK_END) {
        if (count == max) {
            status = ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the text has more than %u patterns", max);
            break;
        }
        p.pattern = patterns[count] = pattern_new();
        if (!p.pattern) {
            status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory");
            break;
        }
        count++;
        p.lex.pattern = p.pattern->name;
        status = parse_pattern(&p);
        if (!status && name_taken(patterns, count - 1, p.pattern->name))
            status = ngd_pattern_lex_fail(&p.lex, NGD_ERR_GRAPH_REDEFINED, "two patterns of the text have this name");
    }
    if (status) {
        for (uint32_t i = 0; i < count; i++)
            patterns[i] = ngd_pattern_unref(patterns[i]);
        return status;
    }
    *n_p = count;
    return NGD_OK;
}

ngd_status_t ngd_patterns_parse(const char *text, size_t n, struct ngd_pattern **patterns, uint32_t max, uint32_t *n_p,
                                struct ngd_diag *diag)
{
    return parse_all(text, n, true, patterns, max, n_p, diag);
}

ngd_status_t ngd_patterns_parse_trusted(const char *text, size_t n, struct ngd_pattern **patterns, uint32_t max,
                                        uint32_t *n_p, struct ngd_diag *diag)
{
    return parse_all(text, n, false, patterns, max, n_p, diag);
}
