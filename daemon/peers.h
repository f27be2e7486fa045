/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_PEERS_H
#define NGD_DAEMON_PEERS_H

/*
 * Connections, by descriptor number: who is at the other end, and how many there are.
 *
 * gRPC tells of a connection that it got as a descriptor only the text "fd:12", and never when it closes. A number is
 * free for reuse only after the last call of its connection was destroyed, because a call holds its transport and that
 * holds the descriptor; so whoever asks while holding a call gets the right entry, and an entry is simply
 * replaced when its number comes back. How many are open is found by comparing inodes: a stored socket that is gone
 * has another inode behind its number, or none.
 * A TLS connection is unproven until its first call. One that ends before that is remembered until somebody takes it,
 * which is how refused handshakes get the peer's address: gRPC tells only that one failed.
 * Threads: any. Bounds: max_connections; 64 that ended unproven.
 */
#include "daemon/identity.h"

struct ngd_peers;

#define NGD_PEER_ADDRESS_MAX 128

struct ngd_peer {
    struct ngd_identity *identity; /* a reference for the caller; NULL for TLS, where each call shows its certificate */
    char address[NGD_PEER_ADDRESS_MAX];
};

ngd_status_t ngd_peers_create(uint32_t max_connections, struct ngd_peers **peers_p);
void ngd_peers_destroy(struct ngd_peers *peers); /* NULL is fine */

/* Notes a new connection, before gRPC gets it. RESOURCE_EXHAUSTED: the caller closes it. Takes no descriptor. */
ngd_status_t ngd_peers_add(struct ngd_peers *peers, int fd, struct ngd_identity *identity, const char *address);
/* The entry of a connection that a held call belongs to. */
ngd_status_t ngd_peers_get(struct ngd_peers *peers, int fd, struct ngd_peer *peer_p);
/* TLS: a call came over the connection from there ("ipv4:HOST:PORT", as gRPC says), so its handshake was good. */
void ngd_peers_prove(struct ngd_peers *peers, const char *grpc_peer);
/* TLS: takes the address of a connection that has ended without a call; false: no other has. In order of arrival. */
bool ngd_peers_take_unproven(struct ngd_peers *peers, char address[NGD_PEER_ADDRESS_MAX]);
/*
 * Ends all connections from this side, as if the process were gone. gRPC's shutdown alone would answer calls that come
 * in these moments with CANCELLED, which is what a client says that takes back its own; so they see UNAVAILABLE.
 */
void ngd_peers_hang_up(struct ngd_peers *peers);
/* Counts, and forgets what is closed. */
uint32_t ngd_peers_count(struct ngd_peers *peers);

#endif
