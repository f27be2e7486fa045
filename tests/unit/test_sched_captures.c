/* SPDX-License-Identifier: Apache-2.0 */
/* Tests captures that requests wait for, and what happens past their limit. */
#include "scheduler/program/group.h"
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
    /* It enters the run queue with its own plan while the other one still waits there. */
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
    struct ngd_capture_asker asker;
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

static void ahead_push(struct bed *bed, struct ahead *a, struct ngd_binding *b, int64_t n, bool dry_run)
{
    memset(a, 0, sizeof(*a));
    a->asker.done = ahead_done;
    a->asker.user = a;
    gate_init(&a->gate);
    ck_assert_int_eq(ngd_sched_capture(bed->sched, b, &n, 1, NULL, dry_run, &a->asker, NULL), NGD_OK);
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

/* Checks the reason and the text of the newest event. */
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

/* Captures that a client leaves in the queue when it goes away are not made, because others wait behind them. */
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
    ngd_sched_capture_cancel(bed.sched, &gone.asker); /* they end at once, and not when their turn has come */
    ngd_sched_capture_cancel(bed.sched, &dry.asker);
    gate_pass(&gone.gate);
    gate_pass(&dry.gate);
    gate_open(&gate);
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

/* The first waiting request keeps the capture thread: its sizes are refused there, and its done() waits at a gate. */
START_TEST(requests_behind_one_that_is_planned_eagerly_can_be_withdrawn)
{
    struct ngd_graph_options options;
    struct bed bed;
    struct ngd_binding *b;
    struct call first, second, third;
    struct gate capturing, answering;

    ngd_graph_options_init(&options);
    options.force_eager = true;
    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    capture_occupy(&bed, b, &capturing);
    gate_init(&answering);
    call_init(&first, b, 5);
    first.in.bytes = 4;
    first.gate = &answering;
    call_submit(&bed, &first);
    call_init(&second, b, 5);
    call_submit(&bed, &second);
    call_init(&third, b, 5);
    call_submit(&bed, &third);
    gate_open(&capturing);
    gate_await(&answering, 1);
    ck_assert(ngd_sched_cancel(bed.sched, &second.req));
    ck_assert_uint_eq(atomic_load(&second.answers), 1);
    ck_assert_int_eq(second.status, NGD_ERR_CANCELLED);
    gate_open(&answering);
    call_wait(&first);
    ck_assert_int_eq(first.status, NGD_ERR_INPUT_SIZE);
    call_wait(&third);
    call_check(&third);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* ---- turns -------------------------------------------------------------------------------------------- */

static struct ngd_share *open_share(struct bed *bed, const char *name, uint32_t weight, uint64_t limit, uint64_t key)
{
    const struct ngd_share_params params = {.weight = weight, .capture_limit = limit, .key = key};
    struct ngd_share *share = NULL;

    ck_assert_int_eq(ngd_share_open(bed->sched, name, &params, &share, NULL), NGD_OK);
    return share;
}

static struct ngd_binding *bind_of(struct bed *bed, const char *text, struct ngd_share *share)
{
    const struct ngd_owner owner = {.share = share};
    struct ngd_graph_options options;
    struct ngd_program *prog = NULL;
    struct ngd_graph *g = bed_graph(text);
    struct ngd_binding *b;

    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_program_open_in(bed->sched, bed->dev, g, &options, NULL, NULL, &owner, &prog, NULL, NULL),
                     NGD_OK);
    ngd_graph_unref(g);
    b = bed_bind(prog, NULL);
    ngd_program_unref(prog);
    return b;
}

/* The owners of the jobs that ran, in order. */
struct log {
    char text[32];
    _Atomic int n;
};

/* A job that sets the clock forward by its length. */
struct stretch {
    struct ngd_capture_job job;
    ngd_nsec_t takes;
    char who;
    struct log *log;
};

static void stretch_run(struct ngd_capture_job *job)
{
    struct stretch *s = ngd_container_of(job, struct stretch, job);

    ngd_clock_set_fake(ngd_now() + s->takes);
    s->log->text[atomic_load(&s->log->n)] = s->who;
    atomic_fetch_add(&s->log->n, 1);
}

static void push_stretches(struct bed *bed, struct stretch *list, int n, char who, struct ngd_share *share,
                           struct log *log)
{
    for (int i = 0; i < n; i++) {
        list[i] = (struct stretch){.takes = NGD_SEC, .who = who, .log = log};
        list[i].job.run = list[i].job.abort = stretch_run;
        ck_assert(ngd_captures_push(&bed->sched->captures, &list[i].job, share));
    }
}

static void await_log(struct log *log, int n)
{
    while (atomic_load(&log->n) < n)
        sched_yield();
}

/* Returns how often `who` is among the first n. */
static int times(const struct log *log, int n, char who)
{
    int found = 0;

    for (int i = 0; i < n; i++)
        found += log->text[i] == who;
    return found;
}

/* Only the jobs move the clock. */
START_TEST(captures_are_taken_in_turns_by_what_shares_took_over_their_weight)
{
    struct stretch many[12], few[4], heavy[12];
    struct log first = {.text = ""}, second = {.text = ""};
    struct ngd_share *a, *b, *c;
    struct ngd_binding *binding;
    struct gate gate;
    struct bed bed;

    ngd_clock_set_fake(NGD_SEC);
    bed_open(&bed, 1, 0);
    binding = bed_binding(&bed, DOUBLE_TEXT, NULL);
    a = open_share(&bed, "a", 100, 0, 1);
    b = open_share(&bed, "b", 100, 0, 2);
    c = open_share(&bed, "c", 300, 0, 3);
    capture_occupy(&bed, binding, &gate);
    push_stretches(&bed, many, 12, 'a', a, &first);
    push_stretches(&bed, few, 4, 'b', b, &first); /* behind twelve in the order of arrival */
    gate_open(&gate);
    await_log(&first, 16);
    ck_assert_int_eq(times(&first, 2, 'b'), 1); /* it waits for at most one job of the others */
    ck_assert_int_eq(times(&first, 8, 'b'), 4);
    /* Three times the weight: three times the time. */
    capture_occupy(&bed, binding, &gate);
    push_stretches(&bed, few, 4, 'b', b, &second);
    push_stretches(&bed, heavy, 12, 'c', c, &second);
    gate_open(&gate);
    await_log(&second, 16);
    ck_assert_int_eq(times(&second, 8, 'c'), 6);
    ngd_binding_unref(binding);
    ngd_share_unref(a);
    ngd_share_unref(b);
    ngd_share_unref(c);
    bed_close(&bed);
    ngd_clock_set_fake(-1);
}
END_TEST

START_TEST(a_share_may_have_so_many_captures_under_way)
{
    struct ahead ahead[3], other;
    struct ngd_share *greedy, *modest;
    struct ngd_binding *b, *neighbour;
    struct ngd_share_stats stats;
    struct ngd_diag diag = {0};
    struct gate gate;
    struct call c;
    struct bed bed;
    int64_t n = 9;

    bed_open(&bed, 1, 0);
    greedy = open_share(&bed, "greedy", 100, 2, 1);
    modest = open_share(&bed, "modest", 100, 2, 2);
    b = bind_of(&bed, DOUBLE_TEXT, greedy);
    neighbour = bind_of(&bed, DOUBLE_TEXT, modest);
    ck_assert_ptr_ne(ngd_binding_program(b), ngd_binding_program(neighbour));
    capture_occupy(&bed, neighbour, &gate); /* one of the neighbour's two */
    ahead_push(&bed, &ahead[0], b, 3, true);
    ahead_push(&bed, &ahead[1], b, 4, false);
    ck_assert_int_eq(ngd_sched_capture(bed.sched, b, &n, 1, NULL, true, &ahead[2].asker, &diag), NGD_ERR_QUOTA);
    says(diag.text, "2 captures of greedy|max-captures-per-identity");
    call_init(&c, b, 5); /* a replay that misses needs one too */
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_QUOTA);
    ngd_share_stats(greedy, &stats);
    ck_assert_uint_eq(stats.captures, 2);
    ck_assert_uint_eq(stats.captures_refused, 2);
    ahead_push(&bed, &other, neighbour, 3, true);
    ngd_sched_capture_cancel(bed.sched, &ahead[0].asker); /* gives its place back */
    call_submit(&bed, &c);
    gate_open(&gate);
    gate_pass(&ahead[1].gate);
    gate_pass(&other.gate);
    call_wait(&c);
    call_check(&c);
    ngd_binding_unref(b);
    ngd_binding_unref(neighbour);
    ngd_share_stats(greedy, &stats);
    ck_assert_uint_eq(stats.captures, 0);
    ngd_share_unref(greedy);
    ngd_share_unref(modest);
    bed_close(&bed);
}
END_TEST

