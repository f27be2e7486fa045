/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_INDICES_H
#define NGD_DEVICES_HOST_KERNELS_INDICES_H

/*
 * Reads index tensors. Indices are data: each is checked before it is used, and an index outside its dimension ends the
 * call with INDEX_RANGE. As in PyTorch, negative indices count from the end for index.Tensor and index_put, and are
 * refused by embedding, gather, index_select, index_copy and scatter.
 *
 * A dimension that carries a bucketed symbol ends at its actual rows: the padding behind them is out of range.
 */
#include "devices/host/kernels/axis.h"

/* How to check the indices of one index tensor. */
struct ngd_indices {
    int64_t limit;    /* planned size of the dimension */
    int64_t row_mult; /* actual size = symbols[row_sym] * row_mult */
    uint8_t row_sym;
    bool wide;     /* i64, else i32 */
    bool from_end; /* negative indices count from the end */
};

static inline struct ngd_indices ngd_indices_of(const struct ngd_plan_tensor *index, const struct ngd_plan_tensor *x,
                                                uint32_t dim, bool from_end)
{
    return (struct ngd_indices){.limit = x->dims[dim],
                                .row_mult = x->row_mult,
                                .row_sym = dim == 0 ? x->row_sym : NGD_NO_ROW_SYM,
                                .wide = index->dtype == NGD_I64,
                                .from_end = from_end};
}

static inline int64_t ngd_indices_limit(const struct ngd_indices *s, const struct ngd_host_run *run)
{
    return s->row_sym == NGD_NO_ROW_SYM ? s->limit : run->symbols[s->row_sym] * s->row_mult;
}

/* Reads the index at p. If it is not within 0..limit-1, fails the call and returns false. */
static inline bool ngd_indices_get(const struct ngd_indices *s, const char *p, int64_t limit,
                                   const struct ngd_host_call *call, struct ngd_host_run *run, int64_t *index_p)
{
    int64_t v, given;
    int32_t narrow;

    if (s->wide) {
        memcpy(&v, p, sizeof(v));
    } else {
        memcpy(&narrow, p, sizeof(narrow));
        v = narrow;
    }
    given = v;
    if (s->from_end && v < 0)
        v += limit;
    if (v < 0 || v >= limit) {
        ngd_host_fail(call, run, NGD_ERR_INDEX_RANGE, given);
        return false;
    }
    *index_p = v;
    return true;
}

#endif
