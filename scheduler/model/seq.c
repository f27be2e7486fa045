/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences: their operations from request to answer. The batches between are in batch.c.
 *
 * An operation holds a reference from its beginning until its last callback has returned. Callbacks are called without
 * a lock, after the sequence has become free (op NONE), so that they may begin the next operation, or close.
 */
#include "base/mem.h"
#include "scheduler/model/model_int.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- life --------------------------------------------------------------------------------------------- */

void ngd_seq_discard(struct ngd_seq *seq)
{
    struct ngd_charge charge = ngd_charge_move(&seq->charge);

    assert(seq->n_counted == 0);
    ngd_share_unref(seq->share);
    ngd_usage_unref(seq->usage);
    ngd_seq_move_mask(&seq->next_mask, NULL);
    ngd_seq_move_mask(&seq->allowed, NULL);
    ngd_sampling_free(&seq->sampling);
    ngd_free(seq->tokens);
    ngd_free(seq->ways);
    ngd_free(seq->pool);
    ngd_free(seq->tables[0].blocks); /* of all groups */
    ngd_free(seq);
    ngd_charge_end(&charge);
}

void ngd_seq_unref(struct ngd_seq *seq)
{
    struct ngd_model *model = seq->model;

    if (atomic_fetch_sub_explicit(&seq->refs, 1, memory_order_acq_rel) != 1)
        return;
    ngd_seq_discard(seq);
    ngd_model_unref(model);
}

struct ngd_seq *ngd_seq_ref(struct ngd_seq *seq)
{
    atomic_fetch_add_explicit(&seq->refs, 1, memory_order_relaxed);
    return seq;
}

static ngd_status_t no_seq_memory(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a sequence");
}

/* Allocates a sequence with room for the whole context, and its sampling parameters, and charges that. */
static ngd_status_t seq_allocate(struct ngd_model *model, const struct ngd_sampling *sampling, struct ngd_payer *payer,
                                 struct ngd_seq **seq_p, struct ngd_diag *diag)
{
    const uint64_t n_tokens = model->params.max_context, size = model->params.block_size,
                   each = n_tokens / size + (n_tokens % size != 0), n_blocks = each * model->n_groups;
    struct ngd_charge charge;
    ngd_status_t status = ngd_charge_begin(&charge, payer,
                                           sizeof(struct ngd_seq) + (n_tokens + n_blocks) * sizeof(int32_t) +
                                               ngd_model_ways_bytes(model) + ngd_sampling_bytes(sampling),
                                           diag);
    struct ngd_seq *seq;

    if (status)
        return status;
    seq = NGD_NEW(struct ngd_seq);
    if (!seq) {
        ngd_charge_end(&charge);
        return no_seq_memory(diag);
    }
    seq->model = model;
    seq->charge = ngd_charge_move(&charge);
    seq->tokens = NGD_NEW_N(int32_t, n_tokens);
    seq->ways = NGD_NEW_N(uint8_t, ngd_model_ways_bytes(model));
    seq->tables[0].blocks = NGD_NEW_N(int32_t, n_blocks);
    if (!seq->tokens || !seq->ways || !seq->tables[0].blocks || !ngd_sampling_copy(sampling, &seq->sampling)) {
        ngd_seq_discard(seq);
        return no_seq_memory(diag);
    }
    for (uint32_t g = 1; g < model->n_groups; g++)
        seq->tables[g].blocks = seq->tables[0].blocks + g * each;
    *seq_p = seq;
    return NGD_OK;
}

ngd_status_t ngd_seq_new(struct ngd_model *model, const int32_t *tokens, uint32_t n,
                         const struct ngd_sampling *sampling, struct ngd_share *share, struct ngd_usage *usage,
                         struct ngd_payer *payer, struct ngd_seq **seq_p, struct ngd_diag *diag)
{
    struct ngd_seq *seq = NULL;
    ngd_status_t status = seq_allocate(model, sampling, payer, &seq, diag);

