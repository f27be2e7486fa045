/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences.Embed. Each prompt is a sequence that is opened for its hidden state, and closed with it. Enough of them
 * are open at a time to fill replays; when one ends, the next is opened. So a call with many prompts takes no more KV
 * blocks and host memory than that, and waits for its own blocks where a single prompt would be refused.
 *
 * Threads: the receiving thread opens the first sequences, and workers, whose callbacks these are, the next ones. One
 * thread at a time opens (`opening`); another one that comes meanwhile has it look again.
 */
#include "base/lock.h"
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/priority.h"
#include "daemon/identity.h"
#include "daemon/models.h"
#include "daemon/rpc/rpc_call.h"
#include "daemon/session.h"
#include "proto/npugraph.pb-c.h"

#include <math.h>
#include <string.h>

#define MESSAGE_ROOM 64 /* bytes of an answer beside its embeddings */

typedef Npugraph__V1__EmbedRequest embed_request;

struct embedding;

/* A sequence that is open. */
struct embed_slot {
    struct embedding *e;
    uint32_t prompt;     /* its number */
    bool taken, ended;   /* ended: before the thread that opened it came back */
    ngd_nsec_t asked;    /* when it was given to the scheduler */
    struct ngd_seq *seq; /* the opener's reference; NULL: it has not come back, or the sequence was closed */
};

struct embedding {
    struct ngd_call *call;
    const embed_request *q;
    struct ngd_model *model; /* a reference */
    uint32_t width;          /* elements of each embedding */
    bool unit;
    struct ngd_charge charge; /* of `out` */
    float *out;
    struct ngd_mutex lock;
    struct embed_slot *slots;
    uint32_t n_slots;
    uint32_t next NGD_GUARDED_BY(lock);    /* the first prompt that was not opened yet */
    uint32_t running NGD_GUARDED_BY(lock); /* slots that are taken */
    bool opening NGD_GUARDED_BY(lock), again NGD_GUARDED_BY(lock);
    bool stopped NGD_GUARDED_BY(lock); /* opens no more */
    ngd_status_t status NGD_GUARDED_BY(lock);
    struct ngd_diag diag NGD_GUARDED_BY(lock);
    uint64_t shared NGD_GUARDED_BY(lock);
    uint32_t batch NGD_GUARDED_BY(lock);
    struct ngd_trace_record *trace NGD_GUARDED_BY(lock); /* NULL: the call is not traced */
};

/* ---- the end -------------------------------------------------------------------------------------------- */

/* Cancels what is open. Call without the lock: a sequence that waits is answered at once, by this thread. */
static void cancel_open_prompts(struct embedding *e)
{
    for (uint32_t i = 0; i < e->n_slots; i++) {
        struct ngd_seq *seq;

        ngd_mutex_lock(&e->lock);
        seq = e->slots[i].seq ? ngd_seq_ref(e->slots[i].seq) : NULL;
        ngd_mutex_unlock(&e->lock);
        if (seq) {
            ngd_seq_cancel(seq);
            ngd_seq_unref(seq);
        }
    }
}

/* Notes why the call fails. True for the first reason, which counts: the caller cancels what is open. Those that are
 * cancelled fail too, and do not cancel in turn, which would take a stack as deep as there are prompts. */
static bool fail_embedding_locked(struct embedding *e, ngd_status_t status, const struct ngd_diag *diag)
    NGD_REQUIRES(e->lock)
{
    const bool first = e->status == NGD_OK;

    if (first) {
        e->status = status;
        e->diag = diag ? *diag : (struct ngd_diag){0};
    }
    e->stopped = true;
    return first;
}

static ngd_status_t no_model_any_more(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_MODEL_NOT_FOUND,
                        "the model was unloaded, or is no longer shared, since the prompts were accepted");
}

