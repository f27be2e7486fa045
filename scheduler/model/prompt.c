/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts: chunks of one sequence's rows run through the prefill graph, each in slices, between which decode steps run.
 *
 *   begin --slice--> over                      in the slot's pool, in one piece: the device or the graph's options
 *                                              require it, or there is no room for a pool
 *   begin --slice--> paused --slice--> ... --> over
 *
 * A paused chunk keeps its sequence RUNNING and its executable pinned. Its intermediate results stay in a pool of the
 * model, since other work uses the slot's pool meanwhile. Its host lists and its launch are the prefill graph's, which
 * decode steps do not use.
 */
#include "scheduler/model/model_int.h"
#include <stdio.h>

/* ---- where it runs ------------------------------------------------------------------------------------ */

static void drop_instance(struct ngd_prompt *p)
{
    ngd_instance_destroy(p->inst);
    p->inst = NULL;
}

/* Returns the instance of the executable in the model's own pool; NULL: chunks run in one piece. */
static struct ngd_instance *own_instance(struct ngd_model *model, struct ngd_executable *x)
{
    struct ngd_binding *binding = model->graphs[NGD_PREFILL].binding;
    struct ngd_prompt *p = &model->prompt;
    char name[96];
    ngd_status_t status = NGD_OK;

    if (p->no_room || model->pace.percent == 0 || !ngd_executable_may_pause(x))
        return NULL;
    if (p->inst && ngd_instance_exec(p->inst) == x->exec)
        return p->inst;
    drop_instance(p);
    if (!p->pool) {
        snprintf(name, sizeof(name), "prompts of model %.64s", model->name);
        status = ngd_pool_create(model->queue->dev, name, &p->pool);
        if (!status)
            ngd_pool_set_payer(p->pool, model->params.payers.device);
    }
    if (!status)
        status = ngd_instance_create(x->exec, binding->buffers, binding->n, p->pool, &p->inst, NULL);
    if (status) {
        p->no_room = true;
        ngd_pool_destroy(p->pool);
        p->pool = NULL;
    }
    return p->inst;
}

void ngd_prompt_fini(struct ngd_prompt *p)
{
    drop_instance(p);
    ngd_pool_destroy(p->pool);
}

/* ---- one chunk ---------------------------------------------------------------------------------------- */

static void fill_chunk(struct ngd_model *model, const struct ngd_seq *seq, uint32_t rows)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];

    for (uint32_t i = 0; i < rows; i++)
        ngd_rows_put(mg, i, seq, seq->position + i, seq->tokens[seq->position + i]);
    ngd_rows_put_seq(mg, 0, seq, rows - 1, seq->position + rows);
    for (uint32_t i = 0; i < (mg->roles.result_per_row ? rows : 1); i++)
        ngd_rows_put_sampling(mg, i, seq, seq->draws);
}

static void finish_prompt(struct ngd_model *model, struct ngd_seq *seq, const struct ngd_prompt *p)
{
    const struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];
    uint32_t at = mg->roles.result_per_row ? p->chunk.rows - 1 : 0;
    int32_t token = NGD_STAGED(mg, TOKEN, int32_t)[at];
    struct ngd_step_result result = {.batch = 1, .queue = p->begin - seq->asked, .device = p->time};
    struct ngd_diag diag;
    ngd_status_t status = ngd_model_check_chosen(model, token, &diag);

    if (status) {
        ngd_seq_fail(seq, status, &diag);
        return;
    }
    if (mg->staging.data[NGD_ROLE_LOGITS])
        result.logits = NGD_STAGED(mg, LOGITS, float) + (size_t)at * model->params.vocab;
    ngd_seq_choose(seq, token, seq->draws, result.logits);
    if (seq->has_logprobs)
        result.logprobs = &seq->logprobs;
    atomic_fetch_add_explicit(&model->tokens_decode, 1, memory_order_relaxed);
    ngd_metric_inc(NGD_M_TOKENS_DECODE);
    ngd_seq_finish_step(seq, &result);
}

/*
 * Sets the sequence of the chunk. Other threads read it under the lock (batch.c: next_locked). It may be freed as soon
 * as it is not set any more.
 */
static void set_seq(struct ngd_model *model, struct ngd_seq *seq)
{
    ngd_mutex_lock(&model->lock);
    model->prompt.seq = seq;
    ngd_mutex_unlock(&model->lock);
}

struct ngd_seq *ngd_model_prefill_abort(struct ngd_model *model)
{
    struct ngd_prompt *p = &model->prompt;
    struct ngd_seq *seq = p->seq;

    if (!seq)
        return NULL;
    ngd_usage_add(seq->usage, p->time * ngd_binding_ranks(model->graphs[NGD_PREFILL].binding));
    set_seq(model, NULL);
    ngd_gcache_put(p->entry);
    p->entry = NULL;
    return seq;
}

