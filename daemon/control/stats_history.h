/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_HISTORY_H
#define NGD_DAEMON_STATS_HISTORY_H

/* Samples the daemon once a second for its history (daemon/history.h). Threads: the loop. */
#include "base/status.h"
#include "base/strbuf.h"
#include <stdint.h>

struct ngd_daemon;

/* A part of startup.c. */
ngd_status_t ngd_stats_history_start(struct ngd_daemon *d, struct ngd_diag *diag);
void ngd_stats_history_stop(struct ngd_daemon *d);
/* Prints samples of `step` seconds with numbers above `since`. False: there are no samples of such a step. */
bool ngd_stats_history_json(struct ngd_daemon *d, uint64_t step, uint64_t since, struct ngd_strbuf *sb);

#endif
