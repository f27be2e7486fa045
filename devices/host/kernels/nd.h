/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_ND_H
#define NGD_DEVICES_HOST_KERNELS_ND_H

/*
 * Walks several tensors of one shape together, each with its own strides.
 *
 * Why: elementwise kernels, copies and row kernels differ in what they do with a run of elements, not in how they find
 * it. Dimensions are merged at capture as far as the strides of all operands allow. So the usual case, everything
 * contiguous, is one run and costs nothing at a replay.
 *
 * A walk covers the range [begin, end) of the shape's elements in row-major order. Since dimension 0 is outermost, the
 * first `rows` rows are the range [0, rows * inner).
 *
 * Threads: a struct ngd_nd is constant after ngd_nd_init(). No allocation.
 */
#include "devices/host/kernels/kernel.h"

#define NGD_ND_MAX_OPS 4

struct ngd_nd {
    int64_t total; /* elements of the whole shape */
    int64_t inner; /* elements per index of dimension 0 */
    uint32_t n_ops;
    uint32_t rank;                 /* after merging; at least 1 */
    bool plain;                    /* every operand's innermost step is its element size, or an allowed 0 */
    bool direct;                   /* plain, and rank is 1 */
    uint32_t size[NGD_ND_MAX_OPS]; /* bytes of an element; of a run's step if dimensions were held back */
    int64_t dims[NGD_MAX_RANK];
    int64_t step[NGD_ND_MAX_OPS][NGD_MAX_RANK]; /* bytes */
};

/*
 * Prepares a walk over the first rank - hold dimensions of `shape`. Operands are aligned with the shape at the right,
 * as in broadcasting; only their strides in the walked dimensions matter. If bit o of bcast is set, the run function
 * takes a step of 0 for operand o, so that a broadcast operand needs no copy. n <= NGD_ND_MAX_OPS.
 */
void ngd_nd_init(struct ngd_nd *nd, const struct ngd_plan_tensor *shape, uint32_t hold,
                 const struct ngd_plan_tensor *const *ops, uint32_t n, uint32_t bcast);

/* A run function: handles n elements. p[o] advances by step[o], which is the element's size or, where allowed, 0. */
typedef void (*ngd_nd_fn)(char *const *p, const int64_t *step, int64_t n, const void *arg);

/*
 * Calls fn for runs that cover [begin, end). The last operand is the destination. Operands with other steps go through
 * a buffer on the stack: sources are gathered into it, the destination is scattered from it. ptrs are the operands'
 * base addresses.
 */
void ngd_nd_apply(const struct ngd_nd *nd, char *const *ptrs, int64_t begin, int64_t end, ngd_nd_fn fn,
                  const void *arg);
/* Copies operand 0 to operand 1, which have elements of the same size. */
void ngd_nd_copy(const struct ngd_nd *nd, char *const *ptrs, int64_t begin, int64_t end);

/* Iteration over runs, for kernels that want the addresses: one run = up to dims[rank - 1] elements. */
struct ngd_nd_it {
    const struct ngd_nd *nd;
    char *p[NGD_ND_MAX_OPS];
    int64_t index[NGD_MAX_RANK];
    int64_t left; /* elements left, this run included */
    int64_t run;  /* elements of this run; 0 = the end */
};
void ngd_nd_start(struct ngd_nd_it *it, const struct ngd_nd *nd, char *const *ptrs, int64_t begin, int64_t end);
void ngd_nd_next(struct ngd_nd_it *it);

/* Computes the part's range of the call's elements: all rows that run, `inner` elements each, cut at multiples of
 * grain. Returns false if it is empty. */
static inline bool ngd_nd_part(const struct ngd_host_call *call, const struct ngd_host_run *run, int64_t total,
                               int64_t inner, int64_t grain, uint32_t part, uint32_t parts, int64_t *begin_p,
                               int64_t *end_p)
{
    int64_t n = call->row_sym == NGD_NO_ROW_SYM ? total : ngd_host_rows(call, run) * inner;

    if (parts <= 1) {
        *begin_p = 0;
        *end_p = n;
    } else {
        ngd_host_split(n, grain, part, parts, begin_p, end_p);
    }
    return *begin_p < *end_p;
}

/* select() for kernels without a workspace: every operand keeps its strides, or none does. */
ngd_status_t ngd_select_strided(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag);
ngd_status_t ngd_select_contiguous(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                   uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag);

/* Returns t with only those dimensions that are in the set (or are not, if `in` is false), with their strides. */
struct ngd_plan_tensor ngd_tensor_dims(const struct ngd_plan_tensor *t, uint32_t set, bool in);

/* Returns the number of elements. */
static inline int64_t ngd_tensor_count(const struct ngd_plan_tensor *t)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < t->rank; d++)
        n *= t->dims[d];
    return n;
}

/* Returns true if the dimensions from `from` on are contiguous. */
static inline bool ngd_host_inner_contiguous(const struct ngd_plan_tensor *t, uint32_t from)
{
    int64_t want = 1;

    for (uint32_t d = t->rank; d-- > from; want *= t->dims[d])
        if (t->dims[d] != 1 && t->strides[d] != want)
            return false;
    return true;
}

#endif
