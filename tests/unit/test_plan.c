/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/plan.h"
#include "graphs/plan_int.h"
#include "tests/unit/plan_util.h"
#include <stdio.h>

static struct ngd_strbuf printed; /* of the last print_plan */

/* Returns the plan's text. The graph's digest is masked, because it depends on more than the plan. */
static const char *print_plan(const struct ngd_plan *plan)
{
    char *at;

    ngd_strbuf_fini(&printed);
    ngd_plan_print(plan, &printed);
    at = strstr(printed.data, "graph=");
    if (at)
        memset(at + 6, '*', 12);
    return ngd_strbuf_str(&printed);
}

static void expect_print(const char *text, const int64_t *symbols, uint32_t n, const struct ngd_plan_target *target,
                         const char *want)
{
    struct ngd_plan *plan = make_plan(text, symbols, n, target);

    check_plan(plan);
    ck_assert_str_eq(print_plan(plan), want);
    ngd_plan_unref(plan);
    ngd_strbuf_fini(&printed);
}

static void expect_failure(const char *text, const int64_t *symbols, uint32_t n, ngd_status_t status, const char *want)
{
    struct ngd_graph *g = parse_graph(text);
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};

    ck_assert_int_eq(try_plan(g, symbols, n, &stub_target, &plan, &diag), status);
    ck_assert_str_eq(diag.text, want);
    ck_assert_ptr_null(plan);
    ck_assert_int_eq(try_plan(g, symbols, n, &stub_target, &plan, NULL), status);
    ngd_graph_unref(g);
}

/* Counts the calls of an operator. */
static uint32_t count_calls(const struct ngd_plan *p, ngd_op_id_t id)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_calls; i++)
        n += p->calls[i].op->id == id;
    return n;
}

/* ---- goldens ---- */

static const char mlp[] = "npugraph 1\n"
                          "graph \"mlp\" {\n"
                          "  sym B 1..16 buckets 4, 16\n"
                          "  param %w : bf16[128,64] = \"up.weight\"\n"
                          "  param %w2 : bf16[8,128] = \"down.weight\"\n"
                          "  input %x : f32[B,64]\n"
                          "  %y = aten.linear(%x, %w)\n"
                          "  %a = aten.silu(%y)\n"
                          "  %dead = aten.exp(%a)\n"
                          "  %b = aten.mul.Tensor(%a, %y)\n"
                          "  %z = aten.linear(%b, %w2)\n"
                          "  %v, %i = aten.topk(%z) {k=2, dim=-1}\n"
                          "  return \"values\" = %v, \"indices\" = %i\n"
                          "}\n";

START_TEST(mlp_with_a_bucket_symbol_prints_its_plan)
{
    expect_print(mlp, (int64_t[]){3}, 1, &stub_target,
                 "plan \"mlp\" B<=4 graph=************ options=000000000000\n"
                 "pool 7104 bytes, bound 7104, ratio 1.000; weights 18432 bytes; 74768 flops\n"
                 "param 0 \"up.weight\": t0 bf16[128,64] param 0, 16384 bytes\n"
                 "param 1 \"down.weight\": t1 bf16[8,128] param 1, 2048 bytes\n"
                 "input 0 \"x\": t2 f32[4,64] pool+0x17c0, 1024 bytes, B*1 rows of 256 bytes\n"
                 "output 0 \"values\": t7 f32[4,2] pool+0x0, 32 bytes, B*1 rows of 8 bytes\n"
                 "output 1 \"indices\": t8 i64[4,2] pool+0x40, 64 bytes, B*1 rows of 16 bytes\n"
                 "call 0 aten.linear %y, workspace pool+0x800 4000 bytes\n"
                 "  <- t2 f32[4,64] pool+0x17c0\n"
                 "  <- t0 bf16[128,64] param 0\n"
                 "  -> t3 f32[4,128] pool+0x0\n"
                 "call 1 aten.silu %a\n"
                 "  <- t3 f32[4,128] pool+0x0\n"
                 "  -> t4 f32[4,128] pool+0x800\n"
                 "call 2 aten.mul.Tensor %b\n"
                 "  <- t4 f32[4,128] pool+0x800\n"
                 "  <- t3 f32[4,128] pool+0x0\n"
                 "  -> t5 f32[4,128] pool+0x1000\n"
                 "call 3 aten.linear %z, workspace pool+0x0 4000 bytes\n"
                 "  <- t5 f32[4,128] pool+0x1000\n"
                 "  <- t1 bf16[8,128] param 1\n"
                 "  -> t6 f32[4,8] pool+0x1800\n"
                 "call 4 aten.topk %v\n"
                 "  <- t6 f32[4,8] pool+0x1800\n"
                 "  -> t7 f32[4,2] pool+0x0\n"
                 "  -> t8 i64[4,2] pool+0x40\n");
}
END_TEST

