/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching is a search with backtracking over the source's nodes, in the pattern's order. If a result of the source's
 * node is bound, its maker is the only candidate. Otherwise the users of a bound operand are candidates, of the operand
 * with the fewest uses. Single dimensions, dtypes and floats are bound during the search. At the end, when all are
 * bound, everything is compared again.
 *
 * A replacement is correct because:
 *   - no other node uses a value that the source does not return;
 *   - the replacement is placed at the last matched node or, if another node uses a result before that, directly before
 *     the first such user; all operands must be defined there;
 *   - a node that reads a state is not moved across one that writes it, nor a node that writes a state across one that
 *     reads or writes it; and the matched nodes keep the source's order among themselves;
 *   - the results have the same types, and the target has each operator of the replacement.
 */
#include "graphs/pattern_match.h"
#include "base/mem.h"
#include "graphs/op_traits.h"
#include <math.h>
#include <string.h>

#define MAX_STEPS 4096 /* candidates to try for one anchor */

struct match {
    struct ngd_pass_context *ctx;
    const struct ngd_pattern *p;
    uint32_t *steps;
    uint32_t node_of[NGD_PATTERN_MAX_NODES];   /* indexed by node of the source */
    uint32_t value_of[NGD_PATTERN_MAX_VALUES]; /* indexed by value of the pattern */
    bool bound[NGD_PATTERN_MAX_VALUES];
    ngd_dim_t dims[NGD_PATTERN_MAX_DIMS];
    uint32_t dims_bound;
    int dtypes[NGD_PATTERN_MAX_DTYPES]; /* -1: not bound */
    double floats[NGD_PATTERN_MAX_FLOATS];
    uint32_t floats_bound;
    bool prefix_bound;
    uint32_t n_prefix;
    ngd_dim_t prefix[NGD_MAX_RANK];
};

static struct ngd_expr_table *exprs(const struct match *m)
{
    return m->ctx->rw->g->exprs;
}

/* ---- dimensions and scalars ---- */

static bool in_range(const struct match *m, const struct ngd_pattern_dim *d, ngd_dim_t dim)
{
    int64_t low, high, mult;
    uint32_t symbol;

    if (ngd_expr_bounds(exprs(m), dim, &low, &high) || low < d->min || high > d->max)
        return false;
    if (d->multiple == 1)
        return true;
    if (ngd_dim_is_const(dim))
        return dim % d->multiple == 0;
    return ngd_expr_is_multiple(exprs(m), dim, &symbol, &mult) && mult % d->multiple == 0;
}

/* Binds or compares a single dimension; leaves expressions for the end. */
static bool unify_dim(struct match *m, ngd_dim_t of_pattern, ngd_dim_t dim)
{
    uint32_t i;
    int64_t mult;

    if (ngd_dim_is_const(of_pattern))
        return of_pattern == dim;
    if (!ngd_expr_is_multiple(m->p->exprs, of_pattern, &i, &mult) || mult != 1)
        return true;
    if (m->dims_bound >> i & 1)
        return m->dims[i] == dim;
    if (!in_range(m, &m->p->dims[i], dim))
        return false;
    m->dims_bound |= 1u << i;
    m->dims[i] = dim;
    return true;
}

/* Compares a dimension when all dimensions of the pattern are bound. */
static bool match_dim(const struct match *m, ngd_dim_t of_pattern, ngd_dim_t dim)
{
    ngd_dim_t want;

    return ngd_expr_translate(m->p->exprs, of_pattern, exprs(m), m->dims, &want) == NGD_OK && want == dim;
}

