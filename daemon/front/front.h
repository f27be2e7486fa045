/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_FRONT_H
#define NGD_DAEMON_FRONT_FRONT_H

/*
 * The front: decides who may connect, and guards gRPC from clients' sockets.
 *
 * The front owns the socket of a guarded connection. When the client's first bytes are good, gRPC gets one end of a
 * socket pair, and the front relays through the frame checker (h2_guard.h). A connection that is not guarded is itself
 * given to gRPC, also only after its first bytes have arrived. Connections are charged to their identity while they are
 * open.
 *
 * Threads: one of its own does all the work; add, count and ask may be called from any.
 */
#include "base/beat.h"
#include "base/wakeup.h"
#include "daemon/front/wire_io.h"
#include "daemon/identity.h"
#include "daemon/peers.h"

struct ngd_front;

/* Values in the order of the option guard-unix. */
typedef enum ngd_guard_unix {
    NGD_GUARD_OTHERS, /* peers that are neither root nor the daemon's own user */
    NGD_GUARD_ALL,
    NGD_GUARD_NONE,
} ngd_guard_unix_t;

struct ngd_front_params {
    struct ngd_identities *identities;
    struct ngd_peers *peers;
    /* Gives gRPC a connected, nonblocking, close-on-exec descriptor that is in `peers`. Called on the front's
     * thread. */
    void (*deliver)(void *ctx, int fd);
    void *ctx;
    ngd_guard_unix_t guard_unix;
    uint32_t max_connections;
    uint32_t max_streams; /* of one connection */
    uint64_t max_message;
    ngd_nsec_t max_age;                /* limit for connections over TCP; 0: none */
    ngd_nsec_t poll;                   /* the thread looks for more for this long before it sleeps */
    const struct ngd_wire_source *tls; /* makes connections with TLS; NULL: there are none */
};

/* The other end of a socket that was accepted. */
struct ngd_front_peer {
    bool local, tls;
    uid_t uid;                          /* local */
    char name[NGD_IDENTITY_MAX];        /* of the identity; with TLS, only until the handshake is over */
    char address[NGD_PEER_ADDRESS_MAX]; /* for people */
};

ngd_status_t ngd_front_create(const struct ngd_front_params *params, struct ngd_front **front_p);
ngd_status_t ngd_front_start(struct ngd_front *front);
/* Changes guard_unix, max_connections, max_age and poll to those of params: poll at once, the others for connections
 * from now on. Any thread. */
void ngd_front_set(struct ngd_front *front, const struct ngd_front_params *params);
/* Takes a connected, nonblocking, close-on-exec descriptor. */
void ngd_front_add(struct ngd_front *front, int fd, const struct ngd_front_peer *peer);
/* Number of open connections, with those that gRPC has alone. now: leaves out those of them that are closed. */
uint32_t ngd_front_count(struct ngd_front *front, bool now);
/* Asks the front's thread for the watchdog. */
void ngd_front_ask(struct ngd_front *front);
const struct ngd_beat *ngd_front_beat(const struct ngd_front *front);
/* Ends all connections, after ngd_peers_hang_up. What gRPC has sent by then still goes out, for at most a second. */
void ngd_front_stop(struct ngd_front *front);
void ngd_front_destroy(struct ngd_front *front); /* NULL is fine */

/* Counts and logs a connection that was refused; log lines are limited. reason: a label of the metric. */
void ngd_front_refused(const char *reason, const char *text, const char *identity, const char *address);

#endif
