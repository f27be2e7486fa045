/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with bf16 weights in rows of K on AMX tiles; see k_gemm.h.
 *
 * A tile of A is 16 rows of the weight, 32 deep, read directly from the weight. B holds the rows of x. Each element is
 * split into up to three bf16 terms that add up to it exactly (8 + 8 + 8 bits of mantissa); with a lower precision,
 * into fewer, of which the last is rounded. A column of B is one term of one row, in pairs along K, as the instruction
 * needs them. A product of two bf16 is exact in f32, so only the sums round, as they do everywhere. A column's sums are
 * one chain along K, and the terms of a row are added at the end. So an element depends only on its row of x and its
 * column of w, whatever columns and tiles they are in.
 *
 *     columns   0 .. m-1: high terms of the m rows    m .. 2m-1: middle terms    2m .. 3m-1: low terms
 *
 * Up to 5 rows fit in one tile, 16 in three. More rows are handled in blocks of 16. Numbers below 2^-126 count as 0.
 */
#include "devices/host/kernels/k_gemm.h"
#include "devices/host/kernels/k_gemm_tile_impl.h"
#include "devices/host/kernels/unroll.h"
#include <immintrin.h>
#include <string.h>

#define DEPTH      NGD_TILE_DEPTH
#define TILE_ROWS  NGD_TILE_ROWS
#define TILE_BYTES NGD_TILE_BYTES
#define LINE       NGD_TILE_LINE
#define AHEAD      6  /* steps along K between a prefetch and its use */
#define SUM_COLS   48 /* three tiles side by side */

/* The layout of a block of rows in columns of B. */
struct layout {
    int64_t rows;   /* of the block, at most 16 */
    int64_t terms;  /* of a row */
    int64_t pitch;  /* columns from term to term */
    int64_t tiles;  /* of 16 columns */
    int64_t stride; /* columns stored of a tile: 16, fewer for a single small block */
    int64_t step;   /* bytes for each step along K */
};

/* only: there is no other block. For panels, each term has a tile of its own. */
static struct layout layout_of(const struct ngd_gemm *g, int64_t rows, bool only)
{
    const bool panels = g->way == NGD_GEMM_PANELS;
    struct layout l = {
        .rows = rows, .terms = ngd_gemm_x_terms(g), .pitch = panels ? TILE_ROWS : rows, .stride = TILE_ROWS};
    const int64_t columns = l.pitch * l.terms;

    l.tiles = (columns + 15) / 16;
    if (only && columns <= 4)
        l.stride = 4;
    else if (only && columns <= 8)
        l.stride = 8;
    l.step = l.tiles * TILE_ROWS * l.stride * 4;
    return l;
}

/* ---- rows of x ------------------------------------------------------------------------------------------ */

static inline __m512 load_x(const struct ngd_gemm *g, const char *row, int64_t i)
{
    const int64_t left = g->k - i;
    const __mmask16 mask = left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);

    if (g->xt == NGD_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)(const void *)row + i);
    if (g->xt == NGD_F16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)(const void *)row + i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)(const void *)row + i)), 16));
}

/* Lays out one step along K: the columns of all tiles, which are then transposed tile by tile, so that a row of a tile
 * is a pair along K. */
static void lay_out_step(const struct ngd_gemm *g, const struct layout *l, const char *x, int64_t k, char *to)
{
    const int64_t row = g->ldx * (g->xt == NGD_F32 ? 4 : 2);
    const __mmask16 mask = (__mmask16)((1u << l->stride) - 1);
    __m512i columns[SUM_COLS];

    for (int64_t i = 0; i < l->tiles * 16; i++)
        columns[i] = _mm512_setzero_si512();
    for (int64_t m = 0; m < l->rows; m++) {
        __m512 a = load_x(g, x + m * row, k), b = load_x(g, x + m * row, k + 16);

        for (int64_t t = 0; t < l->terms; t++)
            columns[t * l->pitch + m] = ngd_tile_take(&a, &b, t == l->terms - 1);
    }
    for (int64_t t = 0; t < l->tiles; t++) {
        ngd_tile_transpose(columns + 16 * t);
        for (int64_t i = 0; i < TILE_ROWS; i++, to += l->stride * 4)
            _mm512_mask_storeu_epi32(to, mask, columns[16 * t + i]);
    }
}

