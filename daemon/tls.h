/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TLS_H
#define NGD_DAEMON_TLS_H

/* TLS with client certificates, through gRPC's own stack. Threads: credentials on the main thread; identity from any.
 */
#include "base/status.h"
#include "daemon/options.h"

struct grpc_call;
struct grpc_server_credentials;
struct ngd_peers;

/* From tls-cert, tls-key and tls-client-ca; the files are read again when they change. CONFIG says what is wrong with
 * them. */
ngd_status_t ngd_tls_credentials(const struct ngd_options *options, struct grpc_server_credentials **creds_p,
                                 struct ngd_diag *diag);
/* "tls:NAME" of the call's client certificate; false when the call shows none. */
bool ngd_tls_identity(struct grpc_call *call, char *name, size_t room);
/* Puts gRPC's own messages into our log; those of failed handshakes wait for ngd_tls_report. */
void ngd_tls_log_grpc(void);
/* Logs connections that ended without a call, as warnings when their handshake failed; for a timer. */
void ngd_tls_report(struct ngd_peers *peers);

#endif
