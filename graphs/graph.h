/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GRAPH_H
#define NGD_GRAPHS_GRAPH_H

/*
 * The graph: typed SSA operators over tensors whose dimensions may be symbols.
 *
 * A graph is built by the parser or through the builder calls. Sealing validates the whole graph and computes
 * its digest. From then on the graph is immutable, and any thread may read it. Graphs are reference counted.
 * Text form (ngd_graph_parse / ngd_graph_print; docs/graph-text.md is its reference):
 *
 *     npugraph 1
 *     graph "mlp" {
 *       sym B 1..16 buckets 16                 # or: exact (the default), or: batch buckets 16
 *       guard B != 3                           # a replay for which it does not hold is refused
 *       param %w : bf16[128,64] = "fc.weight"  # a buffer bound at registration, constant
 *       state %kv : f32[8,16,2,32] = "kv.0"    # a bound buffer that operators may write
 *       input %x : f32[B,64]                   # user input: raw bytes with each replay
 *       host %len : i64[B]                     # host parameter: integer (i64[]) or list, with each replay
 *       %y = aten.linear(%x, %w) : f32[B,128]
 *       %z, %i = aten.topk(%y) {k=4, dim=-1} : f32[B,4], i64[B,4]
 *       %n = aten.cat(%y, %y) {dim=1}
 *       stream "side" {                        # on a stream of its own; joined at the end
 *         limit_core_num 8, 16 {               # AI cores, vector cores
 *           %u = aten.mm(%x, %v)
 *         }
 *         npugraph_ex.tagged_event_record() {tag="u is there"}
 *       }
 *       npugraph_ex.tagged_event_wait() {tag="u is there"}
 *       return "values" = %z, "indices" = %i
 *     }
 *
 * Result types may be left out; where given they are checked. Comments run from # to the end of the line.
 * Names of values: [A-Za-z0-9_.]+ . An absent optional operand is written `none`.
 */
#include "base/digest.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "graphs/expr.h"
#include "graphs/op.h"
#include "graphs/relation.h"

#define NGD_MAX_RANK               8
#define NGD_GRAPH_MAX_NODES        65536
#define NGD_GRAPH_MAX_VALUES       262144
#define NGD_GRAPH_MAX_SYMBOLS      16
#define NGD_GRAPH_MAX_RELATIONS    64
#define NGD_GRAPH_MAX_OPERANDS     1040 /* weights, scales and offsets of 256 experts */
#define NGD_GRAPH_MAX_TEXT         (64u << 20)
#define NGD_GRAPH_MAX_TENSOR_BYTES ((uint64_t)1 << 46)
#define NGD_GRAPH_MAX_STREAMS      16 /* including the main one */
#define NGD_GRAPH_MAX_EVENTS       1000
#define NGD_GRAPH_MAX_GROUPS       8  /* groups that collectives name */
#define NGD_GROUP_MAX_RANKS        16 /* devices of a group */
#define NGD_GROUP_NAME_MAX         64
#define NGD_VALUE_NONE             UINT32_MAX

typedef enum ngd_value_class {
    NGD_VALUE_PARAM, /* weights: bound buffer, read only */
    NGD_VALUE_STATE, /* bound buffer, mutated in place */
    NGD_VALUE_INPUT, /* arrives with each replay */
    NGD_VALUE_HOST,  /* host parameter: i64 scalar or list, arrives with each replay */
    NGD_VALUE_NODE,  /* result of a node */
} ngd_value_class_t;

struct ngd_type {
    ngd_dtype_t dtype;
    uint8_t rank;
    ngd_dim_t dims[NGD_MAX_RANK]; /* row-major, contiguous */
};

typedef enum ngd_symbol_policy { NGD_SYMBOL_EXACT, NGD_SYMBOL_BUCKETS } ngd_symbol_policy_t;

