/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses text into a graph: a recursive-descent parser over the builder (docs/graph-text.md has the grammar).
 *
 * The text comes from clients: it may be huge, binary, or malicious. The lexer treats it as bytes and never
 * reads past its end. Only expressions recurse, and their depth is bounded. The builder's limits hold during
 * parsing, so a text is refused before it takes much more memory than its own size. There is one token of
 * lookahead. An error is set once, where it is found, and all functions return at once.
 */
#include "graphs/graph_parse_int.h"
#include <string.h>

/* ---- declarations ---- */

static ngd_status_t prefix_line(struct ngd_graph_parser *p, uint32_t line, ngd_status_t status)
{
    if (status)
        ngd_diag_prefix(p->lex.diag, "line %u: ", line);
    return status;
}

static ngd_status_t parse_symbol_buckets(struct ngd_graph_parser *p, uint32_t symbol)
{
    int64_t buckets[NGD_MAX_BUCKETS];
    uint32_t n = 0, line = p->lex.tok.line;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    do {
        if (n == NGD_MAX_BUCKETS)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_SYMBOL, "a symbol has at most 64 buckets");
        if (!status && n && ngd_graph_lex_at_punct(&p->lex, ','))
            status = ngd_graph_lex_advance(&p->lex);
        if (!status)
            status = ngd_graph_lex_take_int(&p->lex, "a bucket, a number", &buckets[n++]);
    } while (!status && (p->lex.tok.kind == NGD_GRAPH_TOK_INT || ngd_graph_lex_at_punct(&p->lex, ',')));
    return status ? status : prefix_line(p, line, ngd_graph_set_buckets(p->graph, symbol, buckets, n, p->lex.diag));
}

/* Parses: batch buckets b, b, ... */
static ngd_status_t parse_batch(struct ngd_graph_parser *p, uint32_t symbol)
{
    uint32_t line = p->lex.tok.line;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status && !ngd_graph_lex_at_word(&p->lex, "buckets"))
        status = ngd_graph_lex_expected(&p->lex, "'buckets': a batch symbol has some");
    if (!status)
        status = parse_symbol_buckets(p, symbol);
    return status ? status : prefix_line(p, line, ngd_graph_set_batch(p->graph, symbol, p->lex.diag));
}

/* Parses: sym NAME min..max [exact | [batch] buckets b, b, ...] */
static ngd_status_t parse_symbol(struct ngd_graph_parser *p)
{
    uint32_t line = p->lex.tok.line;
    char *name;
    int64_t min, max;
    ngd_dim_t dim;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_WORD)
        status = ngd_graph_lex_expected(&p->lex, "the symbol's name");
    if (!status && p->lex.tok.text.n > NGD_GRAPH_MAX_NAME)
        status = ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE, "a name is too long");
    if (!status)
        status = ngd_graph_parse_copy(p, p->lex.tok.text, &name);
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = ngd_graph_lex_take_int(&p->lex, "the symbol's range, min..max", &min);
    if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_DOTDOT)
        status = ngd_graph_lex_expected(&p->lex, "'..'");
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = ngd_graph_lex_take_int(&p->lex, "the symbol's maximum", &max);
    if (!status)
        status = prefix_line(p, line, ngd_graph_add_symbol(p->graph, name, min, max, &dim, p->lex.diag));
    if (status)
        return status;
    if (ngd_graph_lex_at_word(&p->lex, "exact"))
        return ngd_graph_lex_advance(&p->lex);
    if (ngd_graph_lex_at_word(&p->lex, "batch"))
        return parse_batch(p, p->graph->n_symbols - 1);
    return ngd_graph_lex_at_word(&p->lex, "buckets") ? parse_symbol_buckets(p, p->graph->n_symbols - 1) : NGD_OK;
}

/* Parses: guard EXPR RELATION EXPR */
static ngd_status_t parse_guard(struct ngd_graph_parser *p)
{
    uint32_t line = p->lex.tok.line;
    ngd_relation_op_t op = NGD_RELATION_EQ;
    ngd_dim_t left, right;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status)
        status = ngd_graph_parse_expr(p, &left);
    if (!status &&
        (p->lex.tok.kind != NGD_GRAPH_TOK_RELATION || !ngd_relation_parse(p->lex.tok.text.p, p->lex.tok.text.n, &op)))
        status = ngd_graph_lex_expected(&p->lex, "a relation (== != < <= > >=)");
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = ngd_graph_parse_expr(p, &right);
    if (!status && p->lex.tok.kind == NGD_GRAPH_TOK_RELATION)
        status = ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_PARSE,
                                       "a guard compares two expressions: write a second guard for the third one");
    return status ? status : prefix_line(p, line, ngd_graph_add_relation(p->graph, left, op, right, p->lex.diag));
}

