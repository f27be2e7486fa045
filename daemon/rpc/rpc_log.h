/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_LOG_H
#define NGD_DAEMON_RPC_RPC_LOG_H

/*
 * Puts gRPC's own messages into our log. A client can cause any number of them there. So each message (a line of gRPC's
 * source) is written at most NGD_LOG_LIMIT times in ten seconds, with a count of those left out; one message does not
 * crowd out the others. Its text is quoted and cut to NGD_LOG_VALUE_MAX, and cannot forge a line.
 */
void ngd_rpc_log_start(void);

#endif
