/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aten.mm, aten.bmm, aten.addmm, aten.linear, npu.transpose_batchmatmul, npu.weight_quant_batchmatmul: chooses between
 * the ways of k_gemm.h, and splits the work between the threads of a team.
 *
 * Work is counted in units: tiles of columns, times passes over rows (for `wide`), times matrices of the batch. A part
 * takes a run of units, so a thread reads weights in the order of memory.
 */
#include "devices/host/kernels/k_gemm_quant.h"
#include "base/mem.h"
#include "devices/host/static.h"
#include <string.h>

/*
 * From this many planned rows on, `wide` is faster: measured with bench_host_gemm, K 1024 and 3072, bf16 weights. The
 * bucket decides, not the rows of a replay, so that a row's result does not depend on the other rows.
 */
#define WIDE_ROWS      NGD_GEMM_WIDE_ROWS
#define COLS_PER_UNIT  16          /* for dot and axpy: 64 bytes of f32 results, so that parts share no line of y */
#define COLS_PER_TILES 32          /* for tiles: two tiles of A */
#define TILES_ROOM     (1 << 20)   /* bytes of x that are laid out for one pass: half of an L2 cache */
#define PANELS_ROOM    (2 << 20)   /* the same for panels, which pay for filling a panel in each pass */
#define PANELS_ROWS    64          /* but no fewer rows */
#define STREAM_BYTES   (512 << 10) /* a weight above this does not stay in the L2 cache from step to step */

#define TILE_BYTES (NGD_GEMM_KC * NGD_GEMM_NT * sizeof(float))
#define SUMS_BYTES (NGD_GEMM_MC * NGD_GEMM_NT * sizeof(float))
#define ROWS_BYTES (NGD_GEMM_RB * NGD_GEMM_KC * sizeof(float))

/* In generated code these functions are inlined, and no copy of them is kept. */
#ifdef NGD_STATIC
#define NGD_GEMM_API extern inline __attribute__((gnu_inline, always_inline))
#else
#define NGD_GEMM_API
#endif

/* ---- results ----------------------------------------------------------------------------------------- */

static void gemm_store(char *p, ngd_dtype_t t, int64_t i, float v)
{
    if (t == NGD_F32)
        ((float *)(void *)p)[i] = v;
    else
        ((uint16_t *)(void *)p)[i] = t == NGD_F16 ? ngd_f32_to_f16(v) : ngd_f32_to_bf16(v);
}

NGD_GEMM_API void ngd_gemm_put(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t row, int64_t col,
                               const float *sums, int64_t n)
{
    const int64_t at = (row - d->row0) * g->ldy + col - d->col0;

    if (g->plain_y) {
        float *y = (float *)(void *)d->y + at;
        const float *residual = (const float *)(const void *)d->residual + at;

        if (!d->residual)
            memcpy(y, sums, (size_t)n * sizeof(float));
        for (int64_t i = 0; d->residual && i < n; i++)
            y[i] = residual[i] + sums[i];
        return;
    }
#ifndef NGD_STATIC
    if (g->alpha == 1 && !d->bias && !d->residual) {
        g->table->narrow[g->xt](sums, n, d->y + at * (g->xt == NGD_F32 ? 4 : 2));
        return;
    }
#endif
    for (int64_t i = 0; i < n; i++) {
        float v = g->alpha * sums[i];

        if (d->bias)
            v += g->beta * ngd_float_at(d->bias, g->bias_type, row * g->bias_row + (col + i) * g->bias_col);
        gemm_store(d->y, g->xt, at + i, v);
        if (d->residual)
            gemm_store(d->y, g->xt, at + i,
                       ngd_float_at(d->residual, g->xt, at + i) + ngd_float_at(d->y, g->xt, at + i));
    }
}

#ifndef NGD_STATIC
#define NGD_GEMM_INTERLEAVE(g) (g)->table->interleave[(g)->xt]
#define NGD_GEMM_DOT_OF(g)     (g)->table->dot[(g)->wt]
#define NGD_GEMM_AXPY_OF(g)    (g)->table->axpy[(g)->wt]

/* ---- wide -------------------------------------------------------------------------------------------- */

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

