/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_RING_H
#define NPUGRAPH_CLIENT_RING_H

/*
 * The client's ring: replays and steps by memory that is shared with the daemon (base/ring.h). A lane stands in the
 * place of a stream, and is used by one thread at a time. Where there is no ring or no lane, and for what does not fit,
 * there is gRPC.
 *
 * Threads: any. Memory: the ring is the client's; its lanes are given back before it goes.
 */
#include "client/lib/npugraph.h"
#include <google/protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <stdatomic.h>

struct npugraph__session;
struct npugraph__lane;

struct npugraph__ring_map; /* an open ring */

struct npugraph__ring {
    pthread_mutex_t lock;
    bool wanted;                    /* false: it was tried, or is not to be */
    struct npugraph__ring_map *map; /* NULL: none */
};

#define NPUGRAPH__ELSEWHERE (-1) /* send the request over gRPC; nothing was done */

void npugraph__ring_init(struct npugraph__ring *ring, bool wanted);
void npugraph__ring_close(struct npugraph__ring *ring);
bool npugraph__ring_is_open(struct npugraph__ring *ring);
/* Returns a lane for the requests of one stream, or NULL. Opens the ring for the first. */
struct npugraph__lane *npugraph__lane_take(struct npugraph__ring *ring, const struct npugraph__session *session,
                                           uint32_t timeout_ms);
void npugraph__lane_give(struct npugraph__lane *lane); /* NULL is fine */
/* Sends a request and waits for its answer. method: NGD_RING_REPLAY or NGD_RING_STEP. Returns 0, a status, or
 * NPUGRAPH__ELSEWHERE; after it, and after errors of the ring, the caller gives the lane back. */
int npugraph__lane_exchange(struct npugraph__lane *lane, uint32_t method, const ProtobufCMessage *message,
                            const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply_p,
                            struct npugraph_error *err);
/* The same in two steps. Behind a request that was sent (0, not NPUGRAPH__ELSEWHERE), its answer must be taken. */
int npugraph__lane_send(struct npugraph__lane *lane, uint32_t method, const ProtobufCMessage *message);
int npugraph__lane_receive(struct npugraph__lane *lane, const ProtobufCMessageDescriptor *type,
                           ProtobufCMessage **reply_p, struct npugraph_error *err);

#endif
