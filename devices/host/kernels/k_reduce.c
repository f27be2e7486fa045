/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sum, mean, extremes, products, any and all over any set of dimensions of a tensor with any strides.
 *
 * There are two walks: `kept` finds the first element of each result, `reduced` the elements that belong to it. There
 * are three ways, each with its own order of summation: a vector function takes whole runs of reduced elements, or one
 * element of many columns at a time, or plain C takes elements one by one. Only the operand's shape chooses the way and
 * the runs: those of a contiguous tensor of that shape. An operand with other strides goes the same way through a
 * buffer, so its result has the same bits as after a copy.
 */
#include "devices/host/kernels/k_reduce.h"
#include "base/mem.h"
#include "devices/host/kernels/nd.h"
#include "devices/host/kernels/simd.h"
#include "devices/host/kernels/typed.h"
#include <math.h>

/* Columns that are reduced at a time, and rows of them that are summed in f32 before the sum is added to a second
 * accumulator. */
#define COLS 256
#define ROWS 128
/* Bytes of a block of elements that are gathered for a vector function. */
#define ROOM (SIMD_SUM_BLOCK * 4)

typedef enum kind { SUM, MEAN, MAX, MIN, PROD, ANY, ALL, KINDS } kind_t;

struct reduce_params {
    struct ngd_nd kept, reduced;
    ngd_reduce_fn run;
    ngd_reduce_cols_fn cols; /* NULL: results are computed one by one */
    bool staged;             /* elements have to be gathered for the vector function */
    int64_t run_length;      /* elements of a run, if staged */
    void (*store)(char *dst, int64_t i, double f, int64_t v);
    struct ngd_acc first;
    double count; /* the sum is divided by it; 1 unless the operator is a mean */
    bool add;     /* columns are summed; otherwise it is an extreme */
};

/* ---- functions of one run ---- */

#define FLOAT_RUNS(T, wide)                                                                          \
    static void reduce_run_sum_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)      \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                              \
            acc->f += (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));        \
    }                                                                                                \
    static void reduce_run_prod_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)     \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                              \
            acc->f *= (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));        \
    }                                                                                                \
    static void reduce_run_max_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)      \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                            \
            const double v = (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)); \
            acc->f = v > acc->f || v != v ? v : acc->f;                                              \
        }                                                                                            \
    }                                                                                                \
    static void reduce_run_min_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)      \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                            \
            const double v = (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)); \
            acc->f = v < acc->f || v != v ? v : acc->f;                                              \
        }                                                                                            \
    }
/* An extreme that is NaN stays NaN, since nothing is larger or smaller; another NaN may replace it. Integer sums and
 * products wrap. */
#define INT_RUNS(T, wide)                                                                                 \
    static void reduce_run_sum_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)           \
    {                                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                   \
            acc->i = (int64_t)((uint64_t)acc->i +                                                         \
                               (uint64_t)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step))); \
    }                                                                                                     \
    static void reduce_run_prod_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)          \
    {                                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                                   \
            acc->i = (int64_t)((uint64_t)acc->i *                                                         \
                               (uint64_t)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step))); \
    }                                                                                                     \
    static void reduce_run_max_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)           \
    {                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                 \
            const int64_t v = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));             \
            acc->i = v > acc->i ? v : acc->i;                                                             \
        }                                                                                                 \
    }                                                                                                     \
    static void reduce_run_min_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n)           \
    {                                                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                 \
            const int64_t v = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));             \
            acc->i = v < acc->i ? v : acc->i;                                                             \
        }                                                                                                 \
    }
/* A sum of integers with a float result. */
#define MIXED_RUNS(T, wide)                                                                       \
    static void reduce_run_mixed_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n) \
    {                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                           \
            acc->f += (double)ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step));     \
    }
