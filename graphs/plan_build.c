/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a plan from a graph and a key, in one pass over the nodes in their order:
 *
 *   - every dimension and attribute is evaluated at the key's symbols;
 *   - unneeded nodes are left out; a node is needed if it mutates a state, or if an output or a needed node
 *     reads one of its results;
 *   - a view operator becomes a tensor that shares its operand's root if strides can express the view;
 *     otherwise a contiguous copy (aten.clone) is made first;
 *   - any other operator becomes a call. The target decides which operands may keep their strides. Copies of
 *     the others are made once and shared by later calls, until their original is written (see `version`);
 *   - outputs of the plan are made contiguous and distinct.
 *
 * The order of calls is the order of nodes, so a read of a state sees exactly the writes before it. A read
 * through a view sees later writes. A read of a copy (a reshape that strides cannot express) does not. Therefore
 * a write through such a copy is refused: it would be lost.
 */
#include "base/mem.h"
#include "base/stop.h"
#include "graphs/op_int.h"
#include "graphs/plan_deadlock.h"
#include "graphs/plan_int.h"
#include "graphs/plan_streams.h"
#include <inttypes.h>
#include <string.h>

struct tensor_info {
    uint32_t copy;         /* contiguous copy of this tensor, or NGD_PLAN_NONE */
    uint32_t copy_version; /* the root's version when the copy was made */
    uint32_t version;      /* roots: number of writes to the storage so far */
    bool is_output;
};

struct build {
    struct ngd_plan *plan;
    const struct ngd_graph *graph;
    const struct ngd_plan_target *target;
    const struct ngd_graph_options *options; /* NULL: no passes */
    bool inplace;                            /* results may take the storage of operands */
    const struct ngd_plan_layout *layout;    /* of an earlier plan, or NULL */
    struct ngd_place *places;                /* indexed by value */
    uint8_t *fates;                          /* indexed by node: ngd_node_fate_t */
    struct ngd_diag *diag;
    bool *value_needed;
    uint32_t *tensor_of; /* indexed by value */
    struct tensor_info *info;
    uint32_t cap_tensors, cap_calls;
    struct ngd_node_scope scope;  /* scope of the calls being made */
    struct ngd_plan_syncs *syncs; /* NULL: one stream */
};

/* ---- diagnoses ---- */

static ngd_status_t plan_no_memory(struct build *b)
{
    return ngd_diag_set(b->diag, NGD_ERR_NO_MEMORY, "no host memory for the plan of graph %s (%" PRIu32 " nodes)",
                        b->graph->name, b->graph->n_nodes);
}

static ngd_status_t fail_at_node(struct build *b, uint32_t node, ngd_status_t status, const char *text)
{
    if (node == NGD_PLAN_NONE)
        return ngd_diag_set(b->diag, status, "outputs of graph %s: %s", b->graph->name, text);
    return ngd_op_fail(b->graph, &b->graph->nodes[node], b->diag, status, "%s", text);
}

/* ---- tensors ---- */

static ngd_status_t grow_tensors(struct build *b)
{
    uint32_t cap = b->cap_tensors * 2;
    struct ngd_plan_tensor *tensors;
    struct tensor_info *info;

    if (b->plan->n_tensors < b->cap_tensors) {
        ngd_move_array((void **)&b->plan->tensors, b->cap_tensors * sizeof(*tensors));
        ngd_move_array((void **)&b->info, b->cap_tensors * sizeof(*info));
        return NGD_OK;
    }
    tensors = ngd_reallocarray(b->plan->tensors, cap, sizeof(*tensors));
    if (!tensors)
        return plan_no_memory(b);
    b->plan->tensors = tensors;
    info = ngd_reallocarray(b->info, cap, sizeof(*info));
    if (!info)
        return plan_no_memory(b);
    b->info = info;
    b->cap_tensors = cap;
    return NGD_OK;
}

