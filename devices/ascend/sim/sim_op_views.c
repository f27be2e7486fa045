/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that are others on other views of their operands: in place, permuted, sliced, repeated. Each plans that
 * other one, whose checks are its own, and gives it its name.
 */
#include "devices/ascend/sim/sim_op.h"

/* ---- in place ------------------------------------------------------------------------------------ */

#define UNPACK(...) __VA_ARGS__
/* aclnn<Name> is aclnn<Of> with these arguments. */
#define AS(Name, parameters, Of, arguments)                                                                         \
    ngd_acl_error_t aclnn##Name##GetWorkspaceSize(UNPACK parameters, NGD_ACL_PHASE1)                                \
    {                                                                                                               \
        SIM_CALL("aclnn" #Name "GetWorkspaceSize");                                                                 \
        return ngd_aclsim_as("aclnn" #Name, aclnn##Of##GetWorkspaceSize(UNPACK arguments, workspace_p, executor_p), \
                             executor_p);                                                                           \
    }
AS(InplaceCos, (struct aclTensor * self), Cos, (self, self))
AS(InplaceExp, (struct aclTensor * self), Exp, (self, self))
AS(InplaceSin, (struct aclTensor * self), Sin, (self, self))
AS(InplaceDiv, (struct aclTensor * self, const struct aclTensor *other), Div, (self, other, self))
AS(InplaceMul, (struct aclTensor * self, const struct aclTensor *other), Mul, (self, other, self))
AS(InplaceDivs, (struct aclTensor * self, const struct aclScalar *other), Divs, (self, other, self))
AS(InplaceMuls, (struct aclTensor * self, const struct aclScalar *other), Muls, (self, other, self))
AS(InplaceSub, (struct aclTensor * self, const struct aclTensor *other, const struct aclScalar *alpha), Sub,
   (self, other, alpha, self))
AS(InplaceSubs, (struct aclTensor * self, const struct aclScalar *other, const struct aclScalar *alpha), Subs,
   (self, other, alpha, self))
AS(InplaceAdds, (const struct aclTensor *self, const struct aclScalar *other, const struct aclScalar *alpha), Adds,
   (self, other, alpha, (struct aclTensor *)(uintptr_t)self))
AS(InplacePowTensorTensor, (const struct aclTensor *self, const struct aclTensor *exponent), PowTensorTensor,
   (self, exponent, (struct aclTensor *)(uintptr_t)self))
AS(InplaceTriu, (struct aclTensor * self, int64_t diagonal), Triu, (self, diagonal, self))
AS(InplaceClampMax, (const struct aclTensor *self, const struct aclScalar *max), Clamp,
   (self, NULL, max, (struct aclTensor *)(uintptr_t)self))
AS(ClampMin, (const struct aclTensor *self, const struct aclScalar *min, struct aclTensor *out), Clamp,
   (self, min, NULL, out))
AS(Gelu, (const struct aclTensor *self, struct aclTensor *out), GeluV2, (self, 1, out))

ngd_acl_error_t aclnnInplaceZeroGetWorkspaceSize(struct aclTensor *self, NGD_ACL_PHASE1)
{
    const struct aclScalar zero = {.dtype = NGD_ACL_FLOAT};

    SIM_CALL("aclnnInplaceZeroGetWorkspaceSize");
    return ngd_aclsim_as("aclnnInplaceZero",
                         aclnnInplaceFillScalarGetWorkspaceSize(self, &zero, workspace_p, executor_p), executor_p);
}

/* ---- views --------------------------------------------------------------------------------------- */

static int refuse_view(const char *what)
{
    return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "the same", "%s", what);
}

static bool in_rank(const struct aclTensor *t, int64_t *dim)
{
    *dim += *dim < 0 ? (int64_t)t->rank : 0;
    return *dim >= 0 && *dim < (int64_t)t->rank;
}

static bool same_dims(const struct aclTensor *a, const struct aclTensor *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

static int copy_view(const char *name, const struct aclTensor *from, struct aclTensor *to, NGD_ACL_PHASE1)
{
    if (!same_dims(from, to))
        return refuse_view("the result's shape is another");
    return ngd_aclsim_as(name, aclnnInplaceCopyGetWorkspaceSize(to, from, workspace_p, executor_p), executor_p);
}

ngd_acl_error_t aclnnPermuteGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dims,
                                             struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct aclTensor view;
    uint32_t seen = 0;

    SIM_CALL("aclnnPermuteGetWorkspaceSize");
    if (!self || !dims || !out)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "aclnnPermute: an operand is NULL");
    if (dims->n != self->rank)
        return refuse_view("aclnnPermute takes each dimension once");
    view = *self;
    for (uint32_t i = 0; i < self->rank; i++) {
        int64_t d = dims->v[i];

        if (!in_rank(self, &d) || seen >> d & 1)
            return refuse_view("aclnnPermute takes each dimension once");
        seen |= 1u << d;
        view.dims[i] = self->dims[d];
        view.strides[i] = self->strides[d];
    }
    return copy_view("aclnnPermute", &view, out, workspace_p, executor_p);
}

