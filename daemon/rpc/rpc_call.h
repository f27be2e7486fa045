/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_CALL_H
#define NGD_DAEMON_RPC_RPC_CALL_H

/*
 * One RPC, as its handler sees it. gRPC itself stays behind rpc_call.c and rpc_server.c, rings behind ring_call.c.
 *
 * Kinds (rpc_method.h), and what a handler owes:
 *
 *   UNARY          one request(); one reply or fail, from any thread, now or later
 *   SERVER_STREAM  one request(); any number of sends; one finish or fail
 *   CLIENT_STREAM  request() per message; half_closed(); one reply or fail at any time
 *   LOCKSTEP       request() per message, each answered once before the next is read; a half-close ends the call
 *   DUPLEX         request() per message; sends at any time; half_closed(); one finish or fail
 *
 * Threads: request() and half_closed() run on the call's receiving thread. cancelled() runs there too, at most once, if
 * the client cancels or vanishes before the call is finished. The handler should then stop what waits; it still owes
 * its answer. If a repetition is served in its leader's place (repeat.h), its request() runs on a job thread, and
 * cancelled() runs after request() has returned, there or on the receiving thread.
 *
 * Replies may come from any thread, but only from one at a time (the call's owner). Sends and ends of streams are
 * locked inside. After a call is finished, only holders of a reference may touch it.
 *
 * Memory: a request (and what it points to) lives until it is answered. `arena` is emptied with each answer, `life`
 * with the call. Both keep their blocks for the next call, so small requests do not touch the heap.
 */
#include "base/annotations.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "daemon/answers.h"
#include "daemon/client_stream.h"
#include "daemon/trace/record.h"
#include <protobuf-c/protobuf-c.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ngd_call;
struct ngd_daemon;
struct ngd_identity;
struct ngd_method;
struct ngd_session;
struct ngd_token;

/* Follows a call to its end from outside its handler (repeat.h). Memory: the call's `life`. */
struct ngd_call_wrap {
    /* Required. The call's owner calls one of them before the client gets the answer: an encoded message, or why there
     * is none. */
    void (*succeeded)(struct ngd_call *call, const uint8_t *data, size_t n);
    void (*failed)(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag);
    /* Required. Called in the place of the handler's, on the receiving thread, while the call is not SERVED. */
    void (*cancelled)(struct ngd_call *call);
    _Atomic int served; /* ngd_call_served_t */
};

/* How a call's answers reach its client, if not by gRPC: a lane of a ring (ring_call.c), which is LOCKSTEP. All are
 * required, and do what the functions below of that name do. */
struct ngd_call_transport {
    void (*ref)(struct ngd_call *call);
    void (*unref)(struct ngd_call *call);
    uint8_t *(*reserve)(struct ngd_call *call, size_t max, ngd_status_t *status_p, struct ngd_diag *diag);
    void (*reply_reserved)(struct ngd_call *call, size_t n);
    void (*answer)(struct ngd_call *call, const ProtobufCMessage *msg);
    void (*fail)(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag);
};

/* Whether the handler has a wrapped call. */
typedef enum ngd_call_served {
    NGD_CALL_UNSERVED, /* no, or a job thread is just giving it to the handler */
    NGD_CALL_UNTOLD,   /* like UNSERVED, and the call was cancelled meanwhile */
    NGD_CALL_SERVED,   /* yes: the handler is told of a cancellation */
} ngd_call_served_t;

struct ngd_call {
    struct ngd_daemon *daemon;
    const struct ngd_method *method;
    struct ngd_session *session;   /* a reference; NULL when none was named */
    struct ngd_identity *identity; /* a reference */
    struct ngd_token *bearer;      /* a reference to the token that named the identity; NULL: the connection did */
    struct ngd_arena arena, life;
    ngd_nsec_t arrived;     /* arrival of the call; of streams: of the message */
    ngd_nsec_t deadline;    /* NGD_NSEC_NEVER */
    _Atomic bool cancelled; /* the client cancelled it or vanished */
    char request_id[NGD_REQUEST_ID_MAX + 1];
    char peer[128];
    void *state;                                /* the handler's; usually in `life` */
    struct ngd_client_stream stream;            /* as one of its session's streams */
    const char *object;                         /* what an audited call is about, in `life`; or NULL */
    struct ngd_call_wrap *wrap;                 /* NULL: none; set before the handler gets the call */
    const struct ngd_call_transport *transport; /* NULL: gRPC */
    /* In `life`. */
    const struct ngd_trace_context *trace_parent; /* of a call with a trace context; NULL: none that is well formed */
    struct ngd_trace_record *_Atomic trace;       /* of the call, or of a stream's message; NULL: it is not traced */
    struct ngd_trace_record *trace_room;          /* of a stream, for its messages */
    bool elsewhere; /* the answer does not fit into the lane of a ring: the client asks again over gRPC */
};

