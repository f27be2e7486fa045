/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that folding computes what the kernels compute. Generated graphs have constants of all dtypes, with the numbers
 * that are corner cases of arithmetic, operators of every kind, and tensors that are not constant. All values are
 * outputs. With and without fold_constants and remove_noops their bits must be the same, on each instruction set, and
 * each pass, run again, must change nothing. Seeds are fixed (NGD_TEST_SEEDS sets how many).
 */
#include "graphs/graph_int.h"
#include "graphs/pass.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/run_plan.h"
#include "tests/unit/unit.h"
#include <stdarg.h>

static const int64_t planned[NGD_GRAPH_MAX_SYMBOLS] = {4}, replayed[NGD_GRAPH_MAX_SYMBOLS] = {3};

static uint64_t seeds(uint64_t standard, const char *what)
{
    const char *env = getenv("NGD_TEST_SEEDS");

    return env ? strtoull(env, NULL, 10) : effort(standard, what);
}

/* ---- graphs ---- */

#define MAX_LINES 24
static const char head[] = "npugraph 1\ngraph \"fold\" {\n  sym B 1..4 buckets 4\n  input %x0 : f32[2,3]\n"
                           "  input %x1 : bf16[2,3]\n  input %x2 : f16[2,3]\n  input %x3 : i32[2,3]\n"
                           "  input %x4 : u8[2,3]\n  input %x5 : f32[B,3]\n  state %s : f32[2,3]\n"
                           "  %z0 = aten.mul.Scalar(%x0) {other=0}\n  %z1 = aten.mul.Scalar(%x1) {other=-0.0}\n"
                           "  %z2 = aten.log(%x0)\n";

struct world {
    struct random r;
    struct ngd_strbuf text;
    struct ngd_graph *g; /* the graph of the text so far */
    uint32_t n_lines;
    uint32_t constants[MAX_LINES * 2], n_constants; /* values of fillers, and values computed from those alone */
};

static struct ngd_graph *parse(const char *text, const char *line, const char *end)
{
    struct ngd_strbuf sb;
    struct ngd_graph *g = NULL;

    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb, "%s%s%s\n}\n", text, line, end);
    if (ngd_graph_parse(ngd_strbuf_str(&sb), sb.len, &g, NULL) != NGD_OK)
        g = NULL;
    ngd_strbuf_fini(&sb);
    return g;
}

static void note_constants(struct world *w, const struct ngd_node *n)
{
    const struct ngd_value *v = n->n_out ? &w->g->values[n->out[0]] : NULL;
    bool constant = v && !(v->type.rank == 1 && v->type.dims[0] > 9); /* no long ranges */

    for (uint32_t i = 0; i < n->n_in && constant; i++) {
        bool found = false;

        for (uint32_t k = 0; k < w->n_constants; k++)
            found = found || w->constants[k] == n->in[i];
        constant = found;
    }
    for (uint32_t i = 0; i < n->n_out && constant && w->n_constants < sizeof(w->constants) / sizeof(w->constants[0]);
         i++)
        w->constants[w->n_constants++] = n->out[i];
}

/* Adds a node with `results` named results. Returns false if the node is refused and not added. */
__attribute__((format(printf, 3, 4))) static bool add(struct world *w, uint32_t results, const char *fmt, ...)
{
    char form[400], line[600];
    int at = 0;
    struct ngd_graph *g;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(form, sizeof(form), fmt, ap);
    va_end(ap);
    for (uint32_t i = 0; i < results; i++)
        at += snprintf(line + at, sizeof(line) - (size_t)at, "%s%%v%u_%u", i ? ", " : "  ", w->n_lines, i);
    snprintf(line + at, sizeof(line) - (size_t)at, "%s%s\n", results ? " = " : "  ", form);
    g = w->n_lines < MAX_LINES ? parse(ngd_strbuf_str(&w->text), line, "  return \"x\" = %x0") : NULL;
    if (!g)
        return false;
    ngd_graph_unref(w->g);
    w->g = g;
    w->n_lines++;
    note_constants(w, &g->nodes[g->n_nodes - 1]);
    ngd_strbuf_append(&w->text, line);
    return true;
}

