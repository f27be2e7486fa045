/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that requests that never ran are in the timeline too. */
#include "scheduler/record/timeline.h"
#include "tests/unit/sched_util.h"

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;

    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static void print(struct bed *bed, ngd_timeline_form_t form, struct ngd_strbuf *sb)
{
    struct ngd_diag diag = {0};
    uint64_t next;

    ngd_strbuf_init(sb);
    ck_assert_int_eq(ngd_timeline_print(bed->sched, form, 0, SIZE_MAX, sb, &next, &diag), NGD_OK);
    ck_assert_uint_eq(next, 0);
}

/* Submits a request of each outcome while the slot is held, each with its own tag; and an invalid one, which is no
 * load. */
static void run_one_of_each(struct bed *bed, struct ngd_binding *b)
{
    struct call busy, wrong, refused, expired, cancelled, ran;
    struct gate gate;

    call_occupy(bed, &busy, b, &gate);
    call_init(&wrong, b, 2);
    wrong.req.n_inputs = 2;
    ck_assert_int_eq(ngd_sched_submit(bed->sched, &wrong.req, &wrong.diag), NGD_ERR_INPUT_COUNT);
    call_init(&refused, b, 2);
    refused.req.launch.tag = 11;
    refused.req.deadline = ngd_now();
    ck_assert_int_eq(ngd_sched_submit(bed->sched, &refused.req, &refused.diag), NGD_ERR_DEADLINE_EXCEEDED);
    call_init(&expired, b, 2);
    expired.req.launch.tag = 12;
    expired.req.deadline = ngd_now() + 500 * NGD_SEC;
    call_submit(bed, &expired);
    call_init(&cancelled, b, 2);
    cancelled.req.launch.tag = 13;
    call_submit(bed, &cancelled);
    call_init(&ran, b, 2);
    ran.req.launch.tag = 14;
    call_submit(bed, &ran);
    ck_assert(ngd_sched_cancel(bed->sched, &cancelled.req));
    ngd_clock_set_fake(expired.req.deadline + NGD_SEC);
    (void)ngd_request_expire(&expired.req); /* or the expiry thread has been quicker */
    call_wait(&expired);
    gate_open(&gate);
    call_wait(&ran);
    call_wait(&busy);
}

START_TEST(requests_that_were_refused_expired_or_cancelled_are_arrivals_like_others)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_diag diag = {0};
    struct ngd_timeline_status status;
    struct ngd_strbuf sb;

    ngd_clock_set_fake(1000 * NGD_SEC);
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_timeline_start(bed.sched, 100, &diag), NGD_OK);
    run_one_of_each(&bed, b);
    ngd_timeline_stop(bed.sched, false, &status);
    ck_assert_uint_eq(status.kept, 5); /* with the one that held the slot */
    print(&bed, NGD_TIMELINE_ARRIVALS, &sb);
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), " host:"), 5);
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), "# refused:\n"), 1);
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), "# expired:\n"), 1);
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), "# cancelled:\n"), 1);
    ngd_strbuf_fini(&sb);
    print(&bed, NGD_TIMELINE_CHROME, &sb);
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), "\"outcome\":\"refused\",\"tag\":11}"), 2); /* begin and end */
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), "\"outcome\":\"expired\",\"tag\":12}"), 2);
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), "\"outcome\":\"cancelled\",\"tag\":13}"), 2);
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), "\"outcome\":\"ran\",\"tag\":14}"), 2);
    ck_assert_uint_eq(count(ngd_strbuf_str(&sb), "\"name\":\"replay\""), 2); /* of those that ran */
    ngd_strbuf_fini(&sb);
    ngd_binding_unref(b);
    bed_close(&bed);
    ngd_clock_set_fake(-1);
}
END_TEST

START_TEST(nothing_is_noted_of_them_while_it_is_off)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_timeline_status status;

    ngd_clock_set_fake(1000 * NGD_SEC);
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    run_one_of_each(&bed, b);
    ngd_timeline_stop(bed.sched, false, &status);
    ck_assert_uint_eq(status.kept, 0);
    ngd_binding_unref(b);
    bed_close(&bed);
    ngd_clock_set_fake(-1);
}
END_TEST

UNIT_MAIN("scheduler/timeline", requests_that_were_refused_expired_or_cancelled_are_arrivals_like_others,
          nothing_is_noted_of_them_while_it_is_off)
