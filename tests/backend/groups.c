/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: when they are refused, and that no rank waits forever when ranks do different things, do not come or fail,
 * when their stream is poisoned, and when their group is destroyed. After a reset a group works again.
 */
#include "tests/backend/ranks.h"
#include "base/fault.h"
#include <sched.h>

#define SUM(x) "_c10d_functional.all_reduce(" x ") {reduce_op=\"sum\", group_name=\"tp\"}"

/* Whatever a test did with its group, the group must work afterwards. */
static void check_usable(struct ranks *s)
{
    struct ngd_diag diag = {0};

    ranks_unready(s);
    for (uint32_t r = 0; r < s->n; r++)
        ngd_stream_reset(s->b[r].stream);
    if (ngd_comm_reset(s->comm, &diag))
        ck_abort_msg("%s", diag.text);
    ck_assert_int_eq(ngd_comm_status(s->comm, NULL), NGD_OK);
    for (uint32_t r = 0; r < s->n; r++) {
        ranks_ready(s, r, ranks_text("input %%x : f32[1]\n%%a = " SUM("%%x") "\n%%y = " SUM("%%a")), NULL);
        memcpy(s->x[r], &(float){(float)r + 1}, 4);
    }
    for (int i = 0; i < 3; i++)
        ranks_run(s);
    for (uint32_t r = 0; r < s->n; r++) {
        float y;

        memcpy(&y, s->y[r], 4);
        ck_assert_float_eq(y, (float)(s->n * (s->n * (s->n + 1) / 2)));
    }
    ranks_unready(s);
}

static void ends_with(const struct ranks *s, uint32_t rank, ngd_status_t status, const char *words)
{
    const struct ngd_launch *l = &s->io[rank].launch;

    if (l->status != status)
        ck_abort_msg("rank %u: %s, not %s: %s", rank, ngd_status_name(l->status), ngd_status_name(status),
                     l->diag.text);
    conform_says(l->diag.text, words);
}

/* ---- refused ---- */