/* Parses: (param | state | input | host) %NAME : TYPE [= "label"] */
static ngd_status_t parse_input(struct ngd_graph_parser *p, ngd_value_class_t cls)
{
    uint32_t line = p->lex.tok.line, value;
    bool labelled = false;
    struct ngd_type type;
    char *name;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_VALUE)
        status = ngd_graph_lex_expected(&p->lex, "the input's name, %name");
    if (!status)
        status = ngd_graph_parse_copy(p, p->lex.tok.text, &name);
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ':');
    if (!status)
        status = ngd_graph_parse_type(p, &type);
    if (!status && ngd_graph_lex_at_punct(&p->lex, '=')) {
        labelled = true;
        status = ngd_graph_lex_advance(&p->lex);
        if (!status)
            status = ngd_graph_lex_take_string(&p->lex, "the label, a string", NGD_GRAPH_MAX_STRING);
    }
    if (status)
        return status;
    status = ngd_graph_add_input(p->graph, cls, name, labelled ? ngd_strbuf_str(&p->lex.string) : NULL, &type, &value,
                                 p->lex.diag);
    return prefix_line(p, line, status);
}

/* ---- the graph ---- */

/* Parses: return ["name" =] %value, ... */
static ngd_status_t parse_graph_return(struct ngd_graph_parser *p)
{
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);
    bool more = true;

    while (!status && more) {
        uint32_t value, line = p->lex.tok.line;
        bool named = p->lex.tok.kind == NGD_GRAPH_TOK_STRING;

        if (named) {
            status = ngd_graph_lex_take_string(&p->lex, "the output's name", NGD_GRAPH_MAX_STRING);
            if (!status)
                status = ngd_graph_lex_take_punct(&p->lex, '=');
        }
        if (!status)
            status = ngd_graph_parse_value(p, NULL, &value);
        if (status)
            return status;
        status = prefix_line(
            p, line, ngd_graph_add_output(p->graph, named ? ngd_strbuf_str(&p->lex.string) : NULL, value, p->lex.diag));
        more = ngd_graph_lex_at_punct(&p->lex, ',');
        if (!status && more)
            status = ngd_graph_lex_advance(&p->lex);
    }
    if (!status && !ngd_graph_lex_at_punct(&p->lex, '}'))
        status = ngd_graph_lex_expected(&p->lex, "'}', as return is the last statement");
    return status;
}

static ngd_status_t parse_graph_statement(struct ngd_graph_parser *p, struct ngd_graph_node_text *node);

/* Parses the name of a stream scope's stream. */
static ngd_status_t parse_stream(struct ngd_graph_parser *p)
{
    uint32_t line = p->lex.tok.line;
    ngd_status_t status = ngd_graph_lex_take_string(&p->lex, "the stream's name, a string", NGD_GRAPH_MAX_NAME);

    if (status)
        return status;
    return prefix_line(p, line,
                       ngd_graph_add_stream(p->graph, ngd_strbuf_str(&p->lex.string), &p->scope.stream, p->lex.diag));
}

static ngd_status_t take_cores(struct ngd_graph_parser *p, const char *what, int64_t lo, uint16_t *n_p)
{
    struct ngd_graph_token where = p->lex.tok;
    int64_t n;
    ngd_status_t status = ngd_graph_lex_take_int(&p->lex, what, &n);

    if (!status && (n < lo || n > NGD_GRAPH_MAX_CORES))
        status = ngd_graph_lex_fail_at(
            &p->lex, &where, NGD_ERR_GRAPH_ATTRIBUTE,
            "limit_core_num takes 1 to 1024 AI cores and 0 to 1024 vector cores (0: the device has none)");
    if (!status)
        *n_p = (uint16_t)n;
    return status;
}

/* Parses: AI cores, vector cores. */
static ngd_status_t take_limits(struct ngd_graph_parser *p)
{
    ngd_status_t status = take_cores(p, "a number of AI cores", 1, &p->scope.aicore);

    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, ',');
    return status ? status : take_cores(p, "a number of vector cores", 0, &p->scope.vectorcore);
}

/* Parses: (stream "name" | limit_core_num N, N) { statements }. The innermost scope of each kind holds. */
static ngd_status_t parse_scope(struct ngd_graph_parser *p, struct ngd_graph_node_text *node)
{
    bool stream = ngd_graph_lex_at_word(&p->lex, "stream");
    struct ngd_node_scope outer = p->scope;
    ngd_status_t status;

    if (p->scope_depth >= NGD_GRAPH_MAX_SCOPES)
        return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_TOO_LARGE,
                                     "scopes are nested too deeply (16 levels at most)");
    p->scope_depth++;
    status = ngd_graph_lex_advance(&p->lex);
    if (!status)
        status = stream ? parse_stream(p) : take_limits(p);
    if (!status)
        status = ngd_graph_lex_take_punct(&p->lex, '{');
    while (!status && !ngd_graph_lex_at_punct(&p->lex, '}'))
        status = parse_graph_statement(p, node);
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    p->scope_depth--;
    p->scope = outer;
    return status;
}

