/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GRAPH_INT_H
#define NGD_GRAPHS_GRAPH_INT_H

/* Internals of a graph: memory, name indexes, and the calls that the builder, parser and validator share. */
#include "base/mem.h"
#include "graphs/graph.h"
#include "graphs/op_int.h"
#include <stdatomic.h>

#define NGD_GRAPH_MAX_NAME    255  /* bytes of a value's, symbol's or graph's name */
#define NGD_GRAPH_MAX_STRING  4096 /* bytes of a label, output name or string attribute */
#define NGD_GRAPH_MAX_OUTPUTS 256
#define NGD_GRAPH_MAX_LIST    256 /* elements of a list attribute */
#define NGD_GRAPH_MAX_SCOPES  16  /* nesting depth in a text */
#define NGD_GRAPH_MAX_CORES   1024
#define NGD_SYMBOL_MAX_VALUE  INT32_MAX
#define NGD_GRAPH_MAX_CHECKS  4096 /* entries that checking all guards may visit; bounds what guards cost a replay */

/* A name; not terminated. */
struct ngd_slice {
    const char *p;
    size_t n;
};

/* Chained hash table of values or outputs. Entries may be removed only in the reverse order of their insertion. */
struct ngd_value_index {
    uint32_t *heads;  /* value + 1; 0 ends a chain */
    uint32_t *next;   /* indexed by value */
    uint64_t *hashes; /* indexed by value */
    uint32_t n_heads;
    uint32_t cap_next;
};

struct ngd_graph_priv {
    struct ngd_arena arena; /* names, operand lists, attributes: lives as long as the graph */
    atomic_int refs;
    struct ngd_value_index names, labels; /* labels: of inputs, one name space per class */
    struct ngd_value_index outputs;
    bool rewritten; /* made from a graph within the limits; may be larger than they allow, because of copies of results
                     */
    uint32_t cap_values, cap_nodes, cap_outputs;
    uint32_t cap_params, cap_states, cap_inputs, cap_hosts;
    struct ngd_node_scope scope; /* of nodes that ngd_graph_add_node adds */
};

struct ngd_node_spec {
    const struct ngd_op *op;
    const uint32_t *in;
    uint32_t n_in;
    const struct ngd_attr_value *attrs; /* NULL: all defaults */
    const bool *set;
    const struct ngd_slice *names; /* of the results; NULL: made up */
    uint32_t n_names;
    uint32_t line;
    struct ngd_node_scope scope;
};

/* Appends a node with its results and infers their types. *node_p is its index.
 * A failure leaves the graph unchanged. */
ngd_status_t ngd_graph_append(struct ngd_graph *graph, const struct ngd_node_spec *spec, uint32_t *node_p,
                              struct ngd_diag *diag);
static inline uint32_t ngd_graph_max_nodes(const struct ngd_graph *graph)
{
    return NGD_GRAPH_MAX_NODES + (graph->priv->rewritten ? NGD_GRAPH_MAX_VALUES : 0u);
}

/* Reserves memory for n_values values in all. More of them may be added. */
ngd_status_t ngd_graph_reserve(struct ngd_graph *graph, uint32_t n_values);
uint32_t ngd_graph_find_value(const struct ngd_graph *graph, struct ngd_slice name); /* NGD_VALUE_NONE */

/* Checks rank, sign of the dimensions, and bytes at the symbols' maxima. The diagnosis names only the type. */
ngd_status_t ngd_type_check(const struct ngd_graph *graph, const struct ngd_type *type, struct ngd_diag *diag);
bool ngd_type_equal(const struct ngd_type *a, const struct ngd_type *b);

bool ngd_name_ok(struct ngd_slice name);        /* a value's name: [A-Za-z0-9_.]+ */
bool ngd_symbol_name_ok(struct ngd_slice name); /* an identifier, but not a keyword */
bool ngd_text_ok(const char *s, size_t n);      /* UTF-8 without NUL */

ngd_status_t ngd_node_scope_check(const struct ngd_graph *graph, const struct ngd_node_scope *scope,
                                  struct ngd_diag *diag);
/* Checks that each event is recorded once, above its waits. graph_streams.c. */
ngd_status_t ngd_graph_check_events(const struct ngd_graph *graph, struct ngd_diag *diag);
/* Checks, if there is a batch symbol, that rows of different replays may run in one. graph_batch.c. */
ngd_status_t ngd_graph_check_batch(const struct ngd_graph *graph, struct ngd_diag *diag);
/* Checks that all collectives of a group are on one stream. op_collective.c. */
ngd_status_t ngd_graph_check_collectives(const struct ngd_graph *graph, struct ngd_diag *diag);

/* Seals a graph that passes made from a sealed one. Its symbols may be unused. */
ngd_status_t ngd_graph_seal_rewritten(struct ngd_graph *graph, struct ngd_diag *diag);
/* Seals such a graph with the caller's digest, because computing it costs more than the rest of sealing. */
ngd_status_t ngd_graph_seal_claimed(struct ngd_graph *graph, const struct ngd_digest *digest, struct ngd_diag *diag);

/* Computes the digest of a graph whose structure is valid. graph_print.c. */
ngd_status_t ngd_graph_compute_digest(const struct ngd_graph *graph, struct ngd_digest *digest_p);
/* Returns true if the attribute has its default value. */
bool ngd_attr_is_default(const struct ngd_attr_schema *schema, const struct ngd_attr_value *a);
const char *ngd_value_class_name(ngd_value_class_t cls); /* "param" */
void ngd_print_float(double v, struct ngd_strbuf *sb);   /* prints the shortest text that reads back as v */

#endif
