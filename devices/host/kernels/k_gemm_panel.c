/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of many rows on AMX tiles with weights that are not bf16 rows of K; see k_gemm.h.
 *
 * A panel is 64 columns of w, DEPTH rows of K deep, as bf16 terms in the layout of tiles of A. It is filled once for
 * the rows of a pass, which are laid out as for k_gemm_amx.c, with a tile for each term. Two tiles of A (32 columns of
 * w) are multiplied with two of B (32 rows of x) at a time. The sums of all terms run in one chain along K, so an
 * element depends only on its row of x and its column of w.
 *
 *      panel   [K / 32][terms of w][4][16 columns][32 elements]
 *      sums    [rows / 16][4][16 columns][16 rows]
 *
 * Weights have as many terms as their product with the scale needs, at most as the precision asks for. If all weights
 * of a column have one scale, the panel has the integers themselves, in one term, and the sums are multiplied with it.
 */
#include "devices/host/kernels/k_gemm_quant.h"
#include "devices/host/kernels/k_gemm_tile_impl.h"
#include <string.h>

#define DEPTH     NGD_PANEL_DEPTH
#define QUADS     NGD_PANEL_QUADS
#define TILE_SUMS (NGD_TILE_ROWS * NGD_TILE_ROWS)

/* ---- filling ------------------------------------------------------------------------------------------- */

/* As ngd_tile_term, without its care for infinities, whose rest becomes NaN. The NaN of f8 and of scales are in the
 * upper half. */
static inline __m512i plain_term(__m512 *x)
{
    const __m512i hi = _mm512_and_si512(_mm512_castps_si512(*x), _mm512_set1_epi32((int)0xffff0000));

    *x = _mm512_sub_ps(*x, _mm512_castsi512_ps(hi));
    return hi;
}

/* Writes the terms of `depth` weights of one column from `to` on, `step` bytes from step to step. plain: products of
 * numbers and scales. */
static inline void put_column(const float *w, int64_t depth, int64_t terms, bool plain, char *to, int64_t step)
{
    for (int64_t i = 0; i < depth; i += NGD_TILE_DEPTH, to += step) {
        __m512 a = _mm512_loadu_ps(w + i), b = _mm512_loadu_ps(w + i + 16);
        char *at = to;

        for (int64_t t = 1; t < terms; t++, at += QUADS * NGD_TILE_BYTES)
            _mm512_store_si512(at,
                               plain ? ngd_tile_upper(plain_term(&a), plain_term(&b)) : ngd_tile_take(&a, &b, false));
        _mm512_store_si512(at, ngd_tile_last(a, b));
    }
}

/* Widens `depth` weights from k on of column n, with zeros behind them up to a whole step. */
static void widen_column(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t k, int64_t depth,
                         float *w)
{
    const int64_t size = g->wt == NGD_F32 ? 4 : 2, rest = -depth & (NGD_TILE_DEPTH - 1);

    if (g->quant.group)
        ngd_gemm_quant_widen(g, d, n, 1, k, depth, w);
    else
        g->table->widen[g->wt](d->w + (n * g->ldw + k) * size, 0, 1, depth, w, 0);
    memset(w + depth, 0, (size_t)rest * sizeof(*w));
}

static void fill_panel(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols, int64_t k,
                       int64_t depth, const struct ngd_panel_room *room)
{
    const int64_t terms = ngd_panel_terms(g), step = terms * QUADS * NGD_TILE_BYTES;
    _Alignas(64) float w[NGD_GEMM_KC];
    struct ngd_gemm_data numbers = *d;

    if (ngd_panel_has_integers(g))
        memset(numbers.antiquant, 0, sizeof(numbers.antiquant));
    for (int64_t c = 0; c < NGD_GEMM_NT; c++) {
        char *to = room->panel + c / NGD_TILE_ROWS * NGD_TILE_BYTES + c % NGD_TILE_ROWS * NGD_TILE_LINE;

        for (int64_t i = 0; i < depth; i += NGD_GEMM_KC) {
            const int64_t each = depth - i < NGD_GEMM_KC ? depth - i : NGD_GEMM_KC;

            if (c < cols)
                widen_column(g, &numbers, n + c, k + i, each, w);
            else
                memset(w, 0, sizeof(w));
            put_column(w, each, terms, g->quant.group != 0, to + i / NGD_TILE_DEPTH * step, step);
        }
    }
}

