/* SPDX-License-Identifier: Apache-2.0 */
/* Tests steps that append several tokens, on the toy model: the context is that of forced steps and of a longer prompt.
 */
#include "tests/unit/model_util.h"

static void append_tokens(struct toy_seq *s, const int32_t *tokens, uint32_t n)
{
    struct ngd_step_params p;
    struct ngd_diag diag = {0};

    ngd_step_params_init(&p);
    p.append = tokens;
    p.n_append = n;
    if (ngd_seq_step(s->seq, &p, toy_done, s, &diag))
        ck_abort_msg("%s", diag.text);
    toy_wait(s);
}

/* Says what a turn of two users' parts says: prompt[0..a), two generated tokens, prompt[a..a + b), the rest. */
static uint32_t say_turns(struct toy *t, uint32_t a, uint32_t b, bool forced, const struct ngd_sampling *how,
                          int32_t *said)
{
    struct toy_seq s;
    uint32_t n = 0;

    toy_seq_open(t, &s, prompt, a, how);
    said[n++] = s.token;
    toy_step(&s, -1);
    said[n++] = s.token;
    for (uint32_t i = 0; forced && i < b; i++)
        toy_step(&s, prompt[a + i]);
    if (!forced)
        append_tokens(&s, prompt + a, b);
    toy_ok(&s);
    ck_assert_uint_eq(s.position, a + 1 + b);
    return toy_say_rest(&s, said, n);
}

START_TEST(appended_tokens_are_as_forced_ones)
{
    static const struct ngd_sampling greedy, drawn = {.temperature = 1.2f, .seed = 4};
    static struct toy t;

    toy_open(&t, 1);
    for (uint32_t a = 1; a <= 5; a++)
        for (uint32_t b = 1; a + 1 + b <= TOY_CONTEXT; b++)
            for (int k = 0; k < 2; k++) {
                int32_t want[TOY_CONTEXT + 2], got[TOY_CONTEXT + 2];
                const uint32_t n = say_turns(&t, a, b, true, k ? &drawn : &greedy, want);

                /* Forced steps draw, too, so that only the greedy tokens can be the same. */
                ck_assert_uint_eq(say_turns(&t, a, b, false, k ? &drawn : &greedy, got), n);
                if (!k)
                    ck_assert_mem_eq(got, want, n * sizeof(want[0]));
                ck_assert_uint_eq(toy_blocks_used(&t), 0);
            }
    toy_close(&t);
}
END_TEST

