/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of a sequence: its tables, one for each group of layers, and what it gives back.
 *
 * A group without a window holds all blocks of the context. A group with one holds those that a row at the sequence's
 * position, or behind it, can see, and the rows that the next replay computes. What it has passed goes back while the
 * sequence goes on. A window is kept one key longer than rows see, so that the last row can be computed again (fork).
 *
 * Before its rows run, a sequence holds all that it will hold at a time until its next token is chosen. What it passes
 * on the way pays for what it needs next, in one step under the model's lock: no other sequence takes it between. So a
 * sequence whose window is full goes on if no block is free. One exception: a passed block that another sequence shares
 * does not become free, and then the pool must have another one.
 */
#include "base/fault.h"
#include "scheduler/model/model_int.h"
#include <inttypes.h>

static uint32_t context_blocks(const struct ngd_model *model, uint32_t tokens)
{
    return tokens / model->params.block_size + (tokens % model->params.block_size != 0);
}

uint32_t ngd_model_blocks_for(const struct ngd_model *model, uint32_t tokens)
{
    const uint32_t all = context_blocks(model, tokens);
    uint32_t n = 0;

    for (uint32_t g = 0; g < model->n_groups; g++)
        n += all < model->spans[g] ? all : model->spans[g];
    return n;
}

uint32_t ngd_model_first_block(const struct ngd_model *model, uint32_t group, uint32_t position)
{
    const uint32_t window = model->windows[group];

    return window && position > window ? (position - window) / model->params.block_size : 0;
}

uint32_t ngd_seq_held(const struct ngd_seq *seq)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < seq->model->n_groups; g++)
        n += seq->tables[g].n - seq->tables[g].first;
    return n;
}

/* Returns where the group's table must end before rows of a context that goes up to `tokens` are computed. */
static uint32_t table_end(const struct ngd_seq *seq, uint32_t group, uint32_t tokens)
{
    const struct ngd_model *model = seq->model;
    const uint32_t all = context_blocks(model, tokens), span = model->spans[group];
    uint32_t first;

    if (!model->windows[group])
        return all;
    first = ngd_model_first_block(model, group, seq->position);
    if (first < seq->tables[group].first)
        first = seq->tables[group].first;
    return all > first && all - first > span ? first + span : all;
}

uint32_t ngd_seq_lacks(const struct ngd_seq *seq, uint32_t tokens)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < seq->model->n_groups; g++) {
        const uint32_t end = table_end(seq, g, tokens);

        n += end > seq->tables[g].n ? end - seq->tables[g].n : 0;
    }
    return n;
}

/* Allocates the blocks of one group, of which there are enough. */
static ngd_status_t extend_table_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t group, uint32_t tokens,
                                        struct ngd_diag *diag) NGD_REQUIRES(model->lock)
{
    struct ngd_seq_table *t = &seq->tables[group];
    const uint32_t end = table_end(seq, group, tokens);
    ngd_status_t status;

    if (end <= t->n)
        return NGD_OK;
    status = ngd_kv_alloc(model->kv, end - t->n, t->blocks + t->n, diag);
    if (!status && NGD_FAULT(KV_POISON))
        ngd_model_poison_blocks(model, t->blocks + t->n, end - t->n);
    if (!status)
        t->n = end;
    return status;
}

/* Whether a context fits is the same whatever the sequence holds at the moment, since it may have to be computed again.
 */
static ngd_status_t check_fits(const struct ngd_model *model, uint32_t tokens, struct ngd_diag *diag)
{
    const uint32_t most = ngd_model_blocks_for(model, tokens), total = ngd_kv_total(model->kv);

    if (!model->slides || most <= total)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_KV_EXHAUSTED,
                        "a context of %" PRIu32 " tokens holds up to %" PRIu32 " KV blocks, but the model has %" PRIu32
                        "; give it more blocks, or prompts chunks of fewer rows than %" PRIu32,
                        tokens, most, total, model->most_rows);
}

ngd_status_t ngd_seq_reserve_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens,
                                    struct ngd_diag *diag)
{
    ngd_status_t status;

