/* SPDX-License-Identifier: Apache-2.0 */
/* Tests steps with a draft, and log-probabilities, on the toy model: the tokens are those of plain steps. */
#include "tests/unit/toy_model.h"

static const int32_t prompt[] = {3, 17, 0};
#define N_PROMPT 3

static const struct ngd_sampling greedy, drawn = {.temperature = 0.9f, .top_k = 8, .seed = 77};

/* Gives the tokens that plain steps produce from the prompt to the end of the context. */
static uint32_t say_plainly(struct toy *t, const struct ngd_sampling *how, int32_t *said)
{
    struct toy_seq s;

    toy_seq_open(t, &s, prompt, N_PROMPT, how);
    return toy_say_rest(&s, said, 0);
}

static void queue_draft(struct toy_seq *s, int32_t forced, const int32_t *draft, uint32_t n, bool logprobs)
{
    struct ngd_step_params p;
    struct ngd_diag diag = {0};

    ngd_step_params_init(&p);
    p.forced = forced;
    p.draft = draft;
    p.n_draft = n;
    p.want_logprobs = logprobs;
    p.top = 3;
    if (ngd_seq_step(s->seq, &p, toy_done, s, &diag))
        ck_abort_msg("%s", diag.text);
}

static void step_draft(struct toy_seq *s, const int32_t *draft, uint32_t n)
{
    queue_draft(s, -1, draft, n, false);
    toy_wait(s);
    toy_ok(s);
}

/* Generates to the end of the context with drafts of which every `wrong`-th token is wrong (0: none). */
static void say_with_drafts(struct toy *t, const struct ngd_sampling *how, const int32_t *said, uint32_t n_said,
                            uint32_t length, uint32_t wrong)
{
    struct toy_seq s;
    uint32_t at = 0, all = 0, blocks = toy_blocks_used(t);

    toy_seq_open(t, &s, prompt, N_PROMPT, how);
    ck_assert_int_eq(s.token, said[0]);
    while (s.position < TOY_CONTEXT) {
        const uint32_t room = TOY_CONTEXT - s.position - 1, n = length < room ? length : room;
        int32_t draft[TOY_CONTEXT];
        struct ngd_seq_info info;
        uint32_t right = 0;

        for (uint32_t i = 0; i < n; i++)
            draft[i] = wrong && (at + i) % wrong == 0 ? (said[at + 1 + i] + 1) % TOY_VOCAB : said[at + 1 + i];
        while (right < n && right + 1 < TOY_BATCH && draft[right] == said[at + 1 + right] &&
               draft[right] != toy_stop[0])
            right++;
        step_draft(&s, draft, n);
        ck_assert_uint_eq(s.accepted, right);
        at += right + 1;
        all += right;
        ck_assert_int_eq(s.token, said[at]);
        ck_assert_uint_eq(s.position, N_PROMPT + at);
        ck_assert_int_eq(s.stop, s.token == toy_stop[0]);
        ngd_seq_info(s.seq, &info);
        ck_assert_uint_eq(info.tokens, at + 1);
        /* Wrong tokens hold no block. */
        ck_assert_uint_le(info.blocks, (s.position + TOY_BLOCK - 1) / TOY_BLOCK);
    }
    ck_assert_uint_eq(at + 1, n_said);
    ck_assert(wrong == 1 || length == 0 || all > 0);
    ngd_seq_close(s.seq);
    ck_assert_uint_eq(toy_blocks_used(t), blocks);
}

START_TEST(tokens_with_drafts_of_any_length_and_rightness_are_those_of_plain_steps)
{
    static struct toy t;

    toy_open(&t, 1);
    ck_assert(t.model->drafts);
    for (int k = 0; k < 2; k++) {
        int32_t said[TOY_CONTEXT + 1];
        uint32_t n = say_plainly(&t, k ? &drawn : &greedy, said);

        for (uint32_t length = 0; length <= 9; length++)
            for (uint32_t wrong = 0; wrong <= 4; wrong++)
                say_with_drafts(&t, k ? &drawn : &greedy, said, n, length, wrong);
    }
    toy_close(&t);
}
END_TEST

START_TEST(drafts_beside_other_sequences_change_nothing_for_anybody)
{
    enum { N = 3 };
    static struct toy t;
    struct toy_seq s[N];
    int32_t said[TOY_CONTEXT + 1];
    struct gate gate;
    struct call busy;
    struct ngd_binding *binding;
    uint32_t n = 0;

    toy_open(&t, 1);
    (void)say_plainly(&t, &drawn, said);
    binding = bed_binding(&t.bed, DOUBLE_TEXT, NULL);
    for (int i = 0; i < N; i++)
        toy_seq_open(&t, &s[i], prompt, N_PROMPT, &drawn);
    /* The steps need three of four rows, so one is left for the first draft. */
    gate_init(&gate);
    call_occupy(&t.bed, &busy, binding, &gate);
    queue_draft(&s[0], -1, said + 1, 3, false);
    for (int i = 1; i < N; i++)
        toy_queue_step(&s[i], -1);
    gate_open(&gate);
    call_wait(&busy);
    for (int i = 0; i < N; i++) {
        toy_wait(&s[i]);
        toy_ok(&s[i]);
        ck_assert_uint_eq(s[i].batch, N);
        n = i ? 1 : 1 + s[0].accepted;
        ck_assert_int_eq(s[i].token, said[n]);
        ck_assert_uint_eq(s[i].position, N_PROMPT + n);
    }
    ck_assert_uint_eq(s[0].accepted, said[1] == toy_stop[0] ? 0 : 1);
    for (int i = 0; i < N; i++)
        ngd_seq_close(s[i].seq);
    ngd_binding_unref(binding);
    toy_close(&t);
}
END_TEST

