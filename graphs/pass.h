/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PASS_H
#define NGD_GRAPHS_PASS_H

/*
 * Passes: what is done to a graph, specialised to a key, before it is planned (passes.def has them in order).
 *
 * A pass changes the rewritable graph and counts the changes. It must leave a valid graph with the same results: bit
 * for bit, unless the graph's options allow it to round less and it counts where it did. Running it again must change
 * nothing. Debug builds validate the graph after each pass; all builds do at the end, when it is sealed.
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
    const int64_t *symbols;                 /* as planned */
    struct ngd_diag *diag;
    uint32_t changed; /* by the pass that runs */
    uint32_t excess;  /* of those: replacements that round less than what they stand for */
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

/* What a run did, and who wants to see it. */
struct ngd_pass_report {
    uint32_t nodes_before, nodes_after;
    struct {
        bool ran;
        uint32_t changed, excess; /* excess: of those, what rounds less now (allow_excess_precision) */
        uint32_t nodes;           /* after it */
        int64_t nanoseconds;
    } of[NGD_PASS_MAX];
    /* Called with the graph as it came (pass NULL) and after each pass that changed something. */
    void (*look)(void *ctx, const struct ngd_pass *pass, const struct ngd_graph *graph);
    void *ctx;
};

/*
 * The graph that is planned: `graph` at these symbols, with the passes that the options leave on. report may be NULL;
 * patterns NULL: those that are built in. The caller owns the new graph.
 */
ngd_status_t ngd_passes_run(const struct ngd_graph *graph, const int64_t *symbols,
                            const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                            struct ngd_pattern_set *patterns, struct ngd_pass_report *report,
                            struct ngd_graph **graph_p, struct ngd_diag *diag);

/* Whether the target has the operator of a node with these dtypes and shapes; all operands contiguous. */
bool ngd_pass_supported(struct ngd_pass_context *ctx, uint32_t node);

/*
 * Whether a reader of `value`, which lies in the order of its shape, may compute other bits when it reads `instead`,
 * the same elements with strides of their own.
 */
bool ngd_pass_layout_counts(const struct ngd_rewrite *rw, uint32_t value, uint32_t instead);

/* Estimates of a node's kernel: floating-point operations, bytes read and written; zeros where they cannot be had. */
void ngd_pass_work(struct ngd_pass_context *ctx, uint32_t node, double *flops_p, double *bytes_p);

#define NGD_PASS(ID, name, version, option, doc) ngd_pass_fn ngd_pass_##name;
#include "graphs/passes.def"
#undef NGD_PASS

#endif
