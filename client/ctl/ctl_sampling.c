/* SPDX-License-Identifier: Apache-2.0 */
/* Options of sequences. The daemon checks how tokens are chosen; here values only have to be numbers. */
#include "base/config.h"
#include "client/ctl/ctl_tokens.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RESTORE_MOST (24 * 3600 * NGD_SEC)

static const struct {
    const char *name;
    size_t at; /* a float of struct npugraph_sampling */
    bool negative;
} floats[] = {
    {"temperature", offsetof(struct npugraph_sampling, temperature), false},
    {"top-p", offsetof(struct npugraph_sampling, top_p), false},
    {"min-p", offsetof(struct npugraph_sampling, min_p), false},
    {"typical-p", offsetof(struct npugraph_sampling, typical_p), false},
    {"repetition-penalty", offsetof(struct npugraph_sampling, repetition_penalty), false},
    {"presence-penalty", offsetof(struct npugraph_sampling, presence_penalty), true},
    {"frequency-penalty", offsetof(struct npugraph_sampling, frequency_penalty), true},
};

/* Takes TOKEN=F. */
static bool add_bias(struct ctl_sampling *s, const char *value)
{
    const char *equals = strchr(value, '=');
    char token[16];
    uint64_t id;
    double bias;
    struct npugraph_logit_bias *more;

    if (equals == NULL || (size_t)(equals - value) >= sizeof(token))
        return false;
    memcpy(token, value, (size_t)(equals - value));
    token[equals - value] = '\0';
    if (!ctl_parse_uint(token, INT32_MAX, &id) || !ctl_parse_float(equals + 1, &bias))
        return false;
    more = realloc(s->bias, (s->how.n_logit_bias + 1) * sizeof(*more));
    if (more == NULL)
        return false;
    more[s->how.n_logit_bias++] = (struct npugraph_logit_bias){(int32_t)id, (float)bias};
    s->how.logit_bias = s->bias = more;
    return true;
}

static bool take_float(struct ctl_sampling *s, size_t i, const char *value)
{
    float *to = (float *)(void *)((char *)&s->how + floats[i].at);
    double d;

    if (!ctl_parse_float(value, &d) || (d < 0 && !floats[i].negative))
        return false;
    *to = (float)d;
    return true;
}

/* Takes how long a sequence waits for another daemon. 0: it is lost with its daemon. */
static bool take_restore_timeout(struct ctl_sampling *s, const char *value)
{
    ngd_nsec_t t;

    if (ngd_parse_time(value, &t) != NGD_OK || t > RESTORE_MOST)
        return false;
    s->restore_ms = (uint32_t)(t / NGD_MSEC);
    return true;
}

bool ctl_sampling_option(struct ctl_sampling *s, const char *name, const char *value)
{
    const bool seed = strcmp(name, "seed") == 0, top_k = strcmp(name, "top-k") == 0;
    uint64_t v;

    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++)
        if (strcmp(name, floats[i].name) == 0)
            return take_float(s, i, value);
    if (strcmp(name, "restore-timeout") == 0)
        return take_restore_timeout(s, value);
    if (strcmp(name, "logit-bias") == 0)
        return add_bias(s, value);
    if (strcmp(name, "bad-word") == 0)
        return s->how.n_bad_words < CTL_BAD_WORDS_MAX && (s->texts[s->how.n_bad_words++] = value)[0] != '\0';
    if (!seed && !top_k && strcmp(name, "min-tokens") != 0)
        return false;
    if (!ctl_parse_uint(value, seed ? UINT64_MAX : top_k ? INT32_MAX : UINT32_MAX, &v))
        return false;
    if (seed)
        s->how.seed = v;
    else if (top_k)
        s->how.top_k = (int32_t)v;
    else
        s->how.min_tokens = (uint32_t)v;
    return true;
}

static bool make_word(struct npugraph_token_word *word, const char *text, const struct npugraph_tokenizer *tok)
{
    struct npugraph_error err = {0};
    int32_t *ids = NULL;

    if (tok != NULL &&
        npugraph_tokenizer_encode(tok, text, strlen(text), NPUGRAPH_ENCODE_SPECIAL, &ids, &word->n, &err) != 0)
        return ctl_fail(&err) == 0;
    if (tok == NULL && !ctl_parse_ids(text, &ids, &word->n))
        return ctl_error("--bad-word %s: without --tokenizer it takes token ids, N,N,...", text) == 0;
    word->tokens = ids;
    return true;
}

bool ctl_sampling_words(struct ctl_sampling *s, const struct npugraph_tokenizer *tok)
{
    bool ok = true;

    if (s->how.n_bad_words == 0)
        return true;
    s->words = calloc(s->how.n_bad_words, sizeof(*s->words));
    if (s->words == NULL)
        return ctl_error("no memory for bad words") == 0;
    for (size_t i = 0; i < s->how.n_bad_words && ok; i++)
        ok = make_word(&s->words[i], s->texts[i], tok);
    s->how.bad_words = s->words;
    return ok;
}

void ctl_sampling_free(struct ctl_sampling *s)
{
    for (size_t i = 0; s->words != NULL && i < s->how.n_bad_words; i++)
        free((void *)(uintptr_t)s->words[i].tokens);
    free(s->words);
    free(s->bias);
}
