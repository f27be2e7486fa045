/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/sched_util.h"
#include <stdatomic.h>

/* ---- running ------------------------------------------------------------------------------------------ */

START_TEST(request_runs_and_its_times_are_told)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_init(&c, b, 5);
    call_run(&bed, &c);
    call_check(&c);
    ck_assert_int_eq(atomic_load(&c.req.state), NGD_REQUEST_DONE);
    ck_assert(c.req.started >= c.req.submitted);
    ck_assert(c.req.launch.device_time > 0);
    ck_assert(!pthread_equal(c.thread, pthread_self()));
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(requests_of_one_order_are_answered_in_their_order)
{
    enum { N = 40 };
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_order *order;
    _Atomic uint32_t rank = 0;
    static struct call c[N];

    bed_open(&bed, 3, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    /* Different keys: some are captured already, some must wait for it. */
    for (int i = 0; i < N; i++) {
        call_init(&c[i], b, 1 + i % 7);
        c[i].req.order = order;
        c[i].order = &rank;
        call_submit(&bed, &c[i]);
    }
    for (int i = 0; i < N; i++) {
        call_wait(&c[i]);
        call_check(&c[i]);
        ck_assert_uint_eq(c[i].rank, (uint32_t)i);
    }
    ngd_order_destroy(order);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(orders_do_not_wait_for_one_another)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_order *slow, *quick;
    struct call first, second, other;
    struct gate gate;

    bed_open(&bed, 2, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_order_create(&slow), NGD_OK);
    ck_assert_int_eq(ngd_order_create(&quick), NGD_OK);
    gate_init(&gate);
    call_init(&first, b, 2);
    first.req.order = slow;
    first.gate = &gate;
    call_submit(&bed, &first);
    gate_await(&gate, 1);
    call_init(&second, b, 2);
    second.req.order = slow;
    call_submit(&bed, &second);
    ck_assert_int_eq(atomic_load(&second.req.state), NGD_REQUEST_ORDERED);
    call_init(&other, b, 2);
    other.req.order = quick;
    call_run(&bed, &other);
    call_check(&other);
    ck_assert_uint_eq(atomic_load(&second.answers), 0);
    gate_open(&gate);
    call_wait(&first);
    call_wait(&second);
    call_check(&second);
    ngd_order_destroy(slow);
    ngd_order_destroy(quick);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(short_replay_of_an_idle_slot_runs_on_the_submitting_thread)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c;

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    /* Until its time is known, the worker runs it. */
    for (int i = 0; i < 3; i++) {
        bed_settle(&bed);
        call_init(&c, b, 2);
        call_run(&bed, &c);
        ck_assert(!c.req.inline_run);
    }
    bed_settle(&bed);
    call_init(&c, b, 2);
    call_submit(&bed, &c);
    ck_assert_uint_eq(atomic_load(&c.answers), 1);
    call_check(&c);
    ck_assert(c.req.inline_run);
    ck_assert(pthread_equal(c.thread, pthread_self()));
    ck_assert_int_eq(bed_counted(&bed, NGD_M_INLINE_RUNS), 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(nothing_runs_inline_while_the_slot_is_used_or_something_waits)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call busy, queued, c;
    struct gate gate;

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 3);
    bed_settle(&bed);
    /* Eager runs are never inline, so that the worker is the one at the gate. */
    gate_init(&gate);
    call_init(&busy, b, 2);
    busy.req.launch.eager = true;
    busy.gate = &gate;
    call_submit(&bed, &busy);
    gate_await(&gate, 1);
    call_init(&queued, b, 2);
    call_submit(&bed, &queued);
    call_init(&c, b, 2);
    call_submit(&bed, &c);
    ck_assert_uint_eq(atomic_load(&queued.answers) + atomic_load(&c.answers), 0);
    ck_assert_int_eq(atomic_load(&c.req.state), NGD_REQUEST_QUEUED);
    gate_open(&gate);
    call_wait(&busy);
    call_wait(&queued);
    call_wait(&c);
    ck_assert(!queued.req.inline_run && !c.req.inline_run);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* A thread that runs inline and stops in done(), with the slot in its hands. */
static void *submit_at_gate(void *arg)
{
    struct call *c = arg;
    struct ngd_sched *sched = c->req.binding->prog->sched;

    ck_assert_int_eq(ngd_sched_submit(sched, &c->req, &c->diag), NGD_OK);
    return NULL;
}

START_TEST(worker_takes_what_was_queued_during_an_inline_run)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call inl, c;
    struct gate gate;
    pthread_t t;

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 3);
    bed_settle(&bed);
    gate_init(&gate);
    call_init(&inl, b, 2);
    inl.gate = &gate;
    ck_assert_int_eq(pthread_create(&t, NULL, submit_at_gate, &inl), 0);
    gate_await(&gate, 1);
    ck_assert(inl.req.inline_run);
    call_init(&c, b, 2);
    call_submit(&bed, &c);
    ck_assert_uint_eq(atomic_load(&c.answers), 0);
    gate_open(&gate);
    call_wait(&c);
    call_check(&c);
    ck_assert(!c.req.inline_run);
    pthread_join(t, NULL);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(replay_path_allocates_nothing)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c;
    uint64_t before;

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 4);
    bed_settle(&bed);
    before = ngd_mem_thread_allocs();
    for (int i = 0; i < 100; i++) {
        call_init(&c, b, 2);
        call_submit(&bed, &c);
        ck_assert(c.req.inline_run);
    }
    ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* done() may submit again, with the slot still in its thread's hands. */
