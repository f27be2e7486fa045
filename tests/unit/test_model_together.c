/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that sequences in a batch produce the tokens that each produces alone, also with many clients at once. */
#include "tests/unit/model_util.h"

/* ---- batching ----------------------------------------------------------------------------------------- */

#define N_TOGETHER 7
#define N_STEPS    6

/* Gives the tokens that sequence i produces alone. */
static void alone(struct toy *t, uint32_t i, const struct ngd_sampling *sampling, int32_t *tokens)
{
    struct toy_seq s;

    toy_seq_open(t, &s, prompt + i, 1 + i % 5, sampling);
    tokens[0] = s.token;
    for (uint32_t k = 1; k < N_STEPS; k++) {
        toy_step(&s, -1);
        tokens[k] = s.token;
    }
    ngd_seq_close(s.seq);
}

static void check_together(bool greedy, uint32_t slots)
{
    static struct toy t;
    static struct toy_seq s[N_TOGETHER];
    int32_t want[N_TOGETHER][N_STEPS];
    struct ngd_sampling sampling[N_TOGETHER];
    uint32_t largest = 0;
    struct call busy;
    struct ngd_binding *b;
    struct gate gate;

    toy_open(&t, slots);
    b = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    for (uint32_t i = 0; i < N_TOGETHER; i++) {
        sampling[i] = (struct ngd_sampling){.temperature = greedy ? 0 : 0.7f + (float)i * 0.2f,
                                            .top_k = (int32_t)(i % 3) * 5,
                                            .top_p = i % 2 ? 0.9f : 0,
                                            .seed = 1000 + i};
        alone(&t, i, &sampling[i], want[i]);
    }
    for (uint32_t i = 0; i < N_TOGETHER; i++) {
        toy_queue_open(&t, &s[i], prompt + i, 1 + i % 5, &sampling[i]);
    }
    for (uint32_t k = 0; k < N_STEPS; k++) {
        for (uint32_t i = 0; i < N_TOGETHER; i++) {
            toy_wait(&s[i]);
            toy_ok(&s[i]);
            ck_assert_msg(s[i].token == want[i][k], "sequence %u, step %u: %d, alone %d", i, k, s[i].token, want[i][k]);
            largest = s[i].batch > largest ? s[i].batch : largest;
        }
        if (k + 1 == N_STEPS)
            break;
        if (slots == 1) /* all are ready when the worker comes */
            call_occupy(&t.bed, &busy, b, &gate);
        for (uint32_t i = 0; i < N_TOGETHER; i++)
            toy_queue_step(&s[(i + k) % N_TOGETHER], -1);
        if (slots == 1) {
            gate_open(&gate);
            call_wait(&busy);
        }
    }
    if (slots == 1)
        ck_assert_uint_eq(largest, TOY_BATCH);
    for (uint32_t i = 0; i < N_TOGETHER; i++)
        ngd_seq_close(s[i].seq);
    ngd_binding_unref(b);
    toy_close(&t);
}

START_TEST(greedy_tokens_together_equal_those_alone)
{
    check_together(true, 1);
}
END_TEST

START_TEST(drawn_tokens_together_equal_those_alone)
{
    check_together(false, 1);
}
END_TEST

START_TEST(tokens_with_three_workers_equal_those_alone)
{
    check_together(false, 3);
}
END_TEST

START_TEST(generations_together_equal_steps_alone)
{
    static struct toy t;
    static struct toy_seq s[N_TOGETHER];
    int32_t want[N_TOGETHER][N_STEPS];

    toy_open(&t, 1);
    for (uint32_t i = 0; i < N_TOGETHER; i++) {
        struct ngd_sampling sampling = {.temperature = 1.5f, .seed = i};

        alone(&t, i, &sampling, want[i]);
    }
    for (uint32_t i = 0; i < N_TOGETHER; i++) {
        struct ngd_sampling sampling = {.temperature = 1.5f, .seed = i};

        toy_seq_open(&t, &s[i], prompt + i, 1 + i % 5, &sampling);
    }
    for (uint32_t i = 0; i < N_TOGETHER; i++)
        toy_queue_generate(&s[i], N_STEPS, true);
    for (uint32_t i = 0; i < N_TOGETHER; i++) {
        toy_wait(&s[i]);
        toy_ok(&s[i]);
        ck_assert_str_eq(s[i].finish, "length");
        ck_assert_uint_eq(s[i].n_tokens, N_STEPS);
        ck_assert_mem_eq(s[i].tokens, want[i], sizeof(want[i]));
        ngd_seq_close(s[i].seq);
    }
    toy_close(&t);
}
END_TEST

