/* SPDX-License-Identifier: Apache-2.0 */
/* The lexer of graph text. The text comes from clients: it may be huge, binary, or malicious. */
#include "graphs/graph_lex.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ngd_graph_lex_init(struct ngd_graph_lexer *l, const char *text, size_t n, struct ngd_diag *diag)
{
    *l = (struct ngd_graph_lexer){
        .text = text, .at = text, .end = text + n, .line_start = text, .line = 1, .diag = diag};
    ngd_strbuf_init(&l->string);
}

void ngd_graph_lex_fini(struct ngd_graph_lexer *l)
{
    ngd_strbuf_fini(&l->string);
}

/* ---- diagnoses ---- */

ngd_status_t ngd_graph_lex_fail_at(struct ngd_graph_lexer *l, const struct ngd_graph_token *tok, ngd_status_t status,
                                   const char *what)
{
    return ngd_diag_set(l->diag, status, "line %u, column %u: %s", tok->line, tok->column, what);
}

ngd_status_t ngd_graph_lex_expected(struct ngd_graph_lexer *l, const char *what)
{
    const struct ngd_graph_token *t = &l->tok;
    const char *mark = t->kind == NGD_GRAPH_TOK_VALUE ? "%" : t->kind == NGD_GRAPH_TOK_STRING ? "\"" : "";
    int n = t->text.n > NGD_GRAPH_LEX_SHOWN ? NGD_GRAPH_LEX_SHOWN : (int)t->text.n;

    if (t->kind == NGD_GRAPH_TOK_END)
        return ngd_diag_set(l->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: expected %s, found the end of the text",
                            t->line, t->column, what);
    if (t->kind == NGD_GRAPH_TOK_PUNCT)
        return ngd_diag_set(l->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: expected %s, found '%c'", t->line,
                            t->column, what, t->ch);
    return ngd_diag_set(l->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: expected %s, found %s%.*s%s", t->line,
                        t->column, what, mark, n, t->text.p, t->text.n > NGD_GRAPH_LEX_SHOWN ? "..." : "");
}

/* ---- lexer ---- */

static bool graph_is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool graph_is_name(char c)
{
    return is_letter(c) || graph_is_digit(c) || c == '.';
}

static char graph_peek(const struct ngd_graph_lexer *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? l->at[ahead] : '\0';
}

static void new_line(struct ngd_graph_lexer *l)
{
    l->line++;
    l->line_start = l->at + 1;
}

/* Skips blanks and comments. Checks that comments are UTF-8, so that a diagnosis that quotes one is text. */
static ngd_status_t graph_skip_blanks(struct ngd_graph_lexer *l)
{
    for (; l->at < l->end; l->at++) {
        char c = *l->at;

        if (c == '\n') {
            new_line(l);
        } else if (c == '#') {
            const char *eol = memchr(l->at, '\n', (size_t)(l->end - l->at));
            size_t n = (size_t)((eol ? eol : l->end) - l->at);

            if (!ngd_text_ok(l->at, n))
                return ngd_diag_set(l->diag, NGD_ERR_GRAPH_PARSE, "line %u: a comment is not valid UTF-8", l->line);
            l->at += n - 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            break;
        }
    }
    return NGD_OK;
}

/* Reads digits [. digits] [e [+-] digits]; "1..16" is 1, then "..". */
static void graph_lex_number(struct ngd_graph_lexer *l)
{
    const char *start = l->at;

    l->tok.kind = NGD_GRAPH_TOK_INT;
    while (graph_is_digit(graph_peek(l, 0)))
        l->at++;
    if (graph_peek(l, 0) == '.' && graph_peek(l, 1) != '.') {
        l->tok.kind = NGD_GRAPH_TOK_FLOAT;
        l->at++;
        while (graph_is_digit(graph_peek(l, 0)))
            l->at++;
    }
    if ((graph_peek(l, 0) == 'e' || graph_peek(l, 0) == 'E') &&
        (graph_is_digit(graph_peek(l, 1)) ||
         ((graph_peek(l, 1) == '+' || graph_peek(l, 1) == '-') && graph_is_digit(graph_peek(l, 2))))) {
        l->tok.kind = NGD_GRAPH_TOK_FLOAT;
        l->at += 2;
        while (graph_is_digit(graph_peek(l, 0)))
            l->at++;
    }
    l->tok.text = (struct ngd_slice){start, (size_t)(l->at - start)};
}

