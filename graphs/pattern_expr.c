/* SPDX-License-Identifier: Apache-2.0 */
/* Parses expressions of pattern text: + - *, floordiv(a, b), mod(a, b), numbers and dimensions. */
#include "graphs/pattern_int.h"

#define EXPR_DEPTH 16

static ngd_status_t make_pattern_expr(struct ngd_pattern_parser *p, ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b,
                                      ngd_dim_t *dim_p)
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

static ngd_status_t parse_pattern_call(struct ngd_pattern_parser *p, ngd_expr_op_t op, ngd_dim_t *dim_p)
{
    ngd_dim_t a, b;
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "(");
    if (!status)
        status = ngd_pattern_parse_expr(p, &a);
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, ",");
    if (!status)
        status = ngd_pattern_parse_expr(p, &b);
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, ")");
    return status ? status : make_pattern_expr(p, op, a, b, dim_p);
}

static ngd_status_t parse_atom(struct ngd_pattern_parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status;
    int i;

    if (p->lex.tok.kind == NGD_PATTERN_TOK_INT)
        return ngd_pattern_lex_take_int(&p->lex, dim_p);
    if (ngd_pattern_lex_at_word(&p->lex, "floordiv"))
        return parse_pattern_call(p, NGD_EXPR_FLOORDIV, dim_p);
    if (ngd_pattern_lex_at_word(&p->lex, "mod"))
        return parse_pattern_call(p, NGD_EXPR_MOD, dim_p);
    if (ngd_pattern_lex_at_punct(&p->lex, "(")) {
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = ngd_pattern_parse_expr(p, dim_p);
        return status ? status : ngd_pattern_lex_take(&p->lex, ")");
    }
    if (p->lex.tok.kind != NGD_PATTERN_TOK_WORD)
        return ngd_pattern_lex_expected(&p->lex, "a number or a dimension");
    i = ngd_pattern_find_dim(p, &p->lex.tok);
    if (i < 0)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_SYMBOL, "%.*s is not declared: add a line `dim`",
                                          p->lex.tok.p, p->lex.tok.n);
    *dim_p = p->pattern->dims[i].dim;
    return ngd_pattern_lex_advance(&p->lex);
}

static ngd_status_t parse_pattern_product(struct ngd_pattern_parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status = parse_atom(p, dim_p);

    while (!status && ngd_pattern_lex_at_punct(&p->lex, "*")) {
        ngd_dim_t right;

        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = parse_atom(p, &right);
        if (!status)
            status = make_pattern_expr(p, NGD_EXPR_MUL, *dim_p, right, dim_p);
    }
    return status;
}

ngd_status_t ngd_pattern_parse_expr(struct ngd_pattern_parser *p, ngd_dim_t *dim_p)
{
    bool negative = ngd_pattern_lex_at_punct(&p->lex, "-");
    ngd_status_t status = negative ? ngd_pattern_lex_advance(&p->lex) : NGD_OK;

    if (++p->depth > EXPR_DEPTH)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "an expression is nested too deeply");
    if (!status)
        status = parse_pattern_product(p, dim_p);
    if (!status && negative)
        status = make_pattern_expr(p, NGD_EXPR_SUB, 0, *dim_p, dim_p);
    while (!status && (ngd_pattern_lex_at_punct(&p->lex, "+") || ngd_pattern_lex_at_punct(&p->lex, "-"))) {
        ngd_expr_op_t op = ngd_pattern_lex_at_punct(&p->lex, "+") ? NGD_EXPR_ADD : NGD_EXPR_SUB;
        ngd_dim_t right;

        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = parse_pattern_product(p, &right);
        if (!status)
            status = make_pattern_expr(p, op, *dim_p, right, dim_p);
    }
    p->depth--;
    return status;
}
