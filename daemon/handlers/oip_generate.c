/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to a language model: a sequence is opened with the prompt, generates, and is closed. Tokens are sent as
 * they are chosen. While a message is being sent, the next tokens are collected and sent together, as by
 * Sequences.Generate.
 */
#include "base/le.h"
#include "daemon/daemon.h"
#include "daemon/handlers/oip_stream.h"
#include "daemon/identity.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/session.h"
#include <inttypes.h>
#include <string.h>

#define DEFAULT_MAX_TOKENS 16
#define FINISH_REASON      "finish_reason"
#define FINAL_RESPONSE     "triton_final_response"

/* ---- responses --------------------------------------------------------------------------------------------------- */

typedef Inference__ModelInferResponse__ParametersEntry response_parameter_t;
typedef Inference__ModelInferResponse__InferOutputTensor output_tensor_t;

/* A response, with all messages that it consists of. */
struct response {
    Inference__ModelStreamInferResponse base;
    Inference__ModelInferResponse infer;
    response_parameter_t final, reason, *parameters[2];
    Inference__InferParameter final_value, reason_value;
    output_tensor_t output, *outputs[1];
    ProtobufCBinaryData raw[1];
    int64_t shape[1];
};

static void put_finish(struct response *r, const char *finish)
{
    inference__model_infer_response__parameters_entry__init(&r->final);
    inference__infer_parameter__init(&r->final_value);
    r->final.key = (char *)(uintptr_t)FINAL_RESPONSE;
    r->final.value = &r->final_value;
    r->final_value.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    r->final_value.bool_param = finish != NULL;
    r->parameters[r->infer.n_parameters++] = &r->final;
    if (finish) {
        inference__model_infer_response__parameters_entry__init(&r->reason);
        inference__infer_parameter__init(&r->reason_value);
        r->reason.key = (char *)(uintptr_t)FINISH_REASON;
        r->reason.value = &r->reason_value;
        r->reason_value.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
        r->reason_value.string_param = (char *)(uintptr_t)finish;
        r->parameters[r->infer.n_parameters++] = &r->reason;
    }
    r->infer.parameters = r->parameters;
}

static void put_tokens(struct response *r, const int64_t *tokens, uint32_t n)
{
    inference__model_infer_response__infer_output_tensor__init(&r->output);
    r->output.name = (char *)(uintptr_t)NGD_OIP_OUTPUT_IDS;
    r->output.datatype = (char *)(uintptr_t)ngd_oip_datatype(NGD_I64);
    r->shape[0] = n;
    r->output.n_shape = 1;
    r->output.shape = r->shape;
    r->outputs[0] = &r->output;
    r->infer.n_outputs = 1;
    r->infer.outputs = r->outputs;
    r->raw[0] = (ProtobufCBinaryData){n * sizeof(*tokens), (uint8_t *)(uintptr_t)tokens};
    r->infer.n_raw_output_contents = 1;
    r->infer.raw_output_contents = r->raw;
}

/* Sends the tokens that wait. finish: why it is the last response; NULL: it is not. */
static ngd_status_t send_tokens(struct ngd_oip_item *item, const char *finish) NGD_REQUIRES(item->generation.lock)
{
    struct ngd_oip_generation *g = &item->generation;
    char version[NGD_OIP_VERSION_MAX];
    struct response r;

    inference__model_stream_infer_response__init(&r.base);
    inference__model_infer_response__init(&r.infer);
    r.base.infer_response = &r.infer;
    ngd_oip_version(&item->infer.model, version);
    r.infer.model_name = item->infer.q.m->model_name;
    r.infer.model_version = version;
    r.infer.id = item->infer.q.m->id;
    put_finish(&r, finish);
    if (g->n_waiting)
        put_tokens(&r, g->waiting, g->n_waiting);
    g->n_waiting = 0;
    return ngd_call_send(item->infer.call, &r.base.base);
}

