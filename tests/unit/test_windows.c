/* SPDX-License-Identifier: Apache-2.0 */
/* Tests sequences of models whose layers have windows: what they hold, and that their tokens are right. */
#include "tests/unit/window_util.h"

enum { WINDOW = 16 };

/* A sequence and its text: its context, and the token that was chosen behind it. */
struct writer {
    struct toy_seq s;
    int32_t text[TOY_CONTEXT + 1];
    uint32_t n;
};

static void writer_open(struct toy *t, struct writer *w, uint32_t n, uint32_t seed)
{
    window_text(w->text, n, seed);
    w->n = n;
    toy_seq_open(t, &w->s, w->text, n, NULL);
    window_expect(t, w->text, n, w->s.token);
}

/* Steps all, each of them `steps` times, together. */
static void write_together(struct toy *t, struct writer *w, uint32_t n, uint32_t steps)
{
    while (steps-- > 0) {
        for (uint32_t i = 0; i < n; i++) {
            w[i].text[w[i].n++] = w[i].s.token;
            toy_queue_step(&w[i].s, -1);
        }
        for (uint32_t i = 0; i < n; i++) {
            toy_wait(&w[i].s);
            toy_ok(&w[i].s);
            window_expect(t, w[i].text, w[i].n, w[i].s.token);
        }
    }
}

static uint32_t held(const struct writer *w)
{
    struct ngd_seq_info info;

    ngd_seq_info(w->s.seq, &info);
    return info.blocks;
}

START_TEST(ten_windows_are_written_where_two_would_fit_whole)
{
    static struct toy t;
    static struct writer w[3];

    window_open(&t, WINDOW, false, 12); /* 192 tokens */
    writer_open(&t, &w[0], 30, 1);
    writer_open(&t, &w[1], 5, 2);
    writer_open(&t, &w[2], 90, 3);
    for (int i = 0; i < 17; i++) {
        write_together(&t, w, 3, 10);
        ck_assert_uint_le(toy_blocks_used(&t), 3 * 2);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(held(&w[i]), 2);
        ngd_seq_close(w[i].s.seq);
    }
    window_close(&t);
}
END_TEST

START_TEST(layers_with_a_window_and_without_one_have_tables_of_their_own)
{
    static struct toy t;
    static struct writer w[3];

    window_open(&t, WINDOW, true, 48); /* whole contexts would hold 2 * (13 + 11 + 17) */
    writer_open(&t, &w[0], 30, 1);
    writer_open(&t, &w[1], 5, 2);
    writer_open(&t, &w[2], 90, 3);
    write_together(&t, w, 3, 170);
    ck_assert_uint_eq(held(&w[0]), 13 + 2);
    ck_assert_uint_eq(held(&w[2]), 17 + 2);
    for (int i = 0; i < 3; i++)
        ngd_seq_close(w[i].s.seq);
    window_close(&t);
}
END_TEST

/* A chunk is longer than the window. What a prompt has passed pays for what it needs next, if nothing is free too. */
START_TEST(prompt_goes_through_a_pool_that_holds_its_window_and_a_chunk)
{
    static struct toy t;
    static struct writer a, b;
    struct ngd_model_stats stats;

    window_open(&t, WINDOW, false, 6);
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_eq(stats.windows[0], WINDOW);
    ck_assert_uint_eq(stats.n_groups, 1);
    ck_assert_uint_eq(stats.blocks_per_sequence, 4);
    writer_open(&t, &a, 120, 4);
    ck_assert_uint_le(held(&a), 3);
    write_together(&t, &a, 1, 10);
    ck_assert_uint_eq(held(&a), 2);
    writer_open(&t, &b, 300, 5); /* takes the other four */
    write_together(&t, &a, 1, 40);
    write_together(&t, &b, 1, 100);
    ngd_seq_close(a.s.seq);
    ngd_seq_close(b.s.seq);
    window_close(&t);
}
END_TEST

START_TEST(sequence_whose_window_is_full_goes_on_if_no_block_is_free)
{
    static struct toy t;
    static struct writer a, b;
    struct ngd_diag diag = {0};
    struct toy_seq s;

    window_open(&t, WINDOW, false, 6);
    t.model->params.no_prefix_sharing = true;
    writer_open(&t, &a, 96, 4); /* the next row needs another block */
    ck_assert_uint_eq(held(&a), 2);
    writer_open(&t, &b, 64, 5);
    ck_assert_uint_eq(toy_blocks_used(&t), 4);
    window_text(b.text + 100, 40, 6);
    ck_assert_int_eq(toy_try_open(&t, &s, b.text + 100, 40, NULL, false, &diag), NGD_ERR_KV_EXHAUSTED);
    toy_seq_open(&t, &s, b.text + 100, 32, NULL);
    ck_assert_uint_eq(toy_blocks_used(&t), 6);
    write_together(&t, &a, 1, 100);
    write_together(&t, &b, 1, 100);
    ngd_seq_close(s.seq);
    ngd_seq_close(a.s.seq);
    ngd_seq_close(b.s.seq);
    window_close(&t);
}
END_TEST

