/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the decode contract: a contract that does not fit its graphs is refused by role, and a
 * model describes itself. */
#include "tests/unit/model_util.h"

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

/* The daemon chooses the number of rows of a step, and could choose one that a guard forbids. */
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
    ck_assert_uint_eq(stats.tokens_decode, 2); /* the token after the prompt, and the step's */
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
    ck_assert_int_eq(plain_step(s.seq, -1, true, toy_done, &s, &diag), NGD_ERR_INVALID_ARGUMENT);
    toy_step(&s, prompt[3]);
    ck_assert_int_eq(s.token, toy_next(&t, prompt, 4));
    ngd_seq_close(s.seq);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/contract", contract_that_does_not_fit_its_graphs_is_refused_by_role,
          guards_of_a_models_graphs_must_hold_for_any_number_of_rows, model_says_what_it_is,
          model_without_sampling_or_logits_refuses_who_asks_for_them)