/* If tokens are lost, the generation ends with an error: a shorter text must not look like a complete one. */
static void send_or_stop(struct ngd_oip_item *item) NGD_REQUIRES(item->generation.lock)
{
    struct ngd_oip_generation *g = &item->generation;

    if (g->lost == NGD_OK)
        g->lost = send_tokens(item, NULL);
    if (g->lost != NGD_OK)
        ngd_seq_cancel(g->object->seq);
    g->n_waiting = 0;
}

void ngd_oip_generation_flush(struct ngd_oip_item *item)
{
    ngd_mutex_lock(&item->generation.lock);
    if (item->generation.n_waiting && ngd_call_unsent(item->infer.call) == 0)
        send_or_stop(item);
    ngd_mutex_unlock(&item->generation.lock);
}

/* ---- the course of a generation ---------------------------------------------------------------------------------- */

static void oip_token(void *user, struct ngd_seq *seq, int32_t token, uint32_t position,
                      const struct ngd_logprobs *logprobs)
{
    struct ngd_oip_item *item = user;

    (void)seq;
    (void)position;
    (void)logprobs;
    ngd_mutex_lock(&item->generation.lock);
    item->generation.waiting[item->generation.n_waiting++] = token;
    if (ngd_call_unsent(item->infer.call) == 0)
        send_or_stop(item);
    ngd_mutex_unlock(&item->generation.lock);
}

/* The last response has the tokens that are left. Without any it is empty, and is sent only to clients that asked for
 * it. */
static void oip_generated(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status,
                          const struct ngd_diag *diag)
{
    struct ngd_oip_item *item = user;

    (void)seq;
    ngd_mutex_lock(&item->generation.lock);
    if (status == NGD_OK && item->generation.lost == NGD_OK &&
        (item->generation.n_waiting || item->infer.q.params.empty_final))
        item->generation.lost = send_tokens(item, finish);
    if (item->generation.lost != NGD_OK) { /* the loss is the reason, also if the sequence was cancelled for it */
        status = item->generation.lost;
        diag = NULL;
    }
    ngd_mutex_unlock(&item->generation.lock);
    if (status == NGD_OK)
        ngd_oip_item_end(item);
    else
        ngd_oip_item_fail(item, status, diag);
}

/* The prompt is computed: the sequence goes to the session, and generates. */
static void oip_opened(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    struct ngd_oip_item *item = user;
    struct ngd_oip_generation *g = &item->generation;
    struct ngd_generate_params params;
    struct ngd_diag diag = {0};
    ngd_status_t status = r->status;

    if (status != NGD_OK) {
        ngd_oip_item_fail(item, status, r->diag);
        return;
    }
    ngd_oip_item_ref(item); /* it may be answered as soon as it generates */
    status = ngd_sequence_adopt(item->infer.call, g->session, g->object, &g->id, &diag);
    if (status == NGD_OK && atomic_load(&item->stream->over))
        status = NGD_ERR_CANCELLED;
    if (status == NGD_OK) {
        ngd_generate_params_init(&params);
        params.max_tokens = g->max_tokens;
        params.ignore_stop = item->infer.q.params.ignore_stop != 0;
        params.priority = NGD_PRIORITY_OWN;
        status = ngd_seq_generate(seq, &params, oip_token, oip_generated, item, &diag);
        if (status == NGD_OK && atomic_load(&item->stream->over)) /* the cancellation may have come too early */
            ngd_seq_cancel(seq);
    }
    if (status != NGD_OK)
        ngd_oip_item_fail(item, status, &diag);
    ngd_oip_item_unref(item);
}

void ngd_oip_generation_cancel(struct ngd_oip_item *item)
{
    if (item->generation.object && item->generation.object->seq)
        ngd_seq_cancel(item->generation.object->seq);
}

