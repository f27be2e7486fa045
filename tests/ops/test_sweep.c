/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests every operator with corner cases of sizes: each golden case runs with one or two of its sizes changed to 0, 1,
 * 2, a bucket and one more than a bucket (as a number, and as a symbol with buckets), with contiguous, permuted, sliced
 * and expanded operands, on each instruction set, in memory where a call may touch only its own (checked.h). Texts that
 * are refused are left out. The results on a view must be those on a copy of it, bit for bit, and those of all
 * instruction sets must agree within rounding errors.
 *
 *     test_sweep          a part, for make check; NGD_TEST_SWEEP=all: everything
 */
#include "graphs/compare.h"
#include "tests/ops/checked.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/golden.h"
#include "tests/ops/run_plan.h"

enum layout { PLAIN, PERMUTED, SLICED, EXPANDED, LAYOUTS };
static const char *const layouts[] = {"contiguous", "permuted", "sliced", "expanded"};

#define SYMBOL (-7) /* stands for N in a type or a list */

/* A variant of a golden case. */
struct variant {
    const struct golden_case *c;
    int64_t from[2], to[2]; /* sizes */
    enum layout layout;
    bool copied; /* the view is copied first */
};

static uint64_t n_ran, n_refused, ran_of[NGD_OP_MAX];

static int64_t size_of(const struct variant *v, int64_t dim)
{
    for (int i = 0; i < 2; i++)
        if (dim == v->from[i])
            return v->to[i];
    return dim;
}

static void print_size(struct ngd_strbuf *sb, int64_t size, int64_t more)
{
    if (size == SYMBOL)
        ngd_strbuf_printf(sb, more ? "N+%lld" : "N", (long long)more);
    else
        ngd_strbuf_printf(sb, "%lld", (long long)(size + more));
}

/* Prints the stored shape (stored), or the shape of the operand. */
static void print_shape(struct ngd_strbuf *sb, const struct variant *v, const struct golden_tensor *t, bool stored)
{
    for (uint32_t d = 0; d < t->rank; d++) {
        const enum layout layout = stored ? v->layout : PLAIN;
        const uint32_t from = layout == PERMUTED ? t->rank - 1 - d : d;

        ngd_strbuf_append(sb, d ? "," : "");
        if (layout == EXPANDED && d == t->rank - 1)
            ngd_strbuf_append(sb, "1");
        else
            print_size(sb, size_of(v, t->dims[from]), layout == SLICED && d == t->rank - 1 ? 3 : 0);
    }
}

static void print_view(struct ngd_strbuf *sb, const struct variant *v, uint32_t i)
{
    const struct golden_tensor *t = &v->c->in[i];

    if (v->layout == PERMUTED) {
        ngd_strbuf_printf(sb, "  %%v%u = aten.permute(%%s%u) {dims=[", i, i);
        for (uint32_t d = 0; d < t->rank; d++)
            ngd_strbuf_printf(sb, "%s%u", d ? "," : "", t->rank - 1 - d);
        ngd_strbuf_append(sb, "]}\n");
    } else if (v->layout == SLICED && t->rank) {
        ngd_strbuf_printf(sb, "  %%v%u = aten.slice.Tensor(%%s%u) {dim=%u, start=2, end=", i, i, t->rank - 1);
        print_size(sb, size_of(v, t->dims[t->rank - 1]), 2);
        ngd_strbuf_append(sb, "}\n");
    } else {
        ngd_strbuf_printf(sb, "  %%v%u = aten.expand(%%s%u) {size=[", i, i);
        print_shape(sb, v, t, false);
        ngd_strbuf_append(sb, "]}\n");
    }
    ngd_strbuf_printf(sb, v->copied ? "  %%a%u = aten.clone(%%v%u)\n" : "  %%a%u = aten.alias(%%v%u)\n", i, i);
}

static void print_node(struct ngd_strbuf *sb, const struct variant *v)
{
    const struct golden_case *c = v->c;
    struct ngd_strbuf node;
    json_t *changed = json_deep_copy(c->attrs), *value, *item;
    struct golden_case copy = *c;
    const char *name;
    size_t k;

    json_object_foreach(changed, name, value)
    {
        const bool sizes = strcmp(name, "dim") && strcmp(name, "dims") && strncmp(name, "perm", 4);

        json_array_foreach(value, k,
                           item) if (sizes && json_is_integer(item) && size_of(v, json_integer_value(item)) != SYMBOL)
            json_integer_set(item, size_of(v, json_integer_value(item)));
    }
    copy.attrs = changed;
    ngd_strbuf_init(&node);
    golden_print_node(&node, &copy);
    ngd_strbuf_append(sb, ngd_strbuf_str(&node));
    ngd_strbuf_fini(&node);
    json_decref(changed);
}

