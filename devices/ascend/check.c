/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices are read on the host. A device that meets one outside its tensor raises an exception which spoils the whole
 * context, or reads what lies there; `host` ends the request with INDEX_RANGE, and so must this backend.
 *
 * Numbers that aten.topk chooses of no more elements than there are to index need no look (routing.c).
 *
 * Indices of decoders arrive with the request: they are views of user inputs, perhaps copied, and are read before the
 * launch. Those that count from the end are folded there, in the staging memory, where nothing else reads them.
 *
 * Those that are computed on the device are copied to the host in the graph, at their place in its order, and read when
 * it has ended. Operators that use them get them folded by a remainder (op_index.c), so that none faults; what comes of
 * a wrong one is not given out. But it must not stay either: graphs that write to a state from there on, or tell other
 * ranks, are refused, since `host` would not have come to that.
 */
#include "devices/ascend/ascend.h"
#include "graphs/op_traits.h"
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

/*
 * A copy has each number that the input may have, or (i32 of i64) each that can be an index: what is read before it is
 * what the device reads behind it.
 */
bool ngd_ascend_keeps_indices(ngd_dtype_t from, ngd_dtype_t to)
{
    if (from == to || (from == NGD_I64 && to == NGD_I32))
        return true;
    switch (to) {
    case NGD_I64:
        return !ngd_dtype_is_float(from);
    case NGD_I32:
        return from == NGD_I8 || from == NGD_U8 || from == NGD_BOOL;
    case NGD_I8:
    case NGD_U8:
        return from == NGD_BOOL;
    default:
        return false;
    }
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
        if (!p || !(p->op->flags & NGD_OPF_IDENTITY) || p->out[0] != *tensor_p ||
            !ngd_ascend_keeps_indices(plan->tensors[p->in[0]].dtype, plan->tensors[*tensor_p].dtype))
            return false;
        *tensor_p = p->in[0];
    }
    return false;
}

/* A dimension with a bucketed symbol ends at its actual rows. */
static void limit_by(struct ascend_check *check, const struct ngd_plan_tensor *t, int64_t dim)
{
    int64_t d = dim < 0 ? dim + t->rank : dim;

    check->limit = d < t->rank ? t->dims[d] : 1;
    if (d == 0) {
        check->limit_sym = t->row_sym;
        check->limit_mult = t->row_mult;
    }
}

/* False: the call has no indices. */
static bool describe_check(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ascend_check *check,
                           uint32_t *operand_p)
{
    const struct ngd_plan_tensor *x = call->n_in ? &plan->tensors[call->in[0]] : NULL;

    *check = (struct ascend_check){
        .kind = ASCEND_CHECK_INDEX, .node = call->node, .limit_sym = NGD_NO_ROW_SYM, .call = call};
    *operand_p = 1;
    switch (ngd_op_traits[call->op->id].indexes) {
    case NGD_INDEXES_FIRST:
    case NGD_INDEXES_FIRST_SIGNED:
        limit_by(check, x, 0);
        check->from_end = ngd_op_traits[call->op->id].indexes == NGD_INDEXES_FIRST_SIGNED;
        return true;
    case NGD_INDEXES_DIM:
        limit_by(check, x, ngd_call_int(call, "dim"));
        return check->limit_sym != NGD_NO_ROW_SYM || !ngd_ascend_is_chosen(plan, call->in[1], check->limit);
    case NGD_INDEXES_SLOTS:
        check->kind = ASCEND_CHECK_SLOT;
        check->limit = plan->tensors[call->in[3]].dims[0] * plan->tensors[call->in[3]].dims[1];
        *operand_p = 2;
        return true;
    case NGD_INDEXES_BLOCKS:
        check->kind = ASCEND_CHECK_TABLE;
        check->limit = plan->tensors[call->in[1]].dims[0];
        *operand_p = 3;
        return true;
    case NGD_INDEXES_EXPERTS:
        check->limit = ngd_call_int(call, "expert_num");
        check->unguarded = true;
        return !ngd_ascend_is_chosen(plan, call->in[1], check->limit);
    case NGD_INDEXES_NONE:
        break;
    }
    return false;
}