static void gemm_wide(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
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

#else
/* Generated code never calls it: see ngd_gemm_emittable. */
static void gemm_wide(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                      int64_t n1)
{
    (void)g, (void)d, (void)m0, (void)m1, (void)n0, (void)n1;
}
#endif

/* ---- running ----------------------------------------------------------------------------------------- */

/* Stores the result for a K of 0, where every sum is 0. */
static void put_zeros(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t n0, int64_t n1)
{
    static const float zeros[COLS_PER_UNIT];

    for (int64_t m = 0; m < rows; m++)
        for (int64_t n = n0; n < n1; n += COLS_PER_UNIT)
            ngd_gemm_put(g, d, m, n, zeros, n1 - n < COLS_PER_UNIT ? n1 - n : COLS_PER_UNIT);
}

static bool is_wide(const struct ngd_gemm *g)
{
    return g->way == NGD_GEMM_WIDE && g->k > 0;
}

static bool has_tiles(const struct ngd_gemm *g)
{
    return g->way == NGD_GEMM_TILES;
}

static bool has_panels(const struct ngd_gemm *g)
{
    return g->way == NGD_GEMM_PANELS;
}

static bool has_digit_tiles(const struct ngd_gemm *g)
{
    return g->way == NGD_GEMM_DIGIT_TILES;
}

static bool has_digits(const struct ngd_gemm *g)
{
    return g->way == NGD_GEMM_DIGITS || has_digit_tiles(g);
}

static bool on_amx(const struct ngd_gemm *g)
{
    return has_tiles(g) || has_panels(g);
}

/* Returns how many rows of x fit in a room when they are laid out for AMX: a multiple of 16 from `least` to `most`. */
static int64_t rows_in(const struct ngd_gemm *g, int64_t room, int64_t least, int64_t most)
{
    const int64_t rows = room / (g->k * ngd_gemm_x_terms(g) * 2) & ~(int64_t)15;

    return rows < least ? least : rows > most ? most : rows;
}

static int64_t tiles_rows(const struct ngd_gemm *g)
{
    return rows_in(g, TILES_ROOM, 16, NGD_GEMM_MC);
}

static int64_t panels_rows(const struct ngd_gemm *g)
{
    return rows_in(g, PANELS_ROOM, PANELS_ROWS, NGD_GEMM_PASS_ROWS);
}

#if defined(NGD_HAVE_AVX512VNNI)
static int64_t digits_rows(const struct ngd_gemm *g)
{
#if defined(NGD_HAVE_AMX)
    if (has_digit_tiles(g))
        return ngd_digit_tiles_rows(g);
#endif
    return ngd_gemm_digits_rows(g);
}

static void lay_out_digits(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1)
{
    const char *x = d->x + m0 * g->ldx * (g->xt == NGD_F32 ? 4 : 2);

#if defined(NGD_HAVE_AMX)
    if (has_digit_tiles(g)) {
        ngd_digit_tiles_lay_out(g, x, m1 - m0, d->workspace);
        return;
    }
#endif
    ngd_gemm_digits_lay_out(g, x, m1 - m0, d->workspace);
}

static void gemm_digits(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t pass, int64_t m0, int64_t m1,
                        int64_t n0, int64_t n1)
{
    if (d->laid_out != pass + 1)
        lay_out_digits(g, d, m0, m1);
#if defined(NGD_HAVE_AMX)
    if (has_digit_tiles(g)) {
        ngd_digit_tiles_run(g, d, m0, m1, n0, n1);
        return;
    }
#endif
    ngd_gemm_digits_run(g, d, m0, m1, n0, n1);
}
#else
static int64_t digits_rows(const struct ngd_gemm *g)
{
    return g->m;
}

static void lay_out_digits(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1)
{
    (void)g, (void)d, (void)m0, (void)m1;
}

static void gemm_digits(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t pass, int64_t m0, int64_t m1,
                        int64_t n0, int64_t n1)
{
    (void)pass, (void)n0, (void)n1;
    lay_out_digits(g, d, m0, m1);
}
#endif

/* Returns the rows of x in one pass. */
static int64_t pass_rows(const struct ngd_gemm *g, int64_t rows)
{
    return is_wide(g)      ? NGD_GEMM_MC
           : has_tiles(g)  ? tiles_rows(g)
           : has_panels(g) ? panels_rows(g)
           : has_digits(g) ? digits_rows(g)
                           : rows;
}

NGD_GEMM_API struct ngd_gemm_units ngd_gemm_units(const struct ngd_gemm *g, int64_t rows)
{
    const int64_t width = is_wide(g) || has_panels(g)          ? NGD_GEMM_NT
                          : has_tiles(g) || has_digit_tiles(g) ? COLS_PER_TILES
                                                               : COLS_PER_UNIT,
                  each = pass_rows(g, rows);

    return (struct ngd_gemm_units){
        .width = width,
        .tiles = (g->n + width - 1) / width,
        .passes = rows > each ? (rows + each - 1) / each : 1,
    };
}

NGD_GEMM_API void ngd_gemm_pass(const struct ngd_gemm *g, int64_t rows, int64_t pass, int64_t *m0_p, int64_t *m1_p)
{
    const int64_t each = pass_rows(g, rows);

    *m0_p = pass * each;
    *m1_p = rows - *m0_p > each ? *m0_p + each : rows;
}

NGD_GEMM_API bool ngd_gemm_lays_out(const struct ngd_gemm *g, int64_t rows)
{
    return g->k > 0 && (g->way == NGD_GEMM_DOT || ((on_amx(g) || has_digits(g)) && rows <= pass_rows(g, rows)));
}

#if defined(NGD_HAVE_AMX)
static void gemm_lay_out_tiles(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1)
{
    ngd_gemm_amx_lay_out(g, d->x + m0 * g->ldx * (g->xt == NGD_F32 ? 4 : 2), m1 - m0, d->workspace);
}

static void gemm_tiles(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t pass, int64_t m0, int64_t m1,
                       int64_t n0, int64_t n1)
{
    if (d->laid_out != pass + 1)
        gemm_lay_out_tiles(g, d, m0, m1);
    if (has_panels(g))
        ngd_gemm_panel_run(g, d, m0, m1, n0, n1);
    else
        ngd_gemm_amx_run(g, d, m0, m1, n0, n1, d->workspace);
}
#else
static void gemm_lay_out_tiles(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1)
{
    (void)g;
    (void)d;
    (void)m0;
    (void)m1;
}

static void gemm_tiles(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t pass, int64_t m0, int64_t m1,
                       int64_t n0, int64_t n1)
{
    (void)pass;
    (void)n0;
    (void)n1;
    gemm_lay_out_tiles(g, d, m0, m1);
}
#endif

NGD_GEMM_API void ngd_gemm_lay_out(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows)
{
    if (on_amx(g)) {
        gemm_lay_out_tiles(g, d, 0, rows);
        return;
    }
    if (has_digits(g)) {
        lay_out_digits(g, d, 0, rows);
        return;
    }
#ifndef NGD_STATIC
    if (g->quant.group) {
        ngd_quant_lay_out(g, d, rows);
        return;
    }
#endif
    NGD_GEMM_INTERLEAVE(g)(d->x, g->ldx, rows, g->k, g->wt == NGD_BF16, (float *)(void *)d->workspace);
}

static void gemm_dot(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t n0, int64_t n1)
{
    if (!d->laid_out)
        ngd_gemm_lay_out(g, d, rows);
#ifndef NGD_STATIC
    if (g->quant.group) {
        ngd_quant_dot(g, d, rows, n0, n1);
        return;
    }
#endif
    NGD_GEMM_DOT_OF(g)(g, d, (const float *)(const void *)d->workspace, rows, n0, n1);
}

NGD_GEMM_API void ngd_gemm_columns(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t pass,
                                   int64_t n0, int64_t n1)
{
    int64_t m0, m1;

    ngd_gemm_pass(g, rows, pass, &m0, &m1);
    if (g->k == 0)
        put_zeros(g, d, rows, n0, n1);
    else if (on_amx(g))
        gemm_tiles(g, d, pass, m0, m1, n0, n1);
    else if (has_digits(g))
        gemm_digits(g, d, pass, m0, m1, n0, n1);
    else if (is_wide(g))
        gemm_wide(g, d, m0, m1, n0, n1);
    else if (g->way == NGD_GEMM_DOT)
        gemm_dot(g, d, rows, n0, n1);
    else
        NGD_GEMM_AXPY_OF(g)(g, d, rows, n0, n1);
}

NGD_GEMM_API void ngd_gemm_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t batch,
                               uint32_t part, uint32_t parts)
{
    const struct ngd_gemm_units units = ngd_gemm_units(g, rows);
    const int64_t xs = g->xt == NGD_F32 ? 4 : 2, ws = g->wt == NGD_F32 ? 4 : 2;
    int64_t u, end, n;

    if (rows <= 0 || g->n == 0)
        return;
    for (ngd_host_split(batch * units.passes * units.tiles, 1, part, parts, &u, &end); u < end; u += n) {
        const int64_t tile = u % units.tiles, pass = u / units.tiles % units.passes, b = u / units.tiles / units.passes,
                      last = (tile + end - u) * units.width;
        struct ngd_gemm_data mine = *d;

        n = units.tiles - tile < end - u ? units.tiles - tile : end - u;
        mine.x += b * g->step_x * xs;
        mine.w += b * g->step_w * ws;
        mine.y += b * g->step_y * xs;
        ngd_gemm_columns(g, &mine, rows, pass, tile * units.width, last < g->n ? last : g->n);
    }
}

