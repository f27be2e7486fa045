/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu.scatter_pa_kv_cache: writes rows of keys and values to their slots of a paged cache, cast to its dtype.
 *
 * Parts divide each row, not the rows: if two rows name the same slot, the later one must win, whichever thread writes.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_cast.h"
#include <string.h>

struct scatter {
    int64_t elements[2];               /* of a row; key, value */
    int64_t src_size, dst_size;        /* bytes of an element */
    int64_t src_row[2];                /* bytes */
    int64_t dst_block[2], dst_slot[2]; /* bytes */
    int64_t block_size, slots;
    int64_t slot_step; /* elements of slot_mapping */
    ngd_nd_fn cast;    /* NULL: the types are equal */
};

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
    const int32_t *slots = (const void *)call->ptrs[2];
    int64_t begin[2], end[2];

    for (int i = 0; i < 2; i++)
        ngd_host_split(s->elements[i], 64, part, parts, &begin[i], &end[i]);
    for (int64_t t = 0; t < rows; t++) {
        const int64_t slot = slots[t * s->slot_step];

        if (slot == -1)
            continue;
        if (slot < 0 || slot >= s->slots) {
            ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, slot);
            return;
        }
        for (int i = 0; i < 2; i++)
            if (begin[i] < end[i])
                put_kv_range(s, call->ptrs[i] + t * s->src_row[i],
                             call->ptrs[3 + i] + slot / s->block_size * s->dst_block[i] +
                                 slot % s->block_size * s->dst_slot[i],
                             begin[i], end[i]);
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
    for (uint32_t i = 3; i < 5; i++) {
        if (!ngd_host_inner_contiguous(ngd_call_in(plan, call, i), 2)) /* it is written in place, so no copy helps */
            return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED,
                                "%s: a cache must have its heads and their elements one after the other",
                                call->op->name);
        *strided_p |= 1u << i;
    }
    return NGD_OK;
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
    s->cast = ngd_cast_fn(key->dtype, cache->dtype, p->isa);
    p->params = s;
    p->fn = run_kv_scatter;
    p->row_tensor = p->call->in[0];
    p->cost_ns = 50 + (double)(key->dims[0] * (s->elements[0] + s->elements[1])) * (p->isa == NGD_ISA_SCALAR ? 1 : 0.2);
    return NGD_OK;
}

extern const struct ngd_host_kernel ngd_host_scatter_pa_kv;
const struct ngd_host_kernel ngd_host_scatter_pa_kv = {.select = scatter_select, .prepare = scatter_prepare};