static void learn_row_time(struct ngd_model *model, ngd_nsec_t t)
{
    const int64_t old = atomic_load_explicit(&model->row_time, memory_order_relaxed);

    atomic_store_explicit(&model->row_time, old ? old + (t - old) / 8 : t, memory_order_relaxed);
}

/* Finishes a chunk whose rows are in the blocks. */
static void finish_chunk(struct ngd_model *model)
{
    struct ngd_prompt *p = &model->prompt;
    struct ngd_seq *seq = ngd_model_prefill_abort(model);

    learn_row_time(model, p->time / p->chunk.rows);
    ngd_pace_chunk(&model->pace, ngd_now(), p->chunk.rows, p->longest);
    atomic_fetch_add_explicit(&model->tokens_prefill, p->chunk.rows, memory_order_relaxed);
    ngd_metric_add(NGD_M_TOKENS_PREFILL, p->chunk.rows);
    ngd_seq_advance(seq, p->chunk.rows, ngd_model_way(model, NGD_PREFILL, p->chunk.planned));
    if (p->last && seq->op == NGD_SEQ_OPEN)
        finish_prompt(model, seq, p);
    else
        ngd_seq_requeue(seq); /* for its next chunk, or for the step that needed the context again */
}

/* ---- slices ------------------------------------------------------------------------------------------- */

static ngd_status_t run_slice(struct ngd_model *model, struct ngd_slot *slot, ngd_nsec_t length)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];
    struct ngd_prompt *p = &model->prompt;
    struct ngd_executable *x = ngd_entry_executable(p->entry);
    struct ngd_instance *inst = mg->launch.paused ? p->inst : own_instance(model, x);
    const ngd_nsec_t begin = ngd_now();
    struct ngd_split parts = {0};
    ngd_status_t status;

    ngd_launch_bound(slot, &mg->launch, begin, NGD_NSEC_NEVER);
    if (inst) {
        mg->launch.pause_at = length == NGD_NSEC_NEVER ? length : ngd_now() + length;
        status = ngd_replay_slice(slot, inst, x, &mg->launch, &p->time);
    } else {
        mg->launch.pause_at = 0;
        status = ngd_replay_run(slot, mg->binding, x, &mg->launch);
        p->time += mg->launch.device_time;
        mg->launch.longest = mg->launch.device_time;
    }
    if (mg->launch.longest > p->longest)
        p->longest = mg->launch.longest;
    ngd_pace_sliced(&model->pace, mg->launch.device_time);
    ngd_seq_charge(p->seq, mg->launch.device_time);
    ngd_seq_charge_turn(p->seq, mg->launch.device_time);
    ngd_split_add(&parts, x, &mg->launch);
    ngd_seq_note_split(p->seq, begin, &parts);
    return status;
}

static bool is_stopped(struct ngd_seq *seq)
{
    bool stopped;

    ngd_mutex_lock(&seq->model->lock);
    stopped = seq->cancelled || seq->closed;
    ngd_mutex_unlock(&seq->model->lock);
    return stopped;
}

void ngd_model_prefill_on(struct ngd_model *model, struct ngd_slot *slot, bool steps_wait)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];
    ngd_status_t status;

    if (is_stopped(model->prompt.seq)) {
        ngd_seq_requeue(ngd_model_prefill_abort(model)); /* answers it */
        return;
    }
    status = run_slice(model, slot, ngd_pace_slice(&model->pace, ngd_now(), steps_wait));
    if (status)
        ngd_seq_fail(ngd_model_prefill_abort(model), status, &mg->launch.diag);
    else if (!mg->launch.paused)
        finish_chunk(model);
}

void ngd_model_prefill(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry, uint32_t planned,
                       bool steps_wait)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];
    struct ngd_seq *seq = ngd_model_take_first(model, NGD_PREFILL);
    struct ngd_prompt *p = &model->prompt;
    const struct ngd_chunk chunk = seq ? ngd_seq_chunk(seq) : (struct ngd_chunk){0};

    /* The sequence that the executable was looked up for may have been withdrawn, and this be another one. */
    if (!seq || chunk.planned != planned || !ngd_seq_has_blocks(seq, seq->position + chunk.rows)) {
        if (seq)
            ngd_seq_requeue(seq);
        ngd_gcache_put(entry);
        return;
    }
    model->oldest_prompt_next = !model->oldest_prompt_next;
    set_seq(model, seq);
    p->entry = entry;
    p->chunk = chunk;
    p->last = seq->position + chunk.rows == seq->fill;
    p->begin = ngd_now();
    p->time = p->longest = 0;
    fill_chunk(model, seq, chunk.rows);
    ngd_rows_size(model, mg, chunk.rows, 1, p->last,
                  p->last && seq->op == NGD_SEQ_OPEN && (seq->want_logits || seq->want_logprobs));
    mg->launch.paused = false;
    ngd_model_prefill_on(model, slot, steps_wait);
}