struct chain {
    struct call c;
    struct ngd_sched *sched;
    uint32_t left;
    struct gate over;
};

static void chain_done(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct chain *chain = req->user;
    struct ngd_diag d = {0};

    (void)diag;
    ck_assert_int_eq(status, NGD_OK);
    if (--chain->left == 0) {
        gate_open(&chain->over);
        return;
    }
    call_init(&chain->c, req->binding, 2);
    chain->c.req.done = chain_done;
    chain->c.req.user = chain;
    ck_assert_int_eq(ngd_sched_submit(chain->sched, &chain->c.req, &d), NGD_OK);
}

START_TEST(done_may_submit_the_next_request)
{
    struct bed bed;
    struct ngd_binding *b;
    struct chain chain = {.left = 20000};

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 4);
    chain.sched = bed.sched;
    gate_init(&chain.over);
    call_init(&chain.c, b, 2);
    chain.c.req.done = chain_done;
    chain.c.req.user = &chain;
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &chain.c.req, NULL), NGD_OK);
    gate_pass(&chain.over);
    bed_settle(&bed);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* ---- cancel, deadlines, limits ------------------------------------------------------------------------ */

START_TEST(cancel_of_a_queued_request_answers_it_at_once)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call busy, c, after;
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_occupy(&bed, &busy, b, &gate);
    call_init(&c, b, 2);
    call_submit(&bed, &c);
    call_init(&after, b, 2);
    call_submit(&bed, &after);
    ck_assert(ngd_sched_cancel(bed.sched, &c.req));
    ck_assert_uint_eq(atomic_load(&c.answers), 1);
    ck_assert_int_eq(c.status, NGD_ERR_CANCELLED);
    ck_assert(!ngd_sched_cancel(bed.sched, &c.req));
    ck_assert(!ngd_sched_cancel(bed.sched, &busy.req)); /* it runs */
    gate_open(&gate);
    call_wait(&busy);
    call_check(&busy);
    call_wait(&after);
    call_check(&after);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_REQUESTS_CANCELLED), 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(cancel_of_a_request_behind_another_leaves_the_order_intact)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_order *order;
    struct call c[4];
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    gate_init(&gate);
    for (int i = 0; i < 4; i++) {
        call_init(&c[i], b, 2);
        c[i].req.order = order;
        c[i].gate = i == 0 ? &gate : NULL;
        call_submit(&bed, &c[i]);
    }
    gate_await(&gate, 1);
    ck_assert(ngd_sched_cancel(bed.sched, &c[2].req));
    ck_assert_int_eq(c[2].status, NGD_ERR_CANCELLED);
    gate_open(&gate);
    for (int i = 0; i < 4; i++)
        call_wait(&c[i]);
    call_check(&c[1]);
    call_check(&c[3]);
    ngd_order_destroy(order);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(cancel_during_a_capture_gives_the_order_to_the_next)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_order *order;
    struct call first, next;
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 3, 1);
    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    capture_occupy(&bed, b, &gate);
    call_init(&first, b, 7);
    first.req.order = order;
    call_submit(&bed, &first);
    ck_assert_int_eq(atomic_load(&first.req.state), NGD_REQUEST_WAITING_CAPTURE);
    call_init(&next, b, 3);
    next.req.order = order;
    call_submit(&bed, &next);
    ck_assert_int_eq(atomic_load(&next.req.state), NGD_REQUEST_ORDERED);
    ck_assert(ngd_sched_cancel(bed.sched, &first.req));
    ck_assert_int_eq(first.status, NGD_ERR_CANCELLED);
    call_wait(&next); /* the capture thread is still at the gate */
    call_check(&next);
    gate_open(&gate);
    ngd_order_destroy(order);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(deadline_that_has_passed_is_refused_or_answered_in_time)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call busy, late, expires, fine;
    struct gate gate;

    ngd_clock_set_fake(1000 * NGD_SEC);
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_occupy(&bed, &busy, b, &gate);
    call_init(&late, b, 2);
    late.req.deadline = 1000 * NGD_SEC;
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &late.req, &late.diag), NGD_ERR_DEADLINE_EXCEEDED);
    ck_assert_uint_eq(atomic_load(&late.answers), 0);
    call_init(&late, b, 2);
    late.req.deadline = 1500 * NGD_SEC; /* far enough for the expiry thread, which sleeps by the real clock */
    call_submit(&bed, &late);
    call_init(&expires, b, 2);
    expires.req.deadline = 1500 * NGD_SEC;
    call_submit(&bed, &expires);
    call_init(&fine, b, 2);
    fine.req.deadline = 1600 * NGD_SEC;
    call_submit(&bed, &fine);
    ck_assert(!ngd_sched_expire(bed.sched, &expires.req)); /* not yet */
    ngd_clock_set_fake(1501 * NGD_SEC);
    ck_assert(ngd_sched_expire(bed.sched, &expires.req));
    ck_assert_int_eq(expires.status, NGD_ERR_DEADLINE_EXCEEDED);
    gate_open(&gate);
    call_wait(&late);
    ck_assert_int_eq(late.status, NGD_ERR_DEADLINE_EXCEEDED);
    ck_assert(strstr(late.text, "the deadline passed")); /* found out by the worker, or by the expiry thread */
    ck_assert_int_eq(late.req.started, 0);
    call_wait(&fine);
    call_check(&fine);
    ngd_binding_unref(b);
    bed_close(&bed);
    ngd_clock_set_fake(-1);
}
END_TEST