/* ---- several shares ---------------------------------------------------------------------------------- */

static void open_of(struct toy *t, struct toy_seq *s, struct ngd_share *share)
{
    const struct ngd_seq_params params = {
        .prompt = prompt, .n_prompt = 2, .priority = NGD_PRIORITY_NORMAL, .share = share};
    struct ngd_diag diag = {0};

    memset(s, 0, sizeof(*s));
    gate_init(&s->answered);
    if (ngd_seq_open(t->model, &params, toy_done, s, &s->seq, &diag))
        ck_abort_msg("%s", diag.text);
    toy_wait(s);
    toy_ok(s);
}

/* The model runs as early as the share allows that has used less of the device. */
START_TEST(sequences_do_not_wait_for_the_share_of_another_one)
{
    struct ngd_share_params params;
    struct ngd_share *had_much, *had_little;
    struct toy_seq late, early;
    struct ngd_diag diag = {0};
    static struct toy t;
    struct hold h;

    toy_open(&t, 1);
    ngd_share_params_init(&params);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "much", &params, &had_much, &diag), NGD_OK);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "little", &params, &had_little, &diag), NGD_OK);
    open_of(&t, &late, had_much);
    open_of(&t, &early, had_little);
    bed_settle(&t.bed);
    ngd_share_charge(t.model->queue, &had_much->accounts[0], 100 * NGD_SEC, 0);
    hold_begin(&h, &t, WAITING);
    toy_queue_step(&late, -1);
    hold_await(&h, &late, "queued");
    ck_assert_ptr_eq(t.model->item.account, &had_much->accounts[0]);
    toy_queue_step(&early, -1);
    hold_await(&h, &early, "queued");
    ck_assert_ptr_eq(t.model->item.account, &had_little->accounts[0]);
    hold_end(&h);
    toy_wait(&late);
    toy_ok(&late);
    toy_wait(&early);
    toy_ok(&early);
    ngd_seq_close(late.seq);
    ngd_seq_close(early.seq);
    bed_settle(&t.bed);
    ngd_share_unref(had_much);
    ngd_share_unref(had_little);
    toy_close(&t);
}
END_TEST

/* A share that lends its turn to the sequences of others has its next turn as late as if it had run alone. */
START_TEST(share_in_whose_turn_a_batch_runs_pays_for_it)
{
    enum { N = 3 };
    struct ngd_share_params params;
    struct ngd_share *many, *few;
    struct toy_seq of_many[N], of_few;
    struct ngd_diag diag = {0};
    static struct toy t;
    int64_t used, many_before, few_before;
    struct hold h;

    toy_open(&t, 1);
    ngd_share_params_init(&params);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "many", &params, &many, &diag), NGD_OK);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "few", &params, &few, &diag), NGD_OK);
    for (int i = 0; i < N; i++)
        open_of(&t, &of_many[i], many);
    open_of(&t, &of_few, few);
    bed_settle(&t.bed);
    ngd_share_charge(t.model->queue, &many->accounts[0], 100 * NGD_SEC, 0);
    hold_begin(&h, &t, WAITING);
    for (int i = 0; i < N; i++)
        toy_queue_step(&of_many[i], -1);
    toy_queue_step(&of_few, -1);
    used = many->accounts[0].used + few->accounts[0].used;
    many_before = many->accounts[0].corrected;
    few_before = few->accounts[0].corrected;
    hold_end(&h);
    toy_wait(&of_few);
    toy_ok(&of_few);
    ck_assert_uint_eq(of_few.batch, N + 1);
    for (int i = 0; i < N; i++) {
        toy_wait(&of_many[i]);
        toy_ok(&of_many[i]);
    }
    bed_settle(&t.bed);
    used = many->accounts[0].used + few->accounts[0].used - used;
    ck_assert_int_eq(many->accounts[0].corrected, many_before);
    /* Each member's part is rounded down; virtual nanoseconds are scaled by 64 over the weight. */
    ck_assert_int_ge((few->accounts[0].corrected - few_before) * few->accounts[0].weight / 64 + 64, used);
    for (int i = 0; i < N; i++)
        ngd_seq_close(of_many[i].seq);
    ngd_seq_close(of_few.seq);
    bed_settle(&t.bed);
    ngd_share_unref(many);
    ngd_share_unref(few);
    toy_close(&t);
}
END_TEST

