/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the declarations of a pattern: variables, inputs, and constraints on them. Expressions and sides find a
 * declaration by its name.
 */
#include "graphs/graph_int.h"
#include "graphs/pattern_int.h"
#include <string.h>

/* ---- names ---- */

static bool named(const struct ngd_pattern_token *t, const char *name)
{
    return strlen(name) == t->n && memcmp(name, t->p, t->n) == 0;
}

int ngd_pattern_find_dim(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t)
{
    for (uint32_t i = 0; i < p->pattern->n_dims; i++)
        if (named(t, p->pattern->dims[i].name))
            return (int)i;
    return -1;
}

int ngd_pattern_find_float(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t)
{
    for (uint32_t i = 0; i < p->pattern->n_floats; i++)
        if (named(t, p->pattern->floats[i]))
            return (int)i;
    return -1;
}

int ngd_pattern_find_dtype_variable(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t)
{
    for (uint32_t i = 0; i < p->pattern->n_dtypes; i++)
        if (named(t, p->pattern->dtypes[i].name))
            return (int)i;
    return -1;
}

int ngd_pattern_find_dtype(const struct ngd_pattern_token *t)
{
    for (int i = 0; i < NGD_DTYPE_MAX; i++)
        if (named(t, ngd_dtype_name((ngd_dtype_t)i)))
            return i;
    return -1;
}

uint32_t ngd_pattern_find_value(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t)
{
    const struct ngd_pattern *pattern = p->pattern;

    for (uint32_t i = 0; i < pattern->n_values; i++)
        if ((pattern->values[i].is_input || i >= p->first_result) && named(t, pattern->values[i].name))
            return i;
    return NGD_PATTERN_NONE;
}

ngd_status_t ngd_pattern_new_value(struct ngd_pattern_parser *p, struct ngd_pattern_value **v_p)
{
    if (p->pattern->n_values == NGD_PATTERN_MAX_VALUES)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a pattern has at most 96 values");
    if (ngd_pattern_find_value(p, &p->lex.tok) != NGD_PATTERN_NONE)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_REDEFINED, "%%%.*s is defined twice", p->lex.tok.p,
                                          p->lex.tok.n);
    *v_p = &p->pattern->values[p->pattern->n_values];
    **v_p = (struct ngd_pattern_value){0};
    return NGD_OK;
}

/* ---- variables ---- */

static ngd_status_t check_new(struct ngd_pattern_parser *p)
{
    if (ngd_pattern_find_dim(p, &p->lex.tok) >= 0 || ngd_pattern_find_float(p, &p->lex.tok) >= 0 ||
        ngd_pattern_find_dtype_variable(p, &p->lex.tok) >= 0)
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_REDEFINED, "%.*s is declared twice", p->lex.tok.p,
                                          p->lex.tok.n);
    if (p->lex.tok.kind == NGD_PATTERN_TOK_WORD &&
        (ngd_pattern_find_dtype(&p->lex.tok) >= 0 ||
         !ngd_symbol_name_ok((struct ngd_slice){p->lex.tok.p, p->lex.tok.n})))
        return ngd_pattern_lex_fail_about(&p->lex, NGD_ERR_GRAPH_SYMBOL,
                                          "%.*s cannot name a variable: it is a word of the language", p->lex.tok.p,
                                          p->lex.tok.n);
    return NGD_OK;
}

/* Parses: NAME [MIN..[MAX]] [multiple N] */
ngd_status_t ngd_pattern_parse_dim(struct ngd_pattern_parser *p)
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

/* Parses: = DTYPE | DTYPE ... */
static ngd_status_t parse_dtype_list(struct ngd_pattern_parser *p, uint32_t *dtypes_p)
{
    ngd_status_t status = ngd_pattern_lex_take(&p->lex, "=");
    uint32_t dtypes = 0;

    while (!status) {
        int dtype = ngd_pattern_find_dtype(&p->lex.tok);

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

/* Parses: NAME = DTYPE | DTYPE ... */
ngd_status_t ngd_pattern_parse_dtype(struct ngd_pattern_parser *p)
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

/* Parses: NAME = DTYPE | DTYPE ... NAME is a declared dtype variable, and the dtypes are some of its own. */
ngd_status_t ngd_pattern_parse_excess(struct ngd_pattern_parser *p)
{
    const struct ngd_pattern_token name = p->lex.tok;
    const int variable = name.kind == NGD_PATTERN_TOK_WORD ? ngd_pattern_find_dtype_variable(p, &name) : -1;
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
                                          "%.*s cannot be of a dtype that is given here for excess precision", name.p,
                                          name.n);
    if (!status)
        d->excess = dtypes;
    return status;
}

ngd_status_t ngd_pattern_parse_float(struct ngd_pattern_parser *p)
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

/* ---- inputs ---- */

/* Parses: DTYPE [ [*,] EXPR, ... ] */
static ngd_status_t parse_type(struct ngd_pattern_parser *p, struct ngd_pattern_value *v)
{
    int variable = ngd_pattern_find_dtype_variable(p, &p->lex.tok), dtype = ngd_pattern_find_dtype(&p->lex.tok);
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
            status = ngd_pattern_parse_expr(p, &v->dims[v->rank++]);
        }
        first = false;
    }
    return status ? status : ngd_pattern_lex_take(&p->lex, "]");
}

/* Parses: input|param|state|host %name : TYPE */
ngd_status_t ngd_pattern_parse_input(struct ngd_pattern_parser *p, uint32_t classes)
{
    struct ngd_pattern_value *v;
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    p->first_result = p->pattern->n_values;
    if (!status && p->lex.tok.kind != NGD_PATTERN_TOK_VALUE)
        status = ngd_pattern_lex_expected(&p->lex, "a value, %name");
    if (!status)
        status = ngd_pattern_new_value(p, &v);
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

/* ---- where ---- */

static ngd_status_t parse_compare(struct ngd_pattern_parser *p, ngd_pattern_compare_t *c_p)
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

ngd_status_t ngd_pattern_parse_where(struct ngd_pattern_parser *p)
{
    struct ngd_pattern_where *w = &p->pattern->wheres[p->pattern->n_wheres];
    ngd_status_t status = NGD_OK;

    if (p->pattern->n_wheres == NGD_PATTERN_MAX_WHERES)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_TOO_LARGE, "a pattern has at most 16 constraints");
    *w = (struct ngd_pattern_where){
        .variable = p->lex.tok.kind == NGD_PATTERN_TOK_WORD ? ngd_pattern_find_float(p, &p->lex.tok) : -1};
    if (w->variable >= 0)
        status = ngd_pattern_lex_advance(&p->lex);
    else
        status = ngd_pattern_parse_expr(p, &w->a);
    if (!status)
        status = parse_compare(p, &w->compare);
    if (!status)
        status = w->variable >= 0 ? ngd_pattern_lex_take_float(&p->lex, &w->value) : ngd_pattern_parse_expr(p, &w->b);
    if (!status && w->variable >= 0 && ngd_pattern_lex_at_punct(&p->lex, "~")) {
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = ngd_pattern_lex_take_float(&p->lex, &w->tolerance);
    }
    p->pattern->n_wheres++;
    return status;
}