START_TEST(what_waits_expires_while_the_device_is_busy)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_order *order;
    struct call busy, queued, behind, first, fine;
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    call_occupy(&bed, &busy, b, &gate);
    call_init(&first, b, 2); /* holds the order */
    first.req.order = order;
    call_submit(&bed, &first);
    ngd_clock_set_fake(ngd_now()); /* it stands still until all are in their places, however long that takes */
    call_init(&queued, b, 2);
    queued.req.deadline = ngd_now() + 30 * NGD_MSEC;
    call_submit(&bed, &queued);
    call_init(&behind, b, 2);
    behind.req.order = order;
    behind.req.deadline = ngd_now() + 20 * NGD_MSEC;
    call_submit(&bed, &behind);
    ck_assert_int_eq(atomic_load(&behind.req.state), NGD_REQUEST_ORDERED);
    call_init(&fine, b, 2);
    fine.req.deadline = ngd_now() + 3600 * NGD_SEC;
    call_submit(&bed, &fine);
    ngd_clock_set_fake(-1);
    call_wait(&queued);
    call_wait(&behind);
    ck_assert_int_eq(queued.status, NGD_ERR_DEADLINE_EXCEEDED);
    ck_assert_int_eq(behind.status, NGD_ERR_DEADLINE_EXCEEDED);
    ck_assert(ngd_now() >= queued.req.deadline);
    ck_assert_uint_eq(atomic_load(&first.answers) + atomic_load(&fine.answers), 0); /* the slot is still held */
    gate_open(&gate);
    call_wait(&first);
    call_wait(&fine);
    call_check(&first);
    call_check(&fine);
    call_wait(&busy);
    ngd_order_destroy(order);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

static void never_run(struct ngd_sched_item *item, struct ngd_slot *slot)
{
    (void)item;
    (void)slot;
    ck_abort_msg("no worker was started");
}

START_TEST(a_bubble_is_time_in_which_a_slot_is_idle_and_something_queued)
{
    static const struct ngd_sched_item_ops ops = {.run = never_run};
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct ngd_sched_device_stats stats;
    struct ngd_sched_params params;
    struct ngd_sched_item item[2];
    struct ngd_diag diag = {0};
    struct ngd_queue *queue;
    struct ngd_slot *slot;
    struct bed bed;

    ngd_clock_set_fake(t0);
    bed_params(&bed, &params);
    if (ngd_sched_create(&params, &bed.sched, &diag)) /* not started: nobody takes anything */
        ck_abort_msg("%s", diag.text);
    queue = &bed.sched->queues[0];
    for (int i = 0; i < 2; i++) {
        ngd_sched_item_init(&item[i], &ops);
        item[i].account = &bed.sched->own_share->accounts[0];
    }
    slot = ngd_queue_claim(queue, &item[0]);
    ngd_clock_set_fake(t0 + 1 * NGD_SEC); /* busy, nothing queued */
    ck_assert_int_eq(ngd_queue_push(queue, &item[0], NULL), NGD_OK);
    ngd_clock_set_fake(t0 + 2 * NGD_SEC); /* busy, one queued */
    ngd_sched_device_stats(bed.sched, 0, &stats);
    ck_assert_int_eq(stats.bubble, 0);
    ngd_queue_release(queue, slot);
    ngd_clock_set_fake(t0 + 5 * NGD_SEC); /* idle, one queued: three seconds */
    ck_assert_int_eq(ngd_queue_push(queue, &item[1], NULL), NGD_OK);
    ngd_sched_device_stats(bed.sched, 0, &stats);
    ck_assert_int_eq(stats.bubble, 3 * NGD_SEC);
    ck_assert(ngd_queue_remove(queue, &item[0]));
    ngd_clock_set_fake(t0 + 6 * NGD_SEC); /* idle, the other queued: one more */
    ck_assert(ngd_queue_remove(queue, &item[1]));
    ngd_clock_set_fake(t0 + 9 * NGD_SEC); /* idle, nothing queued */
    ngd_sched_device_stats(bed.sched, 0, &stats);
    ck_assert_int_eq(stats.bubble, 4 * NGD_SEC);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_DEVICE_BUBBLE_SECONDS), 4 * NGD_SEC / NGD_USEC);
    ngd_sched_destroy(bed.sched);
    ngd_device_close(bed.dev);
    ngd_clock_set_fake(-1);
}
END_TEST

