/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of mixtures of experts. What they take is in operator_rules.def; what is checked beside it are bounds of
 * the simulator. Sums are in f32.
 *
 * Rows of an expert are in the order of their tokens. hicann/ops-transformer c29bc106 sorts by the expert's number
 * (moe/moe_init_routing_v2/op_kernel), and does not say in which order equal numbers end.
 */
#include "devices/ascend/sim/sim_op.h"
#include <math.h>
#include <stdlib.h>

#define WORKSPACE 4096 /* what a real tiling asks for varies */

static void *new_room(int64_t n, size_t size)
{
    void *p = malloc((size_t)(n > 0 ? n : 1) * size);

    if (!p)
        abort();
    return p;
}

/* ---- aclnnMoeGatingTopKSoftmax ------------------------------------------------------------------- */

enum { GATED, FINISHED, GATES, GATE_EXPERTS, GATE_ROWS };

/* Larger first, and of equal ones the first. NaN is below all: a real sort does not say where it ends. */
static bool is_before(const float *share, int64_t a, int64_t b)
{
    const float x = isnan(share[a]) ? -INFINITY : share[a], y = isnan(share[b]) ? -INFINITY : share[b];

    return x != y ? x > y : a < b;
}

/* The softmax of n elements; its padding is -1, as in hicann/ops-transformer c29bc106, kernel e_k_fullload, VectorDup
 * (moe/moe_gating_top_k_softmax/op_kernel). */
static void make_shares(const struct sim_view *x, int64_t row, int64_t n, float *share, int64_t padded)
{
    float top = -INFINITY, sum = 0;

    for (int64_t e = 0; e < n; e++) {
        share[e] = (float)sim_load(sim_at(x, row * n + e), x->dtype);
        top = share[e] > top ? share[e] : top;
    }
    for (int64_t e = 0; e < n; e++)
        sum += share[e] = expf(share[e] - top);
    for (int64_t e = 0; e < n; e++)
        share[e] /= sum;
    for (int64_t e = n; e < padded; e++)
        share[e] = -1;
}

/* i[0]: k. */
static void run_gating(struct sim_op *op)
{
    const struct sim_view *x = &op->t[GATED], *done = &op->t[FINISHED];
    const int64_t n = x->dims[x->rank - 1], rows = sim_elements(x) / n, padded = (n + 31) / 32 * 32, k = op->i[0];
    float *share = new_room(padded, sizeof(*share));
    bool *taken = new_room(padded, sizeof(*taken));

    for (int64_t r = 0; r < rows; r++) {
        const bool finished = done->present && sim_load_int(sim_at(done, r), done->dtype);

        make_shares(x, r, n, share, padded);
        memset(taken, 0, (size_t)padded * sizeof(*taken));
        for (int64_t j = 0; j < k; j++) {
            int64_t best = -1;

            for (int64_t e = 0; e < padded; e++)
                if (!taken[e] && (best < 0 || is_before(share, e, best)))
                    best = e;
            taken[best] = true;
            sim_store(sim_at(&op->t[GATES], r * k + j), op->t[GATES].dtype, (double)share[best]);
            sim_store_int(sim_at(&op->t[GATE_EXPERTS], r * k + j), NGD_ACL_INT32, finished ? n : best);
            sim_store_int(sim_at(&op->t[GATE_ROWS], r * k + j), NGD_ACL_INT32, j * rows + r);
        }
    }
    free(share);
    free(taken);
}

ngd_acl_error_t aclnnMoeGatingTopKSoftmaxGetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *finished,
                                                          int64_t k, const struct aclTensor *y,
                                                          const struct aclTensor *experts, const struct aclTensor *rows,
                                                          NGD_ACL_PHASE1)
{
    struct sim_op *op;

    SIM_CALL("aclnnMoeGatingTopKSoftmaxGetWorkspaceSize");
    op = ngd_aclsim_op("aclnnMoeGatingTopKSoftmax", run_gating);
    ngd_aclsim_operand(op, x);
    ngd_aclsim_optional(op, finished);
    ngd_aclsim_operand(op, y);
    ngd_aclsim_operand(op, experts);
    ngd_aclsim_operand(op, rows);
    op->i[0] = k;
    op->workspace = WORKSPACE;
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, op->code || (op->t[GATES].dims[op->t[GATES].rank - 1] == k),
                     "results have k columns: else their bounds are not known");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* ---- aclnnMoeInitRoutingV2 ----------------------------------------------------------------------- */

enum { ROUTED, EXPERTS, EXPANDED, NUMBERS, TOKENS };

