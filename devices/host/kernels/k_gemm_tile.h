/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_GEMM_TILE_H
#define NGD_DEVICES_HOST_KERNELS_K_GEMM_TILE_H

/* The sizes of AMX's tiles, and of the panels that are made of them: k_gemm_panel.c. */
#include "devices/host/kernels/k_gemm_quant.h"

#define NGD_TILE_DEPTH 32 /* elements of K in a tile */
#define NGD_TILE_ROWS  16
#define NGD_TILE_LINE  64   /* bytes of a row */
#define NGD_TILE_BYTES 1024 /* of a tile */

/* Returns the tiles that k elements of K take. */
static inline int64_t ngd_tile_steps(int64_t k)
{
    return (k + NGD_TILE_DEPTH - 1) / NGD_TILE_DEPTH;
}

#define NGD_PANEL_DEPTH 1024                          /* of a panel, in elements of K */
#define NGD_PANEL_QUADS (NGD_GEMM_NT / NGD_TILE_ROWS) /* tiles side by side in a panel */

/* What a thread's workspace has behind the rows of x. */
struct ngd_panel_room {
    char *panel;
    float *sums;
};

/* Returns the number of bytes of a workspace for so many rows. Fills *room if it is not NULL. */
uint64_t ngd_panel_divide_room(const struct ngd_gemm *g, int64_t rows, char *workspace, struct ngd_panel_room *room);
/* Returns true if the panel has integers, whose scales are left for the sums. */
bool ngd_panel_has_integers(const struct ngd_gemm *g);
/* Returns the terms of a weight in the panel. */
int64_t ngd_panel_terms(const struct ngd_gemm *g);

#endif
