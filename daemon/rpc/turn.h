/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_TURN_H
#define NGD_DAEMON_RPC_TURN_H

/*
 * A call on a sequence whose last operation was cancelled, and still runs until the end of a step: it waits for that,
 * since its client cannot tell when it is over. Whom an operation that goes on keeps out is refused, as is a second one
 * that waits.
 */
#include "base/status.h"

struct ngd_call;
struct ngd_seq;

struct ngd_turn {
    struct ngd_seq *seq; /* borrowed during the call */
    const void *msg;     /* of the call, valid until it is answered */
    /* Begins the operation, as ngd_seq_advance_by does. Called again, on another thread, if it was SEQUENCE_BUSY. */
    ngd_status_t (*begin)(struct ngd_call *call, const void *msg, struct ngd_diag *diag);
    void (*fail)(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag); /* answers a later failure */
};

/* OK: it has begun, or waits for its turn. */
ngd_status_t ngd_turn_take(struct ngd_call *call, const struct ngd_turn *turn, struct ngd_diag *diag);

#endif
