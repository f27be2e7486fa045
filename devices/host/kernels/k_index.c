/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that read by index tensors: embedding, aten.index.Tensor, index_select, gather. */
#include "base/mem.h"
#include "devices/host/kernels/indices.h"

static inline void move_one(char *dst, const char *src, uint32_t size)
{
    switch (size) {
    case 1:
        memcpy(dst, src, 1);
        break;
    case 2:
        memcpy(dst, src, 2);
        break;
    case 4:
        memcpy(dst, src, 4);
        break;
    default:
        memcpy(dst, src, 8);
        break;
    }
}

/* ---- take: embedding, index.Tensor, index_select ---- */

/* out[o][i][:] = x[o][index[i]][:] */
struct take_params {
    struct ngd_indices indices;
    struct ngd_axis axis; /* of x */
    int64_t n, n_per_row; /* indices, in all and per index of the result's dimension 0 */
    int64_t bytes;        /* that one index moves */
    uint32_t index_size;
    uint8_t x, index, out; /* in ptrs */
};

static bool take_some(const struct take_params *t, const struct ngd_host_call *call, struct ngd_host_run *run,
                      int64_t outer, int64_t begin, int64_t end)
{
    const char *x = call->ptrs[t->x] + outer * t->axis.n * t->bytes, *index = call->ptrs[t->index];
    char *out = call->ptrs[t->out] + outer * t->n * t->bytes;
    const int64_t limit = ngd_indices_limit(&t->indices, run);
    int64_t v;

    for (int64_t i = begin; i < end; i++) {
        if (!ngd_indices_get(&t->indices, index + i * t->index_size, limit, call, run, &v))
            return false;
        if (t->bytes == 4) /* an f32 of a row: a call of memcpy would take most of the time */
            memcpy(out + i * 4, x + v * 4, 4);
        else
            memcpy(out + i * t->bytes, x + v * t->bytes, (size_t)t->bytes);
    }
    return true;
}

/* Takes along dimension 0, where the indices are the rows, so that parts split the indices. */
static void run_take_first(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct take_params *t = call->params;
    int64_t begin, end;

    if (ngd_nd_part(call, run, t->n, t->n_per_row, 1, part, parts, &begin, &end))
        take_some(t, call, run, 0, begin, end);
}

static void run_take_inner(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct take_params *t = call->params;
    int64_t begin, end;

    if (!ngd_nd_part(call, run, t->axis.outer, t->axis.outer_per_row, 1, part, parts, &begin, &end))
        return;
    while (begin < end && take_some(t, call, run, begin, 0, t->n))
        begin++;
}

static ngd_status_t prepare_take(struct ngd_host_prepare *p, uint8_t x_at, uint8_t index_at, int64_t dim, bool from_end)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, x_at),
                                 *index = ngd_call_in(p->plan, p->call, index_at);
    struct take_params *t = ngd_arena_calloc(p->arena, 1, sizeof(*t));

    if (!t)
        return NGD_ERR_NO_MEMORY;
    t->axis = ngd_axis_of(x, dim);
    t->indices = ngd_indices_of(index, x, t->axis.dim, from_end);
    t->n = ngd_tensor_count(index);
    t->n_per_row = index->rank && index->dims[0] ? t->n / index->dims[0] : t->n;
    t->bytes = t->axis.inner * (int64_t)ngd_dtype_bytes(x->dtype);
    t->index_size = (uint32_t)ngd_dtype_bytes(index->dtype);
    t->x = x_at;
    t->index = index_at;
    t->out = (uint8_t)p->call->n_in;
    p->fn = t->axis.dim ? run_take_inner : run_take_first;
    p->params = t;
    p->cost_ns = 20 + (double)(t->axis.outer * t->n) * (5 + (double)t->bytes * 0.08);
    return NGD_OK;
}

static ngd_status_t prepare_embedding(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_take(p, 0, 1, 0, false);
}

static ngd_status_t prepare_index(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_take(p, 0, 1, 0, true);
}

static ngd_status_t prepare_index_select(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_take(p, 0, 1, ngd_call_int(p->call, "dim"), false);
}

const struct ngd_host_kernel ngd_host_embedding = {.select = ngd_select_contiguous, .prepare = prepare_embedding};
const struct ngd_host_kernel ngd_host_index = {.select = ngd_select_contiguous, .prepare = prepare_index};
const struct ngd_host_kernel ngd_host_index_select = {.select = ngd_select_contiguous, .prepare = prepare_index_select};

/* ---- gather ---- */

/*
 * Walks the index and the result together with x. x does not move along the axis: the index says how far to go there.
 */
struct gather_params {
    struct ngd_nd nd; /* index, result, x */
    struct ngd_indices indices;
    int64_t axis_step; /* bytes, of x */
    uint32_t size;
};

static void run_gather_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct gather_params *g = call->params;
    const uint32_t last = g->nd.rank - 1;
    const int64_t *step[] = {g->nd.step[0], g->nd.step[1], g->nd.step[2]}, limit = ngd_indices_limit(&g->indices, run);
    char *ptrs[] = {call->ptrs[1], call->ptrs[2], call->ptrs[0]};
    int64_t begin, end, v;
    struct ngd_nd_it it;

    if (!ngd_nd_part(call, run, g->nd.total, g->nd.inner, 64, part, parts, &begin, &end))
        return;
    for (ngd_nd_start(&it, &g->nd, ptrs, begin, end); it.run; ngd_nd_next(&it)) {
        for (int64_t i = 0; i < it.run; i++) {
            if (!ngd_indices_get(&g->indices, it.p[0] + i * step[0][last], limit, call, run, &v))
                return;
            move_one(it.p[1] + i * step[1][last], it.p[2] + i * step[2][last] + v * g->axis_step, g->size);
        }
    }
}

static ngd_status_t prepare_gather(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *index = ngd_call_in(p->plan, p->call, 1),
                                 *out = ngd_call_out(p->plan, p->call, 0);
    struct gather_params *g = ngd_arena_calloc(p->arena, 1, sizeof(*g));
    struct ngd_plan_tensor still = *x;
    int64_t dim = ngd_call_int(p->call, "dim");

    (void)diag;
    if (!g)
        return NGD_ERR_NO_MEMORY;
    dim += dim < 0 ? x->rank : 0;
    g->size = (uint32_t)ngd_dtype_bytes(x->dtype);
    g->indices = ngd_indices_of(index, x, (uint32_t)dim, false);
    g->axis_step = x->strides[dim] * g->size;
    still.strides[dim] = 0;
    memcpy(still.dims, index->dims, sizeof(still.dims)); /* only x's strides matter: the index's shape lies within it */
    ngd_nd_init(&g->nd, index, 0, (const struct ngd_plan_tensor *[]){index, out, &still}, 3, 0);
    p->fn = run_gather_part;
    p->params = g;
    p->cost_ns = 20 + (double)g->nd.total * 2;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_gather = {.select = ngd_select_strided, .prepare = prepare_gather};
