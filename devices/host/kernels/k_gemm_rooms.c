/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which products may go the ways that need AVX-512 or AMX, and how these divide a thread's workspace. A plan asks for
 * that on every CPU. So these functions are apart from those that multiply: there the compiler may take instructions
 * that an older CPU does not have for any line.
 */
#include "devices/host/kernels/k_gemm_digits.h"
#include "devices/host/kernels/k_gemm_tile.h"

#define X_ROOM      (1 << 20) /* bytes of x that are laid out for one pass: half of an L2 cache */
#define PANELS_ROOM (2 << 20) /* the same for panels, which pay for filling a panel in each pass */
#define PANELS_ROWS 64        /* but no fewer rows */

/* ---- digits ---- */

struct ngd_digits_scales ngd_digits_take_scales(const struct ngd_gemm *g, char *workspace, uint64_t *used_p,
                                                int64_t column)
{
    const int64_t n = NGD_DIGITS_LANES * (column + 16),
                  block = g->quant.block; /* what takes pieces writes more than there is */

    return (struct ngd_digits_scales){.column = column,
                                      .blocks = block ? (column + block - 1) / block : 0,
                                      .by_column = ngd_digits_take(workspace, used_p, n, sizeof(float)),
                                      .unscaled = ngd_digits_take(workspace, used_p, n, sizeof(float)),
                                      .scales = ngd_digits_take(workspace, used_p, n, sizeof(float)),
                                      .offsets = ngd_digits_take(workspace, used_p, n, sizeof(float))};
}

uint64_t ngd_digits_divide_room(const struct ngd_gemm *g, int64_t rows, char *workspace, struct ngd_digits_room *room)
{
    const int64_t segments = ngd_quant_segments(g), column = ngd_quant_column(g), k = segments * g->quant.segment;
    struct ngd_digits_room r = {.segments = segments, .column = column, .k = k};
    uint64_t used = 0;

    r.x = ngd_digits_take(workspace, &used, rows * k * ngd_digits_of_x(g), 1);
    r.scales = ngd_digits_take(workspace, &used, rows * segments, sizeof(float));
    r.x_sums = ngd_digits_take(workspace, &used, rows * segments, sizeof(float));
    r.base = ngd_digits_take(workspace, &used, rows * segments * 2, sizeof(*r.base));
    r.row = ngd_digits_take(workspace, &used, k, sizeof(float));
    r.panel = ngd_digits_take(workspace, &used, NGD_DIGITS_DEPTH * NGD_DIGITS_LANES, 1);
    r.sums = ngd_digits_take(workspace, &used, rows * NGD_DIGITS_LANES, sizeof(float));
    r.w = ngd_digits_take_scales(g, workspace, &used, column);
    if (room)
        *room = r;
    return used;
}

uint64_t ngd_gemm_digits_bytes(const struct ngd_gemm *g, int64_t rows)
{
    return ngd_digits_divide_room(g, rows, NULL, NULL);
}

bool ngd_gemm_digits_fit(const struct ngd_gemm *g)
{
    return g->quant.group && g->quant.streamed && g->quant.form != NGD_QUANT_F8 && g->k > 0;
}

int64_t ngd_gemm_digits_rows(const struct ngd_gemm *g)
{
    const int64_t k = ngd_quant_segments(g) * g->quant.segment, rows = X_ROOM / (k * ngd_digits_of_x(g)) & ~(int64_t)7;

    return rows < 16 ? 16 : rows > NGD_GEMM_PASS_ROWS ? NGD_GEMM_PASS_ROWS : rows;
}

/* ---- digit tiles ---- */

struct ngd_digit_tiles_shape ngd_digit_tiles_shape(const struct ngd_gemm *g, int64_t rows)
{
    struct ngd_digit_tiles_shape s = {.blocks = (rows + NGD_TILE_ROWS - 1) / NGD_TILE_ROWS,
                                      .digits = ngd_digits_of_x(g),
                                      .rows = rows < NGD_TILE_ROWS ? rows : NGD_TILE_ROWS,
                                      .tiles = 1,
                                      .segments = ngd_quant_segments(g),
                                      .segment = g->quant.segment};
    const int64_t all = s.rows * s.digits;

