/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what operations on sequences are asked for, against the model, and says how a sequence is. The state of the
 * sequence is checked in seq.c. */
#include "scheduler/model/model_int.h"
#include <inttypes.h>

static ngd_status_t check_token(const struct ngd_model *model, int32_t token, const char *what, uint32_t i,
                                struct ngd_diag *diag)
{
    if (token >= 0 && (uint32_t)token < model->params.vocab)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_TOKEN_RANGE, "%s %" PRIu32 " is %" PRId32 ", outside the vocabulary 0..%" PRIu32,
                        what, i, token, model->params.vocab - 1);
}

static ngd_status_t check_logits(const struct ngd_model *model, bool want, struct ngd_diag *diag)
{
    if (!want || model->graphs[NGD_DECODE].roles.index[NGD_ROLE_LOGITS] >= 0)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "model \"%.64s\" returns no logits: its contract has no logits_output", model->name);
}

static ngd_status_t check_logprobs(const struct ngd_model *model, bool want, uint32_t top, struct ngd_diag *diag)
{
    if (want && top > NGD_LOGPROBS_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "%" PRIu32 " most probable tokens were requested; at most %d are allowed", top,
                            NGD_LOGPROBS_MAX);
    return check_logits(model, want, diag);
}

static ngd_status_t check_priority(ngd_priority_t priority, bool own, struct ngd_diag *diag)
{
    if (priority < NGD_PRIORITIES || (own && priority == NGD_PRIORITY_OWN))
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "priority %d is not defined; use high, normal or low",
                        (int)priority);
}

static ngd_status_t check_prompt(const struct ngd_model *model, const int32_t *prompt, uint32_t n,
                                 struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (n == 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the prompt is empty; it must have at least one token");
    if (n > model->params.max_context)
        return ngd_diag_set(diag, NGD_ERR_PROMPT_TOO_LONG,
                            "the prompt has %" PRIu32 " tokens; the context of model \"%.64s\" has room for %" PRIu32,
                            n, model->name, model->params.max_context);
    for (uint32_t i = 0; i < n && !status; i++)
        status = check_token(model, prompt[i], "prompt token", i, diag);
    return status;
}

/* A sequence is opened for tokens or for its hidden state. */
static ngd_status_t check_embeds(const struct ngd_model *model, bool embed, struct ngd_diag *diag)
{
    if (embed && !model->graphs[NGD_PREFILL].roles.hidden_size)
        return ngd_diag_set(diag, NGD_ERR_NO_EMBEDDINGS,
                            "model \"%.64s\" returns no hidden states: its contract has no hidden_output", model->name);
    if (!embed && model->params.no_generation)
        return ngd_diag_set(diag, NGD_ERR_NO_GENERATION,
                            "model \"%.64s\" has no head to choose tokens with: it is loaded for embeddings alone; use "
                            "Embed, or load a checkpoint that has a head",
                            model->name);
    return NGD_OK;
}

/* ---- operations ----------------------------------------------------------------------------------------- */

ngd_status_t ngd_seq_check_open(const struct ngd_model *model, const struct ngd_seq_params *params,
                                struct ngd_diag *diag)
{
    ngd_status_t status = check_embeds(model, params->embed, diag);

    if (!status)
        status = check_prompt(model, params->prompt, params->n_prompt, diag);
    if (!status)
        status = ngd_model_check_sampling(model, &params->sampling, params->allowed, params->allowed_bytes, diag);
    if (!status)
        status = check_logits(model, params->want_logits, diag);
    if (!status)
        status = check_logprobs(model, params->want_logprobs, params->top, diag);
    if (!status)
        status = check_priority(params->priority, false, diag);
    return status;
}

ngd_status_t ngd_seq_check_fork(const struct ngd_model *model, const struct ngd_fork_params *params,
                                struct ngd_diag *diag)
{
    ngd_status_t status = ngd_model_check_sampling(model, &params->sampling, NULL, 0, diag);

    if (!status)
        status = check_logits(model, params->want_logits, diag);
    if (!status)
        status = check_logprobs(model, params->want_logprobs, params->top, diag);
    return status;
}

ngd_status_t ngd_seq_check_step(const struct ngd_model *model, const struct ngd_step_params *p, struct ngd_diag *diag)
{
    ngd_status_t status = p->forced == -1 ? NGD_OK : check_token(model, p->forced, "forced token", 0, diag);

    if (!status && (p->n_draft >= model->params.max_context || p->n_append >= model->params.max_context))
        status = ngd_diag_set(diag, NGD_ERR_CONTEXT_FULL,
                              "the %s has %" PRIu32 " tokens; the context of model \"%.64s\" has room for %" PRIu32,
                              p->n_append ? "list of appended tokens" : "draft", p->n_append ? p->n_append : p->n_draft,
                              model->name, model->params.max_context);
    for (uint32_t i = 0; i < p->n_draft && !status; i++)
        status = check_token(model, p->draft[i], "draft token", i, diag);
    if (!status && p->n_append && (p->forced != -1 || p->n_draft))
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                              "a step that appends tokens takes no forced token and no draft: put them into `append`");
    for (uint32_t i = 0; i < p->n_append && !status; i++)
        status = check_token(model, p->append[i], "appended token", i, diag);
    if (!status && p->allowed && p->n_draft)
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                              "a step has a mask of allowed tokens and a draft; a mask is for one token, so send the "
                              "draft without it");
    if (!status && p->allowed)
        status = ngd_model_check_sampling(model, &(struct ngd_sampling){0}, p->allowed, p->allowed_bytes, diag);
    if (!status)
        status = check_logits(model, p->want_logits, diag);
    if (!status)
        status = check_logprobs(model, p->want_logprobs, p->top, diag);
    return status ? status : check_priority(p->priority, true, diag);
}

ngd_status_t ngd_seq_check_generate(const struct ngd_model *model, const struct ngd_generate_params *p,
                                    struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (p->max_tokens == 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "max_tokens is 0; it must be at least 1");
    if (p->n_stop_tokens > NGD_STOP_TOKENS_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%" PRIu32 " stop tokens; a generation takes at most %d",
                            p->n_stop_tokens, NGD_STOP_TOKENS_MAX);
    for (uint32_t i = 0; i < p->n_stop_tokens && !status; i++)
        status = check_token(model, p->stop_tokens[i], "stop token", i, diag);
    if (!status)
        status = check_logprobs(model, p->want_logprobs, p->top, diag);
    return status ? status : check_priority(p->priority, true, diag);
}

/* ---- how a sequence is -------------------------------------------------------------------------------- */

struct ngd_model *ngd_seq_model(const struct ngd_seq *seq)
{
    return seq->model;
}

void ngd_seq_info(struct ngd_seq *seq, struct ngd_seq_info *info_p)
{
    static const char *const states[] = {
        [NGD_SEQ_IDLE] = "idle",
        [NGD_SEQ_READY] = "queued",
        [NGD_SEQ_RUNNING] = "running",
        [NGD_SEQ_STARVED] = "starved",
    };
    struct ngd_model *model = seq->model;

    ngd_mutex_lock(&model->lock);
    *info_p = (struct ngd_seq_info){
        .position = seq->op == NGD_SEQ_OPEN ? seq->position : seq->fill,
        .blocks = ngd_seq_held(seq),
        .shared = seq->shared,
        .state = seq->op == NGD_SEQ_OPEN                     ? "prefill"
                 : seq->op != NGD_SEQ_NONE && seq->cancelled ? "stopping"
                                                             : states[seq->state],
        .tokens = seq->draws,
    };
    ngd_mutex_unlock(&model->lock);
}
