/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_MEMPLAN_CASES_H
#define NGD_TESTS_MEMPLAN_CASES_H

/*
 * The graphs that the test and the bench of the memory planner use: decode and prefill steps of the models in bench/,
 * as the client writes them, and generated graphs with branches. All are planned for the host device.
 */
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ngd_device;
struct ngd_plan;

struct memplan_model {
    const char *name;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    bool llama; /* no q/k norm */
};
extern const struct memplan_model memplan_models[];
extern const uint32_t memplan_n_models;

/* Plans a step of a model. Returns NULL and fills the diagnosis if the text does not parse or cannot be planned. Free
 * with ngd_plan_unref. */
struct ngd_plan *memplan_plan_model(struct ngd_device *dev, const struct memplan_model *model, bool prefill,
                                    uint32_t rows, struct ngd_diag *diag);
/* Plans a graph of branches that fork and join at random, with sizes over four orders of magnitude. The graph depends
 * only on the seed. */
struct ngd_plan *memplan_plan_generated(struct ngd_device *dev, uint64_t seed, struct ngd_diag *diag);

/* Returns the pool's bytes divided by the largest sum of live bytes. */
double memplan_ratio(const struct ngd_plan *plan);

#endif
