/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text -> graph: a lexer and a recursive-descent parser over the builder (docs/graph-text.md has the grammar).
 *
 * The text comes from clients: it may be huge, binary, or made to hurt. The lexer never reads past the end
 * and takes the text as bytes; recursion is only in expressions and bounded; every limit of the builder holds
 * while parsing, so a text is refused before it has cost much more memory than its own size. One token is
 * looked ahead. Errors are set once, where they are found, and everything returns at once.
 */
#include "graphs/graph_int.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum token_kind {
    TOK_END,
    TOK_WORD,  /* letter or _, then letters, digits, _ and . : keywords, symbols, operators, dtypes */
    TOK_VALUE, /* %name */
    TOK_INT,
    TOK_FLOAT,
    TOK_STRING, /* still quoted */
    TOK_DOTDOT,
    TOK_PUNCT, /* one character, in ch */
};

struct token {
    enum token_kind kind;
    char ch;
    struct ngd_slice text; /* VALUE: the name; STRING: without the quotes */
    uint32_t line, column;
};

struct parser {
    const char *text, *end, *at;
    const char *line_start;
    uint32_t line;
    struct token tok; /* the token to come */
    struct ngd_graph *graph;
    struct ngd_diag *diag;
    struct ngd_strbuf string; /* the last unescaped string */
    uint32_t expr_depth;
    struct ngd_node_scope scope; /* around the statement to come */
    uint32_t scope_depth;
};

#define MAX_TOKEN_SHOWN 40

/* ---- diagnoses ---- */

static ngd_status_t fail_at(struct parser *p, const struct token *tok, ngd_status_t status, const char *what)
{
    return ngd_diag_set(p->diag, status, "line %u, column %u: %s", tok->line, tok->column, what);
}

/* "expected X, found Y" at the token to come. */
static ngd_status_t expected(struct parser *p, const char *what)
{
    const struct token *t = &p->tok;
    const char *mark = t->kind == TOK_VALUE ? "%" : t->kind == TOK_STRING ? "\"" : "";
    int n = t->text.n > MAX_TOKEN_SHOWN ? MAX_TOKEN_SHOWN : (int)t->text.n;

    if (t->kind == TOK_END)
        return ngd_diag_set(p->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: expected %s, found the end of the text",
                            t->line, t->column, what);
    if (t->kind == TOK_PUNCT)
        return ngd_diag_set(p->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: expected %s, found '%c'", t->line,
                            t->column, what, t->ch);
    return ngd_diag_set(p->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: expected %s, found %s%.*s%s", t->line,
                        t->column, what, mark, n, t->text.p, t->text.n > MAX_TOKEN_SHOWN ? "..." : "");
}

/* ---- lexer ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_name(char c)
{
    return is_letter(c) || is_digit(c) || c == '.';
}

static char peek(const struct parser *p, size_t ahead)
{
    return (size_t)(p->end - p->at) > ahead ? p->at[ahead] : '\0';
}

static void new_line(struct parser *p)
{
    p->line++;
    p->line_start = p->at + 1;
}

/* Skips blanks and comments; a comment's bytes are checked, so that a printed diagnosis of it is text. */
static ngd_status_t skip_blanks(struct parser *p)
{
    for (; p->at < p->end; p->at++) {
        char c = *p->at;

        if (c == '\n') {
            new_line(p);
        } else if (c == '#') {
            const char *eol = memchr(p->at, '\n', (size_t)(p->end - p->at));
            size_t n = (size_t)((eol ? eol : p->end) - p->at);

            if (!ngd_text_ok(p->at, n))
                return ngd_diag_set(p->diag, NGD_ERR_GRAPH_PARSE, "line %u: a comment is not valid UTF-8", p->line);
            p->at += n - 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            break;
        }
    }
    return NGD_OK;
}

/* digits [. digits] [e [+-] digits], but "1..16" is 1, then "..". */
static void lex_number(struct parser *p)
{
    const char *start = p->at;

    p->tok.kind = TOK_INT;
    while (is_digit(peek(p, 0)))
        p->at++;
    if (peek(p, 0) == '.' && peek(p, 1) != '.') {
        p->tok.kind = TOK_FLOAT;
        p->at++;
        while (is_digit(peek(p, 0)))
            p->at++;
    }
    if ((peek(p, 0) == 'e' || peek(p, 0) == 'E') &&
        (is_digit(peek(p, 1)) || ((peek(p, 1) == '+' || peek(p, 1) == '-') && is_digit(peek(p, 2))))) {
        p->tok.kind = TOK_FLOAT;
        p->at += 2;
        while (is_digit(peek(p, 0)))
            p->at++;
    }
    p->tok.text = (struct ngd_slice){start, (size_t)(p->at - start)};
}

static ngd_status_t lex_string(struct parser *p)
{
    const char *start = ++p->at;

    for (; p->at < p->end && *p->at != '"'; p->at++) {
        if (*p->at == '\\' && p->at + 1 < p->end)
            p->at++;
        if ((unsigned char)*p->at < 0x20)
            return fail_at(
                p, &p->tok, NGD_ERR_GRAPH_PARSE,
                "a string contains a control character or a line break: write it as an escape (\\n, \\u0007)");
    }
    if (p->at == p->end)
        return fail_at(p, &p->tok, NGD_ERR_GRAPH_PARSE, "a string has no end");
    p->tok.kind = TOK_STRING;
    p->tok.text = (struct ngd_slice){start, (size_t)(p->at - start)};
    p->at++;
    if (!ngd_text_ok(p->tok.text.p, p->tok.text.n))
        return fail_at(p, &p->tok, NGD_ERR_GRAPH_PARSE, "a string is not valid UTF-8");
    return NGD_OK;
}

