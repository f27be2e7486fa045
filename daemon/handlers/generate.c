/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences.Generate. A worker makes tokens, and each is sent at once. While a message is being sent, the next tokens
 * are collected and sent together. max_tokens bounds what is collected.
 */
#include "base/lock.h"
#include "daemon/daemon.h"
#include "daemon/handlers/logprobs.h"
#include "daemon/handlers/methods.h"
#include "daemon/handlers/priority.h"
#include "daemon/handlers/sequence_trace.h"
#include "daemon/handlers/sequences.h"
#include "daemon/handlers/timing.h"
#include "daemon/rpc/call_trace.h"
#include "daemon/rpc/turn.h"
#include "daemon/session.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#define LOGPROBS_ROOM 64 /* entries that are collected at most; then they are sent even while another message is */

struct generation {
    struct ngd_call *call;
    struct ngd_sequence_object *object; /* a reference */
    uint32_t room;                      /* most tokens that may come */
    struct ngd_mutex lock;
    int32_t *waiting NGD_GUARDED_BY(lock); /* has room for all tokens that may come */
    uint32_t n_waiting NGD_GUARDED_BY(lock);
    uint32_t position NGD_GUARDED_BY(lock);
    struct ngd_logprobs *logprobs NGD_GUARDED_BY(lock); /* of the last tokens; NULL: not wanted */
    uint32_t n_logprobs NGD_GUARDED_BY(lock);
    bool timed NGD_GUARDED_BY(lock);        /* the client wants the timing */
    ngd_status_t lost NGD_GUARDED_BY(lock); /* not OK: tokens could not be sent, and none is sent after them */
    struct ngd_split so_far NGD_GUARDED_BY(lock);
    /* Used by the thread that calls back. */
    struct ngd_split split;
    struct ngd_trace_record *trace; /* taken from the call; NULL: it is not traced */
    ngd_nsec_t first, last;         /* of a traced one: when its first and its last token came */
    uint32_t tokens;
};

static ngd_status_t try_send(struct generation *g, Npugraph__V1__FinishReason finish) NGD_REQUIRES(g->lock)
{
    Npugraph__V1__GenerateResponse m = NPUGRAPH__V1__GENERATE_RESPONSE__INIT;
    struct ngd_logprob_list list;
    Npugraph__V1__Timing timing;
    ngd_status_t status = ngd_logprob_list_make(g->logprobs, g->n_logprobs, &list);

    if (status != NGD_OK)
        return status;
    m.logprobs = list.items;
    m.n_logprobs = list.n;
    m.tokens = g->waiting;
    m.n_tokens = g->n_waiting;
    m.position = g->position;
    m.finish = finish;
    ngd_timing_fill(&timing, &g->so_far);
    m.timing = g->timed ? &timing : NULL;
    status = ngd_call_send(g->call, &m.base);
    ngd_logprob_list_free(&list);
    return status;
}

/* Sends the collected tokens. If they cannot be sent, the generation ends with an error: a shorter text must not look
 * like a complete one. True: they are lost, and the caller cancels it without the lock, since it may be answered at
 * once. */
static bool send_waiting(struct generation *g, Npugraph__V1__FinishReason finish) NGD_REQUIRES(g->lock)
{
    if (g->lost == NGD_OK)
        g->lost = try_send(g, finish);
    g->n_waiting = g->n_logprobs = 0;
    return g->lost != NGD_OK;
}

static void note_token_time(struct generation *g)
{
    g->last = ngd_now();
    if (g->tokens++ == 0)
        g->first = g->last;
}

static void on_token(void *user, struct ngd_seq *seq, int32_t token, uint32_t position,
                     const struct ngd_logprobs *logprobs)
{
    struct generation *g = user;
    bool lost = false;

    if (g->trace)
        note_token_time(g);
    ngd_mutex_lock(&g->lock);
    g->waiting[g->n_waiting++] = token;
    g->position = position;
    g->so_far = g->split;
    if (logprobs && g->logprobs)
        g->logprobs[g->n_logprobs++] = *logprobs;
    if (ngd_call_unsent(g->call) == 0 || g->n_logprobs == LOGPROBS_ROOM)
        lost = send_waiting(g, NGD_PB(FINISH_REASON, UNSPECIFIED));
    ngd_mutex_unlock(&g->lock);
    if (lost)
        ngd_seq_cancel_of(seq, g);
}

static void sent(struct ngd_call *call)
{
    struct generation *g = call->state;
    bool lost = false;

    if (!g)
        return;
    ngd_mutex_lock(&g->lock);
    if (g->n_waiting && ngd_call_unsent(call) == 0)
        lost = send_waiting(g, NGD_PB(FINISH_REASON, UNSPECIFIED));
    ngd_mutex_unlock(&g->lock);
    if (lost)
        ngd_seq_cancel_of(g->object->seq, g);
}

