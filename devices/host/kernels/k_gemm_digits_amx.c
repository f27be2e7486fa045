/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by digits (k_gemm_digits.c) on AMX tiles, any number of rows of x.
 *
 * A tile of A is 16 columns of w, as i8: i8 weights are loaded as they lie, nibbles are widened first. The columns of B
 * are digits of rows of x. The sums of a segment are integers, and are added to the elements by the same operations as
 * without tiles. So elements have the same bits.
 *
 *      x       of each block of at most 16 rows: [segment][tiles][segment / 4][lanes] words of four digits
 *      lanes   one tile has all digits of a block of few rows: first digits of all rows, then second ones, then third
 *              ones, `pitch` lanes apart. Else each digit has a tile.
 *      scales  of x, of each block: [segment][16], repeated every `lanes`
 *      sums    of a segment: [2][tiles][16 columns][lanes]; of elements, of each block: [2][16 columns][lanes]
 */
#include "devices/host/kernels/k_gemm_digits.h"
#include "base/log.h"
#include "base/mem.h"
#include "devices/host/kernels/k_gemm_tile_impl.h"

#define COLUMNS NGD_TILE_ROWS
#define LINE    NGD_TILE_LINE
#define GROUPS  NGD_DIGIT_TILES_GROUPS
#define DIGITS  NGD_DIGITS_MOST
#define STAGED  NGD_DIGIT_TILES_STAGED
#define PITCH   NGD_DIGIT_TILES_PITCH
#define SHARED  1024       /* elements of K that several blocks of rows are multiplied with, one after the other */
#define AHEAD   (6 * LINE) /* bytes of a column between a prefetch and its use */

/* ---- rows of x ---- */

/* Repeats the scales of the rows every `lanes`. */
static void repeat_lanes(const struct ngd_digit_tiles_shape *s, float *scales)
{
    for (int64_t i = s->lanes; i < 16; i++)
        scales[i] = scales[i - s->lanes];
}

static void lay_out_block(const struct ngd_gemm *g, const struct ngd_digit_tiles_shape *s,
                          const struct ngd_digit_tiles_room *room, const char *x, int64_t block, int64_t rows)
{
    const int64_t size = g->xt == NGD_F32 ? 4 : 2, lanes = s->lanes;
    float *scales = room->scales + block * s->segments * 16, *sums = room->x_sums + block * s->segments * 16;
    int32_t *words = room->x + block * s->segments * s->words;

    if (rows * s->digits < s->tiles * lanes)
        memset(words, 0, (size_t)(s->segments * s->words) * sizeof(*words));
    memset(scales, 0, (size_t)(s->segments * 16) * sizeof(float));
    memset(sums, 0, (size_t)(s->segments * 16) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        const struct ngd_digits_place p = {.x = words + r,
                                           .scales = scales + r,
                                           .sums = sums + r,
                                           .each = 16,
                                           .digit = s->tiles > 1 ? s->segment / 4 * lanes : s->pitch,
                                           .odd = ngd_quant_nibbles(g) ? s->segment / 8 * lanes : lanes,
                                           .eight = ngd_quant_nibbles(g) ? lanes : 2 * lanes,
                                           .segment = s->words};

        ngd_digits_lay_out_row(g, x + r * g->ldx * size, &p, room->row);
    }
    for (int64_t i = 0; i < s->segments; i++) {
        repeat_lanes(s, scales + i * 16);
        repeat_lanes(s, sums + i * 16);
    }
}

void ngd_digit_tiles_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace)
{
    const struct ngd_digit_tiles_shape s = ngd_digit_tiles_shape(g, rows);
    const int64_t size = g->xt == NGD_F32 ? 4 : 2;
    struct ngd_digit_tiles_room room;

    ngd_digit_tiles_divide_room(g, &s, workspace, &room);
    for (int64_t b = 0; b < s.blocks; b++) {
        const int64_t m = b * COLUMNS, left = rows - m;

        lay_out_block(g, &s, &room, x + m * g->ldx * size, b, left < COLUMNS ? left : COLUMNS);
    }
}

/* ---- weights ---- */

/* Columns of w: up to 32, of `bytes` each. */
struct strip {
    const char *w;
    int64_t ld, bytes, cols;
    int64_t jump; /* bytes from the end of these columns to the beginning of the next ones, of each */
};

