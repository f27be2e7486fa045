/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assigns the memory of a plan.
 *
 * Step i is call i. Inputs are copied into the pool before step 0. Outputs are read after the last call, at step
 * n_calls; so are inputs that keep their storage (option clone_input). A root is live from the step that makes it to
 * the last step that touches it or a view of it.
 *
 * Reuse in place: the result of an elementwise call may take over the storage of an operand whose root is not touched
 * afterwards. Element i of the result must then depend only on element i of that storage: every operand in that storage
 * has the result's dtype and shape and begins at its first byte. The result of an update (NGD_OPF_UPDATE) may take over
 * the storage of operand 0 if no other operand is in it. The result's root becomes the operand's root, so that both are
 * one block with one lifetime.
 *
 * With several streams the order of steps is one of many. The uses of a root on each stream are recorded too
 * (plan_order.h). A root's life has ended when all its uses have ended on all streams.
 */
#include "base/mem.h"
#include "graphs/memplan.h"
#include "graphs/plan_int.h"
#include "graphs/plan_order.h"
#include <string.h>

struct life {
    uint32_t first, last; /* first > last: never touched */
};

struct memory {
    struct ngd_plan *plan;
    struct life *life;         /* indexed by root */
    uint32_t *moved;           /* indexed by root: the root whose storage it uses; itself by default */
    struct ngd_plan_uses uses; /* several streams: storages are roots, then calls' workspaces */
    uint32_t *storage_of;      /* several streams: indexed by block, the storage in `uses` */
};

static uint32_t storage(const struct memory *m, uint32_t tensor)
{
    return m->moved[m->plan->tensors[tensor].root];
}

static bool has_streams(const struct memory *m)
{
    return m->plan->n_streams > 1;
}

static void touch_step(struct memory *m, uint32_t tensor, uint32_t step)
{
    struct life *l = &m->life[storage(m, tensor)];
    if (l->first > step)
        l->first = step;
    if (l->last < step)
        l->last = step;
}

static void touch_tensor(struct memory *m, uint32_t tensor, uint32_t call)
{
    if (tensor == NGD_PLAN_NONE)
        return;
    if (has_streams(m))
        ngd_plan_uses_add(&m->uses, m->plan, storage(m, tensor), call);
    touch_step(m, tensor, call);
}

/* Records that an input is there before the first call on any stream, or that an output is read after all calls. */
static void touch_io(struct memory *m, uint32_t tensor, uint32_t step)
{
    if (tensor == NGD_PLAN_NONE)
        return;
    if (has_streams(m) && step == 0)
        m->uses.comes[storage(m, tensor)] = true;
    if (has_streams(m) && step == m->plan->n_calls)
        m->uses.stays[storage(m, tensor)] = true;
    touch_step(m, tensor, step);
}

static void find_tensor_lives(struct memory *m, bool keep_inputs)
{
    struct ngd_plan *plan = m->plan;

    for (uint32_t i = 0; i < plan->n_tensors; i++) {
        m->life[i] = (struct life){.first = UINT32_MAX, .last = 0};
        m->moved[i] = i;
    }
    for (uint32_t i = 0; i < plan->graph->n_inputs; i++)
        touch_io(m, plan->inputs[i].tensor, 0);
    for (uint32_t i = 0; i < plan->graph->n_inputs && keep_inputs; i++)
        touch_io(m, plan->inputs[i].tensor, plan->n_calls);
    for (uint32_t c = 0; c < plan->n_calls; c++) {
        for (uint32_t i = 0; i < plan->calls[c].n_in; i++)
            touch_tensor(m, plan->calls[c].in[i], c);
        for (uint32_t i = 0; i < plan->calls[c].n_out; i++)
            touch_tensor(m, plan->calls[c].out[i], c);
    }
    for (uint32_t i = 0; i < plan->graph->n_outputs; i++)
        touch_io(m, plan->outputs[i].tensor, plan->n_calls);
}

/* ---- in place ---- */

static bool same_elements(const struct ngd_plan_tensor *a, const struct ngd_plan_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0 &&
           ngd_plan_contiguous(a) && ngd_plan_contiguous(b);
}