START_TEST(in_place_results_take_their_operands_root)
{
    expect_print("npugraph 1\ngraph \"chain\" {\n  input %x : f32[8,4]\n  input %bias : f32[4]\n"
                 "  %a = aten.add.Tensor(%x, %bias)\n  %b = aten.exp(%a)\n  %c = aten.add.Tensor(%a, %b)\n"
                 "  return \"c\" = %c\n}\n",
                 NULL, 0, &inplace_target,
                 "plan \"chain\" graph=************ options=000000000000\n"
                 "pool 256 bytes, bound 256, ratio 1.000; weights 0 bytes; 96 flops\n"
                 "input 0 \"x\": t0 f32[8,4] pool+0x0, 128 bytes\n"
                 "input 1 \"bias\": t1 f32[4] pool+0x80, 16 bytes\n"
                 "output 0 \"c\": t4 f32[8,4] pool+0x0 of t0, 128 bytes\n"
                 "call 0 aten.add.Tensor %a\n"
                 "  <- t0 f32[8,4] pool+0x0\n"
                 "  <- t1 f32[4] pool+0x80\n"
                 "  -> t2 f32[8,4] pool+0x0 of t0\n"
                 "call 1 aten.exp %b\n"
                 "  <- t2 f32[8,4] pool+0x0 of t0\n"
                 "  -> t3 f32[8,4] pool+0x80\n"
                 "call 2 aten.add.Tensor %c\n"
                 "  <- t2 f32[8,4] pool+0x0 of t0\n"
                 "  <- t3 f32[8,4] pool+0x80\n"
                 "  -> t4 f32[8,4] pool+0x0 of t0\n");
}
END_TEST

START_TEST(states_host_parameters_and_inserted_copies_are_printed)
{
    expect_print("npugraph 1\ngraph \"kv\" {\n  state %s : f32[4,2,3] = \"kv.0\"\n  input %x : f32[4,3]\n"
                 "  %old = aten.select.int(%s) {dim=1, index=0}\n  %new = aten.select.int(%s) {dim=1, index=1}\n"
                 "  aten.copy_(%new, %x)\n  %r = aten.sum.dim_IntList(%old) {dim=[1]}\n"
                 "  return \"sum\" = %r, \"state\" = %s\n}\n",
                 NULL, 0, &stub_target,
                 "plan \"kv\" graph=************ options=000000000000\n"
                 "pool 192 bytes, bound 192, ratio 1.000; weights 0 bytes; 40 flops\n"
                 "state 0 \"kv.0\": t0 f32[4,2,3] state 0, 96 bytes\n"
                 "input 0 \"x\": t1 f32[4,3] pool+0x0, 48 bytes\n"
                 "output 0 \"sum\": t4 f32[4] pool+0x80, 16 bytes\n"
                 "output 1 \"state\": t6 f32[4,2,3] pool+0x0, 96 bytes\n"
                 "call 0 aten.copy_ aten.copy_\n"
                 "  <> t3 f32[4,3] state 0+0xc strides [6,1] of t0\n"
                 "  <- t1 f32[4,3] pool+0x0\n"
                 "call 1 aten.clone for %r\n"
                 "  <- t2 f32[4,3] state 0 strides [6,1] of t0\n"
                 "  -> t5 f32[4,3] pool+0x0\n"
                 "call 2 aten.sum.dim_IntList %r\n"
                 "  <- t5 f32[4,3] pool+0x0\n"
                 "  -> t4 f32[4] pool+0x80\n"
                 "call 3 aten.clone\n"
                 "  <- t0 f32[4,2,3] state 0\n"
                 "  -> t6 f32[4,2,3] pool+0x0\n");
}
END_TEST

/* ---- views ---- */

struct view_case {
    const char *type, *ops; /* of %x; the chain ends in %v */
    uint32_t rank, copies;
    int64_t dims[4], strides[4];
    uint64_t offset; /* elements from the input's start; when copied, from the copy's */
};

