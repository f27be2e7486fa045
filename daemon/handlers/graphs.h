/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_GRAPHS_H
#define NGD_DAEMON_HANDLERS_GRAPHS_H

/* What the methods of Graphs share. */
#include "daemon/object.h"
#include "daemon/rpc/rpc_call.h"
#include "proto/npugraph.pb-c.h"

/*
 * By the id of a graph of the call's session, or (0) by a prefix of its digest, or "PREFIX/NUMBER"; a reference. Of a
 * graph that is registered in several ways a prefix alone names one only when any of them will do.
 */
ngd_status_t ngd_rpc_find_program(struct ngd_call *call, uint64_t graph, const char *digest, bool any,
                                  struct ngd_program **prog_p, struct ngd_diag *diag);

/* The buffers that a client names. buffers: n_params + n_states, NULL where none was named, borrowed from objects (n),
 * whose references are the caller's to drop, also after a failure. */
ngd_status_t ngd_rpc_collect_buffers(struct ngd_call *call, const struct ngd_graph *g,
                                     Npugraph__V1__Binding *const *bindings, size_t n, struct ngd_buffer **buffers,
                                     struct ngd_object **objects, struct ngd_diag *diag);
/* Labels of the params and states without a buffer, in the call's arena; NULL: out of memory. */
char **ngd_rpc_list_unbound(struct ngd_call *call, const struct ngd_binding *binding, size_t *n_p);

#endif