static void try_comm(struct ngd_device *const *devices, uint32_t n, const char *name, ngd_nsec_t limit,
                     const char *words)
{
    struct ngd_comm_params params = {.name = name, .devices = devices, .n = n, .time_limit = limit};
    struct ngd_comm *comm = NULL;
    struct ngd_diag diag = {0};

    ck_assert_int_eq(ngd_comm_create(&params, &comm, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_null(comm);
    conform_says(diag.text, words);
}

START_TEST(group_that_cannot_be_is_refused)
{
    struct ngd_device *devices[2];
    struct ranks s;

    if (!ranks_open(&s, _i, 2, NGD_SEC))
        return;
    devices[0] = devices[1] = s.b[0].dev;
    try_comm(devices, 2, "tp", NGD_SEC, "tp|twice|ranks 0 and 1");
    try_comm(devices, 0, "tp", NGD_SEC, "tp|0 devices");
    try_comm(devices, 17, "tp", NGD_SEC, "17 devices|16");
    try_comm(devices, 1, "", NGD_SEC, "name");
    try_comm(devices, 1, "tp", 0, "time limit");
    ck_assert_str_eq(ngd_comm_name(s.comm), "tp");
    ck_assert_uint_eq(ngd_comm_size(s.comm), 2);
    ck_assert_int_eq(ngd_comm_rank(s.comm, s.b[1].dev), 1);
    ngd_comm_destroy(NULL);
    ranks_close(&s);
}
END_TEST

START_TEST(group_without_host_memory_is_refused_and_leaves_nothing_behind)
{
    struct ngd_device *devices[2];
    struct ngd_comm_params params;
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    int64_t n = 0;
    struct ranks s;

    if (!ranks_open(&s, _i, 2, NGD_SEC))
        return;
    ngd_comm_params_init(&params);
    params.name = "more";
    params.devices = devices;
    params.n = 2;
    for (int r = 0; r < 2; r++)
        devices[r] = s.b[r].dev;
    for (; status; n++) {
        struct ngd_comm *comm = NULL;
        struct ngd_diag diag = {0};

        ngd_mem_fail_after(n);
        status = ngd_comm_create(&params, &comm, &diag);
        ngd_mem_fail_after(-1);
        ngd_comm_destroy(comm);
        if (status) {
            ck_assert_int_eq(status, NGD_ERR_NO_MEMORY);
            conform_says(diag.text, "\"more\"");
        }
    }
    ck_assert_int_gt(n, 1);
    ranks_close(&s);
}
END_TEST

/* What ranks exchange lies in device memory, or in host memory in its place; both count for the budget. */
START_TEST(group_takes_its_part_of_its_devices_budgets)
{
    struct ngd_device_params params;
    struct ngd_device *small = NULL;
    struct ngd_comm_params cp;
    struct ngd_comm *comm = NULL;
    struct ngd_diag diag = {0};
    uint64_t with, without;
    struct ranks s;

    if (!ranks_open(&s, _i, 2, NGD_SEC))
        return;
    with = ngd_device_used_bytes(s.b[1].dev);
    ngd_comm_destroy(s.comm);
    s.comm = NULL;
    without = ngd_device_used_bytes(s.b[1].dev);
    if (with == without) {
        conform_skip(s.backend, "the budgets of a group", "its ranks take nothing of them");
        ranks_close(&s);
        return;
    }
    conform_params(_i, &params);
    params.index = s.n;
    params.memory_bytes = with - without - 64;
    CONFORM_OK(ngd_device_open(&params, &small, &diag_));
    ngd_comm_params_init(&cp);
    cp.name = "large";
    cp.devices = (struct ngd_device *[]){s.b[0].dev, small};
    cp.n = 2;
    ck_assert_int_eq(ngd_comm_create(&cp, &comm, &diag), NGD_ERR_NO_DEVICE_MEMORY);
    conform_says(diag.text, "\"group large\"|budget");
    ck_assert_uint_eq(ngd_device_used_bytes(s.b[0].dev), without);
    ck_assert_uint_eq(ngd_device_used_bytes(small), 0);
    ngd_device_close(small);
    ranks_close(&s);
}
END_TEST

static void try_capture(struct ranks *s, struct ngd_comm *comm, const char *body, ngd_status_t status,
                        const char *words)
{
    struct ngd_diag diag = {0};
    struct ready r;
    ngd_status_t got = ready_open_in(&r, &s->b[0], &comm, comm != NULL, ranks_text("%s", body), NULL, &diag);

    if (got != status)
        ck_abort_msg("%s: %s, not %s: %s", body, ngd_status_name(got), ngd_status_name(status), diag.text);
    conform_says(diag.text, words);
}

START_TEST(collective_is_captured_for_its_group_only)
{
    struct ranks s, other;

    if (!ranks_open(&s, _i, 2, NGD_SEC))
        return;
    ck_assert(ranks_open(&other, _i, 1, NGD_SEC));
    try_capture(&s, NULL, "input %x : f32[4]\n%y = " SUM("%x"), NGD_ERR_GROUP_UNBOUND, "node 0|all_reduce|\"tp\"");
    try_capture(&s, s.comm,
                "input %x : f32[4]\n%y = _c10d_functional.all_reduce(%x) {reduce_op=\"sum\", group_name=\"dp\"}",
                NGD_ERR_GROUP_UNBOUND, "\"dp\"");
    try_capture(&s, s.comm,
                "input %x : f32[4]\n%y = _c10d_functional.all_gather_into_tensor(%x) {group_size=3, group_name=\"tp\"}",
                NGD_ERR_GRAPH_ATTRIBUTE, "group_size is 3|2 ranks");
    try_capture(&s, s.comm, "input %x : f32[4]\n%y = _c10d_functional.broadcast(%x) {src=2, group_name=\"tp\"}",
                NGD_ERR_GRAPH_ATTRIBUTE, "src is 2|ranks 0 to 1");
    try_capture(&s, s.comm,
                "input %x : f32[3]\n%y = _c10d_functional.all_to_all_single(%x) {output_split_sizes=[1,1,1], "
                "input_split_sizes=[1,1,1], group_name=\"tp\"}",
                NGD_ERR_GRAPH_ATTRIBUTE, "3 numbers|2 ranks");
    try_capture(&s, other.comm, "input %x : f32[4]\n%y = " SUM("%x"), NGD_ERR_GROUP_UNBOUND, "not in group \"tp\"");
    ranks_close(&other);
    ranks_close(&s);
}
END_TEST

/* ---- different things ---- */

static const struct {
    const char *zero, *one, *words;
} different[] = {
    {SUM("%x"), "_c10d_functional.all_reduce(%x) {reduce_op=\"max\", group_name=\"tp\"}",
     "rank 0|all_reduce of f32[4,2], sum|rank 1|f32[4,2], max"},
    {SUM("%x"), "_c10d_functional.broadcast(%x) {src=0, group_name=\"tp\"}", "rank 0|all_reduce|rank 1|broadcast"},
    {"_c10d_functional.broadcast(%x) {src=0, group_name=\"tp\"}",
     "_c10d_functional.broadcast(%x) {src=1, group_name=\"tp\"}", "rank 1|from rank 1"},
    {SUM("%x"), SUM("%z"), "f32[4,2]|f32[2,4]"},
    {SUM("%x"), SUM("%h"), "f32[4,2]|bf16[4,2]"},
    {SUM("%x"), "aten.exp(%x)\n%q = _c10d_functional.broadcast(%k) {src=0, group_name=\"tp\"}",
     "all_reduce of f32[4,2]|broadcast of f32[1]"},
    {"_c10d_functional.all_to_all_single(%x) {output_split_sizes=[1,2], input_split_sizes=[1,3], group_name=\"tp\"}",
     "_c10d_functional.all_to_all_single(%x) {output_split_sizes=[2,2], input_split_sizes=[2,2], group_name=\"tp\"}",
     "rank 0 sends 24 bytes to rank 1|16"},
};

static const char *body_text(const char *node)
{
    return ranks_text("input %%x : f32[4,2]\n%%z = aten.view(%%x) {size=[2,4]}\n%%h = aten._to_copy(%%x) {dtype=bf16}\n"
                      "%%k = aten.full() {size=[1], fill_value=1}\n%%y = %s",
                      node);
}

START_TEST(ranks_that_do_different_things_are_all_told_which)
{
    for (size_t i = 0; i < sizeof(different) / sizeof(different[0]); i++) {
        struct ranks s;

        if (!ranks_open(&s, _i, 3, 60 * NGD_SEC))
            return;
        if (strstr(different[i].zero, "all_to_all")) { /* this case is for two ranks */
            ranks_close(&s);
            ck_assert(ranks_open(&s, _i, 2, 60 * NGD_SEC));
        }
        for (uint32_t r = 0; r < s.n; r++)
            ranks_ready(&s, r, body_text(r == 1 ? different[i].one : different[i].zero), NULL);
        for (uint32_t r = 0; r < s.n; r++)
            ck_assert_int_eq(ranks_launch(&s, r), NGD_OK);
        ranks_wait(&s);
        for (uint32_t r = 0; r < s.n; r++) {
            ends_with(&s, r, NGD_ERR_COLLECTIVE_MISMATCH, different[i].words);
            ck_assert_str_eq(s.io[r].launch.diag.text, s.io[0].launch.diag.text);
        }
        ck_assert_int_eq(ngd_comm_status(s.comm, NULL), NGD_ERR_COLLECTIVE_MISMATCH);
        ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK); /* it does not wait, and reports the same mismatch */
        ranks_wait(&s);
        ends_with(&s, 0, NGD_ERR_COLLECTIVE_MISMATCH, different[i].words);
        check_usable(&s);
        ranks_close(&s);
    }
}
END_TEST

START_TEST(ranks_with_different_rows_are_told)
{
    static const int64_t three[] = {3}, four[] = {4};
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    for (uint32_t r = 0; r < 2; r++)
        ranks_ready(&s, r, ranks_text("sym B 1..8 buckets 8\ninput %%x : f32[B,4]\n%%y = " SUM("%%x")),
                    r ? four : three);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(ranks_launch(&s, r), NGD_OK);
    ranks_wait(&s);
    for (uint32_t r = 0; r < 2; r++)
        ends_with(&s, r, NGD_ERR_COLLECTIVE_MISMATCH, "f32[3,4]|f32[4,4]");
    check_usable(&s);
    ranks_close(&s);
}
END_TEST

/* ---- who does not come ---- */

static void two_sums(struct ranks *s)
{
    for (uint32_t r = 0; r < s->n; r++)
        ranks_ready(s, r, ranks_text("input %%x : f32[4]\n%%a = " SUM("%%x") "\n%%y = " SUM("%%a")), NULL);
}

START_TEST(rank_that_does_not_come_ends_the_wait_of_the_others)
{
    struct ranks s;

    if (!ranks_open(&s, _i, 3, 100 * NGD_MSEC))
        return;
    two_sums(&s);
    ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK);
    ck_assert_int_eq(ranks_launch(&s, 2), NGD_OK);
    ranks_wait(&s);
    ends_with(&s, 0, NGD_ERR_COLLECTIVE_TIMEOUT, "group \"tp\"|rank 1 did not come|all_reduce|0.1 s");
    ends_with(&s, 2, NGD_ERR_COLLECTIVE_TIMEOUT, "rank 1 did not come");
    ck_assert_int_eq(ranks_launch(&s, 1), NGD_OK); /* late */
    ranks_wait(&s);
    ends_with(&s, 1, NGD_ERR_COLLECTIVE_TIMEOUT, "rank 1 did not come");
    ngd_clock_set_fake(ngd_now()); /* the clock stands still, so that no rank is late */
    check_usable(&s);
    ngd_clock_set_fake(-1);
    ranks_close(&s);
}
END_TEST

