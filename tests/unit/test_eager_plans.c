/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plans of eager runs: a program makes one for each key, and keeps the last few. */
#include "scheduler/program/eager_plans.h"
#include "tests/unit/sched_util.h"

struct plans {
    uint64_t passes, kept;
};

static void plans_begin(struct plans *p)
{
    p->passes = row_count(NGD_M_PLANS, "passes");
    p->kept = row_count(NGD_M_PLANS, "kept");
}

static void plans_check(const struct plans *p, uint64_t passes, uint64_t kept)
{
    ck_assert_uint_eq(row_count(NGD_M_PLANS, "passes") - p->passes, passes);
    ck_assert_uint_eq(row_count(NGD_M_PLANS, "kept") - p->kept, kept);
}

static struct ngd_binding *open_eager(struct bed *bed)
{
    struct ngd_graph_options options;

    ngd_graph_options_init(&options);
    options.force_eager = true;
    bed_open(bed, 1, 0);
    return bed_binding(bed, DOUBLE_TEXT, &options);
}

/* Opens a binding with one captured key; other keys run eagerly. */
static struct ngd_binding *open_limited(struct bed *bed, bool recapture)
{
    struct ngd_graph_options options;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    options.capture_limit_policy = NGD_GCACHE_EAGER;
    options.force_recapture = recapture;
    bed_open(bed, 1, 0);
    return bed_binding(bed, DOUBLE_TEXT, &options);
}

START_TEST(past_the_limit_only_the_first_replay_of_a_key_plans)
{
    struct ngd_program_stats stats;
    struct plans p;
    struct bed bed;
    struct ngd_binding *b = open_limited(&bed, false);

    plans_begin(&p);
    bed_warm(&bed, b, 3, 2);
    plans_check(&p, 1, 0); /* the capture */
    for (int round = 0; round < 3; round++) {
        bed_warm(&bed, b, 4, 2);
        bed_warm(&bed, b, 5, 2);
    }
    plans_check(&p, 3, 10);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.eager_runs, 12);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(plan_that_was_not_used_for_longest_makes_room)
{
    enum { N = NGD_PROGRAM_EAGER_PLANS };
    struct plans p;
    struct bed bed;
    struct ngd_binding *b = open_eager(&bed);

    plans_begin(&p);
    for (int64_t n = 1; n <= N; n++)
        bed_warm(&bed, b, n, 1);
    bed_warm(&bed, b, 1, 1); /* 2 is the oldest use now */
    plans_check(&p, N, 1);
    bed_warm(&bed, b, N + 1, 1);
    bed_warm(&bed, b, 1, 1);
    bed_warm(&bed, b, N, 1);
    plans_check(&p, N + 1, 3);
    bed_warm(&bed, b, 2, 1);
    plans_check(&p, N + 2, 3);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(plan_that_is_not_believed_any_more_is_made_again)
{
    const int64_t sizes[] = {3, 4, 5};
    struct plans p;
    struct bed bed;
    struct ngd_binding *b = open_eager(&bed);
    struct ngd_key key;

    for (int i = 0; i < 3; i++)
        bed_warm(&bed, b, sizes[i], 1);
    ck_assert_int_eq(ngd_program_key(b->prog, &sizes[1], 1, &key, NULL), NGD_OK);
    ngd_eager_plans_drop(b->prog, &key);
    ngd_eager_plans_drop(b->prog, &key); /* which is not there any more */
    plans_begin(&p);
    for (int i = 0; i < 3; i++)
        bed_warm(&bed, b, sizes[i], 1);
    plans_check(&p, 1, 2);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(force_recapture_plans_each_time)
{
    struct plans p;
    struct bed bed;
    struct ngd_binding *b = open_limited(&bed, true);

    bed_warm(&bed, b, 3, 1);
    plans_begin(&p);
    bed_warm(&bed, b, 4, 3); /* there is no room for it */
    plans_check(&p, 3, 0);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

struct runner {
    struct bed *bed;
    struct ngd_binding *binding;
    int64_t first;
};

static void *run_sizes(void *arg)
{
    struct runner *r = arg;

    for (int64_t i = 0; i < 60; i++)
        bed_warm(r->bed, r->binding, 1 + (r->first + i) % (NGD_PROGRAM_EAGER_PLANS + 3), 1);
    return NULL;
}

/* More keys than are kept, so that plans come and go while others are found. */
START_TEST(threads_share_the_plans_of_a_program)
{
    enum { THREADS = 4 };
    struct runner r[THREADS];
    pthread_t t[THREADS];
    struct ngd_binding *b;
    struct plans p;
    struct bed bed;
    uint64_t passes, kept;

    b = open_eager(&bed);
    plans_begin(&p);
    for (int i = 0; i < THREADS; i++) {
        r[i] = (struct runner){.bed = &bed, .binding = b, .first = 3 * i};
        ck_assert_int_eq(pthread_create(&t[i], NULL, run_sizes, &r[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    passes = row_count(NGD_M_PLANS, "passes") - p.passes;
    kept = row_count(NGD_M_PLANS, "kept") - p.kept;
    ck_assert_uint_eq(passes + kept, 60 * THREADS);
    ck_assert_uint_ge(passes, NGD_PROGRAM_EAGER_PLANS + 3);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/eager_plans", past_the_limit_only_the_first_replay_of_a_key_plans,
          plan_that_was_not_used_for_longest_makes_room, plan_that_is_not_believed_any_more_is_made_again,
          force_recapture_plans_each_time, threads_share_the_plans_of_a_program)
