/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/turn.h"

#include "daemon/rpc/rpc_call.h"
#include "scheduler/model/model.h"

struct waiting {
    struct ngd_seq_waiter waiter;
    struct ngd_turn turn; /* with references on call and seq */
    struct ngd_call *call;
};

/* Begins the operation of a call whose turn has come. Copies what it needs: `waiting` is in the call's memory, which
 * may be gone once the operation has begun. */
static void begin_waiting_turn(struct ngd_seq_waiter *waiter)
{
    const struct waiting w = *ngd_container_of(waiter, struct waiting, waiter);
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_CANCELLED;

    if (!atomic_load(&w.call->cancelled))
        status = w.turn.begin(w.call, w.turn.msg, &diag);
    if (status)
        w.turn.fail(w.call, status, diag.text[0] ? &diag : NULL);
    else if (atomic_load(&w.call->cancelled)) /* the operation may not have been told */
        ngd_seq_cancel(w.turn.seq);
    ngd_seq_unref(w.turn.seq);
    ngd_call_unref(w.call);
}

ngd_status_t ngd_turn_take(struct ngd_call *call, const struct ngd_turn *turn, struct ngd_diag *diag)
{
    ngd_status_t status = turn->begin(call, turn->msg, diag);
    struct waiting *w;
    ngd_seq_await_t found;

    if (status != NGD_ERR_SEQUENCE_BUSY)
        return status;
    w = ngd_arena_calloc(&call->arena, 1, sizeof(*w));
    if (!w)
        return NGD_ERR_NO_MEMORY;
    *w = (struct waiting){.waiter = {begin_waiting_turn}, .turn = *turn, .call = ngd_call_ref(call)};
    ngd_seq_ref(turn->seq);
    found = ngd_seq_await(turn->seq, &w->waiter);
    if (found == NGD_SEQ_AWAITED)
        return NGD_OK;
    ngd_seq_unref(turn->seq);
    ngd_call_unref(call);
    return found == NGD_SEQ_FREE ? turn->begin(call, turn->msg, diag)
                                 : status; /* FREE: the operation has just ended; otherwise it goes on */
}
