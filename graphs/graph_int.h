/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GRAPH_INT_H
#define NGD_GRAPHS_GRAPH_INT_H

/* Inside of a graph: memory, name indexes, and the calls that the builder, parser and validator share. */
#include "base/mem.h"
#include "graphs/graph.h"
#include "graphs/op_int.h"
#include <stdatomic.h>

#define NGD_GRAPH_MAX_NAME    255  /* bytes of a value's, symbol's or graph's name */
#define NGD_GRAPH_MAX_STRING  4096 /* bytes of a label, output name or string attribute */
#define NGD_GRAPH_MAX_OUTPUTS 256
#define NGD_GRAPH_MAX_LIST    256 /* elements of a list attribute */
#define NGD_GRAPH_MAX_SCOPES  16  /* within each other, in a text */
#define NGD_GRAPH_MAX_CORES   1024
#define NGD_SYMBOL_MAX_VALUE  INT32_MAX
#define NGD_GRAPH_MAX_CHECKS  4096 /* visits of all guards together: what checking them may take of a replay */

/* A name that need not be terminated. */
struct ngd_slice {
    const char *p;
    size_t n;
};

/* Chained hash of values, or of outputs; entries are removed in the reverse order of their insertion only. */
struct ngd_value_index {
    uint32_t *heads;  /* value + 1; 0 ends a chain */
    uint32_t *next;   /* by value */
    uint64_t *hashes; /* by value */
    uint32_t n_heads;
    uint32_t cap_next;
};

struct ngd_graph_priv {
    struct ngd_arena arena; /* names, operand lists, attributes: lives as long as the graph */
    atomic_int refs;
    struct ngd_value_index names, labels; /* labels: of inputs, one name space per class */
    struct ngd_value_index outputs;
    bool rewritten; /* parsed as what was made of a graph within the limits: with copies of results it may be larger */
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

/* Appends a node with its results and infers their types; *node_p is its index. Leaves the graph as it was on failure.
 */
ngd_status_t ngd_graph_append(struct ngd_graph *graph, const struct ngd_node_spec *spec, uint32_t *node_p,
                              struct ngd_diag *diag);
static inline uint32_t ngd_graph_max_nodes(const struct ngd_graph *graph)
{
    return NGD_GRAPH_MAX_NODES + (graph->priv->rewritten ? NGD_GRAPH_MAX_VALUES : 0u);
}

/* Room for so many values at once; there may come more. */
ngd_status_t ngd_graph_reserve(struct ngd_graph *graph, uint32_t n_values);
uint32_t ngd_graph_find_value(const struct ngd_graph *graph, struct ngd_slice name); /* NGD_VALUE_NONE */

/* Rank, non-negative dimensions and bytes at the symbols' maxima; the text names the type only. */
ngd_status_t ngd_type_check(const struct ngd_graph *graph, const struct ngd_type *type, struct ngd_diag *diag);
bool ngd_type_equal(const struct ngd_type *a, const struct ngd_type *b);

bool ngd_name_ok(struct ngd_slice name);        /* of a value: [A-Za-z0-9_.]+ */
bool ngd_symbol_name_ok(struct ngd_slice name); /* an identifier that is no word of the language */
bool ngd_text_ok(const char *s, size_t n);      /* UTF-8 without NUL */

ngd_status_t ngd_node_scope_check(const struct ngd_graph *graph, const struct ngd_node_scope *scope,
                                  struct ngd_diag *diag);
/* Events: each recorded once, above those that wait for it. graph_streams.c. */
ngd_status_t ngd_graph_check_events(const struct ngd_graph *graph, struct ngd_diag *diag);
/* With a batch symbol: rows of different replays may be put into one. graph_batch.c. */
ngd_status_t ngd_graph_check_batch(const struct ngd_graph *graph, struct ngd_diag *diag);
/* op_collective.c: all of a group on one stream. */
ngd_status_t ngd_graph_check_collectives(const struct ngd_graph *graph, struct ngd_diag *diag);

/* Seals what passes made of a sealed graph: symbols may have become unused. */
ngd_status_t ngd_graph_seal_rewritten(struct ngd_graph *graph, struct ngd_diag *diag);
/* The same, but the digest is taken from the caller: computing it costs more than everything else here. */
ngd_status_t ngd_graph_seal_claimed(struct ngd_graph *graph, const struct ngd_digest *digest, struct ngd_diag *diag);

/* The digest of a graph whose structure is valid; graph_print.c. */
ngd_status_t ngd_graph_compute_digest(const struct ngd_graph *graph, struct ngd_digest *digest_p);
/* The attribute has the value that it has when it is not given. */
bool ngd_attr_is_default(const struct ngd_attr_schema *schema, const struct ngd_attr_value *a);
const char *ngd_value_class_name(ngd_value_class_t cls); /* "param" */
void ngd_print_float(double v, struct ngd_strbuf *sb);   /* shortest text that reads back the same */

#endif