/* A block that another sequence shares does not become free when a window passes it. Nobody is preempted for the one
 * that is lacking: the model's policy is to refuse. */
START_TEST(prompt_that_passes_a_shared_block_and_finds_no_other_is_refused_until_there_is_one)
{
    static struct toy t;
    static struct writer a;
    struct ngd_step_params p;
    struct ngd_model_stats stats;
    struct ngd_diag diag = {0};
    struct toy_seq b;

    window_open(&t, WINDOW, false, 5);
    writer_open(&t, &a, 96, 4);
    window_text(a.text + 96, 60, 5);
    toy_seq_open(&t, &b, a.text, 97, NULL);
    ck_assert_uint_eq(b.shared, 96);
    ngd_step_params_init(&p);
    p.append = a.text + 96;
    p.n_append = 60;
    ck_assert_int_eq(ngd_seq_step(a.s.seq, &p, toy_done, &a.s, &diag), NGD_OK);
    toy_wait(&a.s);
    ck_assert_int_eq(a.s.status, NGD_ERR_KV_EXHAUSTED);
    ck_assert_uint_eq(a.s.position, 155);
    ck_assert_int_eq(plain_step(a.s.seq, a.text[155], false, toy_done, &a.s, &diag), NGD_ERR_KV_EXHAUSTED);
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_eq(stats.preemptions, 0);
    ngd_seq_close(b.seq);
    toy_step(&a.s, a.text[155]);
    a.n = 156;
    window_expect(&t, a.text, a.n, a.s.token);
    write_together(&t, &a, 1, 40);
    ngd_seq_close(a.s.seq);
    window_close(&t);
}
END_TEST

START_TEST(context_that_can_never_be_held_is_refused_with_what_it_holds)
{
    static struct toy t;
    static struct writer w;
    struct ngd_diag diag = {0};
    struct toy_seq s;

    window_open(&t, WINDOW, false, 3);
    window_text(w.text, TOY_CONTEXT, 6);
    ck_assert_int_eq(toy_try_open(&t, &s, w.text, 300, NULL, false, &diag), NGD_ERR_KV_EXHAUSTED);
    ck_assert_str_eq(diag.text, "a context of 300 tokens holds up to 4 KV blocks, but the model has 3; give it more "
                                "blocks, or prompts chunks of fewer rows than 24");
    writer_open(&t, &w, 48, 6);
    toy_queue_step(&w.s, -1);
    toy_wait(&w.s);
    ck_assert_int_eq(w.s.status, NGD_ERR_KV_EXHAUSTED);
    ngd_seq_close(w.s.seq);
    window_close(&t);
}
END_TEST

/* Opens a sequence, expects so many shared tokens, and the right next one. */
static void expect_shared(struct toy *t, const int32_t *text, uint32_t n, uint32_t shared)
{
    struct toy_seq s;

    toy_seq_open(t, &s, text, n, NULL);
    ck_assert_uint_eq(s.shared, shared);
    window_expect(t, text, n, s.token);
    ngd_seq_close(s.seq);
}

START_TEST(prefix_is_shared_if_the_window_at_its_end_is_there)
{
    static struct toy t;
    static struct writer w;
    int32_t text[100], other[100];

    window_open(&t, WINDOW, false, 8);
    writer_open(&t, &w, 100, 7);
    memcpy(text, w.text, sizeof(text));
    memcpy(other, text, sizeof(other));
    window_text(other + 60, 40, 8);
    ngd_seq_close(w.s.seq);
    expect_shared(&t, text, 100, 96);
    expect_shared(&t, other, 70, 48); /* its blocks 0 and 1 are not needed */
    window_text(other, 40, 9);
    expect_shared(&t, other, 40, 0);
    expect_shared(&t, text, 100, 96); /* though the oldest of its blocks were reused */
    for (uint32_t i = 0; i < 4; i++) {
        window_text(other, 100, 10 + i);
        expect_shared(&t, other, 100, 0);
    }
    expect_shared(&t, text, 100, 0);
    window_close(&t);
}
END_TEST

