/* SPDX-License-Identifier: Apache-2.0 */
/* Fused operators of decoders: rotation, gate, KV cache, attention over a paged cache. */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>
#include <stdlib.h>

/* ---- gate and rotation --------------------------------------------------------------------------- */

static void run_swiglu(struct sim_op *op)
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
    op = ngd_aclsim_op("aclnnSwiGlu", run_swiglu);
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

/* x[B,S,N,D], cos and sin [B,S,1,D] */
static void run_rotary(struct sim_op *op)
{
    const struct sim_view *x = &op->t[0], *c = &op->t[1], *s = &op->t[2], *y = &op->t[3];
    int64_t d = x->dims[3], rows = x->dims[0] * x->dims[1], heads = x->dims[2], h = d / 2;

    for (int64_t r = 0; r < rows; r++) {
        for (int64_t n = 0; n < heads; n++) {
            for (int64_t i = 0; i < d; i++) {
                int64_t at = (r * heads + n) * d, pair = i < h ? i + h : i - h;
                double v = sim_load(sim_at(x, at + i), x->dtype), w = sim_load(sim_at(x, at + pair), x->dtype);

                sim_store(sim_at(y, at + i), y->dtype,
                          v * sim_load(sim_at(c, r * d + i), c->dtype) +
                              (i < h ? -w : w) * sim_load(sim_at(s, r * d + i), s->dtype));
            }
        }
    }
}

