/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing by index tensors. Indices are data: each is checked before it is used, and one outside its
 * dimension ends the call with INDEX_RANGE. Where PyTorch lets negative indices count from the end (indexing proper:
 * index.Tensor, index_put) they do here; embedding, gather, index_select and scatter take none, as there.
 *
 * A dimension that carries a bucketed symbol ends at its actual rows: the padding behind them is out of range.
 */
#include "base/mem.h"
#include "devices/host/axis.h"

/* One index tensor, contiguous or with a step. */
struct indices {
    int64_t limit;    /* planned size of the dimension */
    int64_t row_mult; /* actual size = symbols[row_sym] * row_mult */
    uint8_t row_sym;
    bool wide;     /* i64, else i32 */
    bool from_end; /* negative ones count from the end */
};

static struct indices indices_of(const struct ngd_plan_tensor *index, const struct ngd_plan_tensor *x, uint32_t dim,
                                 bool from_end)
{
    return (struct indices){.limit = x->dims[dim],
                            .row_mult = x->row_mult,
                            .row_sym = dim == 0 ? x->row_sym : NGD_NO_ROW_SYM,
                            .wide = index->dtype == NGD_I64,
                            .from_end = from_end};
}

static inline int64_t limit_now(const struct indices *s, const struct ngd_host_run *run)
{
    return s->row_sym == NGD_NO_ROW_SYM ? s->limit : run->symbols[s->row_sym] * s->row_mult;
}

/* The index at p, within 0..limit-1; else the call fails and false comes back. */
static inline bool get_index(const struct indices *s, const char *p, int64_t limit, const struct ngd_host_call *call,
                             struct ngd_host_run *run, int64_t *index_p)
{
    int64_t v, given;
    int32_t narrow;

    if (s->wide) {
        memcpy(&v, p, sizeof(v));
    } else {
        memcpy(&narrow, p, sizeof(narrow));
        v = narrow;
    }
    given = v;
    if (s->from_end && v < 0)
        v += limit;
    if (v < 0 || v >= limit) {
        ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, given);
        return false;
    }
    *index_p = v;
    return true;
}

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
    struct indices indices;
    struct ngd_axis axis; /* of x */
    int64_t n, n_per_row; /* indices; for each index of the result's dimension 0 */
    int64_t bytes;        /* of what one index moves */
    uint32_t index_size;
    uint8_t x, index, out; /* in ptrs */
};

static bool take_some(const struct take_params *t, const struct ngd_host_call *call, struct ngd_host_run *run,
                      int64_t outer, int64_t begin, int64_t end)
{
    const char *x = call->ptrs[t->x] + outer * t->axis.n * t->bytes, *index = call->ptrs[t->index];
    char *out = call->ptrs[t->out] + outer * t->n * t->bytes;
    const int64_t limit = limit_now(&t->indices, run);
    int64_t v;

    for (int64_t i = begin; i < end; i++) {
        if (!get_index(&t->indices, index + i * t->index_size, limit, call, run, &v))
            return false;
        memcpy(out + i * t->bytes, x + v * t->bytes, (size_t)t->bytes);
    }
    return true;
}

/* Along dimension 0 the indices are the rows, and are what is split. */
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
    t->indices = indices_of(index, x, t->axis.dim, from_end);
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

/* ---- gather, scatter ---- */

/*
 * Both walk the index tensor together with a tensor of its shape (the result, or src) and with one whose axis
 * stands still (x, or the result): there the index says how far to go along it.
 */
struct gather_params {
    struct ngd_nd nd; /* index, values, far tensor */
    struct indices indices;
    int64_t axis_step;   /* bytes, of the far tensor */
    int64_t index_inner; /* scatter: elements per index of the index's dimension 0 */
    struct ngd_nd copy;  /* scatter: x to the result */
    uint32_t size;
    uint8_t index_row_sym; /* scatter: of the index tensor */
    int64_t index_row_mult;
};

static void walk(const struct gather_params *g, const struct ngd_host_call *call, struct ngd_host_run *run,
                 char *const *ptrs, int64_t begin, int64_t end, bool to_far)
{
    const uint32_t last = g->nd.rank - 1;
    const int64_t index_step = g->nd.step[0][last], near_step = g->nd.step[1][last], far_step = g->nd.step[2][last];
    const int64_t limit = limit_now(&g->indices, run);
    struct ngd_nd_it it;
    int64_t v;

    for (ngd_nd_start(&it, &g->nd, ptrs, begin, end); it.run; ngd_nd_next(&it)) {
        for (int64_t i = 0; i < it.run; i++) {
            char *near = it.p[1] + i * near_step, *far;

            if (!get_index(&g->indices, it.p[0] + i * index_step, limit, call, run, &v))
                return;
            far = it.p[2] + i * far_step + v * g->axis_step;
            move_one(to_far ? far : near, to_far ? near : far, g->size);
        }
    }
}

static void run_gather(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct gather_params *g = call->params;
    char *ptrs[] = {call->ptrs[1], call->ptrs[2], call->ptrs[0]};
    int64_t begin, end;

    if (ngd_nd_part(call, run, g->nd.total, g->nd.inner, 64, part, parts, &begin, &end))
        walk(g, call, run, ptrs, begin, end, false);
}