/* Returns a value of the graph, mostly a constant. */
static const struct ngd_value *some_value(struct world *w)
{
    uint32_t n = w->g->n_values;

    if (w->n_constants && random_below(&w->r, 6))
        n = w->constants[random_below(&w->r, w->n_constants)] + 1;
    else
        n = 1 + (uint32_t)random_below(&w->r, n);
    return &w->g->values[n - 1];
}

static const char *some(struct world *w)
{
    return some_value(w)->name;
}

/* Returns a value of that dtype, or any value if none is found. */
static const char *like(struct world *w, ngd_dtype_t dtype)
{
    const struct ngd_value *v = some_value(w);

    for (int i = 0; i < 12 && v->type.dtype != dtype; i++)
        v = some_value(w);
    return v->name;
}

static const char *const numbers[] = {"0",    "-0.0", "1",     "-1",         "2",    "0.5",  "0.1", "3",   "-2.5",
                                      "127",  "255",  "65504", "2147483647", "1e30", "1e-5", "7",   "100", "-128",
                                      "6e-8", "3e38", "1e-40", "16777217",   "inf",  "-inf", "nan"};

/* Returns a number, mostly one of the first, for which operators give more than infinities and refusals. */
static const char *number(struct world *w)
{
    return numbers[random_below(&w->r, random_below(&w->r, 3) ? 10 : sizeof(numbers) / sizeof(numbers[0]))];
}

static const char *dtype(struct world *w)
{
    return ngd_dtype_name((ngd_dtype_t)random_below(&w->r, NGD_DTYPE_MAX));
}

static void some_filler(struct world *w)
{
    static const char *const sizes[] = {"[]", "[1]", "[3]", "[2,3]", "[2,3]", "[2,3]", "[B,3]", "[2,37]"};
    const char *size = sizes[random_below(&w->r, 8)];

    switch (random_below(&w->r, 7)) {
    case 0:
        add(w, 1, "aten.zeros() {size=%s, dtype=%s}", size, dtype(w));
        break;
    case 1:
        add(w, 1, "aten.ones() {size=%s, dtype=%s}", size, dtype(w));
        break;
    case 2:
        add(w, 1, "aten.full_like(%%%s) {fill_value=%s}", some(w), number(w));
        break;
    case 3:
        add(w, 1, "aten.new_ones(%%%s) {size=%s}", some(w), size);
        break;
    default:
        add(w, 1, "aten.full() {size=%s, fill_value=%s, dtype=%s}", size, number(w), dtype(w));
        break;
    }
}

/* Adds any elementwise operator with any attributes. */
static void some_elementwise(struct world *w)
{
    const struct ngd_op *op;
    const struct ngd_value *first = some_value(w);
    char operands[200], attrs[200] = "";
    int at, n = 0;

    do
        op = ngd_op_by_id((ngd_op_id_t)random_below(&w->r, NGD_OP_MAX));
    while (!(op->flags & NGD_OPF_ELEMENTWISE) || op->min_in > 2);
    at = snprintf(operands, sizeof(operands), "%%%s", first->name);
    if (op->min_in == 2)
        snprintf(operands + at, sizeof(operands) - (size_t)at, ", %%%s",
                 like(w, op->id == NGD_OP_ATEN_MASKED_FILL_SCALAR ? NGD_BOOL : first->type.dtype));
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        const struct ngd_attr_schema *a = &op->attrs[i];

        if (!a->required && random_below(&w->r, 3))
            continue;
        n += snprintf(attrs + n, sizeof(attrs) - (size_t)n, "%s%s=%s", n ? ", " : " {", a->name,
                      a->type == NGD_ATTR_DTYPE ? dtype(w)
                      : a->type == NGD_ATTR_STR ? "\"tanh\""
                                                : number(w));
    }
    add(w, 1, "%s(%s)%s%s", op->name, operands, attrs, n ? "}" : "");
}

static void some_choice(struct world *w)
{
    const struct ngd_value *a = some_value(w);

    add(w, 1, "aten.where.self(%%%s, %%%s, %%%s)", like(w, NGD_BOOL), a->name, like(w, a->type.dtype));
}