/* Asks for the same bytes of a column further on; near its end, for the beginning of one of the next columns. */
static inline void fetch_column(const struct strip *strip, const char *column, int64_t at)
{
    const char *p = column + at + AHEAD + (at + AHEAD < strip->bytes ? 0 : strip->jump);

    __asm__ volatile("prefetcht0 %0" ::"m"(*p));
}

static inline __m512i load_some(const char *p, int64_t left)
{
    if (left >= LINE)
        return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi8(left > 0 ? ((__mmask64)1 << left) - 1 : 0, p);
}

/* Stores 128 elements, the even ones of which come before the odd ones of a segment. at: of the first one. */
static inline void put_nibbles(__m512i even, __m512i odd, int64_t segment, int64_t at, char *to)
{
    if (segment == 32) { /* four segments */
        const __m512i a = _mm512_shuffle_i32x4(even, odd, 0x44), b = _mm512_shuffle_i32x4(even, odd, 0xee);

        even = _mm512_shuffle_i32x4(a, a, 0xd8);
        odd = _mm512_shuffle_i32x4(b, b, 0xd8);
    }
    if (segment == 256)
        at = at / 256 * 256 + at % 256 / 2;
    _mm512_store_si512(to + at, even);
    _mm512_store_si512(to + at + (segment == 256 ? 128 : 64), odd);
}

/* Widens elements [k, k + STAGED) of a column to i8. */
static inline void stage_nibbles(const struct strip *strip, const char *column, int64_t k, int64_t segment,
                                 const __m512i numbers, char *to)
{
    const __m512i nibble = _mm512_set1_epi8(15);

    NGD_UNROLL for (int i = 0; i < STAGED; i += 128)
    {
        const int64_t at = (k + i) / 2;
        const __m512i v = load_some(column + at, strip->bytes - at);

        fetch_column(strip, column, at);
        put_nibbles(_mm512_shuffle_epi8(numbers, _mm512_and_si512(v, nibble)),
                    _mm512_shuffle_epi8(numbers, _mm512_and_si512(_mm512_srli_epi32(v, 4), nibble)), segment, i, to);
    }
}

static void stage_bytes(const struct strip *strip, const char *column, int64_t k, char *to)
{
    for (int64_t i = 0; i < STAGED; i += LINE)
        _mm512_store_si512(to + i, load_some(column + k + i, strip->bytes - k - i));
}

/* Writes elements [k, k + STAGED) of a group of 16 columns to the room. Columns that are missing get those of the last
 * one; their results are not used. */
static void stage(const struct ngd_gemm *g, const struct strip *strip, int64_t group, int64_t k, char *to)
{
    static const int8_t i4[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    const __m512i numbers =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(g->quant.form == NGD_QUANT_F4 ? ngd_quant_f4 : i4)));

    for (int64_t i = 0; i < COLUMNS; i++, to += PITCH) {
        const int64_t n = group * COLUMNS + i;
        const char *column = strip->w + (n < strip->cols ? n : strip->cols - 1) * strip->ld;

        if (ngd_quant_nibbles(g))
            stage_nibbles(strip, column, k, g->quant.segment, numbers, to);
        else
            stage_bytes(strip, column, k, to);
    }
}

/* ---- products ---- */

/* Tiles 0 to 3 are sums, 4 and 5 are A, 6 and 7 are B. */
static void configure_tiles(const struct ngd_digit_tiles_shape *s)
{
    struct ngd_tile_config c = ngd_tile_full();

    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = (uint16_t)(t == 4 || t == 5 ? s->depth : s->lanes * 4);
        c.rows[t] = (uint8_t)(t >= 6 ? s->depth / 4 : NGD_TILE_ROWS);
    }
    NGD_TILE_CONFIG(c);
}

/* What the products of a segment read. */
struct source {
    const char *a[GROUPS];
    int64_t ld;                /* bytes from column to column */
    int64_t at;                /* bytes of the columns before the segment */
    const struct strip *strip; /* that is prefetched; NULL: none */
    const int32_t *b;
};

static inline void fetch_strip(const struct source *from, const char *a, int64_t at)
{
    if (from->strip)
        NGD_UNROLL for (int i = 0; i < COLUMNS; i++) fetch_column(from->strip, a + i * from->ld, at);
}

