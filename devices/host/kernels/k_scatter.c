/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators whose result is operand 0 with some elements replaced or added to (scatter, index_put, index_copy,
 * slice_scatter, select_scatter), and constant_pad_nd.
 *
 * If the result has the memory of operand 0 (NGD_OPF_UPDATE), nothing is copied. A state is updated in place that way.
 * So all indices are checked before anything is written, and a replay that fails leaves the state as it was.
 *
 * The last of several writes to one place must win, and sums have an order, so one thread writes in the order of the
 * index. Only the actual rows of a padded index are read.
 */
#include "base/mem.h"
#include "devices/host/kernels/indices.h"
#include "devices/host/kernels/k_make.h"
#include "devices/host/kernels/typed.h"

/* Write functions: store n elements at a place, or add them to the elements there. */
typedef void (*write_fn)(char *dst, const char *src, int64_t n);

#define PUT(T, wide)                                                   \
    static void scatter_put_##T(char *dst, const char *src, int64_t n) \
    {                                                                  \
        memcpy(dst, src, (size_t)n * sizeof(ngd_el_##T));              \
    }
NGD_EACH_TYPE(PUT)
static const write_fn puts_by_type[NGD_DTYPE_MAX] = NGD_BY_TYPE(scatter_put);

static inline float plus_float(float a, float b)
{
    return a + b;
}

static inline int64_t plus_int64_t(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

#define ADD(T, wide)                                                               \
    static void scatter_add_##T(char *dst, const char *src, int64_t n)             \
    {                                                                              \
        ngd_el_##T *d = (void *)dst;                                               \
        const ngd_el_##T *s = (const void *)src;                                   \
        for (int64_t i = 0; i < n; i++)                                            \
            d[i] = ngd_put_##T(plus_##wide(ngd_get_##T(d[i]), ngd_get_##T(s[i]))); \
    }
NGD_EACH_TYPE(ADD)
static const write_fn adds_by_type[NGD_DTYPE_MAX] = NGD_BY_TYPE(scatter_add);

/* The rows of an operand that may be padded. */
struct rows {
    int64_t n, inner; /* elements, in all and per index of dimension 0 */
    int64_t mult;
    uint8_t symbol;
};

static struct rows tensor_rows(const struct ngd_plan_tensor *t)
{
    int64_t n = ngd_tensor_count(t);

    return (struct rows){
        .n = n, .inner = t->rank && t->dims[0] ? n / t->dims[0] : n, .mult = t->row_mult, .symbol = t->row_sym};
}

static int64_t elements_now(const struct rows *r, const struct ngd_host_run *run)
{
    return r->symbol == NGD_NO_ROW_SYM ? r->n : run->symbols[r->symbol] * r->mult * r->inner;
}

/* Copies operand 0 to the result, unless they have the same memory. */
struct copy {
    struct ngd_nd nd;
    struct rows rows;
};

static void set_copy(struct copy *c, const struct ngd_plan_tensor *x, const struct ngd_plan_tensor *out)
{
    ngd_nd_init(&c->nd, x, 0, (const struct ngd_plan_tensor *[]){x, out}, 2, 0);
    c->rows = tensor_rows(x);
}

static void run_copy(const struct copy *c, const struct ngd_host_run *run, char *x, char *out)
{
    char *ptrs[] = {x, out};

    if (x != out)
        ngd_nd_copy(&c->nd, ptrs, 0, elements_now(&c->rows, run));
}

/* ---- scatter ---- */

/*
 * Walks the index together with src (or one value) and with the result. The result does not move along the axis: the
 * index says how far to go there.
 */
struct scatter_params {
    struct ngd_nd nd; /* index, src, result */
    struct ngd_indices indices;
    struct copy copy;
    struct rows rows;  /* of the index */
    int64_t axis_step; /* bytes, of the result */
    write_fn write;
    bool constant;
    char value[8];
};

static bool scatter_indices_are_good(const struct scatter_params *s, const struct ngd_host_call *call,
                                     struct ngd_host_run *run, char *const *ptrs, int64_t n)
{
    const int64_t step = s->nd.step[0][s->nd.rank - 1], limit = ngd_indices_limit(&s->indices, run);
    struct ngd_nd_it it;
    int64_t v;

    for (ngd_nd_start(&it, &s->nd, ptrs, 0, n); it.run; ngd_nd_next(&it))
        for (int64_t i = 0; i < it.run; i++)
            if (!ngd_indices_get(&s->indices, it.p[0] + i * step, limit, call, run, &v))
                return false;
    return true;
}

static void run_scatter_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct scatter_params *s = call->params;
    const uint32_t last = s->nd.rank - 1;
    const int64_t limit = ngd_indices_limit(&s->indices, run), n = elements_now(&s->rows, run);
    char *out = call->ptrs[call->n_in];
    char *ptrs[] = {call->ptrs[1], s->constant ? (char *)(uintptr_t)s->value : call->ptrs[2], out};
    struct ngd_nd_it it;
    int64_t v;

    (void)parts;
    if (part || !scatter_indices_are_good(s, call, run, ptrs, n))
        return;
    run_copy(&s->copy, run, call->ptrs[0], out);
    for (ngd_nd_start(&it, &s->nd, ptrs, 0, n); it.run; ngd_nd_next(&it))
        for (int64_t i = 0; i < it.run; i++)
            if (ngd_indices_get(&s->indices, it.p[0] + i * s->nd.step[0][last], limit, call, run, &v))
                s->write(it.p[2] + i * s->nd.step[2][last] + v * s->axis_step, it.p[1] + i * s->nd.step[1][last], 1);
}

/* All three are walked in the index's shape, which lies within the other shapes, so only their strides matter. */
static void set_walk(struct scatter_params *s, const struct ngd_plan_tensor *index, const struct ngd_plan_tensor *src,
                     const struct ngd_plan_tensor *out, uint32_t dim)
{
    struct ngd_plan_tensor a = src ? *src : *index, b = *out;

    if (!src) { /* the source is one value */
        a.dtype = out->dtype;
        memset(a.strides, 0, sizeof(a.strides));
    }
    b.strides[dim] = 0;
    memcpy(a.dims, index->dims, sizeof(a.dims));
    memcpy(b.dims, index->dims, sizeof(b.dims));
    ngd_nd_init(&s->nd, index, 0, (const struct ngd_plan_tensor *[]){index, &a, &b}, 3, 0);
}

static ngd_status_t prepare_scatter_with(struct ngd_host_prepare *p, const struct ngd_plan_tensor *src,
                                         const write_fn *writes, struct scatter_params **params_p)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *index = ngd_call_in(p->plan, p->call, 1),
                                 *out = ngd_call_out(p->plan, p->call, 0);
    struct scatter_params *s = ngd_arena_calloc(p->arena, 1, sizeof(*s));
    int64_t dim = ngd_call_int(p->call, "dim");

    if (!s)
        return NGD_ERR_NO_MEMORY;
    dim += dim < 0 ? out->rank : 0;
    set_walk(s, index, src, out, (uint32_t)dim);
    set_copy(&s->copy, x, out);
    s->indices = ngd_indices_of(index, out, (uint32_t)dim, false);
    s->rows = tensor_rows(index);
    s->axis_step = out->strides[dim] * (int64_t)ngd_dtype_bytes(out->dtype);
    s->write = writes[out->dtype];
    p->fn = run_scatter_part;
    p->params = *params_p = s;
    p->serial = true;
    p->cost_ns = 20 + (double)s->nd.total * 3 + (double)s->copy.nd.total * 0.3;
    return NGD_OK;
}

static ngd_status_t prepare_scatter(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct scatter_params *s;

    (void)diag;
    return prepare_scatter_with(p, ngd_call_in(p->plan, p->call, 2), puts_by_type, &s);
}

static ngd_status_t prepare_scatter_add(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct scatter_params *s;

    (void)diag;
    return prepare_scatter_with(p, ngd_call_in(p->plan, p->call, 2), adds_by_type, &s);
}

static ngd_status_t prepare_scatter_value(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct scatter_params *s;
    ngd_status_t status = prepare_scatter_with(p, NULL, puts_by_type, &s);

    (void)diag;
    if (status)
        return status;
    s->constant = true;
    ngd_constant_put(ngd_call_out(p->plan, p->call, 0)->dtype, ngd_call_scalar(p->call, "value"), s->value);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_scatter = {.select = ngd_select_strided, .prepare = prepare_scatter};
const struct ngd_host_kernel ngd_host_scatter_add = {.select = ngd_select_strided, .prepare = prepare_scatter_add};
const struct ngd_host_kernel ngd_host_scatter_value = {.select = ngd_select_strided, .prepare = prepare_scatter_value};

/* ---- index_put: whole rows of x ---- */

struct index_put_params {
    struct ngd_indices indices;
    struct copy copy;
    struct rows rows;     /* of the index */
    int64_t inner, bytes; /* elements and bytes of a row of x */
    uint32_t index_size;
    write_fn write;
};

/* Checks all indices before anything is written. The first bad index fails the replay. */
static bool all_valid(const struct ngd_indices *indices, const char *index, int64_t step, int64_t n, int64_t limit,
                      const struct ngd_host_call *call, struct ngd_host_run *run)
{
    int64_t v;

    for (int64_t i = 0; i < n; i++)
        if (!ngd_indices_get(indices, index + i * step, limit, call, run, &v))
            return false;
    return true;
}

static void run_index_put_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part,
                               uint32_t parts)
{
    const struct index_put_params *u = call->params;
    const char *index = call->ptrs[1], *values = call->ptrs[2];
    const int64_t limit = ngd_indices_limit(&u->indices, run), n = elements_now(&u->rows, run);
    char *out = call->ptrs[3];
    int64_t v;

    (void)parts;
    if (part)
        return;
    if (!all_valid(&u->indices, index, u->index_size, n, limit, call, run))
        return;
    run_copy(&u->copy, run, call->ptrs[0], out);
    for (int64_t i = 0; i < n; i++)
        if (ngd_indices_get(&u->indices, index + i * u->index_size, limit, call, run, &v))
            u->write(out + v * u->bytes, values + i * u->bytes, u->inner);
}

static ngd_status_t prepare_index_put(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *index = ngd_call_in(p->plan, p->call, 1);
    struct index_put_params *u = ngd_arena_calloc(p->arena, 1, sizeof(*u));

    (void)diag;
    if (!u)
        return NGD_ERR_NO_MEMORY;
    u->indices = ngd_indices_of(index, x, 0, true);
    set_copy(&u->copy, x, ngd_call_out(p->plan, p->call, 0));
    u->rows = tensor_rows(index);
    u->inner = ngd_axis_of(x, 0).inner;
    u->bytes = u->inner * (int64_t)ngd_dtype_bytes(x->dtype);
    u->index_size = (uint32_t)ngd_dtype_bytes(index->dtype);
    u->write = (ngd_call_int(p->call, "accumulate") ? adds_by_type : puts_by_type)[x->dtype];
    p->fn = run_index_put_part;
    p->params = u;
    p->serial = true;
    p->cost_ns = 20 + (double)u->copy.nd.total * 0.3 + (double)u->rows.n * (5 + (double)u->bytes * 0.08);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_index_put = {.select = ngd_select_contiguous, .prepare = prepare_index_put};

/* ---- index_copy: slices of x along one dimension ---- */

struct index_copy_params {
    struct ngd_indices indices;
    struct copy copy;
    struct ngd_nd nd;                         /* a slice of the source, and its place in the result */
    struct rows rows, slice;                  /* of the index; of a slice */
    int64_t index_step, source_step, to_step; /* bytes from one index to the next */
};

static void run_index_copy_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part,
                                uint32_t parts)
{
    const struct index_copy_params *u = call->params;
    const char *index = call->ptrs[1];
    const int64_t limit = ngd_indices_limit(&u->indices, run), n = elements_now(&u->rows, run);
    char *out = call->ptrs[3];
    int64_t v;

    (void)parts;
    if (part)
        return;
    if (!all_valid(&u->indices, index, u->index_step, n, limit, call, run))
        return;
    run_copy(&u->copy, run, call->ptrs[0], out);
    for (int64_t i = 0; i < n; i++) {
        if (ngd_indices_get(&u->indices, index + i * u->index_step, limit, call, run, &v)) {
            char *ptrs[] = {call->ptrs[2] + i * u->source_step, out + v * u->to_step};

            ngd_nd_copy(&u->nd, ptrs, 0, elements_now(&u->slice, run));
        }
    }
}

static void set_slices(struct index_copy_params *u, const struct ngd_plan_tensor *source,
                       const struct ngd_plan_tensor *out, uint32_t dim)
{
    const int64_t size = (int64_t)ngd_dtype_bytes(out->dtype);
    struct ngd_plan_tensor from = *source, to = *out;

    from.dims[dim] = to.dims[dim] = 1;
    if (dim == 0)
        from.row_sym = NGD_NO_ROW_SYM; /* the rows of the source are those of the index */
    ngd_nd_init(&u->nd, &from, 0, (const struct ngd_plan_tensor *[]){&from, &to}, 2, 0);
    u->slice = tensor_rows(&from);
    u->source_step = source->strides[dim] * size;
    u->to_step = out->strides[dim] * size;
}

static ngd_status_t prepare_index_copy(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0), *index = ngd_call_in(p->plan, p->call, 1),
                                 *out = ngd_call_out(p->plan, p->call, 0);
    struct index_copy_params *u = ngd_arena_calloc(p->arena, 1, sizeof(*u));
    int64_t dim = ngd_call_int(p->call, "dim");

    (void)diag;
    if (!u)
        return NGD_ERR_NO_MEMORY;
    dim += dim < 0 ? out->rank : 0;
    u->indices = ngd_indices_of(index, out, (uint32_t)dim, false);
    set_copy(&u->copy, x, out);
    u->rows = tensor_rows(index);
    u->index_step = index->strides[0] * (int64_t)ngd_dtype_bytes(index->dtype);
    set_slices(u, ngd_call_in(p->plan, p->call, 2), out, (uint32_t)dim);
    p->fn = run_index_copy_part;
    p->params = u;
    p->serial = true;
    p->cost_ns = 20 + (double)u->copy.nd.total * 0.3 + (double)u->rows.n * (5 + (double)u->slice.n * 0.3);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_index_copy = {.select = ngd_select_strided, .prepare = prepare_index_copy};

/* ---- a region: slice_scatter, select_scatter, constant_pad_nd ---- */

struct region_params {
    struct copy copy;
    struct ngd_nd nd; /* src, the region of the result */
    struct rows src, result;
    int64_t offset; /* of the region, in bytes */
    uint8_t i_src;
    bool fills; /* everything outside the region becomes `value` */
    uint32_t size;
    char value[8];
};

static void run_region(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct region_params *r = call->params;
    char *out = call->ptrs[call->n_in], *ptrs[] = {call->ptrs[r->i_src], out + r->offset};

    (void)parts;
    if (part)
        return;
    if (r->fills)
        ngd_constant_fill(out, elements_now(&r->result, run) * r->size, r->value, r->size);
    else
        run_copy(&r->copy, run, call->ptrs[0], out);
    ngd_nd_copy(&r->nd, ptrs, 0, elements_now(&r->src, run));
}

/* Sets the region, which begins `at` elements into the result and has these strides. */
static ngd_status_t prepare_region(struct ngd_host_prepare *p, uint8_t i_src, int64_t at, const int64_t *strides,
                                   struct region_params **params_p)
{
    const struct ngd_plan_tensor *src = ngd_call_in(p->plan, p->call, i_src), *out = ngd_call_out(p->plan, p->call, 0);
    struct region_params *r = ngd_arena_calloc(p->arena, 1, sizeof(*r));
    struct ngd_plan_tensor region = *src;

    if (!r)
        return NGD_ERR_NO_MEMORY;
    memcpy(region.strides, strides, src->rank * sizeof(strides[0]));
    ngd_nd_init(&r->nd, src, 0, (const struct ngd_plan_tensor *[]){src, &region}, 2, 0);
    r->size = (uint32_t)ngd_dtype_bytes(out->dtype);
    r->src = tensor_rows(src);
    r->result = tensor_rows(out);
    r->offset = at * r->size;
    r->i_src = i_src;
    if (i_src)
        set_copy(&r->copy, ngd_call_in(p->plan, p->call, 0), out);
    p->fn = run_region;
    p->params = *params_p = r;
    p->serial = true;
    p->cost_ns = 20 + (double)ngd_tensor_count(out) * 0.06 * r->size + (double)r->nd.total * 0.5;
    return NGD_OK;
}

static int64_t clamped(int64_t v, int64_t n)
{
    v += v < 0 ? n : 0;
    return v < 0 ? 0 : v > n ? n : v;
}

static ngd_status_t prepare_slice_scatter(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *out = ngd_call_out(p->plan, p->call, 0);
    int64_t dim = ngd_call_int(p->call, "dim"), strides[NGD_MAX_RANK];
    struct region_params *r;

    (void)diag;
    dim += dim < 0 ? out->rank : 0;
    memcpy(strides, out->strides, sizeof(strides));
    strides[dim] *= ngd_call_int(p->call, "step");
    return prepare_region(p, 1, clamped(ngd_call_int(p->call, "start"), out->dims[dim]) * out->strides[dim], strides,
                          &r);
}

static ngd_status_t prepare_select_scatter(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *out = ngd_call_out(p->plan, p->call, 0);
    int64_t dim = ngd_call_int(p->call, "dim"), index = ngd_call_int(p->call, "index"), strides[NGD_MAX_RANK];
    struct region_params *r;

    (void)diag;
    dim += dim < 0 ? out->rank : 0;
    index += index < 0 ? out->dims[dim] : 0;
    memcpy(strides, out->strides, sizeof(strides));
    memmove(&strides[dim], &strides[dim + 1], (size_t)(out->rank - dim - 1) * sizeof(strides[0]));
    return prepare_region(p, 1, index * out->strides[dim], strides, &r);
}

static ngd_status_t prepare_pad(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *out = ngd_call_out(p->plan, p->call, 0);
    const struct ngd_attr_value *pad = ngd_call_ints(p->call, "pad");
    struct region_params *r;
    int64_t at = 0;
    ngd_status_t status;

    (void)diag;
    for (uint32_t i = 0; i < pad->n; i += 2) /* the last dimension's pair comes first */
        at += pad->list[i] * out->strides[out->rank - 1 - i / 2];
    status = prepare_region(p, 0, at, out->strides, &r);
    if (status)
        return status;
    r->fills = true;
    ngd_constant_put(out->dtype, ngd_call_scalar(p->call, "value"), r->value);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_slice_scatter = {.select = ngd_select_strided, .prepare = prepare_slice_scatter};
const struct ngd_host_kernel ngd_host_select_scatter = {.select = ngd_select_strided,
                                                        .prepare = prepare_select_scatter};
const struct ngd_host_kernel ngd_host_pad = {.select = ngd_select_strided, .prepare = prepare_pad};
