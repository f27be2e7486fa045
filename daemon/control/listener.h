/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LISTENER_H
#define NGD_DAEMON_LISTENER_H

/*
 * Listening sockets: those of the option `listen`, those that systemd passes, and the local socket, whose connections
 * go to local.h.
 *
 * Connections are accepted here, on the loop, for three reasons: the peer's credentials are known, connections are
 * counted, and a second daemon cannot steal a path or share a port. A connection is then given to the front, which
 * gives gRPC the socket or a pair. Threads: the loop (for_each: any, between create and destroy).
 *
 * A reload has two halves: prepare makes the sockets of new addresses, which may fail, and commit closes those that are
 * no longer configured. Connections that are open stay open. Sockets that systemd passed stay.
 */
#include "base/status.h"
#include "daemon/sockets.h"
#include <stdbool.h>

struct ngd_daemon;
struct ngd_gift;
struct ngd_listeners;
struct ngd_options;

/* Locks, binds and listens, but accepts nothing yet. BUSY: another daemon is there. */
ngd_status_t ngd_listeners_create(struct ngd_daemon *d, struct ngd_listeners **listeners_p, struct ngd_diag *diag);
/* Begins to accept connections. */
ngd_status_t ngd_listeners_start(struct ngd_listeners *listeners, struct ngd_diag *diag);
/* Makes what `fresh` configures in addition. After an error, nothing has changed. */
ngd_status_t ngd_listeners_prepare(struct ngd_listeners *listeners, const struct ngd_options *fresh,
                                   struct ngd_diag *diag);
/* Ends what was prepared: true takes it, for the daemon's options as they are now; false drops it. */
void ngd_listeners_commit(struct ngd_listeners *listeners, bool take);
/* Adds the sockets to a gift for the next daemon; they stay ours. */
ngd_status_t ngd_listeners_give(struct ngd_listeners *listeners, struct ngd_gift *gift, struct ngd_diag *diag);
/* Stops accepting and leaves the paths to the next daemon, or takes both back. NO_MEMORY: some sockets are not accepted
 * from. */
ngd_status_t ngd_listeners_pause(struct ngd_listeners *listeners, bool pause);
void ngd_listeners_stop(struct ngd_listeners *listeners);    /* closes the sockets, removes our paths */
void ngd_listeners_destroy(struct ngd_listeners *listeners); /* NULL is fine */
/* Those for gRPC: "unix:/path", "tcp:127.0.0.1:9401", "tls:0.0.0.0:9401". fn runs under a lock and copies what it
 * keeps. */
void ngd_listeners_for_each(struct ngd_listeners *listeners, void (*fn)(void *ctx, const char *address), void *ctx);
/* Prints the path of the local socket. False: there is none. Any thread, between create and destroy. */
bool ngd_listeners_local_path(struct ngd_listeners *listeners, char path[NGD_ADDRESS_MAX]);

#endif
