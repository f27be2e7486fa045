/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PATTERN_LEX_H
#define NGD_GRAPHS_PATTERN_LEX_H

/*
 * The lexer of pattern text, with one token of lookahead; the parser of patterns (pattern_int.h) reads its tokens. It
 * never reads past the end of the text. Errors name line and pattern.
 */
#include "graphs/pattern.h"

enum ngd_pattern_token_kind {
    NGD_PATTERN_TOK_END,
    NGD_PATTERN_TOK_WORD,
    NGD_PATTERN_TOK_VALUE,
    NGD_PATTERN_TOK_INT,
    NGD_PATTERN_TOK_FLOAT,
    NGD_PATTERN_TOK_STRING,
    NGD_PATTERN_TOK_PUNCT
};

struct ngd_pattern_token {
    enum ngd_pattern_token_kind kind;
    const char *p;
    size_t n;
    uint32_t line;
};

struct ngd_pattern_lexer {
    const char *at, *end;
    uint32_t line;
    struct ngd_pattern_token tok; /* the next token */
    const char *pattern;          /* name of the pattern being read, for diagnoses; "": none yet */
    struct ngd_diag *diag;
};

ngd_status_t ngd_pattern_lex_fail(struct ngd_pattern_lexer *l, ngd_status_t status, const char *what);
ngd_status_t ngd_pattern_lex_expected(struct ngd_pattern_lexer *l, const char *what);
/* Fails with fmt, which has one %.*s for the name. */
ngd_status_t ngd_pattern_lex_fail_about(struct ngd_pattern_lexer *l, ngd_status_t status, const char *fmt,
                                        const char *name, size_t n);

ngd_status_t ngd_pattern_lex_advance(struct ngd_pattern_lexer *l);
bool ngd_pattern_lex_at(const struct ngd_pattern_lexer *l, enum ngd_pattern_token_kind kind, const char *text);
bool ngd_pattern_lex_at_punct(const struct ngd_pattern_lexer *l, const char *text);
bool ngd_pattern_lex_at_word(const struct ngd_pattern_lexer *l, const char *text);
/* Take the next token, which must be of this kind; otherwise fail. */
ngd_status_t ngd_pattern_lex_take(struct ngd_pattern_lexer *l, const char *text);
ngd_status_t ngd_pattern_lex_take_int(struct ngd_pattern_lexer *l, int64_t *v_p);
ngd_status_t ngd_pattern_lex_take_float(struct ngd_pattern_lexer *l, double *v_p);
ngd_status_t ngd_pattern_lex_take_name(struct ngd_pattern_lexer *l, enum ngd_pattern_token_kind kind, const char *what,
                                       char to[NGD_PATTERN_MAX_NAME]);
bool ngd_pattern_lex_is_name(char c); /* c may be part of a name */

#endif
