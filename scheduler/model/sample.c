/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows of a replay have their token chosen by the worker, and how it chooses: sampling.h has the rule. These rows
 * are the only ones that cost more than the graph's own operator.
 */
#include "base/mem.h"
#include "scheduler/model/model_int.h"

/* ---- checks --------------------------------------------------------------------------------------------- */

ngd_status_t ngd_model_check_sampling(const struct ngd_model *model, const struct ngd_sampling *s,
                                      const uint8_t *allowed, uint64_t allowed_bytes, struct ngd_diag *diag)
{
    const struct ngd_roles *roles = &model->graphs[NGD_DECODE].roles;
    const char *needs = ngd_sampling_needs_logits(s);
    ngd_status_t status = ngd_sampling_check(s, model->params.vocab, diag);

    if (!status && allowed)
        status = ngd_mask_check(allowed, allowed_bytes, model->params.vocab, diag);
    if (status)
        return status;
    if (s->temperature > 0 && roles->index[NGD_ROLE_TEMPERATURE] < 0)
        return ngd_diag_set(diag, NGD_ERR_SAMPLING,
                            "model \"%.64s\" is greedy: its contract has no sampling parameters; use temperature 0",
                            model->name);
    if (!needs)
        needs = s->min_tokens ? "min_tokens" : allowed ? "a mask of allowed tokens" : NULL;
    if (needs && roles->index[NGD_ROLE_LOGITS] < 0)
        return ngd_diag_set(diag, NGD_ERR_SAMPLING,
                            "%s needs logits, and model \"%.64s\" returns none: register it with a logits_output",
                            needs, model->name);
    return NGD_OK;
}

/* ---- masks ---------------------------------------------------------------------------------------------- */

ngd_status_t ngd_seq_copy_mask(const struct ngd_seq *seq, const uint8_t *allowed, struct ngd_seq_mask *mask_p,
                               struct ngd_diag *diag)
{
    const uint64_t bytes = ngd_mask_bytes(seq->model->params.vocab);
    ngd_status_t status;

    *mask_p = (struct ngd_seq_mask){0};
    if (!allowed)
        return NGD_OK;
    status = ngd_charge_begin(&mask_p->charge, seq->charge.payer, bytes, diag);
    if (status)
        return status;
    mask_p->bits = ngd_memdup(allowed, bytes);
    if (mask_p->bits)
        return NGD_OK;
    ngd_charge_end(&mask_p->charge);
    return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a mask of allowed tokens");
}

void ngd_seq_move_mask(struct ngd_seq_mask *to, struct ngd_seq_mask *from)
{
    ngd_free(to->bits);
    ngd_charge_end(&to->charge);
    *to = (struct ngd_seq_mask){0};
    if (!from)
        return;
    to->bits = from->bits;
    to->charge = ngd_charge_move(&from->charge);
    from->bits = NULL;
}

/* ---- choices -------------------------------------------------------------------------------------------- */

bool ngd_seq_plan_sampling(struct ngd_seq *seq, uint32_t n)
{
    const struct ngd_sampling *s = &seq->sampling;

    seq->samples =
        seq->next_mask.bits || ngd_sampling_needs_logits(s) || ngd_generated(n, seq->n_given) < s->min_tokens;
    return seq->samples;
}

static ngd_status_t choose_token(struct ngd_seq *seq, uint32_t n, uint64_t draw, const float *logits, bool step,
                                 int32_t *token_p, struct ngd_diag *diag)
{
    struct ngd_model *model = seq->model;
    const struct ngd_sampler_row row = {
        .logits = logits,
        .tokens = seq->tokens,
        .n = n,
        .n_given = seq->n_given,
        .draw = draw,
        .mask = seq->next_mask.bits,
        .stops = {model->stop_tokens, seq->stop_tokens},
        .n_stops = {model->params.n_stop_tokens, seq->op == NGD_SEQ_GENERATE ? seq->n_stop_tokens : 0},
    };
    const ngd_nsec_t begin = ngd_now();
    const ngd_status_t status = ngd_sampler_choose(&model->sampler, &seq->sampling, &row, token_p, diag);

    /* The device waits meanwhile, as for a kernel. */
    ngd_model_charge(model, &seq, 1, step, ngd_now() - begin);
    return status;
}

ngd_status_t ngd_seq_sample(struct ngd_seq *seq, uint32_t n, uint64_t draw, const float *logits, bool step,
                            int32_t *token_p, struct ngd_diag *diag)
{
    const struct ngd_model *model = seq->model;
    ngd_status_t status = NGD_OK;

    if (seq->samples)
        status = choose_token(seq, n, draw, logits, step, token_p, diag);
    if (status)
        return status;
    /* A token outside the vocabulary would fail the next batch for all its sequences. */
    if (*token_p >= 0 && (uint32_t)*token_p < model->params.vocab)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_TOKEN_RANGE,
                        "the graph of model \"%.64s\" chose token %d, which is outside its vocabulary of %u tokens",
                        model->name, (int)*token_p, (unsigned)model->params.vocab);
}
