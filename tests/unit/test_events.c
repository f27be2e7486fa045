/* SPDX-License-Identifier: Apache-2.0 */
/* Tests events between logical streams: waits, failures, cancellation, names, and that nothing is left behind. */
#include "scheduler/run/session_events.h"
#include "tests/unit/sched_util.h"

static struct ngd_session_event_name name_of(const char *s)
{
    return (struct ngd_session_event_name){s, strlen(s)};
}

struct scene {
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_session_events *events;
    struct gate gate;
    struct call busy; /* keeps the slot */
};

static void scene_open(struct scene *s, ngd_nsec_t inline_limit)
{
    bed_open(&s->bed, 1, inline_limit);
    s->b = bed_binding(&s->bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_session_events_create(&s->events), NGD_OK);
    bed_warm(&s->bed, s->b, 2, 4);
    bed_settle(&s->bed);
    gate_init(&s->gate);
    call_init(&s->busy, s->b, 2);
    s->busy.gate = &s->gate;
    s->busy.req.launch.eager = true; /* never inline, so that the worker is the one at the gate */
    call_submit(&s->bed, &s->busy);
    gate_await(&s->gate, 1);
}

static void scene_go_on(struct scene *s)
{
    gate_open(&s->gate);
    call_wait(&s->busy);
}

static void scene_close(struct scene *s)
{
    bed_settle(&s->bed);
    ngd_session_events_destroy(s->events);
    ngd_binding_unref(s->b);
    bed_close(&s->bed);
}

static void prepare(struct scene *s, struct call *c, const char *wait, const char *record)
{
    call_init(c, s->b, 2);
    c->req.events = s->events;
    if (wait)
        c->req.wait_event = name_of(wait);
    if (record)
        c->req.record_event = name_of(record);
}

static void submit(struct scene *s, struct call *c, const char *wait, const char *record)
{
    prepare(s, c, wait, record);
    call_submit(&s->bed, c);
}

static void expect(struct call *c, ngd_status_t status)
{
    call_wait(c);
    ck_assert_msg(c->status == status, "%s", ngd_status_name(c->status));
}

START_TEST(request_begins_when_the_event_that_it_waits_for_has_come)
{
    struct scene s;
    struct call record, wait, late;

    scene_open(&s, 0);
    submit(&s, &record, NULL, "e");
    submit(&s, &wait, "e", NULL);
    ck_assert_int_eq(atomic_load(&record.req.state), NGD_REQUEST_QUEUED);
    ck_assert_int_eq(atomic_load(&wait.req.state), NGD_REQUEST_WAITING_EVENT);
    scene_go_on(&s);
    expect(&record, NGD_OK);
    expect(&wait, NGD_OK);
    call_check(&wait);
    ck_assert(wait.req.started >= record.req.started);
    submit(&s, &late, "e", NULL); /* it has come already */
    expect(&late, NGD_OK);
    scene_close(&s);
}
END_TEST

START_TEST(wait_for_an_event_that_nobody_has_recorded_is_refused)
{
    struct scene s;
    struct call c;
    struct ngd_diag diag = {0};

    scene_open(&s, 0);
    prepare(&s, &c, "never", NULL);
    ck_assert_int_eq(ngd_sched_submit(s.bed.sched, &c.req, &diag), NGD_ERR_EVENT_UNKNOWN);
    ck_assert_ptr_nonnull(strstr(diag.text, "\"never\" has not been recorded"));
    prepare(&s, &c, "own", "own"); /* waits for an earlier record of its own event, and there is none */
    ck_assert_int_eq(ngd_sched_submit(s.bed.sched, &c.req, &diag), NGD_ERR_EVENT_UNKNOWN);
    scene_go_on(&s);
    scene_close(&s);
}
END_TEST

START_TEST(event_of_a_cancelled_request_fails_those_that_wait_one_after_the_other)
{
    enum { N = 300 };
    struct scene s;
    static struct call c[N];
    char names[N][8];

    scene_open(&s, 0);
    for (int i = 0; i < N; i++) { /* each waits for the one before it */
        snprintf(names[i], sizeof(names[i]), "e%d", i % 200);
        submit(&s, &c[i], i ? names[i - 1] : NULL, names[i]);
    }
    ck_assert(ngd_sched_cancel(s.bed.sched, &c[0].req));
    for (int i = 0; i < N; i++)
        expect(&c[i], i ? NGD_ERR_EVENT_FAILED : NGD_ERR_CANCELLED);
    ck_assert_ptr_nonnull(strstr(c[1].text, "event \"e0\" will not be recorded"));
    ck_assert_ptr_nonnull(strstr(c[1].text, "CANCELLED"));
    scene_go_on(&s);
    scene_close(&s);
}
END_TEST

START_TEST(cancel_and_expiry_take_a_request_from_its_event_and_leave_the_others)
{
    struct scene s;
    struct ngd_order *order;
    struct call record, first, second, behind;

    scene_open(&s, 0);
    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    submit(&s, &record, NULL, "e");
    prepare(&s, &first, "e", NULL);
    first.req.order = order;
    call_submit(&s.bed, &first);
    submit(&s, &second, "e", NULL);
    call_init(&behind, s.b, 2);
    behind.req.order = order;
    call_submit(&s.bed, &behind);
    ck_assert_int_eq(atomic_load(&behind.req.state), NGD_REQUEST_ORDERED);
    ck_assert(ngd_sched_cancel(s.bed.sched, &first.req));
    expect(&first, NGD_ERR_CANCELLED);
    ck_assert_int_eq(atomic_load(&behind.req.state), NGD_REQUEST_QUEUED); /* the order went on */
    second.req.deadline = ngd_now() - 1;
    ck_assert(ngd_request_expire(&second.req));
    expect(&second, NGD_ERR_DEADLINE_EXCEEDED);
    scene_go_on(&s);
    expect(&record, NGD_OK);
    expect(&behind, NGD_OK);
    ngd_order_destroy(order);
    scene_close(&s);
}
END_TEST

