/* SPDX-License-Identifier: Apache-2.0 */
/* Tests operations that end early: by a cancel or close in every state, or with the scheduler or the device. */
#include "tests/unit/model_util.h"
#include "base/fault.h"

/* ---- cancel and close, in every state ----------------------------------------------------------------- */

START_TEST(step_cancelled_while_it_waits_is_answered_and_leaves_the_sequence_as_it_was)
{
    static struct toy t;
    struct toy_seq s;
    struct hold h;
    int32_t context[3] = {prompt[0], prompt[1]};

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    ngd_seq_cancel(s.seq); /* idle: nothing to cancel */
    hold_begin(&h, &t, WAITING);
    toy_queue_step(&s, -1);
    hold_await(&h, &s, "queued");
    ngd_seq_cancel(s.seq);
    toy_wait(&s); /* before the worker is free */
    ck_assert_int_eq(s.status, NGD_ERR_CANCELLED);
    ck_assert_uint_eq(s.position, 2);
    ngd_seq_cancel(s.seq);
    hold_end(&h);
    context[2] = toy_next(&t, context, 2);
    toy_step(&s, -1);
    ck_assert_int_eq(s.token, toy_next(&t, context, 3));
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(step_cancelled_while_it_runs_completes)
{
    static struct toy t;
    struct toy_seq s;
    struct hold h;
    int32_t context[3] = {prompt[0], prompt[1]};

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    context[2] = s.token;
    hold_begin(&h, &t, RUNNING);
    toy_queue_step(&s, -1);
    hold_await(&h, &s, "");
    ngd_seq_cancel(s.seq);
    hold_end(&h);
    toy_wait(&s);
    toy_ok(&s);
    ck_assert_int_eq(s.token, toy_next(&t, context, 3));
    toy_step(&s, 4); /* the cancel does not affect the next operation */
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(generation_cancelled_between_tokens_stops_and_the_sequence_goes_on)
{
    static struct toy t;
    struct toy_seq s;
    int32_t context[TOY_CONTEXT];
    uint32_t n = 2;

    toy_open(&t, 1);
    memcpy(context, prompt, sizeof(context));
    toy_seq_open(&t, &s, prompt, 2, NULL);
    s.cancel_at = 3;
    toy_generate(&s, 50, true);
    ck_assert_int_eq(s.status, NGD_ERR_CANCELLED);
    ck_assert_str_eq(s.finish, "");
    ck_assert_uint_eq(s.n_tokens, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(s.tokens[i], toy_next(&t, context, n));
        context[n] = s.tokens[i];
        n++;
    }
    s.cancel_at = 0;
    toy_generate(&s, 2, true); /* continues after the last token that was delivered */
    toy_ok(&s);
    ck_assert_int_eq(s.tokens[0], toy_next(&t, context, n));
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(generation_cancelled_while_it_waits_or_runs_is_answered_once)
{
    for (enum where where = WAITING; where <= RUNNING; where++) {
        static struct toy t;
        struct toy_seq s;
        struct hold h;

        toy_open(&t, 1);
        toy_seq_open(&t, &s, prompt, 2, NULL);
        hold_begin(&h, &t, where);
        toy_queue_generate(&s, 50, true);
        hold_await(&h, &s, "queued");
        ngd_seq_cancel(s.seq);
        hold_end(&h);
        toy_wait(&s);
        ck_assert_int_eq(s.status, NGD_ERR_CANCELLED);
        toy_step(&s, 1);
        ngd_seq_close(s.seq);
        toy_close(&t);
    }
}
END_TEST

START_TEST(prompt_cancelled_before_its_end_leaves_only_close)
{
    for (enum where where = WAITING; where <= RUNNING; where++) {
        static struct toy t;
        struct toy_seq s;
        struct hold h;
        struct ngd_diag diag = {0};

        toy_open(&t, 1);
        hold_begin(&h, &t, where);
        toy_queue_open(&t, &s, prompt, TOY_CONTEXT, NULL); /* four chunks: the first one runs, or none */
        hold_await(&h, &s, "prefill");
        ngd_seq_cancel(s.seq);
        hold_end(&h);
        toy_wait(&s);
        ck_assert_int_eq(s.status, NGD_ERR_CANCELLED);
        ck_assert_int_eq(plain_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
        says(diag.text, "close it");
        ck_assert_int_eq(plain_generate(s.seq, 3, false, toy_on_token, toy_generated, &s, &diag),
                         NGD_ERR_INVALID_ARGUMENT);
        ngd_seq_close(s.seq);
        toy_close(&t);
    }
}
END_TEST

enum op { OPEN, STEP, GENERATE };

START_TEST(sequence_closed_in_any_state_answers_once_and_frees_its_blocks)
{
    for (enum op op = OPEN; op <= GENERATE; op++)
        for (enum where where = WAITING; where <= RUNNING; where++) {
            static struct toy t;
            struct toy_seq s;
            struct hold h;

            toy_open(&t, 1);
            if (op != OPEN)
                toy_seq_open(&t, &s, prompt, 3, NULL);
            hold_begin(&h, &t, where);
            if (op == OPEN)
                toy_queue_open(&t, &s, prompt, TOY_CONTEXT, NULL);
            else if (op == STEP)
                toy_queue_step(&s, -1);
            else
                toy_queue_generate(&s, 50, true);
            hold_await(&h, &s, op == OPEN ? "prefill" : "queued");
            ngd_seq_close(s.seq);
            if (where == RUNNING)
                ck_assert_uint_gt(toy_blocks_used(&t), 0); /* the replay still writes into them */
            hold_end(&h);
            toy_wait(&s);
            ck_assert_int_eq(s.status, NGD_ERR_CANCELLED);
            bed_settle(&t.bed);
            ck_assert_uint_eq(s.answered.arrived, s.expected);
            toy_close(&t);
        }
}
END_TEST

START_TEST(sequence_closed_by_its_own_callback_is_gone)
{
    static struct toy t;
    struct toy_seq s;

    toy_open(&t, 1);
    for (int i = 0; i < 20; i++) {
        struct ngd_seq *seq;

        toy_seq_open(&t, &s, prompt, 3, NULL);
        seq = ngd_seq_ref(s.seq);
        toy_queue_generate(&s, 4, true);
        ngd_seq_close(s.seq); /* at some point of it */
        toy_wait(&s);
        ck_assert(s.status == NGD_ERR_CANCELLED || s.status == NGD_OK);
        ck_assert_int_eq(plain_step(seq, -1, false, toy_done, &s, NULL), NGD_ERR_STALE_ID);
        ngd_seq_unref(seq);
    }
    toy_close(&t);
}
END_TEST

START_TEST(closed_sequence_that_somebody_still_holds_answers_stale)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_seq *held;
    struct ngd_diag diag = {0};

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 3, NULL);
    held = ngd_seq_ref(s.seq);
    ngd_seq_close(s.seq);
    ck_assert_uint_eq(toy_blocks_used(&t), 0);
    ck_assert_int_eq(plain_step(held, -1, false, toy_done, &s, &diag), NGD_ERR_STALE_ID);
    ck_assert_int_eq(plain_generate(held, 3, false, toy_on_token, toy_generated, &s, &diag), NGD_ERR_STALE_ID);
    says(diag.text, "closed");
    ngd_seq_cancel(held);
    ngd_seq_unref(held);
    toy_close(&t);
}
END_TEST

START_TEST(model_lives_as_long_as_its_sequences)
{
    static struct toy t;
    struct toy_seq s;

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 3, NULL);
    ck_assert_ptr_eq(ngd_model_ref(t.model), t.model);
    ck_assert_ptr_null(ngd_model_unref(t.model));
    t.model = ngd_model_unref(t.model);
    toy_step(&s, 5);
    ngd_seq_close(s.seq);
    ck_assert_ptr_null(ngd_model_unref(NULL));
    toy_close(&t);
}
END_TEST

/* ---- the scheduler ends, the device fails ------------------------------------------------------------- */

START_TEST(scheduler_that_stops_answers_every_operation)
{
    enum { N = 6 };
    static struct toy t;
    static struct toy_seq s[N];
    struct hold h;

    toy_open(&t, 1);
    for (int i = 0; i < N; i++)
        if (i % 3 != 0)
            toy_seq_open(&t, &s[i], prompt, 2, NULL);
    hold_begin(&h, &t, WAITING);
    for (int i = 0; i < N; i++) {
        if (i % 3 == 0)
            toy_queue_open(&t, &s[i], prompt, 2, NULL);
        else if (i % 3 == 1)
            toy_queue_step(&s[i], -1);
        else
            toy_queue_generate(&s[i], 50, true);
    }
    ngd_sched_drain(t.bed.sched);
    ck_assert_int_eq(toy_try_open(&t, &(struct toy_seq){0}, prompt, 2, NULL, false, NULL), NGD_ERR_DRAINING);
    ck_assert(!ngd_sched_idle(t.bed.sched));
    hold_end(&h);
    ngd_sched_stop(t.bed.sched);
    for (int i = 0; i < N; i++) {
        toy_wait(&s[i]);
        ck_assert(s[i].status == NGD_OK || s[i].status == NGD_ERR_CANCELLED);
        ck_assert_int_eq(plain_step(s[i].seq, -1, false, toy_done, &s[i], NULL), NGD_ERR_DRAINING);
        ngd_seq_close(s[i].seq);
    }
    toy_close(&t);
}
END_TEST

START_TEST(step_that_the_device_fails_leaves_the_sequence_where_it_was)
{
    static struct toy t;
    struct toy_seq s;
    int32_t context[4] = {prompt[0], prompt[1]};

    if (!NGD_FAULT_COMPILED) {
        printf("skip - step_that_the_device_fails: this build has no fault points; configure with --enable-fault\n");
        return;
    }
    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 2, NULL);
    context[2] = s.token;
    for (int i = 0; i < 2; i++) {
        ngd_fault_arm(i ? NGD_FAULT_HOST_LOST : NGD_FAULT_HOST_FAULT, 0, 1);
        toy_queue_step(&s, -1);
        toy_wait(&s);
        ck_assert_int_eq(s.status, i ? NGD_ERR_DEVICE_LOST : NGD_ERR_DEVICE_FAULT);
        ck_assert_uint_eq(s.position, 2);
    }
    toy_step(&s, -1); /* the stream was reset, the executable captured anew */
    ck_assert_int_eq(s.token, toy_next(&t, context, 3));
    ngd_fault_arm(NGD_FAULT_HOST_FAULT, 0, 1);
    toy_generate(&s, 4, true);
    ck_assert_int_eq(s.status, NGD_ERR_DEVICE_FAULT);
    ck_assert_uint_eq(s.n_tokens, 1);
    toy_generate(&s, 4, true);
    toy_ok(&s);
    context[3] = toy_next(&t, context, 3);
    ck_assert_int_eq(s.tokens[0], toy_next(&t, context, 4));
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(prompt_that_the_device_fails_leaves_only_close)
{
    static struct toy t;
    struct toy_seq s, other;
    struct ngd_diag diag = {0};

    if (!NGD_FAULT_COMPILED) {
        printf("skip - prompt_that_the_device_fails: this build has no fault points; configure with --enable-fault\n");
        return;
    }
    toy_open(&t, 1);
    toy_seq_open(&t, &other, prompt, 4, NULL);
    ngd_fault_arm(NGD_FAULT_HOST_FAULT, 1, 1); /* its second chunk */
    toy_queue_open(&t, &s, prompt, 10, NULL);
    toy_wait(&s);
    ck_assert_int_eq(s.status, NGD_ERR_DEVICE_FAULT);
    ck_assert_int_eq(plain_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    ngd_seq_close(s.seq);
    toy_step(&other, prompt[4]);
    ck_assert_int_eq(other.token, toy_next(&t, prompt, 5));
    ngd_seq_close(other.seq);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/model_ends", step_cancelled_while_it_waits_is_answered_and_leaves_the_sequence_as_it_was,
          step_cancelled_while_it_runs_completes, generation_cancelled_between_tokens_stops_and_the_sequence_goes_on,
          generation_cancelled_while_it_waits_or_runs_is_answered_once,
          prompt_cancelled_before_its_end_leaves_only_close,
          sequence_closed_in_any_state_answers_once_and_frees_its_blocks, sequence_closed_by_its_own_callback_is_gone,
          closed_sequence_that_somebody_still_holds_answers_stale, model_lives_as_long_as_its_sequences,
          scheduler_that_stops_answers_every_operation, step_that_the_device_fails_leaves_the_sequence_where_it_was,
          prompt_that_the_device_fails_leaves_only_close)