    if (!ngd_seq_lacks(seq, tokens))
        return NGD_OK;
    if (tokens > model->params.max_context) /* the tables of blocks have no room for more */
        return ngd_diag_set(diag, NGD_ERR_INTERNAL, "a context of %" PRIu32 " tokens in a model of %" PRIu32, tokens,
                            model->params.max_context);
    status = check_fits(model, tokens, diag);
    if (status)
        return status;
    ngd_seq_slide_locked(model, seq, 0);
    status = ngd_kv_check(model->kv, ngd_seq_lacks(seq, tokens), diag);
    for (uint32_t g = 0; g < model->n_groups && !status; g++)
        status = extend_table_locked(model, seq, g, tokens, diag);
    ngd_model_show_blocks(model);
    return status;
}

static void slide_table_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t group, uint32_t keep)
    NGD_REQUIRES(model->lock)
{
    struct ngd_seq_table *t = &seq->tables[group];
    const uint32_t live = ngd_model_first_block(model, group, seq->position), end = live > keep ? live - keep : 0;

    if (end <= t->first)
        return;
    ngd_kv_unref(model->kv, t->blocks + t->first, end - t->first);
    while (t->first < end)
        t->blocks[t->first++] = model->passed;
    ngd_model_show_blocks(model);
}

void ngd_seq_slide_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t keep)
{
    for (uint32_t g = 0; g < model->n_groups && model->slides; g++)
        slide_table_locked(model, seq, g, keep);
}

ngd_status_t ngd_seq_count_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens, struct ngd_diag *diag)
{
    const uint32_t need = ngd_model_blocks_for(model, tokens);
    ngd_status_t status = NGD_OK;

    if (need > seq->n_counted)
        status = ngd_share_take_blocks(seq->share, need - seq->n_counted, diag);
    if (need > seq->n_counted && !status)
        seq->n_counted = need;
    return status;
}

void ngd_seq_uncount_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    const bool over = seq->closed || seq->broken;
    const uint32_t need = over ? 0 : ngd_model_blocks_for(model, seq->fill);

    if (seq->n_counted > need) {
        ngd_share_give_blocks(seq->share, seq->n_counted - need);
        seq->n_counted = need;
    }
}

void ngd_seq_trim(struct ngd_seq *seq, uint32_t tokens)
{
    struct ngd_model *model = seq->model;
    const uint32_t need = context_blocks(model, tokens);

    ngd_mutex_lock(&model->lock);
    for (uint32_t g = 0; g < model->n_groups; g++) {
        struct ngd_seq_table *t = &seq->tables[g];

        if (t->n > need) {
            ngd_kv_unref(model->kv, t->blocks + need, t->n - need);
            t->n = need;
        }
    }
    ngd_model_show_blocks(model);
    ngd_mutex_unlock(&model->lock);
}

void ngd_seq_release_blocks_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    for (uint32_t g = 0; g < model->n_groups; g++) {
        struct ngd_seq_table *t = &seq->tables[g];

        if (t->n > t->first)
            ngd_kv_unref(model->kv, t->blocks + t->first, t->n - t->first);
        t->first = t->n = 0;
    }
    seq->n_named = 0;
    seq->nameless = false;
    seq->position = 0;
    ngd_model_show_blocks(model);
}

uint32_t ngd_seq_assume_released(struct ngd_seq *seq)
{
    uint32_t gain = 0;

    for (uint32_t g = 0; g < seq->model->n_groups; g++) {
        const struct ngd_seq_table *t = &seq->tables[g];

        gain += ngd_kv_assume_released(seq->model->kv, t->blocks + t->first, t->n - t->first);
    }
    return gain;
}

uint32_t ngd_seq_unassume(struct ngd_seq *seq)
{
    uint32_t loss = 0;

    for (uint32_t g = 0; g < seq->model->n_groups; g++) {
        const struct ngd_seq_table *t = &seq->tables[g];

        loss += ngd_kv_unassume(seq->model->kv, t->blocks + t->first, t->n - t->first);
    }
    return loss;
}
