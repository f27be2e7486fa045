/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builders of indexing operators. A device faults on an index outside its tensor. Those that come with a launch were
 * read on the host before it (check.c); others are used modulo the dimension, and read afterwards.
 */
#include "devices/ascend/issue.h"
#include <string.h>

#define T(v) ngd_ascend_tensor(c, &(v))

/* Modulo the dimension where check.c wants it; while planning for every call, since it is not known yet for which. */
static struct ascend_view guarded(struct ascend_issue *c, const struct ascend_view *i, int64_t limit)
{
    struct ascend_view divisor, r;

    if (c->status || limit == 0 || (c->mode != ASCEND_MEASURE && !c->inst->exec->guarded[c->call - c->plan->calls]))
        return *i;
    divisor = ngd_ascend_temp(c, i->dtype, i->rank, i->dims);
    r = ngd_ascend_temp(c, i->dtype, i->rank, i->dims);
    ASCEND_RUN(c, InplaceFillScalar, T(divisor), ngd_ascend_scalar(c, (double)limit, i->dtype));
    ASCEND_RUN(c, RemainderTensorTensor, T(*i), T(divisor), T(r));
    return r;
}

static int64_t size_of_dim(const struct ascend_view *x, int64_t dim)
{
    return x->rank ? x->dims[dim < 0 ? dim + x->rank : dim] : 1;
}

/* x[indices] along dimension 0: rows of x, one for each index. */
static void issue_select_rows(struct ascend_issue *c, bool embedding)
{
    struct ascend_view x = ngd_ascend_in(c, 0), i = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0);
    int64_t n = ngd_ascend_count(&i), row = n ? ngd_ascend_count(&y) / n : 0, rows = x.rank ? x.dims[0] : 1;

    i = ngd_ascend_reshape(&i, 1, &n);
    i = guarded(c, &i, rows);
    x = ngd_ascend_reshape(&x, 2, (const int64_t[]){rows, row});
    y = ngd_ascend_reshape(&y, 2, (const int64_t[]){n, row});
    if (embedding)
        ASCEND_RUN(c, Embedding, T(x), T(i), T(y));
    else
        ASCEND_RUN(c, IndexSelect, T(x), 0, T(i), T(y));
}

void ngd_ascend_build_embedding(struct ascend_issue *c)
{
    issue_select_rows(c, true);
}

void ngd_ascend_build_select_rows(struct ascend_issue *c)
{
    issue_select_rows(c, false);
}

void ngd_ascend_build_index_select(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), i = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0);

    i = guarded(c, &i, size_of_dim(&x, ngd_call_int(c->call, "dim")));
    ASCEND_RUN(c, IndexSelect, T(x), ngd_call_int(c->call, "dim"), T(i), T(y));
}

void ngd_ascend_build_gather(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), i = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0);

    i = guarded(c, &i, size_of_dim(&x, ngd_call_int(c->call, "dim")));
    ASCEND_RUN(c, Gather, T(x), ngd_call_int(c->call, "dim"), T(i), T(y));
}

/* ---- elements of the result are replaced, or added to ---- */

/* Rows of padding repeat the last row: to replace an element twice by the same does nothing, to add twice does. */
static void no_padding(struct ascend_issue *c)
{
    if (c->plan->tensors[c->call->in[1]].row_sym != NGD_NO_ROW_SYM)
        ngd_ascend_refuse(c, "rows of padding would be added too: its index must not have a bucketed symbol");
}

/* As the scatters take them. */
static struct ascend_view guarded_wide(struct ascend_issue *c, const struct ascend_view *i, const struct ascend_view *x)
{
    struct ascend_view wide = ngd_ascend_cast(c, i, NGD_I64);

    return guarded(c, &wide, size_of_dim(x, ngd_call_int(c->call, "dim")));
}

