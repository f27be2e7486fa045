/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers in mixtures of experts. CANN follows them without a look at their range, so they must come from where they
 * cannot be wrong: numbers of experts from npu.moe_gating_top_k_softmax or aten.topk over the experts, or from an input
 * that is read before the launch (check.c); numbers of rows and of groups from npu.moe_init_routing_v2.
 *
 * Rows of padding have experts too. Their expanded rows stand between those of the others, which `host` has first: so
 * with a bucketed symbol nothing that is in the order of experts may leave the graph.
 */
#include "devices/ascend/ascend.h"
#include "graphs/op_traits.h"

/* The only call that writes to the storage of a tensor; NULL: none, several do, or something was in it before, as in a
 * state, where the planner places what is copied into it later. *result_p: by which result. */
static const struct ngd_plan_call *find_only_writer(const struct ngd_plan *plan, uint32_t tensor, uint32_t *result_p)
{
    const struct ngd_plan_call *writer = NULL;

    if (plan->tensors[tensor].space == NGD_SPACE_BOUND)
        return NULL;
    for (uint32_t i = 0; i < plan->n_calls; i++)
        for (uint32_t j = 0; j < plan->calls[i].n_out; j++) {
            if (plan->tensors[plan->calls[i].out[j]].root != plan->tensors[tensor].root)
                continue;
            if (writer)
                return NULL;
            writer = &plan->calls[i];
            *result_p = j;
        }
    return writer;
}

/* What made a tensor, or the numbers of which it has a copy; NULL: nothing, as it is an input, or it is not known.
 * *result_p: which result. */
static const struct ngd_plan_call *find_maker(const struct ngd_plan *plan, uint32_t tensor, uint32_t *result_p)
{
    for (int hops = 0; hops < 8; hops++) {
        const struct ngd_plan_call *made = find_only_writer(plan, tensor, result_p);

        if (!made || !(made->op->flags & NGD_OPF_IDENTITY))
            return made;
        if (!ngd_ascend_keeps_indices(plan->tensors[made->in[0]].dtype, plan->tensors[made->out[0]].dtype))
            return NULL;
        tensor = made->in[0];
    }
    return NULL;
}

bool ngd_ascend_is_chosen(const struct ngd_plan *plan, uint32_t tensor, int64_t experts)
{
    uint32_t result = 0;
    const struct ngd_plan_call *maker = find_maker(plan, tensor, &result);
    const struct ngd_plan_tensor *of;
    int64_t dim;

    if (!maker || ngd_op_traits[maker->op->id].chosen != result + 1)
        return false;
    of = &plan->tensors[maker->in[0]];
    dim = ngd_op_attr_index(maker->op, "dim", 3) < 0 ? -1 : ngd_call_int(maker, "dim");
    return of->rank > 0 && of->dims[dim < 0 ? dim + of->rank : dim] <= experts;
}

static ngd_mixture_t part_of(const struct ngd_plan_call *call)
{
    return ngd_op_traits[call->op->id].mixture;
}

static ngd_status_t refuse_numbers(const struct ascend_exec *exec, const struct ngd_plan_call *call, const char *what,
                                   struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device %s: node %u (%s): %s", exec->dev->name, call->node,
                        call->op->name, what);
}

/* Operand i is the whole of that result of a routing of as many rows as operand 0 has. */
static ngd_status_t check_routed(const struct ascend_exec *exec, const struct ngd_plan_call *call, uint32_t i,
                                 uint32_t result, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *t = exec->plan->tensors;
    uint32_t made = 0;
    const struct ngd_plan_call *maker = find_maker(exec->plan, call->in[i], &made);

    if (maker && part_of(maker) == NGD_MIXTURE_ROUTES && made == result &&
        ngd_plan_elements(&t[call->in[i]]) == ngd_plan_elements(&t[maker->out[result]]) &&
        t[maker->out[0]].dims[0] == t[call->in[0]].dims[0])
        return NGD_OK;
    return refuse_numbers(
        exec, call,
        result == 1 ? "expanded_src_to_dst_row must be result 1 of npu.moe_init_routing_v2 for the same rows: "
                      "CANN does not check its range"
                    : "group_list must be result 2 of npu.moe_init_routing_v2 for the same rows: CANN does "
                      "not check its range",
        diag);
}

/* ---- padding --------------------------------------------------------------------------------------- */

static void mark_results(const struct ngd_plan *plan, const struct ngd_plan_call *call, bool *mixed)
{
    for (uint32_t k = 0; k < call->n_out; k++)
        mixed[plan->tensors[call->out[k]].root] = true;
}

static bool reads_mixed(const struct ngd_plan *plan, const struct ngd_plan_call *call, const bool *mixed)
{
    for (uint32_t k = 0; k < call->n_in; k++)
        if (call->in[k] != NGD_PLAN_NONE && mixed[plan->tensors[call->in[k]].root])
            return true;
    return false;
}

/* Marks by root what has rows of padding between the others: from a routing on, until a mixture's sum. */
static bool find_mixed(const struct ngd_plan *plan, bool *mixed)
{
    bool any = false;

    for (uint32_t i = 0; i < plan->n_calls; i++) {
        const struct ngd_plan_call *call = &plan->calls[i];

        if (part_of(call) == NGD_MIXTURE_ROUTES && plan->tensors[call->in[1]].row_sym != NGD_NO_ROW_SYM)
            mark_results(plan, call, mixed);
        else if (part_of(call) != NGD_MIXTURE_SUMS && reads_mixed(plan, call, mixed))
            mark_results(plan, call, mixed);
        else
            continue;
        any = true;
    }
    return any;
}

static bool is_graph_output(const struct ngd_plan *plan, uint32_t root)
{
    for (uint32_t o = 0; o < plan->graph->n_outputs; o++)
        if (plan->tensors[plan->outputs[o].tensor].root == root)
            return true;
    return false;
}

static ngd_status_t check_padding(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    bool *mixed = ngd_arena_calloc(&exec->arena, plan->n_tensors + 1, sizeof(*mixed));

    if (!mixed)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    if (!find_mixed(plan, mixed))
        return NGD_OK;
    for (uint32_t t = 0; t < plan->n_tensors; t++)
        if (mixed[plan->tensors[t].root] && (plan->tensors[plan->tensors[t].root].space == NGD_SPACE_BOUND ||
                                             is_graph_output(plan, plan->tensors[t].root)))
            return ngd_diag_set(
                diag, NGD_ERR_OP_UNSUPPORTED,
                "device %s: rows of padding have experts too, and would show between the others: with a "
                "bucketed symbol, only what npu.moe_finalize_routing gives may be a result or a state",
                exec->dev->name);
    return NGD_OK;
}

ngd_status_t ngd_ascend_check_routing(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < plan->n_calls && status == NGD_OK; i++) {
        if (part_of(&plan->calls[i]) == NGD_MIXTURE_MULTIPLIES)
            status = check_routed(exec, &plan->calls[i], 1, 2, diag);
        else if (part_of(&plan->calls[i]) == NGD_MIXTURE_SUMS)
            status = check_routed(exec, &plan->calls[i], 2, 1, diag);
    }
    return status ? status : check_padding(exec, diag);
}
