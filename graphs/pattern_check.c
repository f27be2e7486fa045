/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a pattern before it may be used: its source is connected and binds all that the replacement needs, both sides
 * write the same states, and on sample types both sides compute results of the same types.
 *
 * Samples are combinations of dtypes with small dimensions that satisfy the constraints. The graph builder builds the
 * sides, so a shape rule decides here as it will in a graph.
 */
#include "graphs/graph_int.h"
#include "graphs/pattern.h"
#include <stdio.h>
#include <string.h>

#define SAMPLES      64  /* samples of dimensions to try */
#define GOOD_SAMPLES 2   /* good samples that are enough */
#define COMBINATIONS 256 /* combinations of dtypes to try */

static ngd_status_t refuse_pattern(const struct ngd_pattern *p, struct ngd_diag *diag, ngd_status_t status,
                                   const char *what, const char *name)
{
    return ngd_diag_set(diag, status, "pattern \"%s\": %s%s%s", p->name, name ? name : "", name ? " " : "", what);
}

/* ---- structure ---- */

static bool pattern_node_touches(const struct ngd_pattern_node *n, uint32_t value)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == value)
            return true;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (n->out[i] == value)
            return true;
    return false;
}

static bool makes_operand_of(const struct ngd_pattern_node *maker, const struct ngd_pattern_node *n)
{
    for (uint32_t i = 0; i < maker->n_out; i++)
        for (uint32_t k = 0; k < n->n_in; k++)
            if (maker->out[i] != NGD_PATTERN_NONE && maker->out[i] == n->in[k])
                return true;
    return false;
}

static bool shares_a_value(const struct ngd_pattern_node *a, const struct ngd_pattern_node *b)
{
    for (uint32_t i = 0; i < a->n_in; i++)
        if (a->in[i] != NGD_PATTERN_NONE && pattern_node_touches(b, a->in[i]))
            return true;
    for (uint32_t i = 0; i < a->n_out; i++)
        if (a->out[i] != NGD_PATTERN_NONE && pattern_node_touches(b, a->out[i]))
            return true;
    return false;
}

/* Chooses the order of matching, beginning with the last node: first the makers of operands, for which there is only
 * one candidate, then nodes that share a value. */
static ngd_status_t set_order(struct ngd_pattern *p, struct ngd_diag *diag)
{
    const struct ngd_pattern_side *s = &p->source;
    bool placed[NGD_PATTERN_MAX_NODES] = {false};
    uint32_t n = 0;

    p->order[n++] = s->n_nodes - 1;
    placed[s->n_nodes - 1] = true;
    while (n < s->n_nodes) {
        uint32_t found = NGD_PATTERN_NONE;

        for (int pass = 0; pass < 2 && found == NGD_PATTERN_NONE; pass++)
            for (uint32_t i = s->n_nodes; i-- > 0 && found == NGD_PATTERN_NONE;)
                for (uint32_t k = 0; k < n && !placed[i]; k++)
                    if (pass ? shares_a_value(&s->nodes[i], &s->nodes[p->order[k]])
                             : makes_operand_of(&s->nodes[i], &s->nodes[p->order[k]]))
                        found = i;
        if (found == NGD_PATTERN_NONE)
            return refuse_pattern(p, diag, NGD_ERR_INVALID_ARGUMENT, "the source has parts that no value connects",
                                  NULL);
        placed[found] = true;
        p->order[n++] = found;
    }
    return NGD_OK;
}

static bool used_by(const struct ngd_pattern_side *s, uint32_t value)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        for (uint32_t k = 0; k < s->nodes[i].n_in; k++)
            if (s->nodes[i].in[k] == value)
                return true;
    return false;
}

static ngd_status_t check_uses(struct ngd_pattern *p, struct ngd_diag *diag)
{
    for (uint32_t i = 0; i < p->n_values; i++)
        if (p->values[i].is_input && !used_by(&p->source, i))
            return refuse_pattern(p, diag, NGD_ERR_GRAPH_UNDEFINED,
                                  "is an input that the source does not use, so nothing binds it", p->values[i].name);
    for (uint32_t i = 0; i < p->source.n_nodes; i++) {
        const struct ngd_pattern_node *n = &p->source.nodes[i];

        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != NGD_PATTERN_NONE && !p->values[n->out[k]].returned && !used_by(&p->source, n->out[k]))
                return refuse_pattern(
                    p, diag, NGD_ERR_INVALID_ARGUMENT,
                    "is neither used nor returned by the source: write _ for a result that nobody may use",
                    p->values[n->out[k]].name);
    }
    if (p->source.n_returns != p->replacement.n_returns)
        return refuse_pattern(p, diag, NGD_ERR_GRAPH_ARITY,
                              "source and replacement do not return the same number of values", NULL);
    return NGD_OK;
}