static struct ngd_gemm_data product_data(const struct ngd_gemm *g, const struct ngd_host_call *call)
{
    struct ngd_gemm_data d = {
        .x = call->ptrs[g->i_x],
        .w = call->ptrs[g->i_w],
        .bias = g->i_bias == 0xff ? NULL : call->ptrs[g->i_bias],
        .y = call->ptrs[call->n_in],
        .workspace = call->workspace + ngd_host_thread * g->thread_workspace,
    };

    for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
        if (g->quant.has & NGD_ANTIQUANT_BIT(i))
            d.antiquant[i] = call->ptrs[g->quant.antiquant[i].i];
    return d;
}

static void gemm_multiply(const struct ngd_gemm *g, const struct ngd_host_call *call, struct ngd_host_run *run,
                          int64_t rows, uint32_t part, uint32_t parts)
{
    struct ngd_gemm_data d = product_data(g, call);

    d.laid_out = ngd_gemm_lays_out(g, rows);
    if (d.laid_out && ngd_host_first_part(call, run))
        ngd_gemm_lay_out(g, &d, rows);
    ngd_gemm_run(g, &d, rows, 1, part, parts);
}

#ifndef NGD_STATIC
static void run_gemm_rows(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_gemm *g = call->params;

    gemm_multiply(g, call, run, ngd_gemm_rows(g, call, run), part, parts);
}