static void some_view(struct world *w)
{
    static const char *const views[] = {"aten.t(%%%s)",
                                        "aten.view(%%%s) {size=[-1]}",
                                        "aten.unsqueeze(%%%s) {dim=0}",
                                        "aten.expand(%%%s) {size=[2,-1]}",
                                        "aten.alias(%%%s)",
                                        "aten.slice.Tensor(%%%s) {dim=-1, end=2}"};
    char form[200];

    if (random_below(&w->r, 4) == 0) {
        add(w, 2, "aten.split.Tensor(%%%s) {split_size=2, dim=-1}", some(w));
        return;
    }
    snprintf(form, sizeof(form), views[random_below(&w->r, 6)], some(w));
    add(w, 1, "%s", form);
}

static void some_together(struct world *w)
{
    static const char *const forms[] = {"aten.sum.dim_IntList(%%%s)",
                                        "aten.sum.dim_IntList(%%%s) {dim=[-1]}",
                                        "aten.mean.dim(%%%s) {dim=[-1], keepdim=true}",
                                        "aten.amax(%%%s) {dim=[-1]}",
                                        "aten.amin(%%%s)",
                                        "aten.sum(%%%s)",
                                        "aten.repeat(%%%s) {repeats=[2,1,1,1]}",
                                        "aten.stack(%%%s) {dim=-1}",
                                        "aten.mean(%%%s)",
                                        "aten.max(%%%s)",
                                        "aten.any.dim(%%%s) {dim=-1}",
                                        "aten.all(%%%s)",
                                        "aten.tril(%%%s)",
                                        "aten.triu(%%%s) {diagonal=1}"};
    const struct ngd_value *a = some_value(w);
    char form[200];

    switch (random_below(&w->r, 3)) {
    case 0:
        add(w, 1, "aten.cat(%%%s, %%%s) {dim=-1}", a->name, like(w, a->type.dtype));
        break;
    case 1:
        add(w, 1, "aten.constant_pad_nd(%%%s) {pad=[1,0], value=%s}", a->name, number(w));
        break;
    default:
        snprintf(form, sizeof(form), forms[random_below(&w->r, sizeof(forms) / sizeof(forms[0]))], a->name);
        add(w, 1, "%s", form);
        break;
    }
}

static void some_range(struct world *w)
{
    static const char *const steps[] = {"aten.add.Scalar(%%%s) {other=%lld}", "aten.mul.Scalar(%%%s) {other=%lld}",
                                        "aten.sub.Scalar(%%%s) {other=%lld, alpha=2}"};
    char form[200];

    if (!add(w, 1, "aten.arange.start() {start=%lld, end=%lld, dtype=%s}", (long long)random_below(&w->r, 300) - 150,
             (long long)random_below(&w->r, 400), random_below(&w->r, 2) ? "i32" : "i64"))
        return;
    for (int i = 0; i < 2; i++) {
        snprintf(form, sizeof(form), steps[random_below(&w->r, 3)], w->g->values[w->g->n_values - 1].name,
                 (long long)random_below(&w->r, 12) - 3);
        add(w, 1, "%s", form);
    }
    add(w, 1, "aten._to_copy(%%%s) {dtype=%s}", w->g->values[w->g->n_values - 1].name, dtype(w));
}

/* Reads the state before and after a write to it. */
static void some_write(struct world *w)
{
    if (random_below(&w->r, 2))
        add(w, 1, "aten.mul.Scalar(%%s) {other=1}");
    else
        add(w, 1, "aten.where.self(%%%s, %%s, %%x0)", like(w, NGD_BOOL));
    add(w, 0, "aten.copy_(%%s, %%%s)", like(w, NGD_F32));
}

static void (*const makers[])(struct world *w) = {
    some_filler,      some_filler,      some_filler,      some_elementwise, some_elementwise, some_elementwise,
    some_elementwise, some_elementwise, some_elementwise, some_elementwise, some_choice,      some_together,
    some_together,    some_view,        some_view,        some_range,       some_write};

/* Makes a graph whose values are all outputs, those of integers and bools too. */
static struct ngd_graph *some_graph(uint64_t seed)
{
    struct world w = {.r = {seed}};
    struct ngd_strbuf returns;
    struct ngd_graph *g;
    uint32_t n = 0;

