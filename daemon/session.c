/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's states:
 *
 *   OPEN --(stream half-closed)------------------------------> ENDED
 *     |                                                          ^
 *     +--(connection broke)--> BROKEN --(grace over)-------------+
 *              ^                  |
 *              +----(resume)------+ back to OPEN
 *
 * One that moves to another daemon has more of them: session_move.h.
 *
 * When a session ends, its objects are taken out of its table under its lock. A job on the reaper's thread closes them
 * without the lock: releasing large buffers takes longer than a serving thread may spend.
 */
#include "daemon/session_int.h"

#include "base/fault.h"
#include "base/handle.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/answers.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/models.h"
#include "daemon/tokens.h"
#include "daemon/client_stream.h"
#include "daemon/shares.h"
#include "proto/npugraph.pb-c.h"
#include "scheduler/run/sched.h"
#include "scheduler/run/share.h"
#include "scheduler/run/usage.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define OBJECTS_MAX       (1u << 20)
#define NO_DRAIN          -1
/* Host memory charged for an object: its largest record, with its label, its place in the table, and a small buffer's
 * memory rounded up. */
#define OBJECT_HOST_BYTES 512
#define WALK_STEP         64 /* sessions that a walk holds at a time */

/* Returns who pays for an object of this kind. A buffer's bytes were charged when it was made. */
static struct ngd_payer *payer_of(const struct ngd_session *s, ngd_object_kind_t kind)
{
    if (kind == NGD_OBJECT_BUFFER)
        return NULL;
    return ngd_identity_payer(s->identity, kind == NGD_OBJECT_SEQUENCE ? NGD_QUOTA_SEQUENCES
                                           : kind == NGD_OBJECT_SHARED ? NGD_QUOTA_SHARED_BUFFERS
                                                                       : NGD_QUOTA_GRAPHS);
}

/* ---- references -------------------------------------------------------------------------------------------------- */

