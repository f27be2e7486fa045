/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which sequence is next (priorities, ageing and short prompts, with a clock that the test sets), and which one
 * is preempted. */
#include "tests/unit/toy_model.h"

static const int32_t prompt[] = {3, 17, 0, 9, 22, 5, 5, 12, 20, 1, 8};

/* The order in which steps were made. Callbacks come one after another, on the only worker. */
static uint32_t order[16], n_order;

struct turn {
    struct toy_seq s;
    uint32_t number;
};

static void done(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    struct turn *turn = user;

    order[n_order++] = turn->number;
    toy_done(&turn->s, seq, r);
}

static void open_with(struct toy *t, struct turn *turn, uint32_t number, uint32_t n, ngd_priority_t priority)
{
    struct ngd_seq_params p = {.prompt = prompt, .n_prompt = n, .priority = priority};
    struct ngd_diag diag = {0};

    memset(turn, 0, sizeof(*turn));
    turn->number = number;
    gate_init(&turn->s.answered);
    if (ngd_seq_open(t->model, &p, done, turn, &turn->s.seq, &diag))
        ck_abort_msg("%s", diag.text);
}

static void step_with(struct turn *turn, ngd_priority_t priority)
{
    struct ngd_step_params p;
    struct ngd_diag diag = {0};

    ngd_step_params_init(&p);
    p.priority = priority;
    if (ngd_seq_step(turn->s.seq, &p, done, turn, &diag))
        ck_abort_msg("%s", diag.text);
}

static void finish(struct turn *turn)
{
    toy_wait(&turn->s);
    toy_ok(&turn->s);
}

/* Holds the worker while requests come, at times that the test sets. */
struct hold {
    struct gate gate;
    struct call busy;
    struct ngd_binding *binding;
};

static void hold_begin(struct hold *h, struct toy *t)
{
    h->binding = bed_binding(&t->bed, DOUBLE_TEXT, NULL);
    gate_init(&h->gate);
    call_occupy(&t->bed, &h->busy, h->binding, &h->gate);
    n_order = 0;
}

static void hold_end(struct hold *h)
{
    gate_open(&h->gate);
    call_wait(&h->busy);
    ngd_binding_unref(h->binding);
}

START_TEST(steps_of_more_urgent_classes_are_made_first_until_the_others_have_aged)
{
    enum { N = 12 };
    static const struct {
        ngd_priority_t priority;
        int64_t ms; /* when it comes */
    } come[N] = {
        {NGD_PRIORITY_LOW, 0},      {NGD_PRIORITY_NORMAL, 1}, {NGD_PRIORITY_HIGH, 2},    {NGD_PRIORITY_LOW, 3},
        {NGD_PRIORITY_NORMAL, 4},   {NGD_PRIORITY_HIGH, 5},   {NGD_PRIORITY_NORMAL, 90}, {NGD_PRIORITY_HIGH, 150},
        {NGD_PRIORITY_NORMAL, 160}, {NGD_PRIORITY_HIGH, 190}, {NGD_PRIORITY_HIGH, 201},  {NGD_PRIORITY_HIGH, 210},
    };
    /* high at 2, 5; normal from 1, 4 counts as 101, 104; high 150; normal 90 as 190; high 190; low 0 as 200, ... */
    static const uint32_t expected[N] = {2, 5, 1, 4, 7, 6, 9, 0, 10, 3, 11, 8};
    static struct toy t;
    static struct turn turns[N];
    struct hold h;

    toy_bed(&t, 1);
    toy_create(&t);
    t.model->params.max_sequences = N;
    for (uint32_t i = 0; i < N; i++) {
        open_with(&t, &turns[i], i, 2, NGD_PRIORITY_NORMAL);
        finish(&turns[i]);
    }
    hold_begin(&h, &t);
    for (uint32_t i = 0; i < N; i++) {
        ngd_clock_set_fake(NGD_SEC + come[i].ms * NGD_MSEC);
        step_with(&turns[i], come[i].priority);
    }
    hold_end(&h);
    for (uint32_t i = 0; i < N; i++)
        finish(&turns[i]);
    ngd_clock_set_fake(-1);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_msg(order[i] == expected[i], "turn %u was that of %u, not of %u", i, order[i], expected[i]);
        ngd_seq_close(turns[i].s.seq);
    }
    toy_close(&t);
}
END_TEST

