/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/sched_util.h"

#define MUL_TEXT                                                                          \
    "npugraph 1\ngraph \"mul\" {\n sym N 1..64\n param %w : f32[1]\n input %x : f32[N]\n" \
    " %y = aten.mul.Tensor(%x, %w)\n return \"y\" = %y\n}\n"

/* ---- programs ----------------------------------------------------------------------------------------- */

START_TEST(same_graph_and_options_share_a_program_and_others_do_not)
{
    struct ngd_graph_options options;
    struct ngd_program *a, *b, *c, *d;
    struct ngd_graph *g;
    struct bed bed;
    bool shared;

    bed_open(&bed, 1, 0);
    g = bed_graph(DOUBLE_TEXT);
    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_program_open(bed.sched, bed.dev, g, &options, NULL, &a, &shared, NULL), NGD_OK);
    ck_assert(!shared);
    b = bed_program(&bed, DOUBLE_TEXT, NULL);
    ck_assert_ptr_eq(a, b);
    ck_assert_int_eq(ngd_program_open(bed.sched, bed.dev, g, &options, NULL, &c, &shared, NULL), NGD_OK);
    ck_assert(shared);
    ck_assert_ptr_eq(a, c);
    options.capture_limit = 3;
    ck_assert_int_eq(ngd_program_open(bed.sched, bed.dev, g, &options, NULL, &d, &shared, NULL), NGD_OK);
    ck_assert(!shared);
    ck_assert_ptr_ne(a, d);
    ck_assert_ptr_eq(ngd_program_graph(a), g);
    ck_assert_ptr_eq(ngd_program_device(a), bed.dev);
    ngd_graph_unref(g);
    ngd_program_unref(a);
    ngd_program_unref(b);
    ngd_program_unref(c);
    ngd_program_unref(d);
    ck_assert(ngd_list_empty(&bed.sched->programs));
    bed_close(&bed);
}
END_TEST

static void count_program(void *ctx, struct ngd_program *prog)
{
    ck_assert_str_eq(ngd_program_graph(prog)->name, "double");
    ++*(int *)ctx;
}

static void count_key(void *ctx, const char *key)
{
    ck_assert(strstr(key, "N=="));
    ++*(int *)ctx;
}

START_TEST(program_shows_its_keys_and_plans)
{
    struct ngd_program_stats stats;
    struct ngd_binding *b;
    struct ngd_strbuf sb;
    struct bed bed;
    int n = 0;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 3, 1);
    bed_warm(&bed, b, 4, 1);
    ngd_program_for_each(bed.sched, count_program, &n);
    ck_assert_int_eq(n, 1);
    n = 0;
    ngd_program_print_keys(b->prog, count_key, &n);
    ck_assert_int_eq(n, 2);
    ngd_strbuf_init(&sb);
    ngd_program_print_plans(b->prog, "", &sb);
    ck_assert(strstr(ngd_strbuf_str(&sb), "# key: N=="));
    ngd_strbuf_fini(&sb);
    ngd_program_stats(b->prog, &stats);
    ck_assert_uint_eq(stats.cache.entries, 2);
    ck_assert_uint_gt(stats.pool_bytes, 0);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

struct opener {
    struct bed *bed;
    struct ngd_graph *graph;
};

static void *open_and_close(void *arg)
{
    struct opener *o = arg;
    struct ngd_graph_options options;

    ngd_graph_options_init(&options);
    for (int i = 0; i < 2000; i++) {
        struct ngd_program *prog;
        struct ngd_binding *b;

        ck_assert_int_eq(ngd_program_open(o->bed->sched, o->bed->dev, o->graph, &options, NULL, &prog, NULL, NULL),
                         NGD_OK);
        b = bed_bind(prog, NULL);
        ngd_program_unref(prog);
        ngd_binding_unref(b);
    }
    return NULL;
}

START_TEST(program_that_is_opened_and_closed_by_many_is_never_lost_or_freed_twice)
{
    struct bed bed;
    struct opener o = {.bed = &bed};
    pthread_t t[4];

    bed_open(&bed, 1, 0);
    o.graph = bed_graph(DOUBLE_TEXT);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, open_and_close, &o), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    ck_assert(ngd_list_empty(&bed.sched->programs));
    ngd_graph_unref(o.graph);
    bed_close(&bed);
}
END_TEST

/* ---- bindings ----------------------------------------------------------------------------------------- */

START_TEST(bindings_share_executables_and_keep_their_own_buffers)
{
    static const float two = 2.0f, three = 3.0f;
    struct ngd_buffer *wa, *wb;
    struct ngd_program *prog;
    struct ngd_binding *a, *b;
    struct bed bed;
    struct call c;

    bed_open(&bed, 1, 0);
    prog = bed_program(&bed, MUL_TEXT, NULL);
    wa = bed_buffer(&bed, &two, sizeof(two), "two");
    wb = bed_buffer(&bed, &three, sizeof(three), "three");
    a = bed_bind(prog, &wa);
    b = bed_bind(prog, &wb);
    ngd_buffer_unref(wa);
    ngd_buffer_unref(wb);
    for (int i = 0; i < 3; i++) {
        call_init(&c, a, 5);
        call_run(&bed, &c);
        call_check(&c);
        call_init(&c, b, 5);
        call_run(&bed, &c);
        ck_assert_int_eq(c.status, NGD_OK);
        ck_assert(c.y[4] == 15.0f);
    }
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 1);
    bed_settle(&bed);
    ngd_binding_unref(b);
    bed_settle(&bed);
    call_init(&c, a, 5);
    call_run(&bed, &c);
    call_check(&c);
    bed_settle(&bed);
    ngd_binding_unref(a);
    ngd_program_unref(prog);
    bed_close(&bed);
}
END_TEST

