/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_RANDOM_GRAPH_H
#define NGD_TESTS_RANDOM_GRAPH_H

/* Makes random graphs from the operator table; nodes that the builder refuses are left out. */
#include "graphs/graph_int.h"
#include "tests/unit/graph_util.h"

#define MAX_POOL 64

struct maker {
    uint64_t seed;
    struct ngd_graph *g;
    ngd_dim_t dims[12];
    uint32_t n_dims;
    uint32_t pool[MAX_POOL]; /* tensors to choose operands from */
    uint32_t n_pool;
    uint64_t
        streams; /* seed of scopes and events, which do not change the rest of the graph; 0: no scopes and events */
    uint32_t n_events;
    bool lone; /* no collectives, which need a group to run in */
};

static inline uint32_t draw(struct maker *m, uint32_t n)
{
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m->seed >> 33) % n;
}

static inline void pool_add(struct maker *m, uint32_t value)
{
    if (m->n_pool < MAX_POOL)
        m->pool[m->n_pool++] = value;
    else
        m->pool[draw(m, MAX_POOL)] = value;
}

/* Makes dimensions: constants, symbols and expressions of them. */
static inline void make_dims(struct maker *m)
{
    ngd_dim_t a, b;

    ck_assert_int_eq(ngd_graph_add_symbol(m->g, "A", draw(m, 3), 3 + draw(m, 9), &a, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_symbol(m->g, "b_2", 1, 16, &b, NULL), NGD_OK);
    if (draw(m, 2))
        ck_assert_int_eq(ngd_graph_set_buckets(m->g, 1, (int64_t[]){4, 20}, 2, NULL), NGD_OK);
    m->dims[m->n_dims++] = 1;
    m->dims[m->n_dims++] = 4;
    m->dims[m->n_dims++] = 8;
    m->dims[m->n_dims++] = a;
    m->dims[m->n_dims++] = b;
    while (m->n_dims < 12) {
        ngd_dim_t dim;
        int64_t lo, hi;

        if (ngd_expr_make(m->g->exprs, (ngd_expr_op_t)draw(m, 7), m->dims[draw(m, m->n_dims)],
                          m->dims[draw(m, m->n_dims)], &dim) == NGD_OK &&
            ngd_expr_bounds(m->g->exprs, dim, &lo, &hi) == NGD_OK && lo >= 0 && hi < 100000)
            m->dims[m->n_dims++] = dim;
    }
}

/* Adds some guards, which do not change the rest of the graph. */
static inline void add_guards(struct ngd_graph *g, uint64_t seed)
{
    struct maker m = {.seed = ~seed, .g = g};
    uint32_t n = draw(&m, 4);

    for (uint32_t i = 0; i < g->n_symbols; i++)
        m.dims[m.n_dims++] = g->symbols[i].dim;
    while (m.n_dims < 12) {
        ngd_dim_t dim = (int64_t)draw(&m, 20) - 5;

        if (draw(&m, 3))
            (void)ngd_expr_make(g->exprs, (ngd_expr_op_t)draw(&m, 7), m.dims[draw(&m, m.n_dims)],
                                m.dims[draw(&m, m.n_dims)], &dim);
        m.dims[m.n_dims++] = dim;
    }
    for (uint32_t i = 0; i < n; i++) /* what never holds is refused */
        (void)ngd_graph_add_relation(g, m.dims[draw(&m, 12)], (ngd_relation_op_t)draw(&m, NGD_RELATION_MAX),
                                     m.dims[draw(&m, 12)], NULL);
}

static inline void make_inputs(struct maker *m)
{
    uint32_t n = 2 + draw(m, 8);

    for (uint32_t i = 0; i < n; i++) {
        struct ngd_type type = {.dtype = (ngd_dtype_t)(draw(m, 3) ? NGD_F32 : draw(m, NGD_DTYPE_MAX))};
        ngd_value_class_t cls = (ngd_value_class_t)draw(m, 3);
        char label[24];
        uint32_t value;

        type.rank = (uint8_t)draw(m, 4);
        for (uint32_t k = 0; k < type.rank; k++)
            type.dims[k] = m->dims[draw(m, cls == NGD_VALUE_INPUT ? m->n_dims : 3)];
        snprintf(label, sizeof(label), "in\"%u\\\n", i);
        if (ngd_graph_add_input(m->g, cls, NULL, label, &type, &value, NULL) == NGD_OK)
            pool_add(m, value);
    }
}

static inline void make_attr(struct maker *m, const struct ngd_attr_schema *schema, struct ngd_attr_value *a,
                             int64_t list[4])
{
    static const char *const strings[] = {"tanh", "half", "TND", "none", "a\"\\\n\xc3\xa9"};
    static const double floats[] = {0, -0.0, 1, 0.1, -2.5e-30, 1e300, 3};

    a->i = schema->type == NGD_ATTR_INT ? (int64_t)draw(m, 5) - 2 : 0;
    if (schema->type == NGD_ATTR_INT && draw(m, 4) == 0)
        a->i = m->dims[draw(m, m->n_dims)];
    if (schema->type == NGD_ATTR_BOOL)
        a->i = draw(m, 2);
    if (schema->type == NGD_ATTR_DTYPE)
        a->i = (int64_t)draw(m, NGD_DTYPE_MAX + 1) - 1;
    a->f = floats[draw(m, 7)];
    a->s = strings[draw(m, 5)];
    a->n = draw(m, 4);
    a->list = list;
    for (uint32_t i = 0; i < 4; i++)
        list[i] = draw(m, 3) ? m->dims[draw(m, m->n_dims)] : (int64_t)draw(m, 4) - 1;
}

#define MAX_OPERANDS 16

/* Tries a random operator on random operands; most are refused. */
static inline void make_node(struct maker *m)
{
    const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)draw(m, NGD_OP_MAX));
    struct ngd_attr_value attrs[NGD_OP_MAX_ATTRS] = {0};
    bool set[NGD_OP_MAX_ATTRS];
    int64_t lists[NGD_OP_MAX_ATTRS][4];
    uint32_t in[MAX_OPERANDS], results[8] = {0}, n_in, before = m->g->n_nodes;

    if ((op->flags & NGD_OPF_EVENT) || (m->lone && (op->flags & NGD_OPF_COLLECTIVE)))
        return; /* events: make_scope */
    n_in = op->max_in == NGD_OP_VARIADIC ? 1 + draw(m, 3) : op->min_in + draw(m, op->max_in - op->min_in + 1u);
    ck_assert_uint_le(n_in, MAX_OPERANDS);
    for (uint32_t i = 0; i < n_in; i++)
        in[i] = i >= op->min_in && draw(m, 2) ? NGD_VALUE_NONE : m->pool[draw(m, m->n_pool)];
    if (n_in > 1 && draw(m, 2)) /* operands that fit each other */
        in[1] = in[0];
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        make_attr(m, &op->attrs[i], &attrs[i], lists[i]);
        set[i] = op->attrs[i].required || draw(m, 2);
    }
    if (ngd_graph_add_node(m->g, op, in, n_in, attrs, set, results, 8, NULL) != NGD_OK)
        return;
    for (uint32_t i = 0; i < m->g->nodes[before].n_out && i < 8; i++)
        pool_add(m, results[i]);
}