static ngd_status_t lex_other(struct parser *p)
{
    char c = *p->at;

    p->tok.text = (struct ngd_slice){p->at, 1};
    if (c == '.' && peek(p, 1) == '.') {
        p->tok.kind = TOK_DOTDOT;
        p->tok.text.n = 2;
        p->at += 2;
        return NGD_OK;
    }
    if (!c || !strchr("{}()[],:=+-*", c)) {
        if ((unsigned char)c < 0x20 || (unsigned char)c >= 0x7f)
            return ngd_diag_set(p->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: byte 0x%02x does not belong here",
                                p->tok.line, p->tok.column, (unsigned char)c);
        return ngd_diag_set(p->diag, NGD_ERR_GRAPH_PARSE, "line %u, column %u: '%c' does not belong here", p->tok.line,
                            p->tok.column, c);
    }
    p->tok.kind = TOK_PUNCT;
    p->tok.ch = c;
    p->at++;
    return NGD_OK;
}

/* Reads the next token into p->tok. */
static ngd_status_t advance(struct parser *p)
{
    ngd_status_t status = skip_blanks(p);
    char c;

    if (status)
        return status;
    p->tok = (struct token){.line = p->line, .column = (uint32_t)(p->at - p->line_start) + 1};
    if (p->at == p->end)
        return NGD_OK;
    c = *p->at;
    if (is_digit(c)) {
        lex_number(p);
        return NGD_OK;
    }
    if (c == '"')
        return lex_string(p);
    if (is_letter(c) || (c == '%' && is_name(peek(p, 1)))) {
        const char *start = c == '%' ? ++p->at : p->at;

        while (is_name(peek(p, 0)))
            p->at++;
        p->tok.kind = c == '%' ? TOK_VALUE : TOK_WORD;
        p->tok.text = (struct ngd_slice){start, (size_t)(p->at - start)};
        return NGD_OK;
    }
    return lex_other(p);
}

static bool at_punct(const struct parser *p, char c)
{
    return p->tok.kind == TOK_PUNCT && p->tok.ch == c;
}

static bool slice_is(struct ngd_slice s, const char *word)
{
    return strlen(word) == s.n && memcmp(s.p, word, s.n) == 0;
}

static bool at_word(const struct parser *p, const char *word)
{
    return p->tok.kind == TOK_WORD && slice_is(p->tok.text, word);
}

static ngd_status_t take_punct(struct parser *p, char c)
{
    char what[] = {'\'', c, '\'', '\0'};

    return at_punct(p, c) ? advance(p) : expected(p, what);
}

static ngd_status_t take_word(struct parser *p, const char *word)
{
    return at_word(p, word) ? advance(p) : expected(p, word);
}

/* ---- strings and numbers ---- */

static int hex_digit(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
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

/* \uXXXX, or a pair of surrogates; *at_p is behind the u and moves past the digits. */
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

/* Unescapes the string token to come into p->string and takes it. */
static ngd_status_t take_string(struct parser *p, const char *what, size_t max)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *s = p->tok.text.p, *end = s + p->tok.text.n;

    if (p->tok.kind != TOK_STRING)
        return expected(p, what);
    if (p->tok.text.n > 6 * max)
        return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "a string is too long");
    ngd_strbuf_clear(&p->string);
    while (s < end) {
        const char *escape;

        if (*s != '\\') {
            ngd_strbuf_putc(&p->string, *s++);
            continue;
        }
        escape = s + 1 < end ? memchr(from, s[1], sizeof(from) - 1) : NULL;
        s += 2;
        if (escape) {
            ngd_strbuf_putc(&p->string, to[escape - from]);
        } else if (s > end || s[-1] != 'u' || !unescape_unicode(&p->string, &s, end)) {
            return fail_at(
                p, &p->tok, NGD_ERR_GRAPH_PARSE,
                "a string has a bad escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX (not \\u0000) are known");
        }
    }
    if (p->string.failed)
        return fail_at(p, &p->tok, NGD_ERR_NO_MEMORY, "out of host memory");
    if (p->string.len > max)
        return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "a string is too long");
    return advance(p);
}

static ngd_status_t take_int(struct parser *p, const char *what, int64_t *v_p)
{
    int64_t v = 0;

    if (p->tok.kind != TOK_INT)
        return expected(p, what);
    for (size_t i = 0; i < p->tok.text.n; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, p->tok.text.p[i] - '0', &v))
            return fail_at(p, &p->tok, NGD_ERR_OVERFLOW, "the number does not fit 64 bits");
    *v_p = v;
    return advance(p);
}

