/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_H
#define NGD_DAEMON_STATS_H

/*
 * What the daemon says about itself: JSON for programs and people, Prometheus text for a scraper. Counters are kept
 * where things happen (base/metrics.h); gauges that are cheaper to read than to count are filled in here, at each look.
 * Threads: any.
 */
#include "base/status.h"
#include "base/strbuf.h"
#include <stdbool.h>

struct ngd_daemon;
struct ngd_identity;

/*
 * What names somebody or something of somebody: identities, models, graphs. What a view leaves out is in the sums only.
 */
struct ngd_stats_view {
    bool all;                       /* of everybody */
    const struct ngd_identity *who; /* its own, and models that it may use; NULL: nobody's */
};

void ngd_stats_started(struct ngd_daemon *d);
/* Brings the gauges up to date. */
void ngd_stats_gauges(struct ngd_daemon *d);
void ngd_stats_json(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb);
void ngd_stats_prometheus(struct ngd_daemon *d, const struct ngd_stats_view *view, struct ngd_strbuf *sb);
const char *ngd_state_name(const struct ngd_daemon *d); /* "serving" */

#endif