/* The model's item is queued already when its share is charged. */
START_TEST(prompt_does_not_wait_for_a_share_that_was_charged_meanwhile)
{
    struct ngd_share_params params;
    struct ngd_share *had_much, *had_little;
    struct toy_seq late, opened;
    struct ngd_diag diag = {0};
    static struct toy t;
    struct hold h;
    struct ngd_seq_params p = {.prompt = prompt, .n_prompt = 3, .priority = NGD_PRIORITY_NORMAL};

    toy_open(&t, 1);
    ngd_share_params_init(&params);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "much", &params, &had_much, &diag), NGD_OK);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "little", &params, &had_little, &diag), NGD_OK);
    open_of(&t, &late, had_much);
    bed_settle(&t.bed);
    hold_begin(&h, &t, WAITING);
    toy_queue_step(&late, -1);
    ngd_share_charge(t.model->queue, &had_much->accounts[0], 100 * NGD_SEC, 0);
    memset(&opened, 0, sizeof(opened));
    gate_init(&opened.answered);
    p.share = had_little;
    ck_assert_int_eq(ngd_seq_open(t.model, &p, toy_done, &opened, &opened.seq, &diag), NGD_OK);
    ck_assert_ptr_eq(t.model->item.account, &had_little->accounts[0]);
    hold_end(&h);
    toy_wait(&late);
    toy_wait(&opened);
    toy_ok(&late);
    toy_ok(&opened);
    ngd_seq_close(late.seq);
    ngd_seq_close(opened.seq);
    bed_settle(&t.bed);
    ngd_share_unref(had_much);
    ngd_share_unref(had_little);
    toy_close(&t);
}
END_TEST

/* The class of the item is that of the most urgent sequence, not of the one whose turn in the batch is next. */
START_TEST(less_urgent_sequence_does_not_make_the_others_wait_in_its_class)
{
    struct toy_seq low, normal;
    struct ngd_step_params p;
    struct ngd_diag diag = {0};
    static struct toy t;
    struct hold h;

    toy_open(&t, 1);
    toy_seq_open(&t, &low, prompt, 2, NULL);
    toy_seq_open(&t, &normal, prompt, 3, NULL);
    bed_settle(&t.bed);
    hold_begin(&h, &t, WAITING);
    ngd_step_params_init(&p);
    p.priority = NGD_PRIORITY_LOW;
    ck_assert_int_eq(ngd_seq_step(low.seq, &p, toy_done, &low, &diag), NGD_OK);
    ck_assert_int_eq(t.model->item.priority, NGD_PRIORITY_LOW);
    nanosleep(&(struct timespec){.tv_nsec = 2 * NGD_PRIORITY_AGE_STEP}, NULL);
    toy_queue_step(&normal, -1); /* its turn in the batch is after the other one's, which has aged */
    ck_assert_int_eq(t.model->item.priority, NGD_PRIORITY_NORMAL);
    hold_end(&h);
    toy_wait(&low);
    toy_wait(&normal);
    toy_ok(&low);
    toy_ok(&normal);
    ngd_seq_close(low.seq);
    ngd_seq_close(normal.seq);
    toy_close(&t);
}
END_TEST

static void no_run(struct ngd_sched_item *item, struct ngd_slot *slot)
{
    (void)item;
    (void)slot;
}

static void no_abort(struct ngd_sched_item *item)
{
    (void)item;
}

START_TEST(sequences_do_not_wait_for_what_the_share_of_another_one_has_queued)
{
    static const struct ngd_sched_item_ops ops = {.run = no_run, .abort = no_abort};
    struct ngd_sched_item items[3];
    struct ngd_share_params params;
    struct ngd_share *queues, *other;
    struct toy_seq first, second;
    struct ngd_diag diag = {0};
    static struct toy t;
    struct hold h;

    toy_open(&t, 1);
    ngd_share_params_init(&params);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "queues", &params, &queues, &diag), NGD_OK);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "other", &params, &other, &diag), NGD_OK);
    open_of(&t, &first, queues);
    open_of(&t, &second, other);
    bed_settle(&t.bed);
    ngd_share_charge(t.model->queue, &other->accounts[0], NGD_SEC, 0);
    hold_begin(&h, &t, WAITING);
    for (int i = 0; i < 3; i++) {
        ngd_sched_item_init(&items[i], &ops);
        items[i].account = &queues->accounts[0];
        items[i].cost = 100 * NGD_SEC;
        ck_assert_int_eq(ngd_queue_push(t.model->queue, &items[i], NULL), NGD_OK);
    }
    toy_queue_step(&first, -1);
    hold_await(&h, &first, "queued");
    ck_assert_ptr_eq(t.model->item.account, &queues->accounts[0]);
    toy_queue_step(&second, -1);
    hold_await(&h, &second, "queued");
    ck_assert_ptr_eq(t.model->item.account, &other->accounts[0]);
    hold_end(&h);
    toy_wait(&first);
    toy_ok(&first);
    toy_wait(&second);
    toy_ok(&second);
    ngd_seq_close(first.seq);
    ngd_seq_close(second.seq);
    bed_settle(&t.bed);
    ngd_share_unref(queues);
    ngd_share_unref(other);
    toy_close(&t);
}
END_TEST

