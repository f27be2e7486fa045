/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_CAPTURE_DUMP_H
#define NGD_SCHEDULER_PROGRAM_CAPTURE_DUMP_H

/*
 * Debug dumps (debug_dump): what a capture makes on its way, in a new directory below debug_dump_dir.
 *
 *     <graph>-<digest>-<key>-<time>/
 *         capture.txt                the key, the options, the device, and how the capture ended
 *         000.registered.txt         the graph as it was registered
 *         001.after_<pass>.txt ...   the graph after each pass that changed something
 *         passes.txt                 every pass: whether it ran, changes, nodes, time
 *         plan.txt, pool.svg         the plan, and the map of its pool over time
 *         executable.json            the kernels in order as a Chrome trace, 1 us each, since nothing has run yet
 *
 * A file that cannot be written (full disk, dump-limit, a link in the way) is lost. That is noted in the flight
 * recorder, counted, and logged once for a capture. The capture goes on.
 *
 * Threads: the one that captures. Does I/O.
 */
#include "graphs/pass.h"
#include "scheduler/program/program.h"

struct ngd_capture_dump {
    struct ngd_program *prog; /* NULL: nothing is dumped */
    const struct ngd_key *key;
    int dir;
    uint32_t n_graphs;
    bool failed;
    ngd_nsec_t begin;
    struct ngd_pass_report report; /* pass it to the passes */
};

/* Dumps the next capture of this key, whatever the program's options say. The latest call counts. */
void ngd_capture_dump_ask(struct ngd_program *prog, const struct ngd_key *key, const struct ngd_graph_options *options);

/* Returns true if this capture is dumped. The caller must then call ngd_capture_dump_end. */
bool ngd_capture_dump_begin(struct ngd_capture_dump *d, struct ngd_program *prog, const struct ngd_key *key);
void ngd_capture_dump_plan(struct ngd_capture_dump *d, const struct ngd_plan *plan);
void ngd_capture_dump_end(struct ngd_capture_dump *d, ngd_status_t status, const struct ngd_diag *diag);

/* Checks that the options' directories are below allowed ones. */
ngd_status_t ngd_dump_check(struct ngd_sched *sched, const struct ngd_graph_options *options, struct ngd_diag *diag);
/* Makes a graph's name fit for a directory's name: letters and digits stay, others become '_'. */
void ngd_dump_clean(const char *name, char *to, size_t room);

#endif