START_TEST(queue_refuses_what_exceeds_its_limit)
{
    struct ngd_sched_params params;
    struct ngd_sched_device_stats stats;
    struct bed bed;
    struct ngd_binding *b;
    struct call busy, c[3];
    struct gate gate;

    bed_params(&bed, &params);
    params.queue_limit = 2;
    params.inline_limit = 0;
    bed_start(&bed, &params);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_occupy(&bed, &busy, b, &gate);
    for (int i = 0; i < 2; i++) {
        call_init(&c[i], b, 2);
        call_submit(&bed, &c[i]);
    }
    ngd_sched_device_stats(bed.sched, 0, &stats);
    ck_assert_uint_eq(stats.queue_depth, 2);
    call_init(&c[2], b, 2);
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &c[2].req, &c[2].diag), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert(strstr(c[2].diag.text, "2 requests wait for device host:0"));
    gate_open(&gate);
    for (int i = 0; i < 2; i++)
        call_wait(&c[i]);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_QUEUE_DEPTH), 0);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(drained_scheduler_refuses_and_becomes_idle)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call busy, c;
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_occupy(&bed, &busy, b, &gate);
    ngd_sched_drain(bed.sched);
    ck_assert(!ngd_sched_idle(bed.sched));
    call_init(&c, b, 2);
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_DRAINING);
    gate_open(&gate);
    call_wait(&busy);
    while (!ngd_sched_idle(bed.sched))
        sched_yield();
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(stop_answers_everything_exactly_once)
{
    enum { N = 12 };
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_order *order;
    struct call busy;
    static struct call c[N];
    struct gate slot_gate, capture_gate;
    pthread_t t;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    call_occupy(&bed, &busy, b, &slot_gate);
    capture_occupy(&bed, b, &capture_gate);
    for (int i = 0; i < N; i++) {
        call_init(&c[i], b, i < 4 ? 2 : i < 8 ? 10 + i : 3); /* queued; waiting for captures; in an order, likewise */
        c[i].req.order = i >= 8 ? order : NULL;
        call_submit(&bed, &c[i]);
    }
    ck_assert_int_eq(pthread_create(&t, NULL, (void *(*)(void *))(void *)ngd_sched_stop, bed.sched), 0);
    /* Only once it is under way, so that nothing of the above runs before. */
    for (bool stopping = false; !stopping; sched_yield()) {
        ngd_mutex_lock(&bed.sched->captures.lock);
        stopping = bed.sched->captures.stopping;
        ngd_mutex_unlock(&bed.sched->captures.lock);
    }
    gate_open(&capture_gate);
    for (bool stopping = false; !stopping; sched_yield()) {
        ngd_mutex_lock(&bed.sched->queues[0].lock);
        stopping = bed.sched->queues[0].stopping;
        ngd_mutex_unlock(&bed.sched->queues[0].lock);
    }
    gate_open(&slot_gate);
    pthread_join(t, NULL);
    call_wait(&busy);
    call_check(&busy);
    for (int i = 0; i < N; i++) {
        call_wait(&c[i]);
        ck_assert_int_eq(c[i].status, NGD_ERR_CANCELLED);
    }
    ck_assert(ngd_sched_idle(bed.sched));
    ngd_order_destroy(order);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* ---- captures ----------------------------------------------------------------------------------------- */

struct herd {
    struct bed *bed;
    struct ngd_binding *binding;
    pthread_barrier_t start;
};

static void *herd_submit(void *arg)
{
    struct herd *h = arg;
    struct call c;

    call_init(&c, h->binding, 9);
    pthread_barrier_wait(&h->start);
    call_run(h->bed, &c);
    call_check(&c);
    return NULL;
}

START_TEST(eight_threads_with_the_same_graph_capture_it_once)
{
    struct bed bed;
    struct herd herd = {.bed = &bed};
    struct ngd_program_stats stats;
    pthread_t t[8];

    bed_open(&bed, 2, 0);
    herd.binding = bed_binding(&bed, DOUBLE_TEXT, NULL);
    pthread_barrier_init(&herd.start, NULL, 8);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, herd_submit, &herd), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    ngd_program_stats(herd.binding->prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.replays, 8);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CACHE_HITS) + bed_counted(&bed, NGD_M_CACHE_MISSES), 8);
    ngd_binding_unref(herd.binding);
    bed_close(&bed);
}
END_TEST

