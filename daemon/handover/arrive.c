/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handover/arrive.h"
#include "base/le.h"
#include "base/log.h"
#include "daemon/answers.h"
#include "daemon/daemon.h"
#include "daemon/graph_names.h"
#include "daemon/handlers/logprobs.h"
#include "daemon/handlers/sampling.h"
#include "daemon/handlers/sequences.h"
#include "daemon/handover/restore_int.h"
#include "daemon/identity.h"
#include "daemon/models.h"
#include "daemon/reactor.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/session_move.h"
#include "daemon/shares.h"
#include "proto/npugraph.pb-c.h"
#include "scheduler/model/seq_move.h"
#include <inttypes.h>
#include <string.h>

typedef Npugraph__Handover__V1__Session handed_session;
typedef Npugraph__Handover__V1__Sequence handed_sequence;

/* How long a session waits for a client that the other daemon still serves, and for one that asks late. */
#define PATIENCE_MORE (10 * NGD_SEC)

/* A session on its way. */
struct arriving {
    struct restored r;
    const handed_session *s;
    struct ngd_session *session; /* a reference */
};

/* ---- buffers, graphs ------------------------------------------------------------------------------------- */

static ngd_status_t put_arrived_buffers(struct restoring *w, struct arriving *a)
{
    ngd_status_t status = NGD_OK;

    if (a->s->n_buffer_ids > a->r.n || a->s->n_read_only != a->s->n_buffer_ids)
        return ngd_restore_malformed(w, "a session with ids for other buffers");
    for (size_t i = 0; i < a->s->n_buffer_ids && status == NGD_OK; i++) {
        struct ngd_buffer_object *o = ngd_buffer_object_create(ngd_buffer_ref(a->r.buffers[i]));

        if (!o)
            return NGD_ERR_NO_MEMORY;
        o->read_only = a->s->read_only[i];
        status = ngd_session_put(a->session, &o->base, a->s->buffer_ids[i], w->diag);
        if (status != NGD_OK)
            ngd_object_unref(&o->base);
    }
    return status;
}

static ngd_status_t put_arrived_graph(struct restoring *w, struct arriving *a, size_t i)
{
    struct ngd_binding *binding;
    struct ngd_graph_object *o;
    ngd_status_t status = ngd_restore_graph(w, &a->r, a->s->graphs[i], &binding);

    if (status != NGD_OK)
        return status;
    o = ngd_graph_object_create(binding);
    if (!o)
        return NGD_ERR_NO_MEMORY;
    ngd_graph_names_add(w->daemon->graph_names, a->session, o); /* before the session may drop it */
    status = ngd_session_put(a->session, &o->base, a->s->graph_ids[i], w->diag);
    if (status != NGD_OK) {
        ngd_graph_names_remove(o);
        ngd_object_unref(&o->base);
    }
    return status;
}

static ngd_status_t put_arrived_graphs(struct restoring *w, struct arriving *a)
{
    ngd_status_t status = NGD_OK;

    if (a->s->n_graphs != a->s->n_graph_ids)
        return ngd_restore_malformed(w, "a session with ids for other graphs");
    for (size_t i = 0; i < a->s->n_graphs && status == NGD_OK; i++)
        status = put_arrived_graph(w, a, i);
    return status;
}

/* ---- sequences ------------------------------------------------------------------------------------------- */

/* Reads numbers of 32 bits; NULL: no memory. */
static uint32_t *read_words(struct arriving *a, const ProtobufCBinaryData *from)
{
    uint32_t *words = ngd_arena_calloc(&a->r.arena, from->len / 4 + 1, sizeof(*words));

    for (size_t i = 0; words && i < from->len / 4; i++)
        words[i] = (uint32_t)ngd_le_get(from->data + 4 * i, 4);
    return words;
}

static ngd_status_t read_tables(struct restoring *w, struct arriving *a, const handed_sequence *q,
                                struct ngd_seq_image *image)
{
    const uint32_t *words = read_words(a, &q->tables);

    if (!words)
        return NGD_ERR_NO_MEMORY;
    if (q->tables.len % 8 != 0 || q->tables.len / 8 > NGD_KV_GROUPS_MAX)
        return ngd_restore_malformed(w, "a sequence with too many tables");
    image->n_tables = (uint32_t)(q->tables.len / 8);
    image->kv_bytes = image->n_tables ? q->kv_bytes : 0;
    for (uint32_t g = 0; g < image->n_tables; g++) {
        image->tables[g].first = words[2 * g];
        image->tables[g].n = words[2 * g + 1];
    }
    return NGD_OK;
}

