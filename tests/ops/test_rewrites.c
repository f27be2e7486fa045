/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests graphs of what the passes and the planner rewrite (cats, copies back into states, linears of one operand,
 * chains of views, constants, equal nodes, no-ops), and of similar nodes that they must not rewrite, on the host
 * device, with fixed seeds (NGD_TEST_SEEDS sets how many). The bits must be the same with all passes, with each one
 * left out, and with the planner's steps alone; half of the graphs have several streams and run in orders that those
 * allow. A pass that runs again must change nothing.
 */
#include "tests/ops/rewritten.h"
#include <stdarg.h>

/* A graph that grows node by node. Lines that the parser refuses are left out, so the test need not know types. */
struct world {
    struct random r;
    struct ngd_strbuf text;
    struct ngd_graph *g;
    uint32_t n_lines;
    bool streams;        /* some nodes are put on side streams */
    char lines[64][160]; /* of nodes without an effect, for equal ones; without their results */
};

static struct ngd_graph *parse_so_far(const char *text, const char *more, const char *returns)
{
    struct ngd_strbuf sb;
    struct ngd_graph *g = NULL;

    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb, "%s%s%s\n}\n", text, more, returns);
    if (ngd_graph_parse(ngd_strbuf_str(&sb), sb.len, &g, NULL))
        g = NULL;
    ngd_strbuf_fini(&sb);
    return g;
}