    if (status)
        return status;
    memcpy(seq->tokens, tokens, n * sizeof(*tokens));
    ngd_list_init(&seq->link);
    ngd_list_init(&seq->all_link);
    ngd_list_init(&seq->giving);
    seq->n_prompt = seq->n_given = seq->fill = n;
    seq->share = ngd_share_ref(share ? share : model->sched->own_share);
    seq->usage = ngd_usage_ref(usage);
    seq->state = NGD_SEQ_IDLE;
    seq->op = NGD_SEQ_OPEN;
    atomic_init(&seq->refs, 2); /* the caller's, and the first operation's */
    *seq_p = seq;
    return NGD_OK;
}

/* ---- the end of an operation -------------------------------------------------------------------------- */

bool ngd_seq_give_back(struct ngd_seq *seq, bool failed, struct ngd_seq_end *end_p)
{
    struct ngd_model *model = seq->model;
    bool closed, starved;

    ngd_mutex_lock(&model->lock);
    *end_p = (struct ngd_seq_end){
        .op = seq->op,
        .done = seq->done,
        .generate_done = seq->generate_done,
        .user = seq->user,
        .waiter = seq->waiter,
        .token = seq->chosen,
        .position = seq->fill,
    };
    if (seq->op == NGD_SEQ_OPEN && failed)
        seq->broken = true;
    seq->op = NGD_SEQ_NONE;
    seq->state = NGD_SEQ_IDLE;
    seq->priority = seq->own_priority;
    seq->cancelled = false;
    seq->user = NULL;
    seq->waiter = NULL;
    closed = seq->closed;
    if (closed || seq->broken)
        ngd_seq_release_blocks_locked(model, seq);
    ngd_seq_uncount_locked(model, seq);
    starved = !ngd_list_empty(&model->starved);
    ngd_mutex_unlock(&model->lock);
    if (starved)
        ngd_model_kick(model);
    return closed;
}

void ngd_seq_end(struct ngd_seq *seq, const struct ngd_seq_end *end)
{
    struct ngd_sched *sched = seq->model->sched;

    if (end->waiter)
        end->waiter->ended(end->waiter);
    ngd_seq_unref(seq);
    ngd_sched_leave(sched);
}

void ngd_seq_fail(struct ngd_seq *seq, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_seq_end end;

    (void)ngd_seq_give_back(seq, true, &end);
    if (end.op == NGD_SEQ_GENERATE) {
        end.generate_done(end.user, seq, NULL, status, diag);
    } else {
        struct ngd_step_result result = {
            .status = status,
            .diag = diag,
            .token = end.token,
            .position = end.position,
            .vocab = seq->model->params.vocab,
        };

        end.done(end.user, seq, &result);
    }
    ngd_seq_end(seq, &end);
}

void ngd_seq_fail_cancelled(struct ngd_seq *seq)
{
    struct ngd_diag diag;

    ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the sequence's operation was cancelled");
    ngd_seq_fail(seq, NGD_ERR_CANCELLED, &diag);
}

static void observe(const struct ngd_seq *seq)
{
    ngd_nsec_t now = ngd_now();

    if (seq->embed)
        ngd_metric_inc(NGD_M_EMBEDDINGS);
    else if (seq->op == NGD_SEQ_OPEN)
        ngd_metric_observe(NGD_M_TTFT_SECONDS, now - seq->asked);
    else
        ngd_metric_observe(NGD_M_STEP_SECONDS, now - seq->ready);
}

void ngd_seq_finish_step(struct ngd_seq *seq, struct ngd_step_result *result)
{
    const struct ngd_split split = seq->split;
    struct ngd_diag diag;
    struct ngd_seq_end end;

    observe(seq);
    result->token = seq->chosen;
    result->stop = ngd_model_is_stop(seq->model, seq->chosen);
    result->position = seq->position;
    result->vocab = seq->model->params.vocab;
    result->shared = seq->shared;
    result->split = seq->want_split ? &split : NULL;
    if (!seq->want_logits)
        result->logits = NULL;
    if (ngd_seq_give_back(seq, false, &end)) {
        result->status = ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the sequence was closed during the step");
        result->diag = &diag;
        result->logits = NULL;
        result->hidden = NULL;
        result->logprobs = NULL;
    }
    end.done(end.user, seq, result);
    ngd_seq_end(seq, &end);
}

