/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of GGML. Each type has a function that gives the numbers of a block, unsigned. A number's middle is subtracted
 * from it, so that it fits the plane's dtype. Other planes are bytes of a block as they are, but for scales and minima
 * of six bits. Definition: the quantised types of github.com/ggml-org/ggml.
 */
#include "daemon/gguf.h"

#include "base/gguf.h"
#include "base/le.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MAX 256 /* elements */
#define SIX_BITS  8   /* scales or minima of six bits in a block */

/* ---- blocks ---- */

/* Low nibbles are the first half of the numbers, high nibbles the second one. */
static void nibbles_32(const uint8_t *p, uint8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = p[i] & 15;
        q[i + 16] = p[i] >> 4;
    }
}

static void numbers_q4_0(const uint8_t *b, uint8_t *q)
{
    nibbles_32(b + 2, q);
}

/* Codes of FP4 (E2M1). */
static void numbers_mxfp4(const uint8_t *b, uint8_t *q)
{
    nibbles_32(b + 1, q);
}

static void numbers_q4_1(const uint8_t *b, uint8_t *q)
{
    nibbles_32(b + 4, q);
}

static void fifth_bits_32(const uint8_t *high, uint8_t *q)
{
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((high[i / 8] >> i % 8 & 1) << 4);
}

static void numbers_q5_0(const uint8_t *b, uint8_t *q)
{
    nibbles_32(b + 6, q);
    fifth_bits_32(b + 2, q);
}

static void numbers_q5_1(const uint8_t *b, uint8_t *q)
{
    nibbles_32(b + 8, q);
    fifth_bits_32(b + 4, q);
}

static void numbers_q4_k(const uint8_t *b, uint8_t *q)
{
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < 32; i++) {
            q[64 * c + i] = b[16 + 32 * c + i] & 15;
            q[64 * c + 32 + i] = b[16 + 32 * c + i] >> 4;
        }
}

static void numbers_q5_k(const uint8_t *b, uint8_t *q)
{
    const uint8_t *high = b + 16;

    for (int c = 0; c < 4; c++)
        for (int i = 0; i < 32; i++) {
            q[64 * c + i] = (uint8_t)((b[48 + 32 * c + i] & 15) | (high[i] >> 2 * c & 1) << 4);
            q[64 * c + 32 + i] = (uint8_t)(b[48 + 32 * c + i] >> 4 | (high[i] >> (2 * c + 1) & 1) << 4);
        }
}

