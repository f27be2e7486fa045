/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_H
#define NGD_GRAPHS_PLAN_H

/*
 * A plan: a graph specialised to a key. Every shape is a number, views are resolved to strides, memory is
 * assigned as (space, offset), and the target has approved each operator. A plan has no device pointers.
 *
 * Spaces: tensor data lives in the pool (intermediates, copies of user inputs, results, workspaces) at
 * pool base + offset, or in a bound buffer (params first, then states, numbered together) at its base + offset.
 *
 * Rows: a bucketed symbol is planned at its bucket. A tensor whose dimension 0 is symbol*mult has
 * (row_sym, row_mult): in a replay a device may run only symbols[row_sym]*row_mult rows of it. Memory and
 * strides do not depend on the actual rows, and validation has shown that rows do not mix.
 *
 * Streams: calls are in an order in which they may run one after the other; this order defines the results. Calls on
 * different streams may also run at the same time, if each begins after the calls in its list of waits. Side streams
 * begin with the launch. Inputs are there before any call, and outputs are read when all streams have ended.
 *
 * Threads: immutable after creation. Reference counted.
 */
#include "graphs/graph.h"
#include "graphs/key.h"
#include "graphs/options.h"

#define NGD_PLAN_NONE  UINT32_MAX
#define NGD_NO_ROW_SYM 0xff

typedef enum ngd_plan_space { NGD_SPACE_POOL, NGD_SPACE_BOUND } ngd_plan_space_t;

struct ngd_plan_tensor {
    ngd_dtype_t dtype;
    uint8_t rank;
    uint8_t row_sym; /* NGD_NO_ROW_SYM: dimension 0 is fixed */
    ngd_plan_space_t space;
    uint32_t bound; /* BOUND: param ordinal, or n_params + state ordinal */
    int64_t row_mult;
    int64_t dims[NGD_MAX_RANK];
    int64_t strides[NGD_MAX_RANK]; /* in elements; 0 for broadcast (expand) */
    uint64_t offset;               /* bytes, from the pool's or the buffer's base; 64-byte aligned when a root */
    uint64_t bytes;                /* extent touched from offset on */
    uint32_t root;                 /* tensor whose storage this one views or took over in place; itself when a root */
};

struct ngd_plan_call {
    const struct ngd_op *op;
    uint32_t node; /* node of the graph, for diagnoses; a copy that the plan inserts names its consumer, a copy
                    * for an output the producer (NGD_PLAN_NONE: the output is an input) */
    uint32_t n_in, n_out;
    const uint32_t *in; /* plan tensors; NGD_PLAN_NONE for absent and for host operands */
    const uint32_t *out;
    const uint32_t *host;               /* per operand: host parameter ordinal or NGD_PLAN_NONE */
    const struct ngd_attr_value *attrs; /* all concrete */
    uint64_t workspace_offset;          /* in the pool, valid during this call */
    uint64_t workspace_bytes;
    struct ngd_node_scope scope; /* the node's scope */
    uint32_t n_waits;
    const uint32_t *waits; /* earlier calls, each on another stream, that must end before this one begins */
};

struct ngd_plan_io {
    uint32_t tensor;
    uint64_t bytes; /* at the bucket; if row_sym is set, a replay has row_bytes * rows bytes */
    uint64_t row_bytes;
    uint8_t row_sym;
    int64_t row_mult;
};

/* The result of memory planning: where the blocks of a plan lie in its pool. plan_memory.c numbers the blocks; the
 * numbers depend only on the graph, the key and the target. */
struct ngd_plan_layout {
    uint32_t n_blocks;
    const uint64_t *offsets;
    uint64_t pool_bytes, live_peak_bytes;
};

struct ngd_plan {
    struct ngd_graph *graph;  /* the planned graph: the source, or the graph that passes made of it. A reference */
    struct ngd_graph *source; /* the registered graph. A reference */
    struct ngd_key key;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS]; /* planned values: exact, or the bucket */
    uint32_t n_tensors, n_calls;
    struct ngd_plan_tensor *tensors;
    struct ngd_plan_call *calls;
    struct ngd_plan_io *inputs;    /* graph->n_inputs, copied into the pool at a replay */
    struct ngd_plan_io *outputs;   /* graph->n_outputs, copied out */
    struct ngd_plan_io *bound;     /* graph->n_params + n_states: tensor and the bytes that the buffer must have */
    uint64_t pool_bytes;           /* need of the pool */
    uint64_t live_peak_bytes;      /* lower bound: largest sum of live bytes */
    uint8_t matmul_precision;      /* NGD_PRECISION_*, the option */
    uint32_t n_streams;            /* 1 + the largest stream of a call; 1: the main one only */
    const uint32_t *clocks;        /* with several streams: calls x streams, see ngd_plan_before */
    uint64_t flops, weight_bytes;  /* estimates, for scheduling and bench */
    struct ngd_plan_layout layout; /* plan_pack.c stores it */
    int refs;
    struct ngd_arena *arena;
};

