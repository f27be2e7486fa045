/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preemption: if KV blocks run out and the model's policy is `preempt`, another sequence gives up its blocks and
 * computes them again in its turn. Its client only sees latency; its tokens are kept.
 *
 * Claims: operations are ordered by claim. The more urgent class comes first, within a class the earlier operation. The
 * order does not change while they last. Between operations a sequence has no claim.
 *
 * Who asks: a sequence asks for all blocks that it needs until its next token is chosen. It gets all or none, and keeps
 * those that it has. It gets none while a sequence with a better claim waits for blocks.
 *
 * Who gives: idle sequences, and waiting ones with a worse claim. The least urgent class gives first; within it the one
 * that has been idle longest, then the one with the worst claim. Sequences give only if that suffices, and none gives
 * without whom it would suffice.
 *
 * Who waits: a sequence that asked in vain, and a waiting one that gave, wait aside (starved) with the blocks that they
 * have, until a worker's next turn. Then they ask again, the best claim first.
 *
 * Progress: all operations end, since the one with the best claim does. No sequence takes blocks from it, since a taker
 * has a better claim. If it asks in vain, RUNNING sequences have what it needs: others of its batch, or a prompt's
 * chunk. They stop with the replay or the chunk. When it asks next, all others give. If blocks are still missing, the
 * model does not have them, and the operation is refused (KV_EXHAUSTED). When it has ended, another claim is the best.
 *
 * Caps: a cap (lineup/cap.h) does not hold a sequence that has blocks while one with a worse claim waits for blocks.
 * The sequence goes on, and its share pays, so that its cap stays closed for longer. If it were held, the other one
 * would wait for the cap too. If its blocks were taken instead, it would lose its context each time the cap closes, and
 * might never end.
 *
 * Bounds: two sequences do not take blocks from each other in turn, since one of them has the worse claim. An operation
 * loses its blocks a bounded number of times: once each time one with a better claim asks. That one asks when its
 * context reaches another block, or when it has lost its own blocks. The best claim never loses any, so the bound
 * follows claim by claim. And blocks that become free while a sequence that gave waits do not go to worse claims.
 *
 * Clients that step more sequences in turn than there are blocks for still have contexts recomputed for each step.
 */
#include "scheduler/model/model_int.h"

static bool seq_is_idle(const struct ngd_seq *seq)
{
    return seq->op == NGD_SEQ_NONE;
}

static bool has_better_claim(const struct ngd_seq *a, const struct ngd_seq *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->claim < b->claim;
}

/* ---- who gives ---------------------------------------------------------------------------------------- */

static bool could_give(const struct ngd_seq *seq, const struct ngd_seq *needy)
{
    const bool waits = seq->state == NGD_SEQ_READY || seq->state == NGD_SEQ_STARVED;

    return seq != needy && ngd_seq_held(seq) && (seq_is_idle(seq) || (waits && has_better_claim(needy, seq)));
}

/* Returns true if a gives before b. */
static bool rather(const struct ngd_seq *a, const struct ngd_seq *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (seq_is_idle(a) != seq_is_idle(b))
        return seq_is_idle(a);
    return seq_is_idle(a) ? a->claim < b->claim : a->claim > b->claim;
}

/* Returns the next sequence to give, of those that are not chosen yet; NULL: there is none. */
static struct ngd_seq *next_giver_locked(struct ngd_model *model, const struct ngd_seq *needy) NGD_REQUIRES(model->lock)
{
    struct ngd_seq *best = NULL;

    ngd_list_for_each (l, &model->seqs) {
        struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, all_link);

        if (ngd_list_empty(&seq->giving) && could_give(seq, needy) && (!best || rather(seq, best)))
            best = seq;
    }
    return best;
}

static void preempt_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock)
{
    if (seq->state == NGD_SEQ_READY) {
        ngd_seq_unready_locked(model, seq);
        ngd_seq_starve_locked(model, seq);
    }
    ngd_seq_release_blocks_locked(model, seq);
    ngd_metric_inc(NGD_M_PREEMPTIONS);
    atomic_fetch_add_explicit(&model->preemptions, 1, memory_order_relaxed);
}

/*
 * Frees at least `wanted` more blocks, or none. Blocks that sequences share become free only when all of them give, so
 * the gain is found by assuming that they have. Then sequences that are not needed are spared, beginning with the one
 * chosen last.
 */
