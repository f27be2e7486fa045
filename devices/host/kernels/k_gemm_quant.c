/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with quantised weights: what npu.weight_quant_batchmatmul adds to the products of k_gemm.c. The operator has
 * its weight as [K,N]; a checkpoint has rows of K, so its graph has a transposed view, which dot can stream. Weights in
 * any other layout go through `wide`, which reads them element by element when it fills a tile.
 */
#include "devices/host/kernels/k_gemm_quant.h"
#include <math.h>
#include <string.h>

/* ---- the form ---- */

/* An operand of [1], [N], [1,N] or [groups,N]. */
static struct ngd_antiquant_operand operand_of(const struct ngd_plan_tensor *t, uint32_t i)
{
    return (struct ngd_antiquant_operand){.type = t->dtype,
                                          .i = (uint8_t)i,
                                          .n = t->dims[t->rank - 1] == 1 ? 0 : t->strides[t->rank - 1],
                                          .g = t->rank < 2 || t->dims[0] == 1 ? 0 : t->strides[0]};
}

/* Takes the attributes. */
static void set_antiquant(const struct ngd_plan_call *call, struct ngd_gemm *g)
{
    const int64_t group = ngd_call_int(call, "antiquant_group_size");

    g->quant.group = group ? group : g->k ? g->k : 1;
    g->quant.columns = ngd_call_int(call, "antiquant_group_columns");
    g->quant.block = group ? ngd_call_int(call, "antiquant_block_size") / group : 0;
    g->quant.zero = (float)ngd_call_int(call, "antiquant_zero");
}

static void set_form(ngd_dtype_t dtype, struct ngd_gemm *g)
{
    g->wt = dtype;
    g->nk = true;
    g->quant.form = dtype == NGD_F8_E4M3FN ? NGD_QUANT_F8
                    : dtype == NGD_I32     ? NGD_QUANT_I4
                    : dtype == NGD_U8      ? NGD_QUANT_F4
                                           : NGD_QUANT_I8;
}

static void quant_strides(const struct ngd_plan_tensor *w, struct ngd_gemm *g)
{
    struct ngd_gemm_quant *q = &g->quant;

    set_form(w->dtype, g);
    q->by_n = g->n != w->dims[1];
    q->w_k = w->strides[0];
    q->w_n = w->strides[1];
    q->streamed = !q->by_n && (q->w_k == 1 || w->dims[0] <= 1);
    g->ldw = q->w_n * (int64_t)ngd_dtype_bytes(w->dtype); /* bytes */
}

void ngd_gemm_of_quant(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_gemm *g,
                       uint32_t *strided_p)
{
    const struct ngd_plan_tensor *y = ngd_call_out(plan, call, 0);

    ngd_gemm_of_linear(plan, call, 1, 6, g, strided_p);
    g->n = y->dims[y->rank - 1];
    g->ldy = g->n;
    quant_strides(ngd_call_in(plan, call, 1), g);
    set_antiquant(call, g);
    *strided_p |= 1u << 1;
    for (uint32_t what = 0; what < NGD_ANTIQUANTS; what++) {
        const uint32_t i = ngd_antiquant_names[what].operand;
        const struct ngd_plan_tensor *t = ngd_call_in(plan, call, i);

        if (!t)
            continue;
        g->quant.has |= NGD_ANTIQUANT_BIT(what);
        g->quant.antiquant[what] = operand_of(t, i);
        *strided_p |= 1u << i;
    }
}

/* An operand of [ceil(N / columns), groups] or [1], with `lead` dimensions in front. */
static struct ngd_antiquant_operand operand_of_rows(const struct ngd_plan_tensor *t, uint32_t lead)
{
    const int64_t groups = t->dims[t->rank - 1];

    return (struct ngd_antiquant_operand){
        .type = t->dtype, .n = t->rank - lead == 1 ? 0 : groups, .g = groups == 1 || t->rank - lead == 1 ? 0 : 1};
}

