/* SPDX-License-Identifier: Apache-2.0 */
/* The lexer of pattern text, which comes from clients. */
#include "graphs/pattern_lex.h"
#include "graphs/graph_int.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- diagnoses ---- */

ngd_status_t ngd_pattern_lex_fail(struct ngd_pattern_lexer *l, ngd_status_t status, const char *what)
{
    if (l->pattern[0])
        return ngd_diag_set(l->diag, status, "line %u: pattern \"%s\": %s", l->tok.line, l->pattern, what);
    return ngd_diag_set(l->diag, status, "line %u: %s", l->tok.line, what);
}

ngd_status_t ngd_pattern_lex_expected(struct ngd_pattern_lexer *l, const char *what)
{
    char text[200];
    int n = l->tok.n > 40 ? 40 : (int)l->tok.n;

    if (l->tok.kind == NGD_PATTERN_TOK_END)
        snprintf(text, sizeof(text), "expected %s, found the end of the text", what);
    else
        snprintf(text, sizeof(text), "expected %s, found %s%.*s", what, l->tok.kind == NGD_PATTERN_TOK_VALUE ? "%" : "",
                 n, l->tok.p);
    return ngd_pattern_lex_fail(l, NGD_ERR_GRAPH_PARSE, text);
}

ngd_status_t ngd_pattern_lex_fail_about(struct ngd_pattern_lexer *l, ngd_status_t status, const char *fmt,
                                        const char *name, size_t n)
{
    char text[300];

    snprintf(text, sizeof(text), fmt, n > 60 ? 60 : (int)n, name);
    return ngd_pattern_lex_fail(l, status, text);
}

/* ---- lexer ---- */

static bool pattern_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool ngd_pattern_lex_is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || pattern_is_digit(c);
}

static char pattern_peek(const struct ngd_pattern_lexer *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? l->at[ahead] : '\0';
}

static ngd_status_t pattern_skip_blanks(struct ngd_pattern_lexer *l)
{
    for (; l->at < l->end; l->at++) {
        if (*l->at == '#') {
            const char *line_end = memchr(l->at, '\n', (size_t)(l->end - l->at));
            const char *stop = line_end != NULL ? line_end : l->end;

            if (!ngd_text_ok(l->at, (size_t)(stop - l->at)))
                return ngd_diag_set(l->diag, NGD_ERR_GRAPH_PARSE, "line %u: a comment is not valid UTF-8", l->line);
            l->at = stop;
        }
        if (l->at == l->end)
            break;
        if (*l->at == '\n')
            l->line++;
        else if (*l->at != ' ' && *l->at != '\t' && *l->at != '\r')
            break;
    }
    return NGD_OK;
}

/* Reads digits [. digits] [e [+-] digits]; "1..16" is 1, then "..". */
static void pattern_lex_number(struct ngd_pattern_lexer *l)
{
    l->tok.kind = NGD_PATTERN_TOK_INT;
    while (pattern_is_digit(pattern_peek(l, 0)))
        l->at++;
    if (pattern_peek(l, 0) == '.' && pattern_peek(l, 1) != '.') {
        l->tok.kind = NGD_PATTERN_TOK_FLOAT;
        for (l->at++; pattern_is_digit(pattern_peek(l, 0));)
            l->at++;
    }
    if (pattern_peek(l, 0) == 'e' &&
        (pattern_is_digit(pattern_peek(l, 1)) ||
         ((pattern_peek(l, 1) == '-' || pattern_peek(l, 1) == '+') && pattern_is_digit(pattern_peek(l, 2))))) {
        l->tok.kind = NGD_PATTERN_TOK_FLOAT;
        for (l->at += 2; pattern_is_digit(pattern_peek(l, 0));)
            l->at++;
    }
}

/* Reads a string. It has no escapes, because names and sentences need none. */
static ngd_status_t pattern_lex_string(struct ngd_pattern_lexer *l)
{
    for (l->at++; l->at < l->end && *l->at != '"'; l->at++)
        if ((unsigned char)*l->at < 0x20 || *l->at == '\\')
            return ngd_pattern_lex_fail(l, NGD_ERR_GRAPH_PARSE, "a string has no escapes and no line breaks");
    if (l->at == l->end)
        return ngd_pattern_lex_fail(l, NGD_ERR_GRAPH_PARSE, "a string has no end");
    l->at++;
    l->tok.kind = NGD_PATTERN_TOK_STRING;
    l->tok.p++;
    l->tok.n = (size_t)(l->at - l->tok.p) - 1;
    if (!ngd_text_ok(l->tok.p, l->tok.n))
        return ngd_pattern_lex_fail(l, NGD_ERR_GRAPH_PARSE, "a string is not valid UTF-8");
    return NGD_OK;
}