/* ---- indices that are computed ------------------------------------------------------------------- */

static bool writes_bound(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    bool writes = call->op->mutates != 0;

    for (uint32_t i = 0; i < call->n_out; i++)
        writes |= plan->tensors[plan->tensors[call->out[i]].root].space == NGD_SPACE_BOUND;
    return writes;
}

/* Why a call cannot have computed indices; NULL: it can. */
static const char *why_not_computed(const struct ascend_exec *exec, const struct ascend_check *check)
{
    const struct ngd_plan *plan = exec->plan;
    const bool writes = ngd_op_traits[check->call->op->id].index_writes;

    if (check->kind != ASCEND_CHECK_INDEX)
        return "slots and block tables are read on the CPU before a launch";
    if (check->unguarded)
        return "of numbers of experts only those that npu.moe_gating_top_k_softmax or aten.topk gives are sure to be "
               "in range";
    if (check->limit == 0)
        return "there is nothing to index";
    if (writes && plan->tensors[check->tensor].row_sym != NGD_NO_ROW_SYM)
        return "rows of padding have computed indices of their own, and what they write would show";
    for (const struct ngd_plan_call *call = check->call; call < plan->calls + plan->n_calls; call++)
        if (call->op->flags & NGD_OPF_COLLECTIVE)
            return "what comes of a wrong one would reach other ranks";
        else if (writes_bound(plan, call))
            return "what comes of a wrong one would stay in a state that the graph writes to";
    return NULL;
}

/* Room for the tensor and what lies before it in its storage. */
static void stage_check(struct ascend_exec *exec, struct ascend_check *check)
{
    const struct ngd_plan_tensor *t = &exec->plan->tensors[check->tensor];
    uint64_t size = ngd_dtype_bytes(t->dtype), before = t->offset - exec->plan->tensors[t->root].offset, last = 0;

    for (uint32_t i = 0; i < t->rank; i++)
        last += t->dims[i] > 0 ? (uint64_t)((t->dims[i] - 1) * t->strides[i]) : 0;
    check->computed = true;
    check->bytes = ngd_plan_elements(t) > 0 ? (last + 1) * size : 0;
    check->at = exec->staging_bytes;
    exec->staging_bytes += ngd_ascend_align(before + check->bytes);
}

/* Rows of padding have slot -1, in the input's own dtype. */
static ngd_status_t mark_slots(struct ascend_exec *exec, const struct ascend_check *check, struct ngd_diag *diag)
{
    const ngd_dtype_t dtype = exec->plan->tensors[check->tensor].dtype;

    if (exec->plan->inputs[check->input].row_sym != NGD_NO_ROW_SYM && (dtype == NGD_U8 || dtype == NGD_BOOL))
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED,
                            "device %s: node %u (%s): rows of padding have slot -1, which a slot of %s cannot be. Give "
                            "slots as i32",
                            exec->dev->name, check->node, check->call->op->name, ngd_dtype_name(dtype));
    exec->is_slot[check->input] = true;
    return NGD_OK;
}

/* ---- checks of an executable --------------------------------------------------------------------- */

/* Compares the rows of each launch, not only the largest number of rows. */
static bool same_rows(const struct ngd_plan_tensor *a, const struct ngd_plan_tensor *b)
{
    return a->dims[0] == b->dims[0] && a->row_sym == b->row_sym && a->row_mult == b->row_mult;
}

/* All layers of a decoder have the same table and lengths. */
static bool is_repeated(const struct ascend_exec *exec, const struct ascend_check *check)
{
    const struct ngd_plan_call *call = check->call;

    for (uint32_t i = 0; i < exec->n_checks; i++) {
        const struct ascend_check *other = &exec->checks[i];

        if (other->kind == ASCEND_CHECK_TABLE && other->tensor == check->tensor && other->limit == check->limit &&
            other->call->host[4] == call->host[4] && other->call->host[5] == call->host[5] &&
            ngd_call_int(other->call, "block_size") == ngd_call_int(call, "block_size") &&
            same_rows(&exec->plan->tensors[other->call->in[0]], &exec->plan->tensors[call->in[0]]))
            return true;
    }
    return false;
}