static ngd_status_t read_logprobs(struct restoring *w, struct arriving *a, const handed_sequence *q,
                                  struct ngd_seq_image *image)
{
    struct ngd_logprobs *lp = ngd_arena_calloc(&a->r.arena, 1, sizeof(*lp));
    const void *message;
    ngd_status_t status = lp ? ngd_wire_unpack(&npugraph__v1__logprobs__descriptor, q->logprobs.data, q->logprobs.len,
                                               &a->r.arena, &message, w->diag)
                             : NGD_ERR_NO_MEMORY;

    if (status != NGD_OK)
        return status;
    ngd_logprobs_of_message(message, lp);
    image->logprobs = lp;
    return NGD_OK;
}

static ngd_status_t read_sequence(struct restoring *w, struct arriving *a, const handed_sequence *q,
                                  struct ngd_seq_image *image)
{
    const void *sampling;
    ngd_status_t status = q->tokens.len % 4 != 0 || q->tokens.len / 4 > UINT32_MAX
                              ? ngd_restore_malformed(w, "a sequence with half a token")
                              : ngd_wire_unpack(&npugraph__v1__sampling__descriptor, q->sampling.data, q->sampling.len,
                                                &a->r.arena, &sampling, w->diag);

    if (status != NGD_OK)
        return status;
    *image = (struct ngd_seq_image){.tokens = (const int32_t *)read_words(a, &q->tokens),
                                    .fill = (uint32_t)(q->tokens.len / 4),
                                    .n_prompt = q->n_prompt,
                                    .n_given = q->n_given,
                                    .position = q->position,
                                    .shared = q->shared,
                                    .chosen = (int32_t)q->chosen,
                                    .delivered = q->delivered,
                                    .draws = q->draws,
                                    .allowed = q->allowed.len ? q->allowed.data : NULL,
                                    .allowed_bytes = q->allowed.len,
                                    .ways = q->ways.len ? q->ways.data : NULL,
                                    .ways_bytes = q->ways.len,
                                    .uncomputed = q->uncomputed,
                                    .part = q->part,
                                    .priority = (ngd_priority_t)q->priority};
    status = image->tokens ? ngd_sampling_of_message(&a->r.arena, sampling, &image->sampling) : NGD_ERR_NO_MEMORY;
    if (status == NGD_OK)
        status = read_tables(w, a, q, image);
    return status == NGD_OK && q->logprobs.len ? read_logprobs(w, a, q, image) : status;
}

static ngd_status_t put_seq(struct restoring *w, struct arriving *a, const handed_sequence *q, struct ngd_seq *seq)
{
    struct ngd_sequence_object *o = ngd_sequence_create();
    ngd_status_t status;

    if (!o) {
        ngd_seq_close(seq);
        return NGD_ERR_NO_MEMORY;
    }
    o->seq = ngd_seq_ref(seq);
    o->held = true;
    status = ngd_session_put(a->session, &o->base, q->id, w->diag);
    if (status != NGD_OK)
        ngd_object_unref(&o->base);
    return status;
}

static ngd_status_t put_sequence(struct restoring *w, struct arriving *a, const handed_sequence *q)
{
    const struct ngd_seq_owner owner = {.key = a->r.owner->key,
                                        .share = ngd_session_share(a->session),
                                        .usage = ngd_session_usage(a->session),
                                        .payer = ngd_identity_payer(a->r.owner, NGD_QUOTA_HOST_BYTES)};
    struct ngd_seq_image image;
    const uint8_t *kv = NULL;
    struct ngd_model *model;
    struct ngd_seq *seq;
    ngd_status_t status = read_sequence(w, a, q, &image);

    if (status == NGD_OK && image.kv_bytes && (!q->kv || !(kv = ngd_restore_upload(w, q->kv, image.kv_bytes))))
        status = ngd_restore_malformed(w, "a sequence outside its uploads");
    if (status == NGD_OK)
        status = ngd_models_get(w->daemon->models, a->r.owner, q->model, &model, w->diag);
    if (status != NGD_OK)
        return status;
    status = ngd_seq_import(model, &image, kv, &owner, &seq, w->diag);
    ngd_model_unref(model);
    return status == NGD_OK ? put_seq(w, a, q, seq) : status;
}

/* ---- sessions -------------------------------------------------------------------------------------------- */