static void print_variant(struct ngd_strbuf *sb, const struct variant *v)
{
    const struct golden_case *c = v->c;

    ngd_strbuf_append(sb, "npugraph 1\ngraph \"sweep\" {\n");
    if (v->to[0] == SYMBOL)
        ngd_strbuf_append(sb, "  sym N 0..8 buckets 4, 8\n  input %n : f32[N]\n");
    for (uint32_t i = 0; i < c->n_in; i++) {
        const golden_class_t cls = golden_class(c, i, false);

        if (cls == GOLDEN_NONE)
            continue;
        ngd_strbuf_printf(sb, "  %s %%%s%u : %s[", cls == GOLDEN_STATE ? "state" : "input",
                          v->layout && cls == GOLDEN_INPUT ? "s" : "a", i, ngd_dtype_name(c->in[i].dtype));
        print_shape(sb, v, &c->in[i], cls == GOLDEN_INPUT);
        ngd_strbuf_append(sb, "]\n");
    }
    for (uint32_t i = 0; i < c->n_in && v->layout; i++)
        if (golden_class(c, i, false) == GOLDEN_INPUT)
            print_view(sb, v, i);
    print_node(sb, v);
    for (uint32_t i = 0; i < c->n_out; i++)
        ngd_strbuf_printf(sb, "%s\"r%u\" = %%r%u", i ? ", " : "  return ", i, i);
    ngd_strbuf_append(sb, c->n_out ? "\n}\n" : "}\n");
}

/* Runs once, and returns all outputs, then all states. */
static struct made run_checked(const struct ngd_plan *plan, const char *text, ngd_isa_t isa, uint32_t parts,
                               const int64_t *symbols)
{
    const struct ngd_plan_call *culprit;
    const struct ngd_graph *g = plan->graph;
    struct made m = {0};
    struct ngd_strbuf all;
    struct checked c;

    checked_open(&c, plan, isa, 4);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (plan->inputs[i].tensor != NGD_PLAN_NONE)
            fill_bytes(direct_input(&c.d, i), g->values[g->inputs[i]].type.dtype, io_size(&plan->inputs[i], symbols),
                       200 + i);
    for (uint32_t i = 0; i < c.d.n_bound; i++)
        fill_bytes(c.d.bound[i], g->values[g->states[i]].type.dtype, plan->bound[i].bytes, 100 + i);
    m.status = checked_run(&c, symbols, parts, &culprit);
    ck_assert_msg(!culprit, "%s on %s in %u parts writes what is not its own, N %lld\n%s",
                  culprit ? culprit->op->name : "", ngd_isa_name(isa), parts, (long long)symbols[0], text);
    ngd_strbuf_init(&all);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        ngd_strbuf_append_n(&all, direct_output(&c.d, i), ngd_plan_output_bytes(plan, i, symbols));
    for (uint32_t i = 0; i < c.d.n_bound; i++)
        ngd_strbuf_append_n(&all, c.d.bound[i], plan->bound[i].bytes);
    m.bytes = all.len;
    m.data = malloc(all.len + 1);
    if (all.len)
        memcpy(m.data, all.data, all.len);
    ngd_strbuf_fini(&all);
    checked_close(&c);
    return m;
}

static bool same_bits(const struct made *a, const struct made *b)
{
    return a->status == b->status && a->bytes == b->bytes &&
           (a->status || !a->bytes || memcmp(a->data, b->data, a->bytes) == 0);
}

/* Compares floats within rounding errors. Integers, which a rounding may change, are left to other tests. */
static bool near(const struct ngd_plan *plan, const int64_t *symbols, const struct made *got, const struct made *want)
{
    struct ngd_difference diff;
    uint64_t at = 0;

    if (got->status || want->status)
        return got->status == want->status;
    for (uint32_t i = 0; i < plan->graph->n_outputs; i++) {
        const ngd_dtype_t t = plan->graph->values[plan->graph->outputs[i].value].type.dtype;
        const uint64_t bytes = ngd_plan_output_bytes(plan, i, symbols);

        if (ngd_dtype_is_float(t) &&
            !ngd_compare(t, got->data + at, want->data + at, bytes / ngd_dtype_bytes(t), &diff))
            return false;
        at += bytes;
    }
    return true;
}

/* Runs a variant. Returns false if the text is refused. *m_p: the results; the caller frees data. */
static bool run_variant(struct bench *benches, const struct variant *v, ngd_isa_t isa, int64_t n, struct made *m_p)
{
    const int64_t symbols[] = {n};
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct ready r = {0};
    struct made parts;
    bool ran = false;

    ngd_strbuf_init(&text);
    print_variant(&text, v);
    if (ready_plan(&r, &benches[isa], ngd_strbuf_str(&text), v->to[0] == SYMBOL ? symbols : NULL, &diag) == NGD_OK) {
        ran = true;
        *m_p = run_checked(r.plan, ngd_strbuf_str(&text), isa, 1, symbols);
        parts = run_checked(r.plan, ngd_strbuf_str(&text), isa, 3, symbols);
        ck_assert_msg(same_bits(&parts, m_p), "%s on %s: 3 parts give other bits, N %lld\n%s", v->c->name,
                      ngd_isa_name(isa), (long long)n, ngd_strbuf_str(&text));
        free(parts.data);
        /* in a norm, rows of one value lose all digits */
        if (isa > NGD_ISA_SCALAR && v->layout != EXPANDED) {
            struct made plain = run_checked(r.plan, ngd_strbuf_str(&text), NGD_ISA_SCALAR, 1, symbols);

            ck_assert_msg(near(r.plan, symbols, m_p, &plain), "%s: %s and scalar differ, N %lld\n%s", v->c->name,
                          ngd_isa_name(isa), (long long)n, ngd_strbuf_str(&text));
            free(plain.data);
        }
    }
    ready_close(&r);
    ngd_strbuf_fini(&text);
    return ran;
}

