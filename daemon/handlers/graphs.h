/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_GRAPHS_H
#define NGD_DAEMON_HANDLERS_GRAPHS_H

/* Functions that several methods of Graphs use. */
#include "daemon/object.h"
#include "daemon/rpc/rpc_call.h"
#include "proto/npugraph.pb-c.h"

/*
 * Finds a program by the id of a graph of the call's session. If the id is 0, finds it by a prefix of its digest, or
 * "PREFIX/NUMBER". If the graph is registered in several ways, a prefix alone is refused unless `any` is set.
 * *prog_p is a reference.
 */
ngd_status_t ngd_rpc_find_program(struct ngd_call *call, uint64_t graph, const char *digest, bool any,
                                  struct ngd_program **prog_p, struct ngd_diag *diag);

/* Collects the buffers that a client names. buffers: n_params + n_states, NULL where none was named. They are borrowed
 * from objects (n), whose references the caller drops, also after a failure. */
ngd_status_t ngd_rpc_collect_buffers(struct ngd_call *call, const struct ngd_graph *g,
                                     Npugraph__V1__Binding *const *bindings, size_t n, struct ngd_buffer **buffers,
                                     struct ngd_object **objects, struct ngd_diag *diag);
/* Lists the labels of the params and states without a buffer, in the call's arena; NULL: out of memory. */
char **ngd_rpc_list_unbound(struct ngd_call *call, const struct ngd_binding *binding, size_t *n_p);

#endif