static void finish_generate(struct ngd_seq *seq, const char *finish)
{
    struct ngd_diag diag;
    struct ngd_seq_end end;

    if (ngd_seq_give_back(seq, false, &end)) {
        ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the sequence was closed during the generation");
        end.generate_done(end.user, seq, NULL, NGD_ERR_CANCELLED, &diag);
    } else {
        end.generate_done(end.user, seq, finish, NGD_OK, NULL);
    }
    ngd_seq_end(seq, &end);
}

/*
 * Returns the chosen token's logprobs, if the generation wants them, with no more top tokens than it wants. They may
 * come from an earlier operation, which wanted more.
 */
static const struct ngd_logprobs *wanted_logprobs(struct ngd_seq *seq)
{
    if (!seq->want_logprobs || !seq->has_logprobs)
        return NULL;
    if (seq->logprobs.n_top > seq->top)
        seq->logprobs.n_top = seq->top;
    return &seq->logprobs;
}

static bool stops(const struct ngd_seq *seq, int32_t token)
{
    for (uint32_t i = 0; i < seq->n_stop_tokens; i++)
        if (seq->stop_tokens[i] == token)
            return true;
    return !seq->ignore_stop && ngd_model_is_stop(seq->model, token);
}

/* Delivers the token that was chosen with `position` tokens in the context. Returns why the generation ends with it, or
 * NULL. */
static const char *deliver_token(struct ngd_seq *seq, int32_t token, uint32_t position)
{
    seq->on_token(seq->user, seq, token, position, position == seq->fill ? wanted_logprobs(seq) : NULL);
    seq->remaining--;
    if (stops(seq, token))
        return "stop";
    return seq->remaining == 0 ? "length" : NULL;
}

/* Delivers the tokens again that a repeated generation asks for. Returns why it ends with them, or NULL. */
static const char *catch_up(struct ngd_seq *seq)
{
    const char *finish = NULL;

    if (seq->from == NGD_FROM_CHOSEN)
        return NULL;
    if (seq->delivered && stops(seq, seq->chosen))
        finish = "stop";
    for (; !finish && seq->from < seq->fill; seq->from++)
        finish = deliver_token(seq, seq->tokens[seq->from], seq->from);
    seq->from = NGD_FROM_CHOSEN;
    return finish;
}

bool ngd_seq_generate_on(struct ngd_seq *seq)
{
    struct ngd_model *model = seq->model;
    const char *finish = NULL;
    bool stopped;

    ngd_mutex_lock(&model->lock);
    stopped = seq->cancelled || seq->closed;
    ngd_mutex_unlock(&model->lock);
    if (seq->split_p)
        *seq->split_p = seq->split;
    if (stopped) {
        ngd_seq_fail_cancelled(seq);
        return false;
    }
    finish = catch_up(seq);
    if (!finish && !seq->delivered) {
        seq->delivered = true;
        finish = deliver_token(seq, seq->chosen, seq->fill);
    }
    if (!finish && seq->fill >= model->params.max_context)
        finish = "context";
    if (!finish)
        return true;
    finish_generate(seq, finish);
    return false;
}

/* ---- between replays ---------------------------------------------------------------------------------- */

void ngd_seq_unready_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    ngd_list_remove(&seq->link);
    model->n_ready[seq->ready_kind]--;
    ngd_metric_dec(NGD_M_SEQUENCES_WAITING);
    seq->state = NGD_SEQ_IDLE;
}

bool ngd_seq_grow(struct ngd_seq *seq)
{
    struct ngd_model *model = seq->model;
    struct ngd_diag diag = {0};
    ngd_status_t status;
    bool waits = false, stopped;

    ngd_mutex_lock(&model->lock);
    stopped = seq->cancelled || seq->closed;
    status = ngd_seq_count_locked(model, seq, seq->fill + 1, &diag);
    if (!status && !stopped && model->params.preempt && !ngd_seq_asks_too_much(seq)) {
        waits = !ngd_seq_get_blocks_locked(model, seq);
        if (waits)
            ngd_seq_starve_locked(model, seq);
    } else if (!status) {
        status = ngd_seq_reserve_locked(model, seq, seq->fill + 1, &diag);
    }
    ngd_mutex_unlock(&model->lock);
    if (status)
        ngd_seq_fail(seq, status, &diag);
    return !waits && !status;
}

