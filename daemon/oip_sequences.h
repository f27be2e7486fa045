/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_OIP_SEQUENCES_H
#define NGD_DAEMON_OIP_SEQUENCES_H

/*
 * Sequences of requests of the Open Inference Protocol (docs/oip.md): a request begins one under an id of its client,
 * the next ones find what the earlier ones left, and the last one ends it.
 *
 * To a graph, a sequence is a binding with states of its own, which are zero at its beginning, and an order for its
 * requests. To a language model, it is a sequence (Sequences.Open) in a session of its own, or in the one that the call
 * names; it takes one request at a time.
 *
 * A sequence belongs to an identity and, if its calls name a session, to that session. It is found until its last
 * request, until it was idle for oip-sequence-timeout, or until its graph is gone or its language model's sequence was
 * closed. Requests under way keep it.
 *
 * Threads: any. Memory: reference counted. Bounds: max-sequences-per-identity; states are charged as buffers are.
 */
#include "base/charge.h"
#include "base/clock.h"
#include "base/list.h"
#include <stdatomic.h>
#include <stdbool.h>

struct ngd_graph_found;
struct ngd_graph_names;
struct ngd_identity;
struct ngd_model;
struct ngd_object;
struct ngd_oip_sequences;
struct ngd_session;
struct ngd_sessions;
struct ngd_token;

/* Whose sequence it is, and which. Borrowed. */
struct ngd_oip_sequence_name {
    struct ngd_identity *identity;
    struct ngd_session *session; /* that the call names; or NULL */
    const char *model, *id;
};

struct ngd_oip_sequence {
    /* The table's. */
    struct ngd_oip_sequences *table;
    struct ngd_list link;
    _Atomic uint32_t refs;
    uint64_t owner, scope; /* key of the identity, id of the session or 0 */
    char *model, *id;
    uint32_t users;        /* requests under way; under the table's lock */
    ngd_nsec_t idle_since; /* likewise */
    bool kept;             /* it is in the table; likewise */
    struct ngd_charge one, host;

    /* Of a graph; else NULL. */
    const struct ngd_graph_object *graph; /* for comparisons only */
    uint64_t generation;                  /* of the graph's binding at the beginning */
    struct ngd_binding *binding;
    struct ngd_order *order;
    _Atomic bool failed; /* a request failed after it was accepted, so those behind it lack its effect */

    /* Of a language model; else NULL. Used by the request that has the sequence. */
    struct ngd_model *language_model;
    struct ngd_session *session;
    bool own_session;
    struct ngd_object *object; /* of the sequence in the session; NULL until the prompt is computed */
    uint64_t object_id;
    int32_t last; /* token that was chosen and sent, and is not in the context yet; -1: none */
};

ngd_status_t ngd_oip_sequences_create(struct ngd_graph_names *names, struct ngd_oip_sequences **table_p);
/* Ends all sequences; no request is served any more. */
void ngd_oip_sequences_clear(struct ngd_oip_sequences *table);
void ngd_oip_sequences_destroy(struct ngd_oip_sequences *table); /* it was cleared; NULL is fine */
/* Ends sequences that were idle for so long, or that have no request and were closed otherwise. */
void ngd_oip_sequences_expire(struct ngd_oip_sequences *table, ngd_nsec_t idle);

/* Makes a sequence of a graph with states, for one request. QUOTA, NO_DEVICE_MEMORY; INVALID_ARGUMENT: no state. */
ngd_status_t ngd_oip_sequence_of_graph(struct ngd_oip_sequences *table, const struct ngd_oip_sequence_name *name,
                                       const struct ngd_graph_found *graph, struct ngd_oip_sequence **s_p,
                                       struct ngd_diag *diag);
/* Makes one of a language model. Without a session of the call it opens one, for the client with that token. */
ngd_status_t ngd_oip_sequence_of_model(struct ngd_oip_sequences *table, const struct ngd_oip_sequence_name *name,
                                       struct ngd_model *model, struct ngd_sessions *sessions, struct ngd_token *bearer,
                                       const char *peer, struct ngd_oip_sequence **s_p, struct ngd_diag *diag);
/* Lets later requests find the sequence. It takes the place of an earlier one of its name. */
void ngd_oip_sequence_keep(struct ngd_oip_sequence *s);
/* Finds a sequence for one request. INVALID_ARGUMENT: there is none. SEQUENCE_BUSY: a language model's has a request.
 */
ngd_status_t ngd_oip_sequence_find(struct ngd_oip_sequences *table, const struct ngd_oip_sequence_name *name,
                                   struct ngd_oip_sequence **s_p, struct ngd_diag *diag);
void ngd_oip_sequence_end(struct ngd_oip_sequence *s);   /* no request finds it any more */
void ngd_oip_sequence_rest(struct ngd_oip_sequence *s);  /* the request is over: the next one may have it */
void ngd_oip_sequence_unref(struct ngd_oip_sequence *s); /* the request's reference; NULL is fine */

#endif