/* [-] (number | inf | nan) */
static ngd_status_t take_float(struct parser *p, double *v_p)
{
    bool negative = at_punct(p, '-');
    char text[512];
    ngd_status_t status = negative ? advance(p) : NGD_OK;
    double v;

    if (status)
        return status;
    if (at_word(p, "inf") || at_word(p, "nan")) {
        v = at_word(p, "inf") ? INFINITY : NAN;
    } else {
        if (p->tok.kind != TOK_INT && p->tok.kind != TOK_FLOAT)
            return expected(p, "a number, inf or nan");
        if (p->tok.text.n >= sizeof(text))
            return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "the number has too many digits");
        memcpy(text, p->tok.text.p, p->tok.text.n);
        text[p->tok.text.n] = '\0';
        v = strtod(text, NULL);
        if (isinf(v))
            return fail_at(p, &p->tok, NGD_ERR_OVERFLOW,
                           "the number is too large for a float: infinity is written inf");
    }
    *v_p = negative ? -v : v;
    return advance(p);
}

/* ---- expressions ---- */

static ngd_status_t parse_expr(struct parser *p, ngd_dim_t *dim_p);

static ngd_status_t make(struct parser *p, const struct token *where, ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b,
                         ngd_dim_t *dim_p)
{
    ngd_status_t status = ngd_expr_make(p->graph->exprs, op, a, b, dim_p);

    switch (status) {
    case NGD_OK:
        return NGD_OK;
    case NGD_ERR_OVERFLOW:
        return fail_at(p, where, status, "the expression overflows 64 bits within the symbols' ranges");
    case NGD_ERR_GRAPH_SYMBOL:
        return fail_at(p, where, status,
                       "the divisor can be 0 or negative: raise the minimum of its symbols, or take max(divisor, 1)");
    case NGD_ERR_GRAPH_TOO_LARGE:
        return fail_at(p, where, status, "the expression is too large, or the graph has too many of them");
    default:
        return fail_at(p, where, status, ngd_status_text(status));
    }
}

static ngd_status_t parse_call(struct parser *p, ngd_expr_op_t op, ngd_dim_t *dim_p)
{
    struct token where = p->tok;
    ngd_dim_t a, b;
    ngd_status_t status = advance(p);

    if (!status)
        status = take_punct(p, '(');
    if (!status)
        status = parse_expr(p, &a);
    if (!status)
        status = take_punct(p, ',');
    if (!status)
        status = parse_expr(p, &b);
    if (!status)
        status = take_punct(p, ')');
    return status ? status : make(p, &where, op, a, b, dim_p);
}

static ngd_status_t parse_word(struct parser *p, ngd_dim_t *dim_p)
{
    static const struct {
        const char *name;
        ngd_expr_op_t op;
    } functions[] = {
        {"floordiv", NGD_EXPR_FLOORDIV}, {"mod", NGD_EXPR_MOD}, {"min", NGD_EXPR_MIN}, {"max", NGD_EXPR_MAX}};

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (at_word(p, functions[i].name))
            return parse_call(p, functions[i].op, dim_p);
    for (uint32_t i = 0; i < p->graph->n_symbols; i++) {
        if (at_word(p, p->graph->symbols[i].name)) {
            *dim_p = p->graph->symbols[i].dim;
            return advance(p);
        }
    }
    return ngd_diag_set(p->diag, NGD_ERR_GRAPH_SYMBOL,
                        "line %u, column %u: symbol %.*s is not declared: add `sym %.*s min..max` before it is used",
                        p->tok.line, p->tok.column,
                        p->tok.text.n > MAX_TOKEN_SHOWN ? MAX_TOKEN_SHOWN : (int)p->tok.text.n, p->tok.text.p,
                        p->tok.text.n > MAX_TOKEN_SHOWN ? MAX_TOKEN_SHOWN : (int)p->tok.text.n, p->tok.text.p);
}

/* number | symbol | function(a, b) | (expr) */
static ngd_status_t parse_primary(struct parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status;

    if (p->tok.kind == TOK_INT)
        return take_int(p, "a number", dim_p);
    if (p->tok.kind == TOK_WORD)
        return parse_word(p, dim_p);
    if (!at_punct(p, '('))
        return expected(p, "a number, a symbol or '('");
    status = advance(p);
    if (!status)
        status = parse_expr(p, dim_p);
    return status ? status : take_punct(p, ')');
}

/* {-} primary; a loop, so that a text of nothing but minus signs costs no stack */
static ngd_status_t parse_factor(struct parser *p, ngd_dim_t *dim_p)
{
    struct token where = p->tok;
    bool negative = false;
    ngd_status_t status = NGD_OK;

    while (!status && at_punct(p, '-')) {
        negative = !negative;
        status = advance(p);
    }
    if (!status)
        status = parse_primary(p, dim_p);
    return status || !negative ? status : make(p, &where, NGD_EXPR_SUB, 0, *dim_p, dim_p);
}

static ngd_status_t parse_product(struct parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status = parse_factor(p, dim_p);

    while (!status && at_punct(p, '*')) {
        struct token where = p->tok;
        ngd_dim_t b;

        status = advance(p);
        if (!status)
            status = parse_factor(p, &b);
        if (!status)
            status = make(p, &where, NGD_EXPR_MUL, *dim_p, b, dim_p);
    }
    return status;
}

static ngd_status_t parse_expr(struct parser *p, ngd_dim_t *dim_p)
{
    ngd_status_t status;

    if (p->expr_depth >= NGD_EXPR_MAX_DEPTH)
        return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "an expression is nested too deeply (32 levels at most)");
    p->expr_depth++;
    status = parse_product(p, dim_p);
    while (!status && (at_punct(p, '+') || at_punct(p, '-'))) {
        struct token where = p->tok;
        ngd_dim_t b;

        status = advance(p);
        if (!status)
            status = parse_product(p, &b);
        if (!status)
            status = make(p, &where, where.ch == '+' ? NGD_EXPR_ADD : NGD_EXPR_SUB, *dim_p, b, dim_p);
    }
    p->expr_depth--;
    return status;
}

