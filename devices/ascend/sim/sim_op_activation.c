/* SPDX-License-Identifier: Apache-2.0 */
/* Activations that the backend makes of other operators, as PyTorch's functions of the same names define them. */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>

enum activation { ELU, HARDSIGMOID, HARDSWISH, SOFTPLUS, THRESHOLD, SCALAR_POW };

static double activation_value(const struct sim_op *op, double x)
{
    const double *f = op->f;

    switch ((enum activation)op->variant) {
    case ELU: /* alpha, scale, input scale */
        return x > 0 ? f[1] * x : f[1] * f[0] * expm1(x * f[2]);
    case HARDSIGMOID:
        return fmin(fmax(x + 3, 0), 6) / 6;
    case HARDSWISH:
        return x * fmin(fmax(x + 3, 0), 6) / 6;
    case SOFTPLUS: /* beta, threshold */
        return x * f[0] > f[1] ? x : log1p(exp(x * f[0])) / f[0];
    case THRESHOLD: /* threshold, value */
        return x > f[0] ? x : f[1];
    case SCALAR_POW:
        return pow(f[0], x);
    }
    return x;
}

static void run_activation(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[1];

    for (int64_t i = 0, n = sim_elements(y); i < n; i++)
        sim_store(sim_at(y, i), y->dtype, activation_value(op, sim_load(sim_at(x, i), x->dtype)));
}

static int plan_activation(const char *name, int variant, const struct aclTensor *self,
                           const struct aclScalar *const *scalars, int n, const struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_activation);
    const struct sim_view *x = ngd_aclsim_operand(op, self), *y = ngd_aclsim_operand(op, out);

    op->variant = variant;
    for (int i = 0; i < n; i++) {
        ngd_aclsim_check(op, scalars[i] != NULL, "a scalar is NULL");
        op->f[i] = scalars[i] ? scalars[i]->f : 0;
    }
    ngd_aclsim_check(op, op->code || (sim_same_shape(x, y) && x->dtype == y->dtype && sim_is_float(x->dtype)),
                     "takes floats; the result is like the operand");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

#define SCALARS(...)                  \
    (const struct aclScalar *const[]) \
    {                                 \
        __VA_ARGS__                   \
    }

ngd_acl_error_t aclnnEluGetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *alpha,
                                         const struct aclScalar *scale, const struct aclScalar *input_scale,
                                         struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnEluGetWorkspaceSize");
    return plan_activation("aclnnElu", ELU, self, SCALARS(alpha, scale, input_scale), 3, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnHardsigmoidGetWorkspaceSize(const struct aclTensor *self, struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnHardsigmoidGetWorkspaceSize");
    return plan_activation("aclnnHardsigmoid", HARDSIGMOID, self, NULL, 0, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnHardswishGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *out,
                                               NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnHardswishGetWorkspaceSize");
    return plan_activation("aclnnHardswish", HARDSWISH, self, NULL, 0, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnSoftplusGetWorkspaceSize(const struct aclTensor *self, const struct aclScalar *beta,
                                              const struct aclScalar *threshold, struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnSoftplusGetWorkspaceSize");
    return plan_activation("aclnnSoftplus", SOFTPLUS, self, SCALARS(beta, threshold), 2, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnInplaceThresholdGetWorkspaceSize(struct aclTensor *self, const struct aclScalar *threshold,
                                                      const struct aclScalar *value, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnInplaceThresholdGetWorkspaceSize");
    return plan_activation("aclnnInplaceThreshold", THRESHOLD, self, SCALARS(threshold, value), 2, self, workspace_p,
                           executor_p);
}

ngd_acl_error_t aclnnPowScalarTensorGetWorkspaceSize(const struct aclScalar *self, const struct aclTensor *exponent,
                                                     const struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnPowScalarTensorGetWorkspaceSize");
    return plan_activation("aclnnPowScalarTensor", SCALAR_POW, exponent, SCALARS(self), 1, out, workspace_p,
                           executor_p);
}

/* ---- aclnnClippedSwiglu -------------------------------------------------------------------------- */

enum { CLIPPED, CLIPPED_ROWS, CLIPPED_OUT };

/* f: alpha, limit, bias. variant 1: the gate has the even columns, the other operand the odd ones. */
static void run_clipped_swiglu(struct sim_op *op)
{
    const struct sim_view *x = &op->t[CLIPPED], *y = &op->t[CLIPPED_OUT];
    const int64_t n = y->dims[y->rank - 1], rows = n ? sim_elements(y) / n : 0;
    const float alpha = (float)op->f[0], limit = (float)op->f[1], bias = (float)op->f[2];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t gate = op->variant ? 2 * i : i, other = op->variant ? 2 * i + 1 : n + i;
            float a = (float)sim_load(sim_at(x, r * 2 * n + gate), x->dtype);
            float b = (float)sim_load(sim_at(x, r * 2 * n + other), x->dtype);

            a = a > limit ? limit : a;
            b = b > limit ? limit : b < -limit ? -limit : b;
            sim_store(sim_at(y, r * n + i), y->dtype, (double)(a / (1 + expf(-alpha * a)) * (b + bias)));
        }
}

ngd_acl_error_t aclnnClippedSwigluGetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *groups,
                                                   int64_t dim, double alpha, double limit, double bias,
                                                   bool interleaved, const struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;
    struct sim_view *a, *y;

    SIM_CALL("aclnnClippedSwigluGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnClippedSwiglu", run_clipped_swiglu);
    a = ngd_aclsim_operand(op, x);
    ngd_aclsim_optional(op, groups);
    y = ngd_aclsim_operand(op, out);
    op->f[0] = alpha;
    op->f[1] = limit;
    op->f[2] = bias;
    op->variant = interleaved;
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, !groups, "a part of the rows is not computed here");
    ngd_aclsim_check(op, op->code || (a->rank > 0 && (dim == -1 || dim == (int64_t)a->rank - 1)),
                     "only the last dimension is split here");
    ngd_aclsim_check(op, limit > 0, "limit is positive");
    ngd_aclsim_check(op,
                     op->code ||
                         (y->dtype == a->dtype && y->rank == a->rank &&
                          2 * y->dims[y->rank - 1] == a->dims[a->rank - 1] && 2 * sim_elements(y) == sim_elements(a)),
                     "the result is of the dtype of x, and half as wide");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