static bool near(double a, double b, double tolerance)
{
    return a == b || fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

static bool unify_float(struct match *m, int variable, double v)
{
    if (m->floats_bound >> variable & 1)
        return m->floats[variable] == v;
    m->floats_bound |= 1u << variable;
    m->floats[variable] = v;
    return true;
}

static bool unify_dtype(struct match *m, int variable, int64_t dtype)
{
    const struct ngd_pattern_dtype *d = &m->p->dtypes[variable];
    const uint32_t allowed = m->ctx->options->allow_excess_precision ? d->allowed : d->allowed & ~d->excess;

    if (dtype < 0 || !(allowed >> dtype & 1))
        return false;
    if (m->dtypes[variable] >= 0)
        return m->dtypes[variable] == dtype;
    m->dtypes[variable] = (int)dtype;
    return true;
}

/* ---- values ---- */

static bool unify_type(struct match *m, const struct ngd_pattern_value *v, const struct ngd_type *type)
{
    uint32_t n_prefix = type->rank - v->rank;

    if (type->rank < v->rank || (!v->prefix && n_prefix))
        return false;
    if (v->dtype >= 0 ? !unify_dtype(m, v->dtype, type->dtype) : (int)type->dtype != -1 - v->dtype)
        return false;
    if (v->prefix && m->prefix_bound &&
        (n_prefix != m->n_prefix || memcmp(m->prefix, type->dims, n_prefix * sizeof(type->dims[0])) != 0))
        return false;
    if (v->prefix) {
        m->prefix_bound = true;
        m->n_prefix = n_prefix;
        memcpy(m->prefix, type->dims, n_prefix * sizeof(type->dims[0]));
    }
    for (uint32_t i = 0; i < v->rank; i++)
        if (!unify_dim(m, v->dims[i], type->dims[n_prefix + i]))
            return false;
    return true;
}

static bool unify_value(struct match *m, uint32_t of_pattern, uint32_t value)
{
    const struct ngd_pattern_value *v;

    if (of_pattern == NGD_PATTERN_NONE || value == NGD_VALUE_NONE)
        return of_pattern == NGD_PATTERN_NONE && value == NGD_VALUE_NONE;
    if (m->bound[of_pattern])
        return m->value_of[of_pattern] == value;
    v = &m->p->values[of_pattern];
    if (v->is_input && (!(v->classes >> m->ctx->rw->g->values[value].cls & 1) ||
                        !unify_type(m, v, ngd_rewrite_type(m->ctx->rw, value))))
        return false;
    m->bound[of_pattern] = true;
    m->value_of[of_pattern] = value;
    return true;
}

/* ---- nodes ---- */

static bool is_axis(const struct ngd_attr_schema *schema)
{
    return strcmp(schema->name, "dim") == 0 || strcmp(schema->name, "dim0") == 0 || strcmp(schema->name, "dim1") == 0 ||
           strcmp(schema->name, "axis") == 0;
}

/* Compares an integer attribute. rank: that of the tensor whose dimensions an axis counts, or 0. A negative axis of a
 * pattern also matches the same dimension if the graph counts it from the start. */
static bool same_int(struct match *m, ngd_dim_t of_pattern, ngd_dim_t v, uint32_t rank, bool at_end)
{
    if (rank && ngd_dim_is_const(of_pattern) && of_pattern < 0 && ngd_dim_is_const(v) && v >= 0)
        v -= rank;
    return at_end ? match_dim(m, of_pattern, v) : unify_dim(m, of_pattern, v);
}

static bool same_given(struct match *m, const struct ngd_attr_schema *schema, const struct ngd_pattern_attr *a,
                       const struct ngd_attr_value *v, uint32_t rank, bool at_end)
{
    rank = is_axis(schema) ? rank : 0;
    switch (schema->type) {
    case NGD_ATTR_INT:
        return same_int(m, a->value.i, v->i, rank, at_end);
    case NGD_ATTR_INTS:
        if (a->value.n != v->n)
            return false;
        for (uint32_t i = 0; i < v->n; i++)
            if (!same_int(m, a->value.list[i], v->list[i], rank, at_end))
                return false;
        return true;
    case NGD_ATTR_FLOAT:
        return near(a->value.f, v->f, a->tolerance) && (v->i == 0 || a->tolerance > 0);
    case NGD_ATTR_STR:
        return strcmp(a->value.s, v->s) == 0;
    case NGD_ATTR_BOOL:
    case NGD_ATTR_DTYPE:
        return a->value.i == v->i;
    }
    return false;
}

static bool is_default(const struct ngd_attr_schema *schema, const struct ngd_attr_value *v)
{
    switch (schema->type) {
    case NGD_ATTR_INTS:
        return v->n == 0;
    case NGD_ATTR_FLOAT:
        return v->i == 0 && v->f == schema->def_float;
    case NGD_ATTR_STR:
        return strcmp(v->s, schema->def_str) == 0;
    default:
        return v->i == schema->def_int;
    }
}

static bool match_attr(struct match *m, const struct ngd_attr_schema *schema, const struct ngd_pattern_attr *a,
                       const struct ngd_attr_value *v, uint32_t rank, bool at_end)
{
    switch (a->kind) {
    case NGD_PATTERN_ATTR_ANY:
        return true;
    case NGD_PATTERN_ATTR_DEFAULT:
        return is_default(schema, v);
    case NGD_PATTERN_ATTR_FLOAT:
        return v->i == 0 &&
               unify_float(m, a->variable, v->f); /* float variables are f64, so a wide integer does not match */
    case NGD_PATTERN_ATTR_DTYPE:
        return unify_dtype(m, a->variable, v->i);
    case NGD_PATTERN_ATTR_GIVEN:
        return same_given(m, schema, a, v, rank, at_end);
    }
    return false;
}

static bool same_attrs(struct match *m, const struct ngd_pattern_node *pn, const struct ngd_node *n, bool at_end)
{
    const struct ngd_rewrite *rw = m->ctx->rw;
    /* An axis counts the operand's dimensions, or the result's if the operator adds one. */
    const bool of_result = ngd_op_traits[n->op->id].adds_dimension;
    const uint32_t value = of_result ? n->out[0] : n->n_in ? n->in[0] : NGD_VALUE_NONE;
    const uint32_t rank = value == NGD_VALUE_NONE ? 0 : ngd_rewrite_type(rw, value)->rank;

    for (uint32_t i = 0; i < n->op->n_attrs; i++)
        if (!match_attr(m, &n->op->attrs[i], &pn->attrs[i], &n->attrs[i], rank, at_end))
            return false;
    return true;
}

static bool is_matched(const struct match *m, uint32_t node)
{
    for (uint32_t i = 0; i < m->p->source.n_nodes; i++)
        if (m->node_of[i] == node)
            return true;
    return false;
}

static bool unify_node(struct match *m, uint32_t of_pattern, uint32_t node, bool swapped)
{
    const struct ngd_pattern_node *pn = &m->p->source.nodes[of_pattern];
    const struct ngd_node *n = ngd_rewrite_node(m->ctx->rw, node);

    if (n->op != pn->op || n->n_in != pn->n_in || n->n_out != pn->n_out || is_matched(m, node))
        return false;
    if (!same_attrs(m, pn, n, false))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!unify_value(m, pn->in[i], n->in[swapped ? 1 - i : i]))
            return false;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (pn->out[i] == NGD_PATTERN_NONE ? ngd_rewrite_n_uses(m->ctx->rw, n->out[i]) > 0
                                           : !unify_value(m, pn->out[i], n->out[i]))
            return false;
    m->node_of[of_pattern] = node;
    return true;
}

