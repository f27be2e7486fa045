/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DIAG_VERIFY_FORM_H
#define NGD_SCHEDULER_DIAG_VERIFY_FORM_H

/*
 * A form of a graph, such as one without passes, is planned, captured and run once, beside the cache and in a pool of
 * its own, so that its results can be looked at. Verified replays, data dumps and the doctor are made of such runs.
 *
 * Threads: the caller owns the slot while it runs. Nothing of it is left but what it returns.
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
    const struct ngd_key *key; /* whose pinned values are planned for; of any graph with the same symbols */
    const struct ngd_graph_options *options; /* NULL = no passes */
    struct ngd_pattern_set *patterns;        /* for the passes; NULL = those that are built in */
    bool eager;
    struct ngd_buffer *const *buffers; /* params, then states */
    const struct ngd_launch *launch;   /* symbols, inputs and hosts are taken from it */
    ngd_nsec_t *times;                 /* as ngd_launch.times; NULL = none */
};
/* The diagnosis and the time on the device are the run's. */
ngd_status_t ngd_verify_form_run(const struct ngd_verify_form *form, struct ngd_verify_results *results_p,
                                 ngd_nsec_t *time_p, struct ngd_diag *diag);

/* Results of an executable that exists, instead of a graph's. */
ngd_status_t ngd_verify_form_run_exec(const struct ngd_verify_form *form, struct ngd_exec *exec,
                                      struct ngd_verify_results *results_p, ngd_nsec_t *time_p, struct ngd_diag *diag);

/* A buffer with the bytes of another one, for a run that must not touch it. */
ngd_status_t ngd_buffer_duplicate(struct ngd_buffer *from, struct ngd_buffer **to_p, struct ngd_diag *diag);
/* Copies all bytes; both have as many. */
ngd_status_t ngd_buffer_copy_all(struct ngd_buffer *to, struct ngd_buffer *from, struct ngd_diag *diag);

/*
 * buffers with the states (from n_params on) duplicated; the params are referenced. Free with ngd_buffers_free, which
 * takes a list with holes.
 */
ngd_status_t ngd_buffers_with_own_states(const struct ngd_graph *graph, struct ngd_buffer *const *buffers,
                                         struct ngd_buffer ***list_p, struct ngd_diag *diag);
void ngd_buffers_free(struct ngd_buffer **list, uint32_t n);

/* The graph with a copy of every node's results among its outputs, behind its own: "tap:<value>". */
ngd_status_t ngd_graph_tap(const struct ngd_graph *graph, struct ngd_graph **tapped_p, struct ngd_diag *diag);

#endif
