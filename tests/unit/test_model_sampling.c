/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests penalties, bad words, min_tokens and masks of sequences on the toy model: plain steps give the tokens that the
 * definitions give, and generations, drafts, forks, preempted sequences and prompts beside others give the same.
 */
#include "tests/unit/toy_model.h"

static const int32_t prompt[] = {3, 17, 0};
#define N_PROMPT 3

static const int32_t bad_tokens[] = {16, 12, 14};
static const uint32_t bad_ends[] = {1, 3};
static const struct ngd_logit_bias bias[] = {{9, 0.3f}, {14, -0.3f}};

static const struct ngd_sampling greedy_ones[] = {
    {.frequency_penalty = 2, .presence_penalty = 0.5f},
    {.repetition_penalty = 3},
    {.bias = bias, .n_bias = 2, .bad_tokens = bad_tokens, .bad_ends = bad_ends, .n_bad_words = 2},
    {.frequency_penalty = 0.3f, .repetition_penalty = 1.5f, .min_tokens = 6, .bias = bias, .n_bias = 2},
};
#define N_GREEDY (sizeof(greedy_ones) / sizeof(greedy_ones[0]))
static const struct ngd_sampling drawn_ones[] = {
    {.temperature = 0.8f, .seed = 5, .frequency_penalty = 0.5f, .min_p = 0.2f},
    {.temperature = 1.3f, .seed = 6, .repetition_penalty = 1.7f, .typical_p = 0.8f, .top_k = 20},
    {.temperature = 2, .seed = 7, .min_tokens = 4}, /* becomes the graph's own after four tokens */
};
#define N_DRAWN (sizeof(drawn_ones) / sizeof(drawn_ones[0]))

/* ---- expected tokens ---- */

/* Returns the greedy token behind a context, by the definitions, from logits in double. */
static int32_t expected_next(const struct toy *t, const struct ngd_sampling *how, const int32_t *context, uint32_t n)
{
    double logits[TOY_VOCAB];
    uint32_t seen[TOY_VOCAB] = {0}, said[TOY_VOCAB] = {0}, begin = 0;
    int32_t best = 0;

    toy_logits(t, context, n, logits);
    for (uint32_t i = 0; i < n; i++) {
        seen[context[i]]++;
        said[context[i]] += i >= N_PROMPT;
    }
    for (uint32_t i = 0; i < how->n_bias; i++)
        logits[how->bias[i].token] += (double)how->bias[i].bias;
    for (int32_t v = 0; v < TOY_VOCAB; v++) {
        if (seen[v] && how->repetition_penalty > 0)
            logits[v] *= logits[v] < 0 ? (double)how->repetition_penalty : 1 / (double)how->repetition_penalty;
        logits[v] -= (double)how->frequency_penalty * said[v] + (said[v] ? (double)how->presence_penalty : 0);
    }
    for (uint32_t i = 0; i < how->n_bad_words; begin = how->bad_ends[i++]) {
        const uint32_t before = how->bad_ends[i] - begin - 1;

        if (before <= n && memcmp(how->bad_tokens + begin, context + n - before, before * 4) == 0)
            logits[how->bad_tokens[how->bad_ends[i] - 1]] = -INFINITY;
    }
    if (n - N_PROMPT < how->min_tokens)
        logits[toy_stop[0]] = -INFINITY;
    for (int32_t v = 1; v < TOY_VOCAB; v++)
        best = logits[v] > logits[best] ? v : best;
    return best;
}

/* Gives the tokens that plain steps produce from the prompt to the end of the context. */
static uint32_t say_plainly(struct toy *t, const struct ngd_sampling *how, int32_t *said)
{
    struct toy_seq s;

    toy_seq_open(t, &s, prompt, N_PROMPT, how);
    return toy_say_rest(&s, said, 0);
}