/* ---- open --------------------------------------------------------------------------------------------- */

ngd_status_t ngd_model_check_count_locked(const struct ngd_model *model, struct ngd_diag *diag)
{
    if (model->n_seqs < model->params.max_sequences)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                        "model \"%.64s\" has %" PRIu32 " sequences, which is the limit; close one, or try again later",
                        model->name, model->n_seqs);
}

void ngd_model_enlist_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    model->n_seqs++;
    seq->claim = model->next_claim++;
    ngd_list_push_back(&model->seqs, &seq->all_link);
}

/* Returns true if blocks for so many tokens are taken in the sequence's turn, from other sequences if need be. */
static bool may_preempt_for(const struct ngd_model *model, uint32_t tokens)
{
    return model->params.preempt && ngd_model_blocks_for(model, tokens) <= ngd_kv_total(model->kv);
}

/*
 * Reserves the blocks of a prompt. With preemption they are taken in its turn, and only a prompt that never fits is
 * refused.
 */
static ngd_status_t reserve_prompt_locked(struct ngd_model *model, struct ngd_seq *seq, struct ngd_diag *diag)
    NGD_REQUIRES(model->lock)
{
    if (may_preempt_for(model, seq->n_prompt))
        return NGD_OK;
    return ngd_seq_reserve_locked(model, seq, seq->n_prompt, diag);
}

/* Undoes the admission of a sequence that no other thread knows yet. */
static void abandon_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock)
{
    ngd_seq_release_blocks_locked(model, seq);
    seq->closed = true;
    ngd_seq_uncount_locked(model, seq);
}

static ngd_status_t admit_seq(struct ngd_seq *seq, struct ngd_diag *diag)
{
    struct ngd_model *model = seq->model;
    ngd_status_t status;

    ngd_mutex_lock(&model->lock);
    status = ngd_model_check_count_locked(model, diag);
    if (!status)
        status = ngd_seq_count_locked(model, seq, seq->n_prompt, diag);
    if (!status) {
        ngd_seq_share_prefix_locked(model, seq);
        seq->shared = seq->position;
        status = reserve_prompt_locked(model, seq, diag);
    }
    if (status)
        abandon_locked(model, seq);
    else
        ngd_model_enlist_locked(model, seq);
    ngd_mutex_unlock(&model->lock);
    return status;
}

/* Starts the times of an operation. */
static void start_clock(struct ngd_seq *seq)
{
    seq->asked = seq->waits_since = ngd_now();
    seq->split = (struct ngd_split){0};
}

/* Sets whose operation it is. The lock is for ngd_seq_cancel_of. */
static void set_user(struct ngd_seq *seq, void *user)
{
    ngd_mutex_lock(&seq->model->lock);
    seq->user = user;
    ngd_mutex_unlock(&seq->model->lock);
}

/* Begins a sequence's first operation: its prompt, up to the first token. */
static void begin_open(struct ngd_seq *seq, bool want_logits, ngd_step_fn done, void *user)
{
    struct ngd_model *model = ngd_model_ref(seq->model);

    ngd_metric_inc(NGD_M_SEQUENCES);
    ngd_metric_inc(NGD_M_SEQUENCES_OPENED);
    ngd_metric_add(NGD_M_TOKENS_SHARED, seq->shared);
    atomic_fetch_add_explicit(&model->tokens_shared, seq->shared, memory_order_relaxed);
    seq->want_logits = want_logits;
    seq->done = done;
    set_user(seq, user);
    start_clock(seq);
    ngd_model_enqueue(model, seq);
}

ngd_status_t ngd_seq_open(struct ngd_model *model, const struct ngd_seq_params *params, ngd_step_fn done, void *user,
                          struct ngd_seq **seq_p, struct ngd_diag *diag)
{
    struct ngd_seq *seq = NULL;
    ngd_status_t status = ngd_seq_check_open(model, params, diag);