/* ---- ends of a capture that runs ---------------------------------------------------------------------- */

static char *chain_text(int n)
{
    struct ngd_strbuf sb;
    char *text;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"chain\" {\n sym N 1..64\n input %v0 : f32[N]\n");
    for (int i = 1; i <= n; i++)
        ngd_strbuf_printf(&sb, " %%v%d = aten.add.Tensor(%%v%d, %%v%d)\n", i, i - 1, i > 3 ? i - 3 : 0);
    ngd_strbuf_printf(&sb, " return \"y\" = %%v%d\n}\n", n);
    text = ngd_strdup(ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return text;
}

START_TEST(a_capture_that_takes_too_long_is_stopped)
{
    struct ngd_binding *b;
    struct ahead a;
    struct call c;
    struct bed bed;
    char *text = chain_text(2000);

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, text, NULL);
    bed.sched->params.max_capture_time = NGD_MSEC;
    bed.sched->captures.max_time = 1; /* over at the first safe point */
    ahead_ask(&bed, &a, b, 5, true);
    ck_assert_int_eq(a.status, NGD_ERR_CAPTURE_STOPPED);
    ahead_ask(&bed, &a, b, 5, false);
    ck_assert_int_eq(a.status, NGD_ERR_CAPTURE_STOPPED);
    call_init(&c, b, 6);
    call_run(&bed, &c);
    ck_assert_int_eq(c.status, NGD_ERR_CAPTURE_STOPPED);
    says(c.text, "1 ms|max-capture-time|\"chain\"");
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 0);
    bed.sched->captures.max_time = 0;
    ahead_run(&bed, &a, b, 7, false);
    ngd_binding_unref(b);
    bed_close(&bed);
    ngd_free(text);
}
END_TEST

