/* SPDX-License-Identifier: Apache-2.0 */
/* Tests models whose sequences take one another's KV blocks: losing its blocks must not change a sequence's tokens. */
#include "tests/unit/toy_model.h"

static const int32_t prompt[TOY_CONTEXT] = {3, 17, 0, 9, 22, 5, 5, 12, 20, 1, 8, 14, 2};

static void open_toy(struct toy *t, uint32_t blocks)
{
    toy_bed(t, 1);
    t->blocks = blocks;
    t->preempt = true;
    toy_create(t);
}

static struct ngd_model_stats stats_of(struct toy *t)
{
    struct ngd_model_stats stats;

    ngd_model_stats(t->model, &stats);
    return stats;
}

/* Makes the prompt of a sequence with this number; prompts differ from the first token on. */
static void own_prompt(int number, int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (prompt[i] + 5 * number) % TOY_VOCAB;
}

START_TEST(an_idle_sequence_gives_its_blocks_and_goes_on_when_it_is_asked)
{
    static struct toy t;
    struct toy_seq a, b;
    struct ngd_seq_info info;
    int32_t ours[TOY_CONTEXT], theirs[TOY_CONTEXT];

    open_toy(&t, 7); /* one whole context */
    own_prompt(0, ours, 9);
    own_prompt(1, theirs, 10);
    toy_seq_open(&t, &a, ours, 9, NULL);
    toy_seq_open(&t, &b, theirs, 10, NULL);
    ck_assert_int_eq(b.token, toy_next(&t, theirs, 10));
    ck_assert_uint_eq(stats_of(&t).preemptions, 1);
    ngd_seq_info(a.seq, &info);
    ck_assert_uint_eq(info.position, 9);
    ck_assert_uint_eq(info.blocks, 0);
    for (uint32_t n = 9; n < 12; n++) {
        ours[n] = toy_next(&t, ours, n);
        ck_assert_int_eq(a.token, ours[n]);
        toy_step(&a, -1);
        theirs[n + 1] = toy_next(&t, theirs, n + 1);
        if (n == 9) {
            theirs[10] = b.token;
            toy_step(&b, -1);
            ck_assert_int_eq(b.token, toy_next(&t, theirs, 11));
        }
    }
    ck_assert_int_eq(a.token, toy_next(&t, ours, 12));
    ck_assert_uint_ge(stats_of(&t).preemptions, 3);
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    toy_close(&t);
}
END_TEST

START_TEST(generations_that_do_not_fit_together_all_end_as_they_would_alone)
{
    enum { N = 4, TOKENS = 9 };
    static struct toy t;
    static struct toy_seq seqs[N];
    int32_t context[TOY_CONTEXT + 1];

    open_toy(&t, 10);
    for (int i = 0; i < N; i++) {
        own_prompt(i, context, 4);
        toy_queue_open(&t, &seqs[i], context, 4, NULL);
    }
    for (int i = 0; i < N; i++) {
        toy_wait(&seqs[i]);
        toy_ok(&seqs[i]);
    }
    for (int i = 0; i < N; i++)
        toy_queue_generate(&seqs[i], TOKENS, true);
    for (int i = 0; i < N; i++) {
        toy_wait(&seqs[i]);
        toy_ok(&seqs[i]);
        ck_assert_uint_eq(seqs[i].n_tokens, TOKENS);
        own_prompt(i, context, 4);
        for (uint32_t k = 0; k < TOKENS; k++) {
            context[4 + k] = toy_next(&t, context, 4 + k);
            ck_assert_int_eq(seqs[i].tokens[k], context[4 + k]);
        }
    }
    ck_assert_uint_gt(stats_of(&t).preemptions, 0);
    for (int i = 0; i < N; i++)
        ngd_seq_close(seqs[i].seq);
    toy_close(&t);
}
END_TEST

