/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a plan.
 *
 * Step i is call i; inputs are copied into the pool before step 0, and outputs are read after the last call,
 * at step n_calls. A root lives from the step that makes it to the last step that touches it or a view of it.
 *
 * Reuse in place: the result of an elementwise call may take over the storage of an operand whose root nobody
 * touches afterwards. Element i of the result must then need element i of that storage only: every operand in that
 * storage has the result's dtype and shape and covers it from its first byte on. The result's root becomes the
 * operand's root, so that both are one block with one lifetime.
 */
#include "base/mem.h"
#include "graphs/memplan.h"
#include "graphs/plan_int.h"
#include <string.h>

struct life {
    uint32_t first, last; /* first > last: never touched */
};

struct memory {
    struct ngd_plan *plan;
    struct life *life; /* by root */
    uint32_t *moved;   /* by root: the root whose storage it uses; itself by default */
};

static uint32_t storage(const struct memory *m, uint32_t tensor)
{
    return m->moved[m->plan->tensors[tensor].root];
}

static void touch(struct memory *m, uint32_t tensor, uint32_t step)
{
    struct life *l;

    if (tensor == NGD_PLAN_NONE)
        return;
    l = &m->life[storage(m, tensor)];
    if (l->first > step)
        l->first = step;
    if (l->last < step)
        l->last = step;
}

static void find_lives(struct memory *m)
{
    struct ngd_plan *plan = m->plan;

    for (uint32_t i = 0; i < plan->n_tensors; i++) {
        m->life[i] = (struct life){.first = UINT32_MAX, .last = 0};
        m->moved[i] = i;
    }
    for (uint32_t i = 0; i < plan->graph->n_inputs; i++)
        touch(m, plan->inputs[i].tensor, 0);
    for (uint32_t c = 0; c < plan->n_calls; c++) {
        for (uint32_t i = 0; i < plan->calls[c].n_in; i++)
            touch(m, plan->calls[c].in[i], c);
        for (uint32_t i = 0; i < plan->calls[c].n_out; i++)
            touch(m, plan->calls[c].out[i], c);
    }
    for (uint32_t i = 0; i < plan->graph->n_outputs; i++)
        touch(m, plan->outputs[i].tensor, plan->n_calls);
}

/* ---- in place ---- */

static bool same_elements(const struct ngd_plan_tensor *a, const struct ngd_plan_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0 &&
           ngd_plan_contiguous(a) && ngd_plan_contiguous(b);
}

/* Result `out` of call c may take the storage of root r. */
static bool can_take(const struct memory *m, uint32_t c, const struct ngd_plan_tensor *out, uint32_t r)
{
    const struct ngd_plan_call *call = &m->plan->calls[c];
    const struct ngd_plan_tensor *root = &m->plan->tensors[r];

    if (root->space != NGD_SPACE_POOL || m->life[r].last != c || root->bytes != out->bytes || out->bytes == 0)
        return false;
    for (uint32_t i = 0; i < call->n_in; i++) {
        const struct ngd_plan_tensor *t;

        if (call->in[i] == NGD_PLAN_NONE || storage(m, call->in[i]) != r)
            continue;
        t = &m->plan->tensors[call->in[i]];
        if (t->offset != 0 || !same_elements(t, out))
            return false;
    }
    return true;
}

static void reuse_operand(struct memory *m, uint32_t c)
{
    const struct ngd_plan_call *call = &m->plan->calls[c];
    uint32_t out;

    if (!(call->op->flags & NGD_OPF_ELEMENTWISE) || call->op->mutates || call->n_out != 1)
        return;
    out = call->out[0];
    if (m->plan->tensors[out].root != out) /* it is placed already: part of a cat, or a state */
        return;
    for (uint32_t i = 0; i < call->n_in; i++) {
        uint32_t r = call->in[i] == NGD_PLAN_NONE ? NGD_PLAN_NONE : storage(m, call->in[i]);

        if (r == NGD_PLAN_NONE || !can_take(m, c, &m->plan->tensors[out], r))
            continue;
        m->moved[out] = r;
        m->life[r].last = m->life[out].last;
        return;
    }
}

/* ---- offsets ---- */

static bool is_pool_root(const struct memory *m, uint32_t t)
{
    return m->plan->tensors[t].space == NGD_SPACE_POOL && m->plan->tensors[t].root == t && m->moved[t] == t &&
           m->life[t].first <= m->life[t].last;
}

/* The blocks of roots in the order of tensors, then those of workspaces in the order of calls; take() reads them back.
 */
