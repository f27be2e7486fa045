/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexing. An index outside its tensor is an address outside it on a device too: the kernel ends with an exception and
 * spoils the context, or reads what lies there. Here it always ends.
 */
#include "devices/ascend/sim/sim_op.h"
#include <stdlib.h>

static bool bad_index(int64_t index, int64_t n)
{
    if (index >= 0 && index < n)
        return false;
    ngd_aclsim_raise();
    return true;
}

static bool is_index(const struct sim_view *v)
{
    return v->dtype == NGD_ACL_INT32 || v->dtype == NGD_ACL_INT64;
}

static void copy_view_slice(const struct sim_view *to, int64_t at, const struct sim_view *from, int64_t index)
{
    struct sim_view a = *to, b = *from;

    a.p += at * to->strides[0] * (int64_t)sim_size(to->dtype);
    b.p += index * from->strides[0] * (int64_t)sim_size(from->dtype);
    for (uint32_t i = 0; i + 1 < to->rank; i++) {
        a.dims[i] = to->dims[i + 1];
        a.strides[i] = to->strides[i + 1];
        b.strides[i] = from->strides[i + 1];
    }
    a.rank = b.rank = to->rank - 1;
    memcpy(b.dims, a.dims, sizeof(a.dims));
    for (int64_t i = 0, n = sim_elements(&a); i < n; i++)
        memcpy(sim_at(&a, i), sim_at(&b, i), sim_size(a.dtype));
}

/* x[index] along dimension 0, index of one dimension: t[0] x, t[1] index, t[2] out. */
static void run_select(struct sim_op *op)
{
    for (int64_t i = 0, n = sim_elements(&op->t[1]); i < n; i++) {
        int64_t index = sim_load_int(sim_at(&op->t[1], i), op->t[1].dtype);

        if (bad_index(index, op->t[0].dims[0]))
            return;
        copy_view_slice(&op->t[2], i, &op->t[0], index);
    }
}