/* Adds a node: fmt is its line without results, which are named here. Returns true if the graph accepts it. */
static bool add(struct world *w, uint32_t n_out, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool add(struct world *w, uint32_t n_out, const char *fmt, ...)
{
    const char *stream = !w->streams || random_below(&w->r, 2) ? "" : random_below(&w->r, 2) ? "a" : "b";
    char node[160], line[360];
    struct ngd_graph *g;
    va_list ap;
    int at = *stream ? snprintf(line, sizeof(line), "  stream \"%s\" {\n", stream) : 0;

    va_start(ap, fmt);
    vsnprintf(node, sizeof(node), fmt, ap);
    va_end(ap);
    for (uint32_t i = 0; i < n_out; i++)
        at += snprintf(line + at, sizeof(line) - (size_t)at, "%s%%n%u.%u", i ? ", " : "  ", w->g->n_nodes, i);
    snprintf(line + at, sizeof(line) - (size_t)at, "%s%s\n%s", n_out ? " = " : "  ", node, *stream ? "  }\n" : "");
    g = parse_so_far(ngd_strbuf_str(&w->text), line, "  return \"x\" = %x0");
    if (!g)
        return false;
    ngd_strbuf_append(&w->text, line);
    ngd_graph_unref(w->g);
    w->g = g;
    if (n_out == 1 && w->n_lines < 64)
        memcpy(w->lines[w->n_lines++], node, sizeof(node));
    return true;
}

static uint32_t any_value(struct world *w)
{
    return (uint32_t)random_below(&w->r, w->g->n_values);
}

/* Returns one of the last few values, so that chains get long. */
static uint32_t recent_value(struct world *w)
{
    uint32_t n = w->g->n_values, back = (uint32_t)random_below(&w->r, 4);

    return random_below(&w->r, 2) && back < n ? n - 1 - back : any_value(w);
}

static const char *name(const struct world *w, uint32_t value)
{
    return w->g->values[value].name;
}

static const struct ngd_type *type_at(const struct world *w, uint32_t value)
{
    return &w->g->values[value].type;
}

/* Returns a value of the same type, perhaps itself. */
static uint32_t like(struct world *w, uint32_t value)
{
    uint32_t n = w->g->n_values, start = any_value(w);

    for (uint32_t i = 0; i < n; i++)
        if (ngd_type_equal(type_at(w, (start + i) % n), type_at(w, value)))
            return (start + i) % n;
    return value;
}

static uint32_t newest(const struct world *w)
{
    return w->g->n_values - 1;
}

static void some_unary(struct world *w)
{
    static const char *const forms[] = {"aten.neg(%%%s)",
                                        "aten.abs(%%%s)",
                                        "aten.relu(%%%s)",
                                        "aten.clone(%%%s)",
                                        "aten._to_copy(%%%s) {dtype=f32}",
                                        "aten._to_copy(%%%s) {dtype=bf16}",
                                        "aten._to_copy(%%%s) {dtype=i32}",
                                        "aten.pow.Tensor_Scalar(%%%s) {exponent=1}",
                                        "aten.pow.Tensor_Scalar(%%%s) {exponent=2}",
                                        "aten.mul.Scalar(%%%s) {other=-1}"};
    char node[160];

    snprintf(node, sizeof(node), forms[random_below(&w->r, 10)], name(w, recent_value(w)));
    add(w, 1, "%s", node);
}

static void some_binary(struct world *w)
{
    static const char *const ops[] = {"add.Tensor", "sub.Tensor", "mul.Tensor", "maximum"};
    uint32_t a = recent_value(w), b = like(w, a);
    int64_t op = random_below(&w->r, 4);

    add(w, 1, "aten.%s(%%%s, %%%s)%s", ops[op], name(w, a), name(w, b),
        op < 2 && random_below(&w->r, 4) == 0 ? " {alpha=2}" : "");
}

/* Adds a cat, mostly of new results that only it reads; sometimes one is read elsewhere, occurs twice, or is a view. */
static void some_cat(struct world *w)
{
    uint32_t first = recent_value(w), n = 1 + (uint32_t)random_below(&w->r, 3), parts[4];
    char names[160] = "";

    for (uint32_t i = 0; i <= n; i++) {
        parts[i] = like(w, first);
        if (random_below(&w->r, 3) && add(w, 1, "aten.neg(%%%s)", name(w, parts[i])))
            parts[i] = newest(w);
    }
    for (uint32_t i = 0; i <= n; i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%%%s", i ? ", " : "", name(w, parts[i]));
    add(w, 1, "aten.cat(%s) {dim=%lld}", names, (long long)random_below(&w->r, 3) - 1);
    if (random_below(&w->r, 3) == 0) /* another node reads a part behind the cat */
        add(w, 1, "aten.abs(%%%s)", name(w, parts[random_below(&w->r, n + 1)]));
}

static uint32_t some_state(struct world *w)
{
    return w->g->states[random_below(&w->r, w->g->n_states)];
}

/* Adds a write to a state: of a result that is computed for it, perhaps from it, or of any value; to all of it, or
 * through a view. */
static void some_write(struct world *w)
{
    uint32_t s = some_state(w), v = like(w, s);
    int64_t way = random_below(&w->r, 6);

    if (way == 0 && add(w, 1, "aten.slice.Tensor(%%%s) {dim=%lld, start=1, end=3}", name(w, s),
                        (long long)random_below(&w->r, 2))) {
        uint32_t view = newest(w);

        if (add(w, 1, "aten.neg(%%%s)", name(w, like(w, view))))
            v = newest(w);
        s = view;
    } else if (way == 1) {
        if (add(w, 1, "aten.add.Tensor(%%%s, %%%s)", name(w, s), name(w, v)))
            v = newest(w);
    } else if (way < 5) {
        if (add(w, 1, "aten.neg(%%%s)", name(w, v)))
            v = newest(w);
    }
    if (random_below(&w->r, 3) == 0) /* between */
        add(w, 1, "aten.abs(%%%s)", name(w, random_below(&w->r, 2) ? s : v));
    add(w, 0, "aten.copy_(%%%s, %%%s)", name(w, s), name(w, v));
    if (random_below(&w->r, 3) == 0) /* behind */
        add(w, 1, "aten.abs(%%%s)", name(w, random_below(&w->r, 2) ? s : v));
}

/* Replaces a part of a tensor, mostly of a state, and copies the result back into it. The new part may be a view of the
 * state too. */
static void some_update(struct world *w)
{
    uint32_t s = some_state(w), x = random_below(&w->r, 4) ? s : random_below(&w->r, 2) ? recent_value(w) : like(w, s);
    const char *src = name(w, random_below(&w->r, 3) ? w->g->inputs[random_below(&w->r, w->g->n_inputs)] : x);
    bool added = false;

    switch (random_below(&w->r, 8)) {
    case 0:
        added = add(w, 1, "aten.index_put(%%%s, %%i0, %%v0) {accumulate=%s}", name(w, x),
                    random_below(&w->r, 2) ? "true" : "false");
        break;
    case 1:
        added = add(w, 1, "aten.index_put(%%%s, %%i1, %%%s)", name(w, x), src);
        break;
    case 2:
        added = add(w, 1, "aten.scatter.value(%%%s, %%x5) {dim=1, value=2}", name(w, x));
        break;
    case 3:
        added = add(w, 1, "aten.scatter_add(%%%s, %%x5, %%%s) {dim=1}", name(w, x), src);
        break;
    case 4:
        added = add(w, 1, "aten.slice_scatter(%%%s, %%v0) {start=1, end=3}", name(w, x));
        break;
    case 5:
        added = add(w, 1, "aten.index_copy(%%%s, %%i0, %%v0) {dim=0}", name(w, x));
        break;
    case 6:
        added = add(w, 1, "aten.slice.Tensor(%%%s) {dim=1, start=3, end=5}", src) &&
                add(w, 1, "aten.index_copy(%%%s, %%i0, %%%s) {dim=1}", name(w, x), name(w, newest(w)));
        break;
    default:
        added = add(w, 1, "aten.slice_scatter(%%%s, %%%s)", name(w, x), src);
        break;
    }
    if (added && random_below(&w->r, 3) == 0)
        add(w, 1, "aten.abs(%%%s)", name(w, random_below(&w->r, 2) ? s : newest(w)));
    if (added && random_below(&w->r, 5))
        add(w, 0, "aten.copy_(%%%s, %%%s)", name(w, s), name(w, random_below(&w->r, 4) ? newest(w) : like(w, s)));
}

/* Writes a state through a reshaping view, and copies the result back in the state's shape, or a similar case. */
static void some_reshaped_update(struct world *w)
{
    static const char *const shapes[] = {"view(%%%s) {size=[64]}", "view(%%%s) {size=[2,2,16]}",
                                         "view(%%%s) {size=[8,8]}", "unsqueeze(%%%s) {dim=1}", "t(%%%s)"};
    static const char *const back[] = {"view(%%%s) {size=[4,16]}", "squeeze.dim(%%%s) {dim=1}", "t(%%%s)"};
    int64_t shape = random_below(&w->r, 5);
    uint32_t s = w->g->states[0], view, made;
    char form[80];

    snprintf(form, sizeof(form), shapes[shape], name(w, s));
    if (!add(w, 1, "aten.%s", form))
        return;
    view = made = newest(w);
    for (int64_t i = 0; i <= random_below(&w->r, 2); i++) {
        if (random_below(&w->r, 3) == 0
                ? add(w, 1, "aten.add.Tensor(%%%s, %%%s)", name(w, made), name(w, like(w, made)))
                : add(w, 1, "aten.slice_scatter(%%%s, %%%s)%s", name(w, made), name(w, like(w, made)),
                      random_below(&w->r, 2) ? " {step=1}" : ""))
            made = newest(w);
        if (random_below(&w->r, 5) == 0) /* the old ones are read in between */
            add(w, 1, "aten.abs(%%%s)", name(w, random_below(&w->r, 2) ? s : view));
    }
    if (shape == 3 && random_below(&w->r, 2)) { /* copied into the view */
        add(w, 0, "aten.copy_(%%%s, %%%s)", name(w, view), name(w, made));
        return;
    }
    snprintf(form, sizeof(form), back[shape < 3 ? 0 : shape - 2], name(w, made));
    if (add(w, 1, "aten.%s", form))
        add(w, 0, "aten.copy_(%%%s, %%%s)", name(w, s), name(w, newest(w)));
    if (random_below(&w->r, 3) == 0)
        add(w, 1, "aten.abs(%%%s)", name(w, random_below(&w->r, 2) ? made : view));
}

static void some_linears(struct world *w)
{
    static const char *const weights[] = {"w0", "w1", "w2", "sw"};
    uint32_t x = recent_value(w);
    bool biased = random_below(&w->r, 3) == 0;

    for (int64_t i = 0; i <= 1 + random_below(&w->r, 2); i++) {
        add(w, 1, "aten.linear(%%%s, %%%s%s)", name(w, x), weights[random_below(&w->r, 4)],
            biased && random_below(&w->r, 6) ? ", %b0" : "");
        if (random_below(&w->r, 4) == 0)
            some_write(w);
        else if (random_below(&w->r, 4) == 0)
            add(w, 1, "aten.add.Tensor(%%%s, %%%s)", name(w, newest(w)), name(w, like(w, newest(w))));
    }
}

static void some_view(struct world *w)
{
    static const char *const forms[] = {"view(%%%s) {size=[-1]}",
                                        "view(%%%s) {size=[4,-1]}",
                                        "view(%%%s) {size=[2,2,-1]}",
                                        "reshape(%%%s) {shape=[16,-1]}",
                                        "unsqueeze(%%%s) {dim=0}",
                                        "squeeze.dim(%%%s) {dim=0}",
                                        "t(%%%s)",
                                        "transpose.int(%%%s) {dim0=0, dim1=-1}",
                                        "permute(%%%s) {dims=[1,0]}",
                                        "permute(%%%s) {dims=[0,1]}",
                                        "permute(%%%s) {dims=[2,0,1]}",
                                        "slice.Tensor(%%%s) {dim=0}",
                                        "slice.Tensor(%%%s) {dim=-1, start=1, step=2}",
                                        "select.int(%%%s) {dim=0, index=0}",
                                        "expand(%%%s) {size=[4,16]}",
                                        "expand(%%%s) {size=[-1,-1]}"};

    for (int64_t i = 0; i <= random_below(&w->r, 3); i++) {
        char form[80];

        snprintf(form, sizeof(form), forms[random_below(&w->r, 16)], name(w, recent_value(w)));
        add(w, 1, "aten.%s", form);
    }
}

static void some_split(struct world *w)
{
    int64_t dim = random_below(&w->r, 2);
    uint32_t x = recent_value(w);

    if (!add(w, 2, "aten.split_with_sizes(%%%s) {split_sizes=[8,8], dim=%lld}", name(w, x), (long long)dim))
        add(w, 1, "aten.split_with_sizes(%%%s) {split_sizes=[4], dim=%lld}", name(w, x), (long long)dim);
}

static void some_constant(struct world *w)
{
    static const char *const values[] = {"0", "-0.0", "1", "2", "-3", "0.5", "0.1", "1e30", "257"};
    static const char *const dtypes[] = {"f32", "bf16", "f16", "i32", "i64", "i8"};
    static const char *const sizes[] = {"4,16", "1,16", "1", "16"};

    add(w, 1, "aten.full() {size=[%s], fill_value=%s, dtype=%s}", sizes[random_below(&w->r, 4)],
        values[random_below(&w->r, 9)], dtypes[random_below(&w->r, 6)]);
    add(w, 1, "aten._to_copy(%%%s) {dtype=%s}", name(w, newest(w)), dtypes[random_below(&w->r, 6)]);
    add(w, 1, "aten.%s.Scalar(%%%s) {other=%s}", random_below(&w->r, 2) ? "add" : "mul", name(w, recent_value(w)),
        values[random_below(&w->r, 9)]);
}

/* Adds a norm that is spelled out, or a near miss: of another value than it divides, of another power or mean, or with
 * a reader in between. */
static void some_norm(struct world *w)
{
    uint32_t x = recent_value(w), r;

    if (!add(w, 1, "aten.pow.Tensor_Scalar(%%%s) {exponent=%d}", name(w, x), random_below(&w->r, 6) ? 2 : 3) ||
        !add(w, 1, "aten.mean.dim(%%%s) {dim=[%d], keepdim=true}", name(w, newest(w)),
             random_below(&w->r, 6) ? -1 : 1) ||
        !add(w, 1, "aten.add.Scalar(%%%s) {other=1e-05}", name(w, newest(w))) ||
        !add(w, 1, "aten.rsqrt(%%%s)", name(w, newest(w))))
        return;
    r = newest(w);
    if (!add(w, 1, "aten.mul.Tensor(%%%s, %%%s)", name(w, random_below(&w->r, 6) ? x : like(w, x)), name(w, r)))
        return;
    if (random_below(&w->r, 2))
        add(w, 1, "aten.mul.Tensor(%%%s, %%b0)", name(w, newest(w)));
    else
        add(w, 1, "aten.mul.Tensor(%%b0, %%%s)", name(w, newest(w)));
    if (random_below(&w->r, 6) == 0)
        add(w, 1, "aten.neg(%%%s)", name(w, r));
}

/* Adds a rotation of heads that is spelled out, or one with swapped halves. */
static void some_rotation(struct world *w)
{
    bool wrong = random_below(&w->r, 4) == 0;
    uint32_t x, table, a, half;

    if (!add(w, 1, "aten.view(%%%s) {size=[4,2,8]}", name(w, like(w, w->g->inputs[1]))))
        return;
    x = newest(w);
    add(w, 1, "aten.slice.Tensor(%%%s) {dim=1, end=8}", name(w, like(w, w->g->inputs[0])));
    add(w, 1, "aten.unsqueeze(%%%s) {dim=1}", name(w, newest(w)));
    table = newest(w);
    add(w, 1, "aten.mul.Tensor(%%%s, %%%s)", name(w, x), name(w, table));
    a = newest(w);
    add(w, 1, "aten.slice.Tensor(%%%s) {dim=2, %s}", name(w, x), wrong ? "start=4" : "end=4");
    half = newest(w);
    add(w, 1, "aten.slice.Tensor(%%%s) {dim=-1, %s}", name(w, x), wrong ? "end=4" : "start=4");
    add(w, 1, "aten.neg(%%%s)", name(w, newest(w)));
    add(w, 1, "aten.cat(%%%s, %%%s) {dim=2}", name(w, newest(w)), name(w, half));
    if (add(w, 1, "aten.mul.Tensor(%%%s, %%%s)", name(w, newest(w)), name(w, table)))
        add(w, 1, "aten.add.Tensor(%%%s, %%%s)", name(w, a), name(w, newest(w)));
}

/* Adds a view with other leading dimensions behind a row-wise operator, of a contiguous or a transposed tensor. */
static void some_rows(struct world *w)
{
    static const char *const there[] = {"view(%%%s) {size=[2,2,16]}", "unsqueeze(%%%s) {dim=0}",
                                        "unsqueeze(%%%s) {dim=1}"};
    const int64_t way = random_below(&w->r, 3);
    uint32_t x = like(w, w->g->inputs[0]);
    char form[80];

    if (random_below(&w->r, 5) == 0 && add(w, 1, "aten.transpose.int(%%x0) {dim0=0, dim1=1}"))
        x = newest(w);
    snprintf(form, sizeof(form), there[way], name(w, x));
    if (!add(w, 1, "aten.%s", form))
        return;
    for (int64_t i = random_below(&w->r, 4); i >= 0; i--) {
        const uint32_t y = newest(w);

        switch (random_below(&w->r, 4)) {
        case 0:
            add(w, 1, "aten.linear(%%%s, %%w0)", name(w, y));
            break;
        case 1:
            add(w, 1, "aten.add.Tensor(%%%s, %%%s)", name(w, y), name(w, like(w, y)));
            break;
        case 2:
            add(w, 2, "npu.rms_norm(%%%s, %%b0)", name(w, y));
            return;
        default:
            add(w, 1, "aten.mul.Tensor(%%%s, %%b0)", name(w, y));
        }
        if (random_below(&w->r, 8) == 0) /* also read without the view */
            add(w, 1, "aten.neg(%%%s)", name(w, y));
    }
    add(w, 1, "aten.view(%%%s) {size=[4,16]}", name(w, newest(w)));
    if (random_below(&w->r, 2))
        add(w, 1, "aten.mm(%%%s, %%w1)", name(w, newest(w)));
}

static void some_product(struct world *w)
{
    static const char *const weights[] = {"w0", "w1", "sw"};
    uint32_t x = recent_value(w);

    if (add(w, 1, "aten.t(%%%s)", weights[random_below(&w->r, 3)]))
        add(w, 1, "aten.mm(%%%s, %%%s)", name(w, x), name(w, newest(w)));
}

static void some_equal(struct world *w)
{
    if (w->n_lines)
        add(w, 1, "%s", w->lines[random_below(&w->r, w->n_lines)]);
}

static void (*const makers[])(struct world *w) = {
    some_update, some_update, some_reshaped_update, some_unary,    some_binary, some_cat,  some_write,    some_linears,
    some_view,   some_view,   some_split,           some_constant, some_equal,  some_norm, some_rotation, some_product,
    some_rows};

/* Returns a few of the last values, so that most of the graph is dead. */
static void return_some(struct world *w, struct ngd_strbuf *returns)
{
    int64_t outputs = 1 + random_below(&w->r, 5);

    for (int64_t i = 0; i < outputs; i++)
        ngd_strbuf_printf(returns, "%s \"o%lld\" = %%%s", i ? "," : "", (long long)i, name(w, recent_value(w)));
}

static bool is_read(const struct ngd_graph *g, uint32_t value)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] == value)
                return true;
    return false;
}

