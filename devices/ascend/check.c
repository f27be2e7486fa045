/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices are read on the host before a launch. A device that meets one outside its tensor raises an exception which
 * spoils the whole context, or reads what lies there; `host` ends the request with INDEX_RANGE, and so must this
 * backend. That is possible because indices of decoders arrive with the request: they are views of user inputs, perhaps
 * copied. Indices that are computed on the device cannot be checked, and graphs with such are refused.
 */
#include "devices/ascend/ascend.h"
#include <inttypes.h>
#include <string.h>

/* ---- finding what to check ----------------------------------------------------------------------- */

static const struct ngd_plan_call *producer_of(const struct ngd_plan *plan, uint32_t root)
{
    for (uint32_t i = 0; i < plan->n_calls; i++)
        for (uint32_t j = 0; j < plan->calls[i].n_out; j++)
            if (plan->tensors[plan->calls[i].out[j]].root == root)
                return &plan->calls[i];
    return NULL;
}

/* The user input that a tensor is a view of. *tensor_p moves to what holds the values before copies. */
static bool find_input(const struct ngd_plan *plan, uint32_t *tensor_p, uint32_t *input_p)
{
    for (int hops = 0; hops < 8; hops++) {
        uint32_t root = plan->tensors[*tensor_p].root;
        const struct ngd_plan_call *p;

        for (uint32_t i = 0; i < plan->graph->n_inputs; i++) {
            if (plan->inputs[i].tensor != NGD_PLAN_NONE && plan->tensors[plan->inputs[i].tensor].root == root) {
                *input_p = i;
                return true;
            }
        }
        p = producer_of(plan, root);
        if (!p || (p->op->id != NGD_OP_ATEN_CLONE && p->op->id != NGD_OP_ATEN_TO_COPY) || p->out[0] != *tensor_p ||
            ngd_dtype_is_float(plan->tensors[p->in[0]].dtype))
            return false;
        *tensor_p = p->in[0];
    }
    return false;
}

static int64_t dim_limit(const struct ngd_plan_tensor *t, int64_t dim)
{
    int64_t d = dim < 0 ? dim + t->rank : dim;

    return d < t->rank ? t->dims[d] : 1;
}

/* False: the call has no indices. */
static bool describe(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ascend_check *check,
                     uint32_t *operand_p)
{
    const struct ngd_plan_tensor *x = call->n_in ? &plan->tensors[call->in[0]] : NULL;

    *check = (struct ascend_check){
        .kind = ASCEND_CHECK_INDEX, .node = call->node, .limit_sym = NGD_NO_ROW_SYM, .call = call};
    *operand_p = 1;
    switch (call->op->id) {
    case NGD_OP_ATEN_EMBEDDING:
    case NGD_OP_ATEN_INDEX_TENSOR:
        check->limit = x->rank ? x->dims[0] : 1;
        check->limit_sym = x->row_sym;
        check->limit_mult = x->row_mult;
        return true;
    case NGD_OP_ATEN_INDEX_PUT:
        check->limit = x->dims[0];
        check->from_end = true;
        return true;
    case NGD_OP_ATEN_INDEX_SELECT:
    case NGD_OP_ATEN_GATHER:
    case NGD_OP_ATEN_SCATTER_SRC:
    case NGD_OP_ATEN_SCATTER_VALUE:
    case NGD_OP_ATEN_SCATTER_ADD:
        check->limit = dim_limit(x, ngd_call_int(call, "dim"));
        return true;
    case NGD_OP_NPU_SCATTER_PA_KV_CACHE:
        check->kind = ASCEND_CHECK_SLOT;
        check->limit = plan->tensors[call->in[3]].dims[0] * plan->tensors[call->in[3]].dims[1];
        *operand_p = 2;
        return true;
    case NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE:
        check->kind = ASCEND_CHECK_TABLE;
        check->limit = plan->tensors[call->in[1]].dims[0];
        *operand_p = 3;
        return true;
    default:
        return false;
    }
}

static ngd_status_t add_check(struct ascend_exec *exec, const struct ngd_plan_call *call, struct ngd_diag *diag)
{
    struct ascend_check *check = &exec->checks[exec->n_checks];
    uint32_t operand;

    if (!describe(exec->plan, call, check, &operand))
        return NGD_OK;
    check->tensor = call->in[operand];
    if (!find_input(exec->plan, &check->tensor, &check->input))
        return ngd_diag_set(
            diag, NGD_ERR_OP_UNSUPPORTED,
            "device %s: node %u (%s): its indices are computed on the device, which cannot report one that "
            "is out of range; give them as an input of the graph",
            exec->dev->name, call->node, call->op->name);
    if (check->kind == ASCEND_CHECK_SLOT)
        exec->is_slot[check->input] = true;
    exec->n_checks++;
    return NGD_OK;
}