static ngd_status_t graph_lex_string(struct ngd_graph_lexer *l)
{
    const char *start = ++l->at;

    for (; l->at < l->end && *l->at != '"'; l->at++) {
        if (*l->at == '\\' && l->at + 1 < l->end)
            l->at++;
        if ((unsigned char)*l->at < 0x20)
            return ngd_graph_lex_fail_at(
                l, &l->tok, NGD_ERR_GRAPH_PARSE,
                "a string contains a control character or a line break: write it as an escape (\\n, \\u0007)");
    }
    if (l->at == l->end)
        return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_GRAPH_PARSE, "a string has no end");
    l->tok.kind = NGD_GRAPH_TOK_STRING;
    l->tok.text = (struct ngd_slice){start, (size_t)(l->at - start)};
    l->at++;
    if (!ngd_text_ok(l->tok.text.p, l->tok.text.n))
        return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_GRAPH_PARSE, "a string is not valid UTF-8");
    return NGD_OK;
}

static ngd_status_t lex_other(struct ngd_graph_lexer *l)
{
    char c = *l->at;

    l->tok.text = (struct ngd_slice){l->at, 1};
    if (c == '.' && graph_peek(l, 1) == '.') {
        l->tok.kind = NGD_GRAPH_TOK_DOTDOT;
        l->tok.text.n = 2;
        l->at += 2;
        return NGD_OK;
    }
    if (c == '<' || c == '>' || ((c == '=' || c == '!') && graph_peek(l, 1) == '=')) {
        l->tok.kind = NGD_GRAPH_TOK_RELATION;
        l->tok.text.n = graph_peek(l, 1) == '=' ? 2 : 1;
        l->at += l->tok.text.n;
        return NGD_OK;
    }
    if (!c || !strchr("{}()[],:=+-*", c)) {
        if ((unsigned char)c < 0x20 || (unsigned char)c >= 0x7f)
            return ngd_diag_set(l->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: byte 0x%02x does not belong here",
                                l->tok.line, l->tok.column, (unsigned char)c);
        return ngd_diag_set(l->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: '%c' does not belong here", l->tok.line,
                            l->tok.column, c);
    }
    l->tok.kind = NGD_GRAPH_TOK_PUNCT;
    l->tok.ch = c;
    l->at++;
    return NGD_OK;
}

/* Reads the next token into l->tok. */
ngd_status_t ngd_graph_lex_advance(struct ngd_graph_lexer *l)
{
    ngd_status_t status = graph_skip_blanks(l);
    char c;

    if (status)
        return status;
    l->tok = (struct ngd_graph_token){.line = l->line, .column = (uint32_t)(l->at - l->line_start) + 1};
    if (l->at == l->end)
        return NGD_OK;
    c = *l->at;
    if (graph_is_digit(c)) {
        graph_lex_number(l);
        return NGD_OK;
    }
    if (c == '"')
        return graph_lex_string(l);
    if (is_letter(c) || (c == '%' && graph_is_name(graph_peek(l, 1)))) {
        const char *start = c == '%' ? ++l->at : l->at;

        while (graph_is_name(graph_peek(l, 0)))
            l->at++;
        l->tok.kind = c == '%' ? NGD_GRAPH_TOK_VALUE : NGD_GRAPH_TOK_WORD;
        l->tok.text = (struct ngd_slice){start, (size_t)(l->at - start)};
        return NGD_OK;
    }
    return lex_other(l);
}

bool ngd_graph_lex_at_punct(const struct ngd_graph_lexer *l, char c)
{
    return l->tok.kind == NGD_GRAPH_TOK_PUNCT && l->tok.ch == c;
}

