/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_QUANT_MATMUL_H
#define NGD_DEVICES_HOST_KERNELS_K_QUANT_MATMUL_H

/*
 * npu.quant_matmul: products of i8 rows and i8 weights.
 *
 * Sums are exact integers (modulo 2^32), and what follows is elementwise f32 without fused steps. So a result has the
 * same bits on each instruction set, for any number of rows and however the work is split.
 */
#include "devices/host/kernels/by_isa.h"

#define NGD_QMM_ROWS 16 /* rows of x1 whose sums are computed at once, at most */
#define NGD_QMM_COLS 48 /* columns likewise; weights of a K of 3072 stay in the L2 cache for all rows */

/* What the sums of up to NGD_QMM_COLS columns become. */
struct ngd_qmm_columns {
    int64_t n;
    ngd_dtype_t dtype; /* of the result: i32 takes the sums alone */
    bool whole, biased;
    int32_t whole_bias[NGD_QMM_COLS]; /* if `whole`: added to the sums */
    float scale[NGD_QMM_COLS], bias[NGD_QMM_COLS];
};

struct ngd_qmm_table {
    /*
     * sums[r][c] = x1 row r * w row c, for up to NGD_QMM_ROWS rows, ldx bytes apart, and NGD_QMM_COLS rows of weights,
     * ldw bytes apart, of k elements. stream: the weights come from memory, so those behind them are requested.
     */
    void (*sums)(const int8_t *x, int64_t ldx, int64_t rows, const int8_t *w, int64_t ldw, int64_t k, int64_t cols,
                 bool stream, int32_t (*sums)[NGD_QMM_COLS]);
    /* Turns a row's sums into elements y[0..n) of the result. */
    void (*finish)(const struct ngd_qmm_columns *c, const int32_t *sums, float row_scale, void *y);
};
NGD_ISA_TABLES(struct ngd_qmm_table, ngd_qmm);
extern const struct ngd_qmm_table ngd_qmm_vnni; /* AVX-512 with VNNI */

/* The product that a call computes. Strides are in elements. */
struct ngd_qmm {
    int64_t n, k, rows_mult; /* rows of x1 per row of its dimension 0 */
    int64_t ldx, w_n, w_k, scale_n, bias_n, row_scale_m;
    ngd_dtype_t scale_type, bias_type, out_type;
    bool streams;     /* rows of K are contiguous in x2; otherwise they are copied, some columns at a time */
    bool from_memory; /* x2 is larger than the caches */
    uint64_t thread_workspace;
    const struct ngd_qmm_table *table;
};

/* Operands of a product, as in the graph; those that it does not have are NULL. */
struct ngd_qmm_data {
    const int8_t *x1, *x2;
    const char *scale, *row_scale, *bias;
    char *y, *workspace; /* workspace: of this thread */
};

/* Fills the table and the workspace from the other fields. Tests and benches call it too. */
void ngd_qmm_choose(struct ngd_qmm *q, ngd_isa_t isa);
/* Computes a part of the product for `rows` rows of x1. */
void ngd_qmm_run(const struct ngd_qmm *q, const struct ngd_qmm_data *d, int64_t rows, uint32_t part, uint32_t parts);

#endif
