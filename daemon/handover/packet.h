/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_PACKET_H
#define NGD_DAEMON_HANDOVER_PACKET_H

/*
 * Packets between two daemons (proto/handover.proto): sent and received whole, with descriptors, and checked before
 * they are unpacked. The other side is a process of our user, but perhaps of another version.
 * Threads: any; one at a time for a socket.
 */
#include "base/clock.h"
#include "base/status.h"
#include "daemon/gift.h"
#include <stdbool.h>

struct ngd_arena;

#define NGD_HANDOVER_PROTOCOL 1
#define NGD_PACKET_FDS        (NGD_GIFT_MAX + 2)
#define NGD_PACKET_BYTES      (64u << 10)

typedef Npugraph__Handover__V1__Packet ngd_packet;
#define NGD_PACKET(name) NPUGRAPH__HANDOVER__V1__PACKET__KIND_##name

struct ngd_packet_fds {
    int fds[NGD_PACKET_FDS];
    size_t n;
};
void ngd_packet_fds_close(struct ngd_packet_fds *fds);
/* True if the other side, as it connected or began to listen, was a process of this daemon's user or of root. */
bool ngd_packet_peer_is_ours(int fd);

/* Sends a packet; fds (NULL: none) stay the caller's. IO: the other side is gone. BUSY: it does not read. */
ngd_status_t ngd_packet_send(int fd, ngd_packet *packet, const struct ngd_packet_fds *fds, struct ngd_diag *diag);
/*
 * Receives a packet into the arena, and descriptors, which are the caller's to close. UNAVAILABLE: none has come within
 * `wait` (0: at once). CANCELLED: a signal asks this process to end. IO: the other side is gone. Other statuses: what
 * came is no packet of this protocol.
 */
ngd_status_t ngd_packet_receive(int fd, ngd_nsec_t wait, struct ngd_arena *arena, const ngd_packet **packet_p,
                                struct ngd_packet_fds *fds_p, struct ngd_diag *diag);

/* Makes a memfd with a copy of the bytes, which nobody can change any more. */
ngd_status_t ngd_packet_memfd(const char *name, const void *data, size_t n, int *fd_p, struct ngd_diag *diag);
/* Checks that nobody can change the memfd, and maps its n bytes for reading. munmap frees them. */
ngd_status_t ngd_packet_map(int fd, uint64_t n, const void **data_p, struct ngd_diag *diag);

#endif