/* A message as it arrived, for methods without a request descriptor. It is in pieces, and also in one piece except for
 * CLIENT_STREAM. */
struct ngd_piece {
    const uint8_t *data;
    size_t n;
};
struct ngd_raw_message {
    const uint8_t *data; /* NULL for CLIENT_STREAM */
    size_t n;
    const struct ngd_piece *pieces;
    size_t n_pieces;
};

struct ngd_rpc_ops {
    /* UNARY, SERVER_STREAM: the call makes or changes something, so a repetition with the same request id must not be
     * served again (repeat.h). */
    bool once;
    bool resumable; /* streams: as in struct ngd_client_stream */
    /* Required. msg: the unpacked message, or a struct ngd_raw_message if the method has no descriptor. */
    void (*request)(struct ngd_call *call, const void *msg);
    /* Required for CLIENT_STREAM and DUPLEX: the client sends no more messages. broken: the connection is gone. */
    void (*half_closed)(struct ngd_call *call, bool broken);
    /* Optional, LOCKSTEP: answers a message with a value that is not allowed. Without it such a message fails the
     * call. */
    void (*refused)(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag);
    void (*cancelled)(struct ngd_call *call); /* optional */
    void (*sent)(struct ngd_call *call);      /* optional, on the receiving thread: all that was sent has left */
    void (*release)(struct ngd_call *call);   /* optional: the call is over, and nobody holds it */
};

struct ngd_call *ngd_call_ref(struct ngd_call *call);
void ngd_call_unref(struct ngd_call *call);

/* True if the call came with this metadata. */
bool ngd_call_metadata_is(struct ngd_call *call, const char *key, const char *value);

/* ---- answers ---- */

/* UNARY, CLIENT_STREAM: answers with status OK. */
void ngd_call_reply(struct ngd_call *call, const ProtobufCMessage *msg);
/* Reserves a message of at most `max` bytes, which is built in place. NULL: it is larger than max-message, or out of
 * memory (*status_p). */
uint8_t *ngd_call_reserve(struct ngd_call *call, size_t max, ngd_status_t *status_p, struct ngd_diag *diag);
/* UNARY, LOCKSTEP: answers with the first n bytes of the reserved message. */
void ngd_call_reply_reserved(struct ngd_call *call, size_t n);
/* LOCKSTEP: answers the present request. */
void ngd_call_answer(struct ngd_call *call, const ProtobufCMessage *msg);
/* Every kind: ends the call with an error. diag may be NULL. */
void ngd_call_fail(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag);
/*
 * SERVER_STREAM, DUPLEX: queues a message. CANCELLED: the call is over, and its handler is told or will be. Any other
 * error: the message is lost, and its client must learn that, so the call should be ended with the returned status. If
 * it is finished instead, its status is still not OK.
 */
NGD_MUST_USE ngd_status_t ngd_call_send(struct ngd_call *call, const ProtobufCMessage *msg);
NGD_MUST_USE ngd_status_t ngd_call_send_reserved(struct ngd_call *call, size_t n); /* one sender */
/*
 * The same with a message of two parts: a head, which is copied, and data, which is sent from where it lies. `release`
 * is called when it has been sent, or will not be, on any thread; also after an error. It begins with
 * NGD_TSAN_TAKE(user).
 */
NGD_MUST_USE ngd_status_t ngd_call_send_borrowed(struct ngd_call *call, const uint8_t *head, size_t n_head,
                                                 const void *data, size_t n, void (*release)(void *user), void *user);
/* SERVER_STREAM, DUPLEX: ends the stream after the queued messages, with OK or with the reason why a message was
 * lost. */
void ngd_call_finish(struct ngd_call *call);
/* SERVER_STREAM: sends a last message, which is what a repetition gets, and ends the stream. */
void ngd_call_finish_with(struct ngd_call *call, const ProtobufCMessage *msg);
/* Streams, from any thread that holds a reference: ends the stream with this status as soon as no message is being
 * answered. */
void ngd_call_end(struct ngd_call *call, ngd_status_t status, const char *text);
/* Streams: number of messages that wait to be sent or are being sent. */
uint32_t ngd_call_unsent(struct ngd_call *call);

/* Answer with a whole encoded message that an earlier call was answered with (repeat.h). */
void ngd_call_reply_encoded(struct ngd_call *call, const uint8_t *data, size_t n);
NGD_MUST_USE ngd_status_t ngd_call_send_encoded(struct ngd_call *call, const uint8_t *data, size_t n);
/*
 * UNARY, SERVER_STREAM: ends the call with the message that the wrapped call `first` succeeded with. The caller holds a
 * reference on first. The bytes are shared, not copied: first's identity is charged for them until the last call has
 * sent them.
 */
void ngd_call_reply_as(struct ngd_call *call, struct ngd_call *first);

/* ---- for the wrapper of a call ---- */

/* Reports that request() of an UNSERVED call has returned. The caller holds a reference. */
void ngd_call_served(struct ngd_call *call);

#endif
