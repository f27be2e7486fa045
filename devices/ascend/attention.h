/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_ATTENTION_H
#define NGD_DEVICES_ASCEND_ATTENTION_H

/*
 * Which operands the fused attention operator takes with a paged cache: the rules of attention_rules.def, evaluated.
 * The backend chooses by them before it calls CANN; the simulator refuses by them. Pure functions, without memory of
 * their own.
 */
#include "devices/ascend/acl_abi.h"
#include "devices/ascend/chips.h"

/* How the operator divides its work, by layout and rows of a sequence. */
typedef enum ngd_attention_branch {
    NGD_ATTENTION_DECODE = 1,  /* BSH, one row for each sequence */
    NGD_ATTENTION_PREFILL = 2, /* BSH, several rows, padded to the longest */
    NGD_ATTENTION_RAGGED = 4,  /* TND: rows of all sequences, without padding */
    NGD_ATTENTION_ALL = 7,
    NGD_ATTENTION_MEASURED = 8 /* of a rule: see struct ngd_attention_platform */
} ngd_attention_branch_t;

struct ngd_attention_platform {
    ngd_chip_t chip;
    int cann;      /* version: 81 is 8.1 */
    bool measured; /* a probe ran this layout with the dtype, head dimension, block and groups of the call: rules about
                    * these do not count */
};

/* One call. Lists are borrowed. */
struct ngd_attention_case {
    bool tnd;              /* the layout is TND, else BSH */
    int dtype;             /* NGD_ACL_FLOAT16, ... */
    int64_t rows, batches; /* of the query: T of TND, S of BSH; sequences */
    int64_t heads, kv_heads, d;
    int64_t rope, rope_block, rope_hidden;     /* second parts (MLA): their dimension, 0: none; of their cache */
    int64_t block;                             /* the attribute */
    int64_t blocks, cache_block, cache_hidden; /* dimensions of the cache */
    int64_t table_rows, table_width;
    int64_t sparse_mode, mask_side; /* 0: there is no mask */
    const int64_t *queries, *contexts;
    int64_t n_queries, n_contexts;
};

struct ngd_attention_rule {
    const char *name, *text, *source;
};

static inline ngd_attention_branch_t ngd_attention_branch(const struct ngd_attention_case *a)
{
    return a->tnd ? NGD_ATTENTION_RAGGED : a->rows == 1 ? NGD_ATTENTION_DECODE : NGD_ATTENTION_PREFILL;
}

static inline int64_t ngd_attention_least(const int64_t *v, int64_t n)
{
    int64_t least = n > 0 ? v[0] : 0;

    for (int64_t i = 1; i < n; i++)
        least = v[i] < least ? v[i] : least;
    return least;
}

static inline int64_t ngd_attention_most(const int64_t *v, int64_t n)
{
    int64_t most = n > 0 ? v[0] : 0;

    for (int64_t i = 1; i < n; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}

/* Blocks of sequence i's context. */
static inline int64_t ngd_attention_blocks(const struct ngd_attention_case *a, int64_t i)
{
    int64_t context = a->n_contexts ? a->contexts[a->n_contexts > 1 ? i : 0] : 0;

    return a->block > 0 && context > 0 ? (context + a->block - 1) / a->block : 0;
}

static inline int64_t ngd_attention_most_blocks(const struct ngd_attention_case *a)
{
    int64_t most = 0;

    for (int64_t i = 0; i < a->batches; i++)
        most = ngd_attention_blocks(a, i) > most ? ngd_attention_blocks(a, i) : most;
    return most;
}

/* A block that several sequences share counts for each of them. */
static inline int64_t ngd_attention_sum_of_blocks(const struct ngd_attention_case *a)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < a->batches; i++)
        sum += ngd_attention_blocks(a, i);
    return sum;
}

static inline bool ngd_attention_ascends(const int64_t *v, int64_t n)
{
    int64_t last = 0;

    for (int64_t i = 0; i < n; i++) {
        if (v[i] < last)
            return false;
        last = v[i];
    }
    return true;
}

/* Of cumulative query lengths. */
static inline bool ngd_attention_rows_fit(const struct ngd_attention_case *a)
{
    int64_t last = 0;

    for (int64_t i = 0; i < a->n_queries && i < a->n_contexts; i++) {
        if (a->queries[i] - last > a->contexts[i])
            return false;
        last = a->queries[i];
    }
    return true;
}

/* The first rule that refuses the call; NULL: it is taken. */
static inline const struct ngd_attention_rule *ngd_attention_refusal(const struct ngd_attention_case *a,
                                                                     const struct ngd_attention_platform *p)
{
#define DECODE   NGD_ATTENTION_DECODE
#define PREFILL  NGD_ATTENTION_PREFILL
#define RAGGED   NGD_ATTENTION_RAGGED
#define MEASURED NGD_ATTENTION_MEASURED
#define ALL      NGD_ATTENTION_ALL
#define NGD_ATTENTION_RULE(name, branches, holds, text, source)                                          \
    if ((ngd_attention_branch(a) & (branches)) && !(p->measured && ((branches)&MEASURED)) && !(holds)) { \
        static const struct ngd_attention_rule rule_##name = {#name, text, source};                      \
                                                                                                         \
        return &rule_##name;                                                                             \
    }
#include "devices/ascend/attention_rules.def"
#undef NGD_ATTENTION_RULE
#undef DECODE
#undef PREFILL
#undef RAGGED
#undef MEASURED
#undef ALL
    return NULL;
}

#endif
