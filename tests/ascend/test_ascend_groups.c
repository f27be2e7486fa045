/* SPDX-License-Identifier: Apache-2.0 */
/* Two devices: a group of both, of which any call of CANN may fail once, and the loss of one of them. */
#include "devices/comm.h"
#include "tests/ascend/step.h"

#define SUM_GRAPH                                                                             \
    "npugraph 1\ngraph \"sum\" {\n input %x : f32[4]\n %a = _c10d_functional.all_reduce(%x) " \
    "{reduce_op=\"sum\", group_name=\"tp\"}\n %y = aten.neg(%a)\n return \"y\" = %y\n}\n"

struct pair {
    struct bench b[2];
    struct ready r[2];
    struct ngd_comm *comm;
    float x[2][4], y[2][4];
    struct ngd_span in[2];
    struct ngd_out out[2];
    struct ngd_launch launch[2];
};

static ngd_status_t open_pair(struct pair *p, struct ngd_diag *diag)
{
    struct ngd_device *devices[2];
    struct ngd_comm_params params;
    ngd_status_t status = NGD_OK;

    memset(p, 0, sizeof(*p));
    for (uint32_t r = 0; r < 2 && !status; r++) {
        status = open_device(&p->b[r], r, diag);
        devices[r] = p->b[r].dev;
    }
    ngd_comm_params_init(&params);
    params.name = "tp";
    params.devices = devices;
    params.n = 2;
    if (!status)
        status = ngd_comm_create(&params, &p->comm, diag);
    for (uint32_t r = 0; r < 2 && !status; r++)
        status = ready_open_in(&p->r[r], &p->b[r], &p->comm, 1, SUM_GRAPH, NULL, diag);
    return status;
}

static void close_pair(struct pair *p)
{
    for (int r = 0; r < 2; r++)
        if (p->r[r].graph)
            ready_close(&p->r[r]);
    ngd_comm_destroy(p->comm);
    for (int r = 0; r < 2; r++)
        if (p->b[r].dev)
            close_device(&p->b[r]);
}

/* Both ranks; the first error. */
static ngd_status_t launch_pair(struct pair *p, int turn)
{
    ngd_status_t status = NGD_OK;

    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 4; i++)
            p->x[r][i] = (float)(turn + i + 10 * r);
        p->in[r] = (struct ngd_span){p->x[r], sizeof(p->x[r])};
        p->out[r] = (struct ngd_out){p->y[r], sizeof(p->y[r])};
        p->launch[r] = (struct ngd_launch){.inputs = &p->in[r], .outputs = &p->out[r], .eager = turn == 2};
        p->launch[r].status = NGD_ERR_INTERNAL; /* until it has run, or is refused */
        (void)ngd_stream_launch(p->b[r].stream, p->r[r].inst, &p->launch[r]);
    }
    for (int r = 0; r < 2; r++) {
        ngd_stream_sync(p->b[r].stream);
        if (!status)
            status = p->launch[r].status;
        for (int i = 0; i < 4 && !p->launch[r].status; i++)
            ck_assert_float_eq(p->y[r][i], (float)-(2 * (turn + i) + 10));
    }
    return status;
}

/* Also after an error and a reset. */
static ngd_status_t life_of_a_pair(void)
{
    struct ngd_diag diag = {0};
    struct pair p;
    ngd_status_t status = open_pair(&p, &diag), first = status;

    for (int turn = 0; turn < 3 && !status; turn++) {
        status = launch_pair(&p, turn);
        if (!status)
            continue;
        first = status;
        for (int r = 0; r < 2; r++)
            ngd_stream_reset(p.b[r].stream);
        status = ngd_comm_reset(p.comm, &diag);
    }
    close_pair(&p);
    return first;
}

START_TEST(any_call_of_cann_may_fail_once_in_a_group_and_no_rank_waits_for_ever)
{
    static const int codes[] = {107000, 207001, 15, 507015};
    int64_t before = simulator_count("calls"), n;
    struct sweep sweep;

    simulator_set("devices", "2");
    ck_assert_int_eq(life_of_a_pair(), NGD_OK);
    simulator_set("hccl_connect_ms", "100"); /* for a rank that fails before its first collective */
    nothing_is_left("without a fault");
    n = simulator_count("calls") - before;
    ck_assert_int_gt(n, 80);
    sweep = each_call_fails_once(life_of_a_pair, n, codes, "calls of a group that fail once");
    ck_assert_int_gt(sweep.failed, sweep.tried / 20);
    simulator_set("devices", "1");
}
END_TEST

