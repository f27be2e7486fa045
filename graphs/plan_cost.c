/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates a plan's work, for scheduling and benchmarks. Floating-point operations: two for each multiplication
 * with addition in matrix products and attention, one for each element of other results. Weight bytes: the bytes
 * of parameters that a replay reads at least once; an embedding reads only the rows that it looks up.
 */
#include "base/mem.h"
#include "graphs/op_traits.h"
#include "graphs/plan_int.h"

static const struct ngd_plan_tensor *in(const struct ngd_cost *c, uint32_t i)
{
    return &c->plan->tensors[c->call->in[i]];
}

static double out_elements(const struct ngd_cost *c)
{
    double n = 0;

    for (uint32_t i = 0; i < c->call->n_out; i++)
        n += (double)ngd_plan_elements(&c->plan->tensors[c->call->out[i]]);
    return n;
}

static double product_of(const struct ngd_cost *c, uint32_t operand)
{
    const struct ngd_plan_tensor *a = in(c, operand);

    return 2 * out_elements(c) * (double)(a->rank ? a->dims[a->rank - 1] : 1);
}

double ngd_flops_mm(const struct ngd_cost *c)
{
    return product_of(c, 0);
}
double ngd_flops_addmm(const struct ngd_cost *c)
{
    return product_of(c, 1);
}
/* Two products of the same size: gate and up. */
double ngd_flops_two(const struct ngd_cost *c)
{
    return 2 * product_of(c, 0);
}

double ngd_flops_bmm(const struct ngd_cost *c)
{
    const struct ngd_attr_value *perm = ngd_call_ints(c->call, "perm_x1");

    return 2 * out_elements(c) * (double)in(c, 0)->dims[perm->n ? perm->list[2] : 2];
}

/* Context lengths arrive with the replay, so the estimate is half of what the block tables can hold. */
double ngd_flops_attention(const struct ngd_cost *c)
{
    const struct ngd_plan_tensor *cache = in(c, 1), *table = in(c, 3);
    double context = cache->rank > 1 && table->rank > 1 ? (double)cache->dims[1] * (double)table->dims[1] / 2 : 1;
    double rope = c->call->n_in > 6 && c->call->in[6] != NGD_PLAN_NONE ? (double)ngd_plan_elements(in(c, 6)) : 0;

    return (4 * out_elements(c) + 2 * rope) * context;
}

/* Counts each query with all keys. */
double ngd_flops_sdpa(const struct ngd_cost *c)
{
    const struct ngd_plan_tensor *q = in(c, 0), *k = in(c, 1), *v = in(c, 2);
    const double keys = (double)k->dims[k->rank - 2], v_size = (double)v->dims[v->rank - 1];

    return 2 * keys * (out_elements(c) + (v_size > 0 ? out_elements(c) / v_size * (double)q->dims[q->rank - 1] : 0));
}

static uint64_t bytes_read(const struct ngd_cost *c, uint32_t i)
{
    uint64_t all = c->plan->tensors[in(c, i)->root].bytes, rows;

    if (i != 0 || !ngd_op_traits[c->call->op->id].gathers || c->call->n_out == 0)
        return all;
    rows = c->plan->tensors[c->call->out[0]].bytes;
    return rows < all ? rows : all;
}

/* Adds a call's work. read[p]: the most bytes of parameter p that any one call reads. */
static void add_call(const struct ngd_cost *c, uint64_t *read, double *flops)
{
    double (*rule)(const struct ngd_cost *) = ngd_op_traits[c->call->op->id].flops;

    *flops += rule ? rule(c) : out_elements(c);
    for (uint32_t i = 0; i < c->call->n_in; i++) {
        const struct ngd_plan_tensor *t = c->call->in[i] == NGD_PLAN_NONE ? NULL : in(c, i);
        uint64_t bytes;

        if (!t || t->space != NGD_SPACE_BOUND || t->bound >= c->plan->graph->n_params)
            continue;
        bytes = bytes_read(c, i);
        if (read[t->bound] < bytes)
            read[t->bound] = bytes;
    }
}

void ngd_plan_call_work(const struct ngd_plan *plan, const struct ngd_plan_call *call, double *flops_p, double *bytes_p)
{
    const struct ngd_cost c = {plan, call};
    double (*rule)(const struct ngd_cost *) = ngd_op_traits[call->op->id].flops;
    double bytes = 0;

    for (uint32_t i = 0; i < call->n_in; i++)
        if (call->in[i] != NGD_PLAN_NONE)
            bytes += (double)bytes_read(&c, i);
    for (uint32_t i = 0; i < call->n_out; i++)
        bytes += (double)plan->tensors[call->out[i]].bytes;
    *flops_p = rule ? rule(&c) : out_elements(&c);
    *bytes_p = bytes;
}

ngd_status_t ngd_plan_estimate(struct ngd_plan *plan)
{
    uint64_t *read = NGD_NEW_N(uint64_t, plan->graph->n_params);
    double flops = 0;

    if (!read)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < plan->n_calls; i++)
        add_call(&(struct ngd_cost){plan, &plan->calls[i]}, read, &flops);
    plan->weight_bytes = 0;
    for (uint32_t i = 0; i < plan->graph->n_params; i++)
        if (__builtin_add_overflow(plan->weight_bytes, read[i], &plan->weight_bytes))
            plan->weight_bytes = UINT64_MAX;
    plan->flops = flops < 0x1p63 ? (uint64_t)flops : INT64_MAX;
    ngd_free(read);
    return NGD_OK;
}