START_TEST(requests_that_miss_wait_together_for_one_capture)
{
    uint64_t before = row_count(NGD_M_CACHE_MISSES, "first");
    struct bed bed;
    struct ngd_binding *b;
    struct call c[4];
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    capture_occupy(&bed, b, &gate);
    for (int i = 0; i < 4; i++) {
        call_init(&c[i], b, 5);
        call_submit(&bed, &c[i]);
        ck_assert_int_eq(atomic_load(&c[i].req.state), NGD_REQUEST_WAITING_CAPTURE);
    }
    gate_open(&gate);
    for (int i = 0; i < 4; i++) {
        call_wait(&c[i]);
        call_check(&c[i]);
    }
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ck_assert_uint_eq(row_count(NGD_M_CACHE_MISSES, "first") - before, 4);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(capture_whose_requests_are_all_cancelled_is_not_made)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c, other;
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    capture_occupy(&bed, b, &gate);
    call_init(&c, b, 5);
    call_submit(&bed, &c);
    ck_assert(ngd_sched_cancel(bed.sched, &c.req));
    gate_open(&gate);
    call_init(&other, b, 6);
    call_run(&bed, &other);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(past_the_limit_evict_drops_and_captures_again)
{
    uint64_t before_evicted = row_count(NGD_M_CACHE_MISSES, "evicted");
    uint64_t before_capture_limit = row_count(NGD_M_CACHE_EVICTIONS, "capture_limit");
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct bed bed;
    struct ngd_binding *b;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, b, 3, 2);
    bed_settle(&bed); /* the worker has unpinned it */
    bed_warm(&bed, b, 4, 2);
    bed_settle(&bed);
    bed_warm(&bed, b, 3, 1);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 3);
    ck_assert_uint_eq(stats.cache.evictions, 2);
    ck_assert_uint_eq(stats.cache.entries, 1);
    ck_assert_uint_eq(row_count(NGD_M_CACHE_MISSES, "evicted") - before_evicted, 1);
    ck_assert_uint_eq(row_count(NGD_M_CACHE_EVICTIONS, "capture_limit") - before_capture_limit, 2);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CACHE_ENTRIES), 1);
    ngd_binding_unref(b);
    bed_close(&bed);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CACHE_ENTRIES), 0);
}
END_TEST

START_TEST(past_the_limit_reject_refuses_and_eager_runs_without_a_capture)
{
    uint64_t before = row_count(NGD_M_EAGER_RUNS, "capture_limit");
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct bed bed;
    struct ngd_binding *reject, *eager;
    struct call c;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    options.capture_limit_policy = NGD_GCACHE_REJECT;
    bed_open(&bed, 1, 0);
    reject = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, reject, 3, 1);
    call_init(&c, reject, 4);
    call_run(&bed, &c);
    ck_assert_int_eq(c.status, NGD_ERR_CAPTURE_LIMIT);
    ck_assert(strstr(c.text, "capture_limit is 1"));
    options.capture_limit_policy = NGD_GCACHE_EAGER;
    eager = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, eager, 3, 1);
    bed_warm(&bed, eager, 4, 2);
    ngd_program_stats(eager->prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.replays, 1);
    ck_assert_uint_eq(stats.eager_runs, 2);
    ck_assert_uint_eq(row_count(NGD_M_EAGER_RUNS, "capture_limit") - before, 2);
    ngd_binding_unref(reject);
    ngd_binding_unref(eager);
    bed_close(&bed);
}
END_TEST