struct ngd_session *ngd_session_ref(struct ngd_session *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

static void session_free(struct ngd_session *s) NGD_NO_THREAD_SAFETY
{
    ngd_answers_destroy(s->answers);
    ngd_handle_table_destroy(s->objects);
    for (int i = 0; i < NGD_SESSION_STREAMS; i++)
        ngd_order_destroy(s->orders[i]);
    ngd_session_events_destroy(s->events);
    ngd_share_unref(s->share);
    ngd_usage_unref(s->usage);
    ngd_identity_unref(s->identity);
    ngd_token_unref(s->bearer);
    ngd_mutex_fini(&s->lock);
    ngd_free(s);
}

struct ngd_session *ngd_session_unref(struct ngd_session *s)
{
    if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
        session_free(s);
    return NULL;
}

uint64_t ngd_session_id(const struct ngd_session *s)
{
    return s->id;
}
struct ngd_identity *ngd_session_identity(const struct ngd_session *s)
{
    return s->identity;
}
const uint8_t *ngd_session_token(const struct ngd_session *s)
{
    return s->token;
}
struct ngd_order *ngd_session_order(struct ngd_session *s, uint32_t stream)
{
    return s->orders[stream];
}

struct ngd_session_events *ngd_session_events(struct ngd_session *s)
{
    return s->events;
}
struct ngd_share *ngd_session_share(struct ngd_session *s)
{
    return s->share;
}
struct ngd_answers *ngd_session_answers(struct ngd_session *s)
{
    return s->answers;
}

struct ngd_usage *ngd_session_usage(struct ngd_session *s)
{
    return s->usage;
}

void ngd_session_count_call(struct ngd_session *s)
{
    atomic_fetch_add_explicit(&s->requests, 1, memory_order_relaxed);
}

/* ---- ending -------------------------------------------------------------------------------------------------------
 */

static void drop_object(struct ngd_object *object)
{
    if (object->close)
        object->close(object);
    ngd_object_unref(object);
}

/* TOKEN_EXPIRED: the session was opened with a token that is over. */
static ngd_status_t check_bearer(struct ngd_session *s, struct ngd_diag *diag)
{
    ngd_status_t status;

    if (!s->has_bearer)
        return NGD_OK;
    ngd_mutex_lock(&s->lock);
    status = s->bearer ? ngd_token_check(s->bearer, diag) : NGD_OK; /* none: it came from another daemon */
    ngd_mutex_unlock(&s->lock);
    return status;
}

static void end_stream(struct ngd_session *s, struct ngd_client_stream *stream)
{
    struct ngd_diag diag = {0};

    if (check_bearer(s, &diag) != NGD_OK)
        stream->ops->end(stream, diag.status, diag.text);
    else if (ngd_session_has_moved(s))
        stream->ops->end(stream, NGD_ERR_SESSION_MOVED, ngd_status_text(NGD_ERR_SESSION_MOVED));
    else if (ngd_daemon_state(s->sessions->daemon) == NGD_DAEMON_SERVING)
        stream->ops->end(stream, NGD_ERR_SESSION_GONE, "the session has ended");
    else /* the session has ended because of the drain */
        stream->ops->end(stream, NGD_ERR_DRAINING, "the daemon is stopping; use another one");
}

/* Ends the streams before the objects are closed, so that nothing new is made. Each is ended without the lock, since it
 * detaches itself. */
static void end_streams(struct ngd_session *s)
{
    for (;;) {
        struct ngd_list *first;
        struct ngd_client_stream *stream = NULL;

        ngd_mutex_lock(&s->lock);
        first = ngd_list_pop_front(&s->streams);
        if (first)
            stream = ngd_client_stream_ref(ngd_container_of(first, struct ngd_client_stream, link));
        ngd_mutex_unlock(&s->lock);
        if (!stream)
            return;
        end_stream(s, stream);
        ngd_client_stream_unref(stream);
    }
}

static void settle_devices_of(struct ngd_sched *sched)
{
    for (uint32_t i = 0; i < ngd_sched_n_devices(sched); i++)
        ngd_device_settle(ngd_sched_device(sched, i));
}

/* Tells the client that closed the session that it has ended, once its memory is free. */
static void finish_closing(struct ngd_session *s)
{
    struct ngd_client_stream *stream;

    ngd_mutex_lock(&s->lock);
    stream = s->closing;
    s->closing = NULL;
    ngd_mutex_unlock(&s->lock);
    if (stream)
        stream->ops->finish(stream);
    ngd_client_stream_unref(stream);
}

static void reap(struct ngd_job *job)
{
    static struct ngd_log_limit limit = {.most = NGD_LOG_LIMIT_CALL};
    struct ngd_session *s = ngd_container_of(job, struct ngd_session, job);
    uint32_t n = 0;

    if (NGD_FAULT(REAP_LATE))
        nanosleep(&(struct timespec){.tv_nsec = 100 * NGD_MSEC}, NULL);
    end_streams(s);
    for (;;) {
        uint32_t cursor = 0;
        uint64_t id;
        void *object = NULL;

        ngd_mutex_lock(&s->lock);
        if (ngd_handle_next(s->objects, &cursor, &id, &object))
            ngd_handle_remove(s->objects, id);
        ngd_mutex_unlock(&s->lock);
        if (!object)
            break;
        drop_object(object);
        n++;
    }
    ngd_models_session_ended(s->sessions->daemon->models, s->id);
    settle_devices_of(s->sessions->daemon->sched); /* so that the client finds its memory free */
    ngd_log_limited(&limit, NGD_LOG_INFO, "session", "session %" PRIu64 " ended, %u objects freed", s->id, n);
    finish_closing(s);
    ngd_session_unref(s);
}

bool ngd_session_claim_end(struct ngd_session *s)
{
    bool mine = s->state != SESSION_ENDED;

    s->state = SESSION_ENDED;
    return mine;
}

void ngd_session_finish_end(struct ngd_session *s)
{
    struct ngd_sessions *all = s->sessions;
    struct ngd_client_stream *stream;

    if (NGD_FAULT(END_LATE))
        nanosleep(&(struct timespec){.tv_nsec = 500 * NGD_MSEC}, NULL);
    ngd_mutex_lock(&s->lock);
    stream = s->stream;
    s->stream = NULL;
    ngd_mutex_unlock(&s->lock);
    if (stream)
        end_stream(s, stream);
    ngd_client_stream_unref(stream);
    ngd_mutex_lock(&all->lock);
    ngd_list_remove(&s->link);
    all->n--;
    ngd_mutex_unlock(&all->lock);
    ngd_metric_dec(NGD_M_SESSIONS);
    ngd_identity_give(s->identity, NGD_QUOTA_SESSIONS, 1);
    s->job.fn = reap;
    ngd_jobs_add_for(all->daemon->reaper, &s->job, s->identity->key);
}

bool ngd_session_left(struct ngd_session *s, struct ngd_client_stream *stream, bool broken)
{
    bool end, moved, mine = false;

    ngd_mutex_lock(&s->lock);
    if (s->stream != stream) { /* a resume has replaced the stream */
        ngd_mutex_unlock(&s->lock);
        return false;
    }
    s->stream = NULL;
    if (!broken)
        s->closing = ngd_client_stream_ref(stream);
    moved = s->moved;
    end = !broken || s->grace == 0; /* one that has moved waits too: the other daemon may die before its client comes */
    if (end) {
        mine = ngd_session_claim_end(s);
    } else if (s->state == SESSION_OPEN) {
        s->state = SESSION_BROKEN;
        s->broken_at = ngd_now();
    }
    ngd_mutex_unlock(&s->lock);
    ngd_client_stream_unref(stream);
    if (moved && s->sessions->watcher.left)
        s->sessions->watcher.left(s->sessions->watcher.ctx, s->id, broken);
    else if (broken)
        ngd_metric_add(NGD_M_SESSIONS_LOST, 1);
    if (mine)
        ngd_session_finish_end(s);
    return !broken;
}

static bool is_over(const struct ngd_session *s, ngd_nsec_t now) NGD_REQUIRES(s->lock)
{
    return (s->state == SESSION_BROKEN && now - s->broken_at >= (s->came ? s->patience : s->grace)) ||
           (s->bearer && ngd_token_check(s->bearer, NULL) != NGD_OK);
}

void ngd_sessions_expire(struct ngd_sessions *all)
{
    ngd_nsec_t now = ngd_now();
    struct ngd_session *late;

    do {
        late = NULL;
        ngd_mutex_lock(&all->lock);
        ngd_list_for_each (pos, &all->all) {
            struct ngd_session *s = ngd_container_of(pos, struct ngd_session, link);
            bool over;

            ngd_mutex_lock(&s->lock);
            over = is_over(s, now) && ngd_session_claim_end(s);
            ngd_mutex_unlock(&s->lock);
            if (over) {
                late = ngd_session_ref(s);
                break;
            }
        }
        ngd_mutex_unlock(&all->lock);
        if (late)
            ngd_session_finish_end(late);
        ngd_session_unref(late);
    } while (late);
}

/* ---- opening -------------------------------------------------------------------------------------------------------
 */

static ngd_status_t open_streams(struct ngd_session *s)
{
    ngd_status_t status = ngd_session_events_create(&s->events);

    for (int i = 0; i < NGD_SESSION_STREAMS && status == NGD_OK; i++)
        status = ngd_order_create(&s->orders[i]);
    return status;
}

ngd_status_t ngd_session_make(struct ngd_sessions *all, const struct ngd_session_client *client,
                              struct ngd_session **session_p)
{
    struct ngd_session *s = NGD_NEW(struct ngd_session);

    if (!s)
        return NGD_ERR_NO_MEMORY;
    s->sessions = all;
    s->refs = 1;
    ngd_mutex_init(&s->lock, NGD_RANK_SESSION);
    ngd_list_init(&s->streams);
    ngd_list_init(&s->link);
    s->identity = ngd_identity_ref(client->identity);
    s->has_bearer = client->bearer != NULL;
    ngd_mutex_lock(&s->lock);
    s->bearer = ngd_token_ref(client->bearer);
    ngd_mutex_unlock(&s->lock);
    if (ngd_handle_table_create(OBJECTS_MAX, &s->objects) != NGD_OK || open_streams(s) != NGD_OK ||
        ngd_answers_create(s->identity, &s->answers) != NGD_OK ||
        ngd_shares_open(all->daemon, s->identity, &s->share) != NGD_OK || !(s->usage = ngd_usage_create()) ||
        getrandom(&s->id, sizeof(s->id), 0) != sizeof(s->id) ||
        getrandom(s->token, sizeof(s->token), 0) != sizeof(s->token)) {
        ngd_session_unref(s);
        return NGD_ERR_NO_MEMORY;
    }
    s->id = s->id >> 1 | 1; /* not 0, and fits an int64, for JSON and other languages */
    s->opened = ngd_now();
    snprintf(s->peer, sizeof(s->peer), "%s", client->peer);
    *session_p = s;
    return NGD_OK;
}

void ngd_session_enlist(struct ngd_sessions *all, struct ngd_session *s)
{
    ngd_mutex_lock(&all->lock);
    s->serial = ++all->serials;
    ngd_list_push_back(&all->all, &s->link);
    all->n++;
    ngd_mutex_unlock(&all->lock);
    ngd_metric_inc(NGD_M_SESSIONS);
}

ngd_status_t ngd_session_open(struct ngd_sessions *all, const struct ngd_session_client *client,
                              const struct ngd_session_wish *wish, struct ngd_session **session_p,
                              struct ngd_diag *diag)
{
    uint64_t max = ngd_identity_room(client->identity, (uint64_t)ngd_config_get(all->daemon->options.max_sessions));
    struct ngd_session *s;
    ngd_status_t status;

    if (strlen(wish->client_name) > NGD_SESSION_NAME_MAX || wish->grace_ms > NGD_SESSION_GRACE_MAX_MS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "client_name may have at most %d bytes, and grace_ms may be at most %d",
                            NGD_SESSION_NAME_MAX, NGD_SESSION_GRACE_MAX_MS);
    if (ngd_sessions_count(all) >= max)
        return ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED,
                            "%" PRIu64 " sessions are open, which is max-sessions%s; try again later", max,
                            client->identity->admin ? "" : " minus those reserved for administrators");
    status = ngd_identity_take(client->identity, NGD_QUOTA_SESSIONS, 1, diag);
    if (status != NGD_OK)
        return status;
    status = ngd_session_make(all, client, &s);
    if (status != NGD_OK) {
        ngd_identity_give(client->identity, NGD_QUOTA_SESSIONS, 1);
        return ngd_diag_set(diag, status, "out of host memory for a session");
    }
    snprintf(s->client_name, sizeof(s->client_name), "%s", wish->client_name);
    s->grace = (ngd_nsec_t)wish->grace_ms * NGD_MSEC;
    s->moves = wish->moves;
    ngd_mutex_lock(&s->lock);
    s->stream = ngd_client_stream_ref(client->stream);
    ngd_mutex_unlock(&s->lock);
    *session_p = ngd_session_ref(s);
    ngd_session_enlist(all, s);
    ngd_metric_add(NGD_M_SESSIONS_OPENED, 1);
    return NGD_OK;
}

