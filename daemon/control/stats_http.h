/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_HTTP_H
#define NGD_DAEMON_STATS_HTTP_H

/* HTTP for scrapers, probes and people: /metrics, /healthz, /readyz, /stats.json, /. http.h has the bounds. Threads:
 * the loop. */
#include "base/status.h"

struct ngd_daemon;

/* Starts d->stats_http, or nothing if stats-listen is off. A part of startup.c. */
ngd_status_t ngd_stats_http_start(struct ngd_daemon *d, struct ngd_diag *diag);
void ngd_stats_http_stop(struct ngd_daemon *d);
/* Returns "127.0.0.1:9400"; "" if it is off. */
const char *ngd_stats_http_address(const struct ngd_daemon *d);

#endif
