/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_GEMM_DIGITS_H
#define NGD_DEVICES_HOST_KERNELS_K_GEMM_DIGITS_H

/* What products by digits share with and without AMX tiles: how rows of x are laid out, and scales of columns. See
 * k_gemm_digits.c. */
#include "devices/host/kernels/k_gemm_quant.h"
#include "graphs/options.h"

#define NGD_DIGITS_LANES 16 /* columns of w that are computed at once */

/* Returns the number of digits of an element of x: for the highest precision 3 of f32 and 2 of others; 1 for medium. */
static inline int64_t ngd_digits_of_x(const struct ngd_gemm *g)
{
    return g->precision == NGD_PRECISION_MEDIUM ? 1 : g->xt == NGD_F32 && g->precision == NGD_PRECISION_HIGHEST ? 3 : 2;
}

/* Takes n elements of `size` bytes from a workspace of which used_p are taken. NULL measures. */
static inline void *ngd_digits_take(char *workspace, uint64_t *used_p, int64_t n, uint64_t size)
{
    char *p = workspace + *used_p;

    *used_p += ((uint64_t)n * size + 63) & ~(uint64_t)63;
    return p;
}

/* Where a row of x is laid out. Distances are in words of four digits. Rows of nibbles begin with the even elements of
 * each eight. */
struct ngd_digits_place {
    int32_t *x;
    float *scales, *sums; /* of segments */
    int32_t *base;        /* [2] of each segment: see lay_out_segment; NULL: not needed */
    int64_t each;         /* elements of scales, sums and pairs of base from segment to segment */
    int64_t digit;        /* from digit to digit */
    int64_t odd;          /* from four elements to the next four of eight, or from even ones to odd ones */
    int64_t eight;        /* from eight elements to the next eight */
    int64_t segment;      /* from segment to segment */
};

/* Lays out a row of x; `row` has room for it as f32, up to the end of the last segment. */
void ngd_digits_lay_out_row(const struct ngd_gemm *g, const char *x, const struct ngd_digits_place *p, float *row);

/* Scales and offsets of 16 columns of w. */
struct ngd_digits_scales {
    int64_t column, blocks; /* that a column has; divisions take long: they are done once */
    float *by_column;       /* as k_gemm_quant.c gives them */
    float *unscaled;        /* offsets, [segments][16] */
    float *scales;          /* [segments][16]; [16] if a column has one */
    float *offsets;         /* likewise: what is added for each element of x */
};

/* Takes room for scales from a workspace. column: ngd_quant_column(g). */
struct ngd_digits_scales ngd_digits_take_scales(const struct ngd_gemm *g, char *workspace, uint64_t *used_p,
                                                int64_t column);
/* Prepares those of columns [n, n + cols). */
void ngd_digits_prepare_scales(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols,
                               const struct ngd_digits_scales *s);

#endif