    random_u32(&w.r);
    ngd_strbuf_init(&w.text);
    ngd_strbuf_append(&w.text, head);
    w.g = parse(head, "", "  return \"x\" = %x0");
    ck_assert_ptr_nonnull(w.g);
    some_filler(&w);
    some_filler(&w);
    for (int i = 0; i < 30; i++)
        makers[random_below(&w.r, sizeof(makers) / sizeof(makers[0]))](&w);
    ngd_strbuf_init(&returns);
    ngd_strbuf_append(&returns, "  return");
    for (uint32_t i = 0; i < w.g->n_values && n < 60; i++)
        if (w.g->values[i].cls == NGD_VALUE_NODE)
            ngd_strbuf_printf(&returns, "%s \"o%u\" = %%%s", n++ ? "," : "", i, w.g->values[i].name);
    g = parse(ngd_strbuf_str(&w.text), "", ngd_strbuf_str(&returns));
    ngd_graph_unref(w.g);
    ngd_strbuf_fini(&w.text);
    ngd_strbuf_fini(&returns);
    return g;
}

/* ---- checks ---- */

static void fail_on(struct ngd_graph *g, uint64_t seed, const char *what)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_graph_print(g, &sb);
    ck_abort_msg("seed %llu: %s\n%s", (unsigned long long)seed, what, ngd_strbuf_str(&sb));
}

static struct made run(struct bench *b, struct ngd_graph *g, const struct ngd_graph_options *options,
                       struct ngd_pass_report *report)
{
    struct ngd_digest digest = {{0}};
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct made made;
    struct ngd_key key;

    run_check(ngd_key_make(g, &digest, planned, g->n_symbols, &key, &diag), &diag, "key");
    run_check(ngd_plan_create_reported(g, &key, options, ngd_device_target(b->dev), NULL, report, &plan, &diag), &diag,
              "plan");
    made = run_plan(b, plan, replayed, NULL, false);
    ngd_plan_unref(plan);
    return made;
}

/* Switches all passes off but these. */
static void leave_on(struct ngd_graph_options *options, const char *a, const char *b)
{
    size_t n = 0;

    ngd_graph_options_init(options);
    for (int i = 0; i < NGD_PASS_MAX; i++) {
        const char *name = ngd_pass_info((ngd_pass_id_t)i)->name;

        if (strcmp(name, a) != 0 && strcmp(name, b) != 0)
            n += (size_t)snprintf(options->disable_passes + n, sizeof(options->disable_passes) - n, "%s%s",
                                  n ? "," : "", name);
    }
}

START_TEST(what_is_folded_is_what_kernels_compute)
{
    uint64_t n = seeds(250, "graphs of constants"), folded = 0, gone = 0;
    struct ngd_graph_options on, two;

    ngd_graph_options_init(&on);
    leave_on(&two, "fold_constants", "remove_noops");
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (uint64_t seed = 0; seed < n; seed++) {
            struct ngd_graph *g = some_graph(seed);
            struct ngd_pass_report report = {0};
            struct made want = run(&b, g, NULL, NULL), all = run(&b, g, &on, NULL), some = run(&b, g, &two, &report);

            ck_assert_int_eq(want.status, NGD_OK);
            if (all.status || all.bytes != want.bytes || memcmp(all.data, want.data, want.bytes) != 0)
                fail_on(g, seed, "all passes give another result");
            if (some.status || some.bytes != want.bytes || memcmp(some.data, want.data, want.bytes) != 0)
                fail_on(g, seed, "fold_constants and remove_noops give another result");
            folded += report.of[NGD_PASS_FOLD_CONSTANTS].changed;
            gone += report.of[NGD_PASS_REMOVE_NOOPS].changed;
            free(want.data);
            free(all.data);
            free(some.data);
            ngd_graph_unref(g);
        }
        bench_close(&b);
    }
    ck_assert_msg(folded > 4 * n && gone > n / 10, "%llu of %llu graphs were folded, %llu no-ops removed",
                  (unsigned long long)folded, (unsigned long long)n, (unsigned long long)gone);
}
END_TEST

/* ---- each operator, on each pair of some numbers ---- */

#define SIDE 8
static const char *const floats[SIDE] = {"0", "-0.0", "1", "-1.5", "0.1", "40000", "1e-5", "inf"};
static const char *const integers[SIDE] = {"0", "1", "-1", "7", "127", "-128", "2147483647", "3"};
static const char *const naturals[SIDE] = {"0", "1", "255", "7", "127", "128", "200", "3"};

