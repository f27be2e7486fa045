/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with quantised weights in rows of K on a CPU with AVX-512 VNNI, any number of rows; see k_gemm.h.
 *
 * As in k_gemm_quant.h, K is cut into segments, and a segment of a row of x is scale * q with integers q, where the
 * scale is a power of two. Here q is written as two digits of base 256, or three if x is f32: |q| <= 2^14 or 2^22, and
 * a digit is an i8. VNNI multiplies four u8 (weights plus `zero`) with four i8 at once. The sums of a segment are
 * integers, which cannot overflow (256 * 255 * 2^14 < 2^31). So an element depends only on its row of x, its column of
 * w and K, and bf16 and f16 elements are exact that are at least 2^-6 or 2^-3 of the largest of their segment.
 *
 * With less precision f32 has two digits (high) or every x has one (medium), whose scale is the largest element / 127.
 *
 * 16 columns of w are the lanes of a vector: they are turned into a panel, DEPTH rows of K deep, which stays in the L1
 * cache. Blocks of 8, 4, 2 or 1 rows of x are multiplied with it.
 *
 *      panel   [K / 4][16 columns][4] u8; of nibbles, each 8 rows of K are the 4 even ones, then the 4 odd ones
 *      x       of each block: [K / 4][rows][digits][4] i8, in the same order
 *      sums    [rows][16 columns] f32
 */
#include "devices/host/kernels/k_gemm_digits.h"
#include "devices/host/kernels/unroll.h"
#include <immintrin.h>
#include <math.h>

#define LANES NGD_DIGITS_LANES
#define DEPTH NGD_DIGITS_DEPTH
#define LINE  64 /* bytes of a column that are read at once */
#define PIECE 16 /* bytes of a column that go through a transposition */

/* Returns the rows of the next block, of those that are left. With three digits, eight rows have too many sums. */
static int64_t next_block(const struct ngd_gemm *g, int64_t left)
{
    const int64_t most = ngd_digits_of_x(g) == 3 ? 4 : 8;

    while (left < most && (left & (left - 1)) != 0)
        left &= left - 1;
    return left < most ? left : most;
}

/* Returns what is added to a weight to make it a u8. */
static int32_t zero_of(const struct ngd_gemm *g)
{
    return g->quant.form == NGD_QUANT_I8 ? 128 : g->quant.form == NGD_QUANT_I4 ? 8 : 12;
}

/* ---- rows of x ---- */

/* Returns the power of two that is the scale of a segment whose largest element has the bits `top`, and its inverse. */
static float digits_scale(uint32_t top, int bits, float *inverse_p)
{
    int32_t e = (int32_t)(top >> 23) - 127 + 1 - bits;
    uint32_t scale, inverse;
    float v;

    e = e < -125 ? -125 : e; /* elements that are smaller still become 0 */
    scale = (uint32_t)(127 + e) << 23;
    inverse = (uint32_t)(127 - e) << 23;
    memcpy(inverse_p, &inverse, sizeof(inverse));
    memcpy(&v, &scale, sizeof(v));
    return v;
}

/* Returns the scale of a segment that has one digit, and its inverse: products with it are not exact anyway. */
static float one_digit_scale(uint32_t top, float *inverse_p)
{
    float largest;

    memcpy(&largest, &top, sizeof(largest));
    *inverse_p = largest >= 0x1p-100F ? 127 / largest : 0;
    return largest / 127;
}

/* Returns the bits of the largest magnitude of n elements, a multiple of 16; NaN is larger than all. */
static uint32_t largest_bits(const float *x, int n)
{
    __m512i top = _mm512_setzero_si512();

    for (int i = 0; i < n; i += LANES)
        top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_loadu_si512(x + i), _mm512_set1_epi32(0x7fffffff)));
    return _mm512_reduce_max_epu32(top);
}