static uint32_t make_blocks(const struct memory *m, struct ngd_memplan_block *blocks)
{
    uint32_t n = 0;

    for (uint32_t t = 0; t < m->plan->n_tensors; t++)
        if (is_pool_root(m, t))
            blocks[n++] = (struct ngd_memplan_block){
                .bytes = m->plan->tensors[t].bytes, .first = m->life[t].first, .last = m->life[t].last};
    for (uint32_t c = 0; c < m->plan->n_calls; c++)
        if (m->plan->calls[c].workspace_bytes)
            blocks[n++] = (struct ngd_memplan_block){.bytes = m->plan->calls[c].workspace_bytes, .first = c, .last = c};
    return n;
}

static void take(struct memory *m, const struct ngd_memplan_block *blocks)
{
    struct ngd_plan *plan = m->plan;
    uint32_t n = 0;

    for (uint32_t t = 0; t < plan->n_tensors; t++)
        if (is_pool_root(m, t))
            plan->tensors[t].offset = blocks[n++].offset;
    for (uint32_t c = 0; c < plan->n_calls; c++)
        if (plan->calls[c].workspace_bytes)
            plan->calls[c].workspace_offset = blocks[n++].offset;
    for (uint32_t t = 0; t < plan->n_tensors; t++) {
        uint32_t r = storage(m, t);

        if (plan->tensors[t].space == NGD_SPACE_POOL && r != t)
            plan->tensors[t].offset += plan->tensors[r].offset;
        plan->tensors[t].root = r;
    }
}

/* The offsets of an earlier plan, once it is shown that they are good for these blocks too. */
static ngd_status_t use_layout(struct ngd_plan *plan, const struct ngd_plan_layout *layout,
                               struct ngd_memplan_block *blocks, uint32_t n)
{
    uint64_t top = 0, sum = 0;
    ngd_status_t status;

    if (layout->n_blocks != n)
        return NGD_ERR_FILE_CORRUPT;
    for (uint32_t i = 0; i < n; i++)
        blocks[i].offset = layout->offsets[i];
    status = ngd_memplan_check(blocks, n, NGD_PLAN_ALIGN, layout->pool_bytes);
    if (status)
        return status;
    for (uint32_t i = 0; i < n; i++) {
        if (blocks[i].bytes && top < blocks[i].offset + blocks[i].bytes)
            top = blocks[i].offset + blocks[i].bytes;
        if (__builtin_add_overflow(sum, blocks[i].bytes + NGD_PLAN_ALIGN - 1, &sum))
            sum = UINT64_MAX;
    }
    /* A pool of any size would be safe; one that is larger than its blocks, or has them far apart, only takes memory
     * away. */
    if (layout->pool_bytes - top >= NGD_PLAN_ALIGN || layout->pool_bytes > sum)
        return NGD_ERR_FILE_CORRUPT;
    plan->pool_bytes = layout->pool_bytes;
    plan->live_peak_bytes = layout->live_peak_bytes;
    return NGD_OK;
}

static ngd_status_t keep_layout(struct ngd_plan *plan, const struct ngd_memplan_block *blocks, uint32_t n)
{
    uint64_t *offsets = ngd_arena_calloc(plan->arena, n, sizeof(*offsets));

    if (!offsets)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++)
        offsets[i] = blocks[i].offset;
    plan->layout = (struct ngd_plan_layout){
        .n_blocks = n, .offsets = offsets, .pool_bytes = plan->pool_bytes, .live_peak_bytes = plan->live_peak_bytes};
    return NGD_OK;
}

static ngd_status_t place(struct memory *m, const struct ngd_plan_layout *layout)
{
    struct ngd_plan *plan = m->plan;
    struct ngd_memplan_block *blocks = NGD_NEW_N(struct ngd_memplan_block, (size_t)plan->n_tensors + plan->n_calls);
    ngd_status_t status;
    uint32_t n;

    if (!blocks)
        return NGD_ERR_NO_MEMORY;
    n = make_blocks(m, blocks);
    status = layout ? use_layout(plan, layout, blocks, n)
                    : ngd_memplan(blocks, n, NGD_PLAN_ALIGN, &plan->pool_bytes, &plan->live_peak_bytes);
    if (!status)
        status = keep_layout(plan, blocks, n);
    if (!status)
        take(m, blocks);
    ngd_free(blocks);
    return status;
}

ngd_status_t ngd_plan_assign_memory(struct ngd_plan *plan, bool inplace, const struct ngd_plan_layout *layout)
{
    struct memory m = {.plan = plan};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    m.life = NGD_NEW_N(struct life, plan->n_tensors);
    m.moved = NGD_NEW_N(uint32_t, plan->n_tensors);
    if (m.life && m.moved) {
        find_lives(&m);
        for (uint32_t c = 0; inplace && c < plan->n_calls; c++)
            reuse_operand(&m, c);
        status = place(&m, layout);
    }
    ngd_free(m.moved);
    ngd_free(m.life);
    return status;
}
