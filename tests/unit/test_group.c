/* SPDX-License-Identifier: Apache-2.0 */
/* Tests groups and gangs on three host devices: refusals, replays of all ranks, and ranks that fail. */
#include "base/fault.h"
#include "scheduler/program/group_int.h"
#include "tests/unit/sched_util.h"

#define DEVICES 3
#define RANKS   2

/* ---- beds of several devices -------------------------------------------------------------------------- */

struct hall {
    struct bed bed; /* of the first device */
    struct ngd_device *devices[DEVICES];
};

static void hall_open(struct hall *h, uint32_t slots)
{
    struct ngd_sched_params params;

    bed_params(&h->bed, &params);
    h->devices[0] = h->bed.dev;
    for (uint32_t i = 1; i < DEVICES; i++) {
        struct ngd_device_params dp;
        struct ngd_diag diag = {0};

        ngd_device_params_init(&dp);
        dp.backend = "host";
        dp.index = i;
        dp.threads = 1;
        dp.memory_bytes = 256u << 20;
        if (ngd_device_open(&dp, &h->devices[i], &diag))
            ck_abort_msg("%s", diag.text);
    }
    params.devices = h->devices;
    params.n_devices = DEVICES;
    params.slots = slots;
    params.inline_limit = 0;
    bed_start(&h->bed, &params);
}

static void hall_close(struct hall *h)
{
    bed_close(&h->bed);
    for (uint32_t i = 1; i < DEVICES; i++) {
        ck_assert_uint_eq(ngd_device_used_bytes(h->devices[i]), 0);
        ngd_device_close(h->devices[i]);
    }
}

static struct ngd_group *hall_group(struct hall *h, const char *name, uint32_t zero, uint32_t one)
{
    struct ngd_group_params p = {
        .name = name, .devices = (struct ngd_device *[]){h->devices[zero], h->devices[one]}, .n = 2};
    struct ngd_group *group = NULL;
    struct ngd_diag diag = {0};

    if (ngd_group_create(h->bed.sched, &p, &group, &diag))
        ck_abort_msg("%s", diag.text);
    return group;
}

static ngd_status_t try_rank(struct hall *h, struct ngd_group *group, uint32_t device, const char *text,
                             const struct ngd_graph_options *options, struct ngd_buffer *const *buffers,
                             struct ngd_binding **binding_p, struct ngd_diag *diag)
{
    struct ngd_graph_options defaults;
    struct ngd_graph *g = bed_graph(text);
    struct ngd_program *prog = NULL;
    ngd_status_t status;

    ngd_graph_options_init(&defaults);
    status = ngd_program_open_in(h->bed.sched, h->devices[device], g, options ? options : &defaults, NULL, group, NULL,
                                 &prog, NULL, diag);
    ngd_graph_unref(g);
    if (status)
        return status;
    *binding_p = bed_bind(prog, buffers);
    ngd_program_unref(prog);
    return NGD_OK;
}

static struct ngd_binding *hall_rank(struct hall *h, struct ngd_group *group, uint32_t device, const char *text,
                                     const struct ngd_graph_options *options, struct ngd_buffer *const *buffers)
{
    struct ngd_binding *binding = NULL;
    struct ngd_diag diag = {0};

    if (try_rank(h, group, device, text, options, buffers, &binding, &diag))
        ck_abort_msg("%s", diag.text);
    return binding;
}

/* Binds a gang, which holds references on all that it needs. */
static struct ngd_binding *hall_gang(struct hall *h, struct ngd_group *group, const char *zero, const char *one,
                                     const struct ngd_graph_options *options, bool replicated)
{
    struct ngd_binding *ranks[RANKS], *gang = NULL;
    struct ngd_diag diag = {0};

    for (uint32_t r = 0; r < RANKS; r++) {
        uint32_t d = 0;

        while (h->devices[d] != ngd_group_device(group, r))
            d++;
        ranks[r] = hall_rank(h, group, d, r ? one : zero, options, NULL);
    }
    if (ngd_gang_create(ranks, RANKS, replicated, &gang, &diag))
        ck_abort_msg("%s", diag.text);
    for (uint32_t r = 0; r < RANKS; r++)
        ngd_binding_unref(ranks[r]);
    return gang;
}

/* ---- graphs ------------------------------------------------------------------------------------------- */