/* Before the client of a session that arrived is served: from then on the daemon before must not take it back. */
static ngd_status_t tell_came(struct ngd_session *s, struct ngd_diag *diag)
{
    const struct ngd_session_watcher *w = &s->sessions->watcher;
    bool first;

    ngd_mutex_lock(&s->lock);
    first = s->came;
    ngd_mutex_unlock(&s->lock);
    return first && w->came ? w->came(w->ctx, s->id, diag) : NGD_OK;
}

ngd_status_t ngd_session_resume(struct ngd_sessions *all, const struct ngd_session_client *client, uint64_t id,
                                const uint8_t *token, size_t n_token, struct ngd_session **session_p,
                                struct ngd_diag *diag)
{
    struct ngd_session *s;
    struct ngd_client_stream *old = NULL;
    struct ngd_token *old_bearer = NULL;
    /* protobuf-c makes an empty field NULL; it is still a token, a wrong one. */
    ngd_status_t status = ngd_sessions_find(all, id, &s, diag);

    if (status != NGD_OK)
        return status;
    status = ngd_session_check_user(s, client->identity, token ? token : (const uint8_t *)"", n_token, diag);
    if (status == NGD_OK)
        status = tell_came(s, diag);
    if (status != NGD_OK) {
        ngd_session_unref(s);
        return status;
    }
    ngd_mutex_lock(&s->lock);
    if (s->state == SESSION_ENDED || s->moved) {
        status = s->moved ? NGD_ERR_SESSION_MOVED : NGD_ERR_SESSION_GONE;
    } else {
        old = s->stream;
        s->stream = ngd_client_stream_ref(client->stream);
        old_bearer = s->bearer;
        s->bearer = ngd_token_ref(client->bearer);
        s->greeted = s->told = false;
        if (s->came && !s->leaving) /* else it is described already, as it was before its client came */
            atomic_fetch_and(&s->work, ~SESSION_FROZEN);
        s->came = false;
        s->state = SESSION_OPEN;
    }
    ngd_mutex_unlock(&s->lock);
    ngd_token_unref(old_bearer);
    if (old) { /* its connection is dead, or the client replaces it */
        old->ops->end(old, NGD_ERR_SESSION_GONE, "the session was taken over by another connection");
        ngd_client_stream_unref(old);
    }
    if (status != NGD_OK) {
        ngd_session_unref(s);
        return ngd_diag_set(diag, status, "session %" PRIu64 " %s", id,
                            status == NGD_ERR_SESSION_MOVED ? "has moved to another daemon; connect again"
                                                            : "has ended");
    }
    *session_p = s;
    return NGD_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------------------
 */

ngd_status_t ngd_sessions_create(struct ngd_daemon *d, struct ngd_sessions **sessions_p)
{
    struct ngd_sessions *all = NGD_NEW(struct ngd_sessions);

    if (!all)
        return NGD_ERR_NO_MEMORY;
    all->daemon = d;
    all->drain_grace_ms = NO_DRAIN;
    ngd_mutex_init(&all->lock, NGD_RANK_SESSIONS);
    ngd_list_init(&all->all);
    *sessions_p = all;
    return NGD_OK;
}

static struct ngd_session *any_session(struct ngd_sessions *all)
{
    struct ngd_session *s = NULL;

