/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products, with sums in f32, as the cube unit does. Operands may be of several dtypes: hicann/ops-nn e5c3fa93,
 * aclnn_matmul.cpp, CheckWeightNzDtypeValid.
 */
#include "devices/ascend/sim/sim_op.h"
#include <stdlib.h>

#define WORKSPACE 4096 /* what a real tiling asks for varies; that it asks is what callers must handle */

static void load_row(const struct sim_view *v, const char *p, int64_t step, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)sim_load(p + i * step * (int64_t)sim_size(v->dtype), v->dtype);
}

/* Column j of b[K,N], of which pb is the first element. */
static void load_column(const struct sim_view *b, const char *pb, int64_t j, int64_t k, float *to)
{
    int64_t size = (int64_t)sim_size(b->dtype), row_step = b->strides[b->rank - 2],
            column_step = b->strides[b->rank - 1];

    if (!b->rows) {
        load_row(b, pb + j * column_step * size, row_step, k, to);
        return;
    }
    for (int64_t i = 0; i < k; i++)
        to[i] = (float)sim_load(pb + sim_nz_at(b->rows, 32 / size, b->transposed ? j : i, b->transposed ? i : j) * size,
                                b->dtype);
}

static float dot_rows(const float *a, const float *b, int64_t n)
{
    float sum[8] = {0}, rest = 0;
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        rest += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])) + rest;
}

/* One matrix of a batch: y[M,N] = a[M,K] x b[K,N]. */
static void multiply_batch(const struct sim_view *a, const struct sim_view *b, const struct sim_view *y, int64_t batch)
{
    uint32_t r = y->rank;
    int64_t m = y->dims[r - 2], n = y->dims[r - 1], k = a->dims[r - 1];
    const char *pa = a->p + (r == 3 ? batch * a->strides[0] : 0) * (int64_t)sim_size(a->dtype);
    const char *pb = b->p + (r == 3 ? batch * b->strides[0] : 0) * (int64_t)sim_size(b->dtype);
    char *py = y->p + (r == 3 ? batch * y->strides[0] : 0) * (int64_t)sim_size(y->dtype);
    float *rows = malloc((size_t)((m + 1) * (k + 1)) * sizeof(float)), *column = rows + m * k;

    if (!rows)
        abort();
    for (int64_t i = 0; i < m; i++)
        load_row(a, pa + i * a->strides[r - 2] * (int64_t)sim_size(a->dtype), a->strides[r - 1], k, rows + i * k);
    for (int64_t j = 0; j < n; j++) {
        load_column(b, pb, j, k, column);
        for (int64_t i = 0; i < m; i++)
            sim_store(py + (i * y->strides[r - 2] + j * y->strides[r - 1]) * (int64_t)sim_size(y->dtype), y->dtype,
                      (double)dot_rows(rows + i * k, column, k));
    }
    free(rows);
}

static void run_batches(struct sim_op *op)
{
    int64_t batches = op->t[2].rank == 3 ? op->t[2].dims[0] : 1;

    for (int64_t i = 0; i < batches; i++)
        multiply_batch(&op->t[0], &op->t[1], &op->t[2], i);
}

static bool is_factor(int dtype, bool nz)
{
    return sim_is_half(dtype) || (dtype == NGD_ACL_FLOAT && !nz);
}

static int plan_product(const char *name, uint32_t rank, bool nz, const struct aclTensor *self,
                        const struct aclTensor *mat2, struct aclTensor *out, int8_t cube_math_type, NGD_ACL_PHASE1)
{
    struct sim_op *op;
    struct sim_view *a, *b, *y;

    if (ngd_aclsim_lenient() && !nz)
        return sim_any_product(name, self, mat2, out, cube_math_type, workspace_p, executor_p);
    op = ngd_aclsim_op(name, run_batches);
    a = ngd_aclsim_operand(op, self);
    b = nz ? ngd_aclsim_weight(op, mat2) : ngd_aclsim_operand(op, mat2);
    y = ngd_aclsim_operand(op, out);

    ngd_aclsim_check(op, cube_math_type >= 0 && cube_math_type <= 3, "cubeMathType");
    ngd_aclsim_check(op, a->rank == rank && b->rank == rank && y->rank == rank, "ranks");
    if (!op->code) {
        ngd_aclsim_check(op,
                         a->dims[rank - 1] == b->dims[rank - 2] && y->dims[rank - 2] == a->dims[rank - 2] &&
                             y->dims[rank - 1] == b->dims[rank - 1] &&
                             (rank < 3 || (a->dims[0] == b->dims[0] && a->dims[0] == y->dims[0])),
                         "shapes do not fit");
        ngd_aclsim_check(op, is_factor(a->dtype, nz) && is_factor(b->dtype, nz) && is_factor(y->dtype, nz),
                         nz ? "takes f16 and bf16" : "takes f32, f16 and bf16");
        ngd_aclsim_check(op, !nz || a->dtype == b->dtype, "operands are of several dtypes");
        ngd_aclsim_check(
            op, cube_math_type != NGD_ACL_CUBE_KEEP_DTYPE || a->dtype != NGD_ACL_FLOAT || y->dtype != NGD_ACL_FLOAT16,
            "float32 gives no float16 where the dtype is kept");
    }
    op->workspace = WORKSPACE;
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnMatmulGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *mat2,
                                            struct aclTensor *out, int8_t cube_math_type, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnMatmulGetWorkspaceSize");
    return plan_product("aclnnMatmul", 2, false, self, mat2, out, cube_math_type, workspace_p, executor_p);
}

