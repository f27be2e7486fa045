/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences.Open, Step, StepStream, Close, List. Generate is in generate.c. */
#include "daemon/handlers/sequences.h"

#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/handlers/logprobs.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/priority.h"
#include "daemon/handlers/sampling.h"
#include "daemon/handlers/sequence_trace.h"
#include "daemon/handlers/timing.h"
#include "daemon/identity.h"
#include "daemon/models.h"
#include "daemon/rpc/call_trace.h"
#include "daemon/rpc/turn.h"
#include "daemon/session.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include "scheduler/model/seq_move.h"

#include <math.h>

/* ---- the object ----------------------------------------------------------------------------------------------------
 */

/* Closes the sequence. Requests that still use it hold the object, and with it a reference on the closed sequence. */
static void close_object(struct ngd_object *object)
{
    struct ngd_sequence_object *o = ngd_container_of(object, struct ngd_sequence_object, base);

    if (o->seq && !atomic_exchange(&o->closed, true))
        ngd_seq_close(o->seq);
}

static void release_object(struct ngd_object *object)
{
    struct ngd_sequence_object *o = ngd_container_of(object, struct ngd_sequence_object, base);

    close_object(object); /* the sequence of a prompt that failed was never the session's */
    if (o->held)
        ngd_seq_unref(o->seq);
    ngd_free(o);
}

struct ngd_sequence_object *ngd_sequence_create(void)
{
    struct ngd_sequence_object *o = NGD_NEW(struct ngd_sequence_object);

    if (o) {
        o->base.kind = NGD_OBJECT_SEQUENCE;
        o->base.refs = 1;
        o->base.close = close_object;
        o->base.release = release_object;
    }
    return o;
}

ngd_status_t ngd_sequence_get(struct ngd_session *session, uint64_t id, struct ngd_sequence_object **o_p,
                              struct ngd_diag *diag)
{
    struct ngd_object *object;
    ngd_status_t status = ngd_session_get(session, id, NGD_OBJECT_SEQUENCE, &object, diag);

    if (status == NGD_OK)
        *o_p = ngd_container_of(object, struct ngd_sequence_object, base);
    return status;
}

static void put_logits(ProtobufCBinaryData *to, const struct ngd_step_result *r)
{
    if (r->logits) {
        to->data = (uint8_t *)(uintptr_t)r->logits;
        to->len = (size_t)r->vocab * sizeof(float);
    }
}

/* Fills in the timing. Returns NULL if the client did not ask for it. */
static Npugraph__V1__Timing *fill_timing(Npugraph__V1__Timing *timing, const struct ngd_step_result *r)
{
    if (!r->split)
        return NULL;
    ngd_timing_fill(timing, r->split);
    return timing;
}

/* ---- open ----------------------------------------------------------------------------------------------------------
 */

static void reply_opened(struct ngd_call *call, Npugraph__V1__OpenResponse *reply, const struct ngd_step_result *r)
{
    Npugraph__V1__Timing timing;
    struct ngd_logprob_list list;
    ngd_status_t status = ngd_logprob_list_make(r->logprobs, 1, &list);

    if (status != NGD_OK) {
        ngd_session_remove(call->session, reply->sequence, NGD_OBJECT_SEQUENCE, NULL);
        ngd_call_fail(call, status, NULL);
        return;
    }
    reply->logprobs = list.n ? list.items[0] : NULL;
    reply->timing = fill_timing(&timing, r);
    ngd_call_reply(call, &reply->base);
    ngd_logprob_list_free(&list);
}

ngd_status_t ngd_sequence_adopt(struct ngd_call *call, struct ngd_session *session, struct ngd_sequence_object *o,
                                uint64_t *id_p, struct ngd_diag *diag)
{
    ngd_status_t status;

    ngd_seq_ref(o->seq);
    o->held = true;
    ngd_object_ref(&o->base);
    status = ngd_session_add(session, &o->base, id_p, diag);
    if (status != NGD_OK) {
        ngd_object_unref(&o->base);
        return status;
    }
    if (ngd_models_may_use(call->daemon->models, call->identity, ngd_seq_model(o->seq)))
        return NGD_OK;
    ngd_session_remove(session, *id_p, NGD_OBJECT_SEQUENCE, NULL);
    return ngd_diag_set(diag, NGD_ERR_MODEL_NOT_FOUND,
                        "the model was unloaded, or is no longer shared, since the prompt was accepted");
}

