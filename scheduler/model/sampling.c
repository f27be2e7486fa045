/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/model/sampling.h"
#include "base/mem.h"
#include "devices/sample.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- parameters --------------------------------------------------------------------------------------- */

static ngd_status_t check_parameter(const char *name, float value, float least, float most, const char *off,
                                    struct ngd_diag *diag)
{
    if (value >= least && value <= most)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_SAMPLING, "%s is %g; it must be %g to %g (%s)", name, (double)value,
                        (double)least, (double)most, off);
}

static ngd_status_t check_listed(const char *list, uint32_t i, int32_t token, uint32_t vocab, struct ngd_diag *diag)
{
    if (token >= 0 && (uint32_t)token < vocab)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_TOKEN_RANGE,
                        "%s %" PRIu32 ": token %" PRId32 " is outside the vocabulary 0..%" PRIu32, list, i, token,
                        vocab - 1);
}

static ngd_status_t check_bias(const struct ngd_sampling *s, uint32_t vocab, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (s->n_bias > NGD_LOGIT_BIAS_MAX)
        return ngd_diag_set(diag, NGD_ERR_SAMPLING, "logit_bias has %" PRIu32 " tokens; at most %d are allowed",
                            s->n_bias, NGD_LOGIT_BIAS_MAX);
    for (uint32_t i = 0; i < s->n_bias && !status; i++) {
        status = check_listed("logit_bias", i, s->bias[i].token, vocab, diag);
        if (!status)
            status = check_parameter("logit_bias", s->bias[i].bias, -NGD_SAMPLING_BIAS_MAX, NGD_SAMPLING_BIAS_MAX,
                                     "0 changes nothing", diag);
    }
    return status;
}

static ngd_status_t check_bad_words(const struct ngd_sampling *s, uint32_t vocab, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;
    uint32_t at = 0;

    if (s->n_bad_words > NGD_BAD_WORDS_MAX)
        return ngd_diag_set(diag, NGD_ERR_SAMPLING, "%" PRIu32 " bad words; at most %d are allowed", s->n_bad_words,
                            NGD_BAD_WORDS_MAX);
    for (uint32_t i = 0; i < s->n_bad_words && !status; i++) {
        const uint32_t n = s->bad_ends[i] - at;

        if (n == 0 || n > NGD_BAD_WORD_MAX)
            return ngd_diag_set(diag, NGD_ERR_SAMPLING,
                                "bad word %" PRIu32 " has %" PRIu32 " tokens; it must have 1 "
                                "to %d",
                                i, n, NGD_BAD_WORD_MAX);
        for (; at < s->bad_ends[i] && !status; at++)
            status = check_listed("bad word", i, s->bad_tokens[at], vocab, diag);
    }
    return status;
}

ngd_status_t ngd_sampling_check(const struct ngd_sampling *s, uint32_t vocab, struct ngd_diag *diag)
{
    const struct {
        const char *name;
        float value, least, most;
        const char *off;
    } values[] = {
        {"temperature", s->temperature, 0, 100, "0 = greedy"},
        {"top_p", s->top_p, 0, 1, "0 and 1 = off"},
        {"min_p", s->min_p, 0, 1, "0 = off"},
        {"typical_p", s->typical_p, 0, 1, "0 and 1 = off"},
        {"repetition_penalty", s->repetition_penalty, 0, NGD_PENALTY_MAX, "0 and 1 = off"},
        {"presence_penalty", s->presence_penalty, -NGD_PENALTY_MAX, NGD_PENALTY_MAX, "0 = off"},
        {"frequency_penalty", s->frequency_penalty, -NGD_PENALTY_MAX, NGD_PENALTY_MAX, "0 = off"},
    };
    ngd_status_t status = NGD_OK;

    if (s->top_k < 0)
        return ngd_diag_set(diag, NGD_ERR_SAMPLING, "top_k is %" PRId32 "; it must be 0 (off) or more", s->top_k);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]) && !status; i++)
        status = check_parameter(values[i].name, values[i].value, values[i].least, values[i].most, values[i].off, diag);
    if (!status)
        status = check_bias(s, vocab, diag);
    return status ? status : check_bad_words(s, vocab, diag);
}

