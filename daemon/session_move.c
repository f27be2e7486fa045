/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/session_move.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/client_stream.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/session_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool ngd_session_enter(struct ngd_session *s)
{
    if (!(atomic_fetch_add(&s->work, 1) & SESSION_FROZEN))
        return true;
    atomic_fetch_sub(&s->work, 1);
    return false;
}

void ngd_session_leave(struct ngd_session *s)
{
    atomic_fetch_sub(&s->work, 1);
}

/* ---- the old daemon -------------------------------------------------------------------------------------- */

bool ngd_session_is_frozen(const struct ngd_session *s)
{
    return atomic_load(&s->work) & SESSION_FROZEN;
}

bool ngd_session_is_quiet(const struct ngd_session *s)
{
    return atomic_load(&s->work) == SESSION_FROZEN;
}

void ngd_session_thaw(struct ngd_session *s)
{
    ngd_mutex_lock(&s->lock);
    s->moved = s->leaving = false;
    if (!s->came) /* such a one is frozen until its client comes */
        atomic_fetch_and(&s->work, ~SESSION_FROZEN);
    ngd_mutex_unlock(&s->lock);
}

/* Returns a reference on a stream that its client can go on with, and marks it as ended; NULL: there is none. */
static struct ngd_client_stream *next_resumable(struct ngd_session *s)
{
    struct ngd_client_stream *found = NULL;

    ngd_mutex_lock(&s->lock);
    ngd_list_for_each (pos, &s->streams) {
        struct ngd_client_stream *stream = ngd_container_of(pos, struct ngd_client_stream, link);

        if (atomic_exchange(&stream->resumable, false)) {
            found = ngd_client_stream_ref(stream);
            break;
        }
    }
    ngd_mutex_unlock(&s->lock);
    return found;
}

static void freeze_session(void *ctx, struct ngd_session *s)
{
    struct ngd_client_stream *stream;
    bool leaving;

    (void)ctx;
    ngd_mutex_lock(&s->lock);
    s->leaving = s->moves && s->state != SESSION_ENDED;
    leaving = s->leaving;
    if (leaving)
        atomic_fetch_or(&s->work, SESSION_FROZEN);
    ngd_mutex_unlock(&s->lock);
    if (!leaving)
        return;
    while ((stream = next_resumable(s))) {
        stream->ops->end(stream, NGD_ERR_SESSION_MOVED, ngd_status_text(NGD_ERR_SESSION_MOVED));
        ngd_client_stream_unref(stream);
    }
}

void ngd_sessions_freeze(struct ngd_sessions *all)
{
    ngd_sessions_for_each(all, freeze_session, NULL);
}

static void tell_left(struct ngd_session *s, bool broken)
{
    const struct ngd_session_watcher *w = &s->sessions->watcher;

    if (w->left)
        w->left(w->ctx, s->id, broken);
}

void ngd_session_commit(struct ngd_session *s)
{
    enum session_state state;
    bool waits;

    ngd_mutex_lock(&s->lock);
    state = s->state;
    waits = s->came; /* its client is still at a daemon before this one */
    s->moved = true;
    ngd_mutex_unlock(&s->lock);
    if (state != SESSION_OPEN && !waits) /* it ended, or broke, while it was described */
        tell_left(s, state == SESSION_BROKEN);
}

void ngd_session_let_go(struct ngd_session *s)
{
    ngd_mutex_lock(&s->lock);
    if (s->moved)
        s->grace = s->patience = 0;
    ngd_mutex_unlock(&s->lock);
}

bool ngd_session_has_moved(struct ngd_session *s)
{
    bool moved;

    ngd_mutex_lock(&s->lock);
    moved = s->moved;
    ngd_mutex_unlock(&s->lock);
    return moved;
}

/* Ends the session if `when` holds for it, which is called under its lock. */
static void end_session_if(struct ngd_session *s, bool (*when)(const struct ngd_session *s))
{
    bool mine;

    ngd_mutex_lock(&s->lock);
    mine = when(s) && ngd_session_claim_end(s);
    ngd_mutex_unlock(&s->lock);
    if (mine)
        ngd_session_finish_end(s);
}

static bool has_gone(const struct ngd_session *s) NGD_NO_THREAD_SAFETY
{
    return s->moved;
}

void ngd_session_adopted(struct ngd_sessions *all, uint64_t id)
{
    struct ngd_session *s;

    if (ngd_sessions_find(all, id, &s, NULL) != NGD_OK)
        return;
    end_session_if(s, has_gone);
    ngd_session_unref(s);
}

/* ---- the new daemon -------------------------------------------------------------------------------------- */

void ngd_sessions_watch(struct ngd_sessions *all, const struct ngd_session_watcher *watcher)
{
    all->watcher = *watcher;
}