static inline uint32_t draw_scope(struct maker *m, uint32_t n)
{
    m->streams = m->streams * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m->streams >> 33) % n;
}

static inline void add_event(struct maker *m, ngd_op_id_t op, uint32_t event)
{
    char tag[16];
    struct ngd_attr_value attr = {.s = tag};

    snprintf(tag, sizeof(tag), "e%u", event);
    ck_assert_int_eq(ngd_graph_add_node(m->g, ngd_op_by_id(op), NULL, 0, &attr, NULL, NULL, 0, NULL), NGD_OK);
}

/* Sometimes changes the stream or the limits, or adds an event. */
static inline void make_scope(struct maker *m)
{
    struct ngd_node_scope scope = m->g->priv->scope;

    if (draw_scope(m, 3) == 0) {
        scope.stream = (uint16_t)draw_scope(m, m->g->n_streams);
        scope.aicore = draw_scope(m, 4) ? 0 : (uint16_t)(1 + draw_scope(m, 3));
        scope.vectorcore = 0;
        ck_assert_int_eq(ngd_graph_set_scope(m->g, &scope, NULL), NGD_OK);
    }
    if (draw_scope(m, 6) == 0)
        add_event(m, NGD_OP_NPUGRAPH_EX_TAGGED_EVENT_RECORD, m->n_events++);
    if (m->n_events && draw_scope(m, 6) == 0)
        add_event(m, NGD_OP_NPUGRAPH_EX_TAGGED_EVENT_WAIT, draw_scope(m, m->n_events));
}

static inline uint32_t count_computing(const struct ngd_graph *g)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += !(g->nodes[i].op->flags & NGD_OPF_EVENT);
    return n;
}

static inline struct ngd_graph *make_any_graph(uint64_t seed, uint32_t n_streams, bool lone)
{
    struct maker m = {
        .seed = seed * 2654435761u + 1, .streams = n_streams > 1 ? seed * 40503u + n_streams : 0, .lone = lone};

    ck_assert_int_eq(ngd_graph_create("random \"graph\"", &m.g), NGD_OK);
    make_dims(&m);
    make_inputs(&m);
    for (uint32_t i = 1; i < n_streams; i++) {
        char name[16];
        uint16_t stream;

        snprintf(name, sizeof(name), "s%u", i);
        ck_assert_int_eq(ngd_graph_add_stream(m.g, name, &stream, NULL), NGD_OK);
    }
    for (uint32_t i = 0; i < 300 && m.n_pool && count_computing(m.g) < 40; i++) {
        if (n_streams > 1)
            make_scope(&m);
        make_node(&m);
    }
    for (uint32_t i = 0; i < m.n_pool; i++) {
        char name[16];

        snprintf(name, sizeof(name), "out %u", i);
        if (draw(&m, 3) == 0)
            ck_assert_int_eq(ngd_graph_add_output(m.g, name, m.pool[i], NULL), NGD_OK);
    }
    return m.g;
}

/* Makes the graph of that seed on that many streams. */
static inline struct ngd_graph *make_streamed_graph(uint64_t seed, uint32_t n_streams)
{
    return make_any_graph(seed, n_streams, false);
}

static inline struct ngd_graph *make_graph(uint64_t seed)
{
    return make_any_graph(seed, 1, false);
}

/* Makes such a graph without collectives. */
static inline struct ngd_graph *make_lone_graph(uint64_t seed, uint32_t n_streams)
{
    return make_any_graph(seed, n_streams, true);
}

#endif