/* Adds the spans of a prompt, as long as there is room for them. */
static void trace_prompt_locked(struct embedding *e, const struct embed_slot *slot, const struct ngd_step_result *r)
    NGD_REQUIRES(e->lock)
{
    if (!e->trace || r->status != NGD_OK)
        return;
    ngd_trace_record_part(e->trace, NGD_TRACE_QUEUE, NGD_TRACE_TOP, slot->asked, slot->asked + r->queue);
    ngd_trace_record_part(e->trace, NGD_TRACE_PREFILL, NGD_TRACE_TOP, slot->asked + r->queue, ngd_now());
}

static void trace_answer_locked(struct embedding *e) NGD_REQUIRES(e->lock)
{
    struct ngd_model_stats model;

    if (!e->trace)
        return;
    ngd_model_stats(e->model, &model);
    ngd_trace_record_name(e->trace, "npugraph.model", model.name);
    ngd_trace_record_number(e->trace, "npugraph.prompts", (int64_t)e->q->n_prompts);
    ngd_trace_record_number(e->trace, "npugraph.sequences", e->batch);
    ngd_trace_record_number(e->trace, "npugraph.shared_tokens", (int64_t)e->shared);
}

/* Answers the call. Nothing is open any more, and nobody else uses *e. */
static void answer_embedding(struct embedding *e)
{
    Npugraph__V1__EmbedResponse reply = NPUGRAPH__V1__EMBED_RESPONSE__INIT;
    struct ngd_call *call = e->call;
    struct ngd_diag diag;
    ngd_status_t status;

    ngd_mutex_lock(&e->lock);
    status = e->status;
    diag = e->diag;
    reply.shared_tokens = e->shared;
    reply.batch = e->batch;
    trace_answer_locked(e);
    ngd_mutex_unlock(&e->lock);
    if (status == NGD_OK && !ngd_models_may_use(call->daemon->models, call->identity, e->model))
        status = no_model_any_more(&diag);
    if (status != NGD_OK) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    reply.size = e->width;
    reply.embeddings.data = (uint8_t *)e->out;
    reply.embeddings.len = e->q->n_prompts * (size_t)e->width * sizeof(float);
    ngd_call_reply(call, &reply.base);
}

/* ---- prompts ------------------------------------------------------------------------------------------------ */

static void open_prompts(struct embedding *e, struct embed_slot *ended);

static void put_embedding(const struct embedding *e, uint32_t prompt, const float *hidden)
{
    float *out = e->out + (size_t)prompt * e->width;
    double squares = 0;

    for (uint32_t i = 0; i < e->width && e->unit; i++)
        squares += (double)hidden[i] * hidden[i];
    for (uint32_t i = 0; i < e->width; i++)
        out[i] = squares > 0 ? (float)(hidden[i] / sqrt(squares)) : hidden[i];
}

static void embedded(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    struct embed_slot *slot = user;
    struct embedding *e = slot->e;
    struct ngd_seq *mine;
    bool cancel;

    (void)seq;
    if (r->status == NGD_OK)
        put_embedding(e, slot->prompt, r->hidden);
    ngd_mutex_lock(&e->lock);
    cancel = r->status != NGD_OK && fail_embedding_locked(e, r->status, r->diag);
    e->shared += r->shared;
    trace_prompt_locked(e, slot, r);
    e->batch = r->batch > e->batch ? r->batch : e->batch;
    mine = slot->seq;
    slot->seq = NULL;
    slot->ended = true;
    ngd_mutex_unlock(&e->lock);
    if (mine)
        ngd_seq_close(mine);
    if (cancel)
        cancel_open_prompts(e);
    open_prompts(e, slot);
}

static ngd_status_t open_embed_prompt(struct embed_slot *slot, struct ngd_seq **seq_p, struct ngd_diag *diag)
{
    const struct embedding *e = slot->e;
    struct ngd_call *call = e->call;
    const Npugraph__V1__EmbedPrompt *prompt = e->q->prompts[slot->prompt];
    const struct ngd_seq_params params = {
        .prompt = prompt->tokens,
        .n_prompt = (uint32_t)prompt->n_tokens,
        .embed = true,
        .priority = ngd_priority_of(e->q->priority, NGD_PRIORITY_NORMAL),
        .owner = call->identity->key,
        .share = ngd_session_share(call->session),
        .usage = ngd_session_usage(call->session),
        .payer = ngd_identity_payer(call->identity, NGD_QUOTA_HOST_BYTES),
    };
    ngd_status_t status = NGD_OK;

    if (!ngd_models_may_use(call->daemon->models, call->identity, e->model))
        return no_model_any_more(diag);
    status = ngd_seq_open(e->model, &params, embedded, slot, seq_p, diag);
    if (status != NGD_OK && e->q->n_prompts > 1)
        ngd_diag_prefix(diag, "prompt %u: ", (unsigned)slot->prompt);
    return status;
}

