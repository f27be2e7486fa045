/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executables and instances.
 *
 * An executable knows what a launch needs on the host: what to check, where inputs and outputs lie in an instance's
 * pinned staging memory, which operators run on the CPU at the end. The graph itself needs addresses and a context, so
 * it is captured for an instance, by the stream that launches it first (replay.c). Binding again gives that graph up.
 */
#include "devices/ascend/attention_rows.h"
#include "devices/ascend/group.h"
#include <stdio.h>
#include <string.h>

static ngd_status_t lay_out_staging(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    const struct ngd_graph *g = plan->graph;

    exec->in_at = ngd_arena_calloc(&exec->arena, g->n_inputs + 1, sizeof(*exec->in_at));
    exec->is_slot = ngd_arena_calloc(&exec->arena, g->n_inputs + 1, sizeof(*exec->is_slot));
    exec->out_at = ngd_arena_calloc(&exec->arena, g->n_outputs + 1, sizeof(*exec->out_at));
    exec->out_on_host = ngd_arena_calloc(&exec->arena, g->n_outputs + 1, sizeof(*exec->out_on_host));
    exec->tail_of = ngd_arena_calloc(&exec->arena, plan->n_calls + 1, sizeof(*exec->tail_of));
    if (!exec->in_at || !exec->is_slot || !exec->out_at || !exec->out_on_host || !exec->tail_of)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        exec->in_at[i] = exec->staging_bytes;
        exec->staging_bytes += ngd_ascend_align(plan->inputs[i].bytes);
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct ngd_plan_tensor *t = &plan->tensors[plan->outputs[i].tensor];
        uint64_t before = t->offset - plan->tensors[t->root].offset;

        exec->out_at[i] = exec->staging_bytes + before;
        exec->staging_bytes += ngd_ascend_align(before + plan->outputs[i].bytes);
    }
    return NGD_OK;
}

bool ngd_ascend_has_task_group(const struct ascend_exec *exec, uint32_t call)
{
    const struct ngd_plan_call *of = &exec->plan->calls[call];

    return of->op->host && !exec->tail_of[call] && exec->way_of[call] != ASCEND_WAY_PARTS &&
           ngd_plan_elements(&exec->plan->tensors[of->out[0]]) > 0;
}

static void count_task_groups(struct ascend_exec *exec)
{
    for (uint32_t i = 0; i < exec->plan->n_calls; i++)
        exec->n_task_groups += ngd_ascend_has_task_group(exec, i);
}

/* Which calls of a plan with side streams have an event that another stream waits for. */
static ngd_status_t place_marks(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;

    if (plan->n_streams < 2)
        return NGD_OK;
    exec->mark_of = ngd_arena_calloc(&exec->arena, plan->n_calls + 1, sizeof(*exec->mark_of));
    exec->forked = ngd_arena_calloc(&exec->arena, plan->n_streams, sizeof(*exec->forked));
    if (!exec->mark_of || !exec->forked)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    exec->n_marks = plan->n_streams; /* the fork, and a join for each side stream */
    for (uint32_t i = 0; i < plan->n_calls; i++)
        exec->mark_of[i] = NGD_PLAN_NONE;
    for (uint32_t i = 0; i < plan->n_calls; i++) {
        exec->forked[plan->calls[i].scope.stream] = true;
        for (uint32_t k = 0; k < plan->calls[i].n_waits; k++)
            if (exec->mark_of[plan->calls[i].waits[k]] == NGD_PLAN_NONE)
                exec->mark_of[plan->calls[i].waits[k]] = exec->n_marks++;
    }
    return NGD_OK;
}

static bool needs_mask(const struct ascend_exec *exec)
{
    for (uint32_t i = 0; i < exec->plan->n_calls; i++)
        if (exec->way_of[i] == ASCEND_WAY_PREFILL || exec->way_of[i] == ASCEND_WAY_RAGGED)
            return true;
    return false;
}