    if (!status)
        status = ngd_sched_enter(model->sched, diag);
    if (status)
        return status;
    status = ngd_seq_new(model, params->prompt, params->n_prompt, &params->sampling, params->share, params->usage,
                         params->payer, &seq, diag);
    if (seq && !model->params.share_all_prefixes)
        memcpy(seq->root.b, &params->owner, sizeof(params->owner));
    if (!status)
        status = ngd_seq_copy_mask(seq, params->allowed, &seq->next_mask, diag);
    if (!status && params->embed)
        status = ngd_seq_make_pool(seq, diag);
    if (!status)
        status = admit_seq(seq, diag);
    if (status) {
        if (seq)
            ngd_seq_discard(seq);
        ngd_sched_leave(model->sched);
        return status;
    }
    seq->want_logprobs = params->want_logprobs;
    seq->want_split = params->want_split;
    seq->top = params->top;
    seq->priority = seq->own_priority = params->priority;
    *seq_p = seq;
    begin_open(seq, params->want_logits, done, user);
    return NGD_OK;
}

static ngd_status_t check_seq_free_locked(const struct ngd_model *model, const struct ngd_seq *seq, uint64_t room,
                                          struct ngd_diag *diag) NGD_REQUIRES(model->lock)
{
    if (seq->op != NGD_SEQ_NONE)
        return ngd_diag_set(diag, NGD_ERR_SEQUENCE_BUSY,
                            "the sequence has an operation in progress; wait for its answer");
    if (seq->closed)
        return ngd_diag_set(diag, NGD_ERR_STALE_ID, "the sequence was closed");
    if (seq->broken)
        return ngd_diag_set(
            diag, NGD_ERR_INVALID_ARGUMENT,
            "the sequence's prompt was not processed completely, so the sequence cannot continue; close it");
    if (room && seq->fill >= model->params.max_context)
        return ngd_diag_set(diag, NGD_ERR_CONTEXT_FULL,
                            "the sequence has %" PRIu32 " tokens, which fills the model's context", seq->fill);
    if (seq->fill + room > model->params.max_context)
        return ngd_diag_set(diag, NGD_ERR_CONTEXT_FULL,
                            "the step appends up to %" PRIu64
                            " tokens with its draft, but the model's context has room "
                            "for only %" PRIu32,
                            room, model->params.max_context - seq->fill);
    return NGD_OK;
}

/* Returns true if the next operation computes rows that an earlier one left, and can preempt nobody for them. */
static bool must_complete(const struct ngd_seq *seq)
{
    return !seq->model->params.preempt && seq->position < seq->fill;
}

/*
 * Counts, and reserves if nothing is preempted for it, the blocks of `tokens`. Fails if they can never be there, so
 * that the context is not extended by what does not fit.
 */
static ngd_status_t reserve_tokens_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens,
                                          struct ngd_diag *diag) NGD_REQUIRES(model->lock)
{
    ngd_status_t status = ngd_seq_count_locked(model, seq, tokens, diag);

    if (!status && (tokens > seq->fill + 1 || must_complete(seq)) && !may_preempt_for(model, tokens))
        status = ngd_seq_reserve_locked(model, seq, tokens, diag);
    if (status)
        ngd_seq_uncount_locked(model, seq);
    return status;
}

ngd_status_t ngd_seq_begin(struct ngd_seq *seq, ngd_seq_op_t op, uint64_t room, uint32_t sure, ngd_priority_t priority,
                           struct ngd_diag *diag)
{
    struct ngd_model *model = seq->model;
    ngd_status_t status = ngd_sched_enter(model->sched, diag);

    if (status)
        return status;
    ngd_mutex_lock(&model->lock);
    status = check_seq_free_locked(model, seq, room, diag);
    if (!status && op != NGD_SEQ_FORK && (sure || must_complete(seq)))
        status = reserve_tokens_locked(model, seq, sure ? seq->fill + sure : ngd_seq_tokens_wanted(seq), diag);
    if (!status) {
        seq->op = op;
        seq->claim = model->next_claim++;
        seq->priority = priority == NGD_PRIORITY_OWN ? seq->own_priority : priority;
        atomic_fetch_add_explicit(&seq->refs, 1, memory_order_relaxed);
    }
    ngd_mutex_unlock(&model->lock);
    if (status)
        ngd_sched_leave(model->sched);
    else
        start_clock(seq);
    return status;
}

