/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_GEMM_DIGITS_H
#define NGD_DEVICES_HOST_KERNELS_K_GEMM_DIGITS_H

/* What products by digits share with and without AMX tiles: how rows of x are laid out, scales of columns, and the
 * workspaces. See k_gemm_digits.c. */
#include "devices/host/kernels/k_gemm_quant.h"
#include "graphs/options.h"

#define NGD_DIGITS_LANES 16  /* columns of w that are computed at once */
#define NGD_DIGITS_DEPTH 512 /* of a panel, in elements of K: a multiple of each segment */
#define NGD_DIGITS_MOST  3   /* digits of an element */

#define NGD_DIGIT_TILES_GROUPS 2   /* of 16 columns, that are computed at once */
#define NGD_DIGIT_TILES_STAGED 512 /* elements of K that are widened at once */
/* Bytes from column to column of them: columns do not compete for lines of the cache. */
#define NGD_DIGIT_TILES_PITCH  (NGD_DIGIT_TILES_STAGED + 64)

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

/* A thread's workspace without tiles. */
struct ngd_digits_room {
    int64_t segments, column; /* divisions take long: they are done once */
    int64_t k;                /* rounded up to segments */
    int32_t *x;               /* words of four digits */
    float *scales;            /* of x, of each block: [segments][rows] */
    float *x_sums;            /* sums of x's elements, likewise */
    int32_t *base;            /* what the sums begin with, likewise, [2]: see lay_out_segment */
    float *row;               /* a row of x, widened */
    uint8_t *panel;
    float *sums;
    struct ngd_digits_scales w;
};

/* Returns the number of bytes of a workspace for so many rows. Fills *room if it is not NULL. */
uint64_t ngd_digits_divide_room(const struct ngd_gemm *g, int64_t rows, char *workspace, struct ngd_digits_room *room);

/* How rows of x are cut into tiles. */
struct ngd_digit_tiles_shape {
    int64_t blocks, digits;
    int64_t rows; /* of a block, at most */
    int64_t tiles, lanes, pitch;
    int64_t segments, segment; /* and the elements of one */
    int64_t depth;             /* elements of K in a tile */
    int64_t words;             /* of a segment of x */
};

struct ngd_digit_tiles_shape ngd_digit_tiles_shape(const struct ngd_gemm *g, int64_t rows);

/* A thread's workspace with tiles. */
struct ngd_digit_tiles_room {
    int32_t *x;
    float *scales, *x_sums;
    float *row; /* a row of x, widened */
    char *staged;
    int32_t *sums;
    float *y;
    struct ngd_digits_scales w[NGD_DIGIT_TILES_GROUPS];
};

uint64_t ngd_digit_tiles_divide_room(const struct ngd_gemm *g, const struct ngd_digit_tiles_shape *s, char *workspace,
                                     struct ngd_digit_tiles_room *room);

#endif
