/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests plans of graphs with several streams: what calls wait for, and that calls that may run at the same time share
 * no byte that one of them writes. tests/ops/test_random runs such plans.
 */
#include "graphs/memplan.h"
#include "graphs/plan_deadlock.h"
#include "graphs/plan_map.h"
#include "tests/unit/plan_util.h"
#include "tests/unit/random_graph.h"

#define HEAD        "npugraph 1\ngraph \"t\" {\n"
#define RECORD(tag) "npugraph_ex.tagged_event_record() {tag=\"" tag "\"}\n"
#define WAIT(tag)   "npugraph_ex.tagged_event_wait() {tag=\"" tag "\"}\n"

/* Returns the call that makes the value, without the copies that the plan makes in front of it. */
static uint32_t call_of(const struct ngd_plan *plan, const char *name)
{
    for (uint32_t c = 0; c < plan->n_calls; c++) {
        const struct ngd_node *n =
            plan->calls[c].node == NGD_PLAN_NONE ? NULL : &plan->graph->nodes[plan->calls[c].node];

        if (n && n->op == plan->calls[c].op && n->n_out && strcmp(plan->graph->values[n->out[0]].name, name) == 0)
            return c;
    }
    ck_abort_msg("no call makes %%%s", name);
}

/* Returns the names of the calls that a call waits for, "a b". */
static const char *waits_of(const struct ngd_plan *plan, uint32_t c)
{
    static char text[256];
    size_t n = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < plan->calls[c].n_waits; i++) {
        const struct ngd_plan_call *w = &plan->calls[plan->calls[c].waits[i]];
        const struct ngd_node *node = &plan->graph->nodes[w->node];

        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? " " : "",
                              node->n_out ? plan->graph->values[node->out[0]].name : node->op->name);
    }
    return text;
}

#define ck_assert_waits(plan, name, expected) ck_assert_str_eq(waits_of(plan, call_of(plan, name)), expected)

START_TEST(graph_on_one_stream_has_no_waits)
{
    struct ngd_plan *plan = make_plan(
        HEAD "input %x : f32[64]\n%a = aten.neg(%x)\n" RECORD("e") "%b = aten.exp(%a)\n" WAIT("e") "return %b\n}", NULL,
        0, &stub_target);

    ck_assert_uint_eq(plan->n_streams, 1);
    ck_assert_ptr_null(plan->clocks);
    ck_assert_uint_eq(plan->n_calls, 2);
    ngd_plan_unref(plan);
}
END_TEST

START_TEST(calls_wait_for_data_and_events_of_other_streams_and_for_nothing_twice)
{
    struct ngd_plan *plan = make_plan(
        HEAD "input %x : f32[64]\n%a = aten.neg(%x)\n%a2 = aten.neg(%a)\n"
             "stream \"s\" {\n%b = aten.exp(%a)\n%c = aten.exp(%a)\n" RECORD(
                 "c") "%d = aten.sin(%a2)\n}\n"
                      "stream \"t\" {\n" WAIT("c") RECORD(
                          "through") "}\n"
                                     "%e = aten.cos(%a2)\n" /* nothing */
                                     "stream \"u\" {\n" WAIT(
                                         "through") "%f = aten.sin(%x)\n%g = aten.sin(%b)\n}\n" /* %b ended before %c */
                                                    "%h = aten.add.Tensor(%d, %b)\n"            /* %b ended before %d */
                                                    "return %h, %g, %f, %e, %c\n}",
        NULL, 0, &stub_target);
    struct ngd_strbuf sb;

    ck_assert_uint_eq(plan->n_streams, 4); /* numbered with t, on which no call is */
    ck_assert_waits(plan, "a2", "");
    ck_assert_waits(plan, "b", "a");
    ck_assert_waits(plan, "c", "");
    ck_assert_waits(plan, "d", "a2");
    ck_assert_waits(plan, "e", "");
    ck_assert_waits(plan, "f", "c");
    ck_assert_waits(plan, "g", "");
    ck_assert_waits(plan, "h", "d");
    ngd_strbuf_init(&sb);
    ngd_plan_print(plan, &sb);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "aten.exp %b, stream \"s\", after 0\n"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "%h, after 4\n"));
    ngd_strbuf_fini(&sb);
    ck_assert(ngd_plan_before(plan, call_of(plan, "b"), call_of(plan, "h")));
    ck_assert(!ngd_plan_before(plan, call_of(plan, "d"), call_of(plan, "g")));
    ngd_plan_unref(plan);
}
END_TEST

