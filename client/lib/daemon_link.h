/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_DAEMON_LINK_H
#define NPUGRAPH_CLIENT_DAEMON_LINK_H

/*
 * A link: a connection to one daemon, with a session on it. A client has one. When another daemon takes over
 * (npugraphd --replace), or the daemon is lost, it makes a second one, and the first one is closed when nothing needs
 * it any more. Threads: any. Memory: a link belongs to its client, and lives as long, as its session's id and the
 * daemon's version do; the session, the connection and the ring may be closed earlier.
 */
#include "client/lib/channel.h"
#include "client/lib/ring.h"
#include "client/lib/session.h"
#include "client/lib/shared.h"

struct npugraph__link {
    struct npugraph__link *older; /* NULL: it is the client's first one */
    struct npugraph__link *moved; /* where its session is now; NULL: here. By the client's lock */
    struct npugraph__channel *channel;
    struct npugraph__session session;
    struct npugraph__shared shared;
    struct npugraph__ring ring;
    size_t users;  /* sequences and calls, and a link whose session has moved here; by the client's lock */
    bool home;     /* it is or was the home of the session's objects, which know it; by the client's lock */
    bool replaced; /* its daemon has said so; by the client's lock */
    bool leaves;   /* its daemon has said that the session has moved; by the client's lock */
    bool lost;     /* its session was found lost; by the client's lock */
    bool ended;    /* its session is over, or elsewhere; by the client's lock */
    bool closed;   /* nothing needs it any more; by the client's lock */
};

/* Connects, and opens a session. A daemon that is just being replaced is asked again: another connection reaches the
 * new one. */
int npugraph__link_open(const struct npugraph_connect_params *params, struct npugraph__link **link_p,
                        struct npugraph_error *err);
/* Connects, and resumes the session of another link. */
int npugraph__link_follow(const struct npugraph_connect_params *params, const struct npugraph__link *from,
                          struct npugraph__link **link_p, struct npugraph_error *err);
void npugraph__link_shut(struct npugraph__link *link);  /* closes all that a link can do without */
void npugraph__link_close(struct npugraph__link *link); /* frees it too; NULL is fine */
/* Reads what the daemon says on the session's stream, without waiting. Under the client's lock. */
void npugraph__link_listen(struct npugraph__link *link);

#endif
