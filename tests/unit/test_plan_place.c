/* SPDX-License-Identifier: Apache-2.0 */
/* Tests results in the storage of other values: parts of a cat, and states that results are copied to. */
#include "graphs/plan_int.h"
#include "tests/unit/graph_util.h"
#include "tests/unit/plan_util.h"

static struct ngd_plan *plan_body(const char *body, const struct ngd_plan_target *target, const char *without)
{
    struct ngd_graph *g = parse_body(body);
    struct ngd_graph_options options;
    struct ngd_digest digest = {{0}};
    struct ngd_key key;
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];

    for (uint32_t i = 0; i < g->n_symbols; i++)
        symbols[i] = g->symbols[i].policy == NGD_SYMBOL_BUCKETS ? g->symbols[i].buckets[0] : g->symbols[i].min;
    ngd_graph_options_init(&options);
    if (without)
        ck_assert_int_eq(ngd_graph_options_set(&options, without, "false", NULL), NGD_OK);
    ck_assert_int_eq(ngd_key_make(g, &digest, symbols, g->n_symbols, &key, &diag), NGD_OK);
    if (ngd_plan_create(g, &key, &options, target, &plan, &diag))
        ck_abort_msg("%s\n%s", diag.text, body);
    ngd_graph_unref(g);
    check_plan(plan);
    return plan;
}

static uint32_t calls_of(const struct ngd_plan *p, ngd_op_id_t op)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_calls; i++)
        n += p->calls[i].op->id == op;
    return n;
}

static void expect_calls(const char *body, const struct ngd_plan_target *target, const char *without, ngd_op_id_t op,
                         uint32_t n)
{
    struct ngd_plan *p = plan_body(body, target, without);

    ck_assert_msg(calls_of(p, op) == n, "%u calls of %s, not %u\n%s", calls_of(p, op), ngd_op_by_id(op)->name, n, body);
    ngd_plan_unref(p);
}

#define CAT NGD_OP_ATEN_CAT

START_TEST(operands_of_a_cat_are_computed_into_its_result)
{
    static const char body[] = "  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n"
                               "  %c = aten.cat(%a, %b) {dim=0}\n  %y = aten.sin(%c)\n  return \"y\" = %y";
    struct ngd_plan *p = plan_body(body, &stub_target, NULL);
    const struct ngd_plan_tensor *a = &p->tensors[p->calls[0].out[0]], *b = &p->tensors[p->calls[1].out[0]];

    ck_assert_uint_eq(p->n_calls, 3);
    ck_assert_uint_eq(a->root, b->root);
    ck_assert_uint_eq(b->offset - a->offset, 128);
    ck_assert_uint_eq(p->tensors[p->calls[2].in[0]].root, a->root);
    ck_assert_uint_eq(p->tensors[a->root].bytes, 256);
    ngd_plan_unref(p);
    expect_calls(body, &stub_target, "remove_cat_ops", CAT, 1);
}
END_TEST