static void done(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status, const struct ngd_diag *diag)
{
    struct generation *g = user;
    struct ngd_call *call = g->call;

    ngd_mutex_lock(&g->lock);
    g->so_far = g->split;
    if (status == NGD_OK)
        (void)send_waiting(g, ngd_word_value(&npugraph__v1__finish_reason__descriptor, finish));
    if (g->lost != NGD_OK) { /* the loss is the reason, also if the sequence was cancelled for it */
        status = g->lost;
        diag = NULL;
    }
    ngd_mutex_unlock(&g->lock);
    if (g->trace) {
        ngd_generation_trace(g->trace, seq, g->first, g->last, g->tokens, &g->split);
        ngd_call_trace_end(call, g->trace, ngd_now(), status,
                           diag && diag->text[0] ? diag->text : ngd_status_text(status));
    }
    if (status == NGD_OK)
        ngd_call_finish(call);
    else
        ngd_call_fail(call, status, diag);
}

/* Allocates room for what may be collected. */
static ngd_status_t make_token_room(struct generation *g, uint32_t tokens, bool logprobs, bool timed)
{
    int32_t *waiting = ngd_arena_calloc(&g->call->life, tokens + 1u, sizeof(*waiting));
    struct ngd_logprobs *lp = logprobs ? ngd_arena_calloc(&g->call->life, LOGPROBS_ROOM, sizeof(*lp)) : NULL;

    if (!waiting || (logprobs && !lp))
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_lock(&g->lock);
    g->waiting = waiting;
    g->logprobs = lp;
    g->timed = timed;
    ngd_mutex_unlock(&g->lock);
    return NGD_OK;
}

static void read_params(const Npugraph__V1__GenerateRequest *q, uint32_t room, struct ngd_generate_params *params)
{
    ngd_generate_params_init(params);
    params->max_tokens = room < q->max_tokens ? room : q->max_tokens;
    params->ignore_stop = q->ignore_stop;
    params->stop_tokens = q->stop_tokens;
    params->n_stop_tokens = q->n_stop_tokens < UINT32_MAX ? (uint32_t)q->n_stop_tokens : UINT32_MAX;
    params->want_logprobs = q->logprobs != NULL;
    params->top = q->logprobs ? q->logprobs->top : 0;
    params->priority = ngd_priority_of(q->priority, NGD_PRIORITY_OWN);
    params->from = q->from;
}

static ngd_status_t begin_generation(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    struct generation *g = call->state;
    struct ngd_generate_params params;
    ngd_status_t status;

    read_params(msg, g->room, &params);
    params.split = &g->split;
    g->trace = ngd_call_trace_take(call);
    ngd_trace_record_asked(g->trace);
    status = ngd_seq_generate(g->object->seq, &params, on_token, done, g, diag);
    if (status != NGD_OK)
        call->trace = g->trace; /* no callback was or will be called */
    return status;
}

static ngd_status_t start_generation(struct ngd_call *call, const Npugraph__V1__GenerateRequest *q,
                                     struct ngd_diag *diag)
{
    struct generation *g = ngd_arena_calloc(&call->life, 1, sizeof(*g));
    struct ngd_model_stats model;
    struct ngd_turn turn;
    ngd_status_t status;

    if (!g)
        return NGD_ERR_NO_MEMORY;
    if (q->max_tokens == 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "max_tokens must be 1 or more");
    status = ngd_sequence_get(call->session, q->sequence, &g->object, diag);
    if (status != NGD_OK)
        return status;
    g->call = call;
    ngd_mutex_init(&g->lock, NGD_RANK_OBJECTS);
    call->state = g;
    ngd_model_stats(ngd_seq_model(g->object->seq), &model);
    g->room = q->max_tokens < model.max_context
                  ? q->max_tokens
                  : model.max_context + 1; /* the last token chosen needs no place in the context */
    status = make_token_room(g, g->room, q->logprobs != NULL, q->timing);
    turn = (struct ngd_turn){.seq = g->object->seq, .msg = q, .begin = begin_generation, .fail = ngd_call_fail};
    return status ? status : ngd_turn_take(call, &turn, diag);
}

static void start_generate_call(struct ngd_call *call, const void *msg)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = start_generation(call, msg, &diag);

    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
}

static void cancel_generation(struct ngd_call *call)
{
    struct generation *g = call->state;

    if (g)
        ngd_seq_cancel(g->object->seq);
}

static void release_generation(struct ngd_call *call)
{
    struct generation *g = call->state;

    if (!g)
        return;
    call->state = NULL;
    ngd_object_unref(&g->object->base);
    ngd_mutex_fini(&g->lock);
}

const struct ngd_rpc_ops ngd_rpc_sequences_generate = {.resumable = true,
                                                       .request = start_generate_call,
                                                       .sent = sent,
                                                       .cancelled = cancel_generation,
                                                       .release = release_generation};
