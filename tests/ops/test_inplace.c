/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests elementwise operators that overwrite an operand. For every such operator, every dtype and every position of the
 * operand, on every instruction set and in several parts, the bits must be those of the same call with a separate
 * result. Sizes end inside a vector, at its end, and behind it.
 */
#include "tests/ops/each_isa.h"
#include "tests/ops/direct.h"
#include "tests/unit/unit.h"
#include "graphs/op.h"

static const int64_t counts[] = {1, 2, 15, 16, 17, 31, 64, 129, 513, 1500};
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))
#define MAX      1500

/* Shapes of operands: that of the overwritten operand, or a smaller one. */
enum shape { FULL, ROW, ONE };

struct form {
    const struct ngd_op *op;
    ngd_dtype_t dtype;
    uint32_t n_in, victim; /* operand that is written over */
    enum shape others;     /* shape of the rest */
    bool same;             /* all operands are the victim */
    int64_t rows, cols;
};

static void print_attrs(struct ngd_strbuf *sb, const struct form *f)
{
    bool first = true;

    for (uint32_t i = 0; i < f->op->n_attrs; i++) {
        const struct ngd_attr_schema *a = &f->op->attrs[i];

        if (!a->required)
            continue;
        ngd_strbuf_printf(sb, "%s%s=", first ? " {" : ", ", a->name);
        if (a->type == NGD_ATTR_DTYPE)
            ngd_strbuf_append(sb, ngd_dtype_name(f->dtype));
        else if (a->type == NGD_ATTR_STR)
            ngd_strbuf_append(sb, "\"floor\"");
        else
            ngd_strbuf_append(sb, ngd_dtype_is_float(f->dtype) ? "1.75" : "1");
        first = false;
    }
    ngd_strbuf_append(sb, first ? "" : "}");
}

/* Returns the operand that is a mask; UINT32_MAX: none. */
static uint32_t mask_of(const struct ngd_op *op)
{
    return op->id == NGD_OP_ATEN_WHERE_SELF ? 0 : op->id == NGD_OP_ATEN_MASKED_FILL_SCALAR ? 1 : UINT32_MAX;
}

/* Returns the dtype of operand i: bool for a mask. */
static ngd_dtype_t operand_dtype(const struct form *f, uint32_t i)
{
    return i == mask_of(f->op) ? NGD_BOOL : f->dtype;
}

static void form_text(const struct form *f, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, "npugraph 1\ngraph \"inplace\" {\n");
    for (uint32_t i = 0; i < f->n_in; i++) {
        bool full = i == f->victim || f->others == FULL;

        if (f->same && i != f->victim)
            continue;
        ngd_strbuf_printf(sb, " input %%a%u : %s[%lld,%lld]\n", i, ngd_dtype_name(operand_dtype(f, i)),
                          (long long)(full ? f->rows : 1), (long long)(full || f->others == ROW ? f->cols : 1));
    }
    ngd_strbuf_printf(sb, " %%y = %s(", f->op->name);
    for (uint32_t i = 0; i < f->n_in; i++)
        ngd_strbuf_printf(sb, "%s%%a%u", i ? ", " : "", f->same ? f->victim : i);
    ngd_strbuf_append(sb, ")");
    print_attrs(sb, f);
    ngd_strbuf_append(sb, "\n return \"y\" = %y\n}\n");
}

static struct ngd_plan *form_plan(struct bench *b, const struct form *f, bool inplace)
{
    struct ngd_plan_target target = *ngd_device_target(b->dev);
    struct ngd_digest options = {{0}};
    struct ngd_graph *g = NULL;
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ngd_key key;