void ngd_session_describe(struct ngd_session *s, struct ngd_session_image *image_p)
{
    *image_p = (struct ngd_session_image){
        .id = s->id,
        .client_name = s->client_name,
        .peer = s->peer,
        .grace_ms = (uint32_t)(s->grace / NGD_MSEC),
        .has_bearer = s->has_bearer,
    };
    memcpy(image_p->token, s->token, sizeof(s->token));
    ngd_mutex_lock(&s->lock);
    image_p->ids = ngd_handle_origin(s->objects);
    ngd_mutex_unlock(&s->lock);
}

static ngd_status_t check_session_image(struct ngd_sessions *all, const struct ngd_session_image *image,
                                        struct ngd_diag *diag)
{
    struct ngd_session *same;

    if (image->id == 0 || image->id > INT64_MAX || strlen(image->client_name) > NGD_SESSION_NAME_MAX ||
        image->grace_ms > NGD_SESSION_GRACE_MAX_MS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "session %" PRIu64 " is not valid", image->id);
    if (ngd_sessions_find(all, image->id, &same, NULL) != NGD_OK)
        return NGD_OK;
    ngd_session_unref(same);
    return ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS, "there is a session %" PRIu64 " already", image->id);
}

/* Makes it what the image says. No other thread has it. */
static ngd_status_t set_session_image(struct ngd_session *s, const struct ngd_session_image *image,
                                      ngd_nsec_t patience) NGD_NO_THREAD_SAFETY
{
    s->id = image->id;
    memcpy(s->token, image->token, sizeof(s->token));
    snprintf(s->client_name, sizeof(s->client_name), "%s", image->client_name);
    s->grace = (ngd_nsec_t)image->grace_ms * NGD_MSEC;
    s->patience = patience > s->grace ? patience : s->grace;
    s->has_bearer = image->has_bearer;
    s->moves = true;
    s->came = true;
    s->work = SESSION_FROZEN;
    s->state = SESSION_BROKEN;
    s->broken_at = ngd_now();
    return ngd_handle_begin_at(s->objects, image->ids);
}

ngd_status_t ngd_session_arrive(struct ngd_sessions *all, struct ngd_identity *identity,
                                const struct ngd_session_image *image, ngd_nsec_t patience,
                                struct ngd_session **session_p, struct ngd_diag *diag)
{
    const struct ngd_session_client client = {.identity = identity, .peer = image->peer};
    struct ngd_session *s;
    ngd_status_t status = check_session_image(all, image, diag);

    if (status == NGD_OK)
        status = ngd_identity_take(identity, NGD_QUOTA_SESSIONS, 1, diag);
    if (status != NGD_OK)
        return status;
    status = ngd_session_make(all, &client, &s);
    if (status == NGD_OK && (status = set_session_image(s, image, patience)) != NGD_OK)
        ngd_session_unref(s);
    if (status != NGD_OK) {
        ngd_identity_give(identity, NGD_QUOTA_SESSIONS, 1);
        return status;
    }
    *session_p = ngd_session_ref(s);
    ngd_session_enlist(all, s);
    ngd_metric_add(NGD_M_SESSIONS_MOVED, 1);
    return NGD_OK;
}

ngd_status_t ngd_session_put(struct ngd_session *s, struct ngd_object *object, uint64_t id, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_session_charge(s, object, diag);

    if (status != NGD_OK)
        return status;
    ngd_mutex_lock(&s->lock);
    status = ngd_handle_put(s->objects, object, id);
    if (status == NGD_OK) {
        s->counts[object->kind]++;
        s->bytes += object->bytes;
    }
    ngd_mutex_unlock(&s->lock);
    return status == NGD_OK ? NGD_OK
                            : ngd_diag_set(diag, status, "%s %" PRIu64 " cannot have that id",
                                           ngd_object_kind_name(object->kind), id);
}

static bool always(const struct ngd_session *s)
{
    (void)s;
    return true;
}

void ngd_session_discard(struct ngd_session *s)
{
    end_session_if(s, always);
}

static bool waits_for_client(const struct ngd_session *s) NGD_NO_THREAD_SAFETY
{
    return s->came;
}

void ngd_session_left_before(struct ngd_sessions *all, uint64_t id, bool broken)
{
    struct ngd_session *s;

    if (ngd_sessions_find(all, id, &s, NULL) != NGD_OK)
        return;
    if (broken) { /* as if it had broken here: its client may come within its grace */
        ngd_mutex_lock(&s->lock);
        s->patience = s->grace;
        s->broken_at = ngd_now();
        ngd_mutex_unlock(&s->lock);
    } else {
        end_session_if(s, waits_for_client);
    }
    ngd_session_unref(s);
}