/* Returns all values that no node reads, so that nothing is dead. */
static void return_all(struct world *w, struct ngd_strbuf *returns)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->g->n_nodes; i++)
        for (uint32_t k = 0; k < w->g->nodes[i].n_out; k++)
            if (!is_read(w->g, w->g->nodes[i].out[k]))
                ngd_strbuf_printf(returns, "%s \"o%u\" = %%%s", n++ ? "," : "", i * 8 + k,
                                  name(w, w->g->nodes[i].out[k]));
    if (n == 0)
        return_some(w, returns);
}

static struct ngd_graph *some_graph(uint64_t seed)
{
    static const char head[] =
        "npugraph 1\ngraph \"some\" {\n  sym B 1..6 buckets 2, 6\n  param %w0 : f32[16,16]\n  param %w1 : f32[16,16]\n"
        "  param %w2 : bf16[8,16]\n  param %b0 : f32[16]\n  state %s0 : f32[4,16]\n  state %s1 : f32[1,16]\n"
        "  state %s2 : bf16[4,16]\n  state %sw : f32[16,16]\n  input %x0 : f32[4,16]\n  input %x1 : f32[4,16]\n"
        "  input %x2 : f32[1,16]\n  input %x3 : bf16[4,16]\n  input %x4 : f32[B,16]\n  input %x5 : i32[4,16]\n"
        "  input %v0 : f32[2,16]\n  input %i0 : i32[2]\n  input %i1 : i64[4]\n";
    struct world w = {.r = {seed}, .streams = seed % 2};
    struct ngd_graph *g;
    struct ngd_strbuf returns;
    int64_t nodes;