/* Appends a tensor. t->root NGD_PLAN_NONE: it is its own root. */
static ngd_status_t add_plan_tensor(struct build *b, const struct ngd_plan_tensor *t, uint32_t *tensor_p)
{
    uint32_t i = b->plan->n_tensors;
    ngd_status_t status = grow_tensors(b);

    if (status)
        return status;
    b->plan->tensors[i] = *t;
    if (t->root == NGD_PLAN_NONE)
        b->plan->tensors[i].root = i;
    b->info[i] = (struct tensor_info){.copy = NGD_PLAN_NONE};
    b->plan->n_tensors++;
    *tensor_p = i;
    return NGD_OK;
}

static ngd_status_t eval_dim(struct build *b, const char *name, uint32_t i, ngd_dim_t dim, int64_t *size_p)
{
    ngd_status_t status = ngd_expr_eval(b->graph->exprs, dim, b->plan->symbols, size_p);

    if (status)
        return ngd_diag_set(b->diag, status, "%%%s: dimension %" PRIu32 " cannot be computed: %s", name, i,
                            ngd_status_text(status));
    if (*size_p < 0)
        return ngd_diag_set(b->diag, NGD_ERR_GUARD_FAILED, "%%%s: dimension %" PRIu32 " would be %" PRId64, name, i,
                            *size_p);
    return NGD_OK;
}

static void set_tensor_rows(const struct ngd_graph *graph, const struct ngd_type *type, struct ngd_plan_tensor *t)
{
    uint32_t symbol;
    int64_t mult;

    t->row_sym = NGD_NO_ROW_SYM;
    t->row_mult = 0;
    if (type->rank == 0 || !ngd_expr_is_multiple(graph->exprs, type->dims[0], &symbol, &mult))
        return;
    if (graph->symbols[symbol].policy != NGD_SYMBOL_BUCKETS)
        return;
    t->row_sym = (uint8_t)symbol;
    t->row_mult = mult;
}

/* Makes the contiguous root tensor that a value's type describes. */
static ngd_status_t tensor_of_value(struct build *b, uint32_t value, struct ngd_plan_tensor *t)
{
    const struct ngd_value *v = &b->graph->values[value];
    ngd_status_t status;

    *t = (struct ngd_plan_tensor){.dtype = v->type.dtype, .rank = v->type.rank, .root = NGD_PLAN_NONE};
    for (uint32_t i = 0; i < v->type.rank; i++) {
        status = eval_dim(b, v->name, i, v->type.dims[i], &t->dims[i]);
        if (status)
            return status;
    }
    set_tensor_rows(b->graph, &v->type, t);
    ngd_plan_set_contiguous(t);
    if (ngd_plan_set_extent(t))
        return ngd_diag_set(b->diag, NGD_ERR_OVERFLOW, "%%%s: its size exceeds 63 bits", v->name);
    return NGD_OK;
}

static ngd_status_t add_value(struct build *b, uint32_t value, ngd_plan_space_t space, uint32_t bound)
{
    struct ngd_plan_tensor t;
    ngd_status_t status = tensor_of_value(b, value, &t);

    if (status)
        return status;
    t.space = space;
    t.bound = bound;
    return add_plan_tensor(b, &t, &b->tensor_of[value]);
}

static struct ngd_plan_tensor *root_tensor(const struct build *b, uint32_t tensor)
{
    return &b->plan->tensors[b->plan->tensors[tensor].root];
}

/* ---- attributes ---- */

static ngd_status_t eval_attr(struct build *b, uint32_t node, const struct ngd_attr_schema *schema, ngd_dim_t dim,
                              int64_t *value_p)
{
    ngd_status_t status = ngd_expr_eval(b->graph->exprs, dim, b->plan->symbols, value_p);

    if (!status)
        return NGD_OK;
    return ngd_op_fail(b->graph, &b->graph->nodes[node], b->diag, status, "attribute %s cannot be computed: %s",
                       schema->name, ngd_status_text(status));
}

static ngd_status_t concrete_list(struct build *b, uint32_t node, const struct ngd_attr_schema *schema,
                                  struct ngd_attr_value *a)
{
    const int64_t *from = a->list;
    int64_t *to = ngd_arena_calloc(b->plan->arena, a->n, sizeof(*to));
    ngd_status_t status = NGD_OK;

    if (!to)
        return plan_no_memory(b);
    for (uint32_t i = 0; i < a->n && !status; i++)
        status = eval_attr(b, node, schema, from[i], &to[i]);
    a->list = to;
    return status;
}