static const char *const *numbers_of(ngd_dtype_t t)
{
    return ngd_dtype_is_float(t) ? floats : t == NGD_U8 || t == NGD_BOOL ? naturals : integers;
}

/* Returns the attribute that is the second number of an operator with one operand. */
static const char *second_attr(const struct ngd_op *op)
{
    static const char *const names[] = {"other", "exponent", "value", "max"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (ngd_op_attr_index(op, names[i], strlen(names[i])) >= 0)
            return names[i];
    return NULL;
}

/* Prints pair i: its operands, and the operator on them. constant: the first operand is a constant; otherwise it is
 * zeros of either sign, computed from an input. */
static void print_pair(struct ngd_strbuf *sb, const struct ngd_op *op, ngd_dtype_t t, int i, bool constant)
{
    const bool mask = op->id == NGD_OP_ATEN_MASKED_FILL_SCALAR;
    const char *const *of = numbers_of(t), *attr = second_attr(op), *name = ngd_dtype_name(t);

    if (constant)
        ngd_strbuf_printf(sb, "  %%a%d = aten.full() {size=[8], fill_value=%s, dtype=%s}\n", i, of[i / SIDE], name);
    else
        ngd_strbuf_printf(sb, "  %%z%d = aten.mul.Scalar(%%x0) {other=0}\n  %%a%d = aten._to_copy(%%z%d) {dtype=%s}\n",
                          i, i, i, name);
    if (op->min_in > 1)
        ngd_strbuf_printf(sb, "  %%b%d = aten.full() {size=[1], fill_value=%s, dtype=%s}\n", i,
                          !mask   ? of[i % SIDE]
                          : i % 2 ? "1"
                                  : "0",
                          mask ? "bool" : name);
    ngd_strbuf_printf(sb, "  %%v%d = %s(%%a%d", i, op->name, i);
    if (op->min_in > 1)
        ngd_strbuf_printf(sb, ", %%b%d", i);
    if (op->id == NGD_OP_ATEN_TO_COPY)
        ngd_strbuf_printf(sb, ") {dtype=%s}\n", ngd_dtype_name((ngd_dtype_t)(i % SIDE)));
    else if (attr)
        ngd_strbuf_printf(sb, ") {%s=%s}\n", attr, of[i % SIDE]);
    else
        ngd_strbuf_append(sb, ")\n");
}

/* Makes a graph with a node for each pair; NULL: the operator takes none of them. Refused pairs, for example with
 * numbers that the dtype does not have, are left out. */
static struct ngd_graph *pairs(const struct ngd_op *op, ngd_dtype_t t, bool constant)
{
    static const char top[] = "npugraph 1\ngraph \"pairs\" {\n  input %x0 : f32[8]\n";
    const bool one = op->min_in < 2 && !second_attr(op) && op->id != NGD_OP_ATEN_TO_COPY;
    struct ngd_strbuf text, returns;
    struct ngd_graph *g = NULL;
    uint32_t n = 0;

    ngd_strbuf_init(&text);
    ngd_strbuf_init(&returns);
    ngd_strbuf_append(&text, top);
    for (int i = 0; i < SIDE * (constant ? SIDE : 1); i += one ? SIDE : 1) {
        struct ngd_strbuf pair;

        ngd_strbuf_init(&pair);
        print_pair(&pair, op, t, i, constant);
        g = parse(top, ngd_strbuf_str(&pair), "  return \"x\" = %x0");
        if (g) {
            ngd_strbuf_append(&text, ngd_strbuf_str(&pair));
            ngd_strbuf_printf(&returns, "%s \"o%d\" = %%v%d", n++ ? "," : "  return", i, i);
        }
        ngd_graph_unref(g);
        ngd_strbuf_fini(&pair);
    }
    g = n ? parse(ngd_strbuf_str(&text), "", ngd_strbuf_str(&returns)) : NULL;
    ngd_strbuf_fini(&text);
    ngd_strbuf_fini(&returns);
    return g;
}

/* Returns how many results of a graph are not computed by a filler. */
static uint32_t left(const struct ngd_graph *g)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct ngd_value *v = &g->values[g->outputs[i].value];

        n += v->cls == NGD_VALUE_NODE && g->nodes[v->node].op->id != NGD_OP_ATEN_FULL;
    }
    return n;
}

