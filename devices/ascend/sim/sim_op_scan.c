/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums, products along a dimension, triangles. */
#include "devices/ascend/sim/sim_op.h"

/* Lines along dimension i[0]: their number, length and step. */
static int64_t line_of(const struct sim_view *v, int64_t dim, int64_t line, int64_t *step_p)
{
    int64_t at = 0;

    for (uint32_t i = v->rank; i-- > 0;) {
        if (i == (uint32_t)dim)
            continue;
        at += line % v->dims[i] * v->strides[i];
        line /= v->dims[i];
    }
    *step_p = v->rank ? v->strides[dim] * (int64_t)sim_size(v->dtype) : 0;
    return at * (int64_t)sim_size(v->dtype);
}

/* variant 0: running sums; 1: the product of each line. */
static void run_scan_lines(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[1];
    int64_t dim = op->i[0], n = x->rank ? x->dims[dim] : 1, lines = n ? sim_elements(x) / n : sim_elements(y);
    bool floats = sim_is_float(x->dtype) || sim_is_float(y->dtype);

    for (int64_t l = 0; l < lines; l++) {
        int64_t xs, ys = 0;
        const char *p = x->p + line_of(x, dim, l, &xs);
        char *q = op->variant ? sim_at(y, l) : y->p + line_of(y, dim, l, &ys);
        double f = op->variant;
        uint64_t v = (uint64_t)op->variant;

        for (int64_t i = 0; i < n; i++) {
            if (floats)
                f = op->variant ? f * sim_load(p + i * xs, x->dtype) : f + sim_load(p + i * xs, x->dtype);
            else
                v = op->variant ? v * (uint64_t)sim_load_int(p + i * xs, x->dtype)
                                : v + (uint64_t)sim_load_int(p + i * xs, x->dtype);
            if (op->variant)
                continue;
            floats ? sim_store(q + i * ys, y->dtype, f) : sim_store_int(q + i * ys, y->dtype, (int64_t)v);
        }
        if (op->variant)
            floats ? sim_store(q, y->dtype, f) : sim_store_int(q, y->dtype, (int64_t)v);
    }
}

static int plan_lines(const char *name, int variant, const struct aclTensor *self, int64_t dim, int dtype,
                      const struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_scan_lines);
    struct sim_view *x = ngd_aclsim_operand(op, self), *y = ngd_aclsim_operand(op, out);

    op->variant = variant;
    if (!op->code) {
        int64_t d = dim < 0 ? dim + (int64_t)x->rank : dim, n;

        ngd_aclsim_check(op, d >= 0 && d < (int64_t)(x->rank ? x->rank : 1), "a dimension is out of range");
        op->i[0] = op->code ? 0 : d;
        n = x->rank ? x->dims[op->i[0]] : 1;
        ngd_aclsim_check(op, y->dtype == dtype, "the result's dtype is another");
        ngd_aclsim_check(op, variant ? n == 0 || sim_elements(y) == sim_elements(x) / n : sim_same_shape(x, y),
                         "the result's shape is another");
    }
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnCumsumGetWorkspaceSize(const struct aclTensor *self, int64_t dim, int dtype, struct aclTensor *out,
                                            NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnCumsumGetWorkspaceSize");
    return plan_lines("aclnnCumsum", 0, self, dim, dtype, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnProdDimGetWorkspaceSize(const struct aclTensor *self, int64_t dim, bool keep_dim, int dtype,
                                             struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnProdDimGetWorkspaceSize");
    (void)keep_dim;
    return plan_lines("aclnnProdDim", 1, self, dim, dtype, out, workspace_p, executor_p);
}

/* ---- triangles ----------------------------------------------------------------------------------- */

static void run_triangle_rows(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[1];
    int64_t columns = x->dims[x->rank - 1], rows = x->dims[x->rank - 2];
    size_t size = sim_size(x->dtype);

    for (int64_t i = 0; i < sim_elements(x); i++) {
        int64_t beyond = i % columns - i / columns % rows - op->i[0];

        if (op->variant ? beyond < 0 : beyond > 0)
            memset(sim_at(y, i), 0, size);
        else
            memcpy(sim_at(y, i), sim_at(x, i), size);
    }
}

static int triangle(const char *name, int upper, const struct aclTensor *self, int64_t diagonal,
                    const struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_triangle_rows);
    struct sim_view *x = ngd_aclsim_operand(op, self), *y = ngd_aclsim_operand(op, out);

    op->variant = upper;
    op->i[0] = diagonal;
    ngd_aclsim_check(op, op->code || x->rank >= 2, "takes matrices");
    ngd_aclsim_check(op, op->code || (x->dtype == y->dtype && sim_same_shape(x, y)), "the result is like the operand");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnTrilGetWorkspaceSize(const struct aclTensor *self, int64_t diagonal, struct aclTensor *out,
                                          NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnTrilGetWorkspaceSize");
    return triangle("aclnnTril", 0, self, diagonal, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnTriuGetWorkspaceSize(const struct aclTensor *self, int64_t diagonal, struct aclTensor *out,
                                          NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnTriuGetWorkspaceSize");
    return triangle("aclnnTriu", 1, self, diagonal, out, workspace_p, executor_p);
}
