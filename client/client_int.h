/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_INT_H
#define NPUGRAPH_CLIENT_INT_H

/*
 * Inside libnpugraph and npugraphctl: calls by name with protobuf-c messages. Only channel.c knows gRPC.
 * Threads: as npugraph.h says. Memory: messages given by *_p are freed with npugraph__free_message.
 */
#include "client/npugraph.h"
#include <google/protobuf-c/protobuf-c.h>

/* Methods by full name, "/npugraph.v1.Graphs/Register". */
int npugraph__unary(struct npugraph_client *client, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *response_type, ProtobufCMessage **response_p,
                    struct npugraph_error *err);
void npugraph__free_message(void *message); /* NULL is fine */

/* One streaming call, used by one thread at a time. */
struct npugraph__stream;
int npugraph__stream_open(struct npugraph_client *client, const char *method, struct npugraph__stream **stream_p,
                          struct npugraph_error *err);
/* Sends one message. A send that fails because the call has ended returns the call's status. */
int npugraph__stream_send(struct npugraph__stream *stream, const ProtobufCMessage *message, struct npugraph_error *err);
/* The next message, or NULL at the end of the call (then its status is returned: 0 when it ended well). */
int npugraph__stream_recv(struct npugraph__stream *stream, const ProtobufCMessageDescriptor *type,
                          ProtobufCMessage **message_p, struct npugraph_error *err);
/* Send and receive in one batch of the core: half the wake-ups of a send followed by a receive. */
int npugraph__stream_exchange(struct npugraph__stream *stream, const ProtobufCMessage *message,
                              const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply_p,
                              struct npugraph_error *err);
int npugraph__stream_half_close(struct npugraph__stream *stream, struct npugraph_error *err);
void npugraph__stream_cancel(struct npugraph__stream *stream);
void npugraph__stream_close(struct npugraph__stream *stream); /* cancels what is left; NULL is fine */

/* A timeout of the client for the next calls of this thread is not wanted anywhere; streams without a bound are: watch.
 */
void npugraph__stream_set_timeout(struct npugraph__stream *stream, uint32_t timeout_ms);

int npugraph__error(struct npugraph_error *err, int code, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* session.c */
int npugraph__session_start(struct npugraph_client *client, const char *client_name, uint32_t grace_ms,
                            struct npugraph_error *err);
void npugraph__session_end(struct npugraph_client *client);

/* What the session layer keeps inside the client object (channel.c owns the object). */
struct npugraph__session {
    struct npugraph__stream *stream;
    uint64_t id;
    uint8_t token[16]; /* secret: whoever has id and token uses the session, where the transport proves no identity */
    char version[64];
};
struct npugraph__session *npugraph__session_of(struct npugraph_client *client);
/* Sets the metadata that every later call carries; token: as long as that of npugraph__session. */
void npugraph__client_set_session(struct npugraph_client *client, uint64_t id, const uint8_t *token);
uint32_t npugraph__client_timeout(const struct npugraph_client *client);

#endif