void ngd_oip_generation_end(struct ngd_oip_item *item)
{
    struct ngd_oip_generation *g = &item->generation;

    if (g->id)
        ngd_session_remove(g->session, g->id, NGD_OBJECT_SEQUENCE, NULL);
    ngd_object_unref(g->object ? &g->object->base : NULL);
    ngd_session_unref(g->session);
    ngd_mutex_fini(&g->lock);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* The prompt's dimensions: [n] or [1, n]. */
static ngd_status_t prompt_length(const ngd_oip_tensor_t *t, uint32_t *n_p, struct ngd_diag *diag)
{
    const bool ok = (t->n_shape == 1 || (t->n_shape == 2 && t->shape[0] == 1)) && t->shape[t->n_shape - 1] >= 1 &&
                    t->shape[t->n_shape - 1] <= NGD_WIRE_MOST_OPEN_PROMPT;

    if (!ok)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "input \"%s\" must have the shape [n] or [1, n], with n of 1 to %u tokens", t->name,
                            (unsigned)NGD_WIRE_MOST_OPEN_PROMPT);
    *n_p = (uint32_t)t->shape[t->n_shape - 1];
    return NGD_OK;
}

/* Finds where the tokens are: raw, or one by one. *size_p: bytes of one. */
static ngd_status_t prompt_source(const struct ngd_oip_request *q, uint32_t n, const uint8_t **data_p, int *size_p,
                                  struct ngd_diag *diag)
{
    const ngd_oip_tensor_t *t = q->m->inputs[0];
    const Inference__InferTensorContents *c = t->contents;
    const bool wide = strcmp(t->datatype, ngd_oip_datatype(NGD_I64)) == 0;

    if (!wide && strcmp(t->datatype, ngd_oip_datatype(NGD_I32)) != 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "input \"%s\" has datatype \"%.20s\"; it must be INT64 or "
                            "INT32",
                            t->name, t->datatype);
    if (c && q->n_raw)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%s\" has contents and raw contents", t->name);
    *size_p = wide ? 8 : 4;
    if (c && (wide ? c->n_int64_contents : c->n_int_contents) == n) {
        *data_p = wide ? (const uint8_t *)c->int64_contents : (const uint8_t *)c->int_contents;
        return NGD_OK;
    }
    if (!c && q->n_raw == 1 && q->raw[0].bytes == (uint64_t)n * (uint64_t)*size_p) {
        *data_p = q->raw[0].data;
        return NGD_OK;
    }
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "input \"%s\" has not the data of %u tokens of %s", t->name, n,
                        t->datatype);
}

static ngd_status_t copy_prompt(struct ngd_oip_item *item, const uint8_t *data, int size, uint32_t n,
                                int32_t **prompt_p, struct ngd_diag *diag)
{
    int32_t *prompt = ngd_arena_alloc(&item->arena, (n + 1) * sizeof(*prompt));

    if (!prompt)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t bits = ngd_le_get(data + (size_t)i * (size_t)size, size);
        const int64_t token = size == 8 ? (int64_t)bits : (int32_t)(uint32_t)bits;

        if (token < 0 || token > INT32_MAX)
            return ngd_diag_set(diag, NGD_ERR_TOKEN_RANGE, "token %u of the prompt is %" PRId64, i, token);
        prompt[i] = (int32_t)token;
    }
    *prompt_p = prompt;
    return NGD_OK;
}

static ngd_status_t read_prompt(struct ngd_oip_item *item, struct ngd_seq_params *params, struct ngd_diag *diag)
{
    const struct ngd_oip_request *q = &item->infer.q;
    struct ngd_oip_place place;
    const uint8_t *data = NULL;
    int32_t *prompt = NULL;
    int size = 0;
    ngd_status_t status;

    if (q->m->n_inputs != 1 || strcmp(q->m->inputs[0]->name, NGD_OIP_INPUT_IDS) != 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "a language model has the one input \"" NGD_OIP_INPUT_IDS "\": the tokens of the prompt");
    status = ngd_oip_place_of_input(q->m->inputs[0], &place, diag);
    if (status == NGD_OK && place.region)
        status =
            ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the tokens of a prompt are not taken from shared memory");
    if (status == NGD_OK)
        status = prompt_length(q->m->inputs[0], &params->n_prompt, diag);
    if (status == NGD_OK)
        status = prompt_source(q, params->n_prompt, &data, &size, diag);
    if (status == NGD_OK)
        status = copy_prompt(item, data, size, params->n_prompt, &prompt, diag);
    params->prompt = prompt;
    return status;
}