/* Checks a rank with an index that is out of range, between the two collectives of a graph or behind them. */
static void check_bad_index(int backend, bool between, bool eager)
{
    static const char behind[] = "param %w : f32[4,2]\ninput %i : i32[1]\n%f = aten._to_copy(%i) {dtype=f32}\n"
                                 "%a = " SUM("%f") "\n%b = " SUM("%a") "\n%y = aten.embedding(%w, %i)";
    static const char amid[] = "param %w : f32[4,2]\ninput %i : i32[1]\n%f = aten._to_copy(%i) {dtype=f32}\n"
                               "%a = " SUM("%f") "\n%b = aten.embedding(%w, %i)\n%y = " SUM("%b");
    struct ranks s;

    if (!ranks_open(&s, backend, 2, 60 * NGD_SEC))
        return;
    for (uint32_t r = 0; r < 2; r++) {
        ranks_ready(&s, r, ranks_text("%s", between ? amid : behind), NULL);
        memcpy(s.x[r], &(int32_t){r ? 4 : 3}, 4);
        s.io[r].launch.eager = eager;
    }
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(ranks_launch(&s, r), NGD_OK);
    ranks_wait(&s);
    ends_with(&s, 1, NGD_ERR_INDEX_RANGE, "index 4");
    if (between || s.backend->checks_first) {
        ends_with(&s, 0, NGD_ERR_GROUP_BROKEN, "group \"tp\"|rank 1 failed|index 4");
    } else { /* the other rank does not depend on what comes after the collectives */
        ck_assert_int_eq(s.io[0].launch.status, NGD_OK);
        ck_assert_int_eq(ngd_comm_status(s.comm, NULL), NGD_OK);
    }
    check_usable(&s);
    ranks_close(&s);
}