/* ---- types ---- */

static ngd_status_t take_dtype(struct parser *p, ngd_dtype_t *dtype_p)
{
    if (p->tok.kind != TOK_WORD || !ngd_dtype_parse(p->tok.text.p, p->tok.text.n, dtype_p))
        return expected(p, "a dtype (f32, f16, bf16, i8, u8, i32, i64, bool)");
    return advance(p);
}

/* f32[B, 64] */
static ngd_status_t parse_type(struct parser *p, struct ngd_type *type_p)
{
    struct ngd_type type = {0};
    ngd_status_t status = take_dtype(p, &type.dtype);

    if (!status)
        status = take_punct(p, '[');
    while (!status && !at_punct(p, ']')) {
        if (type.rank == NGD_MAX_RANK)
            return fail_at(p, &p->tok, NGD_ERR_GRAPH_RANK, "a tensor has at most 8 dimensions");
        if (type.rank)
            status = take_punct(p, ',');
        if (!status)
            status = parse_expr(p, &type.dims[type.rank]);
        type.rank++;
    }
    if (!status)
        status = take_punct(p, ']');
    if (!status)
        *type_p = type;
    return status;
}

/* ---- declarations ---- */

static ngd_status_t prefix_line(struct parser *p, uint32_t line, ngd_status_t status)
{
    if (status)
        ngd_diag_prefix(p->diag, "line %u: ", line);
    return status;
}

/* A terminated copy in the graph's memory. */
static ngd_status_t copy_text(struct parser *p, struct ngd_slice s, char **copy_p)
{
    char *copy = ngd_arena_alloc(&p->graph->priv->arena, s.n + 1);

    if (!copy)
        return fail_at(p, &p->tok, NGD_ERR_NO_MEMORY, "out of host memory");
    memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    *copy_p = copy;
    return NGD_OK;
}

static ngd_status_t parse_buckets(struct parser *p, uint32_t symbol)
{
    int64_t buckets[NGD_MAX_BUCKETS];
    uint32_t n = 0, line = p->tok.line;
    ngd_status_t status = advance(p);

    do {
        if (n == NGD_MAX_BUCKETS)
            return fail_at(p, &p->tok, NGD_ERR_GRAPH_SYMBOL, "a symbol has at most 64 buckets");
        if (!status && n && at_punct(p, ','))
            status = advance(p);
        if (!status)
            status = take_int(p, "a bucket, a number", &buckets[n++]);
    } while (!status && (p->tok.kind == TOK_INT || at_punct(p, ',')));
    return status ? status : prefix_line(p, line, ngd_graph_set_buckets(p->graph, symbol, buckets, n, p->diag));
}

/* sym NAME min..max [exact | buckets b, b, ...] */
static ngd_status_t parse_symbol(struct parser *p)
{
    uint32_t line = p->tok.line;
    char *name;
    int64_t min, max;
    ngd_dim_t dim;
    ngd_status_t status = advance(p);

    if (!status && p->tok.kind != TOK_WORD)
        status = expected(p, "the symbol's name");
    if (!status && p->tok.text.n > NGD_GRAPH_MAX_NAME)
        status = fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "a name is too long");
    if (!status)
        status = copy_text(p, p->tok.text, &name);
    if (!status)
        status = advance(p);
    if (!status)
        status = take_int(p, "the symbol's range, min..max", &min);
    if (!status && p->tok.kind != TOK_DOTDOT)
        status = expected(p, "'..'");
    if (!status)
        status = advance(p);
    if (!status)
        status = take_int(p, "the symbol's maximum", &max);
    if (!status)
        status = prefix_line(p, line, ngd_graph_add_symbol(p->graph, name, min, max, &dim, p->diag));
    if (status)
        return status;
    if (at_word(p, "exact"))
        return advance(p);
    return at_word(p, "buckets") ? parse_buckets(p, p->graph->n_symbols - 1) : NGD_OK;
}

/* (param | state | input | host) %NAME : TYPE [= "label"] */
static ngd_status_t parse_input(struct parser *p, ngd_value_class_t cls)
{
    uint32_t line = p->tok.line, value;
    bool labelled = false;
    struct ngd_type type;
    char *name;
    ngd_status_t status = advance(p);

    if (!status && p->tok.kind != TOK_VALUE)
        status = expected(p, "the input's name, %name");
    if (!status)
        status = copy_text(p, p->tok.text, &name);
    if (!status)
        status = advance(p);
    if (!status)
        status = take_punct(p, ':');
    if (!status)
        status = parse_type(p, &type);
    if (!status && at_punct(p, '=')) {
        labelled = true;
        status = advance(p);
        if (!status)
            status = take_string(p, "the label, a string", NGD_GRAPH_MAX_STRING);
    }
    if (status)
        return status;
    status =
        ngd_graph_add_input(p->graph, cls, name, labelled ? ngd_strbuf_str(&p->string) : NULL, &type, &value, p->diag);
    return prefix_line(p, line, status);
}

/* ---- nodes ---- */

