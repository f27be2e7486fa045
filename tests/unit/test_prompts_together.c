/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that prompts that wait together share a replay, and that each gets what it gets alone. */
#include "tests/unit/model_util.h"
#include "base/fault.h"

#define N_PROMPTS 6

static void open_together(struct toy *t, uint32_t together)
{
    toy_bed(t, 1);
    t->together = together;
    toy_create(t);
}

/* Opens sequences of lens[i] tokens from prompt[i] on, while the worker is busy, and waits for their answers. Returns
 * the replays that they took. */
static uint32_t open_all(struct toy *t, struct toy_seq *s, const uint32_t *lens, uint32_t n)
{
    struct ngd_binding *b = bed_binding(&t->bed, DOUBLE_TEXT, NULL);
    struct call busy;
    struct gate gate;
    double replays = 0;

    call_occupy(&t->bed, &busy, b, &gate);
    for (uint32_t i = 0; i < n; i++)
        toy_queue_open(t, &s[i], prompt + i, lens[i], NULL);
    gate_open(&gate);
    call_wait(&busy);
    for (uint32_t i = 0; i < n; i++) {
        toy_wait(&s[i]);
        toy_ok(&s[i]);
        ck_assert_int_eq(s[i].token, toy_next(t, prompt + i, lens[i]));
        replays += 1.0 / s[i].batch;
    }
    ngd_binding_unref(b);
    return (uint32_t)(replays + 0.5);
}

static void close_all(struct toy_seq *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ngd_seq_close(s[i].seq);
}

START_TEST(short_prompts_share_a_replay_and_a_graph_for_one_takes_them_in_turn)
{
    static const uint32_t lens[N_PROMPTS] = {2, 1, 3, 2, 1, 3}; /* TOY_CHUNK_TOGETHER */
    static const struct {
        uint32_t together, replays;
    } cases[] = {{0, 6}, {1, 6}, {2, 3}, {4, 2}, {6, 1}, {9, 1}};
    static struct toy t;
    static struct toy_seq s[N_PROMPTS];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_together(&t, cases[i].together);
        ck_assert_uint_eq(open_all(&t, s, lens, N_PROMPTS), cases[i].replays);
        close_all(s, N_PROMPTS);
        toy_close(&t);
    }
}
END_TEST

/* 7 and 5 rows fill the graph; the others, and a step of each, follow. */
START_TEST(prompts_that_do_not_fit_wait_and_all_go_on_right)
{
    static const uint32_t lens[5] = {7, 6, 5, 7, 4};
    static struct toy t;
    static struct toy_seq s[5];

    open_together(&t, 6);
    ck_assert_uint_ge(open_all(&t, s, lens, 5), 3);
    for (uint32_t i = 0; i < 5; i++) {
        int32_t context[TOY_CONTEXT];

        memcpy(context, prompt + i, lens[i] * sizeof(context[0]));
        context[lens[i]] = s[i].token;
        toy_step(&s[i], -1);
        ck_assert_int_eq(s[i].token, toy_next(&t, context, lens[i] + 1));
    }
    close_all(s, 5);
    toy_close(&t);
}
END_TEST

/* Beside the first one, the second would compute the same blocks; a turn later it finds them. (Without preemption a
 * sequence takes its blocks when it is opened, and finds what is there then.) */
START_TEST(prompt_that_begins_like_one_beside_it_waits_for_its_blocks)
{
    static struct toy t;
    static struct toy_seq s[2];
    struct ngd_model_stats stats;
    struct ngd_binding *b;
    struct call busy;
    struct gate gate;

    toy_bed(&t, 1);
    t.together = 4;
    t.preempt = true;
    toy_create(&t);
    b = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    call_occupy(&t.bed, &busy, b, &gate);
    toy_queue_open(&t, &s[0], prompt, 6, NULL);
    toy_queue_open(&t, &s[1], prompt, 5, NULL);
    gate_open(&gate);
    call_wait(&busy);
    for (int i = 0; i < 2; i++) {
        toy_wait(&s[i]);
        toy_ok(&s[i]);
        ck_assert_uint_eq(s[i].batch, 1);
        ck_assert_int_eq(s[i].token, toy_next(&t, prompt, 6 - (uint32_t)i));
    }
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_eq(stats.tokens_prefill, 6 + 5 - 4);
    close_all(s, 2);
    ngd_binding_unref(b);
    toy_close(&t);
}
END_TEST

/* The host computes 48 planned rows and more with other kernels, so other bits. */
START_TEST(what_computes_in_another_way_does_not_join)
{
    static struct toy t;
    struct ngd_chunk chunk = {.rows = 3, .planned = 3};

    open_together(&t, 4);
    ck_assert(!ngd_prompt_fits(t.model, &chunk, 2));
    ck_assert(ngd_prompt_fits(t.model, &chunk, 3));
    ck_assert(ngd_prompt_fits(t.model, &chunk, 47));
    ck_assert(!ngd_prompt_fits(t.model, &chunk, 48));
    toy_close(&t);
}
END_TEST

