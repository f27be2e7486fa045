/* SPDX-License-Identifier: Apache-2.0 */
/* Parses expressions and types of graph text. Recursion is bounded. */
#include "graphs/graph_parse_int.h"
#include <string.h>

ngd_status_t ngd_graph_parse_copy(struct ngd_graph_parser *p, struct ngd_slice s, char **copy_p)
{
    char *copy = ngd_arena_alloc(&p->graph->priv->arena, s.n + 1);

    if (!copy)
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_NO_MEMORY, "out of host memory");
    memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    *copy_p = copy;
    return NGD_OK;
}

/* ---- expressions ---- */

static ngd_status_t make_graph_expr(struct ngd_graph_parser *p, const struct ngd_graph_token *where, ngd_expr_op_t op,
                                    ngd_dim_t a, ngd_dim_t b, ngd_dim_t *dim_p)
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

static ngd_status_t parse_graph_call(struct ngd_graph_parser *p, ngd_expr_op_t op, ngd_dim_t *dim_p)
{
    struct ngd_graph_token where = p->lex.tok;
    ngd_dim_t a, b;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, '(');
    if (!status)
        status = ngd_graph_parse_expr(p, &a);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ',');
    if (!status)
        status = ngd_graph_parse_expr(p, &b);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ')');
    return status ? status : make_graph_expr(p, &where, op, a, b, dim_p);
}

static ngd_status_t parse_word(struct ngd_graph_parser *p, ngd_dim_t *dim_p)
{
    static const struct {
        const char *name;
        ngd_expr_op_t op;
    } functions[] = {
        {"floordiv", NGD_EXPR_FLOORDIV}, {"mod", NGD_EXPR_MOD}, {"min", NGD_EXPR_MIN}, {"max", NGD_EXPR_MAX}};

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (ngd_graph_lex_at_word(&p->lex, functions[i].name))
            return parse_graph_call(p, functions[i].op, dim_p);
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

/* Parses: number | symbol | function(a, b) | (expr) */
static ngd_status_t parse_primary(struct ngd_graph_parser *p, ngd_dim_t *dim_p)
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
        status = ngd_graph_parse_expr(p, dim_p);
    return status ? status : ngd_graph_lex_take_punct(&p->lex, ')');
}

/* Parses: {-} primary. It loops, so that a text of minus signs only takes no stack. */
static ngd_status_t parse_factor(struct ngd_graph_parser *p, ngd_dim_t *dim_p)
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
    return status || !negative ? status : make_graph_expr(p, &where, NGD_EXPR_SUB, 0, *dim_p, dim_p);
}

static ngd_status_t parse_graph_product(struct ngd_graph_parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status = parse_factor(p, dim_p);

    while (!status && ngd_graph_lex_at_punct(&p->lex, '*')) {
        struct ngd_graph_token where = p->lex.tok;
        ngd_dim_t b;

        status = ngd_graph_lex_advance(&p->lex);
        if (!status)
            status = parse_factor(p, &b);
        if (!status)
            status = make_graph_expr(p, &where, NGD_EXPR_MUL, *dim_p, b, dim_p);
    }
    return status;
}

ngd_status_t ngd_graph_parse_expr(struct ngd_graph_parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status;

    if (p->expr_depth >= NGD_EXPR_MAX_DEPTH)
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                     "an expression is nested too deeply (32 levels at most)");
    p->expr_depth++;
    status = parse_graph_product(p, dim_p);
    while (!status && (ngd_graph_lex_at_punct(&p->lex, '+') || ngd_graph_lex_at_punct(&p->lex, '-'))) {
        struct ngd_graph_token where = p->lex.tok;
        ngd_dim_t b;

        status = ngd_graph_lex_advance(&p->lex);
        if (!status)
            status = parse_graph_product(p, &b);
        if (!status)
            status = make_graph_expr(p, &where, where.ch == '+' ? NGD_EXPR_ADD : NGD_EXPR_SUB, *dim_p, b, dim_p);
    }
    p->expr_depth--;
    return status;
}

/* ---- types ---- */

ngd_status_t ngd_graph_parse_dtype(struct ngd_graph_parser *p, ngd_dtype_t *dtype_p)
{
    if (p->lex.tok.kind != NGD_GRAPH_TOK_WORD || !ngd_dtype_parse(p->lex.tok.text.p, p->lex.tok.text.n, dtype_p))
        return ngd_graph_lex_expected(&p->lex, "a dtype (f32, f16, bf16, f8_e4m3fn, i8, u8, i32, i64, bool)");
    return ngd_graph_lex_advance(&p->lex);
}

/* Parses: f32[B, 64] */
ngd_status_t ngd_graph_parse_type(struct ngd_graph_parser *p, struct ngd_type *type_p)
{
    struct ngd_type type = {0};
    ngd_status_t status = ngd_graph_parse_dtype(p, &type.dtype);

    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, '[');
    while (!status && !ngd_graph_lex_at_punct(&p->lex, ']')) {
        if (type.rank == NGD_MAX_RANK)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_RANK, "a tensor has at most 8 dimensions");
        if (type.rank)
            status = ngd_graph_lex_take_punct(&p->lex, ',');
        if (!status)
            status = ngd_graph_parse_expr(p, &type.dims[type.rank]);
        type.rank++;
    }
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ']');
    if (!status)
        *type_p = type;
    return status;
}
