/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_INT_H
#define NPUGRAPH_CLIENT_INT_H

/*
 * Calls of a client by name with protobuf-c messages, for use inside libnpugraph and npugraphctl.
 * Threads: as npugraph.h says. Memory: the caller frees messages from *_p with npugraph__free_message.
 */
#include "client/lib/channel.h"
#include "client/lib/error.h"
#include "client/lib/npugraph.h"

/* npugraph__channel_unary, npugraph__channel_call and npugraph__follower_start on the client's channel. */
int npugraph__unary(struct npugraph_client *client, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *response_type, ProtobufCMessage **response_p,
                    struct npugraph_error *err);
int npugraph__stream_open(struct npugraph_client *client, const char *method, struct npugraph__stream **stream_p,
                          struct npugraph_error *err);
int npugraph__client_follow(struct npugraph_client *client, struct npugraph__follower **follower_p,
                            struct npugraph_error *err);
uint32_t npugraph__client_timeout(const struct npugraph_client *client);
/* A lane of the client's ring (ring.h); NULL: there is none. */
struct npugraph__lane *npugraph__client_lane(struct npugraph_client *client);
/* Parts of the client: its shared buffers, and its session (shared.h, session.h). */
struct npugraph__shared *npugraph__client_shared(struct npugraph_client *client);
const struct npugraph__session *npugraph__client_session(const struct npugraph_client *client);

#endif
