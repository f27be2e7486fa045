/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/sampling.h"
#include "client/lib/error.h"

#include <stdlib.h>

/* The lists of a message, in one allocation: messages, and the pointers to them that protobuf-c wants. */
struct lists {
    Npugraph__V1__LogitBias *bias;
    Npugraph__V1__LogitBias **bias_p;
    Npugraph__V1__TokenWord *words;
    Npugraph__V1__TokenWord **words_p;
};

static void *allocate_lists(const struct npugraph_sampling *s, struct lists *l)
{
    const size_t n = s->n_logit_bias, m = s->n_bad_words;
    void *block = NULL;

    /* More than any daemon takes: its refusal names the limit. */
    if (n < 1u << 20 && m < 1u << 20)
        block = malloc(n * (sizeof(*l->bias) + sizeof(*l->bias_p)) + m * (sizeof(*l->words) + sizeof(*l->words_p)));
    if (block == NULL)
        return NULL;
    l->bias = block;
    l->words = (Npugraph__V1__TokenWord *)(void *)(l->bias + n);
    l->bias_p = (Npugraph__V1__LogitBias **)(void *)(l->words + m);
    l->words_p = (Npugraph__V1__TokenWord **)(void *)(l->bias_p + n);
    return block;
}

static void fill_lists(Npugraph__V1__Sampling *message, const struct npugraph_sampling *s, const struct lists *l)
{
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        npugraph__v1__logit_bias__init(&l->bias[i]);
        l->bias[i].token = s->logit_bias[i].token;
        l->bias[i].bias = s->logit_bias[i].bias;
        l->bias_p[i] = &l->bias[i];
    }
    for (size_t i = 0; i < s->n_bad_words; i++) {
        npugraph__v1__token_word__init(&l->words[i]);
        l->words[i].tokens = (int32_t *)(uintptr_t)s->bad_words[i].tokens;
        l->words[i].n_tokens = s->bad_words[i].n;
        l->words_p[i] = &l->words[i];
    }
    message->logit_bias = l->bias_p;
    message->n_logit_bias = s->n_logit_bias;
    message->bad_words = l->words_p;
    message->n_bad_words = s->n_bad_words;
}

int npugraph__sampling_init(struct npugraph__sampling *how, const struct npugraph_sampling *s,
                            struct npugraph_error *err)
{
    struct lists lists;

    npugraph__v1__sampling__init(&how->message);
    how->message_or_null = s != NULL ? &how->message : NULL;
    how->lists = NULL;
    if (s == NULL)
        return 0;
    how->message.temperature = s->temperature;
    how->message.top_k = s->top_k;
    how->message.top_p = s->top_p;
    how->message.seed = s->seed;
    how->message.min_p = s->min_p;
    how->message.typical_p = s->typical_p;
    how->message.repetition_penalty = s->repetition_penalty;
    how->message.presence_penalty = s->presence_penalty;
    how->message.frequency_penalty = s->frequency_penalty;
    how->message.min_tokens = s->min_tokens;
    if (s->n_logit_bias == 0 && s->n_bad_words == 0)
        return 0;
    how->lists = allocate_lists(s, &lists);
    if (how->lists == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "no memory for %zu biases and %zu bad words", s->n_logit_bias,
                               s->n_bad_words);
    fill_lists(&how->message, s, &lists);
    return 0;
}

void npugraph__sampling_fini(struct npugraph__sampling *how)
{
    free(how->lists);
}
