/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/history.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <string.h>

static struct ngd_history *history;
static struct ngd_history_sample sample;
static ngd_nsec_t t;

static void begin_history(void)
{
    static const char *const names[] = {"host:0"};
    static const uint32_t slots[] = {2};

    ck_assert_int_eq(ngd_history_create(&(struct ngd_history_params){1, names, slots}, &history), NGD_OK);
    sample = (struct ngd_history_sample){0};
    for (int i = 0; i < NGD_HISTORY_DEVICES; i++)
        sample.device[i].temperature = sample.device[i].power = NAN;
    t = 1000 * NGD_SEC;
}

static void add_second(void)
{
    sample.at = t;
    ngd_history_add(history, &sample);
    t += NGD_SEC;
}

static int row_of(const char *name, ngd_history_kind_t kind)
{
    for (int i = 0; i < NGD_HISTORY_ROWS; i++)
        if (strcmp(ngd_history_rows[i].name, name) == 0 && ngd_history_rows[i].kind == kind)
            return i;
    ck_abort_msg("there is no row %s", name);
    return -1;
}

/* Returns the JSON, until the next call. */
static const char *printed(int level, uint64_t since)
{
    static struct ngd_strbuf sb;

    ngd_strbuf_fini(&sb);
    ngd_strbuf_init(&sb);
    ngd_clock_set_fake(t);
    ngd_history_json(history, level, since, 5000, &sb);
    ngd_clock_set_fake(-1);
    return ngd_strbuf_str(&sb);
}

#define ck_has(text, part) ck_assert_msg(strstr(text, part) != NULL, "%s is not in %s", part, text)

static unsigned entries(const char *json)
{
    const char *time = strstr(json, "\"time\": [") + 9;
    unsigned n = *time != ']';

    for (; *time != ']'; time++)
        n += *time == ',';
    return n;
}

START_TEST(empty_history_prints_empty_columns)
{
    begin_history();
    ck_has(printed(0, 0), "\"end\": 0");
    ck_has(printed(0, 0), "\"time\": []");
    add_second(); /* the base alone is no sample */
    ck_has(printed(0, 0), "\"tokens\": []");
    ck_has(printed(2, 12345), "\"tokens\": []");
    ngd_history_destroy(history);
    ngd_history_destroy(NULL);
}
END_TEST

START_TEST(rates_are_differences_by_the_time_between_samples)
{
    const int tokens = row_of("tokens", NGD_HISTORY_RATE);

    begin_history();
    sample.value[tokens] = 100;
    add_second();
    sample.value[tokens] = 110;
    add_second();
    t += NGD_SEC; /* the loop was held up: two seconds */
    sample.value[tokens] = 150;
    add_second();
    sample.value[tokens] = 149; /* counters do not fall; rows that move may look so for a moment */
    add_second();
    ck_has(printed(0, 0), "\"tokens\": [10,20,0]");
    ck_has(printed(0, 0), "\"time\": [4996.0,4998.0,4999.0]");
    ck_has(printed(0, 2), "\"tokens\": [0]");
    ck_has(printed(0, 3), "\"tokens\": []");
    ck_has(printed(0, 99), "\"tokens\": []");
    ngd_history_destroy(history);
}
END_TEST

START_TEST(coarse_samples_have_all_counts_and_the_largest_gauges)
{
    const int tokens = row_of("tokens", NGD_HISTORY_RATE), queue = row_of("queue", NGD_HISTORY_GAUGE);

    begin_history();
    for (int i = 0; i <= 60; i++) {
        sample.value[tokens] += 5;
        sample.value[queue] = i == 33 ? 70 : 1;
        sample.device[0].busy += NGD_SEC;
        sample.device[0].used = i == 7 ? 4096 : 64;
        sample.device[0].temperature = i == 58 ? 91 : i > 50 ? 50 : NAN;
        add_second();
    }
    ck_has(printed(1, 0), "\"tokens\": [5,5,5,5,5,5]");
    ck_has(printed(1, 0), "\"queue\": [1,1,1,70,1,1]");
    ck_has(printed(1, 0), "\"busy\": [0.5,0.5,0.5,0.5,0.5,0.5]");
    ck_has(printed(1, 0), "\"used_bytes\": [4096,64,64,64,64,64]");
    ck_has(printed(1, 0), "\"temperature\": [null,null,null,null,null,91]");
    ck_has(printed(2, 0), "\"queue\": [70]");
    ck_has(printed(2, 0), "\"end\": 1");
    ngd_history_destroy(history);
}
END_TEST

