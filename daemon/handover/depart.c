/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handover/depart.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/answers.h"
#include "daemon/daemon.h"
#include "daemon/handlers/logprobs.h"
#include "daemon/handlers/sampling.h"
#include "daemon/handlers/sequences.h"
#include "daemon/handover/describe_int.h"
#include "daemon/identity.h"
#include "daemon/models.h"
#include "daemon/rpc/rpc_method.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/session_move.h"
#include "scheduler/model/seq_move.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef Npugraph__Handover__V1__Session handed_session;
typedef Npugraph__Handover__V1__Sequence handed_sequence;

#define LOOK_EACH NGD_MSEC

/* The sessions on their way. */
struct leaving {
    struct describing w;
    struct ngd_model_kept *kept;
    size_t n_kept;
    ngd_nsec_t until;
    struct ngd_pause *pause;
};

/* A session that is being described: its objects, with references. */
struct luggage {
    struct ngd_session *session;
    handed_session *s;
    struct described buffers;
    uint64_t *ids;
    struct ngd_object **objects;
    size_t n, room;
};

/* ---- objects --------------------------------------------------------------------------------------------- */

static void list_object(void *ctx, uint64_t id, struct ngd_object *object)
{
    struct luggage *l = ctx;

    if (l->n < l->room) {
        l->ids[l->n] = id;
        l->objects[l->n] = ngd_object_ref(object);
    }
    l->n++;
}

/* Lists the objects of a quiet session, whose number does not change. */
static ngd_status_t list_objects(struct describing *w, struct luggage *l)
{
    ngd_session_for_each(l->session, list_object, l);
    l->room = l->n;
    l->n = 0;
    l->ids = ngd_arena_calloc(&w->arena, l->room + 1, sizeof(*l->ids));
    l->objects = ngd_arena_calloc(&w->arena, l->room + 1, sizeof(*l->objects));
    if (!l->ids || !l->objects)
        return NGD_ERR_NO_MEMORY;
    ngd_session_for_each(l->session, list_object, l);
    return l->n == l->room ? NGD_OK : NGD_ERR_BUSY;
}

/* A client may have given the memory to a model that outlives it. Both would have a copy of their own then. */
static bool has_kept_buffer(const struct leaving *all, const struct ngd_buffer *buffer)
{
    for (size_t i = 0; i < all->n_kept; i++) {
        struct ngd_binding *bindings[2];

        ngd_model_bindings(all->kept[i].model, &bindings[0], &bindings[1]);
        for (int b = 0; b < 2; b++)
            for (uint32_t k = 0; k < ngd_count_bound(bindings[b]); k++) {
                const struct ngd_buffer *bound = ngd_binding_buffer(bindings[b], k);

                if (bound && ngd_buffer_same(bound, buffer))
                    return true;
            }
    }
    return false;
}

static ngd_status_t pack_buffer_object(struct leaving *all, struct luggage *l, size_t i)
{
    const struct ngd_buffer_object *o = ngd_container_of(l->objects[i], struct ngd_buffer_object, base);
    handed_session *s = l->s;
    uint32_t number;
    ngd_status_t status;

    if (!o->read_only && has_kept_buffer(all, o->buffer))
        return ngd_diag_set(all->w.diag, NGD_ERR_UNIMPLEMENTED,
                            "a model that outlives the session has one of its buffers");
    status = ngd_describe_buffer(&all->w, &l->buffers, o->buffer, false, &number);
    if (status != NGD_OK)
        return status;
    if (number != s->n_buffer_ids + 1)
        return ngd_diag_set(all->w.diag, NGD_ERR_UNIMPLEMENTED, "two of its buffers are the same memory");
    s->read_only[s->n_read_only++] = o->read_only;
    s->buffer_ids[s->n_buffer_ids++] = l->ids[i];
    return NGD_OK;
}

static ngd_status_t pack_graph_object(struct leaving *all, struct luggage *l, size_t i)
{
    struct ngd_graph_object *o = ngd_container_of(l->objects[i], struct ngd_graph_object, base);
    struct ngd_binding *binding = ngd_graph_object_binding(o);
    ngd_status_t status = ngd_binding_group(binding)
                              ? ngd_diag_set(all->w.diag, NGD_ERR_UNIMPLEMENTED, "a graph of it runs on a group")
                              : ngd_describe_graph(&all->w, &l->buffers, binding, false, &l->s->graphs[l->s->n_graphs]);

    ngd_binding_unref(binding);
    if (status != NGD_OK)
        return status;
    l->s->n_graphs++;
    l->s->graph_ids[l->s->n_graph_ids++] = l->ids[i];
    return NGD_OK;
}