/* Runs a product whose batch is fixed; the rows that vary are those of its matrices. */
static void run_each(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_gemm *g = call->params;
    struct ngd_gemm_data d = product_data(g, call);

    ngd_gemm_run(g, &d, ngd_host_rows(call, run), g->batch, part, parts);
}

static void run_batch(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_gemm *g = call->params;
    struct ngd_gemm_data d = product_data(g, call);

    ngd_gemm_run(g, &d, g->m, ngd_host_rows(call, run), part, parts);
}

static void run_permuted(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct ngd_gemm *g = call->params;

    (g->by_batch ? run_batch : run_each)(call, run, part, parts);
}

/* ---- choosing ---------------------------------------------------------------------------------------- */

static double weight_bytes(const struct ngd_gemm *g)
{
    if (g->quant.group)
        return ngd_quant_nibbles(g) ? 0.5 : 1;
    return g->wt == NGD_F32 ? 4 : 2;
}

static uint64_t choose_way(struct ngd_gemm *g)
{
    const bool wide = (g->m >= WIDE_ROWS && g->n >= NGD_GEMM_NT / 2) || (g->quant.group && !g->quant.streamed);

    if (g->quant.group)
        g->quant.segment = ngd_quant_segment(g);
    g->way = wide ? NGD_GEMM_WIDE : g->nk ? NGD_GEMM_DOT : NGD_GEMM_AXPY;
    if (g->way == NGD_GEMM_WIDE)
        return TILE_BYTES + SUMS_BYTES + ROWS_BYTES + (g->quant.group ? NGD_GEMM_QUANT_ROOM : 0);
    if (g->way == NGD_GEMM_DOT)
        return g->quant.group ? ngd_quant_area(g, NULL, NULL)
                              : (uint64_t)g->m * (((uint64_t)g->k + 31) & ~(uint64_t)31) * sizeof(float);
    return g->xt == NGD_F32 ? 0 : ((uint64_t)g->k * 4 * sizeof(float) + 63) & ~(uint64_t)63;
}

#if defined(NGD_HAVE_AMX)
static bool tiles_fit(const struct ngd_gemm *g)
{
    return g->nk && g->wt == NGD_BF16 && g->n >= 16 && g->k >= 32 && g->n * g->k >= NGD_GEMM_TILES_FROM;
}

static void choose_amx(struct ngd_gemm *g)
{
    if (tiles_fit(g))
        g->way = NGD_GEMM_TILES;
    else if (ngd_gemm_panel_fits(g))
        g->way = NGD_GEMM_PANELS;
}

