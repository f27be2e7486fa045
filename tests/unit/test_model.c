/* SPDX-License-Identifier: Apache-2.0 */
/* Tests prompts, steps and generations through the scheduler's public interface; toy_model.h computes the tokens. */
#include "tests/unit/model_util.h"

/* ---- prompts ------------------------------------------------------------------------------------------ */

START_TEST(prompt_of_any_length_gives_the_token_of_its_context)
{
    static struct toy t;

    toy_open(&t, 1);
    for (uint32_t n = 1; n <= TOY_CONTEXT; n++) { /* up to four chunks, with a rest of any size */
        struct toy_seq s;
        double want[TOY_VOCAB];
        struct ngd_diag diag = {0};
        struct ngd_seq_info info;

        if (toy_try_open(&t, &s, prompt, n, NULL, true, &diag))
            ck_abort_msg("%s", diag.text);
        toy_wait(&s);
        toy_ok(&s);
        ck_assert_int_eq(s.token, toy_next(&t, prompt, n));
        ck_assert_int_eq(s.stop, s.token == toy_stop[0]);
        ck_assert_uint_eq(s.position, n);
        ck_assert(s.has_logits);
        toy_logits(&t, prompt, n, want);
        for (int v = 0; v < TOY_VOCAB; v++)
            ck_assert_double_eq_tol(s.logits[v], want[v], 1e-5);
        ngd_seq_info(s.seq, &info);
        ck_assert_uint_eq(info.position, n);
        ck_assert_uint_eq(info.blocks, (n + TOY_BLOCK - 1) / TOY_BLOCK);
        ck_assert_str_eq(info.state, "idle");
        ck_assert_uint_eq(info.tokens, 1);
        ck_assert_ptr_eq(ngd_seq_model(s.seq), t.model);
        ngd_seq_close(s.seq);
    }
    toy_close(&t);
}
END_TEST

START_TEST(prompt_that_cannot_be_is_refused_and_takes_nothing)
{
    static const int32_t negative[] = {1, -1, 2}, large[] = {1, 2, TOY_VOCAB};
    static const struct {
        const int32_t *tokens;
        uint32_t n;
        ngd_status_t status;
        const char *says;
    } bad[] = {
        {prompt, 0, NGD_ERR_INVALID_ARGUMENT, "empty"},
        {prompt, TOY_CONTEXT + 1, NGD_ERR_PROMPT_TOO_LONG, "14 tokens"},
        {prompt, UINT32_MAX, NGD_ERR_PROMPT_TOO_LONG, "the context of model \"toy\" has room for 13"},
        {negative, 3, NGD_ERR_TOKEN_RANGE, "prompt token 1 is -1"},
        {large, 3, NGD_ERR_TOKEN_RANGE, "prompt token 2 is 24"},
    };
    static struct toy t;

    toy_open(&t, 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct toy_seq s;
        struct ngd_diag diag = {0};

        ck_assert_int_eq(toy_try_open(&t, &s, bad[i].tokens, bad[i].n, NULL, false, &diag), bad[i].status);
        says(diag.text, bad[i].says);
        ck_assert_ptr_null(s.seq);
        ck_assert_uint_eq(toy_blocks_used(&t), 0);
    }
    toy_close(&t);
}
END_TEST

START_TEST(sampling_parameters_outside_their_range_are_refused_by_name)
{
    static const struct {
        struct ngd_sampling s;
        const char *says;
    } bad[] = {
        {{.temperature = -0.1f}, "temperature"},
        {{.temperature = 100.5f}, "temperature"},
        {{.temperature = NAN}, "temperature"},
        {{.temperature = INFINITY}, "temperature"},
        {{.top_k = -1}, "top_k"},
        {{.top_p = -0.5f}, "top_p"},
        {{.top_p = 1.01f}, "top_p"},
        {{.top_p = NAN}, "top_p"},
    };
    static struct toy t;

    toy_open(&t, 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct toy_seq s;
        struct ngd_diag diag = {0};

        ck_assert_int_eq(toy_try_open(&t, &s, prompt, 3, &bad[i].s, false, &diag), NGD_ERR_SAMPLING);
        says(diag.text, bad[i].says);
    }
    toy_close(&t);
}
END_TEST