    s.lanes = all <= 4 ? 4 : all <= 8 ? 8 : 16;
    s.pitch = s.lanes / s.digits;
    if (all > 16)
        s.tiles = s.digits;
    s.depth = s.segment < NGD_TILE_LINE ? s.segment : NGD_TILE_LINE;
    s.words = s.tiles * s.segment / 4 * s.lanes;
    return s;
}

uint64_t ngd_digit_tiles_divide_room(const struct ngd_gemm *g, const struct ngd_digit_tiles_shape *s, char *workspace,
                                     struct ngd_digit_tiles_room *room)
{
    struct ngd_digit_tiles_room r;
    uint64_t used = 0;

    r.x = ngd_digits_take(workspace, &used, s->blocks * s->segments * s->words, sizeof(*r.x));
    r.scales = ngd_digits_take(workspace, &used, s->blocks * s->segments * 16, sizeof(float));
    r.x_sums = ngd_digits_take(workspace, &used, s->blocks * s->segments * 16, sizeof(float));
    r.row = ngd_digits_take(workspace, &used, s->segments * s->segment, sizeof(float));
    r.staged = ngd_digits_take(workspace, &used, NGD_DIGIT_TILES_GROUPS * NGD_TILE_ROWS * NGD_DIGIT_TILES_PITCH, 1);
    r.sums = ngd_digits_take(workspace, &used, NGD_DIGIT_TILES_GROUPS * NGD_DIGITS_MOST * NGD_TILE_ROWS * 16,
                             sizeof(*r.sums));
    r.y =
        ngd_digits_take(workspace, &used, s->blocks * NGD_DIGIT_TILES_GROUPS * NGD_TILE_ROWS * s->lanes, sizeof(float));
    for (int i = 0; i < NGD_DIGIT_TILES_GROUPS; i++)
        r.w[i] = ngd_digits_take_scales(g, workspace, &used, ngd_quant_column(g));
    if (room)
        *room = r;
    return used;
}

uint64_t ngd_digit_tiles_bytes(const struct ngd_gemm *g, int64_t rows)
{
    const struct ngd_digit_tiles_shape s = ngd_digit_tiles_shape(g, rows);

    return ngd_digit_tiles_divide_room(g, &s, NULL, NULL);
}

bool ngd_digit_tiles_fit(const struct ngd_gemm *g)
{
    return ngd_gemm_digits_fit(g) && ngd_quant_segment(g) >= 32 && g->n >= NGD_TILE_ROWS &&
           g->n * g->k >= NGD_GEMM_TILES_FROM;
}

int64_t ngd_digit_tiles_rows(const struct ngd_gemm *g)
{
    const int64_t k = ngd_quant_segments(g) * g->quant.segment,
                  rows = X_ROOM / (k * ngd_digits_of_x(g)) & ~(int64_t)(NGD_TILE_ROWS - 1);

    return rows < NGD_TILE_ROWS ? NGD_TILE_ROWS : rows > NGD_GEMM_PASS_ROWS ? NGD_GEMM_PASS_ROWS : rows;
}

/* ---- tiles ---- */

uint64_t ngd_gemm_amx_bytes(const struct ngd_gemm *g, int64_t rows)
{
    const int64_t blocks = (rows + NGD_TILE_ROWS - 1) / NGD_TILE_ROWS;

    return (uint64_t)(blocks * ngd_gemm_x_terms(g) * ngd_tile_steps(g->k)) * NGD_TILE_BYTES;
}

bool ngd_gemm_amx_fits(const struct ngd_gemm *g)
{
    return g->nk && g->wt == NGD_BF16 && g->n >= 16 && g->k >= 32 && g->n * g->k >= NGD_GEMM_TILES_FROM;
}