static const struct view_case view_cases[] = {
    {"f32[6,4]", "%v = aten.view(%x) {size=[2,3,4]}", 3, 0, {2, 3, 4}, {12, 4, 1}, 0},
    {"f32[6,4]", "%v = aten.reshape(%x) {shape=[24]}", 1, 0, {24}, {1}, 0},
    {"f32[6,4]", "%v = aten.t(%x)", 2, 0, {4, 6}, {1, 4}, 0},
    {"f32[2,3,4]", "%v = aten.permute(%x) {dims=[2,0,-2]}", 3, 0, {4, 2, 3}, {1, 12, 4}, 0},
    {"f32[2,3,4]", "%v = aten.transpose.int(%x) {dim0=-1, dim1=0}", 3, 0, {4, 3, 2}, {1, 4, 12}, 0},
    {"f32[3,1]", "%v = aten.expand(%x) {size=[2,-1,5]}", 3, 0, {2, 3, 5}, {0, 1, 0}, 0},
    {"f32[3,4]", "%v = aten.unsqueeze(%x) {dim=-1}", 3, 0, {3, 4, 1}, {4, 1, 1}, 0},
    {"f32[3,1,4]", "%v = aten.squeeze.dim(%x) {dim=1}", 2, 0, {3, 4}, {4, 1}, 0},
    {"f32[3,4]", "%v = aten.squeeze.dim(%x) {dim=1}", 2, 0, {3, 4}, {4, 1}, 0},
    {"f32[9,4]", "%v = aten.slice.Tensor(%x) {dim=0, start=1, end=8, step=3}", 2, 0, {3, 4}, {12, 1}, 4},
    {"f32[9,4]", "%v = aten.slice.Tensor(%x) {dim=1, start=-2}", 2, 0, {9, 2}, {4, 1}, 2},
    {"f32[9,4]", "%v = aten.slice.Tensor(%x) {dim=0, start=20}", 2, 0, {0, 4}, {4, 1}, 36},
    {"f32[9,4]", "%v = aten.select.int(%x) {dim=0, index=-1}", 1, 0, {4}, {1}, 32},
    {"f32[9,4]", "%v = aten.select.int(%x) {dim=1, index=3}", 1, 0, {9}, {4}, 3},
    {"f32[9,4]", "%a, %v, %b = aten.split_with_sizes(%x) {split_sizes=[1,2,1], dim=1}", 2, 0, {9, 2}, {4, 1}, 1},
    {"f32[9,6]", "%a, %v = aten.split.Tensor(%x) {split_size=4, dim=1}", 2, 0, {9, 2}, {6, 1}, 4},
    {"f32[9,3,4]", "%a, %b, %v = aten.unbind.int(%x) {dim=-2}", 2, 0, {9, 4}, {12, 1}, 8},
    {"f32[1,3,1,4]", "%v = aten.squeeze.dims(%x) {dim=[2,-4,3]}", 2, 0, {3, 4}, {4, 1}, 0},
    {"f32[3,4]", "%v = aten._unsafe_view(%x) {size=[2,-1]}", 2, 0, {2, 6}, {6, 1}, 0},
    {"f32[3,4]", "%a = aten.t(%x)\n  %b = aten.alias(%a)\n  %v = aten.detach(%b)", 2, 0, {4, 3}, {1, 4}, 0},
    /* Chains: strides are kept if they can express the shape. */
    {"f32[4,6]", "%a = aten.t(%x)\n  %v = aten.view(%a) {size=[2,3,4]}", 3, 0, {2, 3, 4}, {3, 1, 6}, 0},
    {"f32[4,6]", "%a = aten.t(%x)\n  %v = aten.view(%a) {size=[24]}", 1, 1, {24}, {1}, 0},
    {"f32[4,6]",
     "%a = aten.t(%x)\n  %b = aten.reshape(%a) {shape=[24]}\n  %v = aten.slice.Tensor(%b) {start=5}",
     1,
     1,
     {19},
     {1},
     5},
    {"f32[4,1,6]",
     "%a = aten.transpose.int(%x) {dim0=0, dim1=1}\n  %v = aten.view(%a) {size=[24]}",
     1,
     0,
     {24},
     {1},
     0},
    {"f32[4,6]",
     "%a = aten.slice.Tensor(%x) {dim=1, end=3}\n  %v = aten.view(%a) {size=[2,2,3]}",
     3,
     0,
     {2, 2, 3},
     {12, 6, 1},
     0},
    {"f32[4,6]", "%a = aten.slice.Tensor(%x) {dim=1, end=3}\n  %v = aten.view(%a) {size=[12]}", 1, 1, {12}, {1}, 0},
    {"f32[3]", "%a = aten.expand(%x) {size=[4,3]}\n  %v = aten.view(%a) {size=[2,2,3]}", 3, 0, {2, 2, 3}, {0, 0, 1}, 0},
    {"f32[3]", "%a = aten.expand(%x) {size=[4,3]}\n  %v = aten.view(%a) {size=[12]}", 1, 1, {12}, {1}, 0},
    {"f32[2,0,3]",
     "%a = aten.transpose.int(%x) {dim0=0, dim1=2}\n  %v = aten.view(%a) {size=[5,0]}",
     2,
     0,
     {5, 0},
     {1, 1},
     0},
    {"f32[2,3,4]",
     "%a = aten.select.int(%x) {dim=1, index=2}\n  %b = aten.t(%a)\n  %v = aten.unsqueeze(%b) {dim=0}",
     3,
     0,
     {1, 4, 2},
     {4, 1, 12},
     8},
    {"f32[1]", "%v = aten.view(%x) {size=[]}", 0, 0, {0}, {0}, 0},
};

START_TEST(views_resolve_to_strides_or_to_a_view_of_one_copy)
{
    for (size_t i = 0; i < sizeof(view_cases) / sizeof(view_cases[0]); i++) {
        const struct view_case *c = &view_cases[i];
        const struct ngd_plan_tensor *t;
        struct ngd_plan *p;
        char text[600];

        snprintf(text, sizeof(text),
                 "npugraph 1\ngraph \"v\" {\n  input %%x : %s\n  %s\n  %%r = aten.neg(%%v)\n  return \"r\" = %%r\n}\n",
                 c->type, c->ops);
        p = make_plan(text, NULL, 0, &stub_target);
        check_plan(p);
        ck_assert_msg(count_calls(p, NGD_OP_ATEN_CLONE) == c->copies && p->n_calls == c->copies + 1, "%s", c->ops);
        t = &p->tensors[p->calls[p->n_calls - 1].in[0]];
        ck_assert_msg(t->rank == c->rank, "%s", c->ops);
        for (uint32_t d = 0; d < c->rank; d++)
            ck_assert_msg(t->dims[d] == c->dims[d] && t->strides[d] == c->strides[d],
                          "%s: dimension %u is %ld with stride %ld", c->ops, d, (long)t->dims[d], (long)t->strides[d]);
        ck_assert_msg(t->offset - p->tensors[t->root].offset == 4 * c->offset, "%s", c->ops);
        ngd_plan_unref(p);
    }
}
END_TEST

