/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of fusions on the host device, seeds fixed (NGD_TEST_SEEDS sets how many).
 *
 *   patterns   instances of every built-in pattern, made from the pattern itself: random dimensions, dtypes, scalars
 *              and leading dimensions, exact or bucketed. Each is matched, alone and among all patterns, and computes
 *              the same bits as without passes. So do near misses, and those that must not match do not: an outside
 *              user, another dtype, another attribute, something in between.
 *   passes     graphs of what the passes and the planner look for (cats, copies back into states, linears of one
 *              operand, chains of views, constants, equal nodes, what changes nothing), next to what looks like it:
 *              the same bits with all passes, with each one left out, and with the planner's steps alone; half of them
 * on several streams, in orders that those allow
 */
#include "graphs/graph_int.h"
#include "graphs/pass.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/run_plan.h"
#include "tests/unit/unit.h"
#include <stdarg.h>

static uint64_t seeds(uint64_t standard, const char *what)
{
    const char *env = getenv("NGD_TEST_SEEDS");

    return env ? strtoull(env, NULL, 10) : effort(standard, what);
}

static ngd_status_t make_plan(struct bench *b, struct ngd_graph *g, const int64_t *symbols,
                              const struct ngd_graph_options *options, struct ngd_pattern_set *patterns,
                              struct ngd_pass_report *report, struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct ngd_digest digest = {{0}};
    struct ngd_key key;
    ngd_status_t status = ngd_key_make(g, &digest, symbols, g->n_symbols, &key, diag);

    return status
               ? status
               : ngd_plan_create_reported(g, &key, options, ngd_device_target(b->dev), patterns, report, plan_p, diag);
}

static bool same_bits(const struct made *a, const struct made *b)
{
    return a->status == b->status && a->bytes == b->bytes && (a->status || memcmp(a->data, b->data, a->bytes) == 0);
}

/* ---- instances of patterns ---- */

enum miss { MISS_NONE, MISS_USER, MISS_DTYPE, MISS_ATTR, MISS_BETWEEN, MISS_WRITE, MISS_MAX };
static const char *const miss_names[] = {"exact", "outside user", "dtype", "attribute", "something between", "write"};

struct instance {
    const struct ngd_pattern *p;
    struct random r;
    int64_t dims[NGD_PATTERN_MAX_DIMS];
    ngd_dtype_t dtypes[NGD_PATTERN_MAX_DTYPES];
    double floats[NGD_PATTERN_MAX_FLOATS];
    uint32_t n_prefix;
    int64_t prefix[2];
    bool rows; /* the first leading dimension is a bucketed symbol */
    enum miss miss;
    uint32_t at; /* what is missed: a value or a node of the source */
    bool missed; /* it could be made */
    struct ngd_strbuf text;
};

/* Small; where a letter has a meaning, one that indices up to 4 are good for. */
static int64_t random_dim(struct instance *w, const struct ngd_pattern_dim *d)
{
    int64_t n = d->multiple * (1 + random_below(&w->r, 2 * d->multiple > 8 ? 4 : 12));

    if (strcmp(d->name, "NB") == 0)
        n = 5 + random_below(&w->r, 3);
    else if (strcmp(d->name, "T") == 0 || strcmp(d->name, "H") == 0 || strcmp(d->name, "KH") == 0)
        n = 1 + random_below(&w->r, 4);
    else if (strcmp(d->name, "MB") == 0 || strcmp(d->name, "BS") == 0)
        n = 2 + random_below(&w->r, 3);
    else if (strcmp(d->name, "S") == 0)
        n = 1;
    else if (strcmp(d->name, "MODE") == 0)
        n = 3;
    return n < d->min ? d->min : n > d->max ? d->max : n;
}

static int64_t dim_of(const struct instance *w, ngd_dim_t dim)
{
    int64_t v = -1;

    ck_assert_int_eq(ngd_expr_eval(w->p->exprs, dim, w->dims, &v), NGD_OK);
    return v;
}

static bool wheres_hold(const struct instance *w)
{
    for (uint32_t i = 0; i < w->p->n_wheres; i++) {
        const struct ngd_pattern_where *c = &w->p->wheres[i];

        if (c->variable < 0 && !ngd_pattern_compare(c->compare, dim_of(w, c->a), dim_of(w, c->b)))
            return false;
    }
    return true;
}