START_TEST(prefix_needs_all_blocks_of_layers_without_a_window)
{
    static struct toy t;
    int32_t text[100], other[64];
    uint32_t shared;

    window_open(&t, WINDOW, true, 16);
    window_text(text, 100, 7);
    expect_shared(&t, text, 100, 0);
    expect_shared(&t, text, 100, 96);
    window_text(other, 64, 8);
    expect_shared(&t, other, 64, 0); /* takes some of the least recently released blocks */
    {
        struct toy_seq s;

        toy_seq_open(&t, &s, text, 100, NULL);
        shared = s.shared;
        window_expect(&t, text, 100, s.token);
        ngd_seq_close(s.seq);
    }
    ck_assert_uint_lt(shared, 97);
    window_close(&t);
}
END_TEST

static void fork_everywhere(uint32_t window, bool two, uint32_t block)
{
    static struct toy t;
    static struct writer w;

    window_bed(&t, window, two, TOY_BLOCKS);
    t.block = block;
    toy_create(&t);
    writer_open(&t, &w, 1, 11);
    while (w.n < 50) {
        struct toy_seq child = {.seq = NULL};
        struct ngd_diag diag = {0};
        const struct ngd_sampling greedy = {0};

        gate_init(&child.answered);
        if (plain_fork(w.s.seq, &greedy, false, toy_done, &child, &child.seq, &diag))
            ck_abort_msg("%s", diag.text);
        write_together(&t, &w, 1, 1);
        toy_wait(&child);
        toy_ok(&child);
        ck_assert_int_eq(child.token, w.text[w.n - 1]);
        toy_step(&child, -1);
        ck_assert_int_eq(child.token, w.s.token);
        ngd_seq_close(child.seq);
    }
    ngd_seq_close(w.s.seq);
    window_close(&t);
}

START_TEST(fork_finds_what_its_last_row_sees)
{
    fork_everywhere(WINDOW, false, 16);
    fork_everywhere(WINDOW, true, 8);
    fork_everywhere(5, false, 4);
    fork_everywhere(4, true, 1);
    fork_everywhere(1, false, 1);
}
END_TEST

static void step_draft(struct toy_seq *s, const int32_t *draft, uint32_t n)
{
    struct ngd_step_params p;
    struct ngd_diag diag = {0};

    ngd_step_params_init(&p);
    p.draft = draft;
    p.n_draft = n;
    if (ngd_seq_step(s->seq, &p, toy_done, s, &diag))
        ck_abort_msg("%s", diag.text);
    toy_wait(s);
    toy_ok(s);
}

/* Drafts of three tokens, of which the first `right` are right: a rejected one does not take what the window needs. */
static void write_with_drafts(uint32_t window, bool two, uint32_t block, uint32_t right)
{
    static struct toy t;
    static struct writer w;
    int32_t said[120];
    struct toy_seq s;
    uint32_t at = 20;

    window_bed(&t, window, two, TOY_BLOCKS);
    t.block = block;
    toy_create(&t);
    ck_assert(t.model->drafts);
    writer_open(&t, &w, 20, 12);
    write_together(&t, &w, 1, 99);
    memcpy(said, w.text, w.n * sizeof(said[0]));
    said[w.n] = w.s.token;
    ngd_seq_close(w.s.seq);
    toy_seq_open(&t, &s, said, at, NULL);
    while (at + 4 < 119) {
        int32_t draft[3];

        for (uint32_t i = 0; i < 3; i++)
            draft[i] = i < right ? said[at + 1 + i] : (said[at + 1 + i] + 1) % TOY_VOCAB;
        step_draft(&s, draft, 3);
        at += 1 + s.accepted;
        ck_assert_uint_eq(s.position, at);
        ck_assert_int_eq(s.token, said[at]);
    }
    ngd_seq_close(s.seq);
    window_close(&t);
}

START_TEST(draft_is_rolled_back_to_blocks_that_are_there)
{
    for (uint32_t right = 0; right <= 3; right++) {
        write_with_drafts(WINDOW, false, 16, right);
        write_with_drafts(3, true, 2, right);
        write_with_drafts(1, false, 1, right);
    }
}
END_TEST

START_TEST(preempted_sequences_compute_their_contexts_again_window_by_window)
{
    static struct toy t;
    static struct writer w[4];
    struct ngd_model_stats stats;

    for (int two = 0; two < 2; two++) {
        window_bed(&t, WINDOW, two, two ? 24 : 6);
        t.preempt = true;
        toy_create(&t);
        for (uint32_t i = 0; i < 4; i++)
            writer_open(&t, &w[i], 60 + 7 * i, 20 + i);
        write_together(&t, w, 4, 40);
        for (uint32_t i = 0; i < 40; i++)
            write_together(&t, &w[i % 4], 1, 1);
        ngd_model_stats(t.model, &stats);
        ck_assert_uint_gt(stats.preemptions, 0);
        for (int i = 0; i < 4; i++)
            ngd_seq_close(w[i].s.seq);
        window_close(&t);
    }
}
END_TEST

