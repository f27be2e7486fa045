/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_ORDER_H
#define NGD_GRAPHS_PLAN_ORDER_H

/*
 * Records when storages are used, in a plan with several streams: for each stream, the first and the last call that
 * touches a storage. A storage may take the place of another if all uses of the other happen before its own (plan.h).
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
/* Adds a use. Calls must be added in their order. */
void ngd_plan_uses_add(struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t storage, uint32_t call);
/* Adds the uses of storage `from` to those of `into`, which it becomes a part of. */
void ngd_plan_uses_merge(struct ngd_plan_uses *uses, uint32_t into, uint32_t from);

/* Returns true if all uses of storage a so far have ended when call c begins, or are call c. */
bool ngd_plan_uses_end_with(const struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t a, uint32_t c);
bool ngd_plan_uses_before(const struct ngd_plan_uses *uses, const struct ngd_plan *plan, uint32_t a, uint32_t b);
/* Returns the last step that may run before the last use of a. Steps are calls, and n_calls for all after them. */
uint32_t ngd_plan_uses_until(const struct ngd_plan_uses *uses, const struct ngd_plan *plan,
                             const uint32_t *const *calls_of, const uint32_t *n_of, uint32_t a);

#endif
