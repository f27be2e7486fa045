/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over a paged cache. What the operator's tiling refuses on a chip is in attention_rules.def, which names the
 * public source of each check; the checks of this file are those of the operator's interface.
 */
#include "devices/ascend/attention.h"
#include "devices/ascend/sim/sim_op.h"
#include <math.h>
#include <stdlib.h>

enum { QUERY, KEY, VALUE, MASK, TABLE, OUT, QUERY_ROPE, KEY_ROPE }; /* operands */
enum { HEADS, KV_HEADS, BLOCK, SPARSE_MODE, TND };                  /* numbers */
enum { QUERIES, CONTEXTS };                                         /* lists */

#define MASK_SIDE 2048

struct attention {
    const struct sim_view *q, *k, *v, *table, *y, *q_rope, *k_rope;
    int64_t heads, kv_heads, d, block;
    int64_t rope; /* numbers of the second parts; 0: there are none */
    double scale;
    bool causal;
};

/* One query row and head over its first `keys` keys. False: a block outside the cache. */
static bool attend_keys(const struct attention *a, int64_t row, int64_t head, int64_t seq, int64_t keys, float *score)
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
        for (int64_t i = 0; i < a->rope; i++)
            s += sim_load(sim_at(a->q_rope, (row * a->heads + head) * a->rope + i), a->q->dtype) *
                 sim_load(sim_at(a->k_rope, ((b * a->block + j % a->block) * a->kv_heads + kv) * a->rope + i),
                          a->k->dtype);
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

/* Rows [begin, end) of the query, which are sequence seq's. */
static bool attend_rows(const struct attention *a, int64_t begin, int64_t end, int64_t seq, int64_t keys, float *score)
{
    for (int64_t row = begin; row < end; row++)
        for (int64_t h = 0; h < a->heads; h++)
            if (!attend_keys(a, row, h, seq, a->causal ? keys - (end - 1 - row) : keys, score))
                return false;
    return true;
}

/* The documents do not say what padding rows of BSH get: here it is NaN, so that whoever reads them is seen. */
static void spoil_rows(const struct attention *a, int64_t begin, int64_t end)
{
    for (int64_t i = begin * a->heads * a->d; i < end * a->heads * a->d; i++)
        sim_store(sim_at(a->y, i), a->y->dtype, (double)NAN);
}

static bool attend_all(const struct sim_op *op, const struct attention *a, float *score)
{
    const int64_t batches = op->i[TND] ? (int64_t)op->n_list[QUERIES] : op->t[QUERY].dims[0];
    const int64_t rows = op->t[QUERY].dims[1]; /* of each sequence in BSH */
    int64_t begin = 0;

    for (int64_t s = 0; s < batches; s++) {
        const uint64_t last = op->n_list[QUERIES] ? op->n_list[QUERIES] - 1 : 0;
        const uint64_t q = (uint64_t)s < last ? (uint64_t)s : last;
        const int64_t keys = op->list[CONTEXTS][op->n_list[CONTEXTS] > 1 ? s : 0];
        int64_t end;

        if (op->i[TND]) {
            end = op->list[QUERIES][s];
        } else {
            begin = s * rows;
            end = begin + (op->n_list[QUERIES] && rows > 1 ? op->list[QUERIES][q] : rows);
            spoil_rows(a, end, begin + rows);
        }
        if (!attend_rows(a, begin, end, s, keys, score))
            return false;
        begin = end;
    }
    return true;
}

/* Numbers of the second part of a query of BSH; 0: there are none. */
static int64_t rope_of(const struct sim_op *op)
{
    return op->t[QUERY_ROPE].present ? op->t[QUERY_ROPE].dims[2] / op->i[HEADS] : 0;
}

static void run_paged_attention(struct sim_op *op)
{
    const struct attention a = {.q = &op->t[QUERY],
                                .k = &op->t[KEY],
                                .v = &op->t[VALUE],
                                .table = &op->t[TABLE],
                                .y = &op->t[OUT],
                                .q_rope = &op->t[QUERY_ROPE],
                                .k_rope = &op->t[KEY_ROPE],
                                .rope = rope_of(op),
                                .heads = op->i[HEADS],
                                .kv_heads = op->i[KV_HEADS],
                                .d = op->t[KEY].dims[2] / op->i[KV_HEADS],
                                .block = op->i[BLOCK],
                                .scale = op->f[0],
                                .causal = op->i[SPARSE_MODE] == 3};
    int64_t longest = ngd_attention_most(op->list[CONTEXTS], (int64_t)op->n_list[CONTEXTS]);
    float *score = malloc((size_t)(longest > 0 ? longest : 1) * sizeof(*score));

    if (!score)
        abort();
    if (!attend_all(op, &a, score))
        ngd_aclsim_raise();
    free(score);
}