/* Makes concrete copies of a node's attributes. Strings are not copied: the plan has a reference on the graph. */
static ngd_status_t concrete_attrs(struct build *b, uint32_t node, const struct ngd_attr_value **attrs_p)
{
    const struct ngd_node *n = &b->graph->nodes[node];
    struct ngd_attr_value *attrs = ngd_arena_calloc(b->plan->arena, n->op->n_attrs, sizeof(*attrs));
    ngd_status_t status = NGD_OK;

    if (!attrs)
        return plan_no_memory(b);
    for (uint32_t i = 0; i < n->op->n_attrs && !status; i++) {
        const struct ngd_attr_schema *schema = &n->op->attrs[i];

        attrs[i] = n->attrs[i];
        if (schema->type == NGD_ATTR_INT)
            status = eval_attr(b, node, schema, n->attrs[i].i, &attrs[i].i);
        else if (schema->type == NGD_ATTR_INTS)
            status = concrete_list(b, node, schema, &attrs[i]);
    }
    *attrs_p = attrs;
    return status;
}

/* ---- calls ---- */

static ngd_status_t append_call(struct build *b, const struct ngd_plan_call *call)
{
    if (b->plan->n_calls == b->cap_calls) {
        uint32_t cap = b->cap_calls * 2;
        struct ngd_plan_call *calls = ngd_reallocarray(b->plan->calls, cap, sizeof(*calls));

        if (!calls)
            return plan_no_memory(b);
        b->plan->calls = calls;
        b->cap_calls = cap;
    }
    b->plan->calls[b->plan->n_calls] = *call;
    b->plan->calls[b->plan->n_calls].scope = b->scope;
    if (b->syncs && ngd_plan_syncs_call(b->syncs, b->plan->n_calls, b->scope.stream))
        return fail_at_node(b, call->node, NGD_ERR_INTERNAL, "its stream waits more often than the graph says");
    b->plan->n_calls++;
    return NGD_OK;
}

/* Asks the target about a call. Puts the node's name in front of a refusal. */
static ngd_status_t ask_target(struct build *b, struct ngd_plan_call *call, uint32_t *strided_p)
{
    struct ngd_diag why; /* a kilobyte, so only its beginning is cleared */
    ngd_status_t status;

    why.status = NGD_OK;
    why.text[0] = '\0';
    *strided_p = 0;
    call->workspace_bytes = 0;
    call->scope = b->scope; /* a call's workspace may depend on its cores */
    status = b->target->select(b->target->ctx, b->plan, call, strided_p, &call->workspace_bytes, &why);
    if (status)
        return fail_at_node(b, call->node, status, why.text[0] ? why.text : ngd_status_text(status));
    if (call->workspace_bytes > INT64_MAX)
        return fail_at_node(b, call->node, NGD_ERR_OVERFLOW, "its workspace exceeds 63 bits");
    return NGD_OK;
}

/* Appends a call that copies the elements of one tensor to another of the same shape. */
static ngd_status_t add_clone(struct build *b, uint32_t from, uint32_t to, uint32_t node)
{
    const struct ngd_op *clone = ngd_op_by_id(NGD_OP_ATEN_CLONE);
    uint32_t *ids = ngd_arena_calloc(b->plan->arena, 3, sizeof(*ids));
    struct ngd_plan_call call = {.op = clone, .node = node, .n_in = 1, .n_out = 1};
    uint32_t strided;
    ngd_status_t status;

    call.attrs = ngd_arena_calloc(b->plan->arena, clone->n_attrs, sizeof(*call.attrs));
    if (!ids || !call.attrs)
        return plan_no_memory(b);
    ids[0] = from;
    ids[1] = to;
    ids[2] = NGD_PLAN_NONE;
    call.in = &ids[0];
    call.out = &ids[1];
    call.host = &ids[2];
    status = ask_target(b, &call, &strided);
    if (!status && !(strided & 1u) && !ngd_plan_contiguous(&b->plan->tensors[from]))
        status = fail_at_node(b, node, NGD_ERR_OP_UNSUPPORTED, "the device cannot copy a strided tensor");
    return status ? status : append_call(b, &call);
}