/* Returns true if the operands may be swapped: a + b is b + a, but a + alpha*b is not b + alpha*a. */
static bool commutes(const struct ngd_pattern_node *pn, const struct ngd_node *n)
{
    int alpha = ngd_op_attr_index(n->op, "alpha", 5);

    return (n->op->flags & NGD_OPF_COMMUTES) && pn->n_in == 2 && n->n_in == 2 &&
           (alpha < 0 || n->attrs[alpha].f == 1.0);
}

/* ---- conditions on the whole match ---- */

static bool check_float(const struct ngd_pattern_where *w, double v)
{
    bool equal = near(v, w->value, w->tolerance);

    switch (w->compare) {
    case NGD_PATTERN_EQ:
        return equal;
    case NGD_PATTERN_NE:
        return !equal;
    case NGD_PATTERN_LT:
        return v < w->value && !equal;
    case NGD_PATTERN_LE:
        return v < w->value || equal;
    case NGD_PATTERN_GT:
        return v > w->value && !equal;
    case NGD_PATTERN_GE:
        return v > w->value || equal;
    }
    return false;
}

/* Checks a constraint; dimensions at the planned values. */
static bool check_where(const struct match *m, const struct ngd_pattern_where *w)
{
    ngd_dim_t da, db;
    int64_t a, b;

    if (w->variable >= 0)
        return check_float(w, m->floats[w->variable]);
    if (ngd_expr_translate(m->p->exprs, w->a, exprs(m), m->dims, &da) ||
        ngd_expr_translate(m->p->exprs, w->b, exprs(m), m->dims, &db) ||
        ngd_expr_eval(exprs(m), da, m->ctx->symbols, &a) || ngd_expr_eval(exprs(m), db, m->ctx->symbols, &b))
        return false;
    return ngd_pattern_compare(w->compare, a, b);
}