struct node_text {
    struct ngd_node_spec spec;
    struct ngd_slice names[NGD_GRAPH_MAX_OPERANDS];
    uint32_t in[NGD_GRAPH_MAX_OPERANDS];
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS];
    bool set[NGD_OP_MAX_ATTRS];
};

/* Where a statement after this node defines the name, or 0: it tells wrong order from a misspelt name. */
static uint32_t find_later_definition(const struct parser *p, struct ngd_slice name)
{
    struct parser ahead = *p;
    int depth = 1; /* of brackets: the name was met among the operands */

    ahead.diag = NULL;
    while (ahead.tok.kind != TOK_END) {
        struct token t = ahead.tok;
        bool same = t.kind == TOK_VALUE && t.text.n == name.n && memcmp(t.text.p, name.p, name.n) == 0;

        if (t.kind == TOK_PUNCT && strchr("([{", t.ch))
            depth++;
        if (t.kind == TOK_PUNCT && strchr(")]}", t.ch))
            depth--;
        if (t.kind == TOK_WORD && slice_is(t.text, "return"))
            break;
        if (advance(&ahead))
            break;
        if (same && depth == 0 && (at_punct(&ahead, ',') || at_punct(&ahead, '=') || at_punct(&ahead, ':')))
            return t.line;
    }
    return 0;
}

static ngd_status_t undefined_value(struct parser *p, const struct node_text *node, const struct token *t)
{
    struct ngd_slice first = node && node->spec.n_names ? node->names[0] : (struct ngd_slice){"", 0};
    uint32_t later;
    int n = t->text.n > MAX_TOKEN_SHOWN ? MAX_TOKEN_SHOWN : (int)t->text.n;

    if (!p->diag)
        return NGD_ERR_GRAPH_UNDEFINED;
    if (node && first.n == t->text.n && memcmp(first.p, t->text.p, first.n) == 0)
        return ngd_diag_set(
            p->diag, NGD_ERR_GRAPH_UNDEFINED,
            "line %u, column %u: %%%.*s is used to compute itself: a graph has no cycle; carry state over replays "
            "in a `state` input",
            t->line, t->column, n, t->text.p);
    later = node ? find_later_definition(p, t->text) : 0;
    if (later)
        return ngd_diag_set(
            p->diag, NGD_ERR_GRAPH_UNDEFINED,
            "line %u, column %u: %%%.*s is used before line %u defines it: a graph is in order of execution and "
            "has no cycle; move the definition up",
            t->line, t->column, n, t->text.p, later);
    return ngd_diag_set(p->diag, NGD_ERR_GRAPH_UNDEFINED, "line %u, column %u: %%%.*s is not defined anywhere above",
                        t->line, t->column, n, t->text.p);
}

/* %name -> value, taking the token. */
static ngd_status_t take_value(struct parser *p, const struct node_text *node, uint32_t *value_p)
{
    struct token t = p->tok;

    if (t.kind != TOK_VALUE)
        return expected(p, "a value, %name");
    *value_p = ngd_graph_find_value(p->graph, t.text);
    if (*value_p == NGD_VALUE_NONE)
        return undefined_value(p, node, &t);
    return advance(p);
}

static ngd_status_t parse_operands(struct parser *p, struct node_text *node)
{
    ngd_status_t status = take_punct(p, '(');

    while (!status && !at_punct(p, ')')) {
        if (node->spec.n_in == NGD_GRAPH_MAX_OPERANDS)
            return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "a node has more than 256 operands");
        if (node->spec.n_in)
            status = take_punct(p, ',');
        if (status)
            return status;
        if (at_word(p, "none")) {
            node->in[node->spec.n_in++] = NGD_VALUE_NONE;
            status = advance(p);
        } else {
            status = take_value(p, node, &node->in[node->spec.n_in++]);
        }
    }
    return status ? status : take_punct(p, ')');
}

static ngd_status_t parse_list(struct parser *p, struct ngd_attr_value *a)
{
    ngd_dim_t list[NGD_GRAPH_MAX_LIST];
    void *copy;
    ngd_status_t status = take_punct(p, '[');

    while (!status && !at_punct(p, ']')) {
        if (a->n == NGD_GRAPH_MAX_LIST)
            return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "a list has more than 256 elements");
        if (a->n)
            status = take_punct(p, ',');
        if (!status)
            status = parse_expr(p, &list[a->n]);
        a->n++;
    }
    if (!status)
        status = take_punct(p, ']');
    if (status)
        return status;
    copy = ngd_arena_alloc(&p->graph->priv->arena, a->n * sizeof(list[0]) + 1);
    if (!copy)
        return fail_at(p, &p->tok, NGD_ERR_NO_MEMORY, "out of host memory");
    if (a->n)
        memcpy(copy, list, a->n * sizeof(list[0]));
    a->list = copy;
    return NGD_OK;
}

