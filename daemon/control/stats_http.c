/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stats_http.h"
#include "base/lock.h"
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
#include <unistd.h>

/* A listening endpoint. */
struct stats_endpoint {
    int fd; /* -1: none, or http has it */
    struct ngd_http *http;
    char host[NGD_ADDRESS_MAX]; /* the host of stats-listen */
    char address[NGD_ADDRESS_MAX];
};

struct ngd_stats_http {
    struct stats_endpoint now, next; /* next: between prepare and commit, if stats-listen changes */
    bool changes;
    struct ngd_http_hosts hosts;
    struct ngd_mutex lock; /* now.address, for other threads */
};

/* Returns the view of a client without an identity: the endpoint has no authentication. */
static struct ngd_stats_view anonymous_view(const struct ngd_daemon *d)
{
    return (struct ngd_stats_view){.all = ngd_config_get(d->options.stats_names)};
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

static ngd_status_t open_socket(struct stats_endpoint *e, const char *text, struct ngd_diag *diag)
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
        status = ngd_socket_tcp(list, &e->fd, diag);
    if (status == NGD_OK)
        snprintf(e->host, sizeof(e->host), "%s", address.host);
    if (list)
        freeaddrinfo(list);
    if (status == NGD_OK && getsockname(e->fd, (struct sockaddr *)&sa, &len) == 0)
        ngd_sockaddr_print((struct sockaddr *)&sa, len, true, e->address);
    return status;
}

/* Listens on stats-listen; off: fd stays -1. */
static ngd_status_t open_endpoint(struct stats_endpoint *e, const struct ngd_options *o, struct ngd_diag *diag)
{
    const char *text = o->stats_listen;
    ngd_status_t status = NGD_OK;

    *e = (struct stats_endpoint){.fd = -1};
    if (strcmp(text, "off") != 0 && *text != '\0')
        status = open_socket(e, text, diag);
    if (status != NGD_OK)
        ngd_diag_prefix(diag, "stats-listen: ");
    return status;
}

static void close_endpoint(struct stats_endpoint *e)
{
    ngd_http_stop(e->http); /* closes the socket */
    if (e->fd >= 0)
        close(e->fd);
    *e = (struct stats_endpoint){.fd = -1};
}

/* Begins to serve an open endpoint. It checks hosts by `hosts` of d->stats_http, which renew_hosts fills. */
static ngd_status_t serve_endpoint(struct ngd_daemon *d, struct stats_endpoint *e, struct ngd_diag *diag)
{
    ngd_status_t status;
    int fd = e->fd;

    if (fd < 0)
        return NGD_OK;
    e->fd = -1;
    status = ngd_http_start(d->reactor, fd, on_request, d, &d->stats_http->hosts, &e->http);
    return status == NGD_OK ? NGD_OK : ngd_diag_set(diag, status, "stats-listen: the endpoint cannot be created");
}

static void renew_hosts(struct ngd_daemon *d)
{
    struct ngd_stats_http *s = d->stats_http;

    s->hosts = (struct ngd_http_hosts){s->now.host, d->options.stats_hosts.items, d->options.stats_hosts.n};
}

static void announce_endpoint(const struct stats_endpoint *e)
{
    if (e->http)
        ngd_notice("daemon", "statistics on http://%s/", e->address);
}

ngd_status_t ngd_stats_http_start(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_stats_http *s = d->stats_http = NGD_NEW(struct ngd_stats_http);
    ngd_status_t status;

    if (!s)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&s->lock, NGD_RANK_LISTENERS);
    s->next.fd = -1;
    status = open_endpoint(&s->now, &d->options, diag);
    if (status == NGD_OK)
        status = serve_endpoint(d, &s->now, diag);
    if (status == NGD_OK)
        announce_endpoint(&s->now);
    renew_hosts(d);
    return status;
}

void ngd_stats_http_stop(struct ngd_daemon *d)
{
    if (!d->stats_http)
        return;
    close_endpoint(&d->stats_http->now);
    ngd_mutex_fini(&d->stats_http->lock);
    ngd_free(d->stats_http);
    d->stats_http = NULL;
}

ngd_status_t ngd_stats_http_prepare(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag)
{
    struct ngd_stats_http *s = d->stats_http;
    ngd_status_t status;

    s->changes = strcmp(fresh->stats_listen, d->options.stats_listen) != 0;
    if (!s->changes)
        return NGD_OK;
    status = open_endpoint(&s->next, fresh, diag);
    if (status == NGD_OK)
        status = serve_endpoint(d, &s->next, diag); /* it accepts nothing before commit: the loop is here */
    if (status != NGD_OK)
        ngd_stats_http_commit(d, false);
    return status;
}

void ngd_stats_http_commit(struct ngd_daemon *d, bool take)
{
    struct ngd_stats_http *s = d->stats_http;
    struct stats_endpoint old = s->now;

    if (!take || !s->changes) {
        close_endpoint(&s->next);
    } else {
        ngd_mutex_lock(&s->lock);
        s->now = s->next;
        ngd_mutex_unlock(&s->lock);
        s->next = (struct stats_endpoint){.fd = -1};
        close_endpoint(&old);
        announce_endpoint(&s->now);
    }
    s->changes = false;
    renew_hosts(d);
}

void ngd_stats_http_address(const struct ngd_daemon *d, char address[NGD_ADDRESS_MAX])
{
    struct ngd_stats_http *s = d->stats_http;

    address[0] = '\0';
    if (!s)
        return;
    ngd_mutex_lock(&s->lock);
    snprintf(address, NGD_ADDRESS_MAX, "%s", s->now.address);
    ngd_mutex_unlock(&s->lock);
}
