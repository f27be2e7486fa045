/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how long a free slot waits for replays that may be merged, and the deadlines of merged replays. */
#include "tests/unit/merge_util.h"

/* ---- lingering ---------------------------------------------------------------------------------------- */

/* Runs three requests at once, so that three are expected again. Only the test moves the clock. */
static void meet(struct stage *s, struct ngd_binding *b)
{
    struct call c[3];

    warm_buckets(s, b);
    hold(s);
    for (int i = 0; i < 3; i++)
        submit_rows(s, &c[i], b, 1);
    let_go(s);
    check_each(c, 3);
    bed_settle(&s->bed);
    set_cost(b, 1, 100 * NGD_SEC);
}

/* Waits until the worker lingers. */
static void await_linger(struct stage *s)
{
    struct ngd_queue *queue = &s->bed.sched->queues[0];
    bool lingers = false;

    while (!lingers) {
        ngd_mutex_lock(&queue->lock);
        lingers = queue->lineup.lingers_until != 0 && queue->slots[0].sleeping;
        ngd_mutex_unlock(&queue->lock);
        if (!lingers)
            sched_yield();
    }
}

/* Opens a stage whose clock stands still, where a slot waits up to 20 s for others. close_held() ends it. */
static struct ngd_binding *open_waiting(struct stage *s, ngd_nsec_t now)
{
    ngd_clock_set_fake(now);
    stage_open(s, 20 * NGD_SEC);
    return bed_binding(&s->bed, ROWS_TEXT, NULL);
}

START_TEST(a_free_slot_waits_for_as_many_as_there_were_and_no_longer)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct call c[3];
    struct stage s;
    struct ngd_binding *b = open_waiting(&s, t0);

    meet(&s, b);
    submit_rows(&s, &c[0], b, 1);
    await_linger(&s);
    submit_rows(&s, &c[1], b, 1);
    await_linger(&s);
    ck_assert_uint_eq(atomic_load(&c[0].answers) + atomic_load(&c[1].answers), 0);
    submit_rows(&s, &c[2], b, 1);
    check_together(c, 3, 3);
    close_held(&s, b);
}
END_TEST

START_TEST(nobody_waits_for_more_than_can_run_together)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    const int64_t one = 1;
    struct ngd_gcache_entry *entry;
    struct ngd_binding *b;
    struct ngd_key key;
    struct call c[6];
    struct stage s;

    b = open_waiting(&s, t0);
    warm_buckets(&s, b);
    /* Makes it look as if rows of the largest bucket were computed in another way. */
    ck_assert_int_eq(ngd_program_key(b->prog, &one, 1, &key, NULL), NGD_OK);
    entry = ngd_program_lookup(b->prog, &key, NULL);
    ck_assert_ptr_nonnull(entry);
    ngd_entry_executable(entry)->rows_limit = 31;
    hold(&s);
    for (int i = 0; i < 6; i++)
        submit_rows(&s, &c[i], b, 1);
    let_go(&s);
    check_together(c, 4, 4);
    check_together(&c[4], 2, 2);
    bed_settle(&s.bed);
    set_cost(b, 1, 100 * NGD_SEC);
    /* Makes it look as if six were under way at once again; but at most four can run together. */
    ngd_mutex_lock(&s.bed.sched->queues[0].lock);
    b->merge->merge.linger.peak = 6;
    ngd_mutex_unlock(&s.bed.sched->queues[0].lock);
    for (int i = 0; i < 4; i++)
        submit_rows(&s, &c[i], b, 1);
    check_together(c, 4, 4);
    ngd_gcache_put(entry);
    close_held(&s, b);
}
END_TEST

START_TEST(who_waits_for_others_makes_way_for_something_else)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct call c, other;
    struct stage s;
    struct ngd_binding *b = open_waiting(&s, t0);

    meet(&s, b);
    submit_rows(&s, &c, b, 1);
    await_linger(&s);
    /* A request of another graph is queued, so the slot does not wait any more, and all requests run. */
    call_init(&other, s.other, 2);
    call_run(&s.bed, &other);
    call_check(&other);
    ngd_clock_set_fake(t0 + 100 * NGD_SEC); /* if the other one was taken first, this one has waited on */
    bed_warm(&s.bed, s.other, 2, 1);
    check_each(&c, 1);
    close_held(&s, b);
}
END_TEST

START_TEST(who_is_cancelled_while_a_slot_waits_for_others_leaves)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct call c[2];
    struct stage s;
    struct ngd_binding *b = open_waiting(&s, t0);

    meet(&s, b);
    submit_rows(&s, &c[0], b, 1);
    await_linger(&s);
    ck_assert(ngd_sched_cancel(s.bed.sched, &c[0].req));
    ck_assert_int_eq(c[0].status, NGD_ERR_CANCELLED);
    /* The next one waits anew, until time is over or the scheduler stops. */
    submit_rows(&s, &c[1], b, 1);
    ngd_sched_stop(s.bed.sched);
    call_wait(&c[1]);
    ck_assert_int_eq(c[1].status, NGD_ERR_CANCELLED);
    ngd_binding_unref(b);
    ngd_binding_unref(s.other);
    ngd_sched_destroy(s.bed.sched);
    ngd_device_close(s.bed.dev);
    ngd_clock_set_fake(-1);
}
END_TEST

