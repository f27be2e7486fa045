/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: a model as an item of the run queue. Each time a worker takes it, one replay is made of what is ready: one
 * prompt chunk, or one decode step of as many sequences as the decode graph takes; the two alternate when both wait.
 * Then the model goes to the back of the queue if more is ready, so that other work of the device gets its turn.
 *
 * The item is in the queue at most once (`scheduled`), so a model's sequences are never run by two workers at a time,
 * which their shared KV states could not bear.
 *
 * The executable is looked up, and pinned, before sequences are taken: when it is missing (dropped after a fault, or
 * evicted) the model waits for a capture with all of its sequences still in their lists.
 */
#include "base/mem.h"
#include "scheduler/model_int.h"
#include <string.h>

static struct ngd_account *account_of(const struct ngd_seq *seq)
{
    return &seq->share->accounts[seq->model->queue->index];
}

/* It has had so much of a replay, its own or its part of one. */
static void charge(struct ngd_model *model, const struct ngd_seq *seq, ngd_nsec_t time)
{
    ngd_share_charge(model->queue, account_of(seq), time, 0);
    ngd_usage_add(seq->usage, time);
}

/* ---- ready lists -------------------------------------------------------------------------------------- */

void ngd_seq_ready_locked(struct ngd_model *model, struct ngd_seq *seq, bool front)
{
    int kind = seq->op == NGD_SEQ_OPEN || seq->position < seq->fill ? NGD_PREFILL : NGD_DECODE;

    seq->state = NGD_SEQ_READY;
    seq->ready_kind = kind;
    seq->ready = ngd_now();
    if (front)
        ngd_list_push_front(&model->ready[kind], &seq->link);
    else
        ngd_list_push_back(&model->ready[kind], &seq->link);
    model->n_ready[kind]++;
    ngd_metric_inc(NGD_M_SEQUENCES_WAITING);
}

static struct ngd_seq *pop_ready_locked(struct ngd_model *model, int kind) NGD_REQUIRES(model->lock)
{
    struct ngd_seq *seq;

    if (ngd_list_empty(&model->ready[kind]))
        return NULL;
    seq = ngd_container_of(model->ready[kind].next, struct ngd_seq, link);
    ngd_seq_unready_locked(model, seq);
    return seq;
}

static struct ngd_seq *take(struct ngd_model *model, int kind)
{
    struct ngd_seq *seq;

    ngd_mutex_lock(&model->lock);
    seq = pop_ready_locked(model, kind);
    if (seq)
        seq->state = NGD_SEQ_RUNNING;
    ngd_mutex_unlock(&model->lock);
    return seq;
}

/* Answers all that wait for a replay of this kind. */
static void fail_ready(struct ngd_model *model, int kind, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_seq *seq;

    while ((seq = take(model, kind)))
        ngd_seq_fail(seq, status, diag);
}

static void fail_starved(struct ngd_model *model, const struct ngd_diag *diag)
{
    struct ngd_list *l;

    do {
        ngd_mutex_lock(&model->lock);
        l = ngd_list_pop_front(&model->starved);
        ngd_mutex_unlock(&model->lock);
        if (l)
            ngd_seq_fail(ngd_container_of(l, struct ngd_seq, link), NGD_ERR_CANCELLED, diag);
    } while (l);
}

/* The scheduler stops: everything that waits is answered, and the item gives up its reference. */
static void abort_all(struct ngd_model *model)
{
    struct ngd_diag diag;
    bool more;

    ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the scheduler stopped before this step began");
    do {
        fail_starved(model, &diag);
        fail_ready(model, NGD_PREFILL, NGD_ERR_CANCELLED, &diag);
        fail_ready(model, NGD_DECODE, NGD_ERR_CANCELLED, &diag);
        ngd_mutex_lock(&model->lock);
        more = model->n_ready[NGD_PREFILL] || model->n_ready[NGD_DECODE];
        model->scheduled = more;
        ngd_mutex_unlock(&model->lock);
    } while (more);
    ngd_model_unref(model);
}

/*
 * The model waits in the name of the sequence that has waited longest. That one may go while the item is queued: the
 * item has a reference of its own to the share.
 */
static void choose_share(struct ngd_model *model)
{
    struct ngd_share *share = model->sched->own_share;
    int kind;

    ngd_mutex_lock(&model->lock);
    kind = model->n_ready[NGD_DECODE] ? NGD_DECODE : NGD_PREFILL;
    if (model->n_ready[kind])
        share = ngd_container_of(model->ready[kind].next, struct ngd_seq, link)->share;
    share = ngd_share_ref(share);
    ngd_mutex_unlock(&model->lock);
    ngd_share_unref(model->item_share);
    model->item_share = share;
    model->item.account = &share->accounts[model->queue->index];
}

