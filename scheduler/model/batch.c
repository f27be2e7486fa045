/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: a model as an item of the run queue. When a worker takes the item, it makes one replay of what is ready: a
 * slice of a chunk of prompts (prompt.c), rows that steps had computed and that are computed again (again.c), or one
 * decode step of as many sequences as the decode graph takes (decode.c). Steps and the other two alternate if both
 * wait, as far as the pace (prompt_pace.h) lets prompts run. If more is ready afterwards, the model goes to the back of
 * the queue, so that other work of the device gets its turn.
 *
 * The item is in the queue at most once (`scheduled`). So two workers never run a model's sequences at the same time,
 * which the shared KV states do not allow. A chunk that is paused during a step writes only to blocks of its own
 * sequences.
 *
 * The executable is looked up and pinned before sequences are taken. If it is missing (dropped after a fault, or
 * evicted), the model waits for a capture with all of its sequences still in their lists.
 */
#include "scheduler/model/model_int.h"

static struct ngd_account *seq_account(const struct ngd_seq *seq)
{
    return &seq->share->accounts[seq->model->queue->index];
}

/* Counts device time as used by the sequence's share. */
static void charge_use(struct ngd_seq *seq, ngd_nsec_t time)
{
    ngd_share_use(seq->model->queue, seq_account(seq), time);
    ngd_program_charge_ranks(ngd_binding_program(seq->model->graphs[NGD_DECODE].binding), seq->share, time);
}

/* Advances the virtual time of the sequence's share, which decides when its next turn is. */
static void charge_turn(struct ngd_seq *seq, ngd_nsec_t time)
{
    ngd_queue_charge(seq->model->queue, seq_account(seq), time);
}

/*
 * Each member's share has used its part. A step's payer is charged for the whole turn, since the step would have taken
 * nearly as long without the others: if each paid its part only, the payer's next turn would be as early. The time of
 * prompts grows with their rows, so there each pays its own.
 */
void ngd_model_charge(struct ngd_model *model, struct ngd_seq *const *seqs, uint32_t n, bool step, ngd_nsec_t time)
{
    const uint32_t ranks = ngd_binding_ranks(model->graphs[NGD_DECODE].binding);
    struct ngd_seq *payer = NULL;
    uint32_t rows = 0, from = 0;

    for (uint32_t i = 0; i < n; i++) {
        rows += seqs[i]->rows;
        if (step && !payer && seqs[i]->share == model->item_share)
            payer = seqs[i];
    }
    if (payer)
        charge_turn(payer, time);
    for (uint32_t i = 0; i < n; i++) {
        const ngd_nsec_t part = ngd_usage_part(time, from, seqs[i]->rows, rows);

        from += seqs[i]->rows;
        charge_use(seqs[i], part);
        if (!payer)
            charge_turn(seqs[i], part);
        ngd_usage_add(seqs[i]->usage, part * ranks);
    }
}

void ngd_seq_note_split(struct ngd_seq *seq, ngd_nsec_t began, const struct ngd_split *parts)
{
    for (int i = 0; i < NGD_SPLIT_PARTS; i++)
        seq->split.part[i] += parts->part[i];
    if (began > seq->waits_since)
        seq->split.part[NGD_SPLIT_QUEUE] += began - seq->waits_since;
    seq->waits_since = ngd_now();
}

/* ---- ready lists -------------------------------------------------------------------------------------- */

/*
 * Returns the key that orders a ready list. A step's is the time at which it became ready. A prompt's is the time at
 * which its work could be done: a short prompt does not wait for a long one that came a little earlier, and the long
 * one does not wait for those that come after that time. Each less urgent class counts as if it had come
 * NGD_PRIORITY_AGE_STEP later: it waits behind the others for that long, but not forever.
 */
static ngd_nsec_t turn_of(const struct ngd_model *model, const struct ngd_seq *seq, int kind)
{
    const ngd_nsec_t behind = (ngd_nsec_t)seq->priority * NGD_PRIORITY_AGE_STEP;

    if (kind != NGD_PREFILL)
        return seq->ready + behind;
    return seq->asked + behind + (ngd_nsec_t)(seq->fill - seq->position) * model->row_time;
}

/* Inserts by turn. Searches from the end, since most sequences come after those that wait. */
static void insert_by_turn(struct ngd_list *list, struct ngd_seq *seq)
{
    struct ngd_list *at = list;

    while (at->prev != list && ngd_container_of(at->prev, struct ngd_seq, link)->turn > seq->turn)
        at = at->prev;
    ngd_list_insert_before(at, &seq->link);
}