/* ---- multiplying --------------------------------------------------------------------------------------- */

/* Two tiles of columns and one or two blocks of rows. */
struct panel_block {
    const char *a, *b[2];
    float *sums[2]; /* of the first tile of columns; those of the second follow */
    int64_t steps, a_step, b_step;
    int64_t w_terms, x_terms, limit;
    bool two, first; /* two blocks; the sums begin here */
};

/* Multiplies term t of w, whose tiles are at a, with the terms of x at b0 and b1. */
static inline void multiply_term(const struct panel_block *p, int64_t t, const char *a, const char *b0, const char *b1)
{
    NGD_TILE_LOAD(4, a, NGD_TILE_LINE);
    NGD_TILE_LOAD(5, a + NGD_TILE_BYTES, NGD_TILE_LINE);
    for (int64_t i = 0; i < p->x_terms && i + t < p->limit; i++) {
        NGD_TILE_LOAD(6, b0 + i * NGD_TILE_BYTES, NGD_TILE_LINE);
        NGD_TILE_DOT(0, 4, 6);
        NGD_TILE_DOT(2, 5, 6);
        if (p->two) {
            NGD_TILE_LOAD(7, b1 + i * NGD_TILE_BYTES, NGD_TILE_LINE);
            NGD_TILE_DOT(1, 4, 7);
            NGD_TILE_DOT(3, 5, 7);
        }
    }
}

static void load_sums(const struct panel_block *p)
{
    if (p->first) {
        NGD_TILE_ZERO(0);
        NGD_TILE_ZERO(1);
        NGD_TILE_ZERO(2);
        NGD_TILE_ZERO(3);
        return;
    }
    NGD_TILE_LOAD(0, p->sums[0], NGD_TILE_LINE);
    NGD_TILE_LOAD(1, p->sums[1], NGD_TILE_LINE);
    NGD_TILE_LOAD(2, p->sums[0] + TILE_SUMS, NGD_TILE_LINE);
    NGD_TILE_LOAD(3, p->sums[1] + TILE_SUMS, NGD_TILE_LINE);
}

static void multiply_block(const struct panel_block *p)
{
    const char *a = p->a, *b0 = p->b[0], *b1 = p->b[1];

    load_sums(p);
    for (int64_t s = 0; s < p->steps; s++, a += p->a_step, b0 += p->b_step, b1 += p->b_step)
        for (int64_t t = 0; t < p->w_terms; t++)
            multiply_term(p, t, a + t * QUADS * NGD_TILE_BYTES, b0, b1);
    NGD_TILE_STORE(0, p->sums[0], NGD_TILE_LINE);
    NGD_TILE_STORE(2, p->sums[0] + TILE_SUMS, NGD_TILE_LINE);
    if (p->two) {
        NGD_TILE_STORE(1, p->sums[1], NGD_TILE_LINE);
        NGD_TILE_STORE(3, p->sums[1] + TILE_SUMS, NGD_TILE_LINE);
    }
}

