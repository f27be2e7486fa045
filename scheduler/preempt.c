/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When KV blocks run out and the model's policy is `preempt`: another sequence gives up its blocks and computes them
 * again when its turn comes. Its client sees latency, nothing else; its tokens are kept.
 *
 *   who gives   the least urgent class first; in it idle sequences before waiting ones, the youngest first. A waiting
 *               one gives only to a more urgent one, or to an older one of its class. So the oldest of the most urgent
 *               that has work always gets on, and with it, one after another, all
 *   who waits   one that finds nobody to take from gives up its own blocks and waits aside (starved) until an operation
 *               ends or a sequence is closed, since that is when there may be more. One that no other keeps from what
 *               it needs has asked for more than there is: KV_EXHAUSTED
 */
#include "scheduler/model_int.h"

/* Of two that could give, which one rather does. */
static bool rather(const struct ngd_seq *a, const struct ngd_seq *b)
{
    const bool a_idle = a->op == NGD_SEQ_NONE, b_idle = b->op == NGD_SEQ_NONE;

    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a_idle != b_idle ? a_idle : a->age > b->age;
}

static bool goes_before(const struct ngd_seq *a, const struct ngd_seq *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->age < b->age;
}

static struct ngd_seq *choose_victim_locked(struct ngd_model *model, const struct ngd_seq *needy)
    NGD_REQUIRES(model->lock)
{
    struct ngd_seq *best = NULL;

    ngd_list_for_each (l, &model->seqs) {
        struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, all_link);
        const bool idle = seq->op == NGD_SEQ_NONE && !seq->broken;

        if (seq == needy || !seq->n_blocks || !(idle || (seq->state == NGD_SEQ_READY && goes_before(needy, seq))))
            continue;
        if (!best || rather(seq, best))
            best = seq;
    }
    return best;
}

static void preempt_locked(struct ngd_model *model, struct ngd_seq *victim) NGD_REQUIRES(model->lock)
{
    const bool ready = victim->state == NGD_SEQ_READY;

    if (ready)
        ngd_seq_unready_locked(model, victim);
    ngd_seq_release_blocks_locked(model, victim);
    ngd_metric_inc(NGD_M_PREEMPTIONS);
    atomic_fetch_add_explicit(&model->preemptions, 1, memory_order_relaxed);
    if (ready)
        ngd_seq_ready_locked(model, victim);
}

/* Somebody else has blocks and work: there will be more when that is done. */
static bool others_work_locked(struct ngd_model *model, const struct ngd_seq *needy) NGD_REQUIRES(model->lock)
{
    ngd_list_for_each (l, &model->seqs) {
        const struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, all_link);

        if (seq != needy && seq->n_blocks && seq->op != NGD_SEQ_NONE)
            return true;
    }
    return false;
}

ngd_status_t ngd_seq_reserve_or_preempt_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens,
                                               struct ngd_diag *diag)
{
    ngd_status_t status = ngd_seq_reserve_locked(model, seq, tokens, diag);

    while (status == NGD_ERR_KV_EXHAUSTED && model->params.preempt) {
        struct ngd_seq *victim = choose_victim_locked(model, seq);

        if (!victim)
            break;
        preempt_locked(model, victim);
        status = ngd_seq_reserve_locked(model, seq, tokens, diag);
    }
    return status;
}

bool ngd_seq_starve_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    if (!model->params.preempt || !others_work_locked(model, seq))
        return false;
    ngd_seq_release_blocks_locked(model, seq);
    seq->state = NGD_SEQ_STARVED;
    ngd_list_push_back(&model->starved, &seq->link);
    return true;
}

static struct ngd_seq *first_starved_locked(struct ngd_model *model) NGD_REQUIRES(model->lock)
{
    struct ngd_seq *first = NULL;

    ngd_list_for_each (l, &model->starved) {
        struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);

        if (!first || goes_before(seq, first))
            first = seq;
    }
    return first;
}

/* Of a starved sequence. What it can find again need not be computed. */
static ngd_status_t reserve_again_locked(struct ngd_model *model, struct ngd_seq *seq, struct ngd_diag *diag)
    NGD_REQUIRES(model->lock)
{
    const uint32_t next = seq->fill < model->params.max_context ? seq->fill + 1 : seq->fill;
    ngd_status_t status;

    ngd_seq_share_prefix_locked(model, seq);
    status = ngd_seq_reserve_or_preempt_locked(model, seq, next, diag);
    if (status)
        ngd_seq_release_blocks_locked(model, seq);
    return status;
}

void ngd_model_unstarve(struct ngd_model *model)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_OK;
    struct ngd_seq *seq;
    bool fail = false;

    ngd_mutex_lock(&model->lock);
    seq = first_starved_locked(model);
    if (seq) {
        status = reserve_again_locked(model, seq, &diag);
        fail = status && !others_work_locked(model, seq);
        if (!status || fail)
            ngd_list_remove(&seq->link);
        if (!status)
            ngd_seq_ready_locked(model, seq);
    }
    ngd_mutex_unlock(&model->lock);
    if (fail)
        ngd_seq_fail(seq, status, &diag);
}
