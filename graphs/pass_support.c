/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a target about an operator before there is a plan, by making a plan of that one call with contiguous tensors. */
#include "base/mem.h"
#include "graphs/pass.h"
#include "graphs/plan_int.h"
#include <string.h>

struct question {
    struct ngd_plan plan;
    struct ngd_plan_call call;
    uint32_t in[NGD_GRAPH_MAX_OPERANDS], host[NGD_GRAPH_MAX_OPERANDS], out[NGD_GRAPH_MAX_OPERANDS];
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS];
    struct ngd_plan_tensor tensors[2 * NGD_GRAPH_MAX_OPERANDS];
    int64_t lists[NGD_OP_MAX_ATTRS][256];
};

static bool add_question_tensor(struct ngd_pass_context *ctx, struct question *q, uint32_t value, uint32_t *tensor_p)
{
    const struct ngd_type *type = ngd_rewrite_type(ctx->rw, value);
    struct ngd_plan_tensor *t = &q->tensors[q->plan.n_tensors];

    *t = (struct ngd_plan_tensor){
        .dtype = type->dtype, .rank = type->rank, .row_sym = NGD_NO_ROW_SYM, .root = q->plan.n_tensors};
    for (uint32_t i = 0; i < type->rank; i++)
        if (ngd_expr_eval(ctx->rw->g->exprs, type->dims[i], ctx->symbols, &t->dims[i]) || t->dims[i] < 0)
            return false;
    ngd_plan_set_contiguous(t);
    if (ngd_plan_set_extent(t))
        return false;
    *tensor_p = q->plan.n_tensors++;
    return true;
}

static bool add_operands(struct ngd_pass_context *ctx, struct question *q, const struct ngd_node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct ngd_value *v = n->in[i] == NGD_VALUE_NONE ? NULL : &ctx->rw->g->values[n->in[i]];

        q->in[i] = q->host[i] = NGD_PLAN_NONE;
        if (v && v->cls == NGD_VALUE_HOST)
            q->host[i] = v->ordinal;
        else if (v && !add_question_tensor(ctx, q, n->in[i], &q->in[i]))
            return false;
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        if (!add_question_tensor(ctx, q, n->out[i], &q->out[i]))
            return false;
    return true;
}

static bool add_attrs(struct ngd_pass_context *ctx, struct question *q, const struct ngd_node *n)
{
    for (uint32_t i = 0; i < n->op->n_attrs; i++) {
        q->attrs[i] = n->attrs[i];
        if (n->op->attrs[i].type == NGD_ATTR_INT &&
            ngd_expr_eval(ctx->rw->g->exprs, n->attrs[i].i, ctx->symbols, &q->attrs[i].i))
            return false;
        if (n->op->attrs[i].type != NGD_ATTR_INTS)
            continue;
        for (uint32_t k = 0; k < n->attrs[i].n; k++)
            if (ngd_expr_eval(ctx->rw->g->exprs, n->attrs[i].list[k], ctx->symbols, &q->lists[i][k]))
                return false;
        q->attrs[i].list = q->lists[i];
    }
    return true;
}

/* Makes a plan of one call, which the caller frees. NULL: no memory, or a dimension cannot be computed. */
static struct question *ask_backend(struct ngd_pass_context *ctx, uint32_t node)
{
    const struct ngd_node *n = ngd_rewrite_node(ctx->rw, node);
    struct question *q = ngd_malloc(sizeof(*q));

    if (!q)
        return NULL;
    memset(&q->plan, 0, sizeof(q->plan));
    q->plan.graph = ctx->rw->g;
    q->plan.tensors = q->tensors;
    if (ctx->rw->g->n_symbols)
        memcpy(q->plan.symbols, ctx->symbols, ctx->rw->g->n_symbols * sizeof(ctx->symbols[0]));
    if (!add_operands(ctx, q, n) || !add_attrs(ctx, q, n)) {
        ngd_free(q);
        return NULL;
    }
    q->call = (struct ngd_plan_call){.op = n->op,
                                     .node = node,
                                     .n_in = n->n_in,
                                     .n_out = n->n_out,
                                     .in = q->in,
                                     .out = q->out,
                                     .host = q->host,
                                     .attrs = q->attrs};
    return q;
}

bool ngd_pass_supported(struct ngd_pass_context *ctx, uint32_t node)
{
    struct question *q;
    uint32_t strided = 0;
    uint64_t workspace = 0;
    bool yes;

    if (ngd_rewrite_node(ctx->rw, node)->op->flags & NGD_OPF_VIEW)
        return true;
    q = ask_backend(ctx, node);
    yes = q && !ctx->target->select(ctx->target->ctx, &q->plan, &q->call, &strided, &workspace, NULL);
    ngd_free(q);
    return yes;
}

void ngd_pass_work(struct ngd_pass_context *ctx, uint32_t node, double *flops_p, double *bytes_p)
{
    struct question *q = ask_backend(ctx, node);

    *flops_p = *bytes_p = 0;
    if (q)
        ngd_plan_call_work(&q->plan, &q->call, flops_p, bytes_p);
    ngd_free(q);
}
