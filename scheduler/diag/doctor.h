/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DIAG_DOCTOR_H
#define NGD_SCHEDULER_DIAG_DOCTOR_H

/*
 * Diagnosis of a graph for a person: the doctor's isolation ladder, and traces of the graph's executable. Both run on a
 * slot like replays, one step at a time so that others get their turn. They use given or random inputs, and copies of
 * the states. What runs beside replays is verify.c.
 *
 * Threads: the calls block, so threads that serve clients must not make them.
 */
#include "scheduler/program/program.h"

/*
 * What to run with. What is missing is chosen:
 *   - symbols that are NULL or NGD_SIZE_ANY: the largest sizes at which the guards hold;
 *   - inputs that are NULL, unbound params and unbound states: random numbers, integers 0 and 1 so that they are valid
 *     indices;
 *   - host parameters that are NULL: 1, 2, 3, ...
 */
struct ngd_doctor_params {
    struct ngd_program *prog;
    struct ngd_binding *binding; /* NULL: none; all params and states are random */
    const int64_t *symbols;
    uint32_t n_symbols;
    const struct ngd_span *inputs;
    uint32_t n_inputs;
    const struct ngd_host_value *hosts;
    uint32_t n_hosts;
    uint64_t seed;
};

#define NGD_DOCTOR_STEPS 40

struct ngd_doctor_step {
    char name[64];
    const char *verdict; /* "passed", "reference", "same", "differs", "failed" */
    char text[320];
    ngd_nsec_t duration;
};

struct ngd_doctor_report {
    uint32_t n_steps;
    struct ngd_doctor_step steps[NGD_DOCTOR_STEPS];
    uint32_t n_symbols;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS]; /* sizes that it ran with */
    bool healthy;
    char step[64];     /* the first step that differs or fails */
    char node[160];    /* "%y of aten.mul.Tensor"; "" if unknown */
    char verdict[480]; /* a sentence */
};

/*
 * Runs the ladder with the program's own passes, options and patterns: those that its client had when it registered the
 * graph.
 *
 * The steps: validate; eager without passes, which is the reference; eager after each pass that changed something;
 * eager with all passes; replay of a new capture; replay of the executable in the cache, if there is one. The ladder
 * ends with the first step that differs. An error is returned only if the ladder cannot begin.
 */
ngd_status_t ngd_doctor_run(const struct ngd_doctor_params *params, struct ngd_doctor_report *report_p,
                            struct ngd_diag *diag);

/* Replays the executable, captured if there is none, and prints a Chrome trace with a span for each kernel. */
ngd_status_t ngd_doctor_trace(const struct ngd_doctor_params *params, struct ngd_strbuf *json, struct ngd_diag *diag);

#endif