START_TEST(rank_whose_data_is_wrong_does_not_keep_the_others_waiting)
{
    for (int form = 0; form < 4; form++)
        check_bad_index(_i, form & 1, form & 2);
}
END_TEST

START_TEST(rank_whose_stream_has_an_error_does_not_keep_the_others_waiting)
{
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    two_sums(&s);
    ngd_stream_poison(s.b[1].stream, NGD_ERR_DEVICE_FAULT);
    ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK);
    ck_assert_int_eq(ranks_launch(&s, 1), NGD_ERR_STREAM_ERROR);
    ranks_wait(&s);
    ends_with(&s, 0, NGD_ERR_GROUP_BROKEN, "rank 1 does not run");
    check_usable(&s);
    ranks_close(&s);
}
END_TEST

/*
 * Checks that one of the two ranks met the fault. Where devices wait for each other, the other one may reach its own
 * time limit.
 */
static void check_one_failed(const struct ranks *s, enum conform_fault fault)
{
    const struct ngd_launch *l[2] = {&s->io[0].launch, &s->io[1].launch};
    uint32_t failed = ngd_status_scope(l[0]->status) == NGD_SCOPE_DEVICE ? 0 : 1;

    ck_assert_int_eq(ngd_status_scope(l[failed]->status), NGD_SCOPE_DEVICE);
    if (fault == CONFORM_HANG && ngd_status_scope(l[1 - failed]->status) == NGD_SCOPE_DEVICE)
        return;
    ends_with(s, 1 - failed, NGD_ERR_GROUP_BROKEN, failed ? "group \"tp\"|rank 1" : "group \"tp\"|rank 0");
}