void ngd_seq_ready_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    int kind = NGD_DECODE;

    /* A step that needs more blocks than the model has is refused where steps run, and needs no context before that. */
    if (seq->op == NGD_SEQ_OPEN || (seq->position < seq->fill && !ngd_seq_asks_too_much(seq)))
        kind = NGD_PREFILL;
    seq->ready = ngd_now();
    if (ngd_cap_open_at(seq_account(seq)) > seq->ready && !ngd_seq_is_in_the_way_locked(model, seq))
        kind = NGD_HELD;
    seq->state = NGD_SEQ_READY;
    seq->ready_kind = kind;
    seq->turn = turn_of(model, seq, kind);
    insert_by_turn(&model->ready[kind], seq);
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

struct ngd_seq *ngd_model_take(struct ngd_model *model, int kind)
{
    struct ngd_seq *seq;

    ngd_mutex_lock(&model->lock);
    seq = pop_ready_locked(model, kind);
    if (seq)
        seq->state = NGD_SEQ_RUNNING;
    ngd_mutex_unlock(&model->lock);
    return seq;
}

/*
 * Returns the sequence that a turn begins with: one of the share that pays for the turn, else the first in the list.
 * A replay has room for few prompts, so every second one begins with the first in the list. Otherwise the prompts of a
 * share that seldom pays would wait forever.
 */
static struct ngd_seq *first_of_turn_locked(struct ngd_model *model, int kind) NGD_REQUIRES(model->lock)
{
    if (ngd_list_empty(&model->ready[kind]))
        return NULL;
    ngd_list_for_each (l, &model->ready[kind]) {
        struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);

        if (kind == NGD_PREFILL && model->oldest_prompt_next)
            return seq;
        if (seq->share == model->item_share)
            return seq;
    }
    return ngd_container_of(model->ready[kind].next, struct ngd_seq, link);
}

struct ngd_seq *ngd_model_take_first(struct ngd_model *model, int kind)
{
    struct ngd_seq *seq;

    ngd_mutex_lock(&model->lock);
    seq = first_of_turn_locked(model, kind);
    if (seq) {
        ngd_seq_unready_locked(model, seq);
        seq->state = NGD_SEQ_RUNNING;
    }
    ngd_mutex_unlock(&model->lock);
    return seq;
}

static bool is_ready_locked(struct ngd_model *model) NGD_REQUIRES(model->lock)
{
    return model->n_ready[NGD_PREFILL] || model->n_ready[NGD_DECODE];
}

/* Fails all sequences that wait for a replay of this kind. */
static void fail_ready(struct ngd_model *model, int kind, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_seq *seq;

    while ((seq = ngd_model_take(model, kind)))
        ngd_seq_fail(seq, status, diag);
}

/* Takes a sequence that waits for blocks; NULL: there is none. */
static struct ngd_seq *take_starved(struct ngd_model *model)
{
    struct ngd_seq *seq = NULL;
    struct ngd_list *l;

    ngd_mutex_lock(&model->lock);
    l = ngd_list_pop_front(&model->starved);
    if (l) {
        seq = ngd_container_of(l, struct ngd_seq, link);
        seq->state = NGD_SEQ_RUNNING; /* who cancels or closes it now does not answer it */
    }
    ngd_mutex_unlock(&model->lock);
    return seq;
}

static void fail_starved(struct ngd_model *model, const struct ngd_diag *diag)
{
    struct ngd_seq *seq;

    while ((seq = take_starved(model)))
        ngd_seq_fail(seq, NGD_ERR_CANCELLED, diag);
}

/* Fails all waiting sequences when the scheduler stops, and drops the item's reference on the model. */
static void abort_all(struct ngd_model *model)
{
    struct ngd_diag diag;
    bool more;

    ngd_diag_set(&diag, NGD_ERR_CANCELLED, "the scheduler stopped before this step began");
    ngd_model_prefill_abort(model, NGD_ERR_CANCELLED, &diag);
    do {
        fail_starved(model, &diag);
        fail_ready(model, NGD_PREFILL, NGD_ERR_CANCELLED, &diag);
        fail_ready(model, NGD_DECODE, NGD_ERR_CANCELLED, &diag);
        fail_ready(model, NGD_HELD, NGD_ERR_CANCELLED, &diag);
        ngd_mutex_lock(&model->lock);
        more = is_ready_locked(model) || model->n_ready[NGD_HELD];
        model->scheduled = more;
        ngd_mutex_unlock(&model->lock);
    } while (more);
    ngd_model_unref(model);
}