static bool is_repetition(const struct ngd_sampling *s)
{
    return s->repetition_penalty > 0 && s->repetition_penalty != 1;
}

const char *ngd_sampling_needs_logits(const struct ngd_sampling *s)
{
    const bool drawn = s->temperature > 0;

    return drawn && s->min_p > 0                           ? "min_p"
           : drawn && s->typical_p > 0 && s->typical_p < 1 ? "typical_p"
           : is_repetition(s)                              ? "repetition_penalty"
           : s->presence_penalty != 0                      ? "presence_penalty"
           : s->frequency_penalty != 0                     ? "frequency_penalty"
           : s->n_bias                                     ? "logit_bias"
           : s->n_bad_words                                ? "bad_words"
                                                           : NULL;
}

/* ---- copies ------------------------------------------------------------------------------------------- */

static uint32_t bad_length(const struct ngd_sampling *s)
{
    return s->n_bad_words ? s->bad_ends[s->n_bad_words - 1] : 0;
}

uint64_t ngd_sampling_bytes(const struct ngd_sampling *s)
{
    return s->n_bias * sizeof(s->bias[0]) + s->n_bad_words * sizeof(s->bad_ends[0]) +
           bad_length(s) * sizeof(s->bad_tokens[0]);
}

bool ngd_sampling_copy(const struct ngd_sampling *from, struct ngd_sampling *to)
{
    struct ngd_logit_bias *bias = NULL;
    uint32_t *ends;
    int32_t *tokens;

    *to = *from;
    to->bias = NULL;
    to->bad_ends = NULL;
    to->bad_tokens = NULL;
    if (!ngd_sampling_bytes(from))
        return true;
    bias = ngd_malloc(ngd_sampling_bytes(from));
    if (!bias)
        return false;
    ends = (uint32_t *)(void *)(bias + from->n_bias);
    tokens = (int32_t *)(void *)(ends + from->n_bad_words);
    if (from->n_bias)
        memcpy(bias, from->bias, from->n_bias * sizeof(*bias));
    if (from->n_bad_words) {
        memcpy(ends, from->bad_ends, from->n_bad_words * sizeof(*ends));
        memcpy(tokens, from->bad_tokens, bad_length(from) * sizeof(*tokens));
    }
    to->bias = bias;
    to->bad_ends = ends;
    to->bad_tokens = tokens;
    return true;
}

void ngd_sampling_free(struct ngd_sampling *s)
{
    ngd_free((void *)(uintptr_t)s->bias); /* the one block */
    *s = (struct ngd_sampling){0};
}

/* ---- masks -------------------------------------------------------------------------------------------- */

static bool is_allowed(const uint8_t *mask, uint32_t token)
{
    return mask[token / 8] >> token % 8 & 1;
}

ngd_status_t ngd_mask_check(const uint8_t *mask, uint64_t bytes, uint32_t vocab, struct ngd_diag *diag)
{
    if (bytes != ngd_mask_bytes(vocab))
        return ngd_diag_set(diag, NGD_ERR_SAMPLING,
                            "the mask of allowed tokens has %" PRIu64 " bytes; a vocabulary of %" PRIu32
                            " tokens needs %" PRIu64,
                            bytes, vocab, ngd_mask_bytes(vocab));
    for (uint32_t i = 0; i < vocab; i++)
        if (is_allowed(mask, i))
            return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_SAMPLING, "the mask of allowed tokens allows none");
}

/* ---- logits ------------------------------------------------------------------------------------------- */

#define SEEN 0x80000000u /* in a count: the token is in the context; the rest: how often it was generated */

static float penalize(const struct ngd_sampling *s, float logit, uint32_t count)
{
    const uint32_t times = count & ~SEEN;

    if (is_repetition(s))
        logit = logit < 0 ? logit * s->repetition_penalty : logit / s->repetition_penalty;
    if (times)
        logit -= s->presence_penalty + s->frequency_penalty * (float)times;
    return logit;
}

