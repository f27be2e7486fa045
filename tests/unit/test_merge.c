/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests which waiting replays of graphs with a batch symbol are merged. How long they wait, and what deadlines allow,
 * is in test_merge_waits.c; the rule of lingering alone is in test_linger.c.
 */
#include "base/fault.h"
#include "tests/unit/merge_util.h"

/* A graph with an index: one that is out of range fails only its own request. */
#define PICK_ROWS_TEXT                                                                                    \
    "npugraph 1\ngraph \"pick\" {\n sym B 1..8 batch buckets 8\n param %w : f32[4]\n input %i : i32[B]\n" \
    " %y = aten.index.Tensor(%w, %i)\n return \"y\" = %y\n}\n"

#define BLOCKERS_MAX 8

START_TEST(replays_of_several_clients_that_wait_run_as_one)
{
    static const int64_t rows[] = {1, 3, 1, 7, 2, 1, 4, 5};
    enum { N = 8 };
    struct ngd_binding *b[2];
    struct call c[N];
    struct stage s;
    ngd_nsec_t charged = 0;

    stage_open(&s, 0);
    b[0] = bed_binding(&s.bed, ROWS_TEXT, NULL);
    b[1] = bed_binding(&s.bed, ROWS_TEXT, NULL);
    warm_buckets(&s, b[0]);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_MERGED_REPLAYS), 0);
    for (int i = 0; i < N; i++)
        ck_assert_ptr_eq(b[i % 2]->prog, b[0]->prog);
    bed_warm(&s.bed, b[1], 3, 1);
    hold(&s);
    for (int i = 0; i < N; i++)
        submit_rows(&s, &c[i], b[i % 2], rows[i]);
    let_go(&s);
    check_together(c, N, N);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(c[i].req.launch.device_time, c[0].req.launch.device_time);
        charged += c[i].req.charged;
    }
    ck_assert_int_eq(charged, c[0].req.launch.device_time);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_MERGED_REPLAYS), 1);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_MERGED_REQUESTS), N);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_MERGED_ROWS), 24);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_QUEUE_DEPTH), 0);
    ngd_binding_unref(b[0]);
    ngd_binding_unref(b[1]);
    stage_close(&s);
}
END_TEST

static struct ngd_share *open_capped(struct stage *s, uint32_t percent)
{
    const struct ngd_share_params params = {.weight = NGD_WEIGHT_DEFAULT, .device_percent = percent};
    struct ngd_share *share;

    ck_assert_int_eq(ngd_share_open(s->bed.sched, "uid:1000", &params, &share, NULL), NGD_OK);
    return share;
}

START_TEST(what_a_cap_holds_back_does_not_join_and_goes_when_the_cap_does)
{
    struct ngd_share *capped, *lifted;
    struct ngd_binding *b;
    struct call c[3];
    struct stage s;

    b = open_warm(&s);
    bed_warm(&s.bed, b, 2, 1);
    capped = open_capped(&s, 1);
    ngd_share_charge(&s.bed.sched->queues[0], &capped->accounts[0], 1000 * NGD_SEC, 0);
    hold(&s);
    for (int i = 0; i < 3; i++) {
        call_init(&c[i], b, 2);
        c[i].req.share = i == 1 ? capped : NULL;
        call_submit(&s.bed, &c[i]);
    }
    let_go(&s);
    call_wait(&c[0]);
    call_wait(&c[2]);
    ck_assert_uint_eq(c[0].req.together, 2);
    ck_assert_uint_eq(c[2].req.together, 2);
    ck_assert_uint_eq(atomic_load(&c[1].answers), 0);
    lifted = open_capped(&s, 0);
    call_wait(&c[1]);
    ck_assert_uint_eq(c[1].req.together, 1);
    for (int i = 0; i < 3; i++)
        call_check(&c[i]);
    ngd_share_unref(capped);
    ngd_share_unref(lifted);
    stage_close_with(&s, b);
}
END_TEST

