/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu.scatter_pa_kv_cache: writes rows of keys and values to their slots of a paged cache, cast to its dtype or
 * quantised, with a scale for each head of a row.
 *
 * Parts divide each row, not the rows: if two rows name the same slot, the later one must win, whichever thread writes.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_cast.h"
#include "devices/host/kernels/k_kv_quant.h"
#include <string.h>

struct scatter {
    int64_t elements[2];               /* of a row; key, value */
    int64_t src_size, dst_size;        /* bytes of an element */
    int64_t src_row[2];                /* bytes */
    int64_t dst_block[2], dst_slot[2]; /* bytes */
    int64_t block_size, slots;
    int64_t slot_step; /* elements of slot_mapping */
    ngd_nd_fn cast;    /* NULL: the types are equal */
    /* Of a cache with scales: */
    const struct ngd_kv_quant_table *quant;
    ngd_dtype_t from, to;
    int64_t heads, d[2];
    int64_t src_head[2], scale_block[2], scale_head[2]; /* bytes */
};

/* Gives the slot of row t, -1 if it has none. Returns false after ngd_host_fail. */
static bool kv_slot(const struct scatter *s, const struct ngd_host_call *call, struct ngd_host_run *run, int64_t t,
                    int64_t *slot_p)
{
    *slot_p = ((const int32_t *)(const void *)call->ptrs[2])[t * s->slot_step];
    if (*slot_p >= -1 && *slot_p < s->slots)
        return true;
    ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, *slot_p);
    return false;
}

static void put_kv_range(const struct scatter *s, const char *src, char *dst, int64_t begin, int64_t end)
{
    char *const p[2] = {(char *)(uintptr_t)src + begin * s->src_size, dst + begin * s->dst_size};
    const int64_t step[2] = {s->src_size, s->dst_size};

    if (s->cast)
        s->cast(p, step, end - begin, NULL);
    else
        memcpy(p[1], p[0], (size_t)((end - begin) * s->src_size));
}

static void run_kv_scatter(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct scatter *s = call->params;
    const int64_t rows = ngd_host_rows(call, run);
    int64_t begin[2], end[2], slot;

    for (int i = 0; i < 2; i++)
        ngd_host_split(s->elements[i], 64, part, parts, &begin[i], &end[i]);
    for (int64_t t = 0; t < rows; t++) {
        if (!kv_slot(s, call, run, t, &slot))
            return;
        for (int i = 0; i < 2 && slot >= 0; i++)
            if (begin[i] < end[i])
                put_kv_range(s, call->ptrs[i] + t * s->src_row[i],
                             call->ptrs[3 + i] + slot / s->block_size * s->dst_block[i] +
                                 slot % s->block_size * s->dst_slot[i],
                             begin[i], end[i]);
    }
}

/* Writes head h of a row of keys (i = 0) or values. */
static void put_quantised(const struct scatter *s, const struct ngd_host_call *call, int i, const char *row,
                          int64_t slot, int64_t h)
{
    const int64_t block = slot / s->block_size, at = slot % s->block_size;
    char *scale = call->ptrs[5 + i] + block * s->scale_block[i] + h * s->scale_head[i];

    ngd_kv_quant_head(s->quant, row + h * s->src_head[i], s->from, s->d[i], s->to,
                      call->ptrs[3 + i] + block * s->dst_block[i] + at * s->dst_slot[i] + h * s->d[i],
                      (float *)(void *)scale + at);
}

static void run_kv_quant(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct scatter *s = call->params;
    const int64_t rows = ngd_host_rows(call, run);
    int64_t begin, end, slot;

    ngd_host_split(s->heads, 1, part, parts, &begin, &end);
    for (int64_t t = 0; t < rows; t++) {
        if (!kv_slot(s, call, run, t, &slot))
            return;
        for (int64_t h = begin; h < end && slot >= 0; h++)
            for (int i = 0; i < 2; i++)
                put_quantised(s, call, i, call->ptrs[i] + t * s->src_row[i], slot, h);
    }
}

static ngd_status_t scatter_select(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                   uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)threads;
    (void)workspace_p;
    (void)diag;
    *strided_p = 1u << 2;
    for (uint32_t i = 0; i < 2; i++)
        if (ngd_host_inner_contiguous(ngd_call_in(plan, call, i), 1))
            *strided_p |= 1u << i;
    for (uint32_t i = 3; i < 7 && ngd_call_in(plan, call, i); i++) { /* written in place, so no copy helps */
        if (!ngd_host_inner_contiguous(ngd_call_in(plan, call, i), 2))
            return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED,
                                "%s: a cache must have its heads and their elements one after the other, and the "
                                "scales of a block's rows too",
                                call->op->name);
        *strided_p |= 1u << i;
    }
    return NGD_OK;
}

static void set_quant(struct scatter *s, const struct ngd_host_prepare *p)
{
    const struct ngd_plan_tensor *key = ngd_call_in(p->plan, p->call, 0);

    s->quant = NGD_BY_ISA(p->isa, ngd_kv_quant);
    s->from = key->dtype;
    s->to = ngd_call_in(p->plan, p->call, 3)->dtype;
    s->heads = key->dims[1];
    for (uint32_t i = 0; i < 2; i++) {
        const struct ngd_plan_tensor *scale = ngd_call_in(p->plan, p->call, 5 + i);

        s->d[i] = ngd_call_in(p->plan, p->call, i)->dims[2];
        s->src_head[i] = s->d[i] * s->src_size;
        s->scale_block[i] = scale->strides[0] * (int64_t)sizeof(float);
        s->scale_head[i] = scale->strides[1] * (int64_t)sizeof(float);
    }
}

static ngd_status_t scatter_prepare(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *key = ngd_call_in(p->plan, p->call, 0), *cache = ngd_call_in(p->plan, p->call, 3);
    struct scatter *s = ngd_arena_calloc(p->arena, 1, sizeof(*s));

    if (!s)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    s->src_size = (int64_t)ngd_dtype_bytes(key->dtype);
    s->dst_size = (int64_t)ngd_dtype_bytes(cache->dtype);
    s->block_size = cache->dims[1];
    s->slots = cache->dims[0] * cache->dims[1];
    s->slot_step = ngd_call_in(p->plan, p->call, 2)->strides[0];
    for (uint32_t i = 0; i < 2; i++) {
        s->elements[i] = key->dims[1] * ngd_call_in(p->plan, p->call, i)->dims[2];
        s->src_row[i] = ngd_call_in(p->plan, p->call, i)->strides[0] * s->src_size;
        s->dst_block[i] = ngd_call_in(p->plan, p->call, 3 + i)->strides[0] * s->dst_size;
        s->dst_slot[i] = ngd_call_in(p->plan, p->call, 3 + i)->strides[1] * s->dst_size;
    }
    if (ngd_call_in(p->plan, p->call, 5))
        set_quant(s, p);
    else
        s->cast = ngd_cast_fn(key->dtype, cache->dtype, p->isa);
    p->params = s;
    p->fn = s->quant ? run_kv_quant : run_kv_scatter;
    p->row_tensor = p->call->in[0];
    p->cost_ns = 50 + (double)(key->dims[0] * (s->elements[0] + s->elements[1])) * (p->isa == NGD_ISA_SCALAR ? 1 : 0.2);
    return NGD_OK;
}

extern const struct ngd_host_kernel ngd_host_scatter_pa_kv;
const struct ngd_host_kernel ngd_host_scatter_pa_kv = {.select = scatter_select, .prepare = scatter_prepare};
