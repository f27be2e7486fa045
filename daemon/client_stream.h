/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CLIENT_STREAM_H
#define NGD_DAEMON_CLIENT_STREAM_H

/*
 * A client's open stream, as sessions see it. Sessions keep it, send on it and end it, and do not know calls.
 *
 * Threads: any. Memory: reference counted; the maker embeds the struct in the object that it counts.
 */
#include "base/list.h"
#include "base/status.h"
#include <protobuf-c/protobuf-c.h>
#include <stdatomic.h>

struct ngd_client_stream;

/* All are required, and are called with no lock held, except ref. */
struct ngd_client_stream_ops {
    void (*ref)(struct ngd_client_stream *stream);
    void (*unref)(struct ngd_client_stream *stream);
    /* Queues a message. If this fails, the message is lost, and the stream should end with the returned status. */
    ngd_status_t (*send)(struct ngd_client_stream *stream, const ProtobufCMessage *msg);
    /* Ends the stream with status OK after the queued messages. */
    void (*finish)(struct ngd_client_stream *stream);
    /* Ends the stream with this status as soon as no message is being answered. */
    void (*end)(struct ngd_client_stream *stream, ngd_status_t status, const char *text);
};

struct ngd_client_stream {
    const struct ngd_client_stream_ops *ops;
    struct ngd_list link; /* in the session's list of streams */
    /* Its client can go on where it ends; a session that moves ends it. Set before it is in the list. */
    _Atomic bool resumable;
};

static inline struct ngd_client_stream *ngd_client_stream_ref(struct ngd_client_stream *stream) /* NULL is fine */
{
    if (stream)
        stream->ops->ref(stream);
    return stream;
}

static inline void ngd_client_stream_unref(struct ngd_client_stream *stream) /* NULL is fine */
{
    if (stream)
        stream->ops->unref(stream);
}

#endif