/* The last of several writes to one place must win, so one thread writes in the order of the index. */
static void run_scatter(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct gather_params *g = call->params;
    char *copy[] = {call->ptrs[0], call->ptrs[3]}, *ptrs[] = {call->ptrs[1], call->ptrs[2], call->ptrs[3]};
    int64_t begin, end, n = g->nd.total;

    if (part)
        return;
    (void)parts;
    if (ngd_nd_part(call, run, g->copy.total, g->copy.inner, 1, 0, 1, &begin, &end))
        ngd_nd_copy(&g->copy, copy, begin, end);
    if (g->index_row_sym != NGD_NO_ROW_SYM)
        n = run->symbols[g->index_row_sym] * g->index_row_mult * g->index_inner;
    walk(g, call, run, ptrs, 0, n, true);
}

static void set_walk(struct gather_params *g, const struct ngd_plan_tensor *index, const struct ngd_plan_tensor *near,
                     const struct ngd_plan_tensor *far, int64_t dim)
{
    struct ngd_plan_tensor a = *near, b = *far;

    dim += dim < 0 ? far->rank : 0;
    g->size = (uint32_t)ngd_dtype_bytes(far->dtype);
    g->indices = indices_of(index, far, (uint32_t)dim, false);
    g->axis_step = far->strides[dim] * g->size;
    b.strides[dim] = 0;
    /* Only strides matter: all three are walked in the index's shape, which lies within the others'. */
    memcpy(a.dims, index->dims, sizeof(a.dims));
    memcpy(b.dims, index->dims, sizeof(b.dims));
    ngd_nd_init(&g->nd, index, 0, (const struct ngd_plan_tensor *[]){index, &a, &b}, 3, 0);
}

static ngd_status_t prepare_gather(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *index = ngd_call_in(p->plan, p->call, 1);
    struct gather_params *g = ngd_arena_calloc(p->arena, 1, sizeof(*g));

    (void)diag;
    if (!g)
        return NGD_ERR_NO_MEMORY;
    set_walk(g, index, ngd_call_out(p->plan, p->call, 0), x, ngd_call_int(p->call, "dim"));
    p->fn = run_gather;
    p->params = g;
    p->cost_ns = 20 + (double)g->nd.total * 2;
    return NGD_OK;
}

static ngd_status_t prepare_scatter(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *index = ngd_call_in(p->plan, p->call, 1),
                                 *src = ngd_call_in(p->plan, p->call, 2), *out = ngd_call_out(p->plan, p->call, 0);
    struct gather_params *g = ngd_arena_calloc(p->arena, 1, sizeof(*g));

    (void)diag;
    if (!g)
        return NGD_ERR_NO_MEMORY;
    set_walk(g, index, src, out, ngd_call_int(p->call, "dim"));
    ngd_nd_init(&g->copy, x, 0, (const struct ngd_plan_tensor *[]){x, out}, 2, 0);
    g->index_inner = g->nd.inner;
    g->index_row_sym = index->row_sym;
    g->index_row_mult = index->row_mult;
    p->fn = run_scatter;
    p->params = g;
    p->serial = true;
    p->cost_ns = 20 + (double)g->nd.total * 2 + (double)g->copy.total * 0.3;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_gather = {.select = ngd_select_strided, .prepare = prepare_gather};
const struct ngd_host_kernel ngd_host_scatter = {.select = ngd_select_strided, .prepare = prepare_scatter};

/* ---- index_put ---- */

struct put_params {
    struct indices indices;
    int64_t n, bytes, total_bytes;
    uint32_t index_size;
};

static void run_put(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct put_params *u = call->params;
    const char *index = call->ptrs[1], *values = call->ptrs[2];
    const int64_t limit = limit_now(&u->indices, run);
    char *out = call->ptrs[3];
    int64_t v;

    if (part)
        return;
    (void)parts;
    memcpy(out, call->ptrs[0], (size_t)u->total_bytes);
    for (int64_t i = 0; i < u->n; i++) {
        if (!get_index(&u->indices, index + i * u->index_size, limit, call, run, &v))
            return;
        memcpy(out + v * u->bytes, values + i * u->bytes, (size_t)u->bytes);
    }
}

static ngd_status_t prepare_put(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *index = ngd_call_in(p->plan, p->call, 1);
    struct put_params *u = ngd_arena_calloc(p->arena, 1, sizeof(*u));
    struct ngd_axis axis = ngd_axis_of(x, 0);

    (void)diag;
    if (!u)
        return NGD_ERR_NO_MEMORY;
    u->indices = indices_of(index, x, 0, true);
    u->n = index->dims[0];
    u->bytes = axis.inner * (int64_t)ngd_dtype_bytes(x->dtype);
    u->total_bytes = u->bytes * axis.n;
    u->index_size = (uint32_t)ngd_dtype_bytes(index->dtype);
    p->fn = run_put;
    p->params = u;
    p->serial = true;
    p->cost_ns = 20 + (double)u->total_bytes * 0.08 + (double)u->n * 5;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_index_put = {.select = ngd_select_contiguous, .prepare = prepare_put};