/* Multiplies the rows of a pass with a panel that begins at k. */
static void multiply_panel(const struct ngd_gemm *g, const char *x, int64_t rows, int64_t cols, int64_t k,
                           int64_t depth, const struct ngd_panel_room *room)
{
    const int64_t blocks = (rows + NGD_TILE_ROWS - 1) / NGD_TILE_ROWS, b_step = ngd_gemm_x_terms(g) * NGD_TILE_BYTES,
                  block = ngd_tile_steps(g->k) * b_step, sums = QUADS * TILE_SUMS;
    struct panel_block p = {
        .steps = ngd_tile_steps(depth),
        .a_step = ngd_panel_terms(g) * QUADS * NGD_TILE_BYTES,
        .b_step = b_step,
        .w_terms = ngd_panel_terms(g),
        .x_terms = ngd_gemm_x_terms(g),
        .limit = ngd_gemm_term_limit(g),
        .first = k == 0,
    };

    x += k / NGD_TILE_DEPTH * b_step;
    for (int64_t i = 0; i < blocks; i += 2) {
        p.two = i + 1 < blocks;
        p.b[0] = x + i * block;
        p.b[1] = p.two ? p.b[0] + block : p.b[0];
        for (int64_t c = 0; c < cols; c += 2 * NGD_TILE_ROWS) {
            const int64_t q = c / NGD_TILE_ROWS;

            p.a = room->panel + q * NGD_TILE_BYTES;
            p.sums[0] = room->sums + i * sums + q * TILE_SUMS;
            p.sums[1] = p.two ? p.sums[0] + sums : p.sums[0];
            multiply_block(&p);
        }
    }
}

/* ---- storing ------------------------------------------------------------------------------------------- */

/* Stores the sums of a block of up to 16 rows from m on. */
static void put_panel_block(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *sums, int64_t m,
                            int64_t rows, int64_t n, int64_t cols, const float *scales)
{
    _Alignas(64) float y[NGD_TILE_ROWS][NGD_GEMM_NT];

    for (int64_t q = 0; q < QUADS; q++, sums += TILE_SUMS) {
        const __m512 scale = _mm512_loadu_ps(scales + q * NGD_TILE_ROWS);
        __m512i v[NGD_TILE_ROWS];

        for (int i = 0; i < NGD_TILE_ROWS; i++)
            v[i] = _mm512_loadu_si512(sums + i * NGD_TILE_ROWS);
        ngd_tile_transpose(v);
        for (int i = 0; i < NGD_TILE_ROWS; i++)
            _mm512_store_ps(y[i] + q * NGD_TILE_ROWS, _mm512_mul_ps(_mm512_castsi512_ps(v[i]), scale));
    }
    for (int64_t i = 0; i < rows; i++)
        ngd_gemm_put(g, d, m + i, n, y[i], cols);
}

static void put_panel(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *sums, int64_t m0,
                      int64_t m1, int64_t n, int64_t cols)
{
    float scales[NGD_GEMM_NT];

    for (int64_t c = 0; c < NGD_GEMM_NT; c++)
        scales[c] = ngd_panel_has_integers(g) && c < cols ? ngd_gemm_quant_scale(g, d, n + c) : 1;
    for (int64_t m = m0; m < m1; m += NGD_TILE_ROWS, sums += QUADS * TILE_SUMS)
        put_panel_block(g, d, sums, m, m1 - m < NGD_TILE_ROWS ? m1 - m : NGD_TILE_ROWS, n, cols, scales);
}

void ngd_gemm_panel_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                        int64_t n1)
{
    const struct ngd_tile_config config = ngd_tile_full();
    struct ngd_panel_room room;

    ngd_panel_divide_room(g, m1 - m0, d->workspace, &room);
    NGD_TILE_CONFIG(config);
    for (int64_t n = n0; n < n1; n += NGD_GEMM_NT) {
        const int64_t cols = n1 - n < NGD_GEMM_NT ? n1 - n : NGD_GEMM_NT;

        for (int64_t k = 0; k < g->k; k += DEPTH) {
            const int64_t depth = g->k - k < DEPTH ? g->k - k : DEPTH;

            fill_panel(g, d, n, cols, k, depth, &room);
            multiply_panel(g, d->workspace, m1 - m0, cols, k, depth, &room);
        }
        put_panel(g, d, room.sums, m0, m1, n, cols);
    }
    NGD_TILE_RELEASE();
}