/* Appends a contiguous pool tensor, and a call that copies the elements of `from` into it. */
static ngd_status_t add_copy(struct build *b, uint32_t from, uint32_t node, uint32_t *copy_p)
{
    struct ngd_plan_tensor t = b->plan->tensors[from];
    ngd_status_t status;

    t.root = NGD_PLAN_NONE;
    t.space = NGD_SPACE_POOL;
    t.bound = 0;
    t.offset = 0;
    ngd_plan_set_contiguous(&t);
    if (ngd_plan_set_extent(&t)) /* the copy of an expanded tensor may be larger than its storage */
        return fail_at_node(b, node, NGD_ERR_OVERFLOW, "the size of a contiguous copy of its operand exceeds 63 bits");
    status = add_plan_tensor(b, &t, copy_p);
    return status ? status : add_clone(b, from, *copy_p, node);
}

/* Gives a contiguous copy of `from`. Uses an earlier copy if the original has not been written since. */
static ngd_status_t shared_copy(struct build *b, uint32_t from, uint32_t node, uint32_t *copy_p)
{
    uint32_t version = b->info[b->plan->tensors[from].root].version;
    ngd_status_t status;

    if (b->info[from].copy == NGD_PLAN_NONE || b->info[from].copy_version != version) {
        uint32_t copy;

        status = add_copy(b, from, node, &copy);
        if (status)
            return status;
        b->info[from].copy = copy; /* add_copy may have moved info */
        b->info[from].copy_version = version;
    }
    *copy_p = b->info[from].copy;
    return NGD_OK;
}

static bool tensors_overlap(const struct ngd_plan_tensor *a, const struct ngd_plan_tensor *b)
{
    return a->root == b->root && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Returns true if operand i reads storage that another operand of the call writes. A kernel could see either value. */
static bool reads_what_is_written(const struct build *b, const struct ngd_plan_call *call, uint32_t i)
{
    for (uint32_t k = 0; k < call->n_in && k < 32; k++) {
        if (!(call->op->mutates & (1u << k)) || k == i || call->in[k] == NGD_PLAN_NONE)
            continue;
        if (tensors_overlap(&b->plan->tensors[call->in[i]], &b->plan->tensors[call->in[k]]))
            return true;
    }
    return false;
}

/* Refuses operands that the call cannot write. Validation has refused the first two kinds, but a pass could bring them
 * back, and they would lose or mix up data. */
static ngd_status_t check_mutated(struct build *b, const struct ngd_plan_call *call, uint32_t i, uint32_t strided)
{
    const struct ngd_plan_tensor *t = &b->plan->tensors[call->in[i]];
    const char *why = NULL;
    ngd_status_t status = NGD_ERR_GRAPH_MUTATION;

    if (root_tensor(b, call->in[i])->space != NGD_SPACE_BOUND ||
        root_tensor(b, call->in[i])->bound < b->graph->n_params)
        why = "is not a state or a view of one (a reshape of a strided view is a copy)";
    for (uint32_t d = 0; d < t->rank; d++)
        if (t->strides[d] == 0 && t->dims[d] > 1)
            why = "is an expanded view, whose elements share memory";
    if (!why && !(strided & (1u << i)) && !ngd_plan_contiguous(t)) {
        why = "is a strided view, which the device cannot write with this operator";
        status = NGD_ERR_OP_UNSUPPORTED;
    }
    if (!why)
        return NGD_OK;
    return ngd_op_fail(b->graph, &b->graph->nodes[call->node], b->diag, status,
                       "operand %" PRIu32 ", which it writes, %s", i + 1, why);
}

static ngd_status_t settle_operand(struct build *b, const struct ngd_plan_call *call, uint32_t i, uint32_t strided,
                                   uint32_t *in)
{
    uint32_t bit = i < 32 ? 1u << i : 0;

    if (in[i] == NGD_PLAN_NONE)
        return NGD_OK;
    if (call->op->mutates & bit)
        return check_mutated(b, call, i, strided);
    if (((strided & bit) || ngd_plan_contiguous(&b->plan->tensors[in[i]])) && !reads_what_is_written(b, call, i))
        return NGD_OK;
    return shared_copy(b, in[i], call->node, &in[i]);
}

/* ---- nodes ---- */

static ngd_status_t gather_operands(struct build *b, const struct ngd_node *n, struct ngd_plan_call *call,
                                    uint32_t **in_p)
{
    uint32_t *in = ngd_arena_calloc(b->plan->arena, n->n_in, sizeof(*in));
    uint32_t *host = ngd_arena_calloc(b->plan->arena, n->n_in, sizeof(*host));

    if (!in || !host)
        return plan_no_memory(b);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct ngd_value *v = ngd_node_has(n, i) ? &b->graph->values[n->in[i]] : NULL;

        in[i] = v && v->cls != NGD_VALUE_HOST ? b->tensor_of[n->in[i]] : NGD_PLAN_NONE;
        host[i] = v && v->cls == NGD_VALUE_HOST ? v->ordinal : NGD_PLAN_NONE;
    }
    call->n_in = n->n_in;
    call->in = *in_p = in;
    call->host = host;
    return NGD_OK;
}

