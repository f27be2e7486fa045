/* SPDX-License-Identifier: Apache-2.0 */
/* The array is in the order of use, the latest first, without gaps. It is short, so moving its pointers is cheap. */
#include "scheduler/program/eager_plans.h"
#include "graphs/plan.h"
#include "scheduler/program/program_int.h"
#include <string.h>

/* Returns the index of the plan of key; else of the first free place; else NGD_PROGRAM_EAGER_PLANS. */
static uint32_t seek_locked(const struct ngd_program *prog, const struct ngd_key *key) NGD_REQUIRES(prog->lock)
{
    uint32_t i = 0;

    while (i < NGD_PROGRAM_EAGER_PLANS && prog->eager_plans[i] && !ngd_key_equal(&prog->eager_plans[i]->key, key))
        i++;
    return i;
}

/* Moves the plans before place i back by one, over place i, and puts the plan in front. */
static void to_front_locked(struct ngd_program *prog, uint32_t i, struct ngd_plan *plan) NGD_REQUIRES(prog->lock)
{
    memmove(prog->eager_plans + 1, prog->eager_plans, i * sizeof(struct ngd_plan *));
    prog->eager_plans[0] = plan;
}

struct ngd_plan *ngd_eager_plans_find(struct ngd_program *prog, const struct ngd_key *key)
{
    struct ngd_plan *plan = NULL;
    uint32_t i;

    ngd_mutex_lock(&prog->lock);
    i = seek_locked(prog, key);
    if (i < NGD_PROGRAM_EAGER_PLANS && prog->eager_plans[i]) {
        plan = ngd_plan_ref(prog->eager_plans[i]);
        to_front_locked(prog, i, prog->eager_plans[i]);
    }
    ngd_mutex_unlock(&prog->lock);
    if (plan)
        ngd_metric_row_add(ngd_metric_row(NGD_M_PLANS, "kept"), 1);
    return plan;
}

void ngd_eager_plans_keep(struct ngd_program *prog, struct ngd_plan *plan)
{
    struct ngd_plan *gone = NULL;
    uint32_t i;

    ngd_mutex_lock(&prog->lock);
    i = seek_locked(prog, &plan->key);
    if (i == NGD_PROGRAM_EAGER_PLANS)
        i--; /* the last one, which is the least recently used */
    if (ngd_charge_grow(&prog->charge, ngd_plan_host_bytes(plan), NULL) == NGD_OK) {
        gone = prog->eager_plans[i];
        to_front_locked(prog, i, ngd_plan_ref(plan));
    }
    if (gone)
        ngd_charge_shrink(&prog->charge, ngd_plan_host_bytes(gone));
    ngd_mutex_unlock(&prog->lock);
    ngd_plan_unref(gone);
}

void ngd_eager_plans_drop(struct ngd_program *prog, const struct ngd_key *key)
{
    struct ngd_plan *gone = NULL;
    uint32_t i;

    ngd_mutex_lock(&prog->lock);
    i = seek_locked(prog, key);
    if (i < NGD_PROGRAM_EAGER_PLANS) {
        gone = prog->eager_plans[i];
        if (gone)
            ngd_charge_shrink(&prog->charge, ngd_plan_host_bytes(gone));
        memmove(prog->eager_plans + i, prog->eager_plans + i + 1,
                (NGD_PROGRAM_EAGER_PLANS - 1 - i) * sizeof(struct ngd_plan *));
        prog->eager_plans[NGD_PROGRAM_EAGER_PLANS - 1] = NULL;
    }
    ngd_mutex_unlock(&prog->lock);
    ngd_plan_unref(gone);
}

void ngd_eager_plans_free(struct ngd_program *prog)
{
    ngd_mutex_lock(&prog->lock);
    for (uint32_t i = 0; i < NGD_PROGRAM_EAGER_PLANS; i++) {
        ngd_plan_unref(prog->eager_plans[i]);
        prog->eager_plans[i] = NULL;
    }
    ngd_mutex_unlock(&prog->lock);
}
