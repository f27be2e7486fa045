/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with quantised weights: what npu.weight_quant_batchmatmul adds to the products of k_gemm.c. The operator has
 * its weight as [K,N]; a checkpoint has rows of K, so its graph has a transposed view, which dot can stream. Weights in
 * any other layout go through `wide`, which reads them element by element when it fills a tile.
 */
#include "devices/host/kernels/k_gemm.h"
#include <string.h>

#define COLUMNS 16 /* whose scales are widened at once */

/* ---- the form ---- */

/* Takes the strides of scales or offsets: [1], [N], [1,N] or [groups,N]. */
static void antiquant_strides(const struct ngd_plan_tensor *t, int64_t *n_p, int64_t *g_p)
{
    *n_p = t->dims[t->rank - 1] == 1 ? 0 : t->strides[t->rank - 1];
    *g_p = t->rank < 2 || t->dims[0] == 1 ? 0 : t->strides[0];
}

static void quant_strides(const struct ngd_plan_tensor *w, struct ngd_gemm *g)
{
    struct ngd_gemm_quant *q = &g->quant;

    q->int4 = w->dtype == NGD_I32;
    q->by_n = q->int4 && w->dims[0] * 8 != g->k;
    g->n = q->by_n ? w->dims[1] * 8 : w->dims[1];
    q->w_k = w->strides[0];
    q->w_n = w->strides[1];
    q->streamed = !q->by_n && (q->w_k == 1 || w->dims[0] <= 1);
    g->wt = w->dtype;
    g->nk = true;
    g->ldw = q->w_n * (q->int4 ? 4 : 1); /* bytes */
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
    g->quant.type = ngd_call_in(plan, call, 2)->dtype;
    g->quant.i_scale = 2;
    g->quant.i_offset = offset ? 3 : 0xff;
    antiquant_strides(ngd_call_in(plan, call, 2), &g->quant.scale_n, &g->quant.scale_g);
    if (offset)
        antiquant_strides(offset, &g->quant.offset_n, &g->quant.offset_g);
    *strided_p |= 1u << 1 | 1u << 2 | 1u << 3;
}

/* ---- dot ---- */

uint64_t ngd_gemm_quant_bytes(const struct ngd_gemm *g)
{
    return (uint64_t)ngd_gemm_groups(g) * COLUMNS * 2 * sizeof(float);
}

static float antiquant(const struct ngd_gemm *g, const char *p, int64_t i)
{
    if (g->quant.type == NGD_F32)
        return ((const float *)(const void *)p)[i];
    if (g->quant.type == NGD_F16)
        return ngd_f16_to_f32(((const uint16_t *)(const void *)p)[i]);
    return ngd_bf16_to_f32(((const uint16_t *)(const void *)p)[i]);
}

/* Widens the scales or offsets of columns [n, n + cols) to dst[cols][groups]. */
static void widen_antiquant(const struct ngd_gemm *g, const char *p, int64_t n, int64_t cols, int64_t step_n,
                            int64_t step_g, float *dst)
{
    const int64_t groups = ngd_gemm_groups(g);

    if (step_g == 1) {
        p += n * step_n * (int64_t)ngd_dtype_bytes(g->quant.type);
        g->table->widen[g->quant.type](p, step_n, cols, groups, dst, groups);
        return;
    }
    for (int64_t c = 0; c < cols; c++)
        for (int64_t i = 0; i < groups; i++)
            dst[c * groups + i] = antiquant(g, p, (n + c) * step_n + i * step_g);
}

void ngd_gemm_quant_dot(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t n0, int64_t n1)
{
    float *scales = (float *)(void *)(d->workspace + ngd_gemm_dot_bytes(g));
    const struct ngd_gemm_quant *q = &g->quant;

    for (int64_t n = n0; n < n1; n += COLUMNS) {
        const int64_t cols = n1 - n < COLUMNS ? n1 - n : COLUMNS;

        widen_antiquant(g, d->scale, n, cols, q->scale_n, q->scale_g, scales);
        if (d->offset)
            widen_antiquant(g, d->offset, n, cols, q->offset_n, q->offset_g, scales + cols * ngd_gemm_groups(g));
        g->table->dot_quant[q->int4](g, d, (const float *)(const void *)d->workspace, scales, rows, n, n + cols);
    }
}

/* ---- wide ---- */

static int nibble(uint32_t word, int64_t i)
{
    const int v = (int)(word >> 4 * (i % 8) & 15);

    return v < 8 ? v : v - 16;
}

static int quant_at(const struct ngd_gemm *g, const char *w, int64_t n, int64_t k)
{
    const struct ngd_gemm_quant *q = &g->quant;
    const uint32_t *words = (const void *)w;

    if (!q->int4)
        return ((const int8_t *)w)[n * q->w_n + k * q->w_k];
    if (q->by_n)
        return nibble(words[n / 8 * q->w_n + k * q->w_k], n);
    return nibble(words[n * q->w_n + k / 8 * q->w_k], k);
}

/* Dequantises `depth` weights of column n, which have one scale. */
static void dequantise(const struct ngd_gemm *g, const char *w, int64_t n, int64_t k, int64_t depth, float scale,
                       float offset, float *to)
{
    const int8_t *row = (const int8_t *)w + n * g->ldw + (g->quant.int4 ? k / 2 : k);

    if (!g->quant.streamed || (g->quant.int4 && (k | depth) % 2 != 0)) {
        for (int64_t i = 0; i < depth; i++)
            to[i] = ((float)quant_at(g, w, n, k + i) + offset) * scale;
    } else if (g->quant.int4) {
        for (int64_t i = 0; i < depth / 2; i++) {
            to[2 * i] = ((float)((int8_t)((uint8_t)row[i] << 4) >> 4) + offset) * scale;
            to[2 * i + 1] = ((float)(row[i] >> 4) + offset) * scale;
        }
    } else {
        for (int64_t i = 0; i < depth; i++)
            to[i] = ((float)row[i] + offset) * scale;
    }
}

void ngd_gemm_quant_pack(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t k, int64_t depth,
                         float *tile, float *room)
{
    const struct ngd_gemm_quant *q = &g->quant;
    const int64_t cols = g->n - n < NGD_GEMM_NT ? g->n - n : NGD_GEMM_NT;

    for (int64_t c = 0; c < cols; c++) {
        for (int64_t i = 0, run; i < depth; i += run) {
            const int64_t group = (k + i) / q->group, left = (group + 1) * q->group - k - i;

            run = left < depth - i ? left : depth - i;
            dequantise(g, d->w, n + c, k + i, run, antiquant(g, d->scale, (n + c) * q->scale_n + group * q->scale_g),
                       d->offset ? antiquant(g, d->offset, (n + c) * q->offset_n + group * q->offset_g) : 0,
                       room + c * NGD_GEMM_KC + i);
        }
    }
    g->table->pack_nk[NGD_F32](room, NGD_GEMM_KC, cols, depth, tile);
}