/* What the tiling of the chip refuses. */
static void check_rules(struct sim_op *op)
{
    const struct sim_view *q = &op->t[QUERY], *k = &op->t[KEY], *table = &op->t[TABLE];
    const bool tnd = op->i[TND] != 0;
    const struct ngd_attention_case a = {
        .tnd = tnd,
        .dtype = q->dtype,
        .rows = tnd ? q->dims[0] : q->dims[1],
        .batches = tnd ? (int64_t)op->n_list[QUERIES] : q->dims[0],
        .heads = op->i[HEADS],
        .kv_heads = op->i[KV_HEADS],
        .d = tnd ? q->dims[2] : q->dims[2] / op->i[HEADS],
        .rope = rope_of(op),
        .rope_block = op->t[KEY_ROPE].present ? op->t[KEY_ROPE].dims[1] : 0,
        .rope_hidden = op->t[KEY_ROPE].present ? op->t[KEY_ROPE].dims[2] : 0,
        .block = op->i[BLOCK],
        .blocks = k->dims[0],
        .cache_block = k->dims[1],
        .cache_hidden = k->dims[2],
        .table_rows = table->dims[0],
        .table_width = table->dims[1],
        .sparse_mode = op->i[SPARSE_MODE],
        .mask_side = op->t[MASK].present ? op->t[MASK].dims[0] : 0,
        .queries = op->list[QUERIES],
        .contexts = op->list[CONTEXTS],
        .n_queries = (int64_t)op->n_list[QUERIES],
        .n_contexts = (int64_t)op->n_list[CONTEXTS],
    };
    const struct ngd_attention_platform p = {.chip = ngd_aclsim_chip(), .cann = ngd_aclsim_cann()};
    const struct ngd_attention_rule *rule = ngd_attention_refusal(&a, &p);

    if (rule)
        op->code = ngd_aclsim_fail(NGD_ACL_NN_INNER_TILING, "the same", "%s: tiling failed: %s (rule %s, %s)",
                                   op->kernel.name, rule->text, rule->name, rule->source);
}

/* Here second parts are computed of BSH with one row for each sequence. */
static void check_ropes(struct sim_op *op)
{
    const struct sim_view *q = &op->t[QUERY_ROPE], *k = &op->t[KEY_ROPE];

    ngd_aclsim_check(op, q->present == k->present, "query_rope and key_rope come together");
    if (!q->present || op->code)
        return;
    ngd_aclsim_check(op,
                     !op->i[TND] && op->t[QUERY].dims[1] == 1 && q->rank == 3 && q->dims[0] == op->t[QUERY].dims[0] &&
                         q->dims[1] == 1 && q->dims[2] % op->i[HEADS] == 0 && k->rank == 3 &&
                         k->dims[0] == op->t[KEY].dims[0] && q->dtype == op->t[QUERY].dtype &&
                         k->dtype == op->t[KEY].dtype,
                     "query_rope[B,1,H] and key_rope[blocks,size,H], of the dtypes of query and key");
}

static void check_operands(struct sim_op *op)
{
    const struct sim_view *mask = &op->t[MASK];

    for (uint32_t i = 0; i < op->n; i++)
        ngd_aclsim_check(op, !op->t[i].present || sim_contiguous(&op->t[i]), "operands are contiguous");
    for (int i = 0; i <= OUT; i++)
        ngd_aclsim_check(op, i == MASK || i == TABLE || op->t[i].dtype == op->t[QUERY].dtype,
                         "query, caches and result are of several dtypes");
    ngd_aclsim_check(op,
                     op->t[QUERY].rank == 3 && op->t[KEY].rank == 3 && sim_same_shape(&op->t[KEY], &op->t[VALUE]) &&
                         op->t[TABLE].rank == 2 && op->t[TABLE].dtype == NGD_ACL_INT32 &&
                         sim_same_shape(&op->t[QUERY], &op->t[OUT]),
                     "query[T,N,D] or [B,S,H], caches[blocks,size,H], int32 table[B,M], result as the query");
    ngd_aclsim_check(
        op, !mask->present || (mask->rank == 2 && mask->dims[0] == mask->dims[1] && sim_size(mask->dtype) == 1),
        "the mask is square, of bytes");
    ngd_aclsim_check(op, op->i[HEADS] > 0 && op->i[KV_HEADS] > 0 && op->i[BLOCK] > 0, "heads or block size");
    ngd_aclsim_check(op, !op->i[TND] || op->t[QUERY].dims[1] == op->i[HEADS], "the query's heads");
    ngd_aclsim_check(op, op->i[TND] || op->t[QUERY].dims[2] % op->i[HEADS] == 0, "the query's heads");
    ngd_aclsim_check(op, !op->i[TND] || op->n_list[QUERIES], "TND needs the lengths of the queries");
    check_ropes(op);
}