/* Says where each of the n numbers goes, and how many are of each expert. False: one is outside the experts. */
static bool sort_by_expert(const struct sim_view *index, int64_t n, int64_t experts, int64_t *to, int64_t *count)
{
    int64_t *at = new_room(experts, sizeof(*at)), begin = 0;
    bool ok = true;

    memset(count, 0, (size_t)experts * sizeof(*count));
    for (int64_t i = 0; i < n && ok; i++) {
        const int64_t e = sim_load_int(sim_at(index, i), index->dtype);

        ok = e >= 0 && e < experts;
        if (ok)
            count[e]++;
    }
    for (int64_t e = 0; e < experts; begin += count[e], e++)
        at[e] = begin;
    for (int64_t i = 0; i < n && ok; i++)
        to[i] = at[sim_load_int(sim_at(index, i), index->dtype)]++;
    free(at);
    return ok;
}

/* i[2] experts, i[4] 1: running sums of tokens, 2: tokens of each. */
static void run_init_routing(struct sim_op *op)
{
    const struct sim_view *x = &op->t[ROUTED], *index = &op->t[EXPERTS], *y = &op->t[EXPANDED];
    const int64_t n = sim_elements(index), h = x->dims[1], places = index->dims[1];
    int64_t *to = new_room(n, sizeof(*to)), *count = new_room(op->i[2], sizeof(*count)), sum = 0;

    if (!sort_by_expert(index, n, op->i[2], to, count)) {
        ngd_aclsim_raise();
    } else {
        for (int64_t i = 0; i < n; i++) {
            for (int64_t c = 0; c < h; c++)
                memcpy(sim_at(y, to[i] * h + c), sim_at(x, i / places * h + c), sim_size(x->dtype));
            sim_store_int(sim_at(&op->t[NUMBERS], i), NGD_ACL_INT32, to[i]);
        }
        for (int64_t e = 0; op->i[4] && e < op->i[2]; e++) {
            sum = op->i[4] == 1 ? sum + count[e] : count[e];
            sim_store_int(sim_at(&op->t[TOKENS], e), NGD_ACL_INT32, sum);
        }
    }
    free(to);
    free(count);
}

ngd_acl_error_t aclnnMoeInitRoutingV2GetWorkspaceSize(const struct aclTensor *x, const struct aclTensor *experts,
                                                      int64_t active, int64_t capacity, int64_t expert_num,
                                                      int64_t drop_pad_mode, int64_t count_flag, bool before_flag,
                                                      const struct aclTensor *expanded, const struct aclTensor *numbers,
                                                      const struct aclTensor *tokens, const struct aclTensor *before,
                                                      NGD_ACL_PHASE1)
{
    const int64_t attributes[] = {active, capacity, expert_num, drop_pad_mode, count_flag};
    struct sim_op *op;

    SIM_CALL("aclnnMoeInitRoutingV2GetWorkspaceSize");
    op = ngd_aclsim_op("aclnnMoeInitRoutingV2", run_init_routing);
    ngd_aclsim_operand(op, x);
    ngd_aclsim_operand(op, experts);
    ngd_aclsim_operand(op, expanded);
    ngd_aclsim_operand(op, numbers);
    ngd_aclsim_optional(op, tokens);
    memcpy(op->i, attributes, sizeof(attributes));
    op->workspace = WORKSPACE;
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, drop_pad_mode == 0 && !before_flag && !before, "rows that are dropped are not computed here");
    ngd_aclsim_check(op, active == 0 && expert_num > 0 && expert_num <= 65536,
                     "a part of the rows, and rows of no expert, are not computed here");
    ngd_aclsim_check(op, op->code || op->t[EXPERTS].rank == 2, "numbers of experts have two dimensions here");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* ---- aclnnGroupedMatmulV4 ------------------------------------------------------------------------ */

enum { GROUPED, WEIGHTS, GROUPS, PRODUCT, GROUPED_BIAS, ANTIQUANT_SCALE, ANTIQUANT_OFFSET };

/* Where group g begins in an operand: in a tensor of its own, or in the one of all. */
static char *of_group(const struct sim_op *op, const struct sim_view *v, int64_t g)
{
    if (!v->present)
        return NULL;
    if (v->length > 1)
        return ngd_aclsim_of_list(op, v, g);
    return v->p + sim_bytes(v->dtype, g * v->strides[0]);
}

/* Element (row, column) of a matrix, or of a vector by columns, that begins at p. Of int4, the first one of a byte is
 * its lower half. */
