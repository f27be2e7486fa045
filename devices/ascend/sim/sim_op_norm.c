/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over the last dimensions. */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>

/* x (t[0]) plus, when given, x2 (t[1]); gamma t[2], plus f[1]; y t[3]; rstd t[4]; sum t[5]. */
static void run_rms_rows(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *x2 = &op->t[1], *g = &op->t[2], *y = &op->t[3], *r = &op->t[4],
                          *s = &op->t[5];
    int64_t d = sim_elements(g), rows = d ? sim_elements(x) / d : 0;

    for (int64_t row = 0; row < rows; row++) {
        const struct sim_view *v = x;
        double sum = 0, rstd;

        if (x2->present) {
            for (int64_t i = row * d; i < (row + 1) * d; i++)
                sim_store(sim_at(s, i), s->dtype, sim_load(sim_at(x, i), x->dtype) + sim_load(sim_at(x2, i), x->dtype));
            v = s;
        }
        for (int64_t i = row * d; i < (row + 1) * d; i++)
            sum += pow(sim_load(sim_at(v, i), v->dtype), 2);
        rstd = 1 / sqrt(sum / (double)d + op->f[0]);
        for (int64_t i = 0; i < d; i++)
            sim_store(sim_at(y, row * d + i), y->dtype,
                      sim_load(sim_at(v, row * d + i), v->dtype) * rstd *
                          (op->f[1] + sim_load(sim_at(g, i), g->dtype)));
        sim_store(sim_at(r, row), r->dtype, rstd);
    }
}

/* offset: what is added to gamma. adds: there are x2 and sum. */
static int rms(const char *name, double offset, const struct aclTensor *x1, const struct aclTensor *x2,
               const struct aclTensor *gamma, double epsilon, const struct aclTensor *y, const struct aclTensor *rstd,
               const struct aclTensor *sum, bool adds, NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_rms_rows);
    struct sim_view *x = ngd_aclsim_operand(op, x1), *g;

    adds ? ngd_aclsim_operand(op, x2) : ngd_aclsim_optional(op, NULL);
    g = ngd_aclsim_operand(op, gamma);
    ngd_aclsim_operand(op, y);
    ngd_aclsim_operand(op, rstd);
    adds ? ngd_aclsim_operand(op, sum) : ngd_aclsim_optional(op, NULL);
    op->f[0] = epsilon;
    op->f[1] = offset;
    op->workspace = 512;
    if (!op->code) {
        ngd_aclsim_rules(op);
        ngd_aclsim_check(op, x->rank >= 1 && g->rank == 1 && g->dims[0] == x->dims[x->rank - 1],
                         "the simulator takes a gamma of one dimension, the last of x");
        ngd_aclsim_check(op, op->code || g->dims[0] == 0 || sim_elements(&op->t[4]) == sim_elements(x) / g->dims[0],
                         "rstd has one element for each row");
        ngd_aclsim_check(op, sim_same_shape(x, &op->t[3]) && x->dtype == op->t[3].dtype, "y is like x");
        ngd_aclsim_check(op, op->t[4].dtype == NGD_ACL_FLOAT, "rstd is f32");
        ngd_aclsim_check(op,
                         !adds || (sim_same_shape(x, &op->t[1]) && x->dtype == op->t[1].dtype &&
                                   sim_same_shape(x, &op->t[5]) && x->dtype == op->t[5].dtype),
                         "x1, x2 and x differ");
    }
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnRmsNormGetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *gamma, double epsilon,
                                             const struct aclTensor *y, const struct aclTensor *rstd, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnRmsNormGetWorkspaceSize");
    return rms("aclnnRmsNorm", 0, x, NULL, gamma, epsilon, y, rstd, NULL, false, workspace_p, executor_p);
}

ngd_acl_error_t aclnnGemmaRmsNormGetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *gamma,
                                                  double epsilon, const struct aclTensor *y,
                                                  const struct aclTensor *rstd, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnGemmaRmsNormGetWorkspaceSize");
    return rms("aclnnGemmaRmsNorm", 1, x, NULL, gamma, epsilon, y, rstd, NULL, false, workspace_p, executor_p);
}

ngd_acl_error_t aclnnAddRmsNormGetWorkspaceSize(const struct aclTensor *x1, const struct aclTensor *x2,
                                                const struct aclTensor *gamma, double epsilon,
                                                const struct aclTensor *y, const struct aclTensor *rstd,
                                                const struct aclTensor *x, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnAddRmsNormGetWorkspaceSize");
    return rms("aclnnAddRmsNorm", 0, x1, x2, gamma, epsilon, y, rstd, x, true, workspace_p, executor_p);
}

static void run_layer_norm(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *w = &op->t[1], *b = &op->t[2], *y = &op->t[3], *m = &op->t[4],
                          *r = &op->t[5];
    int64_t d = op->i[0], rows = d ? sim_elements(x) / d : 0;

    for (int64_t row = 0; row < rows; row++) {
        double mean = 0, var = 0;

        for (int64_t i = 0; i < d; i++)
            mean += sim_load(sim_at(x, row * d + i), x->dtype);
        mean /= (double)d;
        for (int64_t i = 0; i < d; i++) {
            double v = sim_load(sim_at(x, row * d + i), x->dtype) - mean;

            var += v * v;
        }
        if (m->present) {
            sim_store(sim_at(m, row), m->dtype, mean);
            sim_store(sim_at(r, row), r->dtype, 1 / sqrt(var / (double)d + op->f[0]));
        }
        for (int64_t i = 0; i < d; i++) {
            double v = (sim_load(sim_at(x, row * d + i), x->dtype) - mean) / sqrt(var / (double)d + op->f[0]);

            v *= w->present ? sim_load(sim_at(w, i), w->dtype) : 1;
            v += b->present ? sim_load(sim_at(b, i), b->dtype) : 0;
            sim_store(sim_at(y, row * d + i), y->dtype, v);
        }
    }
}

ngd_acl_error_t aclnnLayerNormGetWorkspaceSize(const struct aclTensor *input, const struct aclIntArray *normalized,
                                               const struct aclTensor *weight, const struct aclTensor *bias, double eps,
                                               struct aclTensor *out, struct aclTensor *mean, struct aclTensor *rstd,
                                               NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnLayerNormGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnLayerNorm", run_layer_norm);
    ngd_aclsim_operand(op, input);
    ngd_aclsim_optional(op, weight);
    ngd_aclsim_optional(op, bias);
    ngd_aclsim_operand(op, out);
    ngd_aclsim_list(op, 0, normalized);
    ngd_aclsim_optional(op, mean);
    ngd_aclsim_optional(op, rstd);
    ngd_aclsim_check(op, !mean == !rstd, "one of mean and rstd is missing");
    for (int i = 4; i < 6; i++)
        ngd_aclsim_check(op, !op->t[i].present || op->t[i].dtype == NGD_ACL_FLOAT, "mean and rstd are f32");
    op->f[0] = eps;
    op->i[0] = 1;
    for (uint64_t i = 0; i < op->n_list[0]; i++)
        op->i[0] *= op->list[0][i];
    op->workspace = 512;
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, op->t[3].dtype == op->t[0].dtype, "the result is of another dtype than the input");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
