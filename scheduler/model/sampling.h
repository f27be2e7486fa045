/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_SAMPLING_H
#define NGD_SCHEDULER_MODEL_SAMPLING_H

/*
 * How a sequence's tokens are chosen. temperature, top_k, top_p and seed are inputs of the graph, whose last operator
 * chooses. The rest changes logits by the tokens of the context, or is rare: a row that needs it returns its logits,
 * and the worker chooses from them after the replay (ngd_sampler_choose) by the operator's rule. Other rows take no
 * part in that.
 *
 * Order, which is that of transformers: bias, repetition, presence and frequency penalty, bad words, min_tokens, the
 * mask; then temperature, top_k, top_p, min_p, typical_p.
 *
 * State: none. Penalties are computed from the tokens of the context each time. So a fork, a preempted sequence, a
 * draft and a prompt beside others cannot have others than the sequence alone.
 *
 * Threads: the caller synchronises. Memory: a copy is one block (ngd_sampling_bytes).
 */
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define NGD_LOGIT_BIAS_MAX    1024
#define NGD_BAD_WORDS_MAX     256
#define NGD_BAD_WORD_MAX      32 /* tokens of one */
#define NGD_PENALTY_MAX       100.0f
#define NGD_SAMPLING_BIAS_MAX 1e6f

struct ngd_logit_bias {
    int32_t token;
    float bias;
};

/* Zeros: greedy. */
struct ngd_sampling {
    float temperature; /* 0 = greedy; 0..100 */
    int32_t top_k;     /* 0 = off */
    float top_p;       /* 0 or 1 = off; 0..1 */
    uint64_t seed;
    float min_p;                               /* 0 = off; 0..1 */
    float typical_p;                           /* 0 or 1 = off; 0..1 */
    float repetition_penalty;                  /* 0 or 1 = off: of all tokens of the context */
    float presence_penalty, frequency_penalty; /* 0 = off: of generated tokens */
    uint32_t min_tokens;                       /* generated tokens before a stop token may be chosen */
    const struct ngd_logit_bias *bias;
    uint32_t n_bias;
    const int32_t *bad_tokens; /* the bad words, one behind another */
    const uint32_t *bad_ends;  /* where each word ends in bad_tokens */
    uint32_t n_bad_words;
};

/* Checks all values and tokens (SAMPLING, TOKEN_RANGE). */
ngd_status_t ngd_sampling_check(const struct ngd_sampling *s, uint32_t vocab, struct ngd_diag *diag);
/* Returns the name of a parameter that needs logits on the CPU for all tokens; NULL: there is none. */
const char *ngd_sampling_needs_logits(const struct ngd_sampling *s);
/* Returns the bytes of the lists, which a copy allocates. */
uint64_t ngd_sampling_bytes(const struct ngd_sampling *s);
/* Copies, with its lists. False: no memory. */
bool ngd_sampling_copy(const struct ngd_sampling *from, struct ngd_sampling *to);
void ngd_sampling_free(struct ngd_sampling *s); /* frees the lists of a copy */

/* A mask has a bit for each token, the first in the lowest bit of the first byte. At least one token must be allowed.
 */
static inline uint64_t ngd_mask_bytes(uint32_t vocab)
{
    return ((uint64_t)vocab + 7) / 8;
}
ngd_status_t ngd_mask_check(const uint8_t *mask, uint64_t bytes, uint32_t vocab, struct ngd_diag *diag);

/* The row whose token is chosen. */
struct ngd_sampler_row {
    const float *logits;
    const int32_t *tokens; /* the context: [0, n) */
    uint32_t n;
    uint32_t n_given;        /* the first so many were not generated */
    uint64_t draw;           /* number of the draw */
    const uint8_t *mask;     /* allowed tokens; NULL: all */
    const int32_t *stops[2]; /* two lists of stop tokens, for min_tokens */
    uint32_t n_stops[2];
};

/* Returns how many of n tokens were generated. Fewer than n_given may be in the context after an append that failed. */
static inline uint32_t ngd_generated(uint32_t n, uint32_t n_given)
{
    return n > n_given ? n - n_given : 0;
}

/* Scratch for one choice at a time. */
struct ngd_sampler {
    uint32_t vocab;
    float *logits;    /* [vocab] */
    uint32_t *counts; /* [vocab], zeros between choices */
    char *scratch;
};
uint64_t ngd_sampler_bytes(uint32_t vocab);
bool ngd_sampler_init(struct ngd_sampler *sampler, uint32_t vocab); /* false: no memory; fini is needed then, too */
void ngd_sampler_fini(struct ngd_sampler *sampler);
/* Chooses a token. SAMPLING: nothing may be chosen. */
ngd_status_t ngd_sampler_choose(struct ngd_sampler *sampler, const struct ngd_sampling *s,
                                const struct ngd_sampler_row *row, int32_t *token_p, struct ngd_diag *diag);

#endif
