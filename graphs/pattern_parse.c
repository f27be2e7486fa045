/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses text into patterns: a recursive-descent parser (docs/patterns.md has the grammar).
 *
 * The text comes from clients. The lexer never reads past its end, every table of a pattern has a fixed size that is
 * checked, and only expressions recurse, to a bounded depth.
 */
#include "base/mem.h"
#include "graphs/pattern_int.h"
#include <string.h>

/* Parses a line with several declarations of one kind, separated by commas. */
static ngd_status_t parse_several(struct ngd_pattern_parser *p, ngd_status_t (*parse)(struct ngd_pattern_parser *p))
{
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (!status)
        status = parse(p);
    while (!status && ngd_pattern_lex_at_punct(&p->lex, ",")) {
        status = ngd_pattern_lex_advance(&p->lex);
        if (!status)
            status = parse(p);
    }
    return status;
}

static ngd_status_t parse_version(struct ngd_pattern_parser *p)
{
    int64_t v = 0;
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (!status)
        status = ngd_pattern_lex_take_int(&p->lex, &v);
    if (!status && (v < 1 || v > UINT32_MAX))
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_OUT_OF_RANGE, "a version is from 1 on");
    p->pattern->version = (uint32_t)v;
    return status;
}

static ngd_status_t parse_doc(struct ngd_pattern_parser *p)
{
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    if (status || p->lex.tok.kind != NGD_PATTERN_TOK_STRING)
        return status ? status : ngd_pattern_lex_expected(&p->lex, "a sentence in quotes");
    p->pattern->doc = ngd_arena_calloc(p->pattern->arena, p->lex.tok.n + 1, 1);
    if (!p->pattern->doc)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_NO_MEMORY, "out of host memory");
    memcpy(p->pattern->doc, p->lex.tok.p, p->lex.tok.n);
    return ngd_pattern_lex_advance(&p->lex);
}

static const char *const phases[] = {[NGD_PATTERN_EARLY] = "early",
                                     [NGD_PATTERN_LATE] = "late",
                                     [NGD_PATTERN_CUSTOM] = "custom",
                                     [NGD_PATTERN_FIRST] = "first"};

const char *ngd_pattern_phase_name(ngd_pattern_phase_t phase)
{
    return phases[phase];
}

static ngd_status_t parse_phase(struct ngd_pattern_parser *p)
{
    ngd_status_t status = ngd_pattern_lex_advance(&p->lex);

    for (size_t i = 0; !status && i < sizeof(phases) / sizeof(phases[0]); i++) {
        if (ngd_pattern_lex_at_word(&p->lex, phases[i])) {
            p->pattern->phase = (ngd_pattern_phase_t)i;
            return ngd_pattern_lex_advance(&p->lex);
        }
    }
    return status ? status : ngd_pattern_lex_expected(&p->lex, "first, early, late or custom");
}

static ngd_status_t parse_pattern_statement(struct ngd_pattern_parser *p)
{
    const uint32_t tensor =
        1u << NGD_VALUE_PARAM | 1u << NGD_VALUE_STATE | 1u << NGD_VALUE_INPUT | 1u << NGD_VALUE_NODE;

    if (ngd_pattern_lex_at_word(&p->lex, "version"))
        return parse_version(p);
    if (ngd_pattern_lex_at_word(&p->lex, "phase"))
        return parse_phase(p);
    if (ngd_pattern_lex_at_word(&p->lex, "doc"))
        return parse_doc(p);
    if (ngd_pattern_lex_at_word(&p->lex, "dim"))
        return parse_several(p, ngd_pattern_parse_dim);
    if (ngd_pattern_lex_at_word(&p->lex, "dtype"))
        return parse_several(p, ngd_pattern_parse_dtype);
    if (ngd_pattern_lex_at_word(&p->lex, "excess_precision"))
        return parse_several(p, ngd_pattern_parse_excess);
    if (ngd_pattern_lex_at_word(&p->lex, "float"))
        return parse_several(p, ngd_pattern_parse_float);
    if (ngd_pattern_lex_at_word(&p->lex, "where"))
        return parse_several(p, ngd_pattern_parse_where);
    if (ngd_pattern_lex_at_word(&p->lex, "source"))
        return ngd_pattern_parse_side(p, &p->pattern->source);
    if (ngd_pattern_lex_at_word(&p->lex, "replacement"))
        return ngd_pattern_parse_side(p, &p->pattern->replacement);
    if ((ngd_pattern_lex_at_word(&p->lex, "input") || ngd_pattern_lex_at_word(&p->lex, "param") ||
         ngd_pattern_lex_at_word(&p->lex, "state") || ngd_pattern_lex_at_word(&p->lex, "host")) &&
        p->pattern->source.n_nodes + p->pattern->replacement.n_nodes > 0)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_PARSE, "inputs are declared before source and replacement");
    if (ngd_pattern_lex_at_word(&p->lex, "input"))
        return ngd_pattern_parse_input(p, tensor);
    if (ngd_pattern_lex_at_word(&p->lex, "param"))
        return ngd_pattern_parse_input(p, 1u << NGD_VALUE_PARAM);
    if (ngd_pattern_lex_at_word(&p->lex, "state"))
        return ngd_pattern_parse_input(p, 1u << NGD_VALUE_STATE);
    if (ngd_pattern_lex_at_word(&p->lex, "host"))
        return ngd_pattern_parse_input(p, 1u << NGD_VALUE_HOST);
    return ngd_pattern_lex_expected(
        &p->lex, "version, phase, doc, dim, dtype, excess_precision, float, input, param, state, host, where, source, "
                 "replacement or '}'");
}