START_TEST(every_view_operator_has_a_rule)
{
    for (int i = 0; i < NGD_OP_MAX; i++) {
        const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)i);

        ck_assert_msg(ngd_plan_view_known(op) == !!(op->flags & NGD_OPF_VIEW), "%s", op->name);
    }
}
END_TEST

START_TEST(copies_are_shared_until_the_state_is_written)
{
    struct ngd_plan *p = make_plan("npugraph 1\ngraph \"s\" {\n  state %s : f32[4,6]\n  input %x : f32[4,6]\n"
                                   "  %t = aten.t(%s)\n"
                                   "  %a = aten._softmax(%t) {dim=0}\n  %b = aten._softmax(%t) {dim=1}\n" /* one copy */
                                   "  aten.copy_(%s, %x)\n"
                                   "  %c = aten._softmax(%t) {dim=0}\n" /* another */
                                   "  return \"a\" = %a, \"b\" = %b, \"c\" = %c\n}\n",
                                   NULL, 0, &stub_target);

    check_plan(p);
    ck_assert_uint_eq(p->n_calls, 6);
    ck_assert_int_eq(p->calls[0].op->id, NGD_OP_ATEN_CLONE);
    ck_assert_uint_eq(p->calls[1].in[0], p->calls[0].out[0]);
    ck_assert_uint_eq(p->calls[2].in[0], p->calls[0].out[0]);
    ck_assert_int_eq(p->calls[3].op->id, NGD_OP_ATEN_COPY_);
    ck_assert_int_eq(p->calls[4].op->id, NGD_OP_ATEN_CLONE);
    ck_assert_uint_eq(p->calls[5].in[0], p->calls[4].out[0]);
    ck_assert_uint_eq(p->calls[4].node, p->calls[5].node);
    ngd_plan_unref(p);
}
END_TEST

START_TEST(operand_that_overlaps_what_the_call_writes_is_copied_first)
{
    struct ngd_plan *p = make_plan("npugraph 1\ngraph \"s\" {\n  state %s : f32[8]\n"
                                   "  %a = aten.slice.Tensor(%s) {end=6}\n  %b = aten.slice.Tensor(%s) {start=2}\n"
                                   "  %c = aten.slice.Tensor(%s) {end=2}\n  %d = aten.slice.Tensor(%s) {start=6}\n"
                                   "  aten.copy_(%a, %b)\n  aten.copy_(%c, %d)\n  return \"s\" = %s\n}\n",
                                   NULL, 0, &stub_target);

    check_plan(p);
    ck_assert_uint_eq(p->n_calls,
                      4); /* clone of b, copy_, copy_ of the part that does not overlap, clone of the output */
    ck_assert_uint_eq(p->calls[1].in[1], p->calls[0].out[0]);
    ck_assert_int_eq(p->calls[2].op->id, NGD_OP_ATEN_COPY_);
    ngd_plan_unref(p);
}
END_TEST

/* ---- rows ---- */

static void expect_rows(const struct ngd_plan *p, uint32_t tensor, int sym, int64_t mult)
{
    ck_assert_int_eq(p->tensors[tensor].row_sym, sym < 0 ? NGD_NO_ROW_SYM : sym);
    ck_assert_int_eq(p->tensors[tensor].row_mult, sym < 0 ? 0 : mult);
}

START_TEST(rows_follow_bucket_symbols_through_views_and_copies)
{
    struct ngd_plan *p = make_plan("npugraph 1\ngraph \"r\" {\n  sym S 1..9\n  sym B 1..16 buckets 4, 16\n"
                                   "  input %x : f32[B,6]\n  input %y : f32[S,6]\n"
                                   "  %a = aten.view(%x) {size=[B*2,3]}\n"         /* rows B*2 */
                                   "  %b = aten.slice.Tensor(%x) {dim=1, end=3}\n" /* strided, rows B */
                                   "  %c = aten._softmax(%b) {dim=1}\n"            /* reads a copy with rows B */
                                   "  %d = aten.neg(%y)\n"                         /* exact: no rows */
                                   "  return \"a\" = %a, \"c\" = %c, \"d\" = %d\n}\n",
                                   (int64_t[]){5, 3}, 2, &stub_target);

    check_plan(p);
    ck_assert_int_eq(p->symbols[0], 5);
    ck_assert_int_eq(p->symbols[1], 4);
    expect_rows(p, p->inputs[0].tensor, 1, 1);
    expect_rows(p, p->inputs[1].tensor, -1, 0);
    expect_rows(p, p->outputs[0].tensor, 1, 2);
    ck_assert_uint_eq(p->outputs[0].bytes, 96);
    ck_assert_uint_eq(p->outputs[0].row_bytes, 12);
    ck_assert_int_eq(p->outputs[0].row_mult, 2);
    ck_assert_int_eq(p->calls[0].op->id, NGD_OP_ATEN_CLONE);
    expect_rows(p, p->calls[0].in[0], 1, 1);
    expect_rows(p, p->calls[0].out[0], 1, 1);
    expect_rows(p, p->outputs[1].tensor, 1, 1);
    expect_rows(p, p->outputs[2].tensor, -1, 0);
    ngd_plan_unref(p);
}
END_TEST

