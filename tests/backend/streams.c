/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events: what is asynchronous, and in which order things happen. No test waits for time to pass. A stream
 * is held by a callback at a gate, and to check that something has not happened, a test first lets another stream get
 * through.
 */
#include "tests/backend/conform.h"

static struct ngd_stream *new_stream(struct conform *c, const char *name)
{
    struct ngd_stream *stream = NULL;

    CONFORM_OK(ngd_stream_create(c->b.dev, name, &stream, &diag_));
    return stream;
}

static struct ngd_event *new_event(struct conform *c)
{
    struct ngd_event *event = NULL;

    CONFORM_OK(ngd_event_create(c->b.dev, &event));
    return event;
}

/* A callback that records when it ran. */
struct mark {
    _Atomic uint32_t *clock;
    _Atomic uint32_t at; /* 0: not yet */
};

static void set_mark(void *arg)
{
    struct mark *m = arg;

    atomic_store(&m->at, atomic_fetch_add(m->clock, 1) + 1);
}

static void queue_mark(struct ngd_stream *stream, struct mark *m, _Atomic uint32_t *clock)
{
    m->clock = clock;
    atomic_store(&m->at, 0);
    CONFORM_OK(ngd_stream_callback(stream, set_mark, m));
}

/* Gives the device time to do something else: callbacks on another stream run and complete. */
static void let_others_run(struct conform *c)
{
    struct ngd_stream *stream = new_stream(c, "bystander");
    _Atomic uint32_t clock = 0;
    struct mark m;

    for (int i = 0; i < 3; i++) {
        queue_mark(stream, &m, &clock);
        CONFORM_OK(ngd_stream_sync(stream));
        ck_assert_uint_ne(atomic_load(&m.at), 0);
    }
    ngd_stream_destroy(stream);
}

START_TEST(streams_past_the_limit_are_refused_and_come_back_when_destroyed)
{
    struct conform c;
    struct ngd_stream **streams;
    struct ngd_diag diag = {0};
    uint32_t max, n = 0;
    ngd_status_t status = NGD_OK;

    conform_open(&c, _i);
    max = ngd_device_info(c.b.dev)->streams_max;
    streams = calloc(max + 1, sizeof(*streams));
    while (n <= max && !(status = ngd_stream_create(c.b.dev, "one of many", &streams[n], &diag)))
        n++;
    ck_assert_int_eq(status, NGD_ERR_NO_STREAMS);
    conform_says(diag.text, ngd_device_info(c.b.dev)->name);
    ck_assert_uint_eq(n, max - 1); /* the fixture has one stream already */
    ck_assert_int_eq(ngd_stream_create(c.b.dev, "one more", &streams[n], NULL), NGD_ERR_NO_STREAMS);
    if (n) {
        ngd_stream_destroy(streams[--n]);
        CONFORM_OK(ngd_stream_create(c.b.dev, "in its place", &streams[n], &diag_));
        n++;
    }
    while (n)
        ngd_stream_destroy(streams[--n]);
    ngd_stream_destroy(NULL);
    free(streams);
    conform_close(&c);
}
END_TEST

