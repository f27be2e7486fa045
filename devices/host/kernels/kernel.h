/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_KERNEL_H
#define NGD_DEVICES_HOST_KERNELS_KERNEL_H

/*
 * Kernels of the `host` device: the contract between the executable (exec.c) and the kernel files (k_*.c).
 *
 * At capture, prepare() chooses a function and fills its parameters once. A replay calls fn(call, run, part, parts) for
 * every call in order, for several parts at once on threads of the team (parts = 1 if the call is too small to share).
 * fn allocates nothing, computes no shape and takes no lock. A kernel splits its own work by (part, parts).
 *
 * Rows: if the plan's tensors carry a row symbol, a kernel runs only ngd_host_rows() rows of dimension 0.
 * Results never depend on parts, nor on the number of rows run: each row is computed in one fixed order.
 * A kernel that finds bad data (an index outside its tensor) writes nothing out of bounds and calls ngd_host_fail().
 */
#include "devices/device.h"
#include <stdatomic.h>

typedef enum ngd_isa {
    NGD_ISA_SCALAR,
    NGD_ISA_AVX2,
    NGD_ISA_AVX512,
    NGD_ISA_AVX512BF16,
    NGD_ISA_AMX, /* with AVX-512 and bf16 */
    NGD_ISA_MAX
} ngd_isa_t;

struct ngd_backend_group;
struct ngd_host_call;
struct ngd_host_run;
typedef void (*ngd_host_fn)(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts);

/* Returns the most parts that a call with few_parts is ever split into. A workspace with room per part needs so many.
 */
static inline uint32_t ngd_host_max_parts(uint32_t threads)
{
    return threads < 2 ? 1 : threads < 60 ? threads * 4 : 240;
}

/*
 * Index of the running thread in its team: 0 (the leader) to threads - 1. No two parts of a call run with the same
 * index at the same time, so kernels can have scratch memory per thread instead of per part.
 */
extern _Thread_local uint32_t ngd_host_thread;

/* One kernel call, 64-byte aligned, in the order of replay. */
struct ngd_host_call {
    ngd_host_fn fn;
    const void *params; /* the kernel's own, made by prepare(), shared by instances */
    char *workspace;    /* patched address of the call's workspace */
    int64_t rows;       /* of dimension 0, if fixed */
    int64_t row_mult;   /* actual rows = symbols[row_sym] * row_mult */
    uint8_t row_sym;    /* NGD_NO_ROW_SYM = fixed */
    bool slow;          /* the clock is read before the call, since it may take long */
    uint16_t shared;    /* parts in which the team runs it; 1: the leader alone */
    uint16_t n_in, n_out;
    uint16_t pieces; /* parts in which a single thread runs it, so that the launch can end in between */
    uint32_t node;   /* of the graph, for diagnoses */
    uint32_t n_ptrs;
    char **ptrs; /* patched addresses: operands (NULL when absent or host), then results */
};

/* One replay. */
struct ngd_host_run {
    const ngd_host_fn *fns; /* of the calls; NULL when operators are launched one by one */
    uint64_t serial;        /* number of the replay, or of the launch of one operator; 0: none */
    const int64_t *symbols;
    const struct ngd_host_value *hosts;
    const _Atomic bool *stop; /* as in the launch */
    ngd_nsec_t stop_at;       /* as in the launch; 0: never */
    _Atomic int error;        /* first error: an ngd_status_t */
    _Atomic uint32_t error_node;
    _Atomic int64_t error_value; /* the offending index */
};

/* Returns the rows of dimension 0 that this run computes. */
static inline int64_t ngd_host_rows(const struct ngd_host_call *c, const struct ngd_host_run *run)
{
    return c->row_sym == NGD_NO_ROW_SYM ? c->rows : run->symbols[c->row_sym] * c->row_mult;
}
/*
 * Returns true if the thread asks for the first time about this call in this run, so that this is its first part of the
 * call. In later parts, what the thread has put into its own scratch memory for the call is still there.
 */
bool ngd_host_first_part(const struct ngd_host_call *call, const struct ngd_host_run *run);
/* Returns true if the run has failed. A run that has to end now fails here. clock: read the clock too. */
bool ngd_host_ends(const struct ngd_host_call *call, struct ngd_host_run *run, bool clock);
/* Fails the run with status. `value` is the offending index. Only the first failure of a run counts. */
void ngd_host_fail(const struct ngd_host_call *call, struct ngd_host_run *run, ngd_status_t status, int64_t value);

/* What prepare() gets and fills. */
struct ngd_host_prepare {
    const struct ngd_plan *plan;
    const struct ngd_plan_call *call;
    ngd_isa_t isa;                          /* best one allowed on this device */
    uint32_t threads;                       /* of the team */
    struct ngd_arena *arena;                /* for params; lives as long as the executable */
    const struct ngd_backend_group *groups; /* for collectives; valid as long as the executable */
    uint32_t n_groups;
    /* out */
    ngd_host_fn fn;
    const void *params;
    uint32_t row_tensor; /* plan tensor whose dimension 0 gives rows, row_sym and row_mult; default: result 0, else
                            operand 0 */
    double cost_ns;      /* estimate for one thread; exec.c shares calls above a threshold */
    bool serial;         /* the call is never split */
    bool few_parts;      /* the workspace has room for ngd_host_max_parts parts: the call is not split further */
};

struct ngd_host_kernel {
    /* Checks whether the call can run, and how. Same contract as ngd_plan_target.select. The answer does not depend on
     * the instruction set. */
    ngd_status_t (*select)(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                           uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag);
    ngd_status_t (*prepare)(struct ngd_host_prepare *p, struct ngd_diag *diag);
    /*
     * Optional. Appends the body of a C function with fn's parameters that does what fn(call, run, 0, 1) does, with the
     * kernel's own parameters as constants (static.h). Returns false if that would gain nothing. `family`, an
     * ngd_static_family_t, says which sources the body needs.
     */
    bool (*emit)(const struct ngd_host_call *call, struct ngd_strbuf *sb);
    uint8_t family;
};

/* Returns the kernel of an operator, NULL if it has none. kernels_basic.def and kernels_core.def have the table. */
const struct ngd_host_kernel *ngd_host_kernel_of(ngd_op_id_t op);

/* Return the plan tensor of operand or result i; NULL for an absent operand. */
static inline const struct ngd_plan_tensor *ngd_call_in(const struct ngd_plan *p, const struct ngd_plan_call *c,
                                                        uint32_t i)
{
    return i < c->n_in && c->in[i] != NGD_PLAN_NONE ? &p->tensors[c->in[i]] : NULL;
}
static inline const struct ngd_plan_tensor *ngd_call_out(const struct ngd_plan *p, const struct ngd_plan_call *c,
                                                         uint32_t i)
{
    return &p->tensors[c->out[i]];
}
/* Splits n items into `parts` nearly equal runs that begin at multiples of `grain`, and returns the run of `part`. */
static inline void ngd_host_split(int64_t n, int64_t grain, uint32_t part, uint32_t parts, int64_t *begin_p,
                                  int64_t *end_p)
{
    int64_t units = (n + grain - 1) / grain, per = units / parts, extra = units % parts;
    int64_t b = per * part + (part < extra ? part : extra), e = b + per + (part < extra ? 1 : 0);

    *begin_p = b * grain < n ? b * grain : n;
    *end_p = e * grain < n ? e * grain : n;
}

#endif