void ngd_step_params_init(struct ngd_step_params *params)
{
    *params = (struct ngd_step_params){.forced = -1, .priority = NGD_PRIORITY_OWN};
}

/* Appends tokens to the context but for the last one, which the step appends. They are computed as a prompt is. */
static void extend_context(struct ngd_seq *seq, const int32_t *tokens, uint32_t n)
{
    ngd_mutex_lock(&seq->model->lock);
    memcpy(seq->tokens + seq->fill, tokens, (n - 1) * sizeof(*tokens));
    seq->part = seq->computed;
    seq->fill += n - 1;
    seq->n_given = seq->fill + 1;
    ngd_mutex_unlock(&seq->model->lock);
}

ngd_status_t ngd_seq_step(struct ngd_seq *seq, const struct ngd_step_params *p, ngd_step_fn done, void *user,
                          struct ngd_diag *diag)
{
    struct ngd_seq_mask mask = {0};
    ngd_status_t status = ngd_seq_check_step(seq->model, p, diag);

    if (!status)
        status = ngd_seq_copy_mask(seq, p->allowed, &mask, diag);
    if (status)
        return status;
    status = ngd_seq_begin(seq, NGD_SEQ_STEP, p->n_append ? p->n_append : (uint64_t)p->n_draft + 1,
                           p->n_append ? p->n_append : 1, p->priority, diag);
    if (status) {
        ngd_seq_move_mask(&mask, NULL);
        return status;
    }
    ngd_seq_move_mask(&seq->next_mask, &mask);
    seq->forced = p->n_append ? p->append[p->n_append - 1] : p->forced;
    if (p->n_append)
        extend_context(seq, p->append, p->n_append);
    seq->n_draft = p->n_draft;
    if (p->n_draft)
        memcpy(seq->tokens + seq->fill + 1, p->draft, p->n_draft * sizeof(*p->draft));
    seq->want_logits = p->want_logits;
    seq->want_logprobs = p->want_logprobs;
    seq->want_split = p->want_split;
    seq->top = p->top;
    seq->done = done;
    set_user(seq, user);
    ngd_model_enqueue(seq->model, seq);
    return NGD_OK;
}

void ngd_generate_params_init(struct ngd_generate_params *params)
{
    *params = (struct ngd_generate_params){.priority = NGD_PRIORITY_OWN};
}

/* Sets where a generation begins. INVALID_ARGUMENT ends the operation that was begun. */
static ngd_status_t set_from(struct ngd_seq *seq, uint32_t from, struct ngd_diag *diag)
{
    struct ngd_seq_end end;
    ngd_status_t status;

    seq->from = from;
    if (from == NGD_FROM_CHOSEN)
        return NGD_OK;
    if (from <= seq->fill + 1) {
        seq->delivered = from > seq->fill;
        return NGD_OK;
    }
    status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                          "the generation is to go on behind %" PRIu32 " tokens, but the sequence has %" PRIu32, from,
                          seq->fill);
    (void)ngd_seq_give_back(seq, false, &end);
    ngd_seq_end(seq, &end);
    return status;
}

ngd_status_t ngd_seq_generate(struct ngd_seq *seq, const struct ngd_generate_params *p, ngd_token_fn on_token,
                              ngd_generate_done_fn done, void *user, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_seq_check_generate(seq->model, p, diag);

    if (!status)
        status = ngd_seq_begin(seq, NGD_SEQ_GENERATE, 0, 0, p->priority, diag);
    if (!status)
        status = set_from(seq, p->from, diag);
    if (status)
        return status;
    ngd_seq_move_mask(&seq->next_mask, NULL);
    seq->forced = -1;
    seq->want_logits = false;
    seq->want_logprobs = p->want_logprobs;
    seq->top = p->top;
    seq->ignore_stop = p->ignore_stop;
    seq->n_stop_tokens = p->n_stop_tokens;
    if (p->n_stop_tokens)
        memcpy(seq->stop_tokens, p->stop_tokens, p->n_stop_tokens * sizeof(*p->stop_tokens));
    seq->remaining = p->max_tokens;
    seq->split_p = p->split;
    seq->on_token = on_token;
    seq->generate_done = done;
    set_user(seq, user);
    ngd_model_enqueue(seq->model, seq);
    return NGD_OK;
}