static void choose_bindings(struct instance *w)
{
    static const double scalars[] = {1e-6, 1e-5, 0.25};
    const struct ngd_pattern *p = w->p;

    do {
        for (uint32_t i = 0; i < p->n_dims; i++)
            w->dims[i] = random_dim(w, &p->dims[i]);
    } while (!wheres_hold(w));
    for (uint32_t i = 0; i < p->n_dtypes; i++) {
        do
            w->dtypes[i] = (ngd_dtype_t)random_below(&w->r, NGD_DTYPE_MAX);
        while (!(p->dtypes[i].allowed >> w->dtypes[i] & 1));
    }
    for (uint32_t i = 0; i < p->n_floats; i++)
        w->floats[i] = scalars[random_below(&w->r, 3)];
    w->n_prefix = (uint32_t)random_below(&w->r, 3);
    for (uint32_t i = 0; i < w->n_prefix; i++)
        w->prefix[i] = 1 + random_below(&w->r, 4);
    w->rows = w->n_prefix && random_below(&w->r, 2);
}

static void print_input(struct instance *w, const struct ngd_pattern_value *v, bool other_dtype)
{
    static const char *const classes[] = {"input", "param"};
    const char *cls = classes[v->prefix ? 0 : random_below(&w->r, 2)];
    ngd_dtype_t dtype = v->dtype >= 0 ? w->dtypes[v->dtype] : (ngd_dtype_t)(-1 - v->dtype);
    const char *separator = "";

    if (other_dtype)
        dtype = dtype == NGD_F32 ? NGD_BF16 : dtype == NGD_BF16 ? NGD_F16 : dtype == NGD_I32 ? NGD_I64 : NGD_F32;
    if (v->classes == 1u << NGD_VALUE_STATE)
        cls = "state";
    if (v->classes == 1u << NGD_VALUE_HOST)
        cls = "host";
    ngd_strbuf_printf(&w->text, "  %s %%%s : %s[", cls, v->name, ngd_dtype_name(dtype));
    for (uint32_t i = 0; v->prefix && i < w->n_prefix; i++, separator = ",")
        if (i == 0 && w->rows)
            ngd_strbuf_append(&w->text, "B");
        else
            ngd_strbuf_printf(&w->text, "%s%lld", separator, (long long)w->prefix[i]);
    for (uint32_t i = 0; i < v->rank; i++, separator = ",")
        ngd_strbuf_printf(&w->text, "%s%lld", separator, (long long)dim_of(w, v->dims[i]));
    ngd_strbuf_append(&w->text, "]\n");
}

/* An attribute that the pattern fixes; off: another value of it. False: it has no other. */
static bool print_fixed(struct instance *w, const struct ngd_attr_schema *schema, const struct ngd_pattern_attr *a,
                        bool off)
{
    bool given = a->kind == NGD_PATTERN_ATTR_GIVEN;

    switch (schema->type) {
    case NGD_ATTR_INT:
        ngd_strbuf_printf(&w->text, "%lld", (long long)(given ? dim_of(w, a->value.i) : schema->def_int) - off);
        return true;
    case NGD_ATTR_INTS:
        ngd_strbuf_append(&w->text, "[");
        for (uint32_t i = 0; given && i < a->value.n; i++) /* off: the first two change places */
            ngd_strbuf_printf(&w->text, "%s%lld", i ? "," : "",
                              (long long)dim_of(w, a->value.list[off && i < 2 && a->value.n > 1 ? 1 - i : i]));
        ngd_strbuf_append(&w->text, "]");
        return given && a->value.n > 1 && dim_of(w, a->value.list[0]) != dim_of(w, a->value.list[1]);
    case NGD_ATTR_FLOAT:
        ngd_strbuf_printf(&w->text, "%.17g", (given ? a->value.f : schema->def_float) + (off ? 0.5 : 0));
        return true;
    case NGD_ATTR_BOOL:
        ngd_strbuf_append(&w->text, ((given ? a->value.i : schema->def_int) != 0) != off ? "true" : "false");
        return true;
    case NGD_ATTR_STR:
        ngd_strbuf_printf(&w->text, "\"%s\"", given ? a->value.s : schema->def_str);
        return false;
    case NGD_ATTR_DTYPE:
        ngd_strbuf_append(&w->text, ngd_dtype_name((ngd_dtype_t)a->value.i));
        return false;
    }
    return false;
}