/* Waits until n threads run a job. */
static void await_running(struct bed *bed, uint32_t n)
{
    struct ngd_captures *captures = &bed->sched->captures;
    bool there = false;

    while (!there) {
        ngd_mutex_lock(&captures->lock);
        there = captures->n_running == n;
        ngd_mutex_unlock(&captures->lock);
        sched_yield();
    }
}

/* The capture may be faster than this thread, so it is tried with one size after the other. */
START_TEST(a_capture_that_runs_is_cancelled)
{
    char *text = chain_text(20000);
    bool stopped = false;
    struct ngd_binding *b;
    struct ahead a;
    struct bed bed;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, text, NULL);
    for (int64_t n = 1; n <= 60 && !stopped; n++) {
        ahead_push(&bed, &a, b, n, n % 2 == 0);
        await_running(&bed, 1);
        ngd_sched_capture_cancel(bed.sched, &a.asker);
        gate_pass(&a.gate);
        stopped = a.status == NGD_ERR_CANCELLED;
        if (!stopped)
            ck_assert_int_eq(a.status, NGD_OK);
        await_running(&bed, 0);
    }
    ck_assert(stopped);
    /* A cancelled capture is not remembered as a failure. */
    ahead_run(&bed, &a, b, 61, false);
    ngd_binding_unref(b);
    bed_close(&bed);
    ngd_free(text);
}
END_TEST

START_TEST(a_capture_ends_with_the_last_request_that_waits_for_it)
{
    char *text = chain_text(20000);
    bool stopped = false;
    struct ngd_binding *b;
    struct call c, other;
    struct bed bed;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, text, NULL);
    for (int64_t n = 1; n <= 60 && !stopped; n++) {
        const int before = bed_counted(&bed, NGD_M_CAPTURES);

        call_init(&c, b, n);
        call_init(&other, b, n);
        call_submit(&bed, &c);
        call_submit(&bed, &other);
        await_running(&bed, 1);
        (void)ngd_sched_cancel(bed.sched, &c.req);
        (void)ngd_sched_cancel(bed.sched, &other.req);
        call_wait(&c);
        call_wait(&other);
        await_running(&bed, 0);
        stopped = bed_counted(&bed, NGD_M_CAPTURES) == before;
    }
    ck_assert(stopped);
    call_init(&c, b, 61);
    call_run(&bed, &c);
    ck_assert_int_eq(c.status, NGD_OK);
    ngd_binding_unref(b);
    bed_close(&bed);
    ngd_free(text);
}
END_TEST

UNIT_MAIN("scheduler/sched_captures", eight_threads_with_the_same_graph_capture_it_once,
          requests_that_miss_wait_together_for_one_capture, capture_whose_requests_are_all_cancelled_is_not_made,
          past_the_limit_evict_drops_and_captures_again, past_the_limit_reject_refuses_and_eager_runs_without_a_capture,
          eviction_that_finds_everything_in_use_runs_eagerly_instead, force_eager_never_captures,
          request_that_asks_for_it_runs_the_captured_plan_eagerly, capture_ahead_says_what_it_did,
          capture_past_the_limit_is_noted_as_refused, captures_that_nobody_waits_for_any_more_are_not_made,
          requests_behind_one_that_is_planned_eagerly_can_be_withdrawn,
          captures_are_taken_in_turns_by_what_shares_took_over_their_weight,
          a_share_may_have_so_many_captures_under_way, a_capture_that_takes_too_long_is_stopped,
          a_capture_that_runs_is_cancelled, a_capture_ends_with_the_last_request_that_waits_for_it)
