/* SPDX-License-Identifier: Apache-2.0 */
/* The rewritable graph: copies graphs in and out, and keeps the list of nodes and the uses. */
#include "graphs/rewrite.h"
#include "base/mem.h"
#include "graphs/graph_int.h"
#include "graphs/op_int.h"
#include <assert.h>
#include <string.h>

#define POSITION_STEP ((uint64_t)1 << 20)

static ngd_status_t rewrite_no_memory(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory while rewriting the graph");
}

/* ---- copying graphs ---- */

/* A copy of one graph into another. It maps the values and the symbols. */
struct copy {
    const struct ngd_graph *from;
    struct ngd_graph *to;
    uint32_t *values; /* indexed by value of `from` */
    ngd_dim_t symbols[NGD_GRAPH_MAX_SYMBOLS];
    struct ngd_diag *diag;
};

static ngd_status_t copy_dim(const struct copy *c, ngd_dim_t dim, ngd_dim_t *dim_p)
{
    ngd_status_t status = ngd_expr_translate(c->from->exprs, dim, c->to->exprs, c->symbols, dim_p);

    if (status)
        return ngd_diag_set(c->diag, status, "a dimension of graph %s cannot be computed: %s", c->from->name,
                            ngd_status_text(status));
    return NGD_OK;
}

static ngd_status_t copy_symbols(struct copy *c, const int64_t *planned)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < c->from->n_symbols && !status; i++) {
        const struct ngd_symbol *s = &c->from->symbols[i];

        status = ngd_graph_add_symbol(c->to, s->name, s->min, s->max, &c->symbols[i], c->diag);
        if (!status && s->policy == NGD_SYMBOL_BUCKETS)
            status = ngd_graph_set_buckets(c->to, i, s->buckets, s->n_buckets, c->diag);
        if (!status && s->batch)
            status = ngd_graph_set_batch(c->to, i, c->diag);
        if (planned && s->policy == NGD_SYMBOL_EXACT)
            c->symbols[i] = planned[i];
    }
    return status;
}

/* Copies guards with all symbols, even those that planned values replace elsewhere:
 * guards are about requested sizes. */
static ngd_status_t copy_guards(const struct copy *c)
{
    ngd_dim_t symbols[NGD_GRAPH_MAX_SYMBOLS], left, right;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < c->to->n_symbols; i++)
        symbols[i] = c->to->symbols[i].dim;
    for (uint32_t i = 0; i < c->from->n_relations && !status; i++) {
        const struct ngd_relation *r = &c->from->relations[i];

        status = ngd_expr_translate(c->from->exprs, r->left, c->to->exprs, symbols, &left);
        if (!status)
            status = ngd_expr_translate(c->from->exprs, r->right, c->to->exprs, symbols, &right);
        status = status ? ngd_diag_set(c->diag, status, "a guard of graph %s cannot be copied: %s", c->from->name,
                                       ngd_status_text(status))
                        : ngd_graph_add_relation(c->to, left, r->op, right, c->diag);
    }
    return status;
}

static ngd_status_t copy_type(const struct copy *c, const struct ngd_type *from, struct ngd_type *to)
{
    ngd_status_t status = NGD_OK;

    *to = *from;
    for (uint32_t i = 0; i < from->rank && !status; i++)
        status = copy_dim(c, from->dims[i], &to->dims[i]);
    return status;
}

/* Copies all streams, so that they keep their numbers. */
static ngd_status_t copy_streams(const struct copy *c)
{
    ngd_status_t status = NGD_OK;
    uint16_t made;

    for (uint32_t i = 1; i < c->from->n_streams && !status; i++)
        status = ngd_graph_add_stream(c->to, c->from->streams[i], &made, c->diag);
    return status;
}