ngd_acl_error_t aclnnIndexSelectGetWorkspaceSize(const struct aclTensor *self, int64_t dim,
                                                 const struct aclTensor *index, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnIndexSelectGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnIndexSelect", run_select);
    ngd_aclsim_operand(op, self);
    ngd_aclsim_operand(op, index);
    ngd_aclsim_operand(op, out);
    if (!op->code) {
        uint32_t r = op->t[0].rank;

        ngd_aclsim_check(op, is_index(&op->t[1]) && op->t[1].rank == 1, "the index is a vector of int32 or int64");
        ngd_aclsim_check(op, r > 0 && dim >= -(int64_t)r && dim < (int64_t)r && op->t[2].rank == r, "ranks");
        dim = dim < 0 ? dim + r : dim;
        /* The selected dimension first, for all three: only strides change. */
        for (int i = 0; i < 3 && !op->code; i += 2) {
            struct sim_view *v = &op->t[i];
            int64_t d = v->dims[dim], s = v->strides[dim];

            memmove(v->dims + 1, v->dims, (size_t)dim * sizeof(d));
            memmove(v->strides + 1, v->strides, (size_t)dim * sizeof(s));
            v->dims[0] = d;
            v->strides[0] = s;
        }
        ngd_aclsim_check(op,
                         op->code || (op->t[2].dims[0] == op->t[1].dims[0] &&
                                      memcmp(op->t[2].dims + 1, op->t[0].dims + 1, (r - 1) * sizeof(int64_t)) == 0 &&
                                      op->t[0].dtype == op->t[2].dtype),
                         "the result's shape or dtype is another");
    }
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

static void run_embedding(struct sim_op *op)
{
    const struct sim_view *w = &op->t[0], *y = &op->t[2];
    int64_t d = w->dims[1], size = (int64_t)sim_size(w->dtype);

    for (int64_t i = 0, n = sim_elements(&op->t[1]); i < n; i++) {
        int64_t index = sim_load_int(sim_at(&op->t[1], i), op->t[1].dtype);

        if (bad_index(index, w->dims[0]))
            return;
        for (int64_t j = 0; j < d; j++)
            memcpy(y->p + (i * d + j) * size, w->p + (index * w->strides[0] + j * w->strides[1]) * size, (size_t)size);
    }
}

ngd_acl_error_t aclnnEmbeddingGetWorkspaceSize(const struct aclTensor *weight, const struct aclTensor *indices,
                                               const struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnEmbeddingGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnEmbedding", run_embedding);
    ngd_aclsim_operand(op, weight);
    ngd_aclsim_operand(op, indices);
    ngd_aclsim_operand(op, out);
    ngd_aclsim_check(op, op->t[0].rank == 2 && is_index(&op->t[1]), "weight[V,D], indices of int32 or int64");
    ngd_aclsim_check(op,
                     op->code || (op->t[0].dtype == op->t[2].dtype && sim_contiguous(&op->t[2]) &&
                                  sim_elements(&op->t[2]) == sim_elements(&op->t[1]) * op->t[0].dims[1]),
                     "the result is another");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* out[i][j] = x[index[i][j]][j], along dim. */
static void run_gather_elements(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *ix = &op->t[1];
    int64_t dim = op->i[0];

    for (int64_t i = 0, n = sim_elements(ix); i < n; i++) {
        int64_t index = sim_load_int(sim_at(ix, i), ix->dtype), at = 0, rest = i;

        if (bad_index(index, x->dims[dim]))
            return;
        for (uint32_t d = ix->rank; d-- > 0;) {
            at += (d == (uint32_t)dim ? index : rest % ix->dims[d]) * x->strides[d];
            rest /= ix->dims[d];
        }
        memcpy(sim_at(&op->t[2], i), x->p + at * (int64_t)sim_size(x->dtype), sim_size(x->dtype));
    }
}

ngd_acl_error_t aclnnGatherGetWorkspaceSize(const struct aclTensor *self, const int64_t dim,
                                            const struct aclTensor *index, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnGatherGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnGather", run_gather_elements);
    ngd_aclsim_operand(op, self);
    ngd_aclsim_operand(op, index);
    ngd_aclsim_operand(op, out);
    op->i[0] = dim < 0 ? dim + op->t[0].rank : dim;
    ngd_aclsim_check(op,
                     is_index(&op->t[1]) && op->i[0] >= 0 && op->i[0] < op->t[0].rank && op->t[1].rank == op->t[0].rank,
                     "dimension, or the index's rank or dtype");
    ngd_aclsim_check(op, op->code || (sim_same_shape(&op->t[1], &op->t[2]) && op->t[0].dtype == op->t[2].dtype),
                     "the result is another");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

static void run_cat_views(struct sim_op *op)
{
    struct sim_view y = op->t[op->n - 1];
    int64_t dim = op->i[0];

    for (uint32_t k = 0; k + 1 < op->n; k++) {
        const struct sim_view *x = &op->t[k];
        struct sim_view part = y;

        part.dims[dim] = x->dims[dim];
        for (int64_t i = 0, n = sim_elements(x); i < n; i++)
            memcpy(sim_at(&part, i), sim_at(x, i), sim_size(x->dtype));
        y.p += x->dims[dim] * y.strides[dim] * (int64_t)sim_size(y.dtype);
    }
}

ngd_acl_error_t aclnnCatGetWorkspaceSize(const struct aclTensorList *tensors, int64_t dim, struct aclTensor *out,
                                         NGD_ACL_PHASE1)
{
    struct sim_op *op;
    int64_t sum = 0;

    SIM_CALL("aclnnCatGetWorkspaceSize");
    if (!tensors || tensors->n == 0 || tensors->n >= SIM_MAX_OPERANDS)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "takes more", "a list of no or too many tensors");
    op = ngd_aclsim_op("aclnnCat", run_cat_views);
    for (uint64_t i = 0; i < tensors->n; i++)
        ngd_aclsim_operand(op, tensors->t[i]);
    ngd_aclsim_operand(op, out);
    op->i[0] = dim < 0 ? dim + op->t[op->n - 1].rank : dim;
    ngd_aclsim_check(op, op->i[0] >= 0 && op->i[0] < op->t[op->n - 1].rank, "the dimension is out of range");
    for (uint32_t i = 0; i + 1 < op->n && !op->code; i++) {
        sum += op->t[i].dims[op->i[0]];
        ngd_aclsim_check(op, op->t[i].dtype == op->t[op->n - 1].dtype && op->t[i].rank == op->t[op->n - 1].rank,
                         "dtypes or ranks differ");
    }
    ngd_aclsim_check(op, op->code || sum == op->t[op->n - 1].dims[op->i[0]], "the result's length is another");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* list[0]: how often along each dimension of the result. */
static void run_repeat_view(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[1];

    for (int64_t i = 0, n = sim_elements(y); i < n; i++) {
        int64_t at = 0, rest = i;

        for (uint32_t d = y->rank; d-- > 0; rest /= y->dims[d])
            if (y->rank - d <= x->rank)
                at += rest % y->dims[d] % x->dims[d + x->rank - y->rank] * x->strides[d + x->rank - y->rank];
        memcpy(sim_at(y, i), x->p + at * (int64_t)sim_size(x->dtype), sim_size(x->dtype));
    }
}

ngd_acl_error_t aclnnRepeatGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *repeats,
                                            struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;
    const struct sim_view *x, *y;

    SIM_CALL("aclnnRepeatGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnRepeat", run_repeat_view);
    x = ngd_aclsim_operand(op, self);
    y = ngd_aclsim_operand(op, out);
    ngd_aclsim_list(op, 0, repeats);
    ngd_aclsim_check(op, op->code || (op->n_list[0] >= x->rank && op->n_list[0] == y->rank && x->dtype == y->dtype),
                     "fewer repeats than dimensions, or another result");
    for (uint32_t d = 0; !op->code && d < y->rank; d++) {
        const uint32_t added = y->rank - x->rank;

        ngd_aclsim_check(op, op->list[0][d] >= 0 && y->dims[d] == op->list[0][d] * (d < added ? 1 : x->dims[d - added]),
                         "the result's shape is another");
    }
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* var[indices[i][0]] = updates[i] */
static void run_scatter_elements(struct sim_op *op)
{
    for (int64_t i = 0; i < op->t[1].dims[0]; i++) {
        int64_t index = sim_load_int(sim_at(&op->t[1], i), op->t[1].dtype);

        if (bad_index(index, op->t[0].dims[0]))
            return;
        copy_view_slice(&op->t[0], index, &op->t[2], i);
    }
}

ngd_acl_error_t aclnnScatterNdUpdateGetWorkspaceSize(struct aclTensor *var, const struct aclTensor *indices,
                                                     const struct aclTensor *updates, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnScatterNdUpdateGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnScatterNdUpdate", run_scatter_elements);
    ngd_aclsim_operand(op, var);
    ngd_aclsim_operand(op, indices);
    ngd_aclsim_operand(op, updates);
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, is_index(&op->t[1]) && op->t[1].rank == 2 && op->t[1].dims[1] == 1, "indices[N,1]");
    ngd_aclsim_check(op,
                     op->code || (op->t[0].dtype == op->t[2].dtype && op->t[0].rank == op->t[2].rank &&
                                  op->t[2].dims[0] == op->t[1].dims[0]),
                     "updates do not fit");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* ---- scatter ------------------------------------------------------------------------------------- */

enum { REPLACE, REPLACE_BY_VALUE, ADD_TO };

static void put_element(struct sim_op *op, char *to, const char *from, int dtype)
{
    if (op->variant == REPLACE_BY_VALUE)
        sim_is_float(dtype) ? sim_store(to, dtype, op->f[0]) : sim_store_int(to, dtype, op->i[1]);
    else if (op->variant == REPLACE)
        memcpy(to, from, sim_size(dtype));
    else if (sim_is_float(dtype))
        sim_store(to, dtype, sim_load(to, dtype) + sim_load(from, dtype));
    else
        sim_store_int(to, dtype, (int64_t)((uint64_t)sim_load_int(to, dtype) + (uint64_t)sim_load_int(from, dtype)));
}

/* x[index[i]] is row i of the values, or has it added: t[0] x, t[1] index, t[2] values; t[2] contiguous. */
static void run_index_put_rows(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *index = &op->t[1], *values = &op->t[2];
    const int64_t n = sim_elements(index), row = n ? sim_elements(values) / n : 0, size = (int64_t)sim_size(x->dtype);

    for (int64_t i = 0; i < n; i++) {
        int64_t to = sim_load_int(sim_at(index, i), index->dtype);

        if (bad_index(to, x->dims[0]))
            return;
        for (int64_t k = 0; k < row; k++)
            put_element(op, sim_at(x, to * row + k), values->p + (i * row + k) * size, x->dtype);
    }
}

ngd_acl_error_t aclnnIndexPutImplGetWorkspaceSize(struct aclTensor *self, const struct aclTensorList *indices,
                                                  const struct aclTensor *values, const bool accumulate,
                                                  const bool unsafe, NGD_ACL_PHASE1)
{
    struct sim_op *op;
    const struct sim_view *x, *index, *v;

    SIM_CALL("aclnnIndexPutImplGetWorkspaceSize");
    if (!indices || indices->n != 1)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "takes one for each of the first dimensions",
                               "one tensor of indices");
    op = ngd_aclsim_op("aclnnIndexPutImpl", run_index_put_rows);
    x = ngd_aclsim_operand(op, self);
    index = ngd_aclsim_operand(op, indices->t[0]);
    v = ngd_aclsim_operand(op, values);
    op->variant = accumulate ? ADD_TO : REPLACE;
    ngd_aclsim_check(op, !unsafe, "reads the indices on the host first");
    ngd_aclsim_check(op, op->code || (x->rank > 0 && is_index(index)), "indices of int32 or int64 along a dimension");
    ngd_aclsim_check(op, op->code || (v->dtype == x->dtype && v->rank == index->rank + x->rank - 1),
                     "values of another dtype or rank");
    for (uint32_t d = 0; !op->code && d < v->rank; d++)
        ngd_aclsim_check(op, v->dims[d] == (d < index->rank ? index->dims[d] : x->dims[d - index->rank + 1]),
                         "values of another shape");
    ngd_aclsim_check(op, op->code || sim_contiguous(v), "the simulator takes contiguous values only");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* x[..index[k]..] is source[..k..] along i[0]: t[0] x, t[1] index, t[2] source. */
static void run_index_copy_rows(struct sim_op *op)
{
    const struct sim_view *index = &op->t[1];
    const int64_t dim = op->i[0];

    for (int64_t k = 0, n = sim_elements(index); k < n; k++) {
        const int64_t to = sim_load_int(sim_at(index, k), index->dtype);
        struct sim_view x = op->t[0], source = op->t[2];

        if (bad_index(to, x.dims[dim]))
            return;
        x.p += to * x.strides[dim] * (int64_t)sim_size(x.dtype);
        source.p += k * source.strides[dim] * (int64_t)sim_size(x.dtype);
        x.dims[dim] = source.dims[dim] = 1;
        for (int64_t i = 0, m = sim_elements(&x); i < m; i++)
            memcpy(sim_at(&x, i), sim_at(&source, i), sim_size(x.dtype));
    }
}

ngd_acl_error_t aclnnInplaceIndexCopyGetWorkspaceSize(struct aclTensor *self, int64_t dim,
                                                      const struct aclTensor *index, const struct aclTensor *source,
                                                      NGD_ACL_PHASE1)
{
    struct sim_op *op;
    const struct sim_view *x, *i, *s;

    SIM_CALL("aclnnInplaceIndexCopyGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnInplaceIndexCopy", run_index_copy_rows);
    x = ngd_aclsim_operand(op, self);
    i = ngd_aclsim_operand(op, index);
    s = ngd_aclsim_operand(op, source);
    dim += dim < 0 && !op->code ? (int64_t)x->rank : 0;
    op->i[0] = dim;
    ngd_aclsim_check(op, op->code || (dim >= 0 && dim < (int64_t)x->rank), "a dimension is out of range");
    ngd_aclsim_check(op, op->code || (is_index(i) && i->rank <= 1), "a vector of indices of int32 or int64");
    ngd_aclsim_check(op, op->code || (s->dtype == x->dtype && s->rank == x->rank), "a source of another dtype or rank");
    for (uint32_t d = 0; !op->code && d < x->rank; d++)
        ngd_aclsim_check(op, s->dims[d] == (d == (uint32_t)dim ? sim_elements(i) : x->dims[d]),
                         "a source of another shape");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* out = self, then out[..index..] along i[0]: t[0] self, t[1] index, t[2] src or nothing, t[3] out; one by one. */
static void run_along(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *index = &op->t[1], *src = &op->t[2], *y = &op->t[3];
    const int64_t dim = op->i[0], size = (int64_t)sim_size(y->dtype);

    for (int64_t i = 0, n = sim_elements(x); i < n; i++)
        memmove(sim_at(y, i), sim_at(x, i), (size_t)size);
    for (int64_t i = 0, n = sim_elements(index); i < n; i++) {
        int64_t at = 0, from = 0, rest = i, to = sim_load_int(sim_at(index, i), index->dtype);

        if (bad_index(to, y->rank ? y->dims[dim] : 1))
            return;
        for (uint32_t d = index->rank; d-- > 0;) {
            int64_t k = rest % index->dims[d];

            rest /= index->dims[d];
            at += (d == (uint32_t)dim ? to : k) * y->strides[d];
            from += src->present ? k * src->strides[d] : 0;
        }
        put_element(op, y->p + at * size, src->present ? src->p + from * size : NULL, y->dtype);
    }
}

static struct sim_op *plan_scatter(const char *name, int variant, const struct aclTensor *self, int64_t dim,
                                   const struct aclTensor *index, const struct aclTensor *src, struct aclTensor *out)
{
    struct sim_op *op = ngd_aclsim_op(name, run_along);
    struct sim_view *x = ngd_aclsim_operand(op, self), *i = ngd_aclsim_operand(op, index), *s, *y;

    s = variant == REPLACE_BY_VALUE ? ngd_aclsim_optional(op, NULL) : ngd_aclsim_operand(op, src);
    y = ngd_aclsim_operand(op, out);
    op->variant = variant;
    if (op->code)
        return op;
    dim += dim < 0 ? (int64_t)x->rank : 0;
    ngd_aclsim_check(op, dim >= 0 && dim < (int64_t)(x->rank ? x->rank : 1), "a dimension is out of range");
    ngd_aclsim_check(op, i->dtype == NGD_ACL_INT64 && i->rank == x->rank, "the index is int64, of as many dimensions");
    ngd_aclsim_check(op, sim_same_shape(x, y) && x->dtype == y->dtype, "the result is like the operand");
    ngd_aclsim_check(op, !s->present || (s->dtype == x->dtype && s->rank == i->rank), "src is like the operand");
    for (uint32_t d = 0; d < i->rank && !op->code; d++)
        ngd_aclsim_check(op,
                         (d == (uint32_t)dim || i->dims[d] <= x->dims[d]) && (!s->present || i->dims[d] <= s->dims[d]),
                         "the index reaches outside");
    op->i[0] = dim;
    return op;
}

ngd_acl_error_t aclnnScatterGetWorkspaceSize(const struct aclTensor *self, int64_t dim, const struct aclTensor *index,
                                             const struct aclTensor *src, int64_t reduce, struct aclTensor *out,
                                             NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnScatterGetWorkspaceSize");
    op = plan_scatter("aclnnScatter", REPLACE, self, dim, index, src, out);
    ngd_aclsim_check(op, reduce == 0, "only replaces");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnScatterValueGetWorkspaceSize(const struct aclTensor *self, int64_t dim,
                                                  const struct aclTensor *index, const struct aclScalar *value,
                                                  int64_t reduce, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnScatterValueGetWorkspaceSize");
    op = plan_scatter("aclnnScatterValue", REPLACE_BY_VALUE, self, dim, index, NULL, out);
    ngd_aclsim_check(op, reduce == 0, "only replaces");
    ngd_aclsim_check(op, value != NULL, "the value is NULL");
    op->f[0] = value ? value->f : 0;
    op->i[1] = value ? value->i : 0;
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnScatterAddGetWorkspaceSize(const struct aclTensor *self, int64_t dim,
                                                const struct aclTensor *index, const struct aclTensor *src,
                                                struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnScatterAddGetWorkspaceSize");
    return ngd_aclsim_finish(plan_scatter("aclnnScatterAdd", ADD_TO, self, dim, index, src, out), workspace_p,
                             executor_p);
}