START_TEST(rank_whose_device_fails_does_not_keep_the_others_waiting)
{
    static const enum conform_fault faults[] = {CONFORM_FAULT, CONFORM_LOST, CONFORM_HANG};

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        const char *why;
        struct ranks s;

        if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
            return;
        two_sums(&s);
        why = s.backend->arm(faults[i]);
        if (why) {
            conform_skip(s.backend, "a rank's device that fails", why);
        } else {
            for (uint32_t r = 0; r < 2; r++)
                ck_assert_int_eq(ranks_launch(&s, r), NGD_OK);
            ranks_wait(&s);
            s.backend->disarm();
            check_one_failed(&s, faults[i]);
            check_usable(&s);
        }
        ranks_close(&s);
    }
}
END_TEST

/*
 * Destroying a group ends the wait of its ranks. A later launch of its executable reports it, and then the executable
 * is released.
 */
START_TEST(group_that_is_destroyed_keeps_nobody_waiting)
{
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    two_sums(&s);
    ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK);
    ngd_comm_destroy(s.comm);
    s.comm = NULL;
    ranks_wait(&s);
    ends_with(&s, 0, NGD_ERR_GROUP_BROKEN, "group \"tp\"|destroyed");
    ck_assert_int_eq(ranks_launch(&s, 1), NGD_OK);
    ranks_wait(&s);
    ends_with(&s, 1, NGD_ERR_GROUP_BROKEN, "destroyed");
    ranks_close(&s);
}
END_TEST

START_TEST(group_that_is_given_up_says_why)
{
    struct ngd_diag diag = {0};
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    two_sums(&s);
    ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK);
    ngd_comm_abort(s.comm, NGD_ERR_CANCELLED, "its client left");
    ngd_comm_abort(s.comm, NGD_ERR_GROUP_BROKEN, "later");
    ranks_wait(&s);
    ends_with(&s, 0, NGD_ERR_CANCELLED, "group \"tp\"|its client left");
    ck_assert_int_eq(ngd_comm_status(s.comm, &diag), NGD_ERR_CANCELLED);
    conform_says(diag.text, "its client left");
    check_usable(&s);
    ranks_close(&s);
}
END_TEST