/* A wait waits for the record that was the latest when the wait was submitted. */
START_TEST(name_that_is_recorded_again_means_the_later_one)
{
    struct scene s;
    struct call one, two, early, late;

    scene_open(&s, 0);
    submit(&s, &one, NULL, "e");
    submit(&s, &early, "e", NULL);
    submit(&s, &two, NULL, "e");
    submit(&s, &late, "e", NULL);
    ck_assert(ngd_sched_cancel(s.bed.sched, &two.req));
    expect(&late, NGD_ERR_EVENT_FAILED);
    ck_assert_uint_eq(atomic_load(&early.answers), 0);
    scene_go_on(&s);
    expect(&early, NGD_OK);
    expect(&one, NGD_OK);
    scene_close(&s);
}
END_TEST

START_TEST(names_are_checked_and_counted)
{
    struct scene s;
    static struct call c[NGD_SESSION_EVENTS_MAX + 1];
    static char names[NGD_SESSION_EVENTS_MAX + 1][NGD_SESSION_EVENT_NAME_MAX + 2];
    struct ngd_diag diag = {0};

    scene_open(&s, 0);
    prepare(&s, &c[0], NULL, "x");
    c[0].req.record_event = (struct ngd_session_event_name){"a\0b", 3};
    ck_assert_int_eq(ngd_sched_submit(s.bed.sched, &c[0].req, &diag), NGD_ERR_INVALID_ARGUMENT);
    memset(names[0], 'n', NGD_SESSION_EVENT_NAME_MAX + 1);
    prepare(&s, &c[0], NULL, names[0]);
    ck_assert_int_eq(ngd_sched_submit(s.bed.sched, &c[0].req, &diag), NGD_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < NGD_SESSION_EVENTS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "%0*d", NGD_SESSION_EVENT_NAME_MAX, i);
        submit(&s, &c[i], NULL, names[i]);
    }
    prepare(&s, &c[NGD_SESSION_EVENTS_MAX], NULL, "one more");
    ck_assert_int_eq(ngd_sched_submit(s.bed.sched, &c[NGD_SESSION_EVENTS_MAX].req, &diag), NGD_ERR_RESOURCE_EXHAUSTED);
    submit(&s, &c[NGD_SESSION_EVENTS_MAX], names[7], names[7]); /* known ones cost no more */
    scene_go_on(&s);
    for (int i = 0; i <= NGD_SESSION_EVENTS_MAX; i++)
        expect(&c[i], NGD_OK);
    scene_close(&s);
}
END_TEST

START_TEST(events_may_be_destroyed_while_requests_wait_for_them)
{
    struct scene s;
    struct call record, wait;

    scene_open(&s, 0);
    submit(&s, &record, NULL, "e");
    submit(&s, &wait, "e", "f");
    ngd_session_events_destroy(s.events);
    s.events = NULL;
    scene_go_on(&s);
    expect(&record, NGD_OK);
    expect(&wait, NGD_OK);
    scene_close(&s);
}
END_TEST

/* Streams hand over to each other in a ring many times; short runs on the submitting thread are allowed. */
START_TEST(rings_of_streams_keep_their_order)
{
    enum { STREAMS = 4, ROUNDS = 50, N = STREAMS * ROUNDS };
    struct scene s;
    struct ngd_order *orders[STREAMS];
    static struct call c[N];
    _Atomic uint32_t rank = 0;
    char names[STREAMS][8];

    scene_open(&s, 10 * NGD_SEC);
    for (int i = 0; i < STREAMS; i++) {
        ck_assert_int_eq(ngd_order_create(&orders[i]), NGD_OK);
        snprintf(names[i], sizeof(names[i]), "e%d", i);
    }
    for (int i = 0; i < N; i++) {
        prepare(&s, &c[i], i ? names[(i - 1) % STREAMS] : NULL, names[i % STREAMS]);
        c[i].req.order = orders[i % STREAMS];
        c[i].order = &rank;
        call_submit(&s.bed, &c[i]);
        if (i == N / 2)
            gate_open(&s.gate);
    }
    call_wait(&s.busy);
    for (int i = 0; i < N; i++)
        expect(&c[i], NGD_OK);
    for (int i = 1; i < N; i++)
        ck_assert(c[i].req.started >= c[i - 1].req.started);
    for (int i = 0; i < STREAMS; i++)
        ngd_order_destroy(orders[i]);
    scene_close(&s);
}
END_TEST

UNIT_MAIN("scheduler/event", request_begins_when_the_event_that_it_waits_for_has_come,
          wait_for_an_event_that_nobody_has_recorded_is_refused,
          event_of_a_cancelled_request_fails_those_that_wait_one_after_the_other,
          cancel_and_expiry_take_a_request_from_its_event_and_leave_the_others,
          name_that_is_recorded_again_means_the_later_one, names_are_checked_and_counted,
          events_may_be_destroyed_while_requests_wait_for_them, rings_of_streams_keep_their_order)
