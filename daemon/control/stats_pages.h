/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_PAGES_H
#define NGD_DAEMON_STATS_PAGES_H

/*
 * The pages of the statistics endpoint: for scrapers, probes, programs, and the page for people, one HTML file that the
 * daemon carries (daemon/page/index.html) and that reads the others.
 *
 * The endpoint does not know its readers, so what they see is the same for all: sums; with stats-names also the entries
 * by name; with stats-graphs as well what graphs consist of. Nothing of prompts, tokens or tensors' contents is in any
 * page. Threads: the loop.
 */
#include "daemon/http.h"

struct ngd_daemon;
struct ngd_stats_pages;

ngd_status_t ngd_stats_pages_create(struct ngd_daemon *d, struct ngd_stats_pages **pages_p);
void ngd_stats_pages_destroy(struct ngd_stats_pages *pages); /* NULL is fine */
/* Answers a request; an ngd_http_page_fn of ctx = pages. */
int ngd_stats_pages_answer(void *ctx, const struct ngd_http_request *request, struct ngd_http_answer *answer);

#endif