static ngd_status_t add_check(struct ascend_exec *exec, const struct ngd_plan_call *call, struct ngd_diag *diag)
{
    struct ascend_check *check = &exec->checks[exec->n_checks];
    const char *why;
    uint32_t operand;

    if (!describe_check(exec->plan, call, check, &operand))
        return NGD_OK;
    check->tensor = check->operand = call->in[operand];
    if (find_input(exec->plan, &check->tensor, &check->input)) {
        ngd_status_t status = check->kind == ASCEND_CHECK_SLOT ? mark_slots(exec, check, diag) : NGD_OK;

        if (status)
            return status;
        check->at = exec->in_at[check->input];
    } else {
        check->tensor = check->operand;
        why = why_not_computed(exec, check);
        if (why)
            return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED,
                                "device %s: node %u (%s): its indices are computed on the device: %s. Give them as an "
                                "input of the graph",
                                exec->dev->name, call->node, call->op->name, why);
        stage_check(exec, check);
        exec->computed_of[call - exec->plan->calls] = check;
    }
    check->repeated = check->kind == ASCEND_CHECK_TABLE && is_repeated(exec, check);
    exec->n_checks++;
    return NGD_OK;
}

static const struct ascend_check *check_of(const struct ascend_exec *exec, const struct ngd_plan_call *call)
{
    for (uint32_t i = 0; i < exec->n_checks; i++)
        if (exec->checks[i].call == call)
            return &exec->checks[i];
    return NULL;
}

/* Nothing but indices of the same dimension, counted from its end too, reads the input. */
static bool is_alone(const struct ascend_exec *exec, const struct ascend_check *check)
{
    const struct ngd_plan *plan = exec->plan;
    const uint32_t root = plan->tensors[check->tensor].root;

    for (uint32_t o = 0; o < plan->graph->n_outputs; o++)
        if (plan->tensors[plan->outputs[o].tensor].root == root)
            return false;
    for (uint32_t i = 0; i < plan->n_calls; i++) {
        const struct ascend_check *other = check_of(exec, &plan->calls[i]);

        for (uint32_t k = 0; k < plan->calls[i].n_in; k++) {
            uint32_t t = plan->calls[i].in[k];

            if (t == NGD_PLAN_NONE || plan->tensors[t].root != root)
                continue;
            if (!other || other->operand != t || other->computed || !other->from_end || other->limit != check->limit ||
                other->limit_sym != check->limit_sym || other->limit_mult != check->limit_mult)
                return false;
        }
    }
    return true;
}

/* Who makes indices that count from the end others: the host, the device, or nobody: then there are none. */
static void choose_fold(struct ascend_exec *exec, struct ascend_check *check)
{
    const bool bucketed = check->limit_sym != NGD_NO_ROW_SYM;

    check->fold = check->from_end && !check->computed && check->operand == check->tensor && is_alone(exec, check);
    check->guarded = check->computed || (check->from_end && !check->fold && !bucketed && check->limit > 0);
    check->from_end &= check->fold || !bucketed; /* a device does not know how many rows a launch has */
    exec->guarded[check->call - exec->plan->calls] = check->guarded;
}

