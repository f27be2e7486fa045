/* SPDX-License-Identifier: Apache-2.0 */
/* Tests sequences that go on in another model (seq_move.h), on the toy model, where a wrong byte changes the tokens. */
#include "scheduler/model/seq_move.h"
#include "base/mem.h"
#include "tests/unit/window_util.h"

enum { PROMPT = 37, ROUNDS = 3000 };

struct kv {
    uint8_t data[1 << 20];
    uint64_t n;
};

static ngd_status_t put(void *ctx, const void *data, uint64_t n, struct ngd_diag *diag)
{
    struct kv *kv = ctx;

    (void)diag;
    ck_assert_uint_le(n, sizeof(kv->data) - kv->n);
    memcpy(kv->data + kv->n, data, n);
    kv->n += n;
    return NGD_OK;
}

static void export_ok(struct toy_seq *s, struct ngd_seq_image *image, struct kv *kv)
{
    struct ngd_diag diag = {0};

    kv->n = 0;
    if (ngd_seq_export(s->seq, image, put, kv, &diag))
        ck_abort_msg("%s", diag.text);
    ck_assert_uint_eq(image->kv_bytes, kv->n);
}

/* Puts the sequence's image into the place of the sequence. */
static void move_seq(struct toy *to, struct toy_seq *s, bool with_kv)
{
    static struct kv kv;
    struct ngd_seq_image image;
    struct ngd_seq *moved;
    struct ngd_diag diag = {0};

    export_ok(s, &image, &kv);
    if (!with_kv) {
        image.n_tables = 0;
        image.kv_bytes = 0;
    }
    if (ngd_seq_import(to->model, &image, kv.data, &(struct ngd_seq_owner){0}, &moved, &diag))
        ck_abort_msg("%s", diag.text);
    ck_assert_mem_eq(moved->ways, s->seq->ways, ngd_model_ways_bytes(to->model));
    ck_assert_uint_eq(moved->computed, s->seq->computed);
    ck_assert_uint_eq(moved->part, s->seq->part);
    ngd_seq_close(s->seq);
    s->seq = moved;
}

static void check_moves(uint32_t window, bool two, bool with_kv, const struct ngd_sampling *how)
{
    static struct toy from, to;
    struct toy_seq plain, moves;
    int32_t text[PROMPT];

    window_text(text, PROMPT, 5);
    window_open(&from, window, two, TOY_BLOCKS);
    window_open(&to, window, two, TOY_BLOCKS);
    toy_seq_open(&from, &plain, text, PROMPT, how);
    toy_seq_open(&from, &moves, text, PROMPT, how);
    for (int i = 0; i < 60; i++) {
        ck_assert_int_eq(moves.token, plain.token);
        toy_step(&plain, -1);
        toy_step(&moves, -1);
        if (i % 20 == 10)
            move_seq(i == 30 ? &from : &to, &moves, with_kv);
    }
    ngd_seq_close(moves.seq);
    ngd_seq_close(plain.seq);
    ck_assert_uint_eq(toy_blocks_used(&from), 0);
    ck_assert_uint_eq(toy_blocks_used(&to), 0);
    window_close(&from);
    window_close(&to);
}

START_TEST(tokens_behind_a_move_are_those_without_one)
{
    static const struct ngd_sampling greedy,
        drawn = {.temperature = 1.1f, .top_k = 9, .seed = 3, .presence_penalty = 1};

    for (int k = 0; k < 8; k++)
        check_moves(k & 1 ? 40 : 0, k & 1, k & 2, k & 4 ? &drawn : &greedy);
}
END_TEST

START_TEST(generation_goes_on_behind_the_tokens_that_arrived)
{
    static struct toy t;
    struct toy_seq s;
    struct ngd_generate_params p;
    int32_t text[PROMPT], told[8];

    window_text(text, PROMPT, 5);
    window_open(&t, 0, false, TOY_BLOCKS);
    toy_seq_open(&t, &s, text, PROMPT, NULL);
    toy_generate(&s, 8, true);
    memcpy(told, s.tokens, sizeof(told));
    move_seq(&t, &s, true);
    for (uint32_t had = 0; had < 8; had++) {
        ngd_generate_params_init(&p);
        p.max_tokens = 8 - had;
        p.ignore_stop = true;
        p.from = PROMPT + had;
        s.n_tokens = 0;
        ck_assert_int_eq(ngd_seq_generate(s.seq, &p, toy_on_token, toy_generated, &s, NULL), NGD_OK);
        toy_wait(&s);
        ck_assert_uint_eq(s.n_tokens, 8 - had);
        ck_assert_mem_eq(s.tokens, told + had, (8 - had) * sizeof(told[0]));
        ck_assert_str_eq(s.finish, "length");
    }
    p.from = PROMPT + 9;
    ck_assert_int_eq(ngd_seq_generate(s.seq, &p, toy_on_token, toy_generated, &s, NULL), NGD_ERR_INVALID_ARGUMENT);
    toy_step(&s, -1); /* the refusal has left it free */
    toy_ok(&s);
    ngd_seq_close(s.seq);
    window_close(&t);
}
END_TEST

