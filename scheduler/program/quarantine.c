/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quarantine: keys of a program whose executables were found wrong. The graph as it was registered, without passes,
 * runs instead.
 */
#include "base/mem.h"
#include "scheduler/program/eager_plans.h"
#include "scheduler/program/program_int.h"
#include "scheduler/program/stored.h"

#define QUARANTINE_MAX 64

struct ngd_quarantined {
    struct ngd_list link; /* in prog->quarantined; under the program's lock */
    struct ngd_key key;
    struct ngd_exec *exec; /* without passes */
};

static struct ngd_quarantined *find_quarantined_locked(struct ngd_program *prog, const struct ngd_key *key)
    NGD_REQUIRES(prog->lock)
{
    ngd_list_for_each (l, &prog->quarantined) {
        struct ngd_quarantined *q = ngd_container_of(l, struct ngd_quarantined, link);

        if (ngd_key_equal(&q->key, key))
            return q;
    }
    return NULL;
}

struct ngd_exec *ngd_program_quarantined(struct ngd_program *prog, const struct ngd_key *key)
{
    struct ngd_quarantined *q;
    struct ngd_exec *exec;

    if (atomic_load_explicit(&prog->n_quarantined, memory_order_acquire) == 0)
        return NULL;
    ngd_mutex_lock(&prog->lock);
    q = find_quarantined_locked(prog, key);
    exec = q ? ngd_exec_ref(q->exec) : NULL;
    ngd_mutex_unlock(&prog->lock);
    return exec;
}

void ngd_program_free_quarantine(struct ngd_program *prog)
{
    struct ngd_list *l;

    ngd_mutex_lock(&prog->lock);
    while ((l = ngd_list_pop_front(&prog->quarantined))) {
        struct ngd_quarantined *q = ngd_container_of(l, struct ngd_quarantined, link);

        ngd_exec_unref(q->exec);
        ngd_free(q);
    }
    ngd_mutex_unlock(&prog->lock);
}

static struct ngd_quarantined *quarantined_new(struct ngd_program *prog, const struct ngd_key *key)
{
    struct ngd_quarantined *q = NGD_NEW(struct ngd_quarantined);
    struct ngd_plan *plan = NULL;
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (q)
        status =
            ngd_plan_create_plain(prog->graph, key, &prog->options, ngd_device_target(prog->queue->dev), &plan, NULL);
    if (status == NGD_OK)
        status = ngd_exec_create(prog->queue->dev, plan, &q->exec, NULL);
    ngd_plan_unref(plan);
    if (status) {
        ngd_free(q);
        return NULL;
    }
    q->key = *key;
    return q;
}

bool ngd_program_quarantine(struct ngd_program *prog, const struct ngd_key *key)
{
    struct ngd_quarantined *q = quarantined_new(prog, key);
    bool kept = false;

    ngd_stored_distrust(prog, key);
    ngd_eager_plans_drop(prog, key);
    if (!q)
        return false;
    ngd_mutex_lock(&prog->lock);
    if (!find_quarantined_locked(prog, key) && atomic_load(&prog->n_quarantined) < QUARANTINE_MAX) {
        ngd_list_push_back(&prog->quarantined, &q->link);
        atomic_fetch_add_explicit(&prog->n_quarantined, 1, memory_order_release);
        atomic_store(&prog->run, prog->sched->choose_run(prog));
        kept = true;
    }
    ngd_mutex_unlock(&prog->lock);
    if (!kept) {
        ngd_exec_unref(q->exec);
        ngd_free(q);
    }
    return kept;
}