static int64_t within(int64_t at, int64_t n)
{
    at += at < 0 ? n : 0;
    return at < 0 ? 0 : at > n ? n : at;
}

ngd_acl_error_t aclnnSliceGetWorkspaceSize(const struct aclTensor *self, int64_t dim, int64_t start, int64_t end,
                                           int64_t step, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct aclTensor view;

    SIM_CALL("aclnnSliceGetWorkspaceSize");
    if (!self || !out)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "aclnnSlice: an operand is NULL");
    if (!in_rank(self, &dim) || step <= 0)
        return refuse_view("aclnnSlice takes a dimension of its operand and a step above 0");
    view = *self;
    start = within(start, self->dims[dim]);
    end = within(end, self->dims[dim]);
    view.offset += start * self->strides[dim];
    view.dims[dim] = end > start ? (end - start + step - 1) / step : 0;
    view.strides[dim] *= step;
    return copy_view("aclnnSlice", &view, out, workspace_p, executor_p);
}

/* Each element `repeats` times: the operand gets a dimension of step 0 after dim, and the result's is parted. */
ngd_acl_error_t aclnnRepeatInterleaveIntWithDimGetWorkspaceSize(const struct aclTensor *self, int64_t repeats,
                                                                int64_t dim, int64_t output_size, struct aclTensor *out,
                                                                NGD_ACL_PHASE1)
{
    struct aclTensor from, to;

    SIM_CALL("aclnnRepeatInterleaveIntWithDimGetWorkspaceSize");
    if (!self || !out)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "aclnnRepeatInterleave: an operand is NULL");
    if (!in_rank(self, &dim) || self->rank != out->rank || self->rank >= SIM_MAX_RANK || repeats < 0 ||
        output_size != self->dims[dim] * repeats || out->dims[dim] != output_size)
        return refuse_view("aclnnRepeatInterleave: the result's length is another");
    from = *self;
    to = *out;
    for (int64_t i = self->rank; i > dim + 1; i--) {
        from.dims[i] = self->dims[i - 1];
        from.strides[i] = self->strides[i - 1];
        to.dims[i] = out->dims[i - 1];
        to.strides[i] = out->strides[i - 1];
    }
    from.dims[dim + 1] = to.dims[dim + 1] = repeats;
    from.strides[dim + 1] = 0;
    to.strides[dim + 1] = out->strides[dim];
    to.dims[dim] = self->dims[dim];
    to.strides[dim] = out->strides[dim] * repeats;
    from.rank = to.rank = self->rank + 1;
    return copy_view("aclnnRepeatInterleaveIntWithDim", &from, &to, workspace_p, executor_p);
}

ngd_acl_error_t aclnnGatherV2GetWorkspaceSize(const struct aclTensor *self, int64_t dim, const struct aclTensor *index,
                                              struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnGatherV2GetWorkspaceSize");
    if (index && index->rank != 1)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "takes them", "indices of more than one dimension");
    return ngd_aclsim_as("aclnnGatherV2",
                         aclnnIndexSelectGetWorkspaceSize(self, dim, index, out, workspace_p, executor_p), executor_p);
}

/* t[0] operand, t[1] result, list[0] how many elements before each of its dimensions, f[0] what is around it. */
static void run_pad(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[1];

    for (int64_t i = 0, n = sim_elements(y); i < n; i++) {
        int64_t rest = i, at = 0;
        bool inside = true;

        for (uint32_t d = y->rank; d-- > 0; rest /= y->dims[d]) {
            int64_t k = rest % y->dims[d] - op->list[0][2 * (y->rank - 1 - d)];

            inside = inside && k >= 0 && k < x->dims[d];
            at += k * x->strides[d];
        }
        if (inside)
            memcpy(sim_at(y, i), x->p + at * (int64_t)sim_size(x->dtype), sim_size(x->dtype));
        else
            sim_store(sim_at(y, i), y->dtype, op->f[0]);
    }
}

/* pad: before and after the last dimension, then the one before it. */
ngd_acl_error_t aclnnConstantPadNdGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *pad,
                                                   const struct aclScalar *value, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;
    const struct sim_view *x, *y;

    SIM_CALL("aclnnConstantPadNdGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnConstantPadNd", run_pad);
    x = ngd_aclsim_operand(op, self);
    y = ngd_aclsim_operand(op, out);
    ngd_aclsim_list(op, 0, pad);
    ngd_aclsim_check(op, value != NULL, "the value is NULL");
    op->f[0] = value ? value->f : 0;
    ngd_aclsim_check(op, op->code || (x->rank == y->rank && x->dtype == y->dtype && op->n_list[0] == 2 * x->rank),
                     "two numbers for each dimension, a result like the operand");
    for (uint32_t d = 0; d < x->rank && !op->code; d++) {
        const int64_t *around = &op->list[0][2 * (x->rank - 1 - d)];

        ngd_aclsim_check(op, y->dims[d] == x->dims[d] + around[0] + around[1], "the result's shape is another");
    }
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
