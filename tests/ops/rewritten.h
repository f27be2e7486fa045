/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_REWRITTEN_H
#define NGD_TESTS_OPS_REWRITTEN_H

/* Makes plans of one graph with different options and patterns, and compares their bits. */
#include "graphs/graph_int.h"
#include "graphs/pass.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/run_plan.h"
#include "tests/unit/unit.h"

static inline uint64_t seeds(uint64_t standard, const char *what)
{
    const char *env = getenv("NGD_TEST_SEEDS");

    return env ? strtoull(env, NULL, 10) : effort(standard, what);
}

static inline ngd_status_t make_plan(struct bench *b, struct ngd_graph *g, const int64_t *symbols,
                                     const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                                     struct ngd_pass_report *report, struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct ngd_digest digest = {{0}};
    struct ngd_key key;
    ngd_status_t status = ngd_key_make(g, &digest, symbols, g->n_symbols, &key, diag);

    return status
               ? status
               : ngd_plan_create_reported(g, &key, options, ngd_device_target(b->dev), patterns, report, plan_p, diag);
}

static inline bool same_bits(const struct made *a, const struct made *b)
{
    return a->status == b->status && a->bytes == b->bytes && (a->status || memcmp(a->data, b->data, a->bytes) == 0);
}

#endif
