/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ngd.qk_norm_rope_scatter: normalises and rotates heads of q and k, and writes k and v to their slots of a paged
 * cache, cast to its dtype or quantised.
 *
 * Parts divide the heads, not the rows: if two rows name the same slot, the later one must win, whichever thread
 * writes. A head of k goes through memory of its thread in x's dtype, as it would between separate operators.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_cast.h"
#include "devices/host/kernels/k_kv_quant.h"
#include "devices/host/kernels/k_norm.h"
#include "devices/host/kernels/k_rotary.h"
#include "devices/host/static.h"
#include <string.h>

enum { Q, K, V, COS, SIN, SLOTS, KEYS, VALUES, Q_GAMMA, K_GAMMA, SCALES };

struct qk_scatter {
    ngd_rms_fn norm[2]; /* of q and of k; NULL: none */
    ngd_rotary_fn rotary;
    ngd_nd_fn cast;                         /* from x's dtype to the cache's; NULL: they are equal */
    const struct ngd_kv_quant_table *quant; /* of a cache with scales; else NULL */
    int64_t scale_block[2], scale_head[2];  /* bytes */
    float eps;
    int64_t heads, kv_heads, d;
    int64_t size, cache_size;        /* bytes of an element */
    int64_t row[SLOTS], head[V + 1]; /* bytes from row to row and from head to head */
    int64_t block[2], slot[2];       /* bytes; of keys and values */
    int64_t block_size, slots, slot_step;
    ngd_dtype_t cos_type, sin_type, x_type, cache_type, gamma_type[2];
    uint64_t thread_workspace;
};

/* Normalises and rotates a head of q or k, and stores it in y, which is other memory than the head's. */
static void turn(const struct qk_scatter *s, const struct ngd_host_call *call, int which, const char *x, int64_t t,
                 char *y)
{
    float rstd;

    if (s->norm[which])
        s->norm[which](x, NULL, call->ptrs[Q_GAMMA + which], y, &rstd, NULL, s->d, s->eps);
    s->rotary(s->norm[which] ? y : x, call->ptrs[COS] + t * s->row[COS], s->cos_type, call->ptrs[SIN] + t * s->row[SIN],
              s->sin_type, y, s->d / 2);
}

/* Writes head i of k (cache 0) or v to a slot. */
static void put_kv_head(const struct qk_scatter *s, const struct ngd_host_call *call, int cache, const char *head,
                        int64_t slot, int64_t i)
{
    const int64_t block = slot / s->block_size, at = slot % s->block_size;
    char *to = call->ptrs[KEYS + cache] + block * s->block[cache] + at * s->slot[cache] + i * s->d * s->cache_size;
    char *const p[2] = {(char *)(uintptr_t)head, to};
    const int64_t step[2] = {s->size, s->cache_size};

    if (s->quant)
        ngd_kv_quant_head(
            s->quant, head, s->x_type, s->d, s->cache_type, to,
            (float *)(void *)(call->ptrs[SCALES + cache] + block * s->scale_block[cache] + i * s->scale_head[cache]) +
                at);
    else if (s->cast)
        s->cast(p, step, s->d, NULL);
    else
        memcpy(to, head, (size_t)(s->d * s->size));
}

static const char *head_at(const struct qk_scatter *s, const struct ngd_host_call *call, int which, int64_t t,
                           int64_t i)
{
    return call->ptrs[which] + t * s->row[which] + i * s->head[which];
}

/* Handles head h of row t. Heads of q come first, then those of k, each with the one of v: keys and values may be the
 * same state, or have the same scales, and then those of v stay, whichever thread writes. */
static void one(const struct qk_scatter *s, const struct ngd_host_call *call, int64_t t, int64_t h, int64_t slot)
{
    char *room = call->workspace + ngd_host_thread * s->thread_workspace;
    const int64_t i = h - s->heads;

    if (h < s->heads) {
        turn(s, call, Q, head_at(s, call, Q, t, h), t, call->ptrs[call->n_in] + (t * s->heads + h) * s->d * s->size);
        return;
    }
    if (slot < 0)
        return;
    turn(s, call, K, head_at(s, call, K, t, i), t, room);
    put_kv_head(s, call, 0, room, slot, i);
    put_kv_head(s, call, 1, head_at(s, call, V, t, i), slot, i);
}

