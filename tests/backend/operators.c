/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators: every golden case of every operator on every backend, replayed and eager. There is one check for each
 * operator and backend. An operator that a backend does not support is printed with the reason that select() gives.
 */
#include "tests/backend/conform.h"
#include "tests/ops/attention_case.h"
#include "tests/ops/golden_run.h"

static struct golden golden; /* read once, before the tests fork */

static bool is_capturable(const struct ngd_op *op)
{
    return !(op->flags & (NGD_OPF_RANDOM | NGD_OPF_SYNC | NGD_OPF_DATA_SHAPE | NGD_OPF_EVENT));
}

/* False for collectives, which have tests of their own in collectives.c. */
static bool is_alone(const struct ngd_op *op)
{
    return is_capturable(op) && strncmp(op->name, "_c10d_functional.", 17) != 0;
}

/* Returns the n-th operator that one device can run alone, or NULL past the last. */
static const struct ngd_op *nth_op(int n)
{
    for (int id = 0; id < NGD_OP_MAX; id++)
        if (is_alone(ngd_op_by_id((ngd_op_id_t)id)) && n-- == 0)
            return ngd_op_by_id((ngd_op_id_t)id);
    return NULL;
}

static int count_ops(void)
{
    int n = 0;

    while (nth_op(n))
        n++;
    return n;
}

static bool is_mixed(const struct golden_case *g)
{
    bool wide = false, half = false;

    for (uint32_t i = 0; i < g->n_in; i++) {
        wide |= !(g->none >> i & 1) && g->in[i].dtype == NGD_F32;
        half |= !(g->none >> i & 1) && (g->in[i].dtype == NGD_F16 || g->in[i].dtype == NGD_BF16);
    }
    return wide && half;
}

/* Rows of f32 and results of f32 are rounded where the operator takes halves alone. */
static bool has_rounded_f32(const struct golden_case *g)
{
    if (g->op->id == NGD_OP_NPU_QUANT_MATMUL)
        return g->out[0].dtype == NGD_F32;
    return g->in[0].dtype == NGD_F32 &&
           (g->op->id == NGD_OP_NPU_DYNAMIC_QUANT || g->op->id == NGD_OP_NPU_ADD_RMS_NORM_DYNAMIC_QUANT);
}

/* Weights that are dequantised are rounded where the matrix unit takes one dtype. */
static double allowed_error(const struct conform_backend *backend, const struct golden_case *g)
{
    if (g->op->id == NGD_OP_NPU_WEIGHT_QUANT_BATCHMATMUL && g->in[0].dtype != NGD_F32)
        return backend->quantised_tolerance;
    if (g->op->id == NGD_OP_NPU_QUANT_MATMUL)
        return has_rounded_f32(g) ? backend->mixed_tolerance : backend->tolerance;
    return is_mixed(g) || has_rounded_f32(g) || g->op->id == NGD_OP_NPU_WEIGHT_QUANT_BATCHMATMUL
               ? backend->mixed_tolerance
               : backend->tolerance;
}

/*
 * Replays a case with inputs, and runs it eagerly with bound operands. Returns in how many forms it ran; *diag says why
 * one of them is not supported.
 */
static int run_forms(struct conform *c, const struct golden_case *g, struct ngd_diag *diag)
{
    double allowed = allowed_error(c->backend, g);

    for (int form = 0; form < 2; form++) {
        double error = golden_run(&c->b, g, form, form, diag);

        if (diag->status)
            return form;
        if (!(error <= allowed))
            ck_abort_msg("%s on %s%s is %g times what is allowed off", g->name, c->backend->name,
                         form ? ", eager, with bound operands" : "", error);
    }
    return 2;
}

static bool is_case_of(size_t i, const struct ngd_op *op)
{
    const char *name = json_string_value(json_object_get(json_array_get(golden.cases, i), "op"));

    return ngd_op_find(name, strlen(name)) == op;
}