    target.inplace = inplace;
    ngd_strbuf_init(&sb);
    form_text(f, &sb);
    if (ngd_graph_parse(ngd_strbuf_str(&sb), sb.len, &g, &diag) == NGD_OK) {
        run_check(ngd_key_make(g, &options, NULL, 0, &key, &diag), &diag, ngd_strbuf_str(&sb));
        run_check(ngd_plan_create(g, &key, NULL, &target, &plan, &diag), &diag, ngd_strbuf_str(&sb));
    } else if (diag.status != NGD_ERR_GRAPH_DTYPE) {
        run_check(diag.status, &diag, ngd_strbuf_str(&sb)); /* only a dtype that the operator does not take */
    }
    ngd_graph_unref(g);
    ngd_strbuf_fini(&sb);
    return plan;
}

/* Fills memory with bytes that are valid for the dtype; bools have any value that a client may send. */
static void fill(char *p, ngd_dtype_t t, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        float v;

        seed = seed * 1664525u + 1013904223u;
        v = (float)(int32_t)seed * 0x1p-29f;
        if (t == NGD_F32)
            ((float *)(void *)p)[i] = v;
        else if (t == NGD_F16)
            ((uint16_t *)(void *)p)[i] = ngd_f32_to_f16(v);
        else if (t == NGD_BF16)
            ((uint16_t *)(void *)p)[i] = ngd_f32_to_bf16(v);
        else
            for (size_t k = 0; k < ngd_dtype_bytes(t); k++)
                p[(size_t)i * ngd_dtype_bytes(t) + k] = (char)(seed >> (8 + 3 * k));
    }
}

/* Runs a plan on the form's data; the result's bytes go to out. */
static uint64_t run_plan(const struct ngd_plan *plan, ngd_isa_t isa, uint32_t parts, char *out)
{
    struct direct d;

    direct_open(&d, plan, isa, 4);
    for (uint32_t i = 0; i < plan->graph->n_inputs; i++) {
        const struct ngd_plan_tensor *t = &plan->tensors[plan->inputs[i].tensor];

        fill(direct_input(&d, i), t->dtype, ngd_plan_elements(t), i + 7);
    }
    ck_assert_int_eq(direct_run(&d, NULL, NULL, parts), NGD_OK);
    ck_assert(direct_guards_intact(&d));
    memcpy(out, direct_output(&d, 0), plan->outputs[0].bytes);
    direct_close(&d);
    return plan->outputs[0].bytes;
}

/* Returns true if the result is in the victim's storage. */
static bool takes_victim(const struct ngd_plan *plan, const struct form *f)
{
    uint32_t input = f->same ? 0 : f->victim;

    ck_assert_uint_eq(plan->n_calls, 1);
    return plan->tensors[plan->outputs[0].tensor].offset == plan->tensors[plan->inputs[input].tensor].offset;
}

/* Returns how often a form ran in place: 0 if the dtype is not accepted, or the result has another type. */
static uint32_t check_form(struct bench *b, const struct form *f)
{
    static char apart[MAX * 8], inplace[MAX * 8];
    struct ngd_plan *one = form_plan(b, f, true), *two;
    uint32_t ran = 0;

    if (!one)
        return 0;
    two = form_plan(b, f, false);
    ck_assert(!takes_victim(two, f));
    if (takes_victim(one, f)) {
        ck_assert_uint_lt(one->pool_bytes, two->pool_bytes);
        EACH_ISA (isa)
            for (uint32_t parts = 1; parts <= 7; parts += 3) {
                uint64_t bytes = run_plan(two, (ngd_isa_t)isa, parts, apart);

                ck_assert_uint_eq(run_plan(one, (ngd_isa_t)isa, parts, inplace), bytes);
                ck_assert_msg(memcmp(apart, inplace, bytes) == 0, "%s of %s[%lld,%lld], operand %u, %s, %u parts",
                              f->op->name, ngd_dtype_name(f->dtype), (long long)f->rows, (long long)f->cols, f->victim,
                              ngd_isa_name((ngd_isa_t)isa), parts);
                ran++;
            }
    }
    ngd_plan_unref(one);
    ngd_plan_unref(two);
    return ran;
}

