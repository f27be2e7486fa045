/* SPDX-License-Identifier: Apache-2.0 */
/* Tests replays that are stopped while they run: cancelled, past their deadline, or longer than max-replay-time; and
 * estimates. */
#include "scheduler/lineup/estimate.h"
#include "tests/unit/sched_util.h"

/* Makes a binding whose replay takes minutes on any machine; no test waits for its end. */
static struct ngd_binding *long_binding(struct bed *bed, const char *option)
{
    struct ngd_graph_options options;
    struct ngd_strbuf sb;
    struct ngd_binding *b;
    struct ngd_diag diag = {0};

    ngd_graph_options_init(&options);
    if (option && ngd_graph_options_set(&options, option, "true", &diag))
        ck_abort_msg("%s", diag.text);
    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb, "npugraph 1\ngraph \"long\" {\n sym N 1..64\n input %%x : f32[N]\n"
                           " %%s = aten.sum.dim_IntList(%%x)\n %%m0 = aten.expand(%%s) {size=[640,640]}\n");
    for (int i = 0; i < 4000; i++)
        ngd_strbuf_printf(&sb, " %%m%d = aten.mm(%%m%d, %%m%d)\n", i + 1, i, i);
    ngd_strbuf_printf(&sb, " %%t = aten.sum.dim_IntList(%%m4000)\n %%y = aten.mul.Tensor(%%x, %%t)\n"
                           " return \"y\" = %%y\n}\n");
    b = bed_binding(bed, ngd_strbuf_str(&sb), &options);
    ngd_strbuf_fini(&sb);
    return b;
}

static void await_running(struct bed *bed)
{
    while (!atomic_load(&bed_slot(bed, 0)->running))
        sched_yield();
}

static void cancel_under_way(const char *option)
{
    const uint64_t before = row_count(NGD_M_REPLAYS_STOPPED, "CANCELLED");
    struct bed bed;
    struct ngd_binding *b, *other;
    struct call c, next;

    bed_open(&bed, 1, 0);
    b = long_binding(&bed, option);
    other = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_init(&c, b, 2);
    call_submit(&bed, &c);
    await_running(&bed);
    call_init(&next, other, 2);
    call_submit(&bed, &next);
    ck_assert(!ngd_sched_cancel(bed.sched, &c.req)); /* it answers when it has stopped */
    call_wait(&c);
    ck_assert_int_eq(c.status, NGD_ERR_CANCELLED);
    says(c.text, "cancelled|stopped at node");
    ck_assert_uint_eq(row_count(NGD_M_REPLAYS_STOPPED, "CANCELLED"), before + 1);
    call_wait(&next);
    call_check(&next);
    ngd_binding_unref(b);
    ngd_binding_unref(other);
    bed_close(&bed);
}

START_TEST(cancel_stops_a_replay_that_runs)
{
    cancel_under_way(NULL);
}
END_TEST

START_TEST(cancel_stops_an_eager_run)
{
    cancel_under_way("force_eager");
}
END_TEST

START_TEST(time_limit_and_deadline_stop_a_replay_that_runs)
{
    const uint64_t before = row_count(NGD_M_REPLAYS_STOPPED, "REPLAY_STOPPED");
    struct bed bed;
    struct ngd_sched_params params;
    struct ngd_binding *b;
    struct call c;

    bed_params(&bed, &params);
    params.max_replay_time = 20 * NGD_MSEC;
    bed_start(&bed, &params);
    b = long_binding(&bed, NULL);
    call_init(&c, b, 2);
    call_run(&bed, &c);
    ck_assert_int_eq(c.status, NGD_ERR_REPLAY_STOPPED);
    says(c.text, "20 ms|max-replay-time");
    ck_assert_uint_eq(row_count(NGD_M_REPLAYS_STOPPED, "REPLAY_STOPPED"), before + 1);
    bed.sched->params.max_replay_time = 0;
    call_init(&c, b, 2);
    c.req.deadline = ngd_now() + 300 * NGD_MSEC;
    call_run(&bed, &c);
    ck_assert_int_eq(c.status, NGD_ERR_DEADLINE_EXCEEDED);
    if (c.req.started)
        says(c.text, "deadline passed while the replay|stopped at node");
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* If the clock jumps by 100 s during any one run, deadlines of 60 s must not be refused. */
START_TEST(a_jump_of_the_clock_spoils_no_estimate)
{
    for (uint32_t at = 0; at < 20; at++) {
        ngd_nsec_t expected = 0, doubt = 0;

        for (uint32_t run = 0; run < 40; run++) {
            const ngd_nsec_t t = 150 * NGD_MSEC + (run % 3) * NGD_MSEC;

            ngd_estimate_learn(run, run == at ? t + 100 * NGD_SEC : t, &expected, &doubt);
            if (run + 1 >= NGD_ESTIMATE_KNOWN)
                ck_assert_int_lt(expected + NGD_ESTIMATE_SURE * doubt, NGD_SEC);
        }
        ck_assert_int_gt(expected, 149 * NGD_MSEC);
        ck_assert_int_lt(expected, 170 * NGD_MSEC);
    }
}
END_TEST

START_TEST(an_estimate_follows_what_has_become_slower_and_gives_way_when_refused)
{
    ngd_nsec_t expected = 0, doubt = 0;
    int refused = 0;

    for (uint32_t run = 0; run < 10; run++)
        ngd_estimate_learn(run, 20 * NGD_USEC, &expected, &doubt);
    for (uint32_t run = 10; run < 40; run++)
        ngd_estimate_learn(run, 10 * NGD_SEC, &expected, &doubt);
    ck_assert_int_gt(expected, 8 * NGD_SEC);
    while (expected + NGD_ESTIMATE_SURE * doubt > 100 * NGD_MSEC) {
        ngd_estimate_give_way(&expected, &doubt);
        refused++;
    }
    ck_assert_int_lt(refused, 12);
}
END_TEST

/* One kernel takes about a second, between short ones. On a busy machine the time may be over before it begins. */
START_TEST(one_long_kernel_is_stopped_in_its_midst)
{
    static const char text[] =
        "npugraph 1\ngraph \"giant\" {\n sym N 1..64\n input %x : f32[N]\n"
        " %r = aten.arange.start_step() {end=4096, dtype=f32}\n %c = aten.unsqueeze(%r) {dim=1}\n"
        " %m = aten.mul.Tensor(%c, %r)\n %p = aten.mm(%m, %m)\n %t = aten.sum.dim_IntList(%p)\n"
        " %y = aten.mul.Tensor(%x, %t)\n return \"y\" = %y\n}\n";
    struct ngd_binding *b;
    struct bed bed;
    bool within = false;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, text, NULL);
    for (ngd_nsec_t limit = 50 * NGD_MSEC; limit < 30 * NGD_SEC && !within; limit *= 2) {
        bed.sched->params.max_replay_time = limit;
        call_init(&c, b, 2);
        call_run(&bed, &c);
        if (c.status == NGD_OK)
            break;
        ck_assert_int_eq(c.status, NGD_ERR_REPLAY_STOPPED);
        within = strstr(c.text, "node 3 (aten.mm), of which a part was done") != NULL;
    }
    ck_assert(within);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/sched_stops", cancel_stops_a_replay_that_runs, cancel_stops_an_eager_run,
          time_limit_and_deadline_stop_a_replay_that_runs, a_jump_of_the_clock_spoils_no_estimate,
          an_estimate_follows_what_has_become_slower_and_gives_way_when_refused,
          one_long_kernel_is_stopped_in_its_midst)
