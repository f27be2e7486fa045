/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stats_pages.h"
#include "base/digest.h"
#include "base/mem.h"
#include "daemon/control/stats.h"
#include "daemon/control/stats_graph.h"
#include "daemon/control/stats_history.h"
#include "daemon/control/watchdog.h"
#include "daemon/daemon.h"
#include "daemon/http_request.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_AGE_LIMIT  60 /* seconds that a client of /stats.json may accept */
#define EVENTS_DEFAULT 200
#define OPEN_METRICS   "application/openmetrics-text"

static const char page_html[] =
#include "daemon/page/index_text.inc"
    ;

struct ngd_stats_pages {
    struct ngd_daemon *daemon;
    char page_headers[512];
    struct ngd_strbuf stats; /* the last /stats.json that was asked for with max_age */
    ngd_nsec_t stats_at;
    const char *accept; /* of the request that is being answered */
    struct ngd_stats_view stats_view;
};

/* ---- the page for people -------------------------------------------------------------------------------- */

/* Prints a hash as a Content-Security-Policy has it. */
static void print_source_hash(const char *text, size_t n, struct ngd_strbuf *sb)
{
    struct ngd_digest digest;
    char base64[NGD_DIGEST_BASE64];

    ngd_digest_of(text, n, &digest);
    ngd_digest_base64(&digest, base64);
    ngd_strbuf_printf(sb, "'sha256-%s'", base64);
}

/* Prints the hash of what is between two tags of the page. */
static void print_element_hash(const char *begin, const char *end, struct ngd_strbuf *sb)
{
    const char *from = strstr(page_html, begin) + strlen(begin);

    print_source_hash(from, (size_t)(strstr(from, end) - from), sb);
}

/* The page runs its own script, uses its own style and reads this server. A name that became markup could do nothing:
 * no other script runs, and the page makes no markup of text (trusted types). */
static ngd_status_t make_page_headers(struct ngd_stats_pages *pages)
{
    struct ngd_strbuf sb;
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb,
                      "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; script-src ");
    print_element_hash("<script>", "</script>", &sb);
    ngd_strbuf_append(&sb, "; style-src ");
    print_element_hash("<style>", "</style>", &sb);
    ngd_strbuf_append(&sb, "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                           "require-trusted-types-for 'script'; trusted-types 'none'\r\n"
                           "Referrer-Policy: no-referrer\r\n");
    if (!sb.failed && sb.len < sizeof(pages->page_headers)) {
        memcpy(pages->page_headers, sb.data, sb.len + 1);
        status = NGD_OK;
    }
    ngd_strbuf_fini(&sb);
    return status;
}

ngd_status_t ngd_stats_pages_create(struct ngd_daemon *d, struct ngd_stats_pages **pages_p)
{
    struct ngd_stats_pages *pages = NGD_NEW(struct ngd_stats_pages);
    ngd_status_t status = pages ? make_page_headers(pages) : NGD_ERR_NO_MEMORY;

    if (status != NGD_OK) {
        ngd_free(pages);
        return status;
    }
    pages->daemon = d;
    ngd_strbuf_init(&pages->stats);
    *pages_p = pages;
    return NGD_OK;
}

void ngd_stats_pages_destroy(struct ngd_stats_pages *pages)
{
    if (!pages)
        return;
    ngd_strbuf_fini(&pages->stats);
    ngd_free(pages);
}

/* ---- pages ---------------------------------------------------------------------------------------------- */

/* Returns the view of a client without an identity: the endpoint has no authentication. */
static struct ngd_stats_view anonymous_view(const struct ngd_daemon *d)
{
    const bool names = ngd_config_get(d->options.stats_names);

    return (struct ngd_stats_view){.all = names, .graphs = names && ngd_config_get(d->options.stats_graphs)};
}

static int fail_page(struct ngd_http_answer *answer, int code, const char *text)
{
    answer->type = "text/plain; charset=utf-8";
    ngd_strbuf_printf(&answer->body, "%s\n", text);
    return code;
}

static int on_metrics(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer)
{
    const struct ngd_stats_view view = anonymous_view(pages->daemon);

    (void)query;
    if (strcasestr(pages->accept, OPEN_METRICS)) {
        answer->type = OPEN_METRICS "; version=1.0.0; charset=utf-8";
        ngd_stats_open_metrics(pages->daemon, &view, &answer->body);
    } else {
        ngd_stats_prometheus(pages->daemon, &view, &answer->body);
    }
    return 200;
}

/* Makes the statistics anew unless those that there are fit: made within max_age seconds, for the same view. */
static const struct ngd_strbuf *recent_stats(struct ngd_stats_pages *pages, uint64_t max_age)
{
    const struct ngd_stats_view view = anonymous_view(pages->daemon);
    const ngd_nsec_t now = ngd_now();

    if (pages->stats.len > 0 && !pages->stats.failed && now - pages->stats_at <= (ngd_nsec_t)max_age * NGD_SEC &&
        view.all == pages->stats_view.all && view.graphs == pages->stats_view.graphs)
        return &pages->stats;
    ngd_strbuf_fini(&pages->stats);
    ngd_strbuf_init(&pages->stats);
    ngd_stats_json(pages->daemon, &view, &pages->stats);
    pages->stats_at = now;
    pages->stats_view = view;
    return &pages->stats;
}