/* Applies the penalties, once to each token of the context. */
static void apply_penalties(struct ngd_sampler *p, const struct ngd_sampling *s, const struct ngd_sampler_row *row)
{
    const bool generated = s->presence_penalty != 0 || s->frequency_penalty != 0;
    const uint32_t from = is_repetition(s) ? 0 : generated ? row->n_given : row->n;

    for (uint32_t i = from; i < row->n; i++)
        p->counts[row->tokens[i]] = (p->counts[row->tokens[i]] | SEEN) + (i >= row->n_given);
    for (uint32_t i = from; i < row->n; i++) {
        const int32_t token = row->tokens[i];

        if (p->counts[token])
            p->logits[token] = penalize(s, p->logits[token], p->counts[token]);
        p->counts[token] = 0;
    }
}

/* Forbids the last token of each bad word whose other tokens end the context. */
static void forbid_bad_words(struct ngd_sampler *p, const struct ngd_sampling *s, const struct ngd_sampler_row *row)
{
    uint32_t begin = 0;

    for (uint32_t i = 0; i < s->n_bad_words; i++) {
        const uint32_t before = s->bad_ends[i] - begin - 1;
        const int32_t *word = s->bad_tokens + begin;

        if (before == 0 ||
            (before <= row->n && memcmp(word, row->tokens + row->n - before, before * sizeof(*word)) == 0))
            p->logits[word[before]] = -INFINITY;
        begin = s->bad_ends[i];
    }
}

static void forbid_stops(struct ngd_sampler *p, const struct ngd_sampler_row *row)
{
    for (int list = 0; list < 2; list++)
        for (uint32_t i = 0; i < row->n_stops[list]; i++)
            if (row->stops[list][i] >= 0 && (uint32_t)row->stops[list][i] < p->vocab)
                p->logits[row->stops[list][i]] = -INFINITY;
}

static void forbid_unmasked(struct ngd_sampler *p, const uint8_t *mask)
{
    for (uint32_t i = 0; i < p->vocab; i++)
        if (!is_allowed(mask, i))
            p->logits[i] = -INFINITY;
}

ngd_status_t ngd_sampler_choose(struct ngd_sampler *p, const struct ngd_sampling *s, const struct ngd_sampler_row *row,
                                int32_t *token_p, struct ngd_diag *diag)
{
    const struct ngd_sample_choice choice = {
        .temperature = s->temperature,
        .top_p = s->top_p > 0 ? s->top_p : 1,
        .min_p = s->min_p,
        .typical_p = s->typical_p,
        .top_k = s->top_k,
        .seed = (int64_t)s->seed,
        .offset = (int64_t)row->draw,
    };
    int32_t token;

    memcpy(p->logits, row->logits, p->vocab * sizeof(*p->logits));
    for (uint32_t i = 0; i < s->n_bias; i++)
        p->logits[s->bias[i].token] += s->bias[i].bias;
    apply_penalties(p, s, row);
    forbid_bad_words(p, s, row);
    if (ngd_generated(row->n, row->n_given) < s->min_tokens)
        forbid_stops(p, row);
    if (row->mask)
        forbid_unmasked(p, row->mask);
    token = ngd_sample_choose(p->logits, p->vocab, &choice, p->scratch);
    if (token < 0)
        return ngd_diag_set(diag, NGD_ERR_SAMPLING,
                            "no token may be chosen: the mask, bad_words and min_tokens forbid all that the model "
                            "gives a probability");
    *token_p = token;
    return NGD_OK;
}

/* ---- scratch ------------------------------------------------------------------------------------------ */

uint64_t ngd_sampler_bytes(uint32_t vocab)
{
    return vocab * (sizeof(float) + sizeof(uint32_t)) + ngd_sample_scratch(vocab);
}

bool ngd_sampler_init(struct ngd_sampler *p, uint32_t vocab)
{
    p->vocab = vocab;
    p->logits = NGD_NEW_N(float, vocab);
    p->counts = NGD_NEW_N(uint32_t, vocab);
    p->scratch = ngd_aligned_alloc(64, ngd_sample_scratch(vocab));
    return p->logits && p->counts && p->scratch;
}

void ngd_sampler_fini(struct ngd_sampler *p)
{
    ngd_free(p->logits);
    ngd_free(p->counts);
    ngd_free(p->scratch);
}
