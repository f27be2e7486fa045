/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aten.scaled_dot_product_attention: dense attention with the chunks of k_attention.h.
 *
 * Work is counted in units: a block of rows of one batch, with one head of keys and all heads of queries that share it.
 * A mask becomes a bias of the scores. It is unpacked one chunk of keys at a time, so that memory for one is enough.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_attention.h"
#include "devices/host/kernels/typed.h"
#include <math.h>
#include <string.h>

/* Bytes from one index to the next; 0 if a dimension is missing or broadcast. */
struct steps {
    int64_t batch, head, row, col;
};

struct sdpa {
    int64_t batch, heads, kv_heads, group, rows, keys;
    int64_t d, dv, dp; /* size of queries and keys, size of values, room for either */
    int64_t row_block, blocks;
    struct steps q, k, v, y, mask;
    void (*unpack)(const char *mask, int64_t step, int64_t n, float *bias); /* NULL = no mask */
    ngd_dtype_t type;
    bool causal;
    float scale;
    uint64_t thread_workspace;
    const struct ngd_attn_table *table;
};

/* ---- masks ---- */

#define FLOAT_MASK(T, wide)                                                              \
    static void unpack_mask_##T(const char *mask, int64_t step, int64_t n, float *bias)  \
    {                                                                                    \
        for (int64_t j = 0; j < n; j++)                                                  \
            bias[j] = ngd_get_##T(*(const ngd_el_##T *)(const void *)(mask + j * step)); \
    }
NGD_EACH_FLOAT(FLOAT_MASK)

static void unpack_bool(const char *mask, int64_t step, int64_t n, float *bias)
{
    for (int64_t j = 0; j < n; j++)
        bias[j] = mask[j * step] ? 0 : -INFINITY;
}

/* ---- one unit ---- */

struct unit {
    int64_t batch, head; /* of keys */
    int64_t row, rows;
};

/* Returns the offset of query i of the unit in a tensor with all heads. */
static int64_t at_query(const struct sdpa *a, const struct steps *t, const struct unit *u, int64_t i)
{
    return u->batch * t->batch + (u->head * a->group + i % a->group) * t->head + (u->row + i / a->group) * t->row;
}

static void begin_dense_unit(const struct sdpa *a, const struct ngd_host_call *call, const struct unit *u,
                             const struct ngd_attn_scratch *s)
{
    for (int64_t i = 0; i < u->rows * a->group; i++) {
        a->table->load[a->type](call->ptrs[0] + at_query(a, &a->q, u, i), a->d, a->dp, a->scale, s->q + i * a->dp);
        memset(s->o + i * a->dp, 0, (size_t)a->dp * sizeof(float));
        s->max[i] = -INFINITY;
        s->sum[i] = 0;
    }
}

/* Sets up keys [at, at + n). */
static void begin_chunk(const struct sdpa *a, const struct ngd_host_call *call, const struct unit *u, int64_t at,
                        int64_t n, const struct ngd_attn_scratch *s, int64_t *count)
{
    const char *k = call->ptrs[1] + u->batch * a->k.batch + u->head * a->k.head + at * a->k.row;
    const char *v = call->ptrs[2] + u->batch * a->v.batch + u->head * a->v.head + at * a->v.row;

    for (int64_t j = 0; j < n; j++) {
        s->k[j] = k + j * a->k.row;
        s->v[j] = v + j * a->v.row;
    }
    for (int64_t i = 0; i < u->rows * a->group; i++) {
        const int64_t sees = a->causal ? u->row + i / a->group + 1 - at : n;

        count[i] = sees < 0 ? 0 : sees < n ? sees : n;
        if (a->unpack)
            a->unpack(call->ptrs[3] + at_query(a, &a->mask, u, i) + at * a->mask.col, a->mask.col, n,
                      s->bias + i * NGD_ATTN_CHUNK);
    }
}

static void run_dense_unit(const struct sdpa *a, const struct ngd_host_call *call, const struct unit *u)
{
    const int64_t queries = u->rows * a->group, last = u->row + u->rows;
    const int64_t total = a->causal && last < a->keys ? last : a->keys;
    struct ngd_attn_scratch s;
    int64_t *count = ngd_attn_lay_out(&s, call->workspace + ngd_host_thread * a->thread_workspace,
                                      (uint64_t)(a->row_block * a->group), (uint64_t)a->dp, a->unpack != NULL, false);

    begin_dense_unit(a, call, u, &s);
    for (int64_t at = 0; at < total; at += NGD_ATTN_CHUNK) {
        const int64_t n = total - at < NGD_ATTN_CHUNK ? total - at : NGD_ATTN_CHUNK;

        begin_chunk(a, call, u, at, n, &s, count);
        a->table->chunk[a->type](&s, a->d, a->dv, a->dp, queries, count);
    }
    for (int64_t i = 0; i < queries; i++) /* a query that saw no key gives 0 */
        a->table->store[a->type](s.o + i * a->dp, s.sum[i] == 0 ? 1 : s.sum[i], a->dv,
                                 call->ptrs[call->n_in] + at_query(a, &a->y, u, i));
}