START_TEST(nobody_waits_past_what_its_deadline_allows)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct call c;
    struct stage s;
    struct ngd_binding *b = open_waiting(&s, t0);

    meet(&s, b);
    call_init(&c, b, 1);
    c.req.deadline = t0 + 150 * NGD_SEC; /* one replay's time, and not two */
    call_run(&s.bed, &c);                /* the clock stands still, so it has not waited */
    call_check(&c);
    close_held(&s, b);
}
END_TEST

/* ---- deadlines ---------------------------------------------------------------------------------------- */

/* Sets the estimated time of a replay of n rows, and so of merged replays in its bucket. */
static void teach(struct ngd_binding *b, int64_t n, ngd_nsec_t cost)
{
    struct ngd_gcache_entry *entry;
    struct ngd_key key;
    struct call like;

    set_cost(b, n, cost);
    call_init(&like, b, n);
    ck_assert_int_eq(ngd_program_key(b->prog, &n, 1, &key, NULL), NGD_OK);
    entry = ngd_program_lookup(b->prog, &key, NULL);
    ngd_merge_prog_learn(b->merge, &like.req, ngd_entry_executable(entry));
    ngd_gcache_put(entry);
}

static ngd_status_t try_by(struct stage *s, struct call *c, struct ngd_binding *b, int64_t rows, ngd_nsec_t deadline)
{
    call_init(c, b, rows);
    c->req.deadline = deadline;
    return ngd_sched_submit(s->bed.sched, &c->req, &c->diag);
}

/* One after another, four would take 40 s. */
START_TEST(who_makes_its_deadline_by_joining_is_taken_in)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct call c[4], tight, wide;
    struct ngd_binding *b;
    struct stage s;

    b = open_held(&s, t0);
    teach(b, 1, 10 * NGD_SEC);
    teach(b, 4, 12 * NGD_SEC);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(try_by(&s, &c[i], b, 1, t0 + (15 + i) * NGD_SEC), NGD_OK);
    /* Together with the others it would take 12 s and be late. If it ran first, alone, the others would be late. */
    ck_assert_int_eq(try_by(&s, &tight, b, 1, t0 + 11 * NGD_SEC), NGD_ERR_DEADLINE_EXCEEDED);
    /* There is room for one row; the time of a larger bucket is not known. */
    ck_assert_int_eq(try_by(&s, &wide, b, 2, t0 + 20 * NGD_SEC), NGD_ERR_DEADLINE_EXCEEDED);
    ck_assert_int_eq(try_by(&s, &c[3], b, 1, t0 + 12 * NGD_SEC), NGD_OK);
    let_go(&s);
    check_together(c, 4, 4);
    close_held(&s, b);
}
END_TEST

/* Alone each of the first two takes 10 s, together they take 40 s. */
START_TEST(who_would_be_late_by_what_others_run_as_is_refused)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct call c[2], behind, before;
    struct ngd_binding *b;
    struct stage s;

    b = open_held(&s, t0);
    teach(b, 1, 10 * NGD_SEC);
    teach(b, 4, 40 * NGD_SEC);
    set_cost(s.other, 2, 15 * NGD_SEC);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(try_by(&s, &c[i], b, 1, t0 + 50 * NGD_SEC), NGD_OK);
    ck_assert_int_eq(try_by(&s, &behind, s.other, 2, t0 + 51 * NGD_SEC), NGD_ERR_DEADLINE_EXCEEDED);
    ck_assert_int_eq(try_by(&s, &before, s.other, 2, t0 + 20 * NGD_SEC), NGD_ERR_DEADLINE_EXCEEDED);
    ck_assert_int_eq(try_by(&s, &behind, s.other, 2, t0 + 55 * NGD_SEC), NGD_OK);
    let_go(&s);
    check_together(c, 2, 2);
    check_together(&behind, 1, 1);
    close_held(&s, b);
}
END_TEST

/* Together they would take 40 s, and the first has 15. */
START_TEST(who_would_be_late_together_runs_alone)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct ngd_binding *b;
    struct call c[2];
    struct stage s;

    b = open_held(&s, t0);
    teach(b, 1, 10 * NGD_SEC);
    teach(b, 4, 40 * NGD_SEC);
    ck_assert_int_eq(try_by(&s, &c[0], b, 1, t0 + 15 * NGD_SEC), NGD_OK);
    ck_assert_int_eq(try_by(&s, &c[1], b, 1, t0 + 25 * NGD_SEC), NGD_OK);
    let_go(&s);
    check_together(c, 2, 1);
    close_held(&s, b);
}
END_TEST

UNIT_MAIN("scheduler/merge_waits", a_free_slot_waits_for_as_many_as_there_were_and_no_longer,
          nobody_waits_for_more_than_can_run_together, who_waits_for_others_makes_way_for_something_else,
          who_is_cancelled_while_a_slot_waits_for_others_leaves, nobody_waits_past_what_its_deadline_allows,
          who_makes_its_deadline_by_joining_is_taken_in, who_would_be_late_by_what_others_run_as_is_refused,
          who_would_be_late_together_runs_alone)
