/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_KEY_H
#define NGD_GRAPHS_KEY_H

/*
 * Guards and keys. A guard says under which symbol values an executable is valid; a key is the typed,
 * canonical form of the values that the guards pin, and names an executable together with the graph's
 * digest, the options and the device architecture.
 *
 * ngd_key_make checks the request's symbol values against the graph's ranges (what inputs' dimensions have to do
 * with one another was shown for all values in range when the graph was sealed) and its relations, and pins each: exact
 * symbols at their value, bucketed ones at the next bucket. A failure is NGD_ERR_GUARD_FAILED, and the diagnosis says
 * which guard failed and with what value. Pure functions; no allocation.
 */
#include "graphs/graph.h"

struct ngd_key {
    struct ngd_digest graph;
    struct ngd_digest options; /* of everything else that the executable depends on: options, arch, table versions */
    uint32_t n_symbols;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS]; /* pinned values */
    uint64_t hash;                          /* of all of the above */
};

/* As many values as the graph has symbols, each within its range: so much, that sizes may be computed from them. */
ngd_status_t ngd_key_check_ranges(const struct ngd_graph *graph, const int64_t *symbols, uint32_t n_symbols,
                                  struct ngd_diag *diag);
ngd_status_t ngd_key_make(const struct ngd_graph *graph, const struct ngd_digest *options, const int64_t *symbols,
                          uint32_t n_symbols, struct ngd_key *key_p, struct ngd_diag *diag);
/* The same with other buckets than the graph's: sets has one for each symbol, of which those with n = 0 are the
 * graph's. */
struct ngd_bucket_set;
ngd_status_t ngd_key_make_buckets(const struct ngd_graph *graph, const struct ngd_digest *options,
                                  const struct ngd_bucket_set *sets, const int64_t *symbols, uint32_t n_symbols,
                                  struct ngd_key *key_p, struct ngd_diag *diag);
/*
 * Of sizes that something runs at and nobody asked for, such as a bucket or the rows of several requests: ranges only,
 * as relations are of the values that requests ask for (guard.h).
 */
ngd_status_t ngd_key_make_sizes(const struct ngd_graph *graph, const struct ngd_digest *options,
                                const struct ngd_bucket_set *sets, const int64_t *sizes, uint32_t n_sizes,
                                struct ngd_key *key_p, struct ngd_diag *diag);
bool ngd_key_equal(const struct ngd_key *a, const struct ngd_key *b);
/* "B<=16 T==1"; "(no symbols)". */
void ngd_key_print_symbols(const struct ngd_graph *graph, const struct ngd_key *key, struct ngd_strbuf *sb);
void ngd_key_print(const struct ngd_graph *graph, const struct ngd_key *key,
                   struct ngd_strbuf *sb); /* "B<=16 T==1 arch=..." */
/* Version of the operator table, passes and planner: part of the options digest; bump on a change of results. */
#define NGD_PLANNER_VERSION 5

#endif