#define FLOAT_STORE(T, wide)                                                \
    static void reduce_store_##T(char *dst, int64_t i, double f, int64_t v) \
    {                                                                       \
        (void)v;                                                            \
        ((ngd_el_##T *)(void *)dst)[i] = ngd_put_##T((float)f);             \
    }
#define INT_STORE(T, wide)                                                  \
    static void reduce_store_##T(char *dst, int64_t i, double f, int64_t v) \
    {                                                                       \
        (void)f;                                                            \
        ((ngd_el_##T *)(void *)dst)[i] = ngd_put_##T(v);                    \
    }
/* The run ends at the element that decides, since no later one changes the result. */
#define TRUTH_RUNS(T, wide)                                                                     \
    static void reduce_run_any_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n) \
    {                                                                                           \
        for (int64_t i = 0; i < n && acc->i == 0; i++)                                          \
            acc->i = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)) != 0;       \
    }                                                                                           \
    static void reduce_run_all_##T(struct ngd_acc *acc, const char *p, int64_t step, int64_t n) \
    {                                                                                           \
        for (int64_t i = 0; i < n && acc->i != 0; i++)                                          \
            acc->i = ngd_get_##T(*(const ngd_el_##T *)(const void *)(p + i * step)) != 0;       \
    }
NGD_EACH_FLOAT(TRUTH_RUNS)
NGD_EACH_INT(TRUTH_RUNS)
NGD_EACH_FLOAT(FLOAT_RUNS)
NGD_EACH_INT(INT_RUNS)
NGD_EACH_INT(MIXED_RUNS)
NGD_EACH_FLOAT(FLOAT_STORE)
NGD_EACH_INT(INT_STORE)

static const ngd_reduce_fn runs[KINDS][NGD_DTYPE_MAX] = {
    [SUM] = NGD_BY_TYPE(reduce_run_sum), [MEAN] = NGD_BY_TYPE(reduce_run_sum),  [MAX] = NGD_BY_TYPE(reduce_run_max),
    [MIN] = NGD_BY_TYPE(reduce_run_min), [PROD] = NGD_BY_TYPE(reduce_run_prod), [ANY] = NGD_BY_TYPE(reduce_run_any),
    [ALL] = NGD_BY_TYPE(reduce_run_all),
};
static const ngd_reduce_fn mixed[NGD_DTYPE_MAX] = {
    [NGD_I8] = reduce_run_mixed_i8,   [NGD_U8] = reduce_run_mixed_u8,   [NGD_I32] = reduce_run_mixed_i32,
    [NGD_I64] = reduce_run_mixed_i64, [NGD_BOOL] = reduce_run_mixed_b8,
};
static void (*const stores[NGD_DTYPE_MAX])(char *, int64_t, double, int64_t) = NGD_BY_TYPE(reduce_store);

/* ---- running ---- */

/* Gathers elements of 2 or 4 bytes. */
static void gather_run(char *to, const char *from, int64_t step, int64_t n, uint32_t size)
{
    if (size == 4)
        for (int64_t i = 0; i < n; i++)
            memcpy(to + 4 * i, from + i * step, 4);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(to + 2 * i, from + i * step, 2);
}

/* Reduces the elements of the result at p, in the pieces that a vector function would make of contiguous elements. */
static void run_staged(const struct reduce_params *r, char *p, char *room, struct ngd_acc *acc)
{
    const uint32_t size = r->reduced.size[0];
    const int64_t step = r->reduced.step[0][r->reduced.rank - 1];
    struct ngd_nd_it it;
    int64_t n;

    for (int64_t at = 0; at < r->reduced.total; at += n) {
        char *to = room;

        n = r->run_length - at % r->run_length;
        n = n < SIMD_SUM_BLOCK ? n : SIMD_SUM_BLOCK;
        for (ngd_nd_start(&it, &r->reduced, &p, at, at + n); it.run; to += it.run * size, ngd_nd_next(&it))
            gather_run(to, it.p[0], step, it.run, size);
        r->run(acc, room, size, n);
    }
}

/* `room` is this thread's memory for staged runs. */
static void one_by_one(const struct reduce_params *r, char *const *in, char *out, char *room, int64_t begin,
                       int64_t end)
{
    const int64_t next = r->kept.step[0][r->kept.rank - 1], step = r->reduced.step[0][r->reduced.rank - 1];
    struct ngd_nd_it it, red;
    int64_t o = begin;

    for (ngd_nd_start(&it, &r->kept, in, begin, end); it.run; ngd_nd_next(&it)) {
        for (int64_t i = 0; i < it.run; i++, o++) {
            struct ngd_acc acc = r->first;
            char *p = it.p[0] + i * next;

            if (r->staged)
                run_staged(r, p, room, &acc);
            else
                for (ngd_nd_start(&red, &r->reduced, &p, 0, r->reduced.total); red.run; ngd_nd_next(&red))
                    r->run(&acc, red.p[0], step, red.run);
            r->store(out, o, acc.f / r->count, acc.i);
        }
    }
}

/* Reduces one element of each column: at p if they are neighbours (from is NULL), otherwise at p + from[i]. */
static void take_row(const struct reduce_params *r, float *acc, const char *p, const int64_t *from, int64_t m)
{
    const uint32_t size = r->kept.size[0];
    _Alignas(64) char room[COLS * 4];

    if (!from) {
        r->cols(acc, p, m);
        return;
    }
    if (size == 4)
        for (int64_t c = 0; c < m; c++)
            memcpy(room + 4 * c, p + from[c], 4);
    else
        for (int64_t c = 0; c < m; c++)
            memcpy(room + 2 * c, p + from[c], 2);
    r->cols(acc, room, m);
}

/* Computes m <= COLS results that follow each other. */
static void reduce_cols(const struct reduce_params *r, char *in, const int64_t *from, char *out, int64_t o, int64_t m)
{
    const int64_t step = r->reduced.step[0][r->reduced.rank - 1];
    float acc[COLS], total[COLS];
    int64_t rows = 0;
    struct ngd_nd_it red;

    for (int64_t c = 0; c < m; c++)
        acc[c] = total[c] = (float)r->first.f;
    for (ngd_nd_start(&red, &r->reduced, &in, 0, r->reduced.total); red.run; ngd_nd_next(&red)) {
        for (int64_t j = 0; j < red.run; j++) {
            take_row(r, acc, red.p[0] + j * step, from, m);
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

static void by_staged_cols(const struct reduce_params *r, char *const *in, char *out, int64_t begin, int64_t end)
{
    const int64_t next = r->kept.step[0][r->kept.rank - 1];
    int64_t from[COLS], m;
    struct ngd_nd_it it;

    for (int64_t o = begin; o < end; o += m) {
        int64_t c = 0;

        m = end - o < COLS ? end - o : COLS;
        for (ngd_nd_start(&it, &r->kept, in, o, o + m); it.run; ngd_nd_next(&it))
            for (int64_t i = 0; i < it.run; i++)
                from[c++] = it.p[0] - in[0] + i * next;
        reduce_cols(r, in[0], from, out, o, m);
    }
}

static void by_cols(const struct reduce_params *r, char *const *in, char *out, int64_t begin, int64_t end)
{
    const int64_t next = r->kept.step[0][r->kept.rank - 1];
    struct ngd_nd_it it;
    int64_t o = begin;

    for (ngd_nd_start(&it, &r->kept, in, begin, end); it.run; ngd_nd_next(&it)) {
        for (int64_t i = 0; i < it.run; i += COLS) {
            int64_t m = it.run - i < COLS ? it.run - i : COLS;

            reduce_cols(r, it.p[0] + i * next, NULL, out, o, m);
            o += m;
        }
    }
}

static void run_reduce_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct reduce_params *r = call->params;
    int64_t begin, end;

    if (!ngd_nd_part(call, run, r->kept.total, r->kept.inner, 16, part, parts, &begin, &end))
        return;
    if (r->cols && r->staged)
        by_staged_cols(r, call->ptrs, call->ptrs[1], begin, end);
    else if (r->cols)
        by_cols(r, call->ptrs, call->ptrs[1], begin, end);
    else
        one_by_one(r, call->ptrs, call->ptrs[1], r->staged ? call->workspace + ngd_host_thread * ROOM : NULL, begin,
                   end);
}

/* ---- capture ---- */

static struct ngd_acc first_value(kind_t kind)
{
    static const struct ngd_acc first[KINDS] = {
        [MAX] = {-INFINITY, INT64_MIN}, [MIN] = {INFINITY, INT64_MAX}, [PROD] = {1, 1}, [ALL] = {1, 1}};

    return first[kind];
}

struct walks {
    struct ngd_nd kept, reduced;
};

static struct walks walks_of(const struct ngd_plan_tensor *x, uint32_t axes)
{
    const struct ngd_plan_tensor kept = ngd_tensor_dims(x, axes, false), reduced = ngd_tensor_dims(x, axes, true);
    struct walks w;

    ngd_nd_init(&w.kept, &kept, 0, (const struct ngd_plan_tensor *[]){&kept}, 1, 0);
    ngd_nd_init(&w.reduced, &reduced, 0, (const struct ngd_plan_tensor *[]){&reduced}, 1, 0);
    return w;
}

static struct ngd_plan_tensor contiguous(const struct ngd_plan_tensor *t)
{
    struct ngd_plan_tensor c = *t;
    int64_t stride = 1;

    for (uint32_t d = t->rank; d-- > 0; stride *= t->dims[d])
        c.strides[d] = stride;
    return c;
}

/* Chooses a vector function instead of the plain one. w has the walks of a contiguous tensor, which decide. */
static void choose_vector(struct reduce_params *r, const struct walks *w, kind_t kind, ngd_dtype_t t, ngd_isa_t isa)
{
    static const ngd_reduction_t as[KINDS] = {
        [SUM] = NGD_REDUCE_SUM,     [MEAN] = NGD_REDUCE_SUM,   [MAX] = NGD_REDUCE_MAX,   [MIN] = NGD_REDUCE_MIN,
        [PROD] = NGD_REDUCE_VECTOR, [ANY] = NGD_REDUCE_VECTOR, [ALL] = NGD_REDUCE_VECTOR};
    const struct ngd_reduce_table *table = NGD_BY_ISA(isa, ngd_reduce);
    const int64_t run = w->reduced.dims[w->reduced.rank - 1], cols = w->kept.dims[w->kept.rank - 1];

    if (as[kind] == NGD_REDUCE_VECTOR || !ngd_dtype_is_float(t))
        return;
    if (w->reduced.plain) {
        r->run = table->run[as[kind]][t];
        r->run_length = run;
        r->staged = !r->reduced.plain || r->reduced.dims[r->reduced.rank - 1] != run;
    } else if (w->kept.plain && cols >= 4) {
        r->cols = table->cols[as[kind]][t];
        r->staged = !r->kept.plain || r->kept.dims[r->kept.rank - 1] < 4;
    }
}

static ngd_status_t select_reduce(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(plan, call, 0);

    (void)diag;
    *strided_p = UINT32_MAX;
    *workspace_p = ngd_dtype_is_float(x->dtype) && !ngd_host_inner_contiguous(x, 0) ? (uint64_t)ROOM * threads : 0;
    return NGD_OK;
}

static ngd_status_t prepare_reduce(struct ngd_host_prepare *p, kind_t kind)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *out = ngd_call_out(p->plan, p->call, 0);
    const uint32_t axes = ngd_op_reduced_axes(p->call->op, p->call->attrs, x->rank);
    const struct ngd_plan_tensor as_shape = contiguous(x);
    const struct walks own = walks_of(x, axes), shaped = walks_of(&as_shape, axes);
    struct reduce_params *r = ngd_arena_calloc(p->arena, 1, sizeof(*r));
    const bool mixes = !ngd_dtype_is_float(x->dtype) && ngd_dtype_is_float(out->dtype);

    if (!r)
        return NGD_ERR_NO_MEMORY;
    r->kept = own.kept;
    r->reduced = own.reduced;
    r->run = mixes ? mixed[x->dtype] : runs[kind][x->dtype];
    r->store = stores[out->dtype];
    r->first = first_value(kind);
    r->count = kind == MEAN ? (double)r->reduced.total : 1.0; /* a mean of no elements is 0 / 0, which is NaN */
    r->add = kind == SUM || kind == MEAN;
    choose_vector(r, &shaped, kind, x->dtype, p->isa);
    p->fn = run_reduce_part;
    p->params = r;
    p->cost_ns = 20 + (double)r->kept.total * (10 + (double)r->reduced.total * (r->staged                     ? 1
                                                                                : r->cols || r->reduced.plain ? 0.15
                                                                                                              : 1.5));
    return NGD_OK;
}

#define KERNEL(name, kind)                                                                \
    static ngd_status_t prepare_##name(struct ngd_host_prepare *p, struct ngd_diag *diag) \
    {                                                                                     \
        (void)diag;                                                                       \
        return prepare_reduce(p, kind);                                                   \
    }                                                                                     \
    const struct ngd_host_kernel ngd_host_##name = {.select = select_reduce, .prepare = prepare_##name};
KERNEL(sum, SUM)
KERNEL(mean, MEAN)
KERNEL(amax, MAX)
KERNEL(amin, MIN)
KERNEL(prod, PROD)
KERNEL(any, ANY)
KERNEL(all, ALL)
