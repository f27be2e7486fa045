/* SPDX-License-Identifier: Apache-2.0 */
/* Fused operators of decoders: rotation, gate, KV cache. Attention is in sim_op_attention.c. */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>
#include <stdlib.h>

/* ---- gate and rotation --------------------------------------------------------------------------- */

static void run_swiglu_halves(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *y = &op->t[1];
    int64_t d = y->dims[y->rank - 1], rows = d ? sim_elements(y) / d : 0;

    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < d; i++) {
            double a = sim_load(sim_at(x, row * 2 * d + i), x->dtype);
            double b = sim_load(sim_at(x, row * 2 * d + d + i), x->dtype);

            sim_store(sim_at(y, row * d + i), y->dtype, a / (1 + exp(-a)) * b);
        }
    }
}

ngd_acl_error_t aclnnSwiGluGetWorkspaceSize(const struct aclTensor *x, int64_t dim, const struct aclTensor *out,
                                            NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnSwiGluGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnSwiGlu", run_swiglu_halves);
    ngd_aclsim_operand(op, x);
    ngd_aclsim_operand(op, out);
    ngd_aclsim_check(op, op->t[0].rank > 0 && (dim == -1 || dim == (int64_t)op->t[0].rank - 1),
                     "splits the last dimension");
    ngd_aclsim_check(op,
                     op->code || (op->t[0].rank == op->t[1].rank && op->t[0].dtype == op->t[1].dtype &&
                                  op->t[0].dims[op->t[0].rank - 1] == 2 * op->t[1].dims[op->t[1].rank - 1]),
                     "the result is half of x");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* One head: element i turns with the one half a head away (i[0] = 0), or with its neighbour (1). */
static void turn_head(struct sim_op *op, int64_t at, int64_t angles)
{
    const struct sim_view *x = &op->t[0], *c = &op->t[1], *s = &op->t[2], *y = &op->t[3];
    int64_t d = x->dims[3], h = d / 2;
    double *turned = malloc((size_t)d * sizeof(*turned)); /* the result may be the operand */

    if (!turned)
        abort();
    for (int64_t i = 0; i < d; i++) {
        int64_t pair = op->i[0] ? i ^ 1 : i < h ? i + h : i - h;
        double w = sim_load(sim_at(x, at + pair), x->dtype);

        turned[i] = sim_load(sim_at(x, at + i), x->dtype) * sim_load(sim_at(c, angles + i), c->dtype) +
                    (i < pair ? -w : w) * sim_load(sim_at(s, angles + i), s->dtype);
    }
    for (int64_t i = 0; i < d; i++)
        sim_store(sim_at(y, at + i), y->dtype, turned[i]);
    free(turned);
}

/* x[B,S,N,D], cos and sin [B,S,1,D] or [1,S,1,D] */
static void run_rotary_halves(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *c = &op->t[1];
    int64_t d = x->dims[3], rows = x->dims[0] * x->dims[1], heads = x->dims[2];

    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; n < heads; n++)
            turn_head(op, (r * heads + n) * d, (c->dims[0] == 1 ? r % x->dims[1] : r) * d);
}

static ngd_acl_error_t rotary_phase1(const struct aclTensor *x, const struct aclTensor *cos,
                                     const struct aclTensor *sin, int64_t mode, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnRotaryPositionEmbeddingGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnRotaryPositionEmbedding", run_rotary_halves);
    ngd_aclsim_operand(op, x);
    ngd_aclsim_operand(op, cos);
    ngd_aclsim_operand(op, sin);
    ngd_aclsim_operand(op, out);
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, mode == 0 || mode == 1, "mode is 0 (half) or 1 (interleave) here");
    op->i[0] = mode;
    for (int i = 0; i < 4 && !op->code; i++) {
        ngd_aclsim_check(op, op->t[i].rank == 4, "takes four dimensions");
        ngd_aclsim_check(op, op->t[i].dtype == op->t[0].dtype, "operands are of several dtypes");
    }
    ngd_aclsim_check(op,
                     op->code || (op->t[1].dims[2] == 1 && op->t[1].dims[3] == op->t[0].dims[3] &&
                                  (op->t[1].dims[0] == 1 || op->t[1].dims[0] == op->t[0].dims[0]) &&
                                  op->t[1].dims[1] == op->t[0].dims[1] && op->t[0].dims[3] % 2 == 0),
                     "cos and sin are [B,S,1,D], D even");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