    ngd_mutex_lock(&all->lock);
    if (!ngd_list_empty(&all->all))
        s = ngd_session_ref(ngd_container_of(all->all.next, struct ngd_session, link));
    ngd_mutex_unlock(&all->lock);
    return s;
}

void ngd_sessions_destroy(struct ngd_sessions *all)
{
    struct ngd_session *s;

    if (!all)
        return;
    while ((s = any_session(all))) {
        bool mine;

        ngd_mutex_lock(&s->lock);
        mine = ngd_session_claim_end(s);
        ngd_mutex_unlock(&s->lock);
        if (mine)
            ngd_session_finish_end(s);
        ngd_session_unref(s);
    }
    while (ngd_jobs_pending(all->daemon->reaper)) { /* the jobs unlink nothing, but use the daemon's parts */
        struct timespec pause = {0, NGD_MSEC};

        nanosleep(&pause, NULL);
    }
    ngd_mutex_fini(&all->lock);
    ngd_free(all);
}

uint32_t ngd_sessions_count(struct ngd_sessions *all)
{
    uint32_t n;

    ngd_mutex_lock(&all->lock);
    n = all->n;
    ngd_mutex_unlock(&all->lock);
    return n;
}

/* Searches linearly: sessions are few, and each call, or stream, looks one up once. */
static struct ngd_session *find_id(struct ngd_sessions *all, uint64_t id)
{
    struct ngd_session *found = NULL;

