/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_HTTP_H
#define NGD_DAEMON_STATS_HTTP_H

/* The statistics endpoint: listens on stats-listen for HTTP. stats_pages.h has the pages, http.h the bounds. Threads:
 * the loop, unless said otherwise. */
#include "daemon/sockets.h"
#include <stdbool.h>

struct ngd_daemon;
struct ngd_gift;
struct ngd_options;

/* Starts d->stats_http; without a socket if stats-listen is off. A part of startup.c. */
ngd_status_t ngd_stats_http_start(struct ngd_daemon *d, struct ngd_diag *diag);
/* Begins to serve a socket of the daemon that was replaced, once this one serves. */
ngd_status_t ngd_stats_http_serve(struct ngd_daemon *d, struct ngd_diag *diag);
/* Adds the socket to a gift for the next daemon; it stays ours. pause: stops accepting, or begins again. */
ngd_status_t ngd_stats_http_give(const struct ngd_daemon *d, struct ngd_gift *gift, struct ngd_diag *diag);
ngd_status_t ngd_stats_http_pause(struct ngd_daemon *d, bool pause);
void ngd_stats_http_stop(struct ngd_daemon *d);
/* The halves of a reload, as in listener.h. commit: true takes what was prepared, false drops it. */
ngd_status_t ngd_stats_http_prepare(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag);
void ngd_stats_http_commit(struct ngd_daemon *d, bool take);
/* Prints "127.0.0.1:17947"; "" if it is off. Any thread. */
void ngd_stats_http_address(const struct ngd_daemon *d, char address[NGD_ADDRESS_MAX]);

#endif