START_TEST(draft_behind_a_forced_token_is_measured_by_what_follows_that)
{
    static struct toy t;
    struct toy_seq plain, s;
    int32_t draft[2];

    toy_open(&t, 1);
    toy_seq_open(&t, &plain, prompt, N_PROMPT, NULL);
    toy_step(&plain, 6);
    draft[0] = plain.token;
    toy_step(&plain, -1);
    draft[1] = (plain.token + 1) % TOY_VOCAB;
    toy_seq_open(&t, &s, prompt, N_PROMPT, NULL);
    queue_draft(&s, 6, draft, 2, false);
    toy_wait(&s);
    toy_ok(&s);
    ck_assert_uint_eq(s.accepted, draft[0] == toy_stop[0] ? 0 : 1);
    if (s.accepted)
        ck_assert_int_eq(s.token, plain.token);
    ngd_seq_close(s.seq);
    ngd_seq_close(plain.seq);
    toy_close(&t);
}
END_TEST

START_TEST(draft_without_blocks_for_it_steps_without_it)
{
    static struct toy t;
    struct toy_seq s, other;
    int32_t said[TOY_CONTEXT + 1];

    toy_bed(&t, 1);
    t.blocks = 7; /* 14 tokens */
    t.no_sharing = true;
    toy_create(&t);
    (void)say_plainly(&t, &greedy, said);
    toy_seq_open(&t, &other, said, 9, NULL); /* five blocks */
    toy_seq_open(&t, &s, prompt, N_PROMPT, NULL);
    step_draft(&s, said + 1, 4); /* its two have room for one more token */
    ck_assert_uint_eq(s.accepted, 0);
    ck_assert_int_eq(s.token, said[1]);
    ngd_seq_close(other.seq);
    step_draft(&s, said + 2, 4);
    ck_assert_uint_gt(s.accepted, 0);
    ck_assert_int_eq(s.token, said[2 + s.accepted]);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(drafts_that_cannot_be_are_refused_and_change_nothing)
{
    static const int32_t bad[] = {1, TOY_VOCAB}, negative[] = {-1}, good[TOY_CONTEXT] = {0};
    static struct toy t;
    struct toy_seq s;
    struct ngd_step_params p;
    struct ngd_diag diag = {0};

    toy_open(&t, 1);
    toy_seq_open(&t, &s, prompt, N_PROMPT, NULL);
    ngd_step_params_init(&p);
    p.draft = bad, p.n_draft = 2;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_TOKEN_RANGE);
    ck_assert_ptr_nonnull(strstr(diag.text, "draft token 1 is 24"));
    p.draft = negative, p.n_draft = 1;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_TOKEN_RANGE);
    p.draft = good;
    for (p.n_draft = TOY_CONTEXT - N_PROMPT; p.n_draft <= TOY_CONTEXT; p.n_draft++) {
        ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_CONTEXT_FULL);
        ck_assert_ptr_nonnull(strstr(diag.text, "draft"));
    }
    p.n_draft = UINT32_MAX;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_CONTEXT_FULL);
    p.n_draft = TOY_CONTEXT - N_PROMPT - 1; /* the longest */
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_OK);
    toy_wait(&s);
    toy_ok(&s);
    p.n_draft = 0;
    p.want_logprobs = true;
    p.top = NGD_LOGPROBS_MAX + 1;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diag.text, "at most 20"));
    p.top = 0;
    p.priority = (ngd_priority_t)9;
    ck_assert_int_eq(ngd_seq_step(s.seq, &p, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

/* ---- log-probabilities -------------------------------------------------------------------------------- */

static void check_logprobs(const struct toy *t, const int32_t *context, uint32_t n, int32_t token,
                           const struct ngd_logprobs *lp, uint32_t top)
{
    double logits[TOY_VOCAB], sum = 0;

    toy_logits(t, context, n, logits);
    for (int v = 0; v < TOY_VOCAB; v++)
        sum += exp(logits[v]);
    ck_assert_int_eq(lp->token, token);
    ck_assert_double_eq_tol(lp->logprob, logits[token] - log(sum), 1e-5);
    ck_assert_uint_eq(lp->n_top, top);
    for (uint32_t i = 0; i < top; i++) {
        uint32_t more = 0;

        ck_assert_double_eq_tol(lp->top[i].logprob, logits[lp->top[i].token] - log(sum), 1e-5);
        for (int v = 0; v < TOY_VOCAB; v++)
            more += logits[v] > logits[lp->top[i].token];
        ck_assert_uint_eq(more, i);
    }
}

START_TEST(logprobs_of_steps_and_of_accepted_tokens_are_those_of_their_contexts)
{
    static struct toy t;
    int32_t said[TOY_CONTEXT + 1], context[TOY_CONTEXT + 1];
    struct toy_seq s;
    uint32_t n = N_PROMPT;

    toy_open(&t, 1);
    (void)say_plainly(&t, &drawn, said);
    memcpy(context, prompt, sizeof(prompt));
    toy_seq_open(&t, &s, prompt, N_PROMPT, &drawn);
    ck_assert(!s.has_logprobs[0]);
    memcpy(context + N_PROMPT, said, (TOY_CONTEXT - N_PROMPT) * sizeof(*said));
    for (int i = 0; i < 3 && s.position + 4 < TOY_CONTEXT; i++) {
        queue_draft(&s, -1, context + n + 1, 2, true);
        toy_wait(&s);
        toy_ok(&s);
        for (uint32_t k = 0; k <= s.accepted; k++) {
            n++;
            ck_assert(s.has_logprobs[k]);
            check_logprobs(&t, context, n, said[n - N_PROMPT], &s.logprobs[k], 3);
        }
        ck_assert_uint_eq(n, s.position);
    }
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(logprobs_of_a_generation_come_with_each_token)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_generate_params p;
    struct ngd_seq_params open = {.prompt = prompt, .n_prompt = N_PROMPT, .want_logprobs = true, .top = 5};
    struct ngd_diag diag = {0};
    int32_t context[TOY_CONTEXT + 8];

    toy_open(&t, 1);
    memset(&s, 0, sizeof(s));
    gate_init(&s.answered);
    ck_assert_int_eq(ngd_seq_open(t.model, &open, toy_done, &s, &s.seq, &diag), NGD_OK);
    toy_wait(&s);
    toy_ok(&s);
    check_logprobs(&t, prompt, N_PROMPT, s.token, &s.logprobs[0], 5);
    memcpy(context, prompt, sizeof(prompt));
    ngd_generate_params_init(&p);
    p.max_tokens = 6;
    p.ignore_stop = true;
    p.want_logprobs = true;
    p.top = 2;
    ck_assert_int_eq(ngd_seq_generate(s.seq, &p, toy_on_token, toy_generated, &s, &diag), NGD_OK);
    toy_wait(&s);
    toy_ok(&s);
    ck_assert_uint_eq(s.n_tokens, 6);
    for (uint32_t i = 0; i < 6; i++) {
        ck_assert(s.has_logprobs[i]);
        check_logprobs(&t, context, N_PROMPT + i, s.tokens[i], &s.logprobs[i], 2);
        context[N_PROMPT + i] = s.tokens[i];
    }
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(generation_ends_at_its_own_stop_tokens)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_generate_params p;
    struct ngd_diag diag = {0};
    int32_t said[TOY_CONTEXT + 1], many[NGD_STOP_TOKENS_MAX + 1] = {0};
    uint32_t first = 0;

    toy_open(&t, 1);
    (void)say_plainly(&t, &greedy, said);
    toy_seq_open(&t, &s, prompt, N_PROMPT, NULL);
    ngd_generate_params_init(&p);
    p.max_tokens = 9;
    p.ignore_stop = true;
    p.stop_tokens = &said[4];
    p.n_stop_tokens = 1;
    while (said[first] != said[4])
        first++;
    ck_assert_int_eq(ngd_seq_generate(s.seq, &p, toy_on_token, toy_generated, &s, &diag), NGD_OK);
    toy_wait(&s);
    toy_ok(&s);
    ck_assert_str_eq(s.finish, "stop");
    ck_assert_uint_eq(s.n_tokens, first + 1);
    p.stop_tokens = many;
    p.n_stop_tokens = NGD_STOP_TOKENS_MAX + 1;
    ck_assert_int_eq(ngd_seq_generate(s.seq, &p, toy_on_token, toy_generated, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diag.text, "at most 16"));
    many[0] = TOY_VOCAB;
    p.n_stop_tokens = 1;
    ck_assert_int_eq(ngd_seq_generate(s.seq, &p, toy_on_token, toy_generated, &s, &diag), NGD_ERR_TOKEN_RANGE);
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/drafts", tokens_with_drafts_of_any_length_and_rightness_are_those_of_plain_steps,
          drafts_beside_other_sequences_change_nothing_for_anybody,
          draft_behind_a_forced_token_is_measured_by_what_follows_that, draft_without_blocks_for_it_steps_without_it,
          drafts_that_cannot_be_are_refused_and_change_nothing,
          logprobs_of_steps_and_of_accepted_tokens_are_those_of_their_contexts,
          logprobs_of_a_generation_come_with_each_token, generation_ends_at_its_own_stop_tokens)
