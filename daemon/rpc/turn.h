/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_TURN_H
#define NGD_DAEMON_RPC_TURN_H

/*
 * Lets a call on a sequence wait for an operation that was cancelled but still runs until the end of a step. Its client
 * cannot tell when that operation is over. If the operation goes on, or a second call waits, the call is refused.
 */
#include "base/status.h"

struct ngd_call;
struct ngd_seq;

struct ngd_turn {
    struct ngd_seq *seq; /* borrowed during the call */
    const void *msg;     /* the call's message, valid until it is answered */
    /* Begins the operation, like ngd_seq_advance_by. If it returns SEQUENCE_BUSY, it is called again later, on another
     * thread. */
    ngd_status_t (*begin)(struct ngd_call *call, const void *msg, struct ngd_diag *diag);
    void (*fail)(struct ngd_call *call, ngd_status_t status, const struct ngd_diag *diag); /* answers a later failure */
};

/* Begins the operation, or waits for its turn (both OK). */
ngd_status_t ngd_turn_take(struct ngd_call *call, const struct ngd_turn *turn, struct ngd_diag *diag);

#endif