/* ---- sequences ------------------------------------------------------------------------------------------- */

static ngd_status_t put_kv(void *ctx, const void *data, uint64_t n, struct ngd_diag *diag)
{
    (void)diag;
    return ngd_describe_upload(ctx, data, n);
}

/* Exports a sequence. One whose generation was just ended may need the rest of a step. */
static ngd_status_t export_seq(struct leaving *all, struct ngd_seq *seq, struct ngd_seq_image *image)
{
    const uint64_t before = all->w.upload_bytes;
    ngd_status_t status;

    for (;;) {
        status = ngd_seq_export(seq, image, put_kv, &all->w, all->w.diag);
        if (status != NGD_ERR_SEQUENCE_BUSY || ngd_now() >= all->until)
            return status;
        all->w.upload_bytes = before;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EACH}, NULL);
    }
}

/* Returns OWNER/NAME of a model that outlives its session; NULL: it does not, or no memory. */
static char *name_model(struct leaving *all, const struct ngd_model *model)
{
    struct ngd_model_stats stats;
    char name[NGD_IDENTITY_MAX + NGD_MODEL_NAME_MAX + 2];

    for (size_t i = 0; i < all->n_kept; i++)
        if (all->kept[i].model == model) {
            ngd_model_stats(all->kept[i].model, &stats);
            snprintf(name, sizeof(name), "%s/%s", all->kept[i].owner, stats.name);
            return ngd_arena_strdup(&all->w.arena, name);
        }
    return NULL;
}

static bool pack_words(struct ngd_arena *arena, const uint32_t *words, size_t n, ProtobufCBinaryData *to)
{
    to->len = n * sizeof(*words);
    to->data = ngd_arena_calloc(arena, n + 1, sizeof(*words));
    for (size_t i = 0; to->data && i < 4 * n; i++)
        to->data[i] = (uint8_t)(words[i / 4] >> i % 4 * 8);
    return to->data != NULL;
}

static bool pack_sub(struct ngd_arena *arena, const ProtobufCMessage *message, ProtobufCBinaryData *to)
{
    const size_t n = protobuf_c_message_get_packed_size(message);

    to->len = n;
    to->data = ngd_arena_calloc(arena, n + 1, 1);
    if (to->data)
        protobuf_c_message_pack(message, to->data);
    return to->data != NULL;
}

static bool pack_logprobs(struct ngd_arena *arena, const struct ngd_logprobs *lp, ProtobufCBinaryData *to)
{
    struct ngd_logprob_list list;
    bool ok = ngd_logprob_list_make(lp, 1, &list) == NGD_OK;

    if (ok && list.n)
        ok = pack_sub(arena, &list.items[0]->base, to);
    ngd_logprob_list_free(&list);
    return ok;
}

static bool pack_seq_parts(struct ngd_arena *arena, const struct ngd_seq_image *image, handed_sequence *q)
{
    Npugraph__V1__Sampling sampling;
    uint32_t tables[2 * NGD_KV_GROUPS_MAX];

    for (uint32_t g = 0; g < image->n_tables; g++) {
        tables[2 * g] = image->tables[g].first;
        tables[2 * g + 1] = image->tables[g].n;
    }
    if (image->allowed) {
        q->allowed.len = (size_t)image->allowed_bytes;
        q->allowed.data = (uint8_t *)(uintptr_t)image->allowed;
    }
    q->ways.len = (size_t)image->ways_bytes;
    q->ways.data = (uint8_t *)(uintptr_t)image->ways;
    q->uncomputed = image->uncomputed;
    q->part = image->part;
    return pack_words(arena, (const uint32_t *)image->tokens, image->fill, &q->tokens) &&
           pack_words(arena, tables, 2 * (size_t)image->n_tables, &q->tables) &&
           ngd_sampling_to_message(arena, &image->sampling, &sampling) &&
           pack_sub(arena, &sampling.base, &q->sampling) &&
           (!image->logprobs || pack_logprobs(arena, image->logprobs, &q->logprobs));
}

