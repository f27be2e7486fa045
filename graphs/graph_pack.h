/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_GRAPH_PACK_H
#define NGD_GRAPHS_GRAPH_PACK_H

/*
 * Packs a sealed graph into bytes and unpacks it. The store keeps the graphs that passes made in this form.
 *
 * The bytes contain the same as the text, but with numbers: operators are indices of the operator table, operands of
 * values, dimensions of expressions. The bytes carry the operator table's digest. Unpacking uses the parser's builder
 * with all its checks, and validates the whole graph at the end. So any bytes are safe to read.
 *
 * Threads: any; pure.
 */
#include "graphs/graph.h"

/* Appends the bytes to out. out->failed: there was no memory. */
void ngd_graph_pack(const struct ngd_graph *graph, struct ngd_strbuf *out);

/*
 * Unpacks a graph. NGD_ERR_FILE_TRUNCATED, NGD_ERR_FILE_UNSUPPORTED (another version or operator table) and
 * NGD_ERR_FILE_CORRUPT: the bytes are bad; other errors come from the builder. The graph may have unused symbols.
 * Its digest is taken from the bytes unchecked: computing it takes longer than the rest, and a plan's graph is never
 * looked up by digest. Callers that rely on the digest call ngd_graph_digest_holds.
 */
ngd_status_t ngd_graph_unpack(const void *data, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag);
bool ngd_graph_digest_holds(const struct ngd_graph *graph);

#endif