void ngd_gemm_amx_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *to)
{
    const int64_t row = g->ldx * (g->xt == NGD_F32 ? 4 : 2);

    for (int64_t m = 0; m < rows; m += TILE_ROWS) {
        const struct layout l = layout_of(g, rows - m < TILE_ROWS ? rows - m : TILE_ROWS, rows <= TILE_ROWS);

        for (int64_t k = 0; k < g->k; k += DEPTH, to += l.step)
            lay_out_step(g, &l, x + m * row, k, to);
    }
}

/* ---- tiles ---------------------------------------------------------------------------------------------- */

static void configure(int64_t stride)
{
    struct ngd_tile_config c = ngd_tile_full();

    /* Sums and B; tmm4 is A, and tmm5 is A or, with three tiles of sums for each of two, a sum. */
    for (int t = 0; t < 8 && stride < 16; t++)
        if (t != 4 && t != 5)
            c.row_bytes[t] = (uint16_t)(stride * 4);
    NGD_TILE_CONFIG(c);
}

/* The addresses that a pass along K reads. */
struct pass {
    const char *a[2]; /* 16 rows of the weight each */
    int64_t a_step;   /* bytes from row to row */
    const char *b;
    int64_t jump; /* from the end of these rows to the beginning of the next ones; 0: prefetch nothing */
    int64_t steps;
    int64_t b_row; /* bytes from row to row of a tile of B */
};

/*
 * Prefetches the same rows further on; near the end of the rows, the beginning of the next ones, `jump` bytes on. A
 * line of the weight is used once, so it is fetched into the L1 cache shortly before its use. This is assembler,
 * because gcc 12 takes a function that only prefetches for one without effects, and drops the prefetches.
 */
static inline void fetch(const struct pass *p, const char *a, int64_t s)
{
    const char *at = a + AHEAD * LINE + (s + AHEAD < p->steps ? 0 : p->jump);

    if (p->jump)
        NGD_UNROLL for (int i = 0; i < TILE_ROWS; i++) __asm__ volatile("prefetcht0 %0" ::"m"(at[i * p->a_step]));
}

/* Computes the sums of one or two tiles of A with 1, 2 or 3 tiles of B, and writes them side by side to sums[32][48].
 */
static void pass_1(const struct pass *p, bool two, float *sums)
{
    const char *a0 = p->a[0], *a1 = p->a[1], *b = p->b;

    NGD_TILE_ZERO(0);
    NGD_TILE_ZERO(1);
    for (int64_t s = 0; s < p->steps; s++, a0 += LINE, a1 += LINE, b += TILE_ROWS * p->b_row) {
        NGD_TILE_LOAD(6, b, p->b_row);
        fetch(p, a0, s);
        NGD_TILE_LOAD(4, a0, p->a_step);
        NGD_TILE_DOT(0, 4, 6);
        if (two) {
            fetch(p, a1, s);
            NGD_TILE_LOAD(5, a1, p->a_step);
            NGD_TILE_DOT(1, 5, 6);
        }
    }
    NGD_TILE_STORE(0, sums, SUM_COLS * 4);
    if (two)
        NGD_TILE_STORE(1, sums + TILE_ROWS * SUM_COLS, SUM_COLS * 4);
}

static void pass_2(const struct pass *p, bool two, float *sums)
{
    const char *a0 = p->a[0], *a1 = p->a[1], *b = p->b;

    NGD_TILE_ZERO(0);
    NGD_TILE_ZERO(1);
    NGD_TILE_ZERO(2);
    NGD_TILE_ZERO(3);
    for (int64_t s = 0; s < p->steps; s++, a0 += LINE, a1 += LINE, b += 2 * TILE_BYTES) {
        NGD_TILE_LOAD(6, b, LINE);
        fetch(p, a0, s);
        NGD_TILE_LOAD(4, a0, p->a_step);
        NGD_TILE_DOT(0, 4, 6);
        NGD_TILE_LOAD(7, b + TILE_BYTES, LINE);
        NGD_TILE_DOT(1, 4, 7);
        if (two) {
            fetch(p, a1, s);
            NGD_TILE_LOAD(5, a1, p->a_step);
            NGD_TILE_DOT(2, 5, 6);
            NGD_TILE_DOT(3, 5, 7);
        }
    }
    NGD_TILE_STORE(0, sums, SUM_COLS * 4);
    NGD_TILE_STORE(1, sums + 16, SUM_COLS * 4);
    if (two) {
        NGD_TILE_STORE(2, sums + TILE_ROWS * SUM_COLS, SUM_COLS * 4);
        NGD_TILE_STORE(3, sums + TILE_ROWS * SUM_COLS + 16, SUM_COLS * 4);
    }
}

