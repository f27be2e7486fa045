/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of view operators: each turns the strides of the operand into those of the results. The result's dims
 * are known from the graph (with -1 inferred and ends clamped), so a rule only finds strides and offset.
 * A new view operator needs a rule here, which its row of op_traits.c names.
 */
#include "graphs/op_traits.h"
#include "graphs/plan_int.h"
#include <string.h>

int64_t ngd_plan_elements(const struct ngd_plan_tensor *t)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

bool ngd_plan_contiguous(const struct ngd_plan_tensor *t)
{
    int64_t want = 1;
    bool ok = true;

    for (uint32_t i = t->rank; i-- > 0;) {
        if (t->dims[i] == 0)
            return true;
        if (t->dims[i] != 1 && t->strides[i] != want)
            ok = false;
        want *= t->dims[i];
    }
    return ok;
}

void ngd_plan_set_contiguous(struct ngd_plan_tensor *t)
{
    int64_t stride = 1;

    for (uint32_t i = t->rank; i-- > 0;) {
        t->strides[i] = stride;
        stride *= t->dims[i] ? t->dims[i] : 1;
    }
}

ngd_status_t ngd_plan_set_extent(struct ngd_plan_tensor *t)
{
    int64_t size = (int64_t)ngd_dtype_bytes(t->dtype), last = 0, inner = 1, bytes;
    bool empty = false, overflow = false;

    for (uint32_t i = t->rank; i-- > 0;) {
        int64_t reach = 0;

        if (t->dims[i] == 1)
            t->strides[i] = inner;
        /* A dimension of 0 counts as 1, so that the strides of the other dimensions stay in range too. */
        overflow |= __builtin_mul_overflow(t->strides[i], t->dims[i] ? t->dims[i] : 1, &inner);
        overflow |= __builtin_mul_overflow(t->strides[i], t->dims[i] - 1, &reach);
        overflow |= __builtin_add_overflow(last, reach, &last);
        empty |= t->dims[i] == 0;
    }
    overflow |= __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, size, &bytes);
    if (empty) {
        t->bytes = 0;
        return NGD_OK;
    }
    if (overflow)
        return NGD_ERR_OVERFLOW;
    t->bytes = (uint64_t)bytes;
    return NGD_OK;
}

/* ---- rules ---- */

static uint32_t axis(const struct ngd_view *v, const char *attr, uint32_t rank)
{
    int64_t a = ngd_call_int(v->call, attr);

    return (uint32_t)(a < 0 ? a + rank : a);
}

static void skip_index(struct ngd_view *v, uint32_t dim, int64_t index)
{
    v->dst->offset += (uint64_t)(index * v->src->strides[dim]) * ngd_dtype_bytes(v->src->dtype);
}

/*
 * Gives the same elements another shape. From the last source dimension to the first, the rule forms groups of
 * dimensions that lie in memory like one long dimension. Each group must be the product of some result dimensions.
 */
bool ngd_view_shape(struct ngd_view *v)
{
    const struct ngd_plan_tensor *s = v->src;
    struct ngd_plan_tensor *d = v->dst;
    int64_t group = 1, taken = 1, step = s->rank ? s->strides[s->rank - 1] : 1;
    uint32_t k = d->rank;

    ngd_plan_set_contiguous(d);
    if (ngd_plan_elements(s) == 0 || s->rank == 0)
        return true;
    for (uint32_t i = s->rank; i-- > 0;) {
        group *= s->dims[i];
        if (i > 0 && (s->dims[i - 1] == 1 || s->strides[i - 1] == group * step))
            continue;
        for (; k > 0 && (taken < group || d->dims[k - 1] == 1); k--) {
            d->strides[k - 1] = taken * step;
            taken *= d->dims[k - 1];
        }
        if (taken != group)
            return false;
        if (i > 0) {
            step = s->strides[i - 1];
            group = taken = 1;
        }
    }
    return true;
}

bool ngd_view_permute(struct ngd_view *v)
{
    const struct ngd_attr_value *dims = ngd_call_ints(v->call, "dims");

    for (uint32_t i = 0; i < v->dst->rank && i < dims->n; i++)
        v->dst->strides[i] = v->src->strides[dims->list[i] < 0 ? dims->list[i] + v->src->rank : dims->list[i]];
    return true;
}

static bool swap_dims(struct ngd_view *v, uint32_t a, uint32_t b)
{
    memcpy(v->dst->strides, v->src->strides, sizeof(v->dst->strides));
    v->dst->strides[a] = v->src->strides[b];
    v->dst->strides[b] = v->src->strides[a];
    return true;
}

bool ngd_view_transpose(struct ngd_view *v)
{
    if (v->src->rank == 0)
        return true;
    return swap_dims(v, axis(v, "dim0", v->src->rank), axis(v, "dim1", v->src->rank));
}