START_TEST(launch_returns_while_its_stream_is_held_and_completes_later)
{
    struct conform c;
    struct conform_gate gate;
    struct conform_double d;
    struct ngd_event *event;

    conform_open(&c, _i);
    conform_double_open(&d, &c, 3);
    event = new_event(&c);
    conform_gate_close_on(&gate, c.b.stream);
    CONFORM_OK(ngd_stream_launch(c.b.stream, d.r.inst, &d.io.launch));
    CONFORM_OK(ngd_event_record(event, c.b.stream));
    let_others_run(&c);
    ck_assert(!ngd_event_query(event));
    ck_assert_float_eq(d.y[0], 0);
    conform_gate_open(&gate);
    CONFORM_OK(ngd_event_sync(event));
    ck_assert(ngd_event_query(event));
    conform_double_check(&d);
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    ngd_event_destroy(event);
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

#define N_GROUPS  8
#define N_ORDERED (N_GROUPS * 38)

struct ordered {
    struct mark mark;
    struct conform_double *d;
    bool was_done;
};

static void look_and_mark(void *arg)
{
    struct ordered *o = arg;

    o->was_done = o->d->io.launch.status == NGD_OK && o->d->y[0] == 2 * o->d->x[0];
    set_mark(&o->mark);
}

START_TEST(callbacks_and_launches_run_in_the_order_in_which_they_were_queued)
{
    static struct ordered o[N_ORDERED];
    static struct conform_double d[N_GROUPS];
    struct conform c;
    struct conform_gate gate;
    _Atomic uint32_t clock = 0;

    conform_open(&c, _i);
    for (uint32_t i = 0; i < N_GROUPS; i++)
        conform_double_open(&d[i], &c, (float)i + 1);
    conform_gate_close_on(&gate, c.b.stream);
    for (uint32_t i = 0; i < N_ORDERED; i++) {
        o[i] = (struct ordered){.mark = {.clock = &clock}, .d = &d[i * N_GROUPS / N_ORDERED]};
        if (i % (N_ORDERED / N_GROUPS) == 0)
            CONFORM_OK(ngd_stream_launch(c.b.stream, o[i].d->r.inst, &o[i].d->io.launch));
        CONFORM_OK(ngd_stream_callback(c.b.stream, look_and_mark, &o[i]));
    }
    ck_assert_uint_eq(atomic_load(&clock), 0);
    conform_gate_open(&gate);
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    for (uint32_t i = 0; i < N_ORDERED; i++) {
        ck_assert_uint_eq(atomic_load(&o[i].mark.at), i + 1);
        ck_assert_msg(o[i].was_done, "callback %u ran before its launch was complete", i);
    }
    for (uint32_t i = 0; i < N_GROUPS; i++)
        conform_double_close(&d[i]);
    conform_close(&c);
}
END_TEST

START_TEST(run_waits_its_turn_on_a_busy_stream)
{
    struct conform c;
    struct conform_double first, second;

    conform_open(&c, _i);
    conform_double_open(&first, &c, 1);
    conform_double_open(&second, &c, 2);
    for (int i = 0; i < 50; i++) {
        first.io.launch.status = second.io.launch.status = NGD_ERR_INTERNAL;
        CONFORM_OK(ngd_stream_launch(c.b.stream, first.r.inst, &first.io.launch));
        CONFORM_OK(ngd_stream_run(c.b.stream, second.r.inst, &second.io.launch));
        conform_double_check(&first); /* it was queued first, so it has run */
        conform_double_check(&second);
    }
    conform_double_close(&first);
    conform_double_close(&second);
    conform_close(&c);
}
END_TEST

START_TEST(stream_destroyed_finishes_what_is_queued)
{
    struct conform c;
    struct conform_double d;
    struct conform_gate gate;
    struct ngd_stream *stream;
    struct mark m;
    _Atomic uint32_t clock = 0;

    conform_open(&c, _i);
    conform_double_open(&d, &c, 5);
    stream = new_stream(&c, "short-lived");
    conform_gate_close_on(&gate, stream);
    CONFORM_OK(ngd_stream_launch(stream, d.r.inst, &d.io.launch));
    queue_mark(stream, &m, &clock);
    conform_gate_open(&gate);
    ngd_stream_destroy(stream);
    ck_assert_uint_eq(atomic_load(&m.at), 1);
    conform_double_check(&d);
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

/* ---- events ---- */

START_TEST(event_that_was_never_recorded_is_complete)
{
    struct conform c;
    struct ngd_event *event;

    conform_open(&c, _i);
    event = new_event(&c);
    ck_assert(ngd_event_query(event));
    CONFORM_OK(ngd_event_sync(event));
    CONFORM_OK(ngd_stream_wait_event(c.b.stream, event));
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    ngd_event_destroy(event);
    ngd_event_destroy(NULL);
    conform_close(&c);
}
END_TEST

START_TEST(event_recorded_on_an_idle_stream_completes)
{
    struct conform c;
    struct ngd_event *event;

    conform_open(&c, _i);
    event = new_event(&c);
    for (int i = 0; i < 100; i++) {
        CONFORM_OK(ngd_event_record(event, c.b.stream));
        CONFORM_OK(ngd_event_sync(event));
        ck_assert(ngd_event_query(event));
    }
    ngd_event_destroy(event);
    conform_close(&c);
}
END_TEST

START_TEST(stream_that_waits_for_an_event_stands_still_and_its_caller_does_not)
{
    struct conform c;
    struct conform_gate gate;
    struct ngd_stream *second;
    struct ngd_event *event;
    struct mark before, after;
    _Atomic uint32_t clock = 0;

    conform_open(&c, _i);
    second = new_stream(&c, "second");
    event = new_event(&c);
    conform_gate_close_on(&gate, c.b.stream);
    queue_mark(c.b.stream, &before, &clock);
    CONFORM_OK(ngd_event_record(event, c.b.stream));
    CONFORM_OK(ngd_stream_wait_event(second, event));
    queue_mark(second, &after, &clock);
    let_others_run(&c);
    ck_assert_uint_eq(atomic_load(&after.at), 0);
    conform_gate_open(&gate);
    CONFORM_OK(ngd_stream_sync(second));
    ck_assert_uint_eq(atomic_load(&before.at), 1);
    ck_assert_uint_eq(atomic_load(&after.at), 2);
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    ngd_event_destroy(event);
    ngd_stream_destroy(second);
    conform_close(&c);
}
END_TEST

/* As in CUDA and ACL, a wait is for the record that was the newest when the wait was queued. */
START_TEST(wait_is_not_prolonged_by_a_later_record)
{
    struct conform c;
    struct conform_gate first, later;
    struct ngd_stream *second;
    struct ngd_event *event;
    struct mark m;
    _Atomic uint32_t clock = 0;

    conform_open(&c, _i);
    second = new_stream(&c, "second");
    event = new_event(&c);
    conform_gate_close_on(&first, c.b.stream);
    CONFORM_OK(ngd_event_record(event, c.b.stream));
    CONFORM_OK(ngd_stream_wait_event(second, event));
    queue_mark(second, &m, &clock);
    conform_gate_queue(&later, c.b.stream);
    CONFORM_OK(ngd_event_record(event, c.b.stream));
    conform_gate_open(&first);
    conform_gate_await(&later);
    CONFORM_OK(ngd_stream_sync(second)); /* ends although the newest record cannot complete yet */
    ck_assert_uint_eq(atomic_load(&m.at), 1);
    ck_assert(!ngd_event_query(event));
    conform_gate_open(&later);
    CONFORM_OK(ngd_event_sync(event));
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    ngd_event_destroy(event);
    ngd_stream_destroy(second);
    conform_close(&c);
}
END_TEST

START_TEST(wait_is_not_cut_short_by_a_later_record_on_another_stream)
{
    struct conform c;
    struct conform_gate gate;
    struct ngd_stream *second, *third;
    struct ngd_event *event;
    struct mark m;
    _Atomic uint32_t clock = 0;

    conform_open(&c, _i);
    second = new_stream(&c, "second");
    third = new_stream(&c, "third");
    event = new_event(&c);
    conform_gate_close_on(&gate, c.b.stream);
    CONFORM_OK(ngd_event_record(event, c.b.stream));
    CONFORM_OK(ngd_stream_wait_event(second, event));
    queue_mark(second, &m, &clock);
    CONFORM_OK(ngd_event_record(event, third)); /* this stream is idle, so the record completes at once */
    CONFORM_OK(ngd_event_sync(event));
    ck_assert(ngd_event_query(event));
    let_others_run(&c);
    ck_assert_uint_eq(atomic_load(&m.at), 0); /* the wait is for the first record, which has not completed */
    conform_gate_open(&gate);
    CONFORM_OK(ngd_stream_sync(second));
    ck_assert_uint_eq(atomic_load(&m.at), 1);
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    ngd_event_destroy(event);
    ngd_stream_destroy(second);
    ngd_stream_destroy(third);
    conform_close(&c);
}
END_TEST

#define N_CHAIN 6

START_TEST(streams_in_a_chain_of_events_run_one_after_the_other)
{
    struct conform c;
    struct conform_gate gate;
    struct ngd_stream *streams[N_CHAIN];
    struct ngd_event *events[N_CHAIN];
    struct mark marks[N_CHAIN];
    _Atomic uint32_t clock = 0;
    uint32_t n;

    conform_open(&c, _i);
    n = ngd_device_info(c.b.dev)->streams_max - 1;
    n = n < N_CHAIN ? n : N_CHAIN;
    ck_assert_uint_ge(n, 1);
    conform_gate_close_on(&gate, c.b.stream);
    for (uint32_t i = 0; i < n; i++) {
        streams[i] = new_stream(&c, "link");
        events[i] = new_event(&c);
    }
    for (uint32_t i = 0; i < n; i++) {
        CONFORM_OK(ngd_event_record(events[i], i ? streams[i - 1] : c.b.stream));
        CONFORM_OK(ngd_stream_wait_event(streams[i], events[i]));
        queue_mark(streams[i], &marks[i], &clock);
    }
    conform_gate_open(&gate);
    CONFORM_OK(ngd_stream_sync(streams[n - 1]));
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(atomic_load(&marks[i].at), i + 1);
    for (uint32_t i = 0; i < n; i++) {
        ngd_stream_destroy(streams[i]);
        ngd_event_destroy(events[i]);
    }
    conform_close(&c);
}
END_TEST

static void *sync_event(void *arg)
{
    return ngd_event_sync(arg) == NGD_OK && ngd_event_query(arg) ? arg : NULL;
}

START_TEST(event_is_waited_for_by_several_threads)
{
    struct conform c;
    struct conform_gate gate;
    struct ngd_event *event;
    pthread_t threads[4];

    conform_open(&c, _i);
    event = new_event(&c);
    for (int round = 0; round < 20; round++) {
        conform_gate_close_on(&gate, c.b.stream);
        CONFORM_OK(ngd_event_record(event, c.b.stream));
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(ngd_thread_start(&threads[i], "waiter", sync_event, event), 0);
        ck_assert(!ngd_event_query(event));
        conform_gate_open(&gate);
        for (int i = 0; i < 4; i++) {
            void *ok = NULL;

            pthread_join(threads[i], &ok);
            ck_assert_ptr_eq(ok, event);
        }
        CONFORM_OK(ngd_stream_sync(c.b.stream));
    }
    ngd_event_destroy(event);
    conform_close(&c);
}
END_TEST

/* One of two streams with a pool each that run the same executable at the same time. */
struct runner {
    struct conform c;
    struct conform_double d;
    struct ngd_stream *stream;
    uint32_t wrong;
};

static void *run_many(void *arg)
{
    struct runner *r = arg;

    for (int i = 0; i < 200; i++) {
        memset(r->d.y, 0, sizeof(r->d.y));
        r->d.x[0] = (float)i;
        if (ngd_stream_run(r->stream, r->d.r.inst, &r->d.io.launch) || r->d.y[0] != 2 * (float)i)
            r->wrong++;
    }
    return NULL;
}

START_TEST(streams_of_one_device_run_at_the_same_time_without_harm)
{
    static struct runner r[3];
    struct conform c;
    pthread_t threads[3];

    conform_open(&c, _i);
    for (uint32_t i = 0; i < 3; i++) {
        memset(&r[i], 0, sizeof(r[i]));
        r[i].c = c;
        r[i].c.b.pool = NULL;
        CONFORM_OK(ngd_pool_create(c.b.dev, "own", &r[i].c.b.pool));
        r[i].stream = new_stream(&c, "own");
        conform_double_open(&r[i].d, &r[i].c, 1);
    }
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(ngd_thread_start(&threads[i], "runner", run_many, &r[i]), 0);
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(r[i].wrong, 0);
        conform_double_close(&r[i].d);
        ngd_stream_destroy(r[i].stream);
        ngd_pool_destroy(r[i].c.b.pool);
    }
    conform_close(&c);
}
END_TEST

TCase *conform_streams(void)
{
    TCase *tcase = tcase_create("streams");

    CONFORM_ADD(tcase, streams_past_the_limit_are_refused_and_come_back_when_destroyed,
                launch_returns_while_its_stream_is_held_and_completes_later,
                callbacks_and_launches_run_in_the_order_in_which_they_were_queued, run_waits_its_turn_on_a_busy_stream,
                stream_destroyed_finishes_what_is_queued, event_that_was_never_recorded_is_complete,
                event_recorded_on_an_idle_stream_completes,
                stream_that_waits_for_an_event_stands_still_and_its_caller_does_not,
                wait_is_not_prolonged_by_a_later_record, wait_is_not_cut_short_by_a_later_record_on_another_stream,
                streams_in_a_chain_of_events_run_one_after_the_other, event_is_waited_for_by_several_threads,
                streams_of_one_device_run_at_the_same_time_without_harm);
    return tcase;
}
