/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"
#include "base/mem.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct ngd_strbuf page;

static const char *render_view(const struct ngd_metric_view *view)
{
    ngd_strbuf_clear(&page);
    ngd_metrics_render(&page, view);
    ck_assert(!page.failed);
    return ngd_strbuf_str(&page);
}

static const char *render(void)
{
    return render_view(NULL);
}

static bool has_in(const struct ngd_metric_view *view, const char *line)
{
    char needle[512];

    snprintf(needle, sizeof(needle), "\n%s\n", line);
    return strstr(render_view(view), needle) != NULL;
}

static bool has(const char *line)
{
    return has_in(NULL, line);
}

START_TEST(counter_and_gauge_show_their_values)
{
    ngd_metric_add(NGD_M_LOADED_BYTES, 41);
    ngd_metric_inc(NGD_M_LOADED_BYTES);
    ngd_metric_set(NGD_M_SESSIONS, 3);
    ngd_metric_inc(NGD_M_SESSIONS);
    ngd_metric_dec(NGD_M_SESSIONS);
    ngd_metric_dec(NGD_M_SESSIONS);
    ck_assert_uint_eq(ngd_metric_get(NGD_M_LOADED_BYTES), 42);
    ck_assert_uint_eq(ngd_metric_get(NGD_M_SESSIONS), 2);
    ck_assert(has("npugraphd_loaded_bytes_total 42"));
    ck_assert(has("npugraphd_sessions 2"));
    ngd_metric_set(NGD_M_SESSIONS, -1);
    ck_assert(has("npugraphd_sessions -1"));
}
END_TEST

START_TEST(row_is_the_same_for_the_same_label_and_sums_up)
{
    struct ngd_metric_row *a = ngd_metric_row(NGD_M_REPLAYS, "decode"), *b = ngd_metric_row(NGD_M_REPLAYS, "prefill");

    ck_assert_ptr_ne(a, b);
    ck_assert_ptr_eq(a, ngd_metric_row(NGD_M_REPLAYS, "decode"));
    ngd_metric_row_add(a, 5);
    ngd_metric_row_add(b, 7);
    ck_assert_uint_eq(ngd_metric_row_get(a), 5);
    ck_assert_uint_eq(ngd_metric_get(NGD_M_REPLAYS), 12);
    ck_assert(has("npugraphd_graph_replays_total{graph=\"decode\",owner=\"\"} 5"));
    ck_assert(has("npugraphd_graph_replays_total{graph=\"prefill\",owner=\"\"} 7"));
}
END_TEST

START_TEST(hidden_row_is_not_shown_until_asked_for_again)
{
    struct ngd_metric_row *row = ngd_metric_row(NGD_M_REPLAYS, "gone");

    ngd_metric_row_add(row, 9);
    ngd_metric_row_hide(row);
    ck_assert_ptr_null(strstr(render(), "\"gone\""));
    ck_assert_ptr_eq(ngd_metric_row(NGD_M_REPLAYS, "gone"), row);
    ck_assert(has("npugraphd_graph_replays_total{graph=\"gone\",owner=\"\"} 9")); /* a counter does not go back */
    ngd_metric_row_hide(NULL);
}
END_TEST