    ngd_mutex_lock(&all->lock);
    ngd_list_for_each (pos, &all->all) {
        struct ngd_session *s = ngd_container_of(pos, struct ngd_session, link);

        if (s->id == id) {
            found = ngd_session_ref(s);
            break;
        }
    }
    ngd_mutex_unlock(&all->lock);
    return found;
}

static bool same_token(const uint8_t *a, const uint8_t *b, size_t n)
{
    uint8_t diff = n != NGD_SESSION_TOKEN_BYTES;

    /* Compares in constant time, so that its duration tells nothing about the token. */
    for (size_t i = 0; i < n && i < NGD_SESSION_TOKEN_BYTES; i++)
        diff |= a[i] ^ b[i];
    return diff == 0;
}

/* Checks that the client may use the session. On a transport that proves nothing, many users have one identity; there
 * the token says whose session it is. */
ngd_status_t ngd_session_check_user(const struct ngd_session *s, const struct ngd_identity *identity,
                                    const uint8_t *token, size_t n_token, struct ngd_diag *diag)
{
    if (s->identity != identity)
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED, "session %" PRIu64 " belongs to another identity", s->id);
    if (token && !same_token(s->token, token, n_token))
        return ngd_diag_set(diag, NGD_ERR_SESSION_TOKEN, "the token is not the one of session %" PRIu64, s->id);
    if (!token && !identity->proven)
        return ngd_diag_set(diag, NGD_ERR_SESSION_TOKEN,
                            "over plaintext TCP a call needs the session's token: send SessionOpened.token as metadata "
                            "npugraph-session-token-bin");
    return NGD_OK;
}