/* Each of the sequences in turn, closed or cancelled before its replay begins or while it runs. */
START_TEST(sequence_that_is_stopped_takes_nobody_along)
{
    static const uint32_t lens[3] = {2, 3, 4};
    static struct toy t;
    static struct toy_seq s[3];

    for (uint32_t which = 0; which < 6; which++) {
        struct ngd_binding *b;
        struct call busy;
        struct gate gate;
        const uint32_t i = which % 3;

        open_together(&t, 4);
        b = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
        call_occupy(&t.bed, &busy, b, &gate);
        for (uint32_t k = 0; k < 3; k++)
            toy_queue_open(&t, &s[k], prompt + k, lens[k], NULL);
        if (which < 3)
            ngd_seq_cancel(s[i].seq);
        else
            ngd_seq_close(s[i].seq);
        gate_open(&gate);
        call_wait(&busy);
        for (uint32_t k = 0; k < 3; k++) {
            toy_wait(&s[k]);
            if (k == i) {
                ck_assert_int_ne(s[k].status, NGD_OK);
                continue;
            }
            toy_ok(&s[k]);
            ck_assert_int_eq(s[k].token, toy_next(&t, prompt + k, lens[k]));
        }
        for (uint32_t k = 0; k < 3; k++)
            if (k != i || which < 3)
                ngd_seq_close(s[k].seq);
        ngd_binding_unref(b);
        toy_close(&t);
    }
}
END_TEST

/* Queues a prompt of n tokens from prompt[from] on, in the name of a share. */
static void queue_open_of(struct toy *t, struct toy_seq *s, uint32_t from, uint32_t n, struct ngd_share *share)
{
    const struct ngd_seq_params params = {
        .prompt = prompt + from, .n_prompt = n, .priority = NGD_PRIORITY_NORMAL, .share = share};
    struct ngd_diag diag = {0};

    memset(s, 0, sizeof(*s));
    gate_init(&s->answered);
    if (ngd_seq_open(t->model, &params, toy_done, s, &s->seq, &diag))
        ck_abort_msg("%s", diag.text);
}

/* Returns the device time, ns, by which a share's next turn is later than it was at `before`. */
static int64_t turn_moved(const struct ngd_share *share, int64_t before)
{
    return (share->accounts[0].corrected - before) * share->accounts[0].weight / 64;
}

/* The time of prompts grows with their rows: a short one beside long ones of another share does not pay for them. */
START_TEST(each_share_pays_for_the_rows_of_its_own_prompts)
{
    struct ngd_share_params params;
    struct ngd_share *many, *few;
    struct ngd_diag diag = {0};
    static struct toy t;
    static struct toy_seq s[4];
    int64_t many_used, few_used, many_before, few_before;
    struct hold h;

    open_together(&t, 4);
    ngd_share_params_init(&params);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "many", &params, &many, &diag), NGD_OK);
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "few", &params, &few, &diag), NGD_OK);
    hold_begin(&h, &t, WAITING);
    for (uint32_t i = 0; i < 3; i++)
        queue_open_of(&t, &s[i], i, 3, many);
    queue_open_of(&t, &s[3], 3, 1, few);
    many_used = many->accounts[0].used;
    few_used = few->accounts[0].used;
    many_before = many->accounts[0].corrected;
    few_before = few->accounts[0].corrected;
    hold_end(&h);
    for (uint32_t i = 0; i < 4; i++) {
        toy_wait(&s[i]);
        toy_ok(&s[i]);
        ck_assert_uint_eq(s[i].batch, 4);
    }
    bed_settle(&t.bed);
    many_used = many->accounts[0].used - many_used;
    few_used = few->accounts[0].used - few_used;
    ck_assert_int_le(llabs(many_used - 9 * few_used), 9); /* a part is a whole number of ns */
    ck_assert_int_le(llabs(turn_moved(few, few_before) - few_used), 64);
    ck_assert_int_le(llabs(turn_moved(many, many_before) - many_used), 64);
    close_all(s, 4);
    bed_settle(&t.bed);
    ngd_share_unref(many);
    ngd_share_unref(few);
    toy_close(&t);
}
END_TEST

START_TEST(device_that_fails_is_told_to_all_of_the_replay)
{
    static struct toy t;
    static struct toy_seq s[3];
    struct ngd_binding *b;
    struct call busy;
    struct gate gate;

    if (!NGD_FAULT_COMPILED) {
        printf("skip - device_that_fails: this build has no fault points; configure with --enable-fault\n");
        return;
    }
    open_together(&t, 4);
    b = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    call_occupy(&t.bed, &busy, b, &gate);
    for (uint32_t i = 0; i < 3; i++)
        toy_queue_open(&t, &s[i], prompt + i, 2, NULL);
    ngd_fault_arm(NGD_FAULT_HOST_FAULT, 0, 1);
    gate_open(&gate);
    call_wait(&busy);
    for (uint32_t i = 0; i < 3; i++) {
        toy_wait(&s[i]);
        ck_assert_int_eq(s[i].status, NGD_ERR_DEVICE_FAULT);
    }
    close_all(s, 3);
    ngd_binding_unref(b);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/prompts_together", short_prompts_share_a_replay_and_a_graph_for_one_takes_them_in_turn,
          prompts_that_do_not_fit_wait_and_all_go_on_right, prompt_that_begins_like_one_beside_it_waits_for_its_blocks,
          what_computes_in_another_way_does_not_join, sequence_that_is_stopped_takes_nobody_along,
          each_share_pays_for_the_rows_of_its_own_prompts, device_that_fails_is_told_to_all_of_the_replay)