static ngd_status_t parse_attr_value(struct parser *p, ngd_attr_type_t type, struct ngd_attr_value *a)
{
    ngd_dtype_t dtype;
    ngd_status_t status;
    char *s;

    switch (type) {
    case NGD_ATTR_INT:
        return parse_expr(p, &a->i);
    case NGD_ATTR_INTS:
        return parse_list(p, a);
    case NGD_ATTR_FLOAT:
        return take_float(p, &a->f);
    case NGD_ATTR_BOOL:
        a->i = at_word(p, "true");
        return a->i || at_word(p, "false") ? advance(p) : expected(p, "true or false");
    case NGD_ATTR_STR:
        status = take_string(p, "a string", NGD_GRAPH_MAX_STRING);
        if (!status)
            status = copy_text(p, (struct ngd_slice){ngd_strbuf_str(&p->string), p->string.len}, &s);
        if (!status)
            a->s = s;
        return status;
    case NGD_ATTR_DTYPE:
        a->i = -1;
        if (at_word(p, "none"))
            return advance(p);
        status = take_dtype(p, &dtype);
        if (!status)
            a->i = dtype;
        return status;
    }
    return NGD_ERR_INTERNAL;
}

static ngd_status_t unknown_attr(struct parser *p, const struct ngd_op *op)
{
    struct ngd_strbuf names;
    int n = p->tok.text.n > MAX_TOKEN_SHOWN ? MAX_TOKEN_SHOWN : (int)p->tok.text.n;
    ngd_status_t status;

    ngd_strbuf_init(&names);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        ngd_strbuf_printf(&names, "%s%s", i ? ", " : "", op->attrs[i].name);
    status = ngd_diag_set(p->diag, NGD_ERR_GRAPH_ATTRIBUTE, "line %u, column %u: %s has no attribute %.*s; it has %s",
                          p->tok.line, p->tok.column, op->name, n, p->tok.text.p,
                          names.len ? ngd_strbuf_str(&names) : "none");
    ngd_strbuf_fini(&names);
    return status;
}

/* A value of the wrong type is an error of the attribute, not of the syntax. */
static ngd_status_t attr_type_error(struct parser *p, const struct ngd_op *op, int i, ngd_status_t status)
{
    if (status != NGD_ERR_GRAPH_PARSE)
        return status;
    ngd_diag_prefix(p->diag, "attribute %s of %s is of type %s: ", op->attrs[i].name, op->name,
                    ngd_attr_type_name(op->attrs[i].type));
    if (p->diag)
        p->diag->status = NGD_ERR_GRAPH_ATTRIBUTE;
    return NGD_ERR_GRAPH_ATTRIBUTE;
}

static ngd_status_t parse_attr(struct parser *p, struct node_text *node)
{
    const struct ngd_op *op = node->spec.op;
    ngd_status_t status;
    int i;

    if (p->tok.kind != TOK_WORD)
        return expected(p, "an attribute, name=value");
    i = ngd_op_attr_index(op, p->tok.text.p, p->tok.text.n);
    if (i < 0)
        return unknown_attr(p, op);
    if (node->set[i])
        return fail_at(p, &p->tok, NGD_ERR_GRAPH_ATTRIBUTE, "the attribute is given twice");
    node->set[i] = true;
    status = advance(p);
    if (!status)
        status = take_punct(p, '=');
    return status ? status : attr_type_error(p, op, i, parse_attr_value(p, op->attrs[i].type, &node->attrs[i]));
}

/* [{name=value, ...}] */
static ngd_status_t parse_attrs(struct parser *p, struct node_text *node)
{
    bool first = true;
    ngd_status_t status;

    if (!at_punct(p, '{'))
        return NGD_OK;
    status = advance(p);
    while (!status && !at_punct(p, '}')) {
        if (!first)
            status = take_punct(p, ',');
        if (!status)
            status = parse_attr(p, node);
        first = false;
    }
    return status ? status : take_punct(p, '}');
}

static bool contains(struct ngd_slice s, const char *part)
{
    return memmem(s.p, s.n, part, strlen(part)) != NULL;
}

static ngd_status_t unknown_op(struct parser *p, struct ngd_slice name)
{
    const char *near;
    int n = name.n > 64 ? 64 : (int)name.n;

    if (contains(name, "_backward"))
        return ngd_diag_set(
            p->diag, NGD_ERR_GRAPH_UNKNOWN_OP,
            "line %u, column %u: %.*s belongs to a backward graph, and only forward graphs are captured: export "
            "the model under torch.no_grad() or torch.inference_mode()",
            p->tok.line, p->tok.column, n, name.p);
    near = ngd_op_suggest(name.p, name.n);
    if (near)
        return ngd_diag_set(p->diag, NGD_ERR_GRAPH_UNKNOWN_OP,
                            "line %u, column %u: there is no operator %.*s; is it %s?", p->tok.line, p->tok.column, n,
                            name.p, near);
    return ngd_diag_set(p->diag, NGD_ERR_GRAPH_UNKNOWN_OP,
                        "line %u, column %u: there is no operator %.*s; docs/operators.md lists those that are known",
                        p->tok.line, p->tok.column, n, name.p);
}

static ngd_status_t take_op(struct parser *p, struct node_text *node)
{
    char name[NGD_GRAPH_MAX_NAME + 1] = "";
    const struct ngd_op *op;

    if (p->tok.kind != TOK_WORD)
        return expected(p, "an operator (aten.mm, ...)");
    op = ngd_op_find(p->tok.text.p, p->tok.text.n);
    if (!op)
        return unknown_op(p, p->tok.text);
    if (op->flags & NGD_OPF_REFUSED) {
        if (node->spec.n_names && node->names[0].n < sizeof(name))
            memcpy(name, node->names[0].p, node->names[0].n);
        return ngd_op_refuse(op, name[0] ? name : NULL, p->tok.line, p->diag);
    }
    node->spec.op = op;
    node->spec.line = p->tok.line;
    return advance(p);
}