START_TEST(eviction_that_finds_everything_in_use_runs_eagerly_instead)
{
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct bed bed;
    struct ngd_binding *b;
    struct call busy, queued, c;
    struct gate gate;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    call_occupy(&bed, &busy, b, &gate);
    call_init(&queued, b, 2); /* pins the only executable */
    call_submit(&bed, &queued);
    call_init(&c, b, 3);
    call_submit(&bed, &c);
    /* It comes to the run queue with a plan of its own while the other still waits there. */
    while (atomic_load(&c.req.state) != NGD_REQUEST_QUEUED)
        sched_yield();
    gate_open(&gate);
    call_wait(&c);
    call_check(&c);
    call_wait(&queued);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.eager_runs, 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(force_eager_never_captures)
{
    uint64_t before = row_count(NGD_M_EAGER_RUNS, "force_eager");
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct bed bed;
    struct ngd_binding *b;

    ngd_graph_options_init(&options);
    options.force_eager = true;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, b, 3, 3);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 0);
    ck_assert_uint_eq(stats.eager_runs, 3);
    ck_assert_uint_eq(row_count(NGD_M_EAGER_RUNS, "force_eager") - before, 3);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_REPLAYS), 0);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(request_that_asks_for_it_runs_the_captured_plan_eagerly)
{
    uint64_t before = row_count(NGD_M_EAGER_RUNS, "requested");
    struct bed bed;
    struct ngd_binding *b;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_init(&c, b, 3);
    c.req.launch.eager = true;
    call_run(&bed, &c);
    call_check(&c);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ck_assert_uint_eq(row_count(NGD_M_EAGER_RUNS, "requested") - before, 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

struct ahead {
    struct gate gate;
    ngd_status_t status;
    struct ngd_capture_info info;
};

static void ahead_done(void *user, ngd_status_t status, const struct ngd_capture_info *info,
                       const struct ngd_diag *diag)
{
    struct ahead *a = user;

    (void)diag;
    a->status = status;
    a->info = *info;
    gate_open(&a->gate);
}

static void ahead_ask(struct bed *bed, struct ahead *a, struct ngd_binding *b, int64_t n, bool dry_run)
{
    memset(a, 0, sizeof(*a));
    gate_init(&a->gate);
    ck_assert_int_eq(ngd_sched_capture(bed->sched, b, &n, 1, NULL, dry_run, ahead_done, a, NULL), NGD_OK);
    gate_pass(&a->gate);
}

static void ahead_run(struct bed *bed, struct ahead *a, struct ngd_binding *b, int64_t n, bool dry_run)
{
    ahead_ask(bed, a, b, n, dry_run);
    ck_assert_int_eq(a->status, NGD_OK);
}

/* The newest event says this. */
static void check_noted(struct bed *bed, ngd_event_reason_t reason, const char *text)
{
    struct ngd_flight_event e;

    ck_assert_uint_eq(ngd_recorder_read(ngd_sched_recorder(bed->sched), 0, NULL, NULL, &e, 1), 1);
    ck_assert_int_eq(e.reason, reason);
    if (!strstr(e.text, text))
        ck_abort_msg("%s", e.text);
}

START_TEST(capture_past_the_limit_is_noted_as_refused)
{
    struct ngd_graph_options options;
    struct ngd_binding *b;
    struct ahead a;
    struct bed bed;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    options.capture_limit_policy = NGD_GCACHE_REJECT;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    ahead_run(&bed, &a, b, 6, false);
    ck_assert_int_eq(a.status, NGD_OK);
    ahead_ask(&bed, &a, b, 7, false);
    ck_assert_int_eq(a.status, NGD_ERR_CAPTURE_LIMIT);
    check_noted(&bed, NGD_EVENT_REFUSED_LIMIT, "CAPTURE_LIMIT: capture: ");
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(capture_ahead_says_what_it_did)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ahead a;
    struct ngd_diag diag = {0};
    int64_t n = 65;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ahead_run(&bed, &a, b, 6, true);
    ck_assert(!a.info.captured);
    ck_assert_uint_gt(a.info.pool_bytes, 0);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 0);
    ahead_run(&bed, &a, b, 6, false);
    ck_assert(a.info.captured);
    ck_assert_uint_eq(a.info.kernels, 1);
    ck_assert(strstr(a.info.key, "N==6"));
    ck_assert(a.info.duration > 0);
    ahead_run(&bed, &a, b, 6, false);
    ck_assert(!a.info.captured);
    ck_assert_int_eq(ngd_sched_capture(bed.sched, b, &n, 1, NULL, false, ahead_done, &a, &diag), NGD_ERR_GUARD_FAILED);
    check_noted(&bed, NGD_EVENT_REFUSED_GUARD, "GUARD_FAILED: capture: ");
    /* What a request had captured is there for others too. */
    bed_warm(&bed, b, 7, 1);
    ahead_run(&bed, &a, b, 7, false);
    ck_assert(!a.info.captured);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* ---- failures ----------------------------------------------------------------------------------------- */

/* Capture threads give way to all others: what they held after an answer, clients would find held for long. */
START_TEST(when_a_request_that_waited_for_a_capture_is_answered_only_its_binding_holds_the_program)
{
    struct bed bed;
    struct ngd_binding *b;
    struct gate gate;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    gate_init(&gate);
    call_init(&c, b, 3);
    c.in.bytes = 8; /* seen when there is a plan, so the capture thread answers */
    c.gate = &gate;
    call_submit(&bed, &c);
    gate_await(&gate, 1);
    ck_assert_uint_eq(atomic_load(&b->prog->refs), 1);
    gate_open(&gate);
    call_wait(&c);
    ck_assert_int_eq(c.status, NGD_ERR_INPUT_SIZE);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(bad_requests_are_refused_with_a_reason)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c;
    ngd_status_t status;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    for (int warm = 0; warm < 2; warm++) {
        /* Sizes can be checked against a plan only: at submission when there is one, after the capture otherwise. */
        call_init(&c, b, 3);
        c.in.bytes = 8;
        status = ngd_sched_submit(bed.sched, &c.req, &c.diag);
        if (status == NGD_OK) {
            call_wait(&c);
            status = c.status;
        }
        ck_assert_int_eq(status, NGD_ERR_INPUT_SIZE);
        call_init(&c, b, 3);
        c.req.n_inputs = 2;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_INPUT_COUNT);
        call_init(&c, b, 3);
        c.req.n_hosts = 1;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_HOST_PARAM);
        call_init(&c, b, 3);
        c.req.n_outputs = 0;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_OUTPUT_UNKNOWN);
        call_init(&c, b, 65);
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_GUARD_FAILED);
        call_init(&c, b, 3);
        c.req.n_symbols = 0;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_INVALID_ARGUMENT);
        call_init(&c, b, 3);
        c.req.launch.inputs = NULL;
        ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_INVALID_ARGUMENT);
        bed_warm(&bed, b, 3, 1);
    }
    ck_assert_int_eq(bed_counted(&bed, NGD_M_GUARD_FAILURES), 2);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_QUEUE_DEPTH), 0);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(index_out_of_range_fails_its_request_and_nothing_else)
{
    uint64_t before = row_count(NGD_M_REPLAY_FAILURES, "INDEX_RANGE");
    static const float w[8] = {0, 1, 10, 11, 20, 21, 30, 31};
    struct bed bed;
    struct ngd_program *prog;
    struct ngd_binding *b;
    struct ngd_buffer *buf;
    struct ngd_program_stats stats;
    int32_t index[3] = {2, 0, 3};
    struct call c;

    bed_open(&bed, 1, 0);
    prog = bed_program(&bed, PICK_TEXT, NULL);
    buf = bed_buffer(&bed, w, sizeof(w), "w");
    b = bed_bind(prog, &buf);
    ngd_buffer_unref(buf);
    for (int i = 0; i < 3; i++) {
        call_init(&c, b, 6);
        c.in = (struct ngd_span){index, sizeof(index)};
        c.req.n_symbols = 0;
        index[0] = i == 1 ? 4 : 2;
        call_run(&bed, &c);
        ck_assert_int_eq(c.status, i == 1 ? NGD_ERR_INDEX_RANGE : NGD_OK);
        if (i != 1)
            ck_assert(c.y[0] == 20 && c.y[1] == 21 && c.y[2] == 0 && c.y[4] == 30);
    }
    ngd_program_stats(prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.replays, 2);
    ck_assert_uint_eq(row_count(NGD_M_REPLAY_FAILURES, "INDEX_RANGE") - before, 1);
    ngd_binding_unref(b);
    ngd_program_unref(prog);
    bed_close(&bed);
}
END_TEST