/* Returns the first of the sequences that may run now, or NULL. */
static const struct ngd_seq *next_locked(struct ngd_model *model) NGD_REQUIRES(model->lock)
{
    for (int kind = NGD_DECODE; kind >= NGD_PREFILL; kind--)
        if (model->n_ready[kind])
            return ngd_container_of(model->ready[kind].next, struct ngd_seq, link);
    return model->prompt.n ? model->prompt.seqs[0] : ngd_model_first_starved_locked(model);
}

/*
 * Returns the class of the most urgent sequence that may run. first: next_locked's. Ageing is inside the batch
 * (turn_of).
 */
static ngd_priority_t class_locked(struct ngd_model *model, const struct ngd_seq *first) NGD_REQUIRES(model->lock)
{
    ngd_priority_t priority = first->priority;

    for (uint32_t i = 0; i < model->prompt.n; i++)
        if (model->prompt.seqs[i]->priority < priority)
            priority = model->prompt.seqs[i]->priority;
    for (int kind = NGD_DECODE; kind >= NGD_PREFILL; kind--)
        ngd_list_for_each (l, &model->ready[kind]) {
            const struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);

            if (seq->priority < priority)
                priority = seq->priority;
        }
    return priority;
}

/* Shares that are compared with one another at a time. */
struct payers {
    const struct ngd_seq *seqs[32];
    struct ngd_account *accounts[32];
    uint32_t n;
};

/* Reduces the list to the share whose turn comes first. */
static void payers_reduce(struct payers *p, struct ngd_queue *queue, ngd_priority_t priority)
{
    const uint32_t first = ngd_queue_first(queue, p->accounts, p->n, priority);

    p->seqs[0] = p->seqs[first];
    p->accounts[0] = p->accounts[first];
    p->n = 1;
}

static void payers_add(struct payers *p, const struct ngd_seq *seq, ngd_priority_t priority)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->seqs[i]->share == seq->share)
            return;
    if (p->n == sizeof(p->seqs) / sizeof(p->seqs[0]))
        payers_reduce(p, seq->model->queue, priority);
    p->seqs[p->n] = seq;
    p->accounts[p->n++] = seq_account(seq);
}

/*
 * Returns a sequence of the share in whose name the model waits: of those that may run, the one whose turn comes first
 * in the run queue. A share that has used much of the device, or has much queued, delays nobody else's sequences.
 */
static const struct ngd_seq *payer_locked(struct ngd_model *model, const struct ngd_seq *first, ngd_priority_t priority)
    NGD_REQUIRES(model->lock)
{
    struct payers p = {.n = 0};

    payers_add(&p, first, priority);
    for (uint32_t i = 0; i < model->prompt.n; i++)
        payers_add(&p, model->prompt.seqs[i], priority);
    for (int kind = NGD_DECODE; kind >= NGD_PREFILL; kind--)
        ngd_list_for_each (l, &model->ready[kind])
            payers_add(&p, ngd_container_of(l, struct ngd_seq, link), priority);
    if (p.n > 1)
        payers_reduce(&p, model->queue, priority);
    return p.seqs[0];
}

static const struct ngd_seq *first_held_locked(struct ngd_model *model) NGD_REQUIRES(model->lock)
{
    const struct ngd_seq *first = NULL;

    ngd_list_for_each (l, &model->ready[NGD_HELD]) {
        const struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);

        if (!first || ngd_cap_open_at(seq_account(seq)) < ngd_cap_open_at(seq_account(first)))
            first = seq;
    }
    return first;
}

/*
 * Chooses the class and the share in which the model waits in the run queue. If a cap holds all sequences, that is the
 * share whose cap opens first, and only then does its cap hold the item too. The sequence may end while the item is
 * queued: the item has its own reference on the share.
 *
 * The share pays for a turn (ngd_seq_charge_turn), and has a place in it if it has a sequence of the kind that runs.
 * Else a share with few sequences would give its early turns to those of others without losing its place.
 */
