/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, softmax, top-k: what works along dimensions. */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>
#include <stdlib.h>

static int64_t normal_dim(struct sim_op *op, int64_t dim, uint32_t rank)
{
    int64_t d = dim < 0 ? dim + (int64_t)rank : dim;

    ngd_aclsim_check(op, d >= 0 && d < (int64_t)(rank ? rank : 1), "a dimension is out of range");
    return op->code ? 0 : d;
}

/* A view with dimension d taken out: its elements are the begins of the lines along d. */
static struct sim_view without(const struct sim_view *v, int64_t d)
{
    struct sim_view w = *v;

    for (uint32_t i = (uint32_t)d; i + 1 < v->rank; i++) {
        w.dims[i] = v->dims[i + 1];
        w.strides[i] = v->strides[i + 1];
    }
    w.rank = v->rank ? v->rank - 1 : 0;
    return w;
}

/* ---- sums, extremes ------------------------------------------------------------------------------ */

enum reduction { SUM, MEAN, AMAX, AMIN, ANY, ALL };

/* The result's element of an operand's element: reduced dimensions have stride 0. */
static void run_reduce_dims(struct sim_op *op)
{
    struct sim_view x = op->t[0], y = op->t[1];
    int64_t n = sim_elements(&x), outs, strides[SIM_MAX_RANK], step = 1;
    double *acc;

    for (uint32_t i = x.rank; i-- > 0;) {
        bool reduced = op->i[0] >> i & 1;

        strides[i] = reduced ? 0 : step;
        step *= reduced ? 1 : x.dims[i];
    }
    outs = step;
    acc = malloc((size_t)(outs ? outs : 1) * sizeof(double));
    if (!acc)
        abort();
    for (int64_t i = 0; i < outs; i++)
        acc[i] = op->variant == AMAX ? -INFINITY : op->variant == AMIN ? INFINITY : op->variant == ALL;
    for (int64_t i = 0; i < n; i++) {
        double v = sim_load(sim_at(&x, i), x.dtype);
        int64_t at = 0, rest = i;

        for (uint32_t d = x.rank; d-- > 0;) {
            at += rest % x.dims[d] * strides[d];
            rest /= x.dims[d];
        }
        if (op->variant <= MEAN)
            acc[at] += v;
        else if (op->variant >= ANY)
            acc[at] = op->variant == ANY ? acc[at] != 0 || v != 0 : acc[at] != 0 && v != 0;
        else if (isnan(v) || (op->variant == AMAX ? v > acc[at] : v < acc[at]))
            acc[at] = isnan(acc[at]) ? acc[at] : v;
    }
    for (int64_t i = 0; i < outs; i++)
        sim_store(sim_at(&y, i), y.dtype, op->variant == MEAN ? acc[i] * (double)outs / (double)n : acc[i]);
    free(acc);
}

static int plan_reduce(const char *name, int variant, const struct aclTensor *self, const struct aclIntArray *dims,
                       struct aclTensor *out, int dtype, NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_reduce_dims);
    struct sim_view *x = ngd_aclsim_operand(op, self), *y = ngd_aclsim_operand(op, out);
    int64_t left = 1;

    op->variant = variant;
    ngd_aclsim_check(op, variant != ALL || x->dtype == NGD_ACL_BOOL, "takes bools, as its first versions do");
    ngd_aclsim_list(op, 0, dims);
    for (uint64_t i = 0; i < op->n_list[0] && !op->code; i++)
        op->i[0] |= (int64_t)1 << normal_dim(op, op->list[0][i], x->rank);
    if (!op->code && op->n_list[0] == 0)
        op->i[0] = ((int64_t)1 << x->rank) - 1;
    for (uint32_t i = 0; i < x->rank; i++)
        left *= op->i[0] >> i & 1 ? 1 : x->dims[i];
    ngd_aclsim_check(op, op->code || sim_elements(y) == left, "the result's shape is another");
    ngd_aclsim_check(op, op->code || y->dtype == (dtype < 0 ? x->dtype : dtype), "the result's dtype is another");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnReduceSumGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dims,
                                               bool keep_dims, int dtype, struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnReduceSumGetWorkspaceSize");
    (void)keep_dims;
    return plan_reduce("aclnnReduceSum", SUM, self, dims, out, dtype, workspace_p, executor_p);
}

