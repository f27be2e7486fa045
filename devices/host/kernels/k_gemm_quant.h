/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_GEMM_QUANT_H
#define NGD_DEVICES_HOST_KERNELS_K_GEMM_QUANT_H

/*
 * dot with quantised weights (npu.weight_quant_batchmatmul): integer products, exact sums.
 *
 * K is cut into segments: of 256 if the weights have no groups, else of 128, 32 or 16, of which a group has a multiple.
 * A row of x is laid out as i16: within a segment, x = scale * q with |q| < 2^15, where the scale is the power of two
 * that the segment's largest element needs. Of f32 rows what is left over goes to a second row of q, which has 16 bits
 * more. The weights are widened to i16 in registers. A segment's products are summed up as i32, which cannot overflow
 * (256 * 128 * 32767 < 2^31). The sum is multiplied with both scales and added to the element in f32. Offsets are
 * multiplied with the sums of x's segments, and so are minima.
 *
 * So bf16 and f16 elements are exact that are at least 2^-7 or 2^-4 of the largest of their segment; the error of
 * others is below 2^-15 of it at most. f32 elements have 30 bits of the largest. A segment of x with a NaN or an
 * infinity makes its results NaN.
 *
 * Twice a number of f4_e2m1 is an integer, 12 at most: so nibbles of it are weights of i8 whose scales are halved.
 *
 * Weights in f8_e4m3fn are no integers: rows of x stay f32, weights are widened to f32, and the sum over a group is
 * multiplied with its scale. Sums of a segment, here a group, run in eight lanes along K. A column with a NaN is NaN.
 *
 * An element depends only on its row of x, its column of w and K.
 */
#include "devices/host/kernels/k_gemm.h"
#include <string.h>

#define NGD_QUANT_LANES   16  /* i16 in a vector */
#define NGD_QUANT_SEGMENT 256 /* the largest one */
#define NGD_QUANT_COLUMNS 16  /* whose scales are prepared at once */
#define NGD_F8_STEP       32  /* weights in f8 that are read at once; rows of x end in zeros up to a multiple of it */

/* A thread's workspace. Rows are laid-out rows: two for a row of f32. */
struct ngd_quant_area {
    int16_t *x;  /* blocks of 8, 4, 2, 1 rows as [K / 32][2][rows][16], or [K / 16][rows][16]; nibbles: even elements,
                    then odd ones */
    float *x_f8; /* f8: as x, [K / 16][rows][16] of each block */
    float *x_scales;  /* of each block: [segments][rows] */
    float *x_sums;    /* sums of the segments' elements: [rows][segments] */
    int32_t *x_evens; /* sums of q of even elements, as the scales */
    float *scales;    /* of the weights, by column: of each segment, or one (ngd_quant_column) */
    float *offsets;   /* likewise: what is added for each element of x */
    float *minima;    /* likewise; is in use while offsets are prepared */
    float *row;       /* [segment] */
};

static inline bool ngd_quant_nibbles(const struct ngd_gemm *g)
{
    return g->quant.form == NGD_QUANT_I4 || g->quant.form == NGD_QUANT_F4;
}

static inline int ngd_quant_segment(const struct ngd_gemm *g)
{
    if (g->quant.form == NGD_QUANT_F8 && g->quant.group < g->k)
        return (int)g->quant.group; /* an attribute, INT32_MAX at most */
    return g->quant.group >= g->k                        ? NGD_QUANT_SEGMENT
           : g->quant.group % 128 == 0                   ? 128
           : g->quant.group % (2 * NGD_QUANT_LANES) == 0 ? 2 * NGD_QUANT_LANES
                                                         : NGD_QUANT_LANES;
}

static inline int64_t ngd_quant_segments(const struct ngd_gemm *g)
{
    return (g->k + g->quant.segment - 1) / g->quant.segment;
}

/* Returns the number of scales that the area has of each column. */
static inline int64_t ngd_quant_column(const struct ngd_gemm *g)
{
    return g->quant.group >= g->k ? 1 : ngd_quant_segments(g);
}

/* Returns the laid-out rows that a row of x takes. */
static inline int64_t ngd_quant_terms(const struct ngd_gemm *g)
{
    return g->xt == NGD_F32 && g->quant.form != NGD_QUANT_F8 ? 2 : 1;
}

/* Returns the number of laid-out rows that make the next block, of those that are left. */
static inline int64_t ngd_quant_block(int64_t left)
{
    return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* Says whether a value is more than number * scale. */
static inline bool ngd_quant_adds(const struct ngd_gemm *g)
{
    return g->quant.zero != 0 ||
           g->quant.has & (NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_OFFSET) | NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_MINIMUM));
}

/* Twice the numbers of f4_e2m1. */
static const int8_t ngd_quant_f4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Returns half of a scale in f8_e8m0fnu: 2^(s - 127) / 2, and NaN for 255. */
static inline float ngd_quant_half_of_e8m0(uint8_t s)
{
    const uint32_t bits = (uint32_t)s << 23 | (s == 0 || s == 255 ? 0x400000 : 0);
    float v;

    memcpy(&v, &bits, sizeof(v));
    return v * 0.5F;
}

/* Returns the number of bytes of a workspace for the planned rows. Fills *area if it is not NULL. */
uint64_t ngd_quant_area(const struct ngd_gemm *g, char *workspace, struct ngd_quant_area *area);
/* Returns the scale of column n, if all its weights have one. */
float ngd_gemm_quant_scale(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n);
/* Returns the operand with the factors of an operand's blocks; NGD_ANTIQUANTS: there is none. */
ngd_antiquant_t ngd_quant_block_of(const struct ngd_gemm *g, ngd_antiquant_t what);
/* Widens scales, offsets or minima of columns [n, n + cols), times the factors of blocks: to[cols][ngd_quant_column].
 */
void ngd_quant_widen(const struct ngd_gemm *g, const struct ngd_gemm_data *d, ngd_antiquant_t what, int64_t n,
                     int64_t cols, float *to);
void ngd_quant_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace);
/* Computes columns [n0, n1) of rows that are laid out. */
void ngd_quant_dot(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t n0, int64_t n1);

#endif