START_TEST(a_cat_stays_when_its_operands_cannot_be_parts)
{
    static const char *const bodies[] = {
        /* inputs */
        "  input %x : f32[2,16]\n  input %z : f32[2,16]\n  %c = aten.cat(%z, %x)\n  return \"c\" = %c",
        /* views */
        "  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten.exp(%a)\n  %v = aten.view(%b) {size=[2,16,1]}\n"
        "  %w = aten.view(%v) {size=[1,2,16]}\n  %u = aten.view(%a) {size=[1,2,16]}\n  %c = aten.cat(%u, %w)\n"
        "  return \"c\" = %c, \"a\" = %a, \"b\" = %b",
        /* not along the outermost dimension */
        "  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %c = aten.cat(%a, %b) {dim=1}\n"
        "  return \"c\" = %c",
        /* at no aligned place */
        "  input %x : f32[3]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %c = aten.cat(%a, %b)\n  return \"c\" = %c",
        /* three calls instead of one, for 128 bytes */
        "  input %x : f32[2,16]\n  input %z : f32[4,16]\n  %a = aten.exp(%x)\n  %c = aten.cat(%a, %x, %z, %x)\n"
        "  return \"c\" = %c",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        expect_calls(bodies[i], &stub_target, NULL, CAT, 1);
    /* dimensions of 1 before the axis do not matter */
    expect_calls("  input %x : f32[1,16]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %c = aten.cat(%a, %b) {dim=-1}\n"
                 "  return \"c\" = %c",
                 &stub_target, NULL, CAT, 0);
}
END_TEST

/* Checks that `copies` operands of the cat are copied to their places, and that all others are made there. */
static void expect_filled(const char *body, const struct ngd_plan_target *target, uint32_t calls, uint32_t copies)
{
    struct ngd_plan *p = plan_body(body, target, NULL);
    uint32_t root = p->tensors[p->outputs[0].tensor].root;

    ck_assert_msg(calls_of(p, CAT) == 0 && p->n_calls == calls && calls_of(p, NGD_OP_ATEN_CLONE) == copies,
                  "%u calls, %u copies\n%s", p->n_calls, calls_of(p, NGD_OP_ATEN_CLONE), body);
    for (uint32_t i = 0; i < p->n_calls; i++)
        ck_assert_msg(p->tensors[p->calls[i].out[0]].root == root || p->calls[i].op->id != NGD_OP_ATEN_CLONE,
                      "call %u copies to somewhere else\n%s", i, body);
    ngd_plan_unref(p);
    expect_calls(body, target, "remove_cat_ops", CAT, 1);
}

START_TEST(what_cannot_be_a_part_of_a_cat_is_copied_and_the_rest_is_made_there)
{
    /* an input, in front or behind */
    expect_filled("  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %c = aten.cat(%a, %x)\n  return \"c\" = %c",
                  &stub_target, 2, 1);
    expect_filled("  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %c = aten.cat(%x, %a)\n  return \"c\" = %c",
                  &stub_target, 2, 1);
    /* a cache and new rows behind it; a view that is not contiguous */
    expect_filled("  state %s : f32[64,16]\n  input %x : f32[2,16]\n  %n = aten.exp(%x)\n  %c = aten.cat(%s, %n)\n"
                  "  return \"c\" = %c",
                  &stub_target, 2, 1);
    expect_filled("  input %x : f32[2,16]\n  input %z : f32[16,2]\n  %a = aten.exp(%x)\n  %t = aten.t(%z)\n"
                  "  %c = aten.cat(%a, %t)\n  return \"c\" = %c",
                  &strided_target, 2, 1);
    /* twice the same; three operands of which the one in the middle is made there */
    expect_filled("  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %c = aten.cat(%a, %a)\n  return \"c\" = %c",
                  &stub_target, 2, 1);
    expect_filled("  input %x : f32[4096,16]\n  %a = aten.exp(%x)\n  %c = aten.cat(%x, %a, %x)\n  return \"c\" = %c",
                  &stub_target, 3, 2);
    /* an operand with strides, between others; the copy has them too */
    expect_filled("  sym B 1..8 buckets 4, 8\n  input %x : f32[B,3]\n  %a = aten.exp(%x)\n"
                  "  %c = aten.cat(%a, %x) {dim=1}\n  return \"c\" = %c",
                  &strided_target, 2, 1);
    expect_filled("  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten._softmax(%x) {dim=1}\n"
                  "  %c = aten.cat(%a, %b) {dim=1}\n  return \"c\" = %c",
                  &strided_target, 3, 1);
    /* an output of its own is copied, and so is what others read in one piece */
    expect_calls("  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %c = aten.cat(%a, %b)\n"
                 "  return \"c\" = %c, \"a\" = %a",
                 &stub_target, NULL, NGD_OP_ATEN_CLONE, 1);
    expect_filled("  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %c = aten.cat(%a, %b) {dim=1}\n"
                  "  %y = aten._softmax(%b) {dim=1}\n  return \"c\" = %c, \"y\" = %y",
                  &strided_target, 4, 1);
    /* two cats that share a part: the first has it */
    expect_calls("  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %d = aten.sin(%x)\n"
                 "  %c = aten.cat(%a, %b)\n  %e = aten.cat(%b, %d)\n  return \"c\" = %c, \"e\" = %e",
                 &stub_target, NULL, NGD_OP_ATEN_CLONE, 1);
    /* a cat of cats: the inner one's operands are made in it, and it is copied */
    expect_calls("  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %d = aten.sin(%x)\n"
                 "  %c = aten.cat(%a, %b)\n  %e = aten.cat(%c, %d)\n  return \"e\" = %e",
                 &stub_target, NULL, NGD_OP_ATEN_CLONE, 1);
}
END_TEST

START_TEST(operands_of_a_cat_along_any_dimension_are_computed_into_it_where_results_may_have_strides)
{
    static const char body[] =
        "  sym B 1..8 buckets 4, 8\n  input %x : f32[B,3,5]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n"
        "  %c = aten.cat(%a, %b) {dim=1}\n  return \"c\" = %c";
    struct ngd_plan *p = plan_body(body, &strided_target, NULL),
                    *with = plan_body(body, &strided_target, "remove_cat_ops");
    const struct ngd_plan_tensor *a = &p->tensors[p->calls[0].out[0]], *b = &p->tensors[p->calls[1].out[0]];

    ck_assert_uint_eq(p->n_calls, 2);
    ck_assert_uint_eq(a->root, b->root);
    ck_assert_uint_eq(b->offset - a->offset, 3 * 5 * 4);
    ck_assert_int_eq(a->strides[0], 30);
    ck_assert_int_eq(b->strides[1], 5);
    ck_assert(a->row_sym != NGD_NO_ROW_SYM && b->row_sym == a->row_sym);
    ck_assert_uint_eq(p->tensors[p->outputs[0].tensor].root, a->root);
    /* one call less, and the parts are not there twice */
    ck_assert_uint_eq(with->n_calls, 3);
    ck_assert_uint_lt(p->pool_bytes, with->pool_bytes);
    ngd_plan_unref(p);
    ngd_plan_unref(with);
    /* at no aligned place */
    expect_calls("  input %x : f32[3]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %c = aten.cat(%a, %b)\n"
                 "  return \"c\" = %c",
                 &strided_target, NULL, CAT, 0);
}
END_TEST

START_TEST(a_cat_stays_when_no_operand_can_have_strides)
{
    static const char *const bodies[] = {
        /* not elementwise */
        "  input %x : f32[2,16]\n  %a = aten._softmax(%x) {dim=0}\n  %b = aten._softmax(%x) {dim=1}\n"
        "  %c = aten.cat(%b, %a) {dim=1}\n  return \"c\" = %c",
        /* outputs, inputs */
        "  input %x : f32[2,16]\n  %a = aten.exp(%x)\n  %b = aten.neg(%x)\n  %c = aten.cat(%a, %b) {dim=1}\n"
        "  return \"c\" = %c, \"b\" = %b, \"a\" = %a",
        "  input %x : f32[2,16]\n  %c = aten.cat(%x, %x) {dim=1}\n  return \"c\" = %c",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        expect_calls(bodies[i], &strided_target, NULL, CAT, 1);
}
END_TEST

START_TEST(inputs_keep_their_storage_when_they_are_not_cloned)
{
    static const char body[] = "  input %x : f32[1024]\n  %a = aten.exp(%x)\n  %b = aten.neg(%a)\n  return \"b\" = %b";
    struct ngd_plan *cloned = plan_body(body, &inplace_target, NULL),
                    *kept = plan_body(body, &inplace_target, "clone_input");

    ck_assert_uint_eq(cloned->pool_bytes, 4096); /* all of it is computed over the input */
    ck_assert_uint_eq(kept->pool_bytes, 8192);
    for (uint32_t i = 0; i < kept->n_calls; i++)
        ck_assert_uint_ne(kept->tensors[kept->calls[i].out[0]].root, kept->tensors[kept->inputs[0].tensor].root);
    ngd_plan_unref(cloned);
    ngd_plan_unref(kept);
}
END_TEST

#define COPY_ NGD_OP_ATEN_COPY_

START_TEST(what_is_copied_back_to_a_state_is_computed_into_it)
{
    static const char body[] = "  state %s : f32[4]\n  input %x : f32[4]\n  %n = aten.add.Tensor(%s, %x)\n"
                               "  aten.copy_(%s, %n)\n  %y = aten.neg(%s)\n  return \"y\" = %y";
    struct ngd_plan *p = plan_body(body, &inplace_target, NULL);

    ck_assert_uint_eq(p->n_calls, 2);
    ck_assert_int_eq(p->tensors[p->calls[0].out[0]].space, NGD_SPACE_BOUND);
    ck_assert_uint_eq(p->tensors[p->calls[0].out[0]].root, p->tensors[p->calls[0].in[0]].root);
    ngd_plan_unref(p);
    expect_calls(body, &inplace_target, "input_inplace_pass", COPY_, 1);
    expect_calls(body, &stub_target, NULL, COPY_, 1); /* the kernel could not overwrite its operand */
    expect_calls("  state %s : f32[4]\n  input %x : f32[4]\n  %n = aten.exp(%x)\n  aten.copy_(%s, %n)\n"
                 "  %y = aten.neg(%s)\n  return \"y\" = %y",
                 &stub_target, NULL, COPY_, 0);
}
END_TEST

START_TEST(a_copy_back_stays_when_somebody_would_see_the_difference)
{
    static const char *const bodies[] = {
        /* the old state is read in between */
        "  state %s : f32[4]\n  input %x : f32[4]\n  %n = aten.exp(%x)\n  %old = aten.neg(%s)\n  aten.copy_(%s, %n)\n"
        "  return \"old\" = %old",
        /* the value is an output */
        "  state %s : f32[4]\n  input %x : f32[4]\n  %n = aten.exp(%x)\n  aten.copy_(%s, %n)\n  return \"n\" = %n",
        /* another type, a part of the state, a result that mixes elements, a view of the state */
        "  state %s : bf16[4]\n  input %x : f32[4]\n  %n = aten.exp(%x)\n  aten.copy_(%s, %n)\n  return \"s\" = %s",
        "  state %s : f32[8]\n  input %x : f32[4]\n  %v = aten.slice.Tensor(%s) {end=4}\n  %n = aten.exp(%x)\n"
        "  aten.copy_(%v, %n)\n  return \"s\" = %s",
        "  state %s : f32[4]\n  %n = aten._softmax(%s) {dim=0}\n  aten.copy_(%s, %n)\n  return \"s\" = %s",
        "  state %s : f32[4,4]\n  %t = aten.t(%s)\n  %n = aten.exp(%t)\n  aten.copy_(%s, %n)\n  return \"s\" = %s",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        expect_calls(bodies[i], &inplace_target, NULL, COPY_, 1);
}
END_TEST

START_TEST(a_value_that_was_copied_back_may_be_read_until_the_state_is_written_again)
{
    expect_calls("  state %s : f32[4]\n  input %x : f32[4]\n  %n = aten.exp(%x)\n  aten.copy_(%s, %n)\n"
                 "  %y = aten.neg(%n)\n  return \"y\" = %y",
                 &stub_target, NULL, COPY_, 0);
    /* the second copy goes: the first value is read behind what writes the state again */
    expect_calls("  state %s : f32[4]\n  input %x : f32[4]\n  %n = aten.exp(%x)\n  aten.copy_(%s, %n)\n"
                 "  %m = aten.sin(%x)\n  aten.copy_(%s, %m)\n  %y = aten.neg(%n)\n  return \"y\" = %y",
                 &stub_target, NULL, COPY_, 1);
    /* the first goes: the second value would be there before the first is read */
    expect_calls("  state %s : f32[4]\n  input %x : f32[4]\n  %n = aten.exp(%x)\n  aten.copy_(%s, %n)\n"
                 "  %m = aten.sin(%x)\n  %y = aten.neg(%n)\n  aten.copy_(%s, %m)\n  return \"y\" = %y",
                 &stub_target, NULL, COPY_, 1);
}
END_TEST

#define PUT_INPUTS "  state %s : f32[8,4]\n  input %x : f32[8,4]\n  input %i : i32[2]\n  input %v : f32[2,4]\n"

/* Checks whether an update works in place: then a replay moves no bytes into states except the updated rows. */
static void expect_update(const char *body, uint32_t calls, bool in_place)
{
    struct ngd_plan *p = plan_body(body, &inplace_target, NULL);
    const struct ngd_plan_call *c = NULL;

    for (uint32_t i = 0; i < p->n_calls && !c; i++)
        c = p->calls[i].op->flags & NGD_OPF_UPDATE ? &p->calls[i] : NULL;
    ck_assert_msg(p->n_calls == calls, "%u calls, not %u\n%s", p->n_calls, calls, body);
    ck_assert_msg((p->tensors[c->in[0]].root == p->tensors[c->out[0]].root) == in_place, "%s\n%s",
                  in_place ? "copies" : "works in place", body);
    ngd_plan_unref(p);
}

START_TEST(updates_of_a_state_that_are_copied_back_work_in_it)
{
    static const char *const updates[] = {"aten.index_put(%s, %i, %v)",
                                          "aten.index_put(%s, %i, %v) {accumulate=true}",
                                          "aten.index_copy(%s, %i, %v) {dim=0}",
                                          "aten.slice_scatter(%s, %v) {start=2, end=4}",
                                          "aten.scatter.value(%s, %j) {dim=0, value=1}",
                                          "aten.scatter.src(%s, %j, %v) {dim=0}"};

    for (size_t i = 0; i < sizeof(updates) / sizeof(updates[0]); i++) {
        char body[512];

        snprintf(body, sizeof(body), "%s  input %%j : i64[2,4]\n  %%n = %s\n%s", PUT_INPUTS, updates[i],
                 "  %y = aten.sin(%n)\n  aten.copy_(%s, %n)\n  return \"y\" = %y");
        expect_update(body, 2, true);
    }
    /* one after the other, all in the state */
    expect_update(PUT_INPUTS
                  "  input %w : f32[4]\n  %n = aten.index_put(%s, %i, %v)\n"
                  "  %m = aten.select_scatter(%n, %w) {dim=0, index=7}\n  aten.copy_(%s, %m)\n  return \"s\" = %s",
                  3, true);
    /* of something else: it is copied into the state, once */
    expect_update(PUT_INPUTS "  %n = aten.index_put(%x, %i, %v)\n  aten.copy_(%s, %n)", 1, false);
    /* intermediates, too */
    expect_update(PUT_INPUTS "  %e = aten.exp(%x)\n  %n = aten.index_put(%e, %i, %v)\n  return \"n\" = %n", 2, true);
}
END_TEST

/* transformers' StaticCache at a decode step: only the step's rows move, and the cache takes no memory of the pool. */
START_TEST(a_static_cache_is_written_where_it_is)
{
    static const char body[] =
        "  state %c : f32[1,2,4096,16]\n  input %p : i64[1]\n  input %k : f32[1,1,2,16]\n"
        "  %h = aten.transpose.int(%k) {dim0=1, dim1=2}\n  %n = aten.index_copy(%c, %p, %h) {dim=2}\n"
        "  %y = aten.select.int(%n) {dim=2, index=5}\n  %z = aten.neg(%y)\n  aten.copy_(%c, %n)\n"
        "  return \"z\" = %z";
    struct ngd_plan *p = plan_body(body, &inplace_target, NULL);

    ck_assert_uint_eq(p->n_calls, 2);
    ck_assert_int_eq(p->calls[0].op->id, NGD_OP_ATEN_INDEX_COPY);
    ck_assert_uint_eq(p->tensors[p->calls[0].in[0]].root, p->tensors[p->calls[0].out[0]].root);
    ck_assert_uint_eq(p->tensors[p->calls[0].in[0]].offset, p->tensors[p->calls[0].out[0]].offset);
    ck_assert_int_eq(p->tensors[p->tensors[p->calls[0].out[0]].root].space, NGD_SPACE_BOUND);
    ck_assert_uint_lt(p->pool_bytes, 1024);
    ngd_plan_unref(p);
    expect_update(body, 2, true);
}
END_TEST

/* npugraph_ex's recover_view_inplace_pattern: a KV cache that is written through a flat view of itself. */
START_TEST(updates_through_reshaping_views_of_a_state_work_in_it)
{
    /* kv.view(-1, 4).index_put(...).view(8, 4) copied back, also with other nodes in between */
    expect_update(PUT_INPUTS "  %f = aten.view(%s) {size=[4,8]}\n  %j = aten.view(%v) {size=[1,8]}\n"
                             "  %n = aten.slice_scatter(%f, %j) {start=2, end=3}\n  %b = aten.view(%n) {size=[8,4]}\n"
                             "  aten.copy_(%s, %b)\n  %y = aten.sin(%s)\n  return \"y\" = %y",
                  2, true);
    /* with one dimension more or less; read in its shape; copied into a view of the state */
    expect_update(PUT_INPUTS
                  "  %f = aten.unsqueeze(%s) {dim=0}\n  %j = aten.unsqueeze(%v) {dim=0}\n"
                  "  %n = aten.slice_scatter(%f, %j) {dim=1, start=2, end=4}\n  %g = aten.unsqueeze(%s) {dim=0}\n"
                  "  aten.copy_(%g, %n)\n  %y = aten.sin(%n)\n  return \"y\" = %y",
                  2, true);
    /* one after the other, in different shapes */
    expect_update(PUT_INPUTS "  %n = aten.index_put(%s, %i, %v)\n  %f = aten.view(%n) {size=[32]}\n"
                             "  input %w : f32[3]\n  %m = aten.slice_scatter(%f, %w) {start=1, end=4}\n"
                             "  %b = aten.view(%m) {size=[8,4]}\n  aten.copy_(%s, %b)\n  return \"s\" = %s",
                  3, true);
    /* an elementwise operator in the state's storage, in another shape */
    expect_calls("  state %s : f32[2,4]\n  input %x : f32[8]\n  %f = aten.view(%s) {size=[8]}\n"
                 "  %n = aten.add.Tensor(%f, %x)\n  %b = aten.view(%n) {size=[2,4]}\n  aten.copy_(%s, %b)\n"
                 "  %y = aten.neg(%s)\n  return \"y\" = %y",
                 &inplace_target, NULL, COPY_, 0);
    /* not: by an operator whose result has another shape, repeated, in another order, while the old ones are read */
    expect_calls("  state %s : f32[8]\n  input %x : f32[1,8]\n  %n = aten.add.Tensor(%s, %x)\n"
                 "  %b = aten.view(%n) {size=[8]}\n  aten.copy_(%s, %b)\n  %y = aten.neg(%s)\n  return \"y\" = %y",
                 &inplace_target, NULL, COPY_, 1);
    expect_calls("  state %s : f32[2,4]\n  input %x : f32[2,2,4]\n  %f = aten.unsqueeze(%s) {dim=0}\n"
                 "  %n = aten.add.Tensor(%f, %x)\n  %b = aten.select.int(%n) {dim=0, index=0}\n  aten.copy_(%s, %b)\n"
                 "  %y = aten.neg(%s)\n  return \"y\" = %y",
                 &inplace_target, NULL, COPY_, 1);
    expect_calls("  state %s : f32[4,4]\n  input %x : f32[4,4]\n  %f = aten.t(%s)\n  %n = aten.add.Tensor(%f, %x)\n"
                 "  %b = aten.view(%n) {size=[4,4]}\n  aten.copy_(%s, %b)\n  %y = aten.neg(%s)\n  return \"y\" = %y",
                 &inplace_target, NULL, COPY_, 1);
    expect_calls("  state %s : f32[2,4]\n  input %x : f32[8]\n  %f = aten.view(%s) {size=[8]}\n"
                 "  %n = aten.add.Tensor(%f, %x)\n  %old = aten.neg(%f)\n  %b = aten.view(%n) {size=[2,4]}\n"
                 "  aten.copy_(%s, %b)\n  return \"old\" = %old",
                 &inplace_target, NULL, COPY_, 1);
}
END_TEST

START_TEST(an_update_of_a_state_is_made_aside_when_somebody_would_see_the_difference)
{
    /* the old state is read in between */
    expect_update(PUT_INPUTS "  %n = aten.index_put(%s, %i, %v)\n  %old = aten.neg(%s)\n  aten.copy_(%s, %n)\n"
                             "  return \"old\" = %old",
                  3, false);
    /* the new rows are in the state itself */
    expect_update(PUT_INPUTS "  %w = aten.slice.Tensor(%s) {start=3, end=5}\n  %n = aten.index_put(%s, %i, %w)\n"
                             "  aten.copy_(%s, %n)",
                  2, false);
    expect_update(PUT_INPUTS "  %w = aten.slice.Tensor(%s) {end=4}\n  %n = aten.slice_scatter(%s, %w) {start=4}\n"
                             "  aten.copy_(%s, %n)",
                  2, false);
    /* a view of the state is updated: it is copied, the copy is updated, and all of it is copied back */
    expect_update("  state %s : f32[4,4]\n  input %v : f32[2,4]\n  %t = aten.t(%s)\n"
                  "  %n = aten.slice_scatter(%t, %v) {end=2}\n  aten.copy_(%s, %n)",
                  3, true);
    /* the updated value is an output, or is read when the state was written again */
    expect_update(PUT_INPUTS "  %n = aten.index_put(%s, %i, %v)\n  aten.copy_(%s, %n)\n  return \"n\" = %n", 2, false);
    expect_update(PUT_INPUTS "  %n = aten.index_put(%s, %i, %v)\n  aten.copy_(%s, %n)\n  aten.copy_(%s, %x)\n"
                             "  %y = aten.neg(%n)\n  return \"y\" = %y",
                  4, false);
    /* of two updates in a row the first is read behind the second */
    expect_update(PUT_INPUTS "  %n = aten.index_put(%s, %i, %v)\n  %m = aten.index_put(%n, %i, %v)\n"
                             "  %y = aten.neg(%n)\n  aten.copy_(%s, %m)\n  return \"y\" = %y",
                  3, false);
    /* an intermediate that is read later, or put into itself */
    expect_update(PUT_INPUTS "  %e = aten.exp(%x)\n  %n = aten.index_put(%e, %i, %v)\n  %y = aten.add.Tensor(%e, %n)\n"
                             "  return \"y\" = %y",
                  3, false);
    expect_update(PUT_INPUTS "  %e = aten.exp(%x)\n  %w = aten.slice.Tensor(%e) {end=4}\n"
                             "  %n = aten.slice_scatter(%e, %w) {start=4}\n  return \"n\" = %n",
                  2, false);
}
END_TEST

UNIT_MAIN("graphs/plan_place", operands_of_a_cat_are_computed_into_its_result,
          a_cat_stays_when_its_operands_cannot_be_parts,
          operands_of_a_cat_along_any_dimension_are_computed_into_it_where_results_may_have_strides,
          a_cat_stays_when_no_operand_can_have_strides,
          what_cannot_be_a_part_of_a_cat_is_copied_and_the_rest_is_made_there,
          inputs_keep_their_storage_when_they_are_not_cloned, what_is_copied_back_to_a_state_is_computed_into_it,
          a_copy_back_stays_when_somebody_would_see_the_difference,
          a_value_that_was_copied_back_may_be_read_until_the_state_is_written_again,
          updates_of_a_state_that_are_copied_back_work_in_it, a_static_cache_is_written_where_it_is,
          updates_through_reshaping_views_of_a_state_work_in_it,
          an_update_of_a_state_is_made_aside_when_somebody_would_see_the_difference)
