/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to a language model: a sequence is opened with the prompt, generates, and is closed. Tokens are sent as
 * they are chosen. While a message is being sent, the next tokens are collected and sent together, as by
 * Sequences.Generate. The answer of ModelInfer has all of them.
 *
 * A request of a sequence of requests leaves the sequence open (oip_sequences.h). The next one appends its tokens
 * behind those that were generated.
 */
#include "base/le.h"
#include "daemon/daemon.h"
#include "daemon/handlers/oip_stream.h"
#include "daemon/handlers/sequence_trace.h"
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

static void put_output_ids(struct response *r, const int64_t *tokens, uint32_t n)
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

/* Fills a response with tokens. finish: why it is the last one; NULL: it is not. */
static void fill_response(const struct ngd_oip_item *item, const int64_t *tokens, uint32_t n, const char *finish,
                          char version[NGD_OIP_VERSION_MAX], struct response *r)
{
    inference__model_stream_infer_response__init(&r->base);
    inference__model_infer_response__init(&r->infer);
    r->base.infer_response = &r->infer;
    ngd_oip_version(&item->infer.model, version);
    r->infer.model_name = item->infer.q.m->model_name;
    r->infer.model_version = version;
    r->infer.id = item->infer.q.m->id;
    put_finish(r, finish);
    if (n)
        put_output_ids(r, tokens, n);
}

/* Sends the tokens that wait. */
static ngd_status_t send_tokens(struct ngd_oip_item *item, const char *finish) NGD_REQUIRES(item->generation.lock)
{
    struct ngd_oip_generation *g = &item->generation;
    char version[NGD_OIP_VERSION_MAX];
    struct response r;

    fill_response(item, g->waiting, g->n_waiting, finish, version, &r);
    g->n_waiting = 0;
    return ngd_call_send(item->infer.call, &r.base.base);
}

/* Answers ModelInfer with all tokens. */
static void reply_tokens(struct ngd_oip_item *item, const char *finish)
{
    struct ngd_oip_generation *g = &item->generation;
    char version[NGD_OIP_VERSION_MAX];
    const int64_t *tokens;
    struct response r;
    uint32_t n;

    ngd_mutex_lock(&g->lock);
    tokens = g->waiting;
    n = g->n_waiting;
    ngd_mutex_unlock(&g->lock);
    fill_response(item, tokens, n, finish, version, &r);
    ngd_call_reply(item->infer.call, &r.infer.base);
}

/* If tokens are lost, the generation ends with an error: a shorter text must not look like a complete one. True: they
 * are, and the caller cancels it without the lock, since it may be answered at once. */
static bool send_or_lose(struct ngd_oip_item *item) NGD_REQUIRES(item->generation.lock)
{
    struct ngd_oip_generation *g = &item->generation;

    if (g->lost == NGD_OK)
        g->lost = send_tokens(item, NULL);
    g->n_waiting = 0;
    return g->lost != NGD_OK;
}

void ngd_oip_generation_flush(struct ngd_oip_item *item)
{
    bool lost = false;

    ngd_mutex_lock(&item->generation.lock);
    if (item->generation.n_waiting && ngd_call_unsent(item->infer.call) == 0)
        lost = send_or_lose(item);
    ngd_mutex_unlock(&item->generation.lock);
    if (lost)
        ngd_oip_generation_cancel(item);
}

/* ---- its deadline ------------------------------------------------------------------------------------------------ */

static struct ngd_oip_item *item_of_timeout(struct ngd_timeout *timeout)
{
    return ngd_container_of(timeout, struct ngd_oip_item, generation.timeout);
}

static void hold_late_item(struct ngd_timeout *timeout)
{
    ngd_oip_item_ref(item_of_timeout(timeout));
}

static void give_up_item(struct ngd_timeout *timeout)
{
    struct ngd_oip_item *item = item_of_timeout(timeout);

    atomic_store(&item->generation.late, true);
    ngd_oip_generation_cancel(item);
    ngd_oip_item_unref(item);
}

