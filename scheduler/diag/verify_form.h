/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DIAG_VERIFY_FORM_H
#define NGD_SCHEDULER_DIAG_VERIFY_FORM_H

/*
 * A form of a graph, such as the graph without passes, is planned, captured and run once, outside the cache and in a
 * pool of its own, so that its results can be examined. Verified replays, data dumps and the doctor consist of such
 * runs.
 *
 * Threads: the caller owns the slot during the run. Memory: nothing of the run stays but what it returns.
 */
#include "scheduler/program/program.h"

struct ngd_slot;

/* A graph's results: names, types and data, in the order of its outputs. */
struct ngd_verify_results {
    uint32_t n;
    struct ngd_verify_result {
        char *name;
        ngd_dtype_t dtype;
        uint8_t rank;
        int64_t dims[NGD_MAX_RANK]; /* at the actual symbols */
        void *data;
        uint64_t bytes;
    } * list;
};
void ngd_verify_results_fini(struct ngd_verify_results *results);
uint64_t ngd_verify_result_elements(const struct ngd_verify_result *r);

struct ngd_verify_form {
    struct ngd_slot *slot;
    struct ngd_graph *graph;
    const struct ngd_key *key;               /* sizes to plan for; may be a key of any graph with the same symbols */
    const struct ngd_graph_options *options; /* of the program */
    bool passes;                             /* run those of the options */
    struct ngd_pattern_set *patterns;        /* for the passes; NULL = the built-in ones */
    bool eager;
    struct ngd_buffer *const *buffers; /* params, then states */
    const struct ngd_launch *launch;   /* symbols, inputs and hosts are taken from it */
    ngd_nsec_t *times;                 /* as ngd_launch.times; NULL = none */
};
/* Plans, captures and runs the form. *time_p: device time of the run; time_p may be NULL. */
ngd_status_t ngd_verify_form_run(const struct ngd_verify_form *form, struct ngd_verify_results *results_p,
                                 ngd_nsec_t *time_p, struct ngd_diag *diag);

/* Runs an existing executable instead of the form's graph. */
ngd_status_t ngd_verify_form_run_exec(const struct ngd_verify_form *form, struct ngd_exec *exec,
                                      struct ngd_verify_results *results_p, ngd_nsec_t *time_p, struct ngd_diag *diag);

/* Creates a buffer with the bytes of another one, for a run that must not change it. */
ngd_status_t ngd_buffer_duplicate(struct ngd_buffer *from, struct ngd_buffer **to_p, struct ngd_diag *diag);
/* Copies all bytes. Both buffers have the same size. */
ngd_status_t ngd_buffer_copy_all(struct ngd_buffer *to, struct ngd_buffer *from, struct ngd_diag *diag);

/*
 * Makes a list of these buffers with the states (from n_params on) duplicated. Params are referenced. Free it with
 * ngd_buffers_free, which accepts NULL entries.
 */
ngd_status_t ngd_buffers_with_own_states(const struct ngd_graph *graph, struct ngd_buffer *const *buffers,
                                         struct ngd_buffer ***list_p, struct ngd_diag *diag);
void ngd_buffers_free(struct ngd_buffer **list, uint32_t n);

/* Makes a copy of the graph that also outputs every node's result, as "tap:<value>", behind its own outputs. */
ngd_status_t ngd_graph_tap(const struct ngd_graph *graph, struct ngd_graph **tapped_p, struct ngd_diag *diag);

#endif
