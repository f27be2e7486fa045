/* SPDX-License-Identifier: Apache-2.0 */
/* Tests sequences that share blocks of common prefixes, on the toy model: the owner of a block must not show. */
#include "tests/unit/toy_model.h"

static const int32_t prompt[TOY_CONTEXT] = {3, 17, 0, 9, 22, 5, 5, 12, 20, 1, 8, 14, 2};

static struct ngd_model_stats stats_of(struct toy *t)
{
    struct ngd_model_stats stats;

    ngd_model_stats(t->model, &stats);
    return stats;
}

/* Makes `steps` steps, and checks each token. context has the first n tokens. */
static void check_steps(struct toy *t, struct toy_seq *s, int32_t *context, uint32_t n, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++) {
        context[n] = toy_next(t, context, n);
        ck_assert_int_eq(s->token, context[n]);
        n++;
        toy_step(s, -1);
    }
    ck_assert_int_eq(s->token, toy_next(t, context, n));
}

START_TEST(the_same_prompt_is_computed_once)
{
    static struct toy t;
    struct toy_seq a, b;
    int32_t context[TOY_CONTEXT];

    toy_open(&t, 1);
    toy_seq_open(&t, &a, prompt, 9, NULL);
    ck_assert_uint_eq(a.shared, 0);
    ck_assert_uint_eq(stats_of(&t).tokens_prefill, 9);
    toy_seq_open(&t, &b, prompt, 9, NULL);
    /* Four full blocks of two; the ninth token is computed, because its logits are asked for. */
    ck_assert_uint_eq(b.shared, 8);
    ck_assert_uint_eq(stats_of(&t).tokens_prefill, 10);
    ck_assert_uint_eq(stats_of(&t).tokens_shared, 8);
    ck_assert_uint_eq(toy_blocks_used(&t), 6);
    memcpy(context, prompt, sizeof(context));
    check_steps(&t, &b, context, 9, 4);
    check_steps(&t, &a, context, 9, 4);
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    toy_close(&t);
}
END_TEST

START_TEST(a_prompt_of_whole_blocks_computes_its_last_block)
{
    static struct toy t;
    struct toy_seq a, b;
    int32_t context[TOY_CONTEXT];

    toy_open(&t, 1);
    toy_seq_open(&t, &a, prompt, 8, NULL);
    toy_seq_open(&t, &b, prompt, 8, NULL);
    ck_assert_uint_eq(b.shared, 6);
    memcpy(context, prompt, sizeof(context));
    check_steps(&t, &b, context, 8, 3);
    check_steps(&t, &a, context, 8, 3);
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    toy_close(&t);
}
END_TEST

START_TEST(prompts_share_what_they_have_in_common_and_no_more)
{
    static struct toy t;
    struct toy_seq a, b;
    int32_t context[TOY_CONTEXT];

    toy_open(&t, 1);
    toy_seq_open(&t, &a, prompt, 9, NULL);
    memcpy(context, prompt, sizeof(context));
    context[5] = 6; /* in the third block */
    toy_seq_open(&t, &b, context, 9, NULL);
    ck_assert_uint_eq(b.shared, 4);
    check_steps(&t, &b, context, 9, 3);
    memcpy(context, prompt, sizeof(context));
    check_steps(&t, &a, context, 9, 3);
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    toy_close(&t);
}
END_TEST

START_TEST(a_closed_sequences_blocks_are_found_until_they_are_needed)
{
    static struct toy t;
    struct toy_seq a, b;
    int32_t other[TOY_CONTEXT], context[TOY_CONTEXT];

    toy_bed(&t, 1);
    t.blocks = 8;
    toy_create(&t);
    toy_seq_open(&t, &a, prompt, 9, NULL);
    ngd_seq_close(a.seq);
    ck_assert_uint_eq(toy_blocks_used(&t), 0);
    ck_assert_uint_eq(stats_of(&t).blocks_cached, 4);
    toy_seq_open(&t, &b, prompt, 9, NULL);
    ck_assert_uint_eq(b.shared, 8);
    ngd_seq_close(b.seq);
    /* Another sequence takes seven of eight blocks; of the prompt's blocks, the last ones are forgotten first. */
    for (int i = 0; i < TOY_CONTEXT; i++)
        other[i] = (prompt[i] + 1) % TOY_VOCAB;
    toy_seq_open(&t, &a, other, TOY_CONTEXT, NULL);
    ck_assert_uint_eq(a.shared, 0);
    ck_assert_uint_eq(stats_of(&t).blocks_cached, 1);
    ngd_seq_close(a.seq);
    toy_seq_open(&t, &b, prompt, 9, NULL);
    ck_assert_uint_eq(b.shared, 2);
    memcpy(context, prompt, sizeof(context));
    check_steps(&t, &b, context, 9, 4);
    ngd_seq_close(b.seq);
    toy_close(&t);
}
END_TEST