/* A reset while a rank is in a launch would cost that launch its place in the order of collectives. */
START_TEST(group_in_use_is_not_reset)
{
    struct conform_gate gate;
    struct ngd_diag diag = {0};
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    two_sums(&s);
    conform_gate_close_on(&gate, s.b[1].stream);
    ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK);
    ck_assert_int_eq(ranks_launch(&s, 1), NGD_OK);
    while (ngd_comm_reset(s.comm, &diag) == NGD_OK) /* until rank 0 has begun */
        sched_yield();
    conform_says(diag.text, "rank 0 is in a launch");
    conform_gate_open(&gate);
    ranks_wait(&s);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(s.io[r].launch.status, NGD_OK);
    check_usable(&s);
    ranks_close(&s);
}
END_TEST

/* Two streams of one device are the same rank. */
START_TEST(rank_is_in_one_launch_at_a_time)
{
    struct ngd_stream *other = NULL;
    struct ngd_pool *pool = NULL;
    struct ngd_instance *inst = NULL;
    struct conform_io io;
    struct ngd_diag diag = {0};
    float y[4];
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    two_sums(&s);
    CONFORM_OK(ngd_stream_create(s.b[0].dev, "other", &other, &diag_));
    CONFORM_OK(ngd_pool_create(s.b[0].dev, "other", &pool));
    CONFORM_OK(ngd_instance_create(s.r[0].exec, NULL, 0, pool, &inst, &diag_));
    ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK);
    while (ngd_comm_reset(s.comm, &diag) == NGD_OK) /* until the launch has begun */
        sched_yield();
    conform_io_init(&io, NULL);
    io.in[0] = s.io[0].in[0];
    io.out[0] = (struct ngd_out){y, sizeof(y)};
    ck_assert_int_eq(ngd_stream_run(other, inst, &io.launch), NGD_ERR_GROUP_BROKEN);
    conform_says(io.launch.diag.text, "group \"tp\"|rank 0 has two launches");
    ranks_wait(&s);
    ends_with(&s, 0, NGD_ERR_GROUP_BROKEN, "rank 0 has two launches");
    ngd_instance_destroy(inst);
    ngd_stream_destroy(other);
    ngd_pool_destroy(pool);
    check_usable(&s);
    ranks_close(&s);
}
END_TEST

/* A graph uses two groups of the same devices, each with its own order of collectives. */
START_TEST(graph_may_have_several_groups)
{
    struct ngd_comm *comms[2];
    struct ngd_device *back[2];
    struct ngd_comm_params params;
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    back[0] = s.b[1].dev;
    back[1] = s.b[0].dev;
    ngd_comm_params_init(&params);
    params.name = "back";
    params.devices = back;
    params.n = 2;
    CONFORM_OK(ngd_comm_create(&params, &comms[1], &diag_));
    comms[0] = s.comm;
    for (uint32_t r = 0; r < 2; r++) {
        struct ready *ready = &s.r[r];

        ranks_ready(&s, r, ranks_text("input %%x : f32[2]\n%%y = aten.neg(%%x)"), NULL);
        ready_close(ready);
        CONFORM_OK(ready_open_in(
            ready, &s.b[r], comms, 2,
            ranks_text("input %%x : f32[2]\n%%a = _c10d_functional.broadcast(%%x) {src=0, "
                       "group_name=\"back\"}\n%%b = " SUM("%%a") "\n%%c = _c10d_functional."
                                                                 "broadcast(%%x) {src=0, group_name=\"tp\"}\n%%y = "
                                                                 "aten.sub.Tensor(%%b, %%c)"),
            NULL, &diag_));
        memcpy(s.x[r], &(float[]){(float)r + 1, 10}, 8);
    }
    for (int i = 0; i < 50; i++)
        ranks_run(&s);
    for (uint32_t r = 0; r < 2; r++) {
        float y[2];

        memcpy(y, s.y[r], sizeof(y));
        ck_assert_float_eq(y[0], 3); /* rank 0 of "back" has 2, summed over both; rank 0 of "tp" has 1 */
        ck_assert_float_eq(y[1], 10);
    }
    ngd_comm_destroy(comms[1]);
    check_usable(&s);
    ranks_close(&s);
}
END_TEST