static uint32_t check_shapes(struct bench *b, struct form *f)
{
    uint32_t ran = 0;

    for (size_t c = 0; c < N_COUNTS; c++) {
        f->rows = c % 2 && counts[c] % 3 == 0 ? 3 : 1;
        f->cols = counts[c] / f->rows;
        for (int others = FULL; others <= (f->n_in > 1 ? ONE : FULL); others++) {
            f->others = (enum shape)others;
            ran += check_form(b, f);
        }
    }
    return ran;
}

static uint32_t check_op(struct bench *b, const struct ngd_op *op)
{
    uint32_t ran = 0;

    for (int t = 0; t < NGD_DTYPE_MAX; t++) {
        struct form f = {.op = op, .dtype = (ngd_dtype_t)t, .n_in = op->min_in};

        if (ngd_dtype_is_stored(f.dtype)) /* no elementwise operator takes it */
            continue;
        for (f.victim = 0; f.victim < f.n_in; f.victim++)
            ran += check_shapes(b, &f);
        f.victim = 0;
        f.same = f.n_in > 1 && mask_of(op) == UINT32_MAX;
        if (f.same)
            ran += check_shapes(b, &f);
    }
    return ran;
}

START_TEST(elementwise_operator_over_its_operand_gives_the_same_bits)
{
    uint32_t ops = 0;
    struct bench b;

    bench_open(&b, NGD_ISA_SCALAR, 4);
    for (int id = 0; id < NGD_OP_MAX; id++) {
        const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);

        if (!(op->flags & NGD_OPF_ELEMENTWISE) || op->mutates)
            continue;
        ops++;
        ck_assert_msg(check_op(&b, op) > 0, "%s never ran in place", op->name);
    }
    ck_assert_uint_gt(ops, 40);
    bench_close(&b);
}
END_TEST

/* An operand that is read again, is bound, has another type or shape, or is read through a view keeps its storage. */
START_TEST(operand_that_is_still_needed_is_not_written_over)
{
    static const char *const kept[] = {
        " input %x : f32[8]\n %y = aten.exp(%x)\n %z = aten.add.Tensor(%y, %x)",
        " param %x : f32[8]\n %y = aten.exp(%x)\n %z = aten.exp(%y)",
        " input %x : f32[8]\n %y = aten._to_copy(%x) {dtype=bf16}\n %z = aten.exp(%y)",
        " input %x : f32[8]\n %v = aten.view(%x) {size=[2,4]}\n %y = aten.exp(%x)\n %z = aten.exp(%v)",
        " input %x : f32[2,2]\n %t = aten.t(%x)\n %y = aten.add.Tensor(%x, %t)\n %z = aten.exp(%y)",
        " input %x : f32[1]\n input %w : f32[8]\n %y = aten.add.Tensor(%x, %x)\n %z = aten.mul.Tensor(%w, %x)",
    };
    struct bench b;

    bench_open(&b, NGD_ISA_SCALAR, 1);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        struct ngd_diag diag = {0};
        struct ngd_strbuf sb;
        struct ready r = {0};

        ngd_strbuf_init(&sb);
        ngd_strbuf_printf(&sb, "npugraph 1\ngraph \"g\" {\n%s\n return \"y\" = %%y, \"z\" = %%z\n}\n", kept[i]);
        run_check(ready_plan(&r, &b, ngd_strbuf_str(&sb), NULL, &diag), &diag, kept[i]);
        for (uint32_t k = 0; k < r.plan->calls[0].n_in; k++) {
            const struct ngd_plan_tensor *in = &r.plan->tensors[r.plan->calls[0].in[k]];

            ck_assert_msg(in->root != r.plan->tensors[r.plan->calls[0].out[0]].root, "%s", kept[i]);
        }
        ready_close(&r);
        ngd_strbuf_fini(&sb);
    }
    bench_close(&b);
}
END_TEST

UNIT_MAIN("ops in place", elementwise_operator_over_its_operand_gives_the_same_bits,
          operand_that_is_still_needed_is_not_written_over)