/* A list that may be absent. */
static void take_list(struct sim_op *op, int which, const struct aclIntArray *array)
{
    if (array)
        ngd_aclsim_list(op, which, array);
}

static ngd_acl_error_t attention_phase1(
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
    const struct aclTensor *out, const struct aclTensor *softmax_lse, bool most, NGD_ACL_PHASE1)
{
    const void *absent[] = {pse_shift,     deq_scale1,      quant_scale1,     deq_scale2,    quant_scale2,
                            quant_offset2, antiquant_scale, antiquant_offset, query_padding, kv_padding,
                            key_scale,     key_offset,      value_scale,      value_offset,  key_prefix,
                            value_prefix,  prefix_len,      key_rope_scale};
    struct sim_op *op;

    (void)pre_tokens;
    (void)next_tokens;
    (void)softmax_lse;
    if (!key || !value || key->n != 1 || value->n != 1)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "the same", "a paged cache is one tensor");
    op = ngd_aclsim_op("aclnnFusedInferAttentionScoreV3", run_paged_attention);
    ngd_aclsim_operand(op, query);
    ngd_aclsim_operand(op, key->t[0]);
    ngd_aclsim_operand(op, value->t[0]);
    ngd_aclsim_optional(op, mask);
    ngd_aclsim_operand(op, block_table);
    ngd_aclsim_operand(op, out);
    ngd_aclsim_optional(op, query_rope);
    ngd_aclsim_optional(op, key_rope);
    take_list(op, QUERIES, lengths);
    ngd_aclsim_list(op, CONTEXTS, lengths_kv);
    op->i[HEADS] = heads;
    op->i[KV_HEADS] = kv_heads;
    op->i[BLOCK] = block_size;
    op->i[SPARSE_MODE] = sparse_mode;
    op->i[TND] = layout && strcmp(layout, "TND") == 0;
    op->f[0] = scale;
    op->workspace = most ? 16384 : 8192;
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        ngd_aclsim_check(op, !absent[i], "an optional operand is not known to the simulator");
    ngd_aclsim_check(op,
                     layout && (op->i[TND] || strcmp(layout, "BSH") == 0) && !softmax_lse_flag && !antiquant_mode &&
                         !key_antiquant_mode && !value_antiquant_mode && (inner_precise == 0 || inner_precise == 1),
                     "layout TND or BSH, no quantisation, precision 0 or 1");
    if (!op->code)
        check_operands(op);
    if (!op->code)
        check_rules(op);
    ngd_aclsim_check(op, sparse_mode == 0 || sparse_mode == 3, "the simulator computes sparse modes 0 and 3");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
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
    SIM_CALL("aclnnFusedInferAttentionScoreV3GetWorkspaceSize");
    return attention_phase1(
        query, key, value, pse_shift, mask, lengths, lengths_kv, deq_scale1, quant_scale1, deq_scale2, quant_scale2,
        quant_offset2, antiquant_scale, antiquant_offset, block_table, query_padding, kv_padding, key_scale, key_offset,
        value_scale, value_offset, key_prefix, value_prefix, prefix_len, query_rope, key_rope, key_rope_scale, heads,
        scale, pre_tokens, next_tokens, layout, kv_heads, sparse_mode, inner_precise, block_size, antiquant_mode,
        softmax_lse_flag, key_antiquant_mode, value_antiquant_mode, out, softmax_lse, false, workspace_p, executor_p);
}

SIM_OPTIONAL(aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize);
static ngd_acl_error_t aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize_impl(
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
    SIM_CALL("aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize");
    return attention_phase1(
        query, key, value, pse_shift, mask, lengths, lengths_kv, deq_scale1, quant_scale1, deq_scale2, quant_scale2,
        quant_offset2, antiquant_scale, antiquant_offset, block_table, query_padding, kv_padding, key_scale, key_offset,
        value_scale, value_offset, key_prefix, value_prefix, prefix_len, query_rope, key_rope, key_rope_scale, heads,
        scale, pre_tokens, next_tokens, layout, kv_heads, sparse_mode, inner_precise, block_size, antiquant_mode,
        softmax_lse_flag, key_antiquant_mode, value_antiquant_mode, out, softmax_lse, true, workspace_p, executor_p);
}