#define NGD_MAX_BUCKETS 64
struct ngd_symbol {
    char *name;
    int64_t min, max; /* inclusive, 0 <= min <= max <= 2^31-1 */
    ngd_symbol_policy_t policy;
    bool batch; /* BUCKETS: the units are independent rows, so replays may be merged (graph_batch.c) */
    uint32_t n_buckets;
    int64_t buckets[NGD_MAX_BUCKETS]; /* ascending; the last is >= max */
    ngd_dim_t dim;
};

struct ngd_value {
    char *name; /* without the % */
    ngd_value_class_t cls;
    struct ngd_type type;
    char *label;      /* inputs of all classes: external name ("model.embed_tokens.weight"); default = name */
    uint32_t ordinal; /* within its class (param 0, 1, ...; input 0, 1, ...) */
    uint32_t node;    /* NODE: index of the producing node */
    uint32_t result;  /* NODE: which of its results */
    uint32_t n_uses;  /* operands and outputs that name it */
};

/*
 * Where a node runs. Streams allow nodes to run at the same time. They do not change the results, which are those of
 * running the nodes one after the other in the graph's order. A stream waits for the values of other streams that it
 * reads.
 */
struct ngd_node_scope {
    uint16_t stream;     /* index into the graph's streams; 0 is the main one */
    uint16_t aicore;     /* number of AI cores that its kernels may take; 0: no limit */
    uint16_t vectorcore; /* number of vector cores, used with aicore; 0: the device has none */
};

struct ngd_node {
    const struct ngd_op *op;
    uint32_t n_in, n_out;
    uint32_t *in; /* value indices; NGD_VALUE_NONE for an absent optional operand */
    uint32_t *out;
    struct ngd_attr_value *attrs; /* op->n_attrs, defaults filled in */
    uint32_t line;                /* line of the text, for diagnoses; 0: built by calls */
    struct ngd_node_scope scope;
};

struct ngd_graph_output {
    char *name;
    uint32_t value;
};

struct ngd_graph {
    char *name;
    struct ngd_expr_table *exprs;
    uint32_t n_symbols, n_values, n_nodes, n_outputs;
    struct ngd_symbol symbols[NGD_GRAPH_MAX_SYMBOLS];
    uint32_t n_relations;
    struct ngd_relation
        relations[NGD_GRAPH_MAX_RELATIONS]; /* in structural order; each holds for some values and not for others */
    struct ngd_value *values;
    struct ngd_node *nodes; /* in a valid order of execution */
    struct ngd_graph_output *outputs;
    uint32_t n_streams;                   /* 1 at least */
    char *streams[NGD_GRAPH_MAX_STREAMS]; /* names; the main stream's name is "" */
    uint32_t n_params, n_states, n_inputs, n_hosts;
    uint32_t *params, *states, *inputs, *hosts; /* value indices, by ordinal */
    bool sealed;
    struct ngd_digest
        digest; /* of the canonical text: includes labels and output names, but no value names and comments */
    struct ngd_graph_priv *priv;
};

/* Parses text into a sealed graph. The diagnosis names line, column and node, and says what would be right. */
ngd_status_t ngd_graph_parse(const char *text, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag);
/* Parses the text of a graph that passes made, with or without taps. Such a graph may have unused symbols. */
ngd_status_t ngd_graph_parse_rewritten(const char *text, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag);
struct ngd_graph *ngd_graph_ref(struct ngd_graph *graph);
struct ngd_graph *ngd_graph_unref(struct ngd_graph *graph); /* returns NULL; NULL is fine */
uint64_t ngd_graph_host_bytes(const struct ngd_graph *graph);

void ngd_graph_print(const struct ngd_graph *graph, struct ngd_strbuf *sb); /* parses back to the same digest */
/*
 * Prints the graph with additional outputs behind its own: a copy of each node's results, "tap:<value>". If the graph
 * has such names itself, they are "tap1:<value>" and so on. The text parses.
 */
void ngd_graph_print_tapped(const struct ngd_graph *graph, struct ngd_strbuf *sb);
const char *ngd_tap_value(const char *output); /* the name of the value that a tap is a copy of; points into output */
void ngd_graph_print_dot(const struct ngd_graph *graph, struct ngd_strbuf *sb);
void ngd_type_print(const struct ngd_graph *graph, const struct ngd_type *type, struct ngd_strbuf *sb);

