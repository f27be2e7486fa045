/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/record/recorder.h"
#include "tests/unit/graph_util.h"
#include <inttypes.h>
#include <pthread.h>

static struct ngd_flight_event list[NGD_RECORDER_EVENTS + 1];

struct world {
    struct ngd_recorder rec;
    struct ngd_graph *graph;
};

static void world_open(struct world *w)
{
    memset(w, 0, sizeof(*w));
    w->graph = parse_body(" input %x : f32[4]\n %y = aten.neg(%x)\n return %y");
    ck_assert_int_eq(ngd_recorder_init(&w->rec), NGD_OK);
}

static void world_close(struct world *w)
{
    ngd_recorder_fini(&w->rec);
    ngd_graph_unref(w->graph);
}

static void note(struct world *w, ngd_event_reason_t reason, uint64_t program, uint64_t key, uint64_t tag)
{
    struct ngd_event_about about = {.program = program, .graph = w->graph, .key = key, .tag = tag};

    ngd_recorder_note(&w->rec, reason, &about, "tag %" PRIu64, tag);
}

START_TEST(events_are_read_newest_first_and_repetitions_are_counted)
{
    struct world w;

    world_open(&w);
    note(&w, NGD_EVENT_MISS_FIRST, 1, 7, 100);
    note(&w, NGD_EVENT_CAPTURED, 1, 7, 0);
    for (uint64_t tag = 1; tag <= 50; tag++)
        note(&w, NGD_EVENT_REFUSED_GUARD, 1, 0, tag);
    note(&w, NGD_EVENT_REFUSED_GUARD, 2, 0, 60);
    note(&w, NGD_EVENT_MISS_FIRST, 1, 7, 101);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 0, NULL, NULL, list, NGD_RECORDER_EVENTS), 4);
    ck_assert(list[0].reason == NGD_EVENT_REFUSED_GUARD && list[0].program == 2 && list[0].count == 1);
    ck_assert(list[1].reason == NGD_EVENT_REFUSED_GUARD && list[1].count == 50 && list[1].tag == 50);
    ck_assert_str_eq(list[1].text, "tag 50");
    ck_assert(list[1].last >= list[1].first);
    ck_assert(list[3].reason == NGD_EVENT_MISS_FIRST && list[3].count == 2 && list[3].tag == 101);
    ck_assert_str_eq(list[3].name, "t");
    world_close(&w);
}
END_TEST

static bool of_key(void *ctx, const struct ngd_flight_event *e)
{
    return e->key == *(const uint64_t *)ctx;
}

START_TEST(ring_keeps_the_newest_and_a_reader_gets_what_it_asked_for)
{
    uint64_t key = NGD_RECORDER_EVENTS + 10;
    struct world w;

    world_open(&w);
    for (uint64_t k = 1; k <= NGD_RECORDER_EVENTS + 100; k++)
        note(&w, NGD_EVENT_MISS_EVICTED, 1, k, k);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 0, NULL, NULL, list, NGD_RECORDER_EVENTS + 1), NGD_RECORDER_EVENTS);
    ck_assert_uint_eq(list[0].key, NGD_RECORDER_EVENTS + 100);
    ck_assert_uint_eq(list[NGD_RECORDER_EVENTS - 1].key, 101);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 0, NULL, NULL, list, 3), 3);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 0, of_key, &key, list, 3), 1);
    ck_assert_uint_eq(list[0].tag, key);
    world_close(&w);
}
END_TEST

START_TEST(a_flood_of_one_kind_does_not_push_out_the_rest)
{
    struct world w;

    world_open(&w);
    note(&w, NGD_EVENT_QUARANTINED, 3, 9, 1);
    for (int i = 0; i < 20000; i++)
        note(&w, NGD_EVENT_EAGER_FORCED, 1, 5, 2);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 0, NULL, NULL, list, NGD_RECORDER_EVENTS), 2);
    ck_assert(list[0].count == 20000 && list[1].reason == NGD_EVENT_QUARANTINED);
    world_close(&w);
}
END_TEST

START_TEST(a_request_with_a_tag_is_found_after_others_of_its_kind)
{
    uint64_t key = 5;
    struct world w;

    world_open(&w);
    note(&w, NGD_EVENT_PADDED, 1, 4, 0);
    for (uint64_t tag = 1; tag <= 1000; tag++)
        note(&w, NGD_EVENT_PADDED, 1, 4 + tag % 2, tag);
    note(&w, NGD_EVENT_PADDED, 1, 4, 0);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 0, NULL, NULL, list, NGD_RECORDER_EVENTS), 2);
    ck_assert(list[0].count == 500 && list[1].count == 502 && list[1].tag == 0);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 7, NULL, NULL, list, NGD_RECORDER_EVENTS), 1);
    ck_assert(list[0].reason == NGD_EVENT_PADDED && list[0].key == 5 && list[0].tag == 7 && list[0].count == 1);
    ck_assert(list[0].number == 2); /* the event that it is one of */
    ck_assert_str_eq(list[0].text, "tag 7");
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 8, of_key, &key, list, NGD_RECORDER_EVENTS), 0);
    for (uint64_t i = 0; i < NGD_RECORDER_EVENTS; i++)
        note(&w, NGD_EVENT_PADDED, 1, 4, 5000);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 5000, NULL, NULL, list, NGD_RECORDER_EVENTS), 1);
    ck_assert_uint_eq(list[0].count, NGD_RECORDER_EVENTS);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 7, NULL, NULL, list, NGD_RECORDER_EVENTS), 1);
    for (uint64_t tag = 5001; tag <= 5000 + NGD_RECORDER_EVENTS; tag++)
        note(&w, NGD_EVENT_PADDED, 1, 4, tag);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 7, NULL, NULL, list, NGD_RECORDER_EVENTS), 0);
    ck_assert_uint_eq(ngd_recorder_read(&w.rec, 5001, NULL, NULL, list, NGD_RECORDER_EVENTS), 1);
    world_close(&w);
}
END_TEST

static void *note_many(void *arg)
{
    struct world *w = arg;

    for (uint64_t i = 0; i < 20000; i++)
        note(w, (ngd_event_reason_t)(i % NGD_EVENT_MAX), i % 3, i % 5, i);
    return NULL;
}

START_TEST(threads_lose_no_count)
{
    const uint64_t before = ngd_metric_get(NGD_M_FLIGHT_EVENTS); /* of other tests, where they share the process */
    pthread_t threads[4];
    uint64_t counted = 0;
    struct world w;
    uint32_t n;

    world_open(&w);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(ngd_thread_start(&threads[i], "note", note_many, &w), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    n = ngd_recorder_read(&w.rec, 0, NULL, NULL, list, NGD_RECORDER_EVENTS);
    for (uint32_t i = 0; i < n; i++)
        counted += list[i].count;
    ck_assert_uint_gt(n, 0);
    /* Repetitions are searched only so far back, and events that have left the ring are not in the sum. */
    ck_assert_uint_le(counted, 80000);
    ck_assert_uint_eq(ngd_metric_get(NGD_M_FLIGHT_EVENTS) - before, 80000);
    world_close(&w);
}
END_TEST

UNIT_MAIN("scheduler/recorder", events_are_read_newest_first_and_repetitions_are_counted,
          ring_keeps_the_newest_and_a_reader_gets_what_it_asked_for, a_flood_of_one_kind_does_not_push_out_the_rest,
          a_request_with_a_tag_is_found_after_others_of_its_kind, threads_lose_no_count)
