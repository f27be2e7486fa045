/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_SERVER_H
#define NGD_DAEMON_RPC_RPC_SERVER_H

/*
 * The gRPC server. It has completion queues with one thread each, serves the given methods, and admits calls and
 * connections.
 *
 * Lifetime: create -> start -> (add_connection ...) -> stop -> destroy.
 * Threads: create to start and stop on the main thread; the rest from any thread.
 */
#include "base/clock.h"
#include "base/status.h"
#include "base/wakeup.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ngd_beat;
struct ngd_daemon;
struct ngd_method;
struct ngd_rpc_server;

/* methods: sorted by service; they must outlive the server. */
ngd_status_t ngd_rpc_server_create(struct ngd_daemon *d, const struct ngd_method *methods, size_t n_methods,
                                   struct ngd_rpc_server **server_p, struct ngd_diag *diag);
ngd_status_t ngd_rpc_server_start(struct ngd_rpc_server *server, struct ngd_diag *diag);
/* Takes a connected, nonblocking, close-on-exec descriptor that is in `peers`. */
void ngd_rpc_server_add_connection(struct ngd_rpc_server *server, int fd);

/* Ends open streams with a status; streams that are answering a message end after the answer. */
void ngd_rpc_server_end_streams(struct ngd_rpc_server *server, ngd_status_t status, const char *text);
/* Returns the method, or NULL. */
const struct ngd_method *ngd_rpc_server_method(const struct ngd_rpc_server *server, const char *path);
/* Counts work of a ring that a drain waits for. */
void ngd_rpc_server_count_busy(struct ngd_rpc_server *server, int delta);
/* Number of calls being served, and messages of streams being answered: work that a drain waits for. */
uint32_t ngd_rpc_server_busy(const struct ngd_rpc_server *server);
uint32_t ngd_rpc_server_inflight(const struct ngd_rpc_server *server);
/* Asks each thread for the watchdog, and makes a call to the daemon itself. On the loop, until the server stops. */
void ngd_rpc_server_ask(struct ngd_rpc_server *server);
size_t ngd_rpc_server_threads(const struct ngd_rpc_server *server);
/* Returns the beat of thread i; i = threads: that of the call to itself. */
const struct ngd_beat *ngd_rpc_server_beat(const struct ngd_rpc_server *server, size_t i);
/* Returns how soon its threads run when something arrives; ORDINARY until they have started. */
ngd_wakeup_t ngd_rpc_server_wakeup(const struct ngd_rpc_server *server);

/* Refuses new calls, ends the remaining ones, and waits until the last call is gone. */
void ngd_rpc_server_stop(struct ngd_rpc_server *server);
void ngd_rpc_server_destroy(struct ngd_rpc_server *server); /* NULL is fine */

#endif