static ngd_status_t pack_sequence_object(struct leaving *all, struct luggage *l, size_t i)
{
    const struct ngd_sequence_object *o = ngd_container_of(l->objects[i], struct ngd_sequence_object, base);
    handed_sequence *q = ngd_arena_calloc(&all->w.arena, 1, sizeof(*q));
    Npugraph__Handover__V1__Upload *kv = ngd_arena_calloc(&all->w.arena, 1, sizeof(*kv));
    struct ngd_seq_image image;
    ngd_status_t status;

    if (!q || !kv)
        return NGD_ERR_NO_MEMORY;
    npugraph__handover__v1__sequence__init(q);
    npugraph__handover__v1__upload__init(kv);
    kv->offset = all->w.upload_bytes;
    q->model = name_model(all, ngd_seq_model(o->seq));
    if (!q->model)
        return ngd_diag_set(all->w.diag, NGD_ERR_UNIMPLEMENTED, "a sequence has a model that goes with its session");
    status = export_seq(all, o->seq, &image);
    if (status != NGD_OK)
        return status;
    q->id = l->ids[i];
    q->n_prompt = image.n_prompt;
    q->n_given = image.n_given;
    q->position = image.position;
    q->shared = image.shared;
    q->chosen = (uint32_t)image.chosen;
    q->delivered = image.delivered;
    q->draws = image.draws;
    q->priority = (uint32_t)image.priority;
    q->kv = kv;
    q->kv_bytes = image.kv_bytes;
    l->s->sequences[l->s->n_sequences++] = q;
    return pack_seq_parts(&all->w.arena, &image, q) ? NGD_OK : NGD_ERR_NO_MEMORY;
}

/* ---- a session ------------------------------------------------------------------------------------------- */

static bool make_session_room(struct describing *w, struct luggage *l)
{
    const size_t n = l->n + 1;
    handed_session *s = l->s;
    uint32_t bound = (uint32_t)n;

    for (size_t i = 0; i < l->n; i++)
        if (l->objects[i]->kind == NGD_OBJECT_GRAPH) {
            struct ngd_binding *binding =
                ngd_graph_object_binding(ngd_container_of(l->objects[i], struct ngd_graph_object, base));

            bound += ngd_count_bound(binding);
            ngd_binding_unref(binding);
        }
    s->buffer_ids = ngd_arena_calloc(&w->arena, n, sizeof(*s->buffer_ids));
    s->read_only = ngd_arena_calloc(&w->arena, n, sizeof(*s->read_only));
    s->graphs = ngd_arena_calloc(&w->arena, n, sizeof(*s->graphs));
    s->graph_ids = ngd_arena_calloc(&w->arena, n, sizeof(*s->graph_ids));
    s->sequences = ngd_arena_calloc(&w->arena, n, sizeof(*s->sequences));
    return s->buffer_ids && s->read_only && s->graphs && s->graph_ids && s->sequences &&
           ngd_described_init(w, &l->buffers, bound);
}

/* Packs the objects of one kind: buffers come first, so that their numbers are those of their ids. */
static ngd_status_t pack_kind(struct leaving *all, struct luggage *l, ngd_object_kind_t kind,
                              ngd_status_t (*pack)(struct leaving *all, struct luggage *l, size_t i))
{
    ngd_status_t status = NGD_OK;

    for (size_t i = 0; i < l->n && status == NGD_OK; i++)
        if (l->objects[i]->kind == kind)
            status = pack(all, l, i);
    return status;
}

static ngd_status_t pack_objects(struct leaving *all, struct luggage *l)
{
    ngd_status_t status;

    for (size_t i = 0; i < l->n; i++)
        if (l->objects[i]->kind == NGD_OBJECT_GROUP || l->objects[i]->kind == NGD_OBJECT_SHARED)
            return ngd_diag_set(all->w.diag, NGD_ERR_UNIMPLEMENTED, "it has a %s",
                                ngd_object_kind_name(l->objects[i]->kind));
    if (!make_session_room(&all->w, l))
        return NGD_ERR_NO_MEMORY;
    status = pack_kind(all, l, NGD_OBJECT_BUFFER, pack_buffer_object);
    if (status == NGD_OK)
        status = pack_kind(all, l, NGD_OBJECT_GRAPH, pack_graph_object);
    if (status == NGD_OK)
        status = pack_kind(all, l, NGD_OBJECT_SEQUENCE, pack_sequence_object);
    l->s->buffers = l->buffers.list;
    l->s->n_buffers = l->buffers.n;
    return status;
}