/* Adds a result in the storage of another value: a state, or a cat's result, whose storage the first part makes. */
static ngd_status_t add_placed(struct build *b, uint32_t value, const struct ngd_place *place, uint32_t *tensor_p)
{
    const struct ngd_plan_tensor *base;
    struct ngd_plan_tensor t;
    ngd_status_t status = NGD_OK;

    if (b->tensor_of[place->into] == NGD_PLAN_NONE)
        status = add_value(b, place->into, NGD_SPACE_POOL, 0);
    if (!status)
        status = tensor_of_value(b, value, &t);
    if (status)
        return status;
    base = &b->plan->tensors[b->tensor_of[place->into]];
    t.root = base->root;
    t.space = base->space;
    t.bound = base->bound;
    t.offset = base->offset + place->offset;
    if (place->strided) {
        memcpy(t.strides, base->strides, sizeof(t.strides));
        if (ngd_plan_set_extent(&t))
            return ngd_diag_set(b->diag, NGD_ERR_OVERFLOW, "%%%s: its extent exceeds 63 bits",
                                b->graph->values[value].name);
    }
    if (t.space == NGD_SPACE_BOUND)
        b->info[t.root].version++;
    return add_plan_tensor(b, &t, tensor_p);
}

static ngd_status_t make_call_results(struct build *b, const struct ngd_node *n, struct ngd_plan_call *call)
{
    uint32_t *out = ngd_arena_calloc(b->plan->arena, n->n_out, sizeof(*out));
    ngd_status_t status = NGD_OK;

    if (!out)
        return plan_no_memory(b);
    for (uint32_t i = 0; i < n->n_out && !status; i++) {
        uint32_t v = n->out[i];

        status = b->places[v].into == NGD_VALUE_NONE ? add_value(b, v, NGD_SPACE_POOL, 0)
                                                     : add_placed(b, v, &b->places[v], &b->tensor_of[v]);
        out[i] = b->tensor_of[n->out[i]];
    }
    call->n_out = n->n_out;
    call->out = out;
    return status;
}

static void note_writes(struct build *b, const struct ngd_plan_call *call)
{
    for (uint32_t i = 0; i < call->n_in && i < 32; i++)
        if ((call->op->mutates & (1u << i)) && call->in[i] != NGD_PLAN_NONE)
            b->info[b->plan->tensors[call->in[i]].root].version++;
}

static ngd_status_t build_call(struct build *b, uint32_t node)
{
    const struct ngd_node *n = &b->graph->nodes[node];
    struct ngd_plan_call call = {.op = n->op, .node = node};
    uint32_t *in = NULL, strided = 0;
    ngd_status_t status = concrete_attrs(b, node, &call.attrs);

    if (!status)
        status = gather_operands(b, n, &call, &in);
    if (!status)
        status = make_call_results(b, n, &call);
    if (!status)
        status = ask_target(b, &call, &strided);
    for (uint32_t i = 0; !status && i < n->n_in; i++)
        status = settle_operand(b, &call, i, strided, in);
    if (!status)
        status = append_call(b, &call);
    if (!status)
        note_writes(b, &call);
    return status;
}

