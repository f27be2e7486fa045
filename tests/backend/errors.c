/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: which of them concern only their launch, which of them stick to the stream, and what a reset gives back. */
#include "tests/backend/conform.h"

static void count_call(void *arg)
{
    atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

/* Returns false and prints the reason when the backend cannot be made to fail like that. */
static bool arm(const struct conform *c, enum conform_fault fault, const char *what)
{
    const char *why = c->backend->arm ? c->backend->arm(fault) : "it has no fault injector";

    if (why)
        conform_skip(c->backend, what, why);
    return !why;
}

/* ---- errors in a request's data ---- */

struct pick {
    struct ready r;
    int32_t i[3];
    float y[6];
    struct conform_io io;
};

static void pick_open(struct pick *p, struct conform *c)
{
    const float w[8] = {0, 1, 10, 11, 20, 21, 30, 31};

    memset(p, 0, sizeof(*p));
    conform_ready(&p->r, c, CONFORM_PICK, NULL);
    CONFORM_OK(ngd_buffer_write(p->r.bound[0], 0, w, sizeof(w), &diag_));
    conform_io_init(&p->io, NULL);
    p->io.in[0] = (struct ngd_span){p->i, sizeof(p->i)};
    p->io.out[0] = (struct ngd_out){p->y, sizeof(p->y)};
}

START_TEST(index_outside_its_tensor_fails_its_launch_and_nothing_else)
{
    static const int32_t bad[] = {4, -1, INT32_MAX, INT32_MIN};
    struct conform c;
    struct pick p;

    conform_open(&c, _i);
    pick_open(&p, &c);
    for (int round = 0; round < 8; round++) {
        p.i[0] = 3;
        p.i[1] = bad[round / 2];
        p.i[2] = 1;
        p.y[0] = p.y[5] = -7;
        p.io.launch.eager = round % 2;
        ck_assert_int_eq(ngd_stream_run(c.b.stream, p.r.inst, &p.io.launch), NGD_ERR_INDEX_RANGE);
        ck_assert_int_eq(p.io.launch.status, NGD_ERR_INDEX_RANGE);
        ck_assert_int_eq(p.io.launch.diag.status, NGD_ERR_INDEX_RANGE);
        conform_says(p.io.launch.diag.text, "node 0|aten.embedding");
        ck_assert_float_eq(p.y[0], -7); /* a failed launch gives no results */
        ck_assert_float_eq(p.y[5], -7);
        CONFORM_OK(ngd_stream_status(c.b.stream));
        CONFORM_OK(ngd_stream_sync(c.b.stream));
        p.i[1] = 2;
        CONFORM_OK(ngd_stream_run(c.b.stream, p.r.inst, &p.io.launch));
        ck_assert_str_eq(p.io.launch.diag.text, "");
        ck_assert_float_eq(p.y[0], 30);
        ck_assert_float_eq(p.y[3], 21);
        ck_assert_float_eq(p.y[5], 11);
    }
    ready_close(&p.r);
    conform_close(&c);
}
END_TEST

START_TEST(queued_launch_that_fails_in_its_data_lets_the_next_one_run)
{
    struct conform c;
    struct conform_gate gate;
    struct conform_double d;
    struct pick p;

    conform_open(&c, _i);
    pick_open(&p, &c);
    conform_double_open(&d, &c, 1);
    p.i[0] = 99;
    conform_gate_close_on(&gate, c.b.stream);
    CONFORM_OK(ngd_stream_launch(c.b.stream, p.r.inst, &p.io.launch));
    CONFORM_OK(ngd_stream_launch(c.b.stream, d.r.inst, &d.io.launch));
    conform_gate_open(&gate);
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    ck_assert_int_eq(p.io.launch.status, NGD_ERR_INDEX_RANGE);
    conform_double_check(&d);
    conform_double_close(&d);
    ready_close(&p.r);
    conform_close(&c);
}
END_TEST

/* ---- sticky errors ---- */

START_TEST(sticky_error_refuses_launches_until_the_stream_is_reset)
{
    struct conform c;
    struct conform_double d;
    struct ngd_event *event = NULL;
    _Atomic uint32_t called = 0;

    conform_open(&c, _i);
    conform_double_open(&d, &c, 1);
    CONFORM_OK(ngd_event_create(c.b.dev, &event));
    ngd_stream_poison(c.b.stream, NGD_ERR_DEVICE_FAULT);
    ngd_stream_poison(c.b.stream, NGD_ERR_DEVICE_LOST); /* the first error is the cause and stays */
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ngd_stream_status(c.b.stream), NGD_ERR_DEVICE_FAULT);
        ck_assert_int_eq(ngd_stream_sync(c.b.stream), NGD_ERR_DEVICE_FAULT);
        ck_assert_int_eq(ngd_stream_launch(c.b.stream, d.r.inst, &d.io.launch), NGD_ERR_STREAM_ERROR);
        ck_assert_int_eq(d.io.launch.status, NGD_ERR_STREAM_ERROR);
        conform_says(d.io.launch.diag.text, "DEVICE_FAULT|reset");
        ck_assert_int_eq(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch), NGD_ERR_STREAM_ERROR);
    }
    /* Callbacks and events still complete, so that nobody waits forever. */
    CONFORM_OK(ngd_stream_callback(c.b.stream, count_call, &called));
    CONFORM_OK(ngd_event_record(event, c.b.stream));
    CONFORM_OK(ngd_event_sync(event));
    ck_assert_uint_eq(atomic_load(&called), 1);
    ngd_stream_reset(c.b.stream);
    CONFORM_OK(ngd_stream_status(c.b.stream));
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    CONFORM_OK(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch));
    conform_double_check(&d);
    ngd_event_destroy(event);
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