static void print_attrs(struct instance *w, const struct ngd_pattern_node *n, uint32_t off)
{
    const char *separator = " {";

    for (uint32_t i = 0; i < n->op->n_attrs; i++) {
        const struct ngd_pattern_attr *a = &n->attrs[i];

        if (a->kind == NGD_PATTERN_ATTR_ANY || (a->kind == NGD_PATTERN_ATTR_DEFAULT && i != off))
            continue;
        ngd_strbuf_printf(&w->text, "%s%s=", separator, n->op->attrs[i].name);
        separator = ", ";
        if (a->kind == NGD_PATTERN_ATTR_FLOAT)
            ngd_strbuf_printf(&w->text, "%.17g", w->floats[a->variable]);
        else if (a->kind == NGD_PATTERN_ATTR_DTYPE)
            ngd_strbuf_append(&w->text, ngd_dtype_name(w->dtypes[a->variable]));
        else if (print_fixed(w, &n->op->attrs[i], a, i == off) && i == off)
            w->missed = true;
    }
    ngd_strbuf_append(&w->text, *separator == ',' ? "}\n" : "\n");
}

static const char *name_of(const struct instance *w, uint32_t value)
{
    return value == NGD_PATTERN_NONE ? NULL : w->p->values[value].name;
}

static bool may_swap(const struct ngd_pattern_node *n)
{
    return n->n_in == 2 && (n->op->flags & NGD_OPF_COMMUTES);
}

/* One node of the source, as it is or as it is nearly. */
static void print_node(struct instance *w, uint32_t node)
{
    const struct ngd_pattern_node *n = &w->p->source.nodes[node];
    bool here = w->at == node, swap = may_swap(n) && random_below(&w->r, 2);
    uint32_t between = NGD_PATTERN_NONE, off = NGD_PATTERN_NONE;

    for (uint32_t i = 0; here && w->miss == MISS_BETWEEN && i < n->n_in; i++)
        if (n->in[i] != NGD_PATTERN_NONE && !w->p->values[n->in[i]].is_input)
            between = n->in[i];
    if (between != NGD_PATTERN_NONE) {
        ngd_strbuf_printf(&w->text, "  %%between = aten.neg(%%%s)\n", name_of(w, between));
        w->missed = true;
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        if (n->out[i] == NGD_PATTERN_NONE)
            ngd_strbuf_printf(&w->text, "%s%%unused.%u.%u", i ? ", " : "  ", node, i);
        else
            ngd_strbuf_printf(&w->text, "%s%%%s", i ? ", " : "  ", name_of(w, n->out[i]));
    ngd_strbuf_printf(&w->text, "%s%s(", n->n_out ? " = " : "  ", n->op->name);
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t in = n->in[swap ? 1 - i : i];

        ngd_strbuf_printf(&w->text, "%s%s%s", i ? ", " : "", in == NGD_PATTERN_NONE ? "none" : "%",
                          in == NGD_PATTERN_NONE ? ""
                          : in == between        ? "between"
                                                 : name_of(w, in));
    }
    ngd_strbuf_append(&w->text, ")");
    if (here && w->miss == MISS_ATTR && n->op->n_attrs)
        off = (uint32_t)random_below(&w->r, n->op->n_attrs);
    print_attrs(w, n, off);
}

/* Values of the source that it does not return, but its last node's; `_` too. */
static void print_outside_user(struct instance *w)
{
    const struct ngd_pattern_node *n = &w->p->source.nodes[w->at];

    for (uint32_t i = 0; i < n->n_out && !w->missed; i++) {
        if (n->out[i] == NGD_PATTERN_NONE)
            ngd_strbuf_printf(&w->text, "  %%outside = aten.neg(%%unused.%u.%u)\n", w->at, i);
        else if (!w->p->values[n->out[i]].returned)
            ngd_strbuf_printf(&w->text, "  %%outside = aten.neg(%%%s)\n", name_of(w, n->out[i]));
        else
            continue;
        w->missed = true;
    }
}

/* A write of a state that the pattern uses, before the node. */
static void print_write(struct instance *w)
{
    for (uint32_t i = 0; i < w->p->n_values && !w->missed; i++) {
        const struct ngd_pattern_value *v = &w->p->values[i];

        if (!v->is_input || v->classes != 1u << NGD_VALUE_STATE)
            continue;
        ngd_strbuf_printf(&w->text, "  %%old = aten.neg(%%%s)\n  aten.copy_(%%%s, %%old)\n", v->name, v->name);
        w->missed = true;
    }
}

