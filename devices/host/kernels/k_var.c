/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variances, alone or with the mean, over any set of dimensions of a tensor with any strides. The mean is computed
 * first, then the squares of the differences from it, both in f64 and in a fixed order.
 */
#include "base/mem.h"
#include "devices/host/kernels/nd.h"
#include "devices/host/kernels/typed.h"

typedef void (*sum_fn)(double *sum, double mean, const char *p, int64_t step, int64_t n);

struct var_params {
    struct ngd_nd kept, reduced;
    sum_fn add, add_squares;
    void (*store)(char *dst, int64_t i, double v);
    double count, divisor;
    bool with_mean;
};

#define SUMS(T, wide)                                                                                       \
    static void var_add_##T(double *sum, double mean, const char *p, int64_t step, int64_t n)               \
    {                                                                                                       \
        (void)mean;                                                                                         \
        for (int64_t i = 0; i < n; i++)                                                                     \
            *sum += (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));                 \
    }                                                                                                       \
    static void var_add_squares_##T(double *sum, double mean, const char *p, int64_t step, int64_t n)       \
    {                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                   \
            const double v = (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)) - mean; \
            *sum += v * v;                                                                                  \
        }                                                                                                   \
    }                                                                                                       \
    static void var_store_##T(char *dst, int64_t i, double v)                                               \
    {                                                                                                       \
        ((ngd_el_##T *)(void *)dst)[i] = ngd_put_##T((float)v);                                             \
    }
NGD_EACH_FLOAT(SUMS)

static double sum_of(const struct var_params *r, sum_fn fn, double mean, char *p)
{
    const int64_t step = r->reduced.step[0][r->reduced.rank - 1];
    struct ngd_nd_it it;
    double sum = 0;

    for (ngd_nd_start(&it, &r->reduced, &p, 0, r->reduced.total); it.run; ngd_nd_next(&it))
        fn(&sum, mean, it.p[0], step, it.run);
    return sum;
}

static void run_var_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct var_params *r = call->params;
    const int64_t next = r->kept.step[0][r->kept.rank - 1];
    int64_t begin, end;
    struct ngd_nd_it it;

    if (!ngd_nd_part(call, run, r->kept.total, r->kept.inner, 16, part, parts, &begin, &end))
        return;
    for (ngd_nd_start(&it, &r->kept, call->ptrs, begin, end); it.run; ngd_nd_next(&it)) {
        for (int64_t i = 0; i < it.run; i++, begin++) {
            char *p = it.p[0] + i * next;
            const double mean = sum_of(r, r->add, 0, p) / r->count;

            r->store(call->ptrs[1], begin, sum_of(r, r->add_squares, mean, p) / r->divisor);
            if (r->with_mean)
                r->store(call->ptrs[2], begin, mean);
        }
    }
}

static ngd_status_t prepare_var(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    static const struct {
        sum_fn add, add_squares;
        void (*store)(char *, int64_t, double);
    } by_type[] = {[NGD_F32] = {var_add_f32, var_add_squares_f32, var_store_f32},
                   [NGD_F16] = {var_add_f16, var_add_squares_f16, var_store_f16},
                   [NGD_BF16] = {var_add_bf16, var_add_squares_bf16, var_store_bf16}};
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    const uint32_t axes = ngd_op_reduced_axes(p->call->op, p->call->attrs, x->rank);
    struct ngd_plan_tensor kept = ngd_tensor_dims(x, axes, false), reduced = ngd_tensor_dims(x, axes, true);
    struct var_params *r = ngd_arena_calloc(p->arena, 1, sizeof(*r));

    (void)diag;
    if (!r)
        return NGD_ERR_NO_MEMORY;
    ngd_nd_init(&r->kept, &kept, 0, (const struct ngd_plan_tensor *[]){&kept}, 1, 0);
    ngd_nd_init(&r->reduced, &reduced, 0, (const struct ngd_plan_tensor *[]){&reduced}, 1, 0);
    r->add = by_type[x->dtype].add;
    r->add_squares = by_type[x->dtype].add_squares;
    r->store = by_type[x->dtype].store;
    r->count = (double)r->reduced.total; /* a mean of no elements is 0 / 0, which is NaN */
    r->divisor = r->count - ngd_call_float(p->call, "correction");
    r->divisor = r->divisor > 0 ? r->divisor : 0;
    r->with_mean = p->call->n_out > 1;
    p->fn = run_var_part;
    p->params = r;
    p->cost_ns = 20 + (double)r->kept.total * (10 + (double)r->reduced.total * 2.5);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_var = {.select = ngd_select_strided, .prepare = prepare_var};