/* Stores 16 digits as four words. */
static inline void put_digits(__m128i v, bool nibbles, const struct ngd_digits_place *p, int32_t *to)
{
    if (nibbles)
        v = _mm_shuffle_epi8(v, _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    to[0] = _mm_extract_epi32(v, 0);
    to[p->odd] = _mm_extract_epi32(v, 1);
    to[p->eight] = _mm_extract_epi32(v, 2);
    to[p->eight + p->odd] = _mm_extract_epi32(v, 3);
}

/* q >> 8, rounded so that q - 256 times it is an i8. */
static inline __m512i next_digits(__m512i q)
{
    return _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
}

/*
 * Lays out segment s. The sums of u8 products are too large by zero * the sum of q: `base` has the negative of that,
 * of q in [0]; with three digits, of q without its last digit in [0], and of the last digit in [1].
 */
static inline void lay_out_segment(const float *x, int segment, const int digits, bool nibbles, int32_t zero,
                                   const struct ngd_digits_place *p, int64_t s)
{
    const uint32_t top = largest_bits(x, segment);
    const bool finite = top < 0x7f800000;
    int32_t *to = p->x + s * p->segment;
    __m512i total = _mm512_setzero_si512(), rest = total;
    float inverse, scale = digits == 1 ? one_digit_scale(finite ? top : 0, &inverse)
                                       : digits_scale(finite ? top : 0, digits == 3 ? 22 : 14, &inverse);

    for (int i = 0; i < segment; i += LANES, to += 2 * p->eight) {
        const __m512i q = finite ? _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(inverse)))
                                 : _mm512_setzero_si512(),
                      above = next_digits(q);

        put_digits(_mm512_cvtepi32_epi8(q), nibbles, p, to + (digits - 1) * p->digit);
        if (digits > 1)
            put_digits(_mm512_cvtepi32_epi8(above), nibbles, p, to + (digits - 2) * p->digit);
        if (digits == 3) {
            put_digits(_mm512_cvtepi32_epi8(next_digits(above)), nibbles, p, to);
            rest = _mm512_add_epi32(rest, above);
        }
        total = _mm512_add_epi32(total, q);
    }
    {
        const int32_t all = _mm512_reduce_add_epi32(total), upper = _mm512_reduce_add_epi32(rest);

        p->scales[s * p->each] = finite ? scale : NAN;
        p->sums[s * p->each] = finite ? (float)all * scale : NAN;
        if (p->base) {
            p->base[2 * s * p->each] = -zero * (digits == 3 ? upper : all);
            p->base[2 * s * p->each + 1] = digits == 3 ? -zero * (all - 256 * upper) : 0;
        }
    }
}

void ngd_digits_lay_out_row(const struct ngd_gemm *g, const char *x, const struct ngd_digits_place *p, float *row)
{
    const int64_t segments = ngd_quant_segments(g), digits = ngd_digits_of_x(g);
    const int segment = g->quant.segment;
    const bool nibbles = ngd_quant_nibbles(g);
    const int32_t zero = zero_of(g);

    g->table->widen[g->xt](x, 0, 1, g->k, row, 0);
    memset(row + g->k, 0, (size_t)(segments * segment - g->k) * sizeof(float));
    for (int64_t s = 0; s < segments; s++)
        if (digits == 3)
            lay_out_segment(row + s * segment, segment, 3, nibbles, zero, p, s);
        else if (digits == 2)
            lay_out_segment(row + s * segment, segment, 2, nibbles, zero, p, s);
        else
            lay_out_segment(row + s * segment, segment, 1, nibbles, zero, p, s);
}

void ngd_gemm_digits_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace)
{
    const int64_t size = g->xt == NGD_F32 ? 4 : 2, digits = ngd_digits_of_x(g);
    struct ngd_digits_room room;

    ngd_digits_divide_room(g, rows, workspace, &room);
    for (int64_t m = 0, each; m < rows; m += each) {
        each = next_block(g, rows - m);
        for (int64_t r = 0; r < each; r++) {
            const int64_t at = m * room.segments + r, step = each * digits;
            const struct ngd_digits_place p = {.x = room.x + m * room.k * digits / 4 + r * digits,
                                               .scales = room.scales + at,
                                               .sums = room.x_sums + at,
                                               .base = room.base + 2 * at,
                                               .each = each,
                                               .digit = 1,
                                               .odd = step,
                                               .eight = 2 * step,
                                               .segment = g->quant.segment / 4 * step};

            ngd_digits_lay_out_row(g, x + (m + r) * g->ldx * size, &p, room.row);
        }
    }
}

