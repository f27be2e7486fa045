/* SPDX-License-Identifier: Apache-2.0 */
/* aten.arange, aten.full and similar operators, aten.tril, aten.triu. */
#include "devices/host/kernels/k_make.h"
#include "base/mem.h"
#include "devices/host/kernels/nd.h"
#include "devices/host/kernels/typed.h"

/* ---- arange ---- */

struct arange_params {
    int64_t n, start, step;
    void (*fill)(char *dst, int64_t begin, int64_t end, int64_t start, int64_t step);
};

/* Element i does not depend on the number of elements. Integers wrap, as if they were counted up. */
#define FILL(T, wide)                                                                              \
    static void fill_range_##T(char *dst, int64_t begin, int64_t end, int64_t start, int64_t step) \
    {                                                                                              \
        ngd_el_##T *d = (void *)dst;                                                               \
        for (int64_t i = begin; i < end; i++)                                                      \
            d[i] = ngd_put_##T((wide)(int64_t)((uint64_t)start + (uint64_t)i * (uint64_t)step));   \
    }
NGD_EACH_TYPE(FILL)
static void (*const fills[NGD_DTYPE_MAX])(char *, int64_t, int64_t, int64_t, int64_t) = NGD_BY_TYPE(fill_range);

static void run_arange(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct arange_params *a = call->params;
    int64_t begin, end;

    if (ngd_nd_part(call, run, a->n, 1, 64, part, parts, &begin, &end))
        a->fill(call->ptrs[0], begin, end, a->start, a->step);
}

static int64_t attr_int_or(const struct ngd_plan_call *call, const char *attr, int64_t otherwise)
{
    return ngd_op_attr_index(call->op, attr, strlen(attr)) < 0 ? otherwise : ngd_call_int(call, attr);
}

static ngd_status_t prepare_arange(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *out = ngd_call_out(p->plan, p->call, 0);
    struct arange_params *a = ngd_arena_alloc(p->arena, sizeof(*a));

    (void)diag;
    if (!a)
        return NGD_ERR_NO_MEMORY;
    *a = (struct arange_params){.n = out->dims[0],
                                .start = attr_int_or(p->call, "start", 0),
                                .step = attr_int_or(p->call, "step", 1),
                                .fill = fills[out->dtype]};
    p->fn = run_arange;
    p->params = a;
    p->cost_ns = 15 + (double)a->n;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_arange = {.select = ngd_select_contiguous, .prepare = prepare_arange};

/* ---- full ---- */

struct full_params {
    int64_t total, inner;
    uint32_t size;
    char value[8];
};

void ngd_constant_fill(char *dst, int64_t bytes, const char *value, int64_t size)
{
    if (bytes <= 0)
        return;
    memcpy(dst, value, (size_t)size);
    for (int64_t done = size; done < bytes; done *= 2) /* doubles the filled part each time */
        memcpy(dst + done, dst, (size_t)(done < bytes - done ? done : bytes - done));
}

static void run_full(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct full_params *f = call->params;
    int64_t begin, end;

    if (ngd_nd_part(call, run, f->total, f->inner, 256, part, parts, &begin, &end))
        ngd_constant_fill(call->ptrs[call->n_in] + begin * f->size, (end - begin) * f->size, f->value, f->size);
}

void ngd_constant_put(ngd_dtype_t t, struct ngd_scalar v, char *dst)
{
    int64_t i = ngd_scalar_i64(v);
    float f = ngd_scalar_f32(v);
    uint16_t half = t == NGD_F16 ? ngd_f32_to_f16(f) : ngd_f32_to_bf16(f);

    if (t == NGD_F32)
        memcpy(dst, &f, sizeof(f));
    else if (ngd_dtype_is_float(t))
        memcpy(dst, &half, sizeof(half));
    else if (t == NGD_BOOL)
        *dst = v.f != 0;
    else
        memcpy(dst, &i, ngd_dtype_bytes(t)); /* little endian: the low bytes come first */
}

static ngd_status_t prepare_full(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *out = ngd_call_out(p->plan, p->call, 0);
    struct full_params *f = ngd_arena_calloc(p->arena, 1, sizeof(*f));

    (void)diag;
    if (!f)
        return NGD_ERR_NO_MEMORY;
    f->total = ngd_tensor_count(out);
    f->inner = out->rank && out->dims[0] ? f->total / out->dims[0] : f->total;
    f->size = (uint32_t)ngd_dtype_bytes(out->dtype);
    ngd_constant_put(out->dtype, ngd_op_fill_value(p->call->op, p->call->attrs), f->value);
    p->fn = run_full;
    p->params = f;
    p->cost_ns = 15 + (double)f->total * f->size * 0.05;
    return NGD_OK;
}

/* An operand only gives the shape and is not read. */
const struct ngd_host_kernel ngd_host_full = {.select = ngd_select_strided, .prepare = prepare_full};

/* ---- tril, triu ---- */

struct triangle_params {
    int64_t total, inner; /* matrix rows, in all and per index of dimension 0 */
    int64_t rows, cols, diagonal;
    uint32_t size;
    bool lower;
};

static void run_triangle_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct triangle_params *t = call->params;
    const int64_t bytes = t->cols * t->size;
    int64_t begin, end;

    if (!ngd_nd_part(call, run, t->total, t->inner, 1, part, parts, &begin, &end))
        return;
    for (int64_t r = begin; r < end; r++) {
        const char *src = call->ptrs[0] + r * bytes;
        char *dst = call->ptrs[1] + r * bytes;
        /* Columns below `cut` belong to the lower triangle (with its diagonal), or lie left of the upper triangle. */
        int64_t cut = r % t->rows + t->diagonal + (t->lower ? 1 : 0);

        cut = (cut < 0 ? 0 : cut > t->cols ? t->cols : cut) * t->size;
        if (t->lower) {
            memcpy(dst, src, (size_t)cut);
            memset(dst + cut, 0, (size_t)(bytes - cut));
        } else {
            memset(dst, 0, (size_t)cut);
            memcpy(dst + cut, src + cut, (size_t)(bytes - cut));
        }
    }
}

static ngd_status_t prepare_triangle(struct ngd_host_prepare *p, bool lower)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    struct triangle_params *t = ngd_arena_calloc(p->arena, 1, sizeof(*t));

    if (!t)
        return NGD_ERR_NO_MEMORY;
    t->rows = x->dims[x->rank - 2];
    t->cols = x->dims[x->rank - 1];
    t->total = 1;
    for (uint32_t d = 0; d + 1 < x->rank; d++)
        t->total *= x->dims[d];
    t->inner = x->dims[0] ? t->total / x->dims[0] : t->total;
    t->diagonal = ngd_call_int(p->call, "diagonal");
    t->size = (uint32_t)ngd_dtype_bytes(x->dtype);
    t->lower = lower;
    p->fn = run_triangle_part;
    p->params = t;
    p->cost_ns = 15 + (double)t->total * (10 + (double)(t->cols * t->size) * 0.06);
    return NGD_OK;
}

static ngd_status_t prepare_tril(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_triangle(p, true);
}

static ngd_status_t prepare_triu(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_triangle(p, false);
}

const struct ngd_host_kernel ngd_host_tril = {.select = ngd_select_contiguous, .prepare = prepare_tril};
const struct ngd_host_kernel ngd_host_triu = {.select = ngd_select_contiguous, .prepare = prepare_triu};