    random_u32(&w.r);
    ngd_strbuf_init(&returns);
    ngd_strbuf_append(&returns, "  return");
    ngd_strbuf_init(&w.text);
    ngd_strbuf_append(&w.text, head);
    w.g = parse_so_far(head, "", "  return \"x\" = %x0");
    ck_assert_ptr_nonnull(w.g);
    nodes = 6 + random_below(&w.r, 10);
    for (int64_t i = 0; i < nodes; i++)
        makers[random_below(&w.r, sizeof(makers) / sizeof(makers[0]))](&w);
    if (random_below(&w.r, 2))
        return_some(&w, &returns);
    else
        return_all(&w, &returns);
    g = parse_so_far(ngd_strbuf_str(&w.text), "", ngd_strbuf_str(&returns));
    ngd_graph_unref(w.g);
    ngd_strbuf_fini(&w.text);
    ngd_strbuf_fini(&returns);
    return g;
}

/* The changes of the passes in all graphs together. */
struct effects {
    uint64_t changed[NGD_PASS_MAX];
    uint64_t placed; /* calls saved by the planner's own steps */
};

static void fail_on(struct ngd_graph *g, uint64_t seed, const char *way, const char *how)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_graph_print(g, &sb);
    ck_abort_msg("seed %llu: %s %s\n%s", (unsigned long long)seed, way, how, ngd_strbuf_str(&sb));
}

