/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities of tokens, from a row of logits. */
#include "scheduler/model/model_int.h"
#include <math.h>

/* Computes log(sum(exp(logits))) relative to the largest logit, so that nothing overflows. */
static double log_sum(const float *logits, uint32_t vocab)
{
    float most = -INFINITY;
    double sum = 0;

    for (uint32_t i = 0; i < vocab; i++)
        most = logits[i] > most ? logits[i] : most;
    if (!isfinite(most))
        return most;
    for (uint32_t i = 0; i < vocab; i++)
        sum += (double)expf(logits[i] - most);
    return most + log(sum);
}

static void insert_top(struct ngd_logprobs *lp, uint32_t top, int32_t token, float logit)
{
    uint32_t at = lp->n_top < top ? lp->n_top++ : top - 1;

    for (; at > 0 && lp->top[at - 1].logprob < logit; at--)
        lp->top[at] = lp->top[at - 1];
    lp->top[at].token = token;
    lp->top[at].logprob = logit;
}

void ngd_logprobs_of(const float *logits, uint32_t vocab, int32_t token, uint32_t top, struct ngd_logprobs *lp)
{
    const double sum = log_sum(logits, vocab);

    lp->token = token;
    lp->logprob = (float)(logits[token] - sum);
    lp->n_top = 0;
    for (uint32_t i = 0; i < vocab && top; i++)
        if (lp->n_top < top || logits[i] > lp->top[top - 1].logprob)
            insert_top(lp, top, (int32_t)i, logits[i]);
    for (uint32_t i = 0; i < lp->n_top; i++)
        lp->top[i].logprob = (float)(lp->top[i].logprob - sum);
}
