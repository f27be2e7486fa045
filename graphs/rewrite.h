/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_REWRITE_H
#define NGD_GRAPHS_REWRITE_H

/*
 * A graph that passes may change: a copy of a sealed graph. Its nodes are in a list, with positions, and each value has
 * a list of its uses. So replacing, inserting and removing take time only for the nodes and uses that they touch.
 *
 * Exact symbols are replaced by their planned values. Bucketed symbols stay, because rows are known only at a replay.
 * Inputs of all classes, outputs and symbols keep their order, number and names.
 *
 * Nodes and values are in a graph that only grows (rw->g); a dead node stays there. Sealing makes a new graph through
 * the builder and the validator, so that a pass cannot make a graph that a client could not register. A new value that
 * replaces another takes over its name.
 *
 * A node that a pass adds runs in the scope of the node behind it, or of the node given to ngd_rewrite_scope_as. A pass
 * combines nodes of one segment only, so that scopes hold and no node moves past an event.
 *
 * The order of nodes matters only for states: a node that reads or writes a state's storage sees earlier writes.
 *
 * Threads: one owner.
 */
#include "graphs/graph.h"

#define NGD_NODE_NONE UINT32_MAX

struct ngd_rewrite_use {
    uint32_t node, operand;
    uint32_t next, prev; /* uses of the same value; NGD_NODE_NONE ends the list */
};

struct ngd_rewrite_node {
    uint32_t next, prev; /* in the order of execution */
    uint64_t position;   /* ascends in that order */
    uint32_t first_use;  /* the use by operand 0; those by the other operands follow */
    uint32_t segment;    /* number of its segment: nodes of one scope with no event of their stream between them */
    bool dead;
};

struct ngd_rewrite_value {
    uint32_t first_use;
    uint32_t n_uses;    /* uses by operands of live nodes */
    uint32_t n_outputs; /* outputs of the graph that are this value */
    uint32_t named_as;  /* the value whose name it takes over; NGD_VALUE_NONE: none */
};

struct ngd_rewrite {
    struct ngd_graph *g; /* nodes and values by index: types, operands, attributes */
    uint32_t first, last;
    uint32_t n_live;
    uint32_t n_source; /* values of the original graph; the later ones were made by passes */
    struct ngd_rewrite_node *nodes;
    struct ngd_rewrite_value *values;
    struct ngd_rewrite_use *uses;
    uint32_t n_nodes, n_values, n_uses, cap_nodes, cap_values, cap_uses;
    uint32_t n_segments;
    uint32_t like; /* the node whose scope new nodes get; NGD_NODE_NONE: that of the node behind them */
};

/* Creates a rewrite. symbols: the planned value of each symbol of the graph. */
ngd_status_t ngd_rewrite_create(const struct ngd_graph *graph, const int64_t *symbols, struct ngd_rewrite **rw_p,
                                struct ngd_diag *diag);
void ngd_rewrite_destroy(struct ngd_rewrite *rw); /* NULL is fine */
/* Makes a sealed graph of the live nodes. rw does not change. */
ngd_status_t ngd_rewrite_seal(const struct ngd_rewrite *rw, struct ngd_graph **graph_p, struct ngd_diag *diag);

/*
 * Adds a node before another one (NGD_NODE_NONE: at the end). attrs: op->n_attrs values in rw->g's expressions, or
 * NULL for all defaults. The results' types are inferred. Operands must be defined before that place.
 */
ngd_status_t ngd_rewrite_add(struct ngd_rewrite *rw, uint32_t before, const struct ngd_op *op, const uint32_t *in,
                             uint32_t n_in, const struct ngd_attr_value *attrs, uint32_t *node_p,
                             struct ngd_diag *diag);
/* Makes nodes that are added from now on run in this node's scope; NGD_NODE_NONE: in that of the node behind them. */
static inline void ngd_rewrite_scope_as(struct ngd_rewrite *rw, uint32_t node)
{
    rw->like = node;
}
/* Makes all uses and outputs of `old` use `new_value`, which must be defined before them. */
void ngd_rewrite_replace(struct ngd_rewrite *rw, uint32_t old, uint32_t new_value);
void ngd_rewrite_set_operand(struct ngd_rewrite *rw, uint32_t node, uint32_t operand, uint32_t value);
/* Returns true if the node has no effect and its results have no uses. */
bool ngd_rewrite_is_dead(const struct ngd_rewrite *rw, uint32_t node);
/* Removes a node. Its results must have no uses. */
void ngd_rewrite_remove(struct ngd_rewrite *rw, uint32_t node);

static inline struct ngd_node *ngd_rewrite_node(const struct ngd_rewrite *rw, uint32_t node)
{
    return &rw->g->nodes[node];
}
static inline const struct ngd_type *ngd_rewrite_type(const struct ngd_rewrite *rw, uint32_t value)
{
    return &rw->g->values[value].type;
}
/* Returns the node that makes a value; NGD_NODE_NONE for an input. */
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
/* Returns the number of operands and outputs that are this value. */
static inline uint32_t ngd_rewrite_n_uses(const struct ngd_rewrite *rw, uint32_t value)
{
    return rw->values[value].n_uses + rw->values[value].n_outputs;
}
/* Returns the value at the bottom of a chain of views, whose storage this value may share. */
uint32_t ngd_rewrite_root(const struct ngd_rewrite *rw, uint32_t value);
/* Returns true if the node reads or writes the storage of a state. */
bool ngd_rewrite_touches_state(const struct ngd_rewrite *rw, uint32_t node);
/* Returns true if value `v` is in a state's storage, and a node after `after` and before `before` writes that state. */
bool ngd_rewrite_written_between(const struct ngd_rewrite *rw, uint32_t v, uint32_t after, uint32_t before);

#endif