/* One tile of B. */
static inline void multiply_1(const struct ngd_digit_tiles_shape *s, const struct source *from, bool two, int32_t *sums)
{
    const int64_t b_row = s->lanes * 4, sums_row = s->lanes * 4, b_tile = s->depth / 4 * s->lanes;
    const int32_t *b = from->b;

    NGD_TILE_ZERO(0);
    NGD_TILE_ZERO(1);
    for (int64_t at = from->at, end = at + s->segment; at < end; at += s->depth, b += b_tile) {
        NGD_TILE_LOAD(6, b, b_row);
        fetch_strip(from, from->a[0], at);
        NGD_TILE_LOAD(4, from->a[0] + at, from->ld);
        NGD_TILE_DOT_I8(0, 4, 6);
        if (two) {
            fetch_strip(from, from->a[1], at);
            NGD_TILE_LOAD(5, from->a[1] + at, from->ld);
            NGD_TILE_DOT_I8(1, 5, 6);
        }
    }
    NGD_TILE_STORE(0, sums, sums_row);
    if (two)
        NGD_TILE_STORE(1, sums + DIGITS * COLUMNS * 16, sums_row);
}

/* Two tiles of B. */
static inline void multiply_2(const struct ngd_digit_tiles_shape *s, const struct source *from, bool two, int32_t *sums)
{
    const int64_t b_tile = s->segment / 4 * 16, sum = COLUMNS * 16;
    const int32_t *b = from->b;

    NGD_TILE_ZERO(0);
    NGD_TILE_ZERO(1);
    NGD_TILE_ZERO(2);
    NGD_TILE_ZERO(3);
    for (int64_t at = from->at, end = at + s->segment; at < end; at += s->depth, b += s->depth / 4 * 16) {
        NGD_TILE_LOAD(6, b, LINE);
        fetch_strip(from, from->a[0], at);
        NGD_TILE_LOAD(4, from->a[0] + at, from->ld);
        NGD_TILE_DOT_I8(0, 4, 6);
        NGD_TILE_LOAD(7, b + b_tile, LINE);
        NGD_TILE_DOT_I8(1, 4, 7);
        if (two) {
            fetch_strip(from, from->a[1], at);
            NGD_TILE_LOAD(5, from->a[1] + at, from->ld);
            NGD_TILE_DOT_I8(2, 5, 6);
            NGD_TILE_DOT_I8(3, 5, 7);
        }
    }
    NGD_TILE_STORE(0, sums, LINE);
    NGD_TILE_STORE(1, sums + sum, LINE);
    if (two) {
        NGD_TILE_STORE(2, sums + DIGITS * sum, LINE);
        NGD_TILE_STORE(3, sums + DIGITS * sum + sum, LINE);
    }
}

/* Three tiles of B, and 16 columns. */
static inline void multiply_3(const struct ngd_digit_tiles_shape *s, const struct source *from, int group,
                              int32_t *sums)
{
    const int64_t b_tile = s->segment / 4 * 16, sum = COLUMNS * 16;
    const int32_t *b = from->b;

    NGD_TILE_ZERO(0);
    NGD_TILE_ZERO(1);
    NGD_TILE_ZERO(2);
    for (int64_t at = from->at, end = at + s->segment; at < end; at += s->depth, b += s->depth / 4 * 16) {
        fetch_strip(from, from->a[group], at);
        NGD_TILE_LOAD(4, from->a[group] + at, from->ld);
        NGD_TILE_LOAD(6, b, LINE);
        NGD_TILE_DOT_I8(0, 4, 6);
        NGD_TILE_LOAD(7, b + b_tile, LINE);
        NGD_TILE_DOT_I8(1, 4, 7);
        NGD_TILE_LOAD(6, b + 2 * b_tile, LINE);
        NGD_TILE_DOT_I8(2, 4, 6);
    }
    sums += group * DIGITS * sum;
    NGD_TILE_STORE(0, sums, LINE);
    NGD_TILE_STORE(1, sums + sum, LINE);
    NGD_TILE_STORE(2, sums + 2 * sum, LINE);
}

/* Computes the sums of a segment for one or two groups of columns. */
static void multiply_segment(const struct ngd_digit_tiles_shape *s, const struct source *from, int64_t groups,
                             int32_t *sums)
{
    if (s->tiles == 1)
        multiply_1(s, from, groups > 1, sums);
    else if (s->tiles == 2)
        multiply_2(s, from, groups > 1, sums);
    else
        for (int i = 0; i < groups; i++)
            multiply_3(s, from, i, sums);
}