static void scatter_qk(const struct qk_scatter *s, const struct ngd_host_call *call, struct ngd_host_run *run,
                       int64_t rows, uint32_t part, uint32_t parts)
{
    const int32_t *slots = (const void *)call->ptrs[SLOTS];
    int64_t begin, end;

    ngd_host_split(s->heads + s->kv_heads, 1, part, parts, &begin, &end);
    for (int64_t t = 0; t < rows; t++) {
        const int64_t slot = slots[t * s->slot_step];

        if (slot < -1 || slot >= s->slots) {
            ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, slot);
            return;
        }
        for (int64_t h = begin; h < end; h++)
            one(s, call, t, h, slot);
    }
}

#ifndef NGD_STATIC
static void run_qk_scatter(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    scatter_qk(call->params, call, run, ngd_host_rows(call, run), part, parts);
}

static uint64_t qk_thread_bytes(const struct ngd_plan_tensor *q)
{
    return ((uint64_t)q->dims[2] * ngd_dtype_bytes(q->dtype) + 63) & ~(uint64_t)63;
}

static ngd_status_t select_qk_scatter(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                      uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    *strided_p = 1u << SLOTS;
    *workspace_p = qk_thread_bytes(ngd_call_in(plan, call, Q)) * threads;
    for (uint32_t i = Q; i < SLOTS; i++) {
        const struct ngd_plan_tensor *t = ngd_call_in(plan, call, i);

        if (ngd_host_inner_contiguous(t, t->rank - 1u))
            *strided_p |= 1u << i;
    }
    for (uint32_t i = KEYS; i < SCALES + 2; i++) {
        if (i == Q_GAMMA || i == K_GAMMA || !ngd_call_in(plan, call, i))
            continue;
        if (!ngd_host_inner_contiguous(ngd_call_in(plan, call, i), 2)) /* it is written in place, so no copy helps */
            return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED,
                                "%s: a cache must have its heads and their elements one after the other, and the "
                                "scales of a block's rows too",
                                call->op->name);
        *strided_p |= 1u << i;
    }
    return NGD_OK;
}

static void set_strides(struct qk_scatter *s, const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    for (uint32_t i = Q; i < SLOTS; i++) {
        const struct ngd_plan_tensor *t = ngd_call_in(plan, call, i);
        const int64_t size = (int64_t)ngd_dtype_bytes(t->dtype);

        s->row[i] = t->strides[0] * size;
        if (i <= V)
            s->head[i] = t->strides[1] * size;
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct ngd_plan_tensor *cache = ngd_call_in(plan, call, KEYS + i);

        s->block[i] = cache->strides[0] * s->cache_size;
        s->slot[i] = cache->strides[1] * s->cache_size;
    }
    for (uint32_t i = 0; i < 2 && s->quant; i++) {
        const struct ngd_plan_tensor *scale = ngd_call_in(plan, call, SCALES + i);

        s->scale_block[i] = scale->strides[0] * (int64_t)sizeof(float);
        s->scale_head[i] = scale->strides[1] * (int64_t)sizeof(float);
    }
    s->slot_step = ngd_call_in(plan, call, SLOTS)->strides[0];
}