static void check_way(struct bench *b, struct ngd_graph *g, uint64_t seed, const struct ngd_graph_options *options,
                      const char *way, const struct made *want, struct ngd_pass_report *report, uint32_t *calls_p)
{
    static const int64_t symbols[NGD_GRAPH_MAX_SYMBOLS] = {6}, rows[NGD_GRAPH_MAX_SYMBOLS] = {3};
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct made got;

    run_check(make_plan(b, g, symbols, options, NULL, report, &plan, &diag), &diag, way);
    got = run_plan(b, plan, rows, NULL, false);
    if (!same_bits(want, &got))
        fail_on(g, seed, way, "gives another result");
    free(got.data);
    *calls_p = plan->n_calls;
    for (uint32_t order = 1; order < 4 && plan->n_streams > 1; order++) { /* shuffling makes one stream of them */
        shuffle_plan(plan, order);
        got = run_plan(b, plan, rows, NULL, false);
        if (!same_bits(want, &got))
            fail_on(g, seed, "some streams slower than others", "give another result");
        free(got.data);
    }
    ngd_plan_unref(plan);
}

static void check_graph(struct bench *b, struct ngd_graph *g, uint64_t seed, struct effects *e)
{
    static const int64_t symbols[NGD_GRAPH_MAX_SYMBOLS] = {6}, rows[NGD_GRAPH_MAX_SYMBOLS] = {3};
    struct ngd_graph_options on, off, one;
    struct ngd_pass_report report = {0};
    struct ngd_plan *plain = NULL;
    struct ngd_diag diag = {0};
    struct made want;
    uint32_t calls, unplaced;
    int which = (int)(seed % NGD_PASS_MAX);

    ngd_graph_options_init(&on);
    ngd_graph_options_init(&off);
    ngd_graph_options_no_passes(&off);
    run_check(make_plan(b, g, symbols, NULL, NULL, NULL, &plain, &diag), &diag, "plan");
    want = run_plan(b, plain, rows, NULL, false);
    ngd_plan_unref(plain);
    check_way(b, g, seed, &on, "all passes", &want, &report, &calls);
    for (int i = 0; i < NGD_PASS_MAX; i++)
        e->changed[i] += report.of[i].changed;
    one = on;
    one.remove_cat_ops = one.input_inplace_pass = one.inplace_pass = false;
    check_way(b, g, seed, &one, "no results in other storage", &want, NULL, &unplaced);
    e->placed += unplaced - calls;
    one = off;
    one.remove_cat_ops = one.input_inplace_pass = one.inplace_pass = true;
    check_way(b, g, seed, &one, "results in other storage alone", &want, NULL, &calls);
    one = on;
    snprintf(one.disable_passes, sizeof(one.disable_passes), "%s", ngd_pass_info((ngd_pass_id_t)which)->name);
    check_way(b, g, seed, &one, one.disable_passes, &want, NULL, &calls);
    free(want.data);
}

