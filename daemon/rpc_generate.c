/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences.Generate: tokens come from a worker and go out at once; while a message is being sent, those that follow
 * are collected and go out together. What is collected is bounded by max_tokens.
 */
#include "base/lock.h"
#include "daemon/daemon.h"
#include "daemon/rpc_methods.h"
#include "daemon/rpc_sequences.h"
#include "daemon/session.h"
#include "proto/npugraph.pb-c.h"

struct generation {
    struct ngd_call *call;
    struct ngd_sequence_object *object; /* a reference */
    struct ngd_mutex lock;
    int32_t *waiting NGD_GUARDED_BY(lock); /* room for all that may come */
    uint32_t n_waiting NGD_GUARDED_BY(lock);
    uint32_t position NGD_GUARDED_BY(lock);
};

static void send_waiting(struct generation *g, const char *finish) NGD_REQUIRES(g->lock)
{
    Npugraph__V1__GenerateResponse m = NPUGRAPH__V1__GENERATE_RESPONSE__INIT;

    m.tokens = g->waiting;
    m.n_tokens = g->n_waiting;
    m.position = g->position;
    m.finish = (char *)(uintptr_t)finish;
    ngd_call_send(g->call, &m.base); /* a client that is gone is told to us by cancelled() */
    g->n_waiting = 0;
}

static void on_token(void *user, struct ngd_seq *seq, int32_t token, uint32_t position)
{
    struct generation *g = user;

    (void)seq;
    ngd_mutex_lock(&g->lock);
    g->waiting[g->n_waiting++] = token;
    g->position = position;
    if (ngd_call_unsent(g->call) == 0)
        send_waiting(g, "");
    ngd_mutex_unlock(&g->lock);
}

static void sent(struct ngd_call *call)
{
    struct generation *g = call->state;

    if (!g)
        return;
    ngd_mutex_lock(&g->lock);
    if (g->n_waiting && ngd_call_unsent(call) == 0)
        send_waiting(g, "");
    ngd_mutex_unlock(&g->lock);
}

static void done(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status, const struct ngd_diag *diag)
{
    struct generation *g = user;
    struct ngd_call *call = g->call;

    (void)seq;
    if (status != NGD_OK) {
        ngd_call_fail(call, status, diag);
        return;
    }
    ngd_mutex_lock(&g->lock);
    send_waiting(g, finish);
    ngd_mutex_unlock(&g->lock);
    ngd_call_finish(call);
}

static ngd_status_t start(struct ngd_call *call, const Npugraph__V1__GenerateRequest *q, struct ngd_diag *diag)
{
    struct generation *g = ngd_arena_calloc(&call->life, 1, sizeof(*g));
    struct ngd_model_stats model;
    int32_t *waiting;
    uint32_t room;
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
    room = q->max_tokens < model.max_context
               ? q->max_tokens
               : model.max_context + 1; /* the last token chosen needs no place in the context */
    waiting = ngd_arena_calloc(&call->life, room + 1u, sizeof(*waiting));
    if (!waiting)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_lock(&g->lock);
    g->waiting = waiting;
    ngd_mutex_unlock(&g->lock);
    return ngd_seq_generate(g->object->seq, room < q->max_tokens ? room : q->max_tokens, q->ignore_stop, on_token, done,
                            g, diag);
}

static void request(struct ngd_call *call, const void *msg)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = start(call, msg, &diag);

    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
}

static void cancelled(struct ngd_call *call)
{
    struct generation *g = call->state;

    if (g)
        ngd_seq_cancel(g->object->seq);
}

static void release(struct ngd_call *call)
{
    struct generation *g = call->state;

    if (!g)
        return;
    call->state = NULL;
    ngd_object_unref(&g->object->base);
    ngd_mutex_fini(&g->lock);
}

const struct ngd_rpc_ops ngd_rpc_sequences_generate = {
    .request = request, .sent = sent, .cancelled = cancelled, .release = release};
