/* SPDX-License-Identifier: Apache-2.0 */
/* Products of many rows by tiles of f32: the way `wide` of k_gemm.h. */
#include "devices/host/kernels/k_gemm.h"
#include "base/mem.h"
#include <string.h>

#define TILE_BYTES (NGD_GEMM_KC * NGD_GEMM_NT * sizeof(float))
#define SUMS_BYTES (NGD_GEMM_MC * NGD_GEMM_NT * sizeof(float))
#define ROWS_BYTES (NGD_GEMM_RB * NGD_GEMM_KC * sizeof(float))

static void gemm_pack(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t k, int64_t depth,
                      float *tile, float *room)
{
    const int64_t size = g->wt == NGD_F32 ? 4 : 2, cols = g->n - n < NGD_GEMM_NT ? g->n - n : NGD_GEMM_NT;
    const char *w = d->w + (g->nk ? n * g->ldw + k : k * g->ldw + n) * size;

    if (g->quant.group) {
        ngd_gemm_quant_widen(g, d, n, cols, k, depth, room);
        g->table->pack_nk[NGD_F32](room, NGD_GEMM_KC, cols, depth, tile);
    } else
        (g->nk ? g->table->pack_nk : g->table->pack_kn)[g->wt](w, g->ldw, cols, depth, tile);
}

/* Multiplies rows [m, m + rows) of x, rows <= RB, with a tile. */
static void mul_block(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m, int64_t rows, int64_t k,
                      int64_t depth, const float *tile, float *block, float *sums)
{
    const int64_t size = g->xt == NGD_F32 ? 4 : 2;
    const ngd_gemm_mul_fn *fn = depth == NGD_GEMM_KC ? g->full : g->last;
    const bool few = rows <= NGD_GEMM_FEW_ROWS && g->alike;

    g->table->widen[g->xt](d->x + (m * g->ldx + k) * size, g->ldx, rows, depth, block, NGD_GEMM_KC);
    if (fn[k > 0] && !few)
        fn[k > 0](tile, block, sums); /* always computes RB rows; sums of missing rows are not used */
    else
        g->table->mul(tile, block, NGD_GEMM_KC, rows, depth, sums, k > 0);
}

/* Adds the products of few rows with `depth` weights of each of cols columns: weights as they lie, or dequantised. */
static void add_few(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x, int64_t ldx, int64_t rows,
                    int64_t n, int64_t cols, int64_t k, int64_t depth, float *sums)
{
    const int64_t size = g->wt == NGD_F32 ? 4 : 2;
    float *room = (float *)(void *)(d->workspace + TILE_BYTES + SUMS_BYTES + ROWS_BYTES);

    if (g->quant.group) {
        ngd_gemm_quant_widen(g, d, n, cols, k, depth, room);
        g->table->chain[NGD_F32](room, NGD_GEMM_KC, cols, depth, x, ldx, rows, sums, k > 0);
    } else {
        g->table->chain[g->wt](d->w + (n * g->ldw + k) * size, g->ldw, cols, depth, x, ldx, rows, sums, k > 0);
    }
}

/* The product of few rows with a weight in rows of K: sums without tiles. */
static void gemm_few(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t rows, int64_t n0,
                     int64_t n1)
{
    const int64_t size = g->xt == NGD_F32 ? 4 : 2, room = NGD_GEMM_RB * NGD_GEMM_KC / NGD_GEMM_FEW_ROWS;
    const int64_t most = g->quant.group ? NGD_GEMM_KC : g->xt == NGD_F32 ? g->k : room;
    float *sums = (float *)(void *)(d->workspace + TILE_BYTES);
    float *block = (float *)(void *)(d->workspace + TILE_BYTES + SUMS_BYTES);

    for (int64_t n = n0; n < n1; n += NGD_GEMM_NT) {
        const int64_t cols = n1 - n < NGD_GEMM_NT ? n1 - n : NGD_GEMM_NT;

        for (int64_t k = 0; k < g->k; k += most) {
            const int64_t depth = g->k - k < most ? g->k - k : most;
            const char *x = d->x + (m0 * g->ldx + k) * size;

            if (g->xt != NGD_F32)
                g->table->widen[g->xt](x, g->ldx, rows, depth, block, room);
            add_few(g, d, g->xt == NGD_F32 ? (const float *)(const void *)x : block, g->xt == NGD_F32 ? g->ldx : room,
                    rows, n, cols, k, depth, sums);
        }
        for (int64_t m = 0; m < rows; m++)
            ngd_gemm_put(g, d, m0 + m, n, sums + m * NGD_GEMM_NT, cols);
    }
}