ngd_status_t ngd_ascend_instantiate(void *dev, const struct ngd_plan *plan, const struct ngd_backend_group *groups,
                                    uint32_t n_groups, void **exec_p, uint64_t *bytes_p, struct ngd_diag *diag)
{
    struct ascend_exec *exec = NGD_NEW(struct ascend_exec);
    ngd_status_t status;

    if (!exec)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    ngd_arena_init(&exec->arena, 16 << 10);
    exec->dev = dev;
    exec->plan = plan;
    status = lay_out_staging(exec, diag);
    if (status == NGD_OK)
        status = ngd_ascend_find_tails(exec, diag);
    if (status == NGD_OK)
        status = ngd_ascend_check_routing(exec, diag);
    if (status == NGD_OK)
        status = ngd_ascend_find_checks(exec, diag);
    if (status == NGD_OK)
        status = ngd_ascend_find_groups(exec, groups, n_groups, diag);
    if (status == NGD_OK)
        status = place_marks(exec, diag);
    if (status == NGD_OK)
        status = ngd_ascend_nz_find(exec, diag);
    if (status == NGD_OK)
        status = ngd_ascend_find_ways(exec, diag);
    if (status == NGD_OK && needs_mask(exec))
        status = ngd_ascend_mask(exec->dev, diag);
    if (status) {
        ngd_ascend_destroy(dev, exec);
        return status;
    }
    count_task_groups(exec);
    *bytes_p = sizeof(*exec) + exec->staging_bytes + exec->scratch_bytes + exec->n_checks * sizeof(struct ascend_check);
    *exec_p = exec;
    return NGD_OK;
}

const char *ngd_ascend_note(const void *exec)
{
    return ((const struct ascend_exec *)exec)->note;
}

void ngd_ascend_destroy(void *dev, void *exec_v)
{
    struct ascend_exec *exec = exec_v;

    (void)dev;
    if (!exec)
        return;
    ngd_arena_fini(&exec->arena);
    ngd_free(exec);
}

/* ---- instances ----------------------------------------------------------------------------------- */

static ngd_status_t take_instance_memory(struct ascend_inst *inst, struct ngd_diag *diag)
{
    const struct ascend_exec *exec = inst->exec;
    struct ascend_device *dev = exec->dev;
    ngd_status_t status = ngd_ascend_enter(dev, dev->context, diag);
    ngd_acl_error_t code;
    char what[96];

    if (status)
        return status;
    if (exec->scratch_bytes) {
        inst->scratch = ngd_aligned_alloc(64, exec->scratch_bytes);
        if (!inst->scratch)
            return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an instance");
    }
    if (!exec->staging_bytes)
        return NGD_OK;
    code = dev->acl->aclrtMallocHost((void **)&inst->staging, exec->staging_bytes);
    if (code == 0)
        return NGD_OK;
    inst->staging = NULL;
    snprintf(what, sizeof(what), "device %s: %llu bytes of pinned host memory", dev->name,
             (unsigned long long)exec->staging_bytes);
    status = ngd_acl_fail(dev->acl, code, what, diag);
    return status == NGD_ERR_NO_DEVICE_MEMORY ? NGD_ERR_NO_MEMORY : status;
}

static ngd_status_t new_ascend_instance(struct ascend_exec *exec, uint32_t n, struct ascend_inst **inst_p,
                                        struct ngd_diag *diag)
{
    struct ascend_inst *inst = NGD_NEW(struct ascend_inst);
    ngd_status_t status;

    if (!inst)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an instance");
    inst->exec = exec;
    inst->n_bound = n;
    ngd_list_init(&inst->lru);
    ngd_list_init(&inst->of_stream);
    ngd_list_init(&inst->nz_writer);
    inst->bound = NGD_NEW_N(void *, n);
    inst->nz = NGD_NEW_N(struct ascend_nz *, exec->n_weights);
    status = inst->bound && inst->nz ? take_instance_memory(inst, diag)
                                     : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an instance");
    if (status) {
        ngd_ascend_unbind(exec->dev, inst);
        return status;
    }
    *inst_p = inst;
    return NGD_OK;
}

ngd_status_t ngd_ascend_bind(void *dev, void *exec, void *pool_mem, void *const *bound_mem, uint32_t n, void **inst_p,
                             struct ngd_diag *diag)
{
    struct ascend_inst *inst = *inst_p;
    ngd_status_t status = NGD_OK;
    bool first = inst == NULL;

    (void)dev;
    if (inst)
        ngd_ascend_drop_graph(inst); /* it has the old addresses */
    else
        status = new_ascend_instance(exec, n, &inst, diag);
    if (status)
        return status;
    inst->pool = pool_mem;
    for (uint32_t i = 0; i < n; i++)
        inst->bound[i] = bound_mem[i];
    if (first) /* buffers stay the same */
        ngd_ascend_nz_take(inst);
    *inst_p = inst;
    return NGD_OK;
}

void ngd_ascend_unbind(void *dev_v, void *inst_v)
{
    struct ascend_device *dev = dev_v;
    struct ascend_inst *inst = inst_v;

    ngd_ascend_drop_graph(inst);
    ngd_ascend_nz_give(inst);
    if (inst->staging && ngd_ascend_enter_to_release(dev, dev->context))
        dev->acl->aclrtFreeHost(inst->staging);
    ngd_free(inst->scratch);
    ngd_free(inst->nz);
    ngd_free(inst->bound);
    ngd_free(inst);
}