START_TEST(attributes_are_numbers_at_the_key)
{
    struct ngd_plan *p = make_plan("npugraph 1\ngraph \"n\" {\n  sym T 1..9\n  input %x : f32[T,6]\n"
                                   "  %r = aten.arange.start_step() {end=T*2, dtype=i32}\n"
                                   "  %f = aten.full() {size=[T, 3], fill_value=1.5}\n"
                                   "  return \"r\" = %r, \"f\" = %f\n}\n",
                                   (int64_t[]){4}, 1, &stub_target);

    check_plan(p);
    ck_assert_int_eq(ngd_call_int(&p->calls[0], "end"), 8);
    ck_assert_int_eq(ngd_call_int(&p->calls[0], "dtype"), NGD_I32);
    ck_assert_uint_eq(ngd_call_ints(&p->calls[1], "size")->n, 2);
    ck_assert_int_eq(ngd_call_ints(&p->calls[1], "size")->list[0], 4);
    ck_assert_double_eq(ngd_call_float(&p->calls[1], "fill_value"), 1.5);
    ngd_plan_unref(p);
}
END_TEST

/* ---- calls ---- */

START_TEST(dead_nodes_are_dropped_and_mutating_ones_are_kept)
{
    struct ngd_plan *p =
        make_plan("npugraph 1\ngraph \"d\" {\n  state %s : f32[4]\n  input %x : f32[4]\n  input %unused : f32[4]\n"
                  "  %a = aten.exp(%x)\n  %b = aten.neg(%a)\n"  /* dead */
                  "  %c = aten.abs(%x)\n  aten.copy_(%s, %c)\n" /* kept by the write */
                  "  %y, %rstd = npu.rms_norm(%x, %c)\n"        /* rstd has memory although it is not read */
                  "  return \"y\" = %y\n}\n",
                  NULL, 0, &stub_target);

    check_plan(p);
    ck_assert_uint_eq(p->n_calls, 3);
    ck_assert_int_eq(p->calls[0].op->id, NGD_OP_ATEN_ABS);
    ck_assert_int_eq(p->calls[1].op->id, NGD_OP_ATEN_COPY_);
    ck_assert_uint_eq(p->calls[2].n_out, 2);
    ck_assert_uint_eq(p->tensors[p->calls[2].out[1]].bytes, 4);
    ngd_plan_unref(p);
}
END_TEST

START_TEST(absent_and_host_operands_are_told_apart)
{
    struct ngd_plan *p = make_plan(
        "npugraph 1\ngraph \"h\" {\n  param %k : f32[4,16,2,8]\n  input %q : f32[3,4,8]\n"
        "  input %bt : i32[2,4]\n  host %ql : i64[2]\n  host %kl : i64[2]\n"
        "  %a = npu.fused_infer_attention_score(%q, %k, %k, %bt, %ql, %kl) {num_heads=4, num_key_value_heads=2, "
        "scale=0.5, block_size=16}\n"
        "  %n = aten.layer_norm(%a, none, none) {normalized_shape=[8]}\n  return \"n\" = %n\n}\n",
        NULL, 0, &stub_target);
    const struct ngd_plan_call *a = &p->calls[0], *n = &p->calls[1];

    check_plan(p);
    ck_assert_uint_eq(a->n_in, 6);
    ck_assert_uint_eq(a->in[4], NGD_PLAN_NONE);
    ck_assert_uint_eq(a->host[4], 0);
    ck_assert_uint_eq(a->host[5], 1);
    ck_assert_uint_eq(a->host[0], NGD_PLAN_NONE);
    ck_assert_uint_eq(a->workspace_bytes, 70000);
    for (uint32_t i = 1; i < n->n_in; i++) {
        ck_assert_uint_eq(n->in[i], NGD_PLAN_NONE);
        ck_assert_uint_eq(n->host[i], NGD_PLAN_NONE);
    }
    ck_assert_str_eq(ngd_call_str(a, "input_layout"), "TND");
    ngd_plan_unref(p);
}
END_TEST

START_TEST(outputs_are_contiguous_distinct_and_not_bound_buffers)
{
    struct ngd_plan *p =
        make_plan("npugraph 1\ngraph \"o\" {\n  param %w : f32[2,3]\n  state %s : f32[3]\n  input %x : f32[2,3]\n"
                  "  %t = aten.t(%x)\n  %v = aten.view(%x) {size=[6]}\n"
                  "  return \"w\" = %w, \"s\" = %s, \"x\" = %x, \"x2\" = %x, \"x3\" = %x, \"t\" = %t, \"t2\" = %t, "
                  "\"v\" = %v\n}\n",
                  NULL, 0, &stub_target);

    check_plan(p);
    ck_assert_uint_eq(p->n_calls, 6); /* w, s, x2, x3, t, t2; x and v stay where the input is */
    ck_assert_uint_eq(p->outputs[2].tensor, p->inputs[0].tensor);
    ck_assert_uint_eq(p->tensors[p->outputs[7].tensor].root, p->inputs[0].tensor);
    ck_assert_uint_eq(p->calls[0].node, NGD_PLAN_NONE);
    ck_assert_uint_eq(p->calls[4].node, 0); /* %t */
    ngd_plan_unref(p);
}
END_TEST