static void print_returns(struct instance *w)
{
    const struct ngd_pattern_side *s = &w->p->source;

    ngd_strbuf_append(&w->text, "  return");
    for (uint32_t i = 0; i < s->n_returns; i++)
        ngd_strbuf_printf(&w->text, "%s \"%s\" = %%%s", i ? "," : "", name_of(w, s->returns[i]),
                          name_of(w, s->returns[i]));
    if (w->miss == MISS_USER && w->missed)
        ngd_strbuf_append(&w->text, ", \"outside\" = %outside");
    ngd_strbuf_append(&w->text, "\n}\n");
}

/* Another dtype of this input is one that the pattern does not take: others share its letter, or it has none. */
static bool is_pinned(const struct ngd_pattern *p, uint32_t input)
{
    uint32_t sharing = 0;

    for (uint32_t i = 0; i < p->n_values; i++)
        sharing += p->values[i].is_input && p->values[i].dtype == p->values[input].dtype;
    return p->values[input].dtype < 0 || sharing > 1;
}

static void print_instance(struct instance *w)
{
    ngd_strbuf_init(&w->text);
    ngd_strbuf_append(&w->text, "npugraph 1\ngraph \"instance\" {\n");
    if (w->rows)
        ngd_strbuf_append(&w->text, "  sym B 1..6 buckets 2, 6\n");
    for (uint32_t i = 0; i < w->p->n_values; i++) {
        const bool other = w->miss == MISS_DTYPE && i == w->at;

        if (!w->p->values[i].is_input)
            continue;
        print_input(w, &w->p->values[i], other);
        w->missed = w->missed || (other && is_pinned(w->p, i));
    }
    for (uint32_t i = 0; i < w->p->source.n_nodes; i++) {
        if (w->miss == MISS_WRITE && w->at == i && i)
            print_write(w);
        print_node(w, i);
        if (w->miss == MISS_USER && w->at == i)
            print_outside_user(w);
    }
    print_returns(w);
}

/* ---- whether they match ---- */

struct tally {
    uint32_t made[MISS_MAX], alone, among; /* of one pattern: instances that are graphs; matched; that made a change */
};

/* The set of one pattern, or of all but one. */
static struct ngd_pattern_set *some_of(struct ngd_pattern_set *all, uint32_t which, bool only)
{
    struct ngd_pattern_set *set;

    ck_assert_int_eq(ngd_pattern_set_create(&set), NGD_OK);
    for (uint32_t i = 0; i < all->n; i++)
        if ((i == which) == only)
            ck_assert_int_eq(ngd_pattern_set_add(set, all->patterns[i]), NGD_OK);
    return set;
}

/* Values of the host parameters of attention, of which there is one sequence: rows of the query, and context. */
static void fill_hosts(const struct instance *w, int64_t values[2], struct ngd_host_value hosts[2])
{
    int64_t rows = 1;

    for (uint32_t i = 0; i < w->p->n_dims; i++)
        if (strcmp(w->p->dims[i].name, "T") == 0)
            rows = w->dims[i];
    values[0] = rows;
    values[1] = rows;
    for (int i = 0; i < 2; i++)
        hosts[i] = (struct ngd_host_value){&values[i], 1};
}

struct fixture {
    struct bench b;
    struct ngd_pattern_set *all, *only, *without;
};

