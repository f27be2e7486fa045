/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings on the toy model, whose hidden states are computed in double from the whole prompt. */
#define TOY_SIZES \
    TOY_BLOCK = 2, TOY_BLOCKS = 40, TOY_FEW = 8, TOY_CONTEXT = 13, TOY_CHUNK = 4, TOY_CHUNK_TOGETHER = 12, TOY_BATCH = 4
#include "tests/unit/model_util.h"

static ngd_status_t try_embed(struct toy *t, struct toy_seq *s, uint32_t n, ngd_priority_t priority,
                              struct ngd_diag *diag)
{
    const struct ngd_seq_params params = {.prompt = prompt, .n_prompt = n, .embed = true, .priority = priority};

    memset(s, 0, sizeof(*s));
    gate_init(&s->answered);
    return ngd_seq_open(t->model, &params, toy_done, s, &s->seq, diag);
}

static void queue_embed(struct toy *t, struct toy_seq *s, uint32_t n, ngd_priority_t priority)
{
    struct ngd_diag diag = {0};

    if (try_embed(t, s, n, priority, &diag))
        ck_abort_msg("%s", diag.text);
}

/* Waits for an embedding, and checks it against what the first n tokens of the prompt give. */
static void check_embedding(struct toy *t, struct toy_seq *s, uint32_t n)
{
    double want[TOY_DIM] = {0};

    toy_wait(s);
    toy_ok(s);
    for (uint32_t last = t->mean ? 1 : n; last <= n; last++)
        toy_attend(t, t->ev, prompt, 0, last, want);
    for (int d = 0; d < TOY_DIM; d++)
        ck_assert_double_eq_tol(s->hidden[d], want[d] / (t->mean ? n : 1), 1e-5);
    ck_assert_uint_eq(s->position, n);
    ngd_seq_close(s->seq);
}

static void open_bed(struct toy *t, bool mean, bool headless)
{
    toy_bed(t, 1);
    t->embeds = true;
    t->mean = mean;
    t->headless = headless;
}

static void check_alone(bool mean, bool headless, uint32_t together)
{
    static struct toy t;
    struct ngd_model_stats stats;
    struct toy_seq s;

    open_bed(&t, mean, headless);
    t.together = together;
    toy_create(&t);
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_eq(stats.hidden_size, TOY_DIM);
    ck_assert_int_eq(stats.decode == NULL, headless);
    for (uint32_t n = 1; n <= TOY_CONTEXT; n++) {
        queue_embed(&t, &s, n, NGD_PRIORITY_NORMAL);
        check_embedding(&t, &s, n);
        ck_assert_uint_eq(s.shared, mean ? 0 : (n - 1) / TOY_BLOCK * TOY_BLOCK); /* the shorter prompt computed them */
    }
    toy_close(&t);
}

START_TEST(embedding_is_the_hidden_state_of_the_last_row)
{
    check_alone(false, false, 0);
    check_alone(false, false, 3);
    check_alone(false, true, 3);
}
END_TEST

START_TEST(embedding_is_the_mean_of_all_rows_where_the_model_says_so)
{
    check_alone(true, false, 0);
    check_alone(true, false, 3);
    check_alone(true, true, 3);
}
END_TEST

START_TEST(prompts_of_embeddings_and_of_generations_share_a_replay)
{
    static struct toy t;
    struct toy_seq s[3], tokens;
    struct hold hold;

    open_bed(&t, false, false);
    t.together = 4;
    toy_create(&t);
    hold_begin(&hold, &t, WAITING);
    for (uint32_t i = 0; i < 3; i++)
        queue_embed(&t, &s[i], 1 + i, NGD_PRIORITY_NORMAL);
    toy_queue_open(&t, &tokens, prompt, 2, NULL);
    hold_end(&hold);
    for (uint32_t i = 0; i < 3; i++) {
        check_embedding(&t, &s[i], 1 + i);
        ck_assert_uint_eq(s[i].batch, 4);
    }
    toy_wait(&tokens);
    toy_ok(&tokens);
    ck_assert_int_eq(tokens.token, toy_next(&t, prompt, 2));
    ngd_seq_close(tokens.seq);
    toy_close(&t);
}
END_TEST

/* An urgent prompt takes the blocks of one that has computed some of its rows. They are added once. */
START_TEST(rows_that_are_computed_again_are_added_once)
{
    static struct toy t;
    struct ngd_model_stats stats;
    struct toy_seq slow, urgent;
    struct hold hold;

    open_bed(&t, true, false);
    t.blocks = TOY_FEW;
    t.preempt = true;
    toy_create(&t);
    hold_begin(&hold, &t, RUNNING);
    queue_embed(&t, &slow, TOY_CONTEXT, NGD_PRIORITY_LOW);
    hold_await(&hold, &slow, "");
    queue_embed(&t, &urgent, TOY_CONTEXT, NGD_PRIORITY_HIGH);
    hold_end(&hold);
    check_embedding(&t, &urgent, TOY_CONTEXT);
    check_embedding(&t, &slow, TOY_CONTEXT);
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_ge(stats.preemptions, 1);
    toy_close(&t);
}
END_TEST