START_TEST(what_can_never_be_had_is_refused)
{
    static struct toy t;
    struct toy_seq a, b;
    struct ngd_diag diag = {0};
    int32_t context[TOY_CONTEXT];

    open_toy(&t, 4);
    own_prompt(0, context, 9);
    ck_assert_int_eq(toy_try_open(&t, &a, context, 9, NULL, false, &diag), NGD_ERR_KV_EXHAUSTED);
    /* An operation that fits now, but not later, fails then and leaves the sequence unchanged. */
    toy_seq_open(&t, &a, context, 8, NULL);
    own_prompt(1, context, 3);
    toy_seq_open(&t, &b, context, 3, NULL);
    toy_queue_step(&a, -1);
    toy_wait(&a);
    ck_assert_int_eq(a.status, NGD_ERR_KV_EXHAUSTED);
    ck_assert_uint_eq(a.position, 8);
    ck_assert_int_eq(b.token, toy_next(&t, context, 3));
    context[3] = b.token;
    toy_step(&b, -1);
    ck_assert_int_eq(b.token, toy_next(&t, context, 4));
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    toy_close(&t);
}
END_TEST

/* A more urgent one takes the blocks of a step that waits for its turn, and that can never have all that it wants. */
START_TEST(what_can_never_be_had_is_refused_to_one_that_gave_its_blocks_too)
{
    static struct toy t;
    struct toy_seq a, b = {.token = -1};
    struct ngd_seq_params urgent = {.n_prompt = 8, .priority = NGD_PRIORITY_HIGH};
    struct ngd_binding *binding;
    struct ngd_diag diag = {0};
    struct gate gate;
    struct call hold;
    int32_t ours[TOY_CONTEXT], theirs[TOY_CONTEXT];

    open_toy(&t, 4);
    binding = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    own_prompt(0, ours, 8);
    own_prompt(1, theirs, 8);
    toy_seq_open(&t, &a, ours, 7, NULL);
    toy_step(&a, -1); /* so that a prompt is next */
    call_occupy(&t.bed, &hold, binding, &gate);
    toy_queue_step(&a, -1);
    urgent.prompt = theirs;
    gate_init(&b.answered);
    ck_assert_int_eq(ngd_seq_open(t.model, &urgent, toy_done, &b, &b.seq, &diag), NGD_OK);
    gate_open(&gate);
    toy_wait(&b);
    toy_ok(&b);
    toy_wait(&a);
    ck_assert_uint_eq(stats_of(&t).preemptions, 1);
    ck_assert_int_eq(a.status, NGD_ERR_KV_EXHAUSTED);
    ck_assert_int_eq(b.token, toy_next(&t, theirs, 8));
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    call_wait(&hold);
    ngd_binding_unref(binding);
    toy_close(&t);
}
END_TEST

START_TEST(a_preempted_sequence_can_be_forked_and_closed)
{
    static struct toy t;
    static const struct ngd_sampling greedy;
    struct toy_seq a, b, child;
    struct ngd_diag diag = {0};
    int32_t ours[TOY_CONTEXT], theirs[TOY_CONTEXT];

    open_toy(&t, 7);
    own_prompt(0, ours, 9);
    own_prompt(1, theirs, 10);
    toy_seq_open(&t, &a, ours, 9, NULL);
    toy_seq_open(&t, &b, theirs, 10, NULL);
    memset(&child, 0, sizeof(child));
    gate_init(&child.answered);
    ck_assert_int_eq(plain_fork(a.seq, &greedy, false, toy_done, &child, &child.seq, &diag), NGD_OK);
    toy_wait(&child);
    toy_ok(&child);
    ck_assert_int_eq(child.token, toy_next(&t, ours, 9));
    ngd_seq_close(a.seq);
    ours[9] = child.token;
    toy_step(&child, -1);
    ck_assert_int_eq(child.token, toy_next(&t, ours, 10));
    ngd_seq_close(b.seq);
    ngd_seq_close(child.seq);
    toy_close(&t);
}
END_TEST

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 10;
}