/* ---- panels of w ---- */

/* The columns of a panel. */
struct columns {
    const char *w;
    int64_t ldw, bytes, cols; /* `bytes` of each column; cols <= 16 */
    int64_t readable;         /* bytes that may be read of each: rows of other columns are behind it */
    const char *next;         /* what is read for the next panel, asked for in the order of memory */
};

static inline __m128i load_16(const char *p)
{
    return _mm_loadu_si128((const void *)p);
}

static inline __m512i join(__m128i a, __m128i b, __m128i c, __m128i d)
{
    __m512i v = _mm512_castsi128_si512(a);

    v = _mm512_inserti32x4(v, b, 1);
    v = _mm512_inserti32x4(v, c, 2);
    return _mm512_inserti32x4(v, d, 3);
}

/* Loads 16 bytes of 16 columns: v[i] has those of columns i, i + 4, i + 8 and i + 12. */
static inline void load_pieces(const char *p, int64_t ld, __m512i v[4])
{
    NGD_UNROLL for (int i = 0; i < 4; i++, p += ld) v[i] =
        join(load_16(p), load_16(p + 4 * ld), load_16(p + 8 * ld), load_16(p + 12 * ld));
}

/* The same where columns or bytes are missing, which become zeros. */
static __attribute__((noinline)) void load_some_pieces(const struct columns *c, int64_t at, __m512i v[4])
{
    const int64_t left = c->bytes - at, some = left > PIECE ? PIECE : left;
    _Alignas(64) char room[LANES][PIECE] = {{0}};

    for (int64_t i = 0; some > 0 && i < c->cols; i++)
        memcpy(room[i], c->w + i * c->ldw + at, (size_t)some);
    load_pieces(room[0], PIECE, v);
}

/* Turns pieces of 16 columns into vectors of 16 columns: v[t] has word t of each. */
static inline void transpose(__m512i v[4])
{
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]),
                  c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);

    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
}

/* (v ^ a) & b */
#ifdef NGD_EMULATE
#define XOR_AND(v, a, b) _mm512_and_si512(_mm512_xor_si512(v, a), b)
#else
#define XOR_AND(v, a, b) _mm512_ternarylogic_epi32(v, a, b, 0x28)
#endif

/* Returns the vectors that a piece makes. */
static inline int vectors_of(const ngd_quant_form_t form)
{
    return form == NGD_QUANT_I8 ? 4 : 8;
}

/* Turns 16 bytes of each column into vectors of the panel: to[vectors_of(form)]. */
static inline __attribute__((always_inline)) void take_columns_piece(const struct columns *c, int64_t at,
                                                                     const ngd_quant_form_t form, __m512i to[8])
{
    const __m512i nibble = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(form == NGD_QUANT_I8 ? (char)0x80 : 8),
                  numbers =
                      _mm512_broadcast_i32x4(_mm_add_epi8(load_16((const char *)ngd_quant_f4), _mm_set1_epi8(12)));
    __m512i v[4];

    if (c->cols == LANES && at + PIECE <= c->bytes)
        load_pieces(c->w + at, c->ldw, v);
    else
        load_some_pieces(c, at, v);
    transpose(v);
    NGD_UNROLL for (int t = 0; t < 4; t++)
    {
        const __m512i odd = _mm512_srli_epi32(v[t], 4);

        if (form == NGD_QUANT_I8) {
            to[t] = _mm512_xor_si512(v[t], sign);
        } else if (form == NGD_QUANT_I4) {
            to[2 * t] = XOR_AND(v[t], sign, nibble);
            to[2 * t + 1] = XOR_AND(odd, sign, nibble);
        } else {
            to[2 * t] = _mm512_shuffle_epi8(numbers, _mm512_and_si512(v[t], nibble));
            to[2 * t + 1] = _mm512_shuffle_epi8(numbers, _mm512_and_si512(odd, nibble));
        }
    }
}

static inline void ask_ahead(const char *p, const int lines)
{
    NGD_UNROLL for (int i = 0; i < lines; i++) __builtin_prefetch(p + i * LINE, 0, 3);
}