static ngd_status_t place_rowmaps(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const uint32_t n = exec->plan->graph->n_inputs;

    exec->rowmap_at = ngd_arena_alloc(&exec->arena, (n + 1) * sizeof(*exec->rowmap_at));
    if (!exec->rowmap_at)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i <= n; i++)
        exec->rowmap_at[i] = UINT64_MAX;
    for (uint32_t i = 0; i < exec->n_checks; i++) {
        const struct ascend_check *check = &exec->checks[i];
        const struct ngd_plan_tensor *t = &exec->plan->tensors[check->tensor];

        if (check->kind != ASCEND_CHECK_SLOT || exec->rowmap_at[check->input] != UINT64_MAX ||
            !ngd_ascend_scatters_by_rows(exec->dev, exec->plan, check->call))
            continue;
        /* Rows by a map cannot all be without a slot, which launches may have. */
        if (exec->dev->skips_slots)
            return ngd_diag_set(
                diag, NGD_ERR_OP_UNSUPPORTED,
                "device %s: node %u (%s): aclnnScatterPaKvCache does not take these caches on %s: they must be f16 or "
                "bf16, and have as many rows as the graph writes (more blocks, or fewer rows of the graph)",
                exec->dev->name, check->node, check->call->op->name, ngd_chip_info(exec->dev->chip)->name);
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
    exec->computed_of = ngd_arena_calloc(&exec->arena, exec->plan->n_calls + 1, sizeof(*exec->computed_of));
    exec->guarded = ngd_arena_calloc(&exec->arena, exec->plan->n_calls + 1, sizeof(*exec->guarded));
    if (!exec->checks || !exec->computed_of || !exec->guarded)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i < exec->plan->n_calls && status == NGD_OK; i++)
        status = add_check(exec, &exec->plan->calls[i], diag);
    /* Padding of slots is -1, which as an index is outside of everything. */
    for (uint32_t i = 0; i < exec->n_checks && status == NGD_OK; i++)
        if (exec->checks[i].kind != ASCEND_CHECK_SLOT && !exec->checks[i].computed &&
            exec->is_slot[exec->checks[i].input])
            status = ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device %s: an input holds both slots and indices",
                                  exec->dev->name);
    /* Each looks at the others as they were described. */
    for (uint32_t i = exec->n_checks; i-- > 0 && status == NGD_OK;)
        choose_fold(exec, &exec->checks[i]);
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

static int64_t load_index(const char *p, ngd_dtype_t dtype)
{
    int64_t v64;
    int32_t v32;

    switch (dtype) {
    case NGD_I64:
        memcpy(&v64, p, 8);
        return v64;
    case NGD_I32:
        memcpy(&v32, p, 4);
        return v32;
    case NGD_I8:
        return *(const int8_t *)p;
    default: /* u8 and bool: one byte, unsigned */
        return *(const uint8_t *)p;
    }
}

/* Where element n, row-major, is in the staging memory. */
static char *staged_place(const struct ascend_inst *inst, const struct ascend_check *check,
                          const struct ngd_plan_tensor *t, int64_t n)
{
    const struct ascend_exec *exec = inst->exec;
    const struct ngd_plan_tensor *root = &exec->plan->tensors[t->root];
    int64_t at = 0, size = (int64_t)ngd_dtype_bytes(t->dtype);

    for (uint32_t i = t->rank; i-- > 0;) {
        at += n % t->dims[i] * t->strides[i];
        n /= t->dims[i];
    }
    return inst->staging + check->at + (t->offset - root->offset) + at * size;
}

static int64_t staged_element(const struct ascend_inst *inst, const struct ascend_check *check,
                              const struct ngd_plan_tensor *t, int64_t n)
{
    return load_index(staged_place(inst, check, t, n), t->dtype);
}

int64_t ngd_ascend_staged_index(const struct ascend_inst *inst, const struct ascend_check *check, int64_t n)
{
    return staged_element(inst, check, &inst->exec->plan->tensors[check->tensor], n);
}

static void store_index(char *p, ngd_dtype_t dtype, int64_t v64)
{
    int32_t v32 = (int32_t)v64;

    if (dtype == NGD_I64)
        memcpy(p, &v64, 8);
    else if (dtype == NGD_I32)
        memcpy(p, &v32, 4);
    else
        *(uint8_t *)p = (uint8_t)v64;
}

int64_t ngd_ascend_launch_rows(const struct ngd_plan_tensor *t, const struct ngd_launch *launch)
{
    if (t->row_sym != NGD_NO_ROW_SYM)
        return launch->symbols[t->row_sym] * t->row_mult;
    return t->rank ? t->dims[0] : 1;
}

static int64_t limit_of_launch(const struct ascend_check *check, const struct ngd_launch *launch)
{
    return check->limit_sym == NGD_NO_ROW_SYM ? check->limit : launch->symbols[check->limit_sym] * check->limit_mult;
}