static ngd_status_t check_annotation(struct parser *p, const struct token *where, uint32_t value,
                                     const struct ngd_type *given)
{
    const struct ngd_value *v = &p->graph->values[value];
    char tg[NGD_OP_TEXT], ti[NGD_OP_TEXT];

    if (ngd_type_equal(&v->type, given))
        return NGD_OK;
    return ngd_diag_set(
        p->diag, NGD_ERR_GRAPH_TYPE_MISMATCH,
        "line %u, column %u: %%%s is annotated as %s, but %s makes it %s: correct the annotation or leave it out",
        where->line, where->column, v->name, ngd_op_type_text(p->graph, given, tg), p->graph->nodes[v->node].op->name,
        ngd_op_type_text(p->graph, &v->type, ti));
}

/* [: TYPE, TYPE ...], one per result. */
static ngd_status_t parse_annotations(struct parser *p, uint32_t node)
{
    ngd_status_t status = NGD_OK;

    if (!at_punct(p, ':'))
        return NGD_OK;
    for (uint32_t i = 0; i < p->graph->nodes[node].n_out && !status; i++) {
        struct token where;
        struct ngd_type type;

        status = take_punct(p, i ? ',' : ':');
        where = p->tok;
        if (!status)
            status = parse_type(p, &type);
        if (!status)
            status = check_annotation(p, &where, p->graph->nodes[node].out[i], &type);
    }
    if (!status && at_punct(p, ':'))
        status = fail_at(p, &p->tok, NGD_ERR_GRAPH_PARSE, "this operator has no result that could have a type");
    return status;
}

/* [%a, %b =] */
static ngd_status_t parse_results(struct parser *p, struct node_text *node)
{
    ngd_status_t status = NGD_OK;

    if (p->tok.kind != TOK_VALUE)
        return NGD_OK;
    do {
        if (node->spec.n_names == NGD_GRAPH_MAX_OPERANDS)
            return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "a node has more than 256 results");
        if (node->spec.n_names)
            status = advance(p); /* the comma */
        if (!status && p->tok.kind != TOK_VALUE)
            status = expected(p, "a result's name, %name");
        if (status)
            return status;
        node->names[node->spec.n_names++] = p->tok.text;
        status = advance(p);
    } while (!status && at_punct(p, ','));
    return status ? status : take_punct(p, '=');
}

static ngd_status_t parse_node(struct parser *p, struct node_text *node)
{
    uint32_t index;
    ngd_status_t status;

    if (p->graph->n_nodes >= NGD_GRAPH_MAX_NODES)
        return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "the graph has more than 65536 nodes");
    memset(&node->spec, 0, sizeof(node->spec));
    memset(node->attrs, 0, sizeof(node->attrs));
    memset(node->set, 0, sizeof(node->set));
    status = parse_results(p, node);
    if (!status)
        status = take_op(p, node);
    if (!status)
        status = parse_operands(p, node);
    if (!status)
        status = parse_attrs(p, node);
    if (status)
        return status;
    node->spec.in = node->in;
    node->spec.attrs = node->attrs;
    node->spec.set = node->set;
    node->spec.names = node->names;
    node->spec.scope = p->scope;
    status = ngd_graph_append(p->graph, &node->spec, &index, p->diag);
    return status ? status : parse_annotations(p, index);
}

/* ---- the whole ---- */

/* return ["name" =] %value, ... */
static ngd_status_t parse_return(struct parser *p)
{
    ngd_status_t status = advance(p);
    bool more = true;

    while (!status && more) {
        uint32_t value, line = p->tok.line;
        bool named = p->tok.kind == TOK_STRING;

        if (named) {
            status = take_string(p, "the output's name", NGD_GRAPH_MAX_STRING);
            if (!status)
                status = take_punct(p, '=');
        }
        if (!status)
            status = take_value(p, NULL, &value);
        if (status)
            return status;
        status = prefix_line(p, line,
                             ngd_graph_add_output(p->graph, named ? ngd_strbuf_str(&p->string) : NULL, value, p->diag));
        more = at_punct(p, ',');
        if (!status && more)
            status = advance(p);
    }
    if (!status && !at_punct(p, '}'))
        status = expected(p, "'}', as return is the last statement");
    return status;
}

static ngd_status_t parse_statement(struct parser *p, struct node_text *node);

/* "name": the stream of the scope that begins */
static ngd_status_t take_stream(struct parser *p)
{
    uint32_t line = p->tok.line;
    ngd_status_t status = take_string(p, "the stream's name, a string", NGD_GRAPH_MAX_NAME);

    if (status)
        return status;
    return prefix_line(p, line, ngd_graph_add_stream(p->graph, ngd_strbuf_str(&p->string), &p->scope.stream, p->diag));
}

static ngd_status_t take_cores(struct parser *p, const char *what, int64_t lo, uint16_t *n_p)
{
    struct token where = p->tok;
    int64_t n;
    ngd_status_t status = take_int(p, what, &n);

    if (!status && (n < lo || n > NGD_GRAPH_MAX_CORES))
        status = fail_at(p, &where, NGD_ERR_GRAPH_ATTRIBUTE,
                         "limit_core_num takes 1 to 1024 AI cores and 0 to 1024 vector cores (0: the device has none)");
    if (!status)
        *n_p = (uint16_t)n;
    return status;
}

