/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of quantised models. Halves go to even; NaN becomes 0. */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>
#include <stdlib.h>

static void put_rounded(char *p, int dtype, double v)
{
    double lo = dtype == NGD_ACL_UINT8 ? 0 : dtype == NGD_ACL_INT8 ? -128 : -2147483648.0;
    double hi = dtype == NGD_ACL_UINT8 ? 255 : dtype == NGD_ACL_INT8 ? 127 : 2147483520.0;

    v = isnan(v) ? 0 : nearbyint(v);
    sim_store_int(p, dtype, (int64_t)fmin(fmax(v, lo), hi));
}

static double scale_of(const struct sim_view *v, int64_t column, double absent)
{
    return v->present ? sim_load(sim_at(v, sim_elements(v) > 1 ? column : 0), v->dtype) : absent;
}

/* x t[0], scale t[1], zero t[2], y t[3]; variant 1: x / scale. */
static void run_static(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[3];
    int64_t d = x->rank ? x->dims[x->rank - 1] : 1;

    for (int64_t i = 0; i < sim_elements(x); i++) {
        float v = (float)sim_load(sim_at(x, i), x->dtype), s = (float)scale_of(&op->t[1], i % d, 1);

        v = op->variant ? v / s : v * s;
        put_rounded(sim_at(y, i), y->dtype, (double)(v + (float)scale_of(&op->t[2], i % d, 0)));
    }
}

static int plan_quantize(const char *name, int variant, const struct aclTensor *x, const struct aclTensor *scale,
                         const struct aclTensor *zero, int64_t axis, int dtype, const struct aclTensor *y,
                         NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_static);
    struct sim_view *a = ngd_aclsim_operand(op, x), *s = ngd_aclsim_operand(op, scale),
                    *z = ngd_aclsim_optional(op, zero), *out = ngd_aclsim_operand(op, y);

    op->variant = variant;
    if (!op->code) {
        int64_t d = a->rank ? a->dims[a->rank - 1] : 1;

        ngd_aclsim_rules(op);
        ngd_aclsim_check(op, sim_is_float(a->dtype) && sim_is_float(s->dtype), "x and scales are floats");
        ngd_aclsim_check(op, axis == -1 || axis == (int64_t)a->rank - 1, "only the last axis");
        ngd_aclsim_check(op, sim_elements(s) == 1 || sim_elements(s) == d, "scales are one, or one for each column");
        ngd_aclsim_check(op, !z->present || sim_elements(z) == sim_elements(s), "zero points are like scales");
        ngd_aclsim_check(op, out->dtype == dtype && sim_same_shape(a, out),
                         "y is like x, of the dtype that is asked for");
    }
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnQuantizeGetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *scales,
                                              const struct aclTensor *zero_points, int dtype, int32_t axis,
                                              struct aclTensor *out, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnQuantizeGetWorkspaceSize");
    return plan_quantize("aclnnQuantize", 1, x, scales, zero_points, axis, dtype, out, workspace_p, executor_p);
}

ngd_acl_error_t aclnnAscendQuantV3GetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *scale,
                                                   const struct aclTensor *offset, bool sqrt_mode,
                                                   const char *round_mode, int32_t dtype, int32_t axis,
                                                   const struct aclTensor *y, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnAscendQuantV3GetWorkspaceSize");
    if (sqrt_mode || !round_mode || strcmp(round_mode, "round") != 0 || dtype != NGD_ACL_INT8)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "knows more modes", "sqrt_mode, round mode %s or dtype %d",
                               round_mode ? round_mode : "NULL", dtype);
    return plan_quantize("aclnnAscendQuantV3", 0, x, scale, offset, axis, dtype, y, workspace_p, executor_p);
}

/* ---- scales of each row -------------------------------------------------------------------------- */

/* A row of floats as i8, with the scale that makes its largest 127. */
static float quantize_row(const float *v, int64_t n, char *y, int dtype)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(v[i]));
    most /= 127;
    for (int64_t i = 0; i < n; i++)
        put_rounded(y + i * (int64_t)sim_size(dtype), dtype, most > 0 ? (double)(v[i] / most) : 0);
    return most;
}

/* x t[0], smooth t[1], y t[2], scale t[3]: contiguous. */
static void run_dynamic(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[2], *s = &op->t[3];
    int64_t d = x->dims[x->rank - 1], rows = d ? sim_elements(x) / d : 0;
    float *v = malloc((size_t)(d + 1) * sizeof(float));

    if (!v)
        abort();
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < d; i++)
            v[i] = (float)sim_load(sim_at(x, row * d + i), x->dtype) * (float)scale_of(&op->t[1], i, 1);
        sim_store(sim_at(s, row), s->dtype, (double)quantize_row(v, d, sim_at(y, row * d), y->dtype));
    }
    free(v);
}