static void numbers_q6_k(const uint8_t *b, uint8_t *q)
{
    for (int half = 0; half < 2; half++, q += 128) {
        const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;

        for (int i = 0; i < 32; i++) {
            q[i] = (uint8_t)((low[i] & 15) | (high[i] & 3) << 4);
            q[i + 32] = (uint8_t)((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
            q[i + 64] = (uint8_t)(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            q[i + 96] = (uint8_t)(low[i + 32] >> 4 | high[i] >> 6 << 4);
        }
    }
}

/* Eight scales and eight minima of six bits in 12 bytes. Minima are subtracted: the plane has their negatives. */
static void six_bits(const uint8_t *s, bool minima, uint8_t *to)
{
    for (int i = 0; i < SIX_BITS; i++) {
        const int low = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        const int high = i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | s[i] >> 6 << 4;

        to[i] = (uint8_t)(minima ? -high : low);
    }
}

/* ---- types ---- */

struct block_type {
    uint32_t id, elements;
    uint32_t group;                                    /* numbers that share a scale */
    uint8_t middle;                                    /* of a number */
    bool packed;                                       /* numbers have four bits */
    void (*numbers)(const uint8_t *block, uint8_t *q); /* NULL: i8 behind the scale */
    ngd_dtype_t scale;                                 /* of scales and minima; u8: an exponent; numbers are FP4 */
    bool six_bits;                                     /* scales and minima have six bits, from `scales_at` on */
    uint8_t scales_at, minima_at, block_scales_at, block_minima_at; /* bytes of a block */
};

static const struct block_type block_types[] = {
    {2, 32, 32, 8, true, numbers_q4_0, NGD_F16, false, 0, 0, 0, 0},
    {3, 32, 32, 8, true, numbers_q4_1, NGD_F16, false, 0, 2, 0, 0},
    {6, 32, 32, 16, false, numbers_q5_0, NGD_F16, false, 0, 0, 0, 0},
    {7, 32, 32, 16, false, numbers_q5_1, NGD_F16, false, 0, 2, 0, 0},
    {8, 32, 32, 0, false, NULL, NGD_F16, false, 0, 0, 0, 0},
    {12, 256, 32, 8, true, numbers_q4_k, NGD_I8, true, 4, 4, 0, 2},
    {13, 256, 32, 16, false, numbers_q5_k, NGD_I8, true, 4, 4, 0, 2},
    {14, 256, 16, 32, false, numbers_q6_k, NGD_I8, false, 192, 0, 208, 0},
    {39, 32, 32, 0, true, numbers_mxfp4, NGD_U8, false, 0, 0, 0, 0},
};

static const struct block_type *find_block_type(uint32_t id)
{
    for (size_t i = 0; i < sizeof(block_types) / sizeof(block_types[0]); i++)
        if (block_types[i].id == id)
            return &block_types[i];
    return NULL;
}

#define PLANES(id, block, packed, i8, scales, minima, block_scales, block_minima)                                    \
    {                                                                                                                \
        {id, block, packed, NGD_PLANE_PACKED}, {id, block, i8, NGD_PLANE_I8}, {id, block, scales, NGD_PLANE_SCALES}, \
            {id, block, minima, NGD_PLANE_MINIMA}, {id, block, block_scales, NGD_PLANE_BLOCK_SCALES},                \
        {                                                                                                            \
            id, block, block_minima, NGD_PLANE_BLOCK_MINIMA                                                          \
        }                                                                                                            \
    }
/* By type, and by kind. 0 bytes: the type has no such plane. */
static const struct ngd_gguf_plane planes[][NGD_PLANES] = {
    PLANES(2, 18, 16, 32, 2, 0, 0, 0),   PLANES(3, 20, 16, 32, 2, 2, 0, 0),    PLANES(6, 22, 0, 32, 2, 0, 0, 0),
    PLANES(7, 24, 0, 32, 2, 2, 0, 0),    PLANES(8, 34, 0, 32, 2, 0, 0, 0),     PLANES(12, 144, 128, 256, 8, 8, 2, 2),
    PLANES(13, 176, 0, 256, 8, 8, 2, 2), PLANES(14, 210, 0, 256, 16, 0, 2, 0), PLANES(39, 17, 16, 0, 1, 0, 0, 0),
};

/* ---- planes ---- */

static void unpack_numbers(const struct ngd_gguf_plane *plane, const struct block_type *type, const uint8_t *block,
                           uint8_t *to)
{
    uint8_t q[BLOCK_MAX];

    if (!type->numbers) {
        memcpy(to, block + 2, type->elements);
        return;
    }
    type->numbers(block, q);
    for (uint32_t at = 0; at < type->elements; at += 32) /* by 32, which the compiler makes vectors of */
        if (plane->kind == NGD_PLANE_PACKED)
            for (uint32_t i = 0; i < 16; i++)
                to[at / 2 + i] = (uint8_t)(q[at + 2 * i] | q[at + 2 * i + 1] << 4);
        else
            for (uint32_t i = 0; i < 32; i++)
                to[at + i] = (uint8_t)(q[at + i] - type->middle);
}

static void unpack_factors(const struct ngd_gguf_plane *plane, const struct block_type *type, const uint8_t *block,
                           uint8_t *to)
{
    const uint8_t at[NGD_PLANES] = {[NGD_PLANE_SCALES] = type->scales_at,
                                    [NGD_PLANE_MINIMA] = type->minima_at,
                                    [NGD_PLANE_BLOCK_SCALES] = type->block_scales_at,
                                    [NGD_PLANE_BLOCK_MINIMA] = type->block_minima_at};

    if (type->six_bits && (plane->kind == NGD_PLANE_SCALES || plane->kind == NGD_PLANE_MINIMA))
        six_bits(block + at[plane->kind], plane->kind == NGD_PLANE_MINIMA, to);
    else
        memcpy(to, block + at[plane->kind], plane->bytes);
}

void ngd_gguf_unpack(const struct ngd_gguf_plane *plane, const uint8_t *blocks, uint64_t n, uint8_t *to)
{
    const struct block_type *type = find_block_type(plane->type);

    for (uint64_t i = 0; i < n; i++, blocks += plane->block_bytes, to += plane->bytes) {
        if (plane->kind == NGD_PLANE_PACKED || plane->kind == NGD_PLANE_I8)
            unpack_numbers(plane, type, blocks, to);
        else
            unpack_factors(plane, type, blocks, to);
    }
}

/* ---- the list ---- */

static ngd_status_t add_gguf_item(struct ngd_safetensors *index, const struct ngd_gguf_tensor *t, const char *suffix,
                                  ngd_dtype_t dtype, const struct ngd_gguf_plane *plane, int64_t per_element)
{
    struct ngd_safetensor *x = &index->items[index->n];
    char name[NGD_GGUF_NAME_BYTES + 16];

    snprintf(name, sizeof(name), "%s%s", t->name, suffix);
    *x = (struct ngd_safetensor){.dtype = dtype, .rank = t->rank, .offset = t->offset, .plane = plane};
    memcpy(x->shape, t->shape, sizeof(t->shape));
    x->shape[t->rank - 1] /= per_element;
    x->bytes = plane ? t->bytes / plane->block_bytes * plane->bytes : t->bytes;
    x->name = ngd_strdup(name);
    index->n += x->name != NULL;
    return x->name ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static ngd_status_t add_planes(struct ngd_safetensors *index, const struct ngd_gguf_tensor *t,
                               const struct block_type *type)
{
    static const char *const suffixes[NGD_PLANES] = {[NGD_PLANE_SCALES] = ".scales",
                                                     [NGD_PLANE_MINIMA] = ".minima",
                                                     [NGD_PLANE_BLOCK_SCALES] = ".block_scales",
                                                     [NGD_PLANE_BLOCK_MINIMA] = ".block_minima"};
    const struct ngd_gguf_plane *of = planes[type - block_types];
    ngd_status_t status;

    if (type->scale == NGD_U8) {
        status = add_gguf_item(index, t, "", NGD_U8, &of[NGD_PLANE_PACKED], 2);
    } else if (type->packed) {
        status = add_gguf_item(index, t, "", NGD_I32, &of[NGD_PLANE_PACKED], 8);
        if (status == NGD_OK)
            status = add_gguf_item(index, t, ".i8", NGD_I8, &of[NGD_PLANE_I8], 1);
    } else {
        status = add_gguf_item(index, t, "", NGD_I8, &of[NGD_PLANE_I8], 1);
    }
    for (int kind = NGD_PLANE_SCALES; kind < NGD_PLANES && status == NGD_OK; kind++) {
        const bool of_block = kind == NGD_PLANE_BLOCK_SCALES || kind == NGD_PLANE_BLOCK_MINIMA;

        if (of[kind].bytes)
            status = add_gguf_item(index, t, suffixes[kind], of_block ? NGD_F16 : type->scale, &of[kind],
                                   of_block ? type->elements : type->group);
    }
    return status;
}

static ngd_status_t add_gguf_tensor(struct ngd_safetensors *index, const struct ngd_gguf_tensor *t)
{
    const struct block_type *type = find_block_type(t->type->id);
    ngd_dtype_t dtype = NGD_F32;

    if (type)
        return add_planes(index, t, type);
    if (t->type->bytes == 2)
        dtype = strcmp(t->type->name, "F16") == 0 ? NGD_F16 : NGD_BF16;
    return add_gguf_item(index, t, "", dtype, NULL, 1);
}

ngd_status_t ngd_gguf_index(int fd, uint64_t file_bytes, struct ngd_safetensors *index_p, struct ngd_diag *diag)
{
    struct ngd_safetensors index = {0};
    struct ngd_gguf g = {0};
    ngd_status_t status = ngd_gguf_read(fd, file_bytes, &g, diag);

    if (status != NGD_OK)
        return status;
    index.items = NGD_NEW_N(struct ngd_safetensor, NGD_PLANES * g.n_tensors + 1);
    status = index.items ? NGD_OK : NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < g.n_tensors && status == NGD_OK; i++)
        status = add_gguf_tensor(&index, &g.tensors[i]);
    ngd_gguf_fini(&g);
    if (status == NGD_OK)
        status = ngd_safetensors_order(&index, diag);
    if (status == NGD_OK)
        *index_p = index;
    else
        ngd_safetensors_fini(&index);
    return status;
}