/* Starts the time of a generation that has work. */
static void start_timeout(struct ngd_oip_item *item)
{
    if (item->generation.timeout.at != NGD_NSEC_NEVER)
        ngd_timeouts_add(&item->infer.call->daemon->timeouts, &item->generation.timeout);
}

/* Tells the end of its time from a cancellation. */
static ngd_status_t reason_of_end(const struct ngd_oip_item *item, ngd_status_t status, struct ngd_diag *diag)
{
    if (status != NGD_ERR_CANCELLED || !atomic_load(&item->generation.late))
        return status;
    return ngd_diag_set(diag, NGD_ERR_DEADLINE_EXCEEDED,
                        "the generation was not complete after its timeout of %" PRId64 " us",
                        item->infer.q.params.timeout_us);
}

/* ---- its sequence ------------------------------------------------------------------------------------------------ */

void ngd_oip_generation_rest(struct ngd_oip_item *item, bool failed)
{
    struct ngd_oip_generation *g = &item->generation;
    /* A request that was refused leaves a sequence that others have begun as it was. */
    const bool ends = failed ? g->began || item->infer.q.params.sequence_start : item->infer.q.params.sequence_end;

    if (!g->kept || g->rested)
        return;
    g->rested = true;
    if (ends)
        ngd_oip_sequence_end(g->kept);
    ngd_oip_sequence_rest(g->kept);
}

/* Gives the sequence to the session: for this request, or for those that follow. */
static ngd_status_t adopt_sequence(struct ngd_oip_item *item, struct ngd_diag *diag)
{
    struct ngd_oip_generation *g = &item->generation;
    ngd_status_t status = ngd_sequence_adopt(item->infer.call, g->session, g->object, &g->id, diag);

    if (status == NGD_OK && g->kept) {
        g->kept->object = ngd_object_ref(&g->object->base);
        g->kept->object_id = g->id;
        g->id = 0;
    }
    return status;
}

/* Takes the sequence that the request goes on with. */
static ngd_status_t resume_sequence(struct ngd_oip_item *item, const struct ngd_oip_sequence_name *name,
                                    struct ngd_diag *diag)
{
    struct ngd_oip_generation *g = &item->generation;
    const struct ngd_oip_params *p = &item->infer.q.params;
    ngd_status_t status = ngd_oip_sequence_find(item->infer.call->daemon->oip_sequences, name, &g->kept, diag);

    if (status != NGD_OK)
        return status;
    if (g->kept->language_model != item->infer.model.model || !g->kept->object) {
        ngd_oip_sequence_end(g->kept);
        return ngd_diag_set(diag, NGD_ERR_MODEL_NOT_FOUND,
                            "the model that the sequence began with was unloaded; begin the sequence again");
    }
    if (p->of_opening)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "parameter %s is for the request with sequence_start: it counts for the whole sequence",
                            p->of_opening);
    g->object = ngd_container_of(ngd_object_ref(g->kept->object), struct ngd_sequence_object, base);
    return NGD_OK;
}

/* Finds the session of the request's sequence: that of a sequence of requests, or the stream's. */
static ngd_status_t find_generation_session(struct ngd_oip_item *item, struct ngd_diag *diag)
{
    struct ngd_oip_generation *g = &item->generation;
    const struct ngd_oip_params *p = &item->infer.q.params;
    struct ngd_call *call = item->infer.call;
    struct ngd_oip_sequence_name name;
    struct ngd_session *session = NULL;
    ngd_status_t status;

    if (!p->sequence[0]) {
        status = ngd_oip_stream_session(item->stream, &session, diag);
    } else {
        status = ngd_oip_infer_sequence(&item->infer, &name, diag);
        if (status == NGD_OK && p->sequence_start)
            status = ngd_oip_sequence_of_model(call->daemon->oip_sequences, &name, item->infer.model.model,
                                               call->daemon->sessions, call->bearer, call->peer, &g->kept, diag);
        else if (status == NGD_OK)
            status = resume_sequence(item, &name, diag);
        session = status == NGD_OK ? g->kept->session : NULL;
    }
    if (session)
        g->session = ngd_session_ref(session);
    return status;
}

/* ---- the course of a generation ---------------------------------------------------------------------------------- */

