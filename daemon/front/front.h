/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_FRONT_H
#define NGD_DAEMON_FRONT_FRONT_H

/*
 * The front: who may connect, and a guard between clients' sockets and gRPC.
 *
 * A guarded connection's socket belongs to the front. gRPC gets one end of a socket pair once the client's first bytes
 * were good; the front relays through the frame checker (h2_guard.h). A connection that is not guarded is given to gRPC
 * itself, also not before its first bytes are there. Connections are charged to their identity as long as they are
 * open.
 *
 * Threads: one of its own does all the work; add, count and guards may be called from any.
 */
#include "base/beat.h"
#include "base/wakeup.h"
#include "daemon/front/wire_io.h"
#include "daemon/identity.h"
#include "daemon/peers.h"

struct ngd_front;

/* In the order of the option guard-unix. */
typedef enum ngd_guard_unix {
    NGD_GUARD_OTHERS, /* peers that are neither root nor the daemon's own user */
    NGD_GUARD_ALL,
    NGD_GUARD_NONE,
} ngd_guard_unix_t;

struct ngd_front_params {
    struct ngd_identities *identities;
    struct ngd_peers *peers;
    /* Gives gRPC a connected, nonblocking, close-on-exec descriptor that peers knows. On the front's thread. */
    void (*deliver)(void *ctx, int fd);
    void *ctx;
    ngd_guard_unix_t guard_unix;
    uint32_t max_connections;
    uint32_t max_streams; /* of one connection */
    uint64_t max_message;
    ngd_nsec_t max_age;                /* of connections over TCP; 0: none */
    const struct ngd_wire_source *tls; /* of connections with TLS; NULL: there are none */
};

/* Who is at the other end of a socket that was accepted. */
struct ngd_front_peer {
    bool local, tls;
    uid_t uid;                          /* local */
    char name[NGD_IDENTITY_MAX];        /* of the identity; with TLS, the one that counts until the handshake is over */
    char address[NGD_PEER_ADDRESS_MAX]; /* for people */
};

ngd_status_t ngd_front_create(const struct ngd_front_params *params, struct ngd_front **front_p);
ngd_status_t ngd_front_start(struct ngd_front *front);
/* Takes a connected, nonblocking, close-on-exec descriptor. */
void ngd_front_add(struct ngd_front *front, int fd, const struct ngd_front_peer *peer);
/* Connections that are open, those that gRPC has alone included; `now`: leaves out all of them that are closed. */
uint32_t ngd_front_count(struct ngd_front *front, bool now);
/* For the watchdog: asks its thread. */
void ngd_front_ask(struct ngd_front *front);
const struct ngd_beat *ngd_front_beat(const struct ngd_front *front);
/*
 * Ends all connections, after ngd_peers_hang_up. What gRPC had said by then still goes out, for a second at most.
 */
void ngd_front_stop(struct ngd_front *front);
void ngd_front_destroy(struct ngd_front *front); /* NULL is fine */

/* Counts and logs a connection that was not taken; lines are limited. reason: a label of the metric. */
void ngd_front_refused(const char *reason, const char *text, const char *identity, const char *address);

#endif
