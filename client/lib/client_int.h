/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_INT_H
#define NPUGRAPH_CLIENT_INT_H

/*
 * Calls of a client by name with protobuf-c messages, for use inside libnpugraph and npugraphctl.
 * Threads: as npugraph.h says. Memory: the caller frees messages from *_p with npugraph__free_message.
 */
#include "client/lib/channel.h"
#include "client/lib/error.h"
#include "client/lib/daemon_link.h"
#include "client/lib/npugraph.h"

#include <time.h>

/*
 * npugraph__channel_unary and npugraph__channel_call on the link of the session's objects. unary follows the session if
 * it moves, and repeats the call if it was refused. unary_again repeats it too if the connection broke and the session
 * is in the next daemon: a request id keeps it from being done twice, if doing it twice is not the same.
 */
int npugraph__unary_again(struct npugraph_client *client, const char *method, const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *response_type, ProtobufCMessage **response_p,
                          struct npugraph_error *err);
int npugraph__unary(struct npugraph_client *client, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *response_type, ProtobufCMessage **response_p,
                    struct npugraph_error *err);
int npugraph__stream_open(struct npugraph_client *client, const char *method, struct npugraph__stream **stream_p,
                          struct npugraph_error *err);
/* The link of the session's objects, which stays open. It may be another one after npugraph__client_follow_home. */
struct npugraph__link *npugraph__client_home(struct npugraph_client *client);
/*
 * After a call on the link has failed with f->why: enters the link on which to repeat it, and returns it, because the
 * session moves to another daemon, or has moved. It may wait and connect. NULL: the failure is another one. The link of
 * the failed call is not left.
 * again: the call may be repeated even if the daemon may have served it, and the answer was lost with it.
 */
struct npugraph__follow {
    struct npugraph__link *link; /* of the last try */
    struct npugraph_error why;
    time_t until;      /* when to give up, by the monotonic clock; 0: it has not waited yet */
    unsigned moves;    /* to other links */
    unsigned unopened; /* how often no daemon was reached for a new session before the call failed */
    unsigned renewals; /* the call was sent to so many new sessions, since it made progress */
    unsigned restores; /* of its sequence */
    uint32_t wait_ms;  /* for another daemon, if the one that has the session is lost; 0: it must be there */
    bool later;        /* the caller cannot wait: it tries again later */
    bool not_yet;      /* with `later`: it should, since a daemon, or the model there, may come in time */
};
struct npugraph__link *npugraph__client_follow(struct npugraph_client *client, struct npugraph__link *link,
                                               struct npugraph__follow *f, bool again);
/* The same for the link of the session's objects, which needs no users. */
struct npugraph__link *npugraph__client_follow_home(struct npugraph_client *client, struct npugraph__link *link,
                                                    struct npugraph__follow *f, bool again);
/*
 * After a call on the link has failed with f->why because its session is lost: enters that of another session, in which
 * nothing of the lost one is. It waits at most f->wait_ms from the loss on, whatever call notices it, and returns at
 * most twice for one call, so that a call that kills its daemons ends. NULL: it is not lost, or no daemon comes, or has
 * come yet.
 */
struct npugraph__link *npugraph__client_leave_lost(struct npugraph_client *client, struct npugraph__link *link,
                                                   struct npugraph__follow *f);
/* Waits a while for a daemon, or for what one will have. False: f->wait_ms since the client's last loss are over, or
 * the caller cannot wait. *pause_ms grows; the first one is 0. */
bool npugraph__client_pause(struct npugraph_client *client, struct npugraph__follow *f, uint32_t *pause_ms);
/* True if a call that has failed so may go on: its session moves, or is lost. */
bool npugraph__client_may_go_on(const struct npugraph_client *client, const struct npugraph_error *why);
/* The names of models that sequences were opened of. The oldest of many is forgotten. */
void npugraph__client_note_model(struct npugraph_client *client, const char *name);
bool npugraph__client_knows_model(struct npugraph_client *client, const char *name);
/*
 * Returns the link for work that needs no object of the session: that of the daemon that serves now. It may connect.
 * It stays open until each enter and keep has a leave.
 */
struct npugraph__link *npugraph__client_enter(struct npugraph_client *client);
/*
 * npugraph__unary_again on an entered link, which may become another one. f: as npugraph__client_follow has it. anew:
 * the call needs nothing of the session, so that it is repeated in a new session if this one is lost; f->wait_ms then
 * says for how long to wait for one.
 */
int npugraph__entered_call(struct npugraph_client *client, struct npugraph__link **link_p, bool anew,
                           struct npugraph__follow *f, const char *method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *response_type, ProtobufCMessage **response_p);
/* The same with a follow of its own, which does not wait. */
int npugraph__entered_unary(struct npugraph_client *client, struct npugraph__link **link_p, bool anew,
                            const char *method, const ProtobufCMessage *request,
                            const ProtobufCMessageDescriptor *response_type, ProtobufCMessage **response_p,
                            struct npugraph_error *err);
/* Leaves *link_p, and puts an entered link in its place. */
void npugraph__client_change(struct npugraph_client *client, struct npugraph__link **link_p, struct npugraph__link *to);
void npugraph__client_keep(struct npugraph_client *client, struct npugraph__link *link);
void npugraph__client_leave(struct npugraph_client *client, struct npugraph__link *link);
/* Call before the session gets an object: calls with ids stay on its link from then on. models: sequences too. */
void npugraph__client_hold(struct npugraph_client *client, bool models);
uint32_t npugraph__client_timeout(const struct npugraph_client *client);
/* Parts of the client: its shared buffers, and its session (shared.h, session.h). */
struct npugraph__shared *npugraph__client_shared(struct npugraph_client *client);
const struct npugraph__session *npugraph__client_session(struct npugraph_client *client);
/* A lane of the link's ring (ring.h); NULL: there is none. */
struct npugraph__lane *npugraph__link_lane(struct npugraph__link *link);

#endif
