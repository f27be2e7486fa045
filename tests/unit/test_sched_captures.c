/* SPDX-License-Identifier: Apache-2.0 */
/* Captures that requests wait for, and what happens past the limit of them. */
#include "tests/unit/sched_util.h"

struct herd {
    struct bed *bed;
    struct ngd_binding *binding;
    pthread_barrier_t start;
};

static void *herd_submit(void *arg)
{
    struct herd *h = arg;
    struct call c;

    call_init(&c, h->binding, 9);
    pthread_barrier_wait(&h->start);
    call_run(h->bed, &c);
    call_check(&c);
    return NULL;
}

START_TEST(eight_threads_with_the_same_graph_capture_it_once)
{
    struct bed bed;
    struct herd herd = {.bed = &bed};
    struct ngd_program_stats stats;
    pthread_t t[8];

    bed_open(&bed, 2, 0);
    herd.binding = bed_binding(&bed, DOUBLE_TEXT, NULL);
    pthread_barrier_init(&herd.start, NULL, 8);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, herd_submit, &herd), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    ngd_program_stats(herd.binding->prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.replays, 8);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CACHE_HITS) + bed_counted(&bed, NGD_M_CACHE_MISSES), 8);
    ngd_binding_unref(herd.binding);
    bed_close(&bed);
}
END_TEST

START_TEST(requests_that_miss_wait_together_for_one_capture)
{
    uint64_t before = row_count(NGD_M_CACHE_MISSES, "first");
    struct bed bed;
    struct ngd_binding *b;
    struct call c[4];
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    capture_occupy(&bed, b, &gate);
    for (int i = 0; i < 4; i++) {
        call_init(&c[i], b, 5);
        call_submit(&bed, &c[i]);
        ck_assert_int_eq(atomic_load(&c[i].req.state), NGD_REQUEST_WAITING_CAPTURE);
    }
    gate_open(&gate);
    for (int i = 0; i < 4; i++) {
        call_wait(&c[i]);
        call_check(&c[i]);
    }
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ck_assert_uint_eq(row_count(NGD_M_CACHE_MISSES, "first") - before, 4);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(capture_whose_requests_are_all_cancelled_is_not_made)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c, other;
    struct gate gate;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    capture_occupy(&bed, b, &gate);
    call_init(&c, b, 5);
    call_submit(&bed, &c);
    ck_assert(ngd_sched_cancel(bed.sched, &c.req));
    gate_open(&gate);
    call_init(&other, b, 6);
    call_run(&bed, &other);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(past_the_limit_evict_drops_and_captures_again)
{
    uint64_t before_evicted = row_count(NGD_M_CACHE_MISSES, "evicted");
    uint64_t before_capture_limit = row_count(NGD_M_CACHE_EVICTIONS, "capture_limit");
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct bed bed;
    struct ngd_binding *b;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, b, 3, 2);
    bed_settle(&bed); /* the worker has unpinned it */
    bed_warm(&bed, b, 4, 2);
    bed_settle(&bed);
    bed_warm(&bed, b, 3, 1);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 3);
    ck_assert_uint_eq(stats.cache.evictions, 2);
    ck_assert_uint_eq(stats.cache.entries, 1);
    ck_assert_uint_eq(row_count(NGD_M_CACHE_MISSES, "evicted") - before_evicted, 1);
    ck_assert_uint_eq(row_count(NGD_M_CACHE_EVICTIONS, "capture_limit") - before_capture_limit, 2);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CACHE_ENTRIES), 1);
    ngd_binding_unref(b);
    bed_close(&bed);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CACHE_ENTRIES), 0);
}
END_TEST

