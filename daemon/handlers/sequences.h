/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_SEQUENCES_H
#define NGD_DAEMON_HANDLERS_SEQUENCES_H

/* Shared by sequences.c and generate.c. */
#include "daemon/object.h"

struct ngd_session;

struct ngd_sequence_object {
    struct ngd_object base;
    struct ngd_seq *seq; /* NULL until its prompt is queued */
    bool held;           /* we have a reference besides the opener's */
    _Atomic bool closed; /* the opener's is given up */
};

/* State of a step stream: the sequence of its last message, held. */
struct ngd_stepper {
    uint64_t id;
    struct ngd_sequence_object *object;
};

/* A reference on the object. */
ngd_status_t ngd_sequence_get(struct ngd_session *session, uint64_t id, struct ngd_sequence_object **o_p,
                              struct ngd_diag *diag);

#endif