/* A collective on a side stream waits while the main stream goes on, and gives up when the main stream has failed. */
START_TEST(collective_on_a_side_stream_ends_with_its_launch)
{
    struct ranks s;

    if (!ranks_open(&s, _i, 2, 60 * NGD_SEC))
        return;
    if (!NGD_FAULT_COMPILED) {
        conform_skip(s.backend, "a collective on a side stream", "this build has no fault points");
        ranks_close(&s);
        return;
    }
    ngd_fault_arm(NGD_FAULT_HOST_LANES, 0, UINT32_MAX);
    for (uint32_t r = 0; r < 2; r++)
        ranks_ready(
            &s, r,
            ranks_text(
                "%s",
                "param %w : f32[4,2]\ninput %i : i32[1]\nstream \"side\" {\n"
                "%f = aten._to_copy(%i) {dtype=f32}\n%a = " SUM(
                    "%f") "\n}\n"
                          "%t = aten.full() {size=[400000], fill_value=1}\n%u = aten.exp(%t)\n" /* the side is there
                                                                                                   first, as a rule */
                          "%v = aten.mean.dim(%u) {dim=[0]}\n%b = aten.embedding(%w, %i)\n"
                          "%c = aten.mul.Tensor(%b, %v)\n%y = aten.add.Tensor(%c, %a)"),
            NULL);
    ngd_fault_disarm_all();
    for (uint32_t r = 0; r < 2; r++)
        memcpy(s.x[r], &(int32_t){(int32_t)r + 2}, 4);
    for (int i = 0; i < 50; i++) {
        ranks_run(&s);
        for (uint32_t r = 0; r < 2; r++)
            ck_assert_int_eq(memcmp(s.y[r], (float[]){5, 5}, 8), 0);
    }
    memcpy(s.x[1], &(int32_t){4}, 4);
    ck_assert_int_eq(ranks_launch(&s, 1), NGD_OK); /* no other rank comes */
    ranks_wait(&s);
    ends_with(&s, 1, NGD_ERR_INDEX_RANGE, "index 4");
    ck_assert_int_eq(ranks_launch(&s, 0), NGD_OK);
    ranks_wait(&s);
    ends_with(&s, 0, NGD_ERR_GROUP_BROKEN, "rank 1 failed");
    check_usable(&s);
    ranks_close(&s);
}
END_TEST

TCase *conform_groups(void)
{
    TCase *tcase = tcase_create("groups");

    CONFORM_ADD(tcase, group_that_cannot_be_is_refused, group_without_host_memory_is_refused_and_leaves_nothing_behind,
                group_takes_its_part_of_its_devices_budgets, collective_is_captured_for_its_group_only,
                ranks_that_do_different_things_are_all_told_which, ranks_with_different_rows_are_told,
                rank_that_does_not_come_ends_the_wait_of_the_others,
                rank_whose_data_is_wrong_does_not_keep_the_others_waiting,
                rank_whose_stream_has_an_error_does_not_keep_the_others_waiting,
                rank_whose_device_fails_does_not_keep_the_others_waiting, group_that_is_destroyed_keeps_nobody_waiting,
                group_that_is_given_up_says_why, group_in_use_is_not_reset, rank_is_in_one_launch_at_a_time,
                graph_may_have_several_groups, collective_on_a_side_stream_ends_with_its_launch);
    return tcase;
}