/* Fills the panel with bytes [from, end) of each column. */
static inline __attribute__((always_inline)) void fill_byte_panel(struct columns *c, int64_t from, int64_t end,
                                                                  const ngd_quant_form_t form, uint8_t *panel)
{
    for (int64_t at = from; at < end; at += PIECE) {
        __m512i v[8];

        ask_ahead(c->next, 2);
        c->next += 2 * LINE;
        take_columns_piece(c, at, form, v);
        NGD_UNROLL for (int i = 0; i < vectors_of(form); i++, panel += LINE) _mm512_store_si512(panel, v[i]);
    }
}

static void fill(const struct ngd_gemm *g, struct columns *c, int64_t k, int64_t depth, uint8_t *panel)
{
    const int64_t from = ngd_quant_nibbles(g) ? k / 2 : k, some = ngd_quant_nibbles(g) ? depth / 2 : depth,
                  end = from + some < c->bytes ? from + some : c->bytes;

    if (g->quant.form == NGD_QUANT_I8)
        fill_byte_panel(c, from, end, NGD_QUANT_I8, panel);
    else if (g->quant.form == NGD_QUANT_I4)
        fill_byte_panel(c, from, end, NGD_QUANT_I4, panel);
    else
        fill_byte_panel(c, from, end, NGD_QUANT_F4, panel);
}

/* ---- scales ---- */

/* Turns [16 columns][n] into [n][16 columns]. What lies behind the columns may be read, and is written, up to 3 more.
 */
static void transpose_floats(const float *from, int64_t n, float *to)
{
    __m512i v[4];

    for (int64_t at = 0; at < n; at += 4) {
        load_pieces((const char *)(from + at), n * 4, v);
        transpose(v);
        NGD_UNROLL for (int i = 0; i < 4; i++) _mm512_store_si512(to + (at + i) * LANES, v[i]);
    }
}

/* Returns 16 columns of an operand whose elements are contiguous along K. */
static struct columns operand_columns(const struct ngd_gemm *g, const struct ngd_gemm_data *d, ngd_antiquant_t what,
                                      int64_t n, int64_t cols, int64_t elements)
{
    const struct ngd_antiquant_operand *o = &g->quant.antiquant[what];
    const int64_t size = (int64_t)ngd_dtype_bytes(o->type);

    return (struct columns){.w = d->antiquant[what] + n * o->n * size,
                            .ldw = o->n * size,
                            .bytes = elements * size,
                            .cols = cols,
                            .readable = elements * size + (g->n - n - cols) * o->n * size};
}

static inline void take_operand_piece(const struct columns *c, int64_t at, __m512i v[4])
{
    if (c->cols == LANES && at + PIECE <= c->readable)
        load_pieces(c->w + at, c->ldw, v);
    else
        load_some_pieces(c, at, v);
    transpose(v);
}

/* Turns f16 or bf16 of 16 columns into to[elements][16]; up to 7 more are written. */
static void take_halves(const struct columns *c, ngd_dtype_t type, float *to)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);

    for (int64_t at = 0; at < c->bytes; at += PIECE) {
        __m512i v[4];

        take_operand_piece(c, at, v);
        NGD_UNROLL for (int t = 0; t < 4; t++, to += 2 * LANES)
        {
            if (type == NGD_BF16) {
                _mm512_store_si512(to, _mm512_slli_epi32(v[t], 16));
                _mm512_store_si512(to + LANES, _mm512_and_si512(v[t], upper));
            } else {
                _mm512_store_ps(to, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v[t])));
                _mm512_store_ps(to + LANES, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srai_epi32(v[t], 16))));
            }
        }
    }
}

static void take_floats(const struct columns *c, float *to)
{
    for (int64_t at = 0; at < c->bytes; at += PIECE) {
        __m512i v[4];

        take_operand_piece(c, at, v);
        NGD_UNROLL for (int t = 0; t < 4; t++, to += LANES) _mm512_store_si512(to, v[t]);
    }
}