/* Of a model whose `scheduled` is set. */
static void push_item(struct ngd_model *model)
{
    model->item.arrival = ngd_now();
    choose_share(model);
    if (ngd_queue_push(model->queue, &model->item, NULL))
        abort_all(model);
}

static bool has_work_locked(struct ngd_model *model) NGD_REQUIRES(model->lock)
{
    return model->n_ready[NGD_PREFILL] || model->n_ready[NGD_DECODE] || !ngd_list_empty(&model->starved);
}

void ngd_model_kick(struct ngd_model *model)
{
    bool kick;

    ngd_mutex_lock(&model->lock);
    kick = !model->scheduled && has_work_locked(model);
    if (kick) {
        model->scheduled = true;
        ngd_model_ref(model);
    }
    ngd_mutex_unlock(&model->lock);
    if (kick)
        push_item(model);
}

static void requeue(struct ngd_model *model, struct ngd_seq *seq, bool front)
{
    struct ngd_diag diag;
    bool stopped;

    ngd_mutex_lock(&model->lock);
    stopped = seq->cancelled || seq->closed;
    if (!stopped)
        ngd_seq_ready_locked(model, seq, front);
    ngd_mutex_unlock(&model->lock);
    if (stopped) {
        ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the sequence's operation was cancelled");
        ngd_seq_fail(seq, NGD_ERR_CANCELLED, &diag);
    } else {
        ngd_model_kick(model);
    }
}

void ngd_model_enqueue(struct ngd_model *model, struct ngd_seq *seq)
{
    requeue(model, seq, false);
}

/* ---- launches ----------------------------------------------------------------------------------------- */

#define STAGED(model, role, type) ((type *)(model)->staging.data[NGD_ROLE_##role])

/* One token row of a sequence: where it stands, and where its key and value go. */
static void put_row(struct ngd_model *model, uint32_t row, const struct ngd_seq *seq, uint32_t position, int32_t token)
{
    uint32_t size = model->params.block_size;

    STAGED(model, TOKENS, int32_t)[row] = token;
    STAGED(model, POSITIONS, int32_t)[row] = (int32_t)position;
    STAGED(model, SLOTS, int32_t)[row] = seq->blocks[position / size] * (int32_t)size + (int32_t)(position % size);
}

/* What past a sequence's blocks is left in its row of the table is never read: its context ends before. */
static void put_seq(struct ngd_model *model, const struct ngd_roles *roles, uint32_t i, const struct ngd_seq *seq,
                    uint32_t last_row, uint32_t context)
{
    memcpy(STAGED(model, TABLE, int32_t) + (size_t)i * roles->table_width, seq->blocks,
           seq->n_blocks * sizeof(int32_t));
    STAGED(model, QUERY_LENS, int64_t)[i] = (int64_t)last_row + 1;
    STAGED(model, CONTEXT_LENS, int64_t)[i] = context;
    if (model->staging.data[NGD_ROLE_LOGITS_ROWS])
        STAGED(model, LOGITS_ROWS, int32_t)[i] = (int32_t)last_row;
}

static void put_sampling(struct ngd_model *model, uint32_t result, const struct ngd_seq *seq)
{
    const struct ngd_sampling *s = &seq->sampling;

    if (!model->staging.data[NGD_ROLE_TEMPERATURE])
        return;
    STAGED(model, TEMPERATURE, float)[result] = s->temperature;
    STAGED(model, TOP_K, int32_t)[result] = s->top_k;
    STAGED(model, TOP_P, float)[result] = s->top_p > 0.0f ? s->top_p : 1.0f;
    STAGED(model, SEED, int64_t)[result] = (int64_t)s->seed;
    STAGED(model, OFFSET, int64_t)[result] = (int64_t)seq->draws;
}