START_TEST(states_are_read_and_written_in_the_order_of_the_graph)
{
    struct ngd_plan *plan =
        make_plan(HEAD "state %s : f32[64]\nparam %p : f32[64]\ninput %x : f32[64]\n"
                       "%r = aten.neg(%s)\n"                                        /* reads */
                       "stream \"w\" {\naten.copy_(%s, %x)\n%q = aten.neg(%p)\n}\n" /* writes after that read */
                       "stream \"v\" {\naten.copy_(%s, %p)\n}\n"                    /* and again */
                       "%z = aten.exp(%s)\n%y = aten.exp(%p)\nreturn %r, %z, %y, %q\n}",
                  NULL, 0, &stub_target);
    uint32_t first = call_of(plan, "r") + 1, second = call_of(plan, "q") + 1;

    ck_assert_str_eq(plan->calls[first].op->name, "aten.copy_");
    ck_assert_str_eq(waits_of(plan, first), "r");
    ck_assert_str_eq(plan->calls[second].op->name, "aten.copy_");
    ck_assert_str_eq(waits_of(plan, second), "aten.copy_");
    ck_assert_uint_eq(plan->calls[second].waits[0], first);
    ck_assert_waits(plan, "z", "aten.copy_");
    ck_assert_uint_eq(plan->calls[call_of(plan, "z")].waits[0], second);
    ck_assert_waits(plan, "q", "");
    ngd_plan_unref(plan);
}
END_TEST

START_TEST(parts_of_a_state_on_different_streams_do_not_wait)
{
    struct ngd_plan *plan = make_plan(HEAD "state %s : f32[2,64]\ninput %x : f32[64]\n"
                                           "%lo = aten.select.int(%s) {dim=0, index=0}\n"
                                           "%hi = aten.select.int(%s) {dim=0, index=1}\n"
                                           "stream \"a\" { aten.copy_(%lo, %x) }\n"
                                           "stream \"b\" { aten.copy_(%hi, %x) }\n"
                                           "%y = aten.neg(%s)\nreturn %y\n}",
                                      NULL, 0, &stub_target);

    ck_assert_uint_eq(plan->calls[0].n_waits + plan->calls[1].n_waits, 0);
    ck_assert_uint_eq(plan->calls[2].n_waits, 2);
    ngd_plan_unref(plan);
}
END_TEST

/* ---- memory ---- */

#define MIB "262144" /* f32 elements of a MiB */

START_TEST(streams_that_may_run_together_share_no_memory)
{
    const char *apart = HEAD "input %x : f32[64]\ninput %k : f32[" MIB "]\n"
                             "%a = aten.neg(%k)\n%ar = aten.sum.dim_IntList(%a) {dim=[0]}\n"
                             "stream \"s\" {\n%b = aten.exp(%x)\n%c = aten.full() {size=[" MIB "], fill_value=1.0}\n"
                             "%cr = aten.sum.dim_IntList(%c) {dim=[0]}\n}\nreturn %ar, %cr, %b\n}";
    const char *after =
        HEAD "input %x : f32[64]\ninput %k : f32[" MIB "]\n"
             "%a = aten.neg(%k)\n%ar = aten.sum.dim_IntList(%a) {dim=[0]}\n" RECORD("over") "stream \"s\" {\n" WAIT(
                 "over") "%b = aten.exp(%x)\n%c = aten.full() {size=[" MIB "], fill_value=1.0}\n"
                         "%cr = aten.sum.dim_IntList(%c) {dim=[0]}\n}\nreturn %ar, %cr, %b\n}";
    struct ngd_plan *plan = make_plan(apart, NULL, 0, &stub_target);

    ck_assert_uint_ge(plan->pool_bytes, 3u << 20); /* the input, %a and %c */
    ngd_plan_unref(plan);
    plan = make_plan(after, NULL, 0, &stub_target);
    ck_assert_uint_lt(plan->pool_bytes, (2u << 20) + 8192); /* %c lies where the input or %a lay */
    ngd_plan_unref(plan);
}
END_TEST