static void let_give_locked(struct ngd_model *model, const struct ngd_seq *needy, uint32_t wanted)
    NGD_REQUIRES(model->lock)
{
    struct ngd_list giving;
    struct ngd_seq *seq;
    uint32_t gain = 0;
    bool enough;

    ngd_list_init(&giving);
    while (gain < wanted && (seq = next_giver_locked(model, needy))) {
        ngd_list_push_front(&giving, &seq->giving);
        gain += ngd_seq_assume_released(seq);
    }
    enough = gain >= wanted;
    ngd_list_for_each_safe (l, next, &giving) {
        seq = ngd_container_of(l, struct ngd_seq, giving);
        gain -= ngd_seq_unassume(seq);
        if (enough && gain < wanted)
            gain += ngd_seq_assume_released(seq);
        else
            ngd_list_remove(l);
    }
    while (!ngd_list_empty(&giving)) {
        seq = ngd_container_of(ngd_list_pop_front(&giving), struct ngd_seq, giving);
        (void)ngd_seq_unassume(seq);
        preempt_locked(model, seq);
    }
}

/* ---- who asks ----------------------------------------------------------------------------------------- */

struct ngd_seq *ngd_model_first_starved_locked(struct ngd_model *model)
{
    struct ngd_seq *first = NULL;

    ngd_list_for_each (l, &model->starved) {
        struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);

        if (!first || has_better_claim(seq, first))
            first = seq;
    }
    return first;
}

static bool better_one_waits_locked(struct ngd_model *model, const struct ngd_seq *seq) NGD_REQUIRES(model->lock)
{
    const struct ngd_seq *first = ngd_model_first_starved_locked(model);

    return first && has_better_claim(first, seq);
}

bool ngd_seq_is_in_the_way_locked(struct ngd_model *model, const struct ngd_seq *seq)
{
    const struct ngd_seq *first = ngd_model_first_starved_locked(model);

    return ngd_seq_held(seq) && first && has_better_claim(seq, first);
}

bool ngd_seq_asks_too_much(const struct ngd_seq *seq)
{
    return ngd_model_blocks_for(seq->model, ngd_seq_tokens_wanted(seq)) > ngd_kv_total(seq->model->kv);
}

/* Gets all blocks that a sequence needs. KV_EXHAUSTED: it must wait. */
static ngd_status_t ask_for_blocks_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock)
{
    const uint32_t tokens = ngd_seq_tokens_wanted(seq);
    uint32_t need, spare;

    if (better_one_waits_locked(model, seq))
        return NGD_ERR_KV_EXHAUSTED;
    ngd_seq_slide_locked(model, seq, 0);
    need = ngd_seq_lacks(seq, tokens);
    spare = ngd_kv_total(model->kv) - ngd_kv_used(model->kv);
    if (need > spare)
        let_give_locked(model, seq, need - spare);
    return ngd_seq_reserve_locked(model, seq, tokens, NULL);
}

/* spare: only blocks that are free. */
static bool get_blocks_locked(struct ngd_model *model, struct ngd_seq *seq, bool spare) NGD_REQUIRES(model->lock)
{
    const bool had_none = !ngd_seq_held(seq);
    ngd_status_t status;

    if (ngd_seq_has_blocks(seq, ngd_seq_tokens_wanted(seq)))
        return true;
    if (had_none)
        ngd_seq_share_prefix_locked(model, seq); /* blocks that it finds need not be computed */
    status = spare ? ngd_seq_take_spare_locked(model, seq, ngd_seq_tokens_wanted(seq), NULL)
                   : ask_for_blocks_locked(model, seq);
    if (status && had_none)
        ngd_seq_release_blocks_locked(model, seq);
    return !status;
}

bool ngd_seq_get_blocks_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    return get_blocks_locked(model, seq, false);
}

bool ngd_seq_get_spare_blocks_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    return get_blocks_locked(model, seq, true);
}

ngd_status_t ngd_seq_take_spare_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens,
                                       struct ngd_diag *diag)
{
    if (ngd_list_empty(&model->starved))
        return ngd_seq_reserve_locked(model, seq, tokens, diag);
    return ngd_diag_set(diag, NGD_ERR_KV_EXHAUSTED, "other sequences wait for KV blocks");
}

/* ---- who waits ---------------------------------------------------------------------------------------- */

void ngd_seq_starve_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    seq->state = NGD_SEQ_STARVED;
    ngd_list_push_back(&model->starved, &seq->link);
}

/* A step that gave its blocks, and wants more than the model has, does not wait either: it is refused in its turn. */
void ngd_model_unstarve(struct ngd_model *model)
{
    struct ngd_seq *seq;

    ngd_mutex_lock(&model->lock);
    while ((seq = ngd_model_first_starved_locked(model)) &&
           (ngd_seq_asks_too_much(seq) || ngd_seq_get_blocks_locked(model, seq))) {
        ngd_list_remove(&seq->link);
        ngd_seq_ready_locked(model, seq);
    }
    ngd_mutex_unlock(&model->lock);
}
