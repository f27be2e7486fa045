/* SPDX-License-Identifier: Apache-2.0 */
/* aten.argmax and aten.argmin: index of the first extreme along one dimension; NaN wins. */
#include "base/mem.h"
#include "devices/host/kernels/k_reduce.h"
#include "devices/host/kernels/nd.h"
#include "devices/host/kernels/typed.h"

typedef int64_t (*line_fn)(const char *p, int64_t step, int64_t n);

struct arg_params {
    struct ngd_nd lines; /* walks the first elements of the lines */
    int64_t n, step;     /* of a line: elements, bytes between them */
    ngd_arg_fn vector;   /* for contiguous floats, else NULL */
    line_fn line;
};

/* v != v is never true for integers. Comparisons with a NaN are false, so the first NaN stays the best. */
#define LINES(T, wide)                                                                     \
    static int64_t argmax_##T(const char *p, int64_t step, int64_t n)                      \
    {                                                                                      \
        int64_t at = 0;                                                                    \
        wide best = ngd_get_##T(*(const ngd_el_##T *)(const void *)p);                     \
        for (int64_t i = 1; i < n && best == best; i++) {                                  \
            const wide v = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)); \
            if (v > best || v != v) {                                                      \
                best = v;                                                                  \
                at = i;                                                                    \
            }                                                                              \
        }                                                                                  \
        return at;                                                                         \
    }                                                                                      \
    static int64_t argmin_##T(const char *p, int64_t step, int64_t n)                      \
    {                                                                                      \
        int64_t at = 0;                                                                    \
        wide best = ngd_get_##T(*(const ngd_el_##T *)(const void *)p);                     \
        for (int64_t i = 1; i < n && best == best; i++) {                                  \
            const wide v = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)); \
            if (v < best || v != v) {                                                      \
                best = v;                                                                  \
                at = i;                                                                    \
            }                                                                              \
        }                                                                                  \
        return at;                                                                         \
    }
NGD_EACH_TYPE(LINES)
static const line_fn max_lines[NGD_DTYPE_MAX] = NGD_BY_TYPE(argmax), min_lines[NGD_DTYPE_MAX] = NGD_BY_TYPE(argmin);

static void run_argmax(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct arg_params *a = call->params;
    const int64_t next = a->lines.step[0][a->lines.rank - 1];
    int64_t begin, end, *out;
    struct ngd_nd_it it;

    if (!ngd_nd_part(call, run, a->lines.total, a->lines.inner, 1, part, parts, &begin, &end))
        return;
    out = (int64_t *)(void *)call->ptrs[1] + begin;
    for (ngd_nd_start(&it, &a->lines, call->ptrs, begin, end); it.run; ngd_nd_next(&it))
        for (int64_t i = 0; i < it.run; i++) {
            const char *p = it.p[0] + i * next;

            *out++ = a->vector ? a->vector(p, a->n) : a->line(p, a->step, a->n);
        }
}

static ngd_status_t prepare_arg(struct ngd_host_prepare *p, bool max)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    const struct ngd_reduce_table *table = NGD_BY_ISA(p->isa, ngd_reduce);
    struct ngd_plan_tensor lines = *x;
    struct arg_params *a = ngd_arena_calloc(p->arena, 1, sizeof(*a));
    const int64_t size = (int64_t)ngd_dtype_bytes(x->dtype);
    int64_t dim = ngd_call_int(p->call, "dim");

    if (!a)
        return NGD_ERR_NO_MEMORY;
    dim += dim < 0 ? x->rank : 0;
    a->n = x->dims[dim];
    a->step = x->strides[dim] * size;
    lines.dims[dim] = 1;
    ngd_nd_init(&a->lines, &lines, 0, (const struct ngd_plan_tensor *[]){&lines}, 1, 0);
    a->line = max ? max_lines[x->dtype] : min_lines[x->dtype];
    if (ngd_dtype_is_float(x->dtype) && (a->step == size || a->n == 1))
        a->vector = max ? table->argmax[x->dtype] : table->argmin[x->dtype];
    p->fn = run_argmax;
    p->params = a;
    p->cost_ns = 20 + (double)a->lines.total * (10 + (double)a->n * (a->vector ? 0.2 : 1.5));
    return NGD_OK;
}

static ngd_status_t prepare_argmax(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_arg(p, true);
}

static ngd_status_t prepare_argmin(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_arg(p, false);
}

const struct ngd_host_kernel ngd_host_argmax = {.select = ngd_select_strided, .prepare = prepare_argmax};
const struct ngd_host_kernel ngd_host_argmin = {.select = ngd_select_strided, .prepare = prepare_argmin};