bool ngd_view_t(struct ngd_view *v)
{
    return v->src->rank < 2 ? swap_dims(v, 0, 0) : swap_dims(v, 0, 1);
}

bool ngd_view_expand(struct ngd_view *v)
{
    uint32_t added = v->dst->rank - v->src->rank;

    for (uint32_t i = 0; i < v->dst->rank; i++) {
        bool repeats = i < added || (v->src->dims[i - added] == 1 && v->dst->dims[i] != 1);

        v->dst->strides[i] = repeats ? 0 : v->src->strides[i - added];
    }
    return true;
}

bool ngd_view_unsqueeze(struct ngd_view *v)
{
    uint32_t at = axis(v, "dim", v->dst->rank);

    for (uint32_t i = 0; i < v->dst->rank; i++)
        v->dst->strides[i] = i == at ? 1 : v->src->strides[i < at ? i : i - 1];
    return true;
}

/* Removes a dimension of 1. If the dimension is not 1, the shape rule has kept the rank. */
bool ngd_view_squeeze(struct ngd_view *v)
{
    uint32_t at = v->dst->rank < v->src->rank ? axis(v, "dim", v->src->rank) : v->src->rank;

    for (uint32_t i = 0; i < v->dst->rank; i++)
        v->dst->strides[i] = v->src->strides[i < at ? i : i + 1];
    return true;
}

bool ngd_view_same(struct ngd_view *v)
{
    for (uint32_t i = 0; i < v->dst->rank; i++)
        v->dst->strides[i] = v->src->strides[i];
    return true;
}

bool ngd_view_slice(struct ngd_view *v)
{
    uint32_t dim = axis(v, "dim", v->src->rank);
    int64_t start = ngd_call_int(v->call, "start"), size = v->src->dims[dim];

    if (start < 0)
        start = start < -size ? 0 : start + size;
    if (start > size)
        start = size;
    swap_dims(v, dim, dim);
    /* If the step makes the stride overflow, there is at most one element, whose stride does not matter. */
    if (__builtin_mul_overflow(v->src->strides[dim], ngd_call_int(v->call, "step"), &v->dst->strides[dim]))
        v->dst->strides[dim] = 1;
    skip_index(v, dim, start);
    return true;
}

bool ngd_view_select(struct ngd_view *v)
{
    uint32_t dim = axis(v, "dim", v->src->rank);
    int64_t index = ngd_call_int(v->call, "index");

    for (uint32_t i = 0; i < v->dst->rank; i++)
        v->dst->strides[i] = v->src->strides[i < dim ? i : i + 1];
    skip_index(v, dim, index < 0 ? index + v->src->dims[dim] : index);
    return true;
}

bool ngd_view_split(struct ngd_view *v)
{
    const struct ngd_attr_value *sizes = ngd_call_ints(v->call, "split_sizes");
    uint32_t dim = axis(v, "dim", v->src->rank);
    int64_t before = 0;

    for (uint32_t i = 0; i < v->result && i < sizes->n; i++)
        before += sizes->list[i];
    swap_dims(v, dim, dim);
    skip_index(v, dim, before);
    return true;
}

bool ngd_view_split_by(struct ngd_view *v)
{
    uint32_t dim = axis(v, "dim", v->src->rank);

    swap_dims(v, dim, dim);
    skip_index(v, dim, (int64_t)v->result * ngd_call_int(v->call, "split_size"));
    return true;
}

bool ngd_view_unbind(struct ngd_view *v)
{
    uint32_t dim = axis(v, "dim", v->src->rank);

    for (uint32_t i = 0; i < v->dst->rank; i++)
        v->dst->strides[i] = v->src->strides[i < dim ? i : i + 1];
    skip_index(v, dim, v->result);
    return true;
}

bool ngd_view_squeeze_dims(struct ngd_view *v)
{
    const struct ngd_attr_value *dims = ngd_call_ints(v->call, "dim");
    uint32_t named = 0, to = 0;

    for (uint32_t i = 0; i < dims->n; i++)
        named |= 1u << (dims->list[i] < 0 ? dims->list[i] + v->src->rank : dims->list[i]);
    for (uint32_t i = 0; i < v->src->rank; i++)
        if (!(named >> i & 1) || v->src->dims[i] != 1)
            v->dst->strides[to++] = v->src->strides[i];
    return true;
}

bool ngd_plan_view_known(const struct ngd_op *op)
{
    return ngd_op_traits[op->id].view != NULL;
}

bool ngd_plan_view(const struct ngd_plan_tensor *src, const struct ngd_plan_call *call, uint32_t result,
                   struct ngd_plan_tensor *dst)
{
    struct ngd_view v = {.src = src, .call = call, .result = result, .dst = dst};

    dst->offset = src->offset;
    return ngd_op_traits[call->op->id].view(&v);
}