ngd_acl_error_t aclnnMeanGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dim, bool keep_dim,
                                          int dtype, struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnMeanGetWorkspaceSize");
    (void)keep_dim;
    return plan_reduce("aclnnMean", MEAN, self, dim, out, dtype, workspace_p, executor_p);
}

ngd_acl_error_t aclnnAmaxGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dim, bool keep_dim,
                                          struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnAmaxGetWorkspaceSize");
    (void)keep_dim;
    return plan_reduce("aclnnAmax", AMAX, self, dim, out, -1, workspace_p, executor_p);
}

ngd_acl_error_t aclnnAminGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dim, bool keep_dim,
                                          struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnAminGetWorkspaceSize");
    (void)keep_dim;
    return plan_reduce("aclnnAmin", AMIN, self, dim, out, -1, workspace_p, executor_p);
}

ngd_acl_error_t aclnnAnyGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dim, bool keep_dim,
                                         struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnAnyGetWorkspaceSize");
    (void)keep_dim;
    return plan_reduce("aclnnAny", ANY, self, dim, out, NGD_ACL_BOOL, workspace_p, executor_p);
}

ngd_acl_error_t aclnnAllGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dim, bool keep_dim,
                                         struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnAllGetWorkspaceSize");
    (void)keep_dim;
    return plan_reduce("aclnnAll", ALL, self, dim, out, NGD_ACL_BOOL, workspace_p, executor_p);
}

/* t[0] the operand, t[1] the variance, t[2] the mean, if it is wanted; i[0] the dimensions, f[0] the correction. */
static void run_var_dims(struct sim_op *op)
{
    struct sim_view x = op->t[0], lines = op->t[0], all = op->t[0];

    for (uint32_t d = 0; d < x.rank; d++) {
        if (op->i[0] >> d & 1)
            lines.dims[d] = 1;
        else
            all.dims[d] = 1;
    }
    for (int64_t l = 0, n = sim_elements(&all); l < sim_elements(&lines); l++) {
        double sum = 0, squares = 0;

        all.p = sim_at(&lines, l);
        for (int64_t i = 0; i < n; i++)
            sum += sim_load(sim_at(&all, i), x.dtype);
        for (int64_t i = 0; i < n; i++)
            squares += pow(sim_load(sim_at(&all, i), x.dtype) - sum / (double)n, 2);
        sim_store(sim_at(&op->t[1], l), x.dtype, squares / ((double)n - op->f[0]));
        if (op->n > 2)
            sim_store(sim_at(&op->t[2], l), x.dtype, sum / (double)n);
    }
}

static int var(const char *name, const struct aclTensor *self, const struct aclIntArray *dims, int64_t correction,
               struct aclTensor *out, struct aclTensor *mean, bool with_mean, NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_var_dims);
    struct sim_view *x = ngd_aclsim_operand(op, self), *y = ngd_aclsim_operand(op, out);
    int64_t left = 1;

    if (with_mean)
        ngd_aclsim_operand(op, mean);
    op->f[0] = (double)correction;
    ngd_aclsim_list(op, 0, dims);
    for (uint64_t i = 0; i < op->n_list[0] && !op->code; i++)
        op->i[0] |= (int64_t)1 << normal_dim(op, op->list[0][i], x->rank);
    if (!op->code && op->n_list[0] == 0)
        op->i[0] = ((int64_t)1 << x->rank) - 1;
    for (uint32_t i = 0; i < x->rank; i++)
        left *= op->i[0] >> i & 1 ? 1 : x->dims[i];
    ngd_aclsim_check(op, op->code || (sim_is_float(x->dtype) && y->dtype == x->dtype), "takes floats of one dtype");
    ngd_aclsim_check(op, op->code || sim_elements(y) == left, "the result's shape is another");
    ngd_aclsim_check(op, op->code || !with_mean || (op->t[2].dtype == x->dtype && sim_elements(&op->t[2]) == left),
                     "the mean's dtype or shape is another");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnVarCorrectionGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dim,
                                                   int64_t correction, bool keep_dim, struct aclTensor *out,
                                                   NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnVarCorrectionGetWorkspaceSize");
    (void)keep_dim;
    return var("aclnnVarCorrection", self, dim, correction, out, NULL, false, workspace_p, executor_p);
}