static void pass_3(const struct pass *p, bool two, float *sums)
{
    const char *a0 = p->a[0], *a1 = p->a[1], *b = p->b;

    NGD_TILE_ZERO(0);
    NGD_TILE_ZERO(1);
    NGD_TILE_ZERO(2);
    NGD_TILE_ZERO(3);
    NGD_TILE_ZERO(5);
    NGD_TILE_ZERO(6);
    for (int64_t s = 0; s < p->steps; s++, a0 += LINE, a1 += LINE, b += 3 * TILE_BYTES) {
        fetch(p, a0, s);
        NGD_TILE_LOAD(4, a0, p->a_step);
        NGD_TILE_LOAD(7, b, LINE);
        NGD_TILE_DOT(0, 4, 7);
        NGD_TILE_LOAD(7, b + TILE_BYTES, LINE);
        NGD_TILE_DOT(1, 4, 7);
        NGD_TILE_LOAD(7, b + 2 * TILE_BYTES, LINE);
        NGD_TILE_DOT(2, 4, 7);
        if (two) {
            fetch(p, a1, s);
            NGD_TILE_LOAD(4, a1, p->a_step);
            NGD_TILE_DOT(6, 4, 7);
            NGD_TILE_LOAD(7, b, LINE);
            NGD_TILE_DOT(3, 4, 7);
            NGD_TILE_LOAD(7, b + TILE_BYTES, LINE);
            NGD_TILE_DOT(5, 4, 7);
        }
    }
    NGD_TILE_STORE(0, sums, SUM_COLS * 4);
    NGD_TILE_STORE(1, sums + 16, SUM_COLS * 4);
    NGD_TILE_STORE(2, sums + 32, SUM_COLS * 4);
    if (two) {
        NGD_TILE_STORE(3, sums + TILE_ROWS * SUM_COLS, SUM_COLS * 4);
        NGD_TILE_STORE(5, sums + TILE_ROWS * SUM_COLS + 16, SUM_COLS * 4);
        NGD_TILE_STORE(6, sums + TILE_ROWS * SUM_COLS + 32, SUM_COLS * 4);
    }
}

/* Adds the last step to the sums if K is no multiple of the depth: copies the rest of the weight's rows, with zeros
 * behind it. */
static void last_step(const struct ngd_gemm *g, const struct layout *l, const struct pass *p, bool two, float *sums)
{
    const int64_t rest = g->k % DEPTH;
    _Alignas(64) char a[2][TILE_BYTES] = {{0}};
    _Alignas(64) float more[2 * TILE_ROWS * SUM_COLS];
    struct pass last = *p;

    for (int r = 0; r < (two ? 2 : 1); r++) {
        for (int64_t i = 0; i < TILE_ROWS; i++)
            memcpy(a[r] + i * LINE, p->a[r] + i * p->a_step + p->steps * LINE, (size_t)rest * 2);
        last.a[r] = a[r];
    }
    last.a_step = LINE;
    last.b = p->b + p->steps * l->step;
    last.steps = 1;
    last.jump = 0;
    (l->tiles == 1 ? pass_1 : l->tiles == 2 ? pass_2 : pass_3)(&last, two, more);
    for (int64_t i = 0; i < (two ? 2 : 1) * TILE_ROWS; i++)
        for (int64_t c = 0; c < l->rows * l->terms; c++)
            sums[i * SUM_COLS + c] += more[i * SUM_COLS + c];
}