static ngd_status_t place_rowmaps(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const uint32_t n = exec->plan->graph->n_inputs;

    exec->rowmap_at = ngd_arena_alloc(&exec->arena, (n + 1) * sizeof(*exec->rowmap_at));
    if (!exec->rowmap_at)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i <= n; i++)
        exec->rowmap_at[i] = UINT64_MAX;
    if (exec->dev->acl->aclnnScatterPaKvCache)
        return NGD_OK;
    for (uint32_t i = 0; i < exec->n_checks; i++) {
        const struct ascend_check *check = &exec->checks[i];
        const struct ngd_plan_tensor *t = &exec->plan->tensors[check->tensor];

        if (check->kind != ASCEND_CHECK_SLOT || exec->rowmap_at[check->input] != UINT64_MAX)
            continue;
        if (t->rank != 1 || !ngd_plan_contiguous(t) || t->dtype != NGD_I32)
            return ngd_diag_set(
                diag, NGD_ERR_OP_UNSUPPORTED,
                "device %s: node %u: without aclnnScatterPaKvCache, slots must be an i32 input as it is",
                exec->dev->name, check->node);
        exec->rowmap_at[check->input] = exec->staging_bytes;
        exec->staging_bytes += ngd_ascend_align((uint64_t)t->dims[0] * sizeof(int32_t));
    }
    return NGD_OK;
}

ngd_status_t ngd_ascend_find_checks(struct ascend_exec *exec, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    exec->checks = ngd_arena_calloc(&exec->arena, exec->plan->n_calls + 1, sizeof(*exec->checks));
    if (!exec->checks)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i < exec->plan->n_calls && status == NGD_OK; i++)
        status = add_check(exec, &exec->plan->calls[i], diag);
    /* Padding of slots is -1, which as an index is outside of everything. */
    for (uint32_t i = 0; i < exec->n_checks && status == NGD_OK; i++)
        if (exec->checks[i].kind != ASCEND_CHECK_SLOT && exec->is_slot[exec->checks[i].input])
            status = ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device %s: an input holds both slots and indices",
                                  exec->dev->name);
    return status ? status : place_rowmaps(exec, diag);
}

/* ---- checking ------------------------------------------------------------------------------------------------------
 */

static ngd_status_t out_of_range(const struct ascend_check *check, struct ngd_launch *launch, int64_t value)
{
    return launch->status =
               ngd_diag_set(&launch->diag, NGD_ERR_INDEX_RANGE, "node %u (%s): index %" PRId64 " is outside its tensor",
                            check->node, check->call->op->name, value);
}

static int64_t load(const char *p, ngd_dtype_t dtype)
{
    int64_t v64;
    int32_t v32;

    if (dtype == NGD_I64) {
        memcpy(&v64, p, 8);
        return v64;
    }
    memcpy(&v32, p, 4);
    return v32;
}

/* Element n, row-major, of a view of an input, in the staging memory. */
static int64_t element(const struct ascend_inst *inst, const struct ascend_check *check,
                       const struct ngd_plan_tensor *t, int64_t n)
{
    const struct ascend_exec *exec = inst->exec;
    const struct ngd_plan_tensor *root = &exec->plan->tensors[t->root];
    int64_t at = 0, size = (int64_t)ngd_dtype_bytes(t->dtype);

    for (uint32_t i = t->rank; i-- > 0;) {
        at += n % t->dims[i] * t->strides[i];
        n /= t->dims[i];
    }
    return load(inst->staging + exec->in_at[check->input] + (t->offset - root->offset) + at * size, t->dtype);
}

static int64_t rows_of(const struct ngd_plan_tensor *t, const struct ngd_launch *launch)
{
    if (t->row_sym != NGD_NO_ROW_SYM)
        return launch->symbols[t->row_sym] * t->row_mult;
    return t->rank ? t->dims[0] : 1;
}