/* How long the inputs and outputs are this time. */
static void size_launch(struct ngd_model *model, struct ngd_model_graph *mg, uint32_t rows, uint32_t seqs, bool token,
                        bool logits)
{
    uint64_t results = mg->roles.result_per_row ? rows : seqs;
    const uint64_t counts[] = {
        [NGD_PER_ROW] = rows,
        [NGD_PER_SEQ] = seqs,
        [NGD_PER_SEQ_TABLE] = (uint64_t)seqs * mg->roles.table_width,
        [NGD_PER_RESULT] = results,
        [NGD_PER_RESULT_VOCAB] = results * model->params.vocab,
    };

    for (ngd_role_t role = 0; role < NGD_ROLE_MAX; role++) {
        const struct ngd_role_info *info = &ngd_role_infos[role];
        uint64_t bytes = counts[info->shape] * ngd_dtype_bytes(info->dtype);
        bool want = role == NGD_ROLE_TOKEN ? token : logits;
        int i = mg->roles.index[role];

        if (i < 0)
            continue;
        if (info->kind == NGD_ROLE_INPUT)
            mg->inputs[i].bytes = bytes;
        else if (info->kind == NGD_ROLE_HOST)
            mg->hosts[i].n = seqs;
        else
            mg->outputs[i] = (struct ngd_out){want ? model->staging.data[role] : NULL, want ? bytes : 0};
    }
    model->launch.inputs = mg->inputs;
    model->launch.hosts = mg->hosts;
    model->launch.outputs = mg->outputs;
}

static ngd_status_t replay(struct ngd_model *model, struct ngd_slot *slot, int kind, struct ngd_gcache_entry *entry,
                           uint32_t rows)
{
    struct ngd_binding *binding = model->graphs[kind].binding;
    struct ngd_executable *x = ngd_entry_executable(entry);
    int64_t symbol = rows;
    ngd_status_t status;

    model->launch.symbols = &symbol;
    model->launch.eager = binding->prog->options.force_eager;
    status = ngd_replay_run(slot, binding, x, &model->launch);
    model->launch.symbols = NULL;
    return status;
}

/* ---- decode ------------------------------------------------------------------------------------------- */

/* Takes up to max sequences that can make a step now; those that cannot are answered. */
static uint32_t form_batch(struct ngd_model *model, uint32_t max)
{
    uint32_t n = 0;

    while (n < max) {
        struct ngd_seq *seq = take(model, NGD_DECODE);

        if (!seq)
            break;
        if (seq->op == NGD_SEQ_GENERATE && !ngd_seq_generate_on(seq))
            continue;
        if (ngd_seq_grow(seq, seq->position + 1))
            model->batch[n++] = seq;
    }
    return n;
}

/* The token is in the graph's hands, and one outside the vocabulary would fail the next batch for all. */
static ngd_status_t check_chosen(const struct ngd_model *model, int32_t token, struct ngd_diag *diag)
{
    if (token >= 0 && (uint32_t)token < model->params.vocab)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_TOKEN_RANGE,
                        "the graph of model \"%.64s\" chose token %d, outside its vocabulary of %u", model->name,
                        (int)token, (unsigned)model->params.vocab);
}

static void choose_token(struct ngd_seq *seq, int32_t token)
{
    ngd_mutex_lock(&seq->model->lock);
    seq->chosen = token;
    seq->delivered = false;
    seq->draws++;
    ngd_mutex_unlock(&seq->model->lock);
}

static void finish_row(struct ngd_model *model, uint32_t i, uint32_t way, struct ngd_step_result *result)
{
    struct ngd_seq *seq = model->batch[i];
    int32_t token = STAGED(model, TOKEN, int32_t)[i];
    struct ngd_diag diag;
    ngd_status_t status = check_chosen(model, token, &diag);

    if (status) {
        ngd_seq_fail(seq, status, &diag);
        return;
    }
    result->queue -= seq->ready;
    ngd_seq_advance(seq, 1, way);
    choose_token(seq, token);
    if (seq->op == NGD_SEQ_STEP) {
        if (model->staging.data[NGD_ROLE_LOGITS])
            result->logits = STAGED(model, LOGITS, float) + (size_t)i * model->params.vocab;
        ngd_seq_finish_step(seq, result);
        return;
    }
    ngd_metric_observe(NGD_M_STEP_SECONDS, ngd_now() - seq->ready);
    if (ngd_seq_generate_on(seq))
        requeue(model, seq, false);
}

static bool fill_decode(struct ngd_model *model, uint32_t n)
{
    const struct ngd_roles *roles = &model->graphs[NGD_DECODE].roles;
    bool logits = false;

    for (uint32_t i = 0; i < n; i++) {
        struct ngd_seq *seq = model->batch[i];

        seq->tokens[seq->position] = seq->forced >= 0 ? seq->forced : seq->chosen;
        put_row(model, i, seq, seq->position, seq->tokens[seq->position]);
        put_seq(model, roles, i, seq, i, seq->position + 1);
        put_sampling(model, i, seq);
        logits |= seq->want_logits;
    }
    return logits;
}

