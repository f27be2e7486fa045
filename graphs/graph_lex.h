/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GRAPH_LEX_H
#define NGD_GRAPHS_GRAPH_LEX_H

/*
 * The lexer of graph text, with one token of lookahead; graph_parse.c reads its tokens.
 *
 * It treats the text as bytes and never reads past its end. An error is set once, where it is found, with line and
 * column.
 */
#include "graphs/graph_int.h"

#define NGD_GRAPH_LEX_SHOWN 40 /* bytes of a token in a diagnosis */

enum ngd_graph_token_kind {
    NGD_GRAPH_TOK_END,
    NGD_GRAPH_TOK_WORD,  /* letter or _, then letters, digits, _ and . : keywords, symbols, operators, dtypes */
    NGD_GRAPH_TOK_VALUE, /* %name */
    NGD_GRAPH_TOK_INT,
    NGD_GRAPH_TOK_FLOAT,
    NGD_GRAPH_TOK_STRING, /* still quoted */
    NGD_GRAPH_TOK_DOTDOT,
    NGD_GRAPH_TOK_RELATION, /* == != < <= > >= */
    NGD_GRAPH_TOK_PUNCT,    /* one character, in ch */
};

struct ngd_graph_token {
    enum ngd_graph_token_kind kind;
    char ch;
    struct ngd_slice text; /* VALUE: the name; STRING: without the quotes */
    uint32_t line, column;
};

struct ngd_graph_lexer {
    const char *text, *end, *at;
    const char *line_start;
    uint32_t line;
    struct ngd_graph_token tok; /* the next token */
    struct ngd_diag *diag;
    struct ngd_strbuf string; /* the last unescaped string */
};

void ngd_graph_lex_init(struct ngd_graph_lexer *l, const char *text, size_t n, struct ngd_diag *diag);
void ngd_graph_lex_fini(struct ngd_graph_lexer *l);

ngd_status_t ngd_graph_lex_fail_at(struct ngd_graph_lexer *l, const struct ngd_graph_token *tok, ngd_status_t status,
                                   const char *what);
/* Fails with "expected X, found Y" at the next token. */
ngd_status_t ngd_graph_lex_expected(struct ngd_graph_lexer *l, const char *what);

/* Moves on by one token. */
ngd_status_t ngd_graph_lex_advance(struct ngd_graph_lexer *l);
bool ngd_graph_lex_at_punct(const struct ngd_graph_lexer *l, char c);
bool ngd_graph_lex_is(struct ngd_slice s, const char *word);
bool ngd_graph_lex_at_word(const struct ngd_graph_lexer *l, const char *word);
/* Take the next token, which must be this character or word; otherwise fail. */
ngd_status_t ngd_graph_lex_take_punct(struct ngd_graph_lexer *l, char c);
ngd_status_t ngd_graph_lex_take_word(struct ngd_graph_lexer *l, const char *word);
/* Takes a string of at most max bytes and unescapes it into l->string. */
ngd_status_t ngd_graph_lex_take_string(struct ngd_graph_lexer *l, const char *what, size_t max);
ngd_status_t ngd_graph_lex_take_int(struct ngd_graph_lexer *l, const char *what, int64_t *v_p);
ngd_status_t ngd_graph_lex_take_scalar(struct ngd_graph_lexer *l, struct ngd_scalar *v_p);

#endif
