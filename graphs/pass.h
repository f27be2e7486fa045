/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PASS_H
#define NGD_GRAPHS_PASS_H

/*
 * Passes: rewrites of a graph, specialised to a key, before it is planned. passes.def lists them in order.
 *
 * A pass changes the rewritable graph and counts its changes. It must leave a valid graph with bit-identical results.
 * If the graph's options allow less rounding, it may round less, and counts these changes as excess. Running a pass
 * again must change nothing. Debug builds validate the graph after each pass; all builds validate it at the end, when
 * it is sealed.
 *
 * A new pass is one file, one row of passes.def, and a golden test in tests/unit/passes/.
 */
#include "graphs/options.h"
#include "graphs/pattern.h"
#include "graphs/plan.h"
#include "graphs/rewrite.h"

struct ngd_pass_context {
    struct ngd_rewrite *rw;
    const struct ngd_graph_options *options;
    const struct ngd_plan_target *target;
    const struct ngd_pattern_set *patterns; /* NULL: none */
    const int64_t *symbols;                 /* the planned sizes */
    struct ngd_diag *diag;
    uint32_t changed; /* changes of the pass that runs */
    uint32_t excess;  /* those of them whose replacement rounds less than the original */
};

typedef ngd_status_t ngd_pass_fn(struct ngd_pass_context *ctx);

typedef enum ngd_pass_id {
#define NGD_PASS(ID, name, version, option, doc) NGD_PASS_##ID,
#include "graphs/passes.def"
#undef NGD_PASS
    NGD_PASS_MAX
} ngd_pass_id_t;

struct ngd_pass {
    const char *name, *doc, *option;
    uint32_t version;
    ngd_pass_fn *run;
    bool (*on)(const struct ngd_graph_options *options);
};
const struct ngd_pass *ngd_pass_info(ngd_pass_id_t id);
int ngd_pass_find(const char *name, size_t n); /* the first of that name; -1 = none */

/* Names and versions of all passes: part of each key. */
void ngd_passes_digest(struct ngd_digest *digest_p);

/* What a run of the passes did, and a callback that sees the graph between them. */
struct ngd_pass_report {
    uint32_t nodes_before, nodes_after;
    struct {
        bool ran;
        uint32_t changed, excess; /* excess: those changes that round less (allow_excess_precision) */
        uint32_t nodes;           /* after the pass */
        int64_t nanoseconds;
    } of[NGD_PASS_MAX];
    /* Called with the original graph (pass NULL), and after each pass that changed it. */
    void (*look)(void *ctx, const struct ngd_pass *pass, const struct ngd_graph *graph);
    void *ctx;
};

/*
 * Runs the passes that the options leave on over `graph` at these symbols, and gives the graph to be planned. report
 * may be NULL; patterns NULL: the built-in ones. The caller owns the new graph.
 */
ngd_status_t ngd_passes_run(const struct ngd_graph *graph, const int64_t *symbols,
                            const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                            struct ngd_pattern_set *patterns, struct ngd_pass_report *report,
                            struct ngd_graph **graph_p, struct ngd_diag *diag);

/* Returns true if the target has the operator of a node for its dtypes and shapes, all operands being contiguous. */
bool ngd_pass_supported(struct ngd_pass_context *ctx, uint32_t node);

/*
 * Returns true if a reader of `value`, which is contiguous, may compute other bits when it reads `instead`: the same
 * elements with other strides.
 */
bool ngd_pass_layout_counts(const struct ngd_rewrite *rw, uint32_t value, uint32_t instead);

/* Estimates a node's floating-point operations, and the bytes that it reads and writes; 0 if that is not possible. */
void ngd_pass_work(struct ngd_pass_context *ctx, uint32_t node, double *flops_p, double *bytes_p);

#define NGD_PASS(ID, name, version, option, doc) ngd_pass_fn ngd_pass_##name;
#include "graphs/passes.def"
#undef NGD_PASS

#endif