static void opened(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    struct ngd_call *call = user;
    struct ngd_sequence_object *o = call->state;
    Npugraph__V1__OpenResponse reply = NPUGRAPH__V1__OPEN_RESPONSE__INIT;
    struct ngd_model_stats model;
    struct ngd_diag diag = {0};
    ngd_status_t status = r->status;

    if (call->trace)
        ngd_sequence_trace(call->trace, NGD_TRACE_PREFILL, seq, r);
    if (status != NGD_OK) {
        ngd_call_fail(call, status, r->diag);
        return;
    }
    status = ngd_sequence_adopt(call, call->session, o, &reply.sequence, &diag);
    if (status != NGD_OK) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    ngd_model_stats(ngd_seq_model(seq), &model);
    reply.model_id = (ProtobufCBinaryData){.data = model.id.b, .len = sizeof(model.id)};
    reply.token = r->token;
    reply.position = r->position;
    reply.stop = r->stop;
    reply.shared_tokens = r->shared;
    reply.prefill_ns = (uint64_t)r->device;
    put_logits(&reply.logits, r);
    reply_opened(call, &reply, r);
}

static ngd_status_t start_open(struct ngd_call *call, const Npugraph__V1__OpenRequest *q, struct ngd_diag *diag)
{
    struct ngd_seq_params params = {
        .prompt = q->prompt,
        .n_prompt = (uint32_t)q->n_prompt,
        .allowed = q->allowed.len ? q->allowed.data : NULL,
        .allowed_bytes = q->allowed.len,
        .want_logits = q->want_logits,
        .want_logprobs = q->logprobs != NULL,
        .top = q->logprobs ? q->logprobs->top : 0,
        .want_split = q->timing,
        .priority = ngd_priority_of(q->priority, NGD_PRIORITY_NORMAL),
        .owner = call->identity->key,
        .share = ngd_session_share(call->session),
        .usage = ngd_session_usage(call->session),
        .payer = ngd_identity_payer(call->identity, NGD_QUOTA_HOST_BYTES),
    };
    struct ngd_model *model;
    struct ngd_sequence_object *o;
    ngd_status_t status = ngd_sampling_of_message(&call->life, q->sampling, &params.sampling);

    if (!status)
        status = ngd_models_get(call->daemon->models, call->identity, q->model, &model, diag);
    if (status != NGD_OK)
        return status;
    o = ngd_sequence_create();
    call->state = o; /* the call's reference, given up by release() */
    ngd_trace_record_asked(call->trace);
    status = o ? ngd_seq_open(model, &params, opened, call, &o->seq, diag) : NGD_ERR_NO_MEMORY;
    ngd_model_unref(model);
    return status;
}

static void open_sequence(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__OpenRequest *q = msg;
    struct ngd_diag diag = {0};
    ngd_status_t status = q->restore ? ngd_sequence_restore(call, q, &diag) : start_open(call, q, &diag);

    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
}

static void cancel_state(struct ngd_call *call)
{
    struct ngd_sequence_object *o = call->state;

    if (o && o->seq)
        ngd_seq_cancel(o->seq);
}

static void release_state(struct ngd_call *call)
{
    struct ngd_sequence_object *o = call->state;

    call->state = NULL;
    ngd_object_unref(o ? &o->base : NULL);
}

const struct ngd_rpc_ops ngd_rpc_sequences_open = {
    .once = true, .request = open_sequence, .cancelled = cancel_state, .release = release_state};

/* ---- fork ------------------------------------------------------------------------------------------- */

