/* SPDX-License-Identifier: Apache-2.0 */
/* Tests prompts whose chunks run in slices, with steps of other sequences between them, on the toy model. */
#include "tests/unit/toy_model.h"
#include "base/fault.h"
#include "scheduler/record/timeline.h"

static const int32_t prompt[] = {3, 17, 0, 9, 22, 5, 5, 12, 20, 1, 8};
#define N_PROMPT 11

/* Makes the prompts' share so small that each slice is one call of the plan. */
static void slice_thin(struct toy *t)
{
    struct ngd_pace *pace = &t->model->pace;

    pace->percent = 1;
    ngd_pace_stepped(pace, ngd_now(), 100);
    pace->allowance = 1;
}

/* Counts tokens that come while a chunk of another sequence is under way. */
struct watched {
    struct toy_seq s;
    struct ngd_model *model;
    struct gate gate; /* the first token waits here */
    uint32_t between;
    bool cancel; /* the sequence whose chunk it is */
};

static void on_token(void *user, struct ngd_seq *seq, int32_t token, uint32_t position,
                     const struct ngd_logprobs *logprobs)
{
    struct watched *w = user;
    struct ngd_seq *other = w->model->prompt.n ? w->model->prompt.seqs[0] : NULL;

    if (w->s.n_tokens == 0)
        gate_pass(&w->gate);
    /* A step earns almost nothing here, but the chunks must make progress. */
    if (w->model->pace.allowance < 1)
        w->model->pace.allowance = 1;
    toy_on_token(&w->s, seq, token, position, logprobs);
    if (!other)
        return;
    w->between++;
    if (w->cancel)
        ngd_seq_cancel(other);
    w->cancel = false;
}

static void done(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status, const struct ngd_diag *diag)
{
    toy_generated(&((struct watched *)user)->s, seq, finish, status, diag);
}

/* Runs a generation, and a prompt that comes while it is under way. */
static void run_together(struct toy *t, struct watched *w, struct toy_seq *other, uint32_t n_other)
{
    struct ngd_diag diag = {0};

    slice_thin(t);
    w->model = t->model;
    gate_init(&w->gate);
    if (plain_generate(w->s.seq, 9, true, on_token, done, w, &diag))
        ck_abort_msg("%s", diag.text);
    gate_await(&w->gate, 1);
    toy_queue_open(t, other, prompt, n_other, NULL);
    gate_open(&w->gate);
    toy_wait(&w->s);
    toy_wait(other);
}

static void check_generation(const struct toy *t, const struct watched *w, const int32_t *begin, uint32_t n)
{
    int32_t context[TOY_CONTEXT];

    memcpy(context, begin, n * sizeof(*begin));
    toy_ok(&w->s);
    ck_assert_uint_eq(w->s.n_tokens, 9);
    for (uint32_t i = 0; i < 9; i++) {
        ck_assert_int_eq(w->s.tokens[i], toy_next(t, context, n));
        context[n++] = w->s.tokens[i];
    }
}

START_TEST(steps_are_made_between_the_slices_of_a_chunk_and_both_say_what_they_would)
{
    for (uint32_t slots = 1; slots <= 3; slots++) {
        static struct toy t;
        struct watched w = {0};
        struct toy_seq other;

        toy_open(&t, slots);
        toy_seq_open(&t, &w.s, prompt + 4, 3, NULL);
        run_together(&t, &w, &other, N_PROMPT);
        check_generation(&t, &w, prompt + 4, 3);
        ck_assert_uint_ge(w.between, 5); /* of nine */
        toy_ok(&other);
        ck_assert_int_eq(other.token, toy_next(&t, prompt, N_PROMPT));
        ck_assert_uint_eq(other.position, N_PROMPT);
        ngd_seq_close(other.seq);
        ngd_seq_close(w.s.seq);
        toy_close(&t);
    }
}
END_TEST

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;

    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

START_TEST(timeline_has_each_slice_and_copies_out_once_for_a_chunk)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_diag diag = {0};
    struct ngd_timeline_status status;
    struct ngd_strbuf sb;
    uint64_t next;

    toy_open(&t, 1);
    ck_assert_int_eq(ngd_timeline_start(t.bed.sched, 1000, &diag), NGD_OK);
    slice_thin(&t);
    toy_seq_open(&t, &s, prompt, N_PROMPT, NULL);
    ngd_seq_close(s.seq);
    ngd_timeline_stop(t.bed.sched, false, &status);
    ck_assert_uint_eq(status.lost, 0);
    ngd_strbuf_init(&sb);
    ck_assert_int_eq(ngd_timeline_print(t.bed.sched, NGD_TIMELINE_CHROME, 0, SIZE_MAX, &sb, &next, &diag), NGD_OK);
    ck_assert_uint_gt(count(ngd_strbuf_str(&sb), "\"name\":\"toy prefill\""), (N_PROMPT + TOY_CHUNK - 1) / TOY_CHUNK);
    ck_assert_uint_le(count(ngd_strbuf_str(&sb), "\"name\":\"copy out\""), (N_PROMPT + TOY_CHUNK - 1) / TOY_CHUNK);
    ngd_strbuf_fini(&sb);
    toy_close(&t);
}
END_TEST