START_TEST(labels_are_escaped_bounded_and_valid_utf8)
{
    char text[1000];

    ngd_metric_row_add(ngd_metric_row(NGD_M_RPCS, "a\"b\\c\nd\xff\xc3\xa9"), 1);
    ck_assert(has("npugraphd_rpc_requests_total{method=\"a\\\"b\\\\c\\nd?\xc3\xa9\"} 1"));
    memset(text, 'w', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ngd_metric_row_add(ngd_metric_row(NGD_M_RPCS, text), 1);
    ck_assert_ptr_null(strstr(render(), text + sizeof(text) - 200));
}
END_TEST

START_TEST(rows_beyond_the_limit_go_to_other_and_hidden_ones_are_reused)
{
    struct ngd_metric_row *rows[NGD_METRIC_ROWS_MAX], *extra, *again;
    char label[32];

    for (int i = 0; i < NGD_METRIC_ROWS_MAX; i++) {
        snprintf(label, sizeof(label), "g%d", i);
        rows[i] = ngd_metric_row(NGD_M_CAPTURES, label);
        ngd_metric_row_add(rows[i], 1);
    }
    extra = ngd_metric_row(NGD_M_CAPTURES, "one too many");
    ck_assert_ptr_eq(extra, ngd_metric_row(NGD_M_CAPTURES, "and another"));
    ngd_metric_row_add(extra, 3);
    ck_assert(has("npugraphd_graph_captures_total{graph=\"other\",owner=\"other\"} 3"));
    ngd_metric_row_hide(rows[17]);
    again = ngd_metric_row(NGD_M_CAPTURES, "new");
    ck_assert_ptr_eq(again, rows[17]);
    ck_assert(has("npugraphd_graph_captures_total{graph=\"new\",owner=\"\"} 0"));
    ck_assert(has("npugraphd_graph_captures_total{graph=\"other\",owner=\"other\"} 4")); /* nothing counted is lost */
}
END_TEST

static const char *replays_of_others(uint64_t n)
{
    static char line[100];

    snprintf(line, sizeof(line), "npugraphd_graph_replays_total{graph=\"other\",owner=\"other\"} %" PRIu64, n);
    return line;
}

START_TEST(rows_of_owners_are_apart_and_a_view_shows_only_its_own)
{
    const uint64_t before = ngd_metric_get(NGD_M_REPLAYS); /* without forks the rows of other tests exist too */
    struct ngd_metric_row *a = ngd_metric_row_of(NGD_M_REPLAYS, "same", "uid:1"),
                          *b = ngd_metric_row_of(NGD_M_REPLAYS, "same", "uid:2"),
                          *blocks = ngd_metric_row_of(NGD_M_KV_BLOCKS_USED, "m", "uid:2");
    const struct ngd_metric_view own = {.owner = "uid:1"}, nobody = {.owner = NULL};

    ck_assert_ptr_ne(a, b);
    ngd_metric_row_add(a, 5);
    ngd_metric_row_add(b, 7);
    ngd_metric_row_set(blocks, 9);
    ngd_metric_row_add(ngd_metric_row(NGD_M_IDENTITY_REPLAYS, "uid:2"), 3);
    ngd_metric_row_add(ngd_metric_row(NGD_M_RPC_ERRORS, "DRAINING"), 1);
    ck_assert(has("npugraphd_graph_replays_total{graph=\"same\",owner=\"uid:1\"} 5"));
    ck_assert(has("npugraphd_graph_replays_total{graph=\"same\",owner=\"uid:2\"} 7"));
    ck_assert(has("npugraphd_identity_replays_total{identity=\"uid:2\"} 3"));
    ck_assert(has_in(&own, "npugraphd_graph_replays_total{graph=\"same\",owner=\"uid:1\"} 5"));
    ck_assert(has_in(&own, replays_of_others(before + 7)));
    ck_assert(has_in(&own, "npugraphd_identity_replays_total{identity=\"other\"} 3"));
    ck_assert(has_in(&own, "npugraphd_rpc_errors_total{reason=\"DRAINING\"} 1"));
    ck_assert_ptr_null(strstr(render_view(&own), "uid:2"));
    ck_assert(has_in(&nobody, replays_of_others(before + 12)));
    ck_assert(has_in(&nobody, "npugraphd_kv_blocks_used{model=\"other\",owner=\"other\"} 9"));
    ck_assert_ptr_null(strstr(render_view(&nobody), "uid:"));
    ngd_metric_row_hide(b); /* a sum of counters does not fall when an object goes; one of gauges does */
    ngd_metric_row_hide(blocks);
    ck_assert(has_in(&nobody, replays_of_others(before + 12)));
    ck_assert(has_in(&nobody, "npugraphd_kv_blocks_used{model=\"other\",owner=\"other\"} 0"));
    ck_assert_uint_eq(ngd_metric_get(NGD_M_KV_BLOCKS_USED), 0);
}
END_TEST

START_TEST(row_without_memory_is_other_and_never_null)
{
    struct ngd_metric_row *row;

    ngd_mem_fail_after(0);
    row = ngd_metric_row(NGD_M_RPC_ERRORS, "QUOTA");
    ngd_mem_fail_after(-1);
    ck_assert_ptr_nonnull(row);
    ngd_metric_row_add(row, 2);
    ck_assert(has("npugraphd_rpc_errors_total{reason=\"other\"} 2"));
}
END_TEST

START_TEST(histogram_counts_each_value_in_its_bucket)
{
    ngd_metric_observe(NGD_M_REPLAY_SECONDS, 1000);         /* exactly 1 µs: le 1 µs */
    ngd_metric_observe(NGD_M_REPLAY_SECONDS, 1001);         /* le 2 µs */
    ngd_metric_observe(NGD_M_REPLAY_SECONDS, -5);           /* a negative time, from a clock that jumped, counts as 0 */
    ngd_metric_observe(NGD_M_REPLAY_SECONDS, 11 * NGD_SEC); /* above all */
    ck_assert_uint_eq(ngd_metric_get(NGD_M_REPLAY_SECONDS), 4);
    ck_assert(has("npugraphd_replay_seconds_bucket{le=\"1e-06\"} 2"));
    ck_assert(has("npugraphd_replay_seconds_bucket{le=\"2e-06\"} 3"));
    ck_assert(has("npugraphd_replay_seconds_bucket{le=\"10\"} 3"));
    ck_assert(has("npugraphd_replay_seconds_bucket{le=\"+Inf\"} 4"));
    ck_assert(has("npugraphd_replay_seconds_sum 11.000002001"));
    ck_assert(has("npugraphd_replay_seconds_count 4"));
}
END_TEST

START_TEST(quantile_interpolates_inside_its_bucket)
{
    uint64_t count[NGD_METRIC_BUCKETS];

    ck_assert(ngd_metric_quantile(NGD_M_QUEUE_SECONDS, 0.5) == 0);
    for (int i = 0; i < 100; i++)
        ngd_metric_observe(NGD_M_QUEUE_SECONDS, 15 * NGD_USEC); /* bucket 10..20 µs */
    ck_assert_double_eq_tol(ngd_metric_quantile(NGD_M_QUEUE_SECONDS, 0.5), 15e-6, 1e-9);
    ck_assert_double_eq_tol(ngd_metric_quantile(NGD_M_QUEUE_SECONDS, 1), 20e-6, 1e-9);
    ngd_metric_observe(NGD_M_QUEUE_SECONDS, 100 * NGD_SEC);
    ck_assert_double_eq_tol(ngd_metric_quantile(NGD_M_QUEUE_SECONDS, 1), 10, 1e-9);
    ngd_metric_buckets(NGD_M_QUEUE_SECONDS, count);
    ck_assert_uint_eq(count[4], 100);
    ck_assert_uint_eq(count[NGD_METRIC_BUCKETS - 1], 1);
    count[NGD_METRIC_BUCKETS - 1] = 0; /* a difference of two times is such an array too */
    ck_assert_double_eq_tol(ngd_metric_buckets_quantile(count, 1), 20e-6, 1e-9);
}
END_TEST

START_TEST(time_counter_counts_microseconds_and_shows_seconds)
{
    ngd_metric_row_add(ngd_metric_row(NGD_M_DEVICE_BUSY_SECONDS, "host0"), 2500001);
    ck_assert(has("npugraphd_device_busy_seconds_total{device=\"host0\"} 2.500001"));
}
END_TEST

static void *count_up(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10000; i++) {
        ngd_metric_inc(NGD_M_BATCHES);
        ngd_metric_observe(NGD_M_STEP_SECONDS, i);
        if (i % 100 == 0)
            ngd_metric_row_add(ngd_metric_row(NGD_M_EAGER_RUNS, i % 200 ? "x" : "y"), 1);
    }
    return NULL;
}