/* Multiplies i8 of 16 columns with the factors [blocks][16] of their blocks, which have `each`, a multiple of 4. Up to
 * 15 more elements are written, and factors for them are read. */
static void take_scaled(const struct columns *c, const float *factors, int64_t each, float *to)
{
    int64_t left = each;

#define PUT_BYTE(i)     \
    _mm512_store_ps(    \
        to + (i)*LANES, \
        _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v[t], 24 - 8 * (i)), 24)), factor))
    for (int64_t at = 0; at < c->bytes; at += PIECE) {
        __m512i v[4];

        take_operand_piece(c, at, v);
        NGD_UNROLL for (int t = 0; t < 4; t++, to += 4 * LANES)
        {
            const __m512 factor = _mm512_load_ps(factors);

            PUT_BYTE(0);
            PUT_BYTE(1);
            PUT_BYTE(2);
            PUT_BYTE(3);
            left -= 4;
            factors += left ? 0 : LANES;
            left = left ? left : each;
        }
    }
#undef PUT_BYTE
}

/* Gives scales, offsets or minima as [segments][16]. */
static void take_operand(const struct ngd_gemm *g, const struct ngd_gemm_data *d, ngd_antiquant_t what, int64_t n,
                         int64_t cols, const struct ngd_digits_scales *s, float *to)
{
    const struct ngd_gemm_quant *q = &g->quant;
    const ngd_antiquant_t block = ngd_quant_block_of(g, what);
    const ngd_dtype_t type = q->antiquant[what].type;
    const bool along_k = s->column > 1 && q->group == q->segment && q->columns == 1 && q->antiquant[what].g == 1;
    struct columns c = operand_columns(g, d, what, n, cols, s->column), factors;

    if (along_k && (type == NGD_F16 || type == NGD_BF16)) {
        take_halves(&c, type, to);
    } else if (along_k && type == NGD_F32) {
        take_floats(&c, to);
    } else if (along_k && type == NGD_I8 && q->antiquant[block].type == NGD_F16 &&
               (s->blocks == 1 || q->antiquant[block].g == 1) && q->block % 4 == 0) {
        factors = operand_columns(g, d, block, n, cols, s->blocks);
        take_halves(&factors, NGD_F16, s->by_column);
        take_scaled(&c, s->by_column, q->block, to);
    } else {
        ngd_quant_widen(g, d, what, n, cols, s->by_column);
        transpose_floats(s->by_column, s->column, to);
    }
}

/* to[] += (from[] + zero) * scales[]; from may be NULL. */
static void add_scaled(const float *from, float zero, const float *scales, int64_t column, float *to)
{
    for (int64_t i = 0; i < column * LANES; i += LANES) {
        __m512 v = _mm512_set1_ps(zero);

        if (from)
            v = _mm512_add_ps(_mm512_load_ps(from + i), v);
        _mm512_store_ps(to + i, _mm512_add_ps(_mm512_mul_ps(v, _mm512_load_ps(scales + i)), _mm512_load_ps(to + i)));
    }
}

void ngd_digits_prepare_scales(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols,
                               const struct ngd_digits_scales *s)
{
    const bool offset = g->quant.has & NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_OFFSET);

    take_operand(g, d, NGD_ANTIQUANT_SCALE, n, cols, s, s->scales);
    if (!ngd_quant_adds(g))
        return;
    if (g->quant.has & NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_MINIMUM))
        take_operand(g, d, NGD_ANTIQUANT_MINIMUM, n, cols, s, s->offsets);
    else
        memset(s->offsets, 0, (size_t)(s->column * LANES) * sizeof(float));
    if (offset)
        take_operand(g, d, NGD_ANTIQUANT_OFFSET, n, cols, s, s->unscaled);
    if (offset || g->quant.zero != 0)
        add_scaled(offset ? s->unscaled : NULL, g->quant.zero, s->scales, s->column, s->offsets);
}

/* ---- products ---- */

/* A block of rows and a panel. */
struct digits_block {
    const uint8_t *panel;
    const int32_t *x;
    const float *scales, *x_sums;
    const int32_t *base;
    const float *w_scales, *w_offsets; /* of the panel's first segment; offsets may be NULL */
    int64_t w_step;                    /* floats from segment to segment */
    int64_t segments;                  /* of the panel */
    int segment;
    float *sums;
    bool first;       /* the sums begin here */
    const char *next; /* what is read for the next panel; is asked for, next_step bytes for each 16 rows of K */
    int64_t next_step;
};