static int on_json(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer)
{
    const struct ngd_stats_view view = anonymous_view(pages->daemon);
    uint64_t max_age = 0;

    if (!ngd_http_query_number(query, "max_age", MAX_AGE_LIMIT, &max_age))
        return fail_page(answer, 400, "max_age is the age that is accepted, 0 to 60 seconds");
    if (max_age == 0) {
        ngd_stats_json(pages->daemon, &view, &answer->body);
    } else {
        const struct ngd_strbuf *stats = recent_stats(pages, max_age);

        ngd_strbuf_append_n(&answer->body, ngd_strbuf_str(stats), stats->len);
        answer->body.failed |= stats->failed;
    }
    return 200;
}

static int on_history(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer)
{
    uint64_t step = 1, since = 0;

    if (!ngd_http_query_number(query, "since", UINT64_MAX / 2, &since))
        return fail_page(answer, 400, "since is the number of a sample: \"end\" of an earlier answer");
    if (!ngd_http_query_number(query, "step", UINT32_MAX, &step) ||
        !ngd_stats_history_json(pages->daemon, step, since, &answer->body))
        return fail_page(answer, 400, "step is the length of the samples: 1, 10 or 60 seconds");
    return 200;
}

static const char no_graphs[] = "what graphs consist of, and events of graphs, are shown if the daemon's options "
                                "stats-names and stats-graphs are yes";

static int on_graph(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer)
{
    uint64_t number = 0, key = 0;

    if (!anonymous_view(pages->daemon).graphs)
        return fail_page(answer, 403, no_graphs);
    if (!ngd_http_query_number(query, "number", UINT64_MAX / 2, &number) || number == 0)
        return fail_page(answer, 400, "number is that of a graph in /stats.json");
    if (!ngd_http_query_hash(query, "key", &key))
        return fail_page(answer, 400, "key is the hash of one of the graph's keys: 16 hexadecimal digits");
    if (!ngd_stats_graph_json(pages->daemon, number, key, &answer->body))
        return fail_page(answer, 404, "there is no graph of that number any more");
    return 200;
}

static int on_events(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer)
{
    uint64_t limit = EVENTS_DEFAULT;

    if (!anonymous_view(pages->daemon).graphs)
        return fail_page(answer, 403, no_graphs);
    if (!ngd_http_query_number(query, "limit", NGD_STATS_EVENTS, &limit) || limit == 0)
        return fail_page(answer, 400, "limit is the number of events, 1 to 1000");
    ngd_stats_events_json(pages->daemon, (uint32_t)limit, &answer->body);
    return 200;
}

/* Always succeeds: the loop answers, so the process lives. */
static int on_healthz(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer)
{
    (void)pages;
    (void)query;
    ngd_strbuf_append(&answer->body, "ok\n");
    return 200;
}

static int on_readyz(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer)
{
    const struct ngd_daemon *d = pages->daemon;
    const char *why = ngd_watchdog_why(d);
    const unsigned missing = atomic_load(&d->missing_models);

    (void)query;
    ngd_strbuf_printf(&answer->body, "%s%s%s", ngd_state_name(d), why ? "; " : "", why ? why : "");
    if (missing)
        ngd_strbuf_printf(&answer->body, "; %u of the models of the option load %s missing (npugraphctl status)",
                          missing, missing == 1 ? "is" : "are");
    ngd_strbuf_append(&answer->body, "\n");
    return ngd_daemon_ready(d) && !why ? 200 : 503;
}

static int on_page(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer)
{
    (void)query;
    answer->headers = pages->page_headers;
    answer->fixed = page_html;
    answer->n_fixed = sizeof(page_html) - 1;
    return 200;
}

#define TYPE_TEXT "text/plain; charset=utf-8"
#define TYPE_JSON "application/json"

/* parameters: those that the query may have, NULL behind the last one. Pages that take none ignore the query, as they
 * did before any page took some. */
static const struct {
    const char *path, *type;
    int (*fn)(struct ngd_stats_pages *pages, const char *query, struct ngd_http_answer *answer);
    const char *parameters[3];
} pages_table[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", on_metrics, {NULL}},
    {"/healthz", TYPE_TEXT, on_healthz, {NULL}},
    {"/readyz", TYPE_TEXT, on_readyz, {NULL}},
    {"/stats.json", TYPE_JSON, on_json, {"max_age", NULL}},
    {"/history.json", TYPE_JSON, on_history, {"step", "since", NULL}},
    {"/graph.json", TYPE_JSON, on_graph, {"number", "key", NULL}},
    {"/events.json", TYPE_JSON, on_events, {"limit", NULL}},
    {"/", "text/html; charset=utf-8", on_page, {NULL}},
};

int ngd_stats_pages_answer(void *ctx, const struct ngd_http_request *request, struct ngd_http_answer *answer)
{
    struct ngd_stats_pages *pages = ctx;

    pages->accept = request->accept;
    for (size_t i = 0; i < sizeof(pages_table) / sizeof(pages_table[0]); i++) {
        if (strcmp(request->path, pages_table[i].path) != 0)
            continue;
        if (pages_table[i].parameters[0] && ngd_http_query_unknown(request->query, pages_table[i].parameters))
            return fail_page(answer, 400, "the query has a parameter that this page does not take");
        answer->type = pages_table[i].type;
        return pages_table[i].fn(pages, request->query, answer);
    }
    return fail_page(answer, 404,
                     "no such page; there are / /metrics /healthz /readyz /stats.json /history.json /graph.json "
                     "/events.json");
}