/* Adds the terms up and stores the sums as rows of the result: columns [n + skip, n + skip + cols) of the rows from m
 * on. */
static void put_amx_sums(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const struct layout *l,
                         const float *sums, int64_t m, int64_t n, int64_t skip, int64_t cols)
{
    __m512i v[16];

    for (int64_t i = 0; i < TILE_ROWS; i++, sums += SUM_COLS) {
        __m512 s = _mm512_loadu_ps(sums);

        if (l->terms == 3)
            s = _mm512_add_ps(s, _mm512_add_ps(_mm512_loadu_ps(sums + l->rows), _mm512_loadu_ps(sums + 2 * l->rows)));
        else if (l->terms == 2)
            s = _mm512_add_ps(s, _mm512_loadu_ps(sums + l->rows));
        v[i] = _mm512_castps_si512(s);
    }
    ngd_tile_transpose(v);
    for (int64_t i = 0; i < l->rows; i++) {
        _Alignas(64) float row[16];

        if (g->plain_y && cols == 16) {
            const int64_t at = (m + i - d->row0) * g->ldy + n - d->col0;
            __m512 s = _mm512_castsi512_ps(v[i]);

            if (d->residual)
                s = _mm512_add_ps(_mm512_loadu_ps((const float *)(const void *)d->residual + at), s);
            _mm512_storeu_ps((float *)(void *)d->y + at, s);
            continue;
        }
        _mm512_store_si512(row, v[i]);
        ngd_gemm_put(g, d, m + i, n + skip, row + skip, cols);
    }
}

/* Computes columns [n, n + 16) or [n, n + 32) for a block of rows, and stores columns [begin, end) of them. */
static void one_block(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const struct layout *l, const char *b,
                      int64_t m, int64_t n, bool two, bool first, int64_t begin, int64_t end)
{
    const int64_t row = g->ldw * 2;
    const struct pass p = {
        .a = {d->w + n * row, d->w + (n + (two ? TILE_ROWS : 0)) * row},
        .a_step = row,
        .b = b,
        .jump = first ? (two ? 2 : 1) * TILE_ROWS * row - g->k / DEPTH * LINE : 0,
        .steps = g->k / DEPTH,
        .b_row = l->stride * 4,
    };
    _Alignas(64) float sums[2 * TILE_ROWS * SUM_COLS + 16];

    (l->tiles == 1 ? pass_1 : l->tiles == 2 ? pass_2 : pass_3)(&p, two, sums);
    if (g->k % DEPTH)
        last_step(g, l, &p, two, sums);
    for (int r = 0; r < (two ? 2 : 1); r++) {
        const int64_t from = n + r * TILE_ROWS, skip = begin > from ? begin - from : 0,
                      to = end - from < TILE_ROWS ? end - from : TILE_ROWS;

        put_amx_sums(g, d, l, sums + r * TILE_ROWS * SUM_COLS, m, from, skip, to - skip);
    }
}

void ngd_gemm_amx_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                      int64_t n1)
{
    const int64_t rows = m1 - m0, steps = ngd_tile_steps(g->k);
    const bool only = rows <= TILE_ROWS;
    const struct layout widest = layout_of(g, only ? rows : TILE_ROWS, only);

    configure(widest.stride);
    for (int64_t n = n0, step; n < n1; n += step) {
        /* With one tile of B, sharing its loads between two tiles of A gains nothing, and 16 rows of the weight are
         * read faster than 32. */
        const bool two = widest.tiles > 1 && n1 - n >= 2 * TILE_ROWS;
        const char *b = d->workspace;

        for (int64_t m = m0; m < m1; m += TILE_ROWS) {
            const struct layout l = layout_of(g, m1 - m < TILE_ROWS ? m1 - m : TILE_ROWS, only);

            /* If the last columns of w are fewer than a tile has, the tile begins earlier. */
            one_block(g, d, &l, b, m, n1 - n < TILE_ROWS ? n1 - TILE_ROWS : n, two, m == m0, n, n1);
            b += l.step * steps;
        }
        step = two ? 2 * TILE_ROWS : TILE_ROWS;
    }
    NGD_TILE_RELEASE();
}
