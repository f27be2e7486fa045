/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When KV blocks run out and the model's policy is `preempt`: another sequence gives up its blocks and computes them
 * again when its turn comes. Its client sees latency, nothing else; its tokens are kept.
 *
 *   claims       operations are ordered: the more urgent class first, in it what was asked for first. The order does
 *                not change while they last. Between operations a sequence has no claim
 *   who asks     a sequence asks for all blocks that it needs until its next token is chosen, and gets all or none of
 *                them, beside those that it has. None, as long as one with a better claim waits for blocks
 *   who gives    idle sequences, and waiting ones with a worse claim; the least urgent class first, in it the one that
 *                has been idle longest, then the worst claim. Nobody, unless it suffices; and nobody without whom it
 *                suffices too
 *   who waits    the one that asked in vain, and the waiting one that gave: aside (starved), with what blocks it has,
 *                until a worker's next turn. Then those that wait ask again, the best claim first
 *
 * All operations end, since that with the best claim does: nobody takes from it, since who takes has a better claim. If
 * it asks in vain, sequences that are RUNNING have what it needs: others of its batch, or a prompt's chunk. Those stop,
 * with the replay or the chunk, and when it asks next everybody gives, so that it lacks nothing but what the model does
 * not have, which is refused (KV_EXHAUSTED). When it has ended, another one's claim is the best.
 *
 * A cap (lineup/cap.h) does not hold a sequence that has blocks while one with a worse claim waits for some: it goes
 * on, and its share pays, so that its cap stays closed for longer. The other one would wait for the cap too. To take
 * the blocks instead would cost the capped one its context each time the cap closes, and it might never end.
 *
 * No two rob each other in turn: one of them has the worse claim. How often an operation is robbed is bounded: each
 * time one with a better claim asks, which it does when its context gets to another block, or when it has been robbed
 * itself; that with the best claim never is, and what the others lose follows, claim by claim. Nor does one that has
 * given find, when it asks again, that worse ones have taken what had become free meanwhile.
 *
 * Clients that step more sequences in turn than there are blocks for still have contexts computed again for each step.
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

    return seq != needy && seq->n_blocks && (seq_is_idle(seq) || (waits && has_better_claim(needy, seq)));
}

/* Of two that could give, which one rather does. */
static bool rather(const struct ngd_seq *a, const struct ngd_seq *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (seq_is_idle(a) != seq_is_idle(b))
        return seq_is_idle(a);
    return seq_is_idle(a) ? a->claim < b->claim : a->claim > b->claim;
}

/* Of those that are not chosen yet; NULL: there is no other. */
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
 * So many blocks more shall be free, or nobody gives. Blocks that sequences share become free when all of them give, so
 * what they would give is found out by supposing that they had. Then, from the one that is asked last on, those are
 * spared without whom it suffices.
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
        gain += ngd_kv_assume_released(model->kv, seq->blocks, seq->n_blocks);
    }
    enough = gain >= wanted;
    ngd_list_for_each_safe (l, next, &giving) {
        seq = ngd_container_of(l, struct ngd_seq, giving);
        gain -= ngd_kv_unassume(model->kv, seq->blocks, seq->n_blocks);
        if (enough && gain < wanted)
            gain += ngd_kv_assume_released(model->kv, seq->blocks, seq->n_blocks);
        else
            ngd_list_remove(l);
    }
    while (!ngd_list_empty(&giving)) {
        seq = ngd_container_of(ngd_list_pop_front(&giving), struct ngd_seq, giving);
        (void)ngd_kv_unassume(model->kv, seq->blocks, seq->n_blocks);
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

    return seq->n_blocks && first && has_better_claim(seq, first);
}

bool ngd_seq_asks_too_much(const struct ngd_seq *seq)
{
    return ngd_model_blocks_for(seq->model, ngd_seq_tokens_wanted(seq)) > seq->model->params.num_blocks;
}

/* KV_EXHAUSTED: not now. */
static ngd_status_t ask_for_blocks_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock)
{
    const uint32_t tokens = ngd_seq_tokens_wanted(seq), need = ngd_model_blocks_for(model, tokens) - seq->n_blocks,
                   spare = ngd_kv_total(model->kv) - ngd_kv_used(model->kv);

    if (better_one_waits_locked(model, seq))
        return NGD_ERR_KV_EXHAUSTED;
    if (need > spare)
        let_give_locked(model, seq, need - spare);
    return ngd_seq_reserve_locked(model, seq, tokens, NULL);
}

bool ngd_seq_get_blocks_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    const bool had_none = !seq->n_blocks;
    ngd_status_t status;

    if (ngd_seq_has_blocks(seq, ngd_seq_tokens_wanted(seq)))
        return true;
    if (had_none)
        ngd_seq_share_prefix_locked(model, seq); /* what it can find again need not be computed */
    status = ask_for_blocks_locked(model, seq);
    if (status && had_none)
        ngd_seq_release_blocks_locked(model, seq);
    return !status;
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

void ngd_model_unstarve(struct ngd_model *model)
{
    struct ngd_seq *seq;

    ngd_mutex_lock(&model->lock);
    while ((seq = ngd_model_first_starved_locked(model)) && ngd_seq_get_blocks_locked(model, seq)) {
        ngd_list_remove(&seq->link);
        ngd_seq_ready_locked(model, seq);
    }
    ngd_mutex_unlock(&model->lock);
}