static ngd_status_t check_elements(const struct ascend_inst *inst, const struct ascend_check *check,
                                   struct ngd_launch *launch)
{
    const struct ngd_plan_tensor *t = &inst->exec->plan->tensors[check->tensor];
    int64_t rows = t->rank ? t->dims[0] : 1, all = ngd_plan_elements(t), n = rows ? all / rows * rows_of(t, launch) : 0;
    int64_t limit =
        check->limit_sym == NGD_NO_ROW_SYM ? check->limit : launch->symbols[check->limit_sym] * check->limit_mult;

    for (int64_t i = 0; i < n; i++) {
        int64_t v = element(inst, check, t, i);

        if (check->kind == ASCEND_CHECK_SLOT && v == -1)
            continue;
        if (v < (check->from_end ? -limit : 0) || v >= limit)
            return out_of_range(check, launch, v);
    }
    return NGD_OK;
}

/* The blocks that each sequence's context reaches, and the lists themselves. */
static ngd_status_t check_table(const struct ascend_inst *inst, const struct ascend_check *check,
                                struct ngd_launch *launch)
{
    const struct ngd_plan *plan = inst->exec->plan;
    const struct ngd_plan_tensor *table = &plan->tensors[check->tensor], *q = &plan->tensors[check->call->in[0]];
    const struct ngd_host_value *queries = &launch->hosts[check->call->host[4]],
                                *keys = &launch->hosts[check->call->host[5]];
    int64_t width = table->dims[1], block = ngd_call_int(check->call, "block_size"), last = 0,
            rows = rows_of(q, launch);

    for (uint32_t s = 0; s < queries->n; s++) {
        int64_t n = queries->values[s] - last, context = keys->values[s];

        if (n < 0 || queries->values[s] > rows)
            return out_of_range(check, launch, queries->values[s]);
        if (context < n || context > width * block)
            return out_of_range(check, launch, context);
        last = queries->values[s];
        for (int64_t b = 0; b * block < context; b++) {
            int64_t v = element(inst, check, table, (int64_t)s * width + b);

            if (v < 0 || v >= check->limit)
                return out_of_range(check, launch, v);
        }
    }
    return NGD_OK;
}

ngd_status_t ngd_ascend_check_inputs(const struct ascend_inst *inst, struct ngd_launch *launch)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < inst->exec->n_checks && status == NGD_OK; i++) {
        const struct ascend_check *check = &inst->exec->checks[i];

        status =
            check->kind == ASCEND_CHECK_TABLE ? check_table(inst, check, launch) : check_elements(inst, check, launch);
    }
    return status;
}

static ngd_status_t map_rows(const struct ascend_inst *inst, const struct ascend_check *check,
                             struct ngd_launch *launch)
{
    const struct ngd_plan_tensor *t = &inst->exec->plan->tensors[check->tensor];
    const uint64_t before = t->offset - inst->exec->plan->tensors[t->root].offset;
    int32_t *slots = (int32_t *)(void *)(inst->staging + inst->exec->in_at[check->input] + before);
    int32_t *map = (int32_t *)(void *)(inst->staging + inst->exec->rowmap_at[check->input]);
    int32_t n = (int32_t)rows_of(t, launch), valid = 0;

    while (valid < n && slots[valid] < 0)
        valid++;
    if (valid == n)
        return launch->status = ngd_diag_set(
                   &launch->diag, NGD_ERR_UNIMPLEMENTED,
                   "node %u: no row has a slot; that needs aclnnScatterPaKvCache, which this version of CANN lacks",
                   check->node);
    for (int32_t i = 0; i < (int32_t)t->dims[0]; i++) {
        map[i] = i < n && slots[i] >= 0 ? i : valid;
        slots[i] = slots[map[i]];
    }
    return NGD_OK;
}

ngd_status_t ngd_ascend_map_rows(const struct ascend_inst *inst, struct ngd_launch *launch)
{
    const struct ascend_exec *exec = inst->exec;
    bool done[NGD_GRAPH_MAX_OPERANDS] = {false};
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < exec->n_checks && status == NGD_OK; i++) {
        const struct ascend_check *check = &exec->checks[i];

        if (check->kind != ASCEND_CHECK_SLOT || exec->rowmap_at[check->input] == UINT64_MAX)
            continue;
        if (check->input < NGD_GRAPH_MAX_OPERANDS && done[check->input])
            continue;
        status = map_rows(inst, check, launch);
        if (check->input < NGD_GRAPH_MAX_OPERANDS)
            done[check->input] = true; /* all layers share it */
    }
    return status;
}
