/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Talks: sequences of a model of one layer (tests/unit/toy_model.h), beside the clients' replays. What a sequence says
 * is worked out again from its whole context, so a wrong block, position or row shows.
 */
#include "tests/unit/toy_model.h"
#include "tests/campaign/sim/world.h"

#define NEAR 1e-3 /* logits that are so near each other may be chosen one for the other */

struct talk {
    struct sim_event act;
    struct sim_identity *identity;
    struct ngd_seq *seq;
    ngd_nsec_t think;
    int32_t context[TOY_CONTEXT + 1];
    uint32_t n;               /* tokens of the context, by what was answered */
    int32_t next;             /* chosen, not in the context */
    bool busy, stopped, ends; /* an operation is under way; it was cancelled; the next thing is to close */
    bool over;
    ngd_nsec_t since;
};

static struct {
    struct toy toy;
    struct talk talks[24];
    uint32_t n;
} all;

/* ---- what it should say ------------------------------------------------------------------------------- */

static void check_next(const struct talk *t, int32_t token)
{
    double logits[TOY_VOCAB], best;

    sim_check(token >= 0 && token < TOY_VOCAB, "a sequence says %d", token);
    toy_logits(&all.toy, t->context, t->n, logits);
    best = logits[0];
    for (int i = 1; i < TOY_VOCAB; i++)
        best = logits[i] > best ? logits[i] : best;
    sim_check(logits[token] >= best - NEAR, "after %u tokens a sequence says %d, which is %g below the best", t->n,
              token, best - logits[token]);
}

static bool is_allowed_of(const struct talk *t, ngd_status_t status)
{
    switch (status) {
    case NGD_OK:
        return true;
    case NGD_ERR_CANCELLED:
        return t->stopped || world.stopping;
    case NGD_ERR_KV_EXHAUSTED:
        return !all.toy.preempt;
    case NGD_ERR_REPLAY_STOPPED:
        return world.params.max_replay_time > 0;
    default:
        return (sim_device.fault || sim_device.lost) && ngd_status_scope(status) == NGD_SCOPE_DEVICE;
    }
}

/* ---- operations --------------------------------------------------------------------------------------- */

static void schedule_talk(struct talk *t)
{
    ngd_mutex_lock(&world.lock);
    t->busy = false;
    sim_schedule_locked(&t->act, sim_time() + sim_between(1, t->think));
    ngd_mutex_unlock(&world.lock);
}

static void check_ended(struct talk *t, ngd_status_t status, const struct ngd_diag *diag)
{
    const ngd_nsec_t waited = sim_time() - t->since;

    sim_check(t->busy, "an operation of a sequence is answered twice");
    sim_check(is_allowed_of(t, status), "an operation of a sequence is answered with %s: %s", ngd_status_name(status),
              diag ? diag->text : "");
    sim_check(waited <= sim_patience(t->identity), "an operation of a sequence took %.0f s", (double)waited / 1e9);
    t->ends = t->ends || status;
    world.counts.steps++;
}

static void stepped(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    struct talk *t = user;

    (void)seq;
    check_ended(t, r->status, r->diag);
    if (r->status == NGD_OK) {
        sim_check(r->position == t->n, "a sequence has %u tokens, not %u", r->position, t->n);
        check_next(t, r->token);
        t->next = r->token;
    }
    schedule_talk(t);
}

static void talk_open(struct talk *t)
{
    static const int32_t common[] = {3, 17, 0, 9, 22, 5};
    struct ngd_seq_params params = {.priority = (ngd_priority_t)sim_below(NGD_PRIORITIES), .share = t->identity->share};
    struct ngd_diag diag = {0};
    ngd_status_t status;

    t->n = 1 + (uint32_t)sim_below(8);
    for (uint32_t i = 0; i < t->n; i++)
        t->context[i] = i < 6 && sim_chance(3, 4) ? common[i] : (int32_t)sim_below(TOY_VOCAB);
    t->stopped = t->ends = false;
    params.prompt = t->context;
    params.n_prompt = t->n;
    status = ngd_seq_open(all.toy.model, &params, stepped, t, &t->seq, &diag);
    if (!status)
        return;
    sim_check(status == NGD_ERR_KV_EXHAUSTED || status == NGD_ERR_DRAINING || status == NGD_ERR_RESOURCE_EXHAUSTED ||
                  is_allowed_of(t, status),
              "a sequence is refused with %s: %s", ngd_status_name(status), diag.text);
    t->seq = NULL;
    schedule_talk(t);
}