/* acc += the products of each four bytes of w with those of x. gcc would take an instruction of its own to repeat x. */
#ifdef NGD_EMULATE
#define ADD_PRODUCTS(acc, w, x) ((acc) = _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)))
#else
#define ADD_PRODUCTS(acc, w, x) __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(x))
#endif

/* Adds the products of four rows of K, step t of those that x points to. */
#define ADD_STEP(t, w)                                                      \
    do {                                                                    \
        const __m512i w_ = (w);                                             \
                                                                            \
        NGD_UNROLL for (int j = 0; j < mb * digits; j++)                    \
            ADD_PRODUCTS(acc[(t) % chains][j], w_, x[(t)*mb * digits + j]); \
    } while (0)

/* The sum of a segment as f32, from the sums of its digits. */
static inline __m512 whole_sum(const __m512i *acc, const int digits)
{
    const __m512 upper =
        _mm512_cvtepi32_ps(digits == 1 ? acc[0] : _mm512_add_epi32(_mm512_slli_epi32(acc[0], 8), acc[1]));

    return digits == 3 ? _mm512_fmadd_ps(upper, _mm512_set1_ps(256), _mm512_cvtepi32_ps(acc[2])) : upper;
}

/* What the sums of segment s begin with. */
static inline void begin_segment(const struct digits_block *b, int64_t s, const int mb, const int digits,
                                 const int chains, __m512i acc[4][16])
{
    const int32_t *base = b->base + s * mb * 2;

    NGD_UNROLL for (int c = 0; c < chains; c++)
    {
        NGD_UNROLL for (int j = 0; j < mb * digits; j++) acc[c][j] =
            c > 0 || (digits > 1 && j % digits == 0)
                ? _mm512_setzero_si512()
                : _mm512_set1_epi32(base[j / digits * 2 + (digits > 1 ? j % digits - 1 : 0)]);
    }
}

/* Adds segment s to the elements. */
static inline void end_segment(const struct digits_block *b, int64_t s, const int mb, const int digits,
                               const int chains, __m512i acc[4][16], __m512 *y)
{
    NGD_UNROLL for (int c = 1; c < chains; c++)
    {
        NGD_UNROLL for (int j = 0; j < mb * digits; j++) acc[0][j] = _mm512_add_epi32(acc[0][j], acc[c][j]);
    }
    NGD_UNROLL for (int m = 0; m < mb; m++)
    {
        const __m512 v = _mm512_mul_ps(whole_sum(acc[0] + m * digits, digits), _mm512_set1_ps(b->scales[s * mb + m]));

        y[m] = _mm512_fmadd_ps(v, _mm512_load_ps(b->w_scales + s * b->w_step), y[m]);
        if (b->w_offsets)
            y[m] = _mm512_fmadd_ps(_mm512_set1_ps(b->x_sums[s * mb + m]), _mm512_load_ps(b->w_offsets + s * b->w_step),
                                   y[m]);
    }
}

static inline __attribute__((always_inline)) void multiply_digits(const struct digits_block *b, const int mb,
                                                                  const int digits)
{
    const int64_t words = b->segment / 4 * mb * digits;
    const char *next = b->next;
    __m512 y[8];

    NGD_UNROLL for (int m = 0; m < mb; m++) y[m] = b->first ? _mm512_setzero_ps() : _mm512_load_ps(b->sums + m * LANES);
    for (int64_t s = 0; s < b->segments; s++) {
        const uint8_t *panel = b->panel + s * b->segment * LANES;
        const int32_t *x = b->x + s * words;
        const int chains = 1;
        __m512i acc[4][16];

        begin_segment(b, s, mb, digits, chains, acc);
        for (int i = 0; i < b->segment; i += 16, panel += 4 * LINE, x += 4 * mb * digits, next += b->next_step) {
            ask_ahead(next, 1);
            ask_ahead(next + (b->next_step & LINE), 1);
            ADD_STEP(0, _mm512_load_si512(panel));
            ADD_STEP(1, _mm512_load_si512(panel + LINE));
            ADD_STEP(2, _mm512_load_si512(panel + 2 * LINE));
            ADD_STEP(3, _mm512_load_si512(panel + 3 * LINE));
        }
        end_segment(b, s, mb, digits, chains, acc, y);
    }
    NGD_UNROLL for (int m = 0; m < mb; m++) _mm512_store_ps(b->sums + m * LANES, y[m]);
}