static void choose_share(struct ngd_model *model, bool held)
{
    const struct ngd_seq *first, *payer;
    struct ngd_share *share, *old;

    ngd_mutex_lock(&model->lock);
    first = held && !is_ready_locked(model) ? NULL : next_locked(model);
    model->item.uncapped = first != NULL;
    if (!first)
        first = first_held_locked(model);
    model->item.priority = NGD_PRIORITY_NORMAL;
    if (model->item.uncapped)
        model->item.priority = class_locked(model, first);
    else if (first)
        model->item.priority = first->priority;
    payer = model->item.uncapped ? payer_locked(model, first, model->item.priority) : first;
    share = ngd_share_ref(payer ? payer->share : model->sched->own_share);
    old = model->item_share;
    model->item_share = share;
    model->item.account = &share->accounts[model->queue->index];
    ngd_mutex_unlock(&model->lock);
    ngd_share_unref(old);
}

/* Queues the item of a model whose `scheduled` is set. */
static void push_as(struct ngd_model *model, bool held)
{
    model->item.arrival = ngd_now();
    choose_share(model, held);
    if (ngd_queue_push(model->queue, &model->item, NULL))
        abort_all(model);
}

static void push_item(struct ngd_model *model)
{
    push_as(model, false);
}

static bool has_work_locked(struct ngd_model *model) NGD_REQUIRES(model->lock)
{
    return is_ready_locked(model) || model->n_ready[NGD_HELD] || !ngd_list_empty(&model->starved);
}

/*
 * Queues the item again if this sequence, which has become ready, would bring it forward: it is more urgent than the
 * item's class, its share's turn comes before the item's, or the item waits for a share's cap.
 */
static void hurry(struct ngd_model *model, const struct ngd_seq *seq)
{
    bool urgent;

    ngd_mutex_lock(&model->lock);
    urgent = model->scheduled && next_locked(model) && !model->item.uncapped;
    if (model->scheduled && !urgent && seq && seq->state == NGD_SEQ_READY && seq->ready_kind != NGD_HELD)
        urgent = seq->priority < model->item.priority ||
                 ngd_queue_would_overtake(model->queue, seq_account(seq), &model->item);
    ngd_mutex_unlock(&model->lock);
    if (urgent && ngd_queue_remove(model->queue, &model->item))
        push_item(model);
}

void ngd_model_kick(struct ngd_model *model)
{
    bool kick, held;

    ngd_mutex_lock(&model->lock);
    kick = !model->scheduled && has_work_locked(model);
    held = model->scheduled && !model->item.uncapped;
    if (kick) {
        model->scheduled = true;
        ngd_model_ref(model);
    }
    ngd_mutex_unlock(&model->lock);
    if (kick)
        push_item(model);
    else if (held)
        hurry(model, NULL);
}

void ngd_seq_requeue(struct ngd_seq *seq)
{
    struct ngd_model *model = seq->model;
    bool stopped;

    ngd_mutex_lock(&model->lock);
    stopped = seq->cancelled || seq->closed;
    if (!stopped)
        ngd_seq_ready_locked(model, seq);
    ngd_mutex_unlock(&model->lock);
    if (stopped)
        ngd_seq_fail_cancelled(seq);
    else
        ngd_model_kick(model);
}

void ngd_model_enqueue(struct ngd_model *model, struct ngd_seq *seq)
{
    ngd_model_ref(model);
    ngd_seq_ref(seq);
    ngd_seq_requeue(seq); /* may end the operation, and drop its reference */
    hurry(model, seq);
    ngd_seq_unref(seq);
    ngd_model_unref(model);
}

/* ---- chosen tokens ------------------------------------------------------------------------------------ */

void ngd_seq_choose(struct ngd_seq *seq, int32_t token, uint64_t draws, const float *logits)
{
    seq->has_logprobs = seq->want_logprobs && logits;
    if (seq->has_logprobs)
        ngd_logprobs_of(logits, seq->model->params.vocab, token, seq->top, &seq->logprobs);
    ngd_seq_move_mask(&seq->allowed, &seq->next_mask);
    ngd_mutex_lock(&seq->model->lock);
    seq->chosen = token;
    seq->delivered = false;
    seq->draws = draws + 1;
    ngd_mutex_unlock(&seq->model->lock);
}

/* ---- the item ----------------------------------------------------------------------------------------- */

/* What a worker runs in its turn. */
struct turn {
    int kind;        /* rows of contexts (NGD_PREFILL), or a step */
    int graph;       /* that computes them: rows of contexts may be computed again by the decode graph */
    bool goes_on;    /* continues the chunk that is under way */
    bool steps_wait; /* sequences wait for a decode step */
    bool held;       /* all sequences with work are held */
    uint32_t rows;   /* of the executable that it needs, unless it goes on */
};

