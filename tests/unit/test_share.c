/* SPDX-License-Identifier: Apache-2.0 */
/* Tests shares in the scheduler: bounds, accounts, and admission by deadline. How time is divided: test_policy.c. */
#include "tests/unit/sched_util.h"

static struct ngd_share *open_share(struct bed *bed, const char *name, uint32_t weight, uint32_t limit)
{
    const struct ngd_share_params params = {.weight = weight, .queue_limit = limit};
    struct ngd_share *share = NULL;
    struct ngd_diag diag = {0};

    if (ngd_share_open(bed->sched, name, &params, &share, &diag))
        ck_abort_msg("%s", diag.text);
    return share;
}

static void count_share(void *ctx, const struct ngd_share_stats *stats)
{
    (void)stats;
    ++*(int *)ctx;
}

START_TEST(a_share_is_found_by_its_name_until_nobody_holds_it)
{
    struct ngd_share_params params;
    struct ngd_share_stats stats;
    struct ngd_share *a, *b, *bad;
    struct ngd_diag diag;
    struct bed bed;
    int n = 0;

    bed_open(&bed, 1, 0);
    a = open_share(&bed, "uid:1000", 100, 0);
    b = open_share(&bed, "uid:1000", 300, 7);
    ck_assert_ptr_eq(a, b);
    ngd_share_stats(a, &stats);
    ck_assert_str_eq(stats.name, "uid:1000");
    ck_assert_uint_eq(stats.weight, 300);
    ck_assert_uint_eq(stats.queue_limit, 7);
    ngd_share_unref(a);
    ngd_share_for_each(bed.sched, count_share, &n);
    ck_assert_int_eq(n, 2); /* and the scheduler's own */
    ngd_share_unref(b);
    n = 0;
    ngd_share_for_each(bed.sched, count_share, &n);
    ck_assert_int_eq(n, 1);
    ngd_share_params_init(&params);
    params.weight = 0;
    ck_assert_int_eq(ngd_share_open(bed.sched, "uid:1", &params, &bad, &diag), NGD_ERR_INVALID_ARGUMENT);
    params.weight = NGD_WEIGHT_MAX + 1;
    ck_assert_int_eq(ngd_share_open(bed.sched, "uid:1", &params, &bad, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert(strstr(diag.text, "1 to 1000"));
    bed_close(&bed);
}
END_TEST

START_TEST(one_shares_full_queue_does_not_refuse_anothers_request)
{
    struct ngd_share *greedy, *modest;
    struct ngd_binding *b;
    struct call holder, calls[4];
    struct gate gate;
    struct bed bed;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 1);
    greedy = open_share(&bed, "greedy", 100, 2);
    modest = open_share(&bed, "modest", 100, 2);
    call_occupy(&bed, &holder, b, &gate);
    for (int i = 0; i < 4; i++) {
        call_init(&calls[i], b, 2);
        calls[i].req.share = i < 3 ? greedy : modest;
    }
    call_submit(&bed, &calls[0]);
    call_submit(&bed, &calls[1]);
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &calls[2].req, &calls[2].diag), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert(strstr(calls[2].diag.text, "2 requests of greedy"));
    call_submit(&bed, &calls[3]);
    /* A cancelled one gives its place back. */
    ck_assert(ngd_sched_cancel(bed.sched, &calls[1].req));
    call_init(&calls[2], b, 2);
    calls[2].req.share = greedy;
    call_submit(&bed, &calls[2]);
    gate_open(&gate);
    call_wait(&calls[0]);
    call_wait(&calls[2]);
    call_wait(&calls[3]);
    bed_settle(&bed);
    ngd_share_unref(greedy);
    ngd_share_unref(modest);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(device_time_is_on_the_account_of_who_asked)
{
    struct ngd_share_stats asked, idle;
    struct ngd_share *a, *b;
    struct ngd_binding *binding;
    ngd_nsec_t sum = 0;
    struct bed bed;

    bed_open(&bed, 1, NGD_SEC); /* the first runs on the worker, later ones inline */
    binding = bed_binding(&bed, DOUBLE_TEXT, NULL);
    a = open_share(&bed, "a", 100, 0);
    b = open_share(&bed, "b", 100, 0);
    for (int i = 0; i < 20; i++) {
        struct call c;

        call_init(&c, binding, 4);
        c.req.share = a;
        call_run(&bed, &c);
        call_check(&c);
        sum += c.req.launch.device_time;
    }
    bed_settle(&bed);
    ngd_share_stats(a, &asked);
    ngd_share_stats(b, &idle);
    ck_assert_int_gt(sum, 0);
    ck_assert_int_eq(asked.used, sum);
    ck_assert_int_eq(idle.used, 0);
    ck_assert_uint_eq(asked.waiting, 0);
    ngd_share_unref(a);
    ngd_share_unref(b);
    ngd_binding_unref(binding);
    bed_close(&bed);
}
END_TEST

/* Sets the estimate as if its replays had taken this time. */
static void teach(struct ngd_binding *b, int64_t n, ngd_nsec_t t)
{
    struct ngd_gcache_entry *entry;
    struct ngd_key key;

    ck_assert_int_eq(ngd_key_make(b->prog->graph, &b->prog->key_digest, &n, 1, &key, NULL), NGD_OK);
    entry = ngd_program_lookup(b->prog, &key, NULL);
    ck_assert_ptr_nonnull(entry);
    atomic_store(&ngd_entry_executable(entry)->runs, 100);
    atomic_store(&ngd_entry_executable(entry)->expected, t);
    ngd_gcache_put(entry);
}

START_TEST(what_cannot_end_in_time_is_refused_at_once)
{
    struct ngd_binding *b;
    struct call holder, before, late, fine, unknown;
    struct gate gate;
    struct bed bed;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 1);
    bed_warm(&bed, b, 3, 1);
    teach(b, 3, 10 * NGD_SEC);
    call_occupy(&bed, &holder, b, &gate);
    call_init(&late, b, 3);
    late.req.deadline = ngd_now() + 5 * NGD_SEC;
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &late.req, &late.diag), NGD_ERR_DEADLINE_EXCEEDED);
    ck_assert(strstr(late.diag.text, "after its deadline"));
    teach(b, 3, 10 * NGD_SEC); /* a refusal lets the estimate give way */
    call_init(&before, b, 3);
    before.req.deadline = ngd_now() + 12 * NGD_SEC;
    call_submit(&bed, &before);
    /* It could end in 15 s alone, but not behind the other request. If it ran before that, the other would be late. */
    call_init(&late, b, 3);
    late.req.deadline = ngd_now() + 15 * NGD_SEC;
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &late.req, &late.diag), NGD_ERR_DEADLINE_EXCEEDED);
    call_init(&fine, b, 3);
    fine.req.deadline = ngd_now() + 25 * NGD_SEC;
    call_submit(&bed, &fine);
    /* The time of this request is not known. */
    call_init(&unknown, b, 2);
    unknown.req.deadline = ngd_now() + 5 * NGD_SEC;
    call_submit(&bed, &unknown);
    gate_open(&gate);
    call_wait(&before);
    call_wait(&fine);
    call_wait(&unknown);
    call_check(&fine);
    call_check(&unknown);
    bed_settle(&bed);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(an_estimate_that_a_stall_has_spoiled_does_not_refuse_for_ever)
{
    struct ngd_binding *b;
    struct call c;
    struct bed bed;
    int refused = 0;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 3, 1);
    bed_settle(&bed);
    teach(b, 3, 100 * NGD_SEC);
    for (;; refused++) {
        call_init(&c, b, 3);
        c.req.deadline = ngd_now() + 50 * NGD_SEC;
        if (ngd_sched_submit(bed.sched, &c.req, &c.diag) == NGD_OK)
            break;
        ck_assert_int_lt(refused, 20);
    }
    ck_assert_int_gt(refused, 0);
    call_wait(&c);
    call_check(&c);
    bed_settle(&bed);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(urgent_requests_overtake_and_deadlines_order_the_rest)
{
    struct ngd_binding *b;
    struct call holder, calls[4];
    _Atomic uint32_t order;
    struct gate gate;
    struct bed bed;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 1);
    call_occupy(&bed, &holder, b, &gate);
    atomic_init(&order, 0);
    for (int i = 0; i < 4; i++) {
        call_init(&calls[i], b, 2);
        calls[i].order = &order;
    }
    calls[0].req.priority = NGD_PRIORITY_LOW;
    calls[2].req.deadline = ngd_now() + 100 * NGD_SEC;
    calls[3].req.priority = NGD_PRIORITY_HIGH;
    for (int i = 0; i < 4; i++)
        call_submit(&bed, &calls[i]);
    gate_open(&gate);
    for (int i = 0; i < 4; i++)
        call_wait(&calls[i]);
    ck_assert_uint_eq(calls[3].rank, 0);
    ck_assert_uint_eq(calls[2].rank, 1);
    ck_assert_uint_eq(calls[1].rank, 2);
    ck_assert_uint_eq(calls[0].rank, 3);
    bed_settle(&bed);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/share", a_share_is_found_by_its_name_until_nobody_holds_it,
          one_shares_full_queue_does_not_refuse_anothers_request, device_time_is_on_the_account_of_who_asked,
          what_cannot_end_in_time_is_refused_at_once, an_estimate_that_a_stall_has_spoiled_does_not_refuse_for_ever,
          urgent_requests_overtake_and_deadlines_order_the_rest)