ngd_acl_error_t aclnnVarMeanGetWorkspaceSize(const struct aclTensor *self, const struct aclIntArray *dim,
                                             int64_t correction, bool keep_dim, struct aclTensor *out,
                                             struct aclTensor *mean, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnVarMeanGetWorkspaceSize");
    (void)keep_dim;
    return var("aclnnVarMean", self, dim, correction, out, mean, true, workspace_p, executor_p);
}

static void run_arg_extreme(struct sim_op *op)
{
    struct sim_view lines = without(&op->t[0], op->i[0]);
    int64_t n = op->t[0].rank ? op->t[0].dims[op->i[0]] : 1, step = op->t[0].rank ? op->t[0].strides[op->i[0]] : 0;

    step *= (int64_t)sim_size(op->t[0].dtype);
    for (int64_t l = 0; l < sim_elements(&lines); l++) {
        const char *p = sim_at(&lines, l);
        double best = sim_load(p, lines.dtype);
        int64_t at = 0;

        for (int64_t i = 1; i < n; i++) {
            double v = sim_load(p + i * step, lines.dtype);

            if (isnan(best))
                break;
            if (isnan(v) || (op->variant ? v < best : v > best)) {
                best = v;
                at = i;
            }
        }
        sim_store_int(sim_at(&op->t[1], l), op->t[1].dtype, at);
    }
}