/* Copies inputs in the order of their values, so that the copy's text declares them in the same order. */
static ngd_status_t copy_inputs(struct copy *c)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < c->from->n_values && !status; i++) {
        const struct ngd_value *v = &c->from->values[i];
        struct ngd_type type;

        if (v->cls == NGD_VALUE_NODE)
            continue;
        status = copy_type(c, &v->type, &type);
        if (!status)
            status = ngd_graph_add_input(c->to, v->cls, v->name, v->label, &type, &c->values[i], c->diag);
    }
    return status;
}

struct scratch {
    uint32_t in[NGD_GRAPH_MAX_OPERANDS];
    struct ngd_slice names[NGD_GRAPH_MAX_OPERANDS];
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS];
    int64_t lists[NGD_OP_MAX_ATTRS][NGD_GRAPH_MAX_LIST];
};

static ngd_status_t copy_attrs(const struct copy *c, const struct ngd_node *n, struct scratch *s)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < n->op->n_attrs && !status; i++) {
        s->attrs[i] = n->attrs[i];
        if (n->op->attrs[i].type == NGD_ATTR_INT)
            status = copy_dim(c, n->attrs[i].i, &s->attrs[i].i);
        if (n->op->attrs[i].type != NGD_ATTR_INTS)
            continue;
        for (uint32_t k = 0; k < n->attrs[i].n && !status; k++)
            status = copy_dim(c, n->attrs[i].list[k], &s->lists[i][k]);
        s->attrs[i].list = s->lists[i];
    }
    return status;
}

/* Replaces a size of -1 by its value if another size has become 0, because S, which is 0, stood there. Beside a 0 the
 * -1 could not be inferred any more. */
static ngd_status_t copy_inferred(const struct copy *c, const struct ngd_node *n, struct scratch *s)
{
    const struct ngd_type *type = &c->from->values[n->out[0]].type;
    ngd_status_t status = NGD_OK;
    bool empty = false;

    for (uint32_t k = 0; k < n->attrs[0].n; k++)
        empty = empty || s->lists[0][k] == 0;
    for (uint32_t k = 0; empty && k < n->attrs[0].n && !status; k++)
        if (s->lists[0][k] == -1)
            status = copy_dim(c, type->dims[k], &s->lists[0][k]);
    return status;
}

/* Returns the value whose name a result gets: the value that it replaced if that one is gone, otherwise itself. */
static uint32_t name_source(const struct ngd_rewrite *rw, uint32_t value)
{
    uint32_t as = rw ? rw->values[value].named_as : NGD_VALUE_NONE;

    return as != NGD_VALUE_NONE && rw->nodes[rw->g->values[as].node].dead ? as : value;
}

/* Copies a node. rw NULL: results keep their names. */
static ngd_status_t copy_node(struct copy *c, uint32_t node, const struct ngd_rewrite *rw, struct scratch *s)
{
    const struct ngd_node *n = &c->from->nodes[node];
    struct ngd_node_spec spec = {
        .op = n->op, .in = s->in, .n_in = n->n_in, .attrs = s->attrs, .names = s->names, .n_names = n->n_out};
    uint32_t made;
    ngd_status_t status = copy_attrs(c, n, s);

    if (!status && ngd_op_infers_size(n->op))
        status = copy_inferred(c, n, s);
    spec.line = n->line;
    spec.scope = n->scope;
    for (uint32_t i = 0; i < n->n_in; i++)
        s->in[i] = n->in[i] == NGD_VALUE_NONE ? NGD_VALUE_NONE : c->values[n->in[i]];
    for (uint32_t i = 0; i < n->n_out; i++) {
        const char *name = c->from->values[name_source(rw, n->out[i])].name;

        s->names[i] = (struct ngd_slice){name, strlen(name)};
    }
    if (!status)
        status = ngd_graph_append(c->to, &spec, &made, c->diag);
    for (uint32_t i = 0; i < n->n_out && !status; i++)
        c->values[n->out[i]] = c->to->nodes[made].out[i];
    return status;
}