struct holder {
    struct ngd_pattern pattern;
    struct ngd_arena arena;
};

static struct ngd_pattern *pattern_new(void)
{
    struct holder *h = NGD_NEW(struct holder);

    if (!h)
        return NULL;
    ngd_arena_init(&h->arena, 4096);
    h->pattern.arena = &h->arena;
    h->pattern.refs = 1;
    if (ngd_expr_table_create(&h->pattern.exprs) == NGD_OK)
        return &h->pattern;
    ngd_free(h);
    return NULL;
}

struct ngd_pattern *ngd_pattern_ref(struct ngd_pattern *p)
{
    __atomic_fetch_add(&p->refs, 1, __ATOMIC_RELAXED);
    return p;
}

struct ngd_pattern *ngd_pattern_unref(struct ngd_pattern *p)
{
    if (p && __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        ngd_expr_table_destroy(p->exprs);
        ngd_arena_fini(p->arena);
        ngd_free(p);
    }
    return NULL;
}

static ngd_status_t keep_pattern_text(struct ngd_pattern_parser *p, const char *start)
{
    size_t n = (size_t)(p->lex.tok.p - start);

    while (n > 0 &&
           start[n - 1] != '}') /* the text ends at the pattern's brace; the next token belongs to the next pattern */
        n--;
    p->pattern->text = ngd_arena_calloc(p->pattern->arena, n + 1, 1);
    if (!p->pattern->text)
        return ngd_pattern_lex_fail(&p->lex, NGD_ERR_NO_MEMORY, "out of host memory");
    memcpy(p->pattern->text, start, n);
    ngd_digest_of(start, n, &p->pattern->digest);
    return NGD_OK;
}

static ngd_status_t parse_pattern(struct ngd_pattern_parser *p)
{
    const char *start = p->lex.tok.p;
    ngd_status_t status = ngd_pattern_lex_take(&p->lex, "pattern");

    if (!status)
        status = ngd_pattern_lex_take_name(&p->lex, NGD_PATTERN_TOK_STRING, "the pattern's name in quotes",
                                           p->pattern->name);
    for (const char *c = p->pattern->name; !status && *c; c++)
        if (!ngd_pattern_lex_is_name(*c) && *c != '-')
            status = ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_PARSE,
                                          "a pattern's name is made of letters, digits, '_', '-' and '.'");
    p->pattern->version = 1;
    if (!status)
        status = ngd_pattern_lex_take(&p->lex, "{");
    while (!status && !ngd_pattern_lex_at_punct(&p->lex, "}"))
        status = parse_pattern_statement(p);
    if (!status)
        status = ngd_pattern_lex_advance(&p->lex);
    if (!status && (p->pattern->source.n_nodes == 0 || p->pattern->replacement.n_nodes == 0))
        status = ngd_pattern_lex_fail(&p->lex, NGD_ERR_GRAPH_PARSE, "it needs a source and a replacement");
    if (!status)
        status = keep_pattern_text(p, start);
    return status ? status : ngd_pattern_check(p->pattern, p->samples, p->lex.diag);
}

static bool name_taken(struct ngd_pattern *const *patterns, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(patterns[i]->name, name) == 0)
            return true;
    return false;
}

static ngd_status_t parse_patterns(const char *text, size_t n, bool samples, struct ngd_pattern **patterns,
                                   uint32_t max, uint32_t *n_p, struct ngd_diag *diag)
{
    struct ngd_pattern_parser p = {.lex = {.at = text, .end = text + n, .line = 1, .pattern = "", .diag = diag},
                                   .samples = samples};
    ngd_status_t status = NGD_OK;
    uint32_t count = 0;

    ngd_op_table_init();
    if (n > NGD_PATTERN_MAX_TEXT)
        return ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "a text of patterns has at most %u bytes",
                            NGD_PATTERN_MAX_TEXT);
    status = ngd_pattern_lex_advance(&p.lex);
    if (!status && p.lex.tok.kind == NGD_PATTERN_TOK_END)
        status = ngd_pattern_lex_expected(&p.lex, "pattern");
    while (!status && p.lex.tok.kind != NGD_PATTERN_TOK_END) {
        if (count == max) {
            status = ngd_diag_set(diag, NGD_ERR_GRAPH_TOO_LARGE, "the text has more than %u patterns", max);
            break;
        }
        p.pattern = patterns[count] = pattern_new();
        if (!p.pattern) {
            status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory");
            break;
        }
        count++;
        p.lex.pattern = p.pattern->name;
        status = parse_pattern(&p);
        if (!status && name_taken(patterns, count - 1, p.pattern->name))
            status = ngd_pattern_lex_fail(&p.lex, NGD_ERR_GRAPH_REDEFINED, "two patterns of the text have this name");
    }
    if (status) {
        for (uint32_t i = 0; i < count; i++)
            patterns[i] = ngd_pattern_unref(patterns[i]);
        return status;
    }
    *n_p = count;
    return NGD_OK;
}

ngd_status_t ngd_patterns_parse(const char *text, size_t n, struct ngd_pattern **patterns, uint32_t max, uint32_t *n_p,
                                struct ngd_diag *diag)
{
    return parse_patterns(text, n, true, patterns, max, n_p, diag);
}

ngd_status_t ngd_patterns_parse_trusted(const char *text, size_t n, struct ngd_pattern **patterns, uint32_t max,
                                        uint32_t *n_p, struct ngd_diag *diag)
{
    return parse_patterns(text, n, false, patterns, max, n_p, diag);
}