int64_t ngd_gemm_amx_rows_in(const struct ngd_gemm *g, int64_t room, int64_t least, int64_t most)
{
    const int64_t rows = room / (g->k * ngd_gemm_x_terms(g) * 2) & ~(int64_t)15;

    return rows < least ? least : rows > most ? most : rows;
}

int64_t ngd_gemm_amx_rows(const struct ngd_gemm *g)
{
    return ngd_gemm_amx_rows_in(g, X_ROOM, 16, NGD_GEMM_MC);
}

/* ---- panels ---- */

bool ngd_panel_has_integers(const struct ngd_gemm *g)
{
    return g->quant.group >= g->k && !ngd_quant_adds(g) && g->quant.form != NGD_QUANT_F8;
}

/* Returns the bf16 terms that add up to any weight: an f32 if something is added, or the scale has two factors. */
static int64_t all_terms(const struct ngd_gemm *g)
{
    static const int number_bits[NGD_QUANT_FORMS] = {
        [NGD_QUANT_I8] = 7, [NGD_QUANT_I4] = 3, [NGD_QUANT_F8] = 4, [NGD_QUANT_F4] = 2};
    const ngd_dtype_t t = g->quant.antiquant[NGD_ANTIQUANT_SCALE].type;
    const int scale_bits = t == NGD_U8 ? 0 : t == NGD_BF16 ? 8 : t == NGD_F16 ? 11 : 24;
    int64_t terms;

    if (!g->quant.group)
        return ngd_gemm_terms_of(g->wt);
    if (ngd_quant_adds(g) || g->quant.block)
        return 3;
    terms = (number_bits[g->quant.form] + (ngd_panel_has_integers(g) ? 0 : scale_bits) + 7) / 8;
    return terms < 3 ? terms : 3;
}

int64_t ngd_panel_terms(const struct ngd_gemm *g)
{
    const int64_t all = all_terms(g), limit = ngd_gemm_term_limit(g);

    return all < limit ? all : limit;
}

bool ngd_gemm_panel_fits(const struct ngd_gemm *g)
{
    const bool other = (g->wt == NGD_F16 || g->wt == NGD_F32) && g->nk && ngd_gemm_term_limit(g) < 3;

    return g->m >= NGD_GEMM_WIDE_ROWS && g->n >= NGD_GEMM_NT / 2 && g->k >= NGD_TILE_DEPTH &&
           g->n * g->k >= NGD_GEMM_TILES_FROM && (g->quant.group || other);
}

int64_t ngd_gemm_panel_rows(const struct ngd_gemm *g)
{
    return ngd_gemm_amx_rows_in(g, PANELS_ROOM, PANELS_ROWS, NGD_GEMM_PASS_ROWS);
}

uint64_t ngd_panel_divide_room(const struct ngd_gemm *g, int64_t rows, char *workspace, struct ngd_panel_room *room)
{
    const int64_t blocks = (rows + NGD_TILE_ROWS - 1) / NGD_TILE_ROWS,
                  depth = g->k < NGD_PANEL_DEPTH ? ngd_tile_steps(g->k) : NGD_PANEL_DEPTH / NGD_TILE_DEPTH;
    const uint64_t x = ngd_gemm_amx_bytes(g, rows),
                   panel = (uint64_t)(depth * ngd_panel_terms(g) * NGD_PANEL_QUADS) * NGD_TILE_BYTES,
                   sums = (uint64_t)(blocks * NGD_PANEL_QUADS) * NGD_TILE_BYTES;

    if (room)
        *room = (struct ngd_panel_room){.panel = workspace + x, .sums = (float *)(void *)(workspace + x + panel)};
    return x + panel + sums;
}

uint64_t ngd_gemm_panel_bytes(const struct ngd_gemm *g, int64_t rows)
{
    return ngd_panel_divide_room(g, rows, NULL, NULL);
}