/* The device's part in planning. */
struct ngd_plan_target {
    void *ctx;
    const char *arch; /* part of the key: backend, version, instruction set */
    /*
     * Approves a call, or refuses it with NGD_ERR_OP_UNSUPPORTED. The call's tensors have their final dtypes, dims and
     * strides, but no offsets yet. *strided_p: bit i is set if operand i may keep its strides. For the others the plan
     * inserts a contiguous copy without asking again; operands from 32 on are always made contiguous. aten.clone and
     * aten.copy_ must accept any strides. *workspace_p: bytes needed during the call.
     */
    ngd_status_t (*select)(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                           uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag);
    /* Kernels of elementwise operators may overwrite an operand of the result's dtype and shape. The plan then gives
     * a result the storage of an operand that is not read again (the same root). */
    bool inplace;
    /* Kernels of elementwise operators may write a result with any strides, at any address that is aligned for its
     * elements. The plan then computes the operands of a cat directly into its result, along any dimension. */
    bool strided_results;
    /* Number of the device's cores, for scopes that limit them. On a CPU both are its threads. 0: not known. */
    uint32_t aicores, vectorcores;
};

/* Runs the passes that the options leave on (passes.def), then plans. options NULL: no passes, the graph as it is. */
ngd_status_t ngd_plan_create(struct ngd_graph *graph, const struct ngd_key *key,
                             const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                             struct ngd_plan **plan_p, struct ngd_diag *diag);
/* Plans the graph as it is. Of the options, only what says how operators compute counts: matmul_precision. So the
 * results can be compared with those of a plan that passes made. */
ngd_status_t ngd_plan_create_plain(struct ngd_graph *graph, const struct ngd_key *key,
                                   const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                                   struct ngd_plan **plan_p, struct ngd_diag *diag);
/* Makes a plan with these patterns (NULL: the built-in ones), and reports what each pass did (graphs/pass.h). */
struct ngd_pass_report;
struct ngd_pattern_set;
ngd_status_t ngd_plan_create_reported(struct ngd_graph *graph, const struct ngd_key *key,
                                      const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                                      struct ngd_pattern_set *patterns, struct ngd_pass_report *report,
                                      struct ngd_plan **plan_p, struct ngd_diag *diag);
struct ngd_plan *ngd_plan_ref(struct ngd_plan *plan);
struct ngd_plan *ngd_plan_unref(struct ngd_plan *plan);
uint64_t ngd_plan_host_bytes(const struct ngd_plan *plan);               /* without the registered graph */
void ngd_plan_print(const struct ngd_plan *plan, struct ngd_strbuf *sb); /* calls, tensors, offsets, peaks */

/* Returns true if call a has always ended when call b begins. For each stream, the clock of b is 1 + the last call of
 * which this is true. */
static inline bool ngd_plan_before(const struct ngd_plan *plan, uint32_t a, uint32_t b)
{
    if (!plan->clocks || a >= b)
        return a < b;
    return plan->clocks[(size_t)b * plan->n_streams + plan->calls[a].scope.stream] > a;
}

/* Returns true if the elements lie in row-major order without gaps, or if there are none. */
bool ngd_plan_contiguous(const struct ngd_plan_tensor *t);
int64_t ngd_plan_elements(const struct ngd_plan_tensor *t);

/* Return an attribute by name. They assert that the operator has it: names come from the kernel's author, never from a
 * client. */
int64_t ngd_call_int(const struct ngd_plan_call *call, const char *name);
double ngd_call_float(const struct ngd_plan_call *call, const char *name);
/* Returns a float attribute for code that computes with integers, or rounds to f32. */
struct ngd_scalar ngd_call_scalar(const struct ngd_plan_call *call, const char *name);
const struct ngd_attr_value *ngd_call_ints(const struct ngd_plan_call *call, const char *name);
const char *ngd_call_str(const struct ngd_plan_call *call, const char *name);

#endif
