/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SESSION_INT_H
#define NGD_DAEMON_SESSION_INT_H

/* Shared by session.c and session_move.c. */
#include "base/handle.h"
#include "base/lock.h"
#include "daemon/jobs.h"
#include "daemon/session_move.h"
#include <stdatomic.h>

#define SESSION_FROZEN 0x80000000u

enum session_state { SESSION_OPEN, SESSION_BROKEN, SESSION_ENDED };

struct ngd_session {
    struct ngd_sessions *sessions;
    struct ngd_identity *identity;
    bool has_bearer; /* a bearer token named the identity */
    struct ngd_share *share;
    struct ngd_usage *usage;
    struct ngd_order *orders[NGD_SESSION_STREAMS];
    struct ngd_session_events *events;
    struct ngd_answers *answers;
    uint64_t id;
    uint8_t token[NGD_SESSION_TOKEN_BYTES];
    char client_name[NGD_SESSION_NAME_MAX + 1], peer[128];
    ngd_nsec_t opened, grace;
    bool moves;            /* its client asked that it moves to the next daemon */
    ngd_nsec_t patience;   /* of one that has come from another daemon: the grace until it is resumed */
    _Atomic uint32_t work; /* calls that it serves, and SESSION_FROZEN */
    _Atomic uint32_t refs;
    _Atomic uint64_t requests;
    struct ngd_job job;
    struct ngd_list link; /* sessions->all */
    uint64_t serial;      /* ascends along that list */

    struct ngd_mutex lock;
    enum session_state state NGD_GUARDED_BY(lock);
    struct ngd_token *bearer NGD_GUARDED_BY(lock); /* a reference: that of the client that came last; or NULL */
    ngd_nsec_t broken_at NGD_GUARDED_BY(lock);
    struct ngd_client_stream *stream NGD_GUARDED_BY(lock);  /* a reference */
    bool greeted NGD_GUARDED_BY(lock);                      /* the stream's first message is on its way */
    bool told NGD_GUARDED_BY(lock);                         /* the stream was told that the daemon drains */
    bool leaving NGD_GUARDED_BY(lock);                      /* frozen to be described for another daemon */
    bool moved NGD_GUARDED_BY(lock);                        /* another daemon has it */
    bool came NGD_GUARDED_BY(lock);                         /* from another daemon, and was not resumed since */
    struct ngd_client_stream *closing NGD_GUARDED_BY(lock); /* a reference: the stream that waits for the end */
    struct ngd_list streams NGD_GUARDED_BY(lock);           /* open streams */
    struct ngd_handle_table *objects NGD_GUARDED_BY(lock);
    uint32_t counts[NGD_OBJECT_KINDS] NGD_GUARDED_BY(lock);
    uint64_t bytes NGD_GUARDED_BY(lock);
};

struct ngd_sessions {
    struct ngd_daemon *daemon;
    struct ngd_session_watcher watcher;
    _Atomic int64_t drain_grace_ms; /* NO_DRAIN: none was announced */
    struct ngd_mutex lock;
    struct ngd_list all NGD_GUARDED_BY(lock);
    uint32_t n NGD_GUARDED_BY(lock);
    uint64_t serials NGD_GUARDED_BY(lock); /* serial of the last session */
};

/* Creates a session without a stream, which is in no table. */
ngd_status_t ngd_session_make(struct ngd_sessions *all, const struct ngd_session_client *client,
                              struct ngd_session **session_p);
/* Enters it into the table, and takes the caller's reference. */
void ngd_session_enlist(struct ngd_sessions *all, struct ngd_session *session);
/* Marks the session ended, so that it cannot be resumed. False: it had ended already. True: the caller must call
 * ngd_session_finish_end. */
bool ngd_session_claim_end(struct ngd_session *session) NGD_REQUIRES(session->lock);
/* Gives the table's reference to the reaper. Ends a stream that the session still has, which can serve nothing any
 * more. */
void ngd_session_finish_end(struct ngd_session *session);
/* Charges an object to the session's identity. */
ngd_status_t ngd_session_charge(struct ngd_session *session, struct ngd_object *object, struct ngd_diag *diag);

#endif