/* True if the prompt may find room when one that is open ends. */
static bool may_wait(ngd_status_t status)
{
    return status == NGD_ERR_KV_EXHAUSTED || status == NGD_ERR_QUOTA || status == NGD_ERR_RESOURCE_EXHAUSTED ||
           status == NGD_ERR_NO_MEMORY;
}

static struct embed_slot *take_slot_locked(struct embedding *e) NGD_REQUIRES(e->lock)
{
    struct embed_slot *slot = e->slots;

    if (e->stopped || e->next == e->q->n_prompts || e->running == e->n_slots)
        return NULL;
    while (slot->taken)
        slot++;
    *slot = (struct embed_slot){.e = e, .prompt = e->next, .taken = true, .asked = e->trace ? ngd_now() : 0};
    e->running++;
    return slot;
}

static void give_slot_locked(struct embedding *e, struct embed_slot *slot) NGD_REQUIRES(e->lock)
{
    slot->taken = false;
    e->running--;
}

/* Opens the sequence of a slot. Returns false if no more should be opened now. */
static bool open_slot(struct embedding *e, struct embed_slot *slot)
{
    struct ngd_seq *seq = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = open_embed_prompt(slot, &seq, &diag);
    bool stopped, ended = false;

    ngd_mutex_lock(&e->lock);
    if (status == NGD_OK) {
        e->next++;
        ended = slot->ended;
        slot->seq = ended ? NULL : seq;
    } else {
        give_slot_locked(e, slot);
        /* If another one ended since the prompt found no room, it is tried again. */
        if (!may_wait(status) || (e->running == 0 && !e->again))
            (void)fail_embedding_locked(e, status, &diag);
    }
    stopped = e->stopped;
    ngd_mutex_unlock(&e->lock);
    if (ended)
        ngd_seq_close(seq);
    if (stopped)
        cancel_open_prompts(e);
    return status == NGD_OK;
}

/* Opens prompts while there are slots and room, and answers when all have ended. ended: a slot that becomes free; NULL:
 * none. Another thread may answer as soon as the lock is released, unless this one opens. */
static void open_prompts(struct embedding *e, struct embed_slot *ended)
{
    struct embed_slot *slot;
    bool over;

    ngd_mutex_lock(&e->lock);
    if (ended)
        give_slot_locked(e, ended);
    if (e->opening) {
        e->again = true;
        ngd_mutex_unlock(&e->lock);
        return;
    }
    e->opening = true;
    do {
        bool more = true;

        e->again = false;
        while (more && (slot = take_slot_locked(e))) {
            ngd_mutex_unlock(&e->lock);
            more = open_slot(e, slot);
            ngd_mutex_lock(&e->lock);
        }
    } while (e->again);
    e->opening = false;
    over = e->running == 0;
    ngd_mutex_unlock(&e->lock);
    if (over)
        answer_embedding(e);
}

/* ---- the call ----------------------------------------------------------------------------------------------- */

/* Checks the request's sizes against the model, before anything is allocated. */
static ngd_status_t check_embed_sizes(const struct embedding *e, const struct ngd_model_stats *model,
                                      struct ngd_diag *diag)
{
    const embed_request *q = e->q;
    const uint64_t most = e->call->daemon->options.max_message - MESSAGE_ROOM;