static ngd_status_t make_arriving(struct restoring *w, struct arriving *a)
{
    const handed_session *s = a->s;
    struct ngd_session_image image = {.id = s->id,
                                      .client_name = s->client_name,
                                      .peer = s->peer,
                                      .grace_ms = s->grace_ms,
                                      .has_bearer = s->has_bearer,
                                      .ids = {.generation = s->generation, .slots = s->slots}};

    if (s->token.len != sizeof(image.token) || !*s->identity || strlen(s->identity) >= NGD_IDENTITY_MAX)
        return ngd_restore_malformed(w, "a session without a token or an identity");
    memcpy(image.token, s->token.data, sizeof(image.token));
    a->r.owner = ngd_identity_get(w->daemon->identities, s->identity);
    if (!a->r.owner || ngd_shares_open(w->daemon, a->r.owner, &a->r.share) != NGD_OK)
        return NGD_ERR_NO_MEMORY;
    return ngd_session_arrive(w->daemon->sessions, a->r.owner, &image,
                              2 * ngd_config_get(w->daemon->options.drain_grace) + PATIENCE_MORE, &a->session, w->diag);
}

/* Keeps an answer, so that a repetition of its call is not served again. */
static ngd_status_t put_answer_kept(struct restoring *w, struct arriving *a, const Npugraph__Handover__V1__Answer *m)
{
    const struct ngd_answer_kept kept = {.method = ngd_rpc_server_method(w->daemon->rpc, m->method),
                                         .request_id = m->request_id,
                                         .fingerprint = m->fingerprint,
                                         .data = m->kept ? (m->data.len ? m->data.data : (const uint8_t *)"") : NULL,
                                         .n = m->data.len};

    if (!kept.method || strlen(m->request_id) > NGD_REQUEST_ID_MAX)
        return ngd_restore_malformed(w, "an answer of an unknown method");
    return ngd_answers_restore(ngd_session_answers(a->session), &kept);
}

static ngd_status_t fill_arriving(struct restoring *w, struct arriving *a)
{
    ngd_status_t status = ngd_restore_buffers(w, &a->r);

    if (status == NGD_OK)
        status = put_arrived_buffers(w, a);
    if (status == NGD_OK)
        status = put_arrived_graphs(w, a);
    for (size_t i = 0; i < a->s->n_sequences && status == NGD_OK; i++)
        status = put_sequence(w, a, a->s->sequences[i]);
    for (size_t i = 0; i < a->s->n_answers && status == NGD_OK; i++)
        status = put_answer_kept(w, a, a->s->answers[i]);
    return status;
}

static bool arrive_session(struct restoring *w, const handed_session *s)
{
    struct arriving a = {.s = s, .r = {.list = s->buffers, .n = s->n_buffers}};
    struct ngd_diag diag = {0};
    ngd_status_t status;

    w->diag = &diag;
    ngd_arena_init(&a.r.arena, 16 << 10);
    status = make_arriving(w, &a);
    if (status == NGD_OK) {
        status = fill_arriving(w, &a);
        if (status != NGD_OK)
            ngd_session_discard(a.session);
    }
    if (status != NGD_OK)
        ngd_warning("handover", "session %" PRIu64 " cannot be taken: %s", s->id,
                    diag.text[0] ? diag.text : ngd_status_text(status));
    ngd_session_unref(a.session);
    ngd_restored_fini(&a.r);
    return status == NGD_OK;
}

void ngd_arrive(struct ngd_daemon *d, const struct ngd_handed *handed, uint64_t *taken, size_t most, size_t *n_p)
{
    const Npugraph__Handover__V1__Departure *all;
    struct ngd_diag diag = {0};
    struct restoring w;
    const void *message;
    ngd_status_t status =
        ngd_restoring_init(&w, d, &npugraph__handover__v1__departure__descriptor, handed, &message, &diag);

    *n_p = 0;
    all = status == NGD_OK ? message : NULL;
    for (size_t i = 0; all && i < all->n_sessions && *n_p < most && !ngd_reactor_stop_asked(); i++)
        if (arrive_session(&w, all->sessions[i]))
            taken[(*n_p)++] = all->sessions[i]->id;
    if (!all)
        ngd_warning("handover", "no session can be taken: %s", diag.text[0] ? diag.text : ngd_status_text(status));
    else
        ngd_notice("handover", "%zu of %zu sessions have moved here", *n_p, all->n_sessions);
    ngd_restoring_fini(&w);
}
