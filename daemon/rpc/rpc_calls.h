/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_CALLS_H
#define NGD_DAEMON_RPC_RPC_CALLS_H

/*
 * What the calls of one server share: counts, the list of open streams, and a pool of call objects.
 *
 * Threads: any. Memory: the server's, which outlives its calls. It knows only the struct rpc_member of a call.
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

/* A call's links in the tables of the server's calls. */
struct rpc_member {
    _Atomic uint32_t refs;
    struct ngd_list open_link; /* in the list of open streams */
    bool end_asked;            /* rpc_calls_next_stream has returned it */
    struct rpc_member *next_free;
};

struct rpc_calls {
    struct ngd_daemon *daemon;
    struct ngd_metric_row **rows; /* by method */
    /* Called before a handler gets a request. False: the handler does not get it; repeat.h owns the call. */
    bool (*begin)(struct ngd_call *call, const struct ngd_raw_message *raw, const void *msg);
    _Atomic uint32_t inflight; /* admitted */
    _Atomic uint32_t busy;     /* a drain waits for them */
    _Atomic uint32_t live;     /* call objects that are not in the pool */
    struct ngd_mutex lock;
    struct rpc_member *pool NGD_GUARDED_BY(lock);
    uint32_t n_pool NGD_GUARDED_BY(lock);
    struct ngd_list streams NGD_GUARDED_BY(lock);
};

void rpc_calls_init(struct rpc_calls *calls, struct ngd_daemon *d);
void rpc_calls_fini(struct rpc_calls *calls); /* the pool must be empty */
/* Admit one more call, unless there are `max`; and count its end. */
bool rpc_calls_enter(struct rpc_calls *calls, uint64_t max);
void rpc_calls_leave(struct rpc_calls *calls);
void rpc_calls_count_busy(struct rpc_calls *calls, int delta);
void rpc_calls_opened(struct rpc_calls *calls, struct rpc_member *stream);
void rpc_calls_closed(struct rpc_calls *calls, struct rpc_member *stream);
/* Returns a reference on an open stream that it has not returned before. NULL: there is none. */
struct rpc_member *rpc_calls_next_stream(struct rpc_calls *calls);
/* Take an object from the pool (NULL: it is empty), and return one. False: the pool is full. */
struct rpc_member *rpc_calls_take(struct rpc_calls *calls);
bool rpc_calls_keep(struct rpc_calls *calls, struct rpc_member *member);

#endif
