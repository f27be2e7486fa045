/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_SESSION_H
#define NPUGRAPH_CLIENT_SESSION_H

/* The session on a channel. A struct of zeros is a session that has not been opened. */
#include "client/lib/channel.h"
#include <time.h>

struct npugraph__session {
    struct npugraph__stream *stream; /* open for as long as the session lives */
    uint64_t id;
    char version[64]; /* of the daemon */
    char local[108];  /* path of the local socket; "": there is none */
    uint8_t token[NPUGRAPH__TOKEN_BYTES];
    uint64_t bearer;       /* number of the bearer token that it was opened or resumed with */
    struct timespec tried; /* when a resume with another one failed */
};

/*
 * Opens a session; calls of the channel carry it from then on. grace_ms: how long the daemon keeps the session's
 * objects after the connection broke. The caller closes the session even if this fails.
 */
int npugraph__session_open(struct npugraph__session *session, struct npugraph__channel *channel,
                           const char *client_name, uint32_t grace_ms, struct npugraph_error *err);
/* Resumes a session that has moved to the daemon at the other end of the channel. The caller closes it even if this
 * fails. */
int npugraph__session_resume(struct npugraph__session *session, struct npugraph__channel *channel,
                             const struct npugraph__session *from, struct npugraph_error *err);
/* Gives up the stream of a session that was resumed on another connection. */
void npugraph__session_abandon(struct npugraph__session *session);
/*
 * The renewal of a session when the token file has another token than the session was opened with, so that it does not
 * end when the first one expires. is_old returns the number of the new token, 0: it is not time. ask resumes the
 * session on another stream and takes as long as a connection may; NULL: it failed, and the session is as it was.
 * renewed puts that stream in place. is_old and renewed under the client's lock, ask without it and once at a time.
 */
uint64_t npugraph__session_is_old(const struct npugraph__session *session, struct npugraph__channel *channel);
struct npugraph__stream *npugraph__session_ask(const struct npugraph__session *session,
                                               struct npugraph__channel *channel);
void npugraph__session_renewed(struct npugraph__session *session, struct npugraph__stream *fresh, uint64_t bearer);
/* Ends the session, and waits for the daemon to free what it owns. */
void npugraph__session_close(struct npugraph__session *session);

#endif
