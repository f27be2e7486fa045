/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests instances of every built-in pattern on the host device. They are made from the pattern, with fixed seeds
 * (NGD_TEST_SEEDS sets how many): random dimensions, dtypes, scalars and leading dimensions, exact or bucketed. Each
 * must match, alone and among all patterns, and compute the same bits as without passes. Near misses must compute the
 * same bits too, and not match if they may not: with an outside user, another dtype, another attribute, or a node in
 * between. Half of the instances allow excess precision. Its dtypes must match only there, and compute nearly the same
 * (test_excess.c: no worse).
 */
#include "graphs/compare.h"
#include "tests/ops/rewritten.h"

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
    bool rows;  /* the first leading dimension is a bucketed symbol */
    bool allow; /* excess precision */
    enum miss miss;
    uint32_t at; /* the value or node of the source that makes the near miss */
    bool missed; /* the near miss could be made */
    struct ngd_strbuf text;
};

/* Returns a small dimension; for letters with a meaning, one for which indices up to 4 are valid. */
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

/* Prints an attribute that the pattern fixes; off: with another value. Returns false if there is no other value. */
static bool print_fixed(struct instance *w, const struct ngd_attr_schema *schema, const struct ngd_pattern_attr *a,
                        bool off)
{
    bool given = a->kind == NGD_PATTERN_ATTR_GIVEN;

    if (given && (strcmp(schema->name, "pre_tokens") == 0 || strcmp(schema->name, "next_tokens") == 0))
        off = false; /* pre_tokens and next_tokens are variables of their own: any value matches */
    switch (schema->type) {
    case NGD_ATTR_INT:
        ngd_strbuf_printf(&w->text, "%lld", (long long)(given ? dim_of(w, a->value.i) : schema->def_int) - off);
        return off;
    case NGD_ATTR_INTS:
        ngd_strbuf_append(&w->text, "[");
        for (uint32_t i = 0; given && i < a->value.n; i++) /* off: swaps the first two */
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

/* Prints a node of the source, unchanged or as a near miss. */
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

/* Prints an outside user of a result of the node that the source does not return; `_` too. */
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

/* Prints a write to a state that the pattern uses, before the node. */
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

/* Returns true if the pattern does not match another dtype of this input: other inputs share its variable, or it has
 * none. */
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

/* ---- matches ---- */

struct tally {
    uint32_t made[MISS_MAX], alone, among; /* of one pattern: instances by miss; matches alone; among all */
    uint32_t excess[2];                    /* exact instances of excess precision: not allowed; allowed */
};

static bool is_excess(const struct instance *w)
{
    for (uint32_t i = 0; i < w->p->n_dtypes; i++)
        if (w->p->dtypes[i].excess >> w->dtypes[i] & 1)
            return true;
    return false;
}

/* Compares all outputs, and then all states, within rounding errors. */
static bool nearly_same(const struct ngd_plan *plan, const int64_t *symbols, const struct made *got,
                        const struct made *want)
{
    const struct ngd_graph *g = plan->graph;
    struct ngd_difference diff;
    uint64_t at = 0;

    if (got->status || want->status || got->bytes != want->bytes)
        return got->status == want->status && got->bytes == want->bytes;
    for (uint32_t i = 0; i < g->n_outputs + g->n_states; i++) {
        const bool output = i < g->n_outputs;
        const uint32_t value = output ? g->outputs[i].value : g->states[i - g->n_outputs];
        const ngd_dtype_t dtype = g->values[value].type.dtype;
        const uint64_t bytes =
            output ? ngd_plan_output_bytes(plan, i, symbols) : plan->bound[g->n_params + i - g->n_outputs].bytes;

        if (!ngd_compare(dtype, got->data + at, want->data + at, bytes / ngd_dtype_bytes(dtype), &diff))
            return false;
        at += bytes;
    }
    return true;
}

/* Makes a set of one pattern, or of all but one. */
static struct ngd_pattern_set *some_of(struct ngd_pattern_set *all, uint32_t which, bool only)
{
    struct ngd_pattern_set *set;

    ck_assert_int_eq(ngd_pattern_set_create(&set), NGD_OK);
    for (uint32_t i = 0; i < all->n; i++)
        if ((i == which) == only)
            ck_assert_int_eq(ngd_pattern_set_add(set, all->patterns[i]), NGD_OK);
    return set;
}

/* Fills the host parameters of attention for one sequence: rows of the query, and context length. */
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
    const bool excess = is_excess(w);
    uint32_t matched, expected = w->miss == MISS_NONE && (w->allow || !excess);

    if (ngd_graph_parse(ngd_strbuf_str(&w->text), w->text.len, &g, &diag))
        return; /* not every near miss is a graph, nor is every choice of dtypes */
    ngd_graph_options_init(&options);
    options.allow_excess_precision = w->allow;
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
        ck_assert_msg(matched == expected, "%s matches %u times%s\n%s", w->p->name, matched,
                      w->allow ? ", excess precision allowed" : "", ngd_strbuf_str(&w->text));
    else if (w->miss != MISS_WRITE && w->missed)
        ck_assert_msg(matched == 0, "%s matches in spite of another %s\n%s", w->p->name, miss_names[w->miss],
                      ngd_strbuf_str(&w->text));
    t->made[w->miss] += w->miss == MISS_NONE || w->missed;
    t->alone += w->miss == MISS_NONE && matched;
    if (w->miss == MISS_NONE && excess)
        t->excess[expected]++;
    t->among += w->miss == MISS_NONE && !ngd_digest_equal(&among->graph->digest, &without->graph->digest);
    fill_hosts(w, values, hosts);
    want = run_plan(&f->b, plain, rows, hosts, false);
    got = run_plan(&f->b, alone, rows, hosts, false);
    both = run_plan(&f->b, among, rows, hosts, false);
    ck_assert_msg(want.status == NGD_OK || w->miss != MISS_NONE, "%s\n%s", ngd_status_name(want.status),
                  ngd_strbuf_str(&w->text));
    ck_assert_msg(excess && w->allow ? nearly_same(plain, rows, &got, &want) && nearly_same(plain, rows, &both, &want)
                                     : same_bits(&want, &got) && same_bits(&want, &both),
                  "%s (%s): another result with it\n%s", w->p->name, miss_names[w->miss], ngd_strbuf_str(&w->text));
    free(want.data);
    free(got.data);
    free(both.data);
    ngd_plan_unref(plain);
    ngd_plan_unref(alone);
    ngd_plan_unref(among);
    ngd_plan_unref(without);
    ngd_graph_unref(g);
}

/* Returns true if the bindings make a graph. An operator may need operands of one dtype where the
 * pattern allows more. */
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
        w.allow = seed / MISS_MAX % 2 == 0;
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
        struct tally t = {{0}, 0, 0, {0}};

        check_pattern(&f, i, n, &t);
        if (getenv("NGD_TEST_VERBOSE"))
            fprintf(stderr,
                    "%s: %u exact, %u matched, %u made a change among all, of excess precision %u did not, %u did\n",
                    f.all->patterns[i]->name, t.made[MISS_NONE], t.alone, t.among, t.excess[0], t.excess[1]);
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

UNIT_MAIN("ops/fusions", every_built_in_pattern_matches_and_computes_the_same_bits_and_near_misses_do_not_match)