struct player {
    struct toy_seq s;
    int32_t context[TOY_CONTEXT + 1];
    uint32_t n; /* tokens in the context; 0: no sequence */
    bool asked;
};

/* Waits for a player's operation and checks it. Two operations are under way at any time, so that waiting ones are
 * preempted too. */
static void settle(struct toy *t, struct player *p)
{
    if (!p->asked)
        return;
    toy_wait(&p->s);
    toy_ok(&p->s);
    ck_assert_int_eq(p->s.token, toy_next(t, p->context, p->n));
    p->asked = false;
}

START_TEST(a_thousand_operations_lose_their_blocks_and_nothing_else)
{
    enum { PLAYERS = 5 };
    static struct toy t;
    static struct player players[PLAYERS];
    uint32_t state = 9;

    open_toy(&t, 9);
    for (int step = 0; step < 1500; step++) {
        struct player *p = &players[draw(&state) % PLAYERS];

        settle(&t, p);
        if (draw(&state) % 2)
            settle(&t, &players[draw(&state) % PLAYERS]);
        if (p->n == 0) {
            p->n = 3 + draw(&state) % 7;
            for (uint32_t i = 0; i < p->n; i++)
                p->context[i] = (int32_t)(draw(&state) % TOY_VOCAB);
            toy_queue_open(&t, &p->s, p->context, p->n, NULL);
            p->asked = true;
        } else if (p->n < TOY_CONTEXT && draw(&state) % 5) {
            p->context[p->n++] = p->s.token;
            toy_queue_step(&p->s, -1);
            p->asked = true;
        } else {
            ngd_seq_close(p->s.seq);
            p->n = 0;
        }
    }
    for (int i = 0; i < PLAYERS; i++) {
        settle(&t, &players[i]);
        if (players[i].n)
            ngd_seq_close(players[i].s.seq);
    }
    ck_assert_uint_gt(stats_of(&t).preemptions, 100);
    toy_close(&t);
}
END_TEST

/* Waits for an answer. A sequence that is preempted again and again would never be answered: so many times count as for
 * ever. */
static void await_without_ping_pong(struct toy *t, struct toy_seq *s)
{
    bool answered = false;

    s->expected++;
    while (!answered) {
        ck_assert_uint_lt(stats_of(t).preemptions, 100);
        ngd_mutex_lock(&s->answered.lock);
        answered = s->answered.arrived >= s->expected;
        ngd_mutex_unlock(&s->answered.lock);
        if (!answered)
            sched_yield();
    }
    toy_ok(s);
}

/* Queues a request that holds the worker, behind those that are queued now. */
static void queue_hold(struct toy *t, struct call *c, struct ngd_binding *binding, struct gate *gate)
{
    gate_init(gate);
    call_init(c, binding, 2);
    c->gate = gate;
    call_submit(&t->bed, c);
}

/*
 * The sequence that waits for blocks (`starved`) could preempt a third one (`robbed`), but would gain nothing, because
 * that one has no blocks of its own: it shares them with the oldest. The oldest has no turn before the third, whose
 * prompt is short.
 */