static bool pack_session_head(struct describing *w, struct ngd_session *session, handed_session *s)
{
    struct ngd_session_image image;

    npugraph__handover__v1__session__init(s);
    ngd_session_describe(session, &image);
    s->id = image.id;
    s->token.len = sizeof(image.token);
    s->token.data = ngd_arena_calloc(&w->arena, 1, sizeof(image.token));
    if (s->token.data)
        memcpy(s->token.data, image.token, sizeof(image.token));
    s->client_name = (char *)(uintptr_t)image.client_name;
    s->peer = (char *)(uintptr_t)image.peer;
    s->grace_ms = image.grace_ms;
    s->identity = ngd_session_identity(session)->name;
    s->has_bearer = image.has_bearer;
    s->generation = image.ids.generation;
    s->slots = image.ids.slots;
    return s->token.data != NULL;
}

/* ---- answers --------------------------------------------------------------------------------------------- */

struct answer_list {
    struct ngd_arena *arena;
    handed_session *s;
    bool failed;
};

static void pack_answer_kept(void *ctx, const struct ngd_answer_kept *kept)
{
    struct answer_list *list = ctx;
    Npugraph__Handover__V1__Answer *m = ngd_arena_calloc(list->arena, 1, sizeof(*m));

    if (m && list->s->n_answers < NGD_WIRE_MOST_SESSION_ANSWERS) {
        npugraph__handover__v1__answer__init(m);
        m->method = (char *)(uintptr_t)((const struct ngd_method *)kept->method)->path;
        m->request_id = ngd_arena_strdup(list->arena, kept->request_id);
        m->fingerprint = kept->fingerprint;
        m->kept = kept->data != NULL;
        m->data.len = m->kept ? kept->n : 0;
        m->data.data = ngd_arena_calloc(list->arena, m->data.len + 1, 1);
        if (m->kept && m->data.data)
            memcpy(m->data.data, kept->data, kept->n);
        list->s->answers[list->s->n_answers++] = m;
    }
    list->failed = list->failed || !m || !m->request_id || !m->data.data;
}

static ngd_status_t pack_answers(struct describing *w, struct ngd_session *session, handed_session *s)
{
    struct answer_list list = {.arena = &w->arena, .s = s};

    s->answers = ngd_arena_calloc(&w->arena, NGD_WIRE_MOST_SESSION_ANSWERS, sizeof(*s->answers));
    if (s->answers)
        ngd_answers_for_each(ngd_session_answers(session), pack_answer_kept, &list);
    return s->answers && !list.failed ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static ngd_status_t pack_session(struct leaving *all, struct ngd_session *session, handed_session **s_p)
{
    struct luggage l = {.session = session, .s = ngd_arena_calloc(&all->w.arena, 1, sizeof(*l.s))};
    const uint64_t before = all->w.upload_bytes;
    ngd_status_t status = l.s && pack_session_head(&all->w, session, l.s) ? NGD_OK : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK && ngd_models_has_any_of(all->w.daemon->models, ngd_session_id(session)))
        status = ngd_diag_set(all->w.diag, NGD_ERR_UNIMPLEMENTED, "it has a model that goes with it");
    if (status == NGD_OK)
        status = list_objects(&all->w, &l);
    if (status == NGD_OK)
        status = pack_objects(all, &l);
    if (status == NGD_OK)
        status = pack_answers(&all->w, session, l.s);
    for (size_t i = 0; l.objects && i < l.n; i++)
        ngd_object_unref(l.objects[i]);
    if (status != NGD_OK)
        all->w.upload_bytes = before;
    *s_p = l.s;
    return status;
}

/* ---- all ------------------------------------------------------------------------------------------------- */

static void let_stay(struct ngd_session *session, const char *why)
{
    static struct ngd_log_limit limit = {.most = NGD_LOG_LIMIT_CALL};

    ngd_log_limited(&limit, NGD_LOG_INFO, "handover", "session %" PRIu64 " stays: %s", ngd_session_id(session), why);
    ngd_session_thaw(session);
}

static bool wait_until_quiet(const struct leaving *all, const struct ngd_session *session)
{
    ngd_pause_mark(all->pause, NGD_PAUSE_DESCRIBE); /* of the session before */
    while (!ngd_session_is_quiet(session) && ngd_now() < all->until)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_EACH}, NULL);
    ngd_pause_mark(all->pause, NGD_PAUSE_QUIET);
    return ngd_session_is_quiet(session);
}

static void collect_frozen(void *ctx, struct ngd_session *session)
{
    struct ngd_departure *out = ctx;

    if (!ngd_session_is_frozen(session))
        return;
    if (out->sessions && out->n < NGD_DEPART_SESSIONS)
        out->sessions[out->n++] = ngd_session_ref(session);
    else
        let_stay(session, "too many sessions move");
}