START_TEST(what_does_not_fit_in_the_largest_bucket_runs_next)
{
    struct ngd_binding *b;
    struct call c[5];
    struct stage s;

    b = open_warm(&s);
    bed_warm(&s.bed, b, 10, 1);
    hold(&s);
    for (int i = 0; i < 5; i++)
        submit_rows(&s, &c[i], b, i == 4 ? 2 : 10);
    let_go(&s);
    check_each(c, 5);
    /* Three requests of ten rows run with the one of two rows; then one of ten rows runs alone. */
    ck_assert_uint_eq(c[0].req.together, 4);
    ck_assert_uint_eq(c[4].req.together, 4);
    ck_assert_uint_eq(c[3].req.together, 1);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_MERGED_ROWS), 32);
    stage_close_with(&s, b);
}
END_TEST

/* The three requests together have a number of rows that the guard forbids for a single request. */
START_TEST(guards_are_of_each_request_and_not_of_what_they_run_as)
{
    static const char text[] = "npugraph 1\ngraph \"guarded\" {\n sym B 1..32 batch buckets 1, 4, 32\n guard B != 6\n"
                               " input %x : f32[B]\n %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n}\n";
    struct ngd_binding *b;
    struct call c[3], six;
    struct stage s;

    stage_open(&s, 0);
    b = bed_binding(&s.bed, text, NULL);
    warm_buckets(&s, b);
    hold(&s);
    for (int i = 0; i < 3; i++)
        submit_rows(&s, &c[i], b, i + 1);
    call_init(&six, b, 6);
    ck_assert_int_eq(ngd_sched_submit(s.bed.sched, &six.req, NULL), NGD_ERR_GUARD_FAILED);
    let_go(&s);
    check_together(c, 3, 3);
    stage_close_with(&s, b);
}
END_TEST

START_TEST(a_lone_replay_runs_from_its_message_and_allocates_nothing)
{
    struct ngd_sched_params params;
    struct ngd_binding *b;
    struct bed bed;
    struct call c;
    uint64_t before;

    bed_params(&bed, &params);
    params.inline_limit = 10 * NGD_SEC;
    bed_start(&bed, &params);
    b = bed_binding(&bed, ROWS_TEXT, NULL);
    bed_warm(&bed, b, 2, 4);
    bed_settle(&bed);
    before = ngd_mem_thread_allocs();
    for (int i = 0; i < 100; i++) {
        call_init(&c, b, 2);
        call_submit(&bed, &c);
        ck_assert(c.req.inline_run);
        ck_assert_uint_eq(c.req.together, 1);
        ck_assert_int_eq(c.req.charged, c.req.launch.device_time);
    }
    ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_MERGED_REPLAYS), 0);
    ck_assert_ptr_null(bed_slot(&bed, 0)->area);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

static void count_allocs(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct call *c = req->user;

    c->rank = (uint32_t)ngd_mem_thread_allocs();
    c->req.user = c;
    call_done(req, status, diag);
}

START_TEST(running_together_allocates_nothing_once_it_has_been_done)
{
    struct ngd_binding *b;
    struct call c[4];
    struct stage s;
    uint32_t before = 0;

    b = open_warm(&s);
    for (int round = 0; round < 3; round++) {
        hold(&s);
        for (int i = 0; i < 4; i++) {
            call_init(&c[i], b, 1);
            c[i].req.done = count_allocs;
            call_submit(&s.bed, &c[i]);
        }
        let_go(&s);
        for (int i = 0; i < 4; i++)
            call_wait(&c[i]);
        ck_assert_uint_eq(c[0].req.together, 4);
        if (round == 1)
            before = c[0].rank; /* of the worker, when it had run them */
    }
    ck_assert_uint_eq(c[0].rank, before);
    stage_close_with(&s, b);
}
END_TEST

/* Keeps the capture threads busy until the gate opens. */
struct blocker {
    struct ngd_capture_job job;
    struct gate *gate;
};

static void block(struct ngd_capture_job *job)
{
    gate_pass(ngd_container_of(job, struct blocker, job)->gate);
}

static void block_captures(struct stage *s, struct blocker *blockers, struct gate *gate)
{
    struct ngd_captures *captures = &s->bed.sched->captures;

    ck_assert_uint_le(captures->n_threads, BLOCKERS_MAX);
    gate_init(gate);
    for (uint32_t i = 0; i < captures->n_threads; i++) {
        blockers[i] = (struct blocker){.job.run = block, .job.abort = block, .gate = gate};
        ck_assert(ngd_captures_push(captures, &blockers[i].job, s->bed.sched->own_share));
    }
    gate_await(gate, captures->n_threads);
}