static void mend_pair(struct pair *p)
{
    struct ngd_diag diag = {0};

    for (int r = 0; r < 2; r++)
        ngd_stream_reset(p->b[r].stream);
    must(ngd_comm_reset(p->comm, &diag), &diag);
}

/* The other one's launches may have been in the context that failed: after its own reset it works too. */
START_TEST(group_that_fails_and_is_reset_leaves_its_devices_other_group_usable)
{
    struct ngd_device *devices[2];
    struct ngd_comm_params params;
    struct ngd_diag diag = {0};
    struct pair p, q;

    simulator_set("devices", "2");
    must(open_pair(&p, &diag), &diag);
    q = p;
    for (int r = 0; r < 2; r++)
        devices[r] = p.b[r].dev;
    ngd_comm_params_init(&params);
    params.name = "tp";
    params.devices = devices;
    params.n = 2;
    must(ngd_comm_create(&params, &q.comm, &diag), &diag);
    for (uint32_t r = 0; r < 2; r++)
        must(ready_open_in(&q.r[r], &q.b[r], &q.comm, 1, SUM_GRAPH, NULL, &diag), &diag);
    ck_assert_int_eq(launch_pair(&p, 0), NGD_OK);
    ck_assert_int_eq(launch_pair(&q, 0), NGD_OK);
    for (int i = 0; i < 3; i++) {
        SIMULATOR(ngd_aclsim_break)(0, "fault");
        ck_assert_int_ne(launch_pair(&p, 1), NGD_OK);
        mend_pair(&p);
        if (launch_pair(&q, 1) != NGD_OK) {
            mend_pair(&q);
            ck_assert_int_eq(launch_pair(&q, 1), NGD_OK);
        }
        ck_assert_int_eq(launch_pair(&p, 1), NGD_OK);
        ck_assert_int_eq(launch_pair(&q, 2), NGD_OK);
    }
    for (int r = 0; r < 2; r++)
        ready_close(&q.r[r]);
    ngd_comm_destroy(q.comm);
    close_pair(&p);
    nothing_is_left("after faults of one group of two");
    simulator_set("devices", "1");
}
END_TEST

START_TEST(losing_one_of_two_devices_is_reported_and_the_other_serves_on)
{
    struct step *s = malloc(sizeof(*s));
    struct ngd_diag diag = {0};
    struct bench b[2];
    struct ready r[2];

    simulator_set("devices", "2");
    for (uint32_t i = 0; i < 2; i++) {
        must(open_device(&b[i], i, &diag), &diag);
        step_init(s, 2, 20);
        must(ready_open(&r[i], &b[i], GRAPH, &s->n, &diag), &diag);
        must(write_weight(&r[i]), &diag);
        must(ngd_stream_run(b[i].stream, r[i].inst, &s->launch), &s->launch.diag);
    }
    SIMULATOR(ngd_aclsim_break)(1, "lost");
    for (int i = 0; i < 3; i++) {
        ngd_status_t status = ngd_stream_run(b[1].stream, r[1].inst, &s->launch);

        ck_assert_int_eq(status, i == 0 ? NGD_ERR_DEVICE_LOST : NGD_ERR_STREAM_ERROR);
        must(ngd_stream_run(b[0].stream, r[0].inst, &s->launch), &s->launch.diag);
    }
    ngd_stream_reset(b[1].stream);
    ck_assert_int_ne(ngd_stream_status(b[1].stream), NGD_OK); /* a reset does not bring it back */
    SIMULATOR(ngd_aclsim_break)(1, "ok");
    ngd_stream_reset(b[1].stream);
    ck_assert_int_eq(ngd_stream_status(b[1].stream), NGD_OK);
    must(ngd_stream_run(b[1].stream, r[1].inst, &s->launch), &s->launch.diag);
    for (uint32_t i = 0; i < 2; i++) {
        ready_close(&r[i]);
        close_device(&b[i]);
    }
    free(s);
    nothing_is_left("after a loss");
}
END_TEST

UNIT_MAIN("ascend/groups", any_call_of_cann_may_fail_once_in_a_group_and_no_rank_waits_for_ever,
          group_that_fails_and_is_reset_leaves_its_devices_other_group_usable,
          losing_one_of_two_devices_is_reported_and_the_other_serves_on)
