/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_INT_H
#define NGD_DAEMON_RPC_RPC_INT_H

/*
 * The whole call, with its gRPC side: one object of rpc_call.c, rpc_recv.c and rpc_send.c, which rpc_server.c makes.
 *
 * A call has these references: one for each outstanding batch; the handler's, which ends with its answer (UNARY and
 * SERVER_STREAM: one for the call; LOCKSTEP: one for each message); those of others (ngd_call_ref). The RECV_CLOSE
 * batch is outstanding from the start to the end, so a call outlives its cancellation.
 *
 * gRPC allows only one thread at a time to start batches of a call, so batches are started under `lock`, with two
 * exceptions. The thread that claimed the end starts the status, and no send is started after it. Receives of DUPLEX
 * and CLIENT_STREAM calls are started only by the receiving thread (gRPC allows sends and receives to be synchronised
 * apart). gRPC never calls back into us, so holding the lock is safe.
 */
#include "base/charge.h"
#include "base/lock.h"
#include "daemon/rpc/rpc_call.h"
#include "daemon/rpc/rpc_calls.h"
#include "daemon/rpc/rpc_method.h"
#include "daemon/rpc/rpc_state.h"
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>

#define RPC_FLAT_ARENA  (64u << 10)  /* a message in pieces is joined in the arena up to this size, else on the heap */
#define RPC_KEEP_STREAM (128u << 10) /* a stream keeps this much of its arena from one message to the next */
#define RPC_CHARGE_FROM (64u << 10)  /* messages above this are charged; others are bounded by the number of calls */

struct rpc_call;
struct rpc_cq;

struct rpc_tag {
    void (*fn)(struct rpc_call *call, bool ok);
    struct rpc_call *call;
};

struct rpc_out {
    struct rpc_out *next;
    grpc_byte_buffer *buffer;
};

struct rpc_call {
    struct ngd_call pub;
    struct rpc_member member;
    struct rpc_calls *calls;
    struct rpc_cq *cq;   /* rpc_server.c */
    size_t method_index; /* equal to the number of methods: the generic request */
    grpc_call *core;     /* NULL while the request is posted */
    struct rpc_tag on_new, on_close, on_recv, on_send, on_status;

    /* Filled by gRPC on arrival. */
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details;
    grpc_byte_buffer *payload;
    int close_flag;

    /* The message that the handler has. Used by the receiving thread, then by the owner. */
    grpc_byte_buffer *received, *message;
    uint8_t *flat;            /* NULL unless the message had to be copied into one piece */
    struct ngd_charge charge; /* for a large message */
    grpc_slice reserved;
    bool has_reserved;
    grpc_slice answer; /* the answer of a wrapped call that succeeded, for repetitions */
    bool has_answer;

    struct ngd_mutex lock;
    struct rpc_state state NGD_GUARDED_BY(lock);
    bool begins_with_end; /* used by the thread that claimed the end: the initial metadata goes with the status */
    bool counted_busy NGD_GUARDED_BY(lock);       /* a drain waits for it */
    bool entered NGD_GUARDED_BY(lock);            /* its session: daemon/session_move.h */
    ngd_status_t lost NGD_GUARDED_BY(lock);       /* not OK: why a message was not queued */
    ngd_status_t end_status NGD_GUARDED_BY(lock); /* ENDING: the status to come */
    char *end_text NGD_GUARDED_BY(lock);
    struct rpc_out *out_head NGD_GUARDED_BY(lock), *out_tail NGD_GUARDED_BY(lock);

    /* Memory that outstanding send and status batches use. */
    grpc_byte_buffer *sent_buffer, *last_buffer;
    grpc_slice status_details;
    grpc_metadata trailing[2];
    size_t n_trailing;

    bool admitted;  /* counted in flight */
    bool withdrawn; /* counted as withdrawn for its connection's identity */
    struct ngd_identity
        *connection; /* a reference to the connection's identity if a token named another one; or NULL */
    int unknown_fd;  /* of a connection that has not shown yet who it is; -1: it has */
    bool counted;    /* among the calls of the token's identity */
};

static inline struct rpc_call *rpc_call_of(struct ngd_call *call)
{
    return ngd_container_of(call, struct rpc_call, pub);
}

/* rpc_call.c */
/* Takes a call from the pool, or makes one; NULL: out of memory. It has one reference, and counts as live. */
struct rpc_call *rpc_call_take(struct rpc_calls *calls);
/* Returns a call to the pool: its last reference is gone, or nobody has used it. */
void rpc_call_release(struct rpc_call *call);
void rpc_call_empty_pool(struct rpc_calls *calls);
/* Opens a call that arrived, once its method is known: watches for its end and hands it on, or refuses it with
 * status. */
void rpc_call_open(struct rpc_call *call, ngd_status_t status, const struct ngd_diag *diag);
/* Starts a batch, which gets its own reference. False: the call was abandoned, since gRPC refuses a batch only for a
 * mistake of ours. */
bool rpc_call_start(struct rpc_call *call, const grpc_op *ops, size_t n, struct rpc_tag *tag);
void rpc_call_unref(struct rpc_call *call);
void rpc_call_drop_message(struct rpc_call *call);
void rpc_call_drop_reserved(struct rpc_call *call);
/* Give the message to the handler, with a reference; and note that the handler has answered. */
void rpc_call_give_to_handler(struct rpc_call *call);
void rpc_call_handler_done(struct rpc_call *call);
/* Counts a call, or a message of a LOCKSTEP one, that a drain and its session wait for. False: the session moves to
 * another daemon, and the call is refused with SESSION_MOVED. */
bool rpc_call_count_busy(struct rpc_call *call) NGD_REQUIRES(call->lock);
void rpc_call_uncount_busy(struct rpc_call *call) NGD_REQUIRES(call->lock);
/* Claims the end. True: the caller sends the status, without the lock. False: another caller has claimed it. */
bool rpc_call_claim_end(struct rpc_call *call) NGD_REQUIRES(call->lock);
/* Starts the status batch, with a last message (taken) or NULL. Only for the thread that claimed the end. */
void rpc_call_send_status(struct rpc_call *call, ngd_status_t status, const char *text, grpc_byte_buffer *last);
/* Like rpc_call_send_status, with the status that ngd_call_end left. */
void rpc_call_send_end_status(struct rpc_call *call, grpc_byte_buffer *last);
/* Claims the end and sends the status, unless the end is claimed. */
void rpc_call_end(struct rpc_call *call, ngd_status_t status, const char *text, grpc_byte_buffer *last);
void rpc_call_fail(struct rpc_call *call, ngd_status_t status, const struct ngd_diag *diag);
/* rpc_recv.c */
void rpc_start_recv(struct rpc_call *call);
void rpc_on_recv(struct rpc_call *call, bool ok);
void rpc_deliver(struct rpc_call *call); /* gives the message that arrived to the handler */
ngd_status_t rpc_no_memory(struct ngd_diag *diag);
/* rpc_send.c */
void rpc_on_send(struct rpc_call *call, bool ok);

#endif