/* ai cores, vector cores */
static ngd_status_t take_limits(struct parser *p)
{
    ngd_status_t status = take_cores(p, "a number of AI cores", 1, &p->scope.aicore);

    if (!status)
        status = take_punct(p, ',');
    return status ? status : take_cores(p, "a number of vector cores", 0, &p->scope.vectorcore);
}

/* (stream "name" | limit_core_num N, N) { statements }; the innermost of each kind holds */
static ngd_status_t parse_scope(struct parser *p, struct node_text *node)
{
    bool stream = at_word(p, "stream");
    struct ngd_node_scope outer = p->scope;
    ngd_status_t status;

    if (p->scope_depth >= NGD_GRAPH_MAX_SCOPES)
        return fail_at(p, &p->tok, NGD_ERR_GRAPH_TOO_LARGE, "scopes are nested too deeply (16 levels at most)");
    p->scope_depth++;
    status = advance(p);
    if (!status)
        status = stream ? take_stream(p) : take_limits(p);
    if (!status)
        status = take_punct(p, '{');
    while (!status && !at_punct(p, '}'))
        status = parse_statement(p, node);
    if (!status)
        status = advance(p);
    p->scope_depth--;
    p->scope = outer;
    return status;
}

static ngd_status_t parse_declaration(struct parser *p, bool *taken_p)
{
    static const ngd_value_class_t classes[] = {NGD_VALUE_PARAM, NGD_VALUE_STATE, NGD_VALUE_INPUT, NGD_VALUE_HOST};
    bool symbol = at_word(p, "sym"), last = at_word(p, "return");
    size_t i = 0;

    while (i < sizeof(classes) / sizeof(classes[0]) && !at_word(p, ngd_value_class_name(classes[i])))
        i++;
    *taken_p = symbol || last || i < sizeof(classes) / sizeof(classes[0]);
    if (*taken_p && p->scope_depth)
        return fail_at(
            p, &p->tok, NGD_ERR_GRAPH_PARSE,
            "declarations and return stand outside of streams and core limits: close the scope with '}' first");
    if (symbol)
        return parse_symbol(p);
    if (last)
        return parse_return(p);
    return *taken_p ? parse_input(p, classes[i]) : NGD_OK;
}

static ngd_status_t parse_statement(struct parser *p, struct node_text *node)
{
    bool taken;
    ngd_status_t status = parse_declaration(p, &taken);

    if (status || taken)
        return status;
    if (at_word(p, "stream") || at_word(p, "limit_core_num"))
        return parse_scope(p, node);
    if (p->tok.kind != TOK_VALUE && p->tok.kind != TOK_WORD)
        return expected(p, "a declaration, a node, return or '}'");
    return parse_node(p, node);
}

static ngd_status_t parse_header(struct parser *p)
{
    int64_t version;
    ngd_status_t status = advance(p);

    if (!status)
        status = take_word(p, "npugraph");
    if (!status && p->tok.kind == TOK_INT && !slice_is(p->tok.text, "1"))
        status = fail_at(p, &p->tok, NGD_ERR_GRAPH_PARSE, "this version of the text form is not known: only 1 is");
    if (!status)
        status = take_int(p, "the version, 1", &version);
    if (!status)
        status = take_word(p, "graph");
    if (!status)
        status = take_string(p, "the graph's name, a string", NGD_GRAPH_MAX_NAME);
    if (!status) {
        status = ngd_graph_create(ngd_strbuf_str(&p->string), &p->graph);
        if (status)
            return fail_at(p, &p->tok, status, ngd_status_text(status));
    }
    return status ? status : take_punct(p, '{');
}

static ngd_status_t parse_graph(struct parser *p)
{
    struct node_text *node = NGD_NEW(struct node_text);
    ngd_status_t status;

    if (!node)
        return ngd_diag_set(p->diag, NGD_ERR_NO_MEMORY, "out of host memory");
    status = parse_header(p);
    while (!status && !at_punct(p, '}'))
        status = parse_statement(p, node);
    if (!status)
        status = advance(p);
    if (!status && p->tok.kind != TOK_END)
        status = expected(p, "nothing behind the graph's '}'");
    ngd_free(node);
    return status;
}

static ngd_status_t parse(const char *text, size_t n, bool rewritten, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    struct parser p = {.text = text, .at = text, .end = text + n, .line_start = text, .line = 1, .diag = diag};
    ngd_status_t status;

    if (n > NGD_GRAPH_MAX_TEXT)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the text has %zu bytes, but at most %u are read", n,
                            NGD_GRAPH_MAX_TEXT);
    ngd_strbuf_init(&p.string);
    status = parse_graph(&p);
    if (!status)
        status = rewritten ? ngd_graph_seal_rewritten(p.graph, diag) : ngd_graph_seal(p.graph, diag);
    ngd_strbuf_fini(&p.string);
    if (status) {
        ngd_graph_unref(p.graph);
        return status;
    }
    *graph_p = p.graph;
    return NGD_OK;
}

ngd_status_t ngd_graph_parse(const char *text, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    return parse(text, n, false, graph_p, diag);
}

ngd_status_t ngd_graph_parse_rewritten(const char *text, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    return parse(text, n, true, graph_p, diag);
}
