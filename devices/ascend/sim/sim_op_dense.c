/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention whose keys and values are tensors of their own, without a page table: softmax(scale * Q x K' + pse) x V for
 * each batch and head. hicann/ops-transformer c29bc10, attention/fused_infer_attention_score/docs/
 * aclnnFusedInferAttentionScoreV2.md has the formula and the layouts; of these the simulator has BSND.
 */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>
#include <stdlib.h>

enum { DENSE_QUERY, DENSE_KEY, DENSE_VALUE, DENSE_PSE, DENSE_OUT };

/* Element of a [B,S,N,D] or, of pse, [B,N,S,S]; a batch of 1 is repeated. */
static char *element_of(const struct sim_view *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t at = (v->dims[0] == 1 ? 0 : a) * v->strides[0] + b * v->strides[1] + c * v->strides[2] + d * v->strides[3];

    return v->p + at * (int64_t)sim_size(v->dtype);
}

/* One row of the query and one head; kv: its head of keys and values. score has room for all keys. */
static void attend_dense_row(struct sim_op *op, int64_t batch, int64_t row, int64_t head, int64_t kv, double *score)
{
    const struct sim_view *q = &op->t[DENSE_QUERY], *k = &op->t[DENSE_KEY], *v = &op->t[DENSE_VALUE],
                          *pse = &op->t[DENSE_PSE], *y = &op->t[DENSE_OUT];
    double max = -INFINITY, sum = 0;

    for (int64_t j = 0; j < k->dims[1]; j++) {
        double s = 0;

        for (int64_t i = 0; i < q->dims[3]; i++)
            s += sim_load(element_of(q, batch, row, head, i), q->dtype) *
                 sim_load(element_of(k, batch, j, kv, i), k->dtype);
        s *= op->f[0];
        score[j] = pse->present ? s + sim_load(element_of(pse, batch, head, row, j), pse->dtype) : s;
        max = fmax(max, score[j]);
    }
    for (int64_t j = 0; j < k->dims[1]; j++) {
        score[j] = isinf(max) ? 0 : exp(score[j] - max);
        sum += score[j];
    }
    for (int64_t i = 0; i < v->dims[3]; i++) {
        double o = 0;

        for (int64_t j = 0; j < k->dims[1]; j++)
            o += score[j] * sim_load(element_of(v, batch, j, kv, i), v->dtype);
        sim_store(element_of(y, batch, row, head, i), y->dtype, sum > 0 ? o / sum : 0);
    }
}

static void run_dense_attention(struct sim_op *op)
{
    const struct sim_view *q = &op->t[DENSE_QUERY], *k = &op->t[DENSE_KEY];
    double *score = malloc((size_t)(k->dims[1] + 1) * sizeof(*score));

    if (!score)
        abort();
    for (int64_t b = 0; b < q->dims[0]; b++)
        for (int64_t s = 0; s < q->dims[1]; s++)
            for (int64_t h = 0; h < q->dims[2]; h++)
                attend_dense_row(op, b, s, h, h / (q->dims[2] / k->dims[2]), score);
    free(score);
}

static void check_dense(struct sim_op *op, int64_t heads, int64_t kv_heads)
{
    const struct sim_view *q = &op->t[DENSE_QUERY], *k = &op->t[DENSE_KEY], *pse = &op->t[DENSE_PSE];

    ngd_aclsim_check(op, q->rank == 4 && k->rank == 4 && sim_same_shape(q, &op->t[DENSE_OUT]), "BSND, result as query");
    ngd_aclsim_check(op, sim_same_shape(k, &op->t[DENSE_VALUE]), "keys and values differ");
    for (int i = 0; i < 3; i++)
        ngd_aclsim_check(op, op->t[i].dtype == q->dtype && sim_is_half(q->dtype),
                         "query, keys and values are of one dtype, f16 or bf16");
    ngd_aclsim_check(op, heads == q->dims[2] && kv_heads == k->dims[2] && kv_heads > 0 && heads % kv_heads == 0,
                     "heads, or heads of keys");
    ngd_aclsim_check(op, q->dims[0] == k->dims[0] && q->dims[3] == k->dims[3], "batches, or the head's dimension");
    ngd_aclsim_check(op, q->dims[3] % 16 == 0 && q->dims[3] <= 512, "the head's dimension is a multiple of 16");
    ngd_aclsim_check(op,
                     !pse->present || (pse->rank == 4 && (pse->dims[0] == 1 || pse->dims[0] == q->dims[0]) &&
                                       pse->dims[1] == heads && pse->dims[2] >= q->dims[1] &&
                                       pse->dims[3] >= k->dims[1] && sim_is_half(pse->dtype)),
                     "pse is [B or 1, heads, rows, keys], f16 or bf16");
}

ngd_acl_error_t aclnnFusedInferAttentionScoreV2GetWorkspaceSize(
    const struct aclTensor *query, const struct aclTensorList *key, const struct aclTensorList *value,
    const struct aclTensor *pse_shift, const struct aclTensor *mask, const struct aclIntArray *lengths,
    const struct aclIntArray *lengths_kv, const struct aclTensor *deq_scale1, const struct aclTensor *quant_scale1,
    const struct aclTensor *deq_scale2, const struct aclTensor *quant_scale2, const struct aclTensor *quant_offset2,
    const struct aclTensor *antiquant_scale, const struct aclTensor *antiquant_offset,
    const struct aclTensor *block_table, const struct aclTensor *query_padding, const struct aclTensor *kv_padding,
    const struct aclTensor *key_scale, const struct aclTensor *key_offset, const struct aclTensor *value_scale,
    const struct aclTensor *value_offset, const struct aclTensor *key_prefix, const struct aclTensor *value_prefix,
    const struct aclIntArray *prefix_len, int64_t heads, double scale, int64_t pre_tokens, int64_t next_tokens,
    char *layout, int64_t kv_heads, int64_t sparse_mode, int64_t inner_precise, int64_t block_size,
    int64_t antiquant_mode, bool softmax_lse_flag, int64_t key_antiquant_mode, int64_t value_antiquant_mode,
    const struct aclTensor *out, const struct aclTensor *softmax_lse, NGD_ACL_PHASE1)
{
    const void *absent[] = {mask,          lengths,       lengths_kv,       deq_scale1,   quant_scale1, deq_scale2,
                            quant_scale2,  quant_offset2, antiquant_scale,  block_table,  key_scale,    key_offset,
                            query_padding, kv_padding,    antiquant_offset, value_offset, key_prefix,   value_scale,
                            value_prefix,  prefix_len,    softmax_lse};
    struct sim_op *op;

    (void)pre_tokens; /* of other sparse modes */
    (void)next_tokens;
    SIM_CALL("aclnnFusedInferAttentionScoreV2GetWorkspaceSize");
    if (!key || !value || key->n != 1 || value->n != 1)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "takes one for each batch",
                               "keys or values of several tensors");
    op = ngd_aclsim_op("aclnnFusedInferAttentionScoreV2", run_dense_attention);
    ngd_aclsim_operand(op, query);
    ngd_aclsim_operand(op, key->t[0]);
    ngd_aclsim_operand(op, value->t[0]);
    ngd_aclsim_optional(op, pse_shift);
    ngd_aclsim_operand(op, out);
    op->f[0] = scale;
    op->workspace = 8192;
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        ngd_aclsim_check(op, !absent[i], "an optional operand is not known to the simulator");
    ngd_aclsim_check(op,
                     layout && strcmp(layout, "BSND") == 0 && sparse_mode == 0 && !block_size && !antiquant_mode &&
                         !softmax_lse_flag && !key_antiquant_mode && !value_antiquant_mode && inner_precise >= 0 &&
                         inner_precise <= 3,
                     "layout BSND, sparse mode 0, no quantisation, precision 0 to 3");
    if (!op->code)
        check_dense(op, heads, kv_heads);
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
