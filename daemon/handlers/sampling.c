/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/sampling.h"

static ngd_status_t read_bias(struct ngd_arena *arena, const Npugraph__V1__Sampling *s, struct ngd_sampling *how)
{
    struct ngd_logit_bias *bias = ngd_arena_calloc(arena, s->n_logit_bias + 1, sizeof(*bias));

    if (!bias)
        return NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < s->n_logit_bias; i++)
        bias[i] = (struct ngd_logit_bias){s->logit_bias[i]->token, s->logit_bias[i]->bias};
    how->bias = bias;
    how->n_bias = (uint32_t)s->n_logit_bias;
    return NGD_OK;
}

/* Puts the words one behind another. Their numbers are small: wire_bounds.def. */
static ngd_status_t read_bad_words(struct ngd_arena *arena, const Npugraph__V1__Sampling *s, struct ngd_sampling *how)
{
    uint32_t *ends = ngd_arena_calloc(arena, s->n_bad_words + 1, sizeof(*ends)), n = 0;
    int32_t *tokens;

    for (size_t i = 0; i < s->n_bad_words; i++)
        n += (uint32_t)s->bad_words[i]->n_tokens;
    tokens = ngd_arena_calloc(arena, n + 1u, sizeof(*tokens));
    if (!ends || !tokens)
        return NGD_ERR_NO_MEMORY;
    n = 0;
    for (size_t i = 0; i < s->n_bad_words; i++) {
        for (size_t k = 0; k < s->bad_words[i]->n_tokens; k++)
            tokens[n++] = s->bad_words[i]->tokens[k];
        ends[i] = n;
    }
    how->bad_tokens = tokens;
    how->bad_ends = ends;
    how->n_bad_words = (uint32_t)s->n_bad_words;
    return NGD_OK;
}

ngd_status_t ngd_sampling_of_message(struct ngd_arena *arena, const Npugraph__V1__Sampling *s, struct ngd_sampling *how)
{
    ngd_status_t status = NGD_OK;

    *how = (struct ngd_sampling){0};
    if (!s)
        return NGD_OK;
    *how = (struct ngd_sampling){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .seed = s->seed,
        .min_p = s->min_p,
        .typical_p = s->typical_p,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .min_tokens = s->min_tokens,
    };
    if (s->n_logit_bias)
        status = read_bias(arena, s, how);
    if (s->n_bad_words && !status)
        status = read_bad_words(arena, s, how);
    return status;
}

/* ---- to a message ---- */

static bool put_bias(struct ngd_arena *arena, const struct ngd_sampling *s, Npugraph__V1__Sampling *m)
{
    Npugraph__V1__LogitBias *items = ngd_arena_calloc(arena, s->n_bias + 1u, sizeof(*items));

    m->logit_bias = ngd_arena_calloc(arena, s->n_bias + 1u, sizeof(*m->logit_bias));
    for (uint32_t i = 0; items && m->logit_bias && i < s->n_bias; i++) {
        npugraph__v1__logit_bias__init(&items[i]);
        items[i].token = s->bias[i].token;
        items[i].bias = s->bias[i].bias;
        m->logit_bias[m->n_logit_bias++] = &items[i];
    }
    return items && m->logit_bias;
}

static bool put_bad_words(struct ngd_arena *arena, const struct ngd_sampling *s, Npugraph__V1__Sampling *m)
{
    Npugraph__V1__TokenWord *items = ngd_arena_calloc(arena, s->n_bad_words + 1u, sizeof(*items));
    uint32_t begin = 0;

    m->bad_words = ngd_arena_calloc(arena, s->n_bad_words + 1u, sizeof(*m->bad_words));
    for (uint32_t i = 0; items && m->bad_words && i < s->n_bad_words; begin = s->bad_ends[i++]) {
        npugraph__v1__token_word__init(&items[i]);
        items[i].tokens = (int32_t *)(uintptr_t)s->bad_tokens + begin;
        items[i].n_tokens = s->bad_ends[i] - begin;
        m->bad_words[m->n_bad_words++] = &items[i];
    }
    return items && m->bad_words;
}

bool ngd_sampling_to_message(struct ngd_arena *arena, const struct ngd_sampling *s, Npugraph__V1__Sampling *m)
{
    npugraph__v1__sampling__init(m);
    m->temperature = s->temperature;
    m->top_k = s->top_k;
    m->top_p = s->top_p;
    m->seed = s->seed;
    m->min_p = s->min_p;
    m->typical_p = s->typical_p;
    m->repetition_penalty = s->repetition_penalty;
    m->presence_penalty = s->presence_penalty;
    m->frequency_penalty = s->frequency_penalty;
    m->min_tokens = s->min_tokens;
    return put_bias(arena, s, m) && put_bad_words(arena, s, m);
}