START_TEST(prompts_of_any_length_in_slices_give_their_token_and_logits)
{
    static struct toy t;

    toy_open(&t, 1);
    for (uint32_t n = 1; n <= N_PROMPT; n++) {
        struct toy_seq s;
        double want[TOY_VOCAB];
        struct ngd_diag diag = {0};

        slice_thin(&t);
        if (toy_try_open(&t, &s, prompt, n, NULL, true, &diag))
            ck_abort_msg("%s", diag.text);
        toy_wait(&s);
        toy_ok(&s);
        ck_assert_int_eq(s.token, toy_next(&t, prompt, n));
        toy_logits(&t, prompt, n, want);
        for (int v = 0; v < TOY_VOCAB; v++)
            ck_assert_double_eq_tol(s.logits[v], want[v], 1e-5);
        ngd_seq_close(s.seq);
    }
    toy_close(&t);
}
END_TEST

START_TEST(chunks_of_fewer_rows_give_the_bits_of_whole_ones)
{
    static struct toy t;
    float whole[TOY_VOCAB];

    toy_bed(&t, 1);
    t.no_sharing = true;
    toy_create(&t);
    for (uint32_t rows = TOY_CHUNK; rows >= 1; rows--) {
        struct toy_seq s;
        struct ngd_diag diag = {0};

        slice_thin(&t);
        t.model->pace.percent = 1000;
        t.model->pace.step = NGD_SEC; /* of which nothing here takes the share, nor so little that rows were added */
        t.model->pace.rows = rows;
        t.model->pace.max_rows = rows;
        if (toy_try_open(&t, &s, prompt, N_PROMPT, NULL, true, &diag))
            ck_abort_msg("%s", diag.text);
        toy_wait(&s);
        toy_ok(&s);
        if (rows == TOY_CHUNK)
            memcpy(whole, s.logits, sizeof(whole));
        ck_assert_mem_eq(s.logits, whole, sizeof(whole));
        ngd_seq_close(s.seq);
    }
    toy_close(&t);
}
END_TEST

START_TEST(prompt_cancelled_between_two_slices_ends_at_once_and_its_blocks_come_back)
{
    static struct toy t;
    struct watched w = {.cancel = true};
    struct toy_seq other;

    toy_open(&t, 1);
    toy_seq_open(&t, &w.s, prompt + 4, 3, NULL);
    run_together(&t, &w, &other, N_PROMPT);
    check_generation(&t, &w, prompt + 4, 3);
    ck_assert_uint_eq(w.between, 1); /* it was not gone on with */
    ck_assert_int_eq(other.status, NGD_ERR_CANCELLED);
    ngd_seq_close(other.seq);
    ngd_seq_close(w.s.seq);
    toy_close(&t); /* which counts the blocks */
}
END_TEST

START_TEST(slice_that_the_device_fails_fails_its_prompt_and_nobody_else)
{
    static struct toy t;
    struct toy_seq s, again;

    if (!NGD_FAULT_COMPILED) {
        printf("skip - slice_that_the_device_fails: this build has no fault points; configure with --enable-fault\n");
        return;
    }
    toy_open(&t, 1);
    slice_thin(&t);
    ngd_fault_arm(NGD_FAULT_HOST_FAULT, 2, 1); /* the third slice */
    toy_queue_open(&t, &s, prompt, N_PROMPT, NULL);
    toy_wait(&s);
    ngd_fault_disarm_all();
    ck_assert_int_eq(s.status, NGD_ERR_DEVICE_FAULT);
    ngd_seq_close(s.seq);
    toy_seq_open(&t, &again, prompt, N_PROMPT, NULL);
    ck_assert_int_eq(again.token, toy_next(&t, prompt, N_PROMPT));
    ngd_seq_close(again.seq);
    toy_close(&t);
}
END_TEST

START_TEST(scheduler_that_stops_between_two_slices_answers_the_prompt)
{
    static struct toy t;
    struct toy_seq s;

    toy_open(&t, 1);
    slice_thin(&t);
    toy_queue_open(&t, &s, prompt, N_PROMPT, NULL);
    ngd_sched_drain(t.bed.sched);
    ngd_sched_stop(t.bed.sched);
    toy_wait(&s);
    ck_assert(s.status == NGD_OK || s.status == NGD_ERR_CANCELLED);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/slices", steps_are_made_between_the_slices_of_a_chunk_and_both_say_what_they_would,
          timeline_has_each_slice_and_copies_out_once_for_a_chunk,
          prompts_of_any_length_in_slices_give_their_token_and_logits, chunks_of_fewer_rows_give_the_bits_of_whole_ones,
          prompt_cancelled_between_two_slices_ends_at_once_and_its_blocks_come_back,
          slice_that_the_device_fails_fails_its_prompt_and_nobody_else,
          scheduler_that_stops_between_two_slices_answers_the_prompt)
