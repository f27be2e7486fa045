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

static void no_slots(struct ngd_model_params *p)
{
    static const struct ngd_kv_group_labels group = {"", "table2"};

    p->contract.more_groups = &group;
}
static void wrong_table(struct ngd_model_params *p)
{
    static const struct ngd_kv_group_labels group = {"slots2", "table3"};

    p->contract.more_groups = &group;
}
static void first_groups_inputs(struct ngd_model_params *p)
{
    static const struct ngd_kv_group_labels group = {"slots", "table"};

    p->contract.more_groups = &group;
}
static void one_group(struct ngd_model_params *p)
{
    p->contract.n_more_groups = 0;
}
static void nine_groups(struct ngd_model_params *p)
{
    p->contract.n_more_groups = NGD_KV_GROUPS_MAX;
}
static void endless_contexts(struct ngd_model_params *p)
{
    p->max_context = INT32_MAX;
}
static void same(struct ngd_model_params *p)
{
    (void)p;
}

static ngd_status_t create_spoilt(struct toy *t, void (*spoil)(struct ngd_model_params *p), struct ngd_diag *diag)
{
    struct ngd_model_params params;
    ngd_status_t status;

    toy_params(t, &params);
    spoil(&params);
    status = ngd_model_create(t->bed.sched, &params, &t->model, diag);
    toy_params_fini(&params);
    return status;
}

START_TEST(groups_of_layers_must_have_slots_and_a_table_of_their_own)
{
    static const struct {
        enum toy_odd odd;
        void (*spoil)(struct ngd_model_params *p);
        const char *says;
    } bad[] = {
        {TOY_NOTHING_ODD, no_slots, "no label for more_groups[0].slot_mapping"},
        {TOY_NOTHING_ODD, wrong_table, "more_groups[0].block_table: the prefill graph has no user input labelled"},
        {TOY_NOTHING_ODD, first_groups_inputs, "two roles, slot_mapping and more_groups[0].slot_mapping"},
        {TOY_NOTHING_ODD, one_group, "\"slots2\" of the prefill graph has no role"},
        {TOY_NOTHING_ODD, nine_groups, "9 groups of layers; at most 8"},
        {TOY_NOTHING_ODD, endless_contexts, "too few for a context of 2147483647"},
        {TOY_TABLE_NARROW, same, "\"table2\" of the prefill graph has 6 blocks"},
    };
    static struct toy t;

    toy_bed(&t, 1);
    t.two = true;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ngd_diag diag = {0};

        t.odd = bad[i].odd;
        ck_assert_int_eq(create_spoilt(&t, bad[i].spoil, &diag), NGD_ERR_MODEL_CONTRACT);
        says(diag.text, bad[i].says);
    }
    toy_close(&t);
}
END_TEST

/* Blocks are given back only if all that reads them has a window, and drafts need layers that write first. */
START_TEST(graphs_say_which_windows_and_drafts_there_are)
{
    static const struct {
        uint32_t window;
        enum toy_odd odd;
        uint32_t first;
        bool drafts;
    } cases[] = {
        {4, TOY_NOTHING_ODD, 4, true},
        {0, TOY_NOTHING_ODD, 0, true},
        {4, TOY_TABLE_ELSEWHERE, 0, true},
        {4, TOY_READS_FIRST, 4, false},
    };
    static struct toy t;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_model_stats stats;

        toy_bed(&t, 1);
        t.two = true;
        t.window = cases[i].window;
        t.odd = cases[i].odd;
        toy_create(&t);
        ngd_model_stats(t.model, &stats);
        ck_assert_uint_eq(stats.n_groups, 2);
        ck_assert_uint_eq(stats.windows[0], cases[i].first);
        ck_assert_uint_eq(stats.windows[1], 0);
        ck_assert_int_eq(t.model->drafts, cases[i].drafts);
        toy_close(&t);
    }
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
          groups_of_layers_must_have_slots_and_a_table_of_their_own, graphs_say_which_windows_and_drafts_there_are,
          guards_of_a_models_graphs_must_hold_for_any_number_of_rows, model_says_what_it_is,
          model_without_sampling_or_logits_refuses_who_asks_for_them)