struct ngd_token *ngd_session_bearer(struct ngd_session *s, const uint8_t *token, size_t n_token)
{
    struct ngd_token *bearer;

    if (!s->has_bearer || !token || !same_token(s->token, token, n_token))
        return NULL;
    ngd_mutex_lock(&s->lock);
    bearer = ngd_token_ref(s->bearer);
    ngd_mutex_unlock(&s->lock);
    return bearer;
}

ngd_status_t ngd_sessions_find(struct ngd_sessions *all, uint64_t id, struct ngd_session **session_p,
                               struct ngd_diag *diag)
{
    *session_p = find_id(all, id);
    return *session_p ? NGD_OK
                      : ngd_diag_set(diag, NGD_ERR_SESSION_GONE,
                                     "session %" PRIu64 " has ended or never existed; open another", id);
}

/* Holds a few sessions at a time, without a list: a list has to be allocated, and a walk that failed would look as if
 * there were no sessions. */
void ngd_sessions_for_each(struct ngd_sessions *all, void (*fn)(void *ctx, struct ngd_session *session), void *ctx)
{
    struct ngd_session *some[WALK_STEP];
    uint64_t seen = 0;
    uint32_t n;

    do {
        n = 0;
        ngd_mutex_lock(&all->lock);
        ngd_list_for_each (pos, &all->all) {
            struct ngd_session *s = ngd_container_of(pos, struct ngd_session, link);

            if (n < WALK_STEP && s->serial > seen)
                some[n++] = ngd_session_ref(s);
        }
        ngd_mutex_unlock(&all->lock);
        for (uint32_t i = 0; i < n; i++) {
            seen = some[i]->serial;
            fn(ctx, some[i]);
            ngd_session_unref(some[i]);
        }
    } while (n == WALK_STEP);
}

/* Announces the drain on the session's stream, once for each stream and only after its first message. */
static void announce_drain_to(void *ctx, struct ngd_session *s)
{
    Npugraph__V1__SessionEvent event = NPUGRAPH__V1__SESSION_EVENT__INIT;
    Npugraph__V1__Draining draining = NPUGRAPH__V1__DRAINING__INIT;
    struct ngd_client_stream *stream = NULL;

    (void)ctx;
    draining.grace_ms = (uint32_t)atomic_load(&s->sessions->drain_grace_ms);
    draining.replaced = atomic_load(&s->sessions->daemon->replaced);
    draining.moved = ngd_session_has_moved(s);
    event.kind_case = NPUGRAPH__V1__SESSION_EVENT__KIND_DRAINING;
    event.draining = &draining;
    ngd_mutex_lock(&s->lock);
    if (s->stream && s->greeted && !s->told) {
        stream = ngd_client_stream_ref(s->stream);
        s->told = true;
    }
    ngd_mutex_unlock(&s->lock);
    if (stream && stream->ops->send(stream, &event.base) != NGD_OK) /* the end of the stream announces it too */
        stream->ops->end(stream, NGD_ERR_NO_MEMORY,
                         "the drain could not be announced; resume the session to be notified");
    ngd_client_stream_unref(stream);
}

