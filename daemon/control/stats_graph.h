/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_STATS_GRAPH_H
#define NGD_DAEMON_STATS_GRAPH_H

/*
 * What a graph consists of, and what the flight recorder knows, as JSON for the page. Threads: any.
 *
 * Bounds: at most NGD_STATS_CALLS calls, blocks and inputs of a plan, NGD_STATS_KEYS keys and NGD_STATS_EVENTS events
 * are printed. Each list ends when all have NGD_STATS_BYTES: clients choose how long their names are.
 */
#include "base/strbuf.h"
#include <stdbool.h>
#include <stdint.h>

struct ngd_daemon;

#define NGD_STATS_CALLS  4096
#define NGD_STATS_KEYS   256
#define NGD_STATS_EVENTS 1000
#define NGD_STATS_BYTES  (4u << 20)

/*
 * Prints the graph of that number (ngd_program_number), its keys, and the plan of the key with that hash; 0: of the key
 * that was used most. Without a plan, it prints the graph's own nodes. False: there is no such graph.
 */
bool ngd_stats_graph_json(struct ngd_daemon *d, uint64_t number, uint64_t key, struct ngd_strbuf *sb);
/* Prints the newest `limit` events of the flight recorder. */
void ngd_stats_events_json(struct ngd_daemon *d, uint32_t limit, struct ngd_strbuf *sb);

#endif