static int arg(const char *name, int variant, const struct aclTensor *self, int64_t dim, struct aclTensor *out,
               NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_arg_extreme);
    struct sim_view *x = ngd_aclsim_operand(op, self), *y = ngd_aclsim_operand(op, out);

    op->variant = variant;
    op->i[0] = normal_dim(op, dim, x->rank);
    ngd_aclsim_check(op, y->dtype == NGD_ACL_INT64 || y->dtype == NGD_ACL_INT32, "the result is int32 or int64");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnArgMaxGetWorkspaceSize(const struct aclTensor *self, int64_t dim, bool keep_dim,
                                            struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnArgMaxGetWorkspaceSize");
    (void)keep_dim;
    return arg("aclnnArgMax", 0, self, dim, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnArgMinGetWorkspaceSize(const struct aclTensor *self, int64_t dim, bool keep_dim,
                                            struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnArgMinGetWorkspaceSize");
    (void)keep_dim;
    return arg("aclnnArgMin", 1, self, dim, out, workspace_p, executor_p);
}

/* ---- softmax
 * ---------------------------------------------------------------------------------------------------------------------
 */

static void run_softmax(struct sim_op *op)
{
    struct sim_view x = without(&op->t[0], op->i[0]), y = without(&op->t[1], op->i[0]);
    int64_t n = op->t[0].dims[op->i[0]];
    int64_t xs = op->t[0].strides[op->i[0]] * (int64_t)sim_size(x.dtype);
    int64_t ys = op->t[1].strides[op->i[0]] * (int64_t)sim_size(y.dtype);

    for (int64_t l = 0; l < sim_elements(&x); l++) {
        const char *p = sim_at(&x, l);
        char *q = sim_at(&y, l);
        double max = -INFINITY, sum = 0;

        for (int64_t i = 0; i < n; i++)
            max = fmax(max, sim_load(p + i * xs, x.dtype));
        for (int64_t i = 0; i < n; i++)
            sum += exp(sim_load(p + i * xs, x.dtype) - max);
        for (int64_t i = 0; i < n; i++) {
            double v = sim_load(p + i * xs, x.dtype) - max;

            sim_store(q + i * ys, y.dtype, op->variant ? v - log(sum) : exp(v) / sum);
        }
    }
}

static int softmax(const char *name, int variant, const struct aclTensor *self, int64_t dim, struct aclTensor *out,
                   NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_softmax);
    struct sim_view *x = ngd_aclsim_operand(op, self), *y = ngd_aclsim_operand(op, out);

    op->variant = variant;
    op->i[0] = normal_dim(op, dim, x->rank);
    op->workspace = 1024;
    ngd_aclsim_check(op, op->code || sim_same_shape(x, y), "the result's shape is another");
    ngd_aclsim_check(op, x->rank > 0 && sim_is_float(x->dtype) && x->dtype == y->dtype, "takes floats of one dtype");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnSoftmaxGetWorkspaceSize(const struct aclTensor *self, int64_t dim, struct aclTensor *out,
                                             NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnSoftmaxGetWorkspaceSize");
    return softmax("aclnnSoftmax", 0, self, dim, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnLogSoftmaxGetWorkspaceSize(const struct aclTensor *self, int64_t dim, struct aclTensor *out,
                                                NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnLogSoftmaxGetWorkspaceSize");
    return softmax("aclnnLogSoftmax", 1, self, dim, out, workspace_p, executor_p);
}

/* ---- top-k
 * ------------------------------------------------------------------------------------------------------------------------
 */

struct pair {
    double v;
    int64_t i;
};

static int by_value(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    if (isnan(x->v) != isnan(y->v))
        return isnan(x->v) ? -1 : 1;
    if (x->v != y->v && !isnan(x->v))
        return x->v > y->v ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

static void run_topk_rows(struct sim_op *op)
{
    int64_t d = op->i[1], k = op->i[0], n = op->t[0].dims[d];
    struct sim_view x = without(&op->t[0], d), v = without(&op->t[1], d), ix = without(&op->t[2], d);
    struct pair *line = malloc((size_t)(n ? n : 1) * sizeof(*line));

    if (!line)
        abort();
    for (int64_t l = 0; l < sim_elements(&x); l++) {
        for (int64_t i = 0; i < n; i++) {
            double e = sim_load(sim_at(&x, l) + i * op->t[0].strides[d] * (int64_t)sim_size(x.dtype), x.dtype);

            line[i] = (struct pair){op->i[2] ? e : -e, i};
        }
        qsort(line, (size_t)n, sizeof(*line), by_value);
        for (int64_t i = 0; i < k; i++) {
            sim_store(sim_at(&v, l) + i * op->t[1].strides[d] * (int64_t)sim_size(v.dtype), v.dtype,
                      op->i[2] ? line[i].v : -line[i].v);
            sim_store_int(sim_at(&ix, l) + i * op->t[2].strides[d] * (int64_t)sim_size(ix.dtype), ix.dtype, line[i].i);
        }
    }
    free(line);
}

ngd_acl_error_t aclnnTopkGetWorkspaceSize(const struct aclTensor *self, int64_t k, int64_t dim, bool largest,
                                          bool sorted, struct aclTensor *values, struct aclTensor *indices,
                                          NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnTopkGetWorkspaceSize");
    (void)sorted;
    op = ngd_aclsim_op("aclnnTopk", run_topk_rows);
    ngd_aclsim_operand(op, self);
    ngd_aclsim_operand(op, values);
    ngd_aclsim_operand(op, indices);
    op->i[0] = k;
    op->i[1] = normal_dim(op, dim, op->t[0].rank);
    op->i[2] = largest;
    ngd_aclsim_check(op, op->t[0].rank > 0 && k >= 0 && k <= op->t[0].dims[op->i[1]], "k is out of range");
    ngd_aclsim_check(op, op->t[2].dtype == NGD_ACL_INT64, "indices are int64");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
