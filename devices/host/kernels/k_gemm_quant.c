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

/* Takes the strides of scales or offsets: [1], [N], [1,N] or [groups,N]. */
static void antiquant_strides(const struct ngd_plan_tensor *t, int64_t *n_p, int64_t *g_p)
{
    *n_p = t->dims[t->rank - 1] == 1 ? 0 : t->strides[t->rank - 1];
    *g_p = t->rank < 2 || t->dims[0] == 1 ? 0 : t->strides[0];
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
    q->by_n = q->form == NGD_QUANT_I4 && w->dims[0] * 8 != g->k;
    g->n = q->by_n ? w->dims[1] * 8 : w->dims[1];
    q->w_k = w->strides[0];
    q->w_n = w->strides[1];
    q->streamed = !q->by_n && (q->w_k == 1 || w->dims[0] <= 1);
    g->ldw = q->w_n * (int64_t)ngd_dtype_bytes(w->dtype); /* bytes */
}

void ngd_gemm_of_quant(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_gemm *g,
                       uint32_t *strided_p)
{
    const struct ngd_plan_tensor *offset = ngd_call_in(plan, call, 3);
    const int64_t group = ngd_call_int(call, "antiquant_group_size");

    ngd_gemm_of_linear(plan, call, 1, 6, g, strided_p);
    quant_strides(ngd_call_in(plan, call, 1), g);
    g->ldy = g->n;
    g->quant.group = group ? group : g->k ? g->k : 1;
    g->quant.columns = ngd_call_int(call, "antiquant_group_columns");
    g->quant.type = ngd_call_in(plan, call, 2)->dtype;
    g->quant.i_scale = 2;
    g->quant.offset_type = offset ? offset->dtype : g->quant.type;
    g->quant.i_offset = offset ? 3 : 0xff;
    antiquant_strides(ngd_call_in(plan, call, 2), &g->quant.scale_n, &g->quant.scale_g);
    if (offset)
        antiquant_strides(offset, &g->quant.offset_n, &g->quant.offset_g);
    *strided_p |= 1u << 1 | 1u << 2 | 1u << 3;
}

/* Takes the strides of scales or offsets: [ceil(N / columns), groups] or [1], with `lead` dimensions in front. */
static void antiquant_row_strides(const struct ngd_plan_tensor *t, uint32_t lead, int64_t groups, int64_t *n_p,
                                  int64_t *g_p)
{
    *n_p = t->rank - lead == 1 ? 0 : groups;
    *g_p = groups == 1 ? 0 : 1;
}

