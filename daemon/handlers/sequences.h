/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_SEQUENCES_H
#define NGD_DAEMON_HANDLERS_SEQUENCES_H

/* Shared by sequences.c and generate.c. */
#include "daemon/object.h"

struct ngd_session;

struct ngd_sequence_object {
    struct ngd_object base;
    struct ngd_seq *seq; /* NULL until its prompt is queued */
    bool held;           /* the object has a reference besides the opener's */
    _Atomic bool closed; /* the opener's reference was given up */
};

/* State of a step stream: the sequence of its last message, on which it keeps a reference. */
struct ngd_stepper {
    uint64_t id;
    struct ngd_sequence_object *object;
};

/* Gets the object of a sequence; *o_p is a reference. */
ngd_status_t ngd_sequence_get(struct ngd_session *session, uint64_t id, struct ngd_sequence_object **o_p,
                              struct ngd_diag *diag);

#endif
