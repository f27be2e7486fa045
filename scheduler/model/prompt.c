/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts: chunks of sequences' rows run through the prefill graph, each replay in slices, between which decode steps
 * run. A replay takes the next chunk of one prompt, and beside it those of others that fit (prompt_pack.c).
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
    ngd_free(p->seqs);
}

/* ---- the chunks of a replay ----------------------------------------------------------------------------- */

/* Fills in the rows of sequence i of the replay, from row `first` on. */
static void fill_chunk(struct ngd_model_graph *mg, uint32_t i, const struct ngd_seq *seq, uint32_t first)
{
    for (uint32_t k = 0; k < seq->rows; k++)
        ngd_rows_put(mg, first + k, seq, seq->position + k, seq->tokens[seq->position + k]);
    ngd_rows_put_seq(mg, i, seq, first + seq->rows - 1, seq->position + seq->rows);
    if (!mg->roles.result_per_row)
        ngd_rows_put_sampling(mg, i, seq, seq->draws);
    for (uint32_t k = 0; k < seq->rows && mg->roles.result_per_row; k++)
        ngd_rows_put_sampling(mg, first + k, seq, seq->draws);
}

/* Fills in all chunks, and sets the sizes of inputs and outputs. */
static void fill_chunks(struct ngd_model *model)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];
    const struct ngd_prompt *p = &model->prompt;
    uint32_t row = 0;
    struct ngd_rows_want want = {0};

    for (uint32_t i = 0; i < p->n; row += p->seqs[i++]->rows) {
        struct ngd_seq *seq = p->seqs[i];

        ngd_seq_want(seq, &want);
        fill_chunk(mg, i, seq, row);
    }
    ngd_rows_size(model, mg, row, p->n, want);
}

/*
 * Sets how many of p->seqs the replay has. Other threads read them under the lock (batch.c: next_locked). They may be
 * freed as soon as they are not in the replay any more.
 */
static void set_seqs(struct ngd_model *model, uint32_t n)
{
    ngd_mutex_lock(&model->lock);
    model->prompt.n = n;
    ngd_mutex_unlock(&model->lock);
}

/* Ends the replay. Returns how many of p->seqs the caller must answer or make ready again. */
static uint32_t end_chunks(struct ngd_model *model)
{
    struct ngd_prompt *p = &model->prompt;
    const uint32_t n = p->n;

    set_seqs(model, 0);
    ngd_gcache_put(p->entry);
    p->entry = NULL;
    return n;
}

void ngd_model_prefill_abort(struct ngd_model *model, ngd_status_t status, const struct ngd_diag *diag)
{
    const uint32_t n = model->prompt.n ? end_chunks(model) : 0;

    for (uint32_t i = 0; i < n; i++)
        ngd_seq_fail(model->prompt.seqs[i], status, diag);
}

static void learn_row_time(struct ngd_model *model, ngd_nsec_t t)
{
    const int64_t old = atomic_load_explicit(&model->row_time, memory_order_relaxed);

    atomic_store_explicit(&model->row_time, old ? old + (t - old) / 8 : t, memory_order_relaxed);
}

/* Finishes the chunks, whose rows are in the blocks. */
static void finish_chunks(struct ngd_model *model)
{
    const struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];
    struct ngd_prompt *p = &model->prompt;
    const uint32_t way = ngd_model_way_of(model, p->entry), n = end_chunks(model);
    uint32_t row = 0;

    learn_row_time(model, p->time / p->chunk.rows);
    ngd_pace_chunk(&model->pace, ngd_now(), p->chunk.rows, p->longest);
    atomic_fetch_add_explicit(&model->tokens_prefill, p->chunk.rows, memory_order_relaxed);
    ngd_metric_add(NGD_M_TOKENS_PREFILL, p->chunk.rows);
    for (uint32_t i = 0; i < n; i++) {
        struct ngd_step_result result = {.batch = n, .queue = p->begin, .device = p->time};
        struct ngd_seq *seq = p->seqs[i];

        if (seq->pool)
            ngd_seq_pool(seq, row);
        row += seq->rows;
        ngd_seq_advance(seq, seq->rows, way);
        ngd_seq_go_on(seq, mg, mg->roles.result_per_row ? row - 1 : i, &result);
    }
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
    ngd_model_charge(model, p->seqs, p->n, false, mg->launch.device_time);
    ngd_split_add(&parts, x, &mg->launch);
    for (uint32_t i = 0; i < p->n; i++)
        ngd_seq_note_split(p->seqs[i], begin, &parts);
    return status;
}

/* Returns true if nobody waits for any of the chunks any more. A sequence that is stopped beside others goes on with
 * them, and is answered at the end. */
static bool all_stopped(struct ngd_model *model)
{
    const struct ngd_prompt *p = &model->prompt;
    bool stopped = true;

    ngd_mutex_lock(&model->lock);
    for (uint32_t i = 0; i < p->n; i++)
        stopped &= p->seqs[i]->cancelled || p->seqs[i]->closed;
    ngd_mutex_unlock(&model->lock);
    return stopped;
}

void ngd_model_prefill_on(struct ngd_model *model, struct ngd_slot *slot, bool steps_wait)
{
    struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];
    ngd_status_t status;

    if (all_stopped(model)) {
        const uint32_t n = end_chunks(model);

        for (uint32_t i = 0; i < n; i++)
            ngd_seq_requeue(model->prompt.seqs[i]); /* answers it */
        return;
    }
    status = run_slice(model, slot, ngd_pace_slice(&model->pace, ngd_now(), steps_wait));
    if (status)
        ngd_model_prefill_abort(model, status, &mg->launch.diag);
    else if (!mg->launch.paused)
        finish_chunks(model);
}

void ngd_model_prefill(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry, uint32_t planned,
                       bool steps_wait)
{
    struct ngd_seq *seq = ngd_model_take_first(model, NGD_PREFILL);
    struct ngd_prompt *p = &model->prompt;
    const struct ngd_chunk chunk = seq ? ngd_seq_chunk(seq) : (struct ngd_chunk){0};

    /* The sequence that the executable was looked up for may have been withdrawn, and this be another one. */
    if (!seq || !ngd_prompt_fits(model, &chunk, planned) || !ngd_seq_has_blocks(seq, seq->position + chunk.rows)) {
        if (seq)
            ngd_seq_requeue(seq);
        ngd_gcache_put(entry);
        return;
    }
    model->oldest_prompt_next = !model->oldest_prompt_next;
    seq->rows = chunk.rows;
    p->seqs[0] = seq;
    p->entry = entry;
    p->chunk = (struct ngd_chunk){.planned = planned};
    p->begin = ngd_now();
    p->time = p->longest = 0;
    set_seqs(model, 1 + ngd_prompt_take_others(model, planned));
    for (uint32_t i = 0; i < p->n; i++)
        p->chunk.rows += p->seqs[i]->rows;
    fill_chunks(model);
    model->graphs[NGD_PREFILL].launch.paused = false;
    ngd_model_prefill_on(model, slot, steps_wait);
}
