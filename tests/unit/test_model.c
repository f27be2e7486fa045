/* SPDX-License-Identifier: Apache-2.0 */
/* Models and sequences on the scheduler's public interface: toy_model.h has the model and what it should say. */
#include "tests/unit/toy_model.h"
#include "base/fault.h"

static const int32_t prompt[TOY_CONTEXT + 1] = {3, 17, 0, 9, 22, 5, 5, 12, 20, 1, 8, 14, 2, 6};

static void says(const char *text, const char *word)
{
    ck_assert_msg(strstr(text, word) != NULL, "no \"%s\" in \"%s\"", word, text);
}

/* Where an operation is when it is cancelled or its sequence closed. */
enum where { WAITING, RUNNING };

/* Holds the worker before (WAITING) or in (RUNNING) the next replay. */
struct hold {
    enum where where;
    struct gate gate;
    struct call busy;
    struct ngd_binding *binding;
};

static void hold_pass(void *arg)
{
    gate_pass(arg);
}

static void hold_begin(struct hold *h, struct toy *t, enum where where)
{
    h->where = where;
    gate_init(&h->gate);
    h->binding = bed_binding(&t->bed, DOUBLE_TEXT, NULL);
    if (where == WAITING)
        call_occupy(&t->bed, &h->busy, h->binding, &h->gate);
    if (where == RUNNING) {
        ck_assert_int_eq(ngd_stream_callback(bed_slot(&t->bed, 0)->stream, hold_pass, &h->gate), NGD_OK);
        gate_await(&h->gate, 1);
    }
}

/* Until the operation is where it should be. */
static void hold_await(const struct hold *h, const struct toy_seq *s, const char *waiting)
{
    struct ngd_model *model = ngd_seq_model(s->seq);
    struct ngd_seq_info info;
    bool running = h->where != RUNNING;

    while (!running) {
        ngd_mutex_lock(&model->lock);
        running = s->seq->state == NGD_SEQ_RUNNING;
        ngd_mutex_unlock(&model->lock);
        sched_yield();
    }
    ngd_seq_info(s->seq, &info);
    if (h->where == WAITING)
        ck_assert_str_eq(info.state, waiting);
}

static void hold_end(struct hold *h)
{
    gate_open(&h->gate);
    if (h->where == WAITING)
        call_wait(&h->busy);
    ngd_binding_unref(h->binding);
}

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
        {prompt, UINT32_MAX, NGD_ERR_PROMPT_TOO_LONG, "the context of model \"toy\" has 13"},
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
    ck_assert_int_eq(ngd_seq_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_CONTEXT_FULL);
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
    ck_assert_int_eq(ngd_seq_step(s.seq, TOY_VOCAB, false, toy_done, &s, &diag), NGD_ERR_TOKEN_RANGE);
    ck_assert_int_eq(ngd_seq_step(s.seq, -2, false, toy_done, &s, &diag), NGD_ERR_TOKEN_RANGE);
    says(diag.text, "-2");
    toy_step(&s, prompt[1]); /* a refused step changed nothing */
    ck_assert_int_eq(s.token, toy_next(&t, prompt, 2));
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

/* In one batch some want logits and some do not: each gets its own row, or none. */
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
        ck_assert_int_eq(ngd_seq_step(s[i].seq, prompt[2 * i + 2], i % 2, toy_done, &s[i], NULL), NGD_OK);
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
    ck_assert_int_eq(ngd_seq_generate(s.seq, 0, false, toy_on_token, toy_generated, &s, &diag),
                     NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "max_tokens");
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

/* Stop tokens are what the model says next, whatever that is. */
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
        ck_assert_int_eq(ngd_seq_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_SEQUENCE_BUSY);
        ck_assert_int_eq(ngd_seq_generate(s.seq, 3, false, toy_on_token, toy_generated, &s, &diag),
                         NGD_ERR_SEQUENCE_BUSY);
        says(diag.text, "under way");
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
    late->status = ngd_seq_step(late->s->seq, 4, false, toy_done, late->s, &diag);
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
    ck_assert_int_eq(ngd_seq_await(s.seq, &late.waiter), NGD_SEQ_BUSY); /* it goes on */
    ngd_seq_cancel(s.seq);
    ngd_seq_info(s.seq, &info);
    ck_assert_str_eq(info.state, "stopping");
    ck_assert_int_eq(ngd_seq_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_SEQUENCE_BUSY);
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