static double element_of(const struct sim_view *v, const char *p, int64_t row, int64_t column, bool is_matrix)
{
    const int64_t at = (is_matrix ? row * v->strides[v->rank - 2] : 0) + column * v->strides[v->rank - 1];
    int nibble;

    if (v->dtype != NGD_ACL_INT4)
        return sim_load(p + at * (int64_t)sim_size(v->dtype), v->dtype);
    nibble = (uint8_t)p[at / 2] >> (at % 2 ? 4 : 0) & 15;
    return nibble >= 8 ? nibble - 16 : nibble;
}

/* Column j of group g's weight, as numbers of the dtype of x: (weight + offset) * scale, if it is quantised. A scale
 * with a dimension more has a row for each group of K. */
static void load_expert_column(const struct sim_op *op, int64_t g, int64_t j, float *to)
{
    const struct sim_view *w = &op->t[WEIGHTS], *s = &op->t[ANTIQUANT_SCALE], *z = &op->t[ANTIQUANT_OFFSET];
    const char *weight = of_group(op, w, g), *scale = of_group(op, s, g), *offset = of_group(op, z, g);
    const int64_t k = op->t[GROUPED].dims[1];
    const bool by_rows = s->present && s->rank == w->rank;
    const int64_t group = by_rows ? k / s->dims[s->rank - 2] : k;

    for (int64_t i = 0; i < k; i++) {
        double v = element_of(w, weight, i, j, true);

        if (offset)
            v += element_of(z, offset, i / group, j, by_rows);
        if (scale)
            v = sim_round(v * element_of(s, scale, i / group, j, by_rows), op->t[GROUPED].dtype);
        to[i] = (float)v;
    }
}

/* Rows [begin, end) times the weight of group g. */
static void multiply_group(const struct sim_op *op, int64_t g, int64_t begin, int64_t end, float *column)
{
    const struct sim_view *x = &op->t[GROUPED], *y = &op->t[PRODUCT], *b = &op->t[GROUPED_BIAS];
    const char *bias = of_group(op, b, g);
    const int64_t k = x->dims[1], n = y->dims[1];

    for (int64_t j = 0; j < n && begin < end; j++) {
        load_expert_column(op, g, j, column);
        for (int64_t i = begin; i < end; i++) {
            float sum = 0;

            for (int64_t l = 0; l < k; l++)
                sum += (float)sim_load(sim_at(x, i * k + l), x->dtype) * column[l];
            if (bias)
                sum += (float)element_of(b, bias, 0, j, false);
            sim_store(sim_at(y, i * n + j), y->dtype, (double)sum);
        }
    }
}

/* i[2] 0: the list has the ends of groups, 1: their rows. Rows behind the last group are left as they are. */
static void run_grouped_matmul(struct sim_op *op)
{
    const struct sim_view *list = &op->t[GROUPS];
    const int64_t m = op->t[GROUPED].dims[0];
    float *column = new_room(op->t[GROUPED].dims[1], sizeof(*column));
    int64_t begin = 0;

    for (int64_t g = 0; g < list->dims[0]; g++) {
        const int64_t given = sim_load_int(sim_at(list, g), list->dtype), end = op->i[2] ? begin + given : given;

        if (given < 0 || end < begin || end > m) {
            ngd_aclsim_raise();
            break;
        }
        multiply_group(op, g, begin, end, column);
        begin = end;
    }
    free(column);
}

static bool is_grouped_form(int x, int weight)
{
    return (sim_is_float(x) && weight == x) || (sim_is_half(x) && (weight == NGD_ACL_INT8 || weight == NGD_ACL_INT4));
}

ngd_acl_error_t aclnnGroupedMatmulV4GetWorkspaceSize(
    const struct aclTensorList *x, const struct aclTensorList *weight, const struct aclTensorList *bias,
    const struct aclTensorList *scale, const struct aclTensorList *offset, const struct aclTensorList *antiquant_scale,
    const struct aclTensorList *antiquant_offset, const struct aclTensorList *per_token_scale,
    const struct aclTensor *groups, const struct aclTensorList *activation_input,
    const struct aclTensorList *activation_scale, const struct aclTensorList *activation_offset, int64_t split_item,
    int64_t group_type, int64_t group_list_type, int64_t activation, struct aclTensorList *out,
    struct aclTensorList *activation_feature, struct aclTensorList *dynamic_scale, NGD_ACL_PHASE1)
{
    const int64_t attributes[] = {split_item, group_type, group_list_type, activation};
    struct sim_op *op;

