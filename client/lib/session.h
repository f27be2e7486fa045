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
 * If the token file has another token than the session was opened with, resumes the session with that, so that it does
 * not end when the first one expires. If that fails, the session is as it was, and a later call tries again. Under the
 * client's lock.
 */
void npugraph__session_renew(struct npugraph__session *session, struct npugraph__channel *channel);
/* Ends the session, and waits for the daemon to free what it owns. */
void npugraph__session_close(struct npugraph__session *session);

#endif
