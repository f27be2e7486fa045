/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SESSION_H
#define NGD_DAEMON_SESSION_H

/*
 * Sessions: the objects that a client makes belong to its session, and go with it.
 *
 * A session lives as long as its Sessions.Open stream. If the connection breaks, it lives on for the grace period that
 * the client asked for. Its end closes its streams, cancels what it waits for and drops its objects, on the reaper's
 * thread. Object ids belong to the session: another session's id is unknown here, whatever its number.
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
struct ngd_token;

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
/* The drain that was announced is off; another one will be announced to all again. */
void ngd_sessions_forget_drain(struct ngd_sessions *sessions);

/* The client that opens or resumes a session, and the stream it uses. Borrowed. */
struct ngd_session_client {
    struct ngd_client_stream *stream; /* NULL: none; the session lives until ngd_session_left */
    struct ngd_identity *identity;
    struct ngd_token *bearer; /* that named the identity; NULL: the connection did */
    const char *peer;         /* its address */
};
/* What the client asks for. Borrowed. */
struct ngd_session_wish {
    const char *client_name;
    uint32_t grace_ms;
    bool moves; /* to the daemon that replaces this one: session_move.h */
};
/* Opens a session for the client's identity; *session_p is a reference. */
ngd_status_t ngd_session_open(struct ngd_sessions *sessions, const struct ngd_session_client *client,
                              const struct ngd_session_wish *wish, struct ngd_session **session_p,
                              struct ngd_diag *diag);
/* Resumes a session whose connection broke, or is about to be seen as broken. SESSION_MOVED: another daemon has it. */
ngd_status_t ngd_session_resume(struct ngd_sessions *sessions, const struct ngd_session_client *client, uint64_t id,
                                const uint8_t *token, size_t n_token, struct ngd_session **session_p,
                                struct ngd_diag *diag);
/* Notes that the stream's first message is sent; others may follow from now on. */
void ngd_session_greeted(struct ngd_session *session);
/*
 * Reports that the stream is over. broken: the grace period begins. Otherwise the session ends, and the stream is
 * finished when the session's objects are free. Returns false if it will not be finished, because the session has ended
 * already or has another stream. stream: NULL for a session without one.
 */
bool ngd_session_left(struct ngd_session *session, struct ngd_client_stream *stream, bool broken);

/* Finds the session that a call's metadata names; *session_p is a reference. SESSION_GONE. Whether the caller may use
 * it is ngd_session_check_user's. */
ngd_status_t ngd_sessions_find(struct ngd_sessions *sessions, uint64_t id, struct ngd_session **session_p,
                               struct ngd_diag *diag);
/*
 * Returns the bearer token (a reference) of a session that was opened with one, if the session's own token is right: it
 * then proves who calls, and no bearer token need be looked up. Otherwise NULL.
 */
struct ngd_token *ngd_session_bearer(struct ngd_session *session, const uint8_t *token, size_t n_token);
/* token: NULL if the metadata has none. PERMISSION_DENIED for another identity's session. SESSION_TOKEN for a wrong
 * token, or if an unproven identity gives none. */
ngd_status_t ngd_session_check_user(const struct ngd_session *session, const struct ngd_identity *identity,
                                    const uint8_t *token, size_t n_token, struct ngd_diag *diag);
struct ngd_session *ngd_session_ref(struct ngd_session *session);
struct ngd_session *ngd_session_unref(struct ngd_session *session); /* returns NULL; NULL is fine */
uint64_t ngd_session_id(const struct ngd_session *session);
struct ngd_identity *ngd_session_identity(const struct ngd_session *session); /* the session's reference */
const uint8_t *ngd_session_token(const struct ngd_session *session);          /* secret: never logged or listed */
#define NGD_SESSION_STREAMS 16
/* Parts of the session; its reference keeps them. */
struct ngd_order *ngd_session_order(struct ngd_session *session, uint32_t stream); /* of one stream's replays */
struct ngd_session_events *ngd_session_events(struct ngd_session *session);        /* between its streams */
struct ngd_share *ngd_session_share(struct ngd_session *session);                  /* of its identity: device time */
struct ngd_usage *ngd_session_usage(struct ngd_session *session);                  /* device time it has used */
struct ngd_answers *ngd_session_answers(struct ngd_session *session);              /* kept, by request id */

/* Add and remove a stream that ends with the session. */
void ngd_session_attach(struct ngd_session *session, struct ngd_client_stream *stream);
void ngd_session_detach(struct ngd_session *session, struct ngd_client_stream *stream);

/* ---- objects ---- */

/* Adds an object, and takes the caller's reference if it succeeds. QUOTA, SESSION_GONE, RESOURCE_EXHAUSTED. */
ngd_status_t ngd_session_add(struct ngd_session *session, struct ngd_object *object, uint64_t *id_p,
                             struct ngd_diag *diag);
/* Before long work for an object: that ngd_session_add would find its name free. SESSION_GONE, ALREADY_EXISTS. */
ngd_status_t ngd_session_check_name(struct ngd_session *session, ngd_object_kind_t kind, const char *name,
                                    struct ngd_diag *diag);
/* Returns SESSION_GONE once the session has ended. A caller that has stored something of the session elsewhere checks
 * this afterwards, because the session's end looks there only once. */
ngd_status_t ngd_session_check(struct ngd_session *session, struct ngd_diag *diag);
/* Gets an object; *object_p is a reference. STALE_ID and UNKNOWN_ID say which kind of object was expected. */
ngd_status_t ngd_session_get(struct ngd_session *session, uint64_t id, ngd_object_kind_t kind,
                             struct ngd_object **object_p, struct ngd_diag *diag);
ngd_status_t ngd_session_remove(struct ngd_session *session, uint64_t id, ngd_object_kind_t kind,
                                struct ngd_diag *diag);
/* Calls fn for each object, under the session's lock: fn must be short and must not call sessions. */
void ngd_session_for_each(struct ngd_session *session, void (*fn)(void *ctx, uint64_t id, struct ngd_object *object),
                          void *ctx);
/* Calls fn for each session, with a reference held and without a lock. */
void ngd_sessions_for_each(struct ngd_sessions *sessions, void (*fn)(void *ctx, struct ngd_session *session),
                           void *ctx);

struct ngd_session_info {
    uint64_t id;
    char client_name[NGD_SESSION_NAME_MAX + 1];
    char identity[160], peer[128];
    ngd_nsec_t age, device_time;
    uint64_t runs; /* runs on devices: replays, prompts' chunks, steps */
    uint32_t objects[NGD_OBJECT_KINDS];
    uint64_t bytes, requests;
    bool broken;
};
void ngd_session_info(struct ngd_session *session, struct ngd_session_info *info_p);
void ngd_session_count_call(struct ngd_session *session);

#endif