void ngd_gemm_of_quant_rows(const struct ngd_plan_tensor *w, const struct ngd_plan_tensor *scale,
                            const struct ngd_plan_tensor *offset, int64_t group, int64_t columns, struct ngd_gemm *g)
{
    const uint32_t lead = w->rank - 2u;
    struct ngd_gemm_quant *q = &g->quant;

    set_form(w->dtype, g);
    q->group = group ? group : g->k ? g->k : 1;
    q->columns = columns;
    q->w_k = 1;
    q->w_n = w->dims[w->rank - 1];
    q->streamed = true;
    g->ldw = q->w_n * (int64_t)ngd_dtype_bytes(w->dtype); /* bytes */
    q->type = scale->dtype;
    q->offset_type = offset ? offset->dtype : scale->dtype;
    q->i_offset = offset ? 0 : 0xff;
    antiquant_row_strides(scale, lead, ngd_gemm_groups(g), &q->scale_n, &q->scale_g);
    if (offset)
        antiquant_row_strides(offset, lead, ngd_gemm_groups(g), &q->offset_n, &q->offset_g);
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

static void lay_out_row(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const struct ngd_quant_area *a,
                        int64_t rows, int64_t m)
{
    const int64_t segments = ngd_quant_segments(g), terms = ngd_quant_terms(g), size = g->xt == NGD_F32 ? 4 : 2;
    const struct place first = laid_out_place(m * terms, rows * terms),
                       second = laid_out_place(m * terms + 1, rows * terms);
    const int segment = g->quant.segment;
    int16_t q[2][NGD_QUANT_SEGMENT];

    for (int64_t s = 0; s < segments; s++) {
        const int64_t left = g->k - s * segment, n = left < segment ? left : segment;
        float scale, sum;

        g->table->widen[g->xt](d->x + (m * g->ldx + s * segment) * size, 0, 1, n, a->row, 0);
        memset(a->row + n, 0, (size_t)(segment - n) * sizeof(float));
        sum = quantise_segment(a->row, segment, terms == 2, &scale, q[0], q[1]);
        put_segment(g, a, &first, s, q[0], scale, sum);
        if (terms == 2)
            put_segment(g, a, &second, s, q[1], scale / 65536, 0); /* the first one's sum has all */
    }
}

static void lay_out_f8_row(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const struct ngd_quant_area *a,
                           int64_t rows, int64_t m)
{
    const struct place p = laid_out_place(m, rows);
    const int64_t size = g->xt == NGD_F32 ? 4 : 2;
    float *to = a->x_f8 + p.first * f8_row(g) + p.row * NGD_QUANT_LANES;

    for (int64_t i = 0; i < f8_row(g); i += NGD_QUANT_LANES, to += p.rows * NGD_QUANT_LANES) {
        const int64_t left = g->k - i, n = left < NGD_QUANT_LANES ? left > 0 ? left : 0 : NGD_QUANT_LANES;

        if (n > 0)
            g->table->widen[g->xt](d->x + (m * g->ldx + i) * size, 0, 1, n, to, 0);
        memset(to + n, 0, (size_t)(NGD_QUANT_LANES - n) * sizeof(float));
    }
}

void ngd_quant_lay_out(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows)
{
    struct ngd_quant_area area;

    ngd_quant_area(g, d->workspace, &area);
    for (int64_t m = 0; m < rows; m++)
        (g->quant.form == NGD_QUANT_F8 ? lay_out_f8_row : lay_out_row)(g, d, &area, rows, m);
}

static float antiquant(ngd_dtype_t type, const char *p, int64_t i)
{
    return type == NGD_U8 ? ngd_quant_half_of_e8m0(((const uint8_t *)p)[i]) : ngd_float_at(p, type, i);
}

float ngd_gemm_quant_scale(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n)
{
    return antiquant(g->quant.type, d->scale, n / g->quant.columns * g->quant.scale_n);
}

/* Widens the scales or offsets of columns [n, n + cols) to dst, as the area has them. */
static void widen_antiquant(const struct ngd_gemm *g, ngd_dtype_t type, const char *p, int64_t n, int64_t cols,
                            int64_t step_n, int64_t step_g, float *dst)
{
    const int64_t column = ngd_quant_column(g), each = column > 1 ? g->quant.group / g->quant.segment : 1,
                  shared = g->quant.columns;

    if (type == NGD_U8 && column > 1 && each == 1 && step_g == 1 && shared == 1) {
        for (int64_t c = 0; c < cols; c++)
            g->table->widen_e8m0((const uint8_t *)p + (n + c) * step_n, column, dst + c * column);
    } else if (type != NGD_U8 && column > 1 && each == 1 && step_g == 1 && shared == 1) {
        p += n * step_n * (int64_t)ngd_dtype_bytes(type);
        g->table->widen[type](p, step_n, cols, column, dst, column);
    } else if (type != NGD_U8 && column == 1 && step_n == 1 && shared == 1) {
        g->table->widen[type](p + n * (int64_t)ngd_dtype_bytes(type), 0, 1, cols, dst, 0);
    } else {
        for (int64_t c = 0; c < cols; c++)
            if (c > 0 && (n + c) % shared != 0)
                memcpy(dst + c * column, dst + (c - 1) * column, (size_t)column * sizeof(*dst));
            else
                for (int64_t s = 0; s < column; s++)
                    dst[c * column + s] = antiquant(type, p, (n + c) / shared * step_n + s / each * step_g);
    }
}

void ngd_quant_scales(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols, float *to)
{
    widen_antiquant(g, g->quant.type, d->scale, n, cols, g->quant.scale_n, g->quant.scale_g, to);
}

void ngd_quant_offsets(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols, float *to)
{
    widen_antiquant(g, g->quant.offset_type, d->offset, n, cols, g->quant.offset_n, g->quant.offset_g, to);
}

void ngd_quant_dot(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t n0, int64_t n1)
{
    struct ngd_quant_area area;

    ngd_quant_area(g, d->workspace, &area);
    for (int64_t n = n0; n < n1; n += NGD_QUANT_COLUMNS) {
        const int64_t cols = n1 - n < NGD_QUANT_COLUMNS ? n1 - n : NGD_QUANT_COLUMNS;

        ngd_quant_scales(g, d, n, cols, area.scales);
        if (d->offset)
            ngd_quant_offsets(g, d, n, cols, area.offsets);
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

void ngd_gemm_quant_widen(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols, int64_t k,
                          int64_t depth, float *to)
{
    const struct ngd_gemm_quant *q = &g->quant;

    for (int64_t c = 0; c < cols; c++) {
        const int64_t at = (n + c) / q->columns;

        for (int64_t i = 0, run; i < depth; i += run) {
            const int64_t group = (k + i) / q->group, left = (group + 1) * q->group - k - i;

            run = left < depth - i ? left : depth - i;
            dequantise(g, d->w, n + c, k + i, run,
                       d->scale ? antiquant(q->type, d->scale, at * q->scale_n + group * q->scale_g) : 1,
                       d->offset ? antiquant(q->offset_type, d->offset, at * q->offset_n + group * q->offset_g) : 0,
                       to + c * NGD_GEMM_KC + i);
        }
    }
}