void ngd_gemm_of_quant_rows(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t weight,
                            const uint32_t antiquant[NGD_ANTIQUANTS], struct ngd_gemm *g)
{
    const struct ngd_plan_tensor *w = ngd_call_in(plan, call, weight);
    struct ngd_gemm_quant *q = &g->quant;

    set_form(w->dtype, g);
    set_antiquant(call, g);
    q->w_k = 1;
    q->w_n = w->dims[w->rank - 1];
    q->streamed = true;
    g->ldw = q->w_n * (int64_t)ngd_dtype_bytes(w->dtype); /* bytes */
    for (uint32_t what = 0; what < NGD_ANTIQUANTS; what++) {
        if (!antiquant[what])
            continue;
        q->has |= NGD_ANTIQUANT_BIT(what);
        q->antiquant[what] = operand_of_rows(ngd_call_in(plan, call, antiquant[what]), w->rank - 2u);
    }
}

/* ---- dot ---- */

/* Takes `bytes` of the workspace; *used_p is how much of it is in use. */
static void *take_area(char *workspace, uint64_t *used_p, int64_t n, uint64_t size)
{
    char *p = workspace + *used_p;

    *used_p += ((uint64_t)n * size + 63) & ~(uint64_t)63;
    return p;
}

/* Returns the floats of a laid-out row. */
static int64_t f8_row(const struct ngd_gemm *g)
{
    return (g->k + NGD_F8_STEP - 1) / NGD_F8_STEP * NGD_F8_STEP;
}

uint64_t ngd_quant_area(const struct ngd_gemm *g, char *workspace, struct ngd_quant_area *area)
{
    const int64_t rows = g->m * ngd_quant_terms(g), segments = ngd_quant_segments(g);
    struct ngd_quant_area a;
    uint64_t used = 0;

    a.x = NULL;
    a.x_f8 = NULL;
    if (g->quant.form == NGD_QUANT_F8)
        a.x_f8 = take_area(workspace, &used, rows * f8_row(g), sizeof(float));
    else
        a.x = take_area(workspace, &used, rows * segments * g->quant.segment, sizeof(*a.x));
    a.x_scales = take_area(workspace, &used, rows * segments, sizeof(float));
    a.x_sums = take_area(workspace, &used, rows * segments, sizeof(float));
    a.x_evens = take_area(workspace, &used, rows * segments, sizeof(*a.x_evens));
    a.scales = take_area(workspace, &used, NGD_QUANT_COLUMNS * segments, sizeof(float));
    a.offsets = take_area(workspace, &used, NGD_QUANT_COLUMNS * segments, sizeof(float));
    a.minima = take_area(workspace, &used, NGD_QUANT_COLUMNS * segments, sizeof(float));
    a.row = take_area(workspace, &used, NGD_QUANT_SEGMENT, sizeof(float));
    if (area)
        *area = a;
    return used;
}

