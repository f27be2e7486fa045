/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_PEERS_H
#define NGD_DAEMON_PEERS_H

/*
 * Table of connections by descriptor number: who is at the other end, and how many are open.
 *
 * For a connection that was given to gRPC as a descriptor, gRPC reports only the text "fd:12", and never that it
 * closed. A call holds its transport, and the transport holds the descriptor. So a number is reused only after the last
 * call of its connection is destroyed: a lookup by the holder of a call finds the right entry, and an entry is replaced
 * when its number comes back.
 *
 * The number of open connections that are not guarded is found by comparing inodes: if a stored socket is closed,
 * another inode or none is behind its number. The front knows the guarded ones.
 *
 * Threads: any. Bounds: those of the front.
 */
#include "daemon/identity.h"

struct ngd_peers;

#define NGD_PEER_ADDRESS_MAX 128

struct ngd_peer {
    struct ngd_identity *identity; /* a reference for the caller */
    char address[NGD_PEER_ADDRESS_MAX];
    bool known; /* see ngd_peers_know */
};

ngd_status_t ngd_peers_create(struct ngd_peers **peers_p);
void ngd_peers_destroy(struct ngd_peers *peers); /* NULL is fine */

/*
 * Adds a new connection, before gRPC gets its descriptor, which stays the caller's. If the connection is not guarded,
 * the table takes over the identity's charge (NGD_QUOTA_CONNECTIONS), and returns it when it finds the descriptor
 * closed.
 */
ngd_status_t ngd_peers_add(struct ngd_peers *peers, int fd, struct ngd_identity *identity, const char *address,
                           bool guarded);
/* Gets the entry of a connection. The caller holds one of its calls. */
ngd_status_t ngd_peers_get(struct ngd_peers *peers, int fd, struct ngd_peer *peer_p);
/* Notes that a call showed who is at the other end, where the connection itself does not. The caller holds the call. */
void ngd_peers_know(struct ngd_peers *peers, int fd);
/* True if that was noted. If gRPC has closed the descriptor, the answer may be another connection's. */
bool ngd_peers_is_known(struct ngd_peers *peers, int fd);
/*
 * Shuts down all connections, as if the process were gone. gRPC's shutdown alone would answer calls that arrive just
 * then with CANCELLED, which means that the client took back its own call. This way clients see UNAVAILABLE.
 */
void ngd_peers_hang_up(struct ngd_peers *peers);
/* Number of open connections that are not guarded. now: removes closed ones first. */
uint32_t ngd_peers_count(struct ngd_peers *peers, bool now);

#endif