    if (model->hidden_size == 0)
        return ngd_diag_set(diag, NGD_ERR_NO_EMBEDDINGS,
                            "model \"%.64s\" returns no hidden states: its contract has no hidden_output", model->name);
    if (q->n_prompts == 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "there is no prompt; give at least one");
    if (q->dimensions > model->hidden_size)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "dimensions is %u; embeddings of model \"%.64s\" have %u elements", (unsigned)q->dimensions,
                            model->name, (unsigned)model->hidden_size);
    if (q->n_prompts * (uint64_t)e->width * sizeof(float) > most)
        return ngd_diag_set(
            diag, NGD_ERR_MESSAGE_TOO_LARGE,
            "%zu embeddings of %u elements exceed max-message, %llu bytes; send at most %llu prompts in "
            "a call",
            q->n_prompts, (unsigned)e->width, (unsigned long long)e->call->daemon->options.max_message,
            (unsigned long long)(most / (e->width * sizeof(float))));
    return NGD_OK;
}

/* Allocates the answer, and slots for twice the prompts of a replay: while one runs, the next can be filled. */
static ngd_status_t make_embed_room(struct embedding *e, const struct ngd_model_stats *model, struct ngd_diag *diag)
{
    const uint32_t n = (uint32_t)e->q->n_prompts;
    const uint64_t bytes = n * (uint64_t)e->width * sizeof(float), slots = 2 * (uint64_t)model->prefill_seqs;
    ngd_status_t status =
        ngd_charge_begin(&e->charge, ngd_identity_payer(e->call->identity, NGD_QUOTA_HOST_BYTES), bytes, diag);

    if (status != NGD_OK)
        return status;
    e->n_slots = slots < n ? (uint32_t)slots : n;
    e->slots = ngd_arena_calloc(&e->call->life, e->n_slots, sizeof(*e->slots));
    e->out = ngd_malloc(bytes);
    return e->slots && e->out ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static ngd_status_t start_embedding(struct ngd_call *call, const embed_request *q, struct embedding **e_p,
                                    struct ngd_diag *diag)
{
    struct embedding *e = ngd_arena_calloc(&call->life, 1, sizeof(*e));
    struct ngd_model_stats model;
    ngd_status_t status;

    if (!e)
        return NGD_ERR_NO_MEMORY;
    status = ngd_models_get(call->daemon->models, call->identity, q->model, &e->model, diag);
    if (status != NGD_OK)
        return status;
    e->call = call;
    e->q = q;
    ngd_mutex_init(&e->lock, NGD_RANK_OBJECTS);
    ngd_mutex_lock(&e->lock);
    e->trace = call->trace;
    ngd_mutex_unlock(&e->lock);
    call->state = e;
    ngd_model_stats(e->model, &model);
    e->width = q->dimensions ? q->dimensions : model.hidden_size;
    e->unit = q->unit || model.unit_embeddings;
    status = check_embed_sizes(e, &model, diag);
    if (status == NGD_OK)
        status = make_embed_room(e, &model, diag);
    *e_p = e;
    return status;
}

static void embed_prompts(struct ngd_call *call, const void *msg)
{
    struct embedding *e = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = start_embedding(call, msg, &e, &diag);

    if (status == NGD_OK)
        open_prompts(e, NULL);
    else
        ngd_call_fail(call, status, &diag);
}

static void cancel_embedding(struct ngd_call *call)
{
    struct embedding *e = call->state;
    bool cancel;

    if (!e)
        return;
    ngd_mutex_lock(&e->lock);
    cancel = fail_embedding_locked(e, NGD_ERR_CANCELLED, NULL);
    ngd_mutex_unlock(&e->lock);
    if (cancel)
        cancel_open_prompts(e);
}

static void release_embedding(struct ngd_call *call)
{
    struct embedding *e = call->state;

    if (!e)
        return;
    call->state = NULL;
    ngd_model_unref(e->model);
    ngd_free(e->out);
    ngd_charge_end(&e->charge);
    ngd_mutex_fini(&e->lock);
}

const struct ngd_rpc_ops ngd_rpc_sequences_embed = {
    .request = embed_prompts, .cancelled = cancel_embedding, .release = release_embedding};