/* ---- bindings ---- */

static void bind_dim(const struct ngd_pattern *p, ngd_dim_t dim, uint32_t *bound)
{
    uint32_t symbol;
    int64_t mult;

    if (!ngd_dim_is_const(dim) && ngd_expr_is_multiple(p->exprs, dim, &symbol, &mult) && mult == 1)
        *bound |= 1u << symbol;
}

static void bind_node(const struct ngd_pattern *p, const struct ngd_pattern_node *n, uint32_t *dims, uint32_t *floats)
{
    for (uint32_t i = 0; i < n->op->n_attrs; i++) {
        const struct ngd_pattern_attr *a = &n->attrs[i];

        if (a->kind == NGD_PATTERN_ATTR_FLOAT)
            *floats |= 1u << a->variable;
        if (a->kind != NGD_PATTERN_ATTR_GIVEN)
            continue;
        if (n->op->attrs[i].type == NGD_ATTR_INT)
            bind_dim(p, a->value.i, dims);
        for (uint32_t k = 0; n->op->attrs[i].type == NGD_ATTR_INTS && k < a->value.n; k++)
            bind_dim(p, a->value.list[k], dims);
    }
}

static ngd_status_t check_bound(struct ngd_pattern *p, struct ngd_diag *diag)
{
    uint32_t dims = 0, dtypes = 0, floats = 0;

    for (uint32_t i = 0; i < p->n_values; i++) {
        const struct ngd_pattern_value *v = &p->values[i];

        if (v->is_input && v->dtype >= 0)
            dtypes |= 1u << v->dtype;
        for (uint32_t k = 0; v->is_input && k < v->rank; k++)
            bind_dim(p, v->dims[k], &dims);
    }
    for (uint32_t i = 0; i < p->source.n_nodes; i++)
        bind_node(p, &p->source.nodes[i], &dims, &floats);
    for (uint32_t i = 0; i < p->n_dims; i++)
        if (!(dims >> i & 1))
            return refuse_pattern(
                p, diag, NGD_ERR_GRAPH_SYMBOL,
                "is a dimension that nothing binds: it must stand alone in an input's type or in an attribute "
                "of the source",
                p->dims[i].name);
    for (uint32_t i = 0; i < p->n_dtypes; i++)
        if (!(dtypes >> i & 1))
            return refuse_pattern(p, diag, NGD_ERR_GRAPH_SYMBOL, "is a dtype that no input has", p->dtypes[i].name);
    for (uint32_t i = 0; i < p->n_floats; i++)
        if (!(floats >> i & 1))
            return refuse_pattern(p, diag, NGD_ERR_GRAPH_SYMBOL, "is a float that no attribute of the source binds",
                                  p->floats[i]);
    return NGD_OK;
}

/* ---- aliases and writes ---- */

static uint32_t pattern_root(const struct ngd_pattern *p, const struct ngd_pattern_side *s, uint32_t value)
{
    while (!p->values[value].is_input && (s->nodes[p->values[value].node].op->flags & NGD_OPF_VIEW))
        value = s->nodes[p->values[value].node].in[0];
    return value;
}

static void written_by(const struct ngd_pattern *p, const struct ngd_pattern_side *s,
                       bool written[NGD_PATTERN_MAX_VALUES])
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        for (uint32_t k = 0; k < s->nodes[i].n_in && k < 32; k++)
            if ((s->nodes[i].op->mutates >> k & 1) && s->nodes[i].in[k] != NGD_PATTERN_NONE)
                written[pattern_root(p, s, s->nodes[i].in[k])] = true;
}