/* Copies those operands of a cat into its result that were not made in it. */
static ngd_status_t fill_cat(struct build *b, uint32_t node)
{
    const struct ngd_node *n = &b->graph->nodes[node];
    const struct ngd_plan_tensor *base = &b->plan->tensors[b->tensor_of[n->out[0]]];
    uint32_t axis = ngd_op_known_axis(n, "dim", base->rank), part;
    const uint64_t step = (uint64_t)base->strides[axis] * ngd_dtype_bytes(base->dtype);
    struct ngd_place place = {.into = n->out[0], .strided = true};
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < n->n_in && !status; i++) {
        const struct ngd_place *made = &b->places[n->in[i]];
        uint32_t from = b->tensor_of[n->in[i]];

        if (made->into != place.into || made->offset != place.offset) {
            status = add_placed(b, n->in[i], &place, &part);
            if (!status)
                status = add_clone(b, from, part, node);
        }
        place.offset += step * (uint64_t)b->plan->tensors[from].dims[axis];
    }
    return status;
}

static ngd_status_t build_view_result(struct build *b, const struct ngd_plan_call *call, uint32_t src, uint32_t result)
{
    uint32_t value = b->graph->nodes[call->node].out[result];
    struct ngd_plan_tensor t;
    ngd_status_t status = tensor_of_value(b, value, &t);

    if (status)
        return status;
    if (!ngd_plan_view(&b->plan->tensors[src], call, result, &t)) {
        status = shared_copy(b, src, call->node, &src);
        if (!status && !ngd_plan_view(&b->plan->tensors[src], call, result, &t))
            status =
                fail_at_node(b, call->node, NGD_ERR_INTERNAL, "strides cannot express a view of a contiguous tensor");
        if (status)
            return status;
    }
    t.root = b->plan->tensors[src].root;
    t.space = b->plan->tensors[src].space;
    t.bound = b->plan->tensors[src].bound;
    if (ngd_plan_set_extent(&t))
        return fail_at_node(b, call->node, NGD_ERR_OVERFLOW, "the extent of its result exceeds 63 bits");
    return add_plan_tensor(b, &t, &b->tensor_of[value]);
}

static ngd_status_t build_view(struct build *b, uint32_t node)
{
    const struct ngd_node *n = &b->graph->nodes[node];
    struct ngd_plan_call call = {.op = n->op, .node = node};
    ngd_status_t status;

    if (!ngd_plan_view_known(n->op))
        return fail_at_node(b, node, NGD_ERR_INTERNAL, "the planner has no rule for this view operator");
    status = concrete_attrs(b, node, &call.attrs);
    for (uint32_t i = 0; !status && i < n->n_out; i++)
        if (b->value_needed[n->out[i]])
            status = build_view_result(b, &call, b->tensor_of[n->in[0]], i);
    return status;
}

/* Marks the needed nodes, from the last to the first. */
static void mark_needed(struct build *b, bool *node_needed)
{
    const struct ngd_graph *g = b->graph;

    for (uint32_t i = 0; i < g->n_outputs; i++)
        b->value_needed[g->outputs[i].value] = true;
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const struct ngd_node *n = &g->nodes[i];

        node_needed[i] = n->op->mutates != 0 || (n->op->flags & NGD_OPF_COLLECTIVE);
        for (uint32_t k = 0; k < n->n_out; k++)
            node_needed[i] = node_needed[i] || b->value_needed[n->out[k]];
        for (uint32_t k = 0; node_needed[i] && k < n->n_in; k++)
            if (ngd_node_has(n, k))
                b->value_needed[n->in[k]] = true;
    }
}

static ngd_status_t build_node_call(struct build *b, uint32_t node)
{
    const struct ngd_node *n = &b->graph->nodes[node];
    const ngd_status_t stop = ngd_stop_check();

    b->scope = n->scope;
    if (stop)
        return stop;
    if (b->fates[node] == NGD_NODE_FILLED)
        return fill_cat(b, node);
    return n->op->flags & NGD_OPF_VIEW ? build_view(b, node) : build_call(b, node);
}

static ngd_status_t build_event(struct build *b, uint32_t node)
{
    if (b->syncs && ngd_plan_syncs_node(b->syncs, &b->graph->nodes[node]))
        return fail_at_node(b, node, NGD_ERR_INTERNAL, "its event is not recorded above");
    return NGD_OK;
}