static bool check_pattern_bindings(struct match *m)
{
    const struct ngd_pattern *p = m->p;

    for (uint32_t i = 0; i < p->n_values; i++) {
        const struct ngd_pattern_value *v = &p->values[i];
        const struct ngd_type *type;

        if (!v->is_input)
            continue;
        type = ngd_rewrite_type(m->ctx->rw, m->value_of[i]);
        for (uint32_t k = 0; k < v->rank; k++)
            if (!match_dim(m, v->dims[k], type->dims[type->rank - v->rank + k]))
                return false;
    }
    for (uint32_t i = 0; i < p->source.n_nodes; i++)
        if (!same_attrs(m, &p->source.nodes[i], ngd_rewrite_node(m->ctx->rw, m->node_of[i]), true))
            return false;
    for (uint32_t i = 0; i < p->n_wheres; i++)
        if (!check_where(m, &p->wheres[i]))
            return false;
    return true;
}

/* Checks that no node outside the match uses a value that the source does not return. *user_p: the first outside user
 * of a returned value. */
static bool check_users(const struct match *m, uint32_t *user_p)
{
    const struct ngd_rewrite *rw = m->ctx->rw;

    *user_p = NGD_NODE_NONE;
    for (uint32_t i = 0; i < m->p->n_values; i++) {
        const struct ngd_pattern_value *v = &m->p->values[i];

        if (v->is_input || !m->bound[i])
            continue;
        if (!v->returned && rw->values[m->value_of[i]].n_outputs)
            return false;
        for (uint32_t u = rw->values[m->value_of[i]].first_use; u != NGD_NODE_NONE; u = rw->uses[u].next) {
            uint32_t node = rw->uses[u].node;

            if (is_matched(m, node))
                continue;
            if (!v->returned)
                return false;
            if (*user_p == NGD_NODE_NONE || ngd_rewrite_before(rw, node, *user_p))
                *user_p = node;
        }
    }
    return true;
}

/* Returns true if one of the nodes writes a state that the other reads or writes. */
static bool conflict(const struct ngd_rewrite *rw, uint32_t a, uint32_t b)
{
    const struct ngd_node *x = ngd_rewrite_node(rw, a), *y = ngd_rewrite_node(rw, b);

    if (!x->op->mutates && !y->op->mutates)
        return false;
    for (uint32_t i = 0; i < x->n_in; i++) {
        uint32_t root = x->in[i] == NGD_VALUE_NONE ? NGD_VALUE_NONE : ngd_rewrite_root(rw, x->in[i]);

        if (root == NGD_VALUE_NONE || rw->g->values[root].cls != NGD_VALUE_STATE)
            continue;
        for (uint32_t k = 0; k < y->n_in; k++) {
            bool writes = (i < 32 && x->op->mutates >> i & 1) || (k < 32 && y->op->mutates >> k & 1);

            if (writes && y->in[k] != NGD_VALUE_NONE && ngd_rewrite_root(rw, y->in[k]) == root)
                return true;
        }
    }
    return false;
}