START_TEST(launches_queued_before_a_sticky_error_complete_with_stream_error)
{
    enum { N = 5 };
    static struct conform_double d[N];
    struct conform c;
    struct conform_gate gate;
    _Atomic uint32_t called = 0;

    conform_open(&c, _i);
    conform_gate_close_on(&gate, c.b.stream);
    for (int i = 0; i < N; i++) {
        conform_double_open(&d[i], &c, (float)i);
        CONFORM_OK(ngd_stream_launch(c.b.stream, d[i].r.inst, &d[i].io.launch));
        CONFORM_OK(ngd_stream_callback(c.b.stream, count_call, &called));
    }
    ngd_stream_poison(c.b.stream, NGD_ERR_DEVICE_FAULT);
    conform_gate_open(&gate);
    ck_assert_int_eq(ngd_stream_sync(c.b.stream), NGD_ERR_DEVICE_FAULT);
    ck_assert_uint_eq(atomic_load(&called), N);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(d[i].io.launch.status, NGD_ERR_STREAM_ERROR);
        ck_assert_float_eq(d[i].y[1], 0);
    }
    ngd_stream_reset(c.b.stream);
    CONFORM_OK(ngd_stream_run(c.b.stream, d[0].r.inst, &d[0].io.launch));
    conform_double_check(&d[0]);
    for (int i = 0; i < N; i++)
        conform_double_close(&d[i]);
    conform_close(&c);
}
END_TEST