static void check_instance(struct fixture *f, struct instance *w, struct tally *t)
{
    struct ngd_graph *g = NULL;
    struct ngd_plan *plain = NULL, *alone = NULL, *among = NULL, *without = NULL;
    struct ngd_pass_report report = {0};
    struct ngd_graph_options options;
    struct ngd_diag diag = {0};
    struct ngd_host_value hosts[2];
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS] = {6}, rows[NGD_GRAPH_MAX_SYMBOLS] = {3}, values[2];
    struct made want, got, both;
    uint32_t matched;

    if (ngd_graph_parse(ngd_strbuf_str(&w->text), w->text.len, &g, &diag))
        return; /* not every near miss is a graph, nor is every choice of dtypes */
    ngd_graph_options_init(&options);
    if (make_plan(&f->b, g, symbols, NULL, NULL, NULL, &plain, &diag)) { /* nor has the host all of them */
        ngd_graph_unref(g);
        return;
    }
    run_check(make_plan(&f->b, g, symbols, &options, f->only, &report, &alone, &diag), &diag, "alone");
    run_check(make_plan(&f->b, g, symbols, &options, f->all, NULL, &among, &diag), &diag, "among all");
    run_check(make_plan(&f->b, g, symbols, &options, f->without, NULL, &without, &diag), &diag, "without");
    matched = report.of[NGD_PASS_FUSE_FIRST].changed + report.of[NGD_PASS_FUSE_EARLY].changed +
              report.of[NGD_PASS_FUSE_LATE].changed;
    if (w->miss == MISS_NONE)
        ck_assert_msg(matched == 1, "%s matches %u times\n%s", w->p->name, matched, ngd_strbuf_str(&w->text));
    else if (w->miss != MISS_WRITE && w->missed)
        ck_assert_msg(matched == 0, "%s matches in spite of another %s\n%s", w->p->name, miss_names[w->miss],
                      ngd_strbuf_str(&w->text));
    t->made[w->miss] += w->miss == MISS_NONE || w->missed;
    t->alone += w->miss == MISS_NONE && matched;
    t->among += w->miss == MISS_NONE && !ngd_digest_equal(&among->graph->digest, &without->graph->digest);
    fill_hosts(w, values, hosts);
    want = run_plan(&f->b, plain, rows, hosts, false);
    got = run_plan(&f->b, alone, rows, hosts, false);
    both = run_plan(&f->b, among, rows, hosts, false);
    ck_assert_msg(want.status == NGD_OK || w->miss != MISS_NONE, "%s\n%s", ngd_status_name(want.status),
                  ngd_strbuf_str(&w->text));
    ck_assert_msg(same_bits(&want, &got) && same_bits(&want, &both), "%s (%s): another result with it\n%s", w->p->name,
                  miss_names[w->miss], ngd_strbuf_str(&w->text));
    free(want.data);
    free(got.data);
    free(both.data);
    ngd_plan_unref(plain);
    ngd_plan_unref(alone);
    ngd_plan_unref(among);
    ngd_plan_unref(without);
    ngd_graph_unref(g);
}

/* Whether the bindings make a graph: an operator may want operands of one dtype where the pattern leaves it open. */
static bool is_graph(struct instance *w)
{
    struct ngd_graph *g = NULL;
    bool is;

    print_instance(w);
    is = ngd_graph_parse(ngd_strbuf_str(&w->text), w->text.len, &g, NULL) == NGD_OK;
    if (is)
        ngd_graph_unref(g);
    ngd_strbuf_fini(&w->text);
    return is;
}

static void check_pattern(struct fixture *f, uint32_t which, uint64_t n, struct tally *t)
{
    const struct ngd_pattern *p = f->all->patterns[which];

    f->only = some_of(f->all, which, true);
    f->without = some_of(f->all, which, false);
    for (uint64_t seed = 0; seed < n; seed++) {
        struct instance w = {.p = p, .r = {seed * 131 + which}};

        random_u32(&w.r);
        do
            choose_bindings(&w);
        while (!is_graph(&w));
        w.miss = (enum miss)(seed % MISS_MAX);
        w.at = (uint32_t)random_below(&w.r, w.miss == MISS_DTYPE ? p->n_values : p->source.n_nodes);
        print_instance(&w);
        if (w.miss == MISS_NONE || w.missed)
            check_instance(f, &w, t);
        ngd_strbuf_fini(&w.text);
    }
    ngd_pattern_set_unref(f->only);
    ngd_pattern_set_unref(f->without);
}

