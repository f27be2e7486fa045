/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stats_http.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/control/stats.h"
#include "daemon/control/stats_telemetry.h"
#include "daemon/control/watchdog.h"
#include "daemon/daemon.h"
#include "daemon/http.h"
#include "daemon/http_request.h"
#include "daemon/models.h"
#include "daemon/reactor.h"
#include "daemon/session.h"
#include "daemon/sockets.h"
#include "scheduler/run/sched.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct ngd_stats_http {
    struct ngd_daemon *daemon;
    struct ngd_http *http;
    struct ngd_http_hosts hosts;
    char host[NGD_ADDRESS_MAX]; /* the host of stats-listen */
    char address[NGD_ADDRESS_MAX];
};

/* Returns the view of a client without an identity: the endpoint has no authentication. */
static struct ngd_stats_view anonymous_view(const struct ngd_daemon *d)
{
    return (struct ngd_stats_view){.all = d->options.stats_names};
}

static int on_metrics(struct ngd_daemon *d, struct ngd_strbuf *sb)
{
    const struct ngd_stats_view view = anonymous_view(d);

    ngd_stats_prometheus(d, &view, sb);
    return 200;
}

static int on_json(struct ngd_daemon *d, struct ngd_strbuf *sb)
{
    const struct ngd_stats_view view = anonymous_view(d);

    ngd_stats_json(d, &view, sb);
    return 200;
}

/* Always succeeds: the loop answers, so the process lives. */
static int on_healthz(struct ngd_daemon *d, struct ngd_strbuf *sb)
{
    (void)d;
    ngd_strbuf_append(sb, "ok\n");
    return 200;
}

static int on_readyz(struct ngd_daemon *d, struct ngd_strbuf *sb)
{
    const char *why = ngd_watchdog_why(d);

    ngd_strbuf_printf(sb, "%s%s%s\n", ngd_state_name(d), why ? "; " : "", why ? why : "");
    return ngd_daemon_state(d) == NGD_DAEMON_SERVING && !why ? 200 : 503;
}

/* ---- the page for people -------------------------------------------------------------------------------- */

static void html(struct ngd_strbuf *sb, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            ngd_strbuf_append(sb, "&lt;");
        else if (*text == '&')
            ngd_strbuf_append(sb, "&amp;");
        else
            ngd_strbuf_putc(sb, *text);
    }
}

static void row(struct ngd_strbuf *sb, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void row(struct ngd_strbuf *sb, const char *name, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ngd_strbuf_append(sb, "<tr><th>");
    html(sb, name);
    ngd_strbuf_append(sb, "</th><td>");
    html(sb, text);
    ngd_strbuf_append(sb, "</td></tr>\n");
}

static void put_page_model(void *ctx, const struct ngd_model_listed *listed)
{
    struct ngd_model_stats stats;

    ngd_model_stats(listed->model, &stats);
    row(ctx, stats.name, "%s; %" PRIu64 " MiB weights; KV blocks %u of %u; %u sequences; %" PRIu64 " tokens written",
        stats.description, stats.weight_bytes >> 20, stats.blocks_used, stats.num_blocks, stats.sequences,
        stats.tokens_decode);
}

static void latency_row(struct ngd_strbuf *sb, const char *name, ngd_metric_t m)
{
    row(sb, name, "%.1f / %.1f / %.1f µs (%" PRIu64 ")", ngd_metric_quantile(m, 0.5) * 1e6,
        ngd_metric_quantile(m, 0.9) * 1e6, ngd_metric_quantile(m, 0.99) * 1e6, ngd_metric_get(m));
}

static int on_page(struct ngd_daemon *d, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(
        sb, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>npugraphd</title>"
            "<meta http-equiv=\"refresh\" content=\"5\">"
            "<style>body{font:15px sans-serif;margin:2em;max-width:60em}th{text-align:left;padding:.2em 1.5em .2em 0;"
            "font-weight:normal;color:#555}td{font-variant-numeric:tabular-nums}</style>"
            "<h1>npugraphd</h1>\n<table>\n");
    row(sb, "state", "%s, for %lld s", ngd_state_name(d), (long long)((ngd_now() - d->started) / NGD_SEC));
    row(sb, "sessions", "%u", ngd_sessions_count(d->sessions));
    row(sb, "replays", "%" PRIu64 " (captures %" PRIu64 ")", ngd_metric_get(NGD_M_REPLAYS),
        ngd_metric_get(NGD_M_CAPTURES));
    row(sb, "sequences", "%" PRIu64 " open", ngd_metric_get(NGD_M_SEQUENCES));
    row(sb, "failed requests", "%" PRIu64, ngd_metric_get(NGD_M_RPC_ERRORS));
    ngd_strbuf_append(sb, "</table><h2>Latency: median / 90 % / 99 % (count)</h2><table>\n");
    latency_row(sb, "replay, on the device", NGD_M_REPLAY_SECONDS);
    latency_row(sb, "replay, waiting", NGD_M_QUEUE_SECONDS);
    latency_row(sb, "decode step", NGD_M_STEP_SECONDS);
    latency_row(sb, "first token", NGD_M_TTFT_SECONDS);
    ngd_strbuf_append(sb, "</table><h2>Devices</h2><table>\n");
    for (uint32_t i = 0; i < d->n_devices; i++) {
        const struct ngd_device_info *info = ngd_device_info(d->devices[i]);
        struct ngd_strbuf readings;

        ngd_strbuf_init(&readings);
        ngd_stats_telemetry_text(d->devices[i], &readings);
        row(sb, info->name, "%s; %" PRIu64 " of %" PRIu64 " MiB used%s", info->description,
            ngd_device_used_bytes(d->devices[i]) >> 20, info->memory_bytes >> 20, ngd_strbuf_str(&readings));
        ngd_strbuf_fini(&readings);
    }
    if (d->options.stats_names) {
        ngd_strbuf_append(sb, "</table><h2>Models</h2><table>\n");
        ngd_models_for_each(d->models, NULL, put_page_model, sb);
    }
    ngd_strbuf_append(
        sb, "</table>\n<p><a href=\"/stats.json\">stats.json</a> &middot; <a href=\"/metrics\">metrics</a> &middot; "
            "<a href=\"/healthz\">healthz</a> &middot; <a href=\"/readyz\">readyz</a></p></html>\n");
    return 200;
}

/* ---- dispatch ------------------------------------------------------------------------------------------- */

#define TYPE_TEXT "text/plain; charset=utf-8"

static const struct {
    const char *path, *type;
    int (*fn)(struct ngd_daemon *d, struct ngd_strbuf *sb);
} pages[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", on_metrics},
    {"/healthz", TYPE_TEXT, on_healthz},
    {"/readyz", TYPE_TEXT, on_readyz},
    {"/stats.json", "application/json", on_json},
    {"/", "text/html; charset=utf-8", on_page},
};

static int on_request(void *ctx, const char *path, struct ngd_strbuf *body, const char **type_p)
{
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (strcmp(path, pages[i].path) == 0) {
            *type_p = pages[i].type;
            return pages[i].fn(ctx, body);
        }
    }
    ngd_strbuf_append(body, "no such page; there are / /metrics /healthz /readyz /stats.json\n");
    return 404;
}