START_TEST(graph_without_calls_hands_its_input_out)
{
    struct ngd_plan *p =
        make_plan("npugraph 1\ngraph \"i\" {\n  input %x : f32[2,3]\n  return \"x\" = %x\n}\n", NULL, 0, &stub_target);

    check_plan(p);
    ck_assert_uint_eq(p->n_calls, 0);
    ck_assert_uint_eq(p->pool_bytes, 64);
    ngd_plan_unref(p);
}
END_TEST

START_TEST(tensors_without_elements_need_no_memory)
{
    struct ngd_plan *p =
        make_plan("npugraph 1\ngraph \"z\" {\n  sym T 0..9\n  input %x : f32[T,4]\n  %a = aten.exp(%x)\n"
                  "  %t = aten.t(%a)\n  %s = aten._softmax(%t) {dim=0}\n  return \"s\" = %s\n}\n",
                  (int64_t[]){0}, 1, &inplace_target);

    check_plan(p);
    ck_assert_uint_eq(p->pool_bytes, 0);
    ck_assert_uint_eq(p->outputs[0].bytes, 0);
    ck_assert_uint_eq(count_calls(p, NGD_OP_ATEN_CLONE), 0);
    ngd_plan_unref(p);
}
END_TEST

/* ---- in place ---- */

static uint32_t taken(const char *body, const struct ngd_plan_target *target)
{
    char text[800];
    struct ngd_plan *p;
    uint32_t n = 0;

    snprintf(
        text, sizeof(text),
        "npugraph 1\ngraph \"p\" {\n  state %%st : f32[4,8]\n  input %%x : f32[4,8]\n  input %%row : f32[8]\n%s}\n",
        body);
    p = make_plan(text, NULL, 0, target);
    check_plan(p);
    for (uint32_t c = 0; c < p->n_calls; c++)
        for (uint32_t i = 0; i < p->calls[c].n_out; i++)
            n += p->tensors[p->calls[c].out[i]].root != p->calls[c].out[i];
    ngd_plan_unref(p);
    return n;
}

START_TEST(results_take_storage_only_where_that_is_safe)
{
    static const struct {
        uint32_t taken;
        const char *body;
    } cases[] = {
        {1, "%a = aten.exp(%x)\n return \"a\" = %a\n"},
        {2, "%a = aten.exp(%x)\n %b = aten.neg(%a)\n return \"b\" = %b\n"},
        {1, "%a = aten.mul.Tensor(%x, %x)\n return \"a\" = %a\n"},
        {1, "%a = aten.add.Tensor(%row, %x)\n return \"a\" = %a\n"}, /* the second operand's */
        {0,
         "%e = aten.expand(%row) {size=[4,8]}\n %a = aten.exp(%e)\n return \"a\" = %a\n"}, /* elements share storage */
        {0, "%a = aten.exp(%x)\n return \"a\" = %a, \"x\" = %x\n"},                        /* x is an output */
        {1, "%a = aten.exp(%x)\n %b = aten.neg(%x)\n return \"a\" = %a, \"b\" = %b\n"},    /* by the last reader only */
        {0, "%t = aten.view(%x) {size=[8,4]}\n %a = aten.exp(%x)\n %b = aten._softmax(%t) {dim=0}\n return \"a\" = %a, "
            "\"b\" = %b\n"},
        {1, "%t = aten.view(%x) {size=[8,4]}\n %a = aten.exp(%t)\n return \"a\" = %a\n"}, /* a view of the whole root */
        {0, "%t = aten.slice.Tensor(%x) {end=2}\n %a = aten.exp(%t)\n return \"a\" = %a\n"}, /* of a part */
        {0, "%v = aten.view(%x) {size=[8,2,2]}\n %w = aten.transpose.int(%v) {dim0=1, dim1=2}\n"
            " %a = aten.add.Tensor(%v, %w)\n return \"a\" = %a\n"}, /* another order of the same storage */
        {0,
         "%r = aten.select.int(%x) {dim=0, index=0}\n %a = aten.add.Tensor(%x, %r)\n return \"a\" = %a\n"}, /* broadcast
                                                                                                             */
        {0, "%a = aten.gt.Scalar(%x) {other=0}\n return \"a\" = %a\n"},  /* another dtype */
        {0, "%a = aten._to_copy(%x) {dtype=i32}\n return \"a\" = %a\n"}, /* of the same size */
        {0, "%a = aten._softmax(%x) {dim=1}\n return \"a\" = %a\n"},     /* not elementwise */
        {0, "%a = aten.exp(%st)\n return \"a\" = %a\n"},                 /* a state */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t n = taken(cases[i].body, &inplace_target);

        ck_assert_msg(n == cases[i].taken, "%u taken in:\n%s", n, cases[i].body);
        ck_assert_uint_eq(taken(cases[i].body, &stub_target), 0);
    }
}
END_TEST

/* ---- refusals ---- */