START_TEST(sequence_that_waits_for_blocks_does_not_rob_one_that_has_nothing_of_its_own_for_ever)
{
    static struct toy t;
    static struct toy_seq donor, oldest, starved, robbed;
    static struct call first, second, third;
    struct gate gates[3], answered;
    struct ngd_binding *binding;
    int32_t theirs[TOY_CONTEXT], ours[TOY_CONTEXT], ends_otherwise[6];

    open_toy(&t, 7);
    binding = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    own_prompt(0, theirs, TOY_CONTEXT);
    own_prompt(1, ours, 10);
    memcpy(ends_otherwise, theirs, sizeof(ends_otherwise));
    ends_otherwise[4]++;
    toy_seq_open(&t, &donor, theirs, 5, NULL);
    ngd_seq_close(donor.seq);
    call_occupy(&t.bed, &first, binding, &gates[0]);
    atomic_store(&t.model->row_time, NGD_SEC); /* so that its turn is after the others' */
    toy_queue_open(&t, &oldest, theirs, TOY_CONTEXT, NULL);
    atomic_store(&t.model->row_time, 0);
    toy_queue_open(&t, &starved, ours, 10, NULL);
    gate_init(&answered);
    starved.hold = &answered;
    gate_open(&gates[0]);
    gate_await(&answered, 1); /* seven blocks are held: two by the oldest, which has found them */
    starved.hold = NULL;
    ours[10] = starved.token;
    toy_queue_step(&starved, -1);
    queue_hold(&t, &second, binding, &gates[1]);
    gate_open(&answered);
    gate_await(&gates[1], 1);
    queue_hold(&t, &third, binding, &gates[2]);
    gate_open(&gates[1]);
    gate_await(&gates[2], 1); /* the step has had its turn, and found no block */
    toy_queue_open(&t, &robbed, ends_otherwise, 6, NULL);
    gate_open(&gates[2]);
    await_without_ping_pong(&t, &robbed);
    await_without_ping_pong(&t, &oldest);
    starved.expected++;
    await_without_ping_pong(&t, &starved);
    ck_assert_int_eq(robbed.token, toy_next(&t, ends_otherwise, 6));
    ck_assert_int_eq(oldest.token, toy_next(&t, theirs, TOY_CONTEXT));
    ck_assert_int_eq(starved.token, toy_next(&t, ours, 11));
    ck_assert_uint_le(stats_of(&t).preemptions, 4); /* the waiting sequence, and the others when it goes on */
    ngd_seq_close(robbed.seq);
    ngd_seq_close(oldest.seq);
    ngd_seq_close(starved.seq);
    call_wait(&first);
    call_wait(&second);
    call_wait(&third);
    ngd_binding_unref(binding);
    toy_close(&t);
}
END_TEST

START_TEST(fork_takes_no_blocks_from_others_but_waits_for_its_turn)
{
    static struct toy t;
    static const struct ngd_sampling greedy;
    struct toy_seq parent, waits, child;
    struct ngd_binding *binding;
    struct ngd_diag diag = {0};
    struct gate gate;
    struct call hold;
    struct ngd_seq_info info;
    int32_t ours[TOY_CONTEXT], theirs[TOY_CONTEXT];

    open_toy(&t, 7);
    binding = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    own_prompt(0, ours, 9);
    own_prompt(1, theirs, 3);
    toy_seq_open(&t, &parent, ours, 9, NULL);
    toy_seq_open(&t, &waits, theirs, 3, NULL);
    call_occupy(&t.bed, &hold, binding, &gate);
    theirs[3] = waits.token;
    toy_queue_step(&waits, -1);
    memset(&child, 0, sizeof(child));
    gate_init(&child.answered);
    ck_assert_int_eq(plain_fork(parent.seq, &greedy, false, toy_done, &child, &child.seq, &diag), NGD_OK);
    ngd_seq_info(waits.seq, &info);
    ck_assert_uint_eq(info.blocks, 2);
    ck_assert_uint_eq(stats_of(&t).preemptions, 0);
    gate_open(&gate);
    toy_wait(&waits);
    toy_wait(&child);
    toy_ok(&child);
    ck_assert_int_eq(waits.token, toy_next(&t, theirs, 4));
    ck_assert_int_eq(child.token, toy_next(&t, ours, 9));
    ngd_seq_close(parent.seq);
    ngd_seq_close(waits.seq);
    ngd_seq_close(child.seq);
    call_wait(&hold);
    ngd_binding_unref(binding);
    toy_close(&t);
}
END_TEST

