/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_CHANNEL_INT_H
#define NPUGRAPH_CLIENT_CHANNEL_INT_H

/* What channel.c and follower.c share: the channel, a call on it, and how one begins and ends. */
#include "client/lib/channel.h"
#include "client/lib/token.h"

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>

#define NPUGRAPH__METADATA_MAX 6

struct npugraph__channel {
    _Atomic unsigned refs; /* of its link, and of each call */
    grpc_channel *grpc;
    char *address;
    bool tls;
    uint32_t timeout_ms;
    char session_text[24]; /* "": calls carry no session */
    /* Secret: if the transport proves no identity, id and token alone give access to the session. */
    uint8_t token[NPUGRAPH__TOKEN_BYTES];
    pthread_mutex_t bearer_lock;
    struct npugraph__token bearer; /* by the lock */
};

enum { EV_INITIAL = 1, EV_SEND, EV_RECV, EV_STATUS, EV_HALF_CLOSE, EV_MAX };

struct npugraph__stream {
    grpc_call *call;
    struct npugraph__channel *channel; /* with a reference */
    grpc_completion_queue *cq;
    uint32_t timeout_ms;
    bool pending[EV_MAX]; /* a batch with this tag is outstanding */
    bool ok[EV_MAX];      /* its outcome */
    grpc_metadata_array initial_md, trailing_md;
    grpc_byte_buffer *received;
    grpc_status_code code;
    grpc_slice details;
};

/* What a call carries beside its message. */
struct npugraph__call_head {
    bool alone;             /* without the session */
    const char *request_id; /* NULL: none */
};

gpr_timespec npugraph__deadline_in(uint32_t timeout_ms); /* 0: never */
void npugraph__stream_init(struct npugraph__stream *st, struct npugraph__channel *channel, const char *method,
                           grpc_completion_queue *cq);
void npugraph__stream_release(struct npugraph__stream *st); /* when no batch is outstanding */
grpc_op npugraph__status_op(struct npugraph__stream *st);
/* Fills the metadata that calls carry. Returns their number. The caller drops them when their batch has started. */
size_t npugraph__put_metadata(struct npugraph__channel *channel, struct npugraph__call_head head,
                              grpc_metadata md[NPUGRAPH__METADATA_MAX]);
/* Returns the call's final status. The daemon puts the reason into the trailing metadata. */
int npugraph__final_status(struct npugraph__stream *st, struct npugraph_error *err);

#endif