START_TEST(past_the_limit_reject_refuses_and_eager_runs_without_a_capture)
{
    uint64_t before = row_count(NGD_M_EAGER_RUNS, "capture_limit");
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct bed bed;
    struct ngd_binding *reject, *eager;
    struct call c;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    options.capture_limit_policy = NGD_GCACHE_REJECT;
    bed_open(&bed, 1, 0);
    reject = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, reject, 3, 1);
    call_init(&c, reject, 4);
    call_run(&bed, &c);
    ck_assert_int_eq(c.status, NGD_ERR_CAPTURE_LIMIT);
    ck_assert(strstr(c.text, "capture_limit is 1"));
    options.capture_limit_policy = NGD_GCACHE_EAGER;
    eager = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, eager, 3, 1);
    bed_warm(&bed, eager, 4, 2);
    ngd_program_stats(eager->prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.replays, 1);
    ck_assert_uint_eq(stats.eager_runs, 2);
    ck_assert_uint_eq(row_count(NGD_M_EAGER_RUNS, "capture_limit") - before, 2);
    ngd_binding_unref(reject);
    ngd_binding_unref(eager);
    bed_close(&bed);
}
END_TEST

START_TEST(eviction_that_finds_everything_in_use_runs_eagerly_instead)
{
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct bed bed;
    struct ngd_binding *b;
    struct call busy, queued, c;
    struct gate gate;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    call_occupy(&bed, &busy, b, &gate);
    call_init(&queued, b, 2); /* pins the only executable */
    call_submit(&bed, &queued);
    call_init(&c, b, 3);
    call_submit(&bed, &c);
    /* It comes to the run queue with a plan of its own while the other still waits there. */
    while (atomic_load(&c.req.state) != NGD_REQUEST_QUEUED)
        sched_yield();
    gate_open(&gate);
    call_wait(&c);
    call_check(&c);
    call_wait(&queued);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.eager_runs, 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(force_eager_never_captures)
{
    uint64_t before = row_count(NGD_M_EAGER_RUNS, "force_eager");
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct bed bed;
    struct ngd_binding *b;

    ngd_graph_options_init(&options);
    options.force_eager = true;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, b, 3, 3);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 0);
    ck_assert_uint_eq(stats.eager_runs, 3);
    ck_assert_uint_eq(row_count(NGD_M_EAGER_RUNS, "force_eager") - before, 3);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_REPLAYS), 0);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(request_that_asks_for_it_runs_the_captured_plan_eagerly)
{
    uint64_t before = row_count(NGD_M_EAGER_RUNS, "requested");
    struct bed bed;
    struct ngd_binding *b;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_init(&c, b, 3);
    c.req.launch.eager = true;
    call_run(&bed, &c);
    call_check(&c);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ck_assert_uint_eq(row_count(NGD_M_EAGER_RUNS, "requested") - before, 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

struct ahead {
    struct gate gate;
    _Atomic bool given_up;
    ngd_status_t status;
    struct ngd_capture_info info;
};

static void ahead_done(void *user, ngd_status_t status, const struct ngd_capture_info *info,
                       const struct ngd_diag *diag)
{
    struct ahead *a = user;

    (void)diag;
    a->status = status;
    a->info = *info;
    gate_open(&a->gate);
}

static bool ahead_wanted(void *user)
{
    struct ahead *a = user;

    return !atomic_load(&a->given_up);
}

static void ahead_push(struct bed *bed, struct ahead *a, struct ngd_binding *b, int64_t n, bool dry_run)
{
    struct ngd_capture_asker asker = {.wanted = ahead_wanted, .done = ahead_done, .user = a};

    memset(a, 0, sizeof(*a));
    gate_init(&a->gate);
    ck_assert_int_eq(ngd_sched_capture(bed->sched, b, &n, 1, NULL, dry_run, &asker, NULL), NGD_OK);
}

static void ahead_ask(struct bed *bed, struct ahead *a, struct ngd_binding *b, int64_t n, bool dry_run)
{
    ahead_push(bed, a, b, n, dry_run);
    gate_pass(&a->gate);
}

static void ahead_run(struct bed *bed, struct ahead *a, struct ngd_binding *b, int64_t n, bool dry_run)
{
    ahead_ask(bed, a, b, n, dry_run);
    ck_assert_int_eq(a->status, NGD_OK);
}

/* The newest event says this. */
static void check_noted(struct bed *bed, ngd_event_reason_t reason, const char *text)
{
    struct ngd_flight_event e;

    ck_assert_uint_eq(ngd_recorder_read(ngd_sched_recorder(bed->sched), 0, NULL, NULL, &e, 1), 1);
    ck_assert_int_eq(e.reason, reason);
    if (!strstr(e.text, text))
        ck_abort_msg("%s", e.text);
}

START_TEST(capture_past_the_limit_is_noted_as_refused)
{
    struct ngd_graph_options options;
    struct ngd_binding *b;
    struct ahead a;
    struct bed bed;

    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    options.capture_limit_policy = NGD_GCACHE_REJECT;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    ahead_run(&bed, &a, b, 6, false);
    ck_assert_int_eq(a.status, NGD_OK);
    ahead_ask(&bed, &a, b, 7, false);
    ck_assert_int_eq(a.status, NGD_ERR_CAPTURE_LIMIT);
    check_noted(&bed, NGD_EVENT_REFUSED_LIMIT, "CAPTURE_LIMIT: capture: ");
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(capture_ahead_says_what_it_did)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ahead a;
    struct ngd_capture_asker asker = {.done = ahead_done, .user = &a};
    struct ngd_diag diag = {0};
    int64_t n = 65;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ahead_run(&bed, &a, b, 6, true);
    ck_assert(!a.info.captured);
    ck_assert_uint_gt(a.info.pool_bytes, 0);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 0);
    ahead_run(&bed, &a, b, 6, false);
    ck_assert(a.info.captured);
    ck_assert_uint_eq(a.info.kernels, 1);
    ck_assert(strstr(a.info.key, "N==6"));
    ck_assert(a.info.duration > 0);
    ahead_run(&bed, &a, b, 6, false);
    ck_assert(!a.info.captured);
    ck_assert_int_eq(ngd_sched_capture(bed.sched, b, &n, 1, NULL, false, &asker, &diag), NGD_ERR_GUARD_FAILED);
    check_noted(&bed, NGD_EVENT_REFUSED_GUARD, "GUARD_FAILED: capture: ");
    /* What a request had captured is there for others too. */
    bed_warm(&bed, b, 7, 1);
    ahead_run(&bed, &a, b, 7, false);
    ck_assert(!a.info.captured);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* What a client that went away leaves in the queue is not made: others wait behind it. */
START_TEST(captures_that_nobody_waits_for_any_more_are_not_made)
{
    struct bed bed;
    struct gate gate;
    struct ngd_binding *b;
    struct ahead gone, dry, wanted;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    capture_occupy(&bed, b, &gate);
    ahead_push(&bed, &gone, b, 6, false);
    ahead_push(&bed, &dry, b, 6, true);
    ahead_push(&bed, &wanted, b, 7, false);
    atomic_store(&gone.given_up, true);
    atomic_store(&dry.given_up, true);
    gate_open(&gate);
    gate_pass(&gone.gate);
    gate_pass(&dry.gate);
    gate_pass(&wanted.gate);
    ck_assert_int_eq(gone.status, NGD_ERR_CANCELLED);
    ck_assert_int_eq(dry.status, NGD_ERR_CANCELLED);
    ck_assert_int_eq(wanted.status, NGD_OK);
    ck_assert_uint_eq(wanted.info.executables, 1);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/sched_captures", eight_threads_with_the_same_graph_capture_it_once,
          requests_that_miss_wait_together_for_one_capture, capture_whose_requests_are_all_cancelled_is_not_made,
          past_the_limit_evict_drops_and_captures_again, past_the_limit_reject_refuses_and_eager_runs_without_a_capture,
          eviction_that_finds_everything_in_use_runs_eagerly_instead, force_eager_never_captures,
          request_that_asks_for_it_runs_the_captured_plan_eagerly, capture_ahead_says_what_it_did,
          capture_past_the_limit_is_noted_as_refused, captures_that_nobody_waits_for_any_more_are_not_made)