/* A side stream that is joined only at the end keeps no block of the main stream alive. */
START_TEST(a_long_side_stream_does_not_stop_reuse_on_the_main_one)
{
    struct ngd_strbuf sb;
    struct ngd_plan *plan;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, HEAD "input %x : f32[16384]\nstream \"s\" {\n%s0 = aten.sin(%x)\n}\n%m0 = aten.cos(%x)\n");
    for (int i = 0; i < 50; i++)
        ngd_strbuf_printf(&sb, "stream \"s\" {\n%%s%d = aten.sin(%%s%d)\n}\n%%m%d = aten.cos(%%m%d)\n", i + 1, i, i + 1,
                          i);
    ngd_strbuf_append(&sb, "return %m50, %s50\n}");
    plan = make_plan(ngd_strbuf_str(&sb), NULL, 0, &stub_target);
    ck_assert_uint_eq(plan->n_streams, 2);
    ck_assert_uint_le(plan->pool_bytes, 6u << 16); /* the input, and two or so of each stream */
    ngd_plan_unref(plan);
    ngd_strbuf_fini(&sb);
}
END_TEST

/* ---- by brute force ---- */

struct range {
    uint32_t space; /* UINT32_MAX: the pool */
    uint64_t begin, end;
    bool written;
};

#define MAX_RANGES 600

static uint32_t ranges_of(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct range *r)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < call->n_in + call->n_out; i++) {
        uint32_t tensor = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        const struct ngd_plan_tensor *t = tensor == NGD_PLAN_NONE ? NULL : &plan->tensors[tensor];

        if (t && t->bytes)
            r[n++] = (struct range){t->space == NGD_SPACE_POOL ? UINT32_MAX : t->bound, t->offset, t->offset + t->bytes,
                                    i >= call->n_in || (i < 32 && (call->op->mutates >> i & 1))};
    }
    if (call->workspace_bytes)
        r[n++] =
            (struct range){UINT32_MAX, call->workspace_offset, call->workspace_offset + call->workspace_bytes, true};
    ck_assert_uint_le(n, MAX_RANGES);
    return n;
}

static bool conflict(const struct ngd_plan *plan, uint32_t a, uint32_t b)
{
    static struct range x[MAX_RANGES], y[MAX_RANGES];
    uint32_t nx = ranges_of(plan, &plan->calls[a], x), ny = ranges_of(plan, &plan->calls[b], y);

    for (uint32_t i = 0; i < nx; i++)
        for (uint32_t k = 0; k < ny; k++)
            if ((x[i].written || y[k].written) && x[i].space == y[k].space && x[i].begin < y[k].end &&
                y[k].begin < x[i].end)
                return true;
    return false;
}

/* An input's memory is filled before all calls, so no call may write it before its last reader or beside one. */
static void check_inputs(const struct ngd_plan *plan, uint64_t seed)
{
    for (uint32_t i = 0; i < plan->graph->n_inputs; i++) {
        const struct ngd_plan_tensor *t = &plan->tensors[plan->inputs[i].tensor];

        for (uint32_t k = 0; k < i; k++) {
            const struct ngd_plan_tensor *o = &plan->tensors[plan->inputs[k].tensor];

            ck_assert_msg(!t->bytes || !o->bytes || t->offset >= o->offset + o->bytes ||
                              o->offset >= t->offset + t->bytes,
                          "seed %llu: inputs %u and %u overlap", (unsigned long long)seed, i, k);
        }
    }
}