static ngd_status_t start_fork(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    const Npugraph__V1__ForkRequest *q = msg;
    struct ngd_fork_params params = {.want_logits = q->want_logits,
                                     .want_logprobs = q->logprobs != NULL,
                                     .top = q->logprobs ? q->logprobs->top : 0,
                                     .want_split = q->timing};
    struct ngd_sequence_object *parent, *o = call->state;
    ngd_status_t status = ngd_sequence_get(call->session, q->sequence, &parent, diag);

    if (status != NGD_OK)
        return status;
    if (!o)
        call->state = o = ngd_sequence_create(); /* the call's reference, given up by release() */
    status = o ? ngd_sampling_of_message(&call->life, q->sampling, &params.sampling) : NGD_ERR_NO_MEMORY;
    ngd_trace_record_asked(call->trace);
    if (!status)
        status = ngd_seq_fork(parent->seq, &params, opened, call, &o->seq, diag);
    ngd_object_unref(&parent->base);
    return status;
}

static void fork_sequence(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ForkRequest *q = msg;
    struct ngd_sequence_object *parent;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_sequence_get(call->session, q->sequence, &parent, &diag);

    if (status == NGD_OK) {
        const struct ngd_turn turn = {.seq = parent->seq, .msg = msg, .begin = start_fork, .fail = ngd_call_fail};

        status = ngd_turn_take(call, &turn, &diag);
        ngd_object_unref(&parent->base);
    }
    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_sequences_fork = {
    .once = true, .request = fork_sequence, .cancelled = cancel_state, .release = release_state};

/* ---- step -----------------------------------------------------------------------------------------------------------
 */

static ngd_status_t fill_step(Npugraph__V1__StepResponse *reply, const struct ngd_step_result *r,
                              struct ngd_logprob_list *list, Npugraph__V1__Timing *timing)
{
    ngd_status_t status = ngd_logprob_list_make(r->logprobs, (size_t)r->accepted + 1, list);

    npugraph__v1__step_response__init(reply);
    reply->token = r->token;
    reply->position = r->position;
    reply->stop = r->stop;
    reply->batch = r->batch;
    reply->queue_ns = (uint64_t)r->queue;
    reply->device_ns = (uint64_t)r->device;
    reply->accepted = r->accepted;
    reply->logprobs = list->items;
    reply->n_logprobs = list->n;
    put_logits(&reply->logits, r);
    reply->timing = fill_timing(timing, r);
    return status;
}

/* How a step is answered: as a call of its own, or on a stream. */
struct step_answers {
    void (*result)(struct ngd_call *call, const ProtobufCMessage *reply);
    void (*error)(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag);
};

static void answer_step(struct ngd_call *call, const struct ngd_step_result *r, const struct step_answers *answers)
{
    struct ngd_logprob_list list;
    Npugraph__V1__StepResponse reply;
    Npugraph__V1__Timing timing;
    ngd_status_t status;

    if (r->status != NGD_OK) {
        answers->error(call, r->status, r->diag);
        return;
    }
    status = fill_step(&reply, r, &list, &timing);
    if (status == NGD_OK)
        answers->result(call, &reply.base);
    else
        answers->error(call, status, NULL);
    ngd_logprob_list_free(&list);
}

static void trace_step(struct ngd_call *call, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    if (call->trace)
        ngd_sequence_trace(call->trace, NGD_TRACE_DECODE, seq, r);
}

static void stepped(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    trace_step(user, seq, r);
    answer_step(user, r, &(struct step_answers){.result = ngd_call_reply, .error = ngd_call_fail});
}

/* Starts a step. Refuses a negative token, which would mean "the token chosen last" to the scheduler. */
static ngd_status_t start_step(struct ngd_call *call, struct ngd_seq *seq, const Npugraph__V1__StepRequest *q,
                               ngd_step_fn done, struct ngd_diag *diag)
{
    struct ngd_step_params params;
    struct ngd_step_result before = {0};
    ngd_status_t status = NGD_OK;
    bool again = false; /* the client has lost the answer to this step */

    if (q->forced && q->forced->token < 0)
        return ngd_diag_set(diag, NGD_ERR_TOKEN_RANGE, "the forced token is %d; tokens are 0 or more",
                            (int)q->forced->token);
    ngd_step_params_init(&params);
    params.forced = q->forced ? q->forced->token : -1;
    params.draft = q->draft;
    params.n_draft = q->n_draft < UINT32_MAX ? (uint32_t)q->n_draft : UINT32_MAX;
    params.append = q->append;
    params.n_append = q->n_append < UINT32_MAX ? (uint32_t)q->n_append : UINT32_MAX;
    params.allowed = q->allowed.len ? q->allowed.data : NULL;
    params.allowed_bytes = q->allowed.len;
    params.want_logits = q->want_logits;
    params.want_logprobs = q->logprobs != NULL;
    params.want_split = q->timing;
    params.top = q->logprobs ? q->logprobs->top : 0;
    params.priority = ngd_priority_of(q->priority, NGD_PRIORITY_OWN);
    ngd_trace_record_asked(call->trace);
    if (q->position)
        status = ngd_seq_look_back(seq, &params, q->position, &before, &again, diag);
    if (status == NGD_OK && again)
        done(call, seq, &before);
    return status != NGD_OK || again ? status : ngd_seq_step(seq, &params, done, call, diag);
}

static ngd_status_t begin_step(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    return start_step(call, ((struct ngd_sequence_object *)call->state)->seq, msg, stepped, diag);
}

static void step_sequence(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__StepRequest *q = msg;
    struct ngd_sequence_object *o = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_sequence_get(call->session, q->sequence, &o, &diag);

    call->state = o;
    if (status == NGD_OK) {
        const struct ngd_turn turn = {.seq = o->seq, .msg = msg, .begin = begin_step, .fail = ngd_call_fail};

        status = ngd_turn_take(call, &turn, &diag);
    }
    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_sequences_step = {
    .once = true, .request = step_sequence, .cancelled = cancel_state, .release = release_state};

/* ---- steps on a stream --------------------------------------------------------------------------- */

/* Answers a failed step on its stream. The stream keeps its reference on the sequence of the last message: most streams
 * step one sequence as long as they live. */
static void answer_step_error(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag)
{
    Npugraph__V1__StepResponse reply = NPUGRAPH__V1__STEP_RESPONSE__INIT;
    Npugraph__V1__ReplayError e = NPUGRAPH__V1__REPLAY_ERROR__INIT;

    e.code = ngd_status_grpc(status);
    e.reason = (char *)(uintptr_t)ngd_status_name(status);
    e.message = (char *)(uintptr_t)(diag && diag->text[0] ? diag->text : ngd_status_text(status));
    reply.error = &e;
    ngd_call_trace_fail(call, status, e.message);
    ngd_call_answer(call, &reply.base);
}

static void stream_stepped(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    trace_step(user, seq, r);
    answer_step(user, r, &(struct step_answers){.result = ngd_call_answer, .error = answer_step_error});
}

static ngd_status_t switch_sequence(struct ngd_call *call, uint64_t id, struct ngd_diag *diag)
{
    struct ngd_stepper *s = call->state;
    struct ngd_sequence_object *o;
    ngd_status_t status;

    if (!s) {
        s = ngd_arena_calloc(&call->life, 1, sizeof(*s));
        if (!s)
            return NGD_ERR_NO_MEMORY;
        call->state = s;
    }
    if (id == 0 && !s->object)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the first message of a step stream must name its sequence");
    /* Looks the sequence up for each message, so that a closed one is found out. */
    status = ngd_sequence_get(call->session, id ? id : s->id, &o, diag);
    if (status != NGD_OK)
        return status;
    ngd_object_unref(s->object ? &s->object->base : NULL);
    s->object = o;
    s->id = id ? id : s->id;
    return NGD_OK;
}

static ngd_status_t begin_stream_step(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    return start_step(call, ((struct ngd_stepper *)call->state)->object->seq, msg, stream_stepped, diag);
}

static void stream_step(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__StepRequest *q = msg;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    ngd_call_trace_message(call, q->trace_parent.data, q->trace_parent.len);
    status = switch_sequence(call, q->sequence, &diag);

    if (status == NGD_OK) {
        const struct ngd_turn turn = {.seq = ((struct ngd_stepper *)call->state)->object->seq,
                                      .msg = msg,
                                      .begin = begin_stream_step,
                                      .fail = answer_step_error};

        status = ngd_turn_take(call, &turn, &diag);
    }
    if (status != NGD_OK)
        answer_step_error(call, status, &diag);
}

static void stream_cancelled(struct ngd_call *call)
{
    struct ngd_stepper *s = call->state;

    if (s && s->object)
        ngd_seq_cancel(s->object->seq);
}

static void stream_release(struct ngd_call *call)
{
    struct ngd_stepper *s = call->state;

    if (s)
        ngd_object_unref(s->object ? &s->object->base : NULL);
    call->state = NULL;
}

const struct ngd_rpc_ops ngd_rpc_sequences_step_stream = {
    .request = stream_step, .refused = answer_step_error, .cancelled = stream_cancelled, .release = stream_release};

/* ---- close, list --------------------------------------------------------------------------------- */

static void close_sequence(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__CloseRequest *q = msg;
    Npugraph__V1__CloseResponse reply = NPUGRAPH__V1__CLOSE_RESPONSE__INIT;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_session_remove(call->session, q->sequence, NGD_OBJECT_SEQUENCE, &diag);

    if (status == NGD_OK)
        ngd_call_reply(call, &reply.base);
    else
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_sequences_close = {.once = true, .request = close_sequence};

struct listing {
    Npugraph__V1__ListSequencesResponse reply;
    struct ngd_call *call;
    struct ngd_session *session;
    size_t room;
};

static void list_sequence(void *ctx, uint64_t id, struct ngd_object *object)
{
    struct listing *l = ctx;
    Npugraph__V1__SequenceInfo *info;
    struct ngd_model_stats model;
    struct ngd_seq_info seq;
    struct ngd_seq *s;

    if (object->kind != NGD_OBJECT_SEQUENCE || l->reply.n_sequences == l->room)
        return;
    info = ngd_arena_calloc(&l->call->life, 1, sizeof(*info));
    if (!info)
        return;
    s = ngd_container_of(object, struct ngd_sequence_object, base)->seq;
    npugraph__v1__sequence_info__init(info);
    ngd_seq_info(s, &seq);
    ngd_model_stats(ngd_seq_model(s), &model);
    info->sequence = l->session == l->call->session ? id : 0;
    info->session = info->sequence || l->call->identity->admin ? ngd_session_id(l->session) : 0;
    info->model = ngd_arena_strdup(&l->call->life, model.name);
    info->position = seq.position;
    info->blocks = seq.blocks;
    info->shared_tokens = seq.shared;
    info->state = ngd_word_value(&npugraph__v1__sequence_state__descriptor, seq.state);
    info->tokens = seq.tokens;
    if (info->model)
        l->reply.sequences[l->reply.n_sequences++] = info;
}

static void list_session(void *ctx, struct ngd_session *session)
{
    struct listing *l = ctx;

    if (!ngd_may_manage(l->call->identity, ngd_session_identity(session)))
        return;
    l->session = session;
    ngd_session_for_each(session, list_sequence, l);
}

static void list_sequences(struct ngd_call *call, const void *msg)
{
    struct listing l = {.reply = NPUGRAPH__V1__LIST_SEQUENCES_RESPONSE__INIT, .call = call};

    (void)msg;
    l.room = (size_t)ngd_models_sequences(call->daemon->models) + 64; /* some may open while we list */
    l.reply.sequences = ngd_arena_calloc(&call->life, l.room, sizeof(*l.reply.sequences));
    if (!l.reply.sequences) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    ngd_sessions_for_each(call->daemon->sessions, list_session, &l);
    ngd_call_reply(call, &l.reply.base);
}

const struct ngd_rpc_ops ngd_rpc_sequences_list = {.request = list_sequences};