static uint64_t amx_workspace(const struct ngd_gemm *g)
{
    struct ngd_gemm copy = *g;
    int64_t rows;

    choose_amx(&copy);
    if (!on_amx(&copy))
        return 0;
    rows = pass_rows(&copy, g->m);
    rows = g->m < rows ? g->m : rows;
    return has_tiles(&copy) ? ngd_gemm_amx_bytes(&copy, rows) : ngd_gemm_panel_bytes(&copy, rows);
}
#else
static uint64_t amx_workspace(const struct ngd_gemm *g)
{
    (void)g;
    return 0;
}

static void choose_amx(struct ngd_gemm *g)
{
    (void)g;
}
#endif

#if defined(NGD_HAVE_AVX512VNNI)
static bool choose_digits(struct ngd_gemm *g)
{
    if (!ngd_gemm_digits_fit(g))
        return false;
    g->way = NGD_GEMM_DIGITS;
    return true;
}

static bool tiles_work(const struct ngd_gemm *g)
{
#if defined(NGD_HAVE_AMX)
    return ngd_digit_tiles_work(g->table);
#else
    return (void)g, false;
#endif
}

/* With tiles, digits serve more than panels. */
static bool choose_digit_tiles(struct ngd_gemm *g)
{
#if defined(NGD_HAVE_AMX)
    if (ngd_digit_tiles_fit(g)) {
        g->way = NGD_GEMM_DIGIT_TILES;
        return true;
    }
#endif
    (void)g;
    return false;
}

static uint64_t digits_workspace(const struct ngd_gemm *g)
{
    struct ngd_gemm copy = *g;
    uint64_t bytes, tiles = 0;
    int64_t rows;

    choose_way(&copy);
    if (!choose_digits(&copy))
        return 0;
    rows = pass_rows(&copy, g->m);
    bytes = ngd_gemm_digits_bytes(&copy, g->m < rows ? g->m : rows);
#if defined(NGD_HAVE_AMX)
    if (choose_digit_tiles(&copy)) {
        rows = pass_rows(&copy, g->m);
        tiles = ngd_digit_tiles_bytes(&copy, g->m < rows ? g->m : rows);
    }
#endif
    return bytes > tiles ? bytes : tiles;
}
#else
static bool choose_digits(struct ngd_gemm *g)
{
    (void)g;
    return false;
}

static bool tiles_work(const struct ngd_gemm *g)
{
    return (void)g, false;
}

static bool choose_digit_tiles(struct ngd_gemm *g)
{
    return (void)g, false;
}

static uint64_t digits_workspace(const struct ngd_gemm *g)
{
    (void)g;
    return 0;
}
#endif

/* Returns the workspace that a thread needs, whatever the instruction set will be. */
uint64_t ngd_gemm_workspace(const struct ngd_gemm *g)
{
    struct ngd_gemm copy = *g;
    const uint64_t plain = choose_way(&copy), tiled = amx_workspace(g), digits = digits_workspace(g),
                   more = tiled > digits ? tiled : digits;

    return plain > more ? plain : more;
}

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

/* Gets the LIBXSMM kernels, all or none: the rows of one product must not run in kernels of different sums. */
static void choose_xsmm(struct ngd_gemm *g, ngd_isa_t isa)
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

void ngd_gemm_choose(struct ngd_gemm *g, ngd_isa_t isa)
{
    g->thread_workspace = (ngd_gemm_workspace(g) + 63) & ~(uint64_t)63;
    choose_way(g);
    if (ngd_cpu_has_vnni(isa))
        choose_digits(g);
    g->table = NGD_BY_ISA(isa, ngd_gemm_table);
    if (isa >= NGD_ISA_AMX && !(ngd_cpu_has_vnni(isa) && tiles_work(g) && choose_digit_tiles(g)))
        choose_amx(g);
    g->plain_y = g->xt == NGD_F32 && g->alpha == 1.0f && g->i_bias == 0xff;
    g->stream = (double)g->n * (double)g->k * weight_bytes(g) > STREAM_BYTES;
    g->alike = true;
    if (g->way == NGD_GEMM_WIDE && isa != NGD_ISA_SCALAR)
        choose_xsmm(g, isa);
}

