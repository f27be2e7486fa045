/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of contexts, before and after a replay: what a sequence wants of it, and how it goes on. */
#include "scheduler/model/model_int.h"

/* ---- before --------------------------------------------------------------------------------------------- */

void ngd_seq_want(struct ngd_seq *seq, struct ngd_rows_want *want)
{
    const bool last = seq->position + seq->rows == seq->fill;
    const bool chooses = last && seq->op == NGD_SEQ_OPEN && !seq->embed;

    seq->samples = false;
    want->logits |= chooses && (ngd_seq_plan_sampling(seq, seq->fill) || seq->want_logits || seq->want_logprobs);
    want->token |= last && !seq->embed;
    want->hidden |= ngd_seq_wants_hidden(seq, last);
}

/* ---- behind --------------------------------------------------------------------------------------------- */

/* Answers an open: chooses the first token. */
static void finish_open(struct ngd_seq *seq, const struct ngd_model_graph *mg, uint32_t at,
                        struct ngd_step_result *result)
{
    struct ngd_model *model = seq->model;
    int32_t token = NGD_STAGED(mg, TOKEN, int32_t)[at];
    struct ngd_diag diag;
    ngd_status_t status;

    if (mg->staging.data[NGD_ROLE_LOGITS])
        result->logits = NGD_STAGED(mg, LOGITS, float) + (size_t)at * model->params.vocab;
    status = ngd_seq_sample(seq, seq->fill, seq->draws, result->logits, false, &token, &diag);
    if (status) {
        ngd_seq_fail(seq, status, &diag);
        return;
    }
    ngd_seq_choose(seq, token, seq->draws, result->logits);
    if (seq->has_logprobs)
        result->logprobs = &seq->logprobs;
    atomic_fetch_add_explicit(&model->tokens_decode, 1, memory_order_relaxed);
    ngd_metric_inc(NGD_M_TOKENS_DECODE);
    ngd_seq_finish_step(seq, result);
}

/*
 * Gets what the next chunk needs in place of the blocks that windows have passed; with preemption, a sequence gets it
 * in its turn. False: there is none, and the operation has failed and is answered.
 */
static bool pass_on(struct ngd_seq *seq)
{
    struct ngd_model *model = seq->model;
    struct ngd_diag diag;
    ngd_status_t status;

    if (!model->slides || model->params.preempt)
        return true;
    ngd_mutex_lock(&model->lock);
    status = ngd_seq_reserve_locked(model, seq, ngd_seq_tokens_wanted(seq), &diag);
    ngd_mutex_unlock(&model->lock);
    if (status)
        ngd_seq_fail(seq, status, &diag);
    return !status;
}

void ngd_seq_go_on(struct ngd_seq *seq, const struct ngd_model_graph *mg, uint32_t at, struct ngd_step_result *result)
{
    if (seq->op != NGD_SEQ_OPEN || seq->position < seq->fill) {
        if (pass_on(seq))
            ngd_seq_requeue(seq);
        return;
    }
    result->queue -= seq->asked;
    if (seq->embed)
        ngd_seq_finish_embedding(seq, at, result);
    else
        finish_open(seq, mg, at, result);
}