START_TEST(steps_choose_by_the_definitions)
{
    static struct toy t;
    int32_t plain[TOY_CONTEXT + 1], said[TOY_CONTEXT + 1], context[TOY_CONTEXT + 1];
    uint32_t differ = 0;

    toy_open(&t, 1);
    (void)say_plainly(&t, &(struct ngd_sampling){0}, plain);
    for (size_t k = 0; k < N_GREEDY; k++) {
        const uint32_t n = say_plainly(&t, &greedy_ones[k], said);

        memcpy(context, prompt, sizeof(prompt));
        for (uint32_t i = 0; i < n; i++) {
            ck_assert_int_eq(said[i], expected_next(&t, &greedy_ones[k], context, N_PROMPT + i));
            context[N_PROMPT + i] = said[i];
        }
        differ += memcmp(said, plain, n * sizeof(said[0])) != 0;
    }
    ck_assert_uint_eq(differ, N_GREEDY); /* or these parameters show nothing */
    toy_close(&t);
}
END_TEST

/* ---- the same in other ways ---- */

/* Calls fn for all parameters, with what plain steps give. */
static void each_way(struct toy *t,
                     void (*fn)(struct toy *t, const struct ngd_sampling *how, const int32_t *said, uint32_t n))
{
    int32_t said[TOY_CONTEXT + 1];

    for (size_t k = 0; k < N_GREEDY + N_DRAWN; k++) {
        const struct ngd_sampling *how = k < N_GREEDY ? &greedy_ones[k] : &drawn_ones[k - N_GREEDY];

        fn(t, how, said, say_plainly(t, how, said));
    }
}

static void generate_same(struct toy *t, const struct ngd_sampling *how, const int32_t *said, uint32_t n)
{
    struct toy_seq s;

    toy_seq_open(t, &s, prompt, N_PROMPT, how);
    toy_generate(&s, 64, true);
    ck_assert_uint_eq(s.n_tokens, n);
    ck_assert_mem_eq(s.tokens, said, n * sizeof(said[0]));
    ngd_seq_close(s.seq);
}

/* Steps with drafts of which every third token is wrong. */
static void draft_same(struct toy *t, const struct ngd_sampling *how, const int32_t *said, uint32_t n)
{
    uint32_t at = 0, accepted = 0;
    struct toy_seq s;

    toy_seq_open(t, &s, prompt, N_PROMPT, how);
    while (s.position < TOY_CONTEXT) {
        const uint32_t room = TOY_CONTEXT - s.position - 1;
        struct ngd_step_params p;
        struct ngd_diag diag = {0};
        int32_t draft[3];

        ngd_step_params_init(&p);
        p.n_draft = room < 3 ? room : 3;
        for (uint32_t i = 0; i < p.n_draft; i++)
            draft[i] = (at + i) % 3 == 2 ? (said[at + 1 + i] + 1) % TOY_VOCAB : said[at + 1 + i];
        p.draft = draft;
        ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_OK);
        toy_wait(&s);
        toy_ok(&s);
        at += 1 + s.accepted;
        accepted += s.accepted;
        ck_assert_int_eq(s.token, said[at]);
    }
    ck_assert_uint_eq(at + 1, n);
    ck_assert_uint_gt(accepted, 0);
    ngd_seq_close(s.seq);
}

/* Forks at each place, twice; copies and original go on alike. */
static void fork_same(struct toy *t, const struct ngd_sampling *how, const int32_t *said, uint32_t n)
{
    struct toy_seq s, copy;
    struct ngd_diag diag = {0};

    toy_seq_open(t, &s, prompt, N_PROMPT, how);
    for (uint32_t at = 0; at + 1 < n; at++) {
        memset(&copy, 0, sizeof(copy));
        gate_init(&copy.answered);
        ck_assert_int_eq(plain_fork(s.seq, how, false, toy_done, &copy, &copy.seq, &diag), NGD_OK);
        toy_wait(&copy);
        toy_ok(&copy);
        ck_assert_int_eq(copy.token, said[at]);
        toy_step(&copy, -1);
        ck_assert_int_eq(copy.token, said[at + 1]);
        ngd_seq_close(copy.seq);
        toy_step(&s, -1);
        ck_assert_int_eq(s.token, said[at + 1]);
    }
    ngd_seq_close(s.seq);
}

