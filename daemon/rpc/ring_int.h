/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RING_INT_H
#define NGD_DAEMON_RPC_RING_INT_H

/* A ring and its lanes: ring.c has rings and their thread, ring_call.c the lanes' calls. */
#include "base/charge.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/ring.h"
#include "daemon/rpc/ring.h"
#include "daemon/rpc/rpc_call.h"
#include <stdatomic.h>

struct ring_lane {
    struct ngd_call pub;
    struct ngd_ring *ring;
    uint32_t index;
    /* Set by the ring's thread when it gives the handler a request, cleared by who answers it. Between these, the rest
     * belongs to the request. */
    _Atomic bool busy;
    bool entered; /* the session: daemon/session_move.h */
    bool told;    /* the ring's thread: the handler was told that the request is not wanted */
    uint32_t number;
    uint8_t *reserved;
};

struct ngd_ring {
    _Atomic uint32_t refs; /* the list's, the connection's, one for each busy lane */
    _Atomic bool end_asked;
    struct ngd_rings *rings;           /* keeps end_asked, which any thread writes, out of the word of the next two */
    bool ended, active;                /* the thread's */
    struct ngd_list link, active_link; /* rings->incoming, then rings->all; rings->active */
    struct ngd_ring_words *words;      /* mapped; the client writes here */
    int event;                         /* an eventfd that the client writes; never read */
    struct ngd_session *session;       /* a reference */
    struct ngd_identity *identity;     /* a reference */
    struct ngd_client_stream stream;   /* as one of its session's streams */
    struct ngd_charge charge;
    struct ring_lane lanes[NGD_RING_LANES];
};

struct ngd_rings {
    struct ngd_daemon *daemon;
    const struct ngd_method *methods[NGD_RING_METHODS];
    pthread_t thread;
    bool started;
    int epoll, wake;
    _Atomic bool stopping, look; /* look: there are new rings, or some that are to end */
    _Atomic uint32_t live;       /* rings that are not freed */
    struct ngd_beat beat;
    struct ngd_mutex lock;
    struct ngd_list incoming NGD_GUARDED_BY(lock);
    struct ngd_list all, active; /* the thread's */
    bool same_cpu;               /* the last request came from the CPU that the thread runs on */
};

void ring_ref(struct ngd_ring *ring);
void ring_unref(struct ngd_ring *ring);

/* ring_call.c */
void ring_lanes_init(struct ngd_ring *ring);
void ring_lanes_fini(struct ngd_ring *ring); /* no lane is busy */
/* Takes the lane's new request. False: the client has broken the rules. */
bool ring_lane_take(struct ring_lane *lane);
/* Tells the handler that nobody waits for the answer. If the lane has no request, it lets go of what it used last. */
void ring_lane_cancel(struct ring_lane *lane);

#endif