START_TEST(every_built_in_pattern_matches_and_computes_the_same_bits_and_near_misses_do_not_match)
{
    struct fixture f = {.all = ngd_pattern_set_builtin()};
    uint64_t n = seeds(MISS_MAX * 8, "instances of each pattern");
    uint32_t misses[MISS_MAX] = {0};

    ck_assert_ptr_nonnull(f.all);
    bench_open(&f.b, ngd_cpu_isa(), 1);
    for (uint32_t i = 0; i < f.all->n; i++) {
        struct tally t = {{0}, 0, 0};

        check_pattern(&f, i, n, &t);
        if (getenv("NGD_TEST_VERBOSE"))
            fprintf(stderr, "%s: %u exact, %u matched, %u made a change among all\n", f.all->patterns[i]->name,
                    t.made[MISS_NONE], t.alone, t.among);
        ck_assert_msg(t.alone > 0, "pattern %s never matched", f.all->patterns[i]->name);
        ck_assert_msg(t.among > 0, "pattern %s makes no difference among all", f.all->patterns[i]->name);
        for (int k = 0; k < MISS_MAX; k++)
            misses[k] += t.made[k];
    }
    for (int k = 0; k < MISS_MAX; k++)
        ck_assert_msg(misses[k] > 0 || n < MISS_MAX, "no near miss of kind %s", miss_names[k]);
    bench_close(&f.b);
    ngd_pattern_set_unref(f.all);
}
END_TEST

/* ---- graphs of what passes look for ---- */

/* Grows node by node: a line that the parser refuses is left out, so types are the parser's affair. */
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

/* A node: its line, without results that are named here. True: the graph has it. */
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

/* One of the last few, so that chains get long. */
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

/* A value of the same type, perhaps itself. */
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

/* Fresh results as a rule, which nobody else reads; sometimes one that is read elsewhere, comes twice, or is a view. */
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
    if (random_below(&w->r, 3) == 0) /* somebody reads a part behind the cat */
        add(w, 1, "aten.abs(%%%s)", name(w, parts[random_below(&w->r, n + 1)]));
}

static uint32_t some_state(struct world *w)
{
    return w->g->states[random_below(&w->r, w->g->n_states)];
}

/* Writes of states: of a result that is computed for it, perhaps from it, or of anything; whole, or through a view. */
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

/* A part of a tensor replaced, of a state mostly, which it is copied back into; what is put may be of the state too. */
static void some_update(struct world *w)
{
    uint32_t s = some_state(w), x = random_below(&w->r, 4) ? s : random_below(&w->r, 2) ? recent_value(w) : like(w, s);
    const char *src = name(w, random_below(&w->r, 3) ? w->g->inputs[random_below(&w->r, w->g->n_inputs)] : x);
    bool added = false;

    switch (random_below(&w->r, 6)) {
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
    default:
        added = add(w, 1, "aten.slice_scatter(%%%s, %%%s)", name(w, x), src);
        break;
    }
    if (added && random_below(&w->r, 3) == 0)
        add(w, 1, "aten.abs(%%%s)", name(w, random_below(&w->r, 2) ? s : newest(w)));
    if (added && random_below(&w->r, 5))
        add(w, 0, "aten.copy_(%%%s, %%%s)", name(w, s), name(w, random_below(&w->r, 4) ? newest(w) : like(w, s)));
}

/* A state written through another shape of it, and copied back in its own, or nearly so. */
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

/* A norm as it is written out, or nearly: of something else than what it divides, of another power or mean, or read in
 * between. */
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

/* Heads and their tables, rotated as it is written out, or with the halves the wrong way round. */
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

/* Rows that are counted otherwise behind what takes them one by one; of a block of memory, or of something turned. */
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
        if (random_below(&w->r, 8) == 0) /* read as it is, too */
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

/* A few of the last values; most of the graph is dead then. */
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

/* What no node reads; nothing is dead then. */
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

/* What the passes did to all graphs together. */
struct effects {
    uint64_t changed[NGD_PASS_MAX];
    uint64_t placed; /* calls fewer than without the planner's own steps */
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

/* A pass that these graphs must give something to do, at its first place. */
static bool must_change(int id)
{
    const char *name = ngd_pass_info((ngd_pass_id_t)id)->name;

    return id != NGD_PASS_CUSTOM_PRE && id != NGD_PASS_CUSTOM_POST && id != NGD_PASS_FUSE_LATE &&
           id != NGD_PASS_ASSIGN_STREAMS && ngd_pass_find(name, strlen(name)) == id;
}

/* The graph that one pass alone makes; *changed_p: how often it changed something. */
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

UNIT_MAIN("ops/fusions", every_built_in_pattern_matches_and_computes_the_same_bits_and_near_misses_do_not_match,
          a_pass_that_runs_again_changes_nothing_more,
          what_passes_look_for_and_what_looks_like_it_gives_the_same_bits_with_and_without_them)
