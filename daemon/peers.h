/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_PEERS_H
#define NGD_DAEMON_PEERS_H

/*
 * Connections, by descriptor number: who is at the other end, and how many there are.
 *
 * gRPC tells of a connection that it got as a descriptor only the text "fd:12", and never when it closes. A number is
 * free for reuse only after the last call of its connection was destroyed, because a call holds its transport and that
 * holds the descriptor; so whoever asks while holding a call gets the right entry, and an entry is simply
 * replaced when its number comes back. Of connections that gRPC has alone, how many are open is found by comparing
 * inodes: a stored socket that is gone has another inode behind its number, or none. Of guarded ones the front knows.
 * Threads: any. Bounds: those of the front.
 */
#include "daemon/identity.h"

struct ngd_peers;

#define NGD_PEER_ADDRESS_MAX 128

struct ngd_peer {
    struct ngd_identity *identity; /* a reference for the caller */
    char address[NGD_PEER_ADDRESS_MAX];
};

ngd_status_t ngd_peers_create(struct ngd_peers **peers_p);
void ngd_peers_destroy(struct ngd_peers *peers); /* NULL is fine */

/*
 * Notes a new connection, before gRPC gets its descriptor; takes none. Of one that is not guarded the identity's charge
 * (NGD_QUOTA_CONNECTIONS) goes over to the table, which gives it back when the descriptor turns out to be closed.
 */
ngd_status_t ngd_peers_add(struct ngd_peers *peers, int fd, struct ngd_identity *identity, const char *address,
                           bool guarded);
/* The entry of a connection that a held call belongs to. */
ngd_status_t ngd_peers_get(struct ngd_peers *peers, int fd, struct ngd_peer *peer_p);
/*
 * Ends all connections from this side, as if the process were gone. gRPC's shutdown alone would answer calls that come
 * in these moments with CANCELLED, which is what a client says that takes back its own; so they see UNAVAILABLE.
 */
void ngd_peers_hang_up(struct ngd_peers *peers);
/* Connections that are not guarded; `now`: forgets what is closed first. */
uint32_t ngd_peers_count(struct ngd_peers *peers, bool now);

#endif