    SIM_CALL("aclnnGroupedMatmulV4GetWorkspaceSize");
    op = ngd_aclsim_op("aclnnGroupedMatmulV4", run_grouped_matmul);
    ngd_aclsim_tensors(op, x);
    ngd_aclsim_tensors(op, weight);
    ngd_aclsim_optional(op, groups);
    ngd_aclsim_tensors(op, out);
    ngd_aclsim_optional_tensors(op, bias);
    ngd_aclsim_optional_tensors(op, antiquant_scale);
    ngd_aclsim_optional_tensors(op, antiquant_offset);
    memcpy(op->i, attributes, sizeof(attributes));
    op->workspace = WORKSPACE;
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op,
                     !scale && !offset && !per_token_scale && !activation_input && !activation_scale &&
                         !activation_offset && !activation_feature && !dynamic_scale && activation == 0,
                     "rows in i8 and activations are not computed here");
    ngd_aclsim_check(op, group_type == 0 && group_list_type <= 1 && groups,
                     "only groups of rows that a list has are computed here");
    ngd_aclsim_check(op, op->code || (op->t[GROUPED].length == 1 && op->t[PRODUCT].length == 1),
                     "one x and one result are computed here");
    ngd_aclsim_check(op, op->code || is_grouped_form(op->t[GROUPED].dtype, op->t[WEIGHTS].dtype),
                     "floats of one dtype, and halves by i8 and int4, are computed here");
    ngd_aclsim_check(op, op->code || (op->t[WEIGHTS].dtype == op->t[GROUPED].dtype) == !op->t[ANTIQUANT_SCALE].present,
                     "quantised weights have scales");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}

/* ---- aclnnMoeFinalizeRoutingV2 ------------------------------------------------------------------- */

enum { ROWS, PLACES, SKIP1, SKIP2, BIASES, SHARES, CHOSEN, SUMS };

/* i[0] 0: the number of place j of token t is at j*T+t, 2: at t*K+j, as its kernels have it. */
static void run_finalize_routing(struct sim_op *op)
{
    const struct sim_view *x = &op->t[ROWS], *to = &op->t[PLACES], *s = &op->t[SHARES], *y = &op->t[SUMS];
    const int64_t tokens = y->dims[0], h = y->dims[1], places = s->present ? s->dims[1] : 1;
    float *sum = new_room(h, sizeof(*sum));

    for (int64_t t = 0; t < tokens; t++) {
        memset(sum, 0, (size_t)h * sizeof(*sum));
        for (int64_t j = 0; j < places; j++) {
            const int64_t row = sim_load_int(sim_at(to, op->i[0] ? t * places + j : j * tokens + t), to->dtype);
            const float share = s->present ? (float)sim_load(sim_at(s, t * places + j), s->dtype) : 1;

            if (row < 0 || row >= x->dims[0]) {
                ngd_aclsim_raise();
                free(sum);
                return;
            }
            for (int64_t c = 0; c < h; c++)
                sum[c] += share * (float)sim_load(sim_at(x, row * h + c), x->dtype);
        }
        for (int64_t c = 0; c < h; c++)
            sim_store(sim_at(y, t * h + c), y->dtype, (double)sum[c]);
    }
    free(sum);
}

ngd_acl_error_t aclnnMoeFinalizeRoutingV2GetWorkspaceSize(const struct aclTensor *rows, const struct aclTensor *numbers,
                                                          const struct aclTensor *skip1, const struct aclTensor *skip2,
                                                          const struct aclTensor *bias, const struct aclTensor *scales,
                                                          const struct aclTensor *experts, int64_t drop_pad_mode,
                                                          const struct aclTensor *out, NGD_ACL_PHASE1)
{
    const struct aclTensor *const optional[] = {skip1, skip2, bias, scales, experts};
    struct sim_op *op;

    SIM_CALL("aclnnMoeFinalizeRoutingV2GetWorkspaceSize");
    op = ngd_aclsim_op("aclnnMoeFinalizeRoutingV2", run_finalize_routing);
    ngd_aclsim_operand(op, rows);
    ngd_aclsim_operand(op, numbers);
    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
        ngd_aclsim_optional(op, optional[i]);
    ngd_aclsim_operand(op, out);
    op->i[0] = drop_pad_mode;
    op->workspace = WORKSPACE;
    ngd_aclsim_rules(op);
    ngd_aclsim_check(op, drop_pad_mode % 2 == 0 && !skip1 && !skip2 && !bias,
                     "rows that were dropped, other summands and biases are not computed here");
    ngd_aclsim_check(op, op->code || sim_is_float(op->t[ROWS].dtype), "rows are floats");
    return ngd_aclsim_finish(op, workspace_p, executor_p);
}