static uint32_t bits_of_float(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static float float_of_bits(uint32_t bits)
{
    float v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

/* Returns the power of two that is the scale of a segment whose largest element has the bits `top`, and its inverse. */
static float segment_scale(uint32_t top, bool two_terms, float *inverse_p)
{
    int32_t e = (int32_t)(top >> 23) - 127 - (two_terms ? 13 : 14);

    if (top >= 0x7f800000) {
        *inverse_p = 0;
        return NAN;
    }
    e = e < -125 ? -125 : e; /* elements that are smaller still become 0 */
    *inverse_p = float_of_bits((uint32_t)(127 - e) << 23);
    return float_of_bits((uint32_t)(127 + e) << 23);
}

/* Rounds to the nearest integer, |v| < 2^22. */
static int32_t nearest_integer(float v)
{
    return (int32_t)bits_of_float(v + 0x1.8p23f) - 0x4b400000;
}

/*
 * Turns a segment of a row into integers: in order, or even elements before odd ones. Its elements are q[0..] * *scale,
 * or, with two terms, (q[0..] + rest[0..] / 65536) * *scale. Returns the sum of its elements.
 */
static float quantise_segment(const float *x, int segment, bool two_terms, float *scale_p, int16_t *q, int16_t *rest)
{
    uint32_t top = 0;
    int32_t sum = 0, rests = 0;
    float inverse;

    for (int i = 0; i < segment; i++) {
        const uint32_t bits = bits_of_float(x[i]) & 0x7fffffff;

        top = bits > top ? bits : top;
    }
    *scale_p = segment_scale(top, two_terms, &inverse);
    if (inverse == 0) {
        memset(q, 0, (size_t)segment * sizeof(*q));
        memset(rest, 0, (size_t)segment * sizeof(*rest));
        return NAN;
    }
    for (int i = 0; i < segment; i++) {
        const float v = x[i] * inverse;
        const int32_t n = nearest_integer(v), r = nearest_integer((v - (float)n) * 65536);

        q[i] = (int16_t)n;
        rest[i] = (int16_t)(r < 32767 ? r : 32767);
        sum += n;
        rests += rest[i];
    }
    return ((float)sum + (two_terms ? (float)rests / 65536 : 0)) * *scale_p;
}

/* Where a laid-out row is: row `row` of a block of `rows`, which begins at laid-out row `first`. */
struct place {
    int64_t first, rows, row;
};

static struct place laid_out_place(int64_t row, int64_t rows)
{
    struct place p = {.first = 0};

    while (p.rows = ngd_quant_block(rows - p.first), p.first + p.rows <= row)
        p.first += p.rows;
    p.row = row - p.first;
    return p;
}

static void put_segment(const struct ngd_gemm *g, const struct ngd_quant_area *a, const struct place *p, int64_t s,
                        const int16_t *q, float scale, float sum)
{
    const int64_t segments = ngd_quant_segments(g), at = p->first * segments + s * p->rows + p->row;
    int16_t *to = a->x + (p->first * segments + s * p->rows) * g->quant.segment + p->row * NGD_QUANT_LANES;
    const bool nibbles = ngd_quant_nibbles(g);

    a->x_scales[at] = scale;
    a->x_sums[(p->first + p->row) * segments + s] = sum;
    a->x_evens[at] = 0;
    for (int i = 0; i < g->quant.segment; i += 2)
        a->x_evens[at] += q[i];
    if (g->quant.segment == NGD_QUANT_LANES) {
        memcpy(to, q, NGD_QUANT_LANES * sizeof(*to));
        return;
    }
    for (int i = 0; i < g->quant.segment; i += 2 * NGD_QUANT_LANES, q += 2 * NGD_QUANT_LANES) {
        for (int j = 0; j < NGD_QUANT_LANES; j++) {
            to[j] = nibbles ? q[2 * j] : q[j];
            to[p->rows * NGD_QUANT_LANES + j] = nibbles ? q[2 * j + 1] : q[NGD_QUANT_LANES + j];
        }
        to += 2 * p->rows * NGD_QUANT_LANES;
    }
}

static void lay_out_row(const struct ngd_gemm *g, const char *x, const struct ngd_quant_area *a, int64_t rows,
                        int64_t m)
{
    const int64_t segments = ngd_quant_segments(g), terms = ngd_quant_terms(g), size = g->xt == NGD_F32 ? 4 : 2;
    const struct place first = laid_out_place(m * terms, rows * terms),
                       second = laid_out_place(m * terms + 1, rows * terms);
    const int segment = g->quant.segment;
    int16_t q[2][NGD_QUANT_SEGMENT];

    for (int64_t s = 0; s < segments; s++) {
        const int64_t left = g->k - s * segment, n = left < segment ? left : segment;
        float scale, sum;

        g->table->widen[g->xt](x + (m * g->ldx + s * segment) * size, 0, 1, n, a->row, 0);
        memset(a->row + n, 0, (size_t)(segment - n) * sizeof(float));
        sum = quantise_segment(a->row, segment, terms == 2, &scale, q[0], q[1]);
        put_segment(g, a, &first, s, q[0], scale, sum);
        if (terms == 2)
            put_segment(g, a, &second, s, q[1], scale / 65536, 0); /* the first one's sum has all */
    }
}

static void lay_out_f8_row(const struct ngd_gemm *g, const char *x, const struct ngd_quant_area *a, int64_t rows,
                           int64_t m)
{
    const struct place p = laid_out_place(m, rows);
    const int64_t size = g->xt == NGD_F32 ? 4 : 2;
    float *to = a->x_f8 + p.first * f8_row(g) + p.row * NGD_QUANT_LANES;

    for (int64_t i = 0; i < f8_row(g); i += NGD_QUANT_LANES, to += p.rows * NGD_QUANT_LANES) {
        const int64_t left = g->k - i, n = left < NGD_QUANT_LANES ? left > 0 ? left : 0 : NGD_QUANT_LANES;

        if (n > 0)
            g->table->widen[g->xt](x + (m * g->ldx + i) * size, 0, 1, n, to, 0);
        memset(to + n, 0, (size_t)(NGD_QUANT_LANES - n) * sizeof(float));
    }
}

void ngd_quant_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace)
{
    struct ngd_quant_area area;

    ngd_quant_area(g, workspace, &area);
    for (int64_t m = 0; m < rows; m++)
        (g->quant.form == NGD_QUANT_F8 ? lay_out_f8_row : lay_out_row)(g, x, &area, rows, m);
}

/* ---- scales and what is added ---- */

static float antiquant_at(ngd_dtype_t type, const char *p, int64_t i)
{
    return type == NGD_U8   ? ngd_quant_half_of_e8m0(((const uint8_t *)p)[i])
           : type == NGD_I8 ? (float)((const int8_t *)p)[i]
                            : ngd_float_at(p, type, i);
}

ngd_antiquant_t ngd_quant_block_of(const struct ngd_gemm *g, ngd_antiquant_t what)
{
    const ngd_antiquant_t block = what == NGD_ANTIQUANT_SCALE     ? NGD_ANTIQUANT_BLOCK_SCALE
                                  : what == NGD_ANTIQUANT_MINIMUM ? NGD_ANTIQUANT_BLOCK_MINIMUM
                                                                  : NGD_ANTIQUANTS;

    return block < NGD_ANTIQUANTS && g->quant.has & NGD_ANTIQUANT_BIT(block) ? block : NGD_ANTIQUANTS;
}

/* Returns a scale, an offset or a minimum: of column n and a group. */
static float antiquant(const struct ngd_gemm *g, const struct ngd_gemm_data *d, ngd_antiquant_t what, int64_t n,
                       int64_t group)
{
    const struct ngd_antiquant_operand *o = &g->quant.antiquant[what];
    const ngd_antiquant_t block = ngd_quant_block_of(g, what);
    float v = antiquant_at(o->type, d->antiquant[what], n / g->quant.columns * o->n + group * o->g);

    if (block == NGD_ANTIQUANTS)
        return v;
    o = &g->quant.antiquant[block];
    return v * antiquant_at(o->type, d->antiquant[block], n * o->n + group / g->quant.block * o->g);
}

float ngd_gemm_quant_scale(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n)
{
    return antiquant(g, d, NGD_ANTIQUANT_SCALE, n, 0);
}

#define BLOCKS 64 /* whose scales are widened at once */

/* Widens n numbers of a column that blocks have scales for. */
static void widen_blocks(const struct ngd_gemm *g, const int8_t *q, int64_t n, ngd_dtype_t type, const char *p,
                         float *dst)
{
    const int64_t size = (int64_t)ngd_dtype_bytes(type), each = g->quant.block, step = each * BLOCKS;
    float scales[BLOCKS];

    for (int64_t i = 0; i < n; i += step, p += BLOCKS * size) {
        const int64_t some = n - i < step ? n - i : step;

        g->table->widen[type](p, 0, 1, (some + each - 1) / each, scales, 0);
        g->table->scale_blocks(q + i, some, scales, each, dst + i);
    }
}

/* Widens contiguous operands of groups that are segments. Returns false if they are not. */
static bool widen_rows(const struct ngd_gemm *g, const struct ngd_gemm_data *d, ngd_antiquant_t what, int64_t n,
                       int64_t cols, float *dst)
{
    const struct ngd_antiquant_operand *o = &g->quant.antiquant[what], *b;
    const int64_t column = ngd_quant_column(g);
    const ngd_antiquant_t block = ngd_quant_block_of(g, what);
    const char *p = d->antiquant[what];

    if (column == 1 || g->quant.group != g->quant.segment || o->g != 1 || g->quant.columns != 1)
        return false;
    p += n * o->n * (int64_t)ngd_dtype_bytes(o->type);
    if (o->type != NGD_U8 && o->type != NGD_I8) {
        g->table->widen[o->type](p, o->n, cols, column, dst, column);
        return true;
    }
    for (int64_t c = 0; c < cols && o->type == NGD_U8; c++)
        g->table->widen_e8m0((const uint8_t *)p + c * o->n, column, dst + c * column);
    if (o->type == NGD_U8)
        return true;
    b = &g->quant.antiquant[block];
    if (b->g != 1 && column > g->quant.block)
        return false;
    for (int64_t c = 0; c < cols; c++)
        widen_blocks(g, (const int8_t *)p + c * o->n, column, b->type,
                     d->antiquant[block] + (n + c) * b->n * (int64_t)ngd_dtype_bytes(b->type), dst + c * column);
    return true;
}

void ngd_quant_widen(const struct ngd_gemm *g, const struct ngd_gemm_data *d, ngd_antiquant_t what, int64_t n,
                     int64_t cols, float *dst)
{
    const struct ngd_antiquant_operand *o = &g->quant.antiquant[what];
    const int64_t column = ngd_quant_column(g), each = column > 1 ? g->quant.group / g->quant.segment : 1,
                  shared = g->quant.columns;

    if (widen_rows(g, d, what, n, cols, dst))
        return;
    if (o->type != NGD_U8 && o->type != NGD_I8 && column == 1 && o->n == 1 && shared == 1) {
        g->table->widen[o->type](d->antiquant[what] + n * (int64_t)ngd_dtype_bytes(o->type), 0, 1, cols, dst, 0);
        return;
    }
    for (int64_t c = 0; c < cols; c++)
        if (c > 0 && (n + c) % shared != 0)
            memcpy(dst + c * column, dst + (c - 1) * column, (size_t)column * sizeof(*dst));
        else
            for (int64_t s = 0; s < column; s++)
                dst[c * column + s] = antiquant(g, d, what, n + c, s / each);
}

/* Prepares columns [n, n + cols) of the area. */
static void prepare_columns(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols,
                            const struct ngd_quant_area *a)
{
    const int64_t all = cols * ngd_quant_column(g);
    const bool minima = g->quant.has & NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_MINIMUM);

    ngd_quant_widen(g, d, NGD_ANTIQUANT_SCALE, n, cols, a->scales);
    if (!ngd_quant_adds(g))
        return;
    if (g->quant.has & NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_OFFSET))
        ngd_quant_widen(g, d, NGD_ANTIQUANT_OFFSET, n, cols, a->offsets);
    else
        memset(a->offsets, 0, (size_t)all * sizeof(float));
    if (minima)
        ngd_quant_widen(g, d, NGD_ANTIQUANT_MINIMUM, n, cols, a->minima);
    g->table->add_up(a->offsets, g->quant.zero, a->scales, minima ? a->minima : NULL, all);
}

