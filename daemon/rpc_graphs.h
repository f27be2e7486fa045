/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_GRAPHS_H
#define NGD_DAEMON_RPC_GRAPHS_H

/* What the methods of Graphs share. */
#include "daemon/rpc_call.h"

struct ngd_program;

/* By the id of a graph of the call's session, or (0) by a prefix of its digest; a reference. */
ngd_status_t ngd_rpc_find_program(struct ngd_call *call, uint64_t graph, const char *digest,
                                  struct ngd_program **prog_p, struct ngd_diag *diag);

#endif