START_TEST(sequence_whose_prompt_was_cancelled_has_no_blocks_though_it_is_not_closed)
{
    static struct toy t;
    struct toy_seq a;
    struct ngd_binding *binding;
    struct gate gate;
    struct call hold;

    toy_open(&t, 1); /* where a prompt's blocks are reserved when it comes */
    binding = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    call_occupy(&t.bed, &hold, binding, &gate);
    toy_queue_open(&t, &a, prompt, 9, NULL);
    ck_assert_uint_eq(toy_blocks_used(&t), 5);
    ngd_seq_cancel(a.seq);
    toy_wait(&a);
    ck_assert_int_eq(a.status, NGD_ERR_CANCELLED);
    ck_assert_uint_eq(toy_blocks_used(&t), 0);
    gate_open(&gate);
    call_wait(&hold);
    ngd_seq_close(a.seq);
    ngd_binding_unref(binding);
    toy_close(&t);
}
END_TEST

/* The idle sequence has two blocks, one is free, and four are needed. Later the other sequence's blocks are there too,
 * and suffice alone. */
START_TEST(nobody_gives_what_does_not_suffice_and_nobody_without_whom_it_suffices)
{
    static struct toy t;
    struct toy_seq idle, busy, needy;
    struct ngd_binding *binding;
    struct gate gate;
    struct call hold;
    struct ngd_seq_info info;
    int32_t context[TOY_CONTEXT];

    open_toy(&t, 7);
    binding = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    own_prompt(0, context, 4);
    toy_seq_open(&t, &idle, context, 4, NULL);
    own_prompt(1, context, 6);
    toy_seq_open(&t, &busy, context, 6, NULL);
    toy_step(&busy, -1);
    call_occupy(&t.bed, &hold, binding, &gate);
    toy_queue_step(&busy, -1);
    own_prompt(2, context, 8);
    toy_queue_open(&t, &needy, context, 8, NULL); /* has its turn before that step */
    gate_open(&gate);
    toy_wait(&busy);
    toy_wait(&needy);
    toy_ok(&busy);
    toy_ok(&needy);
    ck_assert_int_eq(needy.token, toy_next(&t, context, 8));
    ck_assert_uint_eq(stats_of(&t).preemptions, 1);
    ngd_seq_info(idle.seq, &info);
    ck_assert_uint_eq(info.blocks, 2);
    ngd_seq_close(idle.seq);
    ngd_seq_close(busy.seq);
    ngd_seq_close(needy.seq);
    call_wait(&hold);
    ngd_binding_unref(binding);
    toy_close(&t);
}
END_TEST

/* ---- any order ---------------------------------------------------------------------------------------- */

enum { CROWD = 6, ROUNDS = 4 };

struct member {
    struct toy_seq s;
    int32_t context[TOY_CONTEXT + 1];
    uint32_t n;            /* tokens in the context; context[n] is the next token */
    bool asked, delivered; /* delivered: a generation has delivered the next token */
};

struct crowd {
    struct toy t;
    struct member members[CROWD];
    uint32_t state;
    uint64_t blocks_asked; /* that operations needed at their ends */
};

static ngd_priority_t draw_priority(struct crowd *c)
{
    return draw(&c->state) % 4 ? NGD_PRIORITY_NORMAL : draw(&c->state) % NGD_PRIORITIES;
}

static void answered(struct crowd *c, struct member *m)
{
    m->context[m->n] = m->s.token;
    m->delivered = false;
    ck_assert_int_eq(m->s.token, toy_next(&c->t, m->context, m->n));
}

/* Opens a sequence; half of the prompts have a common beginning. */
static void ask_open(struct crowd *c, struct member *m)
{
    struct ngd_seq_params params = {.prompt = m->context, .priority = draw_priority(c)};
    const int number = draw(&c->state) % 2 ? (int)(draw(&c->state) % TOY_VOCAB) : 0;
    struct ngd_diag diag = {0};

    memset(&m->s, 0, sizeof(m->s));
    gate_init(&m->s.answered);
    m->n = params.n_prompt = 1 + draw(&c->state) % 10;
    own_prompt(number, m->context, m->n);
    m->context[m->n - 1] = (int32_t)(draw(&c->state) % TOY_VOCAB);
    if (ngd_seq_open(c->t.model, &params, toy_done, &m->s, &m->s.seq, &diag))
        ck_abort_msg("%s", diag.text);
}

