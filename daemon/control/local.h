/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CONTROL_LOCAL_H
#define NGD_DAEMON_CONTROL_LOCAL_H

/*
 * The local socket's connections: clients of the same machine send and get descriptors here, which gRPC cannot carry.
 * Each packet is a LocalRequest of proto/npugraph.proto and gets one answer at once. A connection proves a user, and
 * each packet a session. A ring lives as long as the connection that opened it.
 *
 * Threads: one of its own. To close a descriptor of a client's can take as long as the client wants: a socket that
 * lingers, a file of its own file system. It must not stop the loop, and the watchdog does not wait for this thread.
 * add and has_room are called on the loop. Bounds: LOCAL_CONNECTIONS together, of them EACH of an identity, within its
 * quota connections; a packet has at most a few hundred bytes and one descriptor. A connection is closed if it is
 * silent for some seconds, if a new one of its identity needs its place, or if an answer cannot be sent. Connections
 * with rings have bounds of their own (rpc/ring.h).
 */
#include "base/status.h"
#include <stdbool.h>

struct ngd_daemon;
struct ngd_front_peer;
struct ngd_local;

ngd_status_t ngd_local_create(struct ngd_daemon *d, struct ngd_local **local_p);
/* False: the thread is behind, so no connection should be accepted now. */
bool ngd_local_has_room(const struct ngd_local *local);
/* Takes a connected, nonblocking, close-on-exec descriptor. */
void ngd_local_add(struct ngd_local *local, int fd, const struct ngd_front_peer *peer);
void ngd_local_stop(struct ngd_local *local);    /* ends all connections */
void ngd_local_destroy(struct ngd_local *local); /* NULL is fine */

#endif