static void check_variant(struct bench *benches, struct variant v, ngd_isa_t isa, int64_t n)
{
    struct made view, copy;

    v.copied = false;
    if (!run_variant(benches, &v, isa, n, &view)) {
        n_refused++;
        return;
    }
    n_ran++;
    ran_of[v.c->op->id]++;
    v.copied = true;
    if (v.layout && !(v.c->op->flags & NGD_OPF_LAYOUT) && run_variant(benches, &v, isa, n, &copy)) {
        ck_assert_msg(same_bits(&view, &copy),
                      "%s on %s: a %s operand has other bits than its copy, %lld -> %lld, N %lld", v.c->name,
                      ngd_isa_name(isa), layouts[v.layout], (long long)v.from[0], (long long)v.to[0], (long long)n);
        free(copy.data);
    }
    free(view.data);
}

/* Lists the sizes of a case's operands, each once. */
static uint32_t sizes_of(const struct golden_case *c, int64_t sizes[32])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n_in; i++)
        for (uint32_t d = 0; d < c->in[i].rank && !(c->none >> i & 1); d++) {
            bool seen = n == 32;

            for (uint32_t k = 0; k < n && !seen; k++)
                seen = sizes[k] == c->in[i].dims[d];
            if (!seen)
                sizes[n++] = c->in[i].dims[d];
        }
    return n;
}

static void sweep_case(struct bench *benches, const struct golden_case *c, ngd_isa_t isa)
{
    static const int64_t values[] = {0, 1, 2, 4, 5};
    int64_t sizes[32];
    const uint32_t n = sizes_of(c, sizes);

    for (uint32_t a = 0; a < n; a++)
        for (uint32_t layout = 0; layout < LAYOUTS; layout++)
            for (uint32_t k = 0; k < 5; k++) {
                struct variant v = {
                    .c = c, .from = {sizes[a], -1}, .to = {values[k], 0}, .layout = (enum layout)layout};

                check_variant(benches, v, isa, 0);
                v.to[0] = SYMBOL;
                check_variant(benches, v, isa, values[k]);
                for (uint32_t b = 0; b < n && k < 2 && layout < SLICED; b++)
                    if (b != a) {
                        v.from[1] = sizes[b];
                        v.to[1] = k;
                        check_variant(benches, v, isa, 3);
                    }
            }
}

START_TEST(every_operator_at_the_ends_of_its_sizes_touches_its_own_memory_only)
{
    const char *env = getenv("NGD_TEST_SWEEP");
    const bool all = env && strcmp(env, "all") == 0;
    struct bench benches[NGD_ISA_MAX];
    bool had[NGD_OP_MAX] = {false};
    struct golden g;

    golden_open(&g);
    EACH_ISA (isa) {
        uint32_t met[NGD_OP_MAX] = {0};

        bench_open(&benches[isa], (ngd_isa_t)isa, 4);
        for (size_t i = 0; i < json_array_size(g.cases); i++) {
            struct golden_case c = golden_case(&g, i);
            uint64_t elements = 0;

            for (uint32_t k = 0; c.op && k < c.n_in; k++)
                elements += c.in[k].bytes;
            /* host operands have a meaning that sizes alone do not give; test_attention has those */
            if (!c.op || c.op->host || (c.op->flags & NGD_OPF_COLLECTIVE) || elements > 40000)
                continue;
            had[c.op->id] = had[c.op->id] || c.n_in > 0;
            if (all || !(met[c.op->id] >> c.in[0].rank & 1)) /* otherwise one case of each rank */
                sweep_case(benches, &c, (ngd_isa_t)isa);
            met[c.op->id] |= 1u << c.in[0].rank;
        }
        bench_close(&benches[isa]);
    }
    golden_close(&g);
    printf("sweep: %llu runs, %llu variants refused\n", (unsigned long long)n_ran, (unsigned long long)n_refused);
    for (int id = 0; id < NGD_OP_MAX; id++)
        ck_assert_msg(!had[id] || ran_of[id], "%s: no variant makes sense", ngd_op_by_id((ngd_op_id_t)id)->name);
    ck_assert_uint_gt(n_ran, 1000);
}
END_TEST

UNIT_MAIN("ops/sweep", every_operator_at_the_ends_of_its_sizes_touches_its_own_memory_only)