static void run_sdpa(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct sdpa *a = call->params;
    const int64_t batch = call->row_sym == NGD_NO_ROW_SYM ? a->batch : ngd_host_rows(call, run);
    int64_t begin, end;

    ngd_host_split(batch * a->kv_heads * a->blocks, 1, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i % a->blocks * a->row_block;
        const struct unit u = {.batch = i / a->blocks / a->kv_heads,
                               .head = i / a->blocks % a->kv_heads,
                               .row = row,
                               .rows = a->rows - row < a->row_block ? a->rows - row : a->row_block};

        run_dense_unit(a, call, &u);
    }
}

/* ---- capture ---- */

/* Returns the steps of [B,H,L,E], [B,L,E] or, with heads in dimension 0, [H,L,E]. A mask may have fewer dimensions than
 * `rank`. */
static struct steps sdpa_steps(const struct ngd_plan_tensor *t, uint32_t rank, bool heads_first)
{
    const int64_t size = (int64_t)ngd_dtype_bytes(t->dtype);
    int64_t step[4] = {0}; /* of the last four dimensions */

    for (uint32_t d = 0; d < t->rank; d++)
        step[4 - t->rank + d] = t->dims[d] == 1 ? 0 : t->strides[d] * size;
    if (rank == 3 && !heads_first)
        return (struct steps){.batch = step[1], .row = step[2], .col = step[3]};
    return (struct steps){.batch = step[0], .head = step[1], .row = step[2], .col = step[3]};
}

static struct sdpa sdpa_of(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    static void (*const unpacks[NGD_DTYPE_MAX])(const char *, int64_t, int64_t,
                                                float *) = {[NGD_F32] = unpack_mask_f32,
                                                            [NGD_F16] = unpack_mask_f16,
                                                            [NGD_BF16] = unpack_mask_bf16,
                                                            [NGD_BOOL] = unpack_bool};
    const struct ngd_plan_tensor *q = ngd_call_in(plan, call, 0), *k = ngd_call_in(plan, call, 1),
                                 *v = ngd_call_in(plan, call, 2), *mask = ngd_call_in(plan, call, 3);
    const uint32_t rank = q->rank;
    const bool heads_first = rank == 3 && ngd_call_int(call, "enable_gqa"), has_heads = rank == 4 || heads_first;
    const double scale = ngd_call_float(call, "scale");
    struct sdpa a = {
        .batch = rank == 4 || (rank == 3 && !heads_first) ? q->dims[0] : 1,
        .heads = has_heads ? q->dims[rank - 3] : 1,
        .kv_heads = has_heads ? k->dims[rank - 3] : 1,
        .rows = q->dims[rank - 2],
        .keys = k->dims[rank - 2],
        .d = q->dims[rank - 1],
        .dv = v->dims[rank - 1],
        .q = sdpa_steps(q, rank, heads_first),
        .k = sdpa_steps(k, rank, heads_first),
        .v = sdpa_steps(v, rank, heads_first),
        .y = sdpa_steps(ngd_call_out(plan, call, 0), rank, heads_first),
        .type = q->dtype,
        .causal = ngd_call_int(call, "is_causal"),
        .scale = (float)(isinf(scale) ? 1 / sqrt((double)q->dims[rank - 1]) : scale),
    };

    if (mask) {
        a.mask = sdpa_steps(mask, rank, heads_first);
        a.unpack = unpacks[mask->dtype];
    }
    a.dp = ((a.d > a.dv ? a.d : a.dv) + 15) & ~(int64_t)15;
    a.group = a.kv_heads ? a.heads / a.kv_heads : 1;
    a.row_block = a.group < NGD_ATTN_QUERIES ? NGD_ATTN_QUERIES / (a.group ? a.group : 1) : 1;
    a.row_block = a.rows < a.row_block ? (a.rows ? a.rows : 1) : a.row_block;
    a.blocks = (a.rows + a.row_block - 1) / a.row_block;
    a.thread_workspace = ngd_attn_scratch_bytes((uint64_t)(a.row_block * a.group), (uint64_t)a.dp, a.unpack != NULL);
    return a;
}

static ngd_status_t sdpa_select(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct sdpa a = sdpa_of(plan, call);

    (void)diag;
    *strided_p = 1u << 3;
    for (uint32_t i = 0; i < 3; i++) {
        const struct ngd_plan_tensor *t = ngd_call_in(plan, call, i);

        if (t->strides[t->rank - 1] == 1 || t->dims[t->rank - 1] == 1)
            *strided_p |= 1u << i;
    }
    *workspace_p = a.thread_workspace * threads;
    return NGD_OK;
}

static ngd_status_t sdpa_prepare(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct sdpa *a = ngd_arena_alloc(p->arena, sizeof(*a));

    if (!a)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    *a = sdpa_of(p->plan, p->call);
    a->table = NGD_BY_ISA(p->isa, ngd_attn_table);
    p->params = a;
    p->fn = run_sdpa;
    p->cost_ns = 100 + (double)(a->batch * a->heads * a->rows) * (double)a->keys *
                           ((double)(a->d + a->dv) * 2 / (p->isa == NGD_ISA_SCALAR ? 1.5 : 20) + (a->unpack ? 0.5 : 0));
    return NGD_OK;
}

extern const struct ngd_host_kernel ngd_host_sdpa;
const struct ngd_host_kernel ngd_host_sdpa = {.select = sdpa_select, .prepare = sdpa_prepare};