bool ngd_graph_lex_is(struct ngd_slice s, const char *word)
{
    return strlen(word) == s.n && memcmp(s.p, word, s.n) == 0;
}

bool ngd_graph_lex_at_word(const struct ngd_graph_lexer *l, const char *word)
{
    return l->tok.kind == NGD_GRAPH_TOK_WORD && ngd_graph_lex_is(l->tok.text, word);
}

ngd_status_t ngd_graph_lex_take_punct(struct ngd_graph_lexer *l, char c)
{
    char what[] = {'\'', c, '\'', '\0'};

    return ngd_graph_lex_at_punct(l, c) ? ngd_graph_lex_advance(l) : ngd_graph_lex_expected(l, what);
}

ngd_status_t ngd_graph_lex_take_word(struct ngd_graph_lexer *l, const char *word)
{
    return ngd_graph_lex_at_word(l, word) ? ngd_graph_lex_advance(l) : ngd_graph_lex_expected(l, word);
}

/* ---- strings and numbers ---- */

static int hex_digit(char c)
{
    return graph_is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_hex4(const char *s, const char *end, uint32_t *v_p)
{
    uint32_t v = 0;

    if (end - s < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(s[i]);

        if (d < 0)
            return false;
        v = v << 4 | (uint32_t)d;
    }
    *v_p = v;
    return true;
}

static void put_utf8(struct ngd_strbuf *sb, uint32_t c)
{
    if (c < 0x80) {
        ngd_strbuf_putc(sb, (char)c);
    } else if (c < 0x800) {
        ngd_strbuf_putc(sb, (char)(0xc0 | c >> 6));
        ngd_strbuf_putc(sb, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        ngd_strbuf_putc(sb, (char)(0xe0 | c >> 12));
        ngd_strbuf_putc(sb, (char)(0x80 | (c >> 6 & 0x3f)));
        ngd_strbuf_putc(sb, (char)(0x80 | (c & 0x3f)));
    } else {
        ngd_strbuf_putc(sb, (char)(0xf0 | c >> 18));
        ngd_strbuf_putc(sb, (char)(0x80 | (c >> 12 & 0x3f)));
        ngd_strbuf_putc(sb, (char)(0x80 | (c >> 6 & 0x3f)));
        ngd_strbuf_putc(sb, (char)(0x80 | (c & 0x3f)));
    }
}

/* Unescapes \uXXXX, or a pair of surrogates. *at_p points behind the u, and is moved past the digits. */
static bool unescape_unicode(struct ngd_strbuf *sb, const char **at_p, const char *end)
{
    uint32_t c, low;

    if (!read_hex4(*at_p, end, &c))
        return false;
    *at_p += 4;
    if (c >= 0xd800 && c < 0xdc00) {
        if (end - *at_p < 6 || (*at_p)[0] != '\\' || (*at_p)[1] != 'u' || !read_hex4(*at_p + 2, end, &low) ||
            low < 0xdc00 || low > 0xdfff)
            return false;
        *at_p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c == 0 || (c >= 0xdc00 && c <= 0xdfff)) {
        return false;
    }
    put_utf8(sb, c);
    return true;
}

ngd_status_t ngd_graph_lex_take_string(struct ngd_graph_lexer *l, const char *what, size_t max)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *s, *end;

    if (l->tok.kind != NGD_GRAPH_TOK_STRING)
        return ngd_graph_lex_expected(l, what);
    if (l->tok.text.n > 6 * max)
        return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_GRAPH_TOO_LARGE, "a string is too long");
    s = l->tok.text.p; /* NULL for the token at the end */
    end = s + l->tok.text.n;
    ngd_strbuf_clear(&l->string);
    while (s < end) {
        const char *escape;

        if (*s != '\\') {
            ngd_strbuf_putc(&l->string, *s++);
            continue;
        }
        escape = s + 1 < end ? memchr(from, s[1], sizeof(from) - 1) : NULL;
        s += 2;
        if (escape) {
            ngd_strbuf_putc(&l->string, to[escape - from]);
        } else if (s > end || s[-1] != 'u' || !unescape_unicode(&l->string, &s, end)) {
            return ngd_graph_lex_fail_at(
                l, &l->tok, NGD_ERR_GRAPH_PARSE,
                "a string has a bad escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX (not \\u0000) are known");
        }
    }
    if (l->string.failed)
        return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_NO_MEMORY, "out of host memory");
    if (l->string.len > max)
        return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_GRAPH_TOO_LARGE, "a string is too long");
    return ngd_graph_lex_advance(l);
}