START_TEST(sticky_error_of_one_stream_leaves_the_others_alone)
{
    struct conform c;
    struct conform_double d;
    struct ngd_stream *second = NULL;

    conform_open(&c, _i);
    CONFORM_OK(ngd_stream_create(c.b.dev, "second", &second, &diag_));
    conform_double_open(&d, &c, 1);
    ngd_stream_poison(c.b.stream, NGD_ERR_DEVICE_FAULT);
    CONFORM_OK(ngd_stream_run(second, d.r.inst, &d.io.launch));
    conform_double_check(&d);
    CONFORM_OK(ngd_stream_sync(second));
    ngd_stream_destroy(c.b.stream); /* destroyed while it has an error */
    c.b.stream = second;
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

/* A stream that waits for an event of a stream with an error is let through. */
START_TEST(event_on_a_stream_with_an_error_lets_those_who_wait_through)
{
    struct conform c;
    struct conform_gate gate;
    struct ngd_stream *second = NULL;
    struct ngd_event *event = NULL;
    _Atomic uint32_t called = 0;

    conform_open(&c, _i);
    CONFORM_OK(ngd_stream_create(c.b.dev, "second", &second, &diag_));
    CONFORM_OK(ngd_event_create(c.b.dev, &event));
    conform_gate_close_on(&gate, c.b.stream);
    CONFORM_OK(ngd_event_record(event, c.b.stream));
    CONFORM_OK(ngd_stream_wait_event(second, event));
    CONFORM_OK(ngd_stream_callback(second, count_call, &called));
    ngd_stream_poison(c.b.stream, NGD_ERR_DEVICE_LOST);
    conform_gate_open(&gate);
    CONFORM_OK(ngd_stream_sync(second));
    ck_assert_uint_eq(atomic_load(&called), 1);
    ck_assert_int_eq(ngd_stream_sync(c.b.stream), NGD_ERR_DEVICE_LOST);
    ngd_event_destroy(event);
    ngd_stream_destroy(second);
    conform_close(&c);
}
END_TEST

/* ---- devices that fail ---- */

START_TEST(launch_that_the_device_fails_poisons_its_stream_until_the_reset)
{
    struct conform c;
    struct conform_double d, after;
    struct ngd_stream *second = NULL;

    conform_open(&c, _i);
    CONFORM_OK(ngd_stream_create(c.b.dev, "second", &second, &diag_));
    conform_double_open(&d, &c, 1);
    conform_double_open(&after, &c, 2);
    for (int eager = 0; eager < 2 && arm(&c, CONFORM_FAULT, "a launch that fails"); eager++) {
        d.io.launch.eager = eager;
        ck_assert_int_eq(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch), NGD_ERR_DEVICE_FAULT);
        ck_assert_int_eq(d.io.launch.diag.status, NGD_ERR_DEVICE_FAULT);
        ck_assert_uint_gt(strlen(d.io.launch.diag.text), 0);
        ck_assert_int_eq(ngd_stream_status(c.b.stream), NGD_ERR_DEVICE_FAULT);
        ck_assert_int_eq(ngd_stream_launch(c.b.stream, after.r.inst, &after.io.launch), NGD_ERR_STREAM_ERROR);
        CONFORM_OK(ngd_stream_run(second, after.r.inst, &after.io.launch));
        conform_double_check(&after);
        ngd_stream_reset(c.b.stream);
        CONFORM_OK(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch));
        conform_double_check(&d);
    }
    ngd_stream_destroy(second);
    conform_double_close(&d);
    conform_double_close(&after);
    conform_close(&c);
}
END_TEST

START_TEST(queued_launch_that_the_device_fails_takes_those_behind_it_along)
{
    struct conform c;
    struct conform_double d[3];
    struct conform_gate gate;

    conform_open(&c, _i);
    for (int i = 0; i < 3; i++)
        conform_double_open(&d[i], &c, (float)i);
    conform_gate_close_on(&gate, c.b.stream);
    if (arm(&c, CONFORM_FAULT, "a queued launch that fails")) {
        for (int i = 0; i < 3; i++)
            CONFORM_OK(ngd_stream_launch(c.b.stream, d[i].r.inst, &d[i].io.launch));
        conform_gate_open(&gate);
        ck_assert_int_eq(ngd_stream_sync(c.b.stream), NGD_ERR_DEVICE_FAULT);
        ck_assert_int_eq(d[0].io.launch.status, NGD_ERR_DEVICE_FAULT);
        ck_assert_int_eq(d[1].io.launch.status, NGD_ERR_STREAM_ERROR);
        ck_assert_int_eq(d[2].io.launch.status, NGD_ERR_STREAM_ERROR);
    }
    conform_gate_open(&gate);
    ngd_stream_reset(c.b.stream);
    CONFORM_OK(ngd_stream_run(c.b.stream, d[1].r.inst, &d[1].io.launch));
    conform_double_check(&d[1]);
    for (int i = 0; i < 3; i++)
        conform_double_close(&d[i]);
    conform_close(&c);
}
END_TEST

/* After a reset the device works again or still says that it is lost. It never gives a wrong result. */
START_TEST(device_that_is_lost_says_so_and_comes_back_or_stays_lost)
{
    struct conform c;
    struct conform_double d;
    ngd_status_t status;

    conform_open(&c, _i);
    conform_double_open(&d, &c, 1);
    if (arm(&c, CONFORM_LOST, "a device that is lost")) {
        ck_assert_int_eq(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch), NGD_ERR_DEVICE_LOST);
        ck_assert_uint_gt(strlen(d.io.launch.diag.text), 0);
        ck_assert_int_eq(ngd_stream_sync(c.b.stream), NGD_ERR_DEVICE_LOST);
        ck_assert_float_eq(d.y[0], 0);
        ngd_stream_reset(c.b.stream);
        status = ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch);
        if (status)
            ck_assert(status == NGD_ERR_DEVICE_LOST || status == NGD_ERR_STREAM_ERROR);
        else
            conform_double_check(&d);
        if (c.backend->disarm)
            c.backend->disarm();
    }
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

