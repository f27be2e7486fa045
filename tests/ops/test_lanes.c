/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of a plan that run at the same time on the host device: many replays in a row of graphs whose streams hand
 * values to and fro, against the same graph on one stream. Whether it pays is not asked here: lanes are forced.
 */
#include "base/fault.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/run_plan.h"
#include "tests/unit/unit.h"

#define HEAD        "npugraph 1\ngraph \"t\" {\n"
#define RECORD(tag) "npugraph_ex.tagged_event_record() {tag=\"" tag "\"}\n"
#define WAIT(tag)   "npugraph_ex.tagged_event_wait() {tag=\"" tag "\"}\n"

/* Three streams, values that cross, a state that all of them write in turn, calls large enough to be divided. */
#define CROSSING(SIDE, TAIL, LIMIT, END)                                                                       \
    HEAD "state %s : f32[65536]\ninput %x : f32[65536]\ninput %k : f32[64]\n"                                  \
         "%a0 = aten.exp(%x)\n%t0 = aten.neg(%k)\n" SIDE "%b0 = aten.sin(%a0)\n%u0 = aten.abs(%t0)\n" END TAIL \
         "%c0 = aten.cos(%b0)\n%v0 = aten.add.Tensor(%u0, %t0)\naten.copy_(%s, %c0)\n" END                     \
         "%a1 = aten.add.Tensor(%a0, %s)\n" SIDE LIMIT "%b1 = aten.mul.Tensor(%a1, %b0)\n" END END TAIL        \
         "%c1 = aten.sub.Tensor(%b1, %c0)\n%v1 = aten.sin(%v0)\n" END SIDE "%b2 = aten.add.Tensor(%s, %c1)\n"  \
         "aten.copy_(%s, %b2)\n%u1 = aten.cos(%v1)\n" END "%y = aten.add.Tensor(%b2, %s)\n"                    \
         "%z = aten.add.Tensor(%u1, %v1)\nreturn %y, %z, %c1\n}"

#define ON_STREAMS CROSSING("stream \"b\" {\n", "stream \"c\" {\n", "limit_core_num 1, 1 {\n", "}\n")

/* The same without a scope: braces go, as they only close them. */
#define ON_ONE CROSSING("", "", "", "")

struct runner {
    struct bench b;
    struct any a;
    struct made made;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
};

static void runner_open(struct runner *r, const char *text, uint32_t threads)
{
    struct ngd_diag diag = {0};
    struct ngd_graph *g = NULL;
    struct ngd_digest options = {{0}};
    struct ngd_key key;

    memset(r, 0, sizeof(*r));
    bench_open(&r->b, ngd_cpu_isa(), threads);
    run_check(ngd_graph_parse(text, strlen(text), &g, &diag), &diag, "parse");
    run_check(ngd_key_make(g, &options, NULL, 0, &key, &diag), &diag, "key");
    run_check(ngd_plan_create(g, &key, NULL, ngd_device_target(r->b.dev), &r->plan, &diag), &diag, "plan");
    any_open(&r->a, &r->b, r->plan, NULL, &r->made);
    run_check(ngd_exec_create(r->b.dev, r->plan, &r->exec, &diag), &diag, "exec");
    run_check(ngd_instance_create(r->exec, r->a.bound, g->n_params + g->n_states, r->b.pool, &r->inst, &diag), &diag,
              "instance");
    ngd_graph_unref(g);
}

static ngd_status_t runner_run(struct runner *r)
{
    struct ngd_launch launch = {.inputs = r->a.in, .hosts = r->a.hosts, .outputs = r->a.out};

    return ngd_stream_run(r->b.stream, r->inst, &launch);
}

static void runner_close(struct runner *r)
{
    ngd_instance_destroy(r->inst);
    ngd_exec_unref(r->exec);
    any_close(&r->a, r->plan, &r->made);
    ngd_plan_unref(r->plan);
    bench_close(&r->b);
}

