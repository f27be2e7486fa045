/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of elementwise operators, copies, casts, makers. */
#include "devices/ascend/issue.h"
#include <string.h>

#define T(v) ngd_ascend_tensor(c, &(v))

typedef ngd_acl_error_t (*unary_fn)(const struct aclTensor *, struct aclTensor *, NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*binary_fn)(const struct aclTensor *, const struct aclTensor *, struct aclTensor *,
                                     NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*alpha_fn)(const struct aclTensor *, const struct aclTensor *, const struct aclScalar *,
                                    struct aclTensor *, NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*scalar_fn)(const struct aclTensor *, const struct aclScalar *, struct aclTensor *,
                                     NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*alpha_scalar_fn)(const struct aclTensor *, const struct aclScalar *, const struct aclScalar *,
                                           struct aclTensor *, NGD_ACL_PHASE1);

void ngd_ascend_build_unary(struct ascend_issue *c)
{
    struct ascend_view in = ngd_ascend_in(c, 0), x = ngd_ascend_adapt_self(c, &in), y = ngd_ascend_out(c, 0),
                       z = ngd_ascend_result(c, &y, in.dtype, x.dtype);

    ASCEND_RUN_ROW(c, unary_fn, T(x), T(z));
    ngd_ascend_put_result(c, &z, &y);
}

void ngd_ascend_build_binary(struct ascend_issue *c)
{
    struct ascend_view in = ngd_ascend_in(c, 0), a = ngd_ascend_adapt_self(c, &in), b = ngd_ascend_in(c, 1),
                       y = ngd_ascend_out(c, 0), z = ngd_ascend_result(c, &y, in.dtype, a.dtype);

    b = ngd_ascend_cast(c, &b, b.dtype == in.dtype ? a.dtype : b.dtype);
    ASCEND_RUN_ROW(c, binary_fn, T(a), T(b), T(z));
    ngd_ascend_put_result(c, &z, &y);
}

void ngd_ascend_build_alpha(struct ascend_issue *c)
{
    struct ascend_view a = ngd_ascend_in(c, 0), b = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0);

    ASCEND_RUN_ROW(c, alpha_fn, T(a), T(b), ngd_ascend_attr(c, "alpha", a.dtype), T(y));
}

void ngd_ascend_build_scalar(struct ascend_issue *c)
{
    struct ascend_view in = ngd_ascend_in(c, 0), x = ngd_ascend_adapt_self(c, &in), y = ngd_ascend_out(c, 0),
                       z = ngd_ascend_result(c, &y, in.dtype, x.dtype);

    ASCEND_RUN_ROW(c, scalar_fn, T(x), ngd_ascend_attr(c, "other", in.dtype), T(z));
    ngd_ascend_put_result(c, &z, &y);
}

void ngd_ascend_build_alpha_scalar(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN_ROW(c, alpha_scalar_fn, T(x), ngd_ascend_attr(c, "other", x.dtype), ngd_ascend_attr(c, "alpha", x.dtype),
                   T(y));
}

void ngd_ascend_build_power(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN(c, PowTensorScalar, T(x), ngd_ascend_scalar(c, ngd_call_float(c->call, "exponent"), NGD_F32), T(y));
}

/* Only what is no number differs from itself. */
void ngd_ascend_build_isnan(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN(c, NeTensor, T(x), T(x), T(y));
}

void ngd_ascend_build_leaky_relu(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN(c, LeakyRelu, T(x), ngd_ascend_scalar(c, ngd_call_float(c->call, "negative_slope"), NGD_F32), T(y));
}

void ngd_ascend_build_gelu(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);
    bool by_tanh = strcmp(ngd_call_str(c->call, "approximate"), "tanh") == 0;

    ASCEND_RUN(c, GeluV2, T(x), by_tanh, T(y));
}