/* Returns true for a pass that must change some of these graphs, at its first place. */
static bool must_change(int id)
{
    const char *name = ngd_pass_info((ngd_pass_id_t)id)->name;

    return id != NGD_PASS_CUSTOM_PRE && id != NGD_PASS_CUSTOM_POST && id != NGD_PASS_FUSE_LATE &&
           id != NGD_PASS_ASSIGN_STREAMS && ngd_pass_find(name, strlen(name)) == id;
}

/* Returns the graph that one pass alone makes; *changed_p: its number of changes. */
static struct ngd_graph *run_alone(struct bench *b, struct ngd_graph *g, ngd_pass_id_t id, uint32_t *changed_p)
{
    static const int64_t symbols[NGD_GRAPH_MAX_SYMBOLS] = {6};
    struct ngd_pass_report report = {0};
    struct ngd_graph_options options;
    struct ngd_graph *after = NULL;
    struct ngd_diag diag = {0};
    size_t n = 0;

    ngd_graph_options_init(&options);
    options.assign_streams = 2;
    for (int i = 0; i < NGD_PASS_MAX; i++)
        if (strcmp(ngd_pass_info((ngd_pass_id_t)i)->name, ngd_pass_info(id)->name) != 0)
            n += (size_t)snprintf(options.disable_passes + n, sizeof(options.disable_passes) - n, "%s%s", n ? "," : "",
                                  ngd_pass_info((ngd_pass_id_t)i)->name);
    run_check(ngd_passes_run(g, symbols, &options, ngd_device_target(b->dev), NULL, &report, &after, &diag), &diag,
              ngd_pass_info(id)->name);
    ck_assert(report.of[id].ran);
    *changed_p = report.of[id].changed;
    return after;
}