START_TEST(what_a_sequence_said_is_shared_with_who_goes_on_from_it)
{
    static struct toy t;
    struct toy_seq a, b;
    int32_t context[TOY_CONTEXT];

    toy_open(&t, 1);
    toy_seq_open(&t, &a, prompt, 3, NULL);
    memcpy(context, prompt, sizeof(context));
    check_steps(&t, &a, context, 3, 6); /* nine tokens are in its blocks */
    ngd_seq_close(a.seq);
    toy_seq_open(&t, &b, context, 9, NULL);
    ck_assert_uint_eq(b.shared, 8);
    check_steps(&t, &b, context, 9, 4);
    ngd_seq_close(b.seq);
    toy_close(&t);
}
END_TEST

START_TEST(without_sharing_nothing_is_shared)
{
    static struct toy t;
    struct toy_seq a, b;

    toy_bed(&t, 1);
    t.no_sharing = true;
    toy_create(&t);
    toy_seq_open(&t, &a, prompt, 9, NULL);
    toy_seq_open(&t, &b, prompt, 9, NULL);
    ck_assert_uint_eq(b.shared, 0);
    ck_assert_uint_eq(stats_of(&t).tokens_prefill, 18);
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    toy_close(&t);
}
END_TEST

/* ---- forks ---------------------------------------------------------------------------------------------- */

static ngd_status_t try_fork(struct toy_seq *parent, struct toy_seq *child, const struct ngd_sampling *sampling,
                             struct ngd_diag *diag)
{
    static const struct ngd_sampling greedy;

    memset(child, 0, sizeof(*child));
    gate_init(&child->answered);
    return plain_fork(parent->seq, sampling ? sampling : &greedy, false, toy_done, child, &child->seq, diag);
}

static void fork_seq(struct toy_seq *parent, struct toy_seq *child, const struct ngd_sampling *sampling)
{
    struct ngd_diag diag = {0};

    if (try_fork(parent, child, sampling, &diag))
        ck_abort_msg("%s", diag.text);
    toy_wait(child);
    toy_ok(child);
}

/* Forks a context that ends in the middle of a block, and one that ends at its end. */
START_TEST(a_fork_goes_its_own_way_and_its_parent_stays)
{
    for (uint32_t n = 5; n <= 6; n++) {
        static struct toy t;
        struct toy_seq parent, child;
        int32_t ours[TOY_CONTEXT], theirs[TOY_CONTEXT];

        toy_open(&t, 1);
        toy_seq_open(&t, &parent, prompt, n, NULL);
        memcpy(ours, prompt, sizeof(ours));
        memcpy(theirs, prompt, sizeof(theirs));
        fork_seq(&parent, &child, NULL);
        ck_assert_int_eq(child.token, parent.token);
        ck_assert_uint_eq(child.position, n);
        /* From here on their tokens differ. */
        theirs[n] = (child.token + 5) % TOY_VOCAB;
        toy_step(&child, theirs[n]);
        check_steps(&t, &parent, ours, n, 4);
        check_steps(&t, &child, theirs, n + 1, 4);
        ngd_seq_close(parent.seq);
        toy_step(&child, -1);
        ngd_seq_close(child.seq);
        toy_close(&t);
    }
}
END_TEST

START_TEST(a_fork_with_the_same_sampling_draws_the_same_and_with_another_seed_its_own)
{
    static struct toy t;
    const struct ngd_sampling same = {.temperature = 5, .seed = 11};
    struct toy_seq parent, child;
    uint32_t different = 0;

    toy_open(&t, 1);
    toy_seq_open(&t, &parent, prompt, 3, &same);
    for (int i = 0; i < 5; i++)
        toy_step(&parent, -1);
    fork_seq(&parent, &child, &same);
    ck_assert_int_eq(child.token, parent.token);
    toy_step(&parent, -1);
    toy_step(&child, -1);
    ck_assert_int_eq(child.token, parent.token);
    ngd_seq_close(child.seq);
    for (uint64_t seed = 100; seed < 108; seed++) {
        const struct ngd_sampling other = {.temperature = 5, .seed = seed};

        fork_seq(&parent, &child, &other);
        different += child.token != parent.token;
        ngd_seq_close(child.seq);
    }
    ck_assert_uint_ge(different, 4);
    ngd_seq_close(parent.seq);
    toy_close(&t);
}
END_TEST

