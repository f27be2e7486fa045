/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what npugraphctl reads from the exposition with what base/metrics.c says of the same numbers. */
#include "base/metrics.h"
#include "client/ctl/ctl_metrics.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>

static struct ctl_histogram look(void)
{
    struct ctl_histogram h;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_metrics_render(&sb, NULL);
    ctl_histogram_read(ngd_strbuf_str(&sb), "replay_seconds", &h);
    ngd_strbuf_fini(&sb);
    return h;
}

START_TEST(a_counter_is_the_sum_of_its_rows_and_of_no_other_counter)
{
    static const char text[] = "# HELP npugraphd_x_total Of npugraphd_x_total 99\n"
                               "npugraphd_x_total{label=\"a\"} 3\n"
                               "npugraphd_x_total{label=\"with blank 7\"} 40\n"
                               "npugraphd_x_total_more 500\n"
                               "other_npugraphd_x_total 6000\n"
                               "npugraphd_y_total 5\n"
                               "npugraphd_z_total 70000";

    ck_assert_uint_eq(ctl_metric_sum(text, "x_total"), 43);
    ck_assert_uint_eq(ctl_metric_sum(text, "y_total"), 5);
    ck_assert_uint_eq(ctl_metric_sum(text, "z_total"), 70000);
    ck_assert_uint_eq(ctl_metric_sum(text, "total"), 0);
    ck_assert_uint_eq(ctl_metric_sum("", "x_total"), 0);
}
END_TEST

START_TEST(quantiles_are_those_of_the_daemon)
{
    static const double q[] = {0, 0.25, 0.5, 0.9, 0.99, 1};
    struct ctl_histogram h = look();

    ck_assert_uint_gt(h.n, 10);
    ck_assert_uint_eq(ctl_histogram_count(&h), 0);
    ck_assert_double_eq(ctl_histogram_quantile(&h, 0.5), 0);
    for (ngd_nsec_t t = 3 * NGD_USEC; t < 60 * NGD_SEC; t += t / 3)
        ngd_metric_observe(NGD_M_REPLAY_SECONDS, t);
    h = look();
    ck_assert(isinf(h.bound[h.n - 1]));
    for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
        ck_assert_double_eq_tol(ctl_histogram_quantile(&h, q[i]), ngd_metric_quantile(NGD_M_REPLAY_SECONDS, q[i]),
                                1e-9);
}
END_TEST

START_TEST(what_came_between_two_readings_is_all_that_counts)
{
    struct ctl_histogram before, now;

    for (int i = 0; i < 1000; i++)
        ngd_metric_observe(NGD_M_REPLAY_SECONDS, 3 * NGD_SEC);
    before = look();
    for (int i = 0; i < 10; i++)
        ngd_metric_observe(NGD_M_REPLAY_SECONDS, 15 * NGD_USEC);
    now = look();
    ctl_histogram_since(&now, &before);
    ck_assert_uint_eq(ctl_histogram_count(&now), 10);
    ck_assert_double_gt(ctl_histogram_quantile(&now, 0.99), 10e-6);
    ck_assert_double_le(ctl_histogram_quantile(&now, 0.99), 20e-6);
}
END_TEST

START_TEST(a_daemon_that_was_restarted_counts_from_nothing)
{
    struct ctl_histogram before, now;
    uint64_t all;

    ngd_metric_observe(NGD_M_REPLAY_SECONDS, 15 * NGD_USEC);
    now = look();
    all = ctl_histogram_count(&now);
    ngd_metric_observe(NGD_M_REPLAY_SECONDS, 15 * NGD_USEC);
    before = look();
    ctl_histogram_since(&now, &before);
    ck_assert_uint_eq(ctl_histogram_count(&now), all);
    ck_assert_uint_eq(ctl_grown(7, 3), 3);
    ck_assert_uint_eq(ctl_grown(3, 7), 4);
}
END_TEST

START_TEST(text_that_is_no_histogram_gives_an_empty_one)
{
    static const char *const texts[] = {
        "", "npugraphd_replay_seconds_bucket", "npugraphd_replay_seconds_bucket{le=\"1\"",
        "npugraphd_replay_seconds_bucket{xx=\"1\"} 4\n", "npugraphd_replay_seconds 3\n"};
    struct ctl_histogram h;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        ctl_histogram_read(texts[i], "replay_seconds", &h);
        ck_assert_uint_eq(ctl_histogram_count(&h), 0);
        ck_assert_double_eq(ctl_histogram_quantile(&h, 0.5), 0);
    }
}
END_TEST

START_TEST(more_buckets_than_there_is_room_for_are_left)
{
    char text[16384] = "";
    struct ctl_histogram h;
    size_t n = 0;

    for (int i = 0; i < 2 * CTL_BUCKETS_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "npugraphd_h_bucket{le=\"%d\"} %d\n", i + 1, i);
    ctl_histogram_read(text, "h", &h);
    ck_assert_uint_eq(h.n, CTL_BUCKETS_MAX);
}
END_TEST

UNIT_MAIN("client/ctl_metrics", a_counter_is_the_sum_of_its_rows_and_of_no_other_counter,
          quantiles_are_those_of_the_daemon, what_came_between_two_readings_is_all_that_counts,
          a_daemon_that_was_restarted_counts_from_nothing, text_that_is_no_histogram_gives_an_empty_one,
          more_buckets_than_there_is_room_for_are_left)
