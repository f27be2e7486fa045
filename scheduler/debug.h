/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DEBUG_H
#define NGD_SCHEDULER_DEBUG_H

/*
 * Debug dumps (debug_dump): what a capture made on its way, in a directory of its own below debug_dump_dir.
 *
 *     <graph>-<digest>-<key>-<time>/
 *         capture.txt                the key, the options, the device, and how it ended
 *         000.registered.txt         the graph as it was registered
 *         001.after_<pass>.txt ...   the graph after each pass that changed something
 *         passes.txt                 every pass: whether it ran, changes, nodes, time
 *         plan.txt, pool.svg         the plan, and the map of its pool over time
 *         executable.json            the kernels in their order as a Chrome trace, a microsecond each: nothing has run
 * yet
 *
 * What cannot be written (a full disk, dump-limit, a link in the way) is lost, noted in the flight recorder, counted
 * and logged once for a capture; the capture goes on. Threads: the one that captures. Does I/O.
 */
#include "graphs/pass.h"
#include "scheduler/program.h"

struct ngd_debug {
    struct ngd_program *prog; /* NULL: nothing is dumped */
    const struct ngd_key *key;
    int dir;
    uint32_t n_graphs;
    bool failed;
    ngd_nsec_t begin;
    struct ngd_pass_report report; /* to run the passes with */
};

/* The next capture of this key is dumped, whatever the program's options say; the latest call counts. */
void ngd_debug_ask(struct ngd_program *prog, const struct ngd_key *key, const struct ngd_graph_options *options);

/* True: this capture is dumped. Then end() is owed. */
bool ngd_debug_begin(struct ngd_debug *d, struct ngd_program *prog, const struct ngd_key *key);
void ngd_debug_plan(struct ngd_debug *d, const struct ngd_plan *plan);
void ngd_debug_end(struct ngd_debug *d, ngd_status_t status, const struct ngd_diag *diag);

/* A Chrome trace of the plan's calls; times: begin and end of each, NULL: a microsecond each. */
void ngd_trace_print(const struct ngd_plan *plan, const char *device, const ngd_nsec_t *times, struct ngd_strbuf *sb);

#endif