/* A fork computes its last row again, into a block of its own. Its name must not be that of a block behind it. */
START_TEST(a_fork_names_the_block_of_its_last_row_as_what_it_is)
{
    static struct toy t;
    const struct ngd_sampling greedy = {0};
    const int32_t twice[] = {3, 17, 0, 0, 9};
    struct ngd_diag diag = {0};
    struct toy_seq a, child = {.seq = NULL}, b;

    toy_bed(&t, 1);
    t.block = 1;
    toy_create(&t);
    toy_seq_open(&t, &a, prompt, 3, NULL);
    gate_init(&child.answered);
    if (plain_fork(a.seq, &greedy, false, toy_done, &child, &child.seq, &diag))
        ck_abort_msg("%s", diag.text);
    toy_wait(&child);
    toy_ok(&child);
    toy_seq_open(&t, &b, twice, 5, NULL);
    ck_assert_uint_eq(b.shared, 3);
    ck_assert_int_eq(b.token, toy_next(&t, twice, 5));
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    ngd_seq_close(child.seq);
    toy_close(&t);
}
END_TEST

START_TEST(a_fork_that_cannot_be_made_changes_nothing)
{
    static struct toy t;
    struct toy_seq parent, child, others[10];
    struct ngd_diag diag = {0};
    int32_t context[TOY_CONTEXT];
    uint32_t used;

    toy_bed(&t, 1);
    t.blocks = 8;
    t.no_sharing = true;
    toy_create(&t);
    toy_seq_open(&t, &parent, prompt, 5, NULL);
    toy_seq_open(&t, &others[0], prompt, 10, NULL);
    used = toy_blocks_used(&t);
    ck_assert_uint_eq(used, 8);
    ck_assert_int_eq(try_fork(&parent, &child, NULL, &diag), NGD_ERR_KV_EXHAUSTED);
    ck_assert_uint_eq(toy_blocks_used(&t), used);
    ck_assert_uint_eq(stats_of(&t).sequences, 2);
    ngd_seq_close(others[0].seq);
    memcpy(context, prompt, sizeof(context));
    check_steps(&t, &parent, context, 5, 2);
    ngd_seq_close(parent.seq);
    toy_close(&t);
}
END_TEST

/* ---- everything at once ---------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 10;
}

struct player {
    struct toy_seq s;
    int32_t context[TOY_CONTEXT + 1];
    uint32_t n; /* tokens in the context; 0: no sequence */
};

/* Few different prompts, so that blocks are found often; few blocks, so that they are forgotten often. */
START_TEST(a_thousand_operations_say_what_each_would_alone)
{
    enum { PLAYERS = 5 };
    static struct toy t;
    static struct player players[PLAYERS];
    uint32_t state = 3, forks = 0, shared = 0;

    toy_bed(&t, 1);
    t.blocks = 30;
    toy_create(&t);
    for (int step = 0; step < 1500; step++) {
        struct player *p = &players[draw(&state) % PLAYERS];
        struct player *q = &players[draw(&state) % PLAYERS];

        if (p->n == 0 && q->n > 0 && q->n < TOY_CONTEXT && draw(&state) % 2) {
            fork_seq(&q->s, &p->s, NULL);
            memcpy(p->context, q->context, sizeof(p->context));
            p->n = q->n;
            forks++;
        } else if (p->n == 0) {
            p->n = 3 + draw(&state) % 7;
            for (uint32_t i = 0; i < p->n; i++)
                p->context[i] = i < 4 ? prompt[i] : (int32_t)(draw(&state) % 2);
            toy_seq_open(&t, &p->s, p->context, p->n, NULL);
            shared += p->s.shared;
        } else if (p->n < TOY_CONTEXT && draw(&state) % 4) {
            int32_t forced = draw(&state) % 2 ? -1 : (int32_t)(draw(&state) % 2);

            p->context[p->n] = forced < 0 ? p->s.token : forced;
            p->n++;
            toy_step(&p->s, forced);
        } else {
            ngd_seq_close(p->s.seq);
            p->n = 0;
            continue;
        }
        ck_assert_int_eq(p->s.token, toy_next(&t, p->context, p->n));
    }
    ck_assert_uint_gt(forks, 20);
    ck_assert_uint_gt(shared, 200);
    for (int i = 0; i < PLAYERS; i++)
        if (players[i].n)
            ngd_seq_close(players[i].s.seq);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/prefix", the_same_prompt_is_computed_once, a_prompt_of_whole_blocks_computes_its_last_block,
          prompts_share_what_they_have_in_common_and_no_more, a_closed_sequences_blocks_are_found_until_they_are_needed,
          what_a_sequence_said_is_shared_with_who_goes_on_from_it, without_sharing_nothing_is_shared,
          a_fork_goes_its_own_way_and_its_parent_stays,
          a_fork_with_the_same_sampling_draws_the_same_and_with_another_seed_its_own,
          a_fork_names_the_block_of_its_last_row_as_what_it_is, a_fork_that_cannot_be_made_changes_nothing,
          a_thousand_operations_say_what_each_would_alone)
