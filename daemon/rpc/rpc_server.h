/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_SERVER_H
#define NGD_DAEMON_RPC_RPC_SERVER_H

/*
 * The gRPC server: completion queues with one thread each, the methods that it is given, admission, connections.
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

/* methods: sorted by service; they outlive the server. */
ngd_status_t ngd_rpc_server_create(struct ngd_daemon *d, const struct ngd_method *methods, size_t n_methods,
                                   struct ngd_rpc_server **server_p, struct ngd_diag *diag);
ngd_status_t ngd_rpc_server_start(struct ngd_rpc_server *server, struct ngd_diag *diag);
/* Takes a connected, nonblocking, close-on-exec descriptor that peers knows. */
void ngd_rpc_server_add_connection(struct ngd_rpc_server *server, int fd);

/* Ends open streams with a status; calls that are at work end after their answer. */
void ngd_rpc_server_end_streams(struct ngd_rpc_server *server, ngd_status_t status, const char *text);
/* Work that a drain waits for: calls being served, and messages of streams being answered. */
uint32_t ngd_rpc_server_busy(const struct ngd_rpc_server *server);
uint32_t ngd_rpc_server_inflight(const struct ngd_rpc_server *server);
/* For the watchdog: asks each thread, and makes a call to the daemon itself. On the loop, until the server stops. */
void ngd_rpc_server_ask(struct ngd_rpc_server *server);
size_t ngd_rpc_server_threads(const struct ngd_rpc_server *server);
/* Of thread i; i = threads: of the call to itself. */
const struct ngd_beat *ngd_rpc_server_beat(const struct ngd_rpc_server *server, size_t i);
/* How soon its threads run when something arrives; ORDINARY until they have started. */
ngd_wakeup_t ngd_rpc_server_wakeup(const struct ngd_rpc_server *server);

/* Refuses new calls, ends what is left, and waits until the last call is gone. */
void ngd_rpc_server_stop(struct ngd_rpc_server *server);
void ngd_rpc_server_destroy(struct ngd_rpc_server *server); /* NULL is fine */

#endif
