/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PATTERN_INT_H
#define NGD_GRAPHS_PATTERN_INT_H

/*
 * Internals of the parser of patterns: pattern_parse.c reads statements, pattern_declare.c declarations, pattern_side.c
 * source and replacement, pattern_expr.c expressions. Each function starts at the next token and stops at the first
 * token that it does not take.
 */
#include "graphs/pattern_lex.h"

struct ngd_pattern_parser {
    struct ngd_pattern_lexer lex;
    struct ngd_pattern *pattern;
    struct ngd_pattern_side *side; /* being parsed */
    uint32_t first_result;         /* values from here on are the side's results */
    uint32_t depth;
    bool samples; /* try the patterns on sample types */
};

/* Find the declaration that a token names; -1: there is none. */
int ngd_pattern_find_dim(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t);
int ngd_pattern_find_float(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t);
int ngd_pattern_find_dtype_variable(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t);
int ngd_pattern_find_dtype(const struct ngd_pattern_token *t);
/* Finds an input, or a result of this side; NGD_PATTERN_NONE: there is none. */
uint32_t ngd_pattern_find_value(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t);
/* Gives a place for the value that the next token names. The caller fills it in and counts it. */
ngd_status_t ngd_pattern_new_value(struct ngd_pattern_parser *p, struct ngd_pattern_value **v_p);

ngd_status_t ngd_pattern_parse_expr(struct ngd_pattern_parser *p, ngd_dim_t *dim_p);

/* Parse one declaration each, after its keyword. */
ngd_status_t ngd_pattern_parse_dim(struct ngd_pattern_parser *p);
ngd_status_t ngd_pattern_parse_dtype(struct ngd_pattern_parser *p);
ngd_status_t ngd_pattern_parse_excess(struct ngd_pattern_parser *p);
ngd_status_t ngd_pattern_parse_float(struct ngd_pattern_parser *p);
ngd_status_t ngd_pattern_parse_where(struct ngd_pattern_parser *p);
/* Parses an input, beginning with its keyword: `input`, `param`, `state` or `host`. classes: a bit per class of values
 * that it matches. */
ngd_status_t ngd_pattern_parse_input(struct ngd_pattern_parser *p, uint32_t classes);
/* Parses a side, beginning with its keyword: `source` or `replacement`. */
ngd_status_t ngd_pattern_parse_side(struct ngd_pattern_parser *p, struct ngd_pattern_side *side);

#endif
