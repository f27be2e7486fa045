/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what only the host device has: its options, the tickets of its events, replays that allocate nothing. */
#include "base/fault.h"
#include "base/list.h"
#include "devices/host/cpu.h"
#include "devices/host/host.h"
#include "devices/serial.h"
#include "tests/ops/device_run.h"
#include "tests/unit/purse.h"
#include "tests/unit/unit.h"
#include <math.h>

static ngd_status_t try_open(const char *isa, uint32_t threads, uint32_t index, struct ngd_device **dev_p,
                             struct ngd_diag *diag)
{
    struct ngd_device_params params;

    ngd_device_params_init(&params);
    params.isa = isa;
    params.threads = threads;
    params.index = index;
    params.memory_bytes = 1 << 20;
    return ngd_device_open(&params, dev_p, diag);
}

START_TEST(device_runs_on_each_instruction_set_that_the_cpu_has_and_names_it)
{
    for (int isa = NGD_ISA_SCALAR; isa < NGD_ISA_MAX; isa++) {
        struct ngd_device *dev = NULL;
        struct ngd_diag diag = {0};
        ngd_status_t status = try_open(ngd_isa_name((ngd_isa_t)isa), 1, 3, &dev, &diag);
        ngd_isa_t parsed;

        ck_assert(ngd_isa_parse(ngd_isa_name((ngd_isa_t)isa), &parsed) && (int)parsed == isa);
        if (isa > (int)ngd_cpu_isa()) {
            ck_assert_int_eq(status, NGD_ERR_INVALID_ARGUMENT);
            ck_assert(strstr(diag.text, "the best is") != NULL);
            continue;
        }
        ck_assert_int_eq(status, NGD_OK);
        ck_assert_str_eq(ngd_device_info(dev)->name, "host:3");
        ck_assert(strstr(ngd_device_info(dev)->arch, ngd_isa_name((ngd_isa_t)isa)) != NULL);
        ck_assert(strstr(ngd_device_info(dev)->description, ngd_isa_name((ngd_isa_t)isa)) != NULL);
        ck_assert_uint_eq(ngd_device_info(dev)->threads, 1);
        ck_assert(ngd_device_info(dev)->host_memory);
        ngd_device_close(dev);
    }
}
END_TEST