START_TEST(poisoned_stream_is_reset_and_the_graph_captured_again)
{
    uint64_t before = row_count(NGD_M_CACHE_MISSES, "poisoned");
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_program_stats stats;
    struct ngd_sched_device_stats device;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 3, 2);
    bed_settle(&bed);
    ngd_stream_poison(bed_slot(&bed, 0)->stream, NGD_ERR_DEVICE_FAULT);
    call_init(&c, b, 3);
    call_run(&bed, &c);
    ck_assert_int_eq(ngd_status_scope(c.status), NGD_SCOPE_DEVICE);
    ck_assert(c.text[0]);
    bed_warm(&bed, b, 3, 2);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 2);
    ck_assert_uint_eq(stats.replays, 4);
    ck_assert_uint_eq(row_count(NGD_M_CACHE_MISSES, "poisoned") - before, 1);
    ngd_sched_device_stats(bed.sched, 0, &device);
    ck_assert(device.healthy);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(scheduler_is_not_made_from_nonsense)
{
    struct ngd_sched_params params;
    struct ngd_sched *sched;
    struct ngd_device *dev;
    struct ngd_diag diag;
    struct bed bed;

    bed_params(&bed, &params);
    params.policy = "magic";
    ck_assert_int_eq(ngd_sched_create(&params, &sched, &diag), NGD_ERR_NOT_FOUND);
    ck_assert(strstr(diag.text, "there is: fair, fifo"));
    params.policy = "fifo";
    params.slots = 0;
    ck_assert_int_eq(ngd_sched_create(&params, &sched, &diag), NGD_ERR_INVALID_ARGUMENT);
    params.slots = 1;
    bed_start(&bed, &params);
    ck_assert_int_eq(ngd_sched_find_device(bed.sched, "", &dev, &diag), NGD_OK);
    ck_assert_ptr_eq(dev, bed.dev);
    ck_assert_int_eq(ngd_sched_find_device(bed.sched, "host:0", &dev, &diag), NGD_OK);
    ck_assert_int_eq(ngd_sched_find_device(bed.sched, "host:7", &dev, &diag), NGD_ERR_NOT_FOUND);
    ck_assert(strstr(diag.text, "there is: host:0"));
    bed_close(&bed);
}
END_TEST

START_TEST(submit_before_start_is_refused)
{
    struct ngd_sched_params params;
    struct ngd_diag diag = {0};
    struct bed bed;
    struct ngd_binding *b;
    struct call c;

    bed_params(&bed, &params);
    ck_assert_int_eq(ngd_sched_create(&params, &bed.sched, &diag), NGD_OK);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_init(&c, b, 2);
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_UNAVAILABLE);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* ---- many threads ------------------------------------------------------------------------------------- */