#define GRAPH(name, body) "npugraph 1\ngraph \"" name "\" {\n" body "\n return \"y\" = %y\n}\n"
#define REDUCE(x)         "_c10d_functional.all_reduce(" x ") {reduce_op=\"sum\", group_name=\"tp\"}"
/* A graph that sums x of all ranks. */
#define SUM_TEXT          GRAPH("sum", " sym N 1..64\n input %x : f32[N]\n %y = " REDUCE("%x"))
/* A graph for rank 0 and one for rank 1 of a replicated gang: they sum x and 2x. */
#define ONCE_TEXT         GRAPH("once", " sym N 1..64 buckets 8 64\n input %x : f32[N]\n %y = " REDUCE("%x"))
#define TWICE_TEXT                                                                                  \
    GRAPH("twice", " sym N 1..64 buckets 8 64\n input %x : f32[N]\n %t = aten.add.Tensor(%x, %x)\n" \
                   " %y = " REDUCE("%t"))
#define PICK_SUM_TEXT \
    GRAPH("pick", " param %w : f32[4,2]\n input %i : i32[1]\n %e = aten.embedding(%w, %i)\n %y = " REDUCE("%e"))

/* A call of a gang of two ranks that are not replicated. */
struct pair {
    struct call c;
    float x1[CALL_MAX], y1[CALL_MAX];
    struct ngd_span in[RANKS];
    struct ngd_out out[RANKS];
};

static void pair_init(struct pair *p, struct ngd_binding *gang, int64_t n)
{
    memset(p, 0, sizeof(*p));
    call_init(&p->c, gang, n);
    for (int64_t i = 0; i < n; i++)
        p->x1[i] = 100.0f * (float)(i + 1);
    p->in[0] = p->c.in;
    p->in[1] = (struct ngd_span){p->x1, p->c.in.bytes};
    p->out[0] = p->c.out;
    p->out[1] = (struct ngd_out){p->y1, p->c.out.bytes};
    p->c.req.launch.inputs = p->in;
    p->c.req.launch.outputs = p->out;
    p->c.req.n_inputs = p->c.req.n_outputs = RANKS;
}

static void pair_check(const struct pair *p)
{
    if (p->c.status)
        ck_abort_msg("%s: %s", ngd_status_name(p->c.status), p->c.text);
    for (int64_t i = 0; i < p->c.n; i++) {
        ck_assert_float_eq(p->c.y[i], 101.0f * (float)(i + 1));
        ck_assert_float_eq(p->y1[i], 101.0f * (float)(i + 1));
    }
}

static void pair_run(struct hall *h, struct ngd_binding *gang, int64_t n)
{
    struct pair p;

    pair_init(&p, gang, n);
    call_run(&h->bed, &p.c);
    pair_check(&p);
}

/* ---- replays ------------------------------------------------------------------------------------------ */

START_TEST(gang_runs_on_all_devices_of_its_group_and_counts_on_each)
{
    static const struct ngd_share_params weights = {.weight = 1};
    struct ngd_group_stats stats;
    struct ngd_group *group;
    struct ngd_binding *gang;
    struct ngd_share *share;
    struct hall h;
    struct pair p;

    for (int reversed = 0; reversed < 2; reversed++) { /* ranks need not be in the order of devices */
        hall_open(&h, 1);
        group = hall_group(&h, "tp", reversed ? 2 : 0, reversed ? 0 : 2);
        gang = hall_gang(&h, group, SUM_TEXT, SUM_TEXT, NULL, false);
        ck_assert_uint_eq(ngd_binding_ranks(gang), 2);
        ck_assert_ptr_eq(ngd_binding_group(gang), group);
        ck_assert_int_eq(ngd_share_open(h.bed.sched, "someone", &weights, &share, NULL), NGD_OK);
        for (int64_t n = 1; n < 6; n++) {
            pair_init(&p, gang, n);
            p.c.req.share = share;
            call_run(&h.bed, &p.c);
            pair_check(&p);
            ck_assert(p.c.req.launch.device_time > 0);
        }
        bed_settle(&h.bed);
        for (int i = 0; i < DEVICES; i++) {
            ck_assert(i == 1 ? share->accounts[i].used == 0 : share->accounts[i].used > 0);
            ck_assert(i == 1 ? h.bed.sched->queues[i].busy == 0 : h.bed.sched->queues[i].busy > 0);
        }
        ngd_group_stats(group, &stats);
        ck_assert_uint_eq(stats.replays, 5);
        ck_assert_uint_eq(stats.resets, 0);
        ngd_share_unref(share);
        ngd_binding_unref(gang);
        ngd_group_unref(group);
        hall_close(&h);
    }
}
END_TEST