/* Describes those that can move, and keeps them in out->sessions. */
static void pack_sessions(struct leaving *all, struct ngd_departure *out, Npugraph__Handover__V1__Departure *message)
{
    size_t n = 0;

    for (size_t i = 0; i < out->n; i++) {
        struct ngd_session *session = out->sessions[i];
        struct ngd_diag diag = {0};
        ngd_status_t status = NGD_ERR_BUSY;

        all->w.diag = &diag;
        if (wait_until_quiet(all, session))
            status = pack_session(all, session, &message->sessions[n]);
        else
            ngd_diag_set(&diag, status, "it has calls under way");
        if (status == NGD_OK) {
            out->sessions[n++] = session;
        } else {
            let_stay(session, diag.text[0] ? diag.text : ngd_status_text(status));
            ngd_session_unref(session);
        }
    }
    out->n = message->n_sessions = n;
}

static ngd_status_t describe_departure(struct leaving *all, struct ngd_departure *out, struct ngd_diag *diag)
{
    Npugraph__Handover__V1__Departure message = NPUGRAPH__HANDOVER__V1__DEPARTURE__INIT;
    ngd_status_t status;

    message.sessions = ngd_arena_calloc(&all->w.arena, out->n + 1, sizeof(*message.sessions));
    if (!message.sessions)
        return NGD_ERR_NO_MEMORY;
    pack_sessions(all, out, &message);
    all->w.diag = diag;
    if (out->n == 0)
        return NGD_OK;
    status = ngd_describe_pack(&all->w, &message.base, &out->record);
    return status;
}

void ngd_depart(struct ngd_daemon *d, ngd_nsec_t began, struct ngd_departure *out)
{
    struct leaving all = {.w = {.daemon = d, .uploads = -1, .is_once = true}, .pause = &out->pause};
    struct ngd_diag diag = {0};
    ngd_status_t status;

    *out = (struct ngd_departure){.record = {.fd = -1, .uploads_fd = -1},
                                  .sessions = NGD_NEW_N(struct ngd_session *, NGD_DEPART_SESSIONS),
                                  .pause = {.began = began, .mark = began}};
    ngd_sessions_freeze(d->sessions);
    ngd_pause_mark(&out->pause, NGD_PAUSE_BEGIN);
    all.until = ngd_now() + (NGD_FAULT(DEPART_PATIENT) ? 60 * NGD_SEC : NGD_DEPART_WAIT);
    ngd_sessions_for_each(d->sessions, collect_frozen, out);
    if (out->n == 0)
        return;
    ngd_arena_init(&all.w.arena, 64 << 10);
    status = ngd_models_list_kept(d->models, &all.kept, &all.n_kept);
    if (status == NGD_OK) {
        status = describe_departure(&all, out, &diag);
        ngd_pause_mark(&out->pause, NGD_PAUSE_DESCRIBE);
        ngd_models_free_kept(all.kept, all.n_kept);
    }
    if (status != NGD_OK) {
        ngd_warning("handover", "no session moves: %s", diag.text[0] ? diag.text : ngd_status_text(status));
        ngd_departure_undo(out);
    }
    if (all.w.uploads >= 0)
        close(all.w.uploads);
    ngd_arena_fini(&all.w.arena);
}

void ngd_departure_commit(struct ngd_departure *departure, const uint64_t *taken, size_t n)
{
    for (size_t i = 0, k = 0; i < departure->n; i++) {
        if (k < n && taken[k] == ngd_session_id(departure->sessions[i])) { /* in the order of the record */
            ngd_session_commit(departure->sessions[i]);
            k++;
        } else {
            let_stay(departure->sessions[i], "the other daemon could not take it");
        }
    }
}

void ngd_departure_let_go(const struct ngd_departure *departure)
{
    for (size_t i = 0; i < departure->n; i++)
        ngd_session_let_go(departure->sessions[i]);
}

void ngd_departure_undo(struct ngd_departure *departure)
{
    for (size_t i = 0; i < departure->n; i++)
        ngd_session_thaw(departure->sessions[i]);
    ngd_departure_fini(departure);
}

void ngd_departure_fini(struct ngd_departure *departure)
{
    for (size_t i = 0; i < departure->n; i++)
        ngd_session_unref(departure->sessions[i]);
    ngd_free(departure->sessions);
    departure->sessions = NULL;
    departure->n = 0;
    ngd_description_close(&departure->record);
}