START_TEST(seed_decides_what_is_drawn)
{
    static struct toy t;
    struct ngd_sampling sampling = {.temperature = 5, .seed = 1};
    int32_t first[N_STEPS], again[N_STEPS], other[N_STEPS];

    toy_open(&t, 1);
    alone(&t, 2, &sampling, first);
    alone(&t, 2, &sampling, again);
    sampling.seed = 2;
    alone(&t, 2, &sampling, other);
    ck_assert_mem_eq(first, again, sizeof(first));
    ck_assert_mem_ne(first, other, sizeof(first));
    toy_close(&t);
}
END_TEST

/* ---- everything at once -------------------------------------------------------------------------------- */

struct client {
    struct toy *toy;
    uint32_t seed, finished, refused, cancelled;
    pthread_t thread;
};

static uint32_t chance(struct client *c, uint32_t n)
{
    c->seed = c->seed * 1664525u + 1013904223u;
    return (c->seed >> 10) % n;
}

static void *client_main(void *arg)
{
    struct client *c = arg;
    static _Thread_local struct toy_seq s;

    for (int round = 0; round < 40; round++) {
        int32_t context[TOY_CONTEXT];
        uint32_t n = 1 + chance(c, 6);
        struct ngd_diag diag = {0};
        ngd_status_t status;

        for (uint32_t i = 0; i < n; i++)
            context[i] = (int32_t)chance(c, TOY_VOCAB);
        status = toy_try_open(c->toy, &s, context, n, NULL, false, &diag);
        if (status) {
            ck_assert(status == NGD_ERR_KV_EXHAUSTED || status == NGD_ERR_RESOURCE_EXHAUSTED);
            c->refused++;
            continue;
        }
        if (chance(c, 4) == 0)
            ngd_seq_cancel(s.seq);
        toy_wait(&s);
        if (s.status == NGD_OK && chance(c, 2)) {
            s.cancel_at = chance(c, 3);
            toy_generate(&s, 4, true);
        }
        ck_assert(s.status == NGD_OK || s.status == NGD_ERR_CANCELLED || s.status == NGD_ERR_KV_EXHAUSTED);
        for (uint32_t i = 0; s.status == NGD_OK && i < s.n_tokens && n < TOY_CONTEXT; i++) {
            ck_assert_int_eq(s.tokens[i], toy_next(c->toy, context, n));
            context[n++] = s.tokens[i];
        }
        c->finished += s.status == NGD_OK;
        c->cancelled += s.status == NGD_ERR_CANCELLED;
        ngd_seq_close(s.seq);
    }
    return NULL;
}

START_TEST(clients_that_open_generate_cancel_and_close_at_once_get_what_they_should)
{
    enum { N = 5 };
    static struct toy t;
    struct client c[N];
    uint32_t finished = 0;

    toy_open(&t, 2);
    for (uint32_t i = 0; i < N; i++) {
        c[i] = (struct client){.toy = &t, .seed = i * 77 + 5};
        ck_assert_int_eq(ngd_thread_start(&c[i].thread, "client", client_main, &c[i]), 0);
    }
    for (uint32_t i = 0; i < N; i++) {
        pthread_join(c[i].thread, NULL);
        finished += c[i].finished;
    }
    ck_assert_uint_gt(finished, N * 40 / 4);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/model_together", greedy_tokens_together_equal_those_alone, drawn_tokens_together_equal_those_alone,
          tokens_with_three_workers_equal_those_alone, generations_together_equal_steps_alone,
          sequences_do_not_wait_for_the_share_of_another_one,
          sequences_do_not_wait_for_what_the_share_of_another_one_has_queued,
          share_in_whose_turn_a_batch_runs_pays_for_it, prompt_does_not_wait_for_a_share_that_was_charged_meanwhile,
          less_urgent_sequence_does_not_make_the_others_wait_in_its_class, seed_decides_what_is_drawn,
          clients_that_open_generate_cancel_and_close_at_once_get_what_they_should)