void ngd_sessions_announce_drain(struct ngd_sessions *all, uint32_t grace_ms)
{
    atomic_store(&all->drain_grace_ms, grace_ms);
    ngd_sessions_for_each(all, announce_drain_to, NULL);
}

static void forget_drain_of(void *ctx, struct ngd_session *s)
{
    (void)ctx;
    ngd_mutex_lock(&s->lock);
    s->told = false;
    ngd_mutex_unlock(&s->lock);
}

void ngd_sessions_forget_drain(struct ngd_sessions *all)
{
    atomic_store(&all->drain_grace_ms, NO_DRAIN);
    ngd_sessions_for_each(all, forget_drain_of, NULL);
}

void ngd_session_greeted(struct ngd_session *s)
{
    ngd_mutex_lock(&s->lock);
    s->greeted = true;
    ngd_mutex_unlock(&s->lock);
    if (atomic_load(&s->sessions->drain_grace_ms) !=
        NO_DRAIN) /* the drain was announced before, but not to this session */
        announce_drain_to(NULL, s);
}

/* ---- streams --------------------------------------------------------------------------------------------------------
 */

void ngd_session_attach(struct ngd_session *s, struct ngd_client_stream *stream)
{
    bool ended;

    ngd_mutex_lock(&s->lock);
    ended = s->state == SESSION_ENDED;
    if (!ended)
        ngd_list_push_back(&s->streams, &stream->link);
    ngd_mutex_unlock(&s->lock);
    if (ended)
        end_stream(s, stream);
}

void ngd_session_detach(struct ngd_session *s, struct ngd_client_stream *stream)
{
    ngd_mutex_lock(&s->lock);
    ngd_list_remove(&stream->link);
    ngd_mutex_unlock(&s->lock);
}

/* ---- objects --------------------------------------------------------------------------------------------------------
 */

static bool has_name_locked(struct ngd_session *s, ngd_object_kind_t kind, const char *name) NGD_REQUIRES(s->lock)
{
    uint32_t cursor = 0;
    uint64_t id;
    void *p;

    while (name && ngd_handle_next(s->objects, &cursor, &id, &p)) {
        const struct ngd_object *o = p;

        if (o->kind == kind && strcmp(o->name, name) == 0)
            return true;
    }
    return false;
}

static ngd_status_t check_name_locked(struct ngd_session *s, ngd_object_kind_t kind, const char *name,
                                      struct ngd_diag *diag) NGD_REQUIRES(s->lock)
{
    if (s->state == SESSION_ENDED)
        return ngd_diag_set(diag, NGD_ERR_SESSION_GONE, "the session has ended");
    if (!has_name_locked(s, kind, name))
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS,
                        "this session has a %s \"%.100s\" already; release it, or choose another name",
                        ngd_object_kind_name(kind), name);
}

ngd_status_t ngd_session_check_name(struct ngd_session *s, ngd_object_kind_t kind, const char *name,
                                    struct ngd_diag *diag)
{
    ngd_status_t status;

    ngd_mutex_lock(&s->lock);
    status = check_name_locked(s, kind, name, diag);
    ngd_mutex_unlock(&s->lock);
    return status;
}

ngd_status_t ngd_session_charge(struct ngd_session *s, struct ngd_object *object, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_charge_begin(&object->charge, payer_of(s, object->kind), 1, diag);

    return status == NGD_OK ? ngd_charge_begin(&object->host, ngd_identity_payer(s->identity, NGD_QUOTA_HOST_BYTES),
                                               OBJECT_HOST_BYTES, diag)
                            : status;
}

ngd_status_t ngd_session_add(struct ngd_session *s, struct ngd_object *object, uint64_t *id_p, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_session_charge(s, object, diag);

    if (status != NGD_OK)
        return status;
    ngd_mutex_lock(&s->lock);
    status = check_name_locked(s, object->kind, object->name, diag);
    if (status == NGD_OK)
        status = ngd_handle_add(s->objects, object, id_p);
    if (status == NGD_OK) {
        s->counts[object->kind]++;
        s->bytes += object->bytes;
    }
    ngd_mutex_unlock(&s->lock);
    return status; /* the charge goes with the object */
}

