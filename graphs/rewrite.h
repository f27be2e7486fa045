/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_REWRITE_H
#define NGD_GRAPHS_REWRITE_H

/*
 * A graph that passes may change: a copy of a sealed one, with its nodes in a list, the uses of each value, and
 * positions, so that replacing, inserting and removing cost what they touch.
 *
 * Exact symbols are replaced by the values that they are planned at; bucketed ones stay symbols, because rows are
 * known at a replay only. Inputs of all classes, outputs and symbols keep their order, number and names.
 *
 * The nodes and values live in a graph that only grows (rw->g); a dead node stays there until the rewrite is sealed
 * into a new graph, through the builder and the validator, so that a pass cannot make what a client could not.
 * A new value that replaces one takes its name over.
 *
 * A node that a pass adds runs in the scope of the one that it stands before, or of the one that ngd_rewrite_scope_as
 * names. What is made of several nodes is made of those of one segment, so that scopes hold and nothing moves past an
 * event.
 *
 * Order matters for states only: a node that reads or writes a state's storage sees what was written before it.
 *
 * Threads: one owner.
 */
#include "graphs/graph.h"

#define NGD_NODE_NONE UINT32_MAX

struct ngd_rewrite_use {
    uint32_t node, operand;
    uint32_t next, prev; /* uses of the same value; NGD_NODE_NONE ends */
};

struct ngd_rewrite_node {
    uint32_t next, prev; /* in the order of execution */
    uint64_t position;   /* ascends in that order */
    uint32_t first_use;  /* of operand 0; the others follow */
    uint32_t segment;    /* nodes of one scope without an event of its stream between them */
    bool dead;
};

struct ngd_rewrite_value {
    uint32_t first_use;
    uint32_t n_uses;    /* by operands of live nodes */
    uint32_t n_outputs; /* outputs of the graph that it is */
    uint32_t named_as;  /* the value whose name it takes over; NGD_VALUE_NONE */
};

struct ngd_rewrite {
    struct ngd_graph *g; /* nodes and values by index: types, operands, attributes */
    uint32_t first, last;
    uint32_t n_live;
    uint32_t n_source; /* values that came with the graph; the others were made by passes */
    struct ngd_rewrite_node *nodes;
    struct ngd_rewrite_value *values;
    struct ngd_rewrite_use *uses;
    uint32_t n_nodes, n_values, n_uses, cap_nodes, cap_values, cap_uses;
    uint32_t n_segments;
    uint32_t like; /* the node whose scope new ones take; NGD_NODE_NONE: that of the one behind them */
};

/* symbols: a value for each symbol of the graph, as planned. */
ngd_status_t ngd_rewrite_create(const struct ngd_graph *graph, const int64_t *symbols, struct ngd_rewrite **rw_p,
                                struct ngd_diag *diag);
void ngd_rewrite_destroy(struct ngd_rewrite *rw); /* NULL is fine */
/* The live nodes as a sealed graph; rw stays as it is. */
ngd_status_t ngd_rewrite_seal(const struct ngd_rewrite *rw, struct ngd_graph **graph_p, struct ngd_diag *diag);

/*
 * Adds a node before another one (NGD_NODE_NONE: at the end). attrs: op->n_attrs values in rw->g's expressions, or
 * NULL for all defaults. Its results' types are inferred; operands must be defined before that place.
 */
ngd_status_t ngd_rewrite_add(struct ngd_rewrite *rw, uint32_t before, const struct ngd_op *op, const uint32_t *in,
                             uint32_t n_in, const struct ngd_attr_value *attrs, uint32_t *node_p,
                             struct ngd_diag *diag);
/* Nodes that are added from here on run where this one does; NGD_NODE_NONE: as the one that they stand before. */
static inline void ngd_rewrite_scope_as(struct ngd_rewrite *rw, uint32_t node)
{
    rw->like = node;
}
/* All uses and outputs that are `old` become `new`, which must be defined before them. */
void ngd_rewrite_replace(struct ngd_rewrite *rw, uint32_t old, uint32_t new_value);
void ngd_rewrite_set_operand(struct ngd_rewrite *rw, uint32_t node, uint32_t operand, uint32_t value);
/* It has no effect, and nobody uses its results. */
bool ngd_rewrite_is_dead(const struct ngd_rewrite *rw, uint32_t node);
/* Nobody may use its results any more. */
void ngd_rewrite_remove(struct ngd_rewrite *rw, uint32_t node);

static inline struct ngd_node *ngd_rewrite_node(const struct ngd_rewrite *rw, uint32_t node)
{
    return &rw->g->nodes[node];
}
static inline const struct ngd_type *ngd_rewrite_type(const struct ngd_rewrite *rw, uint32_t value)
{
    return &rw->g->values[value].type;
}
/* The node that makes a value; NGD_NODE_NONE for an input. */
static inline uint32_t ngd_rewrite_maker(const struct ngd_rewrite *rw, uint32_t value)
{
    return rw->g->values[value].cls == NGD_VALUE_NODE ? rw->g->values[value].node : NGD_NODE_NONE;
}
static inline bool ngd_rewrite_before(const struct ngd_rewrite *rw, uint32_t a, uint32_t b)
{
    return rw->nodes[a].position < rw->nodes[b].position;
}
static inline bool ngd_rewrite_same_segment(const struct ngd_rewrite *rw, uint32_t a, uint32_t b)
{
    return rw->nodes[a].segment == rw->nodes[b].segment;
}
/* Operands and outputs that are this value. */
static inline uint32_t ngd_rewrite_n_uses(const struct ngd_rewrite *rw, uint32_t value)
{
    return rw->values[value].n_uses + rw->values[value].n_outputs;
}
/* The value at the bottom of a chain of views: whose storage this one may share. */
uint32_t ngd_rewrite_root(const struct ngd_rewrite *rw, uint32_t value);
/* It reads or writes the storage of a state. */
bool ngd_rewrite_touches_state(const struct ngd_rewrite *rw, uint32_t node);
/* Value `v` is of a state's storage, and a node after `after` and before `before` writes that state. */
bool ngd_rewrite_written_between(const struct ngd_rewrite *rw, uint32_t v, uint32_t after, uint32_t before);

#endif
