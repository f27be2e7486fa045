/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that end a graph and that the device does not have: sampling. They run on the CPU (devices/cpu_op.h)
 * after the device has finished: their operands are copied to pinned memory in the graph, at their place in its
 * order. So a seed gives the same token on every device. Only the end of a graph can be had this way: a result that the
 * device reads again is refused.
 */
#include "devices/ascend/ascend.h"

bool ngd_ascend_is_tail(const struct ngd_plan_call *call)
{
    static const bool tails[NGD_OP_MAX] = {
#define NGD_ASCEND_OP(id, builder, function, dtypes, strided)
#define NGD_ASCEND_TAIL(id) [NGD_OP_##id] = true,
#include "devices/ascend/ascend_ops.def"
#undef NGD_ASCEND_OP
    };

    return tails[call->op->id];
}

static bool is_read(const struct ngd_graph *g, uint32_t value)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t j = 0; j < g->nodes[i].n_in; j++)
            if (g->nodes[i].in[j] == value)
                return true;
    return false;
}

ngd_status_t ngd_ascend_select_tail(const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                    struct ngd_diag *diag)
{
    const struct ngd_graph *g = plan->graph;
    /* A pass may ask about a node that is not in the graph yet. */
    const struct ngd_node *node =
        call->node < g->n_nodes && g->nodes[call->node].op == call->op ? &g->nodes[call->node] : NULL;

    for (uint32_t i = 0; node && i < node->n_out; i++)
        if (is_read(g, node->out[i]))
            return ngd_diag_set(
                diag, NGD_ERR_OP_UNSUPPORTED,
                "node %u (%s): on ascend it runs on the CPU behind the graph, so its result must be an output",
                call->node, call->op->name);
    return ngd_cpu_op_select(plan, call, diag);
}

/* Room in the staging memory for a tensor and what lies before it in its storage; offset of its first byte. */
static uint64_t stage_tail_tensor(struct ascend_exec *exec, uint32_t tensor)
{
    const struct ngd_plan_tensor *t = &exec->plan->tensors[tensor];
    uint64_t before = t->offset - exec->plan->tensors[t->root].offset, at = exec->staging_bytes + before;

    exec->staging_bytes += ngd_ascend_align(before + t->bytes + 1);
    return at;
}

static ngd_status_t add_tail(struct ascend_exec *exec, uint32_t index, struct ngd_diag *diag)
{
    const struct ngd_plan_call *call = &exec->plan->calls[index];
    struct ascend_tail *tail = &exec->tails[exec->n_tails];
    uint64_t scratch = 0;
    ngd_status_t status = ngd_cpu_op_prepare(exec->plan, call, &exec->arena, &tail->op, &scratch, diag);

    if (status)
        return status;
    if (scratch > exec->scratch_bytes)
        exec->scratch_bytes = scratch;
    tail->call = call;
    tail->at = ngd_arena_calloc(&exec->arena, call->n_in + call->n_out, sizeof(*tail->at));
    if (!tail->at)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i < call->n_in; i++)
        tail->at[i] = call->in[i] == NGD_PLAN_NONE ? UINT64_MAX : stage_tail_tensor(exec, call->in[i]);
    for (uint32_t i = 0; i < call->n_out; i++) {
        tail->at[call->n_in + i] = stage_tail_tensor(exec, call->out[i]);
        for (uint32_t o = 0; o < exec->plan->graph->n_outputs; o++) {
            if (exec->plan->outputs[o].tensor == call->out[i]) {
                exec->out_on_host[o] = true;
                exec->out_at[o] = tail->at[call->n_in + i];
            }
        }
    }
    exec->tail_of[index] = tail;
    exec->n_tails++;
    return NGD_OK;
}

/* Copies that the plan puts behind a tail (an output that is named twice) have no place on the device. */
static bool reads_tail(const struct ascend_exec *exec, const struct ngd_plan_call *call)
{
    for (uint32_t i = 0; i < call->n_in; i++)
        for (uint32_t k = 0; k < exec->n_tails && call->in[i] != NGD_PLAN_NONE; k++)
            for (uint32_t j = 0; j < exec->tails[k].call->n_out; j++)
                if (exec->plan->tensors[call->in[i]].root == exec->plan->tensors[exec->tails[k].call->out[j]].root &&
                    call > exec->tails[k].call)
                    return true;
    return false;
}

ngd_status_t ngd_ascend_find_tails(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    ngd_status_t status = NGD_OK;
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_calls; i++)
        n += ngd_ascend_is_tail(&plan->calls[i]);
    exec->tails = ngd_arena_calloc(&exec->arena, n + 1, sizeof(*exec->tails));
    if (!exec->tails)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i < plan->n_calls && status == NGD_OK; i++) {
        if (ngd_ascend_is_tail(&plan->calls[i]))
            status = add_tail(exec, i, diag);
        else if (reads_tail(exec, &plan->calls[i]))
            status = ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device %s: the result of node %u is an output twice",
                                  exec->dev->name, plan->calls[i].node);
    }
    return status;
}

static ngd_status_t run_tail(const struct ascend_inst *inst, const struct ascend_tail *tail, struct ngd_launch *launch)
{
    char *ptrs[16] = {NULL};

    for (uint32_t i = 0; i < tail->call->n_in + tail->call->n_out && i < 16; i++)
        ptrs[i] = tail->at[i] == UINT64_MAX ? NULL : inst->staging + tail->at[i];
    return ngd_cpu_op_run(tail->op, ptrs, inst->scratch, launch);
}

ngd_status_t ngd_ascend_run_tails(const struct ascend_inst *inst, struct ngd_launch *launch)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < inst->exec->n_tails && status == NGD_OK; i++)
        status = run_tail(inst, &inst->exec->tails[i], launch);
    return status;
}