static void note_token(struct ngd_oip_item *item, struct ngd_seq *seq, int32_t token)
{
    struct ngd_oip_generation *g = &item->generation;

    if (g->kept)
        g->kept->last = token;
    if (!item->infer.trace && g->timeout.at == NGD_NSEC_NEVER)
        return;
    g->last = ngd_now();
    if (g->last >= g->timeout.at) {
        atomic_store(&g->late, true);
        ngd_seq_cancel(seq);
    }
    if (g->tokens++ == 0)
        g->first = g->last;
}

static void oip_token(void *user, struct ngd_seq *seq, int32_t token, uint32_t position,
                      const struct ngd_logprobs *logprobs)
{
    struct ngd_oip_item *item = user;
    bool lost = false;

    (void)position;
    (void)logprobs;
    note_token(item, seq, token);
    ngd_mutex_lock(&item->generation.lock);
    item->generation.waiting[item->generation.n_waiting++] = token;
    if (!item->stream->once && ngd_call_unsent(item->infer.call) == 0)
        lost = send_or_lose(item);
    ngd_mutex_unlock(&item->generation.lock);
    if (lost)
        ngd_oip_generation_cancel(item);
}

/* The last response of a stream has the tokens that are left. Without any it is empty, and is sent only to clients that
 * asked for it. */
static ngd_status_t send_last(struct ngd_oip_item *item, const char *finish)
{
    ngd_status_t lost;

    ngd_mutex_lock(&item->generation.lock);
    if (item->generation.lost == NGD_OK && (item->generation.n_waiting || item->infer.q.params.empty_final))
        item->generation.lost = send_tokens(item, finish);
    lost = item->generation.lost;
    ngd_mutex_unlock(&item->generation.lock);
    return lost;
}

/* The tokens that were lost are the reason, also if the sequence was cancelled for it. */
static ngd_status_t lost_tokens(struct ngd_oip_generation *g)
{
    ngd_status_t lost;

    ngd_mutex_lock(&g->lock);
    lost = g->lost;
    ngd_mutex_unlock(&g->lock);
    return lost;
}

static void oip_generated(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status,
                          const struct ngd_diag *diag)
{
    struct ngd_oip_item *item = user;
    struct ngd_oip_generation *g = &item->generation;
    ngd_status_t lost = lost_tokens(g);
    struct ngd_diag why = {0};

    if (item->infer.trace)
        ngd_generation_trace(item->infer.trace, seq, g->first, g->last, g->tokens, &g->split);
    if (lost == NGD_OK && status == NGD_OK) {
        ngd_oip_generation_rest(item, false); /* before the answer: the client may send the next request at once */
        if (item->stream->once)
            reply_tokens(item, finish);
        else
            lost = send_last(item, finish);
        if (lost != NGD_OK && g->kept)
            ngd_oip_sequence_end(g->kept);
    }
    if (lost != NGD_OK) {
        status = lost;
        diag = NULL;
    }
    if (reason_of_end(item, status, &why) != status) {
        status = why.status;
        diag = &why;
    }
    if (status == NGD_OK)
        ngd_oip_item_done(item);
    else
        ngd_oip_item_fail(item, status, diag);
}

/* The sequence's context is complete: it generates. */
static ngd_status_t generate_oip_tokens(struct ngd_oip_item *item, struct ngd_seq *seq, struct ngd_diag *diag)
{
    struct ngd_generate_params params;
    ngd_status_t status;

    ngd_generate_params_init(&params);
    params.max_tokens = item->generation.max_tokens;
    params.ignore_stop = item->infer.q.params.ignore_stop != 0;
    params.priority = NGD_PRIORITY_OWN;
    params.split = item->infer.trace ? &item->generation.split : NULL;
    ngd_trace_record_asked(item->infer.trace);
    status = ngd_seq_generate(seq, &params, oip_token, oip_generated, item, diag);
    if (status == NGD_OK && (atomic_load(&item->stream->over) || atomic_load(&item->generation.late)))
        ngd_seq_cancel_of(seq, item); /* the cancellation may have come too early */
    return status;
}

