/* SPDX-License-Identifier: Apache-2.0 */
/* Decode steps: one replay for as many ready sequences as the decode graph takes. */
#include "scheduler/model/model_int.h"

/*
 * Returns false if the generation has ended. Tokens are delivered after each step (finish_rows). Before the first step
 * there is the token that the prompt chose, or a context that is already full, or tokens that are delivered again.
 */
static bool may_step(struct ngd_seq *seq)
{
    if (seq->op != NGD_SEQ_GENERATE ||
        (seq->delivered && seq->from == NGD_FROM_CHOSEN && seq->fill < seq->model->params.max_context))
        return true;
    return ngd_seq_generate_on(seq);
}

/* Takes up to max sequences that can make a step now, one row each. Answers those that cannot. */
static uint32_t form_batch(struct ngd_model *model, uint32_t max)
{
    uint32_t n = 0;

    while (n < max) {
        struct ngd_seq *seq = n ? ngd_model_take(model, NGD_DECODE) : ngd_model_take_first(model, NGD_DECODE);

        if (!seq)
            break;
        seq->rows = 1;
        if (may_step(seq) && ngd_seq_grow(seq))
            model->batch[n++] = seq;
    }
    return n;
}

/*
 * Adds rows for drafts: those that are left, as far as there are free blocks. A draft takes no sequence's place.
 * Returns all rows.
 */
static uint32_t add_drafts(struct ngd_model *model, uint32_t n, uint32_t max)
{
    uint32_t rows = n;

    ngd_mutex_lock(&model->lock);
    for (uint32_t i = 0; i < n && rows < max; i++) {
        struct ngd_seq *seq = model->batch[i];
        uint32_t more = ngd_seq_rows_wanted(seq) - 1;

        if (more > max - rows)
            more = max - rows;
        if (more && (ngd_seq_count_locked(model, seq, seq->position + 1 + more, NULL) ||
                     ngd_seq_take_spare_locked(model, seq, seq->position + 1 + more, NULL)))
            more = 0;
        seq->rows += more;
        rows += more;
    }
    ngd_mutex_unlock(&model->lock);
    return rows;
}

/*
 * Fills in the rows of the batch. To the graph each row is a sequence; each row of a draft sees one token more than the
 * row before it. Returns true if logits are wanted.
 */
static bool fill_batch(struct ngd_model *model, uint32_t n)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_DECODE];
    uint32_t row = 0;
    bool logits = false;

    for (uint32_t i = 0; i < n; i++) {
        struct ngd_seq *seq = model->batch[i];

        seq->tokens[seq->position] = seq->forced >= 0 ? seq->forced : seq->chosen;
        logits |= ngd_seq_plan_sampling(seq, seq->position + 1) || seq->want_logits || seq->want_logprobs;
        for (uint32_t k = 0; k < seq->rows; k++, row++) {
            ngd_rows_put(mg, row, seq, seq->position + k, seq->tokens[seq->position + k]);
            ngd_rows_put_seq(mg, row, seq, row, seq->position + k + 1);
            ngd_rows_put_sampling(mg, row, seq, seq->draws + k);
        }
    }
    return logits;
}

static const float *logits_of(const struct ngd_model *model, uint32_t row)
{
    const struct ngd_model_graph *mg = &model->graphs[NGD_DECODE];

    return mg->staging.data[NGD_ROLE_LOGITS] ? NGD_STAGED(mg, LOGITS, float) + (size_t)row * model->params.vocab : NULL;
}

/* Chooses the token behind row k of a sequence, whose rows begin at `row`. */
static ngd_status_t choose_behind(const struct ngd_model *model, struct ngd_seq *seq, uint32_t row, uint32_t k,
                                  int32_t *chosen, struct ngd_diag *diag)
{
    return ngd_seq_sample(seq, seq->position + k + 1, seq->draws + k, logits_of(model, row + k), true, &chosen[k],
                          diag);
}

/*
 * Counts the rows that are right: the first one, and each whose token is what the row before it chose. A stop token
 * ends the count and is left for the caller to append.
 */