START_TEST(a_bucket_that_is_missing_is_captured_meanwhile)
{
    struct blocker blockers[BLOCKERS_MAX];
    struct ngd_program_stats stats;
    struct ngd_binding *b;
    struct gate captures;
    struct call c[3];
    struct stage s;

    stage_open(&s, 0);
    b = bed_binding(&s.bed, ROWS_TEXT, NULL);
    bed_warm(&s.bed, b, 1, 1);
    block_captures(&s, blockers, &captures);
    hold(&s);
    for (int i = 0; i < 3; i++)
        submit_rows(&s, &c[i], b, 1);
    let_go(&s);
    /* No request waits for the capture. */
    check_together(c, 3, 1);
    gate_open(&captures);
    do {
        sched_yield();
        ngd_program_stats(b->prog, &stats);
    } while (stats.captures < 2);
    hold(&s);
    for (int i = 0; i < 3; i++)
        submit_rows(&s, &c[i], b, 1);
    let_go(&s);
    check_together(c, 3, 3);
    stage_close_with(&s, b);
}
END_TEST

START_TEST(no_capture_is_made_that_would_evict_another)
{
    struct ngd_graph_options options;
    struct ngd_program_stats stats;
    struct ngd_binding *b;
    struct call c[3];
    struct stage s;

    stage_open(&s, 0);
    ngd_graph_options_init(&options);
    options.capture_limit = 1;
    b = bed_binding(&s.bed, ROWS_TEXT, &options);
    bed_warm(&s.bed, b, 1, 1);
    for (int round = 0; round < 3; round++) {
        hold(&s);
        for (int i = 0; i < 3; i++)
            submit_rows(&s, &c[i], b, 1);
        let_go(&s);
        check_each(c, 3);
    }
    while (atomic_load(&b->merge->capturing))
        sched_yield();
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.captures, 1);
    ck_assert_uint_eq(stats.merged_replays, 0);
    stage_close_with(&s, b);
}
END_TEST

START_TEST(who_is_cancelled_while_it_waits_leaves_at_once)
{
    struct ngd_binding *b;
    struct call c[4];
    struct stage s;

    b = open_warm(&s);
    hold(&s);
    for (int i = 0; i < 4; i++)
        submit_rows(&s, &c[i], b, 2);
    ck_assert(ngd_sched_cancel(s.bed.sched, &c[0].req));
    ck_assert(ngd_sched_cancel(s.bed.sched, &c[2].req));
    ck_assert_int_eq(c[0].status, NGD_ERR_CANCELLED);
    ck_assert_int_eq(c[2].status, NGD_ERR_CANCELLED);
    let_go(&s);
    check_each(&c[1], 1);
    check_each(&c[3], 1);
    ck_assert_uint_eq(c[1].req.together, 2);
    ck_assert(!ngd_sched_cancel(s.bed.sched, &c[1].req));
    stage_close_with(&s, b);
}
END_TEST

START_TEST(who_expires_while_it_waits_is_answered_and_the_others_run)
{
    const ngd_nsec_t t0 = 1000 * NGD_SEC;
    struct ngd_binding *b;
    struct call c[3];
    struct stage s;

    b = open_held(&s, t0);
    for (int i = 0; i < 3; i++) {
        call_init(&c[i], b, 1);
        c[i].req.deadline = t0 + (i == 0 ? 1 : 100) * NGD_SEC;
        call_submit(&s.bed, &c[i]);
    }
    ngd_clock_set_fake(t0 + 2 * NGD_SEC);
    (void)ngd_request_expire(&c[0].req); /* or the thread has done it */
    call_wait(&c[0]);
    ck_assert_int_eq(c[0].status, NGD_ERR_DEADLINE_EXCEEDED);
    let_go(&s);
    check_together(&c[1], 2, 2);
    close_held(&s, b);
}
END_TEST