void ngd_ascend_build_scatter(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), i = ngd_ascend_in(c, 1), src = ngd_ascend_in(c, 2),
                       y = ngd_ascend_out(c, 0);

    if (ngd_ascend_count(&i) == 0) {
        ngd_ascend_store(c, &x, &y);
        return;
    }
    i = guarded_wide(c, &i, &x);
    ASCEND_RUN(c, Scatter, T(x), ngd_call_int(c->call, "dim"), T(i), T(src), 0, T(y));
}

void ngd_ascend_build_scatter_value(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), i = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0);

    if (ngd_ascend_count(&i) == 0) {
        ngd_ascend_store(c, &x, &y);
        return;
    }
    i = guarded_wide(c, &i, &x);
    ASCEND_RUN(c, ScatterValue, T(x), ngd_call_int(c->call, "dim"), T(i), ngd_ascend_attr(c, "value", x.dtype), 0,
               T(y));
}

void ngd_ascend_build_scatter_add(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), i = ngd_ascend_in(c, 1), src = ngd_ascend_in(c, 2),
                       y = ngd_ascend_out(c, 0);

    no_padding(c);
    if (ngd_ascend_count(&i) == 0) {
        ngd_ascend_store(c, &x, &y);
        return;
    }
    i = guarded_wide(c, &i, &x);
    ASCEND_RUN(c, ScatterAdd, T(x), ngd_call_int(c->call, "dim"), T(i), T(src), T(y));
}

/* Padding of no rows at all repeats nothing: its index 0 and its zeros would be written. */
static void some_rows(struct ascend_issue *c)
{
    uint8_t symbol = c->plan->tensors[c->call->in[1]].row_sym;

    if (symbol != NGD_NO_ROW_SYM && c->plan->graph->symbols[symbol].min < 1)
        ngd_ascend_refuse(c, "its index has rows of symbol %s, which may be 0: padding would be written then",
                          c->plan->graph->symbols[symbol].name);
}

/* Whole rows of x. CANN writes where it reads, so x is copied first. */
void ngd_ascend_build_index_put(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), i = ngd_ascend_in(c, 1), v = ngd_ascend_in(c, 2),
                       y = ngd_ascend_out(c, 0);
    int64_t n = ngd_ascend_count(&i), rows = x.dims[0], row = rows ? ngd_ascend_count(&x) / rows : 0;
    bool accumulate = ngd_call_int(c->call, "accumulate") != 0;

    if (accumulate)
        no_padding(c);
    else
        some_rows(c);
    ngd_ascend_store(c, &x, &y);
    if (n == 0)
        return;
    i = ngd_ascend_reshape(&i, 1, &n);
    i = guarded(c, &i, rows);
    v = ngd_ascend_reshape(&v, 2, (const int64_t[]){n, row});
    y = ngd_ascend_reshape(&y, 2, (const int64_t[]){rows, row});
    ASCEND_RUN(c, IndexPutImpl, T(y), ngd_ascend_list(c, &i, 1), T(v), accumulate, false);
}

/* Whole slices of x along dim; likewise. */
void ngd_ascend_build_index_copy(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), i = ngd_ascend_in(c, 1), source = ngd_ascend_in(c, 2),
                       y = ngd_ascend_out(c, 0);
    int64_t dim = ngd_call_int(c->call, "dim");

    some_rows(c);
    if (ngd_ascend_count(&y) == 0)
        return;
    ngd_ascend_store(c, &x, &y);
    if (ngd_ascend_count(&i) == 0)
        return;
    i = guarded(c, &i, size_of_dim(&x, dim));
    ASCEND_RUN(c, InplaceIndexCopy, T(y), dim, T(i), T(source));
}

/* ---- a region of the result is replaced: x is copied, then the region is ---- */

static void put_region(struct ascend_issue *c, const struct ascend_view *src, const struct ascend_view *region)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    if (ngd_ascend_count(&y) == 0)
        return;
    ngd_ascend_store(c, &x, &y);
    if (ngd_ascend_count(src) > 0)
        ngd_ascend_store(c, src, region);
}

