/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_TRACE_H
#define NGD_DAEMON_RPC_RPC_TRACE_H

/* Reads the trace context of a call's metadata. */
#include "daemon/rpc/rpc_int.h"

/*
 * Begins the trace of a call that arrived, or keeps the context for the messages of a LOCKSTEP stream. Without a
 * context, only calls that do work are traced: not probes, and not sessions, whose calls last as long as their clients.
 */
void rpc_trace_open(struct rpc_call *call);

#endif