/* ---- fork --------------------------------------------------------------------------------------------- */

/* Shares the parent's first n blocks, but for those that a window has passed. */
static void share_tables_locked(struct ngd_model *model, struct ngd_seq *child, const struct ngd_seq *parent,
                                uint32_t n) NGD_REQUIRES(model->lock)
{
    for (uint32_t g = 0; g < model->n_groups; g++) {
        struct ngd_seq_table *t = &child->tables[g];

        memcpy(t->blocks, parent->tables[g].blocks, n * sizeof(*t->blocks));
        t->first = parent->tables[g].first;
        t->n = n;
        ngd_kv_ref(model->kv, t->blocks + t->first, n - t->first);
    }
}

static ngd_status_t copy_last_blocks(struct ngd_seq *child, const struct ngd_seq *parent, uint32_t last,
                                     struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t g = 0; g < parent->model->n_groups && !status; g++)
        status =
            ngd_model_copy_block(parent->model, parent->tables[g].blocks[last], child->tables[g].blocks[last], diag);
    return status;
}

/*
 * Gives the child all tokens of the parent and the blocks of all but the last one. The last row is computed again, for
 * the logits that the child's first token is drawn from. That row is written, so its block is a copy of the child's
 * own.
 */
static ngd_status_t take_context(struct ngd_seq *child, const struct ngd_seq *parent, struct ngd_diag *diag)
{
    struct ngd_model *model = child->model;
    const uint32_t size = model->params.block_size, n = parent->fill;
    /* A parent that was preempted, or whose last operation failed, lacks some: the child computes its context. */
    const uint32_t have = parent->position == n ? n - 1 : 0, whole = have / size;
    ngd_status_t status;

    child->n_prompt = parent->n_prompt;
    child->n_given = parent->n_given;
    child->fill = n;
    child->position = have;
    child->draws = parent->draws - 1;
    child->name = parent->name;
    child->n_named =
        parent->n_named <= whole ? parent->n_named : 0; /* if more are named, the name is not the child's */
    child->nameless = parent->nameless || (have && parent->n_named > whole);
    child->computed = parent->computed;
    child->part = parent->part;
    memcpy(child->tokens, parent->tokens, n * sizeof(*child->tokens));
    memcpy(child->ways, parent->ways, ngd_model_ways_bytes(model));
    ngd_mutex_lock(&model->lock);
    status = ngd_model_check_count_locked(model, diag);
    if (!status)
        status = ngd_seq_count_locked(model, child, n, diag);
    if (!status) {
        if (have)
            share_tables_locked(model, child, parent, whole);
        status = ngd_seq_take_spare_locked(model, child, n, diag);
        if (status)
            ngd_seq_release_blocks_locked(model, child);
        child->shared = child->position;
        if (may_preempt_for(model, n))
            status = NGD_OK; /* it computes its context in its turn */
    }
    if (!status)
        ngd_model_enlist_locked(model, child);
    ngd_mutex_unlock(&model->lock);
    if (!status && ngd_seq_held(child) && have % size != 0)
        status = copy_last_blocks(child, parent, whole, diag);
    return status;
}

static void discard_child(struct ngd_seq *child)
{
    struct ngd_model *model = child->model;

    ngd_mutex_lock(&model->lock);
    if (!ngd_list_empty(&child->all_link))
        model->n_seqs--;
    ngd_list_remove(&child->all_link);
    abandon_locked(model, child);
    ngd_mutex_unlock(&model->lock);
    ngd_seq_discard(child);
}

ngd_status_t ngd_seq_fork(struct ngd_seq *seq, const struct ngd_fork_params *params, ngd_step_fn done, void *user,
                          struct ngd_seq **seq_p, struct ngd_diag *diag)
{
    struct ngd_model *model = seq->model;
    struct ngd_seq_end end;
    struct ngd_seq *child = NULL;
    ngd_status_t status = ngd_seq_check_fork(model, params, diag);