/* Returns true if result `out` of call c may take over the storage of root r. */
static bool can_take(const struct memory *m, uint32_t c, const struct ngd_plan_tensor *out, uint32_t r)
{
    const struct ngd_plan_call *call = &m->plan->calls[c];
    const struct ngd_plan_tensor *root = &m->plan->tensors[r];

    if (root->space != NGD_SPACE_POOL || m->life[r].last != c || root->bytes != out->bytes || out->bytes == 0)
        return false;
    if (has_streams(m) && !ngd_plan_uses_end_with(&m->uses, m->plan, r, c))
        return false;
    for (uint32_t i = 0; i < call->n_in; i++) {
        const struct ngd_plan_tensor *t;

        if (call->in[i] == NGD_PLAN_NONE || storage(m, call->in[i]) != r)
            continue;
        t = &m->plan->tensors[call->in[i]];
        if (t->offset != 0 || !same_elements(t, out) || (i > 0 && (call->op->flags & NGD_OPF_UPDATE)))
            return false;
    }
    return true;
}

static void reuse_operand(struct memory *m, uint32_t c)
{
    const struct ngd_plan_call *call = &m->plan->calls[c];
    uint32_t out;

    if (!(call->op->flags & (NGD_OPF_ELEMENTWISE | NGD_OPF_UPDATE)) || call->op->mutates || call->n_out != 1)
        return;
    out = call->out[0];
    if (m->plan->tensors[out].root != out) /* it has a place already: in a cat's result, or in a state */
        return;
    for (uint32_t i = 0; i < call->n_in; i++) {
        uint32_t r = call->in[i] == NGD_PLAN_NONE ? NGD_PLAN_NONE : storage(m, call->in[i]);

        if (r == NGD_PLAN_NONE || !can_take(m, c, &m->plan->tensors[out], r))
            continue;
        m->moved[out] = r;
        m->life[r].last = m->life[out].last;
        if (has_streams(m))
            ngd_plan_uses_merge(&m->uses, r, out);
        return;
    }
}

/* ---- offsets ---- */

static bool is_pool_root(const struct memory *m, uint32_t t)
{
    return m->plan->tensors[t].space == NGD_SPACE_POOL && m->plan->tensors[t].root == t && m->moved[t] == t &&
           m->life[t].first <= m->life[t].last;
}

/* Makes the blocks of roots in the order of tensors, then those of workspaces in the order of calls. take_places()
 * reads them back in this order. */
static uint32_t make_blocks(struct memory *m, struct ngd_memplan_block *blocks)
{
    uint32_t n = 0;

    for (uint32_t t = 0; t < m->plan->n_tensors; t++) {
        if (!is_pool_root(m, t))
            continue;
        if (has_streams(m))
            m->storage_of[n] = t;
        blocks[n++] = (struct ngd_memplan_block){
            .bytes = m->plan->tensors[t].bytes, .first = m->life[t].first, .last = m->life[t].last};
    }
    for (uint32_t c = 0; c < m->plan->n_calls; c++) {
        if (!m->plan->calls[c].workspace_bytes)
            continue;
        if (has_streams(m)) {
            m->storage_of[n] = m->plan->n_tensors + c;
            ngd_plan_uses_add(&m->uses, m->plan, m->plan->n_tensors + c, c);
        }
        blocks[n++] = (struct ngd_memplan_block){.bytes = m->plan->calls[c].workspace_bytes, .first = c, .last = c};
    }
    return n;
}

/* ---- several streams ---- */

static bool block_before(const void *ctx, uint32_t a, uint32_t b)
{
    const struct memory *m = ctx;

    return ngd_plan_uses_before(&m->uses, m->plan, m->storage_of[a], m->storage_of[b]);
}

/* Lists the calls of each stream, in their order. */
static void list_calls(const struct ngd_plan *plan, uint32_t *calls, const uint32_t **calls_of, uint32_t *n_of)
{
    for (uint32_t u = 0; u < plan->n_streams; u++) {
        calls_of[u] = calls;
        n_of[u] = 0;
        for (uint32_t c = 0; c < plan->n_calls; c++)
            if (plan->calls[c].scope.stream == u)
                calls[n_of[u]++] = c;
        calls += n_of[u];
    }
}

/* Finds the last step that may run before each block's last use. until: indexed by block. */
static ngd_status_t find_order(const struct memory *m, const struct ngd_memplan_block *blocks, uint32_t n,
                               uint32_t *until)
{
    const uint32_t *calls_of[NGD_GRAPH_MAX_STREAMS];
    uint32_t *calls = NGD_NEW_N(uint32_t, m->plan->n_calls), n_of[NGD_GRAPH_MAX_STREAMS];

    if (!calls)
        return NGD_ERR_NO_MEMORY;
    list_calls(m->plan, calls, calls_of, n_of);
    for (uint32_t i = 0; i < n; i++) {
        until[i] = ngd_plan_uses_until(&m->uses, m->plan, calls_of, n_of, m->storage_of[i]);
        if (until[i] < blocks[i].last) /* an input that no call reads */
            until[i] = blocks[i].last;
    }
    ngd_free(calls);
    return NGD_OK;
}