START_TEST(replicated_gang_takes_inputs_once_and_answers_with_rank_0s_results)
{
    struct ngd_binding *gang;
    struct ngd_group *group;
    struct hall h;
    struct call c;

    for (int reversed = 0; reversed < 2; reversed++) {
        hall_open(&h, 1);
        group = hall_group(&h, "tp", reversed, !reversed);
        gang = hall_gang(&h, group, ONCE_TEXT, TWICE_TEXT, NULL, true);
        for (int64_t n = 1; n < 20; n++) { /* in two buckets */
            call_init(&c, gang, n);
            c.req.launch.eager = n % 5 == 0;
            call_run(&h.bed, &c);
            ck_assert_int_eq(c.status, NGD_OK);
            for (int64_t i = 0; i < n; i++)
                ck_assert_float_eq(c.y[i], 3.0f * c.x[i]);
        }
        ngd_binding_unref(gang);
        ngd_group_unref(group);
        hall_close(&h);
    }
}
END_TEST

/* A gang's executables of a key are captured and evicted together. Past the limit each request has its own executables,
 * of plans that are made once for each key and rank. */
START_TEST(gang_is_evicted_and_captured_again_as_one)
{
    struct ngd_graph_options options;
    struct ngd_binding *gang;
    struct ngd_group *group;
    struct hall h;

    for (int form = 0; form < 3; form++) {
        uint64_t passes = row_count(NGD_M_PLANS, "passes");

        hall_open(&h, 1);
        group = hall_group(&h, "tp", 0, 1);
        ngd_graph_options_init(&options);
        options.capture_limit = 2;
        options.capture_limit_policy = form == 1 ? NGD_GCACHE_EAGER : NGD_GCACHE_EVICT;
        options.force_eager = form == 2;
        gang = hall_gang(&h, group, SUM_TEXT, SUM_TEXT, &options, false);
        for (int64_t i = 0; i < 24; i++)
            pair_run(&h, gang, 1 + i % 5);
        if (form > 0)
            ck_assert_uint_eq(row_count(NGD_M_PLANS, "passes") - passes, RANKS * 5);
        ngd_binding_unref(gang);
        ngd_group_unref(group);
        hall_close(&h);
    }
}
END_TEST

/* A mix of requests that would deadlock if a gang with a slot could wait for a slot of an earlier device. */
struct caller {
    struct hall *h;
    struct ngd_binding *binding;
    bool gang;
    uint32_t n;
};

static void *call_often(void *arg)
{
    struct caller *c = arg;

    for (uint32_t i = 0; i < c->n; i++) {
        struct call one;

        if (c->gang) {
            pair_run(c->h, c->binding, 1 + i % 3);
            continue;
        }
        call_init(&one, c->binding, 1 + i % 3);
        call_run(&c->h->bed, &one);
        call_check(&one);
    }
    return NULL;
}