void ngd_ascend_build_slice_scatter(struct ascend_issue *c)
{
    struct ascend_view src = ngd_ascend_in(c, 1), region = ngd_ascend_out(c, 0);
    int64_t dim = ngd_call_int(c->call, "dim"), start = ngd_call_int(c->call, "start"), n;

    dim += dim < 0 ? region.rank : 0;
    n = region.dims[dim];
    start += start < 0 ? n : 0;
    start = start < 0 ? 0 : start > n ? n : start;
    region.offset += start * region.strides[dim];
    region.strides[dim] *= ngd_call_int(c->call, "step");
    region.dims[dim] = src.dims[dim];
    put_region(c, &src, &region);
}

void ngd_ascend_build_select_scatter(struct ascend_issue *c)
{
    struct ascend_view src = ngd_ascend_in(c, 1), region = ngd_ascend_out(c, 0);
    int64_t dim = ngd_call_int(c->call, "dim"), index = ngd_call_int(c->call, "index");

    dim += dim < 0 ? region.rank : 0;
    index += index < 0 ? region.dims[dim] : 0;
    region.offset += index * region.strides[dim];
    region.rank--;
    for (uint32_t i = (uint32_t)dim; i < region.rank; i++) {
        region.dims[i] = region.dims[i + 1];
        region.strides[i] = region.strides[i + 1];
    }
    put_region(c, &src, &region);
}

void ngd_ascend_build_pad(struct ascend_issue *c)
{
    const struct ngd_attr_value *pad = ngd_call_ints(c->call, "pad");
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), region = y;

    if (ngd_ascend_count(&y) == 0)
        return;
    ASCEND_RUN(c, InplaceFillScalar, T(y), ngd_ascend_attr(c, "value", y.dtype));
    for (uint32_t i = 0; i < pad->n; i += 2) /* of the last dimension first */
        region.offset += pad->list[i] * y.strides[y.rank - 1 - i / 2];
    memcpy(region.dims, x.dims, sizeof(region.dims));
    if (ngd_ascend_count(&x) > 0)
        ngd_ascend_store(c, &x, &region);
}

void ngd_ascend_build_cat(struct ascend_issue *c)
{
    struct ascend_view parts[16], y = ngd_ascend_out(c, 0);
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->call->n_in; i++) {
        struct ascend_view v = ngd_ascend_in(c, i);

        if (ngd_ascend_count(&v) == 0)
            continue;
        if (n == 16) {
            ngd_ascend_refuse(c, "more than 16 tensors");
            return;
        }
        parts[n++] = v;
    }
    ASCEND_RUN(c, Cat, ngd_ascend_list(c, parts, n), ngd_call_int(c->call, "dim"), T(y));
}

/* As a cat of parts that have the new dimension. */
void ngd_ascend_build_stack(struct ascend_issue *c)
{
    struct ascend_view parts[16], y = ngd_ascend_out(c, 0);
    int64_t dim = ngd_call_int(c->call, "dim");
    const uint32_t at = (uint32_t)(dim < 0 ? dim + y.rank : dim);

    if (c->call->n_in > 16) {
        ngd_ascend_refuse(c, "more than 16 tensors");
        return;
    }
    for (uint32_t i = 0; i < c->call->n_in; i++) {
        struct ascend_view *v = &parts[i];

        *v = ngd_ascend_in(c, i);
        memmove(&v->dims[at + 1], &v->dims[at], (v->rank - at) * sizeof(v->dims[0]));
        memmove(&v->strides[at + 1], &v->strides[at], (v->rank - at) * sizeof(v->strides[0]));
        v->dims[at] = 1;
        v->strides[at] = at < v->rank ? v->dims[at + 1] * v->strides[at + 1] : 1;
        v->rank++;
    }
    ASCEND_RUN(c, Cat, ngd_ascend_list(c, parts, c->call->n_in), at, T(y));
}

void ngd_ascend_build_repeat(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);
    const struct ngd_attr_value *repeats = ngd_call_ints(c->call, "repeats");

    if (repeats->n == 0)
        ngd_ascend_store(c, &x, &y);
    else
        ASCEND_RUN(c, Repeat, T(x), ngd_ascend_ints(c, repeats->list, repeats->n), T(y));
}