/* The prompt, or what was appended, is computed. */
static void oip_prompted(struct ngd_oip_item *item, struct ngd_seq *seq, const struct ngd_step_result *r, bool opened)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = r->status;

    if (item->infer.trace)
        ngd_sequence_trace(item->infer.trace, NGD_TRACE_PREFILL, seq, r);
    if (status != NGD_OK) {
        status = reason_of_end(item, status, &diag);
        ngd_oip_item_fail(item, status, status == r->status ? r->diag : &diag);
        return;
    }
    ngd_oip_item_ref(item); /* it may be answered as soon as it generates */
    if (opened)
        status = adopt_sequence(item, &diag);
    if (status == NGD_OK && (atomic_load(&item->stream->over) || atomic_load(&item->generation.late)))
        status = reason_of_end(item, NGD_ERR_CANCELLED, &diag);
    if (status == NGD_OK)
        status = generate_oip_tokens(item, seq, &diag);
    if (status != NGD_OK)
        ngd_oip_item_fail(item, status, &diag);
    ngd_oip_item_unref(item);
}

static void oip_opened(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    oip_prompted(user, seq, r, true);
}

static void oip_appended(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    oip_prompted(user, seq, r, false);
}

/* The next request of the sequence may be under way before this one has left its stream: that one goes on. */
void ngd_oip_generation_cancel(struct ngd_oip_item *item)
{
    if (item->generation.object && item->generation.object->seq)
        ngd_seq_cancel_of(item->generation.object->seq, item);
}