static ngd_status_t check_storage(struct ngd_pattern *p, struct ngd_diag *diag)
{
    bool by_source[NGD_PATTERN_MAX_VALUES] = {false}, by_replacement[NGD_PATTERN_MAX_VALUES] = {false};

    written_by(p, &p->source, by_source);
    written_by(p, &p->replacement, by_replacement);
    for (uint32_t i = 0; i < p->n_values; i++)
        if (by_source[i] != by_replacement[i])
            return refuse_pattern(p, diag, NGD_ERR_GRAPH_MUTATION,
                                  "is written by one side only: both must write the same states", p->values[i].name);
    for (uint32_t i = 0; i < p->replacement.n_returns; i++) {
        uint32_t of_source = pattern_root(p, &p->source, p->source.returns[i]),
                 root = pattern_root(p, &p->replacement, p->replacement.returns[i]);

        if (p->values[root].is_input && root != of_source)
            return refuse_pattern(
                p, diag, NGD_ERR_GRAPH_MUTATION,
                "is returned by the replacement as a view of an input, which would make an alias that the source "
                "does not make",
                p->values[p->replacement.returns[i]].name);
        for (uint32_t k = 0; k < i; k++)
            if (root == pattern_root(p, &p->replacement, p->replacement.returns[k]) &&
                of_source != pattern_root(p, &p->source, p->source.returns[k]))
                return refuse_pattern(p, diag, NGD_ERR_GRAPH_MUTATION,
                                      "and another returned value are views of one tensor, and the source's are not",
                                      p->values[p->replacement.returns[i]].name);
    }
    return NGD_OK;
}

/* ---- samples ---- */

struct sample {
    int64_t dims[NGD_PATTERN_MAX_DIMS];
    ngd_dtype_t dtypes[NGD_PATTERN_MAX_DTYPES];
    double floats[NGD_PATTERN_MAX_FLOATS];
    uint32_t n_prefix; /* leading dimensions that a * stands for */
};

/* Chooses distinct small dimensions, which differ between samples.
 * A linear congruence makes every daemon try the same. */
static bool choose_dims(const struct ngd_pattern *p, uint32_t number, struct sample *s)
{
    uint64_t state = number * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (uint32_t i = 0; i < p->n_dims; i++) {
        const struct ngd_pattern_dim *d = &p->dims[i];
        int64_t low = (d->min + d->multiple - 1) / d->multiple, high = d->max / d->multiple;

        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (low < 1)
            low = 1;
        if (high < low)
            return false;
        if (high > low + 7)
            high = low + 7;
        s->dims[i] = (low + (int64_t)((state >> 33) % (uint64_t)(high - low + 1))) * d->multiple;
    }
    s->n_prefix = number % 3;
    for (uint32_t i = 0; i < p->n_wheres; i++) {
        const struct ngd_pattern_where *w = &p->wheres[i];
        int64_t a, b;

        if (w->variable >= 0)
            continue;
        if (ngd_expr_eval(p->exprs, w->a, s->dims, &a) || ngd_expr_eval(p->exprs, w->b, s->dims, &b) ||
            !ngd_pattern_compare(w->compare, a, b))
            return false;
    }
    return true;
}

static void choose_floats(const struct ngd_pattern *p, struct sample *s)
{
    for (uint32_t i = 0; i < p->n_floats; i++)
        s->floats[i] = 1e-5;
    for (uint32_t i = 0; i < p->n_wheres; i++)
        if (p->wheres[i].variable >= 0)
            s->floats[p->wheres[i].variable] = p->wheres[i].value;
}

/* Chooses the n-th combination of allowed dtypes. Returns false past the last one. */
static bool choose_dtypes(const struct ngd_pattern *p, uint32_t n, struct sample *s)
{
    for (uint32_t i = 0; i < p->n_dtypes; i++) {
        uint32_t allowed = p->dtypes[i].allowed, count = (uint32_t)__builtin_popcount(allowed), which = n % count;

        n /= count;
        for (; which > 0; which--)
            allowed &= allowed - 1;
        s->dtypes[i] = (ngd_dtype_t)__builtin_ctz(allowed);
    }
    return n == 0;
}