static ngd_status_t parse_declaration(struct ngd_graph_parser *p, bool *taken_p)
{
    static const ngd_value_class_t classes[] = {NGD_VALUE_PARAM, NGD_VALUE_STATE, NGD_VALUE_INPUT, NGD_VALUE_HOST};
    bool symbol = ngd_graph_lex_at_word(&p->lex, "sym"), guard = ngd_graph_lex_at_word(&p->lex, "guard"),
         last = ngd_graph_lex_at_word(&p->lex, "return");
    size_t i = 0;

    while (i < sizeof(classes) / sizeof(classes[0]) &&
           !ngd_graph_lex_at_word(&p->lex, ngd_value_class_name(classes[i])))
        i++;
    *taken_p = symbol || guard || last || i < sizeof(classes) / sizeof(classes[0]);
    if (*taken_p && p->scope_depth)
        return ngd_graph_lex_fail_at(
            &p->lex, &p->lex.tok, NGD_ERR_GRAPH_PARSE,
            "declarations and return stand outside of streams and core limits: close the scope with '}' first");
    if (symbol)
        return parse_symbol(p);
    if (guard)
        return parse_guard(p);
    if (last)
        return parse_graph_return(p);
    return *taken_p ? parse_input(p, classes[i]) : NGD_OK;
}

static ngd_status_t parse_graph_statement(struct ngd_graph_parser *p, struct ngd_graph_node_text *node)
{
    bool taken;
    ngd_status_t status = parse_declaration(p, &taken);

    if (status || taken)
        return status;
    if (ngd_graph_lex_at_word(&p->lex, "stream") || ngd_graph_lex_at_word(&p->lex, "limit_core_num"))
        return parse_scope(p, node);
    if (p->lex.tok.kind != NGD_GRAPH_TOK_VALUE && p->lex.tok.kind != NGD_GRAPH_TOK_WORD)
        return ngd_graph_lex_expected(&p->lex, "a declaration, a node, return or '}'");
    return ngd_graph_parse_node(p, node);
}

static ngd_status_t parse_header(struct ngd_graph_parser *p)
{
    int64_t version;
    ngd_status_t status = ngd_graph_lex_advance(&p->lex);

    if (!status)
        status = ngd_graph_lex_take_word(&p->lex, "npugraph");
    if (!status && p->lex.tok.kind == NGD_GRAPH_TOK_INT && !ngd_graph_lex_is(p->lex.tok.text, "1"))
        status = ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, NGD_ERR_GRAPH_PARSE,
                                       "this version of the text form is not known: it must be 1");
    if (!status)
        status = ngd_graph_lex_take_int(&p->lex, "the version, 1", &version);
    if (!status)
        status = ngd_graph_lex_take_word(&p->lex, "graph");
    if (!status)
        status = ngd_graph_lex_take_string(&p->lex, "the graph's name, a string", NGD_GRAPH_MAX_NAME);
    if (!status) {
        status = ngd_graph_create(ngd_strbuf_str(&p->lex.string), &p->graph);
        if (status)
            return ngd_graph_lex_fail_at(&p->lex, &p->lex.tok, status, ngd_status_text(status));
        p->graph->priv->rewritten = p->rewritten;
    }
    return status ? status : ngd_graph_lex_take_punct(&p->lex, '{');
}

static ngd_status_t parse_graph(struct ngd_graph_parser *p)
{
    struct ngd_graph_node_text *node = NGD_NEW(struct ngd_graph_node_text);
    ngd_status_t status;

    if (!node)
        return ngd_diag_set(p->lex.diag, NGD_ERR_NO_MEMORY, "out of host memory");
    status = parse_header(p);
    while (!status && !ngd_graph_lex_at_punct(&p->lex, '}'))
        status = parse_graph_statement(p, node);
    if (!status)
        status = ngd_graph_lex_advance(&p->lex);
    if (!status && p->lex.tok.kind != NGD_GRAPH_TOK_END)
        status = ngd_graph_lex_expected(&p->lex, "nothing behind the graph's '}'");
    ngd_free(node);
    return status;
}

static ngd_status_t parse_graph_text(const char *text, size_t n, bool rewritten, struct ngd_graph **graph_p,
                                     struct ngd_diag *diag)
{
    struct ngd_graph_parser p = {.rewritten = rewritten};
    ngd_status_t status;

    if (n > NGD_GRAPH_MAX_TEXT)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the text has %zu bytes, but at most %u are read", n,
                            NGD_GRAPH_MAX_TEXT);
    ngd_graph_lex_init(&p.lex, text, n, diag);
    status = parse_graph(&p);
    if (!status)
        status = rewritten ? ngd_graph_seal_rewritten(p.graph, diag) : ngd_graph_seal(p.graph, diag);
    ngd_graph_lex_fini(&p.lex);
    if (status) {
        ngd_graph_unref(p.graph);
        return status;
    }
    *graph_p = p.graph;
    return NGD_OK;
}

ngd_status_t ngd_graph_parse(const char *text, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    return parse_graph_text(text, n, false, graph_p, diag);
}

ngd_status_t ngd_graph_parse_rewritten(const char *text, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    return parse_graph_text(text, n, true, graph_p, diag);
}
