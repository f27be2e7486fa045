/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PATTERN_INT_H
#define NGD_GRAPHS_PATTERN_INT_H

/*
 * Inside of the parser of patterns: pattern_parse.c reads the statements, pattern_declare.c those that declare,
 * pattern_side.c source and replacement, pattern_expr.c expressions. Each function begins at the token to come and
 * leaves at the first that is not its own.
 */
#include "graphs/pattern_lex.h"

struct ngd_pattern_parser {
    struct ngd_pattern_lexer lex;
    struct ngd_pattern *pattern;
    struct ngd_pattern_side *side; /* being parsed */
    uint32_t first_result;         /* values from here on are the side's results */
    uint32_t depth;
    bool samples; /* patterns are tried on sample types */
};

/* What a token names; -1: nothing that is declared. */
int ngd_pattern_find_dim(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t);
int ngd_pattern_find_float(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t);
int ngd_pattern_find_dtype_variable(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t);
int ngd_pattern_find_dtype(const struct ngd_pattern_token *t);
/* An input, or a result of this side; NGD_PATTERN_NONE: nothing. */
uint32_t ngd_pattern_find_value(const struct ngd_pattern_parser *p, const struct ngd_pattern_token *t);
/* The place of the value that the token to come will name: the caller fills it in and counts it. */
ngd_status_t ngd_pattern_new_value(struct ngd_pattern_parser *p, struct ngd_pattern_value **v_p);

ngd_status_t ngd_pattern_parse_expr(struct ngd_pattern_parser *p, ngd_dim_t *dim_p);

/* One declaration each, after its keyword. */
ngd_status_t ngd_pattern_parse_dim(struct ngd_pattern_parser *p);
ngd_status_t ngd_pattern_parse_dtype(struct ngd_pattern_parser *p);
ngd_status_t ngd_pattern_parse_excess(struct ngd_pattern_parser *p);
ngd_status_t ngd_pattern_parse_float(struct ngd_pattern_parser *p);
ngd_status_t ngd_pattern_parse_where(struct ngd_pattern_parser *p);
/* From the keyword on: `input`, `param`, `state` or `host`; a bit per class of values that may stand there. */
ngd_status_t ngd_pattern_parse_input(struct ngd_pattern_parser *p, uint32_t classes);
/* From the keyword on: `source` or `replacement`. */
ngd_status_t ngd_pattern_parse_side(struct ngd_pattern_parser *p, struct ngd_pattern_side *side);

#endif
