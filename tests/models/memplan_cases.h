/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_MEMPLAN_CASES_H
#define NGD_TESTS_MEMPLAN_CASES_H

/*
 * The graphs on which the memory planner is judged, by its test and by its bench: decode and prefill steps of the
 * models in bench/, as the client writes them, and generated graphs with branches. All are planned for the host device.
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

/* NULL, with a diagnosis: the text does not parse, or the plan cannot be made. Free with ngd_plan_unref. */
struct ngd_plan *memplan_plan_model(struct ngd_device *dev, const struct memplan_model *model, bool prefill,
                                    uint32_t rows, struct ngd_diag *diag);
/* Branches that fork and join at random, with sizes over four orders of magnitude; the seed says all. */
struct ngd_plan *memplan_plan_generated(struct ngd_device *dev, uint64_t seed, struct ngd_diag *diag);

/* The pool's bytes over the largest sum of live bytes. */
double memplan_ratio(const struct ngd_plan *plan);

#endif