static ngd_status_t sample_input(const struct ngd_pattern *p, const struct sample *s, struct ngd_graph *g,
                                 uint32_t value, bool written, uint32_t *made_p)
{
    static const int64_t prefixes[] = {3, 2};
    const struct ngd_pattern_value *v = &p->values[value];
    ngd_value_class_t cls = written                              ? NGD_VALUE_STATE
                            : v->classes & 1u << NGD_VALUE_INPUT ? NGD_VALUE_INPUT
                                                                 : (ngd_value_class_t)__builtin_ctz(v->classes);
    struct ngd_type type = {.dtype = v->dtype >= 0 ? s->dtypes[v->dtype] : (ngd_dtype_t)(-1 - v->dtype)};
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; v->prefix && i < s->n_prefix; i++)
        type.dims[type.rank++] = prefixes[i];
    for (uint32_t i = 0; i < v->rank && !status; i++) {
        if (type.rank == NGD_MAX_RANK)
            return NGD_ERR_GRAPH_RANK;
        status = ngd_expr_eval(p->exprs, v->dims[i], s->dims, &type.dims[type.rank++]);
    }
    return status ? status : ngd_graph_add_input(g, cls, NULL, NULL, &type, made_p, NULL);
}

static ngd_status_t sample_attrs(const struct ngd_pattern *p, const struct sample *s, const struct ngd_pattern_node *n,
                                 struct ngd_attr_value *attrs, bool *set, int64_t lists[][NGD_PATTERN_MAX_IN])
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < n->op->n_attrs && !status; i++) {
        const struct ngd_pattern_attr *a = &n->attrs[i];

        attrs[i] = a->value;
        set[i] = a->kind != NGD_PATTERN_ATTR_DEFAULT && (a->kind != NGD_PATTERN_ATTR_ANY || n->op->attrs[i].required);
        if (a->kind == NGD_PATTERN_ATTR_FLOAT)
            attrs[i].f = s->floats[a->variable];
        if (a->kind == NGD_PATTERN_ATTR_DTYPE)
            attrs[i].i = s->dtypes[a->variable];
        if (a->kind != NGD_PATTERN_ATTR_GIVEN)
            continue;
        if (n->op->attrs[i].type == NGD_ATTR_INT)
            status = ngd_expr_eval(p->exprs, a->value.i, s->dims, &attrs[i].i);
        for (uint32_t k = 0; n->op->attrs[i].type == NGD_ATTR_INTS && k < a->value.n && !status; k++)
            status = ngd_expr_eval(p->exprs, a->value.list[k], s->dims, &lists[i][k]);
        if (n->op->attrs[i].type == NGD_ATTR_INTS)
            attrs[i].list = lists[i];
    }
    return status;
}

static ngd_status_t sample_node(const struct ngd_pattern *p, const struct sample *s, struct ngd_graph *g,
                                const struct ngd_pattern_node *n, uint32_t *made, struct ngd_diag *diag)
{
    uint32_t in[NGD_PATTERN_MAX_IN], out[NGD_PATTERN_MAX_OUT];
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS];
    int64_t lists[NGD_OP_MAX_ATTRS][NGD_PATTERN_MAX_IN];
    bool set[NGD_OP_MAX_ATTRS];
    ngd_status_t status = sample_attrs(p, s, n, attrs, set, lists);

    for (uint32_t i = 0; i < n->n_in; i++)
        in[i] = n->in[i] == NGD_PATTERN_NONE ? NGD_VALUE_NONE : made[n->in[i]];
    if (!status)
        status = ngd_graph_add_node(g, n->op, in, n->n_in, attrs, set, out, NGD_PATTERN_MAX_OUT, diag);
    if (!status && g->nodes[g->n_nodes - 1].n_out != n->n_out)
        status = ngd_diag_set(diag, NGD_ERR_GRAPH_ARITY, "%s has a different number of results", n->op->name);
    for (uint32_t i = 0; i < n->n_out && !status; i++)
        if (n->out[i] != NGD_PATTERN_NONE)
            made[n->out[i]] = out[i];
    return status;
}

static ngd_status_t sample_side(const struct ngd_pattern *p, const struct sample *s,
                                const struct ngd_pattern_side *side, const bool *written, struct ngd_graph **g_p,
                                uint32_t *made, struct ngd_diag *diag)
{
    struct ngd_graph *g;
    ngd_status_t status = ngd_graph_create("sample", &g);

    if (status)
        return status;
    for (uint32_t i = 0; i < p->n_values && !status; i++)
        if (p->values[i].is_input)
            status = sample_input(p, s, g, i, written[i], &made[i]);
    for (uint32_t i = 0; i < side->n_nodes && !status; i++)
        status = sample_node(p, s, g, &side->nodes[i], made, diag);
    if (status) {
        ngd_graph_unref(g);
        return status;
    }
    *g_p = g;
    return NGD_OK;
}

