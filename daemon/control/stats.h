/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_H
#define NGD_DAEMON_STATS_H

/*
 * The daemon's statistics: JSON for programs and people, Prometheus text for a scraper. Counters are kept where things
 * happen (base/metrics.h). Gauges that are cheaper to read than to count are filled in here, for each reading.
 * Threads: any.
 */
#include "base/status.h"
#include "base/strbuf.h"
#include <stdbool.h>

struct ngd_daemon;
struct ngd_identity;

/* Selects the named entries (identities, models, graphs) that a reader may see. What a view leaves out is only in the
 * sums. */
struct ngd_stats_view {
    bool all;                       /* entries of all identities */
    bool graphs;                    /* with all: also what graphs consist of, and the flight recorder's events */
    const struct ngd_identity *who; /* entries of this identity, and models that it may use; NULL: none */
};

void ngd_stats_started(struct ngd_daemon *d);
/* Updates the gauges. */
void ngd_stats_gauges(struct ngd_daemon *d);
void ngd_stats_json(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb);
/* In the older text form. */
void ngd_stats_prometheus(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb);
/* In the form of OpenMetrics, whose histograms have exemplars: traces of observations. */
void ngd_stats_open_metrics(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb);
const char *ngd_state_name(const struct ngd_daemon *d); /* "serving" */

#endif