START_TEST(quantiles_are_of_what_a_sample_observed)
{
    begin_history();
    ck_assert_int_eq(row_of("step", NGD_HISTORY_LATENCY) >= 0, 1);
    add_second();
    sample.bucket[0][4] += 10; /* 10 to 20 µs; the first latency is that of steps */
    add_second();
    add_second();
    sample.bucket[0][4] = UINT32_MAX; /* counts wrap, differences do not */
    add_second();
    sample.bucket[0][4] += 3;
    add_second();
    ck_has(printed(0, 0), "\"step_p50\": [15,null,15,15]");
    ck_has(printed(0, 0), "\"replay_p99\": [null,null,null,null]");
    ngd_history_destroy(history);
}
END_TEST

START_TEST(rings_keep_what_they_promise_and_no_more)
{
    begin_history();
    for (int i = 0; i < 90000; i++) { /* more than a day */
        sample.value[0]++;
        add_second();
    }
    ck_assert_uint_eq(entries(printed(0, 0)), 300);
    ck_assert_uint_eq(entries(printed(1, 0)), 360);
    ck_assert_uint_eq(entries(printed(2, 0)), 1440);
    ck_has(printed(0, 0), "\"end\": 89999");
    ck_assert_uint_eq(entries(printed(0, 89990)), 9);
    ck_has(printed(2, 0), "\"tokens\": [1,1,1");
    ck_assert_ptr_eq(strstr(printed(2, 0), "inf"), NULL);
    ngd_history_destroy(history);
}
END_TEST

START_TEST(levels_are_found_by_their_step)
{
    ck_assert_int_eq(ngd_history_level(1), 0);
    ck_assert_int_eq(ngd_history_level(10), 1);
    ck_assert_int_eq(ngd_history_level(60), 2);
    ck_assert_int_eq(ngd_history_level(0), -1);
    ck_assert_int_eq(ngd_history_level(UINT64_MAX), -1);
}
END_TEST

START_TEST(metrics_are_read_by_their_rows)
{
    ngd_metric_add(NGD_M_TOKENS_DECODE, 3);
    ngd_metric_dec(NGD_M_QUEUE_DEPTH); /* below 0 for a moment */
    ngd_metric_observe(NGD_M_STEP_SECONDS, 15 * NGD_USEC);
    sample = (struct ngd_history_sample){0};
    ngd_history_read(&sample);
    ck_assert_uint_eq(sample.value[row_of("tokens", NGD_HISTORY_RATE)], 3);
    ck_assert_uint_eq(sample.value[row_of("queue", NGD_HISTORY_GAUGE)], 0);
    ck_assert_uint_eq(sample.bucket[0][4], 1);
}
END_TEST

START_TEST(more_devices_than_are_kept_are_left_out)
{
    static const char *names[NGD_HISTORY_DEVICES + 3];
    static uint32_t slots[NGD_HISTORY_DEVICES + 3];
    unsigned n = 0;

    for (int i = 0; i < NGD_HISTORY_DEVICES + 3; i++)
        names[i] = "x";
    ck_assert_int_eq(ngd_history_create(&(struct ngd_history_params){NGD_HISTORY_DEVICES + 3, names, slots}, &history),
                     NGD_OK);
    for (const char *p = printed(0, 0); (p = strstr(p, "\"name\"")); p++)
        n++;
    ck_assert_uint_eq(n, NGD_HISTORY_DEVICES);
    ngd_history_destroy(history);
}
END_TEST

UNIT_MAIN("daemon/history", empty_history_prints_empty_columns, rates_are_differences_by_the_time_between_samples,
          coarse_samples_have_all_counts_and_the_largest_gauges, quantiles_are_of_what_a_sample_observed,
          rings_keep_what_they_promise_and_no_more, levels_are_found_by_their_step, metrics_are_read_by_their_rows,
          more_devices_than_are_kept_are_left_out)