/* Returns true if a matched node may be moved directly before node `place`. */
static bool may_move(const struct match *m, uint32_t node, uint32_t place)
{
    const struct ngd_rewrite *rw = m->ctx->rw;
    bool down = ngd_rewrite_before(rw, node, place);

    if (node == place || !ngd_rewrite_touches_state(rw, node))
        return true;
    for (uint32_t o = down ? node : place, end = down ? place : node; o != end; o = rw->nodes[o].next)
        if (o != node && !is_matched(m, o) && conflict(rw, node, o))
            return false;
    return true;
}

/* Checks that nodes that conflict have the same order in the graph as in the source. */
static bool check_order(const struct match *m)
{
    const struct ngd_rewrite *rw = m->ctx->rw;

    for (uint32_t i = 0; i < m->p->source.n_nodes; i++)
        for (uint32_t k = i + 1; k < m->p->source.n_nodes; k++)
            if (!ngd_rewrite_before(rw, m->node_of[i], m->node_of[k]) && conflict(rw, m->node_of[i], m->node_of[k]))
                return false;
    return true;
}

static bool find_place(const struct match *m, uint32_t user, uint32_t *place_p)
{
    const struct ngd_rewrite *rw = m->ctx->rw;
    uint32_t place = m->node_of[0];

    for (uint32_t i = 1; i < m->p->source.n_nodes; i++)
        if (ngd_rewrite_before(rw, place, m->node_of[i]))
            place = m->node_of[i];
    if (user != NGD_NODE_NONE && ngd_rewrite_before(rw, user, place))
        place = user;
    for (uint32_t i = 0; i < m->p->n_values; i++) {
        uint32_t maker = m->p->values[i].is_input ? ngd_rewrite_maker(rw, m->value_of[i]) : NGD_NODE_NONE;

        if (maker != NGD_NODE_NONE && (is_matched(m, maker) || !ngd_rewrite_before(rw, maker, place)))
            return false;
    }
    for (uint32_t i = 0; i < m->p->source.n_nodes; i++)
        if (!may_move(m, m->node_of[i], place))
            return false;
    *place_p = place;
    return check_order(m);
}

/* ---- replacing ---- */

struct built {
    uint32_t n, nodes[NGD_PATTERN_MAX_NODES];
    uint32_t value_of[NGD_PATTERN_MAX_VALUES];
};

static bool make_attrs(const struct match *m, const struct ngd_pattern_node *pn, struct ngd_attr_value *attrs,
                       int64_t lists[][NGD_PATTERN_MAX_IN])
{
    for (uint32_t i = 0; i < pn->op->n_attrs; i++) {
        const struct ngd_pattern_attr *a = &pn->attrs[i];
        const struct ngd_attr_schema *schema = &pn->op->attrs[i];

        attrs[i] = a->value;
        if (a->kind == NGD_PATTERN_ATTR_DEFAULT)
            attrs[i] = (struct ngd_attr_value){.i = schema->def_int,
                                               .f = schema->def_float,
                                               .s = schema->type == NGD_ATTR_STR ? schema->def_str : NULL};
        if (a->kind == NGD_PATTERN_ATTR_FLOAT)
            attrs[i].f = m->floats[a->variable];
        if (a->kind == NGD_PATTERN_ATTR_DTYPE)
            attrs[i].i = m->dtypes[a->variable];
        if (a->kind != NGD_PATTERN_ATTR_GIVEN)
            continue;
        if (schema->type == NGD_ATTR_INT && ngd_expr_translate(m->p->exprs, a->value.i, exprs(m), m->dims, &attrs[i].i))
            return false;
        if (schema->type != NGD_ATTR_INTS)
            continue;
        for (uint32_t k = 0; k < a->value.n; k++)
            if (ngd_expr_translate(m->p->exprs, a->value.list[k], exprs(m), m->dims, &lists[i][k]))
                return false;
        attrs[i].list = lists[i];
    }
    return true;
}