START_TEST(a_pass_that_runs_again_changes_nothing_more)
{
    uint64_t n = seeds(400, "graphs that each pass rewrites twice");
    uint64_t changes[NGD_PASS_MAX] = {0};
    struct bench b;

    bench_open(&b, ngd_cpu_isa(), 1);
    for (uint64_t seed = 0; seed < n; seed++) {
        struct ngd_graph *g = some_graph(seed);

        for (int i = 0; g && i < NGD_PASS_MAX; i++) {
            uint32_t first, more;
            struct ngd_graph *once = run_alone(&b, g, (ngd_pass_id_t)i, &first),
                             *twice = run_alone(&b, once, (ngd_pass_id_t)i, &more);

            if (more || !ngd_digest_equal(&once->digest, &twice->digest))
                fail_on(once, seed, ngd_pass_info((ngd_pass_id_t)i)->name, "changes what it made");
            changes[i] += first;
            ngd_graph_unref(once);
            ngd_graph_unref(twice);
        }
        ngd_graph_unref(g);
    }
    for (int i = 0; i < NGD_PASS_MAX && n >= 100; i++)
        if (must_change(i))
            ck_assert_msg(changes[i] > 0, "pass %s has never changed anything", ngd_pass_info((ngd_pass_id_t)i)->name);
    bench_close(&b);
}
END_TEST