static void check_quant_rows(struct sim_op *op, const struct sim_view *x, const struct sim_view *y,
                             const struct sim_view *s, int64_t columns)
{
    int64_t d = x->rank ? x->dims[x->rank - 1] : 1;

    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, x->rank >= 1, "x has a last dimension");
    ngd_aclsim_check(op, y->dtype == NGD_ACL_INT8 && s->dtype == NGD_ACL_FLOAT, "y is i8, its scale f32");
    ngd_aclsim_check(op, sim_contiguous(x) && sim_contiguous(y) && sim_contiguous(s), "operands are contiguous");
    ngd_aclsim_check(op, d == 0 || sim_elements(s) == sim_elements(x) / d, "a scale for each row");
    ngd_aclsim_check(op, d == 0 || sim_elements(y) == sim_elements(x) / d * columns, "the result's shape is another");
}

ngd_acl_error_t aclnnDynamicQuantGetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *smooth,
                                                  const struct aclTensor *y, const struct aclTensor *scale,
                                                  NGD_ACL_PHASE1)
{
    struct sim_op *op;
    struct sim_view *a, *s;

    SIM_CALL("aclnnDynamicQuantGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnDynamicQuant", run_dynamic);
    a = ngd_aclsim_operand(op, x);
    s = ngd_aclsim_optional(op, smooth);
    ngd_aclsim_operand(op, y);
    ngd_aclsim_operand(op, scale);
    if (!op->code) {
        check_quant_rows(op, a, &op->t[2], &op->t[3], a->rank ? a->dims[a->rank - 1] : 1);
        ngd_aclsim_check(op, sim_is_half(a->dtype), "takes f16 and bf16");
        ngd_aclsim_check(op, !s->present || (s->dtype == a->dtype && s->rank == 1),
                         "smooth scales are like a row of x");
    }
    op->workspace = 512;
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* As run_dynamic; offsets t[4]. i[0]: the left half is the gate; variant 1: the scale is the row's own. */
static void run_swiglu_quant(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[2], *s = &op->t[3];
    int64_t d = x->dims[x->rank - 1], n = d / 2, rows = d ? sim_elements(x) / d : 0;
    float *v = malloc((size_t)(n + 1) * sizeof(float));
    char rounded[8];

    if (!v)
        abort();
    for (int64_t row = 0; row < rows; row++) {
        float own = 1;

        for (int64_t i = 0; i < n; i++) {
            double left = sim_load(sim_at(x, row * d + i), x->dtype);
            double right = sim_load(sim_at(x, row * d + n + i), x->dtype), gate = op->i[0] ? left : right;

            sim_store(rounded, x->dtype, (op->i[0] ? right : left) * gate / (1 + exp(-gate)));
            v[i] = (float)sim_load(rounded, x->dtype) * (float)scale_of(&op->t[1], i, 1);
            if (!op->variant)
                put_rounded(sim_at(y, row * n + i), y->dtype, (double)(v[i] + (float)scale_of(&op->t[4], i, 0)));
        }
        if (op->variant)
            own = quantize_row(v, n, sim_at(y, row * n), y->dtype);
        sim_store(sim_at(s, row), s->dtype, (double)own);
    }
    free(v);
}

ngd_acl_error_t aclnnSwiGluQuantGetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *smooth,
                                                 const struct aclTensor *offsets, const struct aclTensor *groups,
                                                 bool left, char *mode, const struct aclTensor *y,
                                                 const struct aclTensor *scale, NGD_ACL_PHASE1)
{
    struct sim_op *op;
    struct sim_view *a;

    SIM_CALL("aclnnSwiGluQuantGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnSwiGluQuant", run_swiglu_quant);
    a = ngd_aclsim_operand(op, x);
    ngd_aclsim_optional(op, smooth);
    ngd_aclsim_operand(op, y);
    ngd_aclsim_operand(op, scale);
    ngd_aclsim_optional(op, offsets);
    op->i[0] = left;
    op->variant = mode && strcmp(mode, "dynamic") == 0;
    if (!op->code) {
        check_quant_rows(op, a, &op->t[2], &op->t[3], a->rank ? a->dims[a->rank - 1] / 2 : 0);
        ngd_aclsim_check(op, !groups, "groups of rows are not computed here");
        ngd_aclsim_check(op, op->variant || (mode && strcmp(mode, "static") == 0), "the mode is static or dynamic");
        ngd_aclsim_check(op, op->variant || (smooth && offsets), "a static quantisation has scales and offsets");
        for (int i = 1; i < 5; i += 3)
            ngd_aclsim_check(op, !op->t[i].present || op->t[i].dtype == NGD_ACL_FLOAT, "scales and offsets are f32");
    }
    op->workspace = 512;
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