START_TEST(generations_drafts_and_forks_choose_as_steps_do)
{
    static struct toy t;

    toy_open(&t, 1);
    each_way(&t, generate_same);
    each_way(&t, draft_same);
    each_way(&t, fork_same);
    toy_close(&t);
}
END_TEST

START_TEST(sequences_together_choose_as_alone)
{
    static const struct ngd_sampling plain;
    const struct ngd_sampling *hows[] = {&plain, &greedy_ones[0], &drawn_ones[0], &greedy_ones[3], &drawn_ones[2]};
    enum { N = sizeof(hows) / sizeof(hows[0]) };
    static struct toy t;
    static struct toy_seq s[N];
    static int32_t said[N][TOY_CONTEXT + 1];
    uint32_t n = 0;

    toy_bed(&t, 1);
    t.together = 4;
    toy_create(&t);
    for (int k = 0; k < N; k++)
        n = say_plainly(&t, hows[k], said[k]);
    for (int k = 0; k < N; k++)
        toy_queue_open(&t, &s[k], prompt, N_PROMPT, hows[k]);
    for (int k = 0; k < N; k++) {
        toy_wait(&s[k]);
        toy_ok(&s[k]);
        toy_queue_generate(&s[k], 64, true);
    }
    for (int k = 0; k < N; k++) {
        toy_wait(&s[k]);
        toy_ok(&s[k]);
        ck_assert_uint_eq(s[k].n_tokens, n);
        ck_assert_mem_eq(s[k].tokens, said[k], n * sizeof(said[k][0]));
        ngd_seq_close(s[k].seq);
    }
    toy_close(&t);
}
END_TEST

START_TEST(preempted_sequences_choose_as_if_they_were_not)
{
    enum { N = N_GREEDY + N_DRAWN };
    static struct toy t;
    static struct toy_seq s[N];
    static int32_t said[N][TOY_CONTEXT + 1];
    struct ngd_model_stats stats;
    uint32_t n = 0;

    toy_bed(&t, 1);
    t.blocks = 9; /* of the 49 that all need */
    t.no_sharing = t.preempt = true;
    toy_create(&t);
    for (size_t k = 0; k < N; k++)
        n = say_plainly(&t, k < N_GREEDY ? &greedy_ones[k] : &drawn_ones[k - N_GREEDY], said[k]);
    for (size_t k = 0; k < N; k++)
        toy_queue_open(&t, &s[k], prompt, N_PROMPT, k < N_GREEDY ? &greedy_ones[k] : &drawn_ones[k - N_GREEDY]);
    for (size_t k = 0; k < N; k++) {
        toy_wait(&s[k]);
        toy_ok(&s[k]);
    }
    for (uint32_t at = 1; at < n; at++)
        for (size_t k = 0; k < N; k++) {
            toy_step(&s[k], -1); /* in turn, so that each takes the others' blocks */
            ck_assert_int_eq(s[k].token, said[k][at]);
        }
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_gt(stats.preemptions, N);
    for (size_t k = 0; k < N; k++)
        ngd_seq_close(s[k].seq);
    toy_close(&t);
}
END_TEST

/* ---- masks ---- */

static ngd_status_t step_masked(struct toy_seq *s, const uint8_t *mask, uint64_t bytes, const int32_t *draft,
                                struct ngd_diag *diag)
{
    struct ngd_step_params p;
    ngd_status_t status;

    ngd_step_params_init(&p);
    p.allowed = mask;
    p.allowed_bytes = bytes;
    p.draft = draft;
    p.n_draft = draft ? 1 : 0;
    status = ngd_seq_step(s->seq, &p, toy_done, s, diag);
    if (!status)
        toy_wait(s);
    return status;
}