static ngd_status_t open_socket(struct ngd_stats_http *http, const char *text, int *fd_p, struct ngd_diag *diag)
{
    struct ngd_address address;
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    struct addrinfo *list = NULL;
    ngd_status_t status = ngd_address_parse(text, &address, diag);

    if (status == NGD_OK && address.kind != NGD_ADDRESS_TCP)
        status = ngd_diag_set(diag, NGD_ERR_CONFIG, "%s is not HOST:PORT", text);
    if (status == NGD_OK)
        status = ngd_address_resolve(&address, &list, diag);
    if (status == NGD_OK)
        status = ngd_socket_tcp(list, fd_p, diag);
    if (status == NGD_OK)
        snprintf(http->host, sizeof(http->host), "%s", address.host);
    if (list)
        freeaddrinfo(list);
    if (status == NGD_OK && getsockname(*fd_p, (struct sockaddr *)&sa, &len) == 0)
        ngd_sockaddr_print((struct sockaddr *)&sa, len, true, http->address);
    return status;
}

ngd_status_t ngd_stats_http_start(struct ngd_daemon *d, struct ngd_diag *diag)
{
    const char *text = d->options.stats_listen;
    ngd_status_t status;
    int fd;

    if (strcmp(text, "off") == 0 || *text == '\0')
        return NGD_OK;
    d->stats_http = NGD_NEW(struct ngd_stats_http);
    if (!d->stats_http)
        return NGD_ERR_NO_MEMORY;
    d->stats_http->daemon = d;
    status = open_socket(d->stats_http, text, &fd, diag);
    if (status != NGD_OK) {
        ngd_diag_prefix(diag, "stats-listen: ");
        return status;
    }
    d->stats_http->hosts =
        (struct ngd_http_hosts){d->stats_http->host, d->options.stats_hosts.items, d->options.stats_hosts.n};
    status = ngd_http_start(d->reactor, fd, on_request, d, &d->stats_http->hosts, &d->stats_http->http);
    if (status != NGD_OK)
        return ngd_diag_set(diag, status, "stats-listen: the endpoint cannot be created");
    ngd_notice("daemon", "statistics on http://%s/", d->stats_http->address);
    return NGD_OK;
}

void ngd_stats_http_stop(struct ngd_daemon *d)
{
    if (!d->stats_http)
        return;
    ngd_http_stop(d->stats_http->http); /* closes the socket */
    ngd_free(d->stats_http);
    d->stats_http = NULL;
}

const char *ngd_stats_http_address(const struct ngd_daemon *d)
{
    return d->stats_http ? d->stats_http->address : "";
}
