/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_GRAPH_UTIL_H
#define NGD_TESTS_GRAPH_UTIL_H

/* Helpers for tests of graphs: they parse bodies, print, and check tables of refusals. */
#include "base/mem.h"
#include "graphs/graph.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the text of a graph with that body; the caller frees it. */
static inline char *graph_text(const char *body)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb, "npugraph 1\ngraph \"t\" {\n%s\n}\n", body);
    return ngd_strbuf_steal(&sb);
}

static inline struct ngd_graph *parse_text(const char *text)
{
    struct ngd_graph *g = NULL;
    struct ngd_diag diag = {0};

    if (ngd_graph_parse(text, strlen(text), &g, &diag))
        ck_abort_msg("%s\n%.2000s", diag.text, text);
    return g;
}

static inline struct ngd_graph *parse_body(const char *body)
{
    char *text = graph_text(body);
    struct ngd_graph *g = parse_text(text);

    ngd_free(text);
    return g;
}

static inline char *print_graph(const struct ngd_graph *g)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_graph_print(g, &sb);
    return ngd_strbuf_steal(&sb);
}

/* Returns the digest of a body in hex. The storage is static, for four results, so that a call can compare two. */
static inline const char *digest_of(const char *body)
{
    static char hex[4][NGD_DIGEST_HEX];
    static unsigned next;
    struct ngd_graph *g = parse_body(body);

    next = (next + 1) % 4;
    ngd_digest_hex(&g->digest, hex[next]);
    ngd_graph_unref(g);
    return hex[next];
}

/* Returns the text of the type of the value with that name, in static storage. */
static inline const char *type_of(const struct ngd_graph *g, const char *name)
{
    static char text[256];
    struct ngd_strbuf sb;

    for (uint32_t i = 0; i < g->n_values; i++) {
        if (strcmp(g->values[i].name, name) != 0)
            continue;
        ngd_strbuf_init(&sb);
        ngd_type_print(g, &g->values[i].type, &sb);
        snprintf(text, sizeof(text), "%s", ngd_strbuf_str(&sb));
        ngd_strbuf_fini(&sb);
        return text;
    }
    return "no such value";
}

/* A body that is refused with a status and a diagnosis that contains each of the words ('|' between them). */
struct refusal {
    const char *body;
    ngd_status_t status;
    const char *says;
};

static inline void check_says(const char *text, const char *says, const char *diagnosis)
{
    char word[128];

    while (*says) {
        size_t n = strcspn(says, "|");

        ck_assert(n < sizeof(word));
        memcpy(word, says, n);
        word[n] = '\0';
        ck_assert_msg(strstr(diagnosis, word) != NULL, "no \"%s\" in \"%s\"\n%.600s", word, diagnosis, text);
        says += n + (says[n] == '|');
    }
}

static inline void check_text_refused(const char *text, size_t n, ngd_status_t status, const char *says)
{
    struct ngd_graph *g = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t got = ngd_graph_parse(text, n, &g, &diag);

    ck_assert_msg(got == status, "%s, not %s: %s\n%.600s", ngd_status_name(got), ngd_status_name(status), diag.text,
                  text);
    ck_assert_ptr_null(g);
    ck_assert_int_eq(diag.status, status);
    check_says(text, says, diag.text);
    ck_assert_int_eq(ngd_graph_parse(text, n, &g, NULL), status); /* a diagnosis is never required */
}

static inline void check_refusals(const struct refusal *refusals, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *text = graph_text(refusals[i].body);

        check_text_refused(text, strlen(text), refusals[i].status, refusals[i].says);
        ngd_free(text);
    }
}
#define CHECK_REFUSALS(table) check_refusals(table, sizeof(table) / sizeof((table)[0]))

/* Reads a file of the source tree; the caller frees it. */
static inline char *read_source_file(const char *path)
{
    const char *top = getenv("top_srcdir");
    struct ngd_strbuf sb;
    char name[512], buf[4096];
    FILE *f;
    size_t n;

    snprintf(name, sizeof(name), "%s/%s", top ? top : ".", path);
    f = fopen(name, "rb");
    ck_assert_msg(f != NULL, "cannot open %s", name);
    ngd_strbuf_init(&sb);
    while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
        ngd_strbuf_append_n(&sb, buf, n);
    fclose(f);
    return ngd_strbuf_steal(&sb);
}

#endif