START_TEST(a_deadline_takes_only_those_that_have_one)
{
    struct ngd_binding *b;
    struct call c[4];
    struct stage s;

    b = open_warm(&s);
    hold(&s);
    for (int i = 0; i < 4; i++) {
        call_init(&c[i], b, 1);
        if (i >= 2)
            c[i].req.deadline = ngd_now() + 1000 * NGD_SEC;
        call_submit(&s.bed, &c[i]);
    }
    let_go(&s);
    check_together(c, 4, 2);
    /* Requests with a deadline went first. */
    ck_assert_int_le(c[2].req.started, c[0].req.started);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_MERGED_REPLAYS), 2);
    stage_close_with(&s, b);
}
END_TEST

START_TEST(the_less_urgent_do_not_join_the_more_urgent)
{
    static const ngd_priority_t priorities[] = {NGD_PRIORITY_LOW, NGD_PRIORITY_NORMAL, NGD_PRIORITY_NORMAL,
                                                NGD_PRIORITY_LOW};
    struct ngd_binding *b;
    struct call c[4];
    struct stage s;

    b = open_warm(&s);
    hold(&s);
    for (int i = 0; i < 4; i++) {
        call_init(&c[i], b, 1);
        c[i].req.priority = priorities[i];
        call_submit(&s.bed, &c[i]);
    }
    let_go(&s);
    check_each(c, 4);
    /* They run two by two. On a slow machine a class may have aged and have its turn first; then all run together. */
    ck_assert_uint_eq(c[1].req.together, c[2].req.together);
    if (c[1].req.together == 2) {
        ck_assert_uint_eq(c[0].req.together, 2);
        ck_assert_int_le(c[1].req.started, c[0].req.started);
    } else {
        ck_assert_uint_eq(c[1].req.together, 4);
        ck_assert_uint_eq(c[0].req.together, 4);
    }
    stage_close_with(&s, b);
}
END_TEST

START_TEST(requests_of_one_order_do_not_join_one_another)
{
    struct ngd_order *order[2];
    struct ngd_binding *b;
    struct call c[4];
    struct stage s;

    b = open_warm(&s);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(ngd_order_create(&order[i]), NGD_OK);
    hold(&s);
    for (int i = 0; i < 4; i++) {
        call_init(&c[i], b, 1);
        c[i].req.order = order[i % 2];
        call_submit(&s.bed, &c[i]);
    }
    let_go(&s);
    check_each(c, 4);
    ck_assert_uint_eq(c[0].req.together, 2);
    ck_assert_uint_eq(c[1].req.together, 2);
    ck_assert_int_gt(c[2].req.started, c[0].req.started);
    ck_assert_int_gt(c[3].req.started, c[1].req.started);
    for (int i = 0; i < 2; i++)
        ngd_order_destroy(order[i]);
    stage_close_with(&s, b);
}
END_TEST