static ngd_status_t copy_node_outputs(struct copy *c)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < c->from->n_outputs && !status; i++)
        status = ngd_graph_add_output(c->to, c->from->outputs[i].name, c->values[c->from->outputs[i].value], c->diag);
    return status;
}

/* ---- uses ---- */

static void link_use(struct ngd_rewrite *rw, uint32_t use, uint32_t value)
{
    struct ngd_rewrite_value *v = &rw->values[value];

    rw->uses[use].prev = NGD_NODE_NONE;
    rw->uses[use].next = v->first_use;
    if (v->first_use != NGD_NODE_NONE)
        rw->uses[v->first_use].prev = use;
    v->first_use = use;
    v->n_uses++;
}

static void unlink_use(struct ngd_rewrite *rw, uint32_t use, uint32_t value)
{
    struct ngd_rewrite_use *u = &rw->uses[use];
    struct ngd_rewrite_value *v = &rw->values[value];

    if (u->prev == NGD_NODE_NONE)
        v->first_use = u->next;
    else
        rw->uses[u->prev].next = u->next;
    if (u->next != NGD_NODE_NONE)
        rw->uses[u->next].prev = u->prev;
    v->n_uses--;
}

static ngd_status_t grow_rewrite_array(void **array, uint32_t need, uint32_t *cap, size_t size)
{
    uint32_t want = *cap ? *cap : 64;
    void *p;

    if (need <= *cap) {
        ngd_move_array(array, *cap * size);
        return NGD_OK;
    }
    while (want < need)
        want *= 2;
    p = ngd_reallocarray(*array, want, size);
    if (!p)
        return NGD_ERR_NO_MEMORY;
    *array = p;
    *cap = want;
    return NGD_OK;
}

/* Adds records for the graph's new values and nodes. */
static ngd_status_t take_up(struct ngd_rewrite *rw)
{
    const struct ngd_graph *g = rw->g;
    uint32_t n_uses = rw->n_uses;

    for (uint32_t i = rw->n_nodes; i < g->n_nodes; i++)
        n_uses += g->nodes[i].n_in;
    if (grow_rewrite_array((void **)&rw->values, g->n_values, &rw->cap_values, sizeof(rw->values[0])) ||
        grow_rewrite_array((void **)&rw->nodes, g->n_nodes, &rw->cap_nodes, sizeof(rw->nodes[0])) ||
        grow_rewrite_array((void **)&rw->uses, n_uses, &rw->cap_uses, sizeof(rw->uses[0])))
        return NGD_ERR_NO_MEMORY;
    for (; rw->n_values < g->n_values; rw->n_values++)
        rw->values[rw->n_values] = (struct ngd_rewrite_value){.first_use = NGD_NODE_NONE, .named_as = NGD_VALUE_NONE};
    for (; rw->n_nodes < g->n_nodes; rw->n_nodes++) {
        const struct ngd_node *n = &g->nodes[rw->n_nodes];

        rw->nodes[rw->n_nodes] = (struct ngd_rewrite_node){
            .next = NGD_NODE_NONE, .prev = NGD_NODE_NONE, .first_use = rw->n_uses, .dead = true};
        for (uint32_t i = 0; i < n->n_in; i++) {
            rw->uses[rw->n_uses] = (struct ngd_rewrite_use){rw->n_nodes, i, NGD_NODE_NONE, NGD_NODE_NONE};
            if (n->in[i] != NGD_VALUE_NONE)
                link_use(rw, rw->n_uses, n->in[i]);
            rw->n_uses++;
        }
    }
    return NGD_OK;
}

/* ---- the list of nodes ---- */

static void number_all(struct ngd_rewrite *rw)
{
    uint64_t position = 0;

    for (uint32_t n = rw->first; n != NGD_NODE_NONE; n = rw->nodes[n].next)
        rw->nodes[n].position = position += POSITION_STEP;
}

