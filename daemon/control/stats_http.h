/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_HTTP_H
#define NGD_DAEMON_STATS_HTTP_H

/*
 * HTTP for scrapers, probes and people: /metrics, /healthz, /readyz, /stats.json, /. GET and HEAD only, idle
 * connections are closed after a few seconds, requests are small. Threads: the loop.
 */
#include "base/status.h"

struct ngd_daemon;

/* A part of startup.c: starts d->stats_http, or nothing when stats-listen is off. */
ngd_status_t ngd_stats_http_start(struct ngd_daemon *d, struct ngd_diag *diag);
void ngd_stats_http_stop(struct ngd_daemon *d);
/* "127.0.0.1:9400"; "" when off. */
const char *ngd_stats_http_address(const struct ngd_daemon *d);

#endif
