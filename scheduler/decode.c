/* SPDX-License-Identifier: Apache-2.0 */
/* Decode steps: one replay for as many ready sequences as the decode graph takes. */
#include "scheduler/model_int.h"

/* Takes up to max sequences that can make a step now; those that cannot are answered. */
static uint32_t form_batch(struct ngd_model *model, uint32_t max)
{
    uint32_t n = 0;

    while (n < max) {
        struct ngd_seq *seq = ngd_model_take(model, NGD_DECODE);

        if (!seq)
            break;
        if (seq->op == NGD_SEQ_GENERATE && !ngd_seq_generate_on(seq))
            continue;
        if (ngd_seq_grow(seq, seq->position + 1))
            model->batch[n++] = seq;
    }
    return n;
}

static bool fill(struct ngd_model *model, uint32_t n)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_DECODE];
    bool logits = false;

    for (uint32_t i = 0; i < n; i++) {
        struct ngd_seq *seq = model->batch[i];

        seq->tokens[seq->position] = seq->forced >= 0 ? seq->forced : seq->chosen;
        ngd_rows_put(mg, i, seq, seq->position, seq->tokens[seq->position]);
        ngd_rows_put_seq(mg, i, seq, i, seq->position + 1);
        ngd_rows_put_sampling(mg, i, seq, seq->draws);
        logits |= seq->want_logits;
    }
    return logits;
}

static void finish_row(struct ngd_model *model, uint32_t i, uint32_t way, struct ngd_step_result *result)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_DECODE];
    struct ngd_seq *seq = model->batch[i];
    int32_t token = NGD_STAGED(mg, TOKEN, int32_t)[i];
    struct ngd_diag diag;
    ngd_status_t status = ngd_model_check_chosen(model, token, &diag);

    if (status) {
        ngd_seq_fail(seq, status, &diag);
        return;
    }
    result->queue -= seq->ready;
    ngd_seq_advance(seq, 1, way);
    ngd_seq_choose(seq, token);
    if (seq->op == NGD_SEQ_STEP) {
        if (mg->staging.data[NGD_ROLE_LOGITS])
            result->logits = NGD_STAGED(mg, LOGITS, float) + (size_t)i * model->params.vocab;
        ngd_seq_finish_step(seq, result);
        return;
    }
    ngd_metric_observe(NGD_M_STEP_SECONDS, ngd_now() - seq->ready);
    if (ngd_seq_generate_on(seq))
        ngd_seq_requeue(seq, false);
}

static void count_batch(struct ngd_model *model, uint32_t n)
{
    atomic_fetch_add_explicit(&model->batches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&model->tokens_decode, n, memory_order_relaxed);
    ngd_metric_inc(NGD_M_BATCHES);
    ngd_metric_add(NGD_M_BATCHED_ROWS, n);
    ngd_metric_add(NGD_M_TOKENS_DECODE, n);
}

void ngd_model_decode(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry, uint32_t max)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_DECODE];
    uint32_t n = form_batch(model, max), way = ngd_model_way(model, NGD_DECODE, max);
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status;

    if (!n)
        return;
    ngd_rows_size(model, mg, n, n, true, fill(model, n));
    status = ngd_replay_run(slot, mg->binding, ngd_entry_executable(entry), &mg->launch);
    ngd_pace_stepped(&model->pace, ngd_now(), mg->launch.device_time);
    for (uint32_t i = 0; i < n; i++) {
        ngd_seq_charge(model->batch[i], mg->launch.device_time / n);
        ngd_usage_add(model->batch[i]->usage, mg->launch.device_time / n);
    }
    if (!status)
        count_batch(model, n);
    for (uint32_t i = 0; i < n; i++) {
        struct ngd_step_result result = {.batch = n, .queue = begin, .device = mg->launch.device_time};

        if (status)
            ngd_seq_fail(model->batch[i], status, &mg->launch.diag);
        else
            finish_row(model, i, way, &result);
    }
}
