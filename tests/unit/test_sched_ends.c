/* SPDX-License-Identifier: Apache-2.0 */
/* Tests requests that do not run to their end: cancelled, too late, beyond a limit, or the scheduler stops. */
#include "tests/unit/sched_util.h"

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
    ck_assert(!ngd_request_expire(&expires.req)); /* not yet */
    ngd_clock_set_fake(1501 * NGD_SEC);
    ck_assert(ngd_request_expire(&expires.req));
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
    ngd_clock_set_fake(ngd_now()); /* the clock stands still until all are in their places */
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
    if (ngd_sched_create(&params, &bed.sched, &diag)) /* not started: no worker takes items */
        ck_abort_msg("%s", diag.text);
    queue = &bed.sched->queues[0];
    for (int i = 0; i < 2; i++) {
        ngd_sched_item_init(&item[i], &ops);
        item[i].account = &bed.sched->own_share->accounts[0];
    }
    slot = ngd_queue_claim(queue, &item[0], UINT64_MAX);
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

UNIT_MAIN("scheduler/sched_ends", cancel_of_a_queued_request_answers_it_at_once,
          cancel_of_a_request_behind_another_leaves_the_order_intact,
          cancel_during_a_capture_gives_the_order_to_the_next, deadline_that_has_passed_is_refused_or_answered_in_time,
          what_waits_expires_while_the_device_is_busy, a_bubble_is_time_in_which_a_slot_is_idle_and_something_queued,
          queue_refuses_what_exceeds_its_limit, drained_scheduler_refuses_and_becomes_idle,
          stop_answers_everything_exactly_once)