/*
 * Sequences that were lost, in a model whose blocks are for one of them: they preempt each other while they compute
 * their contexts again. Some are cancelled then, and go on later.
 */
START_TEST(lost_sequences_compute_their_contexts_again_with_few_blocks)
{
    static struct toy from, few;
    static struct toy_seq plain, lost[5];
    static struct kv kv;
    static const struct ngd_sampling how = {.temperature = 1.1f, .top_k = 9, .seed = 3, .frequency_penalty = 1};
    struct ngd_seq_image image;
    int32_t text[PROMPT];

    window_text(text, PROMPT, 5);
    window_open(&from, 0, false, TOY_BLOCKS);
    window_bed(&few, 0, false, TOY_FEW);
    few.preempt = true;
    toy_create(&few);
    toy_seq_open(&from, &plain, text, PROMPT, &how);
    toy_generate(&plain, 61, true);
    export_ok(&plain, &image, &kv);
    image.n_tables = 0;
    image.kv_bytes = 0;
    toy_generate(&plain, 20, true);
    for (int i = 0; i < 5; i++) {
        memset(&lost[i], 0, sizeof(lost[i]));
        gate_init(&lost[i].answered);
        ck_assert_int_eq(ngd_seq_import(few.model, &image, NULL, &(struct ngd_seq_owner){0}, &lost[i].seq, NULL),
                         NGD_OK);
    }
    for (int i = 0; i < 5; i++)
        toy_queue_generate(&lost[i], 20, true);
    for (int i = 3; i < 5; i++)
        ngd_seq_cancel(lost[i].seq);
    for (int i = 0; i < 5; i++)
        toy_wait(&lost[i]);
    for (int i = 3; i < 5; i++)
        if (lost[i].status == NGD_ERR_CANCELLED && lost[i].n_tokens == 0)
            toy_generate(&lost[i], 20, true);
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(lost[i].n_tokens, 20);
        ck_assert_mem_eq(lost[i].tokens, plain.tokens, 20 * sizeof(plain.tokens[0]));
        ngd_seq_close(lost[i].seq);
    }
    ck_assert_uint_eq(toy_blocks_used(&few), 0);
    ngd_seq_close(plain.seq);
    window_close(&few);
    window_close(&from);
}
END_TEST

/* A part of which a cancelled step has left rows that were never computed: they have no bits, and follow its chunks. */
START_TEST(rest_of_a_cancelled_part_is_computed_as_such_behind_a_move)
{
    static struct toy t;
    struct toy_seq plain, s;
    const struct ngd_step_params step = {.append = (int32_t[300]){1}, .n_append = 300, .forced = -1};
    uint32_t rest = 0;
    int32_t text[PROMPT];

    window_text(text, PROMPT, 5);
    window_open(&t, 0, false, TOY_BLOCKS);
    for (int i = 0; i < 100 && !rest; i++) { /* until the cancellation comes before the end */
        toy_seq_open(&t, &s, text, PROMPT, NULL);
        ck_assert_int_eq(ngd_seq_step(s.seq, &step, toy_done, &s, NULL), NGD_OK);
        ngd_seq_cancel(s.seq);
        toy_wait(&s);
        rest = s.seq->fill - s.seq->computed;
        if (!rest)
            ngd_seq_close(s.seq);
    }
    ck_assert_uint_ne(rest, 0);
    toy_seq_open(&t, &plain, text, PROMPT, NULL);
    ck_assert_int_eq(ngd_seq_step(plain.seq, &step, toy_done, &plain, NULL), NGD_OK);
    toy_wait(&plain);
    move_seq(&t, &s, false);
    toy_step(&s, step.append[299]);
    ck_assert_int_eq(s.token, plain.token);
    ngd_seq_close(s.seq);
    ngd_seq_close(plain.seq);
    window_close(&t);
}
END_TEST

/* A sequence whose context is full, and larger than the model that it has come to: a generation has nothing to compute,
 * and a copy would wait for blocks forever. */
