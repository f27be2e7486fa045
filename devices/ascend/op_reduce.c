/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of reductions, softmax, top-k and norms. */
#include "devices/ascend/issue.h"
#include <math.h>
#include <string.h>

#define T(v) ngd_ascend_tensor(c, &(v))

typedef ngd_acl_error_t (*sum_fn)(const struct aclTensor *, const struct aclIntArray *, bool, int, struct aclTensor *,
                                  NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*extreme_fn)(const struct aclTensor *, const struct aclIntArray *, bool, struct aclTensor *,
                                      NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*arg_fn)(const struct aclTensor *, int64_t, bool, struct aclTensor *, NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*triangle_fn)(const struct aclTensor *, int64_t, struct aclTensor *, NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*rms_fn)(const struct aclTensor *, const struct aclTensor *, double, const struct aclTensor *,
                                  const struct aclTensor *, NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*softmax_fn)(const struct aclTensor *, int64_t, struct aclTensor *, NGD_ACL_PHASE1);

static struct aclIntArray *dims_of(struct ascend_issue *c, uint32_t rank)
{
    const uint32_t axes = ngd_op_reduced_axes(c->call->op, c->call->attrs, rank);
    int64_t dims[NGD_MAX_RANK];
    uint32_t n = 0;

    for (uint32_t i = 0; i < rank; i++)
        if (axes >> i & 1)
            dims[n++] = i;
    return ngd_ascend_ints(c, dims, n);
}

static bool flag(const struct ascend_issue *c, const char *name)
{
    return ngd_op_attr_index(c->call->op, name, strlen(name)) >= 0 && ngd_call_int(c->call, name) != 0;
}

void ngd_ascend_build_sum(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN_ROW(c, sum_fn, T(x), dims_of(c, x.rank), flag(c, "keepdim"), ngd_ascend_dtype(y.dtype), T(y));
}

/* CANN takes whole corrections, and does not say what fewer elements give. */
void ngd_ascend_build_var(struct ascend_issue *c)
{
    struct ascend_view in = ngd_ascend_in(c, 0), x, y = ngd_ascend_out(c, 0), mean, z, m;
    const double correction = ngd_call_float(c->call, "correction");
    const int64_t results = ngd_ascend_count(&y), n = results ? ngd_ascend_count(&in) / results : 0;

    if (correction != floor(correction) || fabs(correction) > INT32_MAX || (double)n <= correction || n == 0) {
        ngd_ascend_refuse(c, "a correction of %g to %lld elements: it must be a whole number below that", correction,
                          (long long)n);
        return;
    }
    x = ngd_ascend_adapt_self(c, &in);
    z = ngd_ascend_result(c, &y, in.dtype, x.dtype);
    if (c->call->n_out == 1) {
        ASCEND_RUN(c, VarCorrection, T(x), dims_of(c, x.rank), (int64_t)correction, flag(c, "keepdim"), T(z));
    } else {
        mean = ngd_ascend_out(c, 1);
        m = ngd_ascend_result(c, &mean, in.dtype, x.dtype);
        ASCEND_RUN(c, VarMean, T(x), dims_of(c, x.rank), (int64_t)correction, flag(c, "keepdim"), T(z), T(m));
        ngd_ascend_put_result(c, &m, &mean);
    }
    ngd_ascend_put_result(c, &z, &y);
}

void ngd_ascend_build_extreme(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN_ROW(c, extreme_fn, T(x), dims_of(c, x.rank), flag(c, "keepdim"), T(y));
}

/* The device reduces bools; of nothing it is told what that gives. */
static void issue_truth(struct ascend_issue *c, bool of_nothing)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), r = y, b;

    if (ngd_ascend_count(&x) == 0) {
        ASCEND_RUN(c, InplaceFillScalar, T(y), ngd_ascend_scalar(c, of_nothing, y.dtype));
        return;
    }
    b = x;
    if (x.dtype != NGD_BOOL) {
        if (!ngd_dtype_is_float(x.dtype) && x.dtype != NGD_I64)
            x = ngd_ascend_cast(c, &x, NGD_I32); /* comparisons take no narrower integers */
        b = ngd_ascend_temp(c, NGD_BOOL, x.rank, x.dims);
        ASCEND_RUN(c, NeScalar, T(x), ngd_ascend_scalar(c, 0, NGD_F32), T(b));
    }
    if (y.dtype != NGD_BOOL)
        r = ngd_ascend_temp(c, NGD_BOOL, y.rank, y.dims);
    ASCEND_RUN_ROW(c, extreme_fn, T(b), dims_of(c, x.rank), flag(c, "keepdim"), T(r));
    if (y.dtype != NGD_BOOL)
        ngd_ascend_store(c, &r, &y);
}