START_TEST(options_that_cannot_be_are_refused_by_name)
{
    static const char *const names[] = {"", "sse", "AVX2", "avx", "avx512 ", "auto,scalar"};
    struct ngd_device *dev = NULL;
    struct ngd_diag diag = {0};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ck_assert_int_eq(try_open(names[i], 1, 0, &dev, &diag), NGD_ERR_INVALID_ARGUMENT);
        ck_assert(strstr(diag.text, "scalar, avx2") != NULL);
        ck_assert(strstr(diag.text, names[i]) != NULL);
    }
    ck_assert_int_eq(try_open("auto", 257, 0, &dev, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert(strstr(diag.text, "257 threads") != NULL);
    ck_assert_int_eq(try_open("auto", UINT32_MAX, 0, &dev, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_null(dev);
}
END_TEST

START_TEST(device_without_options_takes_the_best_and_all_cpus)
{
    static const char *const isas[] = {"auto", NULL};

    for (int i = 0; i < 2; i++) {
        struct ngd_device *dev = NULL;

        ck_assert_int_eq(try_open(isas[i], 0, 0, &dev, NULL), NGD_OK);
        ck_assert(strstr(ngd_device_info(dev)->arch, ngd_isa_name(ngd_cpu_isa())) != NULL);
        ck_assert_uint_eq(ngd_device_info(dev)->threads, ngd_cpu_count() < 256 ? ngd_cpu_count() : 256);
        ngd_device_close(dev);
    }
    ck_assert_uint_gt(ngd_cpu_memory_bytes(), 1 << 20);
}
END_TEST

/* ---- events ---- */

START_TEST(tickets_come_back_in_any_order_and_each_for_itself)
{
    enum { N = 9 };
    static const int order[N] = {4, 0, 8, 2, 1, 7, 3, 6, 5};
    uint64_t tickets[N];
    void *event = NULL;

    ck_assert_int_eq(ngd_serial_event_create(NULL, &event), NGD_OK);
    ck_assert_uint_eq(ngd_serial_event_last(event), 0);
    ck_assert(ngd_serial_event_done(event, 0));
    ck_assert(ngd_serial_event_query(event));
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(ngd_serial_event_take(event, &tickets[i]), NGD_OK);
        ck_assert_uint_eq(tickets[i], (uint64_t)i + 1);
        ck_assert_uint_eq(ngd_serial_event_last(event), tickets[i]);
        ck_assert(!ngd_serial_event_query(event));
    }
    for (int i = 0; i < N; i++) {
        bool back[N] = {false};

        ngd_serial_event_complete(event, tickets[order[i]]);
        ngd_serial_event_complete(event, tickets[order[i]]); /* completing twice is allowed */
        for (int k = 0; k <= i; k++)
            back[order[k]] = true;
        for (int k = 0; k < N; k++)
            ck_assert_int_eq(ngd_serial_event_done(event, tickets[k]), back[k]);
        ck_assert_int_eq(ngd_serial_event_query(event), back[N - 1]);
    }
    for (int i = 0; i < N; i++)
        ngd_serial_event_await(event, tickets[i]);
    ngd_serial_event_destroy(NULL, event);
}
END_TEST

START_TEST(ticket_that_finds_no_memory_is_not_taken)
{
    void *event = NULL;
    uint64_t ticket = 99;

    ck_assert_int_eq(ngd_serial_event_create(NULL, &event), NGD_OK);
    ngd_mem_fail_after(0);
    ck_assert_int_eq(ngd_serial_event_take(event, &ticket), NGD_ERR_NO_MEMORY);
    ngd_mem_fail_after(-1);
    ck_assert_uint_eq(ticket, 99);
    ck_assert(ngd_serial_event_query(event));
    ck_assert_int_eq(ngd_serial_event_sync(event), NGD_OK);
    ngd_serial_event_destroy(NULL, event);
}
END_TEST

/* ---- replays ---- */

START_TEST(replay_allocates_nothing)
{
    static const char text[] =
        "npugraph 1\ngraph \"g\" {\n param %w : f32[64,32]\n input %x : f32[8,32]\n %m = aten.linear(%x, %w)\n"
        " %s = aten._softmax(%m) {dim=-1}\n %v, %i = aten.topk(%s) {k=3}\n return \"v\" = %v, \"i\" = %i\n}\n";
    float x[256] = {0}, v[24];
    int64_t i[24];
    struct ngd_span in = {x, sizeof(x)};
    struct ngd_out out[2] = {{v, sizeof(v)}, {i, sizeof(i)}};
    struct ngd_launch launch = {.inputs = &in, .outputs = out};
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;
    uint64_t before;

    bench_open(&b, ngd_cpu_isa(), 2);
    run_check(ready_open(&r, &b, text, NULL, &diag), &diag, text);
    for (int round = 0; round < 3; round++) { /* the first one starts the team */
        before = ngd_mem_thread_allocs();
        ngd_mem_fail_after(0);
        run_check(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag, "replay");
        ngd_mem_fail_after(-1);
        ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
    }
    ready_close(&r);
    bench_close(&b);
}
END_TEST

/* ---- views and charges ---- */

/*
 * If a plan's second call runs first, it reads memory that is not yet written. After a correct replay this memory still
 * has the correct value, so only poison shows the error.
 */
START_TEST(poison_shows_what_is_read_before_it_is_written)
{
    static const char text[] =
        "npugraph 1\ngraph \"g\" {\n input %x : f32[4,4]\n %e = aten.exp(%x)\n"
        " %y = aten.sum.dim_IntList(%e) {dim=[1]}\n %z = aten.sum.dim_IntList(%x) {dim=[1]}\n"
        " return \"y\" = %y, \"z\" = %z, \"e\" = %e\n}\n"; /* so that nothing shares the memory of %e */
    const float x[16] = {0, 1, -1, 2, 3, 1};
    float right[4] = {0}, y[4] = {0}, z[4], e[16];
    struct ngd_span in = {x, sizeof(x)};
    struct ngd_out out[3] = {{right, sizeof(right)}, {z, sizeof(z)}, {e, sizeof(e)}};
    struct ngd_launch launch = {.inputs = &in, .outputs = out};
    struct ngd_plan_call first;
    struct ngd_diag diag = {0};
    struct ready good = {0}, bad = {0};
    struct bench b;

    if (!NGD_FAULT_COMPILED) {
        puts("skip - poison: fault points are not compiled in");
        return;
    }
    bench_open(&b, ngd_cpu_isa(), 1);
    run_check(ready_open(&good, &b, text, NULL, &diag), &diag, text);
    run_check(ready_plan(&bad, &b, text, NULL, &diag), &diag, text);
    ck_assert_uint_eq(bad.plan->n_calls, 3);
    first = bad.plan->calls[0];
    bad.plan->calls[0] = bad.plan->calls[1];
    bad.plan->calls[1] = first;
    run_check(ready_bind(&bad, &b, NULL, 0, &diag), &diag, "bind");
    run_check(ngd_stream_run(b.stream, good.inst, &launch), &launch.diag, "replay");
    out[0].data = y;
    run_check(ngd_stream_run(b.stream, bad.inst, &launch), &launch.diag, "replay");
    run_check(ngd_stream_run(b.stream, bad.inst, &launch), &launch.diag, "replay");
    ck_assert_mem_eq(y, right, sizeof(y)); /* unnoticed */
    ngd_fault_arm(NGD_FAULT_HOST_POISON, 0, UINT32_MAX);
    run_check(ngd_stream_run(b.stream, bad.inst, &launch), &launch.diag, "replay");
    for (int i = 0; i < 4; i++)
        ck_assert(isnan(y[i]));
    run_check(ngd_stream_run(b.stream, good.inst, &launch), &launch.diag, "replay");
    ck_assert_mem_eq(y, right, sizeof(y));
    ngd_fault_disarm_all();
    ready_close(&good);
    ready_close(&bad);
    bench_close(&b);
}
END_TEST

START_TEST(charge_takes_no_more_than_there_is_and_ends_once)
{
    struct purse p = {.base.ops = &purse_ops, .limit = 10};
    struct ngd_charge c, none;

    ck_assert_int_eq(ngd_charge_begin(&c, &p.base, 11, NULL), NGD_ERR_QUOTA);
    ngd_charge_end(&c);
    ck_assert_int_eq(ngd_charge_begin(&c, &p.base, 6, NULL), NGD_OK);
    ck_assert_int_eq(ngd_charge_grow(&c, 5, NULL), NGD_ERR_QUOTA);
    ck_assert_int_eq(ngd_charge_grow(&c, 4, NULL), NGD_OK);
    ngd_charge_shrink(&c, 3);
    ck_assert_uint_eq(p.used, 7);
    ck_assert_int_eq(p.refs, 1);
    ngd_charge_end(&c);
    ngd_charge_end(&c);
    ck_assert(p.used == 0 && p.refs == 0);
    ck_assert_int_eq(ngd_charge_begin(&none, NULL, UINT64_MAX, NULL), NGD_OK);
    ck_assert_int_eq(ngd_charge_grow(&none, 1, NULL), NGD_OK);
    ngd_charge_end(&none);
}
END_TEST

START_TEST(view_keeps_the_memory_and_ends_its_own_charge)
{
    struct purse mine = {.base.ops = &purse_ops, .limit = 100}, yours = mine;
    struct ngd_buffer *buf, *view, *other;
    struct ngd_device *dev;
    struct ngd_charge c;
    int n = 7, got = 0;

    ck_assert_int_eq(try_open("auto", 1, 0, &dev, NULL), NGD_OK);
    ck_assert_int_eq(ngd_charge_begin(&c, &mine.base, 64, NULL), NGD_OK);
    ck_assert_int_eq(ngd_buffer_create(dev, 64, NGD_BUFFER_GENERAL, "b", &buf, NULL), NGD_OK);
    ngd_buffer_set_charge(buf, &c);
    ck_assert_int_eq(ngd_buffer_view(buf, &other, NULL), NGD_OK);
    ck_assert_int_eq(ngd_buffer_view(other, &view, NULL), NGD_OK); /* of a view: of its base */
    ngd_buffer_unref(other);
    ck_assert_int_eq(ngd_charge_begin(&c, &yours.base, 64, NULL), NGD_OK);
    ngd_buffer_set_charge(view, &c);
    ck_assert(ngd_buffer_same(buf, view) && ngd_buffer_same(view, buf) && !ngd_buffer_same(view, NULL));
    ck_assert(!ngd_buffer_is_last(buf));
    ck_assert_uint_eq(ngd_buffer_generation(buf), ngd_buffer_generation(view));
    ck_assert_int_eq(ngd_buffer_write(buf, 0, &n, sizeof(n), NULL), NGD_OK);
    ngd_buffer_unref(buf);
    ck_assert_uint_eq(mine.used, 64); /* the view holds it */
    ck_assert_int_eq(ngd_buffer_read(view, 0, &got, sizeof(got), NULL), NGD_OK);
    ck_assert_int_eq(got, 7);
    ngd_buffer_unref(view);
    ck_assert(mine.used == 0 && yours.used == 0 && mine.refs == 0 && yours.refs == 0);
    ngd_device_close(dev);
}
END_TEST

UNIT_MAIN("devices/host", device_runs_on_each_instruction_set_that_the_cpu_has_and_names_it,
          options_that_cannot_be_are_refused_by_name, device_without_options_takes_the_best_and_all_cpus,
          tickets_come_back_in_any_order_and_each_for_itself, ticket_that_finds_no_memory_is_not_taken,
          replay_allocates_nothing, poison_shows_what_is_read_before_it_is_written,
          charge_takes_no_more_than_there_is_and_ends_once, view_keeps_the_memory_and_ends_its_own_charge)
