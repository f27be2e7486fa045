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