START_TEST(launch_that_hangs_is_ended_by_a_time_limit_and_holds_up_nobody_else)
{
    struct conform c;
    struct conform_double d, other;
    struct ngd_stream *second = NULL;
    struct ngd_event *event = NULL;
    ngd_nsec_t start = ngd_now();

    conform_open(&c, _i);
    CONFORM_OK(ngd_stream_create(c.b.dev, "second", &second, &diag_));
    CONFORM_OK(ngd_event_create(c.b.dev, &event));
    conform_double_open(&d, &c, 1);
    conform_double_open(&other, &c, 2);
    if (arm(&c, CONFORM_HANG, "a launch that hangs")) {
        CONFORM_OK(ngd_stream_launch(c.b.stream, d.r.inst, &d.io.launch));
        CONFORM_OK(ngd_event_record(event, c.b.stream));
        ck_assert_int_eq(ngd_stream_sync(c.b.stream), NGD_ERR_DEVICE_FAULT);
        ck_assert_int_eq(d.io.launch.status, NGD_ERR_DEVICE_FAULT);
        ck_assert_uint_gt(strlen(d.io.launch.diag.text), 0);
        CONFORM_OK(ngd_event_sync(event));
        ck_assert(ngd_now() - start < 60 * NGD_SEC);
        ck_assert_float_eq(d.y[0], 0);
        CONFORM_OK(ngd_stream_run(second, other.r.inst, &other.io.launch));
        conform_double_check(&other);
        ngd_stream_reset(c.b.stream);
        CONFORM_OK(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch));
        conform_double_check(&d);
    }
    ngd_event_destroy(event);
    ngd_stream_destroy(second);
    conform_double_close(&d);
    conform_double_close(&other);
    conform_close(&c);
}
END_TEST

START_TEST(memory_that_the_device_refuses_is_not_counted)
{
    struct conform c;
    struct ngd_buffer *buf = NULL;
    struct conform_double d;
    struct ready r;
    struct ngd_diag diag = {0};
    bool can;

    conform_open(&c, _i);
    can = arm(&c, CONFORM_ALLOC, "memory that the device refuses");
    if (can) {
        ck_assert_int_eq(ngd_buffer_create(c.b.dev, 1000, NGD_BUFFER_KV, "refused", &buf, &diag),
                         NGD_ERR_NO_DEVICE_MEMORY);
        ck_assert_ptr_null(buf);
        conform_says(diag.text, "refused");
        ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 0);
        arm(&c, CONFORM_ALLOC, "memory that the device refuses");
        ck_assert_int_eq(ready_open(&r, &c.b, CONFORM_DOUBLE, NULL, &diag), NGD_ERR_NO_DEVICE_MEMORY);
        conform_says(diag.text, "test pool");
        ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 0);
        ck_assert_uint_eq(ngd_pool_bytes(c.b.pool), 0);
    }
    conform_double_open(&d, &c, 1);
    if (can) { /* when the pool fails to grow it loses its memory, and gets it back at the next launch */
        uint64_t held = ngd_pool_bytes(c.b.pool);

        arm(&c, CONFORM_ALLOC, "a pool that cannot grow");
        ck_assert_int_eq(
            ready_open(&r, &c.b,
                       "npugraph 1\ngraph \"g\" {\n input %x : f32[5000]\n %y = aten.exp(%x)\n return \"y\" = %y\n}\n",
                       NULL, &diag),
            NGD_ERR_NO_DEVICE_MEMORY);
        CONFORM_OK(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch));
        conform_double_check(&d);
        ck_assert_uint_eq(ngd_pool_bytes(c.b.pool), held);
        ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), held);
    }
    CONFORM_OK(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch));
    conform_double_check(&d);
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

/* ---- no host memory ---- */

