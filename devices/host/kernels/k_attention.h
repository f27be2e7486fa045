/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_ATTENTION_H
#define NGD_DEVICES_HOST_KERNELS_K_ATTENTION_H

/*
 * Attention, over a paged cache (k_attention.c) or dense (k_sdpa.c), in chunks of NGD_ATTN_CHUNK keys with a running
 * maximum.
 *
 * A "query" here is one head of one row. Up to NGD_ATTN_QUERIES queries that share a key head are computed together:
 * the heads of the key head's group, times neighbouring rows of the same sequence. Each query has its own number of
 * keys, and handles them in order, in chunks that begin at multiples of NGD_ATTN_CHUNK. So its result does not depend
 * on the queries that are computed with it. With a window, chunks before it are left out, and of its first chunk only
 * the keys of the window are read.
 *
 * A key may have a second part, the rope part of a latent cache, in a row of its own. Such a cache has its keys as
 * values too: a chunk's rows come from memory for the scores, and from the L2 cache for the values.
 *
 * A cache in i8 or f8 has a scale for each row and head. The numbers are widened in registers. A key's scale is a
 * factor of its score, and a value's scale one of its weight, so each costs one product, not one for each number.
 */
#include "devices/host/kernels/by_isa.h"

#define NGD_ATTN_CHUNK   128
#define NGD_ATTN_QUERIES 16

/* Scratch of one thread; rows of queries are dp floats, zero from d on but for the second part. */
struct ngd_attn_scratch {
    float *q;            /* [queries][dp], scaled */
    float *o;            /* [queries][dp] */
    float *scores;       /* [queries][CHUNK] */
    float *max, *sum;    /* [queries] */
    const char **k, **v; /* [CHUNK]: rows of the chunk's keys and values */
    const char **rope;   /* [CHUNK]: rows of the second parts of the keys */
    int64_t rope_d;      /* numbers of a second part; 0 = none */
    int64_t rope_at;     /* where a query's second part begins in its row of q; a multiple of 16 */
    float *bias;         /* [queries][CHUNK]: added to the scores, -infinity hides a key; NULL = none */
    int64_t *from;       /* [queries]: the first key of the chunk that a query sees; NULL = 0 for each */
    float *key_scale;    /* [CHUNK]: factors of the scores, by key; NULL: none. Of f8 they are divided by SIMD_F8 */
    float *value_scale;  /* [CHUNK]: factors of the values; NULL with key_scale */
    float cap;           /* scores s become cap * tanh(s / cap), before the bias; 0 = none */
};

static inline uint64_t ngd_attn_lines(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

static inline uint64_t ngd_attn_scratch_bytes(uint64_t queries, uint64_t dp, bool biased)
{
    return 2 * ngd_attn_lines(queries * dp * sizeof(float)) +
           (biased ? 2 : 1) * ngd_attn_lines(queries * NGD_ATTN_CHUNK * sizeof(float)) +
           2 * ngd_attn_lines(queries * sizeof(float)) + 3 * ngd_attn_lines(NGD_ATTN_CHUNK * sizeof(char *)) +
           2 * ngd_attn_lines(NGD_ATTN_CHUNK * sizeof(float)) + 2 * ngd_attn_lines(queries * sizeof(int64_t));
}

static inline void *ngd_attn_take(char **at, uint64_t bytes)
{
    char *p = *at;

    *at += ngd_attn_lines(bytes);
    return p;
}

/* Lays the scratch out from `base` on, without a cap, second parts or scales. Returns an array for the end of the keys
 * that each query sees in a chunk. */
static inline int64_t *ngd_attn_lay_out(struct ngd_attn_scratch *s, char *base, uint64_t queries, uint64_t dp,
                                        bool biased, bool windowed)
{
    int64_t *count;

    s->q = ngd_attn_take(&base, queries * dp * sizeof(float));
    s->o = ngd_attn_take(&base, queries * dp * sizeof(float));
    s->scores = ngd_attn_take(&base, queries * NGD_ATTN_CHUNK * sizeof(float));
    s->bias = biased ? ngd_attn_take(&base, queries * NGD_ATTN_CHUNK * sizeof(float)) : NULL;
    s->max = ngd_attn_take(&base, queries * sizeof(float));
    s->sum = ngd_attn_take(&base, queries * sizeof(float));
    s->k = ngd_attn_take(&base, NGD_ATTN_CHUNK * sizeof(char *));
    s->v = ngd_attn_take(&base, NGD_ATTN_CHUNK * sizeof(char *));
    s->rope = ngd_attn_take(&base, NGD_ATTN_CHUNK * sizeof(char *));
    count = ngd_attn_take(&base, queries * sizeof(int64_t));
    s->from = windowed ? ngd_attn_take(&base, queries * sizeof(int64_t)) : NULL;
    s->cap = 0;
    s->rope_d = s->rope_at = 0;
    s->key_scale = s->value_scale = NULL;
    return count;
}

/* Lays out the scales behind the rest, whose end is `end`. */
static inline void ngd_attn_lay_out_scales(struct ngd_attn_scratch *s, char *end)
{
    s->value_scale = (float *)(void *)(end - ngd_attn_lines(NGD_ATTN_CHUNK * sizeof(float)));
    s->key_scale = s->value_scale - ngd_attn_lines(NGD_ATTN_CHUNK * sizeof(float)) / sizeof(float);
}

struct ngd_attn_table {
    /*
     * Handles one chunk, by the cache's dtype. Keys k[0..] have d numbers, values have dv; neither is more than dp.
     * Query i sees the keys [from[i], count[i]), perhaps none. Before a query's first chunk, o is 0, and max is
     * -inf and sum 0, or max a score without a value and sum 1. A query whose sum is 0 at the end has seen nothing.
     */
    void (*chunk[NGD_F8_E4M3FN + 1])(const struct ngd_attn_scratch *s, int64_t d, int64_t dv, int64_t dp,
                                     int64_t queries, const int64_t *count);
    /* q = scale * x, by x's dtype. */
    void (*load[3])(const void *x, int64_t d, int64_t dp, float scale, float *q);
    /* y = o / sum, by y's dtype. */
    void (*store[3])(const float *o, float sum, int64_t d, void *y);
};
NGD_ISA_TABLES(struct ngd_attn_table, ngd_attn_table);

#endif