START_TEST(binding_without_a_buffer_can_be_made_and_is_refused_at_a_replay)
{
    struct ngd_program *prog;
    struct ngd_buffer *none = NULL;
    struct ngd_binding *b;
    struct bed bed;
    struct call c;

    bed_open(&bed, 1, 0);
    prog = bed_program(&bed, MUL_TEXT, NULL);
    b = bed_bind(prog, &none);
    call_init(&c, b, 2);
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &c.req, &c.diag), NGD_ERR_BINDING_MISSING);
    ck_assert(strstr(c.diag.text, "\"w\""));
    ngd_binding_unref(b);
    ngd_program_unref(prog);
    bed_close(&bed);
}
END_TEST

START_TEST(buffer_that_is_too_small_is_refused_with_both_sizes)
{
    struct ngd_program *prog;
    struct ngd_buffer *buf;
    struct ngd_binding *b;
    struct ngd_diag diag = {0};
    struct bed bed;

    bed_open(&bed, 1, 0);
    prog = bed_program(&bed, PICK_TEXT, NULL);
    buf = bed_buffer(&bed, NULL, 31, "small");
    ck_assert_int_eq(ngd_binding_create(prog, &buf, &b, &diag), NGD_ERR_BINDING_MISMATCH);
    ck_assert(strstr(diag.text, "32 bytes") && strstr(diag.text, "\"small\" has 31"));
    ngd_buffer_unref(buf);
    ngd_program_unref(prog);
    bed_close(&bed);
}
END_TEST

START_TEST(instances_go_with_their_executable_and_with_their_binding)
{
    struct ngd_graph_options options;
    struct ngd_binding *a, *b;
    struct bed bed;

    ngd_graph_options_init(&options);
    options.capture_limit = 2;
    bed_open(&bed, 1, 0);
    a = bed_binding(&bed, DOUBLE_TEXT, &options);
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    /* Uses more keys than one chunk of places has, again and again: places are reused, and memory does not grow. */
    for (int round = 0; round < 3; round++) {
        for (int64_t n = 1; n <= 12; n++) {
            bed_warm(&bed, a, n, 1);
            bed_warm(&bed, b, n, 1);
            bed_settle(&bed);
        }
    }
    ck_assert_ptr_null(atomic_load(&a->instances[0].next));
    ngd_binding_unref(b);
    bed_warm(&bed, a, 1, 1);
    bed_settle(&bed);
    ngd_binding_unref(a);
    bed_close(&bed);
}
END_TEST

START_TEST(binding_finds_many_instances)
{
    struct ngd_binding *b;
    struct bed bed;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    for (int round = 0; round < 2; round++)
        for (int64_t n = 1; n <= 40; n++)
            bed_warm(&bed, b, n, 1);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_CAPTURES), 40);
    bed_settle(&bed);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(capture_that_does_not_fit_the_device_is_refused_before_it_begins)
{
    struct ngd_capture_info info;
    struct ngd_binding *b;
    struct ngd_diag diag = {0};
    struct bed bed;
    int64_t n = 1;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed,
                    "npugraph 1\ngraph \"big\" {\n sym N 1..2\n input %x : f32[N]\n"
                    " %a = aten.expand(%x) {size=[67108864, N]}\n %y = aten.add.Tensor(%a, %a)\n"
                    " %z = aten.sum.dim_IntList(%y) {dim=[0]}\n return \"z\" = %z\n}\n",
                    NULL);
    ck_assert_int_eq(ngd_binding_capture(b, &n, 1, NULL, true, &info, &diag), NGD_OK);
    ck_assert_uint_ge(info.pool_bytes, 256u << 20);
    ck_assert_int_eq(ngd_binding_capture(b, &n, 1, NULL, false, &info, &diag), NGD_ERR_NO_DEVICE_MEMORY);
    ck_assert(strstr(diag.text, "the pool of this graph"));
    ck_assert_uint_eq(ngd_device_used_bytes(bed.dev), 0);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/program", same_graph_and_options_share_a_program_and_others_do_not,
          program_shows_its_keys_and_plans, program_that_is_opened_and_closed_by_many_is_never_lost_or_freed_twice,
          bindings_share_executables_and_keep_their_own_buffers,
          binding_without_a_buffer_can_be_made_and_is_refused_at_a_replay,
          buffer_that_is_too_small_is_refused_with_both_sizes,
          instances_go_with_their_executable_and_with_their_binding, binding_finds_many_instances,
          capture_that_does_not_fit_the_device_is_refused_before_it_begins)