START_TEST(no_count_is_lost_between_threads_and_a_scrape)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < 20; i++)
        render();
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(ngd_metric_get(NGD_M_BATCHES), 40000);
    ck_assert_uint_eq(ngd_metric_get(NGD_M_STEP_SECONDS), 40000);
    ck_assert_uint_eq(ngd_metric_get(NGD_M_EAGER_RUNS), 400);
}
END_TEST

START_TEST(adding_allocates_nothing)
{
    struct ngd_metric_row *row = ngd_metric_row(NGD_M_REPLAYS, "hot");
    uint64_t before = ngd_mem_thread_allocs();

    ngd_metric_inc(NGD_M_BATCHES);
    ngd_metric_observe(NGD_M_REPLAY_SECONDS, 5);
    ngd_metric_row_add(row, 1);
    ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
}
END_TEST

START_TEST(promtool_accepts_the_page)
{
    FILE *f;

    if (system("command -v promtool >/dev/null 2>&1") != 0) {
        printf("skip - promtool_accepts_the_page: promtool is not installed\n");
        return;
    }
    for (int m = 0; m < NGD_M_MAX; m++)
        ngd_metric_row_add(ngd_metric_row((ngd_metric_t)m, "some \"label\""), 1);
    f = popen("promtool check metrics >&2", "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(render(), f), 0);
    ck_assert_int_eq(pclose(f), 0);
}
END_TEST

UNIT_MAIN("base/metrics", counter_and_gauge_show_their_values, row_is_the_same_for_the_same_label_and_sums_up,
          hidden_row_is_not_shown_until_asked_for_again, labels_are_escaped_bounded_and_valid_utf8,
          rows_beyond_the_limit_go_to_other_and_hidden_ones_are_reused,
          rows_of_owners_are_apart_and_a_view_shows_only_its_own, row_without_memory_is_other_and_never_null,
          histogram_counts_each_value_in_its_bucket, quantile_interpolates_inside_its_bucket,
          time_counter_counts_microseconds_and_shows_seconds, no_count_is_lost_between_threads_and_a_scrape,
          adding_allocates_nothing, promtool_accepts_the_page)