static void insert_before(struct ngd_rewrite *rw, uint32_t node, uint32_t before)
{
    struct ngd_rewrite_node *n = &rw->nodes[node];
    uint64_t low, high;

    n->next = before;
    n->prev = before == NGD_NODE_NONE ? rw->last : rw->nodes[before].prev;
    if (n->prev == NGD_NODE_NONE)
        rw->first = node;
    else
        rw->nodes[n->prev].next = node;
    if (before == NGD_NODE_NONE)
        rw->last = node;
    else
        rw->nodes[before].prev = node;
    n->dead = false;
    rw->n_live++;
    low = n->prev == NGD_NODE_NONE ? 0 : rw->nodes[n->prev].position;
    high = before == NGD_NODE_NONE ? low + 2 * POSITION_STEP : rw->nodes[before].position;
    n->position = low + (high - low) / 2;
    if (n->position == low) /* the gap is used up */
        number_all(rw);
}

bool ngd_rewrite_is_dead(const struct ngd_rewrite *rw, uint32_t node)
{
    const struct ngd_node *n = ngd_rewrite_node(rw, node);

    if (n->op->mutates || (n->op->flags & (NGD_OPF_EVENT | NGD_OPF_COLLECTIVE)))
        return false;
    for (uint32_t i = 0; i < n->n_out; i++)
        if (ngd_rewrite_n_uses(rw, n->out[i]))
            return false;
    return true;
}

void ngd_rewrite_remove(struct ngd_rewrite *rw, uint32_t node)
{
    struct ngd_rewrite_node *n = &rw->nodes[node];
    const struct ngd_node *op = &rw->g->nodes[node];

    assert(!n->dead);
    for (uint32_t i = 0; i < op->n_out; i++)
        assert(ngd_rewrite_n_uses(rw, op->out[i]) == 0);
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] != NGD_VALUE_NONE)
            unlink_use(rw, n->first_use + i, op->in[i]);
    if (n->prev == NGD_NODE_NONE)
        rw->first = n->next;
    else
        rw->nodes[n->prev].next = n->next;
    if (n->next == NGD_NODE_NONE)
        rw->last = n->prev;
    else
        rw->nodes[n->next].prev = n->prev;
    n->dead = true;
    rw->n_live--;
}

/* Numbers the segments. A segment of a stream ends where the limits of cores change, and at an event, which is a
 * segment of its own. */
static void number_segments(struct ngd_rewrite *rw)
{
    struct {
        struct ngd_node_scope scope;
        uint32_t segment;
        bool open;
    } at[NGD_GRAPH_MAX_STREAMS] = {{.open = false}};

    for (uint32_t i = 0; i < rw->n_nodes; i++) {
        const struct ngd_node *n = &rw->g->nodes[i];
        uint16_t s = n->scope.stream;
        bool event = n->op->flags & NGD_OPF_EVENT;

        if (!at[s].open || event || !ngd_node_scope_equal(&at[s].scope, &n->scope)) {
            at[s].scope = n->scope;
            at[s].segment = rw->n_segments++;
        }
        at[s].open = !event;
        rw->nodes[i].segment = at[s].segment;
    }
}

/* ---- life ---- */

void ngd_rewrite_destroy(struct ngd_rewrite *rw)
{
    if (!rw)
        return;
    ngd_graph_unref(rw->g);
    ngd_free(rw->nodes);
    ngd_free(rw->values);
    ngd_free(rw->uses);
    ngd_free(rw);
}

static ngd_status_t copy_graph_in(struct ngd_rewrite *rw, const struct ngd_graph *graph, const int64_t *symbols,
                                  struct ngd_diag *diag)
{
    struct copy c = {.from = graph, .to = rw->g, .diag = diag};
    struct scratch *s = NGD_NEW(struct scratch);
    ngd_status_t status;