void ngd_gemm_wide_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                       int64_t n1)
{
    float *tile = (float *)(void *)d->workspace;
    float *sums = (float *)(void *)(d->workspace + TILE_BYTES);
    float *block = (float *)(void *)(d->workspace + TILE_BYTES + SUMS_BYTES);
    float *room = (float *)(void *)(d->workspace + TILE_BYTES + SUMS_BYTES + ROWS_BYTES);

    if (m1 - m0 <= NGD_GEMM_FEW_ROWS && g->alike && g->nk) {
        gemm_few(g, d, m0, m1 - m0, n0, n1);
        return;
    }
    for (int64_t n = n0; n < n1; n += NGD_GEMM_NT) {
        const int64_t cols = n1 - n < NGD_GEMM_NT ? n1 - n : NGD_GEMM_NT;

        for (int64_t k = 0; k < g->k; k += NGD_GEMM_KC) {
            const int64_t depth = g->k - k < NGD_GEMM_KC ? g->k - k : NGD_GEMM_KC;

            gemm_pack(g, d, n, k, depth, tile, room);
            for (int64_t m = m0; m < m1; m += NGD_GEMM_RB)
                mul_block(g, d, m, m1 - m < NGD_GEMM_RB ? m1 - m : NGD_GEMM_RB, k, depth, tile, block,
                          sums + (m - m0) * NGD_GEMM_NT);
        }
        for (int64_t m = m0; m < m1; m++)
            ngd_gemm_put(g, d, m, n, sums + (m - m0) * NGD_GEMM_NT, cols);
    }
}

int64_t ngd_gemm_wide_rows(const struct ngd_gemm *g)
{
    (void)g;
    return NGD_GEMM_MC;
}

uint64_t ngd_gemm_wide_bytes(const struct ngd_gemm *g, int64_t rows)
{
    (void)rows;
    return TILE_BYTES + SUMS_BYTES + ROWS_BYTES + (g->quant.group ? NGD_GEMM_QUANT_ROOM : 0);
}

/* ---- kernels of LIBXSMM ------------------------------------------------------------------------------ */

/* Numbers of both signs, and zeros. */
static float test_value(int64_t i)
{
    return (float)((i * 2654435761 >> 7) % 31 - 15) * 0.0731F;
}

/*
 * Runs LIBXSMM's kernels and the table's on the same numbers. LIBXSMM does not promise the order of its sums; where it
 * is ours, replays with few rows can be computed by kernels of few rows.
 */
static bool run_alike(const struct ngd_gemm_table *table, const ngd_gemm_mul_fn fn[2], int64_t depth, float *tile)
{
    const int64_t n_sums = NGD_GEMM_RB * NGD_GEMM_NT;
    float *x = tile + NGD_GEMM_KC * NGD_GEMM_NT, *sums = x + NGD_GEMM_RB * NGD_GEMM_KC;
    bool alike = true;

    for (int64_t i = 0; i < sums - tile; i++)
        tile[i] = test_value(i);
    for (int add = 0; alike && add < 2; add++) {
        fn[add](tile, x, sums);
        table->mul(tile, x, NGD_GEMM_KC, NGD_GEMM_RB, depth, sums + n_sums, add);
        alike = memcmp(sums, sums + n_sums, (size_t)n_sums * sizeof(float)) == 0;
    }
    return alike;
}

/* The same, once in a process for each depth. */
static bool are_alike(const struct ngd_gemm *g, const ngd_gemm_mul_fn fn[2], int64_t depth, ngd_isa_t isa)
{
    static _Atomic(uint8_t) known[NGD_ISA_MAX][NGD_GEMM_KC + 1]; /* 1: they are, 2: they are not */
    float *room;

    if (!fn[0])
        return true;
    if (known[isa][depth])
        return known[isa][depth] == 1;
    room = ngd_aligned_alloc(64, TILE_BYTES + ROWS_BYTES + 2 * NGD_GEMM_RB * NGD_GEMM_NT * sizeof(float));
    if (!room)
        return false;
    known[isa][depth] = run_alike(g->table, fn, depth, room) ? 1 : 2;
    ngd_free(room);
    return known[isa][depth] == 1;
}

void ngd_gemm_wide_choose(struct ngd_gemm *g, ngd_isa_t isa)
{
    const int64_t rest = g->k % NGD_GEMM_KC;
    bool ok = true;

    for (int add = 0; add < 2; add++) {
        g->full[add] = g->k >= NGD_GEMM_KC ? ngd_xsmm_mul(NGD_GEMM_RB, NGD_GEMM_KC, NGD_GEMM_KC, add) : NULL;
        g->last[add] = rest ? ngd_xsmm_mul(NGD_GEMM_RB, rest, NGD_GEMM_KC, add) : NULL;
        ok = ok && (g->full[add] || g->k < NGD_GEMM_KC) && (g->last[add] || !rest);
    }
    if (!ok)
        memset(g->full, 0, sizeof(g->full)), memset(g->last, 0, sizeof(g->last));
    g->alike = are_alike(g, g->full, NGD_GEMM_KC, isa) && are_alike(g, g->last, rest, isa);
}
