/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sum, mean, extremes, products, any and all over any set of dimensions of a tensor with any strides.
 *
 * Two walks: `kept` finds the first element of each result, `reduced` the elements that belong to it. Where reduced
 * elements are neighbours a vector function takes whole runs; where results are, one takes an element of many
 * columns at a time; the rest goes element by element. All add up in one fixed order per result.
 */
#include "devices/host/k_reduce.h"
#include "base/mem.h"
#include "devices/host/nd.h"
#include "devices/host/typed.h"
#include <math.h>

/* Columns at a time, and rows of them that are summed in f32 before the sum moves on to a second accumulator. */
#define COLS 256
#define ROWS 128

typedef enum kind { SUM, MEAN, MAX, MIN, PROD, ANY, ALL, KINDS } kind_t;

struct reduce_params {
    struct ngd_nd kept, reduced;
    ngd_reduce_fn run;
    ngd_reduce_cols_fn cols; /* NULL: results one by one */
    void (*store)(char *dst, int64_t i, double f, int64_t v);
    struct ngd_acc first;
    double count; /* what the sum is divided by; 1 unless a mean is asked for */
    bool add;     /* columns are summed (else: extremes) */
};

/* ---- functions of one run ---- */

#define FLOAT_RUNS(T, wide)                                                                          \
    static void sum_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                 \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                              \
            acc->f += (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));        \
    }                                                                                                \
    static void prod_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                              \
            acc->f *= (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));        \
    }                                                                                                \
    static void max_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                 \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                            \
            const double v = (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)); \
            acc->f = v > acc->f || v != v ? v : acc->f;                                              \
        }                                                                                            \
    }                                                                                                \
    static void min_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                 \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                            \
            const double v = (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)); \
            acc->f = v < acc->f || v != v ? v : acc->f;                                              \
        }                                                                                            \
    }
/* A NaN stays: nothing is larger or smaller than it, and a second NaN is as good. Integer sums and products wrap. */
#define INT_RUNS(T, wide)                                                                                 \
    static void sum_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                      \
    {                                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                   \
            acc->i = (int64_t)((uint64_t)acc->i +                                                         \
                               (uint64_t)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step))); \
    }                                                                                                     \
    static void prod_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                     \
    {                                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                   \
            acc->i = (int64_t)((uint64_t)acc->i *                                                         \
                               (uint64_t)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step))); \
    }                                                                                                     \
    static void max_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                      \
    {                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                 \
            const int64_t v = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));             \
            acc->i = v > acc->i ? v : acc->i;                                                             \
        }                                                                                                 \
    }                                                                                                     \
    static void min_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)                      \
    {                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                 \
            const int64_t v = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));             \
            acc->i = v < acc->i ? v : acc->i;                                                             \
        }                                                                                                 \
    }
/* A sum of integers with a float result. */
#define MIXED_RUNS(T, wide)                                                                   \
    static void mixed_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)        \
    {                                                                                         \
        for (int64_t i = 0; i < n; i++)                                                       \
            acc->f += (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)); \
    }
#define FLOAT_STORE(T, wide)                                         \
    static void store_##T(char *dst, int64_t i, double f, int64_t v) \
    {                                                                \
        (void)v;                                                     \
        ((ngd_el_##T *)(void *)dst)[i] = ngd_put_##T((float)f);      \
    }
#define INT_STORE(T, wide)                                           \
    static void store_##T(char *dst, int64_t i, double f, int64_t v) \
    {                                                                \
        (void)f;                                                     \
        ((ngd_el_##T *)(void *)dst)[i] = ngd_put_##T(v);             \
    }
/* What decides ends the run: nothing behind it changes the result. */
#define TRUTH_RUNS(T, wide)                                                               \
    static void any_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)      \
    {                                                                                     \
        for (int64_t i = 0; i < n && acc->i == 0; i++)                                    \
            acc->i = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)) != 0; \
    }                                                                                     \
    static void all_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)      \
    {                                                                                     \
        for (int64_t i = 0; i < n && acc->i != 0; i++)                                    \
            acc->i = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)) != 0; \
    }
