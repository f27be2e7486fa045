/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_CHANNEL_H
#define NPUGRAPH_CLIENT_CHANNEL_H

/*
 * A channel to the daemon, and calls by name with protobuf-c messages. session.c and client.c are above it; it knows
 * nothing of clients.
 * Threads: any number of threads may use a channel, but one thread at a time a stream.
 * Memory: the caller frees messages from *_p with npugraph__free_message.
 */
#include "client/lib/npugraph.h"
#include <google/protobuf-c/protobuf-c.h>

#define NPUGRAPH__TOKEN_BYTES 16

struct npugraph__channel;
int npugraph__channel_open(const struct npugraph_connect_params *params, struct npugraph__channel **channel_p,
                           struct npugraph_error *err);
/* Closes it, at the end of its last call. NULL is fine. */
void npugraph__channel_close(struct npugraph__channel *channel);
/* Sets the metadata that every later call carries. token: NPUGRAPH__TOKEN_BYTES bytes, copied. */
void npugraph__channel_set_session(struct npugraph__channel *channel, uint64_t id, const uint8_t *token);
/* Returns the number of the channel's bearer token, which is another one when the token file has another token; 0:
 * there is none. */
uint64_t npugraph__channel_token(struct npugraph__channel *channel);
uint32_t npugraph__channel_timeout(const struct npugraph__channel *channel);

/* One streaming call, used by one thread at a time. method: the full name, "/npugraph.v1.Graphs/Register". */
struct npugraph__stream;
int npugraph__channel_call(struct npugraph__channel *channel, const char *method, struct npugraph__stream **stream_p,
                           struct npugraph_error *err);
/* The same without the session: the call is its bearer token's, if there is one. */
int npugraph__channel_call_alone(struct npugraph__channel *channel, const char *method,
                                 struct npugraph__stream **stream_p, struct npugraph_error *err);
/*
 * Sends one message and takes one answer. If the daemon does not take the bearer token, and the token file has another
 * one by now, the call is made again with that: the first one was not served.
 * request_id: metadata npugraph-request-id, by which a repetition is known; NULL: none.
 */
int npugraph__channel_unary(struct npugraph__channel *channel, const char *method, const char *request_id,
                            const ProtobufCMessage *request, const ProtobufCMessageDescriptor *response_type,
                            ProtobufCMessage **response_p, struct npugraph_error *err);
void npugraph__free_message(void *message); /* NULL is fine */

/* Starts a call with its only request. The caller closes the stream if this succeeds. */
int npugraph__channel_ask(struct npugraph__channel *channel, const char *method, const ProtobufCMessage *request,
                          struct npugraph__stream **stream_p, struct npugraph_error *err);
/* Sends one message. A send that fails because the call has ended returns the call's status. */
int npugraph__stream_send(struct npugraph__stream *stream, const ProtobufCMessage *message, struct npugraph_error *err);
/* Receives the next message. At the end of the call the message is NULL, and the call's status is returned: 0 if it
 * ended well. */
int npugraph__stream_recv(struct npugraph__stream *stream, const ProtobufCMessageDescriptor *type,
                          ProtobufCMessage **message_p, struct npugraph_error *err);
/* The same, without unpacking it. The caller frees it with grpc_byte_buffer_destroy. */
struct grpc_byte_buffer;
int npugraph__stream_recv_raw(struct npugraph__stream *stream, struct grpc_byte_buffer **raw_p,
                              struct npugraph_error *err);
/* Sends and receives in one batch of the core, with half the wake-ups of a send and a receive. */
int npugraph__stream_exchange(struct npugraph__stream *stream, const ProtobufCMessage *message,
                              const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply_p,
                              struct npugraph_error *err);
/*
 * Receives without waiting. False: nothing has come. True with a message: it has. True without one: the call is over,
 * and *over_p is set.
 */
bool npugraph__stream_try_recv(struct npugraph__stream *stream, const ProtobufCMessageDescriptor *type,
                               ProtobufCMessage **message_p, bool *over_p);
int npugraph__stream_half_close(struct npugraph__stream *stream, struct npugraph_error *err);
void npugraph__stream_cancel(struct npugraph__stream *stream);
void npugraph__stream_close(struct npugraph__stream *stream); /* cancels what is left; NULL is fine */
/* Overrides the client timeout for this stream; 0 means none (used by watch). */
void npugraph__stream_set_timeout(struct npugraph__stream *stream, uint32_t timeout_ms);

/*
 * Calls of any channels that are followed by one thread, instead of a thread that waits in each: a request, and any
 * number of answers; or, with `more`, an answer to each request, where the client's timeout is one for each answer.
 * The thread calls `message` for each answer, which owns it; not 0 ends the call with that error. It calls `end` once,
 * behind the last message. Both may run before npugraph__follow returns, but after *call_p is set. While they run, all
 * other calls wait.
 */
struct npugraph__follower;
struct npugraph__followed; /* a call, until its `end` has returned */
struct npugraph__follow_ops {
    int (*message)(void *user, ProtobufCMessage *message, struct npugraph_error *err);
    void (*end)(void *user, int rc, const struct npugraph_error *err);
};
int npugraph__follower_start(struct npugraph__follower **follower_p, struct npugraph_error *err);
void npugraph__follower_stop(struct npugraph__follower *follower); /* cancels its calls and waits for their ends */
struct npugraph__followed_call {
    const char *method;
    const ProtobufCMessageDescriptor *type; /* of answers */
    const struct npugraph__follow_ops *ops;
    bool more;
};
int npugraph__follow(struct npugraph__follower *follower, struct npugraph__channel *channel,
                     const struct npugraph__followed_call *what, const ProtobufCMessage *request, void *user,
                     struct npugraph__followed **call_p, struct npugraph_error *err);
/* Sends the next request of a call with `more`, whose last one was answered. If that fails, the call's end says so. Any
 * thread, before `end` returns, as for the next two. */
void npugraph__followed_send(struct npugraph__followed *call, const ProtobufCMessage *message);
/* Ends the call with an error of the caller's, unless it is over. */
void npugraph__followed_fail(struct npugraph__followed *call, int rc, const struct npugraph_error *err);
void npugraph__followed_cancel(struct npugraph__followed *call);

#endif