/* The scales of a segment. */
struct segment_scales {
    __m512 x, x_sum;
    __m512 w, w_offset; /* of 16 columns */
    bool offsets;
};

/* Adds a segment's sums of 16 columns to their elements. A vector has 16 / lanes columns. */
static inline __attribute__((always_inline)) void add_sums(const struct ngd_digit_tiles_shape *s, const int lanes,
                                                           const int digits, const struct segment_scales *c,
                                                           const int32_t *sums, float *y)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                  second = _mm512_add_epi32(lane, _mm512_set1_epi32((int)s->pitch)),
                  third = _mm512_add_epi32(second, _mm512_set1_epi32((int)s->pitch));
    const bool apart = s->tiles > 1;
    __m512i column = _mm512_srli_epi32(lane, lanes == 4 ? 2 : lanes == 8 ? 3 : 4);

    for (int i = 0; i < lanes; i++, sums += 16, y += 16) {
        const __m512i all = _mm512_load_si512(sums),
                      next = apart ? _mm512_load_si512(sums + COLUMNS * 16) : _mm512_permutexvar_epi32(second, all),
                      upper = digits == 1 ? all : _mm512_add_epi32(_mm512_slli_epi32(all, 8), next);
        __m512 sum = _mm512_cvtepi32_ps(upper), v = _mm512_load_ps(y);

        if (digits == 3) {
            const __m512i last =
                apart ? _mm512_load_si512(sums + 2 * COLUMNS * 16) : _mm512_permutexvar_epi32(third, all);

            sum = _mm512_fmadd_ps(sum, _mm512_set1_ps(256), _mm512_cvtepi32_ps(last));
        }
        v = _mm512_fmadd_ps(_mm512_mul_ps(sum, c->x), _mm512_permutexvar_ps(column, c->w), v);
        if (c->offsets)
            v = _mm512_fmadd_ps(c->x_sum, _mm512_permutexvar_ps(column, c->w_offset), v);
        _mm512_store_ps(y, v);
        column = _mm512_add_epi32(column, _mm512_set1_epi32(16 / lanes));
    }
}

#define ADD_SUMS(lanes)                                                                            \
    static void add_##lanes(const struct ngd_digit_tiles_shape *s, const struct segment_scales *c, \
                            const int32_t *sums, float *y)                                         \
    {                                                                                              \
        s->digits == 3   ? add_sums(s, lanes, 3, c, sums, y)                                       \
        : s->digits == 2 ? add_sums(s, lanes, 2, c, sums, y)                                       \
                         : add_sums(s, lanes, 1, c, sums, y);                                      \
    }
ADD_SUMS(4)
ADD_SUMS(8)
ADD_SUMS(16)

static void add_segment(const struct ngd_digit_tiles_shape *s, const struct segment_scales *c, const int32_t *sums,
                        float *y)
{
    (s->lanes == 16 ? add_16 : s->lanes == 8 ? add_8 : add_4)(s, c, sums, y);
}

/* Multiplies a block of rows with segments [first, end) of one or two groups of columns, and adds up the elements. */
static void multiply_digit_block(const struct ngd_digit_tiles_shape *s, const struct ngd_digit_tiles_room *room,
                                 int64_t block, int64_t first, int64_t end, int64_t groups, bool by_segment,
                                 bool offsets, struct source *from)
{
    for (int64_t i = first, at = from->at; i < end; i++, at += s->segment) {
        const int64_t x = block * s->segments + i, w = by_segment ? i * 16 : 0;
        struct source segment = *from;

        segment.at = at;
        segment.b = room->x + x * s->words;
        multiply_segment(s, &segment, groups, room->sums);
        for (int64_t j = 0; j < groups; j++) {
            const struct segment_scales c = {.x = _mm512_load_ps(room->scales + x * 16),
                                             .x_sum = _mm512_load_ps(room->x_sums + x * 16),
                                             .w = _mm512_load_ps(room->w[j].scales + w),
                                             .w_offset =
                                                 _mm512_load_ps((offsets ? room->w[j].offsets : room->w[j].scales) + w),
                                             .offsets = offsets};

            add_segment(s, &c, room->sums + j * DIGITS * COLUMNS * 16,
                        room->y + (block * GROUPS + j) * COLUMNS * s->lanes);
        }
    }
}