static bool is_shortage(ngd_status_t status)
{
    return status == NGD_ERR_NO_MEMORY || status == NGD_ERR_NO_DEVICE_MEMORY;
}

/* Runs everything that allocates, from creating a stream to a launch, and releases what was made. */
static ngd_status_t make_all(struct bench *b, struct conform_io *io, struct ngd_diag *diag)
{
    struct ngd_event *event = NULL;
    struct ready r = {0};
    ngd_status_t status = ngd_stream_create(b->dev, "short", &b->stream, diag);

    if (!status)
        status = ngd_pool_create(b->dev, "short", &b->pool);
    if (!status)
        status = ready_open(&r, b, CONFORM_PICK, NULL, diag);
    if (!status)
        status = ngd_event_create(b->dev, &event);
    if (!status)
        status = ngd_event_record(event, b->stream);
    if (!status)
        status = ngd_stream_run(b->stream, r.inst, &io->launch);
    io->launch.eager = true;
    if (!status)
        status = ngd_stream_run(b->stream, r.inst, &io->launch);
    io->launch.eager = false;
    if (!status)
        status = ngd_stream_launch(b->stream, r.inst, &io->launch);
    if (!status)
        status = ngd_stream_sync(b->stream);
    ngd_event_destroy(event);
    ready_close(&r);
    ngd_stream_destroy(b->stream);
    ngd_pool_destroy(b->pool);
    b->stream = NULL;
    b->pool = NULL;
    return status;
}

START_TEST(host_memory_that_runs_out_at_any_point_is_told_and_leaves_nothing_behind)
{
    const int32_t index[3] = {0, 1, 2};
    struct conform_io io;
    struct conform c;
    struct bench b;
    float y[6];
    int64_t n = 0;
    ngd_status_t status;

    conform_open(&c, _i);
    conform_io_init(&io, NULL);
    io.in[0] = (struct ngd_span){index, sizeof(index)};
    io.out[0] = (struct ngd_out){y, sizeof(y)};
    b = c.b;
    b.stream = NULL;
    b.pool = NULL;
    do {
        struct ngd_diag diag = {0};

        ngd_mem_fail_after(n);
        status = make_all(&b, &io, &diag);
        ngd_mem_fail_after(-1);
        ck_assert_msg(!status || is_shortage(status), "allocation %lld: %s %s", (long long)n, ngd_status_name(status),
                      diag.text);
        ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 0);
    } while (status && ++n < 10000);
    ck_assert_int_eq(status, NGD_OK);
    ck_assert_int_gt(n, 20);
    conform_close(&c);
}
END_TEST

START_TEST(device_that_finds_no_host_memory_is_not_opened)
{
    struct ngd_device_params params;
    struct ngd_device *dev = NULL;
    int64_t n = 0;
    ngd_status_t status;

    conform_params(_i, &params);
    do {
        ngd_mem_fail_after(n);
        status = ngd_device_open(&params, &dev, NULL);
        ngd_mem_fail_after(-1);
        ck_assert_msg(!status || is_shortage(status), "%s", ngd_status_name(status));
        ck_assert_int_eq(dev == NULL, status != NGD_OK);
    } while (status && ++n < 1000);
    ck_assert_int_gt(n, 0);
    ngd_device_close(dev);
}
END_TEST

TCase *conform_errors(void)
{
    TCase *tcase = tcase_create("errors");

    CONFORM_ADD(tcase, index_outside_its_tensor_fails_its_launch_and_nothing_else,
                queued_launch_that_fails_in_its_data_lets_the_next_one_run,
                sticky_error_refuses_launches_until_the_stream_is_reset,
                launches_queued_before_a_sticky_error_complete_with_stream_error,
                sticky_error_of_one_stream_leaves_the_others_alone,
                event_on_a_stream_with_an_error_lets_those_who_wait_through,
                launch_that_the_device_fails_poisons_its_stream_until_the_reset,
                queued_launch_that_the_device_fails_takes_those_behind_it_along,
                device_that_is_lost_says_so_and_comes_back_or_stays_lost,
                launch_that_hangs_is_ended_by_a_time_limit_and_holds_up_nobody_else,
                memory_that_the_device_refuses_is_not_counted,
                host_memory_that_runs_out_at_any_point_is_told_and_leaves_nothing_behind,
                device_that_finds_no_host_memory_is_not_opened);
    return tcase;
}