/* ---- steps and generations ---------------------------------------------------------------------------- */

START_TEST(steps_follow_the_context_to_its_end_and_not_beyond)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_diag diag = {0};
    int32_t context[TOY_CONTEXT];
    uint32_t n = 3;

    toy_open(&t, 1);
    memcpy(context, prompt, sizeof(context));
    toy_seq_open(&t, &s, context, n, NULL);
    while (n < TOY_CONTEXT) {
        context[n++] = s.token;
        toy_step(&s, -1);
        ck_assert_int_eq(s.token, toy_next(&t, context, n));
        ck_assert_uint_eq(s.position, n);
        ck_assert(!s.has_logits);
    }
    ck_assert_int_eq(plain_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_CONTEXT_FULL);
    says(diag.text, "13 tokens");
    toy_generate(&s, 5, true); /* the token chosen last has not been told to a generation */
    toy_ok(&s);
    ck_assert_str_eq(s.finish, "context");
    ck_assert_uint_eq(s.n_tokens, 1);
    ck_assert_int_eq(s.tokens[0], toy_next(&t, context, n));
    toy_generate(&s, 5, true);
    ck_assert_str_eq(s.finish, "context");
    ck_assert_uint_eq(s.n_tokens, 0);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(forced_tokens_are_as_good_as_a_prompt)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_diag diag = {0};

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 1, NULL);
    for (uint32_t n = 2; n <= TOY_CONTEXT; n++) {
        toy_step(&s, prompt[n - 1]);
        ck_assert_int_eq(s.token, toy_next(&t, prompt, n));
    }
    ngd_seq_close(s.seq);
    toy_seq_open(&t, &s, prompt, 1, NULL);
    ck_assert_int_eq(plain_step(s.seq, TOY_VOCAB, false, toy_done, &s, &diag), NGD_ERR_TOKEN_RANGE);
    ck_assert_int_eq(plain_step(s.seq, -2, false, toy_done, &s, &diag), NGD_ERR_TOKEN_RANGE);
    says(diag.text, "-2");
    toy_step(&s, prompt[1]); /* a refused step changed nothing */
    ck_assert_int_eq(s.token, toy_next(&t, prompt, 2));
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

/* In one batch, some sequences want logits and some do not: each gets its own row, or none. */
START_TEST(logits_of_a_step_are_those_of_its_context)
{
    static struct toy t;
    static struct toy_seq s[TOY_BATCH];
    struct hold h;

    toy_open(&t, 1);
    for (uint32_t i = 0; i < TOY_BATCH; i++)
        toy_seq_open(&t, &s[i], prompt + i, 2 + i, NULL);
    hold_begin(&h, &t, WAITING);
    for (uint32_t i = 0; i < TOY_BATCH; i++) {
        ck_assert_int_eq(plain_step(s[i].seq, prompt[2 * i + 2], i % 2, toy_done, &s[i], NULL), NGD_OK);
    }
    hold_end(&h);
    for (uint32_t i = 0; i < TOY_BATCH; i++) {
        double want[TOY_VOCAB];

        toy_wait(&s[i]);
        toy_ok(&s[i]);
        ck_assert_uint_eq(s[i].batch, TOY_BATCH);
        ck_assert_int_eq(s[i].has_logits, i % 2);
        toy_logits(&t, prompt + i, 3 + i, want); /* prompt[2 * i + 2] follows prompt[i .. 2 * i + 1] */
        for (int v = 0; v < TOY_VOCAB && s[i].has_logits; v++)
            ck_assert_double_eq_tol(s[i].logits[v], want[v], 1e-5);
        ck_assert_int_eq(s[i].token, toy_next(&t, prompt + i, 3 + i));
        ngd_seq_close(s[i].seq);
    }
    toy_close(&t);
}
END_TEST

