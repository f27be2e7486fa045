/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SEQUENCE_OBJECT_H
#define NGD_DAEMON_SEQUENCE_OBJECT_H

/* The sequence of a session. */
#include "daemon/object.h"

struct ngd_seq;

struct ngd_sequence_object {
    struct ngd_object base;
    struct ngd_seq *seq; /* NULL until its prompt is queued */
    bool held;           /* the object has a reference besides the opener's */
    _Atomic bool closed; /* the opener's reference was given up */
};

#endif
