/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GRAPH_PACK_H
#define NGD_GRAPHS_GRAPH_PACK_H

/*
 * A sealed graph as bytes, and back: the form in which the store keeps what passes made of a graph.
 *
 * It says what the text form says, without words to read: operators are numbers of the operator table, whose digest the
 * bytes carry, operands numbers of values, dimensions numbers of expressions. Reading goes through the same builder as
 * the parser does, with every check of it, and the whole is validated in the end; nothing is taken over unchecked, so
 * any bytes are safe to read.
 *
 * Threads: any; pure.
 */
#include "graphs/graph.h"

/* Appends; out->failed when there was no memory. */
void ngd_graph_pack(const struct ngd_graph *graph, struct ngd_strbuf *out);

/*
 * NGD_ERR_FILE_TRUNCATED, NGD_ERR_FILE_UNSUPPORTED (another version, another operator table) or NGD_ERR_FILE_CORRUPT
 * say what is wrong with the bytes as bytes; other errors are the builder's. Symbols that nothing uses any more are
 * fine. The graph's digest is the one that the bytes claim: to compute it takes longer than all the rest, and nothing
 * finds a graph of a plan by it. Who has to rely on it asks ngd_graph_digest_holds.
 */
ngd_status_t ngd_graph_unpack(const void *data, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag);
bool ngd_graph_digest_holds(const struct ngd_graph *graph);

#endif