static ngd_acl_error_t rotary_phase1(const struct aclTensor *x, const struct aclTensor *cos,
                                     const struct aclTensor *sin, int64_t mode, struct aclTensor *out, NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnRotaryPositionEmbeddingGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnRotaryPositionEmbedding", run_rotary);
    ngd_aclsim_operand(op, x);
    ngd_aclsim_operand(op, cos);
    ngd_aclsim_operand(op, sin);
    ngd_aclsim_operand(op, out);
    ngd_aclsim_check(op, mode == 0, "mode is 0 (half) here");
    for (int i = 0; i < 4 && !op->code; i++) {
        ngd_aclsim_check(op, op->t[i].rank == 4, "takes four dimensions");
        ngd_aclsim_check(op, op->t[i].dtype == op->t[0].dtype, "operands are of several dtypes");
    }
    ngd_aclsim_check(op,
                     op->code || (op->t[1].dims[2] == 1 && op->t[1].dims[3] == op->t[0].dims[3] &&
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
    ngd_aclsim_check(op, !compress_lens && !compress_offset && !seq_lens && !strides && !offsets,
                     "no compression here");
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

/* ---- attention ----------------------------------------------------------------------------------- */

struct attention {
    const struct sim_view *q, *k, *v, *table, *y;
    int64_t heads, kv_heads, d, block;
    double scale;
};

/* One query row and head over its first `keys` keys. False: a block outside the cache. */
static bool attend(const struct attention *a, int64_t row, int64_t head, int64_t seq, int64_t keys, float *score)
{
    int64_t kv = head / (a->heads / a->kv_heads), size = (int64_t)sim_size(a->k->dtype);
    const char *q = sim_at(a->q, (row * a->heads + head) * a->d);
    double max = -INFINITY, sum = 0;

    for (int64_t j = 0; j < keys; j++) {
        int64_t b = sim_load_int(sim_at(a->table, seq * a->table->dims[1] + j / a->block), a->table->dtype);
        const char *k = a->k->p + (((b * a->block + j % a->block) * a->kv_heads + kv) * a->d) * size;
        double s = 0;

        if (b < 0 || b >= a->k->dims[0])
            return false;
        for (int64_t i = 0; i < a->d; i++)
            s += sim_load(q + i * size, a->q->dtype) * sim_load(k + i * size, a->k->dtype);
        score[j] = (float)(s * a->scale);
        max = fmax(max, (double)score[j]);
    }
    for (int64_t j = 0; j < keys; j++) {
        score[j] = (float)exp((double)score[j] - max);
        sum += (double)score[j];
    }
    for (int64_t i = 0; i < a->d; i++) {
        double o = 0;

        for (int64_t j = 0; j < keys; j++) {
            int64_t b = sim_load_int(sim_at(a->table, seq * a->table->dims[1] + j / a->block), a->table->dtype);

            o +=
                (double)score[j] *
                sim_load(a->v->p + (((b * a->block + j % a->block) * a->kv_heads + kv) * a->d + i) * size, a->v->dtype);
        }
        sim_store(sim_at(a->y, (row * a->heads + head) * a->d + i), a->y->dtype, keys ? o / sum : 0);
    }
    return true;
}

/* query t[0], key cache t[1], value cache t[2], mask t[3], block table t[4], out t[5]; lists: query rows, keys */
static void run_attention(struct sim_op *op)
{
    struct attention a = {.q = &op->t[0],
                          .k = &op->t[1],
                          .v = &op->t[2],
                          .table = &op->t[4],
                          .y = &op->t[5],
                          .heads = op->i[0],
                          .kv_heads = op->i[1],
                          .d = op->t[0].dims[2],
                          .block = op->i[2],
                          .scale = op->f[0]};
    int64_t longest = 1, begin = 0;
    float *score;

    for (uint64_t s = 0; s < op->n_list[1]; s++)
        longest = op->list[1][s] > longest ? op->list[1][s] : longest;
    score = malloc((size_t)longest * sizeof(*score));
    if (!score)
        abort();
    for (uint64_t s = 0; s < op->n_list[0]; s++) {
        int64_t end = op->list[0][s], keys = op->list[1][s];

        for (int64_t row = begin; row < end; row++)
            for (int64_t h = 0; h < a.heads; h++)
                if (!attend(&a, row, h, (int64_t)s, keys - (end - 1 - row), score)) {
                    ngd_aclsim_raise();
                    free(score);
                    return;
                }
        begin = end;
    }
    free(score);
}

static void check_lengths(struct sim_op *op)
{
    int64_t last = 0;

    ngd_aclsim_check(op, op->n_list[0] == op->n_list[1] && (int64_t)op->n_list[0] <= op->t[4].dims[0],
                     "the lists of lengths do not have one entry for each sequence");
    for (uint64_t i = 0; i < op->n_list[0] && !op->code; i++) {
        ngd_aclsim_check(op, op->list[0][i] >= last && op->list[0][i] <= op->t[0].dims[0],
                         "query lengths are cumulative");
        ngd_aclsim_check(
            op, op->code || (op->list[1][i] >= op->list[0][i] - last && op->list[1][i] <= op->t[4].dims[1] * op->i[2]),
            "a context does not fit its blocks");
        last = op->list[0][i];
    }
}

ngd_acl_error_t aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
    const struct aclTensor *query, const struct aclTensorList *key, const struct aclTensorList *value,
    const struct aclTensor *pse_shift, const struct aclTensor *mask, const struct aclIntArray *lengths,
    const struct aclIntArray *lengths_kv, const struct aclTensor *deq_scale1, const struct aclTensor *quant_scale1,
    const struct aclTensor *deq_scale2, const struct aclTensor *quant_scale2, const struct aclTensor *quant_offset2,
    const struct aclTensor *antiquant_scale, const struct aclTensor *antiquant_offset,
    const struct aclTensor *block_table, const struct aclTensor *query_padding, const struct aclTensor *kv_padding,
    const struct aclTensor *key_scale, const struct aclTensor *key_offset, const struct aclTensor *value_scale,
    const struct aclTensor *value_offset, const struct aclTensor *key_prefix, const struct aclTensor *value_prefix,
    const struct aclIntArray *prefix_len, const struct aclTensor *query_rope, const struct aclTensor *key_rope,
    const struct aclTensor *key_rope_scale, int64_t heads, double scale, int64_t pre_tokens, int64_t next_tokens,
    char *layout, int64_t kv_heads, int64_t sparse_mode, int64_t inner_precise, int64_t block_size,
    int64_t antiquant_mode, bool softmax_lse_flag, int64_t key_antiquant_mode, int64_t value_antiquant_mode,
    const struct aclTensor *out, const struct aclTensor *softmax_lse, NGD_ACL_PHASE1)
{
    const void *absent[] = {pse_shift,     deq_scale1,      quant_scale1,     deq_scale2,    quant_scale2,
                            quant_offset2, antiquant_scale, antiquant_offset, query_padding, kv_padding,
                            key_scale,     key_offset,      value_scale,      value_offset,  key_prefix,
                            value_prefix,  prefix_len,      query_rope,       key_rope,      key_rope_scale};
    struct sim_op *op;

    SIM_CALL("aclnnFusedInferAttentionScoreV3GetWorkspaceSize");
    (void)pre_tokens;
    (void)next_tokens;
    (void)inner_precise;
    (void)softmax_lse;
    if (!key || !value || key->n != 1 || value->n != 1)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "the same", "a paged cache is one tensor");
    op = ngd_aclsim_op("aclnnFusedInferAttentionScoreV3", run_attention);
    ngd_aclsim_operand(op, query);
    ngd_aclsim_operand(op, key->t[0]);
    ngd_aclsim_operand(op, value->t[0]);
    ngd_aclsim_operand(op, mask);
    ngd_aclsim_operand(op, block_table);
    ngd_aclsim_operand(op, out);
    ngd_aclsim_list(op, 0, lengths);
    ngd_aclsim_list(op, 1, lengths_kv);
    op->i[0] = heads;
    op->i[1] = kv_heads;
    op->i[2] = block_size;
    op->f[0] = scale;
    op->workspace = 8192;
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        ngd_aclsim_check(op, !absent[i], "an optional operand is not known to the simulator");
    ngd_aclsim_check(op,
                     layout && strcmp(layout, "TND") == 0 && sparse_mode == 3 && !softmax_lse_flag && !antiquant_mode &&
                         !key_antiquant_mode && !value_antiquant_mode,
                     "layout TND, sparse mode 3, no quantisation");
    if (!op->code) {
        for (uint32_t i = 0; i < op->n; i++)
            ngd_aclsim_check(op, sim_contiguous(&op->t[i]), "operands are contiguous");
        ngd_aclsim_check(op, sim_is_half(op->t[0].dtype), "takes f16 and bf16");
        ngd_aclsim_check(op,
                         op->t[0].dtype == op->t[1].dtype && op->t[0].dtype == op->t[2].dtype &&
                             op->t[0].dtype == op->t[5].dtype,
                         "query, caches and result are of several dtypes");
        ngd_aclsim_check(
            op, op->t[0].rank == 3 && op->t[1].rank == 3 && op->t[4].rank == 2 && op->t[4].dtype == NGD_ACL_INT32,
            "query[T,N,D], cache[blocks,size,H], int32 table[S,M]");
        ngd_aclsim_check(op,
                         op->t[3].rank == 2 && op->t[3].dims[0] == 2048 && op->t[3].dims[1] == 2048 &&
                             sim_size(op->t[3].dtype) == 1,
                         "sparse mode 3 takes a mask of 2048 x 2048 bytes");
        ngd_aclsim_check(op,
                         kv_heads > 0 && heads > 0 && heads % kv_heads == 0 && op->t[0].dims[1] == heads &&
                             op->t[1].dims[1] == block_size && op->t[1].dims[2] == kv_heads * op->t[0].dims[2] &&
                             block_size > 0 && block_size % 16 == 0,
                         "heads, or the block size (a multiple of 16)");
    }
    if (!op->code)
        check_lengths(op);
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