ngd_status_t ngd_graph_lex_take_int(struct ngd_graph_lexer *l, const char *what, int64_t *v_p)
{
    int64_t v = 0;

    if (l->tok.kind != NGD_GRAPH_TOK_INT)
        return ngd_graph_lex_expected(l, what);
    for (size_t i = 0; i < l->tok.text.n; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, l->tok.text.p[i] - '0', &v))
            return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_OVERFLOW, "the number does not fit 64 bits");
    *v_p = v;
    return ngd_graph_lex_advance(l);
}

/* Returns true if v is exactly the integer `digits`. A rounded integer would give other results. */
static bool is_exact(const char *digits, double v)
{
    char exact[512];

    while (digits[0] == '0' && digits[1] != '\0')
        digits++;
    snprintf(exact, sizeof(exact), "%.0f", v);
    return strcmp(digits, exact) == 0;
}

/* Reads an integer. Returns false if it does not fit 64 bits with this sign. */
static bool read_int(const char *digits, bool negative, int64_t *v_p)
{
    int64_t v = 0;

    for (; *digits; digits++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, negative ? '0' - *digits : *digits - '0', &v))
            return false;
    *v_p = v;
    return true;
}

/* Reads the next token, which must be a number, and applies its sign. */
static ngd_status_t read_number(struct ngd_graph_lexer *l, bool negative, struct ngd_scalar *v_p)
{
    const bool whole = l->tok.kind == NGD_GRAPH_TOK_INT;
    char text[512];
    int64_t i;
    double v;

    if (!whole && l->tok.kind != NGD_GRAPH_TOK_FLOAT)
        return ngd_graph_lex_expected(l, "a number, inf or nan");
    if (l->tok.text.n >= sizeof(text))
        return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_GRAPH_TOO_LARGE, "the number has too many digits");
    memcpy(text, l->tok.text.p, l->tok.text.n);
    text[l->tok.text.n] = '\0';
    v = strtod(text, NULL);
    if (isinf(v))
        return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_OVERFLOW,
                                     "the number is too large for a float: infinity is written inf");
    *v_p = (struct ngd_scalar){.f = negative ? -v : v}; /* -0 too */
    if (!whole)
        return NGD_OK;
    if (read_int(text, negative, &i))
        v_p->i = ngd_scalar_of_int(i).i;
    else if (!is_exact(text, v))
        return ngd_graph_lex_fail_at(l, &l->tok, NGD_ERR_OVERFLOW,
                                     "the integer does not fit 64 bits and has no exact f64; write it with a decimal "
                                     "point if it may be rounded");
    return NGD_OK;
}

/* Takes [-] (number | inf | nan). */
ngd_status_t ngd_graph_lex_take_scalar(struct ngd_graph_lexer *l, struct ngd_scalar *v_p)
{
    bool negative = ngd_graph_lex_at_punct(l, '-');
    ngd_status_t status = negative ? ngd_graph_lex_advance(l) : NGD_OK;

    if (status)
        return status;
    if (ngd_graph_lex_at_word(l, "inf"))
        *v_p = (struct ngd_scalar){.f = negative ? -INFINITY : INFINITY};
    else if (ngd_graph_lex_at_word(l, "nan"))
        *v_p = (struct ngd_scalar){.f = negative ? -NAN : NAN};
    else
        status = read_number(l, negative, v_p);
    return status ? status : ngd_graph_lex_advance(l);
}
