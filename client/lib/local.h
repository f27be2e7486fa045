/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_LOCAL_H
#define NPUGRAPH_CLIENT_LOCAL_H

/* The daemon's local socket, over which descriptors go. Threads: any. */
#include "client/lib/session.h"
#include "proto/npugraph.pb-c.h"

#define NPUGRAPH__LOCAL_FDS 2

/*
 * Connects, sends one request of the session with a descriptor (-1: none), and takes the answer. fds: NULL, or gets the
 * descriptors that must come with it. The caller closes socket and descriptors, and frees the answer with
 * npugraph__v1__local_response__free_unpacked. UNAVAILABLE: there is no local socket. timeout_ms: 0 is no bound.
 */
int npugraph__local_ask(const struct npugraph__session *session, uint32_t timeout_ms, Npugraph__V1__LocalRequest *req,
                        int fd, int *socket_p, int *fds, Npugraph__V1__LocalResponse **answer_p,
                        struct npugraph_error *err);

#endif