START_TEST(strided_view_of_a_state_that_the_device_cannot_write_is_refused)
{
    expect_failure(
        "npugraph 1\ngraph \"m\" {\n  state %s : f32[8,16,2,2,4]\n  input %k : f32[3,2,4]\n  input %i : i32[3]\n"
        "  %kc = aten.select.int(%s) {dim=2, index=0}\n  %vc = aten.select.int(%s) {dim=2, index=1}\n"
        "  npu.scatter_pa_kv_cache(%k, %k, %i, %kc, %vc)\n  return \"k\" = %k\n}\n",
        NULL, 0, NGD_ERR_OP_UNSUPPORTED,
        "node 2 (npu.scatter_pa_kv_cache, line 8): operand 4, which it writes, is a strided view, which the device "
        "cannot "
        "write with this operator");
}
END_TEST

START_TEST(refusal_of_the_target_names_the_node)
{
    expect_failure(
        "npugraph 1\ngraph \"u\" {\n  input %x : f32[4]\n  %ok = aten.neg(%x)\n  %sum = aten.cumsum(%ok) {dim=0}\n"
        "  return \"s\" = %sum\n}\n",
        NULL, 0, NGD_ERR_OP_UNSUPPORTED, "node %sum (aten.cumsum, line 5): no kernel adds up here");
}
END_TEST