START_TEST(full_context_ends_generations_and_is_not_copied_where_it_has_too_few_blocks)
{
    static struct toy from, few;
    static struct kv kv;
    struct toy_seq plain, lost = {0}, copy = {0};
    struct ngd_seq_image image;
    int32_t text[PROMPT];

    window_text(text, PROMPT, 5);
    window_open(&from, 0, false, TOY_BLOCKS);
    window_bed(&few, 0, false, TOY_FEW);
    few.preempt = true;
    toy_create(&few);
    toy_seq_open(&from, &plain, text, PROMPT, NULL);
    toy_generate(&plain, TOY_CONTEXT, true);
    ck_assert_str_eq(plain.finish, "context");
    export_ok(&plain, &image, &kv);
    image.n_tables = 0;
    image.kv_bytes = 0;
    image.delivered = false;
    gate_init(&lost.answered);
    ck_assert_int_eq(ngd_seq_import(few.model, &image, NULL, &(struct ngd_seq_owner){0}, &lost.seq, NULL), NGD_OK);
    for (uint32_t n = 2; n-- > 0;) {
        toy_generate(&lost, 5, true);
        ck_assert_uint_eq(lost.n_tokens, n);
        ck_assert_str_eq(lost.finish, "context");
        ck_assert_uint_eq(lost.position, TOY_CONTEXT);
    }
    ck_assert_int_eq(plain_fork(lost.seq, &image.sampling, false, toy_done, &copy, &copy.seq, NULL),
                     NGD_ERR_KV_EXHAUSTED);
    ngd_seq_close(lost.seq);
    ngd_seq_close(plain.seq);
    window_close(&few);
    window_close(&from);
}
END_TEST

/* Changes some words of the image's numbers. */
static void spoil(struct ngd_seq_image *image, uint32_t *seed)
{
    static const uint32_t odd[] = {0, 1, 2, 15, 16, 17, 399, 400, 401, 65535, INT32_MAX, UINT32_MAX};
    uint32_t *const words[] = {&image->fill,
                               &image->n_prompt,
                               &image->n_given,
                               &image->position,
                               &image->shared,
                               &image->n_tables,
                               &image->tables[0].first,
                               &image->tables[0].n,
                               &image->tables[1].first,
                               &image->tables[1].n,
                               &image->uncomputed,
                               &image->part};
    const uint32_t r = *seed = *seed * 1664525u + 1013904223u;
    const uint32_t value = odd[(r >> 8) % 12];

    if ((r >> 16) % 18 < 12)
        *words[(r >> 16) % 18] = value;
    else if ((r >> 16) % 18 < 14)
        image->chosen = (int32_t)value;
    else if ((r >> 16) % 18 < 16)
        image->kv_bytes += value;
    else if ((r >> 16) % 18 < 17)
        image->ways_bytes = value;
    else
        image->priority = (ngd_priority_t)value;
}

START_TEST(images_that_fit_no_sequence_are_refused_and_leave_nothing)
{
    static struct toy t;
    static struct kv kv;
    static int32_t tokens[TOY_CONTEXT + 2];
    struct toy_seq s;
    struct ngd_seq_image good;
    int32_t text[PROMPT];
    uint32_t seed = 1, used, taken = 0;

    window_text(text, PROMPT, 5);
    window_open(&t, 40, true, TOY_BLOCKS);
    toy_seq_open(&t, &s, text, PROMPT, NULL);
    export_ok(&s, &good, &kv);
    memcpy(tokens, good.tokens, good.fill * sizeof(tokens[0]));
    used = toy_blocks_used(&t);
    for (int i = 0; i < ROUNDS; i++) {
        struct ngd_seq_image image = good;
        struct ngd_seq *seq;

        image.tokens = tokens;
        for (int k = 0; k <= i % 3; k++)
            spoil(&image, &seed);
        tokens[i % PROMPT] = i % 50 ? text[i % PROMPT] : TOY_VOCAB;
        if (ngd_seq_import(t.model, &image, kv.data, &(struct ngd_seq_owner){0}, &seq, NULL) == NGD_OK) {
            taken++;
            ngd_seq_close(seq);
        }
        tokens[i % PROMPT] = text[i % PROMPT];
        ck_assert_uint_eq(toy_blocks_used(&t), used);
    }
    ck_assert_uint_gt(taken, ROUNDS / 100);
    ck_assert_uint_lt(taken, ROUNDS / 2);
    ngd_seq_close(s.seq);
    window_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/seq_move", tokens_behind_a_move_are_those_without_one,
          generation_goes_on_behind_the_tokens_that_arrived,
          lost_sequences_compute_their_contexts_again_with_few_blocks,
          rest_of_a_cancelled_part_is_computed_as_such_behind_a_move,
          full_context_ends_generations_and_is_not_copied_where_it_has_too_few_blocks,
          images_that_fit_no_sequence_are_refused_and_leave_nothing)