/* Builder, for passes and tests: values get unique names when name is NULL. */
ngd_status_t ngd_graph_create(const char *name, struct ngd_graph **graph_p);
ngd_status_t ngd_graph_add_symbol(struct ngd_graph *graph, const char *name, int64_t min, int64_t max, ngd_dim_t *dim_p,
                                  struct ngd_diag *diag);
ngd_status_t ngd_graph_set_buckets(struct ngd_graph *graph, uint32_t symbol, const int64_t *buckets, uint32_t n,
                                   struct ngd_diag *diag);
/* Makes a bucketed symbol the graph's only batch symbol. Sealing checks whether the graph allows it. */
ngd_status_t ngd_graph_set_batch(struct ngd_graph *graph, uint32_t symbol, struct ngd_diag *diag);
/*
 * Adds a guard on the sizes that a replay asks for. A relation that holds for all values within the symbols' ranges, or
 * that the graph already has, is not added. One that never holds is refused: NGD_ERR_GRAPH_SYMBOL.
 */
ngd_status_t ngd_graph_add_relation(struct ngd_graph *graph, ngd_dim_t left, ngd_relation_op_t op, ngd_dim_t right,
                                    struct ngd_diag *diag);
/* Returns the batch symbol; n_symbols if there is none. */
uint32_t ngd_graph_batch_symbol(const struct ngd_graph *graph);
ngd_status_t ngd_graph_add_input(struct ngd_graph *graph, ngd_value_class_t cls, const char *name, const char *label,
                                 const struct ngd_type *type, uint32_t *value_p, struct ngd_diag *diag);
/* Adds a node. attrs: op->n_attrs values, or NULL for all defaults; set[i]: attrs[i] was given. results: receives n_out
 * value indices. */
ngd_status_t ngd_graph_add_node(struct ngd_graph *graph, const struct ngd_op *op, const uint32_t *in, uint32_t n_in,
                                const struct ngd_attr_value *attrs, const bool *set, uint32_t *results,
                                uint32_t max_results, struct ngd_diag *diag);
/* Finds the stream of that name, or adds it. */
ngd_status_t ngd_graph_add_stream(struct ngd_graph *graph, const char *name, uint16_t *stream_p, struct ngd_diag *diag);
/* Sets the scope of the nodes that are added from now on; NULL: the main stream without limits. */
ngd_status_t ngd_graph_set_scope(struct ngd_graph *graph, const struct ngd_node_scope *scope, struct ngd_diag *diag);
ngd_status_t ngd_graph_add_output(struct ngd_graph *graph, const char *name, uint32_t value, struct ngd_diag *diag);
/* Validates the whole graph and computes its digest. */
ngd_status_t ngd_graph_seal(struct ngd_graph *graph, struct ngd_diag *diag);
ngd_status_t ngd_graph_validate(const struct ngd_graph *graph, struct ngd_diag *diag);

/* Returns the type of an operand that is not absent. */
static inline const struct ngd_type *ngd_node_in(const struct ngd_graph *g, const struct ngd_node *n, uint32_t i)
{
    return &g->values[n->in[i]].type;
}
static inline bool ngd_node_has(const struct ngd_node *n, uint32_t i)
{
    return i < n->n_in && n->in[i] != NGD_VALUE_NONE;
}

static inline bool ngd_node_scope_equal(const struct ngd_node_scope *a, const struct ngd_node_scope *b)
{
    return a->stream == b->stream && a->aicore == b->aicore && a->vectorcore == b->vectorcore;
}

/* Finds an input of a class by its label or, if none has it, by its name. Returns its ordinal; -1: none. */
int ngd_graph_find_input(const struct ngd_graph *graph, ngd_value_class_t cls, const char *label);
int ngd_graph_find_output(const struct ngd_graph *graph, const char *name);

#endif