START_TEST(prompts_that_share_a_replay_slide_each_for_itself)
{
    static struct toy t;
    static struct writer w[3];

    for (int two = 0; two < 2; two++) {
        window_bed(&t, WINDOW, two, TOY_BLOCKS);
        t.together = 3;
        toy_create(&t);
        for (uint32_t i = 0; i < 3; i++) {
            w[i].n = 40 + 50 * i;
            window_text(w[i].text, w[i].n, 30 + i);
            toy_queue_open(&t, &w[i].s, w[i].text, w[i].n, NULL);
        }
        for (uint32_t i = 0; i < 3; i++) {
            toy_wait(&w[i].s);
            toy_ok(&w[i].s);
            window_expect(&t, w[i].text, w[i].n, w[i].s.token);
        }
        write_together(&t, w, 3, 20);
        for (int i = 0; i < 3; i++)
            ngd_seq_close(w[i].s.seq);
        window_close(&t);
    }
}
END_TEST

START_TEST(window_as_long_as_the_context_is_none)
{
    static struct toy t;
    struct ngd_model_stats stats;

    window_open(&t, TOY_CONTEXT, false, 30);
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_eq(stats.windows[0], 0);
    ck_assert_uint_eq(stats.blocks_per_sequence, TOY_CONTEXT / TOY_BLOCK);
    window_close(&t);
    window_open(&t, TOY_CONTEXT - 1, true, 60);
    ngd_model_stats(t.model, &stats);
    ck_assert_uint_eq(stats.n_groups, 2);
    ck_assert_uint_eq(stats.windows[0], TOY_CONTEXT - 1);
    ck_assert_uint_eq(stats.windows[1], 0);
    ck_assert_uint_eq(stats.blocks_per_sequence, 2 * TOY_CONTEXT / TOY_BLOCK);
    window_close(&t);
}
END_TEST

/* A sequence is charged for what it may hold, whatever it holds at the moment. */
START_TEST(quota_counts_a_window_and_a_chunk)
{
    static struct toy t;
    struct ngd_share_params sp;
    struct ngd_share_stats stats;
    struct ngd_share *share;
    struct ngd_diag diag = {0};
    struct toy_seq s, more;
    int32_t text[200];

    window_open(&t, WINDOW, false, 40);
    ngd_share_params_init(&sp);
    sp.kv_limit = 4;
    ck_assert_int_eq(ngd_share_open(t.bed.sched, "uid:1", &sp, &share, &diag), NGD_OK);
    window_text(text, 200, 40);
    {
        const struct ngd_seq_params p = {
            .prompt = text, .n_prompt = 200, .priority = NGD_PRIORITY_NORMAL, .share = share};

        memset(&s, 0, sizeof(s));
        gate_init(&s.answered);
        if (ngd_seq_open(t.model, &p, toy_done, &s, &s.seq, &diag))
            ck_abort_msg("%s", diag.text);
        toy_wait(&s);
        toy_ok(&s);
        ck_assert_int_eq(ngd_seq_open(t.model, &p, toy_done, &more, &more.seq, &diag), NGD_ERR_QUOTA);
    }
    for (int i = 0; i < 40; i++)
        toy_step(&s, -1);
    ngd_share_stats(share, &stats);
    ck_assert_uint_eq(stats.kv_blocks, 4);
    ngd_seq_close(s.seq);
    ngd_share_stats(share, &stats);
    ck_assert_uint_eq(stats.kv_blocks, 0);
    ngd_share_unref(share);
    window_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/windows", ten_windows_are_written_where_two_would_fit_whole,
          layers_with_a_window_and_without_one_have_tables_of_their_own,
          prompt_goes_through_a_pool_that_holds_its_window_and_a_chunk,
          sequence_whose_window_is_full_goes_on_if_no_block_is_free,
          prompt_that_passes_a_shared_block_and_finds_no_other_is_refused_until_there_is_one,
          context_that_can_never_be_held_is_refused_with_what_it_holds,
          prefix_is_shared_if_the_window_at_its_end_is_there, prefix_needs_all_blocks_of_layers_without_a_window,
          fork_finds_what_its_last_row_sees, draft_is_rolled_back_to_blocks_that_are_there,
          preempted_sequences_compute_their_contexts_again_window_by_window,
          prompts_that_share_a_replay_slide_each_for_itself, window_as_long_as_the_context_is_none,
          quota_counts_a_window_and_a_chunk)
