/* SPDX-License-Identifier: Apache-2.0 */
/* npu.rms_norm, npu.gemma_rms_norm, npu.add_rms_norm, npu.add_rms_norm_cast, aten.layer_norm, aten.native_layer_norm.
 * Rows have any outer strides; each is one call of a row function. */
#include "devices/host/kernels/k_norm.h"
#include "base/mem.h"
#include "devices/host/kernels/k_cast.h"
#include <string.h>

/* Returns true if the last `hold` dimensions, which make a row, are contiguous. */
static bool row_contiguous(const struct ngd_plan_tensor *t, uint32_t hold)
{
    int64_t want = 1;

    for (uint32_t d = t->rank; d-- > t->rank - hold; want *= t->dims[d])
        if (t->dims[d] != 1 && t->strides[d] != want)
            return false;
    return true;
}

/* Returns the bits of those of the first n operands (x, and x2 of add_rms_norm) whose rows are contiguous. They may
 * keep their strides; weights are small, so a copy of them costs little. */
static uint32_t strided_rows(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t n, uint32_t hold)
{
    uint32_t strided = 0;

    for (uint32_t i = 0; i < n; i++)
        if (row_contiguous(ngd_call_in(plan, call, i), hold))
            strided |= 1u << i;
    return strided;
}

static double norm_ns(const struct ngd_nd *rows, int64_t n, ngd_isa_t isa)
{
    return 20 + (double)rows->total * (15 + (double)n * (isa == NGD_ISA_SCALAR ? 2 : 0.12));
}

/* ---- rms_norm, add_rms_norm ---- */

struct rms_params {
    struct ngd_nd rows; /* of x, or of x1 and x2 */
    ngd_rms_fn fn;
    int64_t n, row_bytes;
    float eps;
    uint8_t gamma, y, rstd, sum, wide; /* indices in ptrs; wide 0: y is not wanted as f32 too */
    ngd_nd_fn widen;                   /* NULL: y is f32 itself */
    bool add;
};

static void put_wide(const struct rms_params *r, char *y, float *wide)
{
    char *const p[2] = {y, (char *)wide};
    const int64_t step[2] = {0, 4}; /* casts do not read it, since both are contiguous */

    if (r->widen)
        r->widen(p, step, r->n, NULL);
    else
        memcpy(wide, y, (size_t)r->row_bytes);
}

static void run_rms_norm(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct rms_params *r = call->params;
    const uint32_t last = r->rows.rank - 1;
    char *y = call->ptrs[r->y], *sum = r->add ? call->ptrs[r->sum] : NULL;
    float *rstd = (void *)call->ptrs[r->rstd];
    int64_t begin, end, row;
    struct ngd_nd_it it;

    if (!ngd_nd_part(call, run, r->rows.total, r->rows.inner, 1, part, parts, &begin, &end))
        return;
    row = begin;
    for (ngd_nd_start(&it, &r->rows, call->ptrs, begin, end); it.run; ngd_nd_next(&it)) {
        for (int64_t i = 0; i < it.run; i++, row++) {
            const char *x2 = r->add ? it.p[1] + i * r->rows.step[1][last] : NULL;

            r->fn(it.p[0] + i * r->rows.step[0][last], x2, call->ptrs[r->gamma], y + row * r->row_bytes, rstd + row,
                  r->add ? sum + row * r->row_bytes : NULL, r->n, r->eps);
            if (r->wide)
                put_wide(r, y + row * r->row_bytes, (float *)(void *)call->ptrs[r->wide] + row * r->n);
        }
    }
}

/* fns are indexed by the dtypes of x and gamma. */
static ngd_status_t prepare_rms_of(struct ngd_host_prepare *p, const ngd_rms_fn fns[3][3], bool add,
                                   struct ngd_diag *diag)
{
    const uint8_t gamma = add ? 2 : 1;
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *g = ngd_call_in(p->plan, p->call, gamma);
    const struct ngd_plan_tensor *ops[] = {x, ngd_call_in(p->plan, p->call, 1)};
    struct rms_params *r = ngd_arena_calloc(p->arena, 1, sizeof(*r));

    if (!r)
        return NGD_ERR_NO_MEMORY;
    r->fn = fns[x->dtype][g->dtype];
    if (!r->fn)
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED, "device host has no %s of %s with a gamma of %s",
                            p->call->op->name, ngd_dtype_name(x->dtype), ngd_dtype_name(g->dtype));
    ngd_nd_init(&r->rows, x, 1, ops, add ? 2 : 1, 0);
    r->n = x->dims[x->rank - 1];
    r->row_bytes = r->n * (int64_t)ngd_dtype_bytes(x->dtype);
    r->eps = (float)ngd_call_float(p->call, "epsilon");
    r->gamma = gamma;
    r->y = (uint8_t)p->call->n_in;
    if (p->call->n_out == 4) { /* the first result of add_rms_norm_cast is the f32 form */
        r->wide = r->y++;
        r->widen = ngd_cast_fn(x->dtype, NGD_F32, p->isa);
    }
    r->rstd = (uint8_t)(r->y + 1);
    r->sum = (uint8_t)(r->y + 2);
    r->add = add;
    p->fn = run_rms_norm;
    p->params = r;
    p->cost_ns = norm_ns(&r->rows, r->n, p->isa);
    return NGD_OK;
}