START_TEST(appended_tokens_are_given_and_not_generated)
{
    static const struct ngd_sampling how = {.frequency_penalty = 50, .min_tokens = 3};
    static struct toy t;
    struct toy_seq s;
    int32_t context[TOY_CONTEXT + 1], first;

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 3, &how);
    memcpy(context, prompt, 3 * sizeof(prompt[0]));
    context[3] = s.token;
    toy_step(&s, -1);
    ck_assert_int_ne(s.token, context[3]);
    memcpy(context + 4, prompt + 3, 4 * sizeof(prompt[0]));
    append_tokens(&s, prompt + 3, 4);
    toy_ok(&s);
    first = toy_next(&t, context, 8);
    if (first != toy_stop[0])
        ck_assert_int_eq(s.token, first); /* nothing is penalised yet */
    for (int i = 0; i < 3; i++, toy_step(&s, -1))
        ck_assert_int_ne(s.token, toy_stop[0]);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(appends_that_cannot_be_are_refused_and_change_nothing)
{
    static const int32_t bad[] = {1, TOY_VOCAB}, negative[] = {-1, 1};
    static struct toy t;
    struct toy_seq s, other;
    struct ngd_step_params p;
    struct ngd_diag diag = {0};

    toy_bed(&t, 1);
    t.blocks = 7; /* 14 tokens */
    t.no_sharing = true;
    toy_create(&t);
    toy_seq_open(&t, &other, prompt, 8, NULL);
    toy_seq_open(&t, &s, prompt, 3, NULL);
    ngd_step_params_init(&p);
    p.append = bad;
    p.n_append = 2;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_TOKEN_RANGE);
    p.append = negative;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_TOKEN_RANGE);
    p.append = prompt;
    p.draft = prompt;
    p.n_draft = 1;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    p.n_draft = 0;
    p.forced = 3;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    p.forced = -1;
    p.n_append = 11;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_CONTEXT_FULL);
    p.n_append = UINT32_MAX;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_CONTEXT_FULL);
    p.n_append = 10; /* fits in the context, but not in the blocks that are free */
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_KV_EXHAUSTED);
    ck_assert_uint_eq(toy_blocks_used(&t), 4 + 2);
    toy_step(&s, -1);
    ck_assert_uint_eq(s.position, 4);
    ngd_seq_close(other.seq);
    append_tokens(&s, prompt, 9);
    toy_ok(&s);
    ck_assert_uint_eq(s.position, TOY_CONTEXT);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(appends_take_blocks_of_others_and_survive_their_taking)
{
    enum { N = 3 };
    static struct toy t;
    struct toy_seq s[N];
    int32_t want[TOY_CONTEXT + 2];
    struct ngd_model_stats stats;

    toy_bed(&t, 1);
    t.blocks = 8;
    t.no_sharing = t.preempt = true;
    toy_create(&t);
    (void)say_turns(&t, 3, 5, false, NULL, want);
    for (int i = 0; i < N; i++) {
        toy_seq_open(&t, &s[i], prompt, 3, NULL);
        toy_step(&s[i], -1);
    }
    for (int i = 0; i < N; i++) {
        append_tokens(&s[i], prompt + 3, 5);
        toy_ok(&s[i]);
        ck_assert_int_eq(s[i].token, want[2]);
    }
    for (int at = 3; at < 6; at++)
        for (int i = 0; i < N; i++) {
            toy_step(&s[i], -1);
            ck_assert_int_eq(s[i].token, want[at]);
        }
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_gt(stats.preemptions, 2);
    for (int i = 0; i < N; i++)
        ngd_seq_close(s[i].seq);
    toy_close(&t);
}
END_TEST

/* A fork of a context that lacks its last given token has generated nothing, so no stop token is chosen. */
static void fork_held_back(struct toy_seq *parent)
{
    struct ngd_sampling how = {.temperature = 100, .min_tokens = 1};

    for (how.seed = 0; how.seed < 60; how.seed++) {
        struct toy_seq copy = {0};
        struct ngd_diag diag = {0};

        gate_init(&copy.answered);
        ck_assert_int_eq(plain_fork(parent->seq, &how, false, toy_done, &copy, &copy.seq, &diag), NGD_OK);
        toy_wait(&copy);
        toy_ok(&copy);
        ck_assert_int_ne(copy.token, toy_stop[0]);
        ngd_seq_close(copy.seq);
    }
}

START_TEST(cancelled_append_leaves_a_sequence_that_can_be_closed_or_go_on)
{
    static struct toy t;

    for (int where = WAITING; where <= RUNNING; where++) {
        struct toy_seq s;
        struct hold h;
        struct ngd_step_params p;
        struct ngd_diag diag = {0};

        toy_open(&t, 1);
        toy_seq_open(&t, &s, prompt, 3, NULL);
        hold_begin(&h, &t, (enum where)where);
        ngd_step_params_init(&p);
        p.append = prompt + 3;
        p.n_append = 6;
        ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_OK);
        hold_await(&h, &s, "queued");
        ngd_seq_cancel(s.seq);
        hold_end(&h);
        toy_wait(&s);
        ck_assert_int_eq(s.status, NGD_ERR_CANCELLED);
        fork_held_back(&s);
        toy_step(&s, 1);
        ck_assert_uint_eq(s.position, 3 + 5 + 1);
        ngd_seq_close(s.seq);
        toy_close(&t);
    }
}
END_TEST

UNIT_MAIN("scheduler/append", appended_tokens_are_as_forced_ones, appended_tokens_are_given_and_not_generated,
          appends_that_cannot_be_are_refused_and_change_nothing, appends_take_blocks_of_others_and_survive_their_taking,
          cancelled_append_leaves_a_sequence_that_can_be_closed_or_go_on)