/* Multiplies all rows with a strip of columns. */
static void multiply_strip(const struct ngd_gemm *g, const struct ngd_digit_tiles_shape *s,
                           const struct ngd_digit_tiles_room *room, const struct strip *strip, bool offsets)
{
    const int64_t groups = (strip->cols + COLUMNS - 1) / COLUMNS;
    const bool by_segment = ngd_quant_column(g) > 1,
               as_it_lies = !ngd_quant_nibbles(g) && strip->cols % COLUMNS == 0 && s->segments * s->segment == g->k;
    const int64_t depth = !as_it_lies     ? STAGED
                          : s->blocks > 1 ? SHARED
                                          : s->segments * s->segment,
                  each = depth / s->segment;

    memset(room->y, 0, (size_t)(s->blocks * GROUPS * COLUMNS * s->lanes) * sizeof(float));
    for (int64_t first = 0; first < s->segments; first += each) {
        const int64_t end = first + each < s->segments ? first + each : s->segments, k = first * s->segment;
        struct source from = {
            .a = {strip->w, strip->w + COLUMNS * strip->ld}, .ld = strip->ld, .at = k, .strip = strip};

        if (!as_it_lies) {
            from = (struct source){.a = {room->staged, room->staged + COLUMNS * PITCH}, .ld = PITCH};
            for (int64_t i = 0; i < groups; i++)
                stage(g, strip, i, k, room->staged + i * COLUMNS * PITCH);
        }
        for (int64_t b = 0; b < s->blocks; b++, from.strip = NULL)
            multiply_digit_block(s, room, b, first, end, groups, by_segment, offsets, &from);
    }
}

/* Stores the results of a block of rows and 16 columns. */
static void put_digit_block(const struct ngd_gemm *g, const struct ngd_gemm_data *d,
                            const struct ngd_digit_tiles_shape *s, const float *y, int64_t m, int64_t rows, int64_t n,
                            int64_t cols)
{
    _Alignas(64) float row[COLUMNS];
    __m512i v[16];

    if (s->lanes == 16) {
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_load_si512(y + i * 16);
        ngd_tile_transpose(v);
    }
    for (int64_t r = 0; r < rows; r++) {
        if (s->lanes == 16)
            _mm512_store_si512(row, v[r]);
        else
            for (int64_t i = 0; i < COLUMNS; i++)
                row[i] = y[i * s->lanes + r];
        ngd_gemm_put(g, d, m + r, n, row, cols);
    }
}

void ngd_digit_tiles_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                         int64_t n1)
{
    const struct ngd_digit_tiles_shape s = ngd_digit_tiles_shape(g, m1 - m0);
    struct strip strip = {.ld = g->ldw, .bytes = ngd_quant_nibbles(g) ? (g->k + 1) / 2 : g->k};
    struct ngd_digit_tiles_room room;

    ngd_digit_tiles_divide_room(g, &s, d->workspace, &room);
    configure_tiles(&s);
    strip.jump = GROUPS * COLUMNS * g->ldw - strip.bytes;
    for (int64_t n = n0; n < n1; n += strip.cols) {
        strip.w = d->w + n * g->ldw;
        strip.cols = n1 - n < GROUPS * COLUMNS ? n1 - n : GROUPS * COLUMNS;
        for (int64_t i = 0; i * COLUMNS < strip.cols; i++) {
            const int64_t left = strip.cols - i * COLUMNS;

            ngd_digits_prepare_scales(g, d, n + i * COLUMNS, left < COLUMNS ? left : COLUMNS, &room.w[i]);
        }
        multiply_strip(g, &s, &room, &strip, ngd_quant_adds(g));
        for (int64_t b = 0; b < s.blocks; b++)
            for (int64_t i = 0; i * COLUMNS < strip.cols; i++) {
                const int64_t left = strip.cols - i * COLUMNS, m = m0 + b * COLUMNS;

                put_digit_block(g, d, &s, room.y + (b * GROUPS + i) * COLUMNS * s.lanes, m,
                                m1 - m < COLUMNS ? m1 - m : COLUMNS, n + i * COLUMNS, left < COLUMNS ? left : COLUMNS);
            }
    }
    NGD_TILE_RELEASE();
}

/* ---- the check ---- */

#define CHECK_ROWS 9 /* need two tiles of B with two digits */
#define CHECK_N    32
#define CHECK_K    256