static ngd_status_t lex_punct(struct ngd_pattern_lexer *l)
{
    static const char *const pairs[] = {"..", "==", "!=", "<=", ">="};

    l->tok.kind = NGD_PATTERN_TOK_PUNCT;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (pattern_peek(l, 0) == pairs[i][0] && pattern_peek(l, 1) == pairs[i][1]) {
            l->at += 2;
            return NGD_OK;
        }
    }
    if (!strchr("{}()[],:=|*+-<>~", *l->at))
        return ngd_diag_set(l->diag, NGD_ERR_GRAPH_PARSE, "line %u: byte 0x%02x does not belong here", l->line,
                            (unsigned char)*l->at);
    l->at++;
    return NGD_OK;
}

ngd_status_t ngd_pattern_lex_advance(struct ngd_pattern_lexer *l)
{
    ngd_status_t status = pattern_skip_blanks(l);

    if (status)
        return status;
    l->tok = (struct ngd_pattern_token){.kind = NGD_PATTERN_TOK_END, .p = l->at, .line = l->line};
    if (l->at == l->end)
        return NGD_OK;
    if (*l->at == '"')
        return pattern_lex_string(l);
    if (pattern_is_digit(*l->at)) {
        pattern_lex_number(l);
    } else if (ngd_pattern_lex_is_name(*l->at) && *l->at != '.') {
        l->tok.kind = NGD_PATTERN_TOK_WORD;
        while (ngd_pattern_lex_is_name(pattern_peek(l, 0)))
            l->at++;
    } else if (*l->at == '%' && ngd_pattern_lex_is_name(pattern_peek(l, 1))) {
        l->tok.kind = NGD_PATTERN_TOK_VALUE;
        for (l->tok.p = ++l->at; ngd_pattern_lex_is_name(pattern_peek(l, 0));)
            l->at++;
    } else {
        status = *l->at ? lex_punct(l) : ngd_pattern_lex_fail(l, NGD_ERR_GRAPH_PARSE, "a byte 0 does not belong here");
    }
    l->tok.n = (size_t)(l->at - l->tok.p);
    return status;
}

bool ngd_pattern_lex_at(const struct ngd_pattern_lexer *l, enum ngd_pattern_token_kind kind, const char *text)
{
    return l->tok.kind == kind && l->tok.n == strlen(text) && memcmp(l->tok.p, text, l->tok.n) == 0;
}

bool ngd_pattern_lex_at_punct(const struct ngd_pattern_lexer *l, const char *text)
{
    return ngd_pattern_lex_at(l, NGD_PATTERN_TOK_PUNCT, text);
}

bool ngd_pattern_lex_at_word(const struct ngd_pattern_lexer *l, const char *text)
{
    return ngd_pattern_lex_at(l, NGD_PATTERN_TOK_WORD, text);
}

ngd_status_t ngd_pattern_lex_take(struct ngd_pattern_lexer *l, const char *text)
{
    char what[16];

    if (ngd_pattern_lex_at_punct(l, text) || ngd_pattern_lex_at_word(l, text))
        return ngd_pattern_lex_advance(l);
    snprintf(what, sizeof(what), "'%s'", text);
    return ngd_pattern_lex_expected(l, what);
}

ngd_status_t ngd_pattern_lex_take_int(struct ngd_pattern_lexer *l, int64_t *v_p)
{
    int64_t v = 0;

    if (l->tok.kind != NGD_PATTERN_TOK_INT)
        return ngd_pattern_lex_expected(l, "an integer");
    for (size_t i = 0; i < l->tok.n; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, l->tok.p[i] - '0', &v))
            return ngd_pattern_lex_fail(l, NGD_ERR_OVERFLOW, "a number does not fit 64 bits");
    *v_p = v;
    return ngd_pattern_lex_advance(l);
}

ngd_status_t ngd_pattern_lex_take_float(struct ngd_pattern_lexer *l, double *v_p)
{
    bool negative = ngd_pattern_lex_at_punct(l, "-");
    ngd_status_t status = negative ? ngd_pattern_lex_advance(l) : NGD_OK;
    char text[64];

    if (status)
        return status;
    if ((l->tok.kind != NGD_PATTERN_TOK_INT && l->tok.kind != NGD_PATTERN_TOK_FLOAT) || l->tok.n >= sizeof(text))
        return ngd_pattern_lex_expected(l, "a number");
    memcpy(text, l->tok.p, l->tok.n);
    text[l->tok.n] = '\0';
    *v_p = negative ? -strtod(text, NULL) : strtod(text, NULL);
    if (!isfinite(*v_p))
        return ngd_pattern_lex_fail(l, NGD_ERR_OVERFLOW, "a number is too large");
    return ngd_pattern_lex_advance(l);
}

ngd_status_t ngd_pattern_lex_take_name(struct ngd_pattern_lexer *l, enum ngd_pattern_token_kind kind, const char *what,
                                       char to[NGD_PATTERN_MAX_NAME])
{
    if (l->tok.kind != kind || l->tok.n == 0)
        return ngd_pattern_lex_expected(l, what);
    if (l->tok.n >= NGD_PATTERN_MAX_NAME)
        return ngd_pattern_lex_fail(l, NGD_ERR_GRAPH_TOO_LARGE, "a name has at most 63 bytes");
    memcpy(to, l->tok.p, l->tok.n);
    to[l->tok.n] = '\0';
    return ngd_pattern_lex_advance(l);
}