struct mob {
    struct bed *bed;
    struct ngd_binding *binding;
    uint32_t seed;
    uint32_t ok, cancelled;
};

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

#define MOB_ROUND 16

static void *mob_main(void *arg)
{
    struct mob *m = arg;
    struct ngd_order *order;
    struct call *c = ngd_calloc(MOB_ROUND, sizeof(*c));
    _Atomic uint32_t rank;

    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    for (int round = 0; round < 40; round++) {
        uint32_t last = 0;

        atomic_store(&rank, 0);
        for (int i = 0; i < MOB_ROUND; i++) {
            call_init(&c[i], m->binding, 1 + draw(&m->seed) % 6);
            c[i].req.order = i % 2 ? order : NULL;
            c[i].order = i % 2 ? &rank : NULL;
            call_submit(m->bed, &c[i]);
            if (draw(&m->seed) % 4 == 0)
                ngd_sched_cancel(m->bed->sched, &c[draw(&m->seed) % (uint32_t)(i + 1)].req);
        }
        for (int i = 0; i < MOB_ROUND; i++) {
            call_wait(&c[i]);
            if (c[i].status == NGD_ERR_CANCELLED) {
                m->cancelled++;
                continue;
            }
            call_check(&c[i]);
            m->ok++;
            if (i % 2) {
                ck_assert(c[i].rank >= last);
                last = c[i].rank;
            }
        }
    }
    ngd_order_destroy(order);
    ngd_free(c);
    return NULL;
}

START_TEST(many_threads_get_every_answer_once_and_in_order)
{
    struct ngd_graph_options options;
    struct ngd_sched_params params;
    struct bed bed;
    struct mob mobs[8];
    pthread_t t[8];
    uint32_t total = 0;

    bed_params(&bed, &params);
    params.slots = 2;
    params.capture_threads = 2;
    params.inline_limit = 10 * NGD_SEC;
    bed_start(&bed, &params);
    ngd_graph_options_init(&options);
    options.capture_limit = 4; /* of six keys: evictions all the time, and eager runs when all four are in use */
    for (int i = 0; i < 8; i++) {
        options.capture_limit_policy = i % 2 ? NGD_GCACHE_EAGER : NGD_GCACHE_EVICT;
        mobs[i] = (struct mob){.bed = &bed, .seed = (uint32_t)i + 1};
        mobs[i].binding = bed_binding(&bed, DOUBLE_TEXT, &options);
        ck_assert_int_eq(pthread_create(&t[i], NULL, mob_main, &mobs[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], NULL);
        total += mobs[i].ok + mobs[i].cancelled;
        ck_assert_uint_gt(mobs[i].ok, 0);
        ngd_binding_unref(mobs[i].binding);
    }
    ck_assert_uint_eq(total, 8 * 40 * MOB_ROUND);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_QUEUE_DEPTH), 0);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/sched", request_runs_and_its_times_are_told, requests_of_one_order_are_answered_in_their_order,
          orders_do_not_wait_for_one_another, short_replay_of_an_idle_slot_runs_on_the_submitting_thread,
          nothing_runs_inline_while_the_slot_is_used_or_something_waits,
          worker_takes_what_was_queued_during_an_inline_run, replay_path_allocates_nothing,
          done_may_submit_the_next_request, cancel_of_a_queued_request_answers_it_at_once,
          cancel_of_a_request_behind_another_leaves_the_order_intact,
          cancel_during_a_capture_gives_the_order_to_the_next, deadline_that_has_passed_is_refused_or_answered_in_time,
          what_waits_expires_while_the_device_is_busy, a_bubble_is_time_in_which_a_slot_is_idle_and_something_queued,
          queue_refuses_what_exceeds_its_limit, drained_scheduler_refuses_and_becomes_idle,
          stop_answers_everything_exactly_once, eight_threads_with_the_same_graph_capture_it_once,
          requests_that_miss_wait_together_for_one_capture, capture_whose_requests_are_all_cancelled_is_not_made,
          past_the_limit_evict_drops_and_captures_again, past_the_limit_reject_refuses_and_eager_runs_without_a_capture,
          eviction_that_finds_everything_in_use_runs_eagerly_instead, force_eager_never_captures,
          request_that_asks_for_it_runs_the_captured_plan_eagerly, capture_ahead_says_what_it_did,
          capture_past_the_limit_is_noted_as_refused,
          when_a_request_that_waited_for_a_capture_is_answered_only_its_binding_holds_the_program,
          bad_requests_are_refused_with_a_reason, index_out_of_range_fails_its_request_and_nothing_else,
          poisoned_stream_is_reset_and_the_graph_captured_again, scheduler_is_not_made_from_nonsense,
          submit_before_start_is_refused, many_threads_get_every_answer_once_and_in_order)