/* Of rows of padding too, which repeat the last row. */
static void fold_elements(const struct ascend_inst *inst, const struct ascend_check *check,
                          const struct ngd_launch *launch)
{
    const struct ngd_plan_tensor *t = &inst->exec->plan->tensors[check->tensor];
    const int64_t all = ngd_plan_elements(t), limit = limit_of_launch(check, launch);

    for (int64_t i = 0; i < all; i++) {
        int64_t v = staged_element(inst, check, t, i);

        if (v < 0)
            store_index(staged_place(inst, check, t, i), t->dtype, v + limit);
    }
}

static ngd_status_t check_elements(const struct ascend_inst *inst, const struct ascend_check *check,
                                   struct ngd_launch *launch)
{
    const struct ngd_plan_tensor *t = &inst->exec->plan->tensors[check->tensor];
    int64_t rows = t->rank ? t->dims[0] : 1, all = ngd_plan_elements(t),
            n = rows ? all / rows * ngd_ascend_launch_rows(t, launch) : 0;
    int64_t limit = limit_of_launch(check, launch);

    for (int64_t i = 0; i < n; i++) {
        int64_t v = staged_element(inst, check, t, i);

        if (check->kind == ASCEND_CHECK_SLOT && v == -1)
            continue;
        if (v < (check->from_end ? -limit : 0) || v >= limit)
            return out_of_range(check, launch, v);
    }
    return NGD_OK;
}

/* The blocks that each sequence's context reaches, and the lists themselves. */
static ngd_status_t check_attention_table(const struct ascend_inst *inst, const struct ascend_check *check,
                                          struct ngd_launch *launch)
{
    const struct ngd_plan *plan = inst->exec->plan;
    const struct ngd_plan_tensor *table = &plan->tensors[check->tensor], *q = &plan->tensors[check->call->in[0]];
    const struct ngd_host_value *queries = &launch->hosts[check->call->host[4]],
                                *keys = &launch->hosts[check->call->host[5]];
    int64_t width = table->dims[1], block = ngd_call_int(check->call, "block_size"), last = 0,
            rows = ngd_ascend_launch_rows(q, launch);

    for (uint32_t s = 0; s < queries->n; s++) {
        int64_t n = queries->values[s] - last, context = keys->values[s];

        if (n < 0 || queries->values[s] > rows)
            return out_of_range(check, launch, queries->values[s]);
        if (n == 0)
            continue; /* nobody reads its context */
        if (context < n || context > width * block)
            return out_of_range(check, launch, context);
        last = queries->values[s];
        for (int64_t b = 0; b * block < context; b++) {
            int64_t v = staged_element(inst, check, table, (int64_t)s * width + b);

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

        if (check->computed || check->repeated)
            continue;
        status = check->kind == ASCEND_CHECK_TABLE ? check_attention_table(inst, check, launch)
                                                   : check_elements(inst, check, launch);
        if (status == NGD_OK && check->fold)
            fold_elements(inst, check, launch);
    }
    return status;
}

ngd_status_t ngd_ascend_check_computed(const struct ascend_inst *inst, struct ngd_launch *launch)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < inst->exec->n_checks && status == NGD_OK; i++)
        if (inst->exec->checks[i].computed)
            status = check_elements(inst, &inst->exec->checks[i], launch);
    return status;
}

static ngd_status_t map_rows(const struct ascend_inst *inst, const struct ascend_check *check,
                             struct ngd_launch *launch)
{
    const struct ngd_plan_tensor *t = &inst->exec->plan->tensors[check->tensor];
    const uint64_t before = t->offset - inst->exec->plan->tensors[t->root].offset;
    int32_t *slots = (int32_t *)(void *)(inst->staging + inst->exec->in_at[check->input] + before);
    int32_t *map = (int32_t *)(void *)(inst->staging + inst->exec->rowmap_at[check->input]);
    int32_t n = (int32_t)ngd_ascend_launch_rows(t, launch), valid = 0;

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