void ngd_ascend_build_any(struct ascend_issue *c)
{
    issue_truth(c, false);
}

void ngd_ascend_build_all(struct ascend_issue *c)
{
    issue_truth(c, true);
}

void ngd_ascend_build_arg(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN_ROW(c, arg_fn, T(x), ngd_call_int(c->call, "dim"), flag(c, "keepdim"), T(y));
}

void ngd_ascend_build_softmax(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    x = ngd_ascend_cast(c, &x, y.dtype); /* half_to_float */
    ASCEND_RUN_ROW(c, softmax_fn, T(x), ngd_call_int(c->call, "dim"), T(y));
}

/* Sums of narrow types are made in the result's, as they are defined. */
void ngd_ascend_build_cumsum(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    x = ngd_ascend_adapt_self(c, &x);
    ASCEND_RUN(c, Cumsum, T(x), ngd_call_int(c->call, "dim"), ngd_ascend_dtype(y.dtype), T(y));
}

void ngd_ascend_build_product(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN(c, ProdDim, T(x), ngd_call_int(c->call, "dim"), flag(c, "keepdim"), ngd_ascend_dtype(y.dtype), T(y));
}

void ngd_ascend_build_triangle(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN_ROW(c, triangle_fn, T(x), ngd_call_int(c->call, "diagonal"), T(y));
}

void ngd_ascend_build_topk(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), v = ngd_ascend_out(c, 0), i = ngd_ascend_out(c, 1);

    ASCEND_RUN(c, Topk, T(x), ngd_call_int(c->call, "k"), ngd_call_int(c->call, "dim"), flag(c, "largest"), true, T(v),
               T(i));
}

/* gamma in the dtype of x: the norm takes no other. It is a vector: the cast costs nothing that can be measured. */
void ngd_ascend_build_rms_norm(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), g = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0),
                       r = ngd_ascend_out(c, 1);
    const struct ascend_view *const views[] = {&x, NULL, &g, &y, &r};
    double epsilon = ngd_call_float(c->call, "epsilon");
    char text[ASCEND_RULE_ROOM];

    g = ngd_ascend_cast(c, &g, x.dtype);
    if (ngd_ascend_refuses(c->dev, c->op->name + strlen("aclnn"), views, 5, text))
        ngd_ascend_refuse(c, "%s", text);
    ASCEND_RUN_ROW(c, rms_fn, T(x), T(g), epsilon, T(y), T(r));
}

void ngd_ascend_build_add_rms_norm(struct ascend_issue *c)
{
    struct ascend_view a = ngd_ascend_in(c, 0), b = ngd_ascend_in(c, 1), g = ngd_ascend_in(c, 2);
    struct ascend_view y = ngd_ascend_out(c, 0), r = ngd_ascend_out(c, 1), x = ngd_ascend_out(c, 2);
    double epsilon = ngd_call_float(c->call, "epsilon");

    g = ngd_ascend_cast(c, &g, a.dtype);
    ASCEND_RUN(c, AddRmsNorm, T(a), T(b), T(g), epsilon, T(y), T(r), T(x));
}

/* mean and rstd: NULL, or what takes them. */
static void layer_norm(struct ascend_issue *c, struct aclTensor *mean, struct aclTensor *rstd)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), w = {0}, b = {0};
    const struct ngd_attr_value *shape = ngd_call_ints(c->call, "normalized_shape");
    bool has_w = ngd_ascend_has(c, 1), has_b = ngd_ascend_has(c, 2);

    if (has_w) {
        w = ngd_ascend_in(c, 1);
        w = ngd_ascend_cast(c, &w, x.dtype);
    }
    if (has_b) {
        b = ngd_ascend_in(c, 2);
        b = ngd_ascend_cast(c, &b, x.dtype);
    }
    ASCEND_RUN(c, LayerNorm, T(x), ngd_ascend_ints(c, shape->list, shape->n), has_w ? T(w) : NULL, has_b ? T(b) : NULL,
               ngd_call_float(c->call, "eps"), T(y), mean, rstd);
}

void ngd_ascend_build_layer_norm(struct ascend_issue *c)
{
    layer_norm(c, NULL, NULL);
}

/* CANN does not say what the mean of nothing is. */
void ngd_ascend_build_native_layer_norm(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), mean = ngd_ascend_out(c, 1), rstd = ngd_ascend_out(c, 2);

    if (ngd_ascend_count(&x) == 0 && ngd_ascend_count(&mean) > 0)
        ngd_ascend_refuse(c, "a mean of no elements");
    else
        layer_norm(c, T(mean), T(rstd));
}