START_TEST(only_bindings_of_the_same_buffers_run_together)
{
    static const float values[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
    struct ngd_buffer *w[2];
    struct ngd_program *prog;
    struct ngd_binding *b[3];
    struct call c[6];
    int32_t index[2] = {3, 1};
    struct stage s;

    stage_open(&s, 0);
    prog = bed_program(&s.bed, PICK_ROWS_TEXT, NULL);
    for (int i = 0; i < 2; i++)
        w[i] = bed_buffer(&s.bed, values[i], sizeof(values[i]), i ? "b" : "a");
    b[0] = bed_bind(prog, &w[0]);
    b[1] = bed_bind(prog, &w[1]);
    b[2] = bed_bind(prog, &w[0]);
    ck_assert_ptr_eq(b[0]->merge, b[2]->merge);
    ck_assert_ptr_ne(b[0]->merge, b[1]->merge);
    for (int round = 0; round < 2; round++) {
        if (round)
            hold(&s);
        for (int i = 0; i < 6; i++) {
            call_init(&c[i], b[i % 3], 2);
            c[i].in = (struct ngd_span){index, sizeof(index)};
            call_submit(&s.bed, &c[i]);
        }
        if (round)
            let_go(&s);
        for (int i = 0; i < 6; i++) {
            call_wait(&c[i]);
            ck_assert_int_eq(c[i].status, NGD_OK);
            ck_assert(c[i].y[0] == values[i % 3 == 1][3] && c[i].y[1] == values[i % 3 == 1][1]);
        }
    }
    ck_assert_uint_eq(c[0].req.together, 4);
    ck_assert_uint_eq(c[1].req.together, 2);
    ck_assert_uint_eq(c[2].req.together, 4);
    for (int i = 0; i < 3; i++)
        ngd_binding_unref(b[i]);
    for (int i = 0; i < 2; i++)
        ngd_buffer_unref(w[i]);
    ngd_program_unref(prog);
    stage_close(&s);
}
END_TEST

START_TEST(a_request_that_fails_does_not_fail_those_that_ran_with_it)
{
    static const float values[4] = {1, 2, 3, 4};
    int32_t good = 2, bad = 9;
    struct ngd_program *prog;
    struct ngd_binding *b;
    struct ngd_buffer *w;
    struct call c[3];
    struct stage s;
    int merged = 0;

    stage_open(&s, 0);
    prog = bed_program(&s.bed, PICK_ROWS_TEXT, NULL);
    w = bed_buffer(&s.bed, values, sizeof(values), "w");
    b = bed_bind(prog, &w);
    for (int round = 0; round < 2; round++) {
        if (round)
            hold(&s);
        merged = bed_counted(&s.bed, NGD_M_MERGED_REPLAYS); /* those that waited for the capture */
        for (int i = 0; i < 3; i++) {
            call_init(&c[i], b, 1);
            c[i].in = (struct ngd_span){round && i == 1 ? &bad : &good, sizeof(good)};
            call_submit(&s.bed, &c[i]);
        }
        if (round)
            let_go(&s);
        for (int i = 0; i < 3; i++)
            call_wait(&c[i]);
    }
    ck_assert_int_eq(c[1].status, NGD_ERR_INDEX_RANGE);
    ck_assert(strstr(c[1].text, "9"));
    for (int i = 0; i < 3; i += 2) {
        ck_assert_int_eq(c[i].status, NGD_OK);
        ck_assert(c[i].y[0] == 3.0f);
        ck_assert_uint_eq(c[i].req.together, 1);
    }
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_MERGES_UNDONE), 1);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_MERGED_REPLAYS), merged);
    ngd_binding_unref(b);
    ngd_buffer_unref(w);
    ngd_program_unref(prog);
    stage_close(&s);
}
END_TEST

START_TEST(what_the_device_does_is_answered_to_each)
{
    struct ngd_binding *b;
    struct call c[3];
    struct stage s;

    b = open_warm(&s);
    hold(&s);
    for (int i = 0; i < 3; i++)
        submit_rows(&s, &c[i], b, 1);
    ngd_stream_poison(bed_slot(&s.bed, 0)->stream, NGD_ERR_DEVICE_FAULT);
    let_go(&s);
    for (int i = 0; i < 3; i++) {
        call_wait(&c[i]);
        ck_assert_int_eq(ngd_status_scope(c[i].status), NGD_SCOPE_DEVICE);
        ck_assert(c[i].text[0]);
    }
    /* The stream was reset, and the executable is captured again. */
    warm_buckets(&s, b);
    hold(&s);
    for (int i = 0; i < 3; i++)
        submit_rows(&s, &c[i], b, 1);
    let_go(&s);
    check_together(c, 3, 3);
    stage_close_with(&s, b);
}
END_TEST

static struct ngd_share *open_share(struct stage *s, const char *name)
{
    struct ngd_share_params params;
    struct ngd_share *share = NULL;

    ngd_share_params_init(&params);
    ck_assert_int_eq(ngd_share_open(s->bed.sched, name, &params, &share, NULL), NGD_OK);
    return share;
}