void ngd_quant_dot(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t n0, int64_t n1)
{
    struct ngd_quant_area area;

    ngd_quant_area(g, d->workspace, &area);
    for (int64_t n = n0; n < n1; n += NGD_QUANT_COLUMNS) {
        const int64_t cols = n1 - n < NGD_QUANT_COLUMNS ? n1 - n : NGD_QUANT_COLUMNS;

        prepare_columns(g, d, n, cols, &area);
        g->table->quant_dot[g->quant.form](g, d, &area, rows * ngd_quant_terms(g), n, n + cols);
    }
}

/* ---- wide ---- */

static int nibble(uint32_t word, int64_t i)
{
    const int v = (int)(word >> 4 * (i % 8) & 15);

    return v < 8 ? v : v - 16;
}

static float quant_at(const struct ngd_gemm *g, const char *w, int64_t n, int64_t k)
{
    const struct ngd_gemm_quant *q = &g->quant;
    const uint32_t *words = (const void *)w;

    if (q->form == NGD_QUANT_F8)
        return ngd_f8_to_f32(((const uint8_t *)w)[n * q->w_n + k * q->w_k]);
    if (q->form == NGD_QUANT_I8)
        return ((const int8_t *)w)[n * q->w_n + k * q->w_k];
    if (q->form == NGD_QUANT_F4)
        return ngd_quant_f4[((const uint8_t *)w)[n * q->w_n + k / 2 * q->w_k] >> 4 * (k % 2) & 15];
    if (q->by_n)
        return (float)nibble(words[n / 8 * q->w_n + k * q->w_k], n);
    return (float)nibble(words[n * q->w_n + k / 8 * q->w_k], k);
}

