/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_GRAPH_INFO_H
#define NGD_DAEMON_HANDLERS_GRAPH_INFO_H

/* Makes messages of graphs and models. Memory: a message is in the arena; its details also point into the program, on
 * which the caller keeps a reference. */
#include "base/mem.h"
#include "proto/npugraph.pb-c.h"
#include "scheduler/model/model.h"

/* Makes a message of a graph. details: also params, states, inputs, hosts, outputs, symbols, guards and keys. NULL: out
 * of memory. */
Npugraph__V1__GraphInfo *ngd_graph_info(struct ngd_program *prog, bool details, struct ngd_arena *arena);
/* Prints the relations of a graph. NULL: out of memory. */
char **ngd_guard_list(const struct ngd_graph *graph, struct ngd_arena *arena, size_t *n_p);
Npugraph__V1__ModelInfo *ngd_model_info(struct ngd_model *model, struct ngd_arena *arena);
/* Computes the bytes of a value for these symbols (NULL: for their maxima). OVERFLOW. */
ngd_status_t ngd_value_bytes(const struct ngd_graph *graph, uint32_t value, const int64_t *symbols, uint64_t *bytes_p);

#endif
