/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_STATE_H
#define NGD_DAEMON_RPC_RPC_STATE_H

/*
 * The state of a call, in three parts: messages that arrive, messages that go out, and the end. Each part moves along
 * its own picture, only by the functions below. What one part allows depends on the others only where a function says
 * so.
 *
 *   in    IDLE --take--> HELD --owe--> OWED --answered--> IDLE      UNARY and SERVER_STREAM: IDLE --owe--> OWED
 *          ^ ^            |
 *          | +--read_on---+   the handler has returned, and owes nothing
 *          |              v
 *          +--resume--- PAUSED   a client sends and does not read: we read no more until the queue is shorter
 *
 *   out   NEW --begin--> FREE --send--> SENDING --sent--> FREE      NEW: the initial metadata is still to be sent
 *                         |               |
 *                         +--send_failed--+--sent, not ok--> BROKEN
 *
 *   end   OPEN --end_later--> ENDING --claim--> ENDED               ENDING: after the queue, or the answer
 *          |                                      ^                 ENDED: a thread gives, or gave, gRPC the status
 *          +------------------claim---------------+
 *
 * Threads: the call's lock is held. Memory: part of the call; zero is the beginning.
 */
#include "daemon/rpc/rpc_method.h"

#define RPC_UNSENT_MAX 16

enum rpc_state_in { RPC_IN_IDLE, RPC_IN_HELD, RPC_IN_OWED, RPC_IN_PAUSED };
enum rpc_state_out { RPC_OUT_NEW, RPC_OUT_FREE, RPC_OUT_SENDING, RPC_OUT_BROKEN };
enum rpc_state_end { RPC_END_OPEN, RPC_END_ENDING, RPC_END_ENDED };

struct rpc_state {
    enum rpc_state_in in;
    enum rpc_state_out out;
    enum rpc_state_end end;
    bool told;       /* the handler was told that nobody waits for its answer */
    uint32_t queued; /* messages behind the one that is being sent */
};

/* ---- messages that arrive ---- */

/* Takes a message of a stream that arrived. False: the call has ended, and the message is dropped. */
static inline bool rpc_state_take(struct rpc_state *s)
{
    s->in = s->end == RPC_END_ENDED ? RPC_IN_IDLE : RPC_IN_HELD;
    return s->in == RPC_IN_HELD;
}

/* Gives the handler the message, with a reference that it gives up when it answers. */
static inline void rpc_state_owe(struct rpc_state *s)
{
    s->in = RPC_IN_OWED;
}

/* Notes the handler's answer. False: it owed none, and has no reference to give up. */
static inline bool rpc_state_answered(struct rpc_state *s)
{
    const bool owed = s->in == RPC_IN_OWED;

    if (owed)
        s->in = RPC_IN_IDLE;
    return owed;
}

/* True if the handler has a message. */
static inline bool rpc_state_is_busy(const struct rpc_state *s)
{
    return s->in == RPC_IN_HELD || s->in == RPC_IN_OWED;
}

/* Notes that the handler has returned. True: read the next message. */
static inline bool rpc_state_read_on(struct rpc_state *s)
{
    s->in = s->queued >= RPC_UNSENT_MAX ? RPC_IN_PAUSED : RPC_IN_IDLE;
    return s->in == RPC_IN_IDLE && s->end != RPC_END_ENDED;
}

/* Notes that a message was sent. True: read again. */
static inline bool rpc_state_resume(struct rpc_state *s)
{
    if (s->in != RPC_IN_PAUSED || s->end == RPC_END_ENDED || s->queued >= RPC_UNSENT_MAX / 2)
        return false;
    s->in = RPC_IN_IDLE;
    return true;
}

/*
 * Notes that nobody waits for an answer any more. True: tell the handler, once, if it still owes one. The handler of a
 * DUPLEX stream is told of every end, also of one that others made.
 */
static inline bool rpc_state_tell(struct rpc_state *s, ngd_rpc_kind_t kind)
{
    bool tell = s->in == RPC_IN_OWED;

    if (kind == NGD_RPC_CLIENT_STREAM)
        tell = s->end != RPC_END_ENDED;
    if (kind == NGD_RPC_DUPLEX)
        tell = true;
    tell = tell && !s->told;
    s->told |= tell;
    return tell;
}

/* ---- messages that go out ---- */

/* Begins to send. True: the initial metadata goes first. */
static inline bool rpc_state_begin(struct rpc_state *s)
{
    const bool is_new = s->out == RPC_OUT_NEW;

    if (is_new)
        s->out = RPC_OUT_FREE;
    return is_new;
}

static inline void rpc_state_send(struct rpc_state *s)
{
    s->out = RPC_OUT_SENDING;
}

/* Notes that gRPC did not take the message. */
static inline void rpc_state_send_failed(struct rpc_state *s)
{
    s->out = RPC_OUT_BROKEN;
}

static inline void rpc_state_sent(struct rpc_state *s, bool ok)
{
    s->out = ok ? RPC_OUT_FREE : RPC_OUT_BROKEN;
}

/* False: a message that is sent now would not arrive. */
static inline bool rpc_state_takes_messages(const struct rpc_state *s)
{
    return s->end == RPC_END_OPEN && s->out != RPC_OUT_BROKEN;
}

static inline uint32_t rpc_state_unsent(const struct rpc_state *s)
{
    return s->queued + (s->out == RPC_OUT_SENDING);
}

/* ---- the end ---- */

/* Ends the call after the queued messages, or after the answer. False: an end is on its way already. */
static inline bool rpc_state_end_later(struct rpc_state *s)
{
    if (s->end != RPC_END_OPEN)
        return false;
    s->end = RPC_END_ENDING;
    return true;
}

/* Claims the end. True: the caller sends the status, once. False: another caller does. */
static inline bool rpc_state_claim(struct rpc_state *s)
{
    const bool mine = s->end != RPC_END_ENDED;

    s->end = RPC_END_ENDED;
    return mine;
}

/* The same for a handler that fails. An end that is on its way behind messages stays: it says why they are the last,
 * and the handler may fail just because nothing is taken behind it. */
static inline bool rpc_state_claim_failure(struct rpc_state *s)
{
    return (s->end != RPC_END_ENDING || rpc_state_unsent(s) == 0) && rpc_state_claim(s);
}

#endif