    if (!status)
        status = ngd_seq_begin(seq, NGD_SEQ_FORK, 0, 0, NGD_PRIORITY_OWN, diag);
    if (status)
        return status;
    /* During the operation no thread steps the parent or frees its blocks. */
    status =
        ngd_seq_new(model, seq->tokens, 0, &params->sampling, seq->share, seq->usage, seq->charge.payer, &child, diag);
    if (child)
        child->root = seq->root;
    if (!status)
        status = ngd_seq_copy_mask(child, seq->allowed.bits, &child->next_mask, diag);
    if (!status)
        status = take_context(child, seq, diag);
    (void)ngd_seq_give_back(seq, false, &end);
    if (status == NGD_OK) {
        /* The parent's call that was counted by ngd_sched_enter is now the child's. */
        *seq_p = child;
        child->priority = child->own_priority = seq->own_priority;
        child->want_split = params->want_split;
        child->want_logprobs = params->want_logprobs;
        child->top = params->top;
        begin_open(child, params->want_logits, done, user);
    } else {
        if (child)
            discard_child(child);
        ngd_sched_leave(model->sched);
    }
    if (end.waiter)
        end.waiter->ended(end.waiter);
    ngd_seq_unref(seq);
    return status;
}

/* ---- cancel, close ------------------------------------------------------------------------------------ */

/*
 * Withdraws the operation under way. True: it waited, and the caller must answer it. False: there is none, or it runs
 * and was marked as cancelled.
 */
static bool withdraw_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock)
{
    if (seq->op == NGD_SEQ_NONE)
        return false;
    if (seq->state == NGD_SEQ_STARVED) {
        ngd_list_remove(&seq->link);
        seq->state = NGD_SEQ_IDLE; /* who withdraws it at the same time does not answer it, too */
        return true;
    }
    if (seq->state != NGD_SEQ_READY) {
        seq->cancelled = true;
        return false;
    }
    ngd_seq_unready_locked(model, seq);
    return true;
}

void ngd_seq_cancel(struct ngd_seq *seq)
{
    struct ngd_model *model = seq->model;
    bool waited;

    ngd_mutex_lock(&model->lock);
    waited = withdraw_locked(model, seq);
    ngd_mutex_unlock(&model->lock);
    if (waited)
        ngd_seq_fail_cancelled(seq);
}

void ngd_seq_cancel_of(struct ngd_seq *seq, const void *user)
{
    struct ngd_model *model = seq->model;
    bool waited;

    ngd_mutex_lock(&model->lock);
    waited = seq->user == user && withdraw_locked(model, seq);
    ngd_mutex_unlock(&model->lock);
    if (waited)
        ngd_seq_fail_cancelled(seq);
}

ngd_seq_await_t ngd_seq_await(struct ngd_seq *seq, struct ngd_seq_waiter *waiter)
{
    ngd_seq_await_t found = NGD_SEQ_BUSY;

    ngd_mutex_lock(&seq->model->lock);
    if (seq->op == NGD_SEQ_NONE)
        found = NGD_SEQ_FREE;
    else if (seq->cancelled && !seq->waiter)
        found = NGD_SEQ_AWAITED;
    if (found == NGD_SEQ_AWAITED)
        seq->waiter = waiter;
    ngd_mutex_unlock(&seq->model->lock);
    return found;
}

bool ngd_seq_is_closed(struct ngd_seq *seq)
{
    bool closed;

    ngd_mutex_lock(&seq->model->lock);
    closed = seq->closed;
    ngd_mutex_unlock(&seq->model->lock);
    return closed;
}

void ngd_seq_close(struct ngd_seq *seq)
{
    struct ngd_model *model = seq->model;
    bool waited, starved;

    ngd_mutex_lock(&model->lock);
    seq->closed = true;
    model->n_seqs--;
    ngd_list_remove(&seq->all_link);
    waited = withdraw_locked(model, seq);
    if (seq->op == NGD_SEQ_NONE) {
        ngd_seq_release_blocks_locked(model, seq);
        ngd_seq_uncount_locked(model, seq);
    }
    starved = !ngd_list_empty(&model->starved);
    ngd_mutex_unlock(&model->lock);
    if (starved)
        ngd_model_kick(model);
    ngd_metric_dec(NGD_M_SEQUENCES);
    if (waited)
        ngd_seq_fail_cancelled(seq);
    ngd_seq_unref(seq);
}