static ngd_status_t build_nodes(struct build *b)
{
    bool *needed = ngd_calloc(b->graph->n_nodes, sizeof(*needed));
    ngd_status_t status = NGD_OK;

    if (!needed)
        return plan_no_memory(b);
    mark_needed(b, needed);
    if (ngd_plan_choose_places(b->plan, b->options, b->target, needed, b->places, b->fates))
        status = plan_no_memory(b);
    for (uint32_t i = 0; i < b->graph->n_nodes && !status; i++) {
        if (b->graph->nodes[i].op->flags & NGD_OPF_EVENT)
            status = build_event(b, i);
        else if (needed[i] && b->fates[i] != NGD_NODE_SKIPPED)
            status = build_node_call(b, i);
    }
    b->scope = (struct ngd_node_scope){0}; /* the copies for outputs follow, after the streams have joined */
    ngd_free(needed);
    return status;
}

/* ---- inputs and outputs ---- */

static ngd_status_t build_inputs(struct build *b)
{
    const struct ngd_graph *g = b->graph;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < g->n_params && !status; i++)
        status = add_value(b, g->params[i], NGD_SPACE_BOUND, i);
    for (uint32_t i = 0; i < g->n_states && !status; i++)
        status = add_value(b, g->states[i], NGD_SPACE_BOUND, g->n_params + i);
    for (uint32_t i = 0; i < g->n_inputs && !status; i++)
        status = add_value(b, g->inputs[i], NGD_SPACE_POOL, 0);
    return status;
}

static void fill_io(const struct ngd_plan *plan, uint32_t tensor, struct ngd_plan_io *io)
{
    const struct ngd_plan_tensor *t = &plan->tensors[tensor];
    uint64_t row = ngd_dtype_bytes(t->dtype);

    for (uint32_t i = 1; i < t->rank; i++)
        row *= (uint64_t)t->dims[i];
    *io = (struct ngd_plan_io){
        .tensor = tensor, .bytes = t->bytes, .row_bytes = row, .row_sym = t->row_sym, .row_mult = t->row_mult};
}

/* Gives a tensor that can be an output: contiguous, in the pool, and no other output. Makes a copy if necessary. */
static ngd_status_t output_tensor(struct build *b, const struct ngd_graph_output *output, uint32_t *tensor_p)
{
    const struct ngd_value *v = &b->graph->values[output->value];
    uint32_t node = v->cls == NGD_VALUE_NODE ? v->node : NGD_PLAN_NONE, t = b->tensor_of[output->value];
    ngd_status_t status = NGD_OK;

    if (t == NGD_PLAN_NONE)
        return ngd_diag_set(b->diag, NGD_ERR_INVALID_ARGUMENT,
                            "output %s: %%%s is a host parameter, which has no tensor", output->name, v->name);
    if (b->plan->tensors[t].space == NGD_SPACE_BOUND || !ngd_plan_contiguous(&b->plan->tensors[t]) ||
        b->info[t].is_output)
        status = shared_copy(b, t, node, &t);
    if (!status && b->info[t].is_output)
        status = add_copy(b, t, node, &t);
    if (!status)
        b->info[t].is_output = true;
    *tensor_p = t;
    return status;
}

static ngd_status_t build_io(struct build *b)
{
    struct ngd_plan *plan = b->plan;
    const struct ngd_graph *g = b->graph;
    uint32_t n_bound = g->n_params + g->n_states, tensor = NGD_PLAN_NONE;
    ngd_status_t status;

    plan->inputs = ngd_arena_calloc(plan->arena, g->n_inputs, sizeof(*plan->inputs));
    plan->outputs = ngd_arena_calloc(plan->arena, g->n_outputs, sizeof(*plan->outputs));
    plan->bound = ngd_arena_calloc(plan->arena, n_bound, sizeof(*plan->bound));
    if (!plan->inputs || !plan->outputs || !plan->bound)
        return plan_no_memory(b);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        fill_io(plan, b->tensor_of[g->inputs[i]], &plan->inputs[i]);
    for (uint32_t i = 0; i < n_bound; i++)
        fill_io(plan, b->tensor_of[i < g->n_params ? g->params[i] : g->states[i - g->n_params]], &plan->bound[i]);
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        status = output_tensor(b, &g->outputs[i], &tensor);
        if (status)
            return status;
        fill_io(plan, tensor, &plan->outputs[i]);
    }
    return NGD_OK;
}