/*
 * Returns the rows for a decode step: with drafts, unless kernels for so many rows may compute other bits than those
 * for the steps alone.
 */
static uint32_t rows_wanted_locked(struct ngd_model *model) NGD_REQUIRES(model->lock)
{
    const uint32_t most = model->max_batch,
                   steps = model->n_ready[NGD_DECODE] < most ? model->n_ready[NGD_DECODE] : most;
    uint32_t rows = 0;

    ngd_list_for_each (l, &model->ready[NGD_DECODE]) {
        rows += ngd_seq_rows_wanted(ngd_container_of(l, struct ngd_seq, link));
        if (rows >= most)
            break;
    }
    rows = rows < most ? rows : most;
    return ngd_model_way(model, NGD_DECODE, rows) == ngd_model_way(model, NGD_DECODE, steps) ? rows : steps;
}

/*
 * Chooses the graph and the rows to plan for the first prompt that has its blocks or gets them now; no rows: there is
 * none. Prompts before it that get none wait aside. The rows are counted after that, since they depend on which blocks
 * others have computed.
 */
static void plan_prompt_locked(struct ngd_model *model, struct turn *turn) NGD_REQUIRES(model->lock)
{
    turn->rows = 0;
    while (model->n_ready[NGD_PREFILL] > 0) {
        struct ngd_seq *seq = first_of_turn_locked(model, NGD_PREFILL);

        if (ngd_seq_get_blocks_locked(model, seq)) {
            const struct ngd_chunk chunk = ngd_seq_chunk(seq);

            turn->graph = chunk.kind;
            turn->rows = chunk.kind == NGD_PREFILL ? ngd_prompt_rows_locked(model, seq)
                                                   : ngd_again_rows_locked(model, seq, &chunk);
            return;
        }
        ngd_seq_unready_locked(model, seq);
        ngd_seq_starve_locked(model, seq);
    }
}

/* Makes held sequences ready that may run now. False: there is none. */
static bool unhold_seqs_locked(struct ngd_model *model) NGD_REQUIRES(model->lock)
{
    const uint32_t n = model->n_ready[NGD_HELD];

    ngd_list_for_each_safe (l, next, &model->ready[NGD_HELD]) {
        struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);

        if (ngd_cap_open_at(seq_account(seq)) <= ngd_now() || ngd_seq_is_in_the_way_locked(model, seq)) {
            ngd_seq_unready_locked(model, seq);
            ngd_seq_ready_locked(model, seq);
        }
    }
    return model->n_ready[NGD_HELD] < n;
}

/* Chooses what the turn runs. False: nothing is ready. */
static bool choose_turn_locked(struct ngd_model *model, struct turn *turn) NGD_REQUIRES(model->lock)
{
    bool prefill, decode;

    turn->goes_on = model->prompt.n > 0;
    prefill = turn->goes_on || model->n_ready[NGD_PREFILL] > 0;
    decode = model->n_ready[NGD_DECODE] > 0;
    turn->kind = NGD_DECODE;
    if (ngd_pace_may_run(&model->pace, decode) && prefill && (!decode || model->last_kind == NGD_DECODE))
        turn->kind = NGD_PREFILL;
    if (turn->kind == NGD_PREFILL && !turn->goes_on) {
        plan_prompt_locked(model, turn);
        turn->kind = turn->rows ? NGD_PREFILL : NGD_DECODE;
    }
    turn->steps_wait = model->n_ready[NGD_DECODE] > 0; /* prompts may have taken their blocks */
    if (turn->kind == NGD_DECODE) {
        turn->graph = NGD_DECODE;
        turn->rows = rows_wanted_locked(model);
    }
    return turn->kind == NGD_PREFILL || turn->steps_wait;
}

/*
 * Chooses what the turn runs. False: nothing is ready, and unless sequences are held the item is no longer scheduled. A
 * sequence that finds no blocks may wait for those of held sequences, which are made ready then.
 */
static bool choose_turn(struct ngd_model *model, struct turn *turn)
{
    bool something;

    ngd_mutex_lock(&model->lock);
    do
        something = choose_turn_locked(model, turn);
    while (!something && unhold_seqs_locked(model));
    turn->held = !something && model->n_ready[NGD_HELD] > 0;
    model->scheduled = something || turn->held;
    ngd_mutex_unlock(&model->lock);
    return something;
}