static ngd_status_t build_pattern_node(const struct match *m, const struct ngd_pattern_node *pn, uint32_t place,
                                       struct built *b)
{
    uint32_t in[NGD_PATTERN_MAX_IN], node;
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS];
    int64_t lists[NGD_OP_MAX_ATTRS][NGD_PATTERN_MAX_IN];
    const struct ngd_node *n;
    ngd_status_t status;

    if (!make_attrs(m, pn, attrs, lists))
        return NGD_ERR_GRAPH_SHAPE;
    for (uint32_t i = 0; i < pn->n_in; i++)
        in[i] = pn->in[i] == NGD_PATTERN_NONE      ? NGD_VALUE_NONE
                : m->p->values[pn->in[i]].is_input ? m->value_of[pn->in[i]]
                                                   : b->value_of[pn->in[i]];
    status = ngd_rewrite_add(m->ctx->rw, place, pn->op, in, pn->n_in, attrs, &node, NULL);
    if (status)
        return status;
    b->nodes[b->n++] = node;
    n = ngd_rewrite_node(m->ctx->rw, node);
    if (n->n_out != pn->n_out || !ngd_pass_supported(m->ctx, node))
        return NGD_ERR_OP_UNSUPPORTED;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (pn->out[i] != NGD_PATTERN_NONE)
            b->value_of[pn->out[i]] = n->out[i];
    return NGD_OK;
}

static bool same_returns(const struct match *m, const struct built *b)
{
    for (uint32_t i = 0; i < m->p->source.n_returns; i++) {
        const struct ngd_type *x = ngd_rewrite_type(m->ctx->rw, m->value_of[m->p->source.returns[i]]),
                              *y = ngd_rewrite_type(m->ctx->rw, b->value_of[m->p->replacement.returns[i]]);

        if (x->dtype != y->dtype || x->rank != y->rank || memcmp(x->dims, y->dims, x->rank * sizeof(x->dims[0])) != 0)
            return false;
    }
    return true;
}

/* Removes the matched nodes from the last to the first, so that none is used when it goes. */
static void remove_matched(const struct match *m)
{
    bool gone[NGD_PATTERN_MAX_NODES] = {false};

    for (uint32_t left = m->p->source.n_nodes; left > 0; left--) {
        uint32_t last = NGD_PATTERN_NONE;

        for (uint32_t i = 0; i < m->p->source.n_nodes; i++)
            if (!gone[i] &&
                (last == NGD_PATTERN_NONE || ngd_rewrite_before(m->ctx->rw, m->node_of[last], m->node_of[i])))
                last = i;
        gone[last] = true;
        ngd_rewrite_remove(m->ctx->rw, m->node_of[last]);
    }
}

/* Removes unused nodes of the replacement. They would be outside users of values that the next pattern matches. */
static void remove_unread(const struct match *m, const struct built *b)
{
    for (uint32_t i = b->n; i-- > 0;)
        if (ngd_rewrite_is_dead(m->ctx->rw, b->nodes[i]))
            ngd_rewrite_remove(m->ctx->rw, b->nodes[i]);
}

/* Returns true if the replacement rounds less than the matched nodes. */
static bool is_excess(const struct match *m)
{
    for (uint32_t i = 0; i < m->p->n_dtypes; i++)
        if (m->dtypes[i] >= 0 && m->p->dtypes[i].excess >> m->dtypes[i] & 1)
            return true;
    return false;
}

static ngd_status_t replace(const struct match *m, uint32_t place, bool *replaced_p)
{
    struct built b = {.n = 0};
    ngd_status_t status = NGD_OK;

    ngd_rewrite_scope_as(m->ctx->rw, m->node_of[0]);
    for (uint32_t i = 0; i < m->p->replacement.n_nodes && !status; i++)
        status = build_pattern_node(m, &m->p->replacement.nodes[i], place, &b);
    ngd_rewrite_scope_as(m->ctx->rw, NGD_NODE_NONE);
    if (status || !same_returns(m, &b)) {
        while (b.n > 0)
            ngd_rewrite_remove(m->ctx->rw, b.nodes[--b.n]);
        return status == NGD_ERR_NO_MEMORY ? ngd_diag_set(m->ctx->diag, status, "out of host memory") : NGD_OK;
    }
    for (uint32_t i = 0; i < m->p->source.n_returns; i++)
        ngd_rewrite_replace(m->ctx->rw, m->value_of[m->p->source.returns[i]], b.value_of[m->p->replacement.returns[i]]);
    remove_matched(m);
    remove_unread(m, &b);
    m->ctx->excess += is_excess(m);
    *replaced_p = true;
    return NGD_OK;
}