ngd_status_t ngd_session_check(struct ngd_session *s, struct ngd_diag *diag)
{
    bool ended;

    ngd_mutex_lock(&s->lock);
    ended = s->state == SESSION_ENDED;
    ngd_mutex_unlock(&s->lock);
    return ended ? ngd_diag_set(diag, NGD_ERR_SESSION_GONE, "the session has ended") : NGD_OK;
}

static ngd_status_t find_object_locked(struct ngd_session *s, uint64_t id, ngd_object_kind_t kind,
                                       struct ngd_object **object_p, struct ngd_diag *diag) NGD_REQUIRES(s->lock)
{
    void *p;
    ngd_status_t status = ngd_handle_get(s->objects, id, &p);

    if (status == NGD_ERR_STALE_ID)
        return ngd_diag_set(diag, status, "%s %" PRIu64 " no longer exists", ngd_object_kind_name(kind), id);
    if (status != NGD_OK || ((struct ngd_object *)p)->kind != kind)
        return ngd_diag_set(diag, NGD_ERR_UNKNOWN_ID, "this session has no %s %" PRIu64, ngd_object_kind_name(kind),
                            id);
    *object_p = p;
    return NGD_OK;
}

ngd_status_t ngd_session_get(struct ngd_session *s, uint64_t id, ngd_object_kind_t kind, struct ngd_object **object_p,
                             struct ngd_diag *diag)
{
    ngd_status_t status;

    ngd_mutex_lock(&s->lock);
    status = find_object_locked(s, id, kind, object_p, diag);
    if (status == NGD_OK)
        ngd_object_ref(*object_p);
    ngd_mutex_unlock(&s->lock);
    return status;
}

ngd_status_t ngd_session_remove(struct ngd_session *s, uint64_t id, ngd_object_kind_t kind, struct ngd_diag *diag)
{
    struct ngd_object *object = NULL;
    ngd_status_t status;

    ngd_mutex_lock(&s->lock);
    status = find_object_locked(s, id, kind, &object, diag);
    if (status == NGD_OK) {
        ngd_handle_remove(s->objects, id);
        s->counts[kind]--;
        s->bytes -= object->bytes;
    }
    ngd_mutex_unlock(&s->lock);
    if (status == NGD_OK)
        drop_object(object);
    return status;
}

void ngd_session_for_each(struct ngd_session *s, void (*fn)(void *ctx, uint64_t id, struct ngd_object *object),
                          void *ctx)
{
    uint32_t cursor = 0;
    uint64_t id;
    void *object;

    ngd_mutex_lock(&s->lock);
    while (ngd_handle_next(s->objects, &cursor, &id, &object))
        fn(ctx, id, object);
    ngd_mutex_unlock(&s->lock);
}

void ngd_session_info(struct ngd_session *s, struct ngd_session_info *info_p)
{
    memset(info_p, 0, sizeof(*info_p));
    info_p->id = s->id;
    snprintf(info_p->client_name, sizeof(info_p->client_name), "%s", s->client_name);
    snprintf(info_p->identity, sizeof(info_p->identity), "%s", s->identity->name);
    snprintf(info_p->peer, sizeof(info_p->peer), "%s", s->peer);
    info_p->age = ngd_now() - s->opened;
    info_p->device_time = atomic_load_explicit(&s->usage->time, memory_order_relaxed);
    info_p->runs = atomic_load_explicit(&s->usage->runs, memory_order_relaxed);
    info_p->requests = atomic_load_explicit(&s->requests, memory_order_relaxed);
    ngd_mutex_lock(&s->lock);
    memcpy(info_p->objects, s->counts, sizeof(s->counts));
    info_p->bytes = s->bytes;
    info_p->broken = s->state == SESSION_BROKEN;
    ngd_mutex_unlock(&s->lock);
}