/* The number of results, and how many of them are not constants afterwards. */
struct tally {
    uint32_t graphs, results, kept;
};

static void check_pairs(struct bench *b, const struct ngd_op *op, ngd_dtype_t t, bool constant, struct tally *tally)
{
    struct ngd_graph *g = pairs(op, t, constant), *after = NULL;
    struct ngd_graph_options two;
    struct made want, got;

    if (!g)
        return;
    leave_on(&two, "fold_constants", "remove_noops");
    want = run(b, g, NULL, NULL);
    got = run(b, g, &two, NULL);
    if (want.status || got.status || got.bytes != want.bytes || memcmp(got.data, want.data, want.bytes) != 0)
        fail_on(g, 0, "another result");
    run_check(ngd_passes_run(g, planned, &two, ngd_device_target(b->dev), NULL, NULL, &after, NULL),
              &(struct ngd_diag){0}, "passes");
    tally->graphs++;
    tally->results += g->n_outputs;
    tally->kept += left(after);
    free(want.data);
    free(got.data);
    ngd_graph_unref(after);
    ngd_graph_unref(g);
}

START_TEST(each_operator_on_each_pair_of_numbers_is_folded_to_what_its_kernel_computes)
{
    struct tally constants = {0}, others = {0};

    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (int i = 0; i < NGD_OP_MAX * NGD_DTYPE_MAX; i++) {
            const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)(i / NGD_DTYPE_MAX));

            if (!(op->flags & NGD_OPF_ELEMENTWISE) || op->min_in > 2)
                continue;
            check_pairs(&b, op, (ngd_dtype_t)(i % NGD_DTYPE_MAX), true, &constants);
            check_pairs(&b, op, (ngd_dtype_t)(i % NGD_DTYPE_MAX), false, &others);
        }
        bench_close(&b);
    }
    ck_assert_msg(constants.graphs > 200 && constants.kept < constants.results / 3,
                  "%u of %u results of %u graphs of constants were not folded", constants.kept, constants.results,
                  constants.graphs);
    ck_assert_msg(others.graphs > 200 && others.kept > 0, "%u of %u results of %u graphs are computed", others.kept,
                  others.results, others.graphs);
}
END_TEST

/* Returns the graph that one pass alone makes. */
static struct ngd_graph *run_alone(struct bench *b, struct ngd_graph *g, ngd_pass_id_t id, uint32_t *changed_p)
{
    const char *name = ngd_pass_info(id)->name;
    struct ngd_pass_report report = {0};
    struct ngd_graph_options options;
    struct ngd_graph *after = NULL;
    struct ngd_diag diag = {0};

    leave_on(&options, name, name);
    run_check(ngd_passes_run(g, planned, &options, ngd_device_target(b->dev), NULL, &report, &after, &diag), &diag,
              name);
    *changed_p = report.of[id].changed;
    return after;
}

START_TEST(folding_again_changes_nothing)
{
    static const ngd_pass_id_t passes[] = {NGD_PASS_FOLD_CONSTANTS, NGD_PASS_REMOVE_NOOPS};
    uint64_t n = seeds(250, "graphs of constants that are folded twice");
    struct bench b;

    bench_open(&b, ngd_cpu_isa(), 1);
    for (uint64_t seed = 0; seed < n; seed++) {
        struct ngd_graph *g = some_graph(seed);

        for (size_t i = 0; i < 2; i++) {
            uint32_t first, more;
            struct ngd_graph *once = run_alone(&b, g, passes[i], &first),
                             *twice = run_alone(&b, once, passes[i], &more);

            if (more || !ngd_digest_equal(&once->digest, &twice->digest))
                fail_on(once, seed, "is changed again");
            ngd_graph_unref(once);
            ngd_graph_unref(twice);
        }
        ngd_graph_unref(g);
    }
    bench_close(&b);
}
END_TEST

UNIT_MAIN("ops/folding", each_operator_on_each_pair_of_numbers_is_folded_to_what_its_kernel_computes,
          what_is_folded_is_what_kernels_compute, folding_again_changes_nothing)