START_TEST(cancelled_and_closed_prompts_give_their_blocks_back)
{
    static struct toy t;

    open_bed(&t, true, true);
    toy_create(&t);
    for (enum where where = WAITING; where <= RUNNING; where++) {
        struct toy_seq s;
        struct hold hold;

        hold_begin(&hold, &t, where);
        queue_embed(&t, &s, TOY_CONTEXT, NGD_PRIORITY_NORMAL);
        hold_await(&hold, &s, "prefill");
        ngd_seq_cancel(s.seq);
        hold_end(&hold);
        toy_wait(&s);
        ck_assert_int_eq(s.status, NGD_ERR_CANCELLED);
        ngd_seq_close(s.seq);
        ck_assert_uint_eq(toy_blocks_used(&t), 0);
    }
    toy_close(&t);
}
END_TEST

START_TEST(models_refuse_what_they_do_not_return)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_diag diag;

    toy_open(&t, 1);
    ck_assert_int_eq(try_embed(&t, &s, 3, NGD_PRIORITY_NORMAL, &diag), NGD_ERR_NO_EMBEDDINGS);
    ck_assert_ptr_nonnull(strstr(diag.text, "hidden_output"));
    toy_close(&t);
    open_bed(&t, false, true);
    toy_create(&t);
    ck_assert_int_eq(toy_try_open(&t, &s, prompt, 3, NULL, false, &diag), NGD_ERR_NO_GENERATION);
    ck_assert_int_eq(try_embed(&t, &s, 0, NGD_PRIORITY_NORMAL, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(try_embed(&t, &s, TOY_CONTEXT + 1, NGD_PRIORITY_NORMAL, &diag), NGD_ERR_PROMPT_TOO_LONG);
    toy_close(&t);
}
END_TEST

START_TEST(numbers_that_are_not_finite_are_an_error)
{
    static struct toy t;
    const float nan = NAN;
    struct toy_seq s;

    open_bed(&t, false, false);
    toy_create(&t);
    ck_assert_int_eq(ngd_buffer_write(t.buffers[1], 9 * TOY_DIM * sizeof(float), &nan, sizeof(nan), NULL), NGD_OK);
    queue_embed(&t, &s, 4, NGD_PRIORITY_NORMAL); /* token 9 is the fourth */
    toy_wait(&s);
    ck_assert_int_eq(s.status, NGD_ERR_NOT_FINITE);
    ck_assert_ptr_nonnull(strstr(s.text, "element 0"));
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(model_without_a_head_that_finds_no_host_memory_is_refused)
{
    struct ngd_model_params params;
    static struct toy t;
    int64_t n = 0;
    ngd_status_t status;

    open_bed(&t, true, true);
    do {
        struct ngd_diag diag = {0};

        toy_params(&t, &params);
        ngd_mem_fail_after(n);
        status = ngd_model_create(t.bed.sched, &params, &t.model, &diag);
        ngd_mem_fail_after(-1);
        ck_assert_msg(!status || status == NGD_ERR_NO_MEMORY || status == NGD_ERR_CAPTURE_FAILED,
                      "allocation %lld: %s: %s", (long long)n, ngd_status_name(status), diag.text);
        toy_params_fini(&params);
    } while (status && ++n < 20000);
    ck_assert_int_eq(status, NGD_OK);
    ck_assert_int_gt(n, 10);
    toy_close(&t);
}
END_TEST

START_TEST(embedding_that_finds_no_host_memory_is_refused_and_takes_no_blocks)
{
    static struct toy t;
    struct toy_seq s;
    int64_t n = 0;
    ngd_status_t status;

    open_bed(&t, true, false);
    toy_create(&t);
    do {
        ngd_mem_fail_after(n);
        status = try_embed(&t, &s, 5, NGD_PRIORITY_NORMAL, NULL);
        ngd_mem_fail_after(-1);
        ck_assert_msg(!status || status == NGD_ERR_NO_MEMORY, "%s", ngd_status_name(status));
        if (status)
            ck_assert_uint_eq(toy_blocks_used(&t), 0);
    } while (status && ++n < 1000);
    ck_assert_int_gt(n, 3);
    check_embedding(&t, &s, 5);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/model_embed", embedding_is_the_hidden_state_of_the_last_row,
          embedding_is_the_mean_of_all_rows_where_the_model_says_so,
          prompts_of_embeddings_and_of_generations_share_a_replay, rows_that_are_computed_again_are_added_once,
          cancelled_and_closed_prompts_give_their_blocks_back, models_refuse_what_they_do_not_return,
          numbers_that_are_not_finite_are_an_error, model_without_a_head_that_finds_no_host_memory_is_refused,
          embedding_that_finds_no_host_memory_is_refused_and_takes_no_blocks)