void ngd_oip_generation_end(struct ngd_oip_item *item)
{
    struct ngd_oip_generation *g = &item->generation;

    if (g->id)
        ngd_session_remove(g->session, g->id, NGD_OBJECT_SEQUENCE, NULL);
    ngd_object_unref(g->object ? &g->object->base : NULL);
    ngd_session_unref(g->session);
    ngd_oip_sequence_unref(g->kept);
    ngd_mutex_fini(&g->lock);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* The prompt's dimensions: [n] or [1, n]. A request that goes on with a sequence may have no tokens of its own. */
static ngd_status_t prompt_length(const ngd_oip_tensor_t *t, int64_t least, uint32_t *n_p, struct ngd_diag *diag)
{
    const bool ok = (t->n_shape == 1 || (t->n_shape == 2 && t->shape[0] == 1)) && t->shape[t->n_shape - 1] >= least &&
                    t->shape[t->n_shape - 1] <= NGD_WIRE_MOST_OPEN_PROMPT;

    if (!ok)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "input \"%s\" must have the shape [n] or [1, n], with n of %d to %u tokens", t->name,
                            (int)least, (unsigned)NGD_WIRE_MOST_OPEN_PROMPT);
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

/* The daemon has no tokenizer (decision 0053). Inputs of text are those that Triton's backends for language models
 * have. */
static ngd_status_t refuse_text(const Inference__ModelInferRequest *m, struct ngd_diag *diag)
{
    for (size_t i = 0; i < m->n_inputs; i++)
        if (strcmp(m->inputs[i]->datatype, "BYTES") == 0)
            return ngd_diag_set(
                diag, NGD_ERR_UNIMPLEMENTED,
                "input \"%.100s\" is text, and the daemon has no tokenizer: send the prompt's tokens as "
                "\"" NGD_OIP_INPUT_IDS "\", or ask npugraph-server, which takes text over HTTP",
                m->inputs[i]->name);
    return NGD_OK;
}

static ngd_status_t read_prompt(struct ngd_oip_item *item, struct ngd_seq_params *params, struct ngd_diag *diag)
{
    const struct ngd_oip_request *q = &item->infer.q;
    const int64_t least = q->params.sequence[0] && !q->params.sequence_start ? 0 : 1;
    struct ngd_oip_place place;
    const uint8_t *data = NULL;
    int32_t *prompt = NULL;
    int size = 0;
    ngd_status_t status = refuse_text(q->m, diag);

    if (status != NGD_OK)
        return status;
    if (q->m->n_inputs != 1 || strcmp(q->m->inputs[0]->name, NGD_OIP_INPUT_IDS) != 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "a language model has the one input \"" NGD_OIP_INPUT_IDS "\": the tokens of the prompt");
    status = ngd_oip_place_of_input(q->m->inputs[0], &place, diag);
    if (status == NGD_OK && place.region)
        status =
            ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the tokens of a prompt are not taken from shared memory");
    if (status == NGD_OK)
        status = prompt_length(q->m->inputs[0], least, &params->n_prompt, diag);
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

/* Opens the sequence with its prompt. */
static ngd_status_t open_generation(struct ngd_oip_item *item, struct ngd_seq_params *params, struct ngd_diag *diag)
{
    struct ngd_oip_generation *g = &item->generation;
    struct ngd_call *call = item->infer.call;

    params->owner = call->identity->key;
    params->share = ngd_session_share(g->session);
    params->usage = ngd_session_usage(g->session);
    params->payer = ngd_identity_payer(call->identity, NGD_QUOTA_HOST_BYTES);
    read_oip_sampling(&item->infer.q.params, params);
    g->object = ngd_sequence_create();
    if (!g->object)
        return NGD_ERR_NO_MEMORY;
    if (g->kept && !item->infer.q.params.sequence_end)
        ngd_oip_sequence_keep(g->kept);
    ngd_trace_record_asked(item->infer.trace);
    return ngd_seq_open(item->infer.model.model, params, oip_opened, item, &g->object->seq, diag);
}

/* Appends the tokens of the request behind the last one that was sent, which is not in the context yet. */
static ngd_status_t append_prompt(struct ngd_oip_item *item, const struct ngd_seq_params *given, struct ngd_diag *diag)
{
    const int32_t last = item->generation.kept->last;
    const uint32_t before = last >= 0;
    int32_t *tokens = ngd_arena_alloc(&item->arena, (given->n_prompt + 1u) * sizeof(*tokens));
    struct ngd_step_params params;

    if (!tokens)
        return NGD_ERR_NO_MEMORY;
    tokens[0] = last;
    memcpy(tokens + before, given->prompt, given->n_prompt * sizeof(*tokens));
    ngd_step_params_init(&params);
    params.append = tokens;
    params.n_append = given->n_prompt + before;
    params.priority = ngd_oip_priority(item->infer.q.params.priority);
    ngd_trace_record_asked(item->infer.trace);
    return ngd_seq_step(item->generation.object->seq, &params, oip_appended, item, diag);
}

/* Goes on with a sequence. */
static ngd_status_t continue_generation(struct ngd_oip_item *item, const struct ngd_seq_params *given,
                                        struct ngd_diag *diag)
{
    struct ngd_oip_generation *g = &item->generation;
    ngd_status_t status;

    g->began = true;
    status = given->n_prompt ? append_prompt(item, given, diag) : generate_oip_tokens(item, g->object->seq, diag);
    if (status != NGD_OK)
        g->began = false; /* no callback was or will be called */
    return status;
}

ngd_status_t ngd_oip_generate(struct ngd_oip_item *item, struct ngd_diag *diag)
{
    struct ngd_oip_generation *g = &item->generation;
    struct ngd_seq_params params = {0};
    ngd_status_t status;

    ngd_mutex_init(&g->lock, NGD_RANK_OBJECTS);
    ngd_list_init(&g->timeout.link);
    g->timeout.hold = hold_late_item;
    g->timeout.fire = give_up_item;
    item->is_generation = true;
    status = ngd_oip_request_params(&item->infer.q, true, diag);
    g->timeout.at = ngd_oip_deadline(&item->infer.q.params, item->infer.arrived, NGD_NSEC_NEVER);
    if (status == NGD_OK)
        status = check_wanted(item->infer.q.m, diag);
    if (status == NGD_OK)
        status = read_prompt(item, &params, diag);
    if (status == NGD_OK)
        status = make_token_places(item, diag);
    if (status == NGD_OK)
        status = find_generation_session(item, diag);
    if (status != NGD_OK)
        return status;
    ngd_oip_item_ref(item); /* its callbacks may end it */
    status = g->object ? continue_generation(item, &params, diag) : open_generation(item, &params, diag);
    if (status == NGD_OK)
        start_timeout(item);
    ngd_oip_item_unref(item);
    return status;
}