void ngd_ascend_build_clamp(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ASCEND_RUN(c, Clamp, T(x), ngd_ascend_attr(c, "min", x.dtype), ngd_ascend_attr(c, "max", x.dtype), T(y));
}

void ngd_ascend_build_where(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), a = ngd_ascend_in(c, 1), b = ngd_ascend_in(c, 2),
                       y = ngd_ascend_out(c, 0);

    ASCEND_RUN(c, SWhere, T(x), T(a), T(b), T(y));
}

/* One element of an attribute's value; the functions broadcast it. */
static struct ascend_view attr_constant(struct ascend_issue *c, const char *name, ngd_dtype_t dtype)
{
    struct ascend_view t = ngd_ascend_temp(c, dtype, 1, (const int64_t[]){1});

    ASCEND_RUN(c, InplaceFillScalar, T(t), ngd_ascend_attr(c, name, dtype));
    return t;
}

void ngd_ascend_build_masked_fill(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), mask = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0),
                       value = attr_constant(c, "value", x.dtype);

    ASCEND_RUN(c, SWhere, T(mask), T(value), T(x), T(y));
}

void ngd_ascend_build_reversed(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), other = attr_constant(c, "other", x.dtype);

    ASCEND_RUN(c, Sub, T(other), T(x), ngd_ascend_attr(c, "alpha", x.dtype), T(y));
}

/* The second operand, or the attribute other. */
static struct ascend_view divisor(struct ascend_issue *c, ngd_dtype_t dtype)
{
    return c->call->n_in > 1 ? ngd_ascend_in(c, 1) : attr_constant(c, "other", dtype);
}

void ngd_ascend_build_remainder(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), other = divisor(c, x.dtype);

    ASCEND_RUN(c, RemainderTensorTensor, T(x), T(other), T(y));
}

void ngd_ascend_build_divide(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), other = divisor(c, x.dtype);
    bool truncates = ngd_op_attr_index(c->call->op, "rounding_mode", 13) >= 0 &&
                     strcmp(ngd_call_str(c->call, "rounding_mode"), "trunc") == 0;

    ASCEND_RUN(c, DivMod, T(x), T(other), truncates ? NGD_ACL_DIV_TRUNC : NGD_ACL_DIV_FLOOR, T(y));
}

void ngd_ascend_build_copy(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);

    ngd_ascend_store(c, &x, &y);
}

void ngd_ascend_build_cast(struct ascend_issue *c)
{
    ngd_ascend_build_copy(c);
}

void ngd_ascend_build_copy_into(struct ascend_issue *c)
{
    struct ascend_view y = ngd_ascend_in(c, 0), x = ngd_ascend_in(c, 1);

    if (ngd_ascend_count(&y) == 0)
        return;
    x = ngd_ascend_cast(c, &x, y.dtype);
    ASCEND_RUN(c, InplaceCopy, T(y), T(x));
}

static int64_t int_attr_of(const struct ascend_issue *c, const char *attr, int64_t otherwise)
{
    return ngd_op_attr_index(c->call->op, attr, strlen(attr)) < 0 ? otherwise : ngd_call_int(c->call, attr);
}

void ngd_ascend_build_arange(struct ascend_issue *c)
{
    struct ascend_view y = ngd_ascend_out(c, 0);
    int64_t start = int_attr_of(c, "start", 0), step = int_attr_of(c, "step", 1);
    int64_t end = start + step * y.dims[0];

    ASCEND_RUN(c, Arange, ngd_ascend_scalar(c, (double)start, NGD_I64), ngd_ascend_scalar(c, (double)end, NGD_I64),
               ngd_ascend_scalar(c, (double)step, NGD_I64), T(y));
}

void ngd_ascend_build_full(struct ascend_issue *c)
{
    struct ascend_view y = ngd_ascend_out(c, 0);

    ASCEND_RUN(c, InplaceFillScalar, T(y),
               ngd_ascend_number(c, ngd_op_fill_value(c->call->op, c->call->attrs), y.dtype));
}