START_TEST(generation_tells_each_token_once_and_ends_at_its_length)
{
    static struct toy t;
    struct toy_seq s;
    int32_t context[TOY_CONTEXT];
    uint32_t n = 2;

    toy_open(&t, 1);
    memcpy(context, prompt, sizeof(context));
    toy_seq_open(&t, &s, context, n, NULL);
    for (uint32_t max = 1; max <= 4; max++) { /* one generation after the other */
        toy_generate(&s, max, true);
        toy_ok(&s);
        ck_assert_str_eq(s.finish, "length");
        ck_assert_uint_eq(s.n_tokens, max);
        for (uint32_t i = 0; i < max; i++) {
            context[n] = toy_next(&t, context, n);
            ck_assert_int_eq(s.tokens[i], context[n]);
            n++;
        }
    }
    ck_assert_uint_eq(n, 12);
    context[n] =
        toy_next(&t, context, n); /* a step after it continues: the last token told is not in the context yet */
    toy_step(&s, -1);
    ck_assert_int_eq(s.token, context[n]);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(generation_of_no_tokens_is_refused)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_diag diag = {0};

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    ck_assert_int_eq(plain_generate(s.seq, 0, false, toy_on_token, toy_generated, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "max_tokens");
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

/* The test uses the tokens that the model produces next as stop tokens. */
START_TEST(generation_ends_at_a_stop_token_unless_told_to_go_on)
{
    struct ngd_model_params params;
    static struct toy t;
    struct toy_seq s;
    int32_t context[TOY_CONTEXT], stops[2] = {TOY_VOCAB, 0};
    uint32_t first = 0;

    toy_bed(&t, 1);
    memcpy(context, prompt, sizeof(context));
    for (uint32_t n = 2; n < TOY_CONTEXT; n++)
        context[n] = toy_next(&t, context, n);
    stops[1] = context[4];
    while (context[2 + first] != stops[1])
        first++;
    toy_params(&t, &params);
    params.stop_tokens = stops;
    params.n_stop_tokens = 2;
    ck_assert_int_eq(ngd_model_create(t.bed.sched, &params, &t.model, NULL), NGD_OK);
    toy_params_fini(&params);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    toy_generate(&s, 9, false);
    toy_ok(&s);
    ck_assert_str_eq(s.finish, "stop");
    ck_assert_uint_eq(s.n_tokens, first + 1); /* with the stop token */
    ck_assert_int_eq(s.tokens[first], stops[1]);
    toy_step(&s, -1);
    ck_assert_int_eq(s.stop, s.token == stops[1]);
    ngd_seq_close(s.seq);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    toy_generate(&s, 9, true);
    ck_assert_str_eq(s.finish, "length");
    ck_assert_uint_eq(s.n_tokens, 9);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(operation_on_a_busy_sequence_is_refused)
{
    for (enum where where = WAITING; where <= RUNNING; where++) {
        static struct toy t;
        struct toy_seq s;
        struct hold h;
        struct ngd_diag diag = {0};

        toy_open(&t, 1);
        toy_seq_open(&t, &s, prompt, 2, NULL);
        hold_begin(&h, &t, where);
        toy_queue_step(&s, -1);
        hold_await(&h, &s, "queued");
        ck_assert_int_eq(plain_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_SEQUENCE_BUSY);
        ck_assert_int_eq(plain_generate(s.seq, 3, false, toy_on_token, toy_generated, &s, &diag),
                         NGD_ERR_SEQUENCE_BUSY);
        says(diag.text, "in progress");
        hold_end(&h);
        toy_wait(&s);
        toy_ok(&s);
        ngd_seq_close(s.seq);
        toy_close(&t);
    }
}
END_TEST

struct late {
    struct ngd_seq_waiter waiter;
    struct toy_seq *s;
    ngd_status_t status;
    bool stepped;
};

static void step_late(struct ngd_seq_waiter *waiter)
{
    struct late *late = ngd_container_of(waiter, struct late, waiter);
    struct ngd_diag diag = {0};

    ck_assert(!late->stepped); /* once */
    late->stepped = true;
    late->status = plain_step(late->s->seq, 4, false, toy_done, late->s, &diag);
    if (late->status)
        toy_answer(late->s);
}

START_TEST(operation_after_one_that_was_cancelled_can_wait_for_its_end)
{
    static struct toy t;
    struct toy_seq s;
    struct hold h;
    struct ngd_diag diag = {0};
    struct ngd_seq_info info;
    struct late late = {.waiter = {step_late}, .s = &s}, second = late;

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    ck_assert_int_eq(ngd_seq_await(s.seq, &late.waiter), NGD_SEQ_FREE);
    hold_begin(&h, &t, RUNNING);
    toy_queue_generate(&s, 50, true);
    hold_await(&h, &s, "");
    ck_assert_int_eq(ngd_seq_await(s.seq, &late.waiter), NGD_SEQ_BUSY); /* the operation goes on */
    ngd_seq_cancel(s.seq);
    ngd_seq_info(s.seq, &info);
    ck_assert_str_eq(info.state, "stopping");
    ck_assert_int_eq(plain_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_SEQUENCE_BUSY);
    ck_assert_int_eq(ngd_seq_await(s.seq, &late.waiter), NGD_SEQ_AWAITED);
    ck_assert_int_eq(ngd_seq_await(s.seq, &second.waiter), NGD_SEQ_BUSY);
    hold_end(&h);
    s.expected += 2; /* the generation: cancelled; then the step */
    gate_await(&s.answered, s.expected);
    toy_ok(&s);
    ck_assert_int_eq(late.status, NGD_OK);
    ck_assert(late.stepped && !second.stepped);
    ck_assert_int_eq(ngd_seq_await(s.seq, &late.waiter), NGD_SEQ_FREE);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(operation_that_waits_for_a_cancelled_one_is_told_when_the_sequence_is_closed)
{
    static struct toy t;
    struct toy_seq s;
    struct hold h;
    struct late late = {.waiter = {step_late}, .s = &s};

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    hold_begin(&h, &t, RUNNING);
    toy_queue_generate(&s, 50, true);
    hold_await(&h, &s, "");
    ngd_seq_cancel(s.seq);
    ck_assert_int_eq(ngd_seq_await(s.seq, &late.waiter), NGD_SEQ_AWAITED);
    ngd_seq_ref(s.seq);
    ngd_seq_close(s.seq);
    hold_end(&h);
    s.expected += 2; /* the generation; then the step that is refused */
    gate_await(&s.answered, s.expected);
    ck_assert(late.stepped);
    ck_assert_int_eq(late.status, NGD_ERR_STALE_ID);
    ngd_seq_unref(s.seq);
    toy_close(&t);
}
END_TEST

/* As between two requests of one sequence: the first one is cancelled late, when the second one is under way. */
START_TEST(cancelling_an_operation_that_is_over_leaves_the_next_one_alone)
{
    static struct toy t;
    struct toy_seq s, earlier;
    struct hold h;
    struct ngd_seq_info info;

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    ngd_seq_cancel_of(s.seq, &s); /* the prompt's operation is over */
    hold_begin(&h, &t, RUNNING);
    toy_queue_generate(&s, 3, true);
    hold_await(&h, &s, "");
    ngd_seq_cancel_of(s.seq, &earlier);
    ngd_seq_info(s.seq, &info);
    ck_assert_str_ne(info.state, "stopping");
    hold_end(&h);
    toy_wait(&s);
    toy_ok(&s);
    ck_assert_uint_eq(s.n_tokens, 3);
    hold_begin(&h, &t, RUNNING);
    toy_queue_generate(&s, 3, true);
    hold_await(&h, &s, "");
    ngd_seq_cancel_of(s.seq, &s);
    hold_end(&h);
    toy_wait(&s);
    ck_assert_int_eq(s.status, NGD_ERR_CANCELLED);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/model", prompt_of_any_length_gives_the_token_of_its_context,
          prompt_that_cannot_be_is_refused_and_takes_nothing,
          sampling_parameters_outside_their_range_are_refused_by_name,
          steps_follow_the_context_to_its_end_and_not_beyond, forced_tokens_are_as_good_as_a_prompt,
          logits_of_a_step_are_those_of_its_context, generation_tells_each_token_once_and_ends_at_its_length,
          generation_of_no_tokens_is_refused, generation_ends_at_a_stop_token_unless_told_to_go_on,
          operation_on_a_busy_sequence_is_refused, operation_after_one_that_was_cancelled_can_wait_for_its_end,
          operation_that_waits_for_a_cancelled_one_is_told_when_the_sequence_is_closed,
          cancelling_an_operation_that_is_over_leaves_the_next_one_alone)