/* Computes a product both ways, and compares the results. */
static bool product_is_alike(struct ngd_gemm *g, char *room, char *workspace)
{
    const int64_t results = g->m * CHECK_N * (g->xt == NGD_F32 ? 4 : 2);
    struct ngd_gemm_data d = {.workspace = workspace};
    char *x = room, *w = x + CHECK_ROWS * CHECK_K * 4, *scales = w + CHECK_N * CHECK_K;
    char *tiles = scales + CHECK_N * 4, *plain = tiles + CHECK_ROWS * CHECK_N * 4;

    for (int64_t i = 0; i < CHECK_ROWS * CHECK_K; i++) {
        const float v = (float)((i * 2654435761 >> 7) % 1021 - 510) * 0.0371F;

        if (g->xt == NGD_F32)
            memcpy(x + i * 4, &v, 4);
        else
            ((uint16_t *)(void *)x)[i] = ngd_f32_to_bf16(v);
    }
    for (int64_t i = 0; i < CHECK_N * CHECK_K; i++)
        w[i] = (char)(i * 2654435761 >> 11);
    for (int64_t i = 0; i < CHECK_N; i++)
        ((float *)(void *)scales)[i] = (float)(i + 1) * 0.01F;
    d.x = x, d.w = w, d.antiquant[NGD_ANTIQUANT_SCALE] = scales, d.y = tiles;
    ngd_digit_tiles_lay_out(g, x, g->m, workspace);
    ngd_digit_tiles_run(g, &d, 0, g->m, 0, CHECK_N);
    d.y = plain;
    ngd_gemm_digits_lay_out(g, x, g->m, workspace);
    ngd_gemm_digits_run(g, &d, 0, g->m, 0, CHECK_N);
    return memcmp(tiles, plain, (size_t)results) == 0;
}

/* Compares products of few rows and of several, of i8 and of nibbles, with one to three digits. Returns false if there
 * is no memory. */
static bool products_are_alike(const struct ngd_gemm_table *table, bool *alike_p)
{
    static const int64_t rows[] = {1, 3, CHECK_ROWS};

    *alike_p = true;
    for (int i = 0; *alike_p && i < 24; i++) {
        const bool nibbles = i / 3 % 2, f32 = i / 6 % 2;
        struct ngd_gemm g = {.m = rows[i % 3],
                             .n = CHECK_N,
                             .k = CHECK_K,
                             .batch = 1,
                             .ldx = CHECK_K,
                             .ldw = nibbles ? CHECK_K / 2 : CHECK_K,
                             .ldy = CHECK_N,
                             .alpha = 1,
                             .xt = f32 ? NGD_F32 : NGD_BF16,
                             .wt = nibbles ? NGD_I32 : NGD_I8,
                             .nk = true,
                             .plain_y = f32,
                             .precision = i / 12 ? NGD_PRECISION_MEDIUM : NGD_PRECISION_HIGHEST,
                             .i_bias = 0xff,
                             .table = table,
                             .quant = {.group = CHECK_K,
                                       .columns = 1,
                                       .segment = NGD_QUANT_SEGMENT,
                                       .form = nibbles ? NGD_QUANT_I4 : NGD_QUANT_I8,
                                       .streamed = true,
                                       .has = NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_SCALE),
                                       .antiquant[NGD_ANTIQUANT_SCALE] = {.type = NGD_F32, .n = 1, .g = 1}}};
        const uint64_t tiles = ngd_digit_tiles_bytes(&g, g.m), plain = ngd_gemm_digits_bytes(&g, g.m),
                       data = CHECK_ROWS * CHECK_K * 4 + CHECK_N * CHECK_K + CHECK_N * 4 + 2 * CHECK_ROWS * CHECK_N * 4;
        char *room = ngd_aligned_alloc(64, (data + (tiles > plain ? tiles : plain) + 127) & ~(uint64_t)63);

        if (!room)
            return false;
        *alike_p = product_is_alike(&g, room, room + ((data + 63) & ~(uint64_t)63));
        ngd_free(room);
    }
    return true;
}

bool ngd_digit_tiles_work(ngd_isa_t isa)
{
    static _Atomic int known; /* 1: they do, 2: they do not */

    if (!known) {
        bool alike;

        if (!products_are_alike(NGD_BY_ISA(isa, ngd_gemm_table), &alike))
            return false; /* the next capture tries again */
        if (!alike)
            ngd_warning("devices", "AMX tiles give other sums of i8 than VNNI: digits of x go without them");
        known = alike ? 1 : 2;
    }
    return known == 1;
}