/* The same for all of K, with weights as they lie. One or two rows would wait for a panel to be written, and for one
 * group of sums: so steps take turns between several. Each piece asks for the next line of four of the columns, for the
 * L1 cache, and for four lines of the next columns in the order of memory, for the L2 cache. */
static inline __attribute__((always_inline)) void multiply_directly(const struct digits_block *b, struct columns *c,
                                                                    const int mb, const int digits,
                                                                    const ngd_quant_form_t form)
{
    const int chains = mb == 1 ? 4 : 2, steps = vectors_of(form);
    const int32_t *x = b->x;
    int64_t at = 0;
    __m512 y[2];

    NGD_UNROLL for (int m = 0; m < mb; m++) y[m] = _mm512_setzero_ps();
    for (int64_t s = 0; s < b->segments; s++) {
        __m512i acc[4][16];

        begin_segment(b, s, mb, digits, chains, acc);
        for (int i = 0; i < b->segment; i += 4 * steps, at += PIECE, x += steps * mb * digits) {
            __m512i v[8];

            NGD_UNROLL for (int j = 0; j < 4; j++) __builtin_prefetch(c->next + j * LINE, 0, 2);
            {
                const char *line = c->w + at + LINE + (at / PIECE % 4) * 4 * c->ldw;

                NGD_UNROLL for (int j = 0; j < 4; j++, line += c->ldw) __builtin_prefetch(line, 0, 3);
            }
            c->next += 4 * LINE;
            take_columns_piece(c, at, form, v);
            NGD_UNROLL for (int t = 0; t < steps; t++) ADD_STEP(t, v[t]);
        }
        end_segment(b, s, mb, digits, chains, acc, y);
    }
    NGD_UNROLL for (int m = 0; m < mb; m++) _mm512_store_ps(b->sums + m * LANES, y[m]);
}