SIM_OPTIONAL(aclnnRotaryPositionEmbeddingGetWorkspaceSize);
static ngd_acl_error_t aclnnRotaryPositionEmbeddingGetWorkspaceSize_impl(const struct aclTensor *x,
                                                                         const struct aclTensor *cos,
                                                                         const struct aclTensor *sin, int64_t mode,
                                                                         struct aclTensor *out, NGD_ACL_PHASE1)
{
    return rotary_phase1(x, cos, sin, mode, out, workspace_p, executor_p);
}

/* ---- the cache ----------------------------------------------------------------------------------- */

/* key t[0], key cache t[1], slots t[2], value t[3], value cache t[4] */
static void run_scatter_kv(struct sim_op *op)
{
    for (int which = 0; which < 2; which++) {
        const struct sim_view *x = &op->t[which ? 3 : 0], *cache = &op->t[which ? 4 : 1];
        int64_t row = x->dims[1] * x->dims[2], slots = cache->dims[0] * cache->dims[1];
        size_t size = sim_size(x->dtype);

        for (int64_t t = 0; t < x->dims[0]; t++) {
            int64_t slot = sim_load_int(sim_at(&op->t[2], t), op->t[2].dtype);

            /* Documents want slots of 0 and more; the public kernel skips others, too: yuanfang-chen/ops-transformer
             * 4a0a8eb4, ScatterPaKvCacheNormal::Process. */
            if (slot < 0)
                continue;
            if (slot >= slots) {
                ngd_aclsim_raise();
                return;
            }
            memcpy(cache->p + slot * row * (int64_t)size, x->p + t * row * (int64_t)size, (size_t)row * size);
        }
    }
}

/* A list of two values, or none. */
static bool is_pair_of(const struct aclIntArray *list, int64_t value)
{
    return !list || (list->n == 2 && list->v[0] == value && list->v[1] == value);
}

SIM_OPTIONAL(aclnnScatterPaKvCacheGetWorkspaceSize);
static ngd_acl_error_t aclnnScatterPaKvCacheGetWorkspaceSize_impl(
    const struct aclTensor *key, struct aclTensor *key_cache, const struct aclTensor *slots,
    const struct aclTensor *value, struct aclTensor *value_cache, const struct aclTensor *compress_lens,
    const struct aclTensor *compress_offset, const struct aclTensor *seq_lens, char *cache_mode, char *scatter_mode,
    const struct aclIntArray *strides, const struct aclIntArray *offsets, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnScatterPaKvCacheGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnScatterPaKvCache", run_scatter_kv);
    ngd_aclsim_operand(op, key);
    ngd_aclsim_operand(op, key_cache);
    ngd_aclsim_operand(op, slots);
    ngd_aclsim_operand(op, value);
    ngd_aclsim_operand(op, value_cache);
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, !compress_lens && !compress_offset && !seq_lens, "no compression here");
    ngd_aclsim_check(op, is_pair_of(strides, 1) && is_pair_of(offsets, 0), "strides are 1 and 1, offsets 0 and 0 here");
    ngd_aclsim_check(op,
                     cache_mode && strcmp(cache_mode, "Norm") == 0 && scatter_mode && strcmp(scatter_mode, "None") == 0,
                     "cache mode Norm, scatter mode None");
    for (int i = 0; i < 5 && !op->code; i++) {
        ngd_aclsim_check(op, sim_contiguous(&op->t[i]), "operands are contiguous");
        ngd_aclsim_check(op, i == 2 || op->t[i].dtype == op->t[0].dtype,
                         "keys, values and caches are of several dtypes");
        ngd_aclsim_check(op, op->t[i].rank == (i == 2 ? 1 : i % 3 ? 4 : 3), "ranks");
    }
    ngd_aclsim_check(op,
                     op->code || (op->t[2].dtype == NGD_ACL_INT32 && op->t[2].dims[0] == op->t[0].dims[0] &&
                                  op->t[0].dims[1] == op->t[1].dims[2] && op->t[0].dims[2] == op->t[1].dims[3]),
                     "slots are int32, one for each row; rows fit the cache");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