START_TEST(identities_are_charged_by_their_rows)
{
    struct ngd_share_stats stats[2];
    struct ngd_share *share[2];
    struct ngd_binding *b;
    struct call c[4];
    struct stage s;
    ngd_nsec_t all;

    b = open_warm(&s);
    share[0] = open_share(&s, "a");
    share[1] = open_share(&s, "b");
    hold(&s);
    for (int i = 0; i < 4; i++) {
        call_init(&c[i], b, i % 2 ? 6 : 2);
        c[i].req.share = share[i % 2];
        call_submit(&s.bed, &c[i]);
    }
    let_go(&s);
    check_together(c, 4, 4);
    all = c[0].req.launch.device_time;
    for (int i = 0; i < 2; i++) {
        ngd_nsec_t parts = 0;

        ngd_share_stats(share[i], &stats[i]);
        ck_assert_uint_eq(stats[i].replays, 2);
        ck_assert_int_eq(stats[i].used, c[i].req.charged + c[i + 2].req.charged);
        for (int p = NGD_SPLIT_COPY_IN; p <= NGD_SPLIT_COPY_OUT; p++)
            parts += stats[i].split.part[p];
        ck_assert_int_le(llabs(parts - stats[i].used), 8);
        ck_assert_int_le(stats[i].split.part[NGD_SPLIT_PADDING], stats[i].split.part[NGD_SPLIT_REPLAY]);
    }
    ck_assert_int_eq(stats[0].used + stats[1].used, all);
    ck_assert_int_le(llabs(stats[1].used - 3 * stats[0].used), 8); /* rounding */
    /* Half of the 32 rows were padding; each client is told the times of the whole replay. */
    ck_assert_int_le(llabs(2 * c[1].req.split.part[NGD_SPLIT_PADDING] - c[1].req.split.part[NGD_SPLIT_REPLAY]), 2);
    ck_assert_int_eq(c[0].req.split.part[NGD_SPLIT_REPLAY], c[1].req.split.part[NGD_SPLIT_REPLAY]);
    for (int i = 0; i < 2; i++)
        ngd_share_unref(share[i]);
    stage_close_with(&s, b);
}
END_TEST

START_TEST(results_that_only_some_want_go_to_those)
{
    struct ngd_binding *b;
    struct call c[3];
    struct stage s;

    b = open_warm(&s);
    for (int round = 0; round < 2; round++) {
        hold(&s);
        for (int i = 0; i < 3; i++) {
            call_init(&c[i], b, 2);
            if (round || i != 1)
                c[i].out = (struct ngd_out){0};
            call_submit(&s.bed, &c[i]);
        }
        let_go(&s);
        for (int i = 0; i < 3; i++) {
            call_wait(&c[i]);
            ck_assert_int_eq(c[i].status, NGD_OK);
            ck_assert_uint_eq(c[i].req.together, 3);
            ck_assert(c[i].y[1] == (round == 0 && i == 1 ? 4.0f : 0.0f));
        }
    }
    stage_close_with(&s, b);
}
END_TEST

START_TEST(options_and_eager_runs_keep_replays_apart)
{
    struct ngd_graph_options options;
    struct ngd_binding *b[3];
    struct call c[6];
    struct stage s;

    stage_open(&s, 0);
    ngd_graph_options_init(&options);
    options.merge_replays = false;
    b[0] = bed_binding(&s.bed, ROWS_TEXT, &options);
    ngd_graph_options_init(&options);
    options.force_eager = true;
    b[1] = bed_binding(&s.bed, ROWS_TEXT, &options);
    b[2] = bed_binding(&s.bed, ROWS_TEXT, NULL);
    for (int i = 0; i < 3; i++)
        warm_buckets(&s, b[i]);
    hold(&s);
    for (int i = 0; i < 6; i++) {
        call_init(&c[i], b[i % 3], 1);
        c[i].req.launch.eager = i % 3 == 2;
        call_submit(&s.bed, &c[i]);
    }
    let_go(&s);
    check_together(c, 6, 1);
    for (int i = 0; i < 3; i++)
        ngd_binding_unref(b[i]);
    stage_close(&s);
}
END_TEST