static void talk_step(struct talk *t)
{
    struct ngd_diag diag = {0};
    const int32_t forced = sim_chance(1, 3) ? (int32_t)sim_below(TOY_VOCAB) : -1;
    ngd_status_t status;

    t->context[t->n++] = forced >= 0 ? forced : t->next;
    status = plain_step(t->seq, forced, false, stepped, t, &diag);
    if (!status)
        return;
    sim_check(status == NGD_ERR_DRAINING || is_allowed_of(t, status) || status == NGD_ERR_RESOURCE_EXHAUSTED,
              "a step is refused with %s: %s", ngd_status_name(status), diag.text);
    t->ends = true;
    schedule_talk(t);
}

static void talk_close(struct talk *t)
{
    ngd_seq_close(t->seq);
    t->seq = NULL;
    t->ends = false;
}

static void talk_act(struct sim_event *event)
{
    struct talk *t = ngd_container_of(event, struct talk, act);

    if (t->seq && (t->ends || t->n + 1 >= TOY_CONTEXT || world.ending))
        talk_close(t);
    if (world.ending) {
        ngd_mutex_lock(&world.lock);
        t->over = true;
        ngd_cond_broadcast(&world.idle);
        ngd_mutex_unlock(&world.lock);
        return;
    }
    t->busy = true;
    t->since = sim_time();
    if (t->seq)
        talk_step(t);
    else
        talk_open(t);
}

/* ---- all of them -------------------------------------------------------------------------------------- */

static void open_model(void)
{
    struct toy *t = &all.toy;

    t->bed.sched = world.sched;
    t->bed.dev = world.devices[0];
    t->greedy = true;
    t->block = TOY_BLOCK;
    t->blocks = sim_chance(1, 2) ? TOY_FEW : TOY_BLOCKS;
    t->preempt = sim_chance(2, 3);
    t->no_sharing = sim_chance(1, 3);
    toy_weights(t);
    toy_create(t);
}

void sim_talks_open(void)
{
    const ngd_nsec_t think = sim_between(NGD_SEC, 300 * NGD_SEC);

    if (!sim_chance(1, 2))
        return;
    open_model();
    all.n = 1 + (uint32_t)sim_below(10); /* as many sequences as the model takes */
    for (uint32_t i = 0; i < all.n; i++) {
        struct talk *t = &all.talks[i];

        t->act.fn = talk_act;
        t->think = think;
        t->identity = &world.identities[sim_below(world.n_identities)];
        ngd_mutex_lock(&world.lock);
        sim_schedule_locked(&t->act, sim_time() + (ngd_nsec_t)sim_below((uint64_t)think));
        ngd_mutex_unlock(&world.lock);
    }
}

bool sim_talks_over(void)
{
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.talks[i].over)
            return false;
    return true;
}

uint32_t sim_talks_count(void)
{
    return all.n;
}

void sim_talks_close(void)
{
    struct ngd_model_stats stats;

    if (!all.toy.model)
        return;
    ngd_model_stats(all.toy.model, &stats);
    sim_check(stats.sequences == 0 && stats.blocks_used == 0, "%u sequences and %u KV blocks are left", stats.sequences,
              stats.blocks_used);
    ngd_model_unref(all.toy.model);
    for (int i = 0; i < 7; i++)
        ngd_buffer_unref(all.toy.buffers[i]);
}

/* libcheck's assertions in the toy model's header end the simulation. */
void _mark_point(const char *file, int line);
void _mark_point(const char *file, int line)
{
    (void)file;
    (void)line;
}

void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    sim_fail("%s:%d: %s %s", file, line, expr, msg ? msg : "");
}