/* Pins the executable for the turn. NULL: its capture was started, and the item comes back after it. */
static struct ngd_gcache_entry *pin_or_capture(struct ngd_model *model, const struct turn *turn)
{
    struct ngd_program *prog = ngd_binding_program(model->graphs[turn->graph].binding);
    struct ngd_gcache_entry *entry;
    struct ngd_diag diag = {0};
    const struct ngd_roles *roles = &model->graphs[turn->graph].roles;
    const int64_t sizes[2] = {turn->rows, roles->max_seqs};
    int reason;
    ngd_status_t status = ngd_program_key(prog, sizes, roles->n_symbols, &model->capture_key, &diag);

    if (status) {
        /* The check of the contract excludes this: a graph that takes 1 and max_rows rows takes all numbers between. */
        fail_ready(model, turn->kind, status, &diag);
        push_item(model);
        return NULL;
    }
    ngd_program_note_sizes(prog, sizes);
    entry = ngd_program_lookup(prog, &model->capture_key, &reason);
    if (entry) {
        ngd_metric_inc(NGD_M_CACHE_HITS);
        return entry;
    }
    ngd_program_note(prog, ngd_miss_events[reason], &model->capture_key, 0, "%s",
                     ngd_event_infos[ngd_miss_events[reason]].help);
    ngd_metric_row_add(prog->sched->miss_rows[reason], 1);
    model->capture_kind = turn->graph;
    model->capture_for = turn->kind;
    if (!ngd_captures_push(&model->sched->captures, &model->capture, ngd_program_share(prog)))
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
        fail_ready(model, model->capture_for, status, &diag);
    else
        ngd_gcache_put(entry);
    push_item(model);
}

void ngd_model_capture_abort(struct ngd_capture_job *job)
{
    abort_all(ngd_container_of(job, struct ngd_model, capture));
}

/* Moves the item to the back of the queue, or out of it. */
static void end_turn(struct ngd_model *model)
{
    bool more;

    ngd_mutex_lock(&model->lock);
    more = model->prompt.n || has_work_locked(model);
    model->scheduled = more;
    ngd_mutex_unlock(&model->lock);
    if (more)
        push_item(model);
    else
        ngd_model_unref(model);
}

/* Runs the turn. False: the item waits for a capture, or was given up. */
static bool take_turn(struct ngd_model *model, struct ngd_slot *slot, const struct turn *turn)
{
    struct ngd_gcache_entry *entry;

    if (turn->kind == NGD_PREFILL && turn->goes_on) {
        ngd_model_prefill_on(model, slot, turn->steps_wait);
        return true;
    }
    entry = pin_or_capture(model, turn);
    if (!entry)
        return false;
    if (turn->graph == NGD_PREFILL) {
        ngd_model_prefill(model, slot, entry, turn->rows, turn->steps_wait);
        return true;
    }
    if (turn->kind == NGD_PREFILL)
        ngd_model_compute_again(model, slot, entry, turn->rows);
    else
        ngd_model_decode(model, slot, entry, turn->rows);
    ngd_gcache_put(entry);
    return true;
}

/*
 * Queues an item whose sequences are all held. A sequence that became ready before the item was in the queue could not
 * bring it forward, so this checks again.
 */
static void push_held(struct ngd_model *model)
{
    bool ready;

    ngd_model_ref(model);
    push_as(model, true);
    ngd_mutex_lock(&model->lock);
    ready = is_ready_locked(model);
    ngd_mutex_unlock(&model->lock);
    if (ready)
        hurry(model, NULL);
    ngd_model_unref(model);
}

static void unhold_seqs(struct ngd_model *model)
{
    ngd_mutex_lock(&model->lock);
    (void)unhold_seqs_locked(model);
    ngd_mutex_unlock(&model->lock);
}

static void model_run(struct ngd_sched_item *item, struct ngd_slot *slot)
{
    struct ngd_model *model = ngd_container_of(item, struct ngd_model, item);
    struct turn turn = {0};

    unhold_seqs(model);
    ngd_model_unstarve(model);
    if (!choose_turn(model, &turn)) {
        if (turn.held)
            push_held(model);
        else
            ngd_model_unref(model);
        return;
    }
    if (!take_turn(model, slot, &turn))
        return;
    model->last_kind = turn.kind;
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
