/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_GRAPH_INFO_H
#define NGD_DAEMON_HANDLERS_GRAPH_INFO_H

/* Graphs and models as messages. Memory: a filled message lives in the arena; its details also point into the program,
 * which the caller keeps. */
#include "base/mem.h"
#include "proto/npugraph.pb-c.h"
#include "scheduler/model/model.h"

/* NULL: out of memory. details: params, states, inputs, hosts, outputs, symbols, guards and keys too. */
Npugraph__V1__GraphInfo *ngd_graph_info(struct ngd_program *prog, bool details, struct ngd_arena *arena);
/* The relations of a graph as text. NULL: out of memory. */
char **ngd_guard_list(const struct ngd_graph *graph, struct ngd_arena *arena, size_t *n_p);
Npugraph__V1__ModelInfo *ngd_model_info(struct ngd_model *model, struct ngd_arena *arena);
/* Bytes of a value at these symbols (NULL: at their maxima). OVERFLOW. */
ngd_status_t ngd_value_bytes(const struct ngd_graph *graph, uint32_t value, const int64_t *symbols, uint64_t *bytes_p);

#endif
