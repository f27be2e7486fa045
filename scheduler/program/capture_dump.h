/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_CAPTURE_DUMP_H
#define NGD_SCHEDULER_PROGRAM_CAPTURE_DUMP_H

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
#include "scheduler/program/program.h"

struct ngd_capture_dump {
    struct ngd_program *prog; /* NULL: nothing is dumped */
    const struct ngd_key *key;
    int dir;
    uint32_t n_graphs;
    bool failed;
    ngd_nsec_t begin;
    struct ngd_pass_report report; /* to run the passes with */
};

/* The next capture of this key is dumped, whatever the program's options say; the latest call counts. */
void ngd_capture_dump_ask(struct ngd_program *prog, const struct ngd_key *key, const struct ngd_graph_options *options);

/* True: this capture is dumped. Then end() is owed. */
bool ngd_capture_dump_begin(struct ngd_capture_dump *d, struct ngd_program *prog, const struct ngd_key *key);
void ngd_capture_dump_plan(struct ngd_capture_dump *d, const struct ngd_plan *plan);
void ngd_capture_dump_end(struct ngd_capture_dump *d, ngd_status_t status, const struct ngd_diag *diag);

/* The directories that the options name lie below what is allowed. */
ngd_status_t ngd_dump_check(struct ngd_sched *sched, const struct ngd_graph_options *options, struct ngd_diag *diag);
/* A graph's name as a part of a directory's: letters and digits, others as '_'. */
void ngd_dump_clean(const char *name, char *to, size_t room);

#endif