static void count_batch(struct ngd_model *model, uint32_t n)
{
    atomic_fetch_add_explicit(&model->batches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&model->tokens_decode, n, memory_order_relaxed);
    ngd_metric_inc(NGD_M_BATCHES);
    ngd_metric_add(NGD_M_BATCHED_ROWS, n);
    ngd_metric_add(NGD_M_TOKENS_DECODE, n);
}

static void run_decode(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry, uint32_t max)
{
    uint32_t n = form_batch(model, max), way = ngd_model_way(model, NGD_DECODE, max);
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status;

    if (!n)
        return;
    size_launch(model, &model->graphs[NGD_DECODE], n, n, true, fill_decode(model, n));
    status = replay(model, slot, NGD_DECODE, entry, n);
    for (uint32_t i = 0; i < n; i++)
        charge(model, model->batch[i], model->launch.device_time / n);
    if (!status)
        count_batch(model, n);
    for (uint32_t i = 0; i < n; i++) {
        struct ngd_step_result result = {.batch = n, .queue = begin, .device = model->launch.device_time};

        if (status)
            ngd_seq_fail(model->batch[i], status, &model->launch.diag);
        else
            finish_row(model, i, way, &result);
    }
}

/* ---- prefill ------------------------------------------------------------------------------------------ */

static void fill_prefill(struct ngd_model *model, const struct ngd_seq *seq, uint32_t rows)
{
    const struct ngd_roles *roles = &model->graphs[NGD_PREFILL].roles;

    for (uint32_t i = 0; i < rows; i++)
        put_row(model, i, seq, seq->position + i, seq->tokens[seq->position + i]);
    put_seq(model, roles, 0, seq, rows - 1, seq->position + rows);
    for (uint32_t i = 0; i < (roles->result_per_row ? rows : 1); i++)
        put_sampling(model, i, seq);
}

static void finish_prompt(struct ngd_model *model, struct ngd_seq *seq, uint32_t rows, ngd_nsec_t begin)
{
    uint32_t last = model->graphs[NGD_PREFILL].roles.result_per_row ? rows - 1 : 0;
    int32_t token = STAGED(model, TOKEN, int32_t)[last];
    struct ngd_step_result result = {.batch = 1, .queue = begin - seq->asked, .device = model->launch.device_time};
    struct ngd_diag diag;
    ngd_status_t status = check_chosen(model, token, &diag);

    if (status) {
        ngd_seq_fail(seq, status, &diag);
        return;
    }
    if (model->staging.data[NGD_ROLE_LOGITS])
        result.logits = STAGED(model, LOGITS, float) + (size_t)last * model->params.vocab;
    choose_token(seq, token);
    atomic_fetch_add_explicit(&model->tokens_decode, 1, memory_order_relaxed);
    ngd_metric_inc(NGD_M_TOKENS_DECODE);
    ngd_seq_finish_step(seq, &result);
}

static void run_prefill(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry,
                        uint32_t planned)
{
    struct ngd_seq *seq = take(model, NGD_PREFILL);
    ngd_nsec_t begin = ngd_now();
    struct ngd_chunk chunk;
    ngd_status_t status;
    bool last;

    if (!seq)
        return;
    ngd_seq_find_again(seq);
    chunk = ngd_seq_chunk(seq);
    if (chunk.planned != planned) {
        /* The one that the executable was looked up for has been withdrawn. */
        requeue(model, seq, true);
        return;
    }
    if (!ngd_seq_grow(seq, seq->position + chunk.rows))
        return;
    last = seq->position + chunk.rows == seq->fill;
    fill_prefill(model, seq, chunk.rows);
    size_launch(model, &model->graphs[NGD_PREFILL], chunk.rows, 1, last,
                last && seq->op == NGD_SEQ_OPEN && seq->want_logits);
    status = replay(model, slot, NGD_PREFILL, entry, chunk.rows);
    charge(model, seq, model->launch.device_time);
    if (status) {
        ngd_seq_fail(seq, status, &model->launch.diag);
        return;
    }
    atomic_fetch_add_explicit(&model->tokens_prefill, chunk.rows, memory_order_relaxed);
    ngd_metric_add(NGD_M_TOKENS_PREFILL, chunk.rows);
    ngd_seq_advance(seq, chunk.rows, ngd_model_way(model, NGD_PREFILL, chunk.planned));
    if (last && seq->op == NGD_SEQ_OPEN)
        finish_prompt(model, seq, chunk.rows, begin);
    else
        requeue(model, seq, true); /* the oldest prompt first; or the step that the refilled context was needed for */
}