static ngd_status_t prepare_rms(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    return prepare_rms_of(p, NGD_BY_ISA(p->isa, ngd_norm)->rms, false, diag);
}

static ngd_status_t prepare_gemma(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    return prepare_rms_of(p, NGD_BY_ISA(p->isa, ngd_norm)->gemma, false, diag);
}

static ngd_status_t prepare_add_rms(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    return prepare_rms_of(p, NGD_BY_ISA(p->isa, ngd_norm)->add_rms, true, diag);
}

static ngd_status_t select_rms(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                               uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)threads;
    (void)diag;
    *strided_p = strided_rows(plan, call, 1, 1);
    *workspace_p = 0;
    return NGD_OK;
}

static ngd_status_t select_add_rms(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                   uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)threads;
    (void)diag;
    *strided_p = strided_rows(plan, call, 2, 1);
    *workspace_p = 0;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_rms_norm = {.select = select_rms, .prepare = prepare_rms};
const struct ngd_host_kernel ngd_host_gemma_rms_norm = {.select = select_rms, .prepare = prepare_gemma};
const struct ngd_host_kernel ngd_host_add_rms_norm_cast = {.select = select_add_rms, .prepare = prepare_add_rms};
const struct ngd_host_kernel ngd_host_add_rms_norm = {.select = select_add_rms, .prepare = prepare_add_rms};

/* ---- layer_norm ---- */

struct layer_params {
    struct ngd_nd rows;
    ngd_layer_norm_fn fn;
    struct ngd_layer_norm layer; /* without addresses */
    int64_t row_bytes;
    uint8_t n_in;
    bool moments; /* mean and rstd are results too */
};

static void run_layer(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct layer_params *l = call->params;
    const int64_t step = l->rows.step[0][l->rows.rank - 1];
    struct ngd_layer_norm layer = l->layer;
    char *y = call->ptrs[l->n_in];
    float *mean = l->moments ? (void *)call->ptrs[l->n_in + 1] : NULL;
    float *rstd = l->moments ? (void *)call->ptrs[l->n_in + 2] : NULL, moments[2];
    int64_t begin, end, row;
    struct ngd_nd_it it;

    if (!ngd_nd_part(call, run, l->rows.total, l->rows.inner, 1, part, parts, &begin, &end))
        return;
    layer.weight = l->n_in > 1 ? call->ptrs[1] : NULL;
    layer.bias = l->n_in > 2 ? call->ptrs[2] : NULL;
    y += begin * l->row_bytes;
    row = begin;
    for (ngd_nd_start(&it, &l->rows, call->ptrs, begin, end); it.run; ngd_nd_next(&it))
        for (int64_t i = 0; i < it.run; i++, row++, y += l->row_bytes) {
            l->fn(&layer, it.p[0] + i * step, y, moments);
            if (!mean)
                continue;
            mean[row] = moments[0];
            rstd[row] = moments[1];
        }
}

static ngd_status_t select_layer(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                 uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)threads;
    (void)diag;
    *strided_p = strided_rows(plan, call, 1, ngd_call_ints(call, "normalized_shape")->n);
    *workspace_p = 0;
    return NGD_OK;
}

static ngd_status_t prepare_layer_of(struct ngd_host_prepare *p, bool moments)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *w = ngd_call_in(p->plan, p->call, 1),
                                 *b = ngd_call_in(p->plan, p->call, 2);
    const struct ngd_attr_value *shape = ngd_call_ints(p->call, "normalized_shape");
    struct layer_params *l = ngd_arena_calloc(p->arena, 1, sizeof(*l));

    if (!l)
        return NGD_ERR_NO_MEMORY;
    ngd_nd_init(&l->rows, x, shape->n, &x, 1, 0);
    l->fn = NGD_BY_ISA(p->isa, ngd_norm)->layer[x->dtype];
    l->layer.n = 1;
    for (uint32_t i = 0; i < shape->n; i++)
        l->layer.n *= x->dims[x->rank - 1 - i];
    l->layer.eps = (float)ngd_call_float(p->call, "eps");
    l->layer.weight_type = w ? w->dtype : NGD_F32;
    l->layer.bias_type = b ? b->dtype : NGD_F32;
    l->row_bytes = l->layer.n * (int64_t)ngd_dtype_bytes(x->dtype);
    l->n_in = (uint8_t)p->call->n_in;
    l->moments = moments;
    p->fn = run_layer;
    p->params = l;
    p->cost_ns = norm_ns(&l->rows, l->layer.n, p->isa) * 1.5;
    return NGD_OK;
}

static ngd_status_t prepare_layer(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_layer_of(p, false);
}

static ngd_status_t prepare_native_layer(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_layer_of(p, true);
}

const struct ngd_host_kernel ngd_host_layer_norm = {.select = select_layer, .prepare = prepare_layer};
const struct ngd_host_kernel ngd_host_native_layer_norm = {.select = select_layer, .prepare = prepare_native_layer};