static ngd_status_t check_wanted(const Inference__ModelInferRequest *m, struct ngd_diag *diag)
{
    struct ngd_oip_place place;
    ngd_status_t status = NGD_OK;

    if (m->n_outputs > 1 || (m->n_outputs == 1 && strcmp(m->outputs[0]->name, NGD_OIP_OUTPUT_IDS) != 0))
        return ngd_diag_set(diag, NGD_ERR_OUTPUT_UNKNOWN,
                            "a language model has the one output \"" NGD_OIP_OUTPUT_IDS "\"");
    if (m->n_outputs == 1)
        status = ngd_oip_place_of_output(m->outputs[0], &place, diag);
    if (m->n_outputs == 1 && status == NGD_OK && place.region)
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "tokens are not put into shared memory");
    return status;
}

static void read_oip_sampling(const struct ngd_oip_params *p, struct ngd_seq_params *params)
{
    params->sampling = (struct ngd_sampling){
        .temperature = (float)p->temperature,
        .top_k = (int32_t)p->top_k,
        .top_p = (float)p->top_p,
        .seed = (uint64_t)p->seed,
        .min_p = (float)p->min_p,
        .typical_p = (float)p->typical_p,
        .repetition_penalty = (float)p->repetition_penalty,
        .presence_penalty = (float)p->presence_penalty,
        .frequency_penalty = (float)p->frequency_penalty,
        .min_tokens = (uint32_t)p->min_tokens,
    };
    params->priority = ngd_oip_priority(p->priority);
}

/* Makes room for all tokens that may come: a client may not read for a while. */
static ngd_status_t make_token_places(struct ngd_oip_item *item, struct ngd_diag *diag)
{
    struct ngd_oip_generation *g = &item->generation;
    const int64_t asked = item->infer.q.params.max_tokens ? item->infer.q.params.max_tokens : DEFAULT_MAX_TOKENS;
    struct ngd_model_stats model;
    int64_t *waiting;
    ngd_status_t status;

    ngd_model_stats(item->infer.model.model, &model);
    g->max_tokens = asked <= model.max_context ? (uint32_t)asked : model.max_context + 1;
    status = ngd_charge_grow(&item->charge, g->max_tokens * sizeof(*waiting), diag);
    if (status != NGD_OK)
        return status;
    waiting = ngd_arena_alloc(&item->arena, (g->max_tokens + 1u) * sizeof(*waiting));
    ngd_mutex_lock(&g->lock);
    g->waiting = waiting;
    ngd_mutex_unlock(&g->lock);
    return waiting ? NGD_OK : NGD_ERR_NO_MEMORY;
}

ngd_status_t ngd_oip_generate(struct ngd_oip_item *item, struct ngd_session *session, struct ngd_diag *diag)
{
    struct ngd_call *call = item->infer.call;
    struct ngd_oip_generation *g = &item->generation;
    struct ngd_seq_params params = {.owner = call->identity->key,
                                    .share = ngd_session_share(session),
                                    .usage = ngd_session_usage(session),
                                    .payer = ngd_identity_payer(call->identity, NGD_QUOTA_HOST_BYTES)};
    ngd_status_t status;

    ngd_mutex_init(&g->lock, NGD_RANK_OBJECTS);
    g->session = ngd_session_ref(session);
    item->is_generation = true;
    status = ngd_oip_request_params(&item->infer.q, true, diag);
    if (status == NGD_OK && item->infer.q.params.timeout_us)
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                              "parameter timeout: a generation has no deadline; cancel the stream instead");
    if (status == NGD_OK)
        status = check_wanted(item->infer.q.m, diag);
    if (status == NGD_OK)
        status = read_prompt(item, &params, diag);
    if (status == NGD_OK)
        status = make_token_places(item, diag);
    if (status != NGD_OK)
        return status;
    read_oip_sampling(&item->infer.q.params, &params);
    g->object = ngd_sequence_create();
    if (!g->object)
        return NGD_ERR_NO_MEMORY;
    return ngd_seq_open(item->infer.model.model, &params, oip_opened, item, &g->object->seq, diag);
}
