/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HTTP_H
#define NGD_DAEMON_HTTP_H

/*
 * A small HTTP/1.1 server on the loop, for pages that need no waiting: GET and HEAD, one request per connection.
 *
 * Why not evhttp: it bounds neither connections nor the time of a whole request. A few hundred clients that each send a
 * byte now and then would hold the daemon's descriptors for hours.
 *
 * Threads: the loop's. Bounds: NGD_HTTP_CONNECTIONS connections; a new one beyond that closes the oldest, so slow
 * clients do not keep a scraper away. A request has at most NGD_HTTP_REQUEST bytes and no body. NGD_HTTP_TIME is the
 * limit from accept to the end of the answer. http_request.h checks requests.
 */
#include "base/clock.h"
#include "base/status.h"
#include "base/strbuf.h"

struct ngd_http;
struct ngd_http_hosts;
struct ngd_http_request;
struct ngd_reactor;

#define NGD_HTTP_CONNECTIONS 64
#define NGD_HTTP_REQUEST     8192
#define NGD_HTTP_TIME        (10 * NGD_SEC)

struct ngd_http_answer {
    struct ngd_strbuf body;
    const char *type;    /* a literal */
    const char *headers; /* more lines, each with CRLF, which outlive the server; "": none */
    const void *fixed;   /* n_fixed bytes that outlive the server, sent in the place of body; NULL: body is sent */
    size_t n_fixed;
};

/* Makes the page that a request names. Returns the HTTP status; 404 if there is no such page. */
typedef int (*ngd_http_page_fn)(void *ctx, const struct ngd_http_request *request, struct ngd_http_answer *answer);

/* Takes the listening descriptor, also if it fails. hosts must outlive the server. */
ngd_status_t ngd_http_start(struct ngd_reactor *reactor, int fd, ngd_http_page_fn page, void *ctx,
                            const struct ngd_http_hosts *hosts, struct ngd_http **http_p);
int ngd_http_fd(const struct ngd_http *http); /* the listening descriptor, borrowed */
/* Stops accepting connections, or begins again; NO_MEMORY: it does not. Those that are open are served. */
ngd_status_t ngd_http_pause(struct ngd_http *http, bool pause);
void ngd_http_stop(struct ngd_http *http); /* NULL is fine */

#endif