/* Estimates the time of reading w at 10 GB/s and of the arithmetic at half of a core's peak. Returns the longer one. */
double ngd_gemm_cost(const struct ngd_gemm *g, ngd_isa_t isa)
{
    static const double flops_per_ns[NGD_ISA_MAX] = {2, 25, 50, 50, 50};
    const double weights = (double)g->n * (double)g->k * (double)g->batch;
    const double read = weights * weight_bytes(g) / 10,
                 math = 2 * weights * (double)g->m / (on_amx(g) || has_digit_tiles(g) ? 300 : flops_per_ns[isa]);

    return 50 + (read > math ? read : math);
}

/* ---- the operators -------------------------------------------------------------------------------- */

static ngd_status_t select_gemm(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    struct ngd_gemm g;

    (void)diag;
    ngd_gemm_of_call(plan, call, &g, strided_p);
    *workspace_p = ((ngd_gemm_workspace(&g) + 63) & ~(uint64_t)63) * threads;
    return NGD_OK;
}

static ngd_status_t prepare_with(ngd_host_fn fn, struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    struct ngd_gemm *g = ngd_arena_alloc(p->arena, sizeof(*g));
    uint32_t strided;

    if (!g)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    ngd_gemm_of_call(p->plan, p->call, g, &strided);
    ngd_gemm_choose(g, p->isa);
    p->params = g;
    p->fn = fn;
    p->cost_ns = ngd_gemm_cost(g, p->isa);
    return NGD_OK;
}

/* `tiles` has its own code and `wide` runs in a library: neither gains by constants. */
bool ngd_gemm_emittable(const struct ngd_gemm *g)
{
    return g->wt == NGD_BF16 && (g->way == NGD_GEMM_DOT || g->way == NGD_GEMM_AXPY) && g->k > 0;
}

#define FIELD(field) NGD_STATIC_FIELD(struct ngd_gemm, field)
static const struct ngd_static_field constants[] = {
    FIELD(m),         FIELD(n),
    FIELD(k),         FIELD(batch),
    FIELD(ldx),       FIELD(ldw),
    FIELD(ldy),       FIELD(step_x),
    FIELD(step_w),    FIELD(step_y),
    FIELD(bias_row),  FIELD(bias_col),
    FIELD(rows_mult), FIELD(alpha),
    FIELD(beta),      FIELD(xt),
    FIELD(wt),        FIELD(bias_type),
    FIELD(nk),        FIELD(plain_y),
    FIELD(stream),    FIELD(i_x),
    FIELD(i_w),       FIELD(i_bias),
    FIELD(way),       FIELD(thread_workspace),
};

void ngd_gemm_emit(const struct ngd_gemm *g, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, "{");
    ngd_static_emit_fields(sb, g, constants, sizeof(constants) / sizeof(constants[0]));
    ngd_strbuf_append(sb, "}");
}

void ngd_gemm_emit_rows(const struct ngd_gemm *g, const struct ngd_host_call *call, struct ngd_strbuf *sb)
{
    if (g->vector)
        ngd_strbuf_append(sb, "1");
    else
        ngd_static_emit_rows(call, g->rows_mult, sb);
}

static bool emit_rows(const struct ngd_host_call *call, struct ngd_strbuf *sb)
{
    const struct ngd_gemm *g = call->params;

    if (!ngd_gemm_emittable(g) || call->fn != run_gemm_rows)
        return false;
    ngd_strbuf_append(sb, "    static const struct ngd_gemm p = ");
    ngd_gemm_emit(g, sb);
    ngd_strbuf_append(sb, ";\n    gemm_multiply(&p, call, run, ");
    ngd_gemm_emit_rows(g, call, sb);
    ngd_strbuf_append(sb, ", 0, 1);\n");
    return true;
}

#define GEMM_KERNEL(name, run_fn)                                                         \
    static ngd_status_t prepare_##name(struct ngd_host_prepare *p, struct ngd_diag *diag) \
    {                                                                                     \
        return prepare_with(run_fn, p, diag);                                             \
    }                                                                                     \
    extern const struct ngd_host_kernel ngd_host_##name;                                  \
    const struct ngd_host_kernel ngd_host_##name = {                                      \
        .select = select_gemm, .prepare = prepare_##name, .emit = emit_rows, .family = NGD_STATIC_LINEAR}

GEMM_KERNEL(mm, run_gemm_rows);
GEMM_KERNEL(bmm, run_batch);
GEMM_KERNEL(addmm, run_gemm_rows);
GEMM_KERNEL(linear, run_gemm_rows);
GEMM_KERNEL(transpose_bmm, run_permuted);
GEMM_KERNEL(weight_quant, run_gemm_rows);
#endif