static void ask_step(struct crowd *c, struct member *m)
{
    struct ngd_step_params params;
    struct ngd_diag diag = {0};

    ngd_step_params_init(&params);
    params.priority = draw_priority(c);
    m->n++;
    if (ngd_seq_step(m->s.seq, &params, toy_done, &m->s, &diag))
        ck_abort_msg("%s", diag.text);
}

/* Starts a generation. Its first token is the next one, unless a generation has delivered it; its last token is not in
 * the context. */
static void ask_generate(struct crowd *c, struct member *m)
{
    struct ngd_generate_params params;
    struct ngd_diag diag = {0};

    ngd_generate_params_init(&params);
    params.priority = draw_priority(c);
    params.ignore_stop = true;
    params.max_tokens = 1 + draw(&c->state) % (TOY_CONTEXT - m->n);
    m->s.n_tokens = 0;
    if (ngd_seq_generate(m->s.seq, &params, toy_on_token, toy_generated, &m->s, &diag))
        ck_abort_msg("%s", diag.text);
}

static void check_generated(struct crowd *c, struct member *m)
{
    for (uint32_t i = 0; i < m->s.n_tokens; i++) {
        m->n += i > 0 || m->delivered;
        m->context[m->n] = m->s.tokens[i];
        ck_assert_int_eq(m->s.tokens[i], toy_next(&c->t, m->context, m->n));
    }
    m->delivered = true;
}

/* The child takes the place of its parent, which is closed before the child has its first token. */
static void ask_fork(struct member *m)
{
    static const struct ngd_sampling greedy;
    struct ngd_seq *parent = m->s.seq;
    struct ngd_diag diag = {0};

    if (plain_fork(parent, &greedy, false, toy_done, &m->s, &m->s.seq, &diag))
        ck_abort_msg("%s", diag.text);
    ngd_seq_close(parent);
}

static void run_round(struct crowd *c, struct ngd_binding *binding)
{
    const uint32_t first = draw(&c->state);
    struct gate gate;
    struct call busy;

    call_occupy(&c->t.bed, &busy, binding, &gate);
    for (uint32_t i = 0; i < CROWD; i++) {
        struct member *m = &c->members[(i + first) % CROWD];
        const uint32_t what = draw(&c->state) % 8;

        m->s.n_tokens = 0;
        m->asked = true;
        if (m->n == 0)
            ask_open(c, m);
        else if (what < 3 && m->n < TOY_CONTEXT)
            ask_generate(c, m);
        else if (what < 6 && m->n < TOY_CONTEXT)
            ask_step(c, m);
        else if (what == 6)
            ask_fork(m);
        else
            m->asked = false; /* idle */
    }
    gate_open(&gate);
    call_wait(&busy);
    for (int i = 0; i < CROWD; i++) {
        struct member *m = &c->members[i];

        if (!m->asked)
            continue;
        toy_wait(&m->s);
        toy_ok(&m->s);
        if (m->s.n_tokens)
            check_generated(c, m);
        else
            answered(c, m);
        c->blocks_asked += ngd_model_blocks_for(c->t.model, m->n);
    }
}

static void run_crowd(struct crowd *c, struct ngd_binding *binding, uint32_t seed)
{
    const uint64_t before = stats_of(&c->t).preemptions;
    uint64_t preemptions;

    memset(c->members, 0, sizeof(c->members));
    c->state = seed;
    c->blocks_asked = 0;
    for (int i = 0; i < ROUNDS; i++)
        run_round(c, binding);
    preemptions = stats_of(&c->t).preemptions - before;
    ck_assert_msg(preemptions <= c->blocks_asked, "seed %u: %u preemptions, %u blocks asked for", seed,
                  (unsigned)preemptions, (unsigned)c->blocks_asked);
    for (int i = 0; i < CROWD; i++)
        ngd_seq_close(c->members[i].s.seq);
}