NGD_EACH_FLOAT(TRUTH_RUNS)
NGD_EACH_INT(TRUTH_RUNS)
NGD_EACH_FLOAT(FLOAT_RUNS)
NGD_EACH_INT(INT_RUNS)
NGD_EACH_INT(MIXED_RUNS)
NGD_EACH_FLOAT(FLOAT_STORE)
NGD_EACH_INT(INT_STORE)

static const ngd_reduce_fn runs[KINDS][NGD_DTYPE_MAX] = {
    [SUM] = NGD_BY_TYPE(sum),   [MEAN] = NGD_BY_TYPE(sum), [MAX] = NGD_BY_TYPE(max), [MIN] = NGD_BY_TYPE(min),
    [PROD] = NGD_BY_TYPE(prod), [ANY] = NGD_BY_TYPE(any),  [ALL] = NGD_BY_TYPE(all),
};
static const ngd_reduce_fn mixed[NGD_DTYPE_MAX] = {
    [NGD_I8] = mixed_i8, [NGD_U8] = mixed_u8, [NGD_I32] = mixed_i32, [NGD_I64] = mixed_i64, [NGD_BOOL] = mixed_b8,
};
static void (*const stores[NGD_DTYPE_MAX])(char *, int64_t, double, int64_t) = NGD_BY_TYPE(store);

/* ---- running ---- */

static void one_by_one(const struct reduce_params *r, char *const *in, char *out, int64_t begin, int64_t end)
{
    const int64_t next = r->kept.step[0][r->kept.rank - 1], step = r->reduced.step[0][r->reduced.rank - 1];
    struct ngd_nd_it it, red;
    int64_t o = begin;

    for (ngd_nd_start(&it, &r->kept, in, begin, end); it.run; ngd_nd_next(&it)) {
        for (int64_t i = 0; i < it.run; i++, o++) {
            struct ngd_acc acc = r->first;
            char *p = it.p[0] + i * next;

            for (ngd_nd_start(&red, &r->reduced, &p, 0, r->reduced.total); red.run; ngd_nd_next(&red))
                r->run(&acc, red.p[0], step, red.run);
            r->store(out, o, acc.f / r->count, acc.i);
        }
    }
}

/* m <= COLS neighbouring results. */
static void reduce_cols(const struct reduce_params *r, char *in, char *out, int64_t o, int64_t m)
{
    const int64_t step = r->reduced.step[0][r->reduced.rank - 1];
    float acc[COLS], total[COLS];
    int64_t rows = 0;
    struct ngd_nd_it red;

    for (int64_t c = 0; c < m; c++)
        acc[c] = total[c] = (float)r->first.f;
    for (ngd_nd_start(&red, &r->reduced, &in, 0, r->reduced.total); red.run; ngd_nd_next(&red)) {
        for (int64_t j = 0; j < red.run; j++) {
            r->cols(acc, red.p[0] + j * step, m);
            if (!r->add || ++rows % ROWS)
                continue;
            for (int64_t c = 0; c < m; c++) {
                total[c] += acc[c];
                acc[c] = 0;
            }
        }
    }
    for (int64_t c = 0; c < m; c++)
        r->store(out, o + c, (double)(r->add ? total[c] + acc[c] : acc[c]) / r->count, 0);
}

static void by_cols(const struct reduce_params *r, char *const *in, char *out, int64_t begin, int64_t end)
{
    const int64_t next = r->kept.step[0][r->kept.rank - 1];
    struct ngd_nd_it it;
    int64_t o = begin;

    for (ngd_nd_start(&it, &r->kept, in, begin, end); it.run; ngd_nd_next(&it)) {
        for (int64_t i = 0; i < it.run; i += COLS) {
            int64_t m = it.run - i < COLS ? it.run - i : COLS;

            reduce_cols(r, it.p[0] + i * next, out, o, m);
            o += m;
        }
    }
}