START_TEST(keys_of_other_graphs_and_values_out_of_range_are_refused)
{
    struct ngd_graph *g = parse_graph(mlp);
    struct ngd_digest options = {{0}};
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct ngd_key key, bad;

    ck_assert_int_eq(ngd_key_make(g, &options, (int64_t[]){3}, 1, &key, NULL), NGD_OK);
    bad = key;
    bad.graph.b[0] ^= 1;
    ck_assert_int_eq(ngd_plan_create(g, &bad, NULL, &stub_target, &plan, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_str_eq(diag.text, "the key belongs to another graph than mlp");
    bad = key;
    bad.symbols[0] = 17;
    ck_assert_int_eq(ngd_plan_create(g, &bad, NULL, &stub_target, &plan, &diag), NGD_ERR_GUARD_FAILED);
    ck_assert_str_eq(diag.text, "symbol B = 17 is outside 1..16");
    bad.symbols[0] = -1;
    ck_assert_int_eq(ngd_plan_create(g, &bad, NULL, &stub_target, &plan, &diag), NGD_ERR_GUARD_FAILED);
    bad = key;
    bad.n_symbols = 0;
    ck_assert_int_eq(ngd_plan_create(g, &bad, NULL, &stub_target, &plan, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_null(plan);
    ngd_graph_unref(g);
}
END_TEST

static ngd_status_t select_huge(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)plan;
    (void)call;
    (void)diag;
    *strided_p = UINT32_MAX;
    *workspace_p = *(uint64_t *)ctx;
    return NGD_OK;
}

START_TEST(sizes_beyond_63_bits_are_refused)
{
    static const char text[] =
        "npugraph 1\ngraph \"big\" {\n  input %x : f32[4]\n  %y = aten.neg(%x)\n  return \"y\" = %y\n}\n";
    uint64_t sizes[] = {UINT64_MAX, (uint64_t)INT64_MAX - 5};
    struct ngd_graph *g = parse_graph(text);
    struct ngd_plan *plan = NULL;

    for (int i = 0; i < 2; i++) {
        struct ngd_plan_target target = {.ctx = &sizes[i], .select = select_huge};
        struct ngd_diag diag = {0};

        ck_assert_int_eq(try_plan(g, NULL, 0, &target, &plan, &diag), NGD_ERR_OVERFLOW);
        ck_assert_uint_gt(strlen(diag.text), 20);
    }
    ck_assert_ptr_null(plan);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    static const char text[] =
        "npugraph 1\ngraph \"s\" {\n  state %s : f32[4,6]\n  input %x : f32[4,6]\n  %t = aten.t(%s)\n"
        "  %a = aten._softmax(%t) {dim=0}\n  %v = aten.view(%t) {size=[24]}\n  aten.copy_(%s, %x)\n"
        "  return \"a\" = %a, \"v\" = %v, \"s\" = %s\n}\n";
    struct ngd_graph *g = parse_graph(text);
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    struct ngd_plan *plan = NULL;
    int n = 0;

    for (; status == NGD_ERR_NO_MEMORY && n < 1000; n++) {
        struct ngd_diag diag = {0};

        ngd_mem_fail_after(n);
        status = try_plan(g, NULL, 0, &inplace_target, &plan, &diag);
        ngd_mem_fail_after(-1);
        ck_assert(status == NGD_OK || strncmp(diag.text, "no host memory for the plan of graph s", 38) == 0);
    }
    ck_assert_int_eq(status, NGD_OK);
    ck_assert_int_gt(n, 10);
    ngd_plan_unref(plan);
    ngd_graph_unref(g);
}
END_TEST

/* ---- large ---- */

START_TEST(decoder_of_28_layers_is_planned_within_5_percent_of_its_bound)
{
    static const struct decoder_shape shapes[] = {
        {28, 1024, 16, 8, 128, 3072, 151936}, {28, 64, 4, 2, 16, 192, 512}, {3, 96, 6, 1, 16, 160, 50}};
    static const int64_t batches[] = {1, 2, 3, 8, 16, 37, 512};

    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        char *text = decoder_text(&shapes[s]);
        struct ngd_graph *g;

        ck_assert_ptr_nonnull(text);
        g = parse_graph(text);
        for (size_t b = 0; b < 2 * sizeof(batches) / sizeof(batches[0]); b++) {
            struct ngd_plan *p = NULL;
            struct ngd_diag diag = {0};

            if (try_plan(g, &batches[b / 2], 1, b % 2 ? &inplace_target : &stub_target, &p, &diag))
                ck_abort_msg("%s", diag.text);
            check_plan(p);
            ck_assert_uint_eq(count_calls(p, NGD_OP_ATEN_CLONE), 0);
            ck_assert_uint_eq(p->n_calls, 19 * shapes[s].layers + 4);
            ck_assert_msg((double)p->pool_bytes <= 1.05 * (double)p->live_peak_bytes, "shape %zu batch %ld: %lu of %lu",
                          s, (long)batches[b / 2], (unsigned long)p->pool_bytes, (unsigned long)p->live_peak_bytes);
            ngd_plan_unref(p);
        }
        ngd_graph_unref(g);
        ngd_free(text);
    }
}
END_TEST

START_TEST(weights_are_counted_once_and_embeddings_by_their_rows)
{
    struct ngd_plan *tied =
        make_plan("npugraph 1\ngraph \"t\" {\n  param %e : bf16[100,8]\n  input %i : i32[3]\n"
                  "  %x = aten.embedding(%e, %i)\n  %y = aten.linear(%x, %e)\n  return \"y\" = %y\n}\n",
                  NULL, 0, &stub_target);
    struct ngd_plan *rows = make_plan("npugraph 1\ngraph \"t\" {\n  param %e : bf16[100,8]\n  input %i : i32[3]\n"
                                      "  %x = aten.embedding(%e, %i)\n  return \"x\" = %x\n}\n",
                                      NULL, 0, &stub_target);

    ck_assert_uint_eq(tied->weight_bytes, 1600);
    ck_assert_uint_eq(tied->flops, 3 * 8 + 2 * 3 * 100 * 8);
    ck_assert_uint_eq(rows->weight_bytes, 48);
    ngd_plan_unref(tied);
    ngd_plan_unref(rows);
}
END_TEST

START_TEST(plain_plan_has_no_passes_but_the_precision_of_the_options)
{
    struct ngd_graph *g = parse_graph(mlp);
    struct ngd_graph_options options;
    struct ngd_digest digest = {{0}};
    struct ngd_plan *plain, *with;
    struct ngd_key key;

    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_graph_options_set(&options, "matmul_precision", "medium", NULL), NGD_OK);
    ck_assert_int_eq(ngd_key_make(g, &digest, (int64_t[]){3}, 1, &key, NULL), NGD_OK);
    ck_assert_int_eq(ngd_plan_create_plain(g, &key, &options, &stub_target, &plain, NULL), NGD_OK);
    ck_assert_int_eq(ngd_plan_create(g, &key, &options, &stub_target, &with, NULL), NGD_OK);
    ck_assert_int_eq(plain->matmul_precision, NGD_PRECISION_MEDIUM);
    ck_assert_int_eq(with->matmul_precision, NGD_PRECISION_MEDIUM);
    ck_assert_ptr_eq(plain->graph, g);
    ck_assert_ptr_ne(with->graph, g);
    ngd_plan_unref(with);
    ngd_plan_unref(plain);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(plan_keeps_its_graph_and_lives_until_the_last_unref)
{
    struct ngd_plan *p = make_plan(mlp, (int64_t[]){3}, 1, &stub_target); /* the graph's own reference is gone */

    ck_assert_ptr_eq(ngd_plan_ref(p), p);
    ck_assert_ptr_null(ngd_plan_unref(p));
    ck_assert_str_eq(p->graph->name, "mlp");
    ck_assert_ptr_null(ngd_plan_unref(p));
    ck_assert_ptr_null(ngd_plan_unref(NULL));
}
END_TEST

UNIT_MAIN("graphs/plan", mlp_with_a_bucket_symbol_prints_its_plan, in_place_results_take_their_operands_root,
          states_host_parameters_and_inserted_copies_are_printed, views_resolve_to_strides_or_to_a_view_of_one_copy,
          every_view_operator_has_a_rule, copies_are_shared_until_the_state_is_written,
          operand_that_overlaps_what_the_call_writes_is_copied_first,
          rows_follow_bucket_symbols_through_views_and_copies, attributes_are_numbers_at_the_key,
          dead_nodes_are_dropped_and_mutating_ones_are_kept, absent_and_host_operands_are_told_apart,
          outputs_are_contiguous_distinct_and_not_bound_buffers, graph_without_calls_hands_its_input_out,
          tensors_without_elements_need_no_memory, results_take_storage_only_where_that_is_safe,
          strided_view_of_a_state_that_the_device_cannot_write_is_refused, refusal_of_the_target_names_the_node,
          keys_of_other_graphs_and_values_out_of_range_are_refused, sizes_beyond_63_bits_are_refused,
          every_failed_allocation_is_reported_and_leaks_nothing,
          decoder_of_28_layers_is_planned_within_5_percent_of_its_bound,
          weights_are_counted_once_and_embeddings_by_their_rows,
          plain_plan_has_no_passes_but_the_precision_of_the_options,
          plan_keeps_its_graph_and_lives_until_the_last_unref)