START_TEST(operations_in_any_order_all_end_and_rob_each_other_no_more_often_than_they_need_blocks)
{
    enum { SEEDS = 40, MOST = 14 };
    static struct crowd c;

    /* From the blocks that one whole context needs to almost enough for all. */
    for (uint32_t blocks = 7; blocks <= MOST; blocks++) {
        struct ngd_binding *binding;

        open_toy(&c.t, blocks);
        binding = bed_binding(&c.t.bed, DOUBLE_TEXT, NULL);
        for (uint32_t i = 0; i < SEEDS; i++)
            run_crowd(&c, binding, blocks * 1000 + i);
        ck_assert_uint_gt(stats_of(&c.t).preemptions, SEEDS);
        ngd_binding_unref(binding);
        toy_close(&c.t);
    }
}
END_TEST

/* Otherwise a sequence would wait for the cap of another share. */
START_TEST(a_capped_sequence_goes_on_while_another_one_waits_for_its_blocks)
{
    static struct toy t;
    struct toy_seq a, b;
    struct ngd_share_params share;
    struct ngd_share *capped;
    struct ngd_seq_params params = {.n_prompt = 9, .priority = NGD_PRIORITY_NORMAL};
    struct ngd_diag diag = {0};
    int32_t ours[TOY_CONTEXT], theirs[TOY_CONTEXT];
    ngd_nsec_t open_at;

    open_toy(&t, 7);
    ngd_clock_set_fake(NGD_SEC);
    ngd_share_params_init(&share);
    share.device_percent = 10;
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "capped", &share, &capped, &diag), NGD_OK);
    own_prompt(0, ours, 9);
    own_prompt(1, theirs, 10);
    params.prompt = ours;
    params.share = capped;
    memset(&a, 0, sizeof(a));
    gate_init(&a.answered);
    ck_assert_int_eq(ngd_seq_open(t.model, &params, toy_done, &a, &a.seq, &diag), NGD_OK);
    toy_wait(&a);
    toy_ok(&a);
    ngd_share_charge(t.model->queue, &capped->accounts[0], 120 * NGD_MSEC, 0);
    open_at = ngd_cap_open_at(&capped->accounts[0]);
    ck_assert_int_gt(open_at, ngd_now());
    ours[9] = a.token;
    toy_queue_step(&a, -1);
    toy_seq_open(&t, &b, theirs, 10, NULL);
    ck_assert_int_eq(b.token, toy_next(&t, theirs, 10));
    toy_wait(&a);
    toy_ok(&a);
    ck_assert_int_eq(a.token, toy_next(&t, ours, 10));
    ck_assert_int_ge(ngd_cap_open_at(&capped->accounts[0]), open_at);
    ngd_clock_set_fake(-1);
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    bed_settle(&t.bed);
    ngd_share_unref(capped);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/preempt", fork_takes_no_blocks_from_others_but_waits_for_its_turn,
          sequence_whose_prompt_was_cancelled_has_no_blocks_though_it_is_not_closed,
          nobody_gives_what_does_not_suffice_and_nobody_without_whom_it_suffices,
          an_idle_sequence_gives_its_blocks_and_goes_on_when_it_is_asked,
          generations_that_do_not_fit_together_all_end_as_they_would_alone, what_can_never_be_had_is_refused,
          what_can_never_be_had_is_refused_to_one_that_gave_its_blocks_too,
          a_preempted_sequence_can_be_forked_and_closed, a_thousand_operations_lose_their_blocks_and_nothing_else,
          sequence_that_waits_for_blocks_does_not_rob_one_that_has_nothing_of_its_own_for_ever,
          operations_in_any_order_all_end_and_rob_each_other_no_more_often_than_they_need_blocks,
          a_capped_sequence_goes_on_while_another_one_waits_for_its_blocks)