/* Dequantises `depth` weights of column n, which have one scale. */
static void dequantise(const struct ngd_gemm *g, const char *w, int64_t n, int64_t k, int64_t depth, float scale,
                       float offset, float *to)
{
    const bool nibbles = ngd_quant_nibbles(g);

    if (!g->quant.streamed || (nibbles && (k | depth) % 2 != 0)) {
        for (int64_t i = 0; i < depth; i++)
            to[i] = (quant_at(g, w, n, k + i) + offset) * scale;
        return;
    }
    g->table->quant_widen[g->quant.form](w + n * g->ldw + (nibbles ? k / 2 : k), depth, offset, scale, to);
}

/* Gives the values of `depth` weights of column n, which are of one group. */
static void weight_values(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t k, int64_t depth,
                          float *to)
{
    const int64_t group = k / g->quant.group;
    const uint32_t has = g->quant.has;
    const float scale = antiquant(g, d, NGD_ANTIQUANT_SCALE, n, group);
    float offset = g->quant.zero;

    if (has & NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_OFFSET))
        offset += antiquant(g, d, NGD_ANTIQUANT_OFFSET, n, group);
    dequantise(g, d->w, n, k, depth, scale, offset, to);
    if (has & NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_MINIMUM)) {
        const float minimum = antiquant(g, d, NGD_ANTIQUANT_MINIMUM, n, group);

        for (int64_t i = 0; i < depth; i++)
            to[i] += minimum;
    }
}

void ngd_gemm_quant_widen(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols, int64_t k,
                          int64_t depth, float *to)
{
    const int64_t each = g->quant.group;

    for (int64_t c = 0; c < cols; c++)
        for (int64_t i = 0, run; i < depth; i += run) {
            const int64_t left = each - (k + i) % each;
            float *at = to + c * NGD_GEMM_KC + i;

            run = left < depth - i ? left : depth - i;
            if (d->antiquant[NGD_ANTIQUANT_SCALE])
                weight_values(g, d, n + c, k + i, run, at);
            else
                dequantise(g, d->w, n + c, k + i, run, 1, 0, at);
        }
}
