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
 *
 * A request to a language model by ModelInfer is a stream of one request (`once`), whose tokens are in one response.
 */
#include "base/lock.h"
#include "daemon/handlers/oip_infer.h"
#include "daemon/handlers/sequences.h"
#include "daemon/timeouts.h"

#define NGD_OIP_STREAM_REQUESTS 64

struct ngd_oip_item;

struct ngd_oip_stream {
    struct ngd_call *call;
    bool once;                   /* ModelInfer */
    bool errors_end_it;          /* metadata triton_grpc_error: true; or once */
    struct ngd_session *session; /* its own: a reference; or NULL. Used by the receiving thread */
    _Atomic bool over;           /* nobody waits for answers any more */
    struct ngd_mutex lock;
    struct ngd_list items NGD_GUARDED_BY(lock); /* requests under way */
    uint32_t n_items NGD_GUARDED_BY(lock);
    bool closed NGD_GUARDED_BY(lock); /* the client sends no more */
};

/* A generation. */
struct ngd_oip_generation {
    struct ngd_session *session;        /* a reference */
    struct ngd_sequence_object *object; /* a reference; NULL until the prompt is queued */
    uint64_t id;                        /* of the sequence in the session; 0: none, or `kept` has it */
    struct ngd_oip_sequence *kept;      /* a reference; NULL: the sequence lives as long as the request */
    bool began;                         /* the sequence has got work from this request */
    bool rested;                        /* the request has left `kept` */
    uint32_t max_tokens;
    struct ngd_timeout timeout; /* parameter timeout */
    _Atomic bool late;          /* its time has come */
    /* Used by the thread that calls back. */
    struct ngd_split split;
    ngd_nsec_t first, last; /* when its first and its last token came */
    uint32_t tokens;
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

/* Makes the stream of one request: that of a ModelInfer call to a language model, whose reference it takes. The stream
 * is set before the request may end. If it fails, the caller answers. */
ngd_status_t ngd_oip_generate_once(struct ngd_call *call, const struct ngd_raw_message *raw,
                                   struct ngd_oip_model *model, struct ngd_oip_stream **stream_p,
                                   struct ngd_diag *diag);
void ngd_oip_stream_stop(struct ngd_oip_stream *stream); /* the client has gone: cancels all requests */
void ngd_oip_stream_fini(struct ngd_oip_stream *stream); /* the call is over */
/* Finds the session that has the stream's sequences; borrowed. The first request to a language model opens one. */
ngd_status_t ngd_oip_stream_session(struct ngd_oip_stream *stream, struct ngd_session **session_p,
                                    struct ngd_diag *diag);

void ngd_oip_item_ref(struct ngd_oip_item *item);
void ngd_oip_item_unref(struct ngd_oip_item *item);
/* Answers the request with an error, and ends it. */
void ngd_oip_item_fail(struct ngd_oip_item *item, ngd_status_t status, const struct ngd_diag *diag);
/* Ends a request that was answered completely. */
void ngd_oip_item_done(struct ngd_oip_item *item);

/* oip_generate.c */
ngd_status_t ngd_oip_generate(struct ngd_oip_item *item, struct ngd_diag *diag);
/* Lets the sequence that is kept go. failed: the request was not served completely. */
void ngd_oip_generation_rest(struct ngd_oip_item *item, bool failed);
void ngd_oip_generation_cancel(struct ngd_oip_item *item);
/* Sends the tokens that wait, if no message is being sent. */
void ngd_oip_generation_flush(struct ngd_oip_item *item);
void ngd_oip_generation_end(struct ngd_oip_item *item);

#endif