#define DIRECTLY(form)                                                                                       \
    static void directly_##form(const struct digits_block *b, struct columns *c, int64_t mb, int64_t digits) \
    {                                                                                                        \
        if (digits == 3)                                                                                     \
            mb == 1 ? multiply_directly(b, c, 1, 3, NGD_QUANT_##form)                                        \
                    : multiply_directly(b, c, 2, 3, NGD_QUANT_##form);                                       \
        else if (digits == 1)                                                                                \
            mb == 1 ? multiply_directly(b, c, 1, 1, NGD_QUANT_##form)                                        \
                    : multiply_directly(b, c, 2, 1, NGD_QUANT_##form);                                       \
        else                                                                                                 \
            mb == 1 ? multiply_directly(b, c, 1, 2, NGD_QUANT_##form)                                        \
                    : multiply_directly(b, c, 2, 2, NGD_QUANT_##form);                                       \
    }
DIRECTLY(I8)
DIRECTLY(I4)
DIRECTLY(F4)

static void multiply_rows(const struct digits_block *b, int64_t mb, int64_t digits)
{
    if (digits == 3)
        mb == 4 ? multiply_digits(b, 4, 3) : mb == 2 ? multiply_digits(b, 2, 3) : multiply_digits(b, 1, 3);
    else if (digits == 1 && mb == 8)
        multiply_digits(b, 8, 1);
    else if (digits == 1)
        mb == 4 ? multiply_digits(b, 4, 1) : mb == 2 ? multiply_digits(b, 2, 1) : multiply_digits(b, 1, 1);
    else if (mb == 8)
        multiply_digits(b, 8, 2);
    else
        mb == 4 ? multiply_digits(b, 4, 2) : mb == 2 ? multiply_digits(b, 2, 2) : multiply_digits(b, 1, 2);
}

/* Says whether all rows are one block of few rows, which needs no panel. */
static bool are_few(const struct ngd_gemm *g, int64_t rows)
{
    return rows <= 2 && (g->quant.segment >= 32 || g->quant.form == NGD_QUANT_I8);
}

static void multiply_few(const struct ngd_gemm *g, bool offsets, int64_t rows, struct columns *c,
                         const struct ngd_digits_room *room)
{
    const struct digits_block b = {.x = room->x,
                                   .scales = room->scales,
                                   .x_sums = room->x_sums,
                                   .base = room->base,
                                   .w_scales = room->w.scales,
                                   .w_offsets = offsets ? room->w.offsets : NULL,
                                   .w_step = room->column > 1 ? LANES : 0,
                                   .segments = room->segments,
                                   .segment = g->quant.segment,
                                   .sums = room->sums};

    (g->quant.form == NGD_QUANT_I8   ? directly_I8
     : g->quant.form == NGD_QUANT_I4 ? directly_I4
                                     : directly_F4)(&b, c, rows, ngd_digits_of_x(g));
}

/* Multiplies all rows of a pass with a panel that begins at k, segment s, and has `some` segments. */
static void multiply_byte_panel(const struct ngd_gemm *g, bool offsets, int64_t rows, int64_t k, int64_t s,
                                int64_t some, const char *next, const struct ngd_digits_room *room)
{
    const int64_t segments = room->segments, digits = ngd_digits_of_x(g), w_step = room->column > 1 ? LANES : 0;
    struct digits_block b = {.panel = room->panel,
                             .w_scales = room->w.scales + s * w_step,
                             .w_offsets = offsets ? room->w.offsets + s * w_step : NULL,
                             .w_step = w_step,
                             .segments = some,
                             .segment = g->quant.segment,
                             .first = k == 0,
                             .next = next,
                             .next_step = ngd_quant_nibbles(g) ? LINE : 2 * LINE};

    for (int64_t m = 0, each; m < rows; m += each) {
        each = next_block(g, rows - m);
        b.x = room->x + (m * room->k + k * each) * digits / 4;
        b.scales = room->scales + m * segments + s * each;
        b.x_sums = room->x_sums + m * segments + s * each;
        b.base = room->base + (m * segments + s * each) * 2;
        b.sums = room->sums + m * LANES;
        multiply_rows(&b, each, digits);
        b.next_step = 0;
    }
}

/* Multiplies all rows of a pass with the columns. */
static void multiply_columns(const struct ngd_gemm *g, bool offsets, int64_t rows, struct columns *c,
                             const struct ngd_digits_room *room)
{
    const int64_t each = DEPTH / g->quant.segment;

    for (int64_t k = 0, s = 0; k < room->k; k += DEPTH, s += each) {
        const int64_t some = room->segments - s < each ? room->segments - s : each, depth = some * g->quant.segment;

        fill(g, c, k, depth, room->panel);
        multiply_byte_panel(g, offsets, rows, k, s, some, c->next, room);
        c->next += ngd_quant_nibbles(g) ? depth * LANES / 4 : depth * LANES / 2;
    }
}

void ngd_gemm_digits_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                         int64_t n1)
{
    struct columns c = {.ldw = g->ldw, .bytes = ngd_quant_nibbles(g) ? (g->k + 1) / 2 : g->k};
    struct ngd_digits_room room;

    ngd_digits_divide_room(g, m1 - m0, d->workspace, &room);
    for (int64_t n = n0; n < n1; n += LANES) {
        c.w = d->w + n * g->ldw;
        c.cols = n1 - n < LANES ? n1 - n : LANES;
        c.next = c.w + LANES * g->ldw;
        ngd_digits_prepare_scales(g, d, n, c.cols, &room.w);
        (are_few(g, m1 - m0) ? multiply_few : multiply_columns)(g, ngd_quant_adds(g), m1 - m0, &c, &room);
        for (int64_t m = m0; m < m1; m++)
            ngd_gemm_put(g, d, m, n, room.sums + (m - m0) * LANES, c.cols);
    }
}