    c.values = NGD_NEW_N(uint32_t, graph->n_values + 1u);
    status = c.values && s ? copy_symbols(&c, symbols) : rewrite_no_memory(diag);
    if (!status)
        status = copy_guards(&c);
    if (!status)
        status = copy_streams(&c);
    if (!status)
        status = copy_inputs(&c);
    for (uint32_t i = 0; i < graph->n_nodes && !status; i++)
        status = copy_node(&c, i, NULL, s);
    if (!status)
        status = copy_node_outputs(&c);
    ngd_free(c.values);
    ngd_free(s);
    return status;
}

ngd_status_t ngd_rewrite_create(const struct ngd_graph *graph, const int64_t *symbols, struct ngd_rewrite **rw_p,
                                struct ngd_diag *diag)
{
    struct ngd_rewrite *rw = NGD_NEW(struct ngd_rewrite);
    ngd_status_t status;

    if (!rw)
        return rewrite_no_memory(diag);
    rw->first = rw->last = rw->like = NGD_NODE_NONE;
    status = ngd_graph_create(graph->name, &rw->g);
    if (status) {
        ngd_free(rw);
        return rewrite_no_memory(diag);
    }
    status = copy_graph_in(rw, graph, symbols, diag);
    if (!status && take_up(rw))
        status = rewrite_no_memory(diag);
    if (status) {
        ngd_rewrite_destroy(rw);
        return status;
    }
    rw->n_source = rw->n_values;
    for (uint32_t i = 0; i < rw->n_nodes; i++)
        insert_before(rw, i, NGD_NODE_NONE);
    for (uint32_t i = 0; i < rw->g->n_outputs; i++)
        rw->values[rw->g->outputs[i].value].n_outputs++;
    number_segments(rw);
    *rw_p = rw;
    return NGD_OK;
}

static ngd_status_t copy_graph_out(const struct ngd_rewrite *rw, struct copy *c)
{
    struct scratch *s = NGD_NEW(struct scratch);
    ngd_status_t status;

    c->values = NGD_NEW_N(uint32_t, rw->g->n_values + 1u);
    status = c->values && s ? copy_symbols(c, NULL) : rewrite_no_memory(c->diag);
    if (!status)
        status = copy_guards(c);
    if (!status)
        status = copy_streams(c);
    if (!status)
        status = copy_inputs(c);
    for (uint32_t n = rw->first; n != NGD_NODE_NONE && !status; n = rw->nodes[n].next)
        status = copy_node(c, n, rw, s);
    if (!status)
        status = copy_node_outputs(c);
    ngd_free(c->values);
    ngd_free(s);
    return status;
}

ngd_status_t ngd_rewrite_seal(const struct ngd_rewrite *rw, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    struct copy c = {.from = rw->g, .diag = diag};
    ngd_status_t status = ngd_graph_create(rw->g->name, &c.to);

    if (status)
        return rewrite_no_memory(diag);
    status = copy_graph_out(rw, &c);
    if (!status)
        status = ngd_graph_seal_rewritten(c.to, diag);
    if (status) {
        ngd_graph_unref(c.to);
        return status;
    }
    *graph_p = c.to;
    return NGD_OK;
}

/* ---- changes ---- */

ngd_status_t ngd_rewrite_add(struct ngd_rewrite *rw, uint32_t before, const struct ngd_op *op, const uint32_t *in,
                             uint32_t n_in, const struct ngd_attr_value *attrs, uint32_t *node_p, struct ngd_diag *diag)
{
    struct ngd_node_spec spec = {.op = op, .in = in, .n_in = n_in, .attrs = attrs};
    uint32_t node, like = rw->like != NGD_NODE_NONE ? rw->like : before;
    ngd_status_t status;

    if (before != NGD_NODE_NONE)
        spec.line = rw->g->nodes[before].line;
    if (like != NGD_NODE_NONE)
        spec.scope = rw->g->nodes[like].scope;
    status = ngd_graph_append(rw->g, &spec, &node, diag);
    if (status)
        return status;
    if (take_up(rw))
        return rewrite_no_memory(diag);
    insert_before(rw, node, before);
    rw->nodes[node].segment = like != NGD_NODE_NONE ? rw->nodes[like].segment : rw->n_segments++;
    *node_p = node;
    return NGD_OK;
}

