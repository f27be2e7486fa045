/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_WHO_H
#define NGD_DAEMON_RPC_RPC_WHO_H

/*
 * Who makes a call, by its connection and its metadata: identity, session, request id.
 *
 * The connection's identity counts the call, and owns what the call makes, unless a bearer token names another one:
 *
 *   1. The call names a session that was opened with a bearer token, and has the session's token: its identity is the
 *      session's. Nothing is hashed, so that a replay costs the same with a token and without.
 *   2. Otherwise, the metadata has `authorization: Bearer TOKEN`: its identity is token:NAME.
 *   3. Otherwise its identity is the connection's.
 *
 * Threads: the call's receiving thread, before the handler has the call; count and forget as scrub.
 */
#include "daemon/rpc/rpc_int.h"

/* Finds the connection's identity, and its address. */
ngd_status_t rpc_who_connected(struct rpc_call *call, struct ngd_diag *diag);
/* Finds identity, session and request id. The method is known. */
ngd_status_t rpc_who_calls(struct rpc_call *call, struct ngd_diag *diag);
/* Counts the call for its identities. QUOTA. */
ngd_status_t rpc_who_count(struct rpc_call *call, struct ngd_diag *diag);
/* Notes that the client took the call back. */
void rpc_who_withdrew(struct rpc_call *call);
/* Drops identities and counts. */
void rpc_who_forget(struct rpc_call *call);

#endif
