/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DIAG_DOCTOR_H
#define NGD_SCHEDULER_DIAG_DOCTOR_H

/*
 * What a person asks about a graph: the doctor's isolation ladder, and traces of its executable. Both run on a slot
 * like replays, a step at a time so that others get their turn, on inputs that are given or drawn, and on copies of the
 * states. What runs beside replays is verify.c.
 *
 * Threads: the calls block; not for threads that serve others.
 */
#include "scheduler/program/program.h"

/* What to run with. Lists that are NULL are filled in: symbols, as those that are NGD_SIZE_ANY, with the
 * largest sizes at which the guards hold, inputs with random numbers
 * (integers with 0 and 1, so that they are good indices), host parameters with 1, 2, 3, ...; unbound params and states
 * with random numbers. */
struct ngd_doctor_params {
    struct ngd_program *prog;
    struct ngd_binding *binding; /* NULL: none, all params and states are drawn */
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
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS]; /* that it was run at */
    bool healthy;
    char step[64];     /* the first that differs or fails */
    char node[160];    /* "%y of aten.mul.Tensor", where it is known */
    char verdict[400]; /* a sentence */
};

/*
 * With the passes, options and patterns of the program: those that its client had when it registered the graph.
 *
 * The ladder: validate; eager without passes, which is the reference; eager after each pass that changed something;
 * eager with all passes; replay of a new capture; replay of the executable in the cache, if there is one. It ends with
 * the first step that differs. Not OK only when the ladder itself cannot be begun.
 */
ngd_status_t ngd_doctor_run(const struct ngd_doctor_params *params, struct ngd_doctor_report *report_p,
                            struct ngd_diag *diag);

/* One replay of the executable (captured when there is none) as a Chrome trace: a span for each kernel. */
ngd_status_t ngd_doctor_trace(const struct ngd_doctor_params *params, struct ngd_strbuf *json, struct ngd_diag *diag);

#endif
