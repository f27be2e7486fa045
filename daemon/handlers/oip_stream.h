/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_OIP_STREAM_H
#define NGD_DAEMON_HANDLERS_OIP_STREAM_H

/*
 * A ModelStreamInfer call and its requests: shared by oip_stream.c, which has graphs, and oip_generate.c, which has
 * language models.
 *
 * A message of a stream is gone when its handler returns, so each request has a copy, and an arena of its own. Both are
 * charged to the caller until the request is answered. A stream has at most NGD_OIP_STREAM_REQUESTS requests.
 *
 * Sequences belong to sessions. The first request to a language model opens a session for the stream, unless the call
 * names one; it ends with the stream.
 */
#include "base/lock.h"
#include "daemon/handlers/oip_infer.h"
#include "daemon/handlers/sequences.h"

#define NGD_OIP_STREAM_REQUESTS 64

struct ngd_oip_item;

struct ngd_oip_stream {
    struct ngd_call *call;
    bool errors_end_it;          /* metadata triton_grpc_error: true */
    struct ngd_session *session; /* its own: a reference; or NULL. Used by the receiving thread */
    _Atomic bool over;           /* nobody waits for answers any more */
    struct ngd_mutex lock;
    struct ngd_list items NGD_GUARDED_BY(lock); /* requests under way */
    uint32_t n_items NGD_GUARDED_BY(lock);
    bool closed NGD_GUARDED_BY(lock); /* the client sends no more */
};

/* A generation. */
struct ngd_oip_generation {
    struct ngd_model *model;            /* a reference */
    struct ngd_session *session;        /* a reference */
    struct ngd_sequence_object *object; /* a reference; NULL until the prompt is queued */
    uint64_t id;                        /* of the sequence in the session; 0: none */
    uint32_t max_tokens;
    struct ngd_mutex lock;
    int64_t *waiting NGD_GUARDED_BY(lock); /* tokens to be sent; has room for all */
    uint32_t n_waiting NGD_GUARDED_BY(lock);
    ngd_status_t lost NGD_GUARDED_BY(lock);
};

/* One request of a stream. Memory: references are the list's, until it is answered, and those of ngd_oip_item_ref. */
struct ngd_oip_item {
    struct ngd_oip_stream *stream; /* borrowed: `call` keeps it */
    struct ngd_list link;
    _Atomic uint32_t refs;
    struct ngd_arena arena;
    struct ngd_charge charge;
    struct ngd_block *response; /* NULL: none */
    struct ngd_oip_infer infer; /* also the request's message, for both kinds */
    bool is_generation;
    struct ngd_oip_generation generation;
};

void ngd_oip_item_ref(struct ngd_oip_item *item);
void ngd_oip_item_unref(struct ngd_oip_item *item);
/* Answers the request with an error, and ends it. */
void ngd_oip_item_fail(struct ngd_oip_item *item, ngd_status_t status, const struct ngd_diag *diag);
/* Ends a request that is answered: it leaves its stream, which may be gone afterwards. */
void ngd_oip_item_end(struct ngd_oip_item *item);

/* oip_generate.c */
ngd_status_t ngd_oip_generate(struct ngd_oip_item *item, struct ngd_session *session, struct ngd_diag *diag);
void ngd_oip_generation_cancel(struct ngd_oip_item *item);
/* Sends the tokens that wait, if no message is being sent. */
void ngd_oip_generation_flush(struct ngd_oip_item *item);
void ngd_oip_generation_end(struct ngd_oip_item *item);

#endif
