/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PLAN_H
#define NGD_GRAPHS_PLAN_H

/*
 * A plan: a graph specialised to a key. Every shape is a number, views are resolved to strides, memory is
 * assigned as (space, offset), operators are approved by the target. It knows no device pointer.
 *
 * Spaces: tensor data lives in the pool (intermediates, copies of user inputs, results, workspaces) at
 * pool base + offset, or in a bound buffer (params first, then states, numbered together) at its base + offset.
 *
 * Rows: a bucketed symbol is planned at its bucket. A tensor whose dimension 0 is symbol*mult carries
 * (row_sym, row_mult): a device may then run only symbols[row_sym]*row_mult rows of it at a replay. Memory and
 * strides do not depend on the actual rows, and validation has shown that rows do not mix.
 *
 * Streams: calls are in an order in which they may run one after the other, and whose results are the plan's. Calls on
 * different streams may also run at the same time, when each begins after those that its list of waits names; side
 * streams begin with the launch, inputs are there before any call, and outputs are read when all streams have ended.
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
    uint32_t node; /* of the graph, for diagnoses; copies that the plan inserts name their consumer, those
                    * for an output its producer (NGD_PLAN_NONE: the output is an input) */
    uint32_t n_in, n_out;
    const uint32_t *in; /* plan tensors; NGD_PLAN_NONE for absent and for host operands */
    const uint32_t *out;
    const uint32_t *host;               /* per operand: host parameter ordinal or NGD_PLAN_NONE */
    const struct ngd_attr_value *attrs; /* all concrete */
    uint64_t workspace_offset;          /* in the pool, valid during this call */
    uint64_t workspace_bytes;
    struct ngd_node_scope scope; /* of the node */
    uint32_t n_waits;
    const uint32_t *waits; /* calls before this one, each on another stream, that end before it begins */
};

struct ngd_plan_io {
    uint32_t tensor;
    uint64_t bytes; /* at the bucket; actual bytes = row_bytes * rows when row_sym is set */
    uint64_t row_bytes;
    uint8_t row_sym;
    int64_t row_mult;
};

/* Where the blocks of a plan lie in its pool: what memory planning decided. Blocks are numbered as plan_memory.c makes
 * them, which depends on the graph, the key and the target only. */
struct ngd_plan_layout {
    uint32_t n_blocks;
    const uint64_t *offsets;
    uint64_t pool_bytes, live_peak_bytes;
};

struct ngd_plan {
    struct ngd_graph *graph;  /* what is planned: the source, or what passes made of it. A reference */
    struct ngd_graph *source; /* what was registered. A reference */
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
    uint32_t n_streams;            /* that calls are on; 1: all on the main one */
    const uint32_t *clocks;        /* with several: calls x streams, see ngd_plan_before */
    uint64_t flops, weight_bytes;  /* estimates, for scheduling and bench */
    struct ngd_plan_layout layout; /* as it was decided; plan_pack.c stores it */
    int refs;
    struct ngd_arena *arena;
};

/* The device's part in planning. */
struct ngd_plan_target {
    void *ctx;
    const char *arch; /* part of the key: backend, version, instruction set */
    /*
     * Approves a call or refuses it with NGD_ERR_OP_UNSUPPORTED. tensors of the call have their final dtypes,
     * dims and strides (offsets not yet). *strided_p: bit i set = operand i may keep its strides; for the others the
     * plan inserts a contiguous copy and asks no more (operands from 32 on are always made contiguous). aten.clone and
     * aten.copy_ must take any strides. *workspace_p: bytes needed during the call.
     */
    ngd_status_t (*select)(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                           uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag);
    /* Kernels of elementwise operators may write over an operand of the result's dtype and shape: the plan then lets
     * a result take the storage of an operand that is not read again (the same root). */
    bool inplace;
    /* Kernels of elementwise operators may write a result with any strides, at any address that its elements allow: the
     * plan then lets operands of a cat along any dimension be computed into its result. */
    bool strided_results;
    /* Of the device, for scopes that limit them: on a CPU both are its threads. 0: not known. */
    uint32_t aicores, vectorcores;
};

/* Runs the passes that the options leave on (passes.def), then plans. options NULL: no passes, the graph as it is. */
ngd_status_t ngd_plan_create(struct ngd_graph *graph, const struct ngd_key *key,
                             const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                             struct ngd_plan **plan_p, struct ngd_diag *diag);
/* The same with these patterns (NULL: those that are built in); report (graphs/pass.h) says what each pass did. */
struct ngd_pass_report;
struct ngd_pattern_set;
ngd_status_t ngd_plan_create_reported(struct ngd_graph *graph, const struct ngd_key *key,
                                      const struct ngd_graph_options *options, const struct ngd_plan_target *target,
                                      struct ngd_pattern_set *patterns, struct ngd_pass_report *report,
                                      struct ngd_plan **plan_p, struct ngd_diag *diag);
struct ngd_plan *ngd_plan_ref(struct ngd_plan *plan);
struct ngd_plan *ngd_plan_unref(struct ngd_plan *plan);
uint64_t ngd_plan_host_bytes(const struct ngd_plan *plan);               /* without the graph that was registered */
void ngd_plan_print(const struct ngd_plan *plan, struct ngd_strbuf *sb); /* calls, tensors, offsets, peaks */

/* Call a has ended whenever call b begins. The clock of a call says for each stream up to which call, + 1, that is so.
 */
static inline bool ngd_plan_before(const struct ngd_plan *plan, uint32_t a, uint32_t b)
{
    if (!plan->clocks || a >= b)
        return a < b;
    return plan->clocks[(size_t)b * plan->n_streams + plan->calls[a].scope.stream] > a;
}

/* Elements lie in row-major order without gaps; true for no elements. */
bool ngd_plan_contiguous(const struct ngd_plan_tensor *t);
int64_t ngd_plan_elements(const struct ngd_plan_tensor *t);

/* By name; asserts that the operator has it (names are the kernel author's, not the client's). */
int64_t ngd_call_int(const struct ngd_plan_call *call, const char *name);
double ngd_call_float(const struct ngd_plan_call *call, const char *name);
/* The same number for those who compute with integers, or round it to f32. */
struct ngd_scalar ngd_call_scalar(const struct ngd_plan_call *call, const char *name);
const struct ngd_attr_value *ngd_call_ints(const struct ngd_plan_call *call, const char *name);
const char *ngd_call_str(const struct ngd_plan_call *call, const char *name);

#endif