/* ---- the search ---- */

static ngd_status_t match_rest(const struct match *m, uint32_t depth, bool *replaced_p);

static ngd_status_t try_node(const struct match *m, uint32_t depth, uint32_t node, bool *replaced_p)
{
    uint32_t of_pattern = m->p->order[depth];
    const struct ngd_node *n = ngd_rewrite_node(m->ctx->rw, node);
    ngd_status_t status = NGD_OK;
    bool both;

    if (n->op != m->p->source.nodes[of_pattern].op || ++*m->steps > MAX_STEPS)
        return NGD_OK;
    both = commutes(&m->p->source.nodes[of_pattern], n); /* n may move: a replacement that is undone adds nodes too */
    if (depth && !ngd_rewrite_same_segment(m->ctx->rw, m->node_of[m->p->order[0]], node))
        return NGD_OK;
    for (int swapped = 0; swapped < 1 + both && !status && !*replaced_p; swapped++) {
        struct match next = *m;

        if (unify_node(&next, of_pattern, node, swapped))
            status = match_rest(&next, depth + 1, replaced_p);
    }
    return status;
}

/* Returns the bound operand of the source's node that has the fewest uses. */
static uint32_t known_value(const struct match *m, const struct ngd_pattern_node *pn)
{
    const struct ngd_rewrite *rw = m->ctx->rw;
    uint32_t best = NGD_VALUE_NONE;

    for (uint32_t i = 0; i < pn->n_in; i++) {
        uint32_t v = pn->in[i] == NGD_PATTERN_NONE || !m->bound[pn->in[i]] ? NGD_VALUE_NONE : m->value_of[pn->in[i]];

        if (v != NGD_VALUE_NONE && (best == NGD_VALUE_NONE || rw->values[v].n_uses < rw->values[best].n_uses))
            best = v;
    }
    return best;
}

static ngd_status_t match_rest(const struct match *m, uint32_t depth, bool *replaced_p)
{
    const struct ngd_pattern_node *pn;
    const struct ngd_rewrite *rw = m->ctx->rw;
    struct match whole;
    uint32_t value, place, next;
    ngd_status_t status = NGD_OK;

    if (depth == m->p->source.n_nodes) {
        whole = *m;
        if (check_pattern_bindings(&whole) && check_users(&whole, &place) && find_place(&whole, place, &place))
            return replace(&whole, place, replaced_p);
        return NGD_OK;
    }
    pn = &m->p->source.nodes[m->p->order[depth]];
    for (uint32_t i = 0; i < pn->n_out; i++)
        if (pn->out[i] != NGD_PATTERN_NONE && m->bound[pn->out[i]])
            return ngd_rewrite_maker(rw, m->value_of[pn->out[i]]) == NGD_NODE_NONE
                       ? NGD_OK
                       : try_node(m, depth, ngd_rewrite_maker(rw, m->value_of[pn->out[i]]), replaced_p);
    value = known_value(m, pn);
    if (value == NGD_VALUE_NONE)
        return NGD_OK;
    for (uint32_t u = rw->values[value].first_use; u != NGD_NODE_NONE && !status && !*replaced_p; u = next) {
        next = rw->uses[u].next; /* a replacement ends the loop; nothing of the match is used after it */
        status = try_node(m, depth, rw->uses[u].node, replaced_p);
    }
    return status;
}

ngd_status_t ngd_pattern_apply(struct ngd_pass_context *ctx, const struct ngd_pattern *p, uint32_t anchor,
                               bool *replaced_p)
{
    uint32_t steps = 0;
    struct match m = {.ctx = ctx, .p = p, .steps = &steps};

    *replaced_p = false;
    memset(m.node_of, 0xff, sizeof(m.node_of));
    for (uint32_t i = 0; i < NGD_PATTERN_MAX_DTYPES; i++)
        m.dtypes[i] = -1;
    return try_node(&m, 0, anchor, replaced_p);
}