/* ---- the item ----------------------------------------------------------------------------------------- */

/* What to run next, and its number of rows; false: nothing is ready, and the item is no longer scheduled. */
static bool choose(struct ngd_model *model, int *kind_p, uint32_t *rows_p)
{
    bool prefill, decode;

    ngd_mutex_lock(&model->lock);
    prefill = model->n_ready[NGD_PREFILL] > 0;
    decode = model->n_ready[NGD_DECODE] > 0;
    if (prefill && (!decode || model->last_kind == NGD_DECODE)) {
        *kind_p = NGD_PREFILL;
        *rows_p = ngd_seq_chunk(ngd_container_of(model->ready[NGD_PREFILL].next, struct ngd_seq, link)).planned;
    } else if (decode) {
        *kind_p = NGD_DECODE;
        *rows_p = model->n_ready[NGD_DECODE] < model->max_batch ? model->n_ready[NGD_DECODE] : model->max_batch;
    } else {
        model->scheduled = false;
    }
    ngd_mutex_unlock(&model->lock);
    return prefill || decode;
}

/* Pins the executable for so many rows, or starts its capture; the item comes back when that is done. */
static struct ngd_gcache_entry *look_up(struct ngd_model *model, int kind, uint32_t rows)
{
    struct ngd_program *prog = ngd_binding_program(model->graphs[kind].binding);
    struct ngd_gcache_entry *entry;
    struct ngd_diag diag = {0};
    int64_t symbol = rows;
    int reason;
    ngd_status_t status = ngd_program_key(prog, &symbol, 1, &model->capture_key, &diag);

    if (status) {
        /* The contract's check has excluded it: a graph that takes one row and max_rows takes what is between. */
        fail_ready(model, kind, status, &diag);
        push_item(model);
        return NULL;
    }
    ngd_program_note_sizes(prog, &symbol);
    entry = ngd_program_lookup(prog, &model->capture_key, &reason);
    if (entry) {
        ngd_metric_inc(NGD_M_CACHE_HITS);
        return entry;
    }
    ngd_program_note(prog, ngd_miss_events[reason], &model->capture_key, 0, "%s",
                     ngd_event_infos[ngd_miss_events[reason]].help);
    ngd_metric_row_add(prog->sched->miss_rows[reason], 1);
    model->capture_kind = kind;
    if (!ngd_captures_push(&model->sched->captures, &model->capture))
        abort_all(model);
    return NULL;
}

void ngd_model_capture_run(struct ngd_capture_job *job)
{
    struct ngd_model *model = ngd_container_of(job, struct ngd_model, capture);
    struct ngd_program *prog = ngd_binding_program(model->graphs[model->capture_kind].binding);
    struct ngd_gcache_entry *entry = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_program_capture(prog, &model->capture_key, &entry, NULL, &diag);

    if (status)
        fail_ready(model, model->capture_kind, status, &diag);
    else
        ngd_gcache_put(entry);
    push_item(model);
}

void ngd_model_capture_abort(struct ngd_capture_job *job)
{
    abort_all(ngd_container_of(job, struct ngd_model, capture));
}

/* To the back of the queue, or out of it. */
static void end_turn(struct ngd_model *model)
{
    bool more;

    ngd_mutex_lock(&model->lock);
    more = has_work_locked(model);
    model->scheduled = more;
    ngd_mutex_unlock(&model->lock);
    if (more)
        push_item(model);
    else
        ngd_model_unref(model);
}

static void model_run(struct ngd_sched_item *item, struct ngd_slot *slot)
{
    struct ngd_model *model = ngd_container_of(item, struct ngd_model, item);
    struct ngd_gcache_entry *entry;
    uint32_t rows = 0;
    int kind = NGD_DECODE;

    ngd_model_unstarve(model);
    if (!choose(model, &kind, &rows)) {
        ngd_model_unref(model);
        return;
    }
    entry = look_up(model, kind, rows);
    if (!entry)
        return;
    if (kind == NGD_PREFILL)
        run_prefill(model, slot, entry, rows);
    else
        run_decode(model, slot, entry, rows);
    model->last_kind = kind;
    ngd_gcache_put(entry);
    end_turn(model);
}

static void model_abort(struct ngd_sched_item *item)
{
    abort_all(ngd_container_of(item, struct ngd_model, item));
}

const struct ngd_sched_item_ops ngd_model_item_ops = {
    .run = model_run,
    .abort = model_abort,
};