/* ---- the build ---- */

static ngd_status_t run_build(struct build *b)
{
    ngd_status_t status = build_inputs(b);

    if (!status)
        status = build_nodes(b);
    if (!status)
        status = build_io(b);
    if (status)
        return status;
    status = ngd_plan_place_waits(b->plan, b->syncs);
    if (!status && b->options && b->options->deadlock_check) {
        status = ngd_plan_check_deadlock(b->plan, b->target, b->diag);
        if (status == NGD_ERR_GRAPH_DEADLOCK)
            return status;
    }
    if (!status)
        status = ngd_plan_assign_memory(b->plan, b->inplace, b->options && !b->options->clone_input, b->layout);
    if (!status)
        status = ngd_plan_estimate(b->plan);
    if (status == NGD_ERR_NO_MEMORY)
        return plan_no_memory(b);
    if (status == NGD_ERR_INTERNAL)
        return ngd_diag_set(b->diag, status,
                            "graph %s: the memory plan makes streams share bytes that both use at the same time; "
                            "please report it",
                            b->graph->name);
    if (status == NGD_ERR_FILE_CORRUPT)
        return ngd_diag_set(b->diag, status, "graph %s: the stored memory layout belongs to another plan",
                            b->graph->name);
    if (status)
        return ngd_diag_set(b->diag, status, "graph %s: the memory that it needs exceeds 62 bits", b->graph->name);
    return NGD_OK;
}

/* Reserves a tensor for each value and a call for each node; a plan rarely has more. */
static ngd_status_t make_plan_room(struct build *b)
{
    uint32_t n_values = b->graph->n_values, n_nodes = b->graph->n_nodes;

    b->places = ngd_reallocarray(NULL, n_values + 1u, sizeof(*b->places));
    b->fates = ngd_calloc(n_nodes + 1u, sizeof(*b->fates));
    b->value_needed = ngd_calloc(n_values + 1u, sizeof(*b->value_needed));
    b->tensor_of = ngd_reallocarray(NULL, n_values + 1u, sizeof(*b->tensor_of));
    b->cap_tensors = n_values + n_values / 8 + 16;
    b->cap_calls = n_nodes + n_nodes / 8 + 16;
    b->plan->tensors = ngd_reallocarray(NULL, b->cap_tensors, sizeof(*b->plan->tensors));
    b->plan->calls = ngd_reallocarray(NULL, b->cap_calls, sizeof(*b->plan->calls));
    b->info = ngd_reallocarray(NULL, b->cap_tensors, sizeof(*b->info));
    if (!b->places || !b->fates || !b->value_needed || !b->tensor_of || !b->plan->tensors || !b->plan->calls ||
        !b->info)
        return plan_no_memory(b);
    memset(b->tensor_of, 0xff, n_values * sizeof(*b->tensor_of));
    if (b->graph->n_streams > 1 && ngd_plan_syncs_create(b->graph, &b->syncs))
        return plan_no_memory(b);
    return NGD_OK;
}

ngd_status_t ngd_plan_build(struct ngd_plan *plan, const struct ngd_graph_options *options,
                            const struct ngd_plan_target *target, const struct ngd_plan_layout *layout,
                            struct ngd_diag *diag)
{
    struct build b = {
        .plan = plan, .graph = plan->graph, .target = target, .options = options, .layout = layout, .diag = diag};
    ngd_status_t status;

    if (options)
        plan->matmul_precision = (uint8_t)options->matmul_precision;
    b.inplace = target->inplace && (!options || options->inplace_pass);
    status = make_plan_room(&b);
    if (!status)
        status = run_build(&b);
    ngd_plan_syncs_destroy(b.syncs);
    ngd_free(b.info);
    ngd_free(b.tensor_of);
    ngd_free(b.value_needed);
    ngd_free(b.places);
    ngd_free(b.fates);
    return status;
}