static ngd_status_t compare_returns(const struct ngd_pattern *p, const struct ngd_graph *a, const uint32_t *made_a,
                                    const struct ngd_graph *b, const uint32_t *made_b, struct ngd_diag *diag)
{
    for (uint32_t i = 0; i < p->source.n_returns; i++) {
        const struct ngd_type *x = &a->values[made_a[p->source.returns[i]]].type,
                              *y = &b->values[made_b[p->replacement.returns[i]]].type;
        char tx[NGD_OP_TEXT], ty[NGD_OP_TEXT];

        if (!ngd_type_equal(x, y))
            return ngd_diag_set(
                diag, NGD_ERR_GRAPH_TYPE_MISMATCH,
                "pattern \"%s\": the replacement is of another type: for example, %%%s is %s in the source, "
                "and %%%s is %s",
                p->name, p->values[p->source.returns[i]].name, ngd_op_type_text(a, x, tx),
                p->values[p->replacement.returns[i]].name, ngd_op_type_text(b, y, ty));
    }
    return NGD_OK;
}

/* Tries a sample. *good_p: the source accepts its types. If it does, the replacement must accept them too. */
static ngd_status_t try_sample(const struct ngd_pattern *p, const struct sample *s, const bool *written, bool *good_p,
                               struct ngd_diag *diag)
{
    uint32_t made_a[NGD_PATTERN_MAX_VALUES] = {0}, made_b[NGD_PATTERN_MAX_VALUES] = {0};
    struct ngd_graph *a, *b;
    struct ngd_diag why = {0};
    ngd_status_t status = sample_side(p, s, &p->source, written, &a, made_a, &why);

    *good_p = status == NGD_OK;
    if (status == NGD_ERR_NO_MEMORY)
        return ngd_diag_set(diag, status, "out of host memory");
    if (status)
        return NGD_OK;
    status = sample_side(p, s, &p->replacement, written, &b, made_b, &why);
    if (status) {
        ngd_graph_unref(a);
        return ngd_diag_set(diag, status,
                            "pattern \"%s\": the replacement does not accept types that the source accepts: %.300s",
                            p->name, why.text[0] ? why.text : ngd_status_text(status));
    }
    status = compare_returns(p, a, made_a, b, made_b, diag);
    ngd_graph_unref(a);
    ngd_graph_unref(b);
    return status;
}

static ngd_status_t check_samples(struct ngd_pattern *p, struct ngd_diag *diag)
{
    bool written[NGD_PATTERN_MAX_VALUES] = {false}, any = false;
    uint32_t good_samples = 0;
    struct sample s = {.n_prefix = 0};

    written_by(p, &p->source, written);
    choose_floats(p, &s);
    for (uint32_t number = 0; number < SAMPLES && good_samples < GOOD_SAMPLES; number++) {
        bool good = false, one;

        if (!choose_dims(p, number, &s))
            continue;
        any = true;
        for (uint32_t n = 0; n < COMBINATIONS && choose_dtypes(p, n, &s); n++) {
            ngd_status_t status = try_sample(p, &s, written, &one, diag);

            if (status)
                return status;
            good = good || one;
        }
        good_samples += good;
    }
    if (!any)
        return refuse_pattern(p, diag, NGD_ERR_GRAPH_SYMBOL, "no small dimensions satisfy its constraints", NULL);
    if (good_samples == 0)
        return refuse_pattern(
            p, diag, NGD_ERR_GRAPH_SHAPE,
            "the source accepts none of the types that were tried: its inputs' types contradict its operators", NULL);
    return NGD_OK;
}

ngd_status_t ngd_pattern_check(struct ngd_pattern *p, bool samples, struct ngd_diag *diag)
{
    ngd_status_t status = check_uses(p, diag);

    if (!status)
        status = set_order(p, diag);
    if (!status)
        status = check_bound(p, diag);
    if (!status)
        status = check_storage(p, diag);
    return status || !samples ? status : check_samples(p, diag);
}
