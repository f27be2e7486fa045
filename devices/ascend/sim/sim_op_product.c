/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products that the backend does not make: of several dtypes, with batches that are repeated, of
 * quantised weights. Sums are in f32.
 *
 * Dtypes: hicann/ops-nn e5c3fa93, the document of aclnnMm: operands are promoted, and cubeMathType 2 makes them f16.
 * HF32, which 1 and 3 allow, is f32 here. Quantised weights: the document of aclnnWeightQuantBatchMatmulV2 there:
 * y = x @ ((weight + offset) * scale) + bias; what it takes is in operator_rules.def.
 */
#include "devices/ascend/sim/sim_op.h"
#include <stdlib.h>

#define WORKSPACE 4096 /* what a real tiling asks for varies */
#define USE_FP16  2    /* cubeMathType */

static float *new_floats(int64_t n)
{
    float *f = malloc((size_t)(n > 0 ? n : 1) * sizeof(*f));

    if (!f)
        abort();
    return f;
}

static float sum_of_products(const float *a, const float *b, int64_t n)
{
    float sum[8] = {0};
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* y[M,N] of rows[M,K] and columns[N,K]; all of the last two dimensions of y, which begin at p. */
static void store_products(const struct sim_view *y, char *p, const float *rows, const float *columns, int64_t k)
{
    int64_t m = y->dims[y->rank - 2], n = y->dims[y->rank - 1], size = (int64_t)sim_size(y->dtype);

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            sim_store(p + (i * y->strides[y->rank - 2] + j * y->strides[y->rank - 1]) * size, y->dtype,
                      (double)sum_of_products(rows + i * k, columns + j * k, k));
}

/* ---- of any dtypes and batches ------------------------------------------------------------------- */

/* Where the matrix of a batch of y begins in v, whose dimensions of 1 are repeated. */
static char *batch_of(const struct sim_view *v, const struct sim_view *y, int64_t batch)
{
    int64_t at = 0;

    for (uint32_t d = y->rank - 2; d-- > 0; batch /= y->dims[d]) {
        const uint32_t missing = y->rank - v->rank;

        if (d >= missing && v->dims[d - missing] != 1)
            at += batch % y->dims[d] * v->strides[d - missing];
    }
    return v->p + at * (int64_t)sim_size(v->dtype);
}

/* One row of a [..,M,K], or one column of b [..,K,N]. */
static void load_line(const struct sim_op *op, const struct sim_view *v, const char *p, int64_t line, bool column,
                      float *to)
{
    const int64_t size = (int64_t)sim_size(v->dtype), k = v->dims[v->rank - (column ? 2 : 1)];
    const int64_t step = v->strides[v->rank - (column ? 2 : 1)], begin = line * v->strides[v->rank - (column ? 1 : 2)];
    const bool halves = op->i[0] == USE_FP16 && v->dtype == NGD_ACL_FLOAT;

    for (int64_t i = 0; i < k; i++) {
        int64_t at = begin + i * step;

        if (v->rows) /* in NZ, of which only columns are asked for */
            at = sim_nz_at(v->rows, 32 / size, v->transposed ? line : i, v->transposed ? i : line);
        to[i] = (float)sim_load(p + at * size, v->dtype);
        if (halves)
            to[i] = sim_from_f16(sim_to_f16(to[i]));
    }
}

static void run_any_product(struct sim_op *op)
{
    const struct sim_view *a = &op->t[0], *b = &op->t[1], *y = &op->t[2];
    int64_t m = y->dims[y->rank - 2], n = y->dims[y->rank - 1], k = a->dims[a->rank - 1], batches = 1;
    float *rows = new_floats(m * k), *columns = new_floats(n * k);

    for (uint32_t d = 0; d + 2 < y->rank; d++)
        batches *= y->dims[d];
    for (int64_t batch = 0; batch < batches; batch++) {
        for (int64_t i = 0; i < m; i++)
            load_line(op, a, batch_of(a, y, batch), i, false, rows + i * k);
        for (int64_t j = 0; j < n; j++)
            load_line(op, b, batch_of(b, y, batch), j, true, columns + j * k);
        store_products(y, batch_of(y, y, batch), rows, columns, k);
    }
    free(rows);
    free(columns);
}

static void check_batches(struct sim_op *op, const struct sim_view *v, const struct sim_view *y)
{
    ngd_aclsim_check(op, v->rank <= y->rank, "an operand has more dimensions than the result");
    for (uint32_t d = 0; d + 2 < v->rank && !op->code; d++)
        ngd_aclsim_check(op, v->dims[d] == 1 || v->dims[d] == y->dims[d + y->rank - v->rank],
                         "batches cannot be broadcast to the result's");
}

int sim_any_product(const char *name, const struct aclTensor *self, const struct aclTensor *mat2,
                    const struct aclTensor *out, int8_t cube_math_type, NGD_ACL_PHASE1)
{
    struct sim_op *op = ngd_aclsim_op(name, run_any_product);
    const bool nz = mat2 && mat2->format == NGD_ACL_FORMAT_NZ;
    const struct sim_view *a = ngd_aclsim_operand(op, self),
                          *b = nz ? ngd_aclsim_weight(op, mat2) : ngd_aclsim_operand(op, mat2),
                          *y = ngd_aclsim_operand(op, out);

    op->i[0] = cube_math_type;
    op->workspace = WORKSPACE;
    ngd_aclsim_check(op, cube_math_type >= 0 && cube_math_type <= 4, "cubeMathType");
    ngd_aclsim_check(op, op->code || (a->rank >= 2 && b->rank >= 2 && y->rank >= 2 && y->rank <= 6), "ranks");
    if (op->code)
        return ngd_aclsim_finish(op, workspace_p, executor_p);
    for (int i = 0; i < 3; i++)
        ngd_aclsim_check(op, sim_is_float(op->t[i].dtype) && op->t[i].dtype != NGD_ACL_DOUBLE,
                         "takes f32, f16 and bf16");
    check_batches(op, a, y);
    check_batches(op, b, y);
    ngd_aclsim_check(op,
                     op->code ||
                         (a->dims[a->rank - 1] == b->dims[b->rank - 2] &&
                          y->dims[y->rank - 2] == a->dims[a->rank - 2] && y->dims[y->rank - 1] == b->dims[b->rank - 1]),
                     "shapes do not fit");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

ngd_acl_error_t aclnnMmGetWorkspaceSize(const struct aclTensor *self, const struct aclTensor *mat2,
                                        struct aclTensor *out, int8_t cube_math_type, NGD_ACL_PHASE1)
{
    SIM_CALL("aclnnMmGetWorkspaceSize");
    if ((self && self->rank != 2) || (mat2 && mat2->rank != 2))
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "the same", "aclnnMm takes matrices");
    return sim_any_product("aclnnMm", self, mat2, out, cube_math_type, workspace_p, executor_p);
}

/* ---- quantised weights --------------------------------------------------------------------------- */

enum { INPUT, WEIGHT, SCALE, OFFSET, QUANT_SCALE, QUANT_OFFSET, BIAS, RESULT };

static double quantised_at(const struct sim_view *w, int64_t at)
{
    int nibble;

    if (w->dtype != NGD_ACL_INT4)
        return (double)sim_load_int(w->p + at, w->dtype);
    nibble = (uint8_t)w->p[at / 2] >> (at % 2 ? 4 : 0) & 15; /* the first of two is the lower half */
    return nibble >= 8 ? nibble - 16 : nibble;
}

/*
 * The scale, or the offset, of a group and a column. Beside a transposed weight CANN takes two dimensions for the
 * transpose of what lies there, without a look at their strides (ON aclnn_weight_quant_batch_matmul_v2.cpp:1603).
 */
static double antiquant_at(const struct sim_view *s, int64_t group, int64_t column, bool transposed)
{
    const int64_t n = s->dims[s->rank - 1], groups = s->rank == 2 ? s->dims[0] : 1;
    int64_t at = group * n + column;

    if (sim_elements(s) == 1)
        at = 0;
    else if (s->rank == 1)
        at = column;
    else if (transposed)
        at = column * groups + group;
    return sim_load(s->p + at * (int64_t)sim_size(s->dtype), s->dtype);
}

static void load_quantised_column(const struct sim_op *op, int64_t j, float *to)
{
    const struct sim_view *x = &op->t[INPUT], *w = &op->t[WEIGHT], *offset = &op->t[OFFSET];
    const int64_t k = x->dims[1], group = op->i[0] ? op->i[0] : k;

    for (int64_t i = 0; i < k; i++) {
        const double scale = antiquant_at(&op->t[SCALE], i / group, j, w->transposed);
        double v = quantised_at(w, i * w->strides[0] + j * w->strides[1]);

        if (offset->present)
            v += antiquant_at(offset, i / group, j, w->transposed);
        to[i] = (float)sim_round(v * scale, x->dtype);
    }
}

static void run_quantised_product(struct sim_op *op)
{
    const struct sim_view *x = &op->t[INPUT], *bias = &op->t[BIAS], *y = &op->t[RESULT];
    int64_t m = y->dims[0], n = y->dims[1], k = x->dims[1];
    float *rows = new_floats(m * k), *column = new_floats(k);

    for (int64_t i = 0; i < m * k; i++)
        rows[i] = (float)sim_load(sim_at(x, i), x->dtype);
    for (int64_t j = 0; j < n; j++) {
        const double add = bias->present ? sim_load(bias->p + j * (int64_t)sim_size(bias->dtype), bias->dtype) : 0;

        load_quantised_column(op, j, column);
        for (int64_t i = 0; i < m; i++)
            sim_store(sim_at(y, i * n + j), y->dtype, (double)sum_of_products(rows + i * k, column, k) + add);
    }
    free(rows);
    free(column);
}

ngd_acl_error_t aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(
    const struct aclTensor *x, const struct aclTensor *weight, const struct aclTensor *scale,
    const struct aclTensor *offset, const struct aclTensor *quant_scale, const struct aclTensor *quant_offset,
    const struct aclTensor *bias, int group_size, const struct aclTensor *y, NGD_ACL_PHASE1)
{
    struct sim_op *op;
    struct sim_view *w;

    SIM_CALL("aclnnWeightQuantBatchMatmulV2GetWorkspaceSize");
    op = ngd_aclsim_op("aclnnWeightQuantBatchMatmulV2", run_quantised_product);
    ngd_aclsim_operand(op, x);
    w = ngd_aclsim_packed(op, weight);
    ngd_aclsim_operand(op, scale);
    ngd_aclsim_optional(op, offset);
    ngd_aclsim_optional(op, quant_scale);
    ngd_aclsim_optional(op, quant_offset);
    ngd_aclsim_optional(op, bias);
    ngd_aclsim_operand(op, y);
    op->i[0] = group_size;
    op->workspace = WORKSPACE;
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, !quant_scale && !quant_offset, "quantised results are not computed here");
    ngd_aclsim_check(op, op->code || (sim_is_half(op->t[SCALE].dtype) && w->dtype != NGD_ACL_INT32),
                     "scales that are fixed-point numbers and weights in i32 are not computed here");
    ngd_aclsim_check(op, op->code || (op->t[INPUT].rank == 2 && w->rank == 2 && op->t[RESULT].rank == 2),
                     "only matrices are computed here");
    if (!op->code)
        w->transposed = w->strides[0] == 1 && w->strides[1] == w->dims[0];
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* ---- quantised rows and weights ------------------------------------------------------------------ */

enum { ROWS, COLUMNS, COLUMN_SCALE, ROW_OFFSET, ROW_SCALE, SUM_BIAS, PRODUCT };

/* A scale or a bias of column j; a scale of one element is that of all columns. */
static double of_column(const struct sim_view *v, int64_t j)
{
    return sim_load(v->p + (v->dims[0] == 1 ? 0 : j * v->strides[0]) * (int64_t)sim_size(v->dtype), v->dtype);
}

/* The order of ON's kernel quant_batch_matmul_v3_pertoken: the sum with an int32 bias, the column's scale, the row's,
 * another bias; each step in f32. Results of int32 have no scales. */
static double dequantised(const struct sim_op *op, int32_t sum, int64_t i, int64_t j)
{
    const struct sim_view *bias = &op->t[SUM_BIAS];
    const bool whole = bias->present && bias->dtype == NGD_ACL_INT32;
    float v;

    if (whole)
        sum =
            (int32_t)((uint32_t)sum + (uint32_t)(int32_t)sim_load_int(bias->p + j * bias->strides[0] * 4, bias->dtype));
    if (op->t[PRODUCT].dtype == NGD_ACL_INT32)
        return sum;
    v = (float)sum * (float)of_column(&op->t[COLUMN_SCALE], j);
    if (op->t[ROW_SCALE].present)
        v *= (float)sim_load(op->t[ROW_SCALE].p + i * op->t[ROW_SCALE].strides[0] * 4, NGD_ACL_FLOAT);
    if (bias->present && !whole)
        v += (float)of_column(bias, j);
    return (double)v;
}

static void run_i8_product(struct sim_op *op)
{
    const struct sim_view *x = &op->t[ROWS], *w = &op->t[COLUMNS], *y = &op->t[PRODUCT];

    for (int64_t i = 0; i < y->dims[0]; i++)
        for (int64_t j = 0; j < y->dims[1]; j++) {
            uint32_t sum = 0;

            for (int64_t k = 0; k < x->dims[1]; k++)
                sum += (uint32_t)(x->p[i * x->strides[0] + k * x->strides[1]] *
                                  w->p[k * w->strides[0] + j * w->strides[1]]);
            sim_store(y->p + (i * y->strides[0] + j * y->strides[1]) * (int64_t)sim_size(y->dtype), y->dtype,
                      dequantised(op, (int32_t)sum, i, j));
        }
}

ngd_acl_error_t aclnnQuantMatmulV4GetWorkspaceSize(const struct aclTensor *x1, const struct aclTensor *x2,
                                                   const struct aclTensor *scale, const struct aclTensor *offset,
                                                   const struct aclTensor *row_scale, const struct aclTensor *bias,
                                                   bool transpose_x1, bool transpose_x2, const struct aclTensor *out,
                                                   NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnQuantMatmulV4GetWorkspaceSize");
    op = ngd_aclsim_op("aclnnQuantMatmulV4", run_i8_product);
    ngd_aclsim_operand(op, x1);
    ngd_aclsim_operand(op, x2);
    ngd_aclsim_operand(op, scale);
    ngd_aclsim_optional(op, offset);
    ngd_aclsim_optional(op, row_scale);
    ngd_aclsim_optional(op, bias);
    ngd_aclsim_operand(op, out);
    op->workspace = WORKSPACE;
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, !transpose_x1 && !transpose_x2, "operands that are named as transposed are not computed here");
    ngd_aclsim_check(op, op->code || op->t[ROWS].dtype == NGD_ACL_INT8, "int4 is not computed here");
    ngd_aclsim_check(
        op,
        op->code || ((op->t[COLUMN_SCALE].dtype == NGD_ACL_FLOAT || op->t[COLUMN_SCALE].dtype == NGD_ACL_BF16) &&
                     op->t[COLUMN_SCALE].rank == 1 && op->t[PRODUCT].dtype != NGD_ACL_INT8),
        "scales that are fixed-point numbers, of several dimensions, and results of int8 are not computed here");
    ngd_aclsim_check(op,
                     op->code || (op->t[ROWS].rank == 2 && op->t[COLUMNS].rank == 2 && op->t[PRODUCT].rank == 2 &&
                                  (!op->t[SUM_BIAS].present || op->t[SUM_BIAS].rank == 1)),
                     "only matrices are computed here");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