/* ---- batching ----------------------------------------------------------------------------------------- */

#define N_TOGETHER 7
#define N_STEPS    6

/* Tokens of sequence i alone. */
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

/* ---- KV blocks ---------------------------------------------------------------------------------------- */

START_TEST(prompt_that_finds_no_blocks_is_refused_until_a_sequence_is_closed)
{
    static struct toy t;
    struct toy_seq a, b, c;
    struct ngd_diag diag = {0};

    toy_open_few(&t);
    toy_seq_open(&t, &a, prompt, TOY_CONTEXT, NULL); /* 7 of 16 blocks */
    toy_seq_open(&t, &b, prompt, TOY_CONTEXT, NULL);
    ck_assert_uint_eq(toy_blocks_used(&t), 14);
    ck_assert_int_eq(toy_try_open(&t, &c, prompt, 5, NULL, false, &diag), NGD_ERR_KV_EXHAUSTED);
    says(diag.text, "3 KV blocks");
    says(diag.text, "2 of 16");
    ck_assert_uint_eq(toy_blocks_used(&t), 14);
    ngd_seq_close(a.seq);
    ck_assert_uint_eq(toy_blocks_used(&t), 7);
    toy_seq_open(&t, &c, prompt, 5, NULL);
    ck_assert_int_eq(c.token, toy_next(&t, prompt, 5));
    ngd_seq_close(b.seq);
    ngd_seq_close(c.seq);
    toy_close(&t);
}
END_TEST

START_TEST(step_that_finds_no_block_fails_and_works_when_there_is_one)
{
    static struct toy t;
    struct toy_seq a, b, c;
    int32_t context[TOY_CONTEXT];

    toy_open_few(&t);
    toy_seq_open(&t, &a, prompt, TOY_CONTEXT, NULL);
    toy_seq_open(&t, &b, prompt, TOY_CONTEXT, NULL);
    toy_seq_open(&t, &c, prompt, 4, NULL); /* full blocks: the next token needs one more */
    ck_assert_uint_eq(toy_blocks_used(&t), TOY_FEW);
    for (int i = 0; i < 3; i++) {
        toy_queue_step(&c, -1);
        toy_wait(&c);
        ck_assert_int_eq(c.status, NGD_ERR_KV_EXHAUSTED);
        says(c.text, "0 of 16");
        ck_assert_uint_eq(c.position, 4);
    }
    toy_generate(&c, 3, true); /* a generation tells what it has, then fails */
    ck_assert_int_eq(c.status, NGD_ERR_KV_EXHAUSTED);
    ck_assert_uint_eq(c.n_tokens, 1);
    ngd_seq_close(a.seq);
    memcpy(context, prompt, sizeof(context));
    context[4] = toy_next(&t, context, 4);
    toy_step(&c, -1);
    ck_assert_int_eq(c.token, toy_next(&t, context, 5));
    ngd_seq_close(b.seq);
    ngd_seq_close(c.seq);
    toy_close(&t);
}
END_TEST

/* Blocks go round for long: what an earlier sequence wrote into them must not be seen. */
START_TEST(blocks_that_are_used_again_carry_nothing_over)
{
    static struct toy t;
    uint32_t seed = 7;

    toy_open(&t, 1);
    for (int round = 0; round < 60; round++) {
        struct toy_seq s[3];
        int32_t context[3][TOY_CONTEXT];
        uint32_t n[3];

        for (int i = 0; i < 3; i++) {
            n[i] = 1 + (seed = seed * 1664525u + 1013904223u) % 8 % (TOY_CONTEXT - 3);
            for (uint32_t k = 0; k < n[i]; k++)
                context[i][k] = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 8) % TOY_VOCAB;
            toy_queue_open(&t, &s[i], context[i], n[i], NULL);
        }
        for (int i = 0; i < 3; i++) {
            toy_wait(&s[i]);
            toy_ok(&s[i]);
            ck_assert_int_eq(s[i].token, toy_next(&t, context[i], n[i]));
        }
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < 3; i++) {
                context[i][n[i]++] = s[i].token;
                toy_queue_step(&s[i], -1);
            }
            for (int i = 0; i < 3; i++) {
                toy_wait(&s[i]);
                ck_assert_int_eq(s[i].token, toy_next(&t, context[i], n[i]));
            }
        }
        for (int i = 0; i < 3; i++)
            ngd_seq_close(s[(i + round) % 3].seq);
        ck_assert_uint_eq(toy_blocks_used(&t), 0);
    }
    toy_close(&t);
}
END_TEST