ngd_acl_error_t aclnnBatchMatMulGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *mat2,
                                                 struct aclTensor *out, int8_t cube_math_type, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnBatchMatMulGetWorkspaceSize");
    return plan_product("aclnnBatchMatMul", 3, false, self, mat2, out, cube_math_type, workspace_p, executor_p);
}

SIM_OPTIONAL(aclnnMatmulWeightNzGetWorkspaceSize);
static ngd_acl_error_t aclnnMatmulWeightNzGetWorkspaceSize_impl(const struct aclTensor *self,
                                                                const struct aclTensor *mat2, struct aclTensor *out,
                                                                int8_t cube_math_type, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnMatmulWeightNzGetWorkspaceSize");
    return plan_product("aclnnMatmulWeightNz", 2, true, self, mat2, out, cube_math_type, workspace_p, executor_p);
}

/* t[0] bias, which is broadcast; t[1], t[2] matrices; t[3] the result: one rounding at the end. */
static void run_addmm(struct sim_op *op)
{
    const struct sim_view *bias = &op->t[0], *a = &op->t[1], *b = &op->t[2], *y = &op->t[3];
    int64_t m = y->dims[0], n = y->dims[1], k = a->dims[1], size = (int64_t)sim_size(a->dtype);
    float *row = malloc((size_t)(2 * k + 1) * sizeof(float)), *column = row + k;

    if (!row)
        abort();
    for (int64_t i = 0; i < m; i++) {
        load_row(a, a->p + i * a->strides[0] * size, a->strides[1], k, row);
        for (int64_t j = 0; j < n; j++) {
            int64_t at = (bias->rank == 2 && bias->dims[0] != 1 ? i * bias->strides[0] : 0) +
                         (bias->dims[bias->rank - 1] != 1 ? j * bias->strides[bias->rank - 1] : 0);

            load_column(b, b->p, j, k, column);
            sim_store(y->p + (i * y->strides[0] + j * y->strides[1]) * size, y->dtype,
                      op->f[1] * (double)dot_rows(row, column, k) +
                          op->f[0] * sim_load(bias->p + at * size, bias->dtype));
        }
    }
    free(row);
}

static int add_product(const char *name, bool nz, const struct aclTensor *self, const struct aclTensor *mat1,
                       const struct aclTensor *mat2, const struct aclScalar *beta, const struct aclScalar *alpha,
                       struct aclTensor *out, int8_t cube_math_type, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    if (!beta || !alpha)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "a scalar is NULL");
    op = ngd_aclsim_op(name, run_addmm);
    ngd_aclsim_operand(op, self);
    ngd_aclsim_operand(op, mat1);
    if (nz)
        ngd_aclsim_weight(op, mat2);
    else
        ngd_aclsim_operand(op, mat2);
    ngd_aclsim_operand(op, out);
    op->f[0] = beta->f;
    op->f[1] = alpha->f;
    op->workspace = WORKSPACE;
    ngd_aclsim_check(op, cube_math_type >= 0 && cube_math_type <= 3, "cubeMathType");
    for (int i = 0; i < 4 && !op->code; i++) {
        ngd_aclsim_check(op, i == 0 ? op->t[0].rank == 1 || op->t[0].rank == 2 : op->t[i].rank == 2, "ranks");
        ngd_aclsim_check(op, op->t[i].dtype == op->t[1].dtype, "operands and result are of several dtypes");
    }
    ngd_aclsim_check(op, op->code || !nz || sim_is_half(op->t[1].dtype), "takes f16 and bf16");
    ngd_aclsim_check(op,
                     op->code || (op->t[1].dims[1] == op->t[2].dims[0] && op->t[3].dims[0] == op->t[1].dims[0] &&
                                  op->t[3].dims[1] == op->t[2].dims[1]),
                     "shapes do not fit");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnAddmmGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *mat1,
                                           const struct aclTensor *mat2, const struct aclScalar *beta,
                                           const struct aclScalar *alpha, struct aclTensor *out, int8_t cube_math_type,
                                           NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnAddmmGetWorkspaceSize");
    return add_product("aclnnAddmm", false, self, mat1, mat2, beta, alpha, out, cube_math_type, workspace_p,
                       executor_p);
}

SIM_OPTIONAL(aclnnAddmmWeightNzGetWorkspaceSize);
static ngd_acl_error_t aclnnAddmmWeightNzGetWorkspaceSize_impl(const struct aclTensor *self,
                                                               const struct aclTensor *mat1,
                                                               const struct aclTensor *mat2,
                                                               const struct aclScalar *beta,
                                                               const struct aclScalar *alpha, struct aclTensor *out,
                                                               int8_t cube_math_type, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnAddmmWeightNzGetWorkspaceSize");
    return add_product("aclnnAddmmWeightNz", true, self, mat1, mat2, beta, alpha, out, cube_math_type, workspace_p,
                       executor_p);
}