START_TEST(class_of_a_sequence_holds_for_steps_that_do_not_say_and_only_for_those)
{
    static struct toy t;
    static struct turn turns[3];
    static const ngd_priority_t own[3] = {NGD_PRIORITY_NORMAL, NGD_PRIORITY_LOW, NGD_PRIORITY_HIGH};
    static const struct {
        ngd_priority_t step[3];
        uint32_t order[3];
    } cases[] = {
        {{NGD_PRIORITY_OWN, NGD_PRIORITY_OWN, NGD_PRIORITY_OWN}, {2, 0, 1}},
        {{NGD_PRIORITY_OWN, NGD_PRIORITY_HIGH, NGD_PRIORITY_LOW}, {1, 0, 2}},
        {{NGD_PRIORITY_OWN, NGD_PRIORITY_OWN, NGD_PRIORITY_OWN}, {2, 0, 1}},
    };

    toy_open(&t, 1);
    for (uint32_t i = 0; i < 3; i++) {
        open_with(&t, &turns[i], i, 2, own[i]);
        finish(&turns[i]);
    }
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct hold h;

        hold_begin(&h, &t);
        for (uint32_t i = 0; i < 3; i++)
            step_with(&turns[i], cases[c].step[i]);
        ck_assert_int_eq(t.model->item.priority,
                         NGD_PRIORITY_HIGH); /* the model has the priority of its most urgent sequence */
        hold_end(&h);
        for (uint32_t i = 0; i < 3; i++)
            finish(&turns[i]);
        ck_assert_mem_eq(order, cases[c].order, sizeof(cases[c].order));
    }
    for (uint32_t i = 0; i < 3; i++)
        ngd_seq_close(turns[i].s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(short_prompts_do_not_wait_for_a_long_one_nor_it_for_those_that_come_later)
{
    static struct toy t;
    static struct turn turns[4];
    struct hold h;

    toy_bed(&t, 1);
    t.no_sharing = true;
    toy_create(&t);
    atomic_store(&t.model->row_time, NGD_MSEC);
    hold_begin(&h, &t);
    ngd_clock_set_fake(NGD_SEC);
    open_with(&t, &turns[0], 0, 11, NGD_PRIORITY_NORMAL); /* would be over at 11 */
    ngd_clock_set_fake(NGD_SEC + NGD_MSEC);
    open_with(&t, &turns[1], 1, 2, NGD_PRIORITY_NORMAL); /* at 3 */
    ngd_clock_set_fake(NGD_SEC + 10 * NGD_MSEC);
    open_with(&t, &turns[2], 2, 2, NGD_PRIORITY_NORMAL); /* at 12 */
    open_with(&t, &turns[3], 3, 11, NGD_PRIORITY_HIGH);  /* at 21, and the others at 100 more */
    hold_end(&h);
    for (uint32_t i = 0; i < 4; i++)
        finish(&turns[i]);
    ngd_clock_set_fake(-1);
    ck_assert_mem_eq(order, ((uint32_t[]){3, 1, 0, 2}), 4 * sizeof(uint32_t));
    for (uint32_t i = 0; i < 4; i++)
        ngd_seq_close(turns[i].s.seq);
    toy_close(&t);
}
END_TEST

START_TEST(least_urgent_sequence_gives_up_its_blocks_first)
{
    static struct toy t;
    static struct turn turns[4];
    static const ngd_priority_t classes[3] = {NGD_PRIORITY_NORMAL, NGD_PRIORITY_LOW, NGD_PRIORITY_HIGH};
    struct ngd_seq_info info;

    toy_bed(&t, 1);
    t.blocks = 8;
    t.no_sharing = true;
    t.preempt = true;
    toy_create(&t);
    for (uint32_t i = 0; i < 3; i++) { /* two blocks each, the youngest is the most urgent */
        open_with(&t, &turns[i], i, 4, classes[i]);
        finish(&turns[i]);
    }
    open_with(&t, &turns[3], 3, 7, NGD_PRIORITY_NORMAL); /* four: two are free */
    finish(&turns[3]);
    for (uint32_t i = 0; i < 3; i++) {
        ngd_seq_info(turns[i].s.seq, &info);
        ck_assert_uint_eq(info.blocks, i == 1 ? 0 : 2);
    }
    /* Then the normal one, not the urgent one. */
    step_with(&turns[3], NGD_PRIORITY_OWN);
    finish(&turns[3]);
    step_with(&turns[3], NGD_PRIORITY_OWN);
    finish(&turns[3]);
    ngd_seq_info(turns[0].s.seq, &info);
    ck_assert_uint_eq(info.blocks, 0);
    ngd_seq_info(turns[2].s.seq, &info);
    ck_assert_uint_eq(info.blocks, 2);
    for (uint32_t i = 0; i < 4; i++) /* all produce their expected tokens */
        ngd_seq_close(turns[i].s.seq);
    toy_close(&t);
}
END_TEST

UNIT_MAIN("scheduler/turns", steps_of_more_urgent_classes_are_made_first_until_the_others_have_aged,
          class_of_a_sequence_holds_for_steps_that_do_not_say_and_only_for_those,
          short_prompts_do_not_wait_for_a_long_one_nor_it_for_those_that_come_later,
          least_urgent_sequence_gives_up_its_blocks_first)