static ngd_status_t count_right(const struct ngd_model *model, struct ngd_seq *seq, uint32_t row, int32_t *chosen,
                                uint32_t *right_p, struct ngd_diag *diag)
{
    uint32_t k = 0;
    ngd_status_t status = choose_behind(model, seq, row, 0, chosen, diag);

    while (!status && k + 1 < seq->rows && chosen[k] == seq->tokens[seq->position + k + 1] &&
           !ngd_model_is_stop(model, chosen[k]))
        status = choose_behind(model, seq, row, ++k, chosen, diag);
    *right_p = k + 1;
    return status;
}

static void finish_step(struct ngd_model *model, struct ngd_seq *seq, uint32_t row, uint32_t right,
                        struct ngd_step_result *result)
{
    const int32_t *chosen = NGD_STAGED(&model->graphs[NGD_DECODE], TOKEN, int32_t) + row;

    result->logits = logits_of(model, row + right - 1);
    result->accepted = right - 1;
    for (uint32_t k = 0; k + 1 < right && seq->has_logprobs; k++)
        ngd_logprobs_of(logits_of(model, row + k), model->params.vocab, chosen[k], seq->top, &model->logprobs[k]);
    if (seq->has_logprobs) {
        model->logprobs[right - 1] = seq->logprobs;
        result->logprobs = model->logprobs;
    }
    ngd_seq_finish_step(seq, result);
}

/* Finishes the rows of batch[i], which begin at `row`. */
static void finish_rows(struct ngd_model *model, uint32_t i, uint32_t row, uint32_t way, struct ngd_step_result *result)
{
    int32_t *chosen = NGD_STAGED(&model->graphs[NGD_DECODE], TOKEN, int32_t) + row;
    struct ngd_seq *seq = model->batch[i];
    struct ngd_diag diag;
    uint32_t right;
    ngd_status_t status = count_right(model, seq, row, chosen, &right, &diag);

    if (status) {
        if (seq->rows > 1)
            ngd_seq_trim(seq, seq->position); /* the draft's blocks */
        ngd_seq_fail(seq, status, &diag);
        return;
    }
    result->queue -= seq->ready;
    ngd_seq_advance(seq, right, way);
    if (right < seq->rows)
        ngd_seq_trim(seq, seq->position);
    ngd_seq_choose(seq, chosen[right - 1], seq->draws + right - 1, logits_of(model, row + right - 1));
    if (seq->op == NGD_SEQ_STEP) {
        finish_step(model, seq, row, right, result);
        return;
    }
    ngd_metric_observe(NGD_M_STEP_SECONDS, ngd_now() - seq->ready);
    if (ngd_seq_generate_on(seq))
        ngd_seq_requeue(seq);
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
    uint32_t n = form_batch(model, max), way = ngd_model_way_of(model, entry), rows, row = 0;
    ngd_nsec_t begin = ngd_now();
    struct ngd_split parts = {0};
    ngd_status_t status;

    if (!n)
        return;
    rows = add_drafts(model, n, max);
    ngd_rows_size(model, mg, rows, rows, (struct ngd_rows_want){.token = true, .logits = fill_batch(model, n)});
    ngd_launch_bound(slot, &mg->launch, ngd_now(), NGD_NSEC_NEVER);
    status = ngd_replay_run(slot, mg->binding, ngd_entry_executable(entry), &mg->launch);
    ngd_pace_stepped(&model->pace, ngd_now(), mg->launch.device_time);
    ngd_model_charge(model, model->batch, n, true, mg->launch.device_time);
    if (!status)
        count_batch(model, n);
    ngd_split_add(&parts, ngd_entry_executable(entry), &mg->launch);
    for (uint32_t i = 0; i < n; i++) {
        struct ngd_step_result result = {.batch = n, .queue = begin, .device = mg->launch.device_time};
        const uint32_t next = row + model->batch[i]->rows;

        ngd_seq_note_split(model->batch[i], begin, &parts);
        if (status)
            ngd_seq_fail(model->batch[i], status, &mg->launch.diag);
        else
            finish_rows(model, i, row, way, &result);
        row = next;
    }
}
