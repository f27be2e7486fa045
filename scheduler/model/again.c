/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences that have lost their blocks compute again what steps had computed. If the prefill graph would give these
 * rows other bits (context.c), the decode graph computes them: to it each row is a sequence, as the rows of a draft
 * are.
 *
 * Such a replay takes a prompt's turn, since steps wait for it: prompts and it share what the pace allows. It runs in
 * one piece, which takes no longer than a step of a full batch.
 */
#include "scheduler/model/model_int.h"

/* Returns how many of its next rows a sequence computes so, at most `most`; 0: none. */
static uint32_t rows_again(const struct ngd_seq *seq, uint32_t most)
{
    const struct ngd_chunk chunk = ngd_seq_chunk(seq);

    if (chunk.kind != NGD_DECODE)
        return 0;
    return chunk.rows < most ? chunk.rows : most;
}

uint32_t ngd_again_rows_locked(struct ngd_model *model, const struct ngd_seq *first, const struct ngd_chunk *chunk)
{
    uint32_t rows = chunk->rows;

    ngd_list_for_each (l, &model->ready[NGD_PREFILL]) {
        const struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);

        if (ngd_seq_may_join(seq, first))
            rows += rows_again(seq, chunk->most - rows);
    }
    return rows < chunk->planned ? chunk->planned : rows;
}

/* Takes those that join the first one, model->batch[0]. Returns how many there are then. */
static uint32_t take_joining(struct ngd_model *model, uint32_t max)
{
    struct ngd_seq *first = model->batch[0];
    uint32_t n = 1, rows = first->rows;

    ngd_mutex_lock(&model->lock);
    ngd_list_for_each_safe (l, next, &model->ready[NGD_PREFILL]) {
        struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);
        const uint32_t more = ngd_seq_may_join(seq, first) ? rows_again(seq, max - rows) : 0;

        if (!more || !ngd_seq_has_blocks(seq, seq->position + more))
            continue;
        ngd_seq_unready_locked(model, seq);
        seq->state = NGD_SEQ_RUNNING;
        seq->rows = more;
        rows += more;
        model->batch[n++] = seq;
    }
    ngd_mutex_unlock(&model->lock);
    return n;
}

/* Takes the sequences of a replay of at most max rows. 0: the one that it was planned for has been withdrawn. */
static uint32_t take_sequences(struct ngd_model *model, uint32_t max)
{
    struct ngd_seq *seq = ngd_model_take_first(model, NGD_PREFILL);

    if (!seq)
        return 0;
    seq->rows = rows_again(seq, max);
    if (!seq->rows || !ngd_seq_has_blocks(seq, seq->position + seq->rows)) {
        ngd_seq_requeue(seq);
        return 0;
    }
    model->oldest_prompt_next = !model->oldest_prompt_next;
    model->batch[0] = seq;
    return take_joining(model, max);
}

static void fill_rows_again(struct ngd_model *model, uint32_t n)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_DECODE];
    struct ngd_rows_want want = {0};
    uint32_t row = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct ngd_seq *seq = model->batch[i];

        ngd_seq_want(seq, &want);
        for (uint32_t at = seq->position; at < seq->position + seq->rows; at++, row++) {
            ngd_rows_put(mg, row, seq, at, seq->tokens[at]);
            ngd_rows_put_seq(mg, row, seq, row, at + 1);
            ngd_rows_put_sampling(mg, row, seq, seq->draws);
        }
    }
    ngd_rows_size(model, mg, row, row, want);
}

static void count_rows_again(struct ngd_model *model, uint32_t n)
{
    uint32_t rows = 0;

    for (uint32_t i = 0; i < n; i++)
        rows += model->batch[i]->rows;
    atomic_fetch_add_explicit(&model->tokens_prefill, rows, memory_order_relaxed);
    ngd_metric_add(NGD_M_TOKENS_PREFILL, rows);
}

void ngd_model_compute_again(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry,
                             uint32_t max)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_DECODE];
    const uint32_t n = take_sequences(model, max), way = ngd_model_way_of(model, entry);
    const ngd_nsec_t begin = ngd_now();
    struct ngd_split parts = {0};
    uint32_t row = 0;
    ngd_status_t status;

    if (!n)
        return;
    fill_rows_again(model, n);
    ngd_launch_bound(slot, &mg->launch, begin, NGD_NSEC_NEVER);
    status = ngd_replay_run(slot, mg->binding, ngd_entry_executable(entry), &mg->launch);
    ngd_pace_sliced(&model->pace, mg->launch.device_time);
    ngd_model_charge(model, model->batch, n, false, mg->launch.device_time);
    if (!status)
        count_rows_again(model, n);
    ngd_split_add(&parts, ngd_entry_executable(entry), &mg->launch);
    for (uint32_t i = 0; i < n; i++) {
        struct ngd_step_result result = {.batch = n, .queue = begin, .device = mg->launch.device_time};
        struct ngd_seq *seq = model->batch[i];

        row += seq->rows;
        ngd_seq_note_split(seq, begin, &parts);
        if (status) {
            ngd_seq_fail(seq, status, &mg->launch.diag);
            continue;
        }
        ngd_seq_advance(seq, seq->rows, way);
        ngd_seq_go_on(seq, mg, row - 1, &result);
    }
}