static void check_apart(const struct ngd_plan *plan, uint64_t seed)
{
    uint32_t n = plan->n_calls;
    bool *before = calloc((size_t)n * n + 1, 1); /* a * n + b: a ends before b begins, by streams and waits alone */

    for (uint32_t b = 0; b < n; b++) {
        for (uint32_t a = 0; a < b; a++)
            before[a * n + b] |= plan->calls[a].scope.stream == plan->calls[b].scope.stream;
        for (uint32_t i = 0; i < plan->calls[b].n_waits; i++) {
            ck_assert_uint_lt(plan->calls[b].waits[i], b);
            ck_assert_uint_ne(plan->calls[plan->calls[b].waits[i]].scope.stream, plan->calls[b].scope.stream);
            before[plan->calls[b].waits[i] * n + b] = true;
        }
        for (uint32_t m = 0; m < b; m++)
            for (uint32_t a = 0; a < m && before[m * n + b]; a++)
                before[a * n + b] |= before[a * n + m];
    }
    for (uint32_t a = 0; a < n; a++) {
        for (uint32_t b = a + 1; b < n; b++) {
            ck_assert_msg(ngd_plan_before(plan, a, b) == before[a * n + b], "seed %llu: clocks of calls %u and %u",
                          (unsigned long long)seed, a, b);
            ck_assert_msg(before[a * n + b] || !conflict(plan, a, b), "seed %llu: calls %u and %u share memory",
                          (unsigned long long)seed, a, b);
        }
    }
    check_inputs(plan, seed);
    free(before);
}

START_TEST(whatever_may_run_together_shares_no_byte_that_is_written)
{
    uint32_t planned = 0, streamed = 0;

    for (uint64_t seed = 0; seed < 4000; seed++) {
        struct ngd_graph *g = make_streamed_graph(seed, 2 + seed % 5);
        int64_t symbols[2];
        struct ngd_plan *plan = NULL;

        if (ngd_graph_seal(g, NULL)) { /* symbols that no node uses and the like */
            ngd_graph_unref(g);
            continue;
        }
        symbols[0] = g->symbols[0].max;
        symbols[1] = g->symbols[1].max;
        if (try_plan(g, symbols, 2, seed % 2 ? &inplace_target : &stub_target, &plan, NULL) == NGD_OK) {
            planned++;
            streamed += plan->n_streams > 1;
            check_apart(plan, seed);
            ck_assert_int_eq(ngd_plan_check_deadlock(plan, &stub_target, NULL), NGD_OK);
            ngd_plan_unref(plan);
        }
        ngd_graph_unref(g);
    }
    ck_assert_uint_gt(planned, 200);
    ck_assert_uint_gt(streamed, 200);
}
END_TEST

START_TEST(map_shows_streams)
{
    struct ngd_plan *plan =
        make_plan(HEAD "input %x : f32[64]\n%a = aten.neg(%x)\nstream \"<s>\" {\n%b = aten.exp(%a)\n}\n"
                       "%c = aten.sin(%b)\nreturn %c\n}",
                  NULL, 0, &stub_target);
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ck_assert_int_eq(ngd_plan_map_text(plan, &sb), NGD_OK);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "      (main) |# < | 2 calls, 1 waits\n"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), " <s> | <  | 1 calls, 1 waits\n"));
    ngd_strbuf_clear(&sb);
    ck_assert_int_eq(ngd_plan_map_svg(plan, &sb), NGD_OK);
    check_says("", "&lt;s></text>|aten.exp, step 1, after 0</title>", ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    ngd_plan_unref(plan);
}
END_TEST

