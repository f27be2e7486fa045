/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SESSION_MOVE_H
#define NGD_DAEMON_SESSION_MOVE_H

/*
 * Sessions that move to the daemon that replaces this one (docs/decisions/0060).
 *
 *   old:  OPEN --freeze--> FROZEN --commit--> MOVED --its client ended it, or the new daemon has its client--> ENDED
 *           ^                |                  |
 *           +-----thaw-------+------ the new daemon has died, and nobody has resumed the session there
 *
 *   new:  --arrive--> FROZEN, BROKEN --resumed by its client--> OPEN
 *
 * One whose client is away is BROKEN besides, in any of them: its grace goes on, and ends it in the old daemon too.
 *
 * A frozen session serves no call: each is refused with SESSION_MOVED before its handler sees it. It is quiet when the
 * calls that it served have been answered. So what is described of a quiet session is all that its client has been
 * told.
 *
 * Threads: any. A call that works for a session is between enter and leave.
 */
#include "base/handle.h"
#include "daemon/session.h"

/* False: the session is frozen, and the call is refused with SESSION_MOVED. */
bool ngd_session_enter(struct ngd_session *session);
void ngd_session_leave(struct ngd_session *session);

/* ---- the old daemon ---- */

/* Freezes all sessions that asked to move, and ends generations of theirs, which their clients can go on with. */
void ngd_sessions_freeze(struct ngd_sessions *sessions);
bool ngd_session_is_frozen(const struct ngd_session *session);
bool ngd_session_is_quiet(const struct ngd_session *session);
void ngd_session_thaw(struct ngd_session *session);
/* Notes that another daemon has the session, which stays frozen. */
void ngd_session_commit(struct ngd_session *session);
/* Nobody gives it back if it has moved: from now on it ends here when its client is away. */
void ngd_session_let_go(struct ngd_session *session);
bool ngd_session_has_moved(struct ngd_session *session);
/* The other daemon serves the client of a session that has moved: it ends here. */
void ngd_session_adopted(struct ngd_sessions *sessions, uint64_t id);

/* ---- the new daemon ---- */

/* What a session is besides its objects. */
struct ngd_session_image {
    uint64_t id;
    uint8_t token[NGD_SESSION_TOKEN_BYTES];
    const char *client_name, *peer;
    uint32_t grace_ms;
    bool has_bearer; /* a bearer token named its identity */
    struct ngd_handle_origin ids;
};
void ngd_session_describe(struct ngd_session *session, struct ngd_session_image *image_p); /* borrows */
/*
 * Makes a session that waits for its client for `patience`, at least. *session_p is a reference. QUOTA,
 * RESOURCE_EXHAUSTED; ALREADY_EXISTS: the id is taken; INVALID_ARGUMENT: the image is not a session's.
 */
ngd_status_t ngd_session_arrive(struct ngd_sessions *sessions, struct ngd_identity *identity,
                                const struct ngd_session_image *image, ngd_nsec_t patience,
                                struct ngd_session **session_p, struct ngd_diag *diag);
/* Adds an object under the id that it had, and takes the caller's reference if it succeeds. */
ngd_status_t ngd_session_put(struct ngd_session *session, struct ngd_object *object, uint64_t id,
                             struct ngd_diag *diag);
/* Ends a session that arrived and was not made completely. */
void ngd_session_discard(struct ngd_session *session);
/* The client of a session that arrived has left the old daemon. Nothing happens if it has come here. */
void ngd_session_left_before(struct ngd_sessions *sessions, uint64_t id, bool broken);

/* What other daemons are told. Called without a lock. */
struct ngd_session_watcher {
    void *ctx;
    /* The client of a session that has moved has left this daemon. */
    void (*left)(void *ctx, uint64_t id, bool broken);
    /* The client of a session that arrived comes for the first time. Not OK: it is refused, and may try again. */
    ngd_status_t (*came)(void *ctx, uint64_t id, struct ngd_diag *diag);
};
void ngd_sessions_watch(struct ngd_sessions *sessions,
                        const struct ngd_session_watcher *watcher); /* before it serves */

#endif