START_TEST(masks_hold_for_one_choice_and_its_forks)
{
    static const uint8_t mask[3] = {0, 0x22, 0}, none[3];
    static const struct ngd_sampling hot = {.temperature = 100, .seed = 3};
    static const int32_t draft[] = {1};
    static struct toy t;
    struct toy_seq s, copy;
    struct ngd_diag diag = {0};
    uint32_t outside = 0;

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, N_PROMPT, &hot);
    ck_assert_int_eq(step_masked(&s, none, 3, NULL, &diag), NGD_ERR_SAMPLING);
    ck_assert_int_eq(step_masked(&s, mask, 2, NULL, &diag), NGD_ERR_SAMPLING);
    ck_assert_int_eq(step_masked(&s, mask, 3, draft, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diag.text, "draft"));
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(step_masked(&s, mask, 3, NULL, &diag), NGD_OK);
        toy_ok(&s);
        ck_assert(s.token == 9 || s.token == 13);
        for (uint64_t seed = 0; seed < 8; seed++) {
            const struct ngd_sampling how = {.temperature = 100, .seed = seed};

            memset(&copy, 0, sizeof(copy));
            gate_init(&copy.answered);
            ck_assert_int_eq(plain_fork(s.seq, &how, false, toy_done, &copy, &copy.seq, &diag), NGD_OK);
            toy_wait(&copy);
            toy_ok(&copy);
            ck_assert(copy.token == 9 || copy.token == 13);
            ngd_seq_close(copy.seq);
        }
    }
    while (s.position < TOY_CONTEXT) {
        toy_step(&s, -1);
        outside += s.token != 9 && s.token != 13;
    }
    ck_assert_uint_gt(outside, 0);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(choice_of_nothing_fails_the_step_and_no_more)
{
    static const uint8_t mask[3] = {0, 0, 0x01}; /* 16, a bad word */
    static struct toy t;
    struct toy_seq s, copy;
    struct ngd_diag diag = {0};
    int32_t said[TOY_CONTEXT + 1];

    toy_open(&t, 1);
    (void)say_plainly(&t, &greedy_ones[2], said);
    toy_seq_open(&t, &s, prompt, N_PROMPT, &greedy_ones[2]);
    ck_assert_int_eq(step_masked(&s, mask, 3, NULL, &diag), NGD_OK);
    ck_assert_int_eq(s.status, NGD_ERR_SAMPLING);
    memset(&copy, 0, sizeof(copy)); /* a fork draws again what was chosen, not under the mask that failed */
    gate_init(&copy.answered);
    ck_assert_int_eq(plain_fork(s.seq, &greedy_ones[2], false, toy_done, &copy, &copy.seq, &diag), NGD_OK);
    toy_wait(&copy);
    toy_ok(&copy);
    ck_assert_int_eq(copy.token, said[0]);
    ngd_seq_close(copy.seq);
    toy_step(&s, -1);
    ck_assert_int_eq(s.token, said[1]);
    ck_assert_uint_eq(s.position, N_PROMPT + 1);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(models_without_logits_refuse_by_name)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_diag diag = {0};

    toy_bed(&t, 1);
    t.greedy = true;
    toy_create(&t);
    for (size_t k = 0; k < N_GREEDY; k++) {
        ck_assert_int_eq(toy_try_open(&t, &s, prompt, N_PROMPT, &greedy_ones[k], false, &diag), NGD_ERR_SAMPLING);
        ck_assert_msg(strstr(diag.text, "logits_output") && strchr(diag.text, '_'), "%s", diag.text);
    }
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/model_sampling", steps_choose_by_the_definitions, generations_drafts_and_forks_choose_as_steps_do,
          sequences_together_choose_as_alone, preempted_sequences_choose_as_if_they_were_not,
          masks_hold_for_one_choice_and_its_forks, choice_of_nothing_fails_the_step_and_no_more,
          models_without_logits_refuse_by_name)