START_TEST(a_scheduler_that_is_told_so_merges_nothing)
{
    struct ngd_sched_params params;
    struct ngd_binding *b;
    struct bed bed;

    bed_params(&bed, &params);
    params.merge = false;
    bed_start(&bed, &params);
    b = bed_binding(&bed, ROWS_TEXT, NULL);
    ck_assert_ptr_null(b->merge);
    bed_warm(&bed, b, 3, 2);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

static void *stop_main(void *sched)
{
    ngd_sched_stop(sched);
    return NULL;
}

START_TEST(stop_answers_those_that_wait_for_one_another_once_each)
{
    struct ngd_queue *queue;
    struct ngd_binding *b;
    bool stopping = false;
    struct call c[6];
    struct stage s;
    pthread_t t;

    stage_open(&s, 0);
    queue = &s.bed.sched->queues[0];
    b = bed_binding(&s.bed, ROWS_TEXT, NULL);
    warm_buckets(&s, b);
    hold(&s);
    for (int i = 0; i < 6; i++)
        submit_rows(&s, &c[i], b, 1);
    ck_assert_int_eq(pthread_create(&t, NULL, stop_main, s.bed.sched), 0);
    while (!stopping) {
        ngd_mutex_lock(&queue->lock);
        stopping = queue->stopping;
        ngd_mutex_unlock(&queue->lock);
        sched_yield();
    }
    let_go(&s);
    pthread_join(t, NULL);
    for (int i = 0; i < 6; i++) {
        call_wait(&c[i]);
        ck_assert_int_eq(c[i].status, NGD_ERR_CANCELLED);
    }
    ck_assert(ngd_sched_idle(s.bed.sched));
    ngd_binding_unref(b);
    ngd_binding_unref(s.other);
    ngd_sched_destroy(s.bed.sched);
    ngd_device_close(s.bed.dev);
}
END_TEST

/* ---- everything at once ------------------------------------------------------------------------------- */

struct mob {
    struct bed *bed;
    struct ngd_binding *binding;
    uint32_t seed, ok;
};

static void *mob_main(void *arg)
{
    struct mob *m = arg;

    for (int round = 0; round < 60; round++) {
        struct call c[3];

        for (int i = 0; i < 3; i++) {
            m->seed = m->seed * 1103515245 + 12345;
            call_init(&c[i], m->binding, 1 + (m->seed >> 16) % 6);
            if ((m->seed >> 24) % 5 == 0)
                c[i].req.deadline = ngd_now() + 1000 * NGD_SEC;
            call_submit(m->bed, &c[i]);
        }
        if (round % 7 == 0)
            (void)ngd_sched_cancel(m->bed->sched, &c[1].req);
        for (int i = 0; i < 3; i++) {
            call_wait(&c[i]);
            if (c[i].status == NGD_ERR_CANCELLED)
                continue;
            call_check(&c[i]);
            m->ok++;
        }
    }
    return NULL;
}

START_TEST(many_threads_get_their_own_rows_back)
{
    enum { N = 8 };
    struct ngd_sched_params params;
    struct mob mobs[N];
    pthread_t t[N];
    struct bed bed;

    bed_params(&bed, &params);
    params.slots = 2;
    params.inline_limit = 10 * NGD_SEC;
    bed_start(&bed, &params);
    for (int i = 0; i < N; i++) {
        mobs[i] = (struct mob){.bed = &bed, .seed = (uint32_t)i + 1, .binding = bed_binding(&bed, ROWS_TEXT, NULL)};
        ck_assert_int_eq(pthread_create(&t[i], NULL, mob_main, &mobs[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(t[i], NULL);
        ck_assert_uint_ge(mobs[i].ok, 60 * 3 - 9);
        ngd_binding_unref(mobs[i].binding);
    }
    ck_assert_int_eq(bed_counted(&bed, NGD_M_QUEUE_DEPTH), 0);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/merge", replays_of_several_clients_that_wait_run_as_one,
          what_a_cap_holds_back_does_not_join_and_goes_when_the_cap_does,
          what_does_not_fit_in_the_largest_bucket_runs_next, guards_are_of_each_request_and_not_of_what_they_run_as,
          a_lone_replay_runs_from_its_message_and_allocates_nothing,
          running_together_allocates_nothing_once_it_has_been_done, a_bucket_that_is_missing_is_captured_meanwhile,
          no_capture_is_made_that_would_evict_another, who_is_cancelled_while_it_waits_leaves_at_once,
          who_expires_while_it_waits_is_answered_and_the_others_run, a_deadline_takes_only_those_that_have_one,
          the_less_urgent_do_not_join_the_more_urgent, requests_of_one_order_do_not_join_one_another,
          only_bindings_of_the_same_buffers_run_together, a_request_that_fails_does_not_fail_those_that_ran_with_it,
          what_the_device_does_is_answered_to_each, identities_are_charged_by_their_rows,
          results_that_only_some_want_go_to_those, options_and_eager_runs_keep_replays_apart,
          a_scheduler_that_is_told_so_merges_nothing, stop_answers_those_that_wait_for_one_another_once_each,
          many_threads_get_their_own_rows_back)