START_TEST(sequences_past_the_limit_are_refused)
{
    static struct toy t;
    static struct toy_seq s[10], more;
    struct ngd_diag diag = {0};

    toy_open(&t, 1);
    for (int i = 0; i < 10; i++)
        toy_seq_open(&t, &s[i], prompt, 1, NULL);
    ck_assert_int_eq(toy_try_open(&t, &more, prompt, 1, NULL, false, &diag), NGD_ERR_RESOURCE_EXHAUSTED);
    says(diag.text, "10 sequences");
    ngd_seq_close(s[0].seq);
    toy_seq_open(&t, &s[0], prompt, 1, NULL);
    for (int i = 0; i < 10; i++)
        ngd_seq_close(s[i].seq);
    toy_close(&t);
}
END_TEST

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
    toy_step(&s, 4); /* the cancel does not hang over to the next one */
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
    toy_generate(&s, 2, true); /* goes on behind the last token that was told */
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
        ck_assert_int_eq(ngd_seq_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
        says(diag.text, "close it");
        ck_assert_int_eq(ngd_seq_generate(s.seq, 3, false, toy_on_token, toy_generated, &s, &diag),
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
        ck_assert_int_eq(ngd_seq_step(seq, -1, false, toy_done, &s, NULL), NGD_ERR_STALE_ID);
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
    ck_assert_int_eq(ngd_seq_step(held, -1, false, toy_done, &s, &diag), NGD_ERR_STALE_ID);
    ck_assert_int_eq(ngd_seq_generate(held, 3, false, toy_on_token, toy_generated, &s, &diag), NGD_ERR_STALE_ID);
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
        ck_assert_int_eq(ngd_seq_step(s[i].seq, -1, false, toy_done, &s[i], NULL), NGD_ERR_DRAINING);
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
    ck_assert_int_eq(ngd_seq_step(s.seq, -1, false, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    ngd_seq_close(s.seq);
    toy_step(&other, prompt[4]);
    ck_assert_int_eq(other.token, toy_next(&t, prompt, 5));
    ngd_seq_close(other.seq);
    toy_close(&t);
}
END_TEST

/* ---- no host memory ----------------------------------------------------------------------------------- */

START_TEST(model_that_finds_no_host_memory_is_refused_and_leaves_nothing_behind)
{
    struct ngd_model_params params;
    static struct toy t;
    int64_t n = 0;
    ngd_status_t status;

    toy_bed(&t, 1);
    do {
        struct ngd_diag diag = {0};

        toy_params(&t, &params); /* new programs: a capture that failed is not tried again at once */
        ngd_mem_fail_after(n);
        status = ngd_model_create(t.bed.sched, &params, &t.model, &diag);
        ngd_mem_fail_after(-1);
        ck_assert_msg(!status || status == NGD_ERR_NO_MEMORY || status == NGD_ERR_CAPTURE_FAILED,
                      "allocation %lld: %s: %s", (long long)n, ngd_status_name(status), diag.text);
        ck_assert_int_eq(t.model == NULL, status != NGD_OK);
        toy_params_fini(&params);
    } while (status && ++n < 20000);
    ck_assert_int_eq(status, NGD_OK);
    ck_assert_int_gt(n, 20);
    toy_close(&t);
}
END_TEST

START_TEST(sequence_that_finds_no_host_memory_is_refused_and_takes_no_blocks)
{
    static struct toy t;
    struct toy_seq s;
    int64_t n = 0;
    ngd_status_t status;

    toy_open(&t, 1);
    do {
        ngd_mem_fail_after(n);
        status = toy_try_open(&t, &s, prompt, 5, NULL, false, NULL);
        ngd_mem_fail_after(-1);
        ck_assert_msg(!status || status == NGD_ERR_NO_MEMORY, "%s", ngd_status_name(status));
        if (status)
            ck_assert_uint_eq(toy_blocks_used(&t), 0);
    } while (status && ++n < 1000);
    ck_assert_int_gt(n, 0);
    toy_wait(&s);
    toy_ok(&s);
    ck_assert_int_eq(s.token, toy_next(&t, prompt, 5));
    ngd_mem_fail_after(0); /* a step allocates nothing on the caller's thread */
    toy_queue_step(&s, prompt[5]);
    ngd_mem_fail_after(-1);
    toy_wait(&s);
    toy_ok(&s);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

/* ---- contracts ---------------------------------------------------------------------------------------- */

static void no_tokens(struct ngd_model_params *p)
{
    p->contract.tokens = "";
}
static void wrong_label(struct ngd_model_params *p)
{
    p->contract.positions = "position";
}
static void swapped(struct ngd_model_params *p)
{
    p->contract.positions = "temperature";
}
static void half_sampling(struct ngd_model_params *p)
{
    p->contract.seed = NULL;
}
static void one_state(struct ngd_model_params *p)
{
    p->contract.n_kv_states = 1;
}
static void too_many_blocks(struct ngd_model_params *p)
{
    p->num_blocks = TOY_BLOCKS + 1;
}
static void other_blocks(struct ngd_model_params *p)
{
    p->block_size = TOY_BLOCK + 1;
}
static void long_context(struct ngd_model_params *p)
{
    p->max_context = 15;
}
static void other_vocab(struct ngd_model_params *p)
{
    p->vocab = TOY_VOCAB - 1;
}
static void no_vocab(struct ngd_model_params *p)
{
    p->vocab = 0;
}
static void twice(struct ngd_model_params *p)
{
    p->contract.positions = p->contract.tokens;
}
static void same_graph(struct ngd_model_params *p)
{
    ngd_binding_unref(p->prefill);
    p->prefill = ngd_binding_ref(p->decode);
}

START_TEST(contract_that_does_not_fit_its_graphs_is_refused_by_role)
{
    static const struct {
        void (*spoil)(struct ngd_model_params *p);
        const char *says;
    } bad[] = {
        {no_tokens, "tokens"},        {wrong_label, "position"}, {swapped, "positions"},
        {half_sampling, "seed"},      {one_state, "vc"},         {too_many_blocks, "num_blocks"},
        {other_blocks, "block_size"}, {long_context, "15"},      {other_vocab, "logits_output"},
        {no_vocab, "vocab"},          {twice, "tokens"},         {same_graph, "prefill"},
    };
    static struct toy t;

    toy_bed(&t, 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ngd_model_params params;
        struct ngd_diag diag = {0};
        ngd_status_t status;

        toy_params(&t, &params);
        bad[i].spoil(&params);
        status = ngd_model_create(t.bed.sched, &params, &t.model, &diag);
        ck_assert_msg(status == NGD_ERR_MODEL_CONTRACT, "case %zu: %s", i, ngd_status_name(status));
        says(diag.text, bad[i].says);
        ck_assert_ptr_null(t.model);
        toy_params_fini(&params);
    }
    toy_close(&t);
}
END_TEST

/* The daemon chooses the rows of a step, and could choose what a guard forbids. */
START_TEST(guards_of_a_models_graphs_must_hold_for_any_number_of_rows)
{
    static struct toy t;
    struct ngd_model_params params;
    struct ngd_diag diag = {0};

    toy_bed(&t, 1);
    t.guard = "B != 3";
    toy_params(&t, &params);
    ck_assert_int_eq(ngd_model_create(t.bed.sched, &params, &t.model, &diag), NGD_ERR_MODEL_CONTRACT);
    says(diag.text, "the decode graph has guards that can fail");
    ck_assert_ptr_null(t.model);
    toy_params_fini(&params);
    t.guard = "B < 100";
    toy_params(&t, &params);
    ck_assert_int_eq(ngd_model_create(t.bed.sched, &params, &t.model, &diag), NGD_OK);
    toy_params_fini(&params);
    toy_close(&t);
}
END_TEST

START_TEST(model_says_what_it_is)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_model_stats stats;

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, 6, NULL); /* two chunks */
    toy_step(&s, -1);
    ngd_model_stats(t.model, &stats);
    ck_assert_str_eq(stats.name, "toy");
    ck_assert_str_eq(stats.description, "one attention layer");
    ck_assert_uint_eq(stats.max_batch, TOY_BATCH);
    ck_assert_uint_eq(stats.num_blocks, TOY_BLOCKS);
    ck_assert_uint_eq(stats.blocks_used, 4);
    ck_assert_uint_eq(stats.sequences, 1);
    ck_assert_uint_eq(stats.tokens_prefill, 6);
    ck_assert_uint_eq(stats.tokens_decode, 2); /* the one that the prompt chose, and the step's */
    ck_assert_uint_eq(stats.batches, 1);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(model_without_sampling_or_logits_refuses_who_asks_for_them)
{
    const struct ngd_sampling sampling = {.temperature = 0.5f};
    static struct toy t;
    struct toy_seq s;
    struct ngd_diag diag = {0};

    toy_bed(&t, 1);
    t.greedy = true;
    toy_create(&t);
    ck_assert_int_eq(toy_try_open(&t, &s, prompt, 3, &sampling, false, &diag), NGD_ERR_SAMPLING);
    says(diag.text, "greedy");
    ck_assert_int_eq(toy_try_open(&t, &s, prompt, 3, NULL, true, &diag), NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "logits");
    toy_seq_open(&t, &s, prompt, 3, NULL);
    ck_assert_int_eq(s.token, toy_next(&t, prompt, 3));
    ck_assert_int_eq(ngd_seq_step(s.seq, -1, true, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    toy_step(&s, prompt[3]);
    ck_assert_int_eq(s.token, toy_next(&t, prompt, 4));
    ngd_seq_close(s.seq);
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

UNIT_MAIN("scheduler/model", prompt_of_any_length_gives_the_token_of_its_context,
          prompt_that_cannot_be_is_refused_and_takes_nothing,
          sampling_parameters_outside_their_range_are_refused_by_name,
          steps_follow_the_context_to_its_end_and_not_beyond, forced_tokens_are_as_good_as_a_prompt,
          logits_of_a_step_are_those_of_its_context, generation_tells_each_token_once_and_ends_at_its_length,
          generation_of_no_tokens_is_refused, generation_ends_at_a_stop_token_unless_told_to_go_on,
          operation_on_a_busy_sequence_is_refused, operation_after_one_that_was_cancelled_can_wait_for_its_end,
          operation_that_waits_for_a_cancelled_one_is_told_when_the_sequence_is_closed,
          greedy_tokens_together_equal_those_alone, drawn_tokens_together_equal_those_alone,
          tokens_with_three_workers_equal_those_alone, generations_together_equal_steps_alone,
          seed_decides_what_is_drawn, prompt_that_finds_no_blocks_is_refused_until_a_sequence_is_closed,
          step_that_finds_no_block_fails_and_works_when_there_is_one, blocks_that_are_used_again_carry_nothing_over,
          sequences_past_the_limit_are_refused,
          step_cancelled_while_it_waits_is_answered_and_leaves_the_sequence_as_it_was,
          step_cancelled_while_it_runs_completes, generation_cancelled_between_tokens_stops_and_the_sequence_goes_on,
          generation_cancelled_while_it_waits_or_runs_is_answered_once,
          prompt_cancelled_before_its_end_leaves_only_close,
          sequence_closed_in_any_state_answers_once_and_frees_its_blocks, sequence_closed_by_its_own_callback_is_gone,
          closed_sequence_that_somebody_still_holds_answers_stale, model_lives_as_long_as_its_sequences,
          scheduler_that_stops_answers_every_operation, step_that_the_device_fails_leaves_the_sequence_where_it_was,
          prompt_that_the_device_fails_leaves_only_close,
          model_that_finds_no_host_memory_is_refused_and_leaves_nothing_behind,
          sequence_that_finds_no_host_memory_is_refused_and_takes_no_blocks,
          contract_that_does_not_fit_its_graphs_is_refused_by_role,
          guards_of_a_models_graphs_must_hold_for_any_number_of_rows, model_says_what_it_is,
          model_without_sampling_or_logits_refuses_who_asks_for_them,
          clients_that_open_generate_cancel_and_close_at_once_get_what_they_should)
