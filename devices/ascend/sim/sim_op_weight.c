/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in FRACTAL_NZ: how many elements they have, and the operator that lays them out, in place. It is the caller
 * who gives the tensor so much memory; one with less is written behind its end, on a device and here.
 */
#include "devices/ascend/sim/sim_op.h"
#include <stdlib.h>

#define WORKSPACE 4096 /* beside the copy that is being made */

static bool is_laid_out(int dtype)
{
    return sim_is_half(dtype) || dtype == NGD_ACL_INT8;
}

/* Elements of the last two dimensions, and of all; 0: dims cannot be. */
static int64_t padded(const int64_t *dims, uint64_t rank, int dtype, int64_t *matrix_p)
{
    int64_t fractal[4], n;

    for (uint64_t i = 0; i < rank; i++)
        if (dims[i] <= 0)
            return 0;
    ngd_acl_fractal(dims[rank - 2], dims[rank - 1], dtype == NGD_ACL_INT8 ? 1 : 2, fractal);
    n = *matrix_p = fractal[0] * fractal[1] * fractal[2] * fractal[3];
    for (uint64_t i = 0; i + 2 < rank; i++)
        n *= dims[i];
    return n;
}

/* 8.1.RC1 documents f16 and i8; bf16 came later. */
ngd_acl_error_t aclnnCalculateMatmulWeightSizeV2(const struct aclIntArray *shape, int dtype, uint64_t *elements_p)
{
    int64_t n, matrix;

    SIM_CALL("aclnnCalculateMatmulWeightSizeV2");
    if (!shape || !elements_p)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "a shape or its result is NULL");
    if (!is_laid_out(dtype) || (dtype == NGD_ACL_BF16 && ngd_aclsim_old_api()))
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "the same, or a size that is wrong", "weights of dtype %d",
                               dtype);
    if (shape->n < 2 || shape->n > 6)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "the same", "a weight of %llu dimensions",
                               (unsigned long long)shape->n);
    n = padded(shape->v, shape->n, dtype, &matrix);
    if (n == 0)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "the same", "a weight without elements");
    *elements_p = (uint64_t)n;
    return 0;
}

/* t[0] the weight, i[0] elements of a matrix in NZ. */
static void run_to_nz(struct sim_op *op)
{
    const struct sim_view *w = &op->t[0];
    int64_t rows = w->dims[w->rank - 2], columns = w->dims[w->rank - 1], size = (int64_t)sim_size(w->dtype);
    char *to = calloc((size_t)w->reach, (size_t)size);

    if (!to)
        abort();
    for (int64_t i = 0; i < sim_elements(w); i++) {
        int64_t in = i % (rows * columns);

        memcpy(to + (i / (rows * columns) * op->i[0] + sim_nz_at(rows, 32 / size, in / columns, in % columns)) * size,
               w->p + i * size, (size_t)size);
    }
    memcpy(w->p, to, (size_t)(w->reach * size));
    free(to);
}

/* From here on the tensor is one in NZ, though its memory is not yet. */
static void relabel(struct aclTensor *t, int64_t matrix)
{
    t->format = NGD_ACL_FORMAT_NZ;
    t->storage = matrix;
    t->storage_rank = t->rank + 2;
    for (uint32_t i = 0; i + 2 < t->rank; i++) {
        t->storage_dims[i] = t->dims[i];
        t->storage *= t->dims[i];
    }
    ngd_acl_fractal(t->dims[t->rank - 2], t->dims[t->rank - 1], (int64_t)sim_size(t->dtype),
                    &t->storage_dims[t->rank - 2]);
}

ngd_acl_error_t aclnnTransMatmulWeightGetWorkspaceSize(struct aclTensor *weight, NGD_ACL_PHASE1)
{
    struct sim_op *op;
    struct sim_view *w;

    SIM_CALL("aclnnTransMatmulWeightGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnTransMatmulWeight", run_to_nz);
    w = ngd_aclsim_operand(op, weight);
    if (!op->code) {
        bool half = sim_is_half(w->dtype);

        ngd_aclsim_check(op, is_laid_out(w->dtype), "takes f16, bf16 and i8");
        ngd_aclsim_check(op, w->rank >= 2 && w->rank <= (!half ? 6 : ngd_aclsim_old_api() ? 2 : 3), "rank");
        ngd_aclsim_check(op, sim_contiguous(w) && weight->offset == 0,
                         "versions differ in what they make of a weight that is not contiguous");
    }
    if (!op->code) {
        w->reach = padded(w->dims, w->rank, w->dtype, &op->i[0]);
        ngd_aclsim_check(op, w->reach > 0, "a weight without elements");
        op->workspace = (uint64_t)w->reach * sim_size(w->dtype) + WORKSPACE;
    }
    if (!op->code && workspace_p && executor_p)
        relabel(weight, op->i[0]);
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
