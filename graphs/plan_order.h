/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_ORDER_H
#define NGD_GRAPHS_PLAN_ORDER_H

/*
 * Who uses a storage when, in a plan with several streams: of each stream the first and the last call that touches it.
 * One storage may take another one's place when all uses of the other happen before all of its own (plan.h).
 */
#include "graphs/plan.h"

struct ngd_plan_uses {
    uint32_t n_streams;
    uint32_t *first, *last; /* n storages x streams; NGD_PLAN_NONE: not used on that stream */
    bool *comes;            /* filled before the first call: an input */
    bool *stays;            /* read after the last call: an output */
};

ngd_status_t ngd_plan_uses_init(struct ngd_plan_uses *uses, uint32_t n, uint32_t n_streams);
void ngd_plan_uses_fini(struct ngd_plan_uses *uses);
/* Calls in their order. */
void ngd_plan_uses_add(struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t storage, uint32_t call);
/* Storage `from` becomes part of `into`. */
void ngd_plan_uses_merge(struct ngd_plan_uses *uses, uint32_t into, uint32_t from);

/* All uses of storage a so far have ended when call c begins, or are c. */
bool ngd_plan_uses_end_with(const struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t a, uint32_t c);
bool ngd_plan_uses_before(const struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t a, uint32_t b);
/* The last step (calls, and n_calls for what comes after them) that may run before the last use of a. */
uint32_t ngd_plan_uses_until(const struct ngd_plan_uses *uses, const struct ngd_plan *plan,
                             const uint32_t *const *calls_of, const uint32_t *n_of, uint32_t a);

#endif
