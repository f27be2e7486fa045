/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aten.cumsum along one dimension. Float sums run in f64: a running sum in f32 would lose a bit with every doubling of
 * the length. Integer sums wrap.
 */
#include "base/mem.h"
#include "devices/host/kernels/axis.h"
#include "devices/host/kernels/typed.h"

#define COLS 64

/* Handles m <= COLS neighbouring lines of an axis. */
typedef void (*cumsum_fn)(const char *x, char *y, int64_t n, int64_t inner, int64_t m);

struct cumsum_params {
    struct ngd_axis axis;
    cumsum_fn fn;
    uint32_t x_size, y_size;
};

#define LINES(S, D, sum_type, add)                                                            \
    static void cumsum_lines_##S(const char *x, char *y, int64_t n, int64_t inner, int64_t m) \
    {                                                                                         \
        const ngd_el_##S *s = (const void *)x;                                                \
        ngd_el_##D *d = (void *)y;                                                            \
        sum_type acc[COLS] = {0};                                                             \
        for (int64_t j = 0; j < n; j++) {                                                     \
            for (int64_t c = 0; c < m; c++) {                                                 \
                acc[c] = add(acc[c], ngd_get_##S(s[j * inner + c]));                          \
                d[j * inner + c] = ngd_put_##D(acc[c]);                                       \
            }                                                                                 \
        }                                                                                     \
    }
#define ADD_FLOAT(a, v)      ((a) + (double)(v))
#define ADD_INT(a, v)        ((int64_t)((uint64_t)(a) + (uint64_t)(v)))
#define FLOAT_LINES(T, wide) LINES(T, T, double, ADD_FLOAT)
#define INT_LINES(T, wide)   LINES(T, i64, int64_t, ADD_INT)
NGD_EACH_FLOAT(FLOAT_LINES)
NGD_EACH_INT(INT_LINES)
static const cumsum_fn fns[NGD_DTYPE_MAX] = NGD_BY_TYPE(cumsum_lines);

static void run_cumsum(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct cumsum_params *c = call->params;
    const struct ngd_axis *a = &c->axis;
    int64_t begin, end;

    if (!ngd_nd_part(call, run, a->outer, a->outer_per_row, 1, part, parts, &begin, &end))
        return;
    for (int64_t o = begin; o < end; o++) {
        for (int64_t col = 0; col < a->inner; col += COLS) {
            int64_t at = o * a->n * a->inner + col, m = a->inner - col < COLS ? a->inner - col : COLS;

            c->fn(call->ptrs[0] + at * c->x_size, call->ptrs[1] + at * c->y_size, a->n, a->inner, m);
        }
    }
}

static ngd_status_t prepare_cumsum(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *y = ngd_call_out(p->plan, p->call, 0);
    struct cumsum_params *c = ngd_arena_calloc(p->arena, 1, sizeof(*c));

    (void)diag;
    if (!c)
        return NGD_ERR_NO_MEMORY;
    c->axis = ngd_axis_of(x, ngd_call_int(p->call, "dim"));
    c->fn = fns[x->dtype];
    c->x_size = (uint32_t)ngd_dtype_bytes(x->dtype);
    c->y_size = (uint32_t)ngd_dtype_bytes(y->dtype);
    p->fn = run_cumsum;
    p->params = c;
    p->cost_ns = 20 + (double)ngd_tensor_count(x) * 1.5;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_cumsum = {.select = ngd_select_contiguous, .prepare = prepare_cumsum};
