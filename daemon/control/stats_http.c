/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stats_http.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/control/stats_pages.h"
#include "daemon/daemon.h"
#include "daemon/gift.h"
#include "daemon/http.h"
#include "daemon/http_request.h"
#include "daemon/reactor.h"
#include "daemon/sockets.h"
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
    struct ngd_stats_pages *pages;
    struct ngd_mutex lock; /* now.address, for other threads */
};

static ngd_status_t open_socket(struct ngd_gift *gift, struct stats_endpoint *e, const char *text,
                                struct ngd_diag *diag)
{
    struct ngd_address address;
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    struct addrinfo *list = NULL;
    ngd_status_t status = ngd_address_parse(text, &address, diag);

    if (status == NGD_OK && address.kind != NGD_ADDRESS_TCP)
        status = ngd_diag_set(diag, NGD_ERR_CONFIG, "%s is not HOST:PORT", text);
    if (status == NGD_OK)
        e->fd = ngd_gift_take(gift, NGD_ITEM(STATS), text);
    if (status == NGD_OK && e->fd < 0)
        status = ngd_address_resolve(&address, &list, diag);
    if (status == NGD_OK && e->fd < 0)
        status = ngd_socket_tcp(list, &e->fd, diag);
    if (status == NGD_OK)
        snprintf(e->host, sizeof(e->host), "%s", address.host);
    if (list)
        freeaddrinfo(list);
    if (status == NGD_OK && getsockname(e->fd, (struct sockaddr *)&sa, &len) == 0)
        ngd_sockaddr_print((struct sockaddr *)&sa, len, e->address);
    return status;
}

/* Listens on stats-listen; off: fd stays -1. */
static ngd_status_t open_endpoint(struct ngd_gift *gift, struct stats_endpoint *e, const struct ngd_options *o,
                                  struct ngd_diag *diag)
{
    const char *text = o->stats_listen;
    ngd_status_t status = NGD_OK;

    *e = (struct stats_endpoint){.fd = -1};
    if (strcmp(text, "off") != 0 && *text != '\0')
        status = open_socket(gift, e, text, diag);
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
    status =
        ngd_http_start(d->reactor, fd, ngd_stats_pages_answer, d->stats_http->pages, &d->stats_http->hosts, &e->http);
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
    s->now.fd = s->next.fd = -1;
    status = ngd_stats_pages_create(d, &s->pages);
    if (status == NGD_OK)
        status = open_endpoint(d->gift, &s->now, &d->options, diag);
    renew_hosts(d);
    return status == NGD_OK && !d->gift ? ngd_stats_http_serve(d, diag) : status;
}

ngd_status_t ngd_stats_http_serve(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = serve_endpoint(d, &d->stats_http->now, diag);

    if (status == NGD_OK)
        announce_endpoint(&d->stats_http->now);
    return status;
}

ngd_status_t ngd_stats_http_give(const struct ngd_daemon *d, struct ngd_gift *gift, struct ngd_diag *diag)
{
    const struct ngd_http *http = d->stats_http->now.http;

    return http ? ngd_gift_add(gift, NGD_ITEM(STATS), ngd_http_fd(http), d->options.stats_listen, diag) : NGD_OK;
}

ngd_status_t ngd_stats_http_pause(struct ngd_daemon *d, bool pause)
{
    struct ngd_http *http = d->stats_http->now.http;

    return http ? ngd_http_pause(http, pause) : NGD_OK;
}

void ngd_stats_http_stop(struct ngd_daemon *d)
{
    if (!d->stats_http)
        return;
    close_endpoint(&d->stats_http->now);
    ngd_stats_pages_destroy(d->stats_http->pages);
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
    status = open_endpoint(NULL, &s->next, fresh, diag);
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