static void take_places(struct memory *m, const struct ngd_memplan_block *blocks)
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

/* Uses the offsets of an earlier plan, after checking that they are valid for these blocks. */
static ngd_status_t use_layout(struct ngd_plan *plan, const struct ngd_plan_layout *layout,
                               const struct ngd_memplan_order *order, struct ngd_memplan_block *blocks, uint32_t n)
{
    uint64_t top = 0, sum = 0;
    ngd_status_t status;

    if (layout->n_blocks != n)
        return NGD_ERR_FILE_CORRUPT;
    for (uint32_t i = 0; i < n; i++)
        blocks[i].offset = layout->offsets[i];
    status = ngd_memplan_check_streams(blocks, n, NGD_PLAN_ALIGN, order, layout->pool_bytes);
    if (status)
        return status;
    for (uint32_t i = 0; i < n; i++) {
        if (blocks[i].bytes && top < blocks[i].offset + blocks[i].bytes)
            top = blocks[i].offset + blocks[i].bytes;
        if (__builtin_add_overflow(sum, blocks[i].bytes + NGD_PLAN_ALIGN - 1, &sum))
            sum = UINT64_MAX;
    }
    /* A larger pool would be safe. But one that is larger than its blocks, or has large gaps, wastes memory. */
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

/* Makes new offsets. With several streams an independent check verifies them. */
static ngd_status_t make_layout(struct ngd_plan *plan, const struct ngd_memplan_order *order,
                                struct ngd_memplan_block *blocks, uint32_t n)
{
    ngd_status_t status =
        ngd_memplan_streams(blocks, n, NGD_PLAN_ALIGN, order, &plan->pool_bytes, &plan->live_peak_bytes);

    if (!status && order && ngd_memplan_check_streams(blocks, n, NGD_PLAN_ALIGN, order, plan->pool_bytes))
        status = NGD_ERR_INTERNAL;
    return status;
}

static ngd_status_t place_tensors(struct memory *m, const struct ngd_plan_layout *layout,
                                  struct ngd_memplan_block *blocks, uint32_t *until)
{
    struct ngd_memplan_order order = {.until = until, .before = block_before, .ctx = m}, *o = until ? &order : NULL;
    uint32_t n = make_blocks(m, blocks);
    ngd_status_t status = o ? find_order(m, blocks, n, until) : NGD_OK;

    if (status)
        return status;
    status = layout ? use_layout(m->plan, layout, o, blocks, n) : make_layout(m->plan, o, blocks, n);
    if (!status)
        status = keep_layout(m->plan, blocks, n);
    if (!status)
        take_places(m, blocks);
    return status;
}

static ngd_status_t assign_memory(struct memory *m, bool inplace, bool keep_inputs,
                                  const struct ngd_plan_layout *layout)
{
    size_t most = (size_t)m->plan->n_tensors + m->plan->n_calls;
    struct ngd_memplan_block *blocks = NGD_NEW_N(struct ngd_memplan_block, most);
    uint32_t *until = has_streams(m) ? NGD_NEW_N(uint32_t, most) : NULL;
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (blocks && (until || !has_streams(m))) {
        find_tensor_lives(m, keep_inputs);
        for (uint32_t c = 0; inplace && c < m->plan->n_calls; c++)
            reuse_operand(m, c);
        status = place_tensors(m, layout, blocks, until);
    }
    ngd_free(until);
    ngd_free(blocks);
    return status;
}

ngd_status_t ngd_plan_assign_memory(struct ngd_plan *plan, bool inplace, bool keep_inputs,
                                    const struct ngd_plan_layout *layout)
{
    struct memory m = {.plan = plan};
    uint32_t most = plan->n_tensors + plan->n_calls;
    ngd_status_t status = NGD_OK;

    m.life = NGD_NEW_N(struct life, plan->n_tensors);
    m.moved = NGD_NEW_N(uint32_t, plan->n_tensors);
    if (has_streams(&m)) {
        m.storage_of = NGD_NEW_N(uint32_t, most);
        status = ngd_plan_uses_init(&m.uses, most, plan->n_streams);
    }
    if (!m.life || !m.moved || (has_streams(&m) && !m.storage_of))
        status = NGD_ERR_NO_MEMORY;
    if (!status)
        status = assign_memory(&m, inplace, keep_inputs, layout);
    ngd_plan_uses_fini(&m.uses);
    ngd_free(m.storage_of);
    ngd_free(m.moved);
    ngd_free(m.life);
    return status;
}
