/* SPDX-License-Identifier: Apache-2.0 */
/* Tests models and sequences that find no KV blocks, no place or no host memory. */
#include "tests/unit/model_util.h"

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
    toy_generate(&c, 3, true); /* a generation delivers its tokens, then fails */
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

/* Blocks are reused for long: what an earlier sequence wrote into them must not be visible. */
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

UNIT_MAIN("scheduler/model_shortage", prompt_that_finds_no_blocks_is_refused_until_a_sequence_is_closed,
          step_that_finds_no_block_fails_and_works_when_there_is_one, blocks_that_are_used_again_carry_nothing_over,
          sequences_past_the_limit_are_refused, model_that_finds_no_host_memory_is_refused_and_leaves_nothing_behind,
          sequence_that_finds_no_host_memory_is_refused_and_takes_no_blocks)
