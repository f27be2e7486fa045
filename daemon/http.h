/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HTTP_H
#define NGD_DAEMON_HTTP_H

/*
 * A small HTTP/1.1 server on the loop, for pages that are made at once: GET and HEAD, one request per connection.
 *
 * Why not evhttp: it bounds neither connections nor the time of a whole request, so a few hundred clients that send a
 * byte now and then would hold the daemon's descriptors for hours.
 * Threads: the loop's. Bounds: NGD_HTTP_CONNECTIONS at a time, and the one that has been open longest makes room for a
 * new one, so that slow clients keep no scraper away; NGD_HTTP_REQUEST bytes of request, bodies are refused;
 * NGD_HTTP_TIME from accept to the end of the answer. What a request must be says http_request.h.
 */
#include "base/clock.h"
#include "base/status.h"
#include "base/strbuf.h"

struct ngd_http;
struct ngd_http_hosts;
struct ngd_reactor;

#define NGD_HTTP_CONNECTIONS 64
#define NGD_HTTP_REQUEST     8192
#define NGD_HTTP_TIME        (10 * NGD_SEC)

/* Makes the page at `path` (no query): its body and type. Returns the HTTP status; 404 when there is none. */
typedef int (*ngd_http_page_fn)(void *ctx, const char *path, struct ngd_strbuf *body, const char **type_p);

/* Takes the listening descriptor, also when it fails; hosts must outlive it. */
ngd_status_t ngd_http_start(struct ngd_reactor *reactor, int fd, ngd_http_page_fn page, void *ctx,
                            const struct ngd_http_hosts *hosts, struct ngd_http **http_p);
void ngd_http_stop(struct ngd_http *http); /* NULL is fine */

#endif
