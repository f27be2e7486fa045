/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_CALL_H
#define NGD_DAEMON_RPC_RPC_CALL_H

/*
 * One RPC, as its handler sees it. gRPC itself stays behind rpc_call.c and rpc_server.c.
 *
 * Kinds (rpc_method.h) and what a handler owes:
 *
 *   UNARY          one request(); one reply or fail, from any thread, now or later
 *   SERVER_STREAM  one request(); any number of sends; one finish or fail
 *   CLIENT_STREAM  request() per message; half_closed(); one reply or fail at any time
 *   LOCKSTEP       request() per message, each answered once before the next is read; a half-close ends the call
 *   DUPLEX         request() per message; sends at any time; half_closed(); one finish or fail
 *
 * Threads: request() and half_closed() run on the call's receiving thread; cancelled() too, at most once, when the
 * client gave up or vanished before the call was finished: whatever waits should be stopped, the handler still owes its
 * answer. A repetition that is served in its leader's place (repeat.h) has its request() on a job thread, and
 * cancelled() after request() has returned, there or on the receiving thread. Replies may come from any thread, from
 * one at a time (the call's owner); sends and ends of streams are locked inside. After finishing, the call must not be
 * touched by whoever holds no reference.
 *
 * Memory: a request (and what it points to) lives until it is answered. `arena` is emptied with each answer, `life`
 * with the call; both keep their blocks for the next call, so small requests do not touch the heap.
 */
#include "base/annotations.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "daemon/answers.h"
#include "daemon/client_stream.h"
#include <protobuf-c/protobuf-c.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ngd_call;
struct ngd_daemon;
struct ngd_identity;
struct ngd_method;
struct ngd_session;

/* Who follows a call to its end from outside its handler (repeat.h). In the call's `life`. */
struct ngd_call_wrap {
    /* Required, by the call's owner, before the client gets the answer: an encoded message, or why there is none. */
    void (*succeeded)(struct ngd_call *call, const uint8_t *data, size_t n);
    void (*failed)(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag);
    /* Required, in the place of the handler's, on the receiving thread, while the call is not SERVED. */
    void (*cancelled)(struct ngd_call *call);
    _Atomic int served; /* ngd_call_served_t */
};

/* Does the handler have a wrapped call? */
typedef enum ngd_call_served {
    NGD_CALL_UNSERVED, /* no, or it is just getting it on a job thread */
    NGD_CALL_UNTOLD,   /* likewise, and the call was cancelled meanwhile */
    NGD_CALL_SERVED,   /* yes: it hears of a cancellation */
} ngd_call_served_t;

struct ngd_call {
    struct ngd_daemon *daemon;
    const struct ngd_method *method;
    struct ngd_session *session;   /* a reference; NULL when none was named */
    struct ngd_identity *identity; /* a reference */
    struct ngd_arena arena, life;
    ngd_nsec_t arrived;     /* the call; streams: the message */
    ngd_nsec_t deadline;    /* NGD_NSEC_NEVER */
    _Atomic bool cancelled; /* the client gave up */
    char request_id[NGD_REQUEST_ID_MAX + 1];
    char peer[128];
    void *state;                     /* the handler's; usually in `life` */
    struct ngd_client_stream stream; /* to its session, when it is one of its streams */
    struct ngd_call_wrap *wrap;      /* NULL: none; set before the handler has the call */
};

/* A message as it came, for methods without a request descriptor: in pieces, and in one piece except for CLIENT_STREAM.
 */
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
    /* UNARY, SERVER_STREAM: makes or changes something, so that a repetition under the same request id must not do it
     * again (repeat.h). */
    bool once;
    /* Required. msg: the unpacked message, or a struct ngd_raw_message when the method has no descriptor. */
    void (*request)(struct ngd_call *call, const void *msg);
    /* Streams of the client, required for CLIENT_STREAM and DUPLEX: no more messages. broken: the connection is gone.
     */
    void (*half_closed)(struct ngd_call *call, bool broken);
    /* Optional, LOCKSTEP: answers a message that has a value which is not allowed. Without it the call fails. */
    void (*refused)(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag);
    void (*cancelled)(struct ngd_call *call); /* optional */
    void (*sent)(struct ngd_call *call);      /* optional, on the receiving thread: everything that was sent is out */
    void (*release)(struct ngd_call *call);   /* optional: the call is over and nobody holds it */
};

struct ngd_call *ngd_call_ref(struct ngd_call *call);
void ngd_call_unref(struct ngd_call *call);

/* ---- answers ---- */

/* UNARY, CLIENT_STREAM: the answer with status OK. */
void ngd_call_reply(struct ngd_call *call, const ProtobufCMessage *msg);
/* Room for a message that is built in place, at most `max` bytes. NULL: larger than max-message, or out of memory
 * (*status_p). */
uint8_t *ngd_call_reserve(struct ngd_call *call, size_t max, ngd_status_t *status_p, struct ngd_diag *diag);
/* UNARY, LOCKSTEP: answers with the first n bytes of what was reserved. */
void ngd_call_reply_reserved(struct ngd_call *call, size_t n);
/* LOCKSTEP: answers this request. */
void ngd_call_answer(struct ngd_call *call, const ProtobufCMessage *msg);
/* Every kind: ends the call with an error. diag may be NULL. */
void ngd_call_fail(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag);
/*
 * SERVER_STREAM, DUPLEX: queues a message. CANCELLED: the call is over, and its handler is told or will be. Anything
 * else: the message is lost, which its client must learn; the call should be ended with that status. Should it be
 * finished all the same, its status is not OK.
 */
NGD_MUST_USE ngd_status_t ngd_call_send(struct ngd_call *call, const ProtobufCMessage *msg);
NGD_MUST_USE ngd_status_t ngd_call_send_reserved(struct ngd_call *call, size_t n); /* one sender */
/* SERVER_STREAM, DUPLEX: status OK after what is queued, or why a message before it was lost. */
void ngd_call_finish(struct ngd_call *call);
/* SERVER_STREAM: a last message, which is what a repetition gets, and the end. */
void ngd_call_finish_with(struct ngd_call *call, const ProtobufCMessage *msg);
/* Streams, from any thread that holds a reference: an orderly end with this status as soon as nothing is being
 * answered. */
void ngd_call_end(struct ngd_call *call, ngd_status_t status, const char *text);
/* Streams: messages that wait to be sent or are being sent. */
uint32_t ngd_call_unsent(struct ngd_call *call);

/* Bytes that were answered by an earlier call (idempotence): a whole encoded message. */
void ngd_call_reply_encoded(struct ngd_call *call, const uint8_t *data, size_t n);
NGD_MUST_USE ngd_status_t ngd_call_send_encoded(struct ngd_call *call, const uint8_t *data, size_t n);
/*
 * UNARY, SERVER_STREAM: ends the call with the message that `first` succeeded with, which was wrapped. The caller holds
 * a reference on first. The bytes are shared and not copied: first's identity is charged for them until the last call
 * has sent them.
 */
void ngd_call_reply_as(struct ngd_call *call, struct ngd_call *first);

/* ---- for who wraps a call ---- */

/* request() of a call that was UNSERVED has returned. The caller holds a reference. */
void ngd_call_served(struct ngd_call *call);

#endif