static void run_reduce(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct reduce_params *r = call->params;
    int64_t begin, end;

    if (!ngd_nd_part(call, run, r->kept.total, r->kept.inner, 16, part, parts, &begin, &end))
        return;
    if (r->cols)
        by_cols(r, call->ptrs, call->ptrs[1], begin, end);
    else
        one_by_one(r, call->ptrs, call->ptrs[1], begin, end);
}

/* ---- preparing ---- */

static struct ngd_acc first_of(kind_t kind)
{
    static const struct ngd_acc first[KINDS] = {
        [MAX] = {-INFINITY, INT64_MIN}, [MIN] = {INFINITY, INT64_MAX}, [PROD] = {1, 1}, [ALL] = {1, 1}};

    return first[kind];
}

/* A vector function instead of the plain one where strides allow. */
static void choose_vector(struct reduce_params *r, kind_t kind, ngd_dtype_t t, ngd_isa_t isa)
{
    static const ngd_reduction_t as[KINDS] = {
        [SUM] = NGD_REDUCE_SUM,     [MEAN] = NGD_REDUCE_SUM,   [MAX] = NGD_REDUCE_MAX,   [MIN] = NGD_REDUCE_MIN,
        [PROD] = NGD_REDUCE_VECTOR, [ANY] = NGD_REDUCE_VECTOR, [ALL] = NGD_REDUCE_VECTOR};
    const struct ngd_reduce_table *table = NGD_BY_ISA(isa, ngd_reduce);
    const uint32_t last = r->kept.rank - 1;

    if (as[kind] == NGD_REDUCE_VECTOR || !ngd_dtype_is_float(t))
        return;
    if (r->reduced.plain)
        r->run = table->run[as[kind]][t];
    else if (r->kept.plain && r->kept.dims[last] >= 4)
        r->cols = table->cols[as[kind]][t];
}

static ngd_status_t prepare_reduce(struct ngd_host_prepare *p, kind_t kind)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *out = ngd_call_out(p->plan, p->call, 0);
    const uint32_t axes = ngd_op_reduced_axes(p->call->op, p->call->attrs, x->rank);
    struct ngd_plan_tensor kept = ngd_tensor_dims(x, axes, false), reduced = ngd_tensor_dims(x, axes, true);
    struct reduce_params *r = ngd_arena_calloc(p->arena, 1, sizeof(*r));
    const bool mixes = !ngd_dtype_is_float(x->dtype) && ngd_dtype_is_float(out->dtype);

    if (!r)
        return NGD_ERR_NO_MEMORY;
    ngd_nd_init(&r->kept, &kept, 0, (const struct ngd_plan_tensor *[]){&kept}, 1, 0);
    ngd_nd_init(&r->reduced, &reduced, 0, (const struct ngd_plan_tensor *[]){&reduced}, 1, 0);
    r->run = mixes ? mixed[x->dtype] : runs[kind][x->dtype];
    r->store = stores[out->dtype];
    r->first = first_of(kind);
    r->count = kind == MEAN ? (double)r->reduced.total : 1.0; /* of nothing: 0 / 0, which is NaN */
    r->add = kind == SUM || kind == MEAN;
    choose_vector(r, kind, x->dtype, p->isa);
    p->fn = run_reduce;
    p->params = r;
    p->cost_ns =
        20 + (double)r->kept.total * (10 + (double)r->reduced.total * (r->cols || r->reduced.plain ? 0.15 : 1.5));
    return NGD_OK;
}

#define KERNEL(name, kind)                                                                \
    static ngd_status_t prepare_##name(struct ngd_host_prepare *p, struct ngd_diag *diag) \
    {                                                                                     \
        (void)diag;                                                                       \
        return prepare_reduce(p, kind);                                                   \
    }                                                                                     \
    const struct ngd_host_kernel ngd_host_##name = {.select = ngd_select_strided, .prepare = prepare_##name};
KERNEL(sum, SUM)
KERNEL(mean, MEAN)
KERNEL(amax, MAX)
KERNEL(amin, MIN)
KERNEL(prod, PROD)
KERNEL(any, ANY)
KERNEL(all, ALL)