void ngd_rewrite_set_operand(struct ngd_rewrite *rw, uint32_t node, uint32_t operand, uint32_t value)
{
    struct ngd_node *n = &rw->g->nodes[node];
    uint32_t use = rw->nodes[node].first_use + operand;

    if (n->in[operand] != NGD_VALUE_NONE)
        unlink_use(rw, use, n->in[operand]);
    n->in[operand] = value;
    if (value != NGD_VALUE_NONE)
        link_use(rw, use, value);
}

void ngd_rewrite_replace(struct ngd_rewrite *rw, uint32_t old, uint32_t new_value)
{
    struct ngd_rewrite_value *from = &rw->values[old], *to = &rw->values[new_value];

    /* A value that a pass made, and that has no other name yet, takes the name of the value that it replaces. */
    if (new_value >= rw->n_source && to->named_as == NGD_VALUE_NONE && ngd_rewrite_maker(rw, old) != NGD_NODE_NONE)
        to->named_as = from->named_as == NGD_VALUE_NONE ? old : from->named_as;
    while (from->first_use != NGD_NODE_NONE) {
        struct ngd_rewrite_use u = rw->uses[from->first_use];

        ngd_rewrite_set_operand(rw, u.node, u.operand, new_value);
    }
    for (uint32_t i = 0; from->n_outputs && i < rw->g->n_outputs; i++) {
        if (rw->g->outputs[i].value != old)
            continue;
        rw->g->outputs[i].value = new_value;
        from->n_outputs--;
        to->n_outputs++;
    }
}

/* ---- queries ---- */

uint32_t ngd_rewrite_root(const struct ngd_rewrite *rw, uint32_t value)
{
    uint32_t maker = ngd_rewrite_maker(rw, value);

    while (maker != NGD_NODE_NONE && (rw->g->nodes[maker].op->flags & NGD_OPF_VIEW)) {
        value = rw->g->nodes[maker].in[0];
        maker = ngd_rewrite_maker(rw, value);
    }
    return value;
}

static bool belongs_to_state(const struct ngd_rewrite *rw, uint32_t value)
{
    return value != NGD_VALUE_NONE && rw->g->values[ngd_rewrite_root(rw, value)].cls == NGD_VALUE_STATE;
}

bool ngd_rewrite_touches_state(const struct ngd_rewrite *rw, uint32_t node)
{
    const struct ngd_node *n = &rw->g->nodes[node];

    for (uint32_t i = 0; i < n->n_in; i++)
        if (belongs_to_state(rw, n->in[i]))
            return true;
    return false;
}

static bool writes_state(const struct ngd_rewrite *rw, uint32_t node, uint32_t state)
{
    const struct ngd_node *n = &rw->g->nodes[node];

    for (uint32_t i = 0; n->op->mutates && i < n->n_in && i < 32; i++)
        if ((n->op->mutates >> i & 1) && ngd_node_has(n, i) && ngd_rewrite_root(rw, n->in[i]) == state)
            return true;
    return false;
}

bool ngd_rewrite_written_between(const struct ngd_rewrite *rw, uint32_t v, uint32_t after, uint32_t before)
{
    uint32_t state = ngd_rewrite_root(rw, v), n = after == NGD_NODE_NONE ? rw->first : rw->nodes[after].next;

    if (rw->g->values[state].cls != NGD_VALUE_STATE)
        return false;
    for (; n != NGD_NODE_NONE && n != before; n = rw->nodes[n].next)
        if (writes_state(rw, n, state))
            return true;
    return false;
}