static void check_many(uint32_t threads)
{
    struct runner one, lanes;

    runner_open(&one, ON_ONE, 1);
    ngd_fault_arm(NGD_FAULT_HOST_LANES, 0, UINT32_MAX);
    runner_open(&lanes, ON_STREAMS, threads);
    ngd_fault_disarm_all();
    ck_assert_uint_eq(lanes.plan->n_streams, 3);
    for (int i = 0; i < 60; i++) { /* the state goes from each replay to the next */
        ck_assert_int_eq(runner_run(&one), NGD_OK);
        ck_assert_int_eq(runner_run(&lanes), NGD_OK);
        ck_assert_msg(memcmp(one.made.data, lanes.made.data,
                             lanes.a.out[0].bytes + lanes.a.out[1].bytes + lanes.a.out[2].bytes) == 0,
                      "replay %d with %u threads", i, threads);
    }
    runner_close(&one);
    runner_close(&lanes);
    ck_assert_int_eq(memcmp(one.made.data, lanes.made.data, one.made.bytes), 0); /* with the state */
    free(one.made.data);
    free(lanes.made.data);
}

START_TEST(many_replays_on_lanes_give_what_one_stream_gives)
{
    for (uint32_t threads = 1; threads <= 5; threads++)
        check_many(threads);
}
END_TEST

/* More streams than threads, each waiting for the one before it, in both directions. */
static void check_turns(uint32_t threads)
{
    struct runner r;
    struct ngd_strbuf sb;
    const float *y;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, HEAD "input %x : f32[16]\n%v0 = aten.mul.Scalar(%x) {other=0}\n");
    for (int i = 0; i < 90; i++)
        ngd_strbuf_printf(&sb, "stream \"%d\" {\n%%v%d = aten.add.Scalar(%%v%d) {other=1}\n}\n", i % 14, i + 1, i);
    ngd_strbuf_append(&sb, "return %v90\n}");
    ngd_fault_arm(NGD_FAULT_HOST_LANES, 0, UINT32_MAX);
    runner_open(&r, ngd_strbuf_str(&sb), threads);
    ngd_fault_disarm_all();
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(runner_run(&r), NGD_OK);
        y = (const float *)(const void *)r.made.data;
        for (int k = 0; k < 16; k++)
            ck_assert_msg(y[k] == 90.0f, "replay %d, %u threads: %g", i, threads, (double)y[k]);
    }
    runner_close(&r);
    free(r.made.data);
    ngd_strbuf_fini(&sb);
}

START_TEST(more_streams_than_threads_take_turns)
{
    for (uint32_t threads = 2; threads <= 4; threads++)
        check_turns(threads);
}
END_TEST

START_TEST(error_on_a_side_stream_ends_the_replay_and_the_next_one_runs)
{
    struct runner r;
    int64_t *index;

    ngd_fault_arm(NGD_FAULT_HOST_LANES, 0, UINT32_MAX);
    runner_open(&r,
                HEAD "param %w : f32[8,4]\ninput %i : i64[2]\ninput %x : f32[2,4]\n"
                     "%m = aten.neg(%x)\nstream \"s\" {\n%e = aten.embedding(%w, %i)\n%f = aten.add.Tensor(%e, %m)\n}\n"
                     "%y = aten.add.Tensor(%f, %m)\nreturn %y\n}",
                2);
    ngd_fault_disarm_all();
    index = (int64_t *)(uintptr_t)r.a.in[0].data;
    for (int i = 0; i < 40; i++) {
        index[0] = 3;
        index[1] = i % 2 ? 8 : 7;
        ck_assert_int_eq(runner_run(&r), i % 2 ? NGD_ERR_INDEX_RANGE : NGD_OK);
    }
    runner_close(&r);
    free(r.made.data);
}
END_TEST

UNIT_MAIN("ops/lanes", many_replays_on_lanes_give_what_one_stream_gives, more_streams_than_threads_take_turns,
          error_on_a_side_stream_ends_the_replay_and_the_next_one_runs)
