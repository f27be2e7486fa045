/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SESSION_H
#define NGD_DAEMON_SESSION_H

/*
 * Sessions: what a client makes belongs to one, and goes with it.
 *
 * A session lives as long as its Sessions.Open stream; when the connection breaks, for the grace period that its client
 * asked for. Ending it closes its streams, cancels what it waits for and drops its objects, on the reaper's thread.
 * Ids of objects are the session's own: another session's id is unknown here, whatever its number.
 *
 * Threads: any. Memory: reference counted; calls hold a reference. Bounds: max-sessions and the identity's quotas.
 */
#include "base/clock.h"
#include "daemon/object.h"

struct ngd_answers;
struct ngd_daemon;
struct ngd_identity;
struct ngd_session;
struct ngd_sessions;
struct ngd_client_stream;

#define NGD_SESSION_TOKEN_BYTES  16
#define NGD_SESSION_NAME_MAX     64
#define NGD_SESSION_GRACE_MAX_MS 60000

ngd_status_t ngd_sessions_create(struct ngd_daemon *d, struct ngd_sessions **sessions_p);
/* Ends all sessions; every call must be over. NULL is fine. */
void ngd_sessions_destroy(struct ngd_sessions *sessions);
/* Ends sessions whose grace period is over; called by the loop's timer. */
void ngd_sessions_expire(struct ngd_sessions *sessions);
uint32_t ngd_sessions_count(struct ngd_sessions *sessions);
/* Tells every client that the daemon drains. */
void ngd_sessions_announce_drain(struct ngd_sessions *sessions, uint32_t grace_ms);

/* Who opens or resumes a session, and over which stream. Borrowed. */
struct ngd_session_client {
    struct ngd_client_stream *stream;
    struct ngd_identity *identity;
    const char *peer; /* its address */
};
/* Opens one for the client's identity; *session_p is a reference. */
ngd_status_t ngd_session_open(struct ngd_sessions *sessions, const struct ngd_session_client *client,
                              const char *client_name, uint32_t grace_ms, struct ngd_session **session_p,
                              struct ngd_diag *diag);
/* Takes over one whose connection broke (or is about to be seen as broken). */
ngd_status_t ngd_session_resume(struct ngd_sessions *sessions, const struct ngd_session_client *client, uint64_t id,
                                const uint8_t *token, size_t n_token, struct ngd_session **session_p,
                                struct ngd_diag *diag);
/* Its stream's first message is on its way: from now on others may follow. */
void ngd_session_greeted(struct ngd_session *session);
/* The stream is over. broken: the grace period begins; otherwise the session ends, and the stream is finished when
 * what the session held is free. False: it will not be, since the session has ended already or has another stream. */
bool ngd_session_left(struct ngd_session *session, struct ngd_client_stream *stream, bool broken);

/*
 * The session that a call's metadata names; a reference. token: NULL if the metadata has none. SESSION_GONE;
 * PERMISSION_DENIED for another identity's; SESSION_TOKEN for a wrong token, and for none if the identity is unproven.
 */
ngd_status_t ngd_sessions_find(struct ngd_sessions *sessions, uint64_t id, const struct ngd_identity *identity,
                               const uint8_t *token, size_t n_token, struct ngd_session **session_p,
                               struct ngd_diag *diag);
struct ngd_session *ngd_session_unref(struct ngd_session *session); /* returns NULL; NULL is fine */
uint64_t ngd_session_id(const struct ngd_session *session);
const struct ngd_identity *ngd_session_identity(const struct ngd_session *session); /* the session's reference */
const uint8_t *ngd_session_token(const struct ngd_session *session);                /* secret: never logged or listed */
#define NGD_SESSION_STREAMS 16
struct ngd_order *ngd_session_order(struct ngd_session *session, uint32_t stream); /* of its replays there */
struct ngd_session_events *ngd_session_events(struct ngd_session *session);        /* between them */
struct ngd_share *ngd_session_share(struct ngd_session *session); /* of the device's time; the session's reference */
struct ngd_usage *ngd_session_usage(struct ngd_session *session); /* what it has had of it; the session's reference */
struct ngd_answers *ngd_session_answers(struct ngd_session *session); /* under request ids */

/* Streams that end with the session. */
void ngd_session_attach(struct ngd_session *session, struct ngd_client_stream *stream);
void ngd_session_detach(struct ngd_session *session, struct ngd_client_stream *stream);

/* ---- objects ---- */

/* Takes the caller's reference when it succeeds. QUOTA, SESSION_GONE, RESOURCE_EXHAUSTED. */
ngd_status_t ngd_session_add(struct ngd_session *session, struct ngd_object *object, uint64_t *id_p,
                             struct ngd_diag *diag);
/* SESSION_GONE once it has ended. For who has put something of the session elsewhere, where the end looks only once. */
ngd_status_t ngd_session_check(struct ngd_session *session, struct ngd_diag *diag);
/* A reference; STALE_ID and UNKNOWN_ID say which kind of object was looked for. */
ngd_status_t ngd_session_get(struct ngd_session *session, uint64_t id, ngd_object_kind_t kind,
                             struct ngd_object **object_p, struct ngd_diag *diag);
ngd_status_t ngd_session_remove(struct ngd_session *session, uint64_t id, ngd_object_kind_t kind,
                                struct ngd_diag *diag);
/* Calls fn for every object, under the session's lock: fn must be short and not call back. */
void ngd_session_for_each(struct ngd_session *session, void (*fn)(void *ctx, uint64_t id, struct ngd_object *object),
                          void *ctx);
/* For every session, with a reference held and no lock. */
void ngd_sessions_for_each(struct ngd_sessions *sessions, void (*fn)(void *ctx, struct ngd_session *session),
                           void *ctx);

struct ngd_session_info {
    uint64_t id;
    char client_name[NGD_SESSION_NAME_MAX + 1];
    char identity[160], peer[128];
    ngd_nsec_t age, device_time;
    uint64_t runs; /* on devices: replays, prompts' chunks, steps */
    uint32_t objects[NGD_OBJECT_KINDS];
    uint64_t bytes, requests;
    bool broken;
};
void ngd_session_info(struct ngd_session *session, struct ngd_session_info *info_p);
void ngd_session_count_call(struct ngd_session *session);

#endif
