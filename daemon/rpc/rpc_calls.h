/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_CALLS_H
#define NGD_DAEMON_RPC_RPC_CALLS_H

/*
 * What the calls of one server share: how many there are, which streams are open, and objects for the next calls.
 *
 * Threads: any. Memory: the server's; it outlives its calls. Of a call it knows only struct rpc_member.
 */
#include "base/list.h"
#include "base/lock.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ngd_call;
struct ngd_daemon;
struct ngd_metric_row;
struct ngd_raw_message;

/* A call's place among the others. */
struct rpc_member {
    _Atomic uint32_t refs;
    struct ngd_list open_link; /* of the open streams */
    bool end_asked;            /* rpc_calls_next_stream came by */
    struct rpc_member *next_free;
};

struct rpc_calls {
    struct ngd_daemon *daemon;
    struct ngd_metric_row **rows; /* by method */
    /* Before a handler gets a request. False: it does not get it, and the call is somebody else's (repeat.h). */
    bool (*begin)(struct ngd_call *call, const struct ngd_raw_message *raw, const void *msg);
    _Atomic uint32_t inflight; /* admitted */
    _Atomic uint32_t busy;     /* a drain waits for them */
    _Atomic uint32_t live;     /* objects that are not in the pool */
    struct ngd_mutex lock;
    struct rpc_member *pool NGD_GUARDED_BY(lock);
    uint32_t n_pool NGD_GUARDED_BY(lock);
    struct ngd_list streams NGD_GUARDED_BY(lock);
};

void rpc_calls_init(struct rpc_calls *calls, struct ngd_daemon *d);
void rpc_calls_fini(struct rpc_calls *calls); /* the pool is empty */
/* One more is admitted, unless there are `max`; and is over. */
bool rpc_calls_enter(struct rpc_calls *calls, uint64_t max);
void rpc_calls_leave(struct rpc_calls *calls);
void rpc_calls_count_busy(struct rpc_calls *calls, int delta);
void rpc_calls_opened(struct rpc_calls *calls, struct rpc_member *stream);
void rpc_calls_closed(struct rpc_calls *calls, struct rpc_member *stream);
/* An open stream for which this was not asked before; a reference. NULL: there is none. */
struct rpc_member *rpc_calls_next_stream(struct rpc_calls *calls);
/* An object of the pool, or NULL; and back. False: the pool is full. */
struct rpc_member *rpc_calls_take(struct rpc_calls *calls);
bool rpc_calls_keep(struct rpc_calls *calls, struct rpc_member *member);

#endif