/* A graph's name, labels and names of streams come from clients, and the map is printed on terminals. */
START_TEST(map_writes_out_control_characters_and_fits_a_terminal)
{
    static const char long_name[] = "0123456789\xc3\xa4\xc3\xb6\xc3\xbc";
    struct ngd_strbuf text, sb;
    struct ngd_plan *plan;
    const char *map;

    ngd_strbuf_init(&text);
    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&text, "npugraph 1\ngraph \"g\\u001b[2J\\n\" {\ninput %x : f32[64] = \"l\\u001b[31m\\n\"\n");
    ngd_strbuf_append(&text, "%y0 = aten.neg(%x)\n");
    for (int i = 0; i < 200; i++)
        ngd_strbuf_printf(&text, "%%y%d = aten.neg(%%y%d)\n", i + 1, i);
    ngd_strbuf_printf(&text, "stream \"%s\" {\n%%b = aten.exp(%%x)\n}\nreturn %%b, %%y200\n}", long_name);
    plan = make_plan(ngd_strbuf_str(&text), NULL, 0, &stub_target);
    ck_assert_int_eq(ngd_plan_map_text(plan, &sb), NGD_OK);
    map = ngd_strbuf_str(&sb);
    ck_assert_ptr_null(strchr(map, '\x1b'));
    ck_assert_ptr_nonnull(strstr(map, "graph \"g\\u001b[2J\\n\": "));
    ck_assert_ptr_nonnull(strstr(map, "input l\\u001b[31m\\n\n"));
    ck_assert_ptr_nonnull(strstr(map, "\n0123456789\xc3\xa4\xc3\xb6 |")); /* whole characters */
    for (const char *line = map; *line; line += strcspn(line, "\n") + 1)
        ck_assert_uint_le(strcspn(line, "\n"), 80 + 2); /* two of its characters have two bytes */
    ngd_strbuf_fini(&sb);
    ngd_strbuf_fini(&text);
    ngd_plan_unref(plan);
}
END_TEST

/* A step's number is below the blocks of that step: 4 calls make 5 columns of 220. */
START_TEST(map_numbers_the_steps_below_their_columns)
{
    struct ngd_plan *plan = make_plan(HEAD "input %x : f32[64]\n%a = aten.neg(%x)\n%b = aten.exp(%a)\n"
                                           "%c = aten.sin(%b)\n%d = aten.cos(%c)\nreturn %d\n}",
                                      NULL, 0, &stub_target);
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ck_assert_uint_eq(plan->n_calls, 4);
    ck_assert_int_eq(ngd_plan_map_svg(plan, &sb), NGD_OK);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "<text x=\"420.0\" y=\"638.0\" text-anchor=\"middle\">1</text>"));
    ck_assert_ptr_nonnull(
        strstr(ngd_strbuf_str(&sb), "<text x=\"1080.0\" y=\"638.0\" text-anchor=\"middle\">4</text>"));
    ngd_strbuf_fini(&sb);
    ngd_plan_unref(plan);
}
END_TEST

/* ---- deadlock_check ---- */

static ngd_status_t plan_checked(const char *text, uint32_t cores, struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct ngd_plan_target target = stub_target;
    struct ngd_graph *g = parse_graph(text);
    struct ngd_digest digest = {{0}};
    struct ngd_graph_options options;
    struct ngd_key key;
    ngd_status_t status = ngd_key_make(g, &digest, NULL, 0, &key, diag);

    ngd_graph_options_init(&options);
    options.deadlock_check = true;
    target.aicores = target.vectorcores = cores;
    if (!status)
        status = ngd_plan_create(g, &key, &options, &target, plan_p, diag);
    ngd_graph_unref(g);
    return status;
}

#define SIDE_BY_SIDE(BETWEEN, WAITS)                                                                          \
    HEAD "input %x : f32[64]\nlimit_core_num 2, 4 {\n%a = aten.neg(%x)\n}\n" BETWEEN "stream \"s\" {\n" WAITS \
         "limit_core_num 3, 5 {\n%b = aten.exp(%x)\n}\n}\nreturn %a, %b\n}"