static ngd_status_t prepare_qk_scatter(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *q = ngd_call_in(p->plan, p->call, Q), *k = ngd_call_in(p->plan, p->call, K),
                                 *cache = ngd_call_in(p->plan, p->call, KEYS);
    struct qk_scatter *s = ngd_arena_calloc(p->arena, 1, sizeof(*s));

    if (!s)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    for (uint32_t i = 0; i < 2; i++) {
        const struct ngd_plan_tensor *gamma = ngd_call_in(p->plan, p->call, Q_GAMMA + i);

        s->gamma_type[i] = gamma ? gamma->dtype : NGD_F32;
        s->norm[i] = gamma ? NGD_BY_ISA(p->isa, ngd_norm)->rms[q->dtype][gamma->dtype] : NULL;
    }
    s->rotary = NGD_BY_ISA(p->isa, ngd_gate)->rotary[q->dtype];
    if (ngd_call_in(p->plan, p->call, SCALES))
        s->quant = NGD_BY_ISA(p->isa, ngd_kv_quant);
    else
        s->cast = ngd_cast_fn(q->dtype, cache->dtype, p->isa);
    s->eps = (float)ngd_call_float(p->call, "epsilon");
    s->heads = q->dims[1];
    s->kv_heads = k->dims[1];
    s->d = q->dims[2];
    s->size = (int64_t)ngd_dtype_bytes(q->dtype);
    s->cache_size = (int64_t)ngd_dtype_bytes(cache->dtype);
    s->block_size = cache->dims[1];
    s->slots = cache->dims[0] * cache->dims[1];
    s->x_type = q->dtype;
    s->cache_type = cache->dtype;
    s->cos_type = ngd_call_in(p->plan, p->call, COS)->dtype;
    s->sin_type = ngd_call_in(p->plan, p->call, SIN)->dtype;
    s->thread_workspace = qk_thread_bytes(q);
    set_strides(s, p->plan, p->call);
    p->params = s;
    p->fn = run_qk_scatter;
    p->cost_ns = 50 + (double)(q->dims[0] * (s->heads + 2 * s->kv_heads)) *
                          (10 + (double)s->d * (p->isa == NGD_ISA_SCALAR ? 5 : 0.4));
    return NGD_OK;
}

#define FIELD(field) NGD_STATIC_FIELD(struct qk_scatter, field)
static const struct ngd_static_field constants[] = {
    FIELD(eps),       FIELD(heads),      FIELD(kv_heads),   FIELD(d),
    FIELD(size),      FIELD(cache_size), FIELD(row),        FIELD(head),
    FIELD(block),     FIELD(slot),       FIELD(block_size), FIELD(slots),
    FIELD(slot_step), FIELD(cos_type),   FIELD(sin_type),   FIELD(thread_workspace),
};

static bool emit_qk_scatter(const struct ngd_host_call *call, struct ngd_strbuf *sb)
{
    const struct qk_scatter *s = call->params;

    if (s->quant)
        return false;
    ngd_strbuf_append(sb, "    static const struct qk_scatter p = {.norm = {");
    for (int i = 0; i < 2; i++) {
        if (s->norm[i])
            ngd_strbuf_printf(sb, "rms_norm_%s_%s, ", ngd_dtype_name(s->x_type), ngd_dtype_name(s->gamma_type[i]));
        else
            ngd_strbuf_append(sb, "NULL, ");
    }
    ngd_strbuf_printf(sb, "}, .rotary = rotary_%s, ", ngd_dtype_name(s->x_type));
    if (s->cast)
        ngd_strbuf_printf(sb, ".cast = cast_%s_%s, ", ngd_dtype_name(s->x_type), ngd_dtype_name(s->cache_type));
    ngd_static_emit_fields(sb, s, constants, sizeof(constants) / sizeof(constants[0]));
    ngd_strbuf_append(sb, "};\n    scatter_qk(&p, call, run, ");
    ngd_static_emit_rows(call, 1, sb);
    ngd_strbuf_append(sb, ", 0, 1);\n");
    return true;
}

extern const struct ngd_host_kernel ngd_host_qk_norm_rope_scatter;
const struct ngd_host_kernel ngd_host_qk_norm_rope_scatter = {.select = select_qk_scatter,
                                                              .prepare = prepare_qk_scatter,
                                                              .emit = emit_qk_scatter,
                                                              .family = NGD_STATIC_QK_SCATTER};
#endif
