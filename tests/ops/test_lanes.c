/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests streams of a plan that run at the same time on the host device: many replays of graphs whose streams exchange
 * values are compared with the same graph on one stream. Lanes are forced, even if they are slower. `test_lanes
 * --bench` prints times of branches with and without lanes.
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

/* The same on one stream: without scopes and their braces. */
#define ON_ONE CROSSING("", "", "", "")

struct runner {
    struct bench b;
    struct any a;
    struct made made;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
};

static void runner_open_with(struct runner *r, const char *text, uint32_t threads, const struct ngd_graph_options *with)
{
    struct ngd_diag diag = {0};
    struct ngd_graph *g = NULL;
    struct ngd_digest options = {{0}};
    struct ngd_key key;

    memset(r, 0, sizeof(*r));
    bench_open(&r->b, ngd_cpu_isa(), threads);
    run_check(ngd_graph_parse(text, strlen(text), &g, &diag), &diag, "parse");
    run_check(ngd_key_make(g, &options, NULL, 0, &key, &diag), &diag, "key");
    run_check(ngd_plan_create(g, &key, with, ngd_device_target(r->b.dev), &r->plan, &diag), &diag, "plan");
    any_open(&r->a, &r->b, r->plan, NULL, &r->made);
    run_check(ngd_exec_create(r->b.dev, r->plan, &r->exec, &diag), &diag, "exec");
    run_check(ngd_instance_create(r->exec, r->a.bound, g->n_params + g->n_states, r->b.pool, &r->inst, &diag), &diag,
              "instance");
    ngd_graph_unref(g);
}

static void runner_open(struct runner *r, const char *text, uint32_t threads)
{
    runner_open_with(r, text, threads, NULL);
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

/* Products of values and of a state, which is written now and then. */
static char *some_products(uint32_t seed)
{
    struct random r = {seed};
    struct ngd_strbuf sb;
    uint32_t n = 1;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, HEAD "param %w : f32[128,128]\nstate %s : f32[8,128]\ninput %v0 : f32[8,128]\n");
    for (; n < 24; n++) {
        uint32_t from = (uint32_t)random_below(&r, n);

        if (random_below(&r, 6) == 0)
            ngd_strbuf_printf(&sb, "aten.copy_(%%s, %%v%u)\n", from);
        if (random_below(&r, 5) == 0)
            ngd_strbuf_printf(&sb, "%%v%u = aten.linear(%%s, %%w)\n", n);
        else if (random_below(&r, 4) == 0)
            ngd_strbuf_printf(&sb, "%%v%u = aten.add.Tensor(%%v%u, %%v%u)\n", n, from, (uint32_t)random_below(&r, n));
        else
            ngd_strbuf_printf(&sb, "%%v%u = aten.linear(%%v%u, %%w)\n", n, from);
    }
    ngd_strbuf_append(&sb, "return ");
    for (uint32_t i = 12; i < n; i++)
        ngd_strbuf_printf(&sb, "%s%%v%u", i == 12 ? "" : ", ", i);
    ngd_strbuf_append(&sb, "\n}");
    return ngd_strbuf_steal(&sb);
}

START_TEST(streams_that_the_pass_assigns_give_the_same_bits)
{
    struct ngd_graph_options options;
    uint32_t assigned = 0;

    ngd_graph_options_init(&options);
    for (uint32_t seed = 1; seed <= 40; seed++) {
        char *text = some_products(seed);
        struct runner one, many;

        runner_open(&one, text, 1);
        options.assign_streams = 1 + seed % 3;
        ngd_fault_arm(NGD_FAULT_HOST_LANES, 0, UINT32_MAX);
        runner_open_with(&many, text, 2 + seed % 2, &options);
        ngd_fault_disarm_all();
        assigned += many.plan->n_streams > 1;
        for (int i = 0; i < 5; i++) {
            ck_assert_int_eq(runner_run(&one), NGD_OK);
            ck_assert_int_eq(runner_run(&many), NGD_OK);
        }
        runner_close(&one);
        runner_close(&many);
        ck_assert_msg(memcmp(one.made.data, many.made.data, one.made.bytes) == 0, "seed %u", seed);
        free(one.made.data);
        free(many.made.data);
        ngd_free(text);
    }
    ck_assert_uint_gt(assigned, 20);
}
END_TEST

/* Runs more streams than threads, each waiting for the previous one, in both directions. */
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

/* ---- benchmark ---- */

static int by_time(const void *a, const void *b)
{
    const ngd_nsec_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* Returns the median time of replays, in microseconds. */
static double time_of(const char *text, int64_t streams, bool forced)
{
    enum { RUNS = 400 };
    static ngd_nsec_t times[RUNS];
    struct ngd_graph_options options;
    struct runner r;

    ngd_graph_options_init(&options);
    options.assign_streams = streams;
    if (forced)
        ngd_fault_arm(NGD_FAULT_HOST_LANES, 0, UINT32_MAX);
    runner_open_with(&r, text, 2, &options);
    ngd_fault_disarm_all();
    for (int i = 0; i < RUNS; i++) {
        ngd_nsec_t begin = ngd_now();

        (void)runner_run(&r);
        times[i] = ngd_now() - begin;
    }
    runner_close(&r);
    free(r.made.data);
    qsort(times, RUNS, sizeof(times[0]), by_time);
    return (double)times[RUNS / 2] / 1000;
}

/* Makes two branches of `length` products each, which join at the end. */
static char *two_branches(uint32_t length, uint32_t width)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb, HEAD "param %%w : f32[%u,%u]\ninput %%a0 : f32[1,%u]\n%%b0 = aten.neg(%%a0)\n", width, width,
                      width);
    for (uint32_t i = 0; i < length; i++)
        ngd_strbuf_printf(&sb, "%%a%u = aten.linear(%%a%u, %%w)\n%%b%u = aten.linear(%%b%u, %%w)\n", i + 1, i, i + 1,
                          i);
    ngd_strbuf_printf(&sb, "%%y = aten.add.Tensor(%%a%u, %%b%u)\nreturn %%y\n}", length, length);
    return ngd_strbuf_steal(&sb);
}

static int bench(void)
{
    static const uint32_t shapes[][2] = {{20, 64}, {20, 128}, {20, 256}, {20, 512}, {20, 1024}, {200, 128}, {200, 256}};

    printf("two branches of linears, two threads, us per replay (median)\n%-16s %10s %14s %14s\n", "", "one stream",
           "assign_streams", "lanes forced");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        char *text = two_branches(shapes[i][0], shapes[i][1]);

        printf("%4u x %4ux%-5u %10.1f %14.1f %14.1f\n", shapes[i][0], shapes[i][1], shapes[i][1],
               time_of(text, 0, false), time_of(text, 1, false), time_of(text, 1, true));
        ngd_free(text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const TTest *const tests[] = {
        many_replays_on_lanes_give_what_one_stream_gives,
        streams_that_the_pass_assigns_give_the_same_bits,
        more_streams_than_threads_take_turns,
        error_on_a_side_stream_ends_the_replay_and_the_next_one_runs,
    };

    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return bench();
    return unit_run("ops/lanes", tests, sizeof(tests) / sizeof(tests[0]));
}