START_TEST(gangs_of_groups_that_share_devices_never_wait_for_each_other)
{
    static const uint32_t pairs[][2] = {{0, 1}, {1, 0}, {1, 2}, {2, 0}, {0, 1}};
    enum { GANGS = 5, ALL = GANGS + DEVICES };
    struct ngd_group *groups[GANGS];
    struct caller callers[ALL];
    pthread_t threads[ALL];
    struct hall h;

    for (uint32_t slots = 1; slots <= 2; slots++) {
        hall_open(&h, slots);
        for (uint32_t i = 0; i < GANGS; i++) {
            groups[i] = i < 4 ? hall_group(&h, "tp", pairs[i][0], pairs[i][1]) : ngd_group_ref(groups[0]);
            callers[i] = (struct caller){&h, hall_gang(&h, groups[i], SUM_TEXT, SUM_TEXT, NULL, false), true, 60};
        }
        for (uint32_t i = 0; i < DEVICES; i++)
            callers[GANGS + i] = (struct caller){&h, hall_rank(&h, NULL, i, DOUBLE_TEXT, NULL, NULL), false, 120};
        for (uint32_t i = 0; i < ALL; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
        for (uint32_t i = 0; i < ALL; i++) {
            pthread_join(threads[i], NULL);
            ngd_binding_unref(callers[i].binding);
        }
        for (uint32_t i = 0; i < GANGS; i++)
            ngd_group_unref(groups[i]);
        hall_close(&h);
    }
}
END_TEST

static void await_taker(struct ngd_queue *queue)
{
    uint32_t n = 0;

    while (n == 0) {
        ngd_mutex_lock(&queue->lock);
        n = queue->n_takers;
        ngd_mutex_unlock(&queue->lock);
        sched_yield();
    }
}

/* Otherwise a busy device would make the group's other devices wait for ever. */
START_TEST(gang_whose_turn_has_come_goes_before_what_waits_for_its_other_devices)
{
    struct ngd_binding *gang, *other;
    struct ngd_group *group;
    _Atomic uint32_t rank = 0;
    struct call first, behind[4];
    struct gate gate;
    struct pair p;
    struct hall h;

    hall_open(&h, 1);
    group = hall_group(&h, "tp", 0, 1);
    gang = hall_gang(&h, group, SUM_TEXT, SUM_TEXT, NULL, false);
    other = hall_rank(&h, NULL, 1, DOUBLE_TEXT, NULL, NULL);
    pair_run(&h, gang, 2);
    call_occupy(&h.bed, &first, other, &gate);
    for (int i = 0; i < 4; i++) {
        call_init(&behind[i], other, 2);
        behind[i].order = &rank;
        call_submit(&h.bed, &behind[i]);
    }
    pair_init(&p, gang, 2);
    p.c.order = &rank;
    call_submit(&h.bed, &p.c);
    await_taker(&h.bed.sched->queues[1]);
    gate_open(&gate);
    call_wait(&p.c);
    pair_check(&p);
    for (int i = 0; i < 4; i++) {
        call_wait(&behind[i]);
        call_check(&behind[i]);
    }
    call_wait(&first);
    ngd_binding_unref(other);
    ngd_binding_unref(gang);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

START_TEST(gang_that_waits_is_cancelled_or_expires_once_for_all_ranks)
{
    struct ngd_binding *gang, *other;
    struct ngd_group *group;
    struct pair cancelled, expired, last;
    struct call first;
    struct gate gate;
    struct hall h;

    hall_open(&h, 1);
    group = hall_group(&h, "tp", 1, 0);
    gang = hall_gang(&h, group, SUM_TEXT, SUM_TEXT, NULL, false);
    other = hall_rank(&h, NULL, 0, DOUBLE_TEXT, NULL, NULL);
    pair_run(&h, gang, 2);
    call_occupy(&h.bed, &first, other, &gate);
    pair_init(&cancelled, gang, 2);
    call_submit(&h.bed, &cancelled.c);
    pair_init(&expired, gang, 2);
    ngd_clock_set_fake(ngd_now()); /* the clock stands still until the request has its place */
    expired.c.req.deadline = ngd_now() + 30 * NGD_MSEC;
    call_submit(&h.bed, &expired.c);
    ngd_clock_set_fake(-1);
    pair_init(&last, gang, 2);
    call_submit(&h.bed, &last.c);
    ck_assert(ngd_sched_cancel(h.bed.sched, &cancelled.c.req));
    call_wait(&cancelled.c);
    ck_assert_int_eq(cancelled.c.status, NGD_ERR_CANCELLED);
    call_wait(&expired.c);
    ck_assert_int_eq(expired.c.status, NGD_ERR_DEADLINE_EXCEEDED);
    gate_open(&gate);
    call_wait(&last.c);
    pair_check(&last);
    call_wait(&first);
    ngd_binding_unref(other);
    ngd_binding_unref(gang);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

START_TEST(stop_answers_gangs_that_wait)
{
    struct ngd_binding *gang;
    struct ngd_group *group;
    static struct pair p[40];
    struct hall h;

    hall_open(&h, 2);
    group = hall_group(&h, "tp", 0, 1);
    gang = hall_gang(&h, group, SUM_TEXT, SUM_TEXT, NULL, false);
    pair_run(&h, gang, 2);
    for (int i = 0; i < 40; i++) {
        pair_init(&p[i], gang, 2);
        call_submit(&h.bed, &p[i].c);
    }
    ngd_sched_stop(h.bed.sched);
    for (int i = 0; i < 40; i++) {
        call_wait(&p[i].c);
        ck_assert(p[i].c.status == NGD_OK || p[i].c.status == NGD_ERR_CANCELLED);
    }
    ngd_binding_unref(gang);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

/* ---- refused ------------------------------------------------------------------------------------------ */

static void try_group(struct hall *h, const char *name, const uint32_t *devices, uint32_t n, ngd_status_t status,
                      const char *words)
{
    struct ngd_device *list[NGD_GROUP_MAX_RANKS + 1];
    struct ngd_group_params p = {.name = name, .devices = list, .n = n};
    struct ngd_group *group = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t got;

    for (uint32_t i = 0; i < n; i++)
        list[i] = h->devices[devices ? devices[i] : 0];
    got = ngd_group_create(h->bed.sched, &p, &group, &diag);
    if (got != status)
        ck_abort_msg("%s, not %s: %s", ngd_status_name(got), ngd_status_name(status), diag.text);
    ck_assert_ptr_null(group);
    says(diag.text, words);
}

START_TEST(group_that_cannot_be_is_refused)
{
    static const uint32_t same[] = {1, 1}, two[] = {0, 1};
    struct ngd_group *group;
    struct hall h;

    hall_open(&h, 1);
    try_group(&h, "tp", two, 1, NGD_ERR_INVALID_ARGUMENT, "\"tp\"|1 devices|2 to 16");
    try_group(&h, "tp", NULL, 0, NGD_ERR_INVALID_ARGUMENT, "0 devices");
    try_group(&h, "tp", NULL, 17, NGD_ERR_INVALID_ARGUMENT, "17 devices");
    try_group(&h, "tp", same, 2, NGD_ERR_INVALID_ARGUMENT, "host:1 twice|ranks 0 and 1");
    try_group(&h, "", two, 2, NGD_ERR_INVALID_ARGUMENT, "name");
    atomic_store(&h.bed.sched->queues[1].healthy, false);
    try_group(&h, "tp", two, 2, NGD_ERR_DEVICE_LOST, "host:1|rank 1|\"tp\"");
    atomic_store(&h.bed.sched->queues[1].healthy, true);
    group = hall_group(&h, "tp", 0, 1);
    ck_assert_str_eq(ngd_group_name(group), "tp");
    ck_assert_uint_eq(ngd_group_size(group), 2);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

static void try_gang(struct hall *h, struct ngd_group *group, const char *zero, const char *one, bool replicated,
                     ngd_status_t status, const char *words)
{
    struct ngd_binding *ranks[RANKS], *gang = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t got;

    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r] = hall_rank(h, group, r, r ? one : zero, NULL, NULL);
    got = ngd_gang_create(ranks, RANKS, replicated, &gang, &diag);
    if (got != status)
        ck_abort_msg("%s, not %s: %s", ngd_status_name(got), ngd_status_name(status), diag.text);
    says(diag.text, words);
    for (uint32_t r = 0; r < RANKS; r++)
        ngd_binding_unref(ranks[r]);
}

START_TEST(ranks_that_do_not_fit_together_are_refused_before_any_replay)
{
    struct ngd_group *group;
    struct hall h;

    hall_open(&h, 1);
    group = hall_group(&h, "tp", 0, 1);
    try_gang(&h, group, SUM_TEXT,
             GRAPH("max", " sym N 1..64\n input %x : f32[N]\n %y = _c10d_functional.all_reduce(%x) {reduce_op=\"max\", "
                          "group_name=\"tp\"}"),
             false, NGD_ERR_COLLECTIVE_MISMATCH, "collective 1|rank 0|all_reduce of f32[N], sum|rank 1|max");
    try_gang(&h, group, SUM_TEXT,
             GRAPH("two", " sym N 1..64\n input %x : f32[N]\n %a = " REDUCE("%x") "\n %y = " REDUCE("%a")), false,
             NGD_ERR_COLLECTIVE_MISMATCH, "collective 2|rank 0 does nothing more|rank 1 does");
    try_gang(&h, group, SUM_TEXT, GRAPH("none", " sym N 1..64\n input %x : f32[N]\n %y = aten.neg(%x)"), false,
             NGD_ERR_COLLECTIVE_MISMATCH, "rank 1 does nothing more");
    try_gang(
        &h, group, SUM_TEXT,
        GRAPH("half", " sym N 1..64\n input %x : f32[N]\n %h = aten._to_copy(%x) {dtype=f16}\n %y = " REDUCE("%h")),
        false, NGD_ERR_COLLECTIVE_MISMATCH, "f32[N]|f16[N]");
    try_gang(&h, group, SUM_TEXT, ONCE_TEXT, false, NGD_ERR_INVALID_ARGUMENT, "symbol 0|rank 1");
    try_gang(&h, group, SUM_TEXT, GRAPH("no symbol", " input %x : f32[4]\n %y = " REDUCE("%x")), false,
             NGD_ERR_INVALID_ARGUMENT, "symbol 0|rank 1");
    try_gang(&h, group, SUM_TEXT,
             GRAPH("more",
                   " sym N 1..64\n input %x : f32[N]\n input %z : f32[N]\n %t = aten.add.Tensor(%x, %z)\n %y = " REDUCE(
                       "%t")),
             true, NGD_ERR_INVALID_ARGUMENT, "rank 1|inputs|replicated");
    try_gang(&h, group, SUM_TEXT,
             "npugraph 1\ngraph \"other result\" {\n sym N 1..64\n input %x : f32[N]\n %y = " REDUCE(
                 "%x") "\n return \"z\" = %y\n}\n",
             true, NGD_ERR_INVALID_ARGUMENT, "rank 1|results|replicated");
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

START_TEST(gang_of_the_wrong_ranks_is_refused)
{
    struct ngd_binding *ranks[3], *plain, *gang = NULL;
    struct ngd_graph_options options;
    struct ngd_group *group, *other;
    struct ngd_diag diag = {0};
    struct hall h;

    hall_open(&h, 1);
    group = hall_group(&h, "tp", 0, 1);
    other = hall_group(&h, "tp", 0, 1);
    ranks[0] = hall_rank(&h, group, 0, SUM_TEXT, NULL, NULL);
    ranks[1] = hall_rank(&h, group, 1, SUM_TEXT, NULL, NULL);
    ranks[2] = hall_rank(&h, other, 1, SUM_TEXT, NULL, NULL);
    plain = hall_rank(&h, NULL, 1, DOUBLE_TEXT, NULL, NULL);
    ck_assert_ptr_ne(ngd_binding_program(ranks[1]), ngd_binding_program(ranks[2]));
    ck_assert_int_eq(ngd_gang_create(ranks, 0, false, &gang, &diag), NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "empty");
    ck_assert_int_eq(ngd_gang_create(ranks, 1, false, &gang, &diag), NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "rank 1|host:1|no graph");
    ck_assert_int_eq(ngd_gang_create(ranks, 3, false, &gang, &diag), NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "number 2");
    ck_assert_int_eq(ngd_gang_create((struct ngd_binding *[]){ranks[0], ranks[1], ranks[0]}, 3, false, &gang, &diag),
                     NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "rank 0|two graphs");
    ck_assert_int_eq(ngd_gang_create((struct ngd_binding *[]){ranks[0], plain}, 2, false, &gang, &diag),
                     NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "\"double\"|number 1");
    ck_assert_int_eq(ngd_gang_create((struct ngd_binding *[]){ranks[1], ranks[0]}, 2, false, &gang, &diag), NGD_OK);
    pair_run(&h, gang, 3);
    ck_assert_int_eq(ngd_gang_create((struct ngd_binding *[]){gang, ranks[0]}, 2, false, &plain, &diag),
                     NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_binding_change(gang, NULL, &plain, &diag), NGD_ERR_BINDING_MISMATCH);
    says(diag.text, "all ranks");
    ngd_binding_unref(gang);
    for (int i = 0; i < 3; i++)
        ngd_binding_unref(ranks[i]);
    ngd_binding_unref(plain);
    ngd_graph_options_init(&options);
    options.verify_every_n = 3;
    for (uint32_t i = 0; i < 2; i++)
        ranks[i] = hall_rank(&h, group, i, SUM_TEXT, i ? &options : NULL, NULL);
    ck_assert_int_eq(ngd_gang_create(ranks, 2, false, &gang, &diag), NGD_ERR_INVALID_ARGUMENT);
    says(diag.text, "rank 1|verify_every_n");
    for (uint32_t i = 0; i < 2; i++)
        ngd_binding_unref(ranks[i]);
    ngd_group_unref(group);
    ngd_group_unref(other);
    hall_close(&h);
}
END_TEST

START_TEST(rank_is_registered_on_its_device_with_its_groups_collectives_and_does_not_run_alone)
{
    struct ngd_binding *rank = NULL, *same;
    struct ngd_group *group;
    struct ngd_diag diag = {0};
    int64_t n = 2;
    struct call c;
    struct hall h;

    hall_open(&h, 1);
    group = hall_group(&h, "tp", 0, 1);
    ck_assert_int_eq(try_rank(&h, group, 2, SUM_TEXT, NULL, NULL, &rank, &diag), NGD_ERR_GROUP_UNBOUND);
    says(diag.text, "host:2|\"tp\"");
    ck_assert_int_eq(try_rank(&h, group, 0,
                              GRAPH("dp", " input %x : f32[4]\n %y = _c10d_functional.broadcast(%x) {src=0, "
                                          "group_name=\"dp\"}"),
                              NULL, NULL, &rank, &diag),
                     NGD_ERR_GROUP_UNBOUND);
    says(diag.text, "broadcast|\"dp\"|\"tp\"");
    rank = hall_rank(&h, group, 1, SUM_TEXT, NULL, NULL);
    same = hall_rank(&h, group, 1, SUM_TEXT, NULL, NULL);
    ck_assert_ptr_eq(ngd_binding_program(rank), ngd_binding_program(same));
    call_init(&c, rank, 2);
    call_run(&h.bed, &c);
    ck_assert_int_eq(c.status, NGD_ERR_GROUP_UNBOUND);
    says(c.text, "rank 1|\"tp\"|alone|JoinRanks");
    ck_assert_int_eq(ngd_binding_capture(rank, &n, 1, NULL, false, NULL, &diag), NGD_ERR_GROUP_UNBOUND);
    ck_assert_int_eq(ngd_binding_capture(rank, &n, 1, NULL, true, NULL, &diag), NGD_OK);
    ngd_binding_unref(rank);
    ngd_binding_unref(same);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

START_TEST(gang_without_host_memory_is_refused_and_leaves_nothing_behind)
{
    struct ngd_binding *ranks[RANKS], *gang = NULL;
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    struct ngd_group *group;
    struct ngd_diag diag = {0};
    int64_t i = 0, n = 2;
    struct ngd_key key;
    struct hall h;

    hall_open(&h, 1);
    group = hall_group(&h, "tp", 0, 1);
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r] = hall_rank(&h, group, r, SUM_TEXT, NULL, NULL);
    for (; status; i++) {
        ngd_mem_fail_after(i);
        status = ngd_gang_create(ranks, RANKS, false, &gang, &diag);
        ngd_mem_fail_after(-1);
    }
    ck_assert_int_gt(i, 3);
    ck_assert_int_eq(ngd_program_key(gang->prog, &n, 1, &key, &diag), NGD_OK);
    for (status = NGD_ERR_NO_MEMORY, i = 0; status; i++) {
        ngd_mem_fail_after(i);
        status = ngd_binding_capture(gang, &n, 1, NULL, false, NULL, &diag);
        ngd_mem_fail_after(-1);
        ngd_gcache_forget(gang->prog->cache, &key); /* a failure, before it is tried again */
    }
    pair_run(&h, gang, 2);
    for (uint32_t r = 0; r < RANKS; r++)
        ngd_binding_unref(ranks[r]);
    ngd_binding_unref(gang);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

/* ---- ranks that fail ---------------------------------------------------------------------------------- */

/* The replay's inputs are indices; rank 1's is wrong. */
static void run_pick(struct hall *h, struct ngd_binding *gang, int32_t one, ngd_status_t status, const char *words)
{
    int32_t zero = 1;
    struct pair p;

    pair_init(&p, gang, 2);
    p.in[0] = (struct ngd_span){&zero, sizeof(zero)};
    p.in[1] = (struct ngd_span){&one, sizeof(one)};
    p.c.req.n_symbols = 0;
    call_run(&h->bed, &p.c);
    if (p.c.status != status)
        ck_abort_msg("%s, not %s: %s", ngd_status_name(p.c.status), ngd_status_name(status), p.c.text);
    if (status)
        says(p.c.text, words);
    else
        ck_assert(p.c.y[0] == 2 + 2 * (float)one && p.y1[1] == p.c.y[1]);
}

START_TEST(rank_that_fails_fails_its_replay_and_the_next_one_runs)
{
    static const float w[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct ngd_binding *ranks[RANKS], *gang = NULL;
    struct ngd_buffer *buffers[RANKS] = {NULL}, *missing[] = {NULL};
    struct ngd_group_stats stats;
    struct ngd_group *group;
    struct ngd_diag diag = {0};
    struct pair p;
    struct hall h;

    hall_open(&h, 1);
    group = hall_group(&h, "tp", 0, 1);
    for (uint32_t r = 0; r < RANKS; r++) {
        ck_assert_int_eq(ngd_buffer_create(h.devices[r], sizeof(w), NGD_BUFFER_GENERAL, "w", &buffers[r], &diag), 0);
        ck_assert_int_eq(ngd_buffer_write(buffers[r], 0, w, sizeof(w), NULL), NGD_OK);
        ranks[r] = hall_rank(&h, group, r, PICK_SUM_TEXT, NULL, r ? missing : buffers);
    }
    ck_assert_int_eq(ngd_gang_create(ranks, RANKS, false, &gang, &diag), NGD_OK);
    pair_init(&p, gang, 2);
    p.c.req.n_symbols = 0;
    ck_assert_int_eq(ngd_sched_submit(h.bed.sched, &p.c.req, &diag), NGD_ERR_BINDING_MISSING);
    says(diag.text, "\"w\"");
    ngd_binding_unref(gang);
    ngd_binding_unref(ranks[1]);
    ranks[1] = hall_rank(&h, group, 1, PICK_SUM_TEXT, NULL, buffers + 1);
    ck_assert_int_eq(ngd_gang_create(ranks, RANKS, false, &gang, &diag), NGD_OK);
    for (int i = 0; i < 3; i++) {
        run_pick(&h, gang, 4, NGD_ERR_INDEX_RANGE, "rank 1|host:1|index 4");
        run_pick(&h, gang, i, NGD_OK, "");
    }
    ngd_group_stats(group, &stats);
    ck_assert_uint_eq(stats.resets, 3);
    ck_assert_uint_eq(stats.replays, 6);
    ck_assert_int_eq(stats.closed.status, NGD_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        ngd_binding_unref(ranks[r]);
        ngd_buffer_unref(buffers[r]);
    }
    ngd_binding_unref(gang);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

START_TEST(fault_of_a_ranks_device_fails_one_replay_and_what_is_spoiled_is_captured_again)
{
    struct ngd_binding *gang;
    struct ngd_group *group;
    struct ngd_program_stats stats;
    struct pair p;
    struct hall h;

    if (!NGD_FAULT_COMPILED)
        return;
    hall_open(&h, 1);
    group = hall_group(&h, "tp", 0, 1);
    gang = hall_gang(&h, group, SUM_TEXT, SUM_TEXT, NULL, false);
    for (int i = 0; i < 6; i++) {
        pair_run(&h, gang, 2);
        ngd_fault_arm(i % 2 ? NGD_FAULT_HOST_LOST : NGD_FAULT_HOST_FAULT, (uint32_t)i / 3, 1); /* one or the other */
        pair_init(&p, gang, 2);
        call_run(&h.bed, &p.c);
        ck_assert_int_eq(p.c.status, i % 2 ? NGD_ERR_DEVICE_LOST : NGD_ERR_DEVICE_FAULT);
        says(p.c.text, "rank |device host:");
    }
    ngd_fault_disarm_all();
    pair_run(&h, gang, 2);
    ngd_program_stats(ngd_binding_program(gang), &stats);
    ck_assert_uint_eq(stats.captures, 7);
    ngd_binding_unref(gang);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

START_TEST(group_with_a_device_that_does_not_recover_is_closed)
{
    struct ngd_binding *gang, *other;
    struct ngd_group *group, *rest;
    struct ngd_group_stats stats;
    struct call c;
    struct pair p;
    struct hall h;

    hall_open(&h, 1);
    group = hall_group(&h, "tp", 0, 1);
    gang = hall_gang(&h, group, SUM_TEXT, SUM_TEXT, NULL, false);
    other = hall_rank(&h, NULL, 0, DOUBLE_TEXT, NULL, NULL);
    pair_run(&h, gang, 2);
    atomic_store(&h.bed.sched->queues[1].healthy, false);
    for (int i = 0; i < 3; i++) {
        pair_init(&p, gang, 2);
        call_run(&h.bed, &p.c);
        ck_assert_int_eq(p.c.status, NGD_ERR_DEVICE_LOST);
        says(p.c.text, "group \"tp\" is closed|host:1|rank 1|new group");
        atomic_store(&h.bed.sched->queues[1].healthy, i > 0); /* in both cases its contents are lost */
    }
    call_init(&c, other, 2);
    call_run(&h.bed, &c);
    call_check(&c);
    ngd_group_stats(group, &stats);
    ck_assert_int_eq(stats.closed.status, NGD_ERR_DEVICE_LOST);
    ngd_binding_unref(gang);
    rest = hall_group(&h, "tp", 0, 2);
    gang = hall_gang(&h, rest, SUM_TEXT, SUM_TEXT, NULL, false);
    pair_run(&h, gang, 2);
    ngd_binding_unref(gang);
    ngd_binding_unref(other);
    ngd_group_unref(rest);
    ngd_group_unref(group);
    hall_close(&h);
}
END_TEST

UNIT_MAIN("scheduler/group", gang_runs_on_all_devices_of_its_group_and_counts_on_each,
          replicated_gang_takes_inputs_once_and_answers_with_rank_0s_results, gang_is_evicted_and_captured_again_as_one,
          gangs_of_groups_that_share_devices_never_wait_for_each_other,
          gang_whose_turn_has_come_goes_before_what_waits_for_its_other_devices,
          gang_that_waits_is_cancelled_or_expires_once_for_all_ranks, stop_answers_gangs_that_wait,
          group_that_cannot_be_is_refused, ranks_that_do_not_fit_together_are_refused_before_any_replay,
          gang_of_the_wrong_ranks_is_refused,
          rank_is_registered_on_its_device_with_its_groups_collectives_and_does_not_run_alone,
          gang_without_host_memory_is_refused_and_leaves_nothing_behind,
          rank_that_fails_fails_its_replay_and_the_next_one_runs,
          fault_of_a_ranks_device_fails_one_replay_and_what_is_spoiled_is_captured_again,
          group_with_a_device_that_does_not_recover_is_closed)
