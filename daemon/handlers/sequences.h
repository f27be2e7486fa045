/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_SEQUENCES_H
#define NGD_DAEMON_HANDLERS_SEQUENCES_H

/* Shared by sequences.c, generate.c and oip_generate.c. */
#include "daemon/sequence_object.h"
#include "proto/npugraph.pb-c.h"

struct ngd_call;
struct ngd_session;

/* State of a step stream: the sequence of its last message, on which it keeps a reference. */
struct ngd_stepper {
    uint64_t id;
    struct ngd_sequence_object *object;
};

/* One reference; NULL: out of memory. */
struct ngd_sequence_object *ngd_sequence_create(void);
/*
 * Gives the session a sequence whose prompt is computed, with a reference of its own. MODEL_NOT_FOUND: the call's
 * identity may not use the model any more, and the session does not have the sequence.
 */
ngd_status_t ngd_sequence_adopt(struct ngd_call *call, struct ngd_session *session, struct ngd_sequence_object *o,
                                uint64_t *id_p, struct ngd_diag *diag);
/*
 * Serves Open with `restore`: makes the sequence, idle and without KV blocks, gives it to the session and answers.
 * MODEL_CHANGED. If it fails, the caller answers.
 */
ngd_status_t ngd_sequence_restore(struct ngd_call *call, const Npugraph__V1__OpenRequest *q, struct ngd_diag *diag);
/* Gets the object of a sequence; *o_p is a reference. */
ngd_status_t ngd_sequence_get(struct ngd_session *session, uint64_t id, struct ngd_sequence_object **o_p,
                              struct ngd_diag *diag);

#endif