START_TEST(core_limits_that_exceed_the_device_together_are_refused_with_the_nodes)
{
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};

    ck_assert_int_eq(plan_checked(SIDE_BY_SIDE("", ""), 8, &plan, &diag), NGD_ERR_GRAPH_DEADLOCK);
    check_says("", "%a (aten.neg) on stream \"(main)\", with 4 vector|%b (aten.exp) on stream \"s\", with 5|has 8",
               diag.text);
    ck_assert_int_eq(plan_checked(SIDE_BY_SIDE("", ""), 9, &plan, &diag), NGD_OK);
    ngd_plan_unref(plan);
    ck_assert_int_eq(plan_checked(SIDE_BY_SIDE("", ""), 0, &plan, &diag), NGD_OK); /* not known */
    ngd_plan_unref(plan);
    ck_assert_int_eq(plan_checked(SIDE_BY_SIDE(RECORD("e"), WAIT("e")), 8, &plan, &diag),
                     NGD_OK); /* one after the other */
    ngd_plan_unref(plan);
}
END_TEST

START_TEST(streams_that_never_end_are_found_without_believing_the_planner)
{
    struct ngd_plan *plan =
        make_plan(HEAD "input %x : f32[64]\n%a = aten.neg(%x)\nstream \"s\" {\n%b = aten.exp(%x)\n}\n"
                       "%c = aten.sin(%x)\nreturn %a, %b, %c\n}",
                  NULL, 0, &stub_target);
    struct ngd_diag diag = {0};
    uint32_t a = call_of(plan, "a"), b = call_of(plan, "b"), c = call_of(plan, "c"), none = 99;

    ck_assert_int_eq(ngd_plan_check_deadlock(plan, &stub_target, &diag), NGD_OK);
    plan->calls[b].n_waits = 1; /* b waits for c, and a, which is above c, for b */
    plan->calls[b].waits = &c;
    plan->calls[a].n_waits = 1;
    plan->calls[a].waits = &b;
    ck_assert_int_eq(ngd_plan_check_deadlock(plan, &stub_target, &diag), NGD_ERR_GRAPH_DEADLOCK);
    check_says("", "%a (aten.neg) on stream \"(main)\" waits for %b|%b (aten.exp) on stream \"s\" waits for %c",
               diag.text);
    plan->calls[a].n_waits = 0;
    ck_assert_int_eq(ngd_plan_check_deadlock(plan, &stub_target, &diag), NGD_OK);
    plan->calls[b].waits = &none;
    ck_assert_int_eq(ngd_plan_check_deadlock(plan, &stub_target, &diag), NGD_ERR_GRAPH_DEADLOCK);
    check_says("", "a call that does not exist", diag.text);
    ngd_plan_unref(plan);
}
END_TEST

/* ---- the check ---- */

static bool first_only(const void *ctx, uint32_t a, uint32_t b)
{
    (void)ctx;
    return a == 0 && b == 1;
}

START_TEST(check_refuses_memory_that_is_shared_at_the_same_time)
{
    struct ngd_memplan_block b[3] = {{64, 0, 0, 0}, {64, 1, 1, 0}, {64, 2, 2, 64}};
    const uint32_t until[3] = {2, 2, 2};
    struct ngd_memplan_order order = {until, first_only, NULL};

    ck_assert_int_eq(ngd_memplan_check_streams(b, 3, 64, &order, 128), NGD_OK);
    b[2].offset = 0; /* by steps it comes last, but nothing orders it */
    ck_assert_int_eq(ngd_memplan_check(b, 3, 64, 128), NGD_OK);
    ck_assert_int_eq(ngd_memplan_check_streams(b, 3, 64, &order, 128), NGD_ERR_FILE_CORRUPT);
}
END_TEST

UNIT_MAIN("graphs/plan streams", graph_on_one_stream_has_no_waits,
          calls_wait_for_data_and_events_of_other_streams_and_for_nothing_twice,
          states_are_read_and_written_in_the_order_of_the_graph, parts_of_a_state_on_different_streams_do_not_wait,
          streams_that_may_run_together_share_no_memory, a_long_side_stream_does_not_stop_reuse_on_the_main_one,
          whatever_may_run_together_shares_no_byte_that_is_written, map_shows_streams,
          map_writes_out_control_characters_and_fits_a_terminal, map_numbers_the_steps_below_their_columns,
          core_limits_that_exceed_the_device_together_are_refused_with_the_nodes,
          streams_that_never_end_are_found_without_believing_the_planner,
          check_refuses_memory_that_is_shared_at_the_same_time)