START_TEST(operator_is_within_tolerance_or_refused_by_name)
{
    int n = count_ops();
    const struct ngd_op *op = nth_op(_i % n);
    static struct golden_case one; /* static, since it is large */
    static struct ngd_diag diag, first;
    uint32_t cases = 0, unsupported[2] = {0};
    struct conform c;

    conform_open(&c, _i / n);
    for (size_t i = 0; i < json_array_size(golden.cases); i++) {
        int forms;

        if (!is_case_of(i, op))
            continue;
        one = golden_case(&golden, i);
        cases++;
        memset(&diag, 0, sizeof(diag));
        forms = run_forms(&c, &one, &diag);
        if (forms == 2)
            continue;
        conform_says(diag.text, op->name); /* a refusal names the operator */
        if (!unsupported[0] && (!unsupported[1] || forms == 0))
            first = diag;
        unsupported[forms]++;
    }
    ck_assert_msg(cases > 0, "%s has no golden case", op->name);
    if (unsupported[0] + unsupported[1]) {
        char what[128];

        snprintf(what, sizeof(what), "%s, %u of %u cases%s", op->name, unsupported[0] ? unsupported[0] : unsupported[1],
                 cases, unsupported[0] ? "" : " with operands in device memory");
        conform_skip(c.backend, what, first.text);
    }
    conform_close(&c);
}
END_TEST

/*
 * The golden cases of attention have small blocks and caches of f32, which not all devices take. These cases have the
 * shapes of decoders: prompts, single tokens, and both together.
 */
static const struct attention_shape attentions[] = {
    {.heads = 4, .kv_heads = 2, .d = 64, .block_size = 16, .rows = {1, 7, 2}, .keys = {9, 7, 40}},
    {.heads = 8, .kv_heads = 1, .d = 128, .block_size = 128, .rows = {1, 1, 1}, .keys = {1, 300, 128}},
    {.heads = 3, .kv_heads = 3, .d = 32, .block_size = 32, .rows = {20, 1, 33}, .keys = {20, 64, 65}},
};

START_TEST(attention_over_blocks_of_any_size_is_within_tolerance)
{
    static const ngd_dtype_t types[][2] = {
        {NGD_BF16, NGD_BF16}, {NGD_F16, NGD_F16}, {NGD_F32, NGD_BF16}, {NGD_F32, NGD_F16}};
    struct random r = {29};
    struct conform c;

    conform_open(&c, _i);
    for (size_t i = 0; i < 4 * sizeof(attentions) / sizeof(attentions[0]); i++) {
        struct attention_shape s = attentions[i / 4];
        struct attention_data d;
        struct ngd_strbuf text;

        s.qt = types[i % 4][0];
        s.ct = types[i % 4][1];
        s.blocks = 9;
        s.table_width = 300 / s.block_size + 1;
        s.n_seqs = 3;
        s.scale = 1 / sqrt((double)s.d);
        ngd_strbuf_init(&text);
        attention_text(&s, &text);
        attention_data_open(&s, &d, &r);
        attention_run(&c.b, &s, &d, ngd_strbuf_str(&text),
                      s.qt == s.ct ? c.backend->tolerance : c.backend->mixed_tolerance);
        attention_data_close(&d);
        ngd_strbuf_fini(&text);
    }
    conform_close(&c);
}
END_TEST

/* Asking is enough to find out that an operator cannot run; nothing has to be captured. */
START_TEST(operator_without_a_kernel_is_refused_by_name_before_a_capture)
{
    static const ngd_op_id_t none[] = {NGD_OP_ATEN_RAND, NGD_OP_ATEN_NONZERO, NGD_OP_HIGHER_ORDER_COND,
                                       NGD_OP_ATEN_VIEW};
    const struct ngd_plan_target *target;
    struct conform_double d;
    struct conform c;

    conform_open(&c, _i);
    conform_double_open(&d, &c, 1);
    target = ngd_device_target(c.b.dev);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        struct ngd_plan_call call = d.r.plan->calls[0];
        struct ngd_diag diag = {0};
        uint32_t strided = 0;
        uint64_t workspace = 0;

        ck_assert_int_eq(target->select(target->ctx, d.r.plan, &call, &strided, &workspace, &diag), NGD_OK);
        call.op = ngd_op_by_id(none[i]);
        ck_assert_int_eq(target->select(target->ctx, d.r.plan, &call, &strided, &workspace, &diag),
                         NGD_ERR_OP_UNSUPPORTED);
        conform_says(diag.text, call.op->name);
        conform_says(diag.text, c.backend->name);
        ck_assert_int_eq(target->select(target->ctx, d.r.plan, &call, &strided, &workspace, NULL),
                         NGD_ERR_OP_UNSUPPORTED);
    }
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

TCase *conform_operators(void)
{
    TCase *tcase = tcase_create("operators");

    golden_open(&golden);
    CONFORM_ADD(tcase, operator_without_a_kernel_is_refused_by_name_before_a_capture,
                attention_over_blocks_of_any_size_is_within_tolerance);
    tcase_add_loop_test(tcase, operator_is_within_tolerance_or_refused_by_name, 0, count_ops() * (int)conform_count());
    return tcase;
}