START_TEST(what_passes_look_for_and_what_looks_like_it_gives_the_same_bits_with_and_without_them)
{
    uint64_t n = seeds(400, "graphs of what passes look for");
    struct effects e = {{0}, 0};
    struct bench b;

    bench_open(&b, ngd_cpu_isa(), 1);
    for (uint64_t seed = 0; seed < n; seed++) {
        struct ngd_graph *g = some_graph(seed);

        if (g)
            check_graph(&b, g, seed, &e);
        ngd_graph_unref(g);
    }
    for (int i = 0; i < NGD_PASS_MAX; i++) {
        const struct ngd_pass *pass = ngd_pass_info((ngd_pass_id_t)i);

        if (getenv("NGD_TEST_VERBOSE"))
            fprintf(stderr, "%s: %llu changes\n", pass->name, (unsigned long long)e.changed[i]);
        if (n >= 100 && must_change(i))
            ck_assert_msg(e.changed[i] > 0, "pass %s has never changed anything", pass->name);
    }
    ck_assert_msg(n < 100 || e.placed > 0, "no result went into other storage");
    bench_close(&b);
}
END_TEST

UNIT_MAIN("ops/rewrites", a_pass_that_runs_again_changes_nothing_more,
          what_passes_look_for_and_what_looks_like_it_gives_the_same_bits_with_and_without_them)
